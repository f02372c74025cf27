/* few/sequences.cu - the kernels of several tokens of several sequences (few/kernel.cuh). They are kernels of
 * their own, since with the code for both those of one sequence took up to 5% longer. */
#include "cuda/fused/few/kernel.cuh"

namespace step {

Kernel few_sequences_kernel(const StepShape &shape, int tokens) {
  return few::kernel_of_shape<true>(shape, tokens);
}

} // namespace step
