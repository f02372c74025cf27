/* request.c - see request.h. */
#include "engine/request.h"

#include "base/clock.h"
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

void running_begin(Running *r, const EngineRequest *request) {
  *r = (Running){
      .request = *request,
      .result.generated.reason = FINISH_LENGTH,
      .state = request->n_scored > 0 ? RUN_SCORES : RUN_ANSWER,
      .forced = request->generate.forced,
      .n_forced = request->n_scored > 0 || request->generate.max_tokens == 0 ? 0 : request->generate.n_forced,
      .start_ms = clock_ms()};
}

static void take_reply(Running *r, const TokenReply *reply) {
  if (reply->n_forced == 0) return;
  r->forced = reply->forced;
  r->n_forced = reply->n_forced;
}

EngineTurn running_turn(Running *r, const EngineJob *job) {
  const volatile int *interrupted = job->interrupted ? NULL : r->request.generate.interrupted;
  TokenReply reply = {0};
  r->turn = interrupted && *interrupted ? TURN_END
            : r->request.turn           ? r->request.turn(r->request.user, &reply)
                                        : TURN_GO;
  take_reply(r, &reply);
  if (r->turn != TURN_END) return r->turn;
  r->result.generated.reason = FINISH_INTERRUPTED;
  r->state = RUN_ENDED;
  return TURN_END;
}

Status running_restrict(Running *r, Sampler *sampler) {
  const uint64_t *mask = NULL;
  if (!r->request.generate.allow || r->n_forced > 0) return STATUS_OK;
  r->result.status = r->request.generate.allow(r->request.user, &mask, &r->result.error);
  sampler_allow(sampler, r->result.status ? NULL : mask);
  return r->result.status;
}

Status running_score(Running *r, const float *logits, int vocab_size, int32_t id) {
  TokenScore scores[MOST_BEST + 1];
  log_probabilities(logits, vocab_size, id, r->request.generate.n_best, scores);
  r->result.status = r->request.generate.score(r->request.user, scores, &r->result.error);
  return r->result.status;
}

bool running_forced(Running *r, int32_t *id) {
  if (r->n_forced == 0) return false;
  *id = *r->forced++;
  r->n_forced--;
  return true;
}

/* True if a sampled token ends the answer and is no part of its text. */
static bool is_end_token(const GenerateOptions *options, int32_t id) {
  bool ends = false;
  for (int i = 0; i < options->n_eos; i++) ends |= options->eos[i] == id;
  return ends && !options->ignore_eos;
}

int running_more(const Running *r) {
  const int most = r->request.generate.max_tokens;
  return most > 0 ? most - r->result.generated.n_generated - 1 : -1;
}

bool running_ends(const Running *r, int32_t id) {
  const GenerateOptions *options = &r->request.generate;
  return is_end_token(options, id) || running_more(r) == 0;
}

Status running_take(Running *r, int32_t id, bool is_forced, bool has_room) {
  const GenerateOptions *options = &r->request.generate;
  GenerateResult *result = &r->result.generated;
  TokenReply reply = {0};
  const bool is_end = !is_forced && is_end_token(options, id);
  if (!is_end) r->result.status = r->request.sink(r->request.user, id, &reply, &r->result.error);
  r->state = RUN_ENDED;
  result->reason = FINISH_EOS;
  if (is_end || r->result.status) return r->result.status;
  take_reply(r, &reply);
  result->n_generated++;
  const bool is_last = result->n_generated == options->max_tokens;
  result->reason = reply.stop ? FINISH_STOP : is_last || has_room ? FINISH_LENGTH : FINISH_CONTEXT;
  if (!reply.stop && !is_last && has_room) r->state = RUN_ANSWER;
  return STATUS_OK;
}

void running_done(Running *r) {
  GenerateResult *result = &r->result.generated;
  const double prompt_ms = r->start_ms + r->result.prefill_ms, now = clock_ms();
  result->first_token_ms = r->first_ms > prompt_ms ? r->first_ms - prompt_ms : 0;
  result->decode_ms = now - (r->first_ms > 0 ? r->first_ms : prompt_ms);
}
