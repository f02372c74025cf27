/* companions.c - see companions.h.   Called by: pack.c.   Calls: model/model.h, base/file.h.
 *
 * Always true: no file that was there before is written to, replaced or removed. */
#include "commands/models/companions.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "commands/common.h"

/* --- one of them */

static Status write_copy(const MappedFile *file, const char *to, AtomicFile *copy, Error *err) {
  TRY(atomic_file_open(to, copy, err));
  return file->size ? atomic_file_write(copy, file->data, file->size, err) : STATUS_OK;
}

/* Whether `to` holds the same bytes as the mapped file. */
static Status has_same_bytes(const MappedFile *file, const char *to, bool *same, Error *err) {
  MappedFile there;
  TRY(file_map(to, STATUS_FAILED, &there, err));
  *same = there.size == file->size && (file->size == 0 || memcmp(there.data, file->data, file->size) == 0);
  file_unmap(&there);
  return STATUS_OK;
}

/* Appends to `differing` what is there with other bytes. */
static Status copy_one(const char *from, const char *to, AtomicFile *copy, Buffer *differing, Error *err) {
  MappedFile file;
  bool same = true;
  TRY(file_map(from, STATUS_MODEL, &file, err));
  Status status =
      file_is_named(to) ? has_same_bytes(&file, to, &same, err) : write_copy(&file, to, copy, err);
  if (status == STATUS_OK && !same)
    status = buffer_printf(differing, err, "%s%s", differing->size ? ", " : "", to);
  file_unmap(&file);
  return status;
}

/* --- all of them */

static Status copy_named(const char *directory, const char *beside, int which, Companions *copies,
                         Buffer *differing, Error *err) {
  const char *name = model_companions[which];
  char *from = path_join(directory, name, err), *to = from ? path_join(beside, name, err) : NULL;
  Status status = from && to ? STATUS_OK : STATUS_FAILED;
  if (status == STATUS_OK && file_is_named(from))
    status = copy_one(from, to, &copies->files[which], differing, err);
  else if (status == STATUS_OK && file_is_named(to))
    print_note("%s is there, but %s has none: the packed file will be run with it", to, directory);
  free(from);
  free(to);
  return status;
}

static Status copy_all(const char *directory, const char *beside, Companions *copies, Error *err) {
  Buffer differing = {0};
  Status status = STATUS_OK;
  for (int i = 0; i < N_MODEL_COMPANIONS && status == STATUS_OK; i++)
    status = copy_named(directory, beside, i, copies, &differing, err);
  if (status == STATUS_OK && differing.size)
    status = error_set(err, STATUS_USAGE,
                       "%.*s: there already, and not the same as in %s: the packed file would be run with "
                       "another model's; give -o a folder of its own",
                       (int)differing.size, differing.data, directory);
  buffer_release(&differing);
  return status;
}

Status companions_copy(const Model *model, const char *output, Companions *copies, Error *err) {
  char *directory = model_directory(model, err), *beside = directory ? path_directory(output, err) : NULL;
  Status status = beside ? copy_all(directory, beside, copies, err) : STATUS_FAILED;
  free(directory);
  free(beside);
  return status;
}

Status companions_commit(Companions *copies, Error *err) {
  for (int i = 0; i < N_MODEL_COMPANIONS; i++) {
    AtomicFile *file = &copies->files[i];
    if (!file->path) continue;
    char *path = path_join("", file->path, err); /* a copy */
    if (!path) return STATUS_FAILED;
    Status status = atomic_file_commit(file, err);
    if (status == STATUS_OK)
      copies->placed[i] = path;
    else
      free(path);
    TRY(status);
  }
  return STATUS_OK;
}

void companions_release(Companions *copies) {
  for (int i = 0; i < N_MODEL_COMPANIONS; i++) {
    atomic_file_abort(&copies->files[i]);
    free(copies->placed[i]);
  }
  *copies = (Companions){0};
}

void companions_undo(Companions *copies) {
  for (int i = 0; i < N_MODEL_COMPANIONS; i++)
    if (copies->placed[i]) unlink(copies->placed[i]);
  companions_release(copies);
}

Status companions_list(const Model *model, Buffer *names, Error *err) {
  char *directory = model_directory(model, err);
  Status status = directory ? STATUS_OK : STATUS_FAILED;
  for (int i = 0; i < N_MODEL_COMPANIONS && status == STATUS_OK; i++) {
    char *path = path_join(directory, model_companions[i], err);
    status = path ? STATUS_OK : STATUS_FAILED;
    if (path && file_is_named(path))
      status = buffer_printf(names, err, "%s%s", names->size ? ", " : "", model_companions[i]);
    free(path);
  }
  free(directory);
  return status;
}
