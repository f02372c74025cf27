/* products.c - see products.h.
 *
 * Always true: `state` belongs to this object alone; of its memory only the scratch of matmuls and of experts
 *              is used. The CPU backend's own models have no team. */
#include "cpu/products.h"

#include <stdlib.h>

#include "cpu/cpu.h"
#include "model/layers.h"

struct CpuProducts {
  BackendModel *loaded;
  BackendState *state;
};

Status cpu_products_open(const Model *model, int n_threads, int max_rows, CpuProducts **out, Error *err) {
  const BackendOptions options = {.n_threads = team_size(n_threads)};
  const StateOptions sizes = {.n_ctx = 1, .max_chunk = max_rows, .max_logit_rows = 1, .kv = KV_F16};
  CpuProducts *made = *out = mem_alloc(1, sizeof *made, "matrices on the host", err);
  if (!made) return STATUS_FAILED;
  Status status = cpu_backend.load(model, &options, &made->loaded, err);
  if (!status) status = cpu_backend.open(made->loaded, &sizes, &made->state, err);
  if (!status) status = team_open(options.n_threads, &made->loaded->team, err);
  if (!status) return STATUS_OK;
  cpu_products_close(made);
  *out = NULL;
  return status;
}

void cpu_products_close(CpuProducts *products) {
  if (!products) return;
  cpu_backend.close(products->state);
  if (products->loaded) team_close(products->loaded->team);
  cpu_backend.unload(products->loaded);
  free(products);
}

const char *cpu_products_arithmetic(const CpuProducts *products) {
  return products->loaded->kernels->name;
}

int cpu_products_stride(int n) {
  return cpu_padded(n);
}

static CpuLinear linear_of(const CpuLayer *layer, int which) {
  switch (which) {
  case LAYER_Q: return layer->q;
  case LAYER_K: return layer->k;
  case LAYER_V: return layer->v;
  case LAYER_O: return layer->o;
  case LAYER_GATE: return layer->gate;
  case LAYER_UP: return layer->up;
  case LAYER_DOWN: return layer->down;
  case LAYER_Q_A: return layer->q_a;
  case LAYER_KV_A: return layer->kv_a;
  case LAYER_ATTN_GATE: return layer->attn_gate;
  case LAYER_DELTA_QKV: return layer->delta.qkv;
  case LAYER_DELTA_Z: return layer->delta.z;
  case LAYER_DELTA_B: return layer->delta.b;
  case LAYER_DELTA_A: return layer->delta.a;
  case LAYER_DELTA_K: return layer->delta.k;
  case LAYER_DELTA_V: return layer->delta.v;
  case LAYER_DELTA_Z_IN: return layer->delta.z_in;
  case LAYER_DELTA_A_IN: return layer->delta.a_in;
  case LAYER_DELTA_O: return layer->delta.o;
  case LAYER_CONV_IN: return layer->conv.in;
  case LAYER_INPUT_GATE: return layer->input_gate;
  case LAYER_INPUT_PROJECTION: return layer->input_projection;
  case LAYER_ATTN_MIX_DOWN: return layer->attn_mix.down;
  case LAYER_ATTN_MIX_UP: return layer->attn_mix.up;
  case LAYER_ATTN_INJECT: return layer->attn_mix.inject;
  case LAYER_MLP_MIX_DOWN: return layer->mlp_mix.down;
  case LAYER_MLP_MIX_UP: return layer->mlp_mix.up;
  case LAYER_MLP_INJECT: return layer->mlp_mix.inject;
  case LAYER_INDEX: return layer->index;
  case LAYER_ALTUP_ROUTER: return layer->altup.router;
  case LAYER_ALTUP_PREDICT: return layer->altup.predict;
  case LAYER_ALTUP_CORRECT: return layer->altup.correct;
  case LAYER_LAUREL_LEFT: return layer->altup.left;
  case LAYER_LAUREL_RIGHT: return layer->altup.right;
  case LAYER_NGRAM_KEY: return layer->ngrams.key;
  case LAYER_NGRAM_VALUE: return layer->ngrams.value;
  default: return (CpuLinear){0};
  }
}

void cpu_products_stacked(CpuProducts *products, int layer, const int *which, int n, ProductRows rows) {
  Matmul matmuls[MAX_MATMULS];
  float *y = rows.y;
  size_t stride = 0;
  for (int i = 0; i < n; i++) {
    const CpuLinear w = linear_of(&products->loaded->layers[layer], which[i]);
    matmuls[i] = (Matmul){.w = w, .y = y, .y_stride = (size_t)rows.y_stride};
    y += w.linear->n_out;
    stride = (size_t)cpu_padded(w.linear->n_in);
  }
  run_matmuls(products->loaded, &products->state->scratch, rows.x, stride, rows.n_rows, matmuls, n);
}

Matmul cpu_gate_up(const BackendModel *loaded, int layer) {
  const ModelConfig *config = &loaded->model->config;
  return (Matmul){.w = loaded->layers[layer].up,
                  .gate = loaded->layers[layer].gate,
                  .own_gate = config->ungated,
                  .scaled = config->gate_scale != 1 || config->mlp_scale != 1,
                  .gate_scale = (float)config->gate_scale,
                  .up_scale = (float)config->mlp_scale,
                  .activation = config->activation,
                  .xielu = loaded->layers[layer].xielu};
}

void cpu_products_gated(CpuProducts *products, int layer, ProductRows rows) {
  Matmul matmul = cpu_gate_up(products->loaded, layer);
  matmul.y = rows.y, matmul.y_stride = (size_t)rows.y_stride;
  run_matmuls(products->loaded, &products->state->scratch, rows.x, (size_t)cpu_padded(matmul.w.linear->n_in),
              rows.n_rows, &matmul, 1);
}

void cpu_products_experts(CpuProducts *products, int layer, const int *ids, const float *weights,
                          ProductRows rows) {
  BackendState *state = products->state;
  const ExpertConfig *config = &products->loaded->model->config.experts;
  const int n = rows.n_rows * config->n_chosen;
  for (int i = 0; i < n; i++) {
    const bool valid = ids[i] >= 0 && ids[i] < config->n_experts;
    state->experts.choices[i] = (ExpertChoice){.expert = valid ? ids[i] : 0, .weight = weights[i]};
  }
  cpu_chosen_experts(state, rows.n_rows, layer, rows.x, rows.y, (size_t)rows.y_stride);
}
