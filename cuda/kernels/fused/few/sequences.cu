/* few/sequences.cu - the kernels of several tokens of several sequences (few/kernel.cuh). They are separate:
 * kernels with the code for both took up to 5% longer for one sequence. */
#include "cuda/kernels/fused/few/kernel.cuh"

namespace step {

Kernel few_sequences_kernel(const StepShape &shape, int tokens, bool debug) {
  if (debug && shape.group == STEP_GROUP && shape.head_dim == 128 && !shape.q8)
    return few::kernel_of<Form<STEP_GROUP, 128, false, false, false, false, void, true>, true>(tokens);
  return few::kernel_of_shape<true>(shape, tokens);
}

} // namespace step
