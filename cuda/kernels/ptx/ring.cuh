/* ring.cuh - a ring of stages in shared memory (explained in ptx/cluster.cuh): its barriers, and the
 * positions of a reader and of the producer. */
#pragma once

#include "cuda/kernels/ptx/cluster.cuh"

/* A ring of n_stages slots of stage_bytes each. */
struct Ring {
  unsigned char *stages;
  uint64_t *full, *empty; /* barriers of the slots */
  int n_stages, stage_bytes;

  /* Initialises the barriers: full[i] completes with `arrivals` arrivals and the announced bytes, empty[i]
   * with `readers` arrivals. For all threads of a block. */
  __device__ __forceinline__ void open(int arrivals, int readers) const {
    if (threadIdx.x == 0) {
      for (int i = 0; i < n_stages; i++) {
        barrier_init(full + i, arrivals);
        barrier_init(empty + i, readers);
      }
      barrier_init_fence();
    }
    __syncthreads();
  }

  __device__ __forceinline__ unsigned char *stage(int slot) const { return stages + slot * stage_bytes; }
};

/* The next stage to read. */
struct RingCursor {
  int slot, parity;

  __device__ __forceinline__ void advance(int n_stages) {
    if (++slot == n_stages) slot = 0, parity ^= 1;
  }
};

/* The next stage to fill. */
struct RingProducer {
  const Ring &ring;
  RingCursor at;

  __device__ __forceinline__ explicit RingProducer(const Ring &of) : ring(of), at{0, 1} {}

  __device__ __forceinline__ void wait() const { barrier_wait(ring.empty + at.slot, at.parity); }

  /* Waits until the slot is empty, and calls load(stage, full), which fills it and arrives. */
  template <class Load> __device__ __forceinline__ void fill(Load load) {
    wait();
    load(ring.stage(at.slot), ring.full + at.slot);
    at.advance(ring.n_stages);
  }
};
