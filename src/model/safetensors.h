/* safetensors.h - one .safetensors file, mapped, its header validated, its tensors found by name.
 *
 *   | u64 N, little-endian | N bytes of JSON: {"NAME": {"dtype": "F16", "shape": [..], "data_offsets": [b,
 * e]}} | data |
 *
 * Held to the reference implementation (huggingface/safetensors, src/tensor.rs): the header is at most
 * 100,000,000 bytes, offsets count from the end of the header, every byte of the data belongs to exactly
 * one tensor, and a tensor's bytes are what its dtype and shape say. Nothing here knows what a tensor is
 * for. */
#ifndef AUK_MODEL_SAFETENSORS_H
#define AUK_MODEL_SAFETENSORS_H

#include "base/file.h"
#include "model/tensors.h"

typedef struct {
  MappedFile file;
  StoredTensor *tensors; /* [n_tensors] in the header's order */
  size_t n_tensors;
  uint32_t *by_name; /* [n_tensors] indices into tensors, by ascending name */
  char *names;       /* what the tensors' names point into */
  bool borrowed;     /* file is the caller's bytes, not a mapping of ours */
} Safetensors;

/* Maps and validates a file. Failures are STATUS_MODEL. Release with safetensors_close(), also after a
 * failure; the Safetensors must not move while its tensors are pointed at. */
Status safetensors_open(const char *path, Safetensors *file, Error *err);
void safetensors_close(Safetensors *file);

/* The same over bytes of the caller's, which must outlive it, for tests and fuzzing; `name` is for
 * messages. */
Status safetensors_parse(const char *name, const void *bytes, size_t size, Safetensors *file, Error *err);

StoredTensor *safetensors_find(const Safetensors *file, const char *name); /* NULL: there is none */

#endif
