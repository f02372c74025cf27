/* hf_ngrams.c - takes tables of n-grams.
 *
 * Called by: hf_directory.c. No rows are read here. */
#include <string.h>

#include "model/files/hf_tensors.h"

/* hf_use() for a tensor of a table: its bytes count in table_bytes, too. */
static const void *use_part(HfLoader *loader, StoredTensor *tensor) {
  Model *model = loader->model;
  const size_t before = model->weight_bytes;
  const void *data = hf_use(loader, tensor);
  model->table_bytes += model->weight_bytes - before;
  return data;
}

/* Refuses hash factors, primes or offsets that differ from wanted[n], which the config gives. Their tensor
 * may be absent. */
static Status check_hash_numbers(HfLoader *loader, int index, const char *part, int n,
                                 const int64_t *wanted) {
  char name[NAME_SIZE];
  const int64_t shape[] = {n};
  snprintf(name, sizeof name, "%slayers.%d.ple.ple_embedding.%s", loader->body, index, part);
  StoredTensor *tensor = hf_find(loader, name, "");
  if (!tensor) return STATUS_OK;
  TRY(hf_check_shape(loader, tensor, 1, shape, ""));
  if (tensor->dtype == DTYPE_I64 && memcmp(use_part(loader, tensor), wanted, (size_t)n * sizeof *wanted) == 0)
    return STATUS_OK;
  return error_set(loader->err, STATUS_MODEL, "%s: tensor %s holds other numbers than those that %s gives",
                   tensor->file, name, loader->config_path);
}

static Status check_hash(HfLoader *loader, int index) {
  NgramHash hash;
  int64_t firsts[sizeof hash.primes / sizeof *hash.primes];
  ngram_hash(&loader->model->config, index, &hash);
  firsts[0] = 0;
  for (int i = 1; i < hash.n_primes; i++) firsts[i] = firsts[i - 1] + hash.primes[i - 1];
  TRY(check_hash_numbers(loader, index, "layer_multipliers", loader->model->config.ngrams.longest,
                         hash.factors));
  TRY(check_hash_numbers(loader, index, "ngram_heads_vocab_sizes", hash.n_primes, hash.primes));
  return check_hash_numbers(loader, index, "ngram_heads_offsets", hash.n_primes, firsts);
}

static void table_name(const HfLoader *loader, int index, char name[NAME_SIZE]) {
  snprintf(name, NAME_SIZE, "%slayers.%d.ple.ple_embedding.ngram_embedding", loader->body, index);
}

/* The name of a table's shard: "NAME.shard_3", or with `shard` -1 the name itself. */
static void part_name(const char *table, int shard, char name[NAME_SIZE]) {
  if (shard < 0)
    snprintf(name, NAME_SIZE, "%.100s", table);
  else
    snprintf(name, NAME_SIZE, "%.100s.shard_%d", table, shard);
}

/* Takes the scales of a shard's codes in 8 bits: one for each row, or one for all. Their tensor has the
 * shard's name or the whole table's. */
static Status take_scales(HfLoader *loader, const char *table, const char *name, NgramShard *shard) {
  static const char suffix[] = ".weight_scale";
  StoredTensor *tensor = hf_find(loader, name, suffix);
  if (!tensor) tensor = hf_find(loader, table, suffix);
  if (!tensor) return hf_missing(loader, name, suffix, ": the table has codes of 8 bits");
  int64_t n = 1;
  for (int i = 0; i < tensor->rank; i++) n *= tensor->shape[i];
  const int64_t shape[] = {shard->rows.n_rows, 1};
  if (n != 1) TRY(hf_check_shape(loader, tensor, 2, shape, ""));
  TRY(hf_check_float(loader, tensor));
  shard->scales = (Vector){use_part(loader, tensor), tensor->dtype, (int)n};
  return check_finite(shard->scales.data, tensor->dtype, (size_t)n, 1, tensor->file, tensor->name,
                      loader->err);
}

static Status take_part(HfLoader *loader, const char *table, int index, int64_t n_rows, NgramShard *shard) {
  const int n_columns = ngram_columns(&loader->model->config.ngrams);
  const int64_t shape[] = {n_rows, n_columns};
  char name[NAME_SIZE];
  part_name(table, index, name);
  StoredTensor *tensor = hf_find(loader, name, ".weight");
  if (!tensor) return hf_missing(loader, name, ".weight", "");
  TRY(hf_check_shape(loader, tensor, 2, shape, ""));
  const bool codes = tensor->dtype == DTYPE_F8_E4M3 || tensor->dtype == DTYPE_I8;
  if (!codes) TRY(hf_check_float(loader, tensor));
  shard->rows = (Matrix){use_part(loader, tensor), tensor->dtype, (int)n_rows, n_columns};
  return codes ? take_scales(loader, table, name, shard) : STATUS_OK;
}

/* Returns the number of tensors that a layer's table is stored in: 1 if it is stored whole (*whole), else the
 * number of its shards; 0: the table is missing. */
static int count_parts(const HfLoader *loader, int index, bool *whole) {
  char table[NAME_SIZE], name[NAME_SIZE];
  int n = 0;
  table_name(loader, index, table);
  *whole = hf_find(loader, table, ".weight") != NULL;
  if (*whole) return 1;
  for (part_name(table, 0, name); n < MAX_NGRAM_SHARDS && hf_find(loader, name, ".weight");)
    part_name(table, ++n, name);
  return n;
}

static Status take_table(HfLoader *loader, int index, NgramShard *shards, int *n_shards) {
  const int64_t n_rows = ngram_rows(&loader->model->config, index);
  ModelLayer *layer = &loader->model->layers[index];
  char table[NAME_SIZE];
  bool whole;
  const int n = *n_shards = count_parts(loader, index, &whole);
  table_name(loader, index, table);
  TRY(check_hash(loader, index));
  if (n == 0) return hf_missing(loader, table, ".weight", "");
  if (n_rows % n != 0)
    return error_set(loader->err, STATUS_MODEL,
                     "%s: %s is stored in %d tensors, expected a divisor of its %lld rows",
                     loader->config_path, table, n, (long long)n_rows);
  for (int i = 0; i < n; i++) TRY(take_part(loader, table, whole ? -1 : i, n_rows / n, &shards[i]));
  for (int i = 1; i < n; i++)
    if (shards[i].rows.dtype != shards[0].rows.dtype)
      return error_set(loader->err, STATUS_MODEL, "%s: %s.shard_%d is %s, expected %s as shard_0",
                       loader->config_path, table, i, dtype_name(shards[i].rows.dtype),
                       dtype_name(shards[0].rows.dtype));
  layer->shards = shards;
  layer->n_shards = n;
  return STATUS_OK;
}

Status hf_ngrams_take(HfLoader *loader) {
  const ModelConfig *config = &loader->model->config;
  ModelFiles *files = loader->model->files;
  size_t n = 0;
  bool whole;
  if (config->streams.n == 0) return STATUS_OK;
  for (int i = 0; i < config->n_layers; i++)
    if (config_layer(config, i).ngrams) n += (size_t)count_parts(loader, i, &whole);
  TRY(NEW(files->ngram_shards, n + 1, "tables of n-grams", loader->err));
  NgramShard *next = files->ngram_shards;
  for (int i = 0, n_shards = 0; i < config->n_layers; i++, next += n_shards, n_shards = 0)
    if (config_layer(config, i).ngrams) TRY(take_table(loader, i, next, &n_shards));
  return STATUS_OK;
}
