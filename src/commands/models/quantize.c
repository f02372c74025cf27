/* quantize.c - `auk quantize MODEL -o DIR`: writes a checkpoint with 4-bit weights. Called by: main.c
 * through the table of commands.c. Standard output gets a report, standard error progress with an
 * estimate. */
#include <limits.h>
#include <math.h>
#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/output.h"
#include "base/utf8.h"
#include "commands/commands.h"
#include "commands/common.h"
#include "commands/device.h"
#include "commands/input_text.h"
#include "commands/measure/against.h"
#include "commands/model_flags.h"
#include "quantize/default_text.h"
#include "quantize/quantize.h"
#include "tokenizer/chat/chat.h"

enum { LISTED = 10, CHECKED_TOKENS = 8192 };
/* Every fourth part of the default text is a conversation. On SmolLM2-135M-Instruct (32 parts of 256
 * tokens, groups of 64) that lowers the KL on 4,281 tokens of chats from 0.136 to 0.120, and moves it by 0.2%
 * on prose and code. */
enum { CONVERSATION = 4 };

typedef enum { METHOD_FULL, METHOD_GPTQ, METHOD_AWQ, METHOD_SEARCH, METHOD_PLAIN } Method;

typedef struct {
  ModelFlags model;
  const char *output, *keep;
  int bits, group, format, head, method; /* indices into the flags' words */
  StringList calibration;
  int samples, length, offset, refinements;
  double drift;
  bool verbose, check;
  DeviceFlags device;
} Options;
static const Options defaults = {.samples = 128, .length = 512, .refinements = 2, .drift = 0.5};

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
    FLAG_CHOICE("--head", "16|8", Options, head,
                "bits of lm_head (default 16, as it is; 8: with --format compressed-tensors)"),
    FLAG_STRING("--keep", "REGEX", Options, keep,
                "leaves matrices whose names match as they are: 'layers\\.0\\.'"),
};
static const Flag calibration_flags[] = {
    FLAG_FILES("--calibration", "FILE", Options, calibration,
               "a text like those that the model will meet, in place of a mixed one that auk has, a quarter "
               "of which become chats; may be repeated"),
    FLAG_INT("--samples", "N", Options, samples, 1, 1 << 20, "parts of the texts (default 128)"),
    FLAG_INT("--length", "N", Options, length, 16, 1 << 20, "tokens of a part (default 512)"),
    FLAG_INT("--offset", "N", Options, offset, 0, INT_MAX, "takes other parts of the texts (default 0)"),
    FLAG_CHOICE(
        "--method", "full|gptq|awq|search|plain", Options, method,
        "full: scales and compensation; gptq: no scales; awq: no compensation; search: neither; plain: "
        "rounding between the ends of a group"),
    FLAG_INT("--refine", "N", Options, refinements, 0, 1000,
             "passes over codes and scales after the rounding (default 2; only with full and gptq)"),
    FLAG_DOUBLE(
        "--drift", "X", Options, drift, 0, 1,
        "share of what earlier rounding changed that later weights make up for (default 0.5; only with "
        "full and gptq)"),
    FLAG_SWITCH("--check", Options, check,
                "compares the result with the original over at most 8,192 tokens between those parts, as auk "
                "eval --against does"),
    FLAG_SWITCH("--verbose", Options, verbose, "reports every matrix"),
};
static const Flag where_flags[] = {
    FLAG_CHOICE("--device", DEVICE_WORDS, Options, device.device, "where to compute (default auto)"),
    FLAG_STRING("--gpu", "N", Options, device.gpu, "which GPU (default 0)"),
    FLAG_INT("-t, --threads", "N", Options, device.threads, 0, 1024, "CPU threads (default 0: all cores)"),
};
static const FlagGroup groups[] = {FLAG_GROUP("Quantize", flags),
                                   FLAG_GROUP("Calibration", calibration_flags),
                                   FLAG_GROUP("Device", where_flags)};

/* --- texts */

/* Tokens of parts of the texts: for the statistics, and for --check. */
typedef struct {
  IdList ids, held_out; /* [n * length] */
  int n_conversations;  /* parts in `ids` that are conversations */
} Parts;

/* The tokenizer, and how parts of texts become tokens. */
typedef struct {
  const Tokenizer *tokenizer;
  const Chat *chat; /* NULL: no part is a conversation */
  int32_t first;    /* the token (BOS) that parts begin with unless they are conversations; -1: none */
} Writer;

static void parts_release(Parts *parts) {
  id_list_release(&parts->ids);
  id_list_release(&parts->held_out);
}

/* Where n parts of a text begin. There are n_places evenly spaced positions, shifted by `shift` (0 to 1)
 * times their distance; part i begins at position i * n_places / n, rounded down. */
typedef struct {
  int n, n_places;
  double shift;
} Placing;

/* The number of bytes of a text that are the user's turn: its first line, else its first sentence. The rest
 * is the model's turn. 0: the text has neither. */
static size_t first_turn(const char *text, size_t size) {
  const char *end = memmem(text, size, "\n", 1);
  if (!end) end = memmem(text, size, ". ", 2);
  return end ? (size_t)(end + 1 - text) : 0;
}

/* Makes a conversation of a part of a text, ids[o->length], by the model's chat template with a fixed time.
 * Appends the conversation's first o->length tokens. *fits is false, and nothing appended, if the part cannot
 * be divided into turns, or if the template refuses them, is faulty or makes too few tokens. */
static Status take_conversation(const Options *o, const Writer *w, const int32_t *ids, IdList *to, bool *fits,
                                Error *err) {
  const size_t length = (size_t)o->length;
  OWNED(buffer_release) Buffer text = {0};
  OWNED(trusted_text_release) TrustedText rendered = {0};
  OWNED(id_list_release) IdList made = {0};
  *fits = false;
  TRY(tokenizer_decode(w->tokenizer, ids, length, true, &text, err));
  size_t begin = 0, turn;
  while (begin < text.size && (text.data[begin] & 0xc0) == 0x80) begin++; /* rest of a cut character */
  const char *said = text.data + begin;
  const size_t size = utf8_valid_prefix(said, text.size - begin);
  if ((turn = first_turn(said, size)) == 0) return STATUS_OK;
  const ChatMessage messages[] = {{.role = "user", .text = said, .size = turn},
                                  {.role = "assistant", .text = said + turn, .size = size - turn}};
  const Status status = chat_render(w->chat, messages, 2, (ChatOptions){.now = 1767225600}, &rendered, err);
  if (status == STATUS_USAGE || status == STATUS_MODEL)
    return STATUS_OK; /* the template's refusal or fault */
  TRY(status);
  TRY(chat_encode(w->tokenizer, &rendered, false, &made, err));
  *fits = made.count >= length;
  for (size_t k = 0; *fits && k < length; k++) TRY(id_list_append(to, made.ids[k], err));
  return STATUS_OK;
}

/* Appends parts; *n_conversations grows by those that are conversations. */
static Status take_parts(const Options *o, const IdList *text, const Writer *w, Placing p, IdList *ids,
                         int *n_conversations, Error *err) {
  const size_t begins = w->first >= 0, own = (size_t)o->length - begins;
  const double room = (double)(text->count - (size_t)o->length);
  for (int i = 0; i < p.n; i++) {
    const int place = (int)((long long)i * p.n_places / p.n);
    const size_t at = (size_t)(room * (place + p.shift) / p.n_places);
    bool talks = w->chat && i % CONVERSATION == CONVERSATION - 1;
    if (talks) TRY(take_conversation(o, w, text->ids + at, ids, &talks, err));
    *n_conversations += talks;
    if (talks) continue;
    if (begins) TRY(id_list_append(ids, w->first, err));
    for (size_t k = 0; k < own; k++) TRY(id_list_append(ids, text->ids[at + k], err));
  }
  return STATUS_OK;
}

/* Takes n parts of a text for the statistics, and n_held parts between them for --check. */
static Status take_text(const Options *o, const IdList *text, const Writer *w, int n, int n_held,
                        const char *name, Parts *parts, Error *err) {
  int others = 0;
  const double shift = (double)((unsigned)o->offset * 2654435769u) / 0x1p32;
  const size_t length = (size_t)o->length;
  if (text->count < length)
    return error_set(err, STATUS_USAGE, "%s has %zu tokens, fewer than a part of --length %d", name,
                     text->count, o->length);
  if (n_held > 0 && (text->count - length) / (2 * (size_t)n) < length)
    return error_set(err, STATUS_USAGE,
                     "--check: %s has %zu tokens, and %d parts leave none of %d between them for the check: "
                     "give a longer text, or fewer --samples",
                     name, text->count, n, o->length);
  TRY(take_parts(o, text, w, (Placing){n, n, shift}, &parts->ids, &parts->n_conversations, err));
  const double between = shift < 0.5 ? shift + 0.5 : shift - 0.5;
  return take_parts(o, text, w, (Placing){n_held, n, between}, &parts->held_out, &others, err);
}

/* Takes parts of text i of n: its share of --samples, and of the CHECKED_TOKENS of --check. */
static Status encode(const Options *o, const Writer *w, const char *name, const char *text, size_t size,
                     int i, int n, Parts *parts, Error *err) {
  OWNED(id_list_release) IdList plain = {0};
  const int own = o->samples * (i + 1) / n - o->samples * i / n;
  int held = 0;
  if (o->check) held = CHECKED_TOKENS / n / o->length;
  if (o->check && held == 0) held = 1;
  if (held > own) held = own;
  TRY(tokenizer_encode(w->tokenizer, text, size, (EncodeOptions){0}, &plain, err));
  return take_text(o, &plain, w, own, held, name, parts, err);
}

static Status encode_file(const Options *o, const Writer *w, int i, Parts *parts, Error *err) {
  OWNED(buffer_release) Buffer text = {0};
  const char *path = o->calibration.items[i];
  TRY(text_read_with_nul(path, &text, err));
  return encode(o, w, text_name(path), text.data ? text.data : "", text.size, i, (int)o->calibration.count,
                parts, err);
}

/* talks: parts may be conversations, if the model has a chat template that auk can read. */
static Status open_writer(const Model *model, bool talks, Writer *w, Chat **chat, Error *err) {
  OWNED(id_list_release) IdList begun = {0};
  OWNED(mem_release) char *directory = model_directory(model, err);
  if (!directory) return STATUS_FAILED;
  if (talks && chat_open(directory, NULL, w->tokenizer, chat, err) == STATUS_OK) w->chat = *chat;
  TRY(tokenizer_encode(w->tokenizer, "a", 1, (EncodeOptions){.add_special = true}, &begun, err));
  w->first = begun.count > 1 && tokenizer_is_special(w->tokenizer, begun.ids[0]) ? begun.ids[0] : -1;
  return STATUS_OK;
}

static Status encode_texts(const Options *o, const Model *model, const Tokenizer *tokenizer, Parts *parts,
                           Error *err) {
  Writer w = {.tokenizer = tokenizer};
  OWNED(chat_release) Chat *chat = NULL;
  const int n = (int)o->calibration.count;
  TRY(open_writer(model, n == 0, &w, &chat, err));
  for (int i = 0; i < n; i++) TRY(encode_file(o, &w, i, parts, err));
  return n ? STATUS_OK : encode(o, &w, "the default text", default_text, default_text_size, 0, 1, parts, err);
}

static Status read_texts(const Options *o, const Model *model, const char *path, Parts *parts, Error *err) {
  Tokenizer *tokenizer = NULL;
  TRY(model_tokenizer_open(model, path, &tokenizer, err));
  tokenizer_heed(tokenizer, interrupt_catch());
  Status status = encode_texts(o, model, tokenizer, parts, err);
  tokenizer_close(tokenizer);
  TRY(status);
  TRY(ids_check(model, parts->ids.ids, parts->ids.count, "--calibration", IDS_ENCODED, err));
  return ids_check(model, parts->held_out.ids, parts->held_out.count, "--calibration", IDS_ENCODED, err);
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
  const int left = (int)seconds_left;
  if (layer == n_layers)
    progress_clear();
  else if (seconds_left < 0)
    progress_show("layer %d of %d", layer + 1, n_layers);
  else
    progress_show("layer %d of %d, about %d:%02d left", layer + 1, n_layers, left / 60, left % 60);
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

static Status print_report(const Options *o, const QuantizeReport *report, const Parts *parts, Error *err) {
  size_t n = 0, weights = 0, kept = 0;
  double before = 0, after = 0;
  const MatrixReport **rows;
  TRY(NEW(rows, report->n, "a report", err));
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
      "were; mean error %.6f, of plain rounding %.6f; %.1f MB, was %.1f MB; %d of %d parts of the texts were "
      "conversations\n",
      n, (double)weights / 1e6, bits, kept, n ? after / (double)n : 0, n ? before / (double)n : 0,
      (double)report->bytes / 1e6, (double)report->source_bytes / 1e6, parts->n_conversations, o->samples);
}

/* --- --check */

typedef struct {
  Evaluated made;
  Against original;
  const volatile int *interrupted;
} Check;

static Status take_row(void *user, int row, const float *logits, Error *err) {
  Check *check = user;
  if (*check->interrupted) return error_set(err, STATUS_INTERRUPTED, "interrupted");
  return against_take(&check->original, row, logits, err);
}

static Status run_check(const Options *o, const char *original, const IdList *ids, Check *check, Error *err) {
  TRY(evaluated_open(o->output, &o->device, o->length, &check->made, err));
  TRY(against_open(original, &o->device, check->made.model, o->length, &check->original, err));
  for (size_t at = 0; at < ids->count; at += (size_t)o->length) {
    TRY(against_begin(&check->original, ids->ids + at, o->length, err));
    TRY(session_evaluate(check->made.session, ids->ids + at, o->length, take_row, check, err));
  }
  const Differences d = against_differences(&check->original);
  return output_printf(err,
                       "check of %zu tokens that no statistics are of: kl=%.6g kl_99=%.6g ppl=%.6g "
                       "original_ppl=%.6g same_top=%.4f\n",
                       ids->count, d.mean, d.most_of_99, exp(d.first_nll), exp(d.nll), d.same_top);
}

static Status check_result(const Options *o, const char *original, const IdList *ids, Error *err) {
  Check check = {.interrupted = interrupt_catch()};
  Status status = run_check(o, original, ids, &check, err);
  against_close(&check.original);
  evaluated_close(&check.made);
  return status;
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
                              Parts *parts, Error *err) {
  OWNED(quantize_report_release) QuantizeReport report = {0};
  QuantizeOptions options = {.output = o->output,
                             .layout = (QuantLayout)o->format,
                             .group = groups_of[o->group],
                             .head_bits = o->head ? 8 : 16,
                             .recipe = recipe_of(o),
                             .n_samples = o->samples,
                             .length = o->length,
                             .keeps = keep ? is_kept : NULL,
                             .keeps_user = keep,
                             .keeps_text = o->keep,
                             .interrupted = interrupt_catch(),
                             .progress = terminal_takes_escapes(STDERR_FILENO) ? show_progress : NULL};
  Device device;
  TRY(quantize_check(model, &options, err));
  TRY(device_choose(&o->device, &device, err));
  options.quantizer = device.backend->quantizer ? device.backend->quantizer : &cpu_quantizer;
  options.device = device.options;
  TRY(read_texts(o, model, place->path, parts, err));
  options.ids = parts->ids.ids;
  const Status status = quantize(&cpu_backend, model, &options, &report, err);
  if (options.progress) progress_clear();
  TRY(status);
  if (report.resumed) print_note("%d layers were in %s already", report.resumed, o->output);
  TRY(print_report(o, &report, parts, err));
  return o->check ? check_result(o, place->path, &parts->held_out, err) : STATUS_OK;
}

RELEASE_BY(keep_release, pcre2_code, pcre2_code_free)

static Status run(CommandCall *call, Error *err) {
  const Options *o = call->options;
  if (!o->output) return error_set(err, STATUS_USAGE, "no directory to write: give -o DIR");
  TRY(file_name_check("-o", o->output, err));
  OWNED(keep_release) pcre2_code *keep = NULL;
  OWNED(model_place_release) ModelPlace place = {0};
  OWNED(model_release) Model *model = NULL;
  OWNED(parts_release) Parts parts = {0};
  TRY(compile_keep(o->keep, &keep, err));
  interrupt_catch();
  TRY(model_place_find(&o->model, &place, err));
  TRY(model_place_open_known(&place, &o->model, &model, err));
  return write_quantised(o, &place, model, keep, &parts, err);
}

const Interface quantize_interface = {
    .usage = "auk quantize MODEL -o DIR [FLAGS]",
    .about =
        "Writes a checkpoint whose large matrices have 4 bits a weight, from one in 16 or 32 bits or "
        "FP8: the\n"
        "weights, config.json, the tokenizer and the licence. auk and vLLM load it; so does "
        "transformers, of\n"
        "compressed-tensors with dequantize=True, if the model has no experts and is not GPT-2. Weights are\n"
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
