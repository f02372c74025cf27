/* map_prompt.h - what a record of --map asks: its text, its members, or its conversation, put where -p says.
 *
 * In a pattern {} is the record; where records are JSON, {NAME} is a member of the object and {} the whole of
 * it (a record that is a JSON string: that). A name is made of letters, digits, '_', '-', '.' and anything
 * beyond ASCII. Double braces around such a thing stand for single ones: {{}} is {}, {{NAME}} is {NAME}.
 * Every other brace is itself. */
#ifndef AUK_COMMANDS_MAP_MAP_PROMPT_H
#define AUK_COMMANDS_MAP_MAP_PROMPT_H

#include "base/json.h"
#include "commands/map/map_records.h"
#include "tokenizer/chat.h"

/* ITSELF: what a JSON record says by itself: its prompt, its messages, or the string that it is. */
typedef enum { PART_TEXT, PART_RECORD, PART_MEMBER, PART_ITSELF } PartKind;

typedef struct {
  PartKind kind;
  const char *text; /* [size] the text, or the member's name */
  size_t size;
} PatternPart;

typedef struct {
  bool json;          /* records are JSON */
  PatternPart *parts; /* [n_parts] their texts belong to argv, but the first one's */
  size_t n_parts, capacity;
  size_t n_places; /* {} in -p */
} PromptPattern;   /* starts zeroed */

/* Adds what stands before it all, as it is: for files. The text must outlive the pattern. */
Status prompt_pattern_begin(PromptPattern *pattern, const char *text, size_t size, Error *err);
/* Adds -p (NULL: the record itself; a JSON one's member "prompt" or "messages"). Text without {} comes behind
 * the record, on a line of its own, as it comes behind standard input in one shot; where records are JSON it
 * is refused (STATUS_USAGE). */
Status prompt_pattern_parse(PromptPattern *pattern, const char *text, Error *err);
void prompt_pattern_release(PromptPattern *pattern);

typedef struct {
  bool is_chat;          /* the record has "messages" of its own */
  Buffer text;           /* the prompt; else every string of the messages */
  ChatMessage *messages; /* [n_messages] they point into `text` */
  size_t n_messages, capacity;
  JsonSpan id; /* the record's member "id" where that is a string or a number, as it is written */
} MapPrompt;   /* starts zeroed, can be filled again and again */

/* Makes the prompt of a record. What is wrong with the record is STATUS_USAGE. */
Status map_prompt_fill(const PromptPattern *pattern, const Record *record, MapPrompt *prompt, Error *err);
/* The same with `filling` for whatever a record gives: what is the same of any two of them is the pattern's.
 *  */
Status map_prompt_outline(const PromptPattern *pattern, const char *filling, MapPrompt *prompt, Error *err);
void map_prompt_release(MapPrompt *prompt);

#endif
