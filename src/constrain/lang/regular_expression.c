/* regular_expression.c - parses an expression to a tree and turns the tree into a language; see
 * regular_expression.h.
 *
 * Called by: schema files, formats.c. Assertions have no language of their own: the tree is compiled from
 * its end, each part in front of the language of what may follow it, which an assertion restricts by an
 * intersection. */
#include "constrain/lang/regular_expression.h"

#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"
#include "constrain/lang/regular_expression_parse.h"

typedef struct {
  Langs *langs;
  const RegexTree *tree;
  const char *refusal; /* NULL: none so far */
} Compiler;

static Lang set_lang(Compiler *c, const RegexNode *node) {
  Langs *l = c->langs;
  const CharSet *set = &c->tree->sets[node->set];
  Lang made = LANG_NONE;
  for (size_t i = 0; i < set->count; i++)
    made = lang_or(l, made, lang_characters(l, set->ranges[i].first, set->ranges[i].last));
  return lang_declare_text(l, made);
}

/* The language of a part whose '^' and '$' do not hold. */
static Lang plain(Compiler *c, int index) {
  Langs *l = c->langs;
  const RegexNode *node = &c->tree->nodes[index];
  Lang made = node->kind == REGEX_EITHER ? LANG_NONE : LANG_EMPTY;
  switch (node->kind) {
  case REGEX_SET: return set_lang(c, node);
  case REGEX_REPEAT: return lang_repeat(l, plain(c, node->child), node->min, node->max);
  case REGEX_SEQUENCE: {
    int n = 0;
    for (int i = node->child; i >= 0; i = c->tree->nodes[i].next) n++;
    int *parts = malloc((size_t)(n + 1) * sizeof *parts);
    if (!parts) return langs_fail(l, STATUS_FAILED, "out of memory"), LANG_NONE;
    n = 0;
    for (int i = node->child; i >= 0; i = c->tree->nodes[i].next) parts[n++] = i;
    while (n-- > 0) made = lang_then(l, plain(c, parts[n]), made);
    free(parts);
    return made;
  }
  case REGEX_EITHER:
    for (int i = node->child; i >= 0; i = c->tree->nodes[i].next) made = lang_or(l, made, plain(c, i));
    return made;
  default: return LANG_NONE;
  }
}

static Lang compile(Compiler *c, int index, bool at_start, Lang rest);

/* The parts of a sequence from the one at `index`. */
static Lang compile_sequence(Compiler *c, int index, bool at_start, Lang rest) {
  if (index < 0) return rest;
  const RegexNode *node = &c->tree->nodes[index];
  bool later_start = at_start && node->only_empty;
  if (at_start && !node->only_empty && node->can_be_empty)
    for (int i = node->next; i >= 0; i = c->tree->nodes[i].next)
      if (c->tree->nodes[i].has_start) c->refusal = "'^' after what may be empty";
  return compile(c, index, at_start, compile_sequence(c, node->next, later_start, rest));
}

/* A repetition whose part has '^' or '$': these can hold only in its first and in its last round. */
static Lang compile_anchored_repeat(Compiler *c, const RegexNode *node, bool at_start, Lang rest) {
  Langs *l = c->langs;
  Lang once = plain(c, node->child);
  uint32_t min = node->min, less = min ? min - 1 : 0,
           fewer = node->max == LANG_NO_END ? node->max : node->max - 1;
  Lang last = lang_then(l, lang_repeat(l, once, less, fewer), compile(c, node->child, false, rest));
  Lang made = lang_or(l, lang_then(l, lang_repeat(l, once, min, node->max), rest), last);
  if (!at_start || !node->has_start) return made;
  Lang after = lang_then(l, lang_repeat(l, once, less, fewer), rest);
  return lang_or(l, made, compile(c, node->child, true, after));
}

static bool has_lookahead(const Compiler *c, int index) {
  const RegexNode *node = &c->tree->nodes[index];
  if (node->kind == REGEX_AHEAD) return true;
  for (int i = node->child; i >= 0; i = c->tree->nodes[i].next)
    if (has_lookahead(c, i)) return true;
  return false;
}

static Lang compile_repeat(Compiler *c, const RegexNode *node, bool at_start, Lang rest) {
  if (node->max > 16) {
    if (!has_lookahead(c, node->child)) return compile_anchored_repeat(c, node, at_start, rest);
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
  if (!node->has_assertion) return lang_then(l, plain(c, index), rest);
  switch (node->kind) {
  case REGEX_START: return at_start ? rest : LANG_NONE;
  case REGEX_END: return lang_has_empty(l, rest) ? LANG_EMPTY : LANG_NONE;
  case REGEX_AHEAD: {
    Lang ahead = compile(c, node->child, at_start, LANG_ALL);
    return lang_and(l, rest, node->negative ? lang_not(l, ahead) : ahead);
  }
  case REGEX_SEQUENCE: return compile_sequence(c, node->child, at_start, rest);
  case REGEX_EITHER: {
    Lang made = LANG_NONE;
    for (int i = node->child; i >= 0; i = c->tree->nodes[i].next)
      made = lang_or(l, made, compile(c, i, at_start, rest));
    return made;
  }
  case REGEX_REPEAT: return compile_repeat(c, node, at_start, rest);
  default: return LANG_NONE;
  }
}

Status regular_expression_parse(Langs *langs, const char *text, size_t size, bool whole, Lang *out,
                                Error *err) {
  RegexTree tree = {0};
  Status status = regex_tree_parse(text, size, &tree, err);
  if (status == STATUS_OK) {
    Compiler c = {langs, &tree, NULL};
    *out = compile(&c, tree.root, true, whole ? LANG_EMPTY : LANG_ALL);
    if (!whole) {
      Lang before = lang_repeat(langs, lang_any_character(langs), 1, LANG_NO_END);
      *out = lang_or(langs, *out, lang_then(langs, before, compile(&c, tree.root, false, LANG_ALL)));
    }
    tree.unsupported = c.refusal != NULL;
    status =
        c.refusal ? error_set(err, STATUS_USAGE, "%s is not supported", c.refusal) : langs_check(langs, err);
  }
  langs->unsupported = tree.unsupported;
  regex_tree_release(&tree);
  return status;
}
