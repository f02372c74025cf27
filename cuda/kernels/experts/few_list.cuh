/* few_list.cuh - the choices of a few tokens, listed by experts. Each block of few.cu makes the list in its
 * shared memory. */
#pragma once

#include "cuda/kernels/experts/experts.h"
#include "cuda/kernels/ptx/ptx.cuh"

namespace few {

/* few_sum.cu: adds up the parts of each token's choices, for experts_few(). */
Status sum_parts(const FewExperts &call, int n_out, cudaStream_t stream, Error *err);

constexpr int kRows = 8, kMostChoices = EXPERTS_FEW_CHOICES, kMostExperts = EXPERTS_FEW_EXPERTS;
static_assert(EXPERTS_FEW_TOKENS <= 32, "a bit a token");

/* Up to kRows rows of one expert, by tokens: bit t stands for the row of token t. */
struct Entry {
  int expert;
  uint32_t tokens;
};

/* The choices, and the entries of all chosen experts in the experts' order, in shared memory. A token's
 * choices are of different experts. */
struct List {
  int ids[kMostChoices];         /* the expert of each choice */
  float weights[kMostChoices];   /* the weight of each choice */
  uint32_t tokens[kMostExperts]; /* for each expert, a bit for each token that chose it */
  Entry entries[kMostChoices];
  int n_entries;

  /* Three steps, each with a __syncthreads() after it: clear() by all threads of the block; add() by the
   * first threads, one for each choice; make_entries() by all threads. */
  __device__ __forceinline__ void clear(int n_experts) {
    for (int i = threadIdx.x; i < n_experts; i += blockDim.x) tokens[i] = 0;
  }

  /* Adds the thread's choice, threadIdx.x. */
  __device__ __forceinline__ void add(int id, float weight, int token) {
    ids[threadIdx.x] = id, weights[threadIdx.x] = weight;
    atomicOr(tokens + id, 1u << token);
  }

  /* Each warp counts the entries of all experts, and makes the entries of some experts. */
  __device__ __forceinline__ void make_entries(int n_experts, int n_tokens) {
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, n_warps = blockDim.x / 32;
    int n = 0;
#pragma unroll 4
    for (int v = 0; v < n_experts; v += 32) {
      uint32_t left = v + lane < n_experts ? tokens[v + lane] : 0;
      const int count = (__popc(left) + kRows - 1) / kRows;
      int at = n;
      for (int k = 0; k * kRows < n_tokens; k++) { /* experts with more than k entries */
        const uint32_t some = __ballot_sync(~0u, count > k);
        at += __popc(some & ((1u << lane) - 1)), n += __popc(some);
      }
      if (v / 32 % n_warps != warp) continue;
      while (left) {
        uint32_t rest = left;
        for (int i = 0; i < kRows; i++) rest &= rest - 1; /* 0 stays 0 */
        entries[at++] = {v + lane, left ^ rest};
        left = rest;
      }
    }
    if (threadIdx.x == 0) n_entries = n;
  }
};

} // namespace few
