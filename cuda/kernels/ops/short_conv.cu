/* short_conv.cu - see short_conv.h.   Reference: src/cpu/mixers/convolution.c. */
#include "cuda/kernels/ops/short_conv.h"

#include "cuda/kernels/ops/elementwise.cuh"
#include "cuda/kernels/ptx/launch.cuh"

namespace {

constexpr int kThreads = 256;

/* p (short_conv.h) of token `token` of the step; negative: of a token kept from before the step. */
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

/* Moves the call's pointers to a segment; returns the position of its first row. */
__device__ __forceinline__ int take(ShortConv &a, const Segment &own) {
  a.projections += (size_t)own.row * a.stride, a.out = (__half *)a.out + (size_t)own.row * a.out_stride;
  a.kept += own.sequence * a.segments.state_step;
  return own.pos;
}

/* A thread takes a channel of up to SHORT_CONV_TOKENS tokens, or, with segments, of one row. If these are all
 * of the sequence's tokens in the step, the thread also keeps p of the last tokens, after it has read p that
 * earlier steps kept.
 * READS    12 bytes a token and channel, and again p of n_taps - 1 tokens, from L1; writes 2. */
__global__ void __launch_bounds__(kThreads) short_conv_kernel(ShortConv a, int n_tokens) {
  begin_overlapping();
  const int channel = blockIdx.x * kThreads + threadIdx.x;
  if (channel >= a.hidden) return;
  int pos, first = blockIdx.y * SHORT_CONV_TOKENS, end = min(first + SHORT_CONV_TOKENS, n_tokens);
  bool keeps = gridDim.y == 1;
  if (a.segments.device) {
    const Segment own = a.segments.device[a.segments.of_row[blockIdx.y]];
    if (own.row < 0) return;
    pos = take(a, own), first = (int)blockIdx.y - own.row, end = first + 1, keeps = own.n_tokens == 1;
  } else
    pos = *a.pos;
  const float *taps = a.taps + (size_t)channel * a.n_taps;
  for (int token = first; token < end; token++) {
    float sum = a.bias ? a.bias[channel] : 0;
    for (int t = 0; t < a.n_taps; t++) sum += taps[t] * input(a, pos, token - a.n_taps + 1 + t, channel);
    const float c = a.projections[(size_t)token * a.stride + a.hidden + channel];
    ((__half *)a.out)[(size_t)token * a.out_stride + channel] = clamp_half(c * sum);
  }
  if (keeps) keep(a, pos, end, channel);
}

/* Keeps p of the segments with several rows, or of a step of one sequence. Runs after short_conv_kernel(),
 * which reads what was kept before. blockIdx.y counts those segments; a thread has a channel. */
__global__ void __launch_bounds__(kThreads) keep_kernel(ShortConv a, int n_tokens) {
  begin_overlapping();
  const int channel = blockIdx.x * kThreads + threadIdx.x;
  if (channel >= a.hidden) return;
  int pos;
  if (a.segments.device) {
    const Segment own = a.segments.device[a.segments.n_singles + blockIdx.y];
    if (own.row < 0 || own.n_tokens == 1) return;
    pos = take(a, own), n_tokens = own.n_tokens;
  } else
    pos = *a.pos;
  keep(a, pos, n_tokens, channel);
}

} // namespace

Status ops_short_conv(const ShortConv *conv, int n_tokens, cudaStream_t stream, Error *err) {
  const char *name = "short convolution";
  const bool many = conv->segments.device != NULL;
  const unsigned blocks = (unsigned)ceil_div(conv->hidden, kThreads);
  const unsigned steps = (unsigned)(many ? n_tokens : ceil_div(n_tokens, SHORT_CONV_TOKENS)),
                 kept = (unsigned)(many ? conv->segments.n - conv->segments.n_singles : steps > 1);
  TRY(launch(short_conv_kernel, dim3(blocks, steps), kThreads, 0, stream, true, name, err, *conv, n_tokens));
  if (kept == 0) return STATUS_OK;
  return launch(keep_kernel, dim3(blocks, kept), kThreads, 0, stream, true, name, err, *conv, n_tokens);
}
