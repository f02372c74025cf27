/* cache_list.c - `auk cache`: lists or clears the prefix cache. A line covers all files of one key, i.e.
 * of one checkpoint, program, device and --kv: a prompt can use all of them. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/file.h"
#include "base/size_text.h"
#include "commands/answer/cache.h"
#include "commands/commands.h"
#include "commands/common.h"
#include "engine/prefix/prefix_directory.h"
#include "engine/prefix/prefix_file.h"

typedef struct {
  const char *directory;
  bool clear;
} Options;

/* Files whose names begin with the same key. */
typedef struct {
  char key[17];
  char label[PREFIX_LABEL];
  int64_t tokens, used_ns;
  uint64_t bytes;
} Group;

typedef struct {
  Group *items; /* [count] */
  size_t count, capacity;
} Groups;

static Status group_of(Groups *groups, const char *name, Group **out, Error *err) {
  for (size_t i = groups->count; i-- > 0;) {
    *out = &groups->items[i];
    if (strncmp((*out)->key, name, 16) == 0) return STATUS_OK;
  }
  TRY(mem_grow(&groups->items, &groups->capacity, groups->count + 1, sizeof(Group), "a list of files", err));
  *out = &groups->items[groups->count++];
  **out = (Group){.tokens = 0};
  memcpy((*out)->key, name, 16);
  return STATUS_OK;
}

static Status add_file(Groups *groups, const char *directory, const PrefixEntry *entry, Error *err) {
  Group *group;
  TRY(group_of(groups, entry->name, &group, err));
  OWNED(mem_release) char *path = path_join(directory, entry->name, err);
  if (!path) return STATUS_FAILED;
  PrefixSummary summary;
  if (prefix_file_summary(path, &summary)) {
    if (!summary.state) group->tokens += summary.n;
    memcpy(group->label, summary.label, sizeof group->label);
  }
  group->bytes += entry->bytes;
  if (entry->used_ns > group->used_ns) group->used_ns = entry->used_ns;
  return STATUS_OK;
}

static int compare_groups(const void *a, const void *b) {
  const Group *one = a, *other = b;
  return one->used_ns < other->used_ns ? 1 : one->used_ns > other->used_ns ? -1 : 0;
}

static Status put_group(Buffer *out, const Group *group, Error *err) {
  char when[32];
  time_t used = (time_t)(group->used_ns / 1000000000);
  struct tm parts;
  if (!localtime_r(&used, &parts) || !strftime(when, sizeof when, "%Y-%m-%d %H:%M", &parts))
    snprintf(when, sizeof when, "-");
  TRY(buffer_printf(out, err, "%10lld  %10s  %-16s  ", (long long)group->tokens, size_text(group->bytes).text,
                    when));
  TRY(append_escaped(out, group->label[0] ? group->label : "-", err));
  return buffer_append_string(out, "\n", err);
}

static Status write_list(const char *directory, const PrefixList *files, Groups *groups, Buffer *out,
                         Error *err) {
  for (size_t i = 0; i < files->count; i++)
    if (files->items[i].block) TRY(add_file(groups, directory, &files->items[i], err));
  if (groups->count > 1) qsort(groups->items, groups->count, sizeof *groups->items, compare_groups);
  if (groups->count)
    TRY(buffer_printf(out, err, "%10s  %10s  %-16s  MODEL\n", "TOKENS", "SIZE", "LAST USED"));
  for (size_t i = 0; i < groups->count; i++) TRY(put_group(out, &groups->items[i], err));
  print_note("%s: %s", directory, size_text(files->bytes).text);
  return STATUS_OK;
}

static Status clear(const char *directory, Error *err) {
  OWNED(prefix_list_release) PrefixList left = {0};
  int n_removed = 0;
  if (file_is_directory(directory)) TRY(prefix_directory_shrink(directory, 0, &n_removed, err));
  TRY(prefix_directory_list(directory, &left, err));
  print_note("%s: %d files removed", directory, n_removed);
  if (left.count == 0) return STATUS_OK;
  return error_set(err, STATUS_FAILED,
                   "%s: %zu files are left: another auk is busy there, or they cannot be removed", directory,
                   left.count);
}

static Status list(const char *directory, Buffer *out, Error *err) {
  OWNED(prefix_list_release) PrefixList files = {0};
  Groups groups = {0};
  TRY(prefix_directory_list(directory, &files, err));
  Status status = write_list(directory, &files, &groups, out, err);
  free(groups.items);
  return status;
}

static Status run(CommandCall *call, Error *err) {
  const Options *options = call->options;
  OWNED(mem_release) char *directory = NULL;
  TRY(cache_directory(options->directory, &directory, err));
  return options->clear ? clear(directory, err) : list(directory, &call->out, err);
}

static const Flag flags[] = {
    FLAG_SWITCH("--clear", Options, clear, "removes all of it; files of other programs stay"),
    FLAG_DIRECTORY("--cache-dir", "DIR", Options, directory,
                   "the cache there (default $XDG_CACHE_HOME/auk, or ~/.cache/auk)"),
};
static const FlagGroup groups[] = {FLAG_GROUP("Cache", flags)};

const Interface cache_interface = {
    .usage = "auk cache [--clear] [FLAGS]",
    .about =
        "Lists what `auk --cache` has kept: for each checkpoint the tokens whose keys and values are on\n"
        "disk, what they take (recurrent states included), and when they were used last. A checkpoint\n"
        "that changes, another build of auk or another device begins anew; what is unused the longest\n"
        "makes room.",
    INTERFACE_GROUPS(groups),
    .options_size = sizeof(Options),
    .run = run,
};
