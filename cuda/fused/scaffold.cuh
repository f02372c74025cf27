/* scaffold.cuh - the frame of the fused kernels: which warp does what, and how they end. */
#ifndef AUK_CUDA_FUSED_SCAFFOLD_CUH
#define AUK_CUDA_FUSED_SCAFFOLD_CUH

#include "cuda/fused/weight_ring.cuh"

namespace step {

/* Called by one thread, before barrier_init_fence(). */
template <class BlockOf> __device__ __forceinline__ void init_ring(const BlockOf &b) {
  for (int i = 0; i < b.args().plan.n_slots; i++) {
    barrier_init(&b.barriers()->full[i], STEP_LOADERS);
    barrier_init(&b.barriers()->empty[i], STEP_TEAM_WARPS);
  }
}

/* Call this once every barrier that a peer may send to is armed. Sixteen warps multiply, three load, and
 * the last one prefetches or makes the gated product. Registers move between whole warpgroups. */
template <class BlockOf> __device__ __forceinline__ void run_warps(BlockOf &b) {
  if (b.warp() < STEP_WARPS) {
    registers_up_to<kMultiplyRegisters>();
    multiply_all(b);
  } else {
    registers_down_to<kOtherRegisters>();
    switch (b.warp() - STEP_WARPS) {
    case TILES: load_all<TILES>(b); break;
    case SCALES: load_all<SCALES>(b); break;
    case ZEROS: load_all<ZEROS>(b); break;
    default: run_last_warp(b);
    }
  }
  __syncwarp();
  cluster_sync(); /* keeps blocks alive while a peer may still send to them */
}

} // namespace step

#endif
