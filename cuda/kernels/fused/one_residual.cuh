/* one_residual.cuh - the residual stream of one token: all-reduce across clusters, and sending the normalised
 * x to the blocks of a cluster.
 *
 * The block of rank r owns `slice` columns of the residual stream, from r * slice on. Its warp i owns the
 * spans i and i + 16 of 32 columns each. Every cluster holds the same bits. The block contributes its
 * cluster's partial sums of o or down through L2 (allreduce.cuh), and reads the totals.
 *
 * Sums of squares and x = residual * norm go to the cluster's blocks at once. The matmul's outputs are then
 * divided by the rms. With int8, and for lm_head, x is divided instead. If a block owns whole groups
 * (step_owns_groups()), x goes quantised: no block has to wait for all of x and then quantise it. Else, and
 * for lm_head, x goes as floats. */
#pragma once

#include "cuda/kernels/fused/allreduce.cuh"
#include "cuda/kernels/fused/one_block.cuh"
#include "cuda/kernels/ptx/lanes.cuh"
#include "cuda/kernels/ptx/waiting.cuh"

namespace step::one {

/* Words of a buffer of totals. */
template <class B> __device__ __forceinline__ int sum_words(const B &b) {
  return B::kExperts ? step_sum_words(&b.plan.shape) : b.plan.shape.hidden;
}

template <class B> __device__ __forceinline__ Sum sum_of(const B &b, int matrix, int layer) {
  const StepShape &s = b.plan.shape;
  const int buffer = matrix == DOWN ? 1 + (layer & 1) : 0;
  if constexpr (B::kHybrid)
    if (matrix == O) return {b.args.totals, b.mix_vars().contributors[step_is_delta(&s, layer)]};
  return {b.args.totals + buffer * sum_words(b), matrix == DOWN ? s.n_clusters : b.plan.attending};
}

/* Four neighbouring outputs of a matmul, added up over its split-K warps. */
template <class B> __device__ __forceinline__ float4 four_rows(const B &b, const Share &share, int row) {
  const int warps = share.splits << share.log_k_warps, stride = share.sums_stride;
  const float *from = b.sums(share) + row;
  float4 v = *(const float4 *)from;
#pragma unroll 4
  for (int k = 1; k < warps; k++) {
    const float4 more = *(const float4 *)(from += stride);
    v.x += more.x, v.y += more.y, v.z += more.z, v.w += more.w;
  }
  return v;
}

/* An output of a matmul, added up over its split-K warps. */
template <class B> __device__ __forceinline__ float one_row(const B &b, const Share &share, int row) {
  const int warps = share.splits << share.log_k_warps, stride = share.sums_stride;
  const float *from = b.sums(share) + row;
  float v = *from;
#pragma unroll 4
  for (int k = 1; k < warps; k++) v += *(from += stride);
  return v;
}

/* Contributes this cluster's partial sums after a matmul, a column a thread. */
template <class B> __device__ __forceinline__ void contribute_sums(const B &b, int matrix) {
  const int slice = b.plan.slice;
  const Sum sum = sum_of(b, matrix, b.layer());
  const Share &share = b.share(matrix);
  uint64_t *to = sum.totals + b.rank() * slice;
  const int n = B::kVaried ? share.n_rows * 16 : slice;
#pragma unroll 1
  for (int i = b.thread(); i < n; i += STEP_THREADS) contribute(to + i, one_row(b, share, i));
}

/* The sum of the lane's word over all GPUs. own: this GPU's sum; tag: the low bits of its word.
 *
 *     mail  uint64 [3 buffers][GPUs][words]       63 .. 32 | 31 .. 0
 *           of each GPU, by sender                 the sum  | the tag
 *
 * The sums are floats, added in the order of the GPUs: all get the same bits. The clusters of a GPU send its
 * sums in turn, 32 words each. The tag is the word's number of contributions modulo 32. All GPUs count alike,
 * because several.c requires equal numbers of clusters. Each use of a buffer adds 1 to 24, so the tag differs
 * from that of the buffer's last use. A buffer is used again only after every reader of every GPU has
 * contributed to a sum that the sender had to wait for. With experts all GPUs choose the same experts,
 * because the router's logits are such sums. */
template <class B>
__device__ __forceinline__ float sum_of_gpus(const B &b, const Sum &sum, int column, float own,
                                             uint32_t tag) {
  const StepPeers &peers = b.args.peers;
  const int words = sum_words(b);
  const size_t at = (size_t)(sum.totals - b.args.totals) * peers.n + column;
  if (column / kColumns % b.plan.shape.n_clusters == b.cluster())
    for (int gpu = 0; gpu < peers.n; gpu++)
      if (gpu != peers.rank)
        store_peer(peers.mail[gpu] + at + peers.rank * words, (uint64_t)__float_as_uint(own) << 32 | tag);
  float all = 0;
  for (int gpu = 0; gpu < peers.n; gpu++) {
    float part = own;
    if (gpu != peers.rank) {
      const uint64_t *from = peers.mail[peers.rank] + at + gpu * words;
      Waiting waiting;
      uint64_t word = load_peer(from);
      while ((uint32_t)word != tag && !waiting.gives_up(peers, gpu)) word = load_peer(from);
      part = __uint_as_float((uint32_t)(word >> 32));
    }
    all = gpu == 0 ? part : all + part;
  }
  __syncwarp();
  return all;
}

/* Waits for the lane's kN words, summed over the clusters and GPUs. Only one block of each cluster polls a
 * word: the poll overwrites what the cluster keeps of it for the next use (`last` in allreduce.cuh). */
template <int kN, class B>
__device__ __forceinline__ void poll_sums(const B &b, const Sum &sum, const int (&word)[kN],
                                          float (&sums)[kN]) {
  const size_t kept_at = (size_t)(1 + b.cluster()) * STEP_SUM_BUFFERS * sum_words(b);
  uint64_t total[kN], last[kN];
#pragma unroll
  for (int i = 0; i < kN; i++) total[i] = load_relaxed_8(sum.totals + word[i]);
#pragma unroll
  for (int i = 0; i < kN; i++) last[i] = sum.totals[word[i] + kept_at];
  const long long since = B::kIsDebug ? clock64() : 0;
  for (;;) { /* reads again only what was incomplete */
    bool whole = true;
#pragma unroll
    for (int i = 0; i < kN; i++) whole &= is_complete(total[i], last[i], sum.contributors);
    if (__all_sync(~0u, whole)) break;
    if (B::kIsDebug && !whole)
      b.check_patience(since, STEP_AT_VALUES, word[0], (int)(total[0] - last[0] & 31));
    backoff();
#pragma unroll
    for (int i = 0; i < kN; i++)
      if (!is_complete(total[i], last[i], sum.contributors)) total[i] = load_relaxed_8(sum.totals + word[i]);
  }
#pragma unroll
  for (int i = 0; i < kN; i++) {
    sum.totals[word[i] + kept_at] = total[i];
    sums[i] = sum_since(total[i], last[i], sum.contributors);
    if constexpr (B::kIsShared) sums[i] = sum_of_gpus(b, sum, word[i], sums[i], (uint32_t)total[i] & 31);
  }
}

/* The lane's column, summed over the clusters and GPUs. */
template <class B> __device__ __forceinline__ float poll_sum(const B &b, const Sum &sum, int column) {
  float own[1];
  poll_sums<1>(b, sum, {column}, own);
  return own[0];
}

__device__ __forceinline__ uint4 bits_of(const float4 &v) {
  return make_uint4(__float_as_uint(v.x), __float_as_uint(v.y), __float_as_uint(v.z), __float_as_uint(v.w));
}

/* The values of lanes first, first + step, first + 2 step and first + 3 step. */
__device__ __forceinline__ uint4 four_lanes(uint32_t v, int first, int step = 1) {
  return make_uint4(__shfl_sync(~0u, v, first), __shfl_sync(~0u, v, first + step),
                    __shfl_sync(~0u, v, first + 2 * step), __shfl_sync(~0u, v, first + 3 * step));
}

/* Copies this thread's columns of the residual stream after a layer's down, if the layer has a tap. */
template <class B> __device__ __forceinline__ void keep_tap(const B &b, int layer) {
  const StepTaps &taps = b.args.taps;
  const int tap = tap_of(b, layer), spans = b.plan.slice / kColumns;
  if (tap < 0) return;
  float *to = taps.rows + tap * b.plan.shape.hidden + b.rank() * b.plan.slice;
#pragma unroll 1
  for (int span = b.warp(); span < spans; span += STEP_WARPS)
    to[span * kColumns + b.lane()] = b.residual()[span * kColumns + b.lane()];
}

/* The norm's weights of the lane's four inputs of a group: k, k + 1, then k + 8, k + 9. */
struct GroupNorm {
  float2 low, high;
};

/* The lane's k in GroupNorm. */
template <class B> __device__ __forceinline__ int input_of_lane(const B &b) {
  return (b.lane() >> 2) * 16 + (b.lane() & 3) * 2;
}

/* Quantises a group of the block's x, when the warpgroup has written the group's residual stream, and sends
 * it to the cluster. Each of the four warps quantises the whole group, and sends it to two blocks. */
template <class B> __device__ __forceinline__ void send_planes(const B &b, const GroupNorm &norm, int group) {
  constexpr int kScales = kXScales<B::kParts>, kLanes = 32 / kScales;
  const float2 *r = (const float2 *)(b.residual() + group * STEP_GROUP + input_of_lane(b));
  const float2 low = r[0], high = r[4];
  const float x[4] = {low.x * norm.low.x, high.x * norm.high.x, low.y * norm.low.y, high.y * norm.high.y};
  uint32_t word[2];
  const float2 scale = group_words<B::kParts>(x, word);
  unsigned char *words =
      b.planes() + b.warp() * 2 * STEP_GROUP; /* scratch: a lane sends 16 bytes of four lanes */
  store_words<B::kParts>(word, words + word_at<B::kParts>(b.lane(), STEP_GROUP), 64);
  __syncwarp();
  const uint4 own = *(const uint4 *)(words + (b.lane() & 15) * 16);
  const int to = b.rank() * (b.plan.slice / STEP_GROUP) + group, first = 2 * (b.warp() & 3);
  const int peer = first + (b.lane() >> 4), second = first + (b.lane() & 1);
  send_16(peer_address(b.x_planes() + to * 2 * STEP_GROUP + (b.lane() & 15) * 16, peer), own,
          peer_address(&b.barriers().x, peer));
  if (b.lane() % kLanes < 2)
    send_8(peer_address(b.x_scales() + to * kScales + b.lane() / kLanes, second),
           make_uint2(__float_as_uint(scale.x), __float_as_uint(scale.y)),
           peer_address(&b.barriers().x, second));
}

/* Varied experts: the bias that `matrix` adds in a column of the residual stream; for down the weighted sum
 * of the chosen experts' biases. */
template <class B>
__device__ __forceinline__ float output_bias(const B &b, int matrix, int layer, int column) {
  if (matrix == O) return __ldg(b.o_bias(layer) + column);
  const float *bias = b.args.varied.layers[layer].down_bias + column;
  float sum = 0;
#pragma unroll 4
  for (int i = 0; i < b.plan.shape.n_chosen; i++)
    sum += b.chosen()[i] * __ldg(bias + b.ids()[i] * b.plan.shape.width);
  return sum;
}

/* Before qkv (and lm_head) and before gate and up: adds the output of down or o to the residual stream, which
 * begins as the embedding (take_input()). Then, if `wanted`, sends x = residual * norm of this block's
 * columns to the cluster. */
template <class B> __device__ __forceinline__ void normalise(B &b, int matrix, bool wanted) {
  const int layer = matrix == QKV ? b.layer() - 1 : b.layer(); /* layer of down or o; -1: before the first */
  const int spans = b.plan.slice / kColumns, first_column = b.rank() * b.plan.slice;
  const float *norm = b.args.vectors + (b.layer() * b.args.vectors_stride +
                                        (matrix == QKV ? 0 : b.plan.shape.hidden) + first_column);
  const bool planes = b.owns_groups() && b.layer() < b.plan.shape.n_layers;
  Sum sum = {};
  if (layer >= 0) sum = sum_of(b, matrix == QKV ? DOWN : O, layer);
  b.mark(matrix == QKV ? STEP_MARK_SUM : STEP_MARK_SUM_O);
#pragma unroll 1
  for (int span = b.warp(); span < spans; span += STEP_WARPS) {
    const int own = span * kColumns + b.lane();
    const float *of_group = norm + (span & ~3) * kColumns + input_of_lane(b);
    GroupNorm group_norm;
    float weight;
    if constexpr (B::kLatent) group_norm = {}, weight = 0; /* else old values keep registers */
    if (planes)
      group_norm = {__ldg((const float2 *)of_group), __ldg((const float2 *)of_group + 4)};
    else
      weight = __ldg(norm + own);
    float *kept = b.residual() + own;
    float residual, o_bias = 0;
    if constexpr (B::kVaried)
      if (matrix == QKV) o_bias = __ldg(b.o_bias(b.layer()) + first_column + own);
    if constexpr (B::kVaried) {
      residual = *kept;
      if (layer >= 0 && first_column + span * kColumns < b.width()) { /* the same for all lanes of a warp */
        const float bias = output_bias(b, matrix == QKV ? DOWN : O, layer, first_column + own);
        residual += bias + poll_sum(b, sum, first_column + own);
      }
    } else {
      residual = *kept + (layer < 0 ? 0 : poll_sum(b, sum, first_column + own));
    }
    *kept = residual;
    if (B::kExperts && matrix == QKV) {
      float of_router = residual;
      if constexpr (B::kVaried) of_router += o_bias; /* the folded router makes o without its bias */
      b.router_columns()[own] = of_router;
    }
    if (!wanted) continue;
    if (planes) {
      sync_warpgroup(b.warp() >> 2);
      send_planes(b, group_norm, span / 4);
    } else {
      const int quad = 4 * (b.lane() & 7);
      send_to_cluster<3>(b.x() + first_column + span * kColumns + quad,
                         four_lanes(__float_as_uint(residual * weight), quad), b.barriers().x, b.lane());
    }
    const float squares = warp_sum(residual * residual);
    if (b.lane() < STEP_BLOCKS)
      send_4(peer_address(b.squares() + b.rank() * spans + span, b.lane()), __float_as_uint(squares),
             peer_address(&b.barriers().x, b.lane()));
  }
  if constexpr (B::kTaps)
    if (matrix == QKV) keep_tap(b, layer);
  if constexpr (B::kExperts)
    if (matrix == QKV) {
      __syncwarp();
      if (b.lane() == 0) barrier_arrive(&b.barriers().columns);
    }
  b.mark(matrix == QKV ? STEP_MARK_X_SENT : STEP_MARK_X_SENT_O);
}

/* 1 / rms of the x that came last: the factor of x or of the matmul's output. For whole warps. */
template <class B> __device__ __forceinline__ float inverse_of_x(const B &b) {
  float squares = 0;
#pragma unroll 1
  for (int i = 4 * b.lane(); i < b.plan.shape.hidden / kColumns; i += 128) {
    const float4 v = *(const float4 *)(b.squares() + i);
    squares += (v.x + v.y) + (v.z + v.w);
  }
  squares = warp_sum(squares);
  return rsqrtf(__fdividef(squares, small_float(b.width())) + b.args.norm_eps);
}

/* Varied experts: the biases of gate and up of tile row i of the block's share. */
template <class B> __device__ __forceinline__ const float *gate_up_bias(const B &b, int i) {
  const Share &share = b.share(GATE_UP);
  const int rows = b.plan.expert_blocks * (B::kFeatures / 8), tile = share.tile[0] + i * share.stride[0],
            choice = tile / rows;
  return b.args.varied.layers[b.layer()].gate_up_bias + (tile + (b.ids()[choice] - choice) * rows) * 16;
}

/* Sends this block's features of the gated product to the cluster, four at a time by eight lanes: lanes i and
 * i + 4 compute feature i, and each lane sends all four to one peer. */
template <class B> __device__ __forceinline__ void send_gated(B &b) {
  const float inverse = b.vars().inverse;
  const Share &share = b.share(GATE_UP);
  constexpr int kLogQuads = B::kVaried ? 1 : 2; /* log2 of a block's sets of four features in an FFN block */
  const int peer = b.lane() & 7, group = b.lane() & ~7, quads = 2 * share.n_rows;
#pragma unroll 1
  for (int first = b.warp() * 4; first < quads; first += STEP_THREADS / 8) {
    const int item = min(first + (b.lane() >> 3), quads - 1);
    const int row = (item >> 1) * 16 + (item & 1) * 4 + (b.lane() & 3);
    float gate = one_row(b, share, row) * inverse, up = one_row(b, share, row + 8) * inverse, v;
    if constexpr (B::kVaried) {
      const float *bias = gate_up_bias(b, item >> 1) + (row & 15);
      gate += __ldg(bias), up += __ldg(bias + 8);
      v = gated_product(ACTIVATION_CLAMPED, gate, up, 0);
    } else {
      v = silu(gate) * up;
    }
    if constexpr (B::kExperts) v *= b.block_weights()[item >> kLogQuads];
    /* The shuffles wait until all lanes have read their sums: a peer that has all features may send x, which
     * overwrites the sums. */
    const uint4 four = four_lanes(__float_as_uint(v), group);
    const float *to = b.exchange() + (item >> kLogQuads) * B::kFeatures + b.rank() * (4 << kLogQuads) +
                      (item & ((1 << kLogQuads) - 1)) * 4;
    if (first + (b.lane() >> 3) < quads)
      send_16(peer_address(to, peer), four, peer_address(&b.barriers().gated, peer));
  }
}

} // namespace step::one
