/* chats.c - `auk chats`: lists, shows and removes the chats that were kept. Called by: main.c through the
 * command table. A list reads only the beginning of each file that auk wrote. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/file.h"
#include "base/json.h"
#include "base/output.h"
#include "base/utf8.h"
#include "commands/commands.h"
#include "commands/common.h"
#include "commands/conversation/kept_chat.h"
#include "commands/input_text.h"
#include "terminal/cells.h"
#include "terminal/console.h"

typedef struct {
  bool json, names, all;
} Options;

/* --- the list */

typedef struct {
  char text[32];
} TimeText;

static TimeText time_text(int64_t ns, bool utc) {
  TimeText out = {"-"};
  const time_t seconds = (time_t)(ns / 1000000000);
  struct tm parts;
  if (utc ? !gmtime_r(&seconds, &parts) : !localtime_r(&seconds, &parts)) return out;
  if (!strftime(out.text, sizeof out.text, utc ? "%Y-%m-%dT%H:%M:%SZ" : "%Y-%m-%d %H:%M", &parts))
    strcpy(out.text, "-");
  return out;
}

/* Appends a title in at most `most` columns; a cut title ends with "...". */
static Status put_title(Buffer *out, const char *title, size_t most, Error *err) {
  size_t end = 0, short_end = 0, columns = 0;
  const size_t size = strlen(title);
  while (end < size && columns <= most) {
    uint32_t code = 0;
    const int length = utf8_decode(title + end, size - end, &code);
    const size_t width = code < 0x80 ? 1 : (size_t)cells_columns(code);
    if (columns + width + 3 <= most) short_end = end + (length > 0 ? (size_t)length : 1);
    end += length > 0 ? (size_t)length : 1;
    columns += width;
  }
  OWNED(buffer_release) Buffer part = {0};
  TRY(buffer_append(&part, title, columns > most ? short_end : end, err));
  TRY(buffer_append(&part, "...", columns > most ? 4 : 0, err));
  TRY(buffer_append(&part, "", 1, err));
  return append_escaped(out, part.data, err);
}

static Status put_line(Buffer *out, const KeptEntry *entry, const ConversationHead *head, int width,
                       size_t columns, Error *err) {
  const size_t start = out->size;
  TRY(append_escaped(out, entry->name, err));
  const int padding = width - (int)(out->size - start);
  TRY(buffer_printf(out, err, "%*s  %s  %5zu  ", padding > 0 ? padding : 0, "",
                    time_text(entry->changed_ns, false).text, head->n_turns));
  const size_t used = out->size - start, least = 10;
  const size_t room = columns == 0 ? SIZE_MAX : columns > used + least ? columns - used : least;
  TRY(put_title(out, head->title ? head->title : "-", room, err));
  return buffer_append_string(out, "\n", err);
}

static Status put_object(JsonWriter w, const KeptEntry *entry, const ConversationHead *head) {
  TRY(json_put_string(w, "name", entry->name));
  TRY(json_put_string(w, "title", head->title));
  TRY(json_put_string(w, "began", head->began));
  TRY(json_put_string(w, "changed", time_text(entry->changed_ns, true).text));
  TRY(json_put_size(w, "turns", head->n_turns));
  TRY(json_put_string(w, "model", head->model));
  TRY(json_put_string(w, "path", entry->path));
  return json_end(w, "}");
}

/* Appends an entry. A file that is no conversation is reported, and the list goes on. */
static Status put_entry(const Options *o, Buffer *out, const KeptEntry *entry, int width, size_t columns,
                        bool *first, Error *err) {
  OWNED(conversation_head_release) ConversationHead head = {0};
  Error reason;
  if (conversation_load_head(entry->path, &head, &reason) != STATUS_OK) {
    print_note("%s", reason.text);
    return STATUS_OK;
  }
  if (!o->json) return put_line(out, entry, &head, width, columns, err);
  TRY(buffer_append_string(out, *first ? "[{" : ",\n {", err));
  *first = false;
  return put_object((JsonWriter){out, err}, entry, &head);
}

static Status write_list(const Options *o, const KeptList *list, Buffer *out, Error *err) {
  /* 0: titles are not cut */
  const size_t columns = output_is_terminal() ? (size_t)terminal_columns(STDOUT_FILENO) : 0;
  bool first = true;
  int width = 4;
  cells_begin();
  for (size_t i = 0; i < list->count; i++) {
    const size_t length = strlen(list->items[i].name);
    if (length < 60 && (int)length > width) width = (int)length;
  }
  if (!o->json && list->count)
    TRY(buffer_printf(out, err, "%-*s  %-16s  %5s  TITLE\n", width, "NAME", "CHANGED", "TURNS"));
  for (size_t i = 0; i < list->count; i++)
    TRY(put_entry(o, out, &list->items[i], width, columns, &first, err));
  if (o->json) return buffer_append_string(out, first ? "[]\n" : "]\n", err);
  if (list->count == 0) print_note("no chat was kept yet: auk chat begins one");
  return STATUS_OK;
}

static Status list_all(const Options *o, Buffer *out, Error *err) {
  OWNED(kept_list_release) KeptList list = {0};
  TRY(kept_list(&list, err));
  for (size_t i = 0; o->names && i < list.count; i++)
    TRY(buffer_printf(out, err, "%s\n", list.items[i].name));
  return o->names ? STATUS_OK : write_list(o, &list, out, err);
}

/* --- one chat */

/* Appends a text with `mark` before each of its lines. */
static Status put_marked(Buffer *out, const char *mark, const Buffer *text, Error *err) {
  const char *at = text->data ? text->data : "", *end = at + text->size;
  do {
    const char *newline = at < end ? memchr(at, '\n', (size_t)(end - at)) : NULL;
    const char *stop = newline ? newline : end;
    TRY(buffer_append_string(out, mark, err));
    TRY(buffer_append(out, at, (size_t)(stop - at), err));
    TRY(buffer_append_string(out, "\n", err));
    at = newline ? newline + 1 : end;
  } while (at < end);
  return STATUS_OK;
}

static Status put_conversation(Buffer *out, const Conversation *c, const ConversationHead *head, Error *err) {
  static const char *const marks[] = {
      [ROLE_SYSTEM] = "# ", [ROLE_USER] = "> ", [ROLE_ASSISTANT] = "", [ROLE_TOOL] = "< "};
  for (size_t i = 0; i < c->count; i++) {
    const Message *m = &c->messages[i];
    const bool other =
        head->model && m->model.size &&
        (strlen(head->model) != m->model.size || memcmp(head->model, m->model.data, m->model.size) != 0);
    if (i) TRY(buffer_append_string(out, "\n", err));
    if (other) TRY(buffer_printf(out, err, "(%.*s)\n", (int)m->model.size, m->model.data));
    TRY(put_marked(out, marks[m->role], &m->text, err));
  }
  return STATUS_OK;
}

static Status show(const Options *o, const char *name, Buffer *out, Error *err) {
  OWNED(mem_release) char *path = NULL;
  OWNED(conversation_release) Conversation c = {0};
  OWNED(conversation_head_release) ConversationHead head = {0};
  TRY(kept_find(name, false, &path, err));
  TRY(file_refuse_waiting(path, err));
  TRY(conversation_load(path, &c, &head, err));
  return o->json ? file_read(path, TEXT_LIMIT, out, err) : put_conversation(out, &c, &head, err);
}

/* --- removal */

static Status remove_one(const char *name, Error *err) {
  OWNED(mem_release) char *path = NULL;
  TRY(kept_find(name, true, &path, err));
  return unlink(path) == 0 ? STATUS_OK : system_error(path, "remove it", err);
}

static Status remove_all(Error *err) {
  OWNED(kept_list_release) KeptList list = {0};
  TRY(kept_list(&list, err));
  for (size_t i = 0; i < list.count; i++)
    if (unlink(list.items[i].path) != 0 && errno != ENOENT)
      return system_error(list.items[i].path, "remove it", err);
  print_note("%zu chats removed", list.count);
  return STATUS_OK;
}

static Status remove_named(const Options *o, const char *const *names, size_t n, Error *err) {
  if (o->all && n) return error_set(err, STATUS_USAGE, "auk chats rm --all takes no names");
  if (!o->all && n == 0)
    return error_set(err, STATUS_USAGE, "which chat? auk chats rm NAME, or --all for every one");
  for (size_t i = 0; i < n; i++) TRY(remove_one(names[i], err));
  return o->all ? remove_all(err) : STATUS_OK;
}

static Status run(CommandCall *call, Error *err) {
  const Options *o = call->options;
  const size_t n = call->n_operands;
  const char *what = n ? call->operands[0] : "list";
  const bool removes = strcmp(what, "rm") == 0;
  if (o->all && !removes) return error_set(err, STATUS_USAGE, "--all is for auk chats rm");
  if ((o->json || o->names) && removes)
    return error_set(err, STATUS_USAGE, "%s does not go with rm", o->json ? "--json" : "--names");
  if (removes) return remove_named(o, call->operands + 1, n - 1, err);
  if (strcmp(what, "show") == 0 && n <= 2 && !o->names)
    return show(o, n == 2 ? call->operands[1] : NULL, &call->out, err);
  if (n == 0) return list_all(o, &call->out, err);
  return error_set(err, STATUS_USAGE,
                   "unexpected argument \"%s\" (auk chats, auk chats show [NAME] or auk chats rm NAME)",
                   strcmp(what, "show") == 0 && n > 2 ? call->operands[2] : what);
}

static const Flag flags[] = {
    FLAG_SWITCH("--json", Options, json, "a JSON list of objects in place of lines; of one chat its file"),
    FLAG_SWITCH("--names", Options, names, "only the names, one a line"),
    FLAG_SWITCH("--all", Options, all, "with rm: every chat"),
};
static const FlagGroup groups[] = {FLAG_GROUP("Chats", flags)};

static const FlagRule rules[] = {{"--names", EXCLUDES, "--json", NULL}};

const Interface chats_interface = {
    .usage = "auk chats [FLAGS]\nauk chats show [NAME] [--json]\nauk chats rm NAME... | --all",
    .about =
        "Lists the chats that kept themselves, the last one first; shows one of them (without a name the\n"
        "last one, your messages behind >); or removes some. show takes a part of a name or a title that "
        "only\n"
        "one chat has, as --continue does; rm takes whole names. --json of the list gives name, title, "
        "began,\n"
        "changed, turns, model and path; that of a chat is its file, which /load reads.",
    .examples = "auk chats\n"
                "auk chats show sky\n"
                "auk chat --continue sky               # goes on with it\n"
                "auk chats --json | jq -r '.[] | select(.turns > 9) | .name'\n"
                "auk chats rm 2026-11-22-1510-why-is-the-sky",
    INTERFACE_GROUPS(groups),
    INTERFACE_RULES(rules),
    .max_operands = 64,
    .operands = VALUE_CHAT,
    .operand_words = "show|rm",
    .options_size = sizeof(Options),
    .run = run,
};
