/* finite.h - finds numbers that 4-bit weights with fp16 scales cannot represent: NaN, infinity, and weights
 * beyond fp16. */
#pragma once

#include "model/tensors.h"

/* Refuses (STATUS_MODEL), by name and element, floats that are not finite, and in matrices floats beyond
 * fp16's largest number. It checks the tensors whose names begin with the first n bytes of `prefix` (n 0:
 * none); with `others`, the tensors that the model uses whose names begin otherwise. */
Status finite_check(const Model *model, const char *prefix, size_t n, bool others, int n_threads, Error *err);
