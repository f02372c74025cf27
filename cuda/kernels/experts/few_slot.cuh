/* few_slot.cuh - a chunk of an expert's weights in shared memory, for few.cu: the copies that bring it there,
 * and its products. */
#pragma once

#include "cuda/kernels/linear/kernel.cuh"

namespace few {

constexpr int kChunkTiles = 4;

/* A slot of a warp's ring, and what the warp does with it. */
template <class W_, int kBlockIn_> struct Slot {
  typedef W_ W;
  static constexpr bool kIntegers = W::kLeastBlockIn == 32, kFp4 = W::kAlwaysScaled;
  static constexpr int kBlockIn = kBlockIn_; /* inputs that share a scale: a `block` of this file */
  static constexpr int kTileBlocks = kBlockIn < kTileIn ? kTileIn / kBlockIn : 1,
                       kBlockTiles = kBlockIn > kTileIn ? kBlockIn / kTileIn : 1;
  static constexpr int kMostBlocks = kChunkTiles * kTileBlocks; /* of a chunk of down */
  static constexpr int kTileBytes = 512 * W::kVectors;
  static constexpr int kScaleBytes = kFp4 ? W::kMetaBytes : 32, /* of a block */
      kZeroBytes = kIntegers ? 8 * W::kBits / 4 : 0;
  static constexpr int kScalesAt = kChunkTiles * kTileBytes, kZerosAt = kScalesAt + kMostBlocks * kScaleBytes;
  static constexpr int kBytes = (kZerosAt + kMostBlocks * kZeroBytes + 15) / 16 * 16;
  static constexpr int kScaleLanes = kMostBlocks * kScaleBytes / 16; /* lanes that copy 16 bytes of scales */
  static_assert(kScaleLanes + (kIntegers ? kMostBlocks : 0) <= 32, "a copy a lane");

  /* A lane's index, and values that follow from it. They are opaque; else the compiler would compute them
   * again for each use. */
  struct Lane {
    int lane;
    int block;     /* the block of a chunk whose scales or zeros the lane copies; kMostBlocks or more: none */
    int meta;      /* where these scales or zeros lie in a slot, in bytes from the lane's first vector */
    bool of_zeros; /* the lane copies zeros */

    __device__ __forceinline__ Lane() : lane(opaque(threadIdx.x % 32)) {
      of_zeros = lane >= kScaleLanes;
      block = opaque(!of_zeros ? lane * 16 / kScaleBytes : kIntegers ? lane - kScaleLanes : kMostBlocks);
      meta = opaque((of_zeros ? kZerosAt + (lane - kScaleLanes) * kZeroBytes : kScalesAt + lane * 16) -
                    lane * 16);
    }
  };

  /* The copies of a lane from a matrix: kVectors times 16 bytes of each tile, and a piece of the scales or
   * zeros. */
  struct Copies {
    uint32_t tiles; /* offset, in uint4, of the lane's first vector from w.tiles; set() adds row and tile */
    const unsigned char *meta; /* the lane's first piece of scales or zeros, before set() adds row and tile */
    int bytes;                 /* of a block's scales or zeros */

    /* The warp's share (few.cu) begins at `tile` of `tile_row`. rows: true for down, whose
     * chunks have one tile of each tile row. */
    __device__ __forceinline__ Copies(const QuantView &w, const Lane &lane, int tile_row, int tile, bool rows)
        : tiles((uint32_t)((tile_row * w.n_tiles_in + tile) * (32 * W::kVectors) + lane.lane)),
          bytes(lane.of_zeros ? kZeroBytes : kScaleBytes) {
      const int b = lane.block, row = tile_row + (rows ? b / kTileBlocks : 0),
                first = tile * kTileBlocks / kBlockTiles + (rows ? b % kTileBlocks : b);
      meta = (const unsigned char *)(lane.of_zeros ? w.zeros : w.scales) + (size_t)row * row_bytes(w) +
             first * bytes + (lane.of_zeros ? 0 : lane.lane * 16 % kScaleBytes);
    }

    /* Bytes of a tile row's scales or zeros. */
    __device__ __forceinline__ int row_bytes(const QuantView &w) const {
      return (kFp4 ? w.n_tiles_in : w.n_groups) * bytes;
    }
  };

  /* Where the copies of a chunk begin: the lane's first vector of the first tile, and its piece of meta. */
  struct At {
    const uint4 *tiles;
    const unsigned char *meta;

    /* Goes to tile `tile` of the share, in the item whose tile rows begin with `row` of the matrix. */
    __device__ __forceinline__ void set(const QuantView &w, const Copies &of, int row, int tile) {
      tiles = w.tiles + (size_t)row * (uint32_t)(w.n_tiles_in * (32 * W::kVectors)) +
              (uint32_t)(of.tiles + tile * (32 * W::kVectors));
      meta = of.meta + (size_t)row * (uint32_t)of.row_bytes(w) + tile * kTileBlocks / kBlockTiles * of.bytes;
    }
    /* Requests the next kChunkTiles of n tiles of a tile row, or all n if they are fewer. Then goes on to the
     * tiles after them. to: the shared_address() of the lane's first vector. */
    __device__ __forceinline__ void request_tiles(const Copies &of, const Lane &lane, int n, uint32_t to) {
      if (n >= kChunkTiles) {
#pragma unroll
        for (int i = 0; i < kChunkTiles * W::kVectors; i++) copy_async_16(to + 512 * i, tiles + 32 * i);
      } else {
#pragma unroll 1
        for (int i = 0; i < n * W::kVectors; i++) copy_async_16(to + 512 * i, tiles + 32 * i);
      }
      request_meta(lane, (min(n, kChunkTiles) * kTileBlocks + kBlockTiles - 1) / kBlockTiles, to);
      tiles += 32 * kChunkTiles * W::kVectors, meta += kChunkTiles * kTileBlocks / kBlockTiles * of.bytes;
    }
    /* request_tiles() for one tile of each of n tile rows. */
    __device__ __forceinline__ void request_rows(const QuantView &w, const Copies &of, const Lane &lane,
                                                 int n, uint32_t to) {
      const int row_vectors = w.n_tiles_in * (32 * W::kVectors);
      const auto request_row = [&](int i) {
#pragma unroll
        for (int j = 0; j < W::kVectors; j++) copy_async_16(to + 512 * (i * W::kVectors + j), tiles + 32 * j);
        tiles += row_vectors;
      };
      request_meta(lane, min(n, kChunkTiles) * kTileBlocks, to);
      if (n >= kChunkTiles) {
#pragma unroll
        for (int i = 0; i < kChunkTiles; i++) request_row(i);
      } else {
#pragma unroll 1
        for (int i = 0; i < n; i++) request_row(i);
      }
      meta += kChunkTiles * of.row_bytes(w);
    }

  private:
    /* Requests the lane's piece of the scales or zeros, unless it belongs to block n or a later one. */
    __device__ __forceinline__ void request_meta(const Lane &lane, int n, uint32_t to) const {
      if (lane.block >= n) return;
      if (kZeroBytes == 8 && lane.of_zeros)
        copy_async_8(to + lane.meta, meta);
      else
        copy_async_16(to + lane.meta, meta);
    }
  };

  /* The rows of x as operand b: kTiles tiles at the shared_address() x. */
  template <int kTiles>
  static __device__ __forceinline__ void load_rows(uint32_t x, uint32_t (&b)[kTiles][8]) {
#pragma unroll
    for (int i = 0; i < kTiles; i++)
#pragma unroll
      for (int half = 0; half < 2; half++)
        ldmatrix_x4(reinterpret_cast<uint32_t(&)[4]>(b[i][4 * half]), x + i * 128 + half * 64);
  }

  /* y += rows g and g + 8 of kTiles tiles times rows 2 t and 2 t + 1 of x, as mma has them (g = lane / 4, t =
   * lane % 4). first_block: where the tiles' scales begin. Products of integers lack a power of two,
   * scale_of_row(). of_x(f, i): the sum of row 2 t + i of x over block f of the tile. */
  template <int kTiles, class OfX>
  static __device__ __forceinline__ void multiply(const unsigned char *slot, int lane, int tile,
                                                  int first_block, const uint32_t (&b)[kTiles][8], OfX of_x,
                                                  float (&y)[4]) {
    constexpr int kSteps = kFp4 || kBlockIn >= kTileIn ? 4 * kTiles : kBlockIn / 16;
    uint4 v[kTiles][W::kVectors];
#pragma unroll
    for (int i = 0; i < kTiles; i++)
#pragma unroll
      for (int j = 0; j < W::kVectors; j++)
        v[i][j] = *(const uint4 *)(slot + (tile + i) * kTileBytes + j * 512 + lane * 16);
#pragma unroll
    for (int f = 0; f < kTileBlocks; f++) {
      const int block = first_block + f;
      float sum[4] = {}, odd[4] = {}; /* two sums, so that fewer products wait for the one before */
#pragma unroll
      for (int k = f * kSteps; k < (f + 1) * kSteps; k++) {
        const int i = k / 4, j = k % 4;
        uint32_t q[4];
        if constexpr (kFp4)
          W::template operand<true>(v[i], j, W::staged_meta(slot + kScalesAt + block * kScaleBytes, lane / 4),
                                    q);
        else
          W::numbers(v[i], j, q);
        mma_f16_m16n8k16(kTiles > 1 && i % 2 ? odd : sum, q, b[i][2 * j], b[i][2 * j + 1]);
      }
#pragma unroll
      for (int i = 0; i < 4 && kTiles > 1; i++) sum[i] += odd[i];
      if constexpr (kFp4) {
#pragma unroll
        for (int i = 0; i < 4; i++) y[i] += sum[i];
      } else {
        const uint32_t scale = *(const uint32_t *)(slot + kScalesAt + block * kScaleBytes + lane / 4 * 4);
        float zero[2] = {0, 0};
        if constexpr (kIntegers)
          W::small_zeros(((const typename W::Zero *)(slot + kZerosAt + block * kZeroBytes))[lane / 4], zero);
#pragma unroll
        for (int i = 0; i < 4; i++)
          y[i] += (i < 2 ? f16_low(scale) : f16_high(scale)) *
                  (kIntegers ? sum[i] - zero[i / 2] * of_x(f, i % 2) : sum[i]);
      }
    }
  }

  /* y += the products of a chunk of gate and up by x. The chunk has kChunkTiles tiles, or n if n is less.
   * sums: rows 2 t and 2 t + 1 of x summed over each block of the chunk. */
  static __device__ __forceinline__ void multiply_tiles(const unsigned char *slot, int lane, int n,
                                                        uint32_t x, const float *const (&sums)[2],
                                                        float (&y)[4]) {
#pragma unroll
    for (int tile = 0; tile < kChunkTiles; tile += kBlockTiles) {
      if (tile >= n) break;
      uint32_t b[kBlockTiles][8];
      load_rows<kBlockTiles>(x + tile * 128, b);
      const int block = tile * kTileBlocks / kBlockTiles;
      multiply<kBlockTiles>(
          slot, lane, tile, block, b, [&](int f, int i) { return sums[i][block + f]; }, y);
    }
  }

  /* y[i] += the products of tile row i of a chunk of down by x. The chunk has kChunkTiles tile rows, or n if
   * n is less. They are multiplied in pairs: y[1] becomes meaningless if n is 1, and y[3] if n is 3. */
  static __device__ __forceinline__ void multiply_rows(const unsigned char *slot, int lane, int n, uint32_t x,
                                                       float (*y)[4]) {
    const uint32_t ones[4] = {0x3c003c00u, 0x3c003c00u, 0x3c003c00u, 0x3c003c00u};
    uint32_t b[1][8];
    load_rows<1>(x, b);
    float of_x[kTileBlocks][4] = {}; /* sums of x, by a product with ones */
#pragma unroll
    for (int j = 0; kIntegers && j < 4; j++)
      mma_f16_m16n8k16(of_x[j * kTileBlocks / 4], ones, b[0][2 * j], b[0][2 * j + 1]);
#pragma unroll
    for (int i = 0; i < kChunkTiles; i++) {
      if (i % 2 == 0 && i >= n) break;
      multiply<1>(
          slot, lane, i, i * kTileBlocks, b, [&](int f, int k) { return of_x[f][k]; }, y[i]);
    }
  }

  /* The factor that the sums of row g, or with `high` of row g + 8, still lack. */
  static __device__ __forceinline__ float scale_of_row(bool high) {
    return !kIntegers ? 1.0f : W::kBits == 4 && high ? 0x1p20f : 0x1p24f;
  }
};

} // namespace few
