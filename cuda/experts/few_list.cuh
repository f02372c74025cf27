/* few_list.cuh - the choices of a few tokens in the order of their experts. Each block of few.cu makes the
 * list in its shared memory. */
#pragma once

#include "cuda/experts/experts.h"
#include "cuda/ptx/ptx.cuh"

namespace few {

/* few_sum.cu: the sum over the choices of each token, of their parts, for experts_few(). */
Status sum_parts(const FewExperts &call, int n_out, cudaStream_t stream, Error *err);

constexpr int kRows = 8, kMostChoices = EXPERTS_FEW_CHOICES;

/* Up to kRows rows of one expert: places [first, first + n) of the list. */
struct Entry {
  int expert, first, n;
};

/* The chosen experts in order, in shared memory. */
struct List {
  int ids[kMostChoices];              /* the expert of each choice */
  float weights[kMostChoices];        /* its weight */
  unsigned short order[kMostChoices]; /* places: choices by experts, then by tokens */
  unsigned char tokens[kMostChoices]; /* the token of each place */
  bool begins[kMostChoices];          /* an entry begins at this place */
  Entry entries[kMostChoices];
  int n_entries;

  /* n choices of tokens with n_chosen each, in device memory. For all threads of a block of at least n. */
  __device__ __forceinline__ void fill(const int *of_choices, const float *their_weights, int n,
                                       int n_chosen) {
    constexpr int kEach = 8; /* threads for a choice */
    const int lane = threadIdx.x % 32, n_threads = blockDim.x;
    for (int i = threadIdx.x; i < n; i += n_threads)
      ids[i] = (int)load_past_l1(of_choices + i), weights[i] = __ldcg(their_weights + i);
    __syncthreads();
    for (int i = threadIdx.x / kEach; i < (n + 3) / 4 * 4; i += n_threads / kEach) {
      const int own = ids[min(i, n - 1)];
      /* Choices before this one in the order, and those of the same expert among them. */
      int before = 0, of_expert = 0;
#pragma unroll 4
      for (int j = threadIdx.x % kEach; j < n; j += kEach) {
        const bool same = ids[j] == own && j < i;
        before += ids[j] < own || same, of_expert += same;
      }
#pragma unroll
      for (int o = 1; o < kEach; o *= 2)
        before += __shfl_xor_sync(~0u, before, o), of_expert += __shfl_xor_sync(~0u, of_expert, o);
      if (i < n && threadIdx.x % kEach == 0) {
        order[before] = (unsigned short)i;
        tokens[before] = (unsigned char)(i / n_chosen);
        begins[before] = of_expert % kRows == 0;
      }
    }
    __syncthreads();
    if ((int)threadIdx.x - lane < n) { /* a warp for 32 places, which also looks at all others */
      uint32_t here[kMostChoices / 32];
      int entry = 0, all = 0, end = n;
      const int w = threadIdx.x / 32;
#pragma unroll
      for (int v = 0; v < kMostChoices / 32; v++)
        here[v] = __ballot_sync(~0u, 32 * v + lane < n && begins[32 * v + lane]);
      const uint32_t up_to = ~0u >> (31 - lane); /* this lane and those before it */
#pragma unroll
      for (int v = kMostChoices / 32 - 1; v >= 0; v--) {
        const uint32_t later = v < w ? 0 : v == w ? here[v] & ~up_to : here[v];
        if (later) end = 32 * v + __ffs((int)later) - 1;
        entry += __popc(v < w ? here[v] : v == w ? here[v] & (up_to >> 1) : 0), all += __popc(here[v]);
      }
      const int place = threadIdx.x;
      if (place < n && begins[place]) entries[entry] = {ids[order[place]], place, end - place};
      if (threadIdx.x == 0) n_entries = all;
    }
    __syncthreads();
  }
};

} // namespace few
