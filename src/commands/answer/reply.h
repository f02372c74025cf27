/* reply.h - an answer in the form that the flags ask for, to standard output or a file.
 *
 *   text             as it comes; with --no-stream at once at the end; with -x the first code block alone
 *   --json           one object on one line, at the end
 *   --jsonl-stream   {"thinking": ...} or {"text": ...} for each piece as it comes, then the object of --json
 * A file (-o) is made anew when the answer can begin, not before: whatever refuses the flags, the model or
 * the prompt leaves it as it was. What was written stays when the answer is interrupted. */
#ifndef AUK_COMMANDS_ANSWER_REPLY_H
#define AUK_COMMANDS_ANSWER_REPLY_H

#include "commands/answer/code_block.h"
#include "commands/answer/prompt.h"
#include "commands/answer/show.h"

typedef struct {
  const char *path; /* -o, or NULL: standard output */
  bool json, jsonl;
  bool ids;       /* in the object */
  bool code;      /* -x */
  bool no_stream; /* text only: the JSON forms say it themselves */
  bool usage;     /* -u */
  bool require_stop;
} ReplyFlags; /* zero-initialise it */

extern const Flag reply_flags[8];
#define REPLY_FLAG_GROUP(Struct, member) FLAG_GROUP_IN("Output", reply_flags, Struct, member, ReplyFlags)

typedef struct {
  const ReplyFlags *flags;
  const Assistant *assistant;
  int file; /* descriptor of -o, -1: standard output */
  Show show;
  CodeBlock block;
  Buffer text, thinking; /* all of them, for the forms that need them at the end */
  Buffer part;           /* what one piece gives */
  IdList ids;            /* of the answer */
  bool progress;         /* a line of it is on standard error */
  double began_ms;       /* when the prefill did */
} Reply;                 /* starts zeroed; release with reply_release() */

/* Whether figures follow the answer: on request, and where a person reads both. Beside a pipe they would
 * stand within what its reader writes (a pager's screen). */
bool reply_tells_usage(const ReplyFlags *flags, const AssistantFlags *assistant);
/* Refuses -o FILE where this is one of the files that the answer is made of. */
Status reply_spares(const ReplyFlags *flags, const PromptFlags *prompt, const Assistant *assistant,
                    Error *err);
Status reply_begin(const ReplyFlags *flags, const Assistant *assistant, Reply *reply, Error *err);
AnswerSink reply_sink(Reply *reply);
/* Ends it: what was held back, the object, the last line on a terminal. STATUS_INTERRUPTED where the answer
 * was; STATUS_FAILED where -x found no block; STATUS_CUT_SHORT where --require-stop wants one. */
Status reply_end(Reply *reply, const int32_t *prompt, size_t n_prompt, const AnswerResult *result,
                 Error *err);
void reply_release(Reply *reply);
/* What is complete before it begins to be written: to the same place, at once. */
Status reply_write(const ReplyFlags *flags, const Buffer *bytes, Error *err);

/* Appends the members of an answer's object, without braces: text and thinking (NULL: none) come first. */
typedef struct {
  const char *text, *thinking;
  size_t text_size, thinking_size;
  const IdList *prompt_ids, *ids; /* NULL: not wanted */
  uint64_t seed;
  const char *model; /* its name */
} AnswerText;
Status answer_json(Buffer *out, const AnswerText *text, const AnswerResult *result, Error *err);

#endif
