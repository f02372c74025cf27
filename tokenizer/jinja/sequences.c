/* sequences.c - filters over the elements of a value.
 *
 * Always true: Python's generators are iterators here: they make each element once, when it is asked for.
 *              The iterators of batch and slice make all their elements at once. */
#include "tokenizer/jinja/filters.h"
#include "tokenizer/jinja/strings.h"

/* --- iterators */

static Status iterator_make(Render *render, const char *type_name, Value source,
                            Status (*next)(Render *, Iterator *, Value *, bool *), void *state, Value *out) {
  Iterator iterator = {.type_name = type_name, .next = next, .cursor = {.source = source}, .state = state};
  return value_object(render, VALUE_ITERATOR, &iterator, sizeof iterator, out);
}

static Status next_plain(Render *render, Iterator *iterator, Value *out, bool *more) {
  return cursor_next(render, &iterator->cursor, out, more);
}

/* --- attributes of elements */

/* A path such as "a.b.0": names and numbers. */
typedef struct {
  Value *parts; /* [count] */
  size_t count;
} AttributePath;

static bool all_digits(Text text) {
  for (size_t i = 0; i < text.size; i++)
    if (text.data[i] < '0' || text.data[i] > '9') return false;
  return text.size > 0;
}

static Status path_part(Render *render, Text part, Value *out) {
  int64_t index;
  if (all_digits(part) && string_to_int(part, 10, &index)) {
    *out = value_int(index);
    return STATUS_OK;
  }
  return value_text(render, part, out);
}

static size_t count_parts(Text text, char separator) {
  size_t n = 1;
  for (size_t i = 0; i < text.size; i++) n += text.data[i] == separator;
  return n;
}

/* The part from *from to the next separator; moves *from past that separator. */
static Text next_part(Text text, const char *separator, size_t *from) {
  size_t begin = *from, to = text_find(text, text_literal(separator), begin, text.size);
  if (to == SIZE_MAX) to = text.size;
  *from = to + 1;
  return text_slice(text, begin, to);
}

static Status path_make(Render *render, Value attribute, AttributePath *path) {
  *path = (AttributePath){0};
  if (!is_given(attribute) || attribute.kind == VALUE_NONE) return STATUS_OK;
  bool is_text = attribute.kind == VALUE_STRING;
  path->count = is_text ? count_parts(*attribute.text, '.') : 1;
  TRY(render_alloc(render, &path->parts, path->count, sizeof *path->parts));
  path->parts[0] = attribute;
  for (size_t from = 0, i = 0; is_text && i < path->count; i++)
    TRY(path_part(render, next_part(*attribute.text, ".", &from), &path->parts[i]));
  return STATUS_OK;
}

static Status path_follow(Render *render, const AttributePath *path, Value item, Value fallback, Value *out) {
  *out = item;
  for (size_t i = 0; i < path->count; i++) {
    TRY(value_item(render, *out, path->parts[i], out));
    if (out->kind == VALUE_UNDEFINED && is_given(fallback) && fallback.kind != VALUE_NONE) *out = fallback;
  }
  return STATUS_OK;
}

/* Lower-cases a string unless case counts. */
static Status fold(Render *render, bool case_sensitive, Value *value) {
  if (case_sensitive || value->kind != VALUE_STRING) return STATUS_OK;
  size_t mark = put_mark(render);
  TRY(put_case(render, *value->text, 0, value->text->size, CASE_LOWER));
  return put_take(render, mark, value);
}

/* --- map, select, reject */

/* The state of a map, select or reject, which checks its arguments when its first element is asked for. */
typedef struct {
  int kind; /* EACH_MAP, EACH_SELECT or EACH_REJECT */
  bool by_attribute, prepared;
  CallArgs args;          /* the given arguments; after prepare(), those of the filter or test */
  const Builtin *builtin; /* a filter or test; NULL: none */
  AttributePath path;     /* looked up before the call; without `builtin`, map returns what it finds */
  Value fallback;
} Calling;

static Status copy_args(Render *render, const CallArgs *args, CallArgs *out) {
  Value *items;
  Keyword *keywords;
  TRY(render_alloc(render, &items, args->count, sizeof *items));
  TRY(render_alloc(render, &keywords, args->n_keywords, sizeof *keywords));
  if (args->count) memcpy(items, args->items, args->count * sizeof *items);
  if (args->n_keywords) memcpy(keywords, args->keywords, args->n_keywords * sizeof *keywords);
  *out =
      (CallArgs){.items = items, .count = args->count, .keywords = keywords, .n_keywords = args->n_keywords};
  return STATUS_OK;
}

/* Removes the first argument, which names a filter or test, and looks it up. */
static Status take_builtin(Render *render, Calling *calling, const Builtin *table, const char *what) {
  Value name = calling->args.items[0];
  calling->builtin = builtin_find(table, name.kind == VALUE_STRING ? *name.text : text_literal(""));
  calling->args.items++;
  calling->args.count--;
  return calling->builtin ? STATUS_OK
                          : render_fail(render, "No %s named %s.", what, render_shown(render, name));
}

static Status prepare_attribute_map(Render *render, Calling *calling) {
  for (size_t i = 0; i < calling->args.n_keywords; i++) {
    Text name = calling->args.keywords[i].name;
    Value value = calling->args.keywords[i].value;
    if (text_is(name, "attribute"))
      TRY(path_make(render, value, &calling->path));
    else if (text_is(name, "default"))
      calling->fallback = value;
    else
      return render_fail(render, "Unexpected keyword argument '%.*s'", (int)name.size, name.data);
  }
  return STATUS_OK;
}

static bool has_keyword(const CallArgs *args, const char *name) {
  for (size_t i = 0; i < args->n_keywords; i++)
    if (text_is(args->keywords[i].name, name)) return true;
  return false;
}

static Status prepare(Render *render, Calling *calling) {
  if (calling->prepared) return STATUS_OK;
  calling->prepared = true;
  CallArgs *args = &calling->args;
  if (calling->kind == EACH_MAP) {
    if (args->count) return take_builtin(render, calling, template_filters, "filter");
    if (has_keyword(args, "attribute")) return prepare_attribute_map(render, calling);
    return render_fail(render, "map requires a filter argument");
  }
  if (calling->by_attribute) {
    if (args->count == 0) return render_fail(render, "Missing parameter for attribute name");
    TRY(path_make(render, args->items[0], &calling->path));
    args->items++;
    args->count--;
  }
  return args->count ? take_builtin(render, calling, template_tests, "test") : STATUS_OK;
}

static Status next_called(Render *render, Iterator *iterator, Value *out, bool *more) {
  Calling *calling = iterator->state;
  for (;;) {
    Value item, result;
    TRY(prepare(render, calling));
    TRY(cursor_next(render, &iterator->cursor, &item, more));
    if (!*more) return STATUS_OK;
    TRY(path_follow(render, &calling->path, item, calling->fallback, &result));
    if (calling->builtin) TRY(builtin_call(render, calling->builtin, result, &calling->args, &result));
    *out = calling->kind == EACH_MAP ? result : item;
    if (calling->kind == EACH_MAP || value_truth(result) == (calling->kind == EACH_SELECT)) return STATUS_OK;
  }
}

/* A false value (empty, undefined, 0) yields nothing and leaves the arguments unchecked. */
Status filter_each(Render *render, const CallArgs *args, Value *out) {
  Value source = args->self, *items;
  Calling *calling;
  TRY(render_alloc(render, &calling, 1, sizeof *calling));
  *calling = (Calling){.kind = args->mode & ~EACH_BY_ATTRIBUTE,
                       .by_attribute = args->mode & EACH_BY_ATTRIBUTE,
                       .fallback = {.kind = VALUE_MISSING}};
  TRY(copy_args(render, args, &calling->args));
  if (value_truth(source)) return iterator_make(render, "generator", source, next_called, calling, out);
  TRY(value_list(render, 0, &items, &source));
  return iterator_make(render, "generator", source, next_plain, NULL, out);
}

/* --- single elements, lists, sums */

Status filter_first(Render *render, const CallArgs *args, Value *out) {
  Cursor cursor;
  bool more;
  TRY(cursor_begin(render, args->self, &cursor));
  TRY(cursor_next(render, &cursor, out, &more));
  return more ? STATUS_OK : value_undefined(render, "No first item, sequence was empty.", out);
}

Status filter_last(Render *render, const CallArgs *args, Value *out) {
  size_t length;
  TRY(value_charge_length(render, args->self));
  if (!value_length(args->self, &length))
    return render_fail(render, "'%s' object is not reversible", value_type(args->self));
  if (length == 0) return value_undefined(render, "No last item, sequence was empty.", out);
  if (args->self.kind == VALUE_VIEW) return view_at(render, args->self.view, length - 1, out);
  if (args->self.kind != VALUE_DICT) return value_item(render, args->self, value_int(-1), out);
  *out = args->self.dict->entries[length - 1].key;
  return STATUS_OK;
}

Status filter_length(Render *render, const CallArgs *args, Value *out) {
  size_t length;
  TRY(value_charge_length(render, args->self));
  if (args->self.kind == VALUE_LOOP)
    TRY(loop_length(render, args->self.loop, &length));
  else if (!value_length(args->self, &length))
    return render_fail(render, "object of type '%s' has no len()", value_type(args->self));
  *out = value_int((int64_t)length);
  return STATUS_OK;
}

/* A list is copied, too: as in Python the result is another object. */
Status filter_list(Render *render, const CallArgs *args, Value *out) {
  const List *list;
  TRY(value_elements(render, args->self, &list));
  return value_copies(render, list->items, list->count, out);
}

void reverse_items(Value *items, size_t count) {
  for (size_t i = 0; i < count / 2; i++) {
    Value other = items[i];
    items[i] = items[count - 1 - i];
    items[count - 1 - i] = other;
  }
}

Status filter_reverse(Render *render, const CallArgs *args, Value *out) {
  if (args->self.kind == VALUE_STRING) {
    Value missing = {.kind = VALUE_MISSING};
    return value_slice(render, args->self, missing, missing, value_int(-1), out);
  }
  Value list;
  size_t length;
  if (!value_is_iterable(args->self)) return render_fail(render, "argument must be iterable");
  TRY(filter_list(render, args, &list));
  reverse_items(list.list->items, list.list->count);
  if (!value_length(args->self, &length)) {
    *out = list;
    return STATUS_OK;
  }
  return iterator_make(render, args->self.kind == VALUE_LIST ? "list_reverseiterator" : "reversed", list,
                       next_plain, NULL, out);
}

/* Begins to walk the source when the first element is asked for. */
static Status next_item(Render *render, Iterator *iterator, Value *out, bool *more) {
  if (!iterator->state) {
    Value *source = &iterator->cursor.source, *items;
    if (source->kind != VALUE_DICT && source->kind != VALUE_UNDEFINED)
      return render_fail(render, "Can only get item pairs from a mapping.");
    View view = {VIEW_ITEMS, source->dict};
    iterator->state = iterator; /* begun */
    TRY(source->kind == VALUE_UNDEFINED ? value_list(render, 0, &items, source)
                                        : value_object(render, VALUE_VIEW, &view, sizeof view, source));
  }
  return cursor_next(render, &iterator->cursor, out, more);
}

Status filter_items(Render *render, const CallArgs *args, Value *out) {
  return iterator_make(render, "generator", args->self, next_item, NULL, out);
}

Status filter_join(Render *render, const CallArgs *args, Value *out) {
  Text separator = text_literal("");
  Value items = args->self;
  Calling calling = {.kind = EACH_MAP, .prepared = true, .fallback = {.kind = VALUE_MISSING}};
  if (is_given(args->items[0])) TRY(value_string(render, args->items[0], &separator));
  if (is_given(args->items[1]) && args->items[1].kind != VALUE_NONE) {
    TRY(path_make(render, args->items[1], &calling.path));
    TRY(iterator_make(render, "map", args->self, next_called, &calling, &items));
  }
  return string_joined(render, separator, items, true, out);
}

Status filter_sum(Render *render, const CallArgs *args, Value *out) {
  AttributePath path;
  Cursor cursor;
  *out = is_given(args->items[1]) ? args->items[1] : value_int(0);
  if (out->kind == VALUE_STRING)
    return render_fail(render, "sum() can't sum strings [use ''.join(seq) instead]");
  TRY(path_make(render, args->items[0], &path));
  TRY(cursor_begin(render, args->self, &cursor));
  for (;;) {
    Value item, missing = {.kind = VALUE_MISSING};
    bool more;
    TRY(cursor_next(render, &cursor, &item, &more));
    if (!more) return STATUS_OK;
    TRY(path_follow(render, &path, item, missing, &item));
    TRY(value_binary(render, OP_ADD, *out, item, out));
  }
}

Status filter_extreme(Render *render, const CallArgs *args, Value *out) {
  AttributePath path;
  Cursor cursor;
  Value best = {.kind = VALUE_MISSING}, missing = best;
  TRY(path_make(render, args->items[1], &path));
  TRY(cursor_begin(render, args->self, &cursor));
  for (;;) {
    Value item, key;
    bool more, better = true;
    TRY(cursor_next(render, &cursor, &item, &more));
    if (!more) break;
    TRY(path_follow(render, &path, item, missing, &key));
    TRY(fold(render, given_truth(args->items[0]), &key));
    if (is_given(best)) TRY(value_order(render, (Operator)args->mode, key, best, &better));
    if (!better) continue;
    best = key;
    *out = item;
  }
  return is_given(best) ? STATUS_OK : value_undefined(render, "No aggregated item, sequence was empty.", out);
}

typedef struct {
  AttributePath path;
  bool case_sensitive;
  Dict seen;
} Uniqueness;

static Status next_unique(Render *render, Iterator *iterator, Value *out, bool *more) {
  Uniqueness *state = iterator->state;
  for (;;) {
    Value key, missing = {.kind = VALUE_MISSING};
    const Value *found;
    TRY(cursor_next(render, &iterator->cursor, out, more));
    if (!*more) return STATUS_OK;
    TRY(path_follow(render, &state->path, *out, missing, &key));
    TRY(fold(render, state->case_sensitive, &key));
    TRY(dict_find(render, &state->seen, key, &found));
    if (found) continue;
    return dict_set(render, &state->seen, key, key);
  }
}

Status filter_unique(Render *render, const CallArgs *args, Value *out) {
  Uniqueness *state;
  TRY(render_alloc(render, &state, 1, sizeof *state));
  *state = (Uniqueness){.case_sensitive = given_truth(args->items[0])};
  TRY(path_make(render, args->items[1], &state->path));
  return iterator_make(render, "generator", args->self, next_unique, state, out);
}

/* --- sorting */

Status sort_entries(Render *render, DictEntry *entries, DictEntry *scratch, size_t n, bool reverse) {
  if (n < 2) return STATUS_OK;
  size_t half = n / 2, a = 0, b = half;
  TRY(sort_entries(render, entries, scratch, half, reverse));
  TRY(sort_entries(render, entries + half, scratch, n - half, reverse));
  for (size_t i = 0; i < n; i++) {
    bool second = a == half;
    if (a < half && b < n)
      TRY(value_order(render, OP_LT, entries[reverse ? a : b].key, entries[reverse ? b : a].key, &second));
    scratch[i] = second ? entries[b++] : entries[a++];
  }
  memcpy(entries, scratch, n * sizeof *entries);
  return STATUS_OK;
}

/* Entries to sort, and as many for scratch. */
static Status entries_alloc(Render *render, size_t n, DictEntry **entries) {
  return render_alloc(render, entries, n, 2 * sizeof **entries);
}

static Status sorted_values(Render *render, DictEntry *entries, size_t n, bool reverse, Value *out) {
  Value *sorted;
  TRY(sort_entries(render, entries, entries + n, n, reverse));
  TRY(value_list(render, n, &sorted, out));
  for (size_t i = 0; i < n; i++) sorted[i] = entries[i].value;
  return STATUS_OK;
}

/* Parses "name,age": several paths, whose keys are compared in turn. */
static Status paths_make(Render *render, Value attribute, AttributePath **paths, size_t *count) {
  bool is_text = attribute.kind == VALUE_STRING;
  *count = is_text ? count_parts(*attribute.text, ',') : 1;
  TRY(render_alloc(render, paths, *count, sizeof **paths));
  if (!is_text) return path_make(render, attribute, *paths);
  for (size_t i = 0, from = 0; i < *count; i++) {
    Value part;
    TRY(value_text(render, next_part(*attribute.text, ",", &from), &part));
    TRY(path_make(render, part, &(*paths)[i]));
  }
  return STATUS_OK;
}

Status filter_sort(Render *render, const CallArgs *args, Value *out) {
  const List *list;
  DictEntry *items;
  AttributePath *paths;
  size_t n_paths;
  Value missing = {.kind = VALUE_MISSING};
  TRY(paths_make(render, args->items[2], &paths, &n_paths));
  TRY(value_elements(render, args->self, &list));
  TRY(entries_alloc(render, list->count, &items));
  for (size_t i = 0; i < list->count; i++) {
    Value *keys;
    items[i].value = list->items[i];
    TRY(value_list(render, n_paths, &keys, &items[i].key));
    for (size_t k = 0; k < n_paths; k++) {
      TRY(path_follow(render, &paths[k], list->items[i], missing, &keys[k]));
      TRY(fold(render, given_truth(args->items[1]), &keys[k]));
    }
  }
  return sorted_values(render, items, list->count, given_truth(args->items[0]), out);
}

Status filter_dictsort(Render *render, const CallArgs *args, Value *out) {
  Value self = args->self;
  bool by_value = false;
  DictEntry *items;
  if (is_given(args->items[1])) {
    Text by;
    TRY(argument_text(render, "by", args->items[1], &by));
    by_value = text_is(by, "value");
    if (!by_value && !text_is(by, "key"))
      return render_fail(render, "You can only sort by either \"key\" or \"value\"");
  }
  if (self.kind == VALUE_UNDEFINED) return render_undefined(render, self);
  if (self.kind != VALUE_DICT)
    return render_fail(render, "'%s' object has no attribute 'items'", value_type(self));
  const Dict *dict = self.dict;
  TRY(entries_alloc(render, dict->count, &items));
  for (size_t i = 0; i < dict->count; i++) {
    items[i].key = by_value ? dict->entries[i].value : dict->entries[i].key;
    TRY(fold(render, given_truth(args->items[0]), &items[i].key));
    TRY(value_tuple2(render, dict->entries[i].key, dict->entries[i].value, &items[i].value));
  }
  return sorted_values(render, items, dict->count, given_truth(args->items[2]), out);
}

/* Makes the group of sorted items[from, to). */
static Status group(Render *render, const DictEntry *items, size_t from, size_t to, Value grouper,
                    Value *out) {
  Value members, *values;
  TRY(value_list(render, to - from, &values, &members));
  for (size_t i = from; i < to; i++) values[i - from] = items[i].value;
  TRY(value_tuple2(render, grouper, members, out));
  out->is_group = true;
  return STATUS_OK;
}

Status filter_groupby(Render *render, const CallArgs *args, Value *out) {
  const List *list;
  DictEntry *items;
  AttributePath path;
  Value *groups, all;
  size_t n_groups = 0;
  bool case_sensitive = given_truth(args->items[2]);
  TRY(path_make(render, args->items[0], &path));
  TRY(value_elements(render, args->self, &list));
  TRY(entries_alloc(render, list->count, &items));
  for (size_t i = 0; i < list->count; i++) {
    items[i].value = list->items[i];
    TRY(path_follow(render, &path, list->items[i], args->items[1], &items[i].key));
    TRY(fold(render, case_sensitive, &items[i].key));
  }
  TRY(sort_entries(render, items, items + list->count, list->count, false));
  TRY(value_list(render, list->count, &groups, &all));
  for (size_t from = 0, to; from < list->count; from = to) {
    bool equal = true;
    for (to = from + 1; to < list->count; to++) {
      TRY(value_equal(render, items[from].key, items[to].key, &equal));
      if (!equal) break;
    }
    Value grouper; /* the first element's key */
    TRY(path_follow(render, &path, items[from].value, args->items[1], &grouper));
    TRY(group(render, items, from, to, grouper, &groups[n_groups++]));
  }
  return value_slice(render, all, value_int(0), value_int((int64_t)n_groups), value_int(1), out);
}

/* --- in parts */

/* Makes a list of the elements [from, to), then n_fill fillers; none if `filler` is not given or None. */
static Status part(Render *render, const List *list, size_t from, size_t to, Value filler, size_t n_fill,
                   Value *out) {
  Value *items;
  if (!is_given(filler) || filler.kind == VALUE_NONE) n_fill = 0;
  TRY(value_list(render, to - from + n_fill, &items, out));
  for (size_t i = from; i < to; i++) *items++ = list->items[i];
  for (size_t i = 0; i < n_fill; i++) *items++ = filler;
  return STATUS_OK;
}

Status filter_batch(Render *render, const CallArgs *args, Value *out) {
  const List *list;
  int64_t size;
  Value parts, *items;
  TRY(argument_int(render, args->items[0], 1, &size));
  TRY(value_elements(render, args->self, &list));
  if (size < 1 || size > RENDER_MAX_STEPS)
    return render_fail(render, "a batch cannot have %lld items", (long long)size);
  size_t n = (size_t)size, count = list->count;
  TRY(value_list(render, (count + n - 1) / n, &items, &parts));
  for (size_t from = 0; from < count; from += n) {
    size_t to = count - from < n ? count : from + n;
    TRY(part(render, list, from, to, args->items[1], n - (to - from), items++));
  }
  return iterator_make(render, "generator", parts, next_plain, NULL, out);
}

Status filter_slice(Render *render, const CallArgs *args, Value *out) {
  const List *list;
  int64_t slices;
  Value parts, *items;
  TRY(argument_int(render, args->items[0], 1, &slices));
  TRY(value_elements(render, args->self, &list));
  if (slices == 0) return render_fail(render, "integer division or modulo by zero");
  if (slices < 0 || slices > RENDER_MAX_STEPS)
    return render_fail(render, "there cannot be %lld slices", (long long)slices);
  size_t n = (size_t)slices, each = list->count / n, extra = list->count % n, from = 0;
  TRY(value_list(render, n, &items, &parts));
  for (size_t i = 0; i < n; i++) {
    size_t to = from + each + (i < extra);
    TRY(part(render, list, from, to, args->items[1], i >= extra, &items[i]));
    from = to;
  }
  return iterator_make(render, "generator", parts, next_plain, NULL, out);
}
