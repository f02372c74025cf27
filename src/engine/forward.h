/* forward.h - a step of a model's program by the operations of a backend. */
#pragma once

#include "engine/backend.h"

/* Refuses (STATUS_USAGE) ids[n] outside of [0, vocab_size); the message calls them `name`. */
Status forward_check_ids(const ModelConfig *config, const char *name, const int32_t *ids, int n, Error *err);

/* Makes the program of a config. Refuses (STATUS_MODEL) an operation that the backend lacks, and names it.
 * Release with program_release(), also after a failure. */
Status forward_prepare(const Backend *backend, const ModelConfig *config, Program *program, Error *err);

/* Computes operations first .. end - 1 of the program, which belong to one layer, for a step. range.ids
 * are the step's tokens. rows[n_tokens][carried_floats()]: what the operation before `first` handed over
 * (Backend.carry()); NULL: the embedding. Only this layer's cache or recurrent state changes. PRECOND
 * backend->carry */
Status forward_part(const Backend *backend, BackendState *state, const Program *program, TokenRange range,
                    int first, int end, float *rows, Error *err);

/* Computes the step's rows. The logits of the last range.n_logit_rows rows (0: none), or those of
 * range.logit_rows, become rows 0 .. n_logit_rows - 1 of the state's logits. */
Status forward(const Backend *backend, BackendState *state, const Program *program, TokenRange range,
               Error *err);
