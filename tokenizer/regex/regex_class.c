/* regex_class.c - the sets of regular expressions: [classes], \p{properties}, [:brackets:] and escapes.
 *
 * Called by: regex_parse.c. The rules are those of Oniguruma 6.9 (its doc/RE and doc/UNICODE_PROPERTIES), as
 * the reference applies them. */
#include <ctype.h>
#include <string.h>

#include "tokenizer/regex/regex_parse.h"

/* --- properties by name */

/* A union of categories and flags, by its name in lower case without '_'. */
typedef struct {
  const char *name;
  const char *categories; /* names of two letters each ("LuLl"), or one letter: all that begin with it */
  uint32_t flags;
} NamedSet;

/* Long names of general categories, of groups of them, and of other properties. */
static const NamedSet properties[] = {
    {"letter", "L", 0},
    {"mark", "M", 0},
    {"number", "N", 0},
    {"punctuation", "P", 0},
    {"punct", "P", 0},
    {"symbol", "S", 0},
    {"separator", "Z", 0},
    {"other", "C", 0},
    {"lc", "LuLlLt", 0},
    {"casedletter", "LuLlLt", 0},
    {"uppercaseletter", "Lu", 0},
    {"lowercaseletter", "Ll", 0},
    {"titlecaseletter", "Lt", 0},
    {"modifierletter", "Lm", 0},
    {"otherletter", "Lo", 0},
    {"combiningmark", "M", 0},
    {"nonspacingmark", "Mn", 0},
    {"spacingmark", "Mc", 0},
    {"enclosingmark", "Me", 0},
    {"decimalnumber", "Nd", 0},
    {"digit", "Nd", 0},
    {"letternumber", "Nl", 0},
    {"othernumber", "No", 0},
    {"connectorpunctuation", "Pc", 0},
    {"dashpunctuation", "Pd", 0},
    {"openpunctuation", "Ps", 0},
    {"closepunctuation", "Pe", 0},
    {"initialpunctuation", "Pi", 0},
    {"finalpunctuation", "Pf", 0},
    {"otherpunctuation", "Po", 0},
    {"mathsymbol", "Sm", 0},
    {"currencysymbol", "Sc", 0},
    {"modifiersymbol", "Sk", 0},
    {"othersymbol", "So", 0},
    {"spaceseparator", "Zs", 0},
    {"lineseparator", "Zl", 0},
    {"paragraphseparator", "Zp", 0},
    {"control", "Cc", 0},
    {"cntrl", "Cc", 0},
    {"format", "Cf", 0},
    {"surrogate", "Cs", 0},
    {"privateuse", "Co", 0},
    {"unassigned", "Cn", 0},
    {"alphabetic", "", CHAR_ALPHABETIC},
    {"alpha", "", CHAR_ALPHABETIC},
    {"lowercase", "", CHAR_LOWERCASE},
    {"lower", "", CHAR_LOWERCASE},
    {"uppercase", "", CHAR_UPPERCASE},
    {"upper", "", CHAR_UPPERCASE},
    {"whitespace", "", CHAR_SPACE},
    {"space", "", CHAR_SPACE},
    {"alnum", "Nd", CHAR_ALPHABETIC},
};

/* ISO 15924 codes of the scripts that split patterns name. */
static const struct {
  const char *code, *name;
} script_codes[] = {
    {"arab", "arabic"},     {"armn", "armenian"},  {"beng", "bengali"},  {"cyrl", "cyrillic"},
    {"deva", "devanagari"}, {"ethi", "ethiopic"},  {"geor", "georgian"}, {"grek", "greek"},
    {"hang", "hangul"},     {"hani", "han"},       {"hebr", "hebrew"},   {"hira", "hiragana"},
    {"kana", "katakana"},   {"khmr", "khmer"},     {"laoo", "lao"},      {"latn", "latin"},
    {"mong", "mongolian"},  {"mymr", "myanmar"},   {"taml", "tamil"},    {"telu", "telugu"},
    {"tibt", "tibetan"},    {"zinh", "inherited"}, {"zyyy", "common"},   {"zzzz", "unknown"},
};

/* Returns whether `name`, as the tables spell it, is `wanted`, which is in lower case without '_'. */
static bool same_name(const char *name, const char *wanted) {
  for (; *name; name++) {
    if (*name == '_') continue;
    if (tolower((unsigned char)*name) != *wanted++) return false;
  }
  return *wanted == '\0';
}

/* Adds every category that begins with one letter ("L"), or each of a list ("LuLl"). */
static Status add_categories(CharSet *set, const char *categories, Error *err) {
  for (uint32_t i = 0; unicode_category_names[i]; i++) {
    const char *name = unicode_category_names[i];
    bool wanted = strlen(categories) == 1 && name[0] == categories[0];
    for (const char *c = categories; c[0] && c[1]; c += 2) wanted |= memcmp(c, name, 2) == 0;
    if (wanted) TRY(charset_add_value(set, &unicode_categories, i, err));
  }
  return STATUS_OK;
}

static Status add_named(CharSet *set, const NamedSet *named, Error *err) {
  if (named->flags) TRY(charset_add_flags(set, &unicode_flags, named->flags, err));
  return add_categories(set, named->categories, err);
}

/* Outside of a class, \w and \p{Word} are CHAR_WORD; in a class they lack six characters of CHAR_WORD. */
static Status add_word(CharSet *set, bool in_class, Error *err) {
  static const NamedSet class_word = {"word", "NdPcMnMcMe", CHAR_ALPHABETIC};
  return in_class ? add_named(set, &class_word, err) : charset_add_flags(set, &unicode_flags, CHAR_WORD, err);
}

/* Adds the property of this name (lower case, without '_', ' ' and '-'); *known is false if there is none. */
static Status add_property(CharSet *set, const char *name, bool in_class, bool *known, Error *err) {
  *known = true;
  for (size_t i = 0; i < sizeof properties / sizeof *properties; i++)
    if (strcmp(properties[i].name, name) == 0) return add_named(set, &properties[i], err);
  for (uint32_t i = 0; unicode_category_names[i]; i++)
    if (same_name(unicode_category_names[i], name))
      return charset_add_value(set, &unicode_categories, i, err);
  if (strlen(name) == 1 && strchr("lmnpszc", *name)) {
    const char major[2] = {(char)toupper((unsigned char)*name), '\0'};
    return add_categories(set, major, err);
  }
  for (size_t i = 0; i < sizeof script_codes / sizeof *script_codes; i++)
    if (strcmp(script_codes[i].code, name) == 0) name = script_codes[i].name;
  for (uint32_t i = 0; unicode_script_names[i]; i++)
    if (same_name(unicode_script_names[i], name)) return charset_add_value(set, &unicode_scripts, i, err);
  if (strcmp(name, "any") == 0) return charset_add(set, 0, UNICODE_END - 1, err);
  if (strcmp(name, "ascii") == 0) return charset_add(set, 0, 0x7f, err);
  if (strcmp(name, "word") == 0) return add_word(set, in_class, err);
  *known = false;
  return STATUS_OK;
}

/* Parses \p{NAME}, \p{^NAME} or \P{NAME}, from after the p. */
static Status parse_property(RegexParser *p, bool negated, bool in_class, CharSet *set, Error *err) {
  if (!regex_looking_at(p, '{')) return regex_refuse(p, err, "\\p without {NAME} is not supported");
  p->at++;
  if (regex_looking_at(p, '^')) {
    negated = !negated;
    p->at++;
  }
  char name[64];
  size_t n = 0, begin = p->at;
  for (; p->at < p->size && p->text[p->at] != '}'; p->at++) {
    unsigned char c = p->text[p->at];
    if (c == ' ' || c == '_' || c == '-') continue;
    name[n++] = c < 0x80 ? (char)tolower(c) : '?';
    if (n == sizeof name) break;
  }
  if (n == sizeof name || !regex_looking_at(p, '}'))
    return regex_refuse(p, err, "a property's name is too long or has no '}' behind it");
  name[n] = '\0';
  OWNED(charset_release) CharSet property = {0};
  bool known;
  TRY(add_property(&property, name, in_class, &known, err));
  if (!known)
    return regex_refuse(p, err, "\\p{%.*s}: unknown property", (int)(p->at - begin),
                        (const char *)p->text + begin);
  p->at++;
  return charset_take(set, &property, negated, err);
}

/* --- escapes */

/* Reads up to `most` hexadecimal digits; *n is their number. */
static uint32_t read_hex(RegexParser *p, int most, int *n) {
  uint32_t value = 0;
  for (*n = 0; *n < most && p->at < p->size && digit_value((char)p->text[p->at]) < 16; ++*n, p->at++)
    value = value << 4 | (uint32_t)digit_value((char)p->text[p->at]);
  return value;
}

static Status parse_hex(RegexParser *p, uint32_t letter, uint32_t *code, Error *err) {
  int n;
  bool braces = letter == 'x' && regex_looking_at(p, '{');
  if (braces) p->at++;
  *code = read_hex(p, letter == 'u' ? 4 : braces ? 8 : 2, &n);
  bool whole = letter == 'u' ? n == 4 : n > 0;
  if (braces) {
    whole &= regex_looking_at(p, '}');
    p->at++;
  }
  if (!whole) return regex_refuse(p, err, "\\%c without a whole number behind it", (char)letter);
  if (*code >= UNICODE_END || (*code >= 0xd800 && *code < 0xe000))
    return regex_refuse(p, err, "there is no character %X", (unsigned)*code);
  if (letter == 'x' && !braces && *code > 0x7f)
    return regex_refuse(p, err, "\\x%02X is half a character; \\x{%X} would be one", (unsigned)*code,
                        (unsigned)*code);
  return STATUS_OK;
}

static Status parse_octal(RegexParser *p, uint32_t *code) {
  *code = 0;
  for (int n = 0; n < 2 && p->at < p->size && p->text[p->at] >= '0' && p->text[p->at] <= '7'; n++)
    *code = *code * 8 + (uint32_t)(p->text[p->at++] - '0');
  return STATUS_OK;
}

/* Parses \d \w \s \h and their complements, \p and \P; *is_set is false for other letters. */
static Status escape_set(RegexParser *p, uint32_t letter, bool in_class, bool *is_set, CharSet *set,
                         Error *err) {
  bool negated = letter < 0x80 && isupper((int)letter);
  OWNED(charset_release) CharSet part = {0};
  *is_set = true;
  switch (letter) {
  case 'd':
  case 'D': TRY(add_categories(&part, "Nd", err)); break;
  case 'w':
  case 'W': TRY(add_word(&part, in_class, err)); break;
  case 's':
  case 'S': TRY(charset_add_flags(&part, &unicode_flags, CHAR_SPACE, err)); break;
  case 'h':
  case 'H':
    TRY(charset_add(&part, '0', '9', err));
    TRY(charset_add(&part, 'A', 'F', err));
    TRY(charset_add(&part, 'a', 'f', err));
    break;
  case 'p':
  case 'P': return parse_property(p, negated, in_class, set, err);
  default: *is_set = false; return STATUS_OK;
  }
  return charset_take(set, &part, negated, err);
}

Status regex_escape(RegexParser *p, uint32_t letter, bool in_class, bool *is_set, uint32_t *code,
                    CharSet *set, Error *err) {
  TRY(escape_set(p, letter, in_class, is_set, set, err));
  if (*is_set) return STATUS_OK;
  switch (letter) {
  case 't': *code = '\t'; return STATUS_OK;
  case 'n': *code = '\n'; return STATUS_OK;
  case 'v': *code = '\v'; return STATUS_OK;
  case 'f': *code = '\f'; return STATUS_OK;
  case 'r': *code = '\r'; return STATUS_OK;
  case 'a': *code = 0x07; return STATUS_OK;
  case 'e': *code = 0x1b; return STATUS_OK;
  case 'x':
  case 'u': return parse_hex(p, letter, code, err);
  case '0': return parse_octal(p, code);
  case 'b':
    if (!in_class) break;
    *code = '\b';
    return STATUS_OK;
  default: break;
  }
  if (letter < 0x80 && isalnum((int)letter))
    return regex_refuse(p, err, "\\%c is not supported", (char)letter);
  *code = letter;
  return STATUS_OK;
}

/* --- classes */

/* Parses [:name:] or [:^name:], from after its "[:". */
static Status parse_bracket(RegexParser *p, CharSet *set, Error *err) {
  static const NamedSet brackets[] = {
      {"alpha", "", CHAR_ALPHABETIC},
      {"alnum", "Nd", CHAR_ALPHABETIC},
      {"digit", "Nd", 0},
      {"lower", "", CHAR_LOWERCASE},
      {"upper", "", CHAR_UPPERCASE},
      {"space", "", CHAR_SPACE},
      {"punct", "PcPdPsPePiPfPoSmScSkSo", 0},
      {"cntrl", "Cc", 0},
      {"word", "NdPcMnMcMe", CHAR_ALPHABETIC},
  };
  bool negated = regex_looking_at(p, '^');
  if (negated) p->at++;
  for (size_t i = 0; i < sizeof brackets / sizeof *brackets; i++) {
    size_t n = strlen(brackets[i].name);
    if (p->size - p->at < n + 2 || memcmp(p->text + p->at, brackets[i].name, n) != 0 ||
        memcmp(p->text + p->at + n, ":]", 2) != 0)
      continue;
    p->at += n + 2;
    OWNED(charset_release) CharSet part = {0};
    TRY(add_named(&part, &brackets[i], err));
    return charset_take(set, &part, negated, err);
  }
  return regex_refuse(p, err, "this [:bracket:] is not supported");
}

/* Parses one member of a class: a character (*is_set false, *code) or a set, which is added to `set`. */
static Status parse_member(RegexParser *p, bool *is_set, uint32_t *code, CharSet *set, Error *err) {
  *is_set = false;
  TRY(regex_next(p, code, err));
  if (*code == '\\') {
    uint32_t letter;
    TRY(regex_next(p, &letter, err));
    return regex_escape(p, letter, true, is_set, code, set, err);
  }
  if (*code != '[') return STATUS_OK;
  *is_set = true;
  if (regex_looking_at(p, ':')) {
    p->at++;
    return parse_bracket(p, set, err);
  }
  return regex_class(p, false, set, err); /* case is folded once, for the outermost class */
}

static Status parse_range(RegexParser *p, uint32_t first, CharSet *set, Error *err) {
  p->at++; /* the '-' */
  bool is_set;
  uint32_t last;
  OWNED(charset_release) CharSet ignored = {0};
  TRY(parse_member(p, &is_set, &last, &ignored, err));
  if (is_set) return regex_refuse(p, err, "a set at the end of a range");
  if (last < first) return regex_refuse(p, err, "a range that runs backwards");
  return charset_add(set, first, last, err);
}

/* Parses the body of a class up to its ']' into `all`, without negation: unions separated by "&&". `current`
 * is the union that is being read; *intersected says whether a "&&" was read. */
static Status parse_unions(RegexParser *p, CharSet *current, CharSet *all, bool *intersected, Error *err) {
  for (bool first = true;; first = false) {
    if (p->at >= p->size) return regex_refuse(p, err, "a class without ']'");
    if (regex_looking_at(p, ']')) {
      /* A leading ']' is a member if another ']' ends the class. */
      if (!first) break;
      if (!memchr(p->text + p->at + 1, ']', p->size - p->at - 1))
        return regex_refuse(p, err, "an empty class");
    }
    if (regex_looking_at(p, '&') && p->at + 1 < p->size && p->text[p->at + 1] == '&') {
      p->at += 2;
      charset_tidy(current);
      if (*intersected) {
        TRY(charset_intersect(all, current, err));
      } else {
        TRY(charset_unite(all, current, err));
      }
      *intersected = true;
      charset_release(current);
      continue;
    }
    bool is_set;
    uint32_t code;
    TRY(parse_member(p, &is_set, &code, current, err));
    if (regex_looking_at(p, '-') && p->at + 1 < p->size && p->text[p->at + 1] != ']') {
      if (is_set) return regex_refuse(p, err, "a set at the beginning of a range");
      TRY(parse_range(p, code, current, err));
    } else if (!is_set) {
      TRY(charset_add(current, code, code, err));
    }
  }
  p->at++;
  charset_tidy(current);
  return *intersected ? charset_intersect(all, current, err) : charset_unite(all, current, err);
}

/* Refuses a member that also matches a sequence of characters if case is ignored ("ss" for U+00DF). If the
 * class also contains the sequence's first character, it matches that character alone, and the member is
 * accepted. */
static Status refuse_multi_folds(const RegexParser *p, const CharSet *plain, const CharSet *folded,
                                 Error *err) {
  for (size_t i = 0; i < unicode_multi_fold_count; i++) {
    const MultiFold *m = &unicode_multi_folds[i];
    if (charset_contains(plain, m->code) && !charset_contains(folded, m->fold[0]))
      return regex_refuse(p, err, "U+%04X in a class without regard to case is not supported",
                          (unsigned)m->code);
  }
  return STATUS_OK;
}

static Status fold_class(const RegexParser *p, bool negated, CharSet *set, Error *err) {
  OWNED(charset_release) CharSet plain = {0};
  TRY(charset_unite(&plain, set, err));
  charset_tidy(&plain);
  TRY(charset_fold(set, err));
  return negated ? STATUS_OK : refuse_multi_folds(p, &plain, set, err);
}

Status regex_class(RegexParser *p, bool ignore_case, CharSet *set, Error *err) {
  if (++p->depth > 200) return regex_refuse(p, err, "nested too deep");
  bool negated = regex_looking_at(p, '^'), intersected = false;
  if (negated) p->at++;
  OWNED(charset_release) CharSet current = {0};
  OWNED(charset_release) CharSet all = {0};
  TRY(parse_unions(p, &current, &all, &intersected, err));
  if (ignore_case) TRY(fold_class(p, negated, &all, err));
  p->depth--;
  return charset_take(set, &all, negated, err);
}
