/* test_forward.c - a step: the device's fused step where it computes one, else the operations in the
 * transformer's order, in the brackets of a device that records them. */
// clang-format off
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>
// clang-format on
#include <string.h>

#include "engine/forward.h"

static char calls[64]; /* a letter each */
static bool fused_computes, step_was_recorded;
static Status embed_ends_with;

static Status called(const char *letter) {
  strcat(calls, letter);
  return STATUS_OK;
}

static Status embed(BackendState *s, TokenRange range, const int32_t *ids, Error *err) {
  (void)s, (void)range, (void)ids, (void)err;
  called("e");
  return embed_ends_with;
}
static Status qkv(BackendState *s, TokenRange range, int layer, Error *err) {
  (void)s, (void)range, (void)layer, (void)err;
  return called("q");
}
static bool cuts(const BackendState *s, TokenRange range, int n_logit_rows) {
  (void)s, (void)n_logit_rows;
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
static Status logits(BackendState *s, TokenRange range, int first_row, int n_rows, Error *err) {
  (void)s, (void)err;
  assert_int_equal(first_row + n_rows, range.n_tokens);
  return called("l");
}
static Status fused_step(BackendState *s, TokenRange range, const int32_t *ids, int n_logit_rows, bool *done,
                         Error *err) {
  (void)s, (void)range, (void)ids, (void)n_logit_rows, (void)err;
  *done = fused_computes;
  return called("f");
}
static Status begin_step(BackendState *s, TokenRange range, const int32_t *ids, int n_logit_rows,
                         bool *replayed, Error *err) {
  (void)s, (void)range, (void)ids, (void)n_logit_rows, (void)err;
  *replayed = step_was_recorded;
  return called("(");
}
static Status end_step(BackendState *s, Status so_far, Error *err) {
  (void)s, (void)err;
  called(")");
  return so_far;
}

static Backend plain(void) {
  return (Backend){.embed = embed,
                   .norm_qkv_rope_append = qkv,
                   .attention = attention,
                   .out_proj_residual = out_proj,
                   .norm_gate_up = gate_up,
                   .down_residual = down,
                   .norm_logits = logits};
}

static Backend with_all(void) {
  Backend backend = plain();
  backend.fused_step = fused_step, backend.begin_step = begin_step, backend.end_step = end_step;
  return backend;
}

static Status run(const Backend *backend, int n_logit_rows, const char *expected) {
  const ModelConfig config = {.n_layers = 2};
  const int32_t ids[3] = {1, 2, 3};
  calls[0] = 0;
  const Status status = forward(backend, NULL, &config, (TokenRange){.n_tokens = 3}, ids, n_logit_rows, NULL);
  assert_string_equal(calls, expected);
  return status;
}

static int reset(void **state) {
  (void)state;
  fused_computes = step_was_recorded = false;
  embed_ends_with = STATUS_OK;
  return 0;
}

static void operations_come_in_the_order_of_a_transformer(void **state) {
  (void)state;
  const Backend backend = plain();
  assert_int_equal(run(&backend, 2, "eqaogdqaogdl"), STATUS_OK);
  assert_int_equal(run(&backend, 0, "eqaogdqaogd"), STATUS_OK);
}

/* o with one row kept is 1, the gated product of one row G. */
static void rows_without_logits_end_within_the_last_layer(void **state) {
  (void)state;
  const int32_t ids[3] = {1, 2, 3};
  const TapList taps = {.n = 1};
  Backend backend = plain();
  backend.cuts_rows = cuts, backend.keep_tap = keep_tap;
  const struct {
    ModelConfig config;
    TokenRange range;
    int n_logit_rows;
    const char *calls;
  } cases[] = {
      {{.n_layers = 2}, {.n_tokens = 3, .only_logits = true}, 1, "eqaogdqa1Gdl"},
      {{.n_layers = 2}, {.n_tokens = 3, .only_logits = true}, 0, "eqaogdq"},
      {{.n_layers = 2}, {.n_tokens = 3, .only_logits = true}, 3, "eqaogdqaogdl"},
      {{.n_layers = 2}, {.n_tokens = 3}, 1, "eqaogdqaogdl"}, /* the other rows are read later */
      {{.n_layers = 2}, {.n_tokens = 3}, 0, "eqaogdqaogd"},
      {{.n_layers = 2}, {.n_tokens = 3, .only_logits = true, .taps = &taps}, 1, "eqaogdtqaogdl"},
      {{.n_layers = 2, .parallel = true}, {.n_tokens = 3, .only_logits = true}, 1, "eqaogdqaogdl"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    calls[0] = 0;
    assert_int_equal(
        forward(&backend, NULL, &cases[i].config, cases[i].range, ids, cases[i].n_logit_rows, NULL),
        STATUS_OK);
    assert_string_equal(calls, cases[i].calls);
  }
}

static void a_fused_step_takes_the_place_of_all_operations(void **state) {
  (void)state;
  const Backend backend = with_all();
  fused_computes = true;
  assert_int_equal(run(&backend, 1, "f"), STATUS_OK);
}

static void what_no_fused_step_computes_the_operations_do_in_brackets(void **state) {
  (void)state;
  const Backend backend = with_all();
  assert_int_equal(run(&backend, 1, "f(eqaogdqaogdl)"), STATUS_OK);
  step_was_recorded = true;
  assert_int_equal(run(&backend, 1, "f("), STATUS_OK);
}

static void a_failed_operation_ends_the_step_and_closes_the_brackets(void **state) {
  (void)state;
  const Backend backend = with_all();
  embed_ends_with = STATUS_FAILED;
  assert_int_equal(run(&backend, 1, "f(e)"), STATUS_FAILED);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup(operations_come_in_the_order_of_a_transformer, reset),
      cmocka_unit_test_setup(rows_without_logits_end_within_the_last_layer, reset),
      cmocka_unit_test_setup(a_fused_step_takes_the_place_of_all_operations, reset),
      cmocka_unit_test_setup(what_no_fused_step_computes_the_operations_do_in_brackets, reset),
      cmocka_unit_test_setup(a_failed_operation_ends_the_step_and_closes_the_brackets, reset),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
