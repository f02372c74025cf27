/* pages.c - several sequences of one cache: their page tables, copies of pages, a pick for each.
 *
 * Called by: batch.c through cpu_backend.
 * Always true: the places of a page are PAGE_TOKENS consecutive ones of every KV head (kernels.h, KvHead), so
 *              that a page is whole blocks of K and whole rows of V. */
#include <string.h>

#include "cpu/cpu.h"

Status cpu_set_pages(BackendState *state, int sequence, int first, const int32_t *pages, int n, Error *err) {
  const StatePlan *plan = &state->plan;
  if (sequence < 0 || sequence >= plan->n_sequences || first < 0 || n < 0 || n > plan->n_table - first)
    return error_set(err, STATUS_FAILED,
                     "entries %d to %d of page table %d, expected %d entries of %d tables", first,
                     first + n - 1, sequence, plan->n_table, plan->n_sequences);
  memcpy(state->pages + (size_t)sequence * (size_t)plan->n_table + first, pages, (size_t)n * sizeof *pages);
  return STATUS_OK;
}

static void copy_bytes(void *pages, size_t page_bytes, int from, int to) {
  uint8_t *all = pages;
  memcpy(all + (size_t)to * page_bytes, all + (size_t)from * page_bytes, page_bytes);
}

Status cpu_copy_page(BackendState *state, int from, int to, Error *err) {
  (void)err;
  const ModelConfig *config = &state->loaded->model->config;
  const size_t size = kv_number_bytes(state->options.kv);
  for (int layer = 0; layer < config->n_layers; layer++) {
    const LayerConfig own = config_layer(config, layer);
    for (int i = 0; config_kv_numbers(config, layer) > 0 && i < own.n_kv_heads; i++) {
      const KvHead kv = state_kv_head(state, 0, layer, i);
      copy_bytes(kv.k, PAGE_TOKENS * (size_t)kv.head_dim * size, from, to);
      copy_bytes(kv.v, PAGE_TOKENS * (size_t)kv.v_width * size, from, to);
      if (kv.type != KV_Q8) continue;
      copy_bytes(kv.k_scales, PAGE_TOKENS * (size_t)kv_key_scales(kv.type, kv.head_dim) * sizeof(float), from,
                 to);
      copy_bytes(kv.v_scales, PAGE_TOKENS * sizeof(float), from, to);
    }
  }
  return STATUS_OK;
}

Status cpu_sample_rows(BackendState *state, Sampler *const *samplers, int n, int32_t *ids, Error *err) {
  const size_t vocab = (size_t)state->loaded->model->config.vocab_size;
  int failed = n; /* the first row that failed */
  if (n > state->n_logit_rows)
    return error_set(err, STATUS_FAILED, "tokens of %d rows were asked for, the last step made logits of %d",
                     n, state->n_logit_rows);
#pragma omp parallel for schedule(dynamic) num_threads(state->loaded->n_threads)
  for (int i = 0; i < n; i++) {
    Error own = {{0}};
    if (!samplers[i] || !sampler_pick(samplers[i], state->logits + (size_t)i * vocab, &ids[i], &own))
      continue;
#pragma omp critical
    if (i < failed) {
      failed = i;
      if (err) *err = own;
    }
  }
  return failed < n ? STATUS_FAILED : STATUS_OK;
}
