/* maps.cuh - tensor maps of a call's x and weights, for wgmma and mma kernels alike, and the first token that
 * a tile loads. */
#pragma once

#include "cuda/kernels/linear/kernel.cuh"
#include "cuda/kernels/ptx/tensor_map.cuh"

/* Maps n_rows rows of x in boxes of box_rows rows of 64 inputs, swizzled as ldmatrix and wgmma read them. */
inline Status map_x(const LinearArgs &args, int n_rows, int box_rows, CUtensorMap *map, Error *err) {
  return map_boxes(args.x, {(cuuint64_t)args.w->n_in, (cuuint64_t)n_rows, 0},
                   {(cuuint64_t)args.x_stride * sizeof(__half), 0}, {kTileIn, (cuuint32_t)box_rows, 1},
                   CU_TENSOR_MAP_SWIZZLE_128B, args.w->name, map, err);
}

/* First token of a tile. The last tile ends with the last token and repeats some tokens of the tile before:
 * a copy of tokens past the end takes longer (LOG.md, "Copies past the last row"). */
__device__ __forceinline__ int first_of_tile(int n_tokens, int token_tile, int tile_tokens) {
  return max(0, min(token_tile * tile_tokens, n_tokens - tile_tokens));
}

/* Maps the weights for tensor copies of boxes of tile_rows tile rows by n_tiles tiles. A tile is `vectors`
 * pieces of 512 bytes, 16 bytes a lane. */
inline Status map_tiles(const LinearArgs &args, int vectors, int n_tiles, int tile_rows, CUtensorMap *map,
                        Error *err) {
  const QuantView w = quant_view(*args.w);
  const cuuint64_t pieces = (cuuint64_t)(w.n_tiles_in * vectors); /* of 256 times two bytes */
  return map_boxes(w.tiles, {256, pieces, (cuuint64_t)w.n_tiles_out}, {512, pieces * 512},
                   {256, (cuuint32_t)(n_tiles * vectors), (cuuint32_t)tile_rows}, CU_TENSOR_MAP_SWIZZLE_NONE,
                   args.w->name, map, err);
}
