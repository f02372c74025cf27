/* parts.c - see parts.h. */
#include "cuda/layers/parts.h"

#include "model/layers.h"

enum { AT_A = 1 }; /* the place of a in the order of inputs, unless DeltaConfig.by_channel */

/* True if linear layer `which` multiplies the layer's input and has place i in the order below: with
 * by_channel a comes after z. With a gate_rank z and a multiply another input, with a q_rank q does. */
static bool is_input(const ModelConfig *config, int layer, int which, int i) {
  if (!layer_linear_exists(config, layer, which)) return false;
  if (which == LAYER_DELTA_A && config->delta.by_channel != (i > AT_A)) return false;
  if (which == LAYER_DELTA_A || which == LAYER_DELTA_Z) return config->delta.gate_rank == 0;
  return which != LAYER_Q || config->latent.q_rank == 0;
}

int parts_inputs(const ModelConfig *config, int layer, const ModelLayer *from,
                 const Linear *out[MAX_PROJECTIONS]) {
  static const int inputs[] = {LAYER_DELTA_B,    [AT_A] = LAYER_DELTA_A,
                               LAYER_DELTA_QKV,  LAYER_DELTA_K,
                               LAYER_DELTA_V,    LAYER_DELTA_Z_IN,
                               LAYER_DELTA_A_IN, LAYER_DELTA_Z,
                               LAYER_DELTA_A,    LAYER_CONV_IN,
                               LAYER_Q,          LAYER_K,
                               LAYER_V,          LAYER_Q_A,
                               LAYER_KV_A,       LAYER_ATTN_GATE,
                               LAYER_INDEX};
  int n = 0;
  for (size_t i = 0; i < sizeof inputs / sizeof *inputs; i++) {
    if (!is_input(config, layer, inputs[i], (int)i)) continue;
    out[n++] = layer_linear(from, inputs[i]);
    const bool more = inputs[i] == LAYER_DELTA_QKV || inputs[i] == LAYER_CONV_IN;
    for (int k = 0; more && k < 2 && from->more[k].n_out > 0; k++) out[n++] = &from->more[k];
  }
  return n;
}
