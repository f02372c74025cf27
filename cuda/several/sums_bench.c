/* sums_bench.c - see sums_bench.h. */
#include "cuda/several/sums_bench.h"

#include <stdlib.h>

#include "cuda/kernels/ops/norm_rope.h"
#include "cuda/kernels/ptx/device.h"
#include "cuda/one/state.h"
#include "cuda/several/nccl.h"

enum { SUMS = 100, RUNS = 7 }; /* SUMS is even, since sums alternate between peers.parts[0] and [1] */

/* One GPU's graph of sums, and the events around it. */
typedef struct {
  BackendState *state;
  cudaGraphExec_t graph;
  cudaEvent_t begin, end;
} Part;

/* With NCCL the addition to the residual stream is part of the all-reduce. */
static Status enqueue_nccl_sums(BackendState *s, const float *next_weight, int n_rows, Error *err) {
  const BackendModel *m = s->loaded;
  const ModelConfig *c = &m->model->config;
  for (int sum = 0; sum < SUMS; sum++) {
    TRY(m->reduce->sum(m->reduce, s->x, (size_t)n_rows * (size_t)c->hidden, m->stream, err));
    TRY(ops_rms_norm(s->x, next_weight, (float)c->norm_eps, c->hidden, n_rows, s->h, s->h_stride, m->stream,
                     err));
  }
  return STATUS_OK;
}

static Status enqueue_sums(const Part *p, int n_rows, Error *err) {
  BackendState *s = p->state;
  const BackendModel *m = s->loaded;
  const DeviceLayer *layer = &m->layers[0];
  const float *next_weight = layer->mlp_norm ? layer->mlp_norm : m->final_norm;
  if (m->reduce) return enqueue_nccl_sums(s, next_weight, n_rows, err);
  for (int sum = 0; sum < SUMS; sum++) {
    const AddNorm add = {.y = s->peers.parts[sum & 1][s->peers.rank],
                         .next_weight = next_weight,
                         .next_eps = (float)m->model->config.norm_eps,
                         .n = m->model->config.hidden,
                         .x = s->x,
                         .out = s->h,
                         .out_stride = s->h_stride,
                         .peers = &s->peers,
                         .sum = sum,
                         .own_rows = peers_own_rows_pay(&s->peers, m->model->config.hidden, n_rows, true),
                         .apart = true};
    TRY(ops_add_rms_norm(&add, n_rows, m->stream, err));
  }
  return STATUS_OK;
}

static Status open_part(Part *p, int n_rows, Error *err) {
  cudaStream_t stream = p->state->loaded->stream;
  cudaGraph_t graph = NULL;
  TRY(cuda_status(cudaSetDevice(p->state->loaded->gpu), "cannot use it", err));
  TRY(cuda_status(cudaEventCreate(&p->begin), "cannot make an event", err));
  TRY(cuda_status(cudaEventCreate(&p->end), "cannot make an event", err));
  TRY(cuda_status(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "cannot capture", err));
  Status status = enqueue_sums(p, n_rows, err);
  const cudaError_t ended = cudaStreamEndCapture(stream, &graph);
  if (!status) status = cuda_status(ended, "cannot capture sums", err);
  if (!status) status = cuda_status(cudaGraphInstantiate(&p->graph, graph, 0), "cannot make a graph", err);
  if (graph) cudaGraphDestroy(graph);
  return status;
}

static void close_part(Part *p) {
  if (p->graph) cudaGraphExecDestroy(p->graph);
  if (p->begin) cudaEventDestroy(p->begin);
  if (p->end) cudaEventDestroy(p->end);
}

static Status run_part(const Part *p, Error *err) {
  cudaStream_t stream = p->state->loaded->stream;
  TRY(cuda_status(cudaSetDevice(p->state->loaded->gpu), "cannot use it", err));
  if (!p->state->loaded->reduce) TRY(peers_begin_step(p->state->first_tag, SUMS, stream, err));
  TRY(cuda_status(cudaEventRecord(p->begin, stream), "cannot time sums", err));
  TRY(cuda_status(cudaGraphLaunch(p->graph, stream), "cannot launch sums", err));
  TRY(cuda_status(cudaEventRecord(p->end, stream), "cannot time sums", err));
  return cuda_status(cudaStreamSynchronize(stream), "sums failed", err);
}

static int by_time(const void *a, const void *b) {
  const double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

/* Sets *microseconds to the median time of one sum. The first run does not count. */
static Status time_parts(Part *parts, int n, double *microseconds, Error *err) {
  double times[RUNS];
  for (int run = -1; run < RUNS; run++) {
    Status status[MAX_SPLIT];
    Error errors[MAX_SPLIT];
    float ms = 0;
#pragma omp parallel for num_threads(n) schedule(static, 1)
    for (int i = 0; i < n; i++) {
      status[i] = run_part(&parts[i], &errors[i]);
      if (status[i]) *(volatile int *)parts[i].state->peers.lost = -1;
      for (int k = 0; k < n && status[i]; k++) nccl_abort(parts[k].state->loaded->reduce);
    }
    for (int i = 0; i < n; i++)
      if (status[i]) return error_set(err, status[i], "%s", errors[i].text);
    TRY(cuda_status(cudaSetDevice(parts[0].state->loaded->gpu), "cannot use it", err));
    TRY(cuda_status(cudaEventElapsedTime(&ms, parts[0].begin, parts[0].end), "cannot time sums", err));
    if (run >= 0) times[run] = (double)ms * 1e3 / SUMS;
  }
  qsort(times, RUNS, sizeof *times, by_time);
  *microseconds = times[RUNS / 2];
  return STATUS_OK;
}

static Status time_rows(BackendState *const *states, int n_gpus, int n_rows, double *microseconds,
                        Error *err) {
  Part parts[MAX_SPLIT] = {0};
  Status status = STATUS_OK;
  for (int i = 0; i < n_gpus && !status; i++) {
    parts[i].state = states[i];
    status = open_part(&parts[i], n_rows, err);
  }
  if (!status) status = time_parts(parts, n_gpus, microseconds, err);
  for (int i = 0; i < n_gpus; i++) close_part(&parts[i]);
  return status;
}

Status sums_bench(BackendState *const *states, int n_gpus, const int *rows, int n, double *microseconds,
                  Error *err) {
  for (int i = 0; i < n; i++) TRY(time_rows(states, n_gpus, rows[i], &microseconds[i], err));
  return STATUS_OK;
}
