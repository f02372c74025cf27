/* step_fixture.cuh - random models of shapes that fused steps serve, on the device and in double on the
 * host, for their tests. */
#pragma once

#include <algorithm>
#include <cmath>
#include <string.h>
#include <thread>
#include <vector>

#include "cuda/kernels/cache/pages.h"
#include "cuda/kernels/fused/screen/screen.h"
#include "cuda/kernels/fused/step.h"
extern "C" {
#include "cuda/one/fused.h"
}
#include "test/cuda/random_linear.cuh"

typedef std::vector<double> Row;

struct Case {
  const char *name;
  int hidden, intermediate, n_layers, n_heads, n_kv_heads, vocab, clusters;
  bool bias, qk_norm;
  int max_slots, group = 128, head_dim = 128;
  bool q8 = false; /* the KV cache */
  bool paged = false;
  /* Varied experts (plan.h): `intermediate` is the width of one, and every other layer has a window. */
  int n_experts = 0, n_chosen = 0, window = 0;

  bool has_window(int layer) const { return window > 0 && layer % 2 == 0; }
};

static int passed, failed;
static bool few; /* `test_step few`: for the emulator, which reports a hang by itself */

static void expect(bool good, const char *name, const char *what, double number) {
  if (!good) printf("FAILED %s: %s: %.3g\n", name, what, number);
  good ? passed++ : failed++;
}

static double nmse(const Row &got, const Row &want) {
  double error = 0, norm = 0;
  for (size_t i = 0; i < want.size(); i++)
    error += (got[i] - want[i]) * (got[i] - want[i]), norm += want[i] * want[i];
  return error / norm; /* NaN where a number is missing */
}

template <class T> static std::vector<T> to_host(const void *from, size_t n) {
  std::vector<T> out(n);
  CHECK(cudaMemcpy(out.data(), from, n * sizeof(T), cudaMemcpyDeviceToHost));
  return out;
}

template <class T> static T *to_device(const std::vector<T> &from) {
  T *to;
  CHECK(cudaMalloc((void **)&to, from.size() * sizeof(T)));
  CHECK(cudaMemcpy(to, from.data(), from.size() * sizeof(T), cudaMemcpyHostToDevice));
  return to;
}

/* Runs work(0) .. work(n - 1), on a GPU's host in several threads. */
template <class Work> static void in_threads(int n, Work work) {
  const int n_threads = few ? 1 : 16;
  auto share = [&](int t) {
    for (int i = t * n / n_threads; i < (t + 1) * n / n_threads; i++) work(i);
  };
  std::vector<std::thread> threads;
  for (int t = 1; t < n_threads; t++) threads.emplace_back(share, t);
  share(0);
  for (std::thread &t : threads) t.join();
}

/* w[o][i] of an FP4 or FP8 layer. */
static std::vector<float> dequantised_floats(const Stored &s) {
  const bool fp8 = s.type == WEIGHT_FP8;
  auto codes = to_host<uint8_t>(s.weights, (size_t)s.n_out * s.n_in / (fp8 ? 1 : 2));
  auto scales = to_host<uint8_t>(s.scales, stored_scales(s.type, s.n_in, s.n_out, s.group) * (fp8 ? 4 : 1));
  std::vector<float> w((size_t)s.n_out * s.n_in);
  in_threads(s.n_out, [&](int o) {
    for (int i = 0; i < s.n_in; i++)
      w[(size_t)o * s.n_in + i] = (float)stored_float(s, codes.data(), scales.data(), i, o);
  });
  return w;
}

/* w[o][i] of a layer in int8. */
static std::vector<float> dequantised_int8(const Stored &s) {
  auto codes = to_host<int8_t>(s.weights, (size_t)s.n_out * s.n_in);
  auto scales = to_host<float>(s.scales, (size_t)s.n_out);
  std::vector<float> w((size_t)s.n_out * s.n_in);
  for (size_t i = 0; i < w.size(); i++) w[i] = codes[i] * scales[i / s.n_in];
  return w;
}

/* w[o][i] of a layer in fp16. */
static std::vector<float> dequantised_halves(const Stored &s) {
  std::vector<float> w;
  for (__half h : to_host<__half>(s.weights, (size_t)s.n_out * s.n_in)) w.push_back(__half2float(h));
  return w;
}

/* w[o][i] of an AWQ layer. Nibble i of a word holds column [0,2,4,6,1,3,5,7][i]. */
static std::vector<float> dequantised(const Stored &s) {
  if (s.type == WEIGHT_FP4 || s.type == WEIGHT_FP8) return dequantised_floats(s);
  if (s.type == WEIGHT_INT8) return dequantised_int8(s);
  if (s.type == WEIGHT_F16) return dequantised_halves(s);
  const int words = s.n_out / 8, order[8] = {0, 2, 4, 6, 1, 3, 5, 7};
  auto q = to_host<uint32_t>(s.weights, (size_t)s.n_in * words);
  auto z = to_host<uint32_t>(s.zeros, (size_t)(s.n_in / s.group) * words);
  auto scales = to_host<__half>(s.scales, (size_t)(s.n_in / s.group) * s.n_out);
  std::vector<float> w((size_t)s.n_out * s.n_in);
  in_threads(words, [&](int c) {
    for (int n = 0; n < 8; n++)
      for (int i = 0; i < s.n_in; i++) {
        const int o = 8 * c + order[n], group = i / s.group;
        const int weight = q[(size_t)i * words + c] >> 4 * n & 15,
                  zero = z[(size_t)group * words + c] >> 4 * n & 15;
        w[(size_t)o * s.n_in + i] =
            (float)(weight - zero) * __half2float(scales[(size_t)group * s.n_out + o]);
      }
  });
  return w;
}

struct HostLinear {
  int n_in, n_out;
  std::vector<float> w, bias;
  bool rounds = false; /* int8: rounds x to fp16, then to integers (int8_token.cu) */

  static Row rounded(Row x) {
    double top = 0;
    for (double &v : x) {
      v = __half2float(__float2half_rn((float)v));
      top = std::max(top, fabs(v));
    }
    for (double &v : x) v = std::min(nearbyint(v / (top / 127.5)), 127.0) * (top / 127.5);
    return x;
  }
  Row times(const Row &given) const {
    const Row x = rounds ? rounded(given) : given;
    Row y(n_out);
    in_threads(n_out, [&](int o) {
      double sum = bias.empty() ? 0 : bias[o];
      for (int i = 0; i < n_in; i++) sum += (double)w[(size_t)o * n_in + i] * x[i];
      y[o] = sum;
    });
    return y;
  }
};

/* Rounds *v to the type of an embedding table, and returns its bits there. */
static uint32_t embedding_bits(Dtype type, float *v) {
  uint32_t bits = 0;
  if (type == DTYPE_F16) {
    const __half half = __float2half_rn(*v);
    memcpy(&bits, &half, 2);
    *v = __half2float(half);
    return bits;
  }
  memcpy(&bits, v, 4);
  if (type == DTYPE_F32) return bits;
  const uint32_t upper = bits & 0xffff0000u;
  memcpy(v, &upper, 4);
  return bits >> 16;
}

struct HostLayer {
  HostLinear q, k, v, o, gate, up, down, router;
  std::vector<HostLinear> gates, ups, downs; /* of experts */
  std::vector<float> attn_norm, mlp_norm, q_norm, k_norm, sinks;
};

static const float kAttentionFactor = 1.125f; /* of rope */

static float frequency_of(const Case &c, int pair) {
  return (float)pow(10000.0, -2.0 * pair / c.head_dim);
}

/* Large beside the squares of x, so that a norm without it would differ. */
static const float kEps = 0.25f, kEmbeddingScale = 1.5f;
static double scale_of(const Case &c) {
  return 1 / sqrt((double)c.head_dim);
}

/* A model on the device and on the host, and one timeline's cache on both. */
struct Fixture {
  Case c;
  int n_ctx = 0;
  std::vector<HostLayer> host;
  std::vector<DeviceLayer> layers;
  std::vector<StepLayer> step_layers;
  std::vector<void *> memory;
  HostLinear head_host;
  DeviceLinear head;
  std::vector<float> final_norm, embedding;
  Dtype embedding_type; /* F32, F16 or BF16, by the vocabulary's size */
  int embedding_stride;
  unsigned char *embedding_device;
  float *final_norm_device, *logits, *taps; /* taps: [8][2][hidden] at most */
  Row states;                               /* host_step()'s x after the first layer and after the last */
  std::vector<__half> keys, values; /* [n_layers][n_kv_heads][n_ctx][head_dim]; of q8 what its numbers mean */
  void *k, *v;
  __half *k_scales = NULL, *v_scales = NULL;
  int *ids, *pages_device = NULL;
  void *screen, *head_x;  /* lm_head in 8 bits; where a step that reads it leaves its input */
  std::vector<int> pages; /* of positions, if the cache is in pages */
  int base = 0;           /* where the sequence of host_step() begins among the cache's positions */
  float *frequencies;
  uint64_t seed = 1;

  std::vector<float> vector(int n, float low, float high) {
    std::vector<float> out(n);
    seed++;
    for (int i = 0; i < n; i++) out[i] = low + (high - low) * uniform(seed, i);
    return out;
  }

  /* bias: the largest number of a bias; 0: none. */
  HostLinear host_linear(Stored *s, float bias) {
    HostLinear l = {s->n_in, s->n_out, dequantised(*s), {}, s->type == WEIGHT_INT8};
    if (bias > 0) l.bias = vector(s->n_out, -bias, bias);
    return l;
  }

  /* Makes scales so small that outputs for a row of 1s stay near 1. */
  void shrink(const Stored &s) {
    if (s.type == WEIGHT_F16) { /* deviation of the weights: 0.029 */
      std::vector<__half> w = to_host<__half>(s.weights, (size_t)s.n_in * s.n_out);
      for (__half &h : w) h = __float2half_rn(__half2float(h) * 34 / sqrtf((float)s.n_in));
      CHECK(cudaMemcpy(s.weights, w.data(), w.size() * 2, cudaMemcpyHostToDevice));
      return;
    }
    if (s.type == WEIGHT_FP8 || s.type == WEIGHT_INT8) {
      const bool fp8 = s.type == WEIGHT_FP8; /* deviations of the weights: 0.024, 0.1 */
      std::vector<float> of_rows =
          to_host<float>(s.scales, fp8 ? stored_scales(s.type, s.n_in, s.n_out, s.group) : (size_t)s.n_out);
      for (float &v : of_rows) v = ldexpf(v, (int)floor(log2((fp8 ? 42 : 10) / sqrt((double)s.n_in))));
      CHECK(cudaMemcpy(s.scales, of_rows.data(), of_rows.size() * 4, cudaMemcpyHostToDevice));
      return;
    }
    const size_t n = (size_t)(s.n_in / s.group) * s.n_out;
    if (s.type == WEIGHT_FP4 && s.group == 32) { /* powers of two; rows differ in their largest */
      const int e = (int)floor(-log2(3 * sqrt((double)s.n_in)));
      std::vector<uint8_t> codes(n);
      for (size_t i = 0; i < n; i++)
        codes[i] = (uint8_t)(127 + e - i / (s.n_in / 32) % 3 + random_bits(seed, i) % 3);
      CHECK(cudaMemcpy(s.scales, codes.data(), n, cudaMemcpyHostToDevice));
      return;
    }
    if (s.type ==
        WEIGHT_FP4) { /* the codes' mean square is 8.6, the scales' kStoredFactor^2 * 2^(2 e) * 1.5 */
      const int e = (int)floor(-log2(3 * kStoredFactor * sqrt((double)s.n_in)));
      std::vector<uint8_t> codes(n);
      for (size_t i = 0; i < n; i++) codes[i] = (uint8_t)((7 + e) * 8 - 4 + random_bits(seed, i) % 13);
      CHECK(cudaMemcpy(s.scales, codes.data(), n, cudaMemcpyHostToDevice));
      return;
    }
    std::vector<__half> scales = to_host<__half>(s.scales, n);
    for (__half &h : scales) h = __float2half_rn(__half2float(h) * 12.0f / sqrtf((float)s.n_in));
    CHECK(cudaMemcpy(s.scales, scales.data(), n * 2, cudaMemcpyHostToDevice));
  }

  WeightType weights() const {
    return c.group == STEP_FP4_GROUP    ? WEIGHT_FP4
           : c.group == STEP_FP8_GROUP  ? WEIGHT_FP8
           : c.group == STEP_INT8_GROUP ? WEIGHT_INT8
           : c.group == STEP_HALF_GROUP ? WEIGHT_F16
                                        : WEIGHT_AWQ4;
  }
  /* FP8 of heads of 64 has one group. */
  int group_of(int n_in) const {
    if (c.group == STEP_FP8_GROUP && c.head_dim == 64) return n_in;
    return c.group == STEP_HALF_GROUP                                ? 0
           : c.group == STEP_FP8_GROUP || c.group == STEP_INT8_GROUP ? STEP_GROUP
                                                                     : c.group;
  }
  /* The error that steps may have. */
  double tolerance() const { return c.group == STEP_INT8_GROUP ? 1e-4 : 2e-6; }

  /* Random parts of one matrix. dense: in fp16 whatever the layers have. */
  void linear(DeviceLinear *to, HostLinear *const *parts, const int *n_outs, int n, int n_in,
              bool interleaved, bool bias, const char *name, bool dense = false) {
    Stored stored[3];
    std::vector<float> all_bias;
    for (int i = 0; i < n; i++) {
      seed += 10;
      stored[i] = dense ? stored_random(WEIGHT_F16, n_in, n_outs[i], 0, seed)
                        : stored_random(weights(), n_in, n_outs[i], group_of(n_in), seed);
      shrink(stored[i]);
      *parts[i] = host_linear(&stored[i], bias);
      all_bias.insert(all_bias.end(), parts[i]->bias.begin(), parts[i]->bias.end());
    }
    float *device_bias = bias ? to_device(all_bias) : NULL;
    memory.push_back(place(to, stored, n, interleaved, device_bias, name, 0));
    CHECK(cudaDeviceSynchronize());
    cudaFree(device_bias);
    for (int i = 0; i < n; i++) stored_free(&stored[i]);
  }

  /* Random matrices in MXFP4 of all experts: gate and up, or down. Biases are so large that some gates and
   * ups are cut. */
  void experts(DeviceLinear *to, std::vector<HostLinear> *const *parts, int n, int n_in, int n_out,
               const char *name) {
    size_t bytes;
    void *place_of;
    MUST(linear_lay_out(to, name, WEIGHT_FP4, n_in, c.n_experts * n * n_out, 32, n == 2, true, &bytes,
                        &error));
    MUST(linear_lay_out_experts(to, c.n_experts, c.n_chosen, n == 1, &error));
    CHECK(cudaMalloc(&place_of, bytes));
    memory.push_back(place_of);
    MUST(linear_place(to, place_of, 0, &error));
    for (int e = 0; e < c.n_experts; e++) {
      const DeviceLinear own = linear_expert(to, e);
      Stored stored[2];
      std::vector<float> all_bias;
      for (int i = 0; i < n; i++) {
        seed += 10;
        stored[i] = stored_random(WEIGHT_FP4, n_in, n_out, 32, seed);
        shrink(stored[i]);
        parts[i]->push_back(host_linear(&stored[i], n == 2 ? 9.0f : 1.0f));
        all_bias.insert(all_bias.end(), parts[i]->back().bias.begin(), parts[i]->back().bias.end());
      }
      float *device_bias = to_device(all_bias);
      fill_parts(&own, stored, n, device_bias, 0);
      CHECK(cudaDeviceSynchronize());
      cudaFree(device_bias);
      for (int i = 0; i < n; i++) stored_free(&stored[i]);
    }
  }

  float *vector_on_device(const std::vector<float> &v) {
    float *p = to_device(v);
    memory.push_back(p);
    return p;
  }

  void add_layer() {
    host.emplace_back();
    layers.push_back({});
    HostLayer &h = host.back();
    DeviceLayer &d = layers.back();
    const int n_q = c.n_heads * c.head_dim, n_k = c.n_kv_heads * c.head_dim;
    const int qkv[] = {n_q, n_k, n_k}, gate_up[] = {c.intermediate, c.intermediate};
    HostLinear *const qkv_to[] = {&h.q, &h.k, &h.v}, *const gate_up_to[] = {&h.gate, &h.up};
    HostLinear *const o_to[] = {&h.o}, *const down_to[] = {&h.down};
    d.qkv.n_parts = d.gate_up.n_parts = 1;
    const bool varied = c.n_experts > 0;
    linear(&d.qkv.parts[0], qkv_to, qkv, 3, c.hidden, false, c.bias, "qkv", varied);
    linear(&d.o, o_to, &c.hidden, 1, n_q, false, varied, "o", varied);
    if (varied) {
      HostLinear *const router_to[] = {&h.router};
      std::vector<HostLinear> *const first[] = {&h.gates, &h.ups}, *const second[] = {&h.downs};
      linear(&d.router, router_to, &c.n_experts, 1, c.hidden, false, true, "router", true);
      experts(&d.experts.gate_up, first, 2, c.hidden, c.intermediate, "gate_up");
      experts(&d.experts.down, second, 1, c.intermediate, c.hidden, "down");
      h.sinks = vector(c.n_heads, -1, 3);
      d.sinks = vector_on_device(h.sinks);
    } else {
      linear(&d.gate_up.parts[0], gate_up_to, gate_up, 2, c.hidden, true, false, "gate_up");
      linear(&d.down, down_to, &c.hidden, 1, c.intermediate, false, false, "down");
    }
    h.attn_norm = vector(c.hidden, 0.5f, 1.5f);
    h.mlp_norm = vector(c.hidden, 0.5f, 1.5f);
    d.attn_norm = vector_on_device(h.attn_norm);
    d.mlp_norm = vector_on_device(h.mlp_norm);
    if (!c.qk_norm) return;
    h.q_norm = vector(c.head_dim, 0.5f, 1.5f);
    h.k_norm = vector(c.head_dim, 0.5f, 1.5f);
    d.q_norm = vector_on_device(h.q_norm);
    d.k_norm = vector_on_device(h.k_norm);
  }

  size_t embedding_at(int id, int i) const {
    return ((size_t)id * embedding_stride + i) * (embedding_type == DTYPE_F32 ? 4 : 2);
  }

  /* A gap of NaN follows each row of embeddings. */
  void embed() {
    const Dtype types[] = {DTYPE_F32, DTYPE_F16, DTYPE_BF16};
    embedding = vector(c.vocab * c.hidden, -2, 2);
    embedding_type = types[c.vocab % 3];
    embedding_stride = c.hidden + 8;
    std::vector<unsigned char> table(embedding_at(c.vocab, 0), 0xff);
    for (int id = 0; id < c.vocab; id++)
      for (int i = 0; i < c.hidden; i++) {
        const uint32_t bits = embedding_bits(embedding_type, &embedding[(size_t)id * c.hidden + i]);
        memcpy(&table[embedding_at(id, i)], &bits, embedding_type == DTYPE_F32 ? 4 : 2);
      }
    embedding_device = to_device(table);
    memory.push_back(embedding_device);
  }

  Fixture(const Case &of, int context) : c(of), n_ctx(context) {
    for (int i = 0; i < c.n_layers; i++) add_layer();
    for (const DeviceLayer &layer : layers) step_layers.push_back(fused_layer(&layer));
    seed += 10;
    Stored head_stored = stored_random(WEIGHT_F16, c.hidden, c.vocab, 0, seed);
    auto halves = to_host<__half>(head_stored.weights, (size_t)c.vocab * c.hidden);
    head_host = {c.hidden, c.vocab, {}, {}, false};
    for (__half h : halves) head_host.w.push_back(__half2float(h));
    memory.push_back(place(&head, &head_stored, 1, false, NULL, "head", 0));
    CHECK(cudaDeviceSynchronize());
    stored_free(&head_stored);
    final_norm = vector(c.hidden, 0.5f, 1.5f);
    final_norm_device = vector_on_device(final_norm);
    embed();
    if (c.paged) take_pages();
    const size_t cache = (size_t)c.n_layers * c.n_kv_heads * n_ctx * c.head_dim;
    for (size_t i = 0; i < cache; i++) {
      keys.push_back(__float2half_rn(activation(77, (int)(i / 4096), (int)(i % 4096)) * 0.5f));
      values.push_back(__float2half_rn(activation(78, (int)(i / 4096), (int)(i % 4096)) * 0.5f));
    }
    if (c.q8) {
      make_q8(keys, KEY_SCALE_DIMS, &k, &k_scales);
      make_q8(values, c.head_dim, &v, &v_scales);
      keys = numbers_of(k, k_scales), values = numbers_of(v, v_scales);
    } else {
      k = to_device(placed(keys, c.head_dim)), v = to_device(placed(values, c.head_dim));
    }
    memory.push_back(k), memory.push_back(v), memory.push_back(k_scales), memory.push_back(v_scales);
    logits = vector_on_device(std::vector<float>(c.vocab));
    taps = vector_on_device(std::vector<float>(16 * c.hidden, NAN));
    ids = to_device(std::vector<int>(1));
    screen = to_device(std::vector<char>((size_t)c.vocab * (c.hidden + STEP_SCREEN_TAIL)));
    head_x = to_device(std::vector<__half>(c.hidden));
    memory.push_back(screen), memory.push_back(head_x);
    std::vector<float> of_pairs;
    for (int i = 0; i < c.head_dim / 2; i++) of_pairs.push_back(frequency_of(c, i));
    frequencies = to_device(of_pairs);
    memory.push_back(ids), memory.push_back(frequencies);
  }

  /* Positions lie in every second page, the last ones first. */
  void take_pages() {
    const int n = (n_ctx + KV_PAGE_TOKENS - 1) / KV_PAGE_TOKENS;
    for (int i = 0; i < n; i++) pages.push_back(2 * (n - 1 - i) + 1);
    pages_device = to_device(pages);
    memory.push_back(pages_device);
  }
  int n_pages() const { return 2 * (int)pages.size(); }
  size_t n_cache_rows() const {
    return (size_t)c.n_layers * c.n_kv_heads * (c.paged ? n_pages() * KV_PAGE_TOKENS : n_ctx);
  }

  /* The row of the device's cache that is row `row` of `keys`. */
  size_t cache_row(size_t row) const {
    if (!c.paged) return row;
    const size_t pos = row % n_ctx, head = row / n_ctx % c.n_kv_heads, layer = row / n_ctx / c.n_kv_heads,
                 page = layer * n_pages() + pages[pos / KV_PAGE_TOKENS];
    return (page * c.n_kv_heads + head) * KV_PAGE_TOKENS + pos % KV_PAGE_TOKENS;
  }

  /* Rows of n elements in the order of the device's cache. Places that no position has are NaN, or the
   * largest numbers. */
  template <class T> std::vector<T> placed(const std::vector<T> &from, int n) const {
    std::vector<T> to(n_cache_rows() * n);
    memset((void *)to.data(), 0xff, to.size() * sizeof(T));
    for (size_t row = 0; row < from.size() / n; row++)
      std::copy(&from[row * n], &from[row * n] + n, &to[cache_row(row) * n]);
    return to;
  }

  /* The reverse, from the device. */
  template <class T> std::vector<T> taken(const void *from, int n) const {
    const std::vector<T> all = to_host<T>(from, n_cache_rows() * n);
    std::vector<T> to((size_t)c.n_layers * c.n_kv_heads * n_ctx * n);
    for (size_t row = 0; row < to.size() / n; row++)
      std::copy(&all[cache_row(row) * n], &all[cache_row(row) * n] + n, &to[row * n]);
    return to;
  }

  /* A step of n tokens at `pos`. */
  StepCall call(int pos, int n, const int *ids_of_step, int first_logit, float *to) const {
    StepCall of = {};
    of.parts[0].pos = pos, of.n_parts = 1;
    of.ids = ids_of_step, of.n_tokens = n;
    of.frequencies = frequencies, of.attention_factor = kAttentionFactor;
    of.k = k, of.v = v, of.k_scales = k_scales, of.v_scales = v_scales;
    of.pages = pages_device, of.n_pages = n_pages(), of.n_ctx = c.paged ? (int)KV_PAGE_TOKENS : n_ctx;
    of.first_logit = first_logit, of.logits = to;
    return of;
  }

  /* A cache in 8 bits, in which so many numbers share a scale. */
  void make_q8(const std::vector<__half> &from, int per_scale, void **numbers, __half **scales) {
    std::vector<uint8_t> q(from.size());
    std::vector<__half> all;
    for (size_t i = 0; i < from.size(); i += per_scale) {
      float largest = 0;
      for (int j = 0; j < per_scale; j++) largest = std::max(largest, fabsf(__half2float(from[i + j])));
      all.push_back(
          __ushort_as_half((unsigned short)((__half_as_ushort(__float2half_rn(largest / 127)) + 16) & ~15)));
      for (int j = 0; j < per_scale; j++)
        q[i + j] = (uint8_t)(128 + rintf(__half2float(from[i + j]) / __half2float(all.back())));
    }
    *numbers = to_device(placed(q, c.head_dim)), *scales = to_device(placed(all, c.head_dim / per_scale));
  }

  /* The numbers of the device's cache. */
  std::vector<__half> numbers_of(const void *numbers, const __half *scales) const {
    if (!c.q8) return taken<__half>(numbers, c.head_dim);
    const int per_scale = scales == k_scales ? KEY_SCALE_DIMS : c.head_dim;
    const std::vector<uint8_t> q = taken<uint8_t>(numbers, c.head_dim);
    const std::vector<__half> of = taken<__half>(scales, c.head_dim / per_scale);
    std::vector<__half> out;
    for (size_t i = 0; i < q.size(); i++)
      out.push_back(__float2half_rn((q[i] - 128) * __half2float(of[i / per_scale])));
    return out;
  }

  ~Fixture() {
    for (void *p : memory) cudaFree(p);
  }
};

static float2 turn_of(const Case &c, int pos, int pair) {
  const double angle = (float)pos * frequency_of(c, pair); /* rounded, as transformers does */
  return make_float2((float)(kAttentionFactor * cos(angle)), (float)(kAttentionFactor * sin(angle)));
}

static Row normed(const Row &x, const std::vector<float> &weight, double eps) {
  double squares = 0;
  for (double v : x) squares += v * v;
  Row out(x.size());
  for (size_t i = 0; i < x.size(); i++) out[i] = x[i] / sqrt(squares / x.size() + eps) * weight[i];
  return out;
}

/* Norm and rope of one head. */
static void make_head(const Case &c, double *head, const std::vector<float> &norm, int pos) {
  const int half = c.head_dim / 2;
  if (!norm.empty()) {
    Row out = normed(Row(head, head + c.head_dim), norm, kEps);
    std::copy(out.begin(), out.end(), head);
  }
  for (int i = 0; i < half; i++) {
    const float2 t = turn_of(c, pos, i);
    const double low = head[i], high = head[i + half];
    head[i] = low * t.x - high * t.y;
    head[i + half] = high * t.x + low * t.y;
  }
}

static Row attention(Fixture &f, int layer, int pos, const Row &q) {
  const int group = f.c.n_heads / f.c.n_kv_heads, dim = f.c.head_dim;
  Row out(q.size());
  for (int head = 0; head < f.c.n_heads; head++) {
    const size_t cache = (((size_t)layer * f.c.n_kv_heads + head / group) * f.n_ctx + f.base) * dim;
    Row score(pos + 1);
    const int first = f.c.has_window(layer) ? std::max(0, pos + 1 - f.c.window) : 0;
    const bool has_sink = !f.host[layer].sinks.empty();
    double high = has_sink ? f.host[layer].sinks[head] : -1e300;
    for (int p = first; p <= pos; p++) {
      for (int d = 0; d < dim; d++) score[p] += q[head * dim + d] * __half2float(f.keys[cache + p * dim + d]);
      high = std::max(high, score[p] *= scale_of(f.c));
    }
    double total = has_sink ? exp(f.host[layer].sinks[head] - high) : 0;
    for (int p = first; p <= pos; p++) total += score[p] = exp(score[p] - high);
    for (int p = first; p <= pos; p++)
      for (int d = 0; d < dim; d++)
        out[head * dim + d] += score[p] / total * __half2float(f.values[cache + p * dim + d]);
  }
  return out;
}

/* The weighted sum of the chosen experts' outputs, as models.md has it for gpt-oss. */
static Row experts_of(const Case &c, const HostLayer &l, const Row &h) {
  const Row logits = l.router.times(h);
  std::vector<int> ids;
  for (int e = 0; e < c.n_experts; e++) ids.push_back(e);
  std::stable_sort(ids.begin(), ids.end(), [&](int a, int b) { return logits[a] > logits[b]; });
  double total = 0;
  for (int i = 0; i < c.n_chosen; i++) total += exp(logits[ids[i]] - logits[ids[0]]);
  Row out(c.hidden);
  for (int i = 0; i < c.n_chosen; i++) {
    Row gate = l.gates[ids[i]].times(h), up = l.ups[ids[i]].times(h);
    for (int j = 0; j < c.intermediate; j++) {
      const double g = std::min(gate[j], 7.0), u = std::max(-7.0, std::min(up[j], 7.0));
      gate[j] = g / (1 + exp(-1.702 * g)) * (1 + u);
    }
    const Row d = l.downs[ids[i]].times(gate);
    for (int j = 0; j < c.hidden; j++) out[j] += exp(logits[ids[i]] - logits[ids[0]]) / total * d[j];
  }
  return out;
}

/* n numbers that share a scale, as a cache in 8 bits holds them (backend.h, KvType). */
static void round_q8(const double *from, int n, __half *to) {
  double largest = 0;
  for (int i = 0; i < n; i++) largest = std::max(largest, fabs(from[i]));
  __half scale = __float2half_rn((float)(largest / 127));
  const unsigned bits = __half_as_ushort(scale) + (__half2float(scale) < largest / 127);
  scale = __ushort_as_half((unsigned short)((bits + 15) & ~15u));
  for (int i = 0; i < n; i++)
    to[i] = __float2half_rn((float)(rint(from[i] / __half2float(scale)) * __half2float(scale)));
}

/* One step on the host. Returns the logits; the new keys and values go into f.keys and f.values,
 * rounded. */
static Row host_step(Fixture &f, int pos, int id) {
  const Case &c = f.c;
  const int dim = c.head_dim;
  Row x(f.embedding.begin() + (size_t)id * c.hidden, f.embedding.begin() + (size_t)(id + 1) * c.hidden);
  for (double &v : x) v *= kEmbeddingScale;
  for (int layer = 0; layer < c.n_layers; layer++) {
    const HostLayer &l = f.host[layer];
    Row h = normed(x, l.attn_norm, kEps), q = l.q.times(h), k = l.k.times(h), v = l.v.times(h);
    for (int head = 0; head < c.n_heads; head++) make_head(c, &q[head * dim], l.q_norm, pos);
    for (int head = 0; head < c.n_kv_heads; head++) {
      make_head(c, &k[head * dim], l.k_norm, pos);
      for (int d = 0; d < dim; d++) {
        const size_t at = (((size_t)layer * c.n_kv_heads + head) * f.n_ctx + f.base + pos) * dim + d;
        f.keys[at] = __float2half_rn((float)k[head * dim + d]);
        f.values[at] = __float2half_rn((float)v[head * dim + d]);
      }
      if (!c.q8) continue;
      const size_t at = (((size_t)layer * c.n_kv_heads + head) * f.n_ctx + f.base + pos) * dim;
      for (int d = 0; d < dim; d += KEY_SCALE_DIMS)
        round_q8(&k[head * dim + d], KEY_SCALE_DIMS, &f.keys[at + d]);
      round_q8(&v[head * dim], dim, &f.values[at]);
    }
    Row o = l.o.times(attention(f, layer, pos, q));
    for (int i = 0; i < c.hidden; i++) x[i] += o[i];
    h = normed(x, l.mlp_norm, kEps);
    Row d;
    if (c.n_experts > 0) {
      d = experts_of(c, l, h);
    } else {
      Row gate = l.gate.times(h), up = l.up.times(h);
      for (int i = 0; i < c.intermediate; i++) gate[i] = gate[i] / (1 + exp(-gate[i])) * up[i];
      d = l.down.times(gate);
    }
    for (int i = 0; i < c.hidden; i++) x[i] += d[i];
    if (layer == 0 || layer == c.n_layers - 1) f.states.insert(f.states.end(), x.begin(), x.end());
  }
  return f.head_host.times(normed(x, f.final_norm, kEps));
}

/* The numbers of one position of host_step()'s sequence in a cache. */
static Row cache_at(const Fixture &f, const std::vector<__half> &cache, int pos) {
  Row out;
  for (int head = 0; head < f.c.n_layers * f.c.n_kv_heads; head++)
    for (int d = 0; d < f.c.head_dim; d++)
      out.push_back(__half2float(cache[((size_t)head * f.n_ctx + f.base + pos) * f.c.head_dim + d]));
  return out;
}

/* How many numbers of a cache changed outside the n positions from `pos` on. */
static int changed_elsewhere(const Fixture &f, const std::vector<__half> &now,
                             const std::vector<__half> &before, int pos, int n) {
  int changed = 0;
  for (size_t i = 0; i < now.size(); i++) {
    const int at = (int)(i / f.c.head_dim % (size_t)f.n_ctx);
    changed += (at < pos || at >= pos + n) && memcmp(&now[i], &before[i], sizeof now[i]) != 0;
  }
  return changed;
}

/* Waits for the step, and reports where it hangs. */
static void finish(const StepHang *hang, const char *name) {
  cudaError_t failed_ = cudaDeviceSynchronize();
  if (failed_ == cudaSuccess) return;
  printf("FAILED %s: %s", name, cudaGetErrorString(failed_));
  if (hang->hung)
    printf(": block %d warp %d lane %d layer %d waits at place %d, number %d, parity %d", hang->block,
           hang->warp, hang->lane, hang->layer, hang->event, hang->number, hang->parity);
  printf("\n%d passed, %d failed\n", passed, failed + 1);
  exit(1);
}

/* Compares logits, and the new key and value of their position, with the host's, which are in f. */
static void expect_row(const Fixture &f, const char *name, double tolerance, const Row &got, const Row &want,
                       const std::vector<__half> &keys, const std::vector<__half> &values, int pos) {
  /* 8 bits: a number near the middle of two steps may become the other one. Errors of 1e-3 (the root of the
   * tolerance) of a number of 40 steps let 4% do so, each by a 40th of it. */
  if (f.c.q8) tolerance = 3e-5;
  double error_ = nmse(got, want);
  expect(error_ < tolerance, name, "NMSE of logits", error_);
  error_ = nmse(cache_at(f, keys, pos), cache_at(f, f.keys, pos));
  expect(error_ < tolerance, name, "NMSE of new keys", error_);
  error_ = nmse(cache_at(f, values, pos), cache_at(f, f.values, pos));
  expect(error_ < tolerance, name, "NMSE of new values", error_);
}

static StepModel model_of(const Fixture &f, int in_flight) {
  StepModel m = {};
  m.in_flight = in_flight;
  m.prefetch_stages = in_flight ? -1 : 5;
  m.layers = f.step_layers.data();
  m.lm_head = &f.head;
  m.final_norm = f.final_norm_device;
  m.embedding = f.embedding_device;
  m.embedding_stride = (size_t)f.embedding_stride;
  m.embedding_type = f.embedding_type;
  m.embedding_scale = kEmbeddingScale;
  m.norm_eps = kEps;
  m.attention_scale = scale_of(f.c);
  m.renormalise = f.c.n_experts > 0;
  m.window = f.c.window;
  for (int i = 0; i < f.c.n_layers; i++) m.windows |= (uint64_t)f.c.has_window(i) << i;
  MUST(screen_make(&f.head, f.screen, 0, &error));
  m.screen = f.screen;
  return m;
}

static StepShape shape_of(const Case &c, int shared) {
  const bool varied = c.n_experts > 0;
  StepShape s = {};
  s.hidden = varied ? ceil_div(c.hidden, (int)STEP_VARIED_COLUMNS) * STEP_VARIED_COLUMNS : c.hidden;
  s.width = varied ? c.hidden : 0;
  s.intermediate = varied ? c.n_chosen * c.intermediate : c.intermediate;
  s.n_layers = c.n_layers, s.n_heads = c.n_heads, s.n_kv_heads = c.n_kv_heads, s.vocab_size = c.vocab;
  s.group = c.group, s.attn_group = varied ? STEP_HALF_GROUP : 0;
  s.head_dim = c.head_dim, s.n_clusters = c.clusters, s.shared_bytes = (size_t)shared,
  s.max_slots = c.max_slots;
  s.n_experts = c.n_experts, s.n_chosen = c.n_chosen, s.q8 = c.q8;
  return s;
}

/* Opens the kernel for up to `rows` tokens; in_flight 0: the default, else with taps where there are kernels
 * with them, whose other results have to be the same bits. */
static Step *open_step(const Fixture &f, int rows, int shared, int in_flight, void **memory,
                       bool several = false) {
  StepModel m = model_of(f, in_flight);
  m.several = several;
  const StepShape shape = shape_of(f.c, shared);
  StepPlan plan;
  Step *step;
  if (in_flight && step_keeps_taps(&shape))
    m.taps = {f.taps, 1 | 1ull << (f.c.n_layers - 1), f.c.n_layers > 1 ? 2 : 1};
  MUST(step_plan(&shape, rows, &plan, &error));
  CHECK(cudaMalloc(memory, step_bytes(&shape, rows)));
  MUST(step_open(&m, &plan, *memory, 0, &step, &error));
  return step;
}

/* Enqueues a step and waits for it, with or without the watchdog. */
static void run_step(const Fixture &f, const Step *step, const StepCall &call, bool watched) {
  static StepHang *hang;
  if (!hang) CHECK(cudaHostAlloc(&hang, sizeof *hang, cudaHostAllocMapped));
  memset(hang, 0, sizeof *hang);
  const StepDebug debug = {hang, few ? 1ll << 50 : 2000000000ll, NULL, NULL};
  MUST(step_run(step, &call, watched ? &debug : NULL, 0, &error));
  finish(hang, f.c.name);
}

/* Compares the taps of a step of n rows by open_step()'s kernel with taps, and those of no row, with the
 * host's. */
static void expect_taps(Fixture &f, const char *name, double tolerance, int shared, int n) {
  const StepShape shape = shape_of(f.c, shared);
  const Row want = f.states;
  const std::vector<float> all = to_host<float>(f.taps, (size_t)16 * f.c.hidden);
  f.states.clear();
  CHECK(cudaMemset(f.taps, 0xff, all.size() * sizeof all[0]));
  if (!step_keeps_taps(&shape)) return;
  const double error_ = nmse(Row(all.begin(), all.begin() + want.size()), want);
  expect(error_ < tolerance, name, "NMSE of taps", error_);
  int more = 0;
  for (size_t i = want.size(); i < all.size(); i++) more += all[i] == all[i];
  expect(more == 0 && want.size() % n == 0, name, "numbers in taps of no row", more);
}

/* The exit status where no cluster runs: a skipped test on chips without clusters, a failure on Hopper. */
static int without_clusters() {
  int major = 0;
  CHECK(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, 0));
  if (major == 9)
    printf("FAIL: no cluster of the decode step runs at once\n0 passed, 1 failed\n");
  else
    printf("1 skipped: needs a GPU with clusters (compute capability 9.0)\n0 passed, 0 failed, 1 skipped\n");
  return major == 9;
}
