/* session.h - one timeline of tokens: its KV cache, its position, its logits, its sampler.
 *
 * Always true: ids[0 .. n_past) of session_view().text are exactly the tokens whose keys and values are in
 * the cache; n_past is at most the n_ctx that the session was opened with; nothing allocates after
 * session_open().
 *
 * Models with a recurrent state (backend.h) keep it at some positions (kept_states.h): before the last token
 * of each prompt, where two texts began to differ, before a scored continuation, and before a step
 * KEPT_STATES_STEP tokens or more after the last kept state. After a cut, the tokens after the last kept
 * state are computed again: by session_sync(), or when the next step needs the state. */
#pragma once

#include "engine/kept_states.h"
#include "engine/timeline.h"

typedef struct Session Session;

typedef struct {
  int n_ctx; /* 0: the model's max_position; the caller checks that it fits into memory */
  int chunk; /* tokens of one prefill step; 0: the backend's default */
  KvType kv;
  int max_logit_rows; /* of a step: raised to n_guesses + 1 (1 without a drafter), then cut to a chunk */
  SamplerSettings sampler;
  /* Guesses what comes next (drafters/drafter.h), so that session_decode_held() computes several tokens in a
   * step; NULL: no guesses. The drafter stays the caller's and outlives the session. */
  Drafter *drafter;
  int n_guesses;     /* most guesses in a step, 0 .. DRAFT_MOST */
  bool guess_always; /* even where guesses do not pay */
} SessionOptions;

/* The sizes that session_open() will ask of the backend; for Backend.state_bytes(). */
StateOptions session_sizes(const SessionOptions *options, const Backend *backend, const ModelConfig *config);

/* Opens an empty session on a loaded model. The model stays the caller's and outlives the session. Allocates
 * all memory (STATUS_FAILED: too little). Options out of range: STATUS_USAGE. *session is NULL after a
 * failure. */
Status session_open(const Backend *backend, BackendModel *loaded, const Model *model,
                    const SessionOptions *options, Session **session, Error *err);
void session_close(Session *session);

/* The session at the moment; the arrays are its own. */
typedef struct {
  const Backend *backend;
  int n_ctx;       /* the most that session_limit() allows */
  bool has_scored; /* session_score() was the last call: the next one needs no logits on the device */
  /* For sampler_set(), sampler_set_draws() and sampler_allow(), which affect the tokens that are sampled
   * afterwards: text->sampler. */
  const Timeline *text;   /* its tokens to compute are those of session_rewind() or session_hold() */
  int n_in_flight;        /* tokens of session_decode_async() that session_wait_token() has not given */
  const size_t *kv_bytes; /* [n_layers] bytes of a token in a layer's own cache; NULL: no session_kv_copy() */
  const size_t *state_bytes; /* [n_layers] of a layer's recurrent state; NULL: the model has none */
  const KeptStates *kept;    /* the kept states, by slot */
} SessionView;

SessionView session_view(const Session *session);
/* From now on the session holds at most n_ctx tokens. If n_ctx is 0, or larger than that of session_open(),
 * the limit is that of session_open(). PRECOND at the next step the tokens fit n_ctx */
void session_limit(Session *session, int n_ctx);

/* Called between prefill steps with the number of tokens done. Returning false stops with STATUS_INTERRUPTED;
 * the session then holds the tokens done so far. May be NULL. */
typedef bool (*SessionProgress)(void *user, int done, int total);

/* Makes the session hold exactly ids[0..n), with the logits of the last one. Keeps the common prefix, forgets
 * the rest, and prefills what is missing in chunks, at least the last token. STATUS_USAGE unless 0 < n <=
 * n_ctx and all ids are in [0, vocab_size). */
Status session_sync(Session *session, const int32_t *ids, int n, Error *err);

/* session_sync() step by step: after session_rewind(ids, n), computes the next chunk of the n tokens. PRECOND
 * n_past < n */
Status session_prefill(Session *session, int n, Error *err);

/* Sets the progress callback (or NULL) of session_sync() and of calls that compute tokens again.
 * session_decode(), session_decode_held() and session_score() prefill the whole text if its new length needs
 * LongRoPE's other factors. After session_keep() these three, session_prefill() and session_decode_async()
 * compute again what follows the last kept recurrent state. After an interruption the session may hold fewer
 * tokens. */
void session_watch(Session *session, SessionProgress progress, void *user);

/* The length of the prefix of ids[0..n) that session_sync() would not prefill; less than n. With a recurrent
 * state it may be less than what the texts have in common. */
int session_common(const Session *session, const int32_t *ids, int n);

/* Forgets all tokens but the first n. PRECOND n <= n_past */
void session_keep(Session *session, int n);

/* Makes ids[0..n) the text; only the common prefix (session_common()) is computed then. The rest waits for
 * session_prefill(), session_evaluate_step() or session_adopt(); session_keep() forgets it. */
Status session_rewind(Session *session, const int32_t *ids, int n, Error *err);
/* Restores what was computed before. After session_rewind(), session_kv_copy() writes later positions of
 * every layer; session_adopt() says that the first n tokens are now computed, and forgets the rest. Before,
 * session_state_add() gives a slot for the recurrent state after `pos` tokens, and session_state_copy() fills
 * it layer by layer. Tokens after the last such state are computed again. */
void session_adopt(Session *session, int n);
/* Backend.kv_copy(): to the host for tokens that the session holds, from it for any positions below n_ctx.
 * Does nothing for a layer without keys and values of its own. */
Status session_kv_copy(Session *session, CopyDirection direction, TokenRange range, int layer, int n,
                       void *host, Error *err);
/* session_state_add() returns a new slot for the state after pos > n_past tokens.
 * session_state_drop() frees a slot. session_state_copy() is Backend.state_copy(), and does nothing for a
 * layer without a recurrent state. */
int session_state_add(Session *session, int pos);
void session_state_drop(Session *session, int slot);
Status session_state_copy(Session *session, CopyDirection direction, int slot, int layer, void *host,
                          Error *err);

typedef Status (*LogitsSink)(void *user, int row, const float *logits, Error *err);
/* Computes ids[0..n) on an empty timeline and calls sink(row, logits[vocab_size]) for each of rows 0 .. n-1
 * in order. For eval. */
Status session_evaluate(Session *session, const int32_t *ids, int n, LogitsSink sink, void *user, Error *err);
/* session_evaluate() step by step: after session_keep(0) and session_rewind(ids, n), each call computes one
 * step. PRECOND n_past < n */
Status session_evaluate_step(Session *session, LogitsSink sink, void *user, Error *err);

/* Scores a continuation without keeping it: log_p[i] is the natural log-probability of ids[i] after the
 * session's tokens and ids[0..i). Needs the logits of the last token. Afterwards the session holds the same
 * tokens without logits and can score other continuations. ids[0..n-1) must fit into the context. */
Status session_score(Session *session, const int32_t *ids, int n, double *log_p, Error *err);

Status session_sample(Session *session, int32_t *id,
                      Error *err); /* from the last logits; the token is not in the cache yet */
Status session_decode(Session *session, int32_t id, Error *err); /* appends one token, makes its logits */

/* Several known tokens. session_hold() takes them one by one; false: the context is full.
 * session_decode_held() appends them, in one step unless they exceed a chunk, and makes the logits of the
 * last one. If it fails, the tokens that it has not appended are forgotten. Between the two no other function
 * may append. With a drafter the step also computes guesses, at most n_more: the number of tokens that may
 * follow the held ones (-1: any number). A later call for rightly guessed tokens has no step to compute. */
bool session_hold(Session *session, int32_t id);
int session_room(const Session *session); /* the most tokens that session_hold() takes now */
Status session_decode_held(Session *session, int n_more, Error *err);
/* *ids: the guesses that are computed after the session's tokens. Returns their number. */
int session_guessed(const Session *session, const int32_t **ids);
/* Forgets how guesses fared, on which the number of tokens that the next steps guess depends. So the next
 * answer has the bits of a new session, even if a backend rounds steps of several rows differently. */
void session_forget_guesses(Session *session);
/* The counts of guesses since the last such call, or since session_open() or session_forget_guesses(). */
GuessCounts session_take_guesses(Session *session);

/* Asynchronous decode, if session_decodes_async(). session_decode_async() enqueues sampling a token from the
 * last logits and decoding it. session_wait_token() waits for the oldest token in flight; from then on the
 * session holds it. session_drain() drops the tokens in flight. While there are any, no other function may
 * compute, append or forget tokens. At most n_ctx - n_past may be in flight. */
bool session_decodes_async(const Session *session);
/* *expects: the next steps are likely to take guesses, or computed guesses are left that no token has
 * confirmed yet (session_guessed()). Then no more tokens should be enqueued: the host has to know the token
 * before a guess. n_more: as in session_decode_held(). */
Status session_expects_guesses(Session *session, int n_more, bool *expects, Error *err);
Status session_decode_async(Session *session, Error *err);
Status session_wait_token(Session *session, int32_t *id, Error *err);
Status session_drain(Session *session, Error *err);

/* How many bytes a step of one token at `pos` saves if the sampler's settings let it read lm_head in 8 bits
 * (Backend.head_spares); else 0. */
size_t session_head_spares(const Session *session, int pos);

Status session_logits(Session *session, float *out, Error *err); /* [vocab_size] of the last token */
/* The same logits in the session's own memory, valid until the session's next call. */
Status session_last_logits(Session *session, const float **logits, Error *err);
