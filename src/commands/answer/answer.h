/* answer.h - the single path from the ids of a prompt to the text of an answer. The caller's sink decides
 * where the text goes. */
#pragma once

#include "commands/answer/answer_result.h"

/* Prefills the part of ids[0..n) that the session lacks, generates, and splits thought from answer (the
 * prompt may end in an open thought). Obeys end tokens, --stop (in the answer), max_tokens and think_budget.
 * Unless -n or --ignore-eos is given, also ends an answer in a loop (repetition.h). An interruption is a
 * success: FINISH_INTERRUPTED. Afterwards the session holds prompt and answer, perhaps without the last
 * tokens. */
Status assistant_answer(Assistant *assistant, const int32_t *ids, size_t n, const AnswerSink *sink,
                        AnswerResult *result, Error *err);

/* assistant_answer() as a request to the engine: answer_ask() prepares `request`; answer_end() passes
 * on the last text and completes `result`. Until then ids, form, sink and result must stay valid. */
typedef struct Filters Answer; /* commands/answer/filters/filters.h */
Status answer_ask(const Assistant *assistant, AnswerForm *form, const int32_t *ids, size_t n,
                  const AnswerSink *sink, AnswerResult *result, Answer **answer, EngineRequest *request,
                  Error *err);
Status answer_end(Answer *answer, const EngineResult *done, Error *err);
void answer_free(Answer *answer); /* NULL is fine */
