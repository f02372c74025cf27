/* cache.h - the prefix cache of a command: where it lies, what its files are for, when it is asked and
 * filled.
 *
 * Environment: XDG_CACHE_HOME, else HOME/.cache, holds the directory auk/ where no flag names one.
 * Whatever is wrong with the cache, it never costs the answer: it is told under -v, and the prompt is
 * prefilled. */
#ifndef AUK_COMMANDS_ANSWER_CACHE_H
#define AUK_COMMANDS_ANSWER_CACHE_H

#include "base/content.h"
#include "commands/device.h"
#include "engine/session.h"

typedef struct {
  bool on, off;          /* --cache, --no-cache: the latter wins */
  const char *directory; /* --cache-dir, or NULL */
  const char *limit;     /* --cache-limit, or NULL */
} CacheFlags;
extern const Flag cache_flags[4];
#define CACHE_FLAG_GROUP(Struct, member) FLAG_GROUP_IN("Cache", cache_flags, Struct, member, CacheFlags)

/* What a cache is opened for. All of it outlives the cache; the device need not be loaded yet. */
typedef struct {
  const Model *model;
  const char *model_path;
  const Device *device;
  KvType kv;
  bool verbose;
  const volatile int *interrupted;
} CacheUse;

typedef struct Cache Cache; /* NULL: there is none, and every call does nothing */

/* *cache stays NULL where the flags ask for none. A limit that is no size, or no place for the directory,
 * is STATUS_USAGE. */
Status cache_open(const CacheFlags *flags, const CacheUse *use, Cache **cache, Error *err);

/* Before a prompt is prefilled: has the session hold what the cache knows of its beginning. Where it takes
 * the place of another prompt, what both begin with is kept. */
void cache_restore(Cache *cache, Session *session, const int32_t *ids, int n);
/* After it: the session's first n tokens are worth keeping. */
void cache_prefilled(Cache *cache, int n);
/* Prompts come by the thousand: what two of them in a row begin with is kept once, and looked for once. */
void cache_expect_many(Cache *cache);
/* At the end, while the session is open: keeps the last prompt, and lets go of the cache. */
void cache_close(Cache *cache, Session *session);

/* Everything that decides the bits of keys and values but the ids: also the C library, whose sines and
 * cosines are in every key. */
enum { CACHE_KEY = 512 };
void cache_key(ContentHash program, ContentHash model, const char *backend, const char *arithmetic, KvType kv,
               char out[CACHE_KEY]);

/* Where it remembers the content of large files (content.h); NULL where there is no cache. */
const char *cache_known_directory(const Cache *cache);

/* The directory that the flags or the environment name, in new memory. */
Status cache_directory(const char *flag, char **directory, Error *err);

#endif
