/* quant_compressed.h - compressed-tensors' quantization_config. Private to src/model; called by
 * quantization.c. */
#ifndef AUK_MODEL_QUANT_COMPRESSED_H
#define AUK_MODEL_QUANT_COMPRESSED_H

#include "model/config_reader.h"
#include "model/quantization.h"

Status quant_compressed_parse(const Reader *r, QuantConfig *quant);

#endif
