/* short_conv.c - layers with a short convolution in config.json (LFM2, LFM3): which they are, and what else
 * these families have of their own.
 *
 * Called by: config.c or positions.c through a row of architectures.c. Source:
 * transformers 5.23, models/lfm2 and models/lfm3, configuration_*.py and modeling_*.py. */
#include "model/config/architectures.h"

/* --- LFM2 */

/* The width that Lfm2MLP makes of block_ff_dim, or of intermediate_size. */
static Status parse_block_width(const ConfigReader *r, ModelConfig *config) {
  bool adjusted;
  double factor;
  int multiple;
  TRY(reader_int(r, "block_ff_dim", 1, MAX_INTERMEDIATE, config->intermediate, &config->intermediate));
  TRY(reader_bool(r, "block_auto_adjust_ff_dim", true, &adjusted));
  TRY(reader_double(r, "block_ffn_dim_multiplier", 1e-3, 1e3, 1, &factor));
  TRY(reader_int(r, "block_multiple_of", 1, MAX_INTERMEDIATE, 256, &multiple));
  if (!adjusted) return STATUS_OK;
  int64_t width = 2 * (int64_t)config->intermediate / 3;
  if (!reader_is_null(r, "block_ffn_dim_multiplier")) {
    width = (int64_t)(factor * (double)width);
    width = (width + multiple - 1) / multiple * multiple;
  }
  if (width < 1 || width > MAX_INTERMEDIATE)
    return reader_refuse(r, "block_ff_dim %d becomes %lld as block_auto_adjust_ff_dim says, expected 1 to %d",
                         config->intermediate, (long long)width, MAX_INTERMEDIATE);
  config->intermediate = (int)width;
  return STATUS_OK;
}

/* --- LFM3 */

static Status parse_sandwich(const ConfigReader *r, ModelConfig *config) {
  bool around, gated;
  TRY(reader_bool(r, "use_sandwich_norm", true, &around));
  TRY(reader_bool(r, "use_attention_gate", true, &gated));
  if (!around) config->norms = NORM_BEFORE;
  if (!gated) config->attn_gate = ATTN_GATE_NONE;
  return STATUS_OK;
}

/* --- both */

static Status check_windows(const ConfigReader *r, const ModelConfig *config) {
  for (int layer = 0; layer < config->n_layers; layer++)
    if (config->layers[layer].window < 0)
      return reader_refuse(r, "sliding_window is null, expected a number of positions: layer %d has a window",
                           layer);
  return STATUS_OK;
}

/* Without layer_types the layers of full_attn_idxs have attention (LFM2); without either all have it. */
Status config_parse_short_conv(const ConfigReader *r, const Architecture *arch, ModelConfig *config) {
  static const LayerKinds two = {{"conv", "full_attention"}, "cf", "f", 0, 0},
                          three = {{"conv", "sliding_attention", "full_attention"}, "cwf", "ccfcwcfc", 4, 0};
  static const char idxs[] = "full_attn_idxs";
  const bool sliding = has(arch, SANDWICH);
  int window = -1; /* sliding_window is null */
  TRY(reader_int(r, "conv_L_cache", 1, MAX_CONV_TAPS, sliding ? 7 : 3, &config->conv.taps));
  TRY(reader_bool(r, "conv_bias", false, &config->conv.bias));
  if (sliding) TRY(parse_sandwich(r, config));
  if (sliding && !reader_is_null(r, "sliding_window"))
    TRY(reader_int(r, "sliding_window", 1, MAX_POSITION, arch->windows.window, &window));
  if (has(arch, BLOCK_WIDTH)) TRY(parse_block_width(r, config));
  TRY(config_parse_kinds(r, sliding ? &three : &two, window, config));
  if (!sliding && !reader_member(r, "layer_types") && reader_member(r, idxs))
    TRY(config_parse_attention_list(r, idxs, true, LAYER_CONV, config));
  TRY(check_windows(r, config));
  config->conv.channels = config->hidden;
  return STATUS_OK;
}
