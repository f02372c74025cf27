/* forward.c - see forward.h.
 *
 * Called by: session.c, batch.c, drafters/published.c. The order of the calls is the transformer:
 *   x = x + attention(norm(x)); x = x + mlp(norm(x))
 * With AltUp x is predicted before each layer, and the streams are corrected after it.
 * A layer of Nemotron-H has one of the two; one of Falcon-H1 adds the outputs of attention and of Mamba-2. */
#include "engine/forward.h"

Status forward_check_ids(const ModelConfig *config, const char *name, const int32_t *ids, int n, Error *err) {
  for (int i = 0; i < n; i++)
    if (ids[i] < 0 || ids[i] >= config->vocab_size)
      return error_set(err, STATUS_USAGE, "%s %d has id %d, expected 0 to %d", name, i, (int)ids[i],
                       config->vocab_size - 1);
  return STATUS_OK;
}

/* The MLP of a layer, or its experts. */
static Status run_mlp(const Backend *backend, BackendState *state, const ModelConfig *config,
                      TokenRange range, int layer, Error *err) {
  if (config_layer(config, layer).no_mlp) return STATUS_OK;
  if (config->streams.n > 0) TRY(backend->mix_streams(state, range, layer, true, err));
  if (config_layer(config, layer).n_experts > 0) {
    TRY(backend->norm_experts_residual(state, range, layer, err));
  } else {
    TRY(backend->norm_gate_up(state, range, layer, err));
    TRY(backend->down_residual(state, range, layer, err));
  }
  return config->streams.n > 0 ? backend->inject_streams(state, range, err) : STATUS_OK;
}

/* True if rows that get no logits may end within the last layer: no operation after it reads them, and those
 * after out_proj_residual() read nothing else of a row but x. */
static bool cuts_rows(const Backend *backend, const BackendState *state, const ModelConfig *config,
                      TokenRange range, int n_logit_rows) {
  const LayerConfig last = config_layer(config, config->n_layers - 1);
  if (!backend->cuts_rows || !range.only_logits || range.taps || n_logit_rows >= range.n_tokens) return false;
  if (config->streams.n > 0 || config->altup.n > 0 || config->per_layer_width > 0 || config->parallel)
    return false;
  if (last.kind == LAYER_MLP_ALONE || last.delta_beside) return false;
  return backend->cuts_rows(state, range, n_logit_rows);
}

/* All layers, and the logits of the last rows. */
static Status run_layers(const Backend *backend, BackendState *state, const ModelConfig *config,
                         TokenRange range, int n_logit_rows, Error *err) {
  const bool cuts = cuts_rows(backend, state, config, range, n_logit_rows);
  int tap = 0;
  for (int layer = 0; layer < config->n_layers; layer++) {
    const bool cut = cuts && layer == config->n_layers - 1;
    const LayerConfig own = config_layer(config, layer);
    const LayerKind kind = own.kind;
    const bool streams = config->streams.n > 0, altup = config->altup.n > 0;
    if (own.ngrams) TRY(backend->add_ngrams(state, range, layer, err));
    if (streams) TRY(backend->mix_streams(state, range, layer, false, err));
    if (altup) TRY(backend->predict_streams(state, range, layer, err));
    if (layer_has(own, LAYER_DELTA)) TRY(backend->norm_delta_rule(state, range, layer, err));
    if (kind == LAYER_CONV) TRY(backend->norm_short_conv(state, range, layer, err));
    if (kind == LAYER_ATTENTION) TRY(backend->norm_qkv_rope_append(state, range, layer, err));
    if (cut && n_logit_rows == 0) return STATUS_OK;
    if (altup) TRY(backend->add_laurel(state, range, layer, err));
    if (kind == LAYER_ATTENTION) TRY(backend->attention(state, range, layer, err));
    if (cut) range.n_kept = n_logit_rows;
    if (kind != LAYER_MLP_ALONE) TRY(backend->out_proj_residual(state, range, layer, err));
    if (cut) range = (TokenRange){.pos = range.pos, .n_tokens = n_logit_rows};
    if (streams) TRY(backend->inject_streams(state, range, err));
    TRY(run_mlp(backend, state, config, range, layer, err));
    if (altup) TRY(backend->correct_streams(state, range, layer, err));
    if (config->layer_scalar || config->per_layer_width > 0)
      TRY(backend->layer_end(state, range, layer, err));
    if (range.taps && tap < range.taps->n && range.taps->layers[tap] == layer)
      TRY(backend->keep_tap(state, range, tap++, err));
  }
  if (n_logit_rows == 0) return STATUS_OK;
  return backend->norm_logits(state, range, range.n_tokens - n_logit_rows, n_logit_rows, err);
}

static Status run_operations(const Backend *backend, BackendState *state, const ModelConfig *config,
                             TokenRange range, const int32_t *ids, int n_logit_rows, Error *err) {
  TRY(backend->embed(state, range, ids, err));
  return run_layers(backend, state, config, range, n_logit_rows, err);
}

Status forward_draft(const Backend *backend, BackendState *state, const ModelConfig *config, TokenRange range,
                     const int32_t *ids, int states, int n_logit_rows, Error *err) {
  bool replayed = false, done = false;
  const bool graph = backend->begin_step && states < 0; /* other rows of states would be another graph */
  if (backend->draft_step) TRY(backend->draft_step(state, range, ids, states, n_logit_rows, &done, err));
  if (done) return STATUS_OK;
  if (graph) TRY(backend->begin_step(state, range, ids, n_logit_rows, &replayed, err));
  if (replayed) return STATUS_OK;
  Status status = backend->draft_embed(state, range, ids, states, err);
  if (status == STATUS_OK) status = run_layers(backend, state, config, range, n_logit_rows, err);
  return graph && backend->end_step ? backend->end_step(state, status, err) : status;
}

Status forward(const Backend *backend, BackendState *state, const ModelConfig *config, TokenRange range,
               const int32_t *ids, int n_logit_rows, Error *err) {
  bool done = false, replayed = false;
  if (backend->fused_step) TRY(backend->fused_step(state, range, ids, n_logit_rows, &done, err));
  if (done) return STATUS_OK;
  if (backend->begin_step) TRY(backend->begin_step(state, range, ids, n_logit_rows, &replayed, err));
  if (replayed) return STATUS_OK;
  Status status = run_operations(backend, state, config, range, ids, n_logit_rows, err);
  return backend->end_step ? backend->end_step(state, status, err) : status;
}
