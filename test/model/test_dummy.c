/* test_dummy.c - models made from a config alone: what the loader finds in a checkpoint of that config, they
 * say too; what fills them is harmless. */
#include "tiny_checkpoint.h"

#include <math.h>
#include <signal.h>
#include <sys/wait.h>

static Model *dummy_fine(const char *path) {
  Model *model;
  Error err = {{0}};
  if (model_open_dummy(path, &model, &err) != STATUS_OK) fail_msg("%s", err.text);
  return model;
}

static void assert_linear_alike(const Linear *dummy, const Linear *real) {
  assert_string_equal(dummy->name, real->name);
  assert_int_equal(dummy->kind, real->kind);
  assert_int_equal(dummy->n_in, real->n_in);
  assert_int_equal(dummy->n_out, real->n_out);
  assert_int_equal(dummy->group, real->group);
  assert_int_equal(dummy->dtype, real->dtype);
  assert_int_equal(!dummy->qweight, !real->qweight);
  assert_int_equal(!dummy->qzeros, !real->qzeros);
  assert_int_equal(!dummy->scales, !real->scales);
  assert_int_equal(!dummy->weight, !real->weight);
  assert_int_equal(!dummy->bias.data, !real->bias.data);
  assert_int_equal(dummy->bias.n, real->bias.n);
}

static void assert_vector_alike(const Vector *dummy, const Vector *real) {
  assert_int_equal(!dummy->data, !real->data);
  assert_int_equal(dummy->dtype, real->dtype);
  assert_int_equal(dummy->n, real->n);
}

/* Everything but the numbers. */
static void assert_models_alike(const Model *dummy, const Model *real) {
  assert_int_equal(dummy->config.n_layers, real->config.n_layers);
  for (int i = 0; i < real->config.n_layers; i++) {
    const ModelLayer *a = &dummy->layers[i], *b = &real->layers[i];
    assert_vector_alike(&a->attn_norm, &b->attn_norm);
    assert_vector_alike(&a->q_norm, &b->q_norm);
    assert_vector_alike(&a->k_norm, &b->k_norm);
    assert_vector_alike(&a->mlp_norm, &b->mlp_norm);
    for (int which = 0; which < N_LAYER_LINEARS; which++)
      assert_linear_alike(layer_linear_const(a, which), layer_linear_const(b, which));
  }
  assert_vector_alike(&dummy->final_norm, &real->final_norm);
  assert_linear_alike(&dummy->head, &real->head);
  assert_int_equal(dummy->embedding.dtype, real->embedding.dtype);
  assert_int_equal(dummy->embedding.n_rows, real->embedding.n_rows);
  assert_int_equal(dummy->embedding.n_columns, real->embedding.n_columns);
  assert_int_equal(dummy->head.weight == dummy->embedding.data, real->head.weight == real->embedding.data);
  assert_int_equal(dummy->weight_bytes, real->weight_bytes);
  assert_true(dummy->dummy);
  assert_false(real->dummy);
}

/* Writes the checkpoint, opens it as it is and from its config alone, and compares. */
static void assert_dummy_is_like(Tiny *tiny) {
  char *directory = write_tiny(tiny);
  Model *real = open_fine(directory, NULL), *dummy = dummy_fine(directory);
  assert_models_alike(dummy, real);
  model_close(dummy);
  dummy = dummy_fine(in_directory(directory, "config.json"));
  assert_models_alike(dummy, real);
  model_close(dummy);
  model_close(real);
  remove_directory(directory);
  tiny_free(tiny);
}

static void says_what_a_checkpoint_says(void **state) {
  (void)state;
  Tiny tiny;
  tiny_qwen3(&tiny); /* norms of q and k, a head of its own */
  assert_dummy_is_like(&tiny);
  tiny_qwen2(&tiny); /* biases */
  assert_dummy_is_like(&tiny);
  tiny_llama(&tiny); /* a tied head */
  assert_dummy_is_like(&tiny);
}

static void a_group_can_be_the_whole_input(void **state) {
  (void)state;
  Tiny tiny;
  tiny_llama(&tiny);
  tiny_free(&tiny);
  tiny.group = -1;
  tiny_make(&tiny);
  assert_dummy_is_like(&tiny);
}

static void without_quantisation_all_is_dense(void **state) {
  (void)state;
  Tiny tiny;
  tiny_qwen3(&tiny);
  char base[LINEAR_NAME_SIZE];
  for (int layer = 0; layer < tiny.n_layers; layer++) {
    for (int which = 0; which < N_LAYER_LINEARS; which++) {
      layer_linear_full_name(&(ModelConfig){0}, "model.", layer, which, base);
      tiny_make_dense(&tiny, base, "F16");
    }
  }
  tiny.group = 0;
  assert_dummy_is_like(&tiny);
}

static void modules_not_to_convert_are_dense(void **state) {
  (void)state;
  Tiny tiny;
  tiny_llama(&tiny);
  tiny_make_dense(&tiny, "model.layers.0.mlp.down_proj", "F16");
  tiny_make_dense(&tiny, "model.layers.0.self_attn.v_proj", "F16");
  tiny_make_dense(&tiny, "model.layers.1.self_attn.v_proj", "F16");
  tiny.group = 0; /* the config says it below, with the list */
  tiny.extra_config =
      ", \"quantization_config\": {\"quant_method\": \"awq\", \"bits\": 4, \"group_size\": 16, "
      "\"modules_to_not_convert\": [\"layers.0.mlp.down_proj\", \"v_proj\"]}";
  assert_dummy_is_like(&tiny);
}

/* --- the numbers */

/* Every number of a linear layer that is stored as fp16 lies within `most` of zero; scales are above it. */
static void assert_harmless(const Linear *linear) {
  const size_t n_in = (size_t)linear->n_in, n_out = (size_t)linear->n_out;
  bool quantised = linear->kind == LINEAR_AWQ;
  size_t n = quantised ? n_in / (size_t)linear->group * n_out : n_in * n_out;
  double squares = 0;
  for (size_t i = 0; i < n; i++) {
    float value;
    floats_read(quantised ? linear->scales : linear->weight, DTYPE_F16, i, 1, &value);
    assert_true(isfinite(value));
    if (quantised) assert_true(value > 0);
    squares += (double)value * value;
  }
  /* A product keeps its input's variance: n_in weights of variance 1 / n_in. The mean square of n >= 512
   * evenly distributed weights is right within 5 standard errors, 5 * sqrt(0.8 / 512) = 20%; scales vary by
   * 10% at most, their mean square is 0.3% above the square of their mean. */
  double variance = squares / (double)n * (quantised ? 42.5 : 1) * (double)n_in;
  assert_true(variance > 0.75 && variance < 1.25);
}

static void is_filled_with_harmless_numbers(void **state) {
  (void)state;
  Tiny tiny;
  tiny_qwen3(&tiny);
  char *directory = write_tiny(&tiny);
  Model *model = dummy_fine(directory);
  Error err = {{0}};
  assert_int_equal(model_fill_dummy(model, &err), STATUS_OK);
  for (int i = 0; i < tiny.n_layers; i++) {
    const ModelLayer *layer = &model->layers[i];
    for (int which = 0; which < N_LAYER_LINEARS; which++) assert_harmless(layer_linear_const(layer, which));
    for (int j = 0; j < tiny.hidden; j++) {
      float norm;
      floats_read(layer->mlp_norm.data, layer->mlp_norm.dtype, (size_t)j, 1, &norm);
      assert_true(norm == 1);
    }
    /* 512 words of random bits: all values of a byte but a few, and two layers that differ. */
    bool seen[256] = {false};
    const unsigned char *bytes = layer->down.qweight;
    int n_seen = 0;
    for (int j = 0; j < tiny.intermediate * tiny.hidden / 2; j++)
      n_seen += !seen[bytes[j]], seen[bytes[j]] = true;
    assert_true(n_seen > 200);
  }
  assert_memory_not_equal(model->layers[0].q.qweight, model->layers[1].q.qweight, 64);
  assert_harmless(&model->head);
  model_close(model);
  remove_directory(directory);
  tiny_free(&tiny);
}

static void has_no_memory_before(void **state) {
  (void)state;
  Tiny tiny;
  tiny_llama(&tiny);
  char *directory = write_tiny(&tiny);
  Model *model = dummy_fine(directory);
  pid_t child = fork();
  if (child == 0) {
    signal(SIGSEGV, SIG_DFL); /* without a sanitizer's report */
    _exit(*(const volatile unsigned char *)model->embedding.data ? 1 : 2);
  }
  int how;
  assert_int_equal(waitpid(child, &how, 0), child);
  assert_true(WIFSIGNALED(how) && WTERMSIG(how) == SIGSEGV);
  model_close(model);
  remove_directory(directory);
  tiny_free(&tiny);
}

/* --- what is refused */

static void assert_dummy_refused(const char *path, Status expected, const char *part, const char *other) {
  Model *model;
  Error err = {{0}};
  assert_int_equal(model_open_dummy(path, &model, &err), expected);
  model_close(model);
  assert_contains(err.text, part);
  assert_contains(err.text, other);
}

static void refuses_what_no_checkpoint_can_be(void **state) {
  (void)state;
  Tiny tiny;
  tiny_llama(&tiny);
  tiny.group = 24; /* of 32 inputs */
  char *directory = make_directory();
  write_config(&tiny, directory);
  assert_dummy_refused(directory, STATUS_MODEL, "model.layers.0.self_attn.q_proj", "groups of 24");
  write_text(directory, "config.json", "{\"architectures\": [\"GPT2LMHeadModel\"]}");
  assert_dummy_refused(directory, STATUS_MODEL, "config.json", "GPT2LMHeadModel");
  write_text(directory, "config.json", "{");
  assert_dummy_refused(in_directory(directory, "config.json"), STATUS_MODEL, "config.json", "expected a key");
  assert_dummy_refused(in_directory(directory, "nothing.json"), STATUS_MODEL, "nothing.json", "No such file");
  remove_directory(directory);
  directory = make_directory();
  assert_dummy_refused(directory, STATUS_MODEL, "config.json", "No such file");
  remove_directory(directory);
  tiny_free(&tiny);
}

static void the_largest_config_is_no_accident(void **state) {
  (void)state;
  Tiny tiny = {.architecture = "LlamaForCausalLM",
               .model_type = "llama",
               .hidden = 1 << 20,
               .intermediate = 1 << 22,
               .n_layers = 4096,
               .n_heads = 1 << 14,
               .n_kv_heads = 1 << 14,
               .head_dim = 256,
               .vocab_size = 1 << 23,
               .max_position = 64,
               .extra_config = ""};
  char *directory = make_directory();
  write_config(&tiny, directory);
  assert_dummy_refused(directory, STATUS_FAILED, directory, "bytes of addresses");
  remove_directory(directory);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(says_what_a_checkpoint_says),
      cmocka_unit_test(a_group_can_be_the_whole_input),
      cmocka_unit_test(without_quantisation_all_is_dense),
      cmocka_unit_test(modules_not_to_convert_are_dense),
      cmocka_unit_test(is_filled_with_harmless_numbers),
      cmocka_unit_test(has_no_memory_before),
      cmocka_unit_test(refuses_what_no_checkpoint_can_be),
      cmocka_unit_test(the_largest_config_is_no_accident),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
