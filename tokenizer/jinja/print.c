/* print.c - Python's str(), repr() and json.dumps(), appended to the output.
 *
 * Always true: strings keep their own trust; everything else is written as trusted text. There is one output:
 * a value that becomes a string is printed at the output's end, and put_take() moves it from there. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "tokenizer/jinja/eval.h"
#include "tokenizer/unicode/unicode.h"

/* --- the output */

Status put_text(Render *render, Text text) {
  if (text.size == 0) return STATUS_OK;
  TRY(render_charge_bytes(render, text.size));
  if (text.size > RENDER_MAX_TEXT - render->out->text.size)
    return render_fail(render, "writes more than %zu MB", RENDER_MAX_TEXT >> 20);
  return trusted_text_append(render->out, text, render->err);
}

Status put_trusted(Render *render, const char *string) {
  return put_text(render, text_literal(string));
}

size_t put_mark(const Render *render) {
  return render->out->text.size;
}

/* Gives *text the output's runs from `mark` on. */
static Status take_runs(Render *render, size_t mark, Text *text) {
  const TrustedText *out = render->out;
  size_t first = out->n_runs;
  while (first > 1 && out->runs[first - 2].end > mark) first--;
  if (first > 0) first--; /* the run with the byte at `mark` */
  size_t n = out->n_runs - first;
  if (n <= 1) {
    *text = text_of(text->data, text->size, n == 0 || out->runs[first].trusted);
    return STATUS_OK;
  }
  TextRun *runs;
  TRY(render_alloc(render, &runs, n, sizeof *runs));
  for (size_t i = 0; i < n; i++)
    runs[i] = (TextRun){out->runs[first + i].end - mark, out->runs[first + i].trusted};
  text->runs = runs;
  text->n_runs = n;
  text->shift = 0;
  return render_charge(render, n);
}

Status put_take(Render *render, size_t mark, Value *out) {
  size_t size = render->out->text.size - mark;
  TRY(render_charge_bytes(render, size));
  char *copy;
  TRY(render_alloc(render, &copy, size, 1));
  if (size) memcpy(copy, render->out->text.data + mark, size);
  Text text = text_of(copy, size, true);
  if (size) TRY(take_runs(render, mark, &text));
  trusted_text_truncate(render->out, mark);
  return value_text(render, text, out);
}

Status value_string(Render *render, Value value, Text *text) {
  if (value.kind != VALUE_STRING) {
    size_t mark = put_mark(render);
    TRY(put_string(render, value));
    TRY(put_take(render, mark, &value));
  }
  *text = *value.text;
  return STATUS_OK;
}

/* --- numbers */

/* The shortest digits that read back as the same number; in exponent form below 1e-4 and from 1e16 on. */
void float_text(double number, char text[32]) {
  if (isnan(number) || isinf(number)) {
    strcpy(text, isnan(number) ? "nan" : number < 0 ? "-inf" : "inf");
    return;
  }
  int digits = 1;
  for (; digits < 17; digits++) {
    snprintf(text, 32, "%.*e", digits - 1, number);
    if (strtod(text, NULL) == number) break;
  }
  snprintf(text, 32, "%.*e", digits - 1, number);
  int exponent = atoi(strchr(text, 'e') + 1);
  if (exponent < -4 || exponent >= 16) return;
  int decimals = digits - 1 - exponent;
  snprintf(text, 32, "%.*f", decimals > 1 ? decimals : 1, number);
}

static Status put_number(Render *render, Value value) {
  char text[32];
  if (value.kind == VALUE_FLOAT)
    float_text(value.number, text);
  else
    snprintf(text, sizeof text, "%lld", (long long)value_integer(value));
  return put_trusted(render, text);
}

/* --- repr */

void escape_code(uint32_t code, char out[16]) {
  snprintf(out, 16, code < 0x100 ? "\\x%02x" : code < 0x10000 ? "\\u%04x" : "\\U%08x", (unsigned)code);
}

/* Writes a character's escape in Python's repr(); false if it needs none. */
static bool escape_for_repr(uint32_t code, int quote, char out[16]) {
  static const char plain[] = "\\\n\r\t", letters[] = "\\nrt";
  const char *found = code && code < 0x80 ? strchr(plain, (int)code) : NULL, *category = code_category(code);
  if (found || code == (uint32_t)quote)
    snprintf(out, 16, "\\%c", found ? letters[found - plain] : quote);
  else if (code == ' ' || (category[0] != 'C' && category[0] != 'Z'))
    return false;
  else
    escape_code(code, out);
  return true;
}

Status put_escaped(Render *render, Text text, Escape *escape, int option) {
  size_t done = 0;
  for (size_t at = 0; at < text.size; at += text_step(text, at)) {
    char instead[16];
    if (!escape(text_code(text, at), option, instead)) continue;
    TRY(put_text(render, text_slice(text, done, at)));
    TRY(put_text(render, text_of(instead, strlen(instead), text_trusted_at(text, at))));
    done = at + text_step(text, at);
  }
  return put_text(render, text_slice(text, done, text.size));
}

static Status put_string_repr(Render *render, Text text) {
  bool single = memchr(text.data, '\'', text.size), twice = memchr(text.data, '"', text.size);
  char quote = single && !twice ? '"' : '\'';
  TRY(put_text(render, text_of(&quote, 1, true)));
  TRY(put_escaped(render, text, escape_for_repr, quote));
  return put_text(render, text_of(&quote, 1, true));
}

static Status put_list_repr(Render *render, const List *list, const char *open, const char *close) {
  TRY(put_trusted(render, open));
  for (size_t i = 0; i < list->count; i++) {
    if (i) TRY(put_trusted(render, ", "));
    TRY(put_repr(render, list->items[i]));
  }
  return put_trusted(render, close);
}

static Status put_dict_repr(Render *render, const Dict *dict) {
  TRY(put_trusted(render, "{"));
  for (size_t i = 0; i < dict->count; i++) {
    if (i) TRY(put_trusted(render, ", "));
    TRY(put_repr(render, dict->entries[i].key));
    TRY(put_trusted(render, ": "));
    TRY(put_repr(render, dict->entries[i].value));
  }
  return put_trusted(render, "}");
}

static Status put_view_repr(Render *render, const View *view) {
  static const char *const names[] = {
      [VIEW_KEYS] = "dict_keys([", [VIEW_VALUES] = "dict_values([", [VIEW_ITEMS] = "dict_items(["};
  const List *elements;
  TRY(value_elements(render, (Value){.kind = VALUE_VIEW, .view = view}, &elements));
  return put_list_repr(render, elements, names[view->kind], "])");
}

static Status put_range_repr(Render *render, const Range *range) {
  char text[80];
  if (range->step == 1)
    snprintf(text, sizeof text, "range(%lld, %lld)", (long long)range->start, (long long)range->stop);
  else
    snprintf(text, sizeof text, "range(%lld, %lld, %lld)", (long long)range->start, (long long)range->stop,
             (long long)range->step);
  return put_trusted(render, text);
}

static Status put_macro_repr(Render *render, const Macro *macro) {
  Text name = macro_name(macro);
  TRY(put_trusted(render, "<Macro "));
  TRY(name.size ? put_string_repr(render, name) : put_trusted(render, "anonymous"));
  return put_trusted(render, ">");
}

static Status put_repr_inside(Render *render, Value value) {
  switch ((ValueKind)value.kind) {
  case VALUE_MISSING:
  case VALUE_UNDEFINED: return put_trusted(render, "Undefined");
  case VALUE_NONE: return put_trusted(render, "None");
  case VALUE_BOOL: return put_trusted(render, value.boolean ? "True" : "False");
  case VALUE_INT:
  case VALUE_FLOAT: return put_number(render, value);
  case VALUE_HUGE: return put_text(render, *value.text);
  case VALUE_STRING:
    if (!value.is_safe) return put_string_repr(render, *value.text);
    TRY(put_trusted(render, "Markup("));
    TRY(put_string_repr(render, *value.text));
    return put_trusted(render, ")");
  case VALUE_LIST: return put_list_repr(render, value.list, "[", "]");
  case VALUE_TUPLE: return put_list_repr(render, value.list, "(", value.list->count == 1 ? ",)" : ")");
  case VALUE_DICT: return put_dict_repr(render, value.dict);
  case VALUE_VIEW: return put_view_repr(render, value.view);
  case VALUE_RANGE: return put_range_repr(render, value.range);
  case VALUE_NAMESPACE:
    TRY(put_trusted(render, "<Namespace "));
    TRY(put_dict_repr(render, value.dict));
    return put_trusted(render, ">");
  case VALUE_MACRO: return put_macro_repr(render, value.macro);
  default: /* Python prints an address too, which is omitted */
    TRY(put_trusted(render, "<"));
    TRY(put_trusted(render, value_type(value)));
    return put_trusted(render, " object>");
  }
}

Status put_repr(Render *render, Value value) {
  TRY(render_charge(render, 1));
  if (++render->depth > RENDER_MAX_DEPTH) return render_fail(render, "values are nested too deep to print");
  TRY(put_repr_inside(render, value));
  render->depth--;
  return STATUS_OK;
}

Status put_string(Render *render, Value value) {
  if (value.kind == VALUE_STRING) return put_text(render, *value.text);
  if (value.kind == VALUE_UNDEFINED) return STATUS_OK;
  if (value.kind == VALUE_LOOP) {
    size_t length;
    Value index;
    TRY(loop_length(render, value.loop, &length));
    TRY(loop_attribute(render, value.loop, text_literal("index"), &index));
    char text[80];
    snprintf(text, sizeof text, "<LoopContext %lld/%zu>", (long long)index.integer, length);
    return put_trusted(render, text);
  }
  return put_repr(render, value);
}

/* --- JSON */

static Status put_line(Render *render, const JsonStyle *style, int level) {
  if (!style->indent) return STATUS_OK;
  TRY(put_trusted(render, "\n"));
  for (int i = 0; i < level; i++) TRY(put_text(render, *style->indent));
  return STATUS_OK;
}

/* Writes a character's escape in JSON; false if it needs none. */
static bool escape_for_json(uint32_t code, int ascii, char out[16]) {
  static const char plain[] = "\"\\\n\r\t\f\b", letters[] = "\"\\nrtfb";
  const char *found = code && code < 0x80 ? strchr(plain, (int)code) : NULL;
  if (found)
    snprintf(out, 16, "\\%c", letters[found - plain]);
  else if (code >= 0x20 && (!ascii || code < 0x7f))
    return false;
  else if (code < 0x10000)
    snprintf(out, 16, "\\u%04x", (unsigned)code);
  else
    snprintf(out, 16, "\\u%04x\\u%04x", (unsigned)(0xd7c0 + (code >> 10)),
             (unsigned)(0xdc00 | (code & 0x3ff)));
  return true;
}

static Status put_json_string(Render *render, Text text, bool ascii) {
  TRY(put_trusted(render, "\""));
  TRY(put_escaped(render, text, escape_for_json, ascii));
  return put_trusted(render, "\"");
}

static Status put_json_at(Render *render, Value value, const JsonStyle *style, int level);

/* Writes a key: a string, or a number, bool or none as a string. */
static Status put_json_key(Render *render, Value key, const JsonStyle *style) {
  if (key.kind == VALUE_STRING) return put_json_string(render, *key.text, style->ascii);
  if (!value_is_number(key) && key.kind != VALUE_NONE)
    return render_fail(render, "keys must be str, int, float, bool or None, not %s", value_type(key));
  TRY(put_trusted(render, "\""));
  TRY(put_json_at(render, key, style, 0));
  return put_trusted(render, "\"");
}

/* Writes the items of a list or, for a dict, the entries. */
static Status put_json_items(Render *render, const Value *items, const DictEntry *entries, size_t count,
                             const JsonStyle *style, int level) {
  if (count == 0) return put_trusted(render, entries ? "{}" : "[]");
  TRY(put_trusted(render, entries ? "{" : "["));
  for (size_t i = 0; i < count; i++) {
    if (i) TRY(put_text(render, style->between));
    TRY(put_line(render, style, level + 1));
    if (entries) TRY(put_json_key(render, entries[i].key, style));
    if (entries) TRY(put_text(render, style->after_key));
    TRY(put_json_at(render, entries ? entries[i].value : items[i], style, level + 1));
  }
  TRY(put_line(render, style, level));
  return put_trusted(render, entries ? "}" : "]");
}

static Status put_json_dict(Render *render, const Dict *dict, const JsonStyle *style, int level) {
  DictEntry *entries = dict->entries;
  if (style->sorted) {
    TRY(render_alloc(render, &entries, dict->count, 2 * sizeof *entries));
    if (dict->count) memcpy(entries, dict->entries, dict->count * sizeof *entries);
    TRY(sort_entries(render, entries, entries + dict->count, dict->count, false));
  }
  return put_json_items(render, NULL, entries, dict->count, style, level);
}

static Status put_json_inside(Render *render, Value value, const JsonStyle *style, int level) {
  switch ((ValueKind)value.kind) {
  case VALUE_NONE: return put_trusted(render, "null");
  case VALUE_BOOL: return put_trusted(render, value.boolean ? "true" : "false");
  case VALUE_INT:
  case VALUE_FLOAT:
    if (value.kind == VALUE_INT || isfinite(value.number)) return put_number(render, value);
    return put_trusted(render, isnan(value.number) ? "NaN" : value.number < 0 ? "-Infinity" : "Infinity");
  case VALUE_HUGE: return put_text(render, *value.text);
  case VALUE_STRING: return put_json_string(render, *value.text, style->ascii);
  case VALUE_LIST:
  case VALUE_TUPLE: return put_json_items(render, value.list->items, NULL, value.list->count, style, level);
  case VALUE_DICT: return put_json_dict(render, value.dict, style, level);
  default: return render_fail(render, "Object of type %s is not JSON serializable", value_type(value));
  }
}

static Status put_json_at(Render *render, Value value, const JsonStyle *style, int level) {
  TRY(render_charge(render, 1));
  if (++render->depth > RENDER_MAX_DEPTH) return render_fail(render, "values are nested too deep for JSON");
  TRY(put_json_inside(render, value, style, level));
  render->depth--;
  return STATUS_OK;
}

Status put_json(Render *render, Value value, const JsonStyle *style) {
  return put_json_at(render, value, style, 0);
}
