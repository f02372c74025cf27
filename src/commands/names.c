/* names.c - see names.h. */
#include "commands/names.h"

#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "commands/common.h"

Status names_add(Names *names, const char *name, Error *err) {
  TRY(mem_grow(&names->items, &names->capacity, names->count + 1, sizeof *names->items, "a directory", err));
  char *copy = path_join("", name, err);
  if (!copy) return STATUS_FAILED;
  names->items[names->count++] = copy;
  return STATUS_OK;
}

static int compare(const void *a, const void *b) {
  return strcmp(*(char *const *)a, *(char *const *)b);
}

Status names_read(const char *directory, Names *names, Error *err) {
  OWNED(listing_release) DIR *listing = opendir(directory);
  names->error = listing ? 0 : errno;
  if (!listing && (errno == ENOMEM || errno == EMFILE || errno == ENFILE))
    return system_error(directory, "read it", err);
  Status status = STATUS_OK;
  for (struct dirent *entry; listing && status == STATUS_OK && (entry = readdir(listing));)
    if (entry->d_name[0] != '.') status = names_add(names, entry->d_name, err);
  if (names->count) qsort(names->items, names->count, sizeof *names->items, compare);
  return status;
}

void names_release(Names *names) {
  for (size_t i = 0; i < names->count; i++) free(names->items[i]);
  free(names->items);
  *names = (Names){0};
}
