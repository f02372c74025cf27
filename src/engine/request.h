/* request.h - what an engine is asked for and what it gives back: ids in, ids out. Text, stop strings and
 * printing are the caller's. An engine is engine.h's, or another process (commands/keep/remote.h). */
#pragma once

#include "engine/drafters/guessing.h"

typedef enum {
  FINISH_EOS,
  FINISH_STOP,
  FINISH_LENGTH,
  FINISH_CONTEXT,
  FINISH_INTERRUPTED,
  FINISH_REPETITION, /* set by callers that detect repetition; an engine reports FINISH_STOP */
} FinishReason;
const char *finish_name(FinishReason reason); /* "eos", "stop", "length", ... */

enum { MOST_BEST = 100 }; /* largest n_best: how many likely tokens are reported with their scores */

/* The sink's reply to a token; zeroed before each call. */
typedef struct {
  bool stop; /* ends the answer, with FINISH_STOP */
  /* [n_forced] Tokens that come next, instead of the model's. The array stays valid until the sink has got
   * the last of them. A later reply's array replaces the tokens that are left of this one. */
  const int32_t *forced;
  int n_forced;
} TokenReply;

/* Receives each token, sampled or forced. A sampled end token comes only with ignore_eos. */
typedef Status (*TokenSink)(void *user, int32_t id, TokenReply *reply, Error *err);

typedef struct {
  int max_tokens;     /* -1: until an end token or the context's end */
  const int32_t *eos; /* [n_eos] */
  int n_eos;
  bool ignore_eos;
  bool may_force;        /* the sink may reply with forced tokens; `allow` implies may_force */
  const int32_t *forced; /* [n_forced] the first tokens, as in a TokenReply */
  int n_forced;
  /* Called before each token that the model samples, with the sink's `user`. Sets *mask to the tokens that
   * are allowed next (sampler_allow); NULL: all tokens. The mask stays unchanged until the next call. `allow`
   * NULL: always all tokens. */
  Status (*allow)(void *user, const uint64_t **mask, Error *err);
  /* Called for each token, sampled or forced, before the sink gets it, and for an end token. scores: n_best +
   * 1 of log_probabilities(), from the logits before the token. Tokens are then computed one by one. May be
   * NULL. n_best: 0 .. MOST_BEST */
  Status (*score)(void *user, const TokenScore *scores, Error *err);
  int n_best;
  const volatile int *interrupted; /* set to non-zero by a signal handler; may be NULL */
} GenerateOptions;

typedef struct {
  FinishReason reason;
  int n_generated; /* tokens that the sink got */
  GuessCounts guesses;
  /* first_token_ms: from the prompt's end to the first token; 0 in a batch. decode_ms: from the first token
   * to the end; in a batch, and for scores, from the prompt's end. */
  double first_token_ms, decode_ms;
} GenerateResult;

/* A sequence's part in the next step; see EngineRequest.turn. */
typedef enum { TURN_GO, TURN_WAIT, TURN_END } EngineTurn;

/* An answer to generate, or tokens to score. The sampler and the ids of a prompt are copied; the rest must
 * stay valid until done(), also ids that are scored. */
typedef struct {
  const int32_t *ids; /* [n_ids] the prompt, in [0, vocab_size); NULL: what the session holds (one.h) */
  int n_ids;
  const SamplerSettings *sampler;
  GenerateOptions generate; /* if EngineJob.interrupted is NULL, `interrupted` ends the answer */
  TokenSink sink;
  double *log_p; /* [n_scored] in place of an answer: the last n_scored ids' natural log-probabilities */
  int n_scored;
  int n_ctx; /* limit of this sequence's tokens; 0, or above the engine's n_ctx: the engine's n_ctx */
  /* True: the caller (`owner`) has one request at a time. An idle engine that has a session computes the
   * request in the session, with the same bits as a process of the caller's own. Tokens that the session
   * holds for one owner never change a bit of another owner's answer. */
  bool alone;
  const void *owner;
  /* [n_base] The common beginning of many prompts, or NULL. A session computes these tokens by themselves, in
   * the same steps each time. So no answer depends on the requests before it. */
  const int32_t *base;
  int n_base;
  /* Asked before each step; NULL: always TURN_GO. For a sink that learns its reply only later, as over a
   * socket. turn() puts forced tokens into the zeroed reply; masks come from allow(). TURN_WAIT: the sequence
   * has no row in this step, but a session goes on with its prompt. TURN_END: the sequence ends with
   * FINISH_INTERRUPTED. In a batch, a sequence with turn() has no guesses if it has allow() or may_force. */
  EngineTurn (*turn)(void *user, TokenReply *reply);
  void *user;   /* for the sink, turn(), and allow() and score() of `generate` */
  void *record; /* the caller's: what the request is for */
} EngineRequest;

typedef struct {
  Status status; /* of this request alone: for example of its sink, allow(), score() or request_check() */
  Error error;
  GenerateResult generated;
  int n_reused;      /* tokens of the prompt, and forced ones after it, that did not have to be computed */
  double prefill_ms; /* from the request to the end of its prompt */
} EngineResult;

/* A step that is about to be computed. */
typedef struct {
  TokenRange range; /* with its parts */
  int n_waiting;    /* sequences that have no row in the step */
  int n_taken_back; /* sequences that lost their pages in this step */
} EngineStep;

typedef struct {
  /* Gives the next request. may_wait: no sequence is left to compute, so the call is allowed to wait for
   * input. *found false: there is no request now; if may_wait was true, there will be none any more. */
  Status (*next)(void *user, bool may_wait, EngineRequest *request, bool *found, Error *err);
  Status (*done)(void *user, const EngineRequest *request, const EngineResult *result, Error *err);
  void (*step)(void *user, const EngineStep *step); /* before each step of a batch; may be NULL */
  const volatile int *interrupted;                  /* or NULL */
  void *user;
  /* Called after a step that computed a part of a request's prompt; in a session also before the first step.
   * `done` of `total` tokens are computed. Once the prompt is complete, n_reused and prefill_ms of the result
   * are set. A session also calls progress() while it computes the base, or its own tokens again
   * (session_watch()); `total` is then their number. May be NULL. */
  void (*progress)(void *user, const EngineRequest *request, const EngineResult *result, int done, int total);
  /* Before each step, for what comes from outside; may_wait: turn() of every remaining sequence said
   * TURN_WAIT. May be NULL if no request has a turn(). */
  Status (*listen)(void *user, bool may_wait, Error *err);
} EngineJob;

/* The most tokens of the request's sequence. n_ctx: the most tokens of any sequence of the engine. */
int request_context(const EngineRequest *request, int n_ctx);
/* Refuses (STATUS_USAGE) a request that does not fit request_context(). Also refuses ids that the model
 * lacks, forced ones included. */
Status request_check(const EngineRequest *request, int n_ctx, const ModelConfig *config, Error *err);

/* The state of a request between two steps, in both schedules (one.h, batch.h):
 *
 *   state        event                                           next state
 *   RUN_ENDED    the schedule begins a request                   RUN_ANSWER; RUN_SCORES if n_scored > 0
 *   RUN_SCORES   all scores are computed                         RUN_ENDED
 *   RUN_ANSWER   the sink gets the next token                    RUN_ANSWER; at the answer's end RUN_ENDED
 *                an end token comes, or max_tokens is 0          RUN_ENDED
 *                a batch keeps the next token for a later step   RUN_LATE; if the answer ends with the token
 *                                                                RUN_LAST
 *   RUN_LATE     the sink gets the late token                    RUN_ANSWER; at the answer's end RUN_ENDED
 *   RUN_LAST     the sink gets the late token                    RUN_ENDED
 *   any          TURN_END, an interruption, or a failure of      RUN_ENDED
 *                the request's own
 *
 * After RUN_ENDED the schedule calls done(). A step first computes what the prompt lacks, in any state. While
 * the last turn() said TURN_WAIT, the state stays. */
typedef enum { RUN_ENDED, RUN_SCORES, RUN_ANSWER, RUN_LATE, RUN_LAST } RunState;

/* A request that is being computed, for a schedule (one.c, batch.c) or its client (commands/keep/remote.c).
 * If the request's sink, allow() or score() fails, result.status and result.error say so. */
typedef struct {
  EngineRequest request;
  EngineResult result;
  RunState state;
  EngineTurn turn;       /* the last one */
  const int32_t *forced; /* [n_forced] tokens that the sink has not received yet */
  int n_forced;
  double start_ms, first_ms; /* when it began; when the first token came, set by the schedule (0: none) */
} Running;

void running_begin(Running *running, const EngineRequest *request);
/* The request's turn: TURN_END, which ends the request, if it is interrupted. Takes the tokens that turn()
 * forces. */
EngineTurn running_turn(Running *running, const EngineJob *job);
/* Gives the sampler the mask of the next token, unless this token is forced. */
Status running_restrict(Running *running, Sampler *sampler);
/* Makes the scores of a token and calls score(). */
Status running_score(Running *running, const float *logits, int vocab_size, int32_t id);
/* True if the next token is forced; *id: that token, which is removed from `forced`. */
bool running_forced(Running *running, int32_t *id);
/* The most tokens that may follow the next one; -1: any number. */
int running_more(const Running *running);
/* True if the answer ends with this sampled token, whatever its sink says. */
bool running_ends(const Running *running, int32_t id);
/* Passes a token, forced or sampled, to the sink. Afterwards the state is RUN_ANSWER, and the token is to be
 * decoded; or it is RUN_ENDED, and the result says why. has_room: the context has room for the token. PRECOND
 * max_tokens is not reached */
Status running_take(Running *running, int32_t id, bool is_forced, bool has_room);
/* Sets the result's times, at the end. */
void running_done(Running *running);
