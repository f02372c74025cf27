/* config_facts.h - a ModelConfig as lines of text, "member value": what test_config_transcripts.c compares.
 *
 * Everything that a config decides is a line. A member in which layers may differ is a line for all of them,
 * from the first on, in which "own" stands for the model's own number: "layers.window 4096*3 0". Nothing here
 * depends on the machine. A new member of ModelConfig gets its place in one of the lists; `make goldens` then
 * shows its value in every config. */
#pragma once

#include "model/config/config.h"
#include "test/unit.h"

enum { MAX_FACTS = 400, FACT_BYTES = 400 };

typedef struct {
  int n;
  char lines[MAX_FACTS][FACT_BYTES];
} Facts;

__attribute__((format(printf, 2, 3))) static inline void fact(Facts *facts, const char *format, ...) {
  va_list args;
  va_start(args, format);
  const int n = facts->n < MAX_FACTS ? vsnprintf(facts->lines[facts->n++], FACT_BYTES, format, args) : -1;
  va_end(args);
  if (n < 0 || n >= FACT_BYTES) fail_msg("config_facts.h: no room for \"%s\"", format);
}

typedef enum { IS_BOOL, IS_INT, IS_ENUM, IS_INT64, IS_DOUBLE, IS_TEXT } MemberType;

typedef struct {
  const char *name;
  size_t at;
  MemberType type;
  const char *words; /* of an enum, in order, with spaces between; NULL: as a number */
} Member;

#define TYPE_OF(x)                                                                                           \
  _Generic(x,                                                                                                \
      bool: IS_BOOL,                                                                                         \
      int: IS_INT,                                                                                           \
      unsigned: IS_ENUM,                                                                                     \
      int64_t: IS_INT64,                                                                                     \
      double: IS_DOUBLE,                                                                                     \
      const char *: IS_TEXT)
#define MEMBER(s, member, ...)                                                                               \
  { #member, offsetof(s, member), TYPE_OF(((s *)0)->member), "" __VA_ARGS__ }
#define C(...) MEMBER(ModelConfig, __VA_ARGS__)
#define L(...) MEMBER(LayerConfig, __VA_ARGS__)
#define E(...) MEMBER(ExpertNames, __VA_ARGS__)
/* The names of an expert's linear layers. */
#define PARTS(gate, up, down, member)                                                                        \
  {gate, offsetof(ExpertNames, member[EXPERT_GATE]), IS_TEXT, ""},                                           \
      {up, offsetof(ExpertNames, member[EXPERT_UP]), IS_TEXT, ""}, {                                         \
    down, offsetof(ExpertNames, member[EXPERT_DOWN]), IS_TEXT, ""                                            \
  }
#define R(rope)                                                                                              \
  C(rope.kind, "plain linear llama3 yarn longrope proportional"), C(rope.rotary_dim), C(rope.neighbours),    \
      C(rope.backwards), C(rope.theta), C(rope.factor), C(rope.low_freq_factor), C(rope.high_freq_factor),   \
      C(rope.original_max_position), C(rope.beta_fast), C(rope.beta_slow), C(rope.attention_factor),         \
      C(rope.long_attention_factor), C(rope.mscale), C(rope.mscale_all_dim), C(rope.truncate),               \
      C(rope.n_turned)

static const Member members_of_config[] = {
    /* clang-format off */
  C(hidden), C(intermediate), C(n_layers), C(n_heads), C(n_kv_heads), C(head_dim),
  C(value_dim), C(value_scale), C(vocab_size), C(embedding_rows), C(max_position), C(norm_eps),
  C(norms, "before around after"),
  C(norm, "rms plus_one plus_one_inside sphere centred centred_bias centred_plus_one"),
  C(norms_plain), C(qkv_clip), C(head_bias), C(parallel, "no one_norm two_norms"), C(embedding_norm),
  C(post_norm_eps), C(qk_norm_eps), C(qk_norm, "none plain heads whole centred"),
  C(qk_norm_after_rope), C(attn_sinks), C(attn_gate, "none numbers heads in_q"), C(attn_gate_softplus),
  C(v_norm), C(layer_scalar), C(learned_positions),
  C(activation, "silu gelu_tanh clamped limited relu gelu_alone gelu_exact xielu"),
  C(per_layer_width), C(per_layer_vocab), C(embedding_scale), C(attention_scale), C(query_scale_beta),
  C(query_scale_step), C(query_scale_nope), C(residual_scale), C(gate_scale), C(mlp_scale),
  C(logit_divisor), C(attention_cap), C(logit_cap), C(tied_embeddings), C(qkv_bias), C(o_bias), C(mlp_bias),
  C(fused, "none gate_up qkv qkv_heads all delta"), C(text_part), C(split), C(bos),
  R(rope), R(local_rope),
  C(names.layers), C(names.block), C(names.attention), C(names.delta), C(names.attn_norm),
  C(names.attn_post_norm),
  C(names.attn_norm_bias), C(names.mlp_norm_bias),
  C(names.mlp_norm), C(names.mlp_post_norm), C(names.q_norm), C(names.k_norm), C(names.o),
  C(names.delta_o), C(names.attn_gate), C(names.gate), C(names.up), C(names.gate_up), C(names.qkv),
  C(names.down),
  C(names.sinks), C(names.optional), C(names.inputs_first), C(names.positions),
  C(names.final_norm), C(names.final_norm_bias),
  C(names.embedding), C(names.body), C(names.head),
  C(latent.kv_rank), C(latent.q_rank), C(latent.nope_dim), C(latent.rope_dim), C(latent.value_dim),
  C(delta.n_key_heads), C(delta.n_value_heads), C(delta.key_dim), C(delta.value_dim), C(delta.conv),
  C(delta.form, "as_one interleaved apart"), C(delta.rule, "gated_delta kimi mamba2"),
  C(delta.log_bound), C(delta.gate_rank), C(delta.doubles_beta), C(delta.norm_eps),
  C(delta.gate_is_sigmoid), C(delta.conv_bias), C(delta.biases), C(delta.least_step),
  C(delta.largest_step), C(delta.no_norm), C(delta.z_scale), C(delta.a_scale), C(delta.out_scale),
  C(delta.q_scale), C(delta.k_scale), C(delta.v_scale),
  C(conv.taps), C(conv.channels), C(conv.bias), C(streams.n), C(streams.rank), C(altup.n),
  C(altup.laurel_rank), C(sphere.init), C(sphere.rate),
  C(ngrams.longest), C(ngrams.n_hashes), C(ngrams.width), C(ngrams.taps),
  C(ngrams.least), C(ngrams.multiple), C(ngrams.seed), C(ngrams.empty), C(indexer.block),
  C(indexer.budget), C(indexer.n_heads), C(indexer.head_dim),
  C(experts.n_experts), C(experts.n_chosen), C(experts.width), C(experts.latent), C(experts.shared_width),
  C(experts.shared_output, "whole gated halved"),
  C(experts.score, "softmax sigmoid chosen chosen_sigmoid chosen_near"), C(experts.near),
  C(experts.renormalise), C(experts.sum_plus), C(experts.scale),
  C(experts.n_groups), C(experts.n_chosen_groups), C(experts.group_is_best),
  C(experts.choice_bias), C(experts.biases), C(experts.scales_input),
  C(experts.norms, "none post own"),
  C(quant.given), C(quant.named_only), C(quant.zeros_less_one), C(quant.ordered),
  C(quant.int8_activations),
  C(generation.do_sample), C(generation.temperature), C(generation.top_k), C(generation.top_p),
  C(generation.min_p), C(generation.repetition_penalty),
    /* clang-format on */
};

static const Member names_of_experts[] = {
    E(router),
    E(each),
    PARTS("gate", "up", "down", own),
    PARTS("all_gate_up", "all_up", "all_down", all),
    E(choice_bias),
    E(bias_may_miss),
    E(alternate),
    E(inputs_first, "- inputs may_be_inputs"),
    PARTS("shared_gate", "shared_up", "shared_down", shared),
};

/* As config_layer() gives them. */
static const Member members_of_layer[] = {
    L(kind, "attention delta conv mlp_alone"),
    L(window),
    L(chunk),
    L(rope, "global local none"),
    L(no_sinks),
    L(no_qk_norm),
    L(k_as_v),
    L(shares_kv),
    L(mlp, "of_model dense none"),
    L(delta_beside),
    L(sparsity),
    L(mlp_limit),
    L(expert_limit),
    L(ngrams),
    L(begins, "no_loop first_loop loop"),
    L(back),
};

/* The other numbers of a layer, and what they are usually. */
typedef struct {
  const char *name;
  double number, usual;
} LayerNumber;

enum { N_LAYER_NUMBERS = 11 };

static inline void numbers_of_layer(const ModelConfig *c, int layer, LayerNumber out[N_LAYER_NUMBERS]) {
  const LayerConfig own = config_layer(c, layer);
  const LayerNumber numbers[N_LAYER_NUMBERS] = {
      {"n_heads", own.n_heads, c->n_heads},
      {"n_kv_heads", own.n_kv_heads, c->n_kv_heads},
      {"head_dim", own.head_dim, c->head_dim},
      {"intermediate", own.intermediate, c->intermediate},
      {"norms", own.norms, c->norms},
      {"n_experts", own.n_experts, c->experts.n_experts},
      {"n_cache_heads", own.n_cache_heads, own.n_kv_heads},
      {"kv_layer", own.kv_layer, layer},
      {"value_dim", own.value_dim, own.head_dim},
      {"is_alike", config_layer_is_alike(c, layer), true},
      {"kv_numbers", (double)config_kv_numbers(c, layer), 2.0 * own.n_kv_heads * own.head_dim},
  };
  memcpy(out, numbers, sizeof numbers);
}

/* The value of a member of the struct at `base`, as text. */
static inline void value_of(const void *base, const Member *member, char out[100]) {
  const void *at = (const char *)base + member->at;
  if (member->type == IS_ENUM && *member->words) {
    const char *word = member->words;
    for (unsigned i = 0; i < *(const unsigned *)at; i++) {
      if (!(word = strchr(word, ' '))) fail_msg("%s has no word for %u here", member->name, i + 1);
      word++;
    }
    snprintf(out, 100, "%.*s", (int)strcspn(word, " "), word);
    return;
  }
  switch (member->type) {
  case IS_BOOL: snprintf(out, 100, "%s", *(const bool *)at ? "true" : "false"); break;
  case IS_INT:
  case IS_ENUM: snprintf(out, 100, "%d", *(const int *)at); break;
  case IS_INT64: snprintf(out, 100, "%lld", (long long)*(const int64_t *)at); break;
  case IS_DOUBLE: snprintf(out, 100, "%.12g", *(const double *)at); break;
  case IS_TEXT: snprintf(out, 100, "%s", *(const char *const *)at ? *(const char *const *)at : "-"); break;
  }
}

typedef void LayerValue(const ModelConfig *config, int layer, size_t which, char out[100]);

static inline void member_of_layer(const ModelConfig *config, int layer, size_t which, char out[100]) {
  static LayerConfig own; /* static: gcc takes the members of an inlined copy for uninitialised */
  own = config_layer(config, layer);
  value_of(&own, &members_of_layer[which], out);
}

static inline void number_of_layer(const ModelConfig *config, int layer, size_t which, char out[100]) {
  LayerNumber numbers[N_LAYER_NUMBERS];
  numbers_of_layer(config, layer, numbers);
  snprintf(out, 100, numbers[which].number == numbers[which].usual ? "own" : "%.12g", numbers[which].number);
}

static inline void state_numbers(const ModelConfig *config, int layer, size_t none, char out[100]) {
  (void)none;
  snprintf(out, 100, "%zu", config_state_numbers(config, layer));
}

static inline void layers_fact(Facts *facts, const ModelConfig *config, const char *name, LayerValue *value,
                               size_t which) {
  char text[FACT_BYTES - 100] = "", now[100], next[100];
  size_t n = 0;
  for (int first = 0, end; first < config->n_layers && n < sizeof text - 120; first = end) {
    value(config, first, which, now);
    for (end = first + 1; end < config->n_layers; end++) {
      value(config, end, which, next);
      if (strcmp(now, next) != 0) break;
    }
    n += (size_t)snprintf(text + n, sizeof text - n, " %s", now);
    if (end - first > 1 && end - first < config->n_layers)
      n += (size_t)snprintf(text + n, sizeof text - n, "*%d", end - first);
  }
  fact(facts, "layers.%s%s", name, text);
}

static inline void rope_facts(Facts *facts, const char *name, const RopeConfig *rope) {
  const bool is_longrope = rope->kind == ROPE_LONGROPE;
  for (int i = 0; is_longrope && i < rope->rotary_dim / 2 && i < 6; i++)
    fact(facts, "%s.factors[%d] %g, in long texts %g", name, i, (double)rope->short_factors[i],
         (double)rope->long_factors[i]);
  for (int is_long = 0; rope->rotary_dim > 0 && is_long <= is_longrope; is_long++) {
    float frequencies[MAX_HEAD_ROW / 2], attention;
    rope_frequencies(rope, is_long, frequencies, &attention);
    fact(facts, "%s%s: attention times %.6g, first frequency %.6g", name, is_long ? ", long" : "",
         (double)attention, (double)frequencies[0]);
  }
}

static inline void scheme_fact(Facts *facts, const char *name, const QuantScheme *s) {
  fact(facts, "scheme of %s: %s, %d bits, groups of %d, blocks of %d%s", name, quant_method_name(s->method),
       s->bits, s->group, s->block, s->symmetric ? ", symmetric" : "");
}

/* The usual scheme, and those of layers which have another. */
static inline void quant_facts(Facts *facts, const QuantConfig *quant) {
  static const char *const probes[] = {
      "lm_head",
      "model.layers.0.mlp.down_proj",
      "model.layers.0.mlp.up_proj",
      "model.layers.1.mlp.down_proj",
      "model.layers.10.mlp.up_proj",
      "model.layers.2.mlp.down_proj",
      "model.layers.2.mlp.up_proj",
      "model.layers.2.self_attn.k_proj",
      "model.layers.2.self_attn.q_proj",
      "model.layers.21.mlp.up_proj",
      "lm_head2",
      "xabcabc",
      "xabcabd",
      "",
  };
  const QuantScheme *usual = &quant->scheme;
  scheme_fact(facts, "layers", usual);
  for (size_t i = 0; quant->given && i < sizeof probes / sizeof *probes; i++) {
    QuantScheme own;
    Error err;
    if (quantization_of(quant, probes[i], "config.json", &own, &err) != STATUS_OK)
      fact(facts, "scheme of %s: %.200s", probes[i], err.text);
    else if (own.method != usual->method || own.bits != usual->bits || own.group != usual->group ||
             own.block != usual->block || own.symmetric != usual->symmetric)
      scheme_fact(facts, probes[i], &own);
  }
}

static inline void members_facts(Facts *facts, const void *base, const Member *members, size_t n) {
  for (size_t i = 0; i < n; i++) {
    char value[100];
    value_of(base, &members[i], value);
    fact(facts, "%s %s", members[i].name, value);
  }
}

#define COUNT_OF(list) (sizeof(list) / sizeof *(list))

/* One line for all names. */
static inline void expert_names_fact(Facts *facts, const ExpertNames *names) {
  char text[FACT_BYTES - 20] = "";
  size_t n = 0;
  for (size_t i = 0; i < COUNT_OF(names_of_experts) && n < sizeof text; i++) {
    char value[100];
    value_of(names, &names_of_experts[i], value);
    if (strcmp(value, "-") == 0 || strcmp(value, "false") == 0) continue;
    n += (size_t)snprintf(text + n, sizeof text - n, "%s %s %s", n ? "," : "", names_of_experts[i].name,
                          value);
  }
  fact(facts, "expert_names%s", text);
}

static inline void delta_fact(Facts *facts, const DeltaConfig *delta) {
  const DeltaOffsets offsets = delta_offsets(delta);
  fact(facts, "delta: %d channels, q from %d, k from %d, v from %d, %d decays, norms of %d numbers",
       delta_channels(delta), offsets.q, offsets.k, offsets.v, delta_decays(delta), delta_norm_width(delta));
}

static inline void eos_fact(Facts *facts, const ModelConfig *config) {
  char text[FACT_BYTES - 10] = "";
  size_t n = 0;
  for (int i = 0; i < config->n_eos && n < sizeof text; i++)
    n += (size_t)snprintf(text + n, sizeof text - n, " %d", config->eos[i]);
  fact(facts, "eos%s", *text ? text : " -");
}

static inline void config_facts(const ModelConfig *config, Facts *facts) {
  facts->n = 0;
  members_facts(facts, config, members_of_config, COUNT_OF(members_of_config));
  if (config->expert_names) expert_names_fact(facts, config->expert_names);
  eos_fact(facts, config);
  for (size_t i = 0; i < COUNT_OF(members_of_layer); i++)
    layers_fact(facts, config, members_of_layer[i].name, member_of_layer, i);
  LayerNumber numbers[N_LAYER_NUMBERS];
  numbers_of_layer(config, 0, numbers);
  for (size_t i = 0; i < N_LAYER_NUMBERS; i++)
    layers_fact(facts, config, numbers[i].name, number_of_layer, i);
  layers_fact(facts, config, "state_numbers", state_numbers, 0);
  rope_facts(facts, "rope", &config->rope);
  rope_facts(facts, "local_rope", &config->local_rope);
  fact(facts, "rope_original_context() %d", rope_original_context(config));
  if (expert_row_width(config) != config->hidden)
    fact(facts, "expert_row_width() %d", expert_row_width(config));
  if (config_most_heads(config) != config->n_heads)
    fact(facts, "config_most_heads() %d", config_most_heads(config));
  if (config_has_states(config))
    fact(facts, "layers with attention %d, with the delta rule %d, with a convolution %d",
         config_count_layers(config, LAYER_ATTENTION, config->n_layers),
         config_count_layers(config, LAYER_DELTA, config->n_layers),
         config_count_layers(config, LAYER_CONV, config->n_layers));
  if (config->delta.n_key_heads) delta_fact(facts, &config->delta);
  quant_facts(facts, &config->quant);
}
