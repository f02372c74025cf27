/* attention_wgmma.cu - many tokens on Hopper, with latent attention any number: FlashAttention-3 with wgmma
 * and tensor copies.
 *
 * A tile is the queries of some tokens with all query heads of one KV head. `group` query heads share a KV
 * head; row r is token r / group, head r % group. A unit is a tile with all the keys that it sees, or with
 * one of several splits of them. A block takes a unit at a time. A producer warp loads queries, keys and
 * values; each consumer warpgroup multiplies 64 rows. (With values of 512 numbers two warpgroups multiply the
 * same 64 rows, each for half of the output's dims.)
 *
 *   shared   queries [head_dim / 64][rows][64] | stages of keys [head_dim / 64][kKeys][64] | of values, alike
 *            rows of 128 bytes in the 128-byte swizzle
 *            Latent attention: a key's last numbers are its value, so all stages are of keys
 *
 * Three rings, of queries (one slot), keys and values; t is the turn of a slot (ptx/cluster.cuh):
 *
 *   producer thread   wait empty, parity (t + 1) % 2 -> copies: 1 arrival, their bytes -> full: 1
 *                          ^                                                                |
 *   8 consumer warps       +--- empty: 1 a warp <-- products <-- wait full, parity t % 2 <--+
 *
 *   order of copies   K 0, Q | K 1, V 0 | K 2, V 1 | ... | V n - 1;   latent: K 0, Q | K 1 | ...
 *   freed             K when its scores are complete; V when it has been multiplied; Q after the unit's last
 *                     scores. Latent: K, which is also V, when its values have been multiplied
 *   named barriers    1, 2: the turn of warpgroup 0, 1, which waits until the other arrives at the end of its
 *                     own turn; 3, 4: all threads of warpgroup 0, 1, after zeroing values
 *
 * The products of one step's keys (scores) and of the values of the step before are in flight together.
 * Softmax runs beside the products of values. With kTurns the warpgroups issue their products in turns: the
 * softmax of one runs under the products of the other (saves 1 to 4% with heads of 128, nothing with longer
 * heads).
 *     S(n + 1) = Q K(n + 1)ᵀ, O += P(n) V(n)   in flight together;   P(n + 1) = softmax(S(n + 1))
 * Latent attention has stages for only two or three steps of keys. There the values come first: their stage
 * can be filled again while the scores are multiplied. Steps of keys begin at multiples of kKeys in the cache
 * and go upwards. A row's arithmetic does not depend on other rows. So without splits a token gets the same
 * bits in every step.
 * Source: Shah et al., FlashAttention-3 (arXiv:2407.08608), algorithm 2. Reference: attention_plain.cu. */
#include <algorithm>
#include <numeric>

#include "cuda/kernels/attention/attention_kernels.cuh"
#include "cuda/kernels/attention/online_softmax.cuh"
#include "cuda/kernels/attention/planes.cuh"
#include "cuda/kernels/ptx/launch.cuh"
#include "cuda/kernels/ptx/tensor_map.cuh"
#include "cuda/kernels/ptx/wgmma.cuh"

namespace {

constexpr int kWarpgroups = 2, kConsumers = kWarpgroups * 128, kThreads = kConsumers + 128;

/* Registers of a producer and of a consumer thread; setmaxnreg would wait forever for more. */
constexpr int kLoadRegisters = 24, kMultiplyRegisters = 240, kRegisters = 65536 / kThreads / 8 * 8 * kThreads;
static_assert(kLoadRegisters * 128 + kMultiplyRegisters * kConsumers <= kRegisters, "setmaxnreg would block");

template <int kHeadDim_, int kKeys_, int kStages_, bool kTurns_, int kValues_ = kHeadDim_> struct Shape {
  static constexpr int kHeadDim = kHeadDim_, kKeys = kKeys_, kStages = kStages_, kValues = kValues_;
  static constexpr bool kOneRow = kValues < kHeadDim; /* the last kValues numbers of a key are its value */
#ifdef __CUDA_ARCH_FEAT_SM90_ALL /* on other chips kTurns is unused, which nvcc refuses */
  static constexpr bool kTurns = kTurns_;
#endif
  static constexpr int kDims = kValues < 256 ? kValues : 256; /* dims of a warpgroup's output */
  static constexpr int kSharers = kValues / kDims;            /* warpgroups with the same rows */
  static constexpr int kRows = 64 * kWarpgroups / kSharers;
  static constexpr int kQueryBytes = kRows * kHeadDim * 2, kTileBytes = kKeys * kHeadDim * 2;
  static constexpr int kTiles = kOneRow ? kStages : 2 * kStages;
  static constexpr size_t kSharedBytes = kQueryBytes + kTiles * kTileBytes + 1024; /* 1024: for alignment */
  static_assert(kKeys % 16 == 0 && kHeadDim % 64 == 0 && kValues % 64 == 0,
                "operands are whole swizzle rows");
};

/* The division of the work, computed on the host. With tiles or units of several sequences n_splits is 1;
 * n_tiles is then the number of tiles or units. */
struct Division {
  int n_tokens, tile_tokens, n_tiles, n_splits;
};

struct Args {
  CUtensorMap q, k, v;
  AttentionArgs a;
  Division by;
  int box_keys; /* keys of one copy: kKeys, or with pages the largest common divisor of kKeys and a page */
};

/* A tile of queries with the keys of one split, in steps of kKeys keys. */
struct Unit {
  int kv_head, first_token, n_tokens;
  int pos;        /* position of the first token */
  int length;     /* keys in the sequence's cache, new ones included */
  int begin, end; /* the first step of keys and the one after the last */
  int used;       /* splits that have keys */
  size_t partial; /* index among the partial results of all units, each of partial_stride() rows */
};

/* Tile `tile` of the launch. */
__device__ __forceinline__ AttentionTile tile_of(const Args &args, int tile) {
  if (args.a.tiles) return args.a.tiles[tile];
  const int first = tile * args.by.tile_tokens;
  return {first, min(args.by.tile_tokens, args.by.n_tokens - first), args.a.pos[0] + args.by.n_tokens, 0};
}

/* The unit of one split of the steps that a tile sees. Units of several sequences (AttentionArgs.units) occur
 * here only with latent attention: `tile` is then the unit's index, and a.units has its split. */
template <class S>
__device__ __forceinline__ Unit unit_at(const Args &args, int tile, int kv_head, int split) {
  const AttentionArgs &a = args.a;
  int n_splits = args.by.n_splits, first_partial = tile * n_splits;
  AttentionTile t = {};
  if (S::kOneRow && a.units) {
    const AttentionUnit u = a.units[tile];
    if (u.row < 0) return {};
    t = {u.row, 1, a.pos[u.row] + 1, 0};
    split = u.split, n_splits = u.n_splits, first_partial = u.first;
  } else {
    t = tile_of(args, tile);
  }
  const int pos = a.pos[t.row], start = first_step<S::kKeys>(a, pos) / S::kKeys;
  const int end = (pos + t.n_tokens - 1) / S::kKeys + 1, n = end - start,
            per_split = (n + n_splits - 1) / n_splits, begin = start + split * per_split;
  return {kv_head,
          t.row,
          t.n_tokens,
          pos,
          t.length,
          begin,
          min(end, begin + per_split),
          (n + per_split - 1) / per_split,
          (size_t)first_partial * a.n_kv_heads + (size_t)kv_head * n_splits + split};
}

/* Unit i in the order of work: tiles with more keys first. */
template <class S> [[maybe_unused]] __device__ __forceinline__ Unit unit_of(const Args &args, int i) {
  const int split = i % args.by.n_splits, kv_head = i / args.by.n_splits % args.a.n_kv_heads,
            tile = args.by.n_tiles - 1 - i / args.by.n_splits / args.a.n_kv_heads;
  return unit_at<S>(args, tile, kv_head, split);
}

/* Rows of a unit's partial results: a tile's rows without padding, rounded up to an even number. This aligns
 * the outputs, which follow the states of all units, to 16 bytes. */
__host__ __device__ inline int partial_stride(const Args &args) {
  return (args.by.tile_tokens * (args.a.n_heads / args.a.n_kv_heads) + 1) / 2 * 2;
}

/* Partial results of the splits, in the workspace: [Unit.partial][row]. */
struct Partials {
  float2 *states; /* maximum, sum */
  float *outputs; /* [kValues] of each row, relative to its maximum */
  __device__ __forceinline__ Partials(const Args &args) {
    const AttentionArgs &a = args.a;
    const size_t n_partials =
        a.units ? (size_t)a.unit_partials : (size_t)args.by.n_tiles * a.n_kv_heads * args.by.n_splits;
    states = (float2 *)a.partials;
    outputs = (float *)(states + n_partials * partial_stride(args));
  }
};

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

struct Barriers {
  uint64_t *queries_full, *queries_empty, *keys_full, *keys_empty, *values_full, *values_empty;
};

/* Position in a ring of kStages stages. */
template <int kStages> struct Ring {
  int slot = 0, phase = 0;
  __device__ __forceinline__ void advance() {
    if (++slot == kStages) slot = 0, phase ^= 1;
  }
};

/* The number of the block's i-th unit. Later units are smaller. To even out the work, even rounds go through
 * the blocks forwards and odd rounds backwards. */
__device__ __forceinline__ int unit_number(int i) {
  return i * gridDim.x + (i % 2 ? gridDim.x - 1 - blockIdx.x : blockIdx.x);
}

/* Copies the rows of a step of keys into the ring's stage. With pages, boxes past the sequence's last key
 * repeat its last box. The scores of keys past the last are masked, and their values zeroed. */
template <class S>
__device__ __forceinline__ void load_tile_of(const CUtensorMap &map, unsigned char *stages, uint64_t *full,
                                             uint64_t *empty, const Ring<S::kStages> &ring,
                                             const CacheRows &rows, int step, int box_keys, int length) {
  unsigned char *stage = stages + ring.slot * S::kTileBytes;
  barrier_wait(empty + ring.slot, ring.phase ^ 1);
  barrier_expect(full + ring.slot, S::kTileBytes);
  for (int key = 0; key < S::kKeys; key += box_keys) {
    const int first = step * S::kKeys + key;
    const int row = (int)rows.at(rows.table && first >= length ? (length - 1) / box_keys * box_keys : first);
#pragma unroll
    for (int d = 0; d < S::kHeadDim / 64; d++)
      copy_box(stage + (d * S::kKeys + key) * 128, &map, full + ring.slot, d * 64, row);
  }
}

/* The producer thread's work: loads in the order of use. The keys of a step come before the values of the
 * previous step. */
template <class S>
__device__ __forceinline__ void load_units(const Args &args, unsigned char *shared, const Barriers &bar,
                                           int n_units) {
  unsigned char *keys = shared + S::kQueryBytes, *values = keys + S::kStages * S::kTileBytes;
  const int group = args.a.n_heads / args.a.n_kv_heads, sharers = args.a.kv_sharers;
  const int query_bytes = group * args.by.tile_tokens * S::kHeadDim * 2;
  Ring<S::kStages> of_keys, of_values;
  int query_phase = 1;
  for (int i = 0; unit_number(i) < n_units; i++) {
    const Unit unit = unit_of<S>(args, unit_number(i));
    const CacheRows rows(args.a.pages, unit.first_token, args.a.n_kv_heads / sharers, unit.kv_head / sharers,
                         args.a.n_ctx);
    const auto load = [&](const CUtensorMap &map, unsigned char *stages, uint64_t *full, uint64_t *empty,
                          const Ring<S::kStages> &ring, int step) {
      load_tile_of<S>(map, stages, full, empty, ring, rows, step, args.box_keys, unit.length);
    };
    for (int step = unit.begin; step < unit.end; step++, of_keys.advance()) {
      load(args.k, keys, bar.keys_full, bar.keys_empty, of_keys, step);
      if (step == unit.begin) {
        barrier_wait(bar.queries_empty, query_phase);
        query_phase ^= 1;
        barrier_expect(bar.queries_full, query_bytes);
#pragma unroll
        for (int d = 0; d < S::kHeadDim / 64; d++)
          copy_box(shared + d * S::kRows * 128, &args.q, bar.queries_full, d * 64, unit.kv_head * group,
                   unit.first_token);
      } else if (!S::kOneRow) {
        load(args.v, values, bar.values_full, bar.values_empty, of_values, step - 1);
        of_values.advance();
      }
    }
    if (S::kOneRow || unit.begin >= unit.end) continue;
    load(args.v, values, bar.values_full, bar.values_empty, of_values, unit.end - 1);
    of_values.advance();
  }
}

/* Waits for the calling warpgroup's turn to issue products. end_turn() gives the turn to the other
 * warpgroup. */
template <class S> __device__ __forceinline__ void begin_turn(int warpgroup) {
  if (!S::kTurns) return;
  if (warpgroup == 0)
    named_barrier_sync<1, kConsumers>();
  else
    named_barrier_sync<2, kConsumers>();
}
template <class S> __device__ __forceinline__ void end_turn(int warpgroup) {
  if (!S::kTurns) return;
  if (warpgroup == 0)
    named_barrier_arrive<2, kConsumers>();
  else
    named_barrier_arrive<1, kConsumers>();
}

__device__ __forceinline__ void warpgroup_sync(int warpgroup) {
  if (warpgroup == 0)
    named_barrier_sync<3, 128>();
  else
    named_barrier_sync<4, 128>();
}

/* s = Q Kᵀ, both from shared memory. */
template <class S>
__device__ __forceinline__ void multiply_keys(float (&s)[S::kKeys / 2], uint64_t queries, uint64_t keys) {
#pragma unroll
  for (int d = 0; d < S::kHeadDim / 16; d++)
    wgmma_f16_shared<S::kKeys>(s, queries + d / 4 * (S::kRows * 8) + d % 4 * 2,
                               keys + d / 4 * (S::kKeys * 8) + d % 4 * 2, d > 0);
}

/* o += P V */
template <class S>
__device__ __forceinline__ void multiply_values(float (&o)[S::kDims / 2],
                                                const uint32_t (&p)[S::kKeys / 16][4], uint64_t values) {
#pragma unroll
  for (int k = 0; k < S::kKeys / 16; k++) wgmma_f16_columns<S::kDims>(o, p[k], values + k * 128, 1);
}

/* Rows r and r + 8 of a thread, h = 0 and 1: their tokens and heads, and their online softmax. Sums are over
 * this thread's columns. */
template <class S> struct Rows {
  int token[2], head[2]; /* token: index in the tile; head: index in the group */
  float maximum[2], sum[2];

  __device__ __forceinline__ Rows(int row, int group) {
#pragma unroll
    for (int h = 0; h < 2; h++) token[h] = (row + 8 * h) / group, head[h] = (row + 8 * h) % group;
  }

  __device__ __forceinline__ void begin() {
    maximum[0] = maximum[1] = -INFINITY, sum[0] = sum[1] = 0;
  }

  /* Sets the scores of keys that a row does not see to -inf. first: position of the step's first key; pos:
   * position of the tile's first token. whole > 0: all rows see what the last of `whole` tokens sees. */
  __device__ __forceinline__ void mask(const AttentionArgs &a, float (&s)[S::kKeys / 2], int first, int pos,
                                       int whole) const {
    const int column = first + threadIdx.x % 4 * 2;
#pragma unroll
    for (int h = 0; h < 2; h++) {
      const int last = pos + (whole > 0 ? whole - 1 : token[h]);
      const int limit = last - column, unseen = newest_unseen(a, last) - column;
#pragma unroll
      for (int n = 0; n < S::kKeys / 8; n++)
#pragma unroll
        for (int c = 0; c < 2; c++)
          if (n * 8 + c > limit || n * 8 + c <= unseen) s[n * 4 + 2 * h + c] = -INFINITY;
    }
  }

  /* Turns scores into weights; keep[h] is the factor for earlier sums and outputs. */
  template <bool kCapped>
  __device__ __forceinline__ void softmax(const AttentionArgs &a, float (&s)[S::kKeys / 2],
                                          float (&keep)[2]) {
    const float scale = kCapped ? 1 : a.scale_log2;
#pragma unroll
    for (int h = 0; h < 2; h++) {
      float high[4] = {-INFINITY, -INFINITY, -INFINITY, -INFINITY}, total[4] = {};
#pragma unroll
      for (int n = 0; n < S::kKeys / 4; n++) {
        float &score = s[n / 2 * 4 + 2 * h + n % 2];
        high[n % 4] = fmaxf(high[n % 4], score);
      }
      const float highest = fmaxf(fmaxf(high[0], high[1]), fmaxf(high[2], high[3]));
      const Rescale r = rescale<true>(maximum[h], lanes_max<1, 2>(highest) * scale);
#pragma unroll
      for (int n = 0; n < S::kKeys / 4; n++) {
        float &score = s[n / 2 * 4 + 2 * h + n % 2];
        score = power_of_2(fmaf(score, scale, -r.shift));
        total[n % 4] += score;
      }
      keep[h] = r.keep;
      sum[h] = sum[h] * r.keep + ((total[0] + total[1]) + (total[2] + total[3]));
    }
  }
};

template <class S>
__device__ __forceinline__ void pack_weights(uint32_t (&p)[S::kKeys / 16][4],
                                             const float (&s)[S::kKeys / 2]) {
#pragma unroll
  for (int k = 0; k < S::kKeys / 16; k++)
#pragma unroll
    for (int j = 0; j < 4; j++) p[k][j] = pack_half2(s[k * 8 + 2 * j], s[k * 8 + 2 * j + 1]);
}

/* Transposes 4 x 4 words among the four lanes of a row: lane t has word t of each block (w[j]: of block j),
 * and gets the four words of block t. */
__device__ __forceinline__ uint4 gather_block(uint32_t (&w)[4]) {
  const bool odd = threadIdx.x & 1, high = threadIdx.x & 2;
#pragma unroll
  for (int j = 0; j < 4; j += 2) {
    const uint32_t got = __shfl_xor_sync(~0u, odd ? w[j] : w[j + 1], 1);
    odd ? w[j] = got : w[j + 1] = got;
  }
#pragma unroll
  for (int j = 0; j < 2; j++) {
    const uint32_t got = __shfl_xor_sync(~0u, high ? w[j] : w[j + 2], 2);
    high ? w[j] = got : w[j + 2] = got;
  }
  return make_uint4(w[0], w[1], w[2], w[3]);
}

/* Writes a warpgroup's output of a unit, from first_dim on: the result, or a split's partial result. */
template <class S, bool kPlanes>
__device__ __forceinline__ void store_unit(const Args &args, const Unit &unit, const Rows<S> &rows,
                                           const float (&o)[S::kDims / 2], int first_row, int first_dim) {
  const AttentionArgs &a = args.a;
  const int t = threadIdx.x % 4;
  const Partials partials(args);
#pragma unroll
  for (int h = 0; h < 2; h++) {
    const int token = unit.first_token + rows.token[h];
    const int head = unit.kv_head * (a.n_heads / a.n_kv_heads) + rows.head[h];
    const bool valid = rows.token[h] < unit.n_tokens;
    const float sum = lanes_sum<1, 2>(rows.sum[h]);
    if (unit.used == 1) {
      const float scale = 1 / (sum + (valid ? sink_weight(a, head, rows.maximum[h]) : 0));
      if constexpr (kPlanes) {
        float v[8][4];
#pragma unroll
        for (int j = 0; j < 8; j++)
#pragma unroll
          for (int i = 0; i < 4; i++) v[j][i] = o[(2 * j + i % 2) * 4 + 2 * h + i / 2] * scale;
        store_planes<8>(a, token, head, v, valid);
        continue;
      }
      __half *to = a.out + ((size_t)token * a.n_heads + head) * S::kValues + first_dim + t * 8;
#pragma unroll
      for (int d = 0; d < S::kDims / 8; d += 4) {
        uint32_t words[4];
#pragma unroll
        for (int j = 0; j < 4; j++)
          words[j] = pack_half2(o[(d + j) * 4 + 2 * h] * scale, o[(d + j) * 4 + 2 * h + 1] * scale);
        const uint4 block = gather_block(words);
        if (valid) *(uint4 *)(to + d * 8) = block;
      }
    } else if (valid) {
      const size_t row = unit.partial * partial_stride(args) + first_row + 8 * h;
      float *to = partials.outputs + row * S::kValues + first_dim + 2 * t;
#pragma unroll
      for (int d = 0; d < S::kDims / 8; d++)
        *(float2 *)(to + d * 8) = make_float2(o[d * 4 + 2 * h], o[d * 4 + 2 * h + 1]);
      if (t == 0 && first_dim == 0) partials.states[row] = make_float2(rows.maximum[h], sum);
    }
  }
}

/* Zeroes a stage's values from index `first` on. They are past the sequence's last key: their weights are 0,
 * but they may be NaN. Each warpgroup zeroes all of them for itself. */
template <class S>
__device__ __forceinline__ void zero_values(unsigned char *values, int first, int warpgroup) {
  for (int i = first * 8 + threadIdx.x % 128; i < S::kKeys * 8; i += 128)
#pragma unroll
    for (int d = 0; d < S::kValues / 64; d++)
      *(uint4 *)(values + d * S::kKeys * 128 + i * 16) = make_uint4(0, 0, 0, 0);
  fence_stores_for_wgmma();
  warpgroup_sync(warpgroup);
}

template <class S, bool kCapped, bool kWhole, bool kPlanes>
__device__ __forceinline__ void multiply_units(const Args &args, unsigned char *shared, const Barriers &bar,
                                               int n_units) {
  const int warpgroup = __shfl_sync(~0u, threadIdx.x / 128, 0), lane = threadIdx.x % 32;
  const int first_row = warpgroup / S::kSharers * 64 + threadIdx.x / 32 % 4 * 16 + lane / 4;
  const int first_dim = warpgroup % S::kSharers * S::kDims;
  unsigned char *keys = shared + S::kQueryBytes;
  unsigned char *values = S::kOneRow ? keys + (S::kHeadDim - S::kValues) / 64 * S::kKeys * 128
                                     : keys + S::kStages * S::kTileBytes;
  const uint64_t queries_at = operand_b(shared + warpgroup / S::kSharers * 64 * 128),
                 keys_at = operand_b(keys),
                 values_at = operand_b_columns(values + first_dim / 64 * S::kKeys * 128, S::kKeys * 128);
  uint64_t *values_empty = S::kOneRow ? bar.keys_empty : bar.values_empty;
  Ring<S::kStages> ring, next;
  int query_phase = 0;
  Rows<S> rows(first_row, args.a.n_heads / args.a.n_kv_heads);
  float o[S::kDims / 2], s[S::kKeys / 2], keep[2];
  uint32_t p[S::kKeys / 16][4];

  if (warpgroup == 1) end_turn<S>(warpgroup);
  for (int i = 0; unit_number(i) < n_units; i++) {
    const Unit unit = unit_of<S>(args, unit_number(i));
    if (unit.begin >= unit.end) continue;
    const int first_pos = unit.pos, length = unit.length;
    /* Steps >= masked_from and steps < masked_before need a mask. */
    const int masked_from = (first_pos + 1) / S::kKeys,
              masked_before =
                  (newest_unseen(args.a, first_pos + args.by.tile_tokens - 1) + S::kKeys) / S::kKeys;
    rows.begin();
#pragma unroll
    for (int d = 0; d < S::kDims / 2; d++) o[d] = 0;

    barrier_wait(bar.queries_full, query_phase);
    query_phase ^= 1;
    barrier_wait(bar.keys_full + next.slot, next.phase);
    wgmma_fence();
    multiply_keys<S>(s, queries_at, keys_at + next.slot * (S::kTileBytes / 16));
    wgmma_commit();
    wgmma_wait<0>();
    if (!S::kOneRow && lane == 0) barrier_arrive(bar.keys_empty + next.slot);
    next.advance();
    const auto weigh = [&](int step) {
      if (kCapped) {
#pragma unroll
        for (int n = 0; n < S::kKeys / 2; n++) s[n] = score_log2<kCapped>(args.a, s[n]);
      }
      if (step >= masked_from || step < masked_before)
        rows.mask(args.a, s, step * S::kKeys, first_pos, kWhole ? args.a.whole : 0);
      rows.template softmax<kCapped>(args.a, s, keep);
    };
    weigh(unit.begin);
    pack_weights<S>(p, s);

    if (!S::kOneRow && unit.begin + 1 < unit.end) barrier_wait(bar.keys_full + next.slot, next.phase);
    for (int step = unit.begin + 1; step < unit.end; step++) {
      if constexpr (S::kOneRow) {
        /* Values come first: their stage, one of few, is then free while the scores are multiplied. */
        wgmma_fence();
        multiply_values<S>(o, p, values_at + ring.slot * (S::kTileBytes / 16));
        wgmma_commit();
        barrier_wait(bar.keys_full + next.slot, next.phase);
        multiply_keys<S>(s, queries_at, keys_at + next.slot * (S::kTileBytes / 16));
        wgmma_commit();
        wgmma_wait<1>();
        if (lane == 0) barrier_arrive(bar.keys_empty + ring.slot);
        wgmma_wait<0>();
        next.advance();
        weigh(step);
      } else {
        begin_turn<S>(warpgroup);
        wgmma_fence();
        multiply_keys<S>(s, queries_at, keys_at + next.slot * (S::kTileBytes / 16));
        wgmma_commit();
        barrier_wait(bar.values_full + ring.slot, ring.phase);
        multiply_values<S>(o, p, values_at + ring.slot * (S::kTileBytes / 16));
        wgmma_commit();
        end_turn<S>(warpgroup);
        wgmma_wait<1>();
        if (lane == 0) barrier_arrive(bar.keys_empty + next.slot);
        next.advance();
        weigh(step);
        compute_now(s); /* softmax stays before the next line's branch, past which ptxas moves nothing */
        if (step + 1 < unit.end) barrier_wait(bar.keys_full + next.slot, next.phase);
        wgmma_wait<0>();
        if (lane == 0) barrier_arrive(bar.values_empty + ring.slot);
      }
      ring.advance();
      pack_weights<S>(p, s);
      /* After the first steps most maxima rise no more, and o needs no factor. */
      if (S::kDims < 256 || !__all_sync(~0u, keep[0] == 1 && keep[1] == 1))
#pragma unroll
        for (int d = 0; d < S::kDims / 8; d++)
          o[d * 4] *= keep[0], o[d * 4 + 1] *= keep[0], o[d * 4 + 2] *= keep[1], o[d * 4 + 3] *= keep[1];
    }
    if (lane == 0) barrier_arrive(bar.queries_empty);
    if (!S::kOneRow) barrier_wait(bar.values_full + ring.slot, ring.phase);
    if (unit.end * S::kKeys > length)
      zero_values<S>(values + ring.slot * S::kTileBytes, length - (unit.end - 1) * S::kKeys, warpgroup);
    wgmma_fence();
    multiply_values<S>(o, p, values_at + ring.slot * (S::kTileBytes / 16));
    wgmma_commit();
    wgmma_wait<0>();
    if (lane == 0) barrier_arrive(values_empty + ring.slot);
    ring.advance();
    store_unit<S, kPlanes>(args, unit, rows, o, first_row, first_dim);
  }
}

#endif

template <class S, bool kCapped, bool kWhole, bool kPlanes = false>
__global__ void __launch_bounds__(kThreads, 1) attention_wgmma_kernel(const __grid_constant__ Args args) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  extern __shared__ unsigned char shared_memory[];
  __shared__ uint64_t queries[2], keys[2 * S::kStages], values[2 * S::kStages];
  unsigned char *shared = shared_memory + (1024 - shared_address(shared_memory) % 1024) % 1024;
  const Barriers bar = {queries, queries + 1, keys, keys + S::kStages, values, values + S::kStages};
  if (threadIdx.x == 0) {
    barrier_init(bar.queries_full, 1);
    barrier_init(bar.queries_empty, kConsumers / 32);
    for (int i = 0; i < S::kStages; i++) {
      barrier_init(bar.keys_full + i, 1);
      barrier_init(bar.keys_empty + i, kConsumers / 32);
      barrier_init(bar.values_full + i, 1);
      barrier_init(bar.values_empty + i, kConsumers / 32);
    }
    barrier_init_fence();
  }
  if (threadIdx.x == kConsumers) prefetch_map(&args.q), prefetch_map(&args.k), prefetch_map(&args.v);
  __syncthreads();
  wait_for_previous();
  dependents_may_start(); /* after the wait: the decode kernel beside this one reads the same q and k */
  const int n_units = args.by.n_tiles * args.a.n_kv_heads * args.by.n_splits;
  if (threadIdx.x >= kConsumers) {
    registers_down_to<kLoadRegisters>();
    if (threadIdx.x == kConsumers) load_units<S>(args, shared, bar, n_units);
  } else {
    registers_up_to<kMultiplyRegisters>();
    multiply_units<S, kCapped, kWhole, kPlanes>(args, shared, bar, n_units);
  }
#endif
}

/* Merges the splits of a tile's rows: a warp for each token and head. */
constexpr int kMergeWarps = 4;
template <class S, bool kPlanes = false>
__global__ void __launch_bounds__(kMergeWarps * 32)
    attention_merge_kernel(const __grid_constant__ Args args) {
  begin_overlapping();
  const AttentionArgs &a = args.a;
  const int i = blockIdx.x * kMergeWarps + threadIdx.x / 32, lane = threadIdx.x % 32;
  if (i >= args.by.n_tokens * a.n_heads) return;
  const int token = i / a.n_heads, head = i % a.n_heads, group = a.n_heads / a.n_kv_heads;
  const int kv_head = head / group, tile = token / args.by.tile_tokens, stride = partial_stride(args);
  const Unit unit = unit_at<S>(args, tile, kv_head, 0);
  if (unit.used == 1) return;
  const Partials partials(args);
  const size_t first = unit.partial * stride + (token - unit.first_token) * group + head % group;
  const float2 *states = partials.states + first;
  float high = -INFINITY;
  for (int split = lane; split < unit.used; split += 32) high = fmaxf(high, states[split * stride].x);
  high = lanes_max<16, 8, 4, 2, 1>(high);
  constexpr int kVectors = (S::kHeadDim / 4 + 31) / 32; /* vectors of a lane */
  float total = 0;
  float4 o[kVectors] = {};
#pragma unroll 4
  for (int split = 0; split < unit.used; split++) {
    const float2 state = states[split * stride];
    const float weight = power_of_2(state.x - high);
    const float4 *from = (const float4 *)(partials.outputs + (first + (size_t)split * stride) * S::kHeadDim);
    total += weight * state.y;
#pragma unroll
    for (int j = 0; j < kVectors; j++)
      if (S::kHeadDim >= 128 || lane < S::kHeadDim / 4) {
        const float4 v = from[j * 32 + lane];
        o[j].x += weight * v.x, o[j].y += weight * v.y, o[j].z += weight * v.z, o[j].w += weight * v.w;
      }
  }
  const float scale = 1 / (total + sink_weight(a, head, high));
  if constexpr (kPlanes) {
    store_planes_of_four(a, token, head,
                         make_float4(o[0].x * scale, o[0].y * scale, o[0].z * scale, o[0].w * scale));
    return;
  }
  uint2 *to = (uint2 *)(a.out + (size_t)i * S::kHeadDim);
#pragma unroll
  for (int j = 0; j < kVectors; j++)
    if (S::kHeadDim >= 128 || lane < S::kHeadDim / 4)
      to[j * 32 + lane] =
          make_uint2(pack_half2(o[j].x * scale, o[j].y * scale), pack_half2(o[j].z * scale, o[j].w * scale));
}

/* Merges the splits of rows of latent attention. A block merges kMergeDims numbers of a row. Each of its
 * warps takes some of the splits: it computes their weights, then loads their outputs. blockIdx.y: a token,
 * or with a.units a unit; only a token's first unit merges. */
constexpr int kMergeDims = 128;
static_assert(kSplitUnits <= kMergeWarps * 64, "a lane has the states of two splits");
template <class S>
__global__ void __launch_bounds__(kMergeWarps * 32)
    attention_merge_latents_kernel(const __grid_constant__ Args args) {
  begin_overlapping();
  constexpr int kParts = S::kValues / kMergeDims;
  const AttentionArgs &a = args.a;
  const int head = blockIdx.x / kParts, part = blockIdx.x % kParts, group = a.n_heads / a.n_kv_heads,
            kv_head = head / group, warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  if (a.units && a.units[blockIdx.y].split > 0) return;
  const Unit unit = unit_at<S>(args, a.units ? blockIdx.y : blockIdx.y / args.by.tile_tokens, kv_head, 0);
  if (unit.used <= 1) return;
  const int token = a.units ? unit.first_token : blockIdx.y, stride = partial_stride(args);
  const Partials partials(args);
  const size_t first = unit.partial * stride + (token - unit.first_token) * group + head % group;
  const float4 *outputs = (const float4 *)(partials.outputs + first * S::kValues + part * kMergeDims) + lane;

  /* Lane i has the states of the warp's splits i and i + 32. The warp's i-th split is kMergeWarps i +
   * warp. */
  float2 state[2];
#pragma unroll
  for (int i = 0; i < 2; i++) {
    const int split = (lane + 32 * i) * kMergeWarps + warp;
    state[i] =
        split < unit.used ? partials.states[first + (size_t)split * stride] : make_float2(-INFINITY, 0);
  }
  const float own = lanes_max<16, 8, 4, 2, 1>(fmaxf(state[0].x, state[1].x)),
              shift = own == -INFINITY ? 0 : own;
  const float weight[2] = {power_of_2(state[0].x - shift), power_of_2(state[1].x - shift)};
  const float total = warp_sum(weight[0] * state[0].y + weight[1] * state[1].y);
  float4 o = make_float4(0, 0, 0, 0);
#pragma unroll 8
  for (int split = warp, i = 0; split < unit.used; split += kMergeWarps, i++) {
    const float w = __shfl_sync(~0u, i < 32 ? weight[0] : weight[1], i % 32);
    const float4 v = __ldcg(outputs + (size_t)split * stride * (S::kValues / 4));
    o.x += w * v.x, o.y += w * v.y, o.z += w * v.z, o.w += w * v.w;
  }
  __shared__ float4 of_warps[kMergeWarps][32];
  __shared__ float2 states[kMergeWarps];
  of_warps[warp][lane] = o;
  if (lane == 0) states[warp] = make_float2(own, total);
  __syncthreads();
  if (warp > 0) return;
  float high = -INFINITY, sum = 0;
  for (int w = 0; w < kMergeWarps; w++) high = fmaxf(high, states[w].x);
  o = make_float4(0, 0, 0, 0);
  for (int w = 0; w < kMergeWarps; w++) {
    const float by = power_of_2(states[w].x - high);
    const float4 v = of_warps[w][lane];
    sum += by * states[w].y;
    o.x += by * v.x, o.y += by * v.y, o.z += by * v.z, o.w += by * v.w;
  }
  const float scale = 1 / sum;
  *(uint2 *)(a.out + ((size_t)token * a.n_heads + head) * S::kValues + part * kMergeDims + 4 * lane) =
      make_uint2(pack_half2(o.x * scale, o.y * scale), pack_half2(o.z * scale, o.w * scale));
}

/* Divides n_tokens tokens into tiles, and the keys into splits if the tiles fill at most half of the GPU.
 * `longest`: steps of the longest split if there are as many splits as fit. The least number of splits with
 * this length is taken, if it saves at least two steps: the merge takes as long as one step (LOG.md, "Splits
 * of the keys"). With latent attention the division of one token does not depend on `past`, because the
 * token's step is captured in a graph. */
template <class S> Division divide(const AttentionArgs &a, int n_tokens, int past) {
  const int tile_tokens = S::kRows / (a.n_heads / a.n_kv_heads), n_tiles = ceil_div(n_tokens, tile_tokens);
  if (S::kOneRow && n_tokens == 1) return {1, 1, 1, std::max(1, kSplitUnits / a.n_kv_heads)};
  const int seen = std::min(past, past - newest_unseen(a, past)) + std::min(n_tokens, tile_tokens);
  const int steps = ceil_div(seen, S::kKeys),
            most = std::min(kMaxSplits, kSplitUnits / (n_tiles * a.n_kv_heads));
  const int longest = ceil_div(steps, std::max(1, std::min(most, steps)));
  return {n_tokens, tile_tokens, n_tiles, longest + 2 > steps ? 1 : ceil_div(steps, longest)};
}

template <class S, bool kCapped>
Status launch_shape(const AttentionArgs &a, const Division &by, int n_sms, cudaStream_t stream, Error *err) {
  Args args = {};
  args.a = a, args.by = by;
  args.box_keys = a.pages.table ? std::gcd(S::kKeys, (int)KV_PAGE_TOKENS) : S::kKeys;
  const int group = a.n_heads / a.n_kv_heads;
  const cuuint64_t row = S::kHeadDim * sizeof(__half), heads = (cuuint64_t)a.n_heads;
  const cuuint64_t n_pages = a.pages.table ? a.pages.n_pages : 1,
                   cached[3] = {S::kHeadDim, n_pages * (a.n_kv_heads / a.kv_sharers) * a.n_ctx, 0};
  const auto map = [&](const void *at, const cuuint64_t(&size)[3], const cuuint64_t(&stride)[2], int rows,
                       int planes, CUtensorMap *to) {
    return map_boxes(at, size, stride, {64, (cuuint32_t)rows, (cuuint32_t)planes}, CU_TENSOR_MAP_SWIZZLE_128B,
                     "attention", to, err);
  };
  TRY(map(a.q, {S::kHeadDim, heads, (cuuint64_t)by.n_tokens}, {row, row * heads}, group, by.tile_tokens,
          &args.q));
  TRY(map(a.k, cached, {row, 0}, args.box_keys, 1, &args.k));
  TRY(map(S::kOneRow ? a.k : a.v, cached, {row, 0}, args.box_keys, 1, &args.v));
  const int n_units = by.n_tiles * a.n_kv_heads * by.n_splits;
  auto kernel = attention_wgmma_kernel<S, kCapped, false>;
  if constexpr (S::kHeadDim == kPlanesHead && !kCapped)
    if (a.planes) kernel = attention_wgmma_kernel<S, false, false, true>;
  if constexpr (S::kHeadDim == kWholeHead && !kCapped)
    if (a.whole > 0) kernel = attention_wgmma_kernel<S, kCapped, true>;
  TRY(launch(kernel, dim3(std::min(n_units, n_sms)), kThreads, S::kSharedBytes, stream, true, "attention",
             err, args));
  if (by.n_splits == 1 && !a.units) return STATUS_OK;
  if constexpr (S::kOneRow) {
    return launch(attention_merge_latents_kernel<S>,
                  dim3(a.n_heads * (S::kValues / kMergeDims), a.units ? by.n_tiles : by.n_tokens),
                  kMergeWarps * 32, 0, stream, true, "attention", err, args);
  } else {
    auto merge = attention_merge_kernel<S>;
    if constexpr (S::kHeadDim == kPlanesHead && !kCapped)
      if (a.planes) merge = attention_merge_kernel<S, true>;
    return launch(merge, dim3(ceil_div(by.n_tokens * a.n_heads, kMergeWarps)), kMergeWarps * 32, 0, stream,
                  true, "attention", err, args);
  }
}

/* Measured on an H200 (LOG.md, "Attention by wgmma"). The last two are for latent attention. Their number
 * is the width of a row of the cache: the key's 64 rotated numbers, which are not part of the value, then the
 * latent. */
template <int kHeadDim> struct ShapeFor;
template <> struct ShapeFor<64> : Shape<64, 128, 4, false> {};
template <> struct ShapeFor<128> : Shape<128, 128, 2, true> {};
template <> struct ShapeFor<256> : Shape<256, 80, 2, false> {};
template <> struct ShapeFor<512> : Shape<512, 64, 1, false> {};
template <> struct ShapeFor<320> : Shape<320, 64, 3, false, 256> {};
template <> struct ShapeFor<576> : Shape<576, 64, 2, false, 512> {};

/* Calls run(shape, capped). */
template <class Run> Status with_shape(const AttentionArgs &a, Error *err, Run run) {
  const auto plain = [&](auto head, auto capped) {
    constexpr int kHeadDim = decltype(head)::value;
    if constexpr (kHeadDim % 64 == 0) return run(ShapeFor<kHeadDim>(), capped);
    return error_set(err, STATUS_FAILED, "attention: no kernel for heads of %d", a.head_dim);
  };
  std::false_type no;
  if (a.value_dims == 0) return with_head_size(a, err, plain);
  if (a.head_dim == 576 && a.value_dims == 512) return run(ShapeFor<576>(), no);
  if (a.head_dim == 320 && a.value_dims == 256) return run(ShapeFor<320>(), no);
  return error_set(err, STATUS_FAILED, "attention: no kernel for latents of %d", a.value_dims);
}

/* Launches the kernels with the division of work that division(shape) returns. */
template <class DivisionOf>
Status launch_divided(const AttentionArgs &a, int n_sms, cudaStream_t stream, Error *err,
                      DivisionOf division) {
  return with_shape(a, err, [&](auto shape, auto capped) {
    return launch_shape<decltype(shape), decltype(capped)::value>(a, division(shape), n_sms, stream, err);
  });
}

} // namespace

int attention_wgmma_rows(const AttentionArgs &a) {
  int rows = 0;
  with_shape(a, NULL, [&](auto shape, auto) {
    rows = decltype(shape)::kRows;
    return STATUS_OK;
  });
  return rows;
}

size_t attention_wgmma_shared(const AttentionArgs &a) {
  size_t bytes = SIZE_MAX;
  with_shape(a, NULL, [&](auto shape, auto) {
    bytes = decltype(shape)::kSharedBytes;
    return STATUS_OK;
  });
  return bytes;
}

int attention_wgmma_splits(const AttentionArgs &a, int n_tokens, int past) {
  int n_splits = 1;
  with_shape(a, NULL, [&](auto shape, auto) {
    n_splits = divide<decltype(shape)>(a, n_tokens, past).n_splits;
    return STATUS_OK;
  });
  return n_splits;
}

Status attention_wgmma(const AttentionArgs &a, int n_tokens, int past, int n_sms, cudaStream_t stream,
                       Error *err) {
  return launch_divided(a, n_sms, stream, err,
                        [&](auto shape) { return divide<decltype(shape)>(a, n_tokens, past); });
}

Status attention_wgmma_tiles(const AttentionArgs &a, int n_tokens, int n_tiles, int n_sms,
                             cudaStream_t stream, Error *err) {
  return launch_divided(a, n_sms, stream, err, [&](auto shape) {
    return Division{n_tokens, decltype(shape)::kRows / (a.n_heads / a.n_kv_heads), n_tiles, 1};
  });
}

Status attention_wgmma_units(const AttentionArgs &a, int n_tokens, int n_units, int n_sms,
                             cudaStream_t stream, Error *err) {
  return launch_divided(a, n_sms, stream, err, [&](auto) { return Division{n_tokens, 1, n_units, 1}; });
}
