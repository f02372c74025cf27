/* numbers.c - comparisons of decimal texts as languages; see numbers.h.
 *
 * Texts without a sign are compared digit by digit. A text with more integer digits is larger. Between two of
 * equal length the first different digit decides. Scientific texts are compared by their exponent first. */
#include "constrain/lang/numbers.h"

#include <stdlib.h>
#include <string.h>

#include "constrain/lang/regular_expression.h"

/* --- decimals */

bool decimal_read(const char *text, size_t size, Decimal *out) {
  *out = (Decimal){.negative = size > 0 && *text == '-'};
  int point = 0, n = 0;
  bool fraction = false, exact = true;
  size_t at = out->negative;
  for (; at < size && text[at] != 'e' && text[at] != 'E'; at++) {
    if (text[at] == '.') {
      fraction = true;
      continue;
    }
    if (n > 0 || text[at] != '0') {
      if (n < DECIMAL_MAX_DIGITS)
        out->digits[n++] = text[at];
      else
        exact &= text[at] == '0';
      if (!fraction) point++;
    } else if (fraction) {
      point--;
    }
  }
  int exponent = 0, sign = 1;
  for (at++; at < size; at++) {
    if (text[at] == '-') sign = -1;
    if (text[at] >= '0' && text[at] <= '9' && exponent < 100000) exponent = exponent * 10 + (text[at] - '0');
  }
  while (n > 0 && out->digits[n - 1] == '0') n--;
  out->n = n;
  out->exponent = n ? point - 1 + sign * exponent : 0;
  if (n == 0) out->negative = false;
  return exact && out->exponent >= -DECIMAL_MAX_DIGITS && out->exponent <= DECIMAL_MAX_DIGITS;
}

bool decimal_divisor(const Decimal *d, uint32_t *divisor, unsigned *scale) {
  uint64_t value = 0;
  int fraction = d->n - 1 - d->exponent;
  for (int i = 0; i < d->n; i++) {
    value = value * 10 + (uint64_t)(d->digits[i] - '0');
    if (value >= UINT64_C(1) << 31) return false;
  }
  for (; fraction < 0; fraction++)
    if ((value *= 10) >= UINT64_C(1) << 31) return false;
  *divisor = (uint32_t)value;
  *scale = (unsigned)fraction;
  return value > 0 && fraction <= LANG_MAX_SCALE;
}

/* --- parts of texts */

static Lang digits(Langs *l, uint32_t min, uint32_t max) {
  return lang_repeat(l, lang_bytes(l, '0', '9'), min, max);
}

#define FRACTION "(?:\\.[0-9]+)?"
#define PLAIN    "(?:0|[1-9][0-9]*)" FRACTION
#define MANTISSA "[1-9]" FRACTION
#define EXPONENT "[eE][+-]?[0-9]+"

static Lang unsigned_bounded(Numbers numbers) {
  return lang_pattern(numbers.langs, numbers.exponents ? PLAIN "|" MANTISSA EXPONENT : PLAIN);
}

static Lang with_sign(Langs *l, const char *sign, Lang of) {
  return lang_then(l, lang_pattern(l, sign), of);
}

/* --- comparison of texts without a sign */

typedef struct {
  const char *integer, *fraction; /* [n_integer], at least one digit; [n_fraction], the last digit not 0 */
  int n_integer, n_fraction;
} Digits;

/* Fractions with a value above (`above`) or below d's: a point and digits, or the empty text (0). */
static Lang fraction_beyond(Langs *l, Digits d, bool above) {
  Lang made = LANG_NONE, any = digits(l, 0, LANG_NO_END);
  if (above) made = lang_then(l, lang_then(l, any, lang_bytes(l, '1', '9')), any);
  for (int i = d.n_fraction; i-- > 0;) {
    unsigned char c = (unsigned char)d.fraction[i];
    made = lang_then(l, lang_byte(l, c), made);
    if (above && c < '9') made = lang_or(l, made, lang_then(l, lang_bytes(l, c + 1, '9'), any));
    if (!above && c > '0') made = lang_or(l, made, lang_then(l, lang_bytes(l, '0', c - 1), any));
    if (!above && i > 0) made = lang_or(l, made, LANG_EMPTY);
  }
  made = lang_then(l, lang_byte(l, '.'), made);
  return above || d.n_fraction == 0 ? made : lang_or(l, made, LANG_EMPTY);
}

/* Texts above (`above`) or below d with as many integer digits and, if `fraction`, any fraction. */
static Lang same_length_beyond(Langs *l, Digits d, bool above, bool fraction) {
  Lang made = fraction ? fraction_beyond(l, d, above) : LANG_NONE;
  Lang end = fraction ? lang_pattern(l, FRACTION) : LANG_EMPTY;
  for (int i = d.n_integer; i-- > 0;) {
    unsigned char c = (unsigned char)d.integer[i], least = i == 0 && d.n_integer > 1 ? '1' : '0';
    uint32_t rest = (uint32_t)(d.n_integer - 1 - i);
    Lang after = lang_then(l, digits(l, rest, rest), end);
    made = lang_then(l, lang_byte(l, c), made);
    if (above && c < '9') made = lang_or(l, made, lang_then(l, lang_bytes(l, c + 1, '9'), after));
    if (!above && c > least) made = lang_or(l, made, lang_then(l, lang_bytes(l, least, c - 1), after));
  }
  return made;
}

static Lang beyond(Langs *l, Digits d, bool above, bool fraction) {
  Lang made = same_length_beyond(l, d, above, fraction),
       end = fraction ? lang_pattern(l, FRACTION) : LANG_EMPTY;
  uint32_t n = (uint32_t)d.n_integer;
  Lang leading = lang_bytes(l, '1', '9');
  if (above) return lang_or(l, made, lang_then(l, leading, lang_then(l, digits(l, n, LANG_NO_END), end)));
  if (n == 1) return made;
  Lang shorter = lang_or(l, lang_byte(l, '0'), lang_then(l, leading, digits(l, 0, n - 2)));
  return lang_or(l, made, lang_then(l, shorter, end));
}

/* Texts of exponents, after "e", compared with `exponent`: above it (order 1), equal (0) or below it (-1). */
static Lang exponent_beyond(Langs *l, int exponent, int order) {
  char text[8];
  int size = 0, value = exponent < 0 ? -exponent : exponent;
  char reversed[8];
  do reversed[size++] = (char)('0' + value % 10);
  while ((value /= 10) > 0);
  for (int i = 0; i < size; i++) text[i] = reversed[size - 1 - i];
  const Digits d = {text, "", size, 0};
  Lang zeros = lang_repeat(l, lang_byte(l, '0'), 0, LANG_NO_END), minus = lang_byte(l, '-');
  Lang plus = lang_maybe(l, lang_byte(l, '+')), any = digits(l, 1, LANG_NO_END);
  Lang same_text = lang_then(l, zeros, lang_literal(l, text, (size_t)size));
  if (order == 0) {
    Lang positive = lang_then(l, plus, same_text), negative = lang_then(l, minus, same_text);
    return exponent > 0 ? positive : exponent < 0 ? negative : lang_or(l, positive, negative);
  }
  bool away = (order > 0) == (exponent > 0) && exponent != 0;
  Lang far = lang_then(l, zeros, beyond(l, d, true, false)),
       near = lang_then(l, zeros, beyond(l, d, false, false));
  if (exponent == 0) return order > 0 ? lang_then(l, plus, far) : lang_then(l, minus, far);
  Lang own_sign = exponent > 0 ? plus : minus, other_sign = exponent > 0 ? minus : plus;
  if (away) return lang_then(l, own_sign, far);
  return lang_or(l, lang_then(l, own_sign, near), lang_then(l, other_sign, any));
}

static Lang with_exponent(Langs *l, Lang mantissa, Lang exponent) {
  return lang_then(l, mantissa, lang_then(l, lang_pattern(l, "[eE]"), exponent));
}

/* The digits of |d| as in a plain text; `text` is their storage. */
static Digits plain_digits(const Decimal *d, char text[2 * DECIMAL_MAX_DIGITS + 2]) {
  int n = 0;
  if (d->n == 0 || d->exponent < 0) text[n++] = '0';
  for (int i = 0; d->n && i <= d->exponent; i++) text[n++] = i < d->n ? d->digits[i] : '0';
  Digits made = {text, text + n, n, 0};
  for (int i = -1; d->n && i > d->exponent; i--) text[n++] = '0';
  for (int i = d->exponent < 0 ? 0 : d->exponent + 1; i < d->n; i++) text[n++] = d->digits[i];
  made.n_fraction = n - made.n_integer;
  return made;
}

/* Unsigned texts of numbers above (`above`) or below |d|. */
static Lang unsigned_beyond(Numbers numbers, const Decimal *d, bool above) {
  Langs *l = numbers.langs;
  char text[2 * DECIMAL_MAX_DIGITS + 2];
  const Lang made = beyond(l, plain_digits(d, text), above, true);
  if (!numbers.exponents) return made;
  if (d->n == 0) return above ? lang_or(l, made, lang_pattern(l, MANTISSA EXPONENT)) : made;
  const Digits mantissa = {d->digits, d->digits + 1, 1, d->n - 1};
  const Lang any = lang_pattern(l, MANTISSA);
  Lang at_same = same_length_beyond(l, mantissa, above, true);
  if (!above) at_same = lang_and(l, at_same, any);
  const Lang parts[] = {made, with_exponent(l, at_same, exponent_beyond(l, d->exponent, 0)),
                        with_exponent(l, any, exponent_beyond(l, d->exponent, above ? 1 : -1))};
  return lang_or_all(l, parts, 3);
}

/* --- sets */

Lang numbers_bounded(Numbers numbers) {
  return with_sign(numbers.langs, "-?", unsigned_bounded(numbers));
}

Lang numbers_any(Numbers numbers) {
  return numbers.exponents ? lang_pattern(numbers.langs, "-?" PLAIN "(?:" EXPONENT ")?")
                           : numbers_bounded(numbers);
}

Lang numbers_without_fraction(Numbers numbers) {
  return lang_pattern(numbers.langs, "-?(?:0|[1-9][0-9]*)");
}

Lang numbers_multiple(Numbers numbers, uint32_t divisor, unsigned scale) {
  return lang_and(numbers.langs, numbers_bounded(numbers), lang_multiple(numbers.langs, divisor, scale));
}

/* Normalised scientific texts of whole numbers: n fraction digits need an exponent of at least n; zeros at
 * the end of the fraction do not count. Fractions of more than 16 such digits are left out. */
static Lang scientific_integers(Langs *l) {
  Lang made = LANG_NONE, zeros = lang_repeat(l, lang_byte(l, '0'), 0, LANG_NO_END);
  for (int n = 0; n <= 16; n++) {
    Lang fraction = lang_then(l, digits(l, (uint32_t)n, (uint32_t)n), zeros);
    Lang some_digits = n ? fraction : lang_repeat(l, lang_byte(l, '0'), 1, LANG_NO_END);
    fraction = lang_then(l, lang_byte(l, '.'), some_digits);
    if (n == 0) fraction = lang_maybe(l, fraction);
    Lang exponent = exponent_beyond(l, n - 1, 1);
    made = lang_or(l, made, with_exponent(l, lang_then(l, lang_bytes(l, '1', '9'), fraction), exponent));
  }
  return made;
}

Lang numbers_integers(Numbers numbers) {
  Langs *l = numbers.langs;
  const Lang plain = lang_pattern(l, "(?:0|[1-9][0-9]*)(?:\\.0+)?");
  return with_sign(l, "-?", numbers.exponents ? lang_or(l, plain, scientific_integers(l)) : plain);
}

Lang numbers_equal(Numbers numbers, const Decimal *d) {
  OWNED(number_set_release) NumberSet one = {.n_words = 0};
  Error err;
  const Status status = number_set_add(numbers, &one, d, &err);
  if (status != STATUS_OK) langs_fail(numbers.langs, status, err.text);
  return number_set_lang(numbers, &one);
}

/* --- many numbers */

typedef struct NumberWord {
  size_t at, size; /* digits in the set's text; zeros or an exponent may follow them */
  Lang rest;
  bool negative;
} NumberWord;

static Status add_word(NumberSet *set, Digits digits, NumberWord word, Error *err) {
  TRY(mem_grow(&set->words, &set->words_capacity, set->n_words + 1, sizeof *set->words, "a schema", err));
  word.at = set->text.size;
  TRY(buffer_append(&set->text, digits.integer, (size_t)digits.n_integer, err));
  if (digits.n_fraction > 0) TRY(buffer_append(&set->text, ".", 1, err));
  if (digits.n_fraction > 0) TRY(buffer_append(&set->text, digits.fraction, (size_t)digits.n_fraction, err));
  word.size = set->text.size - word.at;
  set->words[set->n_words++] = word;
  return STATUS_OK;
}

/* Texts that may follow the digits of a number: zeros or, if it has no fraction, a point and zeros. */
static Lang zeros_after(Langs *l, Digits digits) {
  return lang_pattern(l, digits.n_fraction > 0 ? "0*" : "(?:\\.0+)?");
}

Status number_set_add(Numbers numbers, NumberSet *set, const Decimal *d, Error *err) {
  Langs *l = numbers.langs;
  char text[2 * DECIMAL_MAX_DIGITS + 2];
  const Digits plain = plain_digits(d, text), mantissa = {d->digits, d->digits + 1, 1, d->n - 1};
  NumberWord word = {.rest = zeros_after(l, plain), .negative = d->negative};
  TRY(langs_check(l, err));
  TRY(add_word(set, plain, word, err));
  if (d->n == 0) {
    word.negative = true;
    return add_word(set, plain, word, err);
  }
  if (!numbers.exponents) return STATUS_OK;
  if (set->exponent_text == LANG_NONE || set->exponent != d->exponent)
    set->exponent_text = lang_then(l, lang_pattern(l, "[eE]"), exponent_beyond(l, d->exponent, 0));
  set->exponent = d->exponent;
  word.rest = lang_then(l, zeros_after(l, mantissa), set->exponent_text);
  return add_word(set, mantissa, word, err);
}

/* The words of the set that have a minus sign or, without `negative`, have no sign. */
static Lang words_of_sign(Langs *l, const NumberSet *set, LangWord *words, bool negative) {
  size_t n = 0;
  for (size_t i = 0; i < set->n_words; i++) {
    const NumberWord *word = &set->words[i];
    if (word->negative == negative)
      words[n++] = (LangWord){set->text.data + word->at, word->size, word->rest};
  }
  return lang_words(l, words, n);
}

Lang number_set_lang(Numbers numbers, NumberSet *set) {
  Langs *l = numbers.langs;
  LangWord *words = malloc((set->n_words + 1) * sizeof *words);
  if (!words) return langs_fail(l, STATUS_FAILED, "out of memory"), LANG_NONE;
  const Lang negative = with_sign(l, "-", words_of_sign(l, set, words, true));
  const Lang made = lang_or(l, negative, words_of_sign(l, set, words, false));
  free(words);
  return made;
}

void number_set_release(NumberSet *set) {
  buffer_release(&set->text);
  free(set->words);
  *set = (NumberSet){.n_words = 0};
}

/* --- sides */

/* The numbers that are farther from zero than d: the positive ones or, without `positive`, the negative ones.
 * PRECOND d has that sign, or is zero */
static Lang outward(Numbers numbers, const Decimal *d, bool positive) {
  Lang far = unsigned_beyond(numbers, d, true);
  return positive ? far : with_sign(numbers.langs, "-", far);
}

/* Numbers between d and zero, zero itself, and all numbers of the other sign. PRECOND d is positive if
 * `positive`, else negative */
static Lang inward(Numbers numbers, const Decimal *d, bool positive) {
  Langs *l = numbers.langs;
  const Lang near = unsigned_beyond(numbers, d, false), all = unsigned_bounded(numbers);
  return positive ? lang_or(l, near, with_sign(l, "-", all)) : lang_or(l, with_sign(l, "-", near), all);
}

static Lang side(Numbers numbers, const Decimal *d, bool or_equal, bool above) {
  bool away = d->n == 0 || d->negative != above;
  Lang made = away ? outward(numbers, d, above) : inward(numbers, d, !d->negative);
  return or_equal ? lang_or(numbers.langs, made, numbers_equal(numbers, d)) : made;
}

Lang numbers_above(Numbers numbers, const Decimal *d, bool or_equal) {
  return side(numbers, d, or_equal, true);
}

Lang numbers_below(Numbers numbers, const Decimal *d, bool or_equal) {
  return side(numbers, d, or_equal, false);
}
