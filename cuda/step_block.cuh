/* step_block.cuh - what a thread of the decode step knows (step.cu): the launch's arguments, its place, the
 * ring, the barriers, and how it waits.
 *
 * kDebug: waits have an end and say where they were, and the clock is read (StepDebug). */
#ifndef AUK_CUDA_STEP_BLOCK_CUH
#define AUK_CUDA_STEP_BLOCK_CUH

#include "cuda/cluster.cuh"
#include "cuda/layout.cuh"
#include "cuda/step.h"

namespace step {

/* Of one layer, as the table in device memory has it: 12 pointers of matrices first, three of each. */
struct Matrix {
  const unsigned char *tiles, *scales, *zeros;
};
enum { QKV, O, GATE_UP, DOWN, MATRICES };
struct Layer {
  Matrix matrices[MATRICES];
  const float *attn_norm, *mlp_norm, *q_norm, *k_norm, *bias; /* the last three may be NULL */
};

struct Args {
  StepPlan plan;
  StepCall call;
  const Layer *layers;
  const float *final_norm;
  const unsigned char *head; /* half [vocab_size][hidden] */
  const void *embedding;
  size_t embedding_stride;
  Dtype embedding_type;
  float embedding_scale, norm_eps, scale_log2; /* of scores: attention_scale * log2(e) */
  int in_flight;                               /* pieces */
  float *partials;                             /* step_sums.cuh */
  unsigned *launches;                          /* before this one */
  unsigned n_launches;                         /* that number, in shared memory */
  StepDebug debug;
};

/* Each has one phase a layer but x, which has one before each of the products that take it. */
struct Barriers {
  uint64_t full[STEP_MAX_SLOTS], empty[STEP_MAX_SLOTS];
  uint64_t x, projections, states, gated; /* the cluster's values are there: bytes */
  uint64_t sum, taken;                    /* other clusters' sums are there; all warps have them */
};

/* A place in the ring: of piece n, slot n % n_slots, filled for the (n / n_slots)th time. */
struct RingAt {
  int slot, parity;
  __device__ __forceinline__ void move(int n, int n_slots) {
    for (slot += n; slot >= n_slots; parity ^= 1) slot -= n_slots;
  }
};

/* Tells where a thread waits, and ends the kernel. */
static __device__ __noinline__ void tell_hang(StepHang *h, int warp, int lane, int layer, int place,
                                              int pieces, int parity) {
  h->block = blockIdx.x, h->warp = warp, h->lane = lane, h->layer = layer;
  h->place = place, h->pieces = pieces, h->parity = parity;
  __threadfence_system();
  h->hung = 1;
  __threadfence_system();
  __trap();
}

template <bool kDebug> struct Block {
  unsigned char *ring; /* shared memory begins with it */
  int state_at;        /* what is behind it: step_plan.h, StepShared */
  int warp, lane;
  int layer;        /* also the number of phases that a barrier of one a layer had */
  RingAt next;      /* the first piece of the next run */
  long long waited; /* kDebug: cycles */

  /* Of this block in its cluster, and of the cluster: read anew rather than kept. */
  __device__ __forceinline__ int rank() const { return cluster_rank(); }
  __device__ __forceinline__ int cluster() const { return blockIdx.x / STEP_BLOCKS; }
  __device__ __forceinline__ bool has_kv_head() const { return cluster() < args().plan.shape.n_kv_heads; }
  /* Nothing that depends on the thread's place is worth a register from one product to the next. */
  __device__ __forceinline__ void forget_place() {
    state_at = forgotten(state_at);
    warp = forgotten(warp), lane = forgotten(lane);
  }

  /* The launch's arguments, in shared memory: what the compiler makes of constant ones it would hold in
   * registers. */
  __device__ __forceinline__ const Args &args() const {
    return *(const Args *)(ring + state_at + STEP_BARRIER_BYTES);
  }
  __device__ __forceinline__ int thread() const { return 32 * warp + lane; }
  __device__ __forceinline__ unsigned char *state() const { return ring + state_at; }
  __device__ __forceinline__ Barriers *barriers() const { return (Barriers *)state(); }
  __device__ __forceinline__ float *x() const { return (float *)(state() + args().plan.at.x); }
  __device__ __forceinline__ float *sums() const { return (float *)(state() + args().plan.at.sums); }
  __device__ __forceinline__ float *exchange() const { return (float *)(state() + args().plan.at.exchange); }
  __device__ __forceinline__ __half *heads() const { return (__half *)(state() + args().plan.at.heads); }
  __device__ __forceinline__ float *squares() const { return (float *)(state() + args().plan.at.small); }
  __device__ __forceinline__ float *residual() const { return (float *)(state() + args().plan.at.residual); }
  __device__ __forceinline__ float2 *rope() const {
    return (float2 *)(squares() + args().plan.shape.hidden / 32);
  }
  __device__ __forceinline__ float *head_sums() const { return (float *)(rope() + STEP_HEAD_DIM / 2); }

  /* Ends the kernel where `since` is longer ago than it may be. */
  __device__ __forceinline__ void look_at_clock(long long since, StepPlace place, int pieces,
                                                int parity) const {
    if (clock64() - since < args().debug.patience) return;
    tell_hang(args().debug.hang, warp, lane, layer, place, pieces, parity);
  }

  __device__ __forceinline__ void wait(uint64_t *barrier, int parity, StepPlace place, int pieces = 0) const {
    if (kDebug) {
      const long long since = clock64();
      while (!barrier_test(barrier, parity)) look_at_clock(since, place, pieces, parity);
    }
    barrier_wait_for_peers(barrier, parity); /* which orders, too */
  }

  /* All warps that multiply. */
  __device__ __forceinline__ void sync() const { sync_some<1, STEP_THREADS>(); }

  __device__ __forceinline__ void mark(StepMark what) const {
    if (kDebug && args().debug.marks && thread() == 0 && layer < args().plan.shape.n_layers)
      args().debug.marks[((size_t)blockIdx.x * args().plan.shape.n_layers + layer) * STEP_NUMBERS + what] =
          clock64();
  }
  __device__ __forceinline__ void mark_waited(StepMark what) {
    if (kDebug && args().debug.marks && thread() == 0)
      args().debug.marks[((size_t)blockIdx.x * args().plan.shape.n_layers + layer) * STEP_NUMBERS + what] =
          waited;
    waited = 0;
  }

  /* Waits for the piece at `at` to be loaded, and where that is. */
  __device__ __forceinline__ const unsigned char *take_piece(const RingAt &at) {
    long long since = kDebug ? clock64() : 0;
    wait(&barriers()->full[at.slot], at.parity, STEP_AT_PIECE, at.slot);
    if (kDebug) waited += clock64() - since;
    return ring + (size_t)at.slot * args().plan.slot_bytes;
  }
};

/* A block's share of one of a layer's matrices, as the loading warp and the others see it. */
struct Share {
  StepCut cut;
  int matrix, n_rows;      /* tile rows */
  int all_groups, group;   /* of the matrix's inputs, and the share's first */
  int tile0, pair, stride; /* tile row i of the share: tile0 + (i >> pair) * stride + (i & pair) */
};

template <bool kDebug> __device__ __forceinline__ Share share_of(const Block<kDebug> &b, int matrix) {
  const StepPlan &p = b.args().plan;
  const StepShare &mine = p.shares[b.cluster()];
  const int slice_rows = p.slice / 16, group_of_head = b.cluster() * p.heads_per_kv;
  switch (matrix) {
  case QKV: /* of each head of the cluster one: see tile_row() */
    return {p.full, QKV, p.heads_per_kv + 2, p.shape.hidden / STEP_GROUP, 0, b.rank(), 0, 8};
  case GATE_UP: /* of each unit of 16 two */
    return {p.full,
            GATE_UP,
            2 * mine.n_units,
            p.shape.hidden / STEP_GROUP,
            0,
            16 * mine.first_unit + 2 * b.rank(),
            1,
            16};
  case O: return {p.o, O, slice_rows, p.shape.n_heads, group_of_head, b.rank() * slice_rows, 0, 1};
  default:
    return {mine.down,
            DOWN,
            slice_rows,
            p.shape.intermediate / STEP_GROUP,
            mine.first_unit,
            b.rank() * slice_rows,
            0,
            1};
  }
}

/* The head of q, k and v stacked that is the cluster's i-th: its queries, then its key and its value. */
template <bool kDebug> __device__ __forceinline__ int head_of(const Block<kDebug> &b, int i) {
  const StepPlan &p = b.args().plan;
  return i < p.heads_per_kv ? b.cluster() * p.heads_per_kv + i
                            : p.shape.n_heads + (i - p.heads_per_kv) * p.shape.n_kv_heads + b.cluster();
}

template <bool kDebug>
__device__ __forceinline__ int tile_row(const Block<kDebug> &b, const Share &share, int i) {
  if (share.matrix == QKV) i = head_of(b, i);
  return share.tile0 + (i >> share.pair) * share.stride + (i & share.pair);
}

/* Whether the zeros of a tile row from group g0 of the share on begin at an odd multiple of 8 bytes: the same
 * for all, as matrices have an even number of groups. */
__device__ __forceinline__ bool zeros_are_odd(const Share &share, int g0) {
  return (share.group + g0) % 2 != 0;
}

__device__ __forceinline__ int n_pieces(const StepCut &cut, int n_rows) {
  return (n_rows + cut.rows - 1) / cut.rows * cut.parts;
}

__device__ __forceinline__ int first_group(const StepCut &cut, int part) {
  return part * cut.n_groups / cut.parts;
}

/* Within a piece of n groups: tiles [rows][n][1024], scales [rows][n][32], zeros [rows][these bytes], of
 * which the first 8 are none of them where the first in memory is not at a multiple of 16. */
__device__ __forceinline__ int zeros_stride(int n_groups) {
  return (n_groups * 8 + 16) & ~15;
}

} // namespace step

#endif
