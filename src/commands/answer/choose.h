/* choose.h - picks the likeliest of some given answers (--choose). An answer's score is the sum, or the mean,
 * of the natural log-probabilities of its tokens after the prompt, in the assistant's turn. Prompt and answer
 * are encoded as one text: the tokenizer may merge across their boundary. The scored tokens are those after
 * the prefix that the prompt and all answers share. Thinking is switched off. */
#pragma once

#include "commands/answer/assistant.h"
#include "commands/answer/prompt.h"
#include "commands/answer/reply.h"

typedef enum { CHOOSE_BY_SUM, CHOOSE_BY_MEAN } ChooseBy;

typedef struct {
  StringList lists;   /* --choose: comma-separated answers */
  StringList answers; /* --choice: one answer each, which may have commas */
  int by;             /* ChooseBy */
  bool exit_choice;   /* exit status 10 for the first answer, 11 for the second ... */
} ChooseFlags;        /* zero-initialise it; release the lists */

extern const Flag choose_flags[4];
#define CHOOSE_FLAG_GROUP(Struct, member) FLAG_GROUP_IN("Choice", choose_flags, Struct, member, ChooseFlags)

typedef struct {
  const char *text; /* [size] */
  size_t size;
  IdList ids; /* ids of the prompt and this answer */
  int n_tokens;
  size_t first; /* index in Choices.log_p of the answer's first scored token */
  double sum, mean;
  double probability; /* softmax of `sum` over the given answers */
} Choice;

typedef struct {
  Choice *items; /* [n] in the order of the command line, --choose first; no two are equal */
  size_t n;
  ChooseBy by;
  double *log_p; /* [n_log_p] scores of the answers' tokens */
  size_t n_log_p;
  IdList prompt; /* ids of the common prefix */

  size_t best;            /* index of the best answer; of equally good ones the first */
  int n_prompt, n_reused; /* tokens of the common prefix; how many of them were not computed anew */
  double prefill_ms, score_ms;
} Choices; /* starts zeroed */

bool choose_is_given(const ChooseFlags *flags);
/* Reads the answers in the flags. An empty or repeated answer is STATUS_USAGE. */
Status choices_open(const ChooseFlags *flags, Choices *choices, Error *err);
void choices_release(Choices *choices);

/* Prepares an assistant for scoring, between assistant_open() and assistant_start(). */
void choices_prepare(Assistant *assistant);
/* The answers of one prompt as requests. choices_ask() encodes prompt and answers; it refuses (STATUS_USAGE,
 * STATUS_MODEL) what assistant_encode() refuses, a prompt that does not fit with its longest answer, and an
 * answer that adds no token. choices_request() makes the request for one answer; choices_take() takes its
 * result. After the last result, choices_rank() can follow. */
Status choices_ask(Choices *choices, const Assistant *assistant, const ChatMessage *messages,
                   size_t n_messages, Error *err);
EngineRequest choices_request(Choices *choices, size_t choice);
Status choices_take(Choices *choices, const EngineRequest *request, const EngineResult *done, Error *err);
/* Computes the best choice, and each choice's probability given that one of them is right. All probabilities
 * are equal if every score is -infinity. */
void choices_rank(Choices *choices);
/* Appends JSON members without braces: choice, choice_index, scores, usage, timings, model. */
Status choices_json(const Choices *choices, const char *model, Buffer *out, Error *err);

/* Runs `auk -m MODEL -p TEXT --choose a,b`; the assistant starts zeroed. With --exit-choice the status is 10
 * and up. */
Status choose_run(const ChooseFlags *flags, const PromptFlags *prompt, const ReplyFlags *reply,
                  const AssistantFlags *assistant_flags, Assistant *assistant, Error *err);
