/* inspect_arithmetic.c - `auk inspect`: how a model's transformer differs from Llama's, and which devices
 * support it. Called by: inspect.c, inspect_json.c. Lines without content are omitted; models like Llama get
 * only the last line. */
#include "commands/models/decimal.h"
#include "commands/models/inspect.h"
#include "cuda/one/table.h"
#include "model/layers.h"
#include "model/program.h"

static Status print_differences(Buffer *out, const ModelConfig *config, Error *err) {
  OWNED(program_release) Program program = {0};
  uint64_t differences = 0;
  bool begun = false;
  TRY(program_make(config, &program, err));
  for (int i = 0; i < program.n; i++) differences |= program.ops[i].differences;
  for (int i = 0; i < N_DIFFERENCES; i++) {
    if (difference_place(i) != IN_ARITHMETIC || !(differences >> i & 1)) continue;
    TRY(begun ? buffer_append_string(out, ", ", err) : inspect_begin_line(out, "arithmetic", err));
    TRY(difference_print(config, i, out, err));
    begun = true;
  }
  return STATUS_OK;
}

/* Prints which layers have this RoPE: "in layers 0 to 4, 6 to 10". */
static Status print_layers(Buffer *out, const ModelConfig *config, LayerRope rope, Error *err) {
  const char *before = "in layers ";
  for (int from = 0, to; from < config->n_layers; from = to + 1) {
    if (config_layer(config, to = from).rope != rope) continue;
    while (to + 1 < config->n_layers && config_layer(config, to + 1).rope == rope) to++;
    TRY(buffer_printf(out, err, from < to ? "%s%d to %d" : "%s%d", before, from, to));
    before = ", ";
  }
  return STATUS_OK;
}

static bool has_layers(const ModelConfig *config, LayerRope rope) {
  for (int layer = 0; layer < config->n_layers; layer++)
    if (config_layer(config, layer).rope == rope) return true;
  return false;
}

bool inspect_has_rope(const ModelConfig *config) {
  return has_layers(config, ROPE_GLOBAL) || has_layers(config, ROPE_LOCAL);
}

static Status print_other_ropes(Buffer *out, const ModelConfig *config, Error *err) {
  const RopeConfig *local = &config->local_rope;
  if (config->rope.rotary_dim < config->head_dim && has_layers(config, ROPE_GLOBAL)) {
    TRY(inspect_begin_line(out, "turned", err));
    TRY(buffer_printf(out, err, "the first %d of %d numbers of each head", config->rope.rotary_dim,
                      config->head_dim));
  }
  if (config->rope.kind == ROPE_PROPORTIONAL) {
    TRY(inspect_begin_line(out, "turned", err));
    TRY(buffer_printf(out, err, "the first %d of %d pairs of each head in layers without a window",
                      config->rope.n_turned, config->rope.rotary_dim / 2));
  }
  if (has_layers(config, ROPE_LOCAL)) {
    TRY(inspect_begin_line(out, "local rope", err));
    TRY(buffer_printf(out, err, "theta %s", decimal(local->theta).text));
    if (local->kind != ROPE_PLAIN)
      TRY(buffer_printf(out, err, ", scaling %s, factor %s", rope_kind_name(local->kind),
                        decimal(local->factor).text));
    TRY(buffer_append_string(out, ", ", err));
    TRY(print_layers(out, config, ROPE_LOCAL, err));
  }
  if (!has_layers(config, ROPE_NONE)) return STATUS_OK;
  TRY(inspect_begin_line(out, "no rope", err));
  return print_layers(out, config, ROPE_NONE, err);
}

Status inspect_print_arithmetic(Buffer *out, const ModelConfig *config, Error *err) {
  TRY(print_differences(out, config, err));
  return print_other_ropes(out, config, err);
}

/* True if a 4-bit matrix has fp32 scales. Their values decide at loading whether it can run as AWQ. */
static bool has_wide_scales(const Model *model) {
  const Linear *head = &model->head;
  bool wide = head->kind == LINEAR_GROUPED && head->bits == 4;
  for (int i = 0; i < model->config.n_layers; i++)
    for (int which = 0; which < layer_linear_count(&model->config, i); which++) {
      const Linear *linear = layer_linear(&model->layers[i], which);
      wide = wide || (linear->kind == LINEAR_GROUPED && linear->bits == 4);
    }
  return wide;
}

Status inspect_print_devices(Buffer *out, const Model *model, Error *err) {
  Error reason = {{0}};
  TRY(inspect_begin_line(out, "runs on", err));
  if (model_check_known(model, &reason) != STATUS_OK)
    return buffer_printf(out, err, "nothing yet: %s", reason.text);
  if (cuda_check_model(model, &reason) == STATUS_OK)
    return buffer_printf(out, err, "CPU and GPU%s",
                         has_wide_scales(model) ? ", there as 8 bits where scales are no F16 numbers" : "");
  return buffer_printf(out, err, "CPU; %s", reason.text);
}
