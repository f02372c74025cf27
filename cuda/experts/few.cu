/* few.cu - the experts of a few tokens as one kernel: gate and up, the activation, down.
 *
 * g[choice][k] = weight * activation(gate, up) of h[token],   y[choice][o] = sum_k down[e][o][k] g[choice][k]
 *
 * With few tokens an expert has one or two rows, and all that counts is that its weights stream. Two kernels
 * for gate and up and for down would each begin with empty pipes and end with idle SMs. Here the tile rows
 * (16 outputs) of all chosen experts' gate and up, then those of their downs, are one sequence of items,
 * which the warps of the grid take by turns. A warp multiplies a whole tile row by up to kRows rows of x,
 * from a ring of its own:
 *
 *   slot   a chunk of 256 inputs: weights [4 tiles], scales, zeros (layout.cuh), x [kRows][528 bytes]
 *
 * It requests chunks ahead across the ends of items, so its stream of weights never stops. There is no
 * barrier: before the rows of g for an item of down are requested, `counters` must say that all items of gate
 * and up of its expert are done. Chunks are multiplied in order, so a warp that waits has no unfinished item
 * of gate and up, and the wait ends.
 *
 * A warp has few instructions for each weight. So the addresses of copies are kept from chunk to chunk, and
 * integers are multiplied as fp16 subnormals, five operations for eight weights of a lane. A second mma, with
 * ones in place of weights, gives the sums of x by which zero points are multiplied:
 *
 *     sum_i (q[i] - z) s x[i] = s (sum_i q[i] x[i] - z sum_i x[i])   over each group
 *
 * All blocks must run at once, as they do by launch_resident() from 9.0 on.
 * PRECOND  experts_few_takes().   READS  each chosen expert's weights once for kRows of its rows. */
#include <algorithm>

#include "cuda/experts/experts.h"
#include "cuda/linear/kernel.cuh"
#include "cuda/ptx/counter.cuh"

namespace {

constexpr int kMostWarps = 16, kRows = 8, kDepth = 2;
constexpr int kChunkTiles = 4, kChunkIn = kChunkTiles * kTileIn;
constexpr int kXRowBytes = kChunkIn * 2 + 16; /* rows of x in different banks */
constexpr int kMostChoices = EXPERTS_FEW_CHOICES;

/* The matrices of all experts, one below the other. */
struct Matrices {
  QuantView w;
  int tile_rows, n_chunks; /* of an expert; of a tile row */
  const float *bias, *factors;
};

struct Args {
  Matrices gate_up, down;
  const int *ids;
  const float *weights;
  const __half *h;
  __half *g;
  float *y;
  int h_stride, g_stride, y_stride;
  int n_choices, n_chosen;
  unsigned *counters; /* [n_choices] finished items of gate and up of an entry, then blocks that have ended */
  Activation activation;
  bool gated;
};

/* Up to kRows rows of one expert: choices [first, first + n) of the list. */
struct Entry {
  int expert, first, n;
};

/* The chosen experts in order, in shared memory. */
struct List {
  int ids[kMostChoices];              /* the expert of each choice */
  float weights[kMostChoices];        /* its weight */
  unsigned short order[kMostChoices]; /* choices by experts, then by tokens */
  bool begins[kMostChoices];          /* an entry begins at this place of the order */
  Entry entries[kMostChoices];
  int n_entries;

  /* For all threads of the block. */
  __device__ __forceinline__ void fill(const Args &a) {
    const int n = a.n_choices;
    for (int i = threadIdx.x; i < n; i += blockDim.x)
      ids[i] = (int)load_past_l1(a.ids + i), weights[i] = __ldcg(a.weights + i);
    __syncthreads();
    for (int i = threadIdx.x; i < n; i += blockDim.x) {
      const int own = ids[i];
      /* Choices before this one in the order, and those of the same expert among them. */
      int before = 0, of_expert = 0;
#pragma unroll 4
      for (int j = 0; j < n; j++) {
        const bool same = ids[j] == own && j < i;
        before += ids[j] < own || same, of_expert += same;
      }
      order[before] = (unsigned short)i;
      begins[before] = of_expert % kRows == 0;
    }
    __syncthreads();
    for (int i = threadIdx.x; i < n; i += blockDim.x) {
      int entry = 0, end = i + 1;
#pragma unroll 4
      for (int j = 0; j < i; j++) entry += begins[j];
      while (end < n && !begins[end]) end++;
      if (begins[i]) entries[entry] = {ids[order[i]], i, end - i};
      if (i == n - 1) n_entries = entry + begins[i];
    }
    __syncthreads();
  }
};

/* A tile row of an entry's expert. */
struct Item {
  Entry of;
  int entry, row, n_chunks; /* row: within the expert */
  bool is_down;

  __device__ __forceinline__ const Matrices &matrices(const Args &a) const {
    return is_down ? a.down : a.gate_up;
  }
};

__device__ __forceinline__ Item item_at(const Args &a, const List &list, int at) {
  const int n_up = list.n_entries * a.gate_up.tile_rows;
  Item item;
  item.is_down = at >= n_up;
  if (item.is_down) at -= n_up;
  const Matrices &m = item.matrices(a);
  item.entry = at / m.tile_rows, item.row = at % m.tile_rows, item.n_chunks = m.n_chunks;
  item.of = list.entries[min(item.entry, list.n_entries - 1)];
  return item;
}

/* A slot of the ring, and what a warp does with it. */
template <class W_, int kBlockIn_> struct Slot {
  typedef W_ W;
  static constexpr bool kIntegers = W::kLeastBlockIn == 32, kFp4 = W::kAlwaysScaled;
  static constexpr int kBlockIn = kBlockIn_, kBlocks = kChunkIn / kBlockIn; /* inputs that share a scale */
  static constexpr int kTileBytes = 512 * W::kVectors, kWeightBytes = kChunkTiles * kTileBytes;
  static constexpr int kScaleBytes = kFp4 ? W::kMetaBytes : 32, /* of a block */
      kZeroBytes = kIntegers ? 8 * W::kBits / 4 : 0;
  static constexpr int kScalesAt = kWeightBytes, kZerosAt = kScalesAt + kBlocks * kScaleBytes;
  static constexpr int kScaleCopies = kBlocks * kScaleBytes / 16; /* lanes that copy 16 bytes of them */
  static constexpr int kXAt = kZerosAt + (kBlocks * kZeroBytes + 15) / 16 * 16;
  static constexpr int kBytes = kXAt + kRows * kXRowBytes;
  static_assert(kXAt % 16 == 0 && kScaleCopies + (kIntegers ? kBlocks : 0) <= 32,
                "copies of 16 bytes, one a lane");

  /* A lane's part of the copies of weights, scales and zeros of an item's chunks. */
  struct Weights {
    const uint4 *tiles;                /* of the chunk's first tile */
    const unsigned char *meta;         /* 16 bytes of scales or zeros, or 8 of zeros */
    int meta_to, meta_step, meta_left; /* meta_left: chunks that have the lane's */
    int tiles_left;

    __device__ __forceinline__ void start(const Args &a, const Item &item) {
      const Matrices &m = item.matrices(a);
      const int lane = threadIdx.x % 32, tile_row = item.of.expert * m.tile_rows + item.row;
      tiles = m.w.tiles + (size_t)tile_row * m.w.n_tiles_in * (32 * W::kVectors) + lane;
      tiles_left = m.w.n_in / kTileIn;
      const int of_zeros = lane - kScaleCopies, block = of_zeros < 0 ? lane * 16 / kScaleBytes : of_zeros;
      const size_t first =
          (size_t)tile_row * (kFp4 ? m.w.n_tiles_in : m.w.n_groups); /* block of the tile row */
      meta_left = (m.w.n_in / kBlockIn - block + kBlocks - 1) / kBlocks;
      if (of_zeros < 0) {
        meta = (const unsigned char *)m.w.scales + first * kScaleBytes + lane * 16;
        meta_to = kScalesAt + lane * 16, meta_step = kBlocks * kScaleBytes;
      } else {
        meta = (const unsigned char *)m.w.zeros + (first + block) * kZeroBytes;
        meta_to = kZerosAt + block * kZeroBytes, meta_step = kBlocks * kZeroBytes;
        if (!kIntegers || of_zeros >= kBlocks) meta_left = 0;
      }
    }

    /* Requests those of the next chunk. */
    __device__ __forceinline__ void request(unsigned char *slot) {
      const int lane = threadIdx.x % 32;
#pragma unroll
      for (int i = 0; i < kChunkTiles * W::kVectors; i++)
        if (i < tiles_left * W::kVectors) copy_async_16(slot + (32 * i + lane) * 16, tiles + 32 * i, 16);
      tiles += 32 * kChunkTiles * W::kVectors, tiles_left -= kChunkTiles;
      if (meta_left > 0) {
        if (kZeroBytes != 8 || lane < kScaleCopies)
          copy_async_16(slot + meta_to, meta, 16);
        else
          copy_async_8(slot + meta_to, meta);
      }
      meta += meta_step, meta_left--;
    }
  };

  /* The same of the item's rows of x. */
  struct Rows {
    const unsigned char *x; /* the first row of h or g, at the lane's inputs */
    unsigned row;           /* lane r: offset of row r */
    int inputs_left;        /* from the lane's on */

    __device__ __forceinline__ void start(const Args &a, const List &list, const Item &item) {
      const int lane = threadIdx.x % 32, choice = list.order[item.of.first + min(lane, item.of.n - 1)];
      row = 2 * (item.is_down ? choice * a.g_stride : choice / a.n_chosen * a.h_stride);
      x = (const unsigned char *)(item.is_down ? a.g : a.h) + lane * 16;
      inputs_left = item.matrices(a).w.n_in - lane * 8;
    }

    /* Requests the next chunk of n rows. For all lanes of a warp. */
    __device__ __forceinline__ void request(int n, unsigned char *slot) {
      unsigned char *to = slot + kXAt + threadIdx.x % 32 * 16;
#pragma unroll 1
      for (int r = 0; r < n; r++, to += kXRowBytes) {
        const unsigned at = __shfl_sync(~0u, row, r);
        if (inputs_left > 0) copy_async_16(to, x + at, 16);
      }
      x += 2 * kChunkIn, inputs_left -= kChunkIn;
    }
  };

  /* y += the products of n_tiles tiles of the slot, for rows g and g + 8 by rows 2 t and 2 t + 1 of x, as mma
   * has them; integers without powers of two (scale_of_row()). Rows of x that the item does not have are
   * numbers of any kind, and so are their sums. */
  static __device__ __forceinline__ void multiply(const unsigned char *slot, int n_tiles, float (&y)[4]) {
    constexpr int kBlockTiles =
                      kBlockIn > kTileIn ? kBlockIn / kTileIn : 1, /* that are multiplied together */
        kTileBlocks = kBlockIn < kTileIn ? kTileIn / kBlockIn : 1, kSteps = kFp4 ? 4 : kBlockIn / 16;
    const int lane = threadIdx.x % 32;
    const uint32_t x = shared_address(slot) + kXAt + lane % kRows * kXRowBytes + lane / 8 * 16;
    const uint32_t ones[4] = {0x3c003c00u, 0x3c003c00u, 0x3c003c00u, 0x3c003c00u};
#pragma unroll
    for (int tile0 = 0; tile0 < kChunkTiles; tile0 += kBlockTiles) {
      if (tile0 >= n_tiles) break;
      uint4 v[kBlockTiles][W::kVectors];
      uint32_t b[kBlockTiles][8];
#pragma unroll
      for (int i = 0; i < kBlockTiles; i++) {
#pragma unroll
        for (int j = 0; j < W::kVectors; j++)
          v[i][j] = *(const uint4 *)(slot + (tile0 + i) * kTileBytes + j * 512 + lane * 16);
#pragma unroll
        for (int half = 0; half < 2; half++)
          ldmatrix_x4(reinterpret_cast<uint32_t(&)[4]>(b[i][4 * half]), x + (tile0 + i) * 128 + half * 64);
      }
#pragma unroll
      for (int f = 0; f < kTileBlocks; f++) {
        const int block = kFp4 ? tile0 : tile0 * kTileIn / kBlockIn + f;
        float sum[4] = {}, of_x[4] = {};
#pragma unroll
        for (int k = f * kSteps; k < (f + 1) * kSteps; k++) {
          const int i = k / 4, j = k % 4;
          uint32_t q[4];
          if constexpr (kFp4)
            W::template operand<true>(v[i], j,
                                      W::staged_meta(slot + kScalesAt + block * kScaleBytes, lane / 4), q);
          else
            W::numbers(v[i], j, q);
          mma_f16_m16n8k16(sum, q, b[i][2 * j], b[i][2 * j + 1]);
          if (kIntegers) mma_f16_m16n8k16(of_x, ones, b[i][2 * j], b[i][2 * j + 1]);
        }
        if constexpr (kFp4) {
#pragma unroll
          for (int i = 0; i < 4; i++) y[i] += sum[i];
        } else {
          const uint32_t scale = *(const uint32_t *)(slot + kScalesAt + block * kScaleBytes + lane / 4 * 4);
          float zero[2] = {0, 0};
          if constexpr (kIntegers)
            W::small_zeros(((const typename W::Zero *)(slot + kZerosAt + block * kZeroBytes))[lane / 4],
                           zero);
#pragma unroll
          for (int i = 0; i < 4; i++)
            y[i] += (i < 2 ? f16_low(scale) : f16_high(scale)) * (sum[i] - zero[i / 2] * of_x[i % 2]);
        }
      }
    }
  }

  /* By which the sums of rows g and g + 8 are to be multiplied. */
  static __device__ __forceinline__ float scale_of_row(bool high) {
    return !kIntegers ? 1.0f : W::kBits == 4 && high ? 0x1p20f : 0x1p24f;
  }
};

__device__ __forceinline__ float activated(const Args &a, float gate, float up) {
  return a.activation == ACTIVATION_RELU ? fmaxf(gate, 0) * up : gated_product(a.activation, gate, up);
}

/* Stores an item's sums: of gate and up as g, of down as y. */
template <class S>
__device__ __forceinline__ void store(const Args &a, const List &list, const Item &item,
                                      const float (&sum)[4]) {
  const Matrices &m = item.matrices(a);
  const int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
  const size_t row = ((size_t)item.of.expert * m.tile_rows + item.row) * kTileOut + g;
  float by[2], plus[2];
#pragma unroll
  for (int h = 0; h < 2; h++) {
    by[h] = S::scale_of_row(h) * (m.factors ? m.factors[row + 8 * h] : 1.0f);
    plus[h] = m.bias ? m.bias[row + 8 * h] : 0.0f;
  }
#pragma unroll
  for (int i = 0; i < 2; i++) {
    if (2 * t + i >= item.of.n) continue;
    const int choice = list.order[item.of.first + 2 * t + i];
    const float weight = list.weights[choice], low = sum[i] * by[0], high = sum[2 + i] * by[1];
    if (item.is_down) { /* g has been multiplied by the weight, the bias has not */
      float *y = a.y + (size_t)choice * a.y_stride + item.row * kTileOut + g;
      y[0] = low + plus[0] * weight, y[8] = high + plus[1] * weight;
    } else {
      __half *to = a.g + (size_t)choice * a.g_stride + item.row * (a.gated ? 8 : kTileOut) + g;
      const float one = low + plus[0], two = high + plus[1];
      to[0] = clamp_half(activated(a, one, a.gated ? two : one) * weight);
      if (!a.gated) to[8] = clamp_half(activated(a, two, two) * weight);
    }
  }
}

/* True once all of g's rows of the entry are there. For all lanes of a warp. */
__device__ __forceinline__ bool is_ready(const Args &a, const Item &item) {
  unsigned done = 0;
  if (threadIdx.x % 32 == 0) done = load_acquire(a.counters + item.entry);
  done = __shfl_sync(~0u, done, 0);
  __syncwarp();
  return done >= (unsigned)a.gate_up.tile_rows;
}

/* The slot after this one. */
template <class S>
__device__ __forceinline__ unsigned char *next_slot(unsigned char *slot, unsigned char *ring) {
  return slot == ring + (kDepth - 1) * S::kBytes ? ring : slot + S::kBytes;
}

/* A chunk of a warp's items, which follow one another. */
template <class S> struct Cursor {
  Item item;
  int at, chunk;
  unsigned char *slot;

  __device__ __forceinline__ Cursor(const Args &a, const List &list, int first, unsigned char *ring)
      : item(item_at(a, list, first)), at(first), chunk(0), slot(ring) {}

  /* Moves to the next chunk. */
  __device__ __forceinline__ void move(const Args &a, const List &list, int stride, unsigned char *ring) {
    slot = next_slot<S>(slot, ring);
    if (++chunk < item.n_chunks) return;
    chunk = 0, at += stride;
    item = item_at(a, list, at);
  }
};

template <class S>
__global__ void __launch_bounds__(kMostWarps * 32, 1) kernel(const __grid_constant__ Args a) {
  extern __shared__ __align__(128) unsigned char shared[];
  __shared__ List list;
  __shared__ bool is_last;
  begin_overlapping();
  list.fill(a);
  const int warp = (int)threadIdx.x / 32, stride = (int)(gridDim.x * blockDim.x / 32);
  const int n_items = list.n_entries * (a.gate_up.tile_rows + a.down.tile_rows);
  unsigned char *const ring = shared + warp * (kDepth * S::kBytes);
  /* A chunk's weights are requested first, then its rows of x; at last it is multiplied. Usually weights and
   * rows are one group of copies. `together`: of how many of the latest chunks in a row they were. Only if
   * they were of all in the ring may the newest group stay in flight when the oldest chunk is multiplied. */
  Cursor<S> now(a, list, warp * gridDim.x + blockIdx.x, ring), of_rows = now, of_weights = now;
  int n_rows = 0, n_weights = 0, together = 0; /* chunks in the ring that have them */
  typename S::Weights weights;
  typename S::Rows rows;
  while (now.at < n_items) {
    float y[4] = {};
    const int n_tiles = now.item.matrices(a).w.n_in / kTileIn;
    for (int chunk = 0; chunk < now.item.n_chunks; chunk++) {
      for (;;) {
        const bool more = n_weights < kDepth && of_weights.at < n_items;
        if (more) {
          if (of_weights.chunk == 0) weights.start(a, of_weights.item);
          weights.request(of_weights.slot);
          n_weights++, of_weights.move(a, list, stride, ring);
        }
        const bool rows_too =
            n_rows < n_weights && (of_rows.chunk > 0 || !of_rows.item.is_down || is_ready(a, of_rows.item));
        if (rows_too) {
          if (of_rows.chunk == 0) rows.start(a, list, of_rows.item);
          rows.request(of_rows.item.of.n, of_rows.slot);
          n_rows++, of_rows.move(a, list, stride, ring);
        }
        copy_async_commit();
        together = more && rows_too && n_rows == n_weights ? together + 1 : 0;
        const bool full = n_weights == kDepth || of_weights.at >= n_items;
        if (full && n_rows > 0 && (n_rows == n_weights || !rows_too)) break;
        if (!more && !rows_too) __nanosleep(50);
      }
      if (n_rows == kDepth && together >= kDepth)
        copy_async_wait<kDepth - 1>();
      else
        copy_async_wait<0>();
      __syncwarp();
      S::multiply(now.slot, n_tiles - chunk * kChunkTiles, y);
      __syncwarp();
      n_rows--, n_weights--;
      now.slot = next_slot<S>(now.slot, ring);
    }
    store<S>(a, list, now.item, y);
    if (!now.item.is_down) {
      __syncwarp();
      if (threadIdx.x % 32 == 0) count_release(a.counters + now.item.entry);
    }
    now.at += stride;
    now.item = item_at(a, list, now.at);
  }
  __syncthreads();
  if (threadIdx.x == 0) is_last = count_up(a.counters + a.n_choices) == gridDim.x - 1;
  __syncthreads();
  if (is_last) /* no other block reads them any more */
    for (int i = threadIdx.x; i <= a.n_choices; i += blockDim.x) a.counters[i] = 0;
}

Matrices matrices_of(const DeviceLinear &w) {
  return {quant_view(w), w.n_out / w.n_experts / kTileOut, ceil_div(w.n_in, kChunkIn), w.bias, w.factors};
}

template <class S>
Status launch_slots(const Args &a, const DeviceLimits &device, cudaStream_t stream, Error *err) {
  const size_t rings = device.shared_bytes - sizeof(List) - 1024; /* what the block has beside them */
  const int warps = (int)std::min(rings / (kDepth * S::kBytes), (size_t)kMostWarps);
  return launch_resident(kernel<S>, dim3((unsigned)device.n_sms), warps * 32,
                         (size_t)(warps * kDepth * S::kBytes), stream, true, "experts of few tokens", err, a);
}

/* True if the kernel multiplies such a matrix. */
bool takes(const DeviceLinear &w) {
  const bool fp4 = w.type == WEIGHT_FP4, fp8 = w.type == WEIGHT_FP8;
  if (!fp4 && !fp8 && w.type != WEIGHT_AWQ4 && w.type != WEIGHT_AWQ8) return false;
  return w.n_in % kTileIn == 0 && (fp4 || w.group == 128 || w.group == 64 || (!fp8 && w.group == 32)) &&
         (fp4 || w.n_in % w.group == 0);
}

} // namespace

bool experts_few_takes(const DeviceLinear *gate_up, const DeviceLinear *down, const DeviceLimits *device,
                       int n_tokens) {
  return n_tokens > 1 && n_tokens <= EXPERTS_FEW_TOKENS &&
         n_tokens * gate_up->n_chosen <= EXPERTS_FEW_CHOICES && device->arch >= SM(9, 0) && takes(*gate_up) &&
         takes(*down) && gate_up->type == down->type && gate_up->group == down->group;
}

Status experts_few(const FewExperts *call, const DeviceLimits *device, cudaStream_t stream, Error *err) {
  const DeviceLinear &up = *call->gate_up;
  const Args a = {matrices_of(up),
                  matrices_of(*call->down),
                  call->choices.ids,
                  call->choices.weights,
                  (const __half *)call->h,
                  (__half *)call->g,
                  call->y,
                  call->h_stride,
                  call->g_stride,
                  call->y_stride,
                  call->n_tokens * up.n_chosen,
                  up.n_chosen,
                  call->choices.counters,
                  call->activation,
                  up.interleaved};
  return with_weights(up.type, [&](auto w) {
    typedef decltype(w) W;
    if constexpr (W::kAlwaysScaled) {
      return launch_slots<Slot<W, kTileIn>>(a, *device, stream, err);
    } else {
      if (up.group == 128) return launch_slots<Slot<W, 128>>(a, *device, stream, err);
      if constexpr (W::kLeastBlockIn == 32)
        if (up.group == 32) return launch_slots<Slot<W, 32>>(a, *device, stream, err);
      return launch_slots<Slot<W, 64>>(a, *device, stream, err);
    }
  });
}
