/* test_forced.c - what must come next: the bytes that are the only way on, found by trying all of them, and
 * tokens that the tokenizer gives every text that can follow. */
#include "constrain/constraint.h"
#include "constrain/lex.h"
#include "test/constrain/random_schemas.h"
#include "test/constrain/small_vocabulary.h"
#include "test/tests.h"

/* True if the byte may follow; an escape in a string counts as none. */
static bool may_follow(Constraint *c, unsigned char byte) {
  const JsonState state = c->state;
  const bool in_string = (state.phase == PHASE_STRING || state.phase == PHASE_KEY_STRING) &&
                         c->machine.lexes[state.lex].escape == 0;
  const ArenaMark mark = machine_mark(&c->machine);
  JsonState next = state;
  const bool may = machine_push(&c->machine, &next, byte);
  machine_release(&c->machine, mark);
  return may && !(in_string && byte == '\\');
}

/* Appends the bytes that are the only ones to follow, one after another; the constraint stays where it is. */
static void force_by_trying(Constraint *c, Buffer *out) {
  const JsonState before = c->state;
  const ArenaMark mark = machine_mark(&c->machine);
  while (!machine_may_end(&c->machine, &c->state) && out->size < 300) {
    int n = 0, only = 0;
    for (int byte = 0; byte < 256; byte++)
      if (may_follow(c, (unsigned char)byte)) n++, only = byte;
    if (n != 1) break;
    const char text = (char)only;
    assert_true(machine_push(&c->machine, &c->state, (unsigned char)only));
    assert_int_equal(buffer_append(out, &text, 1, NULL), STATUS_OK);
  }
  c->state = before;
  machine_release(&c->machine, mark);
}

/* A byte that may follow, drawn among those that do; closing marks come sooner. */
static int draw_byte(Constraint *c, uint64_t *seed) {
  int chosen = -1, n = 0;
  for (int byte = 0; byte < 128; byte++) {
    const bool is_wanted = strchr("\"}]:,", byte) || random_below(seed, 4) == 0;
    if (!byte || !is_wanted || !may_follow(c, (unsigned char)byte)) continue;
    if (random_below(seed, (uint32_t)++n) == 0) chosen = byte;
  }
  return chosen;
}

/* Along random texts of random schemas, whose keys are often few. */
TEST(forced_bytes_are_the_only_ones) {
  uint64_t seed = 11;
  Buffer schema = {0}, found = {0}, want = {0};
  int n_forced = 0, n_places = 0;
  for (int i = 0; i < SAMPLE(600); i++) {
    Constraint c;
    Error err;
    schema.size = 0;
    put_text(&schema, i % 3 ? "" : "{\"required\": [\"a\", \"bc\"], \"allOf\": [");
    put_schema(&schema, 2, &seed);
    put_text(&schema, i % 3 ? "" : "]}");
    const SchemaOptions options = {.ordered_keys = i % 2, .plain_integers = true};
    if (constraint_open("schema", schema.data, schema.size, options, NULL, &c, &err) != STATUS_OK) {
      if (!strstr(err.text, "no text satisfies")) fail_msg("%s", err.text);
      continue;
    }
    for (int at = 0; at < 25; at++) {
      found.size = want.size = 0;
      force_by_trying(&c, &want);
      assert_int_equal(constraint_forced(&c, &found, &err), STATUS_OK);
      if (found.size != want.size || (found.size && memcmp(found.data, want.data, found.size) != 0))
        fail_msg("%.*s after %d bytes: \"%.*s\", expected \"%.*s\"", (int)schema.size, schema.data, at,
                 (int)found.size, found.data, (int)want.size, want.data);
      n_forced += found.size > 0;
      n_places++;
      const int byte = draw_byte(&c, &seed);
      bool allowed;
      if (byte < 0) break;
      const char text = (char)byte;
      assert_int_equal(constraint_take_bytes(&c, &text, 1, &allowed, NULL, &err), STATUS_OK);
      assert_true(allowed);
    }
    constraint_close(&c);
  }
  assert_true(n_places > SAMPLE(4000) && n_forced > SAMPLE(80));
  buffer_release(&schema);
  buffer_release(&found);
  buffer_release(&want);
}

static void encode(const char *text, size_t size, IdList *ids) {
  ids->count = 0;
  assert_int_equal(tokenizer_encode(tokenizer, text, size, (EncodeOptions){0}, ids, NULL), STATUS_OK);
}

static bool begins_with(const IdList *all, const IdList *first, size_t from) {
  return from + first->count <= all->count &&
         (first->count == 0 || memcmp(all->ids + from, first->ids, first->count * sizeof *all->ids) == 0);
}

/* Texts of a form, where some begin alike. At each place of each of them, the forced tokens are those of
 * every text that goes on from there, if its first tokens are those of what was before. */
TEST(forced_tokens_are_those_of_every_text) {
  static const char *const forms[][5] = {
      {"\"the mother went home\"", "\"the mother went on\"", "\"the moth\"", "\"at\"", "\"the\""},
      {"\"once upon a time\"", "\"once upon a tim\"", "\"once upon\"", "\"one\"", "\"on\""},
      {"\"she was happy and played\"", NULL, NULL, NULL, NULL},
      {"\"\u00e9\u00e8 a cat\"", "\"\u00e9\u00e9 a cat\"", "\"\u00e9\u00e8 a car\"", NULL, NULL},
      {"{\"name\":\"Lily\",\"age\":3}", "{\"name\":\"Lily\",\"age\":31}", "{\"name\":\"Tim\",\"age\":3}",
       NULL, NULL},
      {"[\"park\",\"play\"]", "[\"park\",\"plays\"]", "[\"park\"]", NULL, NULL},
  };
  IdList forced = {0}, before = {0}, all = {0};
  int n_forced = 0, n_several = 0;
  for (size_t f = 0; f < sizeof forms / sizeof *forms; f++) {
    char schema[400] = "{\"enum\": [";
    int n = 0;
    for (; n < 5 && forms[f][n]; n++) sprintf(schema + strlen(schema), "%s%s", n ? ", " : "", forms[f][n]);
    strcat(schema, "]}");
    for (int t = 0; t < n; t++)
      for (size_t size = 0; size < strlen(forms[f][t]); size++) {
        Constraint c;
        Error err;
        bool allowed;
        const char *text = forms[f][t];
        if ((text[size] & 0xc0) == 0x80) continue; /* within a character */
        const SchemaOptions options = {.plain_integers = true, .ordered_keys = true};
        assert_int_equal(constraint_open("schema", schema, strlen(schema), options, &vocabulary, &c, &err),
                         STATUS_OK);
        assert_int_equal(constraint_write_plainly(&c, &err), STATUS_OK);
        assert_int_equal(constraint_take_bytes(&c, text, size, &allowed, NULL, &err), STATUS_OK);
        assert_true(allowed);
        forced.count = 0;
        assert_int_equal(constraint_forced_tokens(&c, tokenizer, text, size, &forced, &err), STATUS_OK);
        encode(text, size, &before);
        for (int other = 0; other < n && forced.count > 0; other++) {
          const char *whole = forms[f][other];
          if (strncmp(whole, text, size) != 0) continue;
          encode(whole, strlen(whole), &all);
          if (begins_with(&all, &before, 0) && !begins_with(&all, &forced, before.count))
            fail_msg("after %.*s of %s: other tokens than those of %s", (int)size, text, text, whole);
        }
        n_forced += forced.count > 0;
        n_several += forced.count > 1;
        constraint_close(&c);
      }
  }
  assert_true(n_forced > 60 && n_several > 30);
  id_list_release(&forced);
  id_list_release(&before);
  id_list_release(&all);
}

/* A grammar's bytes are forced likewise, up to where it may end. */
TEST(forced_bytes_of_a_grammar_end_where_it_may) {
  static const struct {
    const char *grammar, *before, *forced;
  } cases[] = {
      {"root ::= \"abc\"", "", "abc"},
      {"root ::= \"abc\"", "ab", "c"},
      {"root ::= \"abc\"", "abc", ""},
      {"root ::= \"ab\" \"c\"?", "", "ab"},
      {"root ::= \"ab\" (\"cd\" | \"ce\")", "", "abc"},
      {"root ::= \"ab\" (\"cd\" | \"ce\")", "abc", ""},
      {"root ::= \"ab\" (\"cd\" | \"e\")", "", "ab"},
      {"root ::= \"\u00e9\" | \"\u00e8\"", "", ""},
      {"root ::= \"x\" (\"\u00e9\" | \"\u00e8\")", "", "x"},
      {"root ::= \"x\" \"\u00e9\" [ab]", "", "x\u00e9"},
      {"root ::= \"x\"{3} [a]+", "x", "xxa"},
      {"root ::= \"(\" root \")\" | \"x\"", "((x", "))"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    Grammar *grammar;
    Constraint c;
    Error err;
    bool allowed;
    Buffer forced = {0};
    const char *text = cases[i].grammar;
    if (grammar_open("g", text, strlen(text), tokenizer, &grammar, &err) ||
        constraint_open_grammar("g", grammar, &vocabulary, &c, &err))
      fail_msg("%s: %s", text, err.text);
    assert_int_equal(
        constraint_take_bytes(&c, cases[i].before, strlen(cases[i].before), &allowed, NULL, &err), STATUS_OK);
    assert_true(allowed);
    assert_int_equal(constraint_forced(&c, &forced, &err), STATUS_OK);
    if (forced.size != strlen(cases[i].forced) ||
        (forced.size && memcmp(forced.data, cases[i].forced, forced.size) != 0))
      fail_msg("%s after %s: \"%.*s\"", text, cases[i].before, (int)forced.size, forced.data);
    buffer_release(&forced);
    constraint_close(&c);
  }
}

static CMFixtureFunction before_all = open_vocabulary, after_all = close_vocabulary;
