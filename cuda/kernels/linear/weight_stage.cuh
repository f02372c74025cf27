/* weight_stage.cuh - copies one stage to shared memory. WeightStage copies weights, scales and zeros by the
 * whole block, copy_groups() only scales and zeros by one warp.
 *
 *   [kTileRows][kK tiles][512 or 1024 bytes]   then   [kTileRows][kGroups][W::kMetaBytes] scales, zeros
 *
 * A thread copies the same vector of every kThreads / kRowVectors-th tile row in every stage, so its source
 * is one pointer that advances. Past the matrix its last tile row is read again.
 * PRECOND  kThreads % kRowVectors == 0; n_tiles_in % kK == 0 (it is even, kK is 1 or 2). */
#pragma once

#include "cuda/kernels/linear/layout.cuh"

/* Starts copy `i` of the scales and zeros of a tile row for the inputs that share a scale with input k. Past
 * the matrix the last tile row is read again. */
template <class W>
__device__ __forceinline__ void copy_meta(const QuantView &w, int tile_row, int k, int i, unsigned char *to) {
  W::copy_meta(w, min(tile_row, w.n_tiles_out - 1), k, i, to);
}

/* copy_groups() of only scales or only zeros. all: the whole matrix's scales or zeros. For each tile row and
 * each block of kBlockIn inputs there are kCopies copies of kBytes. */
template <class W, int kTileRows, int kGroups, int kBlockIn, int kCopies, int kBytes>
__device__ __forceinline__ void copy_pieces(const QuantView &w, const void *all, int row, int last, int k,
                                            unsigned char *to) {
  constexpr int kOfRow = kGroups * kCopies, kRows = 32 / kOfRow; /* tile rows of 32 copies */
  static_assert(32 % kOfRow == 0, "whole tile rows");
  const int lane = threadIdx.x % 32, own = lane / kOfRow, group = lane / kCopies % kGroups,
            piece = lane % kCopies * kBytes;
  const unsigned row_bytes = W::n_blocks(w) * (kCopies * kBytes);
  const auto *from =
      (const unsigned char *)all + W::block_of(w, k + group * kBlockIn) * (kCopies * kBytes) + piece;
  to += (own * kGroups + group) * W::kMetaBytes + piece;
#pragma unroll
  for (int i = own; i < own + kTileRows; i += kRows, to += kRows * kGroups * W::kMetaBytes) {
    const auto *const of_row = from + (size_t)(unsigned)min(row + i, last) * row_bytes;
    if (kTileRows % kRows && i >= kTileRows) continue;
    if constexpr (kBytes == 8)
      copy_async_8(to, of_row);
    else
      copy_async_16(to, of_row, 16);
  }
}

/* A warp starts the copies of scales and zeros of kTileRows tile rows from `row` on, for kGroups blocks of
 * kBlockIn inputs from k on. Past tile row `last`, `last` is read again. The addresses of a lane's copies
 * differ only in the tile row; all else is computed once. When each copy computed its whole address, the
 * scales of groups of 32 inputs arrived later than the weights. */
template <class W, int kTileRows, int kGroups, int kBlockIn>
__device__ __forceinline__ void copy_groups(const QuantView &w, int row, int last, int k, unsigned char *to) {
  copy_pieces<W, kTileRows, kGroups, kBlockIn, W::kScaleBytes / 16, 16>(w, w.scales, row, last, k, to);
  if constexpr (W::kMetaBytes > W::kScaleBytes)
    copy_pieces<W, kTileRows, kGroups, kBlockIn, 1, 2 * W::kBits>(w, w.zeros, row, last, k,
                                                                  to + W::kScaleBytes);
}

template <class W_, int kTileRows, int kK, int kBlockIn, int kThreads> struct WeightStage {
  typedef W_ W;
  static constexpr int kRowVectors = kK * 32 * W::kVectors; /* of a tile row in a stage */
  static constexpr int kMetaBytes = W::kMetaBytes, kMetaCopies = W::kMetaCopies;
  static constexpr int kGroups = kK * kTileIn / kBlockIn, kCopies = kTileRows * kGroups * kMetaCopies;
  static constexpr int kTileBytes = kTileRows * kRowVectors * 16;
  static constexpr int kBytes = (kTileBytes + kTileRows * kGroups * kMetaBytes + 127) / 128 * 128;
  static constexpr int kThreadRows = kTileRows * kRowVectors / kThreads, kRowStep = kThreads / kRowVectors;
  static_assert(kThreads % kRowVectors == 0 && kTileRows * kRowVectors % kThreads == 0,
                "whole vectors a thread");

  const uint4 *from;          /* the thread's vector of tile row 0 */
  uint32_t rows[kThreadRows]; /* distance, in vectors, from `from` to each tile row of the thread */
  int tile_row0, tile_in;

  __device__ __forceinline__ void start(const QuantView &w, int first_tile_row, int first_tile_in) {
    const int vector = threadIdx.x % kRowVectors;
    tile_row0 = first_tile_row;
    tile_in = first_tile_in;
    from = w.tiles + (size_t)first_tile_in * 32 * W::kVectors + vector;
#pragma unroll
    for (int i = 0; i < kThreadRows; i++)
      rows[i] =
          (uint32_t)min(first_tile_row + (int)threadIdx.x / kRowVectors + i * kRowStep, w.n_tiles_out - 1) *
          (uint32_t)(w.n_tiles_in * 32 * W::kVectors);
  }

  __device__ __forceinline__ void load(const QuantView &w, unsigned char *to) {
#pragma unroll
    for (int i = 0; i < kThreadRows; i++)
      copy_async_16(to + (threadIdx.x + i * kThreads) * 16, from + rows[i], 16);
#pragma unroll
    for (int c = threadIdx.x; c < kCopies; c += kThreads) {
      int tile_row = c / (kGroups * kMetaCopies), f = c / kMetaCopies % kGroups;
      copy_meta<W>(w, tile_row0 + tile_row, tile_in * kTileIn + f * kBlockIn, c % kMetaCopies,
                   to + kTileBytes + (tile_row * kGroups + f) * kMetaBytes);
    }
    from += kRowVectors;
    tile_in += kK;
  }

  /* The lane's vectors of tile kk of a tile row. */
  static __device__ __forceinline__ void vectors(const unsigned char *stage, int tile_row, int kk, int lane,
                                                 uint4 (&v)[W::kVectors]) {
#pragma unroll
    for (int i = 0; i < W::kVectors; i++)
      v[i] = *(const uint4 *)(stage + ((tile_row * kK + kk) * W::kVectors + i) * 512 + lane * 16);
  }

  static __device__ __forceinline__ typename W::Meta meta(const unsigned char *stage, int tile_row, int f,
                                                          int g) {
    return W::staged_meta(stage + kTileBytes + (tile_row * kGroups + f) * kMetaBytes, g);
  }

  /* Integers: scales and zeros of rows g and g + 8 of a tile row, g < 8, in group f of the stage. */
  static __device__ __forceinline__ void group(const unsigned char *stage, int tile_row, int f, int g,
                                               uint32_t *scale, uint32_t *zero) {
    const unsigned char *meta = stage + kTileBytes + (tile_row * kGroups + f) * kMetaBytes;
    *scale = *(const uint32_t *)(meta + 4 * g);
    *zero = *(const typename W::Zero *)(meta + 32 + sizeof(typename W::Zero) * g);
  }
};
