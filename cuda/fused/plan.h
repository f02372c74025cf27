/* plan.h - who does what in a decode step of one row as one kernel (step.h): host only, no GPU needed.
 *
 * The GPU is C clusters of 8 blocks, a block an SM. What a layer's matrices are cut into:
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
 * Called by: one_token.cu, backend.c, tests. */
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
  STEP_FORGET_AT = STEP_BARRIER_BYTES - 128, /* a word of each lane, behind the barriers: l2_prefetch.cuh */
  STEP_LOADED_AT = STEP_BARRIER_BYTES + 8,   /* the same */
  STEP_SHARES_BYTES = 400,
  STEP_PIECE_BYTES = 16, /* of a piece in the table of them (stages.cuh), and of tasks */
  STEP_LONG = 4096,      /* positions from which attention reads more than the weights' pace */
  STEP_AHEAD = 16,       /* pieces brought nearer before they are loaded, of which so many fit L2 */
  STEP_IN_FLIGHT =
      64 << 10, /* bytes under way to a block: more than 70 KB delays what clusters hand each other */
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

/* Offsets in bytes of a block's shared memory. What shares memory is drawn in one_token.cu. */
typedef struct {
  int x; /* float [hidden]: what goes into qkv, gate and up, the head; then their sums by warp along k; also
               what warps made of attention */
  int sums;      /* float: sums of o and down by warp along k */
  int planes;    /* [groups][256]: what goes into a product, as integers */
  int attention; /* there too: half [8][heads of KV head][128], then float2 {maximum, sum} [8][heads] */
  int scales;    /* float2 [groups] {scale, scale * sum} */
  int exchange;  /* float: what a cluster's blocks give each other: q, k, v and attention's values; gated */
  int heads;     /* half [8][128] queries, [2][128] the new key and value */
  int small;     /* float [hidden / 32] sums of squares, float2 [64] rope, float [2][16][8] the head's sums */
  int residual;  /* float [slice]: this block's columns of the residual stream */
  int pieces;    /* a table of a layer's pieces */
  int tasks;     /* another one, of what warps have of them (one_matmul.cuh) */
  int total;
} StepShared;

typedef struct {
  StepShape shape;
  int heads_per_kv;
  int slice; /* columns of hidden a block owns: hidden / 8 */
  StepCut full, o;
  StepShare shares[STEP_MAX_CLUSTERS];
  int head_rows;     /* of a piece */
  int n_head_pieces; /* of all blocks */
  int n_slots;       /* of the ring */
  int slot_bytes;    /* a multiple of 128 */
  int ring_at;       /* from the rest of shared memory on: before it, since some bytes behind it are
                                   read, but not used */
  int stride_qkv, stride_slice; /* of the sums of qkv, and of o and down */
  int states; /* that attention leaves in a block at most: one of each warp, one of the new key */
  StepShared at;
} StepPlan;

/* The first unit of a cluster, which has those up to the next one's: no cluster has two more than another,
 * and those without a KV head, which wait while the others attend, have the larger shares. Fewer for
 * clusters with a KV head, so that all read as much, is slower (STEP.md): the others cannot begin before
 * attention has ended. */
#ifdef __CUDACC__
__host__ __device__
#endif
    static inline int
    step_first_unit(const StepShape *s, int cluster) {
  int n = s->intermediate / STEP_GROUP, c = s->n_clusters, without = c - n % c;
  return cluster * (n / c) + (cluster > without ? cluster - without : 0);
}

/* Words of sums over all clusters, and of what each keeps of them: allreduce.cuh. */
static inline size_t step_totals(const StepShape *s, int rows, int n_clusters) {
  return (size_t)(1 + n_clusters) * STEP_PLACES * (size_t)rows * (size_t)s->hidden;
}

/* Cuts a share of n_groups groups of inputs, 1 .. STEP_SPAN * STEP_WARPS: into as few spans as there may be,
 * since each has a multiplication of STEP_SPAN groups for every tile row. Of such cuts one whose teams keep
 * their part, then one of long pieces of a row. */
StepCut step_cut(int n_groups);
/* Bytes of a piece of it, or of the largest where parts differ. */
int step_piece_bytes(StepCut cut);
/* Pieces of n_tile_rows tile rows. */
int step_pieces(StepCut cut, int n_tile_rows);

/* STATUS_MODEL with the reason where the shape cannot be cut so. */
Status step_plan(const StepShape *shape, StepPlan *plan, Error *err);

/* Whether the kernel computes such a model at all; else the reason: decoder layers with norms before
 * attention and the gated product alone, 4 bits in groups of 128, head_dim 128, an fp16 head, no caps and no
 * windows. */
Status step_serves(const Model *model, Error *err);

#endif
