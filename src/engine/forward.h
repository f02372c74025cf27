/* forward.h - the transformer over the operations of a backend. */
#pragma once

#include "engine/backend.h"

/* Refuses (STATUS_USAGE) ids[n] outside of [0, vocab_size); `name` is theirs in the message. */
Status forward_check_ids(const ModelConfig *config, const char *name, const int32_t *ids, int n, Error *err);

/* Runs range.n_tokens tokens through all layers; ids may be NULL (see embed). The logits of the last
 * n_logit_rows rows of the step (0: none) become rows 0 .. n_logit_rows - 1 of the state's logits. */
Status forward(const Backend *backend, BackendState *state, const ModelConfig *config, TokenRange range,
               const int32_t *ids, int n_logit_rows, Error *err);

/* The same for a drafter, whose rows have states beside ids (Backend.draft_embed()). */
Status forward_draft(const Backend *backend, BackendState *state, const ModelConfig *config, TokenRange range,
                     const int32_t *ids, int states, int n_logit_rows, Error *err);
