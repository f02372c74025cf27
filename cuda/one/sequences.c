/* sequences.c - see sequences.h. */
#include "cuda/one/sequences.h"

#include <stdlib.h>
#include <string.h>

static int padded_to(int n, int multiple) {
  return (n + multiple - 1) / multiple * multiple;
}

static int pages_of(int n_tokens) {
  return (n_tokens - 1) / KV_PAGE_TOKENS + 1;
}

static size_t most_units(const StateOptions *o) {
  const int fixed = o->invariant ? (o->n_sequences + GUESS_ROWS) * attention_fixed_splits(o->n_ctx) : 0;
  return (size_t)padded_to(o->n_sequences + ATTENTION_UNITS + fixed, PADDED_UNITS);
}

size_t step_rows_point(StepRows *rows, const StateOptions *o, void *memory) {
  DeviceArena arena = {.base = memory};
  const bool many = o->n_sequences > 0;
  const size_t n = (size_t)o->max_chunk, n_sequences = (size_t)o->n_sequences;
  rows->ids = arena_reserve(&arena, n, sizeof *rows->ids);
  rows->pos = arena_reserve(&arena, n, sizeof *rows->pos);
  rows->first_page = arena_reserve(&arena, many ? n : 0, sizeof *rows->first_page);
  rows->is_long = arena_reserve(&arena, many ? n : 0, sizeof *rows->is_long);
  rows->segment_of = arena_reserve(&arena, many ? n : 0, sizeof *rows->segment_of);
  rows->logit_rows = arena_reserve(&arena, many ? (size_t)o->max_logit_rows : 0, sizeof *rows->logit_rows);
  rows->segments = arena_reserve(&arena, n_sequences, sizeof *rows->segments);
  rows->units = arena_reserve(&arena, many ? most_units(o) : 0, sizeof *rows->units);
  for (int i = 0; i < TILE_SIZES; i++) /* a tile has at least one row */
    rows->tiles[i] = arena_reserve(&arena, many ? n : 0, sizeof *rows->tiles[i]);
  rows->pages = arena_reserve(&arena, n_sequences * (size_t)pages_of(o->n_ctx), sizeof *rows->pages);
  return arena.used;
}

Status sequences_add_tile_size(Sequences *s, int tile_tokens, Error *err) {
  if (sequences_tile_size(s, tile_tokens) < s->n_tile_sizes) return STATUS_OK;
  if (s->n_tile_sizes == TILE_SIZES)
    return error_set(err, STATUS_MODEL, "layers have heads of more than %d kinds", TILE_SIZES);
  s->tile_tokens[s->n_tile_sizes++] = tile_tokens;
  return STATUS_OK;
}

int sequences_tile_size(const Sequences *s, int tile_tokens) {
  int i = 0;
  while (i < s->n_tile_sizes && s->tile_tokens[i] != tile_tokens) i++;
  return i;
}

Status sequences_open(Sequences *s, const StateOptions *o, char *const pinned[2], Error *err) {
  s->n_sequences = o->n_sequences;
  s->invariant = o->invariant;
  s->n_table = pages_of(o->n_ctx);
  s->max_logit_rows = o->max_logit_rows;
  TRY(NEW(s->tables, (size_t)s->n_sequences * (size_t)s->n_table, "page tables", err));
  TRY(NEW(s->sequence_of, (size_t)s->max_logit_rows, "page tables", err));
  for (int i = 0; i < 2; i++) {
    step_rows_point(&s->pinned[i], o, pinned[i]);
    TRY(cuda_status(cudaEventCreateWithFlags(&s->copied[i], cudaEventDisableTiming), "cannot make an event",
                    err));
  }
  return STATUS_OK;
}

void sequences_close(Sequences *s) {
  for (int i = 0; i < 2; i++)
    if (s->copied[i]) cudaEventDestroy(s->copied[i]);
  free(s->tables);
  free(s->sequence_of);
}

static const int32_t *table_of(const Sequences *s, int sequence) {
  return s->tables + (size_t)sequence * (size_t)s->n_table;
}

Status sequences_set_pages(Sequences *s, int sequence, int first, const int32_t *pages, int n, Error *err) {
  if (sequence < 0 || sequence >= s->n_sequences || first < 0 || n < 0 || n > s->n_table - first)
    return error_set(err, STATUS_FAILED,
                     "entries %d to %d of page table %d, expected %d entries of %d tables", first,
                     first + n - 1, sequence, s->n_table, s->n_sequences);
  memcpy(s->tables + (size_t)sequence * (size_t)s->n_table + first, pages, (size_t)n * sizeof *pages);
  return STATUS_OK;
}

/* --- a step */

/* Divides the keys of one row into units. *n_partial: the number of partial results so far. */
static void add_units(Sequences *s, StepRows *rows, int row, int length, int unit_keys, int *n_partial) {
  int n_splits = s->invariant ? attention_fixed_splits(length) : (length - 1) / unit_keys + 1;
  if (n_splits > ATTENTION_SPLITS) n_splits = ATTENTION_SPLITS;
  for (int i = 0; i < n_splits; i++)
    rows->units[s->n_units++] = (AttentionUnit){row, i, n_splits, n_splits > 1 ? *n_partial : 0};
  if (n_splits > 1) *n_partial += n_splits;
  s->unit_keys += length;
}

static void add_tiles(Sequences *s, StepRows *rows, int row, const SequenceRows *part) {
  for (int k = 0; k < s->n_tile_sizes; k++) {
    const int size = s->tile_tokens[k];
    for (int i = 0; size > 0 && i < part->n_tokens; i += size) {
      const int n = part->n_tokens - i < size ? part->n_tokens - i : size, keys = part->pos + i + n;
      rows->tiles[k][s->n_tiles[k]++] = (AttentionTile){row + i, n, part->pos + part->n_tokens, keys};
      s->tile_keys[k] += keys;
    }
  }
}

/* Tiles with fewer keys first. Kernels take the last tile first, so short tiles are left for the end. */
static int compare_tiles(const void *a, const void *b) {
  const AttentionTile *x = a, *y = b;
  return x->keys != y->keys ? (x->keys > y->keys) - (x->keys < y->keys)
                            : (x->row > y->row) - (x->row < y->row);
}

/* Describes the rows of all parts; returns the number of page table entries. */
static size_t describe_parts(Sequences *s, StepRows *rows, TokenRange range) {
  long long n_keys = 0;
  for (int i = 0; i < range.n_parts; i++)
    if (sequences_is_single(&range.parts[i])) n_keys += range.parts[i].pos + 1, s->n_singles++;
  const int unit_keys = s->unit_blocks > 0 ? attention_unit_keys(s->unit_blocks, n_keys) : 0;
  size_t n_pages = 0;
  int row = 0, n_partial = 0, single = 0, other = s->n_singles, n_chunks = 0;
  for (int i = 0; i < range.n_parts; i++) {
    const SequenceRows *part = &range.parts[i];
    const int length = part->pos + part->n_tokens, n = pages_of(length);
    const bool is_single = sequences_is_single(part);
    const int segment = is_single ? single++ : other++;
    rows->segments[segment] = (Segment){row, part->n_tokens, part->sequence, part->pos, n_chunks};
    if (!is_single) n_chunks += (part->n_tokens - 1) / SEGMENT_CHUNK + 1;
    memcpy(rows->pages + n_pages, table_of(s, part->sequence), (size_t)n * sizeof *rows->pages);
    for (int r = 0; r < part->n_tokens; r++) {
      rows->pos[row + r] = part->pos + r;
      rows->first_page[row + r] = (int)n_pages;
      rows->is_long[row + r] = part->long_rope;
      rows->segment_of[row + r] = segment;
    }
    if (is_single || (s->invariant && !part->of_prompt)) {
      for (int r = 0; r < part->n_tokens && unit_keys > 0; r++)
        add_units(s, rows, row + r, part->pos + r + 1, unit_keys, &n_partial);
    } else {
      s->only_singles = false;
      add_tiles(s, rows, row, part);
    }
    n_pages += (size_t)n;
    row += part->n_tokens;
  }
  s->n_segments = other;
  for (int k = 0; k < s->n_tile_sizes; k++)
    qsort(rows->tiles[k], (size_t)s->n_tiles[k], sizeof rows->tiles[k][0], compare_tiles);
  return n_pages;
}

/* Sets sequence_of, the sequence of each row of logits. PRECOND range.logit_rows ascends. */
static void note_sequences(Sequences *s, TokenRange range) {
  const SequenceRows *part = range.parts;
  int end = part->n_tokens;
  for (int i = 0; i < range.n_logit_rows; i++) {
    while (range.logit_rows[i] >= end) end += (++part)->n_tokens;
    s->sequence_of[i] = part->sequence;
  }
}

/* Pads a step of single rows (only_singles). Adds rows of position -1 and units of row -1, which kernels
 * skip. Fills logit_rows up with row 0. */
static void pad(Sequences *s, StepRows *rows) {
  const int all = padded_to(s->n_rows, PADDED_ROWS), most = s->n_sequences;
  for (const int n = all < most ? all : most; s->n_rows < n; s->n_rows++) {
    rows->ids[s->n_rows] = rows->first_page[s->n_rows] = rows->is_long[s->n_rows] = 0;
    rows->pos[s->n_rows] = -1;
    rows->segment_of[s->n_rows] = s->n_segments;
    s->n_singles += s->n_singles == s->n_segments;
    rows->segments[s->n_segments++] = (Segment){.row = -1};
  }
  while (s->n_units % PADDED_UNITS) rows->units[s->n_units++] = (AttentionUnit){.row = -1};
  for (int n = s->n_logit_rows; n > 0 && n % PADDED_ROWS && n < s->max_logit_rows; n++)
    rows->logit_rows[s->n_logit_rows++] = 0;
}

int sequences_first_page(const Sequences *s, int row) {
  return s->pinned[1 - s->next].first_page[row];
}

Status sequences_set_step(Sequences *s, const StepRows *device, TokenRange range, cudaStream_t stream,
                          Error *err) {
  const int turn = s->next;
  StepRows *rows = &s->pinned[turn];
  s->next = 1 - turn;
  TRY(cuda_status(cudaEventSynchronize(s->copied[turn]), "a step failed", err));
  s->n_rows = range.n_tokens;
  s->n_logit_rows = range.n_logit_rows;
  s->n_singles = s->n_segments = s->n_units = 0;
  s->unit_keys = 0;
  memset(s->n_tiles, 0, sizeof s->n_tiles);
  memset(s->tile_keys, 0, sizeof s->tile_keys);
  s->only_singles = true;
  memcpy(rows->ids, range.ids, (size_t)range.n_tokens * sizeof *rows->ids);
  memcpy(rows->logit_rows, range.logit_rows, (size_t)range.n_logit_rows * sizeof *rows->logit_rows);
  note_sequences(s, range);
  const size_t n_pages = describe_parts(s, rows, range);
  if (s->only_singles) pad(s, rows);
  const size_t bytes = (size_t)((char *)(rows->pages + n_pages) - (char *)rows->ids);
  TRY(cuda_status(cudaMemcpyAsync(device->ids, rows->ids, bytes, cudaMemcpyHostToDevice, stream),
                  "cannot copy a step's rows", err));
  return cuda_status(cudaEventRecord(s->copied[turn], stream), "cannot record an event", err);
}
