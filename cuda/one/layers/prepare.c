/* prepare.c - see prepare.h. */
#include "cuda/one/layers/prepare.h"

#include "cuda/one/draft.h"
#include "cuda/one/weights.h"
#include "model/layers.h"

/* work() is called for each matrix. is_special: the user's choices of a kernel and of int8 activations do not
 * apply to the matrix; its activations are fp16. rows: the most rows that the matrix multiplies in a step. */
typedef struct {
  const BackendModel *model;
  int rows, logit_rows; /* the most rows, and the most rows of logits, of a step */
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

/* Visits a layer's matrices but MATRIX_ROUTER, MATRIX_SMALL and MATRIX_HEADS, which special kernels read. */
static Status visit_layer(const Visit *v, const DeviceLayer *l, Error *err) {
  for (int group = 0; group < N_JOINED; group++) TRY(visit_projections(v, &l->joined[group], v->rows, err));
  for (int which = 0; which < N_LAYER_LINEARS; which++)
    if (layer_device_matrix(&v->model->model->config, which) != MATRIX_ROUTER)
      TRY(visit(v, &l->linear[which], v->rows, err));
  if (l->experts.down.n_out == 0) return STATUS_OK;
  TRY(v->work(v->user, &l->experts.gate_up, true, v->rows, err));
  return v->work(v->user, &l->experts.down, true, v->rows, err);
}

/* Visits all matrices except those that only drafters have (draft.c), up to the first that fails. */
static Status visit_all(const Visit *v, Error *err) {
  const BackendModel *m = v->model;
  for (int i = 0; i < m->model->config.n_layers; i++) TRY(visit_layer(v, &m->layers[i], err));
  for (int i = MODEL_HEAD + 1; i < N_MODEL_LINEARS; i++)
    if (model_linear_rows(i) != ROWS_OF_DRAFT)
      TRY(visit(v, &m->model_linear[i], model_linear_rows(i) == ROWS_OF_STEP ? v->rows : v->logit_rows, err));
  return v->work(v->user, &m->head, true, v->logit_rows, err);
}

/* --- a session */

typedef struct {
  const BackendModel *model;
  bool invariant;
  bool any_quantised; /* lm_head and experts do not count: their activations stay fp16 */
} Preparation;

static Status prepare_one(void *user, const DeviceLinear *w, bool is_special, int rows, Error *err) {
  Preparation *p = user;
  p->any_quantised |= !is_special && weight_is_quantised(w->type);
  const char *kernel = p->invariant ? LINEAR_INVARIANT : is_special ? NULL : p->model->kernel;
  return linear_prepare(p->model->linear, w, is_special ? ACT_F16 : p->model->act, rows, kernel, err);
}

Status prepare_matrices(BackendModel *loaded, const StateOptions *options, Error *err) {
  Preparation own = {.model = loaded, .invariant = options->invariant};
  const Visit v = {.model = loaded,
                   .rows = options->max_chunk,
                   .logit_rows = options->max_logit_rows,
                   .work = prepare_one,
                   .user = &own};
  for (int i = 0; i < loaded->model->config.n_layers; i++)
    if (loaded->layers[i].key_halves && !options->invariant)
      linear_prepare_heads(loaded->linear, options->max_chunk);
  TRY(visit_all(&v, err));
  if (loaded->act == ACT_INT8 && !own.any_quantised && !loaded->target)
    return error_set(err, STATUS_MODEL, "--act int8 is for models with quantised layers");
  return draft_prepare(loaded, options->max_chunk, err);
}

/* --- StateOptions.invariant */

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
  Error inner;
  const Status status = linear_check_invariant(w, &look->device, &fast, &inner);
  if (status) return error_set(err, status, "--invariant: %s: %s", w->name, inner.text);
  look->fast = look->fast && fast;
  return STATUS_OK;
}

static Status look_at_all(const Model *model, int gpu, Look *look, Error *err) {
  OWNED(weights_release) BackendModel planned = {.model = model};
  const Visit v = {.model = &planned, .work = look_at, .user = look};
  look->fast = true;
  TRY(linear_device(gpu, &look->device, err));
  TRY(weights_plan(model, &planned, err));
  return visit_all(&v, err);
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
