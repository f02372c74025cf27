/* draft_text.h - a drafter without a model: it guesses that the text goes on as it did after the longest
 * earlier passage that ends like it. For edits, summaries, code, JSON. */
#pragma once

#include "engine/drafters/drafter.h"

/* For texts of at most n_ctx tokens; takes about a microsecond for each new one. *drafter is zeros after a
 * failure; drafter_close(). */
Status draft_text_open(int n_ctx, Drafter *drafter, Error *err);
extern const DraftSource draft_text_source;
