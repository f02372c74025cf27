/* layers.c - see layers.h. */
#include "model/layers.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "model/names.h"

typedef enum {
#define WIDTH(NAME, ...) WIDTH_##NAME,
#include "model/widths.def"
} Width;

/* Names in tensors.def for operations that differ by layer; see layer_tensor_operation(). */
enum { OP_MIXER = N_OPERATIONS, OP_MLP };

/* Which member of the config requires that a linear layer has a bias. */
typedef enum { BIAS_NONE, BIAS_QKV, BIAS_O, BIAS_MLP, BIAS_DELTA, BIAS_CONV, BIAS_EXPERTS, BIAS_LATENT } Bias;

static const struct {
  const char *name;
  unsigned operation; /* OP_... */
  Width out, in;
  Bias bias;
  Division division;
  DeviceMatrix matrix;
  bool rounded;
} linears[N_LAYER_LINEARS + N_EXPERT_LINEARS] = {
#define LINEAR(SLOT, member, name, words, operation, out, in, bias, division, matrix, rounded)               \
  [LAYER_##SLOT] = {name,        OP_##operation,    WIDTH_##out,     WIDTH_##in,                             \
                    BIAS_##bias, DIVIDE_##division, MATRIX_##matrix, rounded},
#define EXPERT_LINEAR(SLOT, member, words, out, in, division)                                                \
  [N_LAYER_LINEARS + EXPERT_##SLOT] = {NULL,         OP_EXPERTS,        WIDTH_##out,    WIDTH_##in,          \
                                       BIAS_EXPERTS, DIVIDE_##division, MATRIX_EXPERTS, true},
#include "model/tensors.def"
};

enum { PLAIN, NORM }; /* kinds of vectors */

static const struct {
  const char *name;
  bool is_norm;
  unsigned operation; /* OP_... */
  Width n, taps;
  Dtype usually;
  Division division;
  VectorRange range;
} vectors[N_LAYER_VECTORS] = {
#define VECTOR(SLOT, member, name, words, kind, operation, n, taps, usually, division, low, high)            \
  [LAYER_##SLOT] = {                                                                                         \
      name, kind, OP_##operation, WIDTH_##n, WIDTH_##taps, DTYPE_##usually, DIVIDE_##division, {low, high}},
#include "model/tensors.def"
};

const char *layers_name(const ModelConfig *config) {
  return config->names.layers ? config->names.layers : "layers";
}

void layer_full_name(const ModelConfig *config, const char *body, int layer, const char *part, char *out,
                     size_t size) {
  const char *block = config->names.block, *dot = strchr(part, '.');
  if (config->names.delta && strncmp(part, "linear_attn.", 12) == 0) block = config->names.delta;
  if (config->names.attention && strncmp(part, "self_attn.", 10) == 0) block = config->names.attention;
  const bool replaced = block && dot; /* a norm's name has no block */
  int number = layer;                 /* among the layers that have tensors */
  for (int i = 0; config->layers && i < layer; i++) number -= config->layers[i].back > 0;
  snprintf(out, size, "%s%s.%d.%s%s", body, layers_name(config), number, replaced ? block : "",
           replaced ? dot : part);
}

/* --- sizes */

static int qk_norm_width(const LayerConfig *own, int n_heads) {
  return own->qk_norm < QK_NORM_HEADS ? 0 : (own->qk_norm == QK_NORM_HEADS ? 1 : n_heads) * own->head_dim;
}

/* The size `width` of a layer with the properties *own. For a tensor outside the layers *own is zeros, and
 * `number` is the tensor's number in its ModelRow. */
static int width_of(const ModelConfig *c, const LayerConfig *own, int number, Width width) {
  const DeltaConfig *delta = &c->delta;
  const LatentConfig *latent = &c->latent;
  const DraftConfig *draft = &c->draft;
  const bool has_kv = !own->latent && !own->shares_kv && c->fused != FUSES_QKV_HEADS,
             apart = delta->form == DELTA_APART, interleaved = delta->form == DELTA_INTERLEAVED,
             mamba = delta->rule == RULE_MAMBA2, sphere = c->norm == NORM_SPHERE;
  const int streams = c->streams.n * c->hidden, delta_keys = delta->n_key_heads * delta->key_dim,
            delta_values = delta->n_value_heads * delta->value_dim,
            target_states = draft->n_states * draft->target_hidden;
  if (own->back > 0) return 0;
  switch (width) {
/* clang-format off */
#define WIDTH(NAME, size) case WIDTH_##NAME: return size;
#include "model/widths.def"
    /* clang-format on */
  }
  return 0;
}

/* A size of a layer's tensor. */
static int layer_width(const ModelConfig *config, int layer, Width width) {
  const LayerConfig own = config_layer(config, layer);
  return width_of(config, &own, 0, width);
}

/* --- linear layers of a layer */

int layer_linear_count(const ModelConfig *config, int layer) {
  return expert_linear(config_layer(config, layer).n_experts, 0);
}

static bool is_of_expert(int which) {
  return which >= N_LAYER_LINEARS;
}

/* The role of linear layer `which` in its expert: EXPERT_GATE and so on. */
static int expert_part(int which) {
  return (which - N_LAYER_LINEARS) % N_EXPERT_LINEARS;
}

static int expert_of(int which) {
  return (which - N_LAYER_LINEARS) / N_EXPERT_LINEARS;
}

/* The index in linears[] of linear layer `which`. All experts have the same rows. */
static int row_of_linear(int which) {
  return is_of_expert(which) ? N_LAYER_LINEARS + expert_part(which) : which;
}

void layer_linear_part(const ModelConfig *config, int layer, int which, char name[LINEAR_NAME_SIZE]) {
  const ExpertNames *names = config->expert_names;
  if (is_of_expert(which))
    snprintf(name, LINEAR_NAME_SIZE, "%s.%d.%s", names->each, expert_of(which),
             names->own[expert_part(which)]);
  else
    snprintf(name, LINEAR_NAME_SIZE, "%s", layer_linear_stored(config, layer, which).name);
}

Linear *layer_linear(const ModelLayer *layer, int which) {
  if (is_of_expert(which)) return &layer->experts[expert_of(which)].linear[expert_part(which)];
  return (Linear *)&layer->linear[which];
}

const char *layer_linear_name(int which) {
  return linears[which].name;
}

const char *layer_vector_name(int which) {
  return vectors[which].name;
}

void layer_linear_sizes(const ModelConfig *config, int layer, int which, int *n_in, int *n_out) {
  const int row = row_of_linear(which);
  *n_in = layer_width(config, layer, linears[row].in);
  if (config->draft.kind == DRAFT_EAGLE3 && layer == 0 && which <= LAYER_V) *n_in *= 2;
  *n_out = layer_width(config, layer, linears[row].out);
}

OpKind layer_tensor_operation(const ModelConfig *config, int layer, bool is_vector, int which) {
  const LayerConfig own = config_layer(config, layer);
  const bool streams = config->streams.n > 0;
  const unsigned operation = is_vector ? vectors[which].operation : linears[row_of_linear(which)].operation;
  switch (operation) {
  case OP_MIXER:
    if (streams) return OP_MIX_FOR_ATTENTION;
    return layer_has(own, LAYER_DELTA) ? OP_DELTA : own.kind == LAYER_CONV ? OP_CONV : OP_QKV;
  case OP_MLP:
    if (streams) return OP_MIX_FOR_MLP;
    return own.n_experts > 0 ? OP_EXPERTS : OP_GATE_UP;
  case OP_GATE_UP:
  case OP_DOWN: return own.n_experts > 0 ? OP_EXPERTS : (OpKind)operation;
  default: return (OpKind)operation;
  }
}

bool layer_linear_exists(const ModelConfig *config, int layer, int which) {
  const LayerConfig own = config_layer(config, layer);
  const int row = row_of_linear(which);
  return layer_computes(config, &own, layer_tensor_operation(config, layer, false, which)) &&
         layer_width(config, layer, linears[row].in) > 0 && layer_width(config, layer, linears[row].out) > 0;
}

bool layer_linear_needs_bias(const ModelConfig *config, int layer, int which) {
  const LayerKind kind = config_layer(config, layer).kind;
  switch (linears[row_of_linear(which)].bias) {
  case BIAS_QKV: return config->qkv_bias && !config->latent.kv_rank;
  case BIAS_O:
    if (kind == LAYER_CONV) return config->conv.bias;
    return kind == LAYER_DELTA ? config->delta.biases : config->o_bias;
  case BIAS_MLP: return config->mlp_bias;
  case BIAS_DELTA: return kind == LAYER_DELTA && config->delta.biases;
  case BIAS_CONV: return config->conv.bias;
  case BIAS_EXPERTS: return config->experts.biases;
  case BIAS_LATENT: return config->o_bias;
  case BIAS_NONE: break;
  }
  return false;
}

StoredLinear layer_linear_stored(const ModelConfig *c, int layer, int which) {
  enum { NO_PART = -1 };
  const struct {
    const char *name, *own;
    bool is_used;
    int parts[5]; /* up to NO_PART */
  } fused[] = {
#define FUSED(name, own, when, ...) {name, own, when, {__VA_ARGS__, NO_PART}},
#include "model/tensors.def"
  };
  StoredLinear stored = {linear_name(c, layer, which, linears[which].name), which, 0,
                         layer_width(c, layer, linears[which].out)};
  for (size_t i = 0; i < sizeof fused / sizeof *fused; i++) {
    int n_out = 0, first = -1;
    for (const int *part = fused[i].parts; fused[i].is_used && *part != NO_PART; part++) {
      if (*part == which) first = n_out;
      n_out += layer_width(c, layer, linears[*part].out);
    }
    const char *name = fused[i].own ? fused[i].own : fused[i].name;
    if (first >= 0) stored = (StoredLinear){name, fused[i].parts[0], first, n_out};
  }
  return stored;
}

bool layer_linear_is_first(const ModelConfig *config, int layer, int which) {
  return layer_linear_exists(config, layer, which) &&
         (is_of_expert(which) || layer_linear_stored(config, layer, which).first_part == which);
}

Division layer_linear_division(int which) {
  return linears[row_of_linear(which)].division;
}

DeviceMatrix layer_device_matrix(const ModelConfig *config, int which) {
  const bool of_delta = which == LAYER_DELTA_A || which == LAYER_DELTA_Z;
  if (of_delta ? config->delta.gate_rank > 0 : which == LAYER_Q && config->latent.q_rank > 0)
    return MATRIX_ALONE;
  return which == LAYER_DELTA_A && config->delta.rule == RULE_CHANNELS ? MATRIX_DELTA_END
                                                                       : linears[row_of_linear(which)].matrix;
}

bool layer_linear_is_rounded(int which) {
  return linears[row_of_linear(which)].rounded;
}

/* --- vectors of a layer */

StoredVector layer_vector_stored(const ModelConfig *config, int layer, int which) {
  const LayerConfig own = config_layer(config, layer);
  const int n = layer_width(config, layer, vectors[which].n),
            taps = layer_width(config, layer, vectors[which].taps);
  if (n == 0 || !layer_computes(config, &own, layer_tensor_operation(config, layer, true, which)))
    return (StoredVector){0};
  /* nGPT's norms have no weights, and its rates stand where other models have the weights of post norms. */
  const bool has_suffix = vectors[which].is_norm && config->norm != NORM_SPHERE;
  const bool as_weights = vectors[which].operation == OP_DELTA && config->delta.rule == RULE_MAMBA2;
  return (StoredVector){.name = vector_name(config, layer, which, vectors[which].name),
                        .suffix = has_suffix ? ".weight" : "",
                        .n = n,
                        .taps = vectors[which].taps == WIDTH_ONE ? 0 : taps,
                        .usually = as_weights ? DTYPE_F16 : vectors[which].usually};
}

float layer_vector_plus(const ModelConfig *config, int which) {
  return vectors[which].is_norm && norms_plus_one(config) ? 1 : 0;
}

float layer_vector_number(const ModelConfig *c, int which, float stored) {
  if (c->norm != NORM_SPHERE) return stored + layer_vector_plus(c, which);
  const double factor = (double)stored / c->sphere.init;
  if (which == LAYER_QUERY_FACTORS || which == LAYER_ATTN_GATE_FACTORS) return (float)(factor * factor);
  const bool is_rate = which == LAYER_ATTN_POST_NORM || which == LAYER_MLP_POST_NORM;
  return is_rate ? (float)fabs(factor * c->sphere.rate) : stored;
}

VectorRange layer_vector_range(int which) {
  return vectors[which].range;
}

Division layer_vector_division(int which) {
  return vectors[which].division;
}

bool layer_vector_is_made(const ModelConfig *config, int which) {
  return config->norms_plain && (which == LAYER_ATTN_NORM || which == LAYER_MLP_NORM);
}

bool model_vector_is_made(const ModelConfig *config, int which) {
  return config->norms_plain && which == MODEL_FINAL_NORM;
}

/* --- outside the layers */

typedef struct {
  const char *name;
  int first, last; /* slots MODEL_HEAD .. or MODEL_FINAL_NORM .. */
  Width out, in;
  ModelRows rows;
  bool is_norm;
  VectorRange range;
} ModelRow;

static const ModelRow model_linears[] = {
#define MODEL_LINEAR(SLOT, member, count, name, words, out, in, rows)                                        \
  {name, MODEL_##SLOT, MODEL_##SLOT##_LAST, WIDTH_##out, WIDTH_##in, ROWS_OF_##rows, false, {0, 0}},
#include "model/tensors.def"
};
static const ModelRow model_vectors[] = {
#define MODEL_VECTOR(SLOT, member, count, name, words, kind, n, rows, low, high)                             \
  {name, MODEL_##SLOT, MODEL_##SLOT##_LAST, WIDTH_##n, WIDTH_ONE, ROWS_OF_##rows, kind, {low, high}},
#include "model/tensors.def"
};

/* The row that has slot `which`; every slot has a row. */
static const ModelRow *row_of(const ModelRow *rows, int which) {
  while (which > rows->last) rows++;
  return rows;
}

static int model_width(const ModelConfig *config, const ModelRow *row, Width width, int which) {
  static const LayerConfig none;
  return width_of(config, &none, which - row->first, width);
}

StoredTable model_table_stored(const ModelConfig *c, int which) {
  static const LayerConfig none;
  const StoredTable tables[] = {
#define MODEL_TABLE(SLOT, member, name, own, words, n_rows, n_columns)                                       \
  {own ? own : name, width_of(c, &none, 0, WIDTH_##n_rows), width_of(c, &none, 0, WIDTH_##n_columns)},
#include "model/tensors.def"
  };
  return tables[which];
}

void model_linear_sizes(const ModelConfig *config, int which, int *n_in, int *n_out) {
  const ModelRow *row = row_of(model_linears, which);
  *n_in = model_width(config, row, row->in, which);
  *n_out = *n_in > 0 ? model_width(config, row, row->out, which) : 0;
}

int model_vector_size(const ModelConfig *config, int which) {
  const ModelRow *row = row_of(model_vectors, which);
  return model_width(config, row, row->out, which);
}

/* out = the full name; numbered if the row has several tensors and `base` is the row's own name. */
static void model_name(const ModelRow *row, const char *body, const char *base, int which,
                       char out[LINEAR_NAME_SIZE]) {
  const int number = row->last > row->first && base == row->name ? which - row->first : -1,
            size = snprintf(out, LINEAR_NAME_SIZE, number < 0 ? "%s%s" : "%s%s.%d", body, base, number);
  if (row->is_norm) snprintf(out + size, LINEAR_NAME_SIZE - (size_t)size, ".weight");
}

void model_linear_name(const ModelConfig *config, const char *body, int which, char out[LINEAR_NAME_SIZE]) {
  const ModelRow *row = row_of(model_linears, which);
  if (which == MODEL_HEAD || config->draft.kind == DRAFT_ASSISTANT)
    body = ""; /* these names have no prefix */
  model_name(row, body, model_linear_base(config, which, row->name), which, out);
}

void model_vector_name(const ModelConfig *config, const char *body, int which, char out[LINEAR_NAME_SIZE]) {
  const ModelRow *row = row_of(model_vectors, which);
  if (which == MODEL_LOGIT_FACTORS) body = "";
  model_name(row, body, model_vector_base(config, which, row->name), which, out);
}

ModelRows model_linear_rows(int which) {
  return row_of(model_linears, which)->rows;
}

ModelRows model_vector_rows(int which) {
  return row_of(model_vectors, which)->rows;
}

float model_vector_plus(const ModelConfig *config, int which) {
  if (which == MODEL_FINAL_NORM && config->norm == NORM_PLUS_ONE_INSIDE) return 0;
  return row_of(model_vectors, which)->is_norm && norms_plus_one(config) ? 1 : 0;
}

VectorRange model_vector_range(int which) {
  return row_of(model_vectors, which)->range;
}

double softplus(double x) {
  return x > 20 ? x : log1p(exp(x));
}

Xielu xielu_read(const ModelLayer *layer) {
  Xielu own = {.beta = 0.5f, .eps = -1e-6f};
  if (!layer->xielu_alpha_p.data) return (Xielu){0};
  floats_read(layer->xielu_alpha_p.data, layer->xielu_alpha_p.dtype, 0, 1, &own.alpha_p);
  floats_read(layer->xielu_alpha_n.data, layer->xielu_alpha_n.dtype, 0, 1, &own.alpha_n);
  if (layer->xielu_beta.data) floats_read(layer->xielu_beta.data, layer->xielu_beta.dtype, 0, 1, &own.beta);
  if (layer->xielu_eps.data) floats_read(layer->xielu_eps.data, layer->xielu_eps.dtype, 0, 1, &own.eps);
  own.alpha_p = (float)softplus(own.alpha_p);
  own.alpha_n = own.beta + (float)softplus(own.alpha_n);
  return own;
}
