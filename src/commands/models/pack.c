/* pack.c - `auk pack MODEL -o FILE`: writes a checkpoint's weights as one packed file, and copies its
 * companions. Called by: main.c through the table of commands.c. All files appear complete and together, or
 * none does. Standard error reports what would keep the packed file from running like the checkpoint. */
#include <stdint.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "commands/commands.h"
#include "commands/common.h"
#include "commands/model_flags.h"
#include "commands/models/companions.h"
#include "commands/models/decimal.h"
#include "commands/threads.h"
#include "commands/written_file.h"

typedef struct {
  ModelFlags model;
  const char *output;
} Options;

static const Flag flags[] = {
    FLAG_MODEL("-m, --model", Options, model.path, model.usual, "the checkpoint, in place of the operand"),
    FLAG_FILE("-o, --output", "FILE", Options, output, "the file to write"),
};
static const FlagGroup groups[] = {FLAG_GROUP("Pack", flags)};

/* Opens the packed file as an answer would. Reports a refusal, and a RoPE base or norm epsilon that differs
 * from the checkpoint's. */
static void report_problems(const Model *model, const char *output) {
  Model *packed = NULL;
  Error err = {{0}};
  Status status = model_open(output, NULL, &packed, &err);
  if (status == STATUS_OK) status = model_check_known(packed, &err);
  if (status == STATUS_OK) status = model_tokenizer_check(packed, output, &err);
  if (status != STATUS_OK) {
    print_note("%s is written, but will not run where it lies: %s", output, err.text);
  } else if (model_check_known(model, &err) == STATUS_OK &&
             (packed->config.rope.theta != model->config.rope.theta ||
              packed->config.norm_eps != model->config.norm_eps)) {
    print_note(
        "%s will run with rope_theta %s and epsilon %s, of the config.json beside it; %s has %s and %s",
        output, decimal(packed->config.rope.theta).text, decimal(packed->config.norm_eps).text,
        model_path(model), decimal(model->config.rope.theta).text, decimal(model->config.norm_eps).text);
  }
  model_close(packed);
}

/* For an output without a folder (a pipe or redirection), reports the companions that it needs. */
static Status report_companions(const Model *model, const char *output, Error *err) {
  OWNED(buffer_release) Buffer names = {0};
  OWNED(mem_release) char *directory = model_directory(model, err);
  if (!directory) return STATUS_FAILED;
  TRY(companions_list(model, &names, err));
  if (names.size)
    print_note("%s: what is packed runs only with these beside it, from %s: %.*s", output, directory,
               (int)names.size, names.data);
  return STATUS_OK;
}

/* Reports what was written: the packed file and, if `beside`, the companions beside it. */
static Status report_written(const Model *model, const char *output, bool beside, Error *err) {
  OWNED(buffer_release) Buffer names = {0};
  struct stat info;
  if (beside) TRY(companions_list(model, &names, err));
  if (beside && stat(output, &info) == 0)
    print_note("%s is written: %jd bytes%s%.*s", output, (intmax_t)info.st_size,
               names.size ? "; it runs with these beside it: " : "", (int)names.size,
               names.size ? names.data : "");
  else
    print_note("%s is written", output);
  return STATUS_OK;
}

/* Writes the packed file under a temporary name. Before the first byte is written, refuses companions in the
 * folder that differ from the model's, and a model that an ak48 file cannot hold. */
static Status write_all(Model *model, const char *output, AtomicFile *file, Companions *copies, Error *err) {
  const volatile int *interrupted = interrupt_catch();
  if (atomic_file_is_new(file)) TRY(companions_copy(model, output, copies, err));
  int n_threads;
  TRY(threads_choose(0, &n_threads, err));
  TRY(model_prepare(model, n_threads, err));
  TRY(ak48_check_fits(model, interrupted, err));
  TRY(ak48_write(model, file, interrupted, err));
  return atomic_file_sync(file, err);
}

/* Renames the companions and then the packed file, which thus never appears without them. All data are on
 * disk before the first rename. */
static Status pack(Model *model, const char *output, bool *beside, Error *err) {
  OWNED(atomic_file_abort) AtomicFile file = {0};
  OWNED(companions_undo) Companions copies = {0};
  TRY(atomic_file_open(output, &file, err));
  *beside = atomic_file_is_new(&file);
  TRY(write_all(model, output, &file, &copies, err));
  TRY(companions_commit(model, &copies, err));
  TRY(atomic_file_commit(&file, err));
  companions_release(&copies);
  return STATUS_OK;
}

static Status run(CommandCall *call, Error *err) {
  const Options *options = call->options;
  const char *output = options->output;
  if (!output) return error_set(err, STATUS_USAGE, "no file to write: give -o FILE");
  TRY(file_name_check("-o", output, err));
  const WrittenFile written = written_file("-o", output);
  OWNED(model_place_release) ModelPlace place = {0};
  OWNED(model_release) Model *model = NULL;
  bool beside;
  interrupt_catch();
  TRY(model_place_find(&options->model, &place, err));
  TRY(model_place_open(&place, &options->model, &model, err));
  TRY(written_file_is_not_model(&written, model, err));
  TRY(pack(model, output, &beside, err));
  if (beside)
    report_problems(model, output);
  else
    TRY(report_companions(model, output, err));
  return report_written(model, output, beside, err);
}

const Interface pack_interface = {
    .usage = "auk pack MODEL -o FOLDER/FILE",
    .about =
        "Writes the weights of an AWQ checkpoint as one packed file (ak48), and copies beside it what it\n"
        "needs to run: config.json, generation_config.json, the tokenizer and the chat template. Of these\n"
        "nothing that is there already is replaced: the same files are fine, others refuse the packing.\n"
        "What a packed file cannot hold is refused by name: biases, dense layers, rope scaling, sliding\n"
        "windows, numbers that fp16 cannot hold exactly.",
    .examples = "mkdir qwen3-8b\n"
                "auk pack Qwen/Qwen3-8B-AWQ -o qwen3-8b/model.ak48",
    INTERFACE_GROUPS(groups),
    INTERFACE_MODEL_OPERAND,
    .options_size = sizeof(Options),
    .run = run,
};
