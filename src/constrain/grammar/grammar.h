/* grammar.h - the texts of a context-free grammar, byte by byte: which bytes may come next, and whether the
 * text may end here.
 *
 * A state is a set of places. A place is the rest of a regular part, or a token, and the text after it. The
 * rest is a Lang, whose derivatives are the steps of an automaton. The text after it is a stack of positions
 * in productions. Equal stacks and equal states have one number. Transitions are made on first use. */
#pragma once

#include "constrain/lang/lang.h"
#include "constrain/masks/vocabulary.h"

typedef struct Grammar Grammar;
enum { GRAMMAR_DEAD = 0 }; /* the state after a byte that is refused */

/* A grammar in GBNF (gbnf.h). Refusals are STATUS_USAGE; gbnf_parse() says what their messages have. The
 * grammar's tokens are those of the tokenizer; NULL: it may name no tokens. */
Status grammar_open(const char *name, const char *text, size_t size, const Tokenizer *tokenizer,
                    Grammar **grammar, Error *err);
/* The texts that a regular expression (ECMAScript, lang/regular_expression.h) matches from end to end. */
Status grammar_open_regular_expression(const char *name, const char *text, size_t size, Grammar **grammar,
                                       Error *err);
/* The strings of one language. Takes over the store, even if it fails: *langs is empty afterwards. `name`
 * is for messages. */
Status grammar_open_lang(const char *name, Langs *langs, Lang lang, Grammar **grammar, Error *err);
void grammar_close(Grammar *grammar); /* NULL is fine */

/* The state before the first byte; the state after one more byte. */
uint32_t grammar_begin(Grammar *grammar);
uint32_t grammar_next(Grammar *grammar, uint32_t state, unsigned char byte);
/* The state after a token, which is read by its id and, unless `size` is 0, also by its bytes[0..size). */
uint32_t grammar_next_token(Grammar *grammar, uint32_t state, int32_t id, const char *bytes, size_t size);
/* grammar_takes_tokens(): true if a token may follow by its id. grammar_has_tokens(): true if some rule names
 * a token. grammar_names_token(): true if some rule names this token, other than after '!'. */
bool grammar_takes_tokens(const Grammar *grammar, uint32_t state);
bool grammar_has_tokens(const Grammar *grammar);
bool grammar_names_token(const Grammar *grammar, int32_t id);
/* The first failure so far (memory, limits); new states are GRAMMAR_DEAD from then on. */
Status grammar_check(const Grammar *grammar, Error *err);
bool grammar_may_end(const Grammar *grammar, uint32_t state);
/* True if the text may end here and nothing may follow. */
bool grammar_must_end(const Grammar *grammar, uint32_t state);
/* Adds the tokens that may come next to mask[0 .. vocabulary->n_words). PRECOND each call for a grammar has
 * the same vocabulary */
void grammar_mask(Grammar *grammar, const Vocabulary *vocabulary, uint32_t state, uint64_t *mask);
/* If there are many states, forgets all but `state` to free memory. Returns the new number of `state`. */
uint32_t grammar_settle(Grammar *grammar, uint32_t state);
