/* common.c - see common.h. Its only mutable state is the flag that the signal handler sets. */
#include "commands/common.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/random.h>
#include <unistd.h>

#include "base/json.h"
#include "terminal/console.h"

int command_finish(Status status, const Error *err) {
  bool printed = status != STATUS_OK && status != STATUS_PIPE && status != STATUS_INTERRUPTED;
  if (printed && err->text[0]) fprintf(stderr, "auk: %s\n", err->text);
  return (int)status;
}

void print_note(const char *format, ...) {
  Error given, clean;
  va_list args;
  va_start(args, format);
  vsnprintf(given.text, sizeof given.text, format, args);
  va_end(args);
  error_set(&clean, STATUS_OK, "%s", given.text);
  fprintf(stderr, "auk: %s\n", clean.text);
}

/* --- signals */

/* Global, because a signal handler can write nowhere else. */
static volatile int interrupted;

static const int ending[] = {SIGINT, SIGTERM, SIGHUP};
enum { N_ENDING = sizeof ending / sizeof *ending };

static void on_interrupt(int signal_number) {
  interrupted = 1;
  for (int i = 0; i < N_ENDING; i++) {
    struct sigaction action;
    sigaction(ending[i], NULL, &action);
    if (action.sa_handler == on_interrupt) signal(ending[i], SIG_DFL);
  }
}

const volatile int *interrupt_catch(void) {
  /* No SA_RESTART: a signal must also end a read that waits for input. */
  struct sigaction action = {.sa_handler = on_interrupt}, before;
  sigemptyset(&action.sa_mask);
  for (int i = 0; i < N_ENDING; i++) {
    sigaction(ending[i], NULL, &before);
    if (ending[i] == SIGHUP && before.sa_handler == SIG_IGN) continue; /* nohup */
    sigaction(ending[i], &action, NULL);
  }
  return &interrupted;
}

bool interrupt_came(void) {
  return interrupted;
}

Status random_seed(uint64_t *seed, Error *err) {
  if (getrandom(seed, sizeof *seed, 0) != sizeof *seed)
    return error_set(err, STATUS_FAILED, "cannot get a random seed (give one with --seed)");
  *seed >>= 11;
  return STATUS_OK;
}

Status size_parse(const char *flag, const char *text, uint64_t least, uint64_t *bytes, Error *err) {
  static const char units[] = "KMGT";
  char *end;
  const double number = *text >= '0' && *text <= '9' ? strtod(text, &end) : NAN;
  const char *unit = isnan(number) || !*end ? NULL : strchr(units, toupper((unsigned char)*end));
  const char *rest = isnan(number) ? text : end + (unit != NULL);
  const double all = unit ? ldexp(number, 10 * (int)(unit - units + 1)) : number;
  const bool whole = !*rest || strcasecmp(rest, "B") == 0 || (unit && strcasecmp(rest, "iB") == 0);
  if (!whole || !(all >= (double)least && all < 0x1p63))
    return error_set(err, STATUS_USAGE, "%s is \"%s\", expected a size such as 12G or 800M", flag, text);
  *bytes = (uint64_t)all;
  return STATUS_OK;
}

/* --- files */

Status file_name_check(const char *what, const char *path, Error *err) {
  if (!path || strcmp(path, "-") != 0) return STATUS_OK;
  return error_set(err, STATUS_USAGE, "%s is \"-\", expected a file (one of this name: ./-)", what);
}

Status system_error(const char *path, const char *what, Error *err) {
  return error_set(err, STATUS_FAILED, "%s: cannot %s: %s", path, what, strerror(errno));
}

/* --- terminals */

bool terminal_takes_escapes(int descriptor) {
  const char *terminal = getenv("TERM");
  return isatty(descriptor) && terminal && *terminal && strcmp(terminal, "dumb") != 0;
}

void progress_show(const char *format, ...) {
  char text[200];
  va_list args;
  va_start(args, format);
  vsnprintf(text, sizeof text, format, args);
  va_end(args);
  const int columns = terminal_columns(STDERR_FILENO);
  fprintf(stderr, "\r\033[K%.*s", columns > 0 ? columns - 1 : (int)sizeof text, text);
}

Spinner loading_spinner(bool is_wanted) {
  return (Spinner){
      .is_on = is_wanted && terminal_takes_escapes(STDERR_FILENO), .turns = true, .screen = STDERR_FILENO};
}

Status append_escaped(Buffer *out, const char *text, Error *err) {
  OWNED(buffer_release) Buffer quoted = {0};
  TRY(json_write_string(&quoted, text, strlen(text), err));
  return buffer_append(out, quoted.data + 1, quoted.size - 2, err);
}
