/* test_experts.cu - mixtures of experts: matmuls of chosen experts by every kernel, the router, the order
 * of rows, the sum. Needs a GPU.
 *
 *   test_experts         all shapes, some seconds
 *   test_experts few     small shapes for the emulator
 *
 * Matmuls are compared with one in double of the weights as a checkpoint stores them, each expert by
 * itself; tolerances are those of test_linear.cu, whose kernels these are. A gated result is rounded to
 * fp16, which adds a mean square of 0.54 (2^-11)^2 / 3 = 4.3e-8; half of outputs have small gates, so
 * single cases stray more. The router is compared with double: its sums of fp32 err by about sqrt(n) 2^-24
 * of their terms. */
#include <algorithm>
#include <math.h>
#include <random>
#include <string.h>
#include <vector>

#include "cuda/kernels/experts/experts.h"
#include "cuda/kernels/ops/norm_rope.h"
#include "test/cuda/linear_reference.cuh"

static int passed, failed, skipped;
/* `few` on a chip of 9.0: what it has no code of its own for is the same on an emulated 8.0. */
static bool only_new;
static cudaStream_t stream;
static LinearContext *context;
static std::mt19937 numbers(1);

static float between(float low, float high) {
  return low + (high - low) * (float)(numbers() >> 8) * 0x1p-24f;
}

template <class T> static T *to_device(const std::vector<T> &from) {
  T *to;
  CHECK(cudaMalloc((void **)&to, from.size() * sizeof(T) + 16));
  CHECK(cudaMemcpy(to, from.data(), from.size() * sizeof(T), cudaMemcpyHostToDevice));
  return to;
}

template <class T> static std::vector<T> to_host(const void *from, size_t n) {
  std::vector<T> to(n);
  CHECK(cudaStreamSynchronize(stream));
  CHECK(cudaMemcpy(to.data(), from, n * sizeof(T), cudaMemcpyDeviceToHost));
  return to;
}

/* --- matmuls */

struct Shape {
  WeightType type;
  int n_experts, n_chosen, n_in, n_out, group;
  bool gated, bias; /* gated: n_out is that of gate, and of up */
};

/* LinearExperts has what choices and places are. */
struct Choices {
  std::vector<int> ids, begins, choices, places;
};

/* Chosen experts, ordered by experts. */
static Choices ordered(const std::vector<int> &ids, int n_experts) {
  Choices c = {ids, {}, {}, std::vector<int>(ids.size())};
  for (int e = 0; e < n_experts; e++) {
    c.begins.push_back((int)c.choices.size());
    for (size_t i = 0; i < ids.size(); i++)
      if (ids[i] == e) c.places[i] = (int)c.choices.size(), c.choices.push_back((int)i);
  }
  c.begins.push_back((int)c.choices.size());
  return c;
}

/* UNEVEN: experts have very different numbers of rows, the last one almost n_tokens. ALIKE: every token
 * chooses the same experts. */
enum Spread { MIXED, UNEVEN, ALIKE };

/* Choices of n_tokens tokens: expert 1 is never chosen if there are others enough, the last one often. */
static Choices random_choices(int n_experts, int n_chosen, int n_tokens, Spread spread = MIXED) {
  std::vector<int> ids;
  for (int m = 0; m < n_tokens; m++) {
    if (spread == ALIKE && m > 0) {
      for (int i = 0; i < n_chosen; i++) ids.push_back(ids[i]);
      continue;
    }
    std::vector<int> order;
    for (int e = 0; e < n_experts; e++)
      if (e != 1 || n_chosen >= n_experts - 1) order.push_back(e);
    std::shuffle(order.begin(), order.end() - (m % 2 && n_experts > n_chosen + 2), numbers);
    if (m % 2) std::swap(order[0], order.back());
    if (spread == UNEVEN) { /* the largest of uniform numbers to the power 1 / (e + 1) are chosen */
      std::vector<double> key(n_experts);
      for (int e = 0; e < n_experts; e++) key[e] = pow(between(0, 1), 1.0 / (e + 1));
      std::sort(order.begin(), order.end(), [&](int a, int b) { return key[a] > key[b]; });
    }
    ids.insert(ids.end(), order.begin(), order.begin() + n_chosen);
  }
  return ordered(ids, n_experts);
}

/* The matrix on the device, and in double [expert][n_in][rows], where rows are gate's and then up's. */
struct OfExperts {
  DeviceLinear w;
  void *memory;
  double *expanded;
  std::vector<float> bias; /* [expert][rows] */
  int rows;
};

static OfExperts make_matrix(const Shape &s, bool summed) {
  OfExperts m;
  const int n_parts = s.gated ? 2 : 1;
  m.rows = n_parts * s.n_out;
  size_t bytes;
  MUST(linear_lay_out(&m.w, "experts", s.type, s.n_in, s.n_experts * m.rows,
                      weight_is_quantised(s.type) ? s.group : 0, s.gated, s.bias, &bytes, &error));
  MUST(linear_lay_out_experts(&m.w, s.n_experts, s.n_chosen, summed, &error));
  CHECK(cudaMalloc(&m.memory, bytes));
  MUST(linear_place(&m.w, m.memory, stream, &error));
  CHECK(cudaMalloc((void **)&m.expanded, (size_t)s.n_experts * s.n_in * m.rows * sizeof(double)));
  for (int e = 0; e < s.n_experts * m.rows; e++) m.bias.push_back(s.bias ? between(-1, 1) : 0);
  float *bias = to_device(m.bias);
  for (int e = 0; e < s.n_experts; e++) {
    Stored parts[2];
    const DeviceLinear own = linear_expert(&m.w, e);
    for (int i = 0; i < n_parts; i++) {
      parts[i] = stored_random(s.type, s.n_in, s.n_out, s.group, (uint64_t)(s.n_in * 31 + 2 * e + i));
      expand<<<64, 256, 0, stream>>>(parts[i], m.expanded + (size_t)e * s.n_in * m.rows, m.rows, i * s.n_out);
    }
    fill_parts(&own, parts, n_parts, s.bias ? bias + (size_t)e * m.rows : NULL, stream);
    CHECK(cudaStreamSynchronize(stream));
    for (int i = 0; i < n_parts; i++) stored_free(&parts[i]);
  }
  cudaFree(bias);
  return m;
}

static constexpr float kLimit = 0.75f; /* of ACTIVATION_LIMITED */

static double activated(Activation activation, double gate, double up) {
  if (activation == ACTIVATION_LIMITED)
    return fmin(gate / (1 + exp(-gate)), kLimit) * fmax(-kLimit, fmin(up, kLimit));
  if (activation == ACTIVATION_RELU) return fmax(gate, 0) * up;
  if (activation == ACTIVATION_SILU) return gate / (1 + exp(-gate)) * up;
  if (activation == ACTIVATION_GELU_TANH)
    return gate / 2 * (1 + tanh(sqrt(2 / M_PI) * (gate + 0.044715 * gate * gate * gate))) * up;
  const double c = fmin(gate, 7), u = fmax(-7, fmin(up, 7));
  return c / (1 + exp(-1.702 * c)) * (1 + u);
}

/* y[i] = x[from[i]] times the matrix of expert ids[i]; a block has a row of y. */
static __global__ void multiply_choices(const double *w, const double *x, const int *ids, const int *from,
                                        double *y, int n_in, int n_out) {
  const double *own = w + (size_t)ids[blockIdx.x] * n_in * n_out, *row = x + (size_t)from[blockIdx.x] * n_in;
  for (int o = threadIdx.x; o < n_out; o += blockDim.x) {
    double sum = 0;
    for (int k = 0; k < n_in; k++) sum += row[k] * own[(size_t)k * n_out + o];
    y[(size_t)blockIdx.x * n_out + o] = sum;
  }
}

/* The product of each choice's row of x, from[choice], with its expert: [choice][rows of the matrix]. */
static std::vector<double> products_of(const Shape &s, const OfExperts &m, const __half *x, int x_stride,
                                       int n_rows, const std::vector<int> &ids,
                                       const std::vector<int> &from) {
  double *xd, *yd;
  int *ids_device = to_device(ids), *from_device = to_device(from);
  CHECK(cudaMalloc((void **)&xd, (size_t)n_rows * s.n_in * sizeof(double)));
  CHECK(cudaMalloc((void **)&yd, ids.size() * m.rows * sizeof(double)));
  expand_x<<<64, 128, 0, stream>>>(x, x_stride, xd, s.n_in, n_rows, 0);
  multiply_choices<<<(unsigned)ids.size(), 256, 0, stream>>>(m.expanded, xd, ids_device, from_device, yd,
                                                             s.n_in, m.rows);
  std::vector<double> y = to_host<double>(yd, ids.size() * m.rows);
  for (void *p : {(void *)xd, (void *)yd, (void *)ids_device, (void *)from_device}) cudaFree(p);
  return y;
}

/* n numbers: 0, then one more after each `same` of them. */
static std::vector<int> in_steps(int n, int same) {
  std::vector<int> to;
  for (int i = 0; i < n; i++) to.push_back(i / same);
  return to;
}

static double limit_of(const char *kernel, bool gated) {
  const double limit = strcmp(kernel, "awq_planes") == 0 ? 1e-7
                       : strncmp(kernel, "awq_tensorcore", 14) == 0 || strcmp(kernel, "awq_wgmma") == 0
                           ? 2.5e-7
                           : 1e-9;
  return gated ? 3 * limit + 2e-7 : limit;
}

/* One call's operands and what it should give: want[row of y][n_out]. */
struct Case {
  const Shape *shape;
  const OfExperts *matrix;
  int n_tokens;
  const Choices *choices;
  bool as_one;
  const __half *x;
  int x_stride;
  const float *row_factors; /* on the device */
  Activation activation;
  const int *ids, *begins, *of_places; /* on the device */
  std::vector<double> want;
  int n_rows;
  bool gathered;
};

/* True if the results are an activation's: of gate and up, or of up, which also is the gate. */
static bool activates(const Case &c) {
  return c.shape->gated || c.activation == ACTIVATION_RELU;
}

static void check_case(const Case &c, const char *kernel, int variant) {
  const Shape &s = *c.shape;
  const size_t y_stride = (size_t)s.n_out + 8, n = (size_t)(c.n_rows + 1) * y_stride;
  void *y;
  CHECK(cudaMalloc(&y, n * 4));
  std::vector<float> got[2];
  const LinearExperts experts = {c.ids, c.as_one ? NULL : c.begins, c.as_one ? NULL : c.of_places,
                                 c.gathered};
  for (int again = 0; again < 2; again++) {
    CHECK(cudaMemsetAsync(y, 0xff, n * 4, stream));
    LinearCall call = {&c.matrix->w,
                       c.x,
                       c.x_stride,
                       c.n_tokens,
                       activates(c) ? LINEAR_SWIGLU_F16 : LINEAR_TO_F32,
                       y,
                       (int)y_stride,
                       ACT_F16,
                       again == 1,
                       kernel,
                       variant,
                       c.activation,
                       kLimit,
                       c.row_factors,
                       &experts};
    const Status status = linear_run(context, &call, &error);
    if (status == STATUS_USAGE && variant > 0) { /* there is no such tile shape */
      cudaFree(y);
      return;
    }
    MUST(status);
    if (activates(c))
      for (__half h : to_host<__half>(y, n)) got[again].push_back(__half2float(h));
    else
      got[again] = to_host<float>(y, n);
  }
  double error2 = 0, size2 = 0;
  int outside = 0, differ = 0;
  for (size_t i = 0; i < n; i++) {
    const size_t row = i / y_stride, o = i % y_stride;
    differ += memcmp(&got[0][i], &got[1][i], 4) != 0;
    if (row >= (size_t)c.n_rows || o >= (size_t)s.n_out) {
      outside += !isnan(got[0][i]);
      continue;
    }
    const double want = c.want[row * s.n_out + o], d = got[0][i] - want;
    error2 += isnan(d) ? 1e300 : d * d;
    size2 += want * want;
  }
  const bool good = error2 <= limit_of(kernel, activates(c)) * size2 && size2 > 0 && !outside && !differ;
  good ? passed++ : failed++;
  if (!good)
    printf("FAIL %s variant %d, %s %d experts, %d chosen, %d -> %d group %d, %d tokens%s%s: NMSE %.3g, %d "
           "differ, %d outside\n",
           kernel, variant, weight_type_name(s.type), s.n_experts, s.n_chosen, s.n_in, s.n_out, s.group,
           c.n_tokens, c.as_one ? " as one" : "", s.gated ? " gated" : "", error2 / size2, differ, outside);
  cudaFree(y);
}

/* The rows of y as norm_experts_residual in backend.h defines them. products: products_of(). */
static std::vector<double> wanted(const Case &c, const std::vector<double> &products, const float *factors) {
  const Shape &s = *c.shape;
  const OfExperts &m = *c.matrix;
  std::vector<double> want((size_t)c.n_rows * s.n_out, 0);
  for (size_t i = 0; i < c.choices->ids.size(); i++) {
    const size_t place = c.as_one ? i : (size_t)c.choices->places[i], to = c.as_one && m.w.summed ? 0 : place;
    const int e = c.choices->ids[i];
    const double *row = &products[i * m.rows];
    const float *bias = &m.bias[(size_t)e * m.rows];
    for (int o = 0; o < s.n_out; o++) {
      const int up = s.gated ? s.n_out + o : o;
      want[to * s.n_out + o] +=
          activates(c) ? factors[place] * activated(c.activation, row[o] + bias[o], row[up] + bias[up])
                       : row[o] + factors[place] * bias[o];
    }
  }
  return want;
}

/* All kernels for one shape and count of tokens, as one matrix and ordered by experts. */
static void check_shape(const Shape &s, bool summed, int n_tokens, int n_variants, Spread spread = MIXED) {
  OfExperts m = make_matrix(s, summed);
  const Choices choices = random_choices(s.n_experts, s.n_chosen, n_tokens, spread);
  const int n_choices = n_tokens * s.n_chosen, n_x = summed ? n_choices : n_tokens;
  const int x_stride = (s.n_in + 127) / 128 * 128;
  std::vector<__half> x((size_t)n_x * x_stride, __float2half_rn(0));
  /* Random weights of 8 bits are 16 times as large as those of 4. With products far beyond the limits of an
   * activation, the products' errors would be large beside its results. */
  const float size = s.type == WEIGHT_AWQ8 ? 1.0f / 16 : 1;
  for (int r = 0; r < n_x; r++)
    for (int k = 0; k < s.n_in; k++)
      x[(size_t)r * x_stride + k] = __float2half_rn(size * activation(7, r, k));
  std::vector<float> factors;
  for (int i = 0; i < n_choices; i++) factors.push_back(between(0.05f, 1));
  Case c = {&s,
            &m,
            n_tokens,
            &choices,
            false,
            to_device(x),
            x_stride,
            to_device(factors),
            ACTIVATION_SILU,
            to_device(choices.ids),
            to_device(choices.begins),
            to_device(choices.choices),
            {},
            n_choices};
  if (s.gated) c.activation = (Activation)(numbers() % ACTIVATION_RELU);
  if (!s.gated && !summed) c.activation = ACTIVATION_RELU;
  std::vector<double> products[2]; /* by as_one: x of summed experts lies by choice or by place */
  MUST(linear_prepare(context, &m.w, ACT_F16, std::max(n_tokens, 2), NULL, &error));
  std::vector<__half> by_place((size_t)n_choices * x_stride);
  for (int p = 0; p < n_choices; p++)
    for (int k = 0; k < x_stride; k++)
      by_place[(size_t)p * x_stride + k] =
          x[(size_t)(summed ? p : choices.choices[p] / s.n_chosen) * x_stride + k];
  __half *tokens = (__half *)c.x, *gathered = to_device(by_place);
  for (int i = 0; linear_expert_entry(i); i++) {
    const LinearEntry *entry = linear_expert_entry(i), *chosen;
    c.as_one = entry->to == 1;
    if (c.as_one && n_tokens > 1) continue;
    if (linear_choice(context, &m.w, ACT_F16, n_tokens, entry->name, &chosen, NULL) != STATUS_OK) continue;
    if (only_new && entry->first_chip != SM_90A) {
      skipped++;
      continue;
    }
    if (products[c.as_one].empty())
      products[c.as_one] =
          products_of(s, m, tokens, x_stride, n_x, choices.ids,
                      summed && !c.as_one ? choices.places : in_steps(n_choices, summed ? 1 : s.n_chosen));
    c.n_rows = c.as_one && summed ? 1 : n_choices;
    c.want = wanted(c, products[c.as_one], factors.data());
    MUST(linear_prepare(context, &m.w, ACT_F16, n_tokens, entry->name, &error));
    c.gathered = entry->launch == LAUNCH_AWQ_WGMMA;
    c.x = c.gathered ? gathered : tokens;
    for (int v = 0; v <= (c.as_one ? 0 : n_variants); v++) check_case(c, entry->name, v);
  }
  for (const void *p :
       {(const void *)tokens, (const void *)gathered, (const void *)c.row_factors, (const void *)c.ids,
        (const void *)c.begins, (const void *)c.of_places, (const void *)m.memory, (const void *)m.expanded})
    cudaFree((void *)p);
}

#include "test/cuda/experts_beside.cuh"

/* Compares `got` with the wanted numbers; those past them must be NaN. */
static void check_sums(const Shape &s, int n_tokens, const std::vector<float> &got,
                       const std::vector<float> &again, const std::vector<double> &want, double limit) {
  double error2 = 0, size2 = 0;
  int outside = 0;
  for (size_t i = 0; i < got.size(); i++) {
    if (i >= want.size()) {
      outside += !isnan(got[i]);
      continue;
    }
    const double wanted = want[i], d = got[i] - wanted;
    error2 += isnan(d) ? 1e300 : d * d;
    size2 += wanted * wanted;
  }
  const bool same = memcmp(got.data(), again.data(), got.size() * sizeof got[0]) == 0;
  const bool good = error2 <= limit * size2 && size2 > 0 && !outside && same;
  good ? passed++ : failed++;
  if (!good)
    printf("FAIL experts of few tokens, %s %d experts, %d chosen, %d -> %d group %d, %d tokens: NMSE %.3g, "
           "%d outside%s\n",
           weight_type_name(s.type), s.n_experts, s.n_chosen, s.n_in, s.n_out, s.group, n_tokens,
           error2 / size2, outside, same ? "" : ", another result the second time");
}

/* experts_few() against products in double, whose g is rounded to fp16 as the kernel's is. up: gate and up,
 * or if it is not gated up alone. */
static void check_few(const Shape &up, const Shape &down, int n_tokens, Activation activation) {
  OfExperts m_up = make_matrix(up, false), m_down = make_matrix(down, true);
  DeviceLimits limits = linear_limits(context);
  const bool has_few = limits.arch >= SM(9, 0) && limits.shared_bytes >= 200 << 10;
  DeviceLinear long_rows = m_up.w; /* shared memory does not hold half of a row */
  long_rows.n_in = 1 << 16;
  if (experts_few_takes(&m_up.w, &m_down.w, &limits, n_tokens) != has_few ||
      experts_few_takes(&long_rows, &m_down.w, &limits, n_tokens) ||
      experts_few_takes(&m_up.w, &m_down.w, &limits, 1) ||
      experts_few_takes(&m_up.w, &m_down.w, &limits, EXPERTS_FEW_TOKENS + 1)) {
    failed++;
    printf("FAIL experts of few tokens: wrong choice for %s group %d\n", weight_type_name(up.type), up.group);
  }
  if (!has_few) {
    for (const void *p : {(const void *)m_up.memory, (const void *)m_down.memory, (const void *)m_up.expanded,
                          (const void *)m_down.expanded})
      cudaFree((void *)p);
    return;
  }
  const Choices choices = random_choices(up.n_experts, up.n_chosen, n_tokens, n_tokens % 2 ? UNEVEN : MIXED);
  const int n = n_tokens * up.n_chosen, h_stride = up.n_in + 8, n_parts = experts_few_parts(n);
  std::vector<__half> h((size_t)n_tokens * h_stride, __float2half_rn(NAN)), g;
  for (int r = 0; r < n_tokens; r++)
    for (int k = 0; k < up.n_in; k++) h[(size_t)r * h_stride + k] = __float2half_rn(::activation(7, r, k));
  std::vector<float> weights, before, out[2];
  for (int i = 0; i < n; i++) weights.push_back(between(0.05f, 1));
  for (int i = 0; i < n_tokens * down.n_out; i++) before.push_back(between(-1, 1));
  before.insert(before.end(), (size_t)down.n_out, NAN); /* nothing is to be written there */
  __half *h_device = to_device(h);
  FewExperts call = {&m_up.w, &m_down.w,         {},   h_device,   h_stride, n_tokens,
                     NULL,    n_tokens % 3 == 0, NULL, activation, kLimit};
  call.choices.ids = to_device(choices.ids), call.choices.weights = to_device(weights);
  call.choices.choices = to_device(std::vector<int>(n)), call.choices.places = to_device(std::vector<int>(n));
  CHECK(cudaMalloc((void **)&call.parts, (size_t)n_parts * down.n_out * 4));
  for (int i = 0; i < 2; i++) {
    CHECK(cudaMemsetAsync(call.parts, 0xff, (size_t)n_parts * down.n_out * 4, stream));
    call.out = to_device(before);
    MUST(experts_few(&call, &limits, stream, &error));
    out[i] = to_host<float>(call.out, before.size());
    cudaFree(call.out);
  }
  const std::vector<double> of_h =
      products_of(up, m_up, h_device, h_stride, n_tokens, choices.ids, in_steps(n, up.n_chosen));
  for (int i = 0; i < n; i++) {
    const size_t e = (size_t)choices.ids[i];
    const double *row = &of_h[(size_t)i * m_up.rows];
    const float *bias = &m_up.bias[e * m_up.rows];
    for (int o = 0; o < up.n_out; o++) {
      const double gate = row[o] + bias[o];
      const double product =
          weights[i] * activated(activation, gate, up.gated ? row[up.n_out + o] + bias[up.n_out + o] : gate);
      g.push_back(__float2half_rn((float)std::max(-65504.0, std::min(65504.0, product))));
    }
  }
  __half *g_device = to_device(g);
  const std::vector<double> of_g =
      products_of(down, m_down, g_device, down.n_in, n, choices.ids, in_steps(n, 1));
  std::vector<double> want;
  for (int t = 0; t < n_tokens; t++)
    for (int o = 0; o < down.n_out; o++) {
      double sum = call.add ? before[(size_t)t * down.n_out + o] : 0;
      for (int i = t * up.n_chosen; i < (t + 1) * up.n_chosen; i++) {
        const size_t e = (size_t)choices.ids[i];
        sum += of_g[(size_t)i * down.n_out + o] + weights[i] * m_down.bias[e * m_down.rows + o];
      }
      want.push_back(sum);
    }
  check_sums(down, n_tokens, out[0], out[1], want, 2.5e-7);
  for (const void *p :
       {(const void *)h_device, (const void *)g_device, (const void *)call.parts,
        (const void *)call.choices.ids, (const void *)call.choices.weights,
        (const void *)call.choices.choices, (const void *)call.choices.places, (const void *)m_up.memory,
        (const void *)m_down.memory, (const void *)m_up.expanded, (const void *)m_down.expanded})
    cudaFree((void *)p);
}

static void check_few_tokens(bool few) {
  const struct {
    WeightType type;
    int group;
  } kinds[] = {{WEIGHT_AWQ4, 128}, {WEIGHT_AWQ4, 64},  {WEIGHT_AWQ4, 32},
               {WEIGHT_AWQ8, 64},  {WEIGHT_AWQ8, 128}, {WEIGHT_AWQ8, 32},
               {WEIGHT_FP4, 16},   {WEIGHT_FP8, 64},   {WEIGHT_FP8, 128}};
  for (const auto &kind : kinds) {
    const int width =
        kind.group == 64 ? 128 : std::max(kind.group, 64); /* one group of 64 would be laid out as 128 */
    const Shape up = {kind.type, 7, 3, 640, width, kind.group, true, true},
                up_alone = {kind.type, 7, 3, 640, width, kind.group, false, true},
                down = {kind.type, 7, 3, width, 80, kind.group, false, true};
    for (int n_tokens : {5, 20, 2}) {
      check_few(up, down, n_tokens, (Activation)(n_tokens % ACTIVATION_RELU));
      if (few && n_tokens == 20) break;
      check_few(up_alone, down, n_tokens, ACTIVATION_RELU);
    }
    check_few({kind.type, 3, 1, 4608, width, kind.group, true, true}, /* more tile rows of down for a warp */
              {kind.type, 3, 1, width, 4608, kind.group, false, true}, 2, ACTIVATION_SILU);
    check_few({kind.type, 2, 1, 256, width, kind.group, true, false}, /* an expert of more than 16 tokens */
              {kind.type, 2, 1, width, 256, kind.group, false, false}, 32, ACTIVATION_SILU);
    if (few) continue;
    for (int n_tokens : {2, 3, 4, 7, 8, 9, 15, 17, 32})
      check_few({kind.type, 64, 8, 512, 256, kind.group, true, false},
                {kind.type, 64, 8, 256, 512, kind.group, false, false}, n_tokens, ACTIVATION_SILU);
    for (int n_tokens : {2, 3, 4, 7, 8, 9, 15})
      check_few({kind.type, 3, 1, 2048, 1024, kind.group, true, false},
                {kind.type, 3, 1, 1024, 2048, kind.group, false, false}, n_tokens, ACTIVATION_SILU);
  }
  if (few) return;
  for (int n_tokens : {2, 8, 15, 24}) {
    check_few({WEIGHT_AWQ4, 1000, 8, 256, 128, 128, true, false},
              {WEIGHT_AWQ4, 1000, 8, 128, 256, 128, false, false}, n_tokens, ACTIVATION_SILU);
    check_few({WEIGHT_FP4, 32, 4, 2880, 2880, 32, true, true},
              {WEIGHT_FP4, 32, 4, 2880, 2880, 32, false, true}, n_tokens, ACTIVATION_CLAMPED);
    check_few({WEIGHT_AWQ4, 128, 8, 2048, 768, 128, true, false},
              {WEIGHT_AWQ4, 128, 8, 768, 2048, 128, false, false}, n_tokens, ACTIVATION_SILU);
  }
}

static void check_matmuls(bool few) {
  const int group_of[] = {64, 64, 16, 128, 0, 0, 0, 0};
  const WeightType types[] = {WEIGHT_AWQ4, WEIGHT_AWQ8, WEIGHT_FP4, WEIGHT_FP8,
                              WEIGHT_F16,  WEIGHT_BF16, WEIGHT_F32};
  for (WeightType type : types) {
    const Shape gated = {type, 7, 3, 256, 48, group_of[type], true, true},
                ungated = {type, 7, 3, 256, 48, group_of[type], false, true},
                down = {type, 7, 3, 192, 80, type == WEIGHT_FP8 ? 192 : group_of[type], false, true};
    const bool often = !few || type == WEIGHT_AWQ4 || type == WEIGHT_FP4;
    for (int n_tokens : {5, 1}) {
      if (n_tokens > 1 && !often) continue;
      check_shape(gated, false, n_tokens, few ? 0 : 6);
      check_shape(ungated, false, n_tokens, few ? 0 : 6);
      check_shape(down, true, n_tokens, few ? 0 : 6);
    }
    if (few) continue;
    for (int n_tokens : {2, 33, 200}) {
      check_shape({type, 16, 4, 512, 128, group_of[type], true, false}, false, n_tokens, 6);
      check_shape({type, 16, 4, 256, 256, group_of[type], false, false}, true, n_tokens, 6);
    }
  }
  for (WeightType type : {WEIGHT_AWQ4, WEIGHT_AWQ8})
    check_shape({type, 7, 3, 192, 80, 16, type == WEIGHT_AWQ4, false}, false, 5, few ? 0 : 6);
  /* awq_wgmma's tiles of all heights */
  check_shape({WEIGHT_AWQ4, 9, 2, 256, 160, 128, false, true}, true, 120, 4, UNEVEN);
  check_shape({WEIGHT_AWQ4, 9, 2, 128, 48, 128, true, true}, false, 60, 4, UNEVEN);
  check_shape({WEIGHT_AWQ4, 9, 2, 128, 160, 32, false, true}, true, 300, 4, UNEVEN);
  check_shape({WEIGHT_FP4, 9, 2, 128, 160, 16, false, true}, false, 200, 4, UNEVEN);
  /* far fewer tiles than the host counted on: less than a step of awq_tensorcore for each of its blocks */
  check_shape({WEIGHT_AWQ4, 64, 1, 512, 128, 128, false, true}, false, 16, 0, ALIKE);
  if (few) return;
  for (WeightType type : {WEIGHT_AWQ4, WEIGHT_FP4, WEIGHT_FP8})
    for (int n_tokens : {300, 1000, 1700}) {
      check_shape({type, 16, 2, 512, 144, group_of[type], true, true}, false, n_tokens, 0, UNEVEN);
      check_shape({type, 16, 2, 256, 400, group_of[type], false, false}, true, n_tokens, 4, UNEVEN);
    }
  check_shape({WEIGHT_AWQ4, 300, 2, 256, 48, 64, false, false}, true, 1000, 4, UNEVEN); /* a long list */
  for (int group : {32, 128}) {
    check_shape({WEIGHT_AWQ4, 64, 8, 2048, 768, group, true, false}, false, 1, 0);
    check_shape({WEIGHT_AWQ4, 64, 8, 768, 2048, group, false, false}, true, 1, 0);
    check_shape({WEIGHT_AWQ4, 64, 8, 2048, 768, group, true, false}, false, 300, 6);
    check_shape({WEIGHT_AWQ4, 64, 8, 768, 2048, group, false, false}, true, 300, 6);
  }
  for (int n_tokens : {1, 3, 70}) { /* gpt-oss; odd groups */
    check_shape({WEIGHT_FP4, 32, 4, 2880, 2880, 32, true, true}, false, n_tokens, 0);
    check_shape({WEIGHT_FP4, 32, 4, 2880, 2880, 32, false, true}, true, n_tokens, 0);
    check_shape({WEIGHT_AWQ4, 5, 2, 240, 48, 48, true, false}, false, n_tokens, 0);
    check_shape({WEIGHT_AWQ4, 5, 2, 240, 48, 24, false, false}, true, n_tokens, 0);
    check_shape({WEIGHT_F16, 40, 32, 100, 16, 0, true, false}, false, n_tokens, 0);
  }
}

/* A chip whose shared memory holds the stages of FP8's tiles of 64 tokens, but not the list of experts
 * beside them. */
static void check_less_memory(void) {
  LinearContext *usual = context;
  setenv("EMULATED_SHARED", "99848", 1);
  MUST(linear_open(0, stream, &context, &error));
  check_shape({WEIGHT_FP8, 2, 1, 128, 48, 128, false, true}, false, 80, 0);
  CHECK(cudaStreamSynchronize(stream));
  linear_close(context);
  unsetenv("EMULATED_SHARED");
  context = usual;
}

/* --- the router, the order of rows, the sum */

static void said(bool good, const char *what, int n_tokens) {
  good ? passed++ : failed++;
  if (!good) printf("FAIL %s, %d tokens\n", what, n_tokens);
}

/* The formulas of backend.h in double, for one token: fitness of all experts, and weights of the experts
 * `ids`. */
static std::vector<double> router_fitness(const ExpertConfig &c, const std::vector<double> &logits,
                                          const std::vector<float> &bias, std::vector<double> *scores) {
  double sum = 0;
  *scores = logits;
  if (c.score == SCORE_SOFTMAX)
    for (double l : logits) sum += exp(l);
  for (double &v : *scores)
    v = c.score == SCORE_SOFTMAX ? exp(v) / sum : c.score == SCORE_SIGMOID ? 1 / (1 + exp(-v)) : v;
  std::vector<double> fitness = *scores;
  for (int e = 0; e < c.n_experts; e++) fitness[e] += c.choice_bias ? bias[e] : 0;
  const int size = c.n_experts / c.n_groups;
  std::vector<std::pair<double, int>> groups;
  for (int g = 0; g < c.n_groups; g++) {
    std::vector<double> own(fitness.begin() + g * size, fitness.begin() + (g + 1) * size);
    std::sort(own.rbegin(), own.rend());
    groups.push_back({-(own[0] + (size > 1 && !c.group_is_best ? own[1] : 0)), g});
  }
  std::sort(groups.begin(), groups.end());
  for (int i = c.n_chosen_groups; i < c.n_groups; i++)
    for (int e = 0; e < size; e++) fitness[groups[i].second * size + e] = -INFINITY;
  return fitness;
}

static std::vector<double> router_weights(const ExpertConfig &c, const std::vector<double> &scores,
                                          const std::vector<float> &scales, const int *ids) {
  std::vector<double> w;
  double sum = 0;
  for (int i = 0; i < c.n_chosen; i++) {
    const double v = scores[ids[i]];
    w.push_back(c.score == SCORE_CHOSEN ? exp(v) : c.score == SCORE_CHOSEN_SIGMOID ? 1 / (1 + exp(-v)) : v);
    sum += w.back();
  }
  std::vector<double> left = scores;
  for (int i = 0; c.score == SCORE_CHOSEN_NEAR && i < c.n_chosen; i++) {
    const double own = scores[ids[i]];
    double all = 0;
    for (double v : left) all += (own - v) / std::max(fabs(v), own) <= c.near ? exp(v - own) : 0;
    w[i] = 1 / all, left[ids[i]] = -INFINITY;
  }
  for (int i = 0; i < c.n_chosen; i++) {
    if (c.score == SCORE_CHOSEN || c.renormalise) w[i] /= sum + c.sum_plus;
    w[i] *= c.scale * (c.norms == EXPERTS_OWN_NORMS ? scales[ids[i]] : 1);
  }
  return w;
}

static void check_router_once(const ExpertConfig &c, int hidden, WeightType type, int n_tokens, float size,
                              bool invariant) {
  const DeviceLimits limits = linear_limits(context);
  std::vector<float> x, norm, by, choice_bias, scales, router_bias, matrix;
  for (int i = 0; i < n_tokens * hidden; i++) x.push_back(between(-size, size));
  for (int i = 0; i < hidden; i++) norm.push_back(between(0.5f, 1.5f)), by.push_back(between(0.5f, 1.5f));
  for (int e = 0; e < c.n_experts; e++) {
    choice_bias.push_back(between(-0.2f, 0.2f)), scales.push_back(between(0.5f, 2));
    router_bias.push_back(between(-1, 1));
  }
  Stored stored = stored_random(type, hidden, c.n_experts, 1, 5),
         gate_stored = stored_random(type, hidden, 1, 1, 6);
  float *bias_device = to_device(router_bias);
  DeviceLinear router, gate;
  void *memory = place(&router, &stored, 1, false, c.biases ? bias_device : NULL, "router", stream),
       *gate_memory = place(&gate, &gate_stored, 1, false, NULL, "gate", stream);
  double *expanded, *expanded_gate;
  CHECK(cudaMalloc((void **)&expanded, (size_t)hidden * c.n_experts * 8));
  CHECK(cudaMalloc((void **)&expanded_gate, (size_t)hidden * 8));
  expand<<<64, 256, 0, stream>>>(stored, expanded, c.n_experts, 0);
  expand<<<64, 256, 0, stream>>>(gate_stored, expanded_gate, 1, 0);
  const std::vector<double> w = to_host<double>(expanded, (size_t)hidden * c.n_experts),
                            wg = to_host<double>(expanded_gate, (size_t)hidden);
  Router call = {};
  void *of_choices;
  const size_t bytes = experts_choices_bytes(&c, n_tokens);
  CHECK(cudaMalloc(&of_choices, bytes));
  CHECK(cudaMemset(of_choices, 0, bytes));
  experts_place_choices(&call.to, &c, n_tokens, of_choices);
  call.config = &c, call.hidden = hidden, call.eps = 1e-6f, call.x_factor = 1;
  call.x = to_device(x), call.norm = to_device(norm), call.h_stride = (hidden + 7) / 8 * 8 + 8;
  CHECK(cudaMalloc(&call.h, (size_t)n_tokens * call.h_stride * 2));
  CHECK(cudaMalloc(&call.experts_h, (size_t)n_tokens * call.h_stride * 2));
  if (c.norms == EXPERTS_OWN_NORMS) call.experts_norm = to_device(by), call.router_scale = to_device(by);
  call.invariant = invariant;
  call.slice_floats = (size_t)(c.n_experts + 1) * 16;
  CHECK(cudaMalloc((void **)&call.slices, n_tokens * call.slice_floats * sizeof(float)));
  call.router = &router, call.shared_gate = c.shared_output == SHARED_GATED ? &gate : NULL;
  if (c.choice_bias) call.choice_bias = to_device(choice_bias);
  if (c.norms == EXPERTS_OWN_NORMS) call.scales = to_device(scales);
  for (int i = 0; i < 2; i++) /* the second finds its counters as the first did */
    MUST(experts_route(&call, n_tokens, &limits, stream, &error));
  const std::vector<int> ids = to_host<int>(call.to.ids, (size_t)n_tokens * c.n_chosen);
  const std::vector<float> weights = to_host<float>(call.to.weights, ids.size());
  const std::vector<float> shared = to_host<float>(call.to.shared_factors, (size_t)n_tokens);
  const std::vector<__half> h = to_host<__half>(call.h, (size_t)n_tokens * call.h_stride);
  bool good = true;
  for (int m = 0; m < n_tokens && good; m++) {
    double square = 0, gate_sum = 0;
    for (int i = 0; i < hidden; i++) square += (double)x[m * hidden + i] * x[m * hidden + i];
    const double inverse = 1 / sqrt(square / hidden + 1e-6);
    std::vector<double> logits((size_t)c.n_experts, 0), scores;
    for (int i = 0; i < hidden; i++) {
      const double v = x[m * hidden + i] * inverse,
                   in = c.norms == EXPERTS_OWN_NORMS ? v * by[i] / sqrt(hidden) : v * norm[i];
      good = good && fabs(__half2float(h[(size_t)m * call.h_stride + i]) - v * norm[i]) <=
                         0x1p-10 * fabs(v * norm[i]) + 0x1p-25;
      gate_sum += in * wg[i];
      for (int e = 0; e < c.n_experts; e++) logits[e] += in * w[(size_t)i * c.n_experts + e];
    }
    for (int e = 0; e < c.n_experts; e++) logits[e] += c.biases ? router_bias[e] : 0;
    const std::vector<double> fitness = router_fitness(c, logits, choice_bias, &scores);
    const int *own = &ids[(size_t)m * c.n_chosen];
    std::vector<bool> taken((size_t)c.n_experts, false);
    double worst = INFINITY;
    for (int i = 0; i < c.n_chosen; i++) {
      if (own[i] < 0 || own[i] >= c.n_experts || taken[own[i]]) return said(false, "chosen twice", n_tokens);
      taken[own[i]] = true;
      good = good && fitness[own[i]] <= worst + 1e-5;
      worst = fitness[own[i]];
    }
    for (int e = 0; e < c.n_experts; e++) good = good && (taken[e] || fitness[e] <= worst + 1e-5);
    const std::vector<double> want = router_weights(c, scores, scales, own);
    for (int i = 0; i < c.n_chosen; i++)
      good = good && fabs(weights[(size_t)m * c.n_chosen + i] - want[i]) <= 1e-5 * fabs(want[i]) + 1e-7;
    if (c.shared_output == SHARED_GATED) good = good && fabs(shared[m] - 1 / (1 + exp(-gate_sum))) < 1e-5;
  }
  said(good, "router", n_tokens);
  for (int n = 1; invariant && n < n_tokens; n *= 2) { /* the first n alone */
    CHECK(cudaMemset(call.to.weights, 0xff, weights.size() * 4));
    CHECK(cudaMemset(call.to.shared_factors, 0xff, shared.size() * 4));
    CHECK(cudaMemset(call.h, 0xff, h.size() * 2));
    MUST(experts_route(&call, n, &limits, stream, &error));
    const size_t n_own = (size_t)n * c.n_chosen;
    good = to_host<int>(call.to.ids, n_own) == std::vector<int>(ids.begin(), ids.begin() + n_own) &&
           to_host<float>(call.to.weights, n_own) ==
               std::vector<float>(weights.begin(), weights.begin() + n_own) &&
           (c.shared_output != SHARED_GATED || to_host<float>(call.to.shared_factors, n) ==
                                                   std::vector<float>(shared.begin(), shared.begin() + n));
    const std::vector<__half> own_h = to_host<__half>(call.h, h.size());
    for (int m = 0; m < n; m++)
      good = good &&
             !memcmp(&own_h[(size_t)m * call.h_stride], &h[(size_t)m * call.h_stride], (size_t)hidden * 2);
    said(good, "router: other bits", n);
  }
  stored_free(&stored);
  stored_free(&gate_stored);
  for (const void *p :
       {(const void *)memory, (const void *)gate_memory, (const void *)expanded, (const void *)expanded_gate,
        (const void *)of_choices, (const void *)call.x, (const void *)call.norm, (const void *)call.h,
        (const void *)call.experts_h, (const void *)call.experts_norm, (const void *)call.router_scale,
        (const void *)call.choice_bias, (const void *)call.scales, (const void *)call.slices,
        (const void *)bias_device})
    cudaFree((void *)p);
}

static bool is_emulated; /* where many tokens take seconds */

static void check_router(const ExpertConfig &c, int hidden, WeightType type, int n_tokens, float size = 2) {
  for (bool invariant : {false, true}) {
    if (invariant && is_emulated && n_tokens >= 40) continue;
    if (only_new && (invariant || n_tokens > 32)) /* not by router_token.cu, which has clusters on 9.0 */
      skipped++;
    else
      check_router_once(c, hidden, type, n_tokens, size, invariant);
  }
}

static void check_routers(bool few) {
  ExpertConfig qwen = {.n_experts = 128,
                       .n_chosen = 8,
                       .score = SCORE_SOFTMAX,
                       .renormalise = true,
                       .scale = 1,
                       .n_groups = 1,
                       .n_chosen_groups = 1};
  ExpertConfig shared = qwen, glm = qwen, groups = qwen, best_group = qwen, gpt = qwen, kolibri = qwen,
               gemma = qwen, all = qwen, phimoe = qwen;
  shared.n_experts = 60, shared.n_chosen = 4, shared.renormalise = false, shared.shared_output = SHARED_GATED;
  glm.score = SCORE_SIGMOID, glm.choice_bias = true, glm.scale = 2.5, glm.sum_plus = 1e-20;
  groups = glm, groups.n_groups = 8, groups.n_chosen_groups = 3;
  best_group = shared, best_group.n_experts = 160, best_group.n_groups = 8, best_group.n_chosen_groups = 3,
  best_group.group_is_best = true, best_group.scale = 16; /* DeepSeek-V2, with a gate */
  gpt.n_experts = 32, gpt.n_chosen = 4, gpt.score = SCORE_CHOSEN, gpt.biases = true, gpt.renormalise = false;
  kolibri.score = SCORE_CHOSEN_SIGMOID, kolibri.choice_bias = true, kolibri.renormalise = false;
  gemma.norms = EXPERTS_OWN_NORMS;
  all.n_experts = 5, all.n_chosen = 5;
  phimoe.n_experts = 16, phimoe.n_chosen = 2, phimoe.score = SCORE_CHOSEN_NEAR, phimoe.near = 0.4,
  phimoe.renormalise = false;
  for (const ExpertConfig &c : {qwen, shared, glm, groups, best_group, gpt, kolibri, gemma, all, phimoe}) {
    check_router(c, few ? 72 : 2048, WEIGHT_BF16, 1);
    check_router(c, few ? 64 : 2880, WEIGHT_F16, 1);
    check_router(c, 2880 / (few ? 40 : 1), WEIGHT_F32, 3);
    check_router(c, few ? 64 : 4096, WEIGHT_F16, few ? 9 : 300);
    check_router(c, few ? 72 : 2056, WEIGHT_BF16, few ? 2 : 270);
    if (!few) check_router(c, 1024, WEIGHT_F32, 260);
  }
  /* Up to 32 tokens router_token.cu, which has four parts of x from 4,097 inputs on; then router.cu. */
  for (const ExpertConfig &c : {qwen, shared, gpt})
    for (int n_tokens : {32, 33}) check_router(c, few ? 68 : 2052, WEIGHT_BF16, n_tokens);
  check_router(groups, few ? 4100 : 7168, WEIGHT_F16, 2);
  /* From 256 tokens on router_tiles.cu runs; with hidden 70, no multiple of 8, blocks of 8 tokens. 300
   * experts need two passes over x. */
  ExpertConfig many = qwen;
  many.n_experts = 300, many.shared_output = SHARED_GATED;
  /* So many that a token's blocks are no cluster. */
  for (int n_tokens : {1, 3}) check_router(many, few ? 72 : 2560, WEIGHT_BF16, n_tokens);
  for (WeightType type : {WEIGHT_F16, WEIGHT_BF16}) {
    for (const ExpertConfig &c : {shared, groups, best_group}) check_router(c, few ? 72 : 520, type, 257);
    for (float size : {0.0f, 1e-12f, 1e15f}) check_router(shared, few ? 16 : 520, type, 257, size);
    check_router(many, few ? 24 : 1000, type, 260);
    for (const ExpertConfig &c : {shared, gpt}) check_router(c, 70, type, 260);
  }
  for (WeightType type : {WEIGHT_F32, WEIGHT_F16, WEIGHT_BF16})
    for (int hidden : {70, 1028, 3200}) check_router(gpt, hidden, type, 1);
}

static void check_order(int n_experts, int n_chosen, int n_tokens) {
  const ExpertConfig c = {.n_experts = n_experts, .n_chosen = n_chosen};
  const Choices want = random_choices(n_experts, n_chosen, n_tokens);
  ExpertChoices to;
  void *memory;
  CHECK(cudaMalloc(&memory, experts_choices_bytes(&c, n_tokens)));
  experts_place_choices(&to, &c, n_tokens, memory);
  std::vector<float> weights;
  for (size_t i = 0; i < want.ids.size(); i++) weights.push_back(between(0, 1));
  CHECK(cudaMemcpy(to.ids, want.ids.data(), want.ids.size() * 4, cudaMemcpyHostToDevice));
  CHECK(cudaMemcpy(to.weights, weights.data(), weights.size() * 4, cudaMemcpyHostToDevice));
  MUST(experts_order(&c, &to, n_tokens, stream, &error));
  const int stride = 40;
  std::vector<__half> h;
  for (int i = 0; i < n_tokens * stride; i++) h.push_back(__float2half_rn(between(-3, 3)));
  __half *h_device = to_device(h), *gathered_device = to_device(std::vector<__half>(weights.size() * stride));
  MUST(experts_gather(&to, n_chosen, h_device, stride, n_tokens, gathered_device, stream, &error));
  const std::vector<__half> gathered = to_host<__half>(gathered_device, weights.size() * stride);
  bool copied = true;
  for (size_t i = 0; i < weights.size(); i++)
    copied = copied && !memcmp(&gathered[(size_t)want.places[i] * stride], &h[i / (size_t)n_chosen * stride],
                               stride * sizeof(__half));
  said(copied, "gathered rows", n_tokens);
  cudaFree(h_device), cudaFree(gathered_device);
  const std::vector<float> by_place = to_host<float>(to.place_weights, weights.size());
  bool good = to_host<int>(to.begins, want.begins.size()) == want.begins &&
              to_host<int>(to.choices, want.choices.size()) == want.choices &&
              to_host<int>(to.places, want.places.size()) == want.places;
  for (size_t i = 0; i < weights.size(); i++) good = good && by_place[want.places[i]] == weights[i];
  said(good, "order of rows", n_tokens);
  for (int n : {64, 70}) { /* the sum, which is of fp32 in the order of choices */
    std::vector<float> y, out;
    for (int i = 0; i < n_tokens * n_chosen * n; i++) y.push_back(between(-1, 1));
    for (int i = 0; i < n_tokens * n; i++) out.push_back(between(-1, 1));
    float *y_device = to_device(y), *out_device = to_device(out);
    for (int add = 1; add >= 0; add--) {
      MUST(experts_sum(&to, n_chosen, y_device, n, n_tokens, add, out_device, NULL, stream, &error));
      const std::vector<float> got = to_host<float>(out_device, out.size());
      good = true;
      for (int m = 0; m < n_tokens; m++)
        for (int i = 0; i < n; i++) {
          float sum = 0;
          for (int j = 0; j < n_chosen; j++) sum += y[(size_t)want.places[m * n_chosen + j] * n + i];
          good = good && got[m * n + i] == (add ? out[m * n + i] : 0.0f) + sum;
        }
      said(good, add ? "added sum" : "sum", n_tokens);
    }
    /* The sum and the norm after it: the bits of two kernels. */
    std::vector<float> weight;
    for (int i = 0; i < n; i++) weight.push_back(between(0.5f, 1.5f));
    float *weight_device = to_device(weight), *sums = to_device(out), *same_sums = to_device(out);
    const int h_stride = (n + 7) / 8 * 8;
    __half *norms[2];
    for (__half *&to_norm : norms) to_norm = to_device(std::vector<__half>((size_t)n_tokens * h_stride));
    const SumNorm next = {weight_device, 1e-6f, norms[0], h_stride};
    MUST(experts_sum(&to, n_chosen, y_device, n, n_tokens, true, sums, &next, stream, &error));
    MUST(experts_sum(&to, n_chosen, y_device, n, n_tokens, true, same_sums, NULL, stream, &error));
    MUST(ops_rms_norm(same_sums, weight_device, 1e-6f, n, n_tokens, norms[1], h_stride, stream, &error));
    const size_t n_norms = (size_t)n_tokens * h_stride;
    said(to_host<float>(sums, out.size()) == to_host<float>(same_sums, out.size()) &&
             !memcmp(to_host<__half>(norms[0], n_norms).data(), to_host<__half>(norms[1], n_norms).data(),
                     n_norms * sizeof(__half)),
         "sum and norm", n_tokens);
    for (void *p :
         {(void *)weight_device, (void *)sums, (void *)same_sums, (void *)norms[0], (void *)norms[1]})
      cudaFree(p);
    cudaFree(y_device);
    cudaFree(out_device);
  }
  cudaFree(memory);
}

/* Rows of h times the weight of their only choice, which is 1 afterwards. */
static void check_scaled_input(int n_tokens) {
  const int stride = 40;
  std::vector<float> weights;
  std::vector<__half> h;
  for (int m = 0; m < n_tokens; m++) weights.push_back(between(0, 1));
  for (int i = 0; i < n_tokens * stride; i++) h.push_back(__float2half_rn(between(-3, 3)));
  float *weights_device = to_device(weights);
  __half *h_device = to_device(h), *scaled = to_device(std::vector<__half>(h.size()));
  ExpertChoices choices = {};
  choices.weights = weights_device;
  MUST(experts_scale_input(&choices, h_device, stride, n_tokens, scaled, stream, &error));
  const std::vector<__half> got = to_host<__half>(scaled, h.size());
  const std::vector<float> left = to_host<float>(weights_device, weights.size());
  bool good = true;
  for (size_t i = 0; i < h.size(); i++)
    good = good &&
           __half2float(got[i]) == __half2float(__float2half_rn(weights[i / stride] * __half2float(h[i])));
  for (float weight : left) good = good && weight == 1;
  said(good, "scaled input", n_tokens);
  for (void *memory : {(void *)weights_device, (void *)h_device, (void *)scaled}) cudaFree(memory);
}

int main(int argc, char **argv) {
  const bool few = argc > 1 && strcmp(argv[1], "few") == 0;
  if (few) setenv("EMULATED_SMS", "16", 0); /* few blocks, of many steps each, but some clusters */
  is_emulated = few;
  CHECK(cudaStreamCreate(&stream));
  MUST(linear_open(0, stream, &context, &error));
  only_new = few && linear_limits(context).arch >= SM(9, 0);
  check_few_tokens(few);
  check_matmuls(few);
  if (few && !only_new) check_less_memory();
  check_beside(few);
  check_routers(few);
  if (!only_new) {
    check_order(8, 2, 3);
    check_scaled_input(3);
    check_order(128, 8, few ? 5 : 333);
  }
  linear_close(context);
  if (skipped) printf("%d skipped: kernels that are the same code on an emulated GPU of 8.0\n", skipped);
  printf("%d passed, %d failed, %d skipped\n", passed, failed, skipped);
  return failed != 0;
}
