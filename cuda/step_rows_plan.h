/* step_rows_plan.h - who does what in a decode step of 1, 2 or 4 rows as one kernel (step_rows.h): host
 * only, no GPU needed.
 *
 * Matrices are divided over clusters and blocks as for a step of one row (step_plan.h), but that a block's
 * columns of hidden are whole groups of 128, so of 20 groups some have two and some three. Other than there
 * activations stay in shared memory, so a warp takes all inputs of a tile row one after the other and sums
 * are never added up between warps:
 *
 *     a piece: 4 tile rows (a team's warps, one each) x `span` groups
 *     wave     up to 4 times 4 tile rows, one a team; its pieces: groups 0 .. span - 1 of each team, then the
 *              next groups of each, to the last
 *     head     the same of 8 rows, shared by a team's warps, x head_width inputs
 *
 * Called by: step_rows.cu, step_model.c, tests. */
#ifndef AUK_CUDA_STEP_ROWS_PLAN_H
#define AUK_CUDA_STEP_ROWS_PLAN_H

#include "cuda/step_plan.h"

enum {
  STEP_ROWS_MOST = 4,
  STEP_ROWS_QUERIES = 32, /* most columns of attention: query heads of a KV head, of each row */
  STEP_HEAD_ROWS = 8,     /* of a piece of the head */
  STEP_HEAD_WIDTH = 1024, /* inputs of it, at most */
  STEP_HEAD_PAD = 64,     /* bytes between them, so that they begin in other banks */
};

/* Offsets in bytes of a block's shared memory. */
typedef struct {
  int x;        /* [groups of hidden]: what goes into qkv, gate and up, as integers; halves for the head */
  int x_notes;  /* float4 [groups][rows] {scale, scale * sum, sum of squares of the residual, 0} */
  int in;       /* [groups]: what goes into o and down */
  int in_notes; /* float4 [groups][rows] */
  int exchange; /* q, k, v of the rows | what warps made of their keys | gated product | the head's sums */
  int states;   /* half [queries of the block][8][128], then float2 {maximum, sum} [queries][8] */
  int heads;    /* half [queries, to 8][128], then [rows][128] new keys and as many values */
  int rope;     /* float2 [rows][64] */
  int pieces;   /* a table of a layer's pieces */
  int total;
} StepRowsShared;

typedef struct {
  StepShape shape;
  int rows; /* 1, 2 or 4 */
  int heads_per_kv;
  int span;            /* groups of a piece */
  int keys;            /* of a piece */
  int queries;         /* heads_per_kv * rows */
  int columns;         /* of eight queries each, that warps share keys by: 1, 2 or 4 */
  int members;         /* warps that share a piece of keys: a column each, of one column half the keys each */
  int states;          /* that attention leaves in a block at most */
  int most_units;      /* of a cluster */
  int head_width;      /* inputs of a piece of the head */
  int n_head_blocks;   /* of STEP_HEAD_ROWS rows */
  int n_slots;         /* of the ring */
  int piece_bytes;     /* of a whole piece of weights */
  int slot_bytes;      /* a multiple of 128 */
  int ring_at;         /* from the beginning of shared memory on: behind the rest */
  size_t memory_bytes; /* of what blocks hand each other through memory, and of the residual stream */
  StepRowsShared at;
} StepRowsPlan;

/* Columns of hidden of the block of this rank, in groups of 128: from this one to the next rank's. */
#ifdef __CUDACC__
__host__ __device__
#endif
    static inline int
    step_first_column_group(const StepShape *s, int rank) {
  return rank * (s->hidden / STEP_GROUP) / STEP_BLOCKS;
}

/* STATUS_MODEL with the reason where the shape cannot be cut so. rows: 1, 2 or 4. */
Status step_rows_plan(const StepShape *shape, int rows, StepRowsPlan *plan, Error *err);

#endif
