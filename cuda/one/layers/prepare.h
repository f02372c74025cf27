/* prepare.h - the matrices that a session multiplies: whether each has a kernel, and whether all have fast
 * ones that sum in one order for any number of rows (StateOptions.invariant). */
#pragma once

#include "cuda/one/device_model.h"

/* Checks that every matrix has a kernel for every number of rows that the options allow, and makes the
 * workspace of the kernels large enough. */
Status prepare_matrices(BackendModel *loaded, const StateOptions *options, Error *err);

/* STATUS_MODEL if StateOptions.invariant is not possible: with activations of 8 bits, with a kernel that the
 * user chose (NULL: none), with weights that the CPU multiplies, or with several GPUs that share each
 * layer. */
Status prepare_check_options(bool int8_activations, const char *kernel, bool on_host, int split, Error *err);

/* Backend.check_invariant and Backend.prefers_invariant. */
Status prepare_check_invariant(const Model *model, const BackendOptions *options, Error *err);
bool prepare_prefers_invariant(const Model *model, const BackendOptions *options);
