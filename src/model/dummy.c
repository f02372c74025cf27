/* dummy.c - a Model from a config.json alone, for measuring speed without weights.
 *
 * Called by: commands/measure/bench.c, commands/ranks/join.c.
 * Always true: kinds, sizes, groups and weight_bytes are what hf_directory.c would find in a checkpoint of
 *              this config whose dense tensors are fp16. Every tensor has its own addresses in one mapping of
 *              PROT_NONE; only model_fill_dummy() makes the mapping readable. place_tensors() runs twice: to
 *              measure, and to place. */
#include <errno.h>
#include <math.h>
#include <string.h>
#include <sys/mman.h>

#include "base/half.h"
#include "model/loaders.h"

/* --- addresses */

enum { ALIGNMENT = 64 }; /* a cache line */

typedef struct {
  unsigned char *base; /* the reserved mapping, or NULL while measuring */
  size_t used;         /* bytes placed so far */
  size_t weight_bytes; /* `used` without padding */
} Arena;

/* Takes n items of `size` bytes. Within the ranges of config.h nothing overflows. */
static const void *place(Arena *arena, size_t n, size_t size) {
  const void *at = arena->base ? arena->base + arena->used : NULL;
  arena->weight_bytes += n * size;
  arena->used += (n * size + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
  return at;
}

static Vector place_vector_of(Arena *arena, Dtype dtype, int n) {
  return (Vector){place(arena, (size_t)n, dtype_bytes(dtype)), dtype, n};
}

static Vector reserve_vector(Arena *arena, int n) {
  return place_vector_of(arena, DTYPE_F16, n);
}

/* Places the arrays of a layer whose form is known. */
static void place_arrays(Arena *arena, Linear *linear) {
  for (int which = 0; which < N_LINEAR_ARRAYS; which++) {
    const LinearArray a = linear_array(linear, which);
    if (a.n_rows > 0) *a.data = place(arena, a.n_rows, a.row);
  }
  if (linear->kind == LINEAR_FP4) linear->scale_values = place(arena, FP4_SCALE_VALUES, sizeof(float));
}

/* Sets the form that model_prepare() gives a quantised layer. */
static Status set_form(const Model *model, const QuantScheme *scheme, Linear *linear, Error *err) {
  linear->bits = scheme->bits;
  linear->group = scheme->group == -1 ? linear->n_in : scheme->group;
  if (scheme->method == QUANT_FP8) {
    linear->kind = LINEAR_FP8;
    linear->block = scheme->block > 0 && scheme->block < linear->n_out ? scheme->block : linear->n_out;
    if (linear->group > linear->n_in) linear->group = linear->n_in;
    return STATUS_OK;
  }
  if (scheme->method > QUANT_FP8) {
    linear->kind = LINEAR_FP4;
    if (linear->n_in % linear->group == 0) return STATUS_OK;
    return error_set(err, STATUS_MODEL, "%s: %s: %d inputs cannot be quantised in groups of %d",
                     model->files->path, linear->name, linear->n_in, linear->group);
  }
  linear->kind = scheme->method == QUANT_INT8 ? LINEAR_INT8 : scheme->bits == 8 ? LINEAR_GROUPED : LINEAR_AWQ;
  if (linear->kind == LINEAR_INT8) return STATUS_OK;
  return check_groups(linear, linear->group, model->files->path, linear->name, err);
}

static void place_dense(Arena *arena, Linear *linear) {
  linear->kind = LINEAR_DENSE;
  linear->dtype = DTYPE_F16;
  place_arrays(arena, linear);
}

static Status reserve_matrix(Arena *arena, const Model *model, Linear *linear, Error *err) {
  QuantScheme scheme;
  TRY(quantization_of(&model->config.quant, linear->name, model->files->path, &scheme, err));
  if (scheme.method == QUANT_NONE) {
    place_dense(arena, linear);
    return STATUS_OK;
  }
  TRY(set_form(model, &scheme, linear, err));
  place_arrays(arena, linear);
  return STATUS_OK;
}

/* Places the stored matrices of a layer: whole[which] becomes the matrix whose first part is linear layer
 * `which`. */
static Status place_stored(Arena *arena, const Model *model, int index, Linear whole[N_LAYER_LINEARS],
                           Error *err) {
  const ModelConfig *config = &model->config;
  for (int which = 0; which < N_LAYER_LINEARS; which++) {
    if (!layer_linear_is_first(config, index, which)) continue;
    const Linear *linear = &model->layers[index].linear[which];
    whole[which] = (Linear){
        .n_in = linear->n_in, .n_out = layer_linear_stored(config, index, which).n_out, .name = linear->name};
    if (layer_device_matrix(config, which) == MATRIX_ROUTER) /* dense whatever the config says */
      place_dense(arena, &whole[which]);
    else
      TRY(reserve_matrix(arena, model, &whole[which], err));
  }
  return STATUS_OK;
}

static Status place_linears(Arena *arena, const Model *model, int index, Error *err) {
  const ModelConfig *config = &model->config;
  const ModelLayer *layer = &model->layers[index];
  Linear whole[N_LAYER_LINEARS];
  TRY(place_stored(arena, model, index, whole, err)); /* first, as a matrix may begin with a later `which` */
  for (int which = 0; which < layer_linear_count(config, index); which++) {
    if (!layer_linear_exists(config, index, which)) continue;
    Linear *linear = layer_linear(layer, which);
    const int n_out = linear->n_out;
    if (which < N_LAYER_LINEARS) {
      const StoredLinear stored = layer_linear_stored(config, index, which);
      *linear = whole[stored.first_part];
      if (n_out < stored.n_out) TRY(linear_cut(linear, stored.first, n_out, model->files->path, err));
    } else {
      *linear = (Linear){.n_in = linear->n_in, .n_out = n_out, .name = linear->name};
      TRY(reserve_matrix(arena, model, linear, err));
    }
    if (layer_linear_needs_bias(config, index, which)) linear->bias = reserve_vector(arena, n_out);
  }
  return STATUS_OK;
}

static Status place_layer(Arena *arena, Model *model, int index, Error *err) {
  ModelLayer *layer = &model->layers[index];
  TRY(place_linears(arena, model, index, err));
  if (layer->key_heads)
    TRY(latent_heads_place(model, index, place(arena, latent_heads_bytes(model, index), 1), err));
  for (int which = 0; which < N_LAYER_VECTORS; which++) {
    const StoredVector stored = layer_vector_stored(&model->config, index, which);
    const int n = stored.n * (stored.taps ? stored.taps : 1);
    if (stored.name) layer->vector[which] = place_vector_of(arena, stored.usually, n);
    if (stored.name && layer_vector_is_made(&model->config, which)) model->made_bytes += 2 * (size_t)n;
  }
  return STATUS_OK;
}

/* Places model->vector and model->linear, except the head. */
static Status place_own(Arena *arena, Model *model, Error *err) {
  for (int which = 0; which < N_MODEL_VECTORS; which++) {
    const int n = model_vector_size(&model->config, which);
    if (n > 0) model->vector[which] = reserve_vector(arena, n);
    if (model_vector_is_made(&model->config, which)) model->made_bytes += 2 * (size_t)n;
  }
  for (int which = MODEL_HEAD + 1; which < N_MODEL_LINEARS; which++)
    if (model->linear[which].n_out > 0) TRY(reserve_matrix(arena, model, &model->linear[which], err));
  return STATUS_OK;
}

/* Places tables of n-grams, each as one tensor. */
static Status place_ngrams(Arena *arena, Model *model, Error *err) {
  const ModelConfig *config = &model->config;
  model->table_bytes = 0;
  if (config->streams.n == 0) return STATUS_OK;
  if (!model->files->ngram_shards)
    TRY(NEW(model->files->ngram_shards, (size_t)config->n_layers, "tables of n-grams", err));
  for (int i = 0; i < config->n_layers; i++) {
    if (!config_layer(config, i).ngrams) continue;
    const int n_rows = (int)ngram_rows(config, i), n_columns = ngram_columns(&config->ngrams);
    NgramShard *table = &model->files->ngram_shards[i];
    table->rows = (Matrix){place(arena, (size_t)n_rows * (size_t)n_columns, 2), DTYPE_F16, n_rows, n_columns};
    model->layers[i].shards = table;
    model->layers[i].n_shards = 1;
    model->table_bytes += (size_t)n_rows * (size_t)n_columns * 2;
  }
  return STATUS_OK;
}

static Status place_tensors(Arena *arena, Model *model, Error *err) {
  const ModelConfig *config = &model->config;
  model->made_bytes = 0; /* will be the bytes of norms without weights and of key_heads */
  const size_t cells = (size_t)config->vocab_size * (size_t)config->hidden;
  for (int which = 0; which < N_MODEL_TABLES; which++) {
    const StoredTable table = model_table_stored(config, which);
    const size_t n = (size_t)table.n_rows * (size_t)table.n_columns;
    if (n > 0) model->table[which] = (Matrix){place(arena, n, 2), DTYPE_F16, table.n_rows, table.n_columns};
  }
  model->embedding.n_rows = config->vocab_size;
  for (int i = 0; i < config->n_layers; i++) TRY(place_layer(arena, model, i, err));
  TRY(place_own(arena, model, err));
  TRY(place_ngrams(arena, model, err));
  const void *head = config->tied_embeddings ? NULL : place(arena, cells, 2);
  model_set_head(model, "lm_head", head, DTYPE_F16);
  if (config->head_bias) model->head.bias = reserve_vector(arena, config->vocab_size);
  for (int i = 0; i < config->n_layers; i++) model->made_bytes += latent_heads_bytes(model, i);
  model->weight_bytes = arena->weight_bytes - model->made_bytes;
  return STATUS_OK;
}

/* Reserves addresses without memory: a read by mistake raises SIGSEGV. */
static Status reserve(Model *model, size_t bytes, Error *err) {
  void *base = mmap(NULL, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (base == MAP_FAILED)
    return error_set(err, STATUS_FAILED, "%s: cannot reserve %zu bytes of addresses: %s", model->files->path,
                     bytes, strerror(errno));
  model->files->reserved = base;
  model->files->reserved_bytes = bytes;
  return STATUS_OK;
}

static Status read_config(const char *path, ModelConfig *config, Error *err) {
  if (file_is_directory(path)) return config_load(path, config, err);
  OWNED(file_unmap) MappedFile file = {0};
  TRY(file_map(path, STATUS_MODEL, &file, err));
  return config_parse(path, (const char *)file.data, file.size, config, err);
}

Status model_open_dummy(const char *path, Model **out, Error *err) {
  TRY(model_make(path, out, err));
  Model *model = *out;
  model->dummy = true;
  model->layout = LAYOUT_HF_DIRECTORY;
  model->theta_source = model->eps_source = "config.json";
  TRY(read_config(path, &model->config, err));
  if (model->config.fused == FUSES_QKV_HEADS) model->config.fused = FUSES_QKV;
  if (model->config.delta.form == DELTA_INTERLEAVED)
    model->config.delta.form = DELTA_AS_ONE; /* as model_prepare() leaves it, like the factors below */
  model->config.delta.q_scale = model->config.delta.k_scale = model->config.delta.v_scale = 1;
  const char *body = model->config.names.body;
  TRY(model_make_layers(model, body ? body : "model.", err));
  TRY(latent_heads_open(model, err));
  Arena arena = {0};
  TRY(place_tensors(&arena, model, err));
  TRY(reserve(model, arena.used, err));
  arena = (Arena){.base = model->files->reserved};
  return place_tensors(&arena, model, err);
}

/* --- random weights
 *
 * Activations stay finite through any number of layers, and logits differ: the output of a linear layer has
 * about its input's variance, norms multiply by 1. */

/* splitmix64 (Vigna, public domain). */
static uint64_t next_random(uint64_t *random) {
  uint64_t z = *random += 0x9e3779b97f4a7c15u;
  z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
  z = (z ^ z >> 27) * 0x94d049bb133111ebu;
  return z ^ z >> 31;
}

/* Fills a tensor with random bytes, rounded up to whole words: place() aligns and pads it to ALIGNMENT. */
static void fill_bytes(const void *place, size_t bytes, uint64_t *random) {
  uint64_t *words = (uint64_t *)place;
  for (size_t i = 0; i < (bytes + 7) / 8; i++) words[i] = next_random(random);
}

/* Fills n fp16 numbers, uniform in [low, high) in 65,536 steps. */
static void fill_halves(const void *place, size_t n, float low, float high, uint64_t *random) {
  uint16_t *halves = (uint16_t *)place;
  for (size_t i = 0; i < n; i += 4) {
    uint64_t bits = next_random(random);
    for (size_t j = i; j < n && j < i + 4; j++, bits >>= 16)
      halves[j] = float_to_f16(low + (high - low) * (float)(bits & 0xffff) * 0x1p-16f);
  }
}

/* Fills a vector of F16 or F32, if there is one, uniform in [low, high). */
static void fill_vector(const Vector *vector, float low, float high, uint64_t *random) {
  if (!vector->data) return;
  if (vector->dtype == DTYPE_F16) {
    fill_halves(vector->data, (size_t)vector->n, low, high, random);
    return;
  }
  float *floats = (float *)vector->data;
  for (int i = 0; i < vector->n; i++)
    floats[i] = low + (high - low) * (float)(next_random(random) & 0xffff) * 0x1p-16f;
}

/* Fills n fp32 numbers, uniform within 10% of `middle`. */
static void fill_floats(const void *place, size_t n, float middle, uint64_t *random) {
  float *floats = (float *)place;
  for (size_t i = 0; i < n; i++)
    floats[i] = middle * (0.9f + 0.2f * (float)(next_random(random) & 0xffff) * 0x1p-16f);
}

/* Variance of the difference of two independent numbers, uniform in 0 .. 2^bits - 1: 42.5 for 4 bits. */
static float variance(int bits) {
  const float n = (float)(1 << bits);
  return (n * n - 1) / 6;
}

/* The scale that makes the weights' mean square 1 / n_in. The mean square is 8.6 for E2M1's numbers, and
 * 1.15e4 for E4M3's with 448 in place of NaN (fill_quantised()). */
static float scale_for(const Linear *linear) {
  const float square = linear->kind == LINEAR_FP8    ? 1.15e4f
                       : linear->kind == LINEAR_FP4  ? 8.6f
                       : linear->kind == LINEAR_INT8 ? variance(8) / 2
                                                     : variance(linear->bits);
  return 1 / sqrtf(square * (float)linear->n_in);
}

/* Dense weights are uniform in [-a, a), with variance a^2 / 3. */
static void fill_dense(const Linear *linear, uint64_t *random) {
  const float most = sqrtf(3 / (float)linear->n_in);
  fill_halves(linear->weight, (size_t)linear->n_in * (size_t)linear->n_out, -most, most, random);
}

static void fill_quantised(const Linear *linear, uint64_t *random) {
  const float scale = scale_for(linear);
  for (int which = 0; which < N_LINEAR_ARRAYS; which++) {
    const LinearArray a = linear_array(linear, which);
    const size_t bytes = a.n_rows * a.step;
    if (which != LINEAR_SCALES || a.bits == 8)
      fill_bytes(*a.data, bytes, random);
    else if (a.bits == 16)
      fill_halves(*a.data, bytes / 2, 0.9f * scale, 1.1f * scale, random);
    else
      fill_floats(*a.data, bytes / 4, scale, random);
    uint8_t *codes = (uint8_t *)*a.data;
    for (size_t i = 0; linear->kind == LINEAR_FP8 && which == LINEAR_WEIGHTS && i < bytes; i++)
      codes[i] &= (codes[i] & 0x7f) == 0x7f ? 0xfe : 0xff; /* no NaN */
  }
  if (linear->kind == LINEAR_FP4) fill_floats(linear->scale_values, FP4_SCALE_VALUES, scale, random);
}

static void fill_matrix(const Linear *linear, uint64_t *random) {
  if (linear->kind == LINEAR_DENSE)
    fill_dense(linear, random);
  else
    fill_quantised(linear, random);
}

/* If several linear layers share one quantised matrix (skip > 0), the first fills all of it. */
static void fill_linears(const ModelConfig *config, int index, const ModelLayer *layer, uint64_t *random) {
  for (int which = 0; which < layer_linear_count(config, index); which++) {
    const Linear *linear = layer_linear(layer, which);
    if (!layer_linear_exists(config, index, which)) continue;
    if (!linear->skip || layer_linear_is_first(config, index, which)) fill_matrix(linear, random);
    fill_vector(&linear->bias, -0.1f, 0.1f, random);
  }
}

Status model_fill_dummy(const Model *model, Error *err) {
  const ModelConfig *config = &model->config;
  if (mprotect(model->files->reserved, model->files->reserved_bytes, PROT_READ | PROT_WRITE) != 0)
    return error_set(err, STATUS_FAILED, "%s: no memory for %zu bytes of random weights: %s",
                     model->files->path, model->weight_bytes, strerror(errno));
  uint64_t random = 1;
  for (int i = 0; i < config->n_layers; i++) {
    const ModelLayer *layer = &model->layers[i];
    for (int which = 0; which < N_LAYER_VECTORS; which++) {
      const float plus = layer_vector_plus(config, which);
      const VectorRange range = layer_vector_range(which);
      fill_vector(&layer->vector[which], range.low - plus, range.high - plus, &random);
    }
    fill_linears(config, i, layer, &random);
    for (int h = 0; layer->key_heads && h < config->n_heads; h++) fill_matrix(&layer->key_heads[h], &random);
  }
  for (int which = 0; which < N_MODEL_VECTORS; which++) {
    const float plus = model_vector_plus(config, which);
    const VectorRange range = model_vector_range(which);
    fill_vector(&model->vector[which], range.low - plus, range.high - plus, &random);
  }
  for (int which = MODEL_HEAD + 1; which < N_MODEL_LINEARS; which++)
    if (model->linear[which].n_out > 0) fill_matrix(&model->linear[which], &random);
  const Matrix *inputs = &model->input_table;
  fill_halves(inputs->data, (size_t)inputs->n_rows * (size_t)inputs->n_columns, -1, 1, &random);
  for (int i = 0; i < config->n_layers; i++) {
    if (model->layers[i].n_shards == 0) continue;
    const Matrix *table = &model->layers[i].shards->rows;
    /* The rest stays zeros, whose pages take no memory: a table may be larger than the machine's memory. */
    const size_t numbers = (size_t)table->n_rows * (size_t)table->n_columns, most = (size_t)1 << 24;
    fill_halves(table->data, numbers < most ? numbers : most, -1, 1, &random);
  }
  fill_matrix(&model->head, &random);
  if (!config->tied_embeddings)
    fill_halves(model->embedding.data, (size_t)config->vocab_size * (size_t)config->hidden, -1, 1, &random);
  return STATUS_OK;
}
