/* quantization.c - see quantization.h: finds the producer of a config, and reads the configs of AutoAWQ,
 * GPTQModel, AutoGPTQ and AutoRound.
 *
 * Sources: AutoAWQ 0.2.9 (awq/models/_config.py), GPTQModel 7.7 (quantization/config.py), AutoRound 0.16
 * (export, inference/convert_model.py), transformers 5.23 (utils/quantization_config.py). */
#include "model/quant/quantization.h"

#include <string.h>
#include <strings.h>

#include "model/config/config.h"
#include "model/quant/rules.h"

const char *quant_method_name(QuantMethod method) {
  static const char *const names[] = {
      [QUANT_NONE] = "dense",
      [QUANT_AWQ] = "AutoAWQ gemm",
      [QUANT_GPTQ] = "GPTQ",
      [QUANT_PACKED] = "compressed-tensors pack-quantized",
      [QUANT_BYTES] = "compressed-tensors int-quantized",
      [QUANT_INT8] = "compressed-tensors int-quantized, int8 activations",
      [QUANT_FP8] = "FP8",
      [QUANT_NVFP4] = "ModelOpt NVFP4",
      [QUANT_NVFP4_PACKED] = "compressed-tensors nvfp4-pack-quantized",
      [QUANT_MXFP4_PACKED] = "compressed-tensors mxfp4-pack-quantized",
  };
  return names[method];
}

static bool holds(const char *text, const char *part) {
  return text && strcasestr(text, part);
}

/* --- members that several producers have */

/* Reads a size that has two keys; both may be given if they agree. */
static Status get_either(const ConfigReader *r, const char *key, const char *other, int64_t low, int64_t high,
                         int fallback, int *out) {
  TRY(reader_int(r, other, low, high, fallback, out));
  int first = *out;
  TRY(reader_int(r, key, low, high, *out, out));
  if (*out == first || !json_member(r->object, other)) return STATUS_OK;
  return reader_refuse(r, "%s is %d and %s is %d, expected one of them", key, *out, other, first);
}

static Status get_group(const ConfigReader *r, int fallback, QuantScheme *scheme) {
  TRY(get_either(r, "group_size", "q_group_size", -1, MAX_INTERMEDIATE, fallback, &scheme->group));
  if (scheme->group == 0) return reader_refuse(r, "group_size is 0, expected -1 or more than 0");
  return STATUS_OK;
}

static Status get_bits(const ConfigReader *r, int fallback, QuantScheme *scheme) {
  return get_either(r, "bits", "w_bit", 1, 64, fallback, &scheme->bits);
}

/* The layout of packed weights: `format`, or its older key checkpoint_format, or NULL. */
static Status get_format(const ConfigReader *r, const char **format) {
  const char *old;
  TRY(reader_string(r, "checkpoint_format", &old));
  TRY(reader_string(r, "format", format));
  if (*format && old && strcasecmp(*format, old) != 0)
    return reader_refuse(r, "format is %s and checkpoint_format is %s, expected one of them", *format, old);
  if (!*format) *format = old;
  return STATUS_OK;
}

/* Refuses members that add computations to the weights. */
static Status refuse_additions(const ConfigReader *r) {
  static const char *const keys[] = {"adapter", "rotation_config"};
  for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
    const Json *member = json_member(r->object, keys[i]);
    if (member && (!json_is_object(member) || json_count(member) > 0))
      return reader_refuse(
          r, "%s is not supported: take a checkpoint of the same model that is quantised without it",
          keys[i]);
  }
  return STATUS_OK;
}

static Status check_gptq_bits(const ConfigReader *r, const QuantScheme *scheme) {
  if (scheme->bits == 4 || scheme->bits == 8) return STATUS_OK;
  return reader_refuse(
      r,
      "GPTQ of %d bits is not supported, expected 4 or 8: take a checkpoint of the same model with so many",
      scheme->bits);
}

/* --- rules for single layers */

/* Applies the members of a rule's `object` to the general scheme. 16 bits or more: dense. */
static Status rule_scheme(const ConfigReader *r, const char *key, const Json *object, QuantScheme *scheme) {
  if (!json_is_object(object)) return reader_expected(r, key, object, "an object");
  ConfigReader rule = *r;
  rule.object = object;
  TRY(get_bits(&rule, scheme->bits, scheme));
  TRY(get_group(&rule, scheme->group, scheme));
  TRY(reader_bool(&rule, "sym", scheme->symmetric, &scheme->symmetric));
  if (scheme->bits >= 16)
    *scheme = (QuantScheme){.method = QUANT_NONE};
  else if (scheme->method == QUANT_AWQ && scheme->bits != 4)
    return reader_refuse(r, "%s: AWQ of %d bits is not supported, expected 4", key, scheme->bits);
  else if (scheme->method == QUANT_GPTQ)
    return check_gptq_bits(r, scheme);
  return STATUS_OK;
}

/* Reads GPTQModel's `dynamic`. Its keys are regular expressions for the beginning of a name. A key with the
 * prefix "-:" names dense layers; the value of any other key, with "+:" or without, has the members that
 * differ. */
static Status parse_dynamic(const ConfigReader *r, QuantConfig *quant) {
  const Json *dynamic = json_member(r->object, "dynamic");
  if (!dynamic || json_is_bool(dynamic)) return STATUS_OK;
  if (!json_is_object(dynamic)) return reader_expected(r, "dynamic", dynamic, "an object");
  for (const Json *item = json_first(dynamic); item; item = json_next(item)) {
    const char *key = json_key(item);
    const bool dense = strncmp(key, "-:", 2) == 0, marked = dense || strncmp(key, "+:", 2) == 0;
    QuantScheme scheme = quant->scheme;
    if (dense)
      scheme = (QuantScheme){.method = QUANT_NONE};
    else
      TRY(rule_scheme(r, key, item, &scheme));
    TRY(quant_rule_add(r, quant, MATCH_BEGIN, key + (marked ? 2 : 0), scheme));
  }
  return STATUS_OK;
}

/* AutoRound's `extra_config`: its keys are names of layers, or regular expressions that match anywhere. Names
 * take precedence, so they are added first. */
static Status parse_extra(const ConfigReader *r, QuantConfig *quant) {
  const Json *extra = json_member(r->object, "extra_config");
  if (!extra) return STATUS_OK;
  if (!json_is_object(extra)) return reader_expected(r, "extra_config", extra, "an object");
  for (int pass = 0; pass < 2; pass++) {
    for (const Json *item = json_first(extra); item; item = json_next(item)) {
      const char *key = json_key(item);
      const bool name = !strpbrk(key, "*+?^$|()[]{}\\");
      QuantScheme scheme = quant->scheme;
      if (name != (pass == 0)) continue;
      TRY(rule_scheme(r, key, item, &scheme));
      TRY(quant_rule_add(r, quant, name ? MATCH_NAME : MATCH_SEARCH, key, scheme));
    }
  }
  return STATUS_OK;
}

/* Adds transformers' list of dense layers, given by parts of their names. */
static Status parse_dense(const ConfigReader *r, QuantConfig *quant) {
  const QuantScheme dense = {.method = QUANT_NONE};
  return quant_rules_add_list(r, "modules_to_not_convert", quant, true, MATCH_PART, dense);
}

/* --- AutoAWQ, and AWQ by GPTQModel and AutoRound */

static Status check_awq_layout(const ConfigReader *r) {
  const char *format, *version, *backend;
  TRY(get_format(r, &format));
  TRY(reader_string(r, "version", &version));
  TRY(reader_string(r, "backend", &backend));
  /* The backend llm-awq names a layout; all others name the kernels to use. */
  const char *layouts[] = {version, format, backend && strcmp(backend, "llm-awq") == 0 ? backend : NULL};
  for (int i = 0; i < 3; i++) {
    if (layouts[i] && strcasecmp(layouts[i], "gemm") != 0)
      return reader_refuse(
          r,
          "AWQ layout %s is not supported, expected gemm: save the model again with AutoAWQ and "
          "\"version\": \"GEMM\"",
          layouts[i]);
  }
  return STATUS_OK;
}

/* Reads AWQ's members except the layout, which has several spellings. */
static Status parse_awq_scheme(const ConfigReader *r, QuantConfig *quant) {
  QuantScheme *scheme = &quant->scheme;
  *scheme = (QuantScheme){.method = QUANT_AWQ};
  TRY(get_bits(r, 4, scheme));
  if (scheme->bits != 4)
    return reader_refuse(r, "AWQ of %d bits is not supported, expected 4: quantise again with w_bit 4",
                         scheme->bits);
  TRY(get_group(r, 128, scheme));
  bool symmetric, zero_point;
  TRY(reader_bool(r, "sym", false, &symmetric));
  TRY(reader_bool(r, "zero_point", !symmetric, &zero_point));
  scheme->symmetric = !zero_point;
  return STATUS_OK;
}

static Status parse_awq(const ConfigReader *r, QuantConfig *quant) {
  TRY(check_awq_layout(r));
  TRY(parse_awq_scheme(r, quant));
  TRY(parse_dynamic(r, quant));
  return parse_dense(r, quant);
}

/* --- GPTQ */

static Status parse_gptq_scheme(const ConfigReader *r, QuantConfig *quant) {
  QuantScheme *scheme = &quant->scheme;
  *scheme = (QuantScheme){.method = QUANT_GPTQ};
  const char *pack_dtype;
  TRY(get_bits(r, 4, scheme));
  TRY(check_gptq_bits(r, scheme));
  TRY(get_group(r, 128, scheme));
  TRY(reader_bool(r, "sym", true, &scheme->symmetric));
  TRY(reader_bool(r, "desc_act", false, &quant->ordered));
  TRY(reader_string(r, "pack_dtype", &pack_dtype));
  if (pack_dtype && strcmp(pack_dtype, "int32") != 0)
    return reader_refuse(r, "pack_dtype %s is not supported, expected int32", pack_dtype);
  return STATUS_OK;
}

static Status parse_gptq(const ConfigReader *r, QuantConfig *quant) {
  const char *format;
  bool marlin;
  TRY(reader_bool(r, "is_marlin_format", false, &marlin));
  TRY(get_format(r, &format));
  if (marlin) format = "marlin";
  quant->zeros_less_one = !format || strcasecmp(format, "gptq") == 0;
  if (!quant->zeros_less_one && strcasecmp(format, "gptq_v2") != 0)
    return reader_refuse(r,
                         "GPTQ layout %s is not supported, expected gptq or gptq_v2: take the checkpoint "
                         "that it was made from",
                         format);
  TRY(parse_gptq_scheme(r, quant));
  TRY(parse_dynamic(r, quant));
  return parse_dense(r, quant);
}

/* --- AutoRound: exports AWQ or GPTQ; its own packing is GPTQ's without subtracting 1 from zero points. */

static Status check_autoround(const ConfigReader *r) {
  const char *type;
  int act_bits;
  TRY(reader_string(r, "data_type", &type));
  if (type && strncmp(type, "int", 3) != 0)
    return reader_refuse(r, "data_type %s is not supported, expected int", type);
  TRY(reader_int(r, "act_bits", 0, 64, 16, &act_bits));
  if (act_bits < 16)
    return reader_refuse(r,
                         "act_bits is %d, expected 16: quantised activations are known as compressed-tensors"
                         " has them",
                         act_bits);
  return STATUS_OK;
}

static Status parse_autoround(const ConfigReader *r, QuantConfig *quant) {
  const char *format, *backend;
  TRY(check_autoround(r));
  TRY(reader_string(r, "backend", &backend));
  TRY(reader_string(r, "packing_format", &format));
  if (!format) format = backend ? backend : "auto_round:auto_gptq";
  static const char *const others[] = {"llm_compressor", "fp8", "fp4", "mx", "gguf", "mlx", "fake"};
  bool known = holds(format, "round") || holds(format, "awq") || holds(format, "gptq");
  for (size_t i = 0; i < sizeof others / sizeof *others; i++) known = known && !holds(format, others[i]);
  if (!known)
    return reader_refuse(r,
                         "AutoRound's packing %s is not supported, expected auto_round:auto_awq or "
                         "auto_round:auto_gptq: export the model again in one of these",
                         format);
  if (holds(format, "awq")) {
    TRY(parse_awq_scheme(r, quant));
  } else {
    quant->zeros_less_one = holds(format, "gptq") && !holds(format, "gptqmodel");
    TRY(parse_gptq_scheme(r, quant));
  }
  TRY(parse_extra(r, quant));
  return parse_dense(r, quant);
}

/* --- which producer */

static const struct {
  const char *method;
  Status (*parse)(const ConfigReader *r, QuantConfig *quant);
} parsers[] = {
    {"awq", parse_awq},
    {"gptq", parse_gptq},
    {"auto-round", parse_autoround},
    {"autoround", parse_autoround},
    {"intel/auto-round", parse_autoround},
    {"compressed-tensors", quant_compressed_parse},
    {"fp8", quant_fp8_parse},
    {"modelopt", quant_modelopt_parse},
    {"modelopt_fp4", quant_modelopt_parse},
    {"mxfp4", quant_mxfp4_parse},
};

/* Explanations of refused methods, for the message. */
static const struct {
  const char *method, *what;
} foreign[] = {
    {"fbgemm_fp8", "8-bit floating point"},
    {"bitsandbytes", "NF4 or LLM.int8()"},
    {"mlx", "Apple's layout"},
    {"exl2", "ExLlamaV2"},
    {"exl3", "ExLlamaV3"},
    {"marlin", "weights in a GPU's order"},
};

static Status refuse_method(const ConfigReader *r, const char *method) {
  const char *what = NULL;
  for (size_t i = 0; i < sizeof foreign / sizeof *foreign; i++)
    if (strcmp(method, foreign[i].method) == 0) what = foreign[i].what;
  return reader_refuse(r,
                       "quantisation method %s%s%s%s is not supported, expected awq, gptq, auto-round, "
                       "compressed-tensors, fp8, modelopt or mxfp4: take such a checkpoint of the same "
                       "model, or an unquantised one",
                       method, what ? " (" : "", what ? what : "", what ? ")" : "");
}

Status quantization_refuse_nameless(const ConfigReader *r) {
  static const char *const of_bitsandbytes[] = {"load_in_4bit", "load_in_8bit", NULL},
                           *const of_mlx[] = {"bits", NULL},
                           *const of_others[] = {"sym", "desc_act", "zero_point", NULL};
  if (reader_first_key(r->object, of_bitsandbytes)) return refuse_method(r, "bitsandbytes");
  if (reader_first_key(r->object, of_mlx) && !reader_first_key(r->object, of_others))
    return refuse_method(r, "mlx");
  return reader_refuse(r, "quant_method is missing, expected awq, gptq, auto-round, "
                          "compressed-tensors, fp8 or modelopt");
}

Status quantization_parse(const ConfigReader *r, const char *usual, QuantConfig *quant) {
  *quant = (QuantConfig){.given = true};
  const char *method, *other;
  TRY(reader_string(r, "quant_method", &method));
  TRY(reader_string(r, "method", &other)); /* GPTQModel's newer key */
  if (!method) method = other ? other : usual;
  if (!method) return quantization_refuse_nameless(r);
  TRY(refuse_additions(r));
  for (size_t i = 0; i < sizeof parsers / sizeof *parsers; i++)
    if (strcmp(method, parsers[i].method) == 0) return parsers[i].parse(r, quant);
  return refuse_method(r, method);
}
