/* awq_small_batch.cu - 2 to 8 rows of x on the integer units: each weight word is read and unpacked once for all.
 *
 * awq_gemv's arithmetic with a sum for each row of x. Bound by reading up to about 3 rows; for chips without integer
 * tensor cores of a useful shape. Skeleton, layout and preconditions: row_stream.cuh. */
#include "cuda/row_stream.cuh"

static Status launch_awq_small_batch(const LinearArgs &args, Error *err) {
  switch (row_stream::rounded_tokens(args.n_tokens)) {
  case 1:
  case 2: return row_stream::launch_tokens<row_stream::DotProducts, 2, 2>(args, err);
  case 4: return row_stream::launch_tokens<row_stream::DotProducts, 2, 4>(args, err);
  default: return row_stream::launch_tokens<row_stream::DotProducts, 2, 8>(args, err);
  }
}

const LinearKernel awq_small_batch_kernel = {row_stream::workspace<2>, launch_awq_small_batch, false};
