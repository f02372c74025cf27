/* run.c - `auk -m MODEL -p TEXT`: takes a prompt and streams the answer.
 *
 * Always true: standard output carries only the answer. A refusal that needs no weights comes before they are
 *              loaded, and before an output file is created. */
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/output.h"
#include "commands/answer/answer.h"
#include "commands/answer/choose.h"
#include "commands/answer/prompt.h"
#include "commands/answer/reply.h"
#include "commands/chat/chat.h"
#include "commands/commands.h"
#include "commands/common.h"
#include "commands/conversation/continued.h"
#include "commands/input_text.h"
#include "commands/map/map.h"
#include "commands/map/map_prompt.h"
#include "model/files/ak48.h"

typedef struct {
  AssistantFlags assistant;
  PromptFlags prompt;
  ReplyFlags reply;
  MapFlags map;
  ChooseFlags choose;
  TalkFlags talk;
} Options;

/* --- the answer */

/* One prompt, perhaps as a turn of a chat. */
typedef struct {
  const Options *options;
  Assistant *assistant;
  Continued continued;
  Conversation conversation; /* if the chat is kept: its messages, the prompt last */
  Reply reply;
} OneShot;

/* Keeps a turn with an answer in a chat's file. A turn that cannot be kept is noted only with --continue. */
static Status keep(OneShot *shot, Error *err) {
  Error note;
  const AnswerText *answer = &shot->reply.answer;
  if (!shot->continued.keeps || answer->text.size + answer->thinking.size == 0) return STATUS_OK;
  TRY(continued_add_answer(&shot->continued, &shot->conversation, answer, err));
  continued_keep(&shot->continued, shot->assistant, &shot->conversation, &note);
  if (*note.text && shot->continued.goes_on) print_note("%s", note.text);
  return STATUS_OK;
}

static Status answer(OneShot *shot, const IdList *ids, Error *err) {
  Reply *reply = &shot->reply;
  TRY(reply_begin(&shot->options->reply, shot->assistant, reply, err));
  const AnswerSink sink = reply_sink(reply);
  AnswerResult result;
  Status status = assistant_answer(shot->assistant, ids->ids, ids->count, &sink, &result, err);
  TRY(assistant_check_weights(shot->assistant, err)); /* changed weights may explain the failure, too */
  TRY(status);
  status = reply_end(reply, ids, &result, err);
  if (status == STATUS_OK || status == STATUS_INTERRUPTED || status == STATUS_CUT_SHORT) {
    Error reason;
    if (keep(shot, &reason) != STATUS_OK) return error_set(err, STATUS_FAILED, "%s", reason.text);
  }
  return status;
}

/* Encodes the conversation of --messages. */
static Status encode_messages(const char *path, const Assistant *assistant, IdList *ids, Error *err) {
  OWNED(buffer_release) Buffer text = {0};
  OWNED(map_prompt_release) MapPrompt prompt = {0};
  TRY(file_name_check("--messages", path, err));
  TRY(text_read(path, &text, err));
  TRY(map_prompt_conversation(path, text.data ? text.data : "", text.size, &prompt, err));
  return assistant_encode(assistant, prompt.messages, prompt.n_messages, ids, err);
}

/* Adds the prompt to the conversation, and encodes all of it if a chat is continued. */
static Status add_turn(OneShot *shot, const Prompt *prompt, IdList *ids, Error *err) {
  Conversation *c = &shot->conversation;
  OWNED(buffer_release) Buffer text = {0};
  OWNED(mem_release) ChatMessage *view = NULL;
  size_t n;
  TRY(prompt_join(prompt, prompt->input.data ? prompt->input.data : "", prompt->input.size, &text, err));
  TRY(conversation_add(c, ROLE_USER, text.data, text.size, err));
  if (!shot->continued.goes_on) return STATUS_OK;
  TRY(conversation_view(c, 0, &view, &n, err));
  return assistant_encode(shot->assistant, view, n, ids, err);
}

static Status encode_prompt(OneShot *shot, IdList *ids, Error *err) {
  const Options *o = shot->options;
  OWNED(prompt_release) Prompt prompt = {0};
  if (o->prompt.messages) return encode_messages(o->prompt.messages, shot->assistant, ids, err);
  TRY(prompt_read(&o->prompt, &prompt, err));
  if (shot->continued.goes_on || shot->continued.keeps) TRY(add_turn(shot, &prompt, ids, err));
  if (!shot->continued.goes_on)
    TRY(prompt_encode(&prompt, shot->assistant, (Truncation)o->prompt.truncate, ids, err));
  return STATUS_OK;
}

/* True if the answer is kept as a chat. --continue keeps any answer. Without it, an answer is kept if it is
 * text on a terminal and its prompt is plain (no --messages, --truncate or --tools). --no-history keeps
 * none. */
static bool keeps_answer(const Options *o) {
  const ReplyFlags *reply = &o->reply;
  const bool formed = reply->path || reply->json || reply->jsonl || reply->code;
  if (o->talk.no_history) return false;
  return o->talk.resume.given || (!formed && !o->prompt.messages && !o->prompt.truncate &&
                                  !o->assistant.tools.file && output_is_terminal());
}

static Status open_one(OneShot *shot, Error *err) {
  const Options *o = shot->options;
  Continued *c = &shot->continued;
  Error note;
  if (o->talk.resume.given && o->assistant.tools.file)
    return error_set(err, STATUS_USAGE, "--tools beside --continue is for a chat (auk chat --continue)");
  TRY(continued_open(c, &o->talk.resume, &o->assistant, &shot->conversation, err));
  TRY(continued_refuse(c, assistant_open(&c->flags, shot->assistant, err), err));
  TRY(reply_check_output(&o->reply, &o->prompt, shot->assistant, err));
  if (c->goes_on && !shot->assistant->chat)
    return error_set(err, STATUS_USAGE, "--continue needs a chat format, and %s has no chat template",
                     shot->assistant->place.path);
  c->keeps = shot->assistant->chat && keeps_answer(o);
  TRY(continued_begin(c, shot->assistant, &shot->conversation, &note, err));
  if (*note.text) print_note("%s", note.text);
  return STATUS_OK;
}

/* Starts the assistant. If the prompt is too long and was not cut, the error also says what helps. */
static Status start(const OneShot *shot, size_t n_prompt, Error *err) {
  Status status = assistant_start(shot->assistant, n_prompt, err);
  const int n_ctx = shot->assistant->session_options.n_ctx;
  const PromptFlags *prompt = &shot->options->prompt;
  if (status != STATUS_USAGE || prompt->truncate || prompt->messages || n_ctx <= 0 ||
      n_prompt <= (size_t)n_ctx)
    return status;
  const Error reason = *err;
  return error_set(err, status, "%s; %s", reason.text,
                   shot->continued.goes_on ? "auk chat --continue can forget the oldest turns"
                                           : "--truncate start or middle cuts it");
}

static Status run_one(const Options *o, Assistant *assistant, Error *err) {
  OneShot shot = {.options = o, .assistant = assistant};
  IdList ids = {0};
  Status status = open_one(&shot, err);
  if (status == STATUS_OK) status = encode_prompt(&shot, &ids, err);
  if (status == STATUS_OK) status = start(&shot, ids.count, err);
  if (status == STATUS_OK) status = answer(&shot, &ids, err);
  reply_release(&shot.reply);
  assistant_release(assistant); /* released before the flags that it refers to */
  conversation_release(&shot.conversation);
  continued_release(&shot.continued);
  id_list_release(&ids);
  return status;
}

/* True if this is a chat: on a terminal, with no prompt, and with no flag that a chat does not obey. */
static bool is_chat(const Options *o) {
  const ReplyFlags *reply = &o->reply;
  bool otherwise = map_is_asked(&o->map, &o->prompt) || choose_is_given(&o->choose);
  bool formed = reply->path || reply->json || reply->jsonl || reply->code || reply->no_stream ||
                reply->require_stop || reply->exact || o->prompt.truncate;
  return !otherwise && !formed && !o->assistant.chat.raw && !prompt_is_given(&o->prompt) &&
         chat_is_interactive();
}

/* Refuses flags that exclude several answers or need them, where no FlagRule can say so. */
static Status check_several(const Options *o, Error *err) {
  const bool several = map_is_asked(&o->map, &o->prompt);
  const char *what = o->map.n_best > 1 ? "--n-best" : "several -p";
  if (!several && (o->map.nul || o->map.parallel))
    return error_set(err, STATUS_USAGE, "%s needs --map, --n-best or several -p",
                     o->map.nul ? "-0" : "--parallel");
  if (several && o->reply.jsonl)
    return error_set(err, STATUS_USAGE, "--jsonl-stream does not go with %s (--json is an object each)",
                     what);
  if (several && o->reply.exact)
    return error_set(err, STATUS_USAGE,
                     "--no-newline does not go with %s: an empty line stands between answers", what);
  if (several && o->talk.resume.given)
    return error_set(err, STATUS_USAGE, "--continue does not go with %s: a chat has one turn at a time",
                     what);
  if (several && o->choose.exit_choice)
    return error_set(err, STATUS_USAGE, "--exit-choice does not go with %s", what);
  return STATUS_OK;
}

static Status run_as_asked(const Options *o, Assistant *assistant, Error *err) {
  const bool chat = is_chat(o);
  const MapJob job = {&o->map, &o->choose, &o->prompt, &o->reply, &o->assistant};
  if (o->talk.overflow && !chat && !o->talk.overflow_is_usual)
    return error_set(err, STATUS_USAGE, "--context-overflow is for a chat, and this is none (auk chat)");
  TRY(form_check_records(&o->assistant.form, o->map.json, err));
  if (o->talk.tool_command && !chat)
    return error_set(err, STATUS_USAGE,
                     "--tool-command is for a chat, and this is none (auk chat); the calls are the output");
  if (chat) return chat_run(&o->assistant, &o->talk, NULL, err);
  TRY(check_several(o, err));
  if (map_is_asked(&o->map, &o->prompt)) return map_run(&job, assistant, err);
  if (choose_is_given(&o->choose))
    return choose_run(&o->choose, &o->prompt, &o->reply, &o->assistant, assistant, err);
  return run_one(o, assistant, err);
}

static const char usage[] =
    "auk -m MODEL -p TEXT [FLAGS]\nauk -m MODEL -f FILE [FLAGS]\n... | auk -m MODEL [-p TEXT] [FLAGS]\n"
    "auk -m MODEL -p TEXT -p TEXT ... [FLAGS]\n"
    "auk -m MODEL [-p TEXT] --map FILE [--resume OUT] [FLAGS]\nauk -m MODEL -p TEXT --choose A,B [FLAGS]\n"
    "auk -m MODEL [FLAGS]\nauk run [MODEL] PROMPT [FLAGS]";

static const char about[] =
    "Answers a prompt. Text from standard input comes first (unless - stands among the files), then the\n"
    "files, then -p, each beginning on a line of its own; or text and files take the place of {} in -p\n"
    "({{}} is then {} itself). A pipe, a socket or a file on standard input is read to its end. The prompt\n"
    "is put into the chat template of the model where it has one. Sampling is as the model's\n"
    "generation_config.json says, greedy where it says nothing; flags win. A thought is dim on a terminal,\n"
    "and nowhere else unless asked for; --stop looks at the answer alone. On a terminal and without a\n"
    "prompt this is auk chat. A text that does not end with a newline gets one (--no-newline: none).\n"
    "Exit status: 0 done, 1 failed, 2 usage, 3 model refused, 4 cut short (--require-stop) or before its\n"
    "form was complete, 130 interrupted, 141 the reader of the output went away.";

static const FlagGroup groups[] = {
    PROMPT_FLAG_GROUP(Options, prompt),
    REPLY_FLAG_GROUP(Options, reply),
    MAP_FLAG_GROUP(Options, map),
    CHOOSE_FLAG_GROUP(Options, choose),
    ASSISTANT_FLAG_GROUPS(Options, assistant),
    TALK_FLAG_GROUP(Options, talk),
};

#define ALL_OF_SAMPLING                                                                                      \
  "--temp, --top-k, --top-p, --min-p, --repeat-penalty, --presence-penalty, --frequency-penalty"

static const FlagRule rules[] = {
    {"--messages", EXCLUDES,
     "-p, -P, -f, --truncate, --map, --n-best, --choose, --choice, -sys, -sysf, --raw",
     "the conversation is all of the prompt"},
    {"--tools", EXCLUDES, "-x, --choose, --choice", "a call is no text"},
    {"--continue", EXCLUDES, "--map, --n-best, --choose, --choice, --messages, --raw, --truncate",
     "it is one more turn of a chat"},
    {"--json, --no-stream", EXCLUDES, "--jsonl-stream", NULL},
    {"--no-newline", EXCLUDES, "--json, --jsonl-stream, --map, --n-best, --choose, --choice",
     "an answer is a line there"},
    {"--ids, --logprobs", NEEDS, "--json, --jsonl-stream", NULL},
    {"--show-thinking", EXCLUDES, "-x", "a thought has no code block"},
    {"-x, --choose, --choice", EXCLUDES, FORM_FLAG_NAMES, "an answer has one form"},
    {"--map-json, --resume, --retry-errors, --unordered, --states, --no-invariant", NEEDS, "--map", NULL},
    {"--states", EXCLUDES, "--decode-step, --draft, --cache, --cache-dir", "they compute with states in f32"},
    {"--states", EXCLUDES_UNLESS_ZERO, "--keep", "a model that is kept has states in f32"},
    {"--invariant", EXCLUDES, "--no-invariant", NULL},
    {"--shard, --claim", NEEDS, "--map", NULL},
    {"--shard", NEEDS, "--resume", "each shard has a file of its own, with which the same command goes on"},
    {"--lease", NEEDS, "--claim", NULL},
    {"--claim", EXCLUDES, "--shard, --resume, --unordered, -o", "its results are in the directory"},
    {"--n-best", EXCLUDES, "--choose, --choice", "it draws no token"},
    {"--unordered", NEEDS, "--json", "which says of which record a result is"},
    {"--unordered", EXCLUDES, "--resume", "it compares records and results in their order"},
    {"--retry-errors", NEEDS, "--resume", NULL},
    {"--resume", EXCLUDES, "-o", "--resume names where the results go"},
    {"--jsonl-stream", EXCLUDES, "--map", "--json is an object a line"},
    {"--exit-choice", EXCLUDES, "--map", NULL},
    {"--truncate", EXCLUDES, "--map-json", NULL},
    {"--choose-by, --exit-choice", NEEDS, "--choose, --choice", NULL},
    {"--truncate, --jsonl-stream, --ids, --logprobs, -x, --require-stop, -n, --stop, --ignore-eos", EXCLUDES,
     "--choose, --choice", "it writes one of the given answers"},
    {"--think, --think-budget, --show-thinking", EXCLUDES, "--choose, --choice",
     "it scores answers without a thought"},
    {ALL_OF_SAMPLING ", --guess, --draft", EXCLUDES, "--choose, --choice", "it draws no token"},
    ASSISTANT_FLAG_RULES,
    TALK_FLAG_RULES,
};

static bool is_command(const char *word) {
  for (size_t i = 0; i < n_commands; i++)
    if (strcmp(word, commands[i].name) == 0) return true;
  return false;
}

/* Takes an operand as the prompt: any word if the command is named (auk run MODEL PROMPT), else any word that
 * is no command's name. */
static Status take_prompt(const CommandCall *call, const char *text, Error *err) {
  Options *o = call->options;
  const bool is_named = strcmp(call->word, commands[0].name) == 0;
  if (!is_named && is_command(text))
    return error_set(err, STATUS_USAGE,
                     "unexpected argument \"%s\" (a command comes first, a prompt of one word needs -p)",
                     text);
  return string_list_add(&o->prompt.texts, text, err);
}

/* Refuses a second operand after `word`, which is no model: says what `word` is. */
static Status refuse_words(const char *word, Error *err) {
  OWNED(file_unmap) MappedFile file = {0};
  ModelConfig config;
  if (!file_exists(word) || file_map(word, STATUS_MODEL, &file, NULL) != STATUS_OK)
    return error_set(err, STATUS_USAGE,
                     "\"%s\" is no model that is here, and a prompt of several words stands in quotes (auk "
                     "models lists the models, auk get OWNER/NAME fetches one)",
                     word);
  return content_format(file.data, file.size)
             ? ak48_header_decode(word, file.data, file.size, &config, err)
             : error_set(err, STATUS_USAGE, "%s is no model (-f %s gives its text to the prompt)", word,
                         word);
}

/* True for a model that is here, and for a section of the settings file. */
static bool names_model(const CommandCall *call, const char *word) {
  bool names = false;
  for (size_t i = 0; i < call->n_aliases && !names; i++) names = strcmp(call->aliases[i], word) == 0;
  return names || model_is_there(word);
}

/* Takes each operand as "-" (-f -), a model or the prompt. After a model, the last operand is the prompt even
 * if a model has this name, unless there is a prompt already. */
static Status take_operands(const CommandCall *call, Error *err) {
  Options *o = call->options;
  const bool has_prompt = o->prompt.texts.count || o->prompt.messages;
  const char *model = NULL, *text = NULL;
  for (size_t i = 0; i < call->n_operands; i++) {
    const char *operand = call->operands[i];
    const bool may_be_model = !model || i + 1 < call->n_operands || o->prompt.texts.count;
    if (strcmp(operand, "-") == 0)
      TRY(string_list_add(&o->prompt.files, operand, err));
    else if (may_be_model && names_model(call, operand))
      TRY(flags_take_model(&run_interface, o, model = operand, err));
    else if (has_prompt)
      return error_set(err, STATUS_USAGE,
                       "unexpected argument \"%s\" (a model is given with -m, a prompt with -p)", operand);
    else if (o->prompt.texts.count)
      return refuse_words(o->prompt.texts.items[0], err);
    else
      TRY(take_prompt(call, text = operand, err));
  }
  const char *environment = getenv("AUK_MODEL");
  const bool has_usual = call->usual_model || (environment && *environment),
             may_be_model = text && *text && !o->assistant.model.path && !strpbrk(text, " \n") &&
                            (strpbrk(text, ":/") || !has_usual);
  if (text && *text && file_exists(text))
    print_note("the prompt is \"%s\" (-f reads the file of this name)", text);
  else if (may_be_model)
    print_note("the prompt is \"%s\" (no model of this name is here)", text);
  return STATUS_OK;
}

static Status run(CommandCall *call, Error *err) {
  Assistant assistant = {0};
  Options *o = call->options;
  /* With a cache, records are answered one after another. So for --map a setting does not turn the
   * cache on; only the flag does. */
  if (o->assistant.cache.on_is_usual && map_is_asked(&o->map, &o->prompt)) o->assistant.cache.on = false;
  o->assistant.device.states = o->map.states;
  o->assistant.device.several_gpus = map_is_asked(&o->map, &o->prompt);
  Status status = prompt_read_named(&o->prompt, err);
  if (status == STATUS_OK) status = run_as_asked(o, &assistant, err);
  assistant_release(&assistant);
  prompt_flags_release(&o->prompt);
  return status;
}

const Interface run_interface = {
    .usage = usage,
    .about = about,
    .examples = "auk -m MODEL -p \"Why is the sky blue?\"\n"
                "git diff | auk -m MODEL -P review    # ~/.config/auk/prompts/review.md\n"
                "git log -5 | auk -m MODEL -p \"A changelog of: {}\"   # input in place of {}\n"
                "auk -m MODEL -p \"A sort in Python\" -x > s.py      # the code alone\n"
                "auk -m MODEL -p \"Name a colour.\" --json | jq -r .text\n"
                "auk -m MODEL -p \"Invent a person.\" --json-schema person.json | jq .\n"
                "auk -m MODEL --map lines.txt -p \"Translate: {}\" --resume out.txt\n"
                "auk -m MODEL -f mail.txt -p \"Spam?\" --choose yes,no --exit-choice",
    INTERFACE_GROUPS(groups),
    INTERFACE_RULES(rules),
    .usual_flags =
        "-m, -p, -f, -sys, -n, --temp, -s, -c, -o, --json, --json-schema, -x, --map, --choose, --no-think",
    .max_operands = 64,
    .takes_foreign = true,
    .take_operands = take_operands,
    .options_size = sizeof(Options),
    .defaults = &(const Options){.assistant = ASSISTANT_DEFAULTS},
    .run = run,
};
