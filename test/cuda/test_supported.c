/* test_supported.c - what GPUs do not compute is refused by its name; what they do is not.
 *
 * Each case is a model of the architectures that they compute with one thing changed. */
// clang-format off
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>
// clang-format on
#include <math.h>
#include <stdint.h>
#include <stdio.h>

#include "cuda/supported.h"

enum { N_LAYERS = 3 };

static int windows[N_LAYERS];
static uint8_t ropes[N_LAYERS];
static ModelLayer layers[N_LAYERS]; /* dense, but where a test says otherwise */

/* Qwen3's, with a window and yarn, both of which GPUs compute. */
static ModelConfig like_qwen3(void) {
  windows[1] = 4096;
  for (int i = 0; i < N_LAYERS; i++) ropes[i] = ROPE_GLOBAL;
  return (ModelConfig){.architecture = "Qwen3ForCausalLM",
                       .n_layers = N_LAYERS,
                       .head_dim = 128,
                       .rotary_dim = 128,
                       .qk_norm = QK_NORM_HEADS,
                       .embedding_scale = 1,
                       .attention_scale = 1 / sqrt(128),
                       .residual_scale = 1,
                       .logit_divisor = 1,
                       .rope = {.kind = ROPE_YARN, .theta = 1e6, .factor = 4},
                       .layer_ropes = ropes,
                       .windows = windows};
}

static void what_kernels_compute_is_taken(void **state) {
  (void)state;
  Error err;
  Model model = {.config = like_qwen3(), .layers = layers};
  assert_null(cuda_cannot_compute(&model.config));
  assert_int_equal(cuda_check_model(&model, &err), STATUS_OK);
  model.config.qk_norm = QK_NORM_NONE;
  model.config.qkv_bias = model.config.o_bias = model.config.mlp_bias = true;
  model.config.layer_ropes = NULL;
  assert_int_equal(cuda_check_model(&model, &err), STATUS_OK);
}

static void refused(ModelConfig config, const char *words) {
  Error err;
  Model model = {.config = config, .layers = layers};
  if (cuda_check_model(&model, &err) != STATUS_MODEL) fail_msg("taken, expected: %s", words);
  char expected[200];
  snprintf(expected, sizeof expected, "Qwen3ForCausalLM has %s, which GPUs do not compute yet", words);
  assert_string_equal(err.text, expected);
}

#define REFUSED(member, value, words)                                                                        \
  do {                                                                                                       \
    ModelConfig config = like_qwen3();                                                                       \
    config.member = (value);                                                                                 \
    refused(config, words);                                                                                  \
  } while (0)

static void what_they_do_not_is_refused_by_name(void **state) {
  (void)state;
  REFUSED(norms, NORM_AROUND, "norms of what comes out of attention");
  REFUSED(norms, NORM_AFTER, "norms of what comes out of attention");
  REFUSED(norm_plus_one, true, "norms that multiply by 1 + weight");
  REFUSED(qk_norm, QK_NORM_WHOLE, "q and k norms over all heads");
  REFUSED(activation, ACTIVATION_GELU_TANH, "an activation other than silu");
  REFUSED(embedding_scale, 12, "a factor of the embedding");
  REFUSED(attention_scale, 0.1, "a factor of attention's scores");
  REFUSED(residual_scale, 0.22, "a factor of what layers add");
  REFUSED(logit_divisor, 16, "a divisor of logits");
  REFUSED(attention_cap, 50, "a soft cap of attention's scores");
  REFUSED(logit_cap, 30, "a soft cap of logits");
  REFUSED(fused, true, "q, k and v as one matrix");
  REFUSED(rotary_dim, 96, "rotary positions of a part of each head");
  REFUSED(rope.kind, ROPE_LONG, "longrope");
  ModelConfig config = like_qwen3();
  ropes[N_LAYERS - 1] = ROPE_NONE;
  refused(config, "layers without rotary positions");
  ropes[N_LAYERS - 1] = ROPE_LOCAL;
  refused(config, "rotary positions that differ by layer");
}

/* One layer's scales, of which the last is as given and the others are 0.01. */
static Status with_scales(float last, bool dummy, Error *err) {
  float scales[2][8];
  for (int i = 0; i < 16; i++) scales[i / 8][i % 8] = 0.01f;
  scales[1][7] = last;
  Linear *linear = &layers[N_LAYERS - 1].up;
  *linear =
      (Linear){.kind = LINEAR_GROUPED, .bits = 8, .n_in = 64, .n_out = 8, .group = 32, .scales = scales};
  const Model model = {.config = like_qwen3(), .layers = layers, .dummy = dummy};
  const Status status = cuda_check_model(&model, err);
  *linear = (Linear){0};
  return status;
}

/* Kernels have them as fp16: numbers of its usual range, and smaller ones where larger ones are. */
static void scales_beyond_fp16_are_refused(void **state) {
  (void)state;
  Error err;
  assert_int_equal(with_scales(0.02f, false, &err), STATUS_OK);
  assert_int_equal(with_scales(-65504, false, &err), STATUS_OK);
  assert_int_equal(with_scales(1e-7f, false, &err), STATUS_OK);
  assert_int_equal(with_scales(65536, false, &err), STATUS_MODEL);
  assert_string_equal(err.text,
                      "Qwen3ForCausalLM has scales that fp16 cannot hold, which GPUs do not compute yet");
  assert_int_equal(with_scales(65536, true, &err), STATUS_OK); /* there is nothing to look at */
  float tiny[16];
  for (int i = 0; i < 16; i++) tiny[i] = 1e-6f;
  Linear *linear = &layers[0].q;
  *linear = (Linear){.kind = LINEAR_GROUPED, .bits = 8, .n_in = 64, .n_out = 8, .group = 32, .scales = tiny};
  refused(like_qwen3(), "scales that fp16 cannot hold");
  linear->scales = NULL; /* before model_prepare() */
  const Model model = {.config = like_qwen3(), .layers = layers};
  assert_int_equal(cuda_check_model(&model, &err), STATUS_OK);
  *linear = (Linear){0};
}

static void every_kind_of_weights_has_a_kernel(void **state) {
  (void)state;
  static const Linear kinds[] = {{.kind = LINEAR_AWQ, .bits = 4},
                                 {.kind = LINEAR_GROUPED, .bits = 4},
                                 {.kind = LINEAR_GROUPED, .bits = 8},
                                 {.kind = LINEAR_INT8, .bits = 8}};
  Error err;
  for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
    layers[N_LAYERS - 1].up = kinds[i];
    const Model model = {.config = like_qwen3(), .layers = layers};
    assert_int_equal(cuda_check_model(&model, &err), STATUS_OK);
  }
  layers[N_LAYERS - 1].up = (Linear){0};
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(what_kernels_compute_is_taken),
      cmocka_unit_test(what_they_do_not_is_refused_by_name),
      cmocka_unit_test(every_kind_of_weights_has_a_kernel),
      cmocka_unit_test(scales_beyond_fp16_are_refused),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
