/* batch_memory.h - the memory of a batch: how many sequences and pages fit into it. */
#pragma once

#include "engine/batch.h"

/* The pages that hold n_tokens tokens; 0 if the backend has no pages. */
int batch_pages(const Backend *backend, int n_tokens);

/* How many of the `left` bytes beside the weights a batch may take: half if they are the host's, or if the
 * model is kept for later requests; else all but an eighth. */
size_t batch_share(const Backend *backend, size_t left, bool is_kept);

/* Refuses (STATUS_USAGE) the options that batch_open() refuses. */
Status batch_check(const BatchOptions *options, const Backend *backend, const ModelConfig *config,
                   Error *err);

/* The most guesses of a sequence in a step, and the number of drafters that batch_open() opens. Both are 0
 * without options->draft or n_guesses, and for a model with recurrent states. */
int batch_guesses(const BatchOptions *options, const Backend *backend, const ModelConfig *config);
int batch_drafters(const BatchOptions *options, const Backend *backend, const ModelConfig *config);

/* Bytes that a batch with every slot in use takes of the memory that the backend computes in, drafters
 * included. */
size_t batch_bytes(const BatchOptions *options, const Backend *backend, const ModelConfig *config);

/* The options for n sequences with the fewest pages: as many as one context needs. */
BatchOptions batch_least(const BatchOptions *options, const Backend *backend, const ModelConfig *config,
                         int n);

/* The most sequences, up to n, that fit into `bytes` with the fewest pages; 0: not one. */
int batch_most_sequences(const BatchOptions *options, const Backend *backend, const ModelConfig *config,
                         int n, size_t bytes);

/* The number of sequences to open if the user names none: as many of backend->sequences as fit into `bytes`
 * with pages for 512 tokens each. If these are fewer than 256, it is as many as fit with the fewest pages, up
 * to 256. 0: not one fits. */
int batch_usual_sequences(const BatchOptions *options, const Backend *backend, const ModelConfig *config,
                          size_t bytes);

/* The number of pages to open for options->n_sequences sequences: enough for a whole context each, or as many
 * as fit into `bytes` if these are fewer, but at least enough for one context. */
int batch_most_pages(const BatchOptions *options, const Backend *backend, const ModelConfig *config,
                     size_t bytes);
