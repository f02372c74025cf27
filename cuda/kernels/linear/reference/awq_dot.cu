/* awq_dot.cu - awq_gemv (1 token) and awq_small_batch (1 to 8 tokens) on the integer units of any chip.
 *
 *     y[o] = sum_groups s (sum q x - z sum x), the zero factored out of the sum
 *
 * x is held as int16, in a high and a low byte (quantise.cuh). So one dp4a multiplies four weights by high or
 * by low bytes, and the sums are exact. Eight weights take 6 instructions. With halves (lop3, packed fma,
 * short chains flushed to fp32) they would take 13 and could overflow. Each weight word is read and unpacked
 * once for all tokens; up to about 3 tokens the time is that of reading the weights. Kept as a reference to
 * compare with: other kernels are faster on every chip. Skeleton, layout and preconditions:
 * skinny_gemm.cuh. */
#include "cuda/kernels/linear/skinny_gemm.cuh"

const LinearKernel awq_dot_kernel = skinny_gemm::skinny_kernel<skinny_gemm::DotLoop, 2>;
