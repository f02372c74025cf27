/* parse.h - private to parse.c and parse_expression.c: the parser. */
#pragma once

#include "tokenizer/jinja/syntax.h"

typedef struct {
  Template *template;
  Lexer lexer;
  Token token, next;                           /* the current token and the next one */
  size_t last_end;                             /* where the previous token ends */
  int nesting;                                 /* recursion depth of the parsing functions */
  int n_loops;                                 /* enclosing `for` tags, within the innermost macro */
  bool uses_caller, uses_varargs, uses_kwargs; /* these names occurred in the macro so far */
  Error *err;
} Parser;

Status parse_fail(Parser *parser, const char *format, ...) __attribute__((format(printf, 2, 3)));
Status parse_unexpected(Parser *parser, const char *expected);

Status parser_advance(Parser *parser);
bool parser_at(const Parser *parser, Operator op);
bool parser_at_name(const Parser *parser, const char *name);
Status parser_skip(Parser *parser, Operator op, bool *skipped);
Status parser_skip_name(Parser *parser, const char *name, bool *skipped);
Status parser_expect(Parser *parser, Operator op, const char *shown);
Status parser_expect_name(Parser *parser, Text *name);

Status parser_symbol(Parser *parser, Text name, int *symbol);   /* the number of a variable */
Status parser_node(Parser *parser, NodeKind kind, Node **node); /* begins at the current token */
/* A node around `inner`, which becomes its child `a`. */
Status parser_wrap(Parser *parser, NodeKind kind, Node *inner, Node **node);
/* Ends the node: its text ends with the token before the current one. Sets its depth to one more than its
 * deepest child's; refuses a node that is too deep. */
Status parser_close(Parser *parser, Node *node);
Status parser_append(Parser *parser, NodeList *list, size_t *capacity, Node *node);

/* Expressions. */
Status parse_expression(Parser *parser, Node **node);
/* Parses an expression or, with commas, a tuple; `conditional`: "a if b" is a part of the expression. */
Status parse_tuple(Parser *parser, bool conditional, Node **node);
/* Parses the target of an assignment: a name, ns.name (if `member` is set), or a tuple of targets. */
Status parse_target(Parser *parser, bool member, Node **node);
/* Parses "| filter | filter" of a block; `begun`: the first filter's name comes next, without a "|". *node is
 * NULL if there is no filter. */
Status parse_filters(Parser *parser, bool begun, Node **node);
