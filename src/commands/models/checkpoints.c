/* checkpoints.c - see checkpoints.h.
 * Called by: models.c, known_names.c.
 * Always true: every directory is searched once, whatever links lead to it, and no deeper than the limits. */
#include "commands/models/checkpoints.h"

#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/file.h"
#include "commands/common.h"
#include "commands/models/hub.h"
#include "model/model.h"

/* Appends an entry; takes ownership of name and path, also after a failure. */
static Status add(Checkpoints *list, char *name, char *path, bool from_hub, Error *err) {
  Status status = name && path ? mem_grow(&list->items, &list->capacity, list->count + 1, sizeof *list->items,
                                          "checkpoints", err)
                               : STATUS_FAILED;
  if (status != STATUS_OK) {
    free(name);
    free(path);
    return status;
  }
  list->items[list->count++] = (Checkpoint){.name = name, .path = path, .from_hub = from_hub};
  return STATUS_OK;
}

static Status add_path(Checkpoints *list, const char *path, Error *err) {
  char *name = path_join("", path, err), *copy = name ? path_join("", path, err) : NULL;
  return add(list, name, copy, false, err);
}

/* *first = whether a directory is new, and within the limit; it is then marked as seen. */
static Status mark_seen(Checkpoints *list, const struct stat *info, bool *first, Error *err) {
  *first = false;
  for (size_t i = 0; i < list->n_seen; i++)
    if (list->seen[i].device == info->st_dev && list->seen[i].inode == info->st_ino) return STATUS_OK;
  if (list->n_seen == CHECKPOINTS_MAX_DIRECTORIES) {
    list->cut = true;
    return STATUS_OK;
  }
  TRY(mem_grow(&list->seen, &list->seen_capacity, list->n_seen + 1, sizeof *list->seen, "directories", err));
  list->seen[list->n_seen].device = info->st_dev;
  list->seen[list->n_seen++].inode = info->st_ino;
  *first = true;
  return STATUS_OK;
}

/* Notes a directory that cannot be read. Does nothing if `error` is 0, or if `path` leads to no directory
 * because it has vanished or a link dangles or loops. */
static Status note_unreadable(Checkpoints *list, const char *path, int error, Error *err) {
  if (error == 0 || error == ENOENT || error == ENOTDIR || error == ELOOP) return STATUS_OK;
  OWNED(buffer_release) Buffer text = {0};
  TRY(buffer_printf(&text, err, "%s: cannot look there: %s", path, strerror(error)));
  return names_add(&list->unreadable, text.data, err);
}

static int compare_names(const void *a, const void *b) {
  return strcmp(((const Checkpoint *)a)->name, ((const Checkpoint *)b)->name);
}

Status checkpoints_add_hub(Checkpoints *list, Error *err) {
  OWNED(mem_release) char *hub = NULL;
  OWNED(names_release) Names names = {0};
  const size_t begin = list->count;
  TRY(hub_directory(&hub, err));
  if (!hub) return STATUS_OK;
  TRY(names_read(hub, &names, err));
  TRY(note_unreadable(list, hub, names.error, err));
  for (size_t i = 0; i < names.count; i++) {
    OWNED(mem_release) char *name = NULL, *path = NULL;
    struct stat info;
    bool first;
    TRY(hub_model(hub, names.items[i], &name, &path, err));
    if (!path || stat(path, &info) != 0) continue;
    TRY(mark_seen(list, &info, &first, err));
    TRY(add(list, TAKE(name), TAKE(path), true, err));
  }
  if (list->count > begin)
    qsort(list->items + begin, list->count - begin, sizeof *list->items, compare_names);
  return STATUS_OK;
}

/* --- directories */

int checkpoints_weight_rank(const char *name) {
  static const struct {
    const char *ending;
    int rank;
  } kinds[] = {{".safetensors", 1}, {".bin", 2}, {".pt", 2}, {".pth", 2}, {".gguf", 3}};
  const char *ending = strrchr(name, '.');
  for (size_t k = 0; ending && k < sizeof kinds / sizeof *kinds; k++)
    if (strcmp(ending, kinds[k].ending) == 0)
      return kinds[k].rank - (kinds[k].rank == 1 && strncmp(name, "model", 5) == 0);
  return -1;
}

static bool is_checkpoint(const Names *names) {
  bool has_config = false, has_weights = false;
  for (size_t i = 0; i < names->count; i++) {
    has_config |= strcmp(names->items[i], "config.json") == 0;
    has_weights |= checkpoints_weight_rank(names->items[i]) >= 0;
  }
  return has_config && has_weights;
}

static Status visit(Checkpoints *list, const char *path, int depth, Error *err);

static Status visit_names(Checkpoints *list, const char *path, const Names *names, int depth, Error *err) {
  for (size_t i = 0; i < names->count; i++) {
    OWNED(mem_release) char *below = path_join(path, names->items[i], err);
    if (!below) return STATUS_FAILED;
    TRY(visit(list, below, depth + 1, err));
  }
  return STATUS_OK;
}

static Status visit_directory(Checkpoints *list, const char *path, const struct stat *info, int depth,
                              Error *err) {
  bool first;
  TRY(mark_seen(list, info, &first, err));
  if (!first) return STATUS_OK;
  OWNED(names_release) Names names = {0};
  TRY(names_read(path, &names, err));
  TRY(note_unreadable(list, path, names.error, err));
  if (is_checkpoint(&names)) return add_path(list, path, err);
  if (depth < CHECKPOINTS_MAX_DEPTH) return visit_names(list, path, &names, depth, err);
  list->cut |= names.count > 0;
  return STATUS_OK;
}

static Status visit(Checkpoints *list, const char *path, int depth, Error *err) {
  struct stat info;
  if (stat(path, &info) != 0) return note_unreadable(list, path, errno, err); /* notes no dangling links */
  if (S_ISDIR(info.st_mode)) return visit_directory(list, path, &info, depth, err);
  bool packed = false;
  Error unreadable;
  if (S_ISREG(info.st_mode) && ak48_is(path, &packed, &unreadable) == STATUS_OK && packed)
    return add_path(list, path, err);
  return STATUS_OK;
}

Status checkpoints_add_below(Checkpoints *list, const char *path, Error *err) {
  struct stat info;
  if (stat(path, &info) != 0) return system_error(path, "look there", err);
  if (S_ISDIR(info.st_mode)) {
    OWNED(listing_release) DIR *listing = opendir(path);
    if (!listing) return system_error(path, "read it", err);
  }
  return visit(list, path, 0, err);
}

Status checkpoints_mark_default(Checkpoints *list, const char *name, const char *path, Error *err) {
  struct stat wanted, info;
  if (stat(path, &wanted) != 0) return STATUS_OK;
  size_t i = 0;
  while (i < list->count && !(stat(list->items[i].path, &info) == 0 && info.st_dev == wanted.st_dev &&
                              info.st_ino == wanted.st_ino))
    i++;
  if (i == list->count) {
    char *copy = path_join("", name, err), *place = copy ? path_join("", path, err) : NULL;
    TRY(add(list, copy, place, strcmp(name, path) != 0, err));
  }
  list->items[i].is_default = true;
  return STATUS_OK;
}

Status checkpoints_add_known(Checkpoints *list, Error *err) {
  TRY(checkpoints_add_hub(list, err));
  return file_is_directory(CHECKPOINTS_HERE) ? checkpoints_add_below(list, CHECKPOINTS_HERE, err) : STATUS_OK;
}

void checkpoints_release(Checkpoints *list) {
  for (size_t i = 0; i < list->count; i++) {
    free(list->items[i].name);
    free(list->items[i].path);
  }
  free(list->items);
  free(list->seen);
  names_release(&list->unreadable);
  *list = (Checkpoints){0};
}
