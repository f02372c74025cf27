/* channels.h - answers in messages with channels, as gpt-oss writes them (OpenAI's harmony format): a header,
 * then the text of a thought, an answer or a call of a function.
 *
 *   <|channel|>analysis<|message|> THOUGHT <|end|>
 *   <|start|>assistant<|channel|>final<|message|> ANSWER <|return|>
 *   <|start|>assistant<|channel|>commentary to=functions.NAME <|constrain|>json<|message|> {...} <|call|>
 *
 * The prompt ends before the first header. Where the answer has a form or may have calls, a header has to
 * consist of exactly the tokens of one that is allowed. */
#pragma once

#include "commands/form/bound.h"
#include "commands/form/tools.h"

typedef enum { CHANNEL_HEADER, CHANNEL_THOUGHT, CHANNEL_TEXT, CHANNEL_CALL } ChannelState;

/* The tokens of a header that the next message may have. */
typedef struct {
  size_t first, n; /* in Channels.ids */
} ChannelHeader;

typedef struct {
  int32_t start, end, message; /* ids; message -1: the model has no channels */
  const Tokenizer *tokenizer;
  const Tools *tools; /* or NULL */
  bool no_thought;    /* none is allowed */
  bool bound;         /* headers are chosen among `headers` */
  ChannelState state;
  bool is_first;          /* the header is the answer's first */
  Buffer header;          /* text of the header so far, special tokens included */
  IdList ids;             /* tokens of all headers that the message may have */
  ChannelHeader *headers; /* [n_headers] those that begin with the tokens taken */
  size_t n_headers, capacity;
  size_t n_taken;                  /* tokens of the header taken so far */
  const WrittenFunction *function; /* the function that the message calls, or NULL */
  Buffer arguments;                /* text of the call's arguments so far */
} Channels;                        /* starts zeroed; release with channels_release() */

/* Finds the tokens of channels, if template and tokenizer have them, and begins the answer's first header. */
Status channels_begin(Channels *channels, const Chat *chat, const Tokenizer *tokenizer, const Tools *tools,
                      const AnswerForm *form, bool no_thought, Error *err);
void channels_release(Channels *channels);
static inline bool channels_are_used(const Channels *channels) {
  return channels->tokenizer != NULL;
}

/* Begins the header of the next message. closing: <|end|> comes first, and the message is not a thought. */
Status channels_next(Channels *channels, bool closing, Error *err);
/* Sets *ids to the [*n] tokens of the header that must come next; unchanged if there is none. */
void channels_forced(const Channels *channels, const int32_t **ids, int *n);
/* Sets *mask to the tokens of a header that may be next; NULL: all. PRECOND state CHANNEL_HEADER */
void channels_mask_header(const Channels *channels, Bound *bound, const uint64_t **mask);
/* Takes a token of a header; the last one changes the state. If the message is a call, `form` becomes that of
 * its arguments. */
Status channels_take_header(Channels *channels, int32_t id, AnswerForm *form, Error *err);
/* Appends the call, {"name": ..., "arguments": ...} and a newline. */
Status channels_write_call(const Channels *channels, Buffer *lines, Error *err);
