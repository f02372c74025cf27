/* waiting.cuh - how long a kernel waits for another GPU. */
#pragma once

#include "cuda/kernels/ptx/peer.cuh"

/* A wait for another GPU. Peers has `lost` in pinned memory and `patience` in nanoseconds. A GPU that has
 * waited for `patience` in vain sets *lost to 1 + the number of the other GPU. While *lost is not 0, every
 * wait ends. */
struct Waiting {
  unsigned times = 0;
  uint64_t since = 0;

  /* True if the wait ends. Called each time a poll finds that `gpu` has not sent yet. */
  template <class Peers> __device__ __forceinline__ bool gives_up(const Peers &peers, int gpu) {
    if (++times % 1024) return false;
    if (*(volatile int *)peers.lost) return true;
    const uint64_t now = nanoseconds();
    if (!since) since = now;
    if (now - since < peers.patience) return false;
    *(volatile int *)peers.lost = 1 + gpu;
    return true;
  }
};
