/* quantization.h - config.json's `quantization_config` in the formats of all known producers: how linear
 * layers are stored.
 *
 * One scheme holds for all layers that no rule matches. Layers that a rule matches are dense, or have other
 * bits or groups. Rules match names, parts of names and regular expressions, as in the producer's software.
 * The tensors decide whether a layer is quantised (hf_quantised.c); the scheme says how to read them. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

struct ConfigReader; /* reader.h */

/* models.md, "Quantised layouts", has a section on each. */
typedef enum {
  QUANT_NONE,   /* dense */
  QUANT_AWQ,    /* AutoAWQ gemm */
  QUANT_GPTQ,   /* GPTQ */
  QUANT_PACKED, /* compressed-tensors pack-quantized */
  QUANT_BYTES,  /* compressed-tensors int-quantized: a byte per weight */
  QUANT_INT8,   /* as QUANT_BYTES, with int8 activations */
  /* From here on weights are floating-point numbers. */
  QUANT_FP8,          /* FP8, by any producer */
  QUANT_NVFP4,        /* ModelOpt NVFP4 */
  QUANT_NVFP4_PACKED, /* compressed-tensors nvfp4-pack-quantized */
  QUANT_MXFP4_PACKED, /* compressed-tensors mxfp4-pack-quantized */
} QuantMethod;

const char *quant_method_name(QuantMethod method); /* "GPTQ": for messages */

typedef struct {
  QuantMethod method;
  int bits;       /* 4 or 8; 0 with QUANT_NONE */
  int group;      /* inputs that share a scale, > 0; -1: all inputs */
  int block;      /* QUANT_FP8: outputs that share a scale, > 0; -1: all outputs; 0: the config does not say,
                   * and the shape of the scales decides between 1 and -1 */
  bool symmetric; /* zero points are the middle of the range, and need not be stored */
} QuantScheme;

typedef struct QuantRule QuantRule;

typedef struct {
  bool given;            /* the checkpoint has a quantization_config */
  QuantScheme scheme;    /* of layers that no rule matches; with named_only, the first non-dense rule's */
  bool named_only;       /* layers that no rule matches are dense */
  bool zeros_less_one;   /* GPTQ, version 1: zero points are stored less one */
  bool ordered;          /* GPTQ's desc_act: g_idx is required; after loading: some Linear has an order */
  bool int8_activations; /* some layers may be QUANT_INT8 */
  bool head;             /* lm_head is quantised; set when the checkpoint is loaded */
  uint32_t max_steps;    /* limit of PCRE2's steps per match */
  QuantRule *rules;      /* [n_rules], the first that matches a name counts */
  size_t n_rules, rule_capacity;
  size_t n_named; /* rules that are whole names, without wildcards */
  /* Made by quantization_limit(): indices of the named rules, sorted by name, and of the other rules. */
  uint32_t *named, *others; /* [n_named], [n_rules - n_named] */
  size_t pattern_bytes;     /* size of the compiled regular expressions */
} QuantConfig;

/* Reads the object of config.json's quantization_config, or of AutoAWQ's quant_config.json, AutoGPTQ's
 * quantize_config.json or ModelOpt's hf_quant_config.json. The last three need not name the method: `usual`
 * stands for a method that the file does not name (NULL for config.json). Zeroes *quant first; release it
 * after failures too. */
Status quantization_parse(const struct ConfigReader *r, const char *usual, QuantConfig *quant);
void quantization_release(QuantConfig *quant);

/* Refuses an object without quant_method, recognising MLX and old bitsandbytes by their members. */
Status quantization_refuse_nameless(const struct ConfigReader *r);

/* Limits the time to find the schemes of n_layers matrices to about a second: sets max_steps, sorts rules
 * that are names, and refuses too many other rules. To be called before quantization_of(). `file` is for the
 * message. */
Status quantization_limit(QuantConfig *quant, size_t n_layers, const char *file, Error *err);

/* The scheme of the linear layer `name` ("model.layers.0.mlp.up_proj", "lm_head"). Refuses a regular
 * expression that takes more than max_steps; `file` is for the message. */
Status quantization_of(const QuantConfig *quant, const char *name, const char *file, QuantScheme *scheme,
                       Error *err);
