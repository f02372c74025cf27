/* rules.h - rules of quantization_config that give single layers another scheme. Private to src/model;
 * quantization.c, compressed.c and float_configs.c add them. */
#pragma once

#include "model/config/reader.h"
#include "model/quant/quantization.h"

typedef enum {
  MATCH_ALL,    /* every linear layer */
  MATCH_NAME,   /* the layer of this name */
  MATCH_PART,   /* layers whose names contain this */
  MATCH_BEGIN,  /* a regular expression that matches from the beginning, as Python's re.match() */
  MATCH_SEARCH, /* a regular expression that matches anywhere, as re.search() */
  MATCH_GLOB,   /* the layer of this name or within the module of this name; * stands for any text */
} MatchKind;

/* Appends a rule. Refuses an invalid regular expression, and more rules than any real config has. */
Status quant_rule_add(const ConfigReader *r, QuantConfig *quant, MatchKind kind, const char *pattern,
                      QuantScheme scheme);

/* Appends a rule of `kind` for each string of the list `key`; the list may be absent. regex: strings that
 * begin with "re:" are regular expressions. */
Status quant_rules_add_list(const ConfigReader *r, const char *key, QuantConfig *quant, bool regex,
                            MatchKind kind, QuantScheme scheme);

/* Reads compressed-tensors' quantization_config (compressed.c). */
Status quant_compressed_parse(const ConfigReader *r, QuantConfig *quant);

/* Sets the scheme of FP4 weights. Refuses a group size that is not the layout's; 0: the config gives none. */
Status quant_fp4_scheme(const ConfigReader *r, QuantMethod method, int group, QuantScheme *scheme);
/* Reads the member `key`, which must be there: [outputs, inputs] of FP8's blocks. */
Status quant_fp8_blocks(const ConfigReader *r, const char *key, QuantScheme *scheme);

/* Reads the quantization_config of `quant_method` fp8 (float_configs.c). */
Status quant_fp8_parse(const ConfigReader *r, QuantConfig *quant);
/* As quant_fp8_parse(): quant_mxfp4_parse() for mxfp4 (gpt-oss), quant_modelopt_parse() for NVIDIA ModelOpt,
 * also in hf_quant_config.json. */
Status quant_mxfp4_parse(const ConfigReader *r, QuantConfig *quant);
Status quant_modelopt_parse(const ConfigReader *r, QuantConfig *quant);
