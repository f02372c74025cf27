/* layers.c - see layers.h. Called by: the loaders, ak48.c, ak48_write.c, model.c, dummy.c,
 * commands/inspect.c. */
#include "model/layers.h"

#include <stdio.h>

typedef enum { WIDTH_HIDDEN, WIDTH_HEADS, WIDTH_KV_HEADS, WIDTH_INTERMEDIATE } Width;

static const struct {
  const char *name; /* of its module in Hugging Face's Llama, Mistral, Qwen2 and Qwen3 */
  size_t offset;    /* of its Linear in a ModelLayer */
  Width in, out;
} linears[N_LAYER_LINEARS] = {
    /* clang-format off */
  [LAYER_Q]    = { "self_attn.q_proj", offsetof(ModelLayer, q),    WIDTH_HIDDEN,       WIDTH_HEADS        },
  [LAYER_K]    = { "self_attn.k_proj", offsetof(ModelLayer, k),    WIDTH_HIDDEN,       WIDTH_KV_HEADS     },
  [LAYER_V]    = { "self_attn.v_proj", offsetof(ModelLayer, v),    WIDTH_HIDDEN,       WIDTH_KV_HEADS     },
  [LAYER_O]    = { "self_attn.o_proj", offsetof(ModelLayer, o),    WIDTH_HEADS,        WIDTH_HIDDEN       },
  [LAYER_GATE] = { "mlp.gate_proj",    offsetof(ModelLayer, gate), WIDTH_HIDDEN,       WIDTH_INTERMEDIATE },
  [LAYER_DOWN] = { "mlp.down_proj",    offsetof(ModelLayer, down), WIDTH_INTERMEDIATE, WIDTH_HIDDEN       },
  [LAYER_UP]   = { "mlp.up_proj",      offsetof(ModelLayer, up),   WIDTH_HIDDEN,       WIDTH_INTERMEDIATE },
    /* clang-format on */
};

Linear *layer_linear(ModelLayer *layer, int which) {
  return (Linear *)((char *)layer + linears[which].offset);
}

const Linear *layer_linear_const(const ModelLayer *layer, int which) {
  return (const Linear *)((const char *)layer + linears[which].offset);
}

const char *layer_linear_name(int which) {
  return linears[which].name;
}

static int width_of(const ModelConfig *config, Width width) {
  switch (width) {
  case WIDTH_HEADS: return config->n_heads * config->head_dim;
  case WIDTH_KV_HEADS: return config->n_kv_heads * config->head_dim;
  case WIDTH_INTERMEDIATE: return config->intermediate;
  case WIDTH_HIDDEN: break;
  }
  return config->hidden;
}

void layer_linear_sizes(const ModelConfig *config, int which, int *n_in, int *n_out) {
  *n_in = width_of(config, linears[which].in);
  *n_out = width_of(config, linears[which].out);
}

void layer_linear_full_name(int layer, int which, char out[LINEAR_NAME_SIZE]) {
  snprintf(out, LINEAR_NAME_SIZE, "model.layers.%d.%s", layer, linears[which].name);
}
