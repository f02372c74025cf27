/* one_experts.cuh - a mixture of experts in the step of one token: which experts the token takes.
 *
 * The chosen experts are one gated product, whose FFN blocks are those of one expert after another. So the
 * matmuls are those of dense layers; only the table of stages says anew in each layer where they are loaded
 * from (stages.cuh), and the gated product is multiplied by the expert's weight.
 *
 * Each cluster multiplies the router as a whole, n_experts / 8 rows a block in fp32, and each block chooses
 * by itself: only logits pass between blocks, within a cluster. An expert's rank is the number of better
 * ones; of equal ones the first is better. NaN leaves choices of an earlier layer, which are experts, too. */
#pragma once

#include "cuda/fused/one_residual.cuh"
#include "cuda/fused/stages.cuh"

namespace step::one {

/* A lane's inputs of the router's row of its warp, in registers. */
struct RouterRow {
  static constexpr int kLoads = 8, kStep = 256; /* inputs of a warp at once */
  uint4 v[kLoads];

  template <class B> static __device__ __forceinline__ int row_of(const B &b) {
    return min(b.warp(), b.plan.shape.n_experts / STEP_BLOCKS - 1);
  }

  template <class B>
  static __device__ __forceinline__ uint4 load_at(const B &b, const unsigned char *router, int k) {
    const int expert = b.rank() * (b.plan.shape.n_experts / STEP_BLOCKS) + row_of(b);
    const size_t at = (size_t)expert * b.args.router_stride + min(k, b.plan.shape.hidden - 8);
    return load_once((const uint4 *)(router + at * 2));
  }

  template <class B> __device__ __forceinline__ void load(const B &b) {
    const unsigned char *router = b.args.layers[b.layer()].router;
#pragma unroll
    for (int i = 0; i < kLoads; i++) v[i] = load_at(b, router, i * kStep + 8 * b.lane());
  }
};

template <class B> __device__ __forceinline__ RouterRow load_router_row(const B &b, bool wanted) {
  RouterRow row = {};
  if (wanted) row.load(b);
  return row;
}

/* The product of eight weights and x. */
template <bool kBf16> __device__ __forceinline__ float multiply_eight(const uint4 &v, const float *x) {
  const float4 low = *(const float4 *)x, high = *(const float4 *)(x + 4);
  const uint32_t words[4] = {v.x, v.y, v.z, v.w};
  const float inputs[8] = {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w};
  float sum = 0;
#pragma unroll
  for (int i = 0; i < 4; i++) {
    const float first = kBf16 ? __uint_as_float(words[i] << 16) : f16_low(words[i]),
                second = kBf16 ? __uint_as_float(words[i] & 0xffff0000u) : f16_high(words[i]);
    sum += first * inputs[2 * i] + second * inputs[2 * i + 1];
  }
  return sum;
}

/* The lane's part of the product of its warp's row and x. */
template <bool kBf16, class B>
__device__ __forceinline__ float multiply_row(const B &b, const RouterRow &row) {
  const int hidden = b.plan.shape.hidden;
  float sum = 0;
#pragma unroll
  for (int i = 0; i < RouterRow::kLoads; i++) {
    const int k = i * RouterRow::kStep + 8 * b.lane();
    if (i * RouterRow::kStep < hidden) sum += multiply_eight<kBf16>(row.v[i], b.x() + k);
  }
#pragma unroll 1
  for (int k = RouterRow::kLoads * RouterRow::kStep + 8 * b.lane(); k < hidden; k += RouterRow::kStep)
    sum += multiply_eight<kBf16>(RouterRow::load_at(b, b.args.layers[b.layer()].router, k), b.x() + k);
  return sum;
}

/* Sends the logit of the warp's expert to the cluster, without the factor 1 / rms. x has come. */
template <class B> __device__ __forceinline__ void send_logit(const B &b, const RouterRow &row) {
  const int each = b.plan.shape.n_experts / STEP_BLOCKS;
  const float sum =
      warp_sum(b.args.router_is_bf16 ? multiply_row<true>(b, row) : multiply_row<false>(b, row));
  if (b.warp() < each && b.lane() < STEP_BLOCKS)
    send_4(peer_address(b.logits() + b.rank() * each + b.warp(), b.lane()), __float_as_uint(sum),
           peer_address(&b.barriers().logits, b.lane()));
}

/* Writes the chosen experts and their logits, the best first: four threads count the experts that are better
 * than one. Each compares every fourth four of them. */
template <class B> __device__ __forceinline__ void choose(const B &b) {
  const int n = b.plan.shape.n_experts, e = min(b.thread() >> 2, n - 1);
  const float own = b.logits()[e];
  int rank = 0;
#pragma unroll 4
  for (int i = (b.thread() & 3) * 4; i < n; i += 16) {
    const float4 four = *(const float4 *)(b.logits() + i);
    const float others[4] = {four.x, four.y, four.z, four.w};
#pragma unroll
    for (int j = 0; j < 4; j++) rank += others[j] > own || (others[j] == own && i + j < e);
  }
  rank = lanes_sum<1, 2>(rank);
  if ((b.thread() & 3) == 0 && b.thread() >> 2 < n && rank < b.plan.shape.n_chosen)
    b.ids()[rank] = e, b.chosen()[rank] = own;
}

/* Writes the weight of each FFN block of the cluster. For one warp. */
template <class B> __device__ __forceinline__ void weigh(const B &b) {
  const StepShape &s = b.plan.shape;
  const float inverse = inverse_of_x(b), best = b.chosen()[0];
  const auto exponential = [&](float logit) { return expf((logit - best) * inverse); };
  const float own = b.lane() < s.n_chosen ? exponential(b.chosen()[b.lane()]) : 0;
  float all = own;
  if (!b.args.renormalise) {
    all = 0;
    for (int i = b.lane(); i < s.n_experts; i += 32) all += exponential(b.logits()[i]);
  }
  const float weight = own / warp_sum(all);
  const Share &share = b.share(DOWN);
  const int blocks = step_expert_blocks(&s);
  for (int i = 0; i < share.n_groups; i++) {
    const float of_block = __shfl_sync(~0u, weight, (share.group + i) / blocks);
    if (b.lane() == 0) b.block_weights()[i] = of_block;
  }
}

/* Chooses the experts of the layer, once x has come. */
template <class B> __device__ __forceinline__ void route(B &b, const RouterRow &row) {
  b.wait(b.barriers().x, b.x_before(GATE_UP) & 1, STEP_AT_X);
  send_logit(b, row);
  b.wait_again(b.barriers().logits, b.layer(), b.plan.shape.n_experts * 4, STEP_AT_ROUTES);
  choose(b);
  b.sync();
  place_stages(b, b.ids());
  __syncwarp();
  if (b.lane() == 0) barrier_arrive(&b.barriers().routed);
  if (b.warp() == STEP_WARPS - 1) weigh(b);
}

} // namespace step::one
