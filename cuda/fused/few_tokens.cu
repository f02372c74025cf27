/* few_tokens.cu - a decode step of up to 2, 4 or 8 tokens as one persistent kernel of clusters. step.h is
 * its interface, one_token.cu explains a layer. Here x of qkv, gate and up stays in the block that owns the
 * columns:
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
 * One more warp adds up gate and up, while the others still multiply.
 *
 * Areas of StepShared that serve in turn: chunks and the warps' states; x of lm_head over these, x of the
 * block's columns, heads and states; x of o, then of down, then lm_head's sums. A peer writes only after it
 * has received what this block makes after its last read there: chunks of gate and up after o (and so the
 * states), chunks of qkv after the gated product, heads after chunks, states after heads, values after
 * states, the gated product after chunks. The block's own barriers, before qkv and before gate and up,
 * separate two matmuls. x of lm_head does not wait so long: a peer needs only down from this block's
 * neighbours in other clusters, and may send x while this block still multiplies x of down.
 *
 * PRECOND  all clusters of the launch run at once (step_clusters). */
#include "cuda/fused/few_block.cuh"

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
#define HAS_CLUSTERS 1
#include "cuda/fused/few_attention.cuh"
#include "cuda/fused/few_lm_head.cuh"
#include "cuda/fused/few_matmul.cuh"
#include "cuda/fused/few_ring.cuh"
#include "cuda/fused/scaffold.cuh"
#endif

namespace step {
namespace rows {

#if HAS_CLUSTERS

/* Initialises barriers and the step's constants in shared memory, and arms each barrier before a peer
 * may send to it. */
template <int kR, bool kDebug> __device__ __forceinline__ void begin(Block<kR, kDebug> &b) {
  const StepPlan &p = b.args().plan;
  const StepCall &c = b.args().call;
  if (threadIdx.x < MATRICES) make_share(b, threadIdx.x);
  if (threadIdx.x == MATRICES) {
    b.pos() = *c.pos;
    b.keys_run() = run_of(key_pieces(b.pos(), b.rank()), p.n_slots);
  }
  for (int i = threadIdx.x; i < p.columns * 8 * STEP_HEAD_DIM; i += STEP_ALL_THREADS)
    b.heads()[i] = __float2half_rn(0.0f); /* zero the unused queries */
  if (threadIdx.x < STEP_HEAD_DIM / 2)
    b.rope()[threadIdx.x] =
        ((const float2 *)c.rope_table)[min(own_row(b), c.n_rows - 1) * (STEP_HEAD_DIM / 2) + threadIdx.x];
  __syncthreads();
  make_pieces(b, [&](const Share &share, int i) { return piece_of(share, i); });
  if (threadIdx.x == 0) {
    Barriers *barriers = b.barriers();
    init_ring(b);
    for (uint64_t *one = barriers->squares; one <= &barriers->x; one++) barrier_init(one, 1);
    init_chunks(b);
    barrier_init_fence();
    expect_chunks(b);
    for (uint64_t &one : barriers->squares) barrier_expect(&one, square_bytes(b));
    barrier_expect(&barriers->x, x_bytes(b));
    barrier_expect(&barriers->projections, projection_bytes(b));
    barrier_expect(&barriers->states, states_bytes(b));
    barrier_expect(&barriers->values, values_bytes(b));
    barrier_expect(&barriers->gated, gated_bytes(b));
  }
  __syncthreads();
  cluster_sync();
}

/* One loop over all matmuls of all layers, then lm_head, as in one_token.cu. */
template <int kR, bool kDebug> __device__ __forceinline__ void multiply_all(Block<kR, kDebug> &b) {
  const int n_layers = b.args().plan.shape.n_layers;
#pragma unroll 1
  for (;;) {
    const int matrix = b.matrix();
    const bool is_head = b.layer() == n_layers;
    if (matrix == QKV || matrix == GATE_UP) {
      const bool wanted = matrix == GATE_UP || is_head || b.has_kv_head();
      if (matrix == QKV) b.mark(STEP_MARK_BEGIN);
      if (is_head) b.mark_whole(1);
      const int of = matrix == QKV ? DOWN : O, layer = matrix == QKV ? b.layer() - 1 : b.layer();
      const float *norm = matrix == QKV ? b.vectors().attn_norm : b.vectors().mlp_norm;
      if (is_head) {
        add_and_send(b, of, layer, norm);
        break;
      }
      add_and_keep(b, of, layer, norm, wanted);
      if (!wanted) {
        b.go_to(GATE_UP);
        continue;
      }
      b.sync();
      b.mark(matrix == QKV ? STEP_MARK_X : STEP_MARK_X_O);
      if (matrix == GATE_UP) clear_words(b);
    } else if (matrix == O) {
      b.wait_again(&b.barriers()->values, b.layer(), values_bytes(b), STEP_AT_STATES);
    } else {
      b.wait_again(&b.barriers()->gated, b.layer(), gated_bytes(b), STEP_AT_GATED);
      b.mark(STEP_MARK_GATED);
    }
    product(b, matrix);
    b.mark_waited(matrix == QKV       ? STEP_WAITED_QKV
                  : matrix == O       ? STEP_WAITED_O
                  : matrix == GATE_UP ? STEP_WAITED_GATE_UP
                                      : STEP_WAITED_DOWN);
    switch (matrix) {
    case QKV:
      b.mark(STEP_MARK_QKV);
      attention(b);
      break;
    case GATE_UP:
      b.mark(STEP_MARK_GATE_UP);
      b.mark(STEP_MARK_GATED_SENT);
      break;
    default:
      b.mark(matrix == O ? STEP_MARK_O : STEP_MARK_DOWN);
      b.mark(matrix == O ? STEP_MARK_O_STORED : STEP_MARK_DOWN_STORED);
    }
    b.go_to(b.matrix() + 1);
  }
  b.wait(&b.barriers()->x, 0, STEP_AT_X);
  head(b);
  b.mark_whole(2);
  /* All blocks have read the number, since this one has had sums from each of them. */
  if (blockIdx.x == 0 && threadIdx.x == 0) *b.args().launches = b.launches() + 1;
}

template <int kR, bool kDebug> __device__ __forceinline__ void run_last_warp(Block<kR, kDebug> &b) {
  gate_all(b);
}

#endif

template <int kR, bool kDebug>
__global__ void __launch_bounds__(STEP_ALL_THREADS, 1) kernel(const __grid_constant__ Args a) {
#if HAS_CLUSTERS
  extern __shared__ __align__(128) unsigned char shared[];
  static_assert(16 + MATRICES * sizeof(Share) + sizeof(RingRun) <= STEP_SHARES_BYTES && sizeof(Args) % 4 == 0,
                "StepShared has room for them");
  static_assert(sizeof(Barriers) <= STEP_BARRIER_BYTES, "StepShared has room for them");
  Block<kR, kDebug> b = {{shared, a, 0, 0}};
  if (threadIdx.x == 0) b.launches() = *(volatile const unsigned *)a.launches;
  b.mark_whole(0);
  begin(b);
  run_warps(b);
#endif
}

template <bool kDebug> static Kernel kernel_of(int rows) {
  switch (rows) {
  case 2: return kernel<2, kDebug>;
  case 4: return kernel<4, kDebug>;
  default: return kernel<8, kDebug>;
  }
}

} // namespace rows

Kernel few_tokens_kernel(int rows, bool debug) {
  return debug ? rows::kernel_of<true>(rows) : rows::kernel_of<false>(rows);
}

} // namespace step
