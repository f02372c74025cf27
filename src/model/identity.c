/* identity.c - see identity.h. */
#include "model/identity.h"

#include <stdlib.h>

#include "model/loaders.h"

static Status add_bytes(ContentHash *list, const void *bytes, size_t size, Error *err) {
  ContentHash hash;
  TRY(content_of_bytes(bytes, size, 1, NULL, &hash, err));
  content_add(list, hash);
  return STATUS_OK;
}

/* Adds what a model's files do not determine: values that flags may override, and which tensors are used. */
static Status add_derived(const Model *model, ContentHash *list, Error *err) {
  const double flagged[] = {model->config.rope.theta, model->config.norm_eps};
  size_t n_tensors = model_tensor_count(model);
  OWNED(mem_release) bool *used = NULL;
  TRY(NEW(used, n_tensors, "tensors", err));
  for (size_t i = 0; i < n_tensors; i++) used[i] = model_tensor(model, i)->used;
  TRY(add_bytes(list, used, n_tensors * sizeof *used, err));
  return add_bytes(list, flagged, sizeof flagged, err);
}

Status model_content(const Model *model, const ContentSearch *search, ContentHash *hash, bool *known,
                     Error *err) {
  const MappedFile *file;
  *known = !model->dummy;
  *hash = model->config.content;
  TRY(add_derived(model, hash, err));
  for (size_t i = 0; *known && (file = model_file(model, i)); i++) {
    ContentHash next = {0};
    TRY(content_of_file(file, search, &next, known, err));
    content_add(hash, next);
  }
  return STATUS_OK;
}

Status model_sample(const Model *model, ContentHash *hash, Error *err) {
  enum { HEAD = 1 << 16, SAMPLES = 256, SAMPLE = 64 };
  const MappedFile *file;
  *hash = (ContentHash){0};
  for (size_t i = 0; (file = model_file(model, i)); i++) {
    const size_t head = file->size < HEAD ? file->size : HEAD, step = file->size / SAMPLES;
    TRY(add_bytes(hash, &file->size, sizeof file->size, err));
    TRY(add_bytes(hash, file->data, head, err));
    for (size_t k = 0; k < SAMPLES && step >= SAMPLE; k++)
      TRY(add_bytes(hash, file->data + k * step, SAMPLE, err));
  }
  return STATUS_OK;
}

Status model_stamps(const Model *model, Buffer *text, Error *err) {
  const MappedFile *file;
  TRY(buffer_printf(text, err, "config %016llx%016llx\n", (unsigned long long)model->config.content.a,
                    (unsigned long long)model->config.content.b));
  for (size_t i = 0; (file = model_file(model, i)); i++) {
    TRY(buffer_append_string(text, "weights ", err));
    TRY(file_stamp_write(&file->stamp, text, err));
    TRY(buffer_append(text, "\n", 1, err));
  }
  return STATUS_OK;
}

bool model_is_unchanged(const Model *model) {
  const MappedFile *file;
  for (size_t i = 0; (file = model_file(model, i)); i++)
    if (!file_has_stamp(file->path, &file->stamp)) return false;
  return true;
}

Status model_check_weights(const Model *model, Error *err) {
  const MappedFile *file;
  for (size_t i = 0; (file = model_file(model, i)); i++)
    if (file_was_overwritten(file->path, &file->stamp))
      return error_set(err, STATUS_FAILED,
                       "%s was written to while it was in use: these are other weights now", file->path);
  return STATUS_OK;
}
