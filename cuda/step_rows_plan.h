/* step_rows_plan.h - who does what in a decode step of 2, 4 or 8 rows as one kernel (step_rows.h): host only, no
 * GPU needed.
 *
 * Matrices are divided over clusters and blocks as for a step of one row (step_plan.h), but that a block's
 * columns of hidden are whole groups of 128, so of 20 groups some have two and some three.
 *
 * Of two rows a share's inputs are cut for teams and warps as there too (StepRowsCut), and sums of warps
 * along the inputs are added up when all tile rows of the share are done, or as many as there is room for.
 * Of four and eight rows x stays where it is: a block multiplies qkv, gate and up by its own columns of
 * hidden alone, for all tile rows of the cluster, and what comes of a row of activations is added up by the
 * block that keeps it, row t by block t (of four rows, blocks t and t + 4 in turn). A warp takes all inputs of
 * a tile row one after the other:
 *
 *     a piece: 4 tile rows (a team's warps, one each) x up to 5 groups
 *     wave     up to 4 times 4 tile rows, one a team; its pieces: the first groups of each team, then the
 *              next groups of each, to the last
 *     a chunk  8 tile rows of qkv, gate or up: what a block adds up at once
 *
 * The head comes in pieces of 8 rows, shared by a team's warps, x head_width inputs.
 *
 * Called by: step_rows.cu, step_model.c, tests. */
#ifndef AUK_CUDA_STEP_ROWS_PLAN_H
#define AUK_CUDA_STEP_ROWS_PLAN_H

#include "cuda/step_plan.h"

enum {
  STEP_ROWS_MOST = 8,
  STEP_ROWS_SPAN = 4,                      /* most groups of a warp in a piece */
  STEP_ROWS_WIDE = 5,                      /* most groups of a piece of 4 and 8 rows */
  STEP_SUM_TURNS = 4,     /* step_rows_sums.cuh */
  STEP_CHUNKS = 8,                         /* that there is room for in a block */
  STEP_CHUNK_BYTES = STEP_BLOCKS * 8 * 64, /* a row of 8 tile rows, of each block */
  STEP_ROWS_SMALL = 10,   /* groups of a piece of one tile row, up to which it has two if there is room */
  STEP_ROWS_QUERIES = 32, /* most columns of attention: query heads of a KV head, of each row */
  STEP_HEAD_ROWS = 8,     /* of a piece of the head */
  STEP_HEAD_WIDTH = 1024, /* inputs of it, at most */
  STEP_HEAD_PAD = 64,     /* bytes between them, so that they begin in other banks */
};

/* How the inputs of a share are cut of two rows: into parts (of a piece each), these over the warps of a team
 * along k, and what is left of a team over the tile rows of the piece. */
typedef struct {
  int parts;   /* 1, 2 or 4: part p has groups [p n_groups / parts, (p + 1) n_groups / parts) */
  int k_warps; /* 1, 2 or 4 of a team's four share a tile row */
  int rows;    /* of a piece: a multiple of STEP_TEAM_WARPS / k_warps */
} StepRowsCut;

/* Offsets in bytes of a block's shared memory. */
typedef struct {
  int x;       /* [groups of hidden]: what goes into qkv, gate and up, as integers; their sums; halves for the
                     head. Of four and eight rows for the head alone, over all that begins at `parts` */
  int x_notes; /* float2 [groups][rows] {scale, scale * sum} */
  int squares; /* float [rows][groups]: sums of squares of the residual */
  int in;      /* [groups]: what goes into o and down */
  int in_notes;     /* float2 [groups][rows] */
  int parts;        /* of four and eight rows: float [STEP_CHUNKS][block][8 tile rows][16] */
  int chunks;       /* their barriers */
  int slice;        /* [groups of this block's columns]: what goes into qkv, gate and up, as integers */
  int exchange;     /* q, k, v of the rows | gated product | sums of o, down, head */
  int warp_values;  /* half [states][queries][128], what warps made of their keys: at x or exchange */
  int warp_weights; /* float2 {maximum, sum} [states][queries]: at exchange */
  int states;       /* half [queries of the block][8][128], then float2 {maximum, sum} [queries][8] */
  int heads;        /* half [queries, to 8][128], then [rows][128] new keys and as many values */
  int rope;         /* float2 [rows][64], or of the block's own row */
  int pieces;       /* a table of a layer's pieces */
  int total;
} StepRowsShared;

typedef struct {
  StepShape shape;
  int rows; /* 2, 4 or 8 */
  int heads_per_kv;
  int small;         /* step_rows_cut() */
  int keys;          /* of a piece */
  int queries;       /* heads_per_kv * rows */
  int columns;       /* of eight queries each, that warps share keys by: 1, 2 or 4 */
  int members;       /* warps that share a piece of keys: a column each, or of up to two a half of its keys */
  int states;        /* that attention leaves in a block at most */
  int most_units;    /* of a cluster */
  int head_width;    /* inputs of a piece of the head */
  int n_head_blocks; /* of STEP_HEAD_ROWS rows */
  int n_slots;       /* of the ring */
  int piece_bytes;   /* of a whole piece of weights */
  int slot_bytes;    /* a multiple of 128 */
  int ring_at;       /* from the beginning of shared memory on: behind the rest */
  int slack;         /* bytes behind the ring that are read, but not used */
  size_t memory_bytes; /* of what blocks hand each other through memory, and of the residual stream */
  StepRowsShared at;
} StepRowsPlan;

#ifdef __CUDACC__
#define STEP_BOTH __host__ __device__
#else
#define STEP_BOTH
#endif

/* Cuts a share of n_groups groups of inputs, 1 .. STEP_ROWS_SPAN * STEP_WARPS. small: groups of a piece of
 * one tile row up to which it has two, unless two teams share a part, of which one would have more. */
STEP_BOTH static inline StepRowsCut step_rows_cut(int n_groups, int small) {
  StepRowsCut cut = {1, 1, 0};
  while (cut.k_warps < STEP_TEAM_WARPS && cut.k_warps * STEP_ROWS_SPAN < n_groups) cut.k_warps *= 2;
  while (cut.parts * cut.k_warps * STEP_ROWS_SPAN < n_groups) cut.parts *= 2;
  cut.rows = STEP_TEAM_WARPS / cut.k_warps;
  if (cut.rows == 1 && cut.parts != 2 && n_groups <= cut.parts * small) cut.rows = 2;
  return cut;
}

/* Tile rows of which the sums of all warps along k are in `bytes` at once: whole pieces of all teams, and an
 * even number, or all of n_rows. */
STEP_BOTH static inline int step_rows_at_once(StepRowsCut cut, int rows, int n_rows, int bytes) {
  int most = bytes / (cut.parts * cut.k_warps * rows * 16 * (int)sizeof(float));
  int wave = STEP_TEAMS / cut.parts * cut.rows;
  if (wave % 2) wave *= 2;
  return most >= n_rows ? n_rows : most / wave * wave;
}

/* Columns of hidden of the block of this rank, in groups of 128: from this one to the next rank's. */
STEP_BOTH static inline int step_first_column_group(const StepShape *s, int rank) {
  return rank * (s->hidden / STEP_GROUP) / STEP_BLOCKS;
}

/* Of four and eight rows: pieces of a share's inputs, each of step_rows_span() groups but the last. */
STEP_BOTH static inline int step_rows_parts(int n_groups) {
  return (n_groups + STEP_ROWS_WIDE - 1) / STEP_ROWS_WIDE;
}
STEP_BOTH static inline int step_rows_span(int n_groups) {
  const int parts = step_rows_parts(n_groups);
  return (n_groups + parts - 1) / parts;
}

/* Bytes of what blocks hand each other through memory, and of the residual stream. */
size_t step_rows_memory(const StepShape *shape, int rows);

/* STATUS_MODEL with the reason where the shape cannot be cut so. rows: 2, 4 or 8. */
Status step_rows_plan(const StepShape *shape, int rows, StepRowsPlan *plan, Error *err);

#endif
