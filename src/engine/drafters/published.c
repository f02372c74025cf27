/* published.c - see published.h.
 *
 * Called by: commands/answer/guess.c; drafter_pool.c through drafter.h.
 * Always true: the cache's rows 0 .. n_rows - 1 belong to the text's tokens from position `first` on. Tokens
 *              before `first` were not seen; RoPE depends on distances only. EAGLE-3 and MTP: row i is made
 *              of the state of token first + i and the embedding of the token after it. If has_last, row LAST
 *              of the states is that of token first + n_rows, which has no row yet. DFlash: row i is made of
 *              the state of token first + i. Gemma 4: the drafter has no rows; row LAST of the states is that
 *              of the token at `first`. Nothing allocates after the first take() of a target. */
#include "engine/drafters/published.h"

#include <stdlib.h>
#include <string.h>

#include "engine/forward.h"

enum { CHUNK = 64, LAST = CHUNK }; /* CHUNK: most rows of a step; LAST: the row of states after these */

typedef struct {
  const Backend *backend;
  const Model *model;
  DraftConfig draft;
  Program program;
  StateOptions sizes;
  BackendModel *loaded;
  bool owns_loaded;
  BackendState *state;
  const BackendState *target_state; /* `state` was opened for this target (Gemma 4) */
  Sampler *sampler;
  TapList taps;
  int tap_of[MAX_DRAFT_STATES]; /* [n_states] */
  int first, n_rows;
  bool has_last, started;
  int32_t queued_ids[CHUNK]; /* [n_queued] tokens whose states are rows 0 .. n_queued - 1 */
  int n_queued;
  int logits_row; /* row of the last guess's logits */
} Published;

/* --- rows of the text */

/* The position of the next token whose state the drafter expects. */
static int next_position(const Published *p) {
  return p->first + p->n_rows + p->has_last + p->n_queued;
}

/* Drops rows and queued states from position pos on. The row before pos has the embedding of the token that
 * was at pos. This row stays even if the token has changed: one slightly wrong key among many only makes
 * guesses worse. */
static void cut(Published *p, int pos) {
  const int next = next_position(p), queued_from = next - p->n_queued;
  if (p->started && pos >= queued_from && pos <= next) {
    p->n_queued = pos - queued_from;
    return;
  }
  if (!p->started || pos < p->first || pos > next) {
    p->first = pos;
    p->n_rows = 0;
  } else {
    p->n_rows = pos - p->first;
  }
  p->has_last = false;
  p->started = true;
  p->n_queued = 0;
}

/* Appends n rows to the cache, made of ids[0 .. n) and of the backend's rows of states from `states` on. */
static Status add_rows(Published *p, const int32_t *ids, int states, int n, Error *err) {
  const TokenRange range = {.pos = p->n_rows, .n_tokens = n, .ids = ids, .states = states};
  if (p->draft.kind == DRAFT_DFLASH)
    TRY(p->backend->draft_context(p->state, range, err));
  else
    TRY(forward(p->backend, p->state, &p->program, range, err));
  p->n_rows += n;
  return STATUS_OK;
}

/* Computes the rows of the queued states. */
static Status flush(Published *p, Error *err) {
  const int n = p->n_queued;
  p->n_queued = 0;
  if (n == 0) return STATUS_OK;
  if (p->draft.kind == DRAFT_DFLASH) return add_rows(p, p->queued_ids, 0, n, err);
  if (p->has_last) TRY(add_rows(p, p->queued_ids, LAST, 1, err));
  if (n > 1) TRY(add_rows(p, p->queued_ids + 1, 0, n - 1, err));
  TRY(p->backend->draft_move(p->state, n - 1, LAST, err));
  p->has_last = true;
  return STATUS_OK;
}

/* Queues states until guesses are wanted, or until the states fill a step: so a step that takes no guesses
 * costs little more than without a drafter. */
static Status queue(Published *p, const DraftRows *rows, Error *err) {
  for (int done = 0; done < rows->n;) {
    const int left = rows->n - done, room = CHUNK - p->n_queued, n = left < room ? left : room;
    TRY(p->backend->draft_take(p->state, rows->target, rows->row + done, n, p->tap_of, p->n_queued, err));
    memcpy(p->queued_ids + p->n_queued, rows->ids + done, (size_t)n * sizeof *p->queued_ids);
    p->n_queued += n;
    done += n;
    if (p->n_queued == CHUNK) TRY(flush(p, err));
  }
  return STATUS_OK;
}

/* Takes the newest state, which is all that an assistant of Gemma 4 needs. */
static Status take_newest(Published *p, const DraftRows *rows, Error *err) {
  TRY(p->backend->draft_take(p->state, rows->target, rows->row + rows->n - 1, 1, p->tap_of, LAST, err));
  p->first = rows->pos + rows->n - 1;
  p->has_last = p->started = true;
  return STATUS_OK;
}

/* Opens the state of a drafter that uses the target's keys and values. */
static Status follow_target(Published *p, const BackendState *target, Error *err) {
  if (p->draft.kind != DRAFT_ASSISTANT || p->target_state == target) return STATUS_OK;
  if (p->state) p->backend->close(p->state);
  p->state = NULL;
  p->target_state = NULL;
  p->sizes.target = target;
  TRY(p->backend->open(p->loaded, &p->sizes, &p->state, err));
  p->target_state = target;
  return STATUS_OK;
}

static Status take(void *self, const DraftRows *rows, Error *err) {
  Published *p = self;
  if (p->draft.kind == DRAFT_ASSISTANT) {
    TRY(follow_target(p, rows->target, err));
    return take_newest(p, rows, err);
  }
  cut(p, rows->pos);
  Status status = queue(p, rows, err);
  if (status) p->started = false;
  return status;
}

/* --- guesses */

/* Each guess uses the random number with which the target will pick that token. Penalties are left out. */
static Status begin_picks(Published *p, const DraftText *text, Error *err) {
  SamplerSettings settings = *sampler_settings(text->sampler);
  settings.repetition_penalty = 1;
  settings.presence_penalty = settings.frequency_penalty = 0;
  TRY(sampler_set(p->sampler, &settings, err));
  sampler_set_draws(p->sampler, sampler_draws(text->sampler));
  return STATUS_OK;
}

/* Picks a token from a row of logits; *id is its id in the target's vocabulary. */
static Status pick(Published *p, int row, int32_t *id, Error *err) {
  const int32_t *ids = p->model->draft.target_ids;
  p->logits_row = row;
  TRY(p->backend->sample(p->state, p->sampler, row, id, err));
  if (ids) *id = ids[*id];
  return STATUS_OK;
}

/* Makes one guess after another, each from the token before it and a state: at first the target's in row
 * LAST, then the drafter's own. */
static Status propose_chain(Published *p, const DraftText *text, int most, Guesses *guesses, Error *err) {
  const bool moves = p->draft.kind != DRAFT_ASSISTANT;
  const int n_known = text->n - text->n_computed;
  int32_t id = text->ids[text->n_computed];
  for (int i = 0; i < n_known + most - 1; i++) {
    const TokenRange range = {.pos = moves ? p->n_rows + i : text->n_computed,
                              .n_tokens = 1,
                              .ids = &id,
                              .n_logit_rows = 1,
                              .states = i == 0 ? LAST : -1};
    if (range.pos >= p->sizes.n_ctx) return STATUS_OK;
    TRY(forward(p->backend, p->state, &p->program, range, err));
    if (i + 1 < n_known) {
      id = text->ids[text->n_computed + i + 1];
      continue;
    }
    TRY(pick(p, 0, &id, err));
    guesses->ids[guesses->n++] = id;
  }
  return STATUS_OK;
}

/* Computes a block at once: the tokens that are known, then masks. The first masks, at most
 * `most`, become guesses. */
static Status propose_block(Published *p, const DraftText *text, int most, Guesses *guesses, Error *err) {
  const int n_known = text->n - text->n_computed, block = p->draft.block;
  int32_t ids[MAX_DRAFT_BLOCK];
  TokenRange range = {.pos = p->n_rows, .n_tokens = block, .ids = ids, .states = -1};
  if (n_known >= block || range.pos + block > p->sizes.n_ctx) return STATUS_OK;
  for (int i = 0; i < block; i++) ids[i] = i < n_known ? text->ids[text->n_computed + i] : p->draft.mask_id;
  TRY(forward(p->backend, p->state, &p->program, range, err));
  const int n = block - n_known < most ? block - n_known : most;
  range.first_logit = n_known, range.n_logit_rows = n;
  TRY(p->backend->run[OP_LOGITS](p->state, range, p->model->config.n_layers, err));
  for (int i = 0; i < n; i++) TRY(pick(p, i, &guesses->ids[i], err));
  guesses->n = n;
  return STATUS_OK;
}

static Status propose(void *self, const DraftText *text, int most, Guesses *guesses, Error *err) {
  Published *p = self;
  if (!p->started || next_position(p) != text->n_computed) return STATUS_OK;
  Status status = flush(p, err);
  if (status) p->started = false;
  TRY(status);
  TRY(begin_picks(p, text, err));
  if (p->draft.kind == DRAFT_DFLASH) return propose_block(p, text, most, guesses, err);
  return p->has_last ? propose_chain(p, text, most, guesses, err) : STATUS_OK;
}

Status published_logits(void *self, float *out, Error *err) {
  Published *p = self;
  return p->backend->read_logits(p->state, p->logits_row, out, err);
}

static void forget(void *self) {
  Published *p = self;
  p->started = p->has_last = false;
  p->n_rows = p->n_queued = 0;
}

/* --- opening and closing */

static StateOptions sizes_of(const PublishedOptions *options) {
  const DraftConfig *draft = &options->model->config.draft;
  const int block = draft->kind == DRAFT_DFLASH ? draft->block : DRAFT_MOST + 1;
  StateOptions sizes = {.n_ctx = options->n_ctx + block, .max_chunk = CHUNK, .kv = options->kv};
  sizes.max_logit_rows = draft->kind == DRAFT_DFLASH ? block : 1;
  return sizes;
}

size_t published_bytes(const PublishedOptions *options) {
  const StateOptions sizes = sizes_of(options);
  return options->backend->state_bytes(&options->model->config, &sizes);
}

TapList published_taps(const DraftConfig *draft) {
  TapList taps = {.n = 0};
  for (int i = 0; i < draft->n_states; i++) {
    const int layer = draft->states[i] - 1;
    int at = 0;
    while (at < taps.n && taps.layers[at] < layer) at++;
    if (at < taps.n && taps.layers[at] == layer) continue;
    memmove(taps.layers + at + 1, taps.layers + at, (size_t)(taps.n - at) * sizeof *taps.layers);
    taps.layers[at] = layer;
    taps.n++;
  }
  return taps;
}

/* Sets tap_of[i], the index of state i's layer among the taps. */
static void set_taps(Published *p) {
  p->taps = published_taps(&p->draft);
  for (int i = 0; i < p->draft.n_states; i++)
    for (int at = 0; at < p->taps.n; at++)
      if (p->taps.layers[at] == p->draft.states[i] - 1) p->tap_of[i] = at;
}

static void close_published(void *self) {
  Published *p = self;
  if (!p) return;
  if (p->state) p->backend->close(p->state);
  if (p->loaded && p->owns_loaded) p->backend->unload(p->loaded);
  sampler_close(p->sampler);
  program_release(&p->program);
  free(p);
}

Status published_load(const PublishedOptions *options, BackendModel **loaded, Error *err) {
  BackendOptions backend_options = *options->backend_options;
  backend_options.target = options->loaded_target;
  if (options->model->draft.target_head) {
    options->model->head = options->target->head;
    options->model->config.quant.ordered |= options->target->config.quant.ordered;
  }
  return options->backend->load(options->model, &backend_options, loaded, err);
}

static Status open_all(Published *p, const PublishedOptions *options, Error *err) {
  const SamplerSettings settings = {.top_p = 1, .repetition_penalty = 1};
  set_taps(p);
  TRY(sampler_open(&settings, p->model->config.vocab_size, &p->sampler, err));
  TRY(forward_prepare(p->backend, &p->model->config, &p->program, err));
  p->owns_loaded = !options->loaded;
  p->loaded = options->loaded;
  if (p->owns_loaded) TRY(published_load(options, &p->loaded, err));
  if (p->draft.kind == DRAFT_ASSISTANT) return STATUS_OK; /* follow_target() opens its state */
  return p->backend->open(p->loaded, &p->sizes, &p->state, err);
}

RELEASE_BY(published_release, Published, close_published)

Status published_open(const PublishedOptions *options, Drafter *drafter, Error *err) {
  static const char *const names[] = {[DRAFT_EAGLE3] = "eagle3",
                                      [DRAFT_DFLASH] = "dflash",
                                      [DRAFT_MTP] = "mtp",
                                      [DRAFT_ASSISTANT] = "assistant"};
  *drafter = (Drafter){.name = NULL};
  OWNED(published_release) Published *p = NULL;
  TRY(NEW(p, 1, "the drafter", err));
  p->backend = options->backend;
  p->model = options->model;
  p->draft = options->model->config.draft;
  p->sizes = sizes_of(options);
  TRY(open_all(p, options, err));
  *drafter = (Drafter){.name = names[p->draft.kind],
                       .taps = p->taps,
                       .cost = options->cost,
                       .self = p,
                       .take = take,
                       .propose = propose,
                       .forget = forget,
                       .close = close_published};
  p = NULL;
  return STATUS_OK;
}
