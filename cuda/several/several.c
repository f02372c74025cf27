/* several.c - see several.h. Always true: each function makes current the GPU that it needs, and may leave
 * any GPU current. A step is enqueued on all GPUs before anything waits for one of them. */
#include "cuda/several/several.h"

#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cuda/kernels/ptx/device.h"
#include "cuda/one/draft.h"
#include "cuda/one/gpu.h"
#include "cuda/one/kernel_bench.h"
#include "cuda/one/layers/copies.h"
#include "cuda/one/layers/prepare.h"
#include "cuda/one/open.h"
#include "cuda/one/residual.h"
#include "cuda/one/shared.h"
#include "cuda/one/table.h"
#include "cuda/one/tokens.h"
#include "cuda/one/weights.h"
#include "cuda/several/calls.h"
#include "cuda/several/nccl.h"
#include "cuda/several/sums_bench.h"
#include "engine/forward.h"

/* If several processes share the model, each has one part: n_parts is 1, and parts[0] is part number
 * first_part of the model. `ranks` is then set on rank 0; else it is NULL. */
typedef struct {
  const Model *model;
  BackendModel **parts; /* [n_parts] */
  int n_parts, first_part;
  Ranks *ranks;
} SeveralModel;

typedef struct {
  const SeveralModel *loaded;
  BackendState **parts; /* [n_parts] */
  int n_parts;
  int number; /* with loaded->ranks: the session's number among the processes (calls.h) */
} SeveralState;

static SeveralModel *model_of(const BackendModel *loaded) {
  return (SeveralModel *)loaded;
}
static SeveralState *state_of(const BackendState *state) {
  return (SeveralState *)state;
}

/* Nanoseconds that a GPU waits for another before it gives up. */
static const uint64_t patience = 20000000000;

/* Rows of the largest sum that is tried before the first step: those of a prompt's chunk. */
enum { LARGEST_SUM = 2048 };

/* Upper bound of the memory that NCCL takes on each GPU for kernels and buffers, 1.34 GB. Measured with NCCL
 * 2.28.9 and two H200s: 1.19 GB if one process has both GPUs, 1.0 GB if each GPU has a process. */
static const size_t nccl_bytes = 5 << 28;

/* Runs the statement that follows it for each part i, with the part's GPU current. If the GPU cannot be made
 * current, the function that has the macro returns. */
#define EACH_PART(s, i)                                                                                      \
  for (int i = 0; i < (s)->n_parts; i++)                                                                     \
    if (use((s)->loaded->parts[i], err))                                                                     \
      return STATUS_FAILED;                                                                                  \
    else

static Status use(const BackendModel *part, Error *err) {
  return cuda_status(cudaSetDevice(part->gpu), "cannot use it", err);
}

/* After a failure: if another process has failed, replaces `err` by that process's reason. Waits up to 3 s
 * for the reason (ranks_check()): a collective fails here before the message with the reason arrives. */
static Status explain(const SeveralModel *loaded, Status status, Error *err) {
  if (status && loaded->ranks) TRY(ranks_check(loaded->ranks, true, err));
  return status;
}

/* --- the model */

static Status check_split(const Model *model, int n, Error *err) {
  const int hidden = model->config.hidden;
  TRY(cuda_check_model(model, err));
  TRY(model_check_split(model, n, err));
  if (hidden % 4 == 0 && hidden <= WIDEST_SUM) return STATUS_OK;
  return error_set(err, STATUS_MODEL, "--split %d: its hidden size is %d, expected fours up to %d", n, hidden,
                   WIDEST_SUM);
}

static Status weights_of_parts(const Model *model, int n, size_t *weights, Error *err) {
  TRY(check_split(model, n, err));
  for (int i = 0; i < n; i++) {
    OWNED(part_release) Model *part = NULL;
    DeviceMemory memory;
    TRY(model_part(model, i, n, &part, err));
    TRY(weights_memory(part, 0, &memory, err));
    weights[i] = memory.weights;
  }
  return STATUS_OK;
}

/* Finds out whether all GPUs can reach each other's memory; `which`: two that cannot. */
static Status ask_gpus(const BackendOptions *options, bool *reach, int which[2], Error *err) {
  *reach = true;
  for (int i = 0; i < options->split; i++)
    for (int k = 0; k < options->split; k++) {
      int can = 1;
      if (k != i)
        TRY(cuda_status(cudaDeviceCanAccessPeer(&can, options->gpus[i], options->gpus[k]), "cannot ask it",
                        err));
      if (!can && *reach) which[0] = options->gpus[i], which[1] = options->gpus[k];
      *reach = *reach && can;
    }
  return STATUS_OK;
}

/* *by_nccl: the GPUs are to use NCCL. *reach: they reach each other's memory; if each GPU has a process,
 * *reach is true without a check. which: two GPUs that do not reach each other's memory. */
static Status find_sums(const BackendOptions *options, bool *reach, int which[2], bool *by_nccl, Error *err) {
  *reach = true;
  if (!options->ranks) TRY(ask_gpus(options, reach, which, err));
  *by_nccl = options->ranks || options->sums == SUMS_NCCL || (options->sums == SUMS_AUTO && !*reach);
  return STATUS_OK;
}

/* Sets memory->copies to the bytes of a part's copies. */
static Status copies_of_part(const Model *model, const BackendOptions *options, DeviceMemory *memory,
                             Error *err) {
  BackendOptions own = *options;
  OWNED(part_release) Model *part = NULL;
  own.gpu = options->gpus[0];
  TRY(model_part(model, 0, options->split, &part, err));
  return copies_bytes(part, &own, &memory->copies, err);
}

/* Sets memory->weights to those of the largest part (slice.h says how parts differ). Sets
 * memory->free_bytes to the least of all GPUs, less what NCCL takes if it is used. */
static Status needed_memory(const Model *model, const BackendOptions *options, DeviceMemory *memory,
                            Error *err) {
  const int n = options->split;
  size_t all_bytes, weights[MAX_SPLIT];
  TRY(weights_of_parts(model, n, weights, err));
  *memory = (DeviceMemory){.free_bytes = options->ranks ? options->ranks_free_bytes : SIZE_MAX};
  for (int i = 0; i < n; i++)
    if (weights[i] > memory->weights) memory->weights = weights[i];
  TRY(copies_of_part(model, options, memory, err));
  for (int i = 0; i < (options->ranks ? 1 : n); i++) {
    size_t free_bytes;
    TRY(device_use(options->gpus[i], err));
    TRY(device_bytes(&free_bytes, &all_bytes, err));
    if (free_bytes < memory->free_bytes) memory->free_bytes = free_bytes;
  }
  bool reach, by_nccl;
  int which[2];
  TRY(find_sums(options, &reach, which, &by_nccl, err));
  if (by_nccl) memory->free_bytes -= memory->free_bytes < nccl_bytes ? memory->free_bytes : nccl_bytes;
  return STATUS_OK;
}

/* Decides whether the GPUs use NCCL, before anything is loaded. *reach: they reach each other's memory. */
static Status choose_sums(const BackendOptions *options, bool *reach, bool *by_nccl, Error *err) {
  int which[2] = {0};
  Error reason;
  TRY(find_sums(options, reach, which, by_nccl, err));
  if (*by_nccl && options->decode_step == DECODE_FUSED)
    return error_set(err, STATUS_FAILED, "--decode-step cluster needs GPUs that reach each other's memory%s",
                     *reach && !options->ranks ? " (--split-by memory)" : "");
  if (!*by_nccl)
    return *reach ? STATUS_OK
                  : error_set(err, STATUS_FAILED, "--split: GPU %d cannot reach the memory of GPU %d",
                              which[0], which[1]);
  if (nccl_check(&reason) == STATUS_OK) return STATUS_OK;
  if (*reach)
    return error_set(err, STATUS_FAILED, "--split%s: %s", options->ranks ? " auto" : "-by nccl", reason.text);
  return error_set(err, STATUS_FAILED, "--split: GPU %d cannot reach the memory of GPU %d, and %s", which[0],
                   which[1], reason.text);
}

/* Lets each GPU reach the memory of all other GPUs. */
static Status connect_gpus(const BackendOptions *options, Error *err) {
  for (int i = 0; i < options->split; i++) {
    TRY(cuda_status(cudaSetDevice(options->gpus[i]), "cannot use it", err));
    for (int k = 0; k < options->split; k++) {
      if (k == i) continue;
      const cudaError_t error = cudaDeviceEnablePeerAccess(options->gpus[k], 0);
      if (error == cudaErrorPeerAccessAlreadyEnabled)
        cudaGetLastError();
      else
        TRY(cuda_status(error, "cannot reach another GPU", err));
    }
  }
  return STATUS_OK;
}

/* Connects this part's GPU with the others by NCCL, for sums as large as a prompt's steps have. */
static Status connect_by_nccl(const BackendModel *part, Error *err) {
  TRY(use(part, err));
  return nccl_connect(part->reduce, (size_t)part->model->config.hidden * LARGEST_SUM, part->stream, err);
}

/* Checks that OpenMP gives n threads, one for each GPU: a GPU's collectives wait for the other GPUs'
 * collectives, which other threads have to launch. */
static Status check_threads(int n, Error *err) {
  int n_threads = 0;
  omp_set_dynamic(0);
#pragma omp parallel num_threads(n)
#pragma omp single
  n_threads = omp_get_num_threads();
  if (n_threads == n) return STATUS_OK;
  return error_set(err, STATUS_FAILED,
                   "--split %d by NCCL needs %d OpenMP threads, and gets %d (OMP_THREAD_LIMIT)", n, n,
                   n_threads);
}

/* Joins the GPUs by NCCL. A drafter's GPUs are those of its target, which are joined already. */
static Status join_gpus(SeveralModel *loaded, const BackendOptions *options, Error *err) {
  Reduce *ranks[MAX_SPLIT] = {0};
  Status status[MAX_SPLIT];
  Error errors[MAX_SPLIT];
  for (int i = 0; i < options->split && options->target; i++)
    loaded->parts[i]->reduce = model_of(options->target)->parts[i]->reduce;
  if (options->target) return STATUS_OK;
  TRY(check_threads(options->split, err));
  TRY(nccl_join_all(options->gpus, options->split, ranks, err));
  for (int i = 0; i < options->split; i++) loaded->parts[i]->reduce = ranks[i];
#pragma omp parallel for num_threads(options->split) schedule(static, 1)
  for (int i = 0; i < options->split; i++) {
    status[i] = connect_by_nccl(loaded->parts[i], &errors[i]);
    for (int k = 0; k < options->split && status[i]; k++) nccl_abort(ranks[k]);
  }
  for (int i = 0; i < options->split; i++)
    if (status[i]) return error_set(err, status[i], "GPU %d: %s", options->gpus[i], errors[i].text);
  return STATUS_OK;
}

static Status load_part(SeveralModel *loaded, const BackendOptions *options, int index, Error *err) {
  BackendOptions own = *options;
  OWNED(part_release) Model *part = NULL;
  own.gpu = options->gpus[index];
  own.split = 0;
  own.target = options->target ? model_of(options->target)->parts[index] : NULL;
  own.weight_bytes = 0;
  const int rank = loaded->first_part + index;
  TRY(model_part(loaded->model, rank, options->split, &part, err));
  TRY(cuda_backend.load(part, &own, &loaded->parts[index], err));
  part = NULL; /* unload_model() frees it */
  loaded->parts[index]->rank = rank;
  return STATUS_OK;
}

static void unload_model(BackendModel *whole) {
  SeveralModel *loaded = model_of(whole);
  if (!loaded) return;
  if (loaded->ranks) ranks_forget_nccl(loaded->ranks);
  for (int i = 0; loaded->parts && i < loaded->n_parts; i++) {
    BackendModel *own = loaded->parts[i];
    if (!own) continue;
    Model *part = (Model *)own->model;
    cudaSetDevice(own->gpu);
    if (!own->target) nccl_leave(own->reduce);
    cuda_backend.unload(own);
    model_part_free(part);
  }
  free(loaded->parts);
  free(loaded);
}

RELEASE_BY(whole_release, BackendModel, unload_model)

/* Makes all GPUs run the same kind of step. Separate kernels are needed in three cases:
 *   - sums are by NCCL, which a fused kernel cannot call;
 *   - a GPU cannot run the fused step, for example because fp16 does not hold its rows of a bf16 lm_head;
 *   - the GPUs' fused steps differ in the number of clusters, and every cluster contributes to a sum.
 *     With `demanded` this is an error.
 * A copy of lm_head in 8 bits stays only if all GPUs have one and the fused step: a pick that needs more
 * logits than the copy left is an exchange of all GPUs. */
static Status agree_on_decode_step(SeveralModel *loaded, bool demanded, Error *err) {
  bool kernels = loaded->parts[0]->reduce != NULL, alike = true;
  for (int i = 0; i < loaded->n_parts; i++) kernels |= loaded->parts[i]->decode_step == DECODE_KERNELS;
  for (int i = 1; i < loaded->n_parts; i++)
    alike = alike && fused_clusters(loaded->parts[i]) == fused_clusters(loaded->parts[0]);
  if (demanded && !kernels && !alike)
    return error_set(err, STATUS_MODEL, "one kernel a step: not with GPUs, or parts of them, that differ");
  for (int i = 0; i < loaded->n_parts && (kernels || !alike); i++)
    loaded->parts[i]->decode_step = DECODE_KERNELS;
  bool screens = alike && !kernels;
  for (int i = 0; i < loaded->n_parts; i++) screens = screens && loaded->parts[i]->screen;
  for (int i = 0; i < loaded->n_parts && !screens; i++) fused_release_screen(loaded->parts[i]);
  return STATUS_OK;
}

/* Loads this process's part, and joins its GPU with the other processes' GPUs. */
static Status load_among_ranks(SeveralModel *loaded, const BackendOptions *options, Error *err) {
  loaded->first_part = ranks_rank(options->ranks);
  loaded->n_parts = 1;
  TRY(load_part(loaded, options, 0, err));
  TRY(use(loaded->parts[0], err));
  if (loaded->first_part == 0) loaded->ranks = options->ranks;
  TRY(ranks_join_nccl(options->ranks, &loaded->parts[0]->reduce, err));
  TRY(explain(loaded, connect_by_nccl(loaded->parts[0], err), err));
  return agree_on_decode_step(loaded, options->decode_step == DECODE_FUSED, err);
}

/* Loads a part on each GPU of this process, and connects them. */
static Status load_here(SeveralModel *loaded, const BackendOptions *options, bool reach, bool by_nccl,
                        Error *err) {
  loaded->n_parts = options->split;
  for (int i = 0; i < options->split; i++) TRY(load_part(loaded, options, i, err));
  if (reach && !by_nccl) TRY(connect_gpus(options, err));
  if (by_nccl) TRY(join_gpus(loaded, options, err));
  return agree_on_decode_step(loaded, options->decode_step == DECODE_FUSED, err);
}

static Status load_model(const Model *model, const BackendOptions *options, BackendModel **out, Error *err) {
  *out = NULL;
  bool reach, by_nccl;
  TRY(check_split(model, options->split, err));
  TRY(choose_sums(options, &reach, &by_nccl, err));
  SeveralModel *loaded;
  TRY(NEW(loaded, 1, "model", err));
  OWNED(whole_release) BackendModel *whole = (BackendModel *)loaded;
  loaded->model = model;
  TRY(NEW(loaded->parts, (size_t)options->split, "model", err));
  if (options->ranks)
    TRY(load_among_ranks(loaded, options, err));
  else
    TRY(load_here(loaded, options, reach, by_nccl, err));
  *out = TAKE(whole);
  return STATUS_OK;
}

static Status arithmetic(const BackendModel *loaded, char *out, size_t size, Error *err) {
  const BackendModel *first = model_of(loaded)->parts[0];
  TRY(cuda_backend.arithmetic(first, out, size, err));
  const size_t used = strlen(out);
  snprintf(out + used, size - used, ", shared by %d GPUs%s", first->model->config.split,
           first->reduce ? " by NCCL" : "");
  return STATUS_OK;
}

/* Backend.row_costs. `costs` is for models without experts whose steps of one row are fused; steps of more
 * rows are separate kernels. It is estimated from the tokens/s of both (LOG.md, "Several GPUs"). */
static const double *row_costs(const BackendModel *loaded) {
  static const double costs[GUESS_ROWS + 1] = {0,   0.6, 0.65, 0.7, 0.75, 0.8, 0.85, 0.9,
                                               1.3, 1.3, 1.3,  1.3, 1.3,  1.3, 1.3,  1.3};
  const BackendModel *first = model_of(loaded)->parts[0];
  const bool fused = first->decode_step != DECODE_KERNELS && first->model->config.experts.n_experts == 0;
  return fused ? costs : tokens_row_costs(first);
}

/* --- a session */

/* Makes every GPU stop waiting for others. */
static void give_up(const SeveralState *s) {
  *(volatile int *)s->parts[0]->lost = -1;
  for (int i = 0; i < s->n_parts; i++) nccl_abort(s->loaded->parts[i]->reduce);
}

/* How many parts pick tokens: all parts; with NCCL only the first, which alone has all logits. */
static int picking_parts(const SeveralState *s) {
  return s->loaded->parts[0]->reduce ? 1 : s->n_parts;
}

/* Reports a GPU that did not answer in time. PRECOND the kernels that waited have ended. */
static Status check_lost(const SeveralState *s, Error *err) {
  const int lost = *(volatile int *)s->parts[0]->lost;
  if (s->loaded->ranks) TRY(ranks_check(s->loaded->ranks, lost != 0, err));
  if (lost == 0) return STATUS_OK;
  if (lost < 0) return error_set(err, STATUS_FAILED, "a GPU failed in an earlier step");
  return error_set(err, STATUS_FAILED, "GPU %d did not answer the others for %d s",
                   s->loaded->parts[lost - 1]->gpu, (int)(patience / 1000000000));
}

static void close_session(BackendState *state) {
  SeveralState *s = state_of(state);
  if (!s) return;
  if (s->loaded->ranks && s->number >= 0) calls_close(s->loaded->ranks, s->number);
  if (s->parts && s->parts[0]) *(volatile int *)s->parts[0]->lost = -1;
  for (int i = s->n_parts - 1; s->parts && i >= 0; i--) { /* the first part, which has `lost`, as the last */
    if (!s->parts[i]) continue;
    cudaSetDevice(s->loaded->parts[i]->gpu);
    cuda_backend.close(s->parts[i]);
  }
  free(s->parts);
  free(s);
}

RELEASE_BY(opened_release, BackendState, close_session)

/* Gives each part's fused kernel the mailboxes of all parts. Refuses GPUs if only some have such a kernel;
 * does nothing if none has one. */
static Status connect_fused(SeveralState *s, Error *err) {
  StepPeers to = {.n = s->n_parts, .lost = s->parts[0]->lost, .patience = patience};
  int n_fused = 0;
  for (int i = 0; i < s->n_parts; i++) n_fused += (to.mail[i] = fused_mail(s->parts[i]->fused)) != NULL;
  if (n_fused > 0 && n_fused < s->n_parts)
    return error_set(err, STATUS_FAILED, "--split: these GPUs differ (--decode-step kernels)");
  for (to.rank = 0; n_fused > 0 && to.rank < s->n_parts; to.rank++) {
    to.first_token = s->parts[0]->peers.first_logit[to.rank];
    fused_connect(s->parts[to.rank]->fused, &to);
  }
  return STATUS_OK;
}

/* Gives each part the word `lost` and the ranges of the parts' logits; without NCCL also the addresses of all
 * parts' memory. */
static Status connect_parts(SeveralState *s, Error *err) {
  const int n = s->parts[0]->peers.n;
  for (int i = 0; i < s->n_parts; i++) {
    Peers *to = &s->parts[i]->peers;
    to->lost = s->parts[0]->lost;
    to->patience = patience;
    to->first_logit[n] = s->loaded->model->config.vocab_size;
    for (int k = 0; k < n; k++)
      to->first_logit[k] = model_part_head(s->loaded->model->config.vocab_size, k, n);
    for (int k = 0; k < s->n_parts && !s->loaded->parts[0]->reduce; k++)
      state_reach(s->parts[i], s->parts[k]);
  }
  return s->loaded->parts[0]->reduce ? STATUS_OK : connect_fused(s, err);
}

static Status open_session(BackendModel *whole, const StateOptions *options, BackendState **out, Error *err) {
  const SeveralModel *loaded = model_of(whole);
  SeveralState *s;
  *out = NULL;
  TRY(NEW(s, 1, "session", err));
  OWNED(opened_release) BackendState *state = (BackendState *)s;
  s->loaded = loaded;
  s->n_parts = loaded->n_parts;
  s->number = -1;
  TRY(NEW(s->parts, (size_t)s->n_parts, "session", err));
  if (loaded->ranks) TRY(calls_open(loaded->ranks, options, &s->number, err));
  EACH_PART(s, i) {
    StateOptions own = *options;
    own.target = options->target ? state_of(options->target)->parts[i] : NULL;
    TRY(cuda_backend.open(loaded->parts[i], &own, &s->parts[i], err));
  }
  TRY(connect_parts(s, err));
  *out = TAKE(state);
  return STATUS_OK;
}

/* --- a step */

/* One GPU's part of a step. If a drafter's step reads the target's states (span.states >= 0), its sums are
 * begun here. Otherwise forward() calls begin_step(), which begins them. */
static Status step_part(BackendState *part, const void *input, Error *err) {
  const TokenRange span = *(const TokenRange *)input;
  const ModelConfig *c = &part->loaded->model->config;
  if (c->draft.kind && span.states >= 0) TRY(shared_begin_sums(part, step_sums(c), err));
  return forward(&cuda_backend, part, &part->loaded->program, span, err);
}

/* Makes logits outside of a step. It advances the tags by two although it uses one tag: first_tag is
 * always even. */
static Status logits_of_part(BackendState *part, const void *span, Error *err) {
  TRY(shared_begin_sums(part, 2, err));
  return cuda_backend.run[OP_LOGITS](part, *(const TokenRange *)span, part->loaded->model->config.n_layers,
                                     err);
}

static Status gather_on_part(BackendState *part, const void *sampler, Error *err) {
  return tokens_gather(part, sampler, err);
}

/* Runs work(part, input) for the parts on all GPUs at once, in a thread for each. */
static Status on_all(const SeveralState *s, Status (*work)(BackendState *part, const void *input, Error *err),
                     const void *input, Error *err) {
  Status status[MAX_SPLIT];
  Error errors[MAX_SPLIT];
#pragma omp parallel for num_threads(s->n_parts) schedule(static, 1)
  for (int i = 0; i < s->n_parts; i++) {
    status[i] = use(s->loaded->parts[i], &errors[i]);
    if (!status[i]) status[i] = work(s->parts[i], input, &errors[i]);
    if (status[i]) give_up(s);
  }
  for (int i = 0; i < s->n_parts; i++)
    if (status[i]) {
      error_set(err, status[i], "GPU %d: %s", s->loaded->parts[i]->gpu,
                errors[i].text + (strncmp(errors[i].text, "GPU: ", 5) == 0 ? 5 : 0));
      return explain(s->loaded, status[i], err);
    }
  return STATUS_OK;
}

static Status whole_step(BackendState *state, TokenRange span, bool *done, Error *err) {
  SeveralState *s = state_of(state);
  *done = true;
  if (s->loaded->ranks) TRY(calls_step(s->loaded->ranks, CALL_STEP, s->number, span, err));
  return on_all(s, step_part, &span, err);
}

/* Waits for all GPUs before the logits are overwritten: a peer may still be copying the logits of the last
 * call, and no sum between the two calls orders them. */
static Status make_logits_again(BackendState *state, TokenRange span, int layer, Error *err) {
  SeveralState *s = state_of(state);
  span.ids = NULL;
  if (s->loaded->ranks) TRY(calls_step(s->loaded->ranks, CALL_LOGITS, s->number, span, err));
  EACH_PART(s, i) TRY(explain(s->loaded, state_wait(s->parts[i], err), err));
  return on_all(s, logits_of_part, &span, err);
}

/* --- drafters */

static Status take_drafted(BackendState *state, BackendState *target, int row, int n, const int *taps, int to,
                           Error *err) {
  SeveralState *s = state_of(state);
  EACH_PART(s, i) TRY(draft_take(s->parts[i], state_of(target)->parts[i], row, n, taps, to, err));
  return STATUS_OK;
}

static Status move_drafted(BackendState *state, int from, int to, Error *err) {
  SeveralState *s = state_of(state);
  EACH_PART(s, i) TRY(draft_move(s->parts[i], from, to, err));
  return STATUS_OK;
}

static Status append_context(BackendState *state, TokenRange span, Error *err) {
  SeveralState *s = state_of(state);
  EACH_PART(s, i) TRY(draft_context(s->parts[i], span, err));
  return STATUS_OK;
}

/* --- tokens */

static Status wait_for_token(BackendState *state, int32_t *id, Error *err) {
  SeveralState *s = state_of(state);
  Status status = STATUS_OK;
  for (int i = 0; i < picking_parts(s) && !status; i++) {
    int32_t own;
    status = use(s->loaded->parts[i], err);
    if (!status) status = tokens_wait(s->parts[i], &own, err);
    if (!status && i > 0 && own != *id)
      status = error_set(err, STATUS_FAILED, "GPU %d picked token %d where GPU %d picked %d",
                         s->loaded->parts[i]->gpu, own, s->loaded->parts[0]->gpu, *id);
    if (i == 0) *id = own;
  }
  status = explain(s->loaded, status, err);
  TRY(check_lost(s, err)); /* reports the reason, if there is one */
  if (status) give_up(s);
  return status;
}

static size_t head_spares(const BackendState *state, const Sampler *sampler, int pos) {
  const SeveralState *s = state_of(state);
  size_t bytes = 0;
  for (int i = 0; i < s->n_parts; i++) bytes += tokens_head_spares(s->parts[i], sampler, pos);
  return bytes;
}

static Status sample_token(BackendState *state, Sampler *sampler, int row, int32_t *id, Error *err) {
  SeveralState *s = state_of(state);
  if (tokens_meet(s->parts[0], sampler, row)) TRY(on_all(s, gather_on_part, sampler, err));
  for (int i = 0; i < picking_parts(s); i++) {
    TRY(use(s->loaded->parts[i], err));
    TRY(tokens_pick(s->parts[i], sampler, row, id != NULL, err));
  }
  sampler_take_draw(sampler);
  return id ? wait_for_token(state, id, err) : STATUS_OK;
}

static Status sample_rows(BackendState *state, Sampler *const *samplers, int n, int32_t *ids, Error *err) {
  SeveralState *s = state_of(state);
  TRY(tokens_take_draws(s->parts[0], samplers, n, err));
  for (int i = 0; i < picking_parts(s); i++) {
    TRY(use(s->loaded->parts[i], err));
    if (i > 0) tokens_copy_draws(s->parts[i], s->parts[0]);
    TRY(tokens_pick_rows(s->parts[i], samplers, err));
  }
  for (int i = 0; i < picking_parts(s); i++) {
    TRY(use(s->loaded->parts[i], err));
    TRY(explain(s->loaded, tokens_take_rows(s->parts[i], ids, err), err));
  }
  return check_lost(s, err);
}

/* Waits for all GPUs, also after a failure. */
static Status drain(BackendState *state, Error *err) {
  SeveralState *s = state_of(state);
  Status status = STATUS_OK;
  for (int i = 0; i < s->n_parts; i++) {
    Status own = use(s->loaded->parts[i], status ? NULL : err);
    if (!own) own = tokens_drain(s->parts[i], status ? NULL : err);
    if (!status) status = own;
  }
  TRY(explain(s->loaded, status, err));
  return check_lost(s, err);
}

/* Reads from the first GPU. After the gather it has all logits; with NCCL no other GPU has them all. */
static Status read_logits(BackendState *state, int row, float *out, Error *err) {
  SeveralState *s = state_of(state);
  if (tokens_meet(s->parts[0], NULL, row)) TRY(on_all(s, gather_on_part, NULL, err));
  TRY(use(s->loaded->parts[0], err));
  TRY(explain(s->loaded, tokens_read_logits(s->parts[0], row, out, err), err));
  return check_lost(s, err);
}

static Status read_taps(BackendState *state, int row, int n, float *out, Error *err) {
  SeveralState *s = state_of(state);
  TRY(use(s->loaded->parts[0], err));
  TRY(state_read_taps(s->parts[0], row, n, out, err));
  return check_lost(s, err);
}

/* --- the cache. On the host: keys of all parts' heads in order, scales of keys, values, scales of values */

static Status copy_kv(BackendState *state, CopyDirection direction, TokenRange span, int layer, int n,
                      void *host, Error *err) {
  SeveralState *s = state_of(state);
  const int n_heads = config_layer(&s->loaded->model->config, layer).n_kv_heads;
  if (s->loaded->ranks)
    return error_set(err, STATUS_FAILED, "keys and values of several processes cannot be kept");
  for (int i = 0; i < s->n_parts; i++) {
    const int first = model_part_kv_head(n_heads, i, s->n_parts);
    TRY(state_copy_heads(s->parts[i], direction, span, layer, n, host, first, n_heads, err));
  }
  return STATUS_OK;
}

/* --- recurrent states */

static Status save_states(BackendState *state, int slot, Error *err) {
  SeveralState *s = state_of(state);
  if (s->loaded->ranks) TRY(calls_tell(s->loaded->ranks, CALL_SAVE, s->number, slot, 0, err));
  EACH_PART(s, i) TRY(state_save(s->parts[i], slot, err));
  return STATUS_OK;
}

static Status restore_states(BackendState *state, int slot, Error *err) {
  SeveralState *s = state_of(state);
  if (s->loaded->ranks) TRY(calls_tell(s->loaded->ranks, CALL_RESTORE, s->number, slot, 0, err));
  EACH_PART(s, i) TRY(state_restore(s->parts[i], slot, err));
  return STATUS_OK;
}

static Status copy_states(BackendState *state, CopyDirection direction, int slot, int layer, void *host,
                          Error *err) {
  SeveralState *s = state_of(state);
  if (s->loaded->ranks)
    return error_set(err, STATUS_FAILED, "recurrent states of several processes cannot be kept on disk");
  const size_t bytes = state_recurrent_bytes(&s->loaded->model->config, layer);
  if (direction == TO_HOST) memset(host, 0, bytes); /* the parts leave gaps */
  for (int i = 0; i < s->n_parts; i++)
    TRY(state_copy_part(s->parts[i], direction, slot, layer, host, i, s->n_parts, err));
  return STATUS_OK;
}

/* --- pages */

static Status set_pages(BackendState *state, int sequence, int first, const int32_t *pages, int n,
                        Error *err) {
  SeveralState *s = state_of(state);
  if (s->loaded->ranks) TRY(calls_set_pages(s->loaded->ranks, s->number, sequence, first, pages, n, err));
  for (int i = 0; i < s->n_parts; i++) TRY(state_set_pages(s->parts[i], sequence, first, pages, n, err));
  return STATUS_OK;
}

static Status copy_page(BackendState *state, int from, int to, Error *err) {
  SeveralState *s = state_of(state);
  if (s->loaded->ranks) TRY(calls_tell(s->loaded->ranks, CALL_COPY_PAGE, s->number, from, to, err));
  EACH_PART(s, i) TRY(state_copy_page(s->parts[i], from, to, err));
  return STATUS_OK;
}

/* --- the backend as a table */

static Status only_whole_steps(BackendState *state, TokenRange range, int layer, Error *err) {
  return error_set(err, STATUS_FAILED, "several GPUs compute whole steps");
}

/* Times the sums in a session that it opens for them. */
static Status time_sums(BackendModel *loaded, const int *rows, int n, double *microseconds, Error *err) {
  StateOptions options = {.n_ctx = 1, .max_chunk = 1, .max_logit_rows = 1, .kv = KV_F16};
  OWNED(opened_release) BackendState *state = NULL;
  for (int i = 0; i < n; i++)
    if (options.max_chunk < rows[i]) options.max_chunk = options.n_ctx = rows[i];
  TRY(open_session(loaded, &options, &state, err));
  return sums_bench(state_of(state)->parts, state_of(state)->n_parts, rows, n, microseconds, err);
}

static const BackendProbe several_probe = {.places = weights_memory,
                                           .shares = weights_of_parts,
                                           .memory_now = cuda_memory_now,
                                           .describe = cuda_describe,
                                           .time_kernels = kernel_bench,
                                           .measure_machine = kernel_bench_machine,
                                           .time_sums = time_sums};

const Backend cuda_several_backend = {
    .name = "cuda",
    .probe = &several_probe,
    .chunk = CUDA_CHUNK,
    .row_cost = CUDA_ROW_COST,
    .row_costs = row_costs,
    .guesses = GUESS_ROWS,
    .check_model = cuda_check_model,
    .check_invariant = prepare_check_invariant,
    .prefers_invariant = prepare_prefers_invariant,
    .load = load_model,
    .unload = unload_model,
    .memory = needed_memory,
    .state_bytes = state_bytes,
    .open = open_session,
    .close = close_session,
    .read_logits = read_logits,
    .kv_copy = copy_kv,
    .arithmetic = arithmetic,
    .recurrent_bytes = state_recurrent_bytes,
    .state_save = save_states,
    .state_restore = restore_states,
    .state_copy = copy_states,
    .fused_step = whole_step,
    .wait_token = wait_for_token,
    .drain = drain,
    .head_spares = head_spares,
    .page_tokens = KV_PAGE_TOKENS,
    .sequences = CUDA_SEQUENCES,
    .set_pages = set_pages,
    .copy_page = copy_page,
    .draft_take = take_drafted,
    .draft_move = move_drafted,
    .draft_context = append_context,
    .read_taps = read_taps,
    .sample = sample_token,
    .sample_rows = sample_rows,
#define OPERATION(KIND, ...) .run[OP_##KIND] = OP_##KIND == OP_LOGITS ? make_logits_again : only_whole_steps,
#include "model/operations.def"
};
