/* kernels_attention.h - softmax(q K) V over one segment of the KV cache, for the queries of one KV head.
 *
 * Part of kernels.c. Two matmuls of outer.h with a softmax between them, over the whole segment at once: 256
 * scores per query fit into the L1 cache, so nothing is rescaled inside a segment. Keys that a query of the
 * tile may not attend to get probability 0, which leaves sums unchanged. */
#pragma once

#include "cpu/outer.h"

enum { KV_AHEAD = 8192 }; /* bytes of K or V between prefetch and use */

/* Converts n floats to fp16, rounded to nearest even. */
INLINE void to_f16(const float *from, int n, uint16_t *to) {
  int i = 0;
  for (; i + LANES <= n; i += LANES) vf_store_f16(to + i, vf_load(from + i));
  for (; i < n; i++) to[i] = float_to_f16(from[i]);
}

/* q[i] = x[i] / scale rounded to nearest even. Returns the scale in fp16, NaN if a number is not finite. The
 * scale is the largest |x| / 127, rounded up to 7 significant bits: no q is larger than 127. All instruction
 * sets give the same numbers. */
INLINE uint16_t to_q8(const float *x, int n, int8_t *q) {
  float largest = 0, strange = 0;
  for (int i = 0; i < n; i++) {
    const float size = fabsf(x[i]);
    largest = size > largest ? size : largest;
    strange += x[i] - x[i];
  }
  const float wanted = strange == 0 ? largest / 127 : NAN;
  uint16_t half = float_to_f16(wanted);
  if (f16_to_float(half) < wanted) half++;
  if (strange == 0) half = (uint16_t)((half + 15) & ~15);
  const float scale = f16_to_float(half);
  for (int i = 0; i < n; i++) q[i] = scale > 0 ? (int8_t)((x[i] / scale + 0x1.8p23f) - 0x1.8p23f) : 0;
  return half;
}

/* The index in k_scales of the first scale of a key; its next scales are KEY_BLOCK apart. */
INLINE size_t kv_scale_at(const KvHead *kv, int place) {
  const size_t n_scales = (size_t)kv_key_scales(kv->type, kv->head_dim);
  return (size_t)(place / KEY_BLOCK) * n_scales * KEY_BLOCK + (size_t)(place % KEY_BLOCK);
}

static void kv_append(const KvHead *kv, int position, const float *k, const float *v) {
  position = kv_place(kv, position);
  size_t dim = (size_t)kv->head_dim, row = (size_t)position * (size_t)kv->v_width;
  size_t column = (size_t)(position / KEY_BLOCK) * dim * KEY_BLOCK + (size_t)(position % KEY_BLOCK);
  if (kv->type == KV_F32) {
    float *keys = (float *)kv->k + column;
    for (size_t d = 0; d < dim; d++) keys[d * KEY_BLOCK] = k[d];
    memcpy((float *)kv->v + row, v, dim * sizeof *v);
  } else if (kv->type == KV_Q8) {
    int8_t *keys = (int8_t *)kv->k + column, q[MAX_HEAD_ROW];
    const int n = kv->head_dim, n_scales = kv_key_scales(kv->type, n);
    uint16_t *scales = kv->k_scales + kv_scale_at(kv, position);
    for (int i = 0, d = 0; i < n_scales; i++, d += KEY_SCALE_DIMS)
      scales[i * KEY_BLOCK] = to_q8(k + d, n - d < KEY_SCALE_DIMS ? n - d : KEY_SCALE_DIMS, q + d);
    for (size_t d = 0; d < dim; d++) keys[d * KEY_BLOCK] = q[d];
    kv->v_scales[position] = to_q8(v, kv->head_dim, (int8_t *)kv->v + row);
  } else {
    uint16_t *keys = (uint16_t *)kv->k + column, half[MAX_HEAD_ROW];
    to_f16(k, kv->head_dim, half);
    for (size_t d = 0; d < dim; d++) keys[d * KEY_BLOCK] = half[d];
    to_f16(v, kv->head_dim, (uint16_t *)kv->v + row);
  }
}

/* rows[i][j] *= scales[j], j < n */
INLINE void scale_rows(const uint16_t *scales, int n_rows, int n, float *rows) {
  for (int i = 0; i < n_rows; i++, rows += SEGMENT) {
    int j = 0;
    for (; j + LANES <= n; j += LANES) vf_store(rows + j, vf_load(rows + j) * vf_load_f16(scales + j));
    for (; j < n; j++) rows[j] *= f16_to_float(scales[j]);
  }
}

/* sums[i][key] = q[i] k[key] over dimensions [first, first + n_dims), for n keys from `place` on; n and place
 * are multiples of KEY_BLOCK. */
INLINE void attend_run_dims(const KvHead *kv, const QueryTile *tile, int place, int n, int first, int n_dims,
                            float *sums) {
  size_t block = (size_t)kv->head_dim * KEY_BLOCK, size = kv_number_bytes(kv->type);
  size_t at = (size_t)(place / KEY_BLOCK) * block + (size_t)first * KEY_BLOCK;
  OuterB b = {.data = (const uint8_t *)kv->k + at * size,
              .type = kv->type,
              .step = KEY_BLOCK,
              .across = LANES == KEY_BLOCK ? block : LANES,
              .ahead = KV_AHEAD,
              .ahead_step = TILE_VECTORS * LANES * size};
  size_t dim = (size_t)kv->head_dim;
#if LANES == 16
  outer_matmul(tile->q + first, dim, tile->n, b, n / KEY_BLOCK, n_dims,
               (OuterC){.to = sums, .stride = SEGMENT});
#else
  for (int key = 0; key < n; key += KEY_BLOCK) {
    outer_matmul(tile->q + first, dim, tile->n, b, KEY_BLOCK / LANES, n_dims,
                 (OuterC){.to = sums + key, .stride = SEGMENT});
    b.data = (const uint8_t *)b.data + block * size;
  }
#endif
}

/* scores[i][key] = attend_run_dims() over all dimensions. With KV_Q8 it adds, for each scale, the
 * scale times the sum over the scale's dimensions. */
INLINE void attend_run_scores(const KvHead *kv, const QueryTile *tile, int place, int n, float *scores) {
  const int n_scales = kv_key_scales(kv->type, kv->head_dim);
  float sums[MAX_QUERIES * SEGMENT] __attribute__((aligned(64)));
  if (n_scales == 0) attend_run_dims(kv, tile, place, n, 0, kv->head_dim, scores);
  for (int s = 0, first = 0; s < n_scales; s++, first += KEY_SCALE_DIMS) {
    const int left = kv->head_dim - first;
    attend_run_dims(kv, tile, place, n, first, left < KEY_SCALE_DIMS ? left : KEY_SCALE_DIMS, sums);
    for (int i = 0; i < tile->n; i++) {
      for (int key = 0; key < n; key += LANES) {
        const uint16_t *scales = kv->k_scales + kv_scale_at(kv, place + key) + s * KEY_BLOCK;
        const vf product = vf_load(sums + i * SEGMENT + key) * vf_load_f16(scales);
        float *score = scores + i * SEGMENT + key;
        vf_store(score, s ? vf_load(score) + product : product);
      }
    }
  }
}

/* scores[i][position - begin] for positions [begin, end), both multiples of KEY_BLOCK. */
INLINE void attend_scores(const KvHead *kv, const QueryTile *tile, int begin, int end, float *scores) {
  for (int at = begin, next; at < end; at = next) {
    next = kv_run_end(kv, at, end);
    attend_run_scores(kv, tile, kv_place(kv, at), next - at, scores + at - begin);
  }
}

/* out[i] = sum over positions [begin, end) of p[i][position - begin] v. The chain of sums continues across
 * the cache's runs of pages, so that pages change no bit. With KV_Q8 p is first multiplied by the scales of
 * V. */
INLINE void attend_values(const KvHead *kv, const QueryTile *tile, int begin, int end, float *p, float *out) {
  size_t width = (size_t)kv->v_width, size = kv_number_bytes(kv->type);
  for (int at = begin, next; at < end; at = next) {
    next = kv_run_end(kv, at, end);
    OuterB b = {.data = (const uint8_t *)kv->v + (size_t)kv_place(kv, at) * width * size,
                .type = kv->type,
                .step = width,
                .across = LANES,
                .ahead = (KV_AHEAD / (width * size) + 1) * width * size,
                .ahead_step = width * size};
    if (kv->type == KV_Q8) scale_rows(kv->v_scales + kv_place(kv, at), tile->n, next - at, p + at - begin);
    outer_matmul(p + at - begin, SEGMENT, tile->n, b, kv->v_width / LANES, next - at,
                 (OuterC){.from = at > begin ? out : NULL, .from_stride = width, .to = out, .stride = width});
  }
}

/* scores[i] = e^(score - max) for low <= i < high, else 0; scores are capped first unless cap is 0. PRECOND
 * low < high, n % LANES == 0 */
INLINE void attend_softmax(float *scores, int n, int low, int high, float cap, SoftmaxSum *sum) {
  for (int i = 0; cap != 0 && i < n; i += LANES)
    vf_store(scores + i, vf_tanh(vf_load(scores + i) / cap) * cap);
  for (int i = 0; i < low; i++) scores[i] = -INFINITY;
  for (int i = high; i < n; i++) scores[i] = -INFINITY;
  vf largest = vf_set(-INFINITY), total = {0};
  for (int i = 0; i < n; i += LANES) largest = vf_max(vf_load(scores + i), largest);
  sum->max = vf_largest(largest);
  for (int i = 0; i < n; i += LANES) {
    vf p = vf_exp(vf_load(scores + i) - sum->max);
    total += p;
    vf_store(scores + i, p);
  }
  sum->sum = vf_sum(total);
}

static void attend_segment(const KvHead *kv, int segment, const QueryTile *tile, SoftmaxSum *sums,
                           float *out) {
  float scores[MAX_QUERIES * SEGMENT] __attribute__((aligned(64)));
  int start = segment * SEGMENT, begin = start + SEGMENT, end = start;
  for (int i = 0; i < tile->n; i++) {
    if (tile->low[i] < begin) begin = tile->low[i];
    if (tile->high[i] >= end) end = tile->high[i] + 1;
  }
  if (begin < start) begin = start;
  if (end > start + SEGMENT) end = start + SEGMENT;
  int from = begin / KEY_BLOCK * KEY_BLOCK, to = (end + KEY_BLOCK - 1) / KEY_BLOCK * KEY_BLOCK;
  attend_scores(kv, tile, from, to, scores);
  for (int i = 0; i < tile->n; i++) {
    int low = tile->low[i] > from ? tile->low[i] - from : 0;
    int high = tile->high[i] < end ? tile->high[i] + 1 - from : end - from;
    if (low < high) {
      attend_softmax(scores + i * SEGMENT, to - from, low, high, tile->cap, &sums[i]);
    } else {
      memset(scores + i * SEGMENT, 0, (size_t)(to - from) * sizeof *scores);
      sums[i].sum = 0;
    }
  }
  /* Stops at the last key: V may hold NaN after it, and 0 times NaN is not 0. */
  attend_values(kv, tile, begin, end, scores + begin - from, out);
}

INLINE float exp_of(float x) {
  float lane[LANES];
  vf_store(lane, vf_exp(vf_set(x)));
  return lane[0];
}

static void softmax_merge(SoftmaxSum *sum, float *out, SoftmaxSum later, const float *later_out,
                          int v_width) {
  if (later.sum == 0) return;
  bool first = sum->sum == 0;
  float max = first || later.max > sum->max ? later.max : sum->max;
  float keep = first ? 0 : exp_of(sum->max - max), take = exp_of(later.max - max);
  *sum = (SoftmaxSum){max, sum->sum * keep + later.sum * take};
  for (int d = 0; d < v_width; d += LANES) {
    vf kept = first ? (vf){0} : vf_load(out + d) * keep;
    vf_store(out + d, kept + vf_load(later_out + d) * take);
  }
}
