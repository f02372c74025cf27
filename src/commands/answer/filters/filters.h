/* filters.h - an answer in progress, for one prompt, a chat and --map alike. Each token is offered to four
 * filters in this order; the first one that is responsible for this part of the answer takes it:
 *
 *   channels  headers of messages, and calls in messages of their own (channels.h: gpt-oss)
 *   calls     calls of functions between marks (calls.h), after the thought
 *   form      an answer that keeps to a form (bound.h), after the thought
 *   text      all else: thoughts, and answers of free text (text_chain.h)
 *
 * That filter gives text to the sink, says which tokens are forced next, and notes whether the answer is
 * complete. */
#pragma once

#include "commands/answer/filters/repetition.h"
#include "commands/answer/filters/text_chain.h"
#include "commands/form/bound.h"
#include "commands/form/calls.h"
#include "commands/form/channels.h"

typedef struct Filters {
  const Assistant *assistant;
  AnswerResult *result;
  SamplerSettings sampler; /* the request's copy: the assistant's settings change from answer to answer */
  Channels channels;
  Calls calls;
  Bound bound; /* the form that the answer, or its calls, keep to */
  TextChain text;
  Buffer whole;     /* text of a form, or lines of a call, on the way to the sink */
  bool ended;       /* the form, or the last call, is complete: nothing may follow */
  int n_spaces;     /* white-space tokens between a thought and an answer with a form */
  int budget;       /* limit on tokens of thought; -1: none, or the thought is closed */
  IdList closing;   /* token ids that close a thought, encoded on first use */
  size_t n_closing; /* how many of them are still to come */
  Repetition repetition;
  bool loops; /* a repetition was found, which ends the answer */
} Filters;    /* starts zeroed; must not move, as `calls` and `channels` point to `bound` */

/* Begins the answer to the prompt of `request`, and sets the request's sink, user and GenerateOptions.
 * `assistant`, form, sink and result have to stay valid until filters_end(). */
Status filters_begin(Filters *filters, const Assistant *assistant, AnswerForm *form, const AnswerSink *sink,
                     AnswerResult *result, EngineRequest *request, Error *err);
void filters_release(Filters *filters);
/* Passes on the last text, and completes the AnswerResult from the engine's result. */
Status filters_end(Filters *filters, const GenerateResult *generated, Error *err);
