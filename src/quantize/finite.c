/* finite.c - see finite.h. Called by: quantize.c. */
#include "quantize/finite.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/half.h"

enum { CHUNK = 4096 };
static const float fp16_largest = 65504;

static bool is_checked(Dtype dtype) {
  return dtype == DTYPE_F32 || dtype == DTYPE_F16 || dtype == DTYPE_BF16 || dtype == DTYPE_F8_E4M3;
}

/* Elements first .. first + n - 1 as fp32. */
static void read_some(const StoredTensor *t, size_t first, size_t n, float *to) {
  if (t->dtype != DTYPE_F8_E4M3) {
    floats_read(t->data, t->dtype, first, n, to);
    return;
  }
  for (size_t i = 0; i < n; i++) to[i] = e4m3_to_float(t->data[first + i]);
}

static Status refuse(const Model *model, const StoredTensor *t, size_t at, Error *err) {
  float value;
  char place[MAX_RANK * 22] = "";
  size_t rest = at, size = t->bytes / dtype_bytes(t->dtype);
  read_some(t, at, 1, &value);
  for (int i = 0, n = 0; i < t->rank; i++) {
    size /= (size_t)t->shape[i];
    n += snprintf(place + n, sizeof place - (size_t)n, "%s%zu", i ? ", " : "", rest / size);
    rest %= size;
  }
  if (!isfinite(value))
    return error_set(err, STATUS_MODEL, "%s: tensor %s: element [%s] is not finite", model_path(model),
                     t->name, place);
  return error_set(err, STATUS_MODEL, "%s: tensor %s: element [%s] is %g, beyond the largest number of fp16",
                   model_path(model), t->name, place, (double)value);
}

static Status check_tensor(const Model *model, const StoredTensor *t, int n_threads, Error *err) {
  const float most = t->rank > 1 ? fp16_largest : INFINITY;
  const size_t n = is_checked(t->dtype) ? t->bytes / dtype_bytes(t->dtype) : 0;
  size_t bad = n;
#pragma omp parallel for reduction(min : bad) num_threads(n_threads)
  for (size_t at = 0; at < n; at += CHUNK) {
    float some[CHUNK];
    const size_t own = n - at < CHUNK ? n - at : CHUNK;
    read_some(t, at, own, some);
    for (size_t i = own; i-- > 0;)
      if (!(fabsf(some[i]) <= most && fabsf(some[i]) < INFINITY)) bad = at + i < bad ? at + i : bad;
  }
  return bad == n ? STATUS_OK : refuse(model, t, bad, err);
}

Status finite_check_layer(const Model *model, const char *prefix, size_t n, int n_threads, Error *err) {
  for (size_t i = 0; i < model_tensor_count(model); i++) {
    const StoredTensor *t = model_tensor(model, i);
    if (n > 0 && strncmp(t->name, prefix, n) == 0) TRY(check_tensor(model, t, n_threads, err));
  }
  return STATUS_OK;
}

Status finite_check_rest(const Model *model, const char *layers, size_t n, int n_threads, Error *err) {
  for (size_t i = 0; i < model_tensor_count(model); i++) {
    const StoredTensor *t = model_tensor(model, i);
    if (t->used && strncmp(t->name, layers, n) != 0) TRY(check_tensor(model, t, n_threads, err));
  }
  return STATUS_OK;
}
