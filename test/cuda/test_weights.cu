/* test_weights.cu - weights.c loads checkpoints of every architecture and layout: every weight, zero point,
 * scale, bias, norm, embedding and frequency has the checkpoint's value, in the place where kernels read it.
 *
 * 4 and 8 bits are compared as fp16, by linear_dequantise(), which test_linear.cu compares with the layout,
 * those of FP8 and FP4 with their factors (same_float()). All other numbers are equal to the bit, as are
 * arrays that pass through the loading buffers (upload.c). Needs a GPU; prints a line per failing matrix and
 * `N passed, N failed`. */
#include <dirent.h>
#include <string.h>

#include <algorithm>
#include <string>
#include <vector>

#include "test/cuda/random_linear.cuh"

extern "C" {
#include "cuda/one/table.h"
#include "cuda/one/upload.h"
#include "cuda/one/weights.h"
#include "model/layers.h"
}

static int passed, failed;
static std::string model_name;

static void expect(bool good, const char *what, const char *of) {
  if (!good) printf("FAILED %s: %s of %s\n", model_name.c_str(), what, of ? of : "?");
  good ? passed++ : failed++;
}

template <class T> static std::vector<T> to_host(const void *from, size_t n) {
  std::vector<T> out(n);
  if (n) CHECK(cudaMemcpy(out.data(), from, n * sizeof(T), cudaMemcpyDeviceToHost));
  return out;
}

/* Column o of row `row` of 4-bit words in AutoAWQ's order (models.md), n columns per row. */
static int nibble(const void *words, size_t row, size_t n, int o) {
  static const int place[8] = {0, 4, 1, 5, 2, 6, 3, 7};
  uint32_t word;
  memcpy(&word, (const char *)words + (row * n + (size_t)o) / 8 * 4, 4);
  return word >> 4 * place[o % 8] & 15;
}

/* Weight (o, k) of a quantised layer in fp16: q - z is exact, the product is rounded once. */
static __half quantised_weight(const Linear *l, int o, int k) {
  const size_t width = (size_t)l->n_out + (size_t)l->skip, group = (size_t)(k / l->group),
               at = group * width + o;
  const int q = l->bits == 4 ? nibble(l->qweight, (size_t)k, width, o)
                             : ((const uint8_t *)l->qweight)[(size_t)k * width + o];
  const int z = l->kind == LINEAR_AWQ ? nibble(l->qzeros, group, width, o) : ((const uint8_t *)l->qzeros)[at];
  __half scale;
  float wide;
  if (l->kind == LINEAR_AWQ) {
    memcpy(&scale, (const char *)l->scales + at * 2, 2);
  } else {
    memcpy(&wide, (const char *)l->scales + at * 4, 4);
    scale = __float2half_rn(wide);
  }
  return __float2half_rn((float)(q - z) * __half2float(scale));
}

/* Weight (o, k) of a layer in FP8 or FP4 in double, and if `rounded` as kernels have it: FP8's scales, where
 * an output has several, are rounded to fp16 relative to a power of two above the largest. */
static double float_weight(const Linear *l, int o, int k, bool rounded) {
  const int groups = (l->n_in - 1) / l->group + 1, group = k / l->group;
  const uint8_t *codes = (const uint8_t *)l->weight;
  if (l->kind == LINEAR_FP4) {
    const size_t row = (size_t)o * (1 + l->row_skip);
    const int code = codes[row * (l->n_in / 2) + k / 2] >> k % 2 * 4 & 15;
    const uint8_t scale = ((const uint8_t *)l->scales)[row * groups + group];
    const double numbers[8] = {0, 0.5, 1, 1.5, 2, 3, 4, 6};
    return (code & 8 ? -1 : 1) * numbers[code & 7] * (double)l->scale_values[scale];
  }
  std::vector<float> scales((size_t)groups);
  memcpy(scales.data(), (const float *)l->scales + (size_t)((l->block_first + o) / l->block) * groups,
         scales.size() * sizeof(float));
  float top = 0;
  int exponent;
  for (float scale : scales) top = fmaxf(top, fabsf(scale));
  frexpf(top, &exponent);
  float scale = scales[(size_t)group];
  if (rounded && groups > 1)
    scale = ldexpf(__half2float(__float2half_rn(ldexpf(scale, -exponent))), exponent);
  return e4m3_number(codes[(size_t)o * l->n_in + k]) * (double)scale;
}

/* Offset of byte (row, k) of an int8 matrix (layout.cuh) with tiles_in tiles along the inputs. */
static size_t int8_place(int row, int k, int tiles_in) {
  const int j = k % 64 / 16, t = k % 8 / 2, i = k % 2 * 2 + k % 16 / 8;
  return ((size_t)row * tiles_in + k / 64) * 64 + t * 16 + j * 4 + i;
}

/* A device matrix copied to the host. */
struct Matrix8 {
  const DeviceLinear *of;
  std::vector<__half> halves;
  std::vector<unsigned char> bytes;
  std::vector<float> scales, bias, factors;
  explicit Matrix8(const DeviceLinear *w, cudaStream_t stream) : of(w) {
    const size_t rows = ((size_t)w->n_out + 15) / 16 * 16, tiles = ((size_t)w->n_in + 127) / 128 * 128;
    if (weight_is_quantised(w->type)) {
      __half *out;
      CHECK(cudaMalloc((void **)&out, (size_t)w->n_out * w->n_in * 2));
      MUST(linear_dequantise(w, 0, w->n_out, false, out, stream, &error));
      CHECK(cudaStreamSynchronize(stream));
      halves = to_host<__half>(out, (size_t)w->n_out * w->n_in);
      CHECK(cudaFree(out));
    } else if (w->type == WEIGHT_INT8) {
      bytes = to_host<unsigned char>(w->tiles, rows * tiles);
      scales = to_host<float>(w->scales, rows);
    } else {
      bytes = to_host<unsigned char>(w->dense, rows * w->stride * (w->type == WEIGHT_F32 ? 4 : 2));
    }
    if (w->factors) factors = to_host<float>(w->factors, rows);
    if (w->bias) bias = to_host<float>(w->bias, rows);
  }
};

static WeightType type_of(const Linear *l) {
  switch (l->kind) {
  case LINEAR_AWQ: return WEIGHT_AWQ4;
  case LINEAR_GROUPED: return WEIGHT_AWQ8;
  case LINEAR_INT8: return WEIGHT_INT8;
  case LINEAR_FP4: return WEIGHT_FP4;
  case LINEAR_FP8: return WEIGHT_FP8;
  default: return l->dtype == DTYPE_F32 ? WEIGHT_F32 : l->dtype == DTYPE_F16 ? WEIGHT_F16 : WEIGHT_BF16;
  }
}

/* True if a dequantised weight and its factor are the layer's weight (o, k): FP4's but for the rounding of
 * each entry in the layer's table of scales and of the one that is the factor; FP8's but for the rounding of
 * its scale, and then of the product, to fp16. */
static bool same_float(__half got, double factor, const Linear *l, int o, int k) {
  const double product = (double)__half2float(got) * factor, want = float_weight(l, o, k, true),
               exact = float_weight(l, o, k, false);
  if (l->kind == LINEAR_FP4) return fabs(product - want) <= fabs(want) * 0x1p-23;
  return __half2float(got) == __half2float(__float2half_rn((float)(want / factor))) &&
         fabs(want - exact) <= fabs(exact) * 0x1p-11;
}

/* Compares layer `l` with its part of a matrix: slab i of it is slab first_slab + i * slab_step there. */
static void expect_linear(const Matrix8 &m, int first_slab, int slab_step, const Linear *l) {
  const DeviceLinear *w = m.of;
  int wrong = 0, wrong_bias = 0;
  expect(w->type == type_of(l) && w->n_in == l->n_in, "the type", l->name);
  std::vector<float> bias((size_t)l->n_out, 0);
  if (l->bias.data) floats_read(l->bias.data, l->bias.dtype, 0, bias.size(), bias.data());
  const size_t element = w->type == WEIGHT_F32 ? 4 : 2;
  for (int o = 0; o < l->n_out; o++) {
    const int row = 8 * (first_slab + o / 8 * slab_step) + o % 8;
    if (!m.bias.empty() || l->bias.data) wrong_bias += m.bias.empty() || m.bias[row] != bias[o];
    if (w->type == WEIGHT_INT8) wrong += m.scales[row] != ((const float *)l->scales)[o];
    for (int k = 0; k < l->n_in; k++) {
      const size_t at = (size_t)o * l->n_in + k;
      if (weight_has_factors(w->type))
        wrong += !same_float(m.halves[(size_t)row * l->n_in + k], (double)m.factors[row], l, o, k);
      else if (weight_is_quantised(w->type))
        wrong += __half2float(m.halves[(size_t)row * l->n_in + k]) != __half2float(quantised_weight(l, o, k));
      else if (w->type == WEIGHT_INT8)
        wrong +=
            m.bytes[int8_place(row, k, (l->n_in + 127) / 128 * 2)] != ((const unsigned char *)l->weight)[at];
      else
        wrong += memcmp(&m.bytes[((size_t)row * w->stride + k) * element],
                        (const char *)l->weight + at * element, element) != 0;
    }
  }
  expect(wrong == 0, "weights", l->name);
  expect(wrong_bias == 0, "the bias", l->name);
}

static bool can_join(const Linear *a, const Linear *b) {
  const bool grouped = a->kind == LINEAR_AWQ || a->kind == LINEAR_GROUPED || a->kind == LINEAR_FP8;
  return type_of(a) == type_of(b) && (!grouped || a->group == b->group) && a->n_out % 8 == 0 &&
         b->n_out % 8 == 0;
}

static void expect_projections(const DeviceProjections *p, std::vector<const Linear *> layers, bool pair,
                               cudaStream_t stream) {
  int part = 0, first = 0;
  for (size_t i = 0, end; i < layers.size(); i = end, part++) {
    for (end = i + 1; end < layers.size() && can_join(layers[i], layers[end]);) end++;
    if (part >= p->n_parts) break;
    const DeviceLinear *w = &p->parts[part];
    const Matrix8 whole(w, stream);
    const bool interleaved = pair && end - i > 1;
    expect(w->interleaved == interleaved, "whether they are interleaved", layers[i]->name);
    int rows = 0;
    for (size_t j = i; j < end; rows += layers[j++]->n_out)
      expect_linear(whole, interleaved ? (int)(j - i) : rows / 8, interleaved ? 2 : 1, layers[j]);
    expect(w->n_out == rows && p->first[part] == first, "the outputs", layers[i]->name);
    first += rows;
  }
  expect(p->n_parts == part, "how many matrices there are", layers.empty() ? "a layer" : layers[0]->name);
}

/* The layers that multiply the input of attention, delta rule or convolution, in the order of outputs. With a
 * latent of queries, q multiplies that, and where z and a are made by two matrices each, so do the second. A
 * decay for each number of a key is made by more outputs than b has, which come last. */
static std::vector<const Linear *> inputs_of(const ModelLayer *from) {
  std::vector<const Linear *> layers;
  const bool by_channel = from->delta_b.n_out > 0 && from->delta_a.n_out > from->delta_b.n_out,
             two = from->delta_a_in.n_out > 0;
  const Linear none = {}, *a = two ? &none : &from->delta_a, *z = two ? &none : &from->delta_z;
  for (const Linear *linear :
       {&from->delta_b, by_channel ? &none : a, &from->delta_qkv, &from->delta_k, &from->delta_v,
        &from->delta_z_in, &from->delta_a_in, z, by_channel ? a : &none, &from->conv_in, &from->q, &from->k,
        &from->v, &from->q_a, &from->kv_a, &from->attn_gate, &from->index})
    if (linear->n_out > 0 && !(linear == &from->q && from->q_a.n_out > 0)) layers.push_back(linear);
  return layers;
}

/* Compares numbers on the device with make() of the stored ones. */
template <typename Make>
static void expect_vector(const float *got, const Vector &from, const char *what, Make make) {
  if (!from.data) return expect(got == NULL, what, "a norm that there is not");
  std::vector<float> want((size_t)from.n);
  floats_read(from.data, from.dtype, 0, want.size(), want.data());
  for (float &v : want) v = make(v);
  expect(got && to_host<float>(got, want.size()) == want, what, "a norm");
}

static void expect_norm(const float *got, const Vector &from, bool plus_one, const char *what) {
  expect_vector(got, from, what, [=](float v) { return plus_one ? v + 1 : v; });
}

static void expect_expert(const DeviceExperts &got, int e, const Linear *gate, const Linear *up,
                          const Linear *down_from, cudaStream_t stream) {
  const DeviceLinear gate_up = linear_expert(&got.gate_up, e), down = linear_expert(&got.down, e);
  const Matrix8 pair(&gate_up, stream);
  const bool gated = gate->n_out > 0;
  if (gated) expect_linear(pair, 0, 2, gate);
  expect_linear(pair, gated ? 1 : 0, gated ? 2 : 1, up);
  expect_linear(Matrix8(&down, stream), 0, 1, down_from);
}

static void expect_experts(const DeviceLayer &got, const ModelLayer &from, int n, cudaStream_t stream) {
  if (n > 0) expect_linear(Matrix8(&got.router, stream), 0, 1, &from.router);
  for (int e = 0; e < n; e++)
    expect_expert(got.experts, e, &from.experts[e].gate, &from.experts[e].up, &from.experts[e].down, stream);
}

/* The MLP of a layer: matrices of its own, or, beside n experts like it, the one after them. */
static void expect_mlp(const DeviceLayer *to, const ModelLayer *from, int n, bool gated,
                       cudaStream_t stream) {
  if (n > 0 && to->gate_up.n_parts == 0)
    return expect_expert(to->experts, n, &from->gate, &from->up, &from->down, stream);
  std::vector<const Linear *> layers = {&from->gate, &from->up};
  if (from->gate.n_out == 0) layers.erase(layers.begin());
  expect_projections(&to->gate_up, layers, gated, stream);
  expect_linear(Matrix8(&to->down, stream), 0, 1, &from->down);
}

/* The matrices of latent attention besides those of inputs_of(), and the two of a latent space of experts. */
static void expect_latents(const DeviceLayer *to, const ModelLayer *from, int n_heads, cudaStream_t stream) {
  if (from->q_a.n_out > 0) expect_linear(Matrix8(&to->q, stream), 0, 1, &from->q);
  for (int h = 0; from->key_heads && h < n_heads; h++) {
    const DeviceLinear key = linear_expert(&to->key_heads, h), value = linear_expert(&to->value_heads, h);
    expect_linear(Matrix8(&key, stream), 0, 1, &from->key_heads[h]);
    expect_linear(Matrix8(&value, stream), 0, 1, &from->value_heads[h]);
  }
  if (from->latent_in.n_out == 0) return;
  expect_linear(Matrix8(&to->latent_in, stream), 0, 1, &from->latent_in);
  expect_linear(Matrix8(&to->latent_out, stream), 0, 1, &from->latent_out);
}

static void expect_mix(const DeviceProjections &in, const DeviceLinear &got_up, const Linear &down,
                       const Linear &up, const Linear *inject, cudaStream_t stream) {
  std::vector<const Linear *> layers = {&down};
  if (inject) layers.push_back(inject);
  expect_projections(&in, layers, false, stream);
  expect_linear(Matrix8(&got_up, stream), 0, 1, &up);
}

/* Streams and n-grams. */
static void expect_streams(const DeviceLayer *to, const ModelLayer *from, cudaStream_t stream) {
  expect_mix(to->attn_mix, to->attn_mix_up, from->attn_mix_down, from->attn_mix_up, &from->attn_inject,
             stream);
  expect_mix(to->mlp_mix, to->mlp_mix_up, from->mlp_mix_down, from->mlp_mix_up, &from->mlp_inject, stream);
  if (from->ngram_key.n_out == 0) return;
  expect_linear(Matrix8(&to->ngram_key, stream), 0, 1, &from->ngram_key);
  expect_linear(Matrix8(&to->ngram_value, stream), 0, 1, &from->ngram_value);
}

static void expect_altup(const DeviceLayer &to, const ModelLayer &from, cudaStream_t stream) {
  const struct {
    const float *got;
    const Linear &from;
  } small[] = {{to.small[SMALL_ROUTER], from.altup_router},
               {to.small[SMALL_PREDICT], from.altup_predict},
               {to.small[SMALL_CORRECT], from.altup_correct}};
  for (auto &s : small)
    expect_norm(s.got, Vector{s.from.weight, s.from.dtype, s.from.n_in * s.from.n_out}, false, s.from.name);
  expect_linear(Matrix8(&to.laurel_left, stream), 0, 1, &from.laurel_left);
  expect_linear(Matrix8(&to.laurel_right, stream), 0, 1, &from.laurel_right);
}

static void expect_layers(const BackendModel &loaded) {
  const Model *model = loaded.model;
  const ModelConfig *c = &model->config;
  const bool one = norms_plus_one(c),
             gated = !is_ungated(c->activation) && c->gate_scale == 1 && c->mlp_scale == 1;
  for (int i = 0; i < model->config.n_layers; i++) {
    const LayerConfig own = config_layer(c, i);
    const ModelLayer *from = &model->layers[i - own.back]; /* layers that loop share tensors */
    const DeviceLayer *to = &loaded.layers[i];
    for (int which = 0; which < N_LAYER_VECTORS; which++)
      expect_vector(to->vector[which], from->vector[which], "a vector", [=](float v) {
        const float number = layer_vector_number(c, which, v);
        return c->altup.n > 0 && which == LAYER_ATTN_POST_NORM ? number / sqrtf(2) : number;
      });
    expect_projections(&to->qkv, inputs_of(from), false, loaded.stream);
    if (from->delta_a_in.n_out > 0) {
      expect_linear(Matrix8(&to->delta_z, loaded.stream), 0, 1, &from->delta_z);
      expect_linear(Matrix8(&to->delta_a, loaded.stream), 0, 1, &from->delta_a);
    }
    if (from->delta_o.n_out > 0) expect_linear(Matrix8(&to->delta_o, loaded.stream), 0, 1, &from->delta_o);
    if (from->o.n_out > 0) expect_linear(Matrix8(&to->o, loaded.stream), 0, 1, &from->o);
    expect_latents(to, from, model->config.n_heads, loaded.stream);
    expect_experts(*to, *from, own.n_experts, loaded.stream);
    const bool at_once = gated && own.sparsity == 0 && !to->gate_factors;
    if (from->up.n_out > 0) expect_mlp(to, from, own.n_experts, at_once, loaded.stream);
    if (model->config.streams.n > 0) expect_streams(to, from, loaded.stream);
    if (c->altup.n > 0) expect_altup(*to, *from, loaded.stream);
    if (model->config.per_layer_width == 0) continue;
    expect_linear(Matrix8(&to->input_gate, loaded.stream), 0, 1, &from->input_gate);
    expect_linear(Matrix8(&to->input_projection, loaded.stream), 0, 1, &from->input_projection);
  }
  if (model->config.per_layer_width > 0) {
    expect_norm(loaded.input_norm, model->input_norm, one, "input_norm of the model");
    expect_linear(Matrix8(&loaded.input_projection, loaded.stream), 0, 1, &model->input_projection);
  }
  if (model->config.streams.n > 0)
    expect_mix(loaded.mix, loaded.mix_up, model->mix_down, model->mix_up, NULL, loaded.stream);
  for (int i = 0; i + 1 < c->altup.n; i++) {
    expect_linear(Matrix8(&loaded.streams_in[i], loaded.stream), 0, 1, &model->streams_in[i]);
    expect_linear(Matrix8(&loaded.streams_out[i], loaded.stream), 0, 1, &model->streams_out[i]);
  }
  expect_norm(loaded.final_norm, model->final_norm, one && c->norm != NORM_PLUS_ONE_INSIDE, "final_norm");
  expect_linear(Matrix8(&loaded.head, loaded.stream), 0, 1, &model->head);
}

static void expect_table(const void *table, size_t numbers_of_row, const Matrix &from, const char *what) {
  const size_t element = dtype_bytes(from.dtype), row = (size_t)from.n_columns * element,
               stride = numbers_of_row * element;
  const std::vector<char> got = to_host<char>(table, (size_t)from.n_rows * stride);
  int wrong = 0;
  for (int i = 0; i < from.n_rows; i++)
    wrong += memcmp(&got[(size_t)i * stride], (const char *)from.data + (size_t)i * row, row) != 0;
  expect(wrong == 0, "rows", what);
}

static void expect_embedding(const BackendModel &loaded) {
  const Model *model = loaded.model;
  expect_table(loaded.embedding, loaded.embedding_stride, model->embedding, "the embedding");
  expect((loaded.embedding == loaded.head.dense) == (model->head.weight == model->embedding.data),
         "whether the head has the same memory", "the embedding");
  if (model->config.per_layer_width > 0)
    expect_table(loaded.input_table, (size_t)model->input_table.n_columns, model->input_table,
                 "the inputs of layers");
}

static void expect_ropes(const BackendModel &loaded) {
  const ModelConfig *c = &loaded.model->config;
  const struct {
    const RopeConfig *rope;
    bool long_text;
  } ropes[] = {{&c->rope, false}, {&c->local_rope, false}, {&c->rope, true}};
  for (int i = 0; i < N_ROPES; i++) {
    std::vector<float> want((size_t)ropes[i].rope->rotary_dim / 2);
    float factor;
    rope_frequencies(ropes[i].rope, ropes[i].long_text, want.data(), &factor);
    const DeviceRope &got = loaded.ropes[i];
    expect(got.attention_factor == factor && to_host<float>(got.frequencies, want.size()) == want,
           "frequencies",
           i == 0   ? "the rope"
           : i == 1 ? "the local rope"
                    : "the rope of long texts");
  }
}

/* The reported progress: it never falls, and reaches the total in the end. */
struct Progress {
  size_t done = 0, total = 0;
  bool proper = true;
  static void take(void *user, size_t done, size_t total) {
    Progress *progress = (Progress *)user;
    progress->proper &=
        done >= progress->done && done <= total && (progress->total == 0 || total == progress->total);
    progress->done = done, progress->total = total;
  }
};

static Model *open_model(const std::string &path) {
  Model *model = NULL;
  model_name = path;
  MUST(model_open(path.c_str(), NULL, &model, &error));
  MUST(model_prepare(model, 1, &error));
  return model;
}

/* Loads a model into `loaded`, which is all 0, and looks at its layers there. unload() ends it. */
static void load(BackendModel *loaded, Model *model, Progress *progress) {
  BackendOptions options = {};
  loaded->model = model;
  options.n_threads = 1, options.progress = Progress::take, options.progress_user = progress;
  CHECK(cudaStreamCreate(&loaded->stream));
  MUST(weights_load(loaded, &options, &error));
  expect_layers(*loaded);
}

static void unload(BackendModel *loaded) {
  weights_release(loaded);
  CHECK(cudaStreamDestroy(loaded->stream));
}

/* A model that GPUs refuse is never loaded there. */
static void check_model(const std::string &path) {
  Model *model = open_model(path);
  if (cuda_check_model(model, &error) != STATUS_OK) {
    model_close(model);
    return;
  }
  BackendModel loaded = {};
  Progress progress;
  load(&loaded, model, &progress);
  expect_embedding(loaded);
  expect_ropes(loaded);
  /* The total counts some repacked tensors also as they were stored. */
  const bool all =
      model->made_bytes > 0 ? 5 * progress.done > 4 * progress.total : progress.done == progress.total;
  expect(progress.proper && all && progress.total > 0, "what was reported", "the progress");
  unload(&loaded);
  model_close(model);
}

/* q, k and v are not stacked if k has another type than the other two. */
static void check_mixed_layers() {
  Model *model = open_model("test/data/stories260K-awq");
  Linear *k = &model->layers[0].k;
  const Linear before = *k;
  expect(before.kind == LINEAR_AWQ && model->head.kind == LINEAR_DENSE, "kinds", "the model");
  *k = model->head;
  k->name = before.name, k->n_out = before.n_out;
  BackendModel loaded = {};
  Progress progress;
  model_name = "mixed layers";
  load(&loaded, model, &progress);
  unload(&loaded);
  *k = before;
  model_close(model);
}

static void check_folder(const std::string &folder) {
  std::vector<std::string> names;
  DIR *directory = opendir(folder.c_str());
  if (!directory) return expect(false, "the folder", folder.c_str());
  while (const dirent *entry = readdir(directory))
    if (entry->d_name[0] != '.') names.push_back(entry->d_name);
  closedir(directory);
  std::sort(names.begin(), names.end());
  for (const std::string &name : names) check_model(folder + "/" + name);
}

/* Loading buffers of 512 bytes: arrays in many pieces, rows with gaps, two arrays in a slot, one too long. */
static void check_upload() {
  model_name = "upload";
  cudaStream_t stream;
  Uploader u;
  CHECK(cudaStreamCreate(&stream));
  MUST(upload_open(&u, stream, 2, 500, &error));
  std::vector<unsigned char> from(600000);
  for (size_t i = 0; i < from.size(); i++) from[i] = (unsigned char)random_bits(9, i);
  for (size_t bytes : {1, 511, 512, 513, 5000}) {
    unsigned char *to;
    CHECK(cudaMalloc((void **)&to, bytes));
    MUST(upload_array(&u, from.data(), bytes, to, &error));
    CHECK(cudaStreamSynchronize(stream));
    expect(to_host<unsigned char>(to, bytes) ==
               std::vector<unsigned char>(from.begin(), from.begin() + (long)bytes),
           "bytes", "an array");
    CHECK(cudaFree(to));
  }
  for (int turn = 0; turn < 2 * UPLOAD_SLOTS + 1; turn++) { /* two arrays fill a slot */
    void *rows, *more, *none;
    MUST(upload_add_rows(&u, &from[turn], 7, 20, 33, &rows, &error));
    MUST(upload_add(&u, &from[1000 + turn], 256, &more, &error));
    if (turn % 2)
      MUST(upload_send(&u, &error));
    else
      MUST(upload_add(&u, &from[2000], 512, &none, &error)); /* the next slot: sends what is in this one */
    CHECK(cudaStreamSynchronize(stream));
    const auto got = to_host<unsigned char>(rows, 140), got_more = to_host<unsigned char>(more, 256);
    bool good = std::equal(got_more.begin(), got_more.end(), from.begin() + 1000 + turn);
    for (int i = 0; i < 140; i++) good &= got[i] == from[turn + i / 20 * 33 + i % 20];
    expect(good && (char *)more - (char *)rows == 256, "two things", "a slot");
    const Status full = upload_add(&u, from.data(), 513, &none, &error);
    expect(full == STATUS_FAILED &&
               strstr(error.text, "a piece of 513 bytes does not fit a loading buffer of 512"),
           "a byte too many", "a slot");
  }
  upload_close(&u);
  /* Three threads copy at once: an array, rows with gaps, and more arrays than are sent together. */
  MUST(upload_open(&u, stream, 3, from.size(), &error));
  void *to, *gaps, *some[2 * UPLOAD_ROWS];
  MUST(upload_add(&u, from.data(), from.size(), &to, &error));
  MUST(upload_send(&u, &error));
  CHECK(cudaStreamSynchronize(stream));
  expect(to_host<unsigned char>(to, from.size()) == from, "600000 bytes", "an array");
  MUST(upload_add_rows(&u, from.data(), 500, 999, 1001, &gaps, &error));
  MUST(upload_send(&u, &error));
  CHECK(cudaStreamSynchronize(stream));
  const auto got = to_host<unsigned char>(gaps, 500 * 999);
  bool good = true;
  for (size_t i = 0; i < got.size(); i++) good &= got[i] == from[i / 999 * 1001 + i % 999];
  expect(good, "500 rows", "rows with gaps");
  for (int i = 0; i < 2 * UPLOAD_ROWS; i++)
    MUST(upload_add(&u, &from[(size_t)i * 100], 50, some + i, &error));
  MUST(upload_send(&u, &error));
  CHECK(cudaStreamSynchronize(stream));
  for (int i = 0; i < 2 * UPLOAD_ROWS; i++) {
    const auto few = to_host<unsigned char>(some[i], 50);
    expect(std::equal(few.begin(), few.end(), from.begin() + i * 100), "50 bytes", "many arrays");
  }
  upload_close(&u);
  CHECK(cudaStreamDestroy(stream));
}

int main() {
  check_upload();
  check_model("test/data/stories260K-awq");
  check_mixed_layers();
  check_folder("test/data/miniatures");
  check_folder("test/data/layouts");
  printf("%d passed, %d failed\n", passed, failed);
  return failed != 0;
}
