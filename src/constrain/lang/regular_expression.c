/* regular_expression.c - parses an expression to a tree and turns the tree into a language; see
 * regular_expression.h.
 *
 * Assertions have no language of their own. The tree is therefore compiled from its end: each part is put in
 * front of the language of what may follow it. An assertion restricts that language. */
#include "constrain/lang/regular_expression.h"

#include <stdlib.h>
#include <string.h>

#include "constrain/lang/regular_expression_parse.h"

typedef struct {
  Langs *langs;
  const RegexTree *tree;
  const char *refusal; /* NULL: none so far */
} Compiler;

/* Pushes the indices of a node's children on langs->stack; false on failure. */
static bool push_children(Compiler *c, const RegexNode *node) {
  for (int i = node->child; i >= 0; i = c->tree->nodes[i].next)
    if (!lang_push(c->langs, (uint32_t)i)) return false;
  return langs_work(c->langs, 1);
}

/* The language of a part in which no '^' and no '$' matches. */
static Lang plain(Compiler *c, int index) {
  Langs *l = c->langs;
  const RegexNode *node = &c->tree->nodes[index];
  const size_t start = l->n_stack;
  if (!langs_work(l, 4)) return LANG_NONE;
  switch (node->kind) {
  case REGEX_SET: return node->lang;
  case REGEX_REPEAT: return lang_repeat(l, plain(c, node->child), node->min, node->max);
  case REGEX_SEQUENCE:
  case REGEX_EITHER:
    for (int i = node->child; i >= 0; i = c->tree->nodes[i].next) lang_push(l, plain(c, i));
    return node->kind == REGEX_SEQUENCE ? lang_sequence(l, start) : lang_join_pushed(l, start, lang_or_many);
  default: return LANG_NONE;
  }
}

static Lang compile(Compiler *c, int index, bool at_start, Lang rest);

/* The strings that a lookahead allows to follow. */
static Lang ahead(Compiler *c, int index, bool at_start) {
  const RegexNode *node = &c->tree->nodes[index];
  const Lang strings = compile(c, node->child, at_start, LANG_ALL);
  return node->negative ? lang_not(c->langs, strings) : strings;
}

/* compile() of a sequence. A part is where the sequence begins if all parts before it are always empty. */
static Lang compile_sequence(Compiler *c, const RegexNode *sequence, bool at_start, Lang rest) {
  Langs *l = c->langs;
  const size_t start = l->n_stack;
  size_t n_at_start = 0, at = 0;
  bool may_be_later = false;
  for (int i = sequence->child; i >= 0; i = c->tree->nodes[i].next, at++) {
    const RegexNode *part = &c->tree->nodes[i];
    if (may_be_later && part->has_start) c->refusal = "'^' after what may be empty";
    if (!at_start) continue;
    n_at_start = at + 1;
    at_start = part->only_empty;
    may_be_later = !part->only_empty && part->can_be_empty;
  }
  if (!push_children(c, sequence)) rest = LANG_NONE;
  const size_t end = l->n_stack; /* neighbouring lookaheads lie from here on, to be intersected at once */
  for (size_t n = end - start; n > 0; n--) {
    const int part = (int)l->stack[start + n - 1];
    if (c->tree->nodes[part].kind != REGEX_AHEAD) {
      rest = compile(c, part, n <= n_at_start, rest);
      continue;
    }
    lang_push(l, ahead(c, part, n <= n_at_start));
    if (n > 1 && c->tree->nodes[l->stack[start + n - 2]].kind == REGEX_AHEAD) continue;
    lang_push(l, rest);
    rest = lang_and_all(l, l->stack + end, l->n_stack - end);
    l->n_stack = end;
  }
  l->n_stack = start;
  return rest;
}

/* A repetition whose part has '^' or '$', and what may follow it. */
typedef struct {
  Lang once; /* a round in which neither matches */
  Lang last; /* a last round, in which '$' may match, then the rest */
  /* A round after which the text ends. The rounds that `min` still asks for then match the empty text;
   * LANG_NONE: they cannot. */
  Lang ends;
  Lang rest;
} Rounds;

/* The language of min to max rounds in which no '^' matches, then the rest. */
static Lang join_rounds(Langs *l, const Rounds *r, uint32_t min, uint32_t max) {
  const uint32_t less = min > 0 ? min - 1 : 0, fewer = max == LANG_NO_END ? max : max - 1;
  const Lang made = lang_or(l, lang_then(l, lang_repeat(l, r->once, min, max), r->rest),
                            lang_then(l, lang_repeat(l, r->once, less, fewer), r->last));
  return lang_or(l, made, lang_then(l, lang_repeat(l, r->once, 0, fewer), r->ends));
}

/* compile() of a repetition whose part has '^' or '$'. '^' can match only up to the first round that is not
 * empty. '$' can match only from the last such round on. */
static Lang compile_anchored_repeat(Compiler *c, const RegexNode *node, bool at_start, Lang rest) {
  static const unsigned char none = 0xff; /* a byte that no part takes */
  Langs *l = c->langs;
  const int part = node->child;
  const bool several = node->min > 1, may_end = several && lang_has_empty(l, rest);
  const uint32_t less = node->min ? node->min - 1 : 0,
                 fewer = node->max == LANG_NO_END ? node->max : node->max - 1;
  Rounds r = {plain(c, part), compile(c, part, false, rest), LANG_NONE, rest};
  const Lang at_end = may_end ? compile(c, part, false, LANG_EMPTY) : LANG_NONE;
  if (lang_has_empty(l, at_end)) r.ends = at_end;
  Lang made = join_rounds(l, &r, node->min, node->max);
  if (!at_start || !node->has_start) return made;
  const bool begins_empty = several && lang_contains(l, compile(c, part, true, lang_byte(l, none)), &none, 1);
  const Lang after = join_rounds(l, &r, begins_empty ? 0 : less, fewer);
  made = lang_or(l, made, compile(c, part, true, after));
  /* In an empty text '^' and '$' match in every round. */
  if (may_end && lang_has_empty(l, compile(c, part, true, LANG_EMPTY))) made = lang_or(l, made, LANG_EMPTY);
  return made;
}

static Lang compile_repeat(Compiler *c, const RegexNode *node, bool at_start, Lang rest) {
  if (node->max > 16) {
    if (!node->has_ahead) return compile_anchored_repeat(c, node, at_start, rest);
    c->refusal = "lookahead inside a repetition";
    return LANG_NONE;
  }
  Lang made = rest;
  for (uint32_t i = node->max; i-- > 0;) {
    bool first = i == 0 && at_start;
    if (node->has_start && i > 0 && c->tree->nodes[node->child].can_be_empty)
      c->refusal = "'^' inside a repetition";
    Lang once = compile(c, node->child, first, made);
    made = i >= node->min ? lang_or(c->langs, rest, once) : once;
  }
  return made;
}

/* The strings of this part followed by `rest`; at_start: the part begins where the text does. */
static Lang compile(Compiler *c, int index, bool at_start, Lang rest) {
  Langs *l = c->langs;
  const RegexNode *node = &c->tree->nodes[index];
  if (!langs_work(l, 4)) return LANG_NONE;
  if (!node->has_assertion) return lang_then(l, plain(c, index), rest);
  switch (node->kind) {
  case REGEX_START: return at_start ? rest : LANG_NONE;
  case REGEX_END: return lang_has_empty(l, rest) ? LANG_EMPTY : LANG_NONE;
  case REGEX_AHEAD: return lang_and(l, rest, ahead(c, index, at_start));
  case REGEX_SEQUENCE: return compile_sequence(c, node, at_start, rest);
  case REGEX_EITHER: {
    const size_t start = l->n_stack;
    for (int i = node->child; i >= 0; i = c->tree->nodes[i].next) lang_push(l, compile(c, i, at_start, rest));
    return lang_join_pushed(l, start, lang_or_many);
  }
  case REGEX_REPEAT: return compile_repeat(c, node, at_start, rest);
  default: return LANG_NONE;
  }
}

Lang lang_pattern(Langs *langs, const char *expression) {
  Lang made = LANG_NONE;
  Error err;
  const Status status =
      regular_expression_parse(langs, expression, strlen(expression), REGEX_WHOLE, &made, &err);
  if (status != STATUS_OK) langs_fail(langs, status, err.text);
  return made;
}

Status regular_expression_parse(Langs *langs, const char *text, size_t size, RegexUse use, Lang *out,
                                Error *err) {
  OWNED(regex_tree_release) RegexTree tree = {0};
  const bool whole = use == REGEX_WHOLE;
  const Status status = regex_tree_parse(langs, text, size, whole, &tree, err);
  langs->unsupported = tree.unsupported;
  TRY(status);
  Compiler c = {langs, &tree, NULL};
  *out = compile(&c, tree.root, true, whole ? LANG_EMPTY : LANG_ALL);
  if (!whole) {
    Lang before = lang_repeat(langs, lang_any_character(langs), 1, LANG_NO_END);
    *out = lang_or(langs, *out, lang_then(langs, before, compile(&c, tree.root, false, LANG_ALL)));
  }
  langs->unsupported = c.refusal != NULL;
  return c.refusal ? error_set(err, STATUS_USAGE, "%s is not supported", c.refusal) : langs_check(langs, err);
}
