/* test_batch_memory.c - the sizes of a batch, and how much of it fits into so many bytes, to the byte. */
#include "engine/batch_memory.h"
#include "test/tests.h"

enum { PAGE_TOKENS = 8, CHUNK = 200, POSITIONS = 100, PAGES = 13 /* of all positions */ };

static const ModelConfig config = {.n_layers = 1, .vocab_size = 50, .max_position = POSITIONS};

static size_t state_bytes(const ModelConfig *of, const StateOptions *sizes) {
  (void)of;
  return 1000 * (size_t)sizes->n_sequences + 80 * (size_t)sizes->n_pages;
}

static size_t recurrent_bytes(const ModelConfig *of, int layer) {
  (void)layer;
  return of->layers ? 64 : 0;
}

static Status memory(const Model *of, const BackendOptions *options, DeviceMemory *out, Error *err) {
  (void)of, (void)options, (void)out, (void)err;
  return STATUS_OK;
}

static const Backend host = {.chunk = CHUNK,
                             .page_tokens = PAGE_TOKENS,
                             .state_bytes = state_bytes,
                             .recurrent_bytes = recurrent_bytes},
                     device = {.chunk = CHUNK,
                               .page_tokens = PAGE_TOKENS,
                               .state_bytes = state_bytes,
                               .recurrent_bytes = recurrent_bytes,
                               .memory = memory};

static Status open_none(void *user, int n_ctx, Drafter *drafter, Error *err) {
  (void)user, (void)n_ctx, (void)drafter, (void)err;
  return STATUS_OK;
}

static size_t drafter_bytes(const void *user, int n_ctx) {
  (void)user;
  return 7 * (size_t)n_ctx;
}

static const DraftSource drafts = {.open = open_none, .bytes = drafter_bytes};

TEST(pages_are_those_of_whole_contexts) {
  assert_int_equal(batch_pages(&host, 1), 1);
  assert_int_equal(batch_pages(&host, 8), 1);
  assert_int_equal(batch_pages(&host, 9), 2);
  assert_int_equal(batch_sizes(&(BatchOptions){.n_sequences = 3}, &host, &config).n_pages, 3 * PAGES);
  assert_int_equal(batch_sizes(&(BatchOptions){.n_sequences = 3, .n_ctx = 17}, &host, &config).n_pages, 9);
  assert_int_equal(batch_sizes(&(BatchOptions){.n_sequences = 3, .n_pages = 5}, &host, &config).n_pages, 5);
  /* Positions of all pages are counted in 32 bits. */
  assert_int_equal(batch_sizes(&(BatchOptions){.n_sequences = INT32_MAX}, &host, &config).n_pages,
                   INT32_MAX / PAGE_TOKENS);
}

/* Rows of a step, and of its logits: 32 to score, or one for each sequence; with fewer drafters than
 * sequences all of their guesses; never more than the step has. */
TEST(rows_are_enough_for_what_a_step_holds) {
  static const struct {
    BatchOptions options;
    int max_chunk, max_logit_rows;
  } cases[] = {
      {{.n_sequences = 2}, CHUNK, 32},
      {{.n_sequences = 40}, CHUNK, 40},
      {{.n_sequences = 300}, 300, 300},
      {{.n_sequences = 2, .chunk = 5}, 5, 5},
      {{.n_sequences = 7, .chunk = 5}, 7, 7},
      {{.n_sequences = 20, .draft = drafts, .n_guesses = 4}, CHUNK, 32},
      {{.n_sequences = 20, .draft = drafts, .n_guesses = 4, .n_drafters = 6}, CHUNK, 32},
      {{.n_sequences = 20, .draft = drafts, .n_guesses = 4, .n_drafters = 7}, CHUNK, 35},
      {{.n_sequences = 8, .draft = drafts, .n_guesses = 4, .n_drafters = 9}, CHUNK, 40},
      {{.n_sequences = 20, .draft = drafts, .n_guesses = 4, .n_drafters = 9, .chunk = 41}, 41, 41},
      {{.n_sequences = 20, .n_guesses = 4, .n_drafters = 9}, CHUNK, 32},
      {{.n_sequences = 3, .invariant = true}, CHUNK, 3 + PAGE_TOKENS},
      {{.n_sequences = 3, .chunk = 4, .invariant = true}, 3 + PAGE_TOKENS, 3 + PAGE_TOKENS},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    const StateOptions sizes = batch_sizes(&cases[i].options, &host, &config);
    assert_int_equal(sizes.max_chunk, cases[i].max_chunk);
    assert_int_equal(sizes.max_logit_rows, cases[i].max_logit_rows);
  }
}

TEST(a_recurrent_state_allows_no_guesses) {
  LayerConfig layers[1] = {{.kind = LAYER_DELTA}};
  ModelConfig hybrid = config;
  hybrid.layers = layers;
  const BatchOptions options = {.n_sequences = 5, .draft = drafts, .n_guesses = 4, .n_drafters = 3};
  assert_int_equal(batch_guesses(&options, &host, &config), 4);
  assert_int_equal(batch_drafters(&options, &host, &config), 3);
  assert_int_equal(batch_guesses(&options, &host, &hybrid), 0);
  assert_int_equal(batch_drafters(&options, &host, &hybrid), 0);
}

/* As many as fit, to the byte. */
TEST(sequences_fit_to_the_byte) {
  const BatchOptions options = {.n_sequences = 1, .draft = drafts, .n_guesses = 4};
  for (int k = 0; k < 2; k++) {
    const Backend *backend = k ? &device : &host;
    for (int n = 1; n <= 20; n++) {
      const BatchOptions least = batch_least(&options, backend, &config, n);
      const size_t bytes = batch_bytes(&least, backend, &config);
      assert_int_equal(least.n_pages, PAGES);
      assert_int_equal(batch_most_sequences(&options, backend, &config, 20, bytes), n);
      assert_int_equal(batch_most_sequences(&options, backend, &config, 20, bytes - 1), n - 1);
    }
    assert_int_equal(batch_most_sequences(&options, backend, &config, 20, SIZE_MAX), 20);
  }
}

/* More than 256 sequences need pages for 512 tokens (or a context) each; up to 256 need only themselves. */
TEST(many_sequences_leave_pages_for_short_records) {
  Backend many = device;
  many.sequences = 1000;
  const BatchOptions options = {.n_sequences = 1};
  const ModelConfig longer = {.n_layers = 1, .vocab_size = 50, .max_position = 4096};
  for (int k = 0; k < 2; k++) {
    const ModelConfig *of = k ? &longer : &config;
    const int pages = k ? 512 / PAGE_TOKENS : PAGES;
    for (int n = 250; n <= 1000; n += 250) {
      BatchOptions asked = {.n_sequences = n, .n_pages = n * pages};
      const size_t bytes = batch_bytes(&asked, &many, of);
      assert_int_equal(batch_usual_sequences(&options, &many, of, bytes), n < 256 ? 256 : n);
      assert_int_equal(batch_usual_sequences(&options, &many, of, bytes - 1), n < 256 ? 256 : n - 1);
    }
    assert_int_equal(batch_usual_sequences(&options, &many, of, SIZE_MAX), 1000);
    const BatchOptions least = batch_least(&options, &many, of, 200);
    assert_int_equal(batch_usual_sequences(&options, &many, of, batch_bytes(&least, &many, of)), 200);
    assert_int_equal(batch_usual_sequences(&options, &many, of, 0), 0);
  }
  many.sequences = 32;
  assert_int_equal(batch_usual_sequences(&options, &many, &config, SIZE_MAX), 32);
}

/* Likewise pages, but at least those of one context and at most those of all. */
TEST(pages_fit_to_the_byte) {
  BatchOptions options = {.n_sequences = 3};
  for (int k = 0; k < 2; k++) {
    const Backend *backend = k ? &device : &host;
    for (int n = PAGES; n <= 3 * PAGES; n++) {
      options.n_pages = n;
      const size_t bytes = batch_bytes(&options, backend, &config);
      assert_int_equal(batch_most_pages(&options, backend, &config, bytes), n);
      assert_int_equal(batch_most_pages(&options, backend, &config, bytes - 1), n > PAGES ? n - 1 : n);
    }
    assert_int_equal(batch_most_pages(&options, backend, &config, 0), PAGES);
    assert_int_equal(batch_most_pages(&options, backend, &config, SIZE_MAX), 3 * PAGES);
  }
}

/* Drafters count where they take the memory that the backend computes in; what batch_open() takes for itself
 * is the host's. */
TEST(what_lies_elsewhere_is_not_counted) {
  BatchOptions plain = {.n_sequences = 5, .n_pages = PAGES, .n_guesses = 4}, drafted = plain,
               on_device = plain;
  const size_t of_state = 5 * 1000 + 80 * PAGES, of_drafters = 5 * 7 * POSITIONS;
  drafted.draft = on_device.draft = drafts;
  on_device.draft.on_device = true;
  assert_int_equal(batch_bytes(&plain, &device, &config), of_state);
  assert_int_equal(batch_bytes(&drafted, &device, &config), of_state);
  assert_int_equal(batch_bytes(&on_device, &device, &config), of_state + of_drafters);
  assert_true(batch_bytes(&plain, &host, &config) > of_state + 5 * POSITIONS * sizeof(int32_t));
  assert_int_equal(batch_bytes(&drafted, &host, &config), batch_bytes(&plain, &host, &config) + of_drafters);
  drafted.n_drafters = 2;
  assert_int_equal(batch_bytes(&drafted, &host, &config),
                   batch_bytes(&plain, &host, &config) + 2 * 7 * POSITIONS);
}

TEST(a_part_of_the_memory_is_taken) {
  assert_int_equal(batch_share(&host, 800, false), 400);
  assert_int_equal(batch_share(&host, 800, true), 400);
  assert_int_equal(batch_share(&device, 800, false), 700);
  assert_int_equal(batch_share(&device, 800, true), 400);
}
