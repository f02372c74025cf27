/* quantize.c - `auk quantize MODEL -o DIR`: writes a checkpoint with 4-bit weights. Called by: main.c through
 * the table of commands.c. Calls: src/quantize, the tokenizer (texts for the statistics). Standard output
 * gets a report, standard error progress with an estimate. */
#include <limits.h>
#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/output.h"
#include "commands/commands.h"
#include "commands/common.h"
#include "commands/input_text.h"
#include "commands/model_flags.h"
#include "commands/threads.h"
#include "quantize/default_text.h"
#include "quantize/quantize.h"

enum { LISTED = 10 };

typedef enum { METHOD_FULL, METHOD_GPTQ, METHOD_AWQ, METHOD_SEARCH, METHOD_PLAIN } Method;

typedef struct {
  ModelFlags model;
  const char *output, *keep;
  int bits, group, format, method; /* indices of words */
  StringList calibration;
  int samples, length, offset, threads, refinements;
  double drift;
  bool verbose;
} Options;
static const Options defaults = {.samples = 64, .length = 512, .refinements = 2, .drift = 0.5};

static const int groups_of[] = {128, 64, 32, 16};

static const Flag flags[] = {
    FLAG_MODEL("-m, --model", Options, model.path, model.usual, "the checkpoint, in place of the operand"),
    FLAG_DIRECTORY("-o, --output", "DIR", Options, output,
                   "the directory to write; one that a call left unfinished is finished"),
    FLAG_CHOICE("--bits", "4", Options, bits, "bits of a weight"),
    FLAG_CHOICE("--group", "128|64|32|16", Options, group,
                "inputs that share a scale and a zero point (default 128: 4.16 bits a weight; 64: 4.31; 32: "
                "4.63)"),
    FLAG_CHOICE("--format", "awq|compressed-tensors", Options, format,
                "the layout: AutoAWQ's gemm (default), or pack-quantized"),
    FLAG_STRING("--keep", "REGEX", Options, keep,
                "leaves matrices whose names match as they are: 'layers\\.0\\.'"),
};
static const Flag calibration_flags[] = {
    FLAG_FILES(
        "--calibration", "FILE", Options, calibration,
        "a text like those that the model will meet, in place of a mixed one that auk has; may be repeated"),
    FLAG_INT("--samples", "N", Options, samples, 1, 1 << 20, "parts of the texts (default 64)"),
    FLAG_INT("--length", "N", Options, length, 16, 1 << 20, "tokens of a part (default 512)"),
    FLAG_INT("--offset", "N", Options, offset, 0, INT_MAX, "takes other parts of the texts (default 0)"),
    FLAG_CHOICE(
        "--method", "full|gptq|awq|search|plain", Options, method,
        "full: scales and compensation; gptq: no scales; awq: no compensation; search: neither; plain: "
        "rounding between the ends of a group"),
    FLAG_INT("--refine", "N", Options, refinements, 0, 1000,
             "passes over codes and scales after the rounding (default 2; only with full and gptq)"),
    FLAG_DOUBLE("--drift", "X", Options, drift, 0, 1,
                "share of the residual stream's change by earlier rounding that later weights make up for "
                "(default 0.5; only with full and gptq)"),
    FLAG_INT("-t, --threads", "N", Options, threads, 0, 1024, "CPU threads (default 0: all cores)"),
    FLAG_SWITCH("--verbose", Options, verbose, "reports every matrix"),
};
static const FlagGroup groups[] = {FLAG_GROUP("Quantize", flags),
                                   FLAG_GROUP("Calibration", calibration_flags)};

/* --- texts */

/* Appends n parts of a text's tokens, equally far apart. first: a token that each part begins with, -1: none.
 * */
static Status take_parts(const Options *o, const IdList *text, int32_t first, int n, const char *name,
                         IdList *ids, Error *err) {
  const size_t begins = first >= 0, own = (size_t)o->length - begins;
  if (text->count < own)
    return error_set(err, STATUS_USAGE, "%s has %zu tokens, fewer than a part of --length %d", name,
                     text->count, o->length);
  const double room = (double)(text->count - own),
               shift = (double)((unsigned)o->offset * 2654435769u) / 0x1p32;
  for (int i = 0; i < n; i++) {
    const size_t at = (size_t)(room * (i + shift) / n);
    if (begins) TRY(id_list_append(ids, first, err));
    for (size_t k = 0; k < own; k++) TRY(id_list_append(ids, text->ids[at + k], err));
  }
  return STATUS_OK;
}

/* Appends n parts of a text. */
static Status encode(const Options *o, const Tokenizer *tokenizer, const char *name, const char *text,
                     size_t size, int n, IdList *ids, Error *err) {
  IdList plain = {0}, begun = {0};
  Status status = tokenizer_encode(tokenizer, text, size, (EncodeOptions){0}, &plain, err);
  if (status == STATUS_OK)
    status = tokenizer_encode(tokenizer, "a", 1, (EncodeOptions){.add_special = true}, &begun, err);
  const bool begins = begun.count > 1 && tokenizer_is_special(tokenizer, begun.ids[0]);
  if (status == STATUS_OK) status = take_parts(o, &plain, begins ? begun.ids[0] : -1, n, name, ids, err);
  id_list_release(&plain);
  id_list_release(&begun);
  return status;
}

static Status encode_file(const Options *o, const Tokenizer *tokenizer, const char *path, int n, IdList *ids,
                          Error *err) {
  Buffer text = {0};
  Status status = text_read_with_nul(path, &text, err);
  if (status == STATUS_OK)
    status = encode(o, tokenizer, text_name(path), text.data ? text.data : "", text.size, n, ids, err);
  buffer_release(&text);
  return status;
}

static Status read_texts(const Options *o, const Model *model, const char *path, IdList *ids, Error *err) {
  Tokenizer *tokenizer = NULL;
  const int n = (int)o->calibration.count;
  TRY(model_tokenizer_open(model, path, &tokenizer, err));
  tokenizer_heed(tokenizer, interrupt_catch());
  Status status = STATUS_OK;
  for (int i = 0; status == STATUS_OK && i < n; i++)
    status = encode_file(o, tokenizer, o->calibration.items[i], o->samples * (i + 1) / n - o->samples * i / n,
                         ids, err);
  if (status == STATUS_OK && n == 0)
    status = encode(o, tokenizer, "the default text", default_text, default_text_size, o->samples, ids, err);
  tokenizer_close(tokenizer);
  return status == STATUS_OK ? ids_check(model, ids->ids, ids->count, "--calibration", IDS_ENCODED, err)
                             : status;
}

/* --- --keep */

static Status compile_keep(const char *pattern, pcre2_code **code, Error *err) {
  int error;
  PCRE2_SIZE offset;
  char why[128];
  if (!pattern) return STATUS_OK;
  *code = pcre2_compile((PCRE2_SPTR)pattern, PCRE2_ZERO_TERMINATED, PCRE2_UTF, &error, &offset, NULL);
  if (*code) return STATUS_OK;
  pcre2_get_error_message(error, (PCRE2_UCHAR *)why, sizeof why);
  return error_set(err, STATUS_USAGE, "--keep \"%.80s\" is no regular expression: %s at offset %zu", pattern,
                   why, (size_t)offset);
}

static bool is_kept(void *user, const char *name) {
  pcre2_match_data *data = pcre2_match_data_create(1, NULL);
  const int found = data ? pcre2_match(user, (PCRE2_SPTR)name, PCRE2_ZERO_TERMINATED, 0, 0, data, NULL) : -1;
  pcre2_match_data_free(data);
  return found >= 0;
}

/* --- progress and report */

static void show_progress(void *user, int layer, int n_layers, double seconds_left) {
  (void)user;
  if (!progress_is_terminal()) return;
  progress_clear();
  if (layer == n_layers) return;
  fprintf(stderr, "\rlayer %d of %d", layer + 1, n_layers);
  if (seconds_left >= 0)
    fprintf(stderr, ", about %d:%02d left", (int)seconds_left / 60, (int)seconds_left % 60);
  fflush(stderr);
}

static int compare_after(const void *a, const void *b) {
  const MatrixReport *const *x = a, *const *y = b;
  return ((*x)->after < (*y)->after) - ((*x)->after > (*y)->after);
}

static int compare_seconds(const void *a, const void *b) {
  const MatrixReport *const *x = a, *const *y = b;
  return ((*x)->seconds < (*y)->seconds) - ((*x)->seconds > (*y)->seconds);
}

static Status print_rows(const char *title, const MatrixReport *const *rows, size_t n, Error *err) {
  TRY(output_printf(err, "%-52s %10s %10s %8s\n", title, "plain", "error", "seconds"));
  for (size_t i = 0; i < n; i++)
    TRY(output_printf(err, "  %-50s %10.6f %10.6f %8.2f\n", rows[i]->name, rows[i]->before, rows[i]->after,
                      rows[i]->seconds));
  return STATUS_OK;
}

static Status print_tables(const Options *o, const QuantizeReport *report, const MatrixReport **rows,
                           size_t n, Error *err) {
  const size_t listed = n < LISTED ? n : LISTED;
  if (o->verbose) return print_rows("matrix", rows, n, err);
  qsort(rows, n, sizeof *rows, compare_after);
  TRY(print_rows("largest errors (shares of the outputs' mean square)", rows, listed, err));
  if (report->resumed == 0) {
    qsort(rows, n, sizeof *rows, compare_seconds);
    TRY(print_rows("slowest", rows, listed, err));
  }
  return STATUS_OK;
}

static Status print_report(const Options *o, const QuantizeReport *report, Error *err) {
  size_t n = 0, weights = 0, kept = 0;
  double before = 0, after = 0;
  const MatrixReport **rows = mem_alloc(report->n, sizeof *rows, "a report", err);
  if (!rows) return STATUS_FAILED;
  for (size_t i = 0; i < report->n; i++) {
    const MatrixReport *item = &report->items[i];
    kept += item->kept;
    if (item->kept) continue;
    rows[n++] = item;
    weights += item->weights;
    before += item->before, after += item->after;
  }
  Status status = print_tables(o, report, rows, n, err);
  free(rows);
  TRY(status);
  const double bits = 4 + 20.0 / groups_of[o->group];
  return output_printf(
      err,
      "%zu matrices of %.1f million weights in %.4g bits each, %zu matrices of layers as they "
      "were; mean error %.6f, of plain rounding %.6f; %.1f MB, was %.1f MB\n",
      n, (double)weights / 1e6, bits, kept, n ? after / (double)n : 0, n ? before / (double)n : 0,
      (double)report->bytes / 1e6, (double)report->source_bytes / 1e6);
}

/* --- the command */

static Recipe recipe_of(const Options *o) {
  const Method method = (Method)o->method;
  Recipe recipe = usual_recipe;
  recipe.scales = method == METHOD_FULL || method == METHOD_AWQ;
  recipe.compensates = method == METHOD_FULL || method == METHOD_GPTQ;
  recipe.refinements = recipe.compensates ? o->refinements : 0;
  recipe.drift = recipe.compensates ? o->drift : 0;
  if (method == METHOD_PLAIN) recipe.search = plain_rounding;
  return recipe;
}

static Status write_quantised(const Options *o, const ModelPlace *place, Model *model, pcre2_code *keep,
                              IdList *ids, Error *err) {
  QuantizeReport report = {0};
  QuantizeOptions options = {.output = o->output,
                             .layout = (QuantLayout)o->format,
                             .group = groups_of[o->group],
                             .recipe = recipe_of(o),
                             .n_samples = o->samples,
                             .length = o->length,
                             .keeps = keep ? is_kept : NULL,
                             .keeps_user = keep,
                             .keeps_text = o->keep,
                             .interrupted = interrupt_catch(),
                             .progress = show_progress};
  TRY(quantize_check(&cpu_backend, model, &options, err));
  TRY(threads_choose(o->threads, &options.n_threads, err));
  TRY(read_texts(o, model, place->path, ids, err));
  options.ids = ids->ids;
  Status status = quantize(&cpu_backend, model, &options, &report, err);
  progress_clear();
  if (report.resumed && status == STATUS_OK)
    print_note("%d layers were in %s already", report.resumed, o->output);
  if (status == STATUS_OK) status = print_report(o, &report, err);
  quantize_report_release(&report);
  return status;
}

static Status run(CommandCall *call, Error *err) {
  const Options *o = call->options;
  if (!o->output) return error_set(err, STATUS_USAGE, "no directory to write: give -o DIR");
  TRY(file_name_check("-o", o->output, err));
  pcre2_code *keep = NULL;
  TRY(compile_keep(o->keep, &keep, err));
  interrupt_catch();
  ModelPlace place = {0};
  Model *model = NULL;
  IdList ids = {0};
  Status status = model_place_find(&o->model, &place, err);
  if (status == STATUS_OK) status = model_place_open_known(&place, &o->model, &model, err);
  if (status == STATUS_OK) status = write_quantised(o, &place, model, keep, &ids, err);
  id_list_release(&ids);
  model_close(model);
  model_place_release(&place);
  pcre2_code_free(keep);
  return status;
}

const Interface quantize_interface = {
    .usage = "auk quantize MODEL -o DIR [FLAGS]",
    .about = "Writes a checkpoint whose large matrices have 4 bits a weight, from one in 16 or 32 bits or "
             "FP8: the\n"
             "weights, config.json, the tokenizer and the licence. auk, vLLM and transformers load it. "
             "Weights are\n"
             "scaled and rounded so that the outputs for the calibration texts change least. Embeddings, "
             "lm_head,\n"
             "norms, routers and small gates stay as they are. One layer at a time is in memory. After an\n"
             "interruption the same call goes on where it was.",
    .examples = "auk quantize ~/my-finetune -o my-finetune-awq --calibration notes.txt\n"
                "auk quantize MODEL -o DIR --calibration a.txt --calibration b.py --group 32",
    INTERFACE_GROUPS(groups),
    INTERFACE_MODEL_OPERAND,
    .options_size = sizeof(Options),
    .defaults = &defaults,
    .run = run,
};
