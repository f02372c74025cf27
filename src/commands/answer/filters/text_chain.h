/* text_chain.h - the filters that the text of an answer passes through, from tokens to the sink:
 *
 *   token -> whole characters -> thought or answer (thinking.h)
 *         -> in answers: stop strings (stop.h), with -x the code block (code_block.h) -> AnswerText, sink
 *
 * Each filter holds back only what later text may change, so the sink gets the same text however it is cut
 * into tokens. Text of a form and of calls is complete when it comes; it goes straight to the sink. */
#pragma once

#include "commands/answer/answer_result.h"
#include "commands/answer/filters/code_block.h"
#include "commands/answer/filters/stop.h"
#include "commands/answer/filters/thinking.h"

typedef struct {
  const AnswerSink *sink;
  TokenizerStream *stream;
  ThinkingSplitter splitter;
  StopFilter stop;
  CodeBlock block;
  bool is_thought;   /* the text is in a channel for thoughts (channels.h): no marks are looked for */
  bool drops_answer; /* the answer has a form: text after a thought's closing mark is dropped */
  bool stopped;      /* a stop string, or the end of the code block, ended the answer */
  Buffer thought, answer, out; /* text of one token, filter by filter */
} TextChain;                   /* starts zeroed; release with text_chain_release() */

/* Begins a text; the caller sets the splitter, the stop strings, is_thought and drops_answer. */
Status text_chain_begin(TextChain *chain, const Tokenizer *tokenizer, const AnswerSink *sink, Error *err);
void text_chain_release(TextChain *chain);

/* Takes a token. */
Status text_chain_take(TextChain *chain, int32_t id, Error *err);
/* Ends a message of the text: passes on the bytes of a character that will not be whole. is_all: also ends
 * the text, and passes on all that the filters held back. */
Status text_chain_end(TextChain *chain, bool is_all, Error *err);
/* Passes `text` straight to the AnswerText and the sink, unless the answer was stopped. Empties `text`. */
Status text_chain_emit(TextChain *chain, TextKind kind, Buffer *text, Error *err);
