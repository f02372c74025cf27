/* sampler.h - the next token from logits: greedy, temperature, top-k, top-p, min-p, penalties.
 *
 * The same seed, step and logits give the same token on every machine and device. Exponentials use only sums
 * and products of IEEE doubles or floats, never contracted. Probabilities are 64-bit integers, so their sums
 * do not depend on the order. Ties go to the lower id. The random number is a function of (seed, step). The
 * order of the filters is that of transformers: penalties, temperature, top-k, top-p, min-p. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/sampler_math.h"
#include "base/status.h"

C_BEGIN

typedef struct Sampler Sampler; /* settings, the count of draws, and the counts of seen tokens */

/* Opens a sampler for logits of vocab_size (1 .. SAMPLER_MAX_VOCAB) tokens, with none seen and nothing drawn.
 * Allocates all memory. Settings out of range: STATUS_USAGE. *sampler is NULL after a failure;
 * sampler_close() accepts NULL. */
Status sampler_open(const SamplerSettings *settings, int vocab_size, Sampler **sampler, Error *err);
size_t sampler_bytes(int vocab_size); /* about the memory that sampler_open() takes */
void sampler_close(Sampler *sampler);
void sampler_forget(Sampler *sampler); /* forgets the seen tokens and keeps the count of draws */
/* Sets the settings and begins with draw 0; keeps the seen tokens and the mask of sampler_allow(). Refuses
 * like sampler_open(), and then changes nothing. */
Status sampler_set(Sampler *sampler, const SamplerSettings *settings, Error *err);
/* Counts a token as seen: one of the prompt, or a generated one. */
void sampler_count_token(Sampler *sampler, int32_t id, bool generated);
/* From now on picks take only tokens whose bit is set in mask[(vocab_size + 63) / 64], the lowest bit first;
 * NULL: all tokens. The mask stays the caller's and unchanged while picks are made with it. */
void sampler_allow(Sampler *sampler, const uint64_t *mask);
const uint64_t *sampler_allowed(const Sampler *sampler);
/* Picks from logits[vocab_size] and counts one draw, but does not count the token as seen. STATUS_FAILED
 * if an allowed logit is NaN or +infinity, or if none is finite, so that a broken model does not produce
 * text. */
Status sampler_pick(Sampler *sampler, const float *logits, int32_t *id, Error *err);

/* For a device that picks by itself: the settings, the number of its next draw, and the seen tokens. */
const SamplerSettings *sampler_settings(const Sampler *sampler);
bool sampler_has_penalties(const Sampler *sampler);
uint64_t sampler_draws(const Sampler *sampler);          /* the number of the next draw */
void sampler_set_draws(Sampler *sampler, uint64_t n);    /* sets this number to n */
uint64_t sampler_take_draw(Sampler *sampler);            /* counts one draw and returns its number */
void sampler_return_draws(Sampler *sampler, uint64_t n); /* uncounts n draws, whose tokens were dropped */
uint64_t sampler_version(const Sampler *sampler);        /* changes whenever the seen-token counts change */
/* notes[vocab_size]: each token's count in the answer, plus SAMPLER_TOKEN_SEEN if it was seen at all. */
void sampler_token_counts(const Sampler *sampler, uint32_t *notes);

/* The natural log of softmax(logits)[id], computed in double, for perplexity and scores. */
double log_probability(const float *logits, int vocab_size, int32_t id);

typedef struct {
  int32_t id;
  double log_p; /* natural */
} TokenScore;
/* scores[0]: the score of `id`. scores[1 .. n]: those of the n likeliest tokens, the likeliest first; equally
 * likely ones in order of ids. Entries beyond vocab_size tokens have the id -1. */
void log_probabilities(const float *logits, int vocab_size, int32_t id, int n, TokenScore *scores);

C_END
