/* sampler_math.h - the arithmetic of sampling: every device gets the same bits from the same logits.
 *
 * It uses only integers and +, -, *, / of IEEE floats and doubles rounded to nearest: no library function, no
 * contraction (host code is built with -ffp-contract=off; device code must be built without fused
 * multiply-add). The file is both C and CUDA C++, so that a device's sampler can include it.
 *
 * The rules of a pick, which any implementation follows:
 *   0 mask          the score of a token that is not allowed (sampler_allow) is -infinity
 *   1 penalties     of an allowed token: sampler_penalise(logit, ...) if it was seen, else the logit itself
 *   2 ranking       by score, larger first; equal scores by id, lower first; -0 equals +0
 *   3 greedy        (temperature 0) the first of the ranking
 *   4 top-k         the first k of the ranking stay
 *   5 weights       sampler_weight((score - greatest score) / temperature), in double: integers up to 2^40
 *   6 top-p         with S the sum of the weights: a token stays if the sum of the weights ranked before it
 *                   is below max(1, floor(S * sampler_fraction(top_p) / 2^32))
 *   7 min-p         a token stays if its weight is at least sampler_fraction(min_p) * 2^8
 *   8 draw          with S the sum of the remaining weights and r = sampler_random(seed, step):
 *                   t = floor(r * S / 2^64); the token is the first in order of ids at which the running sum
 *                   of weights passes t
 * All sums are integers of at most 2^63 (at most 2^23 tokens), so the order of summation does not matter. */
#pragma once

#include <stdint.h>
#include <string.h>

#include "base/host_device.h"

typedef struct {
  double temperature;        /* 0: greedy (penalties still count) */
  int top_k;                 /* 0: off */
  double top_p;              /* 1: off */
  double min_p;              /* 0: off */
  double repetition_penalty; /* 1: off; every token of prompt and answer counts, as in transformers */
  double presence_penalty;   /* 0: off; tokens of the answer only, as in OpenAI's API */
  double frequency_penalty;  /* 0: off; likewise */
  uint64_t seed;
} SamplerSettings;

#define SAMPLER_TOKEN_SEEN UINT32_C(0x80000000) /* sampler_token_counts() */

enum {
  SAMPLER_WEIGHT_BITS = 40,    /* the greatest weight is 2^40: a token below 2^-41 of it is never drawn */
  SAMPLER_MAX_VOCAB = 1 << 23, /* 2^23 weights of 2^40 sum to 2^63 */
};

HOST_DEVICE double sampler_bits_double(uint64_t bits) {
  double value;
  memcpy(&value, &bits, sizeof value);
  return value;
}

HOST_DEVICE uint64_t sampler_double_bits(double value) {
  uint64_t bits;
  memcpy(&bits, &value, sizeof bits);
  return bits;
}

/* An integer with the order of the scores: a < b exactly if key(a) < key(b), and key(-0) == key(+0).
 * NaNs lie below SAMPLER_KEY_LOWEST or above SAMPLER_KEY_INFINITE. */
#define SAMPLER_KEY_LOWEST   UINT32_C(0x007fffff) /* of -infinity */
#define SAMPLER_KEY_INFINITE UINT32_C(0xff800000) /* of +infinity */

HOST_DEVICE uint32_t sampler_key(float score) {
  float positive_zero = score + 0.0f;
  uint32_t bits;
  memcpy(&bits, &positive_zero, sizeof bits);
  return bits ^ ((0u - (bits >> 31)) | UINT32_C(0x80000000));
}

HOST_DEVICE float sampler_key_score(uint32_t key) {
  uint32_t bits = key ^ (((key >> 31) - 1u) | UINT32_C(0x80000000));
  float score;
  memcpy(&score, &bits, sizeof score);
  return score;
}

/* The score of a seen token. First comes the repetition penalty of transformers
 * (RepetitionPenaltyLogitsProcessor). A token with `n_generated` > 0 uses in the answer then has OpenAI's
 * frequency and presence penalties. */
HOST_DEVICE float sampler_penalise(float logit, uint32_t n_generated, float repetition, float presence,
                                   float frequency) {
  float score = logit < 0 ? logit * repetition : logit / repetition;
  if (n_generated) {
    float weighted = (float)n_generated * frequency;
    score = score - weighted;
    score = score - presence;
  }
  return score;
}

/* 2^bits * e^x for x <= 0, to about one part in 2^51; below -64 (also for -infinity) the value at -64.
 * x = k ln 2 + r with |r| <= ln 2 / 2. Adding 1.5 * 2^52 rounds to the integer k and leaves k in the low
 * bits. ln 2 has two parts as in fdlibm, so that k * high is exact. e^r is its series up to r^12; the rest is
 * below 2^-52. */
HOST_DEVICE double sampler_exp(double x, int bits) {
  double bounded = x < -64.0 ? -64.0 : x;
  double shifted = bounded * 0x1.71547652b82fep+0 + 0x1.8p52;
  double k = shifted - 0x1.8p52;
  double r = (bounded - k * 0x1.62e42feep-1) - k * 0x1.a39ef35793c76p-33;
  double p = 1.0 / 479001600;
  p = p * r + 1.0 / 39916800;
  p = p * r + 1.0 / 3628800;
  p = p * r + 1.0 / 362880;
  p = p * r + 1.0 / 40320;
  p = p * r + 1.0 / 5040;
  p = p * r + 1.0 / 720;
  p = p * r + 1.0 / 120;
  p = p * r + 1.0 / 24;
  p = p * r + 1.0 / 6;
  p = p * r + 0.5;
  p = p * r + 1.0;
  p = p * r + 1.0;
  return p * sampler_bits_double((sampler_double_bits(shifted) + 1023 + (uint64_t)bits) << 52);
}

/* e^x * 2^40 as the nearest integer, for x <= 0. Adding 2^52 rounds, and the low bits are the integer. */
HOST_DEVICE uint64_t sampler_weight(double x) {
  return sampler_double_bits(sampler_exp(x, SAMPLER_WEIGHT_BITS) + 0x1p52) & ((UINT64_C(1) << 52) - 1);
}

/* share * 2^32 as the nearest integer (halves up), for a share in [0, 1]. */
HOST_DEVICE uint64_t sampler_fraction(double share) {
  return (uint64_t)(share * 0x1p32 + 0.5);
}

/* floor(sum * share / 2^32) for a share from sampler_fraction() and a sum of at most 2^63. */
HOST_DEVICE uint64_t sampler_multiply(uint64_t sum, uint64_t share) {
  return (sum >> 32) * share + (((sum & UINT64_C(0xffffffff)) * share) >> 32);
}

/* floor(a * b / 2^64) */
HOST_DEVICE uint64_t sampler_multiply_high(uint64_t a, uint64_t b) {
  uint64_t a_low = a & UINT64_C(0xffffffff), a_high = a >> 32, b_low = b & UINT64_C(0xffffffff),
           b_high = b >> 32;
  uint64_t middle = a_high * b_low + ((a_low * b_low) >> 32);
  uint64_t other = a_low * b_high + (middle & UINT64_C(0xffffffff));
  return a_high * b_high + (middle >> 32) + (other >> 32);
}

/* Philox 4x32-10: turns words[0..4) of the counter into random words under the key. Salmon et al., "Parallel
 * random numbers: as easy as 1, 2, 3" (SC 2011), constants of its table 2 and of Random123. */
HOST_DEVICE void sampler_philox(uint32_t words[4], uint32_t key0, uint32_t key1) {
  for (int round = 0; round < 10; round++) {
    uint64_t product0 = (uint64_t)UINT32_C(0xd2511f53) * words[0];
    uint64_t product1 = (uint64_t)UINT32_C(0xcd9e8d57) * words[2];
    uint32_t next0 = (uint32_t)(product1 >> 32) ^ words[1] ^ key0;
    uint32_t next2 = (uint32_t)(product0 >> 32) ^ words[3] ^ key1;
    words[0] = next0;
    words[1] = (uint32_t)product1;
    words[2] = next2;
    words[3] = (uint32_t)product0;
    key0 += UINT32_C(0x9e3779b9);
    key1 += UINT32_C(0xbb67ae85);
  }
}

/* The random number of a step: the key is the seed, the counter the step; low words come first in both and
 * in the result. */
HOST_DEVICE uint64_t sampler_random(uint64_t seed, uint64_t step) {
  uint32_t words[4] = {(uint32_t)step, (uint32_t)(step >> 32), 0, 0};
  sampler_philox(words, (uint32_t)seed, (uint32_t)(seed >> 32));
  return (uint64_t)words[1] << 32 | words[0];
}
