/* short_conv.cu - see short_conv.h.   Reference: src/cpu/mixers/convolution.c. */
#include "cuda/kernels/ops/short_conv.h"

#include "cuda/kernels/ops/elementwise.cuh"
#include "cuda/kernels/ptx/launch.cuh"

namespace {

constexpr int kThreads = 256;

/* p of token `token` of the step; negative: of a token kept from before the step. */
__device__ __forceinline__ float input(const ShortConv &a, int pos, int token, int channel) {
  if (token >= 0) {
    const float *row = a.projections + (size_t)token * a.stride;
    return row[channel] * row[2 * a.hidden + channel];
  }
  return pos + token < 0 ? 0 : a.kept[(size_t)((pos + token) % a.n_taps) * a.hidden + channel];
}

/* Keeps a channel's p of the step's last n_taps tokens, or of all tokens if the step has fewer. */
__device__ __forceinline__ void keep(const ShortConv &a, int pos, int n_tokens, int channel) {
  for (int token = n_tokens < a.n_taps ? 0 : n_tokens - a.n_taps; token < n_tokens; token++)
    a.kept[(size_t)((pos + token) % a.n_taps) * a.hidden + channel] = input(a, pos, token, channel);
}

/* A thread takes a channel of up to SHORT_CONV_TOKENS tokens. If the step has no more tokens, the thread also
 * keeps the last p, after it has read the p kept before.
 * READS    12 bytes a token and channel, and again p of n_taps - 1 tokens, from L1; writes 2. */
__global__ void __launch_bounds__(kThreads) short_conv_kernel(ShortConv a, int n_tokens) {
  begin_overlapping();
  const int channel = blockIdx.x * kThreads + threadIdx.x,
            first = a.singles ? 0 : blockIdx.y * SHORT_CONV_TOKENS;
  if (channel >= a.hidden) return;
  if (a.singles) {
    const SingleRow single = a.singles[blockIdx.y];
    if (single.row < 0) return;
    a.pos += single.row, a.projections += (size_t)single.row * a.stride;
    a.kept += single.sequence * a.kept_step, a.out = (__half *)a.out + (size_t)single.row * a.out_stride;
  }
  const int pos = *a.pos, end = min(first + SHORT_CONV_TOKENS, n_tokens);
  const float *taps = a.taps + (size_t)channel * a.n_taps;
  for (int token = first; token < end; token++) {
    float sum = a.bias ? a.bias[channel] : 0;
    for (int t = 0; t < a.n_taps; t++) sum += taps[t] * input(a, pos, token - a.n_taps + 1 + t, channel);
    const float c = a.projections[(size_t)token * a.stride + a.hidden + channel];
    ((__half *)a.out)[(size_t)token * a.out_stride + channel] = clamp_half(c * sum);
  }
  if (gridDim.y == 1 || a.singles) keep(a, pos, n_tokens, channel);
}

__global__ void __launch_bounds__(kThreads) keep_kernel(ShortConv a, int n_tokens) {
  begin_overlapping();
  const int channel = blockIdx.x * kThreads + threadIdx.x;
  if (channel < a.hidden) keep(a, *a.pos, n_tokens, channel);
}

} // namespace

Status ops_short_conv(const ShortConv *conv, int n_tokens, cudaStream_t stream, Error *err) {
  const char *name = "short convolution";
  const unsigned blocks = (unsigned)ceil_div(conv->hidden, kThreads);
  const unsigned steps = (unsigned)(conv->singles ? conv->n_singles : ceil_div(n_tokens, SHORT_CONV_TOKENS));
  TRY(launch(short_conv_kernel, dim3(blocks, steps), kThreads, 0, stream, true, name, err, *conv, n_tokens));
  if (steps == 1 || conv->singles) return STATUS_OK;
  return launch(keep_kernel, blocks, kThreads, 0, stream, true, name, err, *conv, n_tokens);
}
