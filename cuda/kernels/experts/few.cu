/* few.cu - the experts of a few tokens: gate and up, the activation and down in one kernel, then their sum.
 *
 * g[choice][k] = weight * activation(gate, up) of h[token]
 * out[token][o] (+)= sum over its choices of sum_k down[expert][o][k] g[choice][k]
 *
 * With few tokens an expert has one or two rows of h, so the time is that of streaming its weights. An item
 * is a slice of kSlice features of one expert, for up to kRows rows of h. It has the tile rows of gate and up
 * that make these features, and the columns of down that read them. A cluster of two blocks takes an item, so
 * g never leaves the cluster:
 *
 *   gate, up  a warp has a tile row and a part of the inputs      its sums -> both blocks
 *   g         each block adds up sums, and has all features       g in shared memory
 *   down      a warp has some tile rows, all inputs of the slice  sums stay in registers
 *
 * The items of all experts are divided evenly; each cluster has consecutive items. An entry is up to kRows
 * rows of an expert. A cluster adds to the sums of down while its items are of one entry. Then it stores the
 * sums as a part of the entry's results. A second kernel adds up the parts of a token's choices.
 *
 * A warp requests its weights kDepth chunks ahead: gate and up of an item, then down of the previous item. So
 * weights stream while sums are on their way to the other block. The block's half of the inputs of h is in
 * shared memory for the whole kernel. A warp's ring has no barrier. Its lanes wait for their own copies and,
 * by __syncwarp(), for each other, before they read a slot and before they fill it again.
 *
 * Step s multiplies gate and up of item s, and down of item s - 1. Sums and g of item s lie in buffer s % 2,
 * with barriers of parity s / 2 % 2:
 *
 *   32 warps of the cluster   gate, up -> st.async of 512 bytes to both blocks -> sums_full: 1, and 16 KB
 *                                                                                     |
 *   16 warps of a block       g_full: 16, a warp each <- make_g() by the first 8 (4 without gates) <- wait
 *                                 |
 *   the same, in step s + 1       +-> wait -> down of item s
 *
 * The 1 is the arrival of thread 0, which announces the next phase's bytes after its wait. No barrier frees a
 * buffer. A warp sends sums of step s + 2 when all sums of s + 1 have arrived. Each warp sent its sums of
 * s + 1 after it had read those of s. A warp writes g of s + 2 when all sums of s + 2 have arrived. Each warp
 * sent its sums of s + 2 after it had read g of s.
 *
 *   slot   a chunk: the weights of four tiles, their scales and zeros (layout.cuh). The tiles are neighbours
 *          in a tile row of gate and up, or those of the same inputs in four tile rows of down
 *
 * Integers are multiplied as fp16 subnormals: five operations make eight weights of 4 bits, four operations
 * eight weights of 8 bits. Zero points are multiplied by sums of x. Sums of h are made once; a product with
 * ones makes sums of g:
 *
 *     sum_i (q[i] - z) s x[i] = s (sum_i q[i] x[i] - z sum_i x[i])   over each group
 *
 * PRECOND  experts_few_takes().   READS  each chosen expert's weights once for kRows of its rows. */
#include <algorithm>

#include "cuda/kernels/experts/experts.h"
#include "cuda/kernels/experts/few_list.cuh"
#include "cuda/kernels/experts/few_slot.cuh"
#include "cuda/kernels/linear/kernel.cuh"
#include "cuda/kernels/ptx/cluster.cuh"

namespace {

using few::Entry, few::kChunkTiles, few::kMostChoices, few::kRows, few::List, few::Slot;

constexpr int kWarps = 16, kThreads = 32 * kWarps, kBlocks = 2; /* kBlocks: blocks of a cluster */
constexpr int kSlice = kTileIn;                                 /* features of an item */
/* Outputs of down if each warp of the cluster has one chunk. */
constexpr int kChunkOut = kBlocks * kWarps * kChunkTiles * kTileOut;
constexpr size_t kBarrierBytes = 192; /* shared memory of barriers, alignment included */
constexpr int kGRowBytes = 2 * kSlice + 16, kGBytes = kRows * kGRowBytes; /* + 16: rows in different banks */
constexpr int kSumBytes = 512, kSumsBytes = kBlocks * kWarps * kSumBytes; /* sums of a warp; of all warps */

/* The matrices of all experts, one below the other. */
struct Matrices {
  QuantView w;
  int tile_rows; /* of one expert */
  const float *bias, *factors;
};

struct Args {
  Matrices gate_up, down;
  const int *ids;
  const float *weights;
  const __half *h;
  int h_stride, n_tokens;
  float *parts; /* [entry + cluster][kRows][n_out]: no two parts have the same entry + cluster */
  int n_out;
  int *first_parts, *n_parts; /* [n_choices] the row of a choice's first part, and the number of its parts */
  int n_choices, n_chosen, n_slices, n_experts;
  uint32_t slices_inverse, clusters_inverse; /* rounded_inverse() of n_slices and of clusters */
  Activation activation;
  float limit;
  bool gated;
};

/* Tiles of a tile row, or tile rows of a matrix: first .. first + n - 1. */
struct Range {
  int first, n;
};

/* Part i of 2^log parts of `n`, cut at multiples of `piece`. */
__host__ __device__ __forceinline__ Range part_of(int n, int piece, int i, int log) {
  const int pieces = (n + piece - 1) / piece, first = min((i * pieces >> log) * piece, n);
  return {first, min(((i + 1) * pieces >> log) * piece, n) - first};
}

/* Base 2 logarithms: of the warps of a cluster, of the tile rows of gate and up in a slice, and of the parts
 * into which warps divide the inputs of gate and up. */
constexpr int kLogWarps = 5;
static_assert(kBlocks * kWarps == 1 << kLogWarps, "warps of a cluster");
__host__ __device__ __forceinline__ int log_tile_rows(bool gated) {
  return gated ? 3 : 2;
}
static_assert(2 * kSlice / kTileOut == 8, "tile rows of a slice");
__host__ __device__ __forceinline__ int log_parts(bool gated) {
  return kLogWarps - log_tile_rows(gated);
}

/* The tiles of 64 inputs of h, the experts' input, that a block holds in shared memory. */
__host__ __device__ __forceinline__ Range tiles_of_block(int n_in, bool gated, int piece, int rank) {
  const int log = log_parts(gated), first = rank << (log - 1), last = first + (1 << (log - 1)) - 1;
  const Range a = part_of(n_in / kTileIn, piece, first, log), b = part_of(n_in / kTileIn, piece, last, log);
  return {a.first, b.first + b.n - a.first};
}

template <class S, int kDown> struct Shape : S {
  static constexpr int kDownChunks = kDown; /* most chunks of a warp for an item's down */
  static_assert(kDownChunks <= 4, "sums of down fit in registers");
  static constexpr int kDepth = S::W::kVectors == 1 ? 3 : 2;
  static constexpr int kRingBytes = kWarps * kDepth * S::kBytes;
  static constexpr int kSharedBytes = kRingBytes + 2 * (kSumsBytes + kGBytes); /* without h */
};

#if __CUDA_ARCH__ >= 900

/* A warp's share of every item. */
struct Share {
  int tile_row;      /* the warp's tile row of gate and up, an index in the item's slice */
  int part;          /* the warp's part of the inputs of gate and up, an index in the cluster */
  Range tiles, rows; /* tiles of that part; tile rows of down */

  __device__ __forceinline__ Share(const Args &a, int rank, int warp, int piece)
      : tile_row(warp & ((1 << log_tile_rows(a.gated)) - 1)),
        part((rank << (log_parts(a.gated) - 1)) + (warp >> log_tile_rows(a.gated))),
        tiles(part_of(a.gate_up.w.n_in / kTileIn, piece, part, log_parts(a.gated))),
        rows(part_of(a.down.tile_rows, 1, rank * kWarps + warp, kLogWarps)) {}
};

/* n / d for n * d < 2^32; inverse: rounded_inverse(d). */
__device__ __forceinline__ int divide(int n, uint32_t inverse) {
  return inverse ? (int)__umulhi((uint32_t)n, inverse) : n;
}

/* An item: where its weights lie. */
struct Item {
  int entry = 0, slice = 0, expert = 0;

  Item() = default;
  __device__ __forceinline__ Item(const Args &a, const List &list, int at)
      : entry(divide(at, a.slices_inverse)), slice(at - entry * a.n_slices),
        expert(list.entries[entry].expert) {}

  /* Goes on to the next item, which need not exist. */
  __device__ __forceinline__ void move(const Args &a, const List &list) {
    if (++slice < a.n_slices) return;
    slice = 0, entry++;
    if (entry < list.n_entries) expert = list.entries[entry].expert;
  }
};

/* The factors and the biases of rows lane / 4 and lane / 4 + 8 of tile row `row`, an index over all
 * experts. */
struct RowEnds {
  float by[2], plus[2];

  template <class S> static __device__ __forceinline__ RowEnds of(const Matrices &m, long row) {
    RowEnds ends;
#pragma unroll
    for (int h = 0; h < 2; h++) {
      const long at = row * kTileOut + (long)(threadIdx.x % 32 / 4 + 8 * h);
      ends.by[h] = S::scale_of_row(h) * (m.factors ? m.factors[at] : 1.0f);
      ends.plus[h] = m.bias ? m.bias[at] : 0.0f;
    }
    return ends;
  }
};

/* The token of row `row` of an entry. If the entry has fewer rows: the token of its last row. */
__device__ __forceinline__ int token_of(uint32_t tokens, int row) {
#pragma unroll
  for (int i = 0; i < kRows - 1; i++) {
    const uint32_t rest = tokens & (tokens - 1);
    if (i < row && rest) tokens = rest;
  }
  return __ffs((int)tokens) - 1;
}

/* A thread's view of the rows of an item's entry; t is lane % 4. */
struct EntryRows {
  float weights[2];     /* of rows 2 t and 2 t + 1; 0 past the last */
  int choice;           /* of row lane % kRows */
  uint32_t x;           /* shared_address() in h of row lane % kRows, where the lane's ldmatrix begins */
  const float *sums[2]; /* of rows 2 t and 2 t + 1: sums of h over each scale block */

  /* Four lanes look for the choice of a row. */
  __device__ __forceinline__ void find(const List &list, const Entry &of, int n_chosen, int lane, uint32_t h,
                                       int h_row_bytes, const float *h_sums, int n_blocks) {
    const int row = lane % kRows, token = token_of(of.tokens, row), n = __popc(of.tokens);
    choice = -1;
    for (int i = lane / kRows; i < n_chosen; i += 32 / kRows)
      if (list.ids[token * n_chosen + i] == of.expert) choice = token * n_chosen + i;
#pragma unroll
    for (int o = kRows; o < 32; o *= 2) choice = max(choice, __shfl_xor_sync(~0u, choice, o));
    const float weight = row < n ? list.weights[choice] : 0.0f;
    x = h + token * h_row_bytes;
#pragma unroll
    for (int i = 0; i < 2; i++) {
      const int of_row = lane % 4 * 2 + i;
      weights[i] = __shfl_sync(~0u, weight, of_row);
      sums[i] = h_sums + __shfl_sync(~0u, token, of_row) * n_blocks;
    }
  }
};

/* Makes the features of an item's g that tile row `tile_row` gives, from the tile row's sums over all parts
 * of the inputs. */
__device__ __forceinline__ void make_g(const Args &a, const EntryRows &rows, const RowEnds &ends,
                                       int tile_row, const unsigned char *sums, unsigned char *to) {
  const int tile_rows = 1 << log_tile_rows(a.gated), n_parts = 1 << log_parts(a.gated);
  const int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
  float sum[4] = {};
#pragma unroll 4
  for (int p = 0; p < n_parts; p++) {
    const float4 v = *(const float4 *)(sums + (p * tile_rows + tile_row) * kSumBytes + lane * 16);
    sum[0] += v.x, sum[1] += v.y, sum[2] += v.z, sum[3] += v.w;
  }
  __half *const at = (__half *)(to + 2 * t * kGRowBytes) + tile_row * (a.gated ? 8 : kTileOut) + g;
#pragma unroll
  for (int i = 0; i < 2; i++) {
    const float one = sum[i] * ends.by[0] + ends.plus[0], two = sum[2 + i] * ends.by[1] + ends.plus[1];
    __half *const row = at + i * (kGRowBytes / 2);
    row[0] = clamp_half(gated_product(a.activation, one, a.gated ? two : one, a.limit) * rows.weights[i]);
    if (!a.gated) row[8] = clamp_half(gated_product(a.activation, two, two, a.limit) * rows.weights[i]);
  }
}

/* Stores the sums of the warp's tile rows as part of the results of an entry. weights: the router's, for the
 * bias (g already has them); 0 unless the part has the entry's first slice, so that the bias is added
 * once. */
template <class S>
__device__ __forceinline__ void store_part(const Args &a, const List &list, const Item &item, Range rows,
                                           const float (&weights)[2],
                                           float (&y)[S::kDownChunks * kChunkTiles][4]) {
  const int lane = opaque(threadIdx.x % 32), g = lane / 4, t = lane % 4; /* opaque as in Slot::Lane */
  const int n = __popc(list.entries[item.entry].tokens), first = opaque(rows.first);
  float *const to = a.parts + ((size_t)(item.entry + (int)blockIdx.x / kBlocks) * kRows + 2 * t) * a.n_out +
                    first * kTileOut + g;
  const bool plain = !a.down.factors && !a.down.bias;
#pragma unroll
  for (int r = 0; r < S::kDownChunks * kChunkTiles; r++) {
    if (r < rows.n) {
      RowEnds ends = {{S::scale_of_row(false), S::scale_of_row(true)}, {}};
      if (!plain) ends = RowEnds::of<S>(a.down, (long)item.expert * a.down.tile_rows + first + r);
#pragma unroll
      for (int i = 0; i < 2; i++) {
        float *const row = to + (size_t)i * a.n_out + r * kTileOut;
        if (2 * t + i < n) {
          row[0] = y[r][i] * ends.by[0] + ends.plus[0] * weights[i];
          row[8] = y[r][2 + i] * ends.by[1] + ends.plus[1] * weights[i];
        }
      }
    }
#pragma unroll
    for (int i = 0; i < 4; i++) y[r][i] = 0;
  }
}

/* The items of a cluster: n items from number `begin` on. All clusters together have n_items: the first
 * `longer` clusters `least` + 1 each, the others `least`. */
struct Work {
  int n_items, least, longer;
  int begin, n;

  __device__ __forceinline__ Work(const Args &a, const List &list, int cluster)
      : n_items(list.n_entries * a.n_slices), least(divide(n_items, a.clusters_inverse)),
        longer(n_items - least * ((int)gridDim.x / kBlocks)), begin(cluster * least + min(cluster, longer)),
        n(least + (cluster < longer)) {}

  /* The cluster that has an item. */
  __device__ __forceinline__ int cluster_of(int item) const {
    const int of_longer = longer * (least + 1);
    return item < of_longer ? item / (least + 1) : longer + (item - of_longer) / least;
  }
};

/* Notes which rows of `parts` are the results of an entry's choices. Called by a whole warp. */
__device__ __forceinline__ void note_parts(const Args &a, const Work &work, const Entry &of, int entry,
                                           int choice, int cluster) {
  if ((int)threadIdx.x % 32 >= __popc(of.tokens)) return;
  const int last = work.cluster_of((entry + 1) * a.n_slices - 1);
  a.first_parts[choice] = (entry + cluster) * kRows + (int)threadIdx.x % 32;
  a.n_parts[choice] = last - cluster + 1;
}

/* Sums of rows of h over the inputs that share a zero point, [n_tokens][n_blocks]: eight lanes make a sum. */
template <class S>
__device__ __forceinline__ void sum_blocks(const unsigned char *h, int h_row_bytes, int n_tokens,
                                           int n_blocks, float *sums) {
  constexpr int kLanes = 8, kPairs = S::kBlockIn / kLanes / 2;
  const int n = n_tokens * n_blocks, lane = threadIdx.x % kLanes;
  for (int i = threadIdx.x / kLanes; i < (n + 3) / 4 * 4; i += kThreads / kLanes) {
    const int at = min(i, n - 1), token = at / n_blocks;
    const __half2 *from =
        (const __half2 *)(h + token * h_row_bytes) + (at - token * n_blocks) * (S::kBlockIn / 2) + lane;
    float sum = 0;
#pragma unroll
    for (int k = 0; k < kPairs; k++) {
      const float2 two = __half22float2(from[k * kLanes]);
      sum += two.x + two.y;
    }
#pragma unroll
    for (int o = 1; o < kLanes; o *= 2) sum += __shfl_xor_sync(~0u, sum, o);
    if (lane == 0 && i < n) sums[i] = sum;
  }
}

/* A warp's ring, and the chunk that it requests next. A step is an item's gate and up, and down of the item
 * before. The first step has no down; the step after the last item has only down. Where there is nothing to
 * request, a slot keeps its contents. */
template <class S> struct Stream {
  const Args &a;
  const List &list;
  const Share &share;
  const typename S::Lane lane;
  const typename S::Copies of_up, of_down;
  const int n_up, n_down; /* chunks of an item */
  const unsigned char *const ring;
  int to, from;       /* offsets in the ring, in bytes: of the slot filled next; of the slot read next */
  uint32_t lane_ring; /* shared_address() of the lane's first vector of the ring */
  int n = 0;          /* items of the cluster */
  Item up, down;
  int step = 0, sub = 0; /* the next chunk: of step `step`, number `sub` of that step */
  typename S::At at = {};

  __device__ __forceinline__ Stream(const Args &args, const List &of, const Share &own,
                                    const unsigned char *memory)
      : a(args), list(of), share(own), lane(), of_up(a.gate_up.w, lane, own.tile_row, own.tiles.first, false),
        of_down(a.down.w, lane, own.rows.first, 0, true), n_up((own.tiles.n + kChunkTiles - 1) / kChunkTiles),
        n_down((own.rows.n + kChunkTiles - 1) / kChunkTiles), ring(memory), to(0), from(0),
        lane_ring((uint32_t)opaque((int)shared_address(memory) + lane.lane * 16)) {}

  /* Requests the first chunks of n_of_cluster items, which begin with `first`. */
  __device__ __forceinline__ void begin(const Item &first, int n_of_cluster) {
    up = down = first, n = n_of_cluster;
#pragma unroll 1
    for (int i = 0; i < S::kDepth; i++) request();
  }

  static __device__ __forceinline__ int after(int slot) {
    slot += S::kBytes;
    return slot == S::kDepth * S::kBytes ? 0 : slot;
  }

  __device__ __forceinline__ void request() {
    if (sub < n_up) {
      if (sub == 0)
        at.set(a.gate_up.w, of_up, up.expert * a.gate_up.tile_rows + (up.slice << log_tile_rows(a.gated)), 0);
      if (step < n) at.request_tiles(of_up, lane, share.tiles.n - sub * kChunkTiles, lane_ring + to);
    } else {
      if (sub == n_up) at.set(a.down.w, of_down, down.expert * a.down.tile_rows, down.slice);
      if (step > 0 && step <= n)
        at.request_rows(a.down.w, of_down, lane, share.rows.n - (sub - n_up) * kChunkTiles, lane_ring + to);
    }
    copy_async_commit();
    to = after(to);
    if (++sub < n_up + n_down) return;
    sub = 0, step++;
    down = up, up.move(a, list);
  }

  /* Waits for the oldest chunk, and for what was requested before it. Returns the chunk's address. */
  __device__ __forceinline__ const unsigned char *wait() const {
    copy_async_wait<S::kDepth - 1>();
    __syncwarp();
    return ring + from;
  }

  /* Requests the next chunk into the slot that was read, after its last use. */
  __device__ __forceinline__ void go_on() {
    __syncwarp();
    from = after(from);
    request();
  }
};

/* Addresses in shared memory, after the rings. */
template <class S> struct Memory {
  unsigned char *const sums, *const g, *const h;
  const Range tiles; /* tiles of 64 inputs of h that the block holds */
  const int h_row_bytes, n_blocks;
  float *const h_sums;

  __device__ __forceinline__ Memory(const Args &a, unsigned char *at, int rank)
      : sums(at + S::kRingBytes), g(sums + 2 * kSumsBytes), h(g + 2 * kGBytes),
        tiles(tiles_of_block(a.gate_up.w.n_in, a.gated, S::kBlockTiles, rank)),
        h_row_bytes(tiles.n * 128 + 16), n_blocks(tiles.n * S::kTileBlocks / S::kBlockTiles),
        h_sums((float *)(h + a.n_tokens * h_row_bytes)) {}

  /* Requests h, as a group of copies. */
  __device__ __forceinline__ void request_h(const Args &a) const {
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    for (int row = warp; row < a.n_tokens; row += kWarps) {
      const __half *x = a.h + (size_t)row * a.h_stride + tiles.first * kTileIn;
      for (int i = lane; i < tiles.n * 8; i += 32)
        copy_async_16(h + row * h_row_bytes + i * 16, x + i * 8, 16);
    }
    copy_async_commit();
  }
};

/* Sends a warp's sums of gate and up to both blocks. to, full: peer_address() of the memory for sums, and of
 * the barriers. */
__device__ __forceinline__ void send_sums(const float (&sum)[4], const uint32_t (&to)[kBlocks],
                                          const uint32_t (&full)[kBlocks], int turn) {
  const uint4 v = make_uint4(__float_as_uint(sum[0]), __float_as_uint(sum[1]), __float_as_uint(sum[2]),
                             __float_as_uint(sum[3]));
#pragma unroll
  for (int i = 0; i < kBlocks; i++) send_16(to[i] + turn * kSumsBytes, v, full[i] + turn * 8);
}

/* Multiplies the cluster's items. In a step a warp sends its sums of gate and up, multiplies down of the item
 * before, and makes g when all sums have arrived. */
template <class S>
__device__ __forceinline__ void multiply_items(const Args &a, const List &list, const Work &work,
                                               const Share &share, const Memory<S> &m, Stream<S> &stream,
                                               uint64_t *sums_full, uint64_t *g_full, Item up) {
  const int warp = opaque((int)threadIdx.x / 32), lane = stream.lane.lane, rank = cluster_rank(), n = work.n;
  const int slice_rows = 1 << log_tile_rows(a.gated);
  const uint32_t x_lane = lane / 8 * 16;
  const uint32_t h_at = shared_address(m.h) + (share.tiles.first - m.tiles.first) * 128 + x_lane,
                 g_at = shared_address(m.g) + lane % kRows * kGRowBytes + x_lane;
  const float *const sums_at =
      m.h_sums + (share.tiles.first - m.tiles.first) * S::kTileBlocks / S::kBlockTiles;
  const uint32_t to_sums = (share.part * slice_rows + share.tile_row) * kSumBytes + lane * 16;
  uint32_t peer_sums[kBlocks], peer_full[kBlocks];
#pragma unroll
  for (int i = 0; i < kBlocks; i++)
    peer_sums[i] = peer_address(m.sums, i) + to_sums, peer_full[i] = peer_address(sums_full, i);
  float y[S::kDownChunks * kChunkTiles][4] = {};
  bool begins = up.slice == 0; /* the sums of down include slice 0, and so get the bias */
  EntryRows rows;
  const auto find_rows = [&](int entry) {
    rows.find(list, list.entries[entry], a.n_chosen, lane, h_at, m.h_row_bytes, sums_at, m.n_blocks);
  };
  if (n > 0) find_rows(up.entry);
  Item down = up;
#pragma unroll 1
  for (int step = 0; step <= n; step++) {
    const int turn = step % 2, phase = step / 2 % 2;
    float biases[2] = {}; /* store_part()'s weights */
    if (begins) biases[0] = rows.weights[0], biases[1] = rows.weights[1];
    if (step < n) {
      if (step > 0 && up.entry != down.entry) find_rows(up.entry);
      float sum[4] = {};
#pragma unroll 1
      for (int c = 0; c < stream.n_up; c++) {
        const unsigned char *const slot = stream.wait();
        const int first = c * (kChunkTiles * S::kTileBlocks / S::kBlockTiles);
        const float *const sums[2] = {rows.sums[0] + first, rows.sums[1] + first};
        S::multiply_tiles(slot, lane, share.tiles.n - c * kChunkTiles, rows.x + c * (kChunkTiles * 128), sums,
                          sum);
        stream.go_on();
      }
      send_sums(sum, peer_sums, peer_full, turn);
    } else {
      for (int c = 0; c < stream.n_up; c++) stream.go_on(); /* there are no more items */
    }
    if (step > 0) {
      barrier_wait(g_full + (turn ^ 1), (step - 1) / 2 % 2);
#pragma unroll 1
      for (int c = 0; c < stream.n_down; c++) {
        const unsigned char *const slot = stream.wait();
#pragma unroll
        for (int k = 0; k < S::kDownChunks; k++)
          if (k == c)
            S::multiply_rows(slot, lane, share.rows.n - c * kChunkTiles, g_at + (turn ^ 1) * kGBytes,
                             y + k * kChunkTiles);
        stream.go_on();
      }
      if (step == n || up.entry != down.entry) {
        store_part<S>(a, list, down, share.rows, biases, y);
        begins = true;
      }
    } else {
      for (int c = 0; c < stream.n_down; c++) stream.go_on(); /* there is nothing of down yet */
    }
    if (step < n) {
      RowEnds ends = {};
      if (warp < slice_rows)
        ends =
            RowEnds::of<S>(a.gate_up, (long)up.expert * a.gate_up.tile_rows + up.slice * slice_rows + warp);
      barrier_wait(sums_full + turn, phase);
      if (warp < slice_rows) make_g(a, rows, ends, warp, m.sums + turn * kSumsBytes, m.g + turn * kGBytes);
      __syncwarp();
      if (lane == 0) barrier_arrive(g_full + turn);
      if (threadIdx.x == 0) barrier_expect(sums_full + turn, kSumsBytes);
      if (up.slice == 0 && rank == 0 && warp == kWarps - 1)
        note_parts(a, work, list.entries[up.entry], up.entry, rows.choice, (int)blockIdx.x / kBlocks);
    }
    down = up, up.move(a, list);
    if (step == n - 1) dependents_may_start(); /* if called earlier, a decode step is 6% slower */
  }
}

#endif

template <class S> __global__ void __launch_bounds__(kThreads, 1) kernel(const __grid_constant__ Args a) {
#if __CUDA_ARCH__ >= 900
  extern __shared__ __align__(128) unsigned char shared[];
  __shared__ List list;
  __shared__ uint64_t sums_full[2], g_full[2]; /* items use [0] and [1] in turn */
  static_assert(kThreads >= kMostChoices, "a thread a choice");
  const int thread = (int)threadIdx.x;
  const bool chooses = thread < a.n_choices;
  int id = 0;
  float weight = 0;
  if (chooses) id = (int)load_past_l1(a.ids + thread), weight = __ldcg(a.weights + thread);
  if (thread == 0) {
    for (int i = 0; i < 2; i++) barrier_init(sums_full + i, 1), barrier_init(g_full + i, kWarps);
    barrier_init_fence();
    for (int i = 0; i < 2; i++) barrier_expect(sums_full + i, kSumsBytes);
  }
  cluster_arrive_relaxed(); /* barrier_init_fence() publishes the barriers */
  list.clear(a.n_experts);
  const int warp = thread / 32, rank = cluster_rank();
  const Memory<S> m(a, shared, rank);
  m.request_h(a);
  const Share share(a, rank, warp, S::kBlockTiles);
  Stream<S> stream(a, list, share, shared + warp * (S::kDepth * S::kBytes));
  __syncthreads();
  if (chooses) list.add(id, weight, thread / a.n_chosen);
  __syncthreads();
  list.make_entries(a.n_experts, a.n_tokens);
  __syncthreads();
  const Work work(a, list, (int)blockIdx.x / kBlocks);
  const Item first(a, list, min(work.begin, work.n_items - 1));
  stream.begin(first, work.n);
  copy_async_wait<S::kDepth>(); /* h */
  __syncthreads();
  if (S::kIntegers) {
    sum_blocks<S>(m.h, m.h_row_bytes, a.n_tokens, m.n_blocks, m.h_sums);
    __syncthreads();
  }
  cluster_wait();
  multiply_items<S>(a, list, work, share, m, stream, sums_full, g_full, first);
#endif
}

Matrices matrices_of(const DeviceLinear &w) {
  return {quant_view(w), w.n_out / w.n_experts / kTileOut, w.bias, w.factors};
}

/* Calls work() with a value of the Shape for these matrices. */
template <class Work> auto with_shape(const DeviceLinear &up, int hidden, Work work) {
  const auto of_slot = [&](auto slot) {
    typedef decltype(slot) S;
    return hidden <= kChunkOut       ? work(Shape<S, 1>())
           : hidden <= 2 * kChunkOut ? work(Shape<S, 2>())
                                     : work(Shape<S, 4>());
  };
  return with_weights(up.type, [&](auto w) {
    typedef decltype(w) W;
    if constexpr (W::kAlwaysScaled) {
      return of_slot(Slot<W, kTileIn>());
    } else {
      if (up.group == 128) return of_slot(Slot<W, 128>());
      if constexpr (W::kLeastBlockIn == 32)
        if (up.group == 32) return of_slot(Slot<W, 32>());
      return of_slot(Slot<W, 64>());
    }
  });
}

/* Dynamic shared memory of the kernel: rings, sums, g, h and the sums of h. */
template <class S> size_t shared_bytes(int n_in, bool gated, int n_tokens) {
  const int tiles = std::max(tiles_of_block(n_in, gated, S::kBlockTiles, 0).n,
                             tiles_of_block(n_in, gated, S::kBlockTiles, 1).n);
  const int h_sums = S::kIntegers ? tiles * S::kTileBlocks / S::kBlockTiles * 4 : 0;
  return S::kSharedBytes + (size_t)n_tokens * (size_t)(tiles * 128 + 16 + h_sums);
}

/* True if the kernel multiplies such a matrix. */
bool takes(const DeviceLinear &w) {
  const bool fp4 = w.type == WEIGHT_FP4, fp8 = w.type == WEIGHT_FP8;
  if (!fp4 && !fp8 && w.type != WEIGHT_AWQ4 && w.type != WEIGHT_AWQ8) return false;
  return w.n_in % kTileIn == 0 && (fp4 || w.group == 128 || w.group == 64 || (!fp8 && w.group == 32)) &&
         (fp4 || w.n_in % w.group == 0);
}

} // namespace

int experts_few_parts(int n_choices) {
  return (std::min(n_choices, kMostChoices) + EXPERTS_FEW_CLUSTERS) * kRows;
}

bool experts_few_takes(const DeviceLinear *gate_up, const DeviceLinear *down, const DeviceLimits *device,
                       int n_tokens) {
  if (n_tokens <= 1 || n_tokens > EXPERTS_FEW_TOKENS || gate_up->n_chosen > kMaxChosen ||
      n_tokens * gate_up->n_chosen > EXPERTS_FEW_CHOICES || device->arch < SM(9, 0) ||
      gate_up->n_experts > EXPERTS_FEW_EXPERTS || !takes(*gate_up) || !takes(*down) ||
      gate_up->type != down->type || gate_up->group != down->group)
    return false;
  const int hidden = down->n_out / down->n_experts;
  return hidden <= 4 * kChunkOut && hidden % 4 == 0 && with_shape(*gate_up, hidden, [&](auto s) {
           return shared_bytes<decltype(s)>(gate_up->n_in, gate_up->interleaved, n_tokens) + sizeof(List) +
                      kBarrierBytes <=
                  device->shared_bytes;
         });
}

Status experts_few(const FewExperts *call, const DeviceLimits *device, cudaStream_t stream, Error *err) {
  const DeviceLinear &up = *call->gate_up, &down = *call->down;
  const int n_out = down.n_out / down.n_experts, n_slices = down.n_in / kSlice,
            n_clusters = std::min(device->n_sms / kBlocks, (int)EXPERTS_FEW_CLUSTERS);
  const Args a = {matrices_of(up),
                  matrices_of(down),
                  call->choices.ids,
                  call->choices.weights,
                  (const __half *)call->h,
                  call->h_stride,
                  call->n_tokens,
                  call->parts,
                  n_out,
                  call->choices.places,
                  call->choices.choices,
                  call->n_tokens * up.n_chosen,
                  up.n_chosen,
                  n_slices,
                  up.n_experts,
                  rounded_inverse(n_slices),
                  rounded_inverse(n_clusters),
                  call->activation,
                  call->limit,
                  up.interleaved};
  /* The first kernel is an ordinary launch: a programmatic dependent launch was slower (LOG.md, "Experts of 2
   * to 32 tokens"). It starts after the previous kernel has ended, so it has no wait_for_previous(). */
  TRY(with_shape(up, n_out, [&](auto s) {
    typedef decltype(s) S;
    cudaLaunchAttribute attributes[2] = {cluster_attribute(kBlocks)};
    return launch_with(attributes, 1, kernel<S>, dim3((unsigned)(n_clusters * kBlocks)), kThreads,
                       shared_bytes<S>(up.n_in, up.interleaved, call->n_tokens), stream, false,
                       "experts of few tokens", err, a);
  }));
  return few::sum_parts(*call, n_out, stream, err);
}
