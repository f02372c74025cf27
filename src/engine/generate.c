/* generate.c - see generate.h.
 *
 * Called by: commands/run.c.   Calls: session.c. */
#include "engine/generate.h"

#include "base/clock.h"

const char *finish_name(FinishReason reason) {
  static const char *const names[] = {
      [FINISH_EOS] = "eos",
      [FINISH_STOP] = "stop",
      [FINISH_LENGTH] = "length",
      [FINISH_CONTEXT] = "context",
      [FINISH_INTERRUPTED] = "interrupted",
  };
  return names[reason];
}

static bool is_end(const GenerateOptions *options, int32_t id) {
  for (int i = 0; i < options->n_eos; i++)
    if (options->eos[i] == id) return !options->ignore_eos;
  return false;
}

Status generate(Session *session, const GenerateOptions *options, TokenSink sink, void *user,
                GenerateResult *result, Error *err) {
  double start = clock_ms(), first = 0;
  bool stop = false;
  int32_t id;
  *result = (GenerateResult){.reason = FINISH_LENGTH};
  while (result->n_generated != options->max_tokens) {
    result->reason = FINISH_INTERRUPTED;
    if (options->interrupted && *options->interrupted) break;
    TRY(session_sample(session, &id, err));
    if (result->n_generated == 0) first = clock_ms();
    result->reason = FINISH_EOS;
    if (is_end(options, id)) break;
    TRY(sink(user, id, &stop, err));
    result->n_generated++;
    result->reason = FINISH_STOP;
    if (stop) break;
    result->reason = FINISH_LENGTH;
    if (result->n_generated == options->max_tokens) break; /* the last token's logits serve nobody */
    result->reason = FINISH_CONTEXT;
    if (session_length(session) == session_context(session)) break;
    TRY(session_decode(session, id, err));
    result->reason = FINISH_LENGTH;
  }
  if (first > 0) {
    result->first_token_ms = first - start;
    result->decode_ms = clock_ms() - first;
  }
  return STATUS_OK;
}
