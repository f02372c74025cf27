/* bench_many.cu - answer tokens a second of many records, as `auk --map --parallel N` answers them: a record
 * that ends makes room for the next, and there are pages as memory allows. usage: bench_many MODEL N RECORDS
 * PROMPT ANSWER [f32|q8] [int8] [states=bf16|f16] [no-graphs] [invariant] [chunk=N]; MODEL is a config.json
 * or a folder with one; weights are random, decoding is greedy, prompts share nothing. f32, q8: the type of
 * the cache; int8: activations in int8; states: as --states; invariant: as with --invariant; chunk: most rows
 * of a step. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <string>
#include <vector>

extern "C" {
#include "base/clock.h"
#include "cuda/one/table.h"
#include "engine/batch_memory.h"
#include "engine/engine.h"
}
#include "test/cuda/check.cuh"

struct Records {
  int n, n_prompt, n_answer, vocab;
  std::vector<int32_t> ids;
  SamplerSettings sampler;
  int n_asked, n_done, n_steps, n_taken_back;
  long long n_generated, n_rows;
};

static Status take_token(void *user, int32_t, TokenReply *, Error *) {
  ((Records *)user)->n_generated++;
  return STATUS_OK;
}

static Status next(void *user, bool, EngineRequest *request, bool *found, Error *) {
  Records *r = (Records *)user;
  *found = r->n_asked < r->n;
  if (!*found) return STATUS_OK;
  uint32_t state = (uint32_t)++r->n_asked * 2654435761u;
  for (int32_t &id : r->ids) id = (int32_t)((state = state * 1664525u + 1013904223u) >> 8) % r->vocab;
  *request = {};
  request->ids = r->ids.data(), request->n_ids = (int)r->ids.size(), request->sampler = &r->sampler;
  request->generate.max_tokens = r->n_answer, request->sink = take_token, request->user = r;
  return STATUS_OK;
}

static Status done(void *user, const EngineRequest *, const EngineResult *result, Error *err) {
  ((Records *)user)->n_done++;
  return result->status ? error_set(err, result->status, "%s", result->error.text) : STATUS_OK;
}

static void count_step(void *user, const EngineStep *step) {
  Records *r = (Records *)user;
  r->n_steps++, r->n_rows += step->range.n_tokens, r->n_taken_back += step->n_taken_back;
}

int main(int argc, char **argv) {
  if (argc < 6)
    return printf("usage: bench_many MODEL N RECORDS PROMPT ANSWER [f32|q8] [int8] "
                  "[states=bf16|f16] [no-graphs] [invariant] [chunk=N]\n"),
           2;
  const double start = clock_ms();
  const Backend *backend = &cuda_backend;
  Model *model;
  BackendModel *loaded;
  Engine *engine;
  MUST(model_open_dummy(argv[1], &model, &error));
  BackendOptions options = {};
  BatchOptions sizes = {};
  for (int i = 6; i < argc; i++) {
    for (KvType kv : {KV_F32, KV_Q8})
      if (strcmp(argv[i], kv_type_name(kv)) == 0) sizes.kv = kv;
    for (StatesType states : {STATES_BF16, STATES_F16})
      if (argv[i] == std::string("states=") + states_type_name(states)) sizes.states = states;
    if (strcmp(argv[i], "int8") == 0) options.int8_activations = options.copies = true;
    if (strncmp(argv[i], "chunk=", 6) == 0) sizes.chunk = atoi(argv[i] + 6);
    sizes.invariant = sizes.invariant || strcmp(argv[i], "invariant") == 0;
    options.no_graphs = options.no_graphs || strcmp(argv[i], "no-graphs") == 0;
  }
  MUST(backend->load(model, &options, &loaded, &error));
  Records records = {};
  records.n = atoi(argv[3]), records.n_prompt = atoi(argv[4]), records.n_answer = atoi(argv[5]);
  records.ids.resize(records.n_prompt), records.vocab = model->config.vocab_size;
  records.sampler.top_p = records.sampler.repetition_penalty = 1;
  sizes.n_sequences = atoi(argv[2]), sizes.n_ctx = records.n_prompt + records.n_answer;
  size_t free_bytes, all_bytes;
  MUST(cuda_memory_now(&options, &free_bytes, &all_bytes, &error));
  sizes.n_pages = batch_most_pages(&sizes, backend, &model->config, batch_share(backend, free_bytes, false));
  EngineOptions whole = {};
  whole.batch = &sizes;
  MUST(engine_open(backend, loaded, model, &whole, &engine, &error));
  EngineJob job = {};
  job.next = next, job.done = done, job.step = count_step, job.user = &records;
  const double begin = clock_ms();
  MUST(engine_run(engine, &job, &error));
  const double seconds = (clock_ms() - begin) * 1e-3;
  printf("| %d at once | %d records of %d/%d | %.2f s | %.0f answer tokens/s | %.0f rows/s | %d steps of "
         "%.2f ms, "
         "%.0f rows | pages taken back %d times | loaded in %.2f s |\n",
         sizes.n_sequences, records.n_done, records.n_prompt, records.n_answer, seconds,
         (double)records.n_generated / seconds, (double)records.n_rows / seconds, records.n_steps,
         seconds * 1e3 / records.n_steps, (double)records.n_rows / records.n_steps, records.n_taken_back,
         (begin - start) * 1e-3);
  engine_close(engine);
  backend->unload(loaded);
  model_close(model);
  return 0;
}
