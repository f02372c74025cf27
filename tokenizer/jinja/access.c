/* access.c - a.b, a[b], a[b:c:d] and calls, as in jinja2's immutable sandbox.
 *
 * Always true: a template cannot change a list or a dict, nor reach Python's internals such as __class__. */
#include <stdio.h>

#include "base/utf8.h"
#include "tokenizer/jinja/eval.h"

/* --- built-in functions */

const Builtin *builtin_find(const Builtin *table, Text name) {
  for (; table->name; table++)
    if (text_is(name, table->name)) return table;
  return NULL;
}

Status value_method(Render *render, const Builtin *builtin, Value self, Value *out) {
  return value_object(render, VALUE_FUNCTION, &(Function){builtin, self}, sizeof(Function), out);
}

/* The index of the name among words separated by blanks, or -1. */
static int word_index(const char *words, Text name) {
  int i = 0;
  for (const char *at = words; *at; i++) {
    size_t n = strcspn(at, " ");
    if (text_equal(text_of(at, n, true), name)) return i;
    at += n + (at[n] == ' ');
  }
  return -1;
}

enum { MAX_PARAMETERS = 8 };

static Status bind(Render *render, const Builtin *builtin, const CallArgs *args, Value *bound, int n) {
  const char *parameters = builtin->parameters + (builtin->parameters[0] == '/');
  if (args->count > (size_t)n)
    return render_fail(render, "%s() takes at most %d argument%s (%zu given)", builtin->name, n,
                       n == 1 ? "" : "s", args->count);
  for (int i = 0; i < n; i++)
    bound[i] = (size_t)i < args->count ? args->items[i] : (Value){.kind = VALUE_MISSING};
  for (size_t i = 0; i < args->n_keywords; i++) {
    Text name = args->keywords[i].name;
    int parameter = builtin->parameters[0] == '/' ? -1 : word_index(parameters, name);
    if (parameter < 0)
      return render_fail(render, "%s() got an unexpected keyword argument '%.*s'", builtin->name,
                         (int)name.size, name.data);
    if (bound[parameter].kind != VALUE_MISSING)
      return render_fail(render, "%s() got multiple values for argument '%.*s'", builtin->name,
                         (int)name.size, name.data);
    bound[parameter] = args->keywords[i].value;
  }
  for (int i = 0; i < builtin->n_required; i++)
    if (bound[i].kind == VALUE_MISSING)
      return render_fail(render, "%s() is missing its argument %d", builtin->name, i + 1);
  return STATUS_OK;
}

Status builtin_call(Render *render, const Builtin *builtin, Value self, const CallArgs *given, Value *out) {
  TRY(render_charge(render, 1));
  CallArgs args = *given;
  Value bound[MAX_PARAMETERS];
  if (builtin->parameters) {
    const char *at = builtin->parameters + (builtin->parameters[0] == '/');
    int n = *at ? 1 : 0;
    for (; *at; at++) n += *at == ' ';
    TRY(bind(render, builtin, given, bound, n));
    args = (CallArgs){.items = bound, .count = (size_t)n};
  }
  args.self = self;
  args.mode = builtin->mode;
  return builtin->call(render, &args, out);
}

Status value_call(Render *render, Value callee, const CallArgs *args, Value *out) {
  bool first;
  switch ((ValueKind)callee.kind) {
  case VALUE_FUNCTION:
    return builtin_call(render, callee.function->builtin, callee.function->self, args, out);
  case VALUE_MACRO: return macro_call(render, callee.macro, args, out);
  case VALUE_UNDEFINED: return render_undefined(render, callee);
  case VALUE_LOOP:
    if (args->count != 1) return render_fail(render, "loop() takes 1 argument (%zu given)", args->count);
    return loop_call(render, callee.loop, args->items[0], out);
  case VALUE_JOINER: /* "" on the first call, the separator afterwards */
    first = !callee.joiner->called;
    callee.joiner->called = true;
    return value_text(render, first ? text_literal("") : callee.joiner->separator, out);
  default: return render_fail(render, "'%s' object is not callable", value_type(callee));
  }
}

/* --- attributes */

/* Makes an Undefined that remembers the lookup, for its message. */
static Status make_undefined(Render *render, Value owner, Value name, Value *out) {
  bool is_none = owner.kind == VALUE_NONE;
  char *label;
  TRY(render_alloc(render, &label, 64, 1));
  snprintf(label, 64, "%s%s", is_none ? "None" : value_type(owner), is_none ? "" : " object");
  Undefined undefined = {.owner = label, .name = name};
  return value_object(render, VALUE_UNDEFINED, &undefined, sizeof undefined, out);
}

static Status make_unsafe(Render *render, Value owner, Text name, Value *out) {
  char *hint;
  TRY(render_alloc(render, &hint, 200, 1));
  snprintf(hint, 200, "access to attribute '%.*s' of '%s' object is unsafe.",
           name.size > 80 ? 80 : (int)name.size, name.data, value_type(owner));
  return value_undefined(render, hint, out);
}

/* Methods that change their object. */
static bool is_forbidden(Value owner, Text name) {
  const char *words = owner.kind == VALUE_LIST   ? "append clear pop reverse insert sort extend remove"
                      : owner.kind == VALUE_DICT ? "clear pop popitem setdefault update"
                                                 : "";
  return word_index(words, name) >= 0;
}

/* Attributes of every Python object. */
static bool is_internal(Text name) {
  return word_index("__class__ __doc__ __dir__ __init__ __eq__ __ne__ __lt__ __le__ __gt__ __ge__ __hash__ "
                    "__str__ __repr__ __reduce__ __reduce_ex__ __new__ __format__ __getattribute__ "
                    "__setattr__ __delattr__ __sizeof__ __subclasshook__ __init_subclass__",
                    name) >= 0;
}

static const Builtin *methods_of(Value owner) {
  static const Builtin none[] = {{0}};
  switch ((ValueKind)owner.kind) {
  case VALUE_STRING: return template_string_methods;
  case VALUE_LIST: return template_list_methods;
  case VALUE_RANGE:
  case VALUE_TUPLE: return template_tuple_methods;
  case VALUE_DICT: return template_dict_methods;
  case VALUE_CYCLER: return template_cycler_methods;
  default: return none;
  }
}

/* Python's getattr(); MISSING if there is no such attribute. */
static Status find_attribute(Render *render, Value owner, Text name, Value *out) {
  *out = (Value){.kind = VALUE_MISSING};
  if (is_internal(name) || is_forbidden(owner, name)) return make_unsafe(render, owner, name, out);
  const Builtin *method = builtin_find(methods_of(owner), name);
  if (method) return value_method(render, method, owner, out);
  if (owner.kind == VALUE_LOOP) return loop_attribute(render, owner.loop, name, out);
  if (owner.kind == VALUE_MACRO && text_is(name, "name"))
    return value_text(render, macro_name(owner.macro), out);
  if (owner.kind == VALUE_CYCLER && text_is(name, "current"))
    *out = owner.cycler->items->items[owner.cycler->at];
  if (owner.is_group && text_is(name, "grouper")) *out = owner.list->items[0];
  if (owner.is_group && text_is(name, "list")) *out = owner.list->items[1];
  if (owner.kind == VALUE_RANGE) {
    if (text_is(name, "start")) *out = value_int(owner.range->start);
    if (text_is(name, "stop")) *out = value_int(owner.range->stop);
    if (text_is(name, "step")) *out = value_int(owner.range->step);
  }
  if (owner.kind != VALUE_NAMESPACE) return STATUS_OK;
  const Value *member;
  TRY(dict_find_text(render, owner.dict, name, &member));
  if (member) *out = *member;
  return STATUS_OK;
}

/* --- items */

static Status sequence_at(Render *render, Value owner, int64_t index, Value *out) {
  size_t count = 0;
  *out = (Value){.kind = VALUE_MISSING};
  TRY(value_charge_length(render, owner));
  value_length(owner, &count);
  if (index < 0) index += (int64_t)count;
  if (index < 0 || (uint64_t)index >= count) return STATUS_OK;
  if (owner.kind == VALUE_RANGE) {
    *out = range_at(owner.range, (size_t)index);
  } else if (owner.kind == VALUE_STRING) {
    size_t at = text_offset(*owner.text, (size_t)index);
    TRY(value_text(render, text_slice(*owner.text, at, at + text_step(*owner.text, at)), out));
    out->is_safe = owner.is_safe;
  } else {
    *out = owner.list->items[index];
  }
  return STATUS_OK;
}

static bool is_sequence(Value value) {
  return value.kind == VALUE_LIST || value.kind == VALUE_TUPLE || value.kind == VALUE_STRING ||
         value.kind == VALUE_RANGE;
}

/* Python's owner[key]; MISSING if it fails in a way that jinja2 tolerates. */
static Status find_item(Render *render, Value owner, Value key, Value *out) {
  *out = (Value){.kind = VALUE_MISSING};
  if (is_sequence(owner))
    return value_is_integer(key) ? sequence_at(render, owner, value_integer(key), out) : STATUS_OK;
  if (owner.kind == VALUE_UNDEFINED) return render_undefined(render, owner);
  if (owner.kind != VALUE_DICT || key.kind == VALUE_LIST || key.kind == VALUE_DICT) return STATUS_OK;
  const Value *found;
  TRY(dict_find(render, owner.dict, key, &found));
  if (found) *out = *found;
  return STATUS_OK;
}

Status value_item(Render *render, Value owner, Value key, Value *out) {
  TRY(find_item(render, owner, key, out));
  if (out->kind != VALUE_MISSING) return STATUS_OK;
  if (key.kind == VALUE_STRING) TRY(find_attribute(render, owner, *key.text, out));
  return out->kind != VALUE_MISSING ? STATUS_OK : make_undefined(render, owner, key, out);
}

Status value_attribute(Render *render, Value owner, Text name, Value *out) {
  TRY(render_charge(render, 1));
  if (owner.kind == VALUE_UNDEFINED && !is_internal(name)) return render_undefined(render, owner);
  TRY(find_attribute(render, owner, name, out));
  if (out->kind != VALUE_MISSING) return STATUS_OK;
  if (owner.kind == VALUE_DICT) {
    const Value *found;
    TRY(dict_find_text(render, owner.dict, name, &found));
    if (found) {
      *out = *found;
      return STATUS_OK;
    }
  }
  Value key;
  TRY(value_text(render, name, &key));
  return make_undefined(render, owner, key, out);
}

/* --- slices */

static Status slice_index(Render *render, Value value, int64_t fallback, int64_t *out) {
  *out = fallback;
  if (value.kind == VALUE_MISSING || value.kind == VALUE_NONE) return STATUS_OK;
  if (!value_is_integer(value))
    return render_fail(render, "slice indices must be integers or None or have an __index__ method");
  *out = value_integer(value);
  return STATUS_OK;
}

/* Python's slice.indices(): the first index, the index to stop at (*last), and the number of elements. */
static void slice_bounds(int64_t count, int64_t start, int64_t stop, int64_t step, int64_t *first,
                         int64_t *last, size_t *n) {
  int64_t low = step > 0 ? 0 : -1, high = step > 0 ? count : count - 1;
  if (start < 0) start = start < -count ? low : start + count;
  if (stop < 0) stop = stop < -count ? low : stop + count;
  if (start < low) start = low;
  if (start > high) start = high;
  if (stop < low) stop = low;
  if (stop > high) stop = high;
  *first = start;
  *last = stop;
  uint64_t span = 0, stride = step < 0 ? 0 - (uint64_t)step : (uint64_t)step;
  if (step > 0 && stop > start) span = (uint64_t)(stop - start);
  if (step < 0 && start > stop) span = (uint64_t)(start - stop);
  *n = span && stride ? (size_t)((span - 1) / stride + 1) : 0;
}

static Status slice_text(Render *render, Value owner, int64_t first, int64_t step, size_t n, Value *out) {
  const Text *text = owner.text;
  TRY(render_charge_bytes(render, text->size));
  if (step == 1 || n == 0) {
    size_t from = n ? text_offset(*text, (size_t)first) : 0;
    Text rest = text_slice(*text, from, text->size);
    TRY(value_text(render, text_slice(rest, 0, text_offset(rest, n)), out));
  } else {
    size_t mark = put_mark(render), at = text_offset(*text, (size_t)first);
    for (size_t i = 0; i < n; i++) {
      TRY(put_text(render, text_slice(*text, at, at + text_step(*text, at))));
      for (int64_t k = 0; i + 1 < n && k < (step < 0 ? -step : step); k++)
        at = step < 0 ? utf8_before(text->data, at) : at + text_step(*text, at);
    }
    TRY(put_take(render, mark, out));
  }
  out->is_safe = owner.is_safe;
  return STATUS_OK;
}

static Status slice_range(Render *render, const Range *range, int64_t first, int64_t last, int64_t step,
                          size_t n, Value *out) {
  int64_t start = range->start + first * range->step, stride = range->step;
  if (__builtin_mul_overflow(stride, step, &stride)) stride = 1;
  /* `count` alone ends the slice. `stop` can wrap; it is only printed, and read by templates. */
  int64_t stop = (int64_t)((uint64_t)range->start + (uint64_t)last * (uint64_t)range->step);
  Range slice = {.start = start, .step = stride, .stop = stop, .count = n};
  return value_object(render, VALUE_RANGE, &slice, sizeof slice, out);
}

Status value_slice(Render *render, Value owner, Value start, Value stop, Value step, Value *out) {
  if (owner.kind == VALUE_UNDEFINED) return render_undefined(render, owner);
  if (owner.kind == VALUE_DICT) return render_fail(render, "unhashable type: 'slice'");
  if (!is_sequence(owner)) return render_fail(render, "'%s' object is not subscriptable", value_type(owner));
  int64_t stride, from, to, first, last;
  size_t count = 0, n;
  TRY(slice_index(render, step, 1, &stride));
  if (stride == 0) return render_fail(render, "slice step cannot be zero");
  TRY(slice_index(render, start, stride > 0 ? 0 : INT64_MAX, &from));
  TRY(slice_index(render, stop, stride > 0 ? INT64_MAX : INT64_MIN, &to));
  TRY(value_charge_length(render, owner));
  value_length(owner, &count);
  slice_bounds((int64_t)count, from, to, stride, &first, &last, &n);
  if (owner.kind == VALUE_STRING) return slice_text(render, owner, first, stride, n, out);
  if (owner.kind == VALUE_RANGE) return slice_range(render, owner.range, first, last, stride, n, out);
  Value *items;
  TRY(value_list(render, n, &items, out));
  out->kind = owner.kind;
  for (size_t i = 0; i < n; i++) items[i] = owner.list->items[first + (int64_t)i * stride];
  return STATUS_OK;
}
