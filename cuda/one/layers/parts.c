/* parts.c - see parts.h. */
#include "cuda/one/layers/parts.h"

#include "model/layers.h"

enum { N_INPUTS = 17, AT_A = 1 };
/* The matrices (HELD_JOINED or HELD_APART) of each DeviceLayer.joined, in the order of outputs. Each list
 * ends with N_LAYER_LINEARS. In JOINED_INPUTS delta_b and delta_a come first. If these two form a separate
 * matrix, the delta rule's kernels of few tokens compute its product, too (delta.h). With RULE_KIMI delta_a
 * comes after delta_z. */
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
        (linear == LAYER_DELTA_A && (config->delta.rule == RULE_KIMI) != (i > AT_A)))
      continue;
    out[n++] = layer_linear(from, linear);
    const bool more = linear == LAYER_DELTA_QKV || linear == LAYER_CONV_IN;
    for (int k = 0; more && k < 2 && from->more[k].n_out > 0; k++) out[n++] = &from->more[k];
  }
  return n;
}

/* --- latent attention: heads' matrices in fp16 */

static bool has_latent(const ModelConfig *c, int layer) {
  return c->latent.kv_rank > 0 && config_layer(c, layer).kind == LAYER_ATTENTION;
}

/* Memory for heads' matrices in fp16: the weights themselves if they are fp16 with this stride. */
static const void *halves_of(const DeviceLinear *heads, DeviceArena *arena) {
  const size_t stride = linear_heads_stride(heads->n_in);
  if (heads->type == WEIGHT_F16 && heads->stride == stride) return heads->dense;
  return arena_take(arena, (size_t)heads->n_out, 2 * stride);
}

void parts_place_halves(BackendModel *loaded, DeviceArena *arena) {
  const ModelConfig *c = &loaded->model->config;
  for (int i = 0; i < c->n_layers; i++) {
    if (!has_latent(c, i)) continue;
    DeviceLayer *l = &loaded->layers[i];
    l->key_halves = halves_of(&l->key_heads, arena);
    l->value_halves = halves_of(&l->value_heads, arena);
  }
}

static Status fill_halves(const BackendModel *loaded, const DeviceLinear *heads, const void *halves,
                          Error *err) {
  if (halves == heads->dense) return STATUS_OK;
  return linear_fill_heads(heads, (void *)halves, loaded->stream, err);
}

Status parts_fill_halves(BackendModel *loaded, Error *err) {
  const ModelConfig *c = &loaded->model->config;
  for (int i = 0; i < c->n_layers; i++) {
    const DeviceLayer *l = &loaded->layers[i];
    if (!has_latent(c, i)) continue;
    TRY(fill_halves(loaded, &l->key_heads, l->key_halves, err));
    TRY(fill_halves(loaded, &l->value_heads, l->value_halves, err));
  }
  return STATUS_OK;
}
