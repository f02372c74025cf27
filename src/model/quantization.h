/* quantization.h - what config.json says of how weights are stored: `quantization_config`, in every spelling
 * that is known, and what of it is refused. Private to src/model. */
#ifndef AUK_MODEL_QUANTIZATION_H
#define AUK_MODEL_QUANTIZATION_H

#include "model/config.h"
#include "model/config_reader.h"

/* Fills config->quant and what belongs to it from the object quantization_config. `own_file`: it is
 * quant_config.json, which only AutoAWQ wrote and which does not name the method. */
Status quantization_parse(const Reader *r, bool own_file, ModelConfig *config);
void quantization_release(ModelConfig *config);

#endif
