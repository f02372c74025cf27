/* test_template.c - templates render as in jinja2, and end.
 *
 * test/data/templates/cases.jsonl and sweeps.jsonl.gz are the reference's (make_template_cases.py). Templates
 * that the reference refuses are refused here; the messages, and what is to be trusted, are in
 * test_template_transcripts.c. */
#include <time.h>

#include "rendering.h"
#include "test/tests.h"

/* Texts may be long: shows both around the first byte that differs. */
static bool has_text(const Result *result, const Json *expected, const char *template) {
  size_t wanted, size = result->text.text.size, at = 0;
  const char *text = json_string(expected, &wanted), *given = result->text.text.data;
  while (at < size && at < wanted && given[at] == text[at]) at++;
  if (at == size && at == wanted) return true;
  size_t from = at < 60 ? 0 : at - 60;
  print_error("%.300s\n gives    %.*s\n expected %.*s\n", template,
              (int)(size - from < 120 ? size - from : 120), given ? given + from : "",
              (int)(wanted - from < 120 ? wanted - from : 120), text + from);
  return false;
}

/* The line that a message names, and its reason. */
static int line_of(const Error *err, const char **says) {
  int line = 0, n = 0;
  *says = err->text;
  if (sscanf(err->text, "t: line %d: %n", &line, &n) == 1 && n) *says = err->text + n;
  return line;
}

/* A refusal names the same reason three lines further down if three lines are put before it. */
static bool fails_with_its_line(const char *template, size_t size, const Json *variables,
                                const Result *result) {
  static const char before[] = "a\n{# \n #}{% raw %}\n{% endraw %}";
  Buffer text = {0};
  buffer_append(&text, before, sizeof before - 1, NULL);
  buffer_append(&text, template, size, NULL);
  Result later = render(text.data, text.size, variables, NULL);
  const char *says, *says_later;
  int line = line_of(&result->err, &says), line_later = line_of(&later.err, &says_later);
  bool same =
      later.status == STATUS_MODEL && line > 0 && line_later == line + 3 && strcmp(says, says_later) == 0;
  if (!same) print_error("%s\n %s\n %s\n", template, result->err.text, later.err.text);
  trusted_text_release(&later.text);
  buffer_release(&text);
  return same;
}

/* True if the template gives the result of the reference. */
static bool case_holds(const Json *line, const Json *variables) {
  size_t size;
  const char *template = json_string(json_member(line, "template"), &size);
  Result result = render(template, size, variables, NULL);
  check_runs(&result.text);
  bool holds;
  if (json_member(line, "rendered"))
    holds = result.status == STATUS_OK && has_text(&result, json_member(line, "rendered"), template);
  else if (json_member(line, "error"))
    holds = result.status == STATUS_USAGE && result.raised &&
            has_text(&result, json_member(line, "error"), template);
  else
    holds = result.status == STATUS_MODEL && !result.raised &&
            fails_with_its_line(template, size, variables, &result);
  if (!holds) print_error("%.300s\n status %d: %s\n", template, result.status, result.err.text);
  trusted_text_release(&result.text);
  return holds;
}

/* Counts the lines of the file; *wrong is increased for each one that fails. */
static int check_cases(const char *path, int *wrong) {
  char command[100], *text = NULL;
  size_t capacity = 0;
  Json *variables = NULL;
  int n = 0;
  snprintf(command, sizeof command, "gzip -dcf %s", path); /* -f: a file that is not packed comes as it is */
  FILE *file = popen(command, "r");
  assert_non_null(file);
  for (ssize_t size; (size = getline(&text, &capacity, file)) > 0;) {
    Json *line;
    assert_int_equal(json_parse("cases", STATUS_FAILED, text, (size_t)size, NULL, 0, &line, NULL), STATUS_OK);
    if (!variables) {
      variables = line;
      continue;
    }
    *wrong += !case_holds(line, json_member(variables, "variables"));
    json_free(line);
    n++;
  }
  assert_int_equal(pclose(file), 0);
  json_free(variables);
  free(text);
  return n;
}

TEST(cases_are_rendered_as_jinja2_does) {
  int wrong = 0;
  assert_true(check_cases("test/data/templates/cases.jsonl", &wrong) > 800);
  assert_true(check_cases("test/data/templates/sweeps.jsonl.gz", &wrong) > 2000);
  assert_int_equal(wrong, 0);
}

typedef struct {
  const char *template, *expected;
} Pair;

/* 20 MB in 20,000 pieces, by appending: quadratic copying would take 200 GB. */
TEST(a_long_text_can_be_built_piece_by_piece) {
  static const char *const templates[] = {
      "{% set ns = namespace(s='') %}{% for i in range(20000) %}{% set ns.s = ns.s + p + '\\n' %}{% endfor "
      "%}{{ ns.s }}",
      "{% set ns = namespace(s='') %}{% for i in range(20000) %}{% set ns.s = ns.s ~ p ~ i %}{% endfor %}{{ "
      "ns.s|length }}",
  };
  Buffer json = {0};
  buffer_append_string(&json, "{\"p\": \"", NULL);
  for (int i = 0; i < 100; i++) buffer_append_string(&json, "0123456789", NULL);
  buffer_append(&json, "\"}", 3, NULL);
  Json *variables = parse(json.data);
  for (int i = 0; i < 2; i++) {
    Result result = render(templates[i], strlen(templates[i]), variables, NULL);
    if (result.status != STATUS_OK) fail_msg("%s", result.err.text);
    assert_int_equal(result.text.text.size, i == 0 ? 20020000 : 8);
    trusted_text_release(&result.text);
  }
  json_free(variables);
  buffer_release(&json);
}

/* --- limits */

static double seconds(void) {
  struct timespec now;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

/* The bound is some ten times the slowest one's time, for sanitizers and slow machines. */
TEST(what_does_not_end_is_ended) {
  static const Pair pairs[] = {
      {"{% for i in range(100000) %}{% for j in range(100000) %}{% endfor %}{% endfor %}", "steps"},
      {"{% for i in range(100000) %}{% for j in range(100000) %}{% set x = i ~ j %}{% endfor %}{% endfor %}",
       ""},
      {"{% set ns = namespace(s='x') %}{% for i in range(100) %}{% set ns.s = ns.s ~ ns.s %}{% endfor %}",
       "MB"},
      {"{% set ns = namespace(s=[1]) %}{% for i in range(100) %}{% set ns.s = ns.s + ns.s %}{% endfor %}",
       ""},
      {"{% for i in range(100000) %}{{ 'x' * 100000 }}{% endfor %}", "writes more than 64 MB"},
      {"{{ 'x' * 9999999999 }}", "MB"},
      {"{{ [1] * 9999999999 }}", "elements"},
      {"{{ '%999999999s' % 1 }}", "MB"},
      {"{{ '{:>999999999}'.format(1) }}", ""},
      {"{{ '%.999999999f' % 1.5 }}", "precision"},
      {"{{ 'x'.center(9999999999) }}", ""},
      {"{{ 'x'|indent(9999999999) }}", ""},
      {"{{ [1]|tojson(indent=999999999) }}", ""},
      {"{% for i in range(99) %}{{ [1]|batch(9000000, 2)|list|length }}{% endfor %}", ""},
      {"{{ [1]|slice(9000000)|list|length }}{{ [1]|slice(9000000)|list|length }}", ""},
      {"{{ ('a' * 1000000).rfind('b' ~ 'a' * 500000) }}", "steps"},
      {"{% set a = 'a' * 1000000 %}{% for i in range(9999) %}{{ a.count('b') or '' }}{% endfor %}", "steps"},
      {"{% for i in range(100000) %}{{ ('ab' * 100000).replace('z', 'b') and '' }}{% endfor %}", ""},
      {"{% set w = ' ' * 30000000 %}{% for i in range(100000) %}{{ w|trim and '' }}{% endfor %}", "steps"},
      {"{% set w = ' ' * 30000000 %}{% for i in range(100000) %}{{ w|float and '' }}{% endfor %}", "steps"},
      {"{% set w = ' ' * 30000000 %}{% for i in range(100000) %}{{ w|int and '' }}{% endfor %}", "steps"},
      {"{% set a = 'a' * 60000000 %}{% for i in range(100000) %}{{ a|first and '' }}{% endfor %}{{ 1 / 0 }}",
       "zero"},
      {"{% set a = 'a' * 60000000 %}{% for i in range(100000) %}{{ a[99999999999] }}{% endfor %}", "steps"},
      {"{% set a = 'a' * 60000000 %}{% for i in range(100000) %}{{ a.removesuffix(a) }}{% endfor %}",
       "steps"},
      {"{{ ('a' * 1000000)|trim('b' * 1000000 ~ 'a') }}", "steps"},
      {"{% macro f(n) %}{{ f(n) }}{% endmacro %}{{ f(1) }}", "nested too deep"},
      {"{% macro f(n) %}{{ f(n ~ n) }}{% endmacro %}{{ f('ab') }}", ""},
      {"{% for x in [[1]] recursive %}{{ loop([[1]]) }}{% endfor %}", "nested too deep"},
      {"{% set ns = namespace() %}{% set ns.a = [ns] %}{{ ns }}", "nested too deep"},
      {"{% set ns = namespace() %}{% set ns.a = ns %}{{ ns.a.a == ns }}{{ [ns] }}", "nested too deep"},
      {"{% set ns = namespace(a=[]) %}{% for i in range(5000) %}{% set ns.a = [ns.a] %}{% endfor %}{{ ns.a "
       "}}",
       "deep"},
      {"{% set ns = namespace(a=[], b=[]) %}{% for i in range(5000) %}{% set ns.a, ns.b = [ns.a], [ns.b] "
       "%}{% endfor %}"
       "{{ ns.a == ns.b }}{{ ns.a < ns.b }}",
       "deep"},
      {"{{ dict(range(100000)|map('string')|map('list')) }}", ""},
      {"{% for i in range(100000) %}{% for j in range(99) if false %}{% endfor %}{{ loop.length }}{% endfor "
       "%}",
       ""},
  };
  for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i += SANITIZED ? 3 : 1) {
    double begin = seconds();
    Result result = render(pairs[i].template, strlen(pairs[i].template), NULL, NULL);
    double took = seconds() - begin;
    if (result.status != STATUS_MODEL || !strstr(result.err.text, pairs[i].expected))
      fail_msg("%s: status %d: %s", pairs[i].template, result.status, result.err.text);
    if (took > 5) fail_msg("%s: takes %.1f s", pairs[i].template, took);
    trusted_text_release(&result.text);
  }
}

TEST(an_interruption_ends_a_rendering) {
  static const char text[] = "{% for i in range(100000) %}{% for j in range(9) %}{% endfor %}{% endfor %}";
  const volatile int interrupted = 1;
  const TemplateInput input = {.interrupted = &interrupted, .now = july};
  Template *template;
  TrustedText out = {0};
  bool raised;
  Error err = {{0}};
  assert_int_equal(template_parse("t", text, sizeof text - 1, &template, &err), STATUS_OK);
  assert_int_equal(template_render(template, &input, &out, &raised, &err), STATUS_INTERRUPTED);
  assert_false(raised);
  template_close(template);
  trusted_text_release(&out);
}

/* 40,000 variables; the last one is read repeatedly. */
TEST(many_variables_take_their_steps) {
  Buffer text = {0};
  for (int i = 0; i < 40000; i++) buffer_printf(&text, NULL, "{%% set a%d = 1 %%}", i);
  buffer_append_string(&text, "{% for i in range(100000) %}{{ a39999 }}{{ nosuch }}{% endfor %}", NULL);
  double begin = seconds();
  Result result = render(text.data, text.size, NULL, NULL);
  double took = seconds() - begin;
  assert_int_equal(result.status, STATUS_MODEL);
  assert_non_null(strstr(result.err.text, "steps"));
  if (took > 5) fail_msg("takes %.1f s", took);
  trusted_text_release(&result.text);
  buffer_release(&text);
}

TEST(what_is_nested_too_deep_is_refused) {
  static const struct {
    const char *before, *inside, *after;
    bool refused;
  } kinds[] = {{"{{ ", "(", "1", true},
               {"{{ ", "[", "1", true},
               {"{{ ", "-", "1 }}", true},
               {"{{ ", "not ", "1 }}", true},
               {"{{ 1", "+1", " }}", true},
               {"{{ 1", "|abs", " }}", true},
               {"{{ x", ".a", " }}", true},
               {"{{ x", "()", " }}", true},
               {"{{ 1", " if 1 else 1", " }}", true},
               {"", "{% if 1 %}", "", true},
               {"", "{% for x in y %}", "", true},
               {"{{ ", "{1:", "1", true},
               {"{% if 1 %}", "{% elif 1 %}", "{% endif %}", true},
               {"{{ 1", " ~ 1", " }}", false},
               {"{{ 1", " < 2", " }}", false},
               {"{{ 'a'", " 'a'", " }}", false},
               {"", "{{ 1 }}", "", false},
               {"", "{# x #}", "", false},
               {"{% set x = 1", ", 1", " %}", false}};
  for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
    Buffer text = {0};
    buffer_append_string(&text, kinds[i].before, NULL);
    for (int k = 0; k < 20000; k++) buffer_append_string(&text, kinds[i].inside, NULL);
    buffer_append_string(&text, kinds[i].after, NULL);
    Result result = render(text.data, text.size, NULL, NULL);
    if ((result.status == STATUS_MODEL) != kinds[i].refused)
      fail_msg("%s: %s", kinds[i].inside, result.err.text);
    trusted_text_release(&result.text);
    buffer_release(&text);
  }
}

/* Values as deep as JSON allows, and evaluation as deep as it may go, on the present stack. */
TEST(the_deepest_that_is_allowed_works) {
  Buffer text = {0};
  for (int i = 0; i < 500; i++) buffer_append_string(&text, "[", NULL);
  for (int i = 0; i < 500; i++) buffer_append_string(&text, "]", NULL);
  Json *variables;
  Error err;
  Buffer json = {0};
  buffer_printf(&json, NULL, "{\"a\": %.*s, \"b\": %.*s}", (int)text.size, text.data, (int)text.size,
                text.data);
  assert_int_equal(json_parse("deep", STATUS_FAILED, json.data, json.size, NULL, 0, &variables, &err),
                   STATUS_OK);
  const char *template = "{{ a }}{{ a|tojson }}{{ a == b }}"
                         "{% macro f(n) %}{% if n %}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(100) }}";
  Result result = render(template, strlen(template), variables, NULL);
  if (result.status != STATUS_OK) fail_msg("%s", result.err.text);
  assert_int_equal(result.text.text.size, 2004);
  trusted_text_release(&result.text);
  json_free(variables);
  buffer_release(&json);
  buffer_release(&text);
}

/* --- the rest of the interface */

TEST(a_template_that_is_not_utf8_is_refused) {
  const Result result = render("\xff", 1, NULL, NULL);
  assert_int_equal(result.status, STATUS_MODEL);
  assert_string_equal(result.err.text, "t is not valid UTF-8: byte 0xff at offset 0");
}

TEST(a_template_says_what_it_mentions) {
  const char *text = "{% if enable_thinking is defined %}<think>{% endif %}{{ d.documents }}";
  Template *template;
  Error err;
  assert_int_equal(template_parse("t", text, strlen(text), &template, &err), STATUS_OK);
  assert_true(template_mentions(template, "enable_thinking"));
  assert_true(template_mentions(template, "d"));
  assert_false(template_mentions(template, "documents"));
  assert_false(template_mentions(template, "messages"));
  assert_true(template_writes(template, "<think>"));
  assert_false(template_writes(template, "</think>"));
  template_close(template);
}

TEST(renderings_are_appended) {
  Template *template;
  Error err;
  bool raised;
  TrustedText out = {0};
  Json *variables = parse("{\"x\": \"u\"}");
  const TemplateInput input = {.variables = variables, .now = july};
  assert_int_equal(template_parse("t", "a{{ x }}", 8, &template, &err), STATUS_OK);
  for (int i = 0; i < 2; i++)
    assert_int_equal(template_render(template, &input, &out, &raised, &err), STATUS_OK);
  template_close(template);
  assert_int_equal(template_parse("t", "b{{ x }}{{ x.y.z }}", 19, &template, &err), STATUS_OK);
  assert_int_equal(template_render(template, &input, &out, &raised, &err), STATUS_MODEL);
  template_close(template);
  char found[64];
  check_runs(&out);
  mark(&out, found, sizeof found);
  assert_string_equal(found, "a[u]a[u]");
  assert_int_equal(template_parse("t", "b{{ raise_exception(x ~ '!') }}", 31, &template, &err), STATUS_OK);
  assert_int_equal(template_render(template, &input, &out, &raised, NULL), STATUS_USAGE);
  template_close(template);
  check_runs(&out);
  mark(&out, found, sizeof found);
  assert_string_equal(found, "a[u]a[uu]!");
  trusted_text_release(&out);
  json_free(variables);
}
