/* tests.c - the tests that may follow `is`.
 *
 * Called by: eval.c, and select and reject with a test's name (the table). */
#include "tokenizer/jinja/eval.h"
#include "tokenizer/unicode/unicode.h"

static Status answer(Value *out, bool holds) {
  *out = value_bool(holds);
  return STATUS_OK;
}

/* Tests of the value alone. */
#define TEST(name, holds)                                                                                    \
  static Status test_##name(Render *render, Value self, const CallArgs *args, Value *out) {                      \
    (void)render, (void)args;                                                                                \
    return answer(out, holds);                                                                               \
  }
TEST(defined, self.kind != VALUE_UNDEFINED)
TEST(undefined, self.kind == VALUE_UNDEFINED)
TEST(none, self.kind == VALUE_NONE)
TEST(boolean, self.kind == VALUE_BOOL)
TEST(true, self.kind == VALUE_BOOL && self.boolean)
TEST(false, self.kind == VALUE_BOOL && !self.boolean)
TEST(integer, self.kind == VALUE_INT || self.kind == VALUE_HUGE)
TEST(float, self.kind == VALUE_FLOAT)
TEST(number, value_is_number(self) || self.kind == VALUE_HUGE)
TEST(string, self.kind == VALUE_STRING)
TEST(mapping, self.kind == VALUE_DICT)
TEST(iterable, value_is_iterable(self) || self.kind == VALUE_LOOP)
TEST(escaped, self.kind == VALUE_STRING && self.is_safe)
TEST(callable, self.kind == VALUE_FUNCTION || self.kind == VALUE_MACRO || self.kind == VALUE_LOOP ||
                   self.kind == VALUE_JOINER || self.kind == VALUE_UNDEFINED)
/* Values with a length and items by key: jinja2 does not require an order. */
TEST(sequence, self.kind == VALUE_STRING || self.kind == VALUE_LIST || self.kind == VALUE_TUPLE ||
                   self.kind == VALUE_DICT || self.kind == VALUE_RANGE || self.kind == VALUE_UNDEFINED)
#undef TEST

static Status remainder_of(Render *render, Value a, Value b, bool *zero) {
  Value rest;
  TRY(value_binary(render, OP_MOD, a, b, &rest));
  return value_equal(render, rest, value_int(0), zero);
}

static Status test_even(Render *render, Value self, const CallArgs *args, Value *out) {
  (void)args;
  bool zero;
  TRY(remainder_of(render, self, value_int(2), &zero));
  return answer(out, zero);
}

static Status test_odd(Render *render, Value self, const CallArgs *args, Value *out) {
  (void)args;
  Value rest;
  bool one;
  TRY(value_binary(render, OP_MOD, self, value_int(2), &rest));
  TRY(value_equal(render, rest, value_int(1), &one));
  return answer(out, one);
}

static Status test_divisibleby(Render *render, Value self, const CallArgs *args, Value *out) {
  bool zero;
  TRY(remainder_of(render, self, args->items[0], &zero));
  return answer(out, zero);
}

static Status test_eq(Render *render, Value self, const CallArgs *args, Value *out) {
  bool holds;
  TRY(value_equal(render, self, args->items[0], &holds));
  return answer(out, holds);
}

static Status test_ne(Render *render, Value self, const CallArgs *args, Value *out) {
  bool holds;
  TRY(value_equal(render, self, args->items[0], &holds));
  return answer(out, !holds);
}

static Status ordered(Render *render, Value self, const CallArgs *args, Order order, Value *out) {
  bool holds;
  TRY(value_order(render, self, args->items[0], order, &holds));
  return answer(out, holds);
}
static Status test_lt(Render *render, Value self, const CallArgs *args, Value *out) {
  return ordered(render, self, args, ORDER_LT, out);
}
static Status test_le(Render *render, Value self, const CallArgs *args, Value *out) {
  return ordered(render, self, args, ORDER_LE, out);
}
static Status test_gt(Render *render, Value self, const CallArgs *args, Value *out) {
  return ordered(render, self, args, ORDER_GT, out);
}
static Status test_ge(Render *render, Value self, const CallArgs *args, Value *out) {
  return ordered(render, self, args, ORDER_GE, out);
}

static Status test_in(Render *render, Value self, const CallArgs *args, Value *out) {
  bool holds;
  TRY(value_contains(render, args->items[0], self, &holds));
  return answer(out, holds);
}

static Status test_sameas(Render *render, Value self, const CallArgs *args, Value *out) {
  (void)render;
  return answer(out, value_same(self, args->items[0]));
}

/* Tests for a letter of this case and none of the other. */
static Status test_case(Render *render, Value self, int wanted, Value *out) {
  Text text;
  TRY(value_string(render, self, &text));
  TRY(render_charge(render, text.size / 8));
  return answer(out, text_has_case(text, wanted));
}
static Status test_lower(Render *render, Value self, const CallArgs *args, Value *out) {
  (void)args;
  return test_case(render, self, CHAR_LOWERCASE, out);
}
static Status test_upper(Render *render, Value self, const CallArgs *args, Value *out) {
  (void)args;
  return test_case(render, self, CHAR_UPPERCASE, out);
}

static Status test_filter(Render *render, Value self, const CallArgs *args, Value *out) {
  (void)args;
  Text name;
  TRY(argument_text(render, "the name of a filter", self, &name));
  return answer(out, builtin_find(template_filters, name));
}

static Status test_test(Render *render, Value self, const CallArgs *args, Value *out) {
  (void)args;
  Text name;
  TRY(argument_text(render, "the name of a test", self, &name));
  return answer(out, builtin_find(template_tests, name));
}

const Builtin template_tests[] = {
    {"defined", "", 0, test_defined},
    {"undefined", "", 0, test_undefined},
    {"none", "", 0, test_none},
    {"boolean", "", 0, test_boolean},
    {"true", "", 0, test_true},
    {"false", "", 0, test_false},
    {"integer", "", 0, test_integer},
    {"float", "", 0, test_float},
    {"number", "", 0, test_number},
    {"string", "", 0, test_string},
    {"mapping", "", 0, test_mapping},
    {"iterable", "", 0, test_iterable},
    {"sequence", "", 0, test_sequence},
    {"callable", "", 0, test_callable},
    {"escaped", "", 0, test_escaped},
    {"even", "", 0, test_even},
    {"odd", "", 0, test_odd},
    {"divisibleby", "num", 1, test_divisibleby},
    {"lower", "", 0, test_lower},
    {"upper", "", 0, test_upper},
    {"sameas", "other", 1, test_sameas},
    {"in", "seq", 1, test_in},
    {"filter", "", 0, test_filter},
    {"test", "", 0, test_test},
    {"eq", "other", 1, test_eq},
    {"equalto", "other", 1, test_eq},
    {"==", "other", 1, test_eq},
    {"ne", "other", 1, test_ne},
    {"!=", "other", 1, test_ne},
    {"lt", "other", 1, test_lt},
    {"lessthan", "other", 1, test_lt},
    {"<", "other", 1, test_lt},
    {"le", "other", 1, test_le},
    {"<=", "other", 1, test_le},
    {"gt", "other", 1, test_gt},
    {"greaterthan", "other", 1, test_gt},
    {">", "other", 1, test_gt},
    {"ge", "other", 1, test_ge},
    {">=", "other", 1, test_ge},
    {NULL, NULL, 0, NULL},
};
