/* prefix_directory.h - the directory of a prefix store: which files in it are the store's, and which go when
 * they take too much.
 *
 *   KKKKKKKKKKKKKKKK-PPPPPPPPPPPPPPPP-OOOOOOOOOOOOOOOO.kv   a block (prefix_file.h): hashes of its key, of
 *                                                           the ids before it, of those up to its end
 *   known-SSSSSSSSSSSSSSSS                                  of a large file's content (base/content.h)
 *   lock                                                    held by the one who removes files
 *
 * Any other name is somebody else's and never touched. */
#ifndef AUK_ENGINE_PREFIX_DIRECTORY_H
#define AUK_ENGINE_PREFIX_DIRECTORY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

enum { PREFIX_NAME = 56 }; /* room for any of these names */

void prefix_block_name(uint64_t key, uint64_t before, uint64_t own, char out[PREFIX_NAME]);

typedef struct {
  char name[PREFIX_NAME];
  bool block; /* else a memory of a file */
  uint64_t bytes;
  int64_t used_ns; /* since 1970, when it was written or used last */
} PrefixEntry;

typedef struct {
  PrefixEntry *items; /* [count] the longest unused first */
  size_t count, capacity;
  uint64_t bytes;
} PrefixList;

/* All that is the store's; a directory that is not there is empty. */
Status prefix_directory_list(const char *directory, PrefixList *list, Error *err);
void prefix_list_release(PrefixList *list);

/* Paths of the blocks behind these ids, up to `most` of them: names that begin alike. */
Status prefix_directory_blocks(const char *directory, uint64_t key, uint64_t before, size_t most,
                               PrefixList *list, Error *err);

/* Marks a file as used at this time. */
void prefix_mark_used(const char *path, int64_t used_ns);

/* Removes what was unused the longest until all is at most `limit` bytes; *n_removed counts. Where somebody
 * else is at it, it is left to them. */
Status prefix_directory_shrink(const char *directory, uint64_t limit, int *n_removed, Error *err);

#endif
