/* ceil_div.h - a / b rounded up, for host code with and without CUDA. */
#ifndef AUK_CUDA_PTX_CEIL_DIV_H
#define AUK_CUDA_PTX_CEIL_DIV_H

static inline int ceil_div(long a, long b) {
  return (int)((a + b - 1) / b);
}

#endif
