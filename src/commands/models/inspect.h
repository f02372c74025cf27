/* inspect.h - private to inspect*.c: what they report. */
#ifndef AUK_COMMANDS_MODELS_INSPECT_H
#define AUK_COMMANDS_MODELS_INSPECT_H

#include "base/json.h"
#include "model/layers.h"
#include "model/tensors.h"

typedef struct {
  const Model *model;
  const char *path;
  size_t n_quantised, n_dense, n_biases; /* of the layers' linear layers */
  size_t n_8bit;                         /* of the quantised ones */
  size_t kv_numbers;                     /* that a token takes in the KV cache */
} Inspection;

/* What n_tokens take in a KV cache of numbers of `size` bytes; SIZE_MAX where that is more. */
size_t inspect_kv_bytes(const Inspection *inspection, size_t size, size_t n_tokens);

/* What model_prepare() leaves of the weights in memory. */
size_t inspect_loaded_bytes(const Model *model);

/* A new line of the report for a person. */
Status inspect_begin_line(Buffer *out, const char *label, Error *err);
/* In what the model differs from Llama, and which devices compute it. */
Status inspect_print_arithmetic(Buffer *out, const ModelConfig *config, Error *err);
Status inspect_print_devices(Buffer *out, const Model *model, Error *err);

/* The whole report as one JSON object and a newline; `tensors`: with a list of all of them. */
Status inspect_print_json(Buffer *out, const Inspection *inspection, bool tensors, Error *err);

#endif
