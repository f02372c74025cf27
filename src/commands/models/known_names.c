/* known_names.c - see known_names.h. Called by: model_flags.c. Opens no checkpoint. */
#include "commands/models/known_names.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/file.h"
#include "commands/did_you_mean.h"
#include "commands/models/checkpoints.h"
#include "commands/models/hub.h"
#include "commands/names.h"

/* --- last parts */

static const char *last_part(const char *name) {
  const char *slash = strrchr(name, '/');
  return slash ? slash + 1 : name;
}

/* *name: the listed name with this last part, in new memory, or NULL; refuses several such names. */
static Status look_for_last_part(const char *text, char **name, Error *err) {
  OWNED(checkpoints_release) Checkpoints list = {0};
  OWNED(buffer_release) Buffer names = {0};
  size_t n = 0;
  TRY(checkpoints_add_known(&list, err));
  for (size_t i = 0; i < list.count; i++)
    if (strcmp(last_part(list.items[i].name), text) == 0)
      TRY(buffer_printf(&names, err, "%s%s", n++ ? ", " : "", list.items[i].name));
  if (n > 1)
    return error_set(err, STATUS_USAGE, "%s is the last part of several names: %s; give a whole one", text,
                     names.data);
  *name = names.data;
  names = (Buffer){0};
  return STATUS_OK;
}

/* *whole: the text is a path, or a full name in the cache. */
static Status is_whole(const char *text, bool *whole, Error *err) {
  OWNED(mem_release) char *path = NULL;
  *whole = strchr(text, '/') || file_exists(text);
  if (*whole) return STATUS_OK;
  TRY(hub_find(text, &path, err));
  *whole = strcmp(path, text) != 0;
  return STATUS_OK;
}

Status known_name(const char *text, char **name, Error *err) {
  bool whole;
  *name = NULL;
  TRY(is_whole(text, &whole, err));
  if (!whole) TRY(look_for_last_part(text, name, err));
  if (!*name) *name = path_join("", text, err); /* a copy */
  return *name ? STATUS_OK : STATUS_FAILED;
}

/* --- suggestions */

/* The name in the list closest to the text, in full or by its last part; NULL: none is close. */
static const char *nearest_listed(const Checkpoints *list, Suggestion *nearest) {
  const char *found = NULL;
  for (size_t i = 0; i < list->count; i++) {
    const char *name = list->items[i].name, *last = last_part(name), *before = nearest->word;
    suggestion_consider(nearest, name, strlen(name));
    suggestion_consider(nearest, last, strlen(last));
    if (nearest->word != before) found = name;
  }
  return found;
}

/* *found: the path, in new memory, of the folder or packed file whose name is closest. Only the folder of
 * `text` is searched. NULL: none is close. */
static Status nearest_in_folder(const char *text, Suggestion *nearest, char **found, Error *err) {
  OWNED(names_release) Names names = {0};
  OWNED(mem_release) char *folder = path_directory(text, err);
  if (!folder) return STATUS_FAILED;
  TRY(names_read(folder, &names, err));
  for (size_t i = 0; i < names.count; i++) {
    const char *name = names.items[i], *ending = strrchr(name, '.'), *before = nearest->word;
    OWNED(mem_release) char *path = path_join(last_part(text) == text ? "" : folder, name, err);
    if (!path) return STATUS_FAILED;
    if ((ending && strcmp(ending, ".ak48") == 0) || file_is_directory(path))
      suggestion_consider(nearest, name, strlen(name));
    if (nearest->word == before) continue;
    free(*found);
    *found = path;
    path = NULL;
  }
  return STATUS_OK;
}

static Status refuse_nearest(const char *text, const Checkpoints *list, Error *err) {
  Suggestion whole = suggestion_begin(text, strlen(text)),
             last = suggestion_begin(last_part(text), strlen(last_part(text)));
  OWNED(mem_release) char *path = NULL;
  const char *name = nearest_listed(list, &whole);
  TRY(nearest_in_folder(text, &last, &path, err));
  if (!name && !path) return STATUS_OK;
  return error_set(err, STATUS_MODEL, "%s: no such file or directory; did you mean %s?", text,
                   !name || (path && last.cost < whole.cost) ? path : name);
}

static bool begins_in_folder(const char *text) {
  OWNED(mem_release) char *first = path_join("", text, NULL);
  if (!first) return false;
  char *slash = strchr(first, '/');
  if (slash && slash != first) *slash = 0;
  return !slash || slash == first || file_is_directory(first);
}

static bool has_config(const char *directory) {
  OWNED(mem_release) char *config = path_join(directory, "config.json", NULL);
  return config && file_exists(config);
}

/* Refuses a folder that is no checkpoint but has checkpoints directly below it. */
static Status refuse_folder_above(const char *folder, Error *err) {
  enum { MOST = 3 };
  OWNED(names_release) Names names = {0};
  OWNED(buffer_release) Buffer found = {0};
  int n = 0;
  if (file_is_directory(folder) && !has_config(folder)) TRY(names_read(folder, &names, err));
  for (size_t i = 0; i < names.count; i++) {
    OWNED(mem_release) char *path = path_join(folder, names.items[i], err);
    if (!path) return STATUS_FAILED;
    if (has_config(path) && n++ < MOST) TRY(buffer_printf(&found, err, "%s%s", n > 1 ? ", " : "", path));
  }
  if (n == 0) return STATUS_OK;
  return error_set(err, STATUS_MODEL, "%s is no checkpoint, but a folder with %s%s", folder, found.data,
                   n > MOST ? ", ..." : "");
}

Status known_name_suggest(const char *text, Error *err) {
  struct stat info;
  OWNED(checkpoints_release) Checkpoints list = {0};
  TRY(refuse_folder_above(text, err));
  /* Dangling links and unsearchable folders are not refused here: opening them gives the reason. */
  const bool is_missing = lstat(text, &info) != 0 && errno == ENOENT;
  if (!is_missing || !begins_in_folder(text)) return STATUS_OK;
  TRY(checkpoints_add_known(&list, err));
  return refuse_nearest(text, &list, err);
}
