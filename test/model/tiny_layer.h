/* tiny_layer.h - a tiny checkpoint whose first q_proj a test stores in a layout of its own. Included by
 * test/model/test_layouts.c, test_float_layouts.c and test_tensor_transcripts.c; failures are assertions. */
#pragma once

#include "tiny_checkpoint.h"

#define Q "model.layers.0.self_attn.q_proj" /* IN inputs, OUT outputs */

enum { IN = 32, OUT = 32 };

#define QUANT(members) ", \"quantization_config\": {" members "}"

/* A dense llama whose first q_proj is to be replaced, with this quantization_config. */
static inline void make_dense(Tiny *tiny, const char *quant) {
  tiny_llama(tiny);
  for (int layer = 0; layer < tiny->n_layers; layer++) {
    for (int which = 0; which < N_PACKED_LINEARS; which++) {
      char name[96];
      snprintf(name, sizeof name, "model.layers.%d.%s", layer, layer_linear_name(which));
      tiny_make_dense(tiny, name, "F16");
    }
  }
  tiny_remove(tiny, Q ".weight");
  tiny->group = 0;
  tiny->extra_config = quant;
}

/* A tensor of q_proj of `rank` sides. */
static inline TinyTensor *add_part(Tiny *tiny, const char *suffix, const char *dtype, int rank, int64_t a,
                                   int64_t b) {
  char name[96];
  snprintf(name, sizeof name, Q "%s", suffix);
  return tiny_add(tiny, name, dtype, rank, a, b);
}

typedef struct {
  char *directory;
  Model *model;
  const Linear *q;
} Opened;

static inline void close_opened(Opened *opened, Tiny *tiny) {
  model_close(opened->model);
  remove_directory(opened->directory);
  tiny_free(tiny);
}
