/* awq_gemv.cu - one token on the integer units of any chip.
 *
 *     y[o] = sum_groups s (sum q x - z sum x), the zero factored out of the sum
 *
 * x is held as two int8 planes, so dp4a multiplies four weights an instruction and the sums are exact. Eight
 * weights take 6 instructions; with halves (lop3, packed fma, short chains flushed to fp32) they would take
 * 13 and could overflow. Skeleton, layout and preconditions: skinny_gemm.cuh. */
#include "cuda/linear/skinny_gemm.cuh"

static Status launch_awq_gemv(const LinearArgs &args, Error *err) {
  return skinny_gemm::launch_tokens<skinny_gemm::DotLoop, 2, 1>(args, err);
}

const LinearKernel awq_gemv_kernel = {skinny_gemm::workspace<2>, launch_awq_gemv, false};
