/* batch.c - see batch.h.
 *
 * Always true: ids[0 .. n_past) of a sequence are the tokens whose keys and values are in its pages; a page
 *              that two sequences use is full and computed; the sequences in use are in order of age;
 *              after batch_open() only open_slot() allocates.
 *
 * Pipelining (`overlaps`): a GPU gets step n + 1, which already holds the token picked in step n, before the
 * host passes that token to the sink (RUN_LATE). If the answer then ends, the row in step n + 1 is
 * thrown away. A sequence whose sink may say what comes next is not pipelined (may_be_late()). Where all
 * sequences of step n are pipelined, the host gives the GPU step n + 1 before it knows the picks of step n
 * (`n_ahead`): ids[] then ends with TOKEN_PICKED, and the GPU puts its own pick there. */
#include "engine/batch.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "engine/batch_memory.h"
#include "engine/forward.h"
#include "engine/kept_states.h"
#include "engine/page_pool.h"
#include "engine/timeline.h"

typedef struct {
  int slot; /* the backend's number of the sequence */
  Running run;
  /* text.ids: [n_ctx + 1], since one token after n_ctx computed ones may be only scored, or wait for the sink
   * (RUN_LAST). text.logits_row: at first the sequence's first row of logits in this step. */
  Timeline text;
  int32_t *pages; /* [n_table] the first n_pages in use */
  int n_pages;
  bool again;     /* it gave its pages back once: pages that it shares since then are not counted as reused */
  int n_rows;     /* its rows in this step, without guesses */
  int late_row;   /* RUN_LATE, RUN_LAST: the row of logits that late_token() is picked from */
  int n_expected; /* assumed length of the answer, until it ends */
} Sequence;

struct Batch {
  const Backend *backend;
  BackendState *state;
  const ModelConfig *config;
  Program program;
  StateOptions sizes;
  int n_table;       /* pages that n_ctx tokens take */
  bool shares;       /* sequences share pages: the model has no recurrent state */
  bool overlaps;     /* the host handles step n while step n + 1 is computed; then there are no guesses */
  int n_ahead;       /* number of last steps whose picks the backend's take_rows() has yet to give */
  Guessing guessing; /* of a sequence that begins; guessing.most 0: no guesses */
  DrafterPool drafters;
  PagePool *pool;
  Sequence *slots; /* [n_sequences] */
  /* [n_sequences] The first n_active are computed, the oldest first. The rest is idle, the one that was used
   * last first. It gets the next request, so that few requests touch little memory. */
  Sequence **active;
  int n_active;
  SequenceRows *parts; /* [n_sequences] */
  int32_t *ids, *rows; /* [max_chunk] ids: of the step's rows; rows: those with logits */
  Sampler **samplers;  /* [max_chunk] of the rows with logits */
  int32_t *picks;      /* [max_chunk] */
  float *logits;       /* [vocab_size] */
  int n_taken_back;    /* sequences whose pages were taken back in this step */
  int n_rows;          /* rows in this step, so far */
  int n_room;          /* free pages that sequences with pages are not expected to need (find_room()) */
  /* Tokens of all requests so far. n_prompt: of prompts, without shared pages; n_answer: of answers, each
   * counted as n_expected until it ends. */
  double n_prompt, n_answer;
  double n_ended, n_of_ended; /* answers that ended, and their tokens */
};

/* --- opening */

static Status open_sequences(Batch *b, Error *err) {
  const size_t n = (size_t)b->sizes.n_sequences;
  TRY(NEW(b->slots, n, "sequences", err));
  TRY(NEW(b->active, n, "sequences", err));
  TRY(NEW(b->parts, n, "sequences", err));
  for (size_t i = 0; i < n; i++) {
    b->slots[i].slot = (int)i;
    b->active[i] = &b->slots[i];
  }
  return STATUS_OK;
}

/* Allocates what a slot holds when it is first used: for 1,024 slots this takes some 25 ms. */
static Status open_slot(const Batch *b, Sequence *s, Error *err) {
  static const SamplerSettings greedy = {.top_p = 1, .repetition_penalty = 1};
  if (!s->text.ids) TRY(NEW(s->text.ids, (size_t)b->sizes.n_ctx + 1, "ids of a sequence", err));
  if (!s->pages) TRY(NEW(s->pages, (size_t)b->n_table, "a page table", err));
  return s->text.sampler ? STATUS_OK : sampler_open(&greedy, b->config->vocab_size, &s->text.sampler, err);
}

static Status open_rows(Batch *b, Error *err) {
  const size_t n = (size_t)b->sizes.max_chunk, vocab = (size_t)b->config->vocab_size;
  TRY(NEW(b->ids, n, "rows of a step", err));
  TRY(NEW(b->rows, n, "rows of a step", err));
  TRY(NEW(b->samplers, n, "rows of a step", err));
  TRY(NEW(b->picks, n, "rows of a step", err));
  return NEW(b->logits, vocab, "logits", err);
}

RELEASE_BY(batch_release, Batch, batch_close)

Status batch_open(const Backend *backend, BackendModel *loaded, const Model *model,
                  const BatchOptions *options, Batch **batch, Error *err) {
  *batch = NULL;
  const StateOptions sizes = batch_sizes(options, backend, &model->config);
  TRY(batch_check(options, backend, &model->config, err));
  OWNED(batch_release) Batch *b = NULL;
  TRY(NEW(b, 1, "a batch", err));
  *b = (Batch){.backend = backend,
               .config = &model->config,
               .sizes = sizes,
               .n_table = batch_pages(backend, sizes.n_ctx),
               .shares = recurrent_state_bytes(backend, &model->config) == 0};
  TRY(drafter_pool_open(&options->draft, batch_drafters(options, backend, &model->config), sizes.n_ctx,
                        &b->drafters, err));
  b->guessing = (Guessing){.most = batch_guesses(options, backend, &model->config),
                           .always = options->guess_always,
                           .row_cost = backend->row_cost,
                           .guess_cost = b->drafters.n > 0 ? b->drafters.drafters->cost : 0};
  TRY(open_sequences(b, err));
  TRY(open_rows(b, err));
  TRY(page_pool_open(sizes.n_pages, backend->page_tokens, &b->pool, err));
  TRY(forward_prepare(backend, b->config, &b->program, err));
  TRY(backend->open(loaded, &sizes, &b->state, err));
  *batch = TAKE(b);
  return STATUS_OK;
}

void batch_close(Batch *b) {
  if (!b) return;
  drafter_pool_close(&b->drafters);
  if (b->state) b->backend->close(b->state);
  page_pool_close(b->pool);
  program_release(&b->program);
  for (int i = 0; b->slots && i < b->sizes.n_sequences; i++) {
    sampler_close(b->slots[i].text.sampler);
    free(b->slots[i].text.ids);
    free(b->slots[i].pages);
  }
  void *const memory[] = {b->slots,    b->active, b->parts,  b->ids, b->rows,
                          b->samplers, b->picks,  b->logits, b};
  for (size_t i = 0; i < sizeof memory / sizeof *memory; i++) free(memory[i]);
}

int batch_context(const Batch *b) {
  return b->sizes.n_ctx;
}

int batch_pages_used(const Batch *b) {
  return page_pool_used(b->pool);
}

/* --- sequences */

/* Gives all pages back, the last one first, so that it is the first to be reused: the beginning of a text is
 * likelier to be shared. */
static void give_back(Batch *b, Sequence *s) {
  while (s->n_pages > 0) page_pool_release(b->pool, s->pages[--s->n_pages]);
  b->n_rows -= s->n_rows;
  s->n_rows = 0;
  timeline_cut(&s->text, 0);
}

/* LongRoPE: a text that uses other factors than the keys in its pages is computed again. */
static void choose_rope(Batch *b, Sequence *s) {
  if (!timeline_changes_rope(&s->text, s->text.n_ids)) return;
  s->text.long_rope = !s->text.long_rope;
  s->again |= s->text.n_past > 0;
  give_back(b, s);
}

static void leave(Batch *b, int index) {
  Sequence *s = b->active[index];
  s->run.state = RUN_ENDED;
  sampler_allow(s->text.sampler, NULL); /* the mask belongs to the request, which ends */
  give_back(b, s);
  drafting_return(&b->drafters, &s->text.drafting);
  b->n_active--;
  memmove(b->active + index, b->active + index + 1, (size_t)(b->n_active - index) * sizeof *b->active);
  b->active[b->n_active] = s;
}

static Status check_request(const Batch *b, const EngineRequest *r, Error *err) {
  Sequence *s = b->active[b->n_active];
  TRY(request_check(r, b->sizes.n_ctx, b->config, err));
  TRY(open_slot(b, s, err));
  return r->n_scored ? STATUS_OK : sampler_set(s->text.sampler, r->sampler, err);
}

static Status end_sequence(Batch *b, const EngineJob *job, int index, Error *err) {
  Sequence *s = b->active[index];
  GenerateResult *generated = &s->run.result.generated;
  running_done(&s->run);
  b->n_answer += generated->n_generated - s->n_expected;
  b->n_ended += s->run.request.n_scored == 0;
  b->n_of_ended += generated->n_generated;
  generated->guesses = s->text.drafting.guessing.counts;
  /* As in a session (one.c), n_steps is without the step that computes the prompt. */
  if (s->run.request.alone && generated->guesses.n_steps > 0) generated->guesses.n_steps--;
  leave(b, index);
  return job->done(job->user, &s->run.request, &s->run.result, err);
}

/* The sequences that have ended leave the batch. */
static Status end_sequences(Batch *b, const EngineJob *job, Error *err) {
  for (int i = 0; i < b->n_active;)
    if (b->active[i]->run.state != RUN_ENDED)
      i++;
    else
      TRY(end_sequence(b, job, i, err));
  return STATUS_OK;
}

/* Passes a token to the sink, and appends it unless the answer ends here. */
static void take_token(Sequence *s, int32_t id, bool is_forced) {
  running_take(&s->run, id, is_forced, s->text.n_ids < s->text.n_ctx);
  if (s->run.state == RUN_ANSWER) timeline_append(&s->text, id);
}

/* True if the sink may get tokens late: the sequence takes tokens, and the next step does not depend on the
 * sink's reply to one. */
static bool may_be_late(const Batch *b, const Sequence *s) {
  const GenerateOptions *generate = &s->run.request.generate;
  return b->overlaps && s->run.state != RUN_SCORES && generate->max_tokens != 0 && !generate->allow &&
         !generate->score && !generate->may_force && !s->run.request.turn && s->run.n_forced == 0;
}

static bool is_late(const Sequence *s) {
  return s->run.state == RUN_LATE || s->run.state == RUN_LAST;
}

/* The place of the late token: the last one that is to be computed, or in RUN_LAST the one after it. */
static int32_t *late_token(const Sequence *s) {
  return &s->text.ids[s->text.n_ids - (s->run.state == RUN_LATE)];
}

/* Notes a token that the sink gets later. It is to be computed unless the answer is known to end with it. */
static void take_late(Batch *b, Sequence *s) {
  const int32_t id = b->n_ahead > 0 ? TOKEN_PICKED : b->picks[s->text.logits_row];
  s->late_row = s->text.logits_row;
  s->run.state = s->text.n_ids == s->text.n_ctx || running_ends(&s->run, id) ? RUN_LAST : RUN_LATE;
  s->text.ids[s->text.n_ids] = id;
  if (s->run.state == RUN_LATE) timeline_append(&s->text, id);
}

/* True if there were forced tokens, and the answer goes on after them. Where tokens are scored, each forced
 * one has a step of its own: none is taken here. */
static bool take_forced(Sequence *s) {
  int32_t id;
  bool some = false;
  if (s->run.request.generate.score) return false;
  for (; s->run.state == RUN_ANSWER && running_forced(&s->run, &id); some = true) take_token(s, id, true);
  return some && s->run.state == RUN_ANSWER;
}

static Status score_token(Batch *b, Sequence *s, int32_t id) {
  EngineResult *result = &s->run.result;
  if (!s->run.request.generate.score) return STATUS_OK;
  result->status = b->backend->read_logits(b->state, s->text.logits_row, b->logits, &result->error);
  TRY(result->status);
  return running_score(&s->run, b->logits, b->config->vocab_size, id);
}

/* Takes the sequence's next token, forced or picked, and then forced tokens. A failure of the request's own
 * ends it. */
static void take_next(Batch *b, Sequence *s) {
  int32_t id;
  const bool is_forced = running_forced(&s->run, &id);
  if (!is_forced) id = b->picks[s->text.logits_row];
  if (s->run.result.status || s->run.request.generate.max_tokens == 0 || score_token(b, s, id)) {
    s->run.state = RUN_ENDED;
    return;
  }
  take_token(s, id, is_forced);
  take_forced(s);
}

/* The last one of scored tokens is only scored. */
static int n_prompt_tokens(const Sequence *s) {
  return s->run.request.n_ids - (s->run.state == RUN_SCORES);
}

bool batch_is_empty(const Batch *b) {
  return b->n_active == 0;
}

bool batch_has_room(const Batch *b) {
  return b->n_active < b->sizes.n_sequences;
}

Status batch_enter(Batch *b, const EngineJob *job, const EngineRequest *request, Error *err) {
  EngineResult refused = {.status = check_request(b, request, &refused.error)};
  if (refused.status) return job->done(job->user, request, &refused, err);
  Sequence *s = b->active[b->n_active];
  b->n_active++;
  running_begin(&s->run, request);
  s->text = (Timeline){.config = b->config,
                       .sampler = s->text.sampler,
                       .ids = s->text.ids,
                       .n_ids = n_prompt_tokens(s),
                       .n_ctx = request_context(request, b->sizes.n_ctx),
                       .counts = s->run.state != RUN_SCORES && sampler_has_penalties(s->text.sampler),
                       .logits_row = -1,
                       .drafting.guessing = b->guessing};
  memcpy(s->text.ids, request->ids, (size_t)request->n_ids * sizeof *s->text.ids);
  s->n_pages = s->n_rows = 0;
  s->n_expected = s->run.state == RUN_SCORES         ? 1
                  : request->generate.max_tokens > 0 ? request->generate.max_tokens
                                                     : s->text.n_ids;
  b->n_prompt += s->text.n_ids;
  b->n_answer += s->n_expected;
  s->again = false;
  sampler_forget(s->text.sampler);
  timeline_count(&s->text, 0, s->text.n_ids, false);
  take_forced(s);
  return end_sequences(b, job, err);
}

/* --- pages */

static Status append_page(Batch *b, Sequence *s, int page, Error *err) {
  s->pages[s->n_pages] = page;
  TRY(b->backend->set_pages(b->state, s->slot, s->n_pages, &s->pages[s->n_pages], 1, err));
  s->n_pages++;
  return STATUS_OK;
}

/* The text before the sequence's next page: all its pages. PRECOND all its pages are full */
static PagesBefore before_next(const Sequence *s) {
  return (PagesBefore){s->pages, s->n_pages, s->text.long_rope};
}

/* The first position whose logits the sequence needs. */
static int first_logits(const Sequence *s) {
  return s->text.n_ids - (s->run.state == RUN_SCORES ? s->run.request.n_scored : 1);
}

/* Appends a page, if one is free, with a copy of the first n tokens of page `from`. Another sequence may be
 * filling the rest of `from`. */
static Status copy_part(Batch *b, Sequence *s, int from, int n, Error *err) {
  page_pool_share(b->pool, from); /* so that page_pool_take() does not return it */
  const int page = page_pool_take(b->pool, before_next(s));
  Status status = page < 0 ? STATUS_OK : b->backend->copy_page(b->state, from, page, err);
  page_pool_release(b->pool, from);
  if (page < 0) return status;
  page_pool_add(b->pool, page, s->text.ids + s->text.n_past, n);
  page_pool_computed(b->pool, page);
  s->text.n_past += n;
  TRY(append_page(b, s, page, err));
  return status;
}

/* Uses pages of the text that other sequences have computed, up to the first position whose logits are
 * needed; with `invariant` only pages of the prompt. *later: another sequence computes more of the text in
 * this step. This sequence then waits for it. */
static Status share_pages(Batch *b, Sequence *s, bool *later, Error *err) {
  const int page_tokens = b->backend->page_tokens, start = s->text.n_past, needed = first_logits(s),
            end = b->sizes.invariant && n_prompt_tokens(s) < needed ? n_prompt_tokens(s) : needed;
  *later = false;
  while (b->shares && s->text.n_past == s->n_pages * page_tokens && s->text.n_past < end) {
    const int left = end - s->text.n_past;
    const PageMatch match = page_pool_find(b->pool, before_next(s), s->text.ids + s->text.n_past,
                                           left < page_tokens ? left : page_tokens);
    *later = match.n_coming >= match.n_tokens + page_tokens / 4; /* less is not worth waiting for */
    if (*later || match.n_tokens == 0) break;
    if (match.n_tokens < page_tokens) {
      TRY(copy_part(b, s, match.page, match.n_tokens, err));
      break;
    }
    page_pool_share(b->pool, match.page);
    TRY(append_page(b, s, match.page, err));
    s->text.n_past += page_tokens;
  }
  if (s->again) return STATUS_OK;
  s->run.result.n_reused += s->text.n_past - start;
  b->n_prompt -= s->text.n_past - start;
  return STATUS_OK;
}

/* Lets other sequences find n tokens, from position `at` on, in the sequence's last page. With `invariant`
 * sequences share only tokens of prompts. */
static void offer_tokens(Batch *b, Sequence *s, int at, int n) {
  if (n > 0 && s->text.ids[at + n - 1] == TOKEN_PICKED) n--; /* take_ahead() offers it */
  if (n > 0 && (!b->sizes.invariant || at < n_prompt_tokens(s)))
    page_pool_add(b->pool, s->pages[s->n_pages - 1], s->text.ids + at, n);
}

/* Places the next n tokens in the sequence's pages, takes new pages as needed, and raises s->n_rows to n, or
 * to less if no page is left. */
static Status place_tokens(Batch *b, Sequence *s, int n, Error *err) {
  while (s->n_rows < n) {
    const int at = s->text.n_past + s->n_rows, room = s->n_pages * b->backend->page_tokens - at;
    if (room == 0) {
      const int page = page_pool_take(b->pool, before_next(s));
      if (page < 0) return STATUS_OK;
      TRY(append_page(b, s, page, err));
      continue;
    }
    const int some = n - s->n_rows < room ? n - s->n_rows : room;
    offer_tokens(b, s, at, some);
    s->n_rows += some;
    b->n_rows += some;
  }
  return STATUS_OK;
}

/* True if the sequence has no row in the next step. */
static bool is_idle(const Sequence *s) {
  return s->run.turn == TURN_WAIT || s->run.state == RUN_LAST;
}

/* Takes back the pages of the youngest sequence that has pages and either began after s or is idle; false if
 * there is none. */
static bool take_back_youngest(Batch *b, const Sequence *s) {
  bool younger = true;
  for (int i = b->n_active - 1; i >= 0; i--) {
    Sequence *other = b->active[i];
    younger &= other != s;
    if (other == s || other->n_pages == 0 || (!younger && !is_idle(other))) continue;
    give_back(b, other);
    other->again = true;
    b->n_taken_back++;
    return true;
  }
  return false;
}

/* --- steps */

/* The number of further pages that the sequence is expected to take: for the tokens it has, and for half of
 * the tokens that its answer lacks. The answer's length is taken as the mean of the answers that ended
 * (s->n_expected before one ended). Half, because others end meanwhile and give their pages back. Simulated
 * with answers of one length, of exponential and of log-normal lengths, and twice as many sequences as fit
 * with whole answers: 0 to 7% of the rows are computed again. With room only for the tokens that a
 * sequence already has, it would be 12 to 31%; with room for the whole answer, 0 to 22%. */
static int coming_pages(const Batch *b, const Sequence *s) {
  const double mean = b->n_ended > 0 ? b->n_of_ended / b->n_ended : s->n_expected;
  const int limit = s->text.n_ctx, most = s->run.request.generate.max_tokens,
            generated = s->run.result.generated.n_generated;
  const double length = most >= 0 && most < mean ? most : mean;
  const int rest = length > generated && s->run.state != RUN_SCORES ? (int)(length - generated) / 2 : 0;
  return batch_pages(b->backend, s->text.n_ids + rest < limit ? s->text.n_ids + rest : limit) - s->n_pages;
}

/* Sets n_room; negative if sequences with pages are expected to need more pages than are free. */
static void find_room(Batch *b) {
  b->n_room = page_pool_free(b->pool);
  for (int i = 0; i < b->n_active; i++)
    if (b->active[i]->n_pages > 0) b->n_room -= coming_pages(b, b->active[i]);
}

/* True if the sequence has begun, or may begin. The oldest sequence that is not idle may begin; others may if
 * there is room for the n_coming pages that they will need. So all may where each has pages for its whole
 * context. */
static bool may_begin(const Batch *b, const Sequence *s, int n_coming) {
  int oldest = 0;
  while (is_idle(b->active[oldest])) oldest++;
  return s->text.n_past > 0 || s == b->active[oldest] || b->n_room >= n_coming;
}

/* Gives the sequence at most n rows of this step. *n_logits: rows of logits that may still be asked for. */
static Status plan_sequence(Batch *b, Sequence *s, int n, int *n_logits, Error *err) {
  bool later = false;
  if (n <= 0) return STATUS_OK; /* a full step needs no search for shared pages */
  const int n_coming = s->n_pages == 0 ? coming_pages(b, s) : 0;
  if (!may_begin(b, s, n_coming)) return STATUS_OK;
  TRY(share_pages(b, s, &later, err));
  if (later) return STATUS_OK;
  b->n_room -= n_coming;
  const int left = s->text.n_ids - s->text.n_past, ahead = first_logits(s) - s->text.n_past,
            before = ahead > 0 ? ahead : 0, most = before + *n_logits;
  if (n > left) n = left;
  if (n > most) n = most;
  const int of_prompt = n_prompt_tokens(s) - s->text.n_past;
  if (b->sizes.invariant && n > of_prompt) n = of_prompt > 0 ? of_prompt : n > 0;
  if (b->sizes.invariant && !b->shares && n < of_prompt) n -= n % b->backend->page_tokens;
  TRY(place_tokens(b, s, n, err));
  while (s->n_rows == 0 && n > 0 && take_back_youngest(b, s)) TRY(place_tokens(b, s, n, err));
  if (s->n_rows > before) *n_logits -= s->n_rows - before;
  return STATUS_OK;
}

/* True while tokens of the prompt are left to compute (perhaps again), and more than one token in all. */
static bool is_prefilled(const Sequence *s) {
  return s->text.n_past < n_prompt_tokens(s) && s->text.n_ids - s->text.n_past > 1;
}

/* With `invariant`, true if the sequence's next rows are of its prompt. A step never mixes these with rows
 * of the answer, which other kernels compute. Without `invariant` a step may mix them, and the result is
 * false. */
static bool is_of_prompt(const Batch *b, const Sequence *s) {
  return b->sizes.invariant && s->text.n_past < n_prompt_tokens(s);
}

/* The number of rows up to which rows of prompts fill a step; on a CPU max_chunk. A GPU takes as long for a
 * few rows as for some hundred. So prompts are spread over the steps in which other sequences generate:
 * n_prompt / n_answer tokens of prompts for each token of an answer. The number is a multiple of
 * backend->sequences, for full tiles, or max_chunk if that is less. */
static int paced_rows(const Batch *b) {
  const int least = b->backend->sequences, most = b->sizes.max_chunk;
  const double rows = b->sizes.n_sequences * (1 + b->n_prompt / (b->n_answer > 1 ? b->n_answer : 1));
  const int n = rows > least ? (int)(rows / least + 0.5) : 1;
  return b->backend->memory && least < most / n ? least * n : most;
}

/* True if the step gives the sequence a token. */
static bool gets_token(const Sequence *s) {
  return s->n_rows > 0 && s->run.state != RUN_SCORES && s->text.n_past + s->n_rows == s->text.n_ids;
}

/* True if turn() may bring a mask or forced tokens for each token. Such a sequence has no guesses, since they
 * would have to be made before turn() is called. */
static bool waits_for_turns(const Sequence *s) {
  return s->run.request.turn && (s->run.request.generate.allow || s->run.request.generate.may_force);
}

/* Gives guesses the remaining rows, the oldest sequence's guesses first. They fit its last page. */
static Status plan_guesses(Batch *b, int n_logits, Error *err) {
  int n_generating = 0;
  if (b->sizes.invariant && n_logits > GUESS_ROWS) n_logits = GUESS_ROWS;
  for (int i = 0; i < b->n_active; i++) n_generating += gets_token(b->active[i]);
  for (int i = 0; i < b->n_active; i++) {
    Sequence *s = b->active[i];
    Drafting *d = &s->text.drafting;
    drafting_forget(d);
    if (b->guessing.most == 0 || !gets_token(s) || s->run.n_forced > 0 || is_of_prompt(b, s)) continue;
    int most = b->sizes.max_chunk - b->n_rows;
    const int on_page = s->n_pages * b->backend->page_tokens - s->text.n_ids;
    if (most > n_logits) most = n_logits;
    if (most > on_page) most = on_page;
    most = timeline_room(&s->text, most, running_more(&s->run));
    guessing_share(&d->guessing, n_generating);
    if (most > 0 && !waits_for_turns(s)) TRY(timeline_guess(&s->text, most, err));
    guessing_note_step(&d->guessing, 1 + d->guesses.n, &d->guesses, 0);
    b->n_rows += d->guesses.n;
    n_logits -= d->guesses.n;
  }
  return STATUS_OK;
}

/* Chooses the rows of a step: those of each sequence that generates (several where tokens are forced), then
 * those of prompts, then guesses. A sequence whose pages are taken back loses its rows. */
static Status plan_step(Batch *b, Error *err) {
  int n_logits = b->sizes.max_logit_rows, n_generating = 0;
  b->n_taken_back = b->n_rows = 0;
  for (int i = 0; i < b->n_active; i++) {
    b->active[i]->n_rows = 0;
    n_generating += !is_idle(b->active[i]) && !is_prefilled(b->active[i]);
  }
  for (int prompts = 0; prompts < 2; prompts++) {
    find_room(b); /* again for prompts: answers may have taken pages back */
    for (int i = 0; i < b->n_active; i++) {
      Sequence *s = b->active[i];
      if (is_idle(s)) continue;
      choose_rope(b, s); /* a generating sequence may then have to be prefilled again */
      if (s->n_rows > 0 || is_prefilled(s) != prompts) continue;
      /* Reserves a row for each generating sequence after this one. */
      const int most = prompts ? paced_rows(b) : b->sizes.max_chunk - --n_generating;
      TRY(plan_sequence(b, s, most - b->n_rows, &n_logits, err));
    }
  }
  return plan_guesses(b, n_logits, err);
}

/* Lists the rows of the step, those of the oldest sequence first. */
static TokenRange list_rows(Batch *b) {
  TokenRange range = {.ids = b->ids, .parts = b->parts, .logit_rows = b->rows, .only_logits = true};
  for (int i = 0; i < b->n_active; i++) {
    Sequence *s = b->active[i];
    Drafting *d = &s->text.drafting;
    const int end = s->text.n_past + s->n_rows;
    s->text.logits_row = -1;
    d->n_tap_rows = 0;
    if (s->n_rows == 0) continue;
    d->step_pos = s->text.n_past;
    d->first_row = range.n_tokens;
    d->n_tap_rows = s->n_rows + d->guesses.n;
    if (d->drafter && b->sizes.taps.n > 0) range.taps = &b->sizes.taps;
    b->parts[range.n_parts++] = (SequenceRows){s->slot, s->text.n_past, s->n_rows + d->guesses.n,
                                               s->text.long_rope, is_of_prompt(b, s)};
    for (int pos = s->text.n_past; pos < end + d->guesses.n; pos++, range.n_tokens++) {
      b->ids[range.n_tokens] = pos < end ? s->text.ids[pos] : d->guesses.ids[pos - end];
      if (pos < first_logits(s)) continue;
      const bool picks = s->run.state != RUN_SCORES && s->run.n_forced == 0 && pos == s->text.n_ids - 1;
      if (s->text.logits_row < 0) s->text.logits_row = range.n_logit_rows;
      b->samplers[range.n_logit_rows] = picks ? s->text.sampler : NULL;
      b->rows[range.n_logit_rows++] = range.n_tokens;
    }
  }
  return range;
}

static void note_computed(Batch *b, Sequence *s) {
  const int page_tokens = b->backend->page_tokens;
  for (int page = s->text.n_past / page_tokens; page * page_tokens < s->text.n_past + s->n_rows; page++)
    page_pool_computed(b->pool, s->pages[page]);
  s->text.n_past += s->n_rows;
}

/* For each row of logits writes log_p of the token that follows. `from`: the position of the step's first
 * row. */
static Status take_scores(Batch *b, Sequence *s, int from, Error *err) {
  const int first = first_logits(s);
  for (int pos = from > first ? from : first, row = s->text.logits_row; pos < s->text.n_past; pos++, row++) {
    TRY(b->backend->read_logits(b->state, row, b->logits, err));
    s->run.request.log_p[pos - first] =
        log_probability(b->logits, b->config->vocab_size, s->text.ids[pos + 1]);
  }
  if (s->text.n_past == s->text.n_ids) s->run.state = RUN_ENDED;
  return STATUS_OK;
}

/* Reports that n of n_all tokens are computed, until the prompt is complete. */
static void report_prompt(const EngineJob *job, Sequence *s, int n, int n_all) {
  if (s->run.result.prefill_ms != 0) return;
  if (n == n_all) s->run.result.prefill_ms = clock_ms() - s->run.start_ms;
  if (job->progress) job->progress(job->user, &s->run.request, &s->run.result, n, n_all);
}

/* Takes a sequence's results of a step. */
static Status take_results(Batch *b, const EngineJob *job, Sequence *s, Error *err) {
  const int before = s->text.n_past;
  const bool late = s->text.logits_row >= 0 && may_be_late(b, s);
  note_computed(b, s);
  if (s->n_rows > 0 && !(late && b->n_ahead > 0))
    report_prompt(job, s, s->text.logits_row >= 0 ? s->text.n_ids : s->text.n_past, s->text.n_ids);
  s->n_rows = 0;
  if (s->text.logits_row < 0) return STATUS_OK;
  if (s->run.state == RUN_SCORES) return take_scores(b, s, before, err);
  if (late)
    take_late(b, s);
  else
    take_next(b, s);
  return STATUS_OK;
}

/* Takes the results of a step. */
static Status take_step(Batch *b, const EngineJob *job, Error *err) {
  Status status = STATUS_OK;
  for (int i = 0; i < b->n_active && !status; i++) status = take_results(b, job, b->active[i], err);
  const Status ended =
      end_sequences(b, job, status ? NULL : err); /* also those that ended before a failure */
  return status ? status : ended;
}

/* Waits for the picks of the previous step, if they are still to come, and puts them in the places of the
 * late tokens. If the step that is being computed has a row for such a token, other sequences can find the
 * token from now on. n_ahead: 1 if the picks of the step that is being computed will stay on the device, too;
 * else 0 */
static Status take_ahead(Batch *b, const EngineJob *job, int n_ahead, Error *err) {
  if (b->n_ahead == n_ahead) return STATUS_OK;
  b->n_ahead--;
  TRY(b->backend->take_rows(b->state, b->picks, err));
  for (int i = 0; i < b->n_active; i++) {
    Sequence *s = b->active[i];
    if (!is_late(s)) continue;
    const int n = (int)(late_token(s) - s->text.ids);
    report_prompt(job, s, n, n);
    s->text.ids[n] = b->picks[s->late_row];
    if (n < s->text.n_ids && s->text.n_past + s->n_rows == s->text.n_ids) offer_tokens(b, s, n, 1);
  }
  return STATUS_OK;
}

/* Passes the previous step's tokens to the sinks. Sequences that end leave, and get no token of the step that
 * is being computed. n_ahead: as for take_ahead() */
static Status pass_on_late(Batch *b, const EngineJob *job, int n_ahead, Error *err) {
  TRY(take_ahead(b, job, n_ahead, err));
  for (int i = 0; i < b->n_active; i++) {
    Sequence *s = b->active[i];
    if (!is_late(s)) continue;
    running_take(&s->run, *late_token(s), false, s->run.state == RUN_LATE);
    if (s->run.state == RUN_ENDED && s->text.logits_row >= 0) b->samplers[s->text.logits_row] = NULL;
  }
  return end_sequences(b, job, err);
}

/* Accepts guesses that equal the sequence's next tokens; this step has computed their rows. True if some were
 * right and all of s->text.ids is computed: logits_row is then the row after the last token. */
static bool take_right_guesses(Batch *b, Sequence *s) {
  const int before = s->text.n_past, n = timeline_accept(&s->text);
  offer_tokens(b, s, before, n);
  if (n > 0) page_pool_computed(b->pool, s->pages[s->n_pages - 1]); /* guesses fit the last page */
  if (n == 0 || s->text.n_past < s->text.n_ids) s->text.logits_row = -1;
  return s->text.logits_row >= 0;
}

/* Picks tokens from the rows of guesses that turned out right, in each round one token a sequence. */
static Status take_guessed(Batch *b, const EngineJob *job, int n_logit_rows, Error *err) {
  for (;;) {
    int n_picks = 0;
    memset(b->samplers, 0, (size_t)n_logit_rows * sizeof *b->samplers);
    for (int i = 0; i < b->n_active; i++) {
      Sequence *s = b->active[i];
      if (!take_right_guesses(b, s)) continue;
      running_restrict(&s->run, s->text.sampler);
      if (s->run.n_forced == 0) b->samplers[s->text.logits_row] = s->text.sampler;
      n_picks++;
    }
    if (n_picks == 0) return STATUS_OK;
    TRY(b->backend->sample_rows(b->state, b->samplers, n_logit_rows, b->picks, err));
    for (int i = 0; i < b->n_active; i++)
      if (b->active[i]->text.logits_row >= 0) take_next(b, b->active[i]);
    TRY(end_sequences(b, job, err));
  }
}

/* Gives a drafter to each sequence that is not scored. If there are fewer drafters than sequences, no
 * sequence gets one: steps are then full without guesses. */
static void lend_drafters(Batch *b) {
  const bool enough = b->n_active <= b->drafters.n;
  for (int i = 0; i < b->n_active; i++) {
    Sequence *s = b->active[i];
    if (!enough)
      drafting_return(&b->drafters, &s->text.drafting);
    else if (s->run.state != RUN_SCORES)
      drafting_lend(&b->drafters, &s->text.drafting, s->text.n_past);
  }
  b->overlaps = b->backend->memory && !enough;
}

/* True if the next step can be planned without the picks of this one. Penalties exclude that: they need
 * counts of all earlier tokens, and the host cannot count a token before it knows the token. */
static bool can_go_ahead(const Batch *b, int n_logit_rows) {
  bool can = b->overlaps && b->backend->take_rows && n_logit_rows > 0;
  for (int i = 0; i < b->n_active && can; i++) {
    const Sequence *s = b->active[i];
    can = s->text.logits_row < 0 ? s->run.state != RUN_SCORES
                                 : may_be_late(b, s) && !sampler_has_penalties(s->text.sampler);
  }
  return can;
}

static Status run_step(Batch *b, const EngineJob *job, BatchRefill refill, void *user, Error *err) {
  EngineStep step = {0};
  for (int i = 0; i < b->n_active; i++)
    TRY(drafting_tell(&b->active[i]->text.drafting, b->state, b->active[i]->text.ids,
                      b->active[i]->text.n_past, err));
  TRY(plan_step(b, err));
  step.range = list_rows(b);
  step.n_waiting = b->n_active - step.range.n_parts;
  step.n_taken_back = b->n_taken_back;
  if (job->step) job->step(job->user, &step);
  TRY(forward(b->backend, b->state, &b->program, step.range, err));
  const bool ahead = can_go_ahead(b, step.range.n_logit_rows);
  if (ahead) TRY(b->backend->sample_rows(b->state, b->samplers, step.range.n_logit_rows, NULL, err));
  b->n_ahead += ahead;
  if (b->overlaps) TRY(pass_on_late(b, job, ahead, err));
  if (b->overlaps) TRY(refill(user, job, err));
  for (int i = 0; i < b->n_active && !ahead; i++) {
    Sequence *s = b->active[i];
    if (s->text.logits_row >= 0 && s->run.state != RUN_SCORES) running_restrict(&s->run, s->text.sampler);
  }
  if (step.range.n_logit_rows > 0 && !ahead)
    TRY(b->backend->sample_rows(b->state, b->samplers, step.range.n_logit_rows, b->picks, err));
  TRY(take_step(b, job, err));
  return b->guessing.most > 0 ? take_guessed(b, job, step.range.n_logit_rows, err) : STATUS_OK;
}

/* Asks each sequence for its turn. Takes the tokens that turn() forces, and then asks again unless they are
 * to be scored. */
static Status take_turns(Batch *b, const EngineJob *job, Error *err) {
  for (int i = 0; i < b->n_active; i++) {
    bool again = true;
    while (again && running_turn(&b->active[i]->run, job) == TURN_GO) again = take_forced(b->active[i]);
  }
  return end_sequences(b, job, err);
}

Status batch_step(Batch *b, const EngineJob *job, BatchRefill refill, void *user, bool *idle, Error *err) {
  int n_going = 0, n_last = 0;
  lend_drafters(b);
  if (!b->overlaps) TRY(pass_on_late(b, job, 0, err));
  TRY(take_turns(b, job, err));
  for (int i = 0; i < b->n_active; i++) {
    n_going += !is_idle(b->active[i]);
    n_last += b->active[i]->run.state == RUN_LAST;
  }
  *idle = n_going + n_last == 0 && b->n_active > 0;
  if (n_going > 0) return run_step(b, job, refill, user, err);
  return n_last > 0 ? pass_on_late(b, job, 0, err) : STATUS_OK;
}

void batch_drop(Batch *b) {
  for (; b->n_ahead > 0; b->n_ahead--) b->backend->take_rows(b->state, b->picks, NULL);
  while (b->n_active > 0) leave(b, b->n_active - 1);
}
