/* tool_results.c - calls of functions that wait for their results: what the user gives with /tool, or what
 * --tool-command writes; see dialogue.h. Called by: dialogue.c, chat_commands.c. */
#include <sys/wait.h>

#include "base/utf8.h"
#include "commands/chat/dialogue.h"
#include "commands/chat/shell_command.h"
#include "commands/input_text.h"

enum { MOST_RESULT = 1 << 20 }; /* bytes that --tool-command may write */

/* A call without a result. The spans point into the buffer that find_waiting() fills. */
typedef struct {
  JsonSpan function; /* {"name": ..., "arguments": ...} */
  JsonSpan name, id; /* strings; without text: missing */
  size_t n;          /* number of calls without a result, from this one on; 0: there is no such call */
} WaitingCall;

/* Finds call number `index` (from 0) among those calls of the last answer that have no result. call->n is 0
 * if there are fewer. `object` gets the text that the spans point into. */
static void find_waiting(const Conversation *c, size_t index, Buffer *object, WaitingCall *call) {
  size_t at = c->count, n_results = 0, n = 0;
  *call = (WaitingCall){.n = 0};
  for (; at > 0 && c->messages[at - 1].role == ROLE_TOOL; at--) n_results++;
  if (at == 0 || c->messages[at - 1].role != ROLE_ASSISTANT) return;
  const Buffer *members = &c->messages[at - 1].members;
  object->size = 0;
  if (members->size == 0 || buffer_append(object, "{", 1, NULL) != STATUS_OK ||
      buffer_append(object, members->data, members->size, NULL) != STATUS_OK ||
      buffer_append(object, "}", 1, NULL) != STATUS_OK)
    return;
  const JsonSpan calls = json_span_member((JsonSpan){object->data, object->size}, "tool_calls");
  JsonCursor cursor = json_cursor(calls);
  if (!calls.text || !json_cursor_enter(&cursor, '[')) return;
  for (bool first = true; json_cursor_next(&cursor, &first); n++) {
    const JsonSpan item = json_cursor_value(&cursor), inner = json_span_member(item, "function");
    if (n != n_results + index) continue;
    call->function = inner.text ? inner : item;
    call->name = json_span_member(call->function, "name");
    call->id = json_span_member(item, "id");
  }
  call->n = n > n_results + index ? n - n_results - index : 0;
}

static Status append_member(Buffer *out, const char *key, JsonSpan value, Error *err) {
  if (!value.text) return STATUS_OK;
  return buffer_printf(out, err, "%s\"%s\":%.*s", out->size ? "," : "", key, (int)value.size, value.text);
}

static Status add_result(Dialogue *d, const WaitingCall *call, const char *text, size_t size, Error *err) {
  TRY(conversation_add(&d->conversation, ROLE_TOOL, text, size, err));
  Buffer *members = &d->conversation.messages[d->conversation.count - 1].members;
  TRY(append_member(members, "tool_call_id", call->id, err));
  return append_member(members, "name", call->name, err);
}

/* Says for which call /tool gives the next result. */
static void note_waiting(const Dialogue *d, const WaitingCall *call) {
  const JsonSpan name = call->name.text ? call->name : (JsonSpan){"\"?\"", 3};
  if (d->interactive) dialogue_note(d, "/tool RESULT gives the result of %.*s", (int)name.size, name.text);
}

Status dialogue_give_result(Dialogue *d, const char *text, size_t size, Error *err) {
  WaitingCall call;
  OWNED(buffer_release) Buffer object = {0};
  const size_t before = d->conversation.count;
  find_waiting(&d->conversation, 0, &object, &call);
  if (!call.n) return error_set(err, STATUS_USAGE, "no call of a function waits for a result");
  TRY(add_result(d, &call, text, size, err));
  find_waiting(&d->conversation, 0, &object, &call);
  bool answered = true;
  if (call.n) note_waiting(d, &call);
  const Status status = call.n ? STATUS_OK : dialogue_answer(d, &answered, err);
  if (!answered) conversation_truncate(&d->conversation, before);
  return status;
}

Status dialogue_list_calls(const Dialogue *d, Buffer *out, Error *err) {
  WaitingCall call;
  OWNED(buffer_release) Buffer object = {0};
  size_t n = 0;
  for (find_waiting(&d->conversation, n, &object, &call); call.n;
       find_waiting(&d->conversation, ++n, &object, &call))
    TRY(buffer_printf(out, err, "%.*s\n", (int)call.function.size, call.function.text));
  if (n == 0) dialogue_say(d, "No call of a function waits for a result.");
  return STATUS_OK;
}

/* --- --tool-command */

/* Runs the command for a call; the call's result is the output, with the exit status unless that is 0. */
static Status run_command(const Dialogue *d, const WaitingCall *call, Buffer *result, Error *err) {
  OWNED(buffer_release) Buffer input = {0}, name = {0};
  bool is_string;
  int how = 0;
  JsonCursor cursor = json_cursor(call->name);
  TRY(buffer_append(&input, call->function.text, call->function.size, err));
  TRY(buffer_append(&input, "\n", 1, err));
  if (call->name.text) TRY(json_cursor_string(&cursor, &name, &is_string, err));
  TRY(buffer_append(&name, "", 1, err));
  const ShellOptions options = {.name = name.data, .input = &input, .output = result, .most = MOST_RESULT};
  TRY(shell_command(d->talk->tool_command, &options, &how, err));
  if (WIFSIGNALED(how))
    return error_set(err, STATUS_FAILED, "the command of --tool-command was ended by signal %d",
                     WTERMSIG(how));
  if (result->size && result->data[result->size - 1] == '\n') result->size--;
  if (result->size && utf8_valid_prefix(result->data, result->size) != result->size)
    return error_set(err, STATUS_FAILED, "the command of --tool-command wrote text that is not valid UTF-8");
  if (WEXITSTATUS(how) == 0) return STATUS_OK;
  dialogue_note(d, "the command of --tool-command ended with status %d", WEXITSTATUS(how));
  return buffer_printf(result, err, "%s(exit status %d)", result->size ? "\n" : "", WEXITSTATUS(how));
}

static Status note_result(const Dialogue *d, const Buffer *result, Error *err) {
  OWNED(buffer_release) Buffer line = {0};
  TRY(dialogue_excerpt(result->data ? result->data : "", result->size, 70, &line, err));
  dialogue_note(d, "result: %.*s", (int)line.size, line.data ? line.data : "");
  return STATUS_OK;
}

static Status run_all(Dialogue *d, Buffer *object, Buffer *result, bool *answer, Error *err) {
  WaitingCall call;
  for (find_waiting(&d->conversation, 0, object, &call); call.n;
       find_waiting(&d->conversation, 0, object, &call)) {
    result->size = 0;
    TRY(run_command(d, &call, result, err));
    TRY(add_result(d, &call, result->data ? result->data : "", result->size, err));
    if (d->interactive) TRY(note_result(d, result, err));
  }
  *answer = true;
  return STATUS_OK;
}

Status dialogue_run_tools(Dialogue *d, bool may_run, bool *answer, Error *err) {
  WaitingCall call;
  OWNED(buffer_release) Buffer object = {0}, result = {0};
  *answer = false;
  find_waiting(&d->conversation, 0, &object, &call);
  Status status = STATUS_OK;
  if (call.n && !may_run && d->talk->tool_command)
    dialogue_say(d, "--tool-command ran for many answers in turn, and no more for this one");
  may_run = may_run && d->result.reason != FINISH_INTERRUPTED && d->talk->tool_command;
  if (call.n && may_run)
    status = run_all(d, &object, &result, answer, err);
  else if (call.n)
    note_waiting(d, &call);
  if (status != STATUS_FAILED || !d->interactive) return status;
  dialogue_say(d, "%s", err->text);
  find_waiting(&d->conversation, 0, &object, &call);
  note_waiting(d, &call);
  return STATUS_OK;
}
