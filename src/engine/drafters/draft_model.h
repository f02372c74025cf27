/* draft_model.h - a drafter that is a smaller model with the same vocabulary: it continues the text in a
 * session of its own, and its tokens are the guesses. */
#pragma once

#include "engine/session.h"

/* Takes over the session, even on failure. PRECOND the session has no drafter. vocab_size: the target's;
 * cost: the time of one guessed token, in steps of the target. */
Status draft_model_open(Session *session, int vocab_size, double cost, Drafter *drafter, Error *err);
