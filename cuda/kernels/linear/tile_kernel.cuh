/* tile_kernel.cuh - what the stream-K tile kernels on mma fragments share: the warps of a block, and the
 * table of tile shapes that a LinearKernel chooses from. */
#pragma once

#include <algorithm>

#include "cuda/kernels/linear/kernel.cuh"
#include "cuda/kernels/linear/stream_k.cuh"

/* A block of kWarpsM x kWarpsN warps, each 16 kR outputs by 8 kN tokens: kR x kN fragments. */
template <int kR_, int kWarpsM, int kWarpsN, int kN_> struct WarpGrid {
  static constexpr int kR = kR_, kN = kN_, kThreads = 32 * kWarpsM * kWarpsN;
  static constexpr int kTileRows = kR * kWarpsM, kTokens = 8 * kN * kWarpsN;
  typedef float Sums[kR * kN][4];

  /* First tile row and token of the calling warp, within the block's tile. */
  static __device__ __forceinline__ int warp_tile_row() { return (int)(threadIdx.x / 32) % kWarpsM * kR; }
  static __device__ __forceinline__ int warp_token() { return (int)(threadIdx.x / 32) / kWarpsM * kN * 8; }

  /* Stores the fragments of a tile that starts at tile_row0 and token0. */
  static __device__ __forceinline__ void store(const Epilogue &out, int tile_row0, int token0, int n_tokens,
                                               const Sums &sums) {
#pragma unroll
    for (int r = 0; r < kR; r++)
      store_fragments<kN>(out, tile_row0 + warp_tile_row() + r, token0 + warp_token(), 0, n_tokens,
                          sums[r * kN]);
  }
};

/* The part of a tile kernel's arguments that says which tiles it computes, and where their sums go. */
template <class Sum> struct TileArgs {
  stream_k::Work work;
  int n_tokens, n_token_tiles;
  Epilogue out;
  Sum *partial;
  unsigned *counters;
};

/* Arguments for tiles of shape S: n_steps steps a tile, at least least_steps a block. */
template <class S, class Sum>
TileArgs<Sum> tile_args(const LinearArgs &args, int n_steps, int least_steps, Sum *partial) {
  const int n_token_tiles = ceil_div(args.n_tokens, S::kTokens),
            n_tiles = ceil_div(ceil_div(args.w->n_out, kTileOut), S::kTileRows) * n_token_tiles;
  const stream_k::Work work =
      stream_k::even_work(n_tiles, n_steps, args.device.n_sms * S::kBlocks, least_steps);
  return {work, args.n_tokens, n_token_tiles, args.out, partial, args.counters};
}

constexpr int kTileWeights = 6;

/* Index of a matrix's weights in a TileShape; int8 weights use [0]. */
inline int tile_weights(const DeviceLinear &w) {
  if (weight_has_factors(w.type)) return w.type == WEIGHT_FP4 ? 2 : 3;
  return (w.type == WEIGHT_AWQ8) + (weight_has_zeros(w.type) && w.group % 32 != 0 ? 4 : 0);
}

/* A tile shape. Index: weights of 4 bits [0], of 8 bits [1]. If the kernel has them: FP4 [2], FP8 [3], and in
 * groups of 16 (Sixteens) 4 bits [4], 8 bits [5]. */
struct TileShape {
  int max_tokens;
  size_t shared_bytes[kTileWeights]; /* bytes of a block, without tile_list_bytes() */
  Status (*launch[kTileWeights])(const LinearArgs &args, Error *err);
  size_t (*workspace[kTileWeights])(const DeviceLinear *w, int n_tokens, const DeviceLimits &device);
};

/* Tokens that a tile should hold: all, or, with experts, 1.5 times what an expert has on average. */
inline int tile_tokens(const LinearArgs &args) {
  if (!args.experts) return args.n_tokens;
  return (int)(1.5 * args.n_tokens * args.w->n_chosen / args.w->n_experts);
}

/* Launches the `variant`-th shape. 0: the smallest that holds tile_tokens(). If that does not fit in the
 * chip's shared memory: the next smaller one that does. */
template <const auto &kShapes> Status launch_tiles(const LinearArgs &args, Error *err) {
  const int weights = tile_weights(*args.w);
  TRY(check_variant(args, (int)(sizeof kShapes / sizeof *kShapes), err));
  const TileShape *s = kShapes;
  while (tile_tokens(args) > s->max_tokens) s++;
  while (s > kShapes && s->shared_bytes[weights] + tile_list_bytes(args) > args.device.shared_bytes) s--;
  if (args.variant > 0) s = &kShapes[args.variant - 1];
  return s->launch[weights](args, err);
}

template <const auto &kShapes>
size_t tiles_workspace(const DeviceLinear *w, int n_tokens, const DeviceLimits &device) {
  size_t most = 0;
  for (const TileShape &s : kShapes)
    most = std::max(most, s.workspace[tile_weights(*w)](w, n_tokens, device));
  return most;
}

template <const auto &kShapes>
constexpr LinearKernel tile_kernel = {tiles_workspace<kShapes>, launch_tiles<kShapes>, false};
