/* block.cuh - per-thread context of a fused step: launch arguments, coordinates, shared-memory accessors,
 * and waits.
 *
 * kDebug: a wait that lasts too long ends the kernel and reports its place, and marks record the clock
 * (StepDebug). */
#pragma once

#include <type_traits>

#include "cuda/kernels/cache/cache_rows.cuh"
#include "cuda/kernels/fused/sizes/models.cuh"
#include "cuda/kernels/fused/step.h"
#include "cuda/kernels/linear/quantise.cuh"
#include "cuda/kernels/ops/elementwise.cuh"
#include "cuda/kernels/ops/ranking.cuh"
#include "cuda/kernels/ptx/cluster.cuh"
#include "cuda/kernels/ptx/waiting.cuh"

namespace step {

/* A matrix in the table of layers in device memory. A layer is an array of pointers (weight_ring.cuh): three
 * for each matrix, then three for experts. */
struct Matrix {
  /* FP4 and FP8: factors (plan.h) in place of zeros; FP8 that has only factors has no scales. int8 and fp16:
   * kMaps tensor maps in place of tiles; int8 also has the outputs' scales in place of zeros. */
  const unsigned char *tiles, *scales, *zeros;
};
enum { QKV, O, GATE_UP, DOWN, MATRICES, Q_B /* latent attention: between QKV and O */ };

/* Tensor maps of an int8 or fp16 matrix: map i has boxes of a tile row by i + 1 groups of inputs. int8:
 * [tile][16 rows][64 bytes], as tiles of FP8 lie; fp16: [tile][16 rows][128 bytes], in the 128-byte
 * swizzle. */
constexpr int kMaps = STEP_BYTES_SPAN * STEP_WARPGROUP_WARPS, kMapBytes = 128;

/* Words of Args.bounds: bounds of logits; at kLargestAt the largest |x| for int8 (one_bytes.cuh); at kOnesAt
 * fp16 scales of 1, for stages of FP8 weights without scales. kBoundsWords counts all of them. */
constexpr int kLargestAt = STEP_MAX_CLUSTERS * STEP_BLOCKS * STEP_WARPGROUPS,
              kOnesAt = kLargestAt + 2 * STEP_BLOCKS * STEP_MAX_CLUSTERS,
              kBoundsWords = kOnesAt + kMaps * 32 / 8;

struct Layer {
  Matrix matrices[MATRICES];
  const unsigned char *router;      /* fp16 or bf16 [n_experts][router_stride] */
  const unsigned char *shared_gate; /* gate of the shared expert: [hidden], of the router's type */
  const float *folded_router;       /* folded_router.h; one token */
};

/* The biases of a layer's varied experts (plan.h). */
struct VariedLayer {
  const float *gate_up_bias, *down_bias; /* of all experts, in the order of their outputs (linear.h) */
};
struct VariedArgs {
  const VariedLayer *layers;
  KSplit qkv;       /* step_qkv_split() */
  int window;       /* positions that layers with a window see, the token's own among them */
  uint64_t windows; /* bit l: layer l has a window */
};

/* From a block's rows of lm_head: the greatest logit with its token (ranked()), and the key of the lowest
 * logit (ranking.cuh). */
struct StepBest {
  unsigned long long greatest;
  unsigned int lowest;
};

enum { STEP_BEST_WORDS = STEP_MAX_CLUSTERS * STEP_BLOCKS * 2 }; /* of one GPU's blocks, in each GPU's mail */

/* Leaves the block's best logit in the mail of each GPU (StepPeers), from word best_at on:
 *
 *     uint64 [GPUs][blocks][2]      63 .. 32                   | 31 .. 0
 *                                   the greatest logit's key   | the step's turn
 *                                   its token                  | the same
 *
 * So each word shows by itself that it has come. If a logit is NaN, the key is the greatest of all. A step's
 * words are written only when all blocks of all GPUs have begun the step, and so have read the previous
 * words. */
__device__ __forceinline__ void leave_best(const StepPeers &peers, size_t best_at, unsigned turn,
                                           const StepBest &best) {
  const uint32_t key = best.lowest < SAMPLER_KEY_LOWEST ? ~0u : sampling::ranked_key(best.greatest);
  const size_t at = best_at + peers.rank * STEP_BEST_WORDS + 2 * blockIdx.x;
  for (int gpu = 0; gpu < max(peers.n, 1); gpu++) {
    store_peer(peers.mail[gpu] + at, (uint64_t)key << 32 | turn);
    store_peer(peers.mail[gpu] + at + 1, (uint64_t)(uint32_t)sampling::ranked_id(best.greatest) << 32 | turn);
  }
}

/* The best token that the n blocks of each GPU have left in the step with number `turn`, in all lanes of a
 * warp. Token 0 if there is no best token. */
__device__ __forceinline__ Sampled best_of_blocks(const StepPeers &peers, size_t best_at, unsigned turn,
                                                  int n, int lane) {
  constexpr int kOfLane = STEP_BEST_WORDS / 2 / 32;
  unsigned long long greatest = 0;
  unsigned int none = ~0u;
  for (int gpu = 0; gpu < max(peers.n, 1); gpu++) {
    const uint64_t *from = peers.mail[peers.rank] + best_at + gpu * STEP_BEST_WORDS;
    uint64_t key[kOfLane], id[kOfLane];
    Waiting waiting;
    bool whole;
    do {
      whole = true;
#pragma unroll
      for (int i = 0; i < kOfLane; i++) {
        const int at = 2 * (32 * i + lane);
        key[i] = id[i] = turn; /* past the last block: the least key */
        if (at < 2 * n) key[i] = load_peer(from + at), id[i] = load_peer(from + at + 1);
      }
#pragma unroll
      for (int i = 0; i < kOfLane; i++) whole = whole && (uint32_t)key[i] == turn && (uint32_t)id[i] == turn;
    } while (!whole && peers.n > 1 && !waiting.gives_up(peers, gpu));
#pragma unroll
    for (int i = 0; i < kOfLane; i++) {
      const unsigned long long own = sampling::ranked((uint32_t)(key[i] >> 32), (int)(id[i] >> 32));
      greatest = max(greatest, own);
    }
  }
  sampling::warp_extremes(&greatest, &none);
  const SampledKind kind = sampling::kind_of(sampling::ranked_key(greatest), SAMPLER_KEY_LOWEST);
  return {kind == SAMPLED_TOKEN ? sampling::ranked_id(greatest) : 0, kind};
}

__device__ __forceinline__ void store_pick(const StepPick &pick, Sampled best) {
  *pick.token = best.id;
  sampling::tell_host(pick.slot, best.id, best.kind);
}

/* A layer's matrices of latent attention; key_halves, value_halves: DeviceLayer. */
struct LatentLayer {
  Matrix q_b;
  const unsigned char *key_halves, *value_halves;
};
struct LatentArgs {
  const LatentLayer *layers;
  bool neighbours;       /* RopeConfig */
  float sum_plus, scale; /* ExpertConfig */
};

struct Args {
  StepPlan plan;
  StepCall call;
  const Layer *layers;
  const float *vectors; /* [n_layers + 1][vectors_stride]: struct Vectors */
  int vectors_stride;
  bool head_norms, bias;        /* head_norms: qkv has norms of heads; bias: it has a bias */
  const unsigned char *lm_head; /* half [vocab_size][hidden] */
  const void *embedding;
  size_t embedding_stride;
  Dtype embedding_type;
  int router_stride;
  bool router_is_bf16, renormalise;
  float embedding_scale, norm_eps, scale_log2; /* scale_log2: attention_scale * log2(e) */
  /* Stages in flight: in_flight, or one more if at least STEP_LONG positions are cached; never more than
   * most_in_flight. */
  int in_flight, most_in_flight;
  uint64_t *totals;            /* allreduce.cuh */
  int prefetch_stages;         /* one token: stages that prefetches may be ahead of loads; 0: no prefetches */
  float *residual;             /* several tokens: [n_clusters][tokens][hidden] */
  unsigned *launches;          /* several tokens: how many launches precede this one */
  size_t best_at;              /* one token: a parameter of leave_best() */
  const unsigned char *screen; /* one token: rows of lm_head in 8 bits (screen.h), or NULL */
  /* one token: [blocks][STEP_WARPGROUPS] {turn, key of a lower bound}, then the areas from kLargestAt on */
  uint64_t *bounds;
  unsigned turn; /* one token: this launch's number, from 1 */
  StepDebug debug;
  StepTaps taps;
  StepPeers peers; /* one token, on several GPUs */
  StepMixers mixers;
  VariedArgs varied;
  LatentArgs latent;
};

/* The kernel of one_token.cu for the shape's groups and heads, and those of few/tokens.cu for up to 2, 4 or 8
 * tokens. taps: kernels that copy the residual stream; none of them is for debugging. They are separate,
 * because a step without a drafter would have to pass over the copies. */
typedef void (*Kernel)(const Args);
Kernel one_token_kernel(const StepShape &shape, bool debug, bool taps);
Kernel few_tokens_kernel(const StepShape &shape, int tokens, bool debug, bool taps);
/* The kernels of few/sequences.cu, for rows of several sequences. */
Kernel few_sequences_kernel(const StepShape &shape, int tokens, bool debug);
/* The kernels of one_bytes.cu, for weights of 8 bits and in fp16. */
Kernel one_bytes_kernel(const StepShape &shape, bool debug);
/* The kernel of one_varied.cu, for varied experts (plan.h). */
Kernel one_varied_kernel(const StepShape &shape);
/* The kernel of one_latent.cu, for latent attention (plan.h). */
Kernel one_latent_kernel(const StepShape &shape);

/* A layer's vectors are contiguous, so that no thread waits for a pointer to them. Their order: norms of
 * attention and of the FFN, norms of a query and of a key, bias of qkv. Varied experts: then the biases of o
 * and of the router, and the sinks of the query heads. Latent attention: after the norm of the FFN the norms
 * of q_a and kv_a, and the biases of the experts' choice. The final norm follows the last layer. */
struct Vectors {
  const float *attn_norm, *mlp_norm, *q_norm, *k_norm, *bias;
  __device__ __forceinline__ Vectors(const Args &a, int hidden, int head_dim, int layer)
      : attn_norm(a.vectors + layer * a.vectors_stride), mlp_norm(attn_norm + hidden),
        q_norm(mlp_norm + hidden), k_norm(q_norm + head_dim), bias(k_norm + head_dim) {}
};

/* The barriers of a block; weight_ring.cuh draws full and empty. Where bytes come from the cluster's blocks,
 * one thread arrives: it has waited for the phase before, and announces this phase's bytes. The column
 * `phase` says what counts phases. Where it says `layer`, a hybrid's projections and states count only layers
 * where the cluster has heads; logits count only layers with experts. A wait names a phase modulo 2.
 *
 *   barrier       arrivals              bytes                       phase          who waits
 *   full[slot]    3: loading warps      the stage                   turn of slot   a warpgroup
 *   empty[slot]   4: warpgroup's warps  -                           turn of slot   loading warps
 *   x             1                     x and its squares           x_before()     16 warps that multiply
 *   projections   1                     q, k, v                     layer          the same
 *   states        1                     softmax states, outputs     layer          the same
 *   gated         1                     gated product               layer          the same
 *   columns       16: multiplying warps -                           layer          last warp
 *   logits        1                     keys of logits              layer          8 warps that choose
 *   routed        9: those 8, last warp -                           layer          loading, last, 16th warp
 *   values        1                     x of o (several tokens)     layer          16 warps that multiply
 *   squares[i]    1                     squares for qkv; gate, up   layer          warps of heads; last warp
 *
 * Several tokens: x has one phase, before lm_head; only warps that have a pack wait for states; chunks have
 * barriers of their own (few/matmul.cuh). Latent attention of one token: values are the heads' outputs;
 * squares[0] is for outputs of q_b, squares[1] for those of key_halves. */
struct Barriers {
  uint64_t full[STEP_MAX_SLOTS], empty[STEP_MAX_SLOTS];
  uint64_t x, projections, states, gated;
  uint64_t columns;            /* experts: the block's columns of the residual stream are written */
  uint64_t logits, routed;     /* experts: the router's logits have come; experts are chosen */
  uint64_t values, squares[2]; /* several tokens, and latent attention: see the table above */
};

/* A position in the ring: stage n is in slot n % n_slots, with the parity of n / n_slots. */
struct RingCursor {
  uint32_t slot, parity;
  /* PRECOND n <= n_slots. */
  __device__ __forceinline__ void move(int n, int n_slots) {
    slot += n;
    if ((int)slot >= n_slots) slot -= n_slots, parity ^= 1;
  }
};

/* How far a number of stages advances a RingCursor: by `slots`, and by the parity `turns`. */
struct RingRun {
  int slots, turns;
};

__device__ __forceinline__ RingRun run_of(int stages, int n_slots) {
  return {stages % n_slots, stages / n_slots % 2};
}

/* A block's share of one of a layer's matrices. It is computed once and kept in shared memory, so that no
 * warp has to divide integers later. */
struct Share {
  int n_rows, stages;                 /* n_rows: tile rows; stages: those of all splits */
  int n_groups, splits, groups, span; /* as in KSplit */
  int log_k_warps, log_rows;          /* log2 of KSplit's k_warps and rows */
  int splits_reciprocal;              /* 65536 / splits, rounded up: i / splits == i * this >> 16 */
  int tasks_at;                       /* offset in shared memory of its table of tasks */
  int next_sums; /* floats from a warp's sums to those of its next stage; 0: that is of another split */
  int all_groups, group; /* all_groups: of the matrix's inputs; group: the share's first */
  int log_run, split;    /* tile_row(): rows from `split` on have tile[1] and stride[1] */
  int tile[2], stride[2];
  RingRun run;
  int x_at, x_scales_at; /* offsets in shared memory of x as planes, and of its scales */
  /* sums_at: offset in shared memory of its sums; sums_stride: floats between those of split-K warps. */
  int sums_at, sums_stride;
};

/* The variables with which shared memory begins; StepOffsets has the rest. */
struct Vars {
  Barriers barriers;
  unsigned launches; /* several tokens: how many launches precede this one */
  int pos;           /* position of the token; several tokens: of the token whose heads this block makes */
  int page;          /* index in StepCall.pages of the first page of that token's sequence */
  unsigned loaded;   /* stages begun by the first loading warp; for prefetches and wait_until_loading() */
  float inverse;     /* one token: 1 / rms of the last x of qkv, or of gate and up */
  uint32_t sink;     /* a use for prefetched words that nothing reads (l2_prefetch.cuh) */
  int id;            /* one token: the id of the step's token */
  alignas(16) Share shares[MATRICES];
  RingRun keys_run; /* stages of this block's keys and values */
};
/* A hybrid's variables. */
struct MixVars {
  alignas(16) Share of_delta[2];     /* shares of qkv and o in layers of the delta rule */
  uint64_t mine;                     /* bit l: the cluster has heads in layer l */
  uint64_t x_has_come;               /* barrier: x of a layer of the delta rule, for the last warp */
  StepMix mixes[2];                  /* the cluster's heads in layers of attention; of the delta rule */
  int contributors[2];               /* step_mix_clusters() for both kinds of layers */
  int first_stage[MATRICES + 2];     /* index in the table of stages where each share_at() begins */
  RingRun states_run;                /* stages of this block's states */
  float gates[2 * STEP_DELTA_HEADS]; /* b of the cluster's value heads, then a, without the factor 1 / rms */
  float decay[STEP_DELTA_HEADS], beta[STEP_DELTA_HEADS];
};
/* The variables of latent attention. */
struct LatentVars {
  Share more[3];      /* gate and up of a layer without experts, q_b, down of such a layer */
  int first_stage[7]; /* as in MixVars */
};
static_assert(sizeof(MixVars) <= STEP_MIX_BYTES && sizeof(LatentVars) <= STEP_LATENT_BYTES,
              "the plan has room for them");
static_assert(sizeof(Vars) <= STEP_VARS_BYTES && sizeof(Args) % 4 == 0, "the plan has room for them");

/* Reports where a thread waits, and ends the kernel. */
static __device__ __noinline__ void report_hang(StepHang *h, int warp, int lane, int layer, int event,
                                                int number, int parity) {
  h->block = blockIdx.x, h->warp = warp, h->lane = lane, h->layer = layer;
  h->event = event, h->number = number, h->parity = parity;
  __threadfence_system();
  h->hung = 1;
  __threadfence_system();
  __trap();
}

/* Registers of a thread. A block starts with 96 for each of its 640 threads, because an SM has 65,536. */
constexpr int kMultiplyRegisters = 104, kOtherRegisters = 64;
static_assert(kMultiplyRegisters * STEP_THREADS + kOtherRegisters * (STEP_ALL_THREADS - STEP_THREADS) <=
                  96 * STEP_ALL_THREADS,
              "setmaxnreg would block");
static_assert(STEP_THREADS % 128 == 0 && STEP_ALL_THREADS % 128 == 0, "setmaxnreg is of whole warpgroups");

/* The form of model that a kernel is compiled for. Weights are in groups of kGroup inputs (StepShape.group:
 * some values mark FP4 and weights of 8 and 16 bits). Heads have kHeadDim numbers; the KV cache is in fp16 or
 * 8 bits. kShared: several GPUs share each layer. TheSizes: a model of sizes/models.cuh, or void. kOfSeveral:
 * rows of several sequences. kAttnGroup: kGroup for q, k, v and o; if it differs, the form is that of varied
 * experts (plan.h). */
template <int kGroup, int kHeadDim, bool kInQ8, bool kWithExperts = false, bool kWithTaps = false,
          bool kShared = false, class TheSizes = void, bool kOfSeveral = false, int kAttnGroup = kGroup>
struct Form {
  using Sizes = TheSizes;
  static constexpr bool kIsShared = kShared;
  /* Parts of a group of STEP_GROUP inputs, each with a scale and a zero point: 1, 2 or 4; FP4: 8, with a
   * scale; 8 and 16 bits: STEP_FP8_PARTS, STEP_INT8_PARTS or STEP_HALF_PARTS. */
  static constexpr int kParts = STEP_GROUP / kGroup, kAttnParts = STEP_GROUP / kAttnGroup;
  static constexpr int kDim = kHeadDim;
  static constexpr bool kQ8 = kInQ8;
  static constexpr bool kExperts = kWithExperts; /* a mixture of experts in place of a dense MLP */
  static constexpr bool kTaps = kWithTaps;       /* copies the residual stream after some layers */
  static constexpr bool kHybrid = kHeadDim == STEP_WIDE_HEAD; /* StepShape: a hybrid */
  static constexpr bool kLatent = kHeadDim == STEP_LATENT_HEAD;
  static constexpr bool kSeveral = kOfSeveral;
};

/* The part of the context that kernels of one token and of several share. */
template <bool kDebug, class TheForm> struct Thread {
  using Sizes = typename TheForm::Sizes;
  static constexpr bool kIsDebug = kDebug;
  static constexpr bool kIsShared = TheForm::kIsShared;
  static constexpr int kParts = TheForm::kParts, kDim = TheForm::kDim;
  static constexpr bool kExperts = TheForm::kExperts, kTaps = TheForm::kTaps, kHybrid = TheForm::kHybrid;
  static constexpr bool kLatent = TheForm::kLatent; /* latent attention (plan.h) */
  static constexpr bool kSeveral = TheForm::kSeveral;
  static constexpr int kAttnParts = TheForm::kAttnParts; /* of q, k, v and o; kParts: of the others */
  static constexpr bool kVaried = kAttnParts != kParts;  /* varied experts (plan.h) */
  static constexpr int kFeatures = kVaried ? (int)STEP_VARIED_FEATURES : (int)STEP_GROUP;
  static constexpr int kFactors = kVaried ? 2 : 1;     /* sets of factors of a tile row: two experts' */
  static constexpr bool kJoined = kExperts && kHybrid; /* the last choice is the shared expert, with a gate */
  /* One of several GPUs may have an odd number of an expert's FFN blocks (three of Qwen3-30B-A3B's six). Then
   * the zero points of every other tile row of down begin at an odd multiple of 8 bytes. */
  static constexpr bool kOddBlocks = kExperts && kIsShared && kParts == 1;
  static constexpr int kPackHeads = STEP_PACK / kDim;                 /* heads in a pack of outputs */
  static constexpr int kStateDim = kLatent ? (int)STEP_LATENT : kDim; /* dimensions of softmax states */
  static constexpr bool kQ8 = TheForm::kQ8;
  /* Positions in a stage of the cache. */
  static constexpr int kKeys = kHybrid || kLatent ? STEP_KEYS_256 : kQ8 ? STEP_KEYS_Q8 : STEP_KEYS;
  using CacheNumber = std::conditional_t<kQ8, uint8_t, __half>;
  unsigned char *smem; /* Vars and the areas of StepOffsets; the ring is before or after them */
  const Args &args;
  const StepPlan &plan;
  /* This warp's progress: layer (also the number of completed phases of a barrier with one phase a layer),
   * matrix, and slot and parity of the next stage. It is one register, because it is live throughout. */
  uint32_t progress;
  long long waited; /* kDebug: cycles waited for stages */

  /* The plan of the kernel's arguments, or an equal one as a constant (models.cuh). */
  static __device__ __forceinline__ const StepPlan &plan_of_form(const Args &args) {
    if constexpr (std::is_void<Sizes>::value)
      return args.plan;
    else
      return sized_plan<Sizes>;
  }

  /* step_qkv_split(), for varied experts. */
  __device__ __forceinline__ KSplit qkv_split() const {
    if constexpr (std::is_void<Sizes>::value)
      return args.varied.qkv;
    else
      return sized_qkv_split<Sizes>;
  }

  /* The model's hidden size. */
  __device__ __forceinline__ int width() const { return kVaried ? plan.shape.width : plan.shape.hidden; }

  /* Read from special registers at each use, here and below: kept values would take up registers. */
  __device__ __forceinline__ int warp() const { return threadIdx.x >> 5; }
  __device__ __forceinline__ int lane() const { return threadIdx.x & 31; }
  __device__ __forceinline__ int thread() const { return threadIdx.x; }

  /* Rank of the block in its cluster, and number of the cluster. */
  __device__ __forceinline__ int rank() const { return cluster_rank(); }
  __device__ __forceinline__ int cluster() const { return blockIdx.x / STEP_BLOCKS; }
  /* True if the cluster has heads of the current layer. */
  __device__ __forceinline__ bool has_kv_head() const {
    if constexpr (kHybrid)
      return layer() < STEP_HYBRID_LAYERS && mix_vars().mine >> layer() & 1;
    else
      return cluster() < plan.attending;
  }
  /* Counts the layers before the current one where the cluster has heads. PRECOND a hybrid, or
   * has_kv_head(). */
  __device__ __forceinline__ int layers_with_heads() const {
    if constexpr (kHybrid)
      return __popcll(mix_vars().mine & step_layers_before(layer()));
    else
      return layer();
  }
  /* A hybrid: is_delta() is true in layers of the delta rule; mix() has the cluster's heads in the current
   * layer. */
  __device__ __forceinline__ bool is_delta() const { return step_is_delta(&plan.shape, layer()); }
  __device__ __forceinline__ StepMix mix() const { return mix_vars().mixes[is_delta()]; }
  __device__ __forceinline__ MixVars &mix_vars() const { return *(MixVars *)(smem + plan.off.mixers); }
  /* The KV head of a cluster that attends. Several clusters may have the same one (StepPlan.log_sharers). */
  __device__ __forceinline__ int kv_head() const {
    if constexpr (kHybrid) return mix_vars().mixes[0].first_key;
    if constexpr (kLatent) return 0;
    return cluster() >> plan.log_sharers;
  }
  __device__ __forceinline__ int layer() const { return progress >> 12; }
  static constexpr uint32_t kMatrixBits = kLatent ? 7 : 3;
  __device__ __forceinline__ int matrix() const { return progress & kMatrixBits; }
  __device__ __forceinline__ RingCursor next() const { return {progress >> 3 & 255, progress >> 11 & 1}; }
  __device__ __forceinline__ void advance(const RingRun &run) {
    RingCursor to = next();
    to.parity ^= run.turns;
    to.move(run.slots, plan.n_slots);
    progress = opaque((progress & ~0xff8u) | to.slot << 3 | to.parity << 11);
  }
  /* Moves the warp's progress to a matrix of the current layer; MATRICES: to the next layer's first. */
  __device__ __forceinline__ void go_to(int matrix) {
    progress = opaque((progress & ~kMatrixBits) + (matrix == MATRICES ? 1u << 12 : matrix));
  }
  /* The matrix after the current one, for go_to(). */
  __device__ __forceinline__ int next_matrix() const {
    const int now = matrix();
    if constexpr (kLatent)
      if (now == QKV || now == Q_B) return now == QKV ? Q_B : O;
    return now + 1;
  }
  /* is_dense(): true in a layer without experts of a model that has them in others. expert_layer(): counts
   * the layers with experts before this one. */
  __device__ __forceinline__ bool is_dense() const { return kLatent && layer() < plan.shape.n_dense; }
  __device__ __forceinline__ int expert_layer() const { return layer() - (kLatent ? plan.shape.n_dense : 0); }

  /* Varied experts: a layer's biases of o [hidden] and of the router [n_experts], and its sinks [n_heads].
   * router_bias() of latent attention: the biases of the experts' choice. */
  __device__ __forceinline__ const float *o_bias(int layer) const {
    const StepShape &s = plan.shape;
    return Vectors(args, s.hidden, kDim, layer).bias + (s.n_heads + 2 * s.n_kv_heads) * kDim;
  }
  __device__ __forceinline__ const float *router_bias() const {
    if constexpr (kLatent) return vectors().q_norm + plan.shape.q_rank + STEP_LATENT;
    return o_bias(layer()) + plan.shape.hidden;
  }
  __device__ __forceinline__ const float *sinks() const { return router_bias() + plan.shape.n_experts; }
  /* Varied experts: the first position that the current layer sees from `pos`. */
  __device__ __forceinline__ int first_position(int pos) const {
    const bool has_window = args.varied.windows >> layer() & 1;
    return has_window ? max(pos + 1 - args.varied.window, 0) : 0;
  }

  /* Vectors of the warp's current layer. */
  __device__ __forceinline__ Vectors vectors() const { return {args, plan.shape.hidden, kDim, layer()}; }
  __device__ __forceinline__ Vars &vars() const { return *(Vars *)smem; }
  __device__ __forceinline__ Barriers &barriers() const { return vars().barriers; }
  __device__ __forceinline__ Share &share(int matrix) const { /* vars().shares would spill registers */
    if constexpr (kHybrid)
      if (matrix <= O && is_delta()) return mix_vars().of_delta[matrix];
    if constexpr (kLatent)
      if (matrix == Q_B || (matrix >= GATE_UP && is_dense())) return share_at(share_index(matrix));
    return ((Share *)(smem + offsetof(Vars, shares)))[matrix];
  }
  /* How many shares a block has. share_at() numbers them: first the shares of the matrices. In a hybrid the
   * shares of qkv and o in layers of the delta rule follow, with latent attention LatentVars.more. */
  static constexpr int kShares = kHybrid ? MATRICES + 2 : kLatent ? MATRICES + 3 : MATRICES;
  /* Latent attention: the index of a matrix's share in the current layer. */
  __device__ __forceinline__ int share_index(int matrix) const {
    return matrix >= GATE_UP && matrix <= DOWN && is_dense() ? 2 * matrix : matrix;
  }
  __device__ __forceinline__ LatentVars &latent_vars() const {
    return *(LatentVars *)(smem + plan.off.mixers);
  }
  __device__ __forceinline__ Share &share_at(int i) const {
    if constexpr (kHybrid)
      if (i >= MATRICES) return mix_vars().of_delta[i - MATRICES];
    if constexpr (kLatent)
      if (i >= MATRICES) return latent_vars().more[i - MATRICES];
    return ((Share *)(smem + offsetof(Vars, shares)))[i];
  }
  __device__ __forceinline__ float *exchange() const { return (float *)(smem + plan.off.exchange); }
  __device__ __forceinline__ __half *heads() const { return (__half *)(smem + plan.off.heads); }

  /* The row of the KV cache where the cluster's KV head begins in the current layer; with pages, where the
   * layer begins. */
  __device__ __forceinline__ size_t first_cache_row() const {
    const StepCall &c = args.call;
    const int cached = kHybrid ? __popcll(~plan.shape.delta_layers & step_layers_before(layer())) : layer(),
              n_heads = plan.shape.n_kv_heads;
    return c.pages ? (size_t)cached * n_heads * (c.n_pages * (int)KV_PAGE_TOKENS)
                   : ((size_t)cached * n_heads + kv_head()) * c.n_ctx;
  }
  /* The row of a position of the cluster's KV head in the pages of a layer, for a sequence whose pages begin
   * at first_page. */
  __device__ __forceinline__ size_t row_in_pages(int first_page, int position) const {
    return CacheRows(args.call.pages + first_page, plan.shape.n_kv_heads, kv_head(), KV_PAGE_TOKENS)
        .at(position);
  }
  /* The cache row of the token at vars().pos. */
  __device__ __forceinline__ size_t new_cache_row() const {
    const int position = vars().pos;
    return first_cache_row() + (args.call.pages ? row_in_pages(vars().page, position) : position);
  }

  /* The recurrent state of the current layer. delta_inputs(): inputs of the convolution; delta_state(): this
   * block's rows of a value head's state. */
  __device__ __forceinline__ float *delta_inputs() const {
    const int before = __popcll(plan.shape.delta_layers & step_layers_before(layer()));
    return args.call.states + before * args.mixers.state_floats;
  }
  __device__ __forceinline__ float *delta_state(int head) const {
    return delta_inputs() + args.mixers.input_floats +
           ((size_t)head * STEP_PACK + rank() * STEP_DELTA_ROWS) * STEP_PACK;
  }

  /* Ends the kernel if the wait since `since` has lasted too long. */
  __device__ __forceinline__ void check_patience(long long since, StepEvent event, int number,
                                                 int parity) const {
    if (clock64() - since < args.debug.patience) return;
    report_hang(args.debug.hang, warp(), lane(), layer(), event, number, parity);
  }

  /* Waits for a phase of a barrier. Stores by the cluster's other blocks (st.async) count as its bytes, as
   * bulk copies do, so the plain wait suffices. A wait that acquires at cluster scope would invalidate L1
   * each time. */
  __device__ __forceinline__ void wait_at(uint32_t barrier, int parity, StepEvent event,
                                          int number = 0) const {
    if (kDebug) {
      const long long since = clock64();
      while (!barrier_test(barrier, parity)) check_patience(since, event, number, parity);
    }
    barrier_wait(barrier, parity);
  }
  __device__ __forceinline__ void wait(uint64_t &barrier, int parity, StepEvent event, int number = 0) const {
    wait_at(shared_address(&barrier), parity, event, number);
  }
  /* Waits for phase n, from 0, and announces the bytes of the next phase. The block's first thread has to be
   * among the callers. */
  __device__ __forceinline__ void wait_again(uint64_t &barrier, int n, int bytes, StepEvent event) const {
    wait(barrier, n & 1, event);
    if (threadIdx.x == 0) barrier_expect(&barrier, bytes);
  }

  /* Barrier of the warps that multiply. Named barriers: 1 this one; 2 to 5 a warpgroup each; 6 the later half
   * of the warpgroups, which waits for the first half (matmul()); 7 the warps that choose experts. */
  __device__ __forceinline__ void sync() const { named_barrier_sync<1, STEP_THREADS>(); }

  __device__ __forceinline__ void record(int what, long long number) const {
    if (args.debug.marks && threadIdx.x == 0 && layer() < plan.shape.n_layers)
      args.debug.marks[((size_t)blockIdx.x * plan.shape.n_layers + layer()) * STEP_NUMBERS + what] = number;
  }
  __device__ __forceinline__ void mark(StepMark what) const {
    if (kDebug) record(what, clock64());
  }
  /* i: 0 at the beginning, 1 after the last layer, 2 at the end. */
  __device__ __forceinline__ void mark_whole(int i) const {
    if (kDebug && args.debug.whole_marks && threadIdx.x == 0)
      args.debug.whole_marks[3 * blockIdx.x + i] = clock64();
  }
  /* Records the cycles waited for stages of `what`: a matrix, or MATRICES for keys. */
  __device__ __forceinline__ void mark_waited(int what) {
    if (kDebug) record(STEP_WAITED + what, waited);
    waited = 0;
  }

  /* shared_address of the stage at a cursor, and of its slot's `empty` barrier. */
  __device__ __forceinline__ uint32_t stage_address(const RingCursor &cursor) const {
    return shared_address(smem) + plan.ring_at + cursor.slot * plan.slot_bytes;
  }
  __device__ __forceinline__ uint32_t empty_at(const RingCursor &cursor) const {
    return shared_address(&barriers().empty[cursor.slot]);
  }
  __device__ __forceinline__ unsigned char *stage(const RingCursor &cursor) const {
    return smem + plan.ring_at + (int)cursor.slot * plan.slot_bytes;
  }

  /* Waits until the stage at the cursor is loaded, and returns its shared_address. */
  __device__ __forceinline__ uint32_t wait_for_stage(const RingCursor &cursor) {
    long long since = kDebug ? clock64() : 0;
    wait(barriers().full[cursor.slot], cursor.parity, STEP_AT_STAGE, cursor.slot);
    if (kDebug) waited += clock64() - since;
    return stage_address(cursor);
  }

  /* True once the stage at the cursor is loaded. All lanes of a warp get the same answer. */
  __device__ __forceinline__ bool stage_is_full(const RingCursor &cursor) const {
    return __all_sync(~0u, barrier_test(&barriers().full[cursor.slot], cursor.parity));
  }
};

__device__ __forceinline__ void sync_warpgroup(int warpgroup) {
  constexpr int kThreads = 32 * STEP_WARPGROUP_WARPS;
  switch (warpgroup) {
  case 0: return named_barrier_sync<2, kThreads>();
  case 1: return named_barrier_sync<3, kThreads>();
  case 2: return named_barrier_sync<4, kThreads>();
  default: return named_barrier_sync<5, kThreads>();
  }
}

/* Sends 16 bytes of each of 1 << kLog neighbouring lanes to all blocks of the cluster. The other lanes hold
 * the same bytes in the same order, and send them to other blocks. */
template <int kLog>
__device__ __forceinline__ void send_to_cluster(const void *to, uint4 v, uint64_t &barrier, int lane) {
#pragma unroll
  for (int i = 0; i < STEP_BLOCKS; i += 32 >> kLog) {
    const int peer = (lane >> kLog) + i;
    send_16(peer_address(to, peer), v, peer_address(&barrier, peer));
  }
}

__device__ __forceinline__ int log_2(int n) {
  return 31 - __clz(n);
}

/* The share of o or down: n_rows tile rows from `first_row` on, times the inputs that the cluster makes. */
__device__ __forceinline__ void set_outputs(Share &s, int matrix, const StepPlan &p, int cluster,
                                            int first_row, int n_rows) {
  const StepShape &shape = p.shape;
  const int packs = p.o_packs, first = step_first_block(&shape, STEP_GROUP, cluster);
  s.n_rows = s.split = n_rows;
  s.tile[0] = first_row, s.stride[0] = 1;
  s.all_groups = matrix == O ? p.attending * packs : shape.intermediate / STEP_GROUP;
  s.group = matrix == O ? cluster * packs : first;
  s.n_groups = matrix == O ? packs : step_first_block(&shape, STEP_GROUP, cluster + 1) - first;
}

template <class B> __device__ __forceinline__ const StepPart &part_of(const B &b, int row) {
  const StepCall &c = b.args.call;
  int part = B::kSeveral ? c.n_parts - 1 : 0;
#pragma unroll 1
  while (part > 0 && c.parts[part].first > row) part--;
  return c.parts[part];
}

/* This block's place among the eight that take turns with the stages of a sequence's keys. Sequence i begins
 * with block i, so that short sequences are spread over all blocks. */
template <class B> __device__ __forceinline__ int key_rank(const B &b, int part) {
  return B::kSeveral ? (b.rank() - part) & (STEP_BLOCKS - 1) : b.rank();
}

/* The number of this block's stages of keys before position pos of a part's sequence: stages r, r + 8, ...,
 * where r is key_rank(). */
template <class B> __device__ __forceinline__ int key_stages(const B &b, int part, int pos) {
  return ((pos + B::kKeys - 1) / B::kKeys - key_rank(b, part) + STEP_BLOCKS - 1) / STEP_BLOCKS;
}

/* Varied experts: how many of this block's stages of keys before position pos the layer does not see. */
template <class B> __device__ __forceinline__ int unseen_key_stages(const B &b, int pos) {
  if constexpr (!B::kVaried)
    return 0;
  else
    return (b.first_position(pos) / B::kKeys - b.rank() + STEP_BLOCKS - 1) / STEP_BLOCKS;
}
/* This block's stages of keys before position pos that the current layer sees, in a step of one token. */
template <class B> __device__ __forceinline__ int seen_key_stages(const B &b, int pos) {
  return key_stages(b, 0, pos) - unseen_key_stages(b, pos);
}

/* A block's stages of keys, of all sequences, in the current layer. */
template <class B> __device__ __forceinline__ int all_key_stages(const B &b) {
  if constexpr (B::kSeveral)
    return b.spans().all;
  else if constexpr (B::kVaried)
    return seen_key_stages(b, b.args.call.parts[0].pos);
  else
    return key_stages(b, 0, b.args.call.parts[0].pos);
}
/* Positions in the cache, of all sequences. */
template <class B> __device__ __forceinline__ int cached_positions(const B &b) {
  if constexpr (B::kSeveral)
    return b.spans().positions;
  else
    return b.args.call.parts[0].pos;
}
/* i divided by the number of sequences. PRECOND i is at most 32, the number at most 8. */
template <class B> __device__ __forceinline__ int by_parts(const B &b, int i) {
  if constexpr (B::kSeveral)
    return i * b.spans().parts_reciprocal >> 8;
  else
    return i;
}

/* Goes through a block's stages of keys in the order in which they are loaded: the first stage of each
 * sequence that has one, then the second stage of each that has two, and so on. */
template <class B> struct KeyWalk {
  int part, round; /* the block's stage `round` of the keys of sequence `part` */

  __device__ __forceinline__ explicit KeyWalk(const B &b)
      : part(B::kSeveral ? b.args.call.n_parts - 1 : 0),
        round(B::kVaried ? unseen_key_stages(b, b.args.call.parts[0].pos) - 1 : -1) {}
  /* Goes to the next stage. PRECOND there is one. */
  __device__ __forceinline__ void next(const B &b) {
    if constexpr (B::kSeveral) {
      do
        if (++part == b.args.call.n_parts) part = 0, round++;
      while (round >= b.spans().of[part].stages);
    } else {
      round++;
    }
  }
  /* The first position of the stage. */
  __device__ __forceinline__ int position(const B &b) const {
    return (key_rank(b, part) + round * STEP_BLOCKS) * B::kKeys;
  }
};

/* With several tokens: the first stage of lm_head that a block multiplies; the block's last stage precedes
 * the next block's first. */
__device__ __forceinline__ int first_lm_head_stage(const StepPlan &p, int block) {
  return (int)((long long)block * p.n_lm_head_stages / (p.shape.n_clusters * STEP_BLOCKS));
}

/* One column of a token's embedding. */
__device__ __forceinline__ float embedded(const Args &a, int id, int column) {
  const size_t at = (size_t)id * a.embedding_stride + column;
  return embedding_at(a.embedding, a.embedding_type, at) * a.embedding_scale;
}

/* The index of this cluster's head `head` among all heads of the matrix qkv. A cluster's heads are its
 * queries, then key and value. */
template <class B> __device__ __forceinline__ int head_of_qkv(const B &b, int head) {
  const StepPlan &p = b.plan;
  const int queries = p.heads_per_kv;
  return head < queries    ? b.cluster() * queries + head
         : head == queries ? p.shape.n_heads + b.kv_head()
                           : p.shape.n_heads + p.shape.n_kv_heads + b.kv_head();
}

/* Operand a of mma number `step`, 0 or 1, from the lane's four words of 64 inputs (layout.cuh): words 0 and
 * 2, then 1 and 3. This needs no moves between registers. With parts of 32 inputs: words 0 and 1, then 2 and
 * 3, because a sum must not go beyond a part. x is stored in the same order. */
template <int kParts>
__device__ __forceinline__ void operand_of(const uint4 &tile, int step, uint32_t (&operand)[4]) {
  const uint32_t one = step ? (kParts == 4 ? tile.z : tile.y) : tile.x,
                 two = step ? tile.w : (kParts == 4 ? tile.y : tile.z);
  operand[0] = one & 0x0f0f0f0fu, operand[1] = one;
  operand[2] = two & 0x0f0f0f0fu, operand[3] = two;
}

/* The index of a layer's tap; -1: the layer has none, or the cluster is not the first. All clusters have the
 * same residual stream, so only the first copies taps. */
template <class B> __device__ __forceinline__ int tap_of(const B &b, int layer) {
  const uint64_t layers = b.args.taps.layers;
  if (layer < 0 || b.cluster() > 0 || !(layers >> layer & 1)) return -1;
  return __popcll(layers & ((1ull << layer) - 1));
}

/* 1 / rms of a head from its sum of squares. */
template <int kDim> __device__ __forceinline__ float inverse_of_squares(float squares, float eps) {
  return rsqrtf(squares / kDim + eps);
}

template <int kParts> constexpr bool kIsFp4 = kParts == STEP_FP4_PARTS;
template <int kParts> constexpr bool kIsInt8 = kParts == STEP_INT8_PARTS;
template <int kParts> constexpr bool kInBytes = step_in_bytes(kParts);
template <int kParts> constexpr bool kInRows = step_in_rows(kParts);
template <int kParts> constexpr bool kIsHalf = kParts == STEP_HALF_PARTS;
/* True for weights that have a factor for each output in place of zero points. */
template <int kParts> constexpr bool kHasFactors = kIsFp4<kParts> || kInBytes<kParts>;
/* True for weights without zero points, whose x is not in planes. */
template <int kParts> constexpr bool kHasNoZeros = kHasFactors<kParts> || kIsHalf<kParts>;

/* step_x_scales() */
template <int kParts> constexpr int kXScales = step_x_scales(kParts);

/* The offset of the lane's word within a group of quantised x. Each 64 inputs take half_bytes. In them the
 * words of the four lanes with the same t = lane % 4 are neighbours, in the order of operand_of(). FP4, FP8,
 * fp16: 8 bytes for each lane. */
template <int kParts> __device__ __forceinline__ int word_at(int lane, int half_bytes) {
  if (kHasNoZeros<kParts>) return lane * 8;
  const int t = lane & 3, g = lane >> 2;
  return (g >> 2) * half_bytes + t * 16 + (kParts == 4 ? (g & 3) * 4 : (g & 1) * 8 + (g & 2) * 2);
}

/* The number that the largest x of a group becomes in fp16. */
constexpr float kLargestHalf = 16384.0f;

/* The lane's four values (k, k + 8, k + 1, k + 9) of a group as fp16, relative to the largest of the group.
 * Returns their scale times W::kOfScale. Scales of weights of type W are divided by this factor as they are
 * read. */
template <class W> __device__ __forceinline__ float halves_of(const float (&v)[4], uint32_t (&word)[2]) {
  const float top = segment_max<32>(fmaxf(fmaxf(fabsf(v[0]), fabsf(v[1])), fmaxf(fabsf(v[2]), fabsf(v[3])))),
              inverse = __fdividef(kLargestHalf, fmaxf(top, 1e-30f));
  word[0] = pack_half2(v[0] * inverse, v[2] * inverse), word[1] = pack_half2(v[1] * inverse, v[3] * inverse);
  return top * (W::kOfScale / kLargestHalf);
}

/* Quantises the lane's four values (k, k + 8, k + 1, k + 9) of a group to its words of both planes. Returns
 * {scale, scale * sum} of the lane's part. FP4, FP8, fp16: halves, and their scale. */
template <int kParts>
__device__ __forceinline__ float2 group_words(const float (&v)[4], uint32_t (&word)[2]) {
  if constexpr (kHasNoZeros<kParts>) {
    return make_float2(halves_of<std::conditional_t<kIsFp4<kParts> || kIsHalf<kParts>, Fp4, Fp8>>(v, word),
                       0);
  } else {
    int sum;
    const float d = quantise_values<2, STEP_GROUP / kParts>(v, word, &sum);
    return make_float2(d, d * (float)sum);
  }
}

/* Stores the lane's words of a group at `to`. */
template <int kParts>
__device__ __forceinline__ void store_words(const uint32_t (&word)[2], unsigned char *to, int plane_bytes) {
  if constexpr (kHasNoZeros<kParts>) {
    *(uint2 *)to = make_uint2(word[0], word[1]);
  } else {
    *(uint32_t *)to = word[0];
    *(uint32_t *)(to + plane_bytes) = word[1];
  }
}

/* Quantises a group and stores its words. The result of group_words() for part i goes to scales[i * stride];
 * FP4, FP8, fp16: only the scale goes to scales->x. */
template <int kParts>
__device__ __forceinline__ void store_group(const float (&v)[4], unsigned char *to, int plane_bytes,
                                            float2 *scales, int stride, int lane) {
  constexpr int kLanes = 32 / kXScales<kParts>;
  uint32_t word[2];
  const float2 scale = group_words<kParts>(v, word);
  store_words<kParts>(word, to, plane_bytes);
  if (lane % kLanes > 0) return;
  if constexpr (kHasNoZeros<kParts>)
    scales->x = scale.x;
  else
    scales[lane / kLanes * stride] = scale;
}

/* Experts of a block; the last blocks may have fewer, or none. A block's experts are consecutive, from
 * folded_share() * rank on. The block multiplies their rows of the folded router and waits for their
 * logits. */
template <class B> __device__ __forceinline__ int folded_share(const B &b) {
  return (b.plan.shape.n_experts / 4 + STEP_BLOCKS - 1) / STEP_BLOCKS * 4;
}

/* Stages of the block's rows of the folded router. With latent attention folded_share() rows fill them, four
 * a stage; they come after the stages of o, and belong to the last warpgroups. */
template <class B> __device__ __forceinline__ int folded_stages(const B &b) {
  return B::kLatent ? folded_share(b) / 4 : (int)STEP_FOLDED_STAGES;
}

/* The row of the folded router that is row i in this block's stage `stage` (0 to 3), or -1 if there is none.
 * Rows 0 to 3 of the four stages are 16 consecutive rows, four a stage. In a hybrid rows 4 to 7 lie 16
 * further, and the last block also has the gate of the shared expert, in the last stage. */
template <class B> __device__ __forceinline__ int folded_row(const B &b, int stage, int i) {
  constexpr int kRows = B::kHybrid ? 8 : 4;
  const int own = 4 * (stage + i / 4 * STEP_FOLDED_STAGES) + i % 4, expert = folded_share(b) * b.rank() + own;
  if (i < kRows) return own < folded_share(b) && expert < b.plan.shape.n_experts ? expert : -1;
  const bool is_gate =
      B::kJoined && i == kRows && stage == STEP_FOLDED_STAGES - 1 && b.rank() == STEP_BLOCKS - 1;
  return is_gate ? b.plan.shape.n_experts : -1;
}

/* True if the zero points of the share's group g0 begin at an odd multiple of 8 bytes in a tile row. All tile
 * rows agree, because every matrix has an even number of groups. Only with kOddBlocks they differ
 * (odd_zeros()). */
template <int kParts> __device__ __forceinline__ bool zeros_are_odd(const Share &share, int g0) {
  return kParts == 1 && (share.group + g0) % 2 != 0;
}

/* Logarithms of the bytes of a group's tiles in a tile row of 16 outputs, and of kScaleBytes / 32. */
template <int kParts> constexpr int kLogTiles = kIsHalf<kParts> ? 12 : kInBytes<kParts> ? 11 : 10;
template <int kParts>
constexpr int kLogParts = kInBytes<kParts> || kIsHalf<kParts> ? 0
                          : kIsFp4<kParts>                    ? 2
                                                              : kParts / 2; /* kParts 1, 2, 4: 0, 1, 2 */

/* Bytes of a group's scales and zero points, in a tile row of 16 outputs. */
template <int kParts>
constexpr int kScaleBytes = kInRows<kParts>    ? 0
                            : kInBytes<kParts> ? 32
                                               : (kIsFp4<kParts> ? 16 : 32) * kParts;
template <int kParts> constexpr int kZeroBytes = kHasNoZeros<kParts> ? 0 : 8 * kParts;

/* Bytes between the zeros of two tile rows in a stage of at most n groups. A stage: tiles
 * [rows][n][1 << kLogTiles], scales [rows][n][kScaleBytes], zeros [rows][this stride]. A copy starts at a
 * multiple of 16, so with one part the first 8 bytes may be another group's. kHasFactors: factors
 * [rows][n_factors][STEP_FACTOR_BYTES] in place of zeros (Thread::kFactors). */
template <int kParts> __device__ __forceinline__ int zeros_stride(int n_groups, int n_factors = 1) {
  if (kHasFactors<kParts>) return n_factors * STEP_FACTOR_BYTES;
  if (kIsHalf<kParts>) return 0;
  return kParts == 1 ? (n_groups * 8 + 16) & ~15 : n_groups * kZeroBytes<kParts>;
}

} // namespace step
