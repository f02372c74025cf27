/* companions.c - see companions.h. Called by: pack.c.
 * Always true: files that existed before are not written to, replaced or removed. */
#include "commands/models/companions.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "commands/common.h"

/* --- one file */

static Status write_copy(const MappedFile *file, const char *to, AtomicFile *copy, Error *err) {
  TRY(atomic_file_open(to, copy, err));
  if (file->size) TRY(atomic_file_write(copy, file->data, file->size, err));
  return atomic_file_sync(copy, err);
}

/* Reports whether `to` holds the same bytes as the mapped file. */
static Status has_same_bytes(const MappedFile *file, const char *to, bool *same, Error *err) {
  OWNED(file_unmap) MappedFile there = {0};
  TRY(file_map(to, STATUS_FAILED, &there, err));
  *same = there.size == file->size && (file->size == 0 || memcmp(there.data, file->data, file->size) == 0);
  return STATUS_OK;
}

static Status add_name(Buffer *names, const char *name, Error *err) {
  return buffer_printf(names, err, "%s%s", names->size ? ", " : "", name);
}

typedef struct {
  Buffer names;
  int n;
} Differing; /* files that exist with other bytes than the model's */

static void differing_release(Differing *differing) {
  buffer_release(&differing->names);
}

/* If `to` exists, compares it with `from`; else prepares a copy of `from`. PRECOND `to` exists if copy is
 * NULL */
static Status copy_one(const char *from, const char *to, AtomicFile *copy, Differing *differing, Error *err) {
  OWNED(file_unmap) MappedFile file = {0};
  bool same = true;
  TRY(file_map(from, STATUS_MODEL, &file, err));
  TRY(!copy || file_is_named(to) ? has_same_bytes(&file, to, &same, err) : write_copy(&file, to, copy, err));
  if (same) return STATUS_OK;
  differing->n++;
  return add_name(&differing->names, to, err);
}

/* --- all files */

static Status copy_named(const char *directory, const char *beside, int which, Companions *copies,
                         Differing *differing, Error *err) {
  const char *name = model_companions[which];
  OWNED(mem_release) char *from = path_join(directory, name, err);
  OWNED(mem_release) char *to = from ? path_join(beside, name, err) : NULL;
  if (!to) return STATUS_FAILED;
  if (file_is_named(from)) return copy_one(from, to, &copies->files[which], differing, err);
  if (file_is_named(to))
    print_note("%s was there already and will be read with the packed file, although %s has no %s", to,
               directory, name);
  return STATUS_OK;
}

static Status refuse_differing(const Differing *differing, const char *directory, Error *err) {
  const bool one = differing->n == 1;
  if (differing->n == 0) return STATUS_OK;
  return error_set(err, STATUS_USAGE,
                   "%.*s %s there already and differ%s from %s's: remove %s, or give -o another folder",
                   (int)differing->names.size, differing->names.data, one ? "is" : "are", one ? "s" : "",
                   directory, one ? "it" : "them");
}

static Status copy_all(const char *directory, const char *beside, Companions *copies, Error *err) {
  OWNED(differing_release) Differing differing = {0};
  for (int i = 0; i < N_MODEL_COMPANIONS; i++) TRY(copy_named(directory, beside, i, copies, &differing, err));
  return refuse_differing(&differing, directory, err);
}

Status companions_copy(const Model *model, const char *output, Companions *copies, Error *err) {
  OWNED(mem_release)
  char *directory = model_directory(model, err), *beside = directory ? path_directory(output, err) : NULL;
  return beside ? copy_all(directory, beside, copies, err) : STATUS_FAILED;
}

/* --- moving into place */

/* Renames the copy to its final name. If a file has this name by now, compares it with the model's file. */
static Status place_one(const char *directory, int which, Companions *copies, Differing *differing,
                        Error *err) {
  AtomicFile *copy = &copies->files[which];
  struct stat info;
  bool placed = false;
  OWNED(mem_release) char *to = path_join("", copy->path, err); /* a copy */
  OWNED(mem_release) char *from = to ? path_join(directory, model_companions[which], err) : NULL;
  if (!from) return STATUS_FAILED;
  if (fstat(copy->descriptor, &info) != 0) return system_error(to, "examine", err);
  TRY(atomic_file_place(copy, &placed, err));
  if (!placed) return copy_one(from, to, NULL, differing, err);
  copies->placed[which] = (PlacedFile){to, info.st_dev, info.st_ino};
  to = NULL;
  return STATUS_OK;
}

Status companions_commit(const Model *model, Companions *copies, Error *err) {
  OWNED(differing_release) Differing differing = {0};
  OWNED(mem_release) char *directory = model_directory(model, err);
  if (!directory) return STATUS_FAILED;
  for (int i = 0; i < N_MODEL_COMPANIONS; i++)
    if (copies->files[i].path) TRY(place_one(directory, i, copies, &differing, err));
  return refuse_differing(&differing, directory, err);
}

void companions_release(Companions *copies) {
  for (int i = 0; i < N_MODEL_COMPANIONS; i++) {
    atomic_file_abort(&copies->files[i]);
    free(copies->placed[i].path);
  }
  *copies = (Companions){0};
}

void companions_undo(Companions *copies) {
  for (int i = 0; i < N_MODEL_COMPANIONS; i++) {
    const PlacedFile *file = &copies->placed[i];
    struct stat now;
    if (file->path && lstat(file->path, &now) == 0 && now.st_dev == file->device && now.st_ino == file->inode)
      unlink(file->path);
  }
  companions_release(copies);
}

Status companions_list(const Model *model, Buffer *names, Error *err) {
  OWNED(mem_release) char *directory = model_directory(model, err);
  if (!directory) return STATUS_FAILED;
  for (int i = 0; i < N_MODEL_COMPANIONS; i++) {
    OWNED(mem_release) char *path = path_join(directory, model_companions[i], err);
    if (!path) return STATUS_FAILED;
    if (file_is_named(path)) TRY(add_name(names, model_companions[i], err));
  }
  return STATUS_OK;
}
