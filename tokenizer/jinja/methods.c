/* methods.c - the methods of strings, lists, tuples and dicts.
 *
 * Called by: access.c (the tables). Methods that would change a list or a dict are refused there. */
#include "base/utf8.h"
#include "tokenizer/jinja/filters.h"
#include "tokenizer/jinja/strings.h"
#include "tokenizer/unicode/unicode.h"

/* --- arguments */

static bool is_none(Value value) {
  return value.kind == VALUE_MISSING || value.kind == VALUE_NONE;
}

/* Finds the bytes [*from, *to) of the slice [start, end) that a method searches; negative bounds count
 * from the end. *inside is false if it begins after the end. */
static Status look_at(Render *render, Text text, Value start, Value end, size_t *from, size_t *to,
                      bool *inside) {
  int64_t bounds[2] = {0, INT64_MAX};
  *from = 0, *to = text.size, *inside = true;
  if (is_none(start) && is_none(end)) return STATUS_OK;
  TRY(render_charge_bytes(render, text.size));
  if (!is_none(start)) TRY(argument_int(render, start, 0, &bounds[0]));
  if (!is_none(end)) TRY(argument_int(render, end, 0, &bounds[1]));
  int64_t length = (int64_t)text_count(text);
  for (int i = 0; i < 2; i++) {
    if (bounds[i] < 0) bounds[i] += length;
    if (bounds[i] < 0) bounds[i] = 0;
  }
  *inside = bounds[0] <= length && bounds[0] <= bounds[1];
  *from = text_offset(text, (size_t)bounds[0]);
  *to = text_offset(text, (size_t)bounds[1]);
  return STATUS_OK;
}

/* --- searching */

static bool has_affix(Text text, Text affix, bool at_end) {
  if (affix.size > text.size) return false;
  return text_equal(affix, at_end ? text_slice(text, text.size - affix.size, text.size)
                                  : text_slice(text, 0, affix.size));
}

static Status string_affix(Render *render, Value self, const CallArgs *args, bool at_end, Value *out) {
  size_t from, to;
  bool inside, found = false;
  TRY(look_at(render, *self.text, args->items[1], args->items[2], &from, &to, &inside));
  Text text = inside ? text_slice(*self.text, from, to) : text_literal("");
  Value affix = args->items[0];
  const char *name = at_end ? "endswith" : "startswith";
  if (affix.kind == VALUE_UNDEFINED) return render_undefined(render, affix);
  if (affix.kind != VALUE_STRING && affix.kind != VALUE_TUPLE)
    return render_fail(render, "%s first arg must be str or a tuple of str, not %s", name, value_type(affix));
  const List one = {1, &affix}, *list = affix.kind == VALUE_TUPLE ? affix.list : &one;
  for (size_t i = 0; i < list->count && !found; i++) {
    if (list->items[i].kind != VALUE_STRING)
      return render_fail(render, "tuple for %s must only contain str, not %s", name,
                         value_type(list->items[i]));
    TRY(render_charge_bytes(render, list->items[i].text->size));
    found = inside && has_affix(text, *list->items[i].text, at_end);
  }
  *out = value_bool(found);
  return STATUS_OK;
}

static Status string_startswith(Render *render, Value self, const CallArgs *args, Value *out) {
  return string_affix(render, self, args, false, out);
}
static Status string_endswith(Render *render, Value self, const CallArgs *args, Value *out) {
  return string_affix(render, self, args, true, out);
}

/* The backward search is naive: each place may cost the length of the needle. */
static Status charge_search(Render *render, size_t size, Text needle, bool last) {
  return render_charge(render,
                       last ? size / BYTES_OF_STEP * (needle.size / 8 + 1) + 1 : size / BYTES_OF_STEP + 1);
}

static Status search(Render *render, Value self, const CallArgs *args, bool last, bool must, Value *out) {
  Text text = *self.text, needle;
  size_t from, to, at = SIZE_MAX;
  bool inside;
  TRY(argument_text(render, "the text to find", args->items[0], &needle));
  TRY(look_at(render, text, args->items[1], args->items[2], &from, &to, &inside));
  TRY(charge_search(render, text.size, needle, last));
  if (inside) at = last ? text_find_last(text, needle, from, to) : text_find(text, needle, from, to);
  if (at == SIZE_MAX && must) return render_fail(render, "substring not found");
  *out = value_int(at == SIZE_MAX ? -1 : (int64_t)text_count(text_slice(text, 0, at)));
  return STATUS_OK;
}

static Status string_find(Render *render, Value self, const CallArgs *args, Value *out) {
  return search(render, self, args, false, false, out);
}
static Status string_rfind(Render *render, Value self, const CallArgs *args, Value *out) {
  return search(render, self, args, true, false, out);
}
static Status string_index(Render *render, Value self, const CallArgs *args, Value *out) {
  return search(render, self, args, false, true, out);
}
static Status string_rindex(Render *render, Value self, const CallArgs *args, Value *out) {
  return search(render, self, args, true, true, out);
}

static Status string_count(Render *render, Value self, const CallArgs *args, Value *out) {
  Text text = *self.text, needle;
  size_t from, to;
  bool inside;
  int64_t count = 0;
  TRY(argument_text(render, "the text to count", args->items[0], &needle));
  TRY(look_at(render, text, args->items[1], args->items[2], &from, &to, &inside));
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

static const char *category_of(uint32_t code) {
  return unicode_category_names[unicode_value(&unicode_categories, code)];
}

bool text_has_case(Text text, int wanted) {
  bool found = false;
  int other = wanted == CHAR_LOWERCASE ? CHAR_UPPERCASE : CHAR_LOWERCASE;
  for (size_t at = 0; at < text.size; at += text_step(text, at)) {
    uint32_t code = text_code(text, at);
    int flags = (int)unicode_value(&unicode_flags, code);
    if ((flags & other) || strcmp(category_of(code), "Lt") == 0) return false;
    found |= (flags & wanted) != 0;
  }
  return found;
}

/* Returns whether the character is a digit but no decimal one: superscripts, subscripts, circled digits
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

static bool is_alpha(uint32_t code) {
  return category_of(code)[0] == 'L';
}
static bool is_decimal(uint32_t code) {
  return strcmp(category_of(code), "Nd") == 0;
}
static bool is_digit(uint32_t code) {
  return is_decimal(code) || is_other_digit(code);
}
static bool is_numeric(uint32_t code) {
  return category_of(code)[0] == 'N';
}
static bool is_ascii(uint32_t code) {
  return code < 0x80;
}

/* Tests every character; an empty text gives `empty`. */
static Status string_all(Render *render, Value self, bool (*is)(uint32_t), bool empty, Value *out) {
  Text text = *self.text;
  bool all = text.size > 0 || empty;
  TRY(render_charge(render, text.size / 8));
  for (size_t at = 0; all && at < text.size; at += text_step(text, at)) all = is(text_code(text, at));
  *out = value_bool(all);
  return STATUS_OK;
}

#define ALL(name, is, empty)                                                                                 \
  static Status string_##name(Render *render, Value self, const CallArgs *args, Value *out) {                    \
    (void)args;                                                                                              \
    return string_all(render, self, is, empty, out);                                                         \
  }
ALL(isalpha, is_alpha, false)
ALL(isdecimal, is_decimal, false)
ALL(isdigit, is_digit, false)
ALL(isnumeric, is_numeric, false)
ALL(isalnum, string_is_alnum, false)
ALL(isspace, code_is_space, false)
ALL(isascii, is_ascii, true)
#undef ALL

static Status string_islower(Render *render, Value self, const CallArgs *args, Value *out) {
  (void)args;
  *out = value_bool(text_has_case(*self.text, CHAR_LOWERCASE));
  return render_charge(render, self.text->size / 8);
}
static Status string_isupper(Render *render, Value self, const CallArgs *args, Value *out) {
  (void)args;
  *out = value_bool(text_has_case(*self.text, CHAR_UPPERCASE));
  return render_charge(render, self.text->size / 8);
}

/* --- stripping */

static Status strip(Render *render, Value self, const CallArgs *args, int sides, Value *out) {
  Text characters;
  bool given = !is_none(args->items[0]);
  if (given) TRY(argument_text(render, "strip arg", args->items[0], &characters));
  Text stripped;
  TRY(string_stripped(render, *self.text, given ? &characters : NULL, sides, &stripped));
  return value_text(render, stripped, out);
}

static Status string_strip(Render *render, Value self, const CallArgs *args, Value *out) {
  return strip(render, self, args, STRIP_LEFT | STRIP_RIGHT, out);
}
static Status string_lstrip(Render *render, Value self, const CallArgs *args, Value *out) {
  return strip(render, self, args, STRIP_LEFT, out);
}
static Status string_rstrip(Render *render, Value self, const CallArgs *args, Value *out) {
  return strip(render, self, args, STRIP_RIGHT, out);
}

static Status string_removeprefix(Render *render, Value self, const CallArgs *args, Value *out) {
  Text affix, text = *self.text;
  TRY(argument_text(render, "removeprefix() argument", args->items[0], &affix));
  TRY(render_charge_bytes(render, affix.size));
  return value_text(render, has_affix(text, affix, false) ? text_slice(text, affix.size, text.size) : text,
                    out);
}
static Status string_removesuffix(Render *render, Value self, const CallArgs *args, Value *out) {
  Text affix, text = *self.text;
  TRY(argument_text(render, "removesuffix() argument", args->items[0], &affix));
  TRY(render_charge_bytes(render, affix.size));
  return value_text(render, has_affix(text, affix, true) ? text_slice(text, 0, text.size - affix.size) : text,
                    out);
}

/* --- splitting */

/* A growing list of texts. */
typedef struct {
  Value *items;
  size_t count, capacity;
} Pieces;

static Status add_piece(Render *render, Pieces *pieces, Text text) {
  if (pieces->count == pieces->capacity) {
    size_t wanted = 2 * pieces->capacity + 4;
    Value *grown = render_alloc(render, wanted, sizeof *grown);
    if (!grown) return render_no_memory(render);
    if (pieces->count) memcpy(grown, pieces->items, pieces->count * sizeof *grown);
    pieces->items = grown;
    pieces->capacity = wanted;
  }
  TRY(render_charge(render, 1));
  return value_text(render, text, &pieces->items[pieces->count++]);
}

static Status pieces_value(Render *render, const Pieces *pieces, bool reversed, Value *out) {
  Value *items;
  TRY(value_list(render, pieces->count, &items, out));
  for (size_t i = 0; i < pieces->count; i++) items[i] = pieces->items[reversed ? pieces->count - 1 - i : i];
  return STATUS_OK;
}

static Status split_at(Render *render, Text text, Text separator, int64_t most, Pieces *pieces) {
  size_t from = 0;
  for (; most != 0; most -= most > 0) {
    size_t at = text_find(text, separator, from, text.size);
    if (at == SIZE_MAX) break;
    TRY(add_piece(render, pieces, text_slice(text, from, at)));
    from = at + separator.size;
  }
  return add_piece(render, pieces, text_slice(text, from, text.size));
}

static Status split_at_from_end(Render *render, Text text, Text separator, int64_t most, Pieces *pieces) {
  size_t to = text.size;
  for (; most != 0; most -= most > 0) {
    size_t at = text_find_last(text, separator, 0, to);
    if (at == SIZE_MAX) break;
    TRY(add_piece(render, pieces, text_slice(text, at + separator.size, to)));
    to = at;
  }
  return add_piece(render, pieces, text_slice(text, 0, to));
}

static Status split_words(Render *render, Text text, int64_t most, Pieces *pieces) {
  text = text_strip(text, STRIP_LEFT);
  while (text.size > 0) {
    size_t at = 0;
    if (most == 0) return add_piece(render, pieces, text);
    while (at < text.size && !code_is_space(text_code(text, at))) at += text_step(text, at);
    TRY(add_piece(render, pieces, text_slice(text, 0, at)));
    text = text_strip(text_slice(text, at, text.size), STRIP_LEFT);
    most -= most > 0;
  }
  return STATUS_OK;
}

static Status split_words_from_end(Render *render, Text text, int64_t most, Pieces *pieces) {
  text = text_strip(text, STRIP_RIGHT);
  while (text.size > 0) {
    size_t at = text.size;
    if (most == 0) return add_piece(render, pieces, text);
    for (size_t before; at > 0; at = before) {
      before = utf8_before(text.data, at);
      if (code_is_space(text_code(text, before))) break;
    }
    TRY(add_piece(render, pieces, text_slice(text, at, text.size)));
    text = text_strip(text_slice(text, 0, at), STRIP_RIGHT);
    most -= most > 0;
  }
  return STATUS_OK;
}

static Status split(Render *render, Value self, const CallArgs *args, bool from_end, Value *out) {
  int64_t most;
  Text separator;
  Pieces pieces = {0};
  TRY(argument_int(render, args->items[1], -1, &most));
  if (is_none(args->items[0])) {
    TRY(render_charge(render, self.text->size / 8));
    TRY(from_end ? split_words_from_end(render, *self.text, most, &pieces)
                 : split_words(render, *self.text, most, &pieces));
  } else {
    TRY(argument_text(render, "the separator", args->items[0], &separator));
    if (separator.size == 0) return render_fail(render, "empty separator");
    TRY(charge_search(render, self.text->size, separator, from_end));
    TRY(from_end ? split_at_from_end(render, *self.text, separator, most, &pieces)
                 : split_at(render, *self.text, separator, most, &pieces));
  }
  return pieces_value(render, &pieces, from_end, out);
}

static Status string_split(Render *render, Value self, const CallArgs *args, Value *out) {
  return split(render, self, args, false, out);
}
static Status string_rsplit(Render *render, Value self, const CallArgs *args, Value *out) {
  return split(render, self, args, true, out);
}

static Status string_splitlines(Render *render, Value self, const CallArgs *args, Value *out) {
  return string_lines(render, *self.text, given_truth(args->items[0]), out);
}

static Status partition(Render *render, Value self, const CallArgs *args, bool last, Value *out) {
  Text text = *self.text, separator;
  Value *items;
  TRY(argument_text(render, "the separator", args->items[0], &separator));
  if (separator.size == 0) return render_fail(render, "empty separator");
  TRY(charge_search(render, text.size, separator, last));
  size_t at = last ? text_find_last(text, separator, 0, text.size) : text_find(text, separator, 0, text.size);
  size_t from = at, to = at;
  if (at == SIZE_MAX)
    from = to = last ? 0 : text.size;
  else
    to += separator.size;
  TRY(value_list(render, 3, &items, out));
  out->kind = VALUE_TUPLE;
  TRY(value_text(render, text_slice(text, 0, from), &items[0]));
  TRY(value_text(render, text_slice(text, from, to), &items[1]));
  return value_text(render, text_slice(text, to, text.size), &items[2]);
}

static Status string_partition(Render *render, Value self, const CallArgs *args, Value *out) {
  return partition(render, self, args, false, out);
}
static Status string_rpartition(Render *render, Value self, const CallArgs *args, Value *out) {
  return partition(render, self, args, true, out);
}

/* --- case, padding */

static Status in_case(Render *render, Value self, CaseKind kind, Value *out) {
  size_t mark = put_mark(render);
  TRY(put_case(render, *self.text, 0, self.text->size, kind));
  return put_take(render, mark, out);
}

static Status string_upper(Render *render, Value self, const CallArgs *args, Value *out) {
  (void)args;
  return in_case(render, self, CASE_UPPER, out);
}
static Status string_lower(Render *render, Value self, const CallArgs *args, Value *out) {
  (void)args;
  return in_case(render, self, CASE_LOWER, out);
}

static Status string_casefold(Render *render, Value self, const CallArgs *args, Value *out) {
  (void)args;
  return in_case(render, self, CASE_FOLDED, out);
}

static Status string_capitalize(Render *render, Value self, const CallArgs *args, Value *out) {
  (void)args;
  return string_capitalized(render, *self.text, out);
}

static bool is_cased(uint32_t code) {
  return (unicode_value(&unicode_flags, code) & (CHAR_LOWERCASE | CHAR_UPPERCASE)) ||
         strcmp(category_of(code), "Lt") == 0;
}

/* A letter after a cased one becomes lower case, any other one title case. */
static Status string_title(Render *render, Value self, const CallArgs *args, Value *out) {
  (void)args;
  Text text = *self.text;
  size_t mark = put_mark(render);
  bool inside = false;
  for (size_t at = 0, next; at < text.size; at = next) {
    next = at + text_step(text, at);
    bool cased = is_cased(text_code(text, at));
    while (inside && cased && next < text.size && is_cased(text_code(text, next)))
      next += text_step(text, next);
    TRY(put_case(render, text, at, next, inside ? CASE_LOWER : CASE_TITLE));
    inside = cased;
  }
  return put_take(render, mark, out);
}

static Status string_swapcase(Render *render, Value self, const CallArgs *args, Value *out) {
  (void)args;
  Text text = *self.text;
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

static Status string_replace(Render *render, Value self, const CallArgs *args, Value *out) {
  Text old, new;
  int64_t count;
  TRY(argument_text(render, "replace() argument 1", args->items[0], &old));
  TRY(argument_text(render, "replace() argument 2", args->items[1], &new));
  TRY(argument_int(render, args->items[2], -1, &count));
  return string_replaced(render, *self.text, old, new, count, out);
}

static Status string_join(Render *render, Value self, const CallArgs *args, Value *out) {
  if (!value_is_iterable(args->items[0])) return render_fail(render, "can only join an iterable");
  return string_joined(render, *self.text, args->items[0], false, out);
}

static Status padded(Render *render, Value self, const CallArgs *args, Padding padding, Value *out) {
  int64_t width;
  Text fill = text_literal(" ");
  TRY(argument_int(render, args->items[0], 0, &width));
  if (is_given(args->items[1])) TRY(argument_text(render, "the fill character", args->items[1], &fill));
  if (text_count(fill) != 1)
    return render_fail(render, "The fill character must be exactly one character long");
  return string_padded(render, *self.text, width, fill, padding, out);
}

static Status string_ljust(Render *render, Value self, const CallArgs *args, Value *out) {
  return padded(render, self, args, PAD_RIGHT, out);
}
static Status string_rjust(Render *render, Value self, const CallArgs *args, Value *out) {
  return padded(render, self, args, PAD_LEFT, out);
}
static Status string_center(Render *render, Value self, const CallArgs *args, Value *out) {
  return padded(render, self, args, PAD_BOTH, out);
}

/* Inserts zeros between a sign and the rest. */
static Status string_zfill(Render *render, Value self, const CallArgs *args, Value *out) {
  int64_t width;
  Text text = *self.text;
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

static Status put_spaces(Render *render, size_t count) {
  Text spaces;
  TRY(string_repeated(render, text_literal(" "), count, &spaces));
  return put_text(render, spaces);
}

/* Replaces tabs by spaces up to the next multiple of a width, in characters from the line's beginning. */
static Status string_expandtabs(Render *render, Value self, const CallArgs *args, Value *out) {
  Text text = *self.text;
  int64_t width;
  size_t column = 0, mark = put_mark(render);
  TRY(argument_int(render, args->items[0], 8, &width));
  for (size_t at = 0, next; at < text.size; at = next) {
    next = at + text_step(text, at);
    char c = text.data[at];
    size_t spaces = c == '\t' && width > 0 ? (size_t)width - column % (size_t)width : 0;
    TRY(put_spaces(render, spaces));
    if (c != '\t') TRY(put_text(render, text_slice(text, at, next)));
    column = c == '\n' || c == '\r' ? 0 : c == '\t' ? column + spaces : column + 1;
  }
  return put_take(render, mark, out);
}

static Status string_format(Render *render, Value self, const CallArgs *args, Value *out) {
  return format_braces(render, *self.text, args, out);
}

const Builtin template_string_methods[] = {
    {"capitalize", "/", 0, string_capitalize},
    {"casefold", "/", 0, string_casefold},
    {"center", "/width fillchar", 1, string_center},
    {"count", "/sub start end", 1, string_count},
    {"endswith", "/suffix start end", 1, string_endswith},
    {"expandtabs", "tabsize", 0, string_expandtabs},
    {"find", "/sub start end", 1, string_find},
    {"format", NULL, 0, string_format},
    {"index", "/sub start end", 1, string_index},
    {"isalnum", "/", 0, string_isalnum},
    {"isalpha", "/", 0, string_isalpha},
    {"isascii", "/", 0, string_isascii},
    {"isdecimal", "/", 0, string_isdecimal},
    {"isdigit", "/", 0, string_isdigit},
    {"islower", "/", 0, string_islower},
    {"isnumeric", "/", 0, string_isnumeric},
    {"isspace", "/", 0, string_isspace},
    {"isupper", "/", 0, string_isupper},
    {"join", "/iterable", 1, string_join},
    {"ljust", "/width fillchar", 1, string_ljust},
    {"lower", "/", 0, string_lower},
    {"lstrip", "/chars", 0, string_lstrip},
    {"partition", "/sep", 1, string_partition},
    {"removeprefix", "/prefix", 1, string_removeprefix},
    {"removesuffix", "/suffix", 1, string_removesuffix},
    {"replace", "/old new count", 2, string_replace},
    {"rfind", "/sub start end", 1, string_rfind},
    {"rindex", "/sub start end", 1, string_rindex},
    {"rjust", "/width fillchar", 1, string_rjust},
    {"rpartition", "/sep", 1, string_rpartition},
    {"rsplit", "sep maxsplit", 0, string_rsplit},
    {"rstrip", "/chars", 0, string_rstrip},
    {"split", "sep maxsplit", 0, string_split},
    {"splitlines", "keepends", 0, string_splitlines},
    {"startswith", "/prefix start end", 1, string_startswith},
    {"strip", "/chars", 0, string_strip},
    {"swapcase", "/", 0, string_swapcase},
    {"title", "/", 0, string_title},
    {"upper", "/", 0, string_upper},
    {"zfill", "/width", 1, string_zfill},
    {NULL, NULL, 0, NULL},
};

/* --- lists, tuples */

static Status list_index(Render *render, Value self, const CallArgs *args, Value *out) {
  const List *list;
  TRY(value_elements(render, self, &list));
  for (size_t i = 0; i < list->count; i++) {
    bool equal;
    TRY(value_equal(render, list->items[i], args->items[0], &equal));
    if (!equal) continue;
    *out = value_int((int64_t)i);
    return STATUS_OK;
  }
  if (self.kind == VALUE_TUPLE) return render_fail(render, "tuple.index(x): x not in tuple");
  return render_fail(render, "%s is not in list", render_shown(render, args->items[0]));
}

static Status list_count(Render *render, Value self, const CallArgs *args, Value *out) {
  const List *list;
  int64_t count = 0;
  TRY(value_elements(render, self, &list));
  for (size_t i = 0; i < list->count; i++) {
    bool equal;
    TRY(value_equal(render, list->items[i], args->items[0], &equal));
    count += equal;
  }
  *out = value_int(count);
  return STATUS_OK;
}

static Status list_copy(Render *render, Value self, const CallArgs *args, Value *out) {
  return filter_list(render, self, args, out);
}

const Builtin template_list_methods[] = {{"copy", "/", 0, list_copy},
                                         {"count", "/value", 1, list_count},
                                         {"index", "/value", 1, list_index},
                                         {NULL, NULL, 0, NULL}};
const Builtin template_tuple_methods[] = {
    {"count", "/value", 1, list_count}, {"index", "/value", 1, list_index}, {NULL, NULL, 0, NULL}};

/* --- dicts */

static Status dict_view(Render *render, Value self, ViewKind kind, Value *out) {
  View *view = render_alloc(render, 1, sizeof *view);
  if (!view) return render_no_memory(render);
  *view = (View){kind, self.dict};
  *out = (Value){.kind = VALUE_VIEW, .view = view};
  return STATUS_OK;
}

static Status dict_items(Render *render, Value self, const CallArgs *args, Value *out) {
  (void)args;
  return dict_view(render, self, VIEW_ITEMS, out);
}
static Status dict_keys(Render *render, Value self, const CallArgs *args, Value *out) {
  (void)args;
  return dict_view(render, self, VIEW_KEYS, out);
}
static Status dict_values(Render *render, Value self, const CallArgs *args, Value *out) {
  (void)args;
  return dict_view(render, self, VIEW_VALUES, out);
}

static Status dict_get(Render *render, Value self, const CallArgs *args, Value *out) {
  const Value *found;
  TRY(dict_find(render, self.dict, args->items[0], &found));
  *out = found ? *found : is_given(args->items[1]) ? args->items[1] : value_none();
  return STATUS_OK;
}

static Status dict_copy(Render *render, Value self, const CallArgs *args, Value *out) {
  (void)args;
  TRY(value_dict(render, self.dict->count, out));
  for (size_t i = 0; i < self.dict->count; i++)
    TRY(dict_set(render, out->dict, self.dict->entries[i].key, self.dict->entries[i].value));
  return STATUS_OK;
}

const Builtin template_dict_methods[] = {
    {"copy", "/", 0, dict_copy}, {"get", "/key default", 1, dict_get}, {"items", "/", 0, dict_items},
    {"keys", "/", 0, dict_keys}, {"values", "/", 0, dict_values},      {NULL, NULL, 0, NULL}};
