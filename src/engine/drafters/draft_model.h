/* draft_model.h - a drafter that is a smaller model with the same vocabulary: it answers in a session of its
 * own, and its tokens are the guesses. */
#pragma once

#include "engine/session.h"

/* Takes over the session, which has no drafter, also after a failure. `vocab_size` is the target's; cost:
 * of a token, in steps of the target. */
Status draft_model_open(Session *session, int vocab_size, double cost, Drafter *drafter, Error *err);
