/* prefix_store.c - see prefix_store.h.
 *
 * Called by: commands/answer/cache.c.
 * Always true: a file is found by hash and used if its ids are the text's; a layer's bytes go into the
 *              session's cache only if their checksum is right, and a block counts only if all its layers
 *              were read. A recurrent state counts only if it was read whole and the keys and values before
 *              it are in the session's cache. A text's files get such times of use that its last ones are
 *              removed first. */
#include "engine/prefix/prefix_store.h"

#include <omp.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/content.h"
#include "base/file.h"
#include "base/hash64.h"
#include "base/private_file.h"
#include "engine/prefix/prefix_directory.h"

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

/* State of one restore or save of a text. */
typedef struct {
  PrefixStore *store;
  Session *session;
  PrefixKind kind;   /* kind of blocks */
  PrefixKind states; /* kind of recurrent states; layer_bytes is NULL if the model has none */
  const int32_t *ids;
  int n;
  int64_t now_ns;
  PrefixReport *report;
  uint64_t superseded; /* hash of a block that is a prefix of the first block to be saved; 0: none */
  size_t room;         /* bytes of memory of each thread: the largest layer of any file fits */
} Walk;

static Walk walk_of(PrefixStore *store, Session *session, const int32_t *ids, int n, PrefixReport *report) {
  const SessionView view = session_view(session);
  PrefixKind kind = {store->options.key, view.text->config->n_layers, view.kv_bytes, view.text->long_rope,
                     false};
  PrefixKind states = kind;
  states.layer_bytes = view.state_bytes;
  states.state = true;
  size_t room = prefix_most_bytes(&kind, PREFIX_BLOCK);
  if (states.layer_bytes && prefix_most_bytes(&states, 1) > room) room = prefix_most_bytes(&states, 1);
  return (Walk){store, session, kind, states, ids, n, content_clock_ns(), report, 0, room};
}

static bool has_states(const Walk *walk) {
  return walk->states.layer_bytes != NULL;
}

/* The fewest matching tokens for which a block is read. With a recurrent state it is 1: the state needs all
 * keys and values before it. */
static int least_use(const Walk *walk) {
  return has_states(walk) ? 1 : PREFIX_MIN_USE;
}

/* The hash of an empty prefix; it depends on the RoPE factors, as the keys do. */
static uint64_t chain_start(const Walk *walk) {
  return walk->store->key_hash + walk->kind.long_rope;
}

/* The hash of the first n ids; n is a multiple of PREFIX_BLOCK. */
static uint64_t chain_to(const Walk *walk, int n) {
  uint64_t before = chain_start(walk);
  for (int at = 0; at < n; at += PREFIX_BLOCK) before = chain(before, walk->ids + at, PREFIX_BLOCK);
  return before;
}

/* Opens a file if it is valid and its ids before `start` are the text's. Returns how many of its own ids
 * match the text. Returns 0 if fewer than `least` match, or if not all ids of a state's file match. PRECOND
 * least > 0 */
static int open_file(const Walk *walk, const PrefixKind *kind, const char *name, int start, int least,
                     PrefixFile *file) {
  Error err = {{0}};
  bool found = false;
  int common = 0;
  *file = (PrefixFile){.descriptor = -1};
  char *path = path_join(walk->store->options.directory, name, &err);
  Status status = path ? prefix_file_open(path, kind, start, file, &found, &err) : STATUS_FAILED;
  free(path);
  if (status != STATUS_OK) note(walk->store, &err);
  int most = walk->n - start;
  if (status == STATUS_OK && found && memcmp(file->ids, walk->ids, (size_t)start * sizeof *walk->ids) == 0) {
    while (common < file->n && common < most && file->ids[start + common] == walk->ids[start + common])
      common++;
  }
  const bool usable = !kind->state || common == file->n;
  if (usable && common >= least) return common;
  prefix_file_close(file);
  return 0;
}

static bool open_whole_block(const Walk *walk, int start, uint64_t before, uint64_t *own, PrefixFile *file) {
  if (walk->n - start < PREFIX_BLOCK) return false;
  *own = chain(before, walk->ids + start, PREFIX_BLOCK);
  char name[PREFIX_NAME];
  prefix_file_name(walk->store->key_hash, before, *own, false, name);
  return open_file(walk, &walk->kind, name, start, PREFIX_BLOCK, file) > 0;
}

/* Opens the file that begins at `start` and has the most tokens in common with the text. Returns how
 * many tokens it has in common with the text; 0: no file has `least` or more. */
static int open_best_file(const Walk *walk, const PrefixKind *kind, int start, uint64_t before, int least,
                          PrefixFile *best) {
  PrefixList list;
  Error err = {{0}};
  int longest = 0;
  *best = (PrefixFile){.descriptor = -1};
  if (prefix_directory_blocks(walk->store->options.directory, walk->store->key_hash, before, kind->state,
                              MOST_CANDIDATES, &list, &err))
    note(walk->store, &err);
  for (size_t i = list.count; i-- > 0;) {
    PrefixFile file;
    int common = open_file(walk, kind, list.items[i].name, start, longest ? longest + 1 : least, &file);
    if (common == 0) continue;
    prefix_file_close(best);
    *best = file;
    longest = common;
  }
  prefix_list_release(&list);
  return longest;
}

static int block_start(int pos) {
  return (pos - 1) / PREFIX_BLOCK * PREFIX_BLOCK;
}

/* Opens the last of the store's states after more than `least` and at most `most` tokens of the text. Returns
 * the number of tokens before that state; 0: the store has no such state. */
static int open_best_state(const Walk *walk, int least, int most, PrefixFile *file) {
  Walk shorter = *walk;
  shorter.n = most;
  *file = (PrefixFile){.descriptor = -1};
  for (int end = most; end > least; end = block_start(end)) {
    const int start = block_start(end), more = least > start ? least - start + 1 : 1;
    const int n = open_best_file(&shorter, &walk->states, start, chain_to(walk, start), more, file);
    if (n > 0) return start + n;
  }
  return 0;
}

/* --- restoring */

/* A file to load. From a block the session takes the keys and values of the block's first n tokens. A state
 * is loaded into the session's slot `slot`. */
typedef struct {
  PrefixFile file;
  uint64_t own;
  int n, slot;
} Piece;

/* Blocks that are loaded together. */
typedef struct {
  Piece pieces[BATCH];
  int count;
  bool last; /* no file follows */
} Batch;

/* Loads up to BATCH files of a kind. The threads share the (file, layer) pairs; `memory` has room for a layer
 * per thread. *n_good: the number of files before the first bad one. */
static Status load_pieces(const Walk *walk, const PrefixKind *kind, const Piece *pieces, int count,
                          unsigned char *memory, int *n_good, Error *err) {
  const int n_layers = kind->n_layers, n_all = count * n_layers;
  bool bad[BATCH] = {false};
  Status status = STATUS_OK;
#pragma omp parallel for schedule(dynamic) num_threads(walk->store->options.n_threads)
  for (int at = 0; at < n_all; at++) {
    const int i = at / n_layers, layer = at % n_layers;
    const Piece *piece = &pieces[i];
    const TokenRange range = {.pos = piece->file.start, .n_tokens = piece->n};
    unsigned char *bytes = memory + (size_t)omp_get_thread_num() * walk->room;
    Error reason = {{0}};
    Status read = prefix_file_layer(&piece->file, kind, layer, bytes, &reason), written = STATUS_OK;
    if (read == STATUS_OK)
      written = kind->state
                    ? session_state_copy(walk->session, FROM_HOST, piece->slot, layer, bytes, &reason)
                    : session_kv_copy(walk->session, FROM_HOST, range, layer, piece->file.n, bytes, &reason);
    if (read == STATUS_OK && written == STATUS_OK) continue;
#pragma omp critical
    {
      if (read != STATUS_OK && !bad[i]) note(walk->store, &reason);
      if (written != STATUS_OK) status = error_set(err, written, "%s", reason.text);
      bad[i] = true;
    }
  }
  for (*n_good = 0; *n_good < count && !bad[*n_good];) ++*n_good;
  return status;
}

/* Opens the next files of the text from *start on: whole blocks, and then the block with the most tokens in
 * common. */
static void open_batch(const Walk *walk, int n_held, int *start, uint64_t *before, Batch *batch) {
  batch->count = 0;
  batch->last = false;
  while (batch->count < BATCH && !batch->last) {
    Piece *piece = &batch->pieces[batch->count];
    PrefixFile *file = &piece->file;
    bool whole = open_whole_block(walk, *start, *before, &piece->own, file);
    int held = n_held > *start ? n_held - *start : 0;
    piece->n = PREFIX_BLOCK;
    if (!whole) piece->n = open_best_file(walk, &walk->kind, *start, *before, held + least_use(walk), file);
    batch->last = !whole;
    if (piece->n == 0) return;
    if (!whole) piece->own = chain(*before, file->ids + *start, file->n);
    batch->count++;
    *start += piece->n;
    *before = piece->own;
  }
}

static Status restore_from(const Walk *walk, unsigned char *memory, int *n_held, Error *err) {
  int start = *n_held / PREFIX_BLOCK * PREFIX_BLOCK, last = walk->n - 1;
  uint64_t before = chain_to(walk, start);
  for (bool more = true; more && start < last;) {
    Batch batch;
    int n_good;
    open_batch(walk, *n_held, &start, &before, &batch);
    Status status = load_pieces(walk, &walk->kind, batch.pieces, batch.count, memory, &n_good, err);
    if (n_good < batch.count) walk->store->damaged = batch.pieces[n_good].own;
    more = n_good == batch.count && !batch.last;
    for (int i = 0; i < batch.count; i++) {
      PrefixFile *file = &batch.pieces[i].file;
      int end = file->start + batch.pieces[i].n;
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

/* Loads a state into one of the session's slots. A damaged file is removed. */
static Status load_state(const Walk *walk, Piece *piece, unsigned char *memory, bool *good, Error *err) {
  int n_good;
  piece->slot = session_state_add(walk->session, piece->file.start + piece->file.n);
  const Status status = load_pieces(walk, &walk->states, piece, 1, memory, &n_good, err);
  *good = n_good == 1;
  if (*good) return STATUS_OK;
  session_state_drop(walk->session, piece->slot);
  if (status == STATUS_OK) unlink(piece->file.path);
  return status;
}

/* Restores the store's last recurrent state within the text's first n_held tokens. */
static Status restore_state(const Walk *walk, unsigned char *memory, int n_held, Error *err) {
  const int least = session_view(walk->session).text->n_past;
  bool good = false;
  for (int most = n_held; !good && most > least;) {
    Piece piece = {.n = 0};
    const PrefixFile *file = &piece.file;
    const int pos = open_best_state(walk, least, most, &piece.file);
    if (pos == 0) return STATUS_OK;
    const Status status = load_state(walk, &piece, memory, &good, err);
    if (good) {
      walk->report->n_files++;
      walk->report->bytes += file->data_offset + file->data_bytes;
      prefix_mark_used(file->path, walk->now_ns - pos);
    }
    prefix_file_close(&piece.file);
    TRY(status);
    most = pos - 1;
  }
  return STATUS_OK;
}

Status prefix_store_restore(PrefixStore *store, Session *session, const int32_t *ids, int n,
                            PrefixReport *report, Error *err) {
  *report = (PrefixReport){0};
  if (!session_view(session).kv_bytes || !file_is_directory(store->options.directory)) return STATUS_OK;
  TRY(session_rewind(session, ids, n, err));
  const Walk walk = walk_of(store, session, ids, n, report);
  const int before = session_view(session).text->n_past;
  int n_held = before;
  OWNED(mem_release)
  unsigned char *memory = mem_alloc((size_t)store->options.n_threads, walk.room, "cached keys", err);
  if (!memory) return STATUS_FAILED;
  TRY(restore_from(&walk, memory, &n_held, err));
  if (has_states(&walk)) TRY(restore_state(&walk, memory, n_held, err));
  session_adopt(session, n_held);
  report->n_tokens = session_common(session, ids, n) - before;
  return STATUS_OK;
}

/* --- saving */

/* Returns how many of the text's tokens the store has. *start: the beginning of the first block that is
 * missing, not whole or damaged in the store. *before: the hash of the ids before *start. */
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
  int common = open_best_file(walk, &walk->kind, *start, *before, least_use(walk), &file);
  if (common > 0) {
    own = chain(*before, file.ids + *start, file.n);
    if (own == walk->store->damaged) common = 0;
    if (common == file.n) walk->superseded = own;
  }
  prefix_file_close(&file);
  return *start + common;
}

static char *path_of(const Walk *walk, uint64_t before, uint64_t own, bool state, Error *err) {
  char name[PREFIX_NAME];
  prefix_file_name(walk->store->key_hash, before, own, state, name);
  return path_join(walk->store->options.directory, name, err);
}

static void remove_superseded(Walk *walk, uint64_t before) {
  char *path = walk->superseded ? path_of(walk, before, walk->superseded, false, NULL) : NULL;
  if (path) unlink(path);
  free(path);
  walk->superseded = 0;
}

/* Buffers in which a file's data are put together. */
typedef struct {
  unsigned char *data;
  uint64_t *sums; /* [n_layers] */
} SaveMemory;

/* Bytes of the text's files. all: of every file; fresh: of files that are to be written. */
typedef struct {
  uint64_t all, fresh;
} SaveBytes;

/* Slots of states that are to be written. */
typedef struct {
  int slots[MAX_KEPT_STATES];
  int count;
} SavedStates;

/* Writes the file of tokens [start, start + n): their keys and values, or the state that the session keeps in
 * `slot`. */
static Status save_file(Walk *walk, const PrefixKind *kind, int start, int n, int slot, uint64_t before,
                        uint64_t own, const SaveMemory *memory, Error *err) {
  unsigned char *bytes = memory->data;
  for (int layer = 0; layer < kind->n_layers; layer++) {
    const size_t size = prefix_layer_bytes(kind, layer, n);
    if (kind->state)
      TRY(session_state_copy(walk->session, TO_HOST, slot, layer, bytes, err));
    else
      TRY(session_kv_copy(walk->session, TO_HOST, (TokenRange){.pos = start, .n_tokens = n}, layer, n, bytes,
                          err));
    memory->sums[layer] = hash64(bytes, size, 0);
    bytes += size;
  }
  OWNED(mem_release) char *path = path_of(walk, before, own, kind->state, err);
  if (!path) return STATUS_FAILED;
  TRY(prefix_file_write(path, kind, walk->store->options.label, walk->ids, start, n, memory->data,
                        memory->sums, err));
  prefix_mark_used(path, walk->now_ns - (kind->state ? start + n : start));
  walk->report->n_files++;
  walk->report->bytes += prefix_file_bytes(kind, start, n);
  return STATUS_OK;
}

/* Adds a file's bytes, or returns false if the text's files would exceed the limit. */
static bool add_bytes(const Walk *walk, uint64_t size, bool fresh, SaveBytes *bytes) {
  const uint64_t limit = walk->store->options.limit_bytes;
  if (size > limit || bytes->all > limit - size) return false;
  bytes->all += size;
  if (fresh) bytes->fresh += size;
  return true;
}

/* The end of the longest run of blocks from `start` on that are worth saving and fit into the limit. In a
 * recurrent model a short last block is always worth saving: a state is at its end. */
static int worth_saving(const Walk *walk, int start, int known, SaveBytes *bytes) {
  int end = start;
  while (end < walk->n) {
    int n = walk->n - end < PREFIX_BLOCK ? walk->n - end : PREFIX_BLOCK;
    int n_new = walk->n - (known > end ? known : end);
    if (n < PREFIX_BLOCK && n_new < PREFIX_MIN_NEW && !has_states(walk)) break;
    if (!add_bytes(walk, prefix_file_bytes(&walk->kind, end, n), true, bytes)) break;
    end += n;
  }
  return end;
}

/* True if the store has the state after the first `pos` tokens; its file then counts as used now. */
static bool has_state(const Walk *walk, int pos) {
  PrefixFile file;
  char name[PREFIX_NAME];
  const int start = block_start(pos);
  const uint64_t before = chain_to(walk, start), own = chain(before, walk->ids + start, pos - start);
  prefix_file_name(walk->store->key_hash, before, own, true, name);
  const bool found = open_file(walk, &walk->states, name, start, pos - start, &file) > 0;
  if (found) prefix_mark_used(file.path, walk->now_ns - pos);
  prefix_file_close(&file);
  return found;
}

/* The slot of the session's next kept state after `pos`, up to `most` tokens; -1: none. */
static int next_state(const Walk *walk, int pos, int most) {
  const KeptStates *kept = session_view(walk->session).kept;
  int best = -1;
  for (int slot = 0; slot < kept->n_slots; slot++)
    if (kept->pos[slot] > pos && kept->pos[slot] <= most && (best < 0 || kept->pos[slot] < kept->pos[best]))
      best = slot;
  return best;
}

/* Chooses states up to `end` to be written within the limit. The store lacks them, and each has
 * KeptStates.turn or is no larger than the keys and values since the state before. Returns the position of
 * the last chosen state; 0: none. */
static int choose_states(const Walk *walk, int end, SaveBytes *bytes, SavedStates *saved) {
  const KeptStates *kept = session_view(walk->session).kept;
  int last = 0, last_fresh = 0;
  saved->count = 0;
  for (int slot, at = 0; (slot = next_state(walk, at, end)) >= 0;) {
    at = kept->pos[slot];
    const uint64_t size = prefix_file_bytes(&walk->states, block_start(at), at - block_start(at));
    const bool known = has_state(walk, at);
    const bool worth =
        kept->turn[slot] || prefix_data_bytes(&walk->kind, at - last) >= prefix_data_bytes(&walk->states, 1);
    if (!known && !worth) continue;
    if (!add_bytes(walk, size, !known, bytes)) break;
    last = at;
    if (known) continue;
    saved->slots[saved->count++] = slot;
    last_fresh = at;
  }
  return last_fresh;
}

static Status save_blocks(Walk *walk, int start, int end, uint64_t before, const SaveMemory *memory,
                          Error *err) {
  for (int n; start < end; start += n) {
    n = end - start < PREFIX_BLOCK ? end - start : PREFIX_BLOCK;
    uint64_t own = chain(before, walk->ids + start, n);
    TRY(save_file(walk, &walk->kind, start, n, -1, before, own, memory, err));
    remove_superseded(walk, before);
    if (own == walk->store->damaged) walk->store->damaged = 0;
    before = own;
  }
  return STATUS_OK;
}

static Status save_states(Walk *walk, const SavedStates *saved, const SaveMemory *memory, Error *err) {
  for (int i = 0; i < saved->count; i++) {
    const int pos = session_view(walk->session).kept->pos[saved->slots[i]], start = block_start(pos);
    const uint64_t before = chain_to(walk, start), own = chain(before, walk->ids + start, pos - start);
    TRY(save_file(walk, &walk->states, start, pos - start, saved->slots[i], before, own, memory, err));
  }
  return STATUS_OK;
}

/* Saves the blocks from `start` to `end` (none if end == start), and the chosen states. */
static Status save_all(Walk *walk, int start, int end, uint64_t before, const SavedStates *saved,
                       Error *err) {
  size_t size = prefix_data_bytes(&walk->kind, PREFIX_BLOCK);
  if (has_states(walk) && prefix_data_bytes(&walk->states, 1) > size)
    size = prefix_data_bytes(&walk->states, 1);
  OWNED(mem_release) unsigned char *data = NULL;
  OWNED(mem_release) uint64_t *sums = NULL;
  TRY(NEW(data, size, "keys and values to be saved", err));
  TRY(NEW(sums, (size_t)walk->kind.n_layers, "checksums", err));
  const SaveMemory memory = {data, sums};
  TRY(save_blocks(walk, start, end, before, &memory, err));
  return save_states(walk, saved, &memory, err);
}

/* The last position up to n whose state the store has, or 0; n if the model has no recurrent state. */
static int known_state(const Walk *walk, int n) {
  if (!has_states(walk)) return n;
  PrefixFile file;
  const int pos = open_best_state(walk, 0, n, &file);
  prefix_file_close(&file);
  return pos;
}

Status prefix_store_save(PrefixStore *store, Session *session, int n, PrefixReport *report, Error *err) {
  *report = (PrefixReport){0};
  const SessionView view = session_view(session);
  if (n < PREFIX_MIN_TOKENS || n > view.text->n_past || !view.kv_bytes) return STATUS_OK;
  if (view.state_bytes) { /* without a state, later keys and values have no use */
    const int slot = kept_states_find(view.kept, n);
    if (slot < 0) return STATUS_OK;
    n = view.kept->pos[slot];
  }
  TRY(private_directory(store->options.directory, err));
  Walk walk = walk_of(store, session, view.text->ids, n, report);
  int start;
  uint64_t before;
  const int known = find_known(&walk, &start, &before), reusable = known_state(&walk, known);
  if (n - reusable < PREFIX_MIN_NEW) return STATUS_OK;
  SaveBytes bytes = {report->bytes, 0};
  SavedStates saved = {.count = 0};
  report->bytes = 0;
  int end = known < n ? worth_saving(&walk, start, known, &bytes) : known, last = end;
  if (has_states(&walk)) last = choose_states(&walk, end > known ? end : known, &bytes, &saved);
  if (last <= reusable && saved.count == 0) return STATUS_OK;
  TRY(prefix_directory_shrink(store->options.directory, store->options.limit_bytes - bytes.fresh,
                              &report->n_removed, err));
  report->n_tokens = last > reusable ? last - reusable : 0;
  return save_all(&walk, start, end > known ? end : start, before, &saved, err);
}
