/* one_bytes.cu - the kernels of a step of one token (one_kernel.cuh) with weights of 8 bits. */
#include "cuda/kernels/fused/one_kernel.cuh"

namespace step {

/* As in one_token.cu, only heads of 128 and a cache in fp16 have a kernel for debugging. */
template <int kGroup> static Kernel kernel_of(const StepShape &shape, bool debug) {
  if (shape.head_dim == 64)
    return shape.q8 ? kernel<one::Block<false, Form<kGroup, 64, true>>>
                    : kernel<one::Block<false, Form<kGroup, 64, false>>>;
  if (shape.q8) return kernel<one::Block<false, Form<kGroup, 128, true>>>;
  return debug ? kernel<one::Block<true, Form<kGroup, 128, false>>>
               : kernel<one::Block<false, Form<kGroup, 128, false>>>;
}

Kernel one_bytes_kernel(const StepShape &shape, bool debug) {
  return shape.group == STEP_FP8_GROUP ? kernel_of<STEP_FP8_GROUP>(shape, debug)
                                       : kernel_of<STEP_INT8_GROUP>(shape, debug);
}

} // namespace step
