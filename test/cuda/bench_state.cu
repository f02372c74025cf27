/* bench_state.cu - milliseconds to keep a recurrent state in a slot, to restore it, and to copy a kept one to
 * the host and back. The argument is a config.json or a directory with one; weights are random. Medians of
 * 20. */
#include <stdint.h>
#include <stdio.h>

#include <algorithm>
#include <functional>
#include <vector>

extern "C" {
#include "base/clock.h"
#include "cuda/one/table.h"
}
#include "test/cuda/check.cuh"

static double median_ms(const std::function<void()> &work) {
  std::vector<double> times;
  for (int i = 0; i < 23; i++) {
    const double start = clock_ms();
    work();
    if (i >= 3) times.push_back(clock_ms() - start);
  }
  std::sort(times.begin(), times.end());
  return times[times.size() / 2];
}

int main(int argc, char **argv) {
  const Backend *backend = &cuda_backend;
  Model *model;
  BackendModel *loaded;
  BackendState *state;
  MUST(model_open_dummy(argc > 1 ? argv[1] : "test/data/configs/Qwen3.8-27B-INT4", &model, &error));
  const BackendOptions options = {};
  MUST(backend->load(model, &options, &loaded, &error));
  StateOptions sizes = {};
  sizes.n_ctx = 64, sizes.max_chunk = 16, sizes.max_logit_rows = 1, sizes.n_slots = 2;
  MUST(backend->open(loaded, &sizes, &state, &error));
  const ModelConfig *config = &model->config;
  size_t bytes = 0, largest = 0;
  for (int layer = 0; layer < config->n_layers; layer++) {
    const size_t own = backend->recurrent_bytes(config, layer);
    bytes += own;
    largest = std::max(largest, own);
  }
  std::vector<char> host(largest);
  const auto report = [&](const char *what, double ms) {
    printf("| %-8s | %8.1f MB | %8.3f ms | %7.0f GB/s |\n", what, (double)bytes * 1e-6, ms,
           (double)bytes / ms * 1e-6);
  };
  printf("| what     | state       | median      | moved        |\n|---|---|---|---|\n");
  report("keep", median_ms([&] {
           MUST(backend->state_save(state, 1, &error));
           MUST(backend->drain(state, &error));
         }));
  report("restore", median_ms([&] {
           MUST(backend->state_restore(state, 1, &error));
           MUST(backend->drain(state, &error));
         }));
  report("read", median_ms([&] {
           for (int layer = 0; layer < config->n_layers; layer++)
             MUST(backend->state_copy(state, TO_HOST, 1, layer, host.data(), &error));
         }));
  report("write", median_ms([&] {
           for (int layer = 0; layer < config->n_layers; layer++)
             MUST(backend->state_copy(state, FROM_HOST, 1, layer, host.data(), &error));
         }));
  backend->close(state);
  backend->unload(loaded);
  model_close(model);
  return 0;
}
