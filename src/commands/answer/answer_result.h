/* answer_result.h - the text of an answer, who sees it as it comes, and how the answer ended. */
#pragma once

#include "commands/answer/assistant.h"

/* TEXT_CALL: calls of functions, complete, as tools_read_calls() writes them. */
typedef enum { TEXT_ANSWER, TEXT_THOUGHT, TEXT_CALL } TextKind;

/* Log-probabilities of the tokens of an answer. */
typedef struct {
  TokenScore *items; /* [count] n_best + 1 for each token, in the order of log_probabilities() */
  size_t count, capacity;
  int n_best;
} ScoreList;

/* An answer so far. Texts have no marks of a thought (such as <think>), nor white space around them. */
typedef struct {
  bool extracts; /* -x: `code` is shown in place of `text`, and the answer ends with the code block */
  Buffer thinking, text, code;
  Buffer calls;     /* lines of tools_read_calls() */
  IdList ids;       /* each token's id comes before its text */
  ScoreList scores; /* n_best 0: none are wanted */
  uint64_t seed;    /* of the sampler */
} AnswerText; /* starts zeroed but for `extracts` and scores.n_best; release it with answer_text_release() */
void answer_text_clear(AnswerText *answer); /* before another answer */
void answer_text_release(AnswerText *answer);

typedef struct {
  AnswerText *answer; /* collects the answer */
  /* Receives text as soon as it is final and in *answer: whole characters, size > 0. With `extracts`, an
   * answer's text is code. May be NULL. */
  Status (*text)(void *user, TextKind kind, const char *text, size_t size, Error *err);
  /* Called between steps of the prefill, and of LongRoPE's recomputation during an answer. done, total:
   * numbers of tokens. May be NULL. */
  void (*prefilling)(void *user, int done, int total);
  void *user;
} AnswerSink;

typedef struct {
  FinishReason reason;
  int n_prompt;    /* tokens */
  int n_reused;    /* tokens of the prompt already in the session */
  int n_generated; /* tokens of thought, its marks and answer, without the end token */
  int n_thought;   /* part of n_generated: tokens of thought */
  int n_forced;    /* part of n_generated: tokens for which a form, or a call's marks, left no choice */
  GuessCounts guesses;
  bool thought;                                 /* the answer has a thought */
  bool in_thought;                              /* the end came within the thought: no answer */
  bool in_call;                                 /* the end came within a call of a function */
  bool in_form;                                 /* the end came before the answer was complete in its form */
  bool in_block;                                /* -x: the end came within the code block */
  bool has_no_block;                            /* -x: the answer has no code block */
  bool is_json;                                 /* the answer is complete, and its form (form.h) is JSON */
  double prefill_ms, first_token_ms, decode_ms; /* each begins where the one before ends */
} AnswerResult;

bool answer_was_cut(const AnswerResult *result); /* by -n, the context, or a loop */

/* Says that a thought, a call or a form is incomplete: "the end came within the thought (length), there is no
 * answer". Empty if nothing is incomplete, or if the answer was interrupted. */
typedef struct {
  char text[128];
} AnswerLack;
AnswerLack answer_lack(const AnswerResult *result, const Assistant *assistant);
/* True if a limit or a loop cut a form, a call or the code block of -x before it was complete. This is a
 * failure: the reader cannot use the answer. */
bool answer_is_incomplete(const AnswerResult *result, const Assistant *assistant);

double answer_per_second(long long n, double ms); /* 0 unless both are positive */

/* The line after an answer on a terminal: "[49 tokens, 25.9/s; context 117 of 8192]". */
typedef struct {
  char text[96];
} AnswerFigures;
AnswerFigures answer_figures(const AnswerResult *result, const Assistant *assistant);
double answer_per_step(const AnswerResult *result); /* tokens per step; 0 if guesses were off */

/* Prints the statistics of an answer to standard error, for -v and -u. */
void answer_print_usage(const AnswerResult *result);
