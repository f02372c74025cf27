/* program.h - a model as a program: the operations of a step, in their order, for every device.
 *
 * operations.def has a row for each kind with its formula; program_make() lists those of a config. The
 * engine runs the list (engine/forward.h), `auk inspect --program` prints it. differences.def says by what an
 * operation may differ from Llama's, and forms.def which differences each form of computing takes. */
#pragma once

#include "base/buffer.h"
#include "model/config/config.h"

typedef enum {
#define OPERATION(KIND, ...) OP_##KIND,
#include "model/operations.def"
  N_OPERATIONS
} OpKind;

/* Operations hand these on to one another, for each row of a step; STATE and CACHE outlive it. */
typedef enum {
  REGISTER_IDS = 1 << 0,
  REGISTER_X = 1 << 1,       /* the residual stream */
  REGISTER_H = 1 << 2,       /* what the layer's block reads of it: normalised, or mixed of several streams */
  REGISTER_Q = 1 << 3,       /* queries */
  REGISTER_A = 1 << 4,       /* the output of attention, or of what stands in its place */
  REGISTER_BESIDE = 1 << 5,  /* that of Mamba-2 beside attention */
  REGISTER_G = 1 << 6,       /* the hidden units of an MLP */
  REGISTER_STREAMS = 1 << 7, /* several residual streams */
  REGISTER_FACTORS = 1 << 8, /* of a block's output in each of them */
  REGISTER_INPUTS = 1 << 9,  /* all layers' own inputs of a token */
  REGISTER_LOGITS = 1 << 10,
  REGISTER_STATE = 1 << 11, /* of recurrent layers */
  REGISTER_CACHE = 1 << 12, /* of keys and values */
  N_REGISTERS = 13
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
  /* Rows that get no logits may end with the last layer's OP_OUT_PROJ, if what comes after it reads nothing
   * else that was made before than x: the index of that operation, else -1. Without logits the step may end
   * at `kept`, the first operation after which nothing outlives the step; -1 likewise. */
  int cut, kept;
} Program;

static inline bool op_is_of_layer(const Op *op, const ModelConfig *config) {
  return op->layer >= 0 && op->layer < config->n_layers;
}

/* Fails if there is no memory. program_release() also after a failure. */
Status program_make(const ModelConfig *config, Program *program, Error *err);
void program_release(Program *program);

const char *operation_name(OpKind kind); /* "norm_gate_up" */

/* Appends what a difference is: "scores capped at 30". */
Status difference_print(const ModelConfig *config, Difference difference, Buffer *out, Error *err);
typedef enum { IN_ARITHMETIC, IN_PROGRAM, IN_NUMBERS } DifferencePlace; /* differences.def, `where` */
DifferencePlace difference_place(Difference difference);

const char *form_name(ProgramForm form); /* "several GPUs" */
/* True if the form takes such operations (bits of OP_...) with such differences. */
bool form_takes(ProgramForm form, uint32_t operations, uint64_t differences);
/* Why a form does not take a model, by the first operation that it does not: "latent attention
 * (norm_qkv_rope_append of layer 0)"; "" if it takes it, as far as arithmetic goes. */
enum { FORM_WORDS = 160 };
Status form_refusal(ProgramForm form, const ModelConfig *config, char words[FORM_WORDS], Error *err);
/* The registers of a set: "x, h". */
Status registers_print(unsigned set, Buffer *out, Error *err);
