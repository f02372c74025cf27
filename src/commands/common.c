/* common.c - see common.h.
 *
 * Called by: every command. The only thing here that changes is the flag that the signal handler sets. */
#include "commands/common.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "base/file.h"
#include "base/json.h"
#include "base/utf8.h"
#include "commands/models/hub.h"

int command_finish(Status status, const Error *err) {
  bool told = status != STATUS_OK && status != STATUS_PIPE && status != STATUS_INTERRUPTED;
  if (told && err->text[0]) fprintf(stderr, "auk: %s\n", err->text);
  return (int)status;
}

/* --- signals */

/* The one global that changes: a signal handler has nothing else to write to. */
static volatile int interrupted;

static const int ending[] = {SIGINT, SIGTERM, SIGHUP};
enum { N_ENDING = sizeof ending / sizeof *ending };

/* The next one of any of them ends the program. */
static void on_interrupt(int signal_number) {
  (void)signal_number;
  interrupted = 1;
  for (int i = 0; i < N_ENDING; i++) {
    struct sigaction action;
    sigaction(ending[i], NULL, &action);
    if (action.sa_handler == on_interrupt) signal(ending[i], SIG_DFL);
  }
}

const volatile int *interrupt_catch(void) {
  /* No SA_RESTART: a read that waits for input ends too. */
  struct sigaction action = {.sa_handler = on_interrupt}, before;
  sigemptyset(&action.sa_mask);
  for (int i = 0; i < N_ENDING; i++) {
    sigaction(ending[i], NULL, &before);
    if (ending[i] == SIGHUP && before.sa_handler == SIG_IGN) continue; /* nohup */
    sigaction(ending[i], &action, NULL);
  }
  return &interrupted;
}

/* --- the model */

const Flag model_flags[] = {
    FLAG_MODEL(
        "-m, --model", ModelFlags, path,
        "a Hugging Face directory, a packed file, or what Hugging Face's cache has under a name such as "
        "Qwen/Qwen3-8B-AWQ (default: $AUK_MODEL)"),
    FLAG_FILE("--tokenizer", "FILE", ModelFlags, overrides.tokenizer,
              "a tokenizer.json in place of the model's own"),
    FLAG_DOUBLE("--rope-theta", "X", ModelFlags, overrides.rope_theta, 1, 1e12,
                "for a packed file, whose header does not hold it"),
    FLAG_DOUBLE("--norm-eps", "X", ModelFlags, overrides.norm_eps, 1e-12, 1,
                "for a packed file, whose header does not hold it"),
};

Status model_flags_take_operand(ModelFlags *values, const char *operand, Error *err) {
  if (operand && values->path)
    return error_set(err, STATUS_USAGE, "two models: %s and %s", values->path, operand);
  if (operand) values->path = operand;
  return STATUS_OK;
}

static const char *model_name(const ModelFlags *values) {
  const char *name = values->path ? values->path : getenv("AUK_MODEL");
  return name && *name ? name : NULL;
}

Status model_flags_path(const ModelFlags *values, char **path, Error *err) {
  *path = NULL;
  const char *name = model_name(values);
  if (name) return hub_find(name, path, err);
  return error_set(err, STATUS_USAGE,
                   "no model: give -m MODEL or set AUK_MODEL (auk models lists those that are here, auk "
                   "--help shows how to begin)");
}

Status model_flags_check(const ModelFlags *values, const char *path, Error *err) {
  return hub_check_found(model_name(values), path, err);
}

Status model_flags_open(const ModelFlags *values, Model **model, Error *err) {
  char *path;
  TRY(model_flags_path(values, &path, err));
  Status status = hub_check(model_name(values), path, err);
  if (status == STATUS_OK) status = model_open(path, &values->overrides, model, err);
  free(path);
  return status;
}

Status model_tokenizer_check(const Model *model, const char *model_path, Error *err) {
  if (model->tokenizer_path) return STATUS_OK;
  return error_set(err, STATUS_MODEL, "%s: no tokenizer.json %s it (--tokenizer FILE names one)", model_path,
                   model->layout == LAYOUT_HF_DIRECTORY ? "in" : "beside");
}

Status model_tokenizer_open(const Model *model, const char *model_path, Tokenizer **tokenizer, Error *err) {
  TRY(model_tokenizer_check(model, model_path, err));
  return tokenizer_open(model->tokenizer_path, tokenizer, err);
}

/* --- seeds */

Status random_seed(uint64_t *seed, Error *err) {
  if (getrandom(seed, sizeof *seed, 0) != sizeof *seed)
    return error_set(err, STATUS_FAILED, "cannot get a random seed (give one with --seed)");
  *seed >>= 11;
  return STATUS_OK;
}

/* --- text and ids */

Status text_read(const char *path, Buffer *out, Error *err) {
  bool standard = strcmp(path, "-") == 0;
  const char *name = standard ? "standard input" : path;
  size_t start = out->size;
  /* A signal that came before the first read interrupts none. */
  if (interrupted) return error_set(err, STATUS_INTERRUPTED, "interrupted");
  TRY(standard ? stream_read(stdin, name, TEXT_LIMIT, out, err) : file_read(path, TEXT_LIMIT, out, err));
  /* A SIGINT that comes together with the end of the input interrupts no read. */
  if (interrupted) return error_set(err, STATUS_INTERRUPTED, "interrupted");
  if (out->size == start) return STATUS_OK;
  size_t valid = utf8_valid_prefix(out->data + start, out->size - start);
  if (valid == out->size - start) return STATUS_OK;
  return error_set(err, STATUS_USAGE, "%s is not valid UTF-8: byte 0x%02x at offset %zu", name,
                   (unsigned char)out->data[start + valid], valid);
}

Status text_check(const char *what, const char *text, Error *err) {
  size_t size = strlen(text), valid = utf8_valid_prefix(text, size);
  if (valid == size) return STATUS_OK;
  return error_set(err, STATUS_USAGE, "%s is not valid UTF-8: byte 0x%02x at offset %zu", what,
                   (unsigned char)text[valid], valid);
}

void text_drop_newline(Buffer *text) {
  if (text->size == 0 || text->data[text->size - 1] != '\n') return;
  text->size--;
  if (text->size && text->data[text->size - 1] == '\r') text->size--;
}

Status ids_parse(const char *name, const Buffer *text, IdList *ids, Error *err) {
  static const char between[] = " \t\r\n\v\f,[]";
  if (text->size == 0) return STATUS_OK;
  const char *at = text->data, *end = text->data + text->size;
  while (at < end) {
    if (memchr(between, *at, sizeof between - 1)) {
      at++;
      continue;
    }
    const char *start = at;
    int64_t value = 0;
    for (; at < end && *at >= '0' && *at <= '9' && value <= INT32_MAX; at++) value = value * 10 + (*at - '0');
    bool whole = at > start && (at == end || memchr(between, *at, sizeof between - 1));
    if (!whole || value > INT32_MAX) {
      int shown = (int)(end - start < 16 ? end - start : 16);
      return error_set(err, STATUS_USAGE,
                       "%s: token %zu, at byte %td, is \"%.*s\", expected an id (a number)", name, ids->count,
                       start - text->data, shown, start);
    }
    TRY(id_list_append(ids, (int32_t)value, err));
  }
  return STATUS_OK;
}

Status ids_check(const Model *model, const int32_t *ids, size_t n, const char *source, IdSource from,
                 Error *err) {
  const int n_known = model->config.vocab_size;
  size_t i = 0;
  while (i < n && ids[i] >= 0 && ids[i] < n_known) i++;
  if (i == n) return STATUS_OK;
  return error_set(err, from == IDS_GIVEN ? STATUS_USAGE : STATUS_MODEL,
                   "%s: token %zu has id %d, expected one below %d, the model's vocabulary%s", source, i,
                   (int)ids[i], n_known, from == IDS_GIVEN ? "" : ": is this the model's own tokenizer?");
}

bool terminal_takes_escapes(int descriptor) {
  const char *terminal = getenv("TERM");
  return isatty(descriptor) && terminal && *terminal && strcmp(terminal, "dumb") != 0;
}

Status append_escaped(Buffer *out, const char *text, Error *err) {
  Buffer quoted = {0};
  Status status = json_write_string(&quoted, text, strlen(text), err);
  if (status == STATUS_OK) status = buffer_append(out, quoted.data + 1, quoted.size - 2, err);
  buffer_release(&quoted);
  return status;
}

/* --- lines */

static Status take_lines(FILE *input, const char *name, LineSink take, void *user, const char *what,
                         Error *err) {
  Buffer line = {0};
  size_t n_lines = 0, n_failed = 0, first_failed = 0;
  Status status;
  for (;;) {
    bool found, failed = false;
    status = stream_read_line(input, name, TEXT_LIMIT, &line, &found, err);
    if (status != STATUS_OK || !found) break;
    status = take(user, name, ++n_lines, &line, &failed, err);
    if (status != STATUS_OK) break;
    if (failed && n_failed++ == 0) first_failed = n_lines;
  }
  buffer_release(&line);
  if (status == STATUS_OK && n_failed > 0)
    return error_set(err, STATUS_FAILED, "%s: %zu of %zu lines %s, line %zu first", name, n_failed, n_lines,
                     what, first_failed);
  return status;
}

Status lines_take(const char *path, LineSink take, void *user, const char *what, Error *err) {
  if (!path || strcmp(path, "-") == 0) return take_lines(stdin, "standard input", take, user, what, err);
  FILE *input = fopen(path, "re");
  if (!input) return error_set(err, STATUS_FAILED, "cannot open %s: %s", path, strerror(errno));
  Status status = take_lines(input, path, take, user, what, err);
  fclose(input);
  return status;
}
