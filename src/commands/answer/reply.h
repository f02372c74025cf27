/* reply.h - writes an answer in the form that the flags request, to standard output or a file.
 *
 *   no flag          text, streamed; with --no-stream in one piece at the end; with -x the first code block
 *   --json           one object on one line, at the end
 *   --jsonl-stream   {"thinking": ...} or {"text": ...} for each streamed piece, then the object of --json
 * A text whose last line has no newline gets one, except with --no-newline in a pipe or a file. An empty
 * answer leaves a pipe or a file empty. A file (-o) is created or emptied only when the answer can begin, so
 * that an earlier refusal leaves it unchanged. An interrupted answer keeps what was written. */
#pragma once

#include "commands/answer/prompt.h"
#include "commands/answer/show.h"
#include "terminal/spinner.h"

typedef struct {
  const char *path; /* -o; NULL or "-": standard output */
  bool json, jsonl;
  bool ids;       /* include ids in the object */
  int logprobs;   /* log-probabilities of the N likeliest tokens at each position; 0: none */
  bool code;      /* -x */
  bool no_stream; /* --no-stream; JSON output ignores it */
  bool exact;     /* --no-newline */
  bool usage;     /* -u */
  bool require_stop;
} ReplyFlags; /* zero-initialise it */

extern const Flag reply_flags[10];
#define REPLY_FLAG_GROUP(Struct, member) FLAG_GROUP_IN("Output", reply_flags, Struct, member, ReplyFlags)

typedef struct {
  const ReplyFlags *flags;
  const Assistant *assistant;
  int file; /* descriptor of -o; -1: standard output */
  Show show;
  AnswerText answer;
  Spinner spinner; /* on standard error, until the first text */
} Reply;           /* starts zeroed; release with reply_release() */

bool reply_shows_usage(const ReplyFlags *flags, const AssistantFlags *assistant); /* -u or -v asks for it */
Status reply_check_output(const ReplyFlags *flags, const PromptFlags *prompt, const Assistant *assistant,
                          Error *err);
Status reply_begin(const ReplyFlags *flags, const Assistant *assistant, Reply *reply, Error *err);
AnswerSink reply_sink(Reply *reply);
/* Ends the reply: writes the JSON object, or ends the last line. STATUS_INTERRUPTED: the answer was
 * interrupted. STATUS_FAILED: -x found no block. STATUS_CUT_SHORT: the answer was cut before its form, a call
 * or the block of -x was complete, or, with --require-stop, cut anywhere. */
Status reply_end(Reply *reply, const IdList *prompt, const AnswerResult *result, Error *err);
void reply_release(Reply *reply);
/* Writes complete output to the destination of the flags. */
Status reply_write(const ReplyFlags *flags, const Buffer *bytes, Error *err);

/* Appends the JSON members of an answer, without braces. A thought that is empty or not to be shown is left
 * out. prompt: the prompt's ids, which --ids puts into the object. */
Status answer_json(Buffer *out, const AnswerText *answer, const IdList *prompt, const AnswerResult *result,
                   const ReplyFlags *flags, const Assistant *assistant, Error *err);
