/* few_plan.h - who does what in a decode step of 2, 4 or 8 rows as one kernel (few_tokens.h): host only,
 * no GPU needed.
 *
 * Clusters have KV heads and units as for a step of one row (plan.h). A block keeps some groups of 128
 * columns of hidden (of 20 groups some blocks have two and some three), and of x nobody else sees them:
 *
 *   qkv       all tile rows of the cluster's heads, by the block's columns of x
 *   gate, up  of the cluster's units, the same
 *   o, down   the block's columns, by what the cluster makes
 *
 * What comes out of qkv, gate and up for a row of activations is added up by the block that keeps the row:
 * row t by block t; of four rows by blocks t and t + 4, a head or unit each by turns; of two rows by four.
 *
 *   a piece   4 tile rows, one for each of a team's warps, x up to STEP_ROWS_SPAN groups
 *   a wave    4 times 4 tile rows, one a team; its pieces: the first groups of each team, then the next
 *             groups of each, to the last
 *   a chunk   8 tile rows of qkv, gate or up: what a block adds up at once
 *
 * The head comes in pieces of 8 rows, shared by a team's warps, x head_width inputs.
 *
 * Called by: few_tokens.cu, fused.c, tests. */
#ifndef AUK_CUDA_FUSED_FEW_PLAN_H
#define AUK_CUDA_FUSED_FEW_PLAN_H

#include "cuda/fused/plan.h"

enum {
  STEP_ROWS_MOST = 8,
  STEP_ROWS_SPAN = 5,                      /* most groups of a piece */
  STEP_CHUNKS = 8,                         /* that a block has room for */
  STEP_CHUNK_BYTES = STEP_BLOCKS * 8 * 64, /* of one row what each block makes of 8 tile rows, in floats */
  STEP_SUM_TURNS = 4,                      /* few_residual.cuh */
  STEP_ROWS_QUERIES = 32, /* most columns of attention: query heads of a KV head, of each row */
  STEP_HEAD_ROWS = 8,     /* of a piece of the head */
  STEP_HEAD_WIDTH = 1024, /* inputs of it, at most */
  STEP_HEAD_PAD = 64,     /* bytes between them, so that they begin in other banks */
};

/* Offsets in bytes of a block's shared memory. What shares memory is drawn in few_tokens.cu. */
typedef struct {
  int squares;      /* float [rows][groups of hidden]: sums of squares of the residual stream */
  int x_notes;      /* float2 [groups][rows] {scale, scale * sum}: of the block's columns; of the head's x */
  int in_notes;     /* float2 [groups][rows]: of `in` */
  int rope;         /* float2 [64]: of the block's own row */
  int chunks;       /* barriers of chunks */
  int pieces;       /* a table of a layer's pieces */
  int parts;        /* float [STEP_CHUNKS][block][8 tile rows][16]: chunks of the block's row */
  int slice;        /* [groups of the block's columns]: what goes into qkv, gate and up, as integers */
  int warp_values;  /* half [states][queries][128]: what warps made of their keys */
  int warp_weights; /* float2 {maximum, sum} [states][queries] */
  int heads;        /* half [queries, to 8][128], then [rows][128] new keys and as many values */
  int states;       /* half [queries of the block][8][128], then float2 {maximum, sum} [queries][8] */
  int x;            /* [groups of hidden]: what goes into the head, as integers, then halves */
  int in;           /* [groups]: what goes into o and down, as integers */
  int exchange;     /* the head's sums */
  int total;
} StepRowsShared;

typedef struct {
  StepShape shape;
  int rows; /* 2, 4 or 8 */
  int heads_per_kv;
  int queries;         /* heads_per_kv * rows */
  int columns;         /* of eight queries each, that warps share keys by: 1, 2 or 4 */
  int members;         /* warps that share a piece of keys: a column each, all its keys or half of them */
  int states;          /* that attention leaves in a block at most */
  int most_units;      /* of a cluster */
  int head_width;      /* inputs of a piece of the head */
  int n_head_blocks;   /* of STEP_HEAD_ROWS rows */
  int n_slots;         /* of the ring */
  int piece_bytes;     /* of a whole piece of weights */
  int slot_bytes;      /* a multiple of 128 */
  int ring_at;         /* from the beginning of shared memory on: behind the rest */
  size_t memory_bytes; /* step_rows_memory() */
  StepRowsShared at;
} StepRowsPlan;

#ifdef __CUDACC__
#define STEP_BOTH __host__ __device__
#else
#define STEP_BOTH
#endif

/* Columns of hidden of the block of this rank, in groups of 128: from this one to the next rank's. */
STEP_BOTH static inline int step_first_column_group(const StepShape *s, int rank) {
  return rank * (s->hidden / STEP_GROUP) / STEP_BLOCKS;
}

/* Pieces of so many groups of inputs, and groups of each of them but the last. */
STEP_BOTH static inline int step_rows_parts(int n_groups) {
  return (n_groups + STEP_ROWS_SPAN - 1) / STEP_ROWS_SPAN;
}
STEP_BOTH static inline int step_rows_span(int n_groups) {
  const int parts = step_rows_parts(n_groups);
  return (n_groups + parts - 1) / parts;
}

/* Bytes of what blocks hand each other through memory, of the residual stream, and of a count of launches. */
size_t step_rows_memory(const StepShape *shape, int rows);

/* STATUS_MODEL with the reason where the shape cannot be cut so. rows: 2, 4 or 8. */
Status step_rows_plan(const StepShape *shape, int rows, StepRowsPlan *plan, Error *err);

#endif
