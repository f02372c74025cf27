/* identity.c - see identity.h.
 *
 * Called by: commands/answer/cache.c, assistant.c; commands/map/map_settings.c.   Calls: base/content.c. */
#include "model/identity.h"

#include <stdlib.h>

#include "model/loaders.h"

static Status add_bytes(ContentHash *list, const void *bytes, size_t size, Error *err) {
  ContentHash hash;
  TRY(content_of_bytes(bytes, size, 1, NULL, &hash, err));
  content_add(list, hash);
  return STATUS_OK;
}

/* Adds what the files do not determine: values that flags may override, and which tensors are used. */
static Status add_derived(const Model *model, ContentHash *list, Error *err) {
  const double flagged[] = {model->config.rope.theta, model->config.norm_eps};
  size_t n_tensors = model_tensor_count(model);
  bool *used = mem_alloc(n_tensors, sizeof *used, "tensors", err);
  if (!used) return STATUS_FAILED;
  for (size_t i = 0; i < n_tensors; i++) used[i] = model_tensor(model, i)->used;
  Status status = add_bytes(list, used, n_tensors * sizeof *used, err);
  free(used);
  return status ? status : add_bytes(list, flagged, sizeof flagged, err);
}

static Status add_file(const MappedFile *file, const ContentSearch *search, ContentHash *list, bool *known,
                       Error *err) {
  ContentHash hash = {0};
  TRY(content_of_file(file, search, &hash, known, err));
  content_add(list, hash);
  return STATUS_OK;
}

Status model_content(const Model *model, const ContentSearch *search, ContentHash *hash, bool *known,
                     Error *err) {
  const WeightFiles *weights = &model->files->weights;
  *known = !model->dummy;
  *hash = model->config.content;
  TRY(add_derived(model, hash, err));
  for (size_t i = 0; *known && i < weights->n_shards; i++)
    TRY(add_file(&weights->shards[i]->file, search, hash, known, err));
  if (*known && model->layout == LAYOUT_AK48) TRY(add_file(&model->files->packed, search, hash, known, err));
  return STATUS_OK;
}

static bool is_unchanged(const MappedFile *file) {
  return file_has_stamp(file->path, &file->stamp);
}

bool model_is_unchanged(const Model *model) {
  const WeightFiles *weights = &model->files->weights;
  bool unchanged = model->layout != LAYOUT_AK48 || is_unchanged(&model->files->packed);
  for (size_t i = 0; i < weights->n_shards; i++)
    unchanged = unchanged && is_unchanged(&weights->shards[i]->file);
  return unchanged;
}

static Status check_file(const MappedFile *file, Error *err) {
  if (!file_was_overwritten(file->path, &file->stamp)) return STATUS_OK;
  return error_set(err, STATUS_FAILED, "%s was written to while it was in use: these are other weights now",
                   file->path);
}

Status model_check_weights(const Model *model, Error *err) {
  const WeightFiles *weights = &model->files->weights;
  if (model->dummy) return STATUS_OK;
  if (model->layout == LAYOUT_AK48) TRY(check_file(&model->files->packed, err));
  for (size_t i = 0; i < weights->n_shards; i++) TRY(check_file(&weights->shards[i]->file, err));
  return STATUS_OK;
}
