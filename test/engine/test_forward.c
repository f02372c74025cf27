/* test_forward.c - a step: the device's fused step where it computes one, else the operations in the
 * transformer's order, in the brackets of a device that records them. */
#include "test/engine/step_once.h"
#include "test/tests.h"

static char calls[64]; /* a letter each */
static bool fused_computes, step_was_recorded;
static Status embed_ends_with;

static Status called(const char *letter) {
  strcat(calls, letter);
  return STATUS_OK;
}

static Status embed(BackendState *s, TokenRange range, int layer, Error *err) {
  (void)s, (void)range, (void)layer, (void)err;
  called("e");
  return embed_ends_with;
}
static Status qkv(BackendState *s, TokenRange range, int layer, Error *err) {
  (void)s, (void)range, (void)layer, (void)err;
  return called("q");
}
static bool cuts(const BackendState *s, TokenRange range) {
  (void)s;
  return range.n_tokens == 3;
}
static Status attention(BackendState *s, TokenRange range, int layer, Error *err) {
  (void)s, (void)range, (void)layer, (void)err;
  return called("a");
}
static Status out_proj(BackendState *s, TokenRange range, int layer, Error *err) {
  (void)s, (void)layer, (void)err;
  assert_int_equal(range.n_tokens, 3);
  return called(range.n_kept == 0 ? "o" : range.n_kept == 1 ? "1" : "?");
}
static Status gate_up(BackendState *s, TokenRange range, int layer, Error *err) {
  (void)s, (void)layer, (void)err;
  return called(range.n_tokens == 3 ? "g" : range.n_tokens == 1 ? "G" : "?");
}
static Status keep_tap(BackendState *s, TokenRange range, int index, Error *err) {
  (void)s, (void)range, (void)index, (void)err;
  return called("t");
}
static Status down(BackendState *s, TokenRange range, int layer, Error *err) {
  (void)s, (void)range, (void)layer, (void)err;
  return called("d");
}
static Status logits(BackendState *s, TokenRange range, int layer, Error *err) {
  (void)s, (void)layer, (void)err;
  assert_int_equal(range.first_logit + range.n_logit_rows, range.n_tokens);
  return called("l");
}
static Status fused_step(BackendState *s, TokenRange range, bool *done, Error *err) {
  (void)s, (void)range, (void)err;
  *done = fused_computes;
  return called("f");
}
static Status begin_step(BackendState *s, TokenRange range, bool *replayed, Error *err) {
  (void)s, (void)range, (void)err;
  *replayed = step_was_recorded;
  return called("(");
}
static Status end_step(BackendState *s, Status so_far, Error *err) {
  (void)s, (void)err;
  called(")");
  return so_far;
}

static Backend plain(void) {
  return (Backend){.name = "fake",
                   .run = {[OP_EMBED] = embed,
                           [OP_QKV] = qkv,
                           [OP_ATTENTION] = attention,
                           [OP_OUT_PROJ] = out_proj,
                           [OP_GATE_UP] = gate_up,
                           [OP_DOWN] = down,
                           [OP_LOGITS] = logits}};
}

static Backend with_all(void) {
  Backend backend = plain();
  backend.fused_step = fused_step, backend.begin_step = begin_step, backend.end_step = end_step;
  return backend;
}

static Status run_range(const Backend *backend, const ModelConfig *config, TokenRange range,
                        const char *expected) {
  calls[0] = 0;
  const Status status = step_once(backend, NULL, config, range, NULL);
  assert_string_equal(calls, expected);
  return status;
}

static Status run(const Backend *backend, int n_logit_rows, const char *expected) {
  const ModelConfig config = {.n_layers = 2};
  const TokenRange range = {.n_tokens = 3, .n_logit_rows = n_logit_rows};
  return run_range(backend, &config, range, expected);
}

static int reset(void **state) {
  fused_computes = step_was_recorded = false;
  embed_ends_with = STATUS_OK;
  return 0;
}

TEST_WITH(reset, NULL, operations_come_in_the_order_of_a_transformer) {
  const Backend backend = plain();
  assert_int_equal(run(&backend, 2, "eqaogdqaogdl"), STATUS_OK);
  assert_int_equal(run(&backend, 0, "eqaogdqaogd"), STATUS_OK);
}

/* o with one row kept is 1, the gated product of one row G. */
TEST_WITH(reset, NULL, rows_without_logits_end_within_the_last_layer) {
  const TapList taps = {.n = 1};
  Backend backend = plain();
  backend.cuts_rows = cuts, backend.keep_tap = keep_tap;
  const struct {
    ModelConfig config;
    TokenRange range;
    const char *calls;
  } cases[] = {
      {{.n_layers = 2}, {.n_tokens = 3, .n_logit_rows = 1, .only_logits = true}, "eqaogdqa1Gdl"},
      {{.n_layers = 2}, {.n_tokens = 3, .only_logits = true}, "eqaogdq"},
      {{.n_layers = 2}, {.n_tokens = 3, .n_logit_rows = 3, .only_logits = true}, "eqaogdqaogdl"},
      {{.n_layers = 2}, {.n_tokens = 3, .n_logit_rows = 1}, "eqaogdqaogdl"}, /* others are read later */
      {{.n_layers = 2}, {.n_tokens = 3}, "eqaogdqaogd"},
      {{.n_layers = 2},
       {.n_tokens = 3, .n_logit_rows = 1, .only_logits = true, .taps = &taps},
       "eqaogdtqaogdl"},
      {{.n_layers = 2, .parallel = PARALLEL_ONE_NORM},
       {.n_tokens = 3, .n_logit_rows = 1, .only_logits = true},
       "eqaogdqaogdl"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    assert_int_equal(run_range(&backend, &cases[i].config, cases[i].range, cases[i].calls), STATUS_OK);
  }
}

TEST_WITH(reset, NULL, a_fused_step_takes_the_place_of_all_operations) {
  const Backend backend = with_all();
  fused_computes = true;
  assert_int_equal(run(&backend, 1, "f"), STATUS_OK);
}

TEST_WITH(reset, NULL, what_no_fused_step_computes_the_operations_do_in_brackets) {
  const Backend backend = with_all();
  assert_int_equal(run(&backend, 1, "f(eqaogdqaogdl)"), STATUS_OK);
  step_was_recorded = true;
  assert_int_equal(run(&backend, 1, "f("), STATUS_OK);
}

TEST_WITH(reset, NULL, a_failed_operation_ends_the_step_and_closes_the_brackets) {
  const Backend backend = with_all();
  embed_ends_with = STATUS_FAILED;
  assert_int_equal(run(&backend, 1, "f(e)"), STATUS_FAILED);
}

TEST(a_model_with_an_operation_that_the_backend_lacks_is_refused) {
  const Backend backend = plain();
  const ModelConfig config = {.architecture = "SomeForCausalLM", .n_layers = 2, .layer_scalar = true};
  Program program;
  Error err;
  assert_int_equal(forward_prepare(&backend, &config, &program, &err), STATUS_MODEL);
  assert_string_equal(err.text, "SomeForCausalLM has layer_end, which the fake does not compute");
  program_release(&program);
}
