/* kv_rows.c - finds the cache of a KV head, and copies keys and values between a session's cache and rows of
 * tokens (backend.h, kv_copy).
 *
 * Called by: session.c and quantize/calibration.c through cpu_backend; state_kv_head() by the files that use
 * the cache. The cache has V in padded rows, and K transposed in blocks of KEY_BLOCK keys (kernels.h):
 *
 *   rows    key 0: [d = 0 .. head_dim - 1]   key 1: ...
 *   cache   block 0: d = 0: [key 0 .. 15]   d = 1: [key 0 .. 15] ...   block 1: ...
 *
 * Numbers are copied and never converted. */
#include <string.h>

#include "cpu/cpu.h"

KvHead state_kv_head(const BackendState *state, int sequence, int layer, int kv_head) {
  const LayerCache *cache = &state->kv[layer];
  uint8_t *k = cache->heads + (size_t)kv_head * cache->head_bytes;
  const int32_t *pages = state->pages;
  if (pages) pages += (size_t)sequence * (size_t)state->plan.n_table;
  return (KvHead){.type = state->options.kv,
                  .head_dim = cache->head_dim,
                  .v_width = cache->v_width,
                  .k = k,
                  .v = k + cache->k_bytes,
                  .k_scales = (uint16_t *)(void *)(k + cache->scales),
                  .v_scales = (uint16_t *)(void *)(k + cache->scales + cache->scales_bytes),
                  .pages = pages};
}

static void copy(CopyDirection direction, void *in_cache, void *in_rows, size_t n) {
  if (direction == TO_HOST)
    memcpy(in_rows, in_cache, n);
  else
    memcpy(in_cache, in_rows, n);
}

/* Copies keys [first, first + n) of one block from or to rows that are `step` bytes apart. Callers pass
 * `size`, the bytes of a number, as a constant, so that one instruction copies a number. */
static inline void transpose_block(CopyDirection direction, uint8_t *block, size_t first, size_t n,
                                   size_t dim, size_t size, uint8_t *rows, size_t step) {
  for (size_t d = 0; d < dim; d++) {
    for (size_t key = 0; key < n; key++)
      copy(direction, block + (d * KEY_BLOCK + first + key) * size, rows + key * step + d * size, size);
  }
}

/* Copies the scales of a range of keys; rows hold kv_key_scales() scales for each key. */
static void copy_key_scales(CopyDirection direction, const KvHead *kv, TokenRange range, uint8_t *rows) {
  const size_t n = (size_t)kv_key_scales(kv->type, kv->head_dim);
  for (int i = 0; i < range.n_tokens; i++, rows += n * KV_SCALE_BYTES) {
    const size_t place = (size_t)kv_place(kv, range.pos + i);
    uint16_t *scales = kv->k_scales + place / KEY_BLOCK * n * KEY_BLOCK + place % KEY_BLOCK;
    for (size_t s = 0; s < n; s++)
      copy(direction, &scales[s * KEY_BLOCK], rows + s * KV_SCALE_BYTES, KV_SCALE_BYTES);
  }
}

static void copy_keys(CopyDirection direction, const KvHead *kv, TokenRange range, uint8_t *rows) {
  const size_t dim = (size_t)kv->head_dim, size = kv_number_bytes(kv->type), step = dim * size;
  for (size_t at = (size_t)range.pos, end = at + (size_t)range.n_tokens; at < end;) {
    size_t first = at % KEY_BLOCK, n = KEY_BLOCK - first < end - at ? KEY_BLOCK - first : end - at;
    uint8_t *block = (uint8_t *)kv->k + ((size_t)kv_place(kv, (int)at) - first) * dim * size;
    switch (size) {
    case 1: transpose_block(direction, block, first, n, dim, 1, rows, step); break;
    case 2: transpose_block(direction, block, first, n, dim, 2, rows, step); break;
    default: transpose_block(direction, block, first, n, dim, 4, rows, step); break;
    }
    at += n;
    rows += n * step;
  }
}

/* Copies a range of values, and their scales if `scales` is not NULL. */
static void copy_values(CopyDirection direction, const KvHead *kv, TokenRange range, uint8_t *rows,
                        uint8_t *scales) {
  const size_t row = (size_t)kv->head_dim * kv_number_bytes(kv->type),
               width = (size_t)kv->v_width * kv_number_bytes(kv->type);
  for (int i = 0; i < range.n_tokens; i++, rows += row) {
    const size_t place = (size_t)kv_place(kv, range.pos + i);
    copy(direction, (uint8_t *)kv->v + place * width, rows, row);
    if (scales) copy(direction, &kv->v_scales[place], scales + (size_t)i * KV_SCALE_BYTES, KV_SCALE_BYTES);
  }
}

Status kv_rows_copy(BackendState *state, CopyDirection direction, TokenRange range, int layer, int n_stored,
                    void *host, Error *err) {
  const LayerConfig own = config_layer(&state->loaded->model->config, layer);
  const KvType type = state->options.kv;
  const size_t n = (size_t)n_stored, heads = (size_t)own.n_cache_heads,
               numbers = n * (size_t)own.head_dim * kv_number_bytes(type),
               k_scales = n * kv_key_bytes(type, own.head_dim) - numbers,
               v_scales = n * kv_value_bytes(type, own.head_dim) - numbers;
  uint8_t *keys = host, *of_keys = keys + heads * numbers, *values = of_keys + heads * k_scales,
          *of_values = values + heads * numbers;
  for (size_t i = 0; i < heads; i++) {
    KvHead kv = state_kv_head(state, 0, layer, (int)i);
    copy_keys(direction, &kv, range, keys + i * numbers);
    if (k_scales) copy_key_scales(direction, &kv, range, of_keys + i * k_scales);
    copy_values(direction, &kv, range, values + i * numbers, v_scales ? of_values + i * v_scales : NULL);
  }
  return STATUS_OK;
}
