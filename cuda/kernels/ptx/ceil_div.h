/* ceil_div.h - a / b rounded up, for host code with and without CUDA; in C++ also at compile time. */
#pragma once

#ifdef __cplusplus
constexpr
#endif
    static inline int
    ceil_div(long a, long b) {
  return (int)((a + b - 1) / b);
}
