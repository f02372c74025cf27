/* rendering.h - shared by the tests of templates: a template's text and variables in, its output out. */
#pragma once

#include "small.h"
#include "tokenizer/jinja/template.h"

static const int64_t july = 1721952000; /* 26 July 2024 */

typedef struct {
  Status status;
  bool raised;
  TrustedText text;
  Error err;
} Result;

static inline Result render(const char *text, size_t size, const Json *variables, const Json *specials) {
  Result result = {.status = STATUS_OK};
  Template *template;
  result.status = template_parse("t", text, size, &template, &result.err);
  const TemplateInput input = {.variables = variables, .specials = specials, .now = july};
  if (result.status == STATUS_OK)
    result.status = template_render(template, &input, &result.text, &result.raised, &result.err);
  template_close(template);
  return result;
}

static inline Json *parse(const char *text) {
  Json *json;
  Error err;
  if (json_parse("test", STATUS_FAILED, text, strlen(text), NULL, 0, &json, &err)) fail_msg("%s", err.text);
  return json;
}

/* The runs cover the text and differ from their neighbours. */
static inline void check_runs(const TrustedText *text) {
  size_t at = 0;
  for (size_t i = 0; i < text->n_runs; i++) {
    assert_true(text->runs[i].end > at);
    assert_true(i == 0 || text->runs[i].trusted != text->runs[i - 1].trusted);
    assert_int_equal(utf8_valid_prefix(text->text.data + at, text->runs[i].end - at), text->runs[i].end - at);
    at = text->runs[i].end;
  }
  assert_int_equal(at, text->text.size);
}

/* The text, with untrusted parts in brackets. */
static inline void mark(const TrustedText *text, char *out, size_t size) {
  size_t n = 0, at = 0;
  for (size_t i = 0; i < text->n_runs; i++) {
    const char *open = text->runs[i].trusted ? "" : "[", *close = text->runs[i].trusted ? "" : "]";
    n += (size_t)snprintf(out + n, size - n, "%s%.*s%s", open, (int)(text->runs[i].end - at),
                          text->text.data + at, close);
    at = text->runs[i].end;
  }
  out[n] = '\0';
}
