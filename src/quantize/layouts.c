/* layouts.c - see layouts.h.
 *
 *   AutoAWQ gemm               qweight [n_in][n_out / 8], qzeros [groups][n_out / 8], scales [groups][n_out];
 *                              output o of eight is nibble awq_nibble(o) of a word
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

/* The names of codes, zero points and scales. */
static const char *const suffixes[][3] = {
    [LAYOUT_AWQ] = {".qweight", ".qzeros", ".scales"},
    [LAYOUT_COMPRESSED] = {".weight_packed", ".weight_zero_point", ".weight_scale"}};

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

/* A nibble of a layout's words: its word and the bits below it. */
typedef struct {
  size_t word;
  unsigned shift;
} Place;

static Place code_place(QuantLayout layout, Sizes s, size_t i, size_t o) {
  return layout == LAYOUT_AWQ ? (Place){i * (s.n_out / 8) + o / 8, 4 * awq_nibble(o)}
                              : (Place){(o * s.n_in + i) / 8, (unsigned)(4 * (i % 8))};
}

static Place zero_place(QuantLayout layout, Sizes s, size_t g, size_t o) {
  return layout == LAYOUT_AWQ ? (Place){g * (s.n_out / 8) + o / 8, 4 * awq_nibble(o)}
                              : (Place){o / 8 * s.groups + g, (unsigned)(4 * (o % 8))};
}

static size_t scale_place(QuantLayout layout, Sizes s, size_t g, size_t o) {
  return layout == LAYOUT_AWQ ? g * s.n_out + o : o * s.groups + g;
}

/* Appends a matrix's tensors. No two threads write the same word: the first loop gives a thread eight outputs
 * of some inputs, the second gives it a group. */
static Status write_tensors(QuantLayout layout, const LayerMatrix *m, const int *order, Sizes s, Tensors *out,
                            Error *err) {
  const Rounded *from = &m->rounded;
  const bool awq = layout == LAYOUT_AWQ;
  const int64_t n_in = (int64_t)s.n_in, n_out = (int64_t)s.n_out, groups = (int64_t)s.groups;
  const char *const *names = suffixes[layout];
  uint32_t *weights = tensors_make(out, m->name, names[0], DTYPE_I32, awq ? n_in : n_out,
                                   (awq ? n_out : n_in) / 8, err),
           *zeros = tensors_make(out, m->name, names[1], DTYPE_I32, awq ? groups : n_out / 8,
                                 awq ? n_out / 8 : groups, err);
  uint16_t *scales =
      tensors_make(out, m->name, names[2], DTYPE_F16, awq ? groups : n_out, awq ? n_out : groups, err);
  int64_t *shape = awq ? NULL : tensors_make(out, m->name, ".weight_shape", DTYPE_I64, 2, 0, err);
  if (!weights || !zeros || !scales || (!awq && !shape)) return STATUS_FAILED;
  if (shape) shape[0] = n_out, shape[1] = n_in;
  /* Inputs of one task: so few that a cache line of `weights` is filled before it is evicted. */
  const size_t line = awq ? LINE : s.n_in;
#pragma omp parallel for collapse(2)
  for (size_t first = 0; first < s.n_in; first += line)
    for (size_t eight = 0; eight < s.n_out; eight += 8)
      for (size_t o = eight; o < eight + 8; o++) {
        const uint8_t *codes = from->codes + ordered(order, o) * s.n_in;
        for (size_t i = first; i < first + line && i < s.n_in; i++) {
          const Place at = code_place(layout, s, i, o);
          weights[at.word] |= (uint32_t)codes[i] << at.shift;
        }
      }
#pragma omp parallel for
  for (size_t g = 0; g < s.groups; g++)
    for (size_t o = 0; o < s.n_out; o++) {
      const Place at = zero_place(layout, s, g, o);
      const size_t own = g * s.row + ordered(order, o);
      zeros[at.word] |= (uint32_t)from->zeros[own] << at.shift;
      scales[scale_place(layout, s, g, o)] = float_to_f16(from->scales[own]);
    }
  return STATUS_OK;
}

Status layout_write(QuantLayout layout, const LayerMatrix *m, int group, Tensors *out, Error *err) {
  return write_tensors(layout, m, m->order, sizes_of(m, group), out, err);
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

static unsigned nibble_at(const void *words, Place at) {
  uint32_t word;
  memcpy(&word, (const char *)words + at.word * sizeof word, sizeof word);
  return word >> at.shift & 15;
}

/* The inverse of write_tensors(); data: codes, zero points and scales. */
static void read_back(QuantLayout layout, const LayerMatrix *m, Sizes s, const void *const data[3],
                      Rounded *to) {
  for (size_t o = 0; o < s.n_out; o++) {
    const size_t own = ordered(m->order, o);
    for (size_t i = 0; i < s.n_in; i++)
      to->codes[own * s.n_in + i] = (uint8_t)nibble_at(data[0], code_place(layout, s, i, o));
    for (size_t g = 0; g < s.groups; g++) {
      to->zeros[g * s.row + own] = (float)nibble_at(data[1], zero_place(layout, s, g, o));
      floats_read(data[2], DTYPE_F16, scale_place(layout, s, g, o), 1, &to->scales[g * s.row + own]);
    }
  }
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
  TRY(write_tensors(LAYOUT_AWQ, m, NULL, sizes_of(m, group), made, err));
  const StoredTensor *last = made->items + made->n - 3;
  point_views(m, group, (const void *const[]){last[0].data, last[1].data, last[2].data});
  return STATUS_OK;
}

Status layout_use(QuantLayout layout, const LayerMatrix *m, int group, const Safetensors *file, Tensors *made,
                  Error *err) {
  const Sizes s = sizes_of(m, group);
  const size_t n_scales = s.groups * s.n_out, bytes[3] = {s.n_out * s.n_in / 2, n_scales / 2, n_scales * 2};
  const void *data[3];
  for (int i = 0; i < 3; i++) TRY(find(file, m, suffixes[layout][i], bytes[i], &data[i], err));
  if (layout == LAYOUT_AWQ && !m->order) {
    point_views(m, group, data);
    return STATUS_OK;
  }
  LayerMatrix copy = *m;
  TRY(rounded_make(m->n_out, m->n_in, group, &copy.rounded, err));
  read_back(layout, m, s, data, &copy.rounded);
  const Status status = layout_install(&copy, group, made, err);
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
