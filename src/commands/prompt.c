/* prompt.c - see prompt.h.   Called by: commands/run.c.   Calls: common.c (text_read), the tokenizer. */
#include "commands/prompt.h"

#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/output.h"
#include "base/utf8.h"
#include "commands/common.h"

/* Whether text waits on standard input that nobody named. Beside a -p only what a shell connects on purpose
 * counts: a pipe, a socket, a file. */
static bool input_is_piped(bool beside_others) {
  struct stat kind;
  if (isatty(STDIN_FILENO) || fstat(STDIN_FILENO, &kind) != 0) return false;
  if ((fcntl(STDIN_FILENO, F_GETFL) & O_ACCMODE) == O_WRONLY) return false; /* closed: see output_begin() */
  return !beside_others || S_ISREG(kind.st_mode) || S_ISFIFO(kind.st_mode) || S_ISSOCK(kind.st_mode);
}

/* A pipe that somebody left open would look like a program that hangs. */
static void say_what_is_awaited(void) {
  struct pollfd input = {.fd = STDIN_FILENO, .events = POLLIN};
  if (progress_is_terminal() && poll(&input, 1, 2000) == 0)
    fprintf(stderr, "auk: waiting for standard input to end (`< /dev/null` goes without)\n");
}

/* The next part begins on a line of its own. */
static Status end_line(Buffer *text, Error *err) {
  if (text->size == 0 || text->data[text->size - 1] == '\n') return STATUS_OK;
  return buffer_append(text, "\n", 1, err);
}

static Status add_file(const char *path, Buffer *text, Error *err) {
  TRY(end_line(text, err));
  return text_read(path, text, err);
}

static void drop_newline(Buffer *text) {
  if (text->size == 0 || text->data[text->size - 1] != '\n') return;
  text->size--;
  if (text->size && text->data[text->size - 1] == '\r') text->size--;
}

static Status check_argument(const char *flag, const char *text, Error *err) {
  size_t size = strlen(text), valid = utf8_valid_prefix(text, size);
  if (valid == size) return STATUS_OK;
  return error_set(err, STATUS_USAGE, "%s is not valid UTF-8: byte 0x%02x at offset %zu", flag,
                   (unsigned char)text[valid], valid);
}

static bool asks_for_input(const StringList *files) {
  for (size_t i = 0; i < files->count; i++)
    if (strcmp(files->items[i], "-") == 0) return true;
  return false;
}

Status prompt_text(const PromptFlags *flags, Buffer *text, Error *err) {
  bool named = flags->text || flags->files.count;
  if (!asks_for_input(&flags->files) && input_is_piped(named)) {
    say_what_is_awaited();
    TRY(text_read("-", text, err));
    named = named || text->size;
  }
  if (!named)
    return error_set(err, STATUS_USAGE,
                     "no prompt: give -p TEXT or -f FILE, or pipe a text in (--help lists more)");
  for (size_t i = 0; i < flags->files.count; i++) TRY(add_file(flags->files.items[i], text, err));
  if (!flags->text) {
    drop_newline(text);
    return STATUS_OK;
  }
  TRY(check_argument("-p", flags->text, err));
  TRY(end_line(text, err));
  return buffer_append_string(text, flags->text, err);
}

Status prompt_encode(const PromptFlags *flags, const Tokenizer *tokenizer, ChatFormat format,
                     const Buffer *text, IdList *ids, Error *err) {
  const char *bytes = text->data ? text->data : "";
  if (flags->system) TRY(check_argument("-sys", flags->system, err));
  if (format == CHAT_NONE) {
    EncodeOptions options = {.add_special = true, .parse_special = flags->parse_special};
    TRY(tokenizer_encode(tokenizer, bytes, text->size, options, ids, err));
  } else {
    const FrameMessage messages[] = {
        {"system", flags->system, flags->system ? strlen(flags->system) : 0},
        {"user", bytes, text->size},
    };
    size_t skip = flags->system ? 0 : 1;
    TRY(frame_encode(tokenizer, format, messages + skip, 2 - skip, flags->parse_special, ids, err));
  }
  return ids->count ? STATUS_OK : error_set(err, STATUS_USAGE, "the prompt is empty: it has no tokens");
}
