/* regex_parse.c - translates Oniguruma's regular expressions to PCRE2's; see regex_parse.h.
 *
 * Constructs that both languages share are copied; these differ:
 *   . ^ $ \Z \b \R     written out, as Oniguruma's newline is "\n" alone and words are CHAR_WORD
 *   {n,m}+ {n}?        no possessive or lazy forms: a repetition of a repetition
 *   (?m) (?i)a|b       '.' takes newlines; an option in a branch applies to the rest of the group
 *   (...) (?<n>...)    do not capture, as nothing can refer to them: back-references are refused
 * Always true: units[0 .. n_units) is well-formed for PCRE2 up to the groups that are open. */
#include "tokenizer/regex/regex_parse.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/utf8.h"

/* Patterns of real tokenizers have up to 4 KB, a dozen different sets and no repetitions of repetitions. Sets
 * are compared with each other, and each further repetition wraps its atom once more. */
enum { MAX_PATTERN = 16384, MAX_SETS = 1024, MAX_QUANTIFIERS = 16 };

typedef struct {
  bool ignore_case, dot_takes_newline;
} RegexOptions;

static Status parse_branches(RegexParser *p, RegexOptions options, Error *err);

Status regex_refuse(const RegexParser *p, Error *err, const char *format, ...) {
  char message[256];
  va_list args;
  va_start(args, format);
  vsnprintf(message, sizeof message, format, args);
  va_end(args);
  return error_set(err, STATUS_MODEL, "%s: regular expression at byte %zu: %s", p->where, p->at, message);
}

Status regex_next(RegexParser *p, uint32_t *code, Error *err) {
  if (p->at >= p->size) return regex_refuse(p, err, "it ends too early");
  int length = utf8_decode(p->text + p->at, p->size - p->at, code);
  if (length <= 0) return regex_refuse(p, err, "invalid UTF-8");
  p->at += (size_t)length;
  return STATUS_OK;
}

/* --- writing units */

static Status emit_unit(RegexParser *p, uint32_t unit, Error *err) {
  return APPEND(p->units, p->n_units, p->units_capacity, "a regular expression", err, unit);
}

static Status emit(RegexParser *p, const char *text, Error *err) {
  for (; *text; text++) TRY(emit_unit(p, (unsigned char)*text, err));
  return STATUS_OK;
}

/* Appends `set` as a unit; p->sets takes over the set's memory unless it has an equal set. */
static Status emit_set(RegexParser *p, CharSet *set, Error *err) {
  size_t i = 0;
  charset_tidy(set);
  while (i < p->n_sets && !charset_equal(&p->sets[i], set)) i++;
  if (i == MAX_SETS) return regex_refuse(p, err, "more than %d sets of characters", MAX_SETS);
  if (i == p->n_sets)
    TRY(APPEND(p->sets, p->n_sets, p->sets_capacity, "a regular expression", err, TAKE(*set)));
  return emit_unit(p, UNIT_SET + (uint32_t)i, err);
}

static Status emit_character(RegexParser *p, uint32_t code, Error *err) {
  OWNED(charset_release) CharSet set = {0};
  TRY(charset_add(&set, code, code, err));
  return emit_set(p, &set, err);
}

/* Makes units[start ..] one group, so that a quantifier can follow. */
static Status wrap(RegexParser *p, size_t start, Error *err) {
  TRY(emit(p, "   )", err)); /* room for "(?:" */
  memmove(p->units + start + 3, p->units + start, (p->n_units - 4 - start) * sizeof *p->units);
  p->units[start] = '(', p->units[start + 1] = '?', p->units[start + 2] = ':';
  return STATUS_OK;
}

/* --- characters */

/* Refuses U+00DF, "ss" and the like: if case is ignored, several characters in a row can match one other
 * character, also across the borders of plain groups. */
static Status note_literal(RegexParser *p, uint32_t code, Error *err) {
  if (p->n_literals == 3) {
    memmove(p->literals, p->literals + 1, 2 * sizeof *p->literals);
    p->n_literals = 2;
  }
  p->literals[p->n_literals++] = unicode_case(&unicode_fold, code);
  for (size_t i = 0; i < unicode_multi_fold_count; i++) {
    const MultiFold *m = &unicode_multi_folds[i];
    size_t n = m->fold[2] ? 3 : 2, same = 0;
    while (same < n && n <= p->n_literals &&
           p->literals[p->n_literals - n + same] == unicode_case(&unicode_fold, m->fold[same]))
      same++;
    if (same == n || m->code == code)
      return regex_refuse(p, err,
                          "U+%04X and its other form, of several characters, without regard to case: not "
                          "supported",
                          (unsigned)m->code);
  }
  return STATUS_OK;
}

static Status emit_literal(RegexParser *p, uint32_t code, RegexOptions options, Error *err) {
  if (!options.ignore_case) {
    p->n_literals = 0;
    return emit_character(p, code, err);
  }
  OWNED(charset_release) CharSet set = {0};
  TRY(note_literal(p, code, err));
  TRY(charset_add(&set, code, code, err));
  TRY(charset_fold(&set, err));
  return emit_set(p, &set, err);
}

static Status emit_dot(RegexParser *p, bool newline_too, Error *err) {
  OWNED(charset_release) CharSet set = {0};
  if (!newline_too) TRY(charset_add(&set, '\n', '\n', err));
  TRY(charset_complement(&set, err));
  return emit_set(p, &set, err);
}

static Status emit_word(RegexParser *p, Error *err) {
  OWNED(charset_release) CharSet set = {0};
  TRY(charset_add_flags(&set, &unicode_flags, CHAR_WORD, err));
  return emit_set(p, &set, err);
}

/* \b: exactly one side is a word character; \B: both or neither. */
static Status emit_boundary(RegexParser *p, bool negated, Error *err) {
  TRY(emit(p, "(?:(?<=", err));
  TRY(emit_word(p, err));
  TRY(emit(p, negated ? ")(?=" : ")(?!", err));
  TRY(emit_word(p, err));
  TRY(emit(p, ")|(?<!", err));
  TRY(emit_word(p, err));
  TRY(emit(p, negated ? ")(?!" : ")(?=", err));
  TRY(emit_word(p, err));
  return emit(p, "))", err);
}

/* \R: CR LF as one, else any of LF VT FF CR NEL LS PS. */
static Status emit_linebreak(RegexParser *p, Error *err) {
  TRY(emit(p, "(?>", err));
  TRY(emit_character(p, '\r', err));
  TRY(emit_character(p, '\n', err));
  TRY(emit(p, "|", err));
  OWNED(charset_release) CharSet set = {0};
  TRY(charset_add(&set, '\n', '\r', err));
  TRY(charset_add(&set, 0x85, 0x85, err));
  TRY(charset_add(&set, 0x2028, 0x2029, err));
  TRY(emit_set(p, &set, err));
  return emit(p, ")", err);
}

/* --- atoms */

/* The kinds of atoms, by what may follow them. */
typedef enum { ATOM_PLAIN, ATOM_ANCHOR /* cannot be repeated */, ATOM_NOTHING /* a comment */ } Atom;

static Status parse_escape(RegexParser *p, RegexOptions options, Atom *atom, Error *err) {
  uint32_t letter, code = 0;
  TRY(regex_next(p, &letter, err));
  *atom = ATOM_ANCHOR;
  switch (letter) {
  case 'A': return emit(p, "\\A", err);
  case 'z': return emit(p, "\\z", err);
  case 'Z':
    TRY(emit(p, "(?=", err));
    TRY(emit_character(p, '\n', err));
    return emit(p, "?\\z)", err);
  case 'b':
  case 'B': return emit_boundary(p, letter == 'B', err);
  default: break;
  }
  *atom = ATOM_PLAIN;
  if (letter == 'R') return emit_linebreak(p, err);
  if (letter == 'N' || letter == 'O') return emit_dot(p, letter == 'O', err);
  OWNED(charset_release) CharSet set = {0};
  bool is_set = false;
  TRY(regex_escape(p, letter, false, &is_set, &code, &set, err));
  if (!is_set) return emit_literal(p, code, options, err);
  p->n_literals = 0;
  return emit_set(p, &set, err);
}

static Status close_group(RegexParser *p, Error *err) {
  if (!regex_looking_at(p, ')')) return regex_refuse(p, err, "a group without ')'");
  p->at++;
  return emit(p, ")", err);
}

/* Parses (?imx-imx) and (?imx-imx:...) from after the '?'. The first form applies to the rest of its
 * group. */
static Status parse_options(RegexParser *p, RegexOptions options, Error *err) {
  bool on = true;
  for (;;) {
    uint32_t c;
    TRY(regex_next(p, &c, err));
    if (c == '-' && on) {
      on = false;
    } else if (c == 'i') {
      options.ignore_case = on;
    } else if (c == 'm') {
      options.dot_takes_newline = on;
    } else if (c == 'x' && !on) {
      continue; /* 'x' is never on */
    } else if (c == ':' || c == ')') {
      TRY(emit(p, "(?:", err));
      TRY(parse_branches(p, options, err));
      return c == ':' ? close_group(p, err) : emit(p, ")", err);
    } else {
      return regex_refuse(p, err, "this kind of group is not supported");
    }
  }
}

static Status skip_until(RegexParser *p, char end, Error *err) {
  const unsigned char *found = memchr(p->text + p->at, end, p->size - p->at);
  if (!found) return regex_refuse(p, err, "a group without '%c'", end);
  p->at = (size_t)(found - p->text) + 1;
  return STATUS_OK;
}

/* Skips `opening` if it comes next. */
static bool accept(RegexParser *p, const char *opening) {
  size_t n = strlen(opening);
  if (p->size - p->at < n || memcmp(p->text + p->at, opening, n) != 0) return false;
  p->at += n;
  return true;
}

/* Parses a group, from after its '('. */
static Status parse_group(RegexParser *p, RegexOptions options, Atom *atom, Error *err) {
  static const struct {
    const char *opening;
    bool anchor;
  } same[] = {{"?:", false}, {"?>", false}, {"?=", true}, {"?!", true}, {"?<=", true}, {"?<!", true}};
  if (accept(p, "?#")) {
    *atom = ATOM_NOTHING;
    return skip_until(p, ')', err);
  }
  const char *opening = "?:";
  bool anchor = false, known = false;
  for (size_t i = 0; i < sizeof same / sizeof *same && !known; i++) {
    if (!accept(p, same[i].opening)) continue;
    opening = same[i].opening;
    anchor = same[i].anchor;
    known = true;
  }
  if (!known && accept(p, "?<")) { /* a name, to which nothing can refer */
    TRY(skip_until(p, '>', err));
  } else if (!known && regex_looking_at(p, '*')) {
    return regex_refuse(p, err, "(*...) is not supported");
  } else if (!known && accept(p, "?")) {
    return parse_options(p, options, err);
  }
  *atom = anchor ? ATOM_ANCHOR : ATOM_PLAIN;
  if (anchor) p->n_literals = 0;
  TRY(emit(p, "(", err));
  TRY(emit(p, opening, err));
  TRY(parse_branches(p, options, err));
  return close_group(p, err);
}

static Status parse_atom(RegexParser *p, RegexOptions options, Atom *atom, Error *err) {
  uint32_t code;
  TRY(regex_next(p, &code, err));
  *atom = ATOM_PLAIN;
  switch (code) {
  case '(': return parse_group(p, options, atom, err);
  case '\\': return parse_escape(p, options, atom, err);
  case '.': p->n_literals = 0; return emit_dot(p, options.dot_takes_newline, err);
  case '^':
    *atom = ATOM_ANCHOR;
    TRY(emit(p, "(?:\\A|(?<=", err));
    TRY(emit_character(p, '\n', err));
    return emit(p, ")(?!\\z))", err);
  case '$':
    *atom = ATOM_ANCHOR;
    TRY(emit(p, "(?=", err));
    TRY(emit_character(p, '\n', err));
    return emit(p, "|\\z)", err);
  case '[': {
    p->n_literals = 0;
    OWNED(charset_release) CharSet set = {0};
    TRY(regex_class(p, options.ignore_case, &set, err));
    return emit_set(p, &set, err);
  }
  case '?':
  case '*':
  case '+': return regex_refuse(p, err, "'%c' has nothing to repeat", (char)code);
  default: return emit_literal(p, code, options, err);
  }
}

/* --- repetition */

static bool read_number(RegexParser *p, uint32_t *value) {
  size_t from = p->at;
  for (*value = 0; p->at < p->size && p->text[p->at] >= '0' && p->text[p->at] <= '9'; p->at++)
    if (*value <= UINT16_MAX) *value = *value * 10 + (uint32_t)(p->text[p->at] - '0');
  return p->at > from;
}

/* Parses {n}, {n,}, {,m} or {n,m}; *exact is true for {n}. In any other form '{' means itself: *found is
 * false, and nothing is skipped. */
static Status parse_interval(RegexParser *p, bool *found, bool *exact, Error *err) {
  size_t from = p->at++;
  uint32_t low = 0, high = 0;
  bool has_low = read_number(p, &low), comma = regex_looking_at(p, ',');
  if (comma) p->at++;
  bool has_high = comma && read_number(p, &high);
  *exact = has_low && !comma;
  *found = regex_looking_at(p, '}') && (has_low || has_high);
  if (!*found) {
    p->at = from;
    return STATUS_OK;
  }
  p->at++;
  if (low > UINT16_MAX || high > UINT16_MAX) return regex_refuse(p, err, "repeated more than 65535 times");
  if (has_high && high < low) return regex_refuse(p, err, "{n,m} with n above m");
  char text[32];
  if (*exact) {
    snprintf(text, sizeof text, "{%u}", (unsigned)low);
  } else if (has_high) {
    snprintf(text, sizeof text, "{%u,%u}", (unsigned)low, (unsigned)high);
  } else {
    snprintf(text, sizeof text, "{%u,}", (unsigned)low);
  }
  return emit(p, text, err);
}

/* Parses the quantifiers of the atom units[start ..]. */
static Status parse_quantifiers(RegexParser *p, size_t start, Atom atom, Error *err) {
  for (int n = 0;; n++) {
    bool again = n > 0;
    if (p->at >= p->size || !memchr("?*+{", p->text[p->at], 4)) return STATUS_OK;
    if (n == MAX_QUANTIFIERS)
      return regex_refuse(p, err, "repeated more than %d times over", MAX_QUANTIFIERS);
    char c = (char)p->text[p->at];
    size_t from = p->at, units = p->n_units;
    bool found = true, exact = false;
    if (again) TRY(wrap(p, start, err));
    if (c == '{') {
      TRY(parse_interval(p, &found, &exact, err));
      if (!found) {
        if (again) { /* unwrap */
          memmove(p->units + start, p->units + start + 3, (units - start) * sizeof *p->units);
          p->n_units = units;
        }
        return STATUS_OK;
      }
    } else {
      p->at++;
      TRY(emit_unit(p, (unsigned char)c, err));
    }
    if (atom == ATOM_ANCHOR) {
      p->at = from;
      return regex_refuse(p, err, "what matches no character is repeated");
    }
    p->n_literals = 0;
    bool lazy = regex_looking_at(p, '?') && !exact, possessive = regex_looking_at(p, '+') && c != '{';
    if (lazy || possessive) TRY(emit_unit(p, p->text[p->at++], err));
  }
}

static Status parse_branch(RegexParser *p, RegexOptions options, Error *err) {
  while (p->at < p->size && p->text[p->at] != '|' && p->text[p->at] != ')') {
    size_t start = p->n_units;
    Atom atom;
    TRY(parse_atom(p, options, &atom, err));
    if (atom != ATOM_NOTHING) TRY(parse_quantifiers(p, start, atom, err));
  }
  return STATUS_OK;
}

/* Parses up to the ')' of the group, or the end. */
static Status parse_branches(RegexParser *p, RegexOptions options, Error *err) {
  if (++p->depth > 200) return regex_refuse(p, err, "nested too deep");
  TRY(parse_branch(p, options, err));
  while (regex_looking_at(p, '|')) {
    p->at++;
    p->n_literals = 0;
    TRY(emit(p, "|", err));
    TRY(parse_branch(p, options, err));
  }
  p->depth--;
  return STATUS_OK;
}

Status regex_parse(RegexParser *p, Error *err) {
  if (p->size > MAX_PATTERN) return regex_refuse(p, err, "%zu bytes are more than %d", p->size, MAX_PATTERN);
  TRY(parse_branches(p, (RegexOptions){0}, err));
  if (p->at < p->size) return regex_refuse(p, err, "')' without its group");
  return STATUS_OK;
}
