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
#include "commands/models/names.h"

/* --- last parts */

static const char *last_part(const char *name) {
  const char *slash = strrchr(name, '/');
  return slash ? slash + 1 : name;
}

/* *name: the only listed name with this last part, in new memory, or NULL. */
static Status look_for_last_part(const char *text, char **name, Error *err) {
  Checkpoints list = {0};
  Buffer names = {0};
  size_t n = 0;
  Status status = checkpoints_add_known(&list, err);
  for (size_t i = 0; i < list.count && status == STATUS_OK; i++)
    if (strcmp(last_part(list.items[i].name), text) == 0)
      status = buffer_printf(&names, err, "%s%s", n++ ? ", " : "", list.items[i].name);
  checkpoints_release(&list);
  if (status == STATUS_OK && n > 1)
    status = error_set(err, STATUS_USAGE, "%s is the last part of several names: %s; give a whole one", text,
                       names.data);
  if (status == STATUS_OK)
    *name = names.data;
  else
    buffer_release(&names);
  return status;
}

/* *whole: the text is a path, or a full name in the cache. */
static Status is_whole(const char *text, bool *whole, Error *err) {
  char *path;
  *whole = strchr(text, '/') || file_exists(text);
  if (*whole) return STATUS_OK;
  TRY(hub_find(text, &path, err));
  *whole = strcmp(path, text) != 0;
  free(path);
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

/* *found: the path, in new memory, of the closest folder or packed file in the folder that the text names;
 * NULL: none is close. */
static Status nearest_in_folder(const char *text, Suggestion *nearest, char **found, Error *err) {
  Names names = {0};
  char *folder = path_directory(text, err);
  Status status = folder ? names_read(folder, &names, err) : STATUS_FAILED;
  *found = NULL;
  for (size_t i = 0; i < names.count && status == STATUS_OK; i++) {
    const char *name = names.items[i], *ending = strrchr(name, '.'), *before = nearest->word;
    char *path = path_join(last_part(text) == text ? "" : folder, name, err);
    status = path ? STATUS_OK : STATUS_FAILED;
    if (path && ((ending && strcmp(ending, ".ak48") == 0) || file_is_directory(path)))
      suggestion_consider(nearest, name, strlen(name));
    if (nearest->word == before) {
      free(path);
    } else {
      free(*found);
      *found = path;
    }
  }
  names_release(&names);
  free(folder);
  return status;
}

static Status refuse_nearest(const char *text, const Checkpoints *list, Error *err) {
  Suggestion whole = suggestion_begin(text, strlen(text)),
             last = suggestion_begin(last_part(text), strlen(last_part(text)));
  char *path;
  const char *name = nearest_listed(list, &whole);
  Status status = nearest_in_folder(text, &last, &path, err);
  if (status == STATUS_OK && (name || path))
    status = error_set(err, STATUS_MODEL, "%s: no such file or directory; did you mean %s?", text,
                       !name || (path && last.cost < whole.cost) ? path : name);
  free(path);
  return status;
}

static bool begins_in_folder(const char *text) {
  char *first = path_join("", text, NULL);
  if (!first) return false;
  char *slash = strchr(first, '/');
  if (slash && slash != first) *slash = 0;
  const bool here = !slash || slash == first || file_is_directory(first);
  free(first);
  return here;
}

static bool has_config(const char *directory) {
  char *config = path_join(directory, "config.json", NULL);
  const bool has = config && file_exists(config);
  free(config);
  return has;
}

/* Refuses a folder that is no checkpoint but has checkpoints directly below it. */
static Status refuse_folder_above(const char *folder, Error *err) {
  enum { MOST = 3 };
  Names names = {0};
  Buffer found = {0};
  int n = 0;
  Status status =
      file_is_directory(folder) && !has_config(folder) ? names_read(folder, &names, err) : STATUS_OK;
  for (size_t i = 0; i < names.count && status == STATUS_OK; i++) {
    char *path = path_join(folder, names.items[i], err);
    status = path ? STATUS_OK : STATUS_FAILED;
    if (path && has_config(path) && n++ < MOST)
      status = buffer_printf(&found, err, "%s%s", n > 1 ? ", " : "", path);
    free(path);
  }
  if (status == STATUS_OK && n > 0)
    status = error_set(err, STATUS_MODEL, "%s is no checkpoint, but a folder with %s%s", folder, found.data,
                       n > MOST ? ", ..." : "");
  buffer_release(&found);
  names_release(&names);
  return status;
}

Status known_name_suggest(const char *text, Error *err) {
  struct stat info;
  Checkpoints list = {0};
  TRY(refuse_folder_above(text, err));
  /* Dangling links and unsearchable folders pass: opening them gives the reason. */
  const bool is_missing = lstat(text, &info) != 0 && errno == ENOENT;
  if (!is_missing || !begins_in_folder(text)) return STATUS_OK;
  Status status = checkpoints_add_known(&list, err);
  if (status == STATUS_OK) status = refuse_nearest(text, &list, err);
  checkpoints_release(&list);
  return status;
}
