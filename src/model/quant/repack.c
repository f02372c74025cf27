/* repack.c - repacks layers into the form of a Linear: quantised ones, and dense ones stored [n_in][n_out].
 *
 * Layers stored in that form stay mapped. Dense weights are transposed. Other weights are copied (AWQ), or
 * transposed in blocks from words along the inputs to words along the outputs. Zero points and scales are
 * converted, and the stored weights' pages dropped. No number changes, but bf16 or fp32 scales may become
 * F16: see fit_f16(). */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/half.h"
#include "model/loaders.h"

#include <omp.h>

typedef struct {
  Model *model;
  int n_threads;
  Error *err;
} Repacker;

void *model_make_memory(Model *model, size_t n, size_t size, const Linear *linear, Error *err) {
  ModelFiles *files = model->files;
  char what[LINEAR_NAME_SIZE + 16];
  snprintf(what, sizeof what, "repacking %s", linear->name);
  if (mem_grow(&files->made, &files->made_capacity, files->n_made + 1, sizeof *files->made, what, err) !=
      STATUS_OK)
    return NULL;
  void *memory = mem_alloc(n, size, what, err);
  if (memory) files->made[files->n_made++] = memory;
  return memory;
}

static void *allocate(const Repacker *r, size_t n, size_t size, const Linear *linear) {
  return model_make_memory(r->model, n, size, linear, r->err);
}

/* --- what needs no repacking */

bool stored_groups_are_canonical(const StoredWeights *stored) {
  if (stored->method == QUANT_NONE) return true; /* a dense layer has no groups */
  return stored->method == QUANT_AWQ && stored->zeros && stored->scales->dtype == DTYPE_F16;
}

static bool is_float(const Linear *linear) {
  return linear->kind == LINEAR_FP8 || linear->kind == LINEAR_FP4;
}

/* A part of a stored AWQ matrix is used in place only if its zero points and scales are, too: Linear.skip
 * holds for all three. */
bool stored_weights_are_canonical(const StoredWeights *stored) {
  const bool whole = stored->n_out == stored->linear->n_out;
  return stored->method == QUANT_INT8 || is_float(stored->linear) ||
         (stored->method == QUANT_AWQ && (whole || stored_groups_are_canonical(stored)));
}

static size_t n_groups(const Linear *linear) {
  return (size_t)(linear->n_in / linear->group);
}

size_t stored_replaced_bytes(const StoredWeights *stored) {
  const Linear *linear = stored->linear;
  if (stored_weights_are_canonical(stored)) return 0;
  const size_t cells = (size_t)linear->n_in * (size_t)linear->n_out;
  return stored->method == QUANT_NONE ? cells * dtype_bytes(linear->dtype) : cells * (size_t)linear->bits / 8;
}

size_t stored_made_bytes(const StoredWeights *stored) {
  const Linear *linear = stored->linear;
  const size_t n_out = (size_t)linear->n_out, bytes = stored_replaced_bytes(stored);
  if (is_float(linear)) return float_scales_made_bytes(stored);
  if (linear->kind == LINEAR_INT8) return n_out * sizeof(float);
  if (stored_groups_are_canonical(stored)) return bytes;
  const size_t groups = n_groups(linear) * n_out;
  return bytes + (linear->bits == 4 ? groups * 5 / 2 : groups * 5);
}

/* --- weights: from words along the inputs to words along the outputs
 *
 * A block is the words of per_word outputs for per_word inputs, a square matrix to transpose; 16 blocks are
 * transposed at a time, block c with the outputs from per_word * c on. order: 0, 2, 4, 6, 1, 3, 5, 7 with
 * 4 bits (AutoAWQ's order in a word), 0, 1, 2, 3 with 8.
 *
 *             block 0                   block 1                ...   block 15
 *     w[0] = (word of output order[0],  of per_word + order[0], ..., of 15 per_word + order[0])
 *     w[1] = (word of output order[1],  ...
 *
 * After transposing, the vector w[k] of 16 words is a part of the row of input k. */

enum {
  LANES = 16,     /* blocks transposed at a time: a word of each, together a cache line */
  TILE_WORDS = 16 /* words of a tile along the inputs: a cache line */
};

typedef uint32_t Lanes __attribute__((vector_size(4 * LANES)));

/* Word (o, i) holds the weights of output o for inputs per_word * i and following, lowest bits first. */
typedef struct {
  const unsigned char *data;
  size_t out_step, in_step; /* bytes */
  const int32_t *out_order; /* StoredWeights.out_order */
} Words;

static inline size_t ordered(const int32_t *order, size_t i) {
  return order ? (size_t)order[i] : i;
}

/* Swaps the bits of *a in mask << shift with the bits of *b in mask. */
static inline void swap_parts(Lanes *a, Lanes *b, int shift, uint32_t mask) {
  Lanes differ = (*a >> shift ^ *b) & mask;
  *b ^= differ;
  *a ^= differ << shift;
}

/* Nibble i of word k becomes nibble k of word i: swaps blocks of 4, 2 and 1 nibbles. */
static inline void transpose_nibbles(Lanes w[8]) {
  for (int k = 0; k < 4; k++) swap_parts(&w[k], &w[k + 4], 16, 0xffff);
  for (int k = 0; k < 8; k += 4) {
    swap_parts(&w[k], &w[k + 2], 8, 0xff00ff);
    swap_parts(&w[k + 1], &w[k + 3], 8, 0xff00ff);
  }
  for (int k = 0; k < 8; k += 2) swap_parts(&w[k], &w[k + 1], 4, 0xf0f0f0f);
}

static inline void transpose_bytes(Lanes w[8]) {
  swap_parts(&w[0], &w[2], 16, 0xffff);
  swap_parts(&w[1], &w[3], 16, 0xffff);
  swap_parts(&w[0], &w[1], 8, 0xff00ff);
  swap_parts(&w[2], &w[3], 8, 0xff00ff);
}

/* Words from row to row of a tile: a cache line and a word, to avoid conflict misses. */
enum { TILE_STEP = TILE_WORDS + 1 };

/* Copies a tile, [outputs][TILE_STEP]: n_out outputs from o on, n_in words from i on. */
static void copy_tile(Words from, size_t o, size_t n_out, size_t i, size_t n_in, uint32_t *tile) {
  const unsigned char *at = from.data + i * from.in_step;
  if (from.in_step == 4) {
    for (size_t k = 0; k < n_out; k++)
      memcpy(tile + k * TILE_STEP, at + ordered(from.out_order, o + k) * from.out_step, n_in * 4);
    return;
  }
  for (size_t j = 0; j < n_in; j++) {
    for (size_t k = 0; k < n_out; k++)
      memcpy(tile + k * TILE_STEP + j, at + ordered(from.out_order, o + k) * from.out_step + j * from.in_step,
             4);
  }
}

/* Transposes word i of every output of a tile into per_word rows, `row` bytes apart. They are the rows from
 * `first` on or, with places, rows places[first] and so on. Words are XORed with `flip`. */
static inline void transpose_word(const int bits, const uint32_t *tile, size_t n_out, size_t i, uint32_t flip,
                                  const int32_t *places, size_t first, unsigned char *to, size_t row) {
  const size_t per_word = (size_t)(32 / bits), blocks = n_out / per_word;
  uint32_t words[8][LANES] = {{0}};
  Lanes w[8];
  for (size_t k = 0; k < per_word; k++) {
    uint32_t *of_k = words[bits == 4 ? awq_nibble(k) : k];
    for (size_t c = 0; c < blocks; c++) of_k[c] = tile[(c * per_word + k) * TILE_STEP + i] ^ flip;
  }
  memcpy(w, words, sizeof w);
  if (bits == 4)
    transpose_nibbles(w);
  else
    transpose_bytes(w);
  for (size_t k = 0; k < per_word; k++) memcpy(to + ordered(places, first + k) * row, &w[k], blocks * 4);
}

/* The layer's packed words: [inputs / per_word][outputs] in GPTQ, else [outputs][inputs / per_word]. */
static Words words_of(const StoredWeights *stored) {
  const size_t per_word = (size_t)(32 / stored->linear->bits);
  const bool gptq = stored->method == QUANT_GPTQ;
  Words words = {.data = stored->weights->data,
                 .out_step = gptq ? 4 : (size_t)stored->linear->n_in / per_word * 4,
                 .in_step = gptq ? (size_t)stored->n_out * 4 : 4,
                 .out_order = stored->out_order};
  words.data += (size_t)stored->first_out * words.out_step;
  return words;
}

static void transpose_weights(const StoredWeights *stored, unsigned char *to, int n_threads) {
  const Linear *linear = stored->linear;
  const Words from = words_of(stored);
  const size_t n_out = (size_t)linear->n_out, per_word = (size_t)(32 / linear->bits);
  const size_t n_words = (size_t)linear->n_in / per_word, row = n_out * (size_t)linear->bits / 8;
  const size_t width = LANES * per_word;                                /* outputs of a tile */
  const uint32_t flip = stored->method == QUANT_BYTES ? 0x80808080 : 0; /* int8 to u8: adds 128 */
#pragma omp parallel for collapse(2) schedule(static) num_threads(n_threads)
  for (size_t band = 0; band < n_words; band += TILE_WORDS) {
    for (size_t o = 0; o < n_out; o += width) {
      uint32_t tile[LANES * 8 * TILE_STEP];
      const size_t outputs = n_out - o < width ? n_out - o : width;
      const size_t words = n_words - band < TILE_WORDS ? n_words - band : TILE_WORDS;
      copy_tile(from, o, outputs, band, words, tile);
      for (size_t i = 0; i < words; i++) {
        unsigned char *column = to + o * (size_t)linear->bits / 8;
        const size_t first = (band + i) * per_word;
        if (linear->bits == 4)
          transpose_word(4, tile, outputs, i, flip, stored->places, first, column, row);
        else
          transpose_word(8, tile, outputs, i, flip, stored->places, first, column, row);
      }
    }
  }
}

/* Copies the layer's outputs from a matrix in AutoAWQ's layout, in whose rows they are contiguous. */
static void copy_columns(const StoredWeights *stored, unsigned char *to) {
  const size_t row = (size_t)stored->linear->n_out / 2, step = (size_t)stored->n_out / 2;
  const unsigned char *from = stored->weights->data + (size_t)stored->first_out / 2;
  for (int i = 0; i < stored->linear->n_in; i++, from += step, to += row) memcpy(to, from, row);
}

/* to[o][i] = the stored [i][first_out + step * o], in blocks of inputs so that cache lines are read once. */
static void transpose_dense(const StoredWeights *stored, unsigned char *to, int n_threads) {
  enum { BLOCK = 64 };
  const Linear *linear = stored->linear;
  const size_t size = dtype_bytes(linear->dtype), n_in = (size_t)linear->n_in, n_out = (size_t)linear->n_out;
  const size_t row = (size_t)stored->n_out * size, step = (size_t)stored->step * size;
  const unsigned char *from = stored->weights->data + (size_t)stored->first_out * size;
#pragma omp parallel for num_threads(n_threads)
  for (size_t first = 0; first < n_in; first += BLOCK) {
    const size_t end = first + BLOCK < n_in ? first + BLOCK : n_in;
    for (size_t o = 0; o < n_out; o++)
      for (size_t i = first; i < end; i++)
        memcpy(to + (o * n_in + i) * size, from + i * row + o * step, size);
  }
}

static void make_weights(const StoredWeights *stored, unsigned char *to, int n_threads) {
  Linear *linear = stored->linear;
  if (stored->method == QUANT_NONE)
    transpose_dense(stored, to, n_threads);
  else if (stored->method == QUANT_AWQ)
    copy_columns(stored, to);
  else
    transpose_weights(stored, to, n_threads);
  if (stored->method == QUANT_NONE)
    linear->weight = to;
  else
    linear->qweight = to;
  file_drop_pages(stored->weights->data, stored->weights->bytes); /* they are not read any more */
}

/* Index of an expert's linear layer in ModelFiles.waiting; -1: `linear` belongs to no expert. */
static ptrdiff_t place_among_experts(const ModelFiles *files, const Linear *linear) {
  const uintptr_t at = (uintptr_t)linear, first = (uintptr_t)files->experts;
  if (at < first || at >= first + files->n_experts * sizeof *files->experts) return -1;
  return (ptrdiff_t)((at - first) / sizeof *linear);
}

/* Repacks a layer's weights. Unless `later` is NULL, an expert's weights are only noted in it. */
static Status take_weights(const Repacker *r, const StoredWeights *stored, LaterWeights *later) {
  if (stored_weights_are_canonical(stored)) return STATUS_OK;
  unsigned char *to = allocate(r, stored_replaced_bytes(stored), 1, stored->linear);
  if (!to) return STATUS_FAILED;
  const ptrdiff_t place = later ? place_among_experts(r->model->files, stored->linear) : -1;
  if (place < 0)
    make_weights(stored, to, r->n_threads);
  else
    later[place] = (LaterWeights){stored, to};
  return STATUS_OK;
}

void model_prepare_expert(const Model *model, const Expert *expert, int n_threads) {
  if (n_threads <= 0) n_threads = omp_get_num_procs();
  LaterWeights *waiting = model->files->waiting;
  if (!waiting) return;
  waiting += (expert - model->files->experts) * N_EXPERT_LINEARS;
  for (int i = 0; i < N_EXPERT_LINEARS; i++) {
    if (waiting[i].stored) make_weights(waiting[i].stored, waiting[i].to, n_threads);
    waiting[i].stored = NULL;
  }
}

/* --- zero points */

/* The zero point of group g of stored output o, as subtracted from q. */
static unsigned zero_point_of(const StoredWeights *stored, size_t g, size_t o) {
  const int bits = stored->linear->bits;
  const size_t per_word = (size_t)(32 / bits), n_out = (size_t)stored->n_out;
  const unsigned mask = (1u << bits) - 1;
  if (!stored->zeros) return 1u << (bits - 1);
  size_t at = g * (n_out / per_word) + o / per_word;
  if (stored->method == QUANT_PACKED) at = o / per_word * n_groups(stored->linear) + g;
  uint32_t word;
  memcpy(&word, stored->zeros->data + at * sizeof word, sizeof word);
  const unsigned place = stored->method == QUANT_AWQ ? awq_nibble(o) : (unsigned)(o % per_word);
  return (word >> (unsigned)bits * place & mask) + stored->zeros_less_one;
}

/* Fills zeros[g][o] and returns the largest, which may exceed 255. */
static unsigned read_zeros(const Repacker *r, const StoredWeights *stored, uint8_t *zeros) {
  const size_t groups = n_groups(stored->linear), n_out = (size_t)stored->linear->n_out;
  unsigned largest = 0;
#pragma omp parallel for reduction(max : largest) num_threads(r->n_threads)
  for (size_t g = 0; g < groups; g++) {
    for (size_t o = 0; o < n_out; o++) {
      unsigned zero = zero_point_of(stored, g, ordered(stored->out_order, o) + (size_t)stored->first_out);
      largest = zero > largest ? zero : largest;
      zeros[g * n_out + o] = (uint8_t)zero;
    }
  }
  return largest;
}

/* --- scales */

/* Fills scales[g][o] from the stored [g][o] or, in compressed-tensors, [o][g]. */
static void read_scales(const Repacker *r, const StoredWeights *stored, float *scales) {
  enum { CHUNK = 64 };
  const StoredTensor *from = stored->scales;
  const size_t groups = n_groups(stored->linear), n_out = (size_t)stored->linear->n_out;
  const size_t first = (size_t)stored->first_out;
  if (stored->method == QUANT_AWQ || stored->method == QUANT_GPTQ) {
#pragma omp parallel for num_threads(r->n_threads)
    for (size_t g = 0; g < groups; g++) {
      const size_t row = g * (size_t)stored->n_out + first;
      for (size_t o = 0; stored->out_order && o < n_out; o++)
        scales[g * n_out + o] = stored_float(from->data, from->dtype, row + (size_t)stored->out_order[o]);
      if (!stored->out_order) floats_read(from->data, from->dtype, row, n_out, scales + g * n_out);
    }
    return;
  }
#pragma omp parallel for num_threads(r->n_threads)
  for (size_t o = 0; o < n_out; o++) {
    for (size_t g = 0; g < groups; g += CHUNK) {
      float some[CHUNK];
      const size_t n = groups - g < CHUNK ? groups - g : CHUNK;
      floats_read(from->data, from->dtype, (first + ordered(stored->out_order, o)) * groups + g, n, some);
      for (size_t i = 0; i < n; i++) scales[(g + i) * n_out + o] = some[i];
    }
  }
}

/* True if the scales may be stored as F16: rounding changes no scale by more than 2^-14 of the largest. F16
 * holds every bf16 number of the normal F16 range exactly. Smaller numbers are rounded to within 2^-25:
 * negligible beside 4-bit weights with a larger scale. */
static bool fit_f16(const Repacker *r, const float *scales, size_t n) {
  float largest = 0, farthest = 0;
#pragma omp parallel for reduction(max : largest, farthest) num_threads(r->n_threads)
  for (size_t i = 0; i < n; i++) {
    float size = fabsf(scales[i]), lost = fabsf(f16_to_float(float_to_f16(scales[i])) - scales[i]);
    largest = size > largest ? size : largest;
    farthest = lost > farthest ? lost : farthest;
  }
  return farthest <= largest * 0x1p-14f;
}

/* --- a layer */

/* Stores zero points and scales in AutoAWQ's layout (`packed`), or as bytes and fp32. */
static Status store_groups(const Repacker *r, Linear *linear, bool packed, const uint8_t *zeros,
                           const float *scales) {
  const size_t n = n_groups(linear) * (size_t)linear->n_out;
  void *to_zeros = allocate(r, packed ? n / 2 : n, 1, linear);
  void *to_scales = to_zeros ? allocate(r, n, packed ? sizeof(uint16_t) : sizeof(float), linear) : NULL;
  if (!to_scales) return STATUS_FAILED;
  linear->kind = packed ? LINEAR_AWQ : LINEAR_GROUPED;
  linear->qzeros = to_zeros;
  linear->scales = to_scales;
  if (!packed) {
    memcpy(to_zeros, zeros, n);
    memcpy(to_scales, scales, n * sizeof *scales);
    return STATUS_OK;
  }
  uint32_t *words = to_zeros;
  uint16_t *halves = to_scales;
#pragma omp parallel for num_threads(r->n_threads)
  for (size_t at = 0; at < n / 8; at++) {
    uint32_t word = 0;
    for (size_t k = 0; k < 8; k++) word |= (uint32_t)zeros[at * 8 + k] << 4 * awq_nibble(k);
    words[at] = word;
    for (size_t k = 0; k < 8; k++) halves[at * 8 + k] = float_to_f16(scales[at * 8 + k]);
  }
  return STATUS_OK;
}

static Status convert_groups(const Repacker *r, const StoredWeights *stored, uint8_t *zeros, float *scales) {
  Linear *linear = stored->linear;
  const unsigned largest = read_zeros(r, stored, zeros);
  if (largest > UINT8_MAX)
    return error_set(
        r->err, STATUS_MODEL,
        "%s: tensor %s: a zero point is %u, expected at most 255: save the model again as gptq_v2",
        stored->zeros->file, stored->zeros->name, largest);
  read_scales(r, stored, scales);
  const bool packed =
      linear->bits == 4 && largest < 16 && fit_f16(r, scales, n_groups(linear) * (size_t)linear->n_out);
  return store_groups(r, linear, packed, zeros, scales);
}

static Status make_groups(const Repacker *r, const StoredWeights *stored) {
  if (stored_groups_are_canonical(stored)) return STATUS_OK;
  const size_t n = n_groups(stored->linear) * (size_t)stored->linear->n_out;
  OWNED(mem_release) uint8_t *zeros = NULL;
  OWNED(mem_release) float *scales = NULL;
  TRY(NEW(zeros, n, "zero points", r->err));
  TRY(NEW(scales, n, "scales", r->err));
  return convert_groups(r, stored, zeros, scales);
}

static Status make_int8_scales(const Repacker *r, const StoredWeights *stored) {
  Linear *linear = stored->linear;
  float *scales = allocate(r, (size_t)linear->n_out, sizeof *scales, linear);
  if (!scales) return STATUS_FAILED;
  read_scales(r, stored, scales);
  linear->scales = scales;
  return STATUS_OK;
}

static Status make_scales(const Repacker *r, const StoredWeights *stored) {
  const StoredTensor *scales = stored->scales;
  if (stored->method == QUANT_NONE) return STATUS_OK;
  if (is_float(stored->linear)) return float_scales_make(r->model, stored, r->n_threads, r->err);
  TRY(check_finite(scales->data, scales->dtype, scales->bytes / dtype_bytes(scales->dtype), r->n_threads,
                   scales->file, scales->name, r->err));
  return stored->linear->kind == LINEAR_INT8 ? make_int8_scales(r, stored) : make_groups(r, stored);
}

/* Checks the scales of a packed file, which needs no repacking. */
static Status check_packed(const Repacker *r) {
  const Model *model = r->model;
  for (int i = 0; i < model->config.n_layers; i++) {
    for (int which = 0; which < N_PACKED_LINEARS; which++) {
      const Linear *linear = layer_linear(&model->layers[i], which);
      char name[LINEAR_NAME_SIZE + 8];
      snprintf(name, sizeof name, "%s.scales", linear->name);
      TRY(check_finite(linear->scales, DTYPE_F16, n_groups(linear) * (size_t)linear->n_out, r->n_threads,
                       model->files->path, name, r->err));
    }
  }
  return STATUS_OK;
}

static Repacker make_repacker(Model *model, int n_threads, Error *err) {
  return (Repacker){model, n_threads > 0 ? n_threads : omp_get_num_procs(), err};
}

Status model_prepare_scales(Model *model, int n_threads, Error *err) {
  const Repacker r = make_repacker(model, n_threads, err);
  ModelFiles *files = model->files;
  if (files->scales_prepared || model->dummy) return STATUS_OK;
  for (size_t i = 0; i < files->n_stored; i++) TRY(make_scales(&r, &files->stored[i]));
  if (model->layout == LAYOUT_AK48) TRY(check_packed(&r));
  files->scales_prepared = true;
  return STATUS_OK;
}

static Status prepare(Model *model, int n_threads, LaterWeights *later, Error *err) {
  const Repacker r = make_repacker(model, n_threads, err);
  ModelFiles *files = model->files;
  TRY(model_prepare_scales(model, n_threads, err));
  if (files->prepared || model->dummy) return STATUS_OK;
  for (size_t i = 0; i < files->n_stored; i++) TRY(take_weights(&r, &files->stored[i], later));
  TRY(key_heads_order(model, r.n_threads, err));
  TRY(latent_heads_make(model, r.n_threads, err));
  TRY(taps_scale(model, err));
  files->prepared = true;
  return STATUS_OK;
}

Status model_prepare(Model *model, int n_threads, Error *err) {
  ModelFiles *files = model->files;
  TRY(prepare(model, n_threads, NULL, err));
  for (size_t i = 0; files->waiting && i < files->n_experts; i++)
    model_prepare_expert(model, &files->experts[i], n_threads);
  return STATUS_OK;
}

Status model_prepare_but_experts(Model *model, int n_threads, Error *err) {
  ModelFiles *files = model->files;
  const size_t n = files->n_experts * N_EXPERT_LINEARS;
  if (n == 0 || files->prepared) return prepare(model, n_threads, NULL, err);
  if (!files->waiting) TRY(NEW(files->waiting, n, "experts", err));
  return prepare(model, n_threads, files->waiting, err);
}
