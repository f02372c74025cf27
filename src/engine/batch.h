/* batch.h - many answers at once: each step computes rows of several sequences, so that one read of the
 * weights serves them all.
 *
 * The caller gives requests one after another, and done() reports each at its end. A sequence that ends
 * leaves at once, and the next request enters with the next step. In a step all sequences that generate have
 * a row; the rows that are left go to prompts, the oldest first. Keys and values are in pages (page_pool.h):
 * sequences that begin alike share them. Where pages run out, the youngest sequence gives its pages back and
 * is computed again later.
 *
 * Where a backend gives a row the same bits with any other rows (the CPU; a GPU with StateOptions.invariant),
 * each answer is what it would be alone. With `invariant` a row of an answer, or of a guess, is always
 * computed as if it were alone, and a row of a prompt never is, also where tokens are forced or computed
 * again; so sequences share only keys and values of prompts. */
#pragma once

#include "engine/generate.h"

typedef struct Batch Batch;

typedef struct {
  int n_sequences;   /* at once; >= 1 */
  int n_ctx;         /* most tokens of a sequence; 0: the model's max_position */
  int n_pages;       /* pages of the backend's page_tokens tokens; 0: enough for n_sequences of n_ctx */
  int n_guesses;     /* most guesses of a sequence in a step; 0: none */
  bool guess_always; /* even where guesses do not pay */
  DraftSource draft;
  int n_drafters; /* while more sequences are in use there are no guesses; 0: one for each sequence */
  int chunk;      /* most rows of a step; 0: the backend's default; at least n_sequences */
  KvType kv;
  bool invariant; /* each answer is what it would be alone, on any backend; GUESS_ROWS guesses a step */
} BatchOptions;

/* The sizes that batch_open() will ask of the backend, for its state_bytes(). */
StateOptions batch_sizes(const BatchOptions *options, const Backend *backend, const ModelConfig *config);

/* Opens a pool without sequences. Refuses (STATUS_USAGE) a pool too small for one sequence of n_ctx, and a
 * backend that cannot compute several sequences at once. *batch is NULL after a failure. */
Status batch_open(const Backend *backend, BackendModel *loaded, const Model *model,
                  const BatchOptions *options, Batch **batch, Error *err);
void batch_close(Batch *batch);
int batch_context(const Batch *batch);

/* Tells what a sequence does in the next step. */
typedef enum { TURN_GO, TURN_WAIT, TURN_END } BatchTurn;

/* An answer to generate, or tokens to score. ids and sampler are copied; the rest is valid until done(). */
typedef struct {
  const int32_t *ids; /* [n_ids] the prompt, in [0, vocab_size) */
  int n_ids;
  const SamplerSettings *sampler;
  GenerateOptions generate; /* if BatchJob.interrupted is NULL, `interrupted` ends the answer */
  TokenSink sink;
  double *log_p; /* [n_scored] instead of an answer: natural log-probabilities of the last n_scored ids */
  int n_scored;
  int n_ctx; /* most tokens of this sequence; 0, or more than the batch's n_ctx: that n_ctx */
  /* Asked before each step; NULL: TURN_GO. For a sink that answers later than it returns: the reply,
   * zeroed before, is filled as the sink's would be. TURN_WAIT: no row in this step; TURN_END: done(),
   * FINISH_INTERRUPTED. A sequence with masks or forced tokens then has no guesses. */
  BatchTurn (*turn)(void *user, TokenReply *reply);
  void *user; /* for the sink, turn(), and allow() and score() of `generate` */
} BatchRequest;

typedef struct {
  Status status; /* of this request alone: what its sink returned, or STATUS_USAGE if it does not fit */
  Error error;
  GenerateResult generated;
  int n_reused;      /* tokens of the prompt that other sequences had computed */
  double prefill_ms; /* from the request to the end of its prompt */
} BatchResult;

/* A step before it is computed. */
typedef struct {
  TokenRange range; /* with its parts */
  int n_waiting;    /* sequences that have no row in the step */
  int n_taken_back; /* sequences that lost their pages in this step */
  int n_pages;      /* in use */
} BatchStep;

typedef struct {
  /* Gives the next request, if there is one. may_wait: no sequence is left to compute, so that the call may
   * wait for input. *found false: none now, or none any more if may_wait was true. */
  Status (*next)(void *user, bool may_wait, BatchRequest *request, bool *found, Error *err);
  Status (*done)(void *user, const BatchRequest *request, const BatchResult *result, Error *err);
  void (*step)(void *user, const BatchStep *step); /* before each step; may be NULL */
  const volatile int *interrupted;                 /* or NULL */
  void *user;
  /* After a step that computed a part of a request's prompt: `done` of `total` tokens are computed. When all
   * tokens are, n_reused and prefill_ms of the result are set; no token has been passed on. May be NULL. */
  void (*progress)(void *user, const BatchRequest *request, const BatchResult *result, int done, int total);
  /* Before each step, for what comes from outside; may_wait: each sequence that is left has TURN_WAIT. May be
   * NULL if no request has a turn(). */
  Status (*listen)(void *user, bool may_wait, Error *err);
} BatchJob;

/* Answers all requests. After STATUS_INTERRUPTED or another failure, done() is not called for the requests
 * that had not ended; no page is in use. */
Status batch_run(Batch *batch, const BatchJob *job, Error *err);
/* Pages that sequences use: 0 outside of batch_run(). */
int batch_pages_used(const Batch *batch);
