/* fused.c - see fused.h. */
#include "cuda/one/fused.h"

#include <stdlib.h>

#include "cuda/kernels/fused/halves.h"
#include "cuda/kernels/fused/screen/screen.h"
#include "cuda/kernels/ptx/device.h"
#include "cuda/one/step_models.h"

/* The copy of lm_head in 8 bits is made if this many times its bytes are free. */
enum { SCREEN_MARGIN = 8 };

struct FusedStep {
  Step *steps[STEP_KERNELS]; /* for up to 1, 2, 4 and 8 tokens, or NULL */
  void *memory[STEP_KERNELS];
  const DeviceLinear *head;
  StepShape shape; /* step_shape() of the config */
  bool demanded;
};

static Status plan_of(const BackendModel *loaded, KvType kv, int tokens, StepPlan *plan, Error *err) {
  StepShape shape = step_shape(&loaded->model->config);
  TRY(step_supports(loaded->model, err));
  shape.group = step_group(loaded->model);
  shape.attn_group = step_attn_group(loaded->model);
  shape.vocab_size = loaded->model->head.n_out; /* with several GPUs: the rows of this GPU */
  shape.q8 = kv == KV_Q8;
  if (loaded->act != ACT_F16)
    return error_set(err, STATUS_MODEL, "one kernel a step: not with int8 activations");
  if (loaded->kernel)
    return error_set(err, STATUS_USAGE,
                     "one kernel a step: not with a kernel of each layer by name (--kernel)");
  const int clusters = step_clusters(loaded->gpu, loaded->shared_bytes);
  if (clusters == 0) return error_set(err, STATUS_MODEL, "one kernel a step: this GPU has no clusters");
  const int ffn_blocks = shape.intermediate / step_features(&shape);
  shape.n_clusters = clusters < ffn_blocks ? clusters : ffn_blocks;
  shape.shared_bytes = loaded->shared_bytes;
  return step_plan(&shape, tokens, plan, err);
}

Status fused_check(const BackendModel *loaded, Error *err) {
  StepPlan plan;
  return plan_of(loaded, KV_F16, 1, &plan, err);
}

bool fused_preferred(const BackendModel *loaded) {
  StepPlan plan;
  if (!step_measured(loaded->gpu) || plan_of(loaded, KV_F16, 1, &plan, NULL) != STATUS_OK) return false;
  /* At least a quarter of the step's clusters compute attention. The least that was measured is 4 of 15
   * (Qwen2.5-7B, 512 positions). */
  return 4 * plan.attending >= plan.shape.n_clusters;
}

int fused_clusters(const BackendModel *loaded) {
  StepPlan plan;
  return plan_of(loaded, KV_F16, 1, &plan, NULL) == STATUS_OK ? plan.shape.n_clusters : 0;
}

/* Converts a matrix in bf16 to fp16. If fp16 cannot hold its numbers, separate kernels will run; with
 * `demanded` it is an error. each_row: see linear_to_halves(). */
static Status halve(BackendModel *loaded, DeviceLinear *matrix, const char *what, bool each_row,
                    bool demanded, Error *err) {
  if (loaded->decode_step == DECODE_KERNELS || matrix->type != WEIGHT_BF16) return STATUS_OK;
  bool done;
  TRY(linear_to_halves(matrix, each_row, loaded->stream, &done, err));
  if (done) return STATUS_OK;
  loaded->decode_step = DECODE_KERNELS;
  if (!demanded) return STATUS_OK;
  return error_set(err, STATUS_MODEL, "one kernel a step: %s has numbers that fp16 does not hold", what);
}

static Status halve_head(BackendModel *loaded, bool demanded, Error *err) {
  const bool tied = loaded->embedding == loaded->head.dense; /* a row is a token's embedding, too */
  TRY(halve(loaded, &loaded->head, "lm_head", tied, demanded, err));
  if (tied && loaded->head.type == WEIGHT_F16) loaded->embedding_type = DTYPE_F16;
  return STATUS_OK;
}

/* Converts to fp16 the layers' matrices in bf16 that the fused step reads. */
static Status halve_layers(BackendModel *loaded, bool demanded, Error *err) {
  const bool all = step_group(loaded->model) == STEP_HALF_GROUP;
  if (!all && step_attn_group(loaded->model) != STEP_HALF_GROUP) return STATUS_OK;
  for (int i = 0; i < loaded->model->config.n_layers; i++) {
    DeviceLayer *l = &loaded->layers[i];
    DeviceLinear *const matrices[] = {&l->qkv.parts[0], &l->o, &l->gate_up.parts[0], &l->down};
    for (size_t j = 0; j < (all ? sizeof matrices / sizeof *matrices : 2); j++)
      TRY(halve(loaded, matrices[j], matrices[j]->name, false, demanded, err));
  }
  return STATUS_OK;
}

/* Makes lm_head in 8 bits if a step of one token can use it and the GPU has plenty of memory. It only saves
 * time, so a step without it is no failure. */
static Status make_screen(BackendModel *loaded, Error *err) {
  StepPlan plan;
  size_t free_bytes, all;
  if (loaded->decode_step == DECODE_KERNELS || plan_of(loaded, KV_F16, 1, &plan, NULL)) return STATUS_OK;
  const size_t bytes = screen_bytes(&plan.shape);
  if (cudaMemGetInfo(&free_bytes, &all) || free_bytes < SCREEN_MARGIN * bytes ||
      cudaMalloc(&loaded->screen, bytes)) {
    cudaGetLastError();
    loaded->screen = NULL;
    return STATUS_OK;
  }
  return screen_make(&loaded->head, loaded->screen, loaded->stream, err);
}

Status fused_prepare(BackendModel *loaded, bool demanded, Error *err) {
  TRY(halve_head(loaded, demanded, err));
  TRY(halve_layers(loaded, demanded, err));
  return make_screen(loaded, err);
}

void fused_release_screen(BackendModel *loaded) {
  cudaFree(loaded->screen);
  loaded->screen = NULL;
}

size_t fused_bytes(const ModelConfig *c) {
  StepShape shape = step_shape(c);
  size_t bytes = 0;
  if (step_supports_config(c, NULL)) return 0;
  shape.group = STEP_HALF_GROUP; /* the config names no group; fp16 takes the most bytes */
  for (int i = 0; i < STEP_KERNELS; i++) bytes += step_bytes(&shape, 1 << i);
  return bytes;
}

StepLayer fused_layer(const DeviceLayer *l) {
  const bool experts = l->experts.down.n_out > 0;
  return (StepLayer){
      .qkv = l->qkv.parts,
      .n_qkv = l->qkv.n_parts,
      .gate_up = experts ? &l->experts.gate_up : &l->gate_up.parts[0],
      .down = experts ? &l->experts.down : &l->down,
      .o = &l->o,
      .router = &l->router,
      .shared_gate = &l->shared_gate,
      .attn_norm = l->attn_norm,
      .mlp_norm = l->mlp_norm,
      .q_norm = l->q_norm,
      .k_norm = l->k_norm,
      .sinks = l->sinks,
      .choice_bias = l->choice_bias,
      .delta = {l->delta_conv, l->delta_a_log, l->delta_dt_bias, l->delta_norm, l->qkv.parts[0].dense},
      .q_b = &l->q,
      .q_a_norm = l->q_a_norm,
      .kv_a_norm = l->kv_a_norm,
      .key_halves = l->key_halves,
      .value_halves = l->value_halves};
}

static Status open_kernel(const BackendModel *loaded, const StepPlan *plan, StepTaps taps, bool several,
                          void **memory, Step **step, Error *err) {
  const ModelConfig *config = &loaded->model->config;
  OWNED(mem_release) StepLayer *layers = NULL;
  TRY(NEW(layers, (size_t)config->n_layers, "fused steps", err));
  for (int i = 0; i < config->n_layers; i++) layers[i] = fused_layer(&loaded->layers[i]);
  StepModel model = {.layers = layers,
                     .lm_head = &loaded->head,
                     .final_norm = loaded->final_norm,
                     .embedding = loaded->embedding,
                     .embedding_stride = loaded->embedding_stride,
                     .embedding_type = loaded->embedding_type,
                     .embedding_scale = (float)config->embedding_scale,
                     .norm_eps = (float)config->norm_eps,
                     .attention_scale = (float)config->attention_scale,
                     .delta = &config->delta,
                     .renormalise = config->experts.renormalise,
                     .sum_plus = (float)config->experts.sum_plus,
                     .expert_scale = (float)config->experts.scale,
                     .neighbours = config->rope.neighbours,
                     .taps = taps,
                     .several = several,
                     .screen = loaded->screen};
  model.windows = step_windows(config, &model.window);
  TRY(cuda_status(cudaMalloc(memory, step_bytes(&plan->shape, plan->tokens)), "no memory for fused steps",
                  err));
  return step_open(&model, plan, *memory, loaded->stream, step, err);
}

/* True if the fused step can keep hidden states for a drafter (TapList); otherwise separate kernels do it. */
static bool keeps_taps(const BackendModel *loaded, KvType kv) {
  StepPlan plan;
  return plan_of(loaded, kv, 1, &plan, NULL) == STATUS_OK && step_keeps_taps(&plan.shape);
}

RELEASE_BY(fused_release, FusedStep, fused_close)

Status fused_open(const BackendModel *loaded, const StateOptions *options, float *taps, FusedStep **out,
                  Error *err) {
  *out = NULL;
  if (options->kv == KV_F32)
    return error_set(err, STATUS_USAGE, "one kernel a step: keys and values have to be fp16 or q8");
  if (options->taps.n > 0 && !keeps_taps(loaded, options->kv)) {
    if (loaded->decode_step != DECODE_FUSED) return STATUS_OK;
    return error_set(err, STATUS_USAGE,
                     "one kernel a step: drafters want groups and heads of 128 and --kv f16");
  }
  StepTaps to = {.rows = taps, .n = options->taps.n};
  for (int i = 0; i < to.n; i++) to.layers |= UINT64_C(1) << options->taps.layers[i];
  OWNED(fused_release) FusedStep *f = NULL;
  TRY(NEW(f, 1, "fused steps", err));
  f->shape = step_shape(&loaded->model->config);
  f->demanded = loaded->decode_step == DECODE_FUSED;
  f->head = &loaded->head;
  for (int i = 0; i < STEP_KERNELS && options->max_chunk > 1 << i >> 1; i++) {
    StepPlan plan;
    const bool wanted = i == 0 && f->demanded;
    const Status status = plan_of(loaded, options->kv, 1 << i, &plan, wanted ? err : NULL);
    if (wanted) TRY(status);
    if (!status)
      TRY(open_kernel(loaded, &plan, to, options->n_sequences > 1, &f->memory[i], &f->steps[i], err));
  }
  *out = TAKE(f);
  return STATUS_OK;
}

uint64_t *fused_mail(const FusedStep *f) {
  return f && f->steps[0] ? step_mail(f->steps[0]) : NULL;
}

void fused_connect(FusedStep *f, const StepPeers *peers) {
  step_connect(f->steps[0], peers);
}

void fused_close(FusedStep *f) {
  if (!f) return;
  for (int i = 0; i < STEP_KERNELS; i++) {
    step_close(f->steps[i]);
    cudaFree(f->memory[i]);
  }
  free(f);
}

/* The kernel for n_tokens or, if it is not open, for the fewest tokens above that; NULL: there is none. */
static const Step *step_for(const FusedStep *f, int n_tokens) {
  for (int i = 0; f && i < STEP_KERNELS; i++)
    if (n_tokens <= 1 << i && f->steps[i]) return f->steps[i];
  return NULL;
}

bool fused_supports(const FusedStep *f, TokenRange span) {
  return step_for(f, span.n_tokens) != NULL && step_reaches(&f->shape, f->demanded, span.pos);
}

bool fused_leaves_pick(const FusedStep *f) {
  return f && f->steps[0] && step_leaves_pick(f->steps[0]);
}

bool fused_screens(const FusedStep *f) {
  return f && f->steps[0] && step_screens(f->steps[0]);
}

size_t fused_head_spares(const FusedStep *f, int pos) {
  const TokenRange one = {.pos = pos, .n_tokens = 1};
  if (!fused_screens(f) || !fused_supports(f, one)) return 0;
  const size_t inputs = (size_t)f->head->n_in, rows = (size_t)f->head->n_out;
  return rows * (2 * inputs - (inputs + STEP_SCREEN_TAIL));
}

Status fused_all_logits(const FusedStep *f, const void *head_x, float *logits, cudaStream_t stream,
                        Error *err) {
  return screen_all_logits(f->head, head_x, logits, stream, err);
}

Status fused_pick(const FusedStep *f, StepPick pick, cudaStream_t stream, Error *err) {
  return step_pick(f->steps[0], pick, stream, err);
}

Status fused_run(const FusedStep *f, const StepCall *call, cudaStream_t stream, Error *err) {
  return step_run(step_for(f, call->n_tokens), call, NULL, stream, err);
}
