/* one_varied.cu - the kernels of a step of one token (one_kernel.cuh) with varied experts (plan.h). */
#include "cuda/kernels/fused/one_kernel.cuh"

namespace step {

template <class Sizes>
using Varied = Form<STEP_FP4_GROUP, 64, false, true, false, false, Sizes, false, STEP_HALF_GROUP>;

Kernel one_varied_kernel(const StepShape &shape) {
  constexpr StepShape sized = SizedVaried::shape();
  return step_same_shape(&shape, &sized) ? kernel<one::Block<false, Varied<SizedVaried>>>
                                         : kernel<one::Block<false, Varied<void>>>;
}

} // namespace step
