/* arithmetic.h - the words of the arithmetic that all devices share: types of numbers, activations, and the
 * sizes and rules of a layer's parts. model/config/config.h reads them from a checkpoint. The GPU's kernels,
 * which know no model, take them as they are. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

/* Maxima of sizes. The minimum is 1 unless a member's comment says otherwise. Within these limits a tensor's
 * count of numbers fits int64, and an ak48 file is shorter than 2^60 bytes. */
enum {
  MAX_HIDDEN = 1 << 20,
  MAX_INTERMEDIATE = 1 << 22,
  MAX_VOCAB = 1 << 23, /* the sampler's limit (sampler_math.h) */
  MAX_LAYERS = 4096,
  MAX_HEADS = 1 << 14,
  MAX_HEAD_DIM = 512,
  MAX_HEAD_ROW = 640, /* head_dim with latent attention (LatentConfig) */
  MAX_DELTA_DIM = 1024,
  MAX_CONV_TAPS = 16,
  MAX_POSITION = 1 << 30,
  MAX_LAYER_INPUT = 1 << 14, /* per_layer_width: the sum over all layers fits int */
  MAX_EXPERTS = 4096,        /* experts of a layer */
  MAX_CHOSEN = 64,           /* chosen experts of a token in a layer */
  MAX_ALL_EXPERTS = 1 << 17, /* experts of all layers */
  MAX_STREAMS = 16,          /* residual streams of a token */
  MAX_SPLIT = 8,             /* GPUs that compute each layer together (model/slice.h) */
};

typedef enum {
  DTYPE_F32,
  DTYPE_F16,
  DTYPE_BF16,
  DTYPE_I32,
  DTYPE_I16,
  DTYPE_I8,
  DTYPE_U8,
  DTYPE_I64,
  DTYPE_F8_E4M3,
  DTYPE_F8_E8M0,
  DTYPE_OTHER
} Dtype;

/* Types of the KV cache. KV_Q8 is int8 with fp16 scales: x = q * scale, q = round(x / scale). A key has a
 * scale for each KEY_SCALE_DIMS numbers: a few channels of keys are far larger than the rest. The mean KL
 * divergence of SmolLM2-135M from itself with KV_F16 is 9e-4 with one scale for a key, 4.1e-4 with one for
 * 32 numbers, 3.4e-4 with one for 16. A value has one scale: int8 values with fp16 keys make a KL
 * divergence of only 6e-5. (Latent attention on a GPU reads the keys' bytes as its values.)
 * scale = largest |x| / 127, rounded up to 7 significant bits, so that 1152 * scale is exact in fp16: GPUs
 * read the byte q + 128 as the half 1024 + 128 + q and subtract 1152 (cuda/kernels/cache/q8.cuh). */
typedef enum { KV_F16, KV_F32, KV_Q8 } KvType;

static inline const char *kv_type_name(KvType kv) {
  return kv == KV_F32 ? "f32" : kv == KV_Q8 ? "q8" : "f16";
}

enum { KEY_SCALE_DIMS = 16, KV_SCALE_BYTES = 2 };

static inline size_t kv_number_bytes(KvType kv) {
  return kv == KV_F32 ? 4 : kv == KV_Q8 ? 1 : 2;
}

/* For one head and one token: the number of the key's scales; the bytes of the key, and of the value, with
 * their scales. */
static inline int kv_key_scales(KvType kv, int head_dim) {
  return kv == KV_Q8 ? (head_dim - 1) / KEY_SCALE_DIMS + 1 : 0;
}
static inline size_t kv_key_bytes(KvType kv, int head_dim) {
  return (size_t)head_dim * kv_number_bytes(kv) + (size_t)kv_key_scales(kv, head_dim) * KV_SCALE_BYTES;
}
static inline size_t kv_value_bytes(KvType kv, int head_dim) {
  return (size_t)head_dim * kv_number_bytes(kv) + (kv == KV_Q8 ? KV_SCALE_BYTES : 0);
}

/* f in g = f(gate) * up. ACTIVATION_SILU: f(x) = x / (1 + e^-x).
 * ACTIVATION_GELU_TANH: f(x) = x / 2 * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 x^3))).
 * ACTIVATION_CLAMPED (gpt-oss): g = c / (1 + e^(-1.702 c)) * (1 + u), c = min(gate, 7),
 *   u = max(-7, min(up, 7)).
 * ACTIVATION_LIMITED, of single layers: g = min(silu(gate), limit) * max(-limit, min(up, limit)).
 * ACTIVATION_RELU and all after it are ungated: up's output is also the gate.
 * ACTIVATION_RELU (relu2): f(x) = max(x, 0), so that g is the square of max(up, 0).
 * ACTIVATION_GELU_ALONE: f(x) = (1 + tanh(...)) / 2 as above, so that g is the GELU of up.
 * ACTIVATION_GELU_EXACT: g = up * Phi(up); Phi is the normal distribution's cumulative function.
 * ACTIVATION_XIELU: g is Xielu of up (model.h). */
typedef enum {
  ACTIVATION_SILU,
  ACTIVATION_GELU_TANH,
  ACTIVATION_CLAMPED,
  ACTIVATION_LIMITED,
  ACTIVATION_RELU,
  ACTIVATION_GELU_ALONE,
  ACTIVATION_GELU_EXACT,
  ACTIVATION_XIELU,
  N_ACTIVATIONS
} Activation;
static inline bool is_ungated(Activation activation) {
  return activation >= ACTIVATION_RELU;
}

/* How experts are chosen and weighted by the router's outputs. SCORE_SOFTMAX: both by softmax over all
 * outputs. SCORE_SIGMOID: both by the sigmoid of each. From SCORE_CHOSEN on, the outputs themselves choose.
 * SCORE_CHOSEN: the weights are softmax over the chosen experts' outputs. SCORE_CHOSEN_SIGMOID: a weight is
 * the sigmoid of the output. SCORE_CHOSEN_NEAR (SparseMixer-v2, arXiv:2409.12136): let a chosen expert have
 * output r. Its weight is its share in softmax over the outputs s of the experts that have (r - s) / max(|s|,
 * r) <= near and were not chosen before it. */
typedef enum {
  SCORE_SOFTMAX,
  SCORE_SIGMOID,
  SCORE_CHOSEN,
  SCORE_CHOSEN_SIGMOID,
  SCORE_CHOSEN_NEAR
} ExpertScore;

/* Norms of a layer with experts, besides those of every layer. EXPERTS_POST_NORM (A.X-K1): mlp_post_norm, of
 * the sum of experts and shared expert. EXPERTS_OWN_NORMS (Gemma 4): experts, router and shared expert have
 * norms of their own, and the weight of each expert has a factor. */
typedef enum { EXPERTS_NO_NORMS, EXPERTS_POST_NORM, EXPERTS_OWN_NORMS } ExpertNorms;

/* The shared expert's output is multiplied by sigmoid(w . h), h being its input (SHARED_GATED), or by 1/2
 * (SHARED_HALVED: Command A+). */
typedef enum { SHARED_WHOLE, SHARED_GATED, SHARED_HALVED } SharedOutput;

/* Mixtures of experts; the computation: norm_experts_residual in operations.def. */
typedef struct {
  int n_experts; /* experts in each layer with MLP_OF_MODEL; 0: the model has no experts */
  int n_chosen;  /* experts of a token: 1 .. n_experts, at most MAX_CHOSEN */
  int width;     /* outputs of an expert's gate and up */
  int latent;    /* width of an expert's input and output, if matrices project x to it and back; 0: hidden */
  int shared_width; /* width of the shared expert, an MLP for every token; 0: there is none */
  SharedOutput shared_output;
  ExpertScore score;
  double near;      /* used by SCORE_CHOSEN_NEAR */
  bool renormalise; /* weights are divided by their sum plus sum_plus */
  double sum_plus;
  double scale;        /* the weights are multiplied by this (routed_scaling_factor) */
  int n_groups;        /* of equal size; a group's score is the sum of its two best, unless group_is_best */
  int n_chosen_groups; /* experts are chosen from this many best groups; 1 if n_groups is 1 */
  bool group_is_best;  /* a group's score is that of its best expert (DeepSeek-V2) */
  bool choice_bias; /* each expert has a bias that is added to its score for the choice, not for its weight */
  bool biases;      /* the router, and the experts' gate, up and down have biases */
  bool scales_input; /* a chosen expert's weight multiplies the expert's input, not its output (Llama 4) */
  ExpertNorms norms;
} ExpertConfig;

/* Multi-head latent attention (DeepSeek-V2, arXiv:2405.04434). The cache has one row a token for all heads: a
 * rotated key of rope_dim numbers, then the latent of kv_rank numbers. Keys and values of single heads are
 * never made. The key part of kv_b_proj, transposed, multiplies the head's query; its value part multiplies
 * the output of attention. So attention has one KV head, whose values are its keys: n_kv_heads is 1, head_dim
 * is rope_dim + kv_rank. A head of q_proj (or q_b_proj) has nope_dim + rope_dim outputs. */
typedef struct {
  int kv_rank;   /* numbers of the latent; 0: the model has usual attention */
  int q_rank;    /* numbers of the queries' latent; 0: queries have no latent */
  int nope_dim;  /* numbers of a head's query and key without a rope */
  int rope_dim;  /* numbers of a head's query and key with a rope: even */
  int value_dim; /* numbers of a head's output; 0 in Architecture.latent: hidden / n_heads */
} LatentConfig;
/* The epsilon of both norms of latents. It is not the model's own: transformers 5.23 leaves the default of
 * DeepseekV3RMSNorm. */
#define LATENT_EPS 1e-6

/* Sparse attention (Qwen3.8-Flash-Next), in layers of LAYER_ATTENTION. A query attends to the best blocks of
 * `block` consecutive positions each, `budget` positions in all. It also attends to the positions after the
 * last whole block. See attention in operations.def. */
typedef struct {
  int block;    /* 0: a query attends to all positions */
  int budget;   /* a multiple of block */
  int n_heads;  /* heads of the index queries that score blocks */
  int head_dim; /* of index queries and keys: at least the rope's rotary_dim, at most the layers' head_dim */
} IndexerConfig;

/* How a layer of LAYER_DELTA changes its state. RULE_GATED_DELTA: the gated delta rule. With RULE_CHANNELS
 * (Kimi Team, arXiv:2510.26692) each dimension of a key has a decay, made of its own a and dt_bias.
 * RULE_MAMBA2 (Dao and Gu, arXiv:2405.21060) adds to the state without first subtracting the state's value
 * for k. Mamba-2's C, B and x are q, k and v. */
typedef enum { RULE_GATED_DELTA, RULE_CHANNELS, RULE_MAMBA2 } StateRule;

/* How the matrices of q, k and v are stored. DELTA_AS_ONE: as one, delta_qkv. DELTA_APART: apart; delta_qkv
 * is the matrix of q. DELTA_INTERLEAVED (Qwen3-Next, before model_prepare()): there are no matrices z and a.
 * delta_qkv has for each key head its q, its k, and the v and z of its value heads; b has for each key head
 * the b and a of its value heads. */
typedef enum { DELTA_AS_ONE, DELTA_INTERLEAVED, DELTA_APART } DeltaForm;

/* Sizes of the layers with a matrix as state (LAYER_DELTA); see norm_delta_rule in operations.def. */
typedef struct {
  int n_key_heads; /* heads of q and k, Mamba-2's groups; 0: no such layers */
  /* A multiple of n_key_heads: value head h uses key head h / (n_value_heads / n_key_heads). */
  int n_value_heads;
  int key_dim, value_dim; /* numbers of a head: 1 .. MAX_DELTA_DIM */
  int conv;               /* taps of the convolution: 1 .. MAX_CONV_TAPS */
  DeltaForm form;
  StateRule rule;
  /* With RULE_CHANNELS: ln of a decay is log_bound * sigmoid(exp(a_log) * (a + dt_bias)). If log_bound is 0,
   * ln of a decay is -exp(a_log) * softplus(a + dt_bias), as with RULE_GATED_DELTA. */
  double log_bound;
  int gate_rank;     /* a and z are each made by two matrices, with this size between them; 0: by one */
  bool doubles_beta; /* beta is 2 sigmoid(b), not sigmoid(b) (Olmo Hybrid) */
  double norm_eps;   /* epsilon of the norm of outputs; 0: the model's */
  /* The output is multiplied by sigmoid(z), not silu(z). */
  bool gate_is_sigmoid;
  /* With RULE_MAMBA2. conv_bias: the convolution has a bias; biases: the matrices before and after it have
   * biases; least_step, largest_step: bounds of the step size. */
  bool conv_bias, biases;
  double least_step, largest_step;
  /* With RULE_MAMBA2. no_norm: the output is not normalised. z_scale, a_scale: factors of z and of a (the
   * step size) before their functions. out_scale: factor of the output. q_scale, k_scale, v_scale: factors of
   * the convolution's inputs; model_prepare() multiplies the taps by them and sets them to 1. */
  bool no_norm;
  double z_scale, a_scale, out_scale;
  double q_scale, k_scale, v_scale;
} DeltaConfig;

/* The number of channels of a delta layer's convolution. In order: all q heads, k heads, v heads; with
 * RULE_MAMBA2 v heads, k heads, q heads. */
static inline int delta_channels(const DeltaConfig *delta) {
  return 2 * delta->n_key_heads * delta->key_dim + delta->n_value_heads * delta->value_dim;
}

/* The first channels of q, of k and of v. */
typedef struct {
  int q, k, v;
} DeltaOffsets;
static inline DeltaOffsets delta_offsets(const DeltaConfig *delta) {
  const int keys = delta->n_key_heads * delta->key_dim, values = delta->n_value_heads * delta->value_dim;
  const DeltaOffsets mamba = {values + keys, values, 0}, offsets = {0, keys, 2 * keys};
  return delta->rule == RULE_MAMBA2 ? mamba : offsets;
}

/* The number of a token's decays: one for each value head; with RULE_CHANNELS key_dim for each value head. */
static inline int delta_decays(const DeltaConfig *delta) {
  return delta->n_value_heads * (delta->rule == RULE_CHANNELS ? delta->key_dim : 1);
}

/* How many numbers of a token's output are normalised together: those of a head, or with RULE_MAMBA2 those of
 * all heads of a group. */
static inline int delta_norm_width(const DeltaConfig *delta) {
  const int group = delta->n_key_heads ? delta->n_value_heads / delta->n_key_heads : 0;
  return delta->rule == RULE_MAMBA2 ? group * delta->value_dim : delta->value_dim;
}
