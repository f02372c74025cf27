/* narrow.c - see narrow.h.
 *
 * Always true: planes of h are read by the operation after the one that made them (BackendState.ready),
 *              planes of a and g by the layer's next matmul. */
#include "cuda/one/layers/narrow.h"

#include "cuda/one/residual.h"
#include "cuda/one/weights.h"

/* Where no fused step runs, five kernels a layer are the fastest for LEAST_ROWS to MOST_ROWS rows (LOG.md, "A
 * layer as five kernels"). More rows are faster by narrow_wgmma. If the layer's o has fewer than FEW_WEIGHTS
 * weights, MOST_ROWS_OF_FEW_WEIGHTS takes the place of MOST_ROWS. (Qwen3-8B's o has FEW_WEIGHTS weights.) */
enum {
  LEAST_ROWS = 2,
  MOST_ROWS = LINEAR_MOST_PLANES,
  MOST_ROWS_OF_FEW_WEIGHTS = 16,
  FEW_WEIGHTS = 16 << 20
};

static int most_rows(const DeviceLayer *l) {
  const long weights = (long)l->o.n_in * l->o.n_out;
  return weights < FEW_WEIGHTS ? MOST_ROWS_OF_FEW_WEIGHTS : MOST_ROWS;
}

/* True if planes_wgmma can multiply by the matrix. 128 inputs, which share a scale of x, must lie in one
 * group. */
static bool is_narrow(const BackendModel *m, const DeviceLinear *w) {
  const LinearEntry *entry;
  return w->group % 128 == 0 && w->n_experts == 0 && !w->host && !weights_order(m, w) &&
         linear_choice(m->linear, w, m->act, LEAST_ROWS, "planes_wgmma", &entry, NULL) == STATUS_OK;
}

/* True if planes_wgmma can compute the layer's MLP, too. PRECOND the layer has no experts. */
static bool supports_mlp(const BackendState *s, int layer) {
  const BackendModel *m = s->loaded;
  const DeviceLayer *l = &m->layers[layer];
  if (l->gate_up.n_parts != 1 || !l->gate_up.parts[0].interleaved) return false;
  return is_narrow(m, l->gate_up.parts) && is_narrow(m, &l->down);
}

bool narrow_three_kernels(const BackendState *s, int layer, int n_rows) {
  const BackendModel *m = s->loaded;
  const DeviceLayer *l = &m->layers[layer];
  if (n_rows < LEAST_ROWS || n_rows > most_rows(l) || !(l->forms >> FORM_FIVE_KERNELS & 1)) return false;
  if (m->kernel || s->options.invariant || s->peers.n > 0 || l->qkv.n_parts != 1) return false;
  if (l->qkv.parts[0].n_in != m->model->config.hidden) return false; /* EAGLE-3 reads more than x */
  return is_narrow(m, l->qkv.parts) && is_narrow(m, &l->o) &&
         (l->experts.down.n_out > 0 || supports_mlp(s, layer));
}

bool narrow_five_kernels(const BackendState *s, int layer, int n_rows) {
  return s->loaded->layers[layer].experts.down.n_out == 0 && narrow_three_kernels(s, layer, n_rows);
}

/* Makes the call multiply the RMSNorm of the residual stream. */
static void set_norm(BackendState *s, const float *weight, LinearCall *call) {
  call->norm = (LinearNorm){s->x, weight, residual_eps(&s->loaded->model->config)};
  if (s->ready == READY_IN_PLANES) call->planes = s->planes[PLANES_H];
  s->ready = READY_NONE;
}

/* Makes a call that adds to the residual stream also store the stream's planes, for the matmul after the next
 * norm. */
static void set_next_norm(BackendState *s, const float *weight, LinearNext *next) {
  *next = (LinearNext){.kind = LINEAR_NEXT_NORM, .planes = s->planes[PLANES_H], .norm = weight};
  s->ready = READY_IN_PLANES;
}

void narrow_set_next(BackendState *s, int layer, int n_rows, LinearNext *next) {
  const BackendModel *m = s->loaded;
  if (m->layers[layer].scalar || m->model->config.per_layer_width > 0) return; /* these change x afterwards */
  if (layer + 1 < m->model->config.n_layers && narrow_three_kernels(s, layer + 1, n_rows))
    set_next_norm(s, m->layers[layer + 1].attn_norm, next);
}

bool narrow_fit(BackendState *s, int layer, int n_rows, NarrowPart part, LinearCall *call) {
  const DeviceLayer *l = &s->loaded->layers[layer];
  const bool fits =
      part <= NARROW_O ? narrow_three_kernels(s, layer, n_rows) : narrow_five_kernels(s, layer, n_rows);
  if (!fits) return false;
  call->kernel = "planes_wgmma";
  switch (part) {
  case NARROW_QKV: set_norm(s, l->attn_norm, call); break;
  case NARROW_O:
    if (s->a_is_in_planes) call->planes = s->planes[PLANES_A];
    if (l->experts.down.n_out > 0)
      s->ready = READY_NONE; /* the router normalises its input itself */
    else
      set_next_norm(s, l->mlp_norm, &call->next);
    break;
  case NARROW_GATE_UP:
    set_norm(s, l->mlp_norm, call);
    call->next = (LinearNext){.kind = LINEAR_NEXT_GATED, .planes = s->planes[PLANES_G]};
    break;
  case NARROW_DOWN:
    call->planes = s->planes[PLANES_G];
    narrow_set_next(s, layer, n_rows, &call->next);
    break;
  }
  return true;
}
