/* quantization.h - how a checkpoint's linear layers are stored: what config.json says of it under
 * `quantization_config`, in every spelling that is known, and what of it is refused.
 *
 * One scheme holds for all layers but those that a rule names: layers left dense, or with other bits or
 * groups. Rules are names, parts of names and regular expressions, as each producer has them. Whether a layer
 * is quantised at all is decided by its tensors (hf_directory.c); the scheme says how to read them. */
#ifndef AUK_MODEL_QUANTIZATION_H
#define AUK_MODEL_QUANTIZATION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

struct Reader; /* config_reader.h */

/* models.md has a section on each. */
typedef enum {
  QUANT_NONE,   /* dense */
  QUANT_AWQ,    /* AutoAWQ gemm */
  QUANT_GPTQ,   /* GPTQ */
  QUANT_PACKED, /* compressed-tensors pack-quantized */
  QUANT_BYTES,  /* compressed-tensors int-quantized: a byte a weight */
  QUANT_INT8,   /* the same, and activations are rounded to int8 as well */
} QuantMethod;

const char *quant_method_name(QuantMethod method); /* "GPTQ": for people */

typedef struct {
  QuantMethod method;
  int bits;       /* 4 or 8; 0 where method is QUANT_NONE */
  int group;      /* inputs that share a scale, > 0; -1: all of them */
  bool symmetric; /* zero points are the middle of the range, and need not be stored */
} QuantScheme;

typedef struct QuantRule QuantRule;

typedef struct {
  bool given;          /* the checkpoint says something of quantisation */
  QuantScheme scheme;  /* of the layers that no rule names, or where named_only the usual one of the others */
  bool named_only;     /* layers that no rule names are dense */
  bool zeros_less_one; /* GPTQ, version 1: zero points are stored less one */
  bool ordered;        /* GPTQ, desc_act: inputs may belong to groups in any order, which g_idx tells */
  bool int8_activations; /* some layers may be QUANT_INT8 */
  bool head;             /* the output head is quantised: set by who finds its tensors */
  uint32_t max_steps;    /* of PCRE2, for a regular expression and a name */
  QuantRule *rules;      /* [n_rules], of which the first that fits a name counts */
  size_t n_rules, rule_capacity;
  size_t pattern_bytes; /* what the regular expressions of the rules take, compiled */
} QuantConfig;

/* The files that say how a checkpoint is quantised; the latter two are looked at where config.json says
 * nothing, and need not name the method. */
typedef enum { QUANT_IN_CONFIG, QUANT_IN_AWQ_FILE, QUANT_IN_GPTQ_FILE } QuantSource;

/* Reads the object of config.json's quantization_config, or of AutoAWQ's quant_config.json or AutoGPTQ's
 * quantize_config.json. Zeroes *quant first; release it after failures too. */
Status quantization_parse(const struct Reader *r, QuantSource source, QuantConfig *quant);
void quantization_release(QuantConfig *quant);

/* Refuses an object that does not say whose it is, by the name that its members give away: those of MLX, and
 * of bitsandbytes before it had a quant_method. */
Status quantization_refuse_nameless(const struct Reader *r);

/* Holds the work of finding the schemes of n layers to a second or so, whatever the rules: refuses what is
 * more. To be called before quantization_of(). `file` is for the message. */
Status quantization_limit(QuantConfig *quant, size_t n_layers, const char *file, Error *err);

/* The scheme of the linear layer `name` ("model.layers.0.mlp.up_proj", "lm_head"). Refused: a regular
 * expression that takes too long; `file` is for the message. */
Status quantization_of(const QuantConfig *quant, const char *name, const char *file, QuantScheme *scheme,
                       Error *err);

#endif
