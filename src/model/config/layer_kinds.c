/* layer_kinds.c - the token mixers and windows of layers, by their names in layer_types or by a pattern.
 *
 * Called by: delta.c, mamba.c, short_conv.c. */
#include "model/config/architectures.h"

#include <string.h>

/* The letter of a layer where layer_types is absent. */
static char usual_letter(const LayerKinds *kinds, int layer) {
  if (kinds->period > 0) return (layer + 1) % kinds->period == 0 ? 'f' : kinds->letters[0];
  const int n = (int)strlen(kinds->usual), once = kinds->n_once;
  return kinds->usual[layer < n ? layer : once + (layer - once) % (n - once)];
}

Status config_parse_kinds(const ConfigReader *r, const LayerKinds *kinds, int window, ModelConfig *config) {
  int8_t which[MAX_LAYERS];
  TRY(reader_names_of_layers(r, "layer_types", kinds->names, config->n_layers, which));
  for (int i = 0; i < config->n_layers; i++) {
    LayerConfig *own = &config->layers[i];
    const char letter = which[i] < 0 ? usual_letter(kinds, i) : kinds->letters[which[i]];
    own->kind = letter == 'd' ? LAYER_DELTA : letter == 'c' ? LAYER_CONV : LAYER_ATTENTION;
    own->window = letter == 'w' ? window : 0;
  }
  return STATUS_OK;
}

Status config_parse_attention_list(const ConfigReader *r, const char *key, bool bounded, LayerKind other,
                                   ModelConfig *config) {
  bool listed[MAX_LAYERS];
  TRY(reader_numbers_of_layers(r, key, 0, config->n_layers, bounded, listed));
  for (int i = 0; i < config->n_layers; i++) config->layers[i].kind = listed[i] ? LAYER_ATTENTION : other;
  return STATUS_OK;
}
