/* one_experts.cuh - a mixture of experts in the step of one token: which experts the token takes.
 *
 * The chosen experts are one gated product, whose FFN blocks are those of one expert after another. So the
 * matmuls are those of dense layers; only the loading warps add to the table of stages where the chosen
 * experts lie (stages.cuh), and the gated product is multiplied by the expert's weight. The MLP beside a
 * hybrid's experts is its last choice, always the same; its weight is the sigmoid of its gate.
 *
 * Each cluster multiplies the whole router, in fp32. A block multiplies all rows by its own columns of x,
 * which it has before the other blocks have them, and sends its part of each logit to the cluster's blocks:
 *
 *     warp w, set s     rows 8 (16 s + w) .. + 7
 *     lane l            columns 256 i + 8 l .. + 7 of the block's
 *
 * Then each block adds up the parts and chooses, all blocks alike. An expert is chosen if fewer than n_routed
 * others are better. All 16 warps rank candidates: experts no worse than the n_routed-th best of the warps'
 * best ones. NaN counts as the largest or the smallest number, so that whatever is chosen is an expert. */
#pragma once

#include "cuda/fused/one_residual.cuh"
#include "cuda/fused/stages.cuh"

namespace step::one {

/* Sets of STEP_ROUTER_ROWS rows of the router in a warp, at most. */
template <class B> constexpr int kRouterSets = B::kHybrid ? 2 : 1;

/* A thread's parts of its sets of the router's rows, in registers: eight inputs of each row. The first set is
 * loaded before x has come. Loads of both at once would delay the wait for x, so the second set's are issued
 * when the block has sent x; they find the rows in L2 (prefetch_router()). */
template <class B> struct RouterSets { uint4 v[kRouterSets<B>][STEP_ROUTER_ROWS]; };

constexpr int kRouterStep = 256; /* inputs of a warp at once */

/* The first row of a warp's set; a set has STEP_ROUTER_ROWS rows or, past the last expert, none. */
template <class B> __device__ __forceinline__ int first_row(const B &b, int set) {
  return (set * STEP_WARPS + b.warp()) * STEP_ROUTER_ROWS;
}

/* True in the warp that multiplies the gate of the MLP beside the experts. */
template <class B> __device__ __forceinline__ bool has_gate(const B &b) {
  return B::kJoined && b.warp() == STEP_WARPS - 1;
}

/* The column of the thread's inputs, from `begin` on of the block's. */
template <class B> __device__ __forceinline__ int column_of(const B &b, int begin) {
  return b.rank() * b.plan.slice + min(begin + 8 * b.lane(), b.plan.slice - 8);
}

/* Loads the thread's inputs of a set's rows, those from `begin` on of the block's. */
template <class B>
__device__ __forceinline__ void load_set(const B &b, uint4 (&to)[STEP_ROUTER_ROWS], int set, int begin) {
  const int row = first_row(b, set);
  if (row >= b.plan.shape.n_experts) return;
  const unsigned char *at =
      b.routers()[b.layer()].rows + ((size_t)row * b.args.router_stride + column_of(b, begin)) * 2;
#pragma unroll
  for (int i = 0; i < STEP_ROUTER_ROWS; i++)
    to[i] = load_once((const uint4 *)at), at += b.args.router_stride * 2;
}

/* The thread's inputs of the gate, those from `begin` on of the block's. */
template <class B> __device__ __forceinline__ const unsigned char *gate_at(const B &b, int begin) {
  return b.routers()[b.layer()].shared_gate + column_of(b, begin) * 2;
}

/* Brings the next layer's router into L2, each block a part of it, by warps that have no columns of x where
 * hidden is 2,048 or less. */
template <class B> __device__ __forceinline__ void prefetch_router(const B &b) {
  const int line = (STEP_THREADS - 1 - b.thread()) * (int)gridDim.x + (int)blockIdx.x,
            bytes = b.plan.shape.n_experts * b.args.router_stride * 2;
  if (line * 128 < bytes && b.layer() + 1 < b.plan.shape.n_layers)
    prefetch_l1(b.routers()[b.layer() + 1].rows + line * 128);
}

/* Loads the first inputs of the first set. */
template <class B> __device__ __forceinline__ RouterSets<B> load_router(const B &b, bool wanted) {
  RouterSets<B> sets = {};
  if (!wanted) return sets;
  load_set(b, sets.v[0], 0, 0);
  if (has_gate(b)) prefetch_l1(gate_at(b, 0)); /* registers are few */
  if constexpr (B::kHybrid) prefetch_router(b);
  return sets;
}

/* Adds the product of eight weights and x. */
template <bool kBf16>
__device__ __forceinline__ void add_eight(float &sum, const uint4 &v, const float (&x)[8]) {
  const auto low = [](uint32_t w) { return kBf16 ? __uint_as_float(w << 16) : f16_low(w); };
  const auto high = [](uint32_t w) { return kBf16 ? __uint_as_float(w & 0xffff0000u) : f16_high(w); };
  sum += low(v.x) * x[0], sum += high(v.x) * x[1], sum += low(v.y) * x[2], sum += high(v.y) * x[3];
  sum += low(v.z) * x[4], sum += high(v.z) * x[5], sum += low(v.w) * x[6], sum += high(v.w) * x[7];
}

/* The same for each of n rows. Only this code is compiled for both types. */
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

/* Lanes that differ in kBit exchange halves of their 2 kN sums; each keeps one half, and adds the other's. */
template <int kBit, int kN> __device__ __forceinline__ void halve(float (&v)[STEP_ROUTER_ROWS]) {
  const bool upper = threadIdx.x & kBit;
#pragma unroll
  for (int i = 0; i < kN; i++) {
    const float given = upper ? v[i] : v[i + kN], kept = upper ? v[i + kN] : v[i];
    v[i] = kept + __shfl_xor_sync(~0u, given, kBit);
  }
}

/* Sums a set's numbers over the warp, and sends them to the cluster: lane l sends four to peer l % 8. */
template <class B>
__device__ __forceinline__ void send_set(const B &b, float (&sum)[STEP_ROUTER_ROWS], int set) {
  static_assert(STEP_ROUTER_ROWS == 8 && STEP_BLOCKS == 8, "three halvings, then a sum of four lanes");
  halve<16, 4>(sum), halve<8, 2>(sum), halve<4, 1>(sum);
  const float own = lanes_sum<2, 1>(sum[0]); /* of row lane / 4 */
  const int half = b.lane() & 16, peer = b.lane() & 7, row = first_row(b, set);
  const float4 four = {__shfl_sync(~0u, own, half), __shfl_sync(~0u, own, half + 4),
                       __shfl_sync(~0u, own, half + 8), __shfl_sync(~0u, own, half + 12)};
  if ((b.lane() & 8) == 0 && row < b.plan.shape.n_experts)
    send_16(peer_address(b.router_parts(b.rank()) + row + half / 4, peer), bits_of(four),
            peer_address(&b.barriers().logits, peer));
}

/* The thread's inputs from `begin` on of the block's; 0 past the last. */
template <class B> __device__ __forceinline__ void own_inputs(const B &b, float (&x)[8], int begin) {
  const int column = begin + 8 * b.lane();
  const bool any = column < b.plan.slice;
  const float4 *from = (const float4 *)(b.own_x() + (any ? column : 0));
  const float4 low = from[0], high = from[1];
  x[0] = any ? low.x : 0, x[1] = any ? low.y : 0, x[2] = any ? low.z : 0, x[3] = any ? low.w : 0;
  x[4] = any ? high.x : 0, x[5] = any ? high.y : 0, x[6] = any ? high.z : 0, x[7] = any ? high.w : 0;
}

/* Multiplies a set by the block's columns of x, and sends the block's parts of the logits, without the factor
 * 1 / rms, to the cluster. */
template <class B>
__device__ __forceinline__ void multiply_set(const B &b, uint4 (&rows)[STEP_ROUTER_ROWS], int set) {
  float sum[STEP_ROUTER_ROWS] = {};
#pragma unroll 1
  for (int begin = 0;;) {
    float x[8];
    own_inputs(b, x, begin);
    add_rows(b, sum, rows, x);
    begin += kRouterStep;
    if (begin >= b.plan.slice) break;
    load_set(b, rows, set, begin);
  }
  send_set(b, sum, set);
}

/* The same of the gate of the MLP beside the experts. */
template <class B> __device__ __forceinline__ void multiply_gate(const B &b) {
  float sum[1] = {};
#pragma unroll 1
  for (int begin = 0; begin < b.plan.slice; begin += kRouterStep) {
    const uint4 own[1] = {__ldg((const uint4 *)gate_at(b, begin))};
    float x[8];
    own_inputs(b, x, begin);
    add_rows(b, sum, own, x);
  }
  const float all = warp_sum(sum[0]);
  if (b.lane() < STEP_BLOCKS)
    send_4(peer_address(b.router_parts(b.rank()) + b.plan.shape.n_experts, b.lane()), __float_as_uint(all),
           peer_address(&b.barriers().logits, b.lane()));
}

/* A float's bits in the order of numbers; at least 1, and less than the largest integer. */
__device__ __forceinline__ uint32_t ordered(float v) {
  const uint32_t bits = __float_as_uint(v);
  return min(max(bits & 0x80000000u ? ~bits : bits | 0x80000000u, 1u), 0xfffffffeu);
}

/* An expert's logit, and the key by which experts are compared. */
struct Candidate {
  float logit;
  uint32_t key; /* 0: no expert */
};

/* Adds up the blocks' parts of the warp's experts' logits: kSharers lanes share an expert. Lane l gets expert
 * first + l % kEach; it and the warp's best key are in shared memory after the block's next barrier. */
template <class B> __device__ __forceinline__ Candidate add_logits(const B &b) {
  constexpr int kEach = kRouterSets<B> * STEP_ROUTER_ROWS, kSharers = 32 / kEach,
                kParts = STEP_BLOCKS / kSharers;
  static_assert(kSharers == 4 || kSharers == 2, "the lanes that share an expert");
  const int expert = b.warp() * kEach + b.lane() % kEach, part = b.lane() / kEach;
  const bool is_one = expert < b.plan.shape.n_experts;
  const float *from = b.router_parts(part * kParts) + (is_one ? expert : 0);
  const int stride = (int)(b.router_parts(1) - b.router_parts(0));
  Candidate own = {};
#pragma unroll
  for (int i = 0; i < kParts; i++) own.logit += from[i * stride];
  if constexpr (kSharers == 4) own.logit = lanes_sum<8>(own.logit);
  own.logit = lanes_sum<16>(own.logit);
  own.key = is_one ? ordered(own.logit) : 0;
  if (is_one && part == 0) b.logits()[expert] = own.logit, b.keys()[expert] = own.key;
  const uint32_t best = __reduce_max_sync(~0u, own.key);
  if (b.lane() == 0) b.best_keys()[b.warp()] = best;
  return own;
}

/* The n_routed-th largest of the warps' best keys, which no chosen expert's is below; 0 if fewer warps than
 * that have experts. */
template <class B> __device__ __forceinline__ uint32_t least_key(const B &b) {
  const uint32_t own = b.best_keys()[b.lane() % STEP_WARPS];
  int n = 0; /* keys that are no smaller than the lane's */
#pragma unroll
  for (int i = 0; i < STEP_WARPS; i += 4) {
    const uint4 four = *(const uint4 *)(b.best_keys() + i);
    n += (four.x >= own) + (four.y >= own) + (four.z >= own) + (four.w >= own);
  }
  return __reduce_max_sync(~0u, n >= b.n_routed() ? own : 0u);
}

/* Writes those of the warp's experts that are chosen, and their logits, at their ranks: the best is first; of
 * equal ones the first is the better. own: add_logits(), before a barrier of the block. */
template <class B> __device__ __forceinline__ void choose(const B &b, const Candidate &own) {
  constexpr int kEach = kRouterSets<B> * STEP_ROUTER_ROWS;
  const uint32_t least = max(least_key(b), 1u);
  uint32_t candidates = __ballot_sync(~0u, b.lane() < kEach && own.key >= least);
  if (candidates == 0) return;
  uint4 all[kRouterSets<B>];
#pragma unroll
  for (int set = 0; set < kRouterSets<B>; set++) {
    const int first = 128 * set + 4 * b.lane();
    const bool any = first < b.plan.shape.n_experts; /* a multiple of 8 */
    all[set] = *(const uint4 *)(b.keys() + (any ? first : 0));
    if (!any) all[set] = make_uint4(0, 0, 0, 0);
  }
#pragma unroll 1
  for (; candidates != 0; candidates &= candidates - 1) {
    const int lane = __ffs(candidates) - 1, expert = b.warp() * kEach + lane;
    const uint32_t key = __shfl_sync(~0u, own.key, lane);
    int better = 0;
#pragma unroll
    for (int set = 0; set < kRouterSets<B>; set++) {
      const int before = expert - 128 * set - 4 * b.lane(); /* so many of the lane's come before it */
      better += (all[set].x >= key + (before <= 0)) + (all[set].y >= key + (before <= 1)) +
                (all[set].z >= key + (before <= 2)) + (all[set].w >= key + (before <= 3));
    }
    const int rank = __reduce_add_sync(~0u, better);
    if (b.lane() == lane && rank < b.n_routed()) b.ids()[rank] = expert, b.chosen()[rank] = own.logit;
  }
}

/* Writes the weight of each FFN block of the cluster. For one warp, once the experts are chosen. */
template <class B> __device__ __forceinline__ void weigh(const B &b, float inverse) {
  const StepShape &s = b.plan.shape;
  const float best = b.chosen()[0];
  const auto exponential = [&](float logit) { return __expf((logit - best) * inverse); };
  const bool chosen = b.lane() < b.n_routed(), joined = B::kJoined && b.lane() == b.n_routed();
  float logit = chosen ? b.chosen()[b.lane()] : 0;
  if constexpr (B::kJoined) {
    const float gate = warp_sum(b.lane() < STEP_BLOCKS ? b.router_parts(b.lane())[s.n_experts] : 0);
    if (joined) logit = gate;
  }
  /* The MLP beside the experts has the sigmoid 1 / (1 + exp(-logit)). */
  const float own = joined ? __expf(-logit * inverse) : chosen ? exponential(logit) : 0;
  float all = joined ? 0 : own;
  if (!b.args.renormalise) {
    all = 0;
#pragma unroll 1
    for (int i = b.lane(); i < s.n_experts; i += 32) all += exponential(b.logits()[i]);
  }
  all = warp_sum(all);
  const float weight = __fdividef(joined ? 1 : own, joined ? 1 + own : all);
  const Share &share = b.share(DOWN);
  const float each = __fdividef(1, small_float(b.plan.expert_blocks));
#pragma unroll 1
  for (int i = b.lane(); i - b.lane() < share.n_groups; i += 32) {
    const int choice = (int)((small_float(share.group + i) + 0.5f) * each); /* (share.group + i) / blocks */
    const float of_block = __shfl_sync(~0u, weight, choice);
    if (i < share.n_groups) b.block_weights()[i] = of_block;
  }
}

/* Chooses the experts of the layer from the block's columns of x and what the other blocks make of theirs;
 * weigh() follows while the experts' weights are loaded. rows: load_router(). */
template <class B> __device__ __forceinline__ void route(B &b, RouterSets<B> &rows) {
  if constexpr (kRouterSets<B> == 2) load_set(b, rows.v[1], 1, 0);
  b.sync(); /* the block's columns of x */
#pragma unroll
  for (int set = 0; set < kRouterSets<B>; set++) multiply_set(b, rows.v[set], set);
  if (has_gate(b)) multiply_gate(b);
  b.wait_again(b.barriers().logits, b.layer(), b.logits_bytes(), STEP_AT_ROUTES);
  const Candidate own = add_logits(b);
  b.sync();
  choose(b, own);
  __syncwarp();
  if (b.lane() == 0) barrier_arrive(&b.barriers().routed);
}

} // namespace step::one
