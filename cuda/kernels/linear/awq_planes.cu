/* awq_planes.cu - 1 to 8 tokens on integer tensor cores. Outside the fused step no kernel is faster, but on
 * Hopper narrow_wgmma is, with 4 bits and more than 1 token.
 *
 * Each token is an int16 of two bytes (the planes) and takes two of the eight columns of mma m16n8k32; the
 * weights are the bytes of the sixteen-row operand, masked out of the stored words by two instructions for
 * eight weights. Sums are exact. Skeleton, layout and preconditions: skinny_gemm.cuh. */
#include "cuda/kernels/linear/skinny_gemm.cuh"

const LinearKernel awq_planes_kernel = skinny_gemm::skinny_kernel<skinny_gemm::MmaLoop, 2>;
