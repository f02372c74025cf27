/* test_template_transcripts.c - test/data/transcripts/templates: texts of templates, which parts of them are
 * trusted, and why others fail.
 *
 *   variables {"m": ...}   of the templates below; specials {"bos_token": ...} likewise
 *   "{{ m }}"              a template, as a string of JSON
 *
 * Below it are its text with what is not trusted in brackets, or its status and message (and the text that it
 * raised). Wordings are jinja2's, which authors of templates may search for. `make goldens` writes the files
 * anew. */
#include "rendering.h"
#include "test/tests.h"
#include "test/transcript.h"

enum { MOST_TEXT = 40000 };

static Json *variables, *specials;

static void print_text(const TrustedText *text, FILE *out) {
  static char marked[MOST_TEXT];
  Buffer json = {0};
  check_runs(text);
  mark(text, marked, sizeof marked);
  assert_int_equal(json_write_string(&json, marked, strlen(marked), NULL), STATUS_OK);
  fprintf(out, "    %.*s\n", (int)json.size, json.data);
  buffer_release(&json);
}

static void render_line(const char *line, FILE *out) {
  Json *template = parse(line);
  size_t size;
  const char *text = json_string(template, &size);
  Result result = render(text, size, variables, specials);
  if (result.status != STATUS_OK) fprintf(out, "    status %d: %s\n", result.status, result.err.text);
  assert_int_equal(result.raised, result.status == STATUS_USAGE);
  if (result.status == STATUS_OK || result.raised)
    print_text(&result.text, out);
  else
    assert_int_equal(result.text.text.size, 0);
  trusted_text_release(&result.text);
  json_free(template);
}

static void set(Json **which, const char *text) {
  json_free(*which);
  *which = parse(text);
}

static void write_templates(const char *old, FILE *out) {
  char line[TRANSCRIPT_LINE];
  set(&variables, "{}");
  set(&specials, "{}");
  while (transcript_next_line(&old, line)) {
    if (*line == ' ') continue;
    fprintf(out, "%s\n", line);
    if (*line == '"') render_line(line, out);
    if (strncmp(line, "variables ", 10) == 0) set(&variables, line + 10);
    if (strncmp(line, "specials ", 9) == 0) set(&specials, line + 9);
  }
  json_free(variables);
  json_free(specials);
  variables = specials = NULL;
}

TEST(templates_give_what_their_transcripts_say) {
  check_transcripts("test/data/transcripts/templates", write_templates);
}
