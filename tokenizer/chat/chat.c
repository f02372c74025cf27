/* chat.c - renders conversations and encodes the result; see chat.h.
 *
 * Always true: a template gets the variables of transformers' apply_chat_template(): messages, tools and
 * documents (None if absent), add_generation_prompt, the special tokens by name, and the caller's options. */
#include "tokenizer/chat/chat.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/utf8.h"
#include "tokenizer/chat/chat_internal.h"
#include "tokenizer/jinja/text.h"

/* --- rendering */

void chat_heed(Chat *chat, const volatile int *interrupted) {
  chat->interrupted = interrupted;
}

static Status append_member(Buffer *json, const char *key, const char *role, const char *text, size_t size,
                            Error *err) {
  size_t valid = size ? utf8_valid_prefix(text, size) : 0;
  if (valid < size)
    return error_set(err, STATUS_USAGE, "the %s message is not valid UTF-8: byte 0x%02x at offset %zu", role,
                     (unsigned char)text[valid], valid);
  TRY(buffer_printf(json, err, ",\"%s\":", key));
  return json_write_string(json, text ? text : "", size, err);
}

static Status append_content(Buffer *json, const ChatMessage *m, bool in_parts, Error *err) {
  if (!in_parts) return append_member(json, "content", m->role, m->text, m->size, err);
  TRY(buffer_append_string(json, ",\"content\":[{\"type\":\"text\"", err));
  TRY(append_member(json, "text", m->role, m->text, m->size, err));
  return buffer_append_string(json, "}]", err);
}

/* Writes a message, with its reasoning under each name that templates use: the first two names are
 * transformers', the last one is vLLM's. */
static Status append_message(Buffer *json, const ChatMessage *m, bool in_parts, Error *err) {
  static const char *const names[] = {"thinking", "reasoning_content", "reasoning"};
  TRY(buffer_append_string(json, "{\"role\":", err));
  TRY(json_write_string(json, m->role, strlen(m->role), err));
  TRY(append_content(json, m, in_parts, err));
  for (int i = 0; m->thinking && i < 3; i++)
    TRY(append_member(json, names[i], m->role, m->thinking, m->thinking_size, err));
  if (m->members) {
    TRY(buffer_append(json, ",", 1, err));
    TRY(buffer_append(json, m->members, m->members_size, err));
  }
  return buffer_append_string(json, "}", err);
}

/* The switch for thinking is enable_thinking in most templates, thinking in some. */
static Status append_variables(Buffer *json, const ChatMessage *messages, size_t n, bool in_parts,
                               ChatOptions options, Error *err) {
  TRY(buffer_append_string(json, "{\"messages\":[", err));
  for (size_t i = 0; i < n; i++) {
    if (i) TRY(buffer_append_string(json, ",", err));
    TRY(append_message(json, &messages[i], in_parts, err));
  }
  TRY(buffer_printf(json, err, "],\"add_generation_prompt\":%s",
                    options.add_generation_prompt ? "true" : "false"));
  if (options.think != THINK_UNSAID) {
    const char *think = options.think == THINK_YES ? "true" : "false";
    TRY(buffer_printf(json, err, ",\"enable_thinking\":%s,\"thinking\":%s", think, think));
  }
  if (options.tools) {
    TRY(buffer_append_string(json, ",\"tools\":", err));
    TRY(buffer_append(json, options.tools, options.tools_size, err));
  }
  return buffer_append_string(json, "}", err);
}

int64_t chat_now(void) {
  struct tm parts;
  time_t now = time(NULL);
  return localtime_r(&now, &parts) ? (int64_t)now + parts.tm_gmtoff : (int64_t)now;
}

static Status append_rendered(TrustedText *out, const TrustedText *rendered, bool trusted, Error *err) {
  Text text = text_of(rendered->text.data, rendered->text.size, true);
  if (!trusted && rendered->n_runs) {
    text.runs = rendered->runs;
    text.n_runs = rendered->n_runs;
  }
  return trusted_text_append(out, text, err);
}

Status chat_render(const Chat *chat, const ChatMessage *messages, size_t n_messages, ChatOptions options,
                   TrustedText *out, Error *err) {
  OWNED(buffer_release) Buffer text = {0};
  OWNED(json_release) Json *variables = NULL;
  OWNED(trusted_text_release) TrustedText rendered = {0};
  bool raised = false;
  TRY(append_variables(&text, messages, n_messages, chat->in_parts, options, err));
  TRY(json_parse("the conversation", STATUS_USAGE, text.data, text.size, NULL, 0, &variables, err));
  const Status status =
      chat_render_json(chat, variables, options.now ? options.now : chat_now(), &rendered, &raised, err);
  if (status == STATUS_OK) return append_rendered(out, &rendered, options.trusted, err);
  if (!raised || !err) return status;
  Error message = *err;
  return error_set(err, STATUS_USAGE, "the chat template says: %s", message.text);
}

Status chat_render_json(const Chat *chat, const Json *variables, int64_t now, TrustedText *out, bool *raised,
                        Error *err) {
  const TemplateInput input = {
      .variables = variables, .specials = chat->specials, .interrupted = chat->interrupted, .now = now};
  return template_render(chat->template, &input, out, raised, err);
}

static bool shows_words(const Chat *chat) {
  static const char words[] = "some words";
  const ChatMessage message = {.role = "user", .text = words, .size = sizeof words - 1};
  TrustedText out = {0};
  Error err;
  const bool rendered = chat_render(chat, &message, 1, (ChatOptions){0}, &out, &err) == STATUS_OK;
  const bool shown =
      rendered && out.text.size && memmem(out.text.data, out.text.size, words, sizeof words - 1) != NULL;
  trusted_text_release(&out);
  return shown;
}

/* A template without "text" cannot read lists of parts, {"type": "text", "text": ...}: it needs no trial. */
void chat_try_parts(Chat *chat) {
  if (!template_writes(chat->template, "text") || shows_words(chat)) return;
  chat->in_parts = true;
  chat->in_parts = shows_words(chat);
}

/* --- encoding */

Status chat_encode(const Tokenizer *tokenizer, const TrustedText *text, bool trusted, IdList *ids,
                   Error *err) {
  OWNED(mem_release) PromptPiece *pieces = NULL;
  TRY(NEW(pieces, text->n_runs, "a prompt", err));
  size_t from = 0;
  for (size_t i = 0; i < text->n_runs; i++) {
    size_t end = text->runs[i].end;
    pieces[i] = (PromptPiece){text->text.data + from, end - from, trusted || text->runs[i].trusted};
    from = end;
  }
  return tokenizer_encode_pieces(tokenizer, pieces, text->n_runs, false, ids, err);
}

/* --- properties of the template */

bool chat_takes_tools(const Chat *chat) {
  return template_mentions(chat->template, "tools");
}

bool chat_has_tool_use(const Chat *chat) {
  return chat->has_tool_use;
}

bool chat_writes(const Chat *chat, const char *string) {
  return template_writes(chat->template, string);
}

static int32_t special_id(const Tokenizer *tokenizer, const char *content) {
  int32_t id = tokenizer_find(tokenizer, content);
  return id >= 0 && tokenizer_is_special(tokenizer, id) ? id : -1;
}

static Status append_new(IdList *ids, int32_t id, Error *err) {
  for (size_t i = 0; i < ids->count; i++)
    if (ids->ids[i] == id) return STATUS_OK;
  return id < 0 ? STATUS_OK : id_list_append(ids, id, err);
}

/* In formats with channels, <|end|> ends a channel and not the turn: the answer follows the thought. */
static bool ends_turns(const Template *template, const char *token) {
  if (strcmp(token, "<|end|>") == 0 && template_writes(template, "<|channel|>")) return false;
  return template_writes(template, token);
}

Status chat_ends(const Chat *chat, const Tokenizer *tokenizer, IdList *ids, Error *err) {
  static const char *const usual[] = {
      "<|im_end|>", "<|eot_id|>",    "<|eom_id|>",      "<end_of_turn>",         "<|return|>",
      "<|call|>",   "<|endoftext|>", "<|end_of_text|>", "<|end_of_turn|>",       "<|END_OF_TURN_TOKEN|>",
      "<|eot|>",    "</s>",          "[|endofturn|]",   "<｜end▁of▁sentence｜>", "<|end|>",
  };
  const Json *eos = json_member(chat->specials, "eos_token");
  if (json_is_string(eos)) {
    size_t size;
    TRY(append_new(ids, special_id(tokenizer, json_string(eos, &size)), err));
  }
  for (size_t i = 0; i < sizeof usual / sizeof *usual; i++)
    if (ends_turns(chat->template, usual[i])) TRY(append_new(ids, special_id(tokenizer, usual[i]), err));
  return STATUS_OK;
}

ChatThinking chat_thinking(const Chat *chat, const Tokenizer *tokenizer) {
  static const ChatThinking known[] = {
      {"<think>", "</think>", false}, {"<thinking>", "</thinking>", false}, {"[THINK]", "[/THINK]", false}};
  bool can_switch =
      template_mentions(chat->template, "enable_thinking") || template_mentions(chat->template, "thinking");
  ChatThinking thinking = {.can_switch = can_switch};
  if (template_writes(chat->template, "<|channel|>") && template_writes(chat->template, "<|message|>"))
    return (ChatThinking){"<|channel|>analysis<|message|>", "<|end|>", false}; /* gpt-oss */
  for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
    bool written = template_writes(chat->template, known[i].close);
    bool tokens = tokenizer && tokenizer_find(tokenizer, known[i].open) >= 0 &&
                  tokenizer_find(tokenizer, known[i].close) >= 0;
    if (!written && !tokens) continue;
    thinking.open = known[i].open;
    thinking.close = known[i].close;
    break;
  }
  return thinking;
}
