/* online_softmax.cuh - the softmax of scores that come in pieces (Milakov and Gimelshein, arXiv:1805.02867),
 * for the kernels of attention/ and the fused step.
 *
 *   state   maximum m, sum of 2^(s - m), output: sum of 2^(s - m) v     over the scores s so far
 *
 * Scores come multiplied by log2(e), so that weights are powers of 2. A higher maximum scales a state down by
 * rescale(); states of different keys are joined relative to the highest of their maxima. */
#ifndef AUK_CUDA_ATTENTION_ONLINE_SOFTMAX_CUH
#define AUK_CUDA_ATTENTION_ONLINE_SOFTMAX_CUH

#include "cuda/ptx/lanes.cuh"
#include "cuda/ptx/ptx.cuh"

struct Rescale {
  float keep;  /* what the sum and the output so far are multiplied by */
  float shift; /* what is subtracted from new scores */
};

/* Raises the maximum to that of new scores, which are at most `high`. kMayBeEmpty: all scores so far may be
 * -infinity, of keys that are masked. */
template <bool kMayBeEmpty> __device__ __forceinline__ Rescale rescale(float &maximum, float high) {
  const float now = fmaxf(maximum, high), shift = kMayBeEmpty && now == -INFINITY ? 0 : now;
  const Rescale r = {power_of_2(maximum - shift), shift};
  maximum = now;
  return r;
}

#endif
