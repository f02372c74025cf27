/* linear_read.c - weights of a Linear as fp32, by the formulas of model.h. */
#include <string.h>

#include "base/half.h"
#include "model/loaders.h"

/* Element `at` of codes[...][output]: a byte, or 4 bits in AutoAWQ's order of eight outputs in a word. */
static float code_at(const void *codes, size_t at, int bits) {
  if (bits == 8) return ((const uint8_t *)codes)[at];
  uint32_t word;
  memcpy(&word, (const char *)codes + at / 8 * sizeof word, sizeof word);
  return (float)(word >> 4 * awq_nibble(at) & 15);
}

/* Weight (input i, output o) without its scale; `at` is its index where weights lie [output][input]. */
static float unscaled(const Linear *l, size_t i, size_t o, size_t at, float zero) {
  static const float e2m1[8] = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6};
  const uint8_t *codes = l->weight;
  switch (l->kind) {
  case LINEAR_AWQ:
  case LINEAR_GROUPED: return code_at(l->qweight, i * (size_t)(l->n_out + l->skip) + o, l->bits) - zero;
  case LINEAR_INT8: return (float)(int8_t)codes[at];
  case LINEAR_FP8: return e4m3_to_float(codes[at]);
  default: break;
  }
  const int code = codes[at / 2] >> (at % 2 ? 4 : 0) & 15;
  return code & 8 ? -e2m1[code & 7] : e2m1[code];
}

/* The scale of the weight (input i, output o); *zero = its zero point, set only for AWQ and GROUPED. */
static float scale_of(const Linear *l, size_t i, size_t o, size_t at, float *zero) {
  const size_t group = i / (size_t)l->group, own = group * (size_t)(l->n_out + l->skip) + o;
  switch (l->kind) {
  case LINEAR_AWQ:
  case LINEAR_GROUPED:
    *zero = code_at(l->qzeros, own, l->kind == LINEAR_AWQ ? 4 : 8);
    return stored_float(l->scales, l->kind == LINEAR_AWQ ? DTYPE_F16 : DTYPE_F32, own);
  case LINEAR_INT8: return stored_float(l->scales, DTYPE_F32, o);
  case LINEAR_FP8: {
    const size_t n_groups = (size_t)((l->n_in - 1) / l->group + 1),
                 block = ((size_t)l->block_first + o) / (size_t)l->block;
    return stored_float(l->scales, DTYPE_F32, block * n_groups + group);
  }
  default: return l->scale_values[((const uint8_t *)l->scales)[at / (size_t)l->group]];
  }
}

void linear_read(const Linear *l, int o, int first, int n, float *out) {
  const size_t row = (size_t)o * (1 + (size_t)l->row_skip) * (size_t)l->n_in;
  float scale = 0, zero = 0;
  if (l->kind == LINEAR_DENSE) {
    floats_read(l->weight, l->dtype, row + (size_t)first, (size_t)n, out);
    return;
  }
  for (int i = first; i < first + n; i++) {
    const size_t in = (size_t)i, at = row + in;
    if (i == first || i % l->group == 0) scale = scale_of(l, in, (size_t)o, at, &zero);
    out[i - first] = unscaled(l, in, (size_t)o, at, zero) * scale;
  }
}
