/* few/matmul.cuh - matmuls with two, four and eight tokens.
 *
 *     y[row] = sum over groups (s (sum q X - z sum X) d),   x = d X (quantise.cuh)
 *
 * The block that owns columns of x multiplies them by all tile rows of the cluster (plan.h). It sends the
 * partial sums of qkv, gate and up in chunks to the block of the token. So a head and an FFN block of a token
 * are complete in one block:
 *
 *     qkv       a chunk of a pack: norm, rope -> halves to the cluster
 *     gate, up  two chunks of an FFN block: gated product -> integers to the cluster, by one more warp
 *
 * Chunks are numbered through the whole step, and chunk n lies in place n % STEP_CHUNKS of its token's block:
 *
 *   8 blocks, 16 warps       wait chunk_taken, parity n / 8 - 1 -> 64 bytes a tile row -> chunk_came: 1, 4 KB
 *                                 ^                                                           |
 *   token's block, a warp         +-- chunk_taken of 8 blocks: kTokens <- add up <- wait, parity n / 8
 *
 * (parities modulo 2; the first 8 chunks wait for nothing). The one arrival at chunk_came is that of the warp
 * that has added up the previous chunk in that place. kTokens blocks arrive at chunk_taken, because each
 * block of a turn takes chunk n of its own token.
 *
 * The columns of mma_u8s8_m16n8k32 are, with two tokens, both planes of each token for two groups; with four,
 * both planes of each token; with eight, one plane of each token, in two mma that share the weights. In the
 * end lane 4 g + t has outputs g and g + 8 of token t (with two tokens t % 2; with eight, of tokens 2 t and
 * 2 t + 1). A warp takes all groups of a tile row from one stage after another, two groups at a time to hide
 * latency. It sends the result without a barrier of the block. Rows g + 8 are multiplied as whole bytes
 * (one_matmul.cuh). FP4: few/fp4.cuh. */
#pragma once

#include "cuda/kernels/fused/attend.cuh"
#include "cuda/kernels/fused/few/fp4.cuh"

namespace step::few {

/* How many of n packs or FFN blocks go to block number `turn` of the Block::kTurns blocks of a token. */
template <class B> __device__ __forceinline__ int items_of(int n, int turn) {
  return (n - turn + B::kTurns - 1) / B::kTurns;
}

/* The number of the first chunk of a pack or FFN block, among those of its turn. */
template <class B> __device__ __forceinline__ int first_chunk(const B &b, int matrix, int item) {
  const int turn = item % B::kTurns;
  const int packs = b.has_kv_head() ? items_of<B>(b.plan.qkv_packs, turn) : 0;
  const int ffn_blocks = items_of<B>(b.share(DOWN).n_groups, turn);
  return b.layer() * (packs + 2 * ffn_blocks) +
         (matrix == QKV ? item / B::kTurns : packs + item / B::kTurns * 2);
}

/* A lane's results: outputs g and g + 8 of one token or of two; output g + 8 is 16 times too large until
 * finish(). */
template <class B> struct IntegerSums {
  static constexpr int kTokens = B::kTokens, kLaneTokens = kTokens == 8 ? 2 : 1, kParts = B::kParts;
  /* With two tokens, two groups are columns of the same mma: lanes t = 0 and 1 use the result of the first
   * group's tile, lanes 2 and 3 the result of the second group's. */
  static constexpr bool kShared = kTokens == 2;
  static constexpr int kAtOnce = 2; /* groups that add() takes at once */
  float y[2][kLaneTokens];

  /* Where a lane reads its part of a group: shared_address()es, and x_scales as an offset from smem. */
  struct At {
    uint32_t tiles, scales, zeros, planes, x_scales;
  };

  /* Offsets of the lane's part in a group's scales and zeros, in x, and in the scales of x. */
  static __device__ __forceinline__ int scales_at(int lane) { return (lane >> 2) * 4; }
  static __device__ __forceinline__ int zeros_at(int lane) { return lane >> 2; }
  static __device__ __forceinline__ int planes_at(int lane) {
    return (kTokens == 2 ? lane >> 2 & 3 : lane >> 2) * 64 + (lane & 3) * 16;
  }
  static __device__ __forceinline__ int x_scales_at(int lane) {
    return (lane & 3) % kTokens * (kLaneTokens * 8);
  }

  typedef int Accumulators[2][kLaneTokens][4]; /* of two groups */

  /* The high planes of eight tokens start at 2^24, which times 256 wraps to 0. If both planes started at 0,
   * the compiler would put the first mma's sums where the second mma's weights are, and copy these weights
   * first. */
  static __device__ __forceinline__ void clear(Accumulators &acc) {
#pragma unroll
    for (int i = 0; i < 2; i++)
#pragma unroll
      for (int p = 0; p < kLaneTokens; p++)
        acc[i][p][0] = acc[i][p][1] = acc[i][p][2] = acc[i][p][3] = kLaneTokens == 2 && p == 0 ? 1 << 24 : 0;
  }

  /* Adds two groups, or one. A single group is multiplied twice and counted once. */
  __device__ __forceinline__ void add(const At &at, const unsigned char *smem, bool two, int lane) {
    const int more = two ? 1 : 0;
    Accumulators acc;
    const uint32_t planes = at.planes + (kShared ? (lane >> 4) * more * B::kGroup : 0);
#pragma unroll
    for (int c = 0; c < 2; c++) {
      if (kParts == 2 || c == 0) clear(acc);
      uint4 tile[2], x[2][kLaneTokens];
#pragma unroll
      for (int i = 0; i < 2; i++) {
        tile[i] = load_shared_16(at.tiles + i * more * 1024 + c * 512);
#pragma unroll
        for (int p = 0; p < kLaneTokens; p++)
          x[i][p] = kShared && i
                        ? x[0][p]
                        : load_shared_16(planes + i * more * B::kGroup + c * B::kHalf + p * B::kPlane);
      }
#pragma unroll
      for (int step = 0; step < 2; step++) {
        if (kParts == 4 && (c || step)) clear(acc);
#pragma unroll
        for (int i = 0; i < 2; i++) {
          uint32_t operand[4];
          operand_of<kParts>(tile[i], step, operand);
#pragma unroll
          for (int p = 0; p < kLaneTokens; p++)
            mma_u8s8_m16n8k32(acc[i][p], operand, step ? x[i][p].z : x[i][p].x, step ? x[i][p].w : x[i][p].y);
        }
        if (kParts == 4) add_part(acc, at, smem, two, 2 * c + step, lane);
      }
      if (kParts == 2) add_part(acc, at, smem, two, c, lane);
    }
    if (kParts == 1) add_part(acc, at, smem, two, 0, lane);
  }

  /* Scales the sums of part `part` of both groups, and adds them to y. */
  __device__ __forceinline__ void add_part(const Accumulators &acc, const At &at, const unsigned char *smem,
                                           bool two, int part, int lane) {
    const int more = two ? 1 : 0, second = kShared ? lane >> 1 & 1 : 0;
#pragma unroll
    for (int i = 0; i < (kShared ? 1 : 2); i++) {
      const int n = (kShared ? second : i) * more * kParts + part;
      const bool counts = two || !(kShared ? second : i);
      const uint32_t factors = load_shared_4(at.scales + n * 32), zero = load_shared_1(at.zeros + n * 8);
      const float scale[2] = {f16_low(factors), f16_high(factors)},
                  from[2] = {small_float(zero & 15), small_float(zero & 240)};
      float2 x_scales[kLaneTokens];
      if (kLaneTokens == 2) {
        const float4 both = *(const float4 *)(smem + at.x_scales + n * kTokens * 8);
        x_scales[0] = make_float2(both.x, both.y), x_scales[kLaneTokens - 1] = make_float2(both.z, both.w);
      } else {
        x_scales[0] = *(const float2 *)(smem + at.x_scales + n * kTokens * 8);
      }
#pragma unroll
      for (int r = 0; r < kLaneTokens; r++) {
        const float2 x_scale = counts ? x_scales[r] : make_float2(0, 0);
        int sum[2]; /* both planes, of outputs g and g + 8 */
#pragma unroll
        for (int h = 0; h < 2; h++)
          if (kLaneTokens == 2)
            sum[h] = (int)((unsigned)acc[i][0][2 * h + r] * 256 + acc[i][kLaneTokens - 1][2 * h + r]);
          else if (kShared)
            sum[h] = (second ? acc[1][0][2 * h] : acc[0][0][2 * h]) * 256 +
                     (second ? acc[1][0][2 * h + 1] : acc[0][0][2 * h + 1]);
          else
            sum[h] = acc[i][0][2 * h] * 256 + acc[i][0][2 * h + 1];
        y[0][r] += scale[0] * (x_scale.x * (float)sum[0] - from[0] * x_scale.y);
        y[1][r] += scale[1] * (x_scale.x * (float)(sum[1] - sum[0]) - from[1] * x_scale.y);
      }
    }
  }

  /* Completes the outputs after the last group; with two tokens lanes t and t + 2 both have them. */
  __device__ __forceinline__ void finish(int) {
#pragma unroll
    for (int r = 0; r < kLaneTokens; r++) {
      y[1][r] *= 0.0625f;
#pragma unroll
      for (int h = 0; h < 2; h++)
        if (kShared) y[h][r] += __shfl_xor_sync(~0u, y[h][r], 2);
    }
  }
};

template <class B>
using Sums = typename std::conditional<kIsFp4<B::kParts>, Fp4Sums<B>, IntegerSums<B>>::type;

/* Where a warp sends its results. */
template <class B> struct Outlet {
  static constexpr int kTokens = B::kTokens, kTurns = B::kTurns, kLaneTokens = Sums<B>::kLaneTokens;
  int first;          /* number of the matmul's first chunk, if a token has one block */
  uint32_t chunks_at; /* offset in shared memory of this block's and lane's part of chunk 0 */
  int peer;           /* rank of the first of the token's blocks */
  uint64_t *to;       /* o and down: word of the lane's first token and output */

  __device__ __forceinline__ void begin(const B &b, int matrix) {
    const int lane = b.lane(), g = lane >> 2, t = lane & 3;
    if (matrix == QKV || matrix == GATE_UP) {
      if (kTurns == 1) first = first_chunk(b, matrix, 0);
      chunks_at = opaque(b.plan.off.chunk_sums + b.rank() * (STEP_CHUNK_BYTES / STEP_BLOCKS) + (g >> 1) * 16);
      peer = kTokens == 8 ? 2 * t + (g & 1) : t % kTokens;
    } else {
      const StepShape &s = b.plan.shape;
      /* With two tokens half of the lanes contribute outputs g, the other half outputs g + 8. */
      to = sum_of(b, matrix, b.layer()).totals + kLaneTokens * (t % kTokens) * s.hidden +
           b.first_columns() * STEP_GROUP + g + (Sums<B>::kShared ? t / 2 * 8 : 0);
    }
  }

  /* Sends a tile row's partial sums to the blocks of the tokens. Layout of a chunk: float [block][tile
   * row][g / 2][outputs g, g + 8, g + 1, g + 9]. */
  __device__ __forceinline__ void send(const B &b, int matrix, int local, const Sums<B> &sums) const {
    const bool odd = b.lane() & 4;
    int n = local >> 3, turn = 0; /* an FFN block is two chunks, a pack is one */
    if (kTurns == 1) {
      n += first;
    } else {
      const int item = matrix == QKV ? n : n >> 1;
      turn = item % kTurns;
      n = first_chunk(b, matrix, item) + (matrix == QKV ? 0 : n & 1);
    }
    /* Two lanes of neighbouring g together have 16 bytes of a token, and the lane with even g sends them.
     * With eight tokens they have 16 bytes of each of two tokens, and each lane sends one token's bytes. */
    float mine[2], other[2];
#pragma unroll
    for (int i = 0; i < 2; i++) {
      mine[i] = kTokens == 8 && odd ? sums.y[i][kLaneTokens - 1] : sums.y[i][0];
      other[i] = __shfl_xor_sync(~0u, kTokens == 8 && odd ? sums.y[i][0] : sums.y[i][kLaneTokens - 1], 4);
    }
    if (n >= STEP_CHUNKS) b.wait(b.chunk_taken(turn, n), ((unsigned)n / STEP_CHUNKS - 1) & 1, STEP_AT_SLOT);
    const unsigned char *at =
        b.smem + chunks_at + (n & (STEP_CHUNKS - 1)) * STEP_CHUNK_BYTES + (local & 7) * 64;
    const uint4 v =
        make_uint4(__float_as_uint(odd ? other[0] : mine[0]), __float_as_uint(odd ? other[1] : mine[1]),
                   __float_as_uint(odd ? mine[0] : other[0]), __float_as_uint(odd ? mine[1] : other[1]));
    if (kTokens == 8 || (!odd && (kTokens == 4 || !(b.lane() & 2))))
      send_16(peer_address(at, peer + kTokens * turn), v,
              peer_address(&b.chunk_came(n), peer + kTokens * turn));
  }

  /* Contributes this cluster's part of 16 columns to the all-reduce. */
  __device__ __forceinline__ void contribute_sums(const B &b, int local, const Sums<B> &sums) const {
    uint64_t *at = to + local * 16;
#pragma unroll
    for (int r = 0; r < kLaneTokens; r++, at += b.plan.shape.hidden)
      if (Sums<B>::kShared) {
        contribute(at, b.lane() & 2 ? sums.y[1][r] : sums.y[0][r]);
      } else {
        contribute(at, sums.y[0][r]);
        contribute(at + 8, sums.y[1][r]);
      }
  }
};

/* 1 / rms of this block's token. Waits until all groups' squares have come. announces: true in the one thread
 * that also announces the bytes of the next layer's squares. */
template <class B> __device__ __forceinline__ float inverse_of_token(const B &b, int matrix, bool announces) {
  uint64_t &squares = b.barriers().squares[matrix == GATE_UP];
  b.wait(squares, b.layer() & 1, STEP_AT_X);
  if (announces) barrier_expect(&squares, b.square_bytes());
  return inverse_of(b, b.own_token());
}

/* Adds up a chunk of this block's token: four outputs of a tile row a lane. */
template <class B> __device__ __forceinline__ float4 take_chunk(const B &b, int n) {
  b.wait(b.chunk_came(n), (unsigned)n / STEP_CHUNKS & 1, STEP_AT_PROJECTIONS, n);
  const unsigned char *from =
      b.smem + b.plan.off.chunk_sums + (n & (STEP_CHUNKS - 1)) * STEP_CHUNK_BYTES + b.lane() * 16;
  float4 v = *(const float4 *)from;
#pragma unroll
  for (int i = 1; i < STEP_BLOCKS; i++) {
    const float4 more = *(const float4 *)(from + i * (STEP_CHUNK_BYTES / STEP_BLOCKS));
    v.x += more.x, v.y += more.y, v.z += more.z, v.w += more.w;
  }
  /* Opaque, so that the compiler completes these sums, and with them all reads of the chunk, before peers may
   * overwrite it. In the machine code (CUDA 13.0) the arrivals at peers wait for the loads even without
   * opaque(). */
  v.x = __uint_as_float(opaque(__float_as_uint(v.x))), v.y = __uint_as_float(opaque(__float_as_uint(v.y)));
  v.z = __uint_as_float(opaque(__float_as_uint(v.z))), v.w = __uint_as_float(opaque(__float_as_uint(v.w)));
  __syncwarp();
  if (b.lane() == 0) barrier_expect(&b.chunk_came(n), STEP_CHUNK_BYTES);
  __syncwarp();
  if (b.lane() < STEP_BLOCKS) barrier_arrive_at_peer(peer_address(&b.chunk_taken(b.own_turn(), n), b.lane()));
  return v;
}

/* Sends a pack of halves to `to` in all blocks of the cluster; a lane sends the 8 halves from number 8 (lane
 * % 16) on. */
template <class B>
__device__ __forceinline__ void send_pack(const B &b, uint32_t near, uint32_t far, const __half *to) {
  const int lane = b.lane(), run = lane & 15;
  uint32_t w[4];
#pragma unroll
  for (int e = 0; e < 4; e++) {
    const uint32_t one = __shfl_sync(~0u, near, (run >> 1) * 4 + e),
                   other = __shfl_sync(~0u, far, (run >> 1) * 4 + e);
    w[e] = run & 1 ? other : one;
  }
  send_to_cluster<4>(to + run * 8, make_uint4(w[0], w[1], w[2], w[3]), b.barriers().projections, lane);
}

/* 1 / rms of a head; a lane holds four values, 16 lanes a head of 64. */
template <int kDim> __device__ __forceinline__ float inverse_of_head(const float (&v)[4], float eps) {
  float squares = v[0] * v[0] + v[1] * v[1] + v[2] * v[2] + v[3] * v[3];
  squares = kDim == 64 ? lanes_sum<1, 2, 4, 8>(squares) : warp_sum(squares);
  return inverse_of_squares<kDim>(squares, eps);
}

/* The numbers k, k + 8, k + 1 and k + 9 of a new key or value in 8 bits. Four lanes have 16 neighbouring
 * numbers. */
struct Four8 {
  uint8_t q[4];
  __half scale;
};

/* Rounds v to what a cache in 8 bits holds, and returns the bytes and their scale. */
template <class B> __device__ __forceinline__ Four8 round_q8(float (&v)[4], bool is_key) {
  uint32_t size = 0;
#pragma unroll
  for (int i = 0; i < 4; i++) size = max(size, __float_as_uint(fabsf(v[i])));
  size = largest_size<KEY_SCALE_DIMS / 4>(size);
  const uint32_t of_all = largest_size<B::kDim / 4>(size);
  Four8 f;
  f.scale = scale_of_largest(is_key ? size : of_all);
  const ToQ8 to_q8(f.scale);
#pragma unroll
  for (int i = 0; i < 4; i++) f.q[i] = to_q8.byte(v[i]), v[i] = from_q8(f.q[i], f.scale);
  return f;
}

/* Stores the lane's four numbers. to: the address of number k in the cache. */
__device__ __forceinline__ void store_q8(const Four8 &f, bool is_key, uint8_t *to, __half *scales, int k) {
  *(uint16_t *)to = (uint16_t)(f.q[0] | f.q[2] << 8);
  *(uint16_t *)(to + 8) = (uint16_t)(f.q[1] | f.q[3] << 8);
  if (is_key ? k % KEY_SCALE_DIMS == 0 : k == 0) scales[is_key ? k / KEY_SCALE_DIMS : 0] = f.scale;
}

/* Makes the packs of heads of this block's token from their chunks, one warp each, and sends them to the
 * cluster. A new key or value goes to the cache, too. A lane has outputs k, k + 8, k + 1, k + 9. */
template <class B> __device__ __forceinline__ void make_heads(const B &b) {
  constexpr int kDim = B::kDim;
  const StepCall &c = b.args.call;
  const int all = b.plan.qkv_packs, token = b.own_token(), pack = b.warp() * B::kTurns + b.own_turn();
  if (pack >= all && b.warp() > 0) return;
  const int lane = b.lane(), heads = b.plan.heads_per_kv,
            head = pack * B::kPackHeads + (kDim == 64 ? lane >> 4 : 0),
            k = (lane / 4 * 16 + lane % 4 * 2) % kDim;
  const float *norms = (head < heads ? b.vectors().q_norm : b.vectors().k_norm) + k,
              *biases = b.vectors().bias + k + head_of_qkv(b, head) * kDim;
  const bool normed = b.args.head_norms && head <= heads;
  float norm[4], bias[4];
#pragma unroll
  for (int i = 0; i < 4; i++) {
    const int at = (i & 1) * 8 + (i >> 1);
    norm[i] = normed ? __ldg(norms + at) : 1, bias[i] = b.args.bias ? __ldg(biases + at) : 0;
  }
  const float inverse = inverse_of_token(b, QKV, threadIdx.x == 0);
  if (pack >= all) return;
  const float4 sum = take_chunk(b, first_chunk(b, QKV, pack));
  float v[4] = {sum.x * inverse + bias[0], sum.y * inverse + bias[1], sum.z * inverse + bias[2],
                sum.w * inverse + bias[3]};
  if (pack * B::kPackHeads <= heads) { /* also for a value in the key's pack: shuffles need all lanes */
    const bool turns = kDim == 128 || head <= heads;
    if (b.args.head_norms) {
      const float scale = inverse_of_head<kDim>(v, b.args.norm_eps);
#pragma unroll
      for (int i = 0; i < 4; i++) v[i] *= turns ? scale * norm[i] : 1;
    }
    /* k and k + kDim / 2 are a pair, in lanes kDim / 8 apart. */
#pragma unroll
    for (int i = 0; i < 4; i++) {
      const float turned = rotate_with(v[i], __shfl_xor_sync(~0u, v[i], kDim / 8), k < kDim / 2,
                                       b.rope()[k % (kDim / 2) + (i & 1) * 8 + (i >> 1)]);
      v[i] = turns ? turned : v[i];
    }
  }
  if (!B::kQ8 && pack >= b.plan.o_packs)
#pragma unroll
    for (int i = 0; i < 4; i++) v[i] = finite_value(v[i]);
  Four8 small = {};
  if (B::kQ8 && pack >= b.plan.o_packs) small = round_q8<B>(v, head == heads);
  const uint32_t near = pack_half2(v[0], v[2]), far = pack_half2(v[1], v[3]);
  const int to = kDim == 64 ? heads + (lane >> 3 & 1) : head; /* keys, values: head of the lane's 8 halves */
  send_pack(b, near, far,
            pack < b.plan.o_packs ? b.heads() + token * heads * kDim + pack * STEP_PACK
            : to == heads         ? b.new_keys() + token * kDim
                                  : b.new_values() + token * kDim - (kDim == 64 ? kDim : 0));
  if (head < heads || token >= c.n_tokens) return;
  const size_t row = b.new_cache_row();
  const bool is_key = head == heads;
  typename B::CacheNumber *cache = (typename B::CacheNumber *)(is_key ? c.k : c.v) + k + row * kDim;
  if constexpr (B::kQ8)
    store_q8(small, is_key, cache,
             (__half *)(is_key ? c.k_scales : c.v_scales) + row * (is_key ? key_scales(kDim) : 1), k);
  else
    *(uint32_t *)cache = near, *(uint32_t *)(cache + 8) = far;
}

/* The last warp's work through all layers: makes the gated product of this block's token and sends it to
 * the cluster. */
template <class B> __device__ __forceinline__ void run_last_warp(B &b) {
  const StepOffsets &off = b.plan.off;
  const int lane = b.lane(), token = b.own_token(), from = lane / 4 * 8 % 32 + lane % 4;
#pragma unroll 1
  for (; b.layer() < b.plan.shape.n_layers; b.go_to(MATRICES)) {
    const float inverse = inverse_of_token(b, GATE_UP, lane == 0);
#pragma unroll 1
    for (int ffn_block = b.own_turn(); ffn_block < b.share(DOWN).n_groups; ffn_block += B::kTurns) {
      const int n = first_chunk(b, GATE_UP, ffn_block);
      float v[4] = {}; /* features k, k + 8, k + 1, k + 9, k = 16 (lane / 4) + 2 (lane % 4) */
#pragma unroll 1
      for (int i = 0; i < 2; i++) {
        const float4 sum = take_chunk(b, n + i); /* gate and up of features 64 i + 2 lane and the next one */
        const float two[2] = {silu(sum.x * inverse) * (sum.y * inverse),
                              silu(sum.z * inverse) * (sum.w * inverse)};
#pragma unroll
        for (int e = 0; e < 4; e++) {
          const float there = __shfl_sync(~0u, two[e >> 1], from + (e & 1) * 4);
          v[e] = lane / 16 == i ? there : v[e];
        }
      }
      send_group(b, v, off.in, off.in_scales, ffn_block, token, b.barriers().gated);
    }
  }
}

/* Multiplies the whole share. x of qkv, gate and up is in this block already; for o and down waits for x.
 * After qkv also makes the heads. */
template <class B> __device__ __forceinline__ void matmul(B &b, int matrix) {
  constexpr int kTokens = B::kTokens, kParts = B::kParts, kScale = kScaleBytes<kParts>,
                kZero = kZeroBytes<kParts>, kAtOnce = Sums<B>::kAtOnce;
  const Share &share = b.share(matrix);
  const StepPlan &p = b.plan;
  const bool from_x = matrix == QKV || matrix == GATE_UP;
  if (matrix == O) {
    b.wait_again(b.barriers().values, b.layer(), b.values_bytes(), STEP_AT_STATES);
  } else if (matrix == DOWN) {
    b.wait_again(b.barriers().gated, b.layer(), b.gated_bytes(), STEP_AT_GATED);
    b.mark(STEP_MARK_GATED);
  }
  const int warpgroup = b.warp() >> 2, wg_warp = b.warp() & 3;
  const int n_rows = share.n_rows, n_groups = share.n_groups, span = share.span;
  /* Offsets in a stage; then the address of x, and the offset of its scales, for the first group. */
  const uint32_t tiles_at = opaque(wg_warp * span * 1024 + b.lane() * 16),
                 scales_at = opaque(STEP_WARPGROUP_WARPS * span * 1024 + wg_warp * span * kScale +
                                    Sums<B>::scales_at(b.lane())),
                 zeros_at = opaque(STEP_WARPGROUP_WARPS * span * (1024 + kScale) +
                                   wg_warp * zeros_stride<kParts>(span) + Sums<B>::zeros_at(b.lane())),
                 planes = opaque(shared_address(b.smem) + (from_x ? p.off.slice : p.off.in) +
                                 Sums<B>::planes_at(b.lane())),
                 x_scales =
                     opaque((from_x ? p.off.x_scales : p.off.in_scales) + Sums<B>::x_scales_at(b.lane()));
  Outlet<B> outlet;
  outlet.begin(b, matrix);
  RingCursor cursor = b.next();
  cursor.move(warpgroup, p.n_slots);
  /* With eight tokens half of the warpgroups begin later: some warps load while others multiply. This takes
   * 0.7% less time; with two or four tokens it would take 0.7% more. */
  constexpr bool kStaggered = kTokens == 8;
  bool is_first = kStaggered;
  if (kStaggered && b.warp() - wg_warp >= n_rows) named_barrier_arrive<6, STEP_THREADS>();
#pragma unroll 1
  for (int local = b.warp(); local - wg_warp < n_rows; local += STEP_WARPS) {
    Sums<B> sums = {};
    const int step = warpgroups_of(share, local - b.warp());
#pragma unroll 1
    for (int g0 = 0; g0 < n_groups; g0 += span) {
      const uint32_t stage = b.wait_for_stage(cursor);
      typename Sums<B>::At from = {stage + tiles_at, stage + scales_at,
                                   stage + zeros_at + (zeros_are_odd<kParts>(share, g0) ? 8 : 0),
                                   planes + g0 * B::kGroup, x_scales + g0 * kTokens * B::kScalesBytes};
#pragma unroll 1
      for (int n = min(span, n_groups - g0); n > 0; n -= kAtOnce) {
        if (is_first && warpgroup >= STEP_WARPGROUPS / 2) named_barrier_sync<6, STEP_THREADS>();
        sums.add(from, b.smem, n > 1, opaque(b.lane()));
        if (is_first && warpgroup < STEP_WARPGROUPS / 2) named_barrier_arrive<6, STEP_THREADS>();
        is_first = false;
        from.tiles += kAtOnce * 1024, from.scales += kAtOnce * kScale, from.zeros += kAtOnce * kZero;
        from.planes += kAtOnce * B::kGroup, from.x_scales += kAtOnce * kTokens * B::kScalesBytes;
      }
      __syncwarp();
      if (b.lane() == 0) barrier_arrive(b.empty_at(cursor));
      cursor.move(step, p.n_slots);
    }
    sums.finish(b.lane());
    if (from_x)
      outlet.send(b, matrix, local, sums);
    else
      outlet.contribute_sums(b, local, sums);
  }
  b.advance(share.run);
  if (matrix == QKV) make_heads(b);
}

} // namespace step::few
