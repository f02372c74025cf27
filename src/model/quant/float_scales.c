/* float_scales.c - checks the scales of layers in FP8 and FP4 and makes a Linear's scales from them.
 *
 * Called by: repack.c (model_prepare_scales()).
 * FP8: the scales of the layer's blocks in fp32. FP4: the scales stay in the file as bytes; a table of 256
 * numbers says what each byte means, with the matrix's global scale in it. */
#include <math.h>
#include <string.h>

#include "base/half.h"
#include "model/loaders.h"

/* --- FP8 */

static size_t blocks(int n, int size) {
  return (size_t)((n - 1) / size + 1);
}

/* How many rows of the scales the layer's outputs use; *first: the first of them. */
static size_t scale_rows(const StoredWeights *stored, size_t *first) {
  const Linear *linear = stored->linear;
  *first = (size_t)(stored->first_out / linear->block);
  return blocks(linear->block_first + linear->n_out, linear->block);
}

static size_t n_scales(const StoredWeights *stored) {
  size_t first;
  return scale_rows(stored, &first) * blocks(stored->linear->n_in, stored->linear->group);
}

size_t float_scales_made_bytes(const StoredWeights *stored) {
  return sizeof(float) * (stored->linear->kind == LINEAR_FP8 ? n_scales(stored) : FP4_SCALE_VALUES);
}

/* With a scale up to this, a weight (at most 448 times its scale) is finite in fp32. So is the scale times
 * 256, which the CPU needs. */

static const float largest_fp8_scale = 0x1p118f;

static Status make_fp8_scales(Model *model, const StoredWeights *stored, Error *err) {
  Linear *linear = stored->linear;
  const StoredTensor *from = stored->scales;
  size_t first;
  scale_rows(stored, &first);
  first *= blocks(linear->n_in, linear->group);
  const size_t n = n_scales(stored);
  float *scales = model_make_memory(model, n, sizeof *scales, linear, err);
  if (!scales) return STATUS_FAILED;
  for (size_t i = 0; i < n; i++) {
    const bool e8m0 = from->dtype == DTYPE_F8_E8M0;
    scales[i] =
        e8m0 ? e8m0_to_float(from->data[first + i]) : stored_float(from->data, from->dtype, first + i);
    if (!(fabsf(scales[i]) <= largest_fp8_scale))
      return error_set(err, STATUS_MODEL, "%s: tensor %s: element %zu is %g, expected a number of at most %g",
                       from->file, from->name, first + i, (double)scales[i], (double)largest_fp8_scale);
  }
  linear->scales = scales;
  return STATUS_OK;
}

/* --- FP4 */

/* The largest code of a scale. E4M3: the largest number, 448 (0x7f is NaN, bit 7 the sign). E8M0: 2^125, the
 * largest scale whose product with 6, FP4's largest number, is finite in fp32. */
enum { LARGEST_E4M3 = 0x7e, LARGEST_E8M0 = 0xfc };

/* Refuses bytes above `largest`. */
static Status check_codes(const StoredTensor *scales, uint8_t largest, int n_threads, Error *err) {
  enum { CHUNK = 1 << 16 };
  size_t at = SIZE_MAX;
#pragma omp parallel for reduction(min : at) num_threads(n_threads)
  for (size_t from = 0; from < scales->bytes; from += CHUNK) {
    const size_t n = scales->bytes - from < CHUNK ? scales->bytes - from : CHUNK;
    uint8_t found = 0;
    for (size_t i = from; i < from + n; i++) found = scales->data[i] > found ? scales->data[i] : found;
    if (found > largest && from < at) at = from;
  }
  if (at == SIZE_MAX) return STATUS_OK;
  while (scales->data[at] <= largest) at++;
  const uint8_t code = scales->data[at];
  const double value = largest == LARGEST_E4M3 ? (double)e4m3_to_float(code) : (double)e8m0_to_float(code);
  return error_set(err, STATUS_MODEL,
                   "%s: tensor %s: element %zu is %g (0x%02x), expected a number from 0 to %g", scales->file,
                   scales->name, at, value, code, largest == LARGEST_E4M3 ? 448.0 : 0x1p125);
}

/* Reads the global scale. Refuses a scale that is not finite and above 0. Also refuses one that makes the
 * largest possible weight infinite: 6 * 448 times the scale or, with `divisor`, 6 * 448 divided by it. */
static Status read_factor(const StoredTensor *factor, bool divisor, float *out, Error *err) {
  const float value = stored_float(factor->data, factor->dtype, 0);
  *out = value;
  const float largest = 6 * (divisor ? 448 / value : 448 * value);
  if (value > 0 && isfinite(value) && isfinite(largest)) return STATUS_OK;
  return error_set(err, STATUS_MODEL, "%s: tensor %s is %g, expected a finite number above 0%s", factor->file,
                   factor->name, (double)value,
                   value > 0 && isfinite(value) ? " with which weights are finite" : "");
}

static Status make_fp4_scales(Model *model, const StoredWeights *stored, int n_threads, Error *err) {
  const bool e8m0 = stored->method == QUANT_MXFP4_PACKED, divisor = stored->method == QUANT_NVFP4_PACKED;
  float factor = 1;
  TRY(check_codes(stored->scales, e8m0 ? LARGEST_E8M0 : LARGEST_E4M3, n_threads, err));
  if (stored->factor) TRY(read_factor(stored->factor, divisor, &factor, err));
  float *values = model_make_memory(model, FP4_SCALE_VALUES, sizeof *values, stored->linear, err);
  if (!values) return STATUS_FAILED;
  for (int code = 0; code < FP4_SCALE_VALUES; code++) {
    const float scale = e8m0 ? e8m0_to_float((uint8_t)code) : e4m3_to_float((uint8_t)code);
    values[code] = divisor ? scale / factor : scale * factor;
  }
  stored->linear->scale_values = values;
  return STATUS_OK;
}

Status float_scales_make(Model *model, const StoredWeights *stored, int n_threads, Error *err) {
  return stored->linear->kind == LINEAR_FP8 ? make_fp8_scales(model, stored, err)
                                            : make_fp4_scales(model, stored, n_threads, err);
}
