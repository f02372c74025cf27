/* linear.cu - the context of a device and a stream, and the way from a LinearCall to a launch.
 *
 * Always true: linear_run neither allocates nor waits; the workspace is as large as any prepared matrix
 * needs; the counters are zero between launches. */
#include <new>
#include <stdlib.h>
#include <string.h>

#include "cuda/kernels/linear/cublas.h"
#include "cuda/kernels/linear/dense/heads.h"
#include "cuda/kernels/linear/kernel.cuh"

struct LinearContext {
  DeviceLimits device;
  cudaStream_t stream;
  unsigned *counters;       /* [kCounters] */
  float *mailbox;           /* sm_90a: [n_sms][kMailboxFloats] */
  unsigned char *workspace; /* [workspace_bytes] */
  size_t workspace_bytes;
  Cublas cublas; /* opened when a shape needs it */
};

static const LinearKernel *const kernels[LAUNCH_COUNT] = {
#define KERNEL(LAUNCH, name) &name##_kernel,
    LINEAR_KERNELS(KERNEL)
#undef KERNEL
};

/* SM(...) or SM_90A */
static Status arch_of(int gpu, int *arch, Error *err) {
  int major = 0, minor = 0;
  cudaError_t e = cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, gpu);
  if (!e) e = cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, gpu);
  *arch = SM(major, minor);
#ifdef AUK_HAS_SM90A
  if (*arch == SM(9, 0)) *arch = SM_90A;
#endif
  return cuda_status(e, "opening the device for the linear layers", err);
}

Status linear_device(int gpu, DeviceLimits *device, Error *err) {
  TRY(arch_of(gpu, &device->arch, err));
  int shared = 0;
  cudaError_t e = cudaDeviceGetAttribute(&shared, cudaDevAttrMaxSharedMemoryPerBlockOptin, gpu);
  if (!e) e = cudaDeviceGetAttribute(&device->n_sms, cudaDevAttrMultiProcessorCount, gpu);
  device->shared_bytes = (size_t)shared;
  return cuda_status(e, "opening the device for the linear layers", err);
}

Status linear_multiplies_bytes(int gpu, bool *multiplies, Error *err) {
  int arch = 0;
  TRY(arch_of(gpu, &arch, err));
  *multiplies = arch == SM_90A;
  return STATUS_OK;
}

Status linear_open(int gpu, cudaStream_t stream, LinearContext **out, Error *err) {
  *out = NULL;
  LinearContext *c = (LinearContext *)mem_alloc(1, sizeof *c, "the context of the linear layers", err);
  if (!c) return STATUS_FAILED;
  *out = c;
  TRY(linear_device(gpu, &c->device, err));
  cudaError_t e = cudaMalloc((void **)&c->counters, kCounters * sizeof *c->counters);
  if (!e) e = cudaMemsetAsync(c->counters, 0, kCounters * sizeof *c->counters, stream);
  if (!e && c->device.arch == SM_90A) {
    const size_t bytes = (size_t)c->device.n_sms * kMailboxFloats * sizeof *c->mailbox;
    e = cudaMalloc((void **)&c->mailbox, bytes);
    if (!e) e = cudaMemsetAsync(c->mailbox, 0, bytes, stream);
  }
  c->stream = stream;
  return cuda_status(e, "opening the device for the linear layers", err);
}

void linear_close(LinearContext *c) {
  if (!c) return;
  cublas_close(&c->cublas);
  cudaFree(c->workspace);
  cudaFree(c->counters);
  cudaFree(c->mailbox);
  free(c);
}

Status linear_choice(const LinearContext *c, const DeviceLinear *w, ActType act, int n_tokens,
                     const char *kernel, const LinearEntry **entry, Error *err) {
  const LinearQuery query = linear_query(*w, act, n_tokens, c->device);
  Status status = linear_dispatch(&query, kernel, entry, err);
  if (status == STATUS_OK || !err) return status;
  Error inner = *err;
  return error_set(err, status, "%s: %s", w->name, inner.text);
}

Status linear_check_invariant(const DeviceLinear *w, const DeviceLimits *device, bool *fast, Error *err) {
  constexpr int kRows = 256;
  constexpr long kSmall = 1 << 16; /* so few weights that any kernel is fast */
  const LinearQuery query = linear_query(*w, ACT_F16, kRows, *device);
  const LinearInvariant *how;
  const LinearEntry *entry;
  TRY(linear_invariant(&query, &how, &entry, err));
  switch (entry->launch) {
  case LAUNCH_AWQ_WGMMA:
  case LAUNCH_DENSE_WGMMA:
  case LAUNCH_INT8_BYTES: *fast = true; break;
  /* Dense experts have this kernel without LINEAR_INVARIANT, too. */
  case LAUNCH_EXPERTS_PLAIN: *fast = !weight_is_quantised(w->type); break;
  default: *fast = w->n_experts == 0 && (long)w->n_in * w->n_out <= kSmall;
  }
  *fast = *fast && device->arch == SM_90A;
  return STATUS_OK;
}

DeviceLimits linear_limits(const LinearContext *c) {
  return c->device;
}

bool linear_experts_as_one(const LinearContext *c, const DeviceLinear *w) {
  const LinearEntry *entry;
  return linear_choice(c, w, ACT_F16, 1, NULL, &entry, NULL) == STATUS_OK && entry->to == 1;
}

/* True if `kernel`, the caller's choice or NULL, is LINEAR_INVARIANT. */
static bool is_invariant(const char *kernel) {
  return kernel && strcmp(kernel, LINEAR_INVARIANT) == 0;
}

/* Most inputs of a row whose norm a kernel computes: int8_bytes holds the row in a block's registers;
 * dense_rows holds it in fp16 and in fp32, in 48 KB. */
constexpr int kMostNormedInputs = 8192, kMostDenseInputs = 7680;
/* The most tokens for which planes_wgmma computes the norm. With 24 tokens a step is 2% slower if it does. */
constexpr int kMostNormed = 16;

/* True if the kernel can compute the RMSNorm of its x. */
static bool computes_norm(const LinearEntry *entry, const DeviceLinear *w, int n_tokens) {
  switch (entry->launch) {
  case LAUNCH_PLANES_WGMMA: return true;
  case LAUNCH_INT8_BYTES: return w->n_in % 128 == 0 && w->n_in <= kMostNormedInputs;
  case LAUNCH_DENSE_ROWS:
    return n_tokens == 1 && w->n_experts == 0 && w->n_in % 4 == 0 && w->n_in <= kMostDenseInputs;
  default: return false;
  }
}

/* The entry that computes the RMSNorm of x and the product faster than two kernels do, or NULL. For 4-bit
 * weights and 2 to kMostNormed tokens on Hopper this is planes_wgmma, although narrow_wgmma multiplies
 * faster. */
static const LinearEntry *entry_with_norm(const LinearContext *c, const DeviceLinear *w, ActType act,
                                          int n_tokens, const char *kernel) {
  const LinearEntry *entry;
  if (is_invariant(kernel)) return NULL;
  if (linear_choice(c, w, act, n_tokens, kernel, &entry, NULL)) return NULL;
  if (computes_norm(entry, w, n_tokens))
    return entry->launch != LAUNCH_PLANES_WGMMA || n_tokens <= kMostNormed ? entry : NULL;
  if (kernel || n_tokens < 2 || n_tokens > kMostNormed) return NULL;
  return linear_choice(c, w, act, n_tokens, "planes_wgmma", &entry, NULL) ? NULL : entry;
}

bool linear_takes_norm(const LinearContext *c, const DeviceLinear *w, ActType act, int n_tokens,
                       const char *kernel) {
  return entry_with_norm(c, w, act, n_tokens, kernel) != NULL;
}

bool linear_makes_heads(const LinearContext *c, const DeviceLinear *w, ActType act, int n_tokens,
                        const char *kernel) {
  const LinearEntry *entry;
  if (w->n_experts > 0 || w->n_out % 128 != 0) return false;
  return linear_choice(c, w, act, n_tokens, kernel, &entry, NULL) == STATUS_OK &&
         entry->launch == LAUNCH_AWQ_WGMMA &&
         awq_wgmma_makes_heads(w, n_tokens, is_invariant(kernel), c->device);
}

bool linear_experts_gathered(const LinearContext *c, const DeviceLinear *w, int n_tokens,
                             const char *kernel) {
  const LinearEntry *entry;
  return linear_choice(c, w, ACT_F16, n_tokens, kernel, &entry, NULL) == STATUS_OK &&
         entry->launch == LAUNCH_AWQ_WGMMA;
}

Status linear_prepare(LinearContext *c, const DeviceLinear *w, ActType act, int max_tokens,
                      const char *kernel, Error *err) {
  size_t need = 0;
  const LinearEntry *planes;
  const int most = max_tokens < LINEAR_MOST_PLANES ? max_tokens : LINEAR_MOST_PLANES;
  /* entry_with_norm() and layers/narrow.c use planes_wgmma also for counts at which the table does not. */
  if (!kernel && !linear_choice(c, w, act, most, "planes_wgmma", &planes, NULL))
    need = kernels[planes->launch]->workspace(w, most, c->device);
  for (int n = 1;;) {
    const LinearEntry *entry;
    TRY(linear_choice(c, w, act, n, kernel, &entry, err));
    const LinearKernel *k = kernels[entry->launch];
    size_t bytes = k->workspace ? k->workspace(w, n, c->device) : 0;
    if (bytes > need) need = bytes;
    if (k->cublas) TRY(cublas_open(&c->cublas, c->stream, err));
    if (n >= max_tokens) break;
    n = linear_next_count(n);
    if (n > max_tokens) n = max_tokens;
  }
  if (need <= c->workspace_bytes) return STATUS_OK;
  TRY(cuda_status(cudaStreamSynchronize(c->stream), w->name, err));
  cudaFree(c->workspace);
  c->workspace = NULL;
  c->workspace_bytes = 0;
  TRY(cuda_status(cudaMalloc((void **)&c->workspace, need), "workspace of the linear layers", err));
  c->workspace_bytes = need;
  return STATUS_OK;
}

void linear_prepare_heads(LinearContext *c, int max_tokens) {
  if (linear_heads_want_library(max_tokens)) cublas_open(&c->cublas, c->stream, NULL);
}

Status linear_run_heads(LinearContext *c, const LinearHeads *call, const char *kernel, Error *err) {
  return linear_heads_run(c->cublas.handle ? &c->cublas : NULL, call, is_invariant(kernel), &c->device,
                          c->stream, err);
}

const void *linear_workspace(const LinearContext *c) {
  return c->workspace;
}

static LinearArgs args_of(const LinearContext *c, const LinearCall *call) {
  const DeviceLinear *w = call->weights;
  return {w,
          (const __half *)call->x,
          call->x_stride,
          call->n_tokens,
          {call->y, w->bias, (size_t)call->y_stride, w->n_out, call->output, w->factors, call->gated,
           call->limit, call->row_factors},
          c->device,
          c->workspace,
          c->counters,
          &c->cublas,
          c->stream,
          call->dependent,
          call->variant,
          c->mailbox,
          call->experts,
          call->norm,
          call->planes,
          call->next};
}

/* Runs a call under LINEAR_INVARIANT, in launches of at most LinearInvariant.rows rows. */
static Status run_invariant(LinearContext *c, const LinearCall *call, Error *err) {
  const LinearQuery query = linear_query(*call->weights, call->act, call->n_tokens, c->device);
  const LinearInvariant *how;
  const LinearEntry *entry;
  TRY(linear_invariant(&query, &how, &entry, err));
  LinearCall part = *call;
  part.kernel = entry->name;
  part.variant = how->variant;
  for (int first = 0; first < call->n_tokens; first += part.n_tokens) {
    part.n_tokens = call->n_tokens - first < how->rows ? call->n_tokens - first : how->rows;
    part.x = (const __half *)call->x + (size_t)first * call->x_stride;
    part.y = (char *)call->y + (size_t)first * call->y_stride * output_bytes(call->output);
    if (call->row_factors) part.row_factors = call->row_factors + first;
    TRY(linear_run(c, &part, err));
  }
  return STATUS_OK;
}

Status linear_run(LinearContext *c, const LinearCall *call, Error *err) {
  if (is_invariant(call->kernel)) return run_invariant(c, call, err);
  const LinearEntry *entry;
  const DeviceLinear *w = call->weights;
  const bool ordered = call->experts && call->experts->begins; /* kernels for one token ignore `begins` */
  const int n_asked = ordered && call->n_tokens == 1 ? 2 : call->n_tokens;
  const bool normed = call->norm.rows && !call->kernel;
  entry = normed ? entry_with_norm(c, w, call->act, call->n_tokens, NULL) : NULL;
  if (!entry) TRY(linear_choice(c, w, call->act, n_asked, call->kernel, &entry, err));
  const LinearKernel *k = kernels[entry->launch];
  const LinearArgs args = args_of(c, call);
  if ((call->experts != NULL) != (w->n_experts > 0))
    return error_set(err, STATUS_FAILED, "%s: a choice of experts needs experts, and only they need it",
                     w->name);
  const bool ungated = w->n_experts > 0 && call->gated == ACTIVATION_RELU;
  if ((call->output == LINEAR_SWIGLU_F16) != (w->interleaved || ungated))
    return error_set(err, STATUS_FAILED,
                     "%s: a gated matmul needs interleaved weights, and only it takes them", w->name);
  if (call->norm.rows && !computes_norm(entry, w, call->n_tokens))
    return error_set(err, STATUS_FAILED, "%s: %s does not compute the norm of its x", w->name, entry->name);
  const bool makes_heads = call->next.kind == LINEAR_NEXT_HEADS && entry->launch == LAUNCH_AWQ_WGMMA;
  if ((call->planes || (call->next.kind && !makes_heads)) && entry->launch != LAUNCH_PLANES_WGMMA)
    return error_set(err, STATUS_FAILED, "%s: %s takes no planes and makes none", w->name, entry->name);
  size_t need = k->workspace ? k->workspace(w, call->n_tokens, c->device) : 0;
  if (need > c->workspace_bytes || (k->cublas && !c->cublas.handle))
    return error_set(err, STATUS_FAILED, "%s: not prepared for %d rows by %s", w->name, call->n_tokens,
                     entry->name);
  return k->launch(args, err);
}
