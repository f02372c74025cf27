/* test_ak48_limits.c - the packed file at its limits: every field of the header at its least and its largest
 * number, every property that a model can have and the file cannot hold, one at a time, and numbers beyond
 * the first chunk that is converted. test_ak48.c has whole files. */
#include <math.h>

#include "tiny_checkpoint.h"

#include "model/files/ak48.h"
#include "test/tests.h"

/* --- the header */

static const ModelConfig fine = {.hidden = 32,
                                 .intermediate = 48,
                                 .n_layers = 2,
                                 .n_heads = 4,
                                 .n_kv_heads = 2,
                                 .vocab_size = 40,
                                 .max_position = 64,
                                 .head_dim = 12,
                                 .quant.scheme.group = 16};

/* Every size is the largest that config.h allows, and so is the file. */
static const ModelConfig largest = {.hidden = 1 << 20,
                                    .intermediate = 1 << 22,
                                    .n_layers = 4096,
                                    .n_heads = 1 << 14,
                                    .n_kv_heads = 1 << 14,
                                    .vocab_size = 1 << 23,
                                    .max_position = 1 << 30,
                                    .tied_embeddings = 1,
                                    .head_dim = 512,
                                    .quant.scheme.group = 1 << 20};

static const struct {
  const char *name;
  size_t field;
  int32_t largest;
} fields[] = {
    {"dim", offsetof(ModelConfig, hidden), 1048576},
    {"hidden_dim", offsetof(ModelConfig, intermediate), 4194304},
    {"n_layers", offsetof(ModelConfig, n_layers), 4096},
    {"n_heads", offsetof(ModelConfig, n_heads), 16384},
    {"n_kv_heads", offsetof(ModelConfig, n_kv_heads), 16384},
    {"vocab_size", offsetof(ModelConfig, vocab_size), 8388608},
    {"max_seq_len", offsetof(ModelConfig, max_position), 1073741824},
    {"head_dim", offsetof(ModelConfig, head_dim), 512},
    {"group_size", offsetof(ModelConfig, quant.scheme.group), 4194304},
};

/* Encodes and decodes; "" for a header that is taken. */
static const char *decode(const ModelConfig *header, ModelConfig *decoded) {
  static Error err;
  unsigned char bytes[AK48_HEADER_SIZE];
  err = (Error){{0}};
  ak48_header_encode(header, bytes);
  const Status status = ak48_header_decode("m.ak48", bytes, sizeof bytes, decoded, &err);
  assert_int_equal(status, err.text[0] ? STATUS_MODEL : STATUS_OK);
  return err.text;
}

TEST(each_field_has_its_range) {
  ModelConfig decoded = {0};
  assert_string_equal(decode(&fine, &decoded), "");
  for (size_t i = 0; i < sizeof fields / sizeof *fields; i++) {
    const int32_t beyond[] = {0, -1, INT32_MIN, fields[i].largest + 1}, within[] = {1, fields[i].largest};
    for (size_t k = 0; k < 6; k++) {
      const bool refused = k < 4;
      const int32_t value = refused ? beyond[k] : within[k - 4];
      char message[120];
      ModelConfig header = fine;
      memcpy((char *)&header + fields[i].field, &value, sizeof value);
      snprintf(message, sizeof message, "m.ak48: %s is %d, expected 1 to %d", fields[i].name, value,
               fields[i].largest);
      const char *found = decode(&header, &decoded);
      /* Within its range it may still be at odds with the others. */
      if (refused ? strcmp(found, message) != 0 : strstr(found, "expected 1 to") != NULL)
        fail_msg("%s = %d: \"%s\"", fields[i].name, value, found);
    }
  }
}

TEST(what_is_encoded_is_decoded) {
  const ModelConfig *const headers[] = {&fine, &largest};
  for (size_t i = 0; i < 2; i++) {
    ModelConfig decoded = {0};
    assert_string_equal(decode(headers[i], &decoded), "");
    for (size_t k = 0; k < sizeof fields / sizeof *fields; k++)
      assert_memory_equal((char *)&decoded + fields[k].field, (const char *)headers[i] + fields[k].field, 4);
    assert_int_equal(decoded.tied_embeddings, headers[i]->tied_embeddings);
  }
}

TEST(sizes_that_are_at_odds_are_refused) {
  static const struct {
    size_t field;
    int32_t value;
    const char *message; /* "": taken */
  } cases[] = {
      {offsetof(ModelConfig, quant.scheme.group), 31,
       "group_size is 31, expected a divisor of the 32 inputs of self_attn.q_proj"},
      {offsetof(ModelConfig, quant.scheme.group), 47,
       "group_size is 47, expected a divisor of the 32 inputs of self_attn.q_proj"},
      {offsetof(ModelConfig, quant.scheme.group), 1, ""},
      {offsetof(ModelConfig, intermediate), 40,
       "group_size is 16, expected a divisor of the 40 inputs of mlp.down_proj"},
      {offsetof(ModelConfig, intermediate), 16, ""},
      {offsetof(ModelConfig, n_kv_heads), 3, "n_heads is 4, expected a multiple of n_kv_heads, 3"},
      {offsetof(ModelConfig, n_kv_heads), 8, "n_heads is 4, expected a multiple of n_kv_heads, 8"},
      {offsetof(ModelConfig, n_kv_heads), 4, ""},
      {offsetof(ModelConfig, n_kv_heads), 1, "self_attn.k_proj has 12 outputs, expected a multiple of 8"},
      {offsetof(ModelConfig, head_dim), 11, "head_dim is 11, expected an even number up to 512"},
      {offsetof(ModelConfig, head_dim), 14, "self_attn.k_proj has 28 outputs, expected a multiple of 8"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    char message[160] = "";
    ModelConfig header = fine, decoded = {0};
    memcpy((char *)&header + cases[i].field, &cases[i].value, sizeof cases[i].value);
    if (*cases[i].message) snprintf(message, sizeof message, "m.ak48: %s", cases[i].message);
    assert_string_equal(decode(&header, &decoded), message);
  }
}

/* Every byte between the fields and the body is zero. */
TEST(no_byte_of_the_padding_is_free) {
  unsigned char bytes[AK48_HEADER_SIZE];
  for (int at = 45; at < AK48_HEADER_SIZE; at++) {
    char message[100];
    ModelConfig decoded = {0};
    Error err = {{0}};
    ak48_header_encode(&fine, bytes);
    assert_int_equal(bytes[at], 0);
    bytes[at] = 1;
    assert_int_equal(ak48_header_decode("m.ak48", bytes, sizeof bytes, &decoded, &err), STATUS_MODEL);
    snprintf(message, sizeof message, "m.ak48: byte %d of the header is 1, expected 0", at);
    assert_string_equal(err.text, message);
  }
  ModelConfig decoded = {0};
  Error err = {{0}};
  ak48_header_encode(&fine, bytes);
  assert_int_equal(ak48_header_decode("m", bytes, 255, &decoded, &err), STATUS_MODEL);
  assert_string_equal(err.text, "m: truncated: 255 bytes, expected at least the header's 256");
}

/* The size of a body by the specification: fp16 norms, embedding and head, 4.5 bits and more a weight. */
static uint64_t size_of(const ModelConfig *h, bool qk_norm) {
  const uint64_t dim = (uint64_t)h->hidden, wide = (uint64_t)h->intermediate, head = (uint64_t)h->head_dim;
  const uint64_t q = (uint64_t)h->n_heads * head, kv = (uint64_t)h->n_kv_heads * head;
  const uint64_t sizes[7][2] = {{dim, q},    {dim, kv},   {dim, kv},  {q, dim},
                                {dim, wide}, {wide, dim}, {dim, wide}};
  uint64_t layer = 2 * dim * 2 + (qk_norm ? 2 * head * 2 : 0);
  for (int i = 0; i < 7; i++)
    layer +=
        sizes[i][0] * sizes[i][1] / 2 + sizes[i][0] / (uint64_t)h->quant.scheme.group * sizes[i][1] * 5 / 2;
  const uint64_t table = (uint64_t)h->vocab_size * dim * 2;
  return 256 + (uint64_t)h->n_layers * layer + dim * 2 + table * (h->tied_embeddings ? 1 : 2);
}

TEST(even_the_largest_body_has_a_size) {
  ModelConfig own_head = largest;
  own_head.tied_embeddings = 0;
  const ModelConfig *const headers[] = {&fine, &largest, &own_head};
  for (size_t i = 0; i < 6; i++) {
    uint64_t end;
    assert_int_equal(ak48_walk(headers[i / 2], i % 2, NULL, NULL, &end, NULL), STATUS_OK);
    assert_true(end == size_of(headers[i / 2], i % 2));
    assert_true(end < (uint64_t)1 << 59);
  }
}

TEST(a_packed_file_is_known_by_its_first_bytes) {
  static const struct {
    const char *text;
    bool packed;
  } cases[] = {{"", false},      {"84k", false},  {"84ka", true},
               {"84ka\5", true}, {"ak48", false}, {"85ka", false}};
  char *directory = make_directory();
  Error err = {{0}};
  bool packed;
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    write_text(directory, "m", cases[i].text);
    assert_int_equal(ak48_is(in_directory(directory, "m"), &packed, &err), STATUS_OK);
    assert_int_equal(packed, cases[i].packed);
  }
  assert_int_equal(ak48_is(in_directory(directory, "none"), &packed, &err), STATUS_MODEL);
  assert_contains(err.text, "none");
  remove_directory(directory);
}

/* --- what it cannot say of a model */

/* `change` is made to the open model m, whose config is c; what is then said of it holds `words`. */
#define CANNOT_HOLD(change, words)                                                                           \
  do {                                                                                                       \
    Model *m = open_fine(directory, NULL);                                                                   \
    ModelConfig *c = &m->config;                                                                             \
    Error err = {{0}};                                                                                       \
    assert_int_equal(ak48_check_fits(m, NULL, &err), STATUS_OK);                                             \
    change;                                                                                                  \
    assert_int_equal(c->n_layers, 2);                                                                        \
    assert_int_equal(ak48_check_fits(m, NULL, &err), STATUS_MODEL);                                          \
    assert_contains(err.text, directory);                                                                    \
    assert_contains(err.text, words);                                                                        \
    model_close(m);                                                                                          \
  } while (0)

TEST(each_thing_that_a_config_says_beyond_it_is_named) {
  Tiny tiny;
  tiny_qwen3(&tiny);
  char *directory = write_tiny(&tiny);
  CANNOT_HOLD(c->text_part = true, "Qwen3ForCausalLM has the text part of a larger model, which cannot be");
  CANNOT_HOLD(c->fused = FUSES_ALL, "q, k and v stored as one matrix, gate and up too");
  CANNOT_HOLD(c->norms = NORM_AROUND, "norms before and after attention");
  CANNOT_HOLD(c->norms = NORM_AFTER, "norms after attention");
  CANNOT_HOLD(c->norm = NORM_PLUS_ONE, "norms of 1 + weight");
  CANNOT_HOLD(c->qk_norm = QK_NORM_WHOLE, "a norm over all heads of q and of k");
  CANNOT_HOLD(c->qk_norm = QK_NORM_CENTRED, "norms of each head of q and of k that subtract the mean");
  CANNOT_HOLD(c->activation = ACTIVATION_GELU_TANH, "gelu_pytorch_tanh (norm_gate_up of layer 0)");
  CANNOT_HOLD(c->embedding_scale = 2, "embedding times 2");
  CANNOT_HOLD(c->attention_scale *= 2, "scores times ");
  CANNOT_HOLD(c->residual_scale = 0.5, "what layers add times 0.5");
  CANNOT_HOLD(c->norm = NORM_CENTRED, "norms that subtract the mean");
  CANNOT_HOLD(c->parallel = PARALLEL_ONE_NORM, "the gated product beside attention");
  CANNOT_HOLD(c->head_bias = true, "an output head with a bias");
  CANNOT_HOLD(c->altup.n = 2, "several residual streams");
  CANNOT_HOLD(c->gate_scale = 0.5, "gates of MLPs times 0.5");
  CANNOT_HOLD(c->mlp_scale = 0.5, "gated products times 0.5");
  CANNOT_HOLD(c->logit_divisor = 2, "logits divided by 2");
  CANNOT_HOLD(c->attention_cap = 50, "scores capped at 50");
  CANNOT_HOLD(c->logit_cap = 30, "logits capped at 30");
  CANNOT_HOLD(c->rope.rotary_dim = 10, "a rope over a part of the head");
  CANNOT_HOLD(c->layers[1].rope = ROPE_NONE,
              "another rope than the model's (norm_qkv_rope_append of layer 1)");
  CANNOT_HOLD(c->layers[0].rope = ROPE_LOCAL,
              "another rope than the model's (norm_qkv_rope_append of layer 0)");
  CANNOT_HOLD(c->rope.kind = ROPE_LINEAR, "rope scaling \"linear\"");
  CANNOT_HOLD(c->rope.kind = ROPE_LLAMA3, "rope scaling \"llama3\"");
  CANNOT_HOLD(c->rope.kind = ROPE_YARN, "rope scaling \"yarn\"");
  CANNOT_HOLD(c->rope.kind = ROPE_LONGROPE, "rope scaling \"longrope\"");
  CANNOT_HOLD(c->layers[1].window = 63, "the sliding window of 63 positions (layer 1) cannot be written");
  CANNOT_HOLD(c->layers[0].window = 1, "the sliding window of 1 positions (layer 0) cannot be written");
  CANNOT_HOLD(c->max_position = 0, "max_seq_len is 0, expected 1 to 1073741824"); /* what would not be read */
  remove_directory(directory);
  tiny_free(&tiny);
}

TEST(each_thing_that_a_layer_is_beyond_it_is_named) {
  static const float bias[48];
  Tiny tiny;
  tiny_qwen3(&tiny);
  char *directory = write_tiny(&tiny);
#define LAST "model.layers.1.mlp.up_proj " /* the last to be written */
  CANNOT_HOLD(m->layers[1].up.kind = LINEAR_DENSE, LAST "is not quantised");
  CANNOT_HOLD(m->layers[1].up.kind = LINEAR_INT8, LAST "multiplies int8 activations");
  CANNOT_HOLD((m->layers[1].up.kind = LINEAR_GROUPED, m->layers[1].up.bits = 8),
              LAST "has weights of 8 bits");
  CANNOT_HOLD(m->layers[1].up.kind = LINEAR_GROUPED, LAST "has scales or zero points that AutoAWQ's layout");
  CANNOT_HOLD(m->layers[1].up.bias = ((Vector){bias, DTYPE_F32, 48}), LAST "has a bias");
  CANNOT_HOLD(m->layers[1].up.group = 8, LAST "has groups of 8, others have groups of 16");
  CANNOT_HOLD(m->layers[0].q.kind = LINEAR_DENSE, "model.layers.0.self_attn.q_proj is not quantised");
  CANNOT_HOLD(m->head.kind = LINEAR_AWQ, "lm_head is quantised, which a packed file cannot hold");
#undef LAST
  remove_directory(directory);
  tiny_free(&tiny);
}

/* --- numbers beyond the first chunk */

enum { VOCAB = 300, CELLS = VOCAB * 32 }; /* 9,600 numbers: 8,192 and a rest */

TEST(every_number_of_a_long_tensor_is_converted) {
  Tiny tiny;
  tiny_llama(&tiny);
  tiny_free(&tiny);
  tiny.vocab_size = VOCAB;
  tiny_make(&tiny);
  TinyTensor *embedding = tiny_replace(&tiny, "model.embed_tokens.weight", "F32", 2, VOCAB, 32);
  uint16_t expected[CELLS];
  for (size_t i = 0; i < CELLS; i++) {
    const float value = (float)((int)i - 4800) * 0.125f; /* fp16 holds what is below 2^11 eighths, and more */
    const float even = f16_to_float(float_to_f16(value));
    memcpy(embedding->data + 4 * i, &even, 4);
    expected[i] = float_to_f16(even);
  }
  memcpy(embedding->data + 40, "\x00\x00\xc0\x7f", 4); /* a NaN of fp16 is none of ours to judge */
  expected[10] = 0x7e00;
  char *source = write_tiny(&tiny), *directory = make_directory(), *path = in_directory(directory, "m.ak48");
  Model *model = open_fine(source, NULL);
  Error err = {{0}};
  Buffer file = {0};
  if (pack_model(model, path, NULL, &err) != STATUS_OK) fail_msg("%s", err.text);
  model_close(model);
  assert_int_equal(file_read(path, SIZE_MAX, &file, NULL), STATUS_OK);
  assert_memory_equal(file.data + 256 + 5 * 32 * 2, expected, sizeof expected); /* after five norms */
  buffer_release(&file);

  static const size_t places[] = {0, 8191, 8192, 8193, CELLS - 1};
  for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
    char part[80];
    const float before = f16_to_float(expected[places[i]]), bad = 0.1f;
    memcpy(embedding->data + 4 * places[i], &bad, 4);
    write_tensors(&tiny, 0, tiny.n_tensors, 0, source, "model.safetensors");
    memcpy(embedding->data + 4 * places[i], &before, 4);
    model = open_fine(source, NULL);
    assert_int_equal(ak48_check_fits(model, NULL, &err), STATUS_MODEL);
    snprintf(part, sizeof part, "model.embed_tokens.weight is F32 and its element %zu, 0.1", places[i]);
    assert_contains(err.text, part);
    model_close(model);
  }
  remove_directory(source);
  remove_directory(directory);
  tiny_free(&tiny);
}

/* --- what is read where nothing lies beside it */

static char *write_packed(Tiny *tiny) {
  char *source = write_tiny(tiny), *directory = make_directory();
  Model *model = open_fine(source, NULL);
  Error err = {{0}};
  if (pack_model(model, in_directory(directory, "m.ak48"), NULL, &err) != STATUS_OK) fail_msg("%s", err.text);
  model_close(model);
  remove_directory(source);
  return directory;
}

TEST(a_file_alone_has_neutral_settings) {
  Tiny tiny;
  tiny_qwen3(&tiny);
  char *directory = write_packed(&tiny);
  Model *model = open_fine(in_directory(directory, "m.ak48"), NULL);
  const ModelConfig *c = &model->config;
  assert_true(c->embedding_scale == 1 && c->residual_scale == 1 && c->logit_divisor == 1);
  assert_true(c->attention_scale == 1 / sqrt(12) && c->attention_cap == 0 && c->logit_cap == 0);
  assert_true(c->norms == NORM_BEFORE && c->norm == NORM_RMS && c->activation == ACTIVATION_SILU);
  assert_true(!c->qkv_bias && !c->o_bias && !c->mlp_bias && !c->fused && !c->text_part);
  assert_true(c->rope.rotary_dim == 12 && c->rope.kind == ROPE_PLAIN &&
              rope_original_context(c) == INT32_MAX);
  assert_true(c->generation.temperature == 1 && c->generation.top_p == 1 && c->generation.min_p == 0);
  assert_true(c->generation.repetition_penalty == 1 && c->generation.top_k == 0 && !c->generation.do_sample);
  assert_true(c->bos == -1 && c->n_eos == 0 && !c->tied_embeddings);
  for (int layer = 0; layer < c->n_layers; layer++) {
    assert_int_equal(config_layer(c, layer).rope, ROPE_GLOBAL);
    for (int which = 0; which < N_PACKED_LINEARS; which++) {
      const Linear *linear = layer_linear(&model->layers[layer], which);
      int n_in, n_out;
      layer_linear_sizes(c, layer, which, &n_in, &n_out);
      assert_true(linear->n_in == n_in && linear->n_out == n_out && linear->bits == 4 && linear->skip == 0);
      assert_true(!linear->bias.data && linear->bias.n == 0);
    }
  }
  assert_true(model->embedding.n_rows == 40 && model->embedding.n_columns == 32);
  assert_true(model->head.n_in == 32 && model->head.n_out == 40 && model->head.kind == LINEAR_DENSE);
  assert_string_equal(model->head.name, "lm_head");
  model_close(model);
  remove_directory(directory);
  tiny_free(&tiny);
}

/* A config.json beside a file of q and k norms, and beside one without. */
TEST(a_config_beside_it_says_nothing_that_it_cannot_hold) {
  static const struct {
    const char *architecture, *model_type, *members, *part;
    bool qwen3;
  } cases[] = {
      {"LlamaForCausalLM", "llama", "", "LlamaForCausalLM has no q and k norms, but by its length ", true},
      {"LlamaForCausalLM", "llama", ", \"mlp_bias\": true", "LlamaForCausalLM has biases, which", false},
      {"Qwen3ForCausalLM", "qwen3", ", \"attention_bias\": true", "Qwen3ForCausalLM has biases, which", true},
      {"GraniteForCausalLM", "granite", ", \"logits_scaling\": 8, \"attention_multiplier\": 0.25",
       "GraniteForCausalLM has logits divided by 8 (norm_logits), which a packed file cannot hold, "
       "but ",
       false},
      {"Phi3ForCausalLM", "phi3", "",
       "Phi3ForCausalLM has q, k and v stored as one matrix, gate and up too (", false},
      {"Olmo2ForCausalLM", "olmo2", "", "Olmo2ForCausalLM has a norm over all heads of q and of k (", false},
      {"SmolLM3ForCausalLM", "smollm3", ", \"no_rope_layers\": [1, 0]",
       "SmolLM3ForCausalLM has another rope than the model's (norm_qkv_rope_append of layer 1)", false},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    Tiny tiny;
    if (cases[i].qwen3)
      tiny_qwen3(&tiny);
    else
      tiny_llama(&tiny);
    char *directory = write_packed(&tiny);
    tiny.architecture = cases[i].architecture;
    tiny.model_type = cases[i].model_type;
    tiny.extra_config = cases[i].members;
    write_config(&tiny, directory);
    OPEN_REFUSED(in_directory(directory, "m.ak48"), NULL, STATUS_MODEL, "config.json", cases[i].part,
                 "m.ak48", "beside it");
    remove_directory(directory);
    tiny_free(&tiny);
  }
}
