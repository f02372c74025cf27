/* tokens.c - see tokens.h.   Called by: src/engine through the backend, several.c. */
#include "cuda/one/tokens.h"

#include <string.h>
#include <time.h>

#include "cuda/kernels/ptx/device.h"
#include "cuda/one/residual.h"
#include "cuda/one/shared.h"
#include "cuda/one/state.h"

Status tokens_read_logits(BackendState *s, int row, float *out, Error *err) {
  const size_t vocab = (size_t)s->loaded->model->config.vocab_size, bytes = vocab * sizeof *out;
  TRY(tokens_make_logits(s, err));
  TRY(cuda_status(cudaMemcpyAsync(s->staging, s->logits + (size_t)row * vocab, bytes, cudaMemcpyDeviceToHost,
                                  s->loaded->stream),
                  "cannot copy logits", err));
  TRY(state_wait(s, err));
  memcpy(out, s->staging, bytes);
  return STATUS_OK;
}

/* Copies the host sampler's counts of seen tokens to the device, unless the device's counts, *version, are up
 * to date. Picks do not outdate them: with penalties the device counts its own picks, also the n_unread that
 * the host has not read yet. *version becomes the sampler's version once it has counted just this pick. */
static Status sync_notes(BackendState *s, int sequence, const Sampler *sampler, uint64_t n_unread,
                         uint64_t *version, Error *err) {
  const uint64_t now = sampler_version(sampler) + n_unread;
  const bool counts = sampler_has_penalties(sampler), same = *version == now;
  *version = counts ? now + 1 : UINT64_MAX;
  if (!counts || same) return STATUS_OK;
  TRY(state_wait(s, err)); /* the last copy may still read the staging memory */
  sampler_token_counts(sampler, s->staging);
  return device_sampler_set_notes(&s->sampler, sequence, s->staging, s->loaded->stream, err);
}

/* Copies the mask of the next pick to the device. */
static Status sync_mask(BackendState *s, const Sampler *sampler, Error *err) {
  const uint64_t *mask = sampler_allowed(sampler);
  if (!mask) return device_sampler_allow(&s->sampler, NULL, s->loaded->stream, err);
  if (s->mask_pick > s->n_taken) TRY(state_wait(s, err)); /* the last copy may still read the mask */
  const size_t n_words = ((size_t)s->loaded->model->config.vocab_size + 63) / 64;
  memcpy(s->mask, mask, n_words * sizeof *mask);
  s->mask_pick = s->n_enqueued + 1;
  return device_sampler_allow(&s->sampler, s->mask, s->loaded->stream, err);
}

static Status check_pick(const Sampled *picked, Error *err) {
  switch (picked->kind) {
  case SAMPLED_TOKEN: return STATUS_OK;
  case SAMPLED_NOTHING: return error_set(err, STATUS_FAILED, "GPU: a step ended without a token");
  default:
    return error_set(err, STATUS_FAILED, "%s: its weights or their arithmetic are broken",
                     picked->kind == SAMPLED_NAN ? "a logit of the model is NaN or infinite"
                                                 : "every logit of the model is -infinity");
  }
}

/* Takes the oldest pick that was not taken; waits until it is made. */
static Status take_pick(BackendState *s, Sampled *picked, Error *err) {
  static const struct timespec pause = {.tv_nsec = 20000}; /* leaves the core to the CPU's part of the step */
  const volatile Sampled *slot = &s->ring[s->n_taken % STATE_RING];
  Reduce *reduce = s->loaded->reduce;
  ReduceWait wait = {0};
  for (unsigned spin = 0; slot->kind == SAMPLED_NOTHING; spin++) {
    if (spin % 4096 != 4095) continue;
    cudaError_t error = cudaStreamQuery(s->loaded->stream);
    if (error == cudaErrorNotReady && s->loaded->n_host > 0) nanosleep(&pause, NULL);
    if (error == cudaErrorNotReady && reduce) TRY(reduce->look(reduce, &wait, err));
    if (error == cudaErrorNotReady) continue;
    if (error != cudaSuccess) return cuda_status(error, "a step failed", err);
    if (slot->kind == SAMPLED_NOTHING)
      return error_set(err, STATUS_FAILED, "GPU: a step ended without a token");
  }
  __sync_synchronize(); /* the id is read after the kind */
  *picked = (Sampled){slot->id, slot->kind};
  s->ring[s->n_taken++ % STATE_RING].kind = SAMPLED_NOTHING;
  return STATUS_OK;
}

Status tokens_wait(BackendState *s, int32_t *id, Error *err) {
  Sampled picked;
  TRY(tokens_enqueue_deferred(s, err));
  TRY(take_pick(s, &picked, err));
  *id = picked.id;
  return check_pick(&picked, err);
}

/* --- picks that the next step makes */

static Sampled *last_slot(BackendState *s) {
  return &s->ring[(s->n_enqueued - 1) % STATE_RING];
}

/* How many of the best logits a pick needs. Greedy: 1. Else top_k, if that is at most STEP_MOST_BEST. 0: all,
 * as with penalties or a mask. */
static int best_wanted(const Sampler *sampler) {
  const SamplerSettings *set = sampler_settings(sampler);
  if (sampler_has_penalties(sampler) || sampler_allowed(sampler)) return 0;
  if (set->temperature == 0) return 1;
  return set->top_k <= STEP_MOST_BEST ? set->top_k : 0;
}

size_t tokens_head_spares(const BackendState *s, const Sampler *sampler, int pos) {
  return best_wanted(sampler) > 0 ? fused_head_spares(s->fused, pos) : 0;
}

StepPick tokens_take_deferred(BackendState *s) {
  if (!s->is_deferred) return (StepPick){0};
  s->is_deferred = false;
  return (StepPick){s->rows.ids, last_slot(s)};
}

Status tokens_enqueue_deferred(BackendState *s, Error *err) {
  return s->is_deferred ? fused_pick(s->fused, tokens_take_deferred(s), s->loaded->stream, err) : STATUS_OK;
}

/* Picks the best token, which the last fused step left on the device. Without `waits` the pick is deferred:
 * the next step or tokens_enqueue_deferred() makes it. */
static Status pick_best(BackendState *s, bool waits, Error *err) {
  s->notes_version = UINT64_MAX; /* the device does not count this pick: there are no penalties */
  s->is_deferred = true;
  s->n_enqueued++;
  return waits ? tokens_enqueue_deferred(s, err) : STATUS_OK;
}

/* --- logits that a fused step left out, since only the best were wanted, and logits of other GPUs */

Status tokens_join_logits(BackendState *s, Error *err) {
  if (!s->logits_apart) return STATUS_OK;
  s->logits_apart = false;
  TRY(shared_begin_sums(s, 2, err));
  return shared_gather_logits(s, first_sum(s->loaded->model->config.n_layers), s->n_logit_rows, err);
}

/* True if the pick needs logits that the last step did not make. */
static bool wants_more(const BackendState *s, const Sampler *sampler) {
  const int wanted = best_wanted(sampler);
  return s->top_made > 0 && (wanted == 0 || wanted > s->top_made);
}

bool tokens_meet(const BackendState *s, const Sampler *sampler, int row) {
  if (sampler && row == 0 && s->has_best && best_wanted(sampler) == 1) return false;
  return s->logits_apart || (shared_in_memory(s) && (sampler ? wants_more(s, sampler) : s->top_made > 0));
}

Status tokens_gather(BackendState *s, const Sampler *sampler, Error *err) {
  return !sampler || wants_more(s, sampler) ? tokens_make_logits(s, err) : tokens_join_logits(s, err);
}

Status tokens_make_logits(BackendState *s, Error *err) {
  if (s->top_made == 0) return tokens_join_logits(s, err);
  TRY(fused_all_logits(s->fused, s->lm_head_in, s->logits + shared_first_logit(s), s->loaded->stream, err));
  s->top_made = 0;
  s->logits_apart = shared_in_memory(s);
  return tokens_join_logits(s, err);
}

/* --- picks from several rows at once
 *
 * After a step with guessed tokens, the caller asks for the rows' picks in turn, until a pick differs from
 * its guess. So the first request picks from its row and all later rows at once. Each pick has the draw
 * number that it would have if it were asked for. */

void tokens_forget_picks(BackendState *s) {
  s->ahead.n_rows = 0;
}

/* Drops the picks that were made ahead and not asked for. */
static Status drop_picks(BackendState *s, Error *err) {
  Sampled dropped;
  for (; s->ahead.n_left > 0; s->ahead.n_left--) TRY(take_pick(s, &dropped, err));
  return STATUS_OK;
}

static bool same_settings(const SamplerSettings *a, const SamplerSettings *b) {
  return a->temperature == b->temperature && a->top_k == b->top_k && a->top_p == b->top_p &&
         a->min_p == b->min_p && a->seed == b->seed;
}

/* True if there are no penalties (they depend on earlier picks) and no mask (it is for one row). */
static bool can_pick_ahead(const Sampler *sampler) {
  return !sampler_has_penalties(sampler) && !sampler_allowed(sampler);
}

/* True if the oldest pick not yet taken is from row `row`, made with the sampler's draw and settings. */
static bool is_picked(const BackendState *s, const Sampler *sampler, int row) {
  const PicksAhead *a = &s->ahead;
  return a->n_left > 0 && row == a->n_rows - a->n_left && sampler_draws(sampler) == a->draw + (uint64_t)row &&
         can_pick_ahead(sampler) && same_settings(sampler_settings(sampler), &a->settings);
}

/* Enqueues picks from row `row` and all rows after it. */
static Status pick_ahead(BackendState *s, const Sampler *sampler, int row, Error *err) {
  RowPick picks[STATE_ROW_PICKS];
  const int n = s->n_logit_rows - row;
  s->ahead = (PicksAhead){.n_rows = s->n_logit_rows,
                          .draw = sampler_draws(sampler) - (uint64_t)row,
                          .settings = *sampler_settings(sampler)};
  for (int i = 0; i < n; i++)
    picks[i] = (RowPick){.settings = &s->ahead.settings,
                         .draw = s->ahead.draw + (uint64_t)(row + i),
                         .row = row + i,
                         .sequence = i,
                         .slot = &s->ring[(s->n_enqueued + (uint64_t)i) % STATE_RING]};
  s->notes_version = UINT64_MAX; /* the device does not count picks without penalties */
  TRY(device_sampler_pick_rows(&s->sampler, picks, n, s->logits, s->loaded->stream, err));
  s->n_enqueued += (uint64_t)n;
  s->ahead.n_left = n;
  return STATUS_OK;
}

Status tokens_pick(BackendState *s, const Sampler *sampler, int row, bool waits, Error *err) {
  if (row < 0 || row >= s->n_logit_rows)
    return error_set(err, STATUS_FAILED, "a token was asked for before its logits");
  if (!waits || !is_picked(s, sampler, row)) TRY(drop_picks(s, err));
  const int n = s->n_logit_rows - row;
  const bool many = waits && n > 1 && n <= STATE_ROW_PICKS && can_pick_ahead(sampler);
  if (s->n_enqueued - s->n_taken + (many ? n : 1) > STATE_RING)
    return error_set(err, STATUS_FAILED, "more than %d tokens are on their way", STATE_RING);
  if (s->ahead.n_left == 0 && many) TRY(pick_ahead(s, sampler, row, err));
  if (s->ahead.n_left > 0) {
    s->ahead.n_left--;
    return STATUS_OK;
  }
  TRY(tokens_enqueue_deferred(s, err));
  s->top_asked = best_wanted(sampler);
  if (row == 0 && s->has_best && s->top_asked == 1) return pick_best(s, waits, err);
  TRY(tokens_gather(s, sampler, err));
  TRY(sync_notes(s, 0, sampler, s->n_enqueued - s->n_taken, &s->notes_version, err));
  TRY(sync_mask(s, sampler, err));
  const float *logits = s->logits + (size_t)row * (size_t)s->loaded->model->config.vocab_size;
  TRY(device_sampler_pick(&s->sampler, sampler_settings(sampler), sampler_draws(sampler), logits, s->rows.ids,
                          &s->ring[s->n_enqueued % STATE_RING], s->loaded->stream, err));
  s->n_enqueued++;
  return STATUS_OK;
}

Status tokens_sample(BackendState *s, Sampler *sampler, int row, int32_t *id, Error *err) {
  TRY(tokens_pick(s, sampler, row, id != NULL, err));
  sampler_take_draw(sampler);
  return id ? tokens_wait(s, id, err) : STATUS_OK;
}

Status tokens_drain(BackendState *s, Error *err) {
  s->is_deferred = false;
  Status status = state_wait(s, err);
  while (s->n_taken < s->n_enqueued) s->ring[s->n_taken++ % STATE_RING].kind = SAMPLED_NOTHING;
  s->ahead.n_left = 0;
  s->notes_version = UINT64_MAX;
  return status;
}

/* --- what guesses cost */

/* Backend.row_costs. fused: an H200's fused steps, between the costs with an empty context and with 8,192
 * tokens. They jump where the next kernel takes over (for 2, 4 or 8 rows, then separate kernels). hybrid: an
 * H200 with Qwen3.5-9B and Qwen3.8-27B; a step of one row is fused, a larger step is separate kernels.
 * experts: an H100, between Qwen3-30B-A3B and Qwen3.6-35B-A3B (LOG.md, "Experts of 2 to 32 tokens").
 * separate: estimates for models whose steps of one row are separate kernels, too; such a step is the
 * unit. */
const double *tokens_row_costs(const BackendModel *loaded) {
  static const double fused[GUESS_ROWS + 1] = {0,   0.08, 0.16, 0.16, 0.45, 0.45, 0.45, 0.45,
                                               0.8, 0.8,  0.8,  0.8,  0.8,  0.8,  0.8,  0.8},
                                         separate[GUESS_ROWS + 1] = {0,   0.15, 0.2, 0.25, 0.3, 0.35,
                                                                     0.4, 0.45, 0.8, 0.8,  0.8, 0.8,
                                                                     0.8, 0.8,  0.8, 0.8},
                                         hybrid[GUESS_ROWS + 1] = {0,   0.45, 0.8, 0.8, 1.0, 1.0, 1.1, 1.1,
                                                                   1.5, 1.5,  1.5, 1.5, 1.5, 1.5, 1.5, 1.5},
                                         experts[GUESS_ROWS + 1] = {0,   2.4, 2.7, 2.7, 3.0, 3.0, 3.0, 3.0,
                                                                    4.0, 4.0, 4.0, 4.0, 4.0, 4.0, 4.0, 4.0};
  if (loaded->model->config.experts.n_experts > 0) return experts;
  if (loaded->decode_step == DECODE_KERNELS) return separate;
  return config_has_states(&loaded->model->config) ? hybrid : fused;
}

/* --- several sequences */

/* Copies the masks in one piece. PRECOND the picks of the step before are complete. */
static Status copy_masks(BackendState *s, const RowPick *picks, Sampler *const *samplers, int n, Error *err) {
  const size_t n_words = ((size_t)s->loaded->model->config.vocab_size + 63) / 64;
  int first = INT32_MAX, last = -1;
  for (int i = 0; i < n; i++) {
    const int sequence = picks[i].sequence;
    if (!picks[i].masked) continue;
    if (sequence < first) first = sequence;
    if (sequence > last) last = sequence;
    memcpy(s->mask + (size_t)sequence * n_words, sampler_allowed(samplers[picks[i].row]),
           n_words * sizeof *s->mask);
  }
  if (last < 0) return STATUS_OK;
  return device_sampler_allow_all(&s->sampler, first, s->mask + (size_t)first * n_words, last - first + 1,
                                  s->loaded->stream, err);
}

Status tokens_take_draws(BackendState *s, Sampler *const *samplers, int n, Error *err) {
  if (n > s->n_logit_rows)
    return error_set(err, STATUS_FAILED, "tokens of %d rows were asked for, the last step made logits of %d",
                     n, s->n_logit_rows);
  if (s->n_picked_steps - s->n_taken_steps == 2)
    return error_set(err, STATUS_FAILED, "tokens of a third step were asked for before those of the first");
  RowPicks *to = &s->row_picks[s->n_picked_steps++ % 2];
  to->n = 0;
  for (int i = 0; i < n; i++)
    if (samplers[i])
      to->picks[to->n++] = (RowPick){.settings = sampler_settings(samplers[i]),
                                     .draw = sampler_take_draw(samplers[i]),
                                     .row = i,
                                     .sequence = sequences_of_logits(&s->sequences, i),
                                     .masked = sampler_allowed(samplers[i]) != NULL};
  return STATUS_OK;
}

/* The list of the last step whose picks were listed. */
static RowPicks *last_listed(BackendState *s) {
  return &s->row_picks[(s->n_picked_steps - 1) % 2];
}

void tokens_copy_draws(BackendState *s, BackendState *from) {
  s->n_taken_steps = s->n_picked_steps; /* also drops picks that a failure left untaken */
  RowPicks *to = &s->row_picks[s->n_picked_steps++ % 2];
  to->n = last_listed(from)->n;
  memcpy(to->picks, last_listed(from)->picks, (size_t)to->n * sizeof *to->picks);
}

Status tokens_pick_rows(BackendState *s, Sampler *const *samplers, Error *err) {
  const RowPicks *list = last_listed(s);
  if (list->n == 0) return STATUS_OK;
  for (int i = 0; i < list->n; i++) {
    RowPick *pick = &list->picks[i];
    TRY(sync_notes(s, pick->sequence, samplers[pick->row], 0, &s->row_versions[pick->sequence], err));
    pick->slot = &list->slots[i];
    pick->slot->kind = SAMPLED_NOTHING;
  }
  TRY(copy_masks(s, list->picks, samplers, list->n, err));
  TRY(device_sampler_pick_rows(&s->sampler, list->picks, list->n, s->logits, s->loaded->stream, err));
  return cuda_status(cudaEventRecord(list->made, s->loaded->stream), "cannot record an event", err);
}

Status tokens_take_rows(BackendState *s, int32_t *ids, Error *err) {
  const RowPicks *list = &s->row_picks[s->n_taken_steps++ % 2];
  if (list->n == 0) return STATUS_OK;
  /* With NCCL, state_wait() also notices that another GPU is lost. */
  TRY(s->loaded->reduce ? state_wait(s, err)
                        : cuda_status(cudaEventSynchronize(list->made), "a step failed", err));
  for (int i = 0; i < list->n; i++) {
    TRY(check_pick(&list->slots[i], err));
    ids[list->picks[i].row] = list->slots[i].id;
  }
  return STATUS_OK;
}

Status tokens_sample_rows(BackendState *s, Sampler *const *samplers, int n, int32_t *ids, Error *err) {
  TRY(tokens_take_draws(s, samplers, n, err));
  TRY(tokens_pick_rows(s, samplers, err));
  return ids ? tokens_take_rows(s, ids, err) : STATUS_OK;
}

Status tokens_fill(BackendState *s, TokenRange span, Error *err) {
  bool any = false;
  for (int i = 0; i < span.n_tokens; i++) any |= span.ids[i] == TOKEN_PICKED;
  if (!any) return STATUS_OK;
  const Segments segments = state_segments(s, span);
  return device_sampler_fill(&s->sampler, &segments, s->rows.ids, span.n_tokens, s->loaded->stream, err);
}
