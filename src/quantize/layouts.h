/* layouts.h - quantised matrices as tensors of a published layout (models.md, "Quantised layouts"), and the
 * reverse. */
#pragma once

#include "model/files/safetensors.h"
#include "quantize/layer.h"

typedef enum { LAYOUT_AWQ, LAYOUT_COMPRESSED } QuantLayout;

/* Appends the tensors of a rounded matrix. */
Status layout_write(QuantLayout layout, const LayerMatrix *m, int group, Tensors *out, Error *err);

/* Appends the tensors of an lm_head in 8 bits, symmetric, rounded to nearest: pack-quantized alone has them
 * beside 4 bits. Refuses weights that are not finite. */
Status layout_write_head(const Linear *head, int group, Tensors *out, Error *err);

/* Makes the views of a rounded matrix LINEAR_AWQ with its weights, which are appended to `made`. */
Status layout_install(const LayerMatrix *m, int group, Tensors *made, Error *err);
/* The same with the weights that a file has. Memory that this takes is appended
 * to `made`. Refuses a file that lacks them. */
Status layout_use(QuantLayout layout, const LayerMatrix *m, int group, const Safetensors *file, Tensors *made,
                  Error *err);

/* Appends the n bytes of a module's name to a list, as a JSON string. ending: other programs begin the name
 * otherwise. */
Status layout_name(QuantLayout layout, const char *name, size_t n, bool ending, Buffer *list, Error *err);
/* Appends the object of config.json's quantization_config. kept: a list of modules that are not quantised;
 * head: of the lm_head in 8 bits, or empty. */
Status layout_config(QuantLayout layout, int group, const Buffer *head, const Buffer *kept, Buffer *out,
                     Error *err);
