/* compare.c - equality, order and `in`, as in Python. */
#include "tokenizer/jinja/eval.h"

static Status dicts_equal(Render *render, const Dict *a, const Dict *b, bool *out) {
  *out = a->count == b->count;
  for (size_t i = 0; *out && i < a->count; i++) {
    const Value *other;
    TRY(dict_find(render, b, a->entries[i].key, &other));
    *out = other;
    if (other) TRY(value_equal(render, a->entries[i].value, *other, out));
  }
  return STATUS_OK;
}

static bool ranges_equal(const Range *a, const Range *b) {
  return a->count == b->count && (a->count == 0 || a->start == b->start) &&
         (a->count < 2 || a->step == b->step);
}

/* Compares numbers exactly (an int64 is not rounded): -1, 0 or 1, and 2 if one of them is NaN. */
static int compare_numbers(Value a, Value b) {
  if (value_is_integer(a) && value_is_integer(b)) {
    int64_t x = value_integer(a), y = value_integer(b);
    return (x > y) - (x < y);
  }
  if (a.kind == VALUE_FLOAT && b.kind == VALUE_FLOAT)
    return a.number < b.number ? -1 : a.number > b.number ? 1 : a.number == b.number ? 0 : 2;
  if (a.kind == VALUE_FLOAT) {
    int order = compare_numbers(b, a);
    return order == 2 ? 2 : -order;
  }
  int64_t x = value_integer(a);
  double y = b.number;
  if (y != y) return 2;
  if (y >= 0x1p63) return -1;
  if (y < -0x1p63) return 1;
  int64_t whole = (int64_t)y;
  if (x != whole) return x < whole ? -1 : 1;
  double rest = y - (double)whole;
  return rest > 0 ? -1 : rest < 0 ? 1 : 0;
}

bool value_same(Value a, Value b) {
  if (a.kind != b.kind) return false;
  switch ((ValueKind)a.kind) {
  case VALUE_MISSING:
  case VALUE_UNDEFINED:
  case VALUE_NONE: return true;
  case VALUE_BOOL: return a.boolean == b.boolean;
  case VALUE_INT: return a.integer == b.integer;
  case VALUE_FLOAT: return a.number == b.number;
  case VALUE_HUGE:
  case VALUE_STRING: return text_equal(*a.text, *b.text);
  case VALUE_FUNCTION:
    return a.function->builtin == b.function->builtin && value_same(a.function->self, b.function->self);
  default: return a.object == b.object;
  }
}

static Status equal_inside(Render *render, Value a, Value b, bool *out) {
  if (value_is_number(a) && value_is_number(b)) {
    *out = compare_numbers(a, b) == 0;
    return STATUS_OK;
  }
  *out = false;
  if (a.kind != b.kind) return STATUS_OK;
  if (a.kind == VALUE_STRING)
    TRY(render_charge_bytes(render, a.text->size == b.text->size ? a.text->size : 0));
  if (a.kind == VALUE_LIST || a.kind == VALUE_TUPLE) {
    *out = a.list->count == b.list->count;
    for (size_t i = 0; *out && i < a.list->count; i++)
      TRY(value_equal(render, a.list->items[i], b.list->items[i], out));
    return STATUS_OK;
  }
  if (a.kind == VALUE_DICT) return dicts_equal(render, a.dict, b.dict, out);
  *out = a.kind == VALUE_RANGE ? ranges_equal(a.range, b.range) : value_same(a, b);
  return STATUS_OK;
}

Status value_equal(Render *render, Value a, Value b, bool *out) {
  TRY(render_charge(render, 1));
  if (++render->depth > RENDER_MAX_DEPTH) return render_fail(render, "values are nested too deep to compare");
  TRY(equal_inside(render, a, b, out));
  render->depth--;
  return STATUS_OK;
}

/* compared: -1, 0, 1 or, if there is no order, 2 */
static bool order_holds(Operator op, int compared) {
  switch (op) {
  case OP_LT: return compared < 0;
  case OP_LE: return compared <= 0;
  case OP_GT: return compared == 1;
  default: return compared == 0 || compared == 1;
  }
}

static Status order_lists(Render *render, Operator op, const List *a, const List *b, bool *out) {
  for (size_t i = 0; i < a->count && i < b->count; i++) {
    bool equal;
    TRY(value_equal(render, a->items[i], b->items[i], &equal));
    if (!equal) return value_order(render, op, a->items[i], b->items[i], out);
  }
  *out = order_holds(op, (a->count > b->count) - (a->count < b->count));
  return STATUS_OK;
}

Status value_order(Render *render, Operator op, Value a, Value b, bool *out) {
  static const char *const signs[] = {[OP_LT] = "<", [OP_LE] = "<=", [OP_GT] = ">", [OP_GE] = ">="};
  TRY(render_charge(render, 1));
  if (a.kind == VALUE_UNDEFINED) return render_undefined(render, a);
  if (b.kind == VALUE_UNDEFINED) return render_undefined(render, b);
  if (value_is_number(a) && value_is_number(b)) {
    int compared = compare_numbers(a, b);
    *out = compared != 2 && order_holds(op, compared);
    return STATUS_OK;
  }
  if (a.kind == VALUE_STRING && b.kind == VALUE_STRING) {
    TRY(render_charge_bytes(render, a.text->size < b.text->size ? a.text->size : b.text->size));
    int compared = text_compare(*a.text, *b.text);
    *out = order_holds(op, (compared > 0) - (compared < 0));
    return STATUS_OK;
  }
  if (a.kind != b.kind || (a.kind != VALUE_LIST && a.kind != VALUE_TUPLE))
    return render_fail(render, "'%s' not supported between instances of '%s' and '%s'", signs[op],
                       value_type(a), value_type(b));
  if (++render->depth > RENDER_MAX_DEPTH) return render_fail(render, "values are nested too deep to compare");
  TRY(order_lists(render, op, a.list, b.list, out));
  render->depth--;
  return STATUS_OK;
}

Status value_contains(Render *render, Value whole, Value part, bool *out) {
  *out = false;
  if (whole.kind == VALUE_STRING) {
    if (part.kind != VALUE_STRING)
      return render_fail(render, "'in <string>' requires string as left operand, not %s", value_type(part));
    TRY(render_charge_bytes(render, whole.text->size));
    *out = text_find(*whole.text, *part.text, 0, whole.text->size) != SIZE_MAX;
    return STATUS_OK;
  }
  if (whole.kind == VALUE_DICT || (whole.kind == VALUE_VIEW && whole.view->kind == VIEW_KEYS)) {
    const Value *found;
    TRY(dict_find(render, whole.kind == VALUE_DICT ? whole.dict : whole.view->dict, part, &found));
    *out = found;
    return STATUS_OK;
  }
  if (!value_is_iterable(whole))
    return render_fail(render, "argument of type '%s' is not iterable", value_type(whole));
  Cursor cursor;
  TRY(cursor_begin(render, whole, &cursor));
  for (bool more = true; !*out;) {
    Value element;
    TRY(cursor_next(render, &cursor, &element, &more));
    if (!more) break;
    TRY(value_equal(render, element, part, out));
  }
  return STATUS_OK;
}
