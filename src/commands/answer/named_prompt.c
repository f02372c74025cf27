/* named_prompt.c - see named_prompt.h; also `auk prompts`, which lists the named prompts.   Called by:
 * prompt.c, main.c through the command table. */
#include "commands/answer/named_prompt.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/utf8.h"
#include "commands/auk_directory.h"
#include "commands/commands.h"
#include "commands/common.h"
#include "commands/did_you_mean.h"
#include "commands/input_text.h"
#include "commands/names.h"

static const char *const endings[] = {".md", ".txt", ""};
enum { N_ENDINGS = sizeof endings / sizeof *endings };

/* The folder, in new memory; NULL if the environment names no place. */
static Status find_directory(char **directory, Error *err) {
  return auk_path("XDG_CONFIG_HOME", ".config", "prompts", directory, err);
}

/* --- names */

/* Length of a file's name without its ending. */
static size_t stem_of(const char *file) {
  const size_t size = strlen(file);
  for (int i = 0; i < N_ENDINGS; i++) {
    const size_t length = strlen(endings[i]);
    if (size > length && strcmp(file + size - length, endings[i]) == 0) return size - length;
  }
  return size;
}

/* Reads the names of the folder's files, except backups (NAME~) and names that are not UTF-8. Without the
 * folder there are no names. */
static Status read_files(const char *directory, Names *files, Error *err) {
  Status status = STATUS_OK;
  size_t n = 0;
  if (!directory) return STATUS_OK;
  TRY(names_read(directory, files, err));
  errno = files->error;
  if (errno && errno != ENOENT) return system_error(directory, "read it", err);
  for (size_t i = 0; i < files->count; i++) {
    char *name = files->items[i];
    const size_t size = strlen(name);
    OWNED(mem_release) char *path = path_join(directory, name, err);
    if (!path) status = STATUS_FAILED;
    const bool is_copy = name[size - 1] == '~'; /* an editor's backup */
    if (path && !is_copy && utf8_valid_prefix(name, size) == size && !file_is_directory(path))
      files->items[n++] = name;
    else
      free(name);
  }
  files->count = n;
  return status;
}

static Status refuse(const char *name, const char *directory, Error *err) {
  OWNED(names_release) Names files = {0};
  Suggestion nearest = suggestion_begin(name, strlen(name));
  TRY(read_files(directory, &files, err));
  for (size_t i = 0; i < files.count; i++)
    suggestion_consider(&nearest, files.items[i], stem_of(files.items[i]));
  if (!directory)
    return error_set(err, STATUS_USAGE, "-P %s: neither XDG_CONFIG_HOME nor HOME names a place for prompts",
                     name);
  if (nearest.word)
    return error_set(err, STATUS_USAGE, "there is no prompt named \"%s\": did you mean %.*s?", name,
                     (int)nearest.word_size, nearest.word);
  return error_set(err, STATUS_USAGE, "there is no prompt named \"%s\": %s/%s.md would be one", name,
                   directory, name);
}

/* *path: the file of this name in the folder, or NULL. */
static Status find_file(const char *name, const char *directory, char **path, Error *err) {
  *path = NULL;
  for (int i = 0; i < N_ENDINGS && directory && *name && !*path; i++) {
    OWNED(buffer_release) Buffer file = {0};
    TRY(buffer_printf(&file, err, "%s/%s%s%c", directory, name, endings[i], 0));
    if (!file_is_named(file.data) || file_is_directory(file.data)) continue;
    *path = file.data;
    file = (Buffer){0};
  }
  return STATUS_OK;
}

static Status find(const char *name, char **path, Error *err) {
  OWNED(mem_release) char *directory = NULL;
  *path = NULL;
  if (strchr(name, '/')) {
    *path = path_join("", name, err);
    return *path ? STATUS_OK : STATUS_FAILED;
  }
  TRY(find_directory(&directory, err));
  TRY(find_file(name, directory, path, err));
  return *path ? STATUS_OK : refuse(name, directory, err);
}

Status named_prompt_read(const char *name, Buffer *text, char **path, Error *err) {
  TRY(find(name, path, err));
  if (!strchr(name, '/')) TRY(file_refuse_waiting(*path, err)); /* a path may well be a fifo, <(...) */
  TRY(text_read(*path, text, err));
  text_drop_newline(text);
  if (text_is_blank(text->data, text->size)) return error_set(err, STATUS_USAGE, "%s is empty", *path);
  return buffer_append(text, "", 1, err);
}

/* --- auk prompts */

typedef struct {
  bool names;
} Options;

/* Appends a line: a prompt's name and how its text begins; the name alone if the file cannot be read. */
static Status put_prompt(Buffer *out, const char *directory, const char *file, int width, Error *err) {
  enum { MOST = 60 };
  OWNED(buffer_release) Buffer text = {0}, name = {0};
  Error ignored;
  OWNED(mem_release) char *path = path_join(directory, file, err);
  char line[4 * MOST + 1];
  size_t n = 0;
  if (!path) return STATUS_FAILED;
  const bool is_read = file_refuse_waiting(path, &ignored) == STATUS_OK && !text_read(path, &text, &ignored);
  const char *at = is_read && text.data ? text.data : "", *end = at + (is_read ? text.size : 0);
  while (at < end && strchr("# \t\r\n", *at)) at++;
  while (at < end && *at && *at != '\n' && n < MOST) line[n++] = *at++;
  while (n && ((unsigned char)line[n - 1] & 0x80) && utf8_valid_prefix(line, n) != n) n--;
  while (n && strchr(" \t\r", line[n - 1])) n--;
  line[n] = 0;
  const size_t start = out->size;
  TRY(buffer_printf(&name, err, "%.*s%c", (int)stem_of(file), file, 0));
  TRY(append_escaped(out, name.data, err));
  const int padding = width - (int)(out->size - start);
  TRY(buffer_printf(out, err, "%*s  ", padding > 0 ? padding : 0, ""));
  TRY(append_escaped(out, line, err));
  return buffer_append_string(out, "\n", err);
}

static Status list(const Options *o, const char *directory, Buffer *out, Error *err) {
  OWNED(names_release) Names files = {0};
  int width = 0;
  TRY(read_files(directory, &files, err));
  for (size_t i = 0; i < files.count; i++) {
    const size_t stem = stem_of(files.items[i]);
    if (stem < 40 && (int)stem > width) width = (int)stem;
  }
  for (size_t i = 0; i < files.count; i++)
    TRY(o->names ? buffer_printf(out, err, "%.*s\n", (int)stem_of(files.items[i]), files.items[i])
                 : put_prompt(out, directory, files.items[i], width, err));
  if (files.count == 0 && !o->names)
    print_note("there are no prompts: %s/review.md would be one, for -P review", directory);
  return STATUS_OK;
}

static Status run(CommandCall *call, Error *err) {
  OWNED(mem_release) char *directory = NULL;
  TRY(find_directory(&directory, err));
  if (!directory)
    return error_set(err, STATUS_USAGE, "neither XDG_CONFIG_HOME nor HOME names a place for prompts");
  return list(call->options, directory, &call->out, err);
}

static const Flag flags[] = {FLAG_SWITCH("--names", Options, names, "only the names, one a line")};
static const FlagGroup groups[] = {FLAG_GROUP("Prompts", flags)};

const Interface prompts_interface = {
    .usage = "auk prompts [--names]",
    .about = "Lists your prompts, each with its first line. A prompt is a file NAME.md in\n"
             "$XDG_CONFIG_HOME/auk/prompts, or ~/.config/auk/prompts; auk -P NAME asks it. {} in it is the\n"
             "place of the text from standard input, -f and -p; without a place the text comes before it.",
    .examples = "echo \"Review this change, worst first: {}\" > ~/.config/auk/prompts/review.md\n"
                "git diff | auk -P review",
    INTERFACE_GROUPS(groups),
    .options_size = sizeof(Options),
    .run = run,
};
