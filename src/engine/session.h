/* session.h - one timeline of tokens: its KV cache, its position, its logits, its sampler.
 *
 * Always true: session_ids()[0 .. session_length()) are exactly the tokens whose keys and values are in the
 * cache; session_length() <= n_ctx; nothing allocates after session_open(). */
#ifndef AUK_ENGINE_SESSION_H
#define AUK_ENGINE_SESSION_H

#include "engine/backend.h"

typedef struct Session Session;

typedef struct {
  int n_ctx; /* 0: the model's max_position; how much of it memory allows is for the command to say */
  int chunk; /* tokens of one prefill step; 0: what serves the backend */
  KvType kv;
  int max_logit_rows; /* 0: 1; eval keeps more */
  SamplerSettings sampler;
} SessionOptions;

/* What the backend will be asked for, so that its state_bytes() can be compared with the memory there is. */
StateOptions session_sizes(const SessionOptions *options, const Backend *backend, const ModelConfig *config);

/* An empty session on a loaded model, which stays the caller's and outlives it. Allocates all it will ever
 * need (STATUS_FAILED where that is not there); options out of range are STATUS_USAGE. NULL after a
 * failure. */
Status session_open(const Backend *backend, BackendModel *loaded, const Model *model,
                    const SessionOptions *options, Session **session, Error *err);
void session_close(Session *session);

int session_length(const Session *session);
int session_context(const Session *session); /* n_ctx */
const int32_t *session_ids(const Session *session);

/* Called between prefill steps with the tokens done so far of all; returning false stops with
 * STATUS_INTERRUPTED, the session holding what was done. May be NULL. */
typedef bool (*SessionProgress)(void *user, int done, int total);

/* Makes the session hold exactly ids[0..n) and have the logits of the last one: what differs from what it
 * holds is forgotten, the rest prefilled in chunks (the last token again where all agree). 0 < n <= n_ctx,
 * ids in [0, vocab_size), else STATUS_USAGE. */
Status session_sync(Session *session, const int32_t *ids, int n, SessionProgress progress, void *user,
                    Error *err);

/* Asks in the same way during what session_decode() and session_score() may have to compute again, where a
 * text grows beyond longrope's original length. NULL: nobody is asked. Stopped, the session holds less. */
void session_watch(Session *session, SessionProgress progress, void *user);

/* How many of ids[0..n), from the first on, session_sync() would not prefill: fewer than n. */
int session_common(const Session *session, const int32_t *ids, int n);

/* Forgets all tokens but the first n, of which there are as many. */
void session_keep(Session *session, int n);

/* Keys and values that were computed before, for prefix_store.c. session_restore() calls `source` with the
 * number of tokens that the session holds of ids[0..n) (all others are forgotten); the source hands keys and
 * values of tokens behind them, or of the same again, to session_kv_write(), for every layer, and sets
 * *n_held to the tokens that are there then, fewer than n: the last one's logits have to be computed. If it
 * fails, the session holds what it held. session_sync() of the same ids goes on from there. */
typedef Status (*KvSource)(void *user, Session *session, int *n_held, Error *err);
Status session_restore(Session *session, const int32_t *ids, int n, KvSource source, void *user, Error *err);
/* As Backend's kv_read() and kv_write() have it, the former of tokens that the session holds. */
Status session_kv_read(Session *session, Span span, int layer, void *out, Error *err);
Status session_kv_write(Session *session, Span span, int layer, int n_stored, const void *from, Error *err);
size_t session_kv_bytes(const Session *session); /* of one token in one layer; 0: they are not handed out */
int session_layers(const Session *session);
/* Whether the cached keys use LongRoPE's long factors (rope_original_context()). */
bool session_is_long(const Session *session);

/* Takes the logits of every token: sink(row, logits[vocab_size]) for rows 0 .. n-1 in order. For eval. Starts
 * a new timeline. */
typedef Status (*LogitsSink)(void *user, int row, const float *logits, Error *err);
Status session_evaluate(Session *session, const int32_t *ids, int n, LogitsSink sink, void *user, Error *err);

/* Scores a continuation without taking it: log_p[i] (natural) of ids[i] behind what the session holds and
 * ids[0..i). Needs the logits of the last token; afterwards the session holds what it held, without them, and
 * can score other continuations of the same tokens. All but the last of ids must fit into the context. */
Status session_score(Session *session, const int32_t *ids, int n, double *log_p, Error *err);

/* The tokens sampled from here on are those of a session that was opened with these settings. Out of range:
 * STATUS_USAGE, and those before stay. */
Status session_set_sampler(Session *session, const SamplerSettings *settings, Error *err);

Status session_sample(Session *session, int32_t *id,
                      Error *err); /* from the last logits; not yet in the cache */
Status session_decode(Session *session, int32_t id, Error *err); /* appends one token, makes its logits */

/* Running ahead of the host, where the backend can (session_runs_ahead): push() picks a token from the last
 * logits and decodes it, without waiting for either; pull() waits for the oldest pushed token, which is part
 * of the session from then on. A session with pushed tokens takes no other call but these until
 * session_settle(), which drops the ones that nobody pulled. At most session_context() - session_length() can
 * be pushed. */
bool session_runs_ahead(const Session *session);
Status session_push(Session *session, Error *err);
Status session_pull(Session *session, int32_t *id, Error *err);
int session_pushed(const Session *session);
Status session_settle(Session *session, Error *err);

Status session_logits(Session *session, float *out, Error *err); /* [vocab_size] of the last token */

#endif
