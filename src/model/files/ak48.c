/* ak48.c - the header of a packed file, and the walk over its body.
 *
 * Called by: ak48_read.c, ak48_write.c.   Calls: layers.c.
 * Source of the format: AWQ files, version 5, of the OrinMLLM engine for Qwen3; head_dim and group_size
 * follow the one-byte flag and so are not aligned. Always true: reader and writer use the same walk, so they
 * agree on every tensor's place. */
#include "model/files/ak48.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "model/layers.h"

/* --- the header */

/* The maxima of config.h: within them no sum of sizes overflows, and no header causes a long walk. */
static const struct {
  const char *name;
  size_t offset; /* in the file */
  int32_t max;   /* at least 1 */
  size_t field;  /* in an Ak48Header */
} fields[] = {
    /* clang-format off */
  { "dim",          8, MAX_HIDDEN,       offsetof(Ak48Header, dim) },
  { "hidden_dim",  12, MAX_INTERMEDIATE, offsetof(Ak48Header, hidden_dim) },
  { "n_layers",    16, MAX_LAYERS,       offsetof(Ak48Header, n_layers) },
  { "n_heads",     20, MAX_HEADS,        offsetof(Ak48Header, n_heads) },
  { "n_kv_heads",  24, MAX_HEADS,        offsetof(Ak48Header, n_kv_heads) },
  { "vocab_size",  28, MAX_VOCAB,        offsetof(Ak48Header, vocab_size) },
  { "max_seq_len", 32, MAX_POSITION,     offsetof(Ak48Header, max_seq_len) },
  { "head_dim",    37, MAX_HEAD_DIM,     offsetof(Ak48Header, head_dim) },
  { "group_size",  41, MAX_INTERMEDIATE, offsetof(Ak48Header, group_size) },
    /* clang-format on */
};
#define N_FIELDS      (sizeof fields / sizeof *fields)
#define SHARED_OFFSET 36
#define FIELDS_END    45

static void put_u32(unsigned char *at, uint32_t value) {
  for (int i = 0; i < 4; i++) at[i] = (unsigned char)(value >> 8 * i);
}

static uint32_t get_u32(const unsigned char *at) {
  return (uint32_t)at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24;
}

void ak48_header_encode(const Ak48Header *header, unsigned char out[AK48_HEADER_SIZE]) {
  memset(out, 0, AK48_HEADER_SIZE);
  put_u32(out, AK48_MAGIC);
  put_u32(out + 4, AK48_VERSION);
  for (size_t i = 0; i < N_FIELDS; i++) {
    int32_t value;
    memcpy(&value, (const char *)header + fields[i].field, sizeof value);
    put_u32(out + fields[i].offset, (uint32_t)value);
  }
  out[SHARED_OFFSET] = header->shared_classifier;
}

static bool has_magic(const unsigned char *bytes, size_t size) {
  return size >= 4 && get_u32(bytes) == AK48_MAGIC;
}

Status ak48_is(const char *path, bool *packed, Error *err) {
  MappedFile file;
  TRY(file_map(path, STATUS_MODEL, &file, err));
  *packed = has_magic(file.data, file.size);
  file_unmap(&file);
  return STATUS_OK;
}

/* Guesses the format of another file, for the message. */
static const char *other_file(const unsigned char *bytes, size_t size) {
  if (size >= 4 && memcmp(bytes, "GGUF", 4) == 0)
    return " (a GGUF file; expected the Hugging Face checkpoint)";
  if (size >= 9 && bytes[8] == '{') return " (a safetensors file? give the directory that it lies in)";
  if (size >= 2 && memcmp(bytes, "PK", 2) == 0) return " (a PyTorch or zip file)";
  if (size >= 1 && bytes[0] == '{') return " (a JSON file? give the directory that it lies in)";
  return "";
}

/* Refuses sizes that contradict each other. PRECOND each is in its range */
static Status check_header(const char *path, const Ak48Header *h, Error *err) {
  if (h->n_heads % h->n_kv_heads != 0)
    return error_set(err, STATUS_MODEL, "%s: n_heads is %d, expected a multiple of n_kv_heads, %d", path,
                     h->n_heads, h->n_kv_heads);
  if (h->head_dim % 2 != 0)
    return error_set(err, STATUS_MODEL, "%s: head_dim is %d, expected an even number up to %d", path,
                     h->head_dim, MAX_HEAD_DIM);
  ModelConfig config = {0};
  ak48_header_to_config(h, &config);
  for (int which = 0; which < N_LAYER_LINEARS; which++) {
    int n_in, n_out;
    layer_linear_sizes(&config, which, &n_in, &n_out);
    if (n_in % h->group_size != 0)
      return error_set(err, STATUS_MODEL, "%s: group_size is %d, expected a divisor of the %d inputs of %s",
                       path, h->group_size, n_in, layer_linear_name(which));
    if (n_out % 8 != 0)
      return error_set(err, STATUS_MODEL, "%s: %s has %d outputs, expected a multiple of 8", path,
                       layer_linear_name(which), n_out);
  }
  return STATUS_OK;
}

Status ak48_header_decode(const char *path, const unsigned char *bytes, size_t size, Ak48Header *header,
                          Error *err) {
  *header = (Ak48Header){0};
  if (!has_magic(bytes, size)) {
    char found[16] = "nothing";
    if (size >= 4) snprintf(found, sizeof found, "0x%08" PRIx32, get_u32(bytes));
    return error_set(err, STATUS_MODEL, "%s is no packed file: it begins with %s, expected 0x%08x (ak48)%s",
                     path, found, AK48_MAGIC, other_file(bytes, size));
  }
  if (size < AK48_HEADER_SIZE)
    return error_set(err, STATUS_MODEL, "%s: truncated: %zu bytes, expected at least the header's %d", path,
                     size, AK48_HEADER_SIZE);
  if (get_u32(bytes + 4) != AK48_VERSION)
    return error_set(err, STATUS_MODEL, "%s: version is %" PRId32 ", expected %d", path,
                     (int32_t)get_u32(bytes + 4), AK48_VERSION);
  for (size_t i = 0; i < N_FIELDS; i++) {
    int32_t value = (int32_t)get_u32(bytes + fields[i].offset);
    if (value < 1 || value > fields[i].max)
      return error_set(err, STATUS_MODEL, "%s: %s is %" PRId32 ", expected 1 to %" PRId32, path,
                       fields[i].name, value, fields[i].max);
    memcpy((char *)header + fields[i].field, &value, sizeof value);
  }
  header->shared_classifier = bytes[SHARED_OFFSET];
  if (header->shared_classifier > 1)
    return error_set(err, STATUS_MODEL, "%s: shared_classifier is %d, expected 0 or 1", path,
                     header->shared_classifier);
  for (int i = FIELDS_END; i < AK48_HEADER_SIZE; i++)
    if (bytes[i] != 0)
      return error_set(err, STATUS_MODEL, "%s: byte %d of the header is %d, expected 0", path, i, bytes[i]);
  return check_header(path, header, err);
}

void ak48_header_to_config(const Ak48Header *header, ModelConfig *config) {
  config->hidden = header->dim;
  config->intermediate = header->hidden_dim;
  config->n_layers = header->n_layers;
  config->n_heads = header->n_heads;
  config->n_kv_heads = header->n_kv_heads;
  config->head_dim = config->rotary_dim = header->head_dim;
  config->attention_scale = 1 / sqrt(header->head_dim);
  config->vocab_size = header->vocab_size;
  config->max_position = header->max_seq_len;
  config->tied_embeddings = header->shared_classifier != 0;
  config->quant.scheme = (QuantScheme){.method = QUANT_AWQ, .bits = 4, .group = header->group_size};
}

const char *ak48_cannot_hold(const ModelConfig *config) {
  if (config->text_part) return "the text part of a larger model";
  if (config->fused) return "q, k and v as one matrix";
  if (config->norms != NORM_BEFORE) return "norms of what comes out of attention";
  if (config->norm_plus_one) return "norms that multiply by 1 + weight";
  if (config->qk_norm == QK_NORM_WHOLE) return "q and k norms over all heads";
  if (config->activation != ACTIVATION_SILU) return "an activation other than silu";
  if (config->embedding_scale != 1) return "a factor of the embedding";
  if (config->attention_scale != 1 / sqrt(config->head_dim)) return "a factor of attention's scores";
  if (config->residual_scale != 1) return "a factor of what layers add";
  if (config->logit_divisor != 1) return "a divisor of logits";
  if (config->attention_cap != 0 || config->logit_cap != 0) return "a soft cap";
  if (config->rotary_dim != config->head_dim) return "rotary positions of a part of each head";
  for (int layer = 0; layer < config->n_layers; layer++)
    if (config_layer_rope(config, layer) != ROPE_GLOBAL) return "rotary positions that differ by layer";
  return NULL;
}

/* --- the body */

typedef struct {
  Ak48Visit visit;
  void *user;
  uint64_t at; /* where the next tensor begins */
  Error *err;
} Walk;

/* Visits a tensor of [rows][columns], or of [columns] if rows is 0. */
static Status walk_tensor(Walk *walk, Ak48Part part, int layer, int which, int64_t rows, int64_t columns) {
  Ak48Tensor tensor = {
      .part = part, .layer = layer, .which = which, .rank = rows ? 2 : 1, .offset = walk->at};
  tensor.dtype = part == AK48_QWEIGHT || part == AK48_QZEROS ? DTYPE_I32 : DTYPE_F16;
  tensor.shape[0] = rows ? rows : columns;
  tensor.shape[1] = rows ? columns : 0;
  tensor.bytes = (uint64_t)(rows ? rows : 1) * (uint64_t)columns * dtype_bytes(tensor.dtype);
  walk->at += tensor.bytes;
  return walk->visit ? walk->visit(walk->user, &tensor, walk->err) : STATUS_OK;
}

static Status walk_linear(Walk *walk, const Ak48Header *header, int layer, int which) {
  ModelConfig config = {0};
  int n_in, n_out;
  ak48_header_to_config(header, &config);
  layer_linear_sizes(&config, which, &n_in, &n_out);
  int64_t groups = n_in / header->group_size;
  TRY(walk_tensor(walk, AK48_QWEIGHT, layer, which, n_in, n_out / 8));
  TRY(walk_tensor(walk, AK48_QZEROS, layer, which, groups, n_out / 8));
  return walk_tensor(walk, AK48_SCALES, layer, which, groups, n_out);
}

Status ak48_walk(const Ak48Header *h, bool qk_norm, Ak48Visit visit, void *user, uint64_t *end, Error *err) {
  Walk walk = {visit, user, AK48_HEADER_SIZE, err};
  for (int i = 0; i < h->n_layers; i++) TRY(walk_tensor(&walk, AK48_ATTN_NORM, i, 0, 0, h->dim));
  for (int i = 0; i < h->n_layers; i++) TRY(walk_tensor(&walk, AK48_MLP_NORM, i, 0, 0, h->dim));
  TRY(walk_tensor(&walk, AK48_FINAL_NORM, 0, 0, 0, h->dim));
  TRY(walk_tensor(&walk, AK48_EMBEDDING, 0, 0, h->vocab_size, h->dim));
  for (int which = 0; which < N_LAYER_LINEARS; which++)
    for (int i = 0; i < h->n_layers; i++) TRY(walk_linear(&walk, h, i, which));
  if (!h->shared_classifier) TRY(walk_tensor(&walk, AK48_HEAD, 0, 0, h->vocab_size, h->dim));
  for (int i = 0; qk_norm && i < h->n_layers; i++) TRY(walk_tensor(&walk, AK48_Q_NORM, i, 0, 0, h->head_dim));
  for (int i = 0; qk_norm && i < h->n_layers; i++) TRY(walk_tensor(&walk, AK48_K_NORM, i, 0, 0, h->head_dim));
  *end = walk.at;
  return STATUS_OK;
}

void ak48_tensor_name(const Ak48Tensor *tensor, char out[AK48_NAME_SIZE]) {
  static const char *const formats[] = {
      [AK48_ATTN_NORM] = "model.layers.%d.input_layernorm.weight",
      [AK48_MLP_NORM] = "model.layers.%d.post_attention_layernorm.weight",
      [AK48_Q_NORM] = "model.layers.%d.self_attn.q_norm.weight",
      [AK48_K_NORM] = "model.layers.%d.self_attn.k_norm.weight",
      [AK48_FINAL_NORM] = "model.norm.weight",
      [AK48_EMBEDDING] = "model.embed_tokens.weight",
      [AK48_HEAD] = "lm_head.weight",
      [AK48_QWEIGHT] = "qweight",
      [AK48_QZEROS] = "qzeros",
      [AK48_SCALES] = "scales",
  };
  const char *format = formats[tensor->part];
  switch (tensor->part) {
  case AK48_QWEIGHT:
  case AK48_QZEROS:
  case AK48_SCALES:
    snprintf(out, AK48_NAME_SIZE, "model.layers.%d.%s.%s", tensor->layer, layer_linear_name(tensor->which),
             format);
    break;
  case AK48_FINAL_NORM:
  case AK48_EMBEDDING:
  case AK48_HEAD: snprintf(out, AK48_NAME_SIZE, "%s", format); break;
  default: snprintf(out, AK48_NAME_SIZE, format, tensor->layer); break;
  }
}
