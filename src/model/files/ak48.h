/* ak48.h - the packed single file: its header, and the walk over its body that reader and writer share.
 *
 *   offset  type  field                        offset  type  field
 *        0  u32   magic 0x616b3438                 28  i32   vocab_size
 *        4  i32   version 5                        32  i32   max_seq_len
 *        8  i32   dim (hidden size)                36  u8    shared_classifier: 1 if tied
 *       12  i32   hidden_dim (intermediate)        37  i32   head_dim
 *       16  i32   n_layers                         41  i32   group_size
 *       20  i32   n_heads                          45        zeros
 *       24  i32   n_kv_heads                      256        body
 *
 * Little-endian throughout. The body, without gaps: models.md, "ak48". */
#pragma once

#include "model/program.h"
#include "model/tensors.h"

#define AK48_MAGIC       0x616b3438u
#define AK48_VERSION     5
#define AK48_HEADER_SIZE 256

/* Writes the header's bytes, padded with zeros; only ak48_header_decode() checks the fields. */
void ak48_header_encode(const ModelConfig *config, unsigned char out[AK48_HEADER_SIZE]);
/* Sets tied_embeddings, the quantisation scheme, the sizes of a config, what follows from head_dim, and no
 * other field. Refuses another magic or version, fields out of range or inconsistent, and padding other than
 * zero. */
Status ak48_header_decode(const char *path, const unsigned char *bytes, size_t size, ModelConfig *config,
                          Error *err);

/* Refuses a config.json `beside` the file at `path` that contradicts the header. The config may have a longer
 * context, no group size, and tied embeddings where those of the header are not tied. */
Status ak48_header_compare(const ModelConfig *header, const char *path, const ModelConfig *beside,
                           const char *config_path, Error *err);

/* words = a feature of the architecture that the format cannot express ("logits capped at 30"), or "". */
Status ak48_cannot_hold(const ModelConfig *config, char words[FORM_WORDS], Error *err);

/* Kinds of tensors in the body. */
typedef enum {
  AK48_NORM,
  AK48_FINAL_NORM,
  AK48_EMBEDDING,
  AK48_QWEIGHT,
  AK48_QZEROS,
  AK48_SCALES,
  AK48_HEAD
} Ak48Part;

typedef struct {
  Ak48Part part;
  int layer;           /* for a layer's norms and linear layers */
  int which;           /* for norms LAYER_ATTN_NORM .., for linear layers LAYER_Q .. LAYER_UP */
  StoredTensor stored; /* dtype, dtype_name, rank, shape and bytes are set */
  uint64_t offset;     /* offset in the file */
} Ak48Tensor;

typedef Status (*Ak48Visit)(void *user, const Ak48Tensor *tensor, Error *err);
/* Calls visit (may be NULL) for every tensor of the body in the file's order; *end is the end of the body.
 * qk_norm: the body has q and k norms. Fails only if visit does. PRECOND the header was decoded. */
Status ak48_walk(const ModelConfig *config, bool qk_norm, Ak48Visit visit, void *user, uint64_t *end,
                 Error *err);

/* The norm of the model that this tensor holds; NULL if the tensor is no norm. */
Vector *ak48_norm(Model *model, const Ak48Tensor *tensor);

/* The tensor's name in a Hugging Face directory. */
#define AK48_NAME_SIZE 64
void ak48_tensor_name(const Ak48Tensor *tensor, char out[AK48_NAME_SIZE]);
