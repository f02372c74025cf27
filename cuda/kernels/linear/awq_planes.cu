/* awq_planes.cu - 1 to 8 tokens on integer tensor cores. Outside the fused step this is the fastest kernel;
 * but on Hopper, with 4 bits and more than 1 token, narrow_wgmma is faster.
 *
 * x is int16, in two bytes (the planes): a token takes two of the eight columns of mma m16n8k32. The weights
 * are the bytes of the sixteen-row operand. Two instructions mask eight weights out of the stored words.
 * Sums are exact. Skeleton, layout and preconditions: skinny_gemm.cuh. */
#include "cuda/kernels/linear/skinny_gemm.cuh"

const LinearKernel awq_planes_kernel = skinny_gemm::skinny_kernel<skinny_gemm::MmaLoop, 2>;
