/* delta_step.cu - the gated delta rule and Mamba-2 for 1 to 8 tokens: everything between the projections and
 * o in one kernel, except the norm of Mamba-2's outputs, which is over several heads.
 *
 * A block of 16 warps owns a value head. Eight lanes hold a row of the state (one value dimension), 16 key
 * dimensions each; a thread has its part of two rows, with Mamba-2 of one. With S the state before the decay
 * g and s = S^T k (Mamba-2: 0):
 *     d = beta (v - g s),   S = g S + k d^T,   S^T q = g (S^T q before) + d (k q)
 * so one reduction over the eight lanes serves both sums.
 * Single rows of many sequences have blocks of their own, blockIdx.y.
 * READS    the head's state, 64 KB (Mamba-2: 32), and writes it. No kernel has written the state since the
 *          last step, and no kernel of this step began before that step had ended (ops_set_step()), so the
 *          state is read before the wait for the matmul of the projections.
 * PRECOND  key_dim = value_dim = 128, Mamba-2's value_dim 64; 4 taps.   Reference: delta_plain.cu. */
#include "cuda/kernels/delta/delta_kernels.cuh"
#include "cuda/kernels/ptx/eight.cuh"

namespace {

constexpr int kDim = 128, kThreads = 512, kWarps = kThreads / 32, kTokens = DELTA_STEP_TOKENS;
constexpr int kBlockRows = kThreads / 8, kParts = 4; /* a thread has 4 numbers of every 32 of a row */

struct alignas(16) Token {
  float q[kDim], k[kDim], v[kDim], out[kDim];
  float decay, beta;
};

/* A warp convolves q, k or v (part 0 to 2) of one token, four channels a lane. In a step of one token it also
 * stores the input, for later steps. */
template <bool kMamba>
__device__ __forceinline__ void convolve(const DeltaArgs &a, int head, int pos, int part, int token,
                                         const float4 (&taps)[4], float4 bias, int channel, Token &to) {
  float4 x[4];
#pragma unroll
  for (int t = 0; t < 4; t++) x[t] = load_4(a.input(pos, token - 3 + t, channel));
  if (a.n_tokens == 1 && (part == 2 || head % a.group == 0))
    *(float4 *)(a.inputs + (size_t)(pos % 4) * a.channels + channel) = x[3];
  float4 out = convolve_4<kMamba>(taps, x, bias);
  if (part < 2 && !kMamba)
    out = scaled_4(out, rsqrtf(warp_sum(dot_4(out, out)) + kDeltaNormEps) * (part == 0 ? a.q_scale : 1));
  *(float4 *)((part == 0 ? to.q : part == 1 ? to.k : to.v) + threadIdx.x % 32 * 4) = out;
}

/* A warp's part of b and a of tokens token0 .. token0 + kN - 1: the head's two rows of weights times h. Warps
 * from `first` on take part. */
template <class T, int kN>
__device__ __forceinline__ void multiply_gates(const DeltaArgs &a, int head, int first, int token0,
                                               float (*parts)[kTokens][2]) {
  const T *rows[2] = {(const T *)a.gates + head * a.gates_stride,
                      (const T *)a.gates + (a.n_value_heads + head) * a.gates_stride};
  float sums[2 * kN] = {}; /* of b, then of a */
  for (int i = 8 * (threadIdx.x - 32 * first); i < a.n_in; i += 8 * (kThreads - 32 * first)) {
    uint4 x[kN];
    float w[2][8];
#pragma unroll
    for (int n = 0; n < kN; n++)
      x[n] = *(const uint4 *)(a.h + (size_t)min(token0 + n, a.n_tokens - 1) * a.h_stride + i);
#pragma unroll
    for (int r = 0; r < 2; r++) {
      Eight<T> eight;
      eight.load(rows[r] + i, true);
      eight.floats(w[r]);
    }
#pragma unroll
    for (int n = 0; n < kN; n++) {
      const uint32_t *halves = (const uint32_t *)&x[n];
#pragma unroll
      for (int r = 0; r < 2; r++)
#pragma unroll
        for (int j = 0; j < 4; j++)
          sums[r * kN + n] += w[r][2 * j] * f16_low(halves[j]) + w[r][2 * j + 1] * f16_high(halves[j]);
    }
  }
  const int lane = threadIdx.x % 32, own = lane / (16 / kN), token = token0 + own % kN;
  const float sum = warp_sums(sums);
  if (lane % (16 / kN) == 0 && token < a.n_tokens) parts[threadIdx.x / 32][token][own / kN] = sum;
}

/* The decays and betas of all tokens, by one warp. */
template <class T>
__device__ __forceinline__ void make_gates(const DeltaArgs &a, int head, int first,
                                           const float (*parts)[kTokens][2], Token *tokens) {
  const int lane = threadIdx.x % 32;
  float b = 0, decay = 0; /* of token `lane` */
  if (std::is_void<T>::value && lane < a.n_tokens) b = a.row(lane)[head], decay = a.a_of(lane, head);
  if constexpr (!std::is_void<T>::value) {
    static_assert(2 * kTokens <= 32, "a lane adds up b or a of a token");
    float sum = 0;
    for (int w = first; w < kWarps; w++) sum += parts[w][lane / 2 % kTokens][lane % 2];
    b = __shfl_sync(~0u, sum, 2 * lane % 32), decay = __shfl_sync(~0u, sum, (2 * lane + 1) % 32);
  }
  if (lane >= a.n_tokens) return;
  tokens[lane].beta = a.mamba ? a.step_of(decay, head) : a.beta_of(b);
  tokens[lane].decay = expf(a.log_decay_of(decay, head));
}

__device__ __forceinline__ void add_outer(float4 &s, float decay, float4 k, float change) {
  s.x = decay * s.x + k.x * change, s.y = decay * s.y + k.y * change;
  s.z = decay * s.z + k.z * change, s.w = decay * s.w + k.w * change;
}

/* Takes one token: changes the thread's rows of the state, and stores their outputs. skip: Mamba-2's D. */
template <bool kMamba, int kRows>
__device__ __forceinline__ void advance(float4 (&s)[kRows][kParts], Token &token, float skip, int row,
                                        int lane) {
  float4 k[kParts], q[kParts];
  float known[kRows] = {}, seen[kRows] = {}, both = 0;
#pragma unroll
  for (int m = 0; m < kParts; m++) {
    k[m] = *(const float4 *)(token.k + 32 * m + 4 * lane);
    q[m] = *(const float4 *)(token.q + 32 * m + 4 * lane);
    both += dot_4(k[m], q[m]);
#pragma unroll
    for (int i = 0; i < kRows; i++) {
      if (!kMamba) known[i] += dot_4(s[i][m], k[m]);
      seen[i] += dot_4(s[i][m], q[m]);
    }
  }
  both = lanes_sum<4, 2, 1>(both);
#pragma unroll
  for (int i = 0; i < kRows; i++) {
    const int value = row + i * kBlockRows;
    const float held = kMamba ? 0 : token.decay * lanes_sum<4, 2, 1>(known[i]);
    const float change = token.beta * (token.v[value] - held);
    float out = token.decay * lanes_sum<4, 2, 1>(seen[i]) + change * both;
    if (kMamba) out += skip * token.v[value];
#pragma unroll
    for (int m = 0; m < kParts; m++) add_outer(s[i][m], token.decay, k[m], change);
    if (lane == 0) token.out[value] = out;
  }
}

/* A warp normalises and gates the outputs of one token. */
__device__ __forceinline__ void finish(const DeltaArgs &a, int head, int token, const Token &from,
                                       float4 norm, float4 z) {
  const int i = threadIdx.x % 32 * 4;
  const float4 out = *(const float4 *)(from.out + i);
  const float scale = rsqrtf(warp_sum(dot_4(out, out)) / kDim + a.eps);
  const __half2 low = {clamp_half(out.x * scale * norm.x * a.gate_of(z.x)),
                       clamp_half(out.y * scale * norm.y * a.gate_of(z.y))},
                high = {clamp_half(out.z * scale * norm.z * a.gate_of(z.z)),
                        clamp_half(out.w * scale * norm.w * a.gate_of(z.w))};
  __half2 *to = (__half2 *)(a.out + (size_t)token * a.out_stride + head * kDim + i);
  to[0] = low, to[1] = high;
}

/* Stores the outputs of one token of Mamba-2, times mamba_gate(z), in place of z. */
__device__ __forceinline__ void finish_mamba(DeltaArgs &a, int head, int token, const Token &from, float4 z) {
  const float4 out = *(const float4 *)(from.out + threadIdx.x % 32 * 4);
  *(float4 *)(a.row(token) + a.first_z(head) + threadIdx.x % 32 * 4) =
      make_float4(out.x * a.mamba_gate(z.x), out.y * a.mamba_gate(z.y), out.z * a.mamba_gate(z.z),
                  out.w * a.mamba_gate(z.w));
}

/* T: the type of the weights of b and a; void: b and a are in the projections. */
template <class T, bool kMamba>
__global__ void __launch_bounds__(kThreads, 1) delta_step_kernel(DeltaArgs a) {
  constexpr int kValues = kMamba ? 64 : kDim, kRows = kValues / kBlockRows;
  __shared__ __align__(16) Token tokens[kTokens];
  __shared__ float parts[kWarps][kTokens][2];
  dependents_may_start();
  a.fix_sizes<kMamba>();
  if (a.singles && !a.take_single(a.singles[blockIdx.y])) {
    wait_for_previous(); /* so that the next kernel waits for the kernel before this one */
    return;
  }
  const int head = blockIdx.x, warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int row = threadIdx.x / 8, part = warp % 3;
  float *state = a.states + (size_t)head * kValues * kDim + row * kDim + 4 * (lane % 8);
  float4 s[kRows][kParts];
#pragma unroll
  for (int i = 0; i < kRows; i++)
#pragma unroll
    for (int m = 0; m < kParts; m++)
      s[i][m] = __ldcg((const float4 *)(state + i * (kBlockRows * kDim) + 32 * m));
  if constexpr (!std::is_void<T>::value)
    for (int i = 64 * threadIdx.x; i < 2 * a.n_in; i += 64 * kThreads) /* each thread fetches a cache line */
      prefetch_l1((const T *)a.gates + (i / a.n_in * a.n_value_heads + head) * a.gates_stride + i % a.n_in);
  const int channel = 4 * lane + (part == 2   ? a.places.v + head * kValues
                                  : part == 1 ? a.places.k + head / a.group * kDim
                                              : a.places.q + head / a.group * kDim);
  const bool value_lane = 4 * lane < kValues, finishes = warp < a.n_tokens && value_lane;
  const bool convolves = part < 2 || value_lane;
  const float skip = kMamba ? a.skip[head] : 0;
  float4 taps[4], norm, z;
  if (warp < 3 * a.n_tokens && convolves)
    for (int i = 0; i < 4; i++) taps[i] = *(const float4 *)(a.conv + 4 * (channel + i));
  const float4 bias = load_4(kMamba && a.conv_bias && convolves ? a.conv_bias + channel : NULL);
  norm = load_4(finishes && !kMamba ? a.norm + 4 * lane : NULL);
  wait_for_previous();
  const int pos = *a.pos, first = a.n_tokens == 1 ? 3 : 0; /* with one token, warps 0 to 2 convolve */
  z = load_4(finishes ? a.row(warp) + a.first_z(head) + 4 * lane : NULL);
  /* Fifteen warps take the tokens' q, k and v, so that a warp has always the same part and its taps. */
  for (int token = warp / 3; warp < 15 && token < a.n_tokens && convolves; token += 5)
    convolve<kMamba>(a, head, pos, part, token, taps, bias, channel, tokens[token]);
  if constexpr (!std::is_void<T>::value) {
    if (a.n_tokens > 1)
      for (int token = 0; token < a.n_tokens; token += 4) multiply_gates<T, 4>(a, head, first, token, parts);
    else if (warp >= first)
      multiply_gates<T, 1>(a, head, first, 0, parts);
    __syncthreads();
  }
  if (warp == 15) make_gates<T>(a, head, first, parts, tokens);
  if (pos == 0) /* the memory holds no state yet */
#pragma unroll
    for (int i = 0; i < kRows; i++)
#pragma unroll
      for (int m = 0; m < kParts; m++) s[i][m] = make_float4(0, 0, 0, 0);
  __syncthreads();
  for (int token = 0; token < a.n_tokens; token++) advance<kMamba>(s, tokens[token], skip, row, lane % 8);
#pragma unroll
  for (int i = 0; i < kRows; i++)
#pragma unroll
    for (int m = 0; m < kParts; m++) *(float4 *)(state + i * (kBlockRows * kDim) + 32 * m) = s[i][m];
  __syncthreads();
  if (!finishes) return;
  if (kMamba)
    finish_mamba(a, head, warp, tokens[warp], z);
  else
    finish(a, head, warp, tokens[warp], norm, z);
}

} // namespace

Status delta_step(const DeltaArgs &a, cudaStream_t stream, Error *err) {
  const auto kernel = a.mamba        ? delta_step_kernel<void, true>
                      : !a.gates     ? delta_step_kernel<void, false>
                      : a.gates_bf16 ? delta_step_kernel<__nv_bfloat16, false>
                                     : delta_step_kernel<__half, false>;
  return launch(kernel, dim3(a.n_value_heads, a.singles ? a.n_singles : 1), kThreads, 0, stream, true,
                "delta rule", err, a);
}
