/* tools.h - --tools: functions that the model may call, and the format of calls in its chat template. */
#pragma once

#include "commands/form/written_calls.h"
#include "tokenizer/chat/chat.h"

typedef struct {
  const char *file; /* --tools, or NULL */
  int choice;       /* 0: the model may call; 1: it must */
} ToolFlags;        /* zero-initialise it */

extern const Flag tool_flags[2];
#define TOOL_FLAG_GROUP(Struct, member) FLAG_GROUP_IN("Tools", tool_flags, Struct, member, ToolFlags)

/* Rules for a command that has TOOL_FLAG_GROUP. */
#define TOOL_FLAG_RULES                                                                                      \
  {"--tool-choice", NEEDS, "--tools", NULL},                                                                 \
      {"--tools", EXCLUDES, FORM_FLAG_NAMES, "its calls have the form of their schemas"},                    \
      {"--tools", EXCLUDES, "--ignore-eos", "an answer ends after its calls"}, {                             \
    "--tools", EXCLUDES, "--raw", "the chat template tells the model of the tools"                           \
  }

/* How a model with this template writes calls: in parts (written_calls.h), or as JSON, {"name": NAME,
 * ARGUMENTS: {...}}. Calls in JSON stand each between two marks, or all in a list after one mark; or a single
 * call is the whole answer. */
typedef struct {
  const char *begin;      /* the token before a call; if `bare`, the token may be missing */
  const char *end;        /* the mark after a call; NULL: the answer ends there, or calls are in parts */
  const char *arguments;  /* the key of the arguments */
  bool is_list;           /* a list of calls follows `begin` */
  bool bare;              /* an answer that begins with { is a call */
  const CallMarks *marks; /* for calls in parts; NULL: a call is JSON */
} ToolFormat;

typedef struct {
  bool given, required;
  const ToolFormat *format;
  int32_t begin;            /* id of format->begin, -1: none */
  Buffer list;              /* the functions as templates take them: a JSON array */
  Buffer schema;            /* JSON Schema of a call, or of a list of calls */
  WrittenFunctions written; /* in place of the schema where calls are written in parts */
} Tools;                    /* starts zeroed */

/* Reads the functions, finds the template's format and compiles the form of calls into `form`. Refuses
 * (STATUS_USAGE) templates without tools, or whose form of calls auk or the tokenizer does not know. Refuses
 * functions without a name of their own, or with parameters that are no schema. PRECOND chat is not NULL */
Status tools_open(const ToolFlags *flags, const FormFlags *schema_flags, const Chat *chat,
                  const Tokenizer *tokenizer, int vocab_size, Tools *tools, AnswerForm *form, Error *err);
void tools_release(Tools *tools);

/* Appends a line {"name": NAME, "arguments": {...}} for each call in a text that fits the schema. */
Status tools_read_calls(const Tools *tools, const char *text, size_t size, Buffer *calls, Error *err);
/* Appends the lines of calls as the value of "tool_calls" of a message, as chat templates take it. */
Status tools_write_calls(const Buffer *calls, Buffer *out, Error *err);
/* Appends the message's members "tool_calls", "tool_call_id" and "name", if it has them, without braces, as
 * ChatMessage.members holds them. index: the message's number, for errors. */
Status tools_append_members(JsonSpan message, size_t index, Buffer *out, Error *err);
