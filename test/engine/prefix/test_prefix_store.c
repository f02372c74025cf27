/* test_prefix_store.c - keys and values on disk: what comes back is what went out, for the tokens that two
 * texts have in common and for no others, whatever has become of the files.
 *
 * The backend is a hash of its cache (fake_backend.h): logits after a restore are compared with those of the
 * whole text, so that any number in a wrong place shows. Every test works in a directory of its own. */
#include <fcntl.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "prefix_test.h"
#include "test/tests.h"

/* A process that saves and restores texts with others' beginnings, under a limit that all of them pass. */
static void live(int salt, uint64_t limit) {
  static int32_t ids[CONTEXT];
  for (int round = 0; round < 60; round++) {
    make_text(ids, 600, 300 + round % 3 * 100, (salt + round) % 4);
    PrefixStore *store = open_store("k", limit);
    Session *session = open_session(CONTEXT, 1);
    PrefixReport report;
    assert_int_equal(prefix_store_restore(store, session, ids, 600, &report, NULL), STATUS_OK);
    assert_int_equal(session_sync(session, ids, 600, NULL), STATUS_OK);
    assert_holds(session, ids, 600);
    assert_int_equal(prefix_store_save(store, session, 600, &report, NULL), STATUS_OK);
    assert_int_equal(notes.count, 0); /* no reader ever sees half a file */
    session_close(session);
    prefix_store_close(store);
  }
}

/* The first test: OpenMP's threads do not survive fork(). */
TEST_IN_DIRECTORY(processes_share_a_directory) {
  enum { PROCESSES = 4 };
  const uint64_t limit = 3 * bytes_of(600);
  pid_t children[PROCESSES];
  for (int i = 0; i < PROCESSES; i++) {
    if ((children[i] = fork()) == 0) {
      live(i, limit);
      _exit(0);
    }
  }
  for (int i = 0; i < PROCESSES; i++) {
    int status;
    waitpid(children[i], &status, 0);
    assert_int_equal(status, 0);
  }
  PrefixList list = files();
  assert_true(list.count > 0);
  prefix_list_release(&list);
  /* Who found the lock taken passed the limit by what it wrote; the next one makes that good. */
  int32_t ids[CONTEXT];
  make_text(ids, 600, 0, PROCESSES);
  keep("k", limit, ids, 600);
  list = files();
  assert_true(list.bytes <= limit);
  prefix_list_release(&list);
}

/* --- what is shared */

TEST_IN_DIRECTORY(a_text_comes_back) {
  int32_t ids[CONTEXT];
  make_text(ids, CONTEXT, CONTEXT, 0);
  assert_int_equal(answer("k", ids, 700), 0); /* and makes no files */
  assert_int_equal(n_files(), 0);
  PrefixReport kept = keep("k", UINT64_MAX, ids, 700);
  assert_int_equal(kept.n_tokens, 700);
  assert_int_equal(kept.n_files, 3);
  assert_int_equal(n_files(), 3);
  assert_int_equal(answer("k", ids, 700), 699); /* the last one's logits are made anew */
  assert_int_equal(answer("k", ids, 701), 700);
  assert_int_equal(answer("k", ids, 1500), 700);
  assert_int_equal(answer("k", ids, 512), 511);
  assert_int_equal(answer("k", ids, 513), 512);
  assert_int_equal(answer("k", ids, 30), 29);
  assert_int_equal(answer("k", ids, 1), 0);
  assert_int_equal(notes.count, 0);
}

TEST_IN_DIRECTORY(exactly_what_is_common_is_used) {
  static const int lengths[] = {0, 1, 15, 16, 100, 255, 256, 257, 271, 272, 511, 512, 600, 699, 700};
  int32_t ids[CONTEXT], other[CONTEXT];
  make_text(ids, 700, 700, 0);
  keep("k", UINT64_MAX, ids, 700);
  for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
    make_text(other, 900, lengths[i], 1);
    int few = lengths[i] % PREFIX_BLOCK < PREFIX_MIN_USE ? lengths[i] % PREFIX_BLOCK : 0;
    assert_int_equal(answer("k", other, 900), lengths[i] - few);
  }
}

TEST_IN_DIRECTORY(the_best_of_several_is_used) {
  int32_t ids[CONTEXT];
  for (int salt = 1; salt <= 3; salt++) {
    make_text(ids, 800, 400 + salt * 20, salt); /* all agree up to 420, with themselves for longer */
    keep("k", UINT64_MAX, ids, 800);
  }
  assert_int_equal(n_files(), 1 + 3 * 2);
  make_text(ids, 1000, 440, 2);
  assert_int_equal(answer("k", ids, 1000), 768);
  make_text(ids, 1000, 450, 7); /* like the third as far as that goes */
  assert_int_equal(answer("k", ids, 1000), 450);
}

TEST_IN_DIRECTORY(many_blocks_come_back) {
  int32_t ids[CONTEXT];
  make_text(ids, CONTEXT, CONTEXT, 0);
  assert_int_equal(keep("k", UINT64_MAX, ids, 3999).n_files, 16);
  assert_int_equal(answer("k", ids, CONTEXT), 3999);
  assert_int_equal(answer("k", ids, 8 * PREFIX_BLOCK + 1),
                   8 * PREFIX_BLOCK); /* as many as are open at once */
}

TEST_IN_DIRECTORY(a_session_goes_on_from_what_it_holds) {
  int32_t ids[CONTEXT], other[CONTEXT];
  make_text(ids, 1000, 1000, 0);
  keep("k", UINT64_MAX, ids, 1000);
  make_text(other, 900, 300, 1);
  PrefixStore *store = open_store("k", UINT64_MAX);
  Session *session = open_session(CONTEXT, 1);
  PrefixReport report;
  assert_int_equal(session_sync(session, other, 900, NULL), STATUS_OK);
  assert_int_equal(prefix_store_restore(store, session, ids, 1000, &report, NULL), STATUS_OK);
  assert_int_equal(report.n_tokens, 699); /* 300 were there */
  assert_int_equal(report.n_files, 3);    /* of 4: the first block was whole */
  assert_int_equal(session_sync(session, ids, 1000, NULL), STATUS_OK);
  assert_holds(session, ids, 1000);
  /* Nothing in the store is of use: what the session holds stays. */
  assert_int_equal(session_sync(session, other, 900, NULL), STATUS_OK);
  assert_int_equal(prefix_store_restore(store, session, other, 900, &report, NULL), STATUS_OK);
  assert_int_equal(report.n_tokens, 0);
  assert_int_equal(session_view(session).text->n_past, 899);
  assert_int_equal(session_sync(session, other, 900, NULL), STATUS_OK);
  assert_holds(session, other, 900);
  session_close(session);
  prefix_store_close(store);
}

/* A file is read for PREFIX_MIN_USE tokens more than are there. */
TEST_IN_DIRECTORY(few_more_tokens_are_not_read) {
  int32_t ids[CONTEXT];
  make_text(ids, 1000, 1000, 0);
  keep("k", UINT64_MAX, ids, 1000);
  for (int more = PREFIX_MIN_USE - 1; more <= PREFIX_MIN_USE; more++) {
    make_text(ids, 900, 301 + more, 1);
    PrefixStore *store = open_store("k", UINT64_MAX);
    Session *session = open_session(CONTEXT, 1);
    PrefixReport report;
    assert_int_equal(session_sync(session, ids, 301, NULL), STATUS_OK);
    assert_int_equal(prefix_store_restore(store, session, ids, 900, &report, NULL), STATUS_OK);
    assert_int_equal(report.n_tokens, more < PREFIX_MIN_USE ? 0 : more);
    session_close(session);
    prefix_store_close(store);
  }
}

TEST_IN_DIRECTORY(a_short_context_takes_part_of_a_block) {
  int32_t ids[CONTEXT];
  make_text(ids, 700, 700, 0);
  keep("k", UINT64_MAX, ids, 700);
  PrefixStore *store = open_store("k", UINT64_MAX);
  Session *session = open_session(300, 1);
  PrefixReport report;
  assert_int_equal(prefix_store_restore(store, session, ids, 300, &report, NULL), STATUS_OK);
  assert_int_equal(report.n_tokens, 299);
  assert_int_equal(session_sync(session, ids, 300, NULL), STATUS_OK);
  assert_holds(session, ids, 300);
  session_close(session);
  prefix_store_close(store);
}

TEST_IN_DIRECTORY(restored_tokens_count_for_penalties) {
  int32_t ids[CONTEXT], picks[2];
  make_text(ids, 300, 300, 0);
  for (int i = 0; i < 300; i++) ids[i] %= 40; /* tokens that are not in the text remain */
  keep("k", UINT64_MAX, ids, 300);
  for (int restored = 0; restored < 2; restored++) {
    PrefixStore *store = open_store("k", UINT64_MAX);
    Session *session = open_session(CONTEXT, 50);
    PrefixReport report;
    if (restored) assert_int_equal(prefix_store_restore(store, session, ids, 300, &report, NULL), STATUS_OK);
    assert_int_equal(session_sync(session, ids, 300, NULL), STATUS_OK);
    assert_int_equal(session_sample(session, &picks[restored], NULL), STATUS_OK);
    session_close(session);
    prefix_store_close(store);
  }
  assert_int_equal(picks[0], picks[1]);
  assert_true(picks[0] >= 40);
}

TEST_IN_DIRECTORY(another_key_shares_nothing) {
  int32_t ids[CONTEXT];
  make_text(ids, 700, 700, 0);
  keep("model a, program 1", UINT64_MAX, ids, 700);
  assert_int_equal(answer("model b, program 1", ids, 700), 0);
  assert_int_equal(answer("model a, program 1", ids, 700), 699);
}

/* The keys of a text of more tokens than longrope's original length are others, from its first token on. */
TEST_IN_DIRECTORY(long_texts_have_keys_of_their_own) {
  int32_t ids[CONTEXT];
  make_text(ids, 700, 700, 0);
  model.config.rope = (RopeConfig){.kind = ROPE_LONGROPE, .original_max_position = 500};
  keep("k", UINT64_MAX, ids, 700);
  assert_int_equal(answer("k", ids, 500), 0);
  assert_int_equal(answer("k", ids, 501), 500);
  keep("k", UINT64_MAX, ids, 500);
  assert_int_equal(answer("k", ids, 500), 499);
  assert_int_equal(answer("k", ids, 700), 699);
  model.config.rope = (RopeConfig){0};
}

/* --- what is saved */

TEST_IN_DIRECTORY(only_what_is_new_is_written) {
  int32_t ids[CONTEXT];
  make_text(ids, 1500, 1500, 0);
  assert_int_equal(keep("k", UINT64_MAX, ids, 255).n_files, 0); /* too short */
  PrefixReport kept = keep("k", UINT64_MAX, ids, 256 + PREFIX_MIN_NEW - 1);
  assert_int_equal(kept.n_files, 1); /* the rest is too short */
  assert_int_equal(kept.n_tokens, 256);
  kept = keep("k", UINT64_MAX, ids, 256 + PREFIX_MIN_NEW);
  assert_int_equal(kept.n_files, 1);
  assert_int_equal(kept.n_tokens, PREFIX_MIN_NEW);
  assert_int_equal(n_files(), 2);
  assert_int_equal(keep("k", UINT64_MAX, ids, 256 + PREFIX_MIN_NEW).n_files, 0);
  assert_int_equal(keep("k", UINT64_MAX, ids, 256 + 2 * PREFIX_MIN_NEW - 1).n_files, 0);
  kept = keep("k", UINT64_MAX, ids, 700); /* a block with more of the same takes the short one's place */
  assert_int_equal(kept.n_files, 2);
  assert_int_equal(kept.n_tokens, 700 - 256 - PREFIX_MIN_NEW);
  assert_int_equal(n_files(), 3);
  assert_int_equal(answer("k", ids, 700), 699);
}

/* Files and bytes that were read and written; none if there is nothing to do. */
TEST_IN_DIRECTORY(reports_count_what_was_read_and_written) {
  int32_t ids[CONTEXT];
  make_text(ids, 700, 700, 0);
  const PrefixKind kind = {"k", FAKE_LAYERS, (const size_t[FAKE_LAYERS]){4, 4, 4}, false, false};
  const uint64_t first = prefix_file_bytes(&kind, 0, 256), second = prefix_file_bytes(&kind, 256, 256),
                 last = prefix_file_bytes(&kind, 512, 188);
  assert_true(keep("k", UINT64_MAX, ids, 256).bytes == first);
  assert_true(keep("k", UINT64_MAX, ids, 700).bytes == second + last);
  PrefixList list = files();
  assert_true(list.bytes == first + second + last);
  prefix_list_release(&list);
  PrefixStore *store = open_store("k", UINT64_MAX);
  Session *session = open_session(CONTEXT, 1);
  PrefixReport report;
  assert_int_equal(prefix_store_restore(store, session, ids, 600, &report, NULL), STATUS_OK);
  assert_true(report.n_files == 3 && report.n_tokens == 599 && report.bytes == first + second + last);
  assert_int_equal(prefix_store_save(store, session, 600, &report, NULL), STATUS_OK); /* it holds 599 */
  assert_true(report.n_files == 0 && report.n_tokens == 0 && report.bytes == 0 && report.n_removed == 0);
  empty_own_directory();
  assert_int_equal(rmdir(own_directory), 0);
  session_keep(session, 0);
  assert_int_equal(prefix_store_restore(store, session, ids, 600, &report, NULL), STATUS_OK);
  assert_true(report.n_files == 0 && report.n_tokens == 0 && report.bytes == 0);
  session_close(session);
  prefix_store_close(store);
}

TEST_IN_DIRECTORY(files_are_the_owners_alone) {
  int32_t ids[CONTEXT];
  make_text(ids, 300, 300, 0);
  char below[300];
  snprintf(below, sizeof below, "%s/a/b", own_directory);
  char *above = own_directory;
  own_directory = below;
  mode_t mask = umask(0);
  keep("k", UINT64_MAX, ids, 300);
  umask(mask);
  struct stat info;
  assert_int_equal(stat(own_directory, &info), 0);
  assert_int_equal(info.st_mode & 07777, 0700);
  assert_int_equal(stat(path_of_block(0), &info), 0);
  assert_int_equal(info.st_mode & 07777, 0600);
  own_directory = above;
}

/* --- the limit */

TEST_IN_DIRECTORY(what_was_unused_the_longest_goes_first) {
  int32_t a[CONTEXT], b[CONTEXT], c[CONTEXT];
  const uint64_t limit = 2 * bytes_of(768) + 100;
  make_text(a, 768, 0, 1);
  make_text(b, 768, 0, 2);
  make_text(c, 768, 0, 3);
  keep("k", limit, a, 768);
  keep("k", limit, b, 768);
  assert_int_equal(answer("k", a, 768), 767); /* a is used again: now b is the older one */
  PrefixReport kept = keep("k", limit, c, 768);
  assert_int_equal(kept.n_removed, 3);
  assert_int_equal(answer("k", a, 768), 767);
  assert_int_equal(answer("k", b, 768), 0);
  assert_int_equal(answer("k", c, 768), 767);
}

/* So it is too where its blocks were there before, and a second save marked them as used. */
TEST_IN_DIRECTORY(a_texts_end_goes_before_its_beginning) {
  int32_t a[CONTEXT], b[CONTEXT];
  make_text(a, 768, 0, 1);
  make_text(b, 256, 0, 2);
  const uint64_t limit = bytes_of(768) + 10;
  for (int n_saves = 1; n_saves <= 2; n_saves++) {
    empty_own_directory();
    for (int i = 0; i < n_saves; i++) assert_int_equal(keep("k", limit, a, 768).n_files, i ? 0 : 3);
    assert_int_equal(keep("k", limit, b, 256).n_removed, 1);
    assert_int_equal(answer("k", a, 768), 512);
  }
}

TEST_IN_DIRECTORY(a_text_over_the_limit_keeps_its_beginning) {
  int32_t ids[CONTEXT];
  make_text(ids, 768, 768, 0);
  const uint64_t limit = bytes_of(512) + 10;
  PrefixReport kept = keep("k", limit, ids, 768);
  assert_int_equal(kept.n_files, 2);
  assert_int_equal(answer("k", ids, 768), 512);
  assert_int_equal(keep("k", limit, ids, 768).n_files, 0);
  PrefixList list = files();
  assert_true(list.bytes <= limit);
  prefix_list_release(&list);
  assert_int_equal(keep("k", 10, ids, 768).n_files, 0);
}

TEST_IN_DIRECTORY(what_takes_exactly_the_limit_is_kept) {
  int32_t ids[CONTEXT];
  make_text(ids, 768, 768, 0);
  for (int n = 256; n <= 512; n += 256) {
    const uint64_t bytes = bytes_of(n);
    assert_int_equal(keep("k", bytes - 1, ids, 768).n_tokens, n - 256);
    empty_own_directory();
    assert_int_equal(keep("k", bytes, ids, 768).n_tokens, n);
  }
}

TEST_IN_DIRECTORY(others_files_are_not_touched) {
  int32_t ids[CONTEXT];
  make_text(ids, 300, 300, 0);
  char path[512];
  snprintf(path, sizeof path, "%s/notes.txt", own_directory);
  FILE *file = fopen(path, "w");
  for (int i = 0; i < 100000; i++) fputc('x', file);
  fclose(file);
  assert_int_equal(keep("k", 50000, ids, 300).n_files, 1); /* nor counted */
  int n_removed;
  assert_int_equal(prefix_directory_shrink(own_directory, 0, &n_removed, NULL), STATUS_OK);
  assert_int_equal(n_removed, 1);
  assert_true(file_exists(path));
}

TEST_IN_DIRECTORY(a_directory_without_ours_gets_no_lock) {
  int32_t ids[CONTEXT];
  int n_removed;
  char path[512];
  snprintf(path, sizeof path, "%s/lock", own_directory);
  assert_int_equal(prefix_directory_shrink(own_directory, 0, &n_removed, NULL), STATUS_OK);
  assert_false(file_exists(path));
  make_text(ids, 300, 300, 0);
  keep("k", 50000, ids, 300);
  assert_int_equal(prefix_directory_shrink(own_directory, 0, &n_removed, NULL), STATUS_OK);
  assert_int_equal(n_removed, 1);
  assert_true(file_exists(path));
}

/* --- files that are not what they should be */

TEST_IN_DIRECTORY(damaged_files_are_not_used) {
  int32_t ids[CONTEXT];
  make_text(ids, 600, 600, 0);
  keep("the key", UINT64_MAX, ids, 600);
  Copy copy;
  copy_file(&copy, path_of_block(256));
  for (size_t at = 0; at < copy.size; at += at < 1300 ? 1 : 37) { /* the head whole, then samples */
    copy.bytes[at] ^= 0x41;
    write_file(copy.path, copy.bytes, copy.size);
    assert_int_equal(answer("the key", ids, 600), 256);
    assert_true(notes.count > 0);
    assert_non_null(strstr(notes.last, copy.path));
    copy.bytes[at] ^= 0x41;
  }
  write_file(copy.path, copy.bytes, copy.size);
  assert_int_equal(answer("the key", ids, 600), 599);
}

TEST_IN_DIRECTORY(cut_files_are_not_used) {
  static const size_t sizes[] = {0, 1, 39, 111, 112, 120, 1200, 2000};
  int32_t ids[CONTEXT];
  make_text(ids, 600, 600, 0);
  keep("the key", UINT64_MAX, ids, 600);
  Copy copy;
  copy_file(&copy, path_of_block(256));
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
    write_file(copy.path, copy.bytes, sizes[i]);
    assert_int_equal(answer("the key", ids, 600), 256);
    assert_int_equal(notes.count, 2); /* by its name, and among those that begin alike */
  }
  write_file(copy.path, copy.bytes, copy.size - 1);
  assert_int_equal(answer("the key", ids, 600), 256);
  write_file(copy.path, copy.bytes, copy.size + 1); /* a byte too many */
  assert_int_equal(answer("the key", ids, 600), 256);
}

TEST_IN_DIRECTORY(what_is_no_file_is_not_used) {
  int32_t ids[CONTEXT];
  make_text(ids, 600, 600, 0);
  keep("the key", UINT64_MAX, ids, 600);
  Copy copy;
  copy_file(&copy, path_of_block(256));
  unlink(copy.path);
  assert_int_equal(mkfifo(copy.path, 0600), 0);
  assert_int_equal(answer("the key", ids, 600), 256); /* and does not wait for a writer */
  keep("the key", UINT64_MAX, ids, 600);              /* the fifo gives way */
  assert_int_equal(answer("the key", ids, 600), 599);

  char elsewhere[520];
  snprintf(elsewhere, sizeof elsewhere, "%s.kept", copy.path);
  assert_int_equal(rename(copy.path, elsewhere), 0);
  assert_int_equal(symlink(elsewhere, copy.path), 0);
  assert_int_equal(answer("the key", ids, 600), 256);
  keep("the key", UINT64_MAX, ids, 600); /* the link gives way, and what it led to stays */
  assert_int_equal(answer("the key", ids, 600), 599);
  assert_true(file_exists(elsewhere));

  unlink(copy.path);
  assert_int_equal(mkdir(copy.path, 0700), 0);
  assert_int_equal(answer("the key", ids, 600), 256);
  PrefixStore *store = open_store("the key", UINT64_MAX);
  Session *session = open_session(CONTEXT, 1);
  PrefixReport report;
  Error err = {{0}};
  assert_int_equal(session_sync(session, ids, 600, NULL), STATUS_OK);
  assert_int_equal(prefix_store_save(store, session, 600, &report, &err), STATUS_FAILED);
  assert_non_null(strstr(err.text, copy.path));
  session_close(session);
  prefix_store_close(store);

  if (geteuid() == 0) { /* a file of another user */
    rmdir(copy.path);
    write_file(copy.path, copy.bytes, copy.size);
    assert_int_equal(answer("the key", ids, 600), 599);
    assert_int_equal(chown(copy.path, 12345, 12345), 0);
    assert_int_equal(answer("the key", ids, 600), 256);
    assert_non_null(strstr(notes.last, "belongs to user 12345"));
  }
}

/* A file under the name of another text's, as if two hashes were the same. */
TEST_IN_DIRECTORY(ids_decide_and_not_names) {
  int32_t ids[CONTEXT], other[CONTEXT];
  make_text(ids, 512, 0, 1);
  make_text(other, 512, 0, 2);
  keep("k", UINT64_MAX, ids, 512);
  Copy first, second;
  copy_file(&first, path_of_block(0));
  copy_file(&second, path_of_block(256));
  empty_own_directory();
  keep("k", UINT64_MAX, other, 512);
  char other_first[512], other_second[512];
  strcpy(other_first, path_of_block(0));
  strcpy(other_second, path_of_block(256));
  write_file(other_second, second.bytes,
             second.size); /* its own 256 ids may be the same: those before count */
  assert_int_equal(answer("k", other, 512), 256);
  write_file(other_first, first.bytes, first.size);
  assert_int_equal(answer("k", other, 512), 0);
}

/* The same for a block whose own ids are equal but follow others: its keys are those of another text. */
TEST_IN_DIRECTORY(ids_before_a_block_decide_too) {
  int32_t ids[CONTEXT], other[CONTEXT];
  make_text(ids, 512, 0, 1);
  make_text(other, 512, 0, 2);
  memcpy(other + 256, ids + 256, 256 * sizeof *ids);
  keep("k", UINT64_MAX, ids, 512);
  Copy second;
  copy_file(&second, path_of_block(256));
  empty_own_directory();
  keep("k", UINT64_MAX, other, 512);
  write_file(path_of_block(256), second.bytes, second.size);
  assert_int_equal(answer("k", other, 512), 256);
}

/* Whole blocks, and the last one; once, and not again. */
TEST_IN_DIRECTORY(a_damaged_file_is_written_anew) {
  static const int starts[] = {0, 256, 768};
  int32_t ids[CONTEXT];
  make_text(ids, 900, 900, 0);
  for (int i = 0; i < 3; i++) {
    keep("k", UINT64_MAX, ids, 900);
    Copy copy;
    copy_file(&copy, path_of_block(starts[i]));
    copy.bytes[copy.size - 5] ^= 1;
    if (i > 0) copy.bytes[copy.size - 132 * 4 * FAKE_LAYERS] ^= 1; /* of two layers: reported once */
    write_file(copy.path, copy.bytes, copy.size);
    PrefixStore *store = open_store("k", UINT64_MAX);
    Session *session = open_session(CONTEXT, 1);
    PrefixReport report;
    assert_int_equal(prefix_store_restore(store, session, ids, 900, &report, NULL), STATUS_OK);
    assert_int_equal(report.n_tokens, starts[i]);
    assert_int_equal(notes.count, 1);
    assert_non_null(strstr(notes.last, i > 0 ? "checksum of layer " : "checksum of layer 2"));
    assert_int_equal(session_sync(session, ids, 900, NULL), STATUS_OK);
    assert_int_equal(prefix_store_save(store, session, 900, &report, NULL), STATUS_OK);
    assert_int_equal(report.n_files, 4 - starts[i] / 256);
    assert_int_equal(prefix_store_save(store, session, 900, &report, NULL), STATUS_OK);
    assert_int_equal(report.n_files, 0);
    session_close(session);
    prefix_store_close(store);
    assert_int_equal(answer("k", ids, 900), 899);
    assert_int_equal(notes.count, 0);
  }
}

TEST_IN_DIRECTORY(a_failing_device_leaves_the_session_whole) {
  int32_t ids[CONTEXT];
  make_text(ids, 800, 800, 0);
  keep("k", UINT64_MAX, ids, 800);
  PrefixStore *store = open_store("k", UINT64_MAX);
  Session *session = open_session(CONTEXT, 1);
  PrefixReport report;
  Error err = {{0}};
  assert_int_equal(session_sync(session, ids, 100, NULL), STATUS_OK);
  fake.no_writes = true;
  assert_int_equal(prefix_store_restore(store, session, ids, 800, &report, &err), STATUS_FAILED);
  assert_string_equal(err.text, "the device is gone");
  assert_int_equal(session_view(session).text->n_past, 100);
  assert_int_equal(session_sync(session, ids, 800, NULL), STATUS_OK);
  assert_holds(session, ids, 800);
  session_close(session);
  prefix_store_close(store);
}

/* --- the disk, and others at the same time */

TEST_IN_DIRECTORY(a_full_disk_is_told_and_leaves_nothing) {
  int32_t ids[CONTEXT];
  make_text(ids, 800, 800, 0);
  PrefixStore *store = open_store("k", UINT64_MAX);
  Session *session = open_session(CONTEXT, 1);
  PrefixReport report;
  Error err = {{0}};
  struct rlimit before, small = {1000, RLIM_INFINITY};
  assert_int_equal(session_sync(session, ids, 800, NULL), STATUS_OK);
  signal(SIGXFSZ, SIG_IGN); /* as base/output.c does */
  getrlimit(RLIMIT_FSIZE, &before);
  small.rlim_max = before.rlim_max;
  setrlimit(RLIMIT_FSIZE, &small);
  Status status = prefix_store_save(store, session, 800, &report, &err);
  setrlimit(RLIMIT_FSIZE, &before);
  assert_int_equal(status, STATUS_FAILED);
  assert_non_null(strstr(err.text, "cannot write"));
  assert_int_equal(n_files(), 0);
  assert_holds(session, ids, 800);
  assert_int_equal(prefix_store_save(store, session, 800, &report, NULL), STATUS_OK);
  assert_int_equal(report.n_files, 3);
  session_close(session);
  prefix_store_close(store);
}

TEST_IN_DIRECTORY(a_lock_that_is_taken_stops_nobody) {
  int32_t ids[CONTEXT];
  make_text(ids, 600, 600, 0);
  keep("k", UINT64_MAX, ids, 600);
  char path[512];
  snprintf(path, sizeof path, "%s/lock", own_directory);
  int lock = open(path, O_RDWR | O_CREAT, 0600);
  assert_true(lock >= 0);
  assert_int_equal(flock(lock, LOCK_EX), 0);
  assert_int_equal(answer("k", ids, 600), 599);
  make_text(ids, 600, 0, 1);
  assert_int_equal(keep("k", 20000, ids, 600).n_files, 3);
  close(lock);
}
