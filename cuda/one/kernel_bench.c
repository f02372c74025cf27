/* kernel_bench.c - see kernel_bench.h.
 *
 * Always true: everything runs on one stream. The device memory of a matrix, and of the dense matrix of the
 * same shape that cuBLAS multiplies, is freed before the next matrix's is allocated. A captured graph is
 * destroyed before the workspace can grow. */
#include "cuda/one/kernel_bench.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cuda/kernels/linear/random_weights.h"
#include "cuda/kernels/ptx/device.h"
#include "cuda/one/gpu.h"
#include "cuda/one/weights.h"

enum { MAX_COPIES = 512, MAX_CALLS = 2000, LEAST_PEAK_SIZE = 128, PEAK_SIZE = 8192 };

/* A graph has enough calls to last shortest_graph_us, so that its launch overhead is negligible. It has at
 * most MAX_CALLS, and no more than last longest_graph_us. long_matmul_us: see measure_matmul(). */
static const double shortest_graph_us = 2e3, longest_graph_us = 50e3, long_matmul_us = 1e3;
static const size_t usual_staging = (size_t)32 << 20;
static const char cublas_row[] = "dense_cublas", cublas_name[] = "cublas fp16";

typedef struct {
  const BackendOptions *options;
  const KernelTimesOptions *times;
  KernelTimeSink sink;
  void *user;
  cudaStream_t stream;
  LinearContext *linear;
  cudaEvent_t *events; /* [repetitions + 1] */
  double *runs_us;     /* [repetitions] */
  int n_sms, most_tokens;
  size_t cold_bytes;  /* wanted bytes of all copies of a matrix: too many to stay in L2 */
  MachineRates rates; /* ceilings */
} Bench;

/* --- time */

/* Enqueues the n-th of the timed calls. */
typedef Status (*Enqueue)(Bench *b, void *what, int n, Error *err);

static int by_value(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

static Status capture(Bench *b, Enqueue enqueue, void *what, int n_calls, cudaGraphExec_t *exec, Error *err) {
  TRY(cuda_status(cudaStreamBeginCapture(b->stream, cudaStreamCaptureModeThreadLocal), "cannot capture",
                  err));
  Status status = STATUS_OK;
  for (int i = 0; i < n_calls && !status; i++) status = enqueue(b, what, i, err);
  cudaGraph_t graph = NULL;
  cudaError_t ended = cudaStreamEndCapture(b->stream, &graph);
  if (!status) status = cuda_status(ended, "cannot capture", err);
  if (!status) status = cuda_status(cudaGraphInstantiate(exec, graph, 0), "cannot make a graph", err);
  if (graph) cudaGraphDestroy(graph);
  return status;
}

static Status launch_graph(Bench *b, void *exec, int n, Error *err) {
  return cuda_status(cudaGraphLaunch(exec, b->stream), "cannot launch", err);
}

/* Sets *us to the median of n runs, after a run that loads the code. The host runs ahead, so the device never
 * waits. */
static Status time_runs(Bench *b, Enqueue run, void *what, int n, double *us, Error *err) {
  TRY(run(b, what, 0, err));
  for (int i = 0; i <= n; i++) {
    TRY(cuda_status(cudaEventRecord(b->events[i], b->stream), "cannot take the time", err));
    if (i < n) TRY(run(b, what, 0, err));
  }
  TRY(cuda_status(cudaStreamSynchronize(b->stream), "a kernel failed", err));
  for (int i = 0; i < n; i++) {
    float ms;
    TRY(cuda_status(cudaEventElapsedTime(&ms, b->events[i], b->events[i + 1]), "cannot take the time", err));
    b->runs_us[i] = ms * 1e3;
  }
  qsort(b->runs_us, (size_t)n, sizeof *b->runs_us, by_value);
  *us = (b->runs_us[n / 2] + b->runs_us[(n - 1) / 2]) / 2;
  return STATUS_OK;
}

/* Sets *us to the microseconds of a call; the calls of a graph cycle through n_different matrices. */
static Status time_calls(Bench *b, Enqueue enqueue, void *what, int n_different, double *us, Error *err) {
  double about, graph;
  TRY(time_runs(b, enqueue, what, 1, &about, err));
  about = fmax(about, 0.1);
  double n = fmax(n_different, shortest_graph_us / about);
  n = fmax(1, fmin(fmin(n, longest_graph_us / about), MAX_CALLS));
  cudaGraphExec_t exec = NULL;
  TRY(capture(b, enqueue, what, (int)n, &exec, err));
  const int n_runs = about > longest_graph_us ? 1 : b->times->repetitions;
  Status status = time_runs(b, launch_graph, exec, n_runs, &graph, err);
  cudaGraphExecDestroy(exec);
  if (!status) *us = graph / (int)n;
  return status;
}

/* --- matrices and activations */

/* Copies of a matrix, one after another in memory, and activations x and y for any of them. */
typedef struct {
  DeviceLinear *copies; /* [n] */
  int n;
  void *memory, *x, *y, *staging;
  int x_stride, y_stride;
} Matrices;

/* A group size with which linear_lay_out() makes a matrix like `like`. It pads a group that spans all
 * inputs, so like->group can exceed n_in. */
static int given_group(const DeviceLinear *like) {
  if (!weight_is_quantised(like->type)) return 0;
  return like->group < like->n_in ? like->group : like->n_in;
}

/* Bytes of weights, scales, zero points and factors, without padding. */
static double stored_bytes(const DeviceLinear *w) {
  const double cells = (double)w->n_in * w->n_out;
  switch (w->type) {
  case WEIGHT_AWQ4: return cells / 2 + cells / given_group(w) * 2.5;
  case WEIGHT_AWQ8: return cells + cells / given_group(w) * 3;
  case WEIGHT_FP4: return cells / 2 + cells / given_group(w) + w->n_out * 4.0;
  case WEIGHT_FP8: return cells + cells / given_group(w) * 2 + w->n_out * 4.0;
  case WEIGHT_INT8: return cells + w->n_out * 4.0;
  case WEIGHT_F32: return cells * 4;
  case WEIGHT_F16:
  case WEIGHT_BF16: break;
  }
  return cells * 2;
}

static void matrices_free(Matrices *m) {
  cudaFree(m->memory);
  cudaFree(m->x);
  cudaFree(m->y);
  cudaFree(m->staging);
  free(m->copies);
  *m = (Matrices){0};
}

/* Makes random copies of a matrix like `like`, and activations. Call matrices_free() also after a failure. */
static Status matrices_make(Bench *b, const DeviceLinear *like, int n_tokens, Matrices *m, Error *err) {
  *m = (Matrices){.x_stride = (like->n_in + 7) / 8 * 8,
                  .y_stride = like->interleaved ? like->n_out / 2 : like->n_out};
  const size_t copy_bytes = (size_t)stored_bytes(like) + 1, rows = (size_t)n_tokens;
  m->n = copy_bytes > b->cold_bytes / MAX_COPIES ? (int)(b->cold_bytes / copy_bytes) + 1 : MAX_COPIES;
  TRY(NEW(m->copies, (size_t)m->n, "matrices", err));
  size_t bytes = 0, x_bytes = rows * (size_t)m->x_stride * 2, y_bytes = rows * (size_t)m->y_stride * 4;
  for (int i = 0; i < m->n; i++)
    TRY(linear_lay_out(&m->copies[i], like->name, like->type, like->n_in, like->n_out, given_group(like),
                       like->interleaved, like->has_bias, &bytes, err));
  bool rotates;
  TRY(linear_multiplies_bytes(b->options->gpu, &rotates, err));
  const size_t placed = (bytes + 255) / 256 * 256,
               rotated = rotates ? linear_rotated_bytes(&m->copies[0], b->options->kernel) : 0;
  bytes = placed + rotated;
  TRY(cuda_status(cudaMalloc(&m->memory, (size_t)m->n * bytes), "no memory for matrices to time", err));
  TRY(cuda_status(cudaMalloc(&m->x, x_bytes), "no memory for activations", err));
  TRY(cuda_status(cudaMalloc(&m->y, y_bytes), "no memory for products", err));
  const size_t least = random_staging_bytes(&m->copies[0]),
               staging_bytes = least > usual_staging ? least : usual_staging;
  TRY(cuda_status(cudaMalloc(&m->staging, staging_bytes), "no memory to make matrices in", err));
  TRY(cuda_status(cudaMemsetAsync(m->y, 0, y_bytes, b->stream), "cannot clear memory", err));
  TRY(random_numbers(m->x, WEIGHT_F16, x_bytes / 2, -1.7f, 1.7f, 1, b->stream, err));
  for (int i = 0; i < m->n; i++) {
    char *memory = (char *)m->memory + (size_t)i * bytes;
    TRY(linear_place(&m->copies[i], memory, b->stream, err));
    TRY(random_linear(&m->copies[i], m->staging, staging_bytes, (uint64_t)i + 1, b->stream, err));
    if (rotated > 0)
      TRY(linear_rotate(&m->copies[i], memory + placed, m->staging, staging_bytes, b->stream, err));
  }
  return cuda_status(cudaStreamSynchronize(b->stream), "making matrices failed", err);
}

/* --- matmuls */

typedef struct {
  const Matrices *matrices;
  LinearCall call;
} MatmulCalls;

static Status enqueue_matmul(Bench *b, void *what, int n, Error *err) {
  const MatmulCalls *p = what;
  LinearCall call = p->call;
  call.weights = &p->matrices->copies[n % p->matrices->n];
  return linear_run(b->linear, &call, err);
}

static Status time_matmul(Bench *b, const Matrices *m, LinearOutput output, int n_tokens,
                          const LinearEntry *row, double *us, Error *err) {
  MatmulCalls calls = {m,
                       {.x = m->x,
                        .x_stride = m->x_stride,
                        .n_tokens = n_tokens,
                        .output = output,
                        .y = m->y,
                        .y_stride = m->y_stride,
                        .dependent = true, /* as in products_call() */
                        .act = row->act,
                        .kernel = row->name}};
  TRY(linear_prepare(b->linear, &m->copies[0], row->act, n_tokens, row->name, err));
  return time_calls(b, enqueue_matmul, &calls, m->n, us, err);
}

static Status report(Bench *b, const DeviceLinear *w, const char *layer, const char *kernel, int n_tokens,
                     bool chosen, double us, Error *err) {
  const double bytes = stored_bytes(w), flop = 2.0 * w->n_in * w->n_out * n_tokens;
  const double needed_us = fmax(bytes / b->rates.read_gbps * 1e-3, flop / b->rates.fp16_tflops * 1e-6);
  const KernelTime time = {.layer = layer,
                           .weights = weight_type_name(w->type),
                           .n_in = w->n_in,
                           .n_out = w->n_out,
                           .group = given_group(w),
                           .n_tokens = n_tokens,
                           .kernel = kernel,
                           .chosen = chosen,
                           .us = us,
                           .gbps = bytes / us * 1e-3,
                           .tflops = flop / us * 1e-6,
                           .of_ceiling = needed_us / us};
  return b->sink(b->user, &time, err);
}

static Status check_interrupted(const Bench *b, Error *err) {
  bool stop = b->times->interrupted && *b->times->interrupted;
  return stop ? error_set(err, STATUS_INTERRUPTED, "interrupted") : STATUS_OK;
}

static bool is_wanted(const Bench *b, const LinearEntry *row) {
  return !b->options->kernel || strcmp(b->options->kernel, row->name) == 0;
}

/* Times the dispatch table's kernels that can run the matrix, or only that of --kernel, for n_tokens
 * tokens. */
static Status time_rows(Bench *b, const Matrices *m, const char *layer, LinearOutput output, int n_tokens,
                        Error *err) {
  const LinearEntry *row, *forced, *choice;
  for (int i = 0; (row = linear_entry(i)) != NULL; i++) {
    double us;
    if (!is_wanted(b, row)) continue;
    if (linear_choice(b->linear, &m->copies[0], row->act, n_tokens, row->name, &forced, NULL) != STATUS_OK)
      continue;
    TRY(check_interrupted(b, err));
    bool chosen =
        linear_choice(b->linear, &m->copies[0], row->act, n_tokens, NULL, &choice, NULL) == STATUS_OK &&
        choice == row;
    TRY(time_matmul(b, m, output, n_tokens, row, &us, err));
    TRY(report(b, &m->copies[0], layer, row->name, n_tokens, chosen, us, err));
  }
  return STATUS_OK;
}

/* The dispatch table's row of this name, or NULL. */
static const LinearEntry *row_named(const char *name) {
  int i = 0;
  while (linear_entry(i) && strcmp(linear_entry(i)->name, name) != 0) i++;
  return linear_entry(i);
}

/* Lays out a plain fp16 matrix of this shape. */
static Status dense_like(const char *name, int n_in, int n_out, DeviceLinear *out, Error *err) {
  size_t bytes;
  return linear_lay_out(out, name, WEIGHT_F16, n_in, n_out, 0, false, false, &bytes, err);
}

typedef struct {
  const char *layer;
  const DeviceLinear *planned;
  LinearOutput output;
} LayerMatrix;

/* Times, for each count of tokens, the table's kernels, and cuBLAS over a dense matrix of the same shape. */
static Status time_layer(Bench *b, const LayerMatrix *layer, Error *err) {
  OWNED(matrices_free) Matrices stored = {0}, dense = {0};
  const DeviceLinear *w = layer->planned;
  TRY(matrices_make(b, w, b->most_tokens, &stored, err));
  /* For a plain fp16 layer cuBLAS is one of the table's kernels. */
  const bool with_cublas = (w->type != WEIGHT_F16 || w->interleaved || w->has_bias) && !b->options->kernel;
  if (with_cublas) {
    DeviceLinear like;
    TRY(dense_like(w->name, w->n_in, w->n_out, &like, err));
    TRY(matrices_make(b, &like, b->most_tokens, &dense, err));
  }
  for (size_t i = 0; i < b->times->n_counts; i++) {
    const int n_tokens = b->times->n_tokens[i];
    double us;
    TRY(time_rows(b, &stored, layer->layer, layer->output, n_tokens, err));
    if (!with_cublas) continue;
    TRY(check_interrupted(b, err));
    TRY(time_matmul(b, &dense, LINEAR_TO_F16, n_tokens, row_named(cublas_row), &us, err));
    TRY(report(b, &dense.copies[0], layer->layer, cublas_name, n_tokens, false, us, err));
  }
  return STATUS_OK;
}

/* --- the model's matrices */

enum { MAX_MATRICES = MAX_PROJECTIONS + 4 }; /* of a layer: its input projections, o, gate, up, down */

/* Name of part i of a layer's input projections: "qkv" if there is one part, else the part's own name, such
 * as "in_proj_qkv". */
static const char *input_name(const DeviceProjections *inputs, int i) {
  const char *dot = strrchr(inputs->parts[i].name, '.');
  return inputs->n_parts == 1 || !dot ? "qkv" : dot + 1;
}

/* Lists the matrices of one layer with the LinearOutput that a step has for each; returns how many. */
static int layer_matrices(const DeviceLayer *l, LayerMatrix out[MAX_MATRICES]) {
  static const char *const gate_up[] = {"gate", "up"};
  int n = 0;
  for (int i = 0; i < l->qkv.n_parts; i++)
    out[n++] = (LayerMatrix){input_name(&l->qkv, i), &l->qkv.parts[i], LINEAR_TO_F32};
  if (l->o.n_out > 0) out[n++] = (LayerMatrix){"o", &l->o, LINEAR_ADD_F32};
  for (int i = 0; i < l->gate_up.n_parts; i++)
    out[n++] = (LayerMatrix){l->gate_up.n_parts == 1 ? "gate_up" : gate_up[i], &l->gate_up.parts[i],
                             l->gate_up.parts[i].interleaved ? LINEAR_SWIGLU_F16 : LINEAR_TO_F32};
  if (l->down.n_out > 0) out[n++] = (LayerMatrix){"down", &l->down, LINEAR_ADD_F32};
  return n;
}

static bool alike(const LayerMatrix *a, const LayerMatrix *b) {
  const DeviceLinear *x = a->planned, *y = b->planned;
  return strcmp(a->layer, b->layer) == 0 && x->type == y->type && x->n_in == y->n_in &&
         x->n_out == y->n_out && x->group == y->group && x->has_bias == y->has_bias;
}

/* True if one of the first n layers has a matrix of the same name, type and shape, which is timed already. */
static bool seen_before(const BackendModel *planned, int n, const LayerMatrix *matrix) {
  LayerMatrix before[MAX_MATRICES];
  for (int i = 0; i < n; i++) {
    int n_before = layer_matrices(&planned->layers[i], before);
    for (int j = 0; j < n_before; j++)
      if (alike(&before[j], matrix)) return true;
  }
  return false;
}

static Status time_model(Bench *b, const BackendModel *planned, Error *err) {
  for (int i = 0; i < planned->model->config.n_layers; i++) {
    LayerMatrix matrices[MAX_MATRICES];
    int n = layer_matrices(&planned->layers[i], matrices);
    for (int j = 0; j < n; j++)
      if (!seen_before(planned, i, &matrices[j])) TRY(time_layer(b, &matrices[j], err));
  }
  return time_layer(b, &(LayerMatrix){"head", &planned->head, LINEAR_TO_F32}, err);
}

/* --- ceilings of the machine */

typedef struct {
  void *memory;
  size_t bytes;
} Reading;

static Status enqueue_read(Bench *b, void *what, int n, Error *err) {
  const Reading *r = what;
  return streaming_read(r->memory, r->bytes, b->n_sms, r->memory, b->stream, err);
}

/* Measures a streaming read of far more than L2 holds. */
static Status measure_read(Bench *b, double *us, Error *err) {
  size_t free_bytes, all_bytes;
  TRY(device_bytes(&free_bytes, &all_bytes, err));
  const size_t far_more = 4 * b->cold_bytes;
  Reading r = {NULL, (far_more < free_bytes / 4 ? far_more : free_bytes / 4) / 256 * 256};
  TRY(cuda_status(cudaMalloc(&r.memory, r.bytes), "no memory to read", err));
  Status status = random_numbers(r.memory, WEIGHT_F32, r.bytes / 4, -1, 1, 1, b->stream, err);
  if (!status) status = time_calls(b, enqueue_read, &r, 1, us, err);
  cudaFree(r.memory);
  if (!status) b->rates.read_gbps = (double)r.bytes / *us * 1e-3;
  return status;
}

/* Measures ever larger square matmuls by cuBLAS, until one takes long_matmul_us or has PEAK_SIZE. */
static Status measure_matmul(Bench *b, DeviceLinear *like, double *us, Error *err) {
  *us = 0;
  for (int n = LEAST_PEAK_SIZE; n <= PEAK_SIZE && *us < long_matmul_us; n *= 2) {
    OWNED(matrices_free) Matrices m = {0};
    TRY(dense_like("a square matrix", n, n, like, err));
    TRY(matrices_make(b, like, n, &m, err));
    TRY(time_matmul(b, &m, LINEAR_TO_F16, n, row_named(cublas_row), us, err));
    b->rates.fp16_tflops = 2.0 * n * n * n / *us * 1e-6;
  }
  return STATUS_OK;
}

/* Measures the streaming read and the matmul, and reports them as the first two rows. */
static Status time_machine(Bench *b, Error *err) {
  DeviceLinear like;
  double us = 0;
  TRY(measure_read(b, &us, err));
  const KernelTime time = {.layer = "machine",
                           .weights = "any",
                           .kernel = "streaming read",
                           .us = us,
                           .gbps = b->rates.read_gbps,
                           .of_ceiling = 1};
  TRY(b->sink(b->user, &time, err));
  TRY(measure_matmul(b, &like, &us, err));
  return report(b, &like, "machine", cublas_name, like.n_in, false, us, err);
}

/* --- the whole bench */

static Status open_bench(Bench *b, Error *err) {
  const int gpu = b->options->gpu;
  const size_t n_events = (size_t)b->times->repetitions + 1;
  int l2_bytes = 0;
  TRY(device_use(gpu, err));
  TRY(device_attribute(gpu, cudaDevAttrMultiProcessorCount, &b->n_sms, err));
  TRY(device_attribute(gpu, cudaDevAttrL2CacheSize, &l2_bytes, err));
  b->cold_bytes = 4 * (size_t)l2_bytes;
  for (size_t i = 0; i < b->times->n_counts; i++)
    if (b->most_tokens < b->times->n_tokens[i]) b->most_tokens = b->times->n_tokens[i];
  TRY(NEW(b->events, n_events, "events", err));
  TRY(NEW(b->runs_us, n_events, "times", err));
  for (size_t i = 0; i < n_events; i++)
    TRY(cuda_status(cudaEventCreate(&b->events[i]), "cannot make an event", err));
  TRY(cuda_status(cudaStreamCreateWithFlags(&b->stream, cudaStreamNonBlocking), "cannot make a stream", err));
  return linear_open(gpu, b->stream, &b->linear, err);
}

static void close_bench(Bench *b) {
  linear_close(b->linear);
  for (int i = 0; b->events && i <= b->times->repetitions; i++)
    if (b->events[i]) cudaEventDestroy(b->events[i]);
  if (b->stream) cudaStreamDestroy(b->stream);
  free(b->events);
  free(b->runs_us);
}

Status kernel_bench(const Model *model, const BackendOptions *options, const KernelTimesOptions *times,
                    KernelTimeSink sink, void *user, Error *err) {
  OWNED(close_bench) Bench bench = {.options = options, .times = times, .sink = sink, .user = user};
  OWNED(weights_release) BackendModel planned = {0};
  if (options->kernel && !row_named(options->kernel))
    return error_set(err, STATUS_USAGE, "there is no kernel \"%s\"", options->kernel);
  TRY(open_bench(&bench, err));
  TRY(weights_plan(model, &planned, err));
  TRY(time_machine(&bench, err));
  return time_model(&bench, &planned, err);
}

Status kernel_bench_machine(const BackendOptions *options, MachineRates *rates, Error *err) {
  const KernelTimesOptions times = {.repetitions = 5};
  OWNED(close_bench) Bench bench = {.options = options, .times = &times};
  DeviceLinear like;
  double us;
  TRY(open_bench(&bench, err));
  TRY(measure_read(&bench, &us, err));
  TRY(measure_matmul(&bench, &like, &us, err));
  *rates = bench.rates;
  return STATUS_OK;
}
