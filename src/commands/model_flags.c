/* model_flags.c - see model_flags.h.   Called by: every command that takes a model.   Calls: models/hub.c,
 * model/model.h, the tokenizer. */
#include "commands/model_flags.h"

#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "commands/common.h"
#include "commands/models/decimal.h"
#include "commands/models/hub.h"
#include "commands/models/known_names.h"

const Flag model_flags[] = {
    FLAG_MODEL(
        "-m, --model", ModelFlags, path,
        "a Hugging Face directory, a packed file, or what Hugging Face's cache has under a name such as "
        "Qwen/Qwen3-8B-AWQ (default: $AUK_MODEL)"),
    FLAG_FILE("--tokenizer", "FILE", ModelFlags, overrides.tokenizer,
              "a tokenizer.json in place of the model's own"),
    FLAG_DOUBLE("--rope-theta", "X", ModelFlags, overrides.rope_theta, 1, 1e12,
                "for a packed file, whose header does not hold it"),
    FLAG_DOUBLE("--norm-eps", "X", ModelFlags, overrides.norm_eps, 1e-12, 1,
                "for a packed file, whose header does not hold it"),
};

Status model_flags_take_operand(ModelFlags *values, const char *operand, Error *err) {
  if (operand && values->path)
    return error_set(err, STATUS_USAGE, "two models: %s and %s", values->path, operand);
  if (operand) values->path = operand;
  return STATUS_OK;
}

bool model_is_there(const char *name) {
  char *whole, *path = NULL;
  bool packed = false, there = false;
  if (known_name(name, &whole, NULL) == STATUS_OK && hub_find(whole, &path, NULL) == STATUS_OK)
    there = file_is_directory(path) || (ak48_is(path, &packed, NULL) == STATUS_OK && packed);
  free(whole);
  free(path);
  return there;
}

/* The model's full name, in new memory. */
static Status model_name(const ModelFlags *values, char **name, Error *err) {
  const char *given = values->path ? values->path : getenv("AUK_MODEL");
  *name = NULL;
  if (given && *given) return known_name(given, name, err);
  return error_set(err, STATUS_USAGE,
                   "no model: give -m MODEL or set AUK_MODEL (auk models lists those that are here, hf "
                   "download " HUB_EXAMPLE " fetches one, auk --help shows how to begin)");
}

Status model_flags_path(const ModelFlags *values, char **path, Error *err) {
  char *name;
  *path = NULL;
  TRY(model_name(values, &name, err));
  Status status = hub_find(name, path, err);
  free(name);
  return status;
}

static Status check_found(const char *name, const char *path, Error *err) {
  if (strcmp(name, path) == 0) TRY(known_name_suggest(name, err));
  return hub_check_found(name, path, err);
}

Status model_flags_check(const ModelFlags *values, const char *path, Error *err) {
  char *name;
  TRY(model_name(values, &name, err));
  Status status = check_found(name, path, err);
  free(name);
  return status;
}

Status model_flags_open(const ModelFlags *values, Model **model, Error *err) {
  char *name, *path = NULL;
  TRY(model_name(values, &name, err));
  Status status = hub_find(name, &path, err);
  if (status == STATUS_OK) status = check_found(name, path, err);
  if (status == STATUS_OK) status = hub_check(name, path, err);
  if (status == STATUS_OK) status = model_open(path, &values->overrides, model, err);
  free(name);
  free(path);
  return status;
}

Status model_flags_name(const ModelFlags *values, const char *path, char **name, Error *err) {
  char *given;
  *name = NULL;
  TRY(model_name(values, &given, err));
  if (strcmp(given, path) != 0) {
    *name = given;
    return STATUS_OK;
  }
  free(given);
  char *whole = realpath(path, NULL); /* resolves "." and symbolic links */
  const char *slash = whole ? strrchr(whole, '/') : NULL, *last = slash && slash[1] ? slash + 1 : path;
  *name = path_join("", last, err); /* a copy */
  free(whole);
  return *name ? STATUS_OK : STATUS_FAILED;
}

Status model_flags_open_known(const ModelFlags *values, Model **model, Error *err) {
  TRY(model_flags_open(values, model, err));
  TRY(model_check_known(*model, err));
  if (!(*model)->assumed) return STATUS_OK;
  const ModelConfig *config = &(*model)->config;
  print_note("%s: no config.json beside it: rope_theta %s (%s) and epsilon %s (%s); --rope-theta and "
             "--norm-eps set them",
             model_path(*model), decimal(config->rope.theta).text, (*model)->theta_source,
             decimal(config->norm_eps).text, (*model)->eps_source);
  return STATUS_OK;
}

Status model_tokenizer_check(const Model *model, const char *model_path, Error *err) {
  if (model->tokenizer_path) return STATUS_OK;
  return error_set(err, STATUS_MODEL, "%s: no tokenizer.json %s it (--tokenizer FILE names one)", model_path,
                   model->layout == LAYOUT_HF_DIRECTORY ? "in" : "beside");
}

Status model_tokenizer_open(const Model *model, const char *model_path, Tokenizer **tokenizer, Error *err) {
  TRY(model_tokenizer_check(model, model_path, err));
  return tokenizer_open(model->tokenizer_path, tokenizer, err);
}

Status ids_check(const Model *model, const int32_t *ids, size_t n, const char *source, IdSource from,
                 Error *err) {
  const int n_known = model->config.vocab_size;
  size_t i = 0;
  while (i < n && ids[i] >= 0 && ids[i] < n_known) i++;
  if (i == n) return STATUS_OK;
  return error_set(err, from == IDS_GIVEN ? STATUS_USAGE : STATUS_MODEL,
                   "%s: token %zu has id %d, expected one below %d, the model's vocabulary%s", source, i,
                   (int)ids[i], n_known, from == IDS_GIVEN ? "" : ": is this the model's own tokenizer?");
}
