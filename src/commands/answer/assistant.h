/* assistant.h - an open model that can answer: checkpoint, tokenizer, chat template, device, session and
 * sampler. Call in this order: assistant_open(), which refuses all that can be refused before weights are
 * read; assistant_encode(); assistant_start(), which reads the weights; assistant_answer() (answer.h), any
 * number of times. */
#pragma once

#include <limits.h>
#include <math.h>

#include "commands/answer/cache.h"
#include "commands/answer/guess.h"
#include "commands/device.h"
#include "commands/form/form.h"
#include "commands/form/tools.h"
#include "commands/model_flags.h"
#include "commands/written_file.h"
#include "engine/engine.h"
#include "tokenizer/chat/chat.h"

enum { NOT_GIVEN = INT_MIN };
enum { CHOICE_LOGIT_ROWS = 16 }; /* rows of logits that a session computes at once to score choices */

typedef struct {
  Seed seed;
  double temperature, top_p, min_p, repetition_penalty; /* NAN: value of generation_config.json */
  int top_k;                                            /* NOT_GIVEN: value of generation_config.json */
  double presence_penalty, frequency_penalty;
} SamplingFlags;

/* Sampler settings from the flags, else from the checkpoint. The seed is the flag's, or 0. */
SamplerSettings sampling_settings(const SamplingFlags *flags, const GenerationDefaults *defaults);
/* Prints a note on flags without effect at --temp 0. They are no error: scripts may always give them. */
void sampling_note_idle(const SamplingFlags *flags);
/* SamplingFlags with no flag given. */
#define SAMPLING_NOT_GIVEN                                                                                   \
  { .temperature = NAN, .top_k = NOT_GIVEN, .top_p = NAN, .min_p = NAN, .repetition_penalty = NAN }

typedef struct {
  const char *chat_template; /* NAME|FILE, or NULL: the checkpoint's own */
  bool template_is_usual;    /* chat_template is from the settings file: a kept chat has its own */
  bool raw;                  /* no chat format: raw text */
  bool parse_special;        /* special tokens in the user's text are recognised */
  const char *system;        /* -sys, or NULL */
  const char *system_file;   /* -sysf, or NULL */
  bool system_is_usual;      /* system is from the settings file: ignored by a model without a chat format */
  bool think, no_think;
  bool think_is_usual; /* think or no_think is from the settings file: no note if the template lacks it */
  bool hide_thinking, show_thinking; /* hide them on a terminal, in JSON; show them in a pipe or file */
  int think_budget;                  /* tokens of thought; -1: no limit */
} ChatFlags;

typedef struct {
  int max_tokens;        /* -n; -1: no limit */
  int context;           /* -c; NOT_GIVEN: choose; 0: the model's maximum */
  bool context_is_usual; /* context is from the settings file: cut to the model's maximum */
  StringList stops;      /* --stop */
  bool ignore_eos;
  bool plain, no_wrap; /* on a terminal: no styles; words are not wrapped */
  bool verbose;
} AnswerFlags;

typedef struct {
  const char *time; /* --keep, or NULL */
} KeepFlags;

/* All flags that open and control a model. Initialise with ASSISTANT_DEFAULTS. */
typedef struct {
  ModelFlags model;
  ChatFlags chat;
  AnswerFlags answer;
  SamplingFlags sampling;
  DeviceFlags device;
  GuessFlags guess;
  CacheFlags cache;
  KeepFlags keep;
  FormFlags form;
  ToolFlags tools;
} AssistantFlags;
#define ASSISTANT_DEFAULTS                                                                                   \
  {                                                                                                          \
    .chat = {.think_budget = -1}, .answer = {.max_tokens = -1, .context = NOT_GIVEN},                        \
    .sampling = SAMPLING_NOT_GIVEN, .guess = GUESS_NOT_GIVEN                                                 \
  }

extern const Flag chat_flags[10], answer_flags[7], sampling_flags[8], keep_flags[1];
enum { CHAT_THINK_BUDGET = 4, ANSWER_MAX_TOKENS = 0 }; /* indices of flags that /set of a chat changes */
/* The flag groups of AssistantFlags, for a command whose options have an AssistantFlags called `member`. */
#define ASSISTANT_FLAG_GROUPS(Struct, member)                                                                \
  MODEL_FLAG_GROUP(Struct, member.model), FLAG_GROUP_IN("Chat", chat_flags, Struct, member.chat, ChatFlags), \
      FLAG_GROUP_IN("Answer", answer_flags, Struct, member.answer, AnswerFlags),                             \
      FORM_FLAG_GROUP(Struct, member.form), TOOL_FLAG_GROUP(Struct, member.tools),                           \
      FLAG_GROUP_IN("Sampling", sampling_flags, Struct, member.sampling, SamplingFlags),                     \
      DEVICE_FLAG_GROUP(Struct, member.device), INVARIANT_FLAG_GROUP(Struct, member.device),                 \
      GUESS_FLAG_GROUP(Struct, member.guess), CACHE_FLAG_GROUP(Struct, member.cache),                        \
      FLAG_GROUP_IN("Kept models", keep_flags, Struct, member.keep, KeepFlags)

/* Rules among the flags in AssistantFlags, for a command that has them all. */
#define SAMPLING_FLAG_RULES                                                                                  \
  { "--top-k, --top-p, --min-p", IDLE_AT_ZERO, "--temp", NULL }
#define ASSISTANT_FLAG_RULES                                                                                 \
  FORM_FLAG_RULES, TOOL_FLAG_RULES, SAMPLING_FLAG_RULES, {"-sys", EXCLUDES, "-sysf", NULL},                  \
      {"--draft", EXCLUDES_ZERO, "--guess", NULL}, {"--think", EXCLUDES, "--no-think", NULL},                \
      {"--hide-thinking", EXCLUDES, "--show-thinking", NULL},                                                \
      {"-sys, -sysf, --think, --no-think, --think-budget, --hide-thinking, --show-thinking, "                \
       "--chat-template",                                                                                    \
       EXCLUDES, "--raw", "it has no chat format"},                                                          \
      INVARIANT_FLAG_RULES,                                                                                  \
      {"--invariant", EXCLUDES, "--draft", "a step that a draft guesses for is computed otherwise"},         \
      {"--invariant", EXCLUDES, "--cache, --cache-dir", "a cache may hold what was computed otherwise"},     \
      {"--cache-limit", NEEDS, "--cache, --cache-dir", NULL}, {                                              \
    "--cache, --cache-dir, --guess, --draft", EXCLUDES_UNLESS_ZERO, "--keep",                                \
        "a model that is kept has none"                                                                      \
  }

typedef struct Remote Remote;

typedef struct {
  const AssistantFlags *flags;
  ModelPlace place;
  Model *model;
  Tokenizer *tokenizer;
  Chat *chat;              /* NULL: raw, or no template */
  ChatThinking thinking;   /* the chat's marks of thoughts, such as <think>; open is NULL without marks */
  ThinkChoice think;       /* from --think and --no-think; may change between answers */
  int think_budget;        /* may change between answers; -1: no limit */
  int max_tokens;          /* may change between answers; -1: no limit */
  SamplerSettings sampler; /* may change between answers; each answer starts at the seed's first draw */
  bool has_system;         /* -sys or -sysf */
  Buffer system;           /* the text of -sys or -sysf */
  IdList ends;             /* end tokens */
  AnswerForm form;         /* of answers, or of the calls in them */
  Tools tools;
  Device device;
  Guesser guesser;
  SessionOptions session_options;
  BatchOptions batch_options;
  /* NULL until assistant_start(), or if `remote` answers. It has a batch for several sequences. For one
   * sequence it has a batch with --states or, on a GPU, with device.invariant; else a session. A process that
   * keeps the model can have both. */
  Engine *engine;
  Remote *remote;   /* a process that keeps the model, in place of `engine`; NULL: none is connected */
  int keep_seconds; /* from keep_asked(). 0: such a process is not used; -1: it is used, but not started */
  bool holds;       /* this process keeps the model for others */
  bool many;        /* it starts before its prompts are known; to be set before assistant_open() */
  bool chooses;     /* the answers of --choose are scored, and none is generated */
  int n_held;       /* tokens of the last prompt and answer, where there is no session */
  Cache *cache;     /* or NULL */
  const volatile int *interrupted;
} Assistant; /* starts zeroed */

/* Opens everything except the weights. Flags that contradict each other or the model are STATUS_USAGE. */
Status assistant_open(const AssistantFlags *flags, Assistant *assistant, Error *err);
/* From now on a nonzero *interrupted stops the assistant, encoding and rendering included. */
void assistant_heed(Assistant *assistant, const volatile int *interrupted);
void assistant_release(Assistant *assistant); /* a zeroed one is fine */
/* The part of assistant_open() that opens the model and chooses the device, or finds the process that keeps
 * the model. */
Status assistant_open_engine(const AssistantFlags *flags, Assistant *assistant, Error *err);
/* Refuses (STATUS_USAGE) an output that is a file of the model, of its drafter, or one that a flag of the
 * assistant names. */
Status assistant_check_output(const Assistant *assistant, const WrittenFile *output, Error *err);

/* Appends the ids of a conversation and the opening of the answer; without a chat template, the ids of the
 * last message's text. Refuses an empty prompt, and ids without an embedding. */
Status assistant_encode(const Assistant *assistant, const ChatMessage *messages, size_t n_messages,
                        IdList *ids, Error *err);
/* Builds the usual messages: -sys, if given, and one user message. Returns their number. */
size_t assistant_messages(const Assistant *assistant, const char *text, size_t size, ChatMessage messages[2]);
Status assistant_encode_prompt(const Assistant *assistant, const char *text, size_t size, IdList *ids,
                               Error *err);

/* To be called before assistant_start_many(n): sets device.invariant, the default of --map, if the device
 * prefers it, no flag forbids it, and all weights fit beside the sequences. Sets nothing in two cases: n is 0
 * and records are answered one after another; or a process that keeps the model answers, or is to be
 * started (its flags decide). */
void assistant_prefer_invariant(Assistant *assistant, int n);

/* Chooses the context. -c gives it (0: the model's maximum); more than the maximum is refused, or cut if -c
 * is from the settings file. Without -c, the state takes at most half of the memory that the weights leave
 * free, but the context has at least n_prompt + 256 tokens, and at most the model's maximum. */
Status assistant_context(const Assistant *assistant, size_t n_prompt, int *n_ctx, Error *err);
/* Refuses a prompt that does not fit the context, with both counts (STATUS_USAGE). */
Status assistant_check_prompt(const Assistant *assistant, size_t n_prompt, int n_ctx, Error *err);
/* To be called after each answer: refuses it (STATUS_FAILED) if a weight file that steps read was written to
 * meanwhile. Steps read files on a CPU, and for weights that a limit keeps out of a GPU's memory. */
Status assistant_check_weights(const Assistant *assistant, Error *err);

/* Chooses the context (the prompt must fit it), checks memory, loads weights, opens the engine. Or leaves all
 * this to a process that keeps the model, and starts one if --keep asks for it. */
Status assistant_start(Assistant *assistant, size_t n_prompt, Error *err);

/* assistant_start() for up to `n` sequences at once. n 0: one sequence if the model or the flags make that
 * better, else as many as batch_usual_sequences() says. Opens the batch; for one sequence the session, unless
 * device.invariant or --states needs a batch. */
Status assistant_start_many(Assistant *assistant, int n, Error *err);

/* assistant_start() in a process that keeps the model. Opens a batch if the backend has pages. Opens a
 * session if the backend has no pages, on a GPU (where a batch rounds differently), or if the model has
 * recurrent states, from which a batch cannot continue. On a GPU with device.invariant it opens only the
 * batch. PRECOND only assistant_open_engine() was called */
Status assistant_start_holder(Assistant *assistant, Error *err);

/* Bytes of the device's own memory that a process which keeps the model takes; 0: the device has none. */
size_t assistant_device_bytes(const Assistant *assistant);

/* True if the process that kept the model has ended. */
bool assistant_is_lost(const Assistant *assistant);
/* To be called before each answer: starts again if the process that kept the model has ended meanwhile. */
Status assistant_renew(Assistant *assistant, size_t n_prompt, Error *err);

/* assistant_n_ctx(): tokens that a prompt and its answer can have; assistant_n_held(): tokens that the last
 * prompt and answer have. PRECOND the assistant has started */
int assistant_n_ctx(const Assistant *assistant);
int assistant_n_held(const Assistant *assistant);
/* engine_run() in this process, or remote_run() with up to n_at_once requests at a time. */
Status assistant_run(Assistant *assistant, int n_at_once, const EngineJob *job, Error *err);
