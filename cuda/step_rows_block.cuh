/* step_rows_block.cuh - what a thread of the decode step of several rows knows (step_rows.cu), and how
 * activations lie in shared memory: as step_block.cuh for one row. */
#ifndef AUK_CUDA_STEP_ROWS_BLOCK_CUH
#define AUK_CUDA_STEP_ROWS_BLOCK_CUH

#include "cuda/step_block.cuh"
#include "cuda/step_rows.h"

namespace step {
namespace rows {

struct Args : Common {
  StepRowsPlan plan;
  StepRowsCall call;
  float *residual; /* [n_clusters][rows][hidden] */
};

/* Of the ring as in step::Barriers; of the others, each of one phase a layer but x: the cluster's values are
 * there. */
struct Barriers {
  uint64_t full[STEP_MAX_SLOTS], empty[STEP_MAX_SLOTS];
  uint64_t x, projections, states, values, gated;
};

/* A block's share of one of a layer's matrices (step::Share). */
struct Share {
  int n_rows, n_groups;  /* tile rows; groups of inputs */
  int pieces;            /* of the share */
  int all_groups, group; /* of the matrix's inputs, and the share's first */
  int pair, split;       /* tile_row() */
  int tile[2], stride[2];
  RingRun wave, last; /* of four teams' tile rows; of those of the last wave */
};

/* Planes of a group: [64 inputs][row][plane][lane t][words 0, 2, 1, 3 of layout.cuh]. What is operand b of
 * mma m16n8k32 for four rows is 512 bytes in a run. */
template <int kR> struct Planes {
  static_assert(kR == 1 || kR == 2 || kR == 4, "two planes of a row are columns of products");
  static constexpr int kHalf = kR * 128, kGroup = 2 * kHalf; /* bytes of 64 and of 128 inputs */
  static __device__ __forceinline__ int row_at(int row) { return row * 128; }
};

template <int kR, bool kDebug> struct Block : Thread<Args, Share, Barriers, kDebug> {
  using Base = Thread<Args, Share, Barriers, kDebug>;
  using Base::args, Base::state, Base::heads;

  __device__ __forceinline__ const StepRowsShared &places() const { return args().plan.at; }
  __device__ __forceinline__ __half *new_keys() const {
    return heads() + args().plan.columns * 8 * STEP_HEAD_DIM;
  }
  __device__ __forceinline__ __half *new_values() const { return new_keys() + kR * STEP_HEAD_DIM; }
  __device__ __forceinline__ float2 *rope(int row) const {
    return (float2 *)(state + places().rope) + row * (STEP_HEAD_DIM / 2);
  }

  /* Waits for the n-th time (from 0), and announces the next one's bytes. For warps of which the first one is
   * among them. */
  __device__ __forceinline__ void wait_again(uint64_t *barrier, int n, int bytes, StepPlace place) const {
    this->wait(barrier, n & 1, place);
    if (threadIdx.x == 0) barrier_expect(barrier, bytes);
  }
};

/* Of hidden, of the block of this rank: those up to the next one's. */
__device__ __forceinline__ int first_columns(const StepShape &s, int rank) {
  return step_first_column_group(&s, rank);
}

/* Bytes that come for each phase of a barrier: planes and notes of a group and row, or floats. */
constexpr int kGroupRowBytes = 2 * STEP_GROUP + 16, kStateBytes = STEP_HEAD_DIM * 2 + 8;

template <int kR, bool kDebug> __device__ __forceinline__ int x_bytes(const Block<kR, kDebug> &b) {
  return b.args().plan.shape.hidden / STEP_GROUP * kR * kGroupRowBytes;
}
template <int kR, bool kDebug> __device__ __forceinline__ int projection_bytes(const Block<kR, kDebug> &b) {
  return (b.args().plan.heads_per_kv + 2) * kR * STEP_HEAD_DIM * 4;
}
/* Queries whose states a block adds up: rank, rank + 8, ... */
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
  return b.share(DOWN).n_groups * kR * STEP_GROUP * 4;
}

/* For one thread of each matrix, before anybody looks. */
template <int kR, bool kDebug>
__device__ __forceinline__ void make_share(const Block<kR, kDebug> &b, int matrix) {
  const StepRowsPlan &p = b.args().plan;
  const int first = step_first_unit(&p.shape, b.cluster()),
            n_units = step_first_unit(&p.shape, b.cluster() + 1) - first;
  Share s = {};
  const int row = first_columns(p.shape, b.rank()) * (STEP_GROUP / 16),
            end = first_columns(p.shape, b.rank() + 1) * (STEP_GROUP / 16);
  place_share(s, matrix, p.shape, first, n_units, b.cluster(), b.rank(), row, end - row);
  const int parts = (s.n_groups + p.span - 1) / p.span, row_blocks = (s.n_rows + 3) / 4;
  s.pieces = parts * row_blocks;
  s.wave = run_of(STEP_TEAMS * parts, p.n_slots);
  s.last = run_of(((row_blocks - 1) % STEP_TEAMS + 1) * parts, p.n_slots);
  b.share(matrix) = s;
}

} // namespace rows
} // namespace step

#endif
