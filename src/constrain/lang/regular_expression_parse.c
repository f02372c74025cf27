/* regular_expression_parse.c - parses a regular expression into a tree; see regular_expression.h. */
#include "constrain/lang/regular_expression_parse.h"

#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"
#include "tokenizer/regex/charset.h"

#define MAX_NESTING    200
#define MAX_COUNT      100000
#define MAX_NAMES      1000
#define MAX_PROPERTIES 1000 /* classes \p{...}; each may have some hundred ranges */

typedef struct {
  Langs *langs;
  const char *text; /* [size] */
  size_t size, at;
  bool strict;
  int depth, n_properties;
  size_t *names; /* [n_names] where the names of groups begin; each ends with '>' */
  size_t n_names, names_capacity;
  RegexTree *tree;
  Error *err;
} Parser;

static Status refuse(Parser *p, const char *what) {
  return error_set(p->err, STATUS_USAGE, "at byte %zu of the expression: %s", p->at, what);
}

/* Refuses syntax that ECMAScript has and this parser lacks. */
static Status not_supported(Parser *p, const char *what) {
  p->tree->unsupported = true;
  return refuse(p, what);
}

static bool is_at(const Parser *p, const char *word) {
  size_t n = strlen(word);
  return p->size - p->at >= n && memcmp(p->text + p->at, word, n) == 0;
}

static bool take(Parser *p, const char *word) {
  if (!is_at(p, word)) return false;
  p->at += strlen(word);
  return true;
}

static Status add_node(Parser *p, RegexNode node, int *index) {
  RegexTree *tree = p->tree;
  TRY(mem_grow(&tree->nodes, &tree->capacity, tree->count + 1, sizeof *tree->nodes, "an expression", p->err));
  node.next = -1;
  *index = (int)tree->count;
  tree->nodes[tree->count++] = node;
  return STATUS_OK;
}

/* Adds a part's flags to those of a node. `all`: the node is a sequence of its parts, not a choice of one. */
static void take_flags(RegexNode *node, const RegexNode *part, bool all) {
  node->has_assertion |= part->has_assertion;
  node->has_start |= part->has_start;
  node->has_ahead |= part->has_ahead;
  node->can_be_empty =
      all ? node->can_be_empty & part->can_be_empty : node->can_be_empty | part->can_be_empty;
  node->only_empty &= part->only_empty;
}

static Status add_set(Parser *p, CharSet *set, int *index) {
  charset_tidy(set);
  return add_node(p, (RegexNode){.kind = REGEX_SET, .child = -1, .lang = lang_charset(p->langs, set)}, index);
}

/* --- characters and classes */

/* Ranges of code points. */
typedef struct {
  const uint32_t (*of)[2]; /* [n] */
  size_t n;
} Ranges;
#define RANGES(name) ((Ranges){name, sizeof(name) / sizeof *(name)})

static const uint32_t digits[][2] = {{'0', '9'}},
                      words[][2] = {{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}},
                      line_ends[][2] = {{'\n', '\n'}, {'\r', '\r'}, {0x2028, 0x2029}},
                      space[][2] = {{9, 13},          {32, 32},         {0xa0, 0xa0},     {0x1680, 0x1680},
                                    {0x2000, 0x200a}, {0x2028, 0x2029}, {0x202f, 0x202f}, {0x205f, 0x205f},
                                    {0x3000, 0x3000}, {0xfeff, 0xfeff}};

static Status add_ranges(Parser *p, CharSet *set, Ranges ranges, bool inverted) {
  OWNED(charset_release) CharSet part = {0};
  for (size_t i = 0; i < ranges.n; i++) TRY(charset_add(&part, ranges.of[i][0], ranges.of[i][1], p->err));
  return charset_take(set, &part, inverted, p->err);
}

/* Names of general categories in two forms, as in ECMA-262, table "Value aliases ... for
 * General_Category". */
static const char *const category_names[][2] = {
    {"Letter", "L"},
    {"Uppercase_Letter", "Lu"},
    {"Lowercase_Letter", "Ll"},
    {"Number", "N"},
    {"Decimal_Number", "Nd"},
    {"digit", "Nd"},
    {"Punctuation", "P"},
    {"punct", "P"},
    {"Symbol", "S"},
    {"Separator", "Z"},
    {"Mark", "M"},
    {"Other", "C"},
};

/* Adds \p{NAME}; p->at is after "\p". */
static Status add_property(Parser *p, CharSet *set, bool inverted) {
  const char *begin = p->text + p->at + 1;
  const char *end = is_at(p, "{") ? memchr(begin, '}', p->size - p->at - 1) : NULL;
  if (!end) return refuse(p, "expected {NAME} after \\p");
  if (++p->n_properties > MAX_PROPERTIES) return not_supported(p, "over 1,000 classes \\p{...}");
  char name[40];
  if ((size_t)(end - begin) >= sizeof name) return refuse(p, "unknown property");
  memcpy(name, begin, (size_t)(end - begin));
  name[end - begin] = '\0';
  const bool named = strncmp(name, "gc=", 3) == 0 || strncmp(name, "General_Category=", 17) == 0;
  const char *wanted = named ? strchr(name, '=') + 1 : name;
  for (size_t i = 0; i < sizeof category_names / sizeof *category_names; i++)
    if (strcmp(wanted, category_names[i][0]) == 0) wanted = category_names[i][1];
  OWNED(charset_release) CharSet ranges = {0};
  bool known = false;
  for (uint32_t i = 0; unicode_category_names[i]; i++) {
    if (strncmp(unicode_category_names[i], wanted, strlen(wanted)) != 0 || strlen(wanted) > 2 || !*wanted)
      continue;
    known = true;
    TRY(charset_add_value(&ranges, &unicode_categories, i, p->err));
  }
  if (!known) return not_supported(p, "unknown property (general categories are known)");
  p->at = (size_t)(end + 1 - p->text);
  return charset_take(set, &ranges, inverted, p->err);
}

/* Reads n hexadecimal digits. */
static Status take_hex(Parser *p, int n, uint32_t *code) {
  *code = 0;
  for (int i = 0; i < n; i++, p->at++) {
    const int value = p->at < p->size ? digit_value(p->text[p->at]) : 16;
    if (value > 15) return refuse(p, "expected a hexadecimal digit");
    *code = *code * 16 + (uint32_t)value;
  }
  return STATUS_OK;
}

static Status take_unicode(Parser *p, uint32_t *code) {
  if (take(p, "{")) {
    const size_t begin = p->at;
    for (*code = 0; p->at < p->size && digit_value(p->text[p->at]) < 16 && *code < UNICODE_END; p->at++)
      *code = *code * 16 + (uint32_t)digit_value(p->text[p->at]);
    return p->at > begin && take(p, "}") && *code < UNICODE_END ? STATUS_OK
                                                                : refuse(p, "expected \\u{CODE POINT}");
  }
  TRY(take_hex(p, 4, code));
  uint32_t low;
  const size_t after = p->at;
  if (*code < 0xd800 || *code > 0xdbff || !take(p, "\\u") || is_at(p, "{")) return p->at = after, STATUS_OK;
  TRY(take_hex(p, 4, &low));
  if (low < 0xdc00 || low > 0xdfff) return p->at = after, STATUS_OK; /* the second \u is a separate escape */
  *code = 0x10000 + ((*code - 0xd800) << 10) + (low - 0xdc00);
  return STATUS_OK;
}

static bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

static bool is_letter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

static Status take_character(Parser *p, uint32_t *code) {
  int length = utf8_decode(p->text + p->at, p->size - p->at, code);
  if (length <= 0) return refuse(p, "invalid UTF-8");
  p->at += (size_t)length;
  return STATUS_OK;
}

/* Reads an escape after its backslash: adds a class to `set`, or sets *code. */
static Status take_escape(Parser *p, CharSet *set, bool in_class, bool *is_class, uint32_t *code) {
  static const char controls[] = "t\tn\nv\vf\fr\r";
  if (p->at >= p->size) return refuse(p, "nothing after the backslash");
  char c = p->text[p->at];
  *is_class = strchr("dDwWsSpP", c) != NULL;
  if (*is_class) p->at++;
  switch (c) {
  case 'd':
  case 'D': return add_ranges(p, set, RANGES(digits), c == 'D');
  case 'w':
  case 'W': return add_ranges(p, set, RANGES(words), c == 'W');
  case 's':
  case 'S': return add_ranges(p, set, RANGES(space), c == 'S');
  case 'p':
  case 'P': return add_property(p, set, c == 'P');
  case 'x': p->at++; return take_hex(p, 2, code);
  case 'u': p->at++; return take_unicode(p, code);
  case 'c':
    p->at++;
    if (p->at >= p->size || !is_letter(p->text[p->at])) return refuse(p, "expected a letter after \\c");
    *code = (uint32_t)p->text[p->at++] & 31;
    return STATUS_OK;
  case '0':
    *code = 0, p->at++;
    if (p->at < p->size && is_digit(p->text[p->at])) return refuse(p, "no digit may follow \\0");
    return STATUS_OK;
  case 'b':
    if (!in_class) return not_supported(p, "word boundaries (\\b, \\B) are not supported");
    *code = 8, p->at++;
    return STATUS_OK;
  default: break;
  }
  const char *control = strchr(controls, c);
  if (control && (control - controls) % 2 == 0) {
    *code = (unsigned char)control[1];
    p->at++;
    return STATUS_OK;
  }
  if (!in_class && ((c >= '1' && c <= '9') || c == 'k'))
    return not_supported(p, "back references are not supported");
  if (c == 'B' && !in_class) return not_supported(p, "word boundaries (\\b, \\B) are not supported");
  const bool itself = strchr("^$\\.*+?()[]{}|/", c) || (c == '-' && in_class);
  if (is_letter(c) || is_digit(c) || (p->strict && !itself)) return refuse(p, "unknown escape");
  return take_character(p, code);
}

/* Reads one member of a class; a class escape is added at once. */
static Status take_member(Parser *p, CharSet *set, bool *is_class, uint32_t *code) {
  *is_class = false;
  return take(p, "\\") ? take_escape(p, set, true, is_class, code) : take_character(p, code);
}

static Status class_members(Parser *p, CharSet *set) {
  while (!take(p, "]")) {
    if (p->at >= p->size) return refuse(p, "expected ']'");
    bool is_class, last_is_class;
    uint32_t first, last;
    TRY(take_member(p, set, &is_class, &first));
    last = first;
    if (is_at(p, "-") && !is_at(p, "-]") && p->at + 1 < p->size) {
      p->at++;
      TRY(take_member(p, set, &last_is_class, &last));
      if (is_class || last_is_class) return refuse(p, "a range of the class begins or ends with a class");
    }
    if (is_class) continue;
    if (last < first) return refuse(p, "the range of the class is out of order");
    TRY(charset_add(set, first, last, p->err));
  }
  return STATUS_OK;
}

static Status parse_class(Parser *p, int *index) {
  OWNED(charset_release) CharSet set = {0};
  bool inverted = take(p, "^");
  TRY(class_members(p, &set));
  if (inverted) TRY(charset_complement(&set, p->err));
  return add_set(p, &set, index);
}

static Status parse_one(Parser *p, int *index) {
  OWNED(charset_release) CharSet set = {0};
  bool is_class = false;
  uint32_t code = 0;
  if (take(p, ".")) {
    TRY(add_ranges(p, &set, RANGES(line_ends), true));
    is_class = true;
  } else {
    TRY(take(p, "\\") ? take_escape(p, &set, false, &is_class, &code) : take_character(p, &code));
  }
  if (!is_class) TRY(charset_add(&set, code, code, p->err));
  return add_set(p, &set, index);
}

/* --- groups, quantifiers, alternatives */

static Status parse_either(Parser *p, int *index);

/* Reads the name of a group and its '>'; refuses a name that another group has. */
static Status take_name(Parser *p) {
  const size_t begin = p->at;
  while (p->at < p->size && p->text[p->at] != '>') {
    const char c = p->text[p->at];
    uint32_t code;
    if (take(p, "\\u")) {
      TRY(take_unicode(p, &code));
    } else if (is_letter(c) || c == '_' || c == '$' || (c & 0x80) || (is_digit(c) && p->at > begin)) {
      p->at++;
    } else {
      return refuse(p, "expected the name of a group");
    }
  }
  const size_t size = p->at + 1 - begin;
  if (size == 1 || !take(p, ">")) return refuse(p, "expected the name of a group and '>'");
  for (size_t i = 0; i < p->n_names; i++)
    if (p->size - p->names[i] >= size && memcmp(p->text + p->names[i], p->text + begin, size) == 0)
      return refuse(p, "another group has this name");
  if (p->n_names == MAX_NAMES) return not_supported(p, "over 1,000 groups have names");
  return APPEND(p->names, p->n_names, p->names_capacity, "an expression", p->err, begin);
}

static Status parse_group(Parser *p, int *index) {
  bool ahead = false, negative = false;
  if (take(p, "?")) {
    if (take(p, "=")) {
      ahead = true;
    } else if (take(p, "!")) {
      ahead = negative = true;
    } else if (is_at(p, "<=") || is_at(p, "<!")) {
      return not_supported(p, "lookbehind is not supported");
    } else if (take(p, "<")) {
      TRY(take_name(p));
    } else if (!take(p, ":")) {
      return refuse(p, "expected ':', '=', '!' or '<' after \"(?\"");
    }
  }
  TRY(parse_either(p, index));
  if (!take(p, ")")) return refuse(p, "expected ')'");
  if (!ahead) return STATUS_OK;
  return add_node(p,
                  (RegexNode){.kind = REGEX_AHEAD,
                              .negative = negative,
                              .has_assertion = true,
                              .has_start = p->tree->nodes[*index].has_start,
                              .has_ahead = true,
                              .can_be_empty = true,
                              .only_empty = true,
                              .child = *index},
                  index);
}

static bool take_number(Parser *p, uint32_t *value) {
  size_t begin = p->at;
  for (*value = 0; p->at < p->size && p->text[p->at] >= '0' && p->text[p->at] <= '9'; p->at++)
    if (*value <= MAX_COUNT) *value = *value * 10 + (uint32_t)(p->text[p->at] - '0');
  return p->at > begin;
}

/* Reads {n}, {n,} or {n,m}; false, without moving, if there is none. */
static bool take_counts(Parser *p, uint32_t *min, uint32_t *max) {
  size_t begin = p->at;
  if (take(p, "{") && take_number(p, min)) {
    *max = *min;
    if (take(p, ",") && !take_number(p, max)) *max = LANG_NO_END;
    if (take(p, "}")) return true;
  }
  p->at = begin;
  return false;
}

/* True where a quantifier in braces begins; also for {,n}, which other engines take for one. */
static bool begins_counts(Parser *p) {
  const size_t begin = p->at;
  uint32_t min, max;
  bool counts = take_counts(p, &min, &max);
  p->at = begin;
  if (!counts && take(p, "{,")) counts = take_number(p, &max) && is_at(p, "}");
  p->at = begin;
  return counts;
}

static Status parse_quantifier(Parser *p, int *index) {
  uint32_t min = 0, max = LANG_NO_END;
  if (take(p, "?")) {
    max = 1;
  } else if (take(p, "+")) {
    min = 1;
  } else if (!take(p, "*") && !take_counts(p, &min, &max)) {
    return STATUS_OK;
  }
  take(p, "?"); /* lazy: the same set of strings */
  if (p->tree->nodes[*index].kind == REGEX_AHEAD) return refuse(p, "a lookahead cannot be repeated");
  if (max < min) return refuse(p, "the quantifier's numbers are out of order");
  if (min > MAX_COUNT || (max > MAX_COUNT && max != LANG_NO_END))
    return not_supported(p, "a count is over 100000");
  RegexNode node = p->tree->nodes[*index];
  node.kind = REGEX_REPEAT;
  node.can_be_empty |= min == 0;
  node.only_empty |= max == 0;
  node.child = *index, node.min = min, node.max = max;
  return add_node(p, node, index);
}

static Status parse_part(Parser *p, int *index) {
  RegexNode anchor = {.has_assertion = true, .can_be_empty = true, .only_empty = true, .child = -1};
  if (take(p, "^")) {
    anchor.kind = REGEX_START;
    anchor.has_start = true;
    return add_node(p, anchor, index);
  }
  if (take(p, "$")) {
    anchor.kind = REGEX_END;
    return add_node(p, anchor, index);
  }
  if (is_at(p, "*") || is_at(p, "+") || is_at(p, "?") || begins_counts(p))
    return refuse(p, "nothing to repeat");
  if (p->strict && (is_at(p, "{") || is_at(p, "}") || is_at(p, "]")))
    return refuse(p, "a bracket without its other half (\\{, \\} and \\] are characters)");
  if (take(p, "(")) {
    TRY(parse_group(p, index));
  } else if (take(p, "[")) {
    TRY(parse_class(p, index));
  } else {
    TRY(parse_one(p, index));
  }
  return parse_quantifier(p, index);
}

static Status parse_sequence(Parser *p, int *index) {
  RegexNode node = {.kind = REGEX_SEQUENCE, .can_be_empty = true, .only_empty = true, .child = -1};
  int last = -1;
  while (p->at < p->size && p->text[p->at] != '|' && p->text[p->at] != ')') {
    int part;
    TRY(parse_part(p, &part));
    take_flags(&node, &p->tree->nodes[part], true);
    if (last < 0) {
      node.child = part;
    } else {
      p->tree->nodes[last].next = part;
    }
    last = part;
  }
  return add_node(p, node, index);
}

static Status parse_either(Parser *p, int *index) {
  if (++p->depth > MAX_NESTING) return not_supported(p, "groups nest over 200 deep");
  TRY(parse_sequence(p, index));
  if (is_at(p, "|")) {
    RegexNode node = p->tree->nodes[*index];
    node.kind = REGEX_EITHER;
    node.child = *index;
    int last = *index;
    while (take(p, "|")) {
      int part;
      TRY(parse_sequence(p, &part));
      take_flags(&node, &p->tree->nodes[part], false);
      p->tree->nodes[last].next = part;
      last = part;
    }
    TRY(add_node(p, node, index));
  }
  p->depth--;
  return STATUS_OK;
}

Status regex_tree_parse(Langs *langs, const char *text, size_t size, bool strict, RegexTree *tree,
                        Error *err) {
  Parser p = {.langs = langs, .text = text, .size = size, .strict = strict, .tree = tree, .err = err};
  const Status status = parse_either(&p, &tree->root);
  free(p.names);
  if (status != STATUS_OK) return status;
  return p.at == size ? STATUS_OK : refuse(&p, "unexpected ')'");
}

void regex_tree_release(RegexTree *tree) {
  free(tree->nodes);
  *tree = (RegexTree){0};
}
