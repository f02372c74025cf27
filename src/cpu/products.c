/* products.c - see products.h.
 *
 * Always true: `state` belongs to this object alone; only its scratch of matmuls and of experts is used. Only
 *              models loaded here have a team. */
#include "cpu/products.h"

#include <stdlib.h>

#include "cpu/cpu.h"

struct CpuProducts {
  BackendModel *loaded;
  BackendState *state;
};

RELEASE_BY(products_release, CpuProducts, cpu_products_close)

Status cpu_products_open(const Model *model, int n_threads, int max_rows, CpuProducts **out, Error *err) {
  const BackendOptions options = {.n_threads = team_size(n_threads)};
  const StateOptions sizes = {.n_ctx = 1, .max_chunk = max_rows, .max_logit_rows = 1, .kv = KV_F16};
  OWNED(products_release) CpuProducts *made = *out = NULL;
  TRY(NEW(made, 1, "matrices on the host", err));
  TRY(cpu_backend.load(model, &options, &made->loaded, err));
  TRY(cpu_backend.open(made->loaded, &sizes, &made->state, err));
  TRY(team_open(options.n_threads, &made->loaded->team, err));
  *out = TAKE(made);
  return STATUS_OK;
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

void cpu_products_stacked(CpuProducts *products, int layer, const int *which, int n, ProductRows rows) {
  Matmul matmuls[MAX_MATMULS];
  float *y = rows.y;
  int stride = 0;
  for (int i = 0; i < n; i++) {
    const CpuLinear w = products->loaded->layers[layer].linear[which[i]];
    matmuls[i] = (Matmul){.w = w, .y = y, .y_stride = (size_t)rows.y_stride};
    y += w.linear->n_out;
    stride = cpu_padded(w.linear->n_in);
  }
  run_matmuls(products->state, rows.x, stride, rows.n_rows, matmuls, n);
}

Matmul cpu_gate_up(const BackendModel *loaded, int layer) {
  const ModelConfig *config = &loaded->model->config;
  const LayerConfig own = config_layer(config, layer);
  return (Matmul){.w = loaded->layers[layer].up,
                  .gate = loaded->layers[layer].gate,
                  .own_gate = is_ungated(config->activation),
                  .scaled = config->gate_scale != 1 || config->mlp_scale != 1,
                  .gate_scale = (float)config->gate_scale,
                  .up_scale = (float)config->mlp_scale,
                  .activation = own.activation,
                  .numbers = {(float)own.mlp_limit, loaded->layers[layer].xielu}};
}

void cpu_products_gated(CpuProducts *products, int layer, ProductRows rows) {
  Matmul matmul = cpu_gate_up(products->loaded, layer);
  matmul.y = rows.y, matmul.y_stride = (size_t)rows.y_stride;
  run_matmuls(products->state, rows.x, cpu_padded(matmul.w.linear->n_in), rows.n_rows, &matmul, 1);
}

void cpu_products_experts(CpuProducts *products, int layer, const int *ids, const float *weights,
                          ProductRows rows) {
  BackendState *state = products->state;
  const ExpertConfig *config = &products->loaded->model->config.experts;
  const int n = rows.n_rows * config->n_chosen;
  for (int i = 0; i < n; i++) {
    const bool valid = ids[i] >= 0 && ids[i] < config->n_experts;
    state->expert_choices[i] = (ExpertChoice){.expert = valid ? ids[i] : 0, .weight = weights[i]};
  }
  cpu_chosen_experts(state, rows.n_rows, layer, rows.x, rows.y, (size_t)rows.y_stride);
}
