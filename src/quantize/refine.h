/* refine.h - better codes and scales for a rounded matrix. */
#pragma once

#include "quantize/chunks.h"

/* Repeats Recipe.refinements times: first the scales of each output become those with the least loss for its
 * codes; then each code in turn moves to where the loss is least. At the end the scales are solved for again.
 * `work` is what matrix_round() works on. */
Status matrix_refine(const Work *work, Error *err);
