/* float_configs.c - quantization_config of weights in FP8 and FP4: `quant_method` fp8 and mxfp4, and NVIDIA
 * ModelOpt's, which is in config.json or in hf_quant_config.json. Called by: quantization.c, compressed.c.
 *
 *   fp8:      {weight_block_size: [128, 128], modules_to_not_convert: [...]}
 *   modelopt: {quant_algo: "NVFP4", group_size: 16, exclude_modules: ["lm_head", "model.layers.0*"]}
 *             {quant_algo: "MIXED_PRECISION", quantized_layers: {NAME: {quant_algo: "FP8"}, ...}}
 *   hf_quant_config.json has the object as its member `quantization`; config.json calls exclude_modules
 *   `ignore`.
 *
 * Activations that are said to be FP8 or FP4 are computed unquantised. Sources: transformers 5.23
 * (utils/quantization_config.py, integrations/finegrained_fp8.py), ModelOpt 0.47 (export/quant_utils.py,
 * export/convert_hf_config.py). */
#include <stdio.h>
#include <string.h>

#include "model/config/config.h"
#include "model/quant/rules.h"

static const QuantScheme dense = {.method = QUANT_NONE};

/* --- FP4 and FP8 of any producer */

Status quant_fp4_scheme(const ConfigReader *r, QuantMethod method, int group, QuantScheme *scheme) {
  const int expected = method == QUANT_MXFP4_PACKED ? 32 : 16;
  *scheme = (QuantScheme){.method = method, .bits = 4, .group = expected, .symmetric = true};
  if (group == 0 || group == expected) return STATUS_OK;
  return reader_refuse(r, "%s in groups of %d is not supported, expected %d", quant_method_name(method),
                       group, expected);
}

/* The scheme of FP8 with one scale for `block` outputs (QuantScheme.block) and all inputs. */
static QuantScheme fp8_scheme(int block) {
  return (QuantScheme){.method = QUANT_FP8, .bits = 8, .group = -1, .block = block, .symmetric = true};
}

/* A block's inputs are a multiple of this, so that the CPU kernels' SIMD vectors lie in one block. */
enum { LANE_INPUTS = 16 };

Status quant_fp8_blocks(const ConfigReader *r, const char *key, QuantScheme *scheme) {
  const Json *sizes = json_member(r->object, key);
  int64_t size[2] = {0, 0};
  int n = 0;
  if (json_is_array(sizes) && json_count(sizes) == 2)
    for (const Json *item = json_first(sizes); item; item = json_next(item))
      n += json_int64(item, &size[n]) && size[n] > 0 && size[n] <= MAX_INTERMEDIATE;
  if (n != 2) return reader_expected(r, key, sizes, "a list of two sizes above 0");
  if (size[1] % LANE_INPUTS != 0)
    return reader_refuse(r, "%s of %d inputs is not supported, expected a multiple of %d", key, (int)size[1],
                         LANE_INPUTS);
  *scheme = fp8_scheme((int)size[0]);
  scheme->group = (int)size[1];
  return STATUS_OK;
}

/* --- fp8
 *
 * Where weight_block_size is absent, the shape of the scales decides: one for each output, or one a matrix
 * (AutoFP8's checkpoints). Blocks of 128 by 128, which transformers then takes, are refused. A null
 * weight_block_size means one scale a matrix. */

Status quant_fp8_parse(const ConfigReader *r, QuantConfig *quant) {
  const char *format;
  quant->scheme = fp8_scheme(0);
  if (reader_is_null(r, "weight_block_size"))
    quant->scheme.block = -1;
  else if (json_member(r->object, "weight_block_size"))
    TRY(quant_fp8_blocks(r, "weight_block_size", &quant->scheme));
  TRY(reader_string(r, "fmt", &format));
  if (format && strcmp(format, "e4m3") != 0)
    return reader_refuse(r, "fmt %s is not supported, expected e4m3", format);
  TRY(quant_rules_add_list(r, "modules_to_not_convert", quant, true, MATCH_PART, dense));
  return quant_rules_add_list(r, "ignored_layers", quant, true, MATCH_PART, dense);
}

/* gpt-oss: only its experts are quantised, in groups of 32 inputs. */
Status quant_mxfp4_parse(const ConfigReader *r, QuantConfig *quant) {
  TRY(quant_fp4_scheme(r, QUANT_MXFP4_PACKED, 0, &quant->scheme));
  return quant_rules_add_list(r, "modules_to_not_convert", quant, false, MATCH_GLOB, dense);
}

/* --- ModelOpt */

/* The scheme of an algorithm; `what` is the layer that has it, or NULL for all. */
static Status algorithm_scheme(const ConfigReader *r, const char *algorithm, const char *what,
                               QuantScheme *scheme) {
  int group;
  TRY(reader_int(r, "group_size", 0, MAX_INTERMEDIATE, 0, &group));
  if (strcmp(algorithm, "NVFP4") == 0 || strcmp(algorithm, "W4A16_NVFP4") == 0)
    return quant_fp4_scheme(r, QUANT_NVFP4, group, scheme);
  *scheme = fp8_scheme(-1);
  if (strcmp(algorithm, "FP8") == 0) return STATUS_OK;
  scheme->block = 1;
  if (strcmp(algorithm, "FP8_PER_CHANNEL_PER_TOKEN") == 0) return STATUS_OK;
  return reader_refuse(r,
                       "quant_algo %.60s%s%.100s is not supported, expected NVFP4, W4A16_NVFP4, FP8 or "
                       "FP8_PER_CHANNEL_PER_TOKEN: take such a checkpoint of the same model, or an "
                       "unquantised one",
                       algorithm, what ? " of " : "", what ? what : "");
}

/* Adds a rule for each layer of quantized_layers; other layers are dense. */
static Status parse_layers(const ConfigReader *r, QuantConfig *quant) {
  ConfigReader layers;
  TRY(reader_object(r, "quantized_layers", &layers));
  if (json_count(layers.object) == 0)
    return reader_refuse(r, "quant_algo is MIXED_PRECISION and quantized_layers is missing or empty");
  quant->named_only = true;
  for (const Json *item = json_first(layers.object); item; item = json_next(item)) {
    ConfigReader layer;
    const char *algorithm;
    QuantScheme scheme;
    if (!json_is_object(item)) return reader_expected(&layers, json_key(item), item, "an object");
    layer = layers;
    layer.object = item;
    snprintf(layer.name, sizeof layer.name, "%.900s: %.100s", layers.name, json_key(item));
    TRY(reader_string(&layer, "quant_algo", &algorithm));
    if (!algorithm) return reader_refuse(&layers, "%.100s has no quant_algo", json_key(item));
    TRY(algorithm_scheme(&layer, algorithm, json_key(item), &scheme));
    if (quant->scheme.method == QUANT_NONE) quant->scheme = scheme;
    TRY(quant_rule_add(r, quant, MATCH_GLOB, json_key(item), scheme));
  }
  return STATUS_OK;
}

Status quant_modelopt_parse(const ConfigReader *r, QuantConfig *quant) {
  ConfigReader in;
  const char *algorithm;
  TRY(reader_object(r, "quantization", &in));
  if (!in.object) in = *r;
  TRY(reader_string(&in, "quant_algo", &algorithm));
  if (!algorithm && json_member(in.object, "kv_cache_quant_algo"))
    return STATUS_OK; /* only the KV cache is quantised */
  if (!algorithm) return reader_refuse(&in, "quant_algo is missing, expected NVFP4, FP8 or MIXED_PRECISION");
  TRY(quant_rules_add_list(&in, "exclude_modules", quant, false, MATCH_GLOB, dense));
  TRY(quant_rules_add_list(&in, "ignore", quant, false, MATCH_GLOB, dense));
  if (strcmp(algorithm, "MIXED_PRECISION") == 0) return parse_layers(&in, quant);
  return algorithm_scheme(&in, algorithm, NULL, &quant->scheme);
}
