/* ropes.c - see ropes.h. */
#include "cuda/one/ropes.h"

#include <stdlib.h>

static const RopeConfig *rope_config(const BackendModel *loaded, int which) {
  const ModelConfig *config = &loaded->model->config;
  return which == ROPE_LOCAL ? &config->local_rope : &config->rope;
}

void ropes_place(BackendModel *loaded, DeviceArena *arena) {
  for (int i = 0; i < N_ROPES; i++) {
    loaded->ropes[i].n_pairs = rope_config(loaded, i)->rotary_dim / 2;
    loaded->ropes[i].frequencies = arena_take(arena, (size_t)loaded->ropes[i].n_pairs, sizeof(float));
  }
}

/* Copies the frequencies of all ropes, although most models use one. */
Status ropes_copy(BackendModel *loaded, Error *err) {
  float *host = mem_alloc(MAX_HEAD_DIM / 2, sizeof *host, "rotary frequencies", err);
  Status status = host ? STATUS_OK : STATUS_FAILED;
  for (int i = 0; i < N_ROPES && !status; i++) {
    DeviceRope *rope = &loaded->ropes[i];
    rope_frequencies(rope_config(loaded, i), i == ROPE_OF_LONG_TEXTS, host, &rope->attention_factor);
    status =
        cuda_status(cudaMemcpyAsync((void *)rope->frequencies, host, (size_t)rope->n_pairs * sizeof *host,
                                    cudaMemcpyHostToDevice, loaded->stream),
                    "cannot copy rotary frequencies", err);
    if (!status)
      status = cuda_status(cudaStreamSynchronize(loaded->stream), "cannot copy rotary frequencies", err);
  }
  free(host);
  return status;
}
