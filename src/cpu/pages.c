/* pages.c - page tables of several sequences in one KV cache, and copies of pages.
 *
 * Called by: batch.c through cpu_backend.
 * Always true: a page is PAGE_TOKENS consecutive places in every KV head (kernels.h, KvHead): whole blocks of
 *              K and whole rows of V. */
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
  const ModelConfig *config = &state->loaded->model->config;
  const size_t size = kv_number_bytes(state->options.kv);
  for (int layer = 0; layer < config->n_layers; layer++) {
    const LayerConfig own = config_layer(config, layer);
    for (int i = 0; config_kv_numbers(config, layer) > 0 && i < own.n_cache_heads; i++) {
      const KvHead kv = state_kv_head(state, 0, layer, i);
      copy_bytes(kv.k, PAGE_TOKENS * (size_t)kv.head_dim * size, from, to);
      copy_bytes(kv.v, PAGE_TOKENS * (size_t)kv.v_width * size, from, to);
      if (kv.type != KV_Q8) continue;
      copy_bytes(kv.k_scales, PAGE_TOKENS * (size_t)kv_key_scales(kv.type, kv.head_dim) * KV_SCALE_BYTES,
                 from, to);
      copy_bytes(kv.v_scales, PAGE_TOKENS * KV_SCALE_BYTES, from, to);
    }
  }
  return STATUS_OK;
}
