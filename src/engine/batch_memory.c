/* batch_memory.c - see batch_memory.h. */
#include "engine/batch_memory.h"

#include "engine/kept_states.h"
#include "engine/page_pool.h"

/* For scores, at least this many rows of a step (or max_chunk, if that is less) can have logits. */
enum { LOGIT_ROWS = 32 };
/* Sequences take memory that pages could have, for recurrent states and rows of logits. So more than
 * FEW_SEQUENCES are opened only if records of SHORT_TOKENS tokens fit for each. FEW_SEQUENCES or fewer are
 * opened without this, since they may share a long prompt. */
enum { FEW_SEQUENCES = 256, SHORT_TOKENS = 512 };

int batch_pages(const Backend *backend, int n_tokens) {
  return backend->page_tokens ? (n_tokens - 1) / backend->page_tokens + 1 : 0;
}

int batch_guesses(const BatchOptions *options, const Backend *backend, const ModelConfig *config) {
  const bool can = options->draft.open && recurrent_state_bytes(backend, config) == 0;
  return can && options->n_guesses > 0 ? options->n_guesses : 0;
}

int batch_drafters(const BatchOptions *options, const Backend *backend, const ModelConfig *config) {
  if (batch_guesses(options, backend, config) == 0) return 0;
  const int n = options->n_drafters;
  return n > 0 && n < options->n_sequences ? n : options->n_sequences;
}

StateOptions batch_sizes(const BatchOptions *options, const Backend *backend, const ModelConfig *config) {
  StateOptions sizes = {.n_ctx = options->n_ctx ? options->n_ctx : config->max_position,
                        .kv = options->kv,
                        .states = options->states,
                        .n_sequences = options->n_sequences,
                        .invariant = options->invariant};
  const long long all = (long long)options->n_sequences * batch_pages(backend, sizes.n_ctx),
                  most = INT32_MAX / (backend->page_tokens ? backend->page_tokens : 1);
  sizes.n_pages = options->n_pages ? options->n_pages : (int)(all < most ? all : most);
  sizes.max_chunk = options->chunk ? options->chunk : backend->chunk;
  if (sizes.max_chunk < sizes.n_sequences) sizes.max_chunk = sizes.n_sequences;
  sizes.max_logit_rows = sizes.n_sequences > LOGIT_ROWS ? sizes.n_sequences : LOGIT_ROWS;
  if (options->invariant) { /* room for all answers and a page of a prompt, which may be scored */
    const int most_rows = sizes.n_sequences + backend->page_tokens;
    if (sizes.max_chunk < most_rows) sizes.max_chunk = most_rows;
    sizes.max_logit_rows = most_rows;
  }
  const int n_guesses = batch_guesses(options, backend, config);
  if (n_guesses > 0) sizes.taps = options->draft.taps;
  if (n_guesses > 0 &&
      options->n_drafters > 0) { /* each sequence with a drafter may have all of its guesses */
    const int rows = batch_drafters(options, backend, config) * (1 + n_guesses);
    if (sizes.max_logit_rows < rows) sizes.max_logit_rows = rows;
  }
  if (sizes.max_logit_rows > sizes.max_chunk) sizes.max_logit_rows = sizes.max_chunk;
  return sizes;
}

Status batch_check(const BatchOptions *options, const Backend *backend, const ModelConfig *config,
                   Error *err) {
  const StateOptions sizes = batch_sizes(options, backend, config);
  if (backend->page_tokens == 0)
    return error_set(err, STATUS_USAGE, "the backend %s computes one sequence at a time, not %d",
                     backend->name, options->n_sequences);
  if (options->n_sequences < 1 || options->chunk < 0 || sizes.n_ctx < 1 || sizes.n_ctx > config->max_position)
    return error_set(err, STATUS_USAGE,
                     "%d sequences of %d tokens in steps of %d, expected at least one of 1 to the model's %d",
                     options->n_sequences, sizes.n_ctx, options->chunk, config->max_position);
  const int needed = batch_pages(backend, sizes.n_ctx);
  if (sizes.n_pages >= needed) return STATUS_OK;
  return error_set(err, STATUS_USAGE, "%d pages of %d tokens, fewer than the %d of one context of %d tokens",
                   sizes.n_pages, backend->page_tokens, needed, sizes.n_ctx);
}

size_t batch_share(const Backend *backend, size_t left, bool is_kept) {
  return backend->memory && !is_kept ? left - left / 8 : left / 2;
}

/* Bytes of drafters in the memory that the backend computes in. */
static size_t drafter_bytes(const BatchOptions *options, const StateOptions *sizes, const Backend *backend,
                            const ModelConfig *config) {
  const DraftSource *draft = &options->draft;
  const size_t n = (size_t)batch_drafters(options, backend, config);
  return n > 0 && (draft->on_device || !backend->memory) ? n * draft->bytes(draft->user, sizes->n_ctx) : 0;
}

/* Bytes of the host's memory that a batch takes beside its state and drafters when every slot is in use. */
static size_t own_bytes(const StateOptions *sizes, const Backend *backend, const ModelConfig *config) {
  const size_t n_ctx = (size_t)sizes->n_ctx, ids = (n_ctx + 1) * sizeof(int32_t),
               table = (n_ctx / (size_t)backend->page_tokens + 1) * sizeof(int32_t);
  return (size_t)sizes->n_sequences * (sampler_bytes(config->vocab_size) + ids + table) +
         page_pool_bytes(sizes->n_pages, backend->page_tokens) + (size_t)config->vocab_size * sizeof(float);
}

size_t batch_bytes(const BatchOptions *options, const Backend *backend, const ModelConfig *config) {
  const StateOptions sizes = batch_sizes(options, backend, config);
  const size_t state = backend->state_bytes(config, &sizes),
               own = (backend->memory ? 0 : own_bytes(&sizes, backend, config)) +
                     drafter_bytes(options, &sizes, backend, config);
  return state > SIZE_MAX - own ? SIZE_MAX : state + own;
}

BatchOptions batch_least(const BatchOptions *options, const Backend *backend, const ModelConfig *config,
                         int n) {
  BatchOptions least = *options;
  least.n_sequences = n;
  least.n_pages = batch_pages(backend, batch_sizes(options, backend, config).n_ctx);
  return least;
}

/* batch_most_sequences(), with at least n_pages pages for each sequence. */
static int most_sequences(const BatchOptions *options, const Backend *backend, const ModelConfig *config,
                          int n, int n_pages, size_t bytes) {
  int low = 0, high = n;
  while (low < high) {
    const int middle = low + (high - low + 1) / 2;
    BatchOptions least = batch_least(options, backend, config, middle);
    if (least.n_pages < middle * n_pages) least.n_pages = middle * n_pages;
    if (batch_bytes(&least, backend, config) <= bytes)
      low = middle;
    else
      high = middle - 1;
  }
  return low;
}

int batch_most_sequences(const BatchOptions *options, const Backend *backend, const ModelConfig *config,
                         int n, size_t bytes) {
  return most_sequences(options, backend, config, n, 0, bytes);
}

int batch_usual_sequences(const BatchOptions *options, const Backend *backend, const ModelConfig *config,
                          size_t bytes) {
  const int n_ctx = batch_sizes(options, backend, config).n_ctx,
            n_tokens = n_ctx < SHORT_TOKENS ? n_ctx : SHORT_TOKENS, most = backend->sequences,
            many = most_sequences(options, backend, config, most, batch_pages(backend, n_tokens), bytes);
  if (many >= FEW_SEQUENCES) return many;
  return batch_most_sequences(options, backend, config, most < FEW_SEQUENCES ? most : FEW_SEQUENCES, bytes);
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
