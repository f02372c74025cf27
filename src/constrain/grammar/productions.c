/* productions.c - see productions.h. Called by: grammar.c. */
#include "constrain/grammar/productions.h"

#include <stdlib.h>
#include <string.h>

enum { MAX_SYMBOLS = 1 << 20, MAX_DEPTH = 20000 };
#define NONE UINT32_MAX

typedef struct {
  Langs *langs;
  const char *name;
  const GbnfTree *tree;
  Productions *out;
  /* [tree->n_rules] */
  uint8_t *visits;      /* 0: not yet, 1: being visited, 2: done */
  bool *is_nested;      /* refers to itself or to a token, or to a rule that does */
  bool *node_is_nested; /* [tree->n_nodes] is_nested of nodes */
  Lang *meanings;       /* languages of rules that are not nested; LANG_UNKNOWN: not made yet */
  uint32_t *numbers;    /* numbers of nested rules in `out`, or NONE */
  int depth;
  Error *err;
} Maker;

static Status go_deeper(Maker *m) {
  if (++m->depth <= MAX_DEPTH) return STATUS_OK;
  return error_set(m->err, STATUS_USAGE, "%s: rules refer to one another over %d deep", m->name, MAX_DEPTH);
}

/* --- what is regular */

static Status visit_rule(Maker *m, uint32_t rule);

static Status visit_node(Maker *m, int index) {
  const GbnfNode *node = &m->tree->nodes[index];
  bool nested = node->kind == GBNF_TOKEN;
  TRY(go_deeper(m));
  if (node->kind == GBNF_RULE) {
    if (m->visits[node->rule] == 0) TRY(visit_rule(m, node->rule));
    nested |= m->visits[node->rule] == 1 || m->is_nested[node->rule];
  }
  for (int i = node->child; i >= 0; i = m->tree->nodes[i].next) {
    TRY(visit_node(m, i));
    nested |= m->node_is_nested[i];
  }
  m->node_is_nested[index] = nested;
  m->depth--;
  return STATUS_OK;
}

static Status visit_rule(Maker *m, uint32_t rule) {
  m->visits[rule] = 1;
  TRY(visit_node(m, m->tree->rules[rule].node));
  m->visits[rule] = 2;
  m->is_nested[rule] = m->node_is_nested[m->tree->rules[rule].node];
  return STATUS_OK;
}

/* The language of a node that is not nested. */
static Lang lang_of(Maker *m, int index) {
  Langs *l = m->langs;
  const GbnfNode *node = &m->tree->nodes[index];
  const size_t start = l->n_stack;
  if (!langs_work(l, 4)) return LANG_NONE;
  switch ((GbnfKind)node->kind) {
  case GBNF_TOKEN: return LANG_NONE; /* never asked for */
  case GBNF_LANG: return node->lang;
  case GBNF_RULE:
    if (m->meanings[node->rule] == LANG_UNKNOWN)
      m->meanings[node->rule] = lang_of(m, m->tree->rules[node->rule].node);
    return m->meanings[node->rule];
  case GBNF_SEQUENCE:
  case GBNF_EITHER:
    for (int i = node->child; i >= 0; i = m->tree->nodes[i].next) lang_push(l, lang_of(m, i));
    return node->kind == GBNF_SEQUENCE ? lang_sequence(l, start) : lang_join_pushed(l, start, lang_or_many);
  case GBNF_REPEAT: return lang_repeat(l, lang_of(m, node->child), node->min, node->max);
  }
  return LANG_NONE;
}

/* --- productions */

typedef struct {
  Symbol *items; /* [count] */
  size_t count, capacity;
} SymbolList;

static Status append(SymbolList *list, SymbolKind kind, uint32_t number, Error *err) {
  return APPEND(list->items, list->count, list->capacity, "a grammar", err, (Symbol){kind, number});
}

static Status add_rule(Productions *out, uint32_t owner, uint32_t *number, Error *err) {
  TRY(mem_grow(&out->rules, &out->rules_capacity, out->n_rules + 1, sizeof *out->rules, "a grammar", err));
  *number = (uint32_t)out->n_rules;
  out->rules[out->n_rules++] = (Rule){NO_ALTERNATIVE, owner};
  return STATUS_OK;
}

static Status add_alternative(const char *name, Productions *out, uint32_t rule, const SymbolList *list,
                              Error *err) {
  const size_t n = list->count + 1;
  if (out->n_symbols + n > MAX_SYMBOLS)
    return error_set(err, STATUS_USAGE, "%s: the grammar has over %d symbols", name, MAX_SYMBOLS);
  TRY(mem_grow(&out->symbols, &out->symbols_capacity, out->n_symbols + n, sizeof *out->symbols, "a grammar",
               err));
  TRY(mem_grow(&out->alternatives, &out->alternatives_capacity, out->n_alternatives + 1,
               sizeof *out->alternatives, "a grammar", err));
  out->alternatives[out->n_alternatives] =
      (Alternative){(uint32_t)out->n_symbols, rule, out->rules[rule].first};
  out->rules[rule].first = (uint32_t)out->n_alternatives++;
  if (list->count) memcpy(out->symbols + out->n_symbols, list->items, list->count * sizeof *list->items);
  out->n_symbols += n;
  out->symbols[out->n_symbols - 1] = (Symbol){SYMBOL_END, 0};
  return STATUS_OK;
}

static Status add_node(Maker *m, uint32_t rule, int index);

/* The number in `out` of a nested rule of the tree. On first use the rule is added. */
static Status nested_rule(Maker *m, uint32_t rule, uint32_t *number) {
  if (m->numbers[rule] == NONE) {
    TRY(add_rule(m->out, rule, &m->numbers[rule], m->err));
    TRY(add_node(m, m->numbers[rule], m->tree->rules[rule].node));
  }
  *number = m->numbers[rule];
  return STATUS_OK;
}

/* A rule that stands for a nested node. */
static Status rule_of(Maker *m, uint32_t owner, int index, uint32_t *number) {
  const GbnfNode *node = &m->tree->nodes[index];
  if (node->kind == GBNF_RULE) return nested_rule(m, node->rule, number);
  TRY(add_rule(m->out, owner, number, m->err));
  return add_node(m, *number, index);
}

static Status add_symbol(Maker *m, uint32_t owner, int index, SymbolList *list) {
  if (!m->node_is_nested[index]) return append(list, SYMBOL_LANG, lang_of(m, index), m->err);
  if (m->tree->nodes[index].kind == GBNF_TOKEN)
    return append(list, SYMBOL_TOKEN, m->tree->nodes[index].token, m->err);
  uint32_t number;
  TRY(rule_of(m, owner, index, &number));
  return append(list, SYMBOL_RULE, number, m->err);
}

/* Appends the symbols of a sequence; adjacent languages become one symbol. */
static Status add_sequence(Maker *m, uint32_t owner, const GbnfNode *sequence, SymbolList *list) {
  Langs *l = m->langs;
  for (int i = sequence->child; i >= 0;) {
    const size_t start = l->n_stack;
    for (; i >= 0 && !m->node_is_nested[i]; i = m->tree->nodes[i].next) lang_push(l, lang_of(m, i));
    const size_t n = l->n_stack - start;
    const Lang made = lang_sequence(l, start);
    if (n > 0) TRY(append(list, SYMBOL_LANG, made, m->err));
    for (; i >= 0 && m->node_is_nested[i]; i = m->tree->nodes[i].next) TRY(add_symbol(m, owner, i, list));
  }
  return langs_check(l, m->err);
}

/* Adds `child` min times, then a chain of optional rules. Each rule adds `child` once more and goes on with
 * the next rule or, without a max, with itself. */
static Status add_repeat(Maker *m, uint32_t rule, const GbnfNode *node, SymbolList *list) {
  const uint32_t owner = m->out->rules[rule].owner;
  uint32_t child, more = NONE;
  TRY(rule_of(m, owner, node->child, &child));
  const uint32_t n_more = node->max == LANG_NO_END ? 1 : node->max - node->min;
  for (uint32_t i = 0; i < n_more; i++) {
    uint32_t fresh;
    TRY(add_rule(m->out, owner, &fresh, m->err));
    list->count = 0;
    TRY(add_alternative(m->name, m->out, fresh, list, m->err));
    TRY(append(list, SYMBOL_RULE, child, m->err));
    const uint32_t after = node->max == LANG_NO_END ? fresh : more;
    if (after != NONE) TRY(append(list, SYMBOL_RULE, after, m->err));
    TRY(add_alternative(m->name, m->out, fresh, list, m->err));
    more = fresh;
  }
  list->count = 0;
  for (uint32_t i = 0; i < node->min; i++) TRY(append(list, SYMBOL_RULE, child, m->err));
  if (more != NONE) TRY(append(list, SYMBOL_RULE, more, m->err));
  return add_alternative(m->name, m->out, rule, list, m->err);
}

/* Adds the alternatives of an EITHER; its languages together are one alternative. */
static Status add_either(Maker *m, uint32_t rule, const GbnfNode *node, SymbolList *list) {
  Langs *l = m->langs;
  const size_t start = l->n_stack;
  for (int i = node->child; i >= 0; i = m->tree->nodes[i].next) {
    if (m->node_is_nested[i]) {
      TRY(add_node(m, rule, i));
    } else {
      lang_push(l, lang_of(m, i));
    }
  }
  const Lang made = lang_join_pushed(l, start, lang_or_many);
  if (made == LANG_NONE) return STATUS_OK;
  TRY(append(list, SYMBOL_LANG, made, m->err));
  return add_alternative(m->name, m->out, rule, list, m->err);
}

static Status add_parts(Maker *m, uint32_t rule, int index, SymbolList *list) {
  const GbnfNode *node = &m->tree->nodes[index];
  const uint32_t owner = m->out->rules[rule].owner;
  if (m->node_is_nested[index]) {
    if (node->kind == GBNF_EITHER) return add_either(m, rule, node, list);
    if (node->kind == GBNF_REPEAT) return add_repeat(m, rule, node, list);
  }
  if (node->kind == GBNF_SEQUENCE && m->node_is_nested[index]) {
    TRY(add_sequence(m, owner, node, list));
  } else {
    TRY(add_symbol(m, owner, index, list));
  }
  return add_alternative(m->name, m->out, rule, list, m->err);
}

/* Adds the node's content to the rule's alternatives. */
static Status add_node(Maker *m, uint32_t rule, int index) {
  SymbolList list = {0};
  TRY(go_deeper(m));
  Status status = add_parts(m, rule, index, &list);
  m->depth--;
  free(list.items);
  return status;
}

/* --- rules with a property (has a text, can be empty) that an alternative has if all its symbols have it */

/* A test of a symbol that is no rule. */
typedef bool (*SymbolTest)(Langs *langs, Symbol symbol);

static bool test_alive(Langs *langs, Symbol symbol) {
  return symbol.kind == SYMBOL_TOKEN || lang_is_alive(langs, symbol.number);
}

static bool test_empty(Langs *langs, Symbol symbol) {
  return symbol.kind == SYMBOL_LANG && lang_has_empty(langs, symbol.number);
}

/* Sets holds[rule]: whether the rule has the property; lacks[alternative]: how many symbols lack it. */
static Status spread(Langs *langs, const Productions *p, SymbolTest test, bool *holds, uint32_t *lacks,
                     Error *err) {
  uint32_t *memory;
  TRY(NEW(memory, 2 * p->n_symbols + 2 * p->n_rules + 1, "a grammar", err));
  uint32_t *next = memory, *of = next + p->n_symbols, *uses = of + p->n_symbols, *queue = uses + p->n_rules;
  size_t n_queued = 0;
  memset(uses, 0xff, p->n_rules * sizeof *uses);
  memset(holds, 0, p->n_rules * sizeof *holds);
  memset(lacks, 0, p->n_alternatives * sizeof *lacks);
  for (uint32_t a = 0; a < p->n_alternatives; a++) {
    for (uint32_t i = p->alternatives[a].start; p->symbols[i].kind != SYMBOL_END; i++) {
      const Symbol symbol = p->symbols[i];
      of[i] = a;
      if (symbol.kind != SYMBOL_RULE && test(langs, symbol)) continue;
      lacks[a]++;
      if (symbol.kind != SYMBOL_RULE) continue;
      next[i] = uses[symbol.number];
      uses[symbol.number] = i;
    }
    const uint32_t rule = p->alternatives[a].rule;
    if (lacks[a] == 0 && !holds[rule]) holds[rule] = true, queue[n_queued++] = rule;
  }
  for (size_t at = 0; at < n_queued; at++)
    for (uint32_t i = uses[queue[at]]; i != NONE; i = next[i]) {
      const uint32_t rule = p->alternatives[of[i]].rule;
      if (--lacks[of[i]] == 0 && !holds[rule]) holds[rule] = true, queue[n_queued++] = rule;
    }
  free(memory);
  return langs_check(langs, err);
}

/* Removes alternatives that no text fits; refuses a rule of the tree that has none left. */
static Status drop_dead(Maker *m, bool *holds, uint32_t *lacks) {
  Productions *p = m->out;
  TRY(spread(m->langs, p, test_alive, holds, lacks, m->err));
  for (size_t rule = 0; rule < p->n_rules; rule++) {
    const GbnfRule *owner = &m->tree->rules[p->rules[rule].owner];
    if (!holds[rule] && (rule == 0 || m->numbers[p->rules[rule].owner] == rule))
      return error_set(m->err, STATUS_USAGE, "%s: expected a text that fits rule %.*s, found none", m->name,
                       (int)owner->size, owner->name);
    for (uint32_t *link = &p->rules[rule].first; *link != NO_ALTERNATIVE;) {
      Alternative *alternative = &p->alternatives[*link];
      if (lacks[*link]) {
        *link = alternative->next;
      } else {
        link = &alternative->next;
      }
    }
  }
  return STATUS_OK;
}

/* --- left recursion: Tarjan's strongly connected components over "may begin with" */

typedef struct {
  const Maker *m;
  const bool *is_empty; /* [n_rules] the rule has the empty text */
  /* [n_rules] order: number of the visit, 0: none yet; low: least order reached; component: 0: none yet */
  uint32_t *order, *low, *component;
  uint32_t *stack; /* [n_stack] rules that have no component yet */
  uint32_t n_visited, n_stack;
  int depth;
} Search;

static bool is_empty(const Search *s, Symbol symbol) {
  return symbol.kind == SYMBOL_RULE ? s->is_empty[symbol.number] : test_empty(s->m->langs, symbol);
}

static Status search(Search *s, uint32_t rule);

/* Visits the rules with which an alternative may begin. */
static Status search_alternative(Search *s, uint32_t rule, const Alternative *alternative) {
  for (size_t at = alternative->start; s->m->out->symbols[at].kind != SYMBOL_END; at++) {
    const Symbol symbol = s->m->out->symbols[at];
    if (symbol.kind == SYMBOL_RULE) {
      if (s->order[symbol.number] == 0) TRY(search(s, symbol.number));
      const bool open = s->component[symbol.number] == 0;
      if (open && s->low[symbol.number] < s->low[rule]) s->low[rule] = s->low[symbol.number];
    }
    if (!is_empty(s, symbol)) break;
  }
  return STATUS_OK;
}

static Status search(Search *s, uint32_t rule) {
  const Productions *p = s->m->out;
  if (++s->depth > MAX_DEPTH)
    return error_set(s->m->err, STATUS_USAGE, "%s: rules begin with one another over %d deep", s->m->name,
                     MAX_DEPTH);
  s->order[rule] = s->low[rule] = ++s->n_visited;
  s->stack[s->n_stack++] = rule;
  for (uint32_t a = p->rules[rule].first; a != NO_ALTERNATIVE; a = p->alternatives[a].next)
    TRY(search_alternative(s, rule, &p->alternatives[a]));
  s->depth--;
  if (s->low[rule] != s->order[rule]) return STATUS_OK;
  do s->component[s->stack[--s->n_stack]] = s->order[rule];
  while (s->stack[s->n_stack] != rule);
  return STATUS_OK;
}

/* Refuses an alternative that may begin with a rule of its own component and then has more symbols: the stack
 * would grow with each round. */
static Status check_beginning(const Search *s, const Alternative *alternative) {
  const Productions *p = s->m->out;
  const uint32_t component = s->component[alternative->rule];
  const GbnfRule *owner = &s->m->tree->rules[p->rules[alternative->rule].owner];
  for (size_t at = alternative->start; p->symbols[at].kind != SYMBOL_END; at++) {
    const Symbol symbol = p->symbols[at];
    const bool again = symbol.kind == SYMBOL_RULE && s->component[symbol.number] == component;
    if (again && p->symbols[at + 1].kind != SYMBOL_END)
      return error_set(s->m->err, STATUS_USAGE,
                       "%s: expected that a rule begins with another one, but %.*s begins with itself (for a "
                       "::= a \"+\" b | b write a ::= b (\"+\" b)*)",
                       s->m->name, (int)owner->size, owner->name);
    if (!is_empty(s, symbol)) break;
  }
  return STATUS_OK;
}

static Status refuse_left_recursion(Maker *m, bool *holds, uint32_t *lacks) {
  const Productions *p = m->out;
  TRY(spread(m->langs, p, test_empty, holds, lacks, m->err));
  OWNED(mem_release) uint32_t *memory = NULL;
  TRY(NEW(memory, 4 * (size_t)p->n_rules, "a grammar", m->err));
  Search s = {.m = m, .is_empty = holds, .order = memory, .low = memory + p->n_rules};
  s.component = s.low + p->n_rules;
  s.stack = s.component + p->n_rules;
  for (uint32_t rule = 0; rule < p->n_rules; rule++)
    if (s.order[rule] == 0) TRY(search(&s, rule));
  for (uint32_t rule = 0; rule < p->n_rules; rule++)
    for (uint32_t a = p->rules[rule].first; a != NO_ALTERNATIVE; a = p->alternatives[a].next)
      TRY(check_beginning(&s, &p->alternatives[a]));
  return STATUS_OK;
}

/* --- the whole */

static Status check(Maker *m) {
  const Productions *p = m->out;
  OWNED(mem_release) bool *holds = NULL;
  OWNED(mem_release) uint32_t *lacks = NULL;
  TRY(NEW(holds, p->n_rules, "a grammar", m->err));
  TRY(NEW(lacks, p->n_alternatives + 1, "a grammar", m->err));
  TRY(drop_dead(m, holds, lacks));
  return refuse_left_recursion(m, holds, lacks);
}

static Status make(Maker *m) {
  const GbnfTree *tree = m->tree;
  uint32_t root;
  for (uint32_t rule = 0; rule < tree->n_rules; rule++) m->meanings[rule] = LANG_UNKNOWN;
  memset(m->numbers, 0xff, tree->n_rules * sizeof *m->numbers);
  TRY(visit_rule(m, tree->root));
  if (m->is_nested[tree->root]) {
    TRY(nested_rule(m, tree->root, &root));
  } else {
    TRY(add_rule(m->out, tree->root, &root, m->err));
    TRY(add_node(m, root, tree->rules[tree->root].node));
  }
  TRY(langs_check(m->langs, m->err));
  return check(m);
}

static void maker_release(Maker *m) {
  free(m->visits);
  free(m->is_nested);
  free(m->node_is_nested);
  free(m->meanings);
  free(m->numbers);
}

Status productions_make(Langs *langs, const char *name, const GbnfTree *tree, Productions *out, Error *err) {
  const size_t n = tree->n_rules;
  OWNED(maker_release) Maker m = {.langs = langs, .name = name, .tree = tree, .out = out, .err = err};
  TRY(NEW(m.visits, n, "a grammar", err));
  TRY(NEW(m.is_nested, n, "a grammar", err));
  TRY(NEW(m.node_is_nested, tree->n_nodes, "a grammar", err));
  TRY(NEW(m.meanings, n, "a grammar", err));
  TRY(NEW(m.numbers, n, "a grammar", err));
  return make(&m);
}

Status productions_make_lang(Lang lang, Productions *out, Error *err) {
  uint32_t rule;
  Symbol symbol = {SYMBOL_LANG, lang};
  const SymbolList list = {&symbol, 1, 1};
  TRY(add_rule(out, 0, &rule, err));
  return add_alternative("", out, rule, &list, err);
}

void productions_release(Productions *productions) {
  free(productions->symbols);
  free(productions->alternatives);
  free(productions->rules);
  *productions = (Productions){.n_rules = 0};
}
