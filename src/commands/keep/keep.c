/* keep.c - `auk keep`: shows the processes that keep models, starts one, ends them; or becomes one. Called
 * by: main.c through the command table. */
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>

#include "base/json.h"
#include "base/size_text.h"
#include "commands/commands.h"
#include "commands/common.h"
#include "commands/keep/holder.h"
#include "commands/keep/start.h"

enum { DEFAULT_SECONDS = 600 };

typedef struct {
  AssistantFlags assistant; /* only model, device, context and --keep are used */
  bool stop, json, foreground, detached;
} Options;

/* --- showing */

typedef struct {
  Buffer *out;
  bool json;
  int n;
} List;

/* Writes a time in hours and minutes, or in minutes and seconds; negative: "-". */
static void time_text(int seconds, char out[32]) {
  if (seconds < 0)
    snprintf(out, 32, "-");
  else if (seconds >= 3600)
    snprintf(out, 32, "%dh%02dm", seconds / 3600, seconds / 60 % 60);
  else
    snprintf(out, 32, "%dm%02ds", seconds / 60, seconds % 60);
}

static Status put_json(List *list, const WireState *s, Error *err) {
  char left[16] = "null";
  if (s->left_seconds >= 0) snprintf(left, sizeof left, "%d", s->left_seconds);
  TRY(buffer_printf(list->out, err, "%s\n  {", list->n ? "," : "["));
  TRY(json_put_string((JsonWriter){list->out, err}, "model", s->model));
  return buffer_printf(
      list->out, err,
      ", \"pid\": %d, \"device\": \"%s\", \"memory_bytes\": %" PRIu64
      ", \"context\": %d, \"parallel\": %d, \"calls\": %d, \"running\": %d, \"answers\": %" PRIu64
      ", \"keep_seconds\": %d, \"ends_in_seconds\": %s}",
      s->pid, s->backend, s->memory_bytes, s->n_ctx, s->n_sequences, s->n_calls, s->n_running, s->n_answered,
      s->keep_seconds, left);
}

static Status put_head(List *list, Error *err) {
  if (list->n > 0) return STATUS_OK;
  return buffer_printf(list->out, err, "%9s  %-6s  %10s  %5s  %8s  %8s  MODEL\n", "PROCESS", "DEVICE",
                       "MEMORY", "CALLS", "ANSWERS", "ENDS IN");
}

static Status put_line(List *list, const WireState *s, Error *err) {
  char left[32];
  time_text(s->left_seconds, left);
  TRY(put_head(list, err));
  TRY(buffer_printf(list->out, err, "%9d  %-6s  %10s  %5d  %8" PRIu64 "  %8s  ", s->pid, s->backend,
                    size_text(s->memory_bytes).text, s->n_calls, s->n_answered, left));
  TRY(append_escaped(list->out, s->model, err));
  return buffer_append(list->out, "\n", 1, err);
}

/* The pid of a process that does not say it, or has not even accepted the connection; 0: not known. */
static pid_t process_at(const Wire *wire, const char *path) {
  pid_t pid = 0;
  if (wire->socket < 0) return keep_holder(path);
  return wire_is_own(wire->socket, &pid) ? pid : 0;
}

/* Appends a process whose model is not known. */
static Status put_unknown(List *list, pid_t pid, bool silent, Error *err) {
  if (list->json)
    return buffer_printf(list->out, err, "%s\n  {\"model\": null, \"pid\": %d, \"%s\": true}",
                         list->n ? "," : "[", (int)pid, silent ? "silent" : "other_version");
  TRY(put_head(list, err));
  return buffer_printf(list->out, err, "%9d  %s (auk keep --stop ends it)\n", (int)pid,
                       silent ? "does not answer" : "is of another version of auk");
}

static Status show(void *user, const char *path, int socket, Error *err) {
  List *list = user;
  OWNED(wire_close) Wire wire = wire_on(socket);
  WireState state;
  KeepReply reply;
  TRY(keep_tell(&wire, WIRE_LOOK, NULL, &state, &reply, err));
  if (reply == KEEP_REPLIED) TRY((list->json ? put_json : put_line)(list, &state, err));
  if (reply == KEEP_IS_SILENT || reply == KEEP_IS_OTHER)
    TRY(put_unknown(list, process_at(&wire, path), reply == KEEP_IS_SILENT, err));
  list->n += reply != KEEP_ENDS;
  return STATUS_OK;
}

static Status show_all(bool json, Buffer *out, Error *err) {
  List list = {.out = out, .json = json};
  TRY(keep_each(show, &list, err));
  if (json) return buffer_append_string(out, list.n ? "\n]\n" : "[]\n", err);
  if (list.n == 0) print_note("no model is kept (--keep 10m with a prompt keeps one)");
  return STATUS_OK;
}

/* --- ending */

/* True once the process has ended; false after `ms`, or if interrupted. */
static bool await_silent(Wire *wire, const char *path, pid_t pid, int ms) {
  enum { LOOK_MS = 20 };
  if (wire->socket >= 0) return keep_await_end(wire, ms);
  for (; ms > 0 && !interrupt_came() && keep_holder(path) == pid; ms -= LOOK_MS) poll(NULL, 0, LOOK_MS);
  return keep_holder(path) != pid;
}

/* Ends a process that does not answer. While the connection is open, or keep_holder() finds the process, no
 * other process has its pid. */
static Status end_silent(Wire *wire, const char *path, Error *err) {
  enum { TERMINATE_MS = 2000, KILL_MS = 10000 };
  const pid_t pid = process_at(wire, path);
  if (pid <= 0 || kill(pid, SIGTERM) != 0)
    return error_set(err, STATUS_FAILED, "the process at %s does not answer, and cannot be ended", path);
  kill(pid, SIGCONT); /* a stopped process handles SIGTERM after this */
  if (!await_silent(wire, path, pid, TERMINATE_MS) && !interrupt_came()) kill(pid, SIGKILL);
  if (interrupt_came()) return error_set(err, STATUS_INTERRUPTED, "interrupted");
  if (!await_silent(wire, path, pid, KILL_MS))
    return error_set(err, STATUS_FAILED, "process %d does not answer, and does not end either", (int)pid);
  print_note("process %d did not answer and was ended", (int)pid);
  return STATUS_OK;
}

/* Waits until the process has completed its answers and ended; ends it if it becomes silent. */
static Status await_end(Wire *wire, const char *path, Error *err) {
  WireState state;
  KeepReply reply = KEEP_REPLIED;
  while ((reply == KEEP_REPLIED || reply == KEEP_IS_OTHER) && !keep_await_end(wire, 1000)) {
    if (interrupt_came()) return error_set(err, STATUS_INTERRUPTED, "interrupted");
    TRY(keep_tell(wire, WIRE_LOOK, NULL, &state, &reply, err));
  }
  return reply == KEEP_IS_SILENT ? end_silent(wire, path, err) : STATUS_OK;
}

typedef struct {
  int n, n_left; /* processes that replied or were silent; those that could not be ended */
} Ending;

static Status end(Ending *ending, const char *path, int socket, Error *err) {
  const WireStop stop = {.if_idle = false};
  OWNED(wire_close) Wire wire = wire_on(socket);
  WireState state;
  KeepReply reply;
  TRY(keep_tell(&wire, WIRE_STOP, &stop, &state, &reply, err));
  ending->n += reply != KEEP_ENDS;
  if (reply == KEEP_IS_SILENT) return end_silent(&wire, path, err);
  if (reply == KEEP_ENDS) return STATUS_OK;
  if (reply == KEEP_IS_OTHER) {
    snprintf(state.model, sizeof state.model, "another version of auk");
    state.pid = process_at(&wire, path);
    state.n_running = 0;
  }
  if (state.n_running)
    print_note("%s: process %d ends after %d answer%s that it is making", state.model, state.pid,
               state.n_running, state.n_running == 1 ? "" : "s");
  TRY(await_end(&wire, path, err));
  print_note("%s: process %d has ended", state.model, state.pid);
  return STATUS_OK;
}

/* Ends a process. If it cannot be ended, says so, and the next one is ended. */
static Status end_or_say(void *user, const char *path, int socket, Error *err) {
  Ending *ending = user;
  const Status status = end(ending, path, socket, err);
  if (status != STATUS_FAILED) return status;
  print_note("%s", err->text);
  ending->n_left++;
  return STATUS_OK;
}

static Status end_all(Error *err) {
  Ending ending = {0};
  TRY(keep_each(end_or_say, &ending, err));
  if (ending.n_left)
    return error_set(err, STATUS_FAILED, "%d process%s could not be ended", ending.n_left,
                     ending.n_left == 1 ? "" : "es");
  if (ending.n == 0) print_note("no model is kept");
  return STATUS_OK;
}

/* --- starting */

static Status start(const AssistantFlags *flags, int seconds, Error *err) {
  OWNED(model_place_release) ModelPlace place = {0};
  OWNED(model_release) Model *model = NULL;
  OWNED(remote_release) Remote *remote = NULL;
  TRY(model_place_find(&flags->model, &place, err));
  TRY(model_place_open_known(&place, &flags->model, &model, err));
  TRY(model_tokenizer_check(model, place.path, err));
  const int asked = flags->answer.context;
  const int n_ctx = asked == NOT_GIVEN ? 0 : asked == 0 ? model->config.max_position : asked;
  TRY(keep_start(flags, &place, model, n_ctx, seconds, &remote, err));
  const WireState *facts = remote_facts(remote);
  print_note("%s: process %d keeps it on %s, context %d, %d sequences at once", place.name, (int)facts->pid,
             facts->backend, facts->n_ctx, facts->n_sequences);
  return STATUS_OK;
}

static Status hold(AssistantFlags *flags, int seconds, bool quiet, Error *err) {
  const HolderOptions options = {.keep_seconds = seconds, .quiet = quiet};
  OWNED(assistant_release) Assistant assistant = {0};
  prctl(PR_SET_NAME, "auk"); /* launch.c executes "/proc/self/exe": the name would be "exe" */
  flags->keep.time = "0";    /* so that this process looks for no other holder */
  return holder_run(flags, &options, &assistant, err);
}

/* Verbs of other programs that keep models, and what to type here. */
static const struct {
  const char *word, *hint;
} verbs[] = {
    {"list", "auk keep lists what is kept"},
    {"ls", "auk keep lists what is kept"},
    {"ps", "auk keep lists what is kept"},
    {"show", "auk keep lists what is kept"},
    {"status", "auk keep lists what is kept"},
    {"stop", "auk keep --stop ends all that is kept"},
    {"kill", "auk keep --stop ends all that is kept"},
    {"rm", "auk keep --stop ends all that is kept"},
    {"unload", "auk keep --stop ends all that is kept"},
    {"start", "auk keep MODEL keeps one"},
    {"load", "auk keep MODEL keeps one"},
    {"run", "auk keep MODEL keeps one"},
};

/* Refuses any second operand, and a verb in place of the model unless a model has that name. */
static Status check_words(const CommandCall *call, const char *model, Error *err) {
  for (size_t i = 0; model && i < sizeof verbs / sizeof *verbs; i++)
    if (strcmp(model, verbs[i].word) == 0 && !model_is_there(model))
      return error_set(err, STATUS_USAGE, "no model is named %s: %s", model, verbs[i].hint);
  if (call->n_operands < 2) return STATUS_OK;
  return error_set(err, STATUS_USAGE, "unexpected argument \"%s\" (auk keep MODEL keeps one model)",
                   call->operands[1]);
}

static Status run(CommandCall *call, Error *err) {
  Options *o = call->options;
  int seconds;
  TRY(keep_asked(&o->assistant, &seconds, err));
  interrupt_catch();
  TRY(check_words(call, o->assistant.model.path, err));
  if (o->stop && o->assistant.model.path)
    return error_set(err, STATUS_USAGE, "--stop ends all that is kept: it goes with no model");
  if (o->stop) return end_all(err);
  /* Any flag other than --json starts a process. Without -m, it keeps the model of the settings. */
  const bool starts = o->assistant.model.path || call->n_given > o->json;
  if (starts && o->json)
    return error_set(err, STATUS_USAGE, "--json lists all that is kept: it goes with no other flag");
  if (!starts) return show_all(o->json, &call->out, err);
  if (seconds == 0) return error_set(err, STATUS_USAGE, "--keep 0 keeps nothing");
  if (seconds < 0) seconds = DEFAULT_SECONDS;
  /* The process that started this one has checked the flags. Here --gpu and --gpu-memory count as if from the
   * file of settings: a CPU ignores them instead of refusing them. */
  if (o->detached) o->assistant.device.gpu_is_usual = o->assistant.device.gpu_memory_is_usual = true;
  if (o->foreground || o->detached) return hold(&o->assistant, seconds, o->detached, err);
  return start(&o->assistant, seconds, err);
}

static const Flag flags[] = {
    FLAG_SWITCH("--stop", Options, stop, "ends all of them, each after the answers that it is making"),
    FLAG_SWITCH("--json", Options, json, "the list as JSON"),
    FLAG_SWITCH("--foreground", Options, foreground, "this process keeps the model, for service managers"),
    FLAG_SWITCH("--detached", Options, detached,
                "likewise; says \"ready\" on standard output, then lets go of its streams and its directory"),
    FLAG_INT(
        "-c, --ctx-size", "N", Options, assistant.answer.context, 0, INT_MAX,
        "tokens of prompt and answer together; 0: the model's maximum (default: that, or what half of "
        "the free memory holds); a call that needs more, or whose prompts are many, loads the model itself"),
};
static const FlagGroup groups[] = {
    FLAG_GROUP("Kept models", flags),
    FLAG_GROUP_IN("Kept models", keep_flags, Options, assistant.keep, KeepFlags),
    MODEL_FLAG_GROUP(Options, assistant.model),
    DEVICE_FLAG_GROUP(Options, assistant.device),
    INVARIANT_FLAG_GROUP(Options, assistant.device),
};

static const FlagRule rules[] = {
    {"--stop", EXCLUDES, "--json, --foreground, --detached, -m, --keep", NULL},
    {"--foreground", EXCLUDES, "--detached", NULL},
    INVARIANT_FLAG_RULES,
};

const Interface keep_interface = {
    .usage = "auk keep [--json]\nauk keep --stop\nauk keep -m MODEL [--keep TIME] [--foreground] [FLAGS]",
    .about =
        "Shows your processes that keep a model in memory: how many calls are connected to each, and when "
        "it\n"
        "ends if no other call comes. `auk --keep 10m -p TEXT` leaves such a process; `auk keep -m MODEL`\n"
        "starts one before the first call. Later calls find it by themselves if the model's files, this\n"
        "program, and the flags of the device are the same. They print the same bytes as without it; only\n"
        "answers that a GPU computes side by side with others, those of --map too, may have another token\n"
        "where two are nearly as likely; --invariant (here and with each call) rules that out.\n"
        "The process answers many calls at once. It keeps the keys and values of prompts, so that a\n"
        "beginning that two prompts share is computed once (on a GPU, between two calls: in blocks of 2,048\n"
        "tokens). It ends when no call came for the time of --keep (here 10m by default), with --stop, or\n"
        "when a call with another model needs its memory. Its socket is in $XDG_RUNTIME_DIR/auk or\n"
        "/tmp/auk-UID, which no other user can enter.",
    .examples = "auk -m MODEL --keep 10m -p \"Why is the sky blue?\"\n"
                "auk keep -m MODEL --keep 2h        # loads it now\n"
                "auk keep                           # what is kept\n"
                "auk keep --stop",
    INTERFACE_GROUPS(groups),
    INTERFACE_RULES(rules),
    .max_operands = 2, /* a verb and a model: check_words() refuses them with a hint */
    .operands = VALUE_MODEL,
    .options_size = sizeof(Options),
    .defaults = &(const Options){.assistant = ASSISTANT_DEFAULTS},
    .run = run,
};
