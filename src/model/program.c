/* program.c - see program.h. */
#include "model/program.h"

#include <math.h>
#include <stdio.h>
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
  START = REGISTER_START,
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
  static const char *const names[N_REGISTERS] = {"ids",    "x",     "h",       "q",       "a",
                                                 "beside", "g",     "streams", "factors", "inputs",
                                                 "logits", "state", "cache",   "start"};
  const char *before = "";
  for (int i = 0; i < N_REGISTERS; i++) {
    if (!(set >> i & 1)) continue;
    TRY(buffer_printf(out, err, "%s%s", before, names[i]));
    before = ", ";
  }
  return STATUS_OK;
}

/* --- differences */

_Static_assert(N_DIFFERENCES <= 64 && N_OPERATIONS <= 32, "sets of them are bits of a number");

#define ON(KIND)  (UINT32_C(1) << OP_##KIND)
#define HAS(NAME) (UINT64_C(1) << DIFF_##NAME)

/* The differences (bits of DIFF_...) of an operation. own: the operation's layer; zeros for operations
 * outside the layers. */
static uint64_t differences_of(const ModelConfig *c, const LayerConfig *own, OpKind kind) {
  static const uint32_t operations[N_DIFFERENCES] = {
#define DIFFERENCE(NAME, operations, ...) [DIFF_##NAME] = operations,
#include "model/differences.def"
  };
  const bool there[N_DIFFERENCES] = {
#define DIFFERENCE(NAME, operations, where, words, number, condition) [DIFF_##NAME] = condition,
#include "model/differences.def"
  };
  uint64_t differences = 0;
  for (int i = 0; i < N_DIFFERENCES; i++)
    differences |= (uint64_t)(there[i] && operations[i] >> kind & 1) << i;
  return differences;
}

Status difference_print(const ModelConfig *c, Difference difference, Buffer *out, Error *err) {
  const struct {
    const char *words;
    double number;
  } all[N_DIFFERENCES] = {
#define DIFFERENCE(NAME, operations, where, words, number, condition) [DIFF_##NAME] = {words, number},
#include "model/differences.def"
  };
  TRY(buffer_append_string(out, all[difference].words, err));
  return all[difference].number != 0 ? buffer_printf(out, err, "%.6g", all[difference].number) : STATUS_OK;
}

DifferencePlace difference_place(Difference difference) {
  static const DifferencePlace all[N_DIFFERENCES] = {
#define DIFFERENCE(NAME, operations, where, ...) [DIFF_##NAME] = IN_##where,
#include "model/differences.def"
  };
  return all[difference];
}

/* --- the list */

enum { MOST_OF_A_LAYER = 18 };

/* Adds an operation with the registers of rows[kind], changed for this model. own: see differences_of(). */
static void add(Program *program, const ModelConfig *config, const LayerConfig *own, OpKind kind, int layer) {
  const bool own_h =
      config->parallel || config->altup.n > 0; /* h is read again after the norm of attention */
  Op op = {kind, layer, rows[kind].reads, rows[kind].writes, differences_of(config, own, kind)};
  switch (kind) {
  case OP_EMBED:
    if (config->streams.n > 0 || config->altup.n > 0) op.writes |= STREAMS;
    if (config->per_layer_width > 0) op.writes |= REGISTER_INPUTS;
    break;
  case OP_LOOP:
    if (own->begins == BEGINS_FIRST_LOOP) op.reads ^= START, op.writes |= START;
    break;
  case OP_DELTA:
    if (own->delta_beside) op.writes ^= A | REGISTER_BESIDE;
    break;
  case OP_QKV:
    if (own_h) op.writes |= H;
    break;
  case OP_OUT_PROJ:
    if (own->delta_beside) op.reads |= REGISTER_BESIDE;
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

bool layer_computes(const ModelConfig *c, const LayerConfig *own, OpKind kind) {
  const bool streams = c->streams.n > 0, altup = c->altup.n > 0, attends = own->kind == LAYER_ATTENTION,
             mlp = own->mlp != MLP_NONE, dense = mlp && own->n_experts == 0;
  const bool computes[N_OPERATIONS] = {
      [OP_LOOP] = own->begins != BEGINS_NO_LOOP,
      [OP_NGRAMS] = own->ngrams,
      [OP_MIX_FOR_ATTENTION] = streams,
      [OP_PREDICT] = altup,
      [OP_DELTA] = layer_has(*own, LAYER_DELTA),
      [OP_CONV] = own->kind == LAYER_CONV,
      [OP_QKV] = attends,
      [OP_LAUREL] = altup,
      [OP_ATTENTION] = attends,
      [OP_OUT_PROJ] = own->kind != LAYER_MLP_ALONE,
      [OP_INJECT] = streams,
      [OP_MIX_FOR_MLP] = streams && mlp,
      [OP_GATE_UP] = dense,
      [OP_DOWN] = dense,
      [OP_EXPERTS] = own->n_experts > 0,
      [OP_CORRECT] = altup,
      [OP_LAYER_END] = c->layer_scalar || c->per_layer_width > 0,
  };
  return computes[kind];
}

static void add_layer(Program *p, const ModelConfig *c, int layer) {
  const LayerConfig own = config_layer(c, layer);
  for (OpKind kind = OP_LOOP; kind < OP_LOGITS; kind++) {
    if (layer_computes(c, &own, kind)) add(p, c, &own, kind, layer);
    if (kind == OP_EXPERTS && layer_computes(c, &own, OP_MIX_FOR_MLP)) add(p, c, &own, OP_INJECT, layer);
  }
}

/* Sets Program.cut and kept. */
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

static const LayerConfig no_layer; /* stands for the layer of operations outside the layers */

Status program_make(const ModelConfig *config, Program *program, Error *err) {
  *program = (Program){.cut = -1, .kept = -1};
  const size_t most = (size_t)config->n_layers * MOST_OF_A_LAYER + 2;
  TRY(NEW(program->ops, most, "program", err));
  add(program, config, &no_layer, config->draft.kind ? OP_DRAFT_EMBED : OP_EMBED, -1);
  for (int layer = 0; layer < config->n_layers; layer++) add_layer(program, config, layer);
  add(program, config, &no_layer, OP_LOGITS, config->n_layers);
  find_cut(program, config->n_layers - 1);
  return STATUS_OK;
}

bool program_has_cut(const ModelConfig *config) {
  Op ops[MOST_OF_A_LAYER + 1];
  Program last = {.ops = ops}; /* the last layer decides */
  add_layer(&last, config, config->n_layers - 1);
  add(&last, config, &no_layer, OP_LOGITS, config->n_layers);
  find_cut(&last, config->n_layers - 1);
  return last.cut >= 0;
}

void program_release(Program *program) {
  free(program->ops);
  *program = (Program){0};
}

/* --- forms */

static const struct {
  const char *name;
  uint32_t operations;
  uint64_t differences;
} forms[N_FORMS] = {
#define ALL_BUT(differences)                       (~(differences))
#define FORM(NAME, words, operations, differences) [FORM_##NAME] = {words, operations, differences},
#include "model/forms.def"
};

const char *form_name(ProgramForm form) {
  return forms[form].name;
}

bool form_supports(ProgramForm form, uint32_t operations, uint64_t differences) {
  return (operations & ~forms[form].operations) == 0 && (differences & ~forms[form].differences) == 0;
}

/* Appends what form_refusal() says of an operation that the form does not take. */
static Status name_mismatch(ProgramForm form, const ModelConfig *config, const Op *op, Buffer *out,
                            Error *err) {
  const uint64_t others = op->differences & ~forms[form].differences;
  if (others != 0) TRY(difference_print(config, (Difference)__builtin_ctzll(others), out, err));
  TRY(buffer_printf(out, err, others ? " (%s" : "%s", operation_name(op->kind)));
  if (op_is_of_layer(op, config)) TRY(buffer_printf(out, err, " of layer %d", op->layer));
  return others ? buffer_append_string(out, ")", err) : STATUS_OK;
}

Status form_refusal(ProgramForm form, const ModelConfig *config, char words[FORM_WORDS], Error *err) {
  OWNED(program_release) Program program = {0};
  OWNED(buffer_release) Buffer text = {0};
  *words = 0;
  TRY(program_make(config, &program, err));
  for (const Op *op = program.ops; op < program.ops + program.n; op++) {
    if (form_supports(form, UINT32_C(1) << op->kind, op->differences)) continue;
    TRY(name_mismatch(form, config, op, &text, err));
    snprintf(words, FORM_WORDS, "%.*s", (int)text.size, text.data ? text.data : "");
    break;
  }
  return STATUS_OK;
}
