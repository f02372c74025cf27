/* int8_x.cuh - x as int8 in the workspace of the int8 tile kernels. */
#pragma once

#include "cuda/kernels/linear/quantise.cuh"
#include "cuda/kernels/linear/tile_kernel.cuh"

/* x as int8: [n_in / 64][tokens][64 bytes] in the order of the weights; padding is 0. */
struct Int8X {
  unsigned char *x;
  int padded; /* tokens, rounded up to 16 */

  /* Stores the word that a lane made of its read_inputs() of a unit of 128 inputs. */
  __device__ __forceinline__ void store(int unit, int token, int lane, uint32_t word) const {
    unsigned char *at = x + ((size_t)(2 * unit + lane / 16) * padded + token) * kTileIn;
    *(uint32_t *)(at + lane % 4 * 16 + lane / 4 % 4 * 4) = word;
  }

  /* Copies kK tiles of S::kTokens tokens to a stage [kK][kTokens][64]; tokens past the end are 0. */
  template <class S>
  __device__ __forceinline__ void load(unsigned char *stage, int token0, int tile_in) const {
#pragma unroll
    for (int c = threadIdx.x; c < S::kXBytes / 16; c += S::kThreads) {
      int token = token0 + c / 4 % S::kTokens;
      bool inside = token < padded;
      const unsigned char *from =
          x + ((size_t)(tile_in + c / 4 / S::kTokens) * padded + token) * kTileIn + c % 4 * 16;
      copy_async_16(stage + c * 16, inside ? from : x, inside ? 16 : 0);
    }
  }
};

/* The workspace: x, its scales, then the partial tiles of stream-K. */
struct Int8Scratch {
  int padded;
  size_t x, scales, partial; /* bytes */
  size_t all() const { return x + scales + partial; }
};

template <class S>
Int8Scratch int8_scratch(const DeviceLinear *w, int n_tokens, const DeviceLimits &device,
                         size_t token_scales) {
  const size_t padded = align_up((size_t)n_tokens, 16);
  return {(int)padded, align_up(padded * align_up((size_t)w->n_in, kPadIn)), align_up(padded * token_scales),
          stream_k::partial_bytes(device.n_sms * S::kBlocks, S::kThreads, S::kR * S::kN * 4)};
}
