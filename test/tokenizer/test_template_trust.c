/* test_template_trust.c - every character of a rendering is trusted exactly if it is the template's own.
 *
 * The reference is the alphabet: capital letters come from the variables alone, all other characters but
 * the blank are the template's. Operations that keep characters are applied to texts of several runs, two
 * at a time. */
#include "rendering.h"
#include "test/tests.h"

/* Texts of one run and of several, with edges on each side of a run. */
static const char *const bases[] = {
    "u",
    "'ab'",
    "(u ~ 'ab')",
    "('ab' ~ u)",
    "('a' ~ u ~ 'b' ~ v ~ 'c')",
    "(('a' ~ u)[1:3] ~ 'y' ~ v[:1])",
    "((u ~ 'x' ~ v) * 3)",
    "('-' ~ u ~ ' ' ~ v ~ '\\n' ~ u)",
    "(e ~ 'q' ~ e ~ v)",
    "w",
};

/* An operation on a text, for which '@' stands; its result is a text again. */
static const char *const operations[] = {
    "(@ ~ '.')",
    "('.' ~ @)",
    "(@ ~ v)",
    "(v + @)",
    "(@ ~ @)",
    "@[1:]",
    "@[:-1]",
    "@[1:4]",
    "@[2:3]",
    "@[::-1]",
    "@[::2]",
    "@[-3::-2]",
    "@[0]",
    "@[-1]",
    "(@ * 2)",
    "(@ * 5)",
    "(@|trim)",
    "@.strip('aA-')",
    "@.lstrip('aAB')",
    "@.rstrip('bZ')",
    "@.replace('B', 'x')",
    "@.replace('B', v)",
    "@.replace('', '_')",
    "@.replace('', v, 2)",
    "@.replace('nowhere', v)",
    "(@|replace(v, 'n'))",
    "(@.split('B')|join('+'))",
    "(@.rsplit('B', 1)|join(v))",
    "(@.split()|join)",
    "(@.rsplit(none, 1)|join('/'))",
    "(@|list|join)",
    "(@|list|reverse|join)",
    "(@|reverse)",
    "(@|batch(2)|map('join')|join('|'))",
    "(@.partition('B')|join('_'))",
    "(@.rpartition('B')|join('_'))",
    "(@.splitlines(true)|join('_'))",
    "@.center(20, '*')",
    "@.ljust(21)",
    "@.rjust(22, v[0])",
    "@.zfill(23)",
    "@.expandtabs()",
    "@.removeprefix('a')",
    "@.removesuffix(v)",
    "(@|truncate(4, true, '..', 0))",
    "(@|truncate(9, false, v, 0))",
    "(@|indent(2, true))",
    "(@|indent(v, true, true))",
    "('<%s|%9s|%-9s|%.2s>' % (@, @, @, @))",
    "('{}{:>9}{:*^9.3}'.format(@, @, @))",
    "('%(k)s' % {'k': @})",
    "('%s'|format(@))",
    "(([@])|string)",
    "([@]|tojson)",
    "({'k': @}|tojson(indent=1))",
    "({@: 1}|string)",
    "('' ~ (@|e))",
    "('' ~ (('<'|safe) + @))",
    "([@, v]|sort|join)",
    "([@, @]|unique|join)",
    "(@|first ~ @|last)",
    "joiner(@)()",
    "cycler(@, 1).next()",
    "dict(k=@).k",
    "namespace(k=@).k",
    "@.join(['(', v, ')'])",
    "(@|default('d', true))",
    "(@ if 1 else '')",
    "(@ or 'o')",
    "f(@)",
};

/* `operation` with '@' replaced. */
static void apply(const char *operation, const char *text, Buffer *out) {
  out->size = 0;
  for (; *operation; operation++)
    if (*operation == '@')
      buffer_append_string(out, text, NULL);
    else
      buffer_append(out, operation, 1, NULL);
  buffer_append(out, "", 1, NULL);
}

static void check_trust(const char *expression, const Result *result) {
  check_runs(&result->text);
  const char *text = result->text.text.data;
  for (size_t at = 0, run = 0; at < result->text.text.size; at++) {
    while (result->text.runs[run].end <= at) run++;
    if (text[at] == ' ') continue; /* both have it */
    bool foreign = text[at] >= 'A' && text[at] <= 'Z';
    if (result->text.runs[run].trusted == foreign)
      fail_msg("%s: byte %zu of %.*s is %strusted", expression, at, (int)result->text.text.size, text,
               foreign ? "" : "not ");
  }
}

static void check_expression(const char *expression, const Json *variables) {
  Buffer template = {0};
  buffer_printf(
      &template, NULL,
      "{%% macro f(x) %%}({{ x }}){%% endmacro %%}{{ %s }}{%% set s %%}{{ %s }}-{%% endset %%}{{ s }}",
      expression, expression);
  Result result = render(template.data, template.size, variables, NULL);
  if (result.status != STATUS_OK && !strstr(result.err.text, "beyond"))
    fail_msg("%s: %s", expression, result.err.text);
  check_trust(expression, &result);
  trusted_text_release(&result.text);
  buffer_release(&template);
}

TEST(each_operation_keeps_whose_each_character_is) {
  Json *variables = parse("{\"u\": \"AB\", \"v\": \"BZ\", \"e\": \"\", \"w\": \"A B\"}");
  Buffer once = {0}, twice = {0};
  const size_t n = sizeof operations / sizeof *operations;
  for (size_t b = 0; b < sizeof bases / sizeof *bases; b++)
    for (size_t i = 0; i < n; i++) {
      apply(operations[i], bases[b], &once);
      check_expression(once.data, variables);
      for (size_t k = b % 3; k < n; k += 3) {
        apply(operations[k], once.data, &twice);
        check_expression(twice.data, variables);
      }
    }
  buffer_release(&once);
  buffer_release(&twice);
  json_free(variables);
}
