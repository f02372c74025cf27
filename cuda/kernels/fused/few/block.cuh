/* few/block.cuh - per-thread context of a fused step of several tokens (few/kernel.cuh), and the layout of
 * activations in shared memory. block.cuh has what it shares with a step of one token. */
#pragma once

#include "cuda/kernels/fused/stages.cuh"

namespace step::few {

/* Layout of a group of x: [64 inputs][token][plane][lane t][four words (word_at())]; with eight tokens plane
 * comes before token. With four or eight tokens the operands b of two mma m16n8k32 are then 512 contiguous
 * bytes. FP4: few/fp4.cuh. */
template <int N, int kParts> struct Layout {
  static_assert(N == 2 || N == 4 || N == 8, "tokens, or planes of tokens, are columns of an mma");
  static constexpr int kTokens = N;
  static constexpr int kHalf = N * 128, kGroup = 2 * kHalf; /* bytes of 64 and of 128 inputs */
  static constexpr int kPlane = N == 8 ? 512 : 64;          /* bytes from one plane to the other */
  static __device__ __forceinline__ int token_at(int token) {
    return token * (N == 8 || kIsFp4<kParts> ? 64 : 128);
  }
  /* The offset of a lane's four values of token 0: k, k + 8, k + 1, k + 9, k = 16 (lane / 4) + 2 (lane %
   * 4). */
  static __device__ __forceinline__ int word_at(int lane) {
    if (!kIsFp4<kParts>) return step::word_at<kParts>(lane, kHalf);
    constexpr int kSetParts = STEP_FP4_PARTS / N;
    const int part = lane >> 2, set = part / kSetParts;
    return (set >> 1) * 512 + part % kSetParts * (N * 64) + (lane & 3) * 16 + (set & 1) * 8;
  }
};

/* A sequence's keys in a block. `arrivals` has 4 bits for each set of eight queries: how often each of the
 * set's warps (one, or two with half of the keys each) arrives at the `empty` barrier of a stage after
 * attending to it. Sets without queries of the sequence have 0; the first set with such queries arrives in
 * their place. */
struct alignas(16) KeySpan {
  int stages;         /* the block's stages of the sequence's keys */
  int pos, first_row; /* pos and first of the StepPart */
  uint32_t arrivals;
};
/* The keys of all sequences of the step. `all` counts the block's stages, `positions` the cached positions of
 * all sequences; parts_reciprocal is 256 / n_parts, rounded up. `firsts` has 4 bits for each row: the first
 * row of its sequence. */
struct KeySpans {
  int all, positions, parts_reciprocal;
  uint32_t firsts;
  KeySpan of[STEP_MAX_TOKENS];
};
static_assert(sizeof(KeySpans) <= STEP_SPANS_BYTES, "the plan has room for them");

template <int N, bool kDebug, class TheForm>
struct Block : Thread<kDebug, TheForm>, Layout<N, TheForm::kParts> {
  using Base = Thread<kDebug, TheForm>;
  using Base::plan, Base::smem, Base::heads, Base::share, Base::rank;

  /* The number of blocks that share a token, and take its heads and FFN blocks in turn. */
  static constexpr int kTurns = STEP_BLOCKS / N;
  /* kScalesBytes: bytes of {scale, scale * sum} of a group's parts; kGroupBytes: bytes of a token's group,
   * planes and scales together; kStateBytes: bytes of a pack's states of attention. */
  static constexpr int kScalesBytes = 8 * kXScales<TheForm::kParts>,
                       kGroupBytes = 2 * STEP_GROUP + kScalesBytes,
                       kStateBytes = STEP_PACK * 2 + 8 * Base::kPackHeads;

  static __device__ __forceinline__ unsigned char *base(unsigned char *shared, int) { return shared; }

  /* Opaque to the compiler, so that it keeps nothing derived from these numbers from phase to phase. */
  __device__ __forceinline__ int thread() const { return opaque(threadIdx.x); }
  __device__ __forceinline__ int warp() const { return thread() >> 5; }
  __device__ __forceinline__ int lane() const { return thread() & 31; }

  /* The token whose partial sums this block adds up, and the block's turn among the token's blocks. */
  __device__ __forceinline__ int own_token() const { return rank() % N; }
  __device__ __forceinline__ int own_turn() const { return rank() / N; }
  __device__ __forceinline__ int rope_token() const { return min(own_token(), this->args.call.n_tokens - 1); }

  __device__ __forceinline__ __half *new_keys() const { return heads() + plan.columns * 8 * Base::kDim; }
  __device__ __forceinline__ __half *new_values() const { return new_keys() + N * Base::kDim; }
  __device__ __forceinline__ float2 *rope() const { return (float2 *)(smem + plan.off.rope); }
  /* The keys of the step's sequences. PRECOND kSeveral */
  __device__ __forceinline__ KeySpans &spans() const { return *(KeySpans *)(smem + plan.off.spans); }
  /* The first row of the sequence to which `row` belongs; 0 for rows past the step's last one. PRECOND row <
   * kTokens */
  __device__ __forceinline__ int first_row_of(int row) const {
    return Base::kSeveral ? spans().firsts >> 4 * row & 15 : 0;
  }
  /* The sum of squares of a token's group. */
  __device__ __forceinline__ float *square_of(int token, int group) const {
    return (float *)(smem + plan.off.squares) + token * (plan.shape.hidden / STEP_GROUP) + group;
  }

  /* chunk_came(): the barrier that counts chunk n's bytes. chunk_taken(): the barrier at which the blocks of
   * `turn` arrive when they have added up chunk n. */
  __device__ __forceinline__ uint64_t &chunk_came(int n) const {
    return ((uint64_t *)(smem + plan.off.chunks))[n & (STEP_CHUNKS - 1)];
  }
  __device__ __forceinline__ uint64_t &chunk_taken(int turn, int n) const {
    return ((uint64_t *)(smem + plan.off.chunks))[(1 + turn) * STEP_CHUNKS + (n & (STEP_CHUNKS - 1))];
  }

  /* first_columns(): the first group of this block's columns of hidden; end_columns(): the first group of the
   * next block's columns. */
  __device__ __forceinline__ int first_columns() const {
    return step_first_column_group(&plan.shape, rank());
  }
  __device__ __forceinline__ int end_columns() const {
    return step_first_column_group(&plan.shape, rank() + 1);
  }
  /* The number of packs of queries that this block merges: packs rank, rank + 8, ... of all tokens. */
  __device__ __forceinline__ int own_packs() const {
    return (plan.o_packs * N - rank() + STEP_BLOCKS - 1) / STEP_BLOCKS;
  }

  /* Bytes that a phase of each barrier counts. */
  __device__ __forceinline__ int square_bytes() const { return plan.shape.hidden / STEP_GROUP * 4; }
  __device__ __forceinline__ int x_bytes() const {
    return plan.shape.hidden / STEP_GROUP * N * (kGroupBytes + 4); /* x, its scales, and the sum of squares */
  }
  __device__ __forceinline__ int projection_bytes() const { return plan.qkv_packs * N * STEP_PACK * 2; }
  __device__ __forceinline__ int states_bytes() const { return own_packs() * STEP_BLOCKS * kStateBytes; }
  __device__ __forceinline__ int values_bytes() const { return plan.o_packs * N * kGroupBytes; }
  __device__ __forceinline__ int gated_bytes() const { return share(DOWN).n_groups * N * kGroupBytes; }
};

/* The number of warpgroups that have tile rows in the wave from row0 on (plan.h). */
__device__ __forceinline__ int warpgroups_of(const Share &share, int row0) {
  return min((int)STEP_WARPGROUPS, (share.n_rows - row0 + STEP_WARPGROUP_WARPS - 1) / STEP_WARPGROUP_WARPS);
}

/* Makes share(matrix). Called by one thread for each matrix, before a barrier of the block. A block
 * multiplies all its cluster's tile rows of qkv, gate and up by x in the block's own columns of hidden. */
template <class B> __device__ __forceinline__ void make_share(const B &b, int matrix) {
  const StepPlan &p = b.plan;
  constexpr int kTiles = B::kDim / 16; /* tile rows of a head */
  const int packs = p.o_packs, cluster = b.cluster(), first_group = b.first_columns(),
            n_groups = b.end_columns() - first_group;
  Share s = {};
  s.group = first_group, s.n_groups = n_groups, s.all_groups = p.shape.hidden / STEP_GROUP;
  s.log_run = 3, s.stride[0] = 8;
  if (matrix == QKV) {
    s.log_run = log_2(kTiles), s.stride[0] = kTiles;
    s.n_rows = 8 * p.qkv_packs, s.split = 8 * packs, s.tile[0] = 8 * cluster * packs;
    s.tile[1] = kTiles * (p.shape.n_heads + cluster), s.stride[1] = kTiles * p.shape.n_kv_heads;
  } else if (matrix == GATE_UP) {
    s.tile[0] = 16 * step_first_block(&p.shape, STEP_GROUP, cluster);
    s.n_rows = s.split = 16 * step_first_block(&p.shape, STEP_GROUP, cluster + 1) - s.tile[0];
  } else {
    s.log_run = 0;
    set_outputs(s, matrix, p, cluster, first_group * (STEP_GROUP / 16), n_groups * (STEP_GROUP / 16));
  }
  s.log_rows = log_2(STEP_WARPGROUP_WARPS);
  s.splits = step_few_stages(s.n_groups), s.groups = s.span = step_few_span(s.n_groups);
  s.stages = s.splits * ((s.n_rows + STEP_WARPGROUP_WARPS - 1) / STEP_WARPGROUP_WARPS);
  s.run = run_of(s.stages, p.n_slots);
  b.share(matrix) = s;
}

template <class B> __device__ __forceinline__ StageTiles stage_of(const B &, const Share &share, int i) {
  const int wave = i / (STEP_WARPGROUPS * share.splits), row0 = wave * STEP_WARPS;
  const int warpgroups = warpgroups_of(share, row0);
  i -= wave * STEP_WARPGROUPS * share.splits;
  const int split = i / warpgroups, row = row0 + (i - split * warpgroups) * STEP_WARPGROUP_WARPS;
  return {row, min((int)STEP_WARPGROUP_WARPS, share.n_rows - row), split * share.span,
          min(share.span, share.n_groups - split * share.span)};
}

} // namespace step::few
