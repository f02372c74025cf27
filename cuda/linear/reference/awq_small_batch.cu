/* awq_small_batch.cu - 2 to 8 tokens on the integer units: each weight word is read and unpacked once for
 * all.
 *
 * awq_gemv's inner loop with a sum for each token. Bound by reading up to about 3 tokens. For chips without
 * integer tensor cores of a useful shape. Skeleton, layout and preconditions: skinny_gemm.cuh. */
#include "cuda/linear/skinny_gemm.cuh"

static Status launch_awq_small_batch(const LinearArgs &args, Error *err) {
  if (args.n_tokens <= 2) return skinny_gemm::launch_tokens<skinny_gemm::DotLoop, 2, 2>(args, err);
  if (args.n_tokens <= 4) return skinny_gemm::launch_tokens<skinny_gemm::DotLoop, 2, 4>(args, err);
  return skinny_gemm::launch_tokens<skinny_gemm::DotLoop, 2, 8>(args, err);
}

static size_t workspace(const DeviceLinear *w, int n_tokens, const DeviceLimits &device) {
  return skinny_gemm::workspace<2>(w, n_tokens < 2 ? 2 : n_tokens, device);
}

const LinearKernel awq_small_batch_kernel = {workspace, launch_awq_small_batch, false};
