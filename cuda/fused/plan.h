/* plan.h - the division of a fused step's work (step.h): host only, no GPU needed.
 *
 * The GPU is C clusters of 8 blocks, a block an SM. How the kernel of one token cuts a layer's matrices:
 *
 *             k ->  0 ............ hidden          k ->  0 .. heads of cluster 0 | cluster 1 | ...
 *   qkv   row j      one tile row a block,   o     hidden / 8 rows a block, of each cluster with a KV
 *         of a head  of its cluster's heads        head the inputs that its heads make
 *   gate, up         2 tile rows a block,    down  hidden / 8 rows a block, the inputs that its cluster's
 *                    of its cluster's units        units make
 *
 * A unit is 128 features of the gated product. Cluster h < n_kv_heads has KV head h; units go to all
 * clusters. A tile row is 16 outputs (layout.cuh). Blocks stream pieces through a ring of slots in shared
 * memory: of a matrix `rows` tile rows by one part of the inputs, of the KV cache 32 keys and their values,
 * of the head a few rows. Four teams of four warps take turns at pieces (one_matmul.cuh).
 *
 * The kernels of up to 2, 4 and 8 tokens have the same KV heads and units. A block keeps some groups of 128
 * columns of hidden (of 20 groups some blocks have two and some three), and no other block sees x there:
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
 * Called by: step.cu, fused.c, tests. */
#ifndef AUK_CUDA_FUSED_PLAN_H
#define AUK_CUDA_FUSED_PLAN_H

#include <stdbool.h>
#include <stddef.h>

#include "base/status.h"
#include "model/model.h"

enum {
  STEP_BLOCKS = 8, /* of a cluster */
  STEP_TEAMS = 4,
  STEP_TEAM_WARPS = 4,
  STEP_WARPS = STEP_TEAMS * STEP_TEAM_WARPS, /* that multiply; three more load, one has nothing to do */
  STEP_LOADERS = 3,
  STEP_THREADS = 32 * STEP_WARPS,
  STEP_ALL_THREADS = STEP_THREADS + 32 * (STEP_LOADERS + 1),
  STEP_GROUP = 128, /* inputs that share a scale */
  STEP_HEAD_DIM = 128,
  STEP_SPAN = 4, /* most groups a warp multiplies at once */
  STEP_MAX_PARTS = 8,
  STEP_PAIRS = 4,         /* pairs of warps that attend, a piece each */
  STEP_MAX_CLUSTERS = 16, /* 15 fit an H200 */
  STEP_PLACES = 3,        /* of sums over clusters: allreduce.cuh */
  STEP_MAX_SLOTS = 16,
  STEP_MAX_SHARED_HEADS = 8, /* query heads of a KV head: the columns of a tensor core product */
  STEP_KEYS = 32,            /* of a piece of the KV cache */
  STEP_MAX_HIDDEN = 6144,
  STEP_BARRIER_BYTES = 416, /* shared memory begins with; then block.cuh's shares, then StepShared */
  STEP_FORGET_AT = STEP_BARRIER_BYTES - 128, /* a word of each lane, after the barriers: l2_prefetch.cuh */
  STEP_LOADED_AT = STEP_BARRIER_BYTES + 8,   /* the same */
  STEP_SHARES_BYTES = 400,
  STEP_PIECE_BYTES = 16, /* of a piece in the table of them (stages.cuh), and of tasks */
  STEP_LONG = 4096,      /* positions from which attention reads more than the weights' pace */
  STEP_AHEAD = 16,       /* pieces brought nearer before they are loaded, of which so many fit L2 */
  STEP_IN_FLIGHT =
      64 << 10, /* bytes under way to a block: more than 70 KB delays what clusters hand each other */
};

/* Sizes of the kernels of several tokens. */
enum {
  STEP_KERNELS = 4, /* of up to 1, 2, 4 and 8 tokens */
  STEP_ROWS_MOST = 1 << (STEP_KERNELS - 1),
  STEP_ROWS_SPAN = 5,                      /* most groups of a piece */
  STEP_CHUNKS = 8,                         /* that a block has room for */
  STEP_CHUNK_BYTES = STEP_BLOCKS * 8 * 64, /* of one row what each block makes of 8 tile rows, in floats */
  STEP_SUM_TURNS = 4,                      /* few_residual.cuh */
  STEP_ROWS_QUERIES = 32, /* most columns of attention: query heads of a KV head, of each row */
  STEP_HEAD_ROWS = 8,     /* of a piece of the head */
  STEP_HEAD_WIDTH = 1024, /* inputs of it, at most */
  STEP_HEAD_PAD = 64,     /* bytes between them, so that they begin in other banks */
};

/* How the inputs of a block's share of a matrix are cut: into parts (of a piece each), these over the warps
 * of a team along k, and what is left of a team over the tile rows of the piece. */
typedef struct {
  int n_groups; /* of inputs */
  int parts;    /* 1 .. STEP_MAX_PARTS: part p has groups [p n_groups / parts, (p + 1) n_groups / parts) */
  int groups;   /* of the largest part */
  int k_warps;  /* 1, 2 or 4 of a team's four share a tile row */
  int span;     /* groups of a warp, at most STEP_SPAN */
  int rows;     /* of a piece: STEP_TEAM_WARPS / k_warps */
} StepCut;

typedef struct {
  int first_unit, n_units;
  int stride; /* of the sums of gate and up: floats from one warp along k to the next */
  StepCut down;
} StepShare;

/* What the plan depends on: a model's sizes, and what a chip has room for. */
typedef struct {
  int hidden, intermediate, n_layers, n_heads, n_kv_heads, vocab_size;
  int n_clusters;      /* of 8 blocks that are to run at once */
  size_t shared_bytes; /* most of one block */
  int max_slots;       /* of the ring; 0: as many as there is room for */
} StepShape;

/* Offsets in bytes of a block's shared memory. one_token.cu and few_tokens.cu draw which parts overlap; each
 * kernel has the places of its own list and those of both. */
typedef struct {
  int pieces; /* a table of a layer's pieces */
  int heads;  /* half [8 of each column][128] queries, then new keys [rows][128] and as many values */
  int total;

  /* of one token */
  int x;        /* float [hidden]: what goes into qkv, gate and up, the head; then their sums by warp along k;
                 * also what warps made of attention. several: [groups of hidden], what goes into the head, as
                 * integers, then halves */
  int exchange; /* float: what a cluster's blocks give each other: q, k, v and attention's values; the gated
                 * product. several: the head's sums */
  int sums;     /* float: sums of o and down by warp along k */
  int planes;   /* [groups][256]: what goes into a product, as integers */
  int attention; /* there too: half [8][heads of KV head][128], then float2 {maximum, sum} [8][heads] */
  int scales;    /* float2 [groups] {scale, scale * sum} */
  int small;     /* float [hidden / 32] sums of squares, float2 [64] rope, float [2][16][8] the head's sums */
  int residual;  /* float [slice]: this block's columns of the residual stream */
  int tasks;     /* another table, of what warps have of pieces (one_matmul.cuh) */

  /* of several tokens */
  int squares;      /* float [rows][groups of hidden]: sums of squares of the residual stream */
  int x_notes;      /* float2 [groups][rows] {scale, scale * sum}: of the block's columns; of the head's x */
  int in_notes;     /* float2 [groups][rows]: of `in` */
  int rope;         /* float2 [64]: of the block's own row */
  int chunks;       /* barriers of chunks */
  int parts;        /* float [STEP_CHUNKS][block][8 tile rows][16]: chunks of the block's row */
  int slice;        /* [groups of the block's columns]: what goes into qkv, gate and up, as integers */
  int warp_values;  /* half [states][queries][128]: what warps made of their keys */
  int warp_weights; /* float2 {maximum, sum} [states][queries] */
  int states;       /* half [queries of the block][8][128], then float2 {maximum, sum} [queries][8] */
  int in;           /* [groups]: what goes into o and down, as integers */
} StepShared;

typedef struct {
  StepShape shape;
  int rows; /* most tokens of a step: 1, 2, 4 or 8 */
  int heads_per_kv;
  int states;        /* that attention leaves in a block at most: of each warp; one: and of the new key */
  int head_rows;     /* of a piece of the head */
  int n_head_pieces; /* of all blocks; several: each of hidden / head_width parts */
  int n_slots;       /* of the ring */
  int piece_bytes;   /* of a whole piece of weights */
  int slot_bytes;    /* a multiple of 128 */
  int ring_at;       /* from the rest of shared memory on, after it; for one token before it, since some bytes
                      * past the ring are read, but not used */
  StepShared at;

  /* of one token */
  int slice; /* columns of hidden a block owns: hidden / 8 */
  StepCut full, o;
  StepShare shares[STEP_MAX_CLUSTERS];
  int stride_qkv, stride_slice; /* of the sums of qkv, and of o and down */

  /* of several tokens */
  int queries;    /* heads_per_kv * rows */
  int columns;    /* of eight queries each, that warps share keys by: 1, 2 or 4 */
  int members;    /* warps that share a piece of keys: a column each, all its keys or half of them */
  int most_units; /* of a cluster */
  int head_width; /* inputs of a piece of the head */
} StepPlan;

#ifdef __CUDACC__
#define STEP_BOTH __host__ __device__
#else
#define STEP_BOTH
#endif

/* The first unit of a cluster, which has those up to the next one's: no cluster has two more than another,
 * and those without a KV head, which wait while the others attend, have the larger shares. Fewer for
 * clusters with a KV head, so that all read as much, is slower (LOG.md): the others cannot begin before
 * attention has ended. */
STEP_BOTH static inline int step_first_unit(const StepShape *s, int cluster) {
  int n = s->intermediate / STEP_GROUP, c = s->n_clusters, without = c - n % c;
  return cluster * (n / c) + (cluster > without ? cluster - without : 0);
}

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

/* Cuts a share of n_groups groups of inputs, 1 .. STEP_SPAN * STEP_WARPS: into as few spans as there may be,
 * since each has a multiplication of STEP_SPAN groups for every tile row. Of such cuts one whose teams keep
 * their part, then one of long pieces of a row. */
StepCut step_cut(int n_groups);
/* Bytes of a piece of it, or of the largest where parts differ. */
int step_piece_bytes(StepCut cut);
/* Pieces of n_tile_rows tile rows. */
int step_pieces(StepCut cut, int n_tile_rows);

/* Bytes of device memory for what clusters hand each other in steps of up to so many tokens, however many
 * clusters there are; of several also for the residual stream and a count of launches. */
size_t step_memory(const StepShape *shape, int rows);

/* STATUS_MODEL with the reason where the shape cannot be cut so. rows: 1, 2, 4 or 8. */
Status step_plan(const StepShape *shape, int rows, StepPlan *plan, Error *err);

/* Whether the kernel computes such a model at all; else the reason: decoder layers with norms before
 * attention and the gated product alone, 4 bits in groups of 128, head_dim 128, an fp16 head, no caps and no
 * windows. */
Status step_serves(const Model *model, Error *err);

#endif
