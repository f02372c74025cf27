/* vectors.c - copies norms, biases and other vectors of a model as fp32.
 *
 * Called by: load.c. */
#include "cpu/cpu.h"

/* Copies a vector as fp32 to place + *next, adds `plus` to each number, and advances *next. Returns the copy,
 * or NULL for an absent vector. With place NULL it only advances *next, and returns NULL. */
const float *cpu_take_vector(const Vector *vector, float plus, float *place, size_t *next) {
  if (!vector->data) return NULL;
  float *out = place ? place + *next : NULL;
  if (out) floats_read(vector->data, vector->dtype, 0, (size_t)vector->n, out);
  for (int i = 0; out && plus != 0 && i < vector->n; i++) out[i] += plus;
  *next += (size_t)vector->n;
  return out;
}

CpuLinear cpu_take_linear(const Linear *linear, float *place, size_t *next) {
  if (linear->n_out == 0) return (CpuLinear){0};
  return (CpuLinear){linear, cpu_take_vector(&linear->bias, 0, place, next)};
}
