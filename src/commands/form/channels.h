/* channels.h - answers in messages with channels, as gpt-oss writes them (OpenAI's harmony format): a header,
 * then the text of a thought, an answer or a call of a function.
 *
 *   <|channel|>analysis<|message|> THOUGHT <|end|>
 *   <|start|>assistant<|channel|>final<|message|> ANSWER <|return|>
 *   <|start|>assistant<|channel|>commentary to=functions.NAME <|constrain|>json<|message|> {...} <|call|>
 *
 * No spaces are written beside THOUGHT, ANSWER and {...}. The prompt ends before the first header. Where the
 * answer has a form, can have calls or must not have a thought, a header has to consist of exactly the tokens
 * of an allowed header. */
#pragma once

#include "commands/form/bound.h"
#include "commands/form/tools.h"

typedef enum {
  CHANNEL_NONE, /* the model has no channels */
  CHANNEL_HEADER,
  CHANNEL_THOUGHT,
  CHANNEL_TEXT,
  CHANNEL_CALL
} ChannelState;

/* The tokens of a header that the next message may have. */
typedef struct {
  size_t first, n; /* Channels.ids[first .. first + n) */
} ChannelHeader;

typedef struct {
  int32_t start, end, message; /* ids */
  const Tokenizer *tokenizer;
  const Tools *tools; /* or NULL */
  Bound *bound;       /* the form of the answer, or of a call's arguments */
  bool no_thought;    /* no thought is allowed */
  bool chooses;       /* the header has to be one of `headers` */
  ChannelState state;
  bool is_first;          /* the header is the answer's first */
  Buffer header;          /* text of the header so far, special tokens included */
  IdList ids;             /* tokens of all headers that the message may have */
  ChannelHeader *headers; /* [n_headers] the headers that begin with the tokens taken */
  size_t n_headers, capacity;
  size_t n_taken;                  /* tokens of the header taken so far */
  size_t n_forced;                 /* tokens of the header that are forced and still to be taken */
  const WrittenFunction *function; /* the function that the message calls, or NULL */
  Buffer arguments;                /* text of the call's arguments so far */
} Channels;                        /* starts zeroed; release with channels_release() */

/* Finds the tokens of channels and begins the answer's first header. The state stays CHANNEL_NONE if the
 * template or the tokenizer has no channels, or if the form is a grammar that names tokens. */
Status channels_begin(Channels *channels, const Chat *chat, const Tokenizer *tokenizer, const Tools *tools,
                      Bound *bound, bool no_thought, Error *err);
void channels_release(Channels *channels);

/* Begins the header of the next message. closing: <|end|> comes first, and the message is not a thought. */
Status channels_next(Channels *channels, bool closing, Error *err);
/* Sets reply->forced to the tokens of the header that must come next, if there are any. */
void channels_forced(Channels *channels, TokenReply *reply);
/* Sets *mask to the tokens of a header that may be next; NULL: all. PRECOND state CHANNEL_HEADER */
void channels_mask_header(const Channels *channels, const uint64_t **mask);
/* Takes <|end|>, or a token of a header or of a call's arguments; *taken = false for text of a message.
 * Appends a complete call, {"name": ..., "arguments": ...} and a newline, to `lines`; then *ended is true. */
Status channels_take(Channels *channels, int32_t id, bool *taken, Buffer *lines, bool *ended,
                     TokenReply *reply, Error *err);
