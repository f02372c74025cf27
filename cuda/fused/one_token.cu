/* one_token.cu - a decode step of one token as one persistent kernel of clusters. step.h is its interface,
 * STEP.md has the measurements that led to this form.
 *
 *   layer     a cluster with a KV head                          a cluster without
 *   norm      residual += down of the previous layer            the same
 *             x * norm -> cluster                                -
 *   qkv       a tile row of each head -> cluster
 *   attention the block's keys -> cluster
 *   o         partial sums of all columns -> all clusters
 *   norm      residual += o; x * norm -> cluster                the same
 *   gate, up  features of the FFN blocks -> cluster             the same
 *   down      partial sums of all columns -> all clusters       the same
 *   lm_head   residual += down, x * norm -> cluster; a range of rows a block
 *
 * "-> cluster" is st.async into the shared memory of all eight blocks, counted by a barrier there; "-> all
 * clusters" is allreduce.cuh. Warps 0 .. 15 multiply, three load (weight_ring.cuh), and one prefetches
 * (l2_prefetch.cuh).
 *
 * Shared memory is the ring, then StepShared. Three areas serve several uses in turn. Uses do not collide,
 * because a peer writes only after it has received what this block makes after its last read:
 *   x         x of a matmul, then its partial sums (not those of o, down) | states of the warps
 *   planes    x as integers | states of the cluster's blocks
 *   exchange  q, k, v; attention's output || the gated product
 * An arriving x overwrites only what was read before this block's last contribution to it.
 *
 * PRECOND  all clusters of the launch run at once (step_clusters). */
#include "cuda/fused/block.cuh"

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
#define HAS_CLUSTERS 1
#include "cuda/fused/l2_prefetch.cuh"
#include "cuda/fused/one_attention.cuh"
#include "cuda/fused/one_lm_head.cuh"
#include "cuda/fused/one_matmul.cuh"
#include "cuda/fused/one_residual.cuh"
#include "cuda/fused/scaffold.cuh"
#endif

namespace step {

#if HAS_CLUSTERS

/* Initialises barriers and the step's constants in shared memory, and arms each barrier before a peer
 * may send to it. */
template <bool kDebug> __device__ __forceinline__ void begin(Block<kDebug> &b) {
  const StepPlan &p = b.args().plan;
  if (threadIdx.x == 0) {
    Barriers *barriers = b.barriers();
    init_ring(b);
    barrier_init(&barriers->x, 1);
    barrier_init(&barriers->projections, 1);
    barrier_init(&barriers->states, 1);
    barrier_init(&barriers->gated, 1);
    barrier_init_fence();
    barrier_expect(&barriers->x, x_bytes(p));
    barrier_expect(&barriers->projections, projection_bytes(p));
    barrier_expect(&barriers->states, states_bytes(p));
    barrier_expect(&barriers->gated, p.shares[b.cluster()].n_units * STEP_GROUP * 4);
  }
  for (int i = threadIdx.x; i < STEP_MAX_SHARED_HEADS * STEP_HEAD_DIM; i += STEP_ALL_THREADS)
    b.heads()[i] = __float2half_rn(0.0f); /* zero the unused query heads */
  const float2 *table = (const float2 *)b.args().call.rope_table;
  if (threadIdx.x < MATRICES) make_share(b, threadIdx.x);
  if (threadIdx.x == MATRICES) b.keys_run() = run_of(key_pieces(*b.args().call.pos, b.rank()), p.n_slots);
  if (threadIdx.x < STEP_HEAD_DIM / 2) b.rope()[threadIdx.x] = table[threadIdx.x];
  __syncthreads();
  make_pieces(b, piece_of);
  make_tasks(b);
  cluster_sync();
}

/* Sends a matmul's outputs to the cluster, or to all clusters. */
template <bool kDebug> __device__ __forceinline__ void hand_on(Block<kDebug> &b, int matrix) {
  switch (matrix) {
  case QKV:
    b.mark_waited(STEP_WAITED_QKV);
    b.mark(STEP_MARK_QKV);
    attention(b);
    break;
  case GATE_UP:
    b.mark_waited(STEP_WAITED_GATE_UP);
    b.mark(STEP_MARK_GATE_UP);
    send_gated(b);
    b.mark(STEP_MARK_GATED_SENT);
    break;
  default:
    b.mark_waited(matrix == O ? STEP_WAITED_O : STEP_WAITED_DOWN);
    b.mark(matrix == O ? STEP_MARK_O : STEP_MARK_DOWN);
    give_sum(b, matrix, sum_of(b, matrix, b.layer()));
    b.mark(matrix == O ? STEP_MARK_O_STORED : STEP_MARK_DOWN_STORED);
  }
}

/* Waits for x of a matmul, and quantises it. */
template <bool kDebug> __device__ __forceinline__ void take(Block<kDebug> &b, int matrix) {
  if (matrix == O) {
    take_states(b);
    return;
  }
  if (matrix == DOWN) {
    b.wait(&b.barriers()->gated, b.layer() & 1, STEP_AT_GATED);
    if (b.thread() == 0)
      barrier_expect(&b.barriers()->gated, b.args().plan.shares[b.cluster()].n_units * STEP_GROUP * 4);
    b.mark(STEP_MARK_GATED);
  } else {
    wait_for_x(b, b.x_before(matrix));
    b.mark(matrix == QKV ? STEP_MARK_X : STEP_MARK_X_O);
  }
  make_planes(b, matrix == DOWN ? b.exchange() : b.x(), b.share(matrix).n_groups);
}

/* One loop over all matmuls of all layers, then lm_head. The instructions of a phase exist only once,
 * since the kernel must fit the instruction cache (STEP.md). */
template <bool kDebug> __device__ __forceinline__ void multiply_all(Block<kDebug> &b) {
  const int n_layers = b.args().plan.shape.n_layers;
#pragma unroll 1
  for (;;) {
    const int matrix = b.matrix();
    if (matrix == QKV || matrix == GATE_UP) {
      const bool is_head = b.layer() == n_layers;
      const bool wanted = matrix == GATE_UP || is_head || b.has_kv_head();
      if (matrix == QKV) b.mark(STEP_MARK_BEGIN);
      if (is_head) b.mark_whole(1);
      add_and_send(b, matrix == QKV ? DOWN : O, matrix == QKV ? b.layer() - 1 : b.layer(),
                   b.layer() * b.args().vectors_stride + (matrix == QKV ? 0 : b.args().plan.shape.hidden),
                   wanted);
      if (!wanted) {
        b.go_to(GATE_UP);
        continue;
      }
      if (is_head) break;
    }
    product(b, matrix, [&] { take(b, matrix); });
    hand_on(b, b.matrix());
    b.go_to(b.matrix() + 1);
  }
  wait_for_x(b, b.x_before(QKV));
  head(b);
  b.mark_whole(2);
}

template <bool kDebug> __device__ __forceinline__ void run_last_warp(Block<kDebug> &b) {
  if (b.args().ahead) go_ahead(b, b.args().ahead, key_pieces(b.pos(), b.rank()));
}

#endif

template <bool kDebug>
__global__ void __launch_bounds__(STEP_ALL_THREADS, 1) kernel(const __grid_constant__ Args a) {
#if HAS_CLUSTERS
  extern __shared__ __align__(128) unsigned char shared[];
  static_assert(16 + MATRICES * sizeof(Share) + sizeof(RingRun) <= STEP_SHARES_BYTES && sizeof(Args) % 4 == 0,
                "StepShared has room for them");
  static_assert(sizeof(Barriers) <= STEP_FORGET_AT, "StepShared has room for them");
  Block<kDebug> b = {{shared - a.plan.ring_at, a, 0, 0}};
  if (threadIdx.x == 0) b.loaded() = 0;
  if (threadIdx.x == MATRICES) b.pos() = *a.call.pos;
  b.mark_whole(0);
  begin(b);
  run_warps(b);
#endif
}

Kernel one_token_kernel(bool debug) {
  return debug ? kernel<true> : kernel<false>;
}

} // namespace step
