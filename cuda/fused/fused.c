/* fused.c - see fused.h. */
#include "cuda/fused/fused.h"

#include "cuda/device.h"

/* What of a shape the chip has no part in. */
static StepShape config_shape(const ModelConfig *c) {
  return (StepShape){.hidden = c->hidden,
                     .intermediate = c->intermediate,
                     .n_layers = c->n_layers,
                     .n_heads = c->n_heads,
                     .n_kv_heads = c->n_kv_heads,
                     .vocab_size = c->vocab_size};
}

static Status shape_of(const BackendModel *loaded, StepShape *shape, Error *err) {
  const ModelConfig *c = &loaded->model->config;
  TRY(step_serves(loaded->model, err));
  if (loaded->act != ACT_F16)
    return error_set(err, STATUS_MODEL, "one kernel a step: not with int8 activations");
  if (loaded->kernel)
    return error_set(err, STATUS_USAGE,
                     "one kernel a step: not with a kernel of each layer by name (--kernel)");
  int clusters = step_clusters(loaded->gpu, loaded->shared_bytes);
  if (clusters == 0) return error_set(err, STATUS_MODEL, "one kernel a step: this GPU has no clusters");
  const int units = c->intermediate / STEP_GROUP;
  if (clusters > units) clusters = units;
  *shape = config_shape(c);
  shape->n_clusters = clusters;
  shape->shared_bytes = loaded->shared_bytes;
  return STATUS_OK;
}

static Status plan_of(const BackendModel *loaded, StepPlan *plan, Error *err) {
  StepShape shape;
  TRY(shape_of(loaded, &shape, err));
  return step_plan(&shape, plan, err);
}

Status step_model_check(const BackendModel *loaded, Error *err) {
  StepPlan plan;
  return plan_of(loaded, &plan, err);
}

bool step_model_leads(const BackendModel *loaded) {
  StepPlan plan;
  if (!step_measured(loaded->gpu) || plan_of(loaded, &plan, NULL) != STATUS_OK) return false;
  /* Only clusters with a KV head attend: 4 of 15 is the least that was measured (Qwen2.5-7B, at 512). */
  return 4 * plan.shape.n_kv_heads >= plan.shape.n_clusters;
}

size_t step_model_bytes(const ModelConfig *c) {
  const StepShape shape = config_shape(c);
  return step_bytes(&shape);
}

size_t step_model_rows_bytes(const ModelConfig *c) {
  StepRowsPlan plan = {.shape = config_shape(c)};
  size_t bytes = 0;
  for (int rows = 2; rows <= STEP_ROWS_MOST; rows *= 2) {
    plan.memory_bytes = step_rows_memory(&plan.shape, rows);
    bytes += step_rows_bytes(&plan);
  }
  return bytes;
}

static StepModel step_model(const BackendModel *loaded) {
  const Model *model = loaded->model;
  return (StepModel){.layers = loaded->layers,
                     .head = &loaded->head,
                     .final_norm = loaded->final_norm,
                     .embedding = loaded->embedding,
                     .embedding_stride = loaded->embedding_stride,
                     .embedding_type = model->embedding.dtype,
                     .embedding_scale = (float)model->config.embedding_scale,
                     .norm_eps = (float)model->config.norm_eps,
                     .attention_scale = (float)model->config.attention_scale};
}

Status step_model_open(const BackendModel *loaded, const StateOptions *options, void *memory, Step **step,
                       Error *err) {
  StepModel m = step_model(loaded);
  if (options->kv != KV_F16)
    return error_set(err, STATUS_USAGE, "one kernel a step: keys and values have to be fp16");
  TRY(plan_of(loaded, &m.plan, err));
  return step_open(&m, memory, loaded->stream, step, err);
}

Status step_model_open_rows(const BackendModel *loaded, int rows, void **memory, StepRows **step,
                            Error *err) {
  const StepModel m = step_model(loaded);
  StepShape shape;
  StepRowsPlan plan;
  *memory = NULL;
  *step = NULL;
  TRY(shape_of(loaded, &shape, err));
  if (step_rows_plan(&shape, rows, &plan, NULL) != STATUS_OK) return STATUS_OK;
  TRY(cuda_status(cudaMalloc(memory, step_rows_bytes(&plan)), "steps of several rows", err));
  return step_rows_open(&m, &plan, *memory, loaded->stream, step, err);
}
