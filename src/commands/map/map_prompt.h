/* map_prompt.h - builds the prompt of a --map record from its text, members or conversation, and -p. In a
 * pattern {} is the record; for JSON records {NAME} is a member of the object and {} the whole record (a JSON
 * string: its content). A name consists of letters, digits, '_', '-', '.' and non-ASCII characters. Doubled
 * braces stand for single ones: {{}} is {} and, for JSON records, {{NAME}} is {NAME}. Other braces are
 * literal. */
#pragma once

#include "base/json.h"
#include "commands/map/map_records.h"
#include "tokenizer/chat/chat.h"

/* PART_ITSELF: the prompt inside a JSON record: its "prompt", its "messages", or the record itself if it is a
 * string. */
typedef enum { PART_TEXT, PART_RECORD, PART_MEMBER, PART_ITSELF } PartKind;

typedef struct {
  PartKind kind;
  const char *text; /* [size] the text, or the member's name */
  size_t size;
} PatternPart;

typedef struct {
  bool json;          /* records are JSON */
  PatternPart *parts; /* [n_parts] texts belong to the callers, and must outlive the pattern */
  size_t n_parts, capacity;
  size_t n_places; /* number of {} in -p */
} PromptPattern;   /* starts zeroed */

/* Adds text (of files) in front of everything. */
Status prompt_pattern_begin(PromptPattern *pattern, const char *text, size_t size, Error *err);
/* Adds the parts of -p. NULL: adds the record itself, or with JSON records PART_ITSELF. A -p without {}
 * follows the record on a new line. With JSON records, a -p with neither {} nor {NAME} is refused
 * (STATUS_USAGE). */
Status prompt_pattern_parse(PromptPattern *pattern, const char *text, Error *err);
/* The first {NAME} in a -p, of *size bytes; NULL: none. Where records are no JSON, {NAME} is mere text. */
const char *prompt_find_name(const char *text, int *size);
void prompt_pattern_release(PromptPattern *pattern);

typedef struct {
  bool is_chat;          /* the prompt is `messages`, not `text` */
  Buffer text;           /* the prompt, or all strings of the messages */
  ChatMessage *messages; /* [n_messages] pointing into `text` */
  size_t n_messages, capacity;
  JsonSpan id; /* the member "id" if it is a string or number, as written */
} MapPrompt;   /* starts zeroed, reusable */

/* Builds the prompt of a record. Mistakes in the record are STATUS_USAGE. */
Status map_prompt_fill(const PromptPattern *pattern, const Record *record, MapPrompt *prompt, Error *err);
/* Builds a prompt with `filling` in place of everything from the record. Text that is equal in two prompts
 * with different fillings comes from the pattern. */
Status map_prompt_outline(const PromptPattern *pattern, const char *filling, MapPrompt *prompt, Error *err);
/* Builds a prompt from a JSON text: a list of messages, or an object with "messages". `name` begins error
 * messages. */
Status map_prompt_conversation(const char *name, const char *text, size_t size, MapPrompt *prompt,
                               Error *err);
void map_prompt_release(MapPrompt *prompt);
