/* functions.c - the global functions of templates, a table. */
#include <stdio.h>
#include <time.h>

#include "tokenizer/jinja/eval.h"

Status argument_int(Render *render, Value value, int64_t fallback, int64_t *out) {
  *out = fallback;
  if (value.kind == VALUE_MISSING) return STATUS_OK;
  if (value.kind == VALUE_UNDEFINED) return render_undefined(render, value);
  if (!value_is_integer(value))
    return render_fail(render, "'%s' object cannot be interpreted as an integer", value_type(value));
  *out = value_integer(value);
  return STATUS_OK;
}

Status argument_text(Render *render, const char *what, Value value, Text *out) {
  if (value.kind == VALUE_UNDEFINED) return render_undefined(render, value);
  if (value.kind != VALUE_STRING)
    return render_fail(render, "%s must be str, not %s", what, value_type(value));
  *out = *value.text;
  return STATUS_OK;
}

/* --- range, dict, namespace */

static Status function_range(Render *render, const CallArgs *args, Value *out) {
  int64_t start = 0, stop, step;
  if (args->n_keywords) return render_fail(render, "range() takes no keyword arguments");
  if (args->count < 1 || args->count > 3)
    return render_fail(render, "range expected 1 to 3 arguments, got %zu", args->count);
  if (args->count > 1) TRY(argument_int(render, args->items[0], 0, &start));
  TRY(argument_int(render, args->items[args->count > 1], 0, &stop));
  TRY(argument_int(render, args->count > 2 ? args->items[2] : value_int(1), 1, &step));
  if (step == 0) return render_fail(render, "range() arg 3 must not be zero");
  uint64_t span = step > 0 ? (stop > start ? (uint64_t)stop - (uint64_t)start : 0)
                           : (start > stop ? (uint64_t)start - (uint64_t)stop : 0);
  uint64_t stride = step > 0 ? (uint64_t)step : 0 - (uint64_t)step,
           count = span ? (span - 1) / stride + 1 : 0;
  if (count > RENDER_MAX_RANGE)
    return render_fail(render, "Range too big. The sandbox blocks ranges larger than MAX_RANGE (%d).",
                       RENDER_MAX_RANGE);
  Range range = {start, step, stop, (size_t)count};
  return value_object(render, VALUE_RANGE, &range, sizeof range, out);
}

Status dict_add_keywords(Render *render, Dict *dict, const CallArgs *args) {
  for (size_t i = 0; i < args->n_keywords; i++) {
    Value key;
    TRY(value_text(render, args->keywords[i].name, &key));
    TRY(dict_set(render, dict, key, args->keywords[i].value));
  }
  return STATUS_OK;
}

/* Adds the entries of another dict, or of an iterable of pairs. */
static Status add_pairs(Render *render, Dict *dict, Value source) {
  if (source.kind == VALUE_DICT || source.kind == VALUE_NAMESPACE) {
    for (size_t i = 0; i < source.dict->count; i++)
      TRY(dict_set(render, dict, source.dict->entries[i].key, source.dict->entries[i].value));
    return STATUS_OK;
  }
  Cursor cursor;
  TRY(cursor_begin(render, source, &cursor));
  for (;;) {
    Value pair;
    bool more;
    const List *list;
    TRY(cursor_next(render, &cursor, &pair, &more));
    if (!more) return STATUS_OK;
    if (!value_is_iterable(pair))
      return render_fail(render, "cannot convert dictionary update sequence element");
    TRY(value_elements(render, pair, &list));
    if (list->count != 2)
      return render_fail(render, "dictionary update sequence element has length %zu; 2 is required",
                         list->count);
    TRY(dict_set(render, dict, list->items[0], list->items[1]));
  }
}

/* The mode is the kind of the result: a dict or a namespace. */
static Status function_dict(Render *render, const CallArgs *args, Value *out) {
  if (args->count > 1) return render_fail(render, "dict expected at most 1 argument, got %zu", args->count);
  TRY(value_dict(render, args->n_keywords, out));
  out->kind = (uint8_t)args->mode;
  if (args->count) TRY(add_pairs(render, out->dict, args->items[0]));
  return dict_add_keywords(render, out->dict, args);
}

/* --- cycler, joiner */

static Status function_cycler(Render *render, const CallArgs *args, Value *out) {
  if (args->count == 0) return render_fail(render, "at least one item has to be provided");
  Value list;
  TRY(value_copies(render, args->items, args->count, &list));
  return value_object(render, VALUE_CYCLER, &(Cycler){list.list, 0}, sizeof(Cycler), out);
}

static Status cycler_next(Render *render, const CallArgs *args, Value *out) {
  Cycler *cycler = args->self.cycler;
  *out = cycler->items->items[cycler->at];
  cycler->at = (cycler->at + 1) % cycler->items->count;
  return STATUS_OK;
}

static Status cycler_reset(Render *render, const CallArgs *args, Value *out) {
  args->self.cycler->at = 0;
  *out = value_none();
  return STATUS_OK;
}

const Builtin template_cycler_methods[] = {
    {"next", "", 0, cycler_next, 0}, {"reset", "", 0, cycler_reset, 0}, {0}};

static Status function_joiner(Render *render, const CallArgs *args, Value *out) {
  Joiner joiner = {.separator = text_literal(", ")};
  if (args->items[0].kind != VALUE_MISSING) TRY(value_string(render, args->items[0], &joiner.separator));
  return value_object(render, VALUE_JOINER, &joiner, sizeof joiner, out);
}

/* --- additions of transformers */

static Status function_raise_exception(Render *render, const CallArgs *args, Value *out) {
  Text message;
  TRY(value_string(render, args->items[0], &message));
  trusted_text_truncate(render->out, render->begin);
  TRY(put_text(render, message));
  render->raised = true;
  return error_set(render->err, STATUS_USAGE, "%.*s", message.size > 1000 ? 1000 : (int)message.size,
                   message.data);
}

enum { MAX_TIME = 4096 }; /* bytes that strftime_now() may make */

/* Resolves the directives that Python handles itself: %f is microseconds, and this time has no zone. */
static Status prepare_format(Render *render, Text format, char *out, size_t size) {
  size_t n = 0;
  for (size_t i = 0; i < format.size; i++) {
    if (n + 8 > size || format.data[i] == '\0')
      return render_fail(render, "the format of strftime_now() is too long or holds a NUL");
    out[n++] = format.data[i];
    if (format.data[i] != '%' || i + 1 == format.size) continue;
    char c = format.data[++i];
    if (c == 'f') {
      memcpy(out + n - 1, "000000", 6);
      n += 5;
    } else if (c == 'z' || c == 'Z') {
      n--;
    } else {
      out[n++] = c;
    }
  }
  out[n] = '\0';
  return STATUS_OK;
}

static Status function_strftime_now(Render *render, const CallArgs *args, Value *out) {
  Text format;
  char prepared[MAX_TIME / 8], text[MAX_TIME];
  TRY(argument_text(render, "strftime() argument 1", args->items[0], &format));
  TRY(prepare_format(render, format, prepared, sizeof prepared - 1));
  strcat(prepared, "|"); /* so that an empty result differs from an overflow */
  struct tm parts;
  time_t now = (time_t)render->input->now;
  size_t n = gmtime_r(&now, &parts) ? strftime(text, sizeof text, prepared, &parts) : 0;
  if (n == 0) return render_fail(render, "strftime_now() makes more than %d bytes", MAX_TIME);
  size_t mark = put_mark(render);
  TRY(put_text(render, text_of(text, n - 1, true)));
  return put_take(render, mark, out);
}

const Builtin template_functions[] = {
    {"range", NULL, 0, function_range, 0},
    {"dict", NULL, 0, function_dict, VALUE_DICT},
    {"namespace", NULL, 0, function_dict, VALUE_NAMESPACE},
    {"cycler", NULL, 0, function_cycler, 0},
    {"joiner", "sep", 0, function_joiner, 0},
    {"raise_exception", "message", 1, function_raise_exception, 0},
    {"strftime_now", "format", 1, function_strftime_now, 0},
    {0},
};
