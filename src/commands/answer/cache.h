/* cache.h - the prefix cache of a command: its directory, key, lookups and stores. If no flag names its
 * directory, the cache is in $XDG_CACHE_HOME/auk, else in $HOME/.cache/auk. A problem with the cache never
 * fails an answer: the prompt is prefilled. A note reports the first failure to open or write the cache, with
 * -v every problem. */
#pragma once

#include "base/content.h"
#include "commands/device.h"
#include "engine/one.h"

typedef struct {
  bool on, off;          /* --cache, --no-cache; `off` wins */
  bool on_is_usual;      /* `on` is from the settings file: --map drops it, to answer many records at once */
  const char *directory; /* --cache-dir, or NULL */
  const char *limit;     /* --cache-limit, or NULL */
} CacheFlags;
extern const Flag cache_flags[4];
#define CACHE_FLAG_GROUP(Struct, member) FLAG_GROUP_IN("Cache", cache_flags, Struct, member, CacheFlags)

/* The model, device and settings of a cache. All must outlive the cache; the device may be loaded later. */
typedef struct {
  const Model *model;
  const char *model_path;
  const Device *device;
  KvType kv;
  bool verbose;
  const volatile int *interrupted;
} CacheUse;

typedef struct Cache Cache; /* NULL: no cache, and the functions do nothing */

/* *cache stays NULL if the flags ask for none. STATUS_USAGE if the limit is invalid, or if neither a
 * flag nor the environment names a directory. */
Status cache_open(const CacheFlags *flags, const CacheUse *use, Cache **cache, Error *err);

/* The cache, for an engine with a session. restore() first stores, where that pays, the prefix that a prompt
 * shares with the session's previous prompt. Then it restores the longest prefix that the cache has.
 * prefilled() notes that the session holds a whole prompt. Without a cache the functions are NULL. */
PromptStore cache_store(Cache *cache);
/* Expects many prompts: the prefix that the first two share is stored once and looked up once. */
void cache_expect_many(Cache *cache);
/* At the end, while the session is open: stores the last prompt, or the prefix of cache_expect_many() if
 * there is one, and closes the cache. */
void cache_close(Cache *cache, Session *session);

enum { CACHE_KEY = 512 };
/* Writes the cache key: everything besides the ids that determines the bits of K and V. The C library is part
 * of the key, because its sines and cosines are in every K. */
void cache_key(ContentHash program, ContentHash model, const char *backend, const char *arithmetic, KvType kv,
               char out[CACHE_KEY]);

/* The directory for hashes of large files (content.h); NULL without a cache. */
const char *cache_known_directory(const Cache *cache);

/* The directory from the flags or the environment, in new memory. */
Status cache_directory(const char *flag, char **directory, Error *err);
