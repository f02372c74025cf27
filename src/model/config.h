/* config.h - what a checkpoint says of itself: sizes, rope, windows, end tokens, sampling defaults.
 *
 * Read from config.json and generation_config.json in the spellings of old and new transformers, validated to
 * the ranges below; what is not known is refused by name. Nothing here touches weights. */
#ifndef AUK_MODEL_CONFIG_H
#define AUK_MODEL_CONFIG_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"

typedef enum { ROPE_PLAIN, ROPE_LINEAR, ROPE_LLAMA3, ROPE_YARN } RopeKind;

const char *rope_kind_name(RopeKind kind); /* as rope_type spells it */

/* How positions are scaled (transformers, modeling_rope_utils.py). rope_frequencies() turns it into numbers.
 * */
typedef struct {
  RopeKind kind;
  double theta;                  /* rope_theta */
  double factor;                 /* linear, llama3, yarn: > 0 */
  double low_freq_factor;        /* llama3 */
  double high_freq_factor;       /* llama3 */
  double original_max_position;  /* llama3, yarn: original_max_position_embeddings */
  double beta_fast, beta_slow;   /* yarn: 32 and 1 unless given */
  double attention_factor;       /* yarn: 0 where not given */
  double mscale, mscale_all_dim; /* yarn: 0 where not given */
  bool truncate;                 /* yarn: true unless given */
} RopeConfig;

typedef enum { QUANT_NONE, QUANT_AWQ } QuantMethod;

#define MAX_EOS 64

/* The ranges of sizes, each from 1. Products of three of them fit int64, and the length of any packed file is
 * below 2^59. */
enum {
  MAX_HIDDEN = 1 << 20,
  MAX_INTERMEDIATE = 1 << 22,
  MAX_VOCAB = 1 << 23, /* what the sampler takes (engine/sampler_math.h) */
  MAX_LAYERS = 4096,
  MAX_HEADS = 1 << 14,
  MAX_HEAD_DIM = 256,
  MAX_POSITION = 1 << 30,
};

/* Sampling defaults of generation_config.json, as given there or neutral. */
typedef struct {
  bool do_sample;            /* false: greedy */
  double temperature;        /* >= 0 */
  int top_k;                 /* 0: off */
  double top_p;              /* 1: off */
  double min_p;              /* 0: off */
  double repetition_penalty; /* 1: off */
} GenerationDefaults;

typedef struct {
  char
      architecture[64]; /* "LlamaForCausalLM", "MistralForCausalLM", "Qwen2ForCausalLM", "Qwen3ForCausalLM" */
  int hidden;           /* hidden_size: width of the residual stream */
  int intermediate;     /* intermediate_size: width of the gated product */
  int n_layers, n_heads, n_kv_heads; /* n_heads % n_kv_heads == 0 */
  int head_dim;                      /* even, 2..256; need not be hidden / n_heads */
  int vocab_size;                    /* rows of the embedding */
  int max_position;                  /* max_position_embeddings: the longest context */
  double norm_eps;                   /* rms_norm_eps */
  RopeConfig rope;
  bool tied_embeddings; /* the output head is the embedding */
  bool qk_norm;         /* RMSNorm over each head of q and k before rope (Qwen3) */
  bool qkv_bias;        /* q, k and v always have a bias (Qwen2) */
  int *windows; /* [n_layers] sliding window: a position sees itself and the window - 1 before; 0: all */

  QuantMethod quant;
  int quant_bits;       /* 4 */
  int quant_group;      /* > 0, or -1: the whole input */
  char **dense_modules; /* [n_dense_modules] modules_to_not_convert */
  int n_dense_modules;

  int32_t bos; /* -1: none */
  int32_t eos[MAX_EOS];
  int n_eos;
  GenerationDefaults generation;
} ModelConfig;

/* Reads DIR/config.json (and quant_config.json, generation_config.json where they are). Zeroes *config first;
 * release it with config_release() also after a failure. */
Status config_load(const char *directory, ModelConfig *config, Error *err);
/* The same from the text of a config.json alone, for tests and fuzzing; `name` is for messages. */
Status config_parse(const char *name, const char *text, size_t size, ModelConfig *config, Error *err);
void config_release(ModelConfig *config);

/* out[i], i in [0, head_dim / 2): the angle per position of rotary pair (i, i + head_dim / 2), in fp32 as
 * transformers computes it, with the scaling applied; *attention_factor multiplies cos and sin (1 but for
 * yarn). Source: transformers modeling_rope_utils.py; Peng et al., YaRN (arXiv:2309.00071). */
void rope_frequencies(const ModelConfig *config, float *out, float *attention_factor);

#endif
