/* layouts.h - quantised matrices as tensors of a published layout (models.md, "Quantised layouts"), and the
 * reverse. */
#pragma once

#include "model/files/safetensors.h"
#include "quantize/layer.h"

typedef enum { LAYOUT_AWQ, LAYOUT_COMPRESSED } QuantLayout;

/* Appends the tensors of a rounded matrix. */
Status layout_write(QuantLayout layout, const LayerMatrix *m, int group, Tensors *out, Error *err);

/* Appends the tensors of an lm_head in 8 bits, symmetric, rounded to nearest. PRECOND LAYOUT_COMPRESSED
 * (AutoAWQ's layout cannot mix 4 and 8 bits), and weights that are finite. */
Status layout_write_head(const Linear *head, int group, Tensors *out, Error *err);

/* Sets the views of a rounded matrix to LINEAR_AWQ with its weights, which are appended to `made`. */
Status layout_install(const LayerMatrix *m, int group, Tensors *made, Error *err);
/* layout_install() with the weights of a file that layout_write() has made. If they must be converted, the
 * result is appended to `made`. Refuses a file without this matrix. */
Status layout_use(QuantLayout layout, const LayerMatrix *m, int group, const Safetensors *file, Tensors *made,
                  Error *err);

/* Appends name[0..n), the name of a PyTorch module, to a list, as a JSON string. ending: name[0..n) is only
 * the end of the module's name; other programs begin the name differently. */
Status layout_name(QuantLayout layout, const char *name, size_t n, bool ending, Buffer *list, Error *err);
/* Appends the object of config.json's quantization_config. kept, head: lists made by layout_name(). kept: the
 * modules that are not quantised; head: the lm_head in 8 bits (empty: there is none). */
Status layout_config(QuantLayout layout, int group, const Buffer *head, const Buffer *kept, Buffer *out,
                     Error *err);
