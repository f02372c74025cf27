/* one_bytes.cu - the kernels of a step of one token (one_kernel.cuh) with weights of 8 bits and in
 * fp16. */
#include "cuda/kernels/fused/one_kernel.cuh"

namespace step {

/* As in one_token.cu, the kernel for debugging exists only for heads of 128 with a cache in fp16. int8 has no
 * kernel for several GPUs: these do not divide a matrix whose x is rounded with one scale a token. */
template <int kGroup> static Kernel kernel_of(const StepShape &shape, bool debug) {
  if constexpr (kGroup != STEP_INT8_GROUP)
    if (shape.n_gpus > 1)
      return shape.q8 ? kernel<one::Block<false, Form<kGroup, 128, true, false, false, true>>>
                      : kernel<one::Block<false, Form<kGroup, 128, false, false, false, true>>>;
  if (shape.head_dim == 64)
    return shape.q8 ? kernel<one::Block<false, Form<kGroup, 64, true>>>
                    : kernel<one::Block<false, Form<kGroup, 64, false>>>;
  if (shape.q8) return kernel<one::Block<false, Form<kGroup, 128, true>>>;
  return debug ? kernel<one::Block<true, Form<kGroup, 128, false>>>
               : kernel<one::Block<false, Form<kGroup, 128, false>>>;
}

Kernel one_bytes_kernel(const StepShape &shape, bool debug) {
  switch (shape.group) {
  case STEP_HALF_GROUP: return kernel_of<STEP_HALF_GROUP>(shape, debug);
  case STEP_FP8_GROUP: return kernel_of<STEP_FP8_GROUP>(shape, debug);
  default: return kernel_of<STEP_INT8_GROUP>(shape, debug);
  }
}

} // namespace step
