/* backend.c - the backend of several GPUs as a table; several.h has its functions. Always true: a step runs
 * as a whole (fused_step, draft_step); OP_LOGITS is the only operation that is called alone. */
#include "cuda/several/backend.h"

#include "cuda/one/backend.h"
#include "cuda/one/kernel_bench.h"
#include "cuda/one/layers/prepare.h"
#include "cuda/one/open.h"
#include "cuda/one/weights.h"
#include "cuda/several/several.h"
#include "cuda/several/sums_bench.h"

static Status only_whole_steps(BackendState *state, TokenRange range, int layer, Error *err) {
  (void)state, (void)range, (void)layer;
  return error_set(err, STATUS_FAILED, "several GPUs compute whole steps");
}

static const BackendProbe several_probe = {.places = weights_memory,
                                           .shares = several_shares,
                                           .memory_now = cuda_memory_now,
                                           .describe = cuda_describe,
                                           .time_kernels = kernel_bench,
                                           .measure_machine = kernel_bench_machine,
                                           .time_sums = sums_bench};

const Backend cuda_several_backend = {
    .name = "cuda",
    .probe = &several_probe,
    .chunk = CUDA_CHUNK,
    .row_cost = CUDA_ROW_COST,
    .row_costs = several_row_costs,
    .guesses = GUESS_ROWS,
    .check_model = cuda_check_model,
    .check_invariant = prepare_check_invariant,
    .prefers_invariant = prepare_prefers_invariant,
    .load = several_load,
    .unload = several_unload,
    .memory = several_memory,
    .state_bytes = state_bytes,
    .open = several_open,
    .close = several_close,
    .read_logits = several_read_logits,
    .kv_read = several_kv_read,
    .kv_write = several_kv_write,
    .arithmetic = several_arithmetic,
    .recurrent_bytes = state_recurrent_bytes,
    .state_save = several_state_save,
    .state_restore = several_state_restore,
    .state_read = several_state_read,
    .state_write = several_state_write,
    .fused_step = several_fused_step,
    .wait_token = several_wait_token,
    .drain = several_drain,
    .page_tokens = KV_PAGE_TOKENS,
    .sequences = CUDA_SEQUENCES,
    .set_pages = several_set_pages,
    .copy_page = several_copy_page,
    .draft_take = several_draft_take,
    .draft_move = several_draft_move,
    .draft_context = several_draft_context,
    .draft_step = several_draft_step,
    .read_taps = several_read_taps,
    .sample = several_sample,
    .sample_rows = several_sample_rows,
#define OPERATION(KIND, ...) .run[OP_##KIND] = OP_##KIND == OP_LOGITS ? several_logits : only_whole_steps,
#include "model/operations.def"
};
