/* lex.c - a template's text as tokens, as jinja2 reads it with trim_blocks and lstrip_blocks.
 *
 * Called by: parse.c. trim_blocks drops the newline after a block or comment; lstrip_blocks drops white space
 * between the beginning of a line and a block or comment. '-' inside a tag drops all white space on its side,
 * '+' keeps it. */
#include "base/utf8.h"
#include "tokenizer/jinja/strings.h"
#include "tokenizer/unicode/unicode.h"

static Status lex_fail(const Lexer *lexer, int line, const char *what, Error *err) {
  return error_set(err, STATUS_MODEL, "%s: line %d: %s", lexer->name, line, what);
}

/* Makes all line ends \n and drops one at the template's end. */
static void copy_lines(const char *text, size_t size, char *out, size_t *n_out) {
  size_t n = 0;
  for (size_t i = 0; i < size; i++) {
    out[n++] = text[i] == '\r' ? '\n' : text[i];
    if (text[i] == '\r' && i + 1 < size && text[i + 1] == '\n') i++;
  }
  *n_out = n > 0 && out[n - 1] == '\n' ? n - 1 : n;
}

Status lexer_open(const char *name, const char *text, size_t size, Arena *arena, Lexer *lexer, Error *err) {
  *lexer = (Lexer){.name = name, .arena = arena, .line = 1, .at_line_start = true};
  if (size > TEMPLATE_MAX_SIZE)
    return error_set(err, STATUS_MODEL, "%s: has %zu bytes, expected at most %d", name, size,
                     TEMPLATE_MAX_SIZE);
  size_t valid = utf8_valid_prefix(text, size);
  if (valid < size)
    return error_set(err, STATUS_MODEL, "%s is not valid UTF-8: byte 0x%02x at offset %zu", name,
                     (unsigned char)text[valid], valid);
  const char *nul = size ? memchr(text, 0, size) : NULL;
  if (nul) return error_set(err, STATUS_MODEL, "%s is no text: it has a NUL at offset %td", name, nul - text);
  char *copy = arena_alloc(arena, size + 1, 1, err);
  if (!copy) return STATUS_FAILED;
  size_t n;
  copy_lines(text, size, copy, &n);
  lexer->source = text_of(copy, n, true);
  return STATUS_OK;
}

/* --- the source */

static char byte_at(const Lexer *lexer, size_t at) {
  return at < lexer->source.size ? lexer->source.data[at] : '\0';
}

static bool starts_with(const Lexer *lexer, size_t at, const char *string) {
  size_t n = strlen(string);
  return lexer->source.size - at >= n && memcmp(lexer->source.data + at, string, n) == 0;
}

static size_t pass_space(const Lexer *lexer, size_t at) {
  while (at < lexer->source.size && code_is_space(text_code(lexer->source, at)))
    at += text_step(lexer->source, at);
  return at;
}

/* Advances and counts lines. */
static void move_to(Lexer *lexer, size_t at) {
  for (size_t i = lexer->at; i < at; i++) lexer->line += lexer->source.data[i] == '\n';
  if (at > lexer->at) lexer->at_line_start = lexer->source.data[at - 1] == '\n';
  lexer->at = at;
}

/* Returns the offset after a tag's end at `at` (an optional sign, then `close`) and after the white space
 * that the tag drops. SIZE_MAX if no tag ends at `at`. */
static size_t tag_end(const Lexer *lexer, size_t at, const char *close) {
  bool is_variable = close[0] == '}';
  char sign = byte_at(lexer, at);
  bool is_signed = sign == '-' || (sign == '+' && !is_variable);
  if (!starts_with(lexer, at + is_signed, close)) return SIZE_MAX;
  at += is_signed + 2u;
  if (is_signed) return sign == '-' ? pass_space(lexer, at) : at;
  return !is_variable && byte_at(lexer, at) == '\n' ? at + 1 : at;
}

/* --- between tags */

/* The offset after "{%", an optional sign, WORD and white space at `at`; SIZE_MAX if they are not there. */
static size_t pass_word_tag(const Lexer *lexer, size_t at, const char *word) {
  if (!starts_with(lexer, at, "{%")) return SIZE_MAX;
  at += 2;
  if (byte_at(lexer, at) == '-' || byte_at(lexer, at) == '+') at++;
  at = pass_space(lexer, at);
  if (!starts_with(lexer, at, word)) return SIZE_MAX;
  return pass_space(lexer, at + strlen(word));
}

static size_t raw_begin(const Lexer *lexer, size_t at) {
  size_t after = pass_word_tag(lexer, at, "raw");
  if (after == SIZE_MAX) return SIZE_MAX;
  if (starts_with(lexer, after, "%}")) return after + 2;
  return starts_with(lexer, after, "-%}") ? pass_space(lexer, after + 3) : SIZE_MAX;
}

/* The data before the tag at `at` with the sign `sign`, without the white space that the tag drops. */
static Text data_before(const Lexer *lexer, size_t at, char sign, bool is_variable) {
  Text data = text_slice(lexer->source, lexer->at, at);
  if (sign == '-') return text_strip(data, STRIP_RIGHT);
  if (sign == '+' || is_variable) return data;
  size_t line = data.size;
  while (line > 0 && data.data[line - 1] != '\n') line--;
  if (line == 0 && !lexer->at_line_start) return data;
  return text_strip(text_slice(data, line, data.size), STRIP_LEFT).size == 0 ? text_slice(data, 0, line)
                                                                             : data;
}

/* The next "{{", "{%" or "{#", or the end. */
static size_t find_tag(const Lexer *lexer) {
  size_t at = lexer->at;
  for (; at + 1 < lexer->source.size; at++) {
    const char *found = memchr(lexer->source.data + at, '{', lexer->source.size - at);
    if (!found) break;
    at = (size_t)(found - lexer->source.data);
    if (strchr("{%#", byte_at(lexer, at + 1)) && byte_at(lexer, at + 1)) return at;
  }
  return lexer->source.size;
}

static Status pass_comment(Lexer *lexer, size_t at, Error *err) {
  at += 2;
  if (byte_at(lexer, at) == '-' || byte_at(lexer, at) == '+') at++;
  size_t from = at;
  at = text_find(lexer->source, text_literal("#}"), at, lexer->source.size);
  if (at == SIZE_MAX) return lex_fail(lexer, lexer->line, "a comment has no end (#})", err);
  bool is_signed = at > from && (byte_at(lexer, at - 1) == '-' || byte_at(lexer, at - 1) == '+');
  move_to(lexer, tag_end(lexer, at - is_signed, "#}"));
  return STATUS_OK;
}

/* Reads the text between {% raw %} and {% endraw %}. */
static Status lex_raw(Lexer *lexer, size_t begin, Token *token, Error *err) {
  int line = lexer->line;
  move_to(lexer, begin);
  for (size_t at = begin; at < lexer->source.size; at++) {
    size_t after = byte_at(lexer, at) == '{' ? pass_word_tag(lexer, at, "endraw") : SIZE_MAX;
    if (after != SIZE_MAX) after = tag_end(lexer, after, "%}");
    if (after == SIZE_MAX) continue;
    token->kind = TOKEN_DATA;
    token->text = data_before(lexer, at, byte_at(lexer, at + 2), false);
    move_to(lexer, after);
    return STATUS_OK;
  }
  if (begin == lexer->source.size) return STATUS_OK; /* jinja2 requires {% endraw %} only if text follows */
  return lex_fail(lexer, line, "{% raw %} has no {% endraw %}", err);
}

static Status lex_data(Lexer *lexer, Token *token, Error *err) {
  while (lexer->at < lexer->source.size || lexer->begins_tag) {
    size_t at = lexer->begins_tag ? lexer->at : find_tag(lexer), raw = raw_begin(lexer, at);
    char kind = byte_at(lexer, at + 1);
    if (!lexer->begins_tag) {
      Text data = at < lexer->source.size ? data_before(lexer, at, byte_at(lexer, at + 2), kind == '{')
                                          : text_slice(lexer->source, lexer->at, at);
      token->line = lexer->line;
      move_to(lexer, at);
      if (at < lexer->source.size) lexer->begins_tag = true;
      if (data.size > 0) {
        token->kind = TOKEN_DATA;
        token->text = data;
        return STATUS_OK;
      }
      continue;
    }
    lexer->begins_tag = false;
    token->line = lexer->line;
    token->at = at;
    if (raw != SIZE_MAX) {
      TRY(lex_raw(lexer, raw, token, err));
      if (token->text.size > 0) return STATUS_OK;
    } else if (kind == '#') {
      TRY(pass_comment(lexer, at, err));
    } else {
      char sign = byte_at(lexer, at + 2);
      token->kind = kind == '{' ? TOKEN_VARIABLE_BEGIN : TOKEN_BLOCK_BEGIN;
      lexer->state = kind == '{' ? LEX_VARIABLE : LEX_BLOCK;
      move_to(lexer, at + 2 + (sign == '-' || sign == '+'));
      return STATUS_OK;
    }
  }
  token->kind = TOKEN_END;
  return STATUS_OK;
}

/* --- inside tags */

static bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

/* The offset after digits with single '_' between them, or `at`. */
static size_t pass_digits(const Lexer *lexer, size_t at) {
  if (!is_digit(byte_at(lexer, at))) return at;
  while (is_digit(byte_at(lexer, at)) || (byte_at(lexer, at) == '_' && is_digit(byte_at(lexer, at + 1))))
    at++;
  return at;
}

/* The offset after the fraction and exponent of a float whose integer part ends at `at`; `at` for an
 * integer. */
static size_t pass_fraction(const Lexer *lexer, size_t at) {
  size_t after = at;
  if (byte_at(lexer, at) == '.' && is_digit(byte_at(lexer, at + 1))) after = pass_digits(lexer, at + 1);
  if (byte_at(lexer, after) != 'e' && byte_at(lexer, after) != 'E') return after;
  char sign = byte_at(lexer, after + 1);
  size_t exponent = after + 1 + (sign == '+' || sign == '-');
  return is_digit(byte_at(lexer, exponent)) ? pass_digits(lexer, exponent) : after;
}

/* The offset after an integer. 0x, 0o or 0b gives its base; a decimal that begins with 0 has only zeros. */
static size_t pass_integer(const Lexer *lexer, size_t at) {
  int base = 10;
  if (byte_at(lexer, at) == '0') {
    char mark = byte_at(lexer, at + 1) | 0x20;
    int marked = mark == 'x' ? 16 : mark == 'o' ? 8 : mark == 'b' ? 2 : 1;
    size_t digit = at + 2 + (byte_at(lexer, at + 2) == '_');
    base = digit_value(byte_at(lexer, digit)) < marked ? marked : 1;
    if (base > 1) at += 2;
  }
  for (;; at++) {
    if (byte_at(lexer, at) == '_' && digit_value(byte_at(lexer, at + 1)) < base) at++;
    if (digit_value(byte_at(lexer, at)) >= base) return at;
  }
}

static Status lex_number(Lexer *lexer, Token *token, Error *err) {
  size_t from = lexer->at, end = pass_digits(lexer, from);
  size_t after = from > 0 && byte_at(lexer, from - 1) == '.' ? end : pass_fraction(lexer, end);
  token->kind = after == end ? TOKEN_INTEGER : TOKEN_FLOAT;
  if (after == end) after = pass_integer(lexer, from);
  Text text = text_slice(lexer->source, from, after);
  if (token->kind == TOKEN_INTEGER && !string_to_int(text, 0, &token->integer))
    return lex_fail(lexer, lexer->line, "an integer is beyond 64 bits", err);
  if (token->kind == TOKEN_FLOAT && !string_to_float(text, &token->number))
    return lex_fail(lexer, lexer->line, "a number is too long", err);
  move_to(lexer, after);
  return STATUS_OK;
}

static bool is_word(uint32_t code) {
  if (code < 0x80) return (code | 0x20) - 'a' < 26 || code - '0' < 10 || code == '_';
  return unicode_value(&unicode_flags, code) & CHAR_WORD;
}

static Status lex_name(Lexer *lexer, Token *token) {
  size_t at = lexer->at;
  while (at < lexer->source.size && is_word(text_code(lexer->source, at))) at += text_step(lexer->source, at);
  token->kind = TOKEN_NAME;
  token->text = text_slice(lexer->source, lexer->at, at);
  move_to(lexer, at);
  return STATUS_OK;
}

/* Decodes the escape after the backslash text[*at - 1]: appends to out[0 .. *n) and moves *at. False if the
 * escape is invalid. An unknown escape stays as it is, as in Python. An escaped character beyond ASCII
 * becomes its \x, \u or \U form, as in the strings that jinja2 passes to Python's decoder. */
static bool unescape(const char *text, size_t size, size_t *at, char *out, size_t *n) {
  static const char letters[] = "abfnrtv\\'\"", meant[] = "\a\b\f\n\r\t\v\\'\"";
  unsigned char c = (unsigned char)text[*at];
  const char *simple = c ? strchr(letters, c) : NULL;
  if (simple) {
    out[(*n)++] = meant[simple - letters];
    ++*at;
    return true;
  }
  if (c == '\n') return ++*at, true;
  uint32_t code = 0;
  int digits = c == 'x' ? 2 : c == 'u' ? 4 : c == 'U' ? 8 : 0;
  if (c >= '0' && c <= '7') {
    for (int i = 0; i < 3 && *at < size && text[*at] >= '0' && text[*at] <= '7'; i++)
      code = code * 8 + (uint32_t)(text[(*at)++] - '0');
  } else if (digits) {
    ++*at;
    for (int i = 0; i < digits; i++, ++*at) {
      if (*at >= size || digit_value(text[*at]) > 15) return false;
      code = code << 4 | (uint32_t)digit_value(text[*at]);
    }
  } else if (c >= 0x80) {
    int length = utf8_decode(text + *at, size - *at, &code);
    char escaped[16];
    escape_code(code, escaped);
    memcpy(out + *n, escaped, strlen(escaped));
    *n += strlen(escaped);
    *at += (size_t)length;
    return true;
  } else {
    if (c == 'N') return false;
    out[(*n)++] = '\\';
    return true;
  }
  if (code >= 0x110000 || (code >= 0xd800 && code < 0xe000)) return false;
  *n += (size_t)utf8_encode(code, out + *n);
  return true;
}

static Status lex_string(Lexer *lexer, Token *token, Error *err) {
  char quote = byte_at(lexer, lexer->at);
  size_t from = lexer->at + 1, to = from;
  while (to < lexer->source.size && byte_at(lexer, to) != quote) to += byte_at(lexer, to) == '\\' ? 2 : 1;
  if (to >= lexer->source.size) return lex_fail(lexer, lexer->line, "a string has no end", err);
  const char *text = lexer->source.data + from;
  size_t size = to - from, n = 0;
  /* More than enough: an escape at most doubles. A backslash and 4 bytes of UTF-8 become \U0001f600. */
  char *out = arena_alloc(lexer->arena, 4 * size + 1, 1, err);
  if (!out) return STATUS_FAILED;
  for (size_t at = 0; at < size;) {
    if (text[at] != '\\') {
      out[n++] = text[at++];
      continue;
    }
    at++;
    if (!unescape(text, size, &at, out, &n))
      return lex_fail(lexer, lexer->line, "a string has an escape that is not supported", err);
  }
  token->kind = TOKEN_STRING;
  token->text = text_of(out, n, true);
  move_to(lexer, to + 1);
  return STATUS_OK;
}

static const struct {
  char text[3];
  Operator op;
} operators[] = {
    {"//", OP_FLOORDIV}, {"**", OP_POW},   {"==", OP_EQ},      {"!=", OP_NE},       {"<=", OP_LE},
    {">=", OP_GE},       {"+", OP_ADD},    {"-", OP_SUB},      {"*", OP_MUL},       {"/", OP_DIV},
    {"%", OP_MOD},       {"~", OP_TILDE},  {"<", OP_LT},       {">", OP_GT},        {"=", OP_ASSIGN},
    {".", OP_DOT},       {":", OP_COLON},  {",", OP_COMMA},    {";", OP_SEMICOLON}, {"|", OP_PIPE},
    {"(", OP_LPAREN},    {")", OP_RPAREN}, {"[", OP_LBRACKET}, {"]", OP_RBRACKET},  {"{", OP_LBRACE},
    {"}", OP_RBRACE},
};

/* Brackets must match: a tag ends only outside of them. */
static Status balance(Lexer *lexer, char c, Error *err) {
  const char *open = strchr("([{", c);
  if (open) {
    if (lexer->n_open == TEMPLATE_MAX_BRACKETS)
      return lex_fail(lexer, lexer->line, "brackets are nested too deep", err);
    lexer->closing[lexer->n_open++] = ")]}"[open - "([{"];
  } else if (strchr(")]}", c) && (lexer->n_open == 0 || lexer->closing[--lexer->n_open] != c)) {
    return error_set(err, STATUS_MODEL, "%s: line %d: unexpected '%c'", lexer->name, lexer->line, c);
  }
  return STATUS_OK;
}

static Status lex_operator(Lexer *lexer, Token *token, Error *err) {
  for (size_t i = 0; i < sizeof operators / sizeof *operators; i++) {
    if (!starts_with(lexer, lexer->at, operators[i].text)) continue;
    token->kind = TOKEN_OPERATOR;
    token->op = operators[i].op;
    TRY(balance(lexer, operators[i].text[0], err));
    move_to(lexer, lexer->at + strlen(operators[i].text));
    return STATUS_OK;
  }
  Text rest = text_slice(lexer->source, lexer->at, lexer->source.size);
  return error_set(err, STATUS_MODEL, "%s: line %d: unexpected character '%.*s'", lexer->name, lexer->line,
                   (int)text_step(rest, 0), rest.data);
}

static Status lex_tag(Lexer *lexer, Token *token, Error *err) {
  bool is_variable = lexer->state == LEX_VARIABLE;
  size_t after = lexer->n_open ? SIZE_MAX : tag_end(lexer, lexer->at, is_variable ? "}}" : "%}");
  if (after == SIZE_MAX) {
    move_to(lexer, pass_space(lexer, lexer->at));
    after = lexer->n_open ? SIZE_MAX : tag_end(lexer, lexer->at, is_variable ? "}}" : "%}");
  }
  token->line = lexer->line;
  token->at = lexer->at;
  if (after != SIZE_MAX) {
    token->kind = is_variable ? TOKEN_VARIABLE_END : TOKEN_BLOCK_END;
    lexer->state = LEX_DATA;
    move_to(lexer, after);
    return STATUS_OK;
  }
  if (lexer->at == lexer->source.size) {
    token->kind = TOKEN_END;
    return STATUS_OK;
  }
  char c = byte_at(lexer, lexer->at);
  if (is_digit(c)) return lex_number(lexer, token, err);
  if (is_word(text_code(lexer->source, lexer->at))) return lex_name(lexer, token);
  if (c == '"' || c == '\'') return lex_string(lexer, token, err);
  return lex_operator(lexer, token, err);
}

Status lexer_next(Lexer *lexer, Token *token, Error *err) {
  *token = (Token){.line = lexer->line, .at = lexer->at};
  TRY(lexer->state == LEX_DATA ? lex_data(lexer, token, err) : lex_tag(lexer, token, err));
  token->size = lexer->at > token->at ? lexer->at - token->at : 0;
  return STATUS_OK;
}
