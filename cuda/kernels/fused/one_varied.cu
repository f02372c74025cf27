/* one_varied.cu - the kernel of a step of one token (one_kernel.cuh) with varied experts (plan.h). */
#include "cuda/kernels/fused/one_kernel.cuh"

namespace step {

Kernel one_varied_kernel(const StepShape &) {
  using Varied = Form<STEP_FP4_GROUP, 64, false, true, false, false, void, false, STEP_HALF_GROUP>;
  return kernel<one::Block<false, Varied>>;
}

} // namespace step
