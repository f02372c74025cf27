/* planes.cuh - attention's output as int8 planes (linear/quantise.cuh), the x of a matmul: a head of 128
 * dimensions is a unit.
 *
 * Included by the kernels of decode, prefill and wgmma. */
#pragma once

#include "cuda/kernels/attention/attention_kernels.cuh"
#include "cuda/kernels/linear/quantise.cuh"
#include "cuda/kernels/ptx/lanes.cuh"

/* Stores a head of one token, rounded to fp16 first, as in Attention.out. kWords 1: a warp stores the head;
 * lane 4 j + t has dims 16 j + 2 t + {0, 8, 1, 9}, in this order. kWords 8: four lanes store it; lane t has
 * these dims for all j, and the warp's other lanes have other tokens. All lanes call this; lanes with `valid`
 * false store nothing. */
template <int kWords>
__device__ __forceinline__ void store_planes(const AttentionArgs &a, int token, int head,
                                             const float (&v)[kWords][4], bool valid) {
  const int lane = threadIdx.x % 32, t = lane % 4, tile = token / a.planes_tokens,
            own = token % a.planes_tokens, row = PlanesUnit<16, 1>::row_of(own),
            plane_bytes = a.planes_tokens * 2 * kUnitIn;
  unsigned char *unit =
      a.planes + ((size_t)tile * a.n_heads + head) * (plane_bytes + a.planes_tokens / 2 * 16);
  float top = 0, x[kWords][4];
#pragma unroll
  for (int j = 0; j < kWords; j++)
#pragma unroll
    for (int i = 0; i < 4; i++) {
      x[j][i] = __half2float(__float2half_rn(v[j][i]));
      top = fmaxf(top, fabsf(x[j][i]));
    }
  top = kWords == 1 ? lanes_max<16, 8, 4, 2, 1>(top) : lanes_max<2, 1>(top);
  const float inverse = inverse_scale<2>(top);
  int total = 0;
#pragma unroll
  for (int j = 0; j < kWords; j++) {
    uint32_t word[2];
    total += quantise_by<2>(inverse, x[j], word);
    const int word_at = kWords == 1 ? lane / 4 : j;
#pragma unroll
    for (int p = 0; p < 2; p++)
      if (valid) *(uint32_t *)(unit + (row + p) * kUnitIn + (word_at ^ (row + p) % 8) * 16 + t * 4) = word[p];
  }
#pragma unroll
  for (int o = kWords == 1 ? 16 : 2; o; o /= 2) total += __shfl_xor_sync(~0u, total, o);
  if (!valid || (kWords == 1 ? lane : t) > 0) return;
  uint32_t *pair = (uint32_t *)(unit + plane_bytes) + own / 2 * 4;
  pair[own % 2] = __float_as_uint(top * (1.0f / 32512.0f));
  pair[2 + own % 2] = (uint32_t)total;
}

/* store_planes<1>() by a warp whose lanes have four consecutive dims each. */
__device__ __forceinline__ void store_planes_of_four(const AttentionArgs &a, int token, int head,
                                                     float4 value) {
  const int lane = threadIdx.x % 32, t = lane % 4;
  float v[1][4];
#pragma unroll
  for (int h = 0; h < 2; h++) {
    const int from = lane / 4 * 4 + 2 * h + t / 2;
    const float x = __shfl_sync(~0u, value.x, from), y = __shfl_sync(~0u, value.y, from),
                z = __shfl_sync(~0u, value.z, from), w = __shfl_sync(~0u, value.w, from);
    v[0][h] = t % 2 ? z : x, v[0][2 + h] = t % 2 ? w : y;
  }
  store_planes<1>(a, token, head, v, true);
}
