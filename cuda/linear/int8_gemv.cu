/* int8_gemv.cu - W4A8 and W8A8 for 1 to 8 tokens: awq_gemv's inner loop with one int8 plane of x instead of
 * two.
 *
 * The block quantises x itself, as int8_act.cu defines it. Skeleton, layout and preconditions:
 * skinny_gemm.cuh. */
#include "cuda/linear/skinny_gemm.cuh"

static Status launch_int8_gemv(const LinearArgs &args, Error *err) {
  if (args.n_tokens <= 1) return row_stream::launch_tokens<row_stream::DotProducts, 1, 1>(args, err);
  if (args.n_tokens <= 2) return row_stream::launch_tokens<row_stream::DotProducts, 1, 2>(args, err);
  if (args.n_tokens <= 4) return row_stream::launch_tokens<row_stream::DotProducts, 1, 4>(args, err);
  return row_stream::launch_tokens<row_stream::DotProducts, 1, 8>(args, err);
}

const LinearKernel int8_gemv_kernel = {row_stream::workspace<1>, launch_int8_gemv, false};
