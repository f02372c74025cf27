/* step_rows.cu - a decode step of several rows as one persistent kernel of clusters: see step_rows.h, and
 * step.cu for what a layer is and what goes from where to where. Other than there
 *
 *   x         is sent as integers, made once by the block that has the columns
 *   states    go to one block for each query, which sends o's inputs as integers
 *
 * Shared memory that serves in turns (StepRowsShared):
 *   x         integers of the residual stream | of two rows, what products make of them | what warps made of
 *             their keys || halves of it, for the head, made in their place
 *   in        what goes into o, from peers | what goes into down, made by the block itself
 *   exchange  q, k, v | gated product | of two rows, what products make of o's and down's inputs | the
 *             head's sums
 * A peer that writes has had from every warp of this block what it makes after its last look at what was
 * there: x of the next product needs this block's outputs of the last one (of qkv through attention's
 * states), q, k, v and the gated product need its x, states its q, k, v, values its states. So behind o and
 * down there is no barrier of the block.
 *
 * PRECOND  all clusters of the launch run at once (step_clusters). */
#include <stdlib.h>

#include "cuda/step_launch.cuh"
#include "cuda/step_rows.h"

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
#define HAS_CLUSTERS 1
#include "cuda/step_rows_attention.cuh"
#include "cuda/step_rows_head.cuh"
#include "cuda/step_rows_load.cuh"
#include "cuda/step_rows_slices.cuh"
#else
#include "cuda/step_rows_block.cuh"
#endif

namespace step {
namespace rows {

#if HAS_CLUSTERS

/* Barriers, constants of the step in shared memory, and everything armed before any peer may send. */
template <int kR, bool kDebug> __device__ __forceinline__ void begin(Block<kR, kDebug> &b) {
  const StepRowsPlan &p = b.args().plan;
  const StepRowsCall &c = b.args().call;
  const int last = c.n_rows - 1;
  if (threadIdx.x < MATRICES) make_share(b, threadIdx.x);
  if (threadIdx.x == MATRICES) {
    b.pos() = *c.pos;
    b.keys_run() = run_of(key_pieces(b.pos(), b.rank()), p.n_slots);
  }
  for (int i = threadIdx.x; i < p.columns * 8 * STEP_HEAD_DIM; i += STEP_ALL_THREADS)
    b.heads()[i] = __float2half_rn(0.0f); /* of queries that there are none of */
  /* Of all rows, or the block's own. */
  for (int i = threadIdx.x; i < (kSliced<kR> ? 1 : kR) * (STEP_HEAD_DIM / 2); i += STEP_ALL_THREADS)
    b.rope(0)[i] = ((const float2 *)c.rope_table)[min(kSliced<kR> ? own_row(b) : i / 64, last) * 64 + i % 64];
  __syncthreads();
  make_pieces(b, [&](const Share<kR> &share, int i) { return piece_of(share, i); });
  if (threadIdx.x == 0) {
    Barriers *barriers = b.barriers();
    for (int i = 0; i < p.n_slots; i++) {
      barrier_init(&barriers->full[i], STEP_LOADERS);
      barrier_init(&barriers->empty[i], STEP_TEAM_WARPS);
    }
    for (uint64_t *one = &barriers->x; one <= &barriers->head; one++) barrier_init(one, 1);
    if constexpr (kSliced<kR>) init_chunks(b);
    barrier_init_fence();
    if constexpr (kSliced<kR>) {
      expect_chunks(b);
      for (uint64_t &one : barriers->squares) barrier_expect(&one, square_bytes(b));
      barrier_expect(&barriers->head, x_bytes(b));
    } else {
      barrier_expect(&barriers->x, x_bytes(b));
    }
    barrier_expect(&barriers->projections, projection_bytes(b));
    barrier_expect(&barriers->states, states_bytes(b));
    barrier_expect(&barriers->values, values_bytes(b));
    barrier_expect(&barriers->gated, gated_bytes(b));
  }
  __syncthreads();
  cluster_sync();
}

/* One loop over all products of all layers and the head behind them, as in step.cu. */
template <int kR, bool kDebug> __device__ __forceinline__ void multiply_all(Block<kR, kDebug> &b) {
  const int n_layers = b.args().plan.shape.n_layers;
  long long *whole =
      kDebug && b.args().debug.whole_marks ? b.args().debug.whole_marks + 3 * blockIdx.x : NULL;
#pragma unroll 1
  for (;;) {
    const int matrix = b.matrix();
    const bool is_head = b.layer() == n_layers;
    if (matrix == QKV || matrix == GATE_UP) {
      const bool wanted = matrix == GATE_UP || is_head || b.has_kv_head();
      if (matrix == QKV) b.mark(STEP_MARK_BEGIN);
      if (kDebug && is_head && whole && threadIdx.x == 0) whole[1] = clock64();
      const int of = matrix == QKV ? DOWN : O, layer = matrix == QKV ? b.layer() - 1 : b.layer();
      const float *norm = matrix == QKV ? b.vectors().attn_norm : b.vectors().mlp_norm;
      if (kSliced<kR> && !is_head)
        add_and_keep(b, of, layer, norm, wanted);
      else
        add_and_send(b, of, layer, norm, wanted, kSliced<kR> ? &b.barriers()->head : &b.barriers()->x);
      if (!wanted) {
        b.go_to(GATE_UP);
        continue;
      }
      if (!kSliced<kR>)
        b.wait_again(&b.barriers()->x, b.x_before(matrix), x_bytes(b), STEP_AT_X);
      else if (is_head)
        b.wait(&b.barriers()->head, 0, STEP_AT_X);
      else
        b.sync();
      b.mark(matrix == QKV ? STEP_MARK_X : STEP_MARK_X_O);
      if (is_head) break;
      if (matrix == GATE_UP) clear_words(b);
    } else if (matrix == O) {
      b.wait_again(&b.barriers()->values, b.layer(), values_bytes(b), STEP_AT_STATES);
    } else {
      b.wait_again(&b.barriers()->gated, b.layer(), gated_bytes(b), STEP_AT_GATED);
      b.mark(STEP_MARK_GATED);
      if constexpr (!kSliced<kR>) {
        make_planes(b);
        b.sync();
      }
    }
    slices::product(b, matrix);
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
  head(b);
  if (kDebug && whole && threadIdx.x == 0) whole[2] = clock64();
}

#endif

template <int kR, bool kDebug>
__global__ void __launch_bounds__(STEP_ALL_THREADS, 1) kernel(const __grid_constant__ Args a) {
#if HAS_CLUSTERS
  extern __shared__ __align__(128) unsigned char shared[];
  static_assert(16 + MATRICES * sizeof(Share<kR>) + sizeof(RingRun) <= STEP_SHARES_BYTES &&
                    sizeof(Args) % 4 == 0,
                "StepRowsShared has room for them");
  static_assert(sizeof(Barriers) <= STEP_BARRIER_BYTES, "StepRowsShared has room for them");
  Block<kR, kDebug> b = {{shared, a, 0, 0}};
  if (threadIdx.x == 0) b.launches() = *(volatile const unsigned *)a.launches;
  if (kDebug && a.debug.whole_marks && threadIdx.x == 0) a.debug.whole_marks[3 * blockIdx.x] = clock64();
  begin(b);
  if (b.warp() < STEP_WARPS) {
    registers_up_to<kMultiplyRegisters>();
    multiply_all(b);
    /* Every block has read the number: this one has had sums from all of them. */
    if (blockIdx.x == 0 && threadIdx.x == 0) *a.launches = b.launches() + 1;
  } else {
    registers_down_to<kOtherRegisters>();
    switch (b.warp() - STEP_WARPS) {
    case TILES: load_all<TILES>(b); break;
    case SCALES: load_all<SCALES>(b); break;
    case ZEROS: load_all<ZEROS>(b); break;
    default:
      if constexpr (kSliced<kR>) slices::gate_all(b);
    }
  }
  __syncwarp();
  cluster_sync(); /* nobody leaves while a peer may still send to it */
#endif
}

static size_t shared_bytes(const StepRowsPlan &plan) {
  return (size_t)plan.n_slots * plan.slot_bytes + plan.slack + plan.at.total;
}

} // namespace rows
} // namespace step

struct StepRows {
  step::rows::Args args;
};

using step::rows::Args;

typedef void (*Kernel)(const Args);

template <bool kDebug> static Kernel kernel_of_rows(int rows) {
  switch (rows) {
  case 2: return step::rows::kernel<2, kDebug>;
  case 4: return step::rows::kernel<4, kDebug>;
  default: return step::rows::kernel<8, kDebug>;
  }
}

static Kernel kernel_of(const StepRowsPlan &plan, bool debug) {
  return debug ? kernel_of_rows<true>(plan.rows) : kernel_of_rows<false>(plan.rows);
}

size_t step_rows_bytes(const StepRowsPlan *plan) {
  return step::state_bytes(plan->shape, plan->memory_bytes);
}

Status step_rows_open(const StepModel *m, const StepRowsPlan *plan, void *memory, cudaStream_t stream,
                      StepRows **out, Error *err) {
  *out = NULL;
  for (bool debug : {false, true})
    TRY(cuda_check(cudaFuncSetAttribute(kernel_of(*plan, debug), cudaFuncAttributeMaxDynamicSharedMemorySize,
                                        (int)step::rows::shared_bytes(*plan)),
                   "one kernel a step", err));
  StepRows *s = (StepRows *)mem_alloc(1, sizeof *s, "a step", err);
  if (!s) return STATUS_FAILED;
  s->args.plan = *plan;
  Status status = step::fill(&s->args, m, plan->shape, memory, plan->memory_bytes, plan->n_slots,
                             plan->piece_bytes, stream, err);
  if (status != STATUS_OK) {
    free(s);
    return status;
  }
  const size_t words = 2 * STEP_SUM_TURNS * (size_t)plan->rows * (size_t)plan->shape.hidden;
  s->args.residual = (float *)((uint64_t *)s->args.partials + words);
  *out = s;
  return STATUS_OK;
}

void step_rows_close(StepRows *s) {
  free(s);
}

Status step_rows_run(StepRows *s, const StepRowsCall *call, const StepDebug *debug, cudaStream_t stream,
                     Error *err) {
  const StepRowsPlan &plan = s->args.plan;
  Args a = s->args;
  a.call = *call;
  if (debug) a.debug = *debug;
  cudaLaunchAttribute cluster;
  cudaLaunchConfig_t config =
      step::launch_config(plan.shape.n_clusters, step::rows::shared_bytes(plan), stream, &cluster);
  return cuda_check(cudaLaunchKernelEx(&config, kernel_of(plan, debug != NULL), a), "one kernel a step", err);
}
