/* counter.cuh - counters in device memory: a block adds when something is done, and others wait for that.
 * Sections 9.7.9 "ld", 9.7.13 "red" and 8 "memory model" of the PTX ISA 9.0 manual. For sm_70 and later. */
#pragma once

/* Adds 1. Who sees that sees what this thread stored before, and what it knew others to have stored. */
__device__ __forceinline__ void count_release(unsigned *counter) {
  asm volatile("red.release.gpu.global.add.u32 [%0], 1;" ::"l"(counter) : "memory");
}

__device__ __forceinline__ unsigned load_acquire(const unsigned *counter) {
  unsigned v;
  asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(v) : "l"(counter) : "memory");
  return v;
}
