/* one_token.cu - the kernels of a step of one token (one_kernel.cuh) with weights of 4 bits. */
#include "cuda/kernels/fused/one_kernel.cuh"

namespace step {

/* Each kernel costs nvcc seconds. So forms with heads of 64 or 256, a cache in 8 bits, taps or several GPUs
 * have no kernel for debugging. Heads of 64, and experts with a cache in 8 bits, have no kernel for several
 * GPUs. */
template <int kGroup, int kHeadDim, bool kQ8, bool kExperts> static Kernel kernel_of(int n_gpus, bool debug) {
  using Usual = Form<kGroup, kHeadDim, kQ8, kExperts>;
  if constexpr (kHeadDim != 64 && !(kQ8 && kExperts))
    if (n_gpus > 1) return kernel<one::Block<false, Form<kGroup, kHeadDim, kQ8, kExperts, false, true>>>;
  if constexpr (kHeadDim == 128 && !kQ8)
    if (debug) return kernel<one::Block<true, Usual>>;
  return kernel<one::Block<false, Usual>>;
}

/* Experts have no form for FP4 here: the plan refuses it, except for varied experts (one_varied.cu). */
template <int kHeadDim, bool kQ8, bool kExperts = false>
static Kernel kernel_of_groups(const StepShape &shape, bool debug) {
  switch (shape.group) {
  case STEP_FP4_GROUP: return kernel_of<STEP_FP4_GROUP, kHeadDim, kQ8, false>(shape.n_gpus, debug);
  case 32: return kernel_of<32, kHeadDim, kQ8, kExperts>(shape.n_gpus, debug);
  case 64: return kernel_of<64, kHeadDim, kQ8, kExperts>(shape.n_gpus, debug);
  default: return kernel_of<128, kHeadDim, kQ8, kExperts>(shape.n_gpus, debug);
  }
}

template <bool kQ8> static Kernel kernel_of_cache(const StepShape &shape, bool debug) {
  if (shape.n_experts > 0) return kernel_of_groups<128, kQ8, true>(shape, debug);
  return shape.head_dim == 64 ? kernel_of_groups<64, kQ8>(shape, debug)
                              : kernel_of_groups<128, kQ8>(shape, debug);
}

/* The kernel that is compiled for a model's sizes if they are the shape's, else NULL. */
template <class Sizes> static Kernel sized_kernel(const StepShape &shape) {
  constexpr StepShape own = Sizes::shape();
  using Sized = Form<own.group, own.head_dim, own.q8, (own.n_experts > 0), false, false, Sizes>;
  return step_same_shape(&shape, &own) ? kernel<one::Block<false, Sized>> : NULL;
}
template <class... Each> static Kernel sized_kernel_of(Models<Each...>, const StepShape &shape) {
  Kernel found = NULL;
  ((found = found ? found : sized_kernel<Each>(shape)), ...);
  return found;
}

Kernel one_token_kernel(const StepShape &shape, bool debug, bool taps) {
  const Kernel sized = debug || taps ? NULL : sized_kernel_of(SizedModels(), shape);
  if (sized) return sized;
  if (shape.head_dim == STEP_WIDE_HEAD)
    return shape.n_experts > 0 ? kernel_of_groups<STEP_WIDE_HEAD, false, true>(shape, debug)
                               : kernel_of_groups<STEP_WIDE_HEAD, false>(shape, debug);
  if (taps) return kernel<one::Block<false, Form<STEP_GROUP, 128, false, false, true>>>;
  return shape.q8 ? kernel_of_cache<true>(shape, debug) : kernel_of_cache<false>(shape, debug);
}

} // namespace step
