/* scaffold.cuh - the frame of the fused kernels: how they begin and end, which warp does what, and a layer
 * from top to bottom. one_*.cuh and few/ implement what it calls. */
#pragma once

#include "cuda/kernels/fused/weight_ring.cuh"
#include "cuda/kernels/ops/rope.cuh"

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
#define HAS_CLUSTERS 1
#endif

namespace step {

#if HAS_CLUSTERS

/* Initialises a barrier that blocks of the cluster send to, and announces the bytes of its first phase. */
__device__ __forceinline__ void begin_barrier(uint64_t &barrier, int bytes) {
  barrier_init(&barrier, 1);
  barrier_expect(&barrier, bytes);
}

/* Initialises barriers, tables and the step's constants in shared memory, before another block may send.
 * Reads nothing that an earlier kernel writes: that kernel may still be running. */
template <class B> __device__ __forceinline__ void begin(B &b) {
  const StepCall &c = b.args.call;
  const StepPart part = part_of(b, b.rope_token());
  const int pos = part.pos + b.rope_token() - part.first;
  Vars &vars = b.vars();
  if (threadIdx.x < B::kShares) make_share(b, threadIdx.x);
  if constexpr (B::kHybrid)
    if (threadIdx.x == 32) begin_mixers(b);
  if (threadIdx.x == MATRICES) {
    vars.pos = pos, vars.page = part.first_page, vars.loaded = 0;
    if constexpr (B::kSeveral) begin_keys(b);
    vars.keys_run = run_of(all_key_stages(b), b.plan.n_slots);
  }
  for (int i = threadIdx.x; i < b.plan.columns * 8 * B::kDim; i += STEP_ALL_THREADS)
    b.heads()[i] = __float2half_rn(0.0f); /* zero the unused queries */
  constexpr int kPairs = B::kHybrid ? STEP_ROTARY_DIM / 2 : B::kLatent ? STEP_LATENT_ROPE / 2 : B::kDim / 2;
  if (threadIdx.x < kPairs)
    b.rope()[threadIdx.x] = rope_turn(pos, c.frequencies[threadIdx.x], c.attention_factor);
  __syncthreads();
  make_tables(b);
  if (threadIdx.x == 0) {
    for (int i = 0; i < b.plan.n_slots; i++) {
      barrier_init(&b.barriers().full[i], STEP_LOADERS);
      barrier_init(&b.barriers().empty[i], STEP_WARPGROUP_WARPS);
    }
    begin_barriers(b);
    barrier_init_fence();
  }
  __syncthreads();
}

/* Runs the layers, then lm_head, on the warps that multiply. A pass of the loop is one matmul with what
 * precedes and follows it. So the instructions of all matmuls exist only once: the kernel must fit the
 * instruction cache (LOG.md, "The instruction cache"). A layer from top to bottom:
 *
 *     QKV      normalise(): residual += down of the previous layer, x;   attend(), or the delta rule
 *     Q_B      latent attention alone: x is q_a's latent;                attend(), which QKV then omits
 *     O        x is attention's output;                                  all-reduce
 *     GATE_UP  normalise(): residual += o, x;                            gated product
 *     DOWN     x is the gated product;                                   all-reduce
 *
 * A cluster without a KV head has only the last two matmuls, but its residual stream takes every sum. With
 * several tokens, x of lm_head comes from a function of its own: its 560 instructions are outside the loop.
 * Kernels after this one may start when all clusters are at lm_head. A kernel that picks a token starts then,
 * on an SM that has no cluster, and waits there. */
template <class B> __device__ __forceinline__ void run_layers(B &b) {
  constexpr StepMark kDone[] = {STEP_MARK_QKV, STEP_MARK_O, STEP_MARK_GATE_UP, STEP_MARK_DOWN};
  const int n_layers = b.plan.shape.n_layers;
#pragma unroll 1
  for (;;) {
    const int matrix = b.matrix();
    if (matrix == QKV || matrix == GATE_UP) {
      const bool is_lm_head = b.layer() == n_layers;
      const bool wanted = matrix == GATE_UP || is_lm_head || b.has_kv_head();
      if (matrix == QKV) b.mark(STEP_MARK_BEGIN);
      if (is_lm_head) b.mark_whole(1);
      if constexpr (B::kTokens > 1) {
        if (is_lm_head) {
          send_lm_head_input(b);
          break;
        }
      }
      if constexpr (B::kExperts)
        if (!B::kVaried && !B::kLatent && matrix == GATE_UP) choose(b);
      normalise(b, matrix, wanted);
      if constexpr (B::kVaried || B::kLatent)
        if (matrix == GATE_UP) choose(b);
      if (!wanted) {
        b.go_to(GATE_UP);
        continue;
      }
      if (is_lm_head) break;
    }
    matmul(b, matrix);
    b.mark_waited(b.matrix());
    if constexpr (B::kLatent)
      b.mark(b.matrix() == Q_B ? STEP_MARK_QKV_SENT : kDone[b.matrix()]);
    else
      b.mark(kDone[b.matrix()]);
    send_outputs(b, b.matrix());
    b.go_to(b.next_matrix());
  }
  dependents_may_start();
  lm_head(b);
  b.mark_whole(2);
}

/* Sixteen warps multiply and three load. The last one prefetches, or makes the router's logits or the gates
 * of the delta rule; with several tokens it makes the gated product. Registers move between whole warpgroups.
 * Loading warps send nothing to other blocks, so they begin without waiting for other blocks. They wait for
 * earlier kernels only before they load keys or states. */
template <class B> __device__ __forceinline__ void run_warps(B &b) {
  if (b.warp() < STEP_WARPS) {
    registers_up_to<kMultiplyRegisters>();
    /* In take_input() of one token no thread needs another's part, so no barrier has to follow it. */
    constexpr bool kOne = B::kTokens == 1;
    if (kOne) cluster_arrive();
    wait_for_previous();
    b.mark_whole(0);
    take_input(b);
    kOne ? cluster_wait() : cluster_sync();
    run_layers(b);
  } else {
    registers_down_to<kOtherRegisters>();
    cluster_arrive();
    switch (b.warp() - STEP_WARPS) {
    case TILES: load_all<TILES>(b); break;
    case SCALES: load_all<SCALES>(b); break;
    case ZEROS: load_all<ZEROS>(b); break;
    default: cluster_wait(); run_last_warp(b);
    }
    __syncwarp();
    if (b.warp() - STEP_WARPS <= ZEROS) cluster_wait();
  }
  __syncwarp();
  cluster_sync(); /* keeps blocks alive while a peer may still send to them */
}

#endif

template <class B>
__global__ void __launch_bounds__(STEP_ALL_THREADS, 1) kernel(const __grid_constant__ Args a) {
#if HAS_CLUSTERS
  extern __shared__ __align__(128) unsigned char shared[];
  const StepPlan &plan = B::plan_of_form(a);
  B b = {{B::base(shared, plan.ring_at), a, plan, 0, 0}};
  begin(b);
  run_warps(b);
#endif
}

} // namespace step
