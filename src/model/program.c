/* program.c - see program.h. Called by: engine/session.c, batch.c, drafters/published.c, cuda/backend.c,
 * commands/models/inspect_program.c. */
#include "model/program.h"

#include <stdlib.h>

enum {
  IDS = REGISTER_IDS,
  X = REGISTER_X,
  H = REGISTER_H,
  Q = REGISTER_Q,
  A = REGISTER_A,
  G = REGISTER_G,
  STREAMS = REGISTER_STREAMS,
  FACTORS = REGISTER_FACTORS,
  LOGITS = REGISTER_LOGITS,
  STATE = REGISTER_STATE,
  CACHE = REGISTER_CACHE,
};

static const struct {
  const char *name;
  unsigned reads, writes;
} rows[N_OPERATIONS] = {
#define OPERATION(KIND, function, reads, writes) [OP_##KIND] = {#function, reads, writes},
#include "model/operations.def"
};

const char *operation_name(OpKind kind) {
  return rows[kind].name;
}

Status registers_print(unsigned set, Buffer *out, Error *err) {
  static const char *const names[N_REGISTERS] = {
      "ids", "x", "h", "q", "a", "beside", "g", "streams", "factors", "inputs", "logits", "state", "cache"};
  const char *before = "";
  for (int i = 0; i < N_REGISTERS; i++) {
    if (!(set >> i & 1)) continue;
    TRY(buffer_printf(out, err, "%s%s", before, names[i]));
    before = ", ";
  }
  return STATUS_OK;
}

/* --- the list */

enum { MOST_OF_A_LAYER = 16 };

/* Adds an operation if the model has it, with the registers that differ from those of its row. */
static void add(Program *program, const ModelConfig *config, OpKind kind, int layer, bool has) {
  const bool own_h =
      config->parallel || config->altup.n > 0; /* h is read again after the norm of attention */
  Op op = {kind, layer, rows[kind].reads, rows[kind].writes};
  if (!has) return;
  switch (kind) {
  case OP_EMBED:
    if (config->streams.n > 0 || config->altup.n > 0) op.writes |= STREAMS;
    if (config->per_layer_width > 0) op.writes |= REGISTER_INPUTS;
    break;
  case OP_DELTA:
    if (config_layer(config, layer).delta_beside) op.writes ^= A | REGISTER_BESIDE;
    break;
  case OP_QKV:
    if (own_h) op.writes |= H;
    break;
  case OP_OUT_PROJ:
    if (config_layer(config, layer).delta_beside) op.reads |= REGISTER_BESIDE;
    break;
  case OP_GATE_UP:
  case OP_EXPERTS:
    if (config->parallel) op.reads |= H;
    break;
  case OP_LAYER_END:
    if (config->per_layer_width > 0) op.reads |= REGISTER_INPUTS;
    if (config->altup.n > 0) op.reads |= STREAMS, op.writes |= STREAMS;
    break;
  case OP_LOGITS:
    if (config->streams.n > 0 || config->altup.n > 0) op.reads |= STREAMS;
    break;
  default: break;
  }
  const bool is_block = kind == OP_DELTA || kind == OP_CONV || kind == OP_QKV || kind == OP_GATE_UP;
  if (config->streams.n > 0 && (is_block || kind == OP_EXPERTS)) op.reads |= H;
  if (config->streams.n > 0 && is_block) op.reads &= ~(unsigned)X;
  program->ops[program->n++] = op;
}

static void add_layer(Program *p, const ModelConfig *c, int layer) {
  const LayerConfig own = config_layer(c, layer);
  const bool streams = c->streams.n > 0, altup = c->altup.n > 0, attends = own.kind == LAYER_ATTENTION;
  add(p, c, OP_NGRAMS, layer, own.ngrams);
  add(p, c, OP_MIX_FOR_ATTENTION, layer, streams);
  add(p, c, OP_PREDICT, layer, altup);
  add(p, c, OP_DELTA, layer, layer_has(own, LAYER_DELTA));
  add(p, c, OP_CONV, layer, own.kind == LAYER_CONV);
  add(p, c, OP_QKV, layer, attends);
  add(p, c, OP_LAUREL, layer, altup);
  add(p, c, OP_ATTENTION, layer, attends);
  add(p, c, OP_OUT_PROJ, layer, own.kind != LAYER_MLP_ALONE);
  add(p, c, OP_INJECT, layer, streams);
  add(p, c, OP_MIX_FOR_MLP, layer, streams && !own.no_mlp);
  add(p, c, OP_EXPERTS, layer, !own.no_mlp && own.n_experts > 0);
  add(p, c, OP_GATE_UP, layer, !own.no_mlp && own.n_experts == 0);
  add(p, c, OP_DOWN, layer, !own.no_mlp && own.n_experts == 0);
  add(p, c, OP_INJECT, layer, streams && !own.no_mlp);
  add(p, c, OP_CORRECT, layer, altup);
  add(p, c, OP_LAYER_END, layer, c->layer_scalar || c->per_layer_width > 0);
}

/* Program.cut and kept. */
static void find_cut(Program *p, int last) {
  p->cut = p->kept = -1;
  for (int i = 0; i < p->n; i++) {
    if (p->ops[i].layer == last && p->ops[i].kind == OP_OUT_PROJ) p->cut = i;
    if (p->ops[i].writes & (STATE | CACHE)) p->kept = i + 1;
  }
  if (p->cut < 0 || p->ops[p->cut].reads != (X | A) || p->kept > p->cut) p->cut = -1;
  unsigned made = X;
  for (int i = p->cut + 1; p->cut >= 0 && i < p->n; i++) {
    if (p->ops[i].reads & ~made) p->cut = -1;
    made |= p->ops[i].writes;
  }
  if (p->cut < 0) p->kept = -1;
}

Status program_make(const ModelConfig *config, Program *program, Error *err) {
  *program = (Program){.cut = -1, .kept = -1};
  const size_t most = (size_t)config->n_layers * MOST_OF_A_LAYER + 2;
  if (!(program->ops = mem_alloc(most, sizeof *program->ops, "program", err))) return STATUS_FAILED;
  add(program, config, config->draft.kind ? OP_DRAFT_EMBED : OP_EMBED, -1, true);
  for (int layer = 0; layer < config->n_layers; layer++) add_layer(program, config, layer);
  add(program, config, OP_LOGITS, config->n_layers, true);
  find_cut(program, config->n_layers - 1);
  return STATUS_OK;
}

void program_release(Program *program) {
  free(program->ops);
  *program = (Program){0};
}
