/* cuda_fp16.h - the emulator's fp16: rounded to nearest even after every operation, as the hardware does
 * it. */
#pragma once

#include "cuda_runtime.h"

extern "C" {
#include "base/half.h"
}

struct __align__(2) __half {
  uint16_t bits;
  __half() = default;
  __half(float v) : bits(float_to_f16(v)) {}
  operator float() const {
    return f16_to_float(bits);
  }
};
struct __align__(4) __half2 {
  __half x, y;
};

inline __half __float2half_rn(float v) {
  return __half(v);
}
inline __half __float2half(float v) {
  return __half(v);
}
inline float __half2float(__half v) {
  return v;
}
inline uint16_t __half_as_ushort(__half v) {
  return v.bits;
}
inline __half __ushort_as_half(uint16_t v) {
  return bits_as<__half>(v);
}
inline __half __float2half_rz(float v) {
  return __ushort_as_half(float_toward_f16(v));
}
inline __half2 __floats2half2_rn(float x, float y) {
  return {__half(x), __half(y)};
}
inline __half2 __float22half2_rn(float2 v) {
  return {__half(v.x), __half(v.y)};
}
inline __half2 __half2half2(__half v) {
  return {v, v};
}
inline __half2 __halves2half2(__half x, __half y) {
  return {x, y};
}
inline float2 __half22float2(__half2 v) {
  return {(float)v.x, (float)v.y};
}
inline float __low2float(__half2 v) {
  return v.x;
}
inline float __high2float(__half2 v) {
  return v.y;
}
inline __half2 __hadd2(__half2 a, __half2 b) {
  return {__half((float)a.x + (float)b.x), __half((float)a.y + (float)b.y)};
}
inline __half2 __hsub2(__half2 a, __half2 b) {
  return {__half((float)a.x - (float)b.x), __half((float)a.y - (float)b.y)};
}
/* The product of two halves is exact in fp32. A sum with a third is rounded twice, to double and to a half;
 * as a double has more than twice a half's bits, the result is that of one rounding. */
inline __half2 __hmul2(__half2 a, __half2 b) {
  return {__half((float)a.x * (float)b.x), __half((float)a.y * (float)b.y)};
}
inline __half emulated_hfma(__half a, __half b, __half c) {
  return __half((float)((double)(float)a * (float)b + (double)(float)c));
}
inline __half2 __hfma2(__half2 a, __half2 b, __half2 c) {
  return {emulated_hfma(a.x, b.x, c.x), emulated_hfma(a.y, b.y, c.y)};
}
