/* screen.cu - see screen.h. A warp has a row. */
#include "cuda/kernels/fused/screen/screen.h"

#include <cuda_fp16.h>

#include "cuda/kernels/fused/screen/row_logit.cuh"
#include "cuda/kernels/ptx/eight.cuh"
#include "cuda/kernels/ptx/lanes.cuh"
#include "cuda/kernels/ptx/launch.cuh"

namespace {

constexpr int kThreads = 256, kRows = kThreads / 32;

__global__ void __launch_bounds__(kThreads)
    quantise_rows(const __half *w, int n_in, int n_out, unsigned char *screen) {
  const int row = blockIdx.x * kRows + threadIdx.x / 32, lane = threadIdx.x % 32;
  if (row >= n_out) return;
  const __half *from = w + (size_t)row * n_in;
  unsigned char *to = screen + (size_t)row * n_in;
  float most = 0;
  for (int i = 8 * lane; i < n_in; i += 256) {
    float own[8];
    unpack_halves(own, __ldg((const uint4 *)(from + i)));
    for (float v : own) most = fmaxf(most, fabsf(v));
  }
  most = lanes_max<16, 8, 4, 2, 1>(most);
  const float scale = most / 127, inverse = most > 0 ? 127 / most : 0;
  float lost = 0, squares = 0;
  for (int i = 8 * lane; i < n_in; i += 256) {
    float own[8];
    unpack_halves(own, __ldg((const uint4 *)(from + i)));
    alignas(8) int8_t q[8];
#pragma unroll
    for (int k = 0; k < 8; k++) {
      q[k] = (int8_t)__float2int_rn(own[k] * inverse);
      const float kept = scale * (float)q[k], error = own[k] - kept;
      lost += error * error, squares += kept * kept;
    }
    *(uint2 *)(to + i) = *(const uint2 *)q;
  }
  constexpr float kMore = 1 + 0x1p-10f;
  lost = sqrtf(warp_sum(lost)) * kMore;
  const float norm = sqrtf(warp_sum(squares)) * kMore + lost;
  if (lane == 0) ((float4 *)(screen + (size_t)n_out * n_in))[row] = make_float4(scale, lost, norm, 0);
}

template <bool kPart>
__global__ void __launch_bounds__(kThreads)
    all_logits(const unsigned char *w, const __half *x, int n_in, int n_out, float *logits) {
  begin_overlapping();
  const int row = blockIdx.x * kRows + threadIdx.x / 32, lane = threadIdx.x % 32;
  if (row >= n_out) return;
  const float logit = step::row_logit<kPart>(w + (size_t)row * n_in * 2, n_in, lane,
                                             [&](int first) { return *(const uint4 *)(x + first); });
  if (lane == 0) logits[row] = logit;
}

} // namespace

size_t screen_bytes(const StepShape *s) {
  return screen_tails_at(s->vocab_size, step_width(s)) + (size_t)s->vocab_size * STEP_SCREEN_TAIL;
}

Status screen_make(const DeviceLinear *head, void *screen, cudaStream_t stream, Error *err) {
  return launch(quantise_rows, dim3((unsigned)ceil_div(head->n_out, kRows)), kThreads, 0, stream, false,
                "lm_head in 8 bits", err, (const __half *)head->dense, head->n_in, head->n_out,
                (unsigned char *)screen);
}

Status screen_all_logits(const DeviceLinear *head, const void *x, float *logits, cudaStream_t stream,
                         Error *err) {
  const auto kernel = head->n_in % step::kSpan == 0 ? all_logits<false> : all_logits<true>;
  return launch(kernel, dim3((unsigned)ceil_div(head->n_out, kRows)), kThreads, 0, stream, true, "all logits",
                err, (const unsigned char *)head->dense, (const __half *)x, head->n_in, head->n_out, logits);
}
