/* forward.c - see forward.h. */
#include "engine/forward.h"

Status forward_check_ids(const ModelConfig *config, const char *name, const int32_t *ids, int n, Error *err) {
  for (int i = 0; i < n; i++)
    if (ids[i] < 0 || ids[i] >= config->vocab_size)
      return error_set(err, STATUS_USAGE, "%s %d has id %d, expected 0 to %d", name, i, (int)ids[i],
                       config->vocab_size - 1);
  return STATUS_OK;
}

Status forward_prepare(const Backend *backend, const ModelConfig *config, Program *program, Error *err) {
  TRY(program_make(config, program, err));
  for (const Op *op = program->ops; op < program->ops + program->n; op++)
    if (!backend->run[op->kind])
      return error_set(err, STATUS_MODEL, "%s has %s, which the %s does not compute", config->architecture,
                       operation_name(op->kind), backend->name);
  return STATUS_OK;
}

/* True if the step drops rows without logits after operation program->cut: nothing reads them afterwards. */
static bool cuts_rows(const Backend *backend, const BackendState *state, const Program *program,
                      TokenRange range) {
  return backend->cuts_rows && range.only_logits && !range.taps && range.n_logit_rows < range.n_tokens &&
         program->cut >= 0 && backend->cuts_rows(state, range);
}

static Status run(const Backend *backend, BackendState *state, const Program *program, TokenRange range,
                  Error *err) {
  const bool cuts = cuts_rows(backend, state, program, range);
  const int logits = program->n - 1, end = range.n_logit_rows > 0 ? program->n
                                           : cuts                 ? program->kept
                                                                  : logits;
  int tap = 0;
  range.first_logit = range.n_tokens - range.n_logit_rows;
  for (int i = 0; i < end; i++) {
    const Op *op = &program->ops[i];
    const bool cut = cuts && i == program->cut;
    range.n_kept = cut ? range.n_logit_rows : 0;
    TRY(backend->run[op->kind](state, range, op->layer, err));
    if (cut)
      range =
          (TokenRange){.pos = range.pos, .n_tokens = range.n_logit_rows, .n_logit_rows = range.n_logit_rows};
    const bool last = i < logits && op[1].layer > op->layer; /* the layer's last operation */
    if (last && range.taps && tap < range.taps->n && range.taps->layers[tap] == op->layer)
      TRY(backend->keep_tap(state, range, tap++, err));
  }
  return STATUS_OK;
}

Status forward(const Backend *backend, BackendState *state, const Program *program, TokenRange range,
               Error *err) {
  bool done = false, replayed = false;
  const bool drafts = program->ops[0].kind == OP_DRAFT_EMBED;
  /* range.states differs from step to step, and each of its values would need a graph of its own. */
  const bool graph = backend->begin_step && !(drafts && range.states >= 0);
  if (backend->fused_step) TRY(backend->fused_step(state, range, &done, err));
  if (done) return STATUS_OK;
  if (graph) TRY(backend->begin_step(state, range, &replayed, err));
  if (replayed) return STATUS_OK;
  Status status = run(backend, state, program, range, err);
  return graph && backend->end_step ? backend->end_step(state, status, err) : status;
}

Status forward_part(const Backend *backend, BackendState *state, const Program *program, TokenRange range,
                    int first, int end, float *rows, Error *err) {
  /* The embedding also sets the positions and each layer's own input for each token. */
  TRY(backend->run[program->ops[0].kind](state, range, program->ops[0].layer, err));
  if (rows) TRY(backend->carry(state, range, true, rows, err));
  for (const Op *op = program->ops + first; op < program->ops + end; op++)
    TRY(backend->run[op->kind](state, range, op->layer, err));
  return STATUS_OK;
}
