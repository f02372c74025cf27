/* test_config.c - a config's files, and numbers that are computed from it: rotary frequencies, quantiles.
 *
 * test_config_transcripts.c has the meaning of each config, and the refusals. The reference is transformers
 * 5.23: its rotary embeddings for the frequencies in rope_reference.h (made by make_rope_reference.py), the
 * formulas of modeling_rope_utils.py in double for those of made-up configs. */
#include <math.h>
#include <sys/stat.h>
#include <unistd.h>

#include "config_text.h"
#include "rope_reference.h"
#include "test/directory.h"
#include "test/tests.h"

/* --- rotary frequencies */

typedef struct {
  uint64_t state;
} Random;

/* Even in [low, high). */
static double any(Random *random, double low, double high) {
  random->state = random->state * 6364136223846793005u + 1442695040888963407u;
  return low + (high - low) * (double)(random->state >> 11) * 0x1p-53;
}

static double clamp(double x) {
  return x < 0 ? 0 : x > 1 ? 1 : x;
}

/* Frequencies and the attention factor by the formulas, in double. */
static double expected_frequency(const RopeConfig *rope, int dim, bool long_rope, int pair) {
  const double f = pow(rope->theta, -2.0 * pair / dim), length = rope->original_max_position;
  const double turns = length * f / (2 * M_PI); /* over the original context */
  double ends[2];
  const double betas[2] = {rope->beta_fast, rope->beta_slow};
  switch (rope->kind) {
  case ROPE_PLAIN: return f;
  case ROPE_LINEAR: return f / rope->factor;
  case ROPE_LLAMA3: {
    const double kept =
        clamp((turns - rope->low_freq_factor) / (rope->high_freq_factor - rope->low_freq_factor));
    return kept * f + (1 - kept) * f / rope->factor;
  }
  case ROPE_LONGROPE: return f / (long_rope ? rope->long_factors : rope->short_factors)[pair];
  case ROPE_PROPORTIONAL: return pair < rope->n_turned ? f / rope->factor : 0;
  case ROPE_YARN: break;
  }
  for (int i = 0; i < 2; i++) ends[i] = dim * log(length / (betas[i] * 2 * M_PI)) / (2 * log(rope->theta));
  if (rope->truncate) ends[0] = floor(ends[0]), ends[1] = ceil(ends[1]);
  ends[0] = fmax(ends[0], 0);
  ends[1] = fmin(ends[1], dim - 1);
  if (ends[0] == ends[1]) ends[1] += 0.001;
  const double slowed = clamp((pair - ends[0]) / (ends[1] - ends[0]));
  return slowed * f / rope->factor + (1 - slowed) * f;
}

static double mscale(double factor, double times) {
  return factor > 1 ? 1 + 0.1 * times * log(factor) : 1;
}

static double expected_attention(const RopeConfig *rope) {
  if (rope->kind != ROPE_YARN && rope->kind != ROPE_LONGROPE) return 1;
  if (rope->attention_factor != 0) return rope->attention_factor;
  if (rope->kind == ROPE_LONGROPE)
    return rope->factor > 1 ? sqrt(1 + log(rope->factor) / log(rope->original_max_position)) : 1;
  if (rope->mscale == 0 || rope->mscale_all_dim == 0) return mscale(rope->factor, 1);
  return mscale(rope->factor, rope->mscale) / mscale(rope->factor, rope->mscale_all_dim);
}

/* Numbers that fp32 holds: the formulas' inputs are then the same in both. */
static RopeConfig any_rope(Random *random, RopeKind kind, int dim) {
  RopeConfig rope = {.kind = kind,
                     .theta = floor(any(random, 500, 1e6)),
                     .factor = (float)(any(random, 0, 1) < 0.2 ? any(random, 0.3, 1) : any(random, 1, 40)),
                     .low_freq_factor = floor(any(random, 1, 4)),
                     .high_freq_factor = floor(any(random, 4, 9)),
                     .original_max_position = floor(any(random, 8, 1 << 17)),
                     .beta_fast = floor(any(random, 16, 64)),
                     .beta_slow = floor(any(random, 1, 8)),
                     .attention_factor = any(random, 0, 1) < 0.3 ? any(random, 0.5, 2) : 0,
                     .mscale = any(random, 0, 1) < 0.6 ? any(random, 0.1, 2) : 0,
                     .mscale_all_dim = any(random, 0, 1) < 0.6 ? any(random, 0.1, 2) : 0,
                     .truncate = any(random, 0, 1) < 0.5,
                     .n_turned = dim / 4};
  for (int i = 0; i < dim / 2; i++) {
    rope.short_factors[i] = (float)any(random, 0.5, 3);
    rope.long_factors[i] = (float)any(random, 1, 60);
  }
  return rope;
}

/* fp32 against double, in units of 2^-24 of the unscaled frequency: the power and its reciprocal err by a
 * unit each, and each further operation by half a one of at most twice the frequency: ten in all. llama3's
 * weights add up to high / (high - low) <= 8, yarn's as many as the ramp's place is widths away from 0: 40,
 * with a factor of 2 or more between the betas and theta up to 10^6. A wrong term is thousands. */
TEST(frequencies_follow_the_formulas) {
  static const int dims[] = {2, 16, 64, 80, 128, 256, 512};
  Random random = {7};
  for (int i = 0; i < 600; i++) {
    const RopeKind kind = (RopeKind)(i % 6);
    const int dim = dims[i / 6 % 7];
    const bool long_rope = i % 2;
    RopeConfig rope = any_rope(&random, kind, dim);
    rope.rotary_dim = dim;
    float got[MAX_HEAD_DIM / 2], attention;
    rope_frequencies(&rope, long_rope, got, &attention);
    assert_true(attention == (float)expected_attention(&rope));
    for (int pair = 0; pair < dim / 2; pair++) {
      const double want = expected_frequency(&rope, dim, long_rope, pair);
      const double f = pow(rope.theta, -2.0 * pair / dim);
      if (!(fabs(got[pair] - want) <= 64 * 0x1p-24 * fmax(f, want)))
        fail_msg("%s, case %d: frequency %d of %d is %a, expected %a", rope_kind_name(kind), i, pair, dim,
                 (double)got[pair], want);
    }
  }
}

/* Errors are counted in 2^-23 of the frequency without scaling, f. Both sides compute theta^e to within 1 ulp
 * of each other (PyTorch's vectorised pow errs by at most 1 ulp, ours by half of one) and round 1 / theta^e:
 * 2 units. linear divides: one more. llama3's weight s = (original / wave - low) / (high - low) carries
 * wave's 3 units times high / (high - low) = 4/3 into s (1 - 1/factor) f, and its sum of products rounds four
 * times by half a unit of at most f: 2 + 4 + 2 = 8. yarn's weights are computed alike; its two terms, at most
 * 2 f where factor is 0.5, carry 2 units each and round: 8. longrope multiplies the wave: one more. */
TEST(frequencies_are_those_of_transformers) {
  static const double units[] = {
      [ROPE_PLAIN] = 2, [ROPE_LINEAR] = 3, [ROPE_LLAMA3] = 8, [ROPE_YARN] = 8, [ROPE_LONGROPE] = 3};
  for (size_t i = 0; i < sizeof rope_references / sizeof *rope_references; i++) {
    const char *text = rope_references[i].config;
    ModelConfig c;
    Error err;
    float got[128], attention_factor;
    if (config_parse("config.json", text, strlen(text), &c, &err) != STATUS_OK)
      fail_msg("%s: %s", text, err.text);
    assert_int_equal(c.rope.rotary_dim, 2 * rope_references[i].n);
    rope_frequencies(&c.rope, rope_references[i].long_rope, got, &attention_factor);
    assert_true(attention_factor == rope_references[i].attention_factor);
    for (int pair = 0; pair < rope_references[i].n; pair++) {
      double want = rope_references[i].frequencies[pair];
      double unscaled = pow(c.rope.theta, -2.0 * pair / c.rope.rotary_dim);
      if (!(fabs(got[pair] - want) <= units[c.rope.kind] * 0x1p-23 * unscaled))
        fail_msg("%s: frequency %d is %a, expected %a", text, pair, (double)got[pair], want);
    }
    config_release(&c);
  }
}

/* Values of torch.distributions.Normal(0, 1).icdf() in fp64, of p in fp32. */
TEST(quantiles_of_a_gaussian) {
  static const double cases[][2] = {
      {0.95, 1.644853511366523}, {0.5, 0}, {0.25, -0.6744897501960818}, {0.999999, 4.750757754603034}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
    assert_true(fabs(gaussian_quantile(cases[i][0]) - cases[i][1]) < 1e-9);
}

/* --- directories */

static const char *const names[] = {"config.json", "quant_config.json", "generation_config.json"};

/* Loads a directory with the given texts; NULL: the file is absent. */
static Status load(const char *config_text, const char *quant, const char *generation, ModelConfig *config,
                   Error *err) {
  const char *texts[] = {config_text, quant, generation};
  for (int i = 0; i < 3; i++) {
    char path[300];
    snprintf(path, sizeof path, "%s/%s", own_directory, names[i]);
    unlink(path);
    if (!texts[i]) continue;
    FILE *file = fopen(path, "w");
    char *copy = quoted(texts[i]);
    fputs(copy, file);
    free(copy);
    fclose(file);
  }
  return config_load(own_directory, config, err);
}

TEST(end_tokens_and_sampling_come_from_generation_config) {
  ModelConfig c;
  Error err;
  assert_int_equal(
      load("{'model_type': 'llama', 'eos_token_id': [7, 8]}", NULL,
           "{'eos_token_id': [3, 4, 5], 'bos_token_id': 9, 'do_sample': true, 'temperature': 0.6,"
           "'top_k': 20, 'top_p': 0.95, 'min_p': 0.1, 'repetition_penalty': 1.05}",
           &c, &err),
      STATUS_OK);
  assert_int_equal(c.n_eos, 3);
  assert_int_equal(c.eos[0], 3);
  assert_int_equal(c.bos, 9);
  assert_true(c.generation.do_sample && c.generation.temperature == 0.6 && c.generation.top_k == 20);
  assert_true(c.generation.top_p == 0.95 && c.generation.min_p == 0.1 &&
              c.generation.repetition_penalty == 1.05);
  config_release(&c);

  assert_int_equal(load("{'model_type': 'llama', 'eos_token_id': [7, 8]}", NULL,
                        "{'eos_token_id': null, 'top_k': -1}", &c, &err),
                   STATUS_OK);
  assert_int_equal(c.n_eos, 2);
  assert_int_equal(c.eos[1], 8);
  assert_int_equal(c.generation.top_k, 0);
  config_release(&c);

  assert_int_equal(load("{'model_type': 'llama'}", NULL, "{'eos_token_id': 11}", &c, &err), STATUS_OK);
  assert_int_equal(c.n_eos, 1);
  assert_int_equal(c.eos[0], 11);
  config_release(&c);

  assert_int_equal(load("{'model_type': 'llama'}", NULL, "{'temperature': 'hot'}", &c, &err), STATUS_MODEL);
  assert_non_null(strstr(err.text, "generation_config.json: temperature is \"hot\""));
  config_release(&c);
}

TEST(an_old_quant_config_counts_where_config_says_nothing) {
  ModelConfig c;
  Error err;
  const char *old = "{'zero_point': true, 'q_group_size': 64, 'w_bit': 4, 'version': 'GEMM'}";
  assert_int_equal(load("{'model_type': 'llama'}", old, NULL, &c, &err), STATUS_OK);
  assert_int_equal(c.quant.scheme.method, QUANT_AWQ);
  assert_int_equal(c.quant.scheme.group, 64);
  config_release(&c);
  assert_int_equal(
      load("{'model_type': 'llama', 'quantization_config': {'quant_method': 'awq', 'group_size': 32}}", old,
           NULL, &c, &err),
      STATUS_OK);
  assert_int_equal(c.quant.scheme.group, 32);
  config_release(&c);
  assert_int_equal(load("{'model_type': 'llama'}", "{'version': 'GEMV', 'w_bit': 4}", NULL, &c, &err),
                   STATUS_MODEL);
  assert_non_null(strstr(err.text, "quant_config.json: AWQ layout GEMV is not supported"));
  config_release(&c);
}

TEST(a_directory_without_a_config_is_refused) {
  ModelConfig c;
  Error err;
  assert_int_equal(load(NULL, NULL, "{}", &c, &err), STATUS_MODEL);
  assert_non_null(strstr(err.text, "/config.json: cannot open: No such file"));
  config_release(&c);
  assert_int_equal(load("", NULL, NULL, &c, &err), STATUS_MODEL);
  assert_non_null(strstr(err.text, "/config.json: empty, expected JSON"));
  config_release(&c);
}

TEST(every_sampling_default_has_its_range) {
  static const struct {
    const char *key, *least, *less, *most, *more;
  } members[] = {
      {"temperature", "0", "-0.01", "1000", "1000.1"},
      {"top_k", "-1", "-2", "2147483647", "2147483648"},
      {"top_p", "0", "-0.01", "1", "1.01"},
      {"min_p", "0", "-0.01", "1", "1.01"},
      {"repetition_penalty", "0.001", "0.0009", "1000", "1000.1"},
      {"bos_token_id", "-1", "-2", "2147483647", "2147483648"},
      {"eos_token_id", "0", "-1", "2147483647", "2147483648"},
      {"do_sample", "false", "0", "true", "1"},
  };
  for (size_t i = 0; i < sizeof members / sizeof *members; i++) {
    const char *const values[] = {members[i].least, members[i].most, members[i].less, members[i].more};
    for (size_t k = 0; k < 4; k++) {
      char text[100], said[100];
      ModelConfig c;
      Error err = {{0}};
      snprintf(text, sizeof text, "{'%s': %s}", members[i].key, values[k]);
      if (load("{'model_type': 'llama'}", NULL, text, &c, &err) != (k < 2 ? STATUS_OK : STATUS_MODEL))
        fail_msg("%s: \"%s\"", text, err.text);
      snprintf(said, sizeof said, "generation_config.json: %s is %s, expected", members[i].key, values[k]);
      if (k >= 2 && !strstr(err.text, said)) fail_msg("%s: \"%s\"", text, err.text);
      config_release(&c);
    }
  }
}

/* Settings that generation_config.json leaves out are neutral; tokens that it leaves out are those of
 * config.json. */
TEST(an_empty_generation_config_changes_nothing) {
  static const char *const empty[] = {"{}", "{'eos_token_id': null, 'bos_token_id': null, 'top_k': null}"};
  for (size_t i = 0; i < 2; i++) {
    ModelConfig c;
    Error err;
    assert_int_equal(
        load("{'model_type': 'llama', 'bos_token_id': 5, 'eos_token_id': [6, 7]}", NULL, empty[i], &c, &err),
        STATUS_OK);
    assert_true(c.bos == 5 && c.n_eos == 2 && c.eos[0] == 6 && c.eos[1] == 7);
    assert_true(!c.generation.do_sample && c.generation.temperature == 1 && c.generation.top_k == 0);
    assert_true(c.generation.top_p == 1 && c.generation.min_p == 0 && c.generation.repetition_penalty == 1);
    config_release(&c);
  }
}

static CMFixtureFunction before_all = make_own_directory, after_all = remove_own_directory;
