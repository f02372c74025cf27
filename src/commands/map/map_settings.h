/* map_settings.h - the inputs of --map results besides the records, so that all results in a file come from
 * one model and one set of settings. OUT.resume lists them in its head; each JSON result has their hash.
 *
 * A line holds the hash of the exact value, the name of the flag, and the value as messages show it:
 *
 *     0123456789abcdef NAME WHAT\n          such as   5f70bf18a0860070 -n 4 */
#pragma once

#include <stdbool.h>

#include "base/buffer.h"

typedef struct {
  Buffer lines;
  uint64_t hash; /* hash of the hashes and names of all lines except -c's */
} MapSettings;   /* starts zeroed */

/* Adds a line. `what` (NULL: the value itself) is shortened to one short line. */
Status map_settings_add(MapSettings *settings, const char *name, const void *value, size_t size,
                        const char *what, Error *err);
void map_settings_release(MapSettings *settings);

/* Refuses (STATUS_USAGE) settings whose hashes differ from those in lines[0..size), and reports the first
 * difference. `path` is the file of results. -c may differ if `context_may_differ`. */
Status map_settings_compare(const MapSettings *settings, const char *lines, size_t size,
                            bool context_may_differ, const char *path, Error *err);
