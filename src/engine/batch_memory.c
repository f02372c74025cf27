/* batch_memory.c - see batch_memory.h.   Called by: batch.c, commands/answer/assistant.c, commands/models. */
#include "engine/batch_memory.h"

#include "engine/drafters/draft_text.h"
#include "engine/page_pool.h"

enum { LOGIT_ROWS = 32 }; /* of a step, at least: of tokens to score */

int batch_pages(const Backend *backend, int n_tokens) {
  return backend->page_tokens ? (n_tokens - 1) / backend->page_tokens + 1 : 0;
}

StateOptions batch_sizes(const BatchOptions *options, const Backend *backend, const ModelConfig *config) {
  StateOptions sizes = {.n_ctx = options->n_ctx ? options->n_ctx : config->max_position,
                        .kv = options->kv,
                        .n_sequences = options->n_sequences,
                        .invariant = options->invariant};
  const long long all = (long long)options->n_sequences * batch_pages(backend, sizes.n_ctx),
                  most = INT32_MAX / (backend->page_tokens ? backend->page_tokens : 1);
  sizes.n_pages = options->n_pages ? options->n_pages : (int)(all < most ? all : most);
  sizes.max_chunk = options->chunk ? options->chunk : backend->chunk;
  if (sizes.max_chunk < sizes.n_sequences) sizes.max_chunk = sizes.n_sequences;
  sizes.max_logit_rows = sizes.n_sequences > LOGIT_ROWS ? sizes.n_sequences : LOGIT_ROWS;
  if (options->invariant) { /* room for a page of a prompt, which may be scored, beside all answers */
    const int most_rows = sizes.n_sequences + backend->page_tokens;
    if (sizes.max_chunk < most_rows) sizes.max_chunk = most_rows;
    sizes.max_logit_rows = most_rows;
  }
  if (sizes.max_logit_rows > sizes.max_chunk) sizes.max_logit_rows = sizes.max_chunk;
  return sizes;
}

size_t batch_share(const Backend *backend, size_t left, bool is_kept) {
  return backend->memory && !is_kept ? left - left / 8 : left / 2;
}

/* Bytes of the host's memory that batch_open() takes for itself. */
static size_t own_bytes(const BatchOptions *options, const StateOptions *sizes, const Backend *backend,
                        const ModelConfig *config) {
  const size_t n_ctx = (size_t)sizes->n_ctx, ids = (n_ctx + 1) * sizeof(int32_t),
               table = (n_ctx / (size_t)backend->page_tokens + 1) * sizeof(int32_t),
               drafter = options->n_guesses > 0 ? draft_text_bytes(sizes->n_ctx) : 0;
  return (size_t)sizes->n_sequences * (sampler_bytes(config->vocab_size) + ids + table + drafter) +
         page_pool_bytes(sizes->n_pages, backend->page_tokens) + (size_t)config->vocab_size * sizeof(float);
}

size_t batch_bytes(const BatchOptions *options, const Backend *backend, const ModelConfig *config) {
  const StateOptions sizes = batch_sizes(options, backend, config);
  const size_t state = backend->state_bytes(config, &sizes),
               own = backend->memory ? 0 : own_bytes(options, &sizes, backend, config);
  return state > SIZE_MAX - own ? SIZE_MAX : state + own;
}

BatchOptions batch_least(const BatchOptions *options, const Backend *backend, const ModelConfig *config,
                         int n) {
  BatchOptions least = *options;
  least.n_sequences = n;
  least.n_pages = batch_pages(backend, batch_sizes(options, backend, config).n_ctx);
  return least;
}

int batch_most_sequences(const BatchOptions *options, const Backend *backend, const ModelConfig *config,
                         int n, size_t bytes) {
  int low = 0, high = n;
  while (low < high) {
    const int middle = low + (high - low + 1) / 2;
    const BatchOptions least = batch_least(options, backend, config, middle);
    if (batch_bytes(&least, backend, config) <= bytes)
      low = middle;
    else
      high = middle - 1;
  }
  return low;
}

int batch_most_pages(const BatchOptions *options, const Backend *backend, const ModelConfig *config,
                     size_t bytes) {
  BatchOptions tried = *options;
  tried.n_pages = 0; /* as many as there could be */
  int high = batch_sizes(&tried, backend, config).n_pages,
      low = batch_least(options, backend, config, 1).n_pages;
  while (low < high) {
    tried.n_pages = low + (high - low + 1) / 2;
    if (batch_bytes(&tried, backend, config) <= bytes)
      low = tried.n_pages;
    else
      high = tried.n_pages - 1;
  }
  return low;
}
