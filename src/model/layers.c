/* layers.c - see layers.h. Called by: the loaders, ak48.c, ak48_write.c, model.c, dummy.c,
 * commands/models/inspect.c. */
#include "model/layers.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

typedef enum {
  WIDTH_HIDDEN,
  WIDTH_HEADS,
  WIDTH_QUERIES, /* heads, and their gates where those are in the same matrix */
  WIDTH_KV_HEADS,
  WIDTH_VALUES,
  WIDTH_INTERMEDIATE,
  WIDTH_GATE,
  WIDTH_INPUT, /* of the layer's own input of a token */
  WIDTH_CHANNELS,
  WIDTH_DELTA_VALUES,
  WIDTH_DELTA_K, /* of k and v, where they are matrices of their own */
  WIDTH_DELTA_V,
  WIDTH_DELTA_B,
  WIDTH_DELTA_A,
  WIDTH_DELTA_GATE, /* hidden, or numbers between the two matrices that make a or z */
  WIDTH_DELTA_RANK, /* the latter; 0: there is one matrix */
  WIDTH_CONV,
  WIDTH_EXPERTS,     /* their number */
  WIDTH_SHARED_GATE, /* 1 */
  WIDTH_LATENT,      /* of the experts' inputs and outputs, where it is not hidden */
  WIDTH_Q_INPUT,     /* hidden, or the queries' latent */
  WIDTH_Q_RANK,      /* that of latent attention; 0: there is none */
  WIDTH_KV_A,
  WIDTH_KV_RANK,
  WIDTH_KV_B,
  WIDTH_STREAMS, /* numbers of all streams; 0: there is one stream */
  WIDTH_STREAM_RANK,
  WIDTH_STREAM_COUNT,
  WIDTH_INDEX, /* index queries and the index key */
  WIDTH_NGRAMS,
  WIDTH_ALTUP, /* the number of AltUp's streams */
  WIDTH_ALTUP_SQUARE,
  WIDTH_LAUREL,
} Width;

enum {
  IN_ATTENTION = 1 << LAYER_ATTENTION,
  IN_DELTA = 1 << LAYER_DELTA,
  IN_CONV = 1 << LAYER_CONV,
  IN_MIXERS = IN_ATTENTION | IN_DELTA | IN_CONV,
  IN_ALL = IN_MIXERS | 1 << LAYER_MLP_ALONE,
  IN_BESIDE = 1 << N_LAYER_KINDS /* with LayerConfig.delta_beside */
};

static const struct {
  const char *name; /* module in transformers, the same in all models but fused ones */
  size_t offset;    /* of the Linear in a ModelLayer */
  unsigned kinds;   /* of layers that have it: IN_... */
  Width in, out;
} linears[N_LAYER_LINEARS] = {
#define AT(member) offsetof(ModelLayer, member)
    /* clang-format off */
  [LAYER_Q]         = { "self_attn.q_proj", AT(q), IN_ATTENTION, WIDTH_Q_INPUT, WIDTH_QUERIES },
  [LAYER_K]         = { "self_attn.k_proj", AT(k), IN_ATTENTION, WIDTH_HIDDEN, WIDTH_KV_HEADS },
  [LAYER_V]         = { "self_attn.v_proj", AT(v), IN_ATTENTION, WIDTH_HIDDEN, WIDTH_VALUES },
  [LAYER_O]         = { "self_attn.o_proj", AT(o), IN_MIXERS, WIDTH_HEADS, WIDTH_HIDDEN },
  [LAYER_GATE]      = { "mlp.gate_proj", AT(gate), IN_ALL, WIDTH_HIDDEN, WIDTH_INTERMEDIATE },
  [LAYER_DOWN]      = { "mlp.down_proj", AT(down), IN_ALL, WIDTH_INTERMEDIATE, WIDTH_HIDDEN },
  [LAYER_UP]        = { "mlp.up_proj", AT(up), IN_ALL, WIDTH_HIDDEN, WIDTH_INTERMEDIATE },
  [LAYER_ATTN_GATE] = { "self_attn.gate_proj", AT(attn_gate), IN_ATTENTION, WIDTH_HIDDEN, WIDTH_GATE },
  [LAYER_DELTA_QKV] = { "linear_attn.in_proj_qkv", AT(delta.qkv), IN_DELTA, WIDTH_HIDDEN, WIDTH_CHANNELS },
  [LAYER_DELTA_Z] =
    { "linear_attn.in_proj_z", AT(delta.z), IN_DELTA, WIDTH_DELTA_GATE, WIDTH_DELTA_VALUES },
  [LAYER_DELTA_B]   = { "linear_attn.in_proj_b", AT(delta.b), IN_DELTA, WIDTH_HIDDEN, WIDTH_DELTA_B },
  [LAYER_DELTA_A]   = { "linear_attn.in_proj_a", AT(delta.a), IN_DELTA, WIDTH_DELTA_GATE, WIDTH_DELTA_A },
  [LAYER_DELTA_K]   = { "linear_attn.k_proj", AT(delta.k), IN_DELTA, WIDTH_HIDDEN, WIDTH_DELTA_K },
  [LAYER_DELTA_V]   = { "linear_attn.v_proj", AT(delta.v), IN_DELTA, WIDTH_HIDDEN, WIDTH_DELTA_V },
  [LAYER_DELTA_Z_IN] = { "linear_attn.g_a_proj", AT(delta.z_in), IN_DELTA, WIDTH_HIDDEN, WIDTH_DELTA_RANK },
  [LAYER_DELTA_A_IN] = { "linear_attn.f_a_proj", AT(delta.a_in), IN_DELTA, WIDTH_HIDDEN, WIDTH_DELTA_RANK },
  [LAYER_DELTA_O]   = { "mamba.out_proj", AT(delta.o), IN_BESIDE, WIDTH_DELTA_VALUES, WIDTH_HIDDEN },
  [LAYER_CONV_IN]   = { "conv.in_proj", AT(conv.in), IN_CONV, WIDTH_HIDDEN, WIDTH_CONV },
  [LAYER_INPUT_GATE] = { "per_layer_input_gate", AT(input_gate), IN_ALL, WIDTH_HIDDEN, WIDTH_INPUT },
  [LAYER_INPUT_PROJECTION] =
    { "per_layer_projection", AT(input_projection), IN_ALL, WIDTH_INPUT, WIDTH_HIDDEN },
  [LAYER_ROUTER]      = { "mlp.gate", AT(moe.router), IN_ALL, WIDTH_HIDDEN, WIDTH_EXPERTS },
  [LAYER_SHARED_GATE] =
    { "mlp.shared_expert_gate", AT(moe.shared_gate), IN_ALL, WIDTH_HIDDEN, WIDTH_SHARED_GATE },
  [LAYER_LATENT_IN]   = { "mlp.fc1_latent_proj", AT(moe.latent_in), IN_ALL, WIDTH_HIDDEN, WIDTH_LATENT },
  [LAYER_Q_A]         = { "self_attn.q_a_proj", AT(q_a), IN_ATTENTION, WIDTH_HIDDEN, WIDTH_Q_RANK },
  [LAYER_KV_A] = { "self_attn.kv_a_proj_with_mqa", AT(kv_a), IN_ATTENTION, WIDTH_HIDDEN, WIDTH_KV_A },
  [LAYER_KV_B]        = { "self_attn.kv_b_proj", AT(kv_b), IN_ATTENTION, WIDTH_KV_RANK, WIDTH_KV_B },
  [LAYER_ATTN_MIX_DOWN] =
    { "attn_hyper_connection.input_mix_weight_down", AT(attn_mix.down), IN_ALL,
      WIDTH_STREAMS, WIDTH_STREAM_RANK },
  [LAYER_ATTN_MIX_UP] =
    { "attn_hyper_connection.input_mix_weight_up", AT(attn_mix.up), IN_ALL,
      WIDTH_STREAM_RANK, WIDTH_STREAMS },
  [LAYER_ATTN_INJECT] =
    { "attn_hyper_connection.block_inject_weight", AT(attn_mix.inject), IN_ALL,
      WIDTH_STREAMS, WIDTH_STREAM_COUNT },
  [LAYER_MLP_MIX_DOWN] =
    { "mlp_hyper_connection.input_mix_weight_down", AT(mlp_mix.down), IN_ALL,
      WIDTH_STREAMS, WIDTH_STREAM_RANK },
  [LAYER_MLP_MIX_UP] =
    { "mlp_hyper_connection.input_mix_weight_up", AT(mlp_mix.up), IN_ALL,
      WIDTH_STREAM_RANK, WIDTH_STREAMS },
  [LAYER_MLP_INJECT] =
    { "mlp_hyper_connection.block_inject_weight", AT(mlp_mix.inject), IN_ALL,
      WIDTH_STREAMS, WIDTH_STREAM_COUNT },
  [LAYER_INDEX] =
    { "self_attn.indexer.index_qk_proj", AT(index), IN_ATTENTION, WIDTH_HIDDEN, WIDTH_INDEX },
  [LAYER_NGRAM_KEY]   = { "ple.key_proj", AT(ngrams.key), IN_ALL, WIDTH_NGRAMS, WIDTH_STREAMS },
  [LAYER_NGRAM_VALUE] = { "ple.value_proj", AT(ngrams.value), IN_ALL, WIDTH_NGRAMS, WIDTH_HIDDEN },
  [LAYER_ALTUP_ROUTER] = { "altup.modality_router", AT(altup.router), IN_ALL, WIDTH_HIDDEN, WIDTH_ALTUP },
  [LAYER_ALTUP_PREDICT] =
    { "altup.prediction_coefs", AT(altup.predict), IN_ALL, WIDTH_ALTUP, WIDTH_ALTUP_SQUARE },
  [LAYER_ALTUP_CORRECT] = { "altup.correction_coefs", AT(altup.correct), IN_ALL, WIDTH_ALTUP, WIDTH_ALTUP },
  [LAYER_LAUREL_LEFT]  = { "laurel.linear_left", AT(altup.left), IN_ALL, WIDTH_HIDDEN, WIDTH_LAUREL },
  [LAYER_LAUREL_RIGHT] = { "laurel.linear_right", AT(altup.right), IN_ALL, WIDTH_LAUREL, WIDTH_HIDDEN },
  [LAYER_LATENT_OUT]  = { "mlp.fc2_latent_proj", AT(moe.latent_out), IN_ALL, WIDTH_LATENT, WIDTH_HIDDEN },
/* clang-format on */
#undef AT
};

/* Matrices that hold several linear layers, with these parts in the order of outputs. */
enum { FUSED_QKV, FUSED_GATE_UP, FUSED_MAMBA, N_FUSED };
static const struct {
  const char *name;
  int n_parts, parts[3];
} fused[N_FUSED] = {
    [FUSED_QKV] = {"self_attn.qkv_proj", 3, {LAYER_Q, LAYER_K, LAYER_V}},
    [FUSED_GATE_UP] = {"mlp.gate_up_proj", 2, {LAYER_GATE, LAYER_UP}},
    [FUSED_MAMBA] = {"mamba.in_proj", 3, {LAYER_DELTA_Z, LAYER_DELTA_QKV, LAYER_DELTA_A}},
};

static bool is_fused(const ModelConfig *config, int matrix) {
  if (matrix == FUSED_MAMBA) return config->delta.rule == RULE_MAMBA2;
  return config->fused || (matrix == FUSED_GATE_UP && config->fused_gate_up);
}

int layer_linear_count(const ModelConfig *config, int layer) {
  return expert_linear(config_layer(config, layer).n_experts, 0);
}

static bool is_of_expert(int which) {
  return which >= N_LAYER_LINEARS;
}

/* EXPERT_GATE .. of a linear layer of an expert. */
static int expert_part(int which) {
  return (which - N_LAYER_LINEARS) % N_EXPERT_LINEARS;
}

static int expert_of(int which) {
  return (which - N_LAYER_LINEARS) / N_EXPERT_LINEARS;
}

void expert_linear_name(const ModelConfig *config, int which, char name[LINEAR_NAME_SIZE]) {
  const ExpertNames *names = config->expert_names;
  const char *const parts[] = {
      [EXPERT_GATE] = names->gate, [EXPERT_UP] = names->up, [EXPERT_DOWN] = names->down};
  snprintf(name, LINEAR_NAME_SIZE, "%s.%d.%s", names->each, expert_of(which), parts[expert_part(which)]);
}

Linear *layer_linear(const ModelLayer *layer, int which) {
  if (is_of_expert(which)) {
    Expert *expert = &layer->moe.experts[expert_of(which)];
    Linear *const parts[] = {
        [EXPERT_GATE] = &expert->gate, [EXPERT_UP] = &expert->up, [EXPERT_DOWN] = &expert->down};
    return parts[expert_part(which)];
  }
  return (Linear *)((char *)layer + linears[which].offset);
}

const char *layer_linear_name(int which) {
  return linears[which].name;
}

void layer_full_name(const ModelConfig *config, const char *body, int layer, const char *part, char *out,
                     size_t size) {
  const char *block = config->names.block, *dot = strchr(part, '.');
  if (config->names.delta && strncmp(part, "linear_attn.", 12) == 0) block = config->names.delta;
  if (config->names.attention && strncmp(part, "self_attn.", 10) == 0) block = config->names.attention;
  const bool replaced = block && dot; /* a norm's name has no block */
  snprintf(out, size, "%slayers.%d.%s%s", body, layer, replaced ? block : "", replaced ? dot : part);
}

static int width_of(const ModelConfig *config, int layer, Width width) {
  const DeltaConfig *delta = &config->delta;
  const LatentConfig *latent = &config->latent;
  const LayerConfig own = config_layer(config, layer);
  const int heads = own.n_heads * own.head_dim, values = delta->n_value_heads * delta->value_dim;
  switch (width) {
  case WIDTH_HEADS:
    if (own.kind == LAYER_CONV) return config->hidden;
    if (own.kind != LAYER_ATTENTION) return values;
    return latent->kv_rank ? config->n_heads * latent->value_dim
                           : own.n_heads * config_value_dim(config, &own);
  case WIDTH_QUERIES:
    if (latent->kv_rank) return config->n_heads * (latent->nope_dim + latent->rope_dim);
    return config->attn_gate == ATTN_GATE_IN_Q ? 2 * heads : heads;
  case WIDTH_KV_HEADS: return own.n_kv_heads * own.head_dim;
  case WIDTH_VALUES: return own.n_kv_heads * config_value_dim(config, &own);
  case WIDTH_INTERMEDIATE: return own.intermediate;
  case WIDTH_INPUT: return config->per_layer_width;
  case WIDTH_GATE:
    if (config->attn_gate == ATTN_GATE_NONE || config->attn_gate == ATTN_GATE_IN_Q) return 0;
    return config->attn_gate == ATTN_GATE_HEADS ? own.n_heads : heads;
  case WIDTH_CHANNELS:
    if (delta->apart) return delta->n_key_heads * delta->key_dim;
    return delta_channels(delta) + (delta->interleaved ? values : 0);
  case WIDTH_DELTA_VALUES: return delta->interleaved ? 0 : values;
  case WIDTH_DELTA_K: return delta->apart ? delta->n_key_heads * delta->key_dim : 0;
  case WIDTH_DELTA_V: return delta->apart ? values : 0;
  case WIDTH_DELTA_B:
    if (delta->rule == RULE_MAMBA2) return 0;
    return delta->interleaved ? 2 * delta->n_value_heads : delta->n_value_heads;
  case WIDTH_DELTA_A: return delta->interleaved ? 0 : delta_decays(delta);
  case WIDTH_DELTA_GATE: return delta->gate_rank ? delta->gate_rank : config->hidden;
  case WIDTH_DELTA_RANK: return delta->gate_rank;
  case WIDTH_EXPERTS: return own.n_experts;
  case WIDTH_SHARED_GATE: return own.n_experts > 0 && own.intermediate > 0 && config->experts.shared_gate;
  case WIDTH_CONV: return 3 * config->hidden;
  case WIDTH_Q_INPUT: return latent->q_rank ? latent->q_rank : config->hidden;
  case WIDTH_Q_RANK: return latent->q_rank;
  case WIDTH_KV_A: return latent->kv_rank ? latent->kv_rank + latent->rope_dim : 0;
  case WIDTH_KV_RANK: return latent->kv_rank;
  case WIDTH_KV_B: return config->n_heads * (latent->nope_dim + latent->value_dim);
  case WIDTH_LATENT: return own.n_experts > 0 ? config->experts.latent : 0;
  case WIDTH_STREAMS: return config->streams.n * config->hidden;
  case WIDTH_STREAM_RANK: return config->streams.rank;
  case WIDTH_STREAM_COUNT: return config->streams.n;
  case WIDTH_INDEX:
    return config->indexer.block ? (config->indexer.n_heads + 1) * config->indexer.head_dim : 0;
  case WIDTH_NGRAMS: return own.ngrams ? config->ngrams.width : 0;
  case WIDTH_ALTUP: return config->altup.n;
  case WIDTH_ALTUP_SQUARE: return config->altup.n * config->altup.n;
  case WIDTH_LAUREL: return config->altup.laurel_rank;
  case WIDTH_HIDDEN: break;
  }
  return config->hidden;
}

void layer_linear_sizes(const ModelConfig *config, int layer, int which, int *n_in, int *n_out) {
  if (is_of_expert(which)) {
    const int outer = expert_row_width(config), inner = config->experts.width;
    const bool down = expert_part(which) == EXPERT_DOWN;
    *n_in = down ? inner : outer;
    *n_out = down ? outer : inner;
    return;
  }
  *n_in = width_of(config, layer, linears[which].in);
  if (config->draft.kind == DRAFT_EAGLE3 && layer == 0 && which <= LAYER_V) *n_in *= 2;
  *n_out = width_of(config, layer, linears[which].out);
}

bool layer_linear_exists(const ModelConfig *config, int layer, int which) {
  const LayerConfig own = config_layer(config, layer);
  if (config->ungated && (is_of_expert(which) ? expert_part(which) == EXPERT_GATE : which == LAYER_GATE))
    return false;
  if (is_of_expert(which)) return expert_of(which) < own.n_experts;
  const unsigned kinds = 1u << own.kind | (own.delta_beside ? IN_DELTA | IN_BESIDE : 0u);
  if (!(linears[which].kinds & kinds)) return false;
  if ((which == LAYER_K || which == LAYER_V) && config->latent.kv_rank) return false;
  if (which == LAYER_K && own.shares_kv) return false;
  if (which == LAYER_V && (own.shares_kv || own.k_as_v)) return false;
  return width_of(config, layer, linears[which].in) > 0 && width_of(config, layer, linears[which].out) > 0;
}

static bool is_of_delta(int which) {
  return which >= LAYER_DELTA_QKV && which <= LAYER_DELTA_O;
}

bool layer_linear_needs_bias(const ModelConfig *config, int layer, int which) {
  const bool conv = config_layer(config, layer).kind == LAYER_CONV;
  if (conv && (which == LAYER_CONV_IN || which == LAYER_O)) return config->conv.bias;
  if (config_layer(config, layer).kind == LAYER_DELTA && (is_of_delta(which) || which == LAYER_O))
    return config->delta.biases;
  if (is_of_expert(which)) return config->experts.biases;
  if (which == LAYER_ROUTER) return config->experts.router_bias;
  if (which == LAYER_Q_A || which == LAYER_KV_A) return config->o_bias;
  if (which <= LAYER_V) return config->qkv_bias && !config->latent.kv_rank;
  if (which >= N_COMMON_LINEARS && which != LAYER_LATENT_IN && which != LAYER_LATENT_OUT) return false;
  return which == LAYER_O ? config->o_bias : config->mlp_bias;
}

/* The name of a linear layer beside experts, or NULL. */
static const char *shared_linear_name(const ModelConfig *config, int which) {
  static const char *const names[][3] = {
      {"mlp.shared_expert.gate_proj", "mlp.shared_expert.up_proj", "mlp.shared_expert.down_proj"},
      {"mlp.shared_experts.gate_proj", "mlp.shared_experts.up_proj", "mlp.shared_experts.down_proj"},
      {"mlp.shared_mlp.gate_proj", "mlp.shared_mlp.up_proj", "mlp.shared_mlp.down_proj"},
      {"feed_forward.shared_expert.gate_proj", "feed_forward.shared_expert.up_proj",
       "feed_forward.shared_expert.down_proj"},
      {"block_sparse_moe.shared_experts.gate_proj", "block_sparse_moe.shared_experts.up_proj",
       "block_sparse_moe.shared_experts.down_proj"}};
  const SharedName shared = config->expert_names->shared;
  if (which == LAYER_ROUTER) return config->expert_names->router;
  if (shared == SHARED_AS_DENSE) return NULL;
  if (which == LAYER_GATE) return names[shared - SHARED_EXPERT][0];
  if (which == LAYER_UP) return names[shared - SHARED_EXPERT][1];
  return which == LAYER_DOWN ? names[shared - SHARED_EXPERT][2] : NULL;
}

/* The name of a matrix of a layer of LAYER_DELTA with DeltaConfig.apart, or NULL. */
static const char *apart_linear_name(const ModelConfig *config, int which) {
  const DeltaConfig *delta = &config->delta;
  switch (which) {
  case LAYER_DELTA_QKV: return "linear_attn.q_proj";
  case LAYER_DELTA_Z: return delta->gate_rank ? "linear_attn.g_b_proj" : "linear_attn.g_proj";
  case LAYER_DELTA_B: return "linear_attn.b_proj";
  case LAYER_DELTA_A:
    if (!delta->by_channel) return "linear_attn.a_proj";
    return delta->gate_rank ? "linear_attn.f_b_proj" : "linear_attn.f_proj";
  case LAYER_O: return config->names.delta_o ? config->names.delta_o : "linear_attn.o_proj";
  default: return NULL;
  }
}

/* The model's own name of a linear layer, or NULL. */
static const char *own_linear_name(const ModelConfig *config, int layer, int which) {
  const TensorNames *names = &config->names;
  const bool moe = config_layer(config, layer).n_experts > 0;
  if (moe && shared_linear_name(config, which)) return shared_linear_name(config, which);
  if (config->delta.apart && config_layer(config, layer).kind == LAYER_DELTA &&
      apart_linear_name(config, which))
    return apart_linear_name(config, which);
  const char *delta_in = config->delta.interleaved ? "linear_attn.in_proj_qkvz" : NULL,
             *delta_b = config->delta.interleaved ? "linear_attn.in_proj_ba" : NULL;
  const char *const outs[N_LAYER_KINDS] = {
      [LAYER_ATTENTION] = names->o,
      [LAYER_DELTA] = config->delta.rule == RULE_MAMBA2 ? "mamba.out_proj" : "linear_attn.out_proj",
      [LAYER_CONV] = "conv.out_proj"};
  const char *const own[N_LAYER_LINEARS] = {[LAYER_Q] = config->latent.q_rank ? "self_attn.q_b_proj" : NULL,
                                            [LAYER_O] = outs[config_layer(config, layer).kind],
                                            [LAYER_GATE] = names->gate,
                                            [LAYER_UP] = names->up,
                                            [LAYER_DOWN] = names->down,
                                            [LAYER_ATTN_GATE] = names->attn_gate,
                                            [LAYER_DELTA_QKV] = delta_in,
                                            [LAYER_DELTA_B] = delta_b};
  return own[which];
}

StoredLinear layer_linear_stored(const ModelConfig *config, int layer, int which) {
  const char *own = own_linear_name(config, layer, which);
  StoredLinear stored = {own ? own : linears[which].name, which, 0,
                         width_of(config, layer, linears[which].out)};
  for (int i = 0; i < N_FUSED; i++) {
    if (!is_fused(config, i)) continue;
    int n_out = 0, first = -1;
    for (int part = 0; part < fused[i].n_parts; part++) {
      if (fused[i].parts[part] == which) first = n_out;
      n_out += width_of(config, layer, linears[fused[i].parts[part]].out);
    }
    own = i == FUSED_GATE_UP ? config->names.gate_up : NULL;
    if (first >= 0) stored = (StoredLinear){own ? own : fused[i].name, fused[i].parts[0], first, n_out};
  }
  return stored;
}

bool layer_linear_is_first(const ModelConfig *config, int layer, int which) {
  if (is_of_expert(which)) return layer_linear_exists(config, layer, which);
  return layer_linear_exists(config, layer, which) &&
         layer_linear_stored(config, layer, which).first_part == which;
}

/* --- norms */

static const size_t norms[N_LAYER_NORMS] = {
    [LAYER_ATTN_NORM] = offsetof(ModelLayer, attn_norm),
    [LAYER_ATTN_POST_NORM] = offsetof(ModelLayer, attn_post_norm),
    [LAYER_MLP_NORM] = offsetof(ModelLayer, mlp_norm),
    [LAYER_MLP_POST_NORM] = offsetof(ModelLayer, mlp_post_norm),
    [LAYER_Q_NORM] = offsetof(ModelLayer, q_norm),
    [LAYER_K_NORM] = offsetof(ModelLayer, k_norm),
    [LAYER_INPUT_NORM] = offsetof(ModelLayer, input_norm),
    [LAYER_EXPERT_NORM] = offsetof(ModelLayer, moe.norm),
    [LAYER_EXPERT_POST_NORM] = offsetof(ModelLayer, moe.post_norm),
    [LAYER_SHARED_POST_NORM] = offsetof(ModelLayer, moe.shared_post_norm),
    [LAYER_Q_A_NORM] = offsetof(ModelLayer, q_a_norm),
    [LAYER_KV_A_NORM] = offsetof(ModelLayer, kv_a_norm),
    [LAYER_INDEX_Q_NORM] = offsetof(ModelLayer, index_q_norm),
    [LAYER_INDEX_K_NORM] = offsetof(ModelLayer, index_k_norm),
    [LAYER_NGRAM_KEY_NORM] = offsetof(ModelLayer, ngrams.key_norm),
    [LAYER_NGRAM_QUERY_NORM] = offsetof(ModelLayer, ngrams.query_norm),
    [LAYER_NGRAM_CONV_NORM] = offsetof(ModelLayer, ngrams.conv_norm),
    [LAYER_ALTUP_NORM] = offsetof(ModelLayer, altup.router_norm),
    [LAYER_LAUREL_NORM] = offsetof(ModelLayer, altup.laurel_norm),
};

/* post_attention_layernorm names another norm in NORM_BEFORE than in the others. */
static const char *const norm_names[][LAYER_Q_NORM] = {
    [NORM_BEFORE] = {[LAYER_ATTN_NORM] = "input_layernorm", [LAYER_MLP_NORM] = "post_attention_layernorm"},
    [NORM_AROUND] = {[LAYER_ATTN_NORM] = "input_layernorm",
                     [LAYER_ATTN_POST_NORM] = "post_attention_layernorm",
                     [LAYER_MLP_NORM] = "pre_feedforward_layernorm",
                     [LAYER_MLP_POST_NORM] = "post_feedforward_layernorm"},
    [NORM_AFTER] = {[LAYER_ATTN_POST_NORM] = "post_attention_layernorm",
                    [LAYER_MLP_POST_NORM] = "post_feedforward_layernorm"},
};

Vector *layer_norm_of(const ModelLayer *layer, int which) {
  return (Vector *)((char *)layer + norms[which]);
}

/* The model's own name of a norm, or NULL. */
static const char *own_norm_name(const TensorNames *names, int which) {
  const char *const own[N_LAYER_NORMS] = {
      [LAYER_ATTN_NORM] = names->attn_norm, [LAYER_ATTN_POST_NORM] = names->attn_post_norm,
      [LAYER_MLP_NORM] = names->mlp_norm,   [LAYER_MLP_POST_NORM] = names->mlp_post_norm,
      [LAYER_Q_NORM] = names->q_norm,       [LAYER_K_NORM] = names->k_norm};
  return own[which];
}

/* The norms of streams, of n-grams, and of index queries and keys; NULL: the layer has no such norm. */
static const char *stream_norm_name(const ModelConfig *config, LayerConfig own, int which, int *width) {
  *width = config->streams.n * config->hidden;
  if (which == LAYER_ATTN_NORM) return "attn_hyper_connection.hc_norm";
  if (which == LAYER_MLP_NORM) return "mlp_hyper_connection.hc_norm";
  if (which >= LAYER_NGRAM_KEY_NORM) {
    static const char *const of_ngrams[] = {"ple.norm_key", "ple.norm_query", "ple.norm_conv"};
    return own.ngrams ? of_ngrams[which - LAYER_NGRAM_KEY_NORM] : NULL;
  }
  if (which < LAYER_INDEX_Q_NORM || own.kind != LAYER_ATTENTION || !config->indexer.block) return NULL;
  *width = config->indexer.head_dim;
  return which == LAYER_INDEX_Q_NORM ? "self_attn.indexer.q_layernorm" : "self_attn.indexer.k_layernorm";
}

const char *layer_norm_name(const ModelConfig *config, int layer, int which, int *width) {
  const char *name = own_norm_name(&config->names, which);
  const LayerConfig own = config_layer(config, layer);
  if (which >= LAYER_ALTUP_NORM) {
    *width = config->hidden;
    if (config->altup.n == 0) return NULL;
    return which == LAYER_ALTUP_NORM ? "altup.router_norm" : "laurel.post_laurel_norm";
  }
  if (which >= LAYER_INDEX_Q_NORM || (config->streams.n > 0 && which < LAYER_Q_NORM))
    return config->streams.n > 0 ? stream_norm_name(config, own, which, width) : NULL;
  if (which < LAYER_Q_NORM) {
    const bool of_mixer = which == LAYER_ATTN_NORM || which == LAYER_ATTN_POST_NORM;
    if (of_mixer ? own.kind == LAYER_MLP_ALONE : own.no_mlp) return NULL;
    if (which == LAYER_MLP_NORM && config->parallel) return NULL;
    *width = config->hidden;
    const char *usual = norm_names[own.norms][which];
    if (which == LAYER_MLP_POST_NORM && config->experts.post_norm) return own.n_experts > 0 ? name : NULL;
    return usual && name ? name : usual;
  }
  if (which == LAYER_INPUT_NORM) {
    *width = config->hidden;
    return config->per_layer_width > 0 ? "post_per_layer_input_norm" : NULL;
  }
  if (which == LAYER_Q_A_NORM || which == LAYER_KV_A_NORM) {
    *width = which == LAYER_Q_A_NORM ? config->latent.q_rank : config->latent.kv_rank;
    if (own.kind != LAYER_ATTENTION || *width == 0) return NULL;
    return which == LAYER_Q_A_NORM ? "self_attn.q_a_layernorm" : "self_attn.kv_a_layernorm";
  }
  if (which >= LAYER_EXPERT_NORM) {
    static const char *const of_experts[] = {"pre_feedforward_layernorm_2", "post_feedforward_layernorm_2",
                                             "post_feedforward_layernorm_1"};
    *width = config->hidden;
    return own.n_experts > 0 && config->experts.own_norms ? of_experts[which - LAYER_EXPERT_NORM] : NULL;
  }
  if (own.kind != LAYER_ATTENTION || config->qk_norm == QK_NORM_NONE || config->qk_norm_plain) return NULL;
  if (own.no_qk_norm || (own.shares_kv && which == LAYER_K_NORM)) return NULL;
  *width = own.head_dim;
  if (config->qk_norm == QK_NORM_WHOLE) *width *= which == LAYER_Q_NORM ? own.n_heads : own.n_kv_heads;
  return name ? name : which == LAYER_Q_NORM ? "self_attn.q_norm" : "self_attn.k_norm";
}

/* --- vectors */

Vector *layer_vector_of(const ModelLayer *layer, int which) {
  static const size_t offsets[N_LAYER_VECTORS] = {
      [DELTA_CONV] = offsetof(ModelLayer, delta.conv),
      [DELTA_A_LOG] = offsetof(ModelLayer, delta.a_log),
      [DELTA_DT_BIAS] = offsetof(ModelLayer, delta.dt_bias),
      [DELTA_NORM] = offsetof(ModelLayer, delta.norm),
      [DELTA_CONV_BIAS] = offsetof(ModelLayer, delta.conv_bias),
      [DELTA_SKIP] = offsetof(ModelLayer, delta.skip),
      [CONV_TAPS] = offsetof(ModelLayer, conv.taps),
      [CONV_BIAS] = offsetof(ModelLayer, conv.bias),
      [NGRAM_TAPS] = offsetof(ModelLayer, ngrams.taps),
      [ATTN_NORM_BIAS] = offsetof(ModelLayer, attn_norm_bias),
      [MLP_NORM_BIAS] = offsetof(ModelLayer, mlp_norm_bias),
      [EXPERT_CHOICE_BIAS] = offsetof(ModelLayer, moe.choice_bias),
      [EXPERT_SCALES] = offsetof(ModelLayer, moe.scales),
      [EXPERT_ROUTER_SCALE] = offsetof(ModelLayer, moe.router_scale),
      [ALTUP_OUTPUT_SCALE] = offsetof(ModelLayer, altup.output_scale),
      [XIELU_ALPHA_P] = offsetof(ModelLayer, xielu.alpha_p),
      [XIELU_ALPHA_N] = offsetof(ModelLayer, xielu.alpha_n),
      [XIELU_BETA] = offsetof(ModelLayer, xielu.beta),
      [XIELU_EPS] = offsetof(ModelLayer, xielu.eps),
  };
  return (Vector *)((char *)layer + offsets[which]);
}

/* The vectors of layers with experts. */
static LayerVector expert_vector(const ModelConfig *config, int which) {
  const ExpertConfig *experts = &config->experts;
  if (which == EXPERT_CHOICE_BIAS && experts->choice_bias)
    return (LayerVector){config->expert_names->choice_bias, experts->n_experts, 0, DTYPE_F32};
  if (which == EXPERT_SCALES && experts->own_norms)
    return (LayerVector){"router.per_expert_scale", experts->n_experts, 0, DTYPE_F16};
  if (which == EXPERT_ROUTER_SCALE && experts->own_norms)
    return (LayerVector){"router.scale", config->hidden, 0, DTYPE_F16};
  return (LayerVector){0};
}

/* The vectors of layers with the part of LAYER_DELTA. */
static LayerVector delta_vector(const DeltaConfig *delta, int which) {
  const int channels = delta_channels(delta), heads = delta->n_value_heads;
  const LayerVector gated[] = {
      [DELTA_CONV] = {"linear_attn.conv1d.weight", channels, delta->conv, DTYPE_F16},
      [DELTA_A_LOG] = {"linear_attn.A_log", heads, 0, DTYPE_F32},
      [DELTA_DT_BIAS] = {"linear_attn.dt_bias", delta_decays(delta), 0, DTYPE_F16},
      [DELTA_NORM] = {delta->apart ? "linear_attn.o_norm.weight" : "linear_attn.norm.weight",
                      delta->value_dim, 0, DTYPE_F32},
      [DELTA_CONV_BIAS] = {0},
      [DELTA_SKIP] = {0},
  };
  const LayerVector mamba[] = {
      [DELTA_CONV] = {"mamba.conv1d.weight", channels, delta->conv, DTYPE_F16},
      [DELTA_A_LOG] = {"mamba.A_log", heads, 0, DTYPE_F16},
      [DELTA_DT_BIAS] = {"mamba.dt_bias", heads, 0, DTYPE_F16},
      [DELTA_NORM] = {delta->no_norm ? NULL : "mamba.norm.weight", heads * delta->value_dim, 0, DTYPE_F16},
      [DELTA_CONV_BIAS] = {delta->conv_bias ? "mamba.conv1d.bias" : NULL, channels, 0, DTYPE_F16},
      [DELTA_SKIP] = {"mamba.D", heads, 0, DTYPE_F16},
  };
  return delta->rule == RULE_MAMBA2 ? mamba[which] : gated[which];
}

/* xIELU's parameters. */
static LayerVector xielu_vector(const ModelConfig *config, int which) {
  static const LayerVector stored[] = {
      {"mlp.act_fn.alpha_p", 1, 0, DTYPE_F16},
      {"mlp.act_fn.alpha_n", 1, 0, DTYPE_F16},
      {"mlp.act_fn.beta", 1, 0, DTYPE_F16},
      {"mlp.act_fn.eps", 1, 0, DTYPE_F16},
  };
  return config->activation == ACTIVATION_XIELU ? stored[which - XIELU_ALPHA_P] : (LayerVector){0};
}

double softplus(double x) {
  return x > 20 ? x : log1p(exp(x));
}

Xielu xielu_read(const XieluLayer *layer) {
  Xielu own = {.beta = 0.5f, .eps = -1e-6f};
  if (!layer->alpha_p.data) return (Xielu){0};
  floats_read(layer->alpha_p.data, layer->alpha_p.dtype, 0, 1, &own.alpha_p);
  floats_read(layer->alpha_n.data, layer->alpha_n.dtype, 0, 1, &own.alpha_n);
  if (layer->beta.data) floats_read(layer->beta.data, layer->beta.dtype, 0, 1, &own.beta);
  if (layer->eps.data) floats_read(layer->eps.data, layer->eps.dtype, 0, 1, &own.eps);
  own.alpha_p = (float)softplus(own.alpha_p);
  own.alpha_n = own.beta + (float)softplus(own.alpha_n);
  return own;
}

LayerVector layer_vector_stored(const ModelConfig *config, int layer, int which) {
  if (which >= XIELU_ALPHA_P) return xielu_vector(config, which);
  if (which == ALTUP_OUTPUT_SCALE)
    return config->altup.n > 0 ? (LayerVector){"altup.correct_output_scale", config->hidden, 0, DTYPE_F16}
                               : (LayerVector){0};
  if (which >= EXPERT_CHOICE_BIAS)
    return config_layer(config, layer).n_experts > 0 ? expert_vector(config, which) : (LayerVector){0};
  if (which == ATTN_NORM_BIAS || which == MLP_NORM_BIAS) {
    if (!config->norm_bias) return (LayerVector){0};
    return (LayerVector){which == ATTN_NORM_BIAS ? "input_layernorm.bias" : "post_attention_layernorm.bias",
                         config->hidden, 0, DTYPE_F16};
  }
  if (which == NGRAM_TAPS) {
    if (!config_layer(config, layer).ngrams) return (LayerVector){0};
    return (LayerVector){"ple.conv1d.weight", config->streams.n * config->hidden, config->ngrams.taps,
                         DTYPE_F16};
  }
  const LayerConfig own = config_layer(config, layer);
  if (which < CONV_TAPS)
    return layer_has(own, LAYER_DELTA) ? delta_vector(&config->delta, which) : (LayerVector){0};
  if (own.kind != LAYER_CONV || (which == CONV_BIAS && !config->conv.bias)) return (LayerVector){0};
  return which == CONV_TAPS ? (LayerVector){"conv.conv.weight", config->hidden, config->conv.taps, DTYPE_F16}
                            : (LayerVector){"conv.conv.bias", config->hidden, 0, DTYPE_F16};
}
