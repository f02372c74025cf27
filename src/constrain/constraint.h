/* constraint.h - a schema or a grammar over the tokens of a vocabulary: says which tokens may come next, and
 * if the text may end here.
 *
 *   Constraint c;
 *   TRY(constraint_open("schema", text, size, options, &vocabulary, &c, err));
 *   while (...) {
 *     TRY(constraint_mask(&c, mask, err));           one bit for each token
 *     TRY(constraint_take(&c, id, &allowed, err));   the token that was chosen
 *   }
 *
 * The vocabulary is shared; a Constraint handles one text at a time and is not shared between threads. */
#pragma once

#include "constrain/grammar/grammar.h"
#include "constrain/masks/masks.h"

/* Sets of tokens. WORDY: those with \u or \/. OPEN: those that end with the backslash of an escape. LEFT_OUT:
 * those that the present mask leaves out. */
typedef enum { ESCAPE_WORDY, ESCAPE_OPEN, ESCAPE_LEFT_OUT, N_ESCAPES } EscapeKind;

typedef struct {
  SchemaSet set;
  Machine machine;
  Masks masks; /* unused without a vocabulary */
  const Vocabulary *vocabulary;
  JsonState state;
  Grammar *grammar;  /* NULL: the constraint is the schema `set` */
  uint32_t place;    /* the grammar's state */
  uint64_t *escapes; /* [N_ESCAPES][n_words] by EscapeKind; NULL before constraint_write_plainly() */
  uint32_t n_space;  /* bytes of white space at the end of the text, outside of strings */
  bool has_newline;  /* that white space has a newline */
} Constraint;

/* After this call all compiling and all masks end with STATUS_INTERRUPTED soon after a signal handler sets
 * *interrupted to a value other than 0. They end within a fraction of a second, and the constraint is then of
 * no use. NULL (the default): never. Compiling and masks also end, with STATUS_USAGE, where they would take
 * more than some seconds or some 100 MB. */
void constraint_heed(const volatile int *interrupted);
/* Compiles the schema text[0..size); `name` is for messages. Refusals are STATUS_USAGE; that of a keyword has
 * its JSON pointer. A schema that no text satisfies is refused. `vocabulary` may be NULL: then only bytes are
 * taken. */
Status constraint_open(const char *name, const char *text, size_t size, SchemaOptions options,
                       const Vocabulary *vocabulary, Constraint *constraint, Error *err);
/* constraint_open() for a grammar. The constraint owns the grammar, which a failure closes, too. */
Status constraint_open_grammar(const char *name, Grammar *grammar, const Vocabulary *vocabulary,
                               Constraint *constraint, Error *err);
void constraint_close(Constraint *constraint);
/* After this call masks leave out tokens that only make JSON longer, unless no other token may follow. These
 * are tokens with \u or \/, and at the beginning of the text tokens of white space alone. Tokens that begin
 * with white space are left out before a colon, after 40 bytes of white space, and where they add a second
 * newline in a row. Small models would write such tokens without end. constraint_take() still takes them. */
Status constraint_write_plainly(Constraint *constraint, Error *err);
/* Begins a new text. */
Status constraint_begin(Constraint *constraint, Error *err);
/* The tokens that may come next, mask[0 .. vocabulary->n_words). The end of the text has no
 * bit: constraint_may_end(). */
Status constraint_mask(Constraint *constraint, uint64_t *mask, Error *err);
/* Takes a token, or bytes. If these are refused, *allowed is false and the state stays as it was. *taken gets
 * the number of bytes before the refused one, unless `taken` is NULL. */
Status constraint_take(Constraint *constraint, int32_t id, bool *allowed, Error *err);
Status constraint_take_bytes(Constraint *constraint, const char *bytes, size_t size, bool *allowed,
                             size_t *taken, Error *err);
/* Appends the forced bytes, with which every text goes on, but takes none of them. Texts with other escapes
 * for the same characters do not count, nor (with constraint_write_plainly()) white space before a colon. The
 * last token of the forced bytes may be only the beginning of a longer token of the text. */
Status constraint_forced(Constraint *constraint, Buffer *bytes, Error *err);
/* Appends the forced tokens, but takes none. The tokenizer writes the forced bytes in these tokens, whatever
 * follows. before[0..n_before): the bytes of the last whole tokens of the text. */
Status constraint_forced_tokens(Constraint *constraint, const Tokenizer *tokenizer, const char *before,
                                size_t n_before, IdList *ids, Error *err);
bool constraint_may_end(Constraint *constraint);
/* True if the text has ended: only white space may follow or, with a grammar, nothing. A text that is a
 * number ends only with the byte after it. */
bool constraint_must_end(Constraint *constraint);
