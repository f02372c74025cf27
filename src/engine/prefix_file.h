/* prefix_file.h - keys and values of up to PREFIX_BLOCK tokens of a text in one file, of which nothing is
 * believed.
 *
 *   offset  type                  field
 *        0  char[8]               "aukpfx1\n"
 *        8  i32                   start: tokens of the text before these, a multiple of PREFIX_BLOCK
 *       12  i32                   n: these, 1 .. PREFIX_BLOCK
 *       16  i32                   n_layers
 *       20  i32                   key_size
 *       24  i32                   long_text: 1 if the keys use LongRoPE's long factors
 *       28                        zeros
 *       32  u64                   layer_bytes: of these tokens' keys and values in one layer
 *       40  u64                   hash64() of all other bytes before the data
 *       48  char[64]              label: what a person calls the model; no part of its identity
 *      112  char[key_size]        key: what the numbers depend on beside the ids, zeros to a multiple of 8
 *           i32[start + n]        ids of the whole text so far, zeros to a multiple of 8
 *           u64[n_layers]         hash64() of each layer's bytes
 *           [n_layers][layer_bytes]   as Backend's kv_read() has them
 *
 * In the machine's byte order: another's numbers are out of range. The file is used where every field is what
 * it would be if this program had written it for this text, and each layer where its hash is right. Files are
 * read and never mapped: one that is cut meanwhile ends a read and not the program. */
#ifndef AUK_ENGINE_PREFIX_FILE_H
#define AUK_ENGINE_PREFIX_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

enum { PREFIX_BLOCK = 256, PREFIX_HEADER = 112, PREFIX_LABEL = 64 };

/* What the files that may be used have in common. */
typedef struct {
  const char *key;
  int n_layers;
  size_t token_bytes; /* of one token in one layer */
  bool long_text;
} PrefixKind;

typedef struct {
  char *path;
  int descriptor;
  int start, n;
  size_t layer_bytes, data_offset;
  unsigned char *head;  /* [data_offset] */
  const int32_t *ids;   /* [start + n] in it */
  const uint64_t *sums; /* [n_layers] in it */
} PrefixFile;

/* Opens and checks all but the data. *found is false without failure where nothing is at `path`. Release with
 * prefix_file_close(), also after a failure. */
Status prefix_file_open(const char *path, const PrefixKind *kind, int start, PrefixFile *file, bool *found,
                        Error *err);
void prefix_file_close(PrefixFile *file);

/* out[layer_bytes], checked. */
Status prefix_file_layer(const PrefixFile *file, int layer, void *out, Error *err);

/* Bytes of such a file. */
size_t prefix_file_bytes(const PrefixKind *kind, int start, int n);

/* Writes ids[0 .. start + n) and data[n_layers][n * token_bytes] to `path`, for its owner alone, whole or not
 * at all. */
Status prefix_file_write(const char *path, const PrefixKind *kind, const char *label, const int32_t *ids,
                         int start, int n, const void *data, const uint64_t *sums, Error *err);

/* The head of a file of this size, checked against `kind` as above; fills start, n, layer_bytes, data_offset,
 * ids and sums, which point into head. PRECOND head is aligned to 8 bytes. */
Status prefix_head_check(const char *name, const unsigned char *head, size_t head_size, uint64_t file_size,
                         const PrefixKind *kind, int start, PrefixFile *file, Error *err);

/* What a file says of itself, for lists of files; false where it is none. */
typedef struct {
  int start, n;
  char label[PREFIX_LABEL];
} PrefixSummary;
bool prefix_file_summary(const char *path, PrefixSummary *summary);

#endif
