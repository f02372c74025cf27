/* open.h - a session's memory: measured, taken and given back. */
#pragma once

#include "cuda/one/state.h"

/* The backend's state_bytes. */
size_t state_bytes(const ModelConfig *config, const StateOptions *options);
/* Takes all memory. Call state_close() also after a failure. PRECOND `loaded`, `options`, `peers.rank` and
 * `notes_version` are set, the rest is zeros. */
Status state_open(BackendState *s, Error *err);
void state_close(BackendState *s); /* frees s as well */
/* Notes in s->peers where the memory of a peer lies, a session on another GPU that shares the model. */
void state_reach(BackendState *s, const BackendState *peer);
