/* merge_parts.c - see merge_parts.h.   Called by: merge.c. */
#include "commands/merge/merge_parts.h"

#include <dirent.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "commands/common.h"
#include "commands/map/map_blocks.h"
#include "commands/map/map_shard.h"

static const char ending[] = ".resume";
enum { NOTES = 20 };

MergePart *merge_part_of(MergeParts *m, size_t record) {
  return &m->parts[m->block ? record / m->block : record % m->n_parts];
}

Status merge_part_open(const MergeParts *m, MergePart *part, Error *err) {
  if (part->results.is_open) return STATUS_OK;
  const ResultsOptions options = {.path = part->path,
                                  .format = m->format,
                                  .resume = true,
                                  .settings = &m->settings,
                                  .share = part->share,
                                  .n_copies = (int)m->n_copies,
                                  .merged_with = m->block ? NULL : m->name,
                                  .is_block = m->block > 0,
                                  .block_hash =
                                      m->block ? claims_hash_start(part->share.first / m->block) : 0};
  return results_open(&options, &part->results, err);
}

/* Counts the part's results, and checks each. */
static Status count(const MergeParts *m, MergePart *part, Error *err) {
  EarlierResult earlier;
  bool found = true;
  Status status = merge_part_open(m, part, err);
  part->n = 0;
  while (status == STATUS_OK && found) {
    status = results_earlier(&part->results, &earlier, &found, err);
    part->n += status == STATUS_OK && found;
  }
  results_close(&part->results, NULL);
  TRY(status);
  if (m->block ? part->n == part->expected : part->n <= part->expected) return STATUS_OK;
  return error_set(err, STATUS_USAGE, "%s has %zu results, expected %zu", part->path, part->n,
                   part->expected);
}

/* Takes the numbers of records and copies from m->settings. */
static Status take_settings(MergeParts *m, Error *err) {
  char what[SETTING_LIMIT];
  m->n_copies = map_settings_find(&m->settings, "--n-best", what) ? (size_t)atol(what) : 1;
  if (survey_read(&m->settings, &m->n_records) && m->n_copies >= 1 && m->n_copies <= 1 << 20)
    return STATUS_OK;
  return error_set(err, STATUS_USAGE, "%s: these are no results of --shard or --claim", m->name);
}

static Status copy_path(const char *path, MergePart *part, Error *err) {
  TRY(NEW(part->path, strlen(path) + 1, "parts", err));
  strcpy(part->path, path);
  return STATUS_OK;
}

/* --- files of --shard */

/* Reads the head of PATH.resume: which shard the file has, and its settings. */
static Status read_shard(const char *path, ResultsFormat *format, MapSettings *settings, Shard *shard,
                         Error *err) {
  OWNED(buffer_release) Buffer name = {0}, text = {0};
  bool valid = false;
  char what[SETTING_LIMIT];
  TRY(buffer_printf(&name, err, "%s%s", path, ending));
  if (!file_exists(name.data))
    return error_set(err, STATUS_USAGE, "%s: this is not what --shard writes: there is no %s", path,
                     name.data);
  TRY(map_resume_read_head(name.data, &text, err));
  TRY(map_resume_head(text.data ? text.data : "", text.size, format, settings, &valid, err));
  const bool is_shard = valid && map_settings_find(settings, "shard", what) && shard_read(what, shard);
  if (!is_shard)
    return error_set(err, STATUS_USAGE, "%s: these are not the results of a shard (--shard)", path);
  if (!map_settings_are_sealed(settings))
    return error_set(err, STATUS_USAGE,
                     "%s: this is not what --shard wrote there: the file was changed since", name.data);
  return STATUS_OK;
}

static Status begin_shards(MergeParts *m, const char *path, Shard *shard, Error *err) {
  m->name = path;
  TRY(read_shard(path, &m->format, &m->settings, shard, err));
  TRY(take_settings(m, err));
  TRY(NEW(m->parts, shard->count, "parts", err));
  m->n_parts = shard->count;
  for (size_t i = 0; i < m->n_parts; i++) {
    const Shard part = {i + 1, m->n_parts};
    m->parts[i] =
        (MergePart){.share = shard_share(&part), .expected = shard_size(&part, m->n_records) * m->n_copies};
  }
  return STATUS_OK;
}

/* Reads the head of another shard; refuses one that is not of the first shard's run. */
static Status read_another(const MergeParts *m, const char *path, Shard *shard, Error *err) {
  OWNED(map_settings_release) MapSettings settings = {0};
  ResultsFormat format;
  TRY(read_shard(path, &format, &settings, shard, err));
  if (format != m->format)
    return error_set(err, STATUS_USAGE, "%s and %s have results of different forms (--json, -0)", m->name,
                     path);
  return map_settings_compare(&m->settings, settings.lines.data, settings.lines.size,
                              CONTEXT_MAY_DIFFER | SHARD_MAY_DIFFER, path, m->name, err);
}

static Status add_shard(MergeParts *m, const char *path, Error *err) {
  Shard shard = {0};
  TRY(m->parts ? read_another(m, path, &shard, err) : begin_shards(m, path, &shard, err));
  if (shard.count != m->n_parts)
    return error_set(err, STATUS_USAGE, "%s is shard %zu of %zu, %s one of %zu", path, shard.number,
                     shard.count, m->name, m->n_parts);
  MergePart *part = &m->parts[shard.number - 1];
  if (part->path)
    return error_set(err, STATUS_USAGE, "%s and %s are both shard %zu of %zu", part->path, path, shard.number,
                     shard.count);
  TRY(copy_path(path, part, err));
  return count(m, part, err);
}

static Status open_shards(MergeParts *m, const char *const *paths, size_t n_paths, Error *err) {
  for (size_t i = 0; i < n_paths; i++) {
    if (file_is_directory(paths[i]))
      return error_set(err, STATUS_USAGE, "%s is a directory: the directory of --claim stands alone",
                       paths[i]);
    if (!file_exists(paths[i])) return error_set(err, STATUS_FAILED, "%s: there is no such file", paths[i]);
    /* OUT.* also matches OUT.*.resume, even of a shard that has no results. */
    if (!name_ends_with(paths[i], ending)) TRY(add_shard(m, paths[i], err));
  }
  if (m->parts) return STATUS_OK;
  return error_set(err, STATUS_USAGE, "%s: there are no results beside it (OUT.I-of-N)", paths[0]);
}

/* --- the directory of --claim */

/* Refuses results of blocks that the job does not have. */
static Status check_names(const MergeParts *m, Error *err) {
  OWNED(buffer_release) Buffer path = {0};
  TRY(buffer_printf(&path, err, "%s/done", m->name));
  const char *kind = file_kind_of(path.data);
  if (!kind) return STATUS_OK;
  if (!file_is_directory(path.data))
    return error_set(err, STATUS_FAILED,
                     "%s is %s, expected a directory: remove it, and run the command again", path.data, kind);
  OWNED(listing_release) DIR *entries = opendir(path.data);
  if (!entries) return system_error(path.data, "open", err);
  for (struct dirent *entry; (entry = readdir(entries));) {
    const char *name = entry->d_name;
    if (!name[strspn(name, "0123456789")] && strtoull(name, NULL, 10) >= m->n_parts)
      return error_set(err, STATUS_USAGE, "%s/%s: the job has %zu blocks: these results are not its own",
                       path.data, name, m->n_parts);
  }
  return STATUS_OK;
}

static Status open_blocks(MergeParts *m, const char *directory, Error *err) {
  m->name = directory;
  TRY(claims_settings(directory, &m->format, &m->settings, err));
  TRY(take_settings(m, err));
  if (!blocks_size(&m->settings, &m->block))
    return error_set(err, STATUS_USAGE, "%s: these are no results of --claim", directory);
  m->n_parts = (m->n_records + m->block - 1) / m->block;
  TRY(NEW(m->parts, m->n_parts, "parts", err));
  for (size_t i = 0; i < m->n_parts; i++) {
    MergePart *part = &m->parts[i];
    Buffer path = {0};
    const size_t left = m->n_records - i * m->block, n = left < m->block ? left : m->block;
    *part = (MergePart){.share = {.first = i * m->block, .step = 1}, .expected = n * m->n_copies};
    TRY(claims_result_path(directory, i, &path, err));
    part->path = path.data;
    bool there;
    TRY(claims_look_for_result(part->path, &there, err));
    if (there) TRY(count(m, part, err));
  }
  return check_names(m, err);
}

/* --- files or a directory */

Status merge_parts_open(const char *const *paths, size_t n_paths, MergeParts *m, Error *err) {
  return n_paths == 1 && file_is_directory(paths[0]) ? open_blocks(m, paths[0], err)
                                                     : open_shards(m, paths, n_paths, err);
}

static void note_block(const MergeParts *m, const MergePart *part) {
  char owner[OWNER_SIZE];
  const size_t first = part->share.first + 1, block = part->share.first / m->block;
  const size_t last = part->share.first + part->expected / m->n_copies;
  claims_owner(m->name, block, owner);
  if (*owner)
    print_note("records %zu to %zu are missing: %s has taken them", first, last, owner);
  else
    print_note("records %zu to %zu are missing: run the command again", first, last);
}

static void note_shard(const MergeParts *m, const MergePart *part) {
  const size_t number = part->share.first + 1;
  if (part->path)
    print_note("%s has %zu of %zu results: run the command again with --shard %zu/%zu", part->path, part->n,
               part->expected, number, m->n_parts);
  else
    print_note("shard %zu of %zu is missing: run the command with --shard %zu/%zu", number, m->n_parts,
               number, m->n_parts);
}

Status merge_parts_check(const MergeParts *m, Error *err) {
  size_t n_missing = 0, n = 0;
  for (size_t i = 0; i < m->n_parts; i++) {
    const MergePart *part = &m->parts[i];
    n += part->n;
    if (part->n == part->expected && part->path) continue;
    if (++n_missing > NOTES) continue;
    m->block ? note_block(m, part) : note_shard(m, part);
  }
  if (n_missing > NOTES) print_note("and %zu more", n_missing - NOTES);
  if (n_missing == 0) return STATUS_OK;
  return error_set(err, STATUS_FAILED, "%zu of %zu results are there: nothing is merged", n,
                   m->n_records * m->n_copies);
}

void merge_parts_release(MergeParts *m) {
  for (size_t i = 0; m->parts && i < m->n_parts; i++) {
    results_close(&m->parts[i].results, NULL);
    free(m->parts[i].path);
  }
  free(m->parts);
  map_settings_release(&m->settings);
}
