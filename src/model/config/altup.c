/* altup.c - Gemma 3n in config.json: AltUp, LAuReL, sparse gates, widths of MLPs by layer.
 *
 * Called by: config.c or positions.c through a row of architectures.c.
 * Source: transformers 5.23, gemma3n/configuration_gemma3n.py, modeling_gemma3n.py.
 * Always true afterwards: a token's streams are at most MAX_STREAMS * MAX_HIDDEN numbers; 0 <= sparsity < 1,
 *                         also in fp32. altup_coef_clip is ignored: it is for training. */
#include <math.h>

#include "model/config/architectures.h"

static Status parse_streams(const ConfigReader *r, ModelConfig *config) {
  int active;
  TRY(reader_int(r, "altup_num_inputs", 2, MAX_STREAMS, 4, &config->altup.n));
  TRY(reader_int(r, "altup_active_idx", 0, INT32_MAX, 0, &active));
  if (active != 0)
    return reader_refuse(r, "altup_active_idx is %d, which is not supported, expected 0", active);
  return reader_int(r, "laurel_rank", 1, MAX_HIDDEN, 64, &config->altup.laurel_rank);
}

/* activation_sparsity_pattern. Without it the first ten layers are sparse if the model has more than ten. */
static Status parse_sparsity(const ConfigReader *r, ModelConfig *config) {
  static const char key[] = "activation_sparsity_pattern";
  enum { USUALLY_SPARSE = 10 };
  const Json *list = json_member(r->object, key), *item = json_first(list);
  if (list) TRY(reader_list(r, key, list, config->n_layers, "numbers (num_hidden_layers)"));
  for (int i = 0; i < config->n_layers; i++) {
    double *sparsity = &config->layers[i].sparsity;
    *sparsity = config->n_layers > USUALLY_SPARSE && i < USUALLY_SPARSE ? 0.95 : 0;
    if (list && (!json_double(item, sparsity) || !(*sparsity >= 0 && (float)*sparsity < 1)))
      return reader_refuse_item(r, key, i, item, "a number from 0 on, below 1");
    if (*sparsity > 0) config->layers[i].gate_deviations = (float)gaussian_quantile(*sparsity);
    if (list) item = json_next(item);
  }
  return STATUS_OK;
}

/* intermediate_size may be a list. */
static Status parse_widths(const ConfigReader *r, ModelConfig *config) {
  static const char key[] = "intermediate_size";
  const Json *list = json_member(r->object, key);
  int layer = 0;
  if (!json_is_array(list)) return STATUS_OK;
  TRY(reader_list(r, key, list, config->n_layers, "numbers (num_hidden_layers)"));
  for (const Json *item = json_first(list); item; item = json_next(item), layer++) {
    int64_t width;
    if (!json_int64(item, &width) || width < 1 || width > MAX_INTERMEDIATE)
      return reader_refuse_item(r, key, layer, item, "an integer from 1 to %d", MAX_INTERMEDIATE);
    config->layers[layer].intermediate = (int)width;
  }
  config->intermediate = config->layers[0].intermediate;
  return STATUS_OK;
}

Status config_parse_altup(const ConfigReader *r, const Architecture *arch, ModelConfig *config) {
  TRY(parse_streams(r, config));
  TRY(parse_sparsity(r, config));
  TRY(parse_widths(r, config));
  TRY(config_parse_shared(r, arch, config));
  return config_parse_layer_inputs(r, arch, config);
}

double gaussian_quantile(double part) {
  const double p = (float)part;
  double low = -40, high = 40;
  for (int i = 0; i < 80; i++) {
    const double middle = (low + high) / 2;
    if (erfc(-middle / sqrt(2)) / 2 < p)
      low = middle;
    else
      high = middle;
  }
  return (low + high) / 2;
}
