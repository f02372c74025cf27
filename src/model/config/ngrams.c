/* ngrams.c - how n-grams of tokens are hashed into rows of a table.
 *
 * Source: transformers 5.23, Qwen4ExpTextNGramEmbedding of models/qwen4_exp/modular_qwen4_exp.py. */
#include "model/config/config.h"

/* The finaliser of SplitMix64 (Steele, Lea and Flood, 2014). */
static uint64_t splitmix64(uint64_t value) {
  value += UINT64_C(0x9E3779B97F4A7C15);
  value = (value ^ value >> 30) * UINT64_C(0xBF58476D1CE4E5B9);
  value = (value ^ value >> 27) * UINT64_C(0x94D049BB133111EB);
  return value ^ value >> 31;
}

static bool is_prime(int64_t n) {
  if (n < 4) return n > 1;
  if (n % 2 == 0) return false;
  for (int64_t divisor = 3; divisor * divisor <= n; divisor += 2)
    if (n % divisor == 0) return false;
  return true;
}

/* Odd factors, so small that their product with any token fits 63 bits. */
static void set_factors(const ModelConfig *config, int index, int64_t *factors) {
  const int64_t most = INT64_MAX / config->vocab_size / 2;
  const uint64_t bound = most > 1 ? (uint64_t)most : 1,
                 seed = (uint64_t)config->ngrams.seed + UINT64_C(10007) * (uint64_t)index;
  for (int i = 0; i < config->ngrams.longest; i++) {
    const uint64_t step = UINT64_C(0x9E3779B97F4A7C15) * (uint64_t)(i + 1);
    factors[i] = (int64_t)(2 * (splitmix64(seed + step) % bound) + 1);
  }
}

void ngram_hash(const ModelConfig *config, int layer, NgramHash *hash) {
  const NgramConfig *ngrams = &config->ngrams;
  const int index = config_layer(config, layer).ngrams - 1;
  hash->n_primes = (ngrams->longest - 1) * ngrams->n_hashes;
  int64_t prime = ngrams->least - 1;
  for (int i = -index * hash->n_primes; i < hash->n_primes; i++) {
    do prime++;
    while (!is_prime(prime));
    if (i >= 0) hash->primes[i] = prime;
  }
  set_factors(config, index, hash->factors);
}

int64_t ngram_rows(const ModelConfig *config, int layer) {
  NgramHash hash;
  int64_t n = 0;
  ngram_hash(config, layer, &hash);
  for (int i = 0; i < hash.n_primes; i++) n += hash.primes[i];
  return (n + config->ngrams.multiple - 1) / config->ngrams.multiple * config->ngrams.multiple;
}

int ngram_columns(const NgramConfig *ngrams) {
  return ngrams->width / ((ngrams->longest - 1) * ngrams->n_hashes);
}
