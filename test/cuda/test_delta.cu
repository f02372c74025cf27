/* test_delta.cu - the gated delta rule and Mamba-2 (kernels/delta) against the same token by token in double:
 * every family, for texts that come in steps of many lengths, with outputs and states after each.
 *
 * Tolerance, as error squares over squares (NMSE): an output is rounded to fp16, which errs by at most 2^-11,
 * 2.4e-7; all else of the families step and plain is fp32: 2.5e-7, and 1e-9 for states. Chunks round operands
 * of products to fp16, and what that costs depends on the text: where neighbouring keys are alike and nothing
 * is forgotten, changes are small differences and their errors stay. So the test computes the equations of
 * chunks in double with the same operands rounded (`Simulation`). The kernel may err spread() times as much.
 * States of 16 bits: the reference rounds to them, too, with the same noise. Where the noise falls between
 * its number and the kernel's, they differ by a unit of the last place; few numbers of fp32 families do. So
 * these may err as above and an eighth of the most that rounding has cost; other noise makes twice as much.
 * Segments of many sequences in one step must have the bits that each has alone.
 * Needs a GPU; "few" for fewer lengths; prints `N passed, N failed`. */
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>
#include <string.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "cuda/kernels/delta/delta.h"
#include "test/cuda/check.cuh"
#include "test/cuda/random_numbers.cuh"

typedef std::vector<double> Row;

enum { N_IN = 200 }; /* inputs of b and a */
static const float UNTOUCHED = -7.75f;
static const char *const names[] = {"step", "chunks", "plain"};
static const double eps = 1e-6;
static int passed, failed;

template <class T> static T *to_device(const std::vector<T> &from) {
  T *at;
  CHECK(cudaMalloc((void **)&at, from.size() * sizeof(T)));
  CHECK(cudaMemcpy(at, from.data(), from.size() * sizeof(T), cudaMemcpyHostToDevice));
  return at;
}

template <class T> static std::vector<T> to_host(const void *at, size_t n) {
  std::vector<T> out(n);
  CHECK(cudaDeviceSynchronize());
  CHECK(cudaMemcpy(out.data(), at, n * sizeof(T), cudaMemcpyDeviceToHost));
  return out;
}

static double nmse(const Row &got, const Row &want) {
  double off = 0, all = 0;
  for (size_t i = 0; i < want.size(); i++)
    off += (got[i] - want[i]) * (got[i] - want[i]), all += want[i] * want[i];
  return off / all;
}

static void expect(bool good, const char *what, const char *family, int pos, int n, double found) {
  if (!good) printf("FAILED %s of %s, %d tokens at %d: %.3g\n", what, family, n, pos, found);
  good ? passed++ : failed++;
}

/* A text's projections and the weights of a layer. */
struct Text {
  DeltaConfig sizes;
  bool mamba;
  DeltaOffsets offsets;
  int n_tokens, channels, values, stride; /* of a row */
  int n_gates, at_z, at_a; /* numbers before the channels, b and a or one of both; places of z and a */
  Floats rows, conv, conv_bias, a_log, dt_bias, skip, norm;
  std::vector<__half> h, gates; /* [n_tokens][N_IN], [2 n_value_heads][N_IN]; or empty: b and a are in rows */
  Row outputs;                  /* [n_tokens][values] */
  std::vector<Row> states;      /* after each token, [n_value_heads][value_dim][key_dim] */
};

/* `alike`: neighbouring keys differ little and nothing is forgotten, so that the changes of a chunk's tokens
 * are small differences. */
static Text text_of(const DeltaConfig &sizes, int n_tokens, bool alike) {
  Text t;
  t.sizes = sizes, t.n_tokens = n_tokens, t.channels = delta_channels(&sizes);
  t.values = sizes.n_value_heads * sizes.value_dim;
  t.mamba = sizes.rule == RULE_MAMBA2, t.offsets = delta_offsets(&sizes);
  const bool by_channel = sizes.rule == RULE_CHANNELS;
  t.n_gates = (t.mamba || by_channel ? 1 : 2) * sizes.n_value_heads;
  t.at_z = t.n_gates + t.channels + 2 * sizes.gate_rank;
  t.at_a = by_channel ? t.at_z + t.values : t.n_gates - sizes.n_value_heads;
  t.stride = (t.at_z + t.values + (by_channel ? delta_decays(&sizes) : 0) + 7) / 8 * 8 + 8;
  t.rows = random_numbers((size_t)n_tokens * t.stride, -2, 2);
  t.conv = random_numbers((size_t)t.channels * sizes.conv, -0.7f, 0.7f);
  t.a_log = random_numbers((size_t)sizes.n_value_heads, 0, 1);
  t.dt_bias = random_numbers((size_t)delta_decays(&sizes), alike ? -12.0f : -4.0f, alike ? -10.0f : -2.0f);
  t.norm = random_numbers((size_t)(t.mamba ? t.values : sizes.value_dim), 0.5f, 1.5f);
  t.conv_bias = t.mamba ? random_numbers((size_t)t.channels, -0.5f, 0.5f) : Floats((size_t)t.channels, 0.0f);
  t.skip = random_numbers((size_t)sizes.n_value_heads, 0.5f, 1.5f);
  for (int token = 0; alike && token < n_tokens; token++)
    for (int i = 0; i < 2 * sizes.n_key_heads * sizes.key_dim; i++) {
      float *x = &t.rows[(size_t)token * t.stride + 2 * sizes.n_value_heads + i];
      *x = *x * 0.1f + (float)(i % 7);
    }
  return t;
}

/* Makes b and a outputs of a matrix. */
static void add_gates(Text *t) {
  const int n_out = 2 * t->sizes.n_value_heads;
  for (float v : random_numbers((size_t)t->n_tokens * N_IN, -1, 1)) t->h.push_back(__float2half_rn(v));
  for (float v : random_numbers((size_t)n_out * N_IN, -0.2f, 0.2f)) t->gates.push_back(__float2half_rn(v));
  for (int token = 0; token < t->n_tokens; token++)
    for (int o = 0; o < n_out; o++) {
      double sum = 0;
      for (int i = 0; i < N_IN; i++)
        sum += (double)__half2float(t->gates[o * N_IN + i]) * __half2float(t->h[token * N_IN + i]);
      t->rows[(size_t)token * t->stride + o] = (float)sum;
    }
}

static double silu(double x) {
  return x / (1 + exp(-x));
}

/* The convolution of a token's channels, the heads of q and k normalised but for Mamba-2. */
static Row mixed(const Text &t, int token) {
  const DeltaConfig &s = t.sizes;
  Row out((size_t)t.channels);
  for (int c = 0; c < t.channels; c++) {
    double sum = t.conv_bias[c];
    for (int tap = 0; tap < s.conv; tap++)
      if (token - s.conv + 1 + tap >= 0)
        sum += (double)t.conv[(size_t)c * s.conv + tap] *
               t.rows[(size_t)(token - s.conv + 1 + tap) * t.stride + t.n_gates + c];
    out[c] = silu(sum);
  }
  for (int head = 0; head < 2 * s.n_key_heads && !t.mamba; head++) {
    double squares = 1e-6, scale = head < s.n_key_heads ? 1 / sqrt((double)s.key_dim) : 1;
    for (int i = 0; i < s.key_dim; i++) squares += out[head * s.key_dim + i] * out[head * s.key_dim + i];
    for (int i = 0; i < s.key_dim; i++) out[head * s.key_dim + i] *= scale / sqrt(squares);
  }
  return out;
}

/* One value of one head: changes its row of the state and returns its output. Mamba-2 does not ask what is
 * known. */
static double advance(double *row, const double *q, const double *k, double v, const Row &decays, double beta,
                      int n_keys, bool mamba) {
  double known = 0, out = 0;
  for (int i = 0; i < n_keys; i++) row[i] *= decays[i], known += mamba ? 0 : row[i] * k[i];
  for (int i = 0; i < n_keys; i++) row[i] += k[i] * beta * (v - known), out += row[i] * q[i];
  return out;
}

/* The gates of a head at a token: what it keeps of the state, and how much of the new value it learns. */
struct Gates {
  double log_decay, beta;
};

static Gates gates_of(const Text &t, int token, int head) {
  const float *row = &t.rows[(size_t)token * t.stride];
  const double a = row[t.at_a + head];
  const double step = (t.mamba ? t.sizes.a_scale : 1) * a + t.dt_bias[head];
  if (t.mamba) {
    const double dt = std::min(std::max(log1p(exp(step)), t.sizes.least_step), t.sizes.largest_step);
    return {-exp((double)t.a_log[head]) * dt, dt};
  }
  const double most = t.sizes.doubles_beta ? 2 : 1;
  return {-exp((double)t.a_log[head]) * log1p(exp(step)), most / (1 + exp(-(double)row[head]))};
}

/* The decays of the numbers of a head's key at a token, all the same but with RULE_CHANNELS. */
static Row decays_of(const Text &t, int token, int head, double log_decay) {
  const DeltaConfig &s = t.sizes;
  Row decays((size_t)s.key_dim, exp(log_decay));
  for (int i = 0; s.rule == RULE_CHANNELS && i < s.key_dim; i++) {
    const int own = head * s.key_dim + i;
    const double x = (double)t.rows[(size_t)token * t.stride + t.at_a + own] + t.dt_bias[own],
                 rate = exp((double)t.a_log[head]);
    decays[i] = exp(s.log_bound != 0 ? s.log_bound / (1 + exp(-rate * x)) : -rate * log1p(exp(x)));
  }
  return decays;
}

/* Norm and gate of the outputs of all heads at a token; Mamba-2's gate comes before its norm, which is a
 * group's, if there is one. */
static Row finish(const Text &t, int token, const Row &out) {
  const int width = delta_norm_width(&t.sizes);
  const float *z = &t.rows[(size_t)token * t.stride] + t.at_z;
  Row finished;
  for (int first = 0; first < t.values; first += width) {
    double squares = 0;
    const auto gated = [&](int v) { return t.mamba ? out[v] * silu(t.sizes.z_scale * z[v]) : out[v]; };
    for (int v = first; v < first + width; v++) squares += gated(v) * gated(v);
    for (int v = first; v < first + width; v++) {
      const double factor = t.mamba                   ? t.sizes.out_scale
                            : t.sizes.gate_is_sigmoid ? 1 / (1 + exp(-z[v]))
                                                      : silu(z[v]),
                   norm = t.norm[t.mamba ? v : v - first] / sqrt(squares / width + eps);
      finished.push_back(gated(v) * factor * (t.sizes.no_norm ? 1 : norm));
    }
  }
  return finished;
}

/* A number of a state, as `type` keeps it. */
static double stored(StatesType type, double x, int pos, size_t index) {
  if (type == STATES_F32) return x;
  uint32_t bits = states_noisy(type, (float)x, states_noise_at((uint32_t)pos, (uint32_t)index));
  if (type == STATES_BF16) bits &= 0xffff0000u;
  float to;
  memcpy(&to, &bits, sizeof to);
  return type == STATES_F16 ? __half2float(__float2half_rz(to / STATES_F16_SCALE)) : to;
}

/* True if states are rounded after a token, the i-th of a step of n. */
static bool rounds_after(int i, int n) {
  return i % SEGMENT_CHUNK == SEGMENT_CHUNK - 1 || i == n - 1;
}

/* The text in steps of the given lengths, in turn, which matter where states are rounded. */
static void compute(Text *t, StatesType type = STATES_F32, const std::vector<int> &steps = {1}) {
  const DeltaConfig &s = t->sizes;
  Row state((size_t)t->values * s.key_dim, 0);
  t->outputs.clear(), t->states.clear();
  for (int token = 0, step = 0, begin = 0; token < t->n_tokens; token++) {
    const Row c = mixed(*t, token);
    Row out((size_t)t->values);
    for (int head = 0; head < s.n_value_heads; head++) {
      const int key_head = head / (s.n_value_heads / s.n_key_heads);
      const double *q = &c[t->offsets.q + key_head * s.key_dim], *k = &c[t->offsets.k + key_head * s.key_dim];
      const Gates gates = gates_of(*t, token, head);
      const Row decays = decays_of(*t, token, head, gates.log_decay);
      for (int v = head * s.value_dim; v < (head + 1) * s.value_dim; v++) {
        const double value = c[t->offsets.v + v];
        out[v] =
            advance(&state[(size_t)v * s.key_dim], q, k, value, decays, gates.beta, s.key_dim, t->mamba) +
            (t->mamba ? t->skip[head] * value : 0);
      }
    }
    for (double x : finish(*t, token, out)) t->outputs.push_back(x);
    const int n = std::min(steps[step % steps.size()], t->n_tokens - begin);
    for (size_t i = 0; i < state.size() && rounds_after(token - begin, n); i++)
      state[i] = stored(type, state[i], token, i);
    if (token == begin + n - 1) step++, begin += n;
    t->states.push_back(state);
  }
}

/* --- what rounding operands to fp16 costs */

static double in_half(double x) {
  return __half2float(__float2half_rn((float)x));
}

static double dot(const double *a, const double *b, int n) {
  double sum = 0;
  for (int i = 0; i < n; i++) sum += a[i] * b[i];
  return sum;
}

/* The equations at the top of delta_chunks.cu in double; in_half() stands where the kernel rounds an
 * operand. */
struct Simulation {
  const Text &t;
  StatesType type;
  Row state; /* [n_value_heads][value_dim][key_dim] */

  Simulation(const Text &text, StatesType states)
      : t(text), type(states), state((size_t)text.values * (size_t)text.sizes.key_dim, 0) {}

  /* A head of a chunk of n tokens from `pos` on, whose q, k and v are c[token]; appends to outputs[token],
   * which finish() takes. */
  void chunk_head(int head, int pos, int n, const std::vector<Row> &c, std::vector<Row> *outputs) {
    const DeltaConfig &s = t.sizes;
    const int dim = s.key_dim, key_head = head / (s.n_value_heads / s.n_key_heads),
              at_q = t.offsets.q + key_head * dim, at_k = t.offsets.k + key_head * dim,
              at_v = t.offsets.v + head * s.value_dim;
    Row logs, betas;
    for (int i = 0; i < n; i++) {
      const Gates gates = gates_of(t, pos + i, head);
      logs.push_back((i ? logs[i - 1] : 0) + gates.log_decay), betas.push_back(gates.beta);
    }
    /* (1 + L)^-1, by rows from the top, and M */
    std::vector<Row> inverse(n, Row(n, 0)), mask(n, Row(n, 0));
    for (int i = 0; i < n; i++) {
      inverse[i][i] = 1;
      for (int j = 0; j <= i; j++)
        mask[i][j] =
            in_half(dot(&c[i][at_q], &c[j][at_k], dim) * exp(logs[i] - logs[j]) * (t.mamba ? betas[j] : 1) +
                    (t.mamba && j == i ? t.skip[head] : 0));
      for (int j = 0; j < i && !t.mamba; j++) {
        const double l = betas[i] * dot(&c[i][at_k], &c[j][at_k], dim) * exp(logs[i] - logs[j]);
        for (int m = 0; m <= j; m++) inverse[i][m] -= l * inverse[j][m];
      }
    }
    std::vector<Row> out(n, Row((size_t)s.value_dim));
    for (int v = 0; v < s.value_dim; v++) {
      double *row = &state[((size_t)head * s.value_dim + v) * dim];
      Row rest, changes, kept(row, row + dim), held;
      for (double x : kept) held.push_back(in_half(x));
      for (int i = 0; i < n; i++)
        rest.push_back(in_half(c[i][at_v + v] - exp(logs[i]) * dot(&c[i][at_k], &held[0], dim)));
      for (double &x : kept) x *= exp(logs[n - 1]);
      for (int i = 0; i < n; i++) {
        double change = t.mamba ? c[i][at_v + v] : 0;
        for (int j = 0; j <= i && !t.mamba; j++) change += in_half(inverse[i][j] * betas[j]) * rest[j];
        changes.push_back(in_half(change));
        out[i][v] = exp(logs[i]) * dot(&c[i][at_q], &held[0], dim) + dot(&mask[i][0], &changes[0], i + 1);
        const double faded = in_half(change * exp(logs[n - 1] - logs[i]) * (t.mamba ? betas[i] : 1));
        for (int key = 0; key < dim; key++) kept[key] += c[i][at_k + key] * faded;
      }
      std::copy(kept.begin(), kept.end(), row);
    }
    for (int i = 0; i < n; i++) (*outputs)[i].insert((*outputs)[i].end(), out[i].begin(), out[i].end());
  }

  /* The outputs of a step of n tokens, in chunks of 64. */
  Row advance_by(int pos, int n) {
    Row all;
    for (int first = 0, count; first < n; first += count) {
      count = std::min(64, n - first);
      std::vector<Row> c, outputs((size_t)count);
      for (int i = 0; i < count; i++) {
        c.push_back(mixed(t, pos + first + i));
        for (double &x : c[i]) x = in_half(x);
      }
      for (int head = 0; head < t.sizes.n_value_heads; head++)
        chunk_head(head, pos + first, count, c, &outputs);
      for (size_t i = 0; i < state.size(); i++) state[i] = stored(type, state[i], pos + first + count - 1, i);
      for (int i = 0; i < count; i++)
        for (double x : finish(t, pos + first + i, outputs[i])) all.push_back(in_half(x));
    }
    return all;
  }
};

/* The kernel's squared error over the simulation's, at most. Its sums are in another order, so that other
 * numbers are rounded up; from nine tokens on the ratio is 0.8 to 1.1. The outputs of a head at a token share
 * the error of their norm, so that a few tokens have few independent errors. */
static double spread(int n_tokens) {
  return n_tokens < 9 ? 6 : 1.5;
}

static Text with_gates(const DeltaConfig &sizes, int n_tokens) {
  Text text = text_of(sizes, n_tokens, false);
  add_gates(&text);
  compute(&text);
  return text;
}

/* The numbers of a state in memory. */
static Row cells_of(const Floats &state, const Text &t, StatesType type) {
  const void *at = &state[delta_input_floats(&t.sizes)];
  Row cells(t.states[0].size());
  for (size_t i = 0; i < cells.size(); i++)
    cells[i] = type == STATES_F32   ? ((const float *)at)[i]
               : type == STATES_F16 ? __half2float(((const __half *)at)[i])
                                    : __bfloat162float(((const __nv_bfloat16 *)at)[i]);
  return cells;
}

/* Runs the text in steps of the given lengths, in turn: by the family if it can take the step, else by
 * plain. Returns the last state. */
static Floats run(const Text &exact, DeltaFamily family, const std::vector<int> &steps,
                  StatesType type = STATES_F32) {
  Text t = exact;
  if (type != STATES_F32) compute(&t, type, steps);
  const size_t floats = delta_state_floats(&t.sizes, type);
  const int out_stride = (t.values + 7) / 8 * 8 + 8;
  DeltaRule rule = {};
  rule.sizes = t.sizes, rule.type = type, rule.eps = (float)eps, rule.shared_bytes = 227 << 10;
  rule.stride = t.stride, rule.out_stride = out_stride;
  rule.conv = to_device(t.conv), rule.a_log = to_device(t.a_log), rule.dt_bias = to_device(t.dt_bias);
  if (t.mamba) rule.conv_bias = to_device(t.conv_bias), rule.skip = to_device(t.skip);
  rule.norm = t.sizes.no_norm ? NULL : to_device(t.norm),
  rule.state = to_device(Floats(floats, 1e9f)); /* not read at position 0 */
  rule.workspace = to_device(std::vector<char>(delta_workspace_bytes(&t.sizes, t.n_tokens), (char)0xff));
  DeviceLinear gates = {};
  gates.type = WEIGHT_F16, gates.n_in = N_IN, gates.n_out = 2 * t.sizes.n_value_heads, gates.stride = N_IN;
  if (!t.gates.empty()) gates.dense = to_device(t.gates);
  double worst_out = 0, worst_state = 0, rounding = 0, state_rounding = 0; /* rounding: the most so far */
  Simulation simulation(t, type);
  Floats state;
  for (int pos = 0, i = 0; pos < t.n_tokens; i++) {
    const int n = std::min(steps[i % steps.size()], t.n_tokens - pos);
    const size_t from = (size_t)pos * t.stride, to = (size_t)(pos + n) * t.stride;
    Floats rows(t.rows.begin() + from, t.rows.begin() + to);
    rule.gates = gates.dense && delta_step_supports(&rule, &gates, n) ? &gates : NULL;
    for (size_t j = 0; rule.gates && j < rows.size(); j++)
      if ((int)(j % t.stride) < gates.n_out) rows[j] = NAN;
    if (rule.gates)
      rule.h_stride = N_IN, rule.h = to_device(std::vector<__half>(t.h.begin() + pos * N_IN, t.h.end()));
    rule.projections = to_device(rows);
    rule.out = to_device(std::vector<__half>((size_t)n * out_stride, __float2half_rn(UNTOUCHED)));
    rule.pos = to_device(std::vector<int>{pos});
    const bool takes = delta_can_run(family, &rule, n);
    MUST(delta_run(takes ? family : DELTA_PLAIN, &rule, n, 0, &error));
    const std::vector<__half> out = to_host<__half>(rule.out, (size_t)n * out_stride);
    Row got,
        want(t.outputs.begin() + (size_t)pos * t.values, t.outputs.begin() + (size_t)(pos + n) * t.values);
    bool gaps = true;
    for (size_t j = 0; j < out.size(); j++) {
      if ((int)(j % out_stride) < t.values)
        got.push_back(__half2float(out[j]));
      else
        gaps = gaps && __half2float(out[j]) == UNTOUCHED;
    }
    state = to_host<float>(rule.state, floats);
    const double off = nmse(got, want), state_off = nmse(cells_of(state, t, type), t.states[pos + n - 1]);
    const Row unrounded(exact.outputs.begin() + (size_t)pos * t.values,
                        exact.outputs.begin() + (size_t)(pos + n) * t.values);
    rounding = std::max(rounding, nmse(unrounded, want));
    state_rounding = std::max(state_rounding, nmse(exact.states[pos + n - 1], t.states[pos + n - 1]));
    double most = 2.5e-7 + rounding / 8, state_most = 1e-9 + state_rounding / 8;
    if (family == DELTA_CHUNKS) {
      most = spread(n) * nmse(simulation.advance_by(pos, n), want);
      state_most = spread(n) * nmse(simulation.state, t.states[pos + n - 1]);
      expect(takes, "a step in chunks", names[family], pos, n, 0);
    }
    expect(off <= most, "outputs", names[family], pos, n, off);
    expect(state_off <= state_most, "states", names[family], pos, n, state_off);
    expect(gaps, "what follows the outputs", names[family], pos, n, 0);
    worst_out = std::max(worst_out, off), worst_state = std::max(worst_state, state_off);
    for (const void *at : {(const void *)rule.projections, (const void *)rule.out, (const void *)rule.pos})
      CHECK(cudaFree((void *)at));
    pos += n;
  }
  printf("%s%-6s key heads %d, value heads %d, %d x %d, %d taps: NMSE at most %.1e, states in %s %.1e\n",
         t.mamba ? "Mamba-2, " : "", names[family], t.sizes.n_key_heads, t.sizes.n_value_heads,
         t.sizes.key_dim, t.sizes.value_dim, t.sizes.conv, worst_out, states_type_name(type), worst_state);
  for (const void *at : {(const void *)rule.conv, (const void *)rule.conv_bias, (const void *)rule.skip,
                         (const void *)rule.a_log, (const void *)rule.dt_bias, (const void *)rule.norm,
                         (const void *)rule.state, (const void *)rule.workspace})
    CHECK(cudaFree((void *)at));
  return state;
}

/* --- segments */

struct Part {
  int n_tokens;
  bool of_prompt; /* a single row is computed like many */
};

/* A layer of several sequences, whose rows are pieces of one text. */
struct Sequences {
  const Text &t;
  int n, length, out_stride;
  size_t step; /* floats from a state to the next one */
  DeltaRule rule;
  std::vector<int> pos;
  Floats states; /* on the host, of all sequences computed alone */

  Sequences(const Text &text, int n_sequences, int n_tokens, StatesType type)
      : t(text), n(n_sequences), length(n_tokens), out_stride((text.values + 7) / 8 * 8 + 8), rule() {
    const int all = n * length;
    step = delta_state_floats(&t.sizes, type) + 64, pos.resize(n), states.assign(n * step, NAN);
    rule.sizes = t.sizes, rule.type = type, rule.eps = (float)eps, rule.shared_bytes = 227 << 10;
    rule.stride = t.stride, rule.out_stride = out_stride;
    rule.conv = to_device(t.conv), rule.a_log = to_device(t.a_log), rule.dt_bias = to_device(t.dt_bias);
    if (t.mamba) rule.conv_bias = to_device(t.conv_bias), rule.skip = to_device(t.skip);
    rule.norm = t.sizes.no_norm ? NULL : to_device(t.norm), rule.state = to_device(states);
    rule.workspace = to_device(std::vector<char>(delta_workspace_bytes(&t.sizes, all), (char)0xff));
  }

  ~Sequences() {
    for (const void *at : {(const void *)rule.conv, (const void *)rule.conv_bias, (const void *)rule.skip,
                           (const void *)rule.a_log, (const void *)rule.dt_bias, (const void *)rule.norm,
                           (const void *)rule.state, (const void *)rule.workspace})
      CHECK(cudaFree((void *)at));
  }

  Floats rows_of(int sequence, int n_tokens) const {
    const auto from = t.rows.begin() + (long)(sequence * length + pos[sequence]) * t.stride;
    return Floats(from, from + (long)n_tokens * t.stride);
  }

  /* Sets what is of one call; n_rows: of the step. */
  void begin(const Floats &rows, const std::vector<int> &positions, int n_rows) {
    rule.projections = to_device(rows), rule.pos = to_device(positions);
    rule.out = to_device(std::vector<__half>((size_t)n_rows * out_stride, __float2half_rn(UNTOUCHED)));
  }

  std::vector<__half> end(int n_rows) {
    const std::vector<__half> out = to_host<__half>(rule.out, (size_t)n_rows * out_stride);
    for (const void *at : {(const void *)rule.projections, (const void *)rule.out, (const void *)rule.pos})
      CHECK(cudaFree((void *)at));
    return out;
  }

  /* A part by a call of its own, on the host's copy of its state. */
  std::vector<__half> alone(int sequence, Part part) {
    float *all = rule.state, *own = &states[sequence * step];
    rule.segments = {};
    rule.state = to_device(Floats(own, own + step));
    begin(rows_of(sequence, part.n_tokens), {pos[sequence]}, part.n_tokens);
    const bool single = part.n_tokens == 1 && !part.of_prompt;
    const DeltaFamily family = single && delta_can_run(DELTA_STEP, &rule, 1)       ? DELTA_STEP
                               : delta_can_run(DELTA_CHUNKS, &rule, part.n_tokens) ? DELTA_CHUNKS
                                                                                   : DELTA_PLAIN;
    MUST(delta_run(family, &rule, part.n_tokens, 0, &error));
    const std::vector<__half> out = end(part.n_tokens);
    const Floats changed = to_host<float>(rule.state, step);
    std::copy(changed.begin(), changed.end(), own);
    CHECK(cudaFree(rule.state));
    rule.state = all;
    return out;
  }

  /* A step of the parts, and of n_padding rows of padding if all are single rows. max_tokens: DeltaRule's */
  void check(const std::vector<Part> &parts, int n_padding, int max_tokens) {
    std::vector<Segment> singles, others;
    std::vector<int> of_row, positions;
    std::vector<__half> want;
    Floats rows;
    int n_chunks = 0;
    for (int i = 0; i < n; i++) {
      const Part part = parts[i];
      const Floats own = rows_of(i, part.n_tokens);
      if (part.n_tokens == 0) continue;
      const bool single = part.n_tokens == 1 && !part.of_prompt;
      std::vector<Segment> &list = single ? singles : others;
      list.push_back({(int)positions.size(), part.n_tokens, i, pos[i], n_chunks});
      n_chunks += single ? 0 : (part.n_tokens + SEGMENT_CHUNK - 1) / SEGMENT_CHUNK;
      rows.insert(rows.end(), own.begin(), own.end());
      for (int token = 0; token < part.n_tokens; token++) positions.push_back(pos[i] + token);
      const std::vector<__half> out = alone(i, part);
      want.insert(want.end(), out.begin(), out.end());
    }
    const int n_rows = (int)positions.size();
    of_row.resize(n_rows);
    for (int i = 0; i < n_padding; i++, of_row.push_back((int)singles.size() - 1), positions.push_back(-1))
      singles.push_back({-1, 0, 0, 0, 0});
    rows.resize(positions.size() * t.stride);
    Segments table = {};
    table.n_singles = (int)singles.size(), table.state_step = step;
    singles.insert(singles.end(), others.begin(), others.end());
    table.n = (int)singles.size(), table.host = singles.data();
    for (int i = 0; i < table.n; i++)
      for (int token = 0; token < singles[i].n_tokens; token++) of_row[singles[i].row + token] = i;
    table.device = to_device(singles), table.of_row = to_device(of_row);
    begin(rows, positions, (int)positions.size());
    rule.segments = table, rule.max_tokens = max_tokens;
    MUST(delta_run_segments(&rule, (int)positions.size(), 0, &error));
    std::vector<__half> got = end((int)positions.size());
    got.resize(want.size()); /* padding may have any outputs */
    const Floats changed = to_host<float>(rule.state, n * step);
    for (int i = 0; i < n; i++) pos[i] += parts[i].n_tokens;
    expect(memcmp(got.data(), want.data(), want.size() * sizeof(__half)) == 0, "outputs", "segments", pos[0],
           n_rows, 0);
    expect(memcmp(changed.data(), states.data(), changed.size() * sizeof(float)) == 0, "states", "segments",
           pos[0], n_rows, 0);
    CHECK(cudaFree((void *)table.device));
    CHECK(cudaFree((void *)table.of_row));
  }
};

/* Steps of seven sequences: new and continued ones, of lengths around those of a chunk, single rows of
 * prompts and of answers; then single rows alone, with padding. */
static void check_segments(const DeltaConfig &sizes, StatesType type, bool few) {
  const int most = few ? 130 : 300;
  const Text text = text_of(sizes, 7 * (most + 200), false);
  Sequences s(text, 7, most + 200, type);
  s.check({{1, true}, {2, true}, {63, true}, {64, true}, {65, true}, {most, true}, {0, false}}, 0, most);
  s.check({{65, true}, {1, false}, {1, false}, {9, false}, {0, false}, {1, false}, {64, true}}, 0, 1000);
  s.check({{1, false}, {1, false}, {1, true}, {1, false}, {3, false}, {1, false}, {1, false}}, 0, most);
  s.check({{1, false}, {1, false}, {1, false}, {0, false}, {1, false}, {1, false}, {1, false}}, 2, most);
}

/* Each token may turn what a state holds. */
static DeltaConfig doubled(DeltaConfig sizes) {
  sizes.doubles_beta = true;
  return sizes;
}

/* A decay for each number of a key; rank: numbers between the matrices of a gate. */
static DeltaConfig by_channel(DeltaConfig sizes, int rank, double log_bound) {
  sizes.rule = RULE_CHANNELS, sizes.gate_is_sigmoid = true;
  sizes.gate_rank = rank, sizes.log_bound = log_bound;
  return sizes;
}

/* Some step sizes are cut at both limits. */
static DeltaConfig mamba(int n_groups, int n_heads, int key_dim, int value_dim, int taps) {
  DeltaConfig sizes = {n_groups, n_heads, key_dim, value_dim, taps};
  sizes.rule = RULE_MAMBA2, sizes.conv_bias = true, sizes.least_step = 0.02, sizes.largest_step = 0.3;
  sizes.z_scale = sizes.a_scale = sizes.out_scale = 1;
  return sizes;
}

/* The same with factors, and with or without a norm of outputs. */
static DeltaConfig scaled(DeltaConfig sizes, bool norm) {
  sizes.z_scale = 1.5, sizes.a_scale = 0.5, sizes.out_scale = 0.75, sizes.no_norm = !norm;
  return sizes;
}

/* States of 16 bits by all families; a text that is divided after a chunk has the same bits. */
static void check_types(StatesType type, bool few) {
  for (const DeltaConfig &sizes :
       {DeltaConfig{2, 6, 8, 12, 4}, by_channel({3, 3, 20, 20, 3}, 7, 0), mamba(2, 6, 12, 20, 3),
        DeltaConfig{1, 2, 128, 128, 4}, mamba(1, 4, 128, 64, 4)})
    for (bool alike : {false, true}) {
      const bool usual = sizes.key_dim == 128, whole = !few || type == STATES_BF16;
      if (alike && sizes.rule != RULE_GATED_DELTA) continue;
      Text text = text_of(sizes, few ? 140 : alike ? 300 : 700, alike); /* what is not forgotten adds up */
      compute(&text);
      const DeltaFamily family = usual ? DELTA_CHUNKS : DELTA_PLAIN;
      if (!usual || whole) run(text, DELTA_PLAIN, {1, 2, 17, 1, 3, 66}, type);
      if (usual) run(text, DELTA_STEP, {1, 1, 2, 3, 8, 1, 7, 5, 4, 6}, type);
      if (usual && whole) run(text, DELTA_CHUNKS, {64, 1, 65, 2, 9, 63}, type);
      const Floats undivided = run(text, family, {text.n_tokens}, type),
                   divided = run(text, family, {64, text.n_tokens - 64}, type);
      expect(memcmp(undivided.data(), divided.data(), divided.size() * sizeof(float)) == 0, "divided states",
             names[family], 64, text.n_tokens, 0);
    }
}

static void check_choice() {
  DeltaRule rule = {};
  rule.sizes = {2, 6, 128, 128, 4}, rule.shared_bytes = 227 << 10, rule.stride = 2320;
  const auto chosen = [&](int n) { return delta_choose(&rule, n); };
  expect(chosen(1) == DELTA_STEP && chosen(8) == DELTA_STEP && chosen(9) == DELTA_CHUNKS, "the choice", "128",
         0, 9, 0);
  rule.shared_bytes = 64 << 10; /* sm_75 */
  expect(chosen(8) == DELTA_STEP && chosen(9) == DELTA_PLAIN, "the choice", "little shared memory", 0, 9, 0);
  rule.shared_bytes = 227 << 10, rule.sizes.conv = 3;
  expect(chosen(1) == DELTA_PLAIN && chosen(9) == DELTA_PLAIN, "the choice", "3 taps", 0, 9, 0);
  rule.sizes = {2, 6, 64, 128, 4};
  expect(chosen(1) == DELTA_PLAIN, "the choice", "keys of 64", 0, 1, 0);
  rule.sizes = by_channel({2, 2, 128, 128, 4}, 0, 0);
  expect(chosen(1) == DELTA_PLAIN, "the choice", "a decay for each number", 0, 1, 0);
  rule.sizes = mamba(2, 8, 128, 64, 4);
  expect(chosen(1) == DELTA_STEP && chosen(9) == DELTA_CHUNKS, "the choice", "Mamba-2", 0, 9, 0);
  rule.sizes = mamba(1, 6, 128, 64, 4); /* rows of channels are not aligned */
  expect(chosen(1) == DELTA_PLAIN, "the choice", "six heads of Mamba-2", 0, 1, 0);
}

int main(int argc, char **argv) {
  const bool few = argc > 1 && strcmp(argv[1], "few") == 0;
  check_choice();
  for (const DeltaConfig &sizes :
       {DeltaConfig{1, 1, 1, 1, 1}, DeltaConfig{2, 6, 8, 12, 4}, DeltaConfig{3, 3, 20, 7, 2},
        DeltaConfig{1, 2, 5, 130, 16}, doubled({2, 2, 96, 192, 4}), by_channel({3, 3, 20, 20, 3}, 7, 0),
        by_channel({1, 2, 128, 128, 4}, 0, -3), mamba(1, 1, 1, 1, 1), mamba(2, 6, 12, 20, 3),
        mamba(1, 6, 128, 64, 4), scaled(mamba(2, 6, 12, 20, 3), true),
        scaled(mamba(2, 6, 12, 20, 3), false)}) {
    Text text = text_of(sizes, few ? 40 : 300, false);
    compute(&text);
    run(text, DELTA_PLAIN, {1, 2, 17, 1, 3});
  }
  for (bool alike : {false, true})
    for (const DeltaConfig &sizes :
         {DeltaConfig{1, 2, 128, 128, 4}, DeltaConfig{2, 6, 128, 128, 4}, doubled({1, 2, 128, 128, 4})}) {
      if (few && sizes.n_value_heads > 2 && alike) continue;
      Text text = text_of(sizes, few ? sizes.n_value_heads > 2 ? 70 : 220 : 1300, alike);
      compute(&text);
      run(text, DELTA_STEP, {1, 1, 2, 3, 8, 1, 7, 5, 4, 6});
      if (!alike) run(with_gates(sizes, few ? 60 : 300), DELTA_STEP, {1, 1, 8, 3, 9});
      run(text, DELTA_CHUNKS, {64, 1, 65, 2, 9, 63});
      if (few) continue;
      run(text, DELTA_PLAIN, {100, 1});
      for (int n : {1300, 1, 2, 3, 15, 16, 17, 31, 32, 33, 62, 127, 128, 129, 191, 192, 193, 200})
        run(text, DELTA_CHUNKS, {n, 3, 1});
    }
  for (const DeltaConfig &sizes :
       {mamba(1, 4, 128, 64, 4), mamba(2, 8, 128, 64, 4), scaled(mamba(1, 4, 128, 64, 4), false)}) {
    Text text = text_of(sizes, few ? sizes.n_value_heads > 4 ? 70 : 200 : 1300, false);
    compute(&text);
    run(text, DELTA_STEP, {1, 1, 2, 3, 8, 1, 7, 5, 4, 6});
    run(text, DELTA_CHUNKS, {64, 1, 65, 2, 9, 63});
    if (few) continue;
    for (int n : {1300, 15, 17, 33, 62, 127, 129, 193}) run(text, DELTA_CHUNKS, {n, 3, 1});
  }
  for (const DeltaConfig &sizes :
       {DeltaConfig{1, 2, 128, 128, 4}, doubled({2, 6, 128, 128, 4}), DeltaConfig{2, 6, 8, 12, 4},
        DeltaConfig{3, 3, 20, 7, 2}, by_channel({3, 3, 20, 20, 3}, 7, 0), mamba(2, 6, 12, 20, 3),
        mamba(2, 8, 128, 64, 4), scaled(mamba(1, 4, 128, 64, 4), false)})
    for (StatesType type : {STATES_F32, STATES_BF16, STATES_F16}) check_segments(sizes, type, few);
  for (StatesType type : {STATES_BF16, STATES_F16}) check_types(type, few);
  printf("%d passed, %d failed\n", passed, failed);
  return failed != 0;
}
