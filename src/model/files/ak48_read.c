/* ak48_read.c - opens a packed file, and config.json and tokenizer.json beside it, as a Model.
 *
 * Called by: open.c. Always true after ak48_open(): the body ends exactly at the end of the file. The file's
 * length says whether it holds q and k norms. rope_theta and epsilon are not in the file. They come from a
 * flag, else from config.json in the same directory, else they are Qwen3's published values, which
 * model_check_known() refuses for a file without q and k norms. theta_source and eps_source name the
 * source. */
#include <inttypes.h>

#include "model/files/ak48.h"
#include "model/loaders.h"

/* Values in config.json of the dense Qwen3 of 2025-04 (huggingface.co/Qwen/Qwen3-8B and its siblings);
 * Qwen3-4B-Instruct-2507 has another theta. */
#define PUBLISHED_ROPE_THETA 1000000.0
#define PUBLISHED_NORM_EPS   1e-6
static const char from_published[] = "Qwen3's published value";

typedef struct {
  Model *model;
  const MappedFile *file;
} BodyReader;

static void set_linear(BodyReader *reader, const Ak48Tensor *tensor, const void *data) {
  Linear *linear = layer_linear(&reader->model->layers[tensor->layer], tensor->which);
  linear->kind = LINEAR_AWQ;
  linear->bits = 4;
  linear->group = reader->model->config.quant.scheme.group;
  if (tensor->part == AK48_QWEIGHT)
    linear->qweight = data;
  else if (tensor->part == AK48_QZEROS)
    linear->qzeros = data;
  else
    linear->scales = data;
}

static Status place(void *user, const Ak48Tensor *tensor, Error *err) {
  BodyReader *reader = user;
  Model *model = reader->model;
  ModelFiles *files = model->files;
  const unsigned char *data = reader->file->data + tensor->offset;
  StoredTensor *stored = &files->packed_tensors[files->n_packed_tensors];
  char *name = files->packed_names + AK48_NAME_SIZE * files->n_packed_tensors++;
  ak48_tensor_name(tensor, name);
  *stored = tensor->stored;
  stored->name = name;
  stored->file = reader->file->path;
  stored->data = data;
  stored->used = true;
  Vector *norm = ak48_norm(model, tensor);
  if (norm) {
    *norm = (Vector){data, DTYPE_F16, (int)stored->shape[0]};
    return check_finite(data, DTYPE_F16, (size_t)norm->n, 1, reader->file->path, name, err);
  }
  if (tensor->part == AK48_EMBEDDING)
    model->embedding = (Matrix){data, DTYPE_F16, model->config.vocab_size, model->config.hidden};
  else if (tensor->part == AK48_HEAD)
    model_set_head(model, "lm_head", data, DTYPE_F16);
  else
    set_linear(reader, tensor, data);
  return STATUS_OK;
}

/* Finds by the file's length whether the body holds q and k norms. */
static Status decide_qk_norm(const MappedFile *file, const ModelConfig *header, bool *qk_norm, Error *err) {
  uint64_t without, with;
  TRY(ak48_walk(header, false, NULL, NULL, &without, err));
  TRY(ak48_walk(header, true, NULL, NULL, &with, err));
  *qk_norm = file->size == with;
  if (file->size == with || file->size == without) return STATUS_OK;
  return error_set(err, STATUS_MODEL,
                   "%s: %zu bytes, expected %" PRIu64 " (with q and k norms) or %" PRIu64 " (without): %s",
                   file->path, file->size, with, without,
                   file->size < without ? "truncated" : "too long or truncated");
}

/* --- config.json beside the file */

static Status check_beside(const char *config_path, const char *path, const ModelConfig *beside,
                           const ModelConfig *header, bool qk_norm, Error *err) {
  TRY(ak48_header_compare(header, path, beside, config_path, err));
  char beyond[FORM_WORDS] = "biases";
  if (!beside->qkv_bias && !beside->o_bias && !beside->mlp_bias) TRY(ak48_cannot_hold(beside, beyond, err));
  if (*beyond)
    return error_set(err, STATUS_MODEL, "%s: %s has %s, which a packed file cannot hold, but %s is beside it",
                     config_path, beside->architecture, beyond, path);
  if ((beside->qk_norm != QK_NORM_NONE) != qk_norm)
    return error_set(err, STATUS_MODEL, "%s: %s has %sq and k norms, but by its length %s beside it has %s",
                     config_path, beside->architecture, beside->qk_norm ? "" : "no ", path,
                     qk_norm ? "them" : "none");
  return STATUS_OK;
}

/* Makes a config without a config.json; ak48_header_decode() adds the sizes. */
static void make_config(bool qk_norm, ModelConfig *config) {
  *config = (ModelConfig){.qk_norm = qk_norm ? QK_NORM_HEADS : QK_NORM_NONE, .bos = -1};
  config->embedding_scale = config->residual_scale = config->logit_divisor = 1;
  config->gate_scale = config->mlp_scale = 1;
  snprintf(config->architecture, sizeof config->architecture, "%s",
           qk_norm ? "Qwen3ForCausalLM" : "LlamaForCausalLM");
  config->norm_eps = PUBLISHED_NORM_EPS;
  config->rope = (RopeConfig){.kind = ROPE_PLAIN, .theta = PUBLISHED_ROPE_THETA};
  config->generation = (GenerationDefaults){.temperature = 1, .top_p = 1, .repetition_penalty = 1};
}

static Status find_config(const char *path, const char *directory, const ModelConfig *header, bool qk_norm,
                          Model *model, Error *err) {
  model->theta_source = model->eps_source = qk_norm ? from_published : NULL;
  OWNED(mem_release) char *config_path = path_join(directory, "config.json", err);
  if (!config_path) return STATUS_FAILED;
  if (!file_is_named(config_path)) return make_config(qk_norm, &model->config), STATUS_OK;
  TRY(config_load(directory, &model->config, err));
  model->theta_source = model->eps_source = "config.json beside the file";
  return check_beside(config_path, path, &model->config, header, qk_norm, err);
}

static Status apply_overrides(const ModelOverrides *overrides, Model *model, Error *err) {
  RopeConfig *rope = &model->config.rope;
  if (overrides->rope_theta != 0) {
    if (rope->kind == ROPE_YARN && overrides->rope_theta <= 1) /* as in config.json */
      return error_set(
          err, STATUS_USAGE,
          "--rope-theta is %g, expected more than 1 with the yarn of config.json beside the file",
          overrides->rope_theta);
    rope->theta = overrides->rope_theta;
    model->theta_source = "flag";
  }
  if (overrides->norm_eps != 0) {
    model->config.norm_eps = overrides->norm_eps;
    model->eps_source = "flag";
  }
  const char *const theta = model->theta_source, *const eps = model->eps_source;
  model->assumed = !theta || !eps || theta == from_published || eps == from_published;
  return STATUS_OK;
}

/* --- all of it */

static Status read_body(bool qk_norm, Model *model, Error *err) {
  ModelFiles *files = model->files;
  /* At most: a layer's 2 norms, q and k norms, 3 tensors per linear layer; final norm, embedding, head. */
  size_t n = (size_t)model->config.n_layers * (2 + 3 * N_LAYER_LINEARS + 2) + 3;
  files->packed_tensors = mem_alloc(n, sizeof *files->packed_tensors, "tensors", err);
  files->packed_names = mem_alloc(n, AK48_NAME_SIZE, "tensor names", err);
  if (!files->packed_tensors || !files->packed_names) return STATUS_FAILED;
  TRY(model_make_layers(model, "model.", err));
  BodyReader reader = {model, &files->packed};
  uint64_t end;
  TRY(ak48_walk(&model->config, qk_norm, place, &reader, &end, err));
  model->weight_bytes = end - AK48_HEADER_SIZE;
  if (model->config.tied_embeddings) model_set_head(model, NULL, NULL, DTYPE_F16);
  return STATUS_OK;
}

Status ak48_open(const char *path, const ModelOverrides *overrides, Model *model, Error *err) {
  MappedFile *file = &model->files->packed;
  ModelConfig header = {0};
  bool qk_norm;
  TRY(file_map(path, STATUS_MODEL, file, err));
  TRY(ak48_header_decode(path, file->data, file->size, &header, err));
  TRY(decide_qk_norm(file, &header, &qk_norm, err));
  model->layout = LAYOUT_AK48;
  OWNED(mem_release) char *directory = path_directory(path, err);
  if (!directory) return STATUS_FAILED;
  TRY(find_config(path, directory, &header, qk_norm, model, err));
  TRY(ak48_header_decode(path, file->data, file->size, &model->config, err));
  TRY(apply_overrides(overrides, model, err));
  TRY(read_body(qk_norm, model, err));
  return find_tokenizer(model, directory, overrides, err);
}
