/* hub.c - see hub.h.
 * Always true: no path leads out of the cache, since parts of names are checked before they become parts of
 * paths. */
#include "commands/models/hub.h"

#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/file.h"
#include "base/json.h"
#include "commands/models/checkpoints.h"
#include "commands/names.h"
#include "model/files/weight_files.h"

#define REPOSITORY_PREFIX "models--"

enum { MAX_NAME = 96, MAX_REVISION = 128 }; /* bytes: huggingface.co's limits; revision: branch or tag */

/* --- names */

/* True if text[0..size) is valid as part of a name or revision: a file name that cannot lead upwards. */
static bool is_part(const char *text, size_t size) {
  static const char plain[] = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ-_.";
  for (size_t i = 0; i < size; i++)
    if (!text[i] || !strchr(plain, text[i])) return false;
  return size > 0 && text[0] != '-' && text[0] != '.' && text[size - 1] != '.';
}

/* The pieces of a name; they point into its text. */
typedef struct {
  const char *organisation; /* [organisation_size], which is 0 without one */
  const char *name;         /* [name_size] */
  const char *revision;     /* the rest of the text, or NULL */
  size_t organisation_size, name_size;
} HubName;

static bool is_revision(const char *text) {
  if (strlen(text) > MAX_REVISION) return false;
  for (const char *part = text;;) {
    size_t size = strcspn(part, "/");
    if (!is_part(part, size)) return false;
    if (!part[size]) return true;
    part += size + 1;
  }
}

static bool read_name(const char *text, HubName *out) {
  size_t size = strcspn(text, "@");
  const char *slash = memchr(text, '/', size);
  *out = (HubName){.organisation = text,
                   .organisation_size = slash ? (size_t)(slash - text) : 0,
                   .name = slash ? slash + 1 : text,
                   .revision = text[size] ? text + size + 1 : NULL};
  out->name_size = size - (size_t)(out->name - text);
  return size <= MAX_NAME && is_part(out->name, out->name_size) &&
         (!slash || is_part(out->organisation, out->organisation_size)) &&
         (!out->revision || is_revision(out->revision));
}

bool hub_is_name(const char *text) {
  HubName name;
  return read_name(text, &name);
}

/* --- the cache */

/* Formats a path in new memory. */
static Status path_print(char **out, Error *err, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
static Status path_print(char **out, Error *err, const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  const int length = vasprintf(out, format, arguments);
  va_end(arguments);
  if (length >= 0) return STATUS_OK;
  *out = NULL;
  return error_set(err, STATUS_FAILED, "out of memory: a path");
}

/* The value of the environment variable, with a leading "~/" expanded, then `name`; NULL if the variable is
 * unset or empty. */
static Status place(const char *variable, const char *name, char **out, Error *err) {
  const char *value = getenv(variable), *home = getenv("HOME");
  *out = NULL;
  if (!value || !*value) return STATUS_OK;
  if (home && strncmp(value, "~/", 2) == 0) return path_print(out, err, "%s%s%s", home, value + 1, name);
  return path_print(out, err, "%s%s", value, name);
}

Status hub_directory(char **path, Error *err) {
  static const struct {
    const char *variable, *below;
  } places[] = {/* the order in huggingface_hub's constants.py */
                {"HF_HUB_CACHE", ""},
                {"HUGGINGFACE_HUB_CACHE", ""},
                {"HF_HOME", "/hub"},
                {"XDG_CACHE_HOME", "/huggingface/hub"},
                {"HOME", "/.cache/huggingface/hub"}};
  *path = NULL;
  for (size_t i = 0; i < sizeof places / sizeof *places && !*path; i++)
    TRY(place(places[i].variable, places[i].below, path, err));
  return STATUS_OK;
}

/* --- completeness of a snapshot */

/* Reports whether DIRECTORY/NAME exists; a link into blobs/ whose target is missing does not count. */
static Status has_file(const char *directory, const char *name, bool *has, Error *err) {
  OWNED(mem_release) char *path = path_join(directory, name, err);
  if (!path) return STATUS_FAILED;
  *has = file_exists(path);
  return STATUS_OK;
}

/* *missing: the first shard in the index that does not exist, in new memory, or NULL. Fails if the index is
 * no JSON; entries that name no shard are left for the loader to refuse. */
static Status missing_shard(const char *snapshot, const char *index, char **missing, Error *err) {
  OWNED(file_unmap) MappedFile file = {0};
  OWNED(json_release) Json *tree = NULL;
  TRY(file_map(index, STATUS_MODEL, &file, err));
  TRY(json_parse(index, STATUS_MODEL, (const char *)file.data, file.size, NULL, 0, &tree, err));
  const Json *map = json_member(tree, "weight_map");
  const char *last = ""; /* the previous shard: thousands of tensors share few shards */
  for (const Json *entry = json_first(map); entry && !*missing; entry = json_next(entry)) {
    size_t size;
    const char *shard = json_is_string(entry) ? json_string(entry, &size) : "";
    if (strcmp(shard, last) == 0 || !is_part(shard, strlen(shard))) continue;
    last = shard;
    bool has;
    TRY(has_file(snapshot, shard, &has, err));
    if (!has) TRY(path_print(missing, err, "%s", shard));
  }
  return STATUS_OK;
}

static Status is_downloading(const char *snapshot, bool *downloading, Error *err) {
  static const char suffix[] = ".incomplete";
  OWNED(mem_release) char *blobs = NULL;
  OWNED(names_release) Names names = {0};
  *downloading = false;
  TRY(path_print(&blobs, err, "%s/../../blobs", snapshot));
  TRY(names_read(blobs, &names, err));
  for (size_t i = 0; i < names.count; i++) {
    size_t size = strlen(names.items[i]), n = sizeof suffix - 1;
    *downloading |= size > n && strcmp(names.items[i] + size - n, suffix) == 0;
  }
  return STATUS_OK;
}

/* *missing: the first required file that the snapshot lacks, in new memory, or NULL. Also NULL for weights in
 * a format that auk does not read, such as GGUF: the loader refuses them, and no download adds the rest. */
static Status find_missing(const char *snapshot, char **missing, Error *err) {
  static const char single[] = "model.safetensors", index_name[] = "model.safetensors.index.json";
  bool has, has_index, downloading;
  Error reason;
  *missing = NULL;
  TRY(has_file(snapshot, "config.json", &has, err));
  if (!has) {
    TRY(is_downloading(snapshot, &downloading, err));
    if (!downloading && weight_files_refuse(snapshot, true, &reason) != STATUS_OK) return STATUS_OK;
    return path_print(missing, err, "config.json");
  }
  TRY(has_file(snapshot, single, &has, err));
  if (has) return STATUS_OK;
  TRY(has_file(snapshot, index_name, &has_index, err));
  if (has_index) {
    OWNED(mem_release) char *index = path_join(snapshot, index_name, err);
    return index ? missing_shard(snapshot, index, missing, err) : STATUS_FAILED;
  }
  TRY(is_downloading(snapshot, &downloading, err));
  return downloading ? path_print(missing, err, "%s", single) : STATUS_OK;
}

/* --- choosing a snapshot */

/* The content of refs/REVISION, in new memory; NULL if the ref does not exist or names no commit. */
static Status read_ref(const char *repository, const char *revision, char **commit, Error *err) {
  OWNED(mem_release) char *path = NULL;
  OWNED(file_unmap) MappedFile file = {0};
  *commit = NULL;
  TRY(path_print(&path, err, "%s/refs/%s", repository, revision));
  if (!file_exists(path) || file_is_directory(path)) return STATUS_OK;
  TRY(file_map(path, STATUS_MODEL, &file, err));
  size_t size = file.size;
  while (size && strchr(" \t\r\n", file.data[size - 1])) size--;
  if (size == 0 || size > MAX_REVISION || !is_part((const char *)file.data, size)) return STATUS_OK;
  return path_print(commit, err, "%.*s", (int)size, (const char *)file.data);
}

/* Sets *path to the snapshot of this commit; NULL if it does not exist. */
static Status take_snapshot(const char *repository, const char *commit, char **path, Error *err) {
  TRY(path_print(path, err, "%s/snapshots/%s", repository, commit));
  if (file_is_directory(*path)) return STATUS_OK;
  free(*path);
  *path = NULL;
  return STATUS_OK;
}

/* A candidate: complete snapshots are preferred, then newer ones. */
typedef struct {
  char *path;
  bool complete;
  struct timespec changed;
} Snapshot;

static bool is_better(const Snapshot *a, const Snapshot *b) {
  if (!b->path || a->complete != b->complete) return !b->path || a->complete;
  if (a->changed.tv_sec != b->changed.tv_sec) return a->changed.tv_sec > b->changed.tv_sec;
  if (a->changed.tv_nsec != b->changed.tv_nsec) return a->changed.tv_nsec > b->changed.tv_nsec;
  return strcmp(a->path, b->path) < 0;
}

static Status consider_snapshot(const char *repository, const char *commit, Snapshot *best, Error *err) {
  Snapshot found = {0};
  TRY(take_snapshot(repository, commit, &found.path, err));
  if (!found.path) return STATUS_OK;
  struct stat info;
  if (stat(found.path, &info) == 0) found.changed = info.st_mtim;
  char *missing = NULL;
  Status status = find_missing(found.path, &missing, err);
  found.complete = status == STATUS_OK && !missing; /* a snapshot with a damaged index is not complete */
  free(missing);
  Snapshot worse = found;
  if (is_better(&found, best)) worse = *best, *best = found;
  free(worse.path);
  return status == STATUS_MODEL ? STATUS_OK : status;
}

static Status best_snapshot(const char *repository, char **path, Error *err) {
  OWNED(mem_release) char *directory = NULL;
  OWNED(names_release) Names names = {0};
  Snapshot best = {0};
  TRY(path_print(&directory, err, "%s/snapshots", repository));
  Status status = names_read(directory, &names, err);
  for (size_t i = 0; i < names.count && status == STATUS_OK; i++)
    if (is_part(names.items[i], strlen(names.items[i])))
      status = consider_snapshot(repository, names.items[i], &best, err);
  *path = best.path;
  return status;
}

/* The snapshot of a revision, in new memory; *path NULL: none. revision NULL: the snapshot of refs/main, or
 * best_snapshot() if there is no such ref. */
static Status find_snapshot(const char *repository, const char *revision, char **path, Error *err) {
  OWNED(mem_release) char *commit = NULL;
  *path = NULL;
  TRY(read_ref(repository, revision ? revision : "main", &commit, err));
  if (commit || revision) return take_snapshot(repository, commit ? commit : revision, path, err);
  return best_snapshot(repository, path, err);
}

/* --- looking a name up */

static Status find_repository(const char *hub, const HubName *name, char **repository, Error *err) {
  return path_print(repository, err, "%s/" REPOSITORY_PREFIX "%.*s%s%.*s", hub, (int)name->organisation_size,
                    name->organisation, name->organisation_size ? "--" : "", (int)name->name_size,
                    name->name);
}

typedef struct {
  char text[2 * (MAX_NAME + MAX_REVISION)];
} FetchText;

static FetchText fetch_text(const HubName *name) {
  FetchText out;
  const char *start = name->organisation_size ? name->organisation : name->name;
  snprintf(out.text, sizeof out.text, "auk get %.*s%s%s", (int)(name->name + name->name_size - start), start,
           name->revision ? "@" : "", name->revision ? name->revision : "");
  return out;
}

Status hub_find(const char *text, char **path, Error *err) {
  HubName name;
  OWNED(mem_release) char *hub = NULL, *repository = NULL;
  *path = NULL;
  if (!file_exists(text) && read_name(text, &name)) TRY(hub_directory(&hub, err));
  Status status = hub ? find_repository(hub, &name, &repository, err) : STATUS_OK;
  if (status == STATUS_OK && repository) status = find_snapshot(repository, name.revision, path, err);
  if (status == STATUS_OK && *path) return STATUS_OK;
  free(*path);
  *path = NULL;
  return status == STATUS_OK ? path_print(path, err, "%s", text) : status;
}

static Status refuse(const char *text, const HubName *name, const char *hub, Error *err) {
  if (!hub)
    return error_set(err, STATUS_MODEL,
                     "%s: no such file or directory (and no Hugging Face cache: HOME is not set)", text);
  char *repository;
  TRY(find_repository(hub, name, &repository, err));
  bool has_repository = file_is_directory(repository);
  free(repository);
  if (has_repository)
    return error_set(err, STATUS_MODEL,
                     "%s: the Hugging Face cache %s has it, but not revision %s; fetch it with:  %s", text,
                     hub, name->revision ? name->revision : "main", fetch_text(name).text);
  char folder[MAX_NAME + 1];
  snprintf(folder, sizeof folder, "%.*s", (int)name->organisation_size, name->organisation);
  /* A first part that is a folder here, or the default folder's name, is hardly meant as an organisation. */
  if (!*folder || file_is_directory(folder) || strcmp(folder, CHECKPOINTS_HERE) == 0)
    return error_set(err, STATUS_MODEL,
                     "%s: no such file or directory, and nothing of this name in the Hugging Face cache %s "
                     "(auk models lists what is there%s)",
                     text, hub, *folder ? "" : ", auk get OWNER/NAME fetches a model");
  return error_set(err, STATUS_MODEL,
                   "%s: no such file or directory, and nothing of this name in the Hugging Face cache %s; "
                   "fetch it with:  %s",
                   text, hub, fetch_text(name).text);
}

/* True for a name with a tag, as ollama and llama.cpp have them: qwen3:8b, OWNER/NAME:Q4_K_M. */
static bool has_tag(const char *text) {
  const char *colon = strchr(text, ':');
  char before[MAX_NAME + 1];
  if (!colon || colon - text > MAX_NAME) return false;
  snprintf(before, sizeof before, "%.*s", (int)(colon - text), text);
  return hub_is_name(before);
}

Status hub_check_found(const char *text, const char *path, Error *err) {
  HubName name;
  if (strcmp(text, path) != 0 || file_exists(text)) return STATUS_OK;
  if (strstr(text, "://"))
    return error_set(err, STATUS_MODEL,
                     "%s: no URL is a model: a directory is, a file or a name, such as " HUB_EXAMPLE
                     " (auk get fetches what is on huggingface.co)",
                     text);
  if (has_tag(text))
    return error_set(err, STATUS_MODEL,
                     "%s: names of models have no tag here: they are Hugging Face's, such as " HUB_EXAMPLE
                     " (auk models lists those that are here, auk get NAME fetches one)",
                     text);
  if (!read_name(text, &name)) return STATUS_OK;
  OWNED(mem_release) char *hub = NULL;
  TRY(hub_directory(&hub, err));
  return refuse(text, &name, hub, err);
}

Status hub_check(const char *text, const char *path, Error *err) {
  HubName name;
  OWNED(mem_release) char *missing = NULL;
  TRY(hub_check_found(text, path, err));
  if (strcmp(text, path) == 0 || !read_name(text, &name)) return STATUS_OK;
  TRY(find_missing(path, &missing, err));
  if (!missing) return STATUS_OK;
  return error_set(err, STATUS_MODEL, "%s: the download is not complete: %s/%s is missing; to go on:  %s",
                   text, path, missing, fetch_text(&name).text);
}

/* --- listing */

/* The site's name of a directory in the cache: the first "--" stands for the slash, since organisations
 * contain no "--". */
static Status name_repository(const char *directory, char **name, Error *err) {
  const char *text = directory + strlen(REPOSITORY_PREFIX), *dashes = strstr(text, "--");
  if (!dashes) return path_print(name, err, "%s", text);
  return path_print(name, err, "%.*s/%s", (int)(dashes - text), text, dashes + 2);
}

Status hub_model(const char *hub, const char *directory, char **name, char **path, Error *err) {
  OWNED(mem_release) char *repository = NULL;
  HubName parts;
  *name = *path = NULL;
  if (strncmp(directory, REPOSITORY_PREFIX, strlen(REPOSITORY_PREFIX)) != 0) return STATUS_OK;
  TRY(name_repository(directory, name, err));
  if (!read_name(*name, &parts) || parts.revision) return STATUS_OK;
  TRY(path_print(&repository, err, "%s/%s", hub, directory));
  return find_snapshot(repository, NULL, path, err);
}
