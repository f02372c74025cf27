/* copy_page.cu - copies a page of the KV cache in all layers, for a sequence that begins with a part of
 * another sequence's page. */
#include "cuda/kernels/attention/attention.h"
#include "cuda/kernels/ptx/launch.cuh"

namespace {

constexpr int kThreads = 256, kBlocks = 8; /* blocks for each PagedArray */

__global__ void __launch_bounds__(kThreads)
    copy_page_kernel(char *memory, const PagedArray *arrays, int from, int to) {
  begin_overlapping();
  const PagedArray array = arrays[blockIdx.y];
  char *cache = memory + array.first;
  const uint4 *source = (const uint4 *)(cache + from * array.page_bytes);
  uint4 *target = (uint4 *)(cache + to * array.page_bytes);
  for (size_t i = blockIdx.x * kThreads + threadIdx.x; i < array.page_bytes / 16; i += kBlocks * kThreads)
    target[i] = source[i];
}

} // namespace

Status attention_copy_page(void *memory, const PagedArray *arrays, int n, int from, int to,
                           cudaStream_t stream, Error *err) {
  return launch(copy_page_kernel, dim3(kBlocks, n), kThreads, 0, stream, true, "copy of a page", err,
                (char *)memory, arrays, from, to);
}
