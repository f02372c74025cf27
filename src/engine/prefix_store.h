/* prefix_store.h - keys and values of long texts on disk, so that what many prompts begin with is prefilled
 * once.
 *
 * A text is cut into blocks of PREFIX_BLOCK tokens, each in a file named by the ids up to its end (as vLLM's
 * automatic prefix caching names its blocks). The last one may be shorter:
 *
 *   ids     [0 .. 256)   [256 .. 512)   [512 .. 700)              document, and a question behind it
 *                                       [512 .. 690) [690 .. 768)   the same document, another question
 *
 * Whole blocks are found by name. Of those that begin where they end, the one with the most tokens in common
 * is used up to the first that differs. So two texts share exactly what they have in common, wherever that
 * ends, and nobody says where. */
#ifndef AUK_ENGINE_PREFIX_STORE_H
#define AUK_ENGINE_PREFIX_STORE_H

#include "engine/prefix_file.h"
#include "engine/session.h"

/* Shorter texts are not worth a file, nor is a last block with fewer tokens that are not on disk already; and
 * a file is not worth reading for fewer tokens than the last of these. */
enum { PREFIX_MIN_TOKENS = 256, PREFIX_MIN_NEW = 64, PREFIX_MIN_USE = 16 };

typedef struct {
  const char *directory; /* made where it is not there */
  const char *key;       /* text: all that decides keys and values but the ids, compared to the byte */
  const char *label;     /* what a person calls the model */
  uint64_t limit_bytes;
  int n_threads;
  /* Told of files that are not used, and why; may be NULL. */
  void (*note)(void *user, const char *text);
  void *user;
} PrefixStoreOptions; /* its strings outlive the store */

typedef struct PrefixStore PrefixStore;

Status prefix_store_open(const PrefixStoreOptions *options, PrefixStore **store, Error *err);
void prefix_store_close(PrefixStore *store);

typedef struct {
  int n_tokens;   /* restored, or saved */
  int n_files;    /* read, or written */
  uint64_t bytes; /* of those */
  int n_removed;  /* by saving */
} PrefixReport;

/* Has the session hold as much of ids[0 .. n) as it does and the store has, at most n - 1 tokens. What cannot
 * be used is noted, and no failure; after a failure of the session, it still holds what it held. */
Status prefix_store_restore(PrefixStore *store, Session *session, const int32_t *ids, int n,
                            PrefixReport *report, Error *err);

/* Saves what the store has not of the first n tokens that the session holds, as far as that is worth it and
 * the limit allows. */
Status prefix_store_save(PrefixStore *store, Session *session, int n, PrefixReport *report, Error *err);

#endif
