/* prefix_directory.h - the directory of a prefix store: its file names, and the removal of its oldest files.
 *
 *   KKKKKKKKKKKKKKKK-PPPPPPPPPPPPPPPP-OOOOOOOOOOOOOOOO.kv   a block of tokens (prefix_file.h). K: hash of
 *                                                           PrefixStoreOptions.key; P: hash of the ids before
 *                                                           the block; O: hash of the ids up to its end
 *   KKKKKKKKKKKKKKKK-PPPPPPPPPPPPPPPP-OOOOOOOOOOOOOOOO.rs   the recurrent state after a block's last token
 *   known-SSSSSSSSSSSSSSSS                                  the hash of a large file (base/content.h)
 *   lock                                                    locked by the process that removes files
 *
 * Other files are never touched, except old temporary ones (.auk-*.tmp, base/file.h). */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

enum { PREFIX_NAME = 56 }; /* bytes that hold the longest name and its zero */

/* The name of a block, or of the state after it. */
void prefix_file_name(uint64_t key, uint64_t before, uint64_t own, bool state, char out[PREFIX_NAME]);

typedef struct {
  char name[PREFIX_NAME];
  bool block; /* a block or a state; false: a known-... file */
  uint64_t bytes;
  int64_t used_ns; /* time of the last use, since 1970 */
} PrefixEntry;

typedef struct {
  PrefixEntry *items; /* [count] least recently used first */
  size_t count, capacity;
  uint64_t bytes;
} PrefixList;

/* Lists all blocks, states and known-... files; a missing directory counts as empty. */
Status prefix_directory_list(const char *directory, PrefixList *list, Error *err);
void prefix_list_release(PrefixList *list);

/* Lists up to `most` blocks, or states, that follow the ids with hash `before`. */
Status prefix_directory_blocks(const char *directory, uint64_t key, uint64_t before, bool states, size_t most,
                               PrefixList *list, Error *err);

void prefix_mark_used(const char *path, int64_t used_ns);

/* Removes the least recently used files until the rest takes at most `limit` bytes; *n_removed counts them.
 * Does nothing while another process does the same. */
Status prefix_directory_shrink(const char *directory, uint64_t limit, int *n_removed, Error *err);
