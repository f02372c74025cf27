/* test_masks.c - masks over vocabularies whose tokens are escapes in all their parts, or more than are tried
 * one by one: at each place a token is in the mask if and only if the machine takes its bytes. Tokens with
 * escapes of surrogates may be left out. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/json.h"
#include "constrain/constraint.h"
#include "test/constrain/own_vocabulary.h"

/* The members of "vocab" so far; each token once. */
typedef struct {
  Buffer text;
  int n;
} Tokens;

static void add(Tokens *tokens, const char *format, const char *part) {
  char token[64];
  Buffer json = {0};
  Error err;
  snprintf(token, sizeof token, format, part);
  assert_int_equal(json_write_string(&json, token, strlen(token), &err), STATUS_OK);
  if (!tokens->n || !memmem(tokens->text.data, tokens->text.size, json.data, json.size)) {
    assert_int_equal(buffer_printf(&tokens->text, &err, "%s%.*s: %d", tokens->n ? ", " : "", (int)json.size,
                                   json.data, tokens->n),
                     STATUS_OK);
    tokens->n++;
  }
  buffer_release(&json);
}

static void open_tokens(Tokens *tokens, Own *own) {
  assert_int_equal(buffer_append(&tokens->text, "", 1, NULL), STATUS_OK);
  open_own(tokens->text.data, own);
  buffer_release(&tokens->text);
}

static bool has_surrogate(const char *bytes, size_t size) {
  for (size_t i = 0; i + 3 < size; i++)
    if (bytes[i] == '\\' && bytes[i + 1] == 'u' && strchr("dD", bytes[i + 2]) &&
        strchr("89abcdefABCDEF", bytes[i + 3]))
      return true;
  return false;
}

static void check_masks(const Vocabulary *v, const char *schema, const char *text) {
  static const SchemaOptions options = {.exponents = true};
  Constraint c;
  Error err;
  bool allowed;
  uint64_t *mask = calloc(v->n_words, sizeof *mask);
  if (constraint_open("schema", schema, strlen(schema), options, v, &c, &err)) fail_msg("%s", err.text);
  for (size_t at = 0; text[at]; at++) {
    assert_int_equal(constraint_mask(&c, mask, &err), STATUS_OK);
    for (int32_t id = 0; id < v->n_ids; id++) {
      const JsonState state = c.state;
      const ArenaMark mark = machine_mark(&c.machine);
      size_t size;
      const char *bytes = vocabulary_bytes(v, id, &size);
      assert_int_equal(constraint_take(&c, id, &allowed, &err), STATUS_OK);
      const bool may_lack = has_surrogate(bytes, size);
      if (mask_has(mask, id) ? !allowed : allowed && !may_lack)
        fail_msg("%.*s after %.*s of %s: taken %d", (int)size, bytes, (int)at, text, schema, allowed);
      c.state = state;
      machine_release(&c.machine, mark);
    }
    assert_int_equal(constraint_take_bytes(&c, text + at, 1, &allowed, NULL, &err), STATUS_OK);
    if (!allowed) fail_msg("%s after %zu bytes", text, at);
  }
  assert_true(constraint_may_end(&c));
  constraint_close(&c);
  free(mask);
}

/* Escapes cut at each place, whole ones with what goes before and after them, surrogates in both cases of
 * letters, and a byte 0 in place of a letter: U+0100 in the vocabulary. */
static void escapes_may_be_cut_anywhere(void **state) {
  (void)state;
  static const char *const escapes[] = {
      "\\u0041", "\\u00e9",  "\\u00E9",        "\\ud7ff",        "\\uD7FF", "\\ud83d", "\\uD83D",
      "\\udBFF", "\\uDbff",  "\\ude00",        "\\uDE00",        "\\uDfff", "\\ue000", "\\uE000",
      "\\u0000", "\\n",      "\\ud83d\\ude00", "\\uD83D\\uDE00", "\\/",     "\\\"",    "\\x",
      "\\uG",    "\\\u0100", "\\u\u0100",      "\\u00\u0100"};
  static const char *const around[] = {"x%s", "%s1", "\"%s", "%s\"", "%s\"]"};
  static const char *const schemas[] = {
      "{\"items\": {\"type\": \"string\"}}", "{\"items\": {\"maxLength\": 4}}",
      "{\"items\": {\"pattern\": \"^[^a-z]*$\"}}", "{\"uniqueItems\": true}"};
  Tokens tokens = {.n = 0};
  Own own;
  for (char c = '!'; c <= '~'; c++) add(&tokens, "%s", (const char[]){c, 0});
  for (size_t i = 0; i < sizeof escapes / sizeof *escapes; i++) {
    for (size_t n = 2; n <= strlen(escapes[i]); n++) {
      char part[20];
      snprintf(part, sizeof part, "%.*s", (int)n, escapes[i]);
      add(&tokens, "%s", part);
    }
    for (size_t k = 0; k < sizeof around / sizeof *around; k++) add(&tokens, around[k], escapes[i]);
  }
  open_tokens(&tokens, &own);
  for (size_t i = 0; i < sizeof schemas / sizeof *schemas; i++)
    check_masks(&own.vocabulary, schemas[i], "[\"\\uD83D\\uDE00A\",\"\\ud7FF\\u0041\",\"\\n\\\"\"]");
  close_own(&own);
}

/* The ends of strings need more than what some of 5,000 tokens leave of them. */
static void many_tokens_know_how_much_is_left(void **state) {
  (void)state;
  static const char letters[] = "abcdefghijklmnop.", *const patterns[] = {"^[a-z.]*e$", "^([a-o.]|pp)*ee$",
                                                                          "^[a-f]*([g-p.][a-f]*){0,60}e$",
                                                                          "^[^p]*(p[^p]*e)?$"};
  Tokens tokens = {.n = 0};
  Own own;
  add(&tokens, "%s", "\"");
  for (const char *a = letters; *a; a++)
    for (const char *b = letters; *b; b++)
      for (const char *c = letters; *c; c++)
        for (int n = 1; n <= 3; n++) {
          const char token[] = {*a, n > 1 ? *b : 0, n > 2 ? *c : 0, 0};
          if ((n == 1 && (b > letters || c > letters)) || (n == 2 && c > letters)) continue;
          assert_int_equal(buffer_printf(&tokens.text, NULL, ", \"%s\": %d", token, tokens.n++), STATUS_OK);
        }
  open_tokens(&tokens, &own);
  for (size_t i = 0; i < sizeof patterns / sizeof *patterns; i++)
    for (int most = 4; most <= 7; most++) {
      char schema[200];
      snprintf(schema, sizeof schema, "{\"type\": \"string\", \"pattern\": \"%s\", \"maxLength\": %d}",
               patterns[i], most);
      check_masks(&own.vocabulary, schema, "\"a.ee\"");
    }
  close_own(&own);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(escapes_may_be_cut_anywhere),
      cmocka_unit_test(many_tokens_know_how_much_is_left),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
