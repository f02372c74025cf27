/* fuzz_prefix.c - the head of a file of keys and values, or of a recurrent state, as damaged or foreign
 * as it may be: it is refused, or every field is what this program would have written. No byte after the
 * file's end is read. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash64.h"
#include "engine/prefix/prefix_file.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

static const size_t layer_bytes[] = {8, 24, 0};
static const PrefixKind kinds[] = {
    {.key = "model 1, program 2", .n_layers = 3, .layer_bytes = layer_bytes},
    {.key = "model 1, program 2", .n_layers = 3, .layer_bytes = layer_bytes, .state = true}};

/* The check is made right, or no mutation would ever come past it. */
static void make_check(unsigned char *head, size_t size) {
  const size_t check = 40, behind = 48;
  if (size < PREFIX_HEADER) return;
  uint64_t sum = hash64(head + behind, size - behind, hash64(head, check, 0));
  memcpy(head + check, &sum, sizeof sum);
}

/* The first byte says what is made right beforehand, the rest is the head. */
int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size) {
  if (size < 2) return 0;
  const bool check = bytes[0] & 1, length = bytes[0] & 2;
  const PrefixKind *kind = &kinds[bytes[0] >> 2 & 1];
  const int start = PREFIX_BLOCK * (bytes[0] >> 6);
  unsigned char *head = malloc(--size);
  memcpy(head, bytes + 1, size);
  int32_t n = 0;
  if (size >= 16) memcpy(&n, head + 12, sizeof n);
  if (check) make_check(head, size);
  uint64_t file_size = length && n >= 1 && n <= PREFIX_BLOCK ? prefix_file_bytes(kind, start, n) : size;
  PrefixFile file = {.descriptor = -1};
  Error err;
  if (prefix_head_check("fuzz", head, size, file_size, kind, start, &file, &err) == STATUS_OK) {
    if (file.start != start || file.n < 1 || file.n > PREFIX_BLOCK || file.data_offset > size) abort();
    if (file.data_bytes != (kind->state ? 32 : (size_t)file.n * 32)) abort();
    uint64_t sum = 0;
    for (int i = 0; i < file.start + file.n; i++) sum += (uint64_t)file.ids[i];
    for (int i = 0; i < kind->n_layers; i++) sum += file.sums[i];
    if (sum == 1) head[0] ^= 1; /* so that all of it is read */
  }
  free(head);
  return 0;
}
