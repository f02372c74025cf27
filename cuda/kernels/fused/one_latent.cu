/* one_latent.cu - the kernels of a step of one token (one_kernel.cuh) with latent attention (plan.h). */
#include "cuda/kernels/fused/one_kernel.cuh"

namespace step {

template <class Sizes> using Latent = Form<STEP_GROUP, STEP_LATENT_HEAD, false, true, false, false, Sizes>;

Kernel one_latent_kernel(const StepShape &shape) {
  constexpr StepShape sized = SizedLatent::shape();
  return step_same_shape(&shape, &sized) ? kernel<one::Block<false, Latent<SizedLatent>>>
                                         : kernel<one::Block<false, Latent<void>>>;
}

} // namespace step
