/* tensors.h - tensors that are to be written as a .safetensors file. */
#pragma once

#include "base/buffer.h"
#include "model/tensors.h"

enum { TENSOR_NAME = 160 }; /* room for the name of a matrix that auk knows, and a suffix */
/* The list owns the tensors' names, and the data of tensors whose StoredTensor.file is NULL. */
typedef struct {
  StoredTensor *items; /* [n] */
  size_t n, capacity;
} Tensors;

/* Appends a tensor named `base` followed by `suffix`, of rank 1 (columns 0) or 2. Returns its zeroed memory,
 * which the list owns; NULL after a failure. */
void *tensors_make(Tensors *tensors, const char *base, const char *suffix, Dtype dtype, int64_t rows,
                   int64_t columns, Error *err);
/* Appends a tensor of an open model as it is; the model must outlive the list. */
Status tensors_add(Tensors *tensors, const StoredTensor *stored, Error *err);
void tensors_release(Tensors *tensors);
const StoredTensor *tensors_find(const Tensors *tensors, const char *name); /* or NULL */

/* The length of "model.layers.3." in a name; the whole length of a name without such a prefix. */
size_t tensor_layer_prefix(const char *name);

/* Writes a file, which appears complete or not at all. metadata: the members of __metadata__ as JSON text. */
Status tensors_write(const Tensors *tensors, const char *path, const char *metadata, Error *err);

/* The model's tensor in whose data the address `data` lies, or NULL. */
const StoredTensor *tensor_at(const Model *model, const void *data);
/* numbers[i] of F32, F16 or BF16 = value, rounded to nearest, ties to even. */
void number_write(void *numbers, Dtype dtype, size_t i, float value);
