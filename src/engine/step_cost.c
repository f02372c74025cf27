/* step_cost.c - see step_cost.h. */
#include "engine/step_cost.h"

#include <math.h>

#include "model/layers.h"

static double vector_bytes(const Vector *vector) {
  return vector->data ? (double)vector->n * (double)dtype_bytes(vector->dtype) : 0;
}

/* Bytes of a matrix and its bias. */
static double matrix_bytes(const Linear *l) {
  return (double)linear_bytes(l) + vector_bytes(&l->bias);
}

static double linear_flop(const Linear *l, int n_rows) {
  return 2.0 * l->n_in * l->n_out * n_rows;
}

/* How many of the n_past earlier tokens a token attends to in a layer; a window counts the token itself. */
static int seen_before(const ModelConfig *config, int layer, int n_past) {
  const LayerConfig own = config_layer(config, layer);
  const int window = own.window;
  const IndexerConfig *indexer = &config->indexer;
  const int n_seen = n_past + 1; /* with the token itself */
  if (indexer->block && n_seen / indexer->block > indexer->budget / indexer->block)
    return indexer->budget + n_seen % indexer->block - 1;
  if (own.chunk > 0) return n_past % own.chunk;
  return window > 0 && window - 1 < n_past ? window - 1 : n_past;
}

/* Flops of the scores and of the weighted sum of values, for all heads and rows. */
static double attention_flop(const ModelConfig *c, int layer, int n_past, int n_rows) {
  double seen = 0;
  for (int row = 0; row < n_rows; row++) seen += seen_before(c, layer, n_past + row) + 1;
  const LayerConfig own = config_layer(c, layer);
  return 4.0 * own.n_heads * own.head_dim * seen;
}

/* Bytes of the keys and values that a token attends to. An indexer also reads one index key per block. */
static double cache_bytes(const ModelConfig *c, int layer, int n_past, KvType kv) {
  const LayerConfig own = config_layer(c, layer);
  const double token = (double)kv_token_bytes(c, own.kv_layer, kv), seen = seen_before(c, layer, n_past);
  if (!c->indexer.block) return seen * token;
  const double head = token / own.n_cache_heads, number = head / (2.0 * own.head_dim);
  return seen * head * own.n_kv_heads + (double)(n_past / c->indexer.block) * c->indexer.head_dim * number;
}

/* Flops of a layer's recurrent state. Short convolution: each tap and two gates. Delta rule: each tap of its
 * convolution; for each number of the state a product with k (not in Mamba-2), the decay, what k adds, and a
 * product with q. */
static double state_flop(const ModelConfig *config, int layer, int n_rows) {
  const DeltaConfig *delta = &config->delta;
  if (config_layer(config, layer).kind == LAYER_CONV)
    return 2.0 * (config->conv.taps + 1) * config->hidden * n_rows;
  const double taps = (double)delta->conv * delta_channels(delta),
               cells = (double)delta->n_value_heads * delta->key_dim * delta->value_dim;
  return (2 * taps + (delta->rule == RULE_MAMBA2 ? 5 : 7) * cells) * n_rows;
}

/* The number of experts that n_rows tokens are expected to read if all experts are equally likely. */
static double experts_read(const ExpertConfig *experts, int n_rows) {
  const double n = experts->n_experts, missed = 1 - experts->n_chosen / n;
  return n_rows == 1 ? experts->n_chosen : n * (1 - pow(missed, n_rows));
}

/* The layer whose tensors this layer reads: itself, or an earlier one that it runs again. */
static int stored_layer(const ModelConfig *config, int layer) {
  return layer - config_layer(config, layer).back;
}

/* Adds the bytes and flops of a layer's matrices. Only the experts that are read count, each with the average
 * size. n_ended: the rows that are multiplied by the matrices after attention (or a recurrence). */
static void add_linears(const Model *model, int index, int n_rows, int n_ended, StepCost *cost) {
  const ExpertConfig *experts = &model->config.experts;
  double bytes = 0, flop = 0;
  for (int which = 0; which < layer_linear_count(&model->config, index); which++) {
    const Linear *linear = layer_linear(&model->layers[index], which);
    const bool ends = layer_tensor_operation(&model->config, index, false, which) >= OP_OUT_PROJ;
    const int n = ends ? n_ended : n_rows;
    if (n == 0) continue;
    if (which < N_LAYER_LINEARS) {
      cost->bytes += matrix_bytes(linear);
      cost->flop += linear_flop(linear, n);
    } else {
      bytes += matrix_bytes(linear) / experts->n_experts;
      flop += linear_flop(linear, n) / experts->n_experts;
    }
  }
  if (bytes == 0) return;
  cost->bytes += bytes * experts_read(experts, n_ended);
  cost->flop += flop * experts->n_chosen;
}

StepCost step_cost(const Model *model, KvType kv, int n_past, int n_rows, int n_logit_rows) {
  const ModelConfig *c = &model->config;
  StepCost cost = {0};
  for (const Matrix *table = model->table; table < model->table + N_MODEL_TABLES; table++)
    cost.bytes += (double)n_rows * table->n_columns * (double)dtype_bytes(table->dtype);
  for (int which = 0; which < N_MODEL_LINEARS; which++) {
    const int n = model_linear_rows(which) == ROWS_OF_LOGITS ? n_logit_rows : n_rows;
    if (n == 0 || model_linear_rows(which) == ROWS_OF_DRAFT) continue;
    cost.bytes += matrix_bytes(&model->linear[which]);
    cost.flop += linear_flop(&model->linear[which], n);
  }
  for (int i = 0; i < c->n_layers; i++) {
    const int stored = stored_layer(c, i);
    const ModelLayer *layer = &model->layers[stored];
    add_linears(model, stored, n_rows, i == c->n_layers - 1 && program_has_cut(c) ? n_logit_rows : n_rows,
                &cost);
    for (int which = 0; which < N_LAYER_VECTORS; which++) cost.bytes += vector_bytes(&layer->vector[which]);
    const LayerConfig own = config_layer(c, i);
    if (layer_has(own, LAYER_DELTA) || own.kind == LAYER_CONV) {
      cost.bytes += (double)config_state_numbers(c, i) * sizeof(float);
      cost.flop += state_flop(c, i, n_rows);
    }
    if (own.kind == LAYER_ATTENTION) {
      cost.bytes += cache_bytes(c, i, n_past, kv);
      cost.flop += attention_flop(c, i, n_past, n_rows);
    }
  }
  for (int i = 0; i < c->n_layers; i++) {
    const ModelLayer *layer = &model->layers[i];
    if (layer->n_shards > 0)
      cost.bytes += (double)n_rows * c->ngrams.width * (double)dtype_bytes(layer->shards->rows.dtype);
  }
  for (int which = 0; which < N_MODEL_VECTORS; which++)
    if (model_vector_rows(which) == ROWS_OF_STEP ||
        (model_vector_rows(which) == ROWS_OF_LOGITS && n_logit_rows > 0))
      cost.bytes += vector_bytes(&model->vector[which]);
  return cost;
}

double step_host_bytes(const Model *model, int host_experts, int host_layers) {
  const ModelConfig *c = &model->config;
  double bytes = 0;
  for (int i = 0; i < c->n_layers; i++) {
    const int stored = stored_layer(c, i);
    for (int which = 0; which < layer_linear_count(c, stored); which++) {
      const double all = matrix_bytes(layer_linear(&model->layers[stored], which));
      if (which >= N_LAYER_LINEARS && stored >= c->n_layers - host_experts)
        bytes += all * c->experts.n_chosen / c->experts.n_experts;
      if (layer_device_matrix(c, which) < MATRIX_ON_DEVICE && stored >= c->n_layers - host_layers)
        bytes += all;
    }
  }
  return bytes;
}

double kv_cache_bytes(const ModelConfig *config, KvType kv, int n) {
  double bytes = 0;
  for (int layer = 0; layer < config->n_layers; layer++)
    bytes += n * (double)kv_token_bytes(config, layer, kv);
  return bytes;
}
