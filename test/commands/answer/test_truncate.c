/* test_truncate.c - texts cut until their prompt has room: random texts, rooms and numbers of places, with a
 * tokenizer whose tokens are bytes, so that most borders of tokens lie within characters, and with one that
 * changes its text. */
#include "test/tests.h"
#include "test/tokenizer/small.h"

#include "commands/answer/truncate.h"

/* A prompt of `frame` tokens and the text in some places. */
typedef struct {
  const Tokenizer *tokenizer;
  size_t frame, n_places;
  Buffer last; /* the text that it was encoded with */
} Prompt;

static Status encode(void *user, const char *text, size_t size, IdList *ids, Error *err) {
  Prompt *prompt = user;
  prompt->last.size = 0;
  TRY(buffer_append(&prompt->last, text, size, err));
  for (size_t i = 0; i < prompt->frame; i++) TRY(id_list_append(ids, 0, err));
  for (size_t i = 0; i < prompt->n_places; i++)
    TRY(tokenizer_encode(prompt->tokenizer, text, size, (EncodeOptions){0}, ids, err));
  return STATUS_OK;
}

static size_t random_text(uint64_t *random, char *text) {
  static const char *const characters[] = {"a", "B", " ", "\n", "ö", "Ж", "語", "🙂"};
  size_t size = 0;
  for (uint32_t n = random_below(random, 60); n > 0; n--) {
    const char *character = characters[random_below(random, sizeof characters / sizeof *characters)];
    memcpy(text + size, character, strlen(character));
    size += strlen(character);
  }
  return size;
}

static void cut_one(const Tokenizer *tokenizer, uint64_t *random) {
  char text[240];
  size_t size = random_text(random, text);
  Prompt prompt = {
      .tokenizer = tokenizer, .frame = random_below(random, 6), .n_places = 1 + random_below(random, 3)};
  const Truncator truncator = {.tokenizer = tokenizer,
                               .middle = random_below(random, 2),
                               .n_places = prompt.n_places,
                               .room = random_below(random, 300),
                               .encode = encode,
                               .user = &prompt};
  IdList ids = {0}, again = {0};
  TruncationResult cut;
  Error err = {{0}};
  assert_int_equal(encode(&prompt, text, size, &ids, NULL), STATUS_OK);
  const size_t before = ids.count;
  Status status = truncate_text(&truncator, text, size, &ids, &cut, &err);
  if (prompt.frame > truncator.room) {
    assert_int_equal(status, STATUS_USAGE);
    assert_non_null(strstr(err.text, "even without its text"));
  } else if (before <= truncator.room) {
    assert_int_equal(status, STATUS_OK);
    assert_int_equal(cut.n_cut, 0);
    assert_int_equal(ids.count, before);
  } else {
    assert_int_equal(status, STATUS_OK);
    assert_int_equal(cut.n_before, before);
    assert_true(ids.count <= truncator.room);
    /* As much as fits is kept: less than one character more in each place, which is 4 tokens at most. */
    assert_true(truncator.room - ids.count < 8 * prompt.n_places);
    /* The rest is the text without the reported bytes, cut at borders of characters, and it is what was
     * encoded. */
    assert_true(cut.begin <= cut.end && cut.end <= size && (truncator.middle || cut.begin == 0));
    assert_int_equal(utf8_valid_prefix(text, cut.begin), cut.begin);
    assert_int_equal(utf8_valid_prefix(text + cut.end, size - cut.end), size - cut.end);
    assert_int_equal(prompt.last.size, size - (cut.end - cut.begin));
    memmove(text + cut.begin, text + cut.end, size - cut.end);
    if (prompt.last.size) assert_memory_equal(prompt.last.data, text, prompt.last.size);
    assert_int_equal(encode(&prompt, text, prompt.last.size, &again, NULL), STATUS_OK);
    assert_int_equal(again.count, ids.count);
    /* In the middle both ends stay alike, but for characters. */
    if (truncator.middle && cut.end < size && cut.begin) {
      size_t tail = size - cut.end, head = cut.begin;
      assert_true(head < tail + 8 && tail < head + 8);
    }
  }
  id_list_release(&again);
  id_list_release(&ids);
  buffer_release(&prompt.last);
}

TEST(cuts_are_as_told_and_as_small_as_can_be) {
  Tokenizer *tokenizer = make_bytes("[]");
  uint64_t random = 3;
  for (int c = 0; c < 3000; c++) cut_one(tokenizer, &random);
  tokenizer_close(tokenizer);
}

/* The beginning keeps one token more than the end where an odd number is left, and the cut is no longer than
 * it must be. */
TEST(the_middle_is_the_middle) {
  static const struct {
    const char *text, *left;
    size_t room;
  } cases[] = {{"abcdefg", "abg", 3}, {"abcdefg", "abcefg", 6}, {"abcdefg", "a", 1},
               {"abcdefg", "", 0},    {"abcdefgh", "abgh", 4},  {"abcdefgh", "abcdfgh", 7}};
  Tokenizer *tokenizer = make_bytes("[]");
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    Prompt prompt = {.tokenizer = tokenizer, .n_places = 1};
    const Truncator truncator = {.tokenizer = tokenizer,
                                 .middle = true,
                                 .n_places = 1,
                                 .room = cases[i].room,
                                 .encode = encode,
                                 .user = &prompt};
    IdList ids = {0};
    TruncationResult cut;
    assert_int_equal(encode(&prompt, cases[i].text, strlen(cases[i].text), &ids, NULL), STATUS_OK);
    assert_int_equal(truncate_text(&truncator, cases[i].text, strlen(cases[i].text), &ids, &cut, NULL),
                     STATUS_OK);
    assert_int_equal(prompt.last.size, strlen(cases[i].left));
    if (prompt.last.size) assert_memory_equal(prompt.last.data, cases[i].left, prompt.last.size);
    id_list_release(&ids);
    buffer_release(&prompt.last);
  }
  tokenizer_close(tokenizer);
}

/* If a tokenizer changes a text first, its tokens do not show where they end in the text. */
TEST(a_tokenizer_may_change_the_text) {
  char *vocab = byte_vocab(NULL);
  Tokenizer *tokenizer = make((Parts){.added = "[]",
                                      .normalizer = "{\"type\": \"Lowercase\"}",
                                      .pre_tokenizer = BYTE_LEVEL,
                                      .decoder = BYTE_LEVEL,
                                      .vocab = vocab});
  uint64_t random = 5;
  for (int c = 0; c < 3000; c++) cut_one(tokenizer, &random);
  tokenizer_close(tokenizer);
  free(vocab);
}
