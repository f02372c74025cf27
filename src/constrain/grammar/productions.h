/* productions.h - a grammar as productions over regular languages: the rules that remain once every part that
 * has no token and does not refer to itself is one language. The example leaves out some rules of one symbol:
 *
 *   list ::= "[" (list ("," list)*)? "]"      rule 0: LANG "[" RULE 1 LANG "]" END
 *                                             rule 1: RULE 0 RULE 2 END | END
 *                                             rule 2: LANG "," RULE 0 RULE 2 END | END */
#pragma once

#include "constrain/grammar/gbnf.h"

typedef enum { SYMBOL_END, SYMBOL_LANG, SYMBOL_RULE, SYMBOL_TOKEN } SymbolKind;

typedef struct {
  uint32_t kind;   /* SymbolKind */
  uint32_t number; /* Lang, rule or TokenSet */
} Symbol;

typedef struct {
  uint32_t start; /* index of the alternative's first symbol */
  uint32_t rule;
  uint32_t next; /* the rule's next alternative, NO_ALTERNATIVE: none */
} Alternative;
#define NO_ALTERNATIVE UINT32_MAX

typedef struct {
  uint32_t first; /* alternative, or NO_ALTERNATIVE */
  uint32_t owner; /* the rule that this is a part of: its number in the tree */
} Rule;

/* Zero-initialise it. */
typedef struct {
  Symbol *symbols; /* [n_symbols] each alternative ends with SYMBOL_END */
  size_t n_symbols, symbols_capacity;
  Alternative *alternatives; /* [n_alternatives] */
  size_t n_alternatives, alternatives_capacity;
  Rule *rules; /* [n_rules] the root is rule 0; each rule that it leads to has a text */
  size_t n_rules, rules_capacity;
} Productions;

/* Makes productions of a tree. Refuses (STATUS_USAGE) rules that have no text. Also refuses rules that begin
 * with themselves and then have more symbols. */
Status productions_make(Langs *langs, const char *name, const GbnfTree *tree, Productions *out, Error *err);
/* One rule with one language. */
Status productions_make_lang(Lang lang, Productions *out, Error *err);
void productions_release(Productions *productions);
