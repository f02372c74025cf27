/* tensors.h - the tensors of a checkpoint's files, for the loaders and for `auk inspect`. */
#pragma once

#include "model/model.h"

#define MAX_RANK 8

typedef struct {
  const char *name;       /* "model.layers.3.self_attn.q_proj.qweight" */
  const char *file;       /* path of the tensor's file, for messages */
  const char *dtype_name; /* as stored: "F64", whose dtype is only DTYPE_OTHER */
  Dtype dtype;
  int rank;                  /* 0..MAX_RANK; 0: one number */
  int64_t shape[MAX_RANK];   /* each >= 0 */
  const unsigned char *data; /* [bytes], in the mapped file, at any alignment */
  size_t bytes;
  bool used; /* a part of the model */
} StoredTensor;

/* Sets dtype and dtype_name from safetensors' name; returns the bits of an element, 0 for an unknown name. */
int dtype_find(const char *name, StoredTensor *tensor);

/* The number of tensors in an open model's files; indices go file by file in the order of the headers. */
size_t model_tensor_count(const Model *model);
const StoredTensor *model_tensor(const Model *model, size_t index); /* PRECOND index < model_tensor_count() */

/* A shape in words for messages: "[151936, 1024]". */
typedef struct {
  char text[MAX_RANK * 21 + 3];
} ShapeText;
ShapeText shape_text(int rank, const int64_t *shape);
