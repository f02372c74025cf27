/* delta_plain.cu - the gated delta rule and Mamba-2 for heads of any size, token by token, and what
 * the other families use, too: storing the last inputs of the convolution, and the norms of outputs.
 *
 * All arithmetic is fp32. Reference: src/cpu/mixers/delta.c. */
#include "cuda/kernels/delta/delta_kernels.cuh"
#include "cuda/kernels/ptx/block_sum.cuh"

namespace {

constexpr int kThreads = 256, kWarps = kThreads / 32;

/* Numbers that a block of group_norm_kernel takes at once: one per thread with up to kNormFew tokens, else
 * four. One token of Nemotron 3 Nano takes 1.8 us with one number per thread, 2.6 us with four. 256 tokens
 * take 10.5 us with one, 6.1 us with four. */
constexpr int kNormNumbers = 512, kNormFew = 32;

/* Block (head, row) convolves the channels of a head of q, k or v, to [rows][channels] in the workspace. It
 * normalises q and k, except for Mamba-2. With by_channel each row has n_value_heads more blocks: each makes
 * the decays of a value head, in the projections. A block is a warp. */
__global__ void __launch_bounds__(32) convolve_kernel(DeltaArgs a) {
  begin_overlapping();
  const int part = blockIdx.x;
  if (a.segments && (!a.has_row(blockIdx.y) || !a.take(a.segment_of[blockIdx.y] - a.first_segment))) return;
  const int token = (int)blockIdx.y - a.first_row, pos = a.position();
  const int decaying = part - 2 * a.n_key_heads - a.n_value_heads;
  float *decays = a.row(token) + a.first_decay(decaying);
  for (int i = threadIdx.x; decaying >= 0 && i < a.key_dim; i += 32)
    decays[i] = a.channel_decay(decays[i], decaying, i);
  if (decaying >= 0) return;
  const bool is_value = part >= 2 * a.n_key_heads;
  const int width = is_value ? a.value_dim : a.key_dim;
  const int first = is_value               ? a.offsets.v + (part - 2 * a.n_key_heads) * a.value_dim
                    : part < a.n_key_heads ? a.offsets.q + part * a.key_dim
                                           : a.offsets.k + (part - a.n_key_heads) * a.key_dim;
  float *to = (float *)a.workspace + (size_t)blockIdx.y * a.channels + first, squares = 0;
  for (int i = threadIdx.x; i < width; i += 32) {
    float sum = a.conv_bias ? a.conv_bias[first + i] : 0;
    for (int t = 0; t < a.taps; t++) {
      const float *x = a.input(pos, token - a.taps + 1 + t, first + i);
      if (x) sum += a.conv[(size_t)(first + i) * a.taps + t] * *x;
    }
    to[i] = silu(sum);
    squares += to[i] * to[i];
  }
  if (is_value || a.mamba) return;
  const float scale = rsqrtf(warp_sum(squares) + kDeltaNormEps) * (part < a.n_key_heads ? a.q_scale : 1);
  for (int i = threadIdx.x; i < width; i += 32) to[i] *= scale;
}

/* A warp keeps the state's row of one value dimension in shared memory through all tokens. */
template <class S> __global__ void __launch_bounds__(kThreads) delta_plain_kernel(DeltaArgs a) {
  begin_overlapping();
  extern __shared__ float rows[];
  if (!a.take(blockIdx.z)) return;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, head = blockIdx.y,
            value = blockIdx.x * kWarps + warp;
  if (value >= a.value_dim) return;
  float *row = rows + warp * a.key_dim;
  const int first = (head * a.value_dim + value) * a.key_dim;
  S *kept = (S *)a.states + first;
  const bool empty = a.position() == 0;
  for (int i = lane; i < a.key_dim; i += 32) row[i] = empty ? 0 : (float)kept[i];
  for (int token = 0; token < a.n_tokens; token++) {
    const float *mixed = (const float *)a.workspace + (size_t)(a.first_row + token) * a.channels,
                *q = mixed + a.offsets.q + head / a.group * a.key_dim,
                *k = mixed + a.offsets.k + head / a.group * a.key_dim;
    const float v = mixed[a.first_value(head) - a.first_channel() + value];
    const float *decays = a.row(token) + a.first_decay(head);
    const float decay = a.by_channel ? 1 : expf(a.log_decay(token, head)), beta = a.beta(token, head);
    const auto own_decay = [&](int i) { return a.by_channel ? decays[i] : 1; };
    float known = 0, out = 0;
    for (int i = lane; i < a.key_dim && !a.mamba; i += 32) known += row[i] * own_decay(i) * k[i];
    const float change = beta * (v - decay * warp_sum(known));
    for (int i = lane; i < a.key_dim; i += 32) {
      row[i] = decay * own_decay(i) * row[i] + k[i] * change;
      out += row[i] * q[i];
    }
    out = warp_sum(out) + (a.mamba ? a.skip[head] * v : 0);
    if (lane == 0) a.row(token)[a.first_value(head) + value] = out;
    const bool rounds = token % SEGMENT_CHUNK == SEGMENT_CHUNK - 1 || token == a.n_tokens - 1;
    for (int i = lane; i < a.key_dim && rounds && !std::is_same<S, float>::value; i += 32)
      row[i] = rounded<S>(row[i], a.position() + token, first + i);
  }
  for (int i = lane; i < a.key_dim; i += 32) kept[i] = (S)row[i];
}

__global__ void __launch_bounds__(kThreads) keep_inputs_kernel(DeltaArgs a) {
  begin_overlapping();
  if (!a.take(blockIdx.z)) return;
  const int channel = blockIdx.x * kThreads + threadIdx.x, token = a.n_tokens - 1 - (int)blockIdx.y;
  if (channel >= a.channels || token < 0) return;
  a.inputs[(size_t)((a.position() + token) % a.taps) * a.channels + channel] =
      a.row(token)[a.first_channel() + channel];
}

/* Calls work(k, i, y[i], z[i]) for each i = first + (kEach * m + k) * step < n; kEach are loaded at once. */
template <int kEach, class Work>
__device__ __forceinline__ void for_numbers(int first, int step, int n, const float *y, const float *z,
                                            Work work) {
  for (; first < n; first += kEach * step) {
    float own_y[kEach], own_z[kEach];
#pragma unroll
    for (int k = 0; k < kEach; k++)
      own_y[k] = y[min(first + k * step, n - 1)], own_z[k] = z[min(first + k * step, n - 1)];
#pragma unroll
    for (int k = 0; k < kEach; k++)
      if (first + k * step < n) work(k, first + k * step, own_y[k], own_z[k]);
  }
}

/* A warp takes a head of a token. */
__global__ void __launch_bounds__(kThreads) norm_kernel(DeltaArgs a) {
  begin_overlapping();
  const int lane = threadIdx.x % 32, head = blockIdx.x * kWarps + threadIdx.x / 32, token = blockIdx.y;
  if (head >= a.n_value_heads || !a.has_row(token)) return;
  const float *from = a.row(token) + a.first_value(head), *z = a.row(token) + a.first_z(head);
  __half *to = a.out + (size_t)token * a.out_stride + head * a.value_dim;
  float squares = 0;
  for_numbers<4>(lane, 32, a.value_dim, from, z, [&](int, int, float v, float) { squares += v * v; });
  const float scale = rsqrtf(warp_sum(squares) / a.value_dim + a.eps);
  for_numbers<4>(lane, 32, a.value_dim, from, z, [&](int, int i, float v, float gate) {
    to[i] = clamp_half(v * scale * a.norm[i] * a.gate_of(gate));
  });
}

/* Block (group, token). Each warp makes kEach sums of squares; each thread adds them all in one order. */
template <int kEach>
__global__ void __launch_bounds__(kNormNumbers / kEach) group_norm_kernel(DeltaArgs a, bool gated) {
  constexpr int kOwnThreads = kNormNumbers / kEach;
  __shared__ float sums[kEach][kOwnThreads / 32];
  begin_overlapping();
  const int token = blockIdx.y, head = blockIdx.x * a.group, first = head * a.value_dim;
  gated |= !a.has_row(token);
  const float *z = a.row(token) + a.first_z(head), *y = gated ? z : a.row(token) + a.first_value(head);
  __half *to = a.out + (size_t)token * a.out_stride + first;
  const auto product = [&](float of_y, float of_z) { return gated ? of_z : of_y * a.mamba_gate(of_z); };
  float squares[kEach] = {}, total = 0, scale = a.out_scale;
  if (a.norm) {
    for_numbers<kEach>(threadIdx.x, kOwnThreads, a.norm_width, y, z, [&](int k, int, float of_y, float of_z) {
      squares[k] += product(of_y, of_z) * product(of_y, of_z);
    });
#pragma unroll
    for (int k = 0; k < kEach; k++) {
      squares[k] = warp_sum(squares[k]);
      if (threadIdx.x % 32 == 0) sums[k][threadIdx.x / 32] = squares[k];
    }
    __syncthreads();
#pragma unroll
    for (int i = 0; i < kNormNumbers / 32; i++) total += sums[i / (kOwnThreads / 32)][i % (kOwnThreads / 32)];
    scale *= rsqrtf(total / a.norm_width + a.eps);
  }
  for_numbers<kEach>(threadIdx.x, kOwnThreads, a.norm_width, y, z, [&](int, int i, float of_y, float of_z) {
    to[i] = clamp_half(product(of_y, of_z) * scale * (a.norm ? a.norm[first + i] : 1));
  });
}

} // namespace

Status delta_plain_convolve(const DeltaArgs &a, cudaStream_t stream, Error *err) {
  const int n_heads = 2 * a.n_key_heads + (a.by_channel ? 2 : 1) * a.n_value_heads;
  return launch(convolve_kernel, dim3(n_heads, a.n_tokens), 32, 0, stream, true, "delta rule", err, a);
}

Status delta_plain(const DeltaArgs &a, cudaStream_t stream, Error *err) {
  const auto kernel = of_type(a.type, [](auto s) { return delta_plain_kernel<decltype(s)>; });
  return launch(kernel, dim3(ceil_div(a.value_dim, kWarps), a.n_value_heads, a.n_segments), kThreads,
                kWarps * a.key_dim * sizeof(float), stream, true, "delta rule", err, a);
}

Status delta_keep_inputs(const DeltaArgs &a, cudaStream_t stream, Error *err) {
  const dim3 grid(ceil_div(a.channels, kThreads), a.n_tokens < a.taps ? a.n_tokens : a.taps, a.n_segments);
  return launch(keep_inputs_kernel, grid, kThreads, 0, stream, true, "delta rule", err, a);
}

Status delta_norm(const DeltaArgs &a, cudaStream_t stream, Error *err) {
  return launch(norm_kernel, dim3(ceil_div(a.n_value_heads, kWarps), a.n_tokens), kThreads, 0, stream, true,
                "delta rule", err, a);
}

Status delta_norm_groups(const DeltaArgs &a, bool gated, cudaStream_t stream, Error *err) {
  const bool few = a.n_tokens <= kNormFew;
  return launch(few ? group_norm_kernel<1> : group_norm_kernel<4>, dim3(a.n_key_heads, a.n_tokens),
                kNormNumbers / (few ? 1 : 4), 0, stream, true, "delta rule", err, a, gated);
}
