/* few/kernel.cuh - one persistent kernel of clusters for a decode step of up to 2, 4 or 8 tokens, of one
 * sequence (few/tokens.cu) or of several (few/sequences.cu). step.h is its interface; one_kernel.cuh explains
 * a layer. Here x of qkv, gate and up stays in the block that owns the columns:
 *
 *   layer     a cluster with a KV head                                   a cluster without
 *   norm      residual += down of the previous layer; x of its columns   the same
 *   qkv       partial sums by its columns -> block of the token          -
 *             norm and rope of a head -> cluster
 *   attention the block's keys -> block of the query -> cluster
 *   o         partial sums of its columns -> all clusters
 *   norm      residual += o; x of its columns                            the same
 *   gate, up  partial sums by its columns -> block of the token          the same
 *             gated product of an FFN block -> cluster
 *   down      partial sums of its columns -> all clusters                the same
 *   lm_head   residual += down, x * norm -> cluster; a range of rows a block
 *
 * One more warp adds up gate and up, while the other warps still multiply.
 *
 * Areas of StepOffsets that change their use with the phase; <- is what peers send:
 *
 *              chunk_sums           slice              heads               states      in
 *   norm       -                    x of qkv           -                   -           -
 *   qkv        <- chunks            x of qkv           <- q, k, v          -           -
 *   attention  values of the warps  weights of warps   q, new k and v      <- states   -
 *   merge      -                    -                  q, new k and v      states      <- x of o
 *   o          -                    -                  -                   -           x of o
 *   norm       -                    x of gate and up   -                   -           -
 *   gate, up   <- chunks            x of gate and up   -                   -           <- x of down
 *   down       -                    -                  -                   -           x of down
 *   lm_head    <- x, over all areas before `in`                                        its sums
 *
 * Before a peer writes to an area, it waits for something that this block sends only after its last read of
 * the area (written <- received): chunks of gate and up <- x of o, made from all blocks' states; chunks of
 * qkv <- the gated product; heads <- chunks; states <- heads; x of o <- states; the gated product <- chunks.
 * The block's own barriers, before qkv and before gate and up, separate two matmuls. x of lm_head does not
 * wait so long: a peer needs only what blocks of its own rank add to down. It may send x while this block
 * still multiplies x of down.
 *
 * PRECOND all clusters of the launch run at once (step_clusters). */
#pragma once

#include "cuda/kernels/fused/few/block.cuh"
#include "cuda/kernels/fused/scaffold.cuh"

#if HAS_CLUSTERS
#include "cuda/kernels/fused/few/attention.cuh"
#include "cuda/kernels/fused/few/lm_head.cuh"
#include "cuda/kernels/fused/few/matmul.cuh"

namespace step::few {

template <class B> __device__ __forceinline__ void make_tables(B &b) {
  make_stages(b);
}

/* Describes the keys of all sequences (KeySpans). For one thread. */
template <class B> __device__ __forceinline__ void begin_keys(B &b) {
  const StepCall &c = b.args.call;
  const int heads = b.plan.heads_per_kv;
  int all = 0, positions = 0;
  uint32_t firsts = 0;
#pragma unroll 1
  for (int i = c.n_parts - 1, end = c.n_tokens; i >= 0; end = c.parts[i--].first) {
    KeySpan span;
    span.stages = key_stages(b, i, c.parts[i].pos), span.pos = c.parts[i].pos,
    span.first_row = c.parts[i].first;
    /* arrivals: 4 bits for each set of eight queries (KeySpan). `column` is the first set with queries of
     * this sequence. `others` counts the following sets that also have queries of the sequence. */
    const int column = span.first_row * heads / 8, others = (end * heads - 1) / 8 - column;
    span.arrivals = STEP_WARPGROUP_WARPS / Attendant(b.plan, 0).halves - others;
    for (int k = 1; k <= others; k++) span.arrivals |= 1u << 4 * k;
    span.arrivals <<= 4 * column;
    b.spans().of[i] = span;
    all += span.stages, positions += span.pos;
    for (int row = span.first_row; row < end; row++) firsts |= (uint32_t)span.first_row << 4 * row;
  }
  KeySpans &spans = b.spans();
  spans.all = all, spans.positions = positions, spans.firsts = firsts;
  spans.parts_reciprocal = (255 + c.n_parts) / c.n_parts;
}

template <class B> __device__ __forceinline__ void begin_barriers(B &b) {
  Barriers &barriers = b.barriers();
  begin_barrier(barriers.x, b.x_bytes());
  begin_barrier(barriers.projections, b.projection_bytes());
  begin_barrier(barriers.states, b.states_bytes());
  begin_barrier(barriers.gated, b.gated_bytes());
  begin_barrier(barriers.values, b.values_bytes());
  for (uint64_t &squares : barriers.squares) begin_barrier(squares, b.square_bytes());
  for (int i = 0; i < STEP_CHUNKS; i++) {
    begin_barrier(b.chunk_came(i), STEP_CHUNK_BYTES);
    for (int turn = 0; turn < B::kTurns; turn++) barrier_init(&b.chunk_taken(turn, i), B::kTokens);
  }
}

/* Reads the number of launches. The embedding is read in normalise(). */
template <class B> __device__ __forceinline__ void take_input(B &b) {
  if (threadIdx.x == 0) b.vars().launches = *(volatile const unsigned *)b.args.launches;
}

/* After qkv, calls attend(). matmul() has sent all outputs, and has made heads from those of qkv. */
template <class B> __device__ __forceinline__ void send_outputs(B &b, int matrix) {
  if (matrix == QKV) attend(b);
}

} // namespace step::few
#endif

namespace step::few {

template <class TheForm, bool kDebug = false> static Kernel kernel_of(int tokens) {
  switch (tokens) {
  case 2: return kernel<Block<2, kDebug, TheForm>>;
  case 4: return kernel<Block<4, kDebug, TheForm>>;
  default: return kernel<Block<8, kDebug, TheForm>>;
  }
}

template <int kHeadDim, bool kQ8, bool kSeveral> static Kernel kernel_of_heads(int group, int tokens) {
  switch (group) {
  case STEP_FP4_GROUP:
    return kernel_of<Form<STEP_FP4_GROUP, kHeadDim, kQ8, false, false, false, void, kSeveral>>(tokens);
  case 32: return kernel_of<Form<32, kHeadDim, kQ8, false, false, false, void, kSeveral>>(tokens);
  case 64: return kernel_of<Form<64, kHeadDim, kQ8, false, false, false, void, kSeveral>>(tokens);
  default: return kernel_of<Form<128, kHeadDim, kQ8, false, false, false, void, kSeveral>>(tokens);
  }
}

template <bool kSeveral> static Kernel kernel_of_shape(const StepShape &s, int tokens) {
  if (s.q8)
    return s.head_dim == 64 ? kernel_of_heads<64, true, kSeveral>(s.group, tokens)
                            : kernel_of_heads<128, true, kSeveral>(s.group, tokens);
  return s.head_dim == 64 ? kernel_of_heads<64, false, kSeveral>(s.group, tokens)
                          : kernel_of_heads<128, false, kSeveral>(s.group, tokens);
}

} // namespace step::few
