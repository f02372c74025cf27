/* generate.c - see generate.h.
 *
 * Called by: commands/answer/answer.c.   Calls: session.c. */
#include "engine/generate.h"

#include "base/clock.h"

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

/* Asks which tokens may be next. */
static Status restrict_next(Session *session, const GenerateOptions *options, void *user, Error *err) {
  const uint64_t *mask = NULL;
  if (!options->allow) return STATUS_OK;
  TRY(options->allow(user, &mask, err));
  session_allow(session, mask);
  return STATUS_OK;
}

static Status sample(Session *session, const GenerateOptions *options, void *user, int32_t *id, Error *err) {
  TRY(restrict_next(session, options, user, err));
  return session_sample(session, id, err);
}

/* The next token, unless it is forced: forced tokens are computed in one step, with the sampled token before
 * them unless that is decoded already. Asynchronous decode keeps IN_FLIGHT steps enqueued, so that the
 * device computes one token while the host shows another, and waits for the oldest. A mask depends on the
 * token before: then one step is enqueued, which the device computes while the host makes the next mask.
 * Guesses depend on it, too: where guesses are likely, no more steps are enqueued, and those in flight are
 * waited for. The last wanted token is sampled and not decoded, since its logits have no use. */
static Status next_token(Session *session, const GenerateOptions *options, void *user, int n_wanted,
                         int32_t *id, bool *decoded, Error *err) {
  enum { IN_FLIGHT = 2 };
  const int most = options->allow ? 1 : IN_FLIGHT;
  bool expects;
  *decoded = false;
  if (options->score || !session_decodes_async(session)) return sample(session, options, user, id, err);
  TRY(session_expects_guesses(session, n_wanted, &expects, err));
  while (!expects && session_in_flight(session) < most &&
         (n_wanted < 0 || session_in_flight(session) < n_wanted - 1) &&
         session_length(session) + session_in_flight(session) < session_context(session)) {
    TRY(restrict_next(session, options, user, err));
    TRY(session_decode_async(session, err));
  }
  if (session_in_flight(session) == 0) return sample(session, options, user, id, err);
  *decoded = true;
  return session_wait_token(session, id, err);
}

static Status score(Session *session, const GenerateOptions *options, void *user, int32_t id, Error *err) {
  const float *logits;
  TRY(session_last_logits(session, &logits, err));
  return generation_score(options, user, logits, session_vocab(session), id, err);
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

void generating_begin(Generating *g, const Session *session, const GenerateOptions *options, TokenSink sink,
                      void *user, GenerateResult *result) {
  *result = (GenerateResult){.reason = FINISH_LENGTH};
  *g = (Generating){
      .generation = {options, sink, user, result, options->forced, options->n_forced},
      .start_ms = clock_ms(),
      .before = session_guesses(session),
  };
}

/* Computes the session's held tokens, unless forced tokens follow that can be computed with them. */
static Status decode_held(const Generation *g, Session *session, Error *err) {
  const int most = g->options->max_tokens, left = most < 0 ? -1 : most - g->result->n_generated - 1;
  if (session_held(session) == 0 || (g->n_forced > 0 && !g->options->score)) return STATUS_OK;
  return session_decode_held(session, left, err);
}

static Status step(Generating *generating, Session *session, bool *ended, Error *err) {
  Generation *g = &generating->generation;
  const GenerateOptions *options = g->options;
  GenerateResult *result = g->result;
  int32_t id;
  bool decoded = false;
  *ended = true;
  if (result->n_generated == options->max_tokens) return STATUS_OK;
  const int left = options->max_tokens < 0 ? -1 : options->max_tokens - result->n_generated;
  result->reason = FINISH_INTERRUPTED;
  if (options->interrupted && *options->interrupted) return STATUS_OK;
  if (g->n_forced > 0 && session_in_flight(session)) TRY(session_drain(session, err));
  TRY(decode_held(g, session, err));
  result->reason = FINISH_LENGTH;
  const bool is_forced = generation_forced(g, &id);
  if (!is_forced) TRY(next_token(session, options, g->user, left, &id, &decoded, err));
  if (options->score) TRY(score(session, options, g->user, id, err));
  if (result->n_generated == 0) generating->first_ms = clock_ms();
  TRY(generation_take(g, id, is_forced, ended, err));
  if (*ended) return STATUS_OK;
  *ended = !decoded && !session_hold(session, id);
  if (*ended) result->reason = FINISH_CONTEXT;
  return STATUS_OK;
}

/* The step may be interrupted in allow(), in the sink or in the callback of session_watch(), too. */
Status generating_step(Generating *generating, Session *session, bool *ended, Error *err) {
  const Status status = step(generating, session, ended, err);
  if (status != STATUS_INTERRUPTED) return status;
  generating->generation.result->reason = FINISH_INTERRUPTED;
  *ended = true;
  return STATUS_OK;
}

Status generating_end(const Generating *g, Session *session, Status so_far, Error *err) {
  GenerateResult *result = g->generation.result;
  if (g->first_ms > 0) {
    result->first_token_ms = g->first_ms - g->start_ms;
    result->decode_ms = clock_ms() - g->first_ms;
  }
  result->guesses = session_guesses(session);
  result->guesses.n_steps -= g->before.n_steps;
  result->guesses.n_guessed -= g->before.n_guessed;
  result->guesses.n_accepted -= g->before.n_accepted;
  result->guesses.draft_ms -= g->before.draft_ms;
  Status drained = session_drain(session, so_far ? NULL : err);
  session_allow(session, NULL);
  return so_far ? so_far : drained;
}

Status generate(Session *session, const GenerateOptions *options, TokenSink sink, void *user,
                GenerateResult *result, Error *err) {
  Generating generating;
  Status status = STATUS_OK;
  generating_begin(&generating, session, options, sink, user, result);
  for (bool ended = false; !ended && status == STATUS_OK;)
    status = generating_step(&generating, session, &ended, err);
  return generating_end(&generating, session, status, err);
}
