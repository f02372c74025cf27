/* test_quantization.c - the limits of quantization_config: rules, their names, and the steps to match them.
 *
 * Which scheme the spellings of each producer give which layer, and what is refused, is in
 * test_config_transcripts.c. */
#include "model/config/config.h"
#include "test/tests.h"

/* A llama with this quantization_config, whose quotes are single ones. */
static Status parse(const char *quant, ModelConfig *config, Error *err) {
  size_t size = strlen(quant) + 200;
  char *text = malloc(size);
  int n = snprintf(text, size, "{'model_type': 'llama', 'quantization_config': %s}", quant);
  for (int i = 0; i < n; i++)
    if (text[i] == '\'') text[i] = '"';
  Status status = config_parse("config.json", text, (size_t)n, config, err);
  free(text);
  return status;
}

static ModelConfig accepted(const char *quant) {
  ModelConfig config;
  Error err = {{0}};
  if (parse(quant, &config, &err) != STATUS_OK) fail_msg("%s: %s", quant, err.text);
  return config;
}

static void assert_refused(const char *quant, const char *part) {
  ModelConfig config;
  Error err = {{0}};
  const Status status = parse(quant, &config, &err);
  config_release(&config);
  if (status != STATUS_MODEL) fail_msg("%.300s: status %d (%s)", quant, status, err.text);
  if (!strstr(err.text, "config.json: quantization_config") || !strstr(err.text, part))
    fail_msg("%.300s: \"%s\" does not say \"%s\"", quant, err.text, part);
}

TEST(rules_have_limits) {
  enum { LONG = 5000, MANY = 16385 };
  char *text = malloc(MANY * 8 + LONG);
  size_t n = (size_t)sprintf(text, "{'quant_method': 'awq', 'modules_to_not_convert': ['");
  memset(text + n, 'a', LONG);
  strcpy(text + n + LONG, "']}");
  assert_refused(text, "has 5000 bytes, expected at most 4096");
  n = (size_t)sprintf(text, "{'quant_method': 'awq', 'modules_to_not_convert': ['x'");
  for (int i = 1; i < MANY; i++) n += (size_t)sprintf(text + n, ",'x'");
  strcpy(text + n, "]}");
  assert_refused(text, "more than 16384 rules for layers");
  n = (size_t)sprintf(text, "{'quant_method': 'gptq', 'dynamic': {'0': {}");
  for (int i = 1; i < 3000; i++) n += (size_t)sprintf(text + n, ",'%d': {}", i);
  strcpy(text + n, "}}");
  ModelConfig few = accepted(text); /* 32 layers */
  assert_true(few.quant.pattern_bytes > 3000 * 100 && few.quant.pattern_bytes < 3000 * 1000);
  Error err;
  assert_int_equal(quantization_limit(&few.quant, 4096 * 7 + 1, "here", &err), STATUS_MODEL);
  assert_string_equal(err.text, "here: 3000 rules of quantisation for 28673 layers are too many");
  config_release(&few);
  n = (size_t)sprintf(text, "{'quant_method': 'gptq', 'dynamic': {'0': {}");
  for (int i = 0; i < 2000; i++) n += (size_t)sprintf(text + n, ",'(ab){2500}%d': {}", i);
  strcpy(text + n, "}}");
  assert_refused(text, "take more than 32 MiB");
  free(text);

  ModelConfig config = accepted("{'quant_method': 'gptq', 'dynamic': {'+:(.+)+(.+)+[0-9]$': {'bits': 8}}}");
  QuantScheme scheme;
  assert_int_equal(quantization_of(&config.quant, "model.layers.0.mlp.gate_proj", "here", &scheme, &err),
                   STATUS_MODEL);
  assert_string_equal(err.text, "here: the regular expression \"(.+)+(.+)+[0-9]$\" takes too long to match "
                                "model.layers.0.mlp.gate_proj");
  config_release(&config);
}

/* The text `before`, n times `item` with commas between, and `after`. */
static char *repeated(const char *before, const char *item, size_t n, const char *after) {
  const size_t size = strlen(item);
  char *text = malloc(strlen(before) + n * (size + 1) + strlen(after) + 1), *at = text;
  at += sprintf(at, "%s", before);
  for (size_t i = 0; i < n; i++) at += sprintf(at, "%s%s", i ? "," : "", item);
  strcpy(at, after);
  return text;
}

TEST(limits_are_exact) {
  const char *const list = "{'quant_method': 'awq', 'modules_to_not_convert': [";
  char name[4200] = "'", shown[200] = "\"", *text;
  Error err = {{0}};
  text = repeated(list, "'x'", 16384, "]}");
  ModelConfig config = accepted(text);
  assert_int_equal(config.quant.n_rules, 16384);
  assert_int_equal(quantization_limit(&config.quant, 1024, "here", &err), STATUS_OK); /* 2^24 names */
  assert_int_equal(quantization_limit(&config.quant, 1025, "here", &err), STATUS_MODEL);
  assert_string_equal(err.text, "here: 16384 rules of quantisation for 1025 layers are too many");
  config_release(&config);
  free(text);

  memset(name + 1, 'a', 4096);
  strcpy(name + 4097, "'");
  text = repeated(list, name, 1, "]}");
  config = accepted(text);
  config_release(&config);
  free(text);
  strcpy(name + 4097, "a'");
  memset(shown + 1, 'a', 80);
  strcpy(shown + 81, "...\" has 4097 bytes, expected at most 4096");
  text = repeated(list, name, 1, "]}");
  assert_refused(text, shown);
  free(text);

  for (size_t n = 1024; n <= 1025; n++) {
    char *groups = calloc(n, 70), *at = groups;
    for (size_t i = 0; i < n; i++)
      at += sprintf(at, "%s'%zu': {'targets': ['Linear'], 'weights': null}", i ? "," : "", i);
    text = repeated("{'quant_method': 'compressed-tensors', 'format': 'pack-quantized', 'config_groups': {",
                    groups, 1, "}}");
    if (n == 1024) {
      config = accepted(text);
      config_release(&config);
    } else {
      assert_refused(text, "config_groups has 1025 groups, expected 1 to 1024");
    }
    free(text);
    free(groups);
  }
}

/* 2^28 steps of PCRE2 for all patterns and layers: each has at most 10,000 of them, and at least 250. */
TEST(steps_are_shared_by_patterns_and_layers) {
  static const struct {
    size_t n_layers;
    uint32_t steps; /* 0: refused */
  } cases[] = {{1, 10000}, {8, 10000}, {9, 9942}, {100, 894}, {357, 250}, {358, 0}};
  char *text = malloc(3000 * 16 + 100);
  size_t n = (size_t)sprintf(text, "{'quant_method': 'gptq', 'dynamic': {'0': {}");
  for (int i = 1; i < 3000; i++) n += (size_t)sprintf(text + n, ",'%d': {}", i);
  strcpy(text + n, "}}");
  ModelConfig config = accepted(text);
  assert_int_equal(config.quant.max_steps,
                   (1 << 28) / 3000 / (7 * 32 + 1)); /* a llama's layers and its head */
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    Error err = {{0}};
    Status status = quantization_limit(&config.quant, cases[i].n_layers, "here", &err);
    assert_int_equal(status, cases[i].steps ? STATUS_OK : STATUS_MODEL);
    if (cases[i].steps) assert_int_equal(config.quant.max_steps, cases[i].steps);
  }
  config_release(&config);
  free(text);
}

/* A pattern may take 2^28 steps over the number of patterns and over that of linear layers. So its steps show
 * how many linear layers are counted: those of all layers, and lm_head. */
TEST(all_linear_layers_are_counted) {
  enum { PATTERNS = 1000 };
  static const struct {
    const char *members;
    uint32_t linears; /* of 32 layers; 8 have attention where the others have the delta rule */
  } cases[] = {{"'model_type': 'llama'", 32 * 7},
               {"'model_type': 'qwen3_5_text'", 24 * 8 + 8 * 7}, /* qkv, z, b, a, out; gate, up, down */
               {"'model_type': 'olmo_hybrid'", 24 * 10 + 8 * 7}, /* q, k, v, z, b, a, o; gate, up, down */
               /* 7 with latent attention; all but the first have a router, two experts, an MLP beside them */
               {"'model_type': 'kimi_linear', 'num_experts': 2, 'num_experts_per_token': 1",
                25 * 9 + 7 * 4 + 3 + 31 * (1 + 2 * 3 + 3)}};
  char *text = malloc(PATTERNS * 16 + 300);
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    size_t n =
        (size_t)sprintf(text,
                        "{%s, 'num_hidden_layers': 32, 'quantization_config': {'quant_method': 'gptq', "
                        "'bits': 4, 'group_size': 128, 'dynamic': {'0': {}",
                        cases[i].members);
    for (int pattern = 1; pattern < PATTERNS; pattern++) n += (size_t)sprintf(text + n, ",'%d': {}", pattern);
    strcpy(text + n, "}}}");
    for (char *at = text; *at; at++)
      if (*at == '\'') *at = '"';
    ModelConfig c;
    Error err;
    assert_int_equal(config_parse("config.json", text, strlen(text), &c, &err), STATUS_OK);
    assert_int_equal(c.quant.max_steps, (1u << 28) / PATTERNS / (cases[i].linears + 1));
    config_release(&c);
  }
  free(text);
}
