/* test_kept_states.c - which recurrent states are kept, and how much a session with such a state computes
 * again, over the backend of fake_backend.h, whose state is all tokens so far. */
#include "session_test.h"
#include "test/tests.h"

/* --- which states are kept */

TEST(memory_decides_how_many_are_kept) {
  assert_int_equal(kept_states_slots(0), 0);
  assert_int_equal(kept_states_slots(1), MAX_KEPT_STATES);
  assert_int_equal(kept_states_slots(KEPT_STATES_BYTES / 16), 16);
  assert_int_equal(kept_states_slots(KEPT_STATES_BYTES / 7), 7);
  assert_int_equal(kept_states_slots(KEPT_STATES_BYTES / 2), 2);
  assert_int_equal(kept_states_slots(KEPT_STATES_BYTES + 1ull), MIN_KEPT_STATES);
  assert_int_equal(kept_states_slots(1ull << 60), MIN_KEPT_STATES);
}

static int position_found(const KeptStates *kept, int n) {
  const int slot = kept_states_find(kept, n);
  return slot < 0 ? 0 : kept->pos[slot];
}

TEST(the_nearest_state_before_is_found) {
  KeptStates kept = {.n_slots = 4};
  assert_int_equal(kept_states_find(&kept, 100), -1);
  for (int pos = 10; pos <= 30; pos += 10) assert_true(kept_states_add(&kept, pos, false) >= 0);
  assert_int_equal(kept_states_add(&kept, 30, false), -1); /* it is kept already */
  assert_int_equal(position_found(&kept, 9), 0);
  assert_int_equal(position_found(&kept, 10), 10);
  assert_int_equal(position_found(&kept, 29), 20);
  assert_int_equal(position_found(&kept, 99), 30);
  kept_states_cut(&kept, 20);
  assert_int_equal(position_found(&kept, 99), 20);
  kept_states_cut(&kept, 19);
  assert_int_equal(position_found(&kept, 99), 10);
}

/* With n slots, the tokens from the last kept state to any position stay within a fixed part of the distance
 * to the end: states are dense there and sparse before. */
TEST(states_are_dense_at_the_end_and_sparse_before) {
  KeptStates kept = {.n_slots = 16};
  for (int pos = 64; pos <= 100 * 64; pos += 64) {
    const int slot = kept_states_add(&kept, pos, false);
    assert_true(slot >= 0 && kept.pos[slot] == pos);
    for (int n = 0; n <= pos; n++) {
      const int again = n - position_found(&kept, n), back = pos - n;
      if (again >= 64 + (back + 64)) fail_msg("%d tokens again at %d of %d", again, n, pos);
    }
  }
}

TEST(the_end_of_the_last_prompt_stays) {
  for (int n_slots = MIN_KEPT_STATES; n_slots <= MAX_KEPT_STATES; n_slots++) {
    KeptStates kept = {.n_slots = n_slots};
    for (int turn = 100; turn < 5000; turn += 700) {
      kept_states_add(&kept, turn, true);
      assert_int_equal(kept_states_add(&kept, turn, false), -1); /* it is still the end of a prompt */
      for (int pos = turn + 10; pos < turn + 700; pos += 10) {
        kept_states_add(&kept, pos, false);
        assert_int_equal(position_found(&kept, pos), pos);
        assert_int_equal(position_found(&kept, turn), turn);
      }
    }
  }
}

/* Ends of earlier prompts, to which a chat returns, stay longer than what was kept along the answers. */
TEST(ends_of_prompts_stay_longer_than_others) {
  for (int n_slots = 6; n_slots <= MAX_KEPT_STATES; n_slots++) {
    KeptStates kept = {.n_slots = n_slots};
    for (int turn = 200; turn <= 600; turn += 200) {
      kept_states_add(&kept, turn, true);
      for (int pos = turn + 20; pos < turn + 200; pos += 20) kept_states_add(&kept, pos, false);
    }
    for (int turn = 200; turn <= 600; turn += 200) assert_int_equal(position_found(&kept, turn), turn);
  }
}

/* --- what a session computes again */

static int computed(Session *session, const int32_t *ids, int n) {
  fake.n_tokens = 0;
  sync_ok(session, ids, n);
  assert_holds(session, ids, n);
  return fake.n_tokens;
}

static void decode_ok(Session *session, int n, int32_t *ids, int at) {
  for (int i = at; i < at + n; i++) {
    ids[i] = (i * 7 + 1) % FAKE_VOCAB;
    assert_int_equal(session_decode(session, ids[i], NULL), STATUS_OK);
  }
  assert_holds(session, ids, at + n);
}

/* /regen and /undo return to the end of a prompt, whose state is kept. */
TEST(a_prompt_is_computed_once) {
  int32_t ids[FAKE_POSITIONS];
  Session *session = open_hybrid((SessionOptions){.chunk = 16}, 4);
  make_ids(ids, 50, 1);
  assert_int_equal(computed(session, ids, 50), 50);
  for (int again = 0; again < 100; again++) {
    decode_ok(session, 1 + again % 40, ids, 50);
    assert_int_equal(computed(session, ids, 50), 1); /* the last token again, for its logits */
    decode_ok(session, 20, ids, 50);
    make_ids(ids + 70, 30, 2);
    assert_int_equal(computed(session, ids, 100), 30); /* another turn */
    make_ids(ids, 50, 1);
    assert_int_equal(computed(session, ids, 50), 1);
  }
  session_close(session);
  assert_int_equal(fake.n_open, 0);
}

/* The prompts of --map begin alike and then differ. */
TEST(a_common_beginning_is_computed_twice_at_most) {
  int32_t ids[FAKE_POSITIONS];
  Session *session = open_hybrid((SessionOptions){.chunk = 16}, 4);
  make_ids(ids, 30, 1);
  for (int record = 0; record < 20; record++) {
    make_ids(ids + 30, 40, 10 + record);
    ids[30] = record; /* so that they differ just there */
    assert_int_equal(computed(session, ids, 70), record < 2 ? 70 : 40);
  }
  session_close(session);
}

/* --choose asks for the log-probabilities of many continuations of one text. */
TEST(scores_begin_with_one_kept_state) {
  int32_t ids[FAKE_POSITIONS], more[10];
  double log_p[10];
  Session *session = open_hybrid((SessionOptions){.chunk = 16}, 2);
  make_ids(ids, 40, 1);
  sync_ok(session, ids, 40);
  for (int i = 0; i < 50; i++) {
    make_ids(more, 10, i);
    fake.n_tokens = 0;
    assert_int_equal(session_score(session, more, 10, log_p, NULL), STATUS_OK);
    assert_int_equal(fake.n_tokens, 9);
    memcpy(ids + 40, more, sizeof more);
    for (int token = 0; token < 10; token++) {
      float logits[FAKE_VOCAB];
      whole_logits(ids, 40 + token, logits);
      assert_true(log_p[token] == log_probability(logits, FAKE_VOCAB, more[token]));
    }
  }
  assert_int_equal(fake.n_saved, 2); /* before the last token and after it */
  session_close(session);
}

TEST(states_are_kept_along_an_answer) {
  int32_t ids[FAKE_POSITIONS];
  Session *session = open_hybrid((SessionOptions){.chunk = 16}, 16);
  make_ids(ids, 10, 1);
  sync_ok(session, ids, 10);
  decode_ok(session, 180, ids, 10);
  session_keep(session, 150);
  assert_int_equal(session_view(session).text->n_past, 150);
  assert_int_equal(session_common(session, ids, 150), 9 + 2 * KEPT_STATES_STEP);
  fake.n_tokens = 0;
  decode_ok(session, 1, ids, 150); /* and what lies between, again */
  assert_int_equal(fake.n_tokens, 150 - (9 + 2 * KEPT_STATES_STEP) + 1);
  session_close(session);
}

/* A device that runs ahead may save the state after a token that is dropped: it is no state of the text. */
TEST(states_of_dropped_tokens_are_not_kept) {
  int32_t ids[FAKE_POSITIONS], id;
  for (int n = 1; n <= 4; n++) {
    backend = &fake_ahead_backend;
    Session *session = open_hybrid((SessionOptions){.chunk = 16}, 4);
    backend = &fake_backend;
    make_ids(ids, 10, 1);
    sync_ok(session, ids, 10);
    const int last = 9 + KEPT_STATES_STEP; /* where a state is kept again */
    decode_ok(session, last - n - 10, ids, 10);
    for (int i = 0; i < n + 3; i++) assert_int_equal(session_decode_async(session, NULL), STATUS_OK);
    assert_int_equal(session_wait_token(session, &id, NULL), STATUS_OK);
    ids[last - n] = id;
    assert_int_equal(session_drain(session, NULL), STATUS_OK);
    const int held = last - n + 1;
    assert_int_equal(session_view(session).text->n_past, held);
    for (int i = held; i < held + 9; i++) { /* other tokens than the dropped ones */
      ids[i] = (i * 11 + 5) % FAKE_VOCAB;
      assert_int_equal(session_decode(session, ids[i], NULL), STATUS_OK);
    }
    assert_holds(session, ids, held + 9);
    sync_ok(session, ids, held + 7);
    assert_holds(session, ids, held + 7);
    session_close(session);
  }
}

TEST(failures_of_states_are_told_and_harm_nothing) {
  int32_t ids[FAKE_POSITIONS];
  Error err = {{0}};
  Session *session = open_hybrid((SessionOptions){.chunk = 16}, 4);
  make_ids(ids, 60, 1);
  fake.no_saving = true;
  assert_int_equal(session_sync(session, ids, 60, &err), STATUS_FAILED);
  assert_string_equal(err.text, "the device is gone");
  fake.no_saving = false;
  assert_int_equal(computed(session, ids, 60), 1); /* 59 were there when saving failed */
  decode_ok(session, 5, ids, 60);
  fake.no_restoring = true;
  assert_int_equal(session_sync(session, ids, 60, &err), STATUS_FAILED);
  fake.no_restoring = false;
  assert_int_equal(computed(session, ids, 60), 1);
  fake.fail_at = fake.n_steps + 1; /* a step that changed the state of some layers */
  assert_int_equal(session_decode(session, 3, &err), STATUS_FAILED);
  fake.fail_at = 0;
  decode_ok(session, 5, ids, 60);
  session_close(session);
}
