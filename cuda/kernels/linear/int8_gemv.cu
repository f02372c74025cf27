/* int8_gemv.cu - x as int8, weights in groups with 4 or 8 bits (not W8A8 checkpoints: int8_token.cu), 1 to 8
 * tokens: awq_gemv's inner loop with x as int8 instead of int16.
 *
 * The block quantises x itself, as int8_act.cu defines it. Skeleton, layout and preconditions:
 * skinny_gemm.cuh. */
#include "cuda/kernels/linear/skinny_gemm.cuh"

const LinearKernel int8_gemv_kernel = skinny_gemm::skinny_kernel<skinny_gemm::DotLoop, 1>;
