/* batch.h - the schedule of many sequences (for engine.c): each step computes rows of several sequences, so
 * that one read of the weights serves them all.
 *
 * A sequence that ends leaves at once, and the next request enters with the next step. In a step all
 * sequences that generate have a row; the rows that are left go to prompts, the oldest first. Keys and values
 * are in pages (page_pool.h): sequences that begin alike share them. Where pages run out, the youngest
 * sequence gives its pages back and is computed again later. The states of a sequence are a request's
 * (request.h, RunState).
 *
 * Where a backend gives a row the same bits with any other rows (the CPU; a GPU with
 * StateOptions.invariant), each answer is what it would be alone. With `invariant` the kernels for single
 * rows give a row other bits than the kernels for prompts. Rows of answers and guesses always take the
 * kernels for single rows, even if they are forced, or computed again after their pages were given back.
 * Rows of prompts always take the kernels for prompts. So sequences share only pages of prompts. */
#pragma once

#include "engine/request.h"

typedef struct Batch Batch;

enum { MOST_SEQUENCES = 4096 }; /* at once; memory may allow fewer (batch_memory.h) */

typedef struct {
  int n_sequences;   /* at once; >= 1 */
  int n_ctx;         /* most tokens of a sequence; 0: the model's max_position */
  int n_pages;       /* pages of the backend's page_tokens tokens; 0: enough for n_sequences of n_ctx */
  int n_guesses;     /* most guesses of a sequence in a step; 0: none */
  bool guess_always; /* makes guesses even where they do not pay */
  DraftSource draft;
  int n_drafters; /* while more sequences than this are active, none has guesses; 0: one for each sequence */
  /* Most rows of a step, at least n_sequences (with `invariant`, n_sequences + page_tokens): a smaller number
   * is raised. 0: the backend's default. */
  int chunk;
  KvType kv;
  StatesType states;
  bool invariant; /* StateOptions.invariant; a step's guesses are then at most GUESS_ROWS in all */
} BatchOptions;

/* The sizes that batch_open() will ask of the backend; for Backend.state_bytes(). */
StateOptions batch_sizes(const BatchOptions *options, const Backend *backend, const ModelConfig *config);

/* Opens a batch without requests. Refuses (STATUS_USAGE) sizes out of range, fewer pages than one sequence of
 * n_ctx needs, and a backend that cannot compute several sequences at once. *batch is NULL after a
 * failure. */
Status batch_open(const Backend *backend, BackendModel *loaded, const Model *model,
                  const BatchOptions *options, Batch **batch, Error *err);
void batch_close(Batch *batch);
int batch_context(const Batch *batch);

bool batch_is_empty(const Batch *batch);
bool batch_has_room(const Batch *batch); /* for one more request */
/* Begins a request. An invalid one fails alone: done() gets its error. PRECOND batch_has_room() */
Status batch_enter(Batch *batch, const EngineJob *job, const EngineRequest *request, Error *err);
typedef Status (*BatchRefill)(void *user, const EngineJob *job, Error *err);
/* Computes a step. refill(user) takes new requests; a pipelining batch (batch.c) calls it while the device
 * computes. *idle: nothing was computed, since every turn() said TURN_WAIT. PRECOND the batch is not empty */
Status batch_step(Batch *batch, const EngineJob *job, BatchRefill refill, void *user, bool *idle, Error *err);
/* Drops all requests, without done(). */
void batch_drop(Batch *batch);
int batch_pages_used(const Batch *batch); /* 0 if the batch is empty */
