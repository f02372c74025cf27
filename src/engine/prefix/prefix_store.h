/* prefix_store.h - a prefix cache on disk: keys and values of long texts, so that a common prefix of many
 * prompts is prefilled once.
 *
 * A text is cut into blocks of PREFIX_BLOCK tokens, each in a file named by the hash of the ids up to its end
 * (as in vLLM's automatic prefix caching). The last block may be shorter:
 *
 *   ids     [0 .. 256)   [256 .. 512)   [512 .. 700)   a document of 690 tokens, then a question
 *                                       [512 .. 768)   the same document, then a longer question
 *
 * Whole blocks are found by name. After them one more block is used up to its first different token: the
 * block with the most tokens in common, at least PREFIX_MIN_USE. So two texts share their common prefix, and
 * no text has to mark its end.
 *
 * A model with a recurrent state needs that state as well. The store has a file of it for some of a text's
 * positions, above all the ends of prompts and where two texts began to differ (kept_states.h). The longest
 * common prefix with a state is used; what follows is computed again. */
#pragma once

#include "engine/prefix/prefix_file.h"
#include "engine/session.h"

/* Not saved: texts shorter than PREFIX_MIN_TOKENS; texts with fewer than PREFIX_MIN_NEW new tokens (tokens
 * that are not on disk yet); if the model has no recurrent state, a short last block with fewer than
 * PREFIX_MIN_NEW new tokens. PREFIX_MIN_USE: the fewest matching tokens for which a file is read; with a
 * recurrent state it is 1. */
enum { PREFIX_MIN_TOKENS = 256, PREFIX_MIN_NEW = 64, PREFIX_MIN_USE = 16 };

typedef struct {
  const char *directory; /* created if missing */
  const char *key;       /* text: what keys and values depend on besides the ids, compared byte by byte */
  const char *label;     /* the model's name for people */
  uint64_t limit_bytes;
  int n_threads;
  /* Reports a file that is not used, and the reason; may be NULL. */
  void (*note)(void *user, const char *text);
  void *user;
} PrefixStoreOptions; /* its strings outlive the store */

typedef struct PrefixStore PrefixStore;

Status prefix_store_open(const PrefixStoreOptions *options, PrefixStore **store, Error *err);
void prefix_store_close(PrefixStore *store);

typedef struct {
  int n_tokens;   /* restored, or saved */
  int n_files;    /* read, or written */
  uint64_t bytes; /* read or written */
  int n_removed;  /* files removed to make room */
} PrefixReport;

/* Extends the common prefix of the session and ids[0 .. n) by tokens from the store, to at most n - 1 tokens.
 * report->n_tokens: how many fewer tokens now have to be computed. Unusable files are reported to note() and
 * are no failure. If the session fails, it still holds the common prefix. */
Status prefix_store_restore(PrefixStore *store, Session *session, const int32_t *ids, int n,
                            PrefixReport *report, Error *err);

/* Saves those of the session's first n tokens that the store lacks (new tokens). It leaves out what exceeds
 * the limit, and a last block with fewer than PREFIX_MIN_NEW new tokens. With a recurrent model it saves new
 * tokens up to the last kept state, also in a short last block, if they are PREFIX_MIN_NEW or more. */
Status prefix_store_save(PrefixStore *store, Session *session, int n, PrefixReport *report, Error *err);
