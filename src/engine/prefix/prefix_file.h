/* prefix_file.h - an untrusted file with the keys and values of up to PREFIX_BLOCK tokens of a text (a
 * block), or with the recurrent state after them.
 *
 *   offset  type                  field
 *        0  char[8]               "aukpfx3\n" of a block, "aukrec1\n" of a state
 *        8  i32                   start: tokens of the text before this block, a multiple of PREFIX_BLOCK
 *       12  i32                   n: tokens of this block, 1 .. PREFIX_BLOCK
 *       16  i32                   n_layers
 *       20  i32                   key_size
 *       24  i32                   long_rope: 1 if the keys use LongRoPE's long factors
 *       28                        zeros
 *       32  u64                   data_bytes: bytes of the data of all layers
 *       40  u64                   hash64() of all other bytes before the data
 *       48  char[64]              label: the model's name for people; not compared
 *      112  char[key_size]        key: what the numbers depend on besides the ids, zeros to a multiple of 8
 *           i32[start + n]        ids of the whole text so far, zeros to a multiple of 8
 *           u64[n_layers]         hash64() of each layer's bytes
 *           for each layer: n * layer_bytes[layer] bytes, as Backend's kv_copy() makes them;
 *                           in a state layer_bytes[layer] bytes, as Backend's state_copy() makes them
 *
 * Numbers have the machine's byte order; in the other order they are out of range. The file is used if its
 * head's hash is right, its fields match PrefixKind and `start`, and enough of its ids are the text's
 * (prefix_store.c). A layer's bytes are used if their hash is right. Files are read and never mapped: a
 * truncated file makes a read fail and raises no SIGBUS. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

enum { PREFIX_BLOCK = 256, PREFIX_HEADER = 112, PREFIX_LABEL = 64 };

/* The fields that a usable file must match. */
typedef struct {
  const char *key;
  int n_layers;
  const size_t *layer_bytes; /* [n_layers] a layer's bytes of one token, or of the state */
  bool long_rope;
  bool state; /* a recurrent state, else a block */
} PrefixKind;

typedef struct {
  char *path;
  int descriptor;
  int start, n;
  size_t data_bytes, data_offset;
  unsigned char *head;  /* the file up to its data, and perhaps more */
  const int32_t *ids;   /* [start + n] in `head` */
  const uint64_t *sums; /* [n_layers] in `head` */
} PrefixFile;

/* Opens a file and checks all but its data. *found is false without failure if `path` does not exist. Release
 * with prefix_file_close(), also after a failure. */
Status prefix_file_open(const char *path, const PrefixKind *kind, int start, PrefixFile *file, bool *found,
                        Error *err);
void prefix_file_close(PrefixFile *file);

/* Reads a layer's data to `out` and checks its hash. */
Status prefix_file_layer(const PrefixFile *file, const PrefixKind *kind, int layer, void *out, Error *err);

/* Bytes of the data of a file for n tokens: of one layer, of all, and of the layer that has the most. */
size_t prefix_layer_bytes(const PrefixKind *kind, int layer, int n);
size_t prefix_data_bytes(const PrefixKind *kind, int n);
size_t prefix_most_bytes(const PrefixKind *kind, int n);

/* The size in bytes of the file of n tokens from `start` on. */
size_t prefix_file_bytes(const PrefixKind *kind, int start, int n);

/* Writes ids[0 .. start + n) and the data, layer after layer, atomically to `path`, readable by its owner
 * only. */
Status prefix_file_write(const char *path, const PrefixKind *kind, const char *label, const int32_t *ids,
                         int start, int n, const void *data, const uint64_t *sums, Error *err);

/* Checks the head of a file of file_size bytes against `kind`. Sets start, n, data_bytes, data_offset, ids
 * and sums of `file`; ids and sums point into `head`. PRECOND head is aligned to 8 bytes */
Status prefix_head_check(const char *name, const unsigned char *head, size_t head_size, uint64_t file_size,
                         const PrefixKind *kind, int start, PrefixFile *file, Error *err);

/* A file's own description, unchecked, for lists of files. prefix_file_summary() returns false if the file is
 * neither a block nor a state. */
typedef struct {
  int start, n;
  bool state;
  char label[PREFIX_LABEL];
} PrefixSummary;
bool prefix_file_summary(const char *path, PrefixSummary *summary);
