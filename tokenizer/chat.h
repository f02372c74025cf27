/* chat.h - how a checkpoint's conversations become prompts: its chat template and its special tokens. */
#ifndef AUK_TOKENIZER_CHAT_H
#define AUK_TOKENIZER_CHAT_H

#include "tokenizer/jinja/template.h"
#include "tokenizer/tokenizer.h"

/* The built-in templates, between bars. */
#define CHAT_BUILTINS "chatml|llama2|llama3|mistral|deepseek|gemma|phi"

typedef struct Chat Chat; /* a parsed template and what it is rendered with; read-only */

/* The template of a conversation.
 *   choice NULL   the checkpoint's own: DIRECTORY/chat_template.jinja, else the chat_template of
 *                 tokenizer_config.json (a string, or of a list of named ones "default"), else that of
 *                 chat_template.json; where there is none, the built-in whose control tokens the tokenizer
 *                 has as special tokens (ChatML, Llama 3, ...); where there is none of those either, *chat is
 *                 NULL and the status STATUS_OK
 *   choice NAME   one of the checkpoint's list or of its additional_chat_templates/, or a built-in
 *   choice FILE   a path (it has a '/' or exists): its text is the template
 * Special tokens (bos_token, ...: strings or objects with "content") are those of tokenizer_config.json and
 * special_tokens_map.json in DIRECTORY. directory may be NULL (only NAME and FILE then); tokenizer may be
 * NULL: no falling back on built-ins then. An unknown NAME is STATUS_USAGE naming those there are. */
Status chat_open(const char *directory, const char *choice, const Tokenizer *tokenizer, Chat **chat,
                 Error *err);
void chat_close(Chat *chat); /* NULL is fine */

/* As tokenizer_heed(), for rendering. */
void chat_heed(Chat *chat, const volatile int *interrupted);

/* For -v: "chat_template.jinja", "tokenizer_config.json", "built-in chatml", a path. */
const char *chat_source(const Chat *chat);

/* A hash of what decides how conversations are written: the template's text and the special tokens. */
uint64_t chat_hash(const Chat *chat);

/* The first of a built-in template's control tokens that the vocabulary lacks: the model would read it as
 * ordinary text. NULL where there is none, and of templates that are not built in. */
const char *chat_missing_control(const Chat *chat, const Tokenizer *tokenizer);

typedef struct {
  const char *role; /* "system", "user", "assistant", "tool": the caller's own word, trusted */
  const char *text; /* [size] the content, a person's or the model's: not trusted */
  size_t size;
  const char *thinking; /* [thinking_size] reasoning_content of an assistant's turn, or NULL */
  size_t thinking_size;
} ChatMessage;

typedef enum { THINK_UNSAID, THINK_NO, THINK_YES } ThinkChoice;

typedef struct {
  bool add_generation_prompt; /* the opening of the assistant's turn behind it all */
  ThinkChoice think;          /* enable_thinking and thinking, undefined where it is unsaid */
  bool trusted;               /* --parse-special: control tokens in the messages count */
} ChatOptions;

/* Appends the rendered conversation. What the template raises is STATUS_USAGE "the chat template says:
 * MESSAGE"; so is text that is not valid UTF-8, with its place. */
Status chat_render(const Chat *chat, const ChatMessage *messages, size_t n_messages, ChatOptions options,
                   TrustedText *out, Error *err);
/* Renders any variables (auk template; specials and time are the chat's own). `now`: see template.h. */
Status chat_render_json(const Chat *chat, const Json *variables, int64_t now, TrustedText *out, bool *raised,
                        Error *err);

/* The present time as the clock on the wall shows it: what `now` is otherwise. */
int64_t chat_now(void);

/* Appends the ids of a rendered text: special tokens count in its trusted runs only, and the tokenizer adds
 * nothing (the template writes BOS itself, as transformers' apply_chat_template has it). */
Status chat_encode(const Tokenizer *tokenizer, const TrustedText *text, bool trusted, IdList *ids,
                   Error *err);

/* The tokens that end a turn of this chat, beside the checkpoint's own end tokens: eos_token of the specials
 * and, of the usual ones (<|im_end|>, <|eot_id|>, <end_of_turn>, <|end|>, ...), those that the template
 * mentions and the tokenizer has as special tokens. Appends to `ids`. */
Status chat_ends(const Chat *chat, const Tokenizer *tokenizer, IdList *ids, Error *err);

/* How a model thinks, as its template and tokenizer show it. */
typedef struct {
  const char *open, *close; /* "<think>", "</think>"; NULL where it does not */
  bool can_switch;          /* the template asks for enable_thinking */
} ChatThinking;
ChatThinking chat_thinking(const Chat *chat, const Tokenizer *tokenizer);

#endif
