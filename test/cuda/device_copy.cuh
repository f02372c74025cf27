/* device_copy.cuh - numbers of a test on the device. */
#pragma once

#include <algorithm>
#include <vector>

#include "test/cuda/check.cuh"

/* Device memory with a copy of the numbers. */
template <class T> struct Device {
  T *at = NULL;
  size_t n;
  explicit Device(const std::vector<T> &from) : n(from.size()) {
    CHECK(cudaMalloc((void **)&at, std::max<size_t>(n, 1) * sizeof(T)));
    set(from);
  }
  Device(const Device &) = delete;
  ~Device() { cudaFree(at); }
  void set(const std::vector<T> &from) {
    CHECK(cudaMemcpy(at, from.data(), n * sizeof(T), cudaMemcpyHostToDevice));
  }
  std::vector<T> host() const {
    std::vector<T> out(n);
    CHECK(cudaDeviceSynchronize());
    CHECK(cudaMemcpy(out.data(), at, n * sizeof(T), cudaMemcpyDeviceToHost));
    return out;
  }
};
