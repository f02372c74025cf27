/* one_experts.cuh - a mixture of experts in the step of one token: which experts the token takes.
 *
 * The chosen experts are one gated product, whose FFN blocks are those of one expert after another. So the
 * matmuls are those of dense layers; only the table of stages says anew in each layer where they are loaded
 * from (stages.cuh), and the gated product is multiplied by the expert's weight. The MLP beside a hybrid's
 * experts is its last choice, always the same; its weight is the sigmoid of its gate.
 *
 * Each cluster multiplies the router as a whole, n_experts / 8 rows a block in fp32: a thread has four
 * inputs of all of them. Each block chooses by itself: only logits pass between blocks, within a cluster. NaN
 * counts as the largest or the smallest number, so that whatever is chosen is an expert. */
#pragma once

#include "cuda/fused/one_residual.cuh"
#include "cuda/fused/stages.cuh"

namespace step::one {

/* Sets of STEP_ROUTER_ROWS rows of the router in a block, at most. */
template <class B> constexpr int kRouterSets = B::kHybrid ? 2 : 1;

/* A thread's part of a set of the router's rows, in registers: four inputs of each row, so that a block reads
 * x from shared memory only once for a set. */
struct RouterSet {
  static constexpr int kRows = STEP_ROUTER_ROWS, kStep = 4 * STEP_THREADS; /* inputs of a block at once */
  uint2 v[kRows];
};

/* The thread's four inputs from k on in the first of a set's rows. */
template <class B> __device__ __forceinline__ const unsigned char *router_at(const B &b, int set, int k) {
  const int row = b.rank() * (b.plan.shape.n_experts / STEP_BLOCKS) + set * RouterSet::kRows;
  return b.routers()[b.layer()].rows +
         ((size_t)row * b.args.router_stride + min(k, b.plan.shape.hidden - 4)) * 2;
}

/* Goes from row i of a set to the next one; the block's last row is repeated. */
template <class B> __device__ __forceinline__ int router_step(const B &b, int set, int i) {
  return set * RouterSet::kRows + i + 1 < b.plan.shape.n_experts / STEP_BLOCKS ? 2 * b.args.router_stride : 0;
}

/* Loads a set of the layer's router, inputs from `begin` on. */
template <class B> __device__ __forceinline__ void load_set(const B &b, RouterSet &to, int set, int begin) {
  const unsigned char *from = router_at(b, set, begin + 4 * b.thread());
#pragma unroll
  for (int i = 0; i < RouterSet::kRows; i++)
    to.v[i] = load_once((const uint2 *)from), from += router_step(b, set, i);
}

/* Loads the first set. */
template <class B> __device__ __forceinline__ RouterSet load_router(const B &b, bool wanted) {
  RouterSet set = {};
  if (wanted) load_set(b, set, 0, 0);
  return set;
}

/* Brings the next layer's router into L2, each block a part of it, since not all rows are loaded early. */
template <class B> __device__ __forceinline__ void prefetch_router(const B &b) {
  const int line = (b.thread() - 32) * (int)gridDim.x + (int)blockIdx.x, /* not by the first warp */
      bytes = b.plan.shape.n_experts * b.args.router_stride * 2;
  if (line * 128 < bytes && b.layer() + 1 < b.plan.shape.n_layers)
    prefetch_l1(b.routers()[b.layer() + 1].rows + line * 128);
}

/* The product of four weights and x. */
template <bool kBf16> __device__ __forceinline__ float multiply_four(const uint2 &v, const float4 &x) {
  const auto low = [](uint32_t w) { return kBf16 ? __uint_as_float(w << 16) : f16_low(w); };
  const auto high = [](uint32_t w) { return kBf16 ? __uint_as_float(w & 0xffff0000u) : f16_high(w); };
  return (low(v.x) * x.x + high(v.x) * x.y) + (low(v.y) * x.z + high(v.y) * x.w);
}

/* The same for each of n words of weights. Only this code is compiled for both types. */
template <int n, class B>
__device__ __forceinline__ void multiply_fours(const B &b, const uint2 (&v)[n], const float4 &x,
                                               float (&product)[n]) {
  if (b.args.router_is_bf16) {
#pragma unroll
    for (int i = 0; i < n; i++) product[i] = multiply_four<true>(v[i], x);
  } else {
#pragma unroll
    for (int i = 0; i < n; i++) product[i] = multiply_four<false>(v[i], x);
  }
}

/* The thread's inputs from k on; 0 past the last. */
template <class B> __device__ __forceinline__ float4 inputs_at(const B &b, int k) {
  return k < b.plan.shape.hidden ? *(const float4 *)(b.x() + k) : make_float4(0, 0, 0, 0);
}

/* Lanes that differ in kBit exchange halves of their 2 kN sums; each keeps one half, and adds the other's. */
template <int kBit, int kN> __device__ __forceinline__ void halve(float (&v)[RouterSet::kRows]) {
  const bool upper = threadIdx.x & kBit;
#pragma unroll
  for (int i = 0; i < kN; i++) {
    const float given = upper ? v[i] : v[i + kN], kept = upper ? v[i + kN] : v[i];
    v[i] = kept + __shfl_xor_sync(~0u, given, kBit);
  }
}

/* Sums 16 numbers over the warp; lane l gets the sum of number l / 2. */
__device__ __forceinline__ float sums_by_lanes(float (&v)[RouterSet::kRows]) {
  static_assert(RouterSet::kRows == 16, "four halvings, then one sum");
  halve<16, 8>(v), halve<8, 4>(v), halve<4, 2>(v), halve<2, 1>(v);
  return lanes_sum<1>(v[0]);
}

/* Writes the warp's parts of the products of the block's rows, a set after the other. */
template <class B> __device__ __forceinline__ void multiply_router(const B &b, RouterSet &rows) {
  const int each = b.plan.shape.n_experts / STEP_BLOCKS;
#pragma unroll 1
  for (int set = 0, begin = 0;;) { /* inputs from `begin` on */
    const float4 x = inputs_at(b, begin + 4 * b.thread());
    const bool ends = begin + RouterSet::kStep >= b.plan.shape.hidden;
    const int next_set = set + ends, next = ends ? 0 : begin + RouterSet::kStep;
    const bool more = next_set * RouterSet::kRows < each;
    float sum[RouterSet::kRows];
    multiply_fours(b, rows.v, x, sum);
    if (more) load_set(b, rows, next_set, next);
    const float all = sums_by_lanes(sum);
    float *to = b.router_parts(set * RouterSet::kRows + b.lane() / 2) + b.warp();
    if (b.lane() % 2 == 0) *to = begin == 0 ? all : *to + all;
    if (!more) break;
    set = next_set, begin = next;
  }
}

/* The warp's part of the product of the gate of the MLP beside the experts. */
template <class B> __device__ __forceinline__ void multiply_gate(const B &b, uint2 gate) {
  float sum = 0;
#pragma unroll 1
  for (int k = 4 * b.thread();;
       gate = load_once((const uint2 *)(b.routers()[b.layer()].shared_gate + k * 2))) {
    const uint2 own[1] = {gate};
    float product[1];
    multiply_fours(b, own, inputs_at(b, k), product);
    sum += product[0];
    k += RouterSet::kStep;
    if (k >= b.plan.shape.hidden) break;
  }
  sum = warp_sum(sum);
  if (b.lane() == 0) b.router_parts(kRouterSets<B> * RouterSet::kRows)[b.warp()] = sum;
}

/* The sum of a row's parts. */
template <class B> __device__ __forceinline__ float sum_of_parts(const B &b, int row) {
  float sum = 0;
#pragma unroll
  for (int i = 0; i < STEP_WARPS; i += 4) {
    const float4 v = *(const float4 *)(b.router_parts(row) + i);
    sum += (v.x + v.y) + (v.z + v.w);
  }
  return sum;
}

/* Sends the logits of the block's rows to the cluster, without the factor 1 / rms: a thread for each row and
 * peer. The gate's product is left as the logit of the last choice. */
template <class B> __device__ __forceinline__ void send_logits(const B &b) {
  const int each = b.plan.shape.n_experts / STEP_BLOCKS, row = b.thread() / STEP_BLOCKS,
            peer = b.thread() % STEP_BLOCKS;
  if (row < each)
    send_4(peer_address(b.logits() + b.rank() * each + row, peer), __float_as_uint(sum_of_parts(b, row)),
           peer_address(&b.barriers().logits, peer));
  if (B::kJoined && b.thread() == STEP_THREADS - 1)
    b.chosen()[b.n_routed()] = sum_of_parts(b, kRouterSets<B> * RouterSet::kRows);
}

/* A float's bits in the order of numbers; at least 1. */
__device__ __forceinline__ uint32_t ordered(float v) {
  const uint32_t bits = __float_as_uint(v);
  return max(bits & 0x80000000u ? ~bits : bits | 0x80000000u, 1u);
}

/* Writes the experts that the router chooses and their logits, the best first; of equal ones the first is the
 * better. A lane has kOwn experts. For one warp, as the others would only take its turns at issuing. */
template <class B> __device__ __forceinline__ void choose(const B &b) {
  constexpr int kOwn = STEP_MAX_EXPERTS / 32 * kRouterSets<B>;
  const int first = b.lane() * kOwn;
  uint32_t keys[kOwn]; /* 0: none, or chosen */
#pragma unroll
  for (int i = 0; i < kOwn; i += 4) {
    const bool any = first + i < b.plan.shape.n_experts; /* a multiple of 8 */
    const float4 four = *(const float4 *)(b.logits() + (any ? first + i : 0));
    keys[i] = any ? ordered(four.x) : 0, keys[i + 1] = any ? ordered(four.y) : 0;
    keys[i + 2] = any ? ordered(four.z) : 0, keys[i + 3] = any ? ordered(four.w) : 0;
  }
#pragma unroll 1
  for (int choice = 0; choice < b.n_routed(); choice++) {
    uint32_t most = keys[0];
#pragma unroll
    for (int i = 1; i < kOwn; i++) most = max(most, keys[i]);
    const uint32_t best = __reduce_max_sync(~0u, most);
    const uint32_t lanes = __ballot_sync(~0u, most == best);
    bool mine = most == best && (lanes & ((1u << b.lane()) - 1)) == 0;
#pragma unroll
    for (int i = 0; i < kOwn; i++) {
      const bool is_it = mine && keys[i] == best;
      if (is_it) b.ids()[choice] = first + i, keys[i] = 0;
      mine = mine && !is_it;
    }
  }
  __syncwarp();
  if (b.lane() < b.n_routed()) b.chosen()[b.lane()] = b.logits()[b.ids()[b.lane()]];
}

/* Writes the weight of each FFN block of the cluster. For one warp, once the experts are chosen. */
template <class B> __device__ __forceinline__ void weigh(const B &b) {
  const StepShape &s = b.plan.shape;
  const float inverse = inverse_of_x(b), best = b.chosen()[0];
  const auto exponential = [&](float logit) { return __expf((logit - best) * inverse); };
  const bool chosen = b.lane() < s.n_chosen, joined = B::kJoined && b.lane() == b.n_routed();
  const float logit = chosen ? b.chosen()[b.lane()] : 0;
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

/* Chooses the experts of the layer, once x has come; weigh() follows while their weights are loaded. rows:
 * the first set of the router. */
template <class B> __device__ __forceinline__ void route(B &b, RouterSet &rows) {
  uint2 gate = {};
  if constexpr (B::kJoined)
    gate = load_once((const uint2 *)(b.routers()[b.layer()].shared_gate +
                                     2 * min(4 * b.thread(), b.plan.shape.hidden - 4)));
  b.wait(b.barriers().x, b.x_before(GATE_UP) & 1, STEP_AT_X);
  multiply_router(b, rows);
  if constexpr (B::kJoined) multiply_gate(b, gate);
  b.sync();
  send_logits(b);
  if (b.warp() == 0) {
    b.wait_again(b.barriers().logits, b.layer(), b.plan.shape.n_experts * 4, STEP_AT_ROUTES);
    choose(b);
    place_stages(b, b.ids());
    __syncwarp();
    if (b.lane() == 0) barrier_arrive(&b.barriers().routed);
  } else if constexpr (kRouterSets<B> > 1) {
    prefetch_router(b);
  }
}

} // namespace step::one
