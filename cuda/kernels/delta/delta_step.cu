/* delta_step.cu - the gated delta rule and Mamba-2 for 1 to 8 tokens: everything between the projections and
 * o in one kernel. Mamba-2's outputs are normalised over several heads by another kernel. With several tokens
 * another kernel stores the convolution's last inputs (delta_keep_inputs()).
 *
 * A block of 16 warps owns a value head. Eight lanes hold a row of the state (one value dimension), 16 key
 * dimensions each. A thread has its part of two rows, with Mamba-2 of one. S is the state before the token, g
 * the decay, S' the state after the token, and s = S^T k (Mamba-2: 0):
 *     d = beta (v - g s),   S' = g S + k d^T,   S'^T q = g (S^T q) + d (k q)
 * Both S^T k and S^T q read the old S, so their sums over the eight lanes overlap.
 * Segments, which are single rows here, have blocks of their own, blockIdx.y.
 * With segments, from sm_90 on, a block also asks L2 for the state of the block kAhead further, so that
 * memory is read while blocks compute and store.
 * READS    the head's state, in fp32 64 KB (Mamba-2: 32), and writes it. No kernel has written the state
 *          since the last step, and no kernel of this step began before that step had ended
 *          (ops_set_step()), so the state may be read before the wait for the matmul of the projections.
 * PRECOND  key_dim = value_dim = 128, Mamba-2's value_dim 64; 4 taps.   Reference: delta_plain.cu. */
#include "cuda/kernels/delta/delta_kernels.cuh"
#include "cuda/kernels/ptx/cluster.cuh"
#include "cuda/kernels/ptx/eight.cuh"

namespace {

constexpr int kDim = 128, kThreads = 512, kWarps = kThreads / 32, kTokens = DELTA_STEP_TOKENS;
constexpr int kBlockRows = kThreads / 8, kParts = 4; /* a thread has kParts times 4 numbers of a row */

/* A thread's numbers of its rows of the state, as they are in memory. In load p the eight lanes of a row read
 * 16 bytes each, together contiguous. */
template <class S, int kRows> struct Stored {
  static constexpr int kEach = 16 / sizeof(S), kLoads = kParts * 4 / kEach;
  uint4 v[kRows][kLoads];

  static __device__ __forceinline__ uint4 *vector_at(S *state, int i, int p) {
    return (uint4 *)(state + i * (kBlockRows * kDim) + 8 * kEach * p);
  }
  __device__ __forceinline__ void load(S *state) {
#pragma unroll
    for (int i = 0; i < kRows; i++)
#pragma unroll
      for (int p = 0; p < kLoads; p++) v[i][p] = __ldcg(vector_at(state, i, p));
  }
  __device__ __forceinline__ void store(S *state) const {
#pragma unroll
    for (int i = 0; i < kRows; i++)
#pragma unroll
      for (int p = 0; p < kLoads; p++) *vector_at(state, i, p) = v[i][p];
  }
  /* The m-th four of the thread's numbers of row i. */
  __device__ __forceinline__ float4 four(int i, int m) const {
    const S *x = (const S *)&v[i][4 * m / kEach] + 4 * m % kEach;
    return make_float4(x[0], x[1], x[2], x[3]);
  }
  /* Sets the numbers that four() returns. hash: states_hash() of the thread's first two numbers; mask: 0 if
   * `to` may have NaN, else ~0. */
  __device__ __forceinline__ void set_four(int i, int m, float4 to, uint32_t hash, uint32_t mask) {
    uint32_t *words = (uint32_t *)((S *)&v[i][4 * m / kEach] + 4 * m % kEach);
    if constexpr (std::is_same<S, float>::value) {
      *(float4 *)words = to;
    } else {
      const uint32_t pair = (i * (kBlockRows * kDim) + 4 * m / kEach * 8 * kEach + 4 * m % kEach) / 2;
      words[0] = narrowed_pair<S>(to.x, to.y, states_noise(hash + states_hash(0, pair)) & mask);
      words[1] = narrowed_pair<S>(to.z, to.w, states_noise(hash + states_hash(0, pair + 1)) & mask);
    }
  }
  /* Where key dimension i is in Token.q and Token.k, so that a lane reads its numbers four at a time. */
  static __device__ __forceinline__ int index_of_key(int i) {
    if (kEach == 4) return i;
    const int lane = i / kEach % 8, n = i / (8 * kEach) * kEach + i % kEach; /* the lane's n-th number */
    return 32 * (n / 4) + 4 * lane + n % 4;
  }
};

struct alignas(16) Token {
  float q[kDim], k[kDim], v[kDim]; /* outputs of the convolution, not normalised; q, k: see index_of_key() */
  float squares[2][kDim / 32];     /* sums of squares of q and of k, by each warp of the convolution */
  /* factors: each output's factor, gate_of(z) times the norm's weight; Mamba-2: mamba_gate(z) */
  float out[kDim], factors[kDim];
  float decay, beta;
};

/* A thread convolves one channel of q, k or v (part 0 to 2) for all tokens. In a step of one token, or with
 * segments, it also stores the input for later steps. Among blocks that share a key head only the first
 * stores inputs of q and k. */
struct Channel {
  int part, in_part, index; /* in_part: among its part; index: among all channels */
  bool keeps;
  float4 taps;
  float bias, before[3]; /* before: the inputs of the three tokens before */

  __device__ __forceinline__ void load_before(const DeltaArgs &a, int pos) {
#pragma unroll
    for (int t = 0; t < 3; t++) {
      const float *from = a.input(pos, t - 3, index);
      before[t] = from ? *from : 0;
    }
  }
  template <bool kMamba, class Stored>
  __device__ __forceinline__ void convolve(DeltaArgs &a, int pos, Token *tokens) {
    for (int token = 0; token < a.n_tokens; token++) {
      const float x = a.row(token)[a.first_channel() + index];
      if (keeps) a.inputs[(size_t)(pos % 4) * a.channels + index] = x;
      const float mixed = taps.x * before[0] + taps.y * before[1] + taps.z * before[2] + taps.w * x;
      const float out = silu(kMamba ? mixed + bias : mixed);
      before[0] = before[1], before[1] = before[2], before[2] = x;
      Token &to = tokens[token];
      (part == 0 ? to.q : part == 1 ? to.k : to.v)[part < 2 ? Stored::index_of_key(in_part) : in_part] = out;
      if (kMamba || part == 2) continue;
      const float squares = warp_sum(out * out);
      if (in_part % 32 == 0) to.squares[part][in_part / 32] = squares;
    }
  }
};

/* A warp's part of b and a of tokens token0 .. token0 + kN - 1: the head's two rows of weights times h. */
template <class T, int kN>
__device__ __forceinline__ void multiply_gates(const DeltaArgs &a, int head, int token0,
                                               float (*parts)[kTokens][2]) {
  const T *rows[2] = {(const T *)a.gates + head * a.gates_stride,
                      (const T *)a.gates + (a.n_value_heads + head) * a.gates_stride};
  float sums[2 * kN] = {}; /* of b, then of a */
  for (int i = 8 * threadIdx.x; i < a.n_in; i += 8 * kThreads) {
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
__device__ __forceinline__ void make_gates(const DeltaArgs &a, int head, const float (*parts)[kTokens][2],
                                           Token *tokens) {
  const int lane = threadIdx.x % 32;
  float b = 0, decay = 0; /* of token `lane` */
  if (std::is_void<T>::value && lane < a.n_tokens) b = a.row(lane)[head], decay = a.a_of(lane, head);
  if constexpr (!std::is_void<T>::value) {
    static_assert(2 * kTokens <= 32, "a lane adds up b or a of a token");
    float sum = 0;
    for (int w = 0; w < kWarps; w++) sum += parts[w][lane / 2 % kTokens][lane % 2];
    b = __shfl_sync(~0u, sum, 2 * lane % 32), decay = __shfl_sync(~0u, sum, (2 * lane + 1) % 32);
  }
  if (lane >= a.n_tokens) return;
  tokens[lane].beta = a.mamba ? a.step_of(decay, head) : a.beta_of(b);
  tokens[lane].decay = expf(a.log_decay_of(decay, head));
}

__device__ __forceinline__ float4 plus_outer(float4 s, float decay, float4 k, float change) {
  return make_float4(fmaf(k.x, change, decay * s.x), fmaf(k.y, change, decay * s.y),
                     fmaf(k.z, change, decay * s.z), fmaf(k.w, change, decay * s.w));
}

/* 1 / the length of a token's q or k. */
__device__ __forceinline__ float inverse_length(const float (&squares)[kDim / 32]) {
  const float4 sums = *(const float4 *)squares;
  return rsqrtf(((sums.x + sums.y) + (sums.z + sums.w)) + kDeltaNormEps);
}

/* Takes one token: changes the thread's rows of the state, and stores their outputs. skip: Mamba-2's D; hash:
 * see Stored.set_four() */
template <bool kMamba, class S, int kRows>
__device__ __forceinline__ void advance(Stored<S, kRows> &s, Token &token, float skip, float q_scale, int row,
                                        int lane, uint32_t hash) {
  if (!kMamba) q_scale *= inverse_length(token.squares[0]);
  const float k_scale = kMamba ? 1 : inverse_length(token.squares[1]);
  constexpr float scale = std::is_same<S, __half>::value ? STATES_F16_SCALE : 1; /* see narrowed_pair() */
  float known[kRows] = {}, seen[kRows] = {}, both = 0, change[kRows];
  uint32_t mask[kRows];
#pragma unroll
  for (int m = 0; m < kParts; m++) {
    const float4 k = *(const float4 *)(token.k + 32 * m + 4 * lane);
    const float4 q = *(const float4 *)(token.q + 32 * m + 4 * lane);
    both += dot_4(k, q);
#pragma unroll
    for (int i = 0; i < kRows; i++) {
      const float4 four = s.four(i, m);
      if (!kMamba) known[i] += dot_4(four, k);
      seen[i] += dot_4(four, q);
    }
  }
  both = lanes_sum<4, 2, 1>(both) * k_scale;
#pragma unroll
  for (int i = 0; i < kRows; i++) {
    const int value = row + i * kBlockRows;
    const float held = kMamba ? 0 : token.decay * k_scale * lanes_sum<4, 2, 1>(known[i]);
    change[i] = token.beta * (token.v[value] - held);
    float out = (token.decay * lanes_sum<4, 2, 1>(seen[i]) + change[i] * both) * q_scale;
    if (kMamba) out += skip * token.v[value];
    if (lane == 0) token.out[value] = out;
    change[i] *= k_scale;
    mask[i] = fabsf(change[i] + seen[i]) < INFINITY ? ~0u : 0; /* NaN in a row makes one of the two NaN */
  }
#pragma unroll
  for (int m = 0; m < kParts; m++) {
    const float4 k = *(const float4 *)(token.k + 32 * m + 4 * lane);
#pragma unroll
    for (int i = 0; i < kRows; i++)
      s.set_four(i, m, plus_outer(s.four(i, m), token.decay * scale, k, change[i] * scale), hash, mask[i]);
  }
}

/* A warp stores the outputs of one token, times their factors. The delta rule's outputs go to a.out,
 * normalised. Mamba-2's replace z; a later kernel normalises them. */
template <bool kMamba>
__device__ __forceinline__ void finish(DeltaArgs &a, int head, int token, const Token &from) {
  const int i = threadIdx.x % 32 * 4;
  const float4 out = *(const float4 *)(from.out + i), f = *(const float4 *)(from.factors + i);
  if (kMamba) {
    *(float4 *)(a.row(token) + a.first_z(head) + i) =
        make_float4(out.x * f.x, out.y * f.y, out.z * f.z, out.w * f.w);
    return;
  }
  const float scale = rsqrtf(warp_sum(dot_4(out, out)) / kDim + a.eps);
  const __half2 low = {clamp_half(out.x * scale * f.x), clamp_half(out.y * scale * f.y)},
                high = {clamp_half(out.z * scale * f.z), clamp_half(out.w * scale * f.w)};
  __half2 *to = (__half2 *)(a.out + (size_t)token * a.out_stride + head * kDim + i);
  to[0] = low, to[1] = high;
}

/* Asks L2 for the state that the block kAhead further in the grid reads. a: take() has set it to the block's
 * own segment. On an H200 (132 SMs) states of 48 heads of 256 sequences take 449 us without prefetches, 426
 * with kAhead 132, 516 with 264. Mamba-2's take 400 us without, 365 with prefetches, and 351 with prefetches
 * and three blocks on an SM. In bf16 48 heads take 304 us without, 278 with kAhead 99, 285 with 132. */
template <int kStateBytes, int kAhead> __device__ __forceinline__ void prefetch_state(const DeltaArgs &a) {
#if __CUDA_ARCH__ >= 900
  if (threadIdx.x > 0 || !a.segments) return;
  const int block = (int)(blockIdx.x + gridDim.x * blockIdx.y) + kAhead, segment = block / (int)gridDim.x;
  if (segment >= a.n_segments) return;
  const Segment *const segments = a.segments + a.first_segment, next = segments[segment];
  const long long sequences = next.sequence - segments[blockIdx.y].sequence;
  if (next.row >= 0)
    prefetch_bulk((const char *)(a.states + sequences * (long long)a.state_step) +
                      (size_t)(block % (int)gridDim.x) * kStateBytes,
                  kStateBytes);
#endif
}

/* How many blocks are to fit on an SM: one loads its state while others compute. An SM has 1,024 threads on
 * sm_75, 1,536 on sm_86 to sm_89 and from sm_120 on, else 2,048. */
#if __CUDA_ARCH__ == 750
constexpr int kMostBlocks = 2;
#elif __CUDA_ARCH__ == 800 || (__CUDA_ARCH__ >= 900 && __CUDA_ARCH__ < 1200)
constexpr int kMostBlocks = 4;
#else
constexpr int kMostBlocks = 3;
#endif
constexpr int blocks(bool gates, bool mamba, size_t state_bytes) {
  const int wanted = gates ? 1 : 2 + mamba + (mamba && state_bytes == 2);
  return wanted < kMostBlocks ? wanted : kMostBlocks;
}

/* T: the type of the weights of b and a, or void if b and a are in the projections. S: the state's type; if
 * not float, there is one token. */
template <class T, bool kMamba, class S>
__global__ void __launch_bounds__(kThreads, blocks(!std::is_void<T>::value, kMamba, sizeof(S)))
    delta_step_kernel(DeltaArgs a) {
  constexpr int kValues = kMamba ? 64 : kDim, kRows = kValues / kBlockRows;
  __shared__ __align__(16) Token tokens[kTokens];
  __shared__ float parts[kWarps][kTokens][2];
  dependents_may_start();
  a.fix_sizes<kMamba>();
  if (!a.take(blockIdx.y)) {
    wait_for_previous(); /* so that the next kernel waits for the kernel before this one */
    return;
  }
  if (kMamba && sizeof(S) == 2) a.n_tokens = 1; /* already 1; the constant makes four blocks fit an SM */
  prefetch_state<kValues * kDim * sizeof(S), sizeof(S) == 2 ? 99 : 132>(a);
  const int head = blockIdx.x, warp = threadIdx.x / 32, lane = threadIdx.x % 32, row = threadIdx.x / 8;
  const int first_number = head * kValues * kDim + row * kDim + 16 / sizeof(S) * (lane % 8);
  S *state = (S *)a.states + first_number;
  Stored<S, kRows> s;
  s.load(state);
  if constexpr (!std::is_void<T>::value)
    for (int i = 64 * threadIdx.x; i < 2 * a.n_in; i += 64 * kThreads) /* each thread fetches a cache line */
      prefetch_l1((const T *)a.gates + (i / a.n_in * a.n_value_heads + head) * a.gates_stride + i % a.n_in);
  const bool convolves = threadIdx.x < 2 * kDim + kValues;
  Channel channel = {(int)threadIdx.x / kDim, (int)threadIdx.x % kDim};
  const int first = channel.part == 2   ? a.offsets.v + head * kValues
                    : channel.part == 1 ? a.offsets.k + head / a.group * kDim
                                        : a.offsets.q + head / a.group * kDim;
  channel.index = first + channel.in_part;
  channel.keeps = a.n_tokens == 1 && (channel.part == 2 || head % a.group == 0);
  /* Blocks of 16-bit states compute more than they wait. They load later, which frees registers: 5%
   * faster. */
  const bool early = sizeof(S) == 4;
  if (convolves && early) channel.taps = *(const float4 *)(a.conv + 4 * channel.index);
  channel.bias = kMamba && a.conv_bias && convolves ? a.conv_bias[channel.index] : 0;
  const float skip = kMamba ? a.skip[head] : 0;
  wait_for_previous();
  const int pos = a.position();
  if (convolves && !early) channel.taps = *(const float4 *)(a.conv + 4 * channel.index);
  if (convolves) channel.load_before(a, pos);
  if constexpr (!std::is_void<T>::value) {
    if (a.n_tokens > 1)
      for (int token = 0; token < a.n_tokens; token += 4) multiply_gates<T, 4>(a, head, token, parts);
    else
      multiply_gates<T, 1>(a, head, 0, parts);
    __syncthreads();
  }
  if (convolves) channel.convolve<kMamba, Stored<S, kRows>>(a, pos, tokens);
  if (threadIdx.x >= 3 * kDim && channel.in_part < kValues)
    for (int token = 0; token < a.n_tokens; token++) {
      const float z = a.row(token)[a.first_z(head) + channel.in_part];
      tokens[token].factors[channel.in_part] =
          kMamba ? a.mamba_gate(z) : a.norm[channel.in_part] * a.gate_of(z);
    }
  if (warp == kWarps - 1) make_gates<T>(a, head, parts, tokens);
  if (pos == 0) s = {}; /* the memory holds no state yet */
  __syncthreads();
  for (int token = 0; token < a.n_tokens; token++)
    advance<kMamba>(s, tokens[token], skip, kMamba ? 1 : a.q_scale, row, lane % 8,
                    states_hash(pos + token, first_number / 2));
  s.store(state);
  __syncthreads();
  if (warp < a.n_tokens && 4 * lane < kValues) finish<kMamba>(a, head, warp, tokens[warp]);
}

} // namespace

Status delta_step(const DeltaArgs &a, cudaStream_t stream, Error *err) {
  const auto kernel = a.gates ? a.gates_bf16 ? delta_step_kernel<__nv_bfloat16, false, float>
                                             : delta_step_kernel<__half, false, float>
                              : of_type(a.type, [&](auto s) {
                                  return a.mamba ? delta_step_kernel<void, true, decltype(s)>
                                                 : delta_step_kernel<void, false, decltype(s)>;
                                });
  return launch(kernel, dim3(a.n_value_heads, a.n_segments), kThreads, 0, stream, true, "delta rule", err, a);
}
