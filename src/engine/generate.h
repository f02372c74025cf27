/* generate.h - the loop of sampling a token, passing it to the caller and decoding it. Tokens that the caller
 * forces are decoded together. It knows ids only: text, stop strings and printing are the caller's. */
#pragma once

#include "engine/session.h"

typedef enum {
  FINISH_EOS,
  FINISH_STOP,
  FINISH_LENGTH,
  FINISH_CONTEXT,
  FINISH_INTERRUPTED,
  FINISH_REPETITION, /* set by callers that detect repetition; generate() reports FINISH_STOP */
} FinishReason;
const char *finish_name(FinishReason reason); /* "eos", "stop", "length", ... */

enum { MOST_BEST = 100 }; /* the likeliest tokens that are scored beside a token */

/* The sink's wish for what follows a token; zeroed before each call. */
typedef struct {
  bool stop; /* the end, with FINISH_STOP */
  /* [n_forced] Tokens that come next, instead of the model's. The array stays valid until the sink has had
   * the last of them; a later reply's array replaces the tokens that are left of this one. */
  const int32_t *forced;
  int n_forced;
} TokenReply;

/* Takes each token, sampled or forced, except the end token that the model samples. */
typedef Status (*TokenSink)(void *user, int32_t id, TokenReply *reply, Error *err);

typedef struct {
  int max_tokens;     /* -1: until an end token or the context's end */
  const int32_t *eos; /* [n_eos] */
  int n_eos;
  bool ignore_eos;
  bool may_force;        /* the sink may reply with forced tokens; `allow` implies it */
  const int32_t *forced; /* [n_forced] the first tokens, as in a TokenReply */
  int n_forced;
  /* Called before each token that the model samples, with the sink's `user`: sets *mask to the tokens that
   * may be next (session_allow), or to NULL: all tokens. The mask stays unchanged until the next call.
   * `allow` NULL: always all tokens. */
  Status (*allow)(void *user, const uint64_t **mask, Error *err);
  /* Called before each token that the sink gets, and for an end token, with its [n_best + 1] scores
   * (log_probabilities()) by the logits of its position, also if it is forced. Tokens are then computed one
   * by one. May be NULL. n_best: 0 .. MOST_BEST */
  Status (*score)(void *user, const TokenScore *scores, Error *err);
  int n_best;
  const volatile int *interrupted; /* set to non-zero by a signal handler; may be NULL */
} GenerateOptions;

typedef struct {
  FinishReason reason;
  int n_generated; /* tokens that the sink got */
  GuessCounts guesses;
  double first_token_ms, decode_ms; /* from the call to the first token; from then to the end */
} GenerateResult;

/* The tokens of one answer, for a loop that decodes them (generate(), batch.c). */
typedef struct {
  const GenerateOptions *options;
  TokenSink sink;
  void *user;
  GenerateResult *result;
  const int32_t *forced; /* [n_forced] tokens that the sink has not received yet */
  int n_forced;
} Generation;

/* Scores a token for the options' score(). */
Status generation_score(const GenerateOptions *options, void *user, const float *logits, int vocab_size,
                        int32_t id, Error *err);

/* True if the next token is forced: *id = that token, which counts as taken. */
bool generation_forced(Generation *generation, int32_t *id);
/* True if the answer ends with this sampled token, whatever its sink says. */
bool generation_ends(const Generation *generation, int32_t id);
/* Takes a token, forced or sampled. *ended: the answer ends here, and the result says why; else the token is
 * to be decoded. PRECOND options->max_tokens is not reached */
Status generation_take(Generation *generation, int32_t id, bool is_forced, bool *ended, Error *err);

/* Asynchronous decode gives the same tokens and uses the same random numbers as synchronous decode.
 * PRECOND the session holds a prompt and its logits (session_sync). */
Status generate(Session *session, const GenerateOptions *options, TokenSink sink, void *user,
                GenerateResult *result, Error *err);

/* generate() token by token, for a caller that computes something else between tokens: generating_begin(),
 * steps until *ended, and generating_end() with the last step's status. A sink whose wishes come later than
 * its return puts forced tokens into `generation` between two steps. */
typedef struct {
  Generation generation;
  GuessCounts before;
  double start_ms, first_ms; /* first_ms 0: there was no token */
} Generating;
void generating_begin(Generating *generating, const Session *session, const GenerateOptions *options,
                      TokenSink sink, void *user, GenerateResult *result);
Status generating_step(Generating *generating, Session *session, bool *ended, Error *err);
Status generating_end(const Generating *generating, Session *session, Status so_far, Error *err);
