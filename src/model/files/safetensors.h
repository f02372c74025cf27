/* safetensors.h - a mapped .safetensors file with a validated header, whose tensors are found by name.
 *
 *   | u64 N, little-endian | N bytes of JSON | data |
 *   JSON: {"NAME": {"dtype": "F16", "shape": [..], "data_offsets": [begin, end]}, ...}
 *
 * Validated as by the reference implementation (huggingface/safetensors, src/tensor.rs): the header is at
 * most 100,000,000 bytes, offsets count from the end of the header, every byte of the data belongs to exactly
 * one tensor, and a tensor's bytes agree with its dtype and shape. */
#pragma once

#include "base/file.h"
#include "model/tensors.h"

typedef struct {
  MappedFile file;
  StoredTensor *tensors; /* [n_tensors] in the header's order */
  size_t n_tensors;
  uint32_t *by_name; /* [n_tensors] indices into tensors, by ascending name */
  char *names;       /* storage of the tensors' names */
  bool borrowed;     /* file is the caller's bytes, not a mapping of ours */
} Safetensors;

/* Maps and validates a file. Failures are STATUS_MODEL, of memory STATUS_FAILED. Release with
 * safetensors_close(), also after a failure. */
Status safetensors_open(const char *path, Safetensors *file, Error *err);
void safetensors_close(Safetensors *file);

/* safetensors_open() over the caller's bytes, for tests and fuzzing. The bytes must outlive the Safetensors;
 * `name` is for messages. */
Status safetensors_parse(const char *name, const void *bytes, size_t size, Safetensors *file, Error *err);

StoredTensor *safetensors_find(const Safetensors *file, const char *name); /* or NULL */
