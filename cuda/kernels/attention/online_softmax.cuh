/* online_softmax.cuh - online softmax (Milakov and Gimelshein, arXiv:1805.02867) for attention/ and fused/.
 *
 *   state   maximum m, sum of 2^(s - m), output: sum of 2^(s - m) v     over the scores s so far
 *
 * Scores are multiplied by log2(e), so that weights are powers of 2. rescale() gives the factor that brings a
 * state to a higher maximum. States of different keys are merged relative to the highest of their maxima. */
#pragma once

#include "cuda/kernels/ptx/lanes.cuh"
#include "cuda/kernels/ptx/ptx.cuh"

struct Rescale {
  float keep;  /* factor for the sum and the output so far */
  float shift; /* subtracted from new scores */
};

/* Raises the maximum to `high`, the maximum of new scores. kMayBeEmpty: all scores so far may be -infinity
 * (masked). */
template <bool kMayBeEmpty> __device__ __forceinline__ Rescale rescale(float &maximum, float high) {
  const float now = fmaxf(maximum, high), shift = kMayBeEmpty && now == -INFINITY ? 0 : now;
  const Rescale r = {power_of_2(maximum - shift), shift};
  maximum = now;
  return r;
}
