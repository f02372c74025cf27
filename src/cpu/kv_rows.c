/* kv_rows.c - copies keys and values between a session's cache and rows of tokens (backend.h, kv_read).
 *
 * Called by: session.c through cpu_backend.
 * The cache has V in padded rows, and K transposed in blocks of KEY_BLOCK keys (kernels.h):
 *
 *   rows    key 0: [d = 0 .. head_dim]   key 1: ...
 *   cache   block 0: d = 0: [key 0 .. 15]   d = 1: [key 0 .. 15] ...   block 1: ...
 *
 * Numbers are copied and never converted. */
#include <string.h>

#include "cpu/cpu.h"

typedef enum { CACHE_TO_ROWS, ROWS_TO_CACHE } Direction;

/* Copies keys [first, first + n) of one block from or to their rows. Callers pass a constant `size` of a
 * number, so that one instruction copies it. */
static inline void transpose_block(Direction direction, uint8_t *block, size_t first, size_t n, size_t dim,
                                   size_t size, uint8_t *rows) {
  for (size_t d = 0; d < dim; d++) {
    for (size_t key = 0; key < n; key++) {
      uint8_t *in_cache = block + (d * KEY_BLOCK + first + key) * size;
      uint8_t *in_rows = rows + (key * dim + d) * size;
      if (direction == CACHE_TO_ROWS)
        memcpy(in_rows, in_cache, size);
      else
        memcpy(in_cache, in_rows, size);
    }
  }
}

static void copy_keys(Direction direction, const KvHead *kv, TokenRange range, uint8_t *rows) {
  size_t dim = (size_t)kv->head_dim, size = kv->type == KV_F16 ? 2 : 4, row_bytes = dim * size;
  for (size_t at = (size_t)range.pos, end = at + (size_t)range.n_tokens; at < end;) {
    size_t first = at % KEY_BLOCK, n = KEY_BLOCK - first < end - at ? KEY_BLOCK - first : end - at;
    uint8_t *block = (uint8_t *)kv->k + ((size_t)kv_place(kv, (int)at) - first) * row_bytes;
    if (size == 2)
      transpose_block(direction, block, first, n, dim, 2, rows);
    else
      transpose_block(direction, block, first, n, dim, 4, rows);
    at += n;
    rows += n * row_bytes;
  }
}

static void copy_values(Direction direction, const KvHead *kv, TokenRange range, uint8_t *rows) {
  size_t size = kv->type == KV_F16 ? 2 : 4, row_bytes = (size_t)kv->head_dim * size,
         width = (size_t)kv->v_width * size;
  for (size_t i = 0; i < (size_t)range.n_tokens; i++) {
    uint8_t *value = (uint8_t *)kv->v + (size_t)kv_place(kv, range.pos + (int)i) * width;
    if (direction == CACHE_TO_ROWS)
      memcpy(rows + i * row_bytes, value, row_bytes);
    else
      memcpy(value, rows + i * row_bytes, row_bytes);
  }
}

/* `bytes` holds n_stored tokens; the first range.n_tokens of them are copied. */
static void move(Direction direction, BackendState *state, TokenRange range, int layer, int n_stored,
                 uint8_t *bytes) {
  const LayerConfig own = config_layer(&state->loaded->model->config, layer);
  size_t head_bytes = (size_t)n_stored * (size_t)own.head_dim * (state->options.kv == KV_F16 ? 2 : 4);
  for (int i = 0; i < own.n_kv_heads; i++) {
    KvHead kv = state_kv_head(state, 0, layer, i);
    copy_keys(direction, &kv, range, bytes + (size_t)i * head_bytes);
    copy_values(direction, &kv, range, bytes + (size_t)(own.n_kv_heads + i) * head_bytes);
  }
}

Status kv_rows_read(BackendState *state, TokenRange range, int layer, void *out, Error *err) {
  (void)err;
  move(CACHE_TO_ROWS, state, range, layer, range.n_tokens, out);
  return STATUS_OK;
}

/* `from` is only read. */
Status kv_rows_write(BackendState *state, TokenRange range, int layer, int n_stored, const void *from,
                     Error *err) {
  (void)err;
  move(ROWS_TO_CACHE, state, range, layer, n_stored, (uint8_t *)from);
  return STATUS_OK;
}
