/* one_kernel.cuh - a decode step of one token as one persistent kernel of clusters. step.h is its interface.
 * Its cycles, and what led to this form: LOG.md, "Why one kernel".
 *
 *   layer     a cluster with a KV head                          a cluster without one
 *   norm      residual += down of the previous layer            the same
 *             x * norm -> cluster                               -
 *   qkv       a tile row of each pack (plan.h) -> cluster
 *   attention the block's keys -> cluster
 *   o         partial sums of all columns -> all clusters
 *   (experts) parts of the router's logits -> all clusters      only those of the residual stream
 *   (experts) keys of logits -> cluster; the choice             the same
 *   norm      residual += o; x * norm -> cluster                the same
 *   gate, up  features of the FFN blocks -> cluster             the same
 *   down      partial sums of all columns -> all clusters       the same
 *   lm_head   residual += down, x * norm -> cluster; some stages of rows a block
 *
 * "-> cluster" is st.async into the shared memory of all eight blocks, counted by a barrier there; "-> all
 * clusters" is allreduce.cuh. Warps 0 .. 15 multiply, three load (weight_ring.cuh), and the last one does
 * what run_last_warp() says.
 *
 * Shared memory is the ring, then Vars and the areas of StepOffsets. Three areas change their use with the
 * phase; <- is what peers send:
 *
 *              x                      planes                      exchange
 *   norm       <- x of qkv            -                           -
 *   qkv        x, then its sums       x as planes (plan.h)        <- q, k, v
 *   attention  states of the warps    <- states of the blocks     q, k, v
 *   o          -                      states                      attention's output (experts: floats, too)
 *   norm       <- x of gate and up    -                           -
 *   gate, up   x, then their sums     x as planes                 <- the gated product
 *   down       -                      gated product as planes     the gated product
 *   lm_head    <- x                   -                           best logits, or ScreenScratch
 *
 * Where blocks own whole groups (step_owns_groups()), x comes quantised, and the sums of its matmuls lie
 * after it. Then planes holds no other x than that of down (latent attention: and of q_b), and is scratch of
 * the warps while they send x. In a hybrid the sums lie after x, too. A peer writes to an area only after it
 * has received what this block sends after its last read of the area. So an arriving x overwrites only what
 * was read before this block's last contribution to that x.
 *
 * PRECOND all clusters of the launch run at once (step_clusters). */
#pragma once

#include "cuda/kernels/fused/one_block.cuh"
#include "cuda/kernels/fused/scaffold.cuh"

#if HAS_CLUSTERS
#include "cuda/kernels/fused/experts/one_experts.cuh"
#include "cuda/kernels/fused/hybrid/delta.cuh"
#include "cuda/kernels/fused/l2_prefetch.cuh"
#include "cuda/kernels/fused/latent/one_latent.cuh"
#include "cuda/kernels/fused/one_attention.cuh"
#include "cuda/kernels/fused/one_matmul.cuh"
#include "cuda/kernels/fused/one_residual.cuh"
#include "cuda/kernels/fused/screen/one_screen.cuh"

namespace step::one {

template <class B> __device__ __forceinline__ void make_tables(B &b) {
  make_stages(b);
  make_tasks(b);
  if (B::kExperts && threadIdx.x < b.plan.shape.n_chosen)
    b.ids()[threadIdx.x] = (int)threadIdx.x < b.n_routed() ? (int)threadIdx.x : b.plan.shape.n_experts;
}

/* The step's token, in all threads that multiply: ids[0], or with a pick the best token of the step before.
 * One warp of each block finds it among the best tokens of that step's blocks. */
template <class B> __device__ __forceinline__ int take_token(B &b) {
  const StepPick &pick = b.args.call.pick;
  if (!pick.token) return b.args.call.ids[0];
  if (b.warp() == 0) {
    const Sampled best = best_of_blocks(b.args.peers, b.args.best_at, b.args.turn - 1,
                                        b.plan.shape.n_clusters * STEP_BLOCKS, b.lane());
    if (b.lane() == 0) b.vars().id = best.id;
    if (b.thread() == 0 && blockIdx.x == 0) store_pick(pick, best);
  }
  b.sync();
  return b.vars().id;
}

/* Begins the residual stream with the embedding. */
template <class B> __device__ __forceinline__ void take_input(B &b) {
  const int id = take_token(b);
  for (int i = threadIdx.x; i < b.plan.slice; i += STEP_THREADS) {
    const int column = b.rank() * b.plan.slice + i;
    b.residual()[i] = B::kVaried && column >= b.width() ? 0 : embedded(b.args, id, column);
  }
}

template <class B> __device__ __forceinline__ void begin_barriers(B &b) {
  begin_barrier(b.barriers().x, b.x_bytes(false)); /* false: x of the first layer, not of lm_head */
  if constexpr (B::kHybrid) {
    begin_barrier(b.barriers().projections, b.projection_bytes_from(0));
    begin_barrier(b.barriers().states, b.states_bytes_from(0));
    barrier_init(&b.mix_vars().x_has_come, 1);
  } else {
    begin_barrier(b.barriers().projections, b.projection_bytes());
    begin_barrier(b.barriers().states, b.states_bytes());
  }
  if constexpr (B::kLatent) {
    begin_barrier(b.barriers().squares[0], b.queries_bytes());
    begin_barrier(b.barriers().squares[1], b.latent_keys_bytes());
    begin_barrier(b.barriers().values, b.latent_values_bytes());
  }
  begin_barrier(b.barriers().gated, b.gated_bytes());
  if (B::kExperts) {
    barrier_init(&b.barriers().columns, STEP_WARPS);
    begin_barrier(b.barriers().logits, b.logits_bytes());
    barrier_init(&b.barriers().routed, STEP_BLOCKS + 1); /* the warps that choose, and the last warp */
  }
}

/* The last warp's work. Hybrids: the products for the delta rule's gates. Experts: route(). Other models:
 * prefetch_stages(). */
template <class B> __device__ __forceinline__ void run_last_warp(B &b) {
  if constexpr (!B::kHybrid && !B::kExperts) {
    prefetch_stages(b);
  } else {
    int n_delta = 0;
#pragma unroll 1
    for (; b.layer() < b.plan.shape.n_layers; b.go_to(MATRICES)) {
      if constexpr (B::kHybrid)
        if (b.is_delta()) send_gate_row(b, n_delta++);
      if constexpr (B::kExperts) route(b);
    }
  }
}

/* Waits for x of a matmul, and quantises it if its owners have not. */
template <class B> __device__ __forceinline__ void take_x(B &b, int matrix) {
  if (matrix == O) {
    if constexpr (B::kHybrid)
      take_outputs(b);
    else if constexpr (B::kLatent)
      take_values(b);
    else
      take_states(b);
    return;
  }
  if constexpr (B::kLatent)
    if (matrix == Q_B) return take_latents(b);
  if (matrix == DOWN) {
    b.wait_again(b.barriers().gated, b.layer(), b.gated_bytes_after(), STEP_AT_GATED);
    b.mark(STEP_MARK_GATED);
  } else {
    b.wait_again(b.barriers().x, b.x_before(matrix), b.x_bytes_after(matrix), STEP_AT_X);
    b.mark(matrix == QKV ? STEP_MARK_X : STEP_MARK_X_O);
    if (b.owns_groups()) return;
    if constexpr (B::kHybrid)
      if (matrix == QKV && b.is_delta() && threadIdx.x == 0) barrier_arrive(&b.mix_vars().x_has_come);
  }
  const float *from = matrix == DOWN ? b.exchange() : b.x();
  if constexpr (kIsInt8<B::kParts>)
    take_int8(b, matrix, from, b.share(matrix).n_groups);
  else
    make_planes(b, from, b.share(matrix).n_groups, b.n_blocks());
}

/* Sends a matmul's outputs to the cluster, or to all clusters. After qkv (latent attention: after q_b) also
 * attends, or applies the delta rule. */
template <class B> __device__ __forceinline__ void send_outputs(B &b, int matrix) {
  switch (matrix) {
  case QKV:
    send_projections(b);
    if constexpr (B::kHybrid)
      b.is_delta() ? apply_delta_rule(b) : attend_wide(b);
    else if constexpr (!B::kLatent)
      attend(b);
    break;
  case GATE_UP:
    send_gated(b);
    b.mark(STEP_MARK_GATED_SENT);
    break;
  default:
    if constexpr (B::kLatent)
      if (matrix == Q_B) return attend_latents(b);
    contribute_sums(b, matrix);
    b.mark(matrix == O ? STEP_MARK_O_STORED : STEP_MARK_DOWN_STORED);
    if constexpr (B::kLatent)
      if (matrix == O && !b.is_dense()) route_outputs(b);
  }
}

} // namespace step::one
#endif
