/* test_drafter_pool.c - which hidden states of a step a sequence's drafter gets. */
#include "engine/drafters/drafter_pool.h"
#include "test/tests.h"

enum { N_IDS = 32 };

static DraftRows taken; /* the last ones; n 0: none */
static int n_forgets;

static Status take(void *self, const DraftRows *rows, Error *err) {
  (void)self, (void)err;
  taken = *rows;
  return STATUS_OK;
}

static void forget(void *self) {
  (void)self;
  n_forgets++;
}

/* A step of n_rows rows from `pos` on, whose first row is `row`, after which n_past tokens stay. */
static void tell_step(Drafting *d, int pos, int row, int n_rows, int n_past) {
  static const int32_t ids[N_IDS];
  Error err;
  d->step_pos = pos, d->first_row = row, d->n_tap_rows = n_rows;
  taken = (DraftRows){.n = 0};
  assert_int_equal(drafting_tell(d, NULL, ids, n_past, &err), STATUS_OK);
  if (taken.n > 0) assert_ptr_equal(taken.ids, ids + taken.pos);
}

static void assert_taken(int pos, int row, int n) {
  assert_int_equal(taken.n, n);
  if (n == 0) return;
  assert_int_equal(taken.pos, pos);
  assert_int_equal(taken.row, row);
}

TEST(rows_of_tokens_that_stay_are_taken_once) {
  Drafter drafter = {.taps = {.n = 1}, .take = take, .forget = forget}, *idle[] = {&drafter};
  DrafterPool pool = {.drafters = &drafter, .idle = idle, .n = 1, .n_idle = 1};
  Drafting d = {.n_unchanged = 9};
  tell_step(&d, 0, 0, 4, 4);
  assert_taken(0, 0, 0); /* there is no drafter */
  drafting_lend(&pool, &d, 0);
  assert_true(d.drafter == &drafter && pool.n_idle == 0 && n_forgets == 1 && d.n_unchanged == 0);
  drafting_lend(&pool, &d, 4); /* it has one */
  assert_true(n_forgets == 1 && d.n_drafter_seen == 0);
  tell_step(&d, 0, 7, 4, 4);
  assert_taken(0, 7, 4);
  tell_step(&d, 4, 2, 5, 6); /* of three guesses one was right */
  assert_taken(4, 2, 2);
  tell_step(&d, 6, 3, 0, 6); /* the sequence had no row */
  assert_taken(0, 0, 0);
  tell_step(&d, 4, 3, 4, 8); /* two tokens again, whose states it has */
  assert_taken(6, 5, 2);
  tell_step(&d, 24, 3, 2, 26); /* 16 tokens were computed for another sequence */
  assert_taken(24, 3, 2);
  drafting_cut(&d, 10);
  tell_step(&d, 10, 0, 1, 11);
  assert_taken(10, 0, 1);
  drafting_return(&pool, &d);
  assert_true(!d.drafter && pool.n_idle == 1 && pool.idle[0] == &drafter);
  drafting_lend(&pool, &d, 20); /* what was before, it never sees */
  tell_step(&d, 18, 1, 4, 22);
  assert_taken(20, 3, 2);
}

static DraftText text_seen;
static int most_seen;

static Status propose(void *self, const DraftText *text, int most, Guesses *guesses, Error *err) {
  (void)self, (void)err;
  text_seen = *text;
  most_seen = most;
  guesses->n = most;
  guesses->rank = DRAFT_RANKS - 1;
  return STATUS_OK;
}

/* Guesses that cost nothing are cut to those that pay; of others no more are asked for. n_unchanged is
 * what the drafter has seen of the text. */
TEST(guesses_that_do_not_pay_are_not_made) {
  static const int32_t ids[N_IDS];
  for (int costs = 0; costs < 2; costs++) {
    Drafter drafter = {.cost = costs ? 0.01 : 0, .propose = propose}, *idle[] = {&drafter};
    DrafterPool pool = {.drafters = &drafter, .idle = idle, .n = 1, .n_idle = 1};
    Drafting d = {.n_drafter_seen = 0};
    Error err;
    drafting_lend(&pool, &d, 0);
    d.guessing = (Guessing){.most = DRAFT_MOST, .row_cost = 0.01, .guess_cost = drafter.cost, .share = 1};
    for (int n = 4; n <= 12; n += 4) {
      d.guesses = (Guesses){.n = 0};
      const DraftText text = {.ids = ids, .n = n};
      assert_int_equal(drafting_guess(&d, &text, 3, &err), STATUS_OK);
      assert_int_equal(text_seen.n_unchanged, n - 4);
      assert_int_equal(most_seen, 3);
      assert_int_equal(d.guesses.n, 3);
      assert_int_equal(d.guesses.rank, costs ? MODEL_RANK : DRAFT_RANKS - 1);
    }
    drafting_return(&pool, &d);
    drafting_lend(&pool, &d, 0);
    d.guessing.row_cost = 9; /* a row more is as dear as nine steps */
    most_seen = 0;
    const DraftText text = {.ids = ids, .n = 20};
    assert_int_equal(drafting_guess(&d, &text, 3, &err), STATUS_OK);
    assert_int_equal(d.guesses.n, 0);
    assert_int_equal(most_seen, costs ? 0 : 3);
  }
}

/* How guesses fared is forgotten, and what steps take is not. */
TEST(a_new_text_is_guessed_as_the_first) {
  Guessing g = {.most = DRAFT_MOST, .row_cost = 0.05, .share = 1, .timed = true};
  const int first = guessing_length(&g, 2, DRAFT_MOST);
  for (int i = 0; i < 500; i++) {
    guessing_note_step(&g, 4, &(Guesses){.n = 3, .rank = 2}, 1);
    guessing_judge(&g, false);
  }
  g.row_cost = 0.05;
  assert_true(guessing_length(&g, 2, DRAFT_MOST) < first && g.counts.n_guessed == 1500);
  guessing_note_step(&g, 1, &(Guesses){.rank = 1}, 7);
  guessing_forget(&g);
  assert_int_equal(guessing_length(&g, 2, DRAFT_MOST), first);
  assert_true(g.counts.n_steps == 0 && g.counts.n_guessed == 0 && g.rank == 0 && g.balance == 0);
  assert_true(g.step_ms > 0 && g.row_cost == 0.05 && g.most == DRAFT_MOST);
}
