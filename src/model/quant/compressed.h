/* compressed.h - compressed-tensors' quantization_config. Private to src/model; called by
 * quantization.c. */
#ifndef AUK_MODEL_QUANT_COMPRESSED_H
#define AUK_MODEL_QUANT_COMPRESSED_H

#include "model/config/reader.h"
#include "model/quant/quantization.h"

Status quant_compressed_parse(const ConfigReader *r, QuantConfig *quant);

#endif
