/* positions.h - rotary positions and sliding windows in config.json. Private to src/model. */
#ifndef AUK_MODEL_CONFIG_POSITIONS_H
#define AUK_MODEL_CONFIG_POSITIONS_H

#include "model/config/architectures.h"
#include "model/config/reader.h"

/* Fills rope, local_rope, rotary_dim, windows and layer_ropes. PRECOND sizes are filled. */
Status config_parse_positions(const ConfigReader *r, const Architecture *architecture, ModelConfig *config);

#endif
