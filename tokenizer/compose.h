/* compose.h - the normalizers NFC, NFD, NFKC and NFKD, and Precompiled, which replaces characters by a table
 * of the file (charsmap.c). Their results are the reference's (tokenizer.h). */
#pragma once

#include "tokenizer/normalize.h"

/* Sets step->map and step->role. PRECOND the step's kind is NFC, NFD, NFKC or NFKD */
Status form_load(const char *where, Step *step, Error *err);

/* Appends the normal form to `out` and sets *changed; if no character can change, appends nothing and clears
 * *changed. */
Status form_apply(const Step *step, NormalScratch *scratch, const Traced *text, TracedBuffer *out,
                  bool *changed, Error *err);

/* Appends a character to scratch->run, the characters that composed_write() writes next. */
Status composed_push(NormalScratch *scratch, Composed character, Error *err);
/* Writes scratch->run in place of text[start .. end), and empties it. Origins are assigned as in
 * the reference. */
Status composed_write(NormalScratch *scratch, const Traced *text, size_t start, size_t end, TracedBuffer *out,
                      Error *err);

/* Decodes the base64 of the table to step->content and sets step->n_units. */
Status charsmap_load(const char *where, const char *base64, size_t size, Step *step, Error *err);
/* Appends the text with all replacements to `out`. STATUS_MODEL if the table points outside itself. */
Status charsmap_apply(const Step *step, NormalScratch *scratch, const Traced *text, TracedBuffer *out,
                      Error *err);
