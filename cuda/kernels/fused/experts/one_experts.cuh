/* one_experts.cuh - a mixture of experts in the step of one token: which experts the token takes.
 *
 * The chosen experts act as one MLP, whose FFN blocks are those of one expert after another. So the matmuls
 * are those of dense layers, with two differences. The loading warps add the place of the chosen experts to
 * entries of the table of stages (stages.cuh). The gated product is multiplied by the expert's weight. A
 * shared expert is the last choice of every token. Its weight is the sigmoid of its gate; with latent
 * attention it is 1.
 *
 * The router's logits are sums over all clusters, of two kinds of terms (folded_router.h). R is the router, w
 * the norm's weights, r the residual stream, F the folded router, and a the output of attention:
 *
 *     R (w * r)   by the last warp of each block, while other warps make qkv and attend: a cluster multiplies
 *                 some rows of the router; each of its blocks takes the inputs in that block's columns
 *     F a         by the warps that multiply, just before o: a block multiplies some rows of the folded
 *                 router by its cluster's outputs. With latent attention just after o, by the warps that
 *                 choose, as that choice waits for x anyway
 *
 * Both are added to words of the all-reduce of o (allreduce.cuh). Each block waits for some of the logits and
 * sends them to its cluster. Then eight warps of each block choose, all blocks alike. Meanwhile the other
 * warps add o to the residual stream and make x. The barriers of a layer (block.cuh):
 *
 *     16 warps -> columns -> last warp: R (w * r), polls words -> logits of 8 blocks -> 8 warps: choose()
 *     8 warps and the last warp -> routed -> loading warps: gate and up; last warp; 16th warp: weigh()
 *
 * The best n_routed experts are chosen; of equal logits the first is the better. */
#pragma once

#include "cuda/kernels/fused/one_residual.cuh"
#include "cuda/kernels/fused/stages.cuh"

namespace step::one {

/* Sets of four rows of the folded router in each of a block's folded_stages() stages; a row belongs to one of
 * the block's experts. */
template <class B> constexpr int kQuads = B::kHybrid ? 2 : 1;

constexpr int kRouterStep = 256; /* inputs of the router that a warp multiplies at once */

/* The sum of the logits. A word gets F a from each cluster that attends. From the cluster that has its row of
 * the router it gets eight parts of R (w * r), one from each block. */
template <class B> __device__ __forceinline__ Sum sum_of_logits(const B &b) {
  Sum sum = sum_of(b, O, b.layer());
  sum.contributors += STEP_BLOCKS;
  return sum;
}

/* The word of a logit. Words of logits follow those of the columns of o. */
template <class B> __device__ __forceinline__ int word_of_logit(const B &b, int logit) {
  return b.plan.shape.hidden + logit;
}

template <class B> __device__ __forceinline__ void contribute_logit(const B &b, int logit, float part) {
  contribute(sum_of_logits(b).totals + word_of_logit(b, logit), part);
}

/* Lanes that differ in kBit exchange halves of their 2 kN sums. Each lane keeps one half, and adds the other
 * lane's numbers to it. */
template <int kBit, int kN, int kAll> __device__ __forceinline__ void halve(float (&v)[kAll]) {
  const bool upper = threadIdx.x & kBit;
#pragma unroll
  for (int i = 0; i < kN; i++) {
    const float given = upper ? v[i] : v[i + kN], kept = upper ? v[i + kN] : v[i];
    v[i] = kept + __shfl_xor_sync(~0u, given, kBit);
  }
}

/* Adds up n numbers of each lane over the warp: lane l gets the sum of number l / (32 / n). */
template <int n> __device__ __forceinline__ float sum_rows(float (&v)[n]) {
  static_assert(n == 1 || n == 2 || n == 8, "as there are kinds of calls");
  if constexpr (n == 1) return warp_sum(v[0]);
  if constexpr (n == 2) {
    halve<16, 1>(v);
    return lanes_sum<8, 4, 2, 1>(v[0]);
  } else {
    halve<16, 4>(v), halve<8, 2>(v), halve<4, 1>(v);
    return lanes_sum<2, 1>(v[0]);
  }
}

/* --- R (w * r): the router R times the residual stream r, multiplied by the norm's weights w */

/* Adds the dot product of eight weights and x. */
template <bool kBf16>
__device__ __forceinline__ void add_eight(float &sum, const uint4 &v, const float (&x)[8]) {
  const auto low = [](uint32_t w) { return kBf16 ? __uint_as_float(w << 16) : f16_low(w); };
  const auto high = [](uint32_t w) { return kBf16 ? __uint_as_float(w & 0xffff0000u) : f16_high(w); };
  sum += low(v.x) * x[0], sum += high(v.x) * x[1], sum += low(v.y) * x[2], sum += high(v.y) * x[3];
  sum += low(v.z) * x[4], sum += high(v.z) * x[5], sum += low(v.w) * x[6], sum += high(v.w) * x[7];
}

/* add_eight() for each of n rows. Only this code is compiled for both types of a router, bf16 and fp16. */
template <int n, class B>
__device__ __forceinline__ void add_rows(const B &b, float (&sum)[n], const uint4 (&v)[n],
                                         const float (&x)[8]) {
  if (b.args.router_is_bf16) {
#pragma unroll
    for (int i = 0; i < n; i++) add_eight<true>(sum[i], v[i], x);
  } else {
#pragma unroll
    for (int i = 0; i < n; i++) add_eight<false>(sum[i], v[i], x);
  }
}

/* The lane's eight inputs, of the block's columns that follow `begin`: residual stream times the norm's
 * weight; 0 past the last column. */
template <class B> __device__ __forceinline__ void router_inputs(const B &b, float (&x)[8], int begin) {
  const int column = begin + 8 * b.lane();
  const bool any = column < b.plan.slice;
  const float *from = b.router_columns() + (any ? column : 0),
              *norm = b.vectors().mlp_norm + b.rank() * b.plan.slice + (any ? column : 0);
#pragma unroll
  for (int i = 0; i < 8; i += 4) {
    const float4 r = *(const float4 *)(from + i), w = __ldg((const float4 *)(norm + i));
    x[i] = any ? r.x * w.x : 0, x[i + 1] = any ? r.y * w.y : 0;
    x[i + 2] = any ? r.z * w.z : 0, x[i + 3] = any ? r.w * w.w : 0;
  }
}

/* Multiplies the block's columns of n rows, from `rows` on, and adds the results to logits from `first` on.
 * If several GPUs share the layer, only the first adds its product, because all have the same residual
 * stream. x: the lane's first inputs. */
template <int n, class B>
__device__ __forceinline__ void multiply_router(const B &b, float (&x)[8], const unsigned char *rows,
                                                int first) {
  const size_t stride = (size_t)b.args.router_stride * 2;
  float sum[n] = {};
  rows += b.rank() * b.plan.slice * 2;
  int last = b.plan.slice - 8; /* offset of the block's last eight inputs in a row; negative past a varied
                                * model's width, where x is 0 */
  if constexpr (B::kVaried) last = min(last, b.width() - b.rank() * b.plan.slice - 8);
#pragma unroll 1
  for (int begin = 0;;) {
    uint4 v[n];
#pragma unroll
    for (int i = 0; i < n; i++)
      v[i] = load_once((const uint4 *)(rows + i * stride + min(begin + 8 * b.lane(), last) * 2));
    if (b.plan.slice > kRouterStep) router_inputs(b, x, begin);
    add_rows(b, sum, v, x);
    begin += kRouterStep;
    if (begin >= b.plan.slice) break;
  }
  float own = sum_rows(sum);
  if (B::kIsShared && b.args.peers.rank > 0) own = 0;
  if (b.lane() % (32 / n) == 0) contribute_logit(b, first + b.lane() / (32 / n), own);
}

/* Adds R (w * r) to the logits: the cluster's rows of the router times the residual stream r in the block's
 * columns. w: the weights of the norm. */
template <class B> __device__ __forceinline__ void route_residual(const B &b) {
  const Layer &layer = b.args.layers[b.layer()];
  float x[8];
  router_inputs(b, x, 0);
#pragma unroll 1
  for (int row = b.cluster() * STEP_ROUTER_ROWS; row < b.plan.shape.n_experts;
       row += b.plan.shape.n_clusters * STEP_ROUTER_ROWS)
    multiply_router<STEP_ROUTER_ROWS>(b, x, layer.router + (size_t)row * b.args.router_stride * 2, row);
  if constexpr (B::kJoined)
    if (b.cluster() == b.plan.shape.n_clusters - 1)
      multiply_router<1>(b, x, layer.shared_gate, b.plan.shape.n_experts);
}

/* Prefetches from the next layer's router the cluster's rows, in the block's columns. */
template <class B> __device__ __forceinline__ void prefetch_router(const B &b) {
  if (b.layer() + 1 >= b.plan.shape.n_layers) return;
  const unsigned char *rows = b.args.layers[b.layer() + 1].router + b.rank() * b.plan.slice * 2;
#pragma unroll 1
  for (int row = b.cluster() * STEP_ROUTER_ROWS + b.lane() / 4; row < b.plan.shape.n_experts;
       row += b.plan.shape.n_clusters * STEP_ROUTER_ROWS)
    for (int at = b.lane() % 4 * 64;
         at < (B::kVaried ? min(b.plan.slice, b.width() - b.rank() * b.plan.slice) : b.plan.slice); at += 256)
      prefetch_l1(rows + ((size_t)row * b.args.router_stride + at) * 2);
}

/* --- F a: the folded router F times the cluster's outputs a of attention or of the delta rule */

/* The stage of the warpgroup's rows of the folded router. */
template <class B> __device__ __forceinline__ RingCursor folded_stage(const B &b) {
  RingCursor cursor = b.next();
  cursor.move((b.warp() >> 2) - (STEP_WARPGROUPS - folded_stages(b)), b.plan.n_slots);
  return cursor;
}

/* The warpgroup's first stage of a matrix. The stages of the folded router come before those of o, but with
 * latent attention after them. */
template <class B> __device__ __forceinline__ RingCursor first_stage(const B &b, int matrix) {
  RingCursor cursor = b.next();
  if (B::kExperts && !B::kLatent && matrix == O) cursor.move(STEP_FOLDED_STAGES, b.plan.n_slots);
  cursor.move(b.warp() >> 2, b.plan.n_slots);
  return cursor;
}

/* True if first_stage() is loaded. The parity of its barrier is valid only when the warpgroup's previous
 * stage has been loaded (step.cu, set_in_flight()). */
template <class B>
__device__ __forceinline__ bool first_is_full(const B &b, int matrix, const RingCursor &cursor) {
  if constexpr (B::kExperts && !B::kLatent)
    if (matrix == O && !b.stage_is_full(folded_stage(b))) return false;
  return b.stage_is_full(cursor);
}

/* Multiplies the cluster's outputs by the folded router, and adds the results to the logits. A warp has a
 * row, in hybrids two; one warp also has the row of the shared expert's gate. */
template <class B> __device__ __forceinline__ void route_outputs(B &b) {
  const int n_groups = b.share(O).n_groups, row = b.warp() & 3,
            stage = (b.warp() >> 2) - (STEP_WARPGROUPS - folded_stages(b));
  if constexpr (B::kLatent)
    if (stage < 0) return b.advance(run_of(folded_stages(b), b.plan.n_slots));
  const RingCursor cursor = folded_stage(b);
  const bool has_gate = B::kJoined && folded_row(b, stage, 4 * kQuads<B> + row) >= 0;
  b.wait_for_stage(cursor);
  const float4 *x = (const float4 *)b.outputs() + b.lane(),
               *rows = (const float4 *)b.stage(cursor) + row * n_groups * 32 + b.lane();
  const int quad_stride = 4 * n_groups * 32;
  const auto product = [](const float4 &w, const float4 &v) {
    return (w.x * v.x + w.y * v.y) + (w.z * v.z + w.w * v.w);
  };
  float sum[kQuads<B>] = {}, gate = 0;
#pragma unroll 2
  for (int i = 0; i < n_groups; i++) {
    const float4 own = x[32 * i];
#pragma unroll
    for (int quad = 0; quad < kQuads<B>; quad++) sum[quad] += product(rows[quad * quad_stride + 32 * i], own);
    if (has_gate) gate += product(rows[kQuads<B> * quad_stride + 32 * i], own);
  }
  b.advance(run_of(folded_stages(b), b.plan.n_slots));
  const float own = sum_rows(sum);
  constexpr int kLanes = 32 / kQuads<B>;
  const int logit = folded_row(b, stage, 4 * (b.lane() / kLanes) + row);
  if (b.lane() % kLanes == 0 && logit >= 0) contribute_logit(b, logit, own);
  if (has_gate) {
    gate = warp_sum(gate);
    if (b.lane() == 0) contribute_logit(b, b.plan.shape.n_experts, gate);
  }
  __syncwarp(); /* the sums over the warp have waited for all loads from the stage */
  if (b.lane() == 0) barrier_arrive(b.empty_at(cursor));
}

/* --- the choice */

/* A logit as an integer key: larger logits have larger keys. The low five bits are 31 minus the expert's
 * number among its block's experts, so no two experts of a block have the same key. Logits that differ only
 * in their last five bits count as equal, and the first of them wins. NaN counts as the largest number; with
 * a sign, as the smallest. Every key is larger than 31 and less than ~0. */
constexpr uint32_t kExpertBits = 31;
__device__ __forceinline__ uint32_t key_of(float logit, int expert) {
  const uint32_t bits = __float_as_uint(logit), ordered = bits & 0x80000000u ? ~bits : bits | 0x80000000u;
  return (min(max(ordered, 0x20u), 0xffffffdfu) & ~kExpertBits) | (kExpertBits - expert);
}
__device__ __forceinline__ float logit_of(uint32_t key) {
  const uint32_t ordered = (key & ~kExpertBits) | 16;
  return __uint_as_float(ordered & 0x80000000u ? ordered & 0x7fffffffu : ~ordered);
}

/* Waits for the logits of this block's experts (folded_share()), and sends their keys to the cluster. The
 * last block has the gate of the shared expert, too. */
template <class B> __device__ __forceinline__ void send_logits(const B &b) {
  const int n_experts = b.plan.shape.n_experts, first = folded_share(b) * b.rank(),
            n = min(folded_share(b), n_experts - first); /* a multiple of 4 */
  const bool has_gate = B::kJoined && b.rank() == STEP_BLOCKS - 1;
  if (n <= 0 && !has_gate) return;
  /* No two blocks of a cluster poll the same word: each poll overwrites what the cluster keeps of that word
   * for its next use (`last` in allreduce.cuh). */
  const int word = word_of_logit(b, n > 0 ? first + min(b.lane(), n - 1) : n_experts);
  float logit[1 + B::kJoined];
  if constexpr (B::kJoined)
    poll_sums<2>(b, sum_of_logits(b), {word, has_gate ? word_of_logit(b, n_experts) : word}, logit);
  else
    poll_sums<1>(b, sum_of_logits(b), {word}, logit);
  const int peer = b.lane() & 7;
  const uint32_t barrier = peer_address(&b.barriers().logits, peer), key = key_of(logit[0], b.lane());
#pragma unroll
  for (int i = 0; i < kQuads<B>; i++) {
    const int at = 4 * (4 * i + b.lane() / 8);
    const uint4 four = four_lanes(key, at);
    if (at < n) send_16(peer_address(b.keys() + first + at, peer), four, barrier);
  }
  if constexpr (B::kJoined)
    if (has_gate && b.lane() < STEP_BLOCKS)
      send_4(peer_address(b.keys() + n_experts, peer), __float_as_uint(logit[1]), barrier);
}

__device__ __forceinline__ float sigmoid_of(float logit) {
  return __fdividef(1, 1 + __expf(-logit));
}

/* Sorts the experts of block `of`, and writes the keys of the best as candidates: no other expert can be
 * chosen. For one warp: a lane counts how many of the block's experts are better than its own. Except in
 * hybrids a block has at most 16 experts. Lanes l and l + 16 then have the same expert, and each counts among
 * half of the experts. inverse: 1 / rms, the factor of a logit for varied experts and sigmoid scores. Varied
 * experts then add the router's bias; sigmoid scores take the sigmoid and add `bias`. */
template <class B> __device__ __forceinline__ void sort_share(const B &b, int of, float inverse, float bias) {
  constexpr int kExperts = 16 * kQuads<B>, kLanes = 32 / kExperts, kCompared = kExperts / kLanes;
  const int own = b.lane() % kExperts, half = b.lane() / kExperts, expert = folded_share(b) * of + own;
  const bool any = own < folded_share(b) && expert < b.plan.shape.n_experts;
  uint32_t key = any ? b.keys()[expert] : kExpertBits - own; /* less than the key of any expert */
  if constexpr (B::kVaried)
    if (any) key = key_of(logit_of(key) * inverse + __ldg(b.router_bias() + expert), own);
  if constexpr (B::kLatent)
    if (any) key = key_of(sigmoid_of(logit_of(key) * inverse) + bias, own);
  int better = 0;
#pragma unroll
  for (int i = 0; i < kCompared; i++) better += __shfl_sync(~0u, key, i + half * kCompared) > key;
  if (kLanes == 2) better += __shfl_xor_sync(~0u, better, 16);
  if (half == 0 && better < b.n_candidates()) b.candidates()[of * b.n_candidates() + better] = key;
}

/* Writes the chosen experts among block `of`'s candidates, each at its rank among all candidates. For one
 * warp, when all candidates have been written. Four lanes compare a candidate, each with the candidates of
 * two blocks. If logits are equal, that of the earlier block is better. */
template <class B> __device__ __forceinline__ void rank_candidates(const B &b, int of) {
  const int n = b.n_candidates(), part = b.lane() & 3;
#pragma unroll 1
  for (int first = 0; first < n; first += 8) {
    const int i = first + b.lane() / 4;
    const uint32_t key = b.candidates()[of * n + min(i, n - 1)], logit = key & ~kExpertBits;
    int rank = part == of / 2 ? i : 0; /* the block's own candidates are sorted: i are better */
#pragma unroll
    for (int j = 0; j < 2; j++) {
      const int block = 2 * part + j;
      const uint32_t least = block == of ? ~0u : block > of ? logit + kExpertBits + 1 : logit;
#pragma unroll 4
      for (int k = 0; k < n; k += 4) {
        const uint4 other = *(const uint4 *)(b.candidates() + block * n + k);
        rank += (other.x >= least) + (other.y >= least) + (other.z >= least) + (other.w >= least);
      }
    }
    rank = lanes_sum<1, 2>(rank);
    if (part == 0 && i < n && rank < b.n_routed()) {
      b.ids()[rank] = folded_share(b) * of + (int)(kExpertBits - (key & kExpertBits));
      b.chosen()[rank] = logit_of(B::kLatent ? b.keys()[b.ids()[rank]] : key);
    }
  }
}

/* Writes the chosen experts and their logits, the best first. For the last eight of the warps that multiply,
 * one for each block of the cluster. Up to a hidden size of 2,048 these warps own no columns of the residual
 * stream. With larger sizes their columns of x wait for the choice. With varied experts, and with sigmoid
 * scores (latent attention), the choice waits for x: logits are divided by its rms before biases are
 * added. */
template <class B> __device__ __forceinline__ void choose(const B &b) {
  const int of = b.warp() - (STEP_WARPS - STEP_BLOCKS);
  if (of < 0) return;
  if (b.is_dense()) {
    if (b.lane() == 0) barrier_arrive(&b.barriers().routed);
    return;
  }
  float bias = 0; /* of the lane's expert: read while logits are under way */
  if constexpr (B::kLatent)
    bias = __ldg(b.router_bias() + min(folded_share(b) * of + b.lane() % 16, b.plan.shape.n_experts - 1));
  b.wait(b.barriers().logits, b.expert_layer() & 1, STEP_AT_ROUTES);
  if (of == 0 && b.lane() == 0) barrier_expect(&b.barriers().logits, b.logits_bytes());
  float inverse = 1;
  if constexpr (B::kVaried || B::kLatent) {
    b.wait(b.barriers().x, b.x_before(GATE_UP) & 1, STEP_AT_X);
    inverse = inverse_of_x(b);
  }
  sort_share(b, of, inverse, bias);
  named_barrier_sync<7, 32 * STEP_BLOCKS>();
  rank_candidates(b, of);
  __syncwarp();
  if (b.lane() == 0) barrier_arrive(&b.barriers().routed);
}

/* Stages of gate and up that the last warp brings into L2. It does so as soon as the experts are known,
 * before the loading warps issue their first copies. With more stages, messages between blocks are late:
 * 30B-A3B makes 1,042 tokens/s with none, 1,048 with 2, and 1,037, 1,023 and 986 with 3, 4 and 8. */
constexpr int kPrefetched = 2;

/* A lane's part of the prefetch, in the first tile row of a stage: the tiles of stage i in lane 2 i, the
 * scales in lane 2 i + 1. */
struct Prefetch {
  const unsigned char *matrix;
  uint2 entry;
};

template <class B> __device__ __forceinline__ Prefetch prefetch_of_lane(const B &b) {
  const Matrix &m = b.args.layers[b.layer()].matrices[GATE_UP];
  int first = b.share(QKV).stages + b.share(O).stages;
  if constexpr (B::kHybrid) first = b.mix_vars().first_stage[GATE_UP];
  const int stage = min(b.lane() / 2, b.share(GATE_UP).stages - 1);
  return {b.lane() % 2 ? m.scales : m.tiles, load_shared_8(stage_entry(b, first + stage))};
}

template <class B> __device__ __forceinline__ void start_prefetch(const B &b, const Prefetch &own) {
  if (b.lane() >= 2 * kPrefetched) return;
  const int log_unit = b.lane() % 2 ? 5 + kLogParts<B::kParts> : kLogTiles<B::kParts>;
  const uint32_t groups = group_of_entry(b, own.entry);
  prefetch_bulk(own.matrix + ((size_t)(groups >> 5) << log_unit), (int)(groups & 31) << log_unit);
}

/* Prefetches the chosen experts' biases: of gate and up in the block's tile rows, of down in its columns. */
template <class B> __device__ __forceinline__ void prefetch_biases(const B &b) {
  const int first = b.rank() * b.plan.slice, n = min(b.plan.slice, b.width() - first);
#pragma unroll 1
  for (int i = b.lane(); i < b.share(GATE_UP).n_rows; i += 32) prefetch_l1(gate_up_bias(b, i));
#pragma unroll 1
  for (int i = 0; i < b.plan.shape.n_chosen; i++)
    for (int at = 32 * b.lane(); at < n; at += 1024)
      prefetch_l1(b.args.varied.layers[b.layer()].down_bias + b.ids()[i] * b.width() + first + at);
}

/* The last warp's part of a layer: computes logits, and prefetches the first stages of the chosen experts. */
template <class B> __device__ __forceinline__ void route(B &b) {
  b.wait(b.barriers().columns, b.layer() & 1, STEP_AT_ROUTES);
  if (b.is_dense()) {
    __syncwarp();
    if (b.lane() == 0) barrier_arrive(&b.barriers().routed);
    b.wait(b.barriers().routed, b.layer() & 1, STEP_AT_ROUTES);
    return;
  }
  route_residual(b);
  prefetch_router(b);
  const Prefetch prefetch = prefetch_of_lane(b);
  send_logits(b);
  __syncwarp();
  /* `routed` counts this warp, too, so that no other warp gets a layer ahead. */
  if (b.lane() == 0) barrier_arrive(&b.barriers().routed);
  b.wait(b.barriers().routed, b.layer() & 1, STEP_AT_ROUTES);
  if constexpr (!B::kLatent) start_prefetch(b, prefetch); /* LOG.md, "Experts of one token" */
  if constexpr (B::kVaried) prefetch_biases(b);
}

/* The weight of the lane's choice with sigmoid scores: a chosen expert's score times a factor; 1 for the
 * shared expert and in dense layers. `renormalise` divides the score by sum_plus plus all chosen scores. */
template <class B> __device__ __forceinline__ float weight_of_sigmoid(const B &b, float inverse) {
  const bool chosen = b.lane() < b.n_routed();
  const float score = chosen ? sigmoid_of(b.chosen()[b.lane()] * inverse) : 0, all = warp_sum(score),
              over = b.args.renormalise ? all + b.args.latent.sum_plus : 1;
  return chosen && !b.is_dense() ? __fdividef(score, over) * b.args.latent.scale : 1;
}

/* Waits for the choice of experts, then writes for each FFN block of the cluster the weight of its expert.
 * For one warp. */
template <class B> __device__ __forceinline__ void weigh(const B &b, float inverse) {
  if constexpr (B::kVaried) inverse = 1; /* sort_share() has multiplied logits by it */
  const StepShape &s = b.plan.shape;
  b.wait(b.barriers().routed, b.layer() & 1, STEP_AT_ROUTES);
  const bool chosen = b.lane() < b.n_routed(), joined = B::kJoined && b.lane() == b.n_routed();
  float best = b.chosen()[chosen ? b.lane() : 0];
#pragma unroll
  for (int i = 16; i > 0; i /= 2) best = fmaxf(best, __shfl_xor_sync(~0u, best, i));
  const auto exponential = [&](float logit) { return __expf((logit - best) * inverse); };
  const float logit = chosen ? b.chosen()[b.lane()] : joined ? __uint_as_float(b.keys()[s.n_experts]) : 0;
  /* The weight of the shared expert is the sigmoid 1 / (1 + exp(-logit)). */
  const float own = joined ? __expf(-logit * inverse) : chosen ? exponential(logit) : 0;
  float all = joined ? 0 : own;
  if (!B::kVaried && !B::kLatent && !b.args.renormalise) {
    all = 0;
#pragma unroll 1
    for (int i = b.lane(); i < s.n_experts; i += 32) all += exponential(logit_of(b.keys()[i]));
  }
  all = warp_sum(all);
  float weight = __fdividef(joined ? 1 : own, joined ? 1 + own : all);
  if constexpr (B::kLatent) weight = weight_of_sigmoid(b, inverse);
  const Share &share = b.share(DOWN);
  const float each = __fdividef(1, small_float(b.plan.expert_blocks));
  const int n = b.n_blocks();
  if constexpr (B::kVaried) { /* for biases of down (output_bias()), in place of the logits */
    __syncwarp();
    if (chosen) b.chosen()[b.lane()] = weight;
  }
#pragma unroll 1
  for (int i = b.lane(); i - b.lane() < n; i += 32) {
    const int choice = (int)((small_float(share.group + i) + 0.5f) * each); /* (share.group + i) / blocks */
    const float of_block = __shfl_sync(~0u, weight, choice);
    if (i < n) b.block_weights()[i] = of_block;
  }
}

} // namespace step::one
