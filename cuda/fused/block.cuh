/* block.cuh - per-thread context of a fused step: launch arguments, coordinates, shared-memory accessors,
 * and waits.
 *
 * kDebug: a wait that lasts too long ends the kernel and reports its place, and marks record the clock
 * (StepDebug). */
#ifndef AUK_CUDA_FUSED_BLOCK_CUH
#define AUK_CUDA_FUSED_BLOCK_CUH

#include "cuda/fused/step.h"
#include "cuda/linear/layout.cuh"
#include "cuda/ops/elementwise.cuh"
#include "cuda/ptx/cluster.cuh"

namespace step {

/* A layer in the table in device memory: 12 pointers, three a matrix, which lanes read as an array
 * (weight_ring.cuh). */
struct Matrix {
  const unsigned char *tiles, *scales, *zeros;
};
enum { QKV, O, GATE_UP, DOWN, MATRICES };
struct Layer {
  Matrix matrices[MATRICES];
};

struct Args {
  StepPlan plan;
  StepCall call;
  const Layer *layers;
  const float *vectors; /* [n_layers + 1][vectors_stride], below */
  int vectors_stride;
  bool head_norms, bias;     /* whether the model has them */
  const unsigned char *head; /* half [vocab_size][hidden] */
  const void *embedding;
  size_t embedding_stride;
  Dtype embedding_type;
  float embedding_scale, norm_eps, scale_log2; /* scale_log2: attention_scale * log2(e) */
  int in_flight, most_in_flight;               /* stages; from STEP_LONG on one more, up to most_in_flight */
  uint64_t *totals;                            /* allreduce.cuh */
  int ahead;          /* one token: stages that go_ahead() may be ahead of the loads; 0: it does not run */
  float *residual;    /* several tokens: [n_clusters][rows][hidden] */
  unsigned *launches; /* several tokens: how many launches precede this one */
  StepDebug debug;
};

/* The kernel of one_token.cu, and those of few_tokens.cu for up to 2, 4 or 8 tokens. */
typedef void (*Kernel)(const Args);
Kernel one_token_kernel(bool debug);
Kernel few_tokens_kernel(int rows, bool debug);

/* A layer's vectors are contiguous, so that no thread waits for a pointer to them: norms of attention
 * and of the FFN, norms of a query and of a key, then the bias of qkv. The final norm follows the last
 * layer. */
struct Vectors {
  const float *attn_norm, *mlp_norm, *q_norm, *k_norm, *bias;
  __device__ __forceinline__ Vectors(const Args &a, int hidden, int layer)
      : attn_norm(a.vectors + layer * a.vectors_stride), mlp_norm(attn_norm + hidden),
        q_norm(mlp_norm + hidden), k_norm(q_norm + STEP_HEAD_DIM), bias(k_norm + STEP_HEAD_DIM) {}
};

/* full and empty belong to the slots of the ring. The others count bytes from the cluster's blocks, in
 * one phase a layer; x has a phase before each matmul that reads it. */
struct Barriers {
  uint64_t full[STEP_MAX_SLOTS], empty[STEP_MAX_SLOTS];
  uint64_t x, projections, states, gated;
};

/* A position in the ring: stage n is in slot n % n_slots, with the parity of n / n_slots. */
struct RingAt {
  uint32_t slot, parity;
  /* n <= n_slots. */
  __device__ __forceinline__ void move(int n, int n_slots) {
    slot += n;
    if ((int)slot >= n_slots) slot -= n_slots, parity ^= 1;
  }
};

/* How far a run of stages advances a position: by `slots`, and by the parity `turns`. */
struct RingRun {
  int slots, turns;
};

__device__ __forceinline__ RingRun run_of(int pieces, int n_slots) {
  return {pieces % n_slots, pieces / n_slots % 2};
}

/* A block's share of one of a layer's matrices. It is computed once, in shared memory, so that no warp
 * divides later. */
struct Share {
  int n_rows, pieces;                /* tile rows; stages of all parts */
  int n_groups, parts, groups, span; /* StepCut; powers of 2 as logarithms */
  int log_k_warps, log_rows;
  int inverse;  /* 65536 / parts, rounded up */
  int tasks_at; /* offset in shared memory */
  int next;     /* floats from a stage's sums to those of the warpgroup's next one; 0: that one is of another
             * part */
  int all_groups, group; /* groups of the matrix's inputs, and the share's first */
  int log_run, split;    /* floats between sums of a warpgroup's stages; 0: they are of different parts */
  int tile[2], stride[2];
  RingRun run;
  int sums_at, sums_stride; /* offset in shared memory; floats between the sums of neighbouring warps
                             * along k */
};

/* Reports where a thread waits, and ends the kernel. */
static __device__ __noinline__ void tell_hang(StepHang *h, int warp, int lane, int layer, int place,
                                              int number, int parity) {
  h->block = blockIdx.x, h->warp = warp, h->lane = lane, h->layer = layer;
  h->place = place, h->number = number, h->parity = parity;
  __threadfence_system();
  h->hung = 1;
  __threadfence_system();
  __trap();
}

/* offset in shared memory; floats between the sums of warps along k */
constexpr int kMultiplyRegisters = 104, kOtherRegisters = 64;
static_assert(kMultiplyRegisters * STEP_THREADS + kOtherRegisters * (STEP_ALL_THREADS - STEP_THREADS) <=
                  96 * STEP_ALL_THREADS,
              "setmaxnreg would block");
static_assert(STEP_THREADS % 128 == 0 && STEP_ALL_THREADS % 128 == 0, "setmaxnreg is of whole warpgroups");

/* The part of the context that both kernels share. */
template <class ShareOf, class BarriersOf, bool kDebug> struct Thread {
  unsigned char *state; /* StepShared in shared memory; the ring is before or after it */
  const Args &a;
  /* This warp's progress: layer (also the number of completed phases of a barrier with one phase a
   * layer), matrix, and slot and parity of the next stage. It is one register, since it is live
   * throughout. */
  uint32_t at;
  long long waited; /* kDebug: cycles waited for stages */

  /* Special registers are read again rather than kept, here and below. */
  __device__ __forceinline__ int warp() const { return threadIdx.x >> 5; }
  __device__ __forceinline__ int lane() const { return threadIdx.x & 31; }
  __device__ __forceinline__ int thread() const { return threadIdx.x; }

  /* Rank of the block in its cluster, and number of the cluster. */
  __device__ __forceinline__ int rank() const { return cluster_rank(); }
  __device__ __forceinline__ int cluster() const { return blockIdx.x / STEP_BLOCKS; }
  __device__ __forceinline__ bool has_kv_head() const { return cluster() < args().plan.shape.n_kv_heads; }
  __device__ __forceinline__ int layer() const { return at >> 12; }
  __device__ __forceinline__ int matrix() const { return at & 3; }
  __device__ __forceinline__ RingAt next() const { return {at >> 3 & 255, at >> 11 & 1}; }
  __device__ __forceinline__ void advance(const RingRun &run) {
    RingAt to = next();
    to.parity ^= run.turns;
    to.move(run.slots, args().plan.n_slots);
    at = forgotten((at & ~0xff8u) | to.slot << 3 | to.parity << 11);
  }
  /* MATRICES: the first matrix of the next layer. */
  __device__ __forceinline__ void go_to(int matrix) {
    at = forgotten((at & ~3u) + (matrix == MATRICES ? 1u << 12 : matrix));
  }

  __device__ __forceinline__ const Args &args() const { return a; }
  /* Vectors of the warp's current layer. */
  __device__ __forceinline__ Vectors vectors() const { return {args(), args().plan.shape.hidden, layer()}; }
  __device__ __forceinline__ BarriersOf *barriers() const { return (BarriersOf *)state; }
  /* Position of the first token. */
  __device__ __forceinline__ int &pos() const { return *(int *)(state + STEP_BARRIER_BYTES + 4); }
  /* Stages whose tiles are loaded or in flight: l2_prefetch.cuh. */
  __device__ __forceinline__ unsigned &loaded() const { return *(unsigned *)(state + STEP_LOADED_AT); }
  __device__ __forceinline__ ShareOf &share(int matrix) const {
    return ((ShareOf *)(state + STEP_BARRIER_BYTES + 16))[matrix];
  }
  /* The run of stages of this block's keys and values. */
  __device__ __forceinline__ RingRun &keys_run() const {
    return *(RingRun *)(state + STEP_BARRIER_BYTES + 16 + MATRICES * sizeof(ShareOf));
  }
  __device__ __forceinline__ unsigned char *slot(int n) const {
    return state + args().plan.ring_at + n * args().plan.slot_bytes;
  }
  __device__ __forceinline__ float *exchange() const { return (float *)(state + args().plan.at.exchange); }
  __device__ __forceinline__ __half *heads() const { return (__half *)(state + args().plan.at.heads); }

  /* Ends the kernel if the wait since `since` has lasted too long. */
  __device__ __forceinline__ void look_at_clock(long long since, StepPlace place, int number,
                                                int parity) const {
    if (clock64() - since < args().debug.patience) return;
    tell_hang(args().debug.hang, warp(), lane(), layer(), place, number, parity);
  }

  /* Peers' stores count on this block's barriers as bulk copies do, so the plain wait suffices; one that
   * acquires at cluster scope would invalidate L1 each time. */
  __device__ __forceinline__ void wait_at(uint32_t barrier, int parity, StepPlace place,
                                          int number = 0) const {
    if (kDebug) {
      const long long since = clock64();
      while (!barrier_test(barrier, parity)) look_at_clock(since, place, number, parity);
    }
    barrier_wait(barrier, parity);
  }
  __device__ __forceinline__ void wait(uint64_t *barrier, int parity, StepPlace place, int number = 0) const {
    wait_at(shared_address(barrier), parity, place, number);
  }

  /* The number of x that this block received before the one for a matrix of the current layer: without a
   * KV head it receives none for qkv. */
  __device__ __forceinline__ int x_before(int matrix) const {
    return has_kv_head() ? 2 * layer() + (matrix == GATE_UP) : layer();
  }

  /* Barrier of the warps that multiply. */
  __device__ __forceinline__ void sync() const { sync_some<1, STEP_THREADS>(); }

  __device__ __forceinline__ void note(StepMark what, long long number) const {
    if (args().debug.marks && thread() == 0 && layer() < args().plan.shape.n_layers)
      args().debug.marks[((size_t)blockIdx.x * args().plan.shape.n_layers + layer()) * STEP_NUMBERS + what] =
          number;
  }
  __device__ __forceinline__ void mark(StepMark what) const {
    if (kDebug) note(what, clock64());
  }
  /* i: 0 at the beginning, 1 after the last layer, 2 at the end. */
  __device__ __forceinline__ void mark_whole(int i) const {
    if (kDebug && args().debug.whole_marks && threadIdx.x == 0)
      args().debug.whole_marks[3 * blockIdx.x + i] = clock64();
  }
  __device__ __forceinline__ void mark_waited(StepMark what) {
    if (kDebug) note(what, waited);
    waited = 0;
  }

  /* shared_address of the stage at `at`, and of its slot's `empty` barrier. */
  __device__ __forceinline__ uint32_t piece_at(const RingAt &at) const {
    return shared_address(state) + args().plan.ring_at + at.slot * args().plan.slot_bytes;
  }
  __device__ __forceinline__ uint32_t empty_at(const RingAt &at) const {
    return shared_address(&barriers()->empty[at.slot]);
  }

  /* Waits until the stage at `at` is loaded, and returns its shared_address. */
  __device__ __forceinline__ uint32_t take_piece(const RingAt &at) {
    long long since = kDebug ? clock64() : 0;
    wait(&barriers()->full[at.slot], at.parity, STEP_AT_PIECE, at.slot);
    if (kDebug) waited += clock64() - since;
    return piece_at(at);
  }

  /* Whether that stage is loaded; the same in all lanes. */
  __device__ __forceinline__ bool piece_is_there(const RingAt &at) const {
    return __all_sync(~0u, barrier_test(&barriers()->full[at.slot], at.parity));
  }
};

template <bool kDebug> struct Block : Thread<Share, Barriers, kDebug> {
  using Base = Thread<Share, Barriers, kDebug>;
  using Base::args, Base::state;

  __device__ __forceinline__ float *x() const { return (float *)(state + args().plan.at.x); }
  __device__ __forceinline__ float *sums(const Share &share) const {
    return (float *)(state + share.sums_at);
  }
  __device__ __forceinline__ float *squares() const { return (float *)(state + args().plan.at.small); }
  __device__ __forceinline__ float *residual() const { return (float *)(state + args().plan.at.residual); }
  __device__ __forceinline__ float2 *rope() const {
    return (float2 *)(squares() + args().plan.shape.hidden / 32);
  }
  /* 1 / rms of the x of gate and up. */
  __device__ __forceinline__ float &inverse() const { return *(float *)(state + STEP_BARRIER_BYTES + 12); }
  __device__ __forceinline__ unsigned char *planes() const { return state + args().plan.at.planes; }
  __device__ __forceinline__ float2 *scales() const { return (float2 *)(state + args().plan.at.scales); }
  /* Attention's output has planes of its own, since it is made from states that lie in the place of the
   * others. */
  __device__ __forceinline__ unsigned char *value_planes() const { return (unsigned char *)this->exchange(); }
  __device__ __forceinline__ float2 *value_scales() const {
    return (float2 *)(value_planes() + args().plan.heads_per_kv * 2 * STEP_GROUP);
  }
  __device__ __forceinline__ const unsigned char *planes_of(int matrix) const {
    return matrix == O ? value_planes() : planes();
  }
  __device__ __forceinline__ const float2 *scales_of(int matrix) const {
    return matrix == O ? value_scales() : scales();
  }
  __device__ __forceinline__ float *head_sums() const { return (float *)(rope() + STEP_HEAD_DIM / 2); }
};

__device__ __forceinline__ int log_2(int n) {
  return 31 - __clz(n);
}

/* Sets which tile rows and inputs of a matrix are a block's; for o and down n_rows tile rows from
 * `first_row` on. */
template <class Share>
__device__ __forceinline__ void place_share(Share &s, int matrix, const StepShape &shape, int first_unit,
                                            int n_units, int cluster, int rank, int first_row, int n_rows) {
  const int heads = shape.n_heads / shape.n_kv_heads;
  s.all_groups = s.n_groups = shape.hidden / STEP_GROUP;
  if (matrix == QKV) { /* one tile row of each head: the queries, then key and value */
    s.n_rows = heads + 2, s.split = heads;
    s.tile[0] = 8 * cluster * heads + rank, s.stride[0] = 8;
    s.tile[1] = 8 * (shape.n_heads + cluster) + rank, s.stride[1] = 8 * shape.n_kv_heads;
  } else if (matrix == GATE_UP) { /* two of the 16 tile rows of each FFN block */
    s.n_rows = s.split = 2 * n_units;
    s.tile[0] = 16 * first_unit + 2 * rank, s.stride[0] = 16, s.log_run = 1;
  } else {
    s.n_rows = s.split = n_rows;
    s.tile[0] = first_row, s.stride[0] = 1;
    s.all_groups = matrix == O ? shape.n_heads : shape.intermediate / STEP_GROUP;
    s.group = matrix == O ? cluster * heads : first_unit;
    s.n_groups = matrix == O ? heads : n_units;
  }
}

/* Called by one thread for each matrix, before a barrier of the block. */
template <bool kDebug> __device__ __forceinline__ void make_share(const Block<kDebug> &b, int matrix) {
  const StepPlan &p = b.args().plan;
  const StepShare &mine = p.shares[b.cluster()];
  const bool full = matrix == QKV || matrix == GATE_UP;
  const StepCut cut = full ? p.full : matrix == O ? p.o : mine.down;
  Share s = {};
  place_share(s, matrix, p.shape, mine.first_unit, mine.n_units, b.cluster(), b.rank(),
              b.rank() * p.slice / 16, p.slice / 16);
  s.sums_stride = matrix == QKV ? p.stride_qkv : matrix == GATE_UP ? mine.stride : p.stride_slice;
  s.sums_at = full ? p.at.x : p.at.sums;
  s.parts = cut.parts, s.groups = cut.groups, s.span = cut.span;
  s.log_k_warps = log_2(cut.k_warps), s.log_rows = log_2(cut.rows);
  s.inverse = (65535 + cut.parts) / cut.parts;
  s.next = STEP_TEAMS % cut.parts ? 0 : STEP_TEAMS / cut.parts * cut.rows * 16;
  s.pieces = ((s.n_rows + cut.rows - 1) >> s.log_rows) * cut.parts;
  s.run = run_of(s.pieces, p.n_slots);
  b.share(matrix) = s;
}

/* The number of this block's stages of keys: stages rank, rank + 8, ... of the cache. */
__device__ __forceinline__ int key_pieces(int pos, int rank) {
  return ((pos + STEP_KEYS - 1) / STEP_KEYS - rank + STEP_BLOCKS - 1) / STEP_BLOCKS;
}

/* A block multiplies the stages of lm_head from this one up to the next block's first. */
__device__ __forceinline__ int first_head_piece(const StepPlan &p, int block) {
  return (int)((long long)block * p.n_head_pieces / (p.shape.n_clusters * STEP_BLOCKS));
}

/* One column of the embedding of a token of the step. */
__device__ __forceinline__ float embedded(const Args &a, int row, int column) {
  const size_t at = (size_t)a.call.ids[row] * a.embedding_stride + column;
  return embedding_at(a.embedding, a.embedding_type, at) * a.embedding_scale;
}

/* The number in the matrix of the share's tile row i. */
template <class Share> __device__ __forceinline__ int tile_row(const Share &share, int i) {
  const bool second = i >= share.split;
  if (second) i -= share.split;
  return share.tile[second] + (i >> share.log_run) * share.stride[second] + (i & ((1 << share.log_run) - 1));
}

/* Whether the zeros of a tile row begin at an odd multiple of 8 bytes at the share's group g0. It is the
 * same for all tile rows, since matrices have an even number of groups. */
template <class Share> __device__ __forceinline__ bool zeros_are_odd(const Share &share, int g0) {
  return (share.group + g0) % 2 != 0;
}

__device__ __forceinline__ int first_group(const Share &share, int part) {
  return part * share.n_groups * share.inverse >> 16;
}

/* Bytes between the zeros of two tile rows in a stage of at most n groups: tiles [rows][n][1024], scales
 * [rows][n][32], zeros [rows][this stride]. A copy starts at a multiple of 16, so the first 8 bytes may
 * be another group's. */
__device__ __forceinline__ int zeros_stride(int n_groups) {
  return (n_groups * 8 + 16) & ~15;
}

} // namespace step

#endif
