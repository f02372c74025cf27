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

const float **parts_norm(DeviceLayer *l, int which) {
  const float **const norms[] = {&l->attn_norm,
                                 &l->attn_post_norm,
                                 &l->mlp_norm,
                                 &l->mlp_post_norm,
                                 &l->q_norm,
                                 &l->k_norm,
                                 &l->input_norm,
                                 &l->experts.norm,
                                 &l->experts.post_norm,
                                 &l->experts.shared_post_norm,
                                 &l->q_a_norm,
                                 &l->kv_a_norm,
                                 &l->index_q_norm,
                                 &l->index_k_norm,
                                 &l->ngrams.key_norm,
                                 &l->ngrams.query_norm,
                                 &l->ngrams.conv_norm,
                                 &l->altup.router_norm,
                                 &l->altup.laurel_norm};
  _Static_assert(sizeof norms / sizeof *norms == N_LAYER_NORMS, "each norm has its place");
  return norms[which];
}

const float **parts_vector(DeviceLayer *l, int which) {
  const float **const vectors[N_LAYER_VECTORS] = {[DELTA_CONV] = &l->delta.conv,
                                                  [DELTA_A_LOG] = &l->delta.a_log,
                                                  [DELTA_DT_BIAS] = &l->delta.dt_bias,
                                                  [DELTA_NORM] = &l->delta.norm,
                                                  [DELTA_CONV_BIAS] = &l->delta.conv_bias,
                                                  [DELTA_SKIP] = &l->delta.skip,
                                                  [CONV_TAPS] = &l->conv.taps,
                                                  [CONV_BIAS] = &l->conv.bias,
                                                  [NGRAM_TAPS] = &l->ngrams.taps,
                                                  [ATTN_NORM_BIAS] = &l->attn_norm_bias,
                                                  [MLP_NORM_BIAS] = &l->mlp_norm_bias,
                                                  [EXPERT_CHOICE_BIAS] = &l->experts.choice_bias,
                                                  [EXPERT_SCALES] = &l->experts.scales,
                                                  [EXPERT_ROUTER_SCALE] = &l->experts.router_scale,
                                                  [ALTUP_OUTPUT_SCALE] = &l->altup.output_scale,
                                                  [XIELU_ALPHA_P] = &l->xielu.alpha_p,
                                                  [XIELU_ALPHA_N] = &l->xielu.alpha_n,
                                                  [XIELU_BETA] = &l->xielu.beta,
                                                  [XIELU_EPS] = &l->xielu.eps};
  return vectors[which];
}

/* As in dummy.c: states forget about a tenth of what they hold with each token. */
static const VectorUse uses[N_LAYER_VECTORS] = {
    [DELTA_CONV] = {0, -0.5f, 0.5f},       [DELTA_A_LOG] = {0, 0, 1},
    [DELTA_DT_BIAS] = {0, -4, -2},         [DELTA_NORM] = {0, 1, 1},
    [DELTA_CONV_BIAS] = {0, -0.1f, 0.1f},  [DELTA_SKIP] = {0, 0, 1},
    [CONV_TAPS] = {0, -0.5f, 0.5f},        [CONV_BIAS] = {0, -0.1f, 0.1f},
    [NGRAM_TAPS] = {0, -0.5f, 0.5f},       [EXPERT_CHOICE_BIAS] = {0, -0.1f, 0.1f},
    [EXPERT_SCALES] = {0, 1, 1},           [EXPERT_ROUTER_SCALE] = {0, 1, 1},
    [ATTN_NORM_BIAS] = {0, -0.1f, 0.1f},   [MLP_NORM_BIAS] = {0, -0.1f, 0.1f},
    [ALTUP_OUTPUT_SCALE] = {0, 1, 1},      [XIELU_ALPHA_P] = {0, 0.2f, 0.2f},
    [XIELU_ALPHA_N] = {0, -1.05f, -1.05f}, [XIELU_BETA] = {0, 0.5f, 0.5f},
    [XIELU_EPS] = {0, -1e-6f, -1e-6f}};

VectorUse parts_vector_use(int which) {
  return uses[which];
}
