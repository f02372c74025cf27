/* test_states.cu - answers of models with recurrent states that are taken back and made again, as /undo
 * and /regen do: each gives the same logits to the bit, and no device memory goes. Another session gives
 * them, too, to which keys, values and the state go through the host.
 *
 * usage: test_states [few]; prints `N passed, N failed`. */
#include <stdio.h>
#include <string.h>

#include <vector>

extern "C" {
#include "cuda/one/table.h"
#include "engine/session.h"
}
#include "test/cuda/check.cuh"

static int passed, failed;

static void expect(bool good, const char *what, const char *model) {
  if (!good) printf("FAILED %s: %s\n", model, what);
  good ? passed++ : failed++;
}

static size_t free_memory() {
  size_t free_bytes, total;
  CHECK(cudaMemGetInfo(&free_bytes, &total));
  return free_bytes;
}

static std::vector<float> logits_of(Session *session, int n) {
  std::vector<float> logits(n);
  MUST(session_logits(session, logits.data(), &error));
  return logits;
}

/* Brings the first n tokens of a session to an empty one, as prefix_store.c does through files. */
static void bring(Session *from, Session *to, const int32_t *ids, int n) {
  MUST(session_rewind(to, ids, n + 1, &error));
  const int slot = kept_states_find(session_view(from).kept, n), own = session_state_add(to, n);
  if (slot < 0 || session_view(from).kept->pos[slot] != n) return;
  for (int layer = 0; layer < session_view(from).text->config->n_layers; layer++) {
    const size_t keys = session_view(from).kv_bytes[layer] * (size_t)n,
                 state = session_view(from).state_bytes[layer];
    std::vector<char> bytes(keys + state);
    TokenRange range = {};
    range.n_tokens = n;
    MUST(session_kv_copy(from, TO_HOST, range, layer, n, bytes.data(), &error));
    MUST(session_kv_copy(to, FROM_HOST, range, layer, n, bytes.data(), &error));
    MUST(session_state_copy(from, TO_HOST, slot, layer, bytes.data() + keys, &error));
    MUST(session_state_copy(to, FROM_HOST, own, layer, bytes.data() + keys, &error));
  }
  session_adopt(to, n);
}

/* A prompt, an answer to it, another turn with its answer; each cycle takes both back. */
static void run(const char *path, int cycles) {
  Model *model;
  BackendModel *loaded;
  Session *session;
  const Backend *backend = &cuda_backend;
  const BackendOptions options = {};
  const size_t at_first = free_memory();
  MUST(model_open(path, nullptr, &model, &error));
  MUST(backend->load(model, &options, &loaded, &error));
  SessionOptions sizes = {};
  sizes.n_ctx = 100, sizes.sampler.top_p = 1, sizes.sampler.repetition_penalty = 1;
  MUST(session_open(backend, loaded, model, &sizes, &session, &error));
  const int n = model->config.vocab_size;
  int32_t ids[60];
  for (int i = 0; i < 60; i++) ids[i] = (i * 31 + 7) % n;
  std::vector<float> first, second;
  size_t before = 0;
  bool alike = true, alike_behind = true;
  for (int cycle = 0; cycle <= cycles; cycle++) {
    MUST(session_sync(session, ids, 30, &error)); /* /undo: back to the first prompt */
    const std::vector<float> prompt = logits_of(session, n);
    for (int i = 0; i < 2; i++) MUST(session_decode(session, ids[30 + i], &error));
    MUST(session_sync(session, ids, 40, &error));
    const std::vector<float> made = logits_of(session, n);
    MUST(session_decode(session, ids[50 + cycle % 9], &error));
    MUST(session_sync(session, ids, 40, &error)); /* /regen */
    const std::vector<float> turn = logits_of(session, n);
    if (cycle == 0) first = prompt, second = turn, before = free_memory();
    alike = alike && prompt == first;
    alike_behind = alike_behind && turn == second && turn == made;
  }
  expect(alike, "the first prompt's logits differ", path);
  expect(alike_behind, "the second prompt's logits differ", path);
  expect(free_memory() == before, "device memory is less", path);
  Session *other;
  MUST(session_open(backend, loaded, model, &sizes, &other, &error));
  bring(session, other, ids, 39);
  expect(session_common(other, ids, 40) == 39, "39 tokens are not there", path);
  MUST(session_sync(other, ids, 40, &error));
  expect(logits_of(other, n) == second, "another session's logits differ", path);
  session_close(other);
  session_close(session);
  backend->unload(loaded);
  model_close(model);
  expect(free_memory() >= at_first - (64 << 20), "device memory is kept at the end", path); /* but cuBLAS's */
}

int main(int argc, char **argv) {
  const bool few = argc > 1 && strcmp(argv[1], "few") == 0;
  for (const char *path : {"test/data/miniatures/qwen3_5", "test/data/miniatures/lfm2-awq"})
    run(path, few ? 5 : 100);
  printf("%d passed, %d failed\n", passed, failed);
  return failed != 0;
}
