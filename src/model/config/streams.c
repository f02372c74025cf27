/* streams.c - Qwen3.8-Flash-Next in config.json: hyper-connections, embeddings of n-grams, sparse attention,
 * and the gate of the delta rule.
 *
 * Called by: config.c or positions.c through a row of architectures.c. Source:
 * transformers 5.23, models/qwen4_exp/modular_qwen4_exp.py.
 * Always true afterwards: a token's streams are at most MAX_STREAMS * MAX_HIDDEN numbers; a table of n-grams
 *                         has at most 2^31 - 1 rows; layers with n-grams have the delta rule. */
#include "model/config/architectures.h"

static Status parse_hyper_connections(const ConfigReader *r, ModelConfig *config) {
  TRY(reader_int(r, "hc_count", 2, MAX_STREAMS, 4, &config->streams.n));
  TRY(reader_int(r, "hc_lowrank", 1, MAX_HIDDEN, 320, &config->streams.rank));
  if (config->hidden % 16 == 0) return STATUS_OK;
  return reader_refuse(r, "hidden_size is %d, expected a multiple of 16", config->hidden);
}

/* --- embeddings of n-grams */

/* Sets LayerConfig.ngrams of the *n layers in ple_layer_ids to 1 .. *n, in the order of the layers. */
static Status number_layers(const ConfigReader *r, ModelConfig *config, int *n) {
  static const char key[] = "ple_layer_ids";
  bool listed[MAX_LAYERS];
  *n = 0;
  TRY(reader_numbers_of_layers(r, key, 1, config->n_layers, true, listed));
  for (int i = 0; i < config->n_layers; i++) {
    if (listed[i] && config->layers[i].kind != LAYER_DELTA)
      return reader_refuse(r, "%s holds %d, which has attention, expected layers of linear_attention", key,
                           i + 1);
    if (listed[i]) config->layers[i].ngrams = ++*n;
  }
  if (*n <= MAX_NGRAM_LAYERS) return STATUS_OK;
  return reader_refuse(r, "%s holds %d layers, expected at most %d", key, *n, MAX_NGRAM_LAYERS);
}

/* Sets ngrams.empty to eos_token_id, or to the first of its list. */
static Status parse_empty(const ConfigReader *r, ModelConfig *config) {
  static const char key[] = "eos_token_id";
  const Json *value = json_member(r->object, key);
  const Json *first = json_is_array(value) ? json_first(value) : value;
  int64_t id;
  char found[64];
  if (!first)
    return reader_refuse(r, "%s is %s, expected a token id: it stands for the tokens before a text", key,
                         value ? "an empty list" : "missing");
  if (!json_int64(first, &id) || id < 0 || id >= config->vocab_size)
    return reader_refuse(r, "%s is %s, expected a token id below vocab_size %d", key,
                         json_describe(first, found), config->vocab_size);
  config->ngrams.empty = (int32_t)id;
  return STATUS_OK;
}

/* Refuses tables that may have 2^31 rows or more. Primes below 2^32 are at most 336 apart, so that the n-th
 * prime from `least` on is at most least + 336 n. */
static Status check_rows(const ConfigReader *r, const NgramConfig *ngrams, int n_layers) {
  const int64_t n_hashes = (int64_t)(ngrams->longest - 1) * ngrams->n_hashes;
  const int64_t largest = ngrams->least + 336 * n_hashes * n_layers, limit = INT32_MAX;
  if (largest <= limit && n_hashes * largest + ngrams->multiple - 1 <= limit) return STATUS_OK;
  return reader_refuse(
      r,
      "ngram_vocab_size_base is %lld: tables of %lld times as many rows, in multiples of %lld, "
      "are too large, expected less than 2^31 rows",
      (long long)ngrams->least, (long long)n_hashes, (long long)ngrams->multiple);
}

static Status parse_ngrams(const ConfigReader *r, ModelConfig *config) {
  NgramConfig *ngrams = &config->ngrams;
  int n_layers, least, multiple;
  TRY(number_layers(r, config, &n_layers));
  if (n_layers == 0) return STATUS_OK;
  TRY(reader_int(r, "ngram_size", 2, MAX_NGRAM, 3, &ngrams->longest));
  TRY(reader_int(r, "heads_per_ngram", 1, MAX_NGRAM_HASHES, 8, &ngrams->n_hashes));
  TRY(reader_int(r, "ple_embed_dim", 1, MAX_HIDDEN, config->hidden, &ngrams->width));
  TRY(reader_int(r, "ple_conv_kernel_size", 1, MAX_CONV_TAPS, 4, &ngrams->taps));
  TRY(reader_int(r, "ngram_vocab_size_base", 1, INT32_MAX, 20000000, &least));
  TRY(reader_int(r, "make_ngram_vocab_size_divisible_by", 1, INT32_MAX, 128, &multiple));
  TRY(reader_int64(r, "seed", 1234, &ngrams->seed));
  ngrams->least = least;
  ngrams->multiple = multiple;
  const int n_rows = (ngrams->longest - 1) * ngrams->n_hashes;
  if (ngrams->width % n_rows != 0)
    return reader_refuse(r, "ple_embed_dim is %d, expected a multiple of the %d rows of a token's n-grams",
                         ngrams->width, n_rows);
  TRY(check_rows(r, ngrams, n_layers));
  return parse_empty(r, config);
}

/* --- sparse attention */

static Status check_indexer(const ConfigReader *r, int n_kv_heads, const ModelConfig *config) {
  const IndexerConfig *indexer = &config->indexer;
  if (n_kv_heads != 1) return reader_refuse(r, "indexer_kv_heads is %d, expected 1", n_kv_heads);
  if (indexer->budget % indexer->block != 0)
    return reader_refuse(r, "indexer_budget is %d, expected a multiple of indexer_compress_ratio %d",
                         indexer->budget, indexer->block);
  if (indexer->head_dim < config->rope.rotary_dim || indexer->head_dim > config->head_dim)
    return reader_refuse(
        r, "indexer_head_dim is %d, expected %d, the numbers that the rope turns, to head_dim %d",
        indexer->head_dim, config->rope.rotary_dim, config->head_dim);
  return STATUS_OK;
}

/* The indexer's members are all given or all absent; without them a query attends to all positions. */
static Status parse_indexer(const ConfigReader *r, ModelConfig *config) {
  IndexerConfig *indexer = &config->indexer;
  int n_kv_heads = 0, n_given = 0;
  const struct {
    const char *key;
    int most, *out;
  } members[] = {{"indexer_n_heads", MAX_HEADS, &indexer->n_heads},
                 {"indexer_kv_heads", MAX_HEADS, &n_kv_heads},
                 {"indexer_head_dim", MAX_HEAD_DIM, &indexer->head_dim},
                 {"indexer_budget", MAX_POSITION, &indexer->budget},
                 {"indexer_compress_ratio", MAX_POSITION, &indexer->block}};
  const int n = sizeof members / sizeof *members;
  for (int i = 0; i < n; i++) {
    TRY(reader_int(r, members[i].key, 1, members[i].most, 0, members[i].out));
    n_given += *members[i].out > 0;
  }
  if (n_given == 0) return STATUS_OK;
  for (int i = 0; i < n; i++)
    if (*members[i].out == 0)
      return reader_refuse(r, "%s is missing, expected a number, as other members of the indexer are given",
                           members[i].key);
  TRY(check_indexer(r, n_kv_heads, config));
  if (config->rope.kind == ROPE_LONGROPE)
    return reader_refuse(r, "longrope is not supported with indexer_budget");
  if (config_count_layers(config, LAYER_ATTENTION, config->n_layers) == 0) *indexer = (IndexerConfig){0};
  return STATUS_OK;
}

/* --- the delta rule's gate */

/* output_gate_type: the function of z; null: hidden_act, which config_parse_delta() has found to be silu. */
static Status parse_gate(const ConfigReader *r, DeltaConfig *delta) {
  static const char key[] = "output_gate_type";
  const Json *type = json_member(r->object, key);
  delta->gate_is_sigmoid = json_string_is(type, "sigmoid");
  if (type && !delta->gate_is_sigmoid && !json_string_is(type, "silu"))
    return reader_expected(r, key, type, "sigmoid or silu");
  return STATUS_OK;
}

Status config_parse_streams(const ConfigReader *r, const Architecture *arch, ModelConfig *config) {
  TRY(config_parse_delta(r, arch, config));
  TRY(parse_hyper_connections(r, config));
  TRY(parse_ngrams(r, config));
  TRY(parse_indexer(r, config));
  return parse_gate(r, &config->delta);
}
