/* eval.c - `auk eval`: the logits and perplexity of given tokens.
 * Always true: logits are written as they are computed, never all in memory; the file appears complete or not
 *              at all. */
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/output.h"
#include "commands/commands.h"
#include "commands/common.h"
#include "commands/device.h"
#include "commands/input_text.h"
#include "commands/measure/against.h"
#include "commands/measure/npy.h"
#include "commands/model_flags.h"
#include "commands/written_file.h"
#include "engine/session.h"
#include "model/identity.h"

typedef struct {
  ModelFlags model;
  DeviceFlags device;
  const char *ids_file, *text_file, *logits_out, *against;
  int window, chunk, max_tokens; /* 0: one window; the device's default; all tokens */
  bool parse_special, json;
} Options;

typedef struct {
  const Options *options;
  ModelPlace place;
  Model *model;
  IdList ids;
  Device device;
  Session *session;
  NpyFile npy;
  Against against; /* with --against */
  const volatile int *interrupted;
  bool shows_progress;

  size_t window_start; /* start of the current window, in ids */
  int window_size;
  size_t n_scored;
  double nll; /* sum of -ln p over the scored tokens */
} Eval;

/* --- the tokens */

static Status encode_text(Eval *eval, const Buffer *text, Error *err) {
  OWNED(tokenizer_release) Tokenizer *tokenizer = NULL;
  TRY(model_tokenizer_open(eval->model, eval->place.path, &tokenizer, err));
  tokenizer_heed(tokenizer, eval->interrupted);
  const EncodeOptions options = {.add_special = true, .parse_special = eval->options->parse_special};
  return tokenizer_encode(tokenizer, text->data ? text->data : "", text->size, options, &eval->ids, err);
}

static Status read_ids(Eval *eval, Error *err) {
  const Options *o = eval->options;
  const char *path = o->ids_file ? o->ids_file : o->text_file, *name = text_name(path);
  OWNED(buffer_release) Buffer text = {0};
  TRY(text_read_with_nul(path, &text, err));
  TRY(o->ids_file ? ids_parse(name, &text, &eval->ids, err) : encode_text(eval, &text, err));
  if (eval->ids.count == 0) return error_set(err, STATUS_USAGE, "%s: no tokens", name);
  if (o->max_tokens && eval->ids.count > (size_t)o->max_tokens) eval->ids.count = (size_t)o->max_tokens;
  return ids_check(eval->model, eval->ids.ids, eval->ids.count, name, o->ids_file ? IDS_GIVEN : IDS_ENCODED,
                   err);
}

/* --- their logits */

static Status take_logits(void *user, int row, const float *logits, Error *err) {
  Eval *eval = user;
  if (*eval->interrupted) return error_set(err, STATUS_INTERRUPTED, "interrupted");
  if (eval->options->logits_out) TRY(npy_write_row(&eval->npy, logits, err));
  if (eval->options->against) TRY(against_take(&eval->against, row, logits, err));
  if (row + 1 < eval->window_size) {
    size_t next = eval->window_start + (size_t)row + 1;
    double log_p = log_probability(logits, eval->model->config.vocab_size, eval->ids.ids[next]);
    if (isnan(log_p))
      return error_set(
          err, STATUS_FAILED,
          "the logits of token %zu hold a NaN or an infinity: the model's weights or their arithmetic are "
          "broken",
          next - 1);
    eval->nll -= log_p;
    eval->n_scored++;
  }
  if (eval->shows_progress && row % EVALUATED_ROWS == 0)
    progress_show("%zu of %zu tokens", eval->window_start + (size_t)row, eval->ids.count);
  return STATUS_OK;
}

static Status evaluate(Eval *eval, int window, Error *err) {
  for (; eval->window_start < eval->ids.count; eval->window_start += (size_t)eval->window_size) {
    size_t left = eval->ids.count - eval->window_start;
    eval->window_size = left < (size_t)window ? (int)left : window;
    if (eval->options->against)
      TRY(against_begin(&eval->against, eval->ids.ids + eval->window_start, eval->window_size, err));
    TRY(session_evaluate(eval->session, eval->ids.ids + eval->window_start, eval->window_size, take_logits,
                         eval, err));
  }
  return STATUS_OK;
}

static Status choose_window(const Eval *eval, int *window, Error *err) {
  const int asked = eval->options->window, maximum = eval->model->config.max_position;
  size_t n = eval->ids.count;
  if (asked && (size_t)asked < n) n = (size_t)asked;
  if (n == 1 && !eval->options->logits_out)
    return error_set(err, STATUS_USAGE,
                     "%s, and the first token of a window is not scored: there is none before it "
                     "(--logits-out FILE writes what is expected behind it)",
                     asked == 1 ? "--window 1" : "one token");
  if (n > (size_t)maximum)
    return error_set(err, STATUS_USAGE,
                     "%zu tokens in one window, more than the %d positions of %s (--window N "
                     "splits them, --max-tokens N takes fewer)",
                     n, maximum, eval->place.path);
  *window = (int)n;
  return STATUS_OK;
}

static Status check_output(const Eval *eval, Error *err) {
  const Options *o = eval->options;
  const WrittenFile output = written_file("--logits-out", o->logits_out);
  TRY(written_file_is_not_model(&output, eval->model, err));
  TRY(written_file_is_not(&output, "--ids-file", o->ids_file, err));
  return written_file_is_not(&output, "-f", o->text_file, err);
}

/* A number in the output; JSON has neither NaN nor infinities. */
typedef struct {
  char text[32];
} NumberText;

static NumberText number_text(bool json, const char *format, double value) {
  NumberText number = {"null"};
  if (!json || isfinite(value))
    snprintf(number.text, sizeof number.text, format, isnan(value) ? NAN : value); /* not "-nan" */
  return number;
}

static Status print_result(Eval *eval, Error *err) {
  const bool json = eval->options->json;
  const double mean = eval->n_scored ? eval->nll / (double)eval->n_scored : NAN;
  TRY(output_printf(err,
                    json ? "{\"tokens\": %zu, \"scored\": %zu, \"nll\": %s, \"ppl\": %s"
                         : "tokens=%zu scored=%zu nll=%s ppl=%s",
                    eval->ids.count, eval->n_scored, number_text(json, "%.9f", mean).text,
                    number_text(json, "%.9g", exp(mean)).text));
  if (eval->options->against) {
    const Differences d = against_differences(&eval->against);
    TRY(output_printf(err,
                      json ? ", \"against_nll\": %s, \"against_ppl\": %s, \"kl\": %.6g, \"kl_99\": %.6g, "
                             "\"same_top\": %.6f"
                           : " against_nll=%s against_ppl=%s kl=%.6g kl_99=%.6g same_top=%.6f",
                      number_text(json, "%.9f", d.nll).text, number_text(json, "%.9g", exp(d.nll)).text,
                      d.mean, d.most_of_99, d.same_top));
  }
  return output_printf(err, json ? "}\n" : "\n");
}

static Status run_eval(Eval *eval, Error *err) {
  const Options *o = eval->options;
  if (!o->ids_file == !o->text_file)
    return error_set(err, STATUS_USAGE, "give one of --ids-file FILE and -f FILE (--help lists the flags)");
  TRY(file_name_check("--logits-out", o->logits_out, err));
  eval->interrupted = interrupt_catch();
  eval->shows_progress = terminal_takes_escapes(STDERR_FILENO);
  TRY(model_place_find(&o->model, &eval->place, err));
  TRY(device_choose(&o->device, &eval->device, err));
  TRY(model_place_open_known(&eval->place, &o->model, &eval->model, err));
  TRY(check_output(eval, err));
  TRY(device_fit(&eval->device, eval->model, err));
  if (eval->model->layout == LAYOUT_HF_DIRECTORY)
    TRY(model_tokenizer_check(eval->model, eval->place.path, err));
  TRY(read_ids(eval, err));
  int window = 0;
  TRY(choose_window(eval, &window, err));
  TRY(evaluated_session(&eval->device, eval->model, window, o->chunk, &eval->session, err));
  if (o->against) {
    TRY(against_open(o->against, &o->device, eval->model, window, &eval->against, err));
    TRY(against_check_text(&eval->against, eval->model, eval->ids.ids, eval->ids.count, err));
  }
  if (o->logits_out)
    TRY(npy_open(o->logits_out, eval->ids.count, (size_t)eval->model->config.vocab_size, &eval->npy, err));
  Status status = evaluate(eval, window, err);
  if (eval->shows_progress) progress_clear();
  TRY(model_check_weights(eval->model, err)); /* changed weights may explain the failure, too */
  TRY(status);
  if (o->logits_out) TRY(atomic_file_commit(&eval->npy.file, err));
  return print_result(eval, err);
}

static Status run(CommandCall *call, Error *err) {
  Eval eval = {.options = call->options};
  Status status = run_eval(&eval, err);
  atomic_file_abort(&eval.npy.file);
  against_close(&eval.against);
  session_close(eval.session);
  device_release(&eval.device);
  id_list_release(&eval.ids);
  model_close(eval.model);
  model_place_release(&eval.place);
  return status;
}

static const char usage[] = "auk eval -m MODEL -f FILE [--logits-out FILE.npy] [FLAGS]\n"
                            "auk eval -m MODEL --ids-file FILE [--logits-out FILE.npy] [FLAGS]";

static const char about[] = "Feeds tokens to the model one after the other as given and looks at what it "
                            "expects next. Prints one line,\n"
                            "    tokens=N scored=N nll=X ppl=X\n"
                            "with the mean negative log-likelihood of every token but the first of each "
                            "window, and its exponential, the\n"
                            "perplexity.";

static const Flag flags[] = {
    FLAG_FILE("--ids-file", "FILE", Options, ids_file,
              "token ids between white space, commas or brackets; - for standard input"),
    FLAG_FILE("-f, --file", "FILE", Options, text_file,
              "a text instead, encoded as the model's tokenizer does; - for standard input"),
    FLAG_SWITCH("--parse-special", Options, parse_special,
                "text like <|im_end|> in the file is the special token"),
    FLAG_FILE("--logits-out", "FILE", Options, logits_out,
              "writes all logits as float32 [tokens, vocabulary] in NumPy's format"),
    FLAG_PLAIN(
        KIND_STRING, VALUE_MODEL, const char *, "--against", "MODEL", Options, against,
        "compares with another checkpoint of the same tokens: adds against_nll and against_ppl, kl and "
        "kl_99 (mean and 99th percentile of the Kullback-Leibler divergence from it), same_top (share of "
        "rows with the same likeliest token)"),
    FLAG_SWITCH("--json", Options, json, "a JSON object with the members tokens, scored, nll and ppl"),
    FLAG_INT("--window", "N", Options, window, 0, INT_MAX,
             "begins anew every N tokens (default 0: all tokens in one window)"),
    FLAG_INT("--chunk", "N", Options, chunk, 0, 1 << 20,
             "tokens computed at once (default: what serves the device)"),
    FLAG_INT("--max-tokens", "N", Options, max_tokens, 0, INT_MAX,
             "only the first N tokens (default 0: all)"),
};
static const FlagGroup groups[] = {
    MODEL_FLAG_GROUP(Options, model),
    FLAG_GROUP("Tokens", flags),
    DEVICE_FLAG_GROUP(Options, device),
};

static const FlagRule rules[] = {{"--parse-special", NEEDS, "-f", NULL}};

const Interface eval_interface = {
    .usage = usage,
    .about = about,
    .examples = "auk eval -m MODEL -f text.txt                      # perplexity\n"
                "auk eval -m MODEL -f text.txt --logits-out x.npy   # and every logit",
    INTERFACE_GROUPS(groups),
    INTERFACE_RULES(rules),
    INTERFACE_MODEL_OPERAND,
    .takes_foreign = true,
    .options_size = sizeof(Options),
    .run = run,
};
