/* few_block.cuh - per-thread context of a fused step of several tokens (few_tokens.cu), and the layout
 * of activations in shared memory. block.cuh has what both kernels share. */
#ifndef AUK_CUDA_FUSED_FEW_BLOCK_CUH
#define AUK_CUDA_FUSED_FEW_BLOCK_CUH

#include "cuda/fused/block.cuh"

namespace step {
namespace rows {

/* full and empty as in step::Barriers. The others count bytes from the cluster's blocks in one phase a
 * layer; x is lm_head's and has a single phase. */
struct Barriers {
  uint64_t full[STEP_MAX_SLOTS], empty[STEP_MAX_SLOTS];
  uint64_t squares[2], projections, states, values, gated, x; /* squares: of x of qkv; of gate and up */
};

/* A block's share of one of a layer's matrices, as step::Share. */
struct Share {
  int n_rows, n_groups; /* tile rows; groups of inputs */
  int pieces;
  int all_groups, group; /* groups of the matrix's inputs, and the share's first */
  int log_run, split;    /* tile_row() */
  int tile[2], stride[2];
  int parts, span; /* splits of the inputs, and groups of each but the last */
  int log_rows;    /* tile rows of a stage */
  RingRun run;
};

/* Layout of a group: [64 inputs][token][plane][lane t][words 0, 2, 1, 3 of layout.cuh]; with eight
 * tokens plane comes before token. So operand b of an mma m16n8k32 for four or eight tokens is 512
 * contiguous bytes. */
template <int kR> struct Planes {
  static_assert(kR == 2 || kR == 4 || kR == 8, "rows, or planes of rows, are columns of products");
  static constexpr int kHalf = kR * 128, kGroup = 2 * kHalf; /* bytes of 64 and of 128 inputs */
  static constexpr int kPlane = kR == 8 ? 512 : 64;          /* from one plane to the other */
  static __device__ __forceinline__ int row_at(int row) { return row * (kR == 8 ? 64 : 128); }
};

template <int kR, bool kDebug> struct Block : Thread<Share, Barriers, kDebug> {
  using Base = Thread<Share, Barriers, kDebug>;
  using Base::args, Base::state, Base::heads;

  /* Opaque to the compiler, so that nothing derived from them is kept from phase to phase. */
  __device__ __forceinline__ int thread() const { return forgotten(threadIdx.x); }
  __device__ __forceinline__ int warp() const { return thread() >> 5; }
  __device__ __forceinline__ int lane() const { return thread() & 31; }

  __device__ __forceinline__ const StepShared &places() const { return args().plan.at; }
  __device__ __forceinline__ __half *new_keys() const {
    return heads() + args().plan.columns * 8 * STEP_HEAD_DIM;
  }
  __device__ __forceinline__ __half *new_values() const { return new_keys() + kR * STEP_HEAD_DIM; }
  __device__ __forceinline__ float2 *rope() const { return (float2 *)(state + places().rope); }
  /* How many launches precede this one. */
  __device__ __forceinline__ unsigned &launches() const { return *(unsigned *)(state + STEP_BARRIER_BYTES); }

  /* Waits for the n-th phase, from 0, and announces the bytes of the next. For warps that include the
   * first one. */
  __device__ __forceinline__ void wait_again(uint64_t *barrier, int n, int bytes, StepPlace place) const {
    this->wait(barrier, n & 1, place);
    if (threadIdx.x == 0) barrier_expect(barrier, bytes);
  }
};

/* The first group of columns of hidden of the block of this rank; the next rank's first follows its
 * last. */
__device__ __forceinline__ int first_columns(const StepShape &s, int rank) {
  return step_first_column_group(&s, rank);
}

/* Bytes of a barrier's phase: planes and {scale, scale * sum} of a token's group, or a state. */
constexpr int kGroupRowBytes = 2 * STEP_GROUP + 8, kStateBytes = STEP_HEAD_DIM * 2 + 8;

template <int kR, bool kDebug> __device__ __forceinline__ int x_bytes(const Block<kR, kDebug> &b) {
  return b.args().plan.shape.hidden / STEP_GROUP * kR * (kGroupRowBytes + 4); /* and the sum of squares */
}
template <int kR, bool kDebug> __device__ __forceinline__ int projection_bytes(const Block<kR, kDebug> &b) {
  return (b.args().plan.heads_per_kv + 2) * kR * STEP_HEAD_DIM * 2;
}
/* The number of queries that this block merges: queries rank, rank + 8, ... */
template <int kR, bool kDebug> __device__ __forceinline__ int own_queries(const Block<kR, kDebug> &b) {
  return (b.args().plan.queries - b.rank() + STEP_BLOCKS - 1) / STEP_BLOCKS;
}
template <int kR, bool kDebug> __device__ __forceinline__ int states_bytes(const Block<kR, kDebug> &b) {
  return own_queries(b) * STEP_BLOCKS * kStateBytes;
}
template <int kR, bool kDebug> __device__ __forceinline__ int values_bytes(const Block<kR, kDebug> &b) {
  return b.args().plan.queries * kGroupRowBytes;
}
template <int kR, bool kDebug> __device__ __forceinline__ int gated_bytes(const Block<kR, kDebug> &b) {
  return b.share(DOWN).n_groups * kR * kGroupRowBytes;
}

/* The number of warpgroups that have tile rows in the wave from row0 on (plan.h). */
__device__ __forceinline__ int teams_of(const Share &share, int row0) {
  return min((int)STEP_TEAMS, (share.n_rows - row0 + STEP_TEAM_WARPS - 1) / STEP_TEAM_WARPS);
}

__device__ __forceinline__ void cut_share(Share &s, const StepPlan &p) {
  const int parts = step_rows_parts(s.n_groups), blocks = (s.n_rows + STEP_TEAM_WARPS - 1) / STEP_TEAM_WARPS;
  s.log_rows = log_2(STEP_TEAM_WARPS);
  s.parts = parts, s.span = step_rows_span(s.n_groups);
  s.pieces = parts * blocks;
  s.run = run_of(s.pieces, p.n_slots);
}

/* A share of all tile rows of the cluster, by the block's own columns of hidden. */
__device__ __forceinline__ void slice_share(Share &s, int matrix, const StepShape &shape, int first_unit,
                                            int n_units, int cluster, int rank) {
  const int heads = shape.n_heads / shape.n_kv_heads;
  s.group = first_columns(shape, rank), s.n_groups = first_columns(shape, rank + 1) - s.group;
  s.log_run = 3, s.stride[0] = 8;
  if (matrix == QKV) {
    s.n_rows = 8 * (heads + 2), s.split = 8 * heads, s.tile[0] = 8 * cluster * heads;
    s.tile[1] = 8 * (shape.n_heads + cluster), s.stride[1] = 8 * shape.n_kv_heads;
  } else {
    s.n_rows = s.split = 16 * n_units, s.tile[0] = 16 * first_unit;
  }
}

/* Called by one thread for each matrix, before a barrier of the block. */
template <int kR, bool kDebug>
__device__ __forceinline__ void make_share(const Block<kR, kDebug> &b, int matrix) {
  const StepPlan &p = b.args().plan;
  const int first = step_first_unit(&p.shape, b.cluster()),
            n_units = step_first_unit(&p.shape, b.cluster() + 1) - first;
  Share s = {};
  const int row = first_columns(p.shape, b.rank()) * (STEP_GROUP / 16),
            end = first_columns(p.shape, b.rank() + 1) * (STEP_GROUP / 16);
  place_share(s, matrix, p.shape, first, n_units, b.cluster(), b.rank(), row, end - row);
  if (matrix == QKV || matrix == GATE_UP)
    slice_share(s, matrix, p.shape, first, n_units, b.cluster(), b.rank());
  cut_share(s, p);
  b.share(matrix) = s;
}

} // namespace rows
} // namespace step

#endif
