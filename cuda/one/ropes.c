/* ropes.c - see ropes.h. */
#include "cuda/one/ropes.h"

static const RopeConfig *rope_config(const BackendModel *loaded, int which) {
  const ModelConfig *config = &loaded->model->config;
  return which == ROPE_LOCAL ? &config->local_rope : &config->rope;
}

void ropes_reserve(BackendModel *loaded, DeviceArena *arena) {
  for (int i = 0; i < N_ROPES; i++) {
    loaded->ropes[i].n_pairs = rope_config(loaded, i)->rotary_dim / 2;
    loaded->ropes[i].frequencies = arena_reserve(arena, (size_t)loaded->ropes[i].n_pairs, sizeof(float));
  }
}

/* Copies the frequencies of all ropes, although most models use one. */
Status ropes_copy(BackendModel *loaded, Error *err) {
  OWNED(mem_release) float *host = NULL;
  TRY(NEW(host, MAX_HEAD_DIM / 2, "rotary frequencies", err));
  for (int i = 0; i < N_ROPES; i++) {
    DeviceRope *rope = &loaded->ropes[i];
    rope_frequencies(rope_config(loaded, i), i == ROPE_OF_LONG_TEXTS, host, &rope->attention_factor);
    TRY(cuda_status(cudaMemcpyAsync((void *)rope->frequencies, host, (size_t)rope->n_pairs * sizeof *host,
                                    cudaMemcpyHostToDevice, loaded->stream),
                    "cannot copy rotary frequencies", err));
    TRY(cuda_status(cudaStreamSynchronize(loaded->stream), "cannot copy rotary frequencies", err));
  }
  return STATUS_OK;
}
