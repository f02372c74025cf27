/* arithmetic.c - + - * / // % ** and ~ of Python's values.
 *
 * Always true: integers have 64 bits; a result beyond them fails, nothing wraps. */
#include <math.h>

#include "tokenizer/jinja/strings.h"

static const char *const signs[] = {[OP_ADD] = "+",       [OP_SUB] = "-", [OP_MUL] = "*", [OP_DIV] = "/",
                                    [OP_FLOORDIV] = "//", [OP_MOD] = "%", [OP_POW] = "**"};

static Status too_large(Render *render, Operator op) {
  return render_fail(render, "the result of %s is beyond 64 bits", signs[op]);
}

static Status divided_by_zero(Render *render, Operator op, bool floats) {
  if (op == OP_DIV) return render_fail(render, "%s", floats ? "float division by zero" : "division by zero");
  return render_fail(render, "%s",
                     floats ? (op == OP_MOD ? "float modulo" : "float floor division by zero")
                            : "integer division or modulo by zero");
}

static Status integer_power(Render *render, int64_t a, int64_t b, Value *out) {
  if (b < 0) {
    if (a == 0) return render_fail(render, "0.0 cannot be raised to a negative power");
    *out = value_float(pow((double)a, (double)b));
    return STATUS_OK;
  }
  int64_t result = 1;
  for (; b > 0; b >>= 1) {
    if ((b & 1) && __builtin_mul_overflow(result, a, &result)) return too_large(render, OP_POW);
    if (b > 1 && __builtin_mul_overflow(a, a, &a)) return too_large(render, OP_POW);
  }
  *out = value_int(result);
  return STATUS_OK;
}

/* a / b rounded once, as in Python. */
static double divide(int64_t a, int64_t b) {
  __extension__ typedef unsigned __int128 Wide;
  if (a == 0) return b < 0 ? -0.0 : 0.0;
  const uint64_t n = a < 0 ? -(uint64_t)a : (uint64_t)a, d = b < 0 ? -(uint64_t)b : (uint64_t)b;
  const int shift = 64 + __builtin_clzll(n);
  const Wide shifted = (Wide)n << shift, quotient = shifted / d; /* has at least 64 bits; rounded to 53 */
  const double size = ldexp((double)(quotient | (shifted % d != 0)), -shift);
  return (a < 0) != (b < 0) ? -size : size;
}

static Status integer_binary(Render *render, Operator op, int64_t a, int64_t b, Value *out) {
  int64_t result = 0;
  bool overflow = false;
  if ((op == OP_DIV || op == OP_FLOORDIV || op == OP_MOD) && b == 0)
    return divided_by_zero(render, op, false);
  switch (op) {
  case OP_ADD: overflow = __builtin_add_overflow(a, b, &result); break;
  case OP_SUB: overflow = __builtin_sub_overflow(a, b, &result); break;
  case OP_MUL: overflow = __builtin_mul_overflow(a, b, &result); break;
  case OP_DIV: *out = value_float(divide(a, b)); return STATUS_OK;
  case OP_FLOORDIV:
    if (b == -1)
      overflow = __builtin_sub_overflow((int64_t)0, a, &result);
    else
      result = a / b - (a % b != 0 && (a < 0) != (b < 0));
    break;
  case OP_MOD:
    result = b == -1 ? 0 : a % b;
    if (result != 0 && (result < 0) != (b < 0)) result += b;
    break;
  default: return integer_power(render, a, b, out);
  }
  if (overflow) return too_large(render, op);
  *out = value_int(result);
  return STATUS_OK;
}

static double floor_mod(double a, double b) {
  double rest = fmod(a, b);
  if (rest == 0) return copysign(0, b);
  return (rest < 0) != (b < 0) ? rest + b : rest;
}

/* Computed from the remainder, as in CPython: a == (a // b) * b + a % b then holds as closely as possible. */
static double floor_div(double a, double b) {
  double rest = fmod(a, b), quotient = (a - rest) / b;
  if (rest != 0 && (rest < 0) != (b < 0)) quotient -= 1;
  if (quotient == 0) return copysign(0, a / b);
  double whole = floor(quotient);
  return quotient - whole > 0.5 ? whole + 1 : whole;
}

static Status float_power(Render *render, double a, double b, Value *out) {
  if (a == 0 && b < 0) return render_fail(render, "0.0 cannot be raised to a negative power");
  double result = pow(a, b);
  if (isnan(result) && !isnan(a) && !isnan(b))
    return render_fail(render, "complex numbers are not supported");
  if (isinf(result) && isfinite(a) && isfinite(b))
    return render_fail(render, "Numerical result out of range");
  *out = value_float(result);
  return STATUS_OK;
}

static Status float_binary(Render *render, Operator op, double a, double b, Value *out) {
  if ((op == OP_DIV || op == OP_FLOORDIV || op == OP_MOD) && b == 0) return divided_by_zero(render, op, true);
  switch (op) {
  case OP_ADD: *out = value_float(a + b); break;
  case OP_SUB: *out = value_float(a - b); break;
  case OP_MUL: *out = value_float(a * b); break;
  case OP_DIV: *out = value_float(a / b); break;
  case OP_FLOORDIV: *out = value_float(floor_div(a, b)); break;
  case OP_MOD: *out = value_float(floor_mod(a, b)); break;
  default: return float_power(render, a, b, out);
  }
  return STATUS_OK;
}

/* --- sequences */

static Status join_lists(Render *render, Value a, Value b, Value *out) {
  Value *items;
  size_t n = a.list->count, m = b.list->count;
  TRY(value_list(render, n + m, &items, out));
  out->kind = a.kind;
  if (n) memcpy(items, a.list->items, n * sizeof *items);
  if (m) memcpy(items + n, b.list->items, m * sizeof *items);
  return STATUS_OK;
}

/* If either string is Markup, the other one is escaped. */
static Status join_strings(Render *render, Value a, Value b, Value *out) {
  Text left = *a.text, right = *b.text;
  bool safe = a.is_safe || b.is_safe;
  if (safe) TRY(text_escaped(render, a, &left));
  if (safe) TRY(text_escaped(render, b, &right));
  TRY(string_appended(render, left, right, &left));
  TRY(value_text(render, left, out));
  out->is_safe = safe;
  return STATUS_OK;
}

/* `~` escapes nothing even for Markup, as in jinja2 without autoescaping. */
Status value_concat(Render *render, Value a, Value b, Value *out) {
  Text left, right;
  TRY(value_string(render, a, &left));
  TRY(value_string(render, b, &right));
  TRY(string_appended(render, left, right, &left));
  return value_text(render, left, out);
}

static Status repeat(Render *render, Value what, int64_t times, Value *out) {
  if (times < 0) times = 0;
  if (what.kind == VALUE_STRING) {
    Text repeated;
    TRY(string_repeated(render, *what.text, (size_t)times, &repeated));
    TRY(value_text(render, repeated, out));
    out->is_safe = what.is_safe;
    return STATUS_OK;
  }
  size_t n = what.list->count, total;
  if (__builtin_mul_overflow(n, (size_t)times, &total) || total > RENDER_MAX_MEMORY / sizeof(Value))
    return render_fail(render, "a list would have more than %zu elements", RENDER_MAX_MEMORY / sizeof(Value));
  Value *items;
  TRY(value_list(render, total, &items, out));
  out->kind = what.kind;
  for (size_t i = 0; i < total; i++) items[i] = what.list->items[i % n];
  return STATUS_OK;
}

static bool repeats(Value what, Value times) {
  return (what.kind == VALUE_STRING || what.kind == VALUE_LIST || what.kind == VALUE_TUPLE) &&
         value_is_integer(times);
}

static Status unsupported(Render *render, Operator op, Value a, Value b) {
  bool adds = op == OP_ADD;
  if (adds && a.kind == VALUE_STRING)
    return render_fail(render, "can only concatenate str (not \"%s\") to str", value_type(b));
  if (adds && (a.kind == VALUE_LIST || a.kind == VALUE_TUPLE))
    return render_fail(render, "can only concatenate %s (not \"%s\") to %s", value_type(a), value_type(b),
                       value_type(a));
  return render_fail(render, "unsupported operand type(s) for %s: '%s' and '%s'",
                     op == OP_POW ? "** or pow()" : signs[op], value_type(a), value_type(b));
}

Status value_binary(Render *render, Operator op, Value a, Value b, Value *out) {
  if (a.kind == VALUE_STRING && op == OP_MOD) return format_percent(render, *a.text, b, out);
  if (a.kind == VALUE_UNDEFINED) return render_undefined(render, a);
  if (b.kind == VALUE_UNDEFINED) return render_undefined(render, b);
  if (a.kind == VALUE_HUGE || b.kind == VALUE_HUGE)
    return render_fail(render, "an integer of the variables is beyond 64 bits");
  if (value_is_integer(a) && value_is_integer(b))
    return integer_binary(render, op, value_integer(a), value_integer(b), out);
  if (value_is_number(a) && value_is_number(b))
    return float_binary(render, op, value_number(a), value_number(b), out);
  if (op == OP_ADD && a.kind == VALUE_STRING && b.kind == VALUE_STRING)
    return join_strings(render, a, b, out);
  if (op == OP_ADD && a.kind == b.kind && (a.kind == VALUE_LIST || a.kind == VALUE_TUPLE))
    return join_lists(render, a, b, out);
  if (op == OP_MUL && repeats(a, b)) return repeat(render, a, value_integer(b), out);
  if (op == OP_MUL && repeats(b, a)) return repeat(render, b, value_integer(a), out);
  return unsupported(render, op, a, b);
}
