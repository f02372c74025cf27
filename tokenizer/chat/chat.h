/* chat.h - how a checkpoint's conversations become prompts: its chat template and its special tokens. */
#pragma once

#include "tokenizer/jinja/template.h"
#include "tokenizer/tokenizer.h"

/* The names of the built-in templates, separated by bars. */
#define CHAT_BUILTINS "chatml|llama2|llama3|mistral|deepseek|gemma|phi"

typedef struct Chat Chat; /* a parsed template and what it is rendered with; read-only */

/* Opens the template of a conversation.
 *   choice NULL   the checkpoint's own: DIRECTORY/chat_template.jinja, else the chat_template of
 *                 tokenizer_config.json (a string, or the one named "default" in a list), else the one in
 *                 chat_template.json. Refused if there are only templates with other names. Without any
 *                 template, the built-in whose control tokens are special tokens of the tokenizer (ChatML,
 *                 Llama 3, ...); if none fits, *chat is NULL and the status STATUS_OK
 *   choice NAME   one of the checkpoint's list or of its additional_chat_templates/, or a built-in
 *   choice FILE   a path (it has a '/' or exists): its text is the template
 * Special tokens (bos_token, ...: strings or objects with "content") come from tokenizer_config.json and
 * special_tokens_map.json in DIRECTORY. Without a directory (NULL) there are only built-ins and FILE; without
 * a tokenizer (NULL) no built-in fits. An unknown NAME is STATUS_USAGE with a list of the known ones. */
Status chat_open(const char *directory, const char *choice, const Tokenizer *tokenizer, Chat **chat,
                 Error *err);
void chat_close(Chat *chat); /* NULL is fine */
RELEASE_BY(chat_release, Chat, chat_close)

/* As tokenizer_heed(), for rendering. */
void chat_heed(Chat *chat, const volatile int *interrupted);

/* The template's origin, printed with -v (verbose): the name of a file of the checkpoint, "built-in chatml",
 * the path of FILE, or NAME for additional_chat_templates/NAME.jinja. */
const char *chat_source(const Chat *chat);

/* chat_takes_tools() says whether the template mentions the variable `tools`, chat_has_tool_use() whether the
 * checkpoint has a template named "tool_use", chat_writes() whether `string` is in the template's text. */
bool chat_takes_tools(const Chat *chat);
bool chat_has_tool_use(const Chat *chat);
bool chat_writes(const Chat *chat, const char *string);

/* Hash of all that a chat adds to a rendering: the template's text and the special tokens. */
uint64_t chat_hash(const Chat *chat);

/* A control token of the chat's built-in template that the vocabulary lacks: the model would read it as
 * ordinary text. NULL if it lacks none, or if the template is not built in. */
const char *chat_missing_control(const Chat *chat, const Tokenizer *tokenizer);

typedef struct {
  const char *role; /* "system", "user", "assistant", "tool": chosen by the caller, trusted */
  const char *text; /* [size] the content, from a person or the model: not trusted */
  size_t size;
  const char *thinking; /* [thinking_size] reasoning_content of an assistant's turn, or NULL */
  size_t thinking_size;
  const char *members; /* [members_size] further members as JSON, "tool_calls": [...], ..., or NULL */
  size_t members_size;
} ChatMessage;

typedef enum { THINK_UNSAID, THINK_NO, THINK_YES } ThinkChoice;

typedef struct {
  bool add_generation_prompt; /* end with the opening of the assistant's turn */
  ThinkChoice think;          /* value of enable_thinking and thinking; THINK_UNSAID: undefined */
  bool trusted;               /* --parse-special: recognise control tokens in the messages */
  const char *tools;          /* [tools_size] JSON array of functions, or NULL */
  size_t tools_size;
  int64_t now; /* the local time for the template; 0: chat_now() */
} ChatOptions;

/* Appends the rendered conversation. STATUS_USAGE if a text is not valid UTF-8, or if the template calls
 * raise_exception(); the message is then "the chat template says: MESSAGE". */
Status chat_render(const Chat *chat, const ChatMessage *messages, size_t n_messages, ChatOptions options,
                   TrustedText *out, Error *err);
/* Renders the template with the given variables, for `auk template`; the special tokens are the chat's own.
 * `now` and `raised`: see template.h. */
Status chat_render_json(const Chat *chat, const Json *variables, int64_t now, TrustedText *out, bool *raised,
                        Error *err);

/* The local time in seconds since the epoch: the usual `now`. */
int64_t chat_now(void);

/* Appends the ids of a rendered text. Special tokens are recognised in its trusted runs only or, with
 * `trusted`, everywhere. The tokenizer adds none: the template writes BOS itself, as with transformers'
 * apply_chat_template(). */
Status chat_encode(const Tokenizer *tokenizer, const TrustedText *text, bool trusted, IdList *ids,
                   Error *err);

/* Appends the ids of tokens that end a turn: eos_token, and the usual end tokens (<|im_end|>, <|eot_id|>,
 * <end_of_turn>, ...) that the template's text has. <|end|> counts only without <|channel|> in the text. Left
 * out are tokens that are not special tokens of the tokenizer, and ids that the list already has. */
Status chat_ends(const Chat *chat, const Tokenizer *tokenizer, IdList *ids, Error *err);

/* How a model marks its reasoning, according to its template and tokenizer. */
typedef struct {
  const char *open, *close; /* "<think>", "</think>"; NULL: it has no marks */
  bool can_switch;          /* the template reads enable_thinking or thinking, and has no channels */
} ChatThinking;
ChatThinking chat_thinking(const Chat *chat, const Tokenizer *tokenizer);
