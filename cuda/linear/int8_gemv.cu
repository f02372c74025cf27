/* int8_gemv.cu - W4A8 and W8A8 for 1 to 8 tokens: awq_gemv's inner loop with one int8 plane of x instead of
 * two.
 *
 * The block quantises x itself, as int8_act.cu defines it. Skeleton, layout and preconditions:
 * skinny_gemm.cuh. */
#include "cuda/linear/skinny_gemm.cuh"

static Status launch_int8_gemv(const LinearArgs &args, Error *err) {
  if (args.n_tokens <= 1) return skinny_gemm::launch_tokens<skinny_gemm::DotLoop, 1, 1>(args, err);
  if (args.n_tokens <= 2) return skinny_gemm::launch_tokens<skinny_gemm::DotLoop, 1, 2>(args, err);
  if (args.n_tokens <= 4) return skinny_gemm::launch_tokens<skinny_gemm::DotLoop, 1, 4>(args, err);
  return skinny_gemm::launch_tokens<skinny_gemm::DotLoop, 1, 8>(args, err);
}

const LinearKernel int8_gemv_kernel = {skinny_gemm::workspace<1>, launch_int8_gemv, false};
