/* test_bpe.c - merging against a plain implementation of its definition (options: test_transcripts.c).
 *
 * The definition (reference: tokenizers, models/bpe/word.rs): of all neighbours that have a rule the pair
 * of the lowest rank merges, the leftmost of several, until there is none. */
#include "small.h"
#include "test/tests.h"

/* --- the definition */

typedef struct {
  int left, right, product;
} Rule;

static size_t merge_plainly(const Rule *rules, size_t n_rules, int32_t *ids, size_t n) {
  for (size_t rank = 0; rank < n_rules;) {
    size_t at = 0;
    while (at + 1 < n && (ids[at] != rules[rank].left || ids[at + 1] != rules[rank].right)) at++;
    if (at + 1 >= n) {
      rank++;
      continue;
    }
    ids[at] = rules[rank].product;
    memmove(ids + at + 1, ids + at + 2, (n - at - 2) * sizeof *ids);
    n--;
    rank = 0; /* a merge can make pairs of lower ranks */
  }
  return n;
}

/* --- random tokenizers over the letters a to f */

enum { LETTERS = 6, MOST_TOKENS = 80 };

typedef struct {
  char contents[MOST_TOKENS][64];
  int n_tokens;
  Rule rules[MOST_TOKENS];
  int n_rules;
} Model;

static uint32_t next_random(uint32_t *state) {
  *state = *state * 1664525u + 1013904223u;
  return *state >> 8;
}

static int find_content(const Model *m, const char *content) {
  for (int i = 0; i < m->n_tokens; i++)
    if (strcmp(m->contents[i], content) == 0) return i;
  return -1;
}

static void random_model(Model *m, uint32_t *state) {
  *m = (Model){.n_tokens = LETTERS};
  for (int i = 0; i < LETTERS; i++) m->contents[i][0] = (char)('a' + i);
  int wanted = (int)(next_random(state) % (MOST_TOKENS - LETTERS));
  for (int tries = 0; tries < 500 && m->n_rules < wanted; tries++) {
    Rule rule = {(int)(next_random(state) % (uint32_t)m->n_tokens),
                 (int)(next_random(state) % (uint32_t)m->n_tokens), 0};
    char product[64];
    snprintf(product, sizeof product, "%.31s%.31s", m->contents[rule.left], m->contents[rule.right]);
    if (strlen(product) > 12) continue;
    bool known = false;
    for (int i = 0; i < m->n_rules; i++)
      known |= m->rules[i].left == rule.left && m->rules[i].right == rule.right;
    if (known) continue;
    rule.product = find_content(m, product);
    if (rule.product < 0) {
      rule.product = m->n_tokens;
      strcpy(m->contents[m->n_tokens++], product);
    }
    m->rules[m->n_rules++] = rule;
  }
}

static Tokenizer *open_model(const Model *m) {
  Buffer vocab = {0}, merges = {0};
  for (int i = 0; i < m->n_tokens; i++)
    buffer_printf(&vocab, NULL, "%c\"%s\":%d", i ? ',' : '{', m->contents[i], i);
  buffer_append(&vocab, "}", 2, NULL);
  buffer_append_string(&merges, "[", NULL);
  for (int i = 0; i < m->n_rules; i++)
    buffer_printf(&merges, NULL, "%s[\"%s\",\"%s\"]", i ? "," : "", m->contents[m->rules[i].left],
                  m->contents[m->rules[i].right]);
  buffer_append(&merges, "]", 2, NULL);
  Tokenizer *tokenizer = make((Parts){.vocab = vocab.data, .merges = merges.data});
  buffer_release(&vocab);
  buffer_release(&merges);
  return tokenizer;
}

/* Words of all lengths: scanned whole, merged by the heap, and cut. */
TEST(merges_as_defined) {
  uint32_t random = 1;
  Model model;
  for (int round = 0; round < 60; round++) {
    random_model(&model, &random);
    Tokenizer *tokenizer = open_model(&model);
    for (int word = 0; word < 40; word++) {
      char text[400];
      int32_t expected[400];
      size_t n = 1 + next_random(&random) % (word % 4 == 0 ? 399 : 60);
      uint32_t letters = 1 + next_random(&random) % LETTERS; /* few letters: long runs of one token */
      for (size_t i = 0; i < n; i++) {
        expected[i] = (int32_t)(next_random(&random) % letters);
        text[i] = (char)('a' + expected[i]);
      }
      IdList ids = {0};
      Error err;
      assert_int_equal(tokenizer_encode(tokenizer, text, n, PLAIN, &ids, &err), STATUS_OK);
      size_t left = merge_plainly(model.rules, (size_t)model.n_rules, expected, n);
      if (ids.count != left || memcmp(ids.ids, expected, left * sizeof *expected) != 0)
        fail_msg("round %d: \"%.*s\" differs", round, (int)n, text);
      id_list_release(&ids);
    }
    tokenizer_close(tokenizer);
  }
}

/* 780 rules over forty tokens: each way to make a run of letters from two shorter ones. */
TEST(any_number_of_rules_has_its_ranks) {
  enum { LONGEST = 40, N = 100 };
  static Rule rules[LONGEST * LONGEST];
  size_t n_rules = 0;
  uint32_t random = 5;
  Buffer vocab = {0}, merges = {0};
  char run[LONGEST + 1];
  memset(run, 'a', sizeof run);
  for (int i = 0; i < LONGEST; i++) {
    buffer_printf(&vocab, NULL, "%c\"%.*s\":%d", i ? ',' : '{', i + 1, run, i);
    for (int k = 0; i + k + 1 < LONGEST; k++) rules[n_rules++] = (Rule){i, k, i + k + 1};
  }
  buffer_append(&vocab, "}", 2, NULL);
  for (size_t i = n_rules; i-- > 1;) {
    size_t other = next_random(&random) % (i + 1);
    Rule rule = rules[i];
    rules[i] = rules[other];
    rules[other] = rule;
  }
  for (size_t i = 0; i < n_rules; i++)
    buffer_printf(&merges, NULL, "%c\"%.*s %.*s\"", i ? ',' : '[', rules[i].left + 1, run, rules[i].right + 1,
                  run);
  buffer_append(&merges, "]", 2, NULL);
  assert_int_equal(n_rules, LONGEST * (LONGEST - 1) / 2);
  Tokenizer *t = make((Parts){.vocab = vocab.data, .merges = merges.data});
  char text[N];
  memset(text, 'a', N);
  for (size_t n = 1; n < N; n += 3) {
    int32_t expected[N] = {0};
    size_t left = merge_plainly(rules, n_rules, expected, n);
    IdList ids = {0};
    assert_int_equal(tokenizer_encode(t, text, n, PLAIN, &ids, NULL), STATUS_OK);
    assert_int_equal(ids.count, left);
    assert_memory_equal(ids.ids, expected, left * sizeof *expected);
    id_list_release(&ids);
  }
  tokenizer_close(t);
  buffer_release(&vocab);
  buffer_release(&merges);
}

/* --- letters of one to four bytes, and bytes */

/* The parts of a text, how a vocabulary writes its symbols, and these letters. */
typedef struct {
  const char *text, *symbols[2];
  int letters[2], n;
} Unit;

static void put_symbols(Buffer *out, const char *letters, const Unit *units, size_t n_units) {
  buffer_append_string(out, "\"", NULL);
  for (const char *c = letters; *c; c++)
    for (size_t u = 0; u < n_units; u++)
      for (int k = 0; k < units[u].n; k++)
        if (units[u].letters[k] == *c - 'a') buffer_append_string(out, units[u].symbols[k], NULL);
  buffer_append_string(out, "\"", NULL);
}

static Tokenizer *open_units(const Model *m, const Unit *units, size_t n_units, const char *pre_tokenizer) {
  Buffer vocab = {0}, merges = {0};
  for (int i = 0; i < m->n_tokens; i++) {
    buffer_append_string(&vocab, i ? "," : "{", NULL);
    put_symbols(&vocab, m->contents[i], units, n_units);
    buffer_printf(&vocab, NULL, ":%d", i);
  }
  buffer_append(&vocab, "}", 2, NULL);
  buffer_append_string(&merges, "[", NULL);
  for (int i = 0; i < m->n_rules; i++) {
    buffer_append_string(&merges, i ? ",[" : "[", NULL);
    put_symbols(&merges, m->contents[m->rules[i].left], units, n_units);
    buffer_append_string(&merges, ",", NULL);
    put_symbols(&merges, m->contents[m->rules[i].right], units, n_units);
    buffer_append_string(&merges, "]", NULL);
  }
  buffer_append(&merges, "]", 2, NULL);
  Tokenizer *t = make((Parts){.vocab = vocab.data, .merges = merges.data, .pre_tokenizer = pre_tokenizer});
  buffer_release(&vocab);
  buffer_release(&merges);
  return t;
}

static void check_units(const Unit *units, size_t n_units, const char *pre_tokenizer, uint32_t *random) {
  Model model;
  random_model(&model, random);
  Tokenizer *t = open_units(&model, units, n_units, pre_tokenizer);
  for (int word = 0; word < 40; word++) {
    int32_t expected[800];
    size_t n = 0, wanted = 1 + next_random(random) % (word % 4 == 0 ? 399 : 60);
    Buffer text = {0};
    uint32_t some = 1 + next_random(random) % (uint32_t)n_units;
    while (n < wanted) {
      const Unit *unit = &units[next_random(random) % some];
      buffer_append_string(&text, unit->text, NULL);
      for (int k = 0; k < unit->n; k++) expected[n++] = unit->letters[k];
    }
    size_t left = merge_plainly(model.rules, (size_t)model.n_rules, expected, n);
    IdList ids = {0};
    assert_int_equal(tokenizer_encode(t, text.data, text.size, PLAIN, &ids, NULL), STATUS_OK);
    if (ids.count != left || memcmp(ids.ids, expected, left * sizeof *expected) != 0)
      fail_msg("\"%.*s\" differs", (int)text.size, text.data);
    id_list_release(&ids);
    buffer_release(&text);
  }
  tokenizer_close(t);
}

/* Pairs of characters are stored in one way below U+0100 and in another one above. */
TEST(merges_of_characters_of_all_lengths) {
  static const Unit units[] = {
      {"a", {"a"}, {0}, 1},
      {"\xc3\xbf", {"\xc3\xbf"}, {1}, 1},                 /* U+00FF */
      {"\xc4\x80", {"\xc4\x80"}, {2}, 1},                 /* U+0100 */
      {"\xe4\xb8\xad", {"\xe4\xb8\xad"}, {3}, 1},         /* U+4E2D */
      {"\xef\xbf\xbd", {"\xef\xbf\xbd"}, {4}, 1},         /* U+FFFD */
      {"\xf0\x9f\x98\x80", {"\xf0\x9f\x98\x80"}, {5}, 1}, /* U+1F600 */
  };
  uint32_t random = 23;
  for (int round = 0; round < 30; round++) check_units(units, 6, NULL, &random);
}

TEST(merges_of_bytes) {
  static const Unit units[] = {
      {"a", {"a"}, {0}, 1},
      {" ", {"\xc4\xa0"}, {1}, 1},                       /* U+0120 */
      {"\xc3\xa9", {"\xc3\x83", "\xc2\xa9"}, {2, 3}, 2}, /* U+00C3 U+00A9 */
      {"\x7f", {"\xc4\xa1"}, {4}, 1},                    /* U+0121 */
      {"\n", {"\xc4\x8a"}, {5}, 1},                      /* U+010A */
  };
  uint32_t random = 29;
  for (int round = 0; round < 30; round++) check_units(units, 5, BYTE_LEVEL, &random);
}

/* 2500 rules for pairs of fifty ideographs: enough for the table of pairs to grow. */
TEST(any_number_of_characters_can_meet) {
  enum { N = 50, LENGTH = 90 };
  static Rule rules[N * N];
  uint32_t random = 41;
  char letters[N][4] = {{0}};
  Buffer vocab = {0}, merges = {0};
  for (int i = 0; i < N; i++) {
    utf8_encode(0x4e00 + (uint32_t)i, letters[i]);
    buffer_printf(&vocab, NULL, "%c\"%s\":%d", i ? ',' : '{', letters[i], i);
    for (int k = 0; k < N; k++) rules[i * N + k] = (Rule){i, k, N + i * N + k};
  }
  for (uint32_t i = N * N; i-- > 1;) {
    uint32_t other = next_random(&random) % (i + 1);
    Rule rule = rules[i];
    rules[i] = rules[other];
    rules[other] = rule;
  }
  for (int i = 0; i < N * N; i++) {
    const char *left = letters[rules[i].left], *right = letters[rules[i].right];
    buffer_printf(&vocab, NULL, ",\"%s%s\":%d", left, right, rules[i].product);
    buffer_printf(&merges, NULL, "%c[\"%s\",\"%s\"]", i ? ',' : '[', left, right);
  }
  buffer_append(&vocab, "}", 2, NULL);
  buffer_append(&merges, "]", 2, NULL);
  Tokenizer *t = make((Parts){.vocab = vocab.data, .merges = merges.data});
  for (int round = 0; round < 4; round++) {
    int32_t expected[LENGTH];
    char text[LENGTH * 3 + 1] = "";
    for (int i = 0; i < LENGTH; i++) {
      expected[i] = (int32_t)(next_random(&random) % N);
      strcat(text, letters[expected[i]]);
    }
    size_t left = merge_plainly(rules, N * N, expected, LENGTH);
    IdList ids = {0};
    assert_int_equal(tokenizer_encode(t, text, strlen(text), PLAIN, &ids, NULL), STATUS_OK);
    assert_int_equal(ids.count, left);
    assert_memory_equal(ids.ids, expected, left * sizeof *expected);
    id_list_release(&ids);
  }
  tokenizer_close(t);
  buffer_release(&vocab);
  buffer_release(&merges);
}

/* So many different words that the word cache is emptied on the way, each of them twice; some of the
 * longest that are cached, and longer ones. */
TEST(words_that_come_again_have_the_same_ids) {
  enum { WORDS = 70000, AGAIN = 3000 };
  Model m = {.n_tokens = LETTERS};
  for (int i = 0; i < LETTERS; i++) m.contents[i][0] = (char)('a' + i);
  static const char *const products[] = {"ab", "cd", "abcd", "ef", "ba"};
  static const Rule rules[] = {{0, 1, 6}, {2, 3, 7}, {6, 7, 8}, {4, 5, 9}, {1, 0, 10}};
  for (int i = 0; i < 5; i++) {
    strcpy(m.contents[m.n_tokens++], products[i]);
    m.rules[m.n_rules++] = rules[i];
  }
  Buffer text = {0};
  IdList expected = {0}, ids = {0};
  for (int pass = 0; pass < 2; pass++)
    for (uint32_t i = 0; i < (pass ? AGAIN : WORDS); i++) {
      static const size_t lengths[] = {63, 64, 65, 127, 128, 129, 200};
      char word[200];
      int32_t symbols[200];
      uint32_t random = i * 2654435761u;
      size_t n = 0, size = i < 70 ? lengths[i % 7] : 8;
      for (uint32_t digits = i; n < size; digits /= LETTERS, n++) {
        symbols[n] = (int32_t)(n < 7 ? digits % LETTERS : next_random(&random) % LETTERS);
        word[n] = (char)('a' + symbols[n]);
      }
      buffer_append(&text, word, size, NULL);
      buffer_append(&text, " ", 1, NULL);
      n = merge_plainly(m.rules, 5, symbols, n);
      for (size_t k = 0; k < n; k++) id_list_append(&expected, symbols[k], NULL);
    }
  Buffer vocab = {0};
  for (int i = 0; i < m.n_tokens; i++)
    buffer_printf(&vocab, NULL, "%c\"%s\":%d", i ? ',' : '{', m.contents[i], i);
  buffer_append(&vocab, "}", 2, NULL);
  Tokenizer *t = make((Parts){.vocab = vocab.data,
                              .merges = "[\"a b\",\"c d\",\"ab cd\",\"e f\",\"b a\"]",
                              .pre_tokenizer = "{\"type\": \"WhitespaceSplit\"}"});
  assert_int_equal(tokenizer_encode(t, text.data, text.size, PLAIN, &ids, NULL), STATUS_OK);
  assert_int_equal(ids.count, expected.count);
  assert_memory_equal(ids.ids, expected.ids, ids.count * sizeof *ids.ids);
  id_list_release(&ids);
  id_list_release(&expected);
  buffer_release(&text);
  buffer_release(&vocab);
  tokenizer_close(t);
}

/* n log n: ten times the text takes somewhat more than ten times the time, and never a thousand times. */
TEST(one_word_of_a_million) {
  const size_t n = 1000000;
  char *text = malloc(n);
  assert_non_null(text);
  memset(text, 'a', n);
  Tokenizer *t = make(
      (Parts){.vocab = "{\"a\":0,\"aa\":1,\"aaaa\":2,\"aaa\":3}", .merges = "[\"a a\",\"aa aa\",\"aa a\"]"});
  IdList ids = {0};
  Error err;
  assert_int_equal(tokenizer_encode(t, text, n - 1, PLAIN, &ids, &err), STATUS_OK);
  assert_int_equal(ids.count, n / 4); /* 249,999 of four, one of three */
  assert_int_equal(ids.ids[0], 2);
  assert_int_equal(ids.ids[ids.count - 1], 3);
  id_list_release(&ids);
  tokenizer_close(t);
  free(text);
}
