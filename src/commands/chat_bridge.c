/* chat_bridge.c - chat.h over the two fixed frames, while nothing else implements it. */
#include <stdlib.h>

#include "tokenizer/chat.h"
#include "tokenizer/frame.h"

#define WEAK __attribute__((weak))

struct Chat {
  ChatFormat format;
};

WEAK Status chat_open(const char *directory, const char *choice, const Tokenizer *tokenizer, Chat **chat,
                      Error *err) {
  (void)directory, (void)choice;
  ChatFormat format = chat_format_of(tokenizer);
  *chat = NULL;
  if (format == CHAT_NONE) return STATUS_OK;
  *chat = mem_alloc(1, sizeof **chat, "a chat", err);
  if (!*chat) return STATUS_FAILED;
  (*chat)->format = format;
  return STATUS_OK;
}

WEAK void chat_close(Chat *chat) {
  free(chat);
}

WEAK const char *chat_source(const Chat *chat) {
  return chat->format == CHAT_CHATML ? "ChatML" : "Llama 3";
}

WEAK Status chat_render(const Chat *chat, const ChatMessage *messages, size_t n_messages, ChatOptions options,
                        TrustedText *out, Error *err) {
  (void)chat, (void)options;
  TRY(buffer_append(&out->text, messages, n_messages * sizeof *messages, err));
  out->n_runs = (size_t)chat->format;
  return STATUS_OK;
}

WEAK void trusted_text_release(TrustedText *text) {
  buffer_release(&text->text);
}

WEAK Status chat_encode(const Tokenizer *tokenizer, const TrustedText *text, bool trusted, IdList *ids,
                        Error *err) {
  const ChatMessage *messages = (const ChatMessage *)(const void *)text->text.data;
  FrameMessage frames[64];
  size_t n = text->text.size / sizeof *messages;
  for (size_t i = 0; i < n && i < 64; i++)
    frames[i] = (FrameMessage){messages[i].role, messages[i].text, messages[i].size};
  return frame_encode(tokenizer, (ChatFormat)text->n_runs, frames, n, trusted, ids, err);
}

WEAK Status chat_ends(const Chat *chat, const Tokenizer *tokenizer, IdList *ids, Error *err) {
  return id_list_append(ids, chat_end_of_turn(tokenizer, chat->format), err);
}

WEAK ChatThinking chat_thinking(const Chat *chat, const Tokenizer *tokenizer) {
  (void)chat, (void)tokenizer;
  return (ChatThinking){0};
}
