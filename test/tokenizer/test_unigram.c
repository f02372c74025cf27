/* test_unigram.c - the time that the model "Unigram" takes; its ids are in test_transcripts.c and
 * test_small.c. */
#include "small.h"

#include "base/clock.h"
#include "test/tests.h"

/* A megabyte of the beginning of a long piece: each place is one step further into it, or back. */
TEST(a_long_text_takes_linear_time) {
  enum { SIZE = 1 << 20, PIECE = 1 << 16 };
  char *text = malloc(SIZE);
  Buffer vocab = {0};
  memset(text, 'a', SIZE);
  buffer_printf(&vocab, NULL, "[[\"a\", -1], [\"aaa\", -2], [\"%.*sb\", 0]]", PIECE, text);
  buffer_append(&vocab, "", 1, NULL);
  Tokenizer *t = make((Parts){.vocab = vocab.data});
  IdList ids = {0};
  const double start = clock_ms();
  assert_int_equal(tokenizer_encode(t, text, SIZE, PLAIN, &ids, NULL), STATUS_OK);
  assert_true(clock_ms() - start < 20000); /* walks into the piece from each place would take minutes */
  assert_int_equal(ids.count, SIZE / 3 + 1);
  id_list_release(&ids);
  tokenizer_close(t);
  buffer_release(&vocab);
  free(text);
}

TEST(an_interrupted_text_ends) {
  Tokenizer *t = make((Parts){.vocab = "[[\"a\", -1]]"});
  const volatile int interrupted = 1;
  IdList ids = {0};
  Error err;
  tokenizer_heed(t, &interrupted);
  assert_int_equal(tokenizer_encode(t, "aa", 2, PLAIN, &ids, &err), STATUS_INTERRUPTED);
  id_list_release(&ids);
  tokenizer_close(t);
}
