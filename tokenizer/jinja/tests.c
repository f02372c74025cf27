/* tests.c - the tests that may follow `is`.
 *
 * Called by: eval.c and sequences.c (select, reject) through template_tests; parse_expression.c and
 * sequences.c look up names in it. */
#include "tokenizer/jinja/strings.h"
#include "tokenizer/unicode/unicode.h"

static Status answer(Value *out, bool holds) {
  *out = value_bool(holds);
  return STATUS_OK;
}

/* The mode is a set of kinds of values. */
#define KIND(kind) (1 << VALUE_##kind)
static Status test_kind(Render *render, const CallArgs *args, Value *out) {
  return answer(out, args->mode & 1 << args->self.kind);
}

static Status test_boolean(Render *render, const CallArgs *args, Value *out) {
  return answer(out, args->self.kind == VALUE_BOOL && args->self.boolean == (args->mode != 0));
}

static Status test_escaped(Render *render, const CallArgs *args, Value *out) {
  return answer(out, args->self.kind == VALUE_STRING && args->self.is_safe);
}

/* odd, even, divisibleby: whether the remainder of a division by the argument, or by 2, is args->mode. */
static Status test_remainder(Render *render, const CallArgs *args, Value *out) {
  Value rest;
  bool equal;
  TRY(value_binary(render, OP_MOD, args->self, args->count ? args->items[0] : value_int(2), &rest));
  TRY(value_equal(render, rest, value_int(args->mode), &equal));
  return answer(out, equal);
}

static Status test_comparison(Render *render, const CallArgs *args, Value *out) {
  bool holds;
  TRY(value_compare(render, (Operator)args->mode, args->self, args->items[0], &holds));
  return answer(out, holds);
}

static Status test_sameas(Render *render, const CallArgs *args, Value *out) {
  return answer(out, value_same(args->self, args->items[0]));
}

/* args->mode is true if the name should be a filter's, false if it should be a test's. */
static Status test_name(Render *render, const CallArgs *args, Value *out) {
  Text name;
  TRY(argument_text(render, args->mode ? "the name of a filter" : "the name of a test", args->self, &name));
  return answer(out, builtin_find(args->mode ? template_filters : template_tests, name));
}

enum {
  WITH_LENGTH = KIND(UNDEFINED) | KIND(STRING) | KIND(LIST) | KIND(TUPLE) | KIND(DICT) | KIND(RANGE),
  CALLABLE = KIND(FUNCTION) | KIND(MACRO) | KIND(LOOP) | KIND(JOINER) | KIND(UNDEFINED),
};

const Builtin template_tests[] = {
    {"defined", "", 0, test_kind, ~KIND(UNDEFINED)},
    {"undefined", "", 0, test_kind, KIND(UNDEFINED)},
    {"none", "", 0, test_kind, KIND(NONE)},
    {"boolean", "", 0, test_kind, KIND(BOOL)},
    {"true", "", 0, test_boolean, true},
    {"false", "", 0, test_boolean, false},
    {"integer", "", 0, test_kind, KIND(INT) | KIND(HUGE)},
    {"float", "", 0, test_kind, KIND(FLOAT)},
    {"number", "", 0, test_kind, KIND(BOOL) | KIND(INT) | KIND(HUGE) | KIND(FLOAT)},
    {"string", "", 0, test_kind, KIND(STRING)},
    {"mapping", "", 0, test_kind, KIND(DICT)},
    {"iterable", "", 0, test_kind, WITH_LENGTH | KIND(VIEW) | KIND(ITERATOR) | KIND(LOOP)},
    {"sequence", "", 0, test_kind, WITH_LENGTH}, /* as in jinja2: what has len() and [], a dict too */
    {"callable", "", 0, test_kind, CALLABLE},
    {"escaped", "", 0, test_escaped, 0},
    {"even", "", 0, test_remainder, 0},
    {"odd", "", 0, test_remainder, 1},
    {"divisibleby", "num", 1, test_remainder, 0},
    {"lower", "", 0, string_has_case, CHAR_LOWERCASE},
    {"upper", "", 0, string_has_case, CHAR_UPPERCASE},
    {"sameas", "other", 1, test_sameas, 0},
    {"in", "seq", 1, test_comparison, OP_IN},
    {"filter", "", 0, test_name, true},
    {"test", "", 0, test_name, false},
    {"eq", "other", 1, test_comparison, OP_EQ},
    {"equalto", "other", 1, test_comparison, OP_EQ},
    {"==", "other", 1, test_comparison, OP_EQ},
    {"ne", "other", 1, test_comparison, OP_NE},
    {"!=", "other", 1, test_comparison, OP_NE},
    {"lt", "other", 1, test_comparison, OP_LT},
    {"lessthan", "other", 1, test_comparison, OP_LT},
    {"<", "other", 1, test_comparison, OP_LT},
    {"le", "other", 1, test_comparison, OP_LE},
    {"<=", "other", 1, test_comparison, OP_LE},
    {"gt", "other", 1, test_comparison, OP_GT},
    {"greaterthan", "other", 1, test_comparison, OP_GT},
    {">", "other", 1, test_comparison, OP_GT},
    {"ge", "other", 1, test_comparison, OP_GE},
    {">=", "other", 1, test_comparison, OP_GE},
    {0},
};
