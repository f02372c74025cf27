/* compose.h - NFC, NFD, NFKC and NFKD as the reference implements them. */
#pragma once

#include "tokenizer/normalize.h"

/* Sets step->forms and step->flags. PRECOND the step's kind is one of the four */
Status form_load(const char *where, NormalStep *step, Error *err);

/* Appends the normal form to `out`; if the text is already in it, appends nothing and clears *changed. */
Status form_apply(const NormalStep *step, NormalScratch *scratch, const Traced *text, TracedBuffer *out,
                  bool *changed, Error *err);
