/* test_dummy.c - models made from a config alone: no two of their tensors overlap, and what fills them is
 * harmless. The tensors that they have: test/cpu/test_tensors.c. */
#include "tiny_checkpoint.h"

#include <math.h>
#include <signal.h>
#include <sys/wait.h>

#include "model/loaders.h"
#include "test/tests.h"

static Model *dummy_fine(const char *path) {
  Model *model;
  Error err = {{0}};
  if (model_open_dummy(path, &model, &err) != STATUS_OK) fail_msg("%s", err.text);
  return model;
}

/* --- the numbers */

TEST(has_no_memory_before) {
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

/* --- where everything lies, and what is in it, whatever the architecture and the layout */

#define QUANT(members) ", \"quantization_config\": {" members "}"
#define COMPRESSED(format, weights, more)                                                                    \
  QUANT("\"quant_method\": \"compressed-tensors\", \"format\": \"" format                                    \
        "\", \"config_groups\": {\"g\": {\"targets\": [\"Linear\"], \"weights\": {" weights "}" more "}}")

static const struct {
  const char *architecture, *model_type, *more;
  bool tied;
  LinearKind kind;
  int bits, group;
} kinds[] = {
    {"LlamaForCausalLM", "llama", QUANT("\"quant_method\": \"awq\", \"group_size\": 16"), false, LINEAR_AWQ,
     4, 16},
    {"Phi3ForCausalLM", "phi3", QUANT("\"quant_method\": \"awq\", \"group_size\": 16"), true, LINEAR_AWQ, 4,
     16},
    {"Phi3ForCausalLM", "phi3", QUANT("\"quant_method\": \"gptq\", \"group_size\": 32, \"bits\": 8"), false,
     LINEAR_GROUPED, 8, 32},
    {"Phi3ForCausalLM", "phi3",
     COMPRESSED("int-quantized", "\"strategy\": \"channel\"",
                ", \"input_activations\": {\"dynamic\": true, \"strategy\": \"token\"}"),
     true, LINEAR_INT8, 8, -1},
    {"Phi3ForCausalLM", "phi3", "", true, LINEAR_DENSE, 0, 0},
    {"Qwen2ForCausalLM", "qwen2",
     COMPRESSED("pack-quantized", "\"num_bits\": 4, \"strategy\": \"channel\"", ""), false, LINEAR_AWQ, 4,
     -1},
    {"GraniteForCausalLM", "granite",
     ", \"attention_bias\": true, \"mlp_bias\": true" COMPRESSED("int-quantized", "\"strategy\": \"channel\"",
                                                                 ""),
     false, LINEAR_GROUPED, 8, -1},
    {"Gemma2ForCausalLM", "gemma2", "", true, LINEAR_DENSE, 0, 0},
    {"Phi3ForCausalLM", "phi3", QUANT("\"quant_method\": \"fp8\", \"weight_block_size\": [16, 48]"), false,
     LINEAR_FP8, 8, 48},
    {"LlamaForCausalLM", "llama", QUANT("\"quant_method\": \"fp8\""), true, LINEAR_FP8, 8, -1},
    {"Phi3ForCausalLM", "phi3", QUANT("\"quant_method\": \"modelopt\", \"quant_algo\": \"NVFP4\""), true,
     LINEAR_FP4, 4, 16},
    {"Olmo2ForCausalLM", "olmo2", QUANT("\"quant_method\": \"gptq\", \"group_size\": 16"), false, LINEAR_AWQ,
     4, 16},
};
#define N_KINDS (sizeof kinds / sizeof *kinds)

typedef struct {
  const unsigned char *begin;
  size_t bytes;
} Region;

typedef struct {
  Region regions[256];
  size_t n, bytes;
} Regions;

static void add_region(Regions *all, const void *begin, size_t bytes) {
  assert_true(all->n < 256);
  assert_non_null(begin);
  assert_int_equal((uintptr_t)begin % 64, 0);
  all->regions[all->n++] = (Region){begin, bytes};
  all->bytes += bytes;
}

static int by_place(const void *a, const void *b) {
  const unsigned char *const one = ((const Region *)a)->begin, *const other = ((const Region *)b)->begin;
  return one < other ? -1 : one > other;
}

/* Bytes from its beginning to that of output `first`, of weights, zero points and scales. */
static void offsets_of(const Linear *linear, size_t first, size_t offsets[3]) {
  const size_t n_in = (size_t)linear->n_in;
  const size_t of_kind[][3] = {[LINEAR_DENSE] = {first * n_in * 2, 0, 0},
                               [LINEAR_AWQ] = {first / 2, first / 2, first * 2},
                               [LINEAR_GROUPED] = {first, first, first * 4},
                               [LINEAR_INT8] = {first * n_in, 0, first * 4},
                               [LINEAR_FP8] = {first * n_in, 0, first / 16 * ((n_in + 47) / 48) * 4},
                               [LINEAR_FP4] = {first * n_in / 2, 0, first * n_in / 16}};
  memcpy(offsets, of_kind[linear->kind], sizeof of_kind[0]);
}

/* One scale for 16 outputs and 48 inputs, or for all. */
static size_t fp8_scale_bytes(const Linear *linear, size_t n_out) {
  return linear->group == 48 ? n_out / 16 * (((size_t)linear->n_in + 47) / 48) * 4 : 4;
}

/* A whole matrix: `linear` is its first layer, and the others lie where they belong in it. */
static void add_matrix(Regions *all, const ModelConfig *config, const ModelLayer *layer, int which) {
  const Linear *linear = layer_linear(layer, which);
  const size_t n_in = (size_t)linear->n_in, n = (size_t)layer_linear_stored(config, 0, which).n_out;
  const bool groups = linear->kind == LINEAR_AWQ || linear->kind == LINEAR_GROUPED;
  const size_t n_groups = groups ? n_in / (size_t)linear->group : 1;
  const void *const weights = groups ? linear->qweight : linear->weight;
  add_region(all, weights, n_in * n * (size_t)(linear->kind == LINEAR_DENSE ? 16 : linear->bits) / 8);
  if (groups) add_region(all, linear->qzeros, n_groups * n * (size_t)linear->bits / 8);
  if (linear->kind != LINEAR_DENSE)
    add_region(all, linear->scales,
               linear->kind == LINEAR_FP8   ? fp8_scale_bytes(linear, n)
               : linear->kind == LINEAR_FP4 ? n_in / 16 * n
                                            : n_groups * n * (linear->kind == LINEAR_AWQ ? 2 : 4));
  if (linear->kind == LINEAR_FP4) add_region(all, linear->scale_values, 256 * 4);
  for (int other = 0; other < N_PACKED_LINEARS; other++) {
    const StoredLinear stored = layer_linear_stored(config, 0, other);
    const Linear *part = layer_linear(layer, other);
    size_t at[3];
    if (stored.first_part != which) continue;
    offsets_of(linear, (size_t)stored.first, at);
    assert_ptr_equal(groups ? part->qweight : part->weight, (const char *)weights + at[0]);
    if (groups) assert_ptr_equal(part->qzeros, (const char *)linear->qzeros + at[1]);
    if (linear->scales) assert_ptr_equal(part->scales, (const char *)linear->scales + at[2]);
    assert_int_equal(part->skip, groups ? (int)n - part->n_out : 0);
  }
}

static Regions regions_of(const Model *model) {
  const ModelConfig *config = &model->config;
  const size_t table = (size_t)config->vocab_size * (size_t)config->hidden * 2;
  Regions all = {.n = 0};
  add_region(&all, model->embedding.data, table);
  if (!config->tied_embeddings) add_region(&all, model->head.weight, table);
  add_region(&all, model->final_norm.data, (size_t)model->final_norm.n * 2);
  for (int i = 0; i < config->n_layers; i++) {
    for (int which = 0; which <= LAYER_LAUREL_NORM; which++) {
      const Vector *norm = &model->layers[i].vector[which];
      if (norm->data) add_region(&all, norm->data, (size_t)norm->n * 2);
    }
    for (int which = 0; which < N_PACKED_LINEARS; which++) {
      const Linear *linear = layer_linear(&model->layers[i], which);
      if (layer_linear_is_first(config, i, which)) add_matrix(&all, config, &model->layers[i], which);
      assert_int_equal(!linear->bias.data, !layer_linear_needs_bias(config, i, which));
      if (linear->bias.data) add_region(&all, linear->bias.data, (size_t)linear->n_out * 2);
    }
  }
  return all;
}

static Model *open_kind(size_t i) {
  Tiny tiny = {.architecture = kinds[i].architecture,
               .model_type = kinds[i].model_type,
               .hidden = 64,
               .intermediate = 96,
               .n_layers = 2,
               .n_heads = 4,
               .n_kv_heads = 2,
               .head_dim = 16,
               .vocab_size = 90,
               .max_position = 64,
               .tied = kinds[i].tied,
               .extra_config = kinds[i].more};
  char *directory = make_directory();
  write_config(&tiny, directory);
  Model *model = dummy_fine(directory);
  remove_directory(directory);
  return model;
}

TEST(no_two_tensors_share_a_byte) {
  for (size_t i = 0; i < N_KINDS; i++) {
    Model *model = open_kind(i);
    for (int which = 0; which < N_PACKED_LINEARS; which++) {
      const Linear *linear = layer_linear(&model->layers[1], which);
      assert_int_equal(linear->kind, kinds[i].kind);
      assert_int_equal(linear->bits, kinds[i].bits);
      assert_int_equal(linear->group, kinds[i].group == -1 ? linear->n_in : kinds[i].group);
    }
    if (model->config.qk_norm == QK_NORM_WHOLE) {
      assert_int_equal(model->layers[1].q_norm.n, 64); /* of all heads */
      assert_int_equal(model->layers[1].k_norm.n, 32);
    }
    Regions all = regions_of(model);
    qsort(all.regions, all.n, sizeof *all.regions, by_place);
    const unsigned char *at = model->files->reserved, *const end = at + model->files->reserved_bytes;
    for (size_t k = 0; k < all.n; k++) {
      assert_true(all.regions[k].begin >= at);
      at = all.regions[k].begin + all.regions[k].bytes;
    }
    assert_true(at <= end && end - at < 64);
    assert_int_equal(model->weight_bytes, all.bytes);
    model_close(model);
  }
}

/* The mean square of n numbers. */
static double mean_square(const void *data, Dtype dtype, size_t n, float most) {
  double sum = 0;
  for (size_t i = 0; i < n; i++) {
    const float value = stored_float(data, dtype, i);
    assert_true(isfinite(value) && fabsf(value) <= most);
    sum += (double)value * value;
  }
  return sum / (double)n;
}

/* A product keeps the variance of its input. Weights and zero points are even in 0 .. 2^b - 1: differences
 * have the variance (4^b - 1) / 6; that of signed bytes is half of it. Scales differ by a tenth at
 * most, their mean square by 1%; n >= 2,048 weights are right within 5 sqrt(0.8 / n) = 10%. */
static void assert_keeps_variance(const Linear *linear) {
  const size_t n_in = (size_t)linear->n_in, n_out = (size_t)linear->n_out;
  if (linear->kind == LINEAR_FP4 || linear->kind == LINEAR_FP8) {
    /* The mean squares of E2M1's and E4M3's numbers, 448 once more for NaN. */
    const bool fp4 = linear->kind == LINEAR_FP4;
    const double square = fp4 ? 8.5625 * mean_square(linear->scale_values, DTYPE_F32, 256, 1)
                              : 11501.3 * mean_square(linear->scales, DTYPE_F32, 1, 1);
    assert_true(fabs(square * (double)n_in - 1) < (fp4 ? 0.1 : 0.25));
    return;
  }
  const Dtype dtype = linear->kind == LINEAR_AWQ ? DTYPE_F16 : DTYPE_F32;
  double variance = linear->kind == LINEAR_DENSE ? mean_square(linear->weight, DTYPE_F16, n_in * n_out,
                                                               sqrtf(3 / (float)n_in) * 1.001f)
                                                 : mean_square(linear->scales, dtype, n_out, 1);
  if (linear->kind != LINEAR_DENSE) variance *= (pow(4, linear->bits) - 1) / 6;
  if (linear->kind == LINEAR_INT8) variance /= 2;
  if (fabs(variance * (double)n_in - 1) > 0.1)
    fail_msg("%s: a product multiplies the variance by %g", linear->name, variance * (double)n_in);
}

static void assert_random_bytes(const void *data, size_t n) {
  bool seen[256] = {false};
  int n_seen = 0;
  for (size_t i = 0; i < n; i++) {
    const unsigned char byte = ((const unsigned char *)data)[i];
    n_seen += !seen[byte];
    seen[byte] = true;
  }
  assert_true(n_seen > 200); /* of n >= 1,024 */
}

static void assert_linear_filled(const Linear *linear) {
  const size_t cells = (size_t)linear->n_in * (size_t)(linear->n_out + linear->skip);
  assert_keeps_variance(linear);
  if (linear->kind != LINEAR_DENSE)
    assert_random_bytes(linear->kind == LINEAR_AWQ || linear->kind == LINEAR_GROUPED ? linear->qweight
                                                                                     : linear->weight,
                        cells * (size_t)linear->bits / 8 - (size_t)(linear->skip * linear->bits / 8));
  if (linear->bias.data) {
    const double square = mean_square(linear->bias.data, DTYPE_F16, (size_t)linear->bias.n, 0.1001f);
    assert_true(square > 0.01 / 3 * 0.4 &&
                square < 0.01 / 3 * 1.6); /* even in -0.1 .. 0.1: 32 of them or more */
  }
}

TEST(every_kind_is_filled_with_harmless_numbers) {
  for (size_t i = 0; i < N_KINDS; i++) {
    Model *model = open_kind(i);
    Error err = {{0}};
    const float one = norms_plus_one(&model->config) ? 0 : 1;
    assert_int_equal(model_fill_dummy(model, &err), STATUS_OK);
    for (int layer = 0; layer < 2; layer++) {
      for (int which = 0; which <= LAYER_LAUREL_NORM; which++) {
        const Vector *norm = &model->layers[layer].vector[which];
        for (int k = 0; norm->data && k < norm->n; k++)
          assert_true(stored_float(norm->data, norm->dtype, (size_t)k) == one);
      }
      for (int which = 0; which < N_PACKED_LINEARS; which++)
        assert_linear_filled(layer_linear(&model->layers[layer], which));
    }
    for (int k = 0; k < model->final_norm.n; k++)
      assert_true(stored_float(model->final_norm.data, DTYPE_F16, (size_t)k) == one);
    assert_keeps_variance(&model->head);
    if (!kinds[i].tied) {
      const double square = mean_square(model->embedding.data, DTYPE_F16, 90 * 64, 1);
      assert_true(square > 0.3 && square < 0.37); /* even in -1 .. 1 */
    }
    model_close(model);
  }
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

TEST(refuses_what_no_checkpoint_can_be) {
  Tiny tiny;
  tiny_llama(&tiny);
  tiny.group = 24; /* of 32 inputs */
  char *directory = make_directory();
  write_config(&tiny, directory);
  assert_dummy_refused(directory, STATUS_MODEL, "model.layers.0.self_attn.q_proj", "groups of 24");
  tiny.architecture = "Phi3ForCausalLM";
  tiny.model_type = "phi3";
  tiny.group = 4;
  tiny.intermediate = 100; /* of gate and up together: 200, but neither is of eights */
  write_config(&tiny, directory);
  assert_dummy_refused(directory, STATUS_MODEL, "model.layers.0.mlp.gate_up_proj holds several layers",
                       "of which one has the outputs 0 to 99, expected eights");
  write_text(directory, "config.json", "{\"architectures\": [\"BloomForCausalLM\"]}");
  assert_dummy_refused(directory, STATUS_MODEL, "config.json", "BloomForCausalLM");
  write_text(directory, "config.json", "{");
  assert_dummy_refused(in_directory(directory, "config.json"), STATUS_MODEL, "config.json", "expected a key");
  assert_dummy_refused(in_directory(directory, "nothing.json"), STATUS_MODEL, "nothing.json", "No such file");
  remove_directory(directory);
  directory = make_directory();
  assert_dummy_refused(directory, STATUS_MODEL, "config.json", "No such file");
  remove_directory(directory);
  tiny_free(&tiny);
}

TEST(the_largest_config_is_no_accident) {
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
