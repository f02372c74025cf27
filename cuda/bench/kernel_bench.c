/* kernel_bench.c - see kernel_bench.h.
 *
 * Always true: everything runs on one stream; the device memory of one matrix is freed before the next one's
 * is allocated; a captured graph is destroyed before the workspace can grow. */
#include "cuda/bench/kernel_bench.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cuda/bench/random_weights.h"
#include "cuda/bench/streaming_read.h"
#include "cuda/device.h"
#include "cuda/weights.h"

enum { MAX_COPIES = 512, MAX_CALLS = 2000, LEAST_PEAK_SIZE = 128, PEAK_SIZE = 8192 };

static const double shortest_graph_us = 2e3,
                    longest_graph_us = 50e3, /* enough calls to make launch overhead negligible */
    long_product_us = 1e3;
static const size_t good_staging = (size_t)32 << 20;
static const char library_row[] = "dense_cublas", library_name[] = "cublas fp16";

typedef struct {
  const BackendOptions *options;
  const KernelTimesOptions *times;
  KernelTimeSink sink;
  void *user;
  cudaStream_t stream;
  LinearContext *linear;
  cudaEvent_t *events; /* [repetitions + 1] */
  double *launches_us; /* [repetitions] */
  int n_sms, most_tokens;
  size_t cold_bytes;  /* copies of a matrix of this size in all do not stay in L2 */
  MachineRates rates; /* ceilings */
} Bench;

/* --- time */

/* Enqueues call n of a graph. */
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

/* Median of n launches after one warm-up. The host runs ahead, so the device never waits. */
static Status time_launches(Bench *b, cudaGraphExec_t exec, int n, double *us, Error *err) {
  TRY(cuda_status(cudaGraphLaunch(exec, b->stream), "cannot launch", err));
  for (int i = 0; i <= n; i++) {
    TRY(cuda_status(cudaEventRecord(b->events[i], b->stream), "cannot take the time", err));
    if (i < n) TRY(cuda_status(cudaGraphLaunch(exec, b->stream), "cannot launch", err));
  }
  TRY(cuda_status(cudaStreamSynchronize(b->stream), "a kernel failed", err));
  for (int i = 0; i < n; i++) {
    float ms;
    TRY(cuda_status(cudaEventElapsedTime(&ms, b->events[i], b->events[i + 1]), "cannot take the time", err));
    b->launches_us[i] = ms * 1e3;
  }
  qsort(b->launches_us, (size_t)n, sizeof *b->launches_us, by_value);
  *us = n % 2 ? b->launches_us[n / 2] : (b->launches_us[n / 2 - 1] + b->launches_us[n / 2]) / 2;
  return STATUS_OK;
}

/* Times one call, after another that loads its code. */
static Status estimate(Bench *b, Enqueue enqueue, void *what, double *us, Error *err) {
  float ms;
  TRY(enqueue(b, what, 0, err));
  TRY(cuda_status(cudaEventRecord(b->events[0], b->stream), "cannot take the time", err));
  TRY(enqueue(b, what, 0, err));
  TRY(cuda_status(cudaEventRecord(b->events[1], b->stream), "cannot take the time", err));
  TRY(cuda_status(cudaStreamSynchronize(b->stream), "a kernel failed", err));
  TRY(cuda_status(cudaEventElapsedTime(&ms, b->events[0], b->events[1]), "cannot take the time", err));
  *us = ms > 1e-4f ? ms * 1e3 : 0.1;
  return STATUS_OK;
}

/* Microseconds per call; the calls of a graph cycle through n_different matrices. */
static Status time_calls(Bench *b, Enqueue enqueue, void *what, int n_different, double *us, Error *err) {
  double about, graph;
  TRY(estimate(b, enqueue, what, &about, err));
  double n = fmax(n_different, shortest_graph_us / about);
  n = fmax(1, fmin(fmin(n, longest_graph_us / about), MAX_CALLS));
  cudaGraphExec_t exec = NULL;
  TRY(capture(b, enqueue, what, (int)n, &exec, err));
  Status status = time_launches(b, exec, about > longest_graph_us ? 1 : b->times->repetitions, &graph, err);
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

static bool is_quantised(const DeviceLinear *w) {
  return w->type == WEIGHT_AWQ4 || w->type == WEIGHT_AWQ8;
}

/* The group that linear_lay_out() was called with for `like`; it pads a single group. */
static int given_group(const DeviceLinear *like) {
  if (!is_quantised(like)) return 0;
  return like->group < like->n_in ? like->group : like->n_in;
}

/* Bytes of weights, scales and zero points, without padding. */
static double stored_bytes(const DeviceLinear *w) {
  const double cells = (double)w->n_in * w->n_out;
  switch (w->type) {
  case WEIGHT_AWQ4: return cells / 2 + cells / given_group(w) * 2.5;
  case WEIGHT_AWQ8: return cells + cells / given_group(w) * 3;
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

/* Call matrices_free() afterwards, also after a failure. */
static Status matrices_make(Bench *b, const DeviceLinear *like, int n_tokens, Matrices *m, Error *err) {
  *m = (Matrices){.x_stride = (like->n_in + 7) / 8 * 8,
                  .y_stride = like->interleaved ? like->n_out / 2 : like->n_out};
  const size_t copy_bytes = (size_t)stored_bytes(like) + 1, rows = (size_t)n_tokens;
  m->n = copy_bytes > b->cold_bytes / MAX_COPIES ? (int)(b->cold_bytes / copy_bytes) + 1 : MAX_COPIES;
  if (!(m->copies = mem_alloc((size_t)m->n, sizeof *m->copies, "matrices", err))) return STATUS_FAILED;
  size_t bytes = 0, x_bytes = rows * (size_t)m->x_stride * 2, y_bytes = rows * (size_t)m->y_stride * 4;
  for (int i = 0; i < m->n; i++)
    TRY(linear_lay_out(&m->copies[i], like->name, like->type, like->n_in, like->n_out, given_group(like),
                       like->interleaved, like->has_bias, &bytes, err));
  bytes = (bytes + 255) / 256 * 256;
  TRY(cuda_status(cudaMalloc(&m->memory, (size_t)m->n * bytes), "no memory for matrices to time", err));
  TRY(cuda_status(cudaMalloc(&m->x, x_bytes), "no memory for activations", err));
  TRY(cuda_status(cudaMalloc(&m->y, y_bytes), "no memory for products", err));
  const size_t least = random_staging_bytes(&m->copies[0]),
               staging_bytes = least > good_staging ? least : good_staging;
  TRY(cuda_status(cudaMalloc(&m->staging, staging_bytes), "no memory to make matrices in", err));
  TRY(cuda_status(cudaMemsetAsync(m->y, 0, y_bytes, b->stream), "cannot clear memory", err));
  TRY(random_numbers(m->x, WEIGHT_F16, x_bytes / 2, -1.7f, 1.7f, 1, b->stream, err));
  for (int i = 0; i < m->n; i++) {
    TRY(linear_place(&m->copies[i], (char *)m->memory + (size_t)i * bytes, b->stream, err));
    TRY(random_linear(&m->copies[i], m->staging, staging_bytes, (uint64_t)i + 1, b->stream, err));
  }
  return cuda_status(cudaStreamSynchronize(b->stream), "making matrices failed", err);
}

/* --- matmuls */

typedef struct {
  const Matrices *matrices;
  LinearCall call;
} Products;

static Status enqueue_product(Bench *b, void *what, int n, Error *err) {
  const Products *p = what;
  LinearCall call = p->call;
  call.weights = &p->matrices->copies[n % p->matrices->n];
  return linear_run(b->linear, &call, err);
}

static Status time_product(Bench *b, const Matrices *m, LinearOutput output, int n_tokens,
                           const LinearEntry *row, double *us, Error *err) {
  Products products = {m,
                       {.x = m->x,
                        .x_stride = m->x_stride,
                        .n_tokens = n_tokens,
                        .output = output,
                        .y = m->y,
                        .y_stride = m->y_stride,
                        .dependent = n_tokens <= LINEAR_OVERLAP_TOKENS, /* as in backend.c */
                        .act = row->act,
                        .kernel = row->name}};
  TRY(linear_prepare(b->linear, &m->copies[0], row->act, n_tokens, row->name, err));
  return time_calls(b, enqueue_product, &products, m->n, us, err);
}

static Status tell(Bench *b, const DeviceLinear *w, const char *layer, const char *kernel, int n_tokens,
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

/* Times every kernel of the dispatch table that can run the matrix, for one count of tokens. */
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
    TRY(time_product(b, m, output, n_tokens, row, &us, err));
    TRY(tell(b, &m->copies[0], layer, row->name, n_tokens, chosen, us, err));
  }
  return STATUS_OK;
}

/* The dispatch table's entry for cuBLAS. */
static const LinearRow *library(void) {
  int i = 0;
  while (linear_entry(i) && strcmp(linear_entry(i)->name, library_row) != 0) i++;
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
} Layer;

/* Times, for each count of tokens, the table's kernels, and cuBLAS over a dense matrix of the same shape. */
static Status time_layer(Bench *b, const Layer *layer, Matrices *stored, Matrices *dense, Error *err) {
  const DeviceLinear *w = layer->planned;
  TRY(matrices_make(b, w, b->most_tokens, stored, err));
  /* For a plain fp16 layer cuBLAS is one of the table's kernels. */
  const bool beside = (w->type != WEIGHT_F16 || w->paired || w->has_bias) && !b->options->kernel;
  if (beside) {
    DeviceLinear like;
    TRY(dense_like(w->name, w->n_in, w->n_out, &like, err));
    TRY(matrices_make(b, &like, b->most_tokens, dense, err));
  }
  for (size_t i = 0; i < b->times->n_counts; i++) {
    const int n_tokens = b->times->n_tokens[i];
    double us;
    TRY(time_rows(b, stored, layer->layer, layer->output, n_tokens, err));
    if (!beside) continue;
    TRY(check_interrupted(b, err));
    TRY(time_product(b, dense, LINEAR_TO_F16, n_tokens, library(), &us, err));
    TRY(tell(b, &dense->copies[0], layer->layer, library_name, n_tokens, false, us, err));
  }
  return STATUS_OK;
}

static Status time_layer_and_free(Bench *b, const Layer *layer, Error *err) {
  Matrices stored = {0}, dense = {0};
  Status status = time_layer(b, layer, &stored, &dense, err);
  matrices_free(&stored);
  matrices_free(&dense);
  return status;
}

/* --- the model's matrices */

enum { MAX_MATRICES = 7 }; /* of a layer: q, k, v, o, gate, up, down */

/* Lists the matrices of one layer as backend.c multiplies them; returns how many. */
static int layer_matrices(const DeviceLayer *l, Layer out[MAX_MATRICES]) {
  static const char *const qkv[] = {"q", "k", "v"}, *const gate_up[] = {"gate", "up"};
  int n = 0;
  for (int i = 0; i < l->qkv.n_parts; i++)
    out[n++] = (Layer){l->qkv.n_parts == 1 ? "qkv" : qkv[i], &l->qkv.parts[i], LINEAR_TO_F32};
  out[n++] = (Layer){"o", &l->o, LINEAR_ADD_F32};
  for (int i = 0; i < l->gate_up.n_parts; i++)
    out[n++] = (Layer){l->gate_up.n_parts == 1 ? "gate_up" : gate_up[i], &l->gate_up.parts[i],
                       l->gate_up.parts[i].interleaved ? LINEAR_SWIGLU_F16 : LINEAR_TO_F32};
  out[n++] = (Layer){"down", &l->down, LINEAR_ADD_F32};
  return n;
}

static bool alike(const Layer *a, const Layer *b) {
  const DeviceLinear *x = a->planned, *y = b->planned;
  return strcmp(a->layer, b->layer) == 0 && x->type == y->type && x->n_in == y->n_in &&
         x->n_out == y->n_out && x->group == y->group && x->has_bias == y->has_bias;
}

/* Whether one of the first n layers has such a matrix. */
static bool seen_before(const BackendModel *planned, int n, const Layer *matrix) {
  Layer before[MAX_MATRICES];
  for (int i = 0; i < n; i++) {
    int n_before = layer_matrices(&planned->layers[i], before);
    for (int j = 0; j < n_before; j++)
      if (alike(&before[j], matrix)) return true;
  }
  return false;
}

static Status time_model(Bench *b, const BackendModel *planned, Error *err) {
  for (int i = 0; i < planned->model->config.n_layers; i++) {
    Layer matrices[MAX_MATRICES];
    int n = layer_matrices(&planned->layers[i], matrices);
    for (int j = 0; j < n; j++)
      if (!seen_before(planned, i, &matrices[j])) TRY(time_layer_and_free(b, &matrices[j], err));
  }
  return time_layer_and_free(b, &(Layer){"head", &planned->head, LINEAR_TO_F32}, err);
}

/* --- ceilings of the machine */

typedef struct {
  void *memory;
  size_t bytes;
} Reading;

static Status enqueue_read(Bench *b, void *what, int n, Error *err) {
  const Reading *r = what;
  (void)n;
  return streaming_read(r->memory, r->bytes, b->n_sms, r->memory, b->stream, err);
}

/* Measures a streaming read of far more than L2 holds. */
static Status measure_read(Bench *b, double *us, Error *err) {
  size_t free_bytes;
  TRY(device_free_bytes(&free_bytes, err));
  const size_t far_more = 4 * b->cold_bytes;
  Reading r = {NULL, (far_more < free_bytes / 4 ? far_more : free_bytes / 4) / 256 * 256};
  TRY(cuda_status(cudaMalloc(&r.memory, r.bytes), "no memory to read", err));
  Status status = random_numbers(r.memory, WEIGHT_F32, r.bytes / 4, -1, 1, 1, b->stream, err);
  if (!status) status = time_calls(b, enqueue_read, &r, 1, us, err);
  cudaFree(r.memory);
  if (!status) b->rates.read_gbps = (double)r.bytes / *us * 1e-3;
  return status;
}

/* Measures square matmuls by cuBLAS, each larger than the last, until one takes long_product_us. */
static Status measure_product(Bench *b, DeviceLinear *like, double *us, Error *err) {
  *us = 0;
  for (int n = LEAST_PEAK_SIZE; n <= PEAK_SIZE && *us < long_product_us; n *= 2) {
    Matrices m = {0};
    TRY(dense_like("a square matrix", n, n, like, err));
    Status status = matrices_make(b, like, n, &m, err);
    if (!status) status = time_product(b, &m, LINEAR_TO_F16, n, library(), us, err);
    matrices_free(&m);
    TRY(status);
    b->rates.fp16_tflops = 2.0 * n * n * n / *us * 1e-6;
  }
  return STATUS_OK;
}

/* Measures both and reports them as the first two rows. */
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
  TRY(measure_product(b, &like, &us, err));
  return tell(b, &like, "machine", library_name, like.n_in, false, us, err);
}

/* --- the whole bench */

static Status open_bench(Bench *b, Error *err) {
  const int gpu = b->options->gpu;
  const size_t n_events = (size_t)b->times->repetitions + 1;
  int l2_bytes = 0;
  TRY(device_use(gpu, err));
  TRY(cuda_status(cudaDeviceGetAttribute(&b->n_sms, cudaDevAttrMultiProcessorCount, gpu), "cannot ask it",
                  err));
  TRY(cuda_status(cudaDeviceGetAttribute(&l2_bytes, cudaDevAttrL2CacheSize, gpu), "cannot ask it", err));
  b->cold_bytes = 4 * (size_t)l2_bytes;
  for (size_t i = 0; i < b->times->n_counts; i++)
    if (b->most_tokens < b->times->n_tokens[i]) b->most_tokens = b->times->n_tokens[i];
  b->events = mem_alloc(n_events, sizeof *b->events, "events", err);
  b->launches_us = mem_alloc(n_events, sizeof *b->launches_us, "times", err);
  if (!b->events || !b->launches_us) return STATUS_FAILED;
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
  free(b->launches_us);
}

static Status check_kernel(const char *name, Error *err) {
  for (int i = 0; linear_entry(i); i++)
    if (!name || strcmp(linear_entry(i)->name, name) == 0) return STATUS_OK;
  return error_set(err, STATUS_USAGE, "there is no kernel \"%s\"", name);
}

Status kernel_bench(const Model *model, const BackendOptions *options, const KernelTimesOptions *times,
                    KernelTimeSink sink, void *user, Error *err) {
  Bench bench = {.options = options, .times = times, .sink = sink, .user = user};
  BackendModel planned = {0};
  TRY(check_kernel(options->kernel, err));
  Status status = open_bench(&bench, err);
  if (!status) status = weights_plan(model, &planned, err);
  if (!status) status = time_machine(&bench, err);
  if (!status) status = time_model(&bench, &planned, err);
  weights_release(&planned);
  close_bench(&bench);
  return status;
}

Status kernel_bench_machine(const BackendOptions *options, MachineRates *rates, Error *err) {
  const KernelTimesOptions times = {.repetitions = 5};
  Bench bench = {.options = options, .times = &times};
  DeviceLinear like;
  double us;
  Status status = open_bench(&bench, err);
  if (!status) status = measure_read(&bench, &us, err);
  if (!status) status = measure_product(&bench, &like, &us, err);
  *rates = bench.rates;
  close_bench(&bench);
  return status;
}
