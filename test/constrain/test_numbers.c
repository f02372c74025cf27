/* test_numbers.c - schemas of numbers against exact decimal arithmetic: what fits is taken, and nothing else;
 * what is begun can be ended. */
#include "constrain/constraint.h"
#include "test/constrain/random_schemas.h"
#include "test/tests.h"

enum { N_SCHEMAS = 300, N_TEXTS = 30, N_WALKS = 6, SCALE = 14, MOST_RULES = 32 };

/* A value times 10^SCALE. */
typedef __int128 Exact;

typedef enum {
  MINIMUM,
  ABOVE,
  MAXIMUM,
  BELOW,
  MULTIPLE_OF,
  EQUAL,
  INTEGER,
  NOT,
  ANY_OF,
  ALL_OF,
  ONE_OF
} RuleKind;
static const char *const names[] = {"minimum",    "exclusiveMinimum",
                                    "maximum",    "exclusiveMaximum",
                                    "multipleOf", "const",
                                    "type",       "not",
                                    "anyOf",      "allOf",
                                    "oneOf"};

typedef struct {
  RuleKind kind;
  Exact value;
  int parts[2];
} Rule;

typedef struct {
  Rule rules[MOST_RULES]; /* [n] the last one is the whole schema */
  int n;
  Buffer text;
} Rules;

static Exact power(int n) {
  Exact made = 1;
  while (n-- > 0) made *= 10;
  return made;
}

/* PRECOND a number of JSON that is a multiple of 10^-SCALE */
static Exact exactly(const char *text) {
  const bool negative = *text == '-';
  Exact value = 0;
  int exponent = SCALE;
  bool fraction = false;
  for (text += negative; *text && *text != 'e'; text++)
    if (*text == '.') {
      fraction = true;
    } else {
      value = value * 10 + (*text - '0');
      exponent -= fraction;
    }
  if (*text) exponent += atoi(text + 1);
  value = exponent < 0 ? value / power(-exponent) : value * power(exponent);
  return negative ? -value : value;
}

static bool judge(const Rules *r, int i, Exact value) {
  const Rule *rule = &r->rules[i];
  const Exact of = rule->value;
  switch (rule->kind) {
  case MINIMUM: return value >= of;
  case ABOVE: return value > of;
  case MAXIMUM: return value <= of;
  case BELOW: return value < of;
  case MULTIPLE_OF: return value % of == 0;
  case EQUAL: return value == of;
  case INTEGER: return value % power(SCALE) == 0;
  case NOT: return !judge(r, rule->parts[0], value);
  default: break;
  }
  const int n = judge(r, rule->parts[0], value) + judge(r, rule->parts[1], value);
  return rule->kind == ANY_OF ? n > 0 : rule->kind == ALL_OF ? n == 2 : n == 1;
}

/* A number of few digits: a mantissa, perhaps a fraction, perhaps an exponent. */
static void random_number(char *out, bool exponents, uint64_t *seed) {
  static const char *const fractions[] = {"", "", "", ".5", ".25", ".1", ".05", ".75", ".001", ".20", ".000"};
  static const uint32_t sizes[] = {2, 10, 10, 100, 1000, 3000000};
  const uint32_t digits = random_below(seed, sizes[random_below(seed, 6)]);
  const char *sign = random_below(seed, 4) ? "" : "-";
  const char *fraction = fractions[random_below(seed, sizeof fractions / sizeof *fractions)];
  const int n = sprintf(out, "%s%u%s", sign, digits, fraction);
  if (!exponents || digits == 0 || digits > 9 || random_below(seed, 3)) return;
  sprintf(out + n, "e%d", (int)random_below(seed, 9) - 4);
}

static int add_rule(Rules *r, int depth, uint64_t *seed) {
  static const char *const divisors[] = {"0.5",  "1",   "2",   "3",  "7",     "10",
                                         "0.01", "1.5", "0.3", "25", "100000"};
  Rule rule = {.kind = (RuleKind)random_below(seed, depth ? ONE_OF + 1 : NOT)};
  char number[40];
  random_number(number, true, seed);
  if (rule.kind == MULTIPLE_OF)
    strcpy(number, divisors[random_below(seed, sizeof divisors / sizeof *divisors)]);
  rule.value = exactly(number);
  put_text(&r->text, "{\"");
  put_text(&r->text, names[rule.kind]);
  put_text(&r->text, "\": ");
  if (rule.kind < INTEGER) put_text(&r->text, number);
  if (rule.kind == INTEGER) put_text(&r->text, "\"integer\"");
  if (rule.kind > NOT) put_text(&r->text, "[");
  if (rule.kind >= NOT) rule.parts[0] = add_rule(r, depth - 1, seed);
  if (rule.kind > NOT) {
    put_text(&r->text, ", ");
    rule.parts[1] = add_rule(r, depth - 1, seed);
    put_text(&r->text, "]");
  }
  put_text(&r->text, "}");
  r->rules[r->n] = rule;
  return r->n++;
}

/* Writes random allowed bytes until the text ends; fails where none is allowed. */
static void walk(Constraint *c, const Rules *r, uint64_t *seed) {
  static const char bytes[] = "-.0123456789";
  char text[100] = "";
  Error err;
  assert_int_equal(constraint_begin(c, &err), STATUS_OK);
  for (size_t n = 0; n < 14; n++) {
    const uint32_t first = random_below(seed, sizeof bytes - 1);
    bool allowed = false;
    for (uint32_t i = 0; i < sizeof bytes - 1 && !allowed; i++) {
      text[n] = bytes[(first + i) % (sizeof bytes - 1)];
      assert_int_equal(constraint_take_bytes(c, text + n, 1, &allowed, NULL, &err), STATUS_OK);
    }
    if (!allowed) text[n] = 0;
    if (!allowed && !constraint_may_end(c)) fail_msg("nothing follows %s of %s", text, r->text.data);
    if (!allowed || (n > 6 && constraint_may_end(c) && random_below(seed, 2))) break;
  }
  if (constraint_may_end(c) && !judge(r, r->n - 1, exactly(text))) fail_msg("%s: %s", r->text.data, text);
}

static bool takes(Constraint *c, const char *text) {
  bool allowed;
  Error err;
  assert_int_equal(constraint_begin(c, &err), STATUS_OK);
  assert_int_equal(constraint_take_bytes(c, text, strlen(text), &allowed, NULL, &err), STATUS_OK);
  return allowed && constraint_may_end(c);
}

TEST(numbers_that_fit_are_taken_and_no_others) {
  uint64_t seed = 5;
  int n_taken = 0, n_refused = 0;
  for (int i = 0; i < SAMPLE(N_SCHEMAS); i++) {
    Rules r = {.n = 0};
    Error err;
    char number[40];
    put_text(&r.text, "{\"type\": \"number\", \"allOf\": [");
    const int first = add_rule(&r, 2, &seed);
    put_text(&r.text, ", ");
    const int second = add_rule(&r, 1, &seed);
    put_text(&r.text, "]}");
    r.rules[r.n++] = (Rule){ALL_OF, 0, {first, second}};
    for (int plain = 0; plain < 2; plain++) {
      Constraint c;
      const SchemaOptions options = {.exponents = !plain, .plain_integers = plain};
      const size_t size = r.text.size;
      const bool opened = constraint_open("schema", r.text.data, size, options, NULL, &c, &err) == STATUS_OK;
      put_text(&r.text, (char[]){' ', 0}), r.text.size = size, r.text.data[size] = 0;
      if (!opened && !strstr(err.text, "no text satisfies")) fail_msg("%s: %s", r.text.data, err.text);
      for (int j = 0; j < N_TEXTS; j++) {
        random_number(number, !plain, &seed);
        const bool fits = judge(&r, r.n - 1, exactly(number)), taken = opened && takes(&c, number);
        const bool canonical = !strchr(number, '.') || number[strlen(number) - 1] != '0';
        if (taken ? !fits : fits && (canonical || !plain))
          fail_msg("%s: %s fits: %d, plain: %d", r.text.data, number, fits, plain);
        n_taken += taken, n_refused += !taken;
      }
      for (int j = 0; opened && plain && j < N_WALKS; j++) walk(&c, &r, &seed);
      if (opened) constraint_close(&c);
    }
    buffer_release(&r.text);
  }
  assert_true(n_taken > SAMPLE(2000) && n_refused > SAMPLE(5000));
}
