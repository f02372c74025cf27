/* dense_prefix.c - the windows and ropes of Command A+. Its first layers have no experts, and a rule of their
 * own for windows.
 *
 * Called by: config.c or positions.c through a row of architectures.c. Source: transformers 5.23,
 * models/cohere2_moe/configuration_cohere2_moe.py and modular_cohere2_moe.py.
 * Always true afterwards: layers with a window have a rope. A layer without a window has a rope only if it
 *                         has no experts and prefix_dense_sliding_window_pattern is 1. */
#include "model/config/architectures.h"

Status config_parse_dense_prefix(const ConfigReader *r, const Architecture *arch, ModelConfig *config) {
  int n_prefix, prefix_period, period, window;
  TRY(reader_int(r, "first_k_dense_replace", 0, MAX_LAYERS, 0, &n_prefix));
  TRY(reader_int(r, "prefix_dense_sliding_window_pattern", 1, INT32_MAX, 1, &prefix_period));
  TRY(reader_int(r, arch->windows.period_key, 1, INT32_MAX, arch->windows.n, &period));
  TRY(reader_int(r, "sliding_window", 1, MAX_POSITION, arch->windows.window, &window));
  const bool listed = json_member(r->object, "layer_types");
  for (int i = 0; i < config->n_layers; i++) {
    LayerConfig *layer = &config->layers[i];
    const bool full = i < n_prefix ? (i + 1) % prefix_period == 0 : (i - n_prefix + 1) % period == 0;
    if (!listed) layer->window = full ? 0 : window;
    const bool turned = layer->window > 0 || (layer->mlp == MLP_DENSE && prefix_period == 1);
    layer->rope = turned ? ROPE_GLOBAL : ROPE_NONE;
  }
  return STATUS_OK;
}
