/* draft_model.h - a drafter that is a smaller model with the same vocabulary: it continues the text in a
 * session of its own, and its tokens are the guesses. */
#pragma once

#include "engine/session.h"

/* Takes over the session, even on failure. The session has no drafter. `vocab_size` is the target's; `cost`
 * is a token's, in steps of the target. */
Status draft_model_open(Session *session, int vocab_size, double cost, Drafter *drafter, Error *err);
