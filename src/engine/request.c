/* request.c - see request.h. */
#include "engine/request.h"

#include "engine/forward.h"

const char *finish_name(FinishReason reason) {
  static const char *const names[] = {
      [FINISH_EOS] = "eos",
      [FINISH_STOP] = "stop",
      [FINISH_LENGTH] = "length",
      [FINISH_CONTEXT] = "context",
      [FINISH_INTERRUPTED] = "interrupted",
      [FINISH_REPETITION] = "repetition",
  };
  return names[reason];
}

int request_context(const EngineRequest *r, int n_ctx) {
  return r->n_ctx > 0 && r->n_ctx < n_ctx ? r->n_ctx : n_ctx;
}

Status request_check(const EngineRequest *r, int n_ctx, const ModelConfig *config, Error *err) {
  const int n = r->n_ids - (r->n_scored > 0), most = request_context(r, n_ctx);
  if (n < 1 || n > most || r->n_scored < 0 || r->n_scored > n)
    return error_set(err, STATUS_USAGE, "%d tokens, expected 1 to the context of %d", n, most);
  TRY(forward_check_ids(config, "token", r->ids, r->n_ids, err));
  return forward_check_ids(config, "forced token", r->generate.forced, r->generate.n_forced, err);
}

Status generation_score(const GenerateOptions *options, void *user, const float *logits, int vocab_size,
                        int32_t id, Error *err) {
  TokenScore scores[MOST_BEST + 1];
  log_probabilities(logits, vocab_size, id, options->n_best, scores);
  return options->score(user, scores, err);
}

bool generation_forced(Generation *g, int32_t *id) {
  if (g->n_forced == 0) return false;
  *id = *g->forced++;
  g->n_forced--;
  return true;
}

/* True if a sampled token ends the answer and is no part of its text. */
static bool is_end_token(const GenerateOptions *options, int32_t id) {
  bool ends = false;
  for (int i = 0; i < options->n_eos; i++) ends |= options->eos[i] == id;
  return ends && !options->ignore_eos;
}

bool generation_ends(const Generation *g, int32_t id) {
  return is_end_token(g->options, id) || g->result->n_generated + 1 == g->options->max_tokens;
}

Status generation_take(Generation *g, int32_t id, bool is_forced, bool *ended, Error *err) {
  const GenerateOptions *options = g->options;
  GenerateResult *result = g->result;
  *ended = true;
  result->reason = FINISH_EOS;
  if (!is_forced && is_end_token(options, id)) return STATUS_OK;
  TokenReply reply = {0};
  TRY(g->sink(g->user, id, &reply, err));
  if (reply.n_forced > 0) {
    g->forced = reply.forced;
    g->n_forced = reply.n_forced;
  }
  result->n_generated++;
  result->reason = FINISH_STOP;
  if (reply.stop) return STATUS_OK;
  result->reason = FINISH_LENGTH;
  if (result->n_generated == options->max_tokens) return STATUS_OK;
  *ended = false;
  return STATUS_OK;
}
