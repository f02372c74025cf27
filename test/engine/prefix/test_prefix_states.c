/* test_prefix_states.c - a prefix store of a model with recurrent states: a text comes back up to a state
 * that was kept, the rest is computed again, and what became of the files changes no logits.
 *
 * The state of fake_backend.h is all tokens so far, so that a state of another text or position shows. */
#include "prefix_test.h"
#include "test/tests.h"

enum { TEXT = 700, STATE = TEXT - 1 }; /* the last token is computed again, so the state before it is kept */

static int make_hybrid(void **state) {
  static LayerConfig layers[FAKE_LAYERS] = {[1] = {.kind = LAYER_DELTA}};
  model.config.layers = layers;
  return make_own_directory(state);
}

static PrefixReport restore(PrefixStore *store, Session *session, const int32_t *ids, int n) {
  PrefixReport report;
  Error err = {{0}};
  if (prefix_store_restore(store, session, ids, n, &report, &err)) fail_msg("%s", err.text);
  return report;
}

static PrefixReport save(PrefixStore *store, Session *session, int n) {
  PrefixReport report;
  Error err = {{0}};
  if (prefix_store_save(store, session, n, &report, &err)) fail_msg("%s", err.text);
  return report;
}

/* Like answer(), and then keeps the text as a command does; *kept is what was written. */
static int answer_and_keep(const int32_t *ids, int n, PrefixReport *kept) {
  PrefixStore *store = open_store("k", UINT64_MAX);
  Session *session = open_session(CONTEXT, 1);
  const int n_tokens = restore(store, session, ids, n).n_tokens;
  assert_int_equal(session_sync(session, ids, n, NULL), STATUS_OK);
  assert_int_equal(fake.n_tokens, n - n_tokens);
  assert_holds(session, ids, n);
  *kept = save(store, session, n);
  session_close(session);
  prefix_store_close(store);
  return n_tokens;
}

TEST_WITH(make_hybrid, remove_own_directory, a_text_comes_back_up_to_its_state) {
  int32_t ids[CONTEXT];
  make_text(ids, CONTEXT, CONTEXT, 0);
  const PrefixReport kept = keep("k", UINT64_MAX, ids, TEXT);
  assert_int_equal(kept.n_tokens, STATE);
  assert_int_equal(kept.n_files, 4); /* three blocks and the state */
  assert_int_equal(answer("k", ids, TEXT), STATE);
  assert_int_equal(answer("k", ids, 2000), STATE);
  assert_int_equal(answer("k", ids, STATE), 0); /* its last token is computed, and the state is after it */
  assert_int_equal(answer("k", ids, 400), 0);
  assert_int_equal(answer("other", ids, TEXT), 0);
  assert_int_equal(notes.count, 0);
  assert_int_equal(keep("k", UINT64_MAX, ids, TEXT).n_files, 0);
  assert_int_equal(keep("k", UINT64_MAX, ids, TEXT + PREFIX_MIN_NEW - 1).n_files, 0);
  const PrefixReport more = keep("k", UINT64_MAX, ids, TEXT + PREFIX_MIN_NEW);
  assert_int_equal(more.n_tokens, PREFIX_MIN_NEW);
  assert_int_equal(more.n_files, 2);               /* a longer last block, and its state */
  assert_int_equal(answer("k", ids, TEXT), STATE); /* in the longer block */
  assert_int_equal(answer("k", ids, 900), STATE + PREFIX_MIN_NEW);
}

/* A state may need few tokens of a last block, which without states is too short to be written or read. */
TEST_WITH(make_hybrid, remove_own_directory, a_short_last_block_is_kept_for_its_state) {
  int32_t ids[CONTEXT];
  make_text(ids, CONTEXT, CONTEXT, 0);
  for (int more = 1; more <= PREFIX_MIN_USE; more += 5) {
    const int n = PREFIX_BLOCK + more;
    assert_int_equal(keep("k", UINT64_MAX, ids, n + 1).n_tokens, n);
    assert_int_equal(answer("k", ids, 900), n);
    empty_own_directory();
  }
}

/* The second of two texts that begin alike finds no state there, computes one and keeps it for the third. */
TEST_WITH(make_hybrid, remove_own_directory, the_third_text_that_begins_alike_is_not_computed) {
  static const int lengths[] = {1, 255, 256, 257, 500, 511, 512};
  int32_t ids[CONTEXT];
  for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
    PrefixReport kept;
    const int common = 300 + lengths[i];
    empty_own_directory();
    for (int text = 0; text < 4; text++) {
      make_text(ids, common + 200, common, text);
      assert_int_equal(answer_and_keep(ids, common + 200, &kept), text < 2 ? 0 : common);
      assert_int_equal(notes.count, 0);
    }
  }
}

static int n_states(void) {
  PrefixList list = files();
  int n = 0;
  for (size_t i = 0; i < list.count; i++) n += strcmp(strrchr(list.items[i].name, '.'), ".rs") == 0;
  prefix_list_release(&list);
  return n;
}

/* A state of CONTEXT + 1 numbers is as large as the keys and values of 2,001 tokens. */
TEST_WITH(make_hybrid, remove_own_directory, states_between_turns_are_kept_where_they_are_worth_it) {
  int32_t ids[CONTEXT];
  make_text(ids, CONTEXT, CONTEXT, 0);
  assert_int_equal(keep("k", UINT64_MAX, ids, 2000).n_tokens, 1999);
  assert_int_equal(n_states(), 1);
  empty_own_directory();
  assert_int_equal(keep("k", UINT64_MAX, ids, CONTEXT).n_tokens, CONTEXT - 1);
  assert_int_equal(n_states(), 2);
  assert_int_equal(answer("k", ids, CONTEXT), CONTEXT - 1);
  assert_int_equal(answer("k", ids, 3000), 2048);
  assert_int_equal(answer("k", ids, 2048), 0);
}

/* Restores a text into a session that holds another, and computes the rest. Returns the number of tokens
 * that the store gave. */
static int restore_over(PrefixStore *store, Session *session, const int32_t *ids, int n) {
  const int n_restored = restore(store, session, ids, n).n_tokens;
  assert_int_equal(session_sync(session, ids, n, NULL), STATUS_OK);
  assert_holds(session, ids, n);
  return n_restored;
}

/* The session and the stored text share their first 300 tokens; the session has a state after 256. */
TEST_WITH(make_hybrid, remove_own_directory, a_session_goes_on_from_the_nearest_state) {
  int32_t ids[CONTEXT], other[CONTEXT];
  make_text(ids, TEXT, TEXT, 0);
  make_text(other, 900, 300, 1);
  keep("k", UINT64_MAX, ids, TEXT);
  PrefixStore *store = open_store("k", UINT64_MAX);
  Session *session = open_session(CONTEXT, 1);
  assert_int_equal(session_sync(session, other, 900, NULL), STATUS_OK);
  assert_int_equal(restore_over(store, session, ids, TEXT), STATE - 256);
  const PrefixReport nothing = restore(store, session, ids, TEXT); /* the session has it all */
  assert_true(nothing.n_tokens == 0 && nothing.n_files == 0);
  assert_int_equal(restore_over(store, session, ids, TEXT), 0);
  session_close(session);
  prefix_store_close(store);
}

/* The device's current state is after tokens that the session forgot: it is of no use for restored ones. */
TEST_WITH(make_hybrid, remove_own_directory, a_forgotten_state_is_not_taken_for_the_texts) {
  int32_t ids[CONTEXT], other[CONTEXT];
  make_text(ids, TEXT, TEXT, 0);
  make_text(other, 100, 0, 1);
  keep("k", UINT64_MAX, ids, TEXT);
  unlink(path_of_file(512, true));
  PrefixStore *store = open_store("k", UINT64_MAX);
  Session *session = open_session(CONTEXT, 1);
  assert_int_equal(session_sync(session, other, 100, NULL), STATUS_OK);
  assert_int_equal(restore_over(store, session, ids, TEXT), 0);
  session_close(session);
  prefix_store_close(store);
}

/* Every byte of the head, then samples. The state before it is used, and the file is written again. */
TEST_WITH(make_hybrid, remove_own_directory, a_damaged_state_is_not_used) {
  int32_t ids[CONTEXT];
  make_text(ids, TEXT, TEXT, 0);
  keep("k", UINT64_MAX, ids, 400);
  keep("k", UINT64_MAX, ids, TEXT);
  static Copy copy;
  copy_file(&copy, path_of_file(512, true));
  for (size_t at = 0; at < copy.size; at += at < 128 ? 1 : at < 3500 ? 97 : 1301) {
    copy.bytes[at] ^= 0x41;
    write_file(copy.path, copy.bytes, copy.size);
    assert_int_equal(answer("k", ids, TEXT), 399);
    assert_int_equal(notes.count, 1);
    assert_non_null(strstr(notes.last, copy.path));
    if (at == 0) assert_non_null(strstr(notes.last, "no file of recurrent states"));
    copy.bytes[at] ^= 0x41;
  }
  copy.bytes[copy.size - 9] ^= 1;
  write_file(copy.path, copy.bytes, copy.size);
  assert_int_equal(answer("k", ids, TEXT), 399);
  assert_non_null(strstr(notes.last, "the checksum of layer 1 is wrong"));
  assert_int_equal(keep("k", UINT64_MAX, ids, TEXT).n_files, 1);
  assert_int_equal(answer("k", ids, TEXT), STATE);
  for (size_t size = 0; size < copy.size; size += 1 + copy.size / 9) {
    write_file(copy.path, copy.bytes, size);
    assert_int_equal(answer("k", ids, TEXT), 399);
    assert_int_equal(notes.count, 1);
  }
}

/* Files of one kind under the names of the other. */
TEST_WITH(make_hybrid, remove_own_directory, a_block_is_no_state) {
  int32_t ids[CONTEXT];
  static Copy block, kept;
  make_text(ids, TEXT, TEXT, 0);
  keep("k", UINT64_MAX, ids, TEXT);
  copy_file(&block, path_of_block(512));
  copy_file(&kept, path_of_file(512, true));
  write_file(kept.path, block.bytes, block.size);
  assert_int_equal(answer("k", ids, TEXT), 0);
  assert_non_null(strstr(notes.last, "no file of recurrent states"));
  write_file(kept.path, kept.bytes, kept.size);
  write_file(block.path, kept.bytes, kept.size);
  assert_int_equal(answer("k", ids, TEXT), 0);
  assert_non_null(strstr(notes.last, "no file of keys and values"));
}

/* All under one key, which normally differs between models: the sizes in a file are checked all the same. */
TEST_WITH(make_hybrid, remove_own_directory, a_state_of_other_sizes_is_refused) {
  static LayerConfig two[FAKE_LAYERS] = {{.kind = LAYER_DELTA}, {.kind = LAYER_DELTA}};
  int32_t ids[CONTEXT];
  make_text(ids, TEXT, TEXT, 0);
  keep("k", UINT64_MAX, ids, TEXT);
  model.config.layers = NULL; /* attention alone: the blocks have fewer bytes, and states are not looked at */
  assert_int_equal(answer("k", ids, TEXT), 0);
  assert_non_null(strstr(notes.last, "of another model, program or setting"));
  model.config.layers = two;
  assert_int_equal(answer("k", ids, TEXT), 0);
  assert_non_null(strstr(notes.last, "of another model, program or setting"));
}

/* Keys and values are read up to the gap: a state after it is of no use. */
TEST_WITH(make_hybrid, remove_own_directory, a_state_after_a_missing_block_is_not_used) {
  int32_t ids[CONTEXT];
  make_text(ids, TEXT, TEXT, 0);
  keep("k", UINT64_MAX, ids, 400);
  keep("k", UINT64_MAX, ids, TEXT);
  unlink(path_of_block(512));
  assert_int_equal(answer("k", ids, TEXT), 399);
  unlink(path_of_block(256));
  assert_int_equal(answer("k", ids, TEXT), 0);
  PrefixReport kept;
  answer_and_keep(ids, TEXT, &kept);
  assert_int_equal(kept.n_files, 3); /* the blocks, and the state where the gap began */
  assert_int_equal(answer("k", ids, TEXT), STATE);
}

TEST_WITH(make_hybrid, remove_own_directory, states_are_within_the_limit) {
  int32_t ids[CONTEXT];
  make_text(ids, TEXT, TEXT, 0);
  const uint64_t bytes = bytes_of(TEXT);
  assert_int_equal(keep("k", bytes - 1, ids, TEXT).n_files, 0); /* blocks without a state are of no use */
  assert_int_equal(keep("k", bytes, ids, TEXT).n_files, 4);
  assert_int_equal(answer("k", ids, TEXT), STATE);
  make_text(ids, TEXT, 0, 1);
  assert_int_equal(keep("k", bytes, ids, TEXT).n_removed, 4);
  for (int used = 0; used < 2; used++) {
    int n_removed;
    if (used) assert_int_equal(keep("k", bytes, ids, TEXT).n_files, 1);
    if (used) assert_int_equal(answer("k", ids, TEXT), STATE);
    assert_int_equal(prefix_directory_shrink(own_directory, bytes - 1, &n_removed, NULL), STATUS_OK);
    assert_int_equal(n_removed, 1); /* the state goes before its blocks */
    assert_int_equal(n_states(), 0);
    assert_int_equal(n_files(), 3);
  }
}

TEST_WITH(make_hybrid, remove_own_directory, a_failing_device_leaves_the_session_whole) {
  int32_t ids[CONTEXT];
  Error err = {{0}};
  PrefixReport report;
  make_text(ids, TEXT, TEXT, 0);
  keep("k", UINT64_MAX, ids, TEXT);
  PrefixStore *store = open_store("k", UINT64_MAX);
  Session *session = open_session(CONTEXT, 1);
  assert_int_equal(session_sync(session, ids, 100, NULL), STATUS_OK);
  fake.no_state_writes = true;
  assert_int_equal(prefix_store_restore(store, session, ids, TEXT, &report, &err), STATUS_FAILED);
  assert_string_equal(err.text, "the device is gone");
  assert_int_equal(session_sync(session, ids, TEXT, NULL), STATUS_OK);
  assert_holds(session, ids, TEXT);
  assert_int_equal(n_states(), 1); /* the file is not to blame */
  session_close(session);
  prefix_store_close(store);
}
