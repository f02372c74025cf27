/* value.c - makes values and dicts, and walks through them; see value.h.
 *
 * Always true: a dict's entries are in the order of insertion and no two keys are equal. */
#include "tokenizer/jinja/value.h"

#include <math.h>

#include "tokenizer/hash.h"
#include "tokenizer/jinja/eval.h"

const char *value_type(Value value) {
  switch ((ValueKind)value.kind) {
  case VALUE_MISSING:
  case VALUE_UNDEFINED: return "Undefined";
  case VALUE_NONE: return "NoneType";
  case VALUE_BOOL: return "bool";
  case VALUE_INT:
  case VALUE_HUGE: return "int";
  case VALUE_FLOAT: return "float";
  case VALUE_STRING: return value.is_safe ? "Markup" : "str";
  case VALUE_LIST: return "list";
  case VALUE_TUPLE: return value.is_group ? "_GroupTuple" : "tuple";
  case VALUE_DICT: return "dict";
  case VALUE_VIEW:
    return value.view->kind == VIEW_KEYS     ? "dict_keys"
           : value.view->kind == VIEW_VALUES ? "dict_values"
                                             : "dict_items";
  case VALUE_RANGE: return "range";
  case VALUE_ITERATOR: return value.iterator->type_name;
  case VALUE_NAMESPACE: return "Namespace";
  case VALUE_LOOP: return "LoopContext";
  case VALUE_MACRO: return "Macro";
  case VALUE_FUNCTION:
    return value.function->self.kind == VALUE_MISSING ? "function" : "builtin_function_or_method";
  case VALUE_CYCLER: return "Cycler";
  case VALUE_JOINER: return "Joiner";
  }
  return "?";
}

bool value_truth(Value value) {
  size_t length;
  switch ((ValueKind)value.kind) {
  case VALUE_MISSING:
  case VALUE_UNDEFINED:
  case VALUE_NONE: return false;
  case VALUE_BOOL: return value.boolean;
  case VALUE_INT: return value.integer != 0;
  case VALUE_FLOAT: return value.number != 0;
  case VALUE_STRING: return value.text->size > 0;
  default: return !value_length(value, &length) || length > 0;
  }
}

/* --- making */

Status value_object(Render *render, ValueKind kind, const void *object, size_t size, Value *out) {
  void *kept;
  TRY(render_alloc(render, &kept, 1, size));
  *out = (Value){.kind = (uint8_t)kind, .object = memcpy(kept, object, size)};
  return STATUS_OK;
}

Status value_text(Render *render, Text text, Value *out) {
  return value_object(render, VALUE_STRING, &text, sizeof text, out);
}

Status value_list(Render *render, size_t count, Value **items, Value *out) {
  TRY(render_charge(render, count / 4 + 1));
  List *list;
  TRY(render_alloc(render, &list, 1, sizeof *list));
  list->count = count;
  TRY(render_alloc(render, items, count, sizeof **items));
  list->items = *items;
  *out = (Value){.kind = VALUE_LIST, .list = list};
  return STATUS_OK;
}

Status value_copies(Render *render, const Value *items, size_t count, Value *out) {
  Value *copies;
  TRY(value_list(render, count, &copies, out));
  if (count) memcpy(copies, items, count * sizeof *copies);
  return STATUS_OK;
}

Status value_tuple2(Render *render, Value a, Value b, Value *out) {
  Value *items;
  TRY(value_list(render, 2, &items, out));
  out->kind = VALUE_TUPLE;
  items[0] = a;
  items[1] = b;
  return STATUS_OK;
}

Status value_undefined(Render *render, const char *hint, Value *out) {
  return value_object(render, VALUE_UNDEFINED, &(Undefined){.hint = hint}, sizeof(Undefined), out);
}

Status value_dict(Render *render, size_t capacity, Value *out) {
  Dict dict = {.capacity = capacity};
  TRY(render_alloc(render, &dict.entries, capacity, sizeof *dict.entries));
  return value_object(render, VALUE_DICT, &dict, sizeof dict, out);
}

/* A number is an int unless its text has a fraction or an exponent, as in Python's json. */
static Status json_number_value(Render *render, const Json *json, Value *out) {
  size_t size;
  const char *text = json_number(json, &size);
  double number;
  if (memchr(text, '.', size) || memchr(text, 'e', size) || memchr(text, 'E', size)) {
    bool negative = text[0] == '-';
    *out = value_float(json_double(json, &number) ? number : negative ? -INFINITY : INFINITY);
    return STATUS_OK;
  }
  int64_t integer;
  if (json_int64(json, &integer)) {
    *out = value_int(integer);
    return STATUS_OK;
  }
  TRY(value_text(render, text_of(text, size, true), out));
  out->kind = VALUE_HUGE;
  return STATUS_OK;
}

static Status json_key_value(Render *render, const Json *member, bool trusted, Value *out) {
  OWNED(buffer_release) Buffer decoded = {0};
  const char *key;
  size_t size;
  TRY(json_key_bytes(member, &decoded, &key, &size, render->err));
  if (decoded.size > 0) {
    char *copy;
    TRY(render_alloc(render, &copy, size, 1));
    key = memcpy(copy, key, size);
  }
  return value_text(render, text_of(key, size, trusted), out);
}

static Status json_object_value(Render *render, const Json *json, bool trusted, Value *out) {
  TRY(value_dict(render, json_count(json), out));
  for (const Json *member = json_first(json); member; member = json_next(member)) {
    Value key, value;
    TRY(json_key_value(render, member, trusted, &key));
    bool is_role = strcmp(json_key(member), "role") == 0 && json_is_string(member);
    TRY(value_json(render, member, trusted || is_role, &value));
    TRY(dict_set(render, out->dict, key, value));
  }
  return STATUS_OK;
}

static Status json_array_value(Render *render, const Json *json, bool trusted, Value *out) {
  Value *items;
  TRY(value_list(render, json_count(json), &items, out));
  for (const Json *element = json_first(json); element; element = json_next(element))
    TRY(value_json(render, element, trusted, items++));
  return STATUS_OK;
}

Status value_json(Render *render, const Json *json, bool trusted, Value *out) {
  TRY(render_charge(render, 1));
  bool boolean;
  if (json_is_object(json)) return json_object_value(render, json, trusted, out);
  if (json_is_array(json)) return json_array_value(render, json, trusted, out);
  if (json_is_number(json)) return json_number_value(render, json, out);
  if (json_is_string(json)) {
    size_t size;
    const char *text = json_string(json, &size);
    return value_text(render, text_of(text, size, trusted), out);
  }
  *out = json_bool(json, &boolean) ? value_bool(boolean) : value_none();
  return STATUS_OK;
}

/* --- dicts */

static Status value_hash(Render *render, Value value, uint64_t *hash) {
  uint64_t seed = render->hash_seed;
  if (value.kind == VALUE_STRING) {
    TRY(render_charge_bytes(render, value.text->size));
    *hash = hash_bytes(seed, value.text->data, value.text->size);
  } else if (value_is_number(value)) { /* equal numbers have equal hashes, whatever their types */
    double number = value_number(value);
    uint64_t bits = 0;
    if (number != 0) memcpy(&bits, &number, sizeof bits);
    *hash = hash_word(seed, bits);
  } else if (value.kind == VALUE_TUPLE) {
    if (++render->depth > RENDER_MAX_DEPTH)
      return render_fail(render, "values are nested too deep for a key");
    *hash = hash_word(seed, value.list->count);
    for (size_t i = 0; i < value.list->count; i++) {
      uint64_t item;
      TRY(value_hash(render, value.list->items[i], &item));
      *hash = hash_word(*hash, item);
    }
    render->depth--;
    return render_charge(render, value.list->count);
  } else if (value.kind == VALUE_LIST || value.kind == VALUE_DICT ||
             (value.kind == VALUE_VIEW && value.view->kind != VIEW_VALUES)) {
    return render_fail(render, "unhashable type: '%s'", value_type(value));
  } else {
    *hash = hash_word(seed, value.kind);
  }
  return STATUS_OK;
}

/* Finds the key's entry. If it is absent, *entry is NULL and *slot the free slot (of an indexed dict). */
static Status dict_entry(Render *render, const Dict *dict, Value key, uint64_t hash, DictEntry **entry,
                         size_t *slot) {
  *entry = NULL;
  size_t mask = dict->n_slots - 1, at = hash & mask;
  for (size_t i = 0;; i++) {
    if (dict->slots ? dict->slots[at] == 0 : i == dict->count) break;
    DictEntry *candidate = &dict->entries[dict->slots ? dict->slots[at] - 1 : i];
    bool equal = false;
    if (candidate->hash == hash) TRY(value_equal(render, candidate->key, key, &equal));
    if (equal) {
      *entry = candidate;
      return STATUS_OK;
    }
    at = (at + 1) & mask;
    if (i % 16 == 15) TRY(render_charge(render, 1));
  }
  *slot = at;
  return STATUS_OK;
}

Status dict_find(Render *render, const Dict *dict, Value key, const Value **found) {
  uint64_t hash;
  size_t slot;
  DictEntry *entry;
  TRY(value_hash(render, key, &hash));
  TRY(dict_entry(render, dict, key, hash, &entry, &slot));
  *found = entry ? &entry->value : NULL;
  return STATUS_OK;
}

Status dict_find_text(Render *render, const Dict *dict, Text key, const Value **found) {
  return dict_find(render, dict, (Value){.kind = VALUE_STRING, .text = &key}, found);
}

static Status dict_index(Render *render, Dict *dict) {
  dict->n_slots = dict->n_slots ? 2 * dict->n_slots : 4 * DICT_INDEXED;
  while (dict->n_slots & (dict->n_slots - 1)) dict->n_slots += dict->n_slots & -dict->n_slots;
  TRY(render_alloc(render, &dict->slots, dict->n_slots, sizeof *dict->slots));
  memset(dict->slots, 0, dict->n_slots * sizeof *dict->slots);
  for (size_t i = 0; i < dict->count; i++) {
    size_t at = dict->entries[i].hash & (dict->n_slots - 1);
    while (dict->slots[at]) at = (at + 1) & (dict->n_slots - 1);
    dict->slots[at] = (uint32_t)i + 1;
  }
  return render_charge(render, dict->count);
}

Status dict_set(Render *render, Dict *dict, Value key, Value value) {
  uint64_t hash;
  size_t slot;
  DictEntry *entry;
  TRY(value_hash(render, key, &hash));
  TRY(dict_entry(render, dict, key, hash, &entry, &slot));
  if (entry) {
    entry->value = value;
    return STATUS_OK;
  }
  TRY(render_grow(render, &dict->entries, dict->count, &dict->capacity, sizeof *dict->entries));
  dict->entries[dict->count++] = (DictEntry){key, value, hash};
  if (dict->slots) dict->slots[slot] = (uint32_t)dict->count;
  if (dict->count >= DICT_INDEXED && 2 * dict->count > dict->n_slots) return dict_index(render, dict);
  return render_charge(render, 1);
}

/* --- elements */

bool value_length(Value value, size_t *length) {
  switch ((ValueKind)value.kind) {
  case VALUE_UNDEFINED: *length = 0; return true;
  case VALUE_STRING: *length = text_count(*value.text); return true;
  case VALUE_LIST:
  case VALUE_TUPLE: *length = value.list->count; return true;
  case VALUE_DICT: *length = value.dict->count; return true;
  case VALUE_VIEW: *length = value.view->dict->count; return true;
  case VALUE_RANGE: *length = value.range->count; return true;
  default: return false;
  }
}

Status value_charge_length(Render *render, Value value) {
  return value.kind == VALUE_STRING ? render_charge_bytes(render, value.text->size) : STATUS_OK;
}

bool value_is_iterable(Value value) {
  size_t length;
  if (value.kind == VALUE_STRING) return true; /* does not count the string's characters */
  return value_length(value, &length) || value.kind == VALUE_ITERATOR;
}

Status cursor_begin(Render *render, Value source, Cursor *cursor) {
  *cursor = (Cursor){.source = source};
  if (value_is_iterable(source)) return STATUS_OK;
  return render_fail(render, "'%s' object is not iterable", value_type(source));
}

Value range_at(const Range *range, size_t index) {
  return value_int(range->start + (int64_t)index * range->step);
}

Status view_at(Render *render, const View *view, size_t index, Value *out) {
  const DictEntry *entry = &view->dict->entries[index];
  if (view->kind == VIEW_ITEMS) return value_tuple2(render, entry->key, entry->value, out);
  *out = view->kind == VIEW_KEYS ? entry->key : entry->value;
  return STATUS_OK;
}

Status cursor_next(Render *render, Cursor *cursor, Value *out, bool *more) {
  TRY(render_charge(render, 1));
  Value source = cursor->source;
  size_t count = 0;
  if (source.kind == VALUE_ITERATOR) {
    if (++render->depth > RENDER_MAX_DEPTH) return render_fail(render, "iterators are nested too deep");
    TRY(source.iterator->next(render, source.iterator, out, more));
    render->depth--;
    return STATUS_OK;
  }
  if (source.kind == VALUE_STRING) {
    size_t begin = cursor->at;
    *more = begin < source.text->size;
    if (!*more) return STATUS_OK;
    cursor->at += text_step(*source.text, begin);
    return value_text(render, text_slice(*source.text, begin, cursor->at), out);
  }
  if (!value_length(source, &count))
    return render_fail(render, "'%s' object is not iterable", value_type(source));
  *more = cursor->at < count;
  if (!*more) return STATUS_OK;
  size_t at = cursor->at++;
  if (source.kind == VALUE_VIEW) return view_at(render, source.view, at, out);
  *out = source.kind == VALUE_RANGE  ? range_at(source.range, at)
         : source.kind == VALUE_DICT ? source.dict->entries[at].key
                                     : source.list->items[at];
  return STATUS_OK;
}

Status value_elements(Render *render, Value source, const List **list) {
  if (source.kind == VALUE_LIST || source.kind == VALUE_TUPLE) {
    *list = source.list;
    return STATUS_OK;
  }
  Cursor cursor;
  TRY(cursor_begin(render, source, &cursor));
  List *elements;
  TRY(render_alloc(render, &elements, 1, sizeof *elements));
  *elements = (List){0};
  size_t capacity = 0;
  for (;;) {
    Value element;
    bool more;
    TRY(cursor_next(render, &cursor, &element, &more));
    if (!more) break;
    TRY(render_grow(render, &elements->items, elements->count, &capacity, sizeof element));
    elements->items[elements->count++] = element;
  }
  *list = elements;
  return STATUS_OK;
}
