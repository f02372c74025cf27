/* test_differences.c - `auk inspect --program` prints a difference (differences.def) at the operations that
 * it changes, and at no other: each operation of each miniature is computed with the difference and, from
 * the same state, without it. So a condition that a backend has and differences.def lacks is found here.
 *
 * Only differences that a config alone can undo and that a CPU computes where they are printed: others also
 * change which tensors a model has, and `auk inspect --program` prints these at their operations; and a CPU
 * makes ropes in `embed` and scales queries in norm_qkv_rope_append. */
#include <dirent.h>

#include "cpu/cpu.h"
#include "engine/forward.h"
#include "test/tests.h"

enum { MOST_IDS = 40 };

/* Each statement undoes a difference in the config c and in each layer, `own`. elsewhere: the difference also
 * changes operations at which it is not printed. */
#define ALL_UNDONE(UNDO)                                                                                     \
  UNDO(NORMS_CENTRED, false, c->norm = norms_plus_one(c) ? NORM_PLUS_ONE : NORM_RMS)                         \
  UNDO(QK_NORM_AFTER_ROPE, false, c->qk_norm_after_rope = false)                                             \
  UNDO(EMBEDDING_NORM, false, c->embedding_norm = false)                                                     \
  UNDO(LEARNED_POSITIONS, false, c->learned_positions = false)                                               \
  UNDO(QK_NORM_PLAIN, false, c->qk_norm = QK_NORM_NONE)                                                      \
  UNDO(QK_NORM_WHOLE, false, c->qk_norm = QK_NORM_HEADS)                                                     \
  UNDO(QK_NORM_CENTRED, false, c->qk_norm = QK_NORM_HEADS)                                                   \
  UNDO(POST_NORM_EPS, true, c->post_norm_eps = 0)                                                            \
  UNDO(LAST_NORM, false, c->norm = NORM_PLUS_ONE)                                                            \
  UNDO(V_NORM, false, c->v_norm = false)                                                                     \
  UNDO(QKV_CLIP, false, c->qkv_clip = 0)                                                                     \
  UNDO(NEIGHBOURS, false, c->rope.neighbours = c->local_rope.neighbours = false)                             \
  UNDO(VALUE_SCALE, false, c->value_scale = 1)                                                               \
  UNDO(ACTIVATION, false, c->activation = other_activation(c->activation))                                   \
  UNDO(EMBEDDING_SCALE, false, c->embedding_scale = 1)                                                       \
  UNDO(RESIDUAL_SCALE, false, c->residual_scale = 1)                                                         \
  UNDO(GATE_SCALE, false, c->gate_scale = 1)                                                                 \
  UNDO(MLP_SCALE, false, c->mlp_scale = 1)                                                                   \
  UNDO(QUERY_SCALE, false, c->query_scale_beta = 0)                                                          \
  UNDO(ATTENTION_CAP, false, c->attention_cap = 0)                                                           \
  UNDO(LOGIT_DIVISOR, false, c->logit_divisor = 1)                                                           \
  UNDO(LOGIT_CAP, false, c->logit_cap = 0)                                                                   \
  UNDO(GATE_NUMBERS, false, c->attn_gate = ATTN_GATE_NONE)                                                   \
  UNDO(GATE_HEADS, false, c->attn_gate = ATTN_GATE_NONE)                                                     \
  UNDO(GATE_SOFTPLUS, false, c->attn_gate_softplus = false)                                                  \
  UNDO(OTHER_ROPE, false, own->rope = ROPE_GLOBAL)                                                           \
  UNDO(K_AS_V, false, own->k_as_v = false)                                                                   \
  UNDO(WINDOW, false, own->window = own->chunk = 0)                                                          \
  UNDO(LIMITED, false, own->mlp_limit = own->expert_limit = 0)                                               \
  UNDO(SPARSE_GATES, false, own->sparsity = 0)

static Activation other_activation(Activation own) {
  if (!is_ungated(own)) return ACTIVATION_SILU;
  return own == ACTIVATION_RELU ? ACTIVATION_GELU_EXACT : ACTIVATION_RELU;
}

#define UNDO(NAME, elsewhere, statement)                                                                     \
  static void undo_##NAME(ModelConfig *c, LayerConfig *own) {                                                \
    statement;                                                                                               \
  }
ALL_UNDONE(UNDO)
#undef UNDO

static const struct {
  Difference difference;
  const char *name;
  bool elsewhere;
  void (*undo)(ModelConfig *c, LayerConfig *own);
} rows[] = {
#define UNDO(NAME, elsewhere, statement) {DIFF_##NAME, #NAME, elsewhere, undo_##NAME},
    ALL_UNDONE(UNDO)};

/* A model on the CPU in which rows[row] is undone. */
typedef struct {
  Model model;
  LayerConfig *layers;
  BackendModel *loaded;
} Undone;

static void undo(const Model *model, size_t row, Undone *to) {
  Error err = {{0}};
  *to = (Undone){.model = *model};
  ModelConfig *c = &to->model.config;
  to->layers = calloc((size_t)c->n_layers, sizeof *to->layers);
  assert_non_null(to->layers);
  for (int i = 0; i < c->n_layers; i++) {
    if (c->layers) to->layers[i] = c->layers[i];
    *c = model->config;
    rows[row].undo(c, &to->layers[i]);
  }
  c->layers = to->layers;
  if (cpu_backend.load(&to->model, &(BackendOptions){.n_threads = 1}, &to->loaded, &err))
    fail_msg("%s", err.text);
}

/* Computes an operation. Clears the groups of experts: they hold addresses of the model's own biases, and no
 * later operation reads them. */
static void compute(BackendState *state, TokenRange range, const Op *op) {
  Error err = {{0}};
  const size_t n_groups = 1 + (size_t)state->loaded->model->config.experts.n_experts;
  assert_int_equal(cpu_backend.run[op->kind](state, range, op->layer, &err), STATUS_OK);
  if (state->expert_groups) memset(state->expert_groups, 0, n_groups * sizeof *state->expert_groups);
}

/* True if operation `op` of the two models leaves different states. */
static bool differ(BackendState *state, const BackendModel *other, TokenRange range, const Op *op,
                   size_t size, char *before, char *after) {
  const BackendModel *own = state->loaded;
  memcpy(before, state->memory, size);
  state->loaded = other;
  compute(state, range, op);
  memcpy(after, state->memory, size);
  memcpy(state->memory, before, size);
  state->loaded = own;
  compute(state, range, op);
  return memcmp(state->memory, after, size) != 0;
}

/* Counts the operations at which rows[row] is not printed as it should be, and names them. */
static int count_faults(const char *name, const Model *model, BackendModel *loaded, const Program *program,
                        size_t row) {
  int32_t ids[MOST_IDS];
  Error err = {{0}};
  int n_faults = 0;
  BackendState *state;
  const ModelConfig *c = &model->config;
  const StateOptions options = {.n_ctx = MOST_IDS, .max_chunk = MOST_IDS, .max_logit_rows = 1, .kv = KV_F32};
  const TokenRange range = {.ids = ids, .n_tokens = MOST_IDS, .n_logit_rows = 1, .first_logit = MOST_IDS - 1};
  const size_t size = cpu_backend.state_bytes(c, &options) - sizeof *state;
  char *before = malloc(size), *after = malloc(size);
  Undone undone;
  assert_true(before && after);
  for (int i = 0; i < MOST_IDS; i++)
    ids[i] = (int32_t)((unsigned)(i + 1) * 2654435761u % (unsigned)c->vocab_size);
  if (cpu_backend.open(loaded, &options, &state, &err)) fail_msg("%s: %s", name, err.text);
  undo(model, row, &undone);
  for (const Op *op = program->ops; op < program->ops + program->n; op++) {
    const bool printed = op->differences >> rows[row].difference & 1,
               changes = differ(state, undone.loaded, range, op, size, before, after);
    if (printed == changes || (changes && rows[row].elsewhere)) continue;
    print_message("%s: %s of layer %d %s\n", name, operation_name(op->kind), op->layer,
                  printed ? "is printed with a difference that changes nothing there:"
                          : "is printed without a difference that changes it:");
    print_message("  %s\n", rows[row].name);
    n_faults++;
  }
  cpu_backend.unload(undone.loaded);
  free(undone.layers);
  cpu_backend.close(state);
  free(before);
  free(after);
  return n_faults;
}

/* Adds to counts[i] the models that have the difference of rows[i]. */
static int check_model(const char *name, int *counts) {
  char path[300];
  Error err = {{0}};
  Model *model;
  BackendModel *loaded;
  Program program;
  uint64_t all = 0;
  int n_faults = 0;
  snprintf(path, sizeof path, "test/data/miniatures/%s", name);
  if (model_open(path, NULL, &model, &err) || model_prepare_scales(model, 1, &err) ||
      model_prepare(model, 1, &err) || program_make(&model->config, &program, &err) ||
      cpu_backend.load(model, &(BackendOptions){.n_threads = 1}, &loaded, &err))
    fail_msg("%s: %s", name, err.text);
  for (int i = 0; i < program.n; i++) all |= program.ops[i].differences;
  for (size_t row = 0; row < sizeof rows / sizeof *rows; row++) {
    if (!(all >> rows[row].difference & 1)) continue;
    n_faults += count_faults(name, model, loaded, &program, row);
    counts[row]++;
  }
  program_release(&program);
  cpu_backend.unload(loaded);
  model_close(model);
  return n_faults;
}

TEST(differences_are_printed_where_they_change_something) {
  int counts[sizeof rows / sizeof *rows] = {0}, n_faults = 0;
  DIR *folder = opendir("test/data/miniatures");
  assert_non_null(folder);
  for (const struct dirent *entry; (entry = readdir(folder));)
    if (entry->d_name[0] != '.') n_faults += check_model(entry->d_name, counts);
  closedir(folder);
  for (size_t row = 0; row < sizeof rows / sizeof *rows; row++)
    if (counts[row] == 0) fail_msg("no miniature has the difference %s", rows[row].name);
  assert_int_equal(n_faults, 0);
}
