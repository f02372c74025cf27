/* fuzz_safetensors.c - any bytes as a .safetensors file. A file that is accepted must keep the promises of
 * safetensors.h.
 *
 * The corpus holds a file of two tensors and one with metadata, an empty tensor and a scalar. */
#include <stdlib.h>
#include <string.h>

#include "model/files/safetensors.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

static void require(int holds) {
  if (!holds) abort();
}

static void check(const uint8_t *bytes, size_t size) {
  Safetensors file;
  Error err = {{0}};
  Status status = safetensors_parse("input", bytes, size, &file, &err);
  if (status != STATUS_OK) require(status == STATUS_MODEL && strstr(err.text, "input") != NULL);
  size_t sum = 0;
  for (size_t i = 0; status == STATUS_OK && i < file.n_tensors; i++) {
    const StoredTensor *tensor = &file.tensors[i];
    require(tensor->data >= bytes && tensor->bytes <= (size_t)(bytes + size - tensor->data));
    require(safetensors_find(&file, tensor->name) == tensor);
    size_t n = 1;
    for (int d = 0; d < tensor->rank; d++) n *= (size_t)tensor->shape[d];
    if (tensor->dtype != DTYPE_OTHER) require(n * dtype_bytes(tensor->dtype) == tensor->bytes);
    sum += tensor->bytes;
  }
  if (status == STATUS_OK) require(sum <= size - 8);
  safetensors_close(&file);
}

/* As it is, and with a header that ends after the last brace: else the fuzzer could hardly change its
 * length. */
int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size) {
  check(bytes, size);
  const uint8_t *brace = size > 8 ? memrchr(bytes + 8, '}', size - 8) : NULL;
  if (!brace) return 0;
  uint8_t *fitting = malloc(size);
  require(fitting != NULL);
  memcpy(fitting, bytes, size);
  uint64_t length = (uint64_t)(brace + 1 - (bytes + 8));
  for (int i = 0; i < 8; i++) fitting[i] = (uint8_t)(length >> 8 * i);
  check(fitting, size);
  free(fitting);
  return 0;
}
