/* chat_builtins.c - chat templates of well-known formats: for checkpoints that have none, and for
 * --chat-template.
 *
 * Called by: chat_open.c.
 * Written from the formats' documentation (model cards, Meta's and Mistral's pages on prompt formats,
 * OpenAI's notes on ChatML). BOS and EOS are the checkpoint's if it names them, else the format's. If a
 * content is a list of parts, their texts are written. */
#include "tokenizer/chat/chat_internal.h"

#include <string.h>

/* Macro text(message): the content, or the texts of a list of parts. */
#define CONTENT                                                                                              \
  "{%- macro text(message) -%}"                                                                              \
  "{%- if message.content is string %}{{ message.content }}"                                                 \
  "{%- elif message.content %}{% for part in message.content if part.text is defined %}{{ part.text }}"      \
  "{%- endfor %}{% endif -%}"                                                                                \
  "{%- endmacro -%}"

static const char chatml[] =
    CONTENT "{%- for message in messages %}"
            "{{- '<|im_start|>' + message.role + '\\n' + text(message) + '<|im_end|>\\n' }}"
            "{%- endfor %}"
            "{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{% endif %}";

/* The system text goes inside the next user's turn. */
static const char llama2[] =
    CONTENT "{%- set ns = namespace(system='') %}"
            "{%- for message in messages %}"
            "{%- if message.role == 'system' %}"
            "{%- set ns.system = '<<SYS>>\\n' + text(message) + '\\n<</SYS>>\\n\\n' %}"
            "{%- elif message.role == 'user' %}"
            "{{- bos_token|default('<s>', true) + '[INST] ' + ns.system + text(message)|trim + ' [/INST]' }}"
            "{%- set ns.system = '' %}"
            "{%- elif message.role == 'assistant' %}"
            "{{- ' ' + text(message)|trim + ' ' + eos_token|default('</s>', true) }}"
            "{%- endif %}"
            "{%- endfor %}";

static const char llama3[] = CONTENT
    "{{- bos_token|default('<|begin_of_text|>', true) }}"
    "{%- for message in messages %}"
    "{{- '<|start_header_id|>' + message.role + '<|end_header_id|>\\n\\n' + text(message)|trim + "
    "'<|eot_id|>' }}"
    "{%- endfor %}"
    "{%- if add_generation_prompt %}{{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}{% endif %}";

/* The system text precedes the next user text. */
static const char mistral[] = CONTENT
    "{%- set ns = namespace(system='') %}"
    "{{- bos_token|default('<s>', true) }}"
    "{%- for message in messages %}"
    "{%- if message.role == 'system' %}{% set ns.system = text(message) + '\\n\\n' %}"
    "{%- elif message.role == 'user' %}"
    "{{- '[INST] ' + ns.system + text(message) + ' [/INST]' }}{% set ns.system = '' %}"
    "{%- elif message.role == 'assistant' %}{{- ' ' + text(message)|trim + eos_token|default('</s>', true) }}"
    "{%- endif %}"
    "{%- endfor %}";

static const char deepseek[] =
    CONTENT "{{- bos_token|default('<｜begin▁of▁sentence｜>', true) }}"
            "{%- for message in messages if message.role == 'system' %}{{- text(message) }}{% endfor %}"
            "{%- for message in messages %}"
            "{%- if message.role == 'user' %}{{- '<｜User｜>' + text(message) }}"
            "{%- elif message.role == 'assistant' %}"
            "{{- '<｜Assistant｜>' + text(message).split('</think>')[-1] + '<｜end▁of▁sentence｜>' }}"
            "{%- endif %}"
            "{%- endfor %}"
            "{%- if add_generation_prompt %}{{- '<｜Assistant｜>' }}{% endif %}";

/* There is no system turn: the system text is put before the next turn's text. */
static const char gemma[] =
    CONTENT "{%- set ns = namespace(system='') %}"
            "{{- bos_token|default('<bos>', true) }}"
            "{%- for message in messages %}"
            "{%- if message.role == 'system' %}{% set ns.system = text(message)|trim + '\\n\\n' %}"
            "{%- else %}"
            "{%- set role = 'model' if message.role == 'assistant' else message.role %}"
            "{{- '<start_of_turn>' + role + '\\n' + ns.system + text(message)|trim + '<end_of_turn>\\n' }}"
            "{%- set ns.system = '' %}"
            "{%- endif %}"
            "{%- endfor %}"
            "{%- if add_generation_prompt %}{{- '<start_of_turn>model\\n' }}{% endif %}";

static const char phi[] = CONTENT "{%- for message in messages %}"
                                  "{{- '<|' + message.role + '|>\\n' + text(message) + '<|end|>\\n' }}"
                                  "{%- endfor %}"
                                  "{%- if add_generation_prompt %}{{- '<|assistant|>\\n' }}{% endif %}";

const ChatBuiltin chat_builtins[] = {
    /* name      template   the special tokens that identify the format in a tokenizer */
    {"chatml", chatml, {"<|im_start|>", "<|im_end|>"}},
    {"llama3", llama3, {"<|start_header_id|>", "<|eot_id|>"}},
    {"gemma", gemma, {"<start_of_turn>", "<end_of_turn>"}},
    {"phi", phi, {"<|assistant|>", "<|end|>"}},
    {"deepseek", deepseek, {"<｜User｜>", "<｜Assistant｜>"}},
    {"mistral", mistral, {"[INST]", "[/INST]"}},
    {"llama2", llama2, {NULL, NULL}},
    {NULL, NULL, {NULL, NULL}},
};

const ChatBuiltin *chat_builtin_named(const char *name) {
  for (const ChatBuiltin *builtin = chat_builtins; builtin->name; builtin++)
    if (strcmp(builtin->name, name) == 0) return builtin;
  return NULL;
}

static bool has_special(const Tokenizer *tokenizer, const char *content) {
  return content && tokenizer_is_special(tokenizer, tokenizer_find(tokenizer, content));
}

const ChatBuiltin *chat_builtin_of(const Tokenizer *tokenizer) {
  for (const ChatBuiltin *builtin = chat_builtins; builtin->name; builtin++)
    if (has_special(tokenizer, builtin->controls[0]) && has_special(tokenizer, builtin->controls[1]))
      return builtin;
  return NULL;
}
