/* parse.h - private to template_parse*.c: a template on its way from tokens to a tree. */
#ifndef AUK_JINJA_PARSE_H
#define AUK_JINJA_PARSE_H

#include "tokenizer/jinja/syntax.h"

typedef struct {
  Template *template;
  Lexer lexer;
  Token token, next;                           /* the current one and the one behind it */
  size_t last_end;                             /* where the token before the current one ends */
  int nesting;                                 /* of the functions that parse, by their recursion */
  int n_loops;                                 /* for tags around this one, within the macro around it */
  bool uses_caller, uses_varargs, uses_kwargs; /* these names were read */
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

Status parser_node(Parser *parser, NodeKind kind, Node **node); /* at the current token */
/* The node ends before the current token and is as deep as its deepest child and one more; too deep is
 * refused. */
Status parser_close(Parser *parser, Node *node);
Status parser_append(Parser *parser, NodeList *list, size_t *capacity, Node *node);

/* Expressions. */
Status parse_expression(Parser *parser, Node **node);
/* One or, with commas, a tuple; `conditional`: "a if b" belongs to it. */
Status parse_tuple(Parser *parser, bool conditional, Node **node);
/* What is assigned to: a name, a tuple of them, and `member`: ns.name. */
Status parse_target(Parser *parser, bool member, Node **node);
/* "| filter | filter" of a block, from its first name on where `begun`; NULL where there is none. */
Status parse_filters(Parser *parser, bool begun, Node **node);

#endif
