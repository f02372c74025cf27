/* loops.c - the layers of a model that runs some of them several times (Dory).
 *
 * Called by: config.c, through the row of architectures.c. Source: transformers 5.24,
 * dory/configuration_dory.py. config.json lists attentions and MLPs by turns; each is a layer here, as its
 * tensors are numbered. Layers of the second and later loops have caches, but no tensors
 * (LayerConfig.back). */
#include "model/config/architectures.h"

#include <math.h>

enum { FULL, SLIDING, MLP };

/* The blocks that are stored: those before the loops, those of a loop, those after them. */
typedef struct {
  int n, n_before, n_looped, n_loops;
} Loops;

static Status read_loops(const ConfigReader *r, Loops *loops) {
  int n_after;
  TRY(reader_int(r, "num_hidden_layers", 2, MAX_LAYERS, 36, &loops->n));
  TRY(reader_int(r, "n_input_layers", 0, loops->n, 8, &loops->n_before));
  TRY(reader_int(r, "n_output_layers", 0, loops->n, 8, &n_after));
  loops->n_looped = loops->n - loops->n_before - n_after;
  TRY(reader_int(r, "n_recurrent_layers", 1, loops->n, loops->n_looped, &loops->n_looped));
  TRY(reader_int(r, "n_recurrent_loops", 1, MAX_LAYERS, 2, &loops->n_loops));
  if (loops->n_looped < 1 || loops->n_before + loops->n_looped + n_after != loops->n)
    return reader_refuse(r,
                         "num_hidden_layers is %d, expected the sum of n_input_layers %d, "
                         "n_recurrent_layers %d and n_output_layers %d",
                         loops->n, loops->n_before, loops->n_looped, n_after);
  if (loops->n_before % 2 != 0 || loops->n_looped % 2 != 0 || n_after % 2 != 0)
    return reader_refuse(r,
                         "n_input_layers %d, n_recurrent_layers %d or n_output_layers %d is odd, expected "
                         "attention and MLP in pairs",
                         loops->n_before, loops->n_looped, n_after);
  return STATUS_OK;
}

Status config_count_loops(const ConfigReader *r, int *n_layers) {
  Loops loops;
  TRY(read_loops(r, &loops));
  const int64_t n = loops.n + (int64_t)loops.n_looped * (loops.n_loops - 1);
  if (n > MAX_LAYERS)
    return reader_refuse(r, "n_recurrent_loops %d makes %lld layers, expected at most %d", loops.n_loops,
                         (long long)n, MAX_LAYERS);
  *n_layers = (int)n;
  return STATUS_OK;
}

/* Sets what each layer is, from the kinds which[loops->n] of the stored blocks. */
static void set_layers(const Loops *loops, const int8_t *which, int window, ModelConfig *config) {
  for (int i = 0, stored = 0; i < config->n_layers; i++, stored++) {
    const int in_loops = i - loops->n_before, loop = in_loops / loops->n_looped,
              end = loops->n_before + loops->n_looped;
    if (stored == end && loop < loops->n_loops) stored = loops->n_before;
    LayerConfig *own = &config->layers[i];
    own->kind = which[stored] == MLP ? LAYER_MLP_ALONE : LAYER_ATTENTION;
    own->mlp = which[stored] == MLP ? MLP_DENSE : MLP_NONE;
    own->window = which[stored] == SLIDING ? window : 0;
    if (in_loops < 0 || loop >= loops->n_loops) continue;
    own->back = i - stored;
    if (stored == loops->n_before) own->begins = own->back > 0 ? BEGINS_LOOP : BEGINS_FIRST_LOOP;
  }
}

Status config_parse_loops(const ConfigReader *r, const Architecture *arch, ModelConfig *config) {
  static const char *const names[] = {"full_attention", "sliding_attention", "mlp", NULL};
  int8_t which[MAX_LAYERS];
  Loops loops;
  int window;
  TRY(read_loops(r, &loops));
  TRY(reader_names_of_layers(r, "layer_types", names, loops.n, which));
  for (int i = 0; i < loops.n; i++)
    if ((which[i] == MLP) != (i % 2 == 1) || which[i] < 0)
      return reader_refuse(r, "layer_types[%d] is %s, expected attention and mlp by turns", i,
                           which[i] < 0 ? "missing" : names[which[i]]);
  TRY(reader_int(r, "sliding_window", 1, MAX_POSITION, 1024, &window));
  TRY(reader_double(r, "initializer_range", 1e-6, 1, 0.0177, &config->sphere.init));
  TRY(reader_double(r, "ngpt_alpha_init", 0, 1, 0.05, &config->sphere.rate));
  config->norm_eps = arch->norm_eps; /* of lengths; whatever rms_norm_eps says */
  config->post_norm_eps = config->norm_eps / config->hidden;
  config->qk_norm_eps = config->norm_eps * config->hidden / config->head_dim;
  config->logit_divisor = config->sphere.init * sqrt(config->hidden);
  set_layers(&loops, which, window, config);
  return STATUS_OK;
}
