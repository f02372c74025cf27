/* cuda_bf16.h - the emulator's bf16: the upper half of a float, rounded to nearest even. */
#pragma once

#include "cuda_fp16.h"

struct __align__(2) __nv_bfloat16 {
  uint16_t bits;
  __nv_bfloat16() = default;
  __nv_bfloat16(float v) {
    uint32_t b = float_bits(v);
    bits = (b & 0x7fffffff) > 0x7f800000 ? (uint16_t)(b >> 16 | 0x40)
                                         : (uint16_t)((b + 0x7fff + (b >> 16 & 1)) >> 16);
  }
  operator float() const {
    return bf16_to_float(bits);
  }
};
struct __align__(4) __nv_bfloat162 {
  __nv_bfloat16 x, y;
};

inline __nv_bfloat16 __float2bfloat16_rn(float v) {
  return __nv_bfloat16(v);
}
inline float __bfloat162float(__nv_bfloat16 v) {
  return v;
}
inline float2 __bfloat1622float2(__nv_bfloat162 v) {
  return {(float)v.x, (float)v.y};
}
