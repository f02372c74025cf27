/* numbers.h - sets of JSON numbers as languages of their texts, exact for any Decimal.
 *
 * A language contains plain texts (-12.50) and, if Numbers.exponents is set, also normalised scientific texts
 * (-1.25e+1): one digit that is not 0, perhaps a fraction, then an exponent. */
#pragma once

#include "base/buffer.h"
#include "constrain/lang/lang.h"

#define DECIMAL_MAX_DIGITS 400

/* digits[0].digits[1..n) * 10^exponent, without zeros at either end; n == 0: zero. */
typedef struct {
  bool negative;
  int n, exponent;
  char digits[DECIMAL_MAX_DIGITS];
} Decimal;

/* Reads a valid JSON number. False if a Decimal has no room for its digits, or if Decimal.exponent is outside
 * -400..400. */
bool decimal_read(const char *text, size_t size, Decimal *out);
/* The divisor and scale with which lang_multiple() makes the multiples of |d|. False if d is zero or these
 * are too large. */
bool decimal_divisor(const Decimal *d, uint32_t *divisor, unsigned *scale);

typedef struct {
  Langs *langs;
  bool exponents;
} Numbers;

Lang numbers_any(Numbers numbers);              /* with `exponents` the whole JSON grammar */
Lang numbers_bounded(Numbers numbers);          /* the texts that the sets below are made of */
Lang numbers_integers(Numbers numbers);         /* 1.0 too */
Lang numbers_without_fraction(Numbers numbers); /* no '.' and no exponent */
Lang numbers_equal(Numbers numbers, const Decimal *d);
/* A set of numbers, to which numbers are added one by one. Zero-initialise it. */
typedef struct {
  Buffer text;              /* digits of all `words` (NumberWord in numbers.c) */
  struct NumberWord *words; /* [n_words] */
  size_t n_words, words_capacity;
  int exponent;       /* exponent for which exponent_text was made */
  Lang exponent_text; /* LANG_NONE: not made yet */
} NumberSet;
Status number_set_add(Numbers numbers, NumberSet *set, const Decimal *d, Error *err);
Lang number_set_lang(Numbers numbers, NumberSet *set);
void number_set_release(NumberSet *set);
Lang numbers_above(Numbers numbers, const Decimal *d, bool or_equal);
Lang numbers_below(Numbers numbers, const Decimal *d, bool or_equal);
Lang numbers_multiple(Numbers numbers, uint32_t divisor, unsigned scale);
