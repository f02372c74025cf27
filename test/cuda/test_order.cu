/* test_order.cu - ops_order_inputs() to the bit: one block and several for a row, rows of other strides than
 * they are long. Prints `N passed, N failed`. */
#include <cuda_fp16.h>
#include <stdio.h>
#include <string.h>

#include <vector>

#include "cuda/kernels/ops/order.h"
#include "test/cuda/check.cuh"

static bool is_in_order(int n, int n_rows, cudaStream_t stream) {
  const int x_stride = n + 8, out_stride = n + 16;
  std::vector<__half> x((size_t)n_rows * x_stride), out((size_t)n_rows * out_stride, __float2half(-1));
  std::vector<int> order(n);
  for (size_t i = 0; i < x.size(); i++) x[i] = __float2half((float)(i % 2039));
  for (int i = 0; i < n; i++) order[i] = (int)(((long)i * 1009 + 5) % n);
  __half *from, *to;
  int *given;
  CHECK(cudaMalloc((void **)&from, x.size() * 2));
  CHECK(cudaMalloc((void **)&to, out.size() * 2));
  CHECK(cudaMalloc((void **)&given, order.size() * 4));
  CHECK(cudaMemcpy(from, x.data(), x.size() * 2, cudaMemcpyHostToDevice));
  CHECK(cudaMemcpy(to, out.data(), out.size() * 2, cudaMemcpyHostToDevice));
  CHECK(cudaMemcpy(given, order.data(), order.size() * 4, cudaMemcpyHostToDevice));
  MUST(ops_order_inputs(from, x_stride, given, n, n_rows, to, out_stride, stream, &error));
  CHECK(cudaStreamSynchronize(stream));
  CHECK(cudaMemcpy(out.data(), to, out.size() * 2, cudaMemcpyDeviceToHost));
  bool good = true;
  for (int r = 0; r < n_rows; r++)
    for (int i = 0; i < out_stride; i++) {
      const float want = i < n ? __half2float(x[(size_t)r * x_stride + order[i]]) : -1;
      good = good && __half2float(out[(size_t)r * out_stride + i]) == want;
    }
  CHECK(cudaFree(from));
  CHECK(cudaFree(to));
  CHECK(cudaFree(given));
  return good;
}

int main() {
  cudaStream_t stream;
  int passed = 0, failed = 0;
  CHECK(cudaStreamCreate(&stream));
  for (int n : {8, 512, 520, 4096, 28672})
    for (int n_rows : {1, 3}) {
      const bool good = is_in_order(n, n_rows, stream);
      good ? passed++ : failed++;
      if (!good) printf("FAILED: %d rows of %d\n", n_rows, n);
    }
  printf("%d passed, %d failed\n", passed, failed);
  return failed > 0;
}
