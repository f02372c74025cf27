/* pack.c - `auk pack MODEL -o FILE`: a checkpoint as one packed file.
 *
 * Called by: main.c.   Calls: model/model.h.
 * The file appears whole or not at all. What its header cannot hold and this program would not guess is
 * said on standard error. */
#include <stdint.h>
#include <sys/stat.h>

#include "base/output.h"
#include "commands/commands.h"
#include "commands/common.h"
#include "commands/model_flags.h"
#include "commands/models/decimal.h"
#include "commands/threads.h"

typedef struct {
  ModelFlags model;
  const char *output;
  bool verbose, helped;
} Options;

static const Flag flags[] = {
    FLAG_MODEL("-m, --model", Options, model.path, "the checkpoint, in place of the operand"),
    FLAG_FILE("-o, --output", "FILE", Options, output, "the file to write"),
    FLAG_SWITCH("-v, --verbose", Options, verbose, "say what was written, also where that is no terminal"),
};
static const FlagGroup groups[] = {FLAG_GROUP("Pack", flags)};

const Interface pack_interface = {
    .usage = "auk pack MODEL -o FILE",
    .about = "Writes an AWQ checkpoint as one packed file (ak48). What such a file cannot hold is refused by "
             "name:\n"
             "biases, dense layers, rope scaling, sliding windows, numbers that fp16 cannot hold exactly.",
    .examples = "auk pack Qwen/Qwen3-8B-AWQ -o qwen3-8b.ak48",
    .groups = groups,
    .n_groups = sizeof groups / sizeof *groups,
    .max_operands = 1,
    .operands = VALUE_MODEL,
};

static Status parse(int argc, char **argv, Options *options, Error *err) {
  const char *operand = NULL;
  size_t n_operands;
  TRY(flags_parse(&pack_interface, options, argc, argv, &operand, &n_operands, &options->helped, err));
  if (options->helped) return STATUS_OK;
  TRY(model_flags_take_operand(&options->model, operand, err));
  if (!options->output) return error_set(err, STATUS_USAGE, "no file to write: give -o FILE");
  return file_name_check("-o", options->output, err);
}

/* The header has neither theta nor epsilon: whether the file, opened where it now lies, has the same. */
static void tell_what_is_lost(const Model *model, const char *output) {
  Model *packed = NULL;
  Error err = {{0}};
  if (model_open(output, NULL, &packed, &err) != STATUS_OK) {
    print_note("%s is written, but cannot be opened where it lies: %s", output, err.text);
  } else if (packed->config.rope.theta != model->config.rope.theta ||
             packed->config.norm_eps != model->config.norm_eps) {
    print_note("%s does not hold rope_theta and epsilon: put config.json beside it, or run it with "
               "--rope-theta %s --norm-eps %s",
               output, decimal(model->config.rope.theta).text, decimal(model->config.norm_eps).text);
  }
  model_close(packed);
}

static Status run(const Options *options, Model **model, Error *err) {
  const volatile int *interrupted = interrupt_catch();
  TRY(model_flags_open(&options->model, model, err));
  int n_threads;
  TRY(threads_choose(0, &n_threads, err));
  TRY(model_prepare(*model, n_threads, err));
  TRY(ak48_write(*model, options->output, interrupted, err));
  struct stat info;
  bool regular = stat(options->output, &info) == 0 && S_ISREG(info.st_mode); /* not /dev/stdout */
  if (regular) tell_what_is_lost(*model, options->output);
  if (!options->verbose && !progress_is_terminal()) return STATUS_OK;
  if (regular)
    print_note("%s is written: %jd bytes", options->output, (intmax_t)info.st_size);
  else
    print_note("%s is written", options->output);
  return STATUS_OK;
}

int command_pack(int argc, char **argv) {
  Options options = {0};
  Model *model = NULL;
  Error err = {{0}};
  Status status = parse(argc, argv, &options, &err);
  if (status == STATUS_OK && !options.helped) status = run(&options, &model, &err);
  model_close(model);
  return command_finish(status, &err);
}
