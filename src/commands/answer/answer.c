/* answer.c - see answer.h.   Called by: run.c, map_answer.c, dialogue.c.
 * A token's way: one.c or batch.c samples it and gives it to take() in filters.c, which offers it to
 * channels.c, calls.c, bound.c and text_chain.c; reply.c, map_answer.c or dialogue.c gets the text. */
#include "commands/answer/answer.h"

#include <stdlib.h>

#include "commands/answer/filters/filters.h"

RELEASE_BY(answer_release, Answer, answer_free)

Status answer_ask(const Assistant *a, AnswerForm *form, const int32_t *ids, size_t n, const AnswerSink *sink,
                  AnswerResult *result, Answer **out, EngineRequest *request, Error *err) {
  *out = NULL;
  *result = (AnswerResult){.reason = FINISH_INTERRUPTED, .n_prompt = (int)n};
  TRY(assistant_check_prompt(a, n, assistant_n_ctx(a), err));
  OWNED(answer_release) Answer *answer = NULL;
  TRY(NEW(answer, 1, "an answer", err));
  *answer = (Answer){.sampler = a->sampler};
  sink->answer->seed = a->sampler.seed;
  *request =
      (EngineRequest){.ids = ids, .n_ids = (int)n, .sampler = &answer->sampler, .n_ctx = assistant_n_ctx(a)};
  TRY(filters_begin(answer, a, form, sink, result, request, err));
  *out = TAKE(answer);
  return STATUS_OK;
}

Status answer_end(Answer *answer, const EngineResult *done, Error *err) {
  if (done->status) return error_set(err, done->status, "%s", done->error.text);
  AnswerResult *result = answer->result;
  /* tokens that are forced after the prompt may have been known, too */
  result->n_reused = done->n_reused < result->n_prompt ? done->n_reused : result->n_prompt;
  result->prefill_ms = done->prefill_ms;
  return filters_end(answer, &done->generated, err);
}

void answer_free(Answer *answer) {
  if (!answer) return;
  filters_release(answer);
  free(answer);
}

typedef struct {
  const EngineRequest *request; /* NULL: the engine has it already */
  Answer *answer;
  Status status; /* this and `error`: the result of answer_end() */
  Error error;
} Alone;

static Status next_alone(void *user, bool may_wait, EngineRequest *request, bool *found, Error *err) {
  Alone *alone = user;
  *found = alone->request != NULL;
  if (*found) *request = *alone->request;
  alone->request = NULL;
  return STATUS_OK;
}

static Status done_alone(void *user, const EngineRequest *request, const EngineResult *result, Error *err) {
  Alone *alone = user;
  EngineResult done = *result;
  if (done.status == STATUS_INTERRUPTED) { /* the search for the allowed tokens noticed the signal first */
    done.status = STATUS_OK;
    done.generated.reason = FINISH_INTERRUPTED;
  }
  alone->status = answer_end(alone->answer, &done, &alone->error);
  return STATUS_OK;
}

static void progress_alone(void *user, const EngineRequest *request, const EngineResult *result, int done,
                           int total) {
  const Filters *f = request->user;
  const AnswerSink *sink = f->text.sink;
  if (sink->prefilling) sink->prefilling(sink->user, done, total);
}

/* The request watches for interruptions (GenerateOptions.interrupted), the job does not: so the answer still
 * gets its last text and result. */
static Status answer_alone(Assistant *a, Answer *answer, EngineRequest *request, Error *err) {
  Alone alone = {.request = request, .answer = answer};
  const EngineJob job = {.next = next_alone, .done = done_alone, .user = &alone, .progress = progress_alone};
  request->alone = true;
  TRY(assistant_run(a, 1, &job, err));
  return alone.status ? error_set(err, alone.status, "%s", alone.error.text) : STATUS_OK;
}

Status assistant_answer(Assistant *a, const int32_t *ids, size_t n, const AnswerSink *sink,
                        AnswerResult *result, Error *err) {
  Answer *answer;
  EngineRequest request;
  TRY(assistant_renew(a, n, err));
  Status status = answer_ask(a, &a->form, ids, n, sink, result, &answer, &request, err);
  if (status == STATUS_OK) status = answer_alone(a, answer, &request, err);
  answer_free(answer);
  a->n_held = (int)n + result->n_generated;
  return status == STATUS_INTERRUPTED ? STATUS_OK : status;
}
