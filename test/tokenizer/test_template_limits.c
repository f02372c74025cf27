/* test_template_limits.c - the limits of a template: each at its value and one past it, and that memory is
 * given back. */
#include <malloc.h>

#include "rendering.h"
#include "test/tests.h"

/* before, then `inside` n times, then between, then `closing` n times, then after */
typedef struct {
  const char *before, *inside, *between, *closing, *after;
} Nest;

static Result render_nested(const Nest *nest, int n) {
  Buffer text = {0};
  buffer_append_string(&text, nest->before, NULL);
  for (int i = 0; i < n; i++) buffer_append_string(&text, nest->inside, NULL);
  buffer_append_string(&text, nest->between, NULL);
  for (int i = 0; i < n; i++) buffer_append_string(&text, nest->closing, NULL);
  buffer_append_string(&text, nest->after, NULL);
  Result result = render(text.data, text.size, NULL, NULL);
  buffer_release(&text);
  return result;
}

static void check_refused(const Result *result, const char *what, const char *says) {
  if (result->status != STATUS_MODEL || !strstr(result->err.text, says))
    fail_msg("%s: status %d: %s, expected %s", what, result->status, result->err.text, says);
}

TEST(nesting_is_refused_one_past_its_limit) {
  static const struct {
    Nest nest;
    int most;
    const char *says;
  } limits[] = {
      {{"{{ ", "(", "1", ")", " }}"}, 98, "expressions are nested too deep"},
      {{"{{ ", "[", "1", "]", " }}"}, 98, "expressions are nested too deep"},
      {{"{{ ", "-", "1", "", " }}"}, 197, "expressions are nested too deep"},
      {{"{{ ", "not ", "1", "", " }}"}, 197, "expressions are nested too deep"},
      {{"{{ 1", "+1", "", "", " }}"}, 298, "expressions are nested too deep"},
      {{"{{ 1", "|abs", "", "", " }}"}, 298, "expressions are nested too deep"},
      {{"", "{% if 1 %}", "x", "{% endif %}", ""}, 199, "nested too deep"},
      {{"", "{% with %}", "x", "{% endwith %}", ""}, 199, "tags are nested too deep"},
      {{"{% if 0 %}", "{% elif 0 %}", "", "", "{% endif %}"}, 199, "more than 200 branches"},
  };
  for (size_t i = 0; i < sizeof limits / sizeof *limits; i++) {
    Result fits = render_nested(&limits[i].nest, limits[i].most);
    if (fits.status != STATUS_OK) fail_msg("%s: %s", limits[i].nest.inside, fits.err.text);
    trusted_text_release(&fits.text);
    Result past = render_nested(&limits[i].nest, limits[i].most + 1);
    check_refused(&past, limits[i].nest.inside, limits[i].says);
    trusted_text_release(&past.text);
  }
}

TEST(a_template_has_at_most_a_mebibyte) {
  const size_t most = 1 << 20;
  char *text = malloc(most + 1);
  memset(text, 'x', most + 1);
  Result fits = render(text, most, NULL, NULL), past = render(text, most + 1, NULL, NULL);
  assert_int_equal(fits.status, STATUS_OK);
  assert_int_equal(fits.text.text.size, most);
  assert_int_equal(past.status, STATUS_MODEL);
  assert_string_equal(past.err.text, "t: has 1048577 bytes, expected at most 1048576");
  trusted_text_release(&fits.text);
  trusted_text_release(&past.text);
  free(text);
}

/* A value that is wrapped n times. */
#define NESTED(n, value, wrapped, used)                                                                      \
  "{% set ns = namespace(v=" value ") %}{% for i in range(" #n ") %}{% set ns.v = " wrapped                  \
  " %}{% endfor %}{{ (" used ")|length }}"

typedef struct {
  const char *fits;
  size_t size; /* of what that gives */
  const char *past, *says;
} Limit;

TEST(what_a_rendering_takes_is_refused_one_past_its_limit) {
  static const Limit limits[] = {
      {"{{ 'x' * 67108864 }}", 67108864, "{{ 'x' * 67108865 }}", "a text would have more than 64 MB"},
      {"{{ 'x' * 67108863 }}y", 67108864, "{{ 'x' * 67108863 }}yz", "writes more than 64 MB"},
      {"{% set a = 'x' * 67108863 ~ 'y' %}", 0, "{% set a = 'x' * 67108863 ~ 'yz' %}",
       "a text would have more than 64 MB"},
      {"{{ ([1] * 16777216)|length }}", 8, "{{ ([1] * 33554433)|length }}",
       "a list would have more than 33554432 elements"},
      {"", 0, "{{ ([1] * 33554432)|length }}", "takes more than 512 MB of memory"},
      {"{{ range(100000)|length }}", 6, "{{ range(100001) }}", "MAX_RANGE (100000)"},
      {"{{ '%.400f' % 1 }}", 402, "{{ '%.401f' % 1 }}", "a precision above 400 is not supported"},
      {"{{ '{:.400f}'.format(1e308) }}", 710, "{{ '{:.401f}'.format(1) }}",
       "a precision above 400 is not supported"},
      {"{{ '%1000s'|format(1) }}", 1000, "{{ '%*d' % (1073741825, 1) }}", "width too big"},
      {"{{ strftime_now('x' * 504) }}", 504, "{{ strftime_now('x' * 505) }}",
       "the format of strftime_now() is too long"},
      {"{{ strftime_now('%c' * 170) }}", 4080, "{{ strftime_now('%c' * 171) }}",
       "strftime_now() makes more than 4096 bytes"},
      {"{{ [1]|batch(10000000)|list }}", 5, "{{ [1]|batch(10000001)|list }}",
       "a batch cannot have 10000001 items"},
      {"{{ []|slice(1000000)|list|length }}", 7, "{{ []|slice(10000001)|list }}",
       "there cannot be 10000001 slices"},
      {NESTED(990, "()", "(ns.v,)", "{ns.v: 1}"), 1, NESTED(100000, "()", "(ns.v,)", "{ns.v: 1}"),
       "values are nested too deep for a key"},
      {NESTED(990, "[1]", "ns.v|select", "ns.v|list"), 1, NESTED(100000, "[1]", "ns.v|select", "ns.v|list"),
       "iterators are nested too deep"},
      {NESTED(990, "[1]", "ns.v|map('abs')", "ns.v|list"), 1,
       NESTED(100000, "[1]", "ns.v|map('abs')", "ns.v|list"), "iterators are nested too deep"},
  };
  for (size_t i = 0; i < sizeof limits / sizeof *limits; i++) {
    Result fits = render(limits[i].fits, strlen(limits[i].fits), NULL, NULL);
    if (fits.status != STATUS_OK) fail_msg("%s: %s", limits[i].fits, fits.err.text);
    assert_int_equal(fits.text.text.size, limits[i].size);
    trusted_text_release(&fits.text);
    Result past = render(limits[i].past, strlen(limits[i].past), NULL, NULL);
    check_refused(&past, limits[i].past, limits[i].says);
    assert_int_equal(past.text.text.size, 0);
    trusted_text_release(&past.text);
  }
}

/* Levels are left again: no template here comes near the 1,000 levels, however often it runs. */
TEST(levels_of_evaluation_are_given_back) {
  static const char *const expressions[] = {
      "[i]",
      "[i]|tojson",
      "{'a': [i]}|tojson(indent=1)",
      "[i] == [i]",
      "[i] < [0]",
      "m(i)",
      "i + 1",
      "[[i]]|sort",
      "d == d",
      "[i]|map('abs')|list",
      "{(i, (i,)): i}",
      "'%s' % [i]",
      "x ~ [x]",
      "i is odd",
      "(1 if x else [2])",
      "d.a[0]",
      "s[1:2]",
      "[i]|tojson(sort_keys=true)",
      "'a'|default([i])",
      "{'a': i}|dictsort",
      "loop([]) if i == 0",
  };
  Json *variables = parse("{\"d\": {\"a\": [1]}, \"s\": \"abc\"}");
  for (size_t i = 0; i < sizeof expressions / sizeof *expressions; i++) {
    Buffer text = {0};
    buffer_printf(&text, NULL,
                  "{%% macro m(n) %%}{%% if n %%}{{ n }}{%% endif %%}{%% endmacro %%}{%% for i in "
                  "range(1500) recursive "
                  "%%}{%% set v = %s %%}{%% endfor %%}ends",
                  expressions[i]);
    Result result = render(text.data, text.size, variables, NULL);
    if (result.status != STATUS_OK) fail_msg("%s: %s", expressions[i], result.err.text);
    assert_int_equal(result.text.text.size, 4);
    trusted_text_release(&result.text);
    buffer_release(&text);
  }
  json_free(variables);
}

/* The memory in use, as the C library counts it. */
static size_t in_use(void) {
  struct mallinfo2 info = mallinfo2();
  return info.uordblks + info.hblkhd;
}

/* Each way in which a template can end, many times: the first ones fill the C library's reserve. */
TEST(what_a_template_takes_it_gives_back) {
  static const char *const templates[] = {
      "{% for i in range(3000) %}{% set x = 'a' ~ i %}{{ x ~ u }}{% endfor %}",
      "{{ u }}{{ u.y.z }}",
      "{{ u }}{{ raise_exception(u ~ 'no') }}",
      "{% if %}",
      "{{ 'a' * 100000 }}{{ [1] * 100000 }}{{ nosuch.x }}",
      "\xff",
      "{{ a|nosuch }}{{ b }}",
  };
  Json *variables = parse("{\"u\": \"U\"}");
  size_t before = 0;
  for (int round = 0; round < 60; round++) {
    for (size_t i = 0; i < sizeof templates / sizeof *templates; i++) {
      Result result = render(templates[i], strlen(templates[i]), variables, NULL);
      trusted_text_release(&result.text);
    }
    if (round == 29) before = in_use();
  }
  assert_int_equal(in_use(), before);
  json_free(variables);
}
