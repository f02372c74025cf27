/* weight_stage.cuh - copies the weights, scales and zeros of one stage to shared memory, by the whole block.
 *
 *   [kTileRows][kK tiles][512 or 1024 bytes]   then   [kTileRows][kGroups][48 bytes]: 16 scales and zeros
 *
 * A thread copies the same place of every kThreads / kRun-th tile row in every stage, so its source is one
 * pointer that advances. Tile rows past the matrix become zero. PRECOND  kThreads % kRun == 0; n_tiles_in %
 * kK == 0 (it is even, kK is 1 or 2). */
#ifndef AUK_CUDA_LINEAR_WEIGHT_STAGE_CUH
#define AUK_CUDA_LINEAR_WEIGHT_STAGE_CUH

#include "cuda/linear/layout.cuh"

constexpr int kMetaBytes = 48;

template <class W_, int kTileRows, int kK, int F, int kThreads> struct WeightStage {
  typedef W_ W;
  static constexpr int kRun = kK * 32 * W::kVectors; /* vectors of a tile row */
  static constexpr int kGroups = kK * kTileIn / F, kPieces = kTileRows * kGroups * 3;
  static constexpr int kTileBytes = kTileRows * kRun * 16;
  static constexpr int kBytes = (kTileBytes + kTileRows * kGroups * kMetaBytes + 127) / 128 * 128;
  static constexpr int kEach = kTileRows * kRun / kThreads, kRowStep = kThreads / kRun;
  static_assert(kThreads % kRun == 0 && kTileRows * kRun % kThreads == 0, "whole vectors a thread");

  const uint4 *from;
  size_t stride; /* vectors between the tile rows of a thread */
  int n_inside;  /* how many of its kEach tile rows exist */
  int tile_row0, tile_in;

  __device__ __forceinline__ void start(const QuantView &w, int first_tile_row, int first_tile_in) {
    int row = first_tile_row + threadIdx.x / kRun;
    size_t row_vectors = (size_t)w.n_tiles_in * 32 * W::kVectors;
    tile_row0 = first_tile_row;
    tile_in = first_tile_in;
    from = w.tiles + row * row_vectors + (size_t)first_tile_in * 32 * W::kVectors + threadIdx.x % kRun;
    stride = row_vectors * kRowStep;
    n_inside = (w.n_tiles_out - row + kRowStep - 1) / kRowStep;
  }

  __device__ __forceinline__ void load(const QuantView &w, unsigned char *to) {
#pragma unroll
    for (int i = 0; i < kEach; i++)
      copy_async_16(to + (threadIdx.x + i * kThreads) * 16, i < n_inside ? from + i * stride : w.tiles,
                    i < n_inside ? 16 : 0);
#pragma unroll
    for (int c = threadIdx.x; c < kPieces; c += kThreads) {
      int row = c / (kGroups * 3), f = c / 3 % kGroups, piece = c % 3;
      int at = min(tile_row0 + row, w.n_tiles_out - 1) * w.n_groups + group_of(w, tile_in * kTileIn + f * F);
      unsigned char *meta = to + kTileBytes + (row * kGroups + f) * kMetaBytes;
      if (piece < 2)
        copy_async_16(meta + 16 * piece, w.scales + (size_t)at * 8 + 4 * piece, 16);
      else if (W::kBits == 4)
        copy_async_8(meta + 32, (const unsigned char *)w.zeros + (size_t)at * 8);
      else
        copy_async_16(meta + 32, (const unsigned char *)w.zeros + (size_t)at * 16, 16);
    }
    from += kRun;
    tile_in += kK;
  }

  /* The lane's vectors of tile kk of a tile row. */
  static __device__ __forceinline__ void vectors(const unsigned char *stage, int row, int kk, int lane,
                                                 uint4 (&v)[W::kVectors]) {
#pragma unroll
    for (int i = 0; i < W::kVectors; i++)
      v[i] = *(const uint4 *)(stage + ((row * kK + kk) * W::kVectors + i) * 512 + lane * 16);
  }

  /* Scales and zeros of rows g and g + 8 in group f of the stage. */
  static __device__ __forceinline__ void group(const unsigned char *stage, int row, int f, int g,
                                               uint32_t *scale, uint32_t *zero) {
    const unsigned char *meta = stage + kTileBytes + (row * kGroups + f) * kMetaBytes;
    *scale = *(const uint32_t *)(meta + 4 * g);
    *zero = *(const typename W::Zero *)(meta + 32 + sizeof(typename W::Zero) * g);
  }
};

#endif
