/* filters.c - filters over texts and single values, and the table of all filters.
 *
 * Called by: eval.c and sequences.c (the filter map) through template_filters; parse_expression.c,
 * sequences.c and tests.c look up names in it. methods.c and sequences.c also call is_given() and
 * given_truth(); arithmetic.c calls text_escaped(). Filters over several elements are in sequences.c. */
#include "tokenizer/jinja/filters.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/utf8.h"
#include "tokenizer/jinja/strings.h"
#include "tokenizer/unicode/unicode.h"

bool is_given(Value value) {
  return value.kind != VALUE_MISSING;
}

bool given_truth(Value value) {
  return is_given(value) && value_truth(value);
}

/* --- HTML */

static bool escape_for_html(uint32_t code, int option, char out[16]) {
  static const char plain[] = "&<>'\"", *const names[] = {"amp", "lt", "gt", "#39", "#34"};
  const char *found = code && code < 0x80 ? strchr(plain, (int)code) : NULL;
  if (found) snprintf(out, 16, "&%s;", names[found - plain]);
  return found;
}

Status text_escaped(Render *render, Value value, Text *out) {
  TRY(value_string(render, value, out));
  if (value.kind == VALUE_STRING && value.is_safe) return STATUS_OK;
  size_t mark = put_mark(render);
  Value escaped;
  TRY(put_escaped(render, *out, escape_for_html, 0));
  TRY(put_take(render, mark, &escaped));
  *out = *escaped.text;
  return STATUS_OK;
}

enum { MARK_SAFE, ESCAPE, FORCE_ESCAPE };

static Status filter_markup(Render *render, const CallArgs *args, Value *out) {
  Value self = args->self;
  Text text;
  if (args->mode == FORCE_ESCAPE) self.is_safe = false;
  TRY(args->mode == MARK_SAFE ? value_string(render, self, &text) : text_escaped(render, self, &text));
  TRY(value_text(render, text, out));
  out->is_safe = true;
  return STATUS_OK;
}

/* --- texts */

static Status filter_string(Render *render, const CallArgs *args, Value *out) {
  Text text;
  if (args->self.kind == VALUE_STRING) {
    *out = args->self;
    return STATUS_OK;
  }
  TRY(value_string(render, args->self, &text));
  return value_text(render, text, out);
}

/* True if a word of title() begins after this character: white space or one of - ( { [ <. */
static bool begins_word(uint32_t before) {
  return code_is_space(before) || (before < 0x80 && before && strchr("-({[<", (int)before));
}

static Status filter_title(Render *render, const CallArgs *args, Value *out) {
  Text text;
  TRY(value_string(render, args->self, &text));
  size_t mark = put_mark(render);
  for (size_t at = 0, end; at < text.size; at = end) {
    size_t next = at + text_step(text, at);
    bool between = begins_word(text_code(text, at));
    for (end = next; end < text.size && begins_word(text_code(text, end)) == between;)
      end += text_step(text, end);
    /* A capital sigma becomes a final one only after a letter. jinja2 lowers word[1:] by itself, so the
     * word's first letter does not count: hence the slice. */
    Text rest = text_slice(text, next, end);
    TRY(put_case(render, text, at, next, CASE_UPPER));
    TRY(put_case(render, rest, 0, rest.size, CASE_LOWER));
  }
  return put_take(render, mark, out);
}

static Status filter_replace(Render *render, const CallArgs *args, Value *out) {
  Text text, old, new;
  int64_t count = -1;
  TRY(value_string(render, args->self, &text));
  TRY(value_string(render, args->items[0], &old));
  TRY(value_string(render, args->items[1], &new));
  if (args->items[2].kind != VALUE_NONE) TRY(argument_int(render, args->items[2], -1, &count));
  return string_replaced(render, text, old, new, count, out);
}

static Status put_lines(Render *render, const List *lines, Text indent, bool blank) {
  for (size_t i = 0; i < lines->count; i++) {
    Text line = *lines->items[i].text;
    if (i) TRY(put_trusted(render, "\n"));
    if (i && (blank || line.size)) TRY(put_text(render, indent));
    TRY(put_text(render, line));
  }
  return STATUS_OK;
}

/* An indentation: a string, or a number of blanks. */
static Status argument_indent(Render *render, Value value, Text *out) {
  int64_t width;
  if (value.kind == VALUE_STRING) return argument_text(render, "the indentation", value, out);
  TRY(argument_int(render, value, 4, &width));
  return string_repeated(render, text_literal(" "), width > 0 ? (size_t)width : 0, out);
}

static Status filter_indent(Render *render, const CallArgs *args, Value *out) {
  Text text, indent;
  Value newline, lines;
  TRY(argument_text(render, "the text to indent", args->self, &text));
  TRY(argument_indent(render, args->items[0], &indent));
  size_t mark = put_mark(render);
  TRY(put_text(render, text));
  TRY(put_trusted(render, "\n")); /* so that a last empty line counts */
  TRY(put_take(render, mark, &newline));
  TRY(string_lines(render, *newline.text, false, &lines));
  if (given_truth(args->items[1])) TRY(put_text(render, indent));
  TRY(put_lines(render, lines.list, indent, given_truth(args->items[2])));
  return put_take(render, mark, out);
}

/* Reads and checks truncate()'s arguments. *length = the characters to keep before *end; *most: a text of up
 * to so many characters stays whole. */
static Status truncate_lengths(Render *render, const CallArgs *args, Text *end, int64_t *length,
                               uint64_t *most) {
  int64_t leeway;
  Value given = args->items[3].kind == VALUE_NONE ? (Value){.kind = VALUE_MISSING} : args->items[3];
  *end = text_literal("...");
  TRY(argument_int(render, args->items[0], 255, length));
  if (is_given(args->items[2])) TRY(argument_text(render, "end", args->items[2], end));
  TRY(argument_int(render, given, 5, &leeway));
  int64_t end_length = (int64_t)text_count(*end);
  if (*length < end_length)
    return render_fail(render, "expected length >= %lld, got %lld", (long long)end_length,
                       (long long)*length);
  if (leeway < 0) return render_fail(render, "expected leeway >= 0, got %lld", (long long)leeway);
  *most = (uint64_t)*length + (uint64_t)leeway;
  *length -= end_length;
  return STATUS_OK;
}

static Status filter_truncate(Render *render, const CallArgs *args, Value *out) {
  Value self = args->self;
  Text text, end;
  int64_t length;
  uint64_t most = 0;
  size_t count;
  TRY(truncate_lengths(render, args, &end, &length, &most));
  TRY(value_charge_length(render, self));
  if (!value_length(self, &count))
    return render_fail(render, "object of type '%s' has no len()", value_type(self));
  *out = self;
  if (count <= most) return STATUS_OK;
  TRY(argument_text(render, "the text to truncate", self, &text));
  TRY(render_charge_bytes(render, text.size));
  Text kept = text_slice(text, 0, text_offset(text, (size_t)length));
  size_t space =
      given_truth(args->items[1]) ? SIZE_MAX : text_find_last(kept, text_literal(" "), 0, kept.size);
  size_t mark = put_mark(render);
  TRY(put_text(render, space == SIZE_MAX ? kept : text_slice(kept, 0, space)));
  TRY(put_text(render, end));
  return put_take(render, mark, out);
}

static Status filter_wordcount(Render *render, const CallArgs *args, Value *out) {
  Text text;
  TRY(value_string(render, args->self, &text));
  TRY(render_charge(render, text.size / 8));
  int64_t count = 0;
  bool inside = false;
  for (size_t at = 0; at < text.size; at += text_step(text, at)) {
    uint32_t code = text_code(text, at);
    bool is_word = code == '_' || string_is_alnum(code);
    count += is_word && !inside;
    inside = is_word;
  }
  *out = value_int(count);
  return STATUS_OK;
}

static Status filter_format(Render *render, const CallArgs *args, Value *out) {
  Text format;
  TRY(value_string(render, args->self, &format));
  if (args->count && args->n_keywords)
    return render_fail(render, "can't handle positional and keyword arguments at the same time");
  Value values;
  if (args->n_keywords) {
    TRY(value_dict(render, args->n_keywords, &values));
    TRY(dict_add_keywords(render, values.dict, args));
  } else {
    TRY(value_copies(render, args->items, args->count, &values));
    values.kind = VALUE_TUPLE;
  }
  return format_percent(render, format, values, out);
}

/* --- URLs */

static bool escape_for_url(uint32_t code, int in_query, char out[16]) {
  unsigned char bytes[4];
  if (code && code < 0x80 && strchr(in_query ? "_.-~" : "_.-~/", (int)code)) return false;
  if (code < 0x80 && string_is_alnum(code)) return false;
  int n = utf8_encode(code, bytes);
  for (int i = 0; i < n; i++) snprintf(out + 3 * i, 4, "%%%02X", bytes[i]);
  if (in_query && code == ' ') strcpy(out, "+");
  return true;
}

static Status put_quoted(Render *render, Value value, bool in_query) {
  Text text;
  TRY(value_string(render, value, &text));
  return put_escaped(render, text, escape_for_url, in_query);
}

static Status filter_urlencode(Render *render, const CallArgs *args, Value *out) {
  size_t mark = put_mark(render);
  if (args->self.kind == VALUE_STRING || !value_is_iterable(args->self)) {
    TRY(put_quoted(render, args->self, false));
    return put_take(render, mark, out);
  }
  View view = {VIEW_ITEMS, args->self.dict};
  Cursor cursor;
  TRY(cursor_begin(render,
                   args->self.kind == VALUE_DICT ? (Value){.kind = VALUE_VIEW, .view = &view} : args->self,
                   &cursor));
  for (bool first = true;; first = false) {
    Value pair;
    const List *parts;
    bool more;
    TRY(cursor_next(render, &cursor, &pair, &more));
    if (!more) return put_take(render, mark, out);
    TRY(value_elements(render, pair, &parts));
    if (parts->count != 2)
      return render_fail(render, "not enough values to unpack (expected 2, got %zu)", parts->count);
    if (!first) TRY(put_trusted(render, "&"));
    TRY(put_quoted(render, parts->items[0], true));
    TRY(put_trusted(render, "="));
    TRY(put_quoted(render, parts->items[1], true));
  }
}

/* --- numbers */

static Status filter_abs(Render *render, const CallArgs *args, Value *out) {
  if (args->self.kind == VALUE_UNDEFINED) return render_undefined(render, args->self);
  if (args->self.kind == VALUE_FLOAT)
    *out = value_float(fabs(args->self.number));
  else if (!value_is_integer(args->self))
    return render_fail(render, "bad operand type for abs(): '%s'", value_type(args->self));
  else if (value_integer(args->self) < 0)
    return value_binary(render, OP_SUB, value_int(0), args->self, out);
  else
    *out = value_int(value_integer(args->self));
  return STATUS_OK;
}

/* Python's int(number); false if it is NaN or beyond 64 bits. */
static bool truncated(double number, int64_t *out) {
  if (!(number >= -0x1p63 && number < 0x1p63)) return false;
  *out = (int64_t)number;
  return true;
}

static Status filter_int(Render *render, const CallArgs *args, Value *out) {
  Value self = args->self;
  int64_t base, integer;
  double number;
  *out = is_given(args->items[0]) ? args->items[0] : value_int(0);
  TRY(argument_int(render, args->items[1], 10, &base));
  if (self.kind == VALUE_UNDEFINED) return render_undefined(render, self);
  if (value_is_integer(self)) {
    *out = value_int(value_integer(self));
  } else if (self.kind == VALUE_STRING) {
    TRY(render_charge(render, self.text->size));
    if (string_to_int(*self.text, (int)base, &integer) ||
        (string_to_float(*self.text, &number) && truncated(number, &integer)))
      *out = value_int(integer);
  } else if (self.kind == VALUE_FLOAT && isinf(self.number)) {
    return render_fail(render, "cannot convert float infinity to integer");
  } else if (self.kind == VALUE_FLOAT && !isnan(self.number)) {
    if (!truncated(self.number, &integer)) return render_fail(render, "the result of int is beyond 64 bits");
    *out = value_int(integer);
  }
  return STATUS_OK;
}

static Status filter_float(Render *render, const CallArgs *args, Value *out) {
  Value self = args->self;
  double number;
  *out = is_given(args->items[0]) ? args->items[0] : value_float(0);
  if (self.kind == VALUE_UNDEFINED) return render_undefined(render, self);
  if (value_is_number(self)) *out = value_float(value_number(self));
  if (self.kind != VALUE_STRING) return STATUS_OK;
  TRY(render_charge(render, self.text->size));
  if (string_to_float(*self.text, &number)) *out = value_float(number);
  return STATUS_OK;
}

/* Python's round() of a float: of its exact value, ties to even. */
static double round_float(double number, int precision) {
  char text[1024];
  if (!isfinite(number)) return number;
  snprintf(text, sizeof text, "%.800e", fabs(number)); /* exact: a double has at most 767 digits */
  const int exponent = atoi(strchr(text, 'e') + 1), kept = exponent + precision; /* digits after the first */
  const bool up = *text > '5' || (*text == '5' && text[2 + strspn(text + 2, "0")] != 'e');
  if (kept >= 0)
    snprintf(text, sizeof text, "%.*e", kept, fabs(number));
  else
    snprintf(text, sizeof text, "%de%d", kept == -1 && up, exponent + 1);
  return copysign(strtod(text, NULL), number);
}

/* Python's round(). */
static Status round_common(Render *render, Value self, int64_t precision, Value *out) {
  __extension__ typedef __int128 Wide;
  if (!value_is_integer(self)) {
    const double number = self.number, rounded = round_float(number, (int)precision);
    if (isinf(rounded) && !isinf(number)) return render_fail(render, "rounded value too large to represent");
    *out = value_float(rounded);
    return STATUS_OK;
  }
  Wide unit = 1, number = value_integer(self); /* a unit above UINT64_MAX rounds all numbers to 0 */
  for (; precision < 0 && unit <= UINT64_MAX; precision++) unit *= 10;
  const Wide rest = number % unit, twice = 2 * (rest < 0 ? -rest : rest);
  const bool away = twice > unit || (twice == unit && number / unit % 2 != 0);
  const Wide rounded = number - rest + (away ? rest < 0 ? -unit : unit : 0);
  if (rounded < INT64_MIN || rounded > INT64_MAX)
    return render_fail(render, "the result of round is beyond 64 bits");
  *out = value_int((int64_t)rounded);
  return STATUS_OK;
}

/* jinja2's math.ceil(x * 10**precision) / 10**precision, or math.floor(); from precision 0 on Python
 * divides two integers, which rounds once, as strtod() does. */
static Status round_towards(Render *render, Value self, int64_t precision, bool ceils, Value *out) {
  if (value_is_integer(self) && precision >= 0) {
    *out = value_float(value_number(self));
    return STATUS_OK;
  }
  if (precision > 308) return render_fail(render, "int too large to convert to float");
  char text[512];
  snprintf(text, sizeof text, "1e%d", (int)precision);
  const double scale = precision < 0 ? pow(10, (double)precision) : strtod(text, NULL),
               scaled = value_number(self) * scale,
               whole = (ceils ? ceil(scaled) : floor(scaled)) + 0.0; /* + 0.0 makes 0.0 of -0.0 */
  if (isnan(whole) || isinf(whole))
    return render_fail(render, "cannot convert float %s to integer", isnan(whole) ? "NaN" : "infinity");
  if (scale == 0) return render_fail(render, "float division by zero");
  snprintf(text, sizeof text, "%.0fe%d", whole, -(int)precision);
  *out = value_float(precision < 0 ? whole / scale : strtod(text, NULL));
  return STATUS_OK;
}

static Status filter_round(Render *render, const CallArgs *args, Value *out) {
  Value self = args->self;
  int64_t precision;
  Text method = text_literal("common");
  TRY(argument_int(render, args->items[0], 0, &precision));
  if (is_given(args->items[1])) TRY(argument_text(render, "method", args->items[1], &method));
  if (self.kind == VALUE_UNDEFINED) return render_undefined(render, self);
  bool ceils = text_is(method, "ceil"), floors = text_is(method, "floor");
  if (!ceils && !floors && !text_is(method, "common"))
    return render_fail(render, "method must be common, ceil or floor");
  if (!value_is_number(self))
    return render_fail(render, "type %s doesn't define __round__ method", value_type(self));
  if (precision > 400) precision = 400; /* a double has no digit beyond these */
  if (precision < -400) precision = -400;
  if (ceils || floors) return round_towards(render, self, precision, ceils, out);
  return round_common(render, self, precision, out);
}

static Status filter_filesizeformat(Render *render, const CallArgs *args, Value *out) {
  Value self = args->self;
  static const char prefixes[] = "kMGTPEZY";
  bool binary = given_truth(args->items[0]);
  double base = binary ? 1024 : 1000, bytes, unit = base;
  if (value_is_number(self))
    bytes = value_number(self);
  else if (self.kind != VALUE_STRING || !string_to_float(*self.text, &bytes))
    return render_fail(render, "could not convert to float: %s", render_shown(render, self));
  char text[64];
  if (bytes == 1) {
    snprintf(text, sizeof text, "1 Byte");
  } else if (bytes < base) {
    snprintf(text, sizeof text, "%.0f Bytes", trunc(bytes));
  } else {
    int i = 0;
    for (unit *= base; i < 7 && bytes >= unit; i++) unit *= base;
    char prefix = prefixes[i] == 'k' && binary ? 'K' : prefixes[i];
    snprintf(text, sizeof text, "%.1f %c%sB", fmin(base * bytes / unit, 1e30), prefix, binary ? "i" : "");
  }
  size_t mark = put_mark(render);
  TRY(put_trusted(render, text));
  return put_take(render, mark, out);
}

/* --- any value */

static Status filter_default(Render *render, const CallArgs *args, Value *out) {
  bool falls_back =
      args->self.kind == VALUE_UNDEFINED || (given_truth(args->items[1]) && !value_truth(args->self));
  *out = args->self;
  if (!falls_back) return STATUS_OK;
  if (!is_given(args->items[0])) return value_text(render, text_literal(""), out);
  *out = args->items[0];
  return STATUS_OK;
}

static Status filter_attr(Render *render, const CallArgs *args, Value *out) {
  Value self = args->self;
  Text name;
  TRY(argument_text(render, "attribute name", args->items[0], &name));
  if (self.kind != VALUE_DICT) return value_attribute(render, self, name, out);
  Value method = self; /* a dict's members are not attributes */
  Dict none = {0};
  method.dict = builtin_find(template_dict_methods, name) ? self.dict : &none;
  return value_attribute(render, method, name, out);
}

static Status filter_tojson(Render *render, const CallArgs *args, Value *out) {
  Value indent = args->items[1], separators = args->items[2];
  Text indent_text;
  JsonStyle style = {.ascii = given_truth(args->items[0]), .sorted = given_truth(args->items[3])};
  if (is_given(indent) && indent.kind != VALUE_NONE) {
    TRY(argument_indent(render, indent, &indent_text));
    style.indent = &indent_text;
  }
  style.between = text_literal(style.indent ? "," : ", ");
  style.after_key = text_literal(": ");
  if (is_given(separators) && separators.kind != VALUE_NONE) {
    const List *pair;
    TRY(value_elements(render, separators, &pair));
    if (pair->count != 2) return render_fail(render, "separators must be two strings");
    TRY(argument_text(render, "a separator", pair->items[0], &style.between));
    TRY(argument_text(render, "a separator", pair->items[1], &style.after_key));
  }
  size_t mark = put_mark(render);
  TRY(put_json(render, args->self, &style));
  return put_take(render, mark, out);
}

const Builtin template_filters[] = {
    {"abs", "", 0, filter_abs, 0},
    {"attr", "name", 1, filter_attr, 0},
    {"batch", "linecount fill_with", 1, filter_batch, 0},
    {"capitalize", "", 0, string_capitalize, 0},
    {"center", "width", 0, string_pad, PAD_BOTH},
    {"count", "", 0, filter_length, 0},
    {"d", "default_value boolean", 0, filter_default, 0},
    {"default", "default_value boolean", 0, filter_default, 0},
    {"dictsort", "case_sensitive by reverse", 0, filter_dictsort, 0},
    {"e", "", 0, filter_markup, ESCAPE},
    {"escape", "", 0, filter_markup, ESCAPE},
    {"filesizeformat", "binary", 0, filter_filesizeformat, 0},
    {"first", "", 0, filter_first, 0},
    {"float", "default", 0, filter_float, 0},
    {"forceescape", "", 0, filter_markup, FORCE_ESCAPE},
    {"format", NULL, 0, filter_format, 0},
    {"groupby", "attribute default case_sensitive", 1, filter_groupby, 0},
    {"indent", "width first blank", 0, filter_indent, 0},
    {"int", "default base", 0, filter_int, 0},
    {"items", "", 0, filter_items, 0},
    {"join", "d attribute", 0, filter_join, 0},
    {"last", "", 0, filter_last, 0},
    {"length", "", 0, filter_length, 0},
    {"list", "", 0, filter_list, 0},
    {"lower", "", 0, string_case, CASE_LOWER},
    {"map", NULL, 0, filter_each, EACH_MAP},
    {"max", "case_sensitive attribute", 0, filter_extreme, OP_GT},
    {"min", "case_sensitive attribute", 0, filter_extreme, OP_LT},
    {"reject", NULL, 0, filter_each, EACH_REJECT},
    {"rejectattr", NULL, 0, filter_each, EACH_REJECT | EACH_BY_ATTRIBUTE},
    {"replace", "old new count", 2, filter_replace, 0},
    {"reverse", "", 0, filter_reverse, 0},
    {"round", "precision method", 0, filter_round, 0},
    {"safe", "", 0, filter_markup, MARK_SAFE},
    {"select", NULL, 0, filter_each, EACH_SELECT},
    {"selectattr", NULL, 0, filter_each, EACH_SELECT | EACH_BY_ATTRIBUTE},
    {"slice", "slices fill_with", 1, filter_slice, 0},
    {"sort", "reverse case_sensitive attribute", 0, filter_sort, 0},
    {"string", "", 0, filter_string, 0},
    {"sum", "attribute start", 0, filter_sum, 0},
    {"title", "", 0, filter_title, 0},
    {"tojson", "ensure_ascii indent separators sort_keys", 0, filter_tojson, 0},
    {"trim", "chars", 0, string_strip, STRIP_LEFT | STRIP_RIGHT},
    {"truncate", "length killwords end leeway", 0, filter_truncate, 0},
    {"unique", "case_sensitive attribute", 0, filter_unique, 0},
    {"upper", "", 0, string_case, CASE_UPPER},
    {"urlencode", "", 0, filter_urlencode, 0},
    {"wordcount", "", 0, filter_wordcount, 0},
    {0},
};
