/* model.h - an open checkpoint: its config and its weights as typed views into mapped files.
 *
 * A Hugging Face directory and the packed ak48 file both become a Model, which is read-only and shared. Every
 * shape is checked against the config, every offset against its file. Pointers into mapped files have NO
 * alignment: read them with memcpy or unaligned vector loads. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/file.h"
#include "base/status.h"
#include "model/config/config.h"
#include "model/slots.h"

size_t dtype_bytes(Dtype dtype);     /* 0 for DTYPE_OTHER */
const char *dtype_name(Dtype dtype); /* as safetensors spells it: "F16" */
/* out[0..n) = elements [first, first + n) of F32, F16 or BF16 data (at any alignment) as fp32. */
void floats_read(const void *data, Dtype dtype, size_t first, size_t n, float *out);

/* n numbers, such as a norm's weights or a bias; data is NULL if the checkpoint has none. */
typedef struct {
  const void *data; /* [n] */
  Dtype dtype;      /* F32, F16 or BF16 */
  int n;
} Vector;

/* n_rows x n_columns numbers, rows contiguous: an embedding, or another table of rows. */
typedef struct {
  const void *data; /* [n_rows][n_columns] */
  Dtype dtype;      /* F32, F16 or BF16; in an NgramShard also F8_E4M3 or I8 */
  int n_rows, n_columns;
} Matrix;

typedef enum { LINEAR_DENSE, LINEAR_AWQ, LINEAR_GROUPED, LINEAR_INT8, LINEAR_FP8, LINEAR_FP4 } LinearKind;

/* A linear layer y = W x + bias, n_in inputs, n_out outputs, in one of six forms:
 *
 * LINEAR_AWQ: 4-bit weights in groups along the input,
 *     w[i][o] = (q[i][o] - z[i / group][o]) * scales[i / group][o]
 *   where output 8c + [0,2,4,6,1,3,5,7][k] sits in bits 4k .. 4k+3 of word c of an input's row (models.md,
 *   "AutoAWQ gemm").
 * LINEAR_GROUPED: LINEAR_AWQ's formula. Weights have 8 bits, a byte each; or they have 4 bits, packed as
 * above, and zero points exceed 15 or scales do not fit F16.
 * LINEAR_INT8: w[i][o] = weight[o][i] * scales[o], and x is rounded to int8 before the product:
 *     s = largest |x[i]| / 127.5,  p[i] = x[i] / s to the nearest integer, ties to even, in -128 .. 127,
 *     y[o] = s * scales[o] * sum over i of weight[o][i] * p[i]
 * LINEAR_FP8: w[i][o] = e4m3(weight[o][i]) * scales[(block_first + o) / block][i / group]
 * LINEAR_FP4: w[i][o] = e2m1(code) * scale_values[scales[o][i / group]]; the code is the lower four bits of
 *   weight[o][i / 2] for an even i, the upper four for an odd one, and stands for
 *     0: 0   1: 0.5   2: 1   3: 1.5   4: 2   5: 3   6: 4   7: 6,   negated if bit 3 is set.
 * LINEAR_DENSE: weight[o][i] as stored.
 *
 * model_open() sets the form. A layer that is not stored in this form has no data before model_prepare().
 * That function may still change 4-bit layers from LINEAR_AWQ to LINEAR_GROUPED or back, as their numbers
 * require. */
typedef struct {
  LinearKind kind;
  int n_in, n_out; /* both > 0; for AWQ and GROUPED n_in % group == 0 and n_out % 8 == 0 */
  int bits;        /* AWQ, FP4: 4, GROUPED: 4 or 8, INT8, FP8: 8 */
  /* Inputs that share a scale. AWQ, GROUPED: n_in means one scale per output. FP4: 16 or 32. FP8: n_in, or a
   * multiple of 16; the last group may be shorter. */
  int group;
  /* AWQ, GROUPED: outputs in each stored row that belong to other layers of a fused matrix. Rows of qweight,
   * qzeros and scales are n_out + skip outputs apart; skip % 8 == 0. */
  int skip;
  int block;           /* FP8: outputs that share a scale; the last block may be shorter */
  int block_first;     /* FP8: outputs of the first block that belong to another layer; < block */
  const void *qweight; /* 4 bits: u32 [n_in][n_out / 8]; GROUPED of 8: u8 [n_in][n_out] */
  /* AWQ, GROUPED: [n_in] row i of qweight multiplies input order[i] of x, so that groups are contiguous
   * (GPTQ's act-order); NULL: input i. A dense matrix that key_heads.c made of such a layer keeps the order.
   * Matrices that read the same x and have equal orders share one array (hf_order.c). */
  const int32_t *order;
  const void *qzeros; /* AWQ: u32 [n_in / group][n_out / 8]; GROUPED: u8 [n_in / group][n_out] */
  /* [n_in / group][n_out], AWQ: f16, GROUPED: f32; INT8: f32 [n_out]; FP4: u8 [n_out][n_in / group];
   * FP8: f32 [blocks of outputs][groups of inputs]. */
  const void *scales;
  const float *scale_values; /* FP4: [256] the scale that each code in `scales` stands for */
  const void *weight; /* [n_out][n_in], dense: of `dtype`, INT8: i8, FP8: u8; FP4: u8 [n_out][n_in / 2] */
  Dtype dtype;        /* dense: F32, F16 or BF16 */
  int row_skip; /* dense, FP4: rows of other linear layers between two of `weight` and of FP4's `scales` */
  /* Dense, FP8, FP4 in a model's part (slice.h). input_skip: the other parts' inputs between two rows of
   * `weight`; scale_skip: the other parts' scales between two rows of `scales`. */
  int input_skip, scale_skip;
  Vector bias;      /* [n_out], or data NULL */
  const char *name; /* "model.layers.3.self_attn.q_proj", for messages; belongs to the model */
} Linear;

/* The arrays of a Linear: its weights (`qweight` or `weight`), zero points and scales. */
enum { LINEAR_WEIGHTS, LINEAR_ZEROS, LINEAR_SCALES, N_LINEAR_ARRAYS };

/* An array as rows of numbers. AWQ, GROUPED: a row belongs to an input or a group of inputs and has a number
 * for each output. Other forms: a row belongs to an output (FP8's scales: to a block of outputs) and has a
 * number for each input or group of inputs. */
typedef struct {
  const void **data; /* the Linear's pointer to the array, to be changed only by the Linear's owner */
  size_t n_rows;     /* 0: the form has no such array */
  size_t row, step;  /* bytes of the Linear's numbers in a row, and from a row to the next */
  int bits;          /* of a number */
} LinearArray;

/* Array `which` (LINEAR_WEIGHTS ..) of a Linear, whose pointers may be NULL. */
LinearArray linear_array(const Linear *linear, int which);

size_t linear_array_bytes(const Linear *linear, int which);
/* Bytes of all arrays of a Linear, without its bias. */
size_t linear_bytes(const Linear *linear);

/* The nibble of a word (0: the lowest bits) that holds output o of eight in AutoAWQ's layout. */
static inline unsigned awq_nibble(size_t o) {
  return (unsigned)(o % 8 / 2 + 4 * (o % 2));
}

static inline bool linear_is_by_inputs(const Linear *linear) {
  return linear->kind == LINEAR_AWQ || linear->kind == LINEAR_GROUPED;
}

/* out[0..n) = the weights of output o by inputs first .. first + n - 1 (with `order`: by inputs order[first]
 * and so on), as fp32; n > 0. */
void linear_read(const Linear *linear, int o, int first, int n, float *out);

/* The parameters of a layer's ACTIVATION_XIELU (Huang and Schlag, arXiv:2411.13010):
 *   g = alpha_p u^2 + beta u where u > 0, else alpha_n (e^min(u, eps) - 1 - u) + beta u.
 * alpha_p is softplus() of its stored number, alpha_n is beta plus softplus() of its stored number. */
typedef struct {
  float alpha_p, alpha_n, beta, eps;
} Xielu;
/* ln(1 + e^x), as torch's softplus: x itself above 20. */
double softplus(double x);

/* One of a layer's experts: an MLP of the width config.experts.width. A checkpoint stores experts one by one,
 * or all experts of a layer together in tensors with one more dimension. Then these Linears are views into
 * such tensors. */
typedef union {
  Linear linear[N_EXPERT_LINEARS]; /* n_out 0: an expert has no such Linear */
  struct {
#define EXPERT_LINEAR(SLOT, member, ...) Linear member;
#include "model/tensors.def"
  };
} Expert;

/* A part of a table of n-grams (NgramConfig). Numbers in F8_E4M3 or I8 are multiplied by a scale. */
typedef struct {
  Matrix rows;
  Vector scales; /* [1] for all rows, or [rows.n_rows]; data NULL: no scales */
} NgramShard;

/* A layer's tensors; tensors.def says what each is, and in which layers. If the layer lacks a tensor, that
 * Linear has n_out 0, or that Vector has data NULL. */
typedef struct {
  union {
    Linear linear[N_LAYER_LINEARS];
    struct {
#define LINEAR(SLOT, member, ...) Linear member;
#include "model/tensors.def"
    };
  };
  union {
    Vector vector[N_LAYER_VECTORS];
    struct {
#define VECTOR(SLOT, member, ...) Vector member;
#include "model/tensors.def"
    };
  };
  Expert *experts; /* [n_experts] of a layer with experts (config_layer().n_experts) */
  /* [n_heads] parts of kv_b. key_heads: the transposed key part, nope_dim -> kv_rank, dense; value_heads:
   * kv_rank -> value_dim. */
  Linear *key_heads, *value_heads;
  /* [n_shards] consecutive parts of the table of n-grams. Each has as many rows as the others, and a row has
   * ngram_columns() numbers. */
  NgramShard *shards;
  int n_shards;
  /* In a model's part (slice.h): the second and third run of outputs of delta_qkv or conv_in; else n_out
   * 0. */
  Linear more[2];
} ModelLayer;

/* The layer's parameters of xIELU; zeros if it has none. */
Xielu xielu_read(const ModelLayer *layer);

/* A drafter's properties besides its tensors (config.h, DraftKind). */
typedef struct {
  bool target_head;    /* `head` is a copy of the target's Linear; published_load() copies it once more */
  bool round_head;     /* a device rounds its copy of the target's head to 4 bits for the drafter */
  int32_t *target_ids; /* [vocab_size] the target's id of each of the drafter's tokens; NULL: equal ids */
} DraftParts;

typedef struct ModelFiles ModelFiles; /* the mapped files and other memory, private to src/model */

typedef enum { LAYOUT_HF_DIRECTORY, LAYOUT_AK48 } ModelLayout;

/* True: the checkpoint stores rows grouped by KV head (attention) or key head (delta); model_prepare() has
 * put them in the usual order (key_heads.c). */
typedef struct {
  bool attention, delta;
} StoredByHeads;

typedef struct {
  ModelConfig config;
  ModelLayout layout;
  bool dummy;         /* made by model_open_dummy() */
  ModelLayer *layers; /* [n_layers] */
  /* The tensors outside the layers (model/tensors.def); n_out 0 or data NULL: the model lacks this tensor. A
   * drafter's head may be its target's; head.bias is there with config.head_bias. */
  union {
    Linear linear[N_MODEL_LINEARS];
    struct {
#define MODEL_LINEAR(SLOT, member, count, ...) Linear member count;
#include "model/tensors.def"
    };
  };
  union {
    Vector vector[N_MODEL_VECTORS];
    struct {
#define MODEL_VECTOR(SLOT, member, count, ...) Vector member count;
#include "model/tensors.def"
    };
  };
  /* The embedding has vocab_size rows, a drafter's target_vocab; or it is the target's. */
  union {
    Matrix table[N_MODEL_TABLES];
    struct {
#define MODEL_TABLE(SLOT, member, ...) Matrix member;
#include "model/tensors.def"
    };
  };
  DraftParts draft;    /* only with config.draft.kind */
  size_t weight_bytes; /* bytes of all tensors used, as stored, each counted once */
  size_t table_bytes;  /* the part in tables of n-grams, whose rows are read from the mapped file */
  /* Bytes that model_prepare() and model_round_draft() allocate. Also bytes that opening has allocated: for
   * joined convolutions, joined norms of heads, and norms without weights (shared ones, counted for each
   * norm). */
  size_t made_bytes;
  size_t replaced_bytes; /* the part of weight_bytes that is not read after these two functions */
  StoredByHeads by_heads;
  size_t unused_tensors; /* the files' tensors that are not used (rotary tables and the like), for inspect */
  bool assumed;          /* an ak48 file: rope_theta or epsilon is Qwen3's for lack of another source */
  char *tokenizer_path;  /* the model's tokenizer.json (not opened here), or NULL */
  /* Sources of rope_theta and epsilon, for inspect; static strings: "flag", "config.json beside the file",
   * "Qwen3's published value", or for a directory "config.json". NULL: nothing gives the value. */
  const char *theta_source, *eps_source;
  ModelFiles *files;
} Model;

/* Values of flags, which take precedence over what files say. With a directory, any but `tokenizer` fails
 * with STATUS_USAGE. */
typedef struct {
  double rope_theta;     /* 0: not given */
  double norm_eps;       /* 0: not given */
  const char *tokenizer; /* path of a tokenizer.json, or NULL */
} ModelOverrides;

/* Opens a Hugging Face directory or an ak48 file; overrides may be NULL. Release with model_close(), also
 * after a failure (NULL is fine). */
Status model_open(const char *path, const ModelOverrides *overrides, Model **model, Error *err);
void model_close(Model *model);
/* Drops from resident memory the pages of a directory's weights that were read until now. */
void model_drop_pages(const Model *model);
RELEASE_BY(model_release, Model, model_close)

/* Opens a drafter for a target. path: a directory of its own, or the target's path for the MTP layer in the
 * target's checkpoint (Qwen3.5 to 3.8, Qwen3-Next). A drafter without an embedding or a head uses the
 * target's, so the target must outlive it. A drafter that does not fit the target is refused, with the
 * reason. */
Status model_open_draft(const char *path, const Model *target, Model **draft, Error *err);
/* Rounds a prepared drafter's dense matrices to 4 bits in groups of 128, where sizes allow it; but not
 * draft_out, or a head tied to its embedding. The target's head is left to the device (draft.round_head). */
Status model_round_draft(Model *draft, int n_threads, Error *err);
/* True if the model's checkpoint has an MTP layer, which model_open() does not load. */
bool model_predicts_several(const Model *model);

/* Bytes of weights after model_prepare(), including tables of n-grams. */
size_t model_loaded_bytes(const Model *model);

/* To be called before anything is computed. Refuses (STATUS_MODEL) a model with an assumed rope_theta or
 * epsilon and without q and k norms. A model with these norms may be Qwen3: it passes, and the command
 * reports the assumption. */
Status model_check_known(const Model *model, Error *err);

/* Repacks layers that are not stored in a Linear's form (models.md, "What is repacked") with n_threads
 * threads (0: all cores). Refuses infinite or NaN scales. To be called before weights are read; sizes are
 * known without it. A second call does nothing. */
Status model_prepare(Model *model, int n_threads, Error *err);
/* True if one stored matrix holds linear layer `which` and others by head. model_stored_output(): which
 * output of that matrix has become output o. PRECOND model_prepare() was called; for model_stored_output()
 * also model_is_by_heads() */
bool model_is_by_heads(const Model *model, int layer, int which);
int model_stored_output(const Model *model, int layer, int which, int o);
/* Makes the layer's key_heads and value_heads anew from kv_b, whose weights have changed. heads [2 * n_heads]
 * and keys, of latent_heads_bytes(), must outlive their use. PRECOND the layer has kv_b */
Status latent_heads_renew(const Model *model, int layer, Linear *heads, void *keys, int n_threads,
                          Error *err);
size_t latent_heads_bytes(const Model *model, int layer);
/* model_prepare() for a device that calls model_prepare_expert() before it reads an expert. The experts'
 * weights, most of the model's, stay as stored until then. Memory for them is allocated, but not touched. */
Status model_prepare_but_experts(Model *model, int n_threads, Error *err);
/* Repacks an expert's weights if model_prepare_but_experts() left them; else returns at once. Not to be
 * called from two threads at a time, unless model_prepare() was called. */
void model_prepare_expert(const Model *model, const Expert *expert, int n_threads);
/* The short first part of model_prepare(): makes and checks scales and zero points, so that a device can
 * refuse them before the weights are repacked. */
Status model_prepare_scales(Model *model, int n_threads, Error *err);

/* Sets *packed: true if the file at `path` begins with ak48's magic. Fails (STATUS_MODEL) if it cannot be
 * read. */
Status ak48_is(const char *path, bool *packed, Error *err);

/* Refuses, with advice, a directory that has no tokenizer.json but a tokenizer in another format
 * (SentencePiece's tokenizer.model and the like). */
Status other_tokenizer_refuse(const char *directory, Error *err);

/* A model made from a config alone, for measuring speed. `path`: a config.json, or a directory with one. The
 * tensors have the kinds, sizes and groups of a checkpoint of this config whose dense tensors are fp16. Each
 * has an address, but reading it raises SIGSEGV until model_fill_dummy() has made random weights. A GPU makes
 * its own random weights instead. */
Status model_open_dummy(const char *path, Model **model, Error *err);
Status model_fill_dummy(const Model *model, Error *err); /* PRECOND model->dummy */

/* Refuses by name what an ak48 file (models.md, "ak48") cannot hold, such as biases, dense linear layers,
 * values that fp16 cannot hold exactly, different group sizes, rope scaling, windows shorter than a context.
 * Returns STATUS_INTERRUPTED when *interrupted becomes nonzero (NULL: never). */
Status ak48_check_fits(const Model *model, const volatile int *interrupted, Error *err);
/* Writes `model` as an ak48 file. The caller commits the file, or aborts it after a failure. PRECOND
 * ak48_check_fits() returned STATUS_OK. */
Status ak48_write(const Model *model, AtomicFile *file, const volatile int *interrupted, Error *err);

/* Names of the files that auk reads beside a checkpoint's weights, in the same directory. */
enum { N_MODEL_COMPANIONS = 11 };
extern const char *const model_companions[N_MODEL_COMPANIONS];
const char *model_path(const Model *model); /* as given to model_open() */
/* The model's directory, or the directory that holds a packed file, in new memory; NULL after a failure. */
char *model_directory(const Model *model, Error *err);
/* Sets *has: true if the file with this device and inode is one of the model's files of weights, a companion,
 * or its tokenizer. */
Status model_has_file(const Model *model, uint64_t device, uint64_t inode, bool *has, Error *err);
