/* parts.c - see parts.h. */
#include "cuda/one/layers/parts.h"

#include "model/layers.h"

int parts_joined(const ModelConfig *config, int layer, const ModelLayer *from, int which,
                 const Linear *out[MAX_PROJECTIONS]) {
  /* list `which` has the matrices from first[which] up to, but not including, first[which + 1] */
  static const DeviceMatrix first[N_JOINED + 1] = {MATRIX_DELTA_B_A, MATRIX_GATE_UP, MATRIX_ATTN_MIX,
                                                   MATRIX_MLP_MIX, MATRIX_ON_DEVICE};
  int n = 0;
  for (DeviceMatrix matrix = first[which]; matrix < first[which + 1]; matrix++)
    for (int linear = 0; linear < N_LAYER_LINEARS; linear++) {
      if (layer_device_matrix(config, linear) != matrix || !layer_linear_exists(config, layer, linear))
        continue;
      out[n++] = layer_linear(from, linear);
      const Division division = layer_linear_division(linear);
      const bool more = division == DIVIDE_KEY_RUNS || division == DIVIDE_CHANNEL_RUNS;
      for (int k = 0; more && k < 2 && from->more[k].n_out > 0; k++) out[n++] = &from->more[k];
    }
  return n;
}

/* --- latent attention: heads' matrices in fp16 */

/* Memory for heads' matrices in fp16: the weights themselves if they are fp16 with this stride. */
static const void *halves_of(const DeviceLinear *heads, DeviceArena *arena) {
  const size_t stride = linear_heads_stride(heads->n_in);
  if (heads->type == WEIGHT_F16 && heads->stride == stride) return heads->dense;
  return arena_reserve(arena, (size_t)heads->n_out, 2 * stride);
}

void parts_reserve_halves(BackendModel *loaded, DeviceArena *arena) {
  const ModelConfig *c = &loaded->model->config;
  for (int i = 0; i < c->n_layers; i++) {
    if (!config_layer(c, i).latent) continue;
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
    if (!config_layer(c, i).latent) continue;
    TRY(fill_halves(loaded, &l->key_heads, l->key_halves, err));
    TRY(fill_halves(loaded, &l->value_heads, l->value_halves, err));
  }
  return STATUS_OK;
}
