/* few_matmul.cuh - matmuls with two, four and eight tokens.
 *
 *     y[row] = sum over groups of s (sum q X - z sum X) d,   x = d X (planes.cuh)
 *
 * x of qkv, gate and up stays in the block that owns the columns. The block multiplies it by all tile rows
 * of the cluster, and sends the partial sums of token t to the block of token t, which adds up those of all
 * eight blocks. So each head and each FFN block of a token is complete in one block:
 *
 *     qkv       8 tile rows of a head -> block of the token: norm, rope -> halves to the cluster
 *     gate, up  16 tile rows of an FFN block -> block of the token: gated product -> integers to the cluster
 *
 * Eight tile rows are a chunk. Four tokens have two blocks each, which take heads and FFN blocks by turns;
 * two tokens have four. A block has room for STEP_CHUNKS chunks, which are numbered through the whole step,
 * and informs its peers when it has added one up. One more warp makes the gated product while the others
 * multiply.
 *
 * The columns of mma_u8s8_m16n8k32 are both planes of two tokens for two groups, or of four tokens, or
 * one plane of eight tokens, in two mma that share the weights. Lane (g, t) ends with outputs g and g +
 * 8 of token t (with two tokens t % 2), or of tokens 2 t and 2 t + 1. A warp takes all groups of a tile
 * row from one stage after another, two at a time to hide latency, and sends the result without a
 * barrier of the block. Rows g + 8 are multiplied as whole bytes (one_matmul.cuh). */
#ifndef AUK_CUDA_FUSED_FEW_MATMUL_CUH
#define AUK_CUDA_FUSED_FEW_MATMUL_CUH

#include "cuda/fused/attend.cuh"
#include "cuda/fused/few_residual.cuh"

namespace step {
namespace rows {

/* --- the blocks of a token, and their chunks */

/* Blocks of a token, which take its heads and FFN blocks by turns. */
template <int kR> constexpr int kTurns = STEP_BLOCKS / kR;

template <int kR, bool kDebug> __device__ __forceinline__ int own_row(const Block<kR, kDebug> &b) {
  return b.rank() % kR;
}
template <int kR, bool kDebug> __device__ __forceinline__ int own_turn(const Block<kR, kDebug> &b) {
  return b.rank() / kR;
}

/* How many of n heads or FFN blocks belong to a turn. */
template <int kR> __device__ __forceinline__ int items_of(int n, int turn) {
  return (n - turn + kTurns<kR> - 1) / kTurns<kR>;
}

/* Bytes of a token's sums of squares. */
template <int kR, bool kDebug> __device__ __forceinline__ int square_bytes(const Block<kR, kDebug> &b) {
  return b.args().plan.shape.hidden / STEP_GROUP * 4;
}

/* The number of the first chunk of a head or FFN block, among those of its turn. */
template <int kR, bool kDebug>
__device__ __forceinline__ int first_chunk(const Block<kR, kDebug> &b, int matrix, int item) {
  const int turn = item % kTurns<kR>;
  const int heads = b.has_kv_head() ? items_of<kR>(b.args().plan.heads_per_kv + 2, turn) : 0;
  const int units = items_of<kR>(b.share(DOWN).n_groups, turn);
  return b.layer() * (heads + 2 * units) +
         (matrix == QKV ? item / kTurns<kR> : heads + item / kTurns<kR> * 2);
}

/* Barrier: all bytes of chunk n have come. */
template <int kR, bool kDebug>
__device__ __forceinline__ uint64_t *chunk_came(const Block<kR, kDebug> &b, int n) {
  return (uint64_t *)(b.state + b.places().chunks) + (n & (STEP_CHUNKS - 1));
}
/* Barrier: the blocks of a turn have added up chunk n. */
template <int kR, bool kDebug>
__device__ __forceinline__ uint64_t *chunk_taken(const Block<kR, kDebug> &b, int turn, int n) {
  return (uint64_t *)(b.state + b.places().chunks) + (1 + turn) * STEP_CHUNKS + (n & (STEP_CHUNKS - 1));
}

template <int kR, bool kDebug> __device__ __forceinline__ void init_chunks(const Block<kR, kDebug> &b) {
  for (int i = 0; i < STEP_CHUNKS; i++) {
    barrier_init(chunk_came(b, i), 1);
    for (int turn = 0; turn < kTurns<kR>; turn++) barrier_init(chunk_taken(b, turn, i), kR);
  }
}
template <int kR, bool kDebug> __device__ __forceinline__ void expect_chunks(const Block<kR, kDebug> &b) {
  for (int i = 0; i < STEP_CHUNKS; i++) barrier_expect(chunk_came(b, i), STEP_CHUNK_BYTES);
}

/* --- x */

/* Does add_sums(), keeps the quantised x of this block's columns, and sends the sums of squares to the
 * blocks of the token. */
template <int kR, bool kDebug>
__device__ __forceinline__ void add_and_keep(Block<kR, kDebug> &b, int matrix, int layer, const float *norm,
                                             bool wanted) {
  const StepShared &at = b.places();
  const int first = first_columns(b.args().plan.shape, b.rank());
  const uint64_t *squares = &b.barriers()->squares[matrix == O];
  add_sums(b, matrix, layer, norm, wanted, [&](int group, int row, const float(&v)[4], float square) {
    if (b.lane() < kTurns<kR>) {
      const int peer = row + b.lane() * kR;
      send_4(peer_address(square_of(b, row, group), peer), __float_as_uint(square),
             peer_address(squares, peer));
    }
    keep_group(b, v, at.slice + (group - first) * Planes<kR>::kGroup, at.x_notes + (group - first) * kR * 8,
               row);
  });
}

/* --- matmuls */

/* A lane's results: outputs g and g + 8 of one token or of two; output g + 8 is 16 times too large until
 * finish(). */
template <int kR> struct Sums {
  static constexpr int kRows = kR == 8 ? 2 : 1;
  /* With two tokens, two groups are columns of the same mma: lanes t = 0 and 1 use the result of the
   * first group's tile, lanes 2 and 3 that of the second's. */
  static constexpr bool kShared = kR == 2;
  float y[2][kRows];

  /* Where a lane reads its part of a group: shared_addresses, but notes is an offset from `state`. */
  struct At {
    uint32_t tiles, scales, zeros, planes, notes;
  };

  /* Adds two groups, or one, which is then multiplied twice and counted once. */
  __device__ __forceinline__ void add(const At &at, const unsigned char *state, bool two, int lane) {
    const int more = two ? 1 : 0, second = kShared ? lane >> 1 & 1 : 0;
    /* The high planes of eight tokens start at 2^24, which times 256 wraps to 0. If both started at 0,
     * the compiler would put the first mma's sums where the second one's weights are, and copy those
     * before. */
    int acc[2][kRows][4];
#pragma unroll
    for (int i = 0; i < 2; i++)
#pragma unroll
      for (int p = 0; p < kRows; p++)
        acc[i][p][0] = acc[i][p][1] = acc[i][p][2] = acc[i][p][3] = kRows == 2 && p == 0 ? 1 << 24 : 0;
    const uint32_t planes = at.planes + (kShared ? (lane >> 4) * more * Planes<kR>::kGroup : 0);
#pragma unroll
    for (int c = 0; c < 2; c++) {
      uint4 tile[2], x[2][kRows];
#pragma unroll
      for (int i = 0; i < 2; i++) {
        tile[i] = load_shared_16(at.tiles + i * more * 1024 + c * 512);
#pragma unroll
        for (int p = 0; p < kRows; p++)
          x[i][p] = kShared && i ? x[0][p]
                                 : load_shared_16(planes + i * more * Planes<kR>::kGroup +
                                                  c * Planes<kR>::kHalf + p * Planes<kR>::kPlane);
      }
#pragma unroll
      for (int step = 0; step < 2; step++)
#pragma unroll
        for (int i = 0; i < 2; i++) {
          const uint32_t one = step ? tile[i].y : tile[i].x, other = step ? tile[i].w : tile[i].z;
          const uint32_t operand[4] = {one & 0x0f0f0f0fu, one, other & 0x0f0f0f0fu, other};
#pragma unroll
          for (int p = 0; p < kRows; p++)
            mma_u8s8_m16n8k32(acc[i][p], operand, step ? x[i][p].z : x[i][p].x, step ? x[i][p].w : x[i][p].y);
        }
    }
#pragma unroll
    for (int i = 0; i < (kShared ? 1 : 2); i++) {
      const int n = (kShared ? second : i) * more;
      const bool counts = two || !(kShared ? second : i);
      const uint32_t factors = load_shared_4(at.scales + n * 32), zero = load_shared_1(at.zeros + n * 8);
      const float scale[2] = {scale_low(factors), scale_high(factors)},
                  from[2] = {small_float(zero & 15), small_float(zero & 240)};
      float2 notes[kRows];
      if (kRows == 2) {
        const float4 both = *(const float4 *)(state + at.notes + n * kR * 8);
        notes[0] = make_float2(both.x, both.y), notes[kRows - 1] = make_float2(both.z, both.w);
      } else {
        notes[0] = *(const float2 *)(state + at.notes + n * kR * 8);
      }
#pragma unroll
      for (int r = 0; r < kRows; r++) {
        const float2 note = counts ? notes[r] : make_float2(0, 0);
        int sum[2]; /* both planes, of outputs g and g + 8 */
#pragma unroll
        for (int h = 0; h < 2; h++)
          if (kRows == 2)
            sum[h] = (int)((unsigned)acc[i][0][2 * h + r] * 256 + acc[i][kRows - 1][2 * h + r]);
          else if (kShared)
            sum[h] = (second ? acc[1][0][2 * h] : acc[0][0][2 * h]) * 256 +
                     (second ? acc[1][0][2 * h + 1] : acc[0][0][2 * h + 1]);
          else
            sum[h] = acc[i][0][2 * h] * 256 + acc[i][0][2 * h + 1];
        y[0][r] += scale[0] * (note.x * (float)sum[0] - from[0] * note.y);
        y[1][r] += scale[1] * (note.x * (float)(sum[1] - sum[0]) - from[1] * note.y);
      }
    }
  }

  /* Completes the outputs after the last group; with two tokens lanes t and t + 2 both have them. */
  __device__ __forceinline__ void finish() {
#pragma unroll
    for (int r = 0; r < kRows; r++) {
      y[1][r] *= 0.0625f;
#pragma unroll
      for (int h = 0; h < 2; h++)
        if (kShared) y[h][r] += __shfl_xor_sync(~0u, y[h][r], 2);
    }
  }
};

/* Where a warp sends its results. */
template <int kR> struct Outlet {
  int first;      /* the first chunk, if a token has one block */
  uint32_t place; /* offset of this block and lane in a chunk */
  int peer;       /* the token's block of turn 0 */
  uint64_t *to;   /* o and down: word of the lane's first token and output */

  template <bool kDebug> __device__ __forceinline__ void begin(const Block<kR, kDebug> &b, int matrix) {
    const int lane = b.lane(), g = lane >> 2, t = lane & 3;
    if (matrix == QKV || matrix == GATE_UP) {
      if (kTurns<kR> == 1) first = first_chunk(b, matrix, 0);
      place = forgotten(b.places().parts + b.rank() * (STEP_CHUNK_BYTES / STEP_BLOCKS) + (g >> 1) * 16);
      peer = kR == 8 ? 2 * t + (g & 1) : t % kR;
    } else {
      const StepShape &s = b.args().plan.shape;
      /* With two tokens half of the lanes contribute outputs g, the others g + 8. */
      to = sum_of(b, matrix, b.layer()).totals + Sums<kR>::kRows * (t % kR) * s.hidden +
           first_columns(s, b.rank()) * STEP_GROUP + g + (Sums<kR>::kShared ? t / 2 * 8 : 0);
    }
  }

  /* Sends a tile row's partial sums to the blocks of the tokens. Layout of a chunk: float [block][tile
   * row][g / 2][outputs g, g + 8, g + 1, g + 9]. */
  template <bool kDebug>
  __device__ __forceinline__ void send(const Block<kR, kDebug> &b, int matrix, int local,
                                       const Sums<kR> &sums) const {
    const bool odd = b.lane() & 4;
    int n = local >> 3, turn = 0; /* an FFN block is two chunks, a head is one */
    if (kTurns<kR> == 1) {
      n += first;
    } else {
      const int item = matrix == QKV ? n : n >> 1;
      turn = item % kTurns<kR>;
      n = first_chunk(b, matrix, item) + (matrix == QKV ? 0 : n & 1);
    }
    /* Two lanes combine 16 bytes, and the even one sends them; with eight tokens each lane sends one
     * token's. */
    float mine[2], other[2];
#pragma unroll
    for (int i = 0; i < 2; i++) {
      mine[i] = kR == 8 && odd ? sums.y[i][Sums<kR>::kRows - 1] : sums.y[i][0];
      other[i] = __shfl_xor_sync(~0u, kR == 8 && odd ? sums.y[i][0] : sums.y[i][Sums<kR>::kRows - 1], 4);
    }
    if (n >= STEP_CHUNKS) b.wait(chunk_taken(b, turn, n), ((unsigned)n / STEP_CHUNKS - 1) & 1, STEP_AT_SLOT);
    const unsigned char *at = b.state + place + (n & (STEP_CHUNKS - 1)) * STEP_CHUNK_BYTES + (local & 7) * 64;
    const uint4 v =
        make_uint4(__float_as_uint(odd ? other[0] : mine[0]), __float_as_uint(odd ? other[1] : mine[1]),
                   __float_as_uint(odd ? mine[0] : other[0]), __float_as_uint(odd ? mine[1] : other[1]));
    if (kR == 8 || (!odd && (kR == 4 || !(b.lane() & 2))))
      send_16(peer_address(at, peer + kR * turn), v, peer_address(chunk_came(b, n), peer + kR * turn));
  }

  /* Contributes this cluster's part of 16 columns to the all-reduce. */
  template <bool kDebug>
  __device__ __forceinline__ void give_sum(const Block<kR, kDebug> &b, int local,
                                           const Sums<kR> &sums) const {
    uint64_t *at = to + local * 16;
#pragma unroll
    for (int r = 0; r < Sums<kR>::kRows; r++, at += b.args().plan.shape.hidden)
      if (Sums<kR>::kShared) {
        give(at, b.lane() & 2 ? sums.y[1][r] : sums.y[0][r]);
      } else {
        give(at, sums.y[0][r]);
        give(at + 8, sums.y[1][r]);
      }
  }
};

/* 1 / rms of this block's token, once all groups' squares have come. announces: announce those of the
 * next layer. */
template <int kR, bool kDebug>
__device__ __forceinline__ float inverse_of_row(const Block<kR, kDebug> &b, int matrix, bool announces) {
  uint64_t *squares = &b.barriers()->squares[matrix == GATE_UP];
  b.wait(squares, b.layer() & 1, STEP_AT_X);
  if (announces) barrier_expect(squares, square_bytes(b));
  return inverse_of(b, own_row(b));
}

/* Adds up a chunk of this block's token: four outputs of a tile row a lane. */
template <int kR, bool kDebug>
__device__ __forceinline__ float4 take_chunk(const Block<kR, kDebug> &b, int n) {
  b.wait(chunk_came(b, n), (unsigned)n / STEP_CHUNKS & 1, STEP_AT_PROJECTIONS, n);
  const unsigned char *from =
      b.state + b.places().parts + (n & (STEP_CHUNKS - 1)) * STEP_CHUNK_BYTES + b.lane() * 16;
  float4 v = *(const float4 *)from;
#pragma unroll
  for (int i = 1; i < STEP_BLOCKS; i++) {
    const float4 more = *(const float4 *)(from + i * (STEP_CHUNK_BYTES / STEP_BLOCKS));
    v.x += more.x, v.y += more.y, v.z += more.z, v.w += more.w;
  }
  /* Opaque: the whole chunk has been read before peers may overwrite it, since it is in these sums. */
  v.x = __uint_as_float(forgotten(__float_as_uint(v.x))),
  v.y = __uint_as_float(forgotten(__float_as_uint(v.y)));
  v.z = __uint_as_float(forgotten(__float_as_uint(v.z))),
  v.w = __uint_as_float(forgotten(__float_as_uint(v.w)));
  __syncwarp();
  if (b.lane() == 0) barrier_expect(chunk_came(b, n), STEP_CHUNK_BYTES);
  __syncwarp();
  if (b.lane() < STEP_BLOCKS) barrier_arrive_at_peer(peer_address(chunk_taken(b, own_turn(b), n), b.lane()));
  return v;
}

/* Norm and bias of head `head` for the lane's dimensions k, k + 8, k + 1, k + 9 from k = 16 (lane / 4) +
 * 2 (lane % 4) on. */
template <int kR, bool kDebug>
__device__ __forceinline__ void norm_and_bias(const Block<kR, kDebug> &b, int head, float (&norm)[4],
                                              float (&bias)[4]) {
  const StepShape &s = b.args().plan.shape;
  const int heads = b.args().plan.heads_per_kv, k = b.lane() / 4 * 16 + b.lane() % 4 * 2;
  const float *norms = (head < heads ? b.vectors().q_norm : b.vectors().k_norm) + k,
              *add = b.vectors().bias + k +
                     (head < heads    ? b.cluster() * heads + head
                      : head == heads ? s.n_heads + b.cluster()
                                      : s.n_heads + s.n_kv_heads + b.cluster()) *
                         STEP_HEAD_DIM;
  const bool normed = b.args().head_norms && head <= heads, biased = b.args().bias;
#pragma unroll
  for (int i = 0; i < 4; i++) {
    const int at = (i & 1) * 8 + (i >> 1);
    norm[i] = normed ? __ldg(norms + at) : 1, bias[i] = biased ? __ldg(add + at) : 0;
  }
}

/* Sends a head of halves to the cluster; `to` is its address in this block. */
template <bool kDebug, int kR>
__device__ __forceinline__ void send_head(const Block<kR, kDebug> &b, uint32_t near, uint32_t far,
                                          const __half *to) {
  const int lane = b.lane(), run = lane & 15;
  uint32_t w[4];
#pragma unroll
  for (int e = 0; e < 4; e++) {
    const uint32_t one = __shfl_sync(~0u, near, (run >> 1) * 4 + e),
                   other = __shfl_sync(~0u, far, (run >> 1) * 4 + e);
    w[e] = run & 1 ? other : one;
  }
#pragma unroll
  for (int i = 0; i < STEP_BLOCKS; i += 2) {
    const int peer = (lane >> 4) + i;
    send_16(peer_address(to + run * 8, peer), make_uint4(w[0], w[1], w[2], w[3]),
            peer_address(&b.barriers()->projections, peer));
  }
}

/* Makes the heads of this block's token from their chunks, one warp each, and sends them to the cluster;
 * a new key or value goes to the cache, too. */
template <int kR, bool kDebug> __device__ __forceinline__ void make_heads(const Block<kR, kDebug> &b) {
  const StepPlan &p = b.args().plan;
  const StepCall &c = b.args().call;
  const int heads = p.heads_per_kv, row = own_row(b), head = b.warp() * kTurns<kR> + own_turn(b);
  if (head >= heads + 2 && b.warp() > 0) return;
  const int lane = b.lane(), k = lane / 4 * 16 + lane % 4 * 2;
  float norm[4], bias[4];
  norm_and_bias(b, head, norm, bias);
  const float inverse = inverse_of_row(b, QKV, threadIdx.x == 0);
  if (head >= heads + 2) return;
  const float4 sum = take_chunk(b, first_chunk(b, QKV, head));
  float v[4] = {sum.x * inverse + bias[0], sum.y * inverse + bias[1], sum.z * inverse + bias[2],
                sum.w * inverse + bias[3]};
  if (head <= heads) {
    if (b.args().head_norms) {
      const float scale = inverse_of_head(v, b.args().norm_eps);
#pragma unroll
      for (int i = 0; i < 4; i++) v[i] *= scale * norm[i];
    }
    /* k and k + 64 are a pair, in lanes 16 apart. */
#pragma unroll
    for (int i = 0; i < 4; i++)
      v[i] = rotate_with(v[i], __shfl_xor_sync(~0u, v[i], 16), lane < 16,
                         b.rope()[(k & 63) + (i & 1) * 8 + (i >> 1)]);
  }
  const uint32_t near = pack_half2(v[0], v[2]), far = pack_half2(v[1], v[3]);
  send_head(b, near, far,
            head < heads    ? b.heads() + (row * heads + head) * kDim
            : head == heads ? b.new_keys() + row * kDim
                            : b.new_values() + row * kDim);
  if (head < heads || row >= c.n_rows) return;
  __half *cache = (__half *)(head == heads ? c.k : c.v) + k +
                  (((size_t)b.layer() * p.shape.n_kv_heads + b.cluster()) * c.n_ctx + b.pos() + row) * kDim;
  *(uint32_t *)cache = near, *(uint32_t *)(cache + 8) = far;
}

/* One warp's work through all layers: makes the gated product of this block's token and sends it to the
 * cluster. */
template <int kR, bool kDebug> __device__ __forceinline__ void gate_all(Block<kR, kDebug> &b) {
  const StepShared &at = b.places();
  const int lane = b.lane(), row = own_row(b), from = lane / 4 * 8 % 32 + lane % 4;
#pragma unroll 1
  for (; b.layer() < b.args().plan.shape.n_layers; b.go_to(MATRICES)) {
    const float inverse = inverse_of_row(b, GATE_UP, lane == 0);
#pragma unroll 1
    for (int unit = own_turn(b); unit < b.share(DOWN).n_groups; unit += kTurns<kR>) {
      const int n = first_chunk(b, GATE_UP, unit);
      float f[2][2]; /* features 64 i + 2 lane and the next one */
#pragma unroll
      for (int i = 0; i < 2; i++) {
        const float4 v = take_chunk(b, n + i);
        const float gate[2] = {v.x * inverse, v.z * inverse}, up[2] = {v.y * inverse, v.w * inverse};
#pragma unroll
        for (int e = 0; e < 2; e++) f[i][e] = silu(gate[e]) * up[e];
      }
      /* Features k, k + 8, k + 1, k + 9 from k = 16 (lane / 4) + 2 (lane % 4) on. */
      float v[4];
#pragma unroll
      for (int e = 0; e < 4; e++) {
        const int there = from + (e & 1) * 4;
        const float low = __shfl_sync(~0u, f[0][e >> 1], there), high = __shfl_sync(~0u, f[1][e >> 1], there);
        v[e] = lane < 16 ? low : high;
      }
      send_group(b, v, at.in + unit * Planes<kR>::kGroup, at.in_notes + unit * kR * 8, row,
                 &b.barriers()->gated);
    }
  }
}

/* Multiplies the whole share, once x is there. */
template <int kR, bool kDebug> __device__ __forceinline__ void product(Block<kR, kDebug> &b, int matrix) {
  const Share &share = b.share(matrix);
  const StepPlan &p = b.args().plan;
  const bool from_x = matrix == QKV || matrix == GATE_UP;
  const int team = b.warp() >> 2, mate = b.warp() & 3, t = b.lane() & 3, g = b.lane() >> 2;
  const int n_rows = share.n_rows, n_groups = share.n_groups, span = share.span;
  /* Offsets in a stage, and of x of its first groups. */
  const uint32_t tiles_at = forgotten(mate * span * 1024 + b.lane() * 16),
                 scales_at = forgotten(STEP_TEAM_WARPS * span * 1024 + mate * span * 32 + g * 4),
                 zeros_at = forgotten(STEP_TEAM_WARPS * span * (1024 + 32) + mate * zeros_stride(span) + g),
                 planes = forgotten(shared_address(b.state) + (from_x ? p.at.slice : p.at.in) +
                                    (kR == 2 ? g & 3 : g) * 64 + t * 16),
                 notes = forgotten((from_x ? p.at.x_notes : p.at.in_notes) + t % kR * (Sums<kR>::kRows * 8));
  Outlet<kR> outlet;
  outlet.begin(b, matrix);
  RingAt at = b.next();
  at.move(team, p.n_slots);
  /* With eight tokens half of the warpgroups begin later, so that some warps load while others multiply:
   * 0.7% less time. With two and four it would be 0.7% more. */
  constexpr bool kStaggered = kR == 8;
  bool is_first = kStaggered;
  if (kStaggered && b.warp() - mate >= n_rows) arrive_some<6, STEP_THREADS>();
#pragma unroll 1
  for (int local = b.warp(); local - mate < n_rows; local += STEP_WARPS) {
    Sums<kR> sums = {};
    const int step = teams_of(share, local - b.warp());
#pragma unroll 1
    for (int g0 = 0; g0 < n_groups; g0 += span) {
      const uint32_t piece = b.take_piece(at);
      typename Sums<kR>::At from = {piece + tiles_at, piece + scales_at,
                                    piece + zeros_at + (zeros_are_odd(share, g0) ? 8 : 0),
                                    planes + g0 * Planes<kR>::kGroup, notes + g0 * kR * 8};
#pragma unroll 1
      for (int n = min(span, n_groups - g0); n > 0; n -= 2) {
        if (is_first && team >= STEP_TEAMS / 2) sync_some<6, STEP_THREADS>();
        sums.add(from, b.state, n > 1, forgotten(b.lane()));
        if (is_first && team < STEP_TEAMS / 2) arrive_some<6, STEP_THREADS>();
        is_first = false;
        from.tiles += 2 * 1024, from.scales += 2 * 32, from.zeros += 2 * 8;
        from.planes += 2 * Planes<kR>::kGroup, from.notes += 2 * kR * 8;
      }
      __syncwarp();
      if (b.lane() == 0) barrier_arrive(b.empty_at(at));
      at.move(step, p.n_slots);
    }
    sums.finish();
    if (from_x)
      outlet.send(b, matrix, local, sums);
    else
      outlet.give_sum(b, local, sums);
  }
  b.advance(share.run);
  if (matrix == QKV) make_heads(b);
}

} // namespace rows
} // namespace step

#endif
