/* methods.c - the methods of strings, lists, tuples and dicts.
 *
 * Methods that would change a list or a dict are refused in access.c. */
#include "base/utf8.h"
#include "tokenizer/jinja/filters.h"
#include "tokenizer/jinja/strings.h"
#include "tokenizer/unicode/unicode.h"

/* Modes. FROM_END: the method works from the end. MUST_FIND: it fails if it finds nothing. */
enum { FROM_END = 1, MUST_FIND = 2 };

static bool is_none(Value value) {
  return value.kind == VALUE_MISSING || value.kind == VALUE_NONE;
}

/* --- searching */

/* Finds bytes [*from, *to), the slice that a method searches. Its bounds are the second and third argument;
 * negative ones count from the end. *inside is false if the slice begins after its own end or the text's. */
static Status look_at(Render *render, const CallArgs *args, size_t *from, size_t *to, bool *inside) {
  int64_t bounds[2] = {0, INT64_MAX};
  Text text = *args->self.text;
  *from = 0, *to = text.size, *inside = true;
  if (is_none(args->items[1]) && is_none(args->items[2])) return STATUS_OK;
  TRY(render_charge_bytes(render, text.size));
  int64_t length = (int64_t)text_count(text);
  for (int i = 0; i < 2; i++) {
    if (!is_none(args->items[i + 1])) TRY(argument_int(render, args->items[i + 1], 0, &bounds[i]));
    if (bounds[i] < 0) bounds[i] += length;
    if (bounds[i] < 0) bounds[i] = 0;
  }
  *inside = bounds[0] <= length && bounds[0] <= bounds[1];
  *from = text_offset(text, (size_t)bounds[0]);
  *to = text_offset(text, (size_t)bounds[1]);
  return STATUS_OK;
}

static bool has_affix(Text text, Text affix, bool at_end) {
  if (affix.size > text.size) return false;
  return text_equal(affix, at_end ? text_slice(text, text.size - affix.size, text.size)
                                  : text_slice(text, 0, affix.size));
}

static Status string_affix(Render *render, const CallArgs *args, Value *out) {
  size_t from, to;
  bool inside, found = false;
  TRY(look_at(render, args, &from, &to, &inside));
  Text text = inside ? text_slice(*args->self.text, from, to) : text_literal("");
  Value affix = args->items[0];
  const char *name = args->mode ? "endswith" : "startswith";
  if (affix.kind == VALUE_UNDEFINED) return render_undefined(render, affix);
  if (affix.kind != VALUE_STRING && affix.kind != VALUE_TUPLE)
    return render_fail(render, "%s first arg must be str or a tuple of str, not %s", name, value_type(affix));
  const List one = {1, &affix}, *list = affix.kind == VALUE_TUPLE ? affix.list : &one;
  for (size_t i = 0; i < list->count && !found; i++) {
    if (list->items[i].kind != VALUE_STRING)
      return render_fail(render, "tuple for %s must only contain str, not %s", name,
                         value_type(list->items[i]));
    TRY(render_charge_bytes(render, list->items[i].text->size));
    found = inside && has_affix(text, *list->items[i].text, args->mode);
  }
  *out = value_bool(found);
  return STATUS_OK;
}

/* The backward search is naive: each offset may cost the length of the needle. */
static Status charge_search(Render *render, size_t size, Text needle, bool last) {
  return render_charge(render,
                       last ? size / BYTES_OF_STEP * (needle.size / 8 + 1) + 1 : size / BYTES_OF_STEP + 1);
}

static Status string_search(Render *render, const CallArgs *args, Value *out) {
  Text text = *args->self.text, needle;
  size_t from, to, at = SIZE_MAX;
  bool inside, last = args->mode & FROM_END;
  TRY(argument_text(render, "the text to find", args->items[0], &needle));
  TRY(look_at(render, args, &from, &to, &inside));
  TRY(charge_search(render, text.size, needle, last));
  if (inside) at = last ? text_find_last(text, needle, from, to) : text_find(text, needle, from, to);
  if (at == SIZE_MAX && (args->mode & MUST_FIND)) return render_fail(render, "substring not found");
  *out = value_int(at == SIZE_MAX ? -1 : (int64_t)text_count(text_slice(text, 0, at)));
  return STATUS_OK;
}

static Status string_count(Render *render, const CallArgs *args, Value *out) {
  Text text = *args->self.text, needle;
  size_t from, to;
  bool inside;
  int64_t count = 0;
  TRY(argument_text(render, "the text to count", args->items[0], &needle));
  TRY(look_at(render, args, &from, &to, &inside));
  TRY(render_charge_bytes(render, text.size));
  if (needle.size == 0) {
    count = inside ? (int64_t)text_count(text_slice(text, from, to)) + 1 : 0;
  } else {
    for (size_t at; inside && (at = text_find(text, needle, from, to)) != SIZE_MAX; from = at + needle.size) {
      TRY(render_charge(render, 1));
      count++;
    }
  }
  *out = value_int(count);
  return STATUS_OK;
}

/* --- kinds of characters */

/* isupper() and islower(), and the tests upper and lower, whose operand need not be a string. */
Status string_has_case(Render *render, const CallArgs *args, Value *out) {
  Text text;
  bool found = false;
  int other = args->mode == CHAR_LOWERCASE ? CHAR_UPPERCASE : CHAR_LOWERCASE;
  *out = value_bool(false);
  TRY(value_string(render, args->self, &text));
  TRY(render_charge(render, text.size / 8));
  for (size_t at = 0; at < text.size; at += text_step(text, at)) {
    uint32_t code = text_code(text, at);
    int flags = (int)unicode_value(&unicode_flags, code);
    if ((flags & other) || strcmp(code_category(code), "Lt") == 0) return STATUS_OK;
    found |= (flags & args->mode) != 0;
  }
  *out = value_bool(found);
  return STATUS_OK;
}

/* Returns whether the character is a digit but no decimal digit, such as a superscript or a circled digit
 * (Numeric_Type=Digit in Unicode's UnicodeData.txt). */
static bool is_other_digit(uint32_t code) {
  static const uint32_t ranges[][2] = {
      {0xb2, 0xb3},     {0xb9, 0xb9},       {0x1369, 0x1371},   {0x19da, 0x19da},   {0x2070, 0x2070},
      {0x2074, 0x2079}, {0x2080, 0x2089},   {0x2460, 0x2468},   {0x2474, 0x247c},   {0x2488, 0x2490},
      {0x24ea, 0x24ea}, {0x24f5, 0x24fd},   {0x24ff, 0x24ff},   {0x2776, 0x277e},   {0x2780, 0x2788},
      {0x278a, 0x2792}, {0x10a40, 0x10a43}, {0x10e60, 0x10e68}, {0x11052, 0x1105a}, {0x1f100, 0x1f10a},
  };
  for (size_t i = 0; i < sizeof ranges / sizeof *ranges; i++)
    if (code >= ranges[i][0] && code <= ranges[i][1]) return true;
  return false;
}

typedef enum { IS_ALPHA, IS_DECIMAL, IS_DIGIT, IS_NUMERIC, IS_ALNUM, IS_SPACE, IS_ASCII } CharKind;

static bool is_of_kind(uint32_t code, CharKind kind) {
  const char *category = code_category(code);
  switch (kind) {
  case IS_ALPHA: return category[0] == 'L';
  case IS_DECIMAL: return strcmp(category, "Nd") == 0;
  case IS_DIGIT: return strcmp(category, "Nd") == 0 || is_other_digit(code);
  case IS_NUMERIC: return category[0] == 'N';
  case IS_ALNUM: return string_is_alnum(code);
  case IS_SPACE: return code_is_space(code);
  case IS_ASCII: return code < 0x80;
  }
  return false;
}

static Status string_is(Render *render, const CallArgs *args, Value *out) {
  Text text = *args->self.text;
  bool all = text.size > 0 || args->mode == IS_ASCII;
  TRY(render_charge(render, text.size / 8));
  for (size_t at = 0; all && at < text.size; at += text_step(text, at))
    all = is_of_kind(text_code(text, at), (CharKind)args->mode);
  *out = value_bool(all);
  return STATUS_OK;
}

/* --- stripping */

Status string_strip(Render *render, const CallArgs *args, Value *out) {
  Text text, characters;
  bool given = !is_none(args->items[0]);
  TRY(value_string(render, args->self, &text));
  if (given) TRY(argument_text(render, "strip arg", args->items[0], &characters));
  TRY(string_stripped(render, text, given ? &characters : NULL, args->mode, &text));
  TRY(value_text(render, text, out));
  out->is_safe = args->self.kind == VALUE_STRING && args->self.is_safe;
  return STATUS_OK;
}

static Status string_remove_affix(Render *render, const CallArgs *args, Value *out) {
  Text affix, text = *args->self.text;
  TRY(argument_text(render, args->mode ? "removesuffix() argument" : "removeprefix() argument",
                    args->items[0], &affix));
  TRY(render_charge_bytes(render, affix.size));
  if (has_affix(text, affix, args->mode))
    text = args->mode ? text_slice(text, 0, text.size - affix.size) : text_slice(text, affix.size, text.size);
  return value_text(render, text, out);
}

/* --- splitting */

/* Finds the text's first separator (with `last` its last): `separator` or, if that is NULL, white space. */
static bool find_separator(Text text, const Text *separator, bool last, size_t *begin, size_t *end) {
  size_t at = last ? text.size : 0;
  if (separator) {
    *begin =
        last ? text_find_last(text, *separator, 0, text.size) : text_find(text, *separator, 0, text.size);
    *end = *begin + separator->size;
    return *begin != SIZE_MAX;
  }
  if (last) {
    while (at > 0 && !code_is_space(text_code(text, utf8_before(text.data, at))))
      at = utf8_before(text.data, at);
    *begin = text_strip(text_slice(text, 0, at), STRIP_RIGHT).size;
    *end = at;
    return at > 0;
  }
  while (at < text.size && !code_is_space(text_code(text, at))) at += text_step(text, at);
  *begin = at;
  *end = text.size - text_strip(text_slice(text, at, text.size), STRIP_LEFT).size;
  return at < text.size;
}

static Status add_text(Render *render, List *list, size_t *capacity, Text text) {
  TRY(render_charge(render, 1));
  TRY(render_grow(render, &list->items, list->count, capacity, sizeof *list->items));
  return value_text(render, text, &list->items[list->count++]);
}

static Status string_split(Render *render, const CallArgs *args, Value *out) {
  bool last = args->mode, by_words = is_none(args->items[0]);
  int64_t most;
  Text text = *args->self.text, separator;
  List list = {0};
  size_t capacity = 0, begin, end;
  TRY(argument_int(render, args->items[1], -1, &most));
  if (by_words) {
    TRY(render_charge(render, text.size / 8));
    text = text_strip(text, last ? STRIP_RIGHT : STRIP_LEFT);
  } else {
    TRY(argument_text(render, "the separator", args->items[0], &separator));
    if (separator.size == 0) return render_fail(render, "empty separator");
    TRY(charge_search(render, text.size, separator, last));
  }
  for (; most != 0 && find_separator(text, by_words ? NULL : &separator, last, &begin, &end);
       most -= most > 0) {
    Text before = text_slice(text, 0, begin), after = text_slice(text, end, text.size);
    TRY(add_text(render, &list, &capacity, last ? after : before));
    text = last ? before : after;
  }
  if (text.size > 0 || !by_words) TRY(add_text(render, &list, &capacity, text));
  if (last) reverse_items(list.items, list.count);
  return value_object(render, VALUE_LIST, &list, sizeof list, out);
}

static Status string_splitlines(Render *render, const CallArgs *args, Value *out) {
  return string_lines(render, *args->self.text, given_truth(args->items[0]), out);
}

static Status string_partition(Render *render, const CallArgs *args, Value *out) {
  Text text = *args->self.text, separator;
  Value *items;
  size_t from, to;
  TRY(argument_text(render, "the separator", args->items[0], &separator));
  if (separator.size == 0) return render_fail(render, "empty separator");
  TRY(charge_search(render, text.size, separator, args->mode));
  if (!find_separator(text, &separator, args->mode, &from, &to)) from = to = args->mode ? 0 : text.size;
  TRY(value_list(render, 3, &items, out));
  out->kind = VALUE_TUPLE;
  TRY(value_text(render, text_slice(text, 0, from), &items[0]));
  TRY(value_text(render, text_slice(text, from, to), &items[1]));
  return value_text(render, text_slice(text, to, text.size), &items[2]);
}

/* --- case, padding */

Status string_case(Render *render, const CallArgs *args, Value *out) {
  Text text;
  TRY(value_string(render, args->self, &text));
  size_t mark = put_mark(render);
  TRY(put_case(render, text, 0, text.size, (CaseKind)args->mode));
  TRY(put_take(render, mark, out));
  out->is_safe = args->self.kind == VALUE_STRING && args->self.is_safe;
  return STATUS_OK;
}

Status string_capitalize(Render *render, const CallArgs *args, Value *out) {
  Text text;
  TRY(value_string(render, args->self, &text));
  size_t mark = put_mark(render), first = text.size ? text_step(text, 0) : 0;
  TRY(put_case(render, text, 0, first, CASE_TITLE));
  TRY(put_case(render, text, first, text.size, CASE_LOWER));
  return put_take(render, mark, out);
}

/* A letter after a cased character becomes lower case, any other letter title case. */
static Status string_title(Render *render, const CallArgs *args, Value *out) {
  Text text = *args->self.text;
  size_t mark = put_mark(render);
  bool inside = false;
  for (size_t at = 0, next; at < text.size; at = next) {
    next = at + text_step(text, at);
    bool cased = code_is_cased(text_code(text, at));
    while (inside && cased && next < text.size && code_is_cased(text_code(text, next)))
      next += text_step(text, next);
    TRY(put_case(render, text, at, next, inside ? CASE_LOWER : CASE_TITLE));
    inside = cased;
  }
  return put_take(render, mark, out);
}

static Status string_swapcase(Render *render, const CallArgs *args, Value *out) {
  Text text = *args->self.text;
  size_t mark = put_mark(render);
  for (size_t at = 0, next; at < text.size; at = next) {
    next = at + text_step(text, at);
    int flags = (int)unicode_value(&unicode_flags, text_code(text, at));
    if (flags & (CHAR_UPPERCASE | CHAR_LOWERCASE))
      TRY(put_case(render, text, at, next, flags & CHAR_UPPERCASE ? CASE_LOWER : CASE_UPPER));
    else
      TRY(put_text(render, text_slice(text, at, next)));
  }
  return put_take(render, mark, out);
}

static Status string_replace(Render *render, const CallArgs *args, Value *out) {
  Text old, new;
  int64_t count;
  TRY(argument_text(render, "replace() argument 1", args->items[0], &old));
  TRY(argument_text(render, "replace() argument 2", args->items[1], &new));
  TRY(argument_int(render, args->items[2], -1, &count));
  return string_replaced(render, *args->self.text, old, new, count, out);
}

static Status string_join(Render *render, const CallArgs *args, Value *out) {
  if (!value_is_iterable(args->items[0])) return render_fail(render, "can only join an iterable");
  return string_joined(render, *args->self.text, args->items[0], false, out);
}

/* The filter center has no fill character, but a default width. */
Status string_pad(Render *render, const CallArgs *args, Value *out) {
  int64_t width;
  Text text, fill = text_literal(" ");
  TRY(value_string(render, args->self, &text));
  TRY(argument_int(render, args->items[0], 80, &width));
  if (args->count > 1 && is_given(args->items[1]))
    TRY(argument_text(render, "the fill character", args->items[1], &fill));
  if (text_count(fill) != 1)
    return render_fail(render, "The fill character must be exactly one character long");
  return string_padded(render, text, width, fill, (Padding)args->mode, out);
}

/* Inserts zeros between a sign and the rest. */
static Status string_zfill(Render *render, const CallArgs *args, Value *out) {
  int64_t width;
  Text text = *args->self.text;
  TRY(argument_int(render, args->items[0], 0, &width));
  size_t sign = text.size && (text.data[0] == '+' || text.data[0] == '-');
  Value zeros;
  TRY(string_padded(render, text_slice(text, sign, text.size), width - (int64_t)sign, text_literal("0"),
                    PAD_LEFT, &zeros));
  size_t mark = put_mark(render);
  TRY(put_text(render, text_slice(text, 0, sign)));
  TRY(put_text(render, *zeros.text));
  return put_take(render, mark, out);
}

/* Replaces tabs by spaces up to the next multiple of a width, in characters from the line's beginning. */
static Status string_expandtabs(Render *render, const CallArgs *args, Value *out) {
  Text text = *args->self.text;
  int64_t width;
  size_t column = 0, mark = put_mark(render);
  TRY(argument_int(render, args->items[0], 8, &width));
  for (size_t at = 0, next; at < text.size; at = next) {
    next = at + text_step(text, at);
    char c = text.data[at];
    size_t spaces = c == '\t' && width > 0 ? (size_t)width - column % (size_t)width : 0;
    TRY(put_repeated(render, text_literal(" "), (int64_t)spaces));
    if (c != '\t') TRY(put_text(render, text_slice(text, at, next)));
    column = c == '\n' || c == '\r' ? 0 : c == '\t' ? column + spaces : column + 1;
  }
  return put_take(render, mark, out);
}

const Builtin template_string_methods[] = {
    {"capitalize", "/", 0, string_capitalize, 0},
    {"casefold", "/", 0, string_case, CASE_FOLDED},
    {"center", "/width fillchar", 1, string_pad, PAD_BOTH},
    {"count", "/sub start end", 1, string_count, 0},
    {"endswith", "/suffix start end", 1, string_affix, FROM_END},
    {"expandtabs", "tabsize", 0, string_expandtabs, 0},
    {"find", "/sub start end", 1, string_search, 0},
    {"format", NULL, 0, format_braces, 0},
    {"index", "/sub start end", 1, string_search, MUST_FIND},
    {"isalnum", "/", 0, string_is, IS_ALNUM},
    {"isalpha", "/", 0, string_is, IS_ALPHA},
    {"isascii", "/", 0, string_is, IS_ASCII},
    {"isdecimal", "/", 0, string_is, IS_DECIMAL},
    {"isdigit", "/", 0, string_is, IS_DIGIT},
    {"islower", "/", 0, string_has_case, CHAR_LOWERCASE},
    {"isnumeric", "/", 0, string_is, IS_NUMERIC},
    {"isspace", "/", 0, string_is, IS_SPACE},
    {"isupper", "/", 0, string_has_case, CHAR_UPPERCASE},
    {"join", "/iterable", 1, string_join, 0},
    {"ljust", "/width fillchar", 1, string_pad, PAD_RIGHT},
    {"lower", "/", 0, string_case, CASE_LOWER},
    {"lstrip", "/chars", 0, string_strip, STRIP_LEFT},
    {"partition", "/sep", 1, string_partition, 0},
    {"removeprefix", "/prefix", 1, string_remove_affix, 0},
    {"removesuffix", "/suffix", 1, string_remove_affix, FROM_END},
    {"replace", "/old new count", 2, string_replace, 0},
    {"rfind", "/sub start end", 1, string_search, FROM_END},
    {"rindex", "/sub start end", 1, string_search, FROM_END | MUST_FIND},
    {"rjust", "/width fillchar", 1, string_pad, PAD_LEFT},
    {"rpartition", "/sep", 1, string_partition, FROM_END},
    {"rsplit", "sep maxsplit", 0, string_split, FROM_END},
    {"rstrip", "/chars", 0, string_strip, STRIP_RIGHT},
    {"split", "sep maxsplit", 0, string_split, 0},
    {"splitlines", "keepends", 0, string_splitlines, 0},
    {"startswith", "/prefix start end", 1, string_affix, 0},
    {"strip", "/chars", 0, string_strip, STRIP_LEFT | STRIP_RIGHT},
    {"swapcase", "/", 0, string_swapcase, 0},
    {"title", "/", 0, string_title, 0},
    {"upper", "/", 0, string_case, CASE_UPPER},
    {"zfill", "/width", 1, string_zfill, 0},
    {0},
};

/* --- lists, tuples */

/* index() in the mode MUST_FIND, else count() */
static Status list_find(Render *render, const CallArgs *args, Value *out) {
  const List *list;
  int64_t count = 0;
  TRY(value_elements(render, args->self, &list));
  for (size_t i = 0; i < list->count; i++) {
    bool equal;
    TRY(value_equal(render, list->items[i], args->items[0], &equal));
    *out = value_int((int64_t)i);
    if (equal && args->mode == MUST_FIND) return STATUS_OK;
    count += equal;
  }
  *out = value_int(count);
  if (args->mode != MUST_FIND) return STATUS_OK;
  if (args->self.kind == VALUE_TUPLE) return render_fail(render, "tuple.index(x): x not in tuple");
  return render_fail(render, "%s is not in list", render_shown(render, args->items[0]));
}

const Builtin template_list_methods[] = {{"copy", "/", 0, filter_list, 0},
                                         {"count", "/value", 1, list_find, 0},
                                         {"index", "/value", 1, list_find, MUST_FIND},
                                         {0}};
const Builtin template_tuple_methods[] = {
    {"count", "/value", 1, list_find, 0}, {"index", "/value", 1, list_find, MUST_FIND}, {0}};

/* --- dicts */

static Status dict_view(Render *render, const CallArgs *args, Value *out) {
  View view = {(ViewKind)args->mode, args->self.dict};
  return value_object(render, VALUE_VIEW, &view, sizeof view, out);
}

static Status dict_get(Render *render, const CallArgs *args, Value *out) {
  const Value *found;
  TRY(dict_find(render, args->self.dict, args->items[0], &found));
  *out = found ? *found : is_given(args->items[1]) ? args->items[1] : value_none();
  return STATUS_OK;
}

static Status dict_copy(Render *render, const CallArgs *args, Value *out) {
  TRY(value_dict(render, args->self.dict->count, out));
  for (size_t i = 0; i < args->self.dict->count; i++)
    TRY(dict_set(render, out->dict, args->self.dict->entries[i].key, args->self.dict->entries[i].value));
  return STATUS_OK;
}

const Builtin template_dict_methods[] = {{"copy", "/", 0, dict_copy, 0},
                                         {"get", "/key default", 1, dict_get, 0},
                                         {"items", "/", 0, dict_view, VIEW_ITEMS},
                                         {"keys", "/", 0, dict_view, VIEW_KEYS},
                                         {"values", "/", 0, dict_view, VIEW_VALUES},
                                         {0}};
