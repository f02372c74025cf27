/* sampler.c - sampling on the host; sampler_math.h has the rules, step by step, and their arithmetic.
 *
 * Always true: nothing allocates after sampler_open(); the candidates are in order of ids; n_seen entries
 *              of `seen` are true.
 *
 * Top-k and top-p cut the same ranking: top-k by count, top-p by weight. A radix select finds the cut without
 * sorting, in 3 passes over the candidates. A histogram of the keys' upper bits gives the bin in which the
 * cut lies. A second and a third give the cut's next bits. Equal keys have equal weights; ids decide between
 * them. */

#include "engine/sampler.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/sampler_math.h"

_Static_assert(FLT_EVAL_METHOD == 0, "float and double arithmetic must round to float and double");

enum {
  CUT_BINS = 2048,
  LANES = 8, /* hot loops run over whole groups of this size, so that compilers vectorise them */
};

struct Sampler {
  SamplerSettings settings;
  int vocab_size;
  uint64_t n_draws;
  uint64_t version; /* counts changes of the seen tokens */

  /* All arrays have room for vocab_size rounded up to a multiple of LANES. */
  bool *seen;          /* [vocab_size] in the prompt or in the answer */
  uint32_t *generated; /* [vocab_size] counts in the answer */
  int32_t *seen_ids;   /* [n_seen] of vocab_size */
  int n_seen;

  const uint64_t *allowed; /* the mask of sampler_allow(), or NULL */
  float *scores;           /* [vocab_size] the logits with mask and penalties applied */

  int32_t *ids;      /* [n_candidates] of vocab_size */
  uint32_t *keys;    /* [n_candidates] sampler_key() of their scores */
  uint64_t *weights; /* [n_candidates] */
  int n_candidates;
  uint64_t bins[CUT_BINS];
};

static Status check_settings(const SamplerSettings *s, int vocab_size, Error *err) {
  if (!(s->temperature >= 0 && s->temperature <= FLT_MAX))
    return error_set(err, STATUS_USAGE, "temperature is %g, expected 0 or more", s->temperature);
  if (s->top_k < 0) return error_set(err, STATUS_USAGE, "top-k is %d, expected 0 or more", s->top_k);
  if (!(s->top_p >= 0 && s->top_p <= 1))
    return error_set(err, STATUS_USAGE, "top-p is %g, expected 0 to 1", s->top_p);
  if (!(s->min_p >= 0 && s->min_p <= 1))
    return error_set(err, STATUS_USAGE, "min-p is %g, expected 0 to 1", s->min_p);
  if (!(s->repetition_penalty >= 1e-3 && s->repetition_penalty <= 1e3))
    return error_set(err, STATUS_USAGE, "repetition penalty is %g, expected 0.001 to 1000",
                     s->repetition_penalty);
  if (!(fabs(s->presence_penalty) <= 1e3 && fabs(s->frequency_penalty) <= 1e3))
    return error_set(err, STATUS_USAGE,
                     "presence and frequency penalties are %g and %g, expected -1000 to 1000",
                     s->presence_penalty, s->frequency_penalty);
  if (vocab_size < 1 || vocab_size > SAMPLER_MAX_VOCAB)
    return error_set(err, STATUS_MODEL, "vocabulary of %d tokens, expected 1 to %d", vocab_size,
                     SAMPLER_MAX_VOCAB);
  return STATUS_OK;
}

RELEASE_BY(sampler_release, Sampler, sampler_close)

Status sampler_open(const SamplerSettings *settings, int vocab_size, Sampler **sampler, Error *err) {
  *sampler = NULL;
  TRY(check_settings(settings, vocab_size, err));
  size_t n = ((size_t)vocab_size + LANES - 1) / LANES * LANES;
  OWNED(sampler_release) Sampler *s = NULL;
  TRY(NEW(s, 1, "sampler", err));
  s->settings = *settings;
  s->vocab_size = vocab_size;
  TRY(NEW(s->seen, n, "sampler", err));
  TRY(NEW(s->generated, n, "sampler", err));
  TRY(NEW(s->seen_ids, n, "sampler", err));
  TRY(NEW(s->scores, n, "sampler", err));
  TRY(NEW(s->ids, n, "sampler", err));
  TRY(NEW(s->keys, n, "sampler", err));
  TRY(NEW(s->weights, n, "sampler", err));
  *sampler = TAKE(s);
  return STATUS_OK;
}

size_t sampler_bytes(int vocab_size) {
  const Sampler *s = NULL;
  return sizeof *s +
         (size_t)vocab_size * (sizeof *s->seen + sizeof *s->generated + sizeof *s->seen_ids +
                               sizeof *s->scores + sizeof *s->ids + sizeof *s->keys + sizeof *s->weights);
}

void sampler_close(Sampler *s) {
  if (!s) return;
  free(s->seen);
  free(s->generated);
  free(s->seen_ids);
  free(s->scores);
  free(s->ids);
  free(s->keys);
  free(s->weights);
  free(s);
}

void sampler_forget(Sampler *s) {
  s->version++;
  for (int i = 0; i < s->n_seen; i++) {
    s->seen[s->seen_ids[i]] = false;
    s->generated[s->seen_ids[i]] = 0;
  }
  s->n_seen = 0;
}

Status sampler_set(Sampler *s, const SamplerSettings *settings, Error *err) {
  TRY(check_settings(settings, s->vocab_size, err));
  s->settings = *settings;
  s->n_draws = 0;
  return STATUS_OK;
}

void sampler_count_token(Sampler *s, int32_t id, bool generated) {
  s->version++;
  if (!s->seen[id]) {
    s->seen[id] = true;
    s->seen_ids[s->n_seen++] = id;
  }
  if (generated) s->generated[id]++;
}

const SamplerSettings *sampler_settings(const Sampler *s) {
  return &s->settings;
}

bool sampler_has_penalties(const Sampler *s) {
  const SamplerSettings *set = &s->settings;
  return set->repetition_penalty != 1 || set->presence_penalty != 0 || set->frequency_penalty != 0;
}

uint64_t sampler_take_draw(Sampler *s) {
  return s->n_draws++;
}

uint64_t sampler_draws(const Sampler *s) {
  return s->n_draws;
}

void sampler_set_draws(Sampler *s, uint64_t n) {
  s->n_draws = n;
}

void sampler_return_draws(Sampler *s, uint64_t n) {
  s->n_draws -= n;
}

void sampler_allow(Sampler *s, const uint64_t *mask) {
  s->allowed = mask;
}

const uint64_t *sampler_allowed(const Sampler *s) {
  return s->allowed;
}

uint64_t sampler_version(const Sampler *s) {
  return s->version;
}

void sampler_token_counts(const Sampler *s, uint32_t *notes) {
  memset(notes, 0, (size_t)s->vocab_size * sizeof *notes);
  for (int i = 0; i < s->n_seen; i++) {
    int32_t id = s->seen_ids[i];
    notes[id] = s->generated[id] | SAMPLER_TOKEN_SEEN;
  }
}

/* Sets the scores of forbidden tokens to -infinity, in scores[0..n), n <= 64, with few scattered writes. */
static void forbid(float *scores, int n, uint64_t allowed) {
  const uint64_t all = UINT64_MAX >> (64 - n);
  const bool few = __builtin_popcountll(allowed & all) < n / 2;
  float kept[64];
  int n_kept = 0;
  if (!few) {
    for (uint64_t bits = all & ~allowed; bits; bits &= bits - 1) scores[__builtin_ctzll(bits)] = -INFINITY;
    return;
  }
  for (uint64_t bits = all & allowed; bits; bits &= bits - 1) kept[n_kept++] = scores[__builtin_ctzll(bits)];
  for (int i = 0; i < n; i++) scores[i] = -INFINITY;
  n_kept = 0;
  for (uint64_t bits = all & allowed; bits; bits &= bits - 1) scores[__builtin_ctzll(bits)] = kept[n_kept++];
}

/* The scores to pick from. Without a mask they are the logits themselves if there are no penalties or no seen
 * tokens. */
static const float *make_scores(Sampler *s, const float *logits) {
  const SamplerSettings *set = &s->settings;
  const bool penalties = sampler_has_penalties(s) && s->n_seen > 0;
  if (!penalties && !s->allowed) return logits;
  memcpy(s->scores, logits, (size_t)s->vocab_size * sizeof *logits);
  for (int i = 0; penalties && i < s->n_seen; i++) {
    int32_t id = s->seen_ids[i];
    s->scores[id] = sampler_penalise(logits[id], s->generated[id], (float)set->repetition_penalty,
                                     (float)set->presence_penalty, (float)set->frequency_penalty);
  }
  for (int first = 0; s->allowed && first < s->vocab_size; first += 64) {
    const int left = s->vocab_size - first;
    forbid(s->scores + first, left < 64 ? left : 64, s->allowed[first / 64]);
  }
  return s->scores;
}

/* The greatest key of all scores; fails if a score is NaN or +infinity, or none is finite. */
static Status greatest_key(const Sampler *s, const float *scores, uint32_t *greatest, Error *err) {
  const int n = s->vocab_size;
  uint32_t highs[LANES] = {0}, lows[LANES], high = 0, low = UINT32_MAX;
  memset(lows, 0xff, sizeof lows);
  int i = 0;
  for (; i + LANES <= n; i += LANES) {
    for (int lane = 0; lane < LANES; lane++) {
      uint32_t key = sampler_key(scores[i + lane]);
      highs[lane] = key > highs[lane] ? key : highs[lane];
      lows[lane] = key < lows[lane] ? key : lows[lane];
    }
  }
  for (int lane = 0; i < n; i++, lane++) {
    uint32_t key = sampler_key(scores[i]);
    highs[lane] = key > highs[lane] ? key : highs[lane];
    lows[lane] = key < lows[lane] ? key : lows[lane];
  }
  for (int lane = 0; lane < LANES; lane++) {
    high = highs[lane] > high ? highs[lane] : high;
    low = lows[lane] < low ? lows[lane] : low;
  }
  *greatest = high;
  if (low >= SAMPLER_KEY_LOWEST && high > SAMPLER_KEY_LOWEST && high < SAMPLER_KEY_INFINITE) return STATUS_OK;
  for (i = 0; i < n; i++)
    if (isnan(scores[i]) || scores[i] > FLT_MAX)
      return error_set(err, STATUS_FAILED,
                       "the model's logit of token %d is %s: its weights or their arithmetic are broken", i,
                       isnan(scores[i]) ? "NaN" : "infinite");
  return error_set(err, STATUS_FAILED,
                   "every logit of the model%s is -infinity: its weights or their arithmetic are broken",
                   s->allowed ? " for a token that may come next" : "");
}

/* Makes candidates of the tokens whose weight can exceed 0: exp(-29) * 2^40 is below a half. */
static void gather(Sampler *s, const float *scores, uint32_t greatest) {
  double lowest = (double)sampler_key_score(greatest) - 29.0 * s->settings.temperature;
  int n = 0;
  for (int i = 0; i < s->vocab_size; i++) {
    s->ids[n] = i;
    s->keys[n] = sampler_key(scores[i]);
    n += (double)scores[i] >= lowest;
  }
  s->n_candidates = n;
}

static void weigh(Sampler *s, uint32_t greatest) {
  double top = (double)sampler_key_score(greatest), temperature = s->settings.temperature;
  for (int i = 0; i < s->n_candidates;
       i += LANES) { /* the last group may include entries that are no candidates */
    const uint32_t *keys = s->keys + i;
    uint64_t *weights = s->weights + i;
    for (int lane = 0; lane < LANES; lane++)
      weights[lane] = sampler_weight(((double)sampler_key_score(keys[lane]) - top) / temperature);
  }
}

static uint64_t weight_sum(const Sampler *s) {
  uint64_t sum = 0;
  for (int i = 0; i < s->n_candidates; i++) sum += s->weights[i];
  return sum;
}

/* Keeps each candidate whose predecessors in the ranking have a sum of weights below `limit`. weights NULL:
 * each candidate counts as 1. PRECOND 0 < limit <= the sum over all candidates */
static void cut_ranking(Sampler *s, const uint64_t *weights, uint64_t limit) {
  static const struct { int shift, bits; } levels[] = {{21, 11}, {10, 11}, {0, 10}};
  uint32_t key = 0;   /* the known upper bits of the key at which the cut lies */
  uint64_t above = 0; /* the sum over all keys above those bits */
  for (int level = 0; level < 3; level++) {
    int shift = levels[level].shift, bits = levels[level].bits;
    memset(s->bins, 0, sizeof s->bins);
    for (int i = 0; i < s->n_candidates; i++)
      if ((uint64_t)s->keys[i] >> (shift + bits) == key)
        s->bins[s->keys[i] >> shift & ((1u << bits) - 1)] += weights ? weights[i] : 1;
    uint32_t bin = (1u << bits) - 1;
    while (s->bins[bin] < limit - above) above += s->bins[bin--];
    key = key << bits | bin;
  }
  uint64_t left = limit - above; /* > 0: what is left of the limit for candidates with this key */
  int n = 0;
  for (int i = 0; i < s->n_candidates; i++) {
    if (s->keys[i] < key) continue;
    if (s->keys[i] == key) {
      if (left == 0) continue;
      uint64_t own = weights ? weights[i] : 1;
      left = own < left ? left - own : 0;
    }
    s->ids[n] = s->ids[i];
    s->keys[n] = s->keys[i];
    if (weights) s->weights[n] = weights[i];
    n++;
  }
  s->n_candidates = n;
}

/* Keeps the candidates of at least this weight. */
static void cut_weights(Sampler *s, uint64_t lowest) {
  int n = 0;
  for (int i = 0; i < s->n_candidates; i++) {
    s->ids[n] = s->ids[i];
    s->keys[n] = s->keys[i];
    s->weights[n] = s->weights[i];
    n += s->weights[i] >= lowest;
  }
  s->n_candidates = n;
}

/* First drops tokens that are too light to stay, so that few have to be ranked. Take a token lighter than
 * (sum - limit) / n, with n candidates. It and all that rank after it together weigh less than sum - limit.
 * So the tokens before it weigh more than the limit. */
static void cut_top_p(Sampler *s, double top_p) {
  uint64_t sum = weight_sum(s), limit = sampler_multiply(sum, sampler_fraction(top_p));
  if (limit == 0) limit = 1;
  cut_weights(s, (sum - limit) / (uint64_t)s->n_candidates);
  cut_ranking(s, s->weights, limit);
}

static int32_t draw(const Sampler *s, uint64_t random) {
  uint64_t target = sampler_multiply_high(random, weight_sum(s));
  int i = 0;
  for (uint64_t sum = s->weights[0]; sum <= target; sum += s->weights[i]) i++;
  return s->ids[i];
}

Status sampler_pick(Sampler *s, const float *logits, int32_t *id, Error *err) {
  const SamplerSettings *set = &s->settings;
  uint64_t step = sampler_take_draw(s);
  const float *scores = make_scores(s, logits);
  uint32_t greatest;
  TRY(greatest_key(s, scores, &greatest, err));
  if (set->temperature == 0 || set->top_k == 1) {
    for (*id = 0; sampler_key(scores[*id]) != greatest;) ++*id;
    return STATUS_OK;
  }
  gather(s, scores, greatest);
  if (set->top_k > 0 && set->top_k < s->n_candidates) cut_ranking(s, NULL, (uint64_t)set->top_k);
  weigh(s, greatest);
  if (set->top_p < 1) cut_top_p(s, set->top_p);
  if (set->min_p > 0) /* the greatest weight is 2^40, whatever was cut */
    cut_weights(s, sampler_fraction(set->min_p) << (SAMPLER_WEIGHT_BITS - 32));
  *id = draw(s, sampler_random(set->seed, step));
  return STATUS_OK;
}

/* The log of the sum of exp(logits), in double. */
static double log_sum(const float *logits, int vocab_size) {
  double top = (double)logits[0];
  for (int i = 1; i < vocab_size; i++) top = (double)logits[i] > top ? (double)logits[i] : top;
  double sum = sampler_exp((double)logits[0] - top, 0);
  for (int i = 1; i < vocab_size; i++) sum += sampler_exp((double)logits[i] - top, 0);
  return top + log(sum);
}

double log_probability(const float *logits, int vocab_size, int32_t id) {
  return (double)logits[id] - log_sum(logits, vocab_size);
}

void log_probabilities(const float *logits, int vocab_size, int32_t id, int n, TokenScore *scores) {
  const double all = log_sum(logits, vocab_size);
  scores[0] = (TokenScore){id, (double)logits[id] - all};
  for (int i = 1; i <= n; i++) scores[i] = (TokenScore){-1, 0};
  for (int32_t v = 0; v < vocab_size; v++) {
    int at = n + 1;
    while (at > 1 && (scores[at - 1].id < 0 || logits[v] > logits[scores[at - 1].id])) at--;
    if (at > n) continue;
    memmove(scores + at + 1, scores + at, (size_t)(n - at) * sizeof *scores);
    scores[at] = (TokenScore){v, (double)logits[v] - all};
  }
}
