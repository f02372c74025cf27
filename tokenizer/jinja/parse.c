/* parse.c - the tags of a template, and its tree.
 *
 * Always true: no node is deeper than NODE_MAX_DEPTH, so that evaluation has a bound on its recursion. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "tokenizer/jinja/parse.h"

/* Each operand of "a + b + c" is one level deeper; no template written by hand comes close. */
enum { NODE_MAX_DEPTH = 300 };

/* --- tokens and nodes */

Status parse_fail(Parser *parser, const char *format, ...) {
  char what[400];
  va_list args;
  va_start(args, format);
  vsnprintf(what, sizeof what, format, args);
  va_end(args);
  return error_set(parser->err, STATUS_MODEL, "%s: line %d: %s", parser->template->name, parser->token.line,
                   what);
}

Status parse_unexpected(Parser *parser, const char *expected) {
  const Token *token = &parser->token;
  if (token->kind == TOKEN_END) return parse_fail(parser, "the template ends, expected %s", expected);
  int size = token->size > 40 ? 40 : (int)token->size;
  return parse_fail(parser, "unexpected \"%.*s\", expected %s", size, parser->lexer.source.data + token->at,
                    expected);
}

Status parser_advance(Parser *parser) {
  parser->last_end = parser->token.at + parser->token.size;
  parser->token = parser->next;
  return lexer_next(&parser->lexer, &parser->next, parser->err);
}

bool parser_at(const Parser *parser, Operator op) {
  return parser->token.kind == TOKEN_OPERATOR && parser->token.op == op;
}

bool parser_at_name(const Parser *parser, const char *name) {
  return parser->token.kind == TOKEN_NAME && text_is(parser->token.text, name);
}

Status parser_skip(Parser *parser, Operator op, bool *skipped) {
  *skipped = parser_at(parser, op);
  return *skipped ? parser_advance(parser) : STATUS_OK;
}

Status parser_skip_name(Parser *parser, const char *name, bool *skipped) {
  *skipped = parser_at_name(parser, name);
  return *skipped ? parser_advance(parser) : STATUS_OK;
}

Status parser_expect(Parser *parser, Operator op, const char *shown) {
  if (parser_at(parser, op)) return parser_advance(parser);
  char expected[32];
  snprintf(expected, sizeof expected, "\"%s\"", shown);
  return parse_unexpected(parser, expected);
}

Status parser_expect_name(Parser *parser, Text *name) {
  if (parser->token.kind != TOKEN_NAME) return parse_unexpected(parser, "a name");
  *name = parser->token.text;
  return parser_advance(parser);
}

static Status expect_word(Parser *parser, const char *word) {
  return parser_at_name(parser, word) ? parser_advance(parser) : parse_unexpected(parser, word);
}

static Status expect_kind(Parser *parser, TokenKind kind, const char *expected) {
  return parser->token.kind == kind ? parser_advance(parser) : parse_unexpected(parser, expected);
}

Status parser_node(Parser *parser, NodeKind kind, Node **node) {
  *node = arena_alloc(&parser->template->arena, 1, sizeof **node, parser->err);
  if (!*node) return STATUS_FAILED;
  const Token *token = &parser->token;
  **node = (Node){.kind = kind, .at = token->at, .end = token->at + token->size, .depth = 1, .symbol = -1};
  return STATUS_OK;
}

Status parser_wrap(Parser *parser, NodeKind kind, Node *inner, Node **node) {
  TRY(parser_node(parser, kind, node));
  (*node)->at = inner->at;
  (*node)->a = inner;
  return STATUS_OK;
}

Status parser_symbol(Parser *parser, Text name, int *symbol) {
  Vocab *symbols = &parser->template->symbols;
  *symbol = vocab_find(symbols, name.data, name.size);
  if (*symbol >= 0) return STATUS_OK;
  *symbol = (int)symbols->count;
  return vocab_add(symbols, name.data, name.size, *symbol, parser->err);
}

static int deeper(int depth, const Node *child) {
  return child && child->depth >= depth ? child->depth + 1 : depth;
}

static int deeper_list(int depth, const NodeList *list) {
  for (size_t i = 0; i < list->count; i++) depth = deeper(depth, list->nodes[i]);
  return depth;
}

Status parser_close(Parser *parser, Node *node) {
  node->end = parser->last_end;
  int depth = deeper(deeper(deeper(1, node->a), node->b), node->c);
  depth = deeper_list(deeper_list(deeper_list(depth, &node->items), &node->others), &node->params);
  for (size_t i = 0; i < node->n_args; i++) depth = deeper(depth, node->args[i].value);
  node->depth = depth;
  return depth <= NODE_MAX_DEPTH ? STATUS_OK : parse_fail(parser, "expressions are nested too deep");
}

Status parser_append(Parser *parser, NodeList *list, size_t *capacity, Node *node) {
  if (!arena_grow(&parser->template->arena, &list->nodes, list->count, capacity, sizeof node, parser->err))
    return STATUS_FAILED;
  list->nodes[list->count++] = node;
  return STATUS_OK;
}

/* --- tags */

/* The words that end the body of a tag, each in a tag of its own. */
typedef struct {
  const char *words[4]; /* NULL after the last one */
} Ends;

static bool at_end(const Parser *parser, const Ends *ends) {
  for (int i = 0; ends && i < 4 && ends->words[i]; i++)
    if (parser_at_name(parser, ends->words[i])) return true;
  return false;
}

static Status parse_statement(Parser *parser, size_t begin, Node **node);

/* Parses text and tags up to a tag of `ends` (NULL: to the end) and stops at that tag's word. */
static Status parse_body(Parser *parser, const Ends *ends, NodeList *body) {
  if (++parser->nesting > TEMPLATE_MAX_NESTING) return parse_fail(parser, "tags are nested too deep");
  size_t capacity = 0;
  while (parser->token.kind != TOKEN_END) {
    Node *node;
    if (parser->token.kind == TOKEN_DATA) {
      TRY(parser_node(parser, NODE_DATA, &node));
      node->text = parser->token.text;
      TRY(parser_advance(parser));
    } else if (parser->token.kind == TOKEN_VARIABLE_BEGIN) {
      TRY(parser_advance(parser));
      TRY(parser_node(parser, NODE_OUTPUT, &node));
      TRY(parse_tuple(parser, true, &node->a));
      TRY(parser_close(parser, node));
      TRY(expect_kind(parser, TOKEN_VARIABLE_END, "}}"));
    } else {
      size_t begin = parser->token.at;
      TRY(parser_advance(parser));
      if (at_end(parser, ends)) {
        parser->nesting--;
        return STATUS_OK;
      }
      TRY(parse_statement(parser, begin, &node));
      TRY(expect_kind(parser, TOKEN_BLOCK_END, "%}"));
    }
    TRY(parser_append(parser, body, &capacity, node));
  }
  parser->nesting--;
  if (!ends) return STATUS_OK;
  return parse_fail(parser, "the template ends, expected {%% %s %%}", ends->words[0]);
}

/* Parses the rest of a tag and its body. */
static Status parse_block(Parser *parser, const Ends *ends, NodeList *body) {
  bool colon;
  TRY(parser_skip(parser, OP_COLON, &colon));
  TRY(expect_kind(parser, TOKEN_BLOCK_END, "%}"));
  return parse_body(parser, ends, body);
}

/* Parses the rest of a tag, its body and the word `end`. */
static Status parse_whole_block(Parser *parser, const char *end, NodeList *body) {
  const Ends ends = {{end}};
  TRY(parse_block(parser, &ends, body));
  return parser_advance(parser);
}

static Status parse_set(Parser *parser, Node *node) {
  TRY(parse_target(parser, true, &node->a));
  bool assigns;
  TRY(parser_skip(parser, OP_ASSIGN, &assigns));
  if (assigns) return parse_tuple(parser, true, &node->b);
  node->kind = NODE_CAPTURE;
  TRY(parse_filters(parser, false, &node->b));
  return parse_whole_block(parser, "endset", &node->items);
}

static Status parse_for(Parser *parser, Node *node) {
  static const Ends ends = {{"endfor", "else"}};
  TRY(parse_target(parser, false, &node->a));
  TRY(expect_word(parser, "in"));
  TRY(parse_tuple(parser, false, &node->b));
  bool filtered, otherwise;
  TRY(parser_skip_name(parser, "if", &filtered));
  if (filtered) TRY(parse_expression(parser, &node->c));
  TRY(parser_skip_name(parser, "recursive", &node->flag));
  parser->n_loops++;
  TRY(parse_block(parser, &ends, &node->items));
  parser->n_loops--;
  TRY(parser_skip_name(parser, "else", &otherwise));
  return otherwise ? parse_whole_block(parser, "endfor", &node->others) : parser_advance(parser);
}

/* Parses from the condition to endif; each elif is a NODE_IF inside the previous one. */
static Status parse_if(Parser *parser, Node *first) {
  static const Ends ends = {{"endif", "elif", "else"}};
  Node *node = first, *chain[TEMPLATE_MAX_NESTING];
  int n = 0;
  for (bool more = true; more;) {
    if (n == TEMPLATE_MAX_NESTING) return parse_fail(parser, "more than %d branches", n);
    chain[n++] = node;
    TRY(parse_tuple(parser, false, &node->a));
    TRY(parse_block(parser, &ends, &node->items));
    TRY(parser_skip_name(parser, "elif", &more));
    if (!more) break;
    Node *branch;
    TRY(parser_node(parser, NODE_IF, &branch));
    size_t capacity = 0;
    TRY(parser_append(parser, &node->others, &capacity, branch));
    node = branch;
  }
  bool otherwise;
  TRY(parser_skip_name(parser, "else", &otherwise));
  TRY(otherwise ? parse_whole_block(parser, "endif", &node->others) : expect_word(parser, "endif"));
  while (--n > 0) TRY(parser_close(parser, chain[n]));
  return STATUS_OK;
}

static Status parse_with(Parser *parser, Node *node) {
  size_t capacity = 0;
  while (parser->token.kind != TOKEN_BLOCK_END) {
    if (node->params.count) TRY(parser_expect(parser, OP_COMMA, ","));
    Node *pair;
    TRY(parser_node(parser, NODE_SET, &pair));
    TRY(parse_target(parser, false, &pair->a));
    TRY(parser_expect(parser, OP_ASSIGN, "="));
    TRY(parse_expression(parser, &pair->b));
    TRY(parser_close(parser, pair));
    TRY(parser_append(parser, &node->params, &capacity, pair));
  }
  return parse_whole_block(parser, "endwith", &node->items);
}

/* Parses a macro's parameters: NAME nodes with their defaults in b. */
static Status parse_parameters(Parser *parser, Node *node) {
  TRY(parser_expect(parser, OP_LPAREN, "("));
  size_t capacity = 0;
  bool optional = false;
  while (!parser_at(parser, OP_RPAREN)) {
    if (node->params.count) TRY(parser_expect(parser, OP_COMMA, ","));
    Node *param;
    TRY(parser_node(parser, NODE_NAME, &param));
    TRY(parser_expect_name(parser, &param->text));
    TRY(parser_symbol(parser, param->text, &param->symbol));
    bool has_default;
    TRY(parser_skip(parser, OP_ASSIGN, &has_default));
    if (has_default)
      TRY(parse_expression(parser, &param->b));
    else if (optional)
      return parse_fail(parser, "a parameter without a default follows one that has one");
    optional |= has_default;
    TRY(parser_close(parser, param));
    TRY(parser_append(parser, &node->params, &capacity, param));
  }
  return parser_expect(parser, OP_RPAREN, ")");
}

/* Parses a macro's body and records which of caller, varargs and kwargs it uses, also for outer macros. */
static Status parse_macro_body(Parser *parser, const char *end, Node *node) {
  bool caller = parser->uses_caller, varargs = parser->uses_varargs, kwargs = parser->uses_kwargs;
  int n_loops = parser->n_loops;
  parser->uses_caller = parser->uses_varargs = parser->uses_kwargs = false;
  parser->n_loops = 0;
  TRY(parse_whole_block(parser, end, &node->items));
  node->uses_caller = parser->uses_caller;
  node->uses_varargs = parser->uses_varargs;
  node->uses_kwargs = parser->uses_kwargs;
  parser->uses_caller |= caller;
  parser->uses_varargs |= varargs;
  parser->uses_kwargs |= kwargs;
  parser->n_loops = n_loops;
  return STATUS_OK;
}

static Status parse_macro(Parser *parser, Node *node) {
  TRY(parser_expect_name(parser, &node->text));
  TRY(parser_symbol(parser, node->text, &node->symbol));
  TRY(parse_parameters(parser, node));
  return parse_macro_body(parser, "endmacro", node);
}

static Status parse_call_block(Parser *parser, Node *node) {
  if (parser_at(parser, OP_LPAREN)) TRY(parse_parameters(parser, node));
  TRY(parse_expression(parser, &node->a));
  if (node->a->kind != NODE_CALL) return parse_fail(parser, "{%% call %%} expects a call");
  return parse_macro_body(parser, "endcall", node);
}

static Status parse_filtered(Parser *parser, Node *node) {
  TRY(parse_filters(parser, true, &node->b));
  return parse_whole_block(parser, "endfilter", &node->items);
}

/* {% generation %}, with which transformers marks the text to train on: a scope of its own. */
static Status parse_generation(Parser *parser, Node *node) {
  return parse_whole_block(parser, "endgeneration", &node->items);
}

static Status parse_print(Parser *parser, Node *node) {
  TRY(parse_tuple(parser, true, &node->a));
  if (node->a->kind == NODE_TUPLE)
    return parse_fail(parser, "{%% print %%} of several values is not supported");
  return STATUS_OK;
}

static Status parse_leave(Parser *parser, Node *node) {
  return parser->n_loops ? STATUS_OK : parse_fail(parser, "break or continue outside of a for");
}

static const struct {
  const char *word;
  NodeKind kind;
  Status (*parse)(Parser *parser, Node *node);
} tags[] = {
    {"set", NODE_SET, parse_set},
    {"for", NODE_FOR, parse_for},
    {"if", NODE_IF, parse_if},
    {"with", NODE_WITH, parse_with},
    {"macro", NODE_MACRO, parse_macro},
    {"call", NODE_CALL_BLOCK, parse_call_block},
    {"filter", NODE_FILTERED, parse_filtered},
    {"generation", NODE_WITH, parse_generation},
    {"print", NODE_OUTPUT, parse_print},
    {"break", NODE_BREAK, parse_leave},
    {"continue", NODE_CONTINUE, parse_leave},
};

/* Messages about a tag show it from {% to %}. */
static void show_tag(const Parser *parser, size_t begin, Node *node) {
  Text source = parser->lexer.source;
  size_t end = text_find(source, text_literal("%}"), begin, source.size);
  node->at = begin;
  node->end = end == SIZE_MAX ? begin : end + 2;
}

static Status parse_statement(Parser *parser, size_t begin, Node **node) {
  for (size_t i = 0; i < sizeof tags / sizeof *tags; i++) {
    if (!parser_at_name(parser, tags[i].word)) continue;
    TRY(parser_node(parser, tags[i].kind, node));
    TRY(parser_advance(parser));
    TRY(tags[i].parse(parser, *node));
    TRY(parser_close(parser, *node));
    show_tag(parser, begin, *node);
    return STATUS_OK;
  }
  if (parser->token.kind != TOKEN_NAME) return parse_unexpected(parser, "the name of a tag");
  return parse_fail(parser, "the tag {%% %.*s %%} is not supported here", (int)parser->token.text.size,
                    parser->token.text.data);
}

/* --- unknown names */

static Status check_list(const Template *template, const NodeList *list, bool soft, Error *err);

/* Refuses an unknown filter or test, unless it is inside an if tag or if-else expression (`soft`), which may
 * never reach it. If it is reached, rendering fails. As in jinja2, the body of a loop, a macro or another
 * scope inside such an if is checked strictly all the same. */
static Status check_names(const Template *template, const Node *node, bool soft, Error *err) {
  if (!node) return STATUS_OK;
  bool is_named = node->kind == NODE_FILTER || node->kind == NODE_TEST;
  if (is_named && !node->builtin && !soft)
    return error_set(err, STATUS_MODEL, "%s: line %d: there is no %s \"%.*s\"", template->name,
                     template_line(template, node->at), node->kind == NODE_FILTER ? "filter" : "test",
                     (int)node->text.size, node->text.data);
  bool inside = soft || node->kind == NODE_IF || node->kind == NODE_COND;
  TRY(check_names(template, node->a, inside, err));
  TRY(check_names(template, node->b, inside, err));
  TRY(check_names(template, node->c, inside, err));
  for (size_t i = 0; i < node->n_args; i++) TRY(check_names(template, node->args[i].value, inside, err));
  TRY(check_list(template, &node->params, inside, err));
  bool is_scope = node->kind == NODE_FOR || node->kind == NODE_MACRO || node->kind == NODE_CALL_BLOCK ||
                  node->kind == NODE_CAPTURE || node->kind == NODE_FILTERED || node->kind == NODE_WITH;
  TRY(check_list(template, &node->items, inside && !is_scope, err));
  return check_list(template, &node->others, inside && !is_scope, err);
}

static Status check_list(const Template *template, const NodeList *list, bool soft, Error *err) {
  for (size_t i = 0; i < list->count; i++) TRY(check_names(template, list->nodes[i], soft, err));
  return STATUS_OK;
}

/* --- the template */

static Status parse_into(Template *template, const char *text, size_t size, Error *err) {
  Parser parser = {.template = template, .err = err};
  TRY(parser_symbol(&parser, text_literal("loop"), &template->loop));
  TRY(parser_symbol(&parser, text_literal("caller"), &template->caller));
  TRY(parser_symbol(&parser, text_literal("varargs"), &template->varargs));
  TRY(parser_symbol(&parser, text_literal("kwargs"), &template->kwargs));
  TRY(lexer_open(template->name, text, size, &template->arena, &parser.lexer, err));
  template->source = parser.lexer.source;
  TRY(lexer_next(&parser.lexer, &parser.next, err));
  TRY(parser_advance(&parser));
  TRY(parse_body(&parser, NULL, &template->body));
  return check_list(template, &template->body, false, err);
}

Status template_parse(const char *name, const char *text, size_t size, Template **parsed, Error *err) {
  *parsed = NULL;
  OWNED(template_release) Template *template = NULL;
  TRY(NEW(template, 1, "a chat template", err));
  template->name = strdup(name);
  if (!template->name) return error_set(err, STATUS_FAILED, "out of memory: a chat template");
  TRY(parse_into(template, text, size, err));
  *parsed = TAKE(template);
  return STATUS_OK;
}

void template_close(Template *parsed) {
  if (!parsed) return;
  arena_release(&parsed->arena);
  vocab_release(&parsed->symbols);
  free(parsed->name);
  free(parsed);
}

int template_line(const Template *template, size_t at) {
  int line = 1;
  for (size_t i = 0; i < at; i++) line += template->source.data[i] == '\n';
  return line;
}

bool template_mentions(const Template *parsed, const char *variable) {
  return vocab_find(&parsed->symbols, variable, strlen(variable)) >= 0;
}

bool template_writes(const Template *parsed, const char *string) {
  return text_find(parsed->source, text_literal(string), 0, parsed->source.size) != SIZE_MAX;
}
