/* ak48.c - the header of a packed file, and the walk over its body.
 *
 * Source of the format: AWQ files, version 5, of the OrinMLLM engine for Qwen3; head_dim and group_size
 * follow the one-byte flag and so are not aligned. Always true: reader and writer use the same walk, so they
 * agree on every tensor's offset. */
#include "model/files/ak48.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "model/layers.h"

/* --- the header */

#define CONTEXT_FIELD offsetof(ModelConfig, max_position)
#define GROUP_FIELD   offsetof(ModelConfig, quant.scheme.group)

/* The maxima of config.h: within them no sum of sizes overflows, and no header causes a long walk. */
static const struct {
  const char *name, *key; /* its name in messages; its key in config.json */
  size_t offset;          /* offset in the file */
  int32_t max;            /* the minimum is 1 */
  size_t field;           /* offset in a ModelConfig */
} fields[] = {
    /* clang-format off */
  { "dim",         "hidden_size",              8, MAX_HIDDEN,       offsetof(ModelConfig, hidden) },
  { "hidden_dim",  "intermediate_size",       12, MAX_INTERMEDIATE, offsetof(ModelConfig, intermediate) },
  { "n_layers",    "num_hidden_layers",       16, MAX_LAYERS,       offsetof(ModelConfig, n_layers) },
  { "n_heads",     "num_attention_heads",     20, MAX_HEADS,        offsetof(ModelConfig, n_heads) },
  { "n_kv_heads",  "num_key_value_heads",     24, MAX_HEADS,        offsetof(ModelConfig, n_kv_heads) },
  { "vocab_size",  "vocab_size",              28, MAX_VOCAB,        offsetof(ModelConfig, vocab_size) },
  { "max_seq_len", "max_position_embeddings", 32, MAX_POSITION,     CONTEXT_FIELD },
  { "head_dim",    "head_dim",                37, MAX_HEAD_DIM,     offsetof(ModelConfig, head_dim) },
  { "group_size",  "group_size",              41, MAX_INTERMEDIATE, GROUP_FIELD },
    /* clang-format on */
};
#define N_FIELDS      (sizeof fields / sizeof *fields)
#define SHARED_OFFSET 36
#define FIELDS_END    45

static int32_t *field_of(const ModelConfig *config, size_t i) {
  return (int32_t *)((char *)config + fields[i].field);
}

static void put_u32(unsigned char *at, uint32_t value) {
  for (int i = 0; i < 4; i++) at[i] = (unsigned char)(value >> 8 * i);
}

static uint32_t get_u32(const unsigned char *at) {
  return (uint32_t)at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24;
}

void ak48_header_encode(const ModelConfig *config, unsigned char out[AK48_HEADER_SIZE]) {
  memset(out, 0, AK48_HEADER_SIZE);
  put_u32(out, AK48_MAGIC);
  put_u32(out + 4, AK48_VERSION);
  for (size_t i = 0; i < N_FIELDS; i++) put_u32(out + fields[i].offset, (uint32_t)*field_of(config, i));
  out[SHARED_OFFSET] = config->tied_embeddings;
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
  if (size >= 9 && bytes[8] == '{') return " (a safetensors file? give the directory that it lies in)";
  if (size >= 2 && memcmp(bytes, "PK", 2) == 0) return " (a PyTorch or zip file)";
  if (size >= 1 && bytes[0] == '{') return " (a JSON file? give the directory that it lies in)";
  return "";
}

/* Refuses sizes that contradict each other. PRECOND each is in its range */
static Status check_sizes(const char *path, const ModelConfig *config, Error *err) {
  if (config->n_heads % config->n_kv_heads != 0)
    return error_set(err, STATUS_MODEL, "%s: n_heads is %d, expected a multiple of n_kv_heads, %d", path,
                     config->n_heads, config->n_kv_heads);
  if (config->head_dim % 2 != 0)
    return error_set(err, STATUS_MODEL, "%s: head_dim is %d, expected an even number up to %d", path,
                     config->head_dim, MAX_HEAD_DIM);
  for (int which = 0; which < N_PACKED_LINEARS; which++) {
    int n_in, n_out, group = config->quant.scheme.group;
    layer_linear_sizes(config, 0, which, &n_in, &n_out);
    if (n_in % group != 0)
      return error_set(err, STATUS_MODEL, "%s: group_size is %d, expected a divisor of the %d inputs of %s",
                       path, group, n_in, layer_linear_name(which));
    if (n_out % 8 != 0)
      return error_set(err, STATUS_MODEL, "%s: %s has %d outputs, expected a multiple of 8", path,
                       layer_linear_name(which), n_out);
  }
  return STATUS_OK;
}

Status ak48_header_decode(const char *path, const unsigned char *bytes, size_t size, ModelConfig *config,
                          Error *err) {
  const char *kind = content_format(bytes, size);
  if (kind == content_format_gguf)
    return error_set(
        err, STATUS_MODEL,
        "%s is %s, which auk does not read; take the Hugging Face checkpoint, such as: auk get OWNER/NAME",
        path, kind);
  if (!has_magic(bytes, size)) {
    char found[16] = "nothing";
    const char *other = other_file(bytes, size);
    if (kind && !*other) return error_set(err, STATUS_MODEL, "%s is %s, and no model", path, kind);
    if (size >= 4) snprintf(found, sizeof found, "0x%08" PRIx32, get_u32(bytes));
    return error_set(err, STATUS_MODEL, "%s is no packed file: it begins with %s, expected 0x%08x (ak48)%s",
                     path, found, AK48_MAGIC, other);
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
    *field_of(config, i) = value;
  }
  if (bytes[SHARED_OFFSET] > 1)
    return error_set(err, STATUS_MODEL, "%s: shared_classifier is %d, expected 0 or 1", path,
                     bytes[SHARED_OFFSET]);
  for (int i = FIELDS_END; i < AK48_HEADER_SIZE; i++)
    if (bytes[i] != 0)
      return error_set(err, STATUS_MODEL, "%s: byte %d of the header is %d, expected 0", path, i, bytes[i]);
  config->tied_embeddings = bytes[SHARED_OFFSET];
  config->rope.rotary_dim = config->head_dim;
  config->attention_scale = 1 / sqrt(config->head_dim);
  config->quant.scheme = (QuantScheme){.method = QUANT_AWQ, .bits = 4, .group = config->quant.scheme.group};
  return check_sizes(path, config, err);
}

Status ak48_header_compare(const ModelConfig *header, const char *path, const ModelConfig *beside,
                           const char *config_path, Error *err) {
  const bool has_group = beside->quant.scheme.method != QUANT_NONE && beside->quant.scheme.group > 0;
  for (size_t i = 0; i < N_FIELDS; i++) {
    const int32_t in_config = *field_of(beside, i), in_header = *field_of(header, i);
    if (fields[i].field == CONTEXT_FIELD ? in_config >= in_header : in_config == in_header) continue;
    if (fields[i].field == GROUP_FIELD && !has_group) continue;
    return error_set(err, STATUS_MODEL, "%s: %s is %d, but the header of %s beside it has %s %d", config_path,
                     fields[i].key, in_config, path, fields[i].name, in_header);
  }
  /* A config may tie the head although the checkpoint has an lm_head, which the packed file then holds. */
  if (beside->tied_embeddings || !header->tied_embeddings) return STATUS_OK;
  return error_set(err, STATUS_MODEL,
                   "%s: tie_word_embeddings is %d, but the header of %s beside it has shared_classifier %d",
                   config_path, beside->tied_embeddings, path, header->tied_embeddings);
}

Status ak48_cannot_hold(const ModelConfig *config, char words[FORM_WORDS], Error *err) {
  const bool mamba = config->delta.rule == RULE_MAMBA2;
  const char *own = NULL;
  if (config->delta.n_key_heads)
    own = mamba ? "Mamba-2 layers" : "layers with the gated delta rule";
  else if (config->conv.taps)
    own = "layers with a short convolution";
  else if (config->experts.n_experts)
    own = "experts";
  else if (config->text_part)
    own = "the text part of a larger model";
  if (!own) TRY(form_refusal(FORM_PACKED, config, words, err));
  for (int layer = 0; !own && !*words && layer < config->n_layers; layer++)
    if (!config_layer_is_alike(config, layer)) own = "layers of different sizes";
  if (own) snprintf(words, FORM_WORDS, "%s", own);
  return STATUS_OK;
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
  const Dtype dtype = part == AK48_QWEIGHT || part == AK48_QZEROS ? DTYPE_I32 : DTYPE_F16;
  const size_t bytes = (size_t)(rows ? rows : 1) * (size_t)columns * dtype_bytes(dtype);
  const Ak48Tensor tensor = {.part = part,
                             .layer = layer,
                             .which = which,
                             .offset = walk->at,
                             .stored = {.dtype = dtype,
                                        .dtype_name = dtype_name(dtype),
                                        .rank = rows ? 2 : 1,
                                        .shape = {rows ? rows : columns, rows ? columns : 0},
                                        .bytes = bytes}};
  walk->at += bytes;
  return walk->visit ? walk->visit(walk->user, &tensor, walk->err) : STATUS_OK;
}

static Status walk_linear(Walk *walk, const ModelConfig *config, int layer, int which) {
  int n_in, n_out;
  layer_linear_sizes(config, layer, which, &n_in, &n_out);
  int64_t groups = n_in / config->quant.scheme.group;
  TRY(walk_tensor(walk, AK48_QWEIGHT, layer, which, n_in, n_out / 8));
  TRY(walk_tensor(walk, AK48_QZEROS, layer, which, groups, n_out / 8));
  return walk_tensor(walk, AK48_SCALES, layer, which, groups, n_out);
}

/* Visits norm `which` of all layers. */
static Status walk_norms(Walk *walk, const ModelConfig *config, int which, int width) {
  for (int i = 0; i < config->n_layers; i++) TRY(walk_tensor(walk, AK48_NORM, i, which, 0, width));
  return STATUS_OK;
}

Status ak48_walk(const ModelConfig *config, bool qk_norm, Ak48Visit visit, void *user, uint64_t *end,
                 Error *err) {
  Walk walk = {visit, user, AK48_HEADER_SIZE, err};
  const int hidden = config->hidden;
  TRY(walk_norms(&walk, config, LAYER_ATTN_NORM, hidden));
  TRY(walk_norms(&walk, config, LAYER_MLP_NORM, hidden));
  TRY(walk_tensor(&walk, AK48_FINAL_NORM, 0, 0, 0, hidden));
  TRY(walk_tensor(&walk, AK48_EMBEDDING, 0, 0, config->vocab_size, hidden));
  for (int which = 0; which < N_PACKED_LINEARS; which++)
    for (int i = 0; i < config->n_layers; i++) TRY(walk_linear(&walk, config, i, which));
  if (!config->tied_embeddings) TRY(walk_tensor(&walk, AK48_HEAD, 0, 0, config->vocab_size, hidden));
  if (qk_norm) TRY(walk_norms(&walk, config, LAYER_Q_NORM, config->head_dim));
  if (qk_norm) TRY(walk_norms(&walk, config, LAYER_K_NORM, config->head_dim));
  *end = walk.at;
  return STATUS_OK;
}

Vector *ak48_norm(Model *model, const Ak48Tensor *tensor) {
  if (tensor->part == AK48_NORM) return &model->layers[tensor->layer].vector[tensor->which];
  return tensor->part == AK48_FINAL_NORM ? &model->final_norm : NULL;
}

void ak48_tensor_name(const Ak48Tensor *tensor, char out[AK48_NAME_SIZE]) {
  static const char *const formats[] = {
      [AK48_NORM] = "model.layers.%d.%s.weight",      [AK48_FINAL_NORM] = "model.norm.weight",
      [AK48_EMBEDDING] = "model.embed_tokens.weight", [AK48_HEAD] = "lm_head.weight",
      [AK48_QWEIGHT] = "model.layers.%d.%s.qweight",  [AK48_QZEROS] = "model.layers.%d.%s.qzeros",
      [AK48_SCALES] = "model.layers.%d.%s.scales",
  };
  /* Formats without %d or %s ignore the arguments. */
  snprintf(out, AK48_NAME_SIZE, formats[tensor->part], tensor->layer,
           tensor->part == AK48_NORM ? layer_vector_name(tensor->which) : layer_linear_name(tensor->which));
}
