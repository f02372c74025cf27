/* compressed.c - compressed-tensors' quantization_config. Called by: quantization.c.
 *
 *   config_groups: {"group_0": {targets: ["Linear"], weights: {num_bits, group_size, ...},
 *                               input_activations: {...}}, ...}
 *   ignore: ["lm_head", "re:.*down_proj"]
 *
 * A layer that `ignore` names is dense. Any other layer has the scheme of the group whose targets have its
 * name, else of the group with a regular expression ("re:") that matches the name, else of the group with
 * "Linear". A layer without such a group is dense. Source: compressed-tensors 0.20
 * (quantization/quant_config.py, quant_args.py, utils/match.py). */
#include "model/quant/rules.h"

#include <string.h>

#include "model/config/config.h"

/* The advice of most refusals in this file. */
#define INSTEAD                                                                                              \
  ": take a checkpoint of the same model with 4-bit or 8-bit weights alone, or an unquantised one"
#define FORMATS "pack-quantized, int-quantized, float-quantized, nvfp4-pack-quantized or mxfp4-pack-quantized"

enum { MAX_GROUPS = 1024 }; /* groups in config_groups; real configs have a handful */

/* The format of weights, or of input or output activations. */
typedef struct {
  bool given;
  int bits, group; /* group: 0 if not given */
  bool is_int, symmetric, dynamic;
  const char *strategy;
} NumberFormat;

static Status parse_number_format(const ConfigReader *r, const char *key, NumberFormat *n) {
  ConfigReader in;
  const char *type;
  TRY(reader_object(r, key, &in));
  *n = (NumberFormat){.given = in.object != NULL};
  if (!n->given) return STATUS_OK;
  TRY(reader_int(&in, "num_bits", 1, 64, 8, &n->bits));
  TRY(reader_string(&in, "type", &type));
  n->is_int = !type || strcmp(type, "int") == 0;
  TRY(reader_bool(&in, "symmetric", true, &n->symmetric));
  TRY(reader_int(&in, "group_size", -1, MAX_INTERMEDIATE, 0, &n->group));
  TRY(reader_string(&in, "strategy", &n->strategy));
  if (!n->strategy) n->strategy = n->group > 0 ? "group" : n->group == -1 ? "channel" : "tensor";
  /* NVFP4's activations are "local": dynamic, with a scale for each group. */
  const Json *dynamic = json_member(in.object, "dynamic");
  size_t size;
  n->dynamic = !n->is_int && json_is_string(dynamic) && strcmp(json_string(dynamic, &size), "local") == 0;
  if (dynamic && !n->dynamic && !json_bool(dynamic, &n->dynamic))
    return reader_refuse(&in, "dynamic is not supported but as true or false, of FP4 also \"local\"");
  return STATUS_OK;
}

/* The scheme of weights in FP8 or FP4. `r` is the group of config_groups. */
static Status float_scheme(const ConfigReader *r, const NumberFormat *weights, QuantScheme *scheme) {
  const bool fp8 = scheme->method == QUANT_FP8;
  if (weights->is_int || weights->bits != (fp8 ? 8 : 4) || !weights->symmetric)
    return reader_refuse(r,
                         "%s weights of %d bits as %s, %s, are not supported, expected %d bits as floating "
                         "point, symmetric" INSTEAD,
                         quant_method_name(scheme->method), weights->bits,
                         weights->is_int ? "integers" : "floating point",
                         weights->symmetric ? "symmetric" : "asymmetric", fp8 ? 8 : 4);
  if (!fp8) return quant_fp4_scheme(r, scheme->method, weights->group, scheme);
  scheme->bits = 8;
  scheme->symmetric = true;
  scheme->group = -1;
  scheme->block = strcmp(weights->strategy, "channel") == 0 ? 1 : -1;
  if (scheme->block == 1 || strcmp(weights->strategy, "tensor") == 0) return STATUS_OK;
  if (strcmp(weights->strategy, "block") != 0)
    return reader_refuse(r,
                         "FP8 weights by %s are not supported, expected strategy tensor, channel or "
                         "block" INSTEAD,
                         weights->strategy);
  ConfigReader in;
  TRY(reader_object(r, "weights", &in));
  return quant_fp8_blocks(&in, "block_structure", scheme);
}

static Status weight_scheme(const ConfigReader *r, const NumberFormat *weights, QuantScheme *scheme) {
  if (!weights->is_int || (weights->bits != 4 && weights->bits != 8))
    return reader_refuse(
        r, "weights of %d bits as %s are not supported, expected 4 or 8 bits as integers" INSTEAD,
        weights->bits, weights->is_int ? "integers" : "floating point");
  const bool grouped = strcmp(weights->strategy, "group") == 0;
  if (!grouped && strcmp(weights->strategy, "channel") != 0)
    return reader_refuse(r, "weights by %s are not supported, expected strategy group or channel" INSTEAD,
                         weights->strategy);
  if (grouped ? weights->group <= 0 : weights->group > 0)
    return reader_refuse(r, "weights have strategy %s and group_size %d, expected %s", weights->strategy,
                         weights->group, grouped ? "more than 0" : "-1 or none");
  scheme->bits = weights->bits;
  scheme->group = grouped ? weights->group : -1;
  scheme->symmetric = weights->symmetric;
  return STATUS_OK;
}

/* Refuses quantised activations other than those of QUANT_INT8. Floating-point activations with FP8 or FP4
 * weights are permitted: they only serve speed, and are computed unquantised. */
static Status check_activations(const ConfigReader *r, const NumberFormat *in, const QuantScheme *scheme) {
  if (!in->given) return STATUS_OK;
  if (scheme->method >= QUANT_FP8 && !in->is_int) return STATUS_OK;
  if (!in->is_int || in->bits != 8 || !in->symmetric || !in->dynamic || strcmp(in->strategy, "token") != 0)
    return reader_refuse(
        r,
        "input activations of %d bits as %s, %s, %s, by %s are not supported, expected int8, "
        "symmetric, dynamic, by token" INSTEAD,
        in->bits, in->is_int ? "integers" : "floating point", in->symmetric ? "symmetric" : "asymmetric",
        in->dynamic ? "dynamic" : "static", in->strategy);
  if (scheme->method == QUANT_BYTES && scheme->group == -1 && scheme->symmetric) return STATUS_OK;
  return reader_refuse(
      r,
      "int8 activations with %s weights of %d bits%s are not supported, expected int-quantized weights of 8 "
      "bits, symmetric, one scale a channel" INSTEAD,
      quant_method_name(scheme->method), scheme->bits, scheme->group == -1 ? "" : " in groups");
}

/* An explanation of formats whose names do not say what they are. */
static const char *what_it_is(const char *format) {
  static const struct {
    const char *format, *what;
  } known[] = {{"mxfp8-quantized", " (FP8 with a scale for 32 inputs)"},
               {"mxfp6-pack-quantized", " (6-bit floating point)"},
               {"marlin-24", " (2:4 sparse)"}};
  for (size_t i = 0; i < sizeof known / sizeof *known; i++)
    if (strcmp(format, known[i].format) == 0) return known[i].what;
  return "";
}

/* The method of a format such as "pack-quantized". */
static Status parse_format(const ConfigReader *r, const char *format, QuantMethod *method) {
  static const struct {
    const char *format;
    QuantMethod method;
  } known[] = {{"dense", QUANT_NONE},
               {"pack-quantized", QUANT_PACKED},
               {"int-quantized", QUANT_BYTES},
               {"float-quantized", QUANT_FP8},
               {"nvfp4-pack-quantized", QUANT_NVFP4_PACKED},
               {"mxfp4-pack-quantized", QUANT_MXFP4_PACKED}};
  for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
    if (strcmp(format, known[i].format) != 0) continue;
    *method = known[i].method;
    return STATUS_OK;
  }
  return reader_refuse(r,
                       "compressed-tensors' format %s%s is not supported, expected " FORMATS
                       ": take such a checkpoint of the same model, or an unquantised one",
                       format, what_it_is(format));
}

static Status parse_group(const ConfigReader *r, const char *general, QuantConfig *quant,
                          QuantScheme *scheme) {
  NumberFormat weights, in, out;
  const char *format;
  *scheme = (QuantScheme){.method = QUANT_NONE};
  TRY(reader_string(r, "format", &format));
  if (!format) format = general;
  if (!format) return reader_refuse(r, "format is missing, expected " FORMATS);
  TRY(parse_format(r, format, &scheme->method));
  TRY(parse_number_format(r, "weights", &weights));
  TRY(parse_number_format(r, "input_activations", &in));
  TRY(parse_number_format(r, "output_activations", &out));
  if (out.given) return reader_refuse(r, "output_activations is not supported, expected null" INSTEAD);
  if (scheme->method == QUANT_NONE || !weights.given) {
    *scheme = (QuantScheme){.method = QUANT_NONE};
    return STATUS_OK;
  }
  if (scheme->method >= QUANT_FP8) {
    TRY(float_scheme(r, &weights, scheme));
    return check_activations(r, &in, scheme);
  }
  TRY(weight_scheme(r, &weights, scheme));
  if (scheme->method == QUANT_BYTES && scheme->bits != 8)
    return reader_refuse(r, "int-quantized weights of %d bits are not supported, expected 8" INSTEAD,
                         scheme->bits);
  if (scheme->method == QUANT_BYTES && !scheme->symmetric)
    return reader_refuse(
        r, "int-quantized weights that are asymmetric are not supported, expected symmetric" INSTEAD);
  TRY(check_activations(r, &in, scheme));
  if (in.given) {
    scheme->method = QUANT_INT8;
    quant->int8_activations = true;
  }
  return STATUS_OK;
}

/* Names take precedence over regular expressions, which take precedence over classes: each pass adds one
 * kind. */
typedef enum { PASS_NAMES, PASS_PATTERNS, PASS_CLASSES, N_PASSES } Pass;

static Status add_target(const ConfigReader *r, const char *target, Pass pass, const QuantScheme *scheme,
                         QuantConfig *quant) {
  const bool pattern = strncmp(target, "re:", 3) == 0, all = strcmp(target, "Linear") == 0;
  if (pass != (pattern ? PASS_PATTERNS : all ? PASS_CLASSES : PASS_NAMES)) return STATUS_OK;
  if (pattern) return quant_rule_add(r, quant, MATCH_BEGIN, target + 3, *scheme);
  return quant_rule_add(r, quant, all ? MATCH_ALL : MATCH_NAME, target, *scheme);
}

static Status add_targets(const ConfigReader *r, Pass pass, const QuantScheme *scheme, QuantConfig *quant) {
  const Json *targets = json_member(r->object, "targets");
  if (!json_is_array(targets)) return reader_expected(r, "targets", targets, "a list of names");
  for (const Json *item = json_first(targets); item; item = json_next(item)) {
    size_t size;
    const char *target = json_is_string(item) ? json_string(item, &size) : "";
    char found[64];
    if (!*target || strlen(target) != size)
      return reader_refuse(r, "targets holds %s, expected names", json_describe(item, found));
    TRY(add_target(r, target, pass, scheme, quant));
  }
  return STATUS_OK;
}

static Status parse_groups(const ConfigReader *r, const char *general, QuantConfig *quant) {
  ConfigReader groups;
  TRY(reader_object(r, "config_groups", &groups));
  const size_t n = json_count(groups.object);
  if (n == 0 || n > MAX_GROUPS)
    return reader_refuse(r, "config_groups has %zu groups, expected 1 to %d", n, MAX_GROUPS);
  for (int pass = 0; pass < N_PASSES; pass++) {
    for (const Json *item = json_first(groups.object); item; item = json_next(item)) {
      ConfigReader group;
      QuantScheme scheme;
      if (!json_is_object(item))
        return reader_expected(&groups, json_key(item), item, "an object (presets are not supported)");
      TRY(reader_object(&groups, json_key(item), &group));
      TRY(parse_group(&group, general, quant, &scheme));
      if (quant->scheme.method == QUANT_NONE) quant->scheme = scheme;
      TRY(add_targets(&group, (Pass)pass, &scheme, quant));
    }
  }
  return STATUS_OK;
}

/* Refuses rotations of activations and sparse weights. */
static Status refuse_additions(const ConfigReader *r) {
  ConfigReader part;
  const char *format;
  TRY(reader_object(r, "transform_config", &part));
  if (json_count(json_member(part.object, "config_groups")) > 0)
    return reader_refuse(r, "transform_config is not supported: take a checkpoint without rotations");
  TRY(reader_object(r, "sparsity_config", &part));
  if (!part.object) return STATUS_OK;
  TRY(reader_string(&part, "format", &format));
  if (!format || strcmp(format, "dense") == 0) return STATUS_OK;
  return reader_refuse(&part, "format %s is not supported, expected dense" INSTEAD, format);
}

Status quant_compressed_parse(const ConfigReader *r, QuantConfig *quant) {
  const char *format;
  quant->named_only = true;
  TRY(refuse_additions(r));
  TRY(reader_string(r, "format", &format));
  if (format && strcmp(format, "mixed-precision") == 0) format = NULL; /* each group has its own format */
  QuantMethod method;
  if (format) TRY(parse_format(r, format, &method));
  const QuantScheme dense = {.method = QUANT_NONE};
  TRY(quant_rules_add_list(r, "ignore", quant, true, MATCH_NAME, dense));
  return parse_groups(r, format, quant);
}
