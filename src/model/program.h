/* program.h - a model as a program: the operations of a step, in their order, for every device.
 *
 * operations.def has a row for each kind of operation, with its formula; program_make() lists the operations
 * of a config. The engine runs the list (engine/forward.h), `auk inspect --program` prints it.
 * differences.def lists how operations may differ from Llama's, and forms.def which differences each form of
 * computing takes. */
#pragma once

#include "base/buffer.h"
#include "model/config/config.h"

typedef enum {
#define OPERATION(KIND, ...) OP_##KIND,
#include "model/operations.def"
  N_OPERATIONS
} OpKind;

/* Data that operations hand on to one another for each row of a step. STATE and CACHE outlive the step. */
typedef enum {
  REGISTER_IDS = 1 << 0,
  REGISTER_X = 1 << 1,       /* the residual stream */
  REGISTER_H = 1 << 2,       /* input of attention or MLP: x normalised, or a weighted mean of streams */
  REGISTER_Q = 1 << 3,       /* queries */
  REGISTER_A = 1 << 4,       /* the output of attention, or of what replaces it */
  REGISTER_BESIDE = 1 << 5,  /* the output of Mamba-2 beside attention */
  REGISTER_G = 1 << 6,       /* the hidden units of an MLP */
  REGISTER_STREAMS = 1 << 7, /* several residual streams */
  REGISTER_FACTORS = 1 << 8, /* for each stream, the factor of what attention or MLP adds to it */
  REGISTER_INPUTS = 1 << 9,  /* per-layer inputs of a token, for all layers */
  REGISTER_LOGITS = 1 << 10,
  REGISTER_STATE = 1 << 11, /* recurrent state */
  REGISTER_CACHE = 1 << 12, /* KV cache */
  REGISTER_START = 1 << 13, /* what each loop over layers adds to x */
  N_REGISTERS = 14
} Register;

typedef enum {
#define DIFFERENCE(NAME, ...) DIFF_##NAME,
#include "model/differences.def"
  N_DIFFERENCES
} Difference;

typedef enum {
#define FORM(NAME, ...) FORM_##NAME,
#include "model/forms.def"
  N_FORMS
} ProgramForm;

typedef struct {
  OpKind kind;
  int layer;              /* -1: before the layers; n_layers: after them */
  unsigned reads, writes; /* sets of REGISTER_... */
  uint64_t differences;   /* bits of DIFF_... */
} Op;

typedef struct {
  Op *ops; /* [n], the last one OP_LOGITS */
  int n;
  /* cut: the index of the last layer's OP_OUT_PROJ; after it rows without logits need not be computed. -1:
   * there is no such operation, it reads more than x and a, or a later one writes STATE or CACHE or reads
   * earlier data other than x. kept: a step without logits may end before this index, because no operation
   * from it on writes STATE or CACHE; -1 if cut is -1. */
  int cut, kept;
} Program;

static inline bool op_is_of_layer(const Op *op, const ModelConfig *config) {
  return op->layer >= 0 && op->layer < config->n_layers;
}

/* True if an operation of this kind ends with x = x - mean(x): it does where norms are centred and the next
 * one reads x. */
static inline bool op_centres(const ModelConfig *config, OpKind kind) {
  return norms_are_centred(config) && !(kind == OP_OUT_PROJ && config->parallel);
}

/* True if a layer has an operation of this kind; with streams it has OP_INJECT after attention and after the
 * MLP. */
bool layer_computes(const ModelConfig *config, const LayerConfig *own, OpKind kind);

/* Lists a config's operations. Fails if there is no memory. Call program_release() also after a failure. */
Status program_make(const ModelConfig *config, Program *program, Error *err);
void program_release(Program *program);
/* True if the program of a config has a cut. */
bool program_has_cut(const ModelConfig *config);

const char *operation_name(OpKind kind); /* "norm_gate_up" */

/* Appends a difference in words: "scores capped at 30". */
Status difference_print(const ModelConfig *config, Difference difference, Buffer *out, Error *err);
typedef enum { IN_ARITHMETIC, IN_PROGRAM, IN_NUMBERS } DifferencePlace; /* differences.def, `where` */
DifferencePlace difference_place(Difference difference);

const char *form_name(ProgramForm form); /* "several GPUs" */
/* True if the form takes a set of operations (bits of OP_...) with a set of differences (of DIFF_...). */
bool form_supports(ProgramForm form, uint32_t operations, uint64_t differences);
enum { FORM_WORDS = 160 };
/* words = the first operation of a model that the form does not take: "latent attention (norm_qkv_rope_append
 * of layer 0)"; "" if the form takes the model's arithmetic. */
Status form_refusal(ProgramForm form, const ModelConfig *config, char words[FORM_WORDS], Error *err);
/* Appends the names of a set of registers: "x, h". */
Status registers_print(unsigned set, Buffer *out, Error *err);
