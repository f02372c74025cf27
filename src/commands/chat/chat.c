/* chat.c - `auk chat`: a dialogue between a user and a model. Called by: main.c through the command table,
 * run.c.
 * Always true: the terminal is restored, whatever ends the chat. */
#include "commands/chat/chat.h"

#include <string.h>
#include <unistd.h>

#include "commands/chat/dialogue.h"
#include "commands/commands.h"
#include "commands/common.h"
#include "commands/conversation/continued.h"
#include "commands/foreign_words.h"
#include "commands/input_text.h"
#include "terminal/console.h"

const Flag talk_flags[] = {
    FLAG_OF(
        KIND_OPTIONAL, OptionalText, "--continue, -C", "[NAME]", TalkFlags, resume,
        "goes on with the last chat, or with the one of this name (auk chats lists them); beside a prompt "
        "its one answer is kept in that chat",
        .hint = VALUE_CHAT),
    FLAG_SWITCH("--no-history", TalkFlags, no_history,
                "keeps neither the chat nor the lines that you enter, and brings no earlier lines back"),
    FLAG_SWITCH("--no-status", TalkFlags, no_status, "no line with tokens and speed after an answer"),
    FLAG_OF(
        KIND_CHOICE, int, "--context-overflow", "ask|slide|stop", TalkFlags, overflow,
        "when the context is full: ask whether to forget the oldest turns (the default), forget them and say "
        "so, or refuse the message",
        .weak = MEMBER_OF_TYPE(TalkFlags, overflow_is_usual, bool)),
    FLAG_STRING("--tool-command", "COMMAND", TalkFlags, tool_command,
                "runs in a shell for each call of a function: the call, {\"name\", \"arguments\"}, is its "
                "standard input, the name also in $AUK_TOOL, and its standard output is the result"),
};

bool chat_is_interactive(void) {
  return isatty(STDIN_FILENO) && isatty(STDOUT_FILENO);
}

/* --- the loop */

/* Reports a failure that an interactive user can do something about; the chat then continues. */
static Status report_and_go_on(const Dialogue *d, Status status, const Error *err) {
  if (!d->interactive || (status != STATUS_USAGE && status != STATUS_FAILED && status != STATUS_CUT_SHORT))
    return status;
  dialogue_say(d, "%s", err->text);
  return STATUS_OK;
}

static Status refuse_word(const ChatLine *line, Error *err) {
  const char *instead = foreign_chat_word(line->name, line->name_size);
  const int size = line->name_size < 40 ? (int)line->name_size : 40;
  char nearest[64] = "/help lists them";
  if (!instead && line->nearest) snprintf(nearest, sizeof nearest, "is it /%s?", line->nearest);
  return error_set(err, STATUS_USAGE,
                   "there is no command /%.*s: %s (to send it as text, begin with a space)", size, line->name,
                   instead ? instead : nearest);
}

static Status take_input(Dialogue *d, const Buffer *text, LineResult result, Error *err) {
  if (text_is_blank(text->data, text->size)) return STATUS_OK;
  const bool typed = d->interactive && result == LINE_ENTERED;
  const char *bare = typed ? chat_bare_word(text->data, text->size) : NULL;
  if (bare) {
    dialogue_say(d, "%s (to send it as text, begin with a space)", bare);
    return STATUS_OK;
  }
  ChatLine line = {.word = WORD_TEXT};
  if (result == LINE_ENTERED) line = chat_parse(text->data, text->size);
  if (line.word == WORD_TEXT) {
    const size_t before = d->conversation.count;
    const Status status = dialogue_send(d, text->data, text->size, err);
    /* A later answer may find a way through its form, or another process than the lost one. */
    const bool broke_off =
        status == STATUS_CUT_SHORT || (status == STATUS_FAILED && assistant_is_lost(&d->assistant));
    if (broke_off && d->interactive) {
      dialogue_say(d, "%s: %s taken back", err->text,
                   d->conversation.count == before ? "the message is" : "the tools' results are");
      return STATUS_OK;
    }
    return status == STATUS_USAGE ? report_and_go_on(d, status, err)
                                  : status; /* a failed device does not recover */
  }
  return report_and_go_on(
      d, line.word == WORD_UNKNOWN ? refuse_word(&line, err) : chat_command(d, &line, err), err);
}

/* After an interruption before the answer, an interactive chat continues; nothing was sent. */
static Status survive_interruption(const Dialogue *d, Status status) {
  if (status != STATUS_INTERRUPTED || !d->interactive || console_leaving()) return status;
  console_attend();
  dialogue_note(d, "interrupted before anything came");
  return STATUS_OK;
}

static Status talk(Dialogue *d, Error *err) {
  OWNED(buffer_release) Buffer text = {0};
  Status status = STATUS_OK;
  int n_none = 0;
  bool has_read = false;
  while (status == STATUS_OK && !d->leaves) {
    LineResult result;
    TRY(chat_input_read(&d->input, &text, &result, err));
    if (result == LINE_END && !has_read && !d->interactive) text_note_empty("-", 0);
    if (result == LINE_END) break;
    has_read = true;
    n_none = result == LINE_INTERRUPTED ? n_none + 1 : 0;
    if (n_none == 2) dialogue_note(d, "Ctrl-D leaves, and so does /exit");
    if (result != LINE_INTERRUPTED) status = survive_interruption(d, take_input(d, &text, result, err));
    dialogue_keep(d);
    dialogue_end_turn(d);
    if (d->interactive && console_leaving()) break;
  }
  if (status == STATUS_OK && d->interactive && console_leaving()) return STATUS_INTERRUPTED;
  if (status == STATUS_OK && !d->interactive && d->weights_changed)
    return error_set(err, STATUS_FAILED, "the chat ends with messages that were not answered");
  return status;
}

/* --- opening */

static Status open_assistant(Dialogue *d, const AssistantFlags *flags, Error *err) {
  Assistant *a = &d->assistant;
  TRY(continued_open(&d->continued, &d->talk->resume, flags, &d->conversation, err));
  flags = &d->continued.flags;
  if (flags->chat.raw) return error_set(err, STATUS_USAGE, "a chat needs a chat format, --raw has none");
  TRY(form_check_records(&flags->form, false, err));
  TRY(continued_refuse(&d->continued, assistant_open(flags, a, err), err));
  if (!a->chat)
    return error_set(
        err, STATUS_USAGE,
        "%s has no chat template: --chat-template NAME|FILE gives it one (auk run continues a text)",
        a->place.path);
  TRY(continued_begin(&d->continued, a, &d->conversation, &d->begin_note, err));
  return assistant_start(a, a->system.size, err); /* each token of the system message has a byte or more */
}

/* Prints the model's name, how its weights are stored, where it runs, and how long a conversation can be. */
static void print_banner(Dialogue *d) {
  const Assistant *a = &d->assistant;
  const QuantScheme *scheme = &a->model->config.quant.scheme;
  char weights[64] = "not quantised", device[DEVICE_NAME_SIZE];
  if (scheme->method != QUANT_NONE)
    snprintf(weights, sizeof weights, "%d bits (%s)", scheme->bits, quant_method_name(scheme->method));
  if (a->remote)
    snprintf(device, sizeof device, "kept on %s", a->device.backend->name);
  else if (a->device.backend == &cpu_backend)
    snprintf(device, sizeof device, "CPU, %d thread%s", a->device.options.n_threads,
             a->device.options.n_threads == 1 ? "" : "s");
  else
    device_describe(&a->device, device);
  dialogue_note(d, "%s: %s; %s; context %d", a->place.name, weights, device, assistant_n_ctx(a));
  dialogue_note(d, "/help lists commands, Ctrl-D leaves");
  d->turn_ends = true;
  dialogue_end_turn(d);
}

static Status open_terminal(Dialogue *d, Error *err) {
  d->screen = isatty(STDOUT_FILENO) ? stdout : stderr;
  d->interactive = isatty(STDIN_FILENO) && isatty(fileno(d->screen));
  d->ansi = d->interactive && terminal_takes_escapes(fileno(d->screen));
  d->dim = d->interactive && terminal_has_colours(fileno(d->screen)) && !d->assistant.flags->answer.plain;
  d->show = show_to(&d->assistant, STDOUT_FILENO);
  d->spinner = (Spinner){
      .is_on = d->ansi && !d->talk->no_status, .turns = true, .dim = d->dim, .screen = fileno(d->screen)};
  chat_settings_begin(&d->settings, &d->assistant, d->show.thoughts);
  if (!d->interactive) return STATUS_OK;
  const volatile int *loading = d->assistant.interrupted;
  TRY(console_begin(fileno(d->screen), d->ansi, err));
  assistant_heed(&d->assistant, console_interrupted());
  const TextStyle style = d->dim ? STYLE_MINE : STYLE_NONE;
  TRY(chat_input_open(&d->input, d->screen, d->ansi, style, !d->talk->no_history, err));
  if (*loading || *console_interrupted()) return error_set(err, STATUS_INTERRUPTED, "interrupted");
  print_banner(d);
  return STATUS_OK;
}

/* Encodes the continued chat (the template refuses an invalid order of messages), says which chat it is, and
 * shows its last turn. */
static Status show_continued(Dialogue *d, Error *err) {
  const Conversation *c = &d->conversation;
  char title[CONVERSATION_TITLE];
  OWNED(id_list_release) IdList ids = {0};
  d->continued.keeps = !d->talk->no_history && (d->interactive || d->continued.goes_on);
  d->continued.failed = d->input.history_fails; /* chat and history are in one folder: one note is enough */
  if (!d->continued.goes_on) return STATUS_OK;
  if (c->count) TRY(dialogue_encode(d, c, 0, &ids, err));
  conversation_title(d->continued.kept.forgotten.count ? &d->continued.kept.forgotten : c, title);
  dialogue_note(d, "goes on: %s (%zu message%s, %zu tokens)", title, c->count, c->count == 1 ? "" : "s",
                ids.count);
  if (*d->begin_note.text) dialogue_note(d, "%s", d->begin_note.text);
  return dialogue_show_last_turn(d, err);
}

static Status attach_files(Dialogue *d, const StringList *files, Error *err) {
  for (size_t i = 0; files && i < files->count; i++) {
    TRY(file_name_check("-f", files->items[i], err));
    TRY(dialogue_attach_file(d, files->items[i], err));
  }
  return STATUS_OK;
}

Status chat_run(const AssistantFlags *flags, const TalkFlags *talk_values, const StringList *files,
                Error *err) {
  Dialogue d = {.talk = talk_values};
  Status status = open_assistant(&d, flags, err);
  if (status == STATUS_OK) status = open_terminal(&d, err);
  if (status == STATUS_OK) status = show_continued(&d, err);
  if (status == STATUS_OK) status = attach_files(&d, files, err);
  /* Until the first line can be typed, Ctrl-C ends the program. */
  if (status == STATUS_OK && d.interactive && *console_interrupted())
    status = error_set(err, STATUS_INTERRUPTED, "interrupted");
  if (status == STATUS_OK) status = talk(&d, err);
  chat_input_close(&d.input);
  console_end();
  dialogue_release(&d);
  return status;
}

typedef struct {
  AssistantFlags assistant;
  TalkFlags talk;
  StringList files;
} Options;

static const Flag file_flags[] = {
    FLAG_FILES("-f, --file", "FILE", Options, files,
               "a file to talk about: its text comes in front of the first message, as with /read; may be "
               "repeated"),
};
static const FlagGroup groups[] = {FLAG_GROUP("Text", file_flags), TALK_FLAG_GROUP(Options, talk),
                                   ASSISTANT_FLAG_GROUPS(Options, assistant)};

static const FlagRule rules[] = {ASSISTANT_FLAG_RULES, TALK_FLAG_RULES};

static Status run(CommandCall *call, Error *err) {
  const Options *o = call->options;
  return chat_run(&o->assistant, &o->talk, &o->files, err);
}

const Interface chat_interface = {
    .usage = "auk chat -m MODEL [FLAGS]\nauk -m MODEL [FLAGS]",
    .about =
        "A conversation on a terminal. Lines are edited as with readline; what is pasted comes in whole\n"
        "and waits for Enter; Alt-Enter puts a newline into a message, and so do lines between \"\"\" and\n"
        "\"\"\". Ctrl-C stops an answer and keeps what came, Ctrl-D leaves, /help lists what can be done.\n"
        "A line that begins with a blank is text, whatever follows. Where standard input is no terminal,\n"
        "each of its lines is a message or a command, answers go to standard output, and the first "
        "error\nends the chat. Lines that begin with / are commands, /read and /save among them: give "
        "untrusted text to auk run. A chat on a terminal keeps itself; --continue goes\n"
        "on with it, auk chats lists them. Exit status: 0 done, 1 failed, 2 usage, 3 model\n"
        "refused, 130 interrupted, 141 the reader of the output went away.",
    .examples = "auk chat -m MODEL -sys \"Answer in one sentence.\"\n"
                "auk chat -m MODEL --context-overflow slide   # forgets the oldest turns\n"
                "auk chat -f notes.txt -m MODEL               # about a file\n"
                "auk chat --continue                          # the last one, with its model\n"
                "auk chat -m MODEL < lines.txt                # each line a message",
    INTERFACE_GROUPS(groups),
    INTERFACE_RULES(rules),
    .usual_flags =
        "-m, -f, --continue, -sys, -n, -c, --temp, -s, --no-think, --hide-thinking, --context-overflow, "
        "--no-history, --no-status, --plain, --no-wrap",
    INTERFACE_MODEL_OPERAND,
    .takes_foreign = true,
    .options_size = sizeof(Options),
    .defaults = &(const Options){.assistant = ASSISTANT_DEFAULTS},
    .run = run,
};
