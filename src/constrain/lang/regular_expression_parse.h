/* regular_expression_parse.h - the tree of a regular expression. Private to regular_expression*.c. */
#pragma once

#include "constrain/lang/lang.h"

typedef enum {
  REGEX_SET,      /* one character of a set */
  REGEX_SEQUENCE, /* the children in turn */
  REGEX_EITHER,   /* one of the children */
  REGEX_REPEAT,   /* the child, min to max times */
  REGEX_START,    /* ^ */
  REGEX_END,      /* $ */
  REGEX_AHEAD,    /* (?=child), or (?!child) */
} RegexKind;

typedef struct {
  RegexKind kind;
  bool negative;
  bool has_assertion, has_start, has_ahead; /* in the node or below it */
  bool can_be_empty, only_empty; /* can_be_empty: matches the empty string; only_empty: and no other */
  int child, next;               /* first child and next sibling, -1: none */
  Lang lang;                     /* of a SET */
  uint32_t min, max;             /* LANG_NO_END: any number */
} RegexNode;

/* Zero-initialise it. */
typedef struct {
  RegexNode *nodes; /* [count] */
  size_t count, capacity;
  int root;
  bool unsupported; /* ECMAScript has the syntax that was refused */
} RegexTree;

/* strict: the syntax of the u flag, which REGEX_WHOLE asks for. */
Status regex_tree_parse(Langs *langs, const char *text, size_t size, bool strict, RegexTree *tree,
                        Error *err);
void regex_tree_release(RegexTree *tree);
