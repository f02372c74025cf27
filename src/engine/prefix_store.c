/* prefix_store.c - see prefix_store.h.
 *
 * Called by: commands/answer/cache.c.   Calls: prefix_file.c, prefix_directory.c, session.c.
 * Always true: a file is found by hash and used if its ids are the text's; a layer's bytes go into the
 *              session's cache only if their checksum is right, and a block counts only if all its layers
 *              were read. A text's blocks get such times of use that its last ones are removed first. */
#include "engine/prefix_store.h"

#include <omp.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/content.h"
#include "base/file.h"
#include "base/hash64.h"
#include "base/private_file.h"
#include "engine/prefix_directory.h"

enum {
  BATCH = 8,            /* blocks that are open at a time */
  MOST_CANDIDATES = 64, /* files that are searched for the longest common prefix */
};

struct PrefixStore {
  PrefixStoreOptions options;
  uint64_t key_hash;
  uint64_t damaged; /* hash of the last block with a wrong checksum, which the next save writes again */
};

Status prefix_store_open(const PrefixStoreOptions *options, PrefixStore **out, Error *err) {
  PrefixStore *store = *out = mem_alloc(1, sizeof *store, "a prefix store", err);
  if (!store) return STATUS_FAILED;
  store->options = *options;
  store->key_hash = hash64(options->key, strlen(options->key), 0);
  return STATUS_OK;
}

void prefix_store_close(PrefixStore *store) {
  free(store);
}

static void note(const PrefixStore *store, const Error *reason) {
  if (store->options.note && reason->text[0]) store->options.note(store->options.user, reason->text);
}

/* The hash of the ids up to the end of a block; `before` is the hash of the ids before the block. */
static uint64_t chain(uint64_t before, const int32_t *ids, int n) {
  return hash64(ids, (size_t)n * sizeof *ids, before);
}

static PrefixKind kind_of(const PrefixStore *store, const Session *session) {
  return (PrefixKind){store->options.key, session_layers(session), session_kv_bytes(session),
                      session_has_long_rope(session)};
}

/* One restore or save of a text. */
typedef struct {
  PrefixStore *store;
  Session *session;
  PrefixKind kind;
  const int32_t *ids;
  int n;
  int64_t now_ns;
  PrefixReport *report;
  uint64_t superseded; /* hash of a block that is a prefix of the first block to be saved; 0: none */
} Walk;

/* The hash of an empty prefix; it depends on the RoPE factors, as the keys do. */
static uint64_t chain_start(const Walk *walk) {
  return walk->store->key_hash + walk->kind.long_rope;
}

/* Opens a block's file if it is valid, its ids before `start` are the text's, and at least `least` > 0 of its
 * own ids are: returns how many, else 0. */
static int open_block(const Walk *walk, const char *name, int start, int least, PrefixFile *file) {
  Error err = {{0}};
  bool found = false;
  int common = 0;
  *file = (PrefixFile){.descriptor = -1};
  char *path = path_join(walk->store->options.directory, name, &err);
  Status status = path ? prefix_file_open(path, &walk->kind, start, file, &found, &err) : STATUS_FAILED;
  free(path);
  if (status != STATUS_OK) note(walk->store, &err);
  int most = walk->n - start;
  if (status == STATUS_OK && found && memcmp(file->ids, walk->ids, (size_t)start * sizeof *walk->ids) == 0) {
    while (common < file->n && common < most && file->ids[start + common] == walk->ids[start + common])
      common++;
  }
  if (common >= least) return common;
  prefix_file_close(file);
  return 0;
}

static bool open_whole_block(const Walk *walk, int start, uint64_t before, uint64_t *own, PrefixFile *file) {
  if (walk->n - start < PREFIX_BLOCK) return false;
  *own = chain(before, walk->ids + start, PREFIX_BLOCK);
  char name[PREFIX_NAME];
  prefix_block_name(walk->store->key_hash, before, *own, name);
  return open_block(walk, name, start, PREFIX_BLOCK, file) > 0;
}

/* Opens the block from `start` on that has the most tokens in common with the text and returns their number;
 * 0 if none has `least`. */
static int open_best_block(const Walk *walk, int start, uint64_t before, int least, PrefixFile *best) {
  PrefixList list;
  Error err = {{0}};
  int longest = 0;
  *best = (PrefixFile){.descriptor = -1};
  if (prefix_directory_blocks(walk->store->options.directory, walk->store->key_hash, before, MOST_CANDIDATES,
                              &list, &err))
    note(walk->store, &err);
  for (size_t i = list.count; i-- > 0;) {
    PrefixFile file;
    int common = open_block(walk, list.items[i].name, start, longest ? longest + 1 : least, &file);
    if (common == 0) continue;
    prefix_file_close(best);
    *best = file;
    longest = common;
  }
  prefix_list_release(&list);
  return longest;
}

/* --- restoring */

/* Files that are loaded together; the session takes the first n[i] tokens of files[i]. */
typedef struct {
  PrefixFile files[BATCH];
  uint64_t own[BATCH];
  int n[BATCH];
  int count;
  bool last; /* no file follows */
} Batch;

/* Loads the files of a batch: threads share its (file, layer) pairs, each with a layer of memory. *n_good is
 * the number of files before the first bad one. */
static Status load_batch(const Walk *walk, Batch *batch, unsigned char *memory, int *n_good, Error *err) {
  const size_t room = PREFIX_BLOCK * prefix_most_bytes(&walk->kind);
  const int n_layers = walk->kind.n_layers, n_pieces = batch->count * n_layers;
  bool bad[BATCH] = {false};
  Status status = STATUS_OK;
#pragma omp parallel for schedule(dynamic) num_threads(walk->store->options.n_threads)
  for (int piece = 0; piece < n_pieces; piece++) {
    int i = piece / n_layers, layer = piece % n_layers;
    const PrefixFile *file = &batch->files[i];
    unsigned char *bytes = memory + (size_t)omp_get_thread_num() * room;
    TokenRange range = {.pos = file->start, .n_tokens = batch->n[i]};
    Error reason = {{0}};
    Status read = prefix_file_layer(file, &walk->kind, layer, bytes, &reason), written = STATUS_OK;
    if (read == STATUS_OK) written = session_kv_write(walk->session, range, layer, file->n, bytes, &reason);
    if (read == STATUS_OK && written == STATUS_OK) continue;
#pragma omp critical
    {
      if (read != STATUS_OK && !bad[i]) note(walk->store, &reason);
      if (written != STATUS_OK) status = error_set(err, written, "%s", reason.text);
      bad[i] = true;
    }
  }
  for (*n_good = 0; *n_good < batch->count && !bad[*n_good];) ++*n_good;
  if (*n_good < batch->count) walk->store->damaged = batch->own[*n_good];
  return status;
}

/* Opens the next files of the text from *start on: whole blocks, and after the last whole one the best. */
static void open_batch(const Walk *walk, int n_held, int *start, uint64_t *before, Batch *batch) {
  batch->count = 0;
  batch->last = false;
  while (batch->count < BATCH && !batch->last) {
    PrefixFile *file = &batch->files[batch->count];
    uint64_t own;
    int n = PREFIX_BLOCK;
    bool whole = open_whole_block(walk, *start, *before, &own, file);
    int held = n_held > *start ? n_held - *start : 0;
    if (!whole) n = open_best_block(walk, *start, *before, held + PREFIX_MIN_USE, file);
    batch->last = !whole;
    if (n == 0) return;
    if (!whole) own = chain(*before, file->ids + *start, file->n);
    batch->n[batch->count] = n;
    batch->own[batch->count++] = own;
    *start += n;
    *before = own;
  }
}

static Status restore_from(const Walk *walk, unsigned char *memory, int *n_held, Error *err) {
  int start = *n_held / PREFIX_BLOCK * PREFIX_BLOCK, last = walk->n - 1;
  uint64_t before = chain_start(walk);
  for (int at = 0; at < start; at += PREFIX_BLOCK) before = chain(before, walk->ids + at, PREFIX_BLOCK);
  for (bool more = true; more && start < last;) {
    Batch batch;
    int n_good;
    open_batch(walk, *n_held, &start, &before, &batch);
    Status status = load_batch(walk, &batch, memory, &n_good, err);
    more = n_good == batch.count && !batch.last;
    for (int i = 0; i < batch.count; i++) {
      PrefixFile *file = &batch.files[i];
      int end = file->start + batch.n[i];
      if (status == STATUS_OK && i < n_good && end > *n_held) {
        *n_held = end < last ? end : last;
        walk->report->n_files++;
        walk->report->bytes += file->data_offset + file->data_bytes;
        prefix_mark_used(file->path, walk->now_ns - file->start);
      }
      prefix_file_close(file);
    }
    TRY(status);
  }
  return STATUS_OK;
}

Status prefix_store_restore(PrefixStore *store, Session *session, const int32_t *ids, int n,
                            PrefixReport *report, Error *err) {
  *report = (PrefixReport){0};
  if (!session_kv_bytes(session) || !file_is_directory(store->options.directory)) return STATUS_OK;
  TRY(session_rewind(session, ids, n, err));
  Walk walk = {store, session, kind_of(store, session), ids, n, content_clock_ns(), report, 0};
  int n_held = session_length(session);
  unsigned char *memory = mem_alloc((size_t)store->options.n_threads,
                                    PREFIX_BLOCK * prefix_most_bytes(&walk.kind), "cached keys", err);
  Status status = memory ? restore_from(&walk, memory, &n_held, err) : STATUS_FAILED;
  free(memory);
  TRY(status);
  report->n_tokens = n_held - session_length(session);
  session_adopt(session, ids, n_held);
  return STATUS_OK;
}

/* --- saving */

/* Returns how many of the text's tokens the store has; *start is where the first block begins that is not
 * whole, *before the hash of the ids before it. */
static int find_known(Walk *walk, int *start, uint64_t *before) {
  PrefixFile file;
  uint64_t own;
  *start = 0;
  *before = chain_start(walk);
  while (open_whole_block(walk, *start, *before, &own, &file)) {
    prefix_mark_used(file.path, walk->now_ns - *start);
    walk->report->bytes += prefix_file_bytes(&walk->kind, *start, PREFIX_BLOCK);
    prefix_file_close(&file);
    if (own == walk->store->damaged) break;
    *before = own;
    *start += PREFIX_BLOCK;
  }
  int common = open_best_block(walk, *start, *before, PREFIX_MIN_USE, &file);
  if (common > 0) {
    own = chain(*before, file.ids + *start, file.n);
    if (own == walk->store->damaged) common = 0;
    if (common == file.n) walk->superseded = own;
  }
  prefix_file_close(&file);
  return *start + common;
}

static char *block_path(const Walk *walk, uint64_t before, uint64_t own, Error *err) {
  char name[PREFIX_NAME];
  prefix_block_name(walk->store->key_hash, before, own, name);
  return path_join(walk->store->options.directory, name, err);
}

static void remove_superseded(Walk *walk, uint64_t before) {
  char *path = walk->superseded ? block_path(walk, before, walk->superseded, NULL) : NULL;
  if (path) unlink(path);
  free(path);
  walk->superseded = 0;
}

static Status save_block(Walk *walk, int start, int n, uint64_t before, uint64_t own, unsigned char *data,
                         uint64_t *sums, Error *err) {
  unsigned char *bytes = data;
  for (int layer = 0; layer < walk->kind.n_layers; layer++) {
    const size_t size = (size_t)n * walk->kind.token_bytes[layer];
    TRY(session_kv_read(walk->session, (TokenRange){.pos = start, .n_tokens = n}, layer, bytes, err));
    sums[layer] = hash64(bytes, size, 0);
    bytes += size;
  }
  char *path = block_path(walk, before, own, err);
  if (!path) return STATUS_FAILED;
  Status status =
      prefix_file_write(path, &walk->kind, walk->store->options.label, walk->ids, start, n, data, sums, err);
  if (status == STATUS_OK) prefix_mark_used(path, walk->now_ns - start);
  free(path);
  return status;
}

/* The end of the blocks from `start` on that are worth saving and, with the blocks before, within the limit;
 * *bytes is their size. */
static int worth_saving(const Walk *walk, int start, int known, uint64_t *bytes) {
  const uint64_t limit = walk->store->options.limit_bytes;
  uint64_t total = walk->report->bytes; /* of the blocks before `start` */
  int end = start;
  *bytes = 0;
  while (end < walk->n) {
    int n = walk->n - end < PREFIX_BLOCK ? walk->n - end : PREFIX_BLOCK;
    int n_new = walk->n - (known > end ? known : end);
    if (n < PREFIX_BLOCK && n_new < PREFIX_MIN_NEW) break;
    uint64_t size = prefix_file_bytes(&walk->kind, end, n);
    if (size > limit || total > limit - size) break;
    total += size;
    *bytes += size;
    end += n;
  }
  return end;
}

static Status save_blocks(Walk *walk, int start, int end, uint64_t before, Error *err) {
  const size_t n_layers = (size_t)walk->kind.n_layers;
  unsigned char *data =
      mem_alloc(PREFIX_BLOCK, prefix_token_bytes(&walk->kind), "keys and values to be saved", err);
  uint64_t *sums = mem_alloc(n_layers, sizeof *sums, "checksums", err);
  Status status = data && sums ? STATUS_OK : STATUS_FAILED;
  for (int n; status == STATUS_OK && start < end; start += n) {
    n = end - start < PREFIX_BLOCK ? end - start : PREFIX_BLOCK;
    uint64_t own = chain(before, walk->ids + start, n);
    if ((status = save_block(walk, start, n, before, own, data, sums, err)) != STATUS_OK) break;
    remove_superseded(walk, before);
    if (own == walk->store->damaged) walk->store->damaged = 0;
    walk->report->n_files++;
    walk->report->bytes += prefix_file_bytes(&walk->kind, start, n);
    before = own;
  }
  free(data);
  free(sums);
  return status;
}

Status prefix_store_save(PrefixStore *store, Session *session, int n, PrefixReport *report, Error *err) {
  *report = (PrefixReport){0};
  if (n < PREFIX_MIN_TOKENS || n > session_length(session) || !session_kv_bytes(session)) return STATUS_OK;
  TRY(private_directory(store->options.directory, err));
  Walk walk = {store,  session, kind_of(store, session), session_ids(session), n, content_clock_ns(),
               report, 0};
  int start;
  uint64_t before, bytes;
  int known = find_known(&walk, &start, &before);
  if (n - known < PREFIX_MIN_NEW) return STATUS_OK;
  int end = worth_saving(&walk, start, known, &bytes);
  report->bytes = 0;
  if (end <= known) return STATUS_OK;
  TRY(prefix_directory_shrink(store->options.directory, store->options.limit_bytes - bytes,
                              &report->n_removed, err));
  report->n_tokens = end - known;
  return save_blocks(&walk, start, end, before, err);
}
