/* map_settings.h - what decides the results of --map beside the records, so that a file of results is of one
 * model and one set of settings: told at the head of OUT.resume, and as a hash in each JSON result.
 *
 * A line is
 *
 *     0123456789abcdef NAME WHAT\n          such as   5f70bf18a0860070 -n 4
 *
 * the hash of the exact value, the name of the flag, and what a person reads in a message. */
#ifndef AUK_COMMANDS_MAP_MAP_SETTINGS_H
#define AUK_COMMANDS_MAP_MAP_SETTINGS_H

#include <stdbool.h>

#include "base/buffer.h"

typedef struct {
  Buffer lines;
  uint64_t hash; /* of hashes and names of all lines but -c's */
} MapSettings;   /* starts zeroed */

/* Adds a line. `what` (NULL: the value itself) is cut to one short line. */
Status map_settings_add(MapSettings *settings, const char *name, const void *value, size_t size,
                        const char *what, Error *err);
void map_settings_release(MapSettings *settings);

/* Refuses (STATUS_USAGE) to go on where lines[0..size) differ from the settings in a hash, and says in what.
 * `path` is the file of results. -c may differ where `context_may_differ`. */
Status map_settings_compare(const MapSettings *settings, const char *lines, size_t size,
                            bool context_may_differ, const char *path, Error *err);

#endif
