/* loaders.h - the loaders of the two layouts and what they share. Private to src/model. */
#pragma once

#include "base/status.h"
#include "model/files/weight_files.h"
#include "model/layers.h"

/* A quantised linear layer as stored: hf_quantised.c finds it, repack.c makes a Linear of it. The layouts to
 * the byte: models.md, "Quantised layouts", under the names of quant_method_name(). Shapes were checked. */
typedef struct {
  Linear *linear; /* the result; its kind, sizes, bits and group are set */
  QuantMethod method;
  bool zeros_less_one;         /* GPTQ, version 1 */
  const StoredTensor *weights; /* qweight, weight_packed or weight */
  const StoredTensor *zeros;   /* qzeros or weight_zero_point, NULL: all are the middle of the range */
  const StoredTensor *scales;  /* scales, weight_scale or weight_scale_inv */
  const StoredTensor *factor;  /* NVFP4: weight_scale_2 or weight_global_scale, one number */
  int step;                    /* QUANT_NONE: a dense matrix stored [n_in][n_out]; the layer's outputs are the
                                * stored matrix's first_out, first_out + step, ... */
  int n_out;                   /* outputs of the stored matrix */
  int first_out;               /* the layer's first output in the stored matrix */
  /* For permuted inputs (hf_order.c), else NULL. places: [n_in] the row of qweight for each stored input;
   * out_order: output o of the layer is the stored output first_out + out_order[o]. */
  const int32_t *places, *out_order;
} StoredWeights;

/* An expert's weights that model_prepare_but_experts() left as stored, and memory for their repacked form.
 * stored NULL: nothing is left to repack. */
typedef struct {
  const StoredWeights *stored;
  unsigned char *to;
} LaterWeights;

/* A Linear.order. Matrices that read the same inputs are loaded close together, so an equal order is among
 * the last RECENT_ORDERS. */
typedef struct {
  int32_t *order; /* [2 * n_in]: Linear.order, then StoredWeights.places */
  int n_in;
} InputOrder;
enum { RECENT_ORDERS = 8 };

/* True if the weights are used as stored. stored_groups_are_canonical(): the same for zero points and
 * scales. */
bool stored_weights_are_canonical(const StoredWeights *stored);
bool stored_groups_are_canonical(const StoredWeights *stored);

/* Bytes that repack.c will allocate if a 4-bit layer's scales fit F16 and its zero points 4 bits. Otherwise
 * the layer takes 2.5 bytes more per scale. */
size_t stored_made_bytes(const StoredWeights *stored);
size_t stored_replaced_bytes(const StoredWeights *stored); /* bytes that are not read after repacking */

enum { FP4_SCALE_VALUES = 256 };
/* stored_made_bytes() for FP8 and FP4; float_scales_make() checks and makes their scales (float_scales.c). */
size_t float_scales_made_bytes(const StoredWeights *stored);
Status float_scales_make(Model *model, const StoredWeights *stored, int n_threads, Error *err);

/* key_heads_order() puts into the usual order the rows that the checkpoint groups by key head (gated delta
 * rule, DELTA_INTERLEAVED) or by KV head (attention, FUSES_QKV_HEADS). From then on the config says that they
 * are in this order. For other models it does nothing. PRECOND the matrices have their data.
 * key_heads_count() adds the memory that this takes to made_bytes, and what is dropped to replaced_bytes. */
Status key_heads_order(Model *model, int n_threads, Error *err);
void key_heads_count(Model *model);

/* taps_scale() multiplies the taps of Mamba-2's convolution by the factors of its inputs (DeltaConfig.q_scale
 * and so on) and sets these factors to 1. taps_count() adds the memory that this takes to made_bytes. */
Status taps_scale(Model *model, Error *err);
void taps_count(Model *model);

/* The heads of latent attention (latent_heads.c). latent_heads_open() allocates key_heads and value_heads of
 * all layers. latent_heads_shape() gives them their shapes and adds to made_bytes; PRECOND kv_b has its
 * shape. latent_heads_make() makes the keys' weights; PRECOND kv_b has its data. latent_heads_place() sets
 * them for one layer, with the keys' weights at `keys` (for a dummy); PRECOND the layer has key_heads. The
 * other functions do nothing for a model without latent attention. latent_heads_bytes(): the memory of a
 * layer's keys' weights (model.h). */
Status latent_heads_open(Model *model, Error *err);
Status latent_heads_shape(Model *model, Error *err);
Status latent_heads_make(Model *model, int n_threads, Error *err);
Status latent_heads_place(const Model *model, int layer, const void *keys, Error *err);

struct ModelFiles {
  char *path;                   /* as given to model_open(); for messages */
  WeightFiles weights;          /* a directory's files */
  MappedFile packed;            /* an ak48 file */
  StoredTensor *packed_tensors; /* [n_packed_tensors] in the file's order */
  size_t n_packed_tensors;
  char (*names)[LINEAR_NAME_SIZE]; /* names of the layers' Linears, in order */
  char own_names[N_MODEL_LINEARS][LINEAR_NAME_SIZE];
  NgramShard *ngram_shards; /* shards of all layers */
  Expert *experts;          /* experts of all layers */
  StoredTensor **views;     /* [n_views] for each layer, hf_experts.c's views of the tensors of all experts */
  size_t n_views, views_capacity;
  char *packed_names;    /* storage of packed_tensors' names */
  StoredWeights *stored; /* [n_stored] linear layers for model_prepare() */
  size_t n_stored, stored_capacity;
  void **made; /* [n_made] what model_make_memory() allocated */
  size_t n_made, made_capacity;
  /* The newest of the n_orders orders that were made: order i is at i % RECENT_ORDERS. */
  InputOrder recent_orders[RECENT_ORDERS];
  size_t n_orders;
  bool scales_prepared, prepared;
  size_t n_experts; /* number of `experts` */
  /* [n_experts][N_EXPERT_LINEARS] weights that are not repacked yet; NULL: none */
  LaterWeights *waiting;
  void *reserved; /* [reserved_bytes] the mapping of a dummy's tensors, or NULL */
  size_t reserved_bytes;
};

/* Memory for n items of `size` bytes that belong to `linear`; model_close() frees it. NULL after a
 * failure. */
void *model_make_memory(Model *model, size_t n, size_t size, const Linear *linear, Error *err);

/* Mapped file `index` of an open model's weights; NULL after the last. */
const MappedFile *model_file(const Model *model, size_t index);

/* Allocates a Model with its files and path. */
Status model_make(const char *path, Model **model, Error *err);

/* The next three fill a Model of model_make(); model_close() releases it, also after a failure. */
Status hf_directory_open(const char *path, const ModelOverrides *overrides, Model *model, Error *err);
Status hf_draft_open(const char *path, const Model *target, Model *draft, Error *err);
Status ak48_open(const char *path, const ModelOverrides *overrides, Model *model, Error *err);

/* Allocates model->layers, names all Linears, and sets their sizes, except the head's. PRECOND the config is
 * set. */
Status model_make_layers(Model *model, const char *body, Error *err);

/* Sets model->head to a dense lm_head or, if the config ties it, to the embedding. */
void model_set_head(Model *model, const char *name, const void *data, Dtype dtype);

/* Element `index` of a tensor of F32, F16 or BF16, at any alignment. */
float stored_float(const void *data, Dtype dtype, size_t index);

/* Refuses infinite or NaN elements of a tensor of F32, F16 or BF16; `file` and `name` are for the message. */
Status check_finite(const void *data, Dtype dtype, size_t n, int n_threads, const char *file,
                    const char *name, Error *err);

/* Refuses a linear layer whose n_in is no multiple of `group`, or whose n_out is no multiple of 8. `file` and
 * `what` (a tensor's or layer's name) are for the message. */
Status check_groups(const Linear *linear, int group, const char *file, const char *what, Error *err);

/* data + bytes; NULL (weights that model_prepare() has still to make) stays NULL. */
const void *moved(const void *data, size_t bytes);

/* Reduces a layer to its outputs [first, first + n_out), without copying weights; AWQ and GROUPED need
 * multiples of 8. `file` is for the message. PRECOND the layer has no bias yet. */
Status linear_cut(Linear *linear, int first, int n_out, const char *file, Error *err);

/* Sets model->tokenizer_path to the flag's path, else to DIRECTORY/tokenizer.json if that exists. */
Status find_tokenizer(Model *model, const char *directory, const ModelOverrides *overrides, Error *err);
