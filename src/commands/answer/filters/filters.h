/* filters.h - an answer in progress: the chain of filters that its tokens pass through, for one prompt, a
 * chat and --map alike.
 *
 *   token -> channels -> calls -> form -> text -> sink
 *
 * A token is offered to the filters in this order; the first to whose part of the answer it belongs takes it:
 *   channels  headers of messages, and calls in messages of their own (channels.h: gpt-oss)
 *   calls     calls of functions between marks (calls.h), after the thought
 *   form      an answer that keeps to a form (bound.h), after the thought
 *   text      all else: thoughts, and answers of free text (text_chain.h)
 * The filter also says which tokens come next by force, and whether the answer is complete. */
#pragma once

#include "commands/answer/filters/repetition.h"
#include "commands/answer/filters/text_chain.h"
#include "commands/form/bound.h"
#include "commands/form/calls.h"
#include "commands/form/channels.h"

typedef struct {
  const Assistant *assistant;
  AnswerResult *result;
  Channels channels;
  Calls calls;
  Bound bound; /* the form that the answer, or its calls, keep to */
  TextChain text;
  Buffer whole;     /* text that a form or call has completed with a token */
  bool ended;       /* the form, or the last call, is complete: nothing may follow */
  int n_spaces;     /* white-space tokens between a thought and an answer with a form */
  int budget;       /* limit on tokens of thought; -1: none, or the thought is closed */
  IdList closing;   /* token ids that close a thought, encoded on first use */
  size_t n_closing; /* how many of them are still to come */
  Repetition repetition;
  bool loops; /* a repetition was found, which ends the answer */
} Filters;    /* starts zeroed; stays where it is; release with filters_release() */

/* Begins the answer to a prompt; form, sink and result stay valid until its end. */
Status filters_begin(Filters *filters, const Assistant *assistant, AnswerForm *form, const int32_t *ids,
                     size_t n, const AnswerSink *sink, AnswerResult *result, Error *err);
void filters_release(Filters *filters);

/* GenerateOptions for the filters: masks, scores and the first forced tokens. The sink's `user` has to be
 * `filters`. */
Status filters_options(Filters *filters, GenerateOptions *options, Error *err);
/* The TokenSink of the generation. */
Status filters_take(void *filters, int32_t id, TokenReply *reply, Error *err);
/* Passes on the last text, and completes the AnswerResult from the result of generate(). */
Status filters_end(Filters *filters, const GenerateResult *generated, Error *err);
