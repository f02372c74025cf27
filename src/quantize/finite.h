/* finite.h - finds numbers that 4-bit weights with fp16 scales cannot represent: NaN, infinity, and weights
 * beyond fp16. */
#pragma once

#include "model/tensors.h"

/* Refuses (STATUS_MODEL), by name and element, tensors whose names begin with the first n bytes of `prefix`:
 * floats that are not finite, and in matrices those beyond fp16's largest number. */
Status finite_check_layer(const Model *model, const char *prefix, size_t n, int n_threads, Error *err);
/* The same for the other tensors that the model uses, whose names do not begin with the first n bytes of
 * `layers`. */
Status finite_check_rest(const Model *model, const char *layers, size_t n, int n_threads, Error *err);
