/* assistant.h - a model that is open to answer: checkpoint, tokenizer, chat template, device, session,
 * sampler; and the one way in which an answer is made of a prompt. What becomes of the text is its caller's.
 *
 * Called by: run.c (one shot), map.c, choose.c, chat.c.
 *   assistant_open()     refuses all that can be refused before a weight is touched
 *   assistant_encode()   conversations to ids; assistant_context() says whether they fit
 *   assistant_start()    memory, weights, session
 *   assistant_answer()   as often as one likes */
#ifndef AUK_COMMANDS_ANSWER_ASSISTANT_H
#define AUK_COMMANDS_ANSWER_ASSISTANT_H

#include <limits.h>
#include <math.h>

#include "commands/answer/cache.h"
#include "commands/device.h"
#include "commands/model_flags.h"
#include "commands/written_file.h"
#include "engine/generate.h"
#include "tokenizer/chat.h"

enum { NOT_GIVEN = INT_MIN };

typedef struct {
  Seed seed;
  double temperature, top_p, min_p, repetition_penalty; /* NAN: as generation_config.json says */
  int top_k;                                            /* NOT_GIVEN: likewise */
  double presence_penalty, frequency_penalty;
} SamplingFlags;

/* What to sample with: as the flags say, else as the checkpoint does. The seed is the flag's, 0 where none
 * is given. */
SamplerSettings sampling_settings(const SamplingFlags *flags, const GenerationDefaults *defaults);
/* Refuses (STATUS_USAGE) what cannot matter where the flags say that the temperature is 0. */
Status sampling_check(const SamplingFlags *flags, Error *err);
/* SamplingFlags of which none is given. */
#define SAMPLING_NOT_GIVEN                                                                                   \
  { .temperature = NAN, .top_k = NOT_GIVEN, .top_p = NAN, .min_p = NAN, .repetition_penalty = NAN }

typedef struct {
  const char *chat_template; /* NAME|FILE, or NULL: the checkpoint's own */
  bool raw;                  /* no chat format: text as it is */
  bool parse_special;        /* special tokens count in a person's text */
  const char *system;        /* -sys, or NULL */
  const char *system_file;   /* -sysf, or NULL */
  bool think, no_think;
  bool hide_thinking, show_thinking; /* on a terminal; where standard output is none */
  int think_budget;                  /* tokens of thought; -1: no limit */
} ChatFlags;

typedef struct {
  int max_tokens;   /* -n; -1: no limit */
  int context;      /* -c; NOT_GIVEN: choose; 0: the model's maximum */
  StringList stops; /* --stop */
  bool ignore_eos;
  bool verbose;
} AnswerFlags;

/* All that opens and steers a model. Begin with assistant_defaults, end with assistant_flags_release(). */
typedef struct {
  ModelFlags model;
  ChatFlags chat;
  AnswerFlags answer;
  SamplingFlags sampling;
  DeviceFlags device;
  CacheFlags cache;
} AssistantFlags;
extern const AssistantFlags assistant_defaults;
void assistant_flags_release(AssistantFlags *flags);

extern const Flag chat_flags[10], answer_flags[5], sampling_flags[8];
/* Their six groups, for the table of a command whose options hold an AssistantFlags as `member`. */
#define ASSISTANT_FLAG_GROUPS(Struct, member)                                                                \
  MODEL_FLAG_GROUP(Struct, member.model), FLAG_GROUP_IN("Chat", chat_flags, Struct, member.chat, ChatFlags), \
      FLAG_GROUP_IN("Answer", answer_flags, Struct, member.answer, AnswerFlags),                             \
      FLAG_GROUP_IN("Sampling", sampling_flags, Struct, member.sampling, SamplingFlags),                     \
      DEVICE_FLAG_GROUP(Struct, member.device), CACHE_FLAG_GROUP(Struct, member.cache)

/* What they ask of each other, for the rules of the same command. */
#define ASSISTANT_FLAG_RULES                                                                                 \
  {"-sys", EXCLUDES, "-sysf", NULL}, {"--think", EXCLUDES, "--no-think", NULL},                              \
      {"--hide-thinking", EXCLUDES, "--show-thinking", NULL},                                                \
      {"-sys, -sysf, --think, --no-think, --think-budget, --hide-thinking, --show-thinking, "                \
       "--chat-template",                                                                                    \
       EXCLUDES, "--raw", "it has no chat format"},                                                          \
  {                                                                                                          \
    "--cache-limit", NEEDS, "--cache, --cache-dir", NULL                                                     \
  }

typedef struct {
  const AssistantFlags *flags;
  char *model_path;
  char *model_name; /* model_flags_name() */
  Model *model;
  Tokenizer *tokenizer;
  Chat *chat;              /* NULL: raw, or the checkpoint has no template */
  ChatThinking thinking;   /* of the chat; open and close are NULL where it has none */
  ThinkChoice think;       /* as --think and --no-think say; may be changed between answers */
  int think_budget;        /* likewise; -1: no limit */
  int max_tokens;          /* likewise; -1: no limit */
  SamplerSettings sampler; /* likewise; every answer begins with the first draw of its seed */
  bool has_system;         /* -sys or -sysf */
  Buffer system;           /* its text */
  IdList ends;             /* tokens that end an answer */
  Device device;
  SessionOptions session_options;
  Session *session; /* NULL until assistant_start() */
  Cache *cache;     /* or NULL */
  const volatile int *interrupted;
} Assistant; /* starts zeroed */

/* Opens everything but the weights. Flags that contradict each other or the model are STATUS_USAGE. */
Status assistant_open(const AssistantFlags *flags, Assistant *assistant, Error *err);
/* From now on *interrupted other than 0 ends what the assistant does, encoding and rendering too. */
void assistant_heed(Assistant *assistant, const volatile int *interrupted);
void assistant_release(Assistant *assistant); /* a zeroed one is fine */
/* Refuses (STATUS_USAGE) an output that is one of the files that assistant_open() has read. */
Status assistant_spares(const Assistant *assistant, const WrittenFile *output, Error *err);

/* Appends the ids of a conversation, with the opening of the answer behind it (without a chat: of the last
 * message's text as it is). Refused where there are none, or the model has no embedding for them. */
Status assistant_encode(const Assistant *assistant, const ChatMessage *messages, size_t n_messages,
                        IdList *ids, Error *err);
/* What most prompts are: -sys, where it is given, and a message of the user's. How many. */
size_t assistant_messages(const Assistant *assistant, const char *text, size_t size, ChatMessage messages[2]);
/* The ids of these. */
Status assistant_encode_prompt(const Assistant *assistant, const char *text, size_t size, IdList *ids,
                               Error *err);

/* The context: -c, or what memory has room for, but where the model allows it at least n_prompt and some
 * more. */
Status assistant_context(const Assistant *assistant, size_t n_prompt, int *n_ctx, Error *err);
/* Refuses a prompt that does not fit the context, with both counts (STATUS_USAGE). */
Status assistant_check_prompt(const Assistant *assistant, size_t n_prompt, int n_ctx, Error *err);
/* To be called after each answer: refuses (STATUS_FAILED) one that was computed while a file of weights was
 * written to. A device with memory of its own holds what was loaded. */
Status assistant_check_weights(const Assistant *assistant, Error *err);

/* The context as above, with a prompt that must fit into it; memory, weights, session. */
Status assistant_start(Assistant *assistant, size_t n_prompt, Error *err);

typedef enum { TEXT_ANSWER, TEXT_THOUGHT } TextKind;

typedef struct {
  /* Takes text as soon as it is known to be shown, whole characters, size > 0. *stop = true ends the answer
   * with FINISH_STOP. The marks around a thought are not part of it, nor is white space around them. */
  Status (*text)(void *user, TextKind kind, const char *text, size_t size, bool *stop, Error *err);
  /* Each token's id as it comes, before its text; may be NULL. */
  Status (*token)(void *user, int32_t id, Error *err);
  /* Between steps of the prefill, and of what longrope computes again in the midst of an answer: tokens done
   * of all. May be NULL. */
  void (*prefilling)(void *user, int done, int total);
  void *user;
} AnswerSink;

typedef struct {
  FinishReason reason;
  int n_prompt;                                 /* tokens */
  int n_reused;                                 /* of the prompt: were in the session already */
  int n_generated;                              /* thought, marks and answer; no end token */
  int n_thought;                                /* of these: within a thought */
  bool thought;                                 /* there was a thought */
  bool in_thought;                              /* the end came within it: there is no answer */
  double prefill_ms, first_token_ms, decode_ms; /* one after the other */
} AnswerResult;

/* A SessionProgress that shows nothing: `assistant` is one, whose interruption ends the prefill. */
bool assistant_goes_on(void *assistant, int done, int total);

/* Prefills what the session does not hold of ids[0..n), generates, splits thought from answer (a prompt that
 * ends in an open thought begins inside it), obeys end tokens, --stop (in the answer), the limits above;
 * without -n an answer that goes in circles ends, too (repetition.h). An interruption is no failure: reason
 * FINISH_INTERRUPTED. The session then holds prompt and answer (but perhaps its last token). */
Status assistant_answer(Assistant *assistant, const int32_t *ids, size_t n, const AnswerSink *sink,
                        AnswerResult *result, Error *err);

bool answer_was_cut(const AnswerResult *result); /* by -n, the context, or because it went in circles */

double answer_per_second(long long n, double ms); /* 0 where either is 0 */

/* For -v and -u, to standard error: what an answer took. */
void answer_print_usage(const AnswerResult *result);

#endif
