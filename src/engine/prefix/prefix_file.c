/* prefix_file.c - see prefix_file.h.
 *
 * Called by: prefix_store.c, commands/answer/cache_list.c.
 * Always true: the sizes of reads and allocations depend on one field of the file only: its count of tokens.
 *              This count is checked against its range. */
#include "engine/prefix/prefix_file.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/hash64.h"
#include "base/private_file.h"

enum { MAGIC_BYTES = 8 };
static const char *const MAGICS[] = {"aukpfx3\n", "aukrec1\n"}; /* by PrefixKind.state */

typedef struct {
  char magic[MAGIC_BYTES];
  int32_t start, n, n_layers, key_size, long_rope, zero;
  uint64_t data_bytes, check;
  char label[PREFIX_LABEL];
} Header;
_Static_assert(sizeof(Header) == PREFIX_HEADER && PREFIX_HEADER % 8 == 0, "a file's bytes: no padding");

static size_t padded(size_t n) {
  return (n + 7) / 8 * 8;
}

static size_t ids_offset(const PrefixKind *kind) {
  return PREFIX_HEADER + padded(strlen(kind->key));
}

static size_t sums_offset(const PrefixKind *kind, int start, int n) {
  return ids_offset(kind) + padded(((size_t)start + (size_t)n) * sizeof(int32_t));
}

static size_t head_bytes(const PrefixKind *kind, int start, int n) {
  return sums_offset(kind, start, n) + (size_t)kind->n_layers * sizeof(uint64_t);
}

size_t prefix_layer_bytes(const PrefixKind *kind, int layer, int n) {
  return kind->layer_bytes[layer] * (kind->state ? 1 : (size_t)n);
}

/* Bytes of the data of the layers before `layer`. */
static size_t data_before(const PrefixKind *kind, int layer, int n) {
  size_t bytes = 0;
  for (int i = 0; i < layer; i++) bytes += prefix_layer_bytes(kind, i, n);
  return bytes;
}

size_t prefix_data_bytes(const PrefixKind *kind, int n) {
  return data_before(kind, kind->n_layers, n);
}

size_t prefix_most_bytes(const PrefixKind *kind, int n) {
  size_t most = 0;
  for (int i = 0; i < kind->n_layers; i++)
    if (prefix_layer_bytes(kind, i, n) > most) most = prefix_layer_bytes(kind, i, n);
  return most;
}

size_t prefix_file_bytes(const PrefixKind *kind, int start, int n) {
  return head_bytes(kind, start, n) + prefix_data_bytes(kind, n);
}

static uint64_t check_of(const unsigned char *head, size_t size) {
  const size_t behind = offsetof(Header, label);
  return hash64(head + behind, size - behind, hash64(head, offsetof(Header, check), 0));
}

/* --- reading */

Status prefix_head_check(const char *name, const unsigned char *head, size_t head_size, uint64_t file_size,
                         const PrefixKind *kind, int start, PrefixFile *file, Error *err) {
  Header header;
  if (head_size < sizeof header) return error_set(err, STATUS_FAILED, "%s: ends within its header", name);
  memcpy(&header, head, sizeof header);
  if (memcmp(header.magic, MAGICS[kind->state], MAGIC_BYTES) != 0)
    return error_set(err, STATUS_FAILED, "%s: no file of %s, or another version's", name,
                     kind->state ? "recurrent states" : "keys and values");
  if (header.start != start)
    return error_set(err, STATUS_FAILED, "%s: begins at token %d, expected %d", name, (int)header.start,
                     start);
  if (header.n < 1 || header.n > PREFIX_BLOCK)
    return error_set(err, STATUS_FAILED, "%s: %d tokens, expected 1 to %d", name, (int)header.n,
                     PREFIX_BLOCK);
  if (header.n_layers != kind->n_layers || header.long_rope != kind->long_rope || header.key_size < 0 ||
      (size_t)header.key_size != strlen(kind->key) || header.data_bytes != prefix_data_bytes(kind, header.n))
    return error_set(err, STATUS_FAILED, "%s: of another model, program or setting", name);
  const size_t expected = prefix_file_bytes(kind, start, header.n),
               needed = head_bytes(kind, start, header.n);
  if (file_size != expected)
    return error_set(err, STATUS_FAILED, "%s: %llu bytes, expected %zu", name, (unsigned long long)file_size,
                     expected);
  if (head_size < needed) return error_set(err, STATUS_FAILED, "%s: ends before its data", name);
  if (header.check != check_of(head, needed))
    return error_set(err, STATUS_FAILED, "%s: the head's checksum is wrong", name);
  if (memcmp(head + PREFIX_HEADER, kind->key, strlen(kind->key)) != 0)
    return error_set(err, STATUS_FAILED, "%s: of another model, program or setting", name);
  file->start = start;
  file->n = header.n;
  file->data_bytes = header.data_bytes;
  file->data_offset = needed;
  file->ids = (const int32_t *)(const void *)(head + ids_offset(kind));
  file->sums = (const uint64_t *)(const void *)(head + sums_offset(kind, start, header.n));
  return STATUS_OK;
}

Status prefix_file_open(const char *path, const PrefixKind *kind, int start, PrefixFile *file, bool *found,
                        Error *err) {
  uint64_t size;
  *found = false;
  *file = (PrefixFile){.descriptor = -1};
  TRY(private_file_open(path, &file->descriptor, &size, err));
  if (file->descriptor < 0) return STATUS_OK;
  *found = true;
  if (!(file->path = strdup(path))) return error_set(err, STATUS_FAILED, "out of memory: a path");
  const size_t most = head_bytes(kind, start, PREFIX_BLOCK), head_size = size < most ? size : most;
  TRY(NEW(file->head, most, "a file's head", err));
  TRY(private_file_read(file->descriptor, file->path, 0, file->head, head_size, err));
  return prefix_head_check(file->path, file->head, head_size, size, kind, start, file, err);
}

void prefix_file_close(PrefixFile *file) {
  if (file->descriptor >= 0) close(file->descriptor);
  free(file->head);
  free(file->path);
  *file = (PrefixFile){.descriptor = -1};
}

Status prefix_file_layer(const PrefixFile *file, const PrefixKind *kind, int layer, void *out, Error *err) {
  const size_t size = prefix_layer_bytes(kind, layer, file->n);
  const uint64_t offset = file->data_offset + data_before(kind, layer, file->n);
  TRY(private_file_read(file->descriptor, file->path, offset, out, size, err));
  if (hash64(out, size, 0) == file->sums[layer]) return STATUS_OK;
  return error_set(err, STATUS_FAILED, "%s: the checksum of layer %d is wrong", file->path, layer);
}

bool prefix_file_summary(const char *path, PrefixSummary *summary) {
  OWNED(descriptor_release) int descriptor = -1;
  uint64_t size = 0;
  Header header;
  bool good = private_file_open(path, &descriptor, &size, NULL) == STATUS_OK && descriptor >= 0 &&
              private_file_read(descriptor, path, 0, &header, sizeof header, NULL) == STATUS_OK &&
              header.start >= 0 && header.n >= 1 && header.n <= PREFIX_BLOCK;
  const bool state = good && memcmp(header.magic, MAGICS[true], MAGIC_BYTES) == 0;
  if (!good || (!state && memcmp(header.magic, MAGICS[false], MAGIC_BYTES) != 0)) return false;
  *summary = (PrefixSummary){.start = header.start, .n = header.n, .state = state};
  memcpy(summary->label, header.label, PREFIX_LABEL - 1);
  return true;
}

/* --- writing */

Status prefix_file_write(const char *path, const PrefixKind *kind, const char *label, const int32_t *ids,
                         int start, int n, const void *data, const uint64_t *sums, Error *err) {
  size_t size = head_bytes(kind, start, n), key_size = strlen(kind->key), label_size = strlen(label);
  OWNED(mem_release) unsigned char *head = NULL;
  TRY(NEW(head, size, "a file's head", err));
  Header header = {.start = start,
                   .n = n,
                   .n_layers = kind->n_layers,
                   .key_size = (int32_t)key_size,
                   .long_rope = kind->long_rope,
                   .data_bytes = prefix_data_bytes(kind, n)};
  memcpy(header.magic, MAGICS[kind->state], MAGIC_BYTES);
  memcpy(header.label, label, label_size < PREFIX_LABEL ? label_size : PREFIX_LABEL - 1);
  memcpy(head, &header, sizeof header);
  memcpy(head + PREFIX_HEADER, kind->key, key_size);
  memcpy(head + ids_offset(kind), ids, ((size_t)start + (size_t)n) * sizeof *ids);
  memcpy(head + sums_offset(kind, start, n), sums, (size_t)kind->n_layers * sizeof *sums);
  header.check = check_of(head, size);
  memcpy(head, &header, sizeof header);
  OWNED(atomic_file_abort) AtomicFile file = {0};
  TRY(private_file_create(path, &file, err));
  TRY(atomic_file_write(&file, head, size, err));
  TRY(atomic_file_write(&file, data, header.data_bytes, err));
  return atomic_file_commit(&file, err);
}
