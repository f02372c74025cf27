/* test_quantization.c - quantization_config in the spellings of each producer: which scheme it gives which
 * layer, and the message of every config that is refused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/config/config.h"

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

/* --- what is taken */

#define CT_GROUP(bits, more)                                                                                 \
  "{'targets': ['Linear'], 'weights': {'num_bits': " bits ", 'type': 'int'" more "}}"
#define CT(format, group)                                                                                    \
  "{'quant_method': 'compressed-tensors', 'format': '" format "', 'config_groups': {'group_0': " group "}}"
#define INT8_INPUTS                                                                                          \
  ", 'input_activations': {'num_bits': 8, 'type': 'int', 'symmetric': true, 'dynamic': true, 'strategy': "   \
  "'token'}}"
#define CT_INT8 "{'targets': ['Linear'], 'weights': {'num_bits': 8, 'strategy': 'channel'}" INT8_INPUTS

#define CT_INPUTS(members)                                                                                   \
  "{'targets': ['Linear'], 'weights': {'num_bits': 8, 'strategy': 'channel'}, 'input_activations': "         \
  "{" members "}}"

static void each_producer_is_understood(void **state) {
  (void)state;
  static const struct {
    const char *quant;
    QuantMethod method;
    int bits, group;
    bool symmetric, zeros_less_one;
  } cases[] = {
      {"{'quant_method': 'awq'}", QUANT_AWQ, 4, 128, false, false},
      {"{'quant_method': 'awq', 'w_bit': 4, 'q_group_size': -1, 'version': 'GEMM', 'zero_point': true, "
       "'modules_to_not_convert': null}",
       QUANT_AWQ, 4, -1, false, false},
      {"{'quant_method': 'awq', 'bits': 4, 'group_size': 64, 'format': 'gemm', 'backend': 'autoawq'}",
       QUANT_AWQ, 4, 64, false, false},
      {"{'quant_method': 'awq', 'zero_point': false}", QUANT_AWQ, 4, 128, true, false},
      {"{'method': 'awq', 'checkpoint_format': 'gemm', 'sym': true, 'adapter': null}", QUANT_AWQ, 4, 128,
       true, false},
      {"{'quant_method': 'auto-round', 'packing_format': 'auto_round:auto_awq', 'bits': 4, 'group_size': 32, "
       "'sym': true, 'data_type': 'int'}",
       QUANT_AWQ, 4, 32, true, false},
      {"{'quant_method': 'auto-round', 'packing_format': 'auto_round:auto_gptq', 'sym': true}", QUANT_GPTQ, 4,
       128, true, true},
      {"{'quant_method': 'intel/auto-round', 'backend': 'autoround:gptq:exllamav2', 'bits': 8}", QUANT_GPTQ,
       8, 128, true, true},
      {"{'quant_method': 'autoround', 'packing_format': 'auto_round', 'sym': false}", QUANT_GPTQ, 4, 128,
       false, false},
      {"{'quant_method': 'auto-round', 'packing_format': 'auto_round:gptqmodel', 'sym': false}", QUANT_GPTQ,
       4, 128, false, false},
      {"{'quant_method': 'gptq', 'bits': 4, 'group_size': 128, 'desc_act': false}", QUANT_GPTQ, 4, 128, true,
       true},
      {"{'quant_method': 'gptq', 'bits': 8, 'group_size': -1, 'sym': false, 'checkpoint_format': 'gptq'}",
       QUANT_GPTQ, 8, -1, false, true},
      {"{'quant_method': 'gptq', 'bits': 4, 'format': 'gptq_v2', 'checkpoint_format': 'GPTQ_V2', "
       "'pack_dtype': "
       "'int32', 'is_marlin_format': false}",
       QUANT_GPTQ, 4, 128, true, false},
      {CT("pack-quantized", CT_GROUP("4", ", 'group_size': 32, 'symmetric': false")), QUANT_PACKED, 4, 32,
       false, false},
      {CT("pack-quantized", CT_GROUP("8", ", 'strategy': 'channel', 'group_size': null, 'dynamic': false")),
       QUANT_PACKED, 8, -1, true, false},
      {CT("mixed-precision", "{'format': 'pack-quantized', 'targets': ['Linear'], 'weights': {'num_bits': 4, "
                             "'group_size': 64}}"),
       QUANT_PACKED, 4, 64, true, false},
      {CT("int-quantized", CT_GROUP("8", ", 'group_size': -1")), QUANT_BYTES, 8, -1, true, false},
      {CT("int-quantized", CT_INT8), QUANT_INT8, 8, -1, true, false},
      {CT("dense", CT_GROUP("8", ", 'group_size': -1")), QUANT_NONE, 0, 0, false, false},
      /* Settings that are given twice, settings that change nothing, and settings that are left out. */
      {"{'quant_method': 'awq', 'bits': 4, 'w_bit': 4, 'group_size': 64, 'q_group_size': 64}", QUANT_AWQ, 4,
       64, false, false},
      {"{'quant_method': 'awq', 'sym': true, 'zero_point': true, 'adapter': {}, 'rotation_config': {}}",
       QUANT_AWQ, 4, 128, false, false},
      {"{'quant_method': 'gptq', 'format': null, 'checkpoint_format': 'GPTQ'}", QUANT_GPTQ, 4, 128, true,
       true},
      {"{'quant_method': 'gptq'}", QUANT_GPTQ, 4, 128, true, true},
      {"{'quant_method': 'auto-round', 'data_type': 'int_sym', 'act_bits': 16}", QUANT_GPTQ, 4, 128, true,
       true},
      {"{'quant_method': 'auto-round', 'backend': 'auto_round:awq', 'sym': true}", QUANT_AWQ, 4, 128, true,
       false},
      {"{'quant_method': 'auto-round', 'backend': 'auto_round:awq', 'packing_format': "
       "'auto_round:gptqmodel'}",
       QUANT_GPTQ, 4, 128, true, false},
      {CT("int-quantized", "{'targets': ['Linear'], 'weights': {'strategy': 'channel'}}"), QUANT_BYTES, 8, -1,
       true, false},
      {CT("pack-quantized", CT_GROUP("4", ", 'group_size': -1, 'dynamic': null")), QUANT_PACKED, 4, -1, true,
       false},
      {CT("pack-quantized", CT_GROUP("4", ", 'group_size': 8, 'strategy': 'group'")), QUANT_PACKED, 4, 8,
       true, false},
      {CT("int-quantized", "{'format': 'pack-quantized', 'targets': ['Linear'], 'weights': {'num_bits': 4, "
                           "'group_size': 32}}"),
       QUANT_PACKED, 4, 32, true, false},
      {"{'quant_method': 'compressed-tensors', 'format': 'pack-quantized', 'transform_config': "
       "{'config_groups': {}}, 'sparsity_config': {'format': 'dense'}, 'config_groups': {'a': " CT_GROUP(
           "4", ", 'group_size': 32") "}}",
       QUANT_PACKED, 4, 32, true, false},
      /* The usual scheme is that of the first group that has one. */
      {"{'quant_method': 'compressed-tensors', 'format': 'pack-quantized', 'transform_config': {}, "
       "'sparsity_config': {}, 'config_groups': {'a': {'targets': ['re:x'], 'weights': null}, 'b': " CT_GROUP(
           "8", ", 'group_size': 64") ", 'c': " CT_GROUP("4", ", 'group_size': 32") "}}",
       QUANT_PACKED, 8, 64, true, false},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    ModelConfig config = accepted(cases[i].quant);
    const QuantConfig *quant = &config.quant;
    assert_int_equal(quant->scheme.method, cases[i].method);
    assert_int_equal(quant->scheme.bits, cases[i].bits);
    assert_int_equal(quant->scheme.group, cases[i].group);
    assert_int_equal(quant->scheme.symmetric, cases[i].symmetric);
    assert_int_equal(quant->zeros_less_one, cases[i].zeros_less_one);
    assert_int_equal(quant->int8_activations, cases[i].method == QUANT_INT8);
    config_release(&config);
  }
}

/* Bits that the layer of this name has by the config; 0: it is dense. */
static int bits_of(const ModelConfig *config, const char *name) {
  QuantScheme scheme;
  Error err = {{0}};
  if (quantization_of(&config->quant, name, "config.json", &scheme, &err) != STATUS_OK)
    fail_msg("%s", err.text);
  return scheme.bits;
}

#define DOWN "model.layers.1.mlp.down_proj"
#define UP   "model.layers.10.mlp.up_proj"

static void rules_name_layers(void **state) {
  (void)state;
  static const struct {
    const char *quant;
    int down, up, head;
  } cases[] = {
      /* AutoAWQ: parts of names. */
      {"{'quant_method': 'awq', 'modules_to_not_convert': ['lm_head', 'layers.1.']}", 0, 4, 0},
      {"{'quant_method': 'awq', 'modules_to_not_convert': ['visual', 're:.*up_proj$']}", 4, 0, 4},
      /* GPTQModel: regular expressions from the beginning of a name, the first that fits. */
      {"{'quant_method': 'gptq', 'dynamic': {'-:.*down_proj': {}, '+:.*(down|up)_proj': {'bits': 8}}}", 0, 8,
       4},
      {"{'quant_method': 'gptq', 'dynamic': {'model\\\\.layers\\\\.1\\\\.': {'bits': 8, 'group_size': 32}}}",
       8, 4, 4},
      {"{'quant_method': 'gptq', 'dynamic': {'layers': {'bits': 8}, '^lm_head$': {'bits': 8}}}", 4, 4, 8},
      {"{'quant_method': 'gptq', 'dynamic': false}", 4, 4, 4},
      {"{'quant_method': 'gptq', 'bits': 8, 'dynamic': {'+:.*down': {'group_size': 64}, 'lm': {'bits': 4}}}",
       8, 8, 4},
      /* AutoRound: names, then regular expressions anywhere. */
      {"{'quant_method': 'auto-round', 'extra_config': {'.*mlp.*': {'bits': 8}, '" DOWN "': {'bits': 16}, "
       "'lm_head': {'bits': 16, 'data_type': 'fp'}}}",
       0, 8, 0},
      {"{'quant_method': 'auto-round', 'packing_format': 'auto_round:auto_awq', 'extra_config': "
       "{'10.mlp.(up|x)': "
       "{'bits': 16}}}",
       4, 0, 4},
      /* compressed-tensors: ignore, then names, then regular expressions from the beginning, then classes. */
      {"{'quant_method': 'compressed-tensors', 'format': 'pack-quantized', 'ignore': ['lm_head', "
       "'re:.*layers\\\\.1\\\\.'], 'config_groups': {'a': " CT_GROUP("4", ", 'group_size': 32") "}}",
       0, 4, 0},
      {"{'quant_method': 'compressed-tensors', 'format': 'pack-quantized', 'config_groups': {'a': "
       "{'targets': "
       "['Linear'], 'weights': {'num_bits': 4, 'group_size': 32}}, 'b': {'targets': ['re:.*_proj', "
       "'lm_head'], "
       "'weights': {'num_bits': 8, 'group_size': -1}}, 'c': {'targets': ['" UP
       "'], 'weights': {'num_bits': 4, "
       "'group_size': 32}}}}",
       8, 4, 8},
      {"{'quant_method': 'compressed-tensors', 'format': 'pack-quantized', 'ignore': ['down_proj', "
       "'Embedding'], "
       "'config_groups': {'a': {'targets': ['re:mlp', '" UP
       "'], 'weights': {'num_bits': 4, 'group_size': 32}}}}",
       0, 4, 0},
      {"{'quant_method': 'compressed-tensors', 'format': 'pack-quantized', 'config_groups': {'a': "
       "{'targets': "
       "['Linear'], 'weights': null}, 'b': {'targets': ['re:.*up'], 'weights': {'num_bits': 4, 'group_size': "
       "8}}}}",
       0, 4, 0},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    ModelConfig config = accepted(cases[i].quant);
    const int found[] = {bits_of(&config, DOWN), bits_of(&config, UP), bits_of(&config, "lm_head")};
    if (found[0] != cases[i].down || found[1] != cases[i].up || found[2] != cases[i].head)
      fail_msg("%s gives %d, %d, %d", cases[i].quant, found[0], found[1], found[2]);
    config_release(&config);
  }
}

/* A rule has the scheme of all layers but for what it says. */
static void rules_change_what_they_say(void **state) {
  (void)state;
#define GPTQ  "{'quant_method': 'gptq', 'group_size': 64, 'dynamic': {"
#define ROUND "{'quant_method': 'auto-round', 'group_size': 64, 'sym': true, 'extra_config': {"
  static const struct {
    const char *quant;
    QuantScheme scheme; /* of "lm_head" */
  } cases[] = {
      {GPTQ "'x': {}}}", {QUANT_GPTQ, 4, 64, 0, true}},
      {GPTQ "'lm': {}}}", {QUANT_GPTQ, 4, 64, 0, true}},
      {GPTQ "'lm': {'bits': 8}}}", {QUANT_GPTQ, 8, 64, 0, true}},
      {GPTQ "'lm': {'group_size': 32}}}", {QUANT_GPTQ, 4, 32, 0, true}},
      {GPTQ "'lm': {'group_size': -1}}}", {QUANT_GPTQ, 4, -1, 0, true}},
      {GPTQ "'lm': {'sym': false}}}", {QUANT_GPTQ, 4, 64, 0, false}},
      {"{'quant_method': 'gptq', 'sym': false, 'dynamic': {'lm': {'bits': 8}}}",
       {QUANT_GPTQ, 8, 128, 0, false}},
      {GPTQ "'+:lm': {'bits': 8, 'group_size': 32, 'sym': false}}}", {QUANT_GPTQ, 8, 32, 0, false}},
      {GPTQ "'lm': {'bits': 16}}}", {QUANT_NONE, 0, 0, 0, false}},
      {GPTQ "'-:lm': {'bits': 8}}}", {QUANT_NONE, 0, 0, 0, false}},
      {GPTQ "'lm': {'bits': 8}}, 'modules_to_not_convert': ['head']}", {QUANT_GPTQ, 8, 64, 0, true}},
      {GPTQ "'x': {'bits': 8}}, 'modules_to_not_convert': ['head']}", {QUANT_NONE, 0, 0, 0, false}},
      {ROUND "'lm_head': {'bits': 8, 'sym': false}, 'lm': {'bits': 16}}}", {QUANT_GPTQ, 8, 64, 0, false}},
      {ROUND "'head': {'bits': 8}}}", {QUANT_GPTQ, 4, 64, 0, true}}, /* a name is a whole one */
      {ROUND "'.*head': {'bits': 8}, 'lm_head': {'group_size': 16}}}", {QUANT_GPTQ, 4, 16, 0, true}},
      {ROUND "'[h]ead': {'bits': 8}}}", {QUANT_GPTQ, 8, 64, 0, true}},
      {CT("pack-quantized", "{'targets': ['re:lm_hea', 're:head'], 'weights': {'num_bits': 8, 'group_size': "
                            "16, 'symmetric': false}}"),
       {QUANT_PACKED, 8, 16, 0, false}},
      {CT("int-quantized", CT_INT8), {QUANT_INT8, 8, -1, 0, true}},
      {CT("pack-quantized", "{'targets': [], 'weights': {'num_bits': 4, 'group_size': 16}}"),
       {QUANT_NONE, 0, 0, 0, false}}, /* no layer is named */
  };
#undef GPTQ
#undef ROUND
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    ModelConfig config = accepted(cases[i].quant);
    QuantScheme found;
    Error err = {{0}};
    assert_int_equal(quantization_of(&config.quant, "lm_head", "here", &found, &err), STATUS_OK);
    if (found.method != cases[i].scheme.method || found.bits != cases[i].scheme.bits ||
        found.group != cases[i].scheme.group || found.symmetric != cases[i].scheme.symmetric)
      fail_msg("%s: method %d, %d bits, groups of %d, symmetric %d", cases[i].quant, (int)found.method,
               found.bits, found.group, found.symmetric);
    config_release(&config);
  }
}

/* --- what is refused */

typedef struct {
  const char *quant, *part;
} Refusal;

static void assert_refused(const Refusal *cases, size_t n) {
  for (size_t i = 0; i < n; i++) {
    ModelConfig config;
    Error err = {{0}};
    Status status = parse(cases[i].quant, &config, &err);
    config_release(&config);
    if (status != STATUS_MODEL) fail_msg("%s: status %d (%s)", cases[i].quant, status, err.text);
    if (!strstr(err.text, "config.json: quantization_config") || !strstr(err.text, cases[i].part))
      fail_msg("%s: \"%s\" does not say \"%s\"", cases[i].quant, err.text, cases[i].part);
  }
}

#define REFUSED(cases) assert_refused(cases, sizeof(cases) / sizeof *(cases))

static void other_methods(void **state) {
  (void)state;
  static const Refusal cases[] = {
      {"[]", "quantization_config is an array, expected an object"},
      {"{}", "quant_method is missing, expected awq, gptq, auto-round, compressed-tensors, fp8 or modelopt"},
      {"{'bits': 4, 'desc_act': false}", "quant_method is missing, expected awq"},
      {"{'bits': 4, 'group_size': 64, 'mode': 'affine'}", "mlx (Apple's layout) is not supported"},
      {"{'load_in_8bit': true, 'bits': 8}", "bitsandbytes (NF4 or LLM.int8()) is not supported"},
      {"{'quant_method': 4}", "quant_method is 4"},
      {"{'quant_method': 'bitsandbytes', 'load_in_4bit': true}",
       "bitsandbytes (NF4 or LLM.int8()) is not supported, expected awq, gptq, auto-round, "
       "compressed-tensors, fp8, modelopt or mxfp4"},
      {"{'quant_method': 'exl2'}", "exl2 (ExLlamaV2) is not supported"},
      {"{'quant_method': 'exl3'}", "exl3 (ExLlamaV3) is not supported"},
      {"{'quant_method': 'hqq'}", "take such a checkpoint of the same model, or an unquantised one"},
      {"{'quant_method': 'aqlm'}", "aqlm is not supported"},
      {"{'quant_method': 'fbgemm_fp8'}", "fbgemm_fp8 (8-bit floating point) is not supported"},
      {"{'quant_method': 'mlx'}", "mlx (Apple's layout) is not supported"},
      {"{'quant_method': 'marlin'}", "marlin (weights in a GPU's order) is not supported"},
      {"{'bits': 4}", "mlx (Apple's layout) is not supported"},
      {"{'group_size': 64}", "quant_method is missing, expected awq"},
      {"{'load_in_4bit': false}", "bitsandbytes (NF4 or LLM.int8()) is not supported"},
      {"{'bits': 4, 'sym': true}", "quant_method is missing, expected awq"},
      {"{'bits': 4, 'zero_point': true}", "quant_method is missing, expected awq"},
      {"{'quant_method': 'gptq', 'adapter': 'lora'}", "adapter is not supported"},
      {"{'quant_method': 'gptq', 'rotation_config': []}", "rotation_config is not supported"},
  };
  REFUSED(cases);
}

static void other_awq(void **state) {
  (void)state;
  static const Refusal cases[] = {
      {"{'quant_method': 'awq', 'bits': 8}", "AWQ of 8 bits is not supported, expected 4: quantise again"},
      {"{'quant_method': 'awq', 'version': 'gemv'}",
       "AWQ layout gemv is not supported, expected gemm: save the model again with AutoAWQ and \"version\": "
       "\"GEMM\""},
      {"{'quant_method': 'awq', 'version': 'GEMV_FAST'}", "AWQ layout GEMV_FAST is not supported"},
      {"{'quant_method': 'awq', 'version': 'marlin'}", "AWQ layout marlin"},
      {"{'quant_method': 'awq', 'backend': 'llm-awq'}", "AWQ layout llm-awq"},
      {"{'quant_method': 'awq', 'format': 'gptq'}", "AWQ layout gptq"},
      {"{'quant_method': 'awq', 'group_size': 0}", "group_size is 0"},
      {"{'quant_method': 'awq', 'group_size': -2}", "group_size is -2"},
      {"{'quant_method': 'awq', 'zero_point': 'yes'}", "zero_point is \"yes\""},
      {"{'quant_method': 'awq', 'adapter': {'name': 'lora'}}", "adapter is not supported"},
  };
  REFUSED(cases);
}

static void other_gptq(void **state) {
  (void)state;
  static const Refusal cases[] = {
      {"{'quant_method': 'gptq', 'bits': 3}", "GPTQ of 3 bits is not supported, expected 4 or 8"},
      {"{'quant_method': 'gptq', 'bits': 2}", "GPTQ of 2 bits is not supported, expected 4 or 8"},
      {"{'quant_method': 'gptq', 'is_marlin_format': true}", "GPTQ layout marlin is not supported"},
      {"{'quant_method': 'gptq', 'checkpoint_format': 'bitblas'}", "GPTQ layout bitblas is not supported"},
      {"{'quant_method': 'gptq', 'checkpoint_format': 'gemm'}", "expected gptq or gptq_v2"},
      {"{'quant_method': 'gptq', 'pack_dtype': 'int16'}",
       "pack_dtype int16 is not supported, expected int32"},
      {"{'quant_method': 'gptq', 'dynamic': {'+:.*q_proj': {'bits': 3}}}", "GPTQ of 3 bits"},
      {"{'quant_method': 'gptq', 'dynamic': {'+:.*q_proj': 4}}", "+:.*q_proj is 4, expected an object"},
      {"{'quant_method': 'gptq', 'dynamic': ['x']}", "dynamic is an array, expected an object"},
      {"{'quant_method': 'gptq', 'dynamic': {'+:q_(proj': {}}}", "\"q_(proj\" is not valid: missing"},
  };
  REFUSED(cases);
}

static void other_autoround(void **state) {
  (void)state;
  static const Refusal cases[] = {
      {"{'quant_method': 'auto-round', 'packing_format': 'auto_round:llm_compressor'}",
       "AutoRound's packing auto_round:llm_compressor is not supported, expected auto_round:auto_awq"},
      {"{'quant_method': 'auto-round', 'packing_format': 'auto_round:fp8_static'}", "export the model again"},
      {"{'quant_method': 'auto-round', 'packing_format': 'x_FP4'}", "AutoRound's packing x_FP4 is not"},
      {"{'quant_method': 'auto-round', 'packing_format': 'mxint'}", "AutoRound's packing mxint is not"},
      {"{'quant_method': 'auto-round', 'packing_format': 'gguf:q4'}", "AutoRound's packing gguf:q4 is not"},
      {"{'quant_method': 'auto-round', 'backend': 'mlx'}", "AutoRound's packing mlx is not"},
      {"{'quant_method': 'auto-round', 'packing_format': 'fake'}", "AutoRound's packing fake is not"},
      {"{'quant_method': 'auto-round', 'packing_format': 'exl'}", "AutoRound's packing exl is not"},
      {"{'quant_method': 'auto-round', 'packing_format': ''}", "AutoRound's packing  is not"},
      {"{'quant_method': 'auto-round', 'data_type': 'mx_fp'}", "data_type mx_fp is not supported"},
      {"{'quant_method': 'auto-round', 'act_bits': 8}", "act_bits is 8, expected 16"},
      {"{'quant_method': 'auto-round', 'bits': 2}", "GPTQ of 2 bits"},
      {"{'quant_method': 'auto-round', 'packing_format': 'auto_round:auto_awq', 'extra_config': {'lm_head': "
       "{'bits': 8}}}",
       "lm_head: AWQ of 8 bits is not supported"},
      {"{'quant_method': 'auto-round', 'extra_config': []}", "extra_config is an array, expected an object"},
      {"{'quant_method': 'auto-round', 'rotation_config': {'kind': 'hadamard'}}",
       "rotation_config is not supported"},
  };
  REFUSED(cases);
}

#define WITH(members) "{'quant_method': 'compressed-tensors', 'format': 'pack-quantized', " members "}"

static void other_compressed_formats(void **state) {
  (void)state;
  static const Refusal cases[] = {
      {CT("mxfp8-quantized", CT_GROUP("8", "")),
       "compressed-tensors' format mxfp8-quantized (FP8 with a scale for 32 inputs) is not supported"},
      {CT("marlin-24", CT_GROUP("4", "")), "expected pack-quantized, int-quantized, float-quantized, nvfp4-"},
      {CT("mxfp6-pack-quantized", CT_GROUP("6", "")),
       "format mxfp6-pack-quantized (6-bit floating point) is"},
      {CT("mixed-precision", CT_GROUP("4", ", 'group_size': 32")), "format is missing"},
      {WITH("'config_groups': {}"), "config_groups has 0 groups"},
      {WITH("'config_groups': {'W4A16': ['Linear']}"),
       "W4A16 is an array, expected an object (presets are not supported)"},
      {WITH("'config_groups': {'a': {'weights': {'num_bits': 4, 'group_size': 32}}}"),
       "targets is missing, expected a list of names"},
      {WITH("'config_groups': {'a': {'targets': [3], 'weights': {'num_bits': 4, 'group_size': 32}}}"),
       "targets holds 3, expected names"},
      {WITH("'transform_config': {'config_groups': {'u': {}}}, 'config_groups': {}"),
       "transform_config is not supported: take a checkpoint without rotations"},
      {WITH("'sparsity_config': {'format': 'sparse-24-bitmask'}, 'config_groups': {}"),
       "sparsity_config: format sparse-24-bitmask is not supported, expected dense: take a checkpoint"},
  };
  REFUSED(cases);
}

static void other_compressed_numbers(void **state) {
  (void)state;
  static const Refusal cases[] = {
      {CT("pack-quantized", CT_GROUP("3", ", 'group_size': 32")),
       "weights of 3 bits as integers are not supported"},
      {CT("pack-quantized",
          "{'targets': ['Linear'], 'weights': {'num_bits': 4, 'type': 'float', 'group_size': 16}}"),
       "weights of 4 bits as floating point are not supported, expected 4 or 8 bits as integers"},
      {CT("pack-quantized", CT_GROUP("4", ", 'strategy': 'tensor'")),
       "expected strategy group or channel: take a checkpoint of the same model with 4-bit or 8-bit weights "
       "alone, or an unquantised one"},
      {CT("pack-quantized", CT_GROUP("4", ", 'strategy': 'block'")), "expected strategy group or channel"},
      {CT("int-quantized", CT_GROUP("4", ", 'group_size': -1")), "int-quantized weights of 4 bits"},
      {CT("int-quantized", CT_GROUP("8", ", 'group_size': -1, 'symmetric': false")),
       "asymmetric are not supported"},
      {CT("pack-quantized", CT_INT8),
       "int8 activations with compressed-tensors pack-quantized weights of 8 bits"},
      {CT("int-quantized", "{'targets': ['Linear'], 'weights': {'num_bits': 8, 'strategy': 'channel'}, "
                           "'input_activations': {'num_bits': 8, 'strategy': 'tensor', 'dynamic': false}}"),
       "input activations of 8 bits as integers, symmetric, static, by tensor are not supported"},
      {CT("int-quantized", CT_INPUTS("'num_bits': 4, 'dynamic': true, 'strategy': 'token'")),
       "of 4 bits as integers, symmetric, dynamic, by token are not supported, expected int8"},
      {CT("int-quantized", CT_INPUTS("'type': 'float', 'dynamic': true, 'strategy': 'token'")),
       "of 8 bits as floating point, symmetric, dynamic, by token are not supported"},
      {CT("int-quantized", CT_INPUTS("'symmetric': false, 'dynamic': true, 'strategy': 'token'")),
       "of 8 bits as integers, asymmetric, dynamic, by token are not supported"},
      {CT("int-quantized", CT_INPUTS("'strategy': 'token'")),
       "symmetric, static, by token are not supported"},
      {CT("int-quantized", CT_INPUTS("'dynamic': true")), "symmetric, dynamic, by tensor are not supported"},
      {CT("int-quantized", CT_INPUTS("'dynamic': true, 'group_size': 8")), "dynamic, by group are not"},
      {CT("int-quantized",
          "{'targets': ['Linear'], 'weights': {'num_bits': 8, 'group_size': 32}" INT8_INPUTS),
       "weights of 8 bits in groups are not supported, expected int-quantized weights of 8 bits, symmetric"},
      {CT("pack-quantized", "{'targets': ['Linear'], 'weights': {'num_bits': 4, 'group_size': 32}, "
                            "'output_activations': {'num_bits': 8}}"),
       "output_activations is not supported"},
  };
  REFUSED(cases);
}

#define FLOATS(format, members)                                                                              \
  CT(format, "{'targets': ['Linear'], 'weights': {'type': 'float', " members "}}")
#define FP8(members)      "{'quant_method': 'fp8', " members "}"
#define MODELOPT(members) "{'quant_method': 'modelopt', " members "}"

static void other_floating_point(void **state) {
  (void)state;
  static const Refusal cases[] = {
      {CT("float-quantized", CT_GROUP("8", "")),
       "FP8 weights of 8 bits as integers, symmetric, are not supported, expected 8 bits as floating point"},
      {FLOATS("nvfp4-pack-quantized", "'num_bits': 4, 'symmetric': false"),
       "compressed-tensors nvfp4-pack-quantized weights of 4 bits as floating point, asymmetric, are not"},
      {FLOATS("nvfp4-pack-quantized", "'num_bits': 4, 'group_size': 32"),
       "nvfp4-pack-quantized in groups of 32 is not supported, expected 16"},
      {FLOATS("mxfp4-pack-quantized", "'num_bits': 4, 'group_size': 16"),
       "mxfp4-pack-quantized in groups of 16 is not supported, expected 32"},
      {FLOATS("float-quantized", "'num_bits': 8, 'strategy': 'group', 'group_size': 32"),
       "FP8 weights by group are not supported, expected strategy tensor, channel or block"},
      {FLOATS("float-quantized", "'num_bits': 8, 'strategy': 'block'"), "block_structure is missing"},
      {FLOATS("float-quantized", "'num_bits': 8, 'dynamic': 'sometimes'"), "dynamic is not supported but as"},
      {CT("float-quantized",
          "{'targets': ['Linear'], 'weights': {'type': 'float', 'strategy': 'channel'}" INT8_INPUTS),
       "int8 activations with FP8 weights of 8 bits"},
      {FP8("'weight_block_size': [128]"),
       "weight_block_size is an array, expected a list of two sizes above 0"},
      {FP8("'weight_block_size': [128, 0]"), "expected a list of two sizes above 0"},
      {FP8("'weight_block_size': [128, 3000000000]"), "expected a list of two sizes above 0"},
      {FP8("'weight_block_size': 128"), "weight_block_size is 128, expected a list of two sizes above 0"},
      {FP8("'weight_block_size': [128, 24]"), "of 24 inputs is not supported, expected a multiple of 16"},
      {FP8("'fmt': 'e5m2'"), "fmt e5m2 is not supported, expected e4m3"},
      {FP8("'modules_to_not_convert': 3"), "modules_to_not_convert is 3, expected a list of names"},
      {MODELOPT("'ignore': []"), "quant_algo is missing, expected NVFP4, FP8 or MIXED_PRECISION"},
      {MODELOPT("'quant_algo': 'W4A16_AWQ'"), "quant_algo W4A16_AWQ is not supported, expected NVFP4"},
      {MODELOPT("'quant_algo': 'NVFP4', 'group_size': 32"),
       "ModelOpt NVFP4 in groups of 32 is not supported"},
      {MODELOPT("'quant_algo': 'NVFP4', 'exclude_modules': 'x'"),
       "exclude_modules is \"x\", expected a list"},
      {MODELOPT("'quantization': []"), "quantization is an array, expected an object"},
      {MODELOPT("'quantization': {'quant_algo': 'MXFP8'}"),
       "quantization: quant_algo MXFP8 is not supported"},
      {MODELOPT("'quant_algo': 'MIXED_PRECISION'"), "quantized_layers is missing or empty"},
      {MODELOPT("'quant_algo': 'MIXED_PRECISION', 'quantized_layers': {'x': 3}"),
       "x is 3, expected an object"},
      {MODELOPT("'quant_algo': 'MIXED_PRECISION', 'quantized_layers': {'x': {}}"), "x has no quant_algo"},
      {MODELOPT("'quant_algo': 'MIXED_PRECISION', 'quantized_layers': {'x': {'quant_algo': 'INT8'}}"),
       "quant_algo INT8 of x is not supported"},
  };
  REFUSED(cases);
}

/* The scheme that a config gives a layer. */
static QuantScheme scheme_of(const char *quant, const char *name) {
  ModelConfig config = accepted(quant);
  QuantScheme scheme;
  Error err = {{0}};
  assert_int_equal(quantization_of(&config.quant, name, "config.json", &scheme, &err), STATUS_OK);
  config_release(&config);
  return scheme;
}

static void floating_point_is_understood(void **state) {
  (void)state;
  static const struct {
    const char *quant;
    QuantMethod method;
    int bits, group, block;
  } cases[] = {
      {FLOATS("nvfp4-pack-quantized", "'num_bits': 4, 'strategy': 'tensor_group', 'group_size': 16"),
       QUANT_NVFP4_PACKED, 4, 16, 0},
      {FLOATS("mxfp4-pack-quantized", "'num_bits': 4, 'strategy': 'group', 'group_size': 32"),
       QUANT_MXFP4_PACKED, 4, 32, 0},
      {FLOATS("float-quantized", "'num_bits': 8, 'strategy': 'tensor'"), QUANT_FP8, 8, -1, -1},
      {FLOATS("float-quantized", "'num_bits': 8, 'strategy': 'channel'"), QUANT_FP8, 8, -1, 1},
      {FLOATS("float-quantized", "'num_bits': 8, 'strategy': 'block', 'block_structure': [128, 64]"),
       QUANT_FP8, 8, 64, 128},
      {CT("nvfp4-pack-quantized",
          "{'targets': ['Linear'], 'weights': {'num_bits': 4, 'type': 'float'}, "
          "'input_activations': {'num_bits': 4, 'type': 'float', 'dynamic': 'local'}}"),
       QUANT_NVFP4_PACKED, 4, 16, 0},
      {FP8("'fmt': 'e4m3'"), QUANT_FP8, 8, -1, 0},
      {FP8("'weight_block_size': null"), QUANT_FP8, 8, -1, -1},
      {FP8("'weight_block_size': [64, 128]"), QUANT_FP8, 8, 128, 64},
      {MODELOPT("'quant_algo': 'NVFP4'"), QUANT_NVFP4, 4, 16, 0},
      {MODELOPT("'quant_algo': 'W4A16_NVFP4', 'group_size': 16"), QUANT_NVFP4, 4, 16, 0},
      {MODELOPT("'quantization': {'quant_algo': 'FP8', 'kv_cache_quant_algo': 'FP8'}"), QUANT_FP8, 8, -1, -1},
      {MODELOPT("'quant_algo': 'FP8_PER_CHANNEL_PER_TOKEN'"), QUANT_FP8, 8, -1, 1},
      {MODELOPT("'quantization': {'quant_algo': null, 'kv_cache_quant_algo': 'FP8'}"), QUANT_NONE, 0, 0, 0},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    const QuantScheme scheme = scheme_of(cases[i].quant, "model.layers.0.mlp.up_proj");
    assert_int_equal(scheme.method, cases[i].method);
    assert_int_equal(scheme.bits, cases[i].bits);
    assert_int_equal(scheme.group, cases[i].group);
    assert_int_equal(scheme.block, cases[i].block);
  }
}

static void modelopt_names_layers_with_wildcards(void **state) {
  (void)state;
  static const char mixed[] = MODELOPT(
      "'quant_algo': 'MIXED_PRECISION', 'ignore': ['model.layers.1.mlp*', '*.q_proj', 'lm_head'], "
      "'quantized_layers': {'model.layers.*.down_proj': {'quant_algo': 'FP8'}, 'model.layers.2.mlp': "
      "{'quant_algo': 'NVFP4'}, 'model.*.self_attn.q_proj': {'quant_algo': 'NVFP4'}, 'lm_head': "
      "{'quant_algo': 'FP8'}, '**a*c': {'quant_algo': 'FP8'}}");
  static const struct {
    const char *name;
    QuantMethod method;
  } cases[] = {{"model.layers.0.mlp.down_proj", QUANT_FP8},
               {"model.layers.1.mlp.down_proj", QUANT_NONE},
               {"model.layers.2.mlp.down_proj", QUANT_FP8},
               {"model.layers.2.mlp.up_proj", QUANT_NVFP4},
               {"model.layers.21.mlp.up_proj", QUANT_NONE},
               {"model.layers.2.self_attn.q_proj", QUANT_NONE},
               {"model.layers.2.self_attn.k_proj", QUANT_NONE},
               {"lm_head", QUANT_NONE},
               {"lm_head2", QUANT_NONE},
               {"xabcabc", QUANT_FP8},
               {"xabcabd", QUANT_NONE},
               {"", QUANT_NONE}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
    if (scheme_of(mixed, cases[i].name).method != cases[i].method)
      fail_msg("%s is another layout", cases[i].name);
}

static void contradictions(void **state) {
  (void)state;
  static const Refusal cases[] = {
      {"{'quant_method': 'awq', 'bits': 4, 'w_bit': 8}", "bits is 4 and w_bit is 8, expected one of them"},
      {"{'quant_method': 'awq', 'group_size': 64, 'q_group_size': 32}",
       "group_size is 64 and q_group_size is 32"},
      {"{'quant_method': 'awq', 'format': 'gemm', 'checkpoint_format': 'gemv'}",
       "format is gemm and checkpoint_format is gemv, expected one of them"},
      {"{'quant_method': 'gptq', 'format': 'gptq', 'checkpoint_format': 'gptq_v2'}",
       "format is gptq and checkpoint_format is gptq_v2"},
      {"{'quant_method': 'awq', 'version': 'gemm', 'format': 'marlin'}", "AWQ layout marlin"},
      {CT("pack-quantized", CT_GROUP("4", ", 'strategy': 'group'")), "strategy group and group_size 0"},
      {CT("pack-quantized", CT_GROUP("4", ", 'strategy': 'channel', 'group_size': 128")),
       "strategy channel and group_size 128"},
      {CT("pack-quantized", CT_GROUP("4", ", 'group_size': 32, 'dynamic': 'local'")),
       "dynamic is not supported"},
  };
  REFUSED(cases);
}

static void names_of_modules(void **state) {
  (void)state;
  static const Refusal cases[] = {
      {"{'quant_method': 'awq', 'modules_to_not_convert': 'lm_head'}",
       "modules_to_not_convert is \"lm_head\", expected a list of names"},
      {"{'quant_method': 'awq', 'modules_to_not_convert': ['a', 5]}", "holds 5, expected names"},
      {"{'quant_method': 'awq', 'modules_to_not_convert': ['a\\u0000b']}", "holds a name with a NUL in it"},
      {"{'quant_method': 'awq', 'modules_to_not_convert': ['re:[']}",
       "the regular expression \"[\" is not valid: missing terminating ]"},
      {WITH("'ignore': {}, 'config_groups': {'a': " CT_GROUP("4", "") "}"),
       "ignore is an object, expected a list of names"},
      {WITH("'ignore': ['re:(?<n'], 'config_groups': {'a': " CT_GROUP("4", "") "}"), "\"(?<n\" is not valid"},
  };
  REFUSED(cases);
}

static void rules_have_limits(void **state) {
  (void)state;
  enum { LONG = 5000, MANY = 16385 };
  char *text = malloc(MANY * 8 + LONG);
  size_t n = (size_t)sprintf(text, "{'quant_method': 'awq', 'modules_to_not_convert': ['");
  memset(text + n, 'a', LONG);
  strcpy(text + n + LONG, "']}");
  assert_refused(&(Refusal){text, "has 5000 bytes, expected at most 4096"}, 1);
  n = (size_t)sprintf(text, "{'quant_method': 'awq', 'modules_to_not_convert': ['x'");
  for (int i = 1; i < MANY; i++) n += (size_t)sprintf(text + n, ",'x'");
  strcpy(text + n, "]}");
  assert_refused(&(Refusal){text, "more than 16384 rules for layers"}, 1);
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
  assert_refused(&(Refusal){text, "take more than 32 MiB"}, 1);
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

static void limits_are_exact(void **state) {
  (void)state;
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
  assert_refused(&(Refusal){text, shown}, 1);
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
      assert_refused(&(Refusal){text, "config_groups has 1025 groups, expected 1 to 1024"}, 1);
    }
    free(text);
    free(groups);
  }
}

/* 2^28 steps of PCRE2 for all patterns and layers: each has at most 10,000 of them, and at least 250. */
static void steps_are_shared_by_patterns_and_layers(void **state) {
  (void)state;
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

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(each_producer_is_understood),
      cmocka_unit_test(rules_name_layers),
      cmocka_unit_test(rules_change_what_they_say),
      cmocka_unit_test(other_methods),
      cmocka_unit_test(other_awq),
      cmocka_unit_test(other_gptq),
      cmocka_unit_test(other_autoround),
      cmocka_unit_test(other_compressed_formats),
      cmocka_unit_test(other_compressed_numbers),
      cmocka_unit_test(other_floating_point),
      cmocka_unit_test(floating_point_is_understood),
      cmocka_unit_test(modelopt_names_layers_with_wildcards),
      cmocka_unit_test(contradictions),
      cmocka_unit_test(names_of_modules),
      cmocka_unit_test(rules_have_limits),
      cmocka_unit_test(limits_are_exact),
      cmocka_unit_test(steps_are_shared_by_patterns_and_layers),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
