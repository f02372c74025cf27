/* names.c - names of tensors in the families whose names differ from those of tensors.def.
 *
 * Called by: layers.c, hf_directory.c. Rows of own_... take a name from the architecture's row (TensorNames);
 * rows of other_... have names that follow from the model's properties. */
#include "model/names.h"

#include <stddef.h>

/* The models or layers to which a name applies. */
typedef enum {
  ALWAYS,
  ATTENTION, /* the layer's kind */
  DELTA,
  MAMBA, /* delta.rule is RULE_MAMBA2; MAMBA_ALONE: in layers of LAYER_DELTA */
  MAMBA_ALONE,
  CONV,
  STREAMS,     /* residual streams */
  EAGLE,       /* drafters: EAGLE-3 */
  EAGLE_WHOLE, /* those with STATES_NORM_WHOLE */
  MTP,
  ASSISTANT, /* DRAFT_ASSISTANT */
  AROUND,    /* own->norms is NORM_AROUND */
  QUERY_LATENT,
  INTERLEAVED, /* delta.form is DELTA_INTERLEAVED */
  APART,       /* DELTA_APART, in LAYER_DELTA */
  BY_CHANNEL,  /* delta.rule is RULE_CHANNELS */
  LOW_RANK,    /* delta has a gate_rank */
  FUSED_DELTA, /* the delta rule's matrices are one */
} When;

static bool is(const ModelConfig *config, const LayerConfig *own, When when) {
  const DeltaConfig *delta = &config->delta;
  switch (when) {
  case ALWAYS: return true;
  case ATTENTION: return own->kind == LAYER_ATTENTION;
  case DELTA: return own->kind == LAYER_DELTA;
  case MAMBA: return delta->rule == RULE_MAMBA2;
  case MAMBA_ALONE: return delta->rule == RULE_MAMBA2 && own->kind == LAYER_DELTA;
  case CONV: return own->kind == LAYER_CONV;
  case STREAMS: return config->streams.n > 0;
  case EAGLE: return config->draft.kind == DRAFT_EAGLE3;
  case EAGLE_WHOLE: return config->draft.states_norm == STATES_NORM_WHOLE;
  case MTP: return config->draft.kind == DRAFT_MTP;
  case ASSISTANT: return config->draft.kind == DRAFT_ASSISTANT;
  case AROUND: return own->norms == NORM_AROUND;
  case QUERY_LATENT: return config->latent.q_rank > 0;
  case INTERLEAVED: return delta->form == DELTA_INTERLEAVED;
  case FUSED_DELTA: return config->fused == FUSES_DELTA;
  case APART: return delta->form == DELTA_APART && own->kind == LAYER_DELTA;
  case BY_CHANNEL: return delta->rule == RULE_CHANNELS;
  case LOW_RANK: return delta->gate_rank > 0;
  }
  return false;
}

typedef struct {
  int which; /* a slot (slots.h): of a layer's or the model's linear layers or vectors, as the table says */
  When when;
  size_t own; /* offset in TensorNames of the name; used if `name` is NULL */
  const char *name;
} NameRow;

/* clang-format off */
#define OWN(member) offsetof(TensorNames, member), NULL
static const NameRow own_linears[] = {
  { LAYER_O,         APART,      OWN(delta_o)   },
  { LAYER_O,         ATTENTION,  OWN(o)         },
  { LAYER_GATE,      ALWAYS,     OWN(gate)      },
  { LAYER_UP,        ALWAYS,     OWN(up)        },
  { LAYER_DOWN,      ALWAYS,     OWN(down)      },
  { LAYER_ATTN_GATE, ALWAYS,     OWN(attn_gate) },
};
static const NameRow own_vectors[] = {
  { LAYER_ATTN_NORM,      ALWAYS, OWN(attn_norm)      },
  { LAYER_ATTN_POST_NORM, ALWAYS, OWN(attn_post_norm) },
  { LAYER_MLP_NORM,       ALWAYS, OWN(mlp_norm)       },
  { LAYER_MLP_POST_NORM,  ALWAYS, OWN(mlp_post_norm)  },
  { LAYER_ATTN_NORM_BIAS, ALWAYS, OWN(attn_norm_bias) },
  { LAYER_MLP_NORM_BIAS,  ALWAYS, OWN(mlp_norm_bias)  },
  { LAYER_Q_NORM,         ALWAYS, OWN(q_norm)         },
  { LAYER_K_NORM,         ALWAYS, OWN(k_norm)         },
  { LAYER_SINKS,          ALWAYS, OWN(sinks)          },
};
static const NameRow own_model_vectors[] = {
  { MODEL_FINAL_NORM,      ALWAYS, OWN(final_norm)      },
  { MODEL_FINAL_NORM_BIAS, ALWAYS, OWN(final_norm_bias) },
};
#undef OWN

static const NameRow other_linears[] = { /* a tensor's first row whose condition holds is used */
  { LAYER_Q,         QUERY_LATENT,     0, "self_attn.q_b_proj"       },
  { LAYER_O,         APART,            0, "linear_attn.o_proj"       },
  { LAYER_O,         MAMBA_ALONE,      0, "mamba.out_proj"           },
  { LAYER_O,         DELTA,            0, "linear_attn.out_proj"     },
  { LAYER_O,         CONV,             0, "conv.out_proj"            },
  { LAYER_DELTA_QKV, APART,            0, "linear_attn.q_proj"       },
  { LAYER_DELTA_QKV, INTERLEAVED,      0, "linear_attn.in_proj_qkvz" },
  { LAYER_DELTA_Z,   LOW_RANK,         0, "linear_attn.g_b_proj"     },
  { LAYER_DELTA_Z,   APART,            0, "linear_attn.g_proj"       },
  { LAYER_DELTA_B,   APART,            0, "linear_attn.b_proj"       },
  { LAYER_DELTA_B,   INTERLEAVED,      0, "linear_attn.in_proj_ba"   },
  { LAYER_DELTA_A,   LOW_RANK,         0, "linear_attn.f_b_proj"     },
  { LAYER_DELTA_A,   BY_CHANNEL,       0, "linear_attn.f_proj"       },
  { LAYER_DELTA_A,   APART,            0, "linear_attn.a_proj"       },
};
static const NameRow other_vectors[] = {
  { LAYER_ATTN_NORM,     STREAMS, 0, "attn_hyper_connection.hc_norm" },
  { LAYER_MLP_NORM,      STREAMS, 0, "mlp_hyper_connection.hc_norm"  },
  { LAYER_MLP_NORM,      AROUND,  0, "pre_feedforward_layernorm"     },
  { LAYER_DELTA_CONV,    MAMBA,   0, "mamba.conv1d.weight"           },
  { LAYER_DELTA_A_LOG,   MAMBA,   0, "mamba.A_log"                   },
  { LAYER_DELTA_DT_BIAS, MAMBA,   0, "mamba.dt_bias"                 },
  { LAYER_DELTA_NORM,    MAMBA,   0, "mamba.norm.weight"             },
  { LAYER_DELTA_NORM,    APART,   0, "linear_attn.o_norm.weight"     },
  { LAYER_DELTA_NORM, FUSED_DELTA, 0, "linear_attn.out_norm.weight"  },
};
static const NameRow other_model_linears[] = {
  { MODEL_DRAFT_JOIN, ASSISTANT, 0, "pre_projection" },
};
static const NameRow other_model_vectors[] = {
  { MODEL_FINAL_NORM,        STREAMS,     0, "hyper_connection_mixer.hc_norm" },
  { MODEL_DRAFT_STATE_NORM,  EAGLE,       0, "layers.0.hidden_norm"           },
  { MODEL_DRAFT_STATE_NORM,  MTP,         0, "pre_fc_norm_hidden"             },
  { MODEL_DRAFT_STATES_NORM, EAGLE_WHOLE, 0, "input_norm"                     },
};
/* clang-format on */

static const char *find(const NameRow *rows, size_t n, const ModelConfig *config, const LayerConfig *layer,
                        int which, const char *otherwise) {
  for (size_t i = 0; i < n; i++) {
    if (rows[i].which != which || !is(config, layer, rows[i].when)) continue;
    const char *const *own = (const char *const *)((const char *)&config->names + rows[i].own);
    const char *name = rows[i].name ? rows[i].name : *own;
    if (name) return name;
  }
  return otherwise;
}
#define FIND(rows, ...) find(rows, sizeof(rows) / sizeof *(rows), __VA_ARGS__)

const char *linear_name(const ModelConfig *config, int layer, int which, const char *usual) {
  const LayerConfig own = config_layer(config, layer);
  const ExpertNames *experts = config->expert_names;
  if (which == LAYER_ROUTER && experts) return experts->router;
  for (int part = 0; own.n_experts > 0 && part < N_EXPERT_LINEARS; part++)
    if (which == mlp_linear(part) && experts->shared[part]) return experts->shared[part];
  return FIND(own_linears, config, &own, which, FIND(other_linears, config, &own, which, usual));
}

const char **linear_own_name(TensorNames *names, size_t i) {
  if (i == sizeof own_linears / sizeof *own_linears) return NULL;
  return (const char **)((char *)names + own_linears[i].own);
}

const char *vector_name(const ModelConfig *config, int layer, int which, const char *usual) {
  const LayerConfig own = config_layer(config, layer);
  if (which == LAYER_CHOICE_BIAS) return config->expert_names->choice_bias;
  return FIND(own_vectors, config, &own, which, FIND(other_vectors, config, &own, which, usual));
}

/* Stands for the layer of tensors outside the layers. Their rows look at no property of a layer. */
static const LayerConfig none;

const char *model_linear_base(const ModelConfig *config, int which, const char *usual) {
  return FIND(other_model_linears, config, &none, which, usual);
}

const char *model_vector_base(const ModelConfig *config, int which, const char *usual) {
  return FIND(other_model_vectors, config, &none, which,
              FIND(own_model_vectors, config, &none, which, usual));
}
