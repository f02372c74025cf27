/* test_added.c - added tokens: which ones are found where, and that a person's text cannot inject special
 * ones.
 *
 * In all tokenizers here a byte is its own id, and added tokens follow from 256 on. */
#include <time.h>

#include "small.h"
#include "test/tests.h"

static Tokenizer *with_tokens(const char *const contents[][2], size_t n) {
  Buffer json = {0};
  for (size_t i = 0; i < n; i++) {
    char token[TOKEN_SIZE];
    buffer_printf(&json, NULL, "%c%s", i ? ',' : '[', token_json(token, contents[i][0], contents[i][1]));
  }
  buffer_append(&json, "]", 2, NULL);
  Tokenizer *tokenizer = make_bytes(json.data);
  buffer_release(&json);
  return tokenizer;
}

/* A million matches, each followed by half a million characters of white space: scanning stripped space
 * once or each time is the difference between milliseconds and hours. */
TEST(stripping_takes_linear_time) {
  static const char *const tokens[][2] = {{"\\n\\n", "r"}, {"  ", "r"}, {"\\t", ""}};
  Tokenizer *t = with_tokens(tokens, 3);
  enum { SIZE = 1000002 };
  char *text = malloc(SIZE);
  assert_non_null(text);
  IdList ids = {0};
  Error err;
  memset(text, '\n', SIZE);
  assert_int_equal(tokenizer_encode(t, text, SIZE, PLAIN, &ids, &err), STATUS_OK);
  assert_int_equal(ids.count, SIZE / 2);
  assert_int_equal(ids.ids[SIZE / 2 - 1], 256);
  /* "  \t" repeated: the tabs, which strip nothing, lie within what the spaces stripped. */
  for (int i = 0; i < SIZE; i++) text[i] = i % 3 == 2 ? '\t' : ' ';
  ids.count = 0;
  assert_int_equal(tokenizer_encode(t, text, SIZE, PLAIN, &ids, &err), STATUS_OK);
  assert_int_equal(ids.count, SIZE / 3 * 2);
  id_list_release(&ids);
  free(text);
  tokenizer_close(t);
}

/* --- a plain search, and random tokens and texts for it */

enum { MOST_TOKENS = 8, MOST_TEXT = 60 };

typedef struct {
  char content[8];
  bool single_word, lstrip, rstrip, normalized, special;
} PlainToken;

typedef struct {
  PlainToken tokens[MOST_TOKENS];
  int n;
  bool lowercase;
  char text[MOST_TEXT + 1];   /* the original text */
  bool trusted[MOST_TEXT];    /* each byte of it */
  char looked[MOST_TEXT + 1]; /* the same, in lower case when normalized tokens are searched */
} Plain;

static uint32_t next_random(uint32_t *state) {
  *state = *state * 1664525u + 1013904223u;
  return *state >> 8;
}

/* The longest token at `at`, or -1. */
static int longest_at(const Plain *p, size_t at, size_t end, bool normalized) {
  int best = -1;
  for (int i = 0; i < p->n; i++) {
    char wanted[8];
    size_t n = strlen(p->tokens[i].content);
    if (p->tokens[i].normalized != normalized || n > end - at) continue;
    for (size_t k = 0; k <= n; k++) {
      char c = p->tokens[i].content[k];
      wanted[k] = normalized && p->lowercase && c == 'A' ? 'a' : c;
    }
    if (memcmp(p->looked + at, wanted, n) == 0 && (best < 0 || n > strlen(p->tokens[best].content))) best = i;
  }
  return best;
}

static bool is_letter(char c) {
  return c == 'a' || c == 'A' || c == 'b';
}

/* Ids of text[from .. end): first of tokens in the original text, then of normalized ones between them. */
static void cut_plainly(const Plain *p, size_t from, size_t end, bool normalized, IdList *ids);

static void put_between(const Plain *p, size_t from, size_t end, bool normalized, IdList *ids) {
  if (from >= end) return;
  if (!normalized) {
    Plain lower = *p;
    for (size_t i = 0; i < MOST_TEXT; i++)
      if (p->lowercase && lower.looked[i] == 'A') lower.looked[i] = 'a';
    cut_plainly(&lower, from, end, true, ids);
  } else {
    for (size_t i = from; i < end; i++) id_list_append(ids, (unsigned char)p->looked[i], NULL);
  }
}

static void cut_plainly(const Plain *p, size_t from, size_t end, bool normalized, IdList *ids) {
  size_t done = from;
  for (size_t at = from; at < end;) {
    int i = longest_at(p, at, end, normalized);
    if (i < 0) {
      at++;
      continue;
    }
    const PlainToken *token = &p->tokens[i];
    size_t start = at, behind = at + strlen(token->content);
    bool trusted = true, same = true;
    for (size_t k = start; k < behind; k++) {
      trusted = trusted && p->trusted[k];
      if (k > start && p->trusted[k] != p->trusted[start] && same) at = k, same = false;
    }
    if (same) at = behind; /* else at the border within it */
    if (token->special && !trusted) continue;
    at = behind;
    bool word = (start == from || !is_letter(p->looked[start - 1])) &&
                (behind == end || !is_letter(p->looked[behind]));
    if (token->single_word && !word) continue;
    while (token->lstrip && start > done && p->looked[start - 1] == ' ') start--;
    if (token->lstrip && start < done) start = done;
    while (token->rstrip && behind < end && p->looked[behind] == ' ') behind++;
    put_between(p, done, start, normalized, ids);
    if (start < behind) id_list_append(ids, 256 + i, NULL);
    done = behind;
  }
  put_between(p, done, end, normalized, ids);
}

static void random_plain(Plain *p, uint32_t *random) {
  static const char letters[] = "ab A-";
  *p = (Plain){.n = 1 + (int)(next_random(random) % MOST_TOKENS), .lowercase = next_random(random) % 2};
  uint32_t n_letters = 2 + next_random(random) % 4;
  for (int i = 0; i < p->n; i++) {
    PlainToken *token = &p->tokens[i];
    size_t n = 2 + next_random(random) % 5;
    for (size_t k = 0; k < n; k++) token->content[k] = letters[next_random(random) % n_letters];
    bool *const flags[] = {&token->single_word, &token->lstrip, &token->rstrip, &token->normalized,
                           &token->special};
    for (int k = 0; k < 5; k++) *flags[k] = next_random(random) % 3 == 0;
  }
}

static Tokenizer *open_plain(const Plain *p) {
  Buffer json = {0};
  for (int i = 0; i < p->n; i++) {
    char flags[8] = "", one[TOKEN_SIZE];
    const PlainToken *token = &p->tokens[i];
    snprintf(flags, sizeof flags, "%s%s%s%s%s", token->single_word ? "w" : "", token->lstrip ? "l" : "",
             token->rstrip ? "r" : "", token->normalized ? "n" : "", token->special ? "s" : "");
    buffer_printf(&json, NULL, "%c%s", i ? ',' : '[', token_json(one, token->content, flags));
  }
  buffer_append(&json, "]", 2, NULL);
  char *vocab = byte_vocab(NULL);
  Tokenizer *t = NULL;
  Parts parts = {.added = json.data,
                 .pre_tokenizer = BYTE_LEVEL,
                 .vocab = vocab,
                 .normalizer = p->lowercase ? "{\"type\": \"Lowercase\"}" : NULL};
  if (open_parts(parts, &t, NULL) != STATUS_OK) t = NULL; /* two are the same when normalized */
  free(vocab);
  buffer_release(&json);
  return t;
}

/* A text of the tokens and their letters in pieces, some of them trusted. */
static void random_text(Plain *p, uint32_t *random, PromptPiece *pieces, size_t *n_pieces) {
  size_t n = 0;
  while (n < MOST_TEXT - 8) {
    const char *token = p->tokens[next_random(random) % (uint32_t)p->n].content;
    size_t part = 1 + next_random(random) % strlen(token);
    memcpy(p->text + n, token, part); /* prefixes of tokens, and whole ones */
    n += part;
    if (next_random(random) % 8 == 0) break;
  }
  p->text[n] = '\0';
  memcpy(p->looked, p->text, sizeof p->text);
  *n_pieces = 0;
  for (size_t from = 0; from < n;) {
    size_t size = 1 + next_random(random) % n;
    if (size > n - from) size = n - from;
    pieces[*n_pieces] = (PromptPiece){p->text + from, size, next_random(random) % 2};
    memset(p->trusted + from, pieces[*n_pieces].trusted, size);
    ++*n_pieces;
    from += size;
  }
}

TEST(finds_what_a_plain_search_finds) {
  uint32_t random = 1;
  int n_texts = 0;
  for (int round = 0; round < 400; round++) {
    Plain p;
    random_plain(&p, &random);
    bool twice = false;
    for (int i = 0; i < p.n; i++)
      for (int k = 0; k < i; k++) twice |= strcmp(p.tokens[i].content, p.tokens[k].content) == 0;
    Tokenizer *t = twice ? NULL : open_plain(&p);
    for (int i = 0; t && i < 40; i++, n_texts++) {
      PromptPiece pieces[MOST_TEXT];
      size_t n_pieces;
      random_text(&p, &random, pieces, &n_pieces);
      IdList found = {0}, expected = {0};
      cut_plainly(&p, 0, strlen(p.text), false, &expected);
      assert_int_equal(tokenizer_encode_pieces(t, pieces, n_pieces, false, &found, NULL), STATUS_OK);
      char a[1024], b[1024];
      if (strcmp(ids_text(&found, a, sizeof a), ids_text(&expected, b, sizeof b)) != 0)
        fail_msg("round %d: \"%s\" gives %s, expected %s", round, p.text, a, b);
      id_list_release(&found);
      id_list_release(&expected);
    }
    tokenizer_close(t);
  }
  assert_true(n_texts > 5000);
}

/* The text repeats the beginning of the token: a search that restarts at each byte compares as many bytes
 * as the product of both, which takes minutes. Borders of trust make the search resume inside a match. */
TEST(matching_takes_time_linear_in_the_text) {
  enum { SIZE = 1000000, N_PIECES = 1000 };
  static const struct {
    size_t size;
    char last;
    const char *flags;
  } cases[] = {{1000, 'b', ""}, {100000, 'b', ""}, {100000, 'b', "n"}, {1000, 'a', "s"}, {100000, 'a', "s"}};
  char *text = malloc(SIZE), *json = malloc(200000), *content = malloc(100001);
  PromptPiece *pieces = malloc(N_PIECES * sizeof *pieces);
  assert_true(text && json && content && pieces);
  memset(text, 'a', SIZE);
  for (size_t i = 0; i < N_PIECES; i++)
    pieces[i] = (PromptPiece){text + i * (SIZE / N_PIECES), SIZE / N_PIECES, i % 2};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    char token[TOKEN_SIZE];
    memset(content, 'a', cases[i].size);
    content[cases[i].size - 1] = cases[i].last;
    content[cases[i].size] = '\0';
    const char *like = token_json(token, "X", cases[i].flags), *place = strchr(like, 'X');
    snprintf(json, 200000, "[%.*s%s%s]", (int)(place - like), like, content, place + 1);
    Tokenizer *t = make_bytes(json);
    IdList ids = {0};
    clock_t begin = clock();
    assert_int_equal(tokenizer_encode(t, text, SIZE, PLAIN, &ids, NULL), STATUS_OK);
    assert_int_equal(ids.count, cases[i].last == 'a' ? SIZE / cases[i].size : SIZE);
    assert_int_equal(tokenizer_encode_pieces(t, pieces, N_PIECES, false, &ids, NULL), STATUS_OK);
    assert_true(clock() - begin < 3 * CLOCKS_PER_SEC); /* 0.06 s; with sanitizers 0.3 s */
    id_list_release(&ids);
    tokenizer_close(t);
  }
  free(text);
  free(json);
  free(content);
  free(pieces);
}

TEST(ids_follow_the_vocabulary) {
  static const char *const tokens[][2] = {{"<x>", "s"}, {"a", ""}, {"<y>", ""}};
  Tokenizer *t = with_tokens(tokens, 3);
  assert_int_equal(tokenizer_n_ids(t), 258);
  assert_int_equal(tokenizer_find(t, "<x>"), 256);
  assert_int_equal(tokenizer_find(t, "a"), 97);
  assert_int_equal(tokenizer_find(t, "<y>"), 257);
  assert_int_equal(tokenizer_find(t, "<z>"), -1);
  assert_true(tokenizer_is_special(t, 256));
  assert_false(tokenizer_is_special(t, 257));
  assert_false(tokenizer_is_special(t, -1));
  assert_false(tokenizer_is_special(t, 1 << 30));
  size_t size;
  assert_string_equal(tokenizer_content(t, 256, &size), "<x>");
  assert_string_equal(tokenizer_content(t, ' ', &size), "\xc4\xa0"); /* U+0120 stands for a space */
  assert_int_equal(size, 2);
  assert_null(tokenizer_content(t, 258, &size));
  assert_null(tokenizer_content(t, -1, &size));
  tokenizer_close(t);
}

/* Counts the token 256 in the ids of pieces: "p" is a person's text with the token, "t" the template's. */
static size_t count_tokens(const Tokenizer *t, const char *before, const char *after, const char *order) {
  char text[160];
  PromptPiece pieces[8];
  size_t n = 0, found = 0;
  snprintf(text, sizeof text, "%s<s>%s", before, after);
  for (; order[n]; n++) pieces[n] = (PromptPiece){text, strlen(text), order[n] == 't'};
  IdList ids = {0};
  Error err = {{0}};
  if (tokenizer_encode_pieces(t, pieces, n, false, &ids, &err) != STATUS_OK) fail_msg("%s", err.text);
  for (size_t i = 0; i < ids.count; i++) found += ids.ids[i] == 256;
  id_list_release(&ids);
  return found;
}

/* Whatever a normalizer does to the text around it, a special token counts in trusted pieces and in no
 * others. */
TEST(trust_is_traced_through_normalizers) {
#define SUBSTITUTE(pattern, content)                                                                         \
  "{\"type\": \"Replace\", \"pattern\": " pattern ", \"content\": \"" content "\"}"
  static const char *const normalizers[] = {
      "{\"type\": \"Lowercase\"}",
      "{\"type\": \"NFC\"}",
      "{\"type\": \"NFD\"}",
      "{\"type\": \"NFKC\"}",
      "{\"type\": \"NFKD\"}",
      "{\"type\": \"Strip\", \"strip_left\": true, \"strip_right\": true}",
      SUBSTITUTE("{\"String\": \"x\"}", ""),
      SUBSTITUTE("{\"String\": \"x\"}", "12345"),
      SUBSTITUTE("{\"Regex\": \"[xyz ]+\"}", "1"),
      "{\"type\": \"Sequence\", \"normalizers\": [{\"type\": \"NFD\"}, {\"type\": \"Lowercase\"}, "
      "{\"type\": \"Strip\", \"strip_left\": true, \"strip_right\": false}, " SUBSTITUTE(
          "{\"String\": \"x\"}", "123") ", {\"type\": \"NFC\"}]}",
  };
  /* U+00E9, e U+0301, U+FB03, U+0130, s and two marks in the wrong order, U+AC01, U+0344, U+2003,
   * U+00A0, U+FDFA */
  static const char *const around[] = {"",
                                       "a",
                                       " ",
                                       "  x ",
                                       "xyz",
                                       "\xc3\xa9",
                                       "e\xcc\x81",
                                       "\xef\xac\x83",
                                       "\xc4\xb0",
                                       "s\xcc\x87\xcc\xa3",
                                       "\xea\xb0\x81",
                                       "a\xcd\x84",
                                       "\xe2\x80\x83",
                                       "\xe2\x80\x83 \xc2\xa0",
                                       "\xef\xb7\xba"};
  static const char *const orders[] = {"t", "p", "tp", "pt", "ptp", "tpt", "ttpp", "ptptptp"};
  enum { N = sizeof around / sizeof *around };
  char token[TOKEN_SIZE], other[TOKEN_SIZE], added[2 * TOKEN_SIZE + 8], *vocab = byte_vocab(NULL);
  snprintf(added, sizeof added, "[%s,%s]", token_json(token, "<s>", "sn"), token_json(other, "<t>", ""));
  for (size_t i = 0; i < sizeof normalizers / sizeof *normalizers; i++) {
    Tokenizer *t = make(
        (Parts){.added = added, .pre_tokenizer = BYTE_LEVEL, .normalizer = normalizers[i], .vocab = vocab});
    for (size_t k = 0; k < N * N; k++)
      for (size_t o = 0; o < sizeof orders / sizeof *orders; o++) {
        size_t trusted = 0, found = count_tokens(t, around[k / N], around[k % N], orders[o]);
        for (const char *c = orders[o]; *c; c++) trusted += *c == 't';
        if (found != trusted)
          fail_msg("%s: \"%s<s>%s\", %s: %zu tokens", normalizers[i], around[k / N], around[k % N], orders[o],
                   found);
      }
    for (size_t k = 0; k < N; k++) { /* the borders are at the token, after characters that shift them */
      const PromptPiece pieces[] = {
          {around[k], strlen(around[k]), false}, {"<s>", 3, true}, {"<s>", 3, false}};
      IdList ids = {0};
      assert_int_equal(tokenizer_encode_pieces(t, pieces, 3, false, &ids, NULL), STATUS_OK);
      assert_true(ids.count >= 4);
      assert_int_equal(ids.ids[ids.count - 4], 256);
      assert_int_equal(ids.ids[ids.count - 3], '<');
      id_list_release(&ids);
    }
    tokenizer_close(t);
  }
  free(vocab);
}

TEST(any_number_of_tokens_is_found) {
  enum { N = 1100 };
  Buffer json = {0}, text = {0};
  for (int i = 0; i < N; i++) {
    char content[16], token[TOKEN_SIZE];
    snprintf(content, sizeof content, "<%d>", i);
    buffer_printf(&json, NULL, "%c%s", i ? ',' : '[', token_json(token, content, i % 2 ? "s" : ""));
    buffer_append_string(&text, content, NULL);
  }
  buffer_append(&json, "]", 2, NULL);
  Tokenizer *t = make_bytes(json.data);
  IdList ids = {0};
  assert_int_equal(tokenizer_n_ids(t), 256 + N);
  assert_int_equal(tokenizer_encode(t, text.data, text.size, PLAIN, &ids, NULL), STATUS_OK);
  assert_int_equal(ids.count, N);
  for (int i = 0; i < N; i++) {
    char content[16];
    size_t size;
    snprintf(content, sizeof content, "<%d>", i);
    assert_int_equal(ids.ids[i], 256 + i);
    assert_int_equal(tokenizer_find(t, content), 256 + i);
    assert_string_equal(tokenizer_content(t, 256 + i, &size), content);
    assert_int_equal(tokenizer_is_special(t, 256 + i), i % 2);
  }
  id_list_release(&ids);
  buffer_release(&json);
  buffer_release(&text);
  tokenizer_close(t);
}

/* The text is cut at each "x", and each part takes some 0.1 ms. The limit of all together is 0.75 s. */
TEST(the_time_limit_of_expressions_is_one_for_all_parts) {
  static const char part[] = "aaaaaax";
  enum { SIZE = sizeof part - 1, PARTS = 30000 };
  char *text = malloc(SIZE * PARTS), *vocab = byte_vocab(NULL), token[TOKEN_SIZE], added[TOKEN_SIZE + 8];
  assert_true(text && vocab);
  for (size_t i = 0; i < PARTS; i++) memcpy(text + i * SIZE, part, SIZE);
  snprintf(added, sizeof added, "[%s]", token_json(token, "x", ""));
  Tokenizer *t = make((Parts){.added = added,
                              .pre_tokenizer = "{\"type\": \"Split\", \"pattern\": {\"Regex\": "
                                               "\"(?:a|a|a)*(?:c|d)\"}, \"behavior\": \"Isolated\", "
                                               "\"invert\": false}",
                              .vocab = vocab});
  IdList ids = {0};
  Error err = {{0}};
  clock_t begin = clock();
  Status status = tokenizer_encode(t, text, SIZE * PARTS, PLAIN, &ids, &err);
  double took = (double)(clock() - begin) / CLOCKS_PER_SEC;
  if (status != STATUS_MODEL) fail_msg("status %d after %.1f s", status, took);
  assert_string_equal(err.text, "file: pre_tokenizer.Split: regular expression: matching takes too long");
  if (took > 2) fail_msg("refused after %.1f s", took);
  id_list_release(&ids);
  tokenizer_close(t);
  free(vocab);
  free(text);
}

TEST(broken_text_is_refused_with_its_place) {
  Tokenizer *t = make_bytes("[]");
  IdList ids = {0};
  Error err;
  assert_int_equal(tokenizer_encode(t, "ab\xc3", 3, PLAIN, &ids, &err), STATUS_USAGE);
  assert_string_equal(err.text, "the text is not valid UTF-8 at byte 2");
  const PromptPiece halves[] = {{"ab\xc3", 3, true}, {"\xa9", 1, true}};
  assert_int_equal(tokenizer_encode_pieces(t, halves, 2, false, &ids, &err), STATUS_USAGE);
  const PromptPiece second[] = {{"ab", 2, true}, {"c\xff", 2, false}};
  assert_int_equal(tokenizer_encode_pieces(t, second, 2, false, &ids, &err), STATUS_USAGE);
  assert_string_equal(err.text, "the text is not valid UTF-8 at byte 3");
  const PromptPiece third[] = {{"ab", 2, true}, {"\xc3\xa9", 2, false}, {"\xc3", 1, false}};
  assert_int_equal(tokenizer_encode_pieces(t, third, 3, false, &ids, &err), STATUS_USAGE);
  assert_string_equal(err.text, "the text is not valid UTF-8 at byte 4");
  assert_int_equal(ids.count, 0);
  assert_int_equal(tokenizer_encode_pieces(t, NULL, 0, true, &ids, &err), STATUS_OK);
  assert_int_equal(ids.count, 0);
  assert_int_equal(tokenizer_encode(t, "a\0b", 3, PLAIN, &ids, &err), STATUS_OK);
  assert_int_equal(ids.count, 3);
  id_list_release(&ids);
  tokenizer_close(t);
}

/* --- decoding */

#define MISTRAL                                                                                              \
  "{\"type\": \"Sequence\", \"decoders\": [{\"type\": \"Replace\", \"pattern\": {\"String\": "               \
  "\"\xe2\x96\x81\"}, \"content\": \" \"}, {\"type\": \"ByteFallback\"}, {\"type\": \"Fuse\"}]}"
#define METASPACE                                                                                            \
  "{\"type\": \"Metaspace\", \"replacement\": \"\xe2\x96\x81\", \"prepend_scheme\": \"always\", \"split\": " \
  "true}"

/* The reference, tokenizers 0.23.3, gives all tokens to the decoders. */
TEST(bytes_of_added_tokens_are_those_that_they_decode_to) {
  static const struct {
    const char *decoder, *normalizer, *content, *bytes;
  } cases[] = {
      {BYTE_LEVEL, NULL, "\xc4\xa0x", " x"},              /* U+0120, the alphabet's blank */
      {BYTE_LEVEL, NULL, "x y", "x y"},                   /* not in the alphabet, so it is text */
      {BYTE_LEVEL, NULL, "\xc3\x83\xc2\xa9", "\xc3\xa9"}, /* the two bytes of U+00E9 */
      {BYTE_LEVEL, NULL, "\xe2\x96\x81x", "\xe2\x96\x81x"},
      {BYTE_LEVEL, "{\"type\": \"Lowercase\"}", "ABC", "abc"},
      {METASPACE, NULL, "\xe2\x96\x81x", " x"},
      {METASPACE, NULL, "<0x41>", "<0x41>"},
      {MISTRAL, NULL, "\xe2\x96\x81x\xe2\x96\x81", " x "},
      {MISTRAL, NULL, "<0x41>", "A"},
      {MISTRAL, NULL, "\xc4\xa0x", "\xc4\xa0x"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    char token[TOKEN_SIZE], added[TOKEN_SIZE + 8], around[TOKEN_SIZE], *vocab = byte_vocab(NULL);
    snprintf(added, sizeof added, "[%s]", token_json(token, cases[i].content, "n"));
    snprintf(around, sizeof around, "x%sx", cases[i].bytes);
    Tokenizer *t = make((Parts){
        .added = added, .normalizer = cases[i].normalizer, .decoder = cases[i].decoder, .vocab = vocab});
    Buffer text = {0}, bytes = {0};
    bool is_text;
    assert_int_equal(tokenizer_decode(t, (int32_t[]){'x', 256, 'x'}, 3, true, &text, NULL), STATUS_OK);
    assert_int_equal(tokenizer_token_bytes(t, 256, &bytes, &is_text, NULL), STATUS_OK);
    assert_true(is_text);
    if (text.size != strlen(around) || memcmp(text.data, around, text.size) != 0)
      fail_msg("case %zu decodes to \"%.*s\"", i, (int)text.size, text.data);
    if (bytes.size != strlen(cases[i].bytes) || memcmp(bytes.data, cases[i].bytes, bytes.size) != 0)
      fail_msg("case %zu has the bytes \"%.*s\"", i, (int)bytes.size, bytes.data);
    buffer_release(&text);
    buffer_release(&bytes);
    tokenizer_close(t);
    free(vocab);
  }
}
