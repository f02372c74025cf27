/* cache.c - see cache.h.
 * Always true: no file is used before the hash of the weights is known. Computing it reads all weights: at
 *              the first use of a checkpoint, that happens at the end, when the answer is complete. */
#include "commands/answer/cache.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#if defined(__GLIBC__)
#include <gnu/libc-version.h>
#endif

#include "base/clock.h"
#include "base/file.h"
#include "base/size_text.h"
#include "commands/auk_directory.h"
#include "commands/common.h"
#include "engine/prefix/prefix_store.h"
#include "model/identity.h"

static const uint64_t DEFAULT_LIMIT = (uint64_t)10 << 30;

static Status check_limit(const char *name, const char *text, Error *err) {
  uint64_t bytes;
  return size_parse(name, text, 0, &bytes, err);
}

const Flag cache_flags[] = {
    FLAG_OF(KIND_SWITCH, bool, "--cache", NULL, CacheFlags, on,
            "keeps the keys and values of prompts of 256 tokens or more on disk; a later prompt that begins "
            "with the same text need not compute it again",
            .weak = MEMBER_OF_TYPE(CacheFlags, on_is_usual, bool)),
    FLAG_DIRECTORY("--cache-dir", "DIR", CacheFlags, directory,
                   "the same in this directory (default $XDG_CACHE_HOME/auk, or ~/.cache/auk)"),
    FLAG_OF(KIND_STRING, const char *, "--cache-limit", "SIZE", CacheFlags, limit,
            "what the cache may take, such as 500M or 20G (default 10G); what was unused the longest is "
            "removed first",
            .check = check_limit),
    FLAG_SWITCH("--no-cache", CacheFlags, off, "no cache, whatever other flags or the settings say"),
};

struct Cache {
  CacheUse use;
  char *directory;
  uint64_t limit;
  PrefixStore *store; /* NULL: not opened yet, or its key is unknown */
  char key[CACHE_KEY];
  bool useless;      /* the cache cannot work, and that was reported */
  bool lost;         /* something could not be kept or read, and that was reported */
  bool expects_many; /* many prompts are expected */
  int n_shared;      /* with expects_many: tokens that the first two prompts share; 0: none, or unknown */
  int n_prefilled;   /* prompt tokens in the session that are worth storing */
};

Status cache_directory(const char *flag, char **directory, Error *err) {
  *directory = NULL;
  if (flag) {
    *directory = path_join("", flag, err); /* a copy */
    return *directory ? STATUS_OK : STATUS_FAILED;
  }
  TRY(auk_directory("XDG_CACHE_HOME", ".cache", directory, err));
  if (*directory) return STATUS_OK;
  return error_set(err, STATUS_USAGE,
                   "neither XDG_CACHE_HOME nor HOME says where the cache is: --cache-dir DIR names it");
}

const char *cache_known_directory(const Cache *cache) {
  return cache ? cache->directory : NULL;
}

static void note(void *user, const char *text) {
  const Cache *cache = user;
  if (cache->use.verbose) print_note("cache: %s", text);
}

/* Reports the first failure even without -v: the user asked for a cache and gets none. */
static void note_lost(Cache *cache, const Error *err) {
  if (cache->use.verbose || !cache->lost) print_note("cache: %s", err->text);
  cache->lost = true;
}

/* --- opening */

Status cache_open(const CacheFlags *flags, const CacheUse *use, Cache **out, Error *err) {
  *out = NULL;
  uint64_t limit = DEFAULT_LIMIT;
  if (flags->limit) TRY(size_parse("--cache-limit", flags->limit, 0, &limit, err));
  if (flags->off || !(flags->on || flags->directory)) return STATUS_OK;
  OWNED(mem_release) Cache *cache = NULL;
  TRY(NEW(cache, 1, "a cache", err));
  *cache = (Cache){.use = *use, .limit = limit};
  TRY(cache_directory(flags->directory, &cache->directory, err));
  *out = TAKE(cache);
  return STATUS_OK;
}

/* Hashes the program file: another build may round differently. */
static Status program_content(const ContentSearch *search, ContentHash *hash, bool *known, Error *err) {
  OWNED(file_unmap) MappedFile file = {0};
  TRY(file_map("/proc/self/exe", STATUS_FAILED, &file, err));
  return content_of_file(&file, search, hash, known, err);
}

static const char *library_version(void) {
#if defined(__GLIBC__)
  return gnu_get_libc_version(); /* its sines and cosines affect every K */
#else
  return "unknown";
#endif
}

void cache_key(ContentHash program, ContentHash model, const char *backend, const char *arithmetic, KvType kv,
               char out[CACHE_KEY]) {
  snprintf(out, CACHE_KEY,
           "auk %s\nprogram %016llx%016llx\nlibrary %s\nmodel %016llx%016llx\nbackend %s: %s\nkv %s\n",
           AUK_VERSION, (unsigned long long)program.a, (unsigned long long)program.b, library_version(),
           (unsigned long long)model.a, (unsigned long long)model.b, backend, arithmetic, kv_type_name(kv));
}

static Status make_key(Cache *cache, bool may_read, bool *known, Error *err) {
  const CacheUse *use = &cache->use;
  const Device *device = use->device;
  ContentSearch search = {cache->directory, may_read, device->options.n_threads, use->interrupted};
  ContentHash program, model;
  char arithmetic[256];
  TRY(program_content(&search, &program, known, err));
  if (*known) TRY(model_content(use->model, &search, &model, known, err));
  if (!*known) return STATUS_OK;
  TRY(device->backend->arithmetic(device->loaded, arithmetic, sizeof arithmetic, err));
  cache_key(program, model, device->backend->name, arithmetic, use->kv, cache->key);
  return STATUS_OK;
}

/* The end of the path that fits into a file header's label. */
static const char *label_of(const char *path) {
  size_t length = strlen(path);
  if (length < PREFIX_LABEL) return path;
  const char *label = path + length - (PREFIX_LABEL - 1);
  while ((*label & 0xc0) == 0x80) label++; /* whole characters */
  return label;
}

/* Opens the store if that is possible without reading the weights, or if may_read. */
static Status open_store(Cache *cache, bool may_read, Error *err) {
  if (cache->store || cache->useless) return STATUS_OK;
  if (!cache->use.device->backend->arithmetic || cache->use.model->dummy) {
    cache->useless = true;
    return error_set(err, STATUS_FAILED, "not for this device or model");
  }
  bool known;
  TRY(make_key(cache, may_read, &known, err));
  if (!known && may_read)
    return error_set(err, STATUS_FAILED, "%s has changed since it was opened: nothing is kept",
                     cache->use.model_path);
  if (!known) return STATUS_OK;
  const PrefixStoreOptions options = {.directory = cache->directory,
                                      .key = cache->key,
                                      .label = label_of(cache->use.model_path),
                                      .limit_bytes = cache->limit,
                                      .n_threads = cache->use.device->options.n_threads,
                                      .note = note,
                                      .user = cache};
  return prefix_store_open(&options, &cache->store, err);
}

/* --- storing */

static const char *plural(int n) {
  return n == 1 ? "" : "s";
}

static void save(Cache *cache, Session *session, int n) {
  if (!cache->store || n < PREFIX_MIN_TOKENS || n > session_view(session).text->n_past) return;
  Error err = {{0}};
  PrefixReport report = {0};
  double start = clock_ms();
  Status status = model_is_unchanged(cache->use.model)
                      ? prefix_store_save(cache->store, session, n, &report, &err)
                      : error_set(&err, STATUS_FAILED, "%s has changed since it was opened: nothing is kept",
                                  cache->use.model_path);
  if (status != STATUS_OK) note_lost(cache, &err);
  if (report.n_files == 0 || !cache->use.verbose) return;
  fprintf(stderr, "auk: cache: %d tokens saved in %.1f ms (%d file%s, %s)", report.n_tokens,
          clock_ms() - start, report.n_files, plural(report.n_files), size_text(report.bytes).text);
  if (report.n_removed)
    fprintf(stderr, ", %d old file%s removed", report.n_removed, plural(report.n_removed));
  fprintf(stderr, "\n");
}

/* Called when a new prompt replaces one that is not stored yet. Stores their common prefix, which later
 * prompts may share too: with expects_many once, for the first two prompts that have a common prefix;
 * otherwise whenever PREFIX_MIN_NEW tokens or more would be lost. The rest of a prompt is stored only at the
 * end: otherwise a chat with a sliding context would write a whole prompt each time. */
static void save_before(Cache *cache, Session *session, const int32_t *ids, int n) {
  int common = session_common(session, ids, n);
  bool second = cache->expects_many && cache->n_shared == 0;
  if (cache->n_prefilled == 0) return;
  if (second || (!cache->expects_many && cache->n_prefilled - common >= PREFIX_MIN_NEW))
    save(cache, session, common);
  if (second) cache->n_shared = common;
}

static void restore(void *user, Session *session, const int32_t *ids, int n) {
  Cache *cache = user;
  Error err = {{0}};
  PrefixReport report = {0};
  bool first = !cache->store && cache->n_prefilled == 0;
  if (first && open_store(cache, false, &err) != STATUS_OK) note_lost(cache, &err);
  save_before(cache, session, ids, n);
  cache->n_prefilled = 0;
  if (!cache->store || cache->n_shared) return;
  double start = clock_ms();
  if (prefix_store_restore(cache->store, session, ids, n, &report, &err) != STATUS_OK) note(cache, err.text);
  if (report.n_tokens && cache->use.verbose)
    fprintf(stderr, "auk: cache: %d of %d tokens in %.1f ms (%d file%s, %s)\n", report.n_tokens, n,
            clock_ms() - start, report.n_files, plural(report.n_files), size_text(report.bytes).text);
}

static void prefilled(void *user, int n) {
  Cache *cache = user;
  cache->n_prefilled = n;
}

PromptStore cache_store(Cache *cache) {
  return cache ? (PromptStore){cache, restore, prefilled} : (PromptStore){0};
}

void cache_expect_many(Cache *cache) {
  if (cache) cache->expects_many = true;
}

/* Stores the last prompt, or with expects_many the prefix that the first two share. If the store is not open
 * because the weights' hash is unknown, reads the weights to compute the hash: the next run knows it. */
static void save_at_end(Cache *cache, Session *session) {
  int n = cache->n_shared ? cache->n_shared : cache->n_prefilled;
  if (!session || n < PREFIX_MIN_TOKENS) return;
  Error err = {{0}};
  bool unknown = !cache->store && !cache->useless;
  double start = clock_ms();
  Status status = open_store(cache, true, &err);
  if (status != STATUS_OK && status != STATUS_INTERRUPTED) note_lost(cache, &err);
  if (unknown && cache->store && cache->use.verbose)
    fprintf(stderr, "auk: cache: the weights were read once, to know them again, in %.1f ms\n",
            clock_ms() - start);
  save(cache, session, n);
}

void cache_close(Cache *cache, Session *session) {
  if (!cache) return;
  save_at_end(cache, session);
  prefix_store_close(cache->store);
  free(cache->directory);
  free(cache);
}
