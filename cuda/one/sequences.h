/* sequences.h - several sequences that share a pool of pages: their page tables, and the description of a
 * step's rows that its kernels read.
 *
 * A step's rows are described once on the host, in pinned memory, and copied to the device in one piece.
 * Addresses on the device never change, so a step's graph serves later steps. A step in which attention
 * computes all rows as units (only_singles) is padded with rows of position -1, so that few sizes occur.
 * The copy:
 *
 *   ids | pos | first_page | is_long | segment_of | logit_rows | segments | units | tiles by size | pages
 *
 * Always true: a copy to the device reads memory that no later step changes before the copy is complete. */
#pragma once

#include "cuda/kernels/attention/attention.h"
#include "cuda/kernels/ops/segment.h"
#include "cuda/kernels/ptx/device.h"
#include "engine/backend.h"

enum {
  TILE_SIZES = 4,  /* most tile sizes of attention: layers whose heads differ can have different tile sizes */
  PADDED_ROWS = 8, /* rows of only_singles steps are padded to a multiple of this, at most to n_sequences */
  PADDED_UNITS = 64 /* and their units to a multiple of this */
};

/* Rows of a step, on the device or pinned on the host. For one sequence there are only ids and pos. */
typedef struct {
  int *ids;                         /* [max_chunk]; the sampler of one sequence writes its pick to ids[0] */
  int *pos;                         /* [max_chunk] positions; -1: padding */
  int *first_page;                  /* [max_chunk] index in `pages` of the first page of the row's sequence */
  int *is_long;                     /* [max_chunk] 1: the row uses the rope of long texts */
  int *segment_of;                  /* [max_chunk] index in `segments` */
  int *logit_rows;                  /* [max_logit_rows] the rows whose logits are made */
  Segment *segments;                /* [n_sequences], the single rows first */
  AttentionUnit *units;             /* [most_units()] */
  AttentionTile *tiles[TILE_SIZES]; /* by tile size: [max_chunk], ascending by keys */
  int *pages;                       /* [n_sequences * n_table] the page tables of the step's parts */
} StepRows;

typedef struct {
  StepRows pinned[2]; /* used by steps in turn */
  cudaEvent_t copied[2];
  int next;
  int n_sequences, n_table; /* n_table: entries of a page table, enough for n_ctx positions */
  int32_t *tables;          /* [n_sequences][n_table] on the host */
  int max_logit_rows;
  int unit_blocks;             /* the largest attention_unit_blocks() of the layers */
  bool invariant;              /* StateOptions.invariant */
  int n_tile_sizes;            /* different attention_tile_tokens() of the layers */
  int tile_tokens[TILE_SIZES]; /* tokens of a tile; 0: plain kernels compute all rows in such layers */
  /* From here on: what sequences_set_step() has made of the last step. */
  int n_rows, n_logit_rows; /* padding included */
  int n_singles, n_segments, n_units, n_tiles[TILE_SIZES];
  /* unit_keys: keys of all rows that are units; tile_keys, by tile size: the sum of AttentionTile.keys. */
  long long unit_keys, tile_keys[TILE_SIZES];
  /* All rows are units of attention; none is in a tile. Each sequence has a single row, or with `invariant`
   * one row and its guesses. */
  bool only_singles;
  int *sequence_of; /* [max_logit_rows] the sequence of each row of logits */
} Sequences;

/* Points the arrays at their places in `memory`, in the order above; returns the bytes that they need. With
 * `memory` NULL it only counts these. */
size_t step_rows_point(StepRows *rows, const StateOptions *options, void *memory);

/* True if the part is a single row: one token that is not of a prompt (of_prompt). */
static inline bool sequences_is_single(const SequenceRows *part) {
  return part->n_tokens == 1 && !part->of_prompt;
}

/* Allocates memory on the host; sequences_close() frees it, also after a failure. pinned: memory for
 * Sequences.pinned, of step_rows_point() bytes each. PRECOND tile sizes and unit_blocks are set, the rest is
 * zeros. */
Status sequences_open(Sequences *s, const StateOptions *options, char *const pinned[2], Error *err);
void sequences_close(Sequences *s);

/* Adds tile_tokens to the tile sizes, unless it is one of them. Fails if there are more than TILE_SIZES. */
Status sequences_add_tile_size(Sequences *s, int tile_tokens, Error *err);
/* The index of the tile size tile_tokens; n_tile_sizes if there is no such size. */
int sequences_tile_size(const Sequences *s, int tile_tokens);

Status sequences_set_pages(Sequences *s, int sequence, int first, const int32_t *pages, int n, Error *err);

/* The sequence of a row of the last step's logits. */
static inline int sequences_of_logits(const Sequences *s, int row) {
  return s->sequence_of[row];
}

/* The index in the last step's `pages` of the first page of a row's sequence. */
int sequences_first_page(const Sequences *s, int row);

/* Describes the rows of a step and enqueues their copy to the device. */
Status sequences_set_step(Sequences *s, const StepRows *device, TokenRange range, cudaStream_t stream,
                          Error *err);
