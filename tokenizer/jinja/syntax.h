/* syntax.h - private to this folder: a parsed template. */
#pragma once

#include "tokenizer/jinja/value.h"
#include "tokenizer/vocab.h"

/* Limits of a template's text. */
enum {
  TEMPLATE_MAX_SIZE = 1 << 20, /* bytes; the longest in use have some 20,000 */
  TEMPLATE_MAX_BRACKETS = 100, /* open at once */
  TEMPLATE_MAX_NESTING = 200,  /* recursion of the parser: a bracket takes two levels, a tag one */
};

typedef enum {
  TOKEN_END, /* end of the template */
  TOKEN_DATA,
  TOKEN_BLOCK_BEGIN,
  TOKEN_BLOCK_END,
  TOKEN_VARIABLE_BEGIN,
  TOKEN_VARIABLE_END,
  TOKEN_NAME,
  TOKEN_STRING,
  TOKEN_INTEGER,
  TOKEN_FLOAT,
  TOKEN_OPERATOR,
} TokenKind;

typedef enum {
  OP_NONE,
  OP_ADD,
  OP_SUB,
  OP_MUL,
  OP_DIV,
  OP_FLOORDIV,
  OP_MOD,
  OP_POW,
  OP_TILDE,
  OP_EQ,
  OP_NE,
  OP_LT,
  OP_LE,
  OP_GT,
  OP_GE,
  OP_IN,
  OP_NOT_IN,
  OP_ASSIGN,
  OP_DOT,
  OP_COLON,
  OP_COMMA,
  OP_SEMICOLON,
  OP_PIPE,
  OP_LPAREN,
  OP_RPAREN,
  OP_LBRACKET,
  OP_RBRACKET,
  OP_LBRACE,
  OP_RBRACE,
} Operator;

typedef struct {
  TokenKind kind;
  Operator op;     /* OPERATOR */
  int line;        /* from 1 */
  size_t at, size; /* range in the source */
  Text text;       /* of DATA and NAME; of STRING, the value */
  int64_t integer;
  double number;
} Token;

typedef enum { LEX_DATA, LEX_BLOCK, LEX_VARIABLE } LexState;

typedef struct {
  const char *name; /* the template's name, for messages */
  Arena *arena;
  Text source; /* with \n as line ends */
  size_t at;
  int line;
  LexState state;
  bool at_line_start;                  /* the byte before `at` is a newline, or `at` is 0 */
  bool begins_tag;                     /* the data before the next tag was read, the tag was not */
  char closing[TEMPLATE_MAX_BRACKETS]; /* [n_open] the bracket that closes each open one */
  int n_open;
} Lexer;

/* Starts on a template's text, which is copied. */
Status lexer_open(const char *name, const char *text, size_t size, Arena *arena, Lexer *lexer, Error *err);
Status lexer_next(Lexer *lexer, Token *token, Error *err);

/* --- the tree */

typedef struct Node Node;
typedef struct Builtin Builtin;

typedef struct {
  Text name; /* name of a keyword argument; data NULL: positional */
  int stars; /* 1: *value, 2: **value */
  Node *value;
} Argument;

typedef enum {
  /* expressions */
  NODE_CONST,     /* value */
  NODE_NAME,      /* symbol */
  NODE_LIST,      /* items */
  NODE_TUPLE,     /* items; also as a target */
  NODE_DICT,      /* items: key, value, key, value, ... */
  NODE_COND,      /* b if a else c (or NULL) */
  NODE_OR,        /* a or b */
  NODE_AND,       /* a and b */
  NODE_NOT,       /* not a */
  NODE_COMPARE,   /* a, then items: OPERAND nodes, each compared with the one before */
  NODE_OPERAND,   /* op a */
  NODE_BINARY,    /* a op b */
  NODE_NEGATE,    /* -a */
  NODE_PLUS,      /* +a */
  NODE_CONCAT,    /* items, joined by ~ */
  NODE_ATTRIBUTE, /* a.text */
  NODE_ITEM,      /* a[b] */
  NODE_SLICE,     /* a:b:c, any NULL; only as b of ITEM */
  NODE_CALL,      /* a(args) */
  NODE_FILTER,    /* a | text(args); a NULL: the text of a block */
  NODE_TEST,      /* a is text(args) */
  NODE_MEMBER,    /* as a target: symbol.text, of a namespace */
  /* statements */
  NODE_DATA,       /* text */
  NODE_OUTPUT,     /* {{ a }} */
  NODE_IF,         /* if a: items, else: others (an elif is an IF alone in others) */
  NODE_FOR,        /* for a in b if c: items, else: others; flag: recursive */
  NODE_SET,        /* a = b */
  NODE_CAPTURE,    /* a = the output of items, through the filters b (or NULL) */
  NODE_MACRO,      /* its name: symbol, text; params: NAME nodes, their defaults in b; items */
  NODE_CALL_BLOCK, /* call a: with params and items as its caller() */
  NODE_FILTERED,   /* the output of items, through the filters b */
  NODE_WITH,       /* params: SET nodes, a = b; items in a scope of their own */
  NODE_BREAK,
  NODE_CONTINUE,
} NodeKind;

typedef struct {
  Node **nodes; /* [count] */
  size_t count;
} NodeList;

struct Node {
  NodeKind kind;
  Operator op;
  size_t at, end; /* range in the source, for messages */
  int depth;      /* levels of the tree from this node on, 1 without children */
  int symbol;     /* a variable's number */
  bool flag;
  Text text;
  Value value;
  Node *a, *b, *c;
  NodeList items, others, params;
  Argument *args; /* [n_args] */
  size_t n_args;
  const Builtin *builtin;                      /* FILTER, TEST: NULL if the name is unknown */
  bool uses_caller, uses_varargs, uses_kwargs; /* MACRO, CALL_BLOCK: names that occur in the body */
};

struct Template {
  Arena arena;
  char *name;
  Text source;
  Vocab symbols; /* names of variables, numbered from 0 */
  NodeList body;
  int loop, caller, varargs, kwargs; /* symbols */
};

/* The line of an offset in the source, from 1. */
int template_line(const Template *template, size_t at);
