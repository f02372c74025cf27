/* state_type.h - the types in which recurrent states of the gated delta rule and of Mamba-2 are kept, and how
 * every device rounds to them. The file is both C and CUDA C++.
 *
 * A number is rounded up or down at random, so that the mean is the number itself. Rounding to nearest would
 * undo a token's decay of less than half a unit of the last place. With bf16, decays between 0.998 and 1
 * would be 1; Mamba-2 has such decays. Mean KL divergences from fp32 over 4,000 tokens of two miniatures,
 * with dt_bias reduced by 6: bf16 to nearest 0.06 and 0.11, at random 1.2e-3 and 8e-4; fp16 to nearest 4e-5
 * and 5e-5, at random 2.6e-5 and 1.5e-5. Where states forget faster, nearest has half the KL of random. The
 * noise depends only on the position and the place in the state, so a row has the same bits in any step. */
#pragma once

#include <math.h>
#include <stdint.h>
#include <string.h>

#include "base/host_device.h"

typedef enum { STATES_F32, STATES_BF16, STATES_F16 } StatesType;

static inline const char *states_type_name(StatesType type) {
  return type == STATES_F32 ? "f32" : type == STATES_BF16 ? "bf16" : "f16";
}

/* A hash of the token's position and of `pair`, which stands for the numbers 2 pair and 2 pair + 1 of a
 * layer's states [n_value_heads][value_dim][key_dim]. The hash of (pos, a + b) is the sum of the hashes of
 * (pos, a) and of (0, b). */
HOST_DEVICE uint32_t states_hash(uint32_t pos, uint32_t pair) {
  return (pair + pos * 0x9e3779b9u) * 0x85ebca6bu;
}
/* Noise for the two numbers, 16 bits each. */
HOST_DEVICE uint32_t states_noise(uint32_t hash) {
  return (hash ^ hash >> 15) * 0xc2b2ae35u;
}

/* The noise for number `index`. */
HOST_DEVICE uint32_t states_noise_at(uint32_t pos, uint32_t index) {
  return states_noise(states_hash(pos, index / 2)) >> index % 2 * 16 & 0xffffu;
}

/* A number that becomes fp16 is multiplied by this before noise is added. Numbers below 2^-14, subnormal in
 * fp16, are then subnormal in fp32, too, and the noise ends at fp16's last place. */
#define STATES_F16_SCALE 0x1p-112f

/* The fp32 bits of x (for fp16: of x * STATES_F16_SCALE) plus noise below the last place of bf16 (16 bits) or
 * fp16 (13 bits). Cut off after that place, they are x rounded at random. Numbers that are not finite stay
 * so; fminf() makes NaN infinite, because noise could carry into a NaN's sign. */
HOST_DEVICE uint32_t states_noisy(StatesType type, float x, uint32_t noise) {
  const float number = fminf(x, INFINITY) * (type == STATES_F16 ? STATES_F16_SCALE : 1);
  uint32_t bits;
  memcpy(&bits, &number, sizeof bits);
  return bits + (type == STATES_F16 ? noise >> 3 : noise);
}
