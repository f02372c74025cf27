/* parse_expression.c - expressions, with jinja2's precedence.
 *
 * Called by: parse.c.
 * From weakest to strongest: if-else, or, and, not, comparisons, + -, ~, * / // %, **, |filter and "is
 * test", signs, then .name, [key] and (arguments). */
#include "tokenizer/jinja/eval.h"
#include "tokenizer/jinja/parse.h"

static Status parse_or(Parser *parser, Node **node);
static Status parse_unary(Parser *parser, bool with_filters, Node **node);

/* --- operands */

static Status parse_constant(Parser *parser, Value value, Node **node) {
  TRY(parser_node(parser, NODE_CONST, node));
  (*node)->value = value;
  return parser_advance(parser);
}

static Status note_name(Parser *parser, Node *node) {
  Template *template = parser->template;
  TRY(parser_symbol(parser, node->text, &node->symbol));
  parser->uses_caller |= node->symbol == template->caller;
  parser->uses_varargs |= node->symbol == template->varargs;
  parser->uses_kwargs |= node->symbol == template->kwargs;
  return STATUS_OK;
}

static Status parse_name(Parser *parser, Node **node) {
  Text name = parser->token.text;
  if (text_is(name, "true") || text_is(name, "True")) return parse_constant(parser, value_bool(true), node);
  if (text_is(name, "false") || text_is(name, "False"))
    return parse_constant(parser, value_bool(false), node);
  if (text_is(name, "none") || text_is(name, "None")) return parse_constant(parser, value_none(), node);
  TRY(parser_node(parser, NODE_NAME, node));
  (*node)->text = name;
  TRY(note_name(parser, *node));
  return parser_advance(parser);
}

/* Adjacent string literals are one. */
static Status parse_string(Parser *parser, Node **node) {
  TRY(parser_node(parser, NODE_CONST, node));
  Text *text = arena_alloc(&parser->template->arena, 1, sizeof *text, parser->err);
  if (!text) return STATUS_FAILED;
  *text = parser->token.text;
  TRY(parser_advance(parser));
  while (parser->token.kind == TOKEN_STRING) {
    Text more = parser->token.text;
    char *joined = arena_alloc(&parser->template->arena, text->size + more.size, 1, parser->err);
    if (!joined) return STATUS_FAILED;
    memcpy(joined, text->data, text->size);
    memcpy(joined + text->size, more.data, more.size);
    *text = text_of(joined, text->size + more.size, true);
    TRY(parser_advance(parser));
  }
  (*node)->value = (Value){.kind = VALUE_STRING, .text = text};
  return parser_close(parser, *node);
}

/* Parses [a, b], or {a: b, c: d}, up to `close`. */
static Status parse_items(Parser *parser, NodeKind kind, Operator close, const char *shown, Node **node) {
  TRY(parser_node(parser, kind, node));
  TRY(parser_advance(parser));
  size_t capacity = 0;
  while (!parser_at(parser, close)) {
    if ((*node)->items.count) TRY(parser_expect(parser, OP_COMMA, ","));
    if (parser_at(parser, close)) break;
    Node *item;
    TRY(parse_expression(parser, &item));
    TRY(parser_append(parser, &(*node)->items, &capacity, item));
    if (kind != NODE_DICT) continue;
    TRY(parser_expect(parser, OP_COLON, ":"));
    TRY(parse_expression(parser, &item));
    TRY(parser_append(parser, &(*node)->items, &capacity, item));
  }
  TRY(parser_expect(parser, close, shown));
  return parser_close(parser, *node);
}

static bool at_tuple_end(const Parser *parser) {
  TokenKind kind = parser->token.kind;
  return kind == TOKEN_VARIABLE_END || kind == TOKEN_BLOCK_END || kind == TOKEN_END ||
         parser_at(parser, OP_RPAREN);
}

typedef enum { ELEMENT_FULL, ELEMENT_WITHOUT_IF, ELEMENT_TARGET, ELEMENT_TARGET_OR_MEMBER } ElementKind;

static Status parse_primary(Parser *parser, Node **node);

/* Parses an element of a tuple. */
static Status parse_element(Parser *parser, ElementKind kind, Node **node) {
  if (kind == ELEMENT_FULL) return parse_expression(parser, node);
  if (kind == ELEMENT_WITHOUT_IF) return parse_or(parser, node);
  TRY(parse_primary(parser, node));
  if (kind != ELEMENT_TARGET_OR_MEMBER || (*node)->kind != NODE_NAME || !parser_at(parser, OP_DOT))
    return STATUS_OK;
  (*node)->kind = NODE_MEMBER;
  TRY(parser_advance(parser));
  TRY(parser_expect_name(parser, &(*node)->text));
  return parser_close(parser, *node);
}

/* Parses elements with commas between them; a single element without a comma is no tuple. */
static Status parse_elements(Parser *parser, ElementKind kind, bool in_parentheses, Node **node) {
  Node *tuple;
  TRY(parser_node(parser, NODE_TUPLE, &tuple));
  size_t capacity = 0;
  bool comma = false;
  for (;;) {
    bool ends = at_tuple_end(parser) || (kind >= ELEMENT_TARGET && parser_at_name(parser, "in")) ||
                (kind == ELEMENT_WITHOUT_IF && tuple->items.count && parser_at_name(parser, "recursive"));
    if (ends) break;
    Node *element;
    TRY(parse_element(parser, kind, &element));
    TRY(parser_append(parser, &tuple->items, &capacity, element));
    bool more;
    TRY(parser_skip(parser, OP_COMMA, &more));
    if (!more) break;
    comma = true;
  }
  if (!comma && tuple->items.count == 1) {
    *node = tuple->items.nodes[0];
    return STATUS_OK;
  }
  if (!comma && !in_parentheses) return parse_unexpected(parser, "an expression");
  *node = tuple;
  return parser_close(parser, tuple);
}

static Status parse_parentheses(Parser *parser, Node **node) {
  size_t begin = parser->token.at;
  TRY(parser_advance(parser));
  TRY(parse_elements(parser, ELEMENT_FULL, true, node));
  TRY(parser_expect(parser, OP_RPAREN, ")"));
  (*node)->at = begin; /* messages include the parentheses */
  (*node)->end = parser->last_end;
  return STATUS_OK;
}

static Status parse_primary(Parser *parser, Node **node) {
  const Token *token = &parser->token;
  if (token->kind == TOKEN_NAME) return parse_name(parser, node);
  if (token->kind == TOKEN_STRING) return parse_string(parser, node);
  if (token->kind == TOKEN_INTEGER) return parse_constant(parser, value_int(token->integer), node);
  if (token->kind == TOKEN_FLOAT) return parse_constant(parser, value_float(token->number), node);
  if (parser_at(parser, OP_LPAREN)) return parse_parentheses(parser, node);
  if (parser_at(parser, OP_LBRACKET)) return parse_items(parser, NODE_LIST, OP_RBRACKET, "]", node);
  if (parser_at(parser, OP_LBRACE)) return parse_items(parser, NODE_DICT, OP_RBRACE, "}", node);
  return parse_unexpected(parser, "an expression");
}

/* --- postfix forms */

static Status append_argument(Parser *parser, Node *node, size_t *capacity, Argument argument) {
  Arena *arena = &parser->template->arena;
  if (!arena_grow(arena, &node->args, node->n_args, capacity, sizeof argument, parser->err))
    return STATUS_FAILED;
  node->args[node->n_args++] = argument;
  return STATUS_OK;
}

/* Parses an argument of a call. `stage`: 1 after a keyword, 2 after *args, 3 after **kwargs. */
static Status parse_argument(Parser *parser, int *stage, Argument *argument) {
  *argument = (Argument){0};
  int before = *stage;
  if (parser_at(parser, OP_MUL) || parser_at(parser, OP_POW)) {
    argument->stars = parser_at(parser, OP_MUL) ? 1 : 2;
    *stage = argument->stars + 1;
    if (before >= *stage) return parse_fail(parser, "arguments of a call are out of order");
    TRY(parser_advance(parser));
  } else if (parser->token.kind == TOKEN_NAME && parser->next.kind == TOKEN_OPERATOR &&
             parser->next.op == OP_ASSIGN) {
    if (before == 3) return parse_fail(parser, "arguments of a call are out of order");
    if (before < 1) *stage = 1;
    argument->name = parser->token.text;
    TRY(parser_advance(parser));
    TRY(parser_advance(parser));
  } else if (before > 0) {
    return parse_fail(parser, "arguments of a call are out of order");
  }
  return parse_expression(parser, &argument->value);
}

static Status parse_arguments(Parser *parser, Node *node) {
  TRY(parser_expect(parser, OP_LPAREN, "("));
  size_t capacity = 0;
  int stage = 0;
  while (!parser_at(parser, OP_RPAREN)) {
    if (node->n_args) TRY(parser_expect(parser, OP_COMMA, ","));
    if (node->n_args && parser_at(parser, OP_RPAREN)) break;
    Argument argument;
    TRY(parse_argument(parser, &stage, &argument));
    TRY(append_argument(parser, node, &capacity, argument));
  }
  return parser_expect(parser, OP_RPAREN, ")");
}

static Status parse_call(Parser *parser, Node **node) {
  Node *call;
  TRY(parser_wrap(parser, NODE_CALL, *node, &call));
  TRY(parse_arguments(parser, call));
  *node = call;
  return parser_close(parser, call);
}

/* Parses a key, or start:stop:step. */
static Status parse_subscript(Parser *parser, Node **node) {
  Node *slice, *first = NULL;
  TRY(parser_node(parser, NODE_SLICE, &slice));
  if (!parser_at(parser, OP_COLON)) TRY(parse_expression(parser, &first));
  bool colon;
  TRY(parser_skip(parser, OP_COLON, &colon));
  if (!colon) {
    *node = first;
    return STATUS_OK;
  }
  slice->a = first;
  if (!parser_at(parser, OP_COLON) && !parser_at(parser, OP_RBRACKET) && !parser_at(parser, OP_COMMA))
    TRY(parse_expression(parser, &slice->b));
  TRY(parser_skip(parser, OP_COLON, &colon));
  if (colon && !parser_at(parser, OP_RBRACKET) && !parser_at(parser, OP_COMMA))
    TRY(parse_expression(parser, &slice->c));
  *node = slice;
  return parser_close(parser, slice);
}

/* Parses a[b]; a[b, c] is an item whose key is a tuple. */
static Status parse_brackets(Parser *parser, Node *item) {
  TRY(parser_advance(parser));
  if (parser_at(parser, OP_RBRACKET)) return parse_unexpected(parser, "a subscript");
  TRY(parse_subscript(parser, &item->b));
  if (parser_at(parser, OP_COMMA)) {
    Node *tuple, *element = item->b;
    TRY(parser_node(parser, NODE_TUPLE, &tuple));
    size_t capacity = 0;
    for (bool more = true; more;) {
      if (element->kind == NODE_SLICE)
        return parse_fail(parser, "slices of several dimensions are not supported");
      TRY(parser_append(parser, &tuple->items, &capacity, element));
      TRY(parser_skip(parser, OP_COMMA, &more));
      if (more) TRY(parse_subscript(parser, &element));
    }
    TRY(parser_close(parser, tuple));
    item->b = tuple;
  }
  return parser_expect(parser, OP_RBRACKET, "]");
}

static Status parse_member(Parser *parser, Node *member) {
  TRY(parser_advance(parser));
  if (parser->token.kind == TOKEN_INTEGER) {
    member->kind = NODE_ITEM;
    return parse_constant(parser, value_int(parser->token.integer), &member->b);
  }
  member->kind = NODE_ATTRIBUTE;
  return parser_expect_name(parser, &member->text);
}

static Status parse_postfix(Parser *parser, Node **node) {
  for (;;) {
    if (parser_at(parser, OP_LPAREN)) {
      TRY(parse_call(parser, node));
    } else if (parser_at(parser, OP_DOT) || parser_at(parser, OP_LBRACKET)) {
      Node *outer;
      TRY(parser_wrap(parser, NODE_ITEM, *node, &outer));
      TRY(parser_at(parser, OP_DOT) ? parse_member(parser, outer) : parse_brackets(parser, outer));
      TRY(parser_close(parser, outer));
      *node = outer;
    } else {
      return STATUS_OK;
    }
  }
}

/* Parses the name of a filter or test, which may contain dots, and looks it up. */
static Status parse_builtin(Parser *parser, const Builtin *table, Node *node) {
  TRY(parser_expect_name(parser, &node->text));
  while (parser_at(parser, OP_DOT)) {
    TRY(parser_advance(parser));
    Text part;
    TRY(parser_expect_name(parser, &part));
    node->text.size = (size_t)(part.data + part.size - node->text.data);
  }
  node->builtin = builtin_find(table, node->text);
  return STATUS_OK;
}

static Status parse_filter(Parser *parser, Node **node) {
  Node *filter;
  TRY(parser_node(parser, NODE_FILTER, &filter));
  filter->a = *node;
  if (*node) filter->at = (*node)->at;
  TRY(parse_builtin(parser, template_filters, filter));
  if (parser_at(parser, OP_LPAREN)) TRY(parse_arguments(parser, filter));
  *node = filter;
  return parser_close(parser, filter);
}

Status parse_filters(Parser *parser, bool begun, Node **node) {
  *node = NULL;
  while (begun || parser_at(parser, OP_PIPE)) {
    if (!begun) TRY(parser_advance(parser));
    begun = false;
    TRY(parse_filter(parser, node));
  }
  return STATUS_OK;
}

/* Returns whether the token can begin a test's argument outside of parentheses ("divisibleby 3"). */
static bool begins_test_argument(const Parser *parser) {
  switch (parser->token.kind) {
  case TOKEN_NAME:
    return !parser_at_name(parser, "else") && !parser_at_name(parser, "or") && !parser_at_name(parser, "and");
  case TOKEN_STRING:
  case TOKEN_INTEGER:
  case TOKEN_FLOAT: return true;
  default: return parser_at(parser, OP_LBRACKET) || parser_at(parser, OP_LBRACE);
  }
}

static Status parse_test(Parser *parser, Node **node) {
  Node *test;
  TRY(parser_advance(parser)); /* is */
  TRY(parser_wrap(parser, NODE_TEST, *node, &test));
  bool negated;
  TRY(parser_skip_name(parser, "not", &negated));
  TRY(parse_builtin(parser, template_tests, test));
  if (parser_at(parser, OP_LPAREN)) {
    TRY(parse_arguments(parser, test));
  } else if (begins_test_argument(parser)) {
    if (parser_at_name(parser, "is")) return parse_fail(parser, "tests cannot be chained with \"is\"");
    Argument argument = {0};
    size_t capacity = 0;
    TRY(parse_primary(parser, &argument.value));
    TRY(parse_postfix(parser, &argument.value));
    TRY(append_argument(parser, test, &capacity, argument));
  }
  TRY(parser_close(parser, test));
  *node = test;
  if (!negated) return STATUS_OK;
  TRY(parser_wrap(parser, NODE_NOT, test, node));
  return parser_close(parser, *node);
}

static Status parse_filters_of(Parser *parser, Node **node) {
  for (;;) {
    if (parser_at(parser, OP_PIPE)) {
      TRY(parser_advance(parser));
      TRY(parse_filter(parser, node));
    } else if (parser_at_name(parser, "is")) {
      TRY(parse_test(parser, node));
    } else if (parser_at(parser, OP_LPAREN)) {
      TRY(parse_call(parser, node));
    } else {
      return STATUS_OK;
    }
  }
}

/* --- operators */

static Status parse_signed(Parser *parser, Node **node) {
  TRY(parser_node(parser, parser_at(parser, OP_SUB) ? NODE_NEGATE : NODE_PLUS, node));
  TRY(parser_advance(parser));
  TRY(parse_unary(parser, false, &(*node)->a));
  return parser_close(parser, *node);
}

static Status parse_unary(Parser *parser, bool with_filters, Node **node) {
  if (++parser->nesting > TEMPLATE_MAX_NESTING) return parse_fail(parser, "expressions are nested too deep");
  TRY(parser_at(parser, OP_SUB) || parser_at(parser, OP_ADD) ? parse_signed(parser, node)
                                                             : parse_primary(parser, node));
  TRY(parse_postfix(parser, node));
  if (with_filters) TRY(parse_filters_of(parser, node));
  parser->nesting--;
  return STATUS_OK;
}

static Status parse_operand(Parser *parser, Node **node) {
  return parse_unary(parser, true, node);
}

typedef Status Parse(Parser *parser, Node **node);

/* Parses "a op b op c" as (a op b) op c; op is `word` or, if that is NULL, one from `low` to `high`. */
static Status parse_chain(Parser *parser, NodeKind kind, const char *word, Operator low, Operator high,
                          Parse *parse_side, Node **node) {
  TRY(parse_side(parser, node));
  const Token *token = &parser->token;
  while (word ? parser_at_name(parser, word)
              : token->kind == TOKEN_OPERATOR && token->op >= low && token->op <= high) {
    Node *both;
    TRY(parser_wrap(parser, kind, *node, &both));
    both->op = token->op;
    TRY(parser_advance(parser));
    TRY(parse_side(parser, &both->b));
    TRY(parser_close(parser, both));
    *node = both;
  }
  return STATUS_OK;
}

static Status parse_power(Parser *parser, Node **node) {
  return parse_chain(parser, NODE_BINARY, NULL, OP_POW, OP_POW, parse_operand, node);
}

static Status parse_product(Parser *parser, Node **node) {
  return parse_chain(parser, NODE_BINARY, NULL, OP_MUL, OP_MOD, parse_power, node);
}

static Status parse_concat(Parser *parser, Node **node) {
  TRY(parse_product(parser, node));
  if (!parser_at(parser, OP_TILDE)) return STATUS_OK;
  Node *concat, *part = *node;
  TRY(parser_node(parser, NODE_CONCAT, &concat));
  concat->at = part->at;
  size_t capacity = 0;
  for (bool more = true; more;) {
    TRY(parser_append(parser, &concat->items, &capacity, part));
    TRY(parser_skip(parser, OP_TILDE, &more));
    if (more) TRY(parse_product(parser, &part));
  }
  *node = concat;
  return parser_close(parser, concat);
}

static Status parse_sum(Parser *parser, Node **node) {
  return parse_chain(parser, NODE_BINARY, NULL, OP_ADD, OP_SUB, parse_concat, node);
}

/* The comparison that begins at the current token, or OP_NONE. */
static Operator comparison_at(const Parser *parser) {
  if (parser_at_name(parser, "in")) return OP_IN;
  if (parser_at_name(parser, "not") && parser->next.kind == TOKEN_NAME && text_is(parser->next.text, "in"))
    return OP_NOT_IN;
  bool compares =
      parser->token.kind == TOKEN_OPERATOR && parser->token.op >= OP_EQ && parser->token.op <= OP_GE;
  return compares ? parser->token.op : OP_NONE;
}

static Status parse_comparison(Parser *parser, Node **node) {
  TRY(parse_sum(parser, node));
  if (comparison_at(parser) == OP_NONE) return STATUS_OK;
  Node *compare;
  TRY(parser_wrap(parser, NODE_COMPARE, *node, &compare));
  size_t capacity = 0;
  for (Operator op; (op = comparison_at(parser)) != OP_NONE;) {
    Node *operand;
    TRY(parser_node(parser, NODE_OPERAND, &operand));
    operand->op = op;
    TRY(parser_advance(parser));
    if (op == OP_NOT_IN) TRY(parser_advance(parser));
    TRY(parse_sum(parser, &operand->a));
    TRY(parser_close(parser, operand));
    TRY(parser_append(parser, &compare->items, &capacity, operand));
  }
  *node = compare;
  return parser_close(parser, compare);
}

static Status parse_not(Parser *parser, Node **node) {
  if (!parser_at_name(parser, "not")) return parse_comparison(parser, node);
  if (++parser->nesting > TEMPLATE_MAX_NESTING) return parse_fail(parser, "expressions are nested too deep");
  TRY(parser_node(parser, NODE_NOT, node));
  TRY(parser_advance(parser));
  TRY(parse_not(parser, &(*node)->a));
  parser->nesting--;
  return parser_close(parser, *node);
}

static Status parse_and(Parser *parser, Node **node) {
  return parse_chain(parser, NODE_AND, "and", OP_NONE, OP_NONE, parse_not, node);
}

static Status parse_or(Parser *parser, Node **node) {
  return parse_chain(parser, NODE_OR, "or", OP_NONE, OP_NONE, parse_and, node);
}

static Status parse_conditional(Parser *parser, Node **node) {
  TRY(parse_or(parser, node));
  while (parser_at_name(parser, "if")) {
    Node *conditional;
    TRY(parser_node(parser, NODE_COND, &conditional));
    conditional->at = (*node)->at;
    conditional->b = *node;
    TRY(parser_advance(parser));
    TRY(parse_or(parser, &conditional->a));
    bool otherwise;
    TRY(parser_skip_name(parser, "else", &otherwise));
    if (otherwise) TRY(parse_expression(parser, &conditional->c));
    TRY(parser_close(parser, conditional));
    *node = conditional;
  }
  return STATUS_OK;
}

Status parse_expression(Parser *parser, Node **node) {
  if (++parser->nesting > TEMPLATE_MAX_NESTING) return parse_fail(parser, "expressions are nested too deep");
  TRY(parse_conditional(parser, node));
  parser->nesting--;
  return STATUS_OK;
}

Status parse_tuple(Parser *parser, bool conditional, Node **node) {
  return parse_elements(parser, conditional ? ELEMENT_FULL : ELEMENT_WITHOUT_IF, false, node);
}

/* Only names, members of namespaces and tuples of them can be assigned to. */
static bool is_target(const Node *node) {
  if (node->kind == NODE_NAME || node->kind == NODE_MEMBER) return true;
  if (node->kind != NODE_TUPLE) return false;
  for (size_t i = 0; i < node->items.count; i++)
    if (!is_target(node->items.nodes[i])) return false;
  return true;
}

Status parse_target(Parser *parser, bool member, Node **node) {
  TRY(parse_elements(parser, member ? ELEMENT_TARGET_OR_MEMBER : ELEMENT_TARGET, false, node));
  return is_target(*node) ? STATUS_OK : parse_fail(parser, "this cannot be assigned to");
}
