/* awq_planes.cu - 1 to 8 tokens on integer tensor cores, the fastest kernel of a decode step of separate
 * kernels.
 *
 * Each token is two int8 planes and takes two of the eight columns of mma m16n8k32; the weights are the bytes
 * of the sixteen-row operand, masked out of the stored words by two instructions for eight weights. Sums are
 * exact. Skeleton, layout and preconditions: skinny_gemm.cuh. */
#include "cuda/linear/skinny_gemm.cuh"

static Status launch_awq_planes(const LinearArgs &args, Error *err) {
  if (args.n_tokens <= 1) return skinny_gemm::launch_tokens<skinny_gemm::MmaLoop, 2, 1>(args, err);
  if (args.n_tokens <= 2) return skinny_gemm::launch_tokens<skinny_gemm::MmaLoop, 2, 2>(args, err);
  if (args.n_tokens <= 4) return skinny_gemm::launch_tokens<skinny_gemm::MmaLoop, 2, 4>(args, err);
  return skinny_gemm::launch_tokens<skinny_gemm::MmaLoop, 2, 8>(args, err);
}

const LinearKernel awq_planes_kernel = {skinny_gemm::workspace<2>, launch_awq_planes, false};
