/* constraint.h - a schema over the tokens of a vocabulary: which token may come next, and may the text end
 * here.
 *
 *   Constraint c;
 *   TRY(constraint_open("schema", text, size, options, &vocabulary, &c, err));
 *   while (...) {
 *     TRY(constraint_mask(&c, mask, err));           one bit for each token
 *     TRY(constraint_take(&c, id, &allowed, err));   the token that was chosen
 *   }
 *
 * The vocabulary is shared; a Constraint is one text at a time and is not shared between threads. */
#pragma once

#include "constrain/masks.h"

typedef struct {
  SchemaSet set;
  Machine machine;
  Masks masks; /* unused without a vocabulary */
  const Vocabulary *vocabulary;
  JsonState state;
} Constraint;

/* Compiles the schema text[0..size); `name` is for messages. Refusals are STATUS_USAGE and name the
 * keyword and its JSON pointer. A schema that no text satisfies is refused. `vocabulary` may be NULL: then
 * only bytes are taken. */
Status constraint_open(const char *name, const char *text, size_t size, SchemaOptions options,
                       const Vocabulary *vocabulary, Constraint *constraint, Error *err);
void constraint_close(Constraint *constraint);
/* Begins a new text. */
Status constraint_begin(Constraint *constraint, Error *err);
/* The tokens that may come next, mask[0 .. vocabulary->n_words). The end of the text is
 * constraint_may_end(). */
Status constraint_mask(Constraint *constraint, uint64_t *mask, Error *err);
/* Takes a token, or bytes; where these are refused, *allowed is false and the state stays what it was.
 * *taken, unless NULL: bytes before the refused one. */
Status constraint_take(Constraint *constraint, int32_t id, bool *allowed, Error *err);
Status constraint_take_bytes(Constraint *constraint, const char *bytes, size_t size, bool *allowed,
                             size_t *taken, Error *err);
/* Appends the bytes that follow by force, but takes none: there is no other text, apart from white space and
 * from escapes for the same characters. Their last token may be one that the text goes on with otherwise. */
Status constraint_forced(Constraint *constraint, Buffer *bytes, Error *err);
bool constraint_may_end(Constraint *constraint);
