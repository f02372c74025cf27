/* channels.c - see channels.h. Called by: filters.c. */
#include "commands/form/channels.h"

#include <stdlib.h>
#include <string.h>

#define CHANNEL  "<|channel|>"
#define MESSAGE  "<|message|>"
#define FUNCTION "functions."

Status channels_begin(Channels *c, const Chat *chat, const Tokenizer *tokenizer, const Tools *tools,
                      Bound *bound, bool no_thought, Error *err) {
  if (!chat || !chat_writes(chat, CHANNEL) || tokenizer_find(tokenizer, CHANNEL) < 0) return STATUS_OK;
  c->start = tokenizer_find(tokenizer, "<|start|>");
  c->end = tokenizer_find(tokenizer, "<|end|>");
  c->message = tokenizer_find(tokenizer, MESSAGE);
  if (c->start < 0 || c->end < 0 || c->message < 0 || (bound->form && bound->form->has_tokens))
    return STATUS_OK;
  c->tokenizer = tokenizer;
  c->tools = tools->given ? tools : NULL;
  c->bound = bound;
  c->no_thought = no_thought;
  c->chooses = bound->form || no_thought;
  c->is_first = true;
  return channels_next(c, false, err);
}

void channels_release(Channels *c) {
  buffer_release(&c->header);
  buffer_release(&c->arguments);
  id_list_release(&c->ids);
  free(c->headers);
  *c = (Channels){.state = CHANNEL_NONE};
}

/* --- headers that may come */

/* Adds BEFORE <|channel|> CHANNEL NAME AFTER <|message|>. */
static Status add_header(Channels *c, const char *before, const char *channel, const Buffer *name,
                         const char *after, Error *err) {
  OWNED(buffer_release) Buffer text = {0};
  TRY(mem_grow(&c->headers, &c->capacity, c->n_headers + 1, sizeof *c->headers, "headers", err));
  const size_t first = c->ids.count;
  TRY(buffer_printf(&text, err, "%s" CHANNEL "%s", before, channel));
  if (name) TRY(buffer_append(&text, name->data, name->size, err));
  TRY(buffer_append_string(&text, after, err));
  TRY(buffer_append_string(&text, MESSAGE, err));
  const PromptPiece piece = {text.data, text.size, true};
  TRY(tokenizer_encode_pieces(c->tokenizer, &piece, 1, false, &c->ids, err));
  c->headers[c->n_headers++] = (ChannelHeader){first, c->ids.count - first};
  return STATUS_OK;
}

Status channels_next(Channels *c, bool closing, Error *err) {
  const bool thought = c->is_first && !closing && !c->no_thought;
  const char *before = closing ? "<|end|><|start|>assistant" : c->is_first ? "" : "<|start|>assistant";
  c->state = CHANNEL_HEADER;
  c->header.size = c->ids.count = c->n_headers = c->n_taken = 0;
  if (!c->chooses && !closing) return STATUS_OK;
  if (thought) TRY(add_header(c, before, "analysis", NULL, "", err));
  if (!c->tools || !c->tools->required) TRY(add_header(c, before, "final", NULL, "", err));
  for (size_t i = 0; c->tools && i < c->tools->written.count; i++)
    TRY(add_header(c, before, "commentary to=" FUNCTION, &c->tools->written.items[i].name,
                   " <|constrain|>json", err));
  return STATUS_OK;
}

void channels_forced(Channels *c, TokenReply *reply) {
  size_t common = 0;
  if (c->state != CHANNEL_HEADER || c->n_headers == 0) return;
  const int32_t *first = c->ids.ids + c->headers[0].first;
  for (bool same = true; same; common += same) {
    const size_t at = c->n_taken + common;
    for (size_t i = 0; i < c->n_headers && same; i++)
      same = at < c->headers[i].n && c->ids.ids[c->headers[i].first + at] == first[at];
  }
  c->n_forced = common;
  if (common == 0) return;
  reply->forced = first + c->n_taken;
  reply->n_forced = (int)common;
}

void channels_mask_header(const Channels *c, const uint64_t **mask) {
  *mask = NULL;
  if (c->n_headers == 0 || !c->bound->form) return;
  bound_mask_few(c->bound, -1, false, false, mask);
  for (size_t i = 0; i < c->n_headers; i++)
    bound_allow(c->bound, c->ids.ids[c->headers[i].first + c->n_taken]);
}

/* --- taking a header */

/* Keeps the headers whose next token is `id`. */
static void keep_headers(Channels *c, int32_t id) {
  size_t kept = 0;
  for (size_t i = 0; i < c->n_headers; i++) {
    const ChannelHeader *header = &c->headers[i];
    if (c->n_taken < header->n && c->ids.ids[header->first + c->n_taken] == id) c->headers[kept++] = *header;
  }
  c->n_headers = kept;
  c->n_taken++;
}

/* The word after `mark` in the header, of *size bytes; NULL: the header has no `mark`. */
static const char *word_after(const Channels *c, const char *mark, size_t *size) {
  if (c->header.size == 0) return NULL; /* `data` may be NULL */
  const char *at = memmem(c->header.data, c->header.size, mark, strlen(mark));
  if (!at) return NULL;
  at += strlen(mark);
  const char *end = c->header.data + c->header.size;
  *size = 0;
  while (at < end && *at == ' ') at++;
  while (at + *size < end && !strchr(" <\t\r\n", at[*size])) ++*size;
  return at;
}

/* Begins the message that follows the header. A message to a recipient that is none of the functions counts
 * as a thought. */
static Status begin_message(Channels *c, Error *err) {
  size_t n_channel = 0, n_to = 0;
  const char *channel = word_after(c, CHANNEL, &n_channel), *to = word_after(c, " to=", &n_to);
  const size_t prefix = strlen(FUNCTION);
  c->is_first = false;
  c->function = NULL;
  for (size_t i = 0; c->tools && to && n_to > prefix && i < c->tools->written.count; i++) {
    const Buffer *name = &c->tools->written.items[i].name;
    if (memcmp(to, FUNCTION, prefix) == 0 && name->size == n_to - prefix &&
        memcmp(to + prefix, name->data, name->size) == 0)
      c->function = &c->tools->written.items[i];
  }
  c->state = c->function ? CHANNEL_CALL : CHANNEL_TEXT;
  if (!c->function && (to || (n_channel == 8 && memcmp(channel, "analysis", 8) == 0)))
    c->state = CHANNEL_THOUGHT;
  c->arguments.size = 0;
  if (!c->function) return STATUS_OK;
  AnswerForm *form = c->bound->form;
  Error inner;
  const Status status = form_set_part(form, form->flag, NULL, &c->function->parameters, &inner);
  TRY(bound_check(c->bound, status, &inner, err));
  return bound_restart(c->bound, err);
}

/* Takes a token of a header; the last one begins the message. */
static Status take_header(Channels *c, int32_t id, Error *err) {
  OWNED(buffer_release) Buffer bytes = {0};
  bool is_text = false;
  size_t size = 0;
  if (c->n_headers > 0) keep_headers(c, id);
  if (id == c->message) return begin_message(c, err);
  TRY(tokenizer_token_bytes(c->tokenizer, id, &bytes, &is_text, err));
  const char *content = is_text ? bytes.data : tokenizer_content(c->tokenizer, id, &size);
  if (is_text) size = bytes.size;
  return content ? buffer_append(&c->header, content, size, err) : STATUS_OK;
}

/* --- tokens */

/* Takes a token of a call's arguments; the answer ends with them. */
static Status take_argument(Channels *c, int32_t id, Buffer *lines, bool *ended, TokenReply *reply,
                            Error *err) {
  TRY(bound_take(c->bound, id, &c->arguments, err));
  *ended = c->bound->ended;
  return *ended ? written_call_line(c->function, &c->arguments, lines, err)
                : bound_forced(c->bound, reply, err);
}

Status channels_take(Channels *c, int32_t id, bool *taken, Buffer *lines, bool *ended, TokenReply *reply,
                     Error *err) {
  *taken = true;
  if (c->state == CHANNEL_CALL) return take_argument(c, id, lines, ended, reply, err);
  if (c->state == CHANNEL_HEADER) {
    TRY(take_header(c, id, err));
    c->n_forced -= c->n_forced > 0;
    if (c->n_forced == 0) channels_forced(c, reply);
    return STATUS_OK;
  }
  *taken = id == c->end;
  if (!*taken) return STATUS_OK;
  TRY(channels_next(c, false, err));
  channels_forced(c, reply);
  return STATUS_OK;
}
