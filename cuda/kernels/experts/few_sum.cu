/* few_sum.cu - adds up the parts that few.cu made for each token.
 *
 * out[token] (+)= sum over its choices of their parts, always in one order
 *
 * Where the next matmul takes int8 planes (linear/quantise.cuh; FewExperts.next), the kernel also makes
 * planes of the new rows, times the next norm's weight. */
#include "cuda/kernels/experts/few_list.cuh"
#include "cuda/kernels/linear/kernel.cuh"
#include "cuda/kernels/linear/quantise.cuh"
#include "cuda/kernels/ptx/launch.cuh"

namespace {

using few::kRows;

constexpr int kSumWarps = 4, kSumThreads = 32 * kSumWarps, kSumBatch = 8; /* kSumBatch: parts at once */

struct SumArgs {
  const int *first_parts, *n_parts; /* [n_choices] row of a choice's first part; number of its parts */
  int n_chosen;
  const float *parts;
  int n; /* numbers of a row */
  bool add;
  float *out;
  const float *norm; /* weight of the next RMSNorm; NULL: no planes */
  unsigned char *planes;
  float *squares; /* sums of squares for the norm: [n_tokens][units of kUnitIn outputs] */
};

/* A block adds up the parts of 128 outputs of a token; each warp takes every fourth part of the list. The
 * block takes little shared memory, so blocks of the next kernel can load their weights on the same SM. A
 * token's choices are of different experts, and a cluster's first item cuts at most one choice in two. So
 * there are at most n_chosen + EXPERTS_FEW_CLUSTERS parts. */
__global__ void __launch_bounds__(kSumThreads) sum_kernel(const SumArgs a) {
  __shared__ int rows[kMaxChosen + EXPERTS_FEW_CLUSTERS], n_rows;
  __shared__ float4 of_warps[kSumWarps - 1][32];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, unit = blockIdx.x, token = blockIdx.y;
  const int k = unit * kUnitIn + first_input_of(lane);
  const auto pair_at = [&](const float *row, int j) {
    return k + 8 * j < a.n ? __ldcg((const float2 *)(row + k + 8 * j)) : make_float2(0, 0);
  };
  begin_overlapping();
  static_assert(kMaxChosen <= 32, "a lane lists the parts of a choice");
  if (warp == 0) {
    const int choice = token * a.n_chosen + min(lane, a.n_chosen - 1);
    const int first = __ldcg(a.first_parts + choice),
              count = lane < a.n_chosen ? __ldcg(a.n_parts + choice) : 0, end = warp_sum_up_to(count);
    for (int p = 0; p < count; p++) rows[end - count + p] = first + p * kRows;
    if (lane == 31) n_rows = end;
  }
  __syncthreads();
  float2 sum[2] = {}, before[2] = {};
  float *const to = a.out + (size_t)token * a.n;
  if (warp == 0 && a.add) before[0] = pair_at(to, 0), before[1] = pair_at(to, 1);
  for (int r0 = warp; r0 < n_rows; r0 += kSumBatch * kSumWarps) {
    float2 v[kSumBatch][2];
#pragma unroll
    for (int i = 0; i < kSumBatch; i++) {
      const int r = r0 + i * kSumWarps;
#pragma unroll
      for (int j = 0; j < 2; j++)
        v[i][j] = r < n_rows ? pair_at(a.parts + (size_t)rows[r] * a.n, j) : make_float2(0, 0);
    }
#pragma unroll
    for (int i = 0; i < kSumBatch; i++)
#pragma unroll
      for (int j = 0; j < 2; j++) sum[j].x += v[i][j].x, sum[j].y += v[i][j].y;
  }
  if (warp > 0) of_warps[warp - 1][lane] = make_float4(sum[0].x, sum[0].y, sum[1].x, sum[1].y);
  __syncthreads();
  if (warp > 0) return;
#pragma unroll
  for (int w = 0; w < kSumWarps - 1; w++) {
    const float4 v = of_warps[w][lane];
    sum[0].x += v.x, sum[0].y += v.y, sum[1].x += v.z, sum[1].y += v.w;
  }
#pragma unroll
  for (int j = 0; j < 2; j++) {
    sum[j].x += before[j].x, sum[j].y += before[j].y;
    if (k + 8 * j < a.n) *(float2 *)(to + k + 8 * j) = sum[j];
  }
  if (!a.norm) return;
  float2 weights[2];
  read_pairs(a.norm, k, a.n, weights);
  const float squares = store_normed_unit<EXPERTS_PLANES_TOKENS, 1>(a.planes, unit, token, sum, weights);
  if (lane == 0) a.squares[token * gridDim.x + unit] = squares;
}

} // namespace

Status few::sum_parts(const FewExperts &call, int n_out, cudaStream_t stream, Error *err) {
  const LinearNext &next = call.next;
  const SumArgs args = {call.choices.places,
                        call.choices.choices,
                        call.gate_up->n_chosen,
                        call.parts,
                        n_out,
                        call.add,
                        call.out,
                        next.kind ? next.norm : nullptr,
                        (unsigned char *)next.planes,
                        next.kind ? linear_planes_squares(next.planes, n_out) : nullptr};
  return launch(sum_kernel, dim3((unsigned)ceil_div(n_out, kUnitIn), (unsigned)call.n_tokens), kSumThreads, 0,
                stream, true, "sum of experts of few tokens", err, args);
}
