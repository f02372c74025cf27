/* open.c - opens and closes checkpoints of either layout. */
#include <math.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "model/loaders.h"

static Status check_overrides(const ModelOverrides *overrides, Error *err) {
  if (overrides->rope_theta != 0 && !(isfinite(overrides->rope_theta) && overrides->rope_theta > 0))
    return error_set(err, STATUS_USAGE, "--rope-theta is %g, expected a number above 0",
                     overrides->rope_theta);
  if (overrides->norm_eps != 0 && !(isfinite(overrides->norm_eps) && overrides->norm_eps > 0))
    return error_set(err, STATUS_USAGE, "--norm-eps is %g, expected a number above 0", overrides->norm_eps);
  return STATUS_OK;
}

Status model_make(const char *path, Model **model, Error *err) {
  TRY(NEW(*model, 1, "a model", err));
  TRY(NEW((*model)->files, 1, "a model", err));
  (*model)->files->path = path_join("", path, err); /* a copy */
  return (*model)->files->path ? STATUS_OK : STATUS_FAILED;
}

Status model_open(const char *path, const ModelOverrides *overrides, Model **model, Error *err) {
  static const ModelOverrides none = {0};
  if (!overrides) overrides = &none;
  TRY(model_make(path, model, err));
  TRY(check_overrides(overrides, err));
  if (file_is_directory(path)) return hf_directory_open(path, overrides, *model, err);
  return ak48_open(path, overrides, *model, err);
}

Status model_open_draft(const char *path, const Model *target, Model **draft, Error *err) {
  TRY(model_make(path, draft, err));
  return hf_draft_open(path, target, *draft, err);
}

Status model_check_known(const Model *model, Error *err) {
  if (!model->assumed || model->config.qk_norm) return STATUS_OK;
  return error_set(err, STATUS_MODEL,
                   "%s does not say rope_theta and epsilon: put the model's config.json beside it, or give "
                   "--rope-theta and --norm-eps",
                   model->files->path);
}

void model_drop_pages(const Model *model) {
  const WeightFiles *files = &model->files->weights;
  for (size_t i = 0; i < files->n_shards; i++)
    file_drop_pages(files->shards[i]->file.data, files->shards[i]->file.size);
}

void model_close(Model *model) {
  if (!model) return;
  if (model->files) {
    weight_files_close(&model->files->weights);
    file_unmap(&model->files->packed);
    if (model->files->reserved) munmap(model->files->reserved, model->files->reserved_bytes);
    free(model->files->packed_tensors);
    for (size_t i = 0; i < model->files->n_made; i++) free(model->files->made[i]);
    free(model->files->made);
    free(model->files->stored);
    free(model->files->packed_names);
    free(model->files->names);
    free(model->files->experts);
    free(model->files->waiting);
    free(model->files->ngram_shards);
    for (size_t i = 0; i < model->files->n_views; i++) free(model->files->views[i]);
    free(model->files->views);
    free(model->files->path);
    free(model->files);
  }
  config_release(&model->config);
  free(model->layers);
  free(model->draft.target_ids);
  free(model->tokenizer_path);
  free(model);
}
