/* prepare.c - see prepare.h.   Calls: linear.h, weights.h, draft.h. */
#include "cuda/layers/prepare.h"

#include "cuda/draft.h"
#include "cuda/weights.h"

/* A function that is called for each matrix. `is_special`: neither the matrix's kernel nor the type of its
 * activations, which is fp16, is the user's choice. rows: the most that it meets in a step. */
typedef struct {
  const BackendModel *model;
  int rows, logit_rows; /* the most rows of a step, and those whose logits it makes */
  Status (*work)(void *user, const DeviceLinear *w, bool is_special, int rows, Error *err);
  void *user;
} Visit;

static Status visit(const Visit *v, const DeviceLinear *w, int rows, Error *err) {
  return w->n_out > 0 ? v->work(v->user, w, false, rows, err) : STATUS_OK;
}

static Status visit_projections(const Visit *v, const DeviceProjections *p, int rows, Error *err) {
  for (int i = 0; i < p->n_parts; i++) TRY(visit(v, &p->parts[i], rows, err));
  return STATUS_OK;
}

static Status visit_mix(const Visit *v, const DeviceMix *mix, int rows, Error *err) {
  TRY(visit_projections(v, &mix->in, rows, err));
  return visit(v, &mix->up, rows, err);
}

static Status visit_experts(const Visit *v, const DeviceExperts *e, Error *err) {
  if (e->down.n_out == 0) return STATUS_OK;
  TRY(v->work(v->user, &e->gate_up, true, v->rows, err));
  TRY(v->work(v->user, &e->down, true, v->rows, err));
  TRY(visit(v, &e->latent_in, v->rows, err));
  return visit(v, &e->latent_out, v->rows, err);
}

static Status visit_layer(const Visit *v, int layer, Error *err) {
  const ModelConfig *c = &v->model->model->config;
  const DeviceLayer *l = &v->model->layers[layer];
  TRY(visit_projections(v, &l->qkv, v->rows, err));
  const DeviceLinear *const own[] = {&l->q, &l->delta_z, &l->delta_a, &l->o};
  for (size_t i = 0; i < sizeof own / sizeof *own; i++) TRY(visit(v, own[i], v->rows, err));
  TRY(visit_projections(v, &l->gate_up, v->rows, err));
  if (l->gate_up.n_parts > 0) TRY(visit(v, &l->down, v->rows, err));
  TRY(visit_experts(v, &l->experts, err));
  if (c->per_layer_width > 0) {
    TRY(visit(v, &l->input_gate, v->rows, err));
    TRY(visit(v, &l->input_projection, v->rows, err));
  }
  if (c->altup.n > 0) {
    TRY(visit(v, &l->laurel_left, v->rows, err));
    TRY(visit(v, &l->laurel_right, v->rows, err));
  }
  if (c->streams.n == 0) return STATUS_OK;
  TRY(visit_mix(v, &l->attn_mix, v->rows, err));
  TRY(visit_mix(v, &l->mlp_mix, v->rows, err));
  if (!config_layer(c, layer).ngrams) return STATUS_OK;
  TRY(visit(v, &l->ngram_key, v->rows, err));
  return visit(v, &l->ngram_value, v->rows, err);
}

/* All matrices, up to the first that fails. */
static Status visit_all(const Visit *v, Error *err) {
  const BackendModel *m = v->model;
  const ModelConfig *c = &m->model->config;
  for (int i = 0; i < c->n_layers; i++) TRY(visit_layer(v, i, err));
  if (c->per_layer_width > 0) TRY(visit(v, &m->input_projection, v->rows, err));
  if (c->streams.n > 0) TRY(visit_mix(v, &m->mix, v->logit_rows, err));
  for (int i = 0; i + 1 < c->altup.n; i++) {
    TRY(visit(v, &m->streams_in[i], v->rows, err));
    TRY(visit(v, &m->streams_out[i], v->logit_rows, err));
  }
  return v->work(v->user, &m->head, true, v->logit_rows, err);
}

/* --- a session */

typedef struct {
  const BackendModel *model;
  bool invariant;
} Preparation;

static Status prepare_one(void *user, const DeviceLinear *w, bool is_special, int rows, Error *err) {
  const Preparation *p = user;
  const char *kernel = p->invariant ? LINEAR_INVARIANT : is_special ? NULL : p->model->kernel;
  return linear_prepare(p->model->linear, w, is_special ? ACT_F16 : p->model->act, rows, kernel, err);
}

Status prepare_matrices(BackendModel *loaded, const StateOptions *options, Error *err) {
  Preparation own = {loaded, options->invariant};
  const Visit v = {.model = loaded,
                   .rows = options->max_chunk,
                   .logit_rows = options->max_logit_rows,
                   .work = prepare_one,
                   .user = &own};
  for (int i = 0; i < loaded->model->config.n_layers; i++)
    if (loaded->layers[i].key_halves && !options->invariant)
      linear_prepare_heads(loaded->linear, options->max_chunk);
  TRY(visit_all(&v, err));
  return draft_prepare(loaded, options->max_chunk, err);
}

/* --- one order of sums */

Status prepare_check_options(bool int8_activations, const char *kernel, bool on_host, int split, Error *err) {
  const char *what = int8_activations ? "int8 activations"
                     : kernel         ? "a kernel of your choice"
                     : on_host        ? "weights that the CPU multiplies"
                     : split > 1      ? "layers that several GPUs share"
                                      : NULL;
  return what ? error_set(err, STATUS_MODEL, "--invariant does not go with %s on a GPU", what) : STATUS_OK;
}

/* The result of looking at all matrices. */
typedef struct {
  DeviceLimits device;
  bool fast; /* all have fast kernels */
} Look;

static Status look_at(void *user, const DeviceLinear *w, bool is_special, int rows, Error *err) {
  Look *look = user;
  bool fast;
  (void)is_special, (void)rows;
  Error inner;
  const Status status = linear_check_invariant(w, &look->device, &fast, &inner);
  if (status) return error_set(err, status, "--invariant: %s: %s", w->name, inner.text);
  look->fast = look->fast && fast;
  return STATUS_OK;
}

static Status look_at_all(const Model *model, int gpu, Look *look, Error *err) {
  BackendModel planned = {.model = model};
  const Visit v = {.model = &planned, .work = look_at, .user = look};
  look->fast = true;
  TRY(linear_device(gpu, &look->device, err));
  Status status = weights_plan(model, &planned, err);
  if (status == STATUS_OK) status = visit_all(&v, err);
  weights_release(&planned);
  return status;
}

Status prepare_check_invariant(const Model *model, const BackendOptions *options, Error *err) {
  Look look;
  TRY(prepare_check_options(options->int8_activations, options->kernel, false, options->split, err));
  return look_at_all(model, options->gpu, &look, err);
}

bool prepare_prefers_invariant(const Model *model, const BackendOptions *options) {
  Look look;
  Error unused;
  return look_at_all(model, options->gpu, &look, &unused) == STATUS_OK && look.fast;
}
