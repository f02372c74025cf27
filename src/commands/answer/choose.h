/* choose.h - which of some given answers the model finds likeliest (--choose).
 *
 * An answer's score is what the model gives its tokens behind the prompt, as the assistant's own words: the
 * sum of the natural logarithms of their probabilities, or the mean. Prompt and answer are encoded as one
 * text, as the tokenizer may join what meets at their border; scored is what follows the tokens that the
 * prompt and all of the answers have in common. No end token is scored, and no thought is made: a model that
 * would think is told not to. */
#ifndef AUK_COMMANDS_ANSWER_CHOOSE_H
#define AUK_COMMANDS_ANSWER_CHOOSE_H

#include "commands/answer/assistant.h"
#include "commands/answer/prompt.h"
#include "commands/answer/reply.h"

typedef enum { CHOOSE_BY_SUM, CHOOSE_BY_MEAN } ChooseBy;

typedef struct {
  StringList lists;   /* --choose: answers between commas */
  StringList answers; /* --choice: one each, commas and all */
  int by;             /* ChooseBy */
  bool exit_choice;   /* exit status 10 for the first, 11 for the second ... */
} ChooseFlags;        /* zero-initialise it; release the lists */

extern const Flag choose_flags[4];
#define CHOOSE_FLAG_GROUP(Struct, member) FLAG_GROUP_IN("Choice", choose_flags, Struct, member, ChooseFlags)

typedef struct {
  const char *text; /* [size] */
  size_t size;
  IdList ids; /* of the prompt with this answer */
  int n_tokens;
  double sum, mean;
  double probability; /* among the given answers, by their sums */
} Choice;

typedef struct {
  Choice *items; /* [n] in the order of the command line, those of --choose first; none are equal */
  size_t n;
  ChooseBy by;
  double *log_p; /* [n_log_p] of one answer's tokens */
  size_t n_log_p;
  IdList prompt; /* ids */

  size_t best;            /* index; of equal ones the first */
  int n_prompt, n_reused; /* tokens of the common beginning; of these, the session held so many */
  double prefill_ms, score_ms;
} Choices; /* starts zeroed */

bool choose_is_given(const ChooseFlags *flags);
/* The answers that the flags name: STATUS_USAGE where one is empty or there twice. */
Status choices_open(const ChooseFlags *flags, Choices *choices, Error *err);
void choices_release(Choices *choices);

/* What an assistant must be, between assistant_open() and assistant_start(), to score. */
void choices_prepare(Assistant *assistant);
/* Fills the scores and the best one. A prompt that is refused, or does not fit with its longest answer, is
 * STATUS_USAGE or STATUS_MODEL, as assistant_encode() has it. */
Status choices_score(Choices *choices, Assistant *assistant, const ChatMessage *messages, size_t n_messages,
                     Error *err);
/* Fills in the best choice, and each one's probability given that it must be one of them; all are equally
 * likely where every score is -infinity. */
void choices_rank(Choices *choices);
/* Appends the members of an object, without braces: choice, choice_index, scores, usage, timings, model. */
Status choices_json(const Choices *choices, const char *model, Buffer *out, Error *err);

/* `auk -m MODEL -p TEXT --choose a,b`: the assistant starts zeroed. The status is 10 and up where the
 * flags ask for it. */
Status choose_run(const ChooseFlags *flags, const PromptFlags *prompt, const ReplyFlags *reply,
                  const AssistantFlags *assistant_flags, Assistant *assistant, Error *err);

#endif
