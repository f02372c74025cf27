/* rope.c - frequencies of rotary positions, with each kind of scaling, in the arithmetic of transformers.
 *
 * Always true: operations on tensors are fp32, in transformers' order, with Python numbers rounded to fp32
 *              first; operations on Python numbers alone are doubles.
 * Source: transformers 5.23, modeling_rope_utils.py. PyTorch computes number / tensor by the reciprocal. */
#include <math.h>

#include "model/config/config.h"

/* --- llama3: long waves are slowed by `factor`, short ones stay, waves between are interpolated. */

static float llama3_frequency(const RopeConfig *rope, float frequency) {
  float low_wave = (float)(rope->original_max_position / rope->low_freq_factor);
  float high_wave = (float)(rope->original_max_position / rope->high_freq_factor);
  float wave = 1.0f / frequency * (float)(2 * M_PI), factor = (float)rope->factor;
  if (wave > low_wave) return frequency / factor;
  if (wave < high_wave || high_wave == low_wave) return frequency;
  float smooth = 1.0f / wave * (float)rope->original_max_position - (float)rope->low_freq_factor;
  smooth /= (float)(rope->high_freq_factor - rope->low_freq_factor);
  return (1.0f - smooth) * frequency / factor + smooth * frequency;
}

/* --- yarn: a ramp over the pairs from unchanged (extrapolated) to slowed (interpolated) frequencies. */

typedef struct {
  /* The ramp's start and width in pairs. width can be < 0: if beta_fast < beta_slow, or theta is small. */
  float low, width;
  float factor;
} YarnRamp;

/* The (fractional) pair that rotates `rotations` times over the original context. */
static double yarn_pair(const RopeConfig *rope, double rotations, int head_dim) {
  return head_dim * log(rope->original_max_position / (rotations * 2 * M_PI)) / (2 * log(rope->theta));
}

static YarnRamp yarn_ramp(const RopeConfig *rope, int head_dim) {
  double low = yarn_pair(rope, rope->beta_fast, head_dim), high = yarn_pair(rope, rope->beta_slow, head_dim);
  if (rope->truncate) {
    low = floor(low);
    high = ceil(high);
  }
  if (low < 0) low = 0;
  if (high > head_dim - 1) high = head_dim - 1;
  if (low == high) high += 0.001;
  return (YarnRamp){(float)low, (float)(high - low), (float)rope->factor};
}

static float yarn_frequency(const YarnRamp *ramp, int pair, float wave) {
  float slowed = ((float)pair - ramp->low) / ramp->width;
  slowed = slowed < 0 ? 0 : slowed > 1 ? 1 : slowed;
  float kept = 1.0f - slowed;
  return 1.0f / (ramp->factor * wave) * (1.0f - kept) + 1.0f / wave * kept;
}

static double yarn_mscale(double factor, double mscale) {
  return factor <= 1 ? 1.0 : 0.1 * mscale * log(factor) + 1.0;
}

static double yarn_attention_factor(const RopeConfig *rope) {
  if (rope->attention_factor != 0) return rope->attention_factor;
  if (rope->mscale != 0 && rope->mscale_all_dim != 0)
    return yarn_mscale(rope->factor, rope->mscale) / yarn_mscale(rope->factor, rope->mscale_all_dim);
  return yarn_mscale(rope->factor, 1);
}

/* --- longrope: each wavelength has its own factor, one set for short texts and one for long texts. */

static double longrope_attention_factor(const RopeConfig *rope, bool long_rope) {
  if (long_rope && rope->long_attention_factor != 0) return rope->long_attention_factor;
  if (rope->attention_factor != 0) return rope->attention_factor;
  return rope->factor <= 1 ? 1 : sqrt(1 + log(rope->factor) / log(rope->original_max_position));
}

void rope_frequencies(const RopeConfig *rope, bool long_rope, float *out, float *attention_factor) {
  const int rotary_dim = rope->rotary_dim;
  const float *factors = long_rope ? rope->long_factors : rope->short_factors;
  YarnRamp ramp = rope->kind == ROPE_YARN ? yarn_ramp(rope, rotary_dim) : (YarnRamp){0};
  *attention_factor = rope->kind == ROPE_YARN       ? (float)yarn_attention_factor(rope)
                      : rope->kind == ROPE_LONGROPE ? (float)longrope_attention_factor(rope, long_rope)
                                                    : 1.0f;
  for (int pair = 0; pair < rotary_dim / 2; pair++) {
    /* powf() differs between C libraries; pow() rounded to float does not. */
    float wave = (float)pow((float)rope->theta, (float)(2 * pair) / (float)rotary_dim);
    float frequency = 1.0f / wave;
    switch (rope->kind) {
    case ROPE_PLAIN: break;
    case ROPE_LINEAR: frequency /= (float)rope->factor; break;
    case ROPE_LLAMA3: frequency = llama3_frequency(rope, frequency); break;
    case ROPE_YARN: frequency = yarn_frequency(&ramp, pair, wave); break;
    case ROPE_LONGROPE: frequency = 1.0f / (factors[pair] * wave); break;
    case ROPE_PROPORTIONAL: frequency = pair < rope->n_turned ? frequency / (float)rope->factor : 0; break;
    }
    out[pair] = rope->backwards ? -frequency : frequency;
  }
}

LayerConfig config_layer(const ModelConfig *config, int layer) {
  LayerConfig own = config->layers ? config->layers[layer] : (LayerConfig){0};
  if (!own.n_heads) own.n_heads = config->n_heads;
  if (!own.n_kv_heads) own.n_kv_heads = config->n_kv_heads;
  if (!own.head_dim) own.head_dim = config->head_dim;
  own.n_cache_heads = own.n_kv_heads + (own.kind == LAYER_ATTENTION && config->indexer.block > 0);
  own.n_experts = own.mlp == MLP_OF_MODEL ? config->experts.n_experts : 0;
  if (own.n_experts > 0) own.intermediate = config->experts.shared_width;
  if (!own.n_experts && !own.intermediate && own.mlp != MLP_NONE) own.intermediate = config->intermediate;
  if (!own.shares_kv) own.kv_layer = layer;
  own.norms = own.norms_before ? NORM_BEFORE : config->norms;
  const LatentConfig *latent = &config->latent;
  const bool attends = own.kind == LAYER_ATTENTION;
  const int heads = own.n_heads * own.head_dim;
  own.latent = attends && latent->kv_rank > 0;
  own.attn_gate = attends ? config->attn_gate : ATTN_GATE_NONE;
  own.n_gates = own.attn_gate == ATTN_GATE_NONE ? 0 : own.attn_gate == ATTN_GATE_HEADS ? own.n_heads : heads;
  own.q_outputs = own.latent                        ? own.n_heads * (latent->nope_dim + latent->rope_dim)
                  : own.attn_gate == ATTN_GATE_IN_Q ? 2 * heads
                                                    : heads;
  own.value_dim = own.latent ? latent->value_dim : config->value_dim ? config->value_dim : own.head_dim;
  own.qk_norm = own.no_qk_norm ? QK_NORM_NONE : config->qk_norm;
  own.sinks = config->attn_sinks && !own.no_sinks;
  own.query_scale_beta = config->query_scale_nope && own.rope != ROPE_NONE ? 0 : config->query_scale_beta;
  own.activation = own.mlp_limit > 0 ? ACTIVATION_LIMITED : config->activation;
  own.expert_activation = own.expert_limit > 0 ? ACTIVATION_LIMITED : config->activation;
  return own;
}

int expert_row_width(const ModelConfig *config) {
  return config->experts.latent ? config->experts.latent : config->hidden;
}

int config_most_heads(const ModelConfig *config) {
  int most = 0;
  for (int layer = 0; layer < config->n_layers; layer++) {
    const int n = config_layer(config, layer).n_heads;
    if (most < n) most = n;
  }
  return most;
}

int config_count_layers(const ModelConfig *config, LayerKind kind, int n) {
  int count = 0;
  for (int layer = 0; layer < n; layer++) count += layer_has(config_layer(config, layer), kind);
  return count;
}

bool config_layer_is_alike(const ModelConfig *config, int layer) {
  const LayerConfig own = config_layer(config, layer);
  return own.n_heads == config->n_heads && own.n_kv_heads == config->n_kv_heads &&
         own.head_dim == config->head_dim &&
         (own.n_experts > 0 || own.mlp == MLP_NONE || own.intermediate == config->intermediate);
}

size_t config_state_numbers(const ModelConfig *config, int layer) {
  const DeltaConfig *delta = &config->delta;
  const LayerConfig own = config_layer(config, layer);
  size_t n = 0;
  if (own.ngrams)
    n = (size_t)((config->ngrams.taps - 1) * config->ngrams.longest) * (size_t)config->streams.n *
            (size_t)config->hidden +
        (size_t)config->ngrams.longest - 1;
  if (layer_has(own, LAYER_DELTA))
    return n + (size_t)(delta->conv - 1) * (size_t)delta_channels(delta) +
           (size_t)delta->n_value_heads * (size_t)delta->key_dim * (size_t)delta->value_dim;
  return own.kind == LAYER_CONV ? n + (size_t)(config->conv.taps - 1) * (size_t)config->conv.channels : n;
}

bool config_has_states(const ModelConfig *config) {
  for (int layer = 0; layer < config->n_layers; layer++)
    if (config_state_numbers(config, layer) > 0) return true;
  return false;
}

size_t config_kv_numbers(const ModelConfig *config, int layer) {
  const LayerConfig own = config_layer(config, layer);
  if (own.kind != LAYER_ATTENTION || own.shares_kv) return 0;
  return 2 * (size_t)own.n_cache_heads * (size_t)own.head_dim;
}

int rope_original_context(const ModelConfig *config) {
  return config->rope.kind == ROPE_LONGROPE ? (int)config->rope.original_max_position : INT32_MAX;
}
