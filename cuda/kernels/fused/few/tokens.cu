/* few/tokens.cu - the kernels of several tokens of one sequence (few/kernel.cuh). Each kernel costs nvcc
 * seconds. So only one form has kernels for debugging, and only one has kernels that copy the residual
 * stream. */
#include "cuda/kernels/fused/few/kernel.cuh"

namespace step {

Kernel few_tokens_kernel(const StepShape &shape, int tokens, bool debug, bool taps) {
  if (taps) return few::kernel_of<Form<STEP_GROUP, 128, false, false, true>>(tokens);
  if (debug && shape.group == STEP_GROUP && shape.head_dim == 128 && !shape.q8)
    return few::kernel_of<Form<STEP_GROUP, 128, false>, true>(tokens);
  return few::kernel_of_shape<false>(shape, tokens);
}

} // namespace step
