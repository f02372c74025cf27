/* fuzz_config.c - a hostile config.json: what is accepted holds everything that config.h promises. */
#include <math.h>
#include <stdint.h>
#include <stdlib.h>

#include "model/config/config.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool condition) {
  if (!condition) abort();
}

static bool in_range(int value, int low, int high) {
  return value >= low && value <= high;
}

static void check_rope(const RopeConfig *rope, int head_dim, bool long_rope) {
  require(in_range(rope->rotary_dim, 2, head_dim) && rope->rotary_dim % 2 == 0);
  float frequencies[MAX_HEAD_DIM / 2], attention_factor;
  rope_frequencies(rope, long_rope, frequencies, &attention_factor);
  require(isfinite(attention_factor));
  for (int i = 0; i < rope->rotary_dim / 2; i++)
    require(isfinite(frequencies[i]) && (rope->backwards ? frequencies[i] <= 0 : frequencies[i] >= 0));
}

static void check_ropes(const ModelConfig *c) {
  require(rope_original_context(c) >= 1);
  check_rope(&c->rope, MAX_HEAD_DIM, false);
  if (c->rope.kind == ROPE_LONGROPE) check_rope(&c->rope, c->head_dim, true);
  for (int i = 0; i < c->n_layers; i++) {
    const LayerRope rope = config_layer(c, i).rope;
    require(in_range(rope, ROPE_GLOBAL, ROPE_NONE));
    if (rope == ROPE_LOCAL && i < 8) check_rope(&c->local_rope, config_layer(c, i).head_dim, false);
  }
}

static void check_states(const ModelConfig *c) {
  const DeltaConfig *delta = &c->delta;
  require((c->conv.taps > 0) == (config_count_layers(c, LAYER_CONV, c->n_layers) > 0));
  require(in_range(c->conv.taps, 0, MAX_CONV_TAPS));
  require((delta->n_key_heads > 0) == (config_count_layers(c, LAYER_DELTA, c->n_layers) > 0));
  if (!delta->n_key_heads) return;
  require(in_range(delta->n_key_heads, 1, 1 << 14) && in_range(delta->n_value_heads, 1, 1 << 14));
  require(delta->n_value_heads % delta->n_key_heads == 0);
  require(in_range(delta->key_dim, 1, MAX_DELTA_DIM) && in_range(delta->value_dim, 1, MAX_DELTA_DIM));
  require(in_range(delta->conv, 1, MAX_CONV_TAPS) && delta_channels(delta) > 0);
  require(delta_decays(delta) > 0 && in_range(delta->gate_rank, 0, MAX_DELTA_DIM));
  require(delta->log_bound <= 0 && isfinite(delta->log_bound));
}

static void check(const ModelConfig *c) {
  require(c->architecture[0] && c->architecture[sizeof c->architecture - 1] == 0);
  require(in_range(c->hidden, 1, 1 << 20) && in_range(c->intermediate, 1, 1 << 22));
  require(in_range(c->n_layers, 1, 4096) && in_range(c->n_heads, 1, 1 << 14) &&
          in_range(c->n_kv_heads, 1, 1 << 14));
  require(c->n_heads % c->n_kv_heads == 0);
  require(in_range(c->head_dim, 2, MAX_HEAD_ROW) && c->head_dim % 2 == 0);
  require(in_range(c->vocab_size, 1, 1 << 23) && in_range(c->max_position, 1, 1 << 30));
  require(c->norm_eps >= 0 && c->norm_eps <= 1 && c->rope.theta >= 1);
  for (int i = 0; i < c->n_layers; i++) {
    const LayerConfig layer = config_layer(c, i);
    require(layer.window >= 0 && in_range(layer.head_dim, 2, MAX_HEAD_ROW) && layer.head_dim % 2 == 0);
    require(in_range(layer.n_kv_heads, 1, c->n_heads) && c->n_heads % layer.n_kv_heads == 0);
    require(layer.rope == ROPE_NONE ||
            (layer.rope == ROPE_LOCAL ? &c->local_rope : &c->rope)->rotary_dim <= layer.head_dim);
  }
  const QuantScheme *scheme = &c->quant.scheme;
  if (scheme->method != QUANT_NONE) {
    require(scheme->bits == 4 || (scheme->bits == 8 && scheme->method != QUANT_AWQ));
    require(scheme->group == -1 || scheme->group > 0);
  }
  require(c->bos >= -1 && in_range(c->n_eos, 0, MAX_EOS));
  for (int i = 0; i < c->n_eos; i++) require(c->eos[i] >= 0);

  const double factors[] = {c->embedding_scale, c->attention_scale, c->residual_scale,
                            c->logit_divisor,   c->gate_scale,      c->mlp_scale};
  const double most = config_layer(c, 0).delta_beside ? 1e19 : 1e6; /* products of several */
  for (int i = 0; i < 6; i++) require(factors[i] >= 1 / most && factors[i] <= most);
  require(c->query_scale_beta >= 0 && (c->query_scale_beta == 0 || c->query_scale_step >= 1));
  require(c->post_norm_eps >= 0 && c->post_norm_eps <= 1 &&
          in_range(c->attn_gate, ATTN_GATE_NONE, ATTN_GATE_IN_Q));
  require(c->attention_cap >= 0 && c->attention_cap <= 1e6 && c->logit_cap >= 0 && c->logit_cap <= 1e6);
  require(in_range(c->norms, NORM_BEFORE, NORM_AFTER) && in_range(c->qk_norm, QK_NORM_NONE, QK_NORM_CENTRED));
  require(activation_name(c->activation) && rope_kind_name(c->rope.kind));
  check_ropes(c);
  check_states(c);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  ModelConfig config;
  Error err = {{0}};
  Status status = config_parse("config.json", (const char *)data, size, &config, &err);
  if (status == STATUS_OK) {
    QuantScheme scheme;
    check(&config);
    status = quantization_of(&config.quant, "model.layers.0.mlp.down_proj", "config.json", &scheme, &err);
  }
  if (status != STATUS_OK) require(status == STATUS_MODEL && err.text[0]);
  config_release(&config);
  return 0;
}
