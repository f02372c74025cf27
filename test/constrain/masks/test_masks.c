/* test_masks.c - masks over vocabularies whose tokens are escapes in all their parts, or more than are tried
 * one by one: at each place a token is in the mask if and only if the machine takes its bytes. Tokens with
 * escapes of surrogates may be left out. */
#include "base/json.h"
#include "base/utf8.h"
#include "constrain/constraint.h"
#include "constrain/lex.h"
#include "test/constrain/own_vocabulary.h"
#include "test/constrain/random_schemas.h"
#include "test/tests.h"

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
TEST(escapes_may_be_cut_anywhere) {
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
TEST(many_tokens_know_how_much_is_left) {
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

/* Tokens are up to 22 characters, and patterns count to less: what goes on from a place is known for all
 * tokens of a kind only as far as the pattern takes it. */
TEST(long_tokens_are_as_long_as_their_pattern) {
  static const char *const patterns[] = {"^[a-z]{0,%d}[0-9]$", "^([a-z]{%d}|[a-f]*)[0-9]$",
                                         "^(?:[a-f][a-z]){0,%d}[0-9]$"};
  static const char rest[] = "xyxyxyxyxyxyxyxyxyxy";
  Tokens tokens = {.n = 0};
  Own own;
  for (char c = '!'; c <= 'z'; c++) add(&tokens, "%s", (const char[]){c, 0});
  for (char second = 'a'; second < 'm'; second++)
    for (int n = 0; n <= (int)strlen(rest); n++) {
      char token[32];
      snprintf(token, sizeof token, "a%c%.*s", second, n, rest);
      add(&tokens, "%s", token);
    }
  open_tokens(&tokens, &own);
  for (size_t i = 0; i < sizeof patterns / sizeof *patterns; i++)
    for (int most = 7; most <= 22; most++) {
      char pattern[64], schema[120];
      snprintf(pattern, sizeof pattern, patterns[i], most);
      snprintf(schema, sizeof schema, "{\"type\": \"string\", \"pattern\": \"%s\"}", pattern);
      check_masks(&own.vocabulary, schema, i == 1 ? "\"aa1\"" : "\"abay1\"");
    }
  close_own(&own);
}

/* --- random vocabularies */

/* Appends a token in the alphabet of byte-level BPE, where bytes that are no letters are U+0100 or higher. */
static void add_bytes(Tokens *tokens, const char *bytes, size_t size) {
  Buffer text = {0};
  for (size_t i = 0; i < size; i++) {
    const unsigned char byte = (unsigned char)bytes[i];
    uint32_t code = 0x100;
    for (unsigned c = 0; c < byte; c++) code += c < 0x21 || (c > 0x7e && c < 0xa1) || c == 0xad;
    if ((byte > 0x20 && byte < 0x7f) || (byte > 0xa0 && byte != 0xad)) code = byte;
    unsigned char out[4];
    const int n = utf8_encode(code, out);
    assert_int_equal(buffer_append(&text, out, (size_t)n, NULL), STATUS_OK);
  }
  assert_int_equal(buffer_append(&text, "", 1, NULL), STATUS_OK);
  add(tokens, "%s", text.data);
  buffer_release(&text);
}

/* Characters of all classes and lengths, the first and the last of each; what may not follow one another in
 * UTF-8; characters and escapes that are cut; what ends a string. */
static const char *const pieces[] = {"\"",
                                     "\"",
                                     "\"]",
                                     "\",\"",
                                     "\\",
                                     "\\u",
                                     "\\u00",
                                     "\\n",
                                     "\\ud83d",
                                     "\\ude00",
                                     "\\u00e9",
                                     "0",
                                     "9",
                                     "a",
                                     "f",
                                     "g",
                                     "z",
                                     "A",
                                     "F",
                                     "G",
                                     "Z",
                                     " ",
                                     "\n",
                                     ",",
                                     ":",
                                     "]",
                                     "}",
                                     "{",
                                     "[",
                                     "-",
                                     ".",
                                     "/",
                                     "@",
                                     "`",
                                     "~",
                                     "\x7f",
                                     "\x01",
                                     "\xc2\x80",
                                     "\xc2\xa9",
                                     "\xc3\xa9",
                                     "\xdf\xbf",
                                     "\xe0\xa0\x80",
                                     "\xe1\x80\x80",
                                     "\xe2\x82\xac",
                                     "\xe3\x81\x82",
                                     "\xed\x9f\xbf",
                                     "\xee\x80\x80",
                                     "\xef\xbf\xbf",
                                     "\xf0\x90\x80\x80",
                                     "\xf0\x9f\x98\x80",
                                     "\xf4\x8f\xbf\xbf",
                                     "\xc3",
                                     "\xe2\x82",
                                     "\x82\xac",
                                     "\xac",
                                     "\xf0\x9f",
                                     "\x98\x80",
                                     "\x80",
                                     "\xbf",
                                     "\xc0\x80",
                                     "\xc1",
                                     "\xe0\x80\x80",
                                     "\xe0\x9f",
                                     "\xed\xa0\x80",
                                     "\xf0\x80\x80\x80",
                                     "\xf0\x8f",
                                     "\xf4\x90\x80\x80",
                                     "\xf5",
                                     "\xff"};
enum { N_PIECES = sizeof pieces / sizeof *pieces };

/* Tokens of up to four of the parts, and one for each byte. */
static void open_random(uint64_t *seed, uint32_t n, const char *const *parts, uint32_t n_parts, Own *own) {
  Tokens tokens = {.n = 0};
  for (int byte = 0; byte < 256; byte++) add_bytes(&tokens, (const char[]){(char)byte}, 1);
  while (tokens.n < (int)n) {
    char token[60] = "";
    for (uint32_t k = 1 + random_below(seed, 4); k > 0; k--)
      strcat(token, parts[random_below(seed, n_parts)]);
    add_bytes(&tokens, token, strlen(token));
  }
  open_tokens(&tokens, own);
}

static void put_expression(Buffer *out, uint64_t *seed) {
  static const char *const atoms[] = {"[a-f]",
                                      "[^a-f]",
                                      "[\\u0080-\\u07ff]",
                                      "[^\\u00e9]",
                                      "\\p{L}",
                                      "\\S",
                                      "\\s",
                                      ".",
                                      "[\\u2000-\\uffff]",
                                      "\\u20ac",
                                      "[\\u1000-\\u3042]",
                                      "a",
                                      "[0-9A-Z]",
                                      "(a|bc)",
                                      "[^\\u0000-\\uffff]",
                                      "[\\u0900-\\u0fff]",
                                      "[/-@\\[-`]",
                                      "[^\\udbc0\\udc00-\\udbff\\udfff]",
                                      "[^\\ud800\\udc00-\\udbbf\\udfff]"};
  static const char *const counts[] = {"", "", "*", "+", "{0,3}", "{2}", "{0,50}", "?"};
  static const char *const ahead[] = {"(?!a)", "(?=.*[a-z])", "(?!.*\\u00e9)", "", "", "", "", ""};
  put_text(out, ahead[random_below(seed, 8)]);
  for (uint32_t n = 1 + random_below(seed, 4); n > 0; n--) {
    put_text(out, atoms[random_below(seed, sizeof atoms / sizeof *atoms)]);
    put_text(out, counts[random_below(seed, 8)]);
  }
}

/* '@' stands for an expression, '#' for a small number. */
static void put_template(Buffer *out, const char *template, bool json, uint64_t *seed) {
  for (; *template; template ++) {
    Buffer part = {0};
    if (*template == '@') put_expression(&part, seed);
    if (*template == '#')
      assert_int_equal(buffer_printf(&part, NULL, "%u", random_below(seed, 7)), STATUS_OK);
    if (*template != '@' && *template != '#') put_text(&part, (const char[]){*template, 0});
    for (size_t i = 0; i < part.size; i++) {
      if (json && *template == '@' && part.data[i] == '\\') put_text(out, "\\");
      put_text(out, (const char[]){part.data[i], 0});
    }
    buffer_release(&part);
  }
}

/* Gives the bytes that must follow, found by trying each byte. */
static void find_forced(Constraint *c, Buffer *out) {
  Error err;
  const JsonState state = c->state;
  const ArenaMark mark = machine_mark(&c->machine);
  const uint32_t place = c->place;
  while (!constraint_may_end(c) && out->size < 100) {
    const bool in_string = c->state.phase == PHASE_STRING || c->state.phase == PHASE_KEY_STRING;
    const bool may_escape = !c->grammar && in_string && c->machine.lexes[c->state.lex].escape == 0;
    int n = 0;
    char only = 0;
    for (int byte = 0; byte < 256 && n < 2; byte++) {
      const JsonState before = c->state;
      const uint32_t before_place = c->place;
      const char text = (char)byte;
      bool allowed;
      if (may_escape && byte == '\\') continue; /* another way to write the same */
      assert_int_equal(constraint_take_bytes(c, &text, 1, &allowed, NULL, &err), STATUS_OK);
      if (allowed && n++ == 0) only = text;
      c->state = before;
      c->place = before_place;
    }
    bool allowed;
    if (n != 1) break;
    assert_int_equal(constraint_take_bytes(c, &only, 1, &allowed, NULL, &err), STATUS_OK);
    assert_int_equal(buffer_append(out, &only, 1, &err), STATUS_OK);
  }
  c->state = state;
  c->place = place;
  if (!c->grammar) machine_release(&c->machine, mark);
  if (out->size) out->size = utf8_valid_prefix(out->data, out->size);
}

static void check_forced(Constraint *c, const char *form) {
  Buffer expected = {0}, found = {0};
  find_forced(c, &expected);
  assert_int_equal(constraint_forced(c, &found, NULL), STATUS_OK);
  if (expected.size < 90 &&
      (found.size != expected.size || (found.size && memcmp(found.data, expected.data, found.size) != 0)))
    fail_msg("\"%.*s\" is forced, not \"%.*s\": %s", (int)found.size, found.data, (int)expected.size,
             expected.data, form);
  buffer_release(&expected);
  buffer_release(&found);
}

/* Compares the mask with what is taken at each place of a text of random tokens of the masks. */
static void walk_masks(Constraint *c, const Vocabulary *v, const char *form, int n_steps, uint64_t *seed) {
  Error err;
  uint64_t *mask = calloc(v->n_words, sizeof *mask);
  assert_int_equal(constraint_begin(c, &err), STATUS_OK);
  for (int step = 0; step < n_steps; step++) {
    int32_t chosen = -1;
    uint32_t n = 0;
    assert_int_equal(constraint_mask(c, mask, &err), STATUS_OK);
    for (int32_t id = 0; id < v->n_ids; id++) {
      const JsonState state = c->state;
      const ArenaMark mark = machine_mark(&c->machine);
      const uint32_t place = c->place;
      size_t size;
      bool allowed;
      const char *bytes = vocabulary_bytes(v, id, &size);
      assert_int_equal(constraint_take(c, id, &allowed, &err), STATUS_OK);
      if (mask_has(mask, id) ? !allowed : allowed && (c->grammar || !has_surrogate(bytes, size)))
        fail_msg("token %d \"%.*s\" at step %d of %s: taken %d", id, (int)size, bytes, step, form, allowed);
      c->place = place;
      c->state = state;
      if (!c->grammar) machine_release(&c->machine, mark);
      if (mask_has(mask, id) && *bytes != ' ' && *bytes != '\n' && random_below(seed, ++n) == 0) chosen = id;
    }
    bool allowed;
    check_forced(c, form);
    bool is_empty = true;
    for (uint32_t word = 0; word < v->n_words; word++) is_empty &= mask[word] == 0;
    if (c->grammar) assert_int_equal(constraint_must_end(c), constraint_may_end(c) && is_empty);
    if (n == 0 && !constraint_may_end(c)) fail_msg("nothing follows at step %d of %s", step, form);
    if (chosen < 0) break;
    assert_int_equal(constraint_take(c, chosen, &allowed, &err), STATUS_OK);
  }
  free(mask);
}

TEST(masks_of_random_tokens_are_what_is_taken) {
  static const char *const schemas[] = {"{\"type\": \"string\", \"pattern\": \"^@$\"}",
                                        "{\"type\": \"string\", \"pattern\": \"@\", \"maxLength\": #}",
                                        "{\"type\": \"array\", \"items\": {\"type\": \"string\", "
                                        "\"pattern\": \"^@\", \"minLength\": #}, \"uniqueItems\": true}",
                                        "{\"type\": \"object\", \"patternProperties\": {\"^@$\": {\"type\": "
                                        "\"null\"}, \"@\": {\"maxLength\": #}}}",
                                        "{\"type\": \"object\", \"propertyNames\": {\"pattern\": \"@\"}, "
                                        "\"additionalProperties\": {\"enum\": [\"a\", \"ag\", 9]}}",
                                        "{\"type\": \"array\", \"items\": {\"anyOf\": [{\"pattern\": "
                                        "\"^@$\"}, {\"type\": \"string\", \"maxLength\": #}]}}",
                                        "{\"type\": \"string\", \"maxLength\": #}"};
  static const char *const grammars[] = {
      "root ::= \"[\" ([^\\]a] | root)* \"]\"", "root ::= [a-z]+ [^a-z\"]{0,#} (\",\" root)?",
      "root ::= ([\\x80-\\u07ff] | \"a\" root \"z\" | [\\u3000-\\uFFFF]{#} \"\\\\\")+"};
  uint64_t seed = 1;
  for (int round = 0; round < 10; round++) {
    Own own;
    open_random(&seed, round ? 500 : 3000, pieces, N_PIECES, &own);
    for (int i = 0; i < (round ? 40 : 10); i++) {
      Buffer form = {0};
      Constraint c;
      Grammar *grammar = NULL;
      Error err;
      const SchemaOptions options = {.plain_integers = true, .ordered_keys = i % 2};
      Status status;
      if (i % 10 < 7) {
        put_template(&form, schemas[i % 10], true, &seed);
        status = constraint_open("schema", form.data, form.size, options, &own.vocabulary, &c, &err);
      } else {
        const bool regular = i % 20 < 10;
        put_template(&form, regular ? "@" : grammars[i % 10 - 7], false, &seed);
        status = regular ? grammar_open_regular_expression("regex", form.data, form.size, &grammar, &err)
                         : grammar_open("g", form.data, form.size, own.tokenizer, &grammar, &err);
        if (status == STATUS_OK) status = constraint_open_grammar("g", grammar, &own.vocabulary, &c, &err);
      }
      assert_int_equal(buffer_append(&form, "", 1, &err), STATUS_OK);
      if (status == STATUS_OK) {
        for (int k = 0; k < 2; k++) walk_masks(&c, &own.vocabulary, form.data, 8, &seed);
        constraint_close(&c);
      } else if (!strstr(err.text, "no text") && !strstr(err.text, "none")) {
        fail_msg("%s: %s", form.data, err.text);
      }
      buffer_release(&form);
    }
    close_own(&own);
  }
}

/* Tokens of structure, and the keys and strings of random_schemas.h. */
static const char *const structure[] = {
    "\"",      "\"",    "\"",   "a",    "b",   "c",    "0",    "1",   "5",     ",",    ",",
    ", ",      "[",     "]",    "{",    "}",   "[",    "]",    "}",   "\":",   "\": ", "\"a\"",
    "\"b\": ", "\",\"", "null", "true", "fal", "se",   "\r\n", " ",   "\n  ",  "-",    ".",
    "e",       "\\u00", "61",   "\\\"", "bc",  "{\"a", "1}",   "\"]", "\"a\":"};

/* Many texts of one schema, so that what was kept for one place serves another, or does not. */
static bool check_schema(const char *schema, SchemaOptions options, const Own *own, uint64_t *seed) {
  enum { N_TEXTS = 4, N_STEPS = 9 };
  Constraint c;
  Error err;
  if (constraint_open("s", schema, strlen(schema), options, &own->vocabulary, &c, &err) != STATUS_OK)
    return false;
  for (int i = 0; i < N_TEXTS; i++) walk_masks(&c, &own->vocabulary, schema, N_STEPS, seed);
  constraint_close(&c);
  return true;
}

TEST(masks_of_random_schemas_are_what_is_taken) {
  enum { N_SCHEMAS = 1200, N_TOKENS = 560 };
  uint64_t seed = 5;
  int n_opened = 0;
  Own own;
  open_random(&seed, N_TOKENS, structure, sizeof structure / sizeof *structure, &own);
  for (int i = 0; i < SAMPLE(N_SCHEMAS); i++) {
    Buffer schema = {0};
    put_schema(&schema, 1 + i % 3, &seed);
    assert_int_equal(buffer_append(&schema, "", 1, NULL), STATUS_OK);
    n_opened += check_schema(schema.data, (SchemaOptions){.exponents = i % 3 == 0, .ordered_keys = i % 2},
                             &own, &seed);
    buffer_release(&schema);
  }
  assert_true(n_opened > SAMPLE(N_SCHEMAS) / 2);
  close_own(&own);
}

/* Where keys have their effect by one pattern of many. */
TEST(masks_of_many_patterns_are_what_is_taken) {
  uint64_t seed = 7;
  Own own;
  open_random(&seed, 400, structure, sizeof structure / sizeof *structure, &own);
  for (int n = 13; n < 20; n += SANITIZED ? 3 : 1)
    for (int at = 0; at < 3; at++) {
      static const char *const rules[] = {"\"a\": {\"type\": \"null\"}", "\"^b\": {\"type\": \"array\"}",
                                          "\"c$\": {\"type\": \"string\"}"};
      Buffer schema = {0};
      put_text(&schema, "{\"type\": \"object\", \"additionalProperties\": {\"enum\": [0, 1]}, "
                        "\"patternProperties\": {");
      for (int i = 0; i < n; i++) {
        if (i) put_text(&schema, ", ");
        if (i >= n - 3)
          put_text(&schema, rules[(i + at) % 3]);
        else
          assert_int_equal(buffer_printf(&schema, NULL, "\"x%d\": true", i), STATUS_OK);
      }
      put_text(&schema, "}}");
      assert_int_equal(buffer_append(&schema, "", 1, NULL), STATUS_OK);
      for (int k = 0; k < 2; k++) assert_true(check_schema(schema.data, (SchemaOptions){0}, &own, &seed));
      buffer_release(&schema);
    }
  close_own(&own);
}

/* Under rules that join members or items. */
TEST(masks_of_joined_schemas_are_what_is_taken) {
  static char line[1 << 14];
  uint64_t seed = 6;
  Own own;
  FILE *file = fopen("test/constrain/joined_schemas.jsonl", "r");
  assert_non_null(file);
  open_random(&seed, 400, structure, sizeof structure / sizeof *structure, &own);
  for (int i = 0; fgets(line, sizeof line, file); i++)
    assert_true(
        (SANITIZED && i % 3) ||
        check_schema(line, (SchemaOptions){.plain_integers = true, .ordered_keys = i % 2}, &own, &seed));
  fclose(file);
  close_own(&own);
}
