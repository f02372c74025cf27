/* tiny_checkpoint.h - checkpoints of a few kilobytes, made in memory and written to a temporary directory,
 * for tests that then break one thing of them. Included by test/model/test_*.c; everything static, failures
 * are assertions. */
#pragma once

#include <sys/stat.h>
#include <unistd.h>

#include "base/buffer.h"
#include "base/half.h"
#include "model/layers.h"
#include "model/tensors.h"
#include "test/directory.h"
#include "test/unit.h"

/* The packed file alone, as `auk pack` writes it. */
static inline Status pack_model(const Model *model, const char *path, const volatile int *interrupted,
                                Error *err) {
  AtomicFile file;
  TRY(ak48_check_fits(model, interrupted, err));
  TRY(atomic_file_open(path, &file, err));
  Status status = ak48_write(model, &file, interrupted, err);
  if (status == STATUS_OK) return atomic_file_commit(&file, err);
  atomic_file_abort(&file);
  return status;
}

/* --- files of a temporary directory (test/directory.h) */

static inline void write_file(const char *directory, const char *name, const void *bytes, size_t size) {
  char path[700];
  snprintf(path, sizeof path, "%s/%s", directory, name);
  FILE *file = fopen(path, "wb");
  assert_non_null(file);
  assert_int_equal(fwrite(bytes, 1, size, file), size);
  assert_int_equal(fclose(file), 0);
}

static inline void write_text(const char *directory, const char *name, const char *text) {
  write_file(directory, name, text, strlen(text));
}

/* Entries of a directory but "." and "..". */
static inline int count_entries(const char *directory) {
  char command[700];
  snprintf(command, sizeof command, "ls -A '%s' | wc -l", directory);
  FILE *pipe = popen(command, "r");
  int n = -1;
  assert_int_equal(fscanf(pipe, "%d", &n), 1);
  pclose(pipe);
  return n;
}

/* --- tensors */

typedef struct {
  char name[80];
  const char *dtype;
  int rank;
  int64_t shape[3];
  unsigned char *data;
  size_t bytes;
} TinyTensor;

enum { TINY_MAX_TENSORS = 256 };

/* A model that can be changed before it is written. */
typedef struct {
  const char *architecture, *model_type;
  int hidden, intermediate, n_layers, n_heads, n_kv_heads, head_dim, vocab_size, max_position, group;
  bool tied, qk_norm, qkv_bias;
  const char *extra_config; /* further members, each with a comma before it, or "" */
  TinyTensor tensors[TINY_MAX_TENSORS];
  int n_tensors;
  uint32_t random;
} Tiny;

static inline uint32_t tiny_random(Tiny *tiny) {
  tiny->random = tiny->random * 1664525u + 1013904223u; /* Numerical Recipes' */
  return tiny->random >> 8;
}

static inline size_t dtype_size(const char *dtype) {
  static const char *const dtypes[] = {"F32", "I32", "I64", "F8_E4M3", "F8_E8M0", "F8_E5M2", "U8", "I8"};
  static const size_t sizes[] = {4, 4, 8, 1, 1, 1, 1, 1};
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
    if (strcmp(dtype, dtypes[i]) == 0) return sizes[i];
  return 2;
}

/* Numbers between -2 and 2 that fp16 and bf16 hold exactly; words at random. */
static inline void fill(Tiny *tiny, TinyTensor *tensor) {
  size_t size = dtype_size(tensor->dtype);
  for (size_t i = 0; i < tensor->bytes / size; i++) {
    uint32_t random = tiny_random(tiny);
    float value = ((int)(random % 255) - 127) / 64.0f;
    uint16_t half =
        strcmp(tensor->dtype, "BF16") == 0 ? (uint16_t)(float_bits(value) >> 16) : float_to_f16(value);
    uint64_t word = random * 2654435761u;
    const void *from = strcmp(tensor->dtype, "F32") == 0 ? (void *)&value
                       : size == 2                       ? (void *)&half
                                                         : (void *)&word;
    memcpy(tensor->data + i * size, from, size);
  }
}

static inline TinyTensor *tiny_add(Tiny *tiny, const char *name, const char *dtype, int rank, int64_t a,
                                   int64_t b) {
  assert_true(tiny->n_tensors < TINY_MAX_TENSORS);
  TinyTensor *tensor = &tiny->tensors[tiny->n_tensors++];
  *tensor = (TinyTensor){.dtype = dtype, .rank = rank, .shape = {a, b}};
  snprintf(tensor->name, sizeof tensor->name, "%s", name);
  tensor->bytes = (size_t)((rank >= 1 ? a : 1) * (rank == 2 ? b : 1)) * dtype_size(dtype);
  tensor->data = malloc(tensor->bytes ? tensor->bytes : 1);
  fill(tiny, tensor);
  return tensor;
}

static inline TinyTensor *tiny_find(Tiny *tiny, const char *name) {
  for (int i = 0; i < tiny->n_tensors; i++)
    if (strcmp(tiny->tensors[i].name, name) == 0) return &tiny->tensors[i];
  fail_msg("no tensor %s", name);
  return NULL;
}

static inline void tiny_remove(Tiny *tiny, const char *name) {
  TinyTensor *tensor = tiny_find(tiny, name);
  free(tensor->data);
  *tensor = tiny->tensors[--tiny->n_tensors];
}

/* The same name with another dtype or shape. */
static inline TinyTensor *tiny_replace(Tiny *tiny, const char *name, const char *dtype, int rank, int64_t a,
                                       int64_t b) {
  tiny_remove(tiny, name);
  return tiny_add(tiny, name, dtype, rank, a, b);
}

static inline void tiny_free(Tiny *tiny) {
  for (int i = 0; i < tiny->n_tensors; i++) free(tiny->tensors[i].data);
  tiny->n_tensors = 0;
}

/* --- whole models */

static inline void tiny_add_awq(Tiny *tiny, const char *base, int n_in, int n_out, int group) {
  char name[128];
  snprintf(name, sizeof name, "%s.qweight", base);
  tiny_add(tiny, name, "I32", 2, n_in, n_out / 8);
  snprintf(name, sizeof name, "%s.qzeros", base);
  tiny_add(tiny, name, "I32", 2, n_in / group, n_out / 8);
  snprintf(name, sizeof name, "%s.scales", base);
  tiny_add(tiny, name, "F16", 2, n_in / group, n_out);
}

/* Replaces a quantised layer by a dense one. */
static inline void tiny_make_dense(Tiny *tiny, const char *base, const char *dtype) {
  static const char *const parts[] = {"qweight", "qzeros", "scales"};
  char name[128];
  int64_t n_in = 0, n_out = 0;
  for (int i = 0; i < 3; i++) {
    snprintf(name, sizeof name, "%s.%s", base, parts[i]);
    if (i == 0) n_in = tiny_find(tiny, name)->shape[0], n_out = tiny_find(tiny, name)->shape[1] * 8;
    tiny_remove(tiny, name);
  }
  snprintf(name, sizeof name, "%s.weight", base);
  tiny_add(tiny, name, dtype, 2, n_out, n_in);
}

static inline void tiny_add_layer(Tiny *tiny, int layer) {
  char base[48], name[96];
  ModelConfig config = {.hidden = tiny->hidden,
                        .intermediate = tiny->intermediate,
                        .n_heads = tiny->n_heads,
                        .n_kv_heads = tiny->n_kv_heads,
                        .head_dim = tiny->head_dim};
  snprintf(base, sizeof base, "model.layers.%d", layer);
  snprintf(name, sizeof name, "%s.input_layernorm.weight", base);
  tiny_add(tiny, name, "F16", 1, tiny->hidden, 1);
  snprintf(name, sizeof name, "%s.post_attention_layernorm.weight", base);
  tiny_add(tiny, name, "F16", 1, tiny->hidden, 1);
  for (int which = 0; which < N_PACKED_LINEARS; which++) {
    int n_in, n_out;
    layer_linear_sizes(&config, 0, which, &n_in, &n_out);
    snprintf(name, sizeof name, "%s.%s", base, layer_linear_name(which));
    tiny_add_awq(tiny, name, n_in, n_out, tiny->group > 0 ? tiny->group : n_in);
    if (!tiny->qkv_bias || which > LAYER_V) continue;
    snprintf(name, sizeof name, "%s.%s.bias", base, layer_linear_name(which));
    tiny_add(tiny, name, "F16", 1, n_out, 1);
  }
  if (!tiny->qk_norm) return;
  snprintf(name, sizeof name, "%s.self_attn.q_norm.weight", base);
  tiny_add(tiny, name, "F16", 1, tiny->head_dim, 1);
  snprintf(name, sizeof name, "%s.self_attn.k_norm.weight", base);
  tiny_add(tiny, name, "F16", 1, tiny->head_dim, 1);
}

/* Fills in every tensor of the sizes that are set. */
static inline void tiny_make(Tiny *tiny) {
  tiny->random = 1;
  tiny->n_tensors = 0;
  if (!tiny->extra_config) tiny->extra_config = "";
  tiny_add(tiny, "model.embed_tokens.weight", "F16", 2, tiny->vocab_size, tiny->hidden);
  for (int i = 0; i < tiny->n_layers; i++) tiny_add_layer(tiny, i);
  tiny_add(tiny, "model.norm.weight", "F16", 1, tiny->hidden, 1);
  if (!tiny->tied) tiny_add(tiny, "lm_head.weight", "F16", 2, tiny->vocab_size, tiny->hidden);
}

/* Every width is another one, so that no two shapes can be mistaken for each other. */
static inline void tiny_qwen3(Tiny *tiny) {
  *tiny = (Tiny){.architecture = "Qwen3ForCausalLM",
                 .model_type = "qwen3",
                 .hidden = 32,
                 .intermediate = 48,
                 .n_layers = 2,
                 .n_heads = 4,
                 .n_kv_heads = 2,
                 .head_dim = 12,
                 .vocab_size = 40,
                 .max_position = 64,
                 .group = 16,
                 .qk_norm = true};
  tiny_make(tiny);
}

static inline void tiny_llama(Tiny *tiny) {
  *tiny = (Tiny){.architecture = "LlamaForCausalLM",
                 .model_type = "llama",
                 .hidden = 32,
                 .intermediate = 48,
                 .n_layers = 2,
                 .n_heads = 2,
                 .n_kv_heads = 1,
                 .head_dim = 16,
                 .vocab_size = 40,
                 .max_position = 64,
                 .group = 16,
                 .tied = true};
  tiny_make(tiny);
}

static inline void tiny_qwen2(Tiny *tiny) {
  *tiny = (Tiny){.architecture = "Qwen2ForCausalLM",
                 .model_type = "qwen2",
                 .hidden = 32,
                 .intermediate = 48,
                 .n_layers = 2,
                 .n_heads = 2,
                 .n_kv_heads = 1,
                 .head_dim = 16,
                 .vocab_size = 40,
                 .max_position = 64,
                 .group = 16,
                 .qkv_bias = true};
  tiny_make(tiny);
}

/* --- writing */

static inline void write_config(const Tiny *tiny, const char *directory) {
  char text[2000], quant[200] = "";
  if (tiny->group)
    snprintf(quant, sizeof quant,
             ", \"quantization_config\": {\"quant_method\": \"awq\", \"bits\": 4, "
             "\"group_size\": %d, \"version\": \"gemm\", \"zero_point\": true}",
             tiny->group);
  snprintf(
      text, sizeof text,
      "{\"architectures\": [\"%s\"], \"model_type\": \"%s\", \"hidden_size\": %d, \"intermediate_size\": %d, "
      "\"num_hidden_layers\": %d, \"num_attention_heads\": %d, \"num_key_value_heads\": %d, \"head_dim\": "
      "%d, "
      "\"vocab_size\": %d, \"max_position_embeddings\": %d, \"rms_norm_eps\": 1e-5, \"rope_theta\": 10000.0, "
      "\"tie_word_embeddings\": %s, \"eos_token_id\": 7%s%s}",
      tiny->architecture, tiny->model_type, tiny->hidden, tiny->intermediate, tiny->n_layers, tiny->n_heads,
      tiny->n_kv_heads, tiny->head_dim, tiny->vocab_size, tiny->max_position, tiny->tied ? "true" : "false",
      quant, tiny->extra_config);
  write_text(directory, "config.json", text);
}

/* tensors[from .. to) as one file. `spaces` after the header move the data to any alignment. */
static inline void write_tensors(const Tiny *tiny, int from, int to, int spaces, const char *directory,
                                 const char *name) {
  Buffer header = {0};
  size_t at = 0;
  assert_int_equal(buffer_append_string(&header, "{", NULL), STATUS_OK);
  for (int i = from; i < to; i++) {
    const TinyTensor *t = &tiny->tensors[i];
    buffer_printf(&header, NULL, "%s\"%s\":{\"dtype\":\"%s\",\"shape\":[", i > from ? "," : "", t->name,
                  t->dtype);
    for (int d = 0; d < t->rank; d++)
      buffer_printf(&header, NULL, "%s%lld", d ? "," : "", (long long)t->shape[d]);
    buffer_printf(&header, NULL, "],\"data_offsets\":[%zu,%zu]}", at, at + t->bytes);
    at += t->bytes;
  }
  buffer_printf(&header, NULL, "}%*s", spaces, "");
  unsigned char length[8];
  for (int i = 0; i < 8; i++) length[i] = (unsigned char)((uint64_t)header.size >> 8 * i);
  Buffer file = {0};
  buffer_append(&file, length, 8, NULL);
  buffer_append(&file, header.data, header.size, NULL);
  for (int i = from; i < to; i++) buffer_append(&file, tiny->tensors[i].data, tiny->tensors[i].bytes, NULL);
  write_file(directory, name, file.data, file.size);
  buffer_release(&header);
  buffer_release(&file);
}

/* A new directory with the whole model in it; remove_directory() it. */
static inline char *write_tiny(const Tiny *tiny) {
  char *directory = make_directory();
  write_config(tiny, directory);
  write_tensors(tiny, 0, tiny->n_tensors, 0, directory, "model.safetensors");
  return directory;
}

/* --- opening */

/* A message with DIR for the directory. */
static inline void print_refusal(FILE *out, const char *text, const char *directory) {
  for (const char *at; (at = strstr(text, directory)); text = at + strlen(directory))
    fprintf(out, "%.*sDIR", (int)(at - text), text);
  fprintf(out, "%s\n", text);
}

static inline void assert_contains(const char *text, const char *part) {
  if (!strstr(text, part)) fail_msg("\"%s\" does not say \"%s\"", text, part);
}

static inline Model *open_fine(const char *path, const ModelOverrides *overrides) {
  Model *model;
  Error err = {{0}};
  Status status = model_open(path, overrides, &model, &err);
  if (status != STATUS_OK) fail_msg("%s", err.text);
  return model;
}

static inline void assert_refused(const char *path, const ModelOverrides *overrides, Status expected,
                                  const char *const *parts, size_t n_parts) {
  Model *model;
  Error err = {{0}};
  Status status = model_open(path, overrides, &model, &err);
  model_close(model);
  if (status != expected) fail_msg("status %d (%s), expected %d", status, err.text, expected);
  for (size_t i = 0; i < n_parts; i++) assert_contains(err.text, parts[i]);
}

/* Opening must fail with the given status and a message that holds all given parts. */
#define OPEN_REFUSED(path, overrides, expected, ...)                                                         \
  assert_refused(path, overrides, expected, (const char *const[]){__VA_ARGS__},                              \
                 sizeof((const char *const[]){__VA_ARGS__}) / sizeof(char *))

/* Writes the model, opens it to be refused so, and cleans up. Frees the tiny's tensors. */
#define ASSERT_REFUSED(tiny, ...)                                                                            \
  do {                                                                                                       \
    char *refused_directory = write_tiny(tiny);                                                              \
    OPEN_REFUSED(refused_directory, NULL, STATUS_MODEL, __VA_ARGS__);                                        \
    remove_directory(refused_directory);                                                                     \
    tiny_free(tiny);                                                                                         \
  } while (0)
