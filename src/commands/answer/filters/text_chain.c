/* text_chain.c - see text_chain.h.   Called by: filters.c. */
#include "commands/answer/filters/text_chain.h"

Status text_chain_begin(TextChain *c, const Tokenizer *tokenizer, const AnswerSink *sink, Error *err) {
  *c = (TextChain){.sink = sink};
  return tokenizer_stream_open(tokenizer, false, &c->stream, err);
}

void text_chain_release(TextChain *c) {
  tokenizer_stream_close(c->stream);
  thinking_release(&c->splitter);
  stop_filter_release(&c->stop);
  code_block_release(&c->block);
  buffer_release(&c->thought);
  buffer_release(&c->answer);
  buffer_release(&c->out);
}

static Status show(const TextChain *c, TextKind kind, const char *text, size_t size, Error *err) {
  return c->sink->text ? c->sink->text(c->sink->user, kind, text, size, err) : STATUS_OK;
}

/* Gives text of the answer to the code block's filter; `end`: the answer ends with this text. Shows the code
 * that the filter adds. */
static Status show_code(TextChain *c, const Buffer *text, bool end, Error *err) {
  Buffer *code = &c->sink->answer->code;
  const size_t before = code->size;
  TRY(code_block_push(&c->block, text->data, text->size, code, err));
  if (end) TRY(code_block_end(&c->block, code, err));
  c->stopped |= c->block.state == BLOCK_AFTER;
  if (code->size == before) return STATUS_OK;
  return show(c, TEXT_ANSWER, code->data + before, code->size - before, err);
}

Status text_chain_emit(TextChain *c, TextKind kind, Buffer *text, Error *err) {
  AnswerText *answer = c->sink->answer;
  const Buffer added = *text;
  text->size = 0;
  if (added.size == 0 || c->stopped) return STATUS_OK;
  TRY(buffer_append(kind == TEXT_THOUGHT ? &answer->thinking
                    : kind == TEXT_CALL  ? &answer->calls
                                         : &answer->text,
                    added.data, added.size, err));
  if (answer->extracts && kind == TEXT_ANSWER) return show_code(c, &added, false, err);
  return show(c, kind, added.data, added.size, err);
}

/* Passes on the whole characters in c->out; `end`: also the text that the filters hold back. */
static Status pass(TextChain *c, bool end, Error *err) {
  Buffer *text = &c->out;
  if (c->is_thought)
    TRY(buffer_append(&c->thought, text->data ? text->data : "", text->size, err));
  else
    TRY(thinking_push(&c->splitter, text->data, text->size, &c->thought, &c->answer, err));
  if (end) TRY(thinking_end(&c->splitter, &c->thought, &c->answer, err));
  text->size = 0;
  TRY(text_chain_emit(c, TEXT_THOUGHT, &c->thought, err));
  if (c->drops_answer) c->answer.size = 0;
  TRY(stop_filter_push(&c->stop, c->answer.data, c->answer.size, text, err));
  c->answer.size = 0;
  if (end && !c->stop.stopped) TRY(stop_filter_end(&c->stop, text, err));
  TRY(text_chain_emit(c, TEXT_ANSWER, text, err));
  c->stopped |= c->stop.stopped;
  if ((end || c->stopped) && c->sink->answer->extracts) return show_code(c, text, true, err);
  return STATUS_OK;
}

Status text_chain_take(TextChain *c, int32_t id, Error *err) {
  TRY(tokenizer_stream_push(c->stream, id, &c->out, err));
  return pass(c, false, err);
}

Status text_chain_end(TextChain *c, bool is_all, Error *err) {
  TRY(tokenizer_stream_end(c->stream, &c->out, err));
  return pass(c, is_all, err);
}
