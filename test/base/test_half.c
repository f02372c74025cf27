/* test_half.c - fp16, bf16 and FP8 to fp32, fp16 back, every value of the small formats.
 *
 * The reference is IEEE 754 itself, in doubles, which hold every value here exactly: no tolerance. */
#include <math.h>

#include "base/half.h"
#include "test/tests.h"

/* A binary format's value from its fields: (-1)^s * 2^(e - bias) * 1.m, or 2^(1 - bias) * 0.m for e = 0. */
static double value_of(unsigned bits, int exponent_bits, int mantissa_bits) {
  int bias = (1 << (exponent_bits - 1)) - 1, top = (1 << exponent_bits) - 1;
  int exponent = (int)(bits >> mantissa_bits) & top;
  unsigned mantissa = bits & ((1u << mantissa_bits) - 1);
  double sign = bits >> (exponent_bits + mantissa_bits) ? -1.0 : 1.0;
  if (exponent == top) return mantissa ? NAN : sign * INFINITY;
  double fraction = ldexp(mantissa, -mantissa_bits) + (exponent > 0);
  return sign * ldexp(fraction, (exponent > 0 ? exponent : 1) - bias);
}

static void assert_same(double got, double want, unsigned bits) {
  if (isnan(want) ? !isnan(got) : got != want || !signbit(got) != !signbit(want))
    fail_msg("bits %#x: %a, expected %a", bits, got, want);
}

TEST(every_half_is_read_exactly) {
  for (unsigned bits = 0; bits <= 0xffff; bits++) {
    assert_same(f16_to_float((uint16_t)bits), value_of(bits, 5, 10), bits);
    assert_same(bf16_to_float((uint16_t)bits), value_of(bits, 8, 7), bits);
  }
}

/* E4M3 has no infinity: its largest exponent counts as the others do but for one code, NaN. */
TEST(every_byte_is_read_exactly) {
  for (unsigned bits = 0; bits <= 0xff; bits++) {
    double e4m3 = value_of(bits, 4, 3);
    if ((bits & 0x78) == 0x78) e4m3 = (bits & 0x80 ? -1 : 1) * ldexp(8 + (bits & 7), 15 - 7 - 3);
    assert_same(e4m3_to_float((uint8_t)bits), (bits & 0x7f) == 0x7f ? NAN : e4m3, bits);
    assert_same(e8m0_to_float((uint8_t)bits), bits == 0xff ? NAN : ldexp(1, (int)bits - 127), bits);
  }
}

TEST(every_half_is_written_as_it_was_read) {
  for (unsigned bits = 0; bits <= 0xffff; bits++) {
    bool nan = (bits & 0x7fff) > 0x7c00;
    unsigned expected = nan ? (bits & 0x8000) | 0x7e00 : bits; /* all NaNs become one, with their sign */
    unsigned got = float_to_f16(f16_to_float((uint16_t)bits));
    if (got != expected) fail_msg("fp16 %#x came back as %#x", bits, got);
  }
}

/* Between two neighbours lies one fp32 number that is equally far from both: the even one takes it, and the
 * fp32 numbers right beside it go to their own side. Past the largest, 65504, the neighbour is 65536:
 * infinity. Towards zero the lower one takes all before the upper one. */
TEST(ties_go_to_the_even_neighbour) {
  for (unsigned low = 0; low < 0x7c00; low++) {
    unsigned high = low + 1, even = low & 1 ? high : low;
    double above = high == 0x7c00 ? 65536 : value_of(high, 5, 10);
    float middle = (float)((value_of(low, 5, 10) + above) / 2);
    float below_middle = nextafterf(middle, 0), above_middle = nextafterf(middle, INFINITY);
    for (unsigned sign = 0; sign <= 0x8000; sign += 0x8000) {
      float s = sign ? -1.0f : 1.0f;
      assert_int_equal(float_to_f16(s * middle), sign | even);
      assert_int_equal(float_to_f16(s * below_middle), sign | low);
      assert_int_equal(float_to_f16(s * above_middle), sign | high);
      assert_int_equal(float_toward_f16(s * above_middle), sign | low);
      assert_int_equal(float_toward_f16(s * (float)value_of(low, 5, 10)), sign | low);
    }
  }
}

/* The nearest fp16 value to a finite double, ties to even, as a double. */
static double nearest_half(double x) {
  if (x == 0) return x;
  int exponent = ilogb(x);
  double unit = ldexp(1, (exponent < -14 ? -14 : exponent) - 10);
  double rounded = nearbyint(x / unit) * unit; /* the default rounding is to nearest even */
  return fabs(rounded) > 65504 ? copysign(INFINITY, x) : copysign(rounded, x);
}

TEST(floats_go_to_the_nearest_half) {
  for (uint64_t bits = 0; bits <= 0xffffffff; bits += 4099) { /* a prime: all exponents, many mantissas */
    float x = bits_float((uint32_t)bits);
    double want = isfinite(x) ? nearest_half(x) : (double)x;
    assert_same(f16_to_float(float_to_f16(x)), want, (unsigned)bits);
  }
}
