/* test_sampler.c - the sampler against its rules (base/sampler_math.h), written again in the plainest way
 * here, against the exact distribution, and against constants: the same seed and logits give the same tokens
 * on every machine. */
#include <float.h>
#include <math.h>

#include "base/sampler_math.h"
#include "engine/sampler.h"
#include "test/tests.h"

static const SamplerSettings neutral = {.temperature = 1, .top_p = 1, .repetition_penalty = 1};

static Sampler *open_sampler(const SamplerSettings *settings, int vocab_size) {
  Sampler *sampler;
  Error err;
  assert_int_equal(sampler_open(settings, vocab_size, &sampler, &err), STATUS_OK);
  return sampler;
}

static int32_t pick(Sampler *sampler, const float *logits) {
  int32_t id = -1;
  Error err = {{0}};
  if (sampler_pick(sampler, logits, &id, &err) != STATUS_OK) fail_msg("%s", err.text);
  return id;
}

/* A generator of test data that has nothing to do with the one under test (xorshift64). */
static uint64_t next_number(uint64_t *state) {
  *state ^= *state << 13;
  *state ^= *state >> 7;
  *state ^= *state << 17;
  return *state;
}

/* Roughly normal with deviation 3, exact in fp32 whatever the compiler: a sum of twelve integers, scaled. */
static void make_logits(float *logits, int n, uint64_t seed) {
  uint64_t state = seed * 2 + 1;
  for (int i = 0; i < n; i++) {
    int64_t sum = 0;
    for (int k = 0; k < 12; k++) sum += (int64_t)(next_number(&state) >> 44);
    logits[i] = (float)(sum - 6 * (1 << 20)) * (3.0f / (1 << 20));
  }
}

/* --- the arithmetic */

TEST(philox_gives_the_published_vectors) {
  /* Random123, kat_vectors, "philox4x32 10" */
  uint32_t zeros[4] = {0};
  sampler_philox(zeros, 0, 0);
  const uint32_t of_zeros[4] = {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8};
  assert_memory_equal(zeros, of_zeros, sizeof zeros);
  uint32_t ones[4] = {0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff};
  sampler_philox(ones, 0xffffffff, 0xffffffff);
  const uint32_t of_ones[4] = {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd};
  assert_memory_equal(ones, of_ones, sizeof ones);
  uint32_t pi[4] = {0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344};
  sampler_philox(pi, 0xa4093822, 0x299f31d0);
  const uint32_t of_pi[4] = {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1};
  assert_memory_equal(pi, of_pi, sizeof pi);
}

/* Both words of seed and step count. The number is that of a Philox written in Python. */
TEST(a_step_has_a_number_of_its_own) {
  assert_true(sampler_random(0xfedcba9876543210, 0x0123456789abcdef) == 0x19774975822ed603);
}

TEST(keys_order_as_numbers_do) {
  const float numbers[] = {-INFINITY, -3.4e38f, -1,         -0x1p-149f, 0,       0x1p-149f,
                           0x1p-126f, 1,        1.0000001f, 3.4e38f,    INFINITY};
  const int n = sizeof numbers / sizeof *numbers;
  for (int i = 0; i < n; i++) {
    assert_true(sampler_key_score(sampler_key(numbers[i])) == numbers[i]);
    if (i > 0) assert_true(sampler_key(numbers[i - 1]) < sampler_key(numbers[i]));
  }
  assert_int_equal(sampler_key(-0.0f), sampler_key(0.0f));
  assert_int_equal(sampler_key(-INFINITY), SAMPLER_KEY_LOWEST);
  assert_int_equal(sampler_key(INFINITY), SAMPLER_KEY_INFINITE);
  assert_true(sampler_key(NAN) > SAMPLER_KEY_INFINITE);
  assert_true(sampler_key(-NAN) < SAMPLER_KEY_LOWEST);
}

/* Rounding to an integer errs by 0.5; the exponential by 2^-51 of at most 2^40, which is 2^-11. */
TEST(weights_are_the_exponential) {
  assert_int_equal(sampler_weight(0), UINT64_C(1) << 40);
  assert_int_equal(sampler_weight(-29), 0);
  assert_int_equal(sampler_weight(-1e300), 0);
  assert_int_equal(sampler_weight(-INFINITY), 0);
  for (int i = 0; i <= 300000; i += SANITIZED ? 8 : 1) {
    double x = -i * 1e-4;
    long double exact = expl((long double)x) * 0x1p40L;
    assert_true(fabsl((long double)sampler_weight(x) - exact) <= 0.5L + 0x1p-11L);
  }
}

TEST(products_are_exact) {
  uint64_t random = 88172645463325252u;
  for (int i = 0; i < SAMPLE(100000); i++) {
    uint64_t a = next_number(&random), b = next_number(&random), sum = a >> 1,
             share = b % ((UINT64_C(1) << 32) + 1);
    assert_true(sampler_multiply_high(a, b) == (uint64_t)((unsigned __int128)a * b >> 64));
    assert_true(sampler_multiply(sum, share) == (uint64_t)((unsigned __int128)sum * share >> 32));
  }
  assert_true(sampler_multiply_high(UINT64_MAX, UINT64_MAX) == UINT64_MAX - 1);
  assert_true(sampler_multiply(UINT64_C(1) << 63, UINT64_C(1) << 32) == UINT64_C(1) << 63);
  assert_true(sampler_fraction(0) == 0 && sampler_fraction(1) == UINT64_C(1) << 32 &&
              sampler_fraction(0.5) == 1u << 31);
  assert_true(sampler_fraction(0x1.8p-34) == 0 && sampler_fraction(0x1p-33) == 1 &&
              sampler_fraction(0x1.8p-32) == 2);
}

/* --- the rules, written plainly */

typedef struct {
  float score;
  int32_t id;
  uint64_t weight;
} Ranked;

static int by_rank(const void *left, const void *right) {
  const Ranked *a = left, *b = right;
  if (a->score != b->score) return a->score > b->score ? -1 : 1;
  return a->id < b->id ? -1 : 1;
}

static int by_id(const void *left, const void *right) {
  return ((const Ranked *)left)->id - ((const Ranked *)right)->id;
}

static uint64_t sum_of(const Ranked *ranked, int n) {
  uint64_t sum = 0;
  for (int i = 0; i < n; i++) sum += ranked[i].weight;
  return sum;
}

static int32_t plain_pick(const SamplerSettings *s, const float *scores, int n, uint64_t step) {
  Ranked *ranked = malloc((size_t)n * sizeof *ranked);
  for (int i = 0; i < n; i++) ranked[i] = (Ranked){scores[i], i, 0};
  qsort(ranked, (size_t)n, sizeof *ranked, by_rank);
  int32_t id = ranked[0].id;
  if (s->temperature > 0) {
    double top = ranked[0].score;
    if (s->top_k > 0 && s->top_k < n) n = s->top_k;
    for (int i = 0; i < n; i++) ranked[i].weight = sampler_weight((ranked[i].score - top) / s->temperature);
    uint64_t limit =
        (uint64_t)((unsigned __int128)sum_of(ranked, n) * (uint64_t)(s->top_p * 0x1p32 + 0.5) >> 32);
    if (limit == 0) limit = 1;
    int kept = 0;
    for (uint64_t above = 0; kept < n && above < limit; kept++) above += ranked[kept].weight;
    n = kept;
    kept = 0;
    for (int i = 0; i < n; i++)
      if (ranked[i].weight >= (uint64_t)(s->min_p * 0x1p32 + 0.5) << 8) ranked[kept++] = ranked[i];
    n = kept;
    qsort(ranked, (size_t)n, sizeof *ranked, by_id);
    uint64_t target = (uint64_t)((unsigned __int128)sampler_random(s->seed, step) * sum_of(ranked, n) >> 64);
    uint64_t sum = 0;
    for (int i = 0; i < n; i++) {
      sum += ranked[i].weight;
      id = ranked[i].id;
      if (sum > target) break;
    }
  }
  free(ranked);
  return id;
}

/* Logits that meet each step's edges: many equal ones, where only the id decides; ones that differ in their
 * last bits alone, of both signs; near together, far apart, and some that are no choice at all. */
static void shape_logits(float *logits, int n, int kind, uint64_t *random) {
  static const float spread[] = {1, 0.05f, 20};
  for (int i = 0; i < n; i++) {
    const float ulps = (float)(next_number(random) % 4096) * 0x1p-23f;
    switch (kind) {
    case 0: logits[i] = roundf(logits[i]); break;
    case 1: logits[i] = 1 + ulps; break;
    case 2: logits[i] = -1 - 16 * ulps; break;
    case 3: logits[i] = i > 0 && next_number(random) % 3 == 0 ? -INFINITY : logits[i]; break;
    default: logits[i] *= spread[kind - 4]; break;
    }
  }
}

/* Sizes, settings and logits at random. */
TEST(picks_follow_the_rules) {
  enum { CASES = 4200, LARGEST = 700, KINDS = 7 };
  static float logits[LARGEST];
  uint64_t random = 0x9e3779b97f4a7c15u;
  for (int c = 0; c < SAMPLE(CASES); c++) {
    int n = 1 + (int)(next_number(&random) % LARGEST);
    make_logits(logits, n, (uint64_t)c);
    shape_logits(logits, n, c % KINDS, &random);
    const double temperatures[] = {0, 0.05, 0.7, 1, 5}, top_ps[] = {1, 0, 0.1, 0.5, 0.95},
                 min_ps[] = {0, 0.05, 0.5, 1};
    const int top_ks[] = {0, 1, 2, 5, 40, 1000};
    SamplerSettings settings = {.temperature = temperatures[next_number(&random) % 5],
                                .top_k = top_ks[next_number(&random) % 6],
                                .top_p = top_ps[next_number(&random) % 5],
                                .min_p = min_ps[next_number(&random) % 4],
                                .repetition_penalty = 1,
                                .seed = next_number(&random)};
    Sampler *sampler = open_sampler(&settings, n);
    for (uint64_t step = 0; step < 4; step++) {
      int32_t got = pick(sampler, logits), want = plain_pick(&settings, logits, n, step);
      if (got != want)
        fail_msg("case %d: n %d, temperature %g, top-k %d, top-p %g, min-p %g: %d, expected %d", c, n,
                 settings.temperature, settings.top_k, settings.top_p, settings.min_p, got, want);
    }
    sampler_close(sampler);
  }
}

/* --- the distribution */

/* Draws against exact probabilities. With k outcomes the statistic has mean k - 1 and deviation sqrt(2 k -
 * 2); six deviations are passed by chance in less than one seed of ten thousand, and the seeds are fixed; a
 * probability of a tenth that is wrong by 4% of itself adds 32 at 200,000 draws, which lies beyond. An
 * outcome of probability 0 may not occur at all. */
static void assert_distribution(const SamplerSettings *settings, const float *logits,
                                const long double *expected, int n) {
  enum { DRAWS = 200000 };
  int *counts = calloc((size_t)n, sizeof *counts), outcomes = 0;
  Sampler *sampler = open_sampler(settings, n);
  for (int i = 0; i < DRAWS; i++) counts[pick(sampler, logits)]++;
  long double statistic = 0;
  for (int i = 0; i < n; i++) {
    if (expected[i] == 0) assert_int_equal(counts[i], 0);
    if (expected[i] == 0) continue;
    long double off = counts[i] - expected[i] * DRAWS;
    statistic += off * off / (expected[i] * DRAWS);
    outcomes++;
  }
  assert_true(statistic <= outcomes - 1 + 6 * sqrtl(2 * (outcomes - 1.0L)));
  sampler_close(sampler);
  free(counts);
}

static const float few[] = {0.5f, 2.0f, -1.0f, 1.0f, -0.0f, 1.5f, -INFINITY, 1.0f};
enum { FEW = sizeof few / sizeof *few };

/* softmax(few / temperature) over the ids that `kept` has as bits. */
static void exact(double temperature, unsigned kept, long double *out) {
  long double sum = 0;
  for (int i = 0; i < FEW; i++) {
    out[i] = kept >> i & 1 ? expl(few[i] / (long double)temperature) : 0;
    sum += out[i];
  }
  for (int i = 0; i < FEW; i++) out[i] /= sum;
}

TEST(draws_have_the_exact_distribution) {
  /* ranking of `few`: 1 (2.0), 5 (1.5), 3 and 7 (1.0), 0 (0.5), 4 (-0), 2 (-1), never 6 */
  const struct {
    SamplerSettings settings;
    unsigned kept;
  } cases[] = {
      {{.temperature = 1, .top_p = 1}, 0xbf},
      {{.temperature = 0.5, .top_p = 1}, 0xbf},
      {{.temperature = 3, .top_p = 1}, 0xbf},
      {{.temperature = 1, .top_p = 1, .top_k = 3}, 0x2a},   /* 1, 5 and of the equal ones the lower, 3 */
      {{.temperature = 1, .top_p = 0.55}, 0x22},            /* 0.365 + 0.222 passes 0.55 */
      {{.temperature = 1, .top_p = 0.6}, 0x2a},             /* 0.587 does not pass 0.6; 3 is needed, 7 not */
      {{.temperature = 1, .top_p = 1, .min_p = 0.3}, 0xaa}, /* e^-1 = 0.37 stays, e^-1.5 = 0.22 goes */
      {{.temperature = 1, .top_p = 0.9, .top_k = 4, .min_p = 0.5}, 0x22},
  };
  for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
    if (!SAMPLED(c)) continue;
    SamplerSettings settings = cases[c].settings;
    settings.repetition_penalty = 1;
    settings.seed = 1000 + c;
    long double expected[FEW];
    exact(settings.temperature, cases[c].kept, expected);
    assert_distribution(&settings, few, expected, FEW);
  }
}

/* Four equal weights: the sum before the third is exactly the half. */
TEST(top_p_cuts_at_exact_borders) {
  const float equal[4] = {1, 1, 1, 1};
  const struct {
    double top_p;
    int kept;
  } cases[] = {{0, 1},   {0x1p-33, 1},       {0.25, 1}, {0.2500001, 2},
               {0.5, 2}, {0.5 + 0x1p-32, 3}, {0.75, 3}, {1, 4}};
  for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
    SamplerSettings settings = neutral;
    settings.top_p = cases[c].top_p;
    Sampler *sampler = open_sampler(&settings, 4);
    bool drawn[4] = {false};
    for (int i = 0; i < 200; i++) drawn[pick(sampler, equal)] = true; /* misses one of four: once in 10^24 */
    for (int i = 0; i < 4; i++) assert_int_equal(drawn[i], i < cases[c].kept);
    sampler_close(sampler);
  }
}

/* A token whose weight is 1 of 2^40 can be drawn, e^-28 being 0.76 of that; one of e^-29 cannot. The seed is
 * one whose first random number is above 2^64 / (1 + 2^-20). */
TEST(the_lightest_tokens_can_be_drawn) {
  enum { N = (1 << 20) + 1, DRAWN = 637464 };
  float *logits = malloc(N * sizeof *logits);
  for (int temperature = 1; temperature <= 4; temperature *= 4) {
    SamplerSettings settings = neutral;
    settings.temperature = temperature;
    settings.seed = 151054;
    for (int light = 28; light <= 29; light++) {
      for (int i = 0; i < N; i++) logits[i] = 3 + (i > 0 ? -light * (float)temperature : 0);
      Sampler *sampler = open_sampler(&settings, N);
      assert_int_equal(pick(sampler, logits), light == 28 ? DRAWN : 0);
      sampler_close(sampler);
    }
  }
  free(logits);
}

/* --- greedy, refusals */

TEST(greedy_takes_the_first_of_the_greatest) {
  SamplerSettings settings = neutral;
  settings.temperature = 0;
  Sampler *sampler = open_sampler(&settings, 5);
  assert_int_equal(pick(sampler, (float[]){1, 3, 2, 3, 3}), 1);
  assert_int_equal(pick(sampler, (float[]){-1, -0.0f, 0.0f, -2, -3}), 1);
  assert_int_equal(pick(sampler, (float[]){-INFINITY, -INFINITY, -1e30f, -INFINITY, -2e30f}), 2);
  sampler_close(sampler);
}

/* Wherever it stands, and the first of several is named. */
TEST(broken_logits_are_refused) {
  static const int sizes[] = {1, 2, 7, 8, 9, 16, 21};
  static const float broken[] = {NAN, -NAN, INFINITY};
  for (int mode = 0; mode < 2; mode++) {
    SamplerSettings settings = neutral;
    settings.temperature = mode;
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
      const int n = sizes[s];
      Sampler *sampler = open_sampler(&settings, n);
      for (int at = 0; at < 4 * n; at++) {
        float logits[21];
        const int place = at % n, kind = at / n;
        char start[60];
        int32_t id;
        Error err = {{0}};
        for (int i = 0; i < n; i++) logits[i] = kind == 3 ? -INFINITY : (float)(i % 5);
        if (kind < 3) logits[place] = broken[kind];
        if (kind < 3 && place + 2 < n) logits[place + 2] = NAN;
        snprintf(start, sizeof start, "the model's logit of token %d is %s:", place,
                 kind < 2 ? "NaN" : "infinite");
        if (kind == 3) snprintf(start, sizeof start, "every logit of the model is -infinity:");
        assert_int_equal(sampler_pick(sampler, logits, &id, &err), STATUS_FAILED);
        assert_memory_equal(err.text, start, strlen(start));
        for (int i = 0; i < n; i++) logits[i] = -INFINITY;
        logits[place] = -3e38f; /* one is enough */
        assert_int_equal(pick(sampler, logits), place);
      }
      sampler_close(sampler);
    }
  }
}

/* Both ends of each range, the next number beyond, and what is no number. */
TEST(settings_out_of_range_are_refused) {
  static const struct {
    size_t field; /* a double's */
    double good[2], bad[2];
    const char *message[2];
  } cases[] = {
#define FIELD(name) offsetof(SamplerSettings, name)
      {FIELD(temperature),
       {0, FLT_MAX},
       {-0x1p-1074, 0x1p128},
       {"temperature is -4.94066e-324, expected 0 or more",
        "temperature is 3.40282e+38, expected 0 or more"}},
      {FIELD(top_p),
       {0, 1},
       {-0.25, 1.5},
       {"top-p is -0.25, expected 0 to 1", "top-p is 1.5, expected 0 to 1"}},
      {FIELD(min_p),
       {0, 1},
       {-0.25, 1.5},
       {"min-p is -0.25, expected 0 to 1", "min-p is 1.5, expected 0 to 1"}},
      {FIELD(repetition_penalty),
       {1e-3, 1e3},
       {0x1p-10, 1000.5},
       {"repetition penalty is 0.000976562, expected 0.001 to 1000",
        "repetition penalty is 1000.5, expected 0.001 to 1000"}},
      {FIELD(presence_penalty),
       {-1e3, 1e3},
       {-1000.5, 1000.5},
       {"presence and frequency penalties are -1000.5 and 0.5, expected -1000 to 1000",
        "presence and frequency penalties are 1000.5 and 0.5, expected -1000 to 1000"}},
      {FIELD(frequency_penalty),
       {-1e3, 1e3},
       {-1000.5, 1000.5},
       {"presence and frequency penalties are 0.25 and -1000.5, expected -1000 to 1000",
        "presence and frequency penalties are 0.25 and 1000.5, expected -1000 to 1000"}},
#undef FIELD
  };
  for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
    SamplerSettings settings = neutral;
    settings.presence_penalty = 0.25;
    settings.frequency_penalty = 0.5;
    double *field = (double *)(void *)((char *)&settings + cases[c].field);
    Sampler *sampler;
    Error err = {{0}};
    for (int side = 0; side < 2; side++) {
      *field = cases[c].good[side];
      sampler_close(open_sampler(&settings, 10));
      *field = cases[c].bad[side];
      assert_int_equal(sampler_open(&settings, 10, &sampler, &err), STATUS_USAGE);
      assert_null(sampler);
      assert_string_equal(err.text, cases[c].message[side]);
    }
    *field = NAN;
    assert_int_equal(sampler_open(&settings, 10, &sampler, &err), STATUS_USAGE);
  }
  SamplerSettings settings = neutral;
  Sampler *sampler;
  Error err = {{0}};
  settings.top_k = INT32_MAX;
  sampler_close(open_sampler(&settings, 10));
  settings.top_k = -1;
  assert_int_equal(sampler_open(&settings, 10, &sampler, &err), STATUS_USAGE);
  assert_string_equal(err.text, "top-k is -1, expected 0 or more");
}

TEST(vocabularies_out_of_range_are_refused) {
  Sampler *sampler;
  Error err = {{0}};
  assert_int_equal(sampler_open(&neutral, SAMPLER_MAX_VOCAB + 1, &sampler, &err), STATUS_MODEL);
  assert_string_equal(err.text, "vocabulary of 8388609 tokens, expected 1 to 8388608");
  assert_int_equal(sampler_open(&neutral, 0, &sampler, &err), STATUS_MODEL);
  assert_null(sampler);
  sampler_close(sampler);
  sampler_close(open_sampler(&neutral, SAMPLER_MAX_VOCAB));
  sampler_close(open_sampler(&neutral, 1));
}

/* --- draws */

TEST(every_pick_counts_one_draw) {
  const float logits[5] = {1, 2, 3, 2, 1};
  for (int greedy = 0; greedy < 2; greedy++) {
    SamplerSettings settings = neutral;
    settings.temperature = greedy ? 0 : 3;
    settings.seed = 77;
    Sampler *sampler = open_sampler(&settings, 5);
    for (uint64_t i = 0; i < 6; i++)
      assert_int_equal(pick(sampler, logits), plain_pick(&settings, logits, 5, i));
    assert_int_equal(sampler_take_draw(sampler), 6);
    assert_int_equal(sampler_take_draw(sampler), 7);
    sampler_return_draws(sampler, 5); /* the next is the fourth */
    assert_int_equal(pick(sampler, logits), plain_pick(&settings, logits, 5, 3));
    sampler_return_draws(sampler, 0);
    sampler_forget(sampler);
    assert_int_equal(sampler_take_draw(sampler), 4);

    SamplerSettings bad = settings;
    bad.min_p = 2;
    bad.seed = 5;
    assert_int_equal(sampler_set(sampler, &bad, NULL), STATUS_USAGE); /* and all is as it was */
    assert_int_equal(sampler_settings(sampler)->seed, 77);
    assert_int_equal(sampler_take_draw(sampler), 5);
    settings.seed = 78;
    assert_int_equal(sampler_set(sampler, &settings, NULL), STATUS_OK);
    assert_int_equal(sampler_settings(sampler)->seed, 78);
    assert_int_equal(sampler_take_draw(sampler), 0);
    sampler_close(sampler);
  }
}

/* --- penalties */

TEST(penalties_change_what_was_seen) {
  enum { N = 6 };
  const float logits[N] = {1.0f, -1.0f, 2.5f, 0.25f, -0.5f, 2.0f};
  SamplerSettings settings = {.temperature = 1,
                              .top_p = 1,
                              .repetition_penalty = 1.3,
                              .presence_penalty = 0.4,
                              .frequency_penalty = 0.2,
                              .seed = 5};
  Sampler *sampler = open_sampler(&settings, N);
  const int prompt[N] = {1, 1, 0, 0, 1, 0}, generated[N] = {0, 2, 1, 0, 0, 3};
  for (int id = 0; id < N; id++) {
    for (int i = 0; i < prompt[id]; i++) sampler_count_token(sampler, id, false);
    for (int i = 0; i < generated[id]; i++) sampler_count_token(sampler, id, true);
  }
  float scores[N];
  for (int id = 0; id < N; id++) {
    scores[id] = logits[id];
    if (prompt[id] + generated[id]) /* transformers: RepetitionPenaltyLogitsProcessor */
      scores[id] = logits[id] < 0 ? logits[id] * 1.3f : logits[id] / 1.3f;
    if (generated[id]) { /* OpenAI, "Frequency and presence penalties" */
      float weighted = (float)generated[id] * 0.2f;
      scores[id] -= weighted;
      scores[id] -= 0.4f;
    }
  }
  for (uint64_t step = 0; step < 2000; step++)
    assert_int_equal(pick(sampler, logits), plain_pick(&settings, scores, N, step));
  sampler_forget(sampler);
  for (uint64_t step = 2000; step < 4000; step++) /* the draws go on, the penalties are gone */
    assert_int_equal(pick(sampler, logits), plain_pick(&settings, logits, N, step));
  sampler_count_token(sampler, 5, false); /* in the prompt now, and no more in an answer */
  memcpy(scores, logits, sizeof scores);
  scores[5] = logits[5] / 1.3f;
  for (uint64_t step = 4000; step < 6000; step++)
    assert_int_equal(pick(sampler, logits), plain_pick(&settings, scores, N, step));
  sampler_close(sampler);
}

/* Each penalty counts the seen tokens, alone and with the others, and may lower or raise them. */
TEST(every_penalty_counts_by_itself) {
  enum { N = 9, STEPS = 60 };
  static const double repetitions[] = {1, 0.5, 2}, others[] = {0, -0.75, 0.75};
  static const float logits[N] = {1, -1, 0.5f, -0.5f, 0, 2, -2, 1, -1};
  static const struct {
    bool prompt;
    int generated;
  } seen[N] = {{0}, {0}, {true, 0}, {true, 0}, {false, 3}, {false, 1}, {true, 2}, {true, 1}, {false, 1}};
  for (int c = 0; c < 27; c++) {
    SamplerSettings settings = {.temperature = 1,
                                .top_p = 1,
                                .repetition_penalty = repetitions[c % 3],
                                .presence_penalty = others[c / 3 % 3],
                                .frequency_penalty = others[c / 9],
                                .seed = (uint64_t)c};
    Sampler *sampler = open_sampler(&settings, N);
    float scores[N];
    assert_int_equal(sampler_has_penalties(sampler), c > 0);
    for (int id = 0; id < N; id++) {
      if (seen[id].prompt) sampler_count_token(sampler, id, false);
      for (int i = 0; i < seen[id].generated; i++) sampler_count_token(sampler, id, true);
      const float factor = (float)settings.repetition_penalty;
      scores[id] = logits[id];
      if (seen[id].prompt || seen[id].generated)
        scores[id] = logits[id] < 0 ? logits[id] * factor : logits[id] / factor;
      if (seen[id].generated)
        scores[id] = scores[id] - (float)seen[id].generated * (float)settings.frequency_penalty -
                     (float)settings.presence_penalty;
    }
    for (uint64_t step = 0; step < STEPS; step++)
      assert_int_equal(pick(sampler, logits), plain_pick(&settings, scores, N, step));
    sampler_close(sampler);
  }
}

/* As a device with a copy of them takes them; however often a token comes, it is one. */
TEST(notes_say_what_was_seen_and_how_often) {
  enum { N = 10, OFTEN = 100000 };
  uint32_t notes[N + 1];
  Sampler *sampler = open_sampler(&neutral, N);
  for (int i = 0; i < OFTEN; i++) sampler_count_token(sampler, 9, false);
  for (int i = 0; i < 3; i++) sampler_count_token(sampler, 0, true);
  sampler_count_token(sampler, 4, true);
  sampler_count_token(sampler, 4, false);
  memset(notes, 0x55, sizeof notes);
  sampler_token_counts(sampler, notes);
  const uint32_t want[N + 1] = {SAMPLER_TOKEN_SEEN | 3, 0,         0, 0, SAMPLER_TOKEN_SEEN | 1, 0, 0, 0, 0,
                                SAMPLER_TOKEN_SEEN,     0x55555555};
  assert_memory_equal(notes, want, sizeof want);
  sampler_forget(sampler);
  sampler_count_token(sampler, 1, true);
  sampler_count_token(sampler, 9, false);
  sampler_token_counts(sampler, notes);
  const uint32_t again[N + 1] = {0, SAMPLER_TOKEN_SEEN | 1, 0,         0, 0, 0, 0, 0,
                                 0, SAMPLER_TOKEN_SEEN,     0x55555555};
  assert_memory_equal(notes, again, sizeof again);
  sampler_close(sampler);
}

TEST(penalties_count_in_greedy_picks) {
  SamplerSettings settings = neutral;
  settings.temperature = 0;
  settings.repetition_penalty = 2;
  Sampler *sampler = open_sampler(&settings, 3);
  assert_int_equal(pick(sampler, (float[]){3, 2, 1}), 0);
  sampler_count_token(sampler, 0, false);
  assert_int_equal(pick(sampler, (float[]){3, 2, 1}), 1);
  assert_int_equal(pick(sampler, (float[]){-3, -4, -7}), 1); /* -6 now */
  sampler_close(sampler);
}

/* By which a device that has a copy of the notes knows that it is old. */
TEST(the_version_changes_with_what_was_seen_and_with_nothing_else) {
  Error err;
  Sampler *sampler = open_sampler(&neutral, 3);
  const uint64_t opened = sampler_version(sampler);
  pick(sampler, (float[]){3, 2, 1});
  assert_int_equal(sampler_set(sampler, &neutral, &err), STATUS_OK);
  assert_true(sampler_version(sampler) == opened);
  sampler_count_token(sampler, 0, false);
  const uint64_t seen = sampler_version(sampler);
  assert_true(seen != opened);
  sampler_count_token(sampler, 0, true); /* again, and in the answer now */
  const uint64_t generated = sampler_version(sampler);
  assert_true(generated != seen && generated != opened);
  sampler_forget(sampler);
  const uint64_t forgotten = sampler_version(sampler);
  assert_true(forgotten != generated && forgotten != seen && forgotten != opened);
  sampler_close(sampler);
}

/* --- the same everywhere */

/* Made once by this program; that every compiler, level of optimisation and machine prints the same is the
 * point. */
TEST(picks_are_the_committed_ones) {
  enum { N = 20000, STEPS = 12 };
  static const struct {
    SamplerSettings settings;
    int32_t ids[STEPS];
  } cases[] = {
      {{.temperature = 1, .top_p = 1, .repetition_penalty = 1, .seed = 1},
       {18128, 16761, 11481, 1174, 14158, 6559, 2741, 9499, 18166, 14218, 11915, 13601}},
      {{.temperature = 0.7, .top_k = 50, .top_p = 0.9, .repetition_penalty = 1, .seed = 0xfedcba9876543210},
       {507, 2184, 7083, 17816, 14762, 3325, 9848, 12372, 3287, 12574, 13557, 6131}},
      {{.temperature = 1.3,
        .top_p = 0.8,
        .min_p = 0.02,
        .repetition_penalty = 1.1,
        .presence_penalty = 0.3,
        .frequency_penalty = 0.1,
        .seed = 42},
       {11182, 9341, 12786, 14661, 16137, 6526, 12994, 7948, 2759, 9456, 14469, 9052}},
  };
  static float logits[N];
  for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
    Sampler *sampler = open_sampler(&cases[c].settings, N);
    for (int step = 0; step < STEPS; step++) {
      make_logits(logits, N, (uint64_t)step);
      int32_t id = pick(sampler, logits);
      sampler_count_token(sampler, id, true);
      assert_int_equal(id, cases[c].ids[step]);
    }
    sampler_close(sampler);
  }
}

/* --- log_probability() */

/* Each of n terms errs by 2^-51, the sum by n 2^-53 at most, the rest by a few units in the last place. */
TEST(log_probability_is_exact) {
  enum { N = 5000 };
  static float logits[N];
  make_logits(logits, N, 77);
  logits[3] = -INFINITY;
  long double sum = 0;
  for (int i = 0; i < N; i++) sum += expl(logits[i]);
  for (int id = 4; id < N; id += 500) {
    double got = log_probability(logits, N, id);
    assert_true(fabsl(got - (logits[id] - logl(sum))) < 1e-11L);
  }
  assert_true(log_probability(logits, N, 3) == -INFINITY);
  logits[100] = NAN;
  assert_true(isnan(log_probability(logits, N, 4)));
  logits[100] = INFINITY;
  assert_true(isnan(log_probability(logits, N, 4)));
}

/* The largest first, last and alone; numbers whose exponential no double holds. */
TEST(log_probability_of_extremes) {
  assert_true(log_probability((float[]){-5e30f}, 1, 0) == 0);
  for (int top = 0; top < 3; top++) {
    for (int sign = -1; sign <= 1; sign += 2) {
      float logits[3];
      for (int i = 0; i < 3; i++) logits[i] = (float)sign * 20000 - (i == top ? 0 : 1);
      const double sum = 1 + 2 * exp(-1);
      for (int id = 0; id < 3; id++) {
        const double want = (id == top ? 0 : -1) - log(sum);
        assert_true(fabs(log_probability(logits, 3, id) - want) < 1e-12);
      }
    }
  }
  assert_true(fabs(log_probability((float[]){0, -3000}, 2, 1) + 3000) < 1e-9);
}

/* --- masks */

/* A mask does what -infinity as the logit of each token outside of it does. */
TEST(a_mask_is_as_if_other_tokens_were_impossible) {
  static const int sizes[] = {1, 63, 64, 65, 1000};
  static const SamplerSettings ways[] = {
      {.temperature = 0, .top_p = 1, .repetition_penalty = 1.2},
      {.temperature = 1, .top_p = 1, .repetition_penalty = 1},
      {.temperature = 2,
       .top_k = 5,
       .top_p = 0.9,
       .min_p = 0.1,
       .repetition_penalty = 1.2,
       .presence_penalty = 1},
  };
  for (int i = 0; i < 5 * 3 * 40; i++) {
    float logits[1000], without[1000];
    uint64_t mask[16] = {0}, random = (uint64_t)i + 1;
    const int n = sizes[i % 5], one = (int)(next_number(&random) % (uint64_t)n);
    Sampler *masked = open_sampler(&ways[i / 5 % 3], n), *plain = open_sampler(&ways[i / 5 % 3], n);
    make_logits(logits, n, (uint64_t)i);
    for (int id = 0; id < n; id++) {
      const bool allowed = id == one || next_number(&random) % 40 < (uint64_t)(i % 40);
      mask[id / 64] |= (uint64_t)allowed << (id % 64);
      without[id] = allowed ? logits[id] : -INFINITY;
    }
    sampler_allow(masked, mask);
    assert_ptr_equal(sampler_allowed(masked), mask);
    for (int draw = 0; draw < 5; draw++) {
      const int32_t want = pick(plain, without), got = pick(masked, logits);
      assert_int_equal(got, want);
      sampler_count_token(masked, got, true);
      sampler_count_token(plain, want, true);
    }
    sampler_allow(masked, NULL);
    sampler_close(masked);
    sampler_close(plain);
  }
}

TEST(a_mask_without_a_possible_token_is_refused) {
  Sampler *sampler = open_sampler(&neutral, 3);
  Error err = {{0}};
  int32_t id;
  sampler_allow(sampler, (const uint64_t[]){2});
  assert_int_equal(sampler_pick(sampler, (const float[]){1, -INFINITY, NAN}, &id, &err), STATUS_FAILED);
  assert_non_null(strstr(err.text, "for a token that may come next is -infinity"));
  assert_int_equal(sampler_pick(sampler, (const float[]){1, 0, NAN}, &id, &err), STATUS_OK);
  assert_int_equal(id, 1);
  sampler_close(sampler);
}
