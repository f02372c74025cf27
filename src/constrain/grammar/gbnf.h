/* gbnf.h - the text of a grammar as a tree: GBNF, llama.cpp's form of BNF (its grammars/README.md).
 *
 *   root ::= "yes" | "no" [.!]{0,2}     # literals, characters, repetition
 *   list ::= (item "\n")+ root          # groups; rules may refer to themselves
 *
 *   root ::= <think> !</think>* <[7]>  # tokens: by text, any but one, by id
 *
 * Syntax: literals and classes with the escapes \n \r \t \\ \" \[ \] \- \^ \xHH \uHHHH \UHHHHHHHH, '.',
 * groups, '|', * + ? {n} {n,} {n,m}, comments, tokens. */
#pragma once

#include "constrain/lang/lang.h"
#include "tokenizer/tokenizer.h"

typedef enum {
  GBNF_LANG,     /* the characters or the literal `lang` */
  GBNF_RULE,     /* the rule with the number `rule` */
  GBNF_TOKEN,    /* the token `token` */
  GBNF_SEQUENCE, /* the children in turn; without children the empty text */
  GBNF_EITHER,   /* one of the children */
  GBNF_REPEAT    /* the child, min to max (LANG_NO_END: any number) times */
} GbnfKind;

/* 2 * id: that token; 2 * id + 1: all tokens but that one. */
typedef uint32_t TokenSet;

typedef struct {
  uint8_t kind; /* GbnfKind */
  Lang lang;
  uint32_t rule;
  TokenSet token;
  int child, next; /* first child and next sibling, -1: none */
  uint32_t min, max;
} GbnfNode;

typedef struct {
  const char *name; /* [size] in the text */
  size_t size;
  int node; /* the rule's definition; -1: none so far */
} GbnfRule;

/* Zero-initialise it. */
typedef struct {
  GbnfNode *nodes; /* [n_nodes] */
  size_t n_nodes, nodes_capacity;
  GbnfRule *rules; /* [n_rules] */
  size_t n_rules, rules_capacity;
  KeyTable rules_by_name;
  uint32_t root;
} GbnfTree;

#define GBNF_MAX_REPEAT 2000 /* as in llama.cpp */

/* Parses text[0..size), which the tree refers to. Messages about a place in it (STATUS_USAGE) begin with
 * `name`, line and column, and say what is expected and found there. Tokens are the tokenizer's; NULL: tokens
 * are refused. */
Status gbnf_parse(Langs *langs, const char *name, const char *text, size_t size, const Tokenizer *tokenizer,
                  GbnfTree *tree, Error *err);
void gbnf_release(GbnfTree *tree);
