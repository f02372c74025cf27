/* layouts.c - see layouts.h.
 *
 *   AutoAWQ gemm               qweight [n_in][n_out / 8], qzeros [groups][n_out / 8], scales [groups][n_out];
 *                              nibble k of a word is output awq_outputs[k] of eight
 *   compressed-tensors         weight_packed [n_out][n_in / 8], weight_zero_point [n_out / 8][groups],
 *   pack-quantized             weight_scale [n_out][groups], weight_shape; nibbles in order. Codes and zero
 *                              points of 4 bits are -8 .. 7, stored plus 8; codes of 8 bits are -128 .. 127,
 *                              stored plus 128. */
#include "quantize/layouts.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/half.h"
#include "base/json.h"
#include "quantize/matrix.h"

enum { LINE = 64 }; /* codes, a byte each, in a cache line */

static const unsigned awq_outputs[8] = {0, 2, 4, 6, 1, 3, 5, 7};

/* The sizes of a matrix. */
typedef struct {
  size_t n_in, n_out, groups, row; /* row: rounded_row(n_out) */
} Sizes;

static Sizes sizes_of(const LayerMatrix *m, int group) {
  return (Sizes){(size_t)m->n_in, (size_t)m->n_out, (size_t)(m->n_in / group), rounded_row(m->n_out)};
}

/* The output of a Rounded that is stored as output o; order: LayerMatrix.order. */
static size_t ordered(const int *order, size_t o) {
  return order ? (size_t)order[o] : o;
}

static Status write_awq(const LayerMatrix *m, const int *order, Sizes s, Tensors *out, Error *err) {
  const Rounded *from = &m->rounded;
  const size_t words = s.n_out / 8;
  uint32_t *weights = tensors_make(out, m->name, ".qweight", DTYPE_I32, (int64_t)s.n_in, (int64_t)words, err),
           *zeros = tensors_make(out, m->name, ".qzeros", DTYPE_I32, (int64_t)s.groups, (int64_t)words, err);
  uint16_t *scales =
      tensors_make(out, m->name, ".scales", DTYPE_F16, (int64_t)s.groups, (int64_t)s.n_out, err);
  if (!weights || !zeros || !scales) return STATUS_FAILED;
#pragma omp parallel for
  for (size_t first = 0; first < s.n_in; first += LINE)
    for (size_t w = 0; w < words; w++)
      for (size_t k = 0; k < 8; k++) {
        const uint8_t *codes = from->codes + ordered(order, 8 * w + awq_outputs[k]) * s.n_in;
        for (size_t i = first; i < first + LINE && i < s.n_in; i++)
          weights[i * words + w] |= (uint32_t)codes[i] << 4 * k;
      }
  for (size_t g = 0; g < s.groups; g++) {
    for (size_t w = 0; w < words; w++)
      for (size_t k = 0; k < 8; k++)
        zeros[g * words + w] |= (uint32_t)from->zeros[g * s.row + ordered(order, 8 * w + awq_outputs[k])]
                                << 4 * k;
    for (size_t o = 0; o < s.n_out; o++)
      scales[g * s.n_out + o] = float_to_f16(from->scales[g * s.row + ordered(order, o)]);
  }
  return STATUS_OK;
}

static Status write_compressed(const LayerMatrix *m, const int *order, Sizes s, Tensors *out, Error *err) {
  const Rounded *from = &m->rounded;
  const int64_t groups = (int64_t)s.groups, n_out = (int64_t)s.n_out;
  uint32_t *weights =
               tensors_make(out, m->name, ".weight_packed", DTYPE_I32, n_out, (int64_t)s.n_in / 8, err),
           *zeros = tensors_make(out, m->name, ".weight_zero_point", DTYPE_I32, n_out / 8, groups, err);
  uint16_t *scales = tensors_make(out, m->name, ".weight_scale", DTYPE_F16, n_out, groups, err);
  int64_t *shape = tensors_make(out, m->name, ".weight_shape", DTYPE_I64, 2, 0, err);
  if (!weights || !zeros || !scales || !shape) return STATUS_FAILED;
  shape[0] = n_out, shape[1] = (int64_t)s.n_in;
#pragma omp parallel for schedule(static, 8) /* eight outputs share words of zero points */
  for (size_t o = 0; o < s.n_out; o++) {
    const size_t own = ordered(order, o);
    for (size_t i = 0; i < s.n_in; i++)
      weights[(o * s.n_in + i) / 8] |= (uint32_t)from->codes[own * s.n_in + i] << 4 * (i % 8);
    for (size_t g = 0; g < s.groups; g++) {
      zeros[o / 8 * s.groups + g] |= (uint32_t)from->zeros[g * s.row + own] << 4 * (o % 8);
      scales[o * s.groups + g] = float_to_f16(from->scales[g * s.row + own]);
    }
  }
  return STATUS_OK;
}

Status layout_write(QuantLayout layout, const LayerMatrix *m, int group, Tensors *out, Error *err) {
  return (layout == LAYOUT_AWQ ? write_awq : write_compressed)(m, m->order, sizes_of(m, group), out, err);
}

/* codes[n] = a group of weights in 8 bits; returns its scale, in fp16. */
static uint16_t round_to_bytes(const float *w, size_t n, uint8_t *codes) {
  float largest = 0;
  for (size_t i = 0; i < n; i++) largest = fmaxf(largest, fabsf(w[i]));
  const uint16_t stored = float_to_f16(largest / 127);
  const float scale = f16_to_float(stored);
  for (size_t i = 0; i < n; i++) {
    const float level = scale > 0 ? rintf(w[i] / scale) : 0;
    codes[i] = (uint8_t)(128 + fmaxf(-127, fminf(level, 127)));
  }
  return stored;
}

Status layout_write_head(const Linear *head, int group, Tensors *out, Error *err) {
  const size_t n_in = (size_t)head->n_in, n_out = (size_t)head->n_out, groups = n_in / (size_t)group;
  uint8_t *codes =
      tensors_make(out, head->name, ".weight_packed", DTYPE_I32, head->n_out, (int64_t)n_in / 4, err);
  uint16_t *scales =
      tensors_make(out, head->name, ".weight_scale", DTYPE_F16, head->n_out, (int64_t)groups, err);
  int64_t *shape = tensors_make(out, head->name, ".weight_shape", DTYPE_I64, 2, 0, err);
  OWNED(mem_release) float *row = mem_alloc(n_in, sizeof *row, "a row", err);
  if (!codes || !scales || !shape || !row) return STATUS_FAILED;
  shape[0] = head->n_out, shape[1] = head->n_in;
  for (size_t o = 0; o < n_out; o++) {
    linear_read(head, (int)o, 0, head->n_in, row);
    for (size_t g = 0; g < groups; g++) {
      const size_t at = g * (size_t)group;
      scales[o * groups + g] = round_to_bytes(row + at, (size_t)group, codes + o * n_in + at);
    }
  }
  return STATUS_OK;
}

/* --- back */

static Status find(const Safetensors *file, const LayerMatrix *m, const char *suffix, size_t bytes,
                   const void **data, Error *err) {
  char name[TENSOR_NAME];
  snprintf(name, sizeof name, "%s%s", m->name, suffix);
  const StoredTensor *tensor = safetensors_find(file, name);
  if (!tensor || tensor->bytes != bytes)
    return error_set(err, STATUS_FAILED, "%s: tensor %s is missing or has another size: remove this file",
                     file->file.path, name);
  *data = tensor->data;
  return STATUS_OK;
}

/* data: qweight, qzeros and scales. */
static void read_awq(const LayerMatrix *m, Sizes s, const void *const data[3], Rounded *to) {
  const uint32_t *weights = data[0], *zeros = data[1];
  const size_t words = s.n_out / 8;
  for (size_t at = 0; at < s.n_out; at++) {
    const size_t w = at / 8, k = at % 8, stored = 8 * w + awq_outputs[k], o = ordered(m->order, stored);
    for (size_t i = 0; i < s.n_in; i++)
      to->codes[o * s.n_in + i] = (uint8_t)(weights[i * words + w] >> 4 * k & 15);
    for (size_t g = 0; g < s.groups; g++) {
      to->zeros[g * s.row + o] = (float)(zeros[g * words + w] >> 4 * k & 15);
      floats_read(data[2], DTYPE_F16, g * s.n_out + stored, 1, &to->scales[g * s.row + o]);
    }
  }
}

static Status read_compressed(const LayerMatrix *m, Sizes s, const Safetensors *file, Rounded *to,
                              Error *err) {
  const void *weights, *zeros, *scales;
  TRY(find(file, m, ".weight_packed", s.n_out * s.n_in / 2, &weights, err));
  TRY(find(file, m, ".weight_zero_point", s.groups * s.n_out / 2, &zeros, err));
  TRY(find(file, m, ".weight_scale", s.groups * s.n_out * 2, &scales, err));
  for (size_t o = 0; o < s.n_out; o++) {
    const size_t own = ordered(m->order, o), first = o * s.n_in;
    for (size_t i = 0; i < s.n_in; i++)
      to->codes[own * s.n_in + i] = ((const uint8_t *)weights)[(first + i) / 2] >> 4 * (i % 2) & 15;
    for (size_t g = 0; g < s.groups; g++) {
      const size_t word = o / 8 * s.groups + g;
      to->zeros[g * s.row + own] =
          (float)(((const uint8_t *)zeros)[4 * word + o % 8 / 2] >> 4 * (o % 2) & 15);
      floats_read(scales, DTYPE_F16, o * s.groups + g, 1, &to->scales[g * s.row + own]);
    }
  }
  return STATUS_OK;
}

/* Makes the views LINEAR_AWQ with the numbers of qweight, qzeros and scales. */
static void point_views(const LayerMatrix *m, int group, const void *const data[3]) {
  size_t first = 0;
  for (int v = 0; v < m->n_views; v++) {
    Linear *linear = m->views[v];
    linear->kind = LINEAR_AWQ;
    linear->bits = 4;
    linear->group = group;
    linear->skip = m->n_out - linear->n_out;
    linear->qweight = (const char *)data[0] + first / 2;
    linear->qzeros = (const char *)data[1] + first / 2;
    linear->scales = (const char *)data[2] + 2 * first;
    first += (size_t)linear->n_out;
  }
}

Status layout_install(const LayerMatrix *m, int group, Tensors *made, Error *err) {
  TRY(write_awq(m, NULL, sizes_of(m, group), made, err));
  const OutTensor *last = made->items + made->n - 3;
  point_views(m, group, (const void *const[]){last[0].data, last[1].data, last[2].data});
  return STATUS_OK;
}

Status layout_use(QuantLayout layout, const LayerMatrix *m, int group, const Safetensors *file, Tensors *made,
                  Error *err) {
  const Sizes s = sizes_of(m, group);
  const void *data[3];
  if (layout == LAYOUT_AWQ) {
    TRY(find(file, m, ".qweight", s.n_out * s.n_in / 2, &data[0], err));
    TRY(find(file, m, ".qzeros", s.groups * s.n_out / 2, &data[1], err));
    TRY(find(file, m, ".scales", s.groups * s.n_out * 2, &data[2], err));
    if (!m->order) point_views(m, group, data);
    if (!m->order) return STATUS_OK;
  }
  LayerMatrix copy = *m;
  Status status = STATUS_OK;
  TRY(rounded_make(m->n_out, m->n_in, group, &copy.rounded, err));
  if (layout == LAYOUT_AWQ)
    read_awq(m, s, data, &copy.rounded);
  else
    status = read_compressed(m, s, file, &copy.rounded, err);
  if (status == STATUS_OK) status = layout_install(&copy, group, made, err);
  rounded_release(&copy.rounded);
  return status;
}

/* --- the config */

/* compressed-tensors compares whole names, or has regular expressions; AutoAWQ's readers look for parts of
 * names. */
Status layout_name(QuantLayout layout, const char *name, size_t n, bool ending, Buffer *list, Error *err) {
  const bool pattern = ending && layout == LAYOUT_COMPRESSED;
  OWNED(buffer_release) Buffer text = {0};
  if (pattern) TRY(buffer_append_string(&text, "re:.*", err));
  for (size_t i = 0; i < n; i++) {
    if (pattern && name[i] == '.') TRY(buffer_append_string(&text, "\\", err));
    TRY(buffer_append(&text, name + i, 1, err));
  }
  if (pattern) TRY(buffer_append_string(&text, "$", err));
  if (list->size > 0) TRY(buffer_append_string(list, ", ", err));
  return json_write_string(list, text.data, text.size, err);
}

/* Appends a member of config_groups. */
static Status write_group(const char *name, const Buffer *target, int bits, int group, Buffer *out,
                          Error *err) {
  TRY(buffer_printf(out, err, "\"%s\": {\"targets\": [", name));
  TRY(buffer_append(out, target->data, target->size, err));
  return buffer_printf(
      out, err,
      "], \"format\": \"pack-quantized\", \"input_activations\": null, \"output_activations\": null, "
      "\"weights\": {\"num_bits\": %d, \"type\": \"int\", \"symmetric\": %s, \"strategy\": \"group\", "
      "\"group_size\": %d, \"dynamic\": false}}",
      bits, bits == 8 ? "true" : "false", group);
}

Status layout_config(QuantLayout layout, int group, const Buffer *head, const Buffer *kept, Buffer *out,
                     Error *err) {
  char linear[] = "\"Linear\"";
  const Buffer all = {.data = linear, .size = sizeof linear - 1};
  if (layout == LAYOUT_AWQ) {
    TRY(buffer_printf(out, err,
                      "{\"quant_method\": \"awq\", \"version\": \"gemm\", \"bits\": 4, \"group_size\": %d, "
                      "\"zero_point\": true, \"modules_to_not_convert\": [",
                      group));
  } else {
    TRY(buffer_append_string(out,
                             "{\"quant_method\": \"compressed-tensors\", \"format\": \"pack-quantized\", "
                             "\"quantization_status\": \"compressed\", \"kv_cache_scheme\": null, "
                             "\"config_groups\": {",
                             err));
    TRY(write_group("group_0", &all, 4, group, out, err));
    if (head->size) TRY(buffer_append_string(out, ", ", err));
    if (head->size) TRY(write_group("group_1", head, 8, group, out, err));
    TRY(buffer_append_string(out, "}, \"ignore\": [", err));
  }
  TRY(buffer_append(out, kept->data, kept->size, err));
  return buffer_append_string(out, "]}", err);
}
