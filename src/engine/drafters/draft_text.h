/* draft_text.h - a drafter without a model: it finds the longest earlier passage that equals the text's end,
 * and guesses that the text goes on as after that passage. It suits edits, summaries, code and JSON. */
#pragma once

#include "engine/drafters/drafter.h"

/* For texts of at most n_ctx tokens; takes about a microsecond for each new token. *drafter is zeros after a
 * failure, and is closed by drafter_close(). */
Status draft_text_open(int n_ctx, Drafter *drafter, Error *err);
extern const DraftSource draft_text_source;
