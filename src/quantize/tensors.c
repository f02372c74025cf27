/* tensors.c - see tensors.h. */
#include "quantize/tensors.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/half.h"
#include "base/json.h"

/* Appends `from` with a name of its own. */
static StoredTensor *append(Tensors *tensors, const char *base, const char *suffix, StoredTensor from,
                            Error *err) {
  const size_t size = strlen(base) + strlen(suffix) + 1;
  if (mem_grow(&tensors->items, &tensors->capacity, tensors->n + 1, sizeof *tensors->items, "tensors", err))
    return NULL;
  char *name = mem_alloc(size, 1, "the name of a tensor", err);
  if (!name) return NULL;
  snprintf(name, size, "%s%s", base, suffix);
  from.name = name;
  tensors->items[tensors->n] = from;
  return &tensors->items[tensors->n++];
}

void *tensors_make(Tensors *tensors, const char *base, const char *suffix, Dtype dtype, int64_t rows,
                   int64_t columns, Error *err) {
  const StoredTensor made = {.dtype_name = dtype_name(dtype),
                             .dtype = dtype,
                             .rank = columns ? 2 : 1,
                             .shape = {rows, columns},
                             .bytes = (size_t)rows * (size_t)(columns ? columns : 1) * dtype_bytes(dtype)};
  StoredTensor *tensor = append(tensors, base, suffix, made, err);
  void *data = tensor ? mem_alloc(tensor->bytes, 1, tensor->name, err) : NULL;
  if (tensor) tensor->data = data;
  return data;
}

Status tensors_add(Tensors *tensors, const StoredTensor *stored, Error *err) {
  return append(tensors, stored->name, "", *stored, err) ? STATUS_OK : STATUS_FAILED;
}

void tensors_release(Tensors *tensors) {
  for (size_t i = 0; i < tensors->n; i++) {
    if (!tensors->items[i].file) free((void *)(uintptr_t)tensors->items[i].data);
    free((char *)(uintptr_t)tensors->items[i].name);
  }
  free(tensors->items);
  *tensors = (Tensors){0};
}

const StoredTensor *tensors_find(const Tensors *tensors, const char *name) {
  for (size_t i = 0; i < tensors->n; i++)
    if (strcmp(tensors->items[i].name, name) == 0) return &tensors->items[i];
  return NULL;
}

static Status write_header(const Tensors *tensors, const char *metadata, Buffer *out, Error *err) {
  size_t at = 0;
  TRY(buffer_printf(out, err, "{\"__metadata__\":{%s}", metadata));
  for (const StoredTensor *t = tensors->items; t < tensors->items + tensors->n; t++) {
    TRY(buffer_append_string(out, ",", err));
    TRY(json_write_string(out, t->name, strlen(t->name), err));
    TRY(buffer_printf(out, err, ":{\"dtype\":\"%s\",\"shape\":[", t->dtype_name));
    for (int i = 0; i < t->rank; i++) TRY(buffer_printf(out, err, "%s%" PRId64, i ? "," : "", t->shape[i]));
    TRY(buffer_printf(out, err, "],\"data_offsets\":[%zu,%zu]}", at, at + t->bytes));
    at += t->bytes;
  }
  TRY(buffer_append_string(out, "}", err));
  while (out->size % 8) TRY(buffer_append_string(out, " ", err)); /* data begin at a multiple of 8 */
  return STATUS_OK;
}

Status tensors_write(const Tensors *tensors, const char *path, const char *metadata, Error *err) {
  OWNED(atomic_file_abort) AtomicFile file = {0};
  OWNED(buffer_release) Buffer header = {0};
  TRY(write_header(tensors, metadata, &header, err));
  const uint64_t size = header.size; /* little-endian, as all machines that auk runs on */
  TRY(atomic_file_open(path, &file, err));
  TRY(atomic_file_write(&file, &size, sizeof size, err));
  TRY(atomic_file_write(&file, header.data, header.size, err));
  for (size_t i = 0; i < tensors->n; i++)
    TRY(atomic_file_write(&file, tensors->items[i].data, tensors->items[i].bytes, err));
  return atomic_file_commit(&file, err);
}

size_t tensor_layer_prefix(const char *name) {
  for (const char *at = strchr(name, '.'); at; at = strchr(at + 1, '.')) {
    const size_t digits = strspn(at + 1, "0123456789");
    if (digits > 0 && at[1 + digits] == '.') return (size_t)(at - name) + digits + 2;
  }
  return strlen(name);
}

const StoredTensor *tensor_at(const Model *model, const void *data) {
  for (size_t i = 0; i < model_tensor_count(model); i++) {
    const StoredTensor *tensor = model_tensor(model, i);
    const uintptr_t begin = (uintptr_t)tensor->data, at = (uintptr_t)data;
    if (at >= begin && at < begin + tensor->bytes) return tensor;
  }
  return NULL;
}

void number_write(void *numbers, Dtype dtype, size_t i, float value) {
  if (dtype == DTYPE_F32) {
    memcpy((float *)numbers + i, &value, sizeof value);
  } else {
    const uint32_t bits = float_bits(value);
    const uint16_t half =
        dtype == DTYPE_BF16 ? (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16) : float_to_f16(value);
    memcpy((uint16_t *)numbers + i, &half, sizeof half);
  }
}
