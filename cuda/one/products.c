/* products.c - see products.h.
 *
 * Always true: the calls of a session share the pinned rows, because in the stream's order a call ends
 *              before the next begins. A captured host function refers to its HostCall, which lives as long
 *              as the session. */
#include "cuda/one/products.h"

#include "cuda/kernels/ops/host_rows.h"
#include "cuda/kernels/ops/order.h"
#include "cuda/kernels/ptx/device.h"
#include "cuda/one/weights.h"

/* --- GPU or CPU */

/* The most rows of a step that the CPU multiplies by a matrix. */
static int most_cpu_rows(const BackendModel *m, const DeviceLinear *w) {
  const ExpertConfig *experts = &m->model->config.experts;
  if (w->n_experts == 0) return STREAM_ROWS - 1;
  const int most = (STREAM_EXPERT_ROWS * experts->n_experts - 1) / experts->n_chosen;
  return most < MOST_CPU_ROWS ? most : MOST_CPU_ROWS;
}

bool products_on_cpu(const BackendModel *m, const DeviceLinear *w, int n_rows) {
  return w->host && n_rows <= most_cpu_rows(m, w);
}

bool products_stream(const BackendModel *m, int n_rows) {
  for (int i = 0; i < m->n_host; i++)
    if (!products_on_cpu(m, m->host[i].to, n_rows)) return true;
  return false;
}

/* --- on the CPU */

static int inputs_of(const DeviceLinear *w) {
  return cpu_products_stride(w->n_in);
}

/* How many numbers the CPU's result for a row has. */
static int outputs_of(const BackendModel *m, const DeviceLinear *w) {
  return w->n_experts > 0 ? expert_row_width(&m->model->config) : w->interleaved ? w->n_out / 2 : w->n_out;
}

/* Multiplies. Runs on a thread of the CUDA driver, so it must not call CUDA. */
static void multiply(void *user) {
  const HostCall *call = user;
  const BackendState *s = call->s;
  const HostMatrix *host = call->host;
  CpuProducts *cpu = s->loaded->cpu;
  const ProductRows rows = {
      .x = s->host_x, .n_rows = call->n_rows, .y = s->host_y, .y_stride = outputs_of(s->loaded, host->to)};
  if (host->to->n_experts > 0)
    cpu_products_experts(cpu, host->layer, s->host_ids, s->host_weights, rows);
  else if (host->to->interleaved)
    cpu_products_gated(cpu, host->layer, rows);
  else
    cpu_products_stacked(cpu, host->layer, host->which, host->n, rows);
}

/* Enqueues s->host_y = x times w. If w is interleaved: the gated product. If w is gate_up of experts: the sum
 * of the chosen experts' outputs for x. */
static Status run_on_cpu(BackendState *s, const DeviceLinear *w, const void *x, int x_stride, int n_rows,
                         HostChoices choices, Error *err) {
  const BackendModel *m = s->loaded;
  HostCall *call = &s->host_calls[(size_t)(w->host - m->host) * (size_t)s->host_rows + (size_t)n_rows - 1];
  *call = (HostCall){s, w->host, n_rows};
  TRY(ops_rows_to_host(x, x_stride, w->n_in, n_rows, s->host_x, inputs_of(w), choices, m->stream, err));
  return cuda_status(cudaLaunchHostFunc(m->stream, multiply, call), "cannot call the CPU", err);
}

Status products_sum_experts(BackendState *s, const DeviceExperts *experts, const void *x, int x_stride,
                            int n_tokens, bool add, float *to, Error *err) {
  const BackendModel *m = s->loaded;
  const HostChoices choices = {.n = experts->gate_up.n_chosen,
                               .from_ids = s->choices.ids,
                               .from_weights = s->choices.weights,
                               .to_ids = s->host_ids,
                               .to_weights = s->host_weights};
  const int width = expert_row_width(&m->model->config);
  TRY(run_on_cpu(s, &experts->gate_up, x, x_stride, n_tokens, choices, err));
  return ops_rows_from_host(s->host_y, width, n_tokens, add ? HOST_ROWS_ADD_F32 : HOST_ROWS_F32, NULL, to,
                            width, m->stream, err);
}

/* --- wherever the weights are */

static Status run_on_device(BackendState *s, const LinearCall *call, Error *err) {
  const BackendModel *m = s->loaded;
  const int n_in = call->weights->n_in, *order = weights_order(m, call->weights);
  LinearCall ordered = *call;
  if (!order) return linear_run(m->linear, call, err);
  ordered.x = s->ordered, ordered.x_stride = padded_row(n_in);
  TRY(ops_order_inputs(call->x, call->x_stride, order, n_in, call->n_tokens, s->ordered, ordered.x_stride,
                       m->stream, err));
  return linear_run(m->linear, &ordered, err);
}

const char *products_kernel(const BackendState *s) {
  return s->options.invariant ? LINEAR_INVARIANT : NULL;
}

LinearCall products_call(const BackendState *s, const DeviceLinear *weights, const void *x, int x_stride,
                         int n_tokens, LinearOutput output, void *y, int y_stride) {
  const BackendModel *m = s->loaded;
  const bool is_special =
      weights == &m->head || weights->n_experts > 0; /* x stays fp16, --kernel does not apply */
  return (LinearCall){.weights = weights,
                      .x = x,
                      .x_stride = x_stride,
                      .n_tokens = n_tokens,
                      .output = output,
                      .y = y,
                      .y_stride = y_stride,
                      .act = is_special ? ACT_F16 : m->act,
                      .dependent = !weights->host, /* dependent kernels fetch weights before they wait */
                      .kernel = s->options.invariant || is_special ? products_kernel(s) : m->kernel};
}

Status products_run(BackendState *s, const LinearCall *call, Error *err) {
  const BackendModel *m = s->loaded;
  const DeviceLinear *w = call->weights;
  if (!products_on_cpu(m, w, call->n_tokens)) {
    if (w->host) TRY(weights_stream(m, w->host, err));
    return run_on_device(s, call, err);
  }
  const HostRowsForm form = call->output == LINEAR_TO_F32    ? HOST_ROWS_F32
                            : call->output == LINEAR_ADD_F32 ? HOST_ROWS_ADD_F32
                                                             : HOST_ROWS_F16;
  const float *factors = call->output == LINEAR_SWIGLU_F16 ? call->row_factors : NULL;
  TRY(run_on_cpu(s, w, call->x, call->x_stride, call->n_tokens, (HostChoices){0}, err));
  return ops_rows_from_host(s->host_y, outputs_of(m, w), call->n_tokens, form, factors, call->y,
                            call->y_stride, m->stream, err);
}

Status products_matmul(BackendState *s, const DeviceLinear *weights, const void *x, int x_stride,
                       int n_tokens, LinearOutput output, void *y, int y_stride, Error *err) {
  const LinearCall call = products_call(s, weights, x, x_stride, n_tokens, output, y, y_stride);
  return products_run(s, &call, err);
}

LinearNorm products_own_norm(const BackendState *s, const DeviceProjections *p, const float *weight,
                             float eps, int n_rows) {
  const BackendModel *m = s->loaded;
  const LinearCall call = products_call(s, p->parts, NULL, 0, n_rows, LINEAR_TO_F32, NULL, 0);
  if (s->ready == READY_IN_H || !weight || p->n_parts != 1 || products_on_cpu(m, p->parts, n_rows) ||
      weights_order(m, p->parts) || !linear_takes_norm(m->linear, p->parts, call.act, n_rows, call.kernel))
    return (LinearNorm){0};
  return (LinearNorm){s->x, weight, eps};
}

Status products_project(BackendState *s, const DeviceProjections *p, int first_part, int n_tokens, float *y,
                        int y_stride, Error *err) {
  for (int i = first_part; i < p->n_parts; i++)
    TRY(products_matmul(s, &p->parts[i], s->h, s->h_stride, n_tokens, LINEAR_TO_F32, y + p->first[i],
                        y_stride, err));
  return STATUS_OK;
}

/* --- a session's memory */

HostRows products_host_rows(const BackendModel *m, int max_chunk) {
  HostRows most = {0};
  for (int i = 0; m && i < m->n_host; i++) {
    const DeviceLinear *w = m->host[i].to;
    const int rows = most_cpu_rows(m, w) < max_chunk ? most_cpu_rows(m, w) : max_chunk;
    const size_t x = (size_t)rows * (size_t)inputs_of(w), y = (size_t)rows * (size_t)outputs_of(m, w);
    if (most.n < rows) most.n = rows;
    if (most.x < x) most.x = x;
    if (most.y < y) most.y = y;
  }
  return most;
}
