/* test_ak48.c - the packed file: its bytes, what is written and read back, what is refused, what lies
 * beside it.
 *
 * The expected bytes are put together here by hand from the specification (models.md, "ak48"), not by the
 * code under test: header fields by offset, body by a list of names. */
#include "tiny_checkpoint.h"

#include <signal.h>
#include <sys/resource.h>

#include "base/file.h"
#include "model/files/ak48.h"
#include "test/tests.h"

/* --- the file as the specification has it */

static void put(unsigned char *header, int offset, int value) {
  for (int i = 0; i < 4; i++) header[offset + i] = (unsigned char)((unsigned)value >> 8 * i);
}

static void add_tensor(Buffer *file, Tiny *tiny, const char *name) {
  const TinyTensor *tensor = tiny_find(tiny, name);
  buffer_append(file, tensor->data, tensor->bytes, NULL);
}

static void add_from_layers(Buffer *file, Tiny *tiny, const char *part) {
  for (int i = 0; i < tiny->n_layers; i++) {
    char name[128];
    snprintf(name, sizeof name, "model.layers.%d.%s", i, part);
    add_tensor(file, tiny, name);
  }
}

static void add_linear(Buffer *file, Tiny *tiny, const char *linear) {
  static const char *const parts[] = {"qweight", "qzeros", "scales"};
  for (int i = 0; i < tiny->n_layers; i++) {
    for (int part = 0; part < 3; part++) {
      char name[128];
      snprintf(name, sizeof name, "model.layers.%d.%s.%s", i, linear, parts[part]);
      add_tensor(file, tiny, name);
    }
  }
}

static Buffer expected_file(Tiny *tiny) {
  unsigned char header[256] = {'8', '4', 'k', 'a', 5};
  put(header, 8, tiny->hidden);
  put(header, 12, tiny->intermediate);
  put(header, 16, tiny->n_layers);
  put(header, 20, tiny->n_heads);
  put(header, 24, tiny->n_kv_heads);
  put(header, 28, tiny->vocab_size);
  put(header, 32, tiny->max_position);
  header[36] = tiny->tied;
  put(header, 37, tiny->head_dim);
  put(header, 41, tiny->group);
  Buffer file = {0};
  buffer_append(&file, header, sizeof header, NULL);
  add_from_layers(&file, tiny, "input_layernorm.weight");
  add_from_layers(&file, tiny, "post_attention_layernorm.weight");
  add_tensor(&file, tiny, "model.norm.weight");
  add_tensor(&file, tiny, "model.embed_tokens.weight");
  add_linear(&file, tiny, "self_attn.q_proj");
  add_linear(&file, tiny, "self_attn.k_proj");
  add_linear(&file, tiny, "self_attn.v_proj");
  add_linear(&file, tiny, "self_attn.o_proj");
  add_linear(&file, tiny, "mlp.gate_proj");
  add_linear(&file, tiny, "mlp.down_proj");
  add_linear(&file, tiny, "mlp.up_proj");
  if (!tiny->tied) add_tensor(&file, tiny, "lm_head.weight");
  if (tiny->qk_norm) add_from_layers(&file, tiny, "self_attn.q_norm.weight");
  if (tiny->qk_norm) add_from_layers(&file, tiny, "self_attn.k_norm.weight");
  return file;
}

static Status pack(const Tiny *tiny, const char *path, Error *err) {
  char *directory = write_tiny(tiny);
  Model *model = open_fine(directory, NULL);
  Status status = pack_model(model, path, NULL, err);
  model_close(model);
  remove_directory(directory);
  return status;
}

static void assert_same_bytes(const char *path, const Buffer *expected) {
  Buffer found = {0};
  assert_int_equal(file_read(path, SIZE_MAX, &found, NULL), STATUS_OK);
  assert_int_equal(found.size, expected->size);
  assert_memory_equal(found.data, expected->data, expected->size);
  buffer_release(&found);
}

/* --- what is written and read back */

static void (*const makers[])(Tiny *) = {tiny_qwen3, tiny_llama};

TEST(writes_what_the_specification_says) {
  for (int i = 0; i < 2; i++) {
    Tiny tiny;
    makers[i](&tiny);
    char *directory = make_directory(), *path = in_directory(directory, "m.ak48");
    Error err = {{0}};
    if (pack(&tiny, path, &err) != STATUS_OK) fail_msg("%s", err.text);
    Buffer expected = expected_file(&tiny);
    assert_same_bytes(path, &expected);
    assert_int_equal(count_entries(directory), 1);
    buffer_release(&expected);
    remove_directory(directory);
    tiny_free(&tiny);
  }
}

/* Every tensor of the file reads back under the directory's name with the directory's bytes, and every view
 * of the Model points at the tensor of its name. */
static void assert_reads_back(Tiny *tiny, const Model *model) {
  assert_int_equal(model_tensor_count(model), tiny->n_tensors);
  size_t bytes = 0;
  for (size_t i = 0; i < model_tensor_count(model); i++) {
    const StoredTensor *stored = model_tensor(model, i);
    const TinyTensor *tensor = tiny_find(tiny, stored->name);
    assert_string_equal(stored->dtype_name, tensor->dtype);
    assert_int_equal(stored->rank, tensor->rank);
    assert_memory_equal(stored->shape, tensor->shape, (size_t)tensor->rank * sizeof *stored->shape);
    assert_int_equal(stored->bytes, tensor->bytes);
    assert_memory_equal(stored->data, tensor->data, tensor->bytes);
    bytes += tensor->bytes;
  }
  assert_int_equal(model->weight_bytes, bytes);
  assert_int_equal(model->unused_tensors, 0);
}

static void assert_data(Tiny *tiny, const char *base, const char *part, const void *data) {
  char name[128];
  snprintf(name, sizeof name, "%s%s", base, part);
  const TinyTensor *tensor = tiny_find(tiny, name);
  assert_non_null(data);
  assert_memory_equal(data, tensor->data, tensor->bytes);
}

static void assert_views(Tiny *tiny, const Model *model) {
  assert_data(tiny, "model.embed_tokens.weight", "", model->embedding.data);
  assert_data(tiny, "model.norm.weight", "", model->final_norm.data);
  assert_data(tiny, tiny->tied ? "model.embed_tokens" : "lm_head", ".weight", model->head.weight);
  assert_int_equal(model->head.n_out, tiny->vocab_size);
  for (int i = 0; i < tiny->n_layers; i++) {
    const ModelLayer *layer = &model->layers[i];
    char base[64];
    snprintf(base, sizeof base, "model.layers.%d", i);
    assert_data(tiny, base, ".input_layernorm.weight", layer->attn_norm.data);
    assert_data(tiny, base, ".post_attention_layernorm.weight", layer->mlp_norm.data);
    if (tiny->qk_norm) assert_data(tiny, base, ".self_attn.q_norm.weight", layer->q_norm.data);
    if (tiny->qk_norm)
      assert_data(tiny, base, ".self_attn.k_norm.weight", layer->k_norm.data);
    else
      assert_null(layer->q_norm.data);
    for (int which = 0; which < N_PACKED_LINEARS; which++) {
      const Linear *linear = layer_linear(layer, which);
      assert_int_equal(linear->kind, LINEAR_AWQ);
      assert_int_equal(linear->group, tiny->group);
      assert_data(tiny, linear->name, ".qweight", linear->qweight);
      assert_data(tiny, linear->name, ".qzeros", linear->qzeros);
      assert_data(tiny, linear->name, ".scales", linear->scales);
    }
  }
}

TEST(reads_what_the_specification_says) {
  for (int i = 0; i < 2; i++) {
    Tiny tiny;
    makers[i](&tiny);
    char *directory = make_directory(), *path = in_directory(directory, "m.ak48");
    Buffer bytes = expected_file(&tiny);
    write_file(directory, "m.ak48", bytes.data, bytes.size);
    Model *model = open_fine(path, NULL);
    assert_int_equal(model->layout, LAYOUT_AK48);
    assert_string_equal(model->config.architecture, tiny.architecture);
    assert_int_equal(model->config.head_dim, tiny.head_dim);
    assert_int_equal(model->config.max_position, tiny.max_position);
    assert_int_equal(model->config.qk_norm, tiny.qk_norm ? QK_NORM_HEADS : QK_NORM_NONE);
    assert_int_equal(model->config.quant.scheme.group, tiny.group);
    assert_int_equal(model->config.n_eos, 0);
    assert_int_equal(model->config.bos, -1);
    for (int layer = 0; layer < tiny.n_layers; layer++)
      assert_int_equal(config_layer(&model->config, layer).window, 0);
    assert_reads_back(&tiny, model);
    assert_views(&tiny, model);
    Error err = {{0}}; /* and it packs to itself, over the file it is mapped from */
    assert_int_equal(pack_model(model, path, NULL, &err), STATUS_OK);
    assert_same_bytes(path, &bytes);
    model_close(model);
    buffer_release(&bytes);
    remove_directory(directory);
    tiny_free(&tiny);
  }
}

/* bf16 and fp32 whose numbers are fp16 numbers too become those: -0, subnormals and the largest among
 * them. */
TEST(converts_exact_numbers) {
  static const float numbers[] = {-0.0f, 0x1p-24f, -0x1.ff8p-15f, 65504.0f, 1.0f, 0x1.ffcp3f};
  Tiny tiny;
  tiny_qwen3(&tiny);
  Buffer expected = expected_file(&tiny);
  size_t norm_at = 256 + (size_t)tiny.n_layers * 2 * 32 * 2, embedding_at = norm_at + 32 * 2;
  TinyTensor *norm = tiny_replace(&tiny, "model.norm.weight", "F32", 1, 32, 1);
  memcpy(norm->data, numbers, sizeof numbers);
  for (size_t i = 0; i < 32; i++) {
    float value;
    memcpy(&value, norm->data + 4 * i, sizeof value);
    uint16_t half = float_to_f16(value);
    memcpy(expected.data + norm_at + 2 * i, &half, sizeof half);
  }
  TinyTensor *embedding = tiny_replace(&tiny, "model.embed_tokens.weight", "BF16", 2, 40, 32);
  for (size_t i = 0; i < 40 * 32; i++) {
    uint16_t half;
    memcpy(&half, embedding->data + 2 * i, sizeof half);
    half = float_to_f16(bf16_to_float(half));
    memcpy(expected.data + embedding_at + 2 * i, &half, sizeof half);
  }
  char *directory = make_directory(), *path = in_directory(directory, "m.ak48");
  Error err = {{0}};
  if (pack(&tiny, path, &err) != STATUS_OK) fail_msg("%s", err.text);
  assert_same_bytes(path, &expected);
  buffer_release(&expected);
  remove_directory(directory);
  tiny_free(&tiny);
}

/* --- what cannot be written */

/* Packing is refused with both parts in the message, and nothing is left in the directory. */
static void pack_refused(Tiny *tiny, const char *part, const char *more) {
  char *directory = make_directory();
  Error err = {{0}};
  Status status = pack(tiny, in_directory(directory, "m.ak48"), &err);
  if (status != STATUS_MODEL)
    fail_msg("status %d (%s), expected a refusal with \"%s\"", status, err.text, part);
  assert_contains(err.text, part);
  assert_contains(err.text, more);
  assert_int_equal(count_entries(directory), 0);
  remove_directory(directory);
  tiny_free(tiny);
}

static void put_float(Tiny *tiny, const char *name, const char *dtype, size_t index, float value) {
  TinyTensor *old = tiny_find(tiny, name);
  TinyTensor *tensor = tiny_replace(tiny, name, dtype, old->rank, old->shape[0], old->shape[1]);
  uint16_t half = (uint16_t)(float_bits(value) >> 16);
  if (strcmp(dtype, "F32") == 0)
    memcpy(tensor->data + 4 * index, &value, 4);
  else
    memcpy(tensor->data + 2 * index, &half, 2);
}

TEST(refuses_what_the_file_cannot_hold) {
  Tiny tiny;
  tiny_qwen2(&tiny);
  pack_refused(&tiny, "model.layers.0.self_attn.q_proj has a bias", "packed file cannot hold");
  tiny_qwen3(&tiny);
  tiny_make_dense(&tiny, "model.layers.1.mlp.up_proj", "F16");
  pack_refused(&tiny, "model.layers.1.mlp.up_proj is not quantised", "only 4-bit layers as AutoAWQ has them");
  tiny_qwen3(&tiny);
  tiny_free(&tiny);
  tiny.group = -1;
  tiny_make(&tiny);
  pack_refused(&tiny, "model.layers.0.self_attn.o_proj has groups of 48, others have groups of 32",
               "one size");
  tiny_llama(&tiny);
  tiny.extra_config = ", \"rope_scaling\": {\"type\": \"linear\", \"factor\": 2.0}";
  pack_refused(&tiny, "rope scaling \"linear\"", "cannot be written");
  tiny_llama(&tiny);
  tiny.extra_config = ", \"rope_scaling\": {\"rope_type\": \"yarn\", \"factor\": 2.0}";
  pack_refused(&tiny, "rope scaling \"yarn\"", "cannot be written");
  tiny_llama(&tiny);
  tiny.architecture = "MistralForCausalLM";
  tiny.model_type = "mistral";
  tiny.extra_config = ", \"sliding_window\": 63";
  pack_refused(&tiny, "sliding window of 63 positions (layer 0)", "cannot be written");
}

#define CANNOT_HOLD(member, value, words)                                                                    \
  do {                                                                                                       \
    ModelConfig config = {.head_dim = 16,                                                                    \
                          .qk_norm = QK_NORM_HEADS,                                                          \
                          .embedding_scale = 1,                                                              \
                          .attention_scale = 0.25,                                                           \
                          .residual_scale = 1,                                                               \
                          .gate_scale = 1,                                                                   \
                          .mlp_scale = 1,                                                                    \
                          .logit_divisor = 1,                                                                \
                          .rope = {.rotary_dim = 16},                                                        \
                          .n_layers = 1};                                                                    \
    char found[FORM_WORDS];                                                                                  \
    assert_int_equal(ak48_cannot_hold(&config, found, NULL), STATUS_OK);                                     \
    assert_string_equal(found, "");                                                                          \
    config.member = (value);                                                                                 \
    assert_int_equal(ak48_cannot_hold(&config, found, NULL), STATUS_OK);                                     \
    assert_string_equal(found, words);                                                                       \
  } while (0)

TEST(names_the_parts_that_the_file_cannot_hold) {
  CANNOT_HOLD(attn_gate, ATTN_GATE_NUMBERS,
              "a gate for each number of attention's output (out_proj_residual of layer 0)");
  CANNOT_HOLD(attn_gate, ATTN_GATE_HEADS, "a gate for each head of attention (out_proj_residual of layer 0)");
  CANNOT_HOLD(qk_norm_after_rope, true, "q and k norms after their rope (norm_qkv_rope_append of layer 0)");
  CANNOT_HOLD(rope.neighbours, true,
              "neighbouring numbers turned together (norm_qkv_rope_append of layer 0)");
  CANNOT_HOLD(fused, FUSES_GATE_UP, "gate and up stored as one matrix (norm_gate_up of layer 0)");
  CANNOT_HOLD(attn_sinks, true, "a sink for each head of attention (attention of layer 0)");
  CANNOT_HOLD(embedding_norm, true, "embeddings normalised (embed)");
  CANNOT_HOLD(qk_norm, QK_NORM_PLAIN, "q and k norms without weights (norm_qkv_rope_append of layer 0)");
  CANNOT_HOLD(query_scale_beta, 0.1, "queries scaled by position, every  (norm_qkv_rope_append of layer 0)");
}

/* A window that reaches as far as the context is none. */
TEST(takes_a_window_that_changes_nothing) {
  Tiny tiny;
  tiny_llama(&tiny);
  tiny.architecture = "MistralForCausalLM";
  tiny.model_type = "mistral";
  tiny.extra_config = ", \"sliding_window\": 64";
  char *directory = make_directory();
  Error err = {{0}};
  if (pack(&tiny, in_directory(directory, "m.ak48"), &err) != STATUS_OK) fail_msg("%s", err.text);
  remove_directory(directory);
  tiny_free(&tiny);
}

TEST(refuses_numbers_that_fp16_cannot_hold) {
  static const struct {
    const char *dtype;
    float value;
    const char *part;
  } cases[] = {
      {"F32", 0.1f, "element 17, 0.100000001, is no fp16 number"},
      {"F32", 65520.0f, "element 17, 65520, is no fp16 number"},
      {"F32", 0x1p-25f, "element 17, 2.98023224e-08, is no fp16 number"},
      {"BF16", 0x1p17f, "element 17, 131072, is no fp16 number"},
      {"BF16", 0x1p-120f, "element 17, 7.52316385e-37, is no fp16 number"},
  };
  static const char *const names[] = {"model.embed_tokens.weight", "model.layers.1.self_attn.k_norm.weight",
                                      "lm_head.weight", "model.layers.0.post_attention_layernorm.weight"};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    for (size_t n = 0; n < sizeof names / sizeof *names; n++) {
      Tiny tiny;
      char part[160];
      tiny_qwen3(&tiny);
      tiny_free(&tiny);
      tiny.head_dim = 20; /* so that k_norm has an element 17; 4 * 20 inputs are whole groups too */
      tiny_make(&tiny);
      put_float(&tiny, names[n], cases[i].dtype, 17, cases[i].value);
      snprintf(part, sizeof part, "tensor %s is %s", names[n], cases[i].dtype);
      pack_refused(&tiny, cases[i].part, part);
    }
  }
}

/* A write that fails leaves the file that was there, and nothing beside it. */
TEST(leaves_nothing_half_written) {
  Tiny tiny;
  tiny_llama(&tiny);
  char *directory = make_directory(), *source = write_tiny(&tiny), *path = in_directory(directory, "m.ak48");
  write_text(directory, "m.ak48", "what was there");
  Model *model = open_fine(source, NULL);
  struct rlimit before, limited;
  Error err = {{0}};
  assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
  limited = (struct rlimit){4096, before.rlim_max};
  signal(SIGXFSZ, SIG_IGN);
  assert_int_equal(setrlimit(RLIMIT_FSIZE, &limited), 0);
  Status status = pack_model(model, path, NULL, &err);
  assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
  assert_int_equal(status, STATUS_FAILED);
  assert_contains(err.text, "m.ak48");
  assert_contains(err.text, "File too large");
  assert_int_equal(count_entries(directory), 1);
  const Buffer expected = {.data = (char *)"what was there", .size = 14};
  assert_same_bytes(path, &expected);
  assert_int_equal(pack_model(model, in_directory(directory, "none/m.ak48"), NULL, &err), STATUS_FAILED);
  assert_contains(err.text, "none/m.ak48");
  assert_int_equal(pack_model(model, "/dev/full", NULL, &err), STATUS_FAILED);
  assert_contains(err.text, "/dev/full");
  model_close(model);
  remove_directory(source);
  remove_directory(directory);
  tiny_free(&tiny);
}

/* --- what cannot be read */

static void bytes_refused(const void *bytes, size_t size, const char *part, const char *more) {
  char *directory = make_directory();
  write_file(directory, "m.ak48", bytes, size);
  OPEN_REFUSED(in_directory(directory, "m.ak48"), NULL, STATUS_MODEL, "m.ak48", part, more);
  remove_directory(directory);
}

TEST(refuses_lying_headers) {
  static const struct {
    int offset, value;
    const char *part;
  } cases[] = {
      {0, 0x616b3439, "begins with 0x616b3439, expected 0x616b3438 (ak48)"},
      {4, 4, "version is 4, expected 5"},
      {8, 0, "dim is 0, expected 1 to 1048576"},
      {12, -1, "hidden_dim is -1, expected 1 to 4194304"},
      {16, 1 << 30, "n_layers is 1073741824, expected 1 to 4096"},
      {20, 0x7fffffff, "n_heads is 2147483647, expected 1 to 16384"},
      {24, 0, "n_kv_heads is 0, expected 1 to 16384"},
      {24, 3, "n_heads is 4, expected a multiple of n_kv_heads, 3"},
      {28, -2147483647, "vocab_size is -2147483647, expected 1 to 8388608"},
      {32, 0, "max_seq_len is 0, expected 1 to 1073741824"},
      {37, 13, "head_dim is 13, expected an even number"},
      {37, 514, "head_dim is 514, expected 1 to 512"},
      {37, 6, "k_proj has 12 outputs, expected a multiple of 8"},
      {41, 0, "group_size is 0, expected 1 to"},
      {41, 32, "group_size is 32, expected a divisor of the 48 inputs of self_attn.o_proj"},
      {41, 8, "(with q and k norms)"}, /* a possible size, but of another length */
      {48, 7, "byte 48 of the header is 7, expected 0"},
      {252, 1 << 24, "byte 255 of the header is 1, expected 0"},
  };
  Tiny tiny;
  tiny_qwen3(&tiny);
  Buffer file = expected_file(&tiny);
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    Buffer copy = {0};
    buffer_append(&copy, file.data, file.size, NULL);
    put((unsigned char *)copy.data, cases[i].offset, cases[i].value);
    bytes_refused(copy.data, copy.size, cases[i].part, "expected");
    buffer_release(&copy);
  }
  file.data[36] = 2;
  bytes_refused(file.data, file.size, "shared_classifier is 2, expected 0 or 1", "");
  buffer_release(&file);
  tiny_free(&tiny);
}

TEST(refuses_other_files) {
  static const char gguf[] = "GGUF\3\0\0\0", json[] = "{\"a\": 1}", safetensors[] = "\2\0\0\0\0\0\0\0{}";
  bytes_refused("", 0, "begins with nothing, expected 0x616b3438", "");
  bytes_refused("84k", 3, "begins with nothing", "");
  bytes_refused("84ka", 4, "truncated: 4 bytes, expected at least the header's 256", "");
  bytes_refused(gguf, sizeof gguf - 1, "a GGUF file, which auk does not read", "auk get OWNER/NAME");
  bytes_refused(json, sizeof json - 1, "no packed file", "a JSON file? give the directory");
  bytes_refused(safetensors, sizeof safetensors - 1, "no packed file",
                "a safetensors file? give the directory");
  bytes_refused("PK\3\4", 4, "no packed file", "PyTorch or zip");
}

/* The lengths by hand: header 256; 5 norms and the embedding; 7 layers of two; head; norms of q and k. */
TEST(refuses_other_lengths) {
  for (int i = 0; i < 2; i++) {
    Tiny tiny;
    makers[i](&tiny);
    Buffer file = expected_file(&tiny);
    size_t norms = (size_t)tiny.n_layers * 2 * (size_t)tiny.head_dim * 2;
    size_t with = file.size + (tiny.qk_norm ? 0 : norms), without = with - norms;
    char part[100], found[64];
    const size_t sizes[] = {256, 257, without - 1, without + 1, with - 1, with + 1};
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
      Buffer copy = {0};
      for (size_t at = 0; at < sizes[s]; at++)
        buffer_append(&copy, at < file.size ? file.data + at : "", 1, NULL);
      snprintf(found, sizeof found, "m.ak48: %zu bytes", sizes[s]);
      snprintf(part, sizeof part, "expected %zu (with q and k norms) or %zu (without): %s", with, without,
               sizes[s] < without ? "truncated" : "too long or truncated");
      bytes_refused(copy.data, copy.size, part, found);
      buffer_release(&copy);
    }
    buffer_release(&file);
    tiny_free(&tiny);
  }
}

TEST(refuses_norms_that_are_not_finite) {
  Tiny tiny;
  tiny_qwen3(&tiny);
  Buffer file = expected_file(&tiny);
  memcpy(file.data + file.size - 2, "\x00\xfc", 2); /* the last of the k norms */
  bytes_refused(file.data, file.size, "model.layers.1.self_attn.k_norm.weight: element 11 is -inf", "finite");
  buffer_release(&file);
  tiny_free(&tiny);
}

/* --- what lies beside it, and flags */

static char *write_packed(Tiny *tiny) {
  char *directory = make_directory();
  Buffer file = expected_file(tiny);
  write_file(directory, "m.ak48", file.data, file.size);
  buffer_release(&file);
  return directory;
}

TEST(asks_flag_then_config_then_qwen3) {
  Tiny tiny;
  tiny_qwen3(&tiny);
  char *directory = write_packed(&tiny), *path = in_directory(directory, "m.ak48");
  Model *model = open_fine(path, NULL);
  assert_true(model->config.rope.theta == 1e6);
  assert_true(model->config.norm_eps == 1e-6);
  assert_string_equal(model->theta_source, "Qwen3's published value");
  assert_string_equal(model->eps_source, "Qwen3's published value");
  assert_null(model->tokenizer_path);
  model_close(model);

  write_config(&tiny, directory);
  write_text(directory, "generation_config.json", "{\"eos_token_id\": [3, 5], \"top_k\": 20}");
  write_text(directory, "tokenizer.json", "{}");
  model = open_fine(path, NULL);
  assert_true(model->config.rope.theta == 1e4);
  assert_true(model->config.norm_eps == 1e-5);
  assert_string_equal(model->theta_source, "config.json beside the file");
  assert_int_equal(model->config.n_eos, 2);
  assert_int_equal(model->config.generation.top_k, 20);
  assert_string_equal(model->tokenizer_path, in_directory(directory, "tokenizer.json"));
  model_close(model);

  const ModelOverrides flags = {.rope_theta = 5e5, .norm_eps = 1e-3, .tokenizer = "t.json"};
  model = open_fine(path, &flags);
  assert_true(model->config.rope.theta == 5e5);
  assert_true(model->config.norm_eps == 1e-3);
  assert_string_equal(model->theta_source, "flag");
  assert_string_equal(model->eps_source, "flag");
  assert_string_equal(model->tokenizer_path, "t.json");
  model_close(model);
  OPEN_REFUSED(path, &(ModelOverrides){.rope_theta = -1}, STATUS_USAGE, "--rope-theta is -1");
  remove_directory(directory);
  tiny_free(&tiny);
}

/* Checks whether Qwen3's values are assumed, and the status of model_check_known(). */
static void assert_known(const char *path, const ModelOverrides *flags, bool assumed, Status status) {
  Error err = {{0}};
  Model *model = open_fine(path, flags);
  assert_int_equal(model->assumed, assumed);
  assert_int_equal(model_check_known(model, &err), status);
  if (status != STATUS_OK) {
    assert_contains(err.text, path);
    assert_contains(err.text, "does not say rope_theta and epsilon");
  }
  model_close(model);
}

/* With q and k norms it may be Qwen3; without them rope_theta and epsilon are unknown, and both have to be
 * given. */
TEST(only_what_may_be_qwen3_is_computed_as_qwen3) {
  const ModelOverrides theta = {.rope_theta = 1e4}, eps = {.norm_eps = 1e-5}, both = {1e4, 1e-5, NULL};
  for (int llama = 0; llama < 2; llama++) {
    Tiny tiny;
    if (llama)
      tiny_llama(&tiny);
    else
      tiny_qwen3(&tiny);
    char *directory = write_packed(&tiny), *path = in_directory(directory, "m.ak48");
    const Status unknown = llama ? STATUS_MODEL : STATUS_OK;
    assert_known(path, NULL, true, unknown);
    assert_known(path, &theta, true, unknown);
    assert_known(path, &eps, true, unknown);
    assert_known(path, &both, false, STATUS_OK);
    write_config(&tiny, directory);
    assert_known(path, NULL, false, STATUS_OK);
    remove_directory(directory);
    tiny_free(&tiny);
  }
}

/* A config.json that says what the header cannot is believed: rope scaling and windows. */
TEST(believes_the_config_beside_it) {
  Tiny tiny;
  tiny_llama(&tiny);
  char *directory = write_packed(&tiny);
  tiny.architecture = "MistralForCausalLM";
  tiny.model_type = "mistral";
  tiny.extra_config = ", \"sliding_window\": 16, \"rope_scaling\": {\"type\": \"linear\", \"factor\": 2.0}";
  tiny.max_position = 128; /* the file was made for a shorter context */
  write_config(&tiny, directory);
  Model *model = open_fine(in_directory(directory, "m.ak48"), NULL);
  assert_int_equal(model->config.layers[1].window, 16);
  assert_int_equal(model->config.rope.kind, ROPE_LINEAR);
  assert_int_equal(model->config.max_position, 64);
  model_close(model);
  remove_directory(directory);
  tiny_free(&tiny);
}

TEST(refuses_a_config_that_contradicts_it) {
  static const struct {
    size_t field;
    int value;
    const char *part, *more;
  } cases[] = {
      {offsetof(Tiny, hidden), 40, "hidden_size is 40", "m.ak48 beside it has dim 32"},
      {offsetof(Tiny, intermediate), 64, "intermediate_size is 64", "has hidden_dim 48"},
      {offsetof(Tiny, n_layers), 3, "num_hidden_layers is 3", "has n_layers 2"},
      {offsetof(Tiny, n_heads), 8, "num_attention_heads is 8", "has n_heads 4"},
      {offsetof(Tiny, n_kv_heads), 4, "num_key_value_heads is 4", "has n_kv_heads 2"},
      {offsetof(Tiny, head_dim), 8, "head_dim is 8", "has head_dim 12"},
      {offsetof(Tiny, vocab_size), 41, "vocab_size is 41", "has vocab_size 40"},
      {offsetof(Tiny, max_position), 63, "max_position_embeddings is 63", "has max_seq_len 64"},
      {offsetof(Tiny, group), 32, "group_size is 32", "has group_size 16"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    Tiny tiny;
    tiny_qwen3(&tiny);
    char *directory = write_packed(&tiny);
    memcpy((char *)&tiny + cases[i].field, &cases[i].value, sizeof(int));
    write_config(&tiny, directory);
    OPEN_REFUSED(in_directory(directory, "m.ak48"), NULL, STATUS_MODEL, "config.json", cases[i].part,
                 cases[i].more);
    remove_directory(directory);
    tiny_free(&tiny);
  }
}

/* A checkpoint may have a head of its own although its config ties: the packed file keeps it. */
TEST(holds_a_head_that_the_config_ties) {
  Tiny tiny;
  tiny_llama(&tiny);
  const TinyTensor *head = tiny_add(&tiny, "lm_head.weight", "F16", 2, 40, 32);
  char *directory = write_tiny(&tiny), *path = in_directory(directory, "m.ak48");
  Model *model = open_fine(directory, NULL);
  assert_int_equal(pack_model(model, path, NULL, NULL), STATUS_OK);
  model_close(model);
  model = open_fine(path, NULL); /* beside the config.json that ties */
  assert_false(model->config.tied_embeddings);
  assert_memory_equal(model->head.weight, head->data, head->bytes);
  model_close(model);
  remove_directory(directory);
  tiny_free(&tiny);
}

TEST(refuses_a_config_of_another_kind) {
  Tiny tiny;
  tiny_llama(&tiny);
  char *directory = write_packed(&tiny), *path = in_directory(directory, "m.ak48");
  tiny.tied = false;
  write_config(&tiny, directory);
  OPEN_REFUSED(path, NULL, STATUS_MODEL, "tie_word_embeddings is 0", "has shared_classifier 1");
  tiny.tied = true;
  tiny.architecture = "Qwen3ForCausalLM";
  tiny.model_type = "qwen3";
  write_config(&tiny, directory);
  OPEN_REFUSED(path, NULL, STATUS_MODEL, "Qwen3ForCausalLM has q and k norms", "by its length", "has none");
  tiny.architecture = "Qwen2ForCausalLM";
  tiny.model_type = "qwen2";
  write_config(&tiny, directory);
  OPEN_REFUSED(path, NULL, STATUS_MODEL, "Qwen2ForCausalLM has biases, which a packed file cannot hold");
  write_text(directory, "config.json", "{");
  OPEN_REFUSED(path, NULL, STATUS_MODEL, "config.json");
  remove_directory(directory);
  tiny_free(&tiny);
}

/* As a config.json itself would be: the ramp of yarn divides by the logarithm of theta. */
TEST(refuses_a_theta_that_yarn_cannot_use) {
  Tiny tiny;
  tiny_qwen3(&tiny);
  char *directory = write_packed(&tiny), *path = in_directory(directory, "m.ak48");
  tiny.extra_config = ", \"rope_scaling\": {\"rope_type\": \"yarn\", \"factor\": 4.0}";
  write_config(&tiny, directory);
  OPEN_REFUSED(path, &(ModelOverrides){.rope_theta = 1}, STATUS_USAGE, "--rope-theta is 1", "yarn");
  Model *model = open_fine(path, &(ModelOverrides){.rope_theta = 1.5});
  assert_true(model->config.rope.theta == 1.5);
  model_close(model);
  tiny.extra_config = "";
  write_config(&tiny, directory);
  model = open_fine(path, &(ModelOverrides){.rope_theta = 0.5}); /* without yarn it may be any */
  assert_true(model->config.rope.theta == 0.5);
  model_close(model);
  remove_directory(directory);
  tiny_free(&tiny);
}

TEST(an_interruption_leaves_nothing) {
  Tiny tiny;
  tiny_qwen3(&tiny);
  char *source = write_tiny(&tiny), *directory = make_directory();
  Model *model = open_fine(source, NULL);
  volatile int interrupted = 1;
  Error err = {{0}};
  assert_int_equal(pack_model(model, in_directory(directory, "m.ak48"), &interrupted, &err),
                   STATUS_INTERRUPTED);
  assert_int_equal(count_entries(directory), 0);
  assert_int_equal(ak48_check_fits(model, &interrupted, &err), STATUS_INTERRUPTED);
  AtomicFile file; /* an interruption that comes after the first pass */
  assert_int_equal(atomic_file_open(in_directory(directory, "m.ak48"), &file, &err), STATUS_OK);
  assert_int_equal(ak48_write(model, &file, &interrupted, &err), STATUS_INTERRUPTED);
  atomic_file_abort(&file);
  assert_int_equal(count_entries(directory), 0);
  model_close(model);
  remove_directory(source);
  remove_directory(directory);
  tiny_free(&tiny);
}
