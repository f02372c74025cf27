/* prefix_test.h - what the tests of prefix stores share: a store and sessions of fake_backend.h, texts, and
 * the store's files. Every test works in a directory of its own. */
#pragma once

#include <unistd.h>

#include "test/engine/fake_backend.h"

#include "base/file.h"
#include "engine/prefix/prefix_directory.h"
#include "engine/prefix/prefix_store.h"
#include "test/directory.h"

enum { CONTEXT = 4000, THREADS = 2 };

static Model model = {.config = {.n_layers = FAKE_LAYERS,
                                 .vocab_size = FAKE_VOCAB,
                                 .max_position = CONTEXT,
                                 .n_kv_heads = 1,
                                 .head_dim = 1}};

/* --- helpers */

typedef struct {
  int count;
  char last[1024];
} Notes;

static inline void take_note(void *user, const char *text) {
  Notes *notes = user;
  notes->count++;
  snprintf(notes->last, sizeof notes->last, "%s", text);
}

static Notes notes;

static inline PrefixStore *open_store(const char *key, uint64_t limit) {
  PrefixStoreOptions options = {.directory = own_directory,
                                .key = key,
                                .label = "a model",
                                .limit_bytes = limit,
                                .n_threads = THREADS,
                                .note = take_note,
                                .user = &notes};
  PrefixStore *store;
  notes = (Notes){0};
  assert_int_equal(prefix_store_open(&options, &store, NULL), STATUS_OK);
  return store;
}

static inline Session *open_session(int n_ctx, double penalty) {
  fake = (FakeCounts){.end_at = -1};
  SessionOptions options = {.n_ctx = n_ctx, .sampler = {.top_p = 1, .repetition_penalty = penalty}};
  BackendModel loaded = {&model};
  Session *session;
  Error err = {{0}};
  if (session_open(&fake_backend, &loaded, &model, &options, &session, &err)) fail_msg("%s", err.text);
  return session;
}

/* A text: of two, the first `common` tokens agree, and the next does not. */
static inline void make_text(int32_t *ids, int n, int common, int salt) {
  for (int i = 0; i < n; i++) ids[i] = (i * 31 + i / 7 + (i < common ? 0 : 1 + salt)) % FAKE_VOCAB;
}

static inline void assert_holds(Session *session, const int32_t *ids, int n) {
  static int32_t copy[CONTEXT];
  int32_t *const cache[FAKE_LAYERS] = {copy, copy, copy};
  float got[FAKE_VOCAB], want[FAKE_VOCAB];
  assert_int_equal(session_view(session).text->n_past, n);
  assert_memory_equal(session_view(session).text->ids, ids, (size_t)n * sizeof *ids);
  assert_int_equal(session_logits(session, got, NULL), STATUS_OK);
  memcpy(copy, ids, (size_t)n * sizeof *ids);
  fake_row(cache, n, want);
  assert_memory_equal(got, want, sizeof got);
}

/* Prefills a text through a store: how many of its tokens came from there. */
static inline int answer(const char *key, const int32_t *ids, int n) {
  PrefixStore *store = open_store(key, UINT64_MAX);
  Session *session = open_session(CONTEXT, 1);
  PrefixReport report;
  assert_int_equal(prefix_store_restore(store, session, ids, n, &report, NULL), STATUS_OK);
  assert_int_equal(session_common(session, ids, n), report.n_tokens);
  assert_int_equal(session_sync(session, ids, n, NULL), STATUS_OK);
  assert_int_equal(fake.n_tokens, n - report.n_tokens);
  assert_holds(session, ids, n);
  session_close(session);
  prefix_store_close(store);
  return report.n_tokens;
}

static inline PrefixReport keep(const char *key, uint64_t limit, const int32_t *ids, int n) {
  PrefixStore *store = open_store(key, limit);
  Session *session = open_session(CONTEXT, 1);
  PrefixReport report;
  assert_int_equal(session_sync(session, ids, n, NULL), STATUS_OK);
  Error err = {{0}};
  if (prefix_store_save(store, session, n, &report, &err)) fail_msg("%s", err.text);
  session_close(session);
  prefix_store_close(store);
  return report;
}

static inline PrefixList files(void) {
  PrefixList list;
  assert_int_equal(prefix_directory_list(own_directory, &list, NULL), STATUS_OK);
  return list;
}

static inline int n_files(void) {
  PrefixList list = files();
  int n = (int)list.count;
  prefix_list_release(&list);
  return n;
}

/* Bytes of the files of a text of n tokens. Empties the directory. */
static inline uint64_t bytes_of(int n) {
  int32_t ids[CONTEXT];
  make_text(ids, n, n, 50);
  uint64_t bytes = keep("measure", UINT64_MAX, ids, n).bytes;
  empty_own_directory();
  return bytes;
}

/* The path of the file, of a block or of a state, whose own tokens begin at this one; it is the only one. */
static inline const char *path_of_file(int start, bool state) {
  static char path[512];
  PrefixList list = files();
  int n_found = 0;
  for (size_t i = 0; i < list.count; i++) {
    char candidate[512];
    PrefixSummary summary;
    snprintf(candidate, sizeof candidate, "%s/%s", own_directory, list.items[i].name);
    if (!prefix_file_summary(candidate, &summary) || summary.start != start || summary.state != state)
      continue;
    strcpy(path, candidate);
    n_found++;
  }
  prefix_list_release(&list);
  assert_int_equal(n_found, 1);
  return path;
}

static inline const char *path_of_block(int start) {
  return path_of_file(start, false);
}

/* Bytes of a file, to be damaged and put back. */
typedef struct {
  char path[512];
  unsigned char bytes[20000];
  size_t size;
} Copy;

static inline void copy_file(Copy *copy, const char *path) {
  snprintf(copy->path, sizeof copy->path, "%s", path);
  FILE *file = fopen(path, "rb");
  copy->size = fread(copy->bytes, 1, sizeof copy->bytes, file);
  assert_true(copy->size < sizeof copy->bytes);
  fclose(file);
}

static inline void write_file(const char *path, const unsigned char *bytes, size_t size) {
  unlink(path);
  FILE *file = fopen(path, "wb");
  assert_int_equal(fwrite(bytes, 1, size, file), size);
  fclose(file);
}
