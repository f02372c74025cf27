/* delta_kernels.cuh - argument, formulas and entry points of the kernels of the gated delta rule and of
 * Mamba-2. */
#pragma once

#include <type_traits>

#include "cuda/kernels/delta/delta.h"
#include "cuda/kernels/ops/elementwise.cuh"
#include "cuda/kernels/ptx/lanes.cuh"
#include "cuda/kernels/ptx/launch.cuh"
#include "cuda/kernels/ptx/ptx.cuh"

constexpr float kDeltaNormEps = 1e-6f; /* of the norms of q and k */

/* DeltaRule (delta.h) as a kernel's argument, by value. */
struct DeltaArgs {
  int n_key_heads, n_value_heads, key_dim, value_dim, taps;
  int channels, group; /* group: value heads of a key head */
  bool mamba;          /* Mamba-2, which has no b; its a gives the step size (step_of()) */
  bool sigmoid_gate;   /* DeltaConfig.gate_is_sigmoid */
  bool doubles_beta;   /* DeltaConfig.doubles_beta */
  bool by_channel;     /* RULE_CHANNELS */
  int gate_rank;       /* this and the next: DeltaConfig's */
  float log_bound;
  float z_scale, a_scale, out_scale; /* DeltaConfig's of Mamba-2 */
  DeltaOffsets offsets;              /* of q, k and v in the channels */
  int norm_width;                    /* numbers of a token's outputs that are normalised together */
  float least_step, largest_step;
  int stride, out_stride, n_tokens;
  float eps, q_scale; /* q_scale: key_dim^-1/2 */
  const int *pos;
  float *projections;
  const float *conv, *conv_bias, *a_log, *dt_bias, *skip, *norm;
  float *inputs, *states; /* of the layer: [taps][channels], [n_value_heads][value_dim][key_dim] */
  __half *out;
  void *workspace;
  const void *gates; /* rows of weights of b, then of a; NULL: the projections have b and a */
  bool gates_bf16;
  size_t gates_stride;
  int n_in, h_stride;
  const __half *h;
  const Segment *segments; /* of the step, or NULL: all rows are one sequence's */
  const int *segment_of;   /* of each row */
  int first_segment, n_segments, first_chunk, n_chunks; /* segments and chunks of the launch */
  size_t state_step;
  int first_row, first_pos, own_chunk; /* of take()'s segment; own_chunk: its first chunk, less first_chunk */
  StatesType type;                     /* of `states` */

  /* Sets the rule and the sizes to constants: the step and chunks families have no other sizes. */
  template <bool kMamba> __device__ __forceinline__ void fix_sizes() {
    by_channel = false, mamba = kMamba, key_dim = 128, value_dim = kMamba ? 64 : 128, taps = 4;
  }
  /* Sets the pointers to a segment of the launch; false: it is padding. */
  __device__ __forceinline__ bool take(int index) {
    if (!segments) return true;
    const Segment own = segments[first_segment + index];
    const size_t at = own.sequence * state_step;
    if (own.row < 0) return false;
    first_row = own.row, first_pos = own.pos, n_tokens = own.n_tokens;
    own_chunk = own.first_chunk - first_chunk;
    projections += (size_t)own.row * stride, out += (size_t)own.row * out_stride;
    inputs += at, states += at;
    return true;
  }
  /* take() of the segment that has this chunk of the launch, by a whole warp. Returns the chunk's index in
   * the segment. */
  __device__ __forceinline__ int take_chunk(int chunk) {
    if (!segments) return chunk;
    int n = 0; /* segments that begin with this chunk or before */
    for (int i = threadIdx.x % 32; i - (int)threadIdx.x % 32 < n_segments; i += 32)
      n += __popc(__ballot_sync(~0u, i < n_segments &&
                                         segments[first_segment + i].first_chunk - first_chunk <= chunk));
    take(n - 1);
    return chunk - own_chunk;
  }
  /* True if a row's segment is first_segment or a later one; without segments always. */
  __device__ __forceinline__ bool has_row(int row) const {
    return !segments || segment_of[row] >= first_segment;
  }
  /* The position of the first token. PRECOND wait_for_previous() has been called. */
  __device__ __forceinline__ int position() const { return segments ? first_pos : *pos; }
  /* The factor of an output: silu(z) or sigmoid(z). Mamba-2's factor is mamba_gate(). */
  __device__ __forceinline__ float gate_of(float z) const {
    return sigmoid_gate ? 1 / (1 + __expf(-z)) : silu(z);
  }
  __device__ __forceinline__ float mamba_gate(float z) const { return silu(z_scale * z); }
  __device__ __forceinline__ const float *row(int token) const {
    return projections + (size_t)token * stride;
  }
  __device__ __forceinline__ float *row(int token) { return projections + (size_t)token * stride; }
  /* Indices within a row of projections. */
  __device__ __forceinline__ int first_channel() const {
    return (mamba || by_channel ? 1 : 2) * n_value_heads;
  }
  __device__ __forceinline__ int first_value(int head) const {
    return first_channel() + offsets.v + head * value_dim;
  }
  __device__ __forceinline__ int first_z(int head) const {
    return first_channel() + channels + (by_channel ? 2 * gate_rank : 0) + head * value_dim;
  }
  /* With by_channel: the index of a head's first a. There is one a for each key dimension; the
   * kernel that convolves replaces it by the decay. */
  __device__ __forceinline__ int first_decay(int head) const {
    return first_z(n_value_heads) + head * key_dim;
  }
  /* The input of the convolution at token number `token` of the step that begins at position `first`. A
   * negative token is before the step. NULL before position 0. */
  __device__ __forceinline__ const float *input(int first, int token, int channel) const {
    if (token >= 0) return row(token) + first_channel() + channel;
    return first + token < 0 ? NULL : inputs + (size_t)((first + token) % taps) * channels + channel;
  }
  /* step_of(): a head's step size; log_decay_of(): its ln(g). */
  __device__ __forceinline__ float step_of(float a, int head) const {
    const float step = softplus((mamba ? a_scale * a : a) + dt_bias[head]);
    return mamba ? fminf(fmaxf(step, least_step), largest_step) : step;
  }
  __device__ __forceinline__ float log_decay_of(float a, int head) const {
    return -expf(a_log[head]) * step_of(a, head);
  }
  /* The decay of key dimension i of a head, with by_channel. */
  __device__ __forceinline__ float channel_decay(float a, int head, int i) const {
    const float rate = expf(a_log[head]), x = a + dt_bias[head * key_dim + i];
    return expf(log_bound != 0 ? log_bound / (1 + expf(-rate * x)) : -rate * softplus(x));
  }
  __device__ __forceinline__ float beta_of(float b) const {
    return (doubles_beta ? 2.0f : 1.0f) / (1 + expf(-b));
  }
  __device__ __forceinline__ float a_of(int token, int head) const {
    return row(token)[(mamba ? 0 : n_value_heads) + head];
  }
  __device__ __forceinline__ float log_decay(int token, int head) const {
    return log_decay_of(a_of(token, head), head);
  }
  /* The factor of a head's new value: beta, or Mamba-2's step size. */
  __device__ __forceinline__ float beta(int token, int head) const {
    return mamba ? step_of(a_of(token, head), head) : beta_of(row(token)[head]);
  }
};

/* pick(S()), where S is the type of a state's numbers in memory: float, __nv_bfloat16 or __half. */
template <class Pick> auto of_type(StatesType type, Pick pick) {
  return type == STATES_BF16 ? pick(__nv_bfloat16()) : type == STATES_F16 ? pick(__half()) : pick(float());
}

/* Number `index` of a layer's states as S keeps it after the token at `pos` (state_type.h). */
template <class S> __device__ __forceinline__ float rounded(float x, int pos, int index) {
  constexpr bool kHalf = std::is_same<S, __half>::value;
  const uint32_t bits = states_noisy(kHalf ? STATES_F16 : STATES_BF16, x, states_noise_at(pos, index));
  if (std::is_same<S, float>::value) return x;
  return kHalf ? (float)__float2half_rz(__uint_as_float(bits) / STATES_F16_SCALE)
               : __uint_as_float(bits & 0xffff0000u);
}
/* x and y as two numbers in memory. With rounded()'s noise, 16 bits for each number, the two numbers are what
 * rounded() returns, in fewer instructions. With noise 0 both are truncated, and NaN stays NaN. For fp16, x
 * and y come multiplied by STATES_F16_SCALE. */
template <class S> __device__ __forceinline__ uint32_t narrowed_pair(float x, float y, uint32_t noise) {
  constexpr bool kHalf = std::is_same<S, __half>::value;
  const uint32_t a = __float_as_uint(x) + ((noise & 0xffff) >> 3 * kHalf),
                 b = __float_as_uint(y) + (noise >> 16 >> 3 * kHalf);
  const __half2 both = {__float2half_rz(__uint_as_float(a) / STATES_F16_SCALE),
                        __float2half_rz(__uint_as_float(b) / STATES_F16_SCALE)};
  return kHalf ? *(const uint32_t *)&both : prmt<0x7632>(a, b); /* of bf16 the upper halves */
}

/* Four numbers from a 16-byte aligned address; zeros for NULL. */
__device__ __forceinline__ float4 load_4(const float *from) {
  return from ? *(const float4 *)from : make_float4(0, 0, 0, 0);
}

/* silu of the convolution of four neighbouring channels; taps: 4 of each channel, x: the inputs, the oldest
 * first. */
template <bool kBias>
__device__ __forceinline__ float4 convolve_4(const float4 (&taps)[4], const float4 (&x)[4],
                                             float4 bias = make_float4(0, 0, 0, 0)) {
  const auto sum = [](float4 w, float a, float b, float c, float d, float plus) {
    const float mixed = w.x * a + w.y * b + w.z * c + w.w * d;
    return silu(kBias ? mixed + plus : mixed);
  };
  return make_float4(sum(taps[0], x[0].x, x[1].x, x[2].x, x[3].x, bias.x),
                     sum(taps[1], x[0].y, x[1].y, x[2].y, x[3].y, bias.y),
                     sum(taps[2], x[0].z, x[1].z, x[2].z, x[3].z, bias.z),
                     sum(taps[3], x[0].w, x[1].w, x[2].w, x[3].w, bias.w));
}

__device__ __forceinline__ float dot_4(float4 a, float4 b) {
  return a.x * b.x + a.y * b.y + a.z * b.z + a.w * b.w;
}

__device__ __forceinline__ float4 scaled_4(float4 a, float scale) {
  return make_float4(a.x * scale, a.y * scale, a.z * scale, a.w * scale);
}

/* In the functions below DeltaArgs.n_tokens counts the tokens or, with segments, all rows of the step.
 *
 * delta_step(): the step family. With segments, each segment of the launch is a single row. The inputs of the
 * convolution are stored for later steps if there is one token, and always with segments. Mamba-2's outputs,
 * times mamba_gate(z), replace z. The delta rule's outputs are normalised, gated, and written to a.out. */
Status delta_step(const DeltaArgs &a, cudaStream_t stream, Error *err);

/* The plain family is delta_plain_convolve(), then delta_plain(). The chunks family is
 * delta_chunks_prepare(), then delta_chunks_scan(). Only the first call reads the inputs kept from earlier
 * steps: delta_keep_inputs() comes between the two. The second call leaves the heads' outputs, not
 * normalised, in place of the channels of values in the projections. */
Status delta_plain(const DeltaArgs &a, cudaStream_t stream, Error *err);
Status delta_chunks_prepare(const DeltaArgs &a, cudaStream_t stream, Error *err); /* reads the kept inputs */
Status delta_chunks_scan(const DeltaArgs &a, cudaStream_t stream, Error *err);
size_t delta_chunks_shared(void); /* bytes of shared memory of a block of the scan */
size_t delta_chunks_workspace(const DeltaConfig &sizes, int max_tokens);
Status delta_plain_convolve(const DeltaArgs &a, cudaStream_t stream, Error *err); /* reads the kept inputs */

/* Stores the last inputs of the convolution for later steps. */
Status delta_keep_inputs(const DeltaArgs &a, cudaStream_t stream, Error *err);
/* out = rmsnorm(heads' outputs) * norm * gate_of(z). */
Status delta_norm(const DeltaArgs &a, cudaStream_t stream, Error *err);
/* Mamba-2: p = heads' outputs * mamba_gate(z), and out = out_scale * rmsnorm(p) * norm over each group's
 * heads; if a.norm is NULL, out = out_scale * p. `gated`: delta_step() has left p in place of z in all rows;
 * else only in rows of segments before a.first_segment. */
Status delta_norm_groups(const DeltaArgs &a, bool gated, cudaStream_t stream, Error *err);
