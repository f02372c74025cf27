/* delta.cuh - the gated delta rule of a hybrid's layers in a step of one token; operations.def,
 * norm_delta_rule, has the formulas, and delta/delta_step.cu does the same as a kernel of its own.
 *
 * A cluster has n value heads and the key heads that they use (step_mix()); its packs of projections:
 *
 *     | q of each key head | k of each key head | v of each value head | z of each value head |
 *
 * Every block gets all packs, and convolves and normalises them, a warp a pack. A block has 16 value
 * dimensions of each value head's state, [16][128 key dimensions]. The loaders bring them as a stage;
 * warpgroup h takes head h. A thread has 16 key dimensions of one value dimension, eight lanes have all 128:
 *
 *     warp w of the warpgroup, lane     value 4 w + lane / 8,  keys 32 m + 4 (lane % 8) .. + 3,  m < 4
 *
 * A block sends to the cluster its 16 outputs of a head, times silu(z) and the norm's weight, and the sums of
 * squares of the outputs without these factors. The receivers multiply by 1 / rms. b and a of the cluster's
 * heads are x times dense rows, one row a block. The block's last warp computes this product while the other
 * warps multiply the projections (run_last_warp()).
 *
 * READS    n * 64 KB of states a cluster, and writes them. Clusters that share a key head keep the same bits
 *          of the convolution's inputs. */
#pragma once

#include "cuda/kernels/delta/delta_kernels.cuh"
#include "cuda/kernels/fused/hybrid/attention.cuh"
#include "cuda/kernels/ptx/eight.cuh"

namespace step::one {

static_assert(STEP_DELTA_ROWS == 4 * STEP_WARPGROUP_WARPS, "a warp has four values");

/* --- b and a */

/* The lane's part of the product of a row and x. Only the conversions are compiled for both types. */
template <class B>
__device__ __forceinline__ float multiply_gate_row(const B &b, const unsigned char *row, bool is_bf16) {
  float sum = 0;
#pragma unroll 2
  for (int i = 8 * b.lane(); i < b.plan.shape.hidden; i += 256) {
    Eight<__half> halves;
    float w[8];
    halves.load((const __half *)row + i, true);
    if (is_bf16) {
      Eight<__nv_bfloat16> same;
      same.v[0] = halves.v[0];
      same.floats(w);
    } else {
      halves.floats(w);
    }
    const float4 low = *(const float4 *)(b.x() + i), high = *(const float4 *)(b.x() + i + 4);
    sum += (w[0] * low.x + w[1] * low.y) + (w[2] * low.z + w[3] * low.w);
    sum += (w[4] * high.x + w[5] * high.y) + (w[6] * high.z + w[7] * high.w);
  }
  return sum;
}

/* In a layer of the delta rule: multiplies x by this block's row, and sends the result to the cluster:
 * b or a of one of the cluster's value heads. For the last warp. n: layers of the delta rule before this
 * one. */
template <class B> __device__ __forceinline__ void send_gate_row(B &b, int n) {
  const StepMixers &m = b.args.mixers;
  const StepMix mix = b.mix_vars().mixes[1];
  const int row = b.rank(), first_a = B::kIsShared ? m.first_a : b.plan.shape.n_value_heads;
  if (row >= 2 * mix.n) return;
  const size_t at =
      (size_t)(row < mix.n ? mix.first + row : first_a + mix.first + row - mix.n) * m.gates_stride;
  const unsigned char *from = (const unsigned char *)m.layers[b.layer()].gates + at * 2;
  for (int i = 128 * b.lane(); i < 2 * b.plan.shape.hidden; i += 4096) prefetch_l1(from + i);
  b.wait(b.mix_vars().x_has_come, n & 1, STEP_AT_X);
  const float sum = warp_sum(multiply_gate_row(b, from, m.gates_bf16));
  if (b.lane() < STEP_BLOCKS)
    send_4(peer_address(b.mix_vars().gates + row, b.lane()), __float_as_uint(sum),
           peer_address(&b.barriers().projections, b.lane()));
}

/* --- q, k, v and z */

/* Factors and earlier inputs of a warp's pack; the lane has four channels. */
struct DeltaFactors {
  int channel; /* the lane's first channel of the convolution; -1: z, or no pack */
  /* taps[i]: the taps of channel i; with a pack of z, taps[0] has the norm's weights. inputs: earlier inputs
   * of all four channels, the oldest first. */
  float4 taps[4], inputs[3];
};

template <class B> __device__ __forceinline__ DeltaFactors delta_factors(const B &b) {
  const StepDelta &d = b.args.mixers.layers[b.layer()];
  const StepMix mix = b.mix();
  const int pack = b.warp(), convolved = 2 * mix.n_keys + mix.n, pos = b.vars().pos;
  DeltaFactors f = {};
  f.channel = -1;
  if (pack >= convolved + mix.n) return f;
  if (pack < convolved) {
    f.channel = step_mix_pack(&b.plan.shape, mix, true, pack) * STEP_PACK + 4 * b.lane();
    const int channels = (2 * b.plan.shape.n_key_heads + b.plan.shape.n_value_heads) * STEP_PACK;
    const float *inputs = b.delta_inputs() + f.channel;
#pragma unroll
    for (int i = 0; i < 4; i++) f.taps[i] = *(const float4 *)(d.conv + 4 * (f.channel + i));
#pragma unroll
    for (int i = 0; i < 3; i++)
      f.inputs[i] =
          load_4(pos < 3 - i ? NULL : inputs + (size_t)((pos - 3 + i) % STEP_DELTA_TAPS) * channels);
  } else {
    f.taps[0] = *(const float4 *)(d.norm + 4 * b.lane());
  }
  return f;
}

/* Replaces the projections by q, k, v, and silu(z) times the norm's weight. */
template <class B> __device__ __forceinline__ void convolve_pack(const B &b, const DeltaFactors &f) {
  const StepMix mix = b.mix();
  const int pack = b.warp();
  if (pack >= 2 * mix.n_keys + 2 * mix.n) return;
  float4 *channels_at = (float4 *)(b.exchange() + pack * STEP_PACK + 4 * b.lane());
  const float4 own = scaled_4(*channels_at, b.vars().inverse);
  if (f.channel < 0) {
    const float4 w = f.taps[0];
    *channels_at = make_float4(w.x * silu(own.x), w.y * silu(own.y), w.z * silu(own.z), w.w * silu(own.w));
    return;
  }
  const float4 inputs[4] = {f.inputs[0], f.inputs[1], f.inputs[2], own};
  const int channels = (2 * b.plan.shape.n_key_heads + b.plan.shape.n_value_heads) * STEP_PACK;
  if (b.rank() == kAppender)
    *(float4 *)(b.delta_inputs() + (size_t)(b.vars().pos % STEP_DELTA_TAPS) * channels + f.channel) = own;
  float4 out = convolve_4<false>(f.taps, inputs);
  if (pack < 2 * mix.n_keys)
    out = scaled_4(out, rsqrtf(warp_sum(dot_4(out, out)) + kDeltaNormEps) *
                            (pack < mix.n_keys ? b.args.mixers.q_scale : 1));
  *channels_at = out;
}

/* Computes decay and beta of the cluster's value heads, a lane each. For one warp. */
template <class B> __device__ __forceinline__ void make_decays(const B &b) {
  const StepDelta &d = b.args.mixers.layers[b.layer()];
  const StepMix mix = b.mix();
  MixVars &v = b.mix_vars();
  const float inverse = b.vars().inverse;
  const int i = b.lane(), head = mix.first + i;
  if (i >= mix.n) return;
  DeltaArgs a = {};
  a.a_log = d.a_log, a.dt_bias = d.dt_bias;
  v.beta[i] = a.beta_of(v.gates[i] * inverse);
  v.decay[i] = expf(a.log_decay_of(v.gates[mix.n + i] * inverse, head));
}

/* --- the states */

/* Advances the state of this block's values of the warpgroup's head, and sends their outputs. */
template <class B> __device__ __forceinline__ void advance_states(B &b) {
  const StepMix mix = b.mix();
  const int head = b.warp() >> 2, wg_warp = b.warp() & 3, lane = b.lane(), part = lane & 7;
  if (head < mix.n) {
    const int value = 4 * wg_warp + (lane >> 3);
    const float *packs = b.exchange();
    const int key_head = (mix.first + head) / (b.plan.shape.n_value_heads / b.plan.shape.n_key_heads);
    const float *q = packs + (key_head - mix.first_key) * STEP_PACK, *k = q + mix.n_keys * STEP_PACK,
                *v = packs + (2 * mix.n_keys + head) * STEP_PACK + b.rank() * STEP_DELTA_ROWS,
                *z = v + mix.n * STEP_PACK;
    RingCursor cursor = b.next();
    cursor.move(head, b.plan.n_slots);
    b.wait_for_stage(cursor);
    const int at = value * STEP_PACK + 4 * part;
    const float *from = (const float *)b.stage(cursor) + at;
    float4 s[4], keys[4];
    float known = 0, seen = 0, both = 0;
    const bool empty = b.vars().pos == 0; /* at position 0 memory holds no state yet */
#pragma unroll
    for (int m = 0; m < 4; m++) s[m] = empty ? make_float4(0, 0, 0, 0) : *(const float4 *)(from + 32 * m);
#pragma unroll
    for (int m = 0; m < 4; m++) {
      keys[m] = *(const float4 *)(k + 32 * m + 4 * part);
      const float4 query = *(const float4 *)(q + 32 * m + 4 * part);
      both += dot_4(keys[m], query), known += dot_4(s[m], keys[m]), seen += dot_4(s[m], query);
    }
    __syncwarp();
    barrier_arrive_after_reads(b.empty_at(cursor), lane == 0, __float_as_uint(seen)); /* all of s is loaded */
    both = lanes_sum<4, 2, 1>(both), known = lanes_sum<4, 2, 1>(known), seen = lanes_sum<4, 2, 1>(seen);
    const float decay = b.mix_vars().decay[head],
                change = b.mix_vars().beta[head] * (v[value] - decay * known);
    const float out = decay * seen + change * both, x = out * z[value];
    /* Lanes 0 to 7 each send the warp's four outputs to one block. */
    const float squares = (part == 0 ? out * out : 0);
    const uint4 four = four_lanes(__float_as_uint(x), 0, 8);
    const float sum = lanes_sum<8, 16>(squares); /* in lanes 0, 8, 16 and 24 */
    const float all = __shfl_sync(~0u, sum, 0);
    if (lane < STEP_BLOCKS) {
      const uint32_t barrier = peer_address(&b.barriers().states, lane);
      float *to = b.delta_outputs() + head * STEP_PACK + b.rank() * STEP_DELTA_ROWS + 4 * wg_warp;
      send_16(peer_address(to, lane), four, barrier);
      float *to_squares =
          b.delta_squares() + head * B::kDeltaSquares + b.rank() * STEP_WARPGROUP_WARPS + wg_warp;
      send_4(peer_address(to_squares, lane), __float_as_uint(all), barrier);
    }
    float *state = b.delta_state(mix.first + head) + at;
#pragma unroll
    for (int m = 0; m < 4; m++) {
      s[m].x = decay * s[m].x + keys[m].x * change, s[m].y = decay * s[m].y + keys[m].y * change;
      s[m].z = decay * s[m].z + keys[m].z * change, s[m].w = decay * s[m].w + keys[m].w * change;
      *(float4 *)(state + 32 * m) = s[m];
    }
  }
  b.advance(b.mix_vars().states_run);
}

/* Waits for the cluster's projections, advances the states of this block's values, and sends their outputs to
 * the cluster. */
template <class B> __device__ __forceinline__ void apply_delta_rule(B &b) {
  const DeltaFactors factors = delta_factors(b);
  wait_for_projections(b);
  convolve_pack(b, factors);
  if (b.warp() == STEP_WARPS - 1) make_decays(b);
  b.sync();
  b.mark(STEP_MARK_HEADS);
  advance_states(b);
  b.mark_waited(MATRICES);
  b.mark(STEP_MARK_STATES_SENT);
}

/* The normalised outputs of the warp's head, in lane 4 g + t: 16 g + 2 t, + 8, + 1 and + 9. */
template <class B> __device__ __forceinline__ void normalise_delta_outputs(const B &b, float (&v)[4]) {
  const int head = b.warp(), lane = b.lane();
  const float squares = warp_sum(b.delta_squares()[head * B::kDeltaSquares + lane]);
  const float scale = inverse_of_squares<STEP_PACK>(squares, b.args.norm_eps);
  const float *from = b.delta_outputs() + head * STEP_PACK + (lane >> 2) * 16 + (lane & 3) * 2;
  const float2 low = *(const float2 *)from, high = *(const float2 *)(from + 8);
  v[0] = low.x * scale, v[1] = high.x * scale, v[2] = low.y * scale, v[3] = high.y * scale;
}

/* Waits for the cluster's outputs of attention or of the delta rule, and quantises them as x of o: a warp
 * has a pack, or a head. */
template <class B> __device__ __forceinline__ void take_outputs(B &b) {
  wait_for_states(b);
  b.mark(STEP_MARK_STATES);
  const bool delta = b.is_delta();
  const int group = b.warp(), lane = b.lane();
  if (group < step_mix_groups(b.mix(), delta)) {
    float v[4];
    delta ? normalise_delta_outputs(b, v) : merge_blocks(b, v);
    keep_outputs(b, group, v);
    store_group<B::kParts>(v, b.value_planes() + group * kPlaneBytes + word_at<B::kParts>(lane, STEP_GROUP),
                           64, b.value_scales() + group * kXScales<B::kParts>, 1, lane);
  }
  b.mark(STEP_MARK_MERGED);
}

} // namespace step::one
