/* test_prepare.c - quantised layers that are larger than a tile and a chunk of prepare.c, in every layout:
 * each weight of each Linear against the formula of models.md over what was stored.
 *
 * The numbers q, zero and scale are made here and packed here, by the layouts' specifications and one at a
 * time; what model_prepare() makes of the files is read back by model.h's description of a Linear. */
#include <math.h>

#include "test/tests.h"
#include "tiny_checkpoint.h"

/* 264 and 296 are two and more tiles in each direction, and no multiple of a tile: of 4 bits, 33 and 37 words
 * of inputs and two tiles of 128 outputs and a rest. Groups of 4 are 66 and 74 groups, more than a chunk. */
enum { HIDDEN = 264, INTERMEDIATE = 296, HEAD_DIM = 24, MAX_OUT = 2 * INTERMEDIATE };

typedef struct {
  const char *name, *scales; /* for messages; dtype of the scales */
  QuantMethod method;
  int bits, group; /* -1: one for all inputs */
  bool zeros;      /* stored; else all are the middle */
  bool less_one;   /* GPTQ, version 1: zeros are stored less one */
  int largest_zero;
} Case;

static const Case cases[] = {
    {"awq", "F16", QUANT_AWQ, 4, 8, true, false, 15},
    {"awq, bf16 scales", "BF16", QUANT_AWQ, 4, 4, true, false, 15},
    {"awq, fp32 scales", "F32", QUANT_AWQ, 4, -1, true, false, 15},
    {"awq, symmetric", "F16", QUANT_AWQ, 4, 8, false, false, 8},
    {"gptq", "F16", QUANT_GPTQ, 4, 8, true, true, 15},
    {"gptq, zero points of 16", "BF16", QUANT_GPTQ, 4, 4, true, true, 16},
    {"gptq_v2", "F32", QUANT_GPTQ, 4, -1, true, false, 15},
    {"gptq, symmetric", "F16", QUANT_GPTQ, 4, 8, false, true, 8},
    {"gptq of 8 bits", "F16", QUANT_GPTQ, 8, 4, true, true, 255},
    {"gptq_v2 of 8 bits, symmetric", "BF16", QUANT_GPTQ, 8, -1, false, false, 128},
    {"packed", "BF16", QUANT_PACKED, 4, 4, true, false, 15},
    {"packed, a channel", "F32", QUANT_PACKED, 4, -1, false, false, 8},
    {"packed of 8 bits", "F16", QUANT_PACKED, 8, 8, true, false, 255},
    {"bytes", "BF16", QUANT_BYTES, 8, -1, false, false, 128},
    {"int8 activations", "F32", QUANT_INT8, 8, -1, false, false, 128},
};
#define N_CASES (sizeof cases / sizeof *cases)

/* --- numbers, each from where it is: the same wherever it is asked for */

static uint32_t mix(uint32_t a, uint32_t b, uint32_t c) {
  uint32_t x = a * 2654435761u ^ b * 2246822519u ^ c * 3266489917u;
  x = (x ^ x >> 15) * 2246822519u;
  return x ^ x >> 13;
}

/* Number q of input i and output o of matrix m: all values come. */
static int q_of(const Case *c, int m, int i, int o) {
  return (int)(mix((uint32_t)(i * MAX_OUT + o), (uint32_t)m, 1) >> 7) & ((1 << c->bits) - 1);
}

static int zero_of(const Case *c, int m, int g, int o) {
  if (!c->zeros) return 1 << (c->bits - 1);
  const int least = c->less_one, range = c->largest_zero - least + 1;
  return least + (int)(mix((uint32_t)(g * MAX_OUT + o), (uint32_t)m, 2) >> 8) % range;
}

/* Eight bits of mantissa, which fp16 and bf16 hold exactly. */
static float scale_of(int m, int g, int o) {
  return (float)(128 + (mix((uint32_t)(g * MAX_OUT + o), (uint32_t)m, 3) >> 9) % 128) * 0x1p-12f;
}

/* --- the files */

static void put_float(unsigned char *at, const char *dtype, float value) {
  uint16_t half = strcmp(dtype, "F16") == 0 ? float_to_f16(value) : (uint16_t)(float_bits(value) >> 16);
  if (strcmp(dtype, "F32") == 0)
    memcpy(at, &value, 4);
  else
    memcpy(at, &half, 2);
}

static TinyTensor *add_zeros(Tiny *tiny, const char *base, const char *suffix, const char *dtype, int rows,
                             int columns) {
  char name[128];
  snprintf(name, sizeof name, "%s%s", base, suffix);
  TinyTensor *tensor = tiny_add(tiny, name, dtype, 2, rows, columns);
  memset(tensor->data, 0, tensor->bytes);
  return tensor;
}

/* Puts number `value` of `bits` bits at place k of word (row, column). */
static void put_bits(TinyTensor *tensor, int row, int column, int bits, int k, int value) {
  const size_t at = ((size_t)row * (size_t)tensor->shape[1] + (size_t)column) * 4;
  uint32_t word;
  memcpy(&word, tensor->data + at, 4);
  word |= (uint32_t)value << bits * k;
  memcpy(tensor->data + at, &word, 4);
}

static void put_scales(TinyTensor *tensor, int m, int groups, int n_out, bool outputs_first) {
  const size_t size = dtype_size(tensor->dtype);
  for (int g = 0; g < groups; g++) {
    for (int o = 0; o < n_out; o++) {
      size_t at = outputs_first ? (size_t)(o * groups + g) : (size_t)(g * n_out + o);
      put_float(tensor->data + at * size, tensor->dtype, scale_of(m, g, o));
    }
  }
}

static const int nibble_of[8] = {0, 4, 1, 5, 2, 6, 3, 7}; /* where AutoAWQ has column k of eight */

static void add_awq(Tiny *tiny, const Case *c, const char *base, int m, int n_in, int groups, int n_out) {
  TinyTensor *q = add_zeros(tiny, base, ".qweight", "I32", n_in, n_out / 8);
  for (int i = 0; i < n_in; i++)
    for (int o = 0; o < n_out; o++) put_bits(q, i, o / 8, 4, nibble_of[o % 8], q_of(c, m, i, o));
  TinyTensor *z = c->zeros ? add_zeros(tiny, base, ".qzeros", "I32", groups, n_out / 8) : NULL;
  for (int g = 0; z && g < groups; g++)
    for (int o = 0; o < n_out; o++) put_bits(z, g, o / 8, 4, nibble_of[o % 8], zero_of(c, m, g, o));
  put_scales(add_zeros(tiny, base, ".scales", c->scales, groups, n_out), m, groups, n_out, false);
}

static void add_gptq(Tiny *tiny, const Case *c, const char *base, int m, int n_in, int groups, int n_out) {
  const int per_word = 32 / c->bits;
  TinyTensor *q = add_zeros(tiny, base, ".qweight", "I32", n_in / per_word, n_out);
  for (int i = 0; i < n_in; i++)
    for (int o = 0; o < n_out; o++) put_bits(q, i / per_word, o, c->bits, i % per_word, q_of(c, m, i, o));
  TinyTensor *z = c->zeros ? add_zeros(tiny, base, ".qzeros", "I32", groups, n_out / per_word) : NULL;
  for (int g = 0; z && g < groups; g++)
    for (int o = 0; o < n_out; o++)
      put_bits(z, g, o / per_word, c->bits, o % per_word, zero_of(c, m, g, o) - c->less_one);
  put_scales(add_zeros(tiny, base, ".scales", c->scales, groups, n_out), m, groups, n_out, false);
}

static void add_packed(Tiny *tiny, const Case *c, const char *base, int m, int n_in, int groups, int n_out) {
  const int per_word = 32 / c->bits;
  TinyTensor *q = add_zeros(tiny, base, ".weight_packed", "I32", n_out, n_in / per_word);
  for (int i = 0; i < n_in; i++)
    for (int o = 0; o < n_out; o++) put_bits(q, o, i / per_word, c->bits, i % per_word, q_of(c, m, i, o));
  TinyTensor *z =
      c->zeros ? add_zeros(tiny, base, ".weight_zero_point", "I32", n_out / per_word, groups) : NULL;
  for (int g = 0; z && g < groups; g++)
    for (int o = 0; o < n_out; o++) put_bits(z, o / per_word, g, c->bits, o % per_word, zero_of(c, m, g, o));
  put_scales(add_zeros(tiny, base, ".weight_scale", c->scales, n_out, groups), m, groups, n_out, true);
}

static void add_bytes(Tiny *tiny, const Case *c, const char *base, int m, int n_in, int n_out) {
  TinyTensor *q = add_zeros(tiny, base, ".weight", "I8", n_out, n_in);
  for (int i = 0; i < n_in; i++)
    for (int o = 0; o < n_out; o++)
      q->data[(size_t)o * (size_t)n_in + (size_t)i] = (unsigned char)(q_of(c, m, i, o) - 128);
  put_scales(add_zeros(tiny, base, ".weight_scale", c->scales, n_out, 1), m, 1, n_out, true);
}

static void add_matrix(Tiny *tiny, const Case *c, const char *base, int m, int n_in, int n_out) {
  const int groups = c->group < 1 ? 1 : n_in / c->group;
  char name[128];
  switch (c->method) {
  case QUANT_NONE: /* dense: the scales are the weights, each in a group of its own */
    put_scales(add_zeros(tiny, base, ".weight", c->scales, n_out, n_in), m, n_in, n_out, true);
    break;
  case QUANT_AWQ: add_awq(tiny, c, base, m, n_in, groups, n_out); break;
  case QUANT_GPTQ: add_gptq(tiny, c, base, m, n_in, groups, n_out); break;
  case QUANT_PACKED: add_packed(tiny, c, base, m, n_in, groups, n_out); break;
  default: add_bytes(tiny, c, base, m, n_in, n_out); break;
  }
  snprintf(name, sizeof name, "%s.bias", base);
  tiny_add(tiny, name, m < LAYER_GATE ? "F16" : "F32", 1, n_out, 1);
}

static const char *quant_config(const Case *c) {
  static char text[400];
  const char *const symmetric = c->zeros ? "false" : "true";
  if (c->method == QUANT_NONE) return "";
  if (c->method == QUANT_AWQ)
    snprintf(text, sizeof text,
             ", \"quantization_config\": {\"quant_method\": \"awq\", \"group_size\": %d, "
             "\"zero_point\": %s}",
             c->group, c->zeros ? "true" : "false");
  else if (c->method == QUANT_GPTQ)
    snprintf(text, sizeof text,
             ", \"quantization_config\": {\"quant_method\": \"gptq\", \"group_size\": %d, "
             "\"sym\": %s, \"bits\": %d, \"format\": \"%s\"}",
             c->group, symmetric, c->bits, c->less_one ? "gptq" : "gptq_v2");
  else
    snprintf(text, sizeof text,
             ", \"quantization_config\": {\"quant_method\": \"compressed-tensors\", \"format\": \"%s\", "
             "\"config_groups\": {\"g\": {\"targets\": [\"Linear\"], \"weights\": {\"num_bits\": %d, "
             "\"group_size\": %d, \"symmetric\": %s}%s}}}",
             c->method == QUANT_PACKED ? "pack-quantized" : "int-quantized", c->bits, c->group, symmetric,
             c->method == QUANT_INT8 ? ", \"input_activations\": {\"dynamic\": true, \"strategy\": \"token\"}"
                                     : "");
  return text;
}

/* One layer. Its matrix m is stored as layer m or, fused, as the matrix that begins with layer m. */
static void make_model(Tiny *tiny, const Case *c, bool fused) {
  *tiny = (Tiny){.architecture = fused ? "Phi3ForCausalLM" : "LlamaForCausalLM",
                 .model_type = fused ? "phi3" : "llama",
                 .hidden = HIDDEN,
                 .intermediate = INTERMEDIATE,
                 .n_layers = 1,
                 .n_heads = HIDDEN / HEAD_DIM,
                 .n_kv_heads = 1,
                 .head_dim = HEAD_DIM,
                 .vocab_size = 8,
                 .max_position = 64,
                 .tied = true,
                 .random = 1,
                 .extra_config = quant_config(c)};
  const ModelConfig config = {.hidden = HIDDEN,
                              .intermediate = INTERMEDIATE,
                              .n_heads = HIDDEN / HEAD_DIM,
                              .n_kv_heads = 1,
                              .head_dim = HEAD_DIM,
                              .fused = fused ? FUSES_ALL : FUSES_NONE};
  tiny_add(tiny, "model.embed_tokens.weight", "F16", 2, 8, HIDDEN);
  tiny_add(tiny, "model.norm.weight", "F16", 1, HIDDEN, 1);
  tiny_add(tiny, "model.layers.0.input_layernorm.weight", "F16", 1, HIDDEN, 1);
  tiny_add(tiny, "model.layers.0.post_attention_layernorm.weight", "F16", 1, HIDDEN, 1);
  for (int which = 0; which < N_PACKED_LINEARS; which++) {
    const StoredLinear stored = layer_linear_stored(&config, 0, which);
    char base[LINEAR_NAME_SIZE];
    int n_in, n_out;
    if (stored.first_part != which) continue;
    layer_linear_sizes(&config, 0, which, &n_in, &n_out);
    snprintf(base, sizeof base, "model.layers.0.%s", stored.name);
    add_matrix(tiny, c, base, which, n_in, stored.n_out);
  }
}

/* --- a Linear, as model.h has it */

static int nibble(const void *data, size_t row_bytes, size_t row, size_t column) {
  const int place = nibble_of[column % 8];
  const unsigned char *bytes = (const unsigned char *)data + row * row_bytes + column / 8 * 4;
  return bytes[place / 2] >> place % 2 * 4 & 15;
}

static int q_at(const Linear *linear, size_t i, size_t o) {
  const size_t columns = (size_t)(linear->n_out + linear->skip);
  if (linear->bits == 4) return nibble(linear->qweight, columns / 2, i, o);
  return ((const uint8_t *)linear->qweight)[i * columns + o];
}

static int zero_at(const Linear *linear, size_t g, size_t o) {
  const size_t columns = (size_t)(linear->n_out + linear->skip);
  if (linear->kind == LINEAR_AWQ) return nibble(linear->qzeros, columns / 2, g, o);
  return ((const uint8_t *)linear->qzeros)[g * columns + o];
}

static float scale_at(const Linear *linear, size_t g, size_t o) {
  const size_t columns = linear->kind == LINEAR_INT8 ? 0 : (size_t)(linear->n_out + linear->skip);
  float value;
  floats_read(linear->scales, linear->kind == LINEAR_AWQ ? DTYPE_F16 : DTYPE_F32, g * columns + o, 1, &value);
  return value;
}

/* --- comparing them */

static void assert_groups(const Case *c, const Linear *linear, int m, int first) {
  for (int g = 0; g < linear->n_in / linear->group; g++) {
    for (int o = 0; o < linear->n_out; o++) {
      const float scale = scale_at(linear, (size_t)g, (size_t)o);
      if (scale != scale_of(m, g, first + o))
        fail_msg("%s: %s: scale %d, %d is %a", c->name, linear->name, g, o, (double)scale);
      if (linear->kind == LINEAR_INT8) continue;
      const int zero = zero_at(linear, (size_t)g, (size_t)o);
      if (zero != zero_of(c, m, g, first + o))
        fail_msg("%s: %s: zero point %d, %d is %d", c->name, linear->name, g, o, zero);
    }
  }
}

static void assert_weights(const Case *c, const Linear *linear, int m, int first) {
  const bool rows = linear->kind == LINEAR_INT8; /* of outputs, signed */
  for (int i = 0; i < linear->n_in; i++) {
    for (int o = 0; o < linear->n_out; o++) {
      const int q = rows
                        ? ((const int8_t *)linear->weight)[(size_t)o * (size_t)linear->n_in + (size_t)i] + 128
                        : q_at(linear, (size_t)i, (size_t)o);
      if (q != q_of(c, m, i, first + o))
        fail_msg("%s: %s: weight %d, %d is %d", c->name, linear->name, i, o, q);
    }
  }
}

static void assert_bias(Tiny *tiny, const Linear *linear, int first) {
  char name[128];
  snprintf(name, sizeof name, "%s.bias", linear->name);
  const TinyTensor *bias = tiny_find(tiny, name);
  const size_t size = dtype_size(bias->dtype);
  assert_int_equal(linear->bias.n, linear->n_out);
  assert_string_equal(dtype_name(linear->bias.dtype), bias->dtype);
  assert_memory_equal(linear->bias.data, bias->data + (size_t)first * size, (size_t)linear->n_out * size);
}

static LinearKind kind_of(const Case *c) {
  if (c->method == QUANT_INT8) return LINEAR_INT8;
  return c->bits == 4 && c->largest_zero < 16 ? LINEAR_AWQ : LINEAR_GROUPED;
}

/* The bytes that model_prepare() allocates for it, and those of the files that it no longer needs: models.md,
 * "What is repacked". */
static void add_expected_bytes(const Case *c, const Linear *linear, bool fused_part, size_t *made,
                               size_t *replaced) {
  const size_t n_in = (size_t)linear->n_in, n_out = (size_t)linear->n_out;
  const size_t groups = n_in / (size_t)linear->group, weights = n_in * n_out * (size_t)c->bits / 8;
  if (c->method == QUANT_INT8) {
    *made += n_out * 4;
    return;
  }
  const bool in_place = c->method == QUANT_AWQ && c->zeros && strcmp(c->scales, "F16") == 0;
  if (in_place) return;
  *made += groups * n_out * (c->bits == 8 ? 10 : 5) / 2;
  if (c->method == QUANT_AWQ && !fused_part) return;
  *made += weights;
  *replaced += weights;
}

/* Numbers that the files store as a Linear has them are there at once, and no others. */
static void assert_as_opened(const Case *c, const Linear *linear, bool fused) {
  const bool parts = fused && !strstr(linear->name, "o_proj") && !strstr(linear->name, "down_proj");
  const bool in_place = c->method == QUANT_AWQ && c->zeros && strcmp(c->scales, "F16") == 0;
  const bool wide = c->bits == 8 || strcmp(c->scales, "F32") == 0;
  assert_int_equal(linear->kind, c->method == QUANT_INT8 ? LINEAR_INT8 : wide ? LINEAR_GROUPED : LINEAR_AWQ);
  assert_int_equal(linear->weight != NULL, c->method == QUANT_INT8);
  assert_int_equal(linear->qweight != NULL, c->method == QUANT_AWQ && (in_place || !parts));
  assert_int_equal(linear->qzeros != NULL, in_place);
  assert_int_equal(linear->scales != NULL, in_place);
}

static void assert_prepared(const Case *c, bool fused) {
  Tiny tiny;
  Error err = {{0}};
  make_model(&tiny, c, fused);
  char *directory = write_tiny(&tiny);
  Model *model = open_fine(directory, NULL);
  size_t made = 0, replaced = 0;
  for (int which = 0; which < N_PACKED_LINEARS; which++)
    assert_as_opened(c, layer_linear(&model->layers[0], which), fused);
  if (model_prepare(model, fused ? 1 : 3, &err) != STATUS_OK) fail_msg("%s: %s", c->name, err.text);
  for (int which = 0; which < N_PACKED_LINEARS; which++) {
    const Linear *linear = layer_linear(&model->layers[0], which);
    const StoredLinear stored = layer_linear_stored(&model->config, 0, which);
    assert_int_equal(linear->kind, kind_of(c));
    assert_int_equal(linear->bits, c->bits);
    assert_int_equal(linear->group, c->group == -1 ? linear->n_in : c->group);
    assert_groups(c, linear, stored.first_part, stored.first);
    assert_weights(c, linear, stored.first_part, stored.first);
    assert_bias(&tiny, linear, stored.first);
    add_expected_bytes(c, linear, stored.n_out != linear->n_out, &made, &replaced);
  }
  assert_int_equal(model->made_bytes, made);
  assert_int_equal(model->replaced_bytes, replaced);
  assert_int_equal(model->unused_tensors, 0);
  model_close(model);
  remove_directory(directory);
  tiny_free(&tiny);
}

TEST(every_weight_is_the_one_that_was_stored) {
  for (size_t i = 0; i < N_CASES; i++) assert_prepared(&cases[i], false);
}

TEST(and_so_are_those_of_layers_that_share_a_matrix) {
  for (size_t i = 0; i < N_CASES; i++) assert_prepared(&cases[i], true);
}

TEST(dense_layers_are_views_of_what_was_stored) {
  static const char *const dtypes[] = {"F16", "BF16", "F32"};
  for (int i = 0; i < 6; i++) {
    const Case c = {"dense", dtypes[i % 3], QUANT_NONE, 0, 0, false, false, 0};
    Tiny tiny;
    make_model(&tiny, &c, i < 3);
    char *directory = write_tiny(&tiny);
    Model *model = open_fine(directory, NULL);
    for (int which = 0; which < N_PACKED_LINEARS; which++) {
      const Linear *linear = layer_linear(&model->layers[0], which);
      const StoredLinear stored = layer_linear_stored(&model->config, 0, which);
      const size_t n_in = (size_t)linear->n_in, n = n_in * (size_t)linear->n_out;
      float *weights = malloc(n * sizeof *weights);
      assert_int_equal(linear->kind, LINEAR_DENSE);
      assert_string_equal(dtype_name(linear->dtype), c.scales);
      floats_read(linear->weight, linear->dtype, 0, n, weights);
      for (size_t at = 0; at < n; at++)
        assert_true(weights[at] ==
                    scale_of(stored.first_part, (int)(at % n_in), stored.first + (int)(at / n_in)));
      assert_bias(&tiny, linear, stored.first);
      free(weights);
    }
    assert_int_equal(model->unused_tensors, 0);
    assert_int_equal(model->made_bytes + model->replaced_bytes, 0);
    model_close(model);
    remove_directory(directory);
    tiny_free(&tiny);
  }
}

/* --- scales that are no numbers, anywhere in a long tensor */

static void set_infinite(TinyTensor *tensor, size_t at) {
  put_float(tensor->data + at * dtype_size(tensor->dtype), tensor->dtype, -INFINITY);
}

/* Chunks of 1,024 are looked at by several threads: the first is named wherever it is. */
TEST(the_first_scale_that_is_no_number_is_named) {
  enum { N = HIDDEN / 4 * INTERMEDIATE }; /* of gate_proj in groups of 4: 19,536, no whole chunks */
  static const size_t places[][2] = {{0, 1},       {1023, 1024}, {1024, 1025},   {1025, 5000},
                                     {2047, 2048}, {9999, 9999}, {N - 2, N - 1}, {N - 1, N - 1}};
  static const char *const dtypes[] = {"F16", "BF16", "F32"};
  for (size_t d = 0; d < 3; d++) {
    Case c = {"gptq_v2", dtypes[d], QUANT_GPTQ, 4, 4, true, false, 15};
    Tiny tiny;
    make_model(&tiny, &c, false);
    char *directory = write_tiny(&tiny);
    TinyTensor *scales = tiny_find(&tiny, "model.layers.0.mlp.gate_proj.scales");
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
      char part[100];
      Error err = {{0}};
      put_scales(scales, LAYER_GATE, HIDDEN / 4, INTERMEDIATE, false);
      for (size_t k = 0; k < 2; k++) set_infinite(scales, places[i][k]);
      write_tensors(&tiny, 0, tiny.n_tensors, 0, directory, "model.safetensors");
      Model *model = open_fine(directory, NULL);
      snprintf(part, sizeof part, "mlp.gate_proj.scales: element %zu is -inf", places[i][0]);
      assert_int_equal(model_prepare_scales(model, 1 + (int)i % 3, &err), STATUS_MODEL);
      assert_contains(err.text, part);
      model_close(model);
    }
    remove_directory(directory);
    tiny_free(&tiny);
  }
}
