/* fuzz_template.c - hostile chat templates over hostile variables: they end, and what they write is whole.
 *
 * The input is a template, a NUL, and the variables as JSON (where that is none: some of our own). Checked: a
 * template is refused with a message or rendered; what is rendered has runs that cover it, each valid UTF-8;
 * a second rendering gives the same; and nothing of the variables is trusted: their texts have an X, which
 * this template language makes of nothing else, as long as the template has neither an X nor a backslash nor
 * a lower-case x. */
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"
#include "tokenizer/jinja/template.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char usual[] = "{\"messages\": [{\"role\": \"system\", \"content\": \"X be\"}, {\"role\": "
                            "\"user\", \"content\": \" X<b>X \\n\"},"
                            "{\"role\": \"assistant\", \"content\": \"X\\u00e9\\u4e2dX\", \"tool_calls\": "
                            "[{\"function\": {\"name\": \"X\","
                            "\"arguments\": {\"a\": [1, 2.5, null, true], \"b\": \"X\"}}}]}], \"tools\": "
                            "null, \"n\": 3, \"s\": \"aXbXc\","
                            "\"l\": [\"X\", \"aX\"], \"d\": {\"k\": \"X\"}, \"add_generation_prompt\": true}";

static void require(bool condition) {
  if (!condition) abort();
}

static void check_runs(const TrustedText *text, bool traced) {
  size_t at = 0;
  for (size_t i = 0; i < text->n_runs; i++) {
    TextRun run = text->runs[i];
    require(run.end > at && run.end <= text->text.size);
    require(i == 0 || run.trusted != text->runs[i - 1].trusted);
    require(utf8_valid_prefix(text->text.data + at, run.end - at) == run.end - at);
    if (traced && run.trusted) require(!memchr(text->text.data + at, 'X', run.end - at));
    at = run.end;
  }
  require(at == text->text.size);
}

static void check(const Template *template, const Json *variables, bool traced) {
  const TemplateInput input = {.variables = variables, .now = 1721952000};
  TrustedText first = {0}, second = {0};
  Error err = {{0}};
  bool raised, again;
  Status status = template_render(template, &input, &first, &raised, &err);
  require(status == STATUS_OK || err.text[0] || raised);
  require(raised == (status == STATUS_USAGE));
  check_runs(&first, traced);
  require(status == template_render(template, &input, &second, &again, &err) && raised == again);
  require(first.text.size == second.text.size && first.n_runs == second.n_runs);
  require(first.text.size == 0 || memcmp(first.text.data, second.text.data, first.text.size) == 0);
  trusted_text_release(&first);
  trusted_text_release(&second);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  const char *text = (const char *)data, *nul = size ? memchr(text, '\0', size) : NULL;
  size_t n = nul ? (size_t)(nul - text) : size;
  Template *template;
  Json *own = NULL;
  Error err = {{0}};
  if (template_parse("fuzz", text, n, &template, &err) != STATUS_OK) {
    require(!template && err.text[0]);
    return 0;
  }
  if (nul) json_parse("variables", STATUS_USAGE, nul + 1, size - n - 1, NULL, 0, &own, NULL);
  bool traced = !own;
  for (size_t i = 0; i < n; i++)
    traced &= text[i] != 'X' && text[i] != 'x' && text[i] != '\\' && text[i] != '%';
  if (!own)
    require(json_parse("usual", STATUS_USAGE, usual, sizeof usual - 1, NULL, 0, &own, &err) == STATUS_OK);
  check(template, own, traced);
  template_mentions(template, "messages");
  json_free(own);
  template_close(template);
  return 0;
}
