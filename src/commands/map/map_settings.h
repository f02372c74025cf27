/* map_settings.h - what --map results depend on besides the records, so that all results in a file come from
 * one model and one set of settings. OUT.resume lists them in its head; each JSON result has their hash.
 * Results of a part of the records (--shard, --claim) say in further lines of the head which part: "prompt",
 * "input", "shard" or "blocks", and "lines". MapSettings.hash omits these lines, so that the results
 * equal those of a run over all records.
 *
 * A line holds the hash of the exact value, the name of the flag, and the value as messages show it:
 *
 *     0123456789abcdef NAME WHAT\n          such as   5f70bf18a0860070 -n 4 */
#pragma once

#include <stdbool.h>

#include "base/buffer.h"

typedef struct {
  Buffer lines;
  uint64_t hash; /* over the hashes and names of all lines except -c and the lines of a part */
} MapSettings;   /* starts zeroed */

/* Adds a line. `what` (NULL: the value itself) is shortened to one short line. */
Status map_settings_add(MapSettings *settings, const char *name, const void *value, size_t size,
                        const char *what, Error *err);
void map_settings_release(MapSettings *settings);

typedef enum { CONTEXT_MAY_DIFFER = 1, SHARD_MAY_DIFFER = 2 } SettingsTolerance;

/* Refuses (STATUS_USAGE) settings whose hashes differ from those in lines[0..size), and reports the first
 * difference. `path` is the results file with these lines. The settings are those of `other`, or of this run
 * if `other` is NULL. `tolerance`: a sum of SettingsTolerance. */
Status map_settings_compare(const MapSettings *settings, const char *lines, size_t size, int tolerance,
                            const char *path, const char *other, Error *err);

/* Takes settings from the lines of a file. *valid: all lines have the form above. */
Status map_settings_read(const char *lines, size_t size, MapSettings *settings, bool *valid, Error *err);
enum { SETTING_LIMIT = 64 };
/* Copies what the line `name` says; false: there is no such line. */
bool map_settings_find(const MapSettings *settings, const char *name, char what[SETTING_LIMIT]);

/* Adds the last line of settings of a part: "lines", the hash of all lines before it. */
Status map_settings_seal(MapSettings *settings, Error *err);
/* True if the last line is "lines" with the right hash, so that no line has changed since. */
bool map_settings_are_sealed(const MapSettings *settings);
