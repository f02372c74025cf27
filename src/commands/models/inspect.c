/* inspect.c - `auk inspect MODEL`: describes a checkpoint, in lines or as JSON. Called by: main.c through
 * the table of commands.c. It reads no matrices, so it is fast for any size. Names from files are escaped,
 * so that a terminal does not obey their control characters. */
#include "commands/models/inspect.h"

#include <string.h>

#include "base/size_text.h"
#include "commands/commands.h"
#include "commands/common.h"
#include "commands/model_flags.h"
#include "commands/models/decimal.h"
#include "commands/models/drafts.h"
#include "engine/step_cost.h"

/* --- facts for both forms */

static void count_linears(const Model *model, Inspection *inspection) {
  for (int i = 0; i < model->config.n_layers; i++) {
    for (int which = 0; which < layer_linear_count(&model->config, i); which++) {
      const Linear *linear = layer_linear(&model->layers[i], which);
      if (!layer_linear_is_first(&model->config, i, which)) continue;
      const bool quantised = linear->kind != LINEAR_DENSE;
      inspection->n_quantised += quantised;
      inspection->n_dense += !quantised;
      inspection->n_8bit += quantised && linear->bits == 8;
      inspection->n_fp8 += linear->kind == LINEAR_FP8;
      inspection->n_fp4 += linear->kind == LINEAR_FP4;
      if (linear->bias.data) inspection->n_biases++;
    }
  }
}

static Inspection inspect(const Model *model, const char *path) {
  Inspection inspection = {.model = model, .path = path};
  count_linears(model, &inspection);
  return inspection;
}

size_t inspect_kv_bytes(const ModelConfig *config, KvType kv, size_t n_tokens) {
  size_t bytes = 0; /* at most 2^38 within the limits of config.h */
  for (int i = 0; i < config->n_layers; i++) bytes += kv_token_bytes(config, i, kv);
  return __builtin_mul_overflow(bytes, n_tokens, &bytes) ? SIZE_MAX : bytes;
}

size_t inspect_recurrent_bytes(const ModelConfig *config) {
  size_t n = 0;
  for (int layer = 0; layer < config->n_layers; layer++) n += config_state_numbers(config, layer);
  return n * sizeof(float);
}

bool inspect_has_norms_before(const ModelConfig *config) {
  bool has = false;
  for (int layer = 0; layer < config->n_layers; layer++)
    has = has || config_layer(config, layer).norms != config->norms;
  return has;
}

/* --- as lines */

Status inspect_begin_line(Buffer *out, const char *label, Error *err) {
  return buffer_printf(out, err, "%s%-14s ", out->size ? "\n" : "", label);
}

Status inspect_print_bytes(Buffer *out, size_t bytes, Error *err) {
  TRY(buffer_printf(out, err, "%zu bytes", bytes));
  if (bytes < 1024) return STATUS_OK;
  const char *unit;
  const double value = size_in_unit(bytes, &unit);
  return buffer_printf(out, err, " (%.*f %s)", value < 10 ? 2 : 1, value, unit);
}

static Status print_layout(Buffer *out, const Inspection *inspection, Error *err) {
  const Model *model = inspection->model;
  TRY(inspect_begin_line(out, "model", err));
  TRY(append_escaped(out, inspection->path, err));
  TRY(inspect_begin_line(out, "layout", err));
  if (model->layout == LAYOUT_AK48) return buffer_append_string(out, "packed file (ak48)", err);
  size_t n_files = 0; /* tensors are ordered by file */
  for (size_t i = 0; i < model_tensor_count(model); i++)
    n_files += i == 0 || model_tensor(model, i)->file != model_tensor(model, i - 1)->file;
  return buffer_printf(out, err, "Hugging Face directory, %zu %s", n_files, n_files == 1 ? "file" : "files");
}

static Status print_sizes(Buffer *out, const ModelConfig *config, Error *err) {
  TRY(inspect_begin_line(out, "architecture", err));
  TRY(buffer_printf(out, err, "%s", config->architecture));
  TRY(inspect_begin_line(out, "sizes", err));
  TRY(buffer_printf(out, err, "%d layers, hidden %d, intermediate %d, vocabulary %d, context %d",
                    config->n_layers, config->hidden, config->intermediate, config->vocab_size,
                    config->max_position));
  TRY(inspect_begin_line(out, "attention", err));
  return buffer_printf(out, err, "%d heads, %d for keys and values, head_dim %d%s", config->n_heads,
                       config->n_kv_heads, config->head_dim,
                       config->qk_norm == QK_NORM_NONE    ? ""
                       : config->qk_norm == QK_NORM_WHOLE ? ", q and k norms over all heads"
                                                          : ", q and k norms");
}

static Status print_latent(Buffer *out, const ModelConfig *config, Error *err) {
  const LatentConfig *latent = &config->latent;
  if (!latent->kv_rank) return STATUS_OK;
  TRY(inspect_begin_line(out, "latent", err));
  TRY(buffer_printf(out, err, "the cache has a latent of %d and a key of %d for all heads", latent->kv_rank,
                    latent->rope_dim));
  if (latent->q_rank) TRY(buffer_printf(out, err, ", queries have one of %d", latent->q_rank));
  return buffer_printf(out, err, "; heads of %d + %d, values of %d", latent->nope_dim, latent->rope_dim,
                       latent->value_dim);
}

/* Prints residual streams, n-grams, and attention to the positions that an indexer chooses. */
static Status print_streams(Buffer *out, const ModelConfig *config, Error *err) {
  const NgramConfig *ngrams = &config->ngrams;
  const IndexerConfig *indexer = &config->indexer;
  if (!config->streams.n) return STATUS_OK;
  TRY(inspect_begin_line(out, "streams", err));
  TRY(buffer_printf(out, err, "%d of %d numbers, mixed by matrices of rank %d", config->streams.n,
                    config->hidden, config->streams.rank));
  for (int i = 0; i < config->n_layers; i++) {
    if (!config_layer(config, i).ngrams) continue;
    TRY(inspect_begin_line(out, "n-grams", err));
    TRY(buffer_printf(out, err, "of up to %d tokens before layer %d: %d rows of %d numbers a token, of %lld",
                      ngrams->longest, i, (ngrams->longest - 1) * ngrams->n_hashes, ngram_columns(ngrams),
                      (long long)ngram_rows(config, i)));
  }
  if (!indexer->block) return STATUS_OK;
  TRY(inspect_begin_line(out, "sparse", err));
  return buffer_printf(out, err,
                       "attention to %d positions in blocks of %d, chosen by %d heads of %d numbers",
                       indexer->budget, indexer->block, indexer->n_heads, indexer->head_dim);
}

typedef enum { WINDOW, CHUNK, SPARSITY } LayerNumber;

static double number_of(const ModelConfig *config, int layer, LayerNumber number) {
  const LayerConfig own = config_layer(config, layer);
  return number == WINDOW ? own.window : number == CHUNK ? own.chunk : own.sparsity;
}

/* Prints runs of layers with the same number other than 0: "4096 positions in layers 0 to 27". */
static Status print_runs(Buffer *out, const ModelConfig *config, LayerNumber number, const char *label,
                         const char *unit, Error *err) {
  bool some = false;
  for (int from = 0, to; from < config->n_layers; from = to) {
    const double value = number_of(config, from, number);
    for (to = from; to < config->n_layers && number_of(config, to, number) == value;) to++;
    if (value == 0) continue;
    TRY(some ? buffer_append_string(out, ", ", err) : inspect_begin_line(out, label, err));
    some = true;
    TRY(buffer_printf(out, err, from < to - 1 ? "%.*g%s in layers %d to %d" : "%.*g%s in layer %d",
                      number == SPARSITY ? 6 : 10, value, unit, from, to - 1));
  }
  return STATUS_OK;
}

/* Prints AltUp's streams, LAuReL, and runs of layers with sparse gates: "0.95 in layers 0 to 9". */
static Status print_altup(Buffer *out, const ModelConfig *config, Error *err) {
  if (!config->altup.n) return STATUS_OK;
  TRY(inspect_begin_line(out, "streams", err));
  TRY(buffer_printf(out, err, "%d of %d numbers, predicted and corrected by AltUp, with LAuReL of rank %d",
                    config->altup.n, config->hidden, config->altup.laurel_rank));
  return print_runs(out, config, SPARSITY, "sparse gates", "", err);
}

static Status print_experts(Buffer *out, const ModelConfig *config, Error *err) {
  static const char *const scores[] = {[SCORE_SOFTMAX] = "softmax",
                                       [SCORE_SIGMOID] = "sigmoid",
                                       [SCORE_CHOSEN] = "softmax of the chosen",
                                       [SCORE_CHOSEN_SIGMOID] = "sigmoid of the chosen",
                                       [SCORE_CHOSEN_NEAR] = "softmax of those near"};
  static const char *const outputs[] = {
      [SHARED_WHOLE] = "", [SHARED_GATED] = ", gated", [SHARED_HALVED] = ", times 0.5"};
  const ExpertConfig *experts = &config->experts;
  int n_layers = 0;
  if (!experts->n_experts) return STATUS_OK;
  for (int layer = 0; layer < config->n_layers; layer++)
    n_layers += config_layer(config, layer).n_experts > 0;
  TRY(inspect_begin_line(out, "experts", err));
  TRY(buffer_printf(out, err, "%d of %d in %d of %d layers, intermediate %d; weights by %s%s",
                    experts->n_chosen, experts->n_experts, n_layers, config->n_layers, experts->width,
                    scores[experts->score], experts->renormalise ? ", then divided by their sum" : ""));
  if (experts->scale != 1) TRY(buffer_printf(out, err, ", times %s", decimal(experts->scale).text));
  if (experts->choice_bias) TRY(buffer_append_string(out, "; chosen with a bias", err));
  if (experts->n_groups > 1)
    TRY(buffer_printf(out, err, "; from %d of %d groups", experts->n_chosen_groups, experts->n_groups));
  if (experts->shared_width)
    TRY(buffer_printf(out, err, "; beside them an MLP of %d%s", experts->shared_width,
                      outputs[experts->shared_output]));
  if (experts->norms == EXPERTS_POST_NORM) TRY(buffer_append_string(out, "; a norm of their sum", err));
  return STATUS_OK;
}

static Status print_state_layers(Buffer *out, const ModelConfig *config, Error *err) {
  if (config->conv.taps) {
    TRY(inspect_begin_line(out, "convolutions", err));
    return buffer_printf(out, err, "%d of %d layers in place of attention: convolution of %d, gated%s",
                         config_count_layers(config, LAYER_CONV, config->n_layers), config->n_layers,
                         config->conv.taps, config->conv.bias ? ", with biases" : "");
  }
  const DeltaConfig *delta = &config->delta;
  if (!delta->n_key_heads) return STATUS_OK;
  if (delta->rule == RULE_MAMBA2) {
    TRY(inspect_begin_line(out, "Mamba-2", err));
    return buffer_printf(
        out, err,
        "%d of %d layers %s attention: %d heads of %d, %d group%s with states of %d, convolution of %d%s",
        config_count_layers(config, LAYER_DELTA, config->n_layers), config->n_layers,
        config_layer(config, 0).delta_beside ? "beside" : "in place of", delta->n_value_heads,
        delta->value_dim, delta->n_key_heads, delta->n_key_heads > 1 ? "s" : "", delta->key_dim, delta->conv,
        delta->no_norm ? ", outputs not normalised" : "");
  }
  TRY(inspect_begin_line(out, "delta rule", err));
  return buffer_printf(out, err,
                       "%d of %d layers in place of attention: %d key heads of %d, %d value heads of %d, "
                       "convolution of %d%s",
                       config_count_layers(config, LAYER_DELTA, config->n_layers), config->n_layers,
                       delta->n_key_heads, delta->key_dim, delta->n_value_heads, delta->value_dim,
                       delta->conv, delta->rule == RULE_CHANNELS ? ", a decay for each number of a key" : "");
}

/* Prints how many layers have no MLP, if the others are an MLP alone. */
static Status print_blocks(Buffer *out, const ModelConfig *config, Error *err) {
  const int n = config_count_layers(config, LAYER_MLP_ALONE, config->n_layers);
  if (n == 0) return STATUS_OK;
  TRY(inspect_begin_line(out, "blocks", err));
  return buffer_printf(out, err, "%d of %d layers mix tokens and have no MLP, the others are an MLP alone",
                       config->n_layers - n, config->n_layers);
}

/* True if both layers have the same sizes, and are alike in using keys as values and in sharing a layer's
 * cache. */
static bool same_sizes(const ModelConfig *config, int layer, int other) {
  const LayerConfig a = config_layer(config, layer), b = config_layer(config, other);
  return a.n_heads == b.n_heads && a.n_kv_heads == b.n_kv_heads && a.head_dim == b.head_dim &&
         a.intermediate == b.intermediate && a.k_as_v == b.k_as_v && a.shares_kv == b.shares_kv;
}

/* Prints a line for each run of consecutive layers that differ from the model's sizes, use keys as values, or
 * share a layer's cache. */
static Status print_other_sizes(Buffer *out, const ModelConfig *config, Error *err) {
  for (int from = 0, to; from < config->n_layers; from = to) {
    const LayerConfig layer = config_layer(config, from);
    for (to = from; to < config->n_layers && same_sizes(config, from, to);) to++;
    if (config_layer_is_alike(config, from) && !layer.k_as_v && !layer.shares_kv) continue;
    TRY(inspect_begin_line(out, "other sizes", err));
    TRY(buffer_printf(out, err, "layers %d to %d: ", from, to - 1));
    if (layer.n_heads != config->n_heads) TRY(buffer_printf(out, err, "%d heads, ", layer.n_heads));
    TRY(buffer_printf(out, err, "%d for keys and values, head_dim %d", layer.n_kv_heads, layer.head_dim));
    if (!layer.n_experts) TRY(buffer_printf(out, err, ", intermediate %d", layer.intermediate));
    TRY(buffer_append_string(out,
                             layer.shares_kv ? ", which are those of a layer before"
                             : layer.k_as_v  ? ", values are the keys before their norm"
                                             : "",
                             err));
  }
  return STATUS_OK;
}

static Status print_number(Buffer *out, const char *before, double value, Error *err) {
  return buffer_printf(out, err, "%s%s", before, decimal(value).text);
}

/* Prints a number that a packed file does not hold, with its source; without a source, "unknown". */
static Status print_sourced(Buffer *out, const char *before, double value, const char *source, Error *err) {
  if (!source) return buffer_printf(out, err, "%sunknown (not in the file)", before);
  return buffer_printf(out, err, "%s%s (%s)", before, decimal(value).text, source);
}

static Status print_rope(Buffer *out, const Model *model, Error *err) {
  const RopeConfig *rope = &model->config.rope;
  if (!inspect_has_rope(&model->config)) return STATUS_OK;
  TRY(inspect_begin_line(out, "rope", err));
  TRY(print_sourced(out, "theta ", rope->theta, model->theta_source, err));
  if (rope->kind != ROPE_PLAIN) {
    TRY(buffer_printf(out, err, ", scaling %s", rope_kind_name(rope->kind)));
    TRY(print_number(out, ", factor ", rope->factor, err));
  }
  if (rope->kind == ROPE_LLAMA3 || rope->kind == ROPE_YARN || rope->kind == ROPE_LONGROPE)
    TRY(print_number(out, ", original context ", rope->original_max_position, err));
  return STATUS_OK;
}

enum { NAMES_SHOWN = 8 }; /* limit for long lists; --json has all names */

static Status print_dense_names(Buffer *out, const Inspection *inspection, Error *err) {
  const Model *model = inspection->model;
  size_t n = 0;
  for (int i = 0; i < model->config.n_layers; i++) {
    for (int which = 0; which < layer_linear_count(&model->config, i); which++) {
      const Linear *linear = layer_linear(&model->layers[i], which);
      if (linear->kind != LINEAR_DENSE || !layer_linear_is_first(&model->config, i, which)) continue;
      if (n++ >= NAMES_SHOWN) continue;
      TRY(buffer_printf(out, err, "%s%s (%s)", n == 1 ? "; dense: " : ", ", linear->name,
                        dtype_name(linear->dtype)));
    }
  }
  return n > NAMES_SHOWN ? buffer_printf(out, err, " and %zu more", n - NAMES_SHOWN) : STATUS_OK;
}

/* Prints which weights share a scale. */
static Status print_groups(Buffer *out, const QuantScheme *scheme, Error *err) {
  if (scheme->method == QUANT_FP8 && scheme->group > 0)
    return buffer_printf(out, err, "blocks of %d outputs and %d inputs", scheme->block, scheme->group);
  if (scheme->method == QUANT_FP8)
    return buffer_append_string(out,
                                scheme->block == 1   ? "one scale an output"
                                : scheme->block == 0 ? "one scale an output or a matrix"
                                                     : "one scale a matrix",
                                err);
  if (scheme->group == -1) return buffer_append_string(out, "one group for the whole input", err);
  return buffer_printf(out, err, "groups of %d", scheme->group);
}

static Status print_count(Buffer *out, size_t n, const char *what, Error *err) {
  return n ? buffer_printf(out, err, ", %zu %s", n, what) : STATUS_OK;
}

static Status print_scheme(Buffer *out, const Inspection *inspection, Error *err) {
  const QuantScheme *scheme = &inspection->model->config.quant.scheme;
  const bool fp8 = scheme->method == QUANT_FP8, fp4 = scheme->method > QUANT_FP8;
  TRY(buffer_printf(out, err, "%s, %d bits, ", quant_method_name(scheme->method), scheme->bits));
  TRY(print_groups(out, scheme, err));
  const size_t n_8bit = inspection->n_8bit - inspection->n_fp8;
  const size_t n_4bit = inspection->n_quantised - inspection->n_8bit - inspection->n_fp4;
  if (fp8 || scheme->bits == 4) TRY(print_count(out, n_8bit, "of 8 bits", err));
  if (fp4 || scheme->bits == 8) TRY(print_count(out, n_4bit, "of 4 bits", err));
  if (!fp8) TRY(print_count(out, inspection->n_fp8, "in FP8", err));
  if (!fp4) TRY(print_count(out, inspection->n_fp4, "in FP4", err));
  if (inspection->model->config.quant.ordered)
    TRY(buffer_append_string(out, "; in the order of activations", err));
  if (inspection->model->replaced_bytes) TRY(buffer_append_string(out, "; repacked when loaded", err));
  return STATUS_OK;
}

static Status print_quantisation(Buffer *out, const Inspection *inspection, Error *err) {
  const Model *model = inspection->model;
  size_t n = inspection->n_quantised + inspection->n_dense;
  TRY(inspect_begin_line(out, "linear layers", err));
  if (inspection->n_quantised == 0) {
    TRY(buffer_printf(out, err, "%zu, not quantised: %s", n, dtype_name(model->layers[0].o.dtype)));
  } else {
    TRY(buffer_printf(out, err, "%zu of %zu ", inspection->n_quantised, n));
    TRY(print_scheme(out, inspection, err));
    TRY(print_dense_names(out, inspection, err));
  }
  if (inspection->n_biases) TRY(buffer_printf(out, err, "; %zu with a bias", inspection->n_biases));
  TRY(inspect_begin_line(out, "embedding", err));
  TRY(buffer_append_string(out, dtype_name(model->embedding.dtype), err));
  const Linear *head = &model->head;
  if (head->kind != LINEAR_DENSE) return buffer_printf(out, err, ", output head of %d bits", head->bits);
  return buffer_printf(out, err, ", output head %s",
                       model->config.tied_embeddings ? "tied to it" : dtype_name(head->dtype));
}

static Status print_tokens(Buffer *out, const Model *model, Error *err) {
  const ModelConfig *config = &model->config;
  TRY(inspect_begin_line(out, "end tokens", err));
  for (int i = 0; i < config->n_eos; i++) TRY(buffer_printf(out, err, "%s%d", i ? ", " : "", config->eos[i]));
  if (config->n_eos == 0) TRY(buffer_append_string(out, "none given", err));
  if (config->bos >= 0) TRY(buffer_printf(out, err, "; BOS %d", config->bos));
  TRY(inspect_begin_line(out, "tokenizer", err));
  return append_escaped(out, model->tokenizer_path ? model->tokenizer_path : "none", err);
}

static Status print_generation(Buffer *out, const GenerationDefaults *generation, Error *err) {
  TRY(inspect_begin_line(out, "sampling", err));
  if (!generation->do_sample) return buffer_append_string(out, "greedy", err);
  TRY(print_number(out, "temperature ", generation->temperature, err));
  TRY(buffer_printf(out, err, ", top-k %d", generation->top_k));
  TRY(print_number(out, ", top-p ", generation->top_p, err));
  TRY(print_number(out, ", min-p ", generation->min_p, err));
  return print_number(out, ", repetition penalty ", generation->repetition_penalty, err);
}

static Status print_memory(Buffer *out, const Inspection *inspection, Error *err) {
  const Model *model = inspection->model;
  size_t n_ctx = (size_t)model->config.max_position;
  TRY(inspect_begin_line(out, "weights", err));
  TRY(inspect_print_bytes(out, model->weight_bytes, err));
  if (model_loaded_bytes(model) != model->weight_bytes) {
    TRY(buffer_append_string(out, ", loaded ", err));
    TRY(inspect_print_bytes(out, model_loaded_bytes(model), err));
  }
  if (model->config.experts.n_experts) {
    TRY(inspect_begin_line(out, "a token reads", err));
    TRY(inspect_print_bytes(out, (size_t)step_cost(model, KV_F16, 0, 1, 1).bytes, err));
  }
  static const char *const labels[] = {
      [KV_F16] = "kv cache f16", [KV_F32] = "kv cache f32", [KV_Q8] = "kv cache q8"};
  for (int kv = KV_F16; kv <= KV_Q8; kv++) {
    TRY(inspect_begin_line(out, labels[kv], err));
    TRY(buffer_printf(out, err, "%zu bytes a token, ", inspect_kv_bytes(&model->config, (KvType)kv, 1)));
    TRY(inspect_print_bytes(out, inspect_kv_bytes(&model->config, (KvType)kv, n_ctx), err));
    TRY(buffer_append_string(out, " for the whole context", err));
  }
  if (!config_has_states(&model->config)) return STATUS_OK;
  TRY(inspect_begin_line(out, "states", err));
  TRY(inspect_print_bytes(out, inspect_recurrent_bytes(&model->config), err));
  TRY(buffer_append_string(out, " at each position where they are kept", err));
  const DeltaConfig *delta = &model->config.delta;
  const int n_layers = config_count_layers(&model->config, LAYER_DELTA, model->config.n_layers);
  if (n_layers == 0) return STATUS_OK;
  TRY(buffer_append_string(out, "; on a GPU --map --states f16 spares a record ", err));
  return inspect_print_bytes(
      out, 2 * (size_t)(n_layers * delta->n_value_heads) * (size_t)(delta->key_dim * delta->value_dim), err);
}

static Status print_unused(Buffer *out, const Model *model, Error *err) {
  size_t shown = 0;
  if (model->unused_tensors == 0) return STATUS_OK;
  TRY(inspect_begin_line(out, "unused", err));
  TRY(buffer_printf(out, err, "%zu of %zu tensors: ", model->unused_tensors, model_tensor_count(model)));
  for (size_t i = 0; i < model_tensor_count(model) && shown < NAMES_SHOWN; i++) {
    if (model_tensor(model, i)->used) continue;
    if (shown++) TRY(buffer_append_string(out, ", ", err));
    TRY(append_escaped(out, model_tensor(model, i)->name, err));
  }
  return model->unused_tensors > shown
             ? buffer_printf(out, err, " and %zu more", model->unused_tensors - shown)
             : STATUS_OK;
}

static Status print_tensors(Buffer *out, const Model *model, Error *err) {
  for (size_t i = 0; i < model_tensor_count(model); i++) {
    const StoredTensor *tensor = model_tensor(model, i);
    const char *slash = strrchr(tensor->file, '/');
    TRY(buffer_printf(out, err, "\n%-8s %-18s %12zu  ", tensor->dtype_name,
                      shape_text(tensor->rank, tensor->shape).text, tensor->bytes));
    TRY(append_escaped(out, tensor->name, err));
    TRY(buffer_append_string(out, "  ", err));
    TRY(append_escaped(out, slash ? slash + 1 : tensor->file, err));
    if (!tensor->used) TRY(buffer_append_string(out, "  unused", err));
  }
  return STATUS_OK;
}

static Status print_report(Buffer *out, const Inspection *inspection, const Prediction *prediction,
                           const Pools *pools, const DeviceShares *shares, bool tensors, Error *err) {
  const Model *model = inspection->model;
  TRY(print_layout(out, inspection, err));
  TRY(print_sizes(out, &model->config, err));
  TRY(print_latent(out, &model->config, err));
  TRY(print_streams(out, &model->config, err));
  TRY(print_altup(out, &model->config, err));
  TRY(print_experts(out, &model->config, err));
  TRY(print_state_layers(out, &model->config, err));
  TRY(print_blocks(out, &model->config, err));
  TRY(print_other_sizes(out, &model->config, err));
  TRY(print_runs(out, &model->config, WINDOW, "windows", " positions", err));
  TRY(print_runs(out, &model->config, CHUNK, "chunks", " positions", err));
  TRY(print_rope(out, model, err));
  TRY(inspect_begin_line(out, "norm epsilon", err));
  TRY(print_sourced(out, "", model->config.norm_eps, model->eps_source, err));
  TRY(inspect_print_arithmetic(out, &model->config, err));
  TRY(print_quantisation(out, inspection, err));
  TRY(print_tokens(out, model, err));
  TRY(print_generation(out, &model->config.generation, err));
  TRY(print_memory(out, inspection, err));
  TRY(inspect_print_pools(out, pools, err));
  TRY(inspect_print_devices(out, model, err));
  TRY(inspect_print_places(out, model, prediction, err));
  TRY(inspect_print_shares(out, shares, &model->config, err));
  TRY(print_unused(out, model, err));
  if (model_predicts_several(model)) {
    TRY(inspect_begin_line(out, "guesses", err));
    TRY(buffer_append_string(out, "it has a layer that predicts several tokens: --draft mtp", err));
  }
  if (tensors) TRY(buffer_append_string(out, "\n", err));
  if (tensors) TRY(print_tensors(out, model, err));
  return buffer_append_string(out, "\n", err);
}

typedef struct {
  ModelFlags model;
  bool json, tensors, program, architectures;
  const char *gpu_memory;
  int split; /* 0: not given */
} Options;

static const Flag flags[] = {
    FLAG_SWITCH("--json", Options, json, "one JSON object in place of lines"),
    FLAG_STRING(
        "--gpu-memory", "SIZE", Options, gpu_memory,
        "also which weights would stay in the host's memory beside a GPU's of that size, such as 12G, "
        "and how fast a token is at most"),
    FLAG_INT("--split", "N", Options, split, 2, MAX_SPLIT,
             "also what each of N GPUs would hold that share the model"),
    FLAG_SWITCH("--tensors", Options, tensors, "also every tensor: dtype, shape, bytes, name, file"),
    FLAG_SWITCH(
        "--program", Options, program,
        "in place of the report: the operations of a step in their order, what each reads and writes, how it "
        "differs from Llama's, the tensors that it takes; and which forms of computing them take the model"),
    FLAG_SWITCH("--architectures", Options, architectures,
                "without MODEL: the models that auk knows, by the names that config.json gives"),
};
static const FlagGroup groups[] = {MODEL_FLAG_GROUP(Options, model), FLAG_GROUP("Report", flags)};
static const FlagRule rules[] = {
    {"--split", EXCLUDES, "--gpu-memory", "GPUs that share a model hold all of its weights"},
    {"--program", EXCLUDES, "--json", "a program is printed as lines"},
    {"--program", EXCLUDES, "--tensors", "a program names its tensors"},
    {"--architectures", EXCLUDES, "--json", "architectures are printed as lines"},
    {"--architectures", EXCLUDES, "--tensors, --program", "it is not about one model"}};

static Status run(CommandCall *call, Error *err) {
  const Options *options = call->options;
  OWNED(model_place_release) ModelPlace place = {0};
  OWNED(model_release) Model *model = NULL;
  if (options->architectures) return inspect_print_architectures(&call->out, err);
  TRY(model_place_find(&options->model, &place, err));
  if (drafts_is_drafter(place.path))
    return options->tensors || options->split || options->program
               ? error_set(err, STATUS_USAGE, "%s is a drafter: %s is for models", place.path,
                           options->tensors ? "--tensors"
                           : options->split ? "--split"
                                            : "--program")
               : drafts_inspect(place.path, options->json, &call->out, err);
  TRY(model_place_open(&place, &options->model, &model, err));
  if (options->program) {
    TRY(inspect_print_program(&call->out, model, err));
    return buffer_append_string(&call->out, "\n", err);
  }
  Inspection inspection = inspect(model, place.path);
  Prediction prediction;
  Pools pools;
  OWNED(device_shares_release) DeviceShares shares = {.n = 0};
  TRY(inspect_predict(model, options->gpu_memory, &prediction, err));
  TRY(inspect_pools(model, &prediction, &pools, err));
  if (options->split) TRY(device_shares(model, options->split, &shares, err));
  return (options->json ? inspect_print_json : print_report)(&call->out, &inspection, &prediction, &pools,
                                                             &shares, options->tensors, err);
}

const Interface inspect_interface = {
    .usage = "auk inspect MODEL [FLAGS]",
    .about = "Shows a checkpoint's layers, layouts and memory, and whether it runs. Of its weights\n"
             "only vectors are read, such as those of norms. For a drafter (--draft) it shows its kind and\n"
             "the models that it fits.",
    .examples = "auk inspect models/qwen3-8b-awq            # lines for a person\n"
                "auk inspect Qwen/Qwen3-8B-AWQ --json | jq .weight_bytes\n"
                "auk inspect --architectures | grep -i phi     # is there support for Phi?",
    INTERFACE_GROUPS(groups),
    INTERFACE_RULES(rules),
    INTERFACE_MODEL_OPERAND,
    .options_size = sizeof(Options),
    .run = run,
};
