/* half.h - portable scalar conversions: fp16, bf16 and FP8 to fp32, which is exact, and fp32 to fp16,
 * rounding to nearest even or towards zero. The CPU kernels have vector forms of their own. */
#pragma once

#include <stdint.h>
#include <string.h>

static inline uint32_t float_bits(float value) {
  uint32_t bits;
  memcpy(&bits, &value, sizeof bits);
  return bits;
}

static inline float bits_float(uint32_t bits) {
  float value;
  memcpy(&value, &bits, sizeof value);
  return value;
}

static inline float bf16_to_float(uint16_t half) {
  return bits_float((uint32_t)half << 16);
}

static inline float f16_to_float(uint16_t half) {
  uint32_t sign = (uint32_t)(half & 0x8000) << 16, magnitude = half & 0x7fff;
  if (magnitude >= 0x7c00) return bits_float(sign | 0x7f800000 | (magnitude & 0x3ff) << 13);
  if (magnitude >= 0x0400) return bits_float(sign | ((magnitude << 13) + 0x38000000));
  float tiny = (float)magnitude * 0x1p-24f; /* subnormal: exact in fp32 */
  return bits_float(sign | float_bits(tiny));
}

static inline uint16_t float_to_f16(float value) {
  uint32_t bits = float_bits(value), sign = bits >> 16 & 0x8000, magnitude = bits & 0x7fffffff;
  if (magnitude >= 0x7f800000) return (uint16_t)(sign | 0x7c00 | (magnitude > 0x7f800000 ? 0x200 : 0));
  if (magnitude >= 0x477ff000) return (uint16_t)(sign | 0x7c00); /* rounds to 65536 or more */
  if (magnitude < 0x38800000) {                                  /* below 2^-14: adding 0.5 rounds at 2^-24 */
    return (uint16_t)(sign | (float_bits(bits_float(magnitude) + 0.5f) - 0x3f000000));
  }
  return (uint16_t)(sign | ((magnitude - 0x38000000 + 0xfff + (magnitude >> 13 & 1)) >> 13));
}

/* Towards zero; so a finite number stays finite. */
static inline uint16_t float_toward_f16(float value) {
  const uint16_t nearest = float_to_f16(value);
  const uint32_t farther =
      (float_bits(f16_to_float(nearest)) & 0x7fffffff) > (float_bits(value) & 0x7fffffff);
  return (uint16_t)(nearest - farther);
}

/* E4M3 without infinities (F8_E4M3 of safetensors): sign, 4 bits of exponent, 3 of mantissa; 0x7f and 0xff
 * are NaN. */
static inline float e4m3_to_float(uint8_t code) {
  uint32_t sign = (uint32_t)(code & 0x80) << 24, magnitude = code & 0x7f;
  if (magnitude == 0x7f) return bits_float(sign | 0x7fc00000);
  if (magnitude >= 8) return bits_float(sign | ((magnitude << 20) + 0x3c000000));
  return bits_float(sign | float_bits((float)magnitude * 0x1p-9f));
}

/* E8M0, an exponent alone: 2^(code - 127), 0xff is NaN. */
static inline float e8m0_to_float(uint8_t code) {
  if (code == 0xff) return bits_float(0x7fc00000);
  return code == 0 ? 0x1p-127f : bits_float((uint32_t)code << 23);
}
