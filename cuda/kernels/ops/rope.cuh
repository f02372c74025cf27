/* rope.cuh - the angles of rotary position embeddings (Su et al., RoFormer, 2021). Used by: ops/norm_rope.cu,
 * which makes tables of angles; ops/index.cu and fused/, whose kernels compute their own. */
#pragma once

#include <cuda_runtime.h>

/* Cosine and sine of a pair's angle at a position, times `factor` (YaRN's attention factor, else 1). */
__device__ __forceinline__ float2 rope_turn(int pos, float frequency, float factor) {
  float sine, cosine;
  sincosf(__fmul_rn((float)pos, frequency), &sine, &cosine);
  return make_float2(cosine * factor, sine * factor);
}
