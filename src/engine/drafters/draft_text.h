/* draft_text.h - a drafter without a model: it guesses that the text goes on as it did after the longest
 * earlier passage that ends like it. For edits, summaries, code, JSON. */
#pragma once

#include "engine/drafters/drafter.h"

/* For texts of at most n_ctx tokens; takes about a microsecond for each new one. *drafter is zeros after a
 * failure; drafter_close(). */
Status draft_text_open(int n_ctx, Drafter *drafter, Error *err);
size_t draft_text_bytes(int n_ctx); /* of memory that it takes, about */
