/* parts.c - see parts.h. */
#include "cuda/layers/parts.h"

#include "model/layers.h"

/* clang-format off */
const HeldMatrix held_matrices[N_HELD] = {
  {HELD_JOINED, JOINED_INPUTS},          {HELD_APART, LAYER_Q},
  {HELD_HEADS, 0},                       {HELD_APART, LAYER_DELTA_Z},
  {HELD_APART, LAYER_DELTA_A},           {HELD_ALONE, LAYER_DELTA_O},
  {HELD_ALONE, LAYER_O},                 {HELD_ROUTER, LAYER_ROUTER},
  {HELD_ROUTER, LAYER_SHARED_GATE},      {HELD_ON_DEVICE, LAYER_LATENT_IN},
  {HELD_ON_DEVICE, LAYER_LATENT_OUT},    {HELD_EXPERTS, 0},
  {HELD_JOINED, JOINED_GATE_UP},         {HELD_ALONE, LAYER_DOWN},
  {HELD_JOINED, JOINED_ATTN_MIX},        {HELD_ALONE, LAYER_ATTN_MIX_UP},
  {HELD_JOINED, JOINED_MLP_MIX},         {HELD_ALONE, LAYER_MLP_MIX_UP},
  {HELD_ALONE, LAYER_NGRAM_KEY},         {HELD_ALONE, LAYER_NGRAM_VALUE},
  {HELD_SMALL, LAYER_ALTUP_ROUTER},      {HELD_SMALL, LAYER_ALTUP_PREDICT},
  {HELD_SMALL, LAYER_ALTUP_CORRECT},     {HELD_ALONE, LAYER_LAUREL_LEFT},
  {HELD_ALONE, LAYER_LAUREL_RIGHT},      {HELD_ALONE, LAYER_INPUT_GATE},
  {HELD_ALONE, LAYER_INPUT_PROJECTION},
};
/* clang-format on */

/* The order of outputs; each list ends with N_LAYER_LINEARS. Among a layer's inputs b and a come first:
 * kernels of few tokens multiply them themselves if they are a matrix of their own (delta.h). With by_channel
 * a comes after z. */
enum { N_INPUTS = 17, AT_A = 1 };
static const int joined[N_JOINED][N_INPUTS + 1] = {
    [JOINED_INPUTS] = {LAYER_DELTA_B, [AT_A] = LAYER_DELTA_A, LAYER_DELTA_QKV, LAYER_DELTA_K, LAYER_DELTA_V,
                       LAYER_DELTA_Z_IN, LAYER_DELTA_A_IN, LAYER_DELTA_Z, LAYER_DELTA_A, LAYER_CONV_IN,
                       LAYER_Q, LAYER_K, LAYER_V, LAYER_Q_A, LAYER_KV_A, LAYER_ATTN_GATE, LAYER_INDEX,
                       N_LAYER_LINEARS},
    [JOINED_GATE_UP] = {LAYER_GATE, LAYER_UP, N_LAYER_LINEARS},
    [JOINED_ATTN_MIX] = {LAYER_ATTN_MIX_DOWN, LAYER_ATTN_INJECT, N_LAYER_LINEARS},
    [JOINED_MLP_MIX] = {LAYER_MLP_MIX_DOWN, LAYER_MLP_INJECT, N_LAYER_LINEARS},
};

bool parts_are_apart(const ModelConfig *config, int which) {
  if (which == LAYER_DELTA_A || which == LAYER_DELTA_Z) return config->delta.gate_rank > 0;
  return which == LAYER_Q && config->latent.q_rank > 0;
}

int parts_joined(const ModelConfig *config, int layer, const ModelLayer *from, int which,
                 const Linear *out[MAX_PROJECTIONS]) {
  int n = 0;
  for (int i = 0; joined[which][i] < N_LAYER_LINEARS; i++) {
    const int linear = joined[which][i];
    if (!layer_linear_exists(config, layer, linear) || parts_are_apart(config, linear) ||
        (linear == LAYER_DELTA_A && config->delta.by_channel != (i > AT_A)))
      continue;
    out[n++] = layer_linear(from, linear);
    const bool more = linear == LAYER_DELTA_QKV || linear == LAYER_CONV_IN;
    for (int k = 0; more && k < 2 && from->more[k].n_out > 0; k++) out[n++] = &from->more[k];
  }
  return n;
}
