/* gbnf.c - parses GBNF; see gbnf.h. Called by: grammar.c. */
#include "constrain/grammar/gbnf.h"

#include <stdlib.h>
#include <string.h>

#include "base/buffer.h"
#include "base/hash64.h"
#include "base/utf8.h"
#include "tokenizer/regex/charset.h"

enum { MAX_DEPTH = 256, MAX_RULES = 1 << 14, MAX_NODES = 1 << 20 };

typedef struct {
  Langs *langs;
  const char *name, *text;
  size_t size, at;
  const Tokenizer *tokenizer;
  GbnfTree *tree;
  int depth;
  Error *err;
} Parser;

/* --- messages */

static Status refuse_at(Parser *p, size_t at, const char *expected, const char *found, size_t size) {
  size_t line = 1, column = 1;
  for (size_t i = 0; i < at; i++) {
    column++;
    if (p->text[i] == '\n') line++, column = 1;
  }
  return error_set(p->err, STATUS_USAGE, "%s:%zu:%zu: expected %s, found %.*s", p->name, line, column,
                   expected, (int)size, found);
}

/* Refuses the text at p->at. */
static Status refuse(Parser *p, const char *expected) {
  char found[8] = "'";
  if (p->at >= p->size) return refuse_at(p, p->at, expected, "the end", 7);
  if (p->text[p->at] == '\n' || p->text[p->at] == '\r')
    return refuse_at(p, p->at, expected, "the end of the line", 19);
  uint32_t code;
  int length = utf8_decode(p->text + p->at, p->size - p->at, &code);
  if (length < 1) return refuse_at(p, p->at, expected, "invalid UTF-8", 13);
  memcpy(found + 1, p->text + p->at, (size_t)length);
  found[1 + length] = '\'';
  return refuse_at(p, p->at, expected, found, 2 + (size_t)length);
}

/* --- characters */

static char peek(const Parser *p) {
  return p->at < p->size ? p->text[p->at] : '\0';
}

static bool take(Parser *p, const char *text) {
  const size_t length = strlen(text);
  if (p->size - p->at < length || memcmp(p->text + p->at, text, length) != 0) return false;
  p->at += length;
  return true;
}

/* Skips blanks and comments; newlines too where `lines` is set. */
static void skip_space(Parser *p, bool lines) {
  for (; p->at < p->size; p->at++) {
    const char c = p->text[p->at];
    if (c == '#')
      while (p->at + 1 < p->size && p->text[p->at + 1] != '\n' && p->text[p->at + 1] != '\r') p->at++;
    else if (c != ' ' && c != '\t' && !(lines && (c == '\n' || c == '\r')))
      return;
  }
}

static bool in_name(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '_';
}

static Status take_hex(Parser *p, int digits, uint32_t *code) {
  *code = 0;
  for (int i = 0; i < digits; i++, p->at++) {
    const int value = digit_value(peek(p));
    if (value > 15) return refuse(p, "a hexadecimal digit");
    *code = *code << 4 | (uint32_t)value;
  }
  return STATUS_OK;
}

/* One character of a literal or class, perhaps escaped. */
static Status take_character(Parser *p, uint32_t *code) {
  static const char escapes[] = "n\nr\rt\t\\\\\"\"[[]]--^^";
  const size_t start = p->at;
  if (!take(p, "\\")) {
    const int length = utf8_decode(p->text + p->at, p->size - p->at, code);
    if (length < 1) return refuse(p, "a character");
    p->at += (size_t)length;
    return STATUS_OK;
  }
  const char c = peek(p);
  for (size_t i = 0; c && escapes[i]; i += 2)
    if (escapes[i] == c) {
      *code = (unsigned char)escapes[i + 1];
      p->at++;
      return STATUS_OK;
    }
  const int digits = c == 'x' ? 2 : c == 'u' ? 4 : c == 'U' ? 8 : 0;
  if (!digits) return refuse(p, "n, r, t, \\, \", [, ], x, u or U after '\\'");
  p->at++;
  TRY(take_hex(p, digits, code));
  if (*code > 0x10ffff || (*code >= 0xd800 && *code <= 0xdfff))
    return refuse_at(p, start, "a code point that is a character", p->text + start, p->at - start);
  return STATUS_OK;
}

/* --- the tree */

static Status add_node(Parser *p, GbnfNode node, int *index) {
  GbnfTree *t = p->tree;
  if (t->n_nodes == MAX_NODES)
    return error_set(p->err, STATUS_USAGE, "%s: the grammar has over %d parts", p->name, MAX_NODES);
  TRY(mem_grow(&t->nodes, &t->nodes_capacity, t->n_nodes + 1, sizeof *t->nodes, "a grammar", p->err));
  *index = (int)t->n_nodes;
  t->nodes[t->n_nodes++] = node;
  return STATUS_OK;
}

static Status add_lang(Parser *p, Lang lang, int *index) {
  return add_node(p, (GbnfNode){.kind = GBNF_LANG, .lang = lang, .child = -1, .next = -1}, index);
}

/* The number of the rule with this name. A new rule is added. */
static Status find_rule(Parser *p, const char *name, size_t size, uint32_t *number) {
  GbnfTree *t = p->tree;
  const uint64_t hash = hash64(name, size, 0);
  const KeyTable *known = &t->rules_by_name;
  for (const KeyEntry *e = key_table_find(known, hash); e; e = key_table_next(known, e)) {
    const GbnfRule *rule = &t->rules[e->value.number];
    *number = e->value.number;
    if (rule->size == size && memcmp(rule->name, name, size) == 0) return STATUS_OK;
  }
  if (t->n_rules == MAX_RULES)
    return error_set(p->err, STATUS_USAGE, "%s: the grammar has over %d rules", p->name, MAX_RULES);
  TRY(mem_grow(&t->rules, &t->rules_capacity, t->n_rules + 1, sizeof *t->rules, "a grammar", p->err));
  *number = (uint32_t)t->n_rules;
  if (!key_table_add(&t->rules_by_name, (KeyEntry){hash, {.number = *number}}))
    return error_set(p->err, STATUS_FAILED, "out of memory");
  t->rules[t->n_rules++] = (GbnfRule){name, size, -1};
  return STATUS_OK;
}

/* --- the parts of a rule */

static Status parse_literal(Parser *p, int *index) {
  Lang made = LANG_EMPTY;
  OWNED(buffer_release) Buffer bytes = {0};
  p->at++;
  while (peek(p) != '"') {
    uint32_t code;
    char utf8[4];
    if (p->at >= p->size || peek(p) == '\n') return refuse(p, "'\"' at the end of the literal");
    TRY(take_character(p, &code));
    TRY(buffer_append(&bytes, utf8, (size_t)utf8_encode(code, utf8), p->err));
  }
  p->at++;
  if (bytes.size) made = lang_declare_text(p->langs, lang_literal(p->langs, bytes.data, bytes.size));
  return add_lang(p, made, index);
}

static Status read_class(Parser *p, CharSet *set) {
  p->at++;
  const bool negative = take(p, "^");
  while (peek(p) != ']') {
    const size_t start = p->at;
    uint32_t first, last;
    if (p->at >= p->size) return refuse(p, "']' at the end of the characters");
    TRY(take_character(p, &first));
    last = first;
    if (peek(p) == '-' && p->at + 1 < p->size && p->text[p->at + 1] != ']') {
      p->at++;
      TRY(take_character(p, &last));
    }
    if (last < first)
      return refuse_at(p, start, "a range from a lower to a higher character", p->text + start,
                       p->at - start);
    TRY(charset_add(set, first, last, p->err));
  }
  p->at++;
  charset_tidy(set);
  return negative ? charset_complement(set, p->err) : STATUS_OK;
}

static Status parse_class(Parser *p, int *index) {
  OWNED(charset_release) CharSet set = {0};
  TRY(read_class(p, &set));
  return add_lang(p, lang_charset(p->langs, &set), index);
}

static Status parse_alternatives(Parser *p, bool nested, int *index);

static Status parse_group(Parser *p, int *index) {
  const size_t start = p->at++;
  if (++p->depth > MAX_DEPTH)
    return refuse_at(p, start, "at most 256 groups inside one another", "one more", 8);
  skip_space(p, true);
  TRY(parse_alternatives(p, true, index));
  p->depth--;
  return take(p, ")") ? STATUS_OK : refuse(p, "')'");
}

static Status parse_reference(Parser *p, int *index) {
  const size_t start = p->at;
  uint32_t rule;
  while (in_name(peek(p))) p->at++;
  TRY(find_rule(p, p->text + start, p->at - start, &rule));
  return add_node(p, (GbnfNode){.kind = GBNF_RULE, .rule = rule, .child = -1, .next = -1}, index);
}

/* --- tokens */

/* The id in <[...]>, after its '['. */
static Status take_id(Parser *p, uint32_t *id) {
  const size_t start = p->at;
  const uint32_t n = (uint32_t)tokenizer_n_ids(p->tokenizer);
  if (peek(p) < '0' || peek(p) > '9') return refuse(p, "the id of a token");
  for (*id = 0; peek(p) >= '0' && peek(p) <= '9'; p->at++)
    if (*id < n) *id = *id * 10 + (uint32_t)(peek(p) - '0');
  if (*id >= n) return refuse_at(p, start, "the id of a token of this model", p->text + start, p->at - start);
  return take(p, "]>") ? STATUS_OK : refuse(p, "\"]>\"");
}

/* The id of a text that is one token. */
static Status find_token(Parser *p, size_t start, uint32_t *id) {
  const EncodeOptions options = {.parse_special = true};
  OWNED(id_list_release) IdList ids = {0};
  const char *text = p->text + start;
  const size_t size = p->at - start;
  TRY(tokenizer_encode(p->tokenizer, text, size, options, &ids, p->err));
  if (ids.count != 1) return refuse_at(p, start, "a text that is one token of this model", text, size);
  *id = (uint32_t)ids.ids[0];
  return STATUS_OK;
}

static Status parse_token(Parser *p, int *index) {
  const bool negated = take(p, "!");
  const size_t start = p->at;
  uint32_t id = 0;
  if (!take(p, "<")) return refuse(p, "'<', which begins a token");
  if (!p->tokenizer) return refuse_at(p, start, "no token, for want of a tokenizer", "one", 3);
  if (take(p, "[")) {
    TRY(take_id(p, &id));
  } else {
    while (p->at < p->size && !strchr(">\r\n", peek(p))) p->at++;
    if (!take(p, ">")) return refuse(p, "'>' at the end of the token");
    TRY(find_token(p, start, &id));
  }
  return add_node(p, (GbnfNode){.kind = GBNF_TOKEN, .token = id << 1 | negated, .child = -1, .next = -1},
                  index);
}

/* --- repetition */

static Status take_count(Parser *p, uint32_t *count) {
  if (peek(p) < '0' || peek(p) > '9') return refuse(p, "a number");
  const size_t start = p->at;
  for (*count = 0; peek(p) >= '0' && peek(p) <= '9'; p->at++)
    if (*count <= GBNF_MAX_REPEAT) *count = *count * 10 + (uint32_t)(peek(p) - '0');
  if (*count > GBNF_MAX_REPEAT)
    return refuse_at(p, start, "a number of at most 2000", p->text + start, p->at - start);
  return STATUS_OK;
}

static Status take_counts(Parser *p, uint32_t *min, uint32_t *max) {
  const size_t start = p->at++;
  skip_space(p, false);
  *min = 0;
  if (peek(p) != ',') TRY(take_count(p, min));
  *max = *min;
  skip_space(p, false);
  if (take(p, ",")) {
    skip_space(p, false);
    *max = LANG_NO_END;
    if (peek(p) != '}') TRY(take_count(p, max));
  }
  skip_space(p, false);
  if (!take(p, "}")) return refuse(p, "'}'");
  if (*max < *min)
    return refuse_at(p, start, "{a number, one that is no lower}", p->text + start, p->at - start);
  return STATUS_OK;
}

static Status parse_repetitions(Parser *p, int *index) {
  for (;;) {
    uint32_t min, max;
    const char c = peek(p);
    if (c != '*' && c != '+' && c != '?' && c != '{') return STATUS_OK;
    min = c == '+', max = c == '?' ? 1 : LANG_NO_END;
    if (c == '{') {
      TRY(take_counts(p, &min, &max));
    } else {
      p->at++;
    }
    TRY(add_node(p, (GbnfNode){.kind = GBNF_REPEAT, .child = *index, .next = -1, .min = min, .max = max},
                 index));
  }
}

/* --- rules */

static Status parse_part(Parser *p, int *index) {
  switch (peek(p)) {
  case '"': TRY(parse_literal(p, index)); break;
  case '[': TRY(parse_class(p, index)); break;
  case '(': TRY(parse_group(p, index)); break;
  case '!':
  case '<': TRY(parse_token(p, index)); break;
  case '.':
    p->at++;
    TRY(add_lang(p, lang_any_character(p->langs), index));
    break;
  default: TRY(parse_reference(p, index));
  }
  return parse_repetitions(p, index);
}

static bool at_part(const Parser *p) {
  const char c = peek(p);
  return c == '"' || c == '[' || c == '(' || c == '.' || c == '<' || c == '!' || in_name(c);
}

static Status parse_sequence(Parser *p, bool nested, int *index) {
  int last = -1;
  TRY(add_node(p, (GbnfNode){.kind = GBNF_SEQUENCE, .child = -1, .next = -1}, index));
  for (skip_space(p, nested); at_part(p); skip_space(p, nested)) {
    int part;
    TRY(parse_part(p, &part));
    GbnfNode *nodes = p->tree->nodes;
    *(last < 0 ? &nodes[*index].child : &nodes[last].next) = part;
    last = part;
  }
  return STATUS_OK;
}

/* Takes the '|' before an alternative, perhaps on another line; false, without moving, if there is none. */
static bool take_bar(Parser *p) {
  const size_t at = p->at;
  skip_space(p, true);
  if (take(p, "|")) return true;
  p->at = at;
  return false;
}

static Status parse_alternatives(Parser *p, bool nested, int *index) {
  int last;
  TRY(add_node(p, (GbnfNode){.kind = GBNF_EITHER, .child = -1, .next = -1}, index));
  TRY(parse_sequence(p, nested, &last));
  p->tree->nodes[*index].child = last;
  while (take_bar(p)) {
    int part;
    skip_space(p, true);
    TRY(parse_sequence(p, nested, &part));
    p->tree->nodes[last].next = part;
    last = part;
  }
  return STATUS_OK;
}

static Status parse_rule(Parser *p) {
  const size_t start = p->at;
  uint32_t rule;
  int node;
  while (in_name(peek(p))) p->at++;
  const size_t size = p->at - start;
  if (size == 0) return refuse(p, "the name of a rule");
  TRY(find_rule(p, p->text + start, size, &rule));
  if (p->tree->rules[rule].node >= 0)
    return refuse_at(p, start, "a rule that is not there yet", p->text + start, size);
  skip_space(p, false);
  if (!take(p, "::=")) return refuse(p, "\"::=\"");
  skip_space(p, true);
  TRY(parse_alternatives(p, false, &node));
  p->tree->rules[rule].node = node;
  if (p->at < p->size && peek(p) != '\n' && peek(p) != '\r')
    return refuse(p, "a literal, characters, a group, a rule, a token or the end of the line");
  skip_space(p, true);
  return STATUS_OK;
}

static Status check_rules(Parser *p) {
  const GbnfTree *t = p->tree;
  for (size_t i = 0; i < t->n_rules; i++)
    if (t->rules[i].node < 0)
      return refuse_at(p, (size_t)(t->rules[i].name - p->text), "the name of a rule that the grammar has",
                       t->rules[i].name, t->rules[i].size);
  return STATUS_OK;
}

Status gbnf_parse(Langs *langs, const char *name, const char *text, size_t size, const Tokenizer *tokenizer,
                  GbnfTree *tree, Error *err) {
  Parser p = {.langs = langs,
              .name = name,
              .text = text,
              .size = size,
              .tokenizer = tokenizer,
              .tree = tree,
              .err = err};
  skip_space(&p, true);
  while (p.at < size) TRY(parse_rule(&p));
  const size_t n_rules = tree->n_rules;
  TRY(find_rule(&p, "root", 4, &tree->root));
  if (tree->n_rules > n_rules)
    return error_set(err, STATUS_USAGE, "%s: expected a rule with the name root, found none", name);
  TRY(check_rules(&p));
  return langs_check(langs, err);
}

void gbnf_release(GbnfTree *tree) {
  free(tree->nodes);
  free(tree->rules);
  key_table_release(&tree->rules_by_name);
  *tree = (GbnfTree){.n_nodes = 0};
}
