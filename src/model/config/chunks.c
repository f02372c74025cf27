/* chunks.c - Llama 4's attention in chunks, as config.json has it: which layers have chunks, and what layers
 * with and without a rope do with queries and keys.
 *
 * Called by: config.c or positions.c through a row of architectures.c. Source:
 * transformers 5.23, models/llama4.
 * Always true afterwards: q and k are normalised, if at all, only in layers with a rope. */
#include "model/config/architectures.h"

/* layer_types: chunks or all positions; where it is absent, layers with a rope have chunks. */
static Status parse_types(const ConfigReader *r, int chunk, ModelConfig *config) {
  static const char *const names[] = {"chunked_attention", "full_attention", NULL};
  int8_t which[MAX_LAYERS];
  TRY(reader_names_of_layers(r, "layer_types", names, config->n_layers, which));
  for (int layer = 0; layer < config->n_layers; layer++) {
    LayerConfig *own = &config->layers[layer];
    own->chunk = (which[layer] < 0 ? own->rope != ROPE_NONE : which[layer] == 0) ? chunk : 0;
  }
  return STATUS_OK;
}

/* attn_temperature_tuning: true or false; the first published configs have a number, 0 for false. */
static Status parse_tuning(const ConfigReader *r, bool *tuned) {
  static const char key[] = "attn_temperature_tuning";
  int64_t number;
  if (!json_int64(json_member(r->object, key), &number)) return reader_bool(r, key, true, tuned);
  *tuned = number != 0;
  return STATUS_OK;
}

Status config_parse_chunks(const ConfigReader *r, const Architecture *arch, ModelConfig *config) {
  bool normed, tuned;
  int chunk;
  TRY(config_parse_nope_layers(r, true, config));
  if (reader_is_null(r, "attention_chunk_size"))
    return reader_refuse(r, "attention_chunk_size is null, expected a number of positions");
  TRY(reader_int(r, "attention_chunk_size", 1, MAX_POSITION, 8192, &chunk));
  TRY(parse_types(r, chunk, config));
  TRY(reader_bool(r, "use_qk_norm", true, &normed));
  if (!normed) {
    config->qk_norm = QK_NORM_NONE;
    config->qk_norm_after_rope = false;
  }
  for (int layer = 0; layer < config->n_layers; layer++)
    config->layers[layer].no_qk_norm = config->layers[layer].rope == ROPE_NONE;
  TRY(parse_tuning(r, &tuned));
  config->query_scale_nope = true;
  TRY(reader_double(r, "attn_scale", 0, 1e3, 0.1, &config->query_scale_beta));
  if (!tuned) config->query_scale_beta = 0;
  return reader_double(r, "floor_scale", 1, MAX_POSITION, 8192, &config->query_scale_step);
}
