/* test_cut_rows.c - a prompt's rows without logits end within the last layer (Backend.cuts_rows): the logits
 * after a prompt, and after one more token, are to the bit those of an evaluation, which computes all rows to
 * their end. Over every miniature: all kinds of layers, gates, norms and caches. */
#include <dirent.h>

#include "engine/session.h"
#include "test/tests.h"

extern const Backend cpu_backend;

enum { N_PROMPT = 47, N_TOKENS = N_PROMPT + 1, CHUNK = 20 };

typedef struct {
  int row; /* the one that is wanted */
  float *logits;
  size_t n;
} Wanted;

static Status take(void *user, int row, const float *logits, Error *err) {
  const Wanted *wanted = user;
  (void)err;
  if (row == wanted->row) memcpy(wanted->logits, logits, wanted->n * sizeof *logits);
  return STATUS_OK;
}

static Session *open_session(BackendModel *loaded, const Model *model, int chunk) {
  Session *session;
  Error err = {{0}};
  const SessionOptions options = {
      .n_ctx = N_TOKENS, .chunk = chunk, .sampler = {.top_p = 1, .repetition_penalty = 1}};
  if (session_open(&cpu_backend, loaded, model, &options, &session, &err)) fail_msg("%s", err.text);
  return session;
}

static void compare(const char *name, BackendModel *loaded, const Model *model) {
  Error err = {{0}};
  int32_t ids[N_TOKENS];
  const size_t n = (size_t)model->config.vocab_size;
  float *logits = malloc(n * sizeof *logits), *expected = malloc(n * sizeof *expected);
  Session *cut = open_session(loaded, model, CHUNK), *whole = open_session(loaded, model, N_TOKENS);
  for (int i = 0; i < N_TOKENS; i++) ids[i] = (int32_t)((unsigned)i * 2654435761u % (unsigned)n);
  for (int last = N_PROMPT - 1; last < N_TOKENS; last++) {
    Wanted wanted = {last, expected, n};
    const Status status =
        last == N_PROMPT - 1 ? session_sync(cut, ids, N_PROMPT, &err) : session_decode(cut, ids[last], &err);
    if (status || session_logits(cut, logits, &err) ||
        session_evaluate(whole, ids, last + 1, take, &wanted, &err))
      fail_msg("%s: %s", name, err.text);
    if (memcmp(logits, expected, n * sizeof *logits) != 0)
      fail_msg("%s: other logits after %d tokens", name, last + 1);
  }
  session_close(cut);
  session_close(whole);
  free(logits);
  free(expected);
}

TEST(logits_after_a_prompt_are_those_of_an_evaluation) {
  const char *const folder = "test/data/miniatures";
  int n_models = 0;
  DIR *dir = opendir(folder);
  assert_non_null(dir);
  for (struct dirent *entry; (entry = readdir(dir)) != NULL;) {
    Error err = {{0}};
    Model *model;
    BackendModel *loaded;
    char path[512];
    if (entry->d_name[0] == '.') continue;
    snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
    if (model_open(path, NULL, &model, &err) || model_prepare_scales(model, 1, &err) ||
        model_prepare(model, 1, &err) ||
        cpu_backend.load(model, &(BackendOptions){.n_threads = 1}, &loaded, &err))
      fail_msg("%s: %s", path, err.text);
    compare(entry->d_name, loaded, model);
    cpu_backend.unload(loaded);
    model_close(model);
    n_models++;
  }
  closedir(dir);
  assert_true(n_models > 100);
}
