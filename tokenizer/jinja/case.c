/* case.c - upper, lower, title and folded case as in Python.
 *
 * Called by: methods.c, filters.c, sequences.c.
 * The mappings of one character to one are utf8proc's. map() finds which characters become several
 * (SpecialCasing.txt of Unicode 14, unconditional entries); U+03A3 (sigma) becomes U+03C2 at the end of
 * a word, else U+03C3. */
#include <utf8proc.h>

#include "base/utf8.h"
#include "tokenizer/jinja/eval.h"
#include "tokenizer/unicode/unicode.h"

bool code_is_cased(uint32_t code) {
  return (unicode_value(&unicode_flags, code) & (CHAR_LOWERCASE | CHAR_UPPERCASE)) ||
         strcmp(code_category(code), "Lt") == 0;
}

/* Characters between letters that do not end a word: marks, modifiers, format characters, apostrophes, dots,
 * colons. */
static bool is_ignored(uint32_t code) {
  static const uint32_t others[] = {'\'',   '.',    ':',    0xb7,   0x387,  0x55f,  0x5f4,  0x2018, 0x2019,
                                    0x2024, 0x2027, 0xfe13, 0xfe52, 0xfe55, 0xff07, 0xff0e, 0xff1a};
  for (size_t i = 0; i < sizeof others / sizeof *others; i++)
    if (code == others[i]) return true;
  return strstr("Mn Me Cf Lm Sk", code_category(code)) != NULL;
}

/* Returns whether the sigma at `at` ends a word: apart from ignored characters, a cased letter is right
 * before it and none right after it. */
static bool ends_word(Text text, size_t at) {
  size_t before = at, behind = at + text_step(text, at);
  bool begun = false;
  while (before > 0 && !begun) {
    before = utf8_before(text.data, before);
    uint32_t code = text_code(text, before);
    if (is_ignored(code)) continue;
    if (!code_is_cased(code)) return false;
    begun = true;
  }
  if (!begun) return false;
  for (; behind < text.size; behind += text_step(text, behind)) {
    uint32_t code = text_code(text, behind);
    if (!is_ignored(code)) return !code_is_cased(code);
  }
  return true;
}

static uint32_t to_title(uint32_t code) {
  return (uint32_t)utf8proc_totitle((utf8proc_int32_t)code);
}

/* Maps the character at `at` to up to three characters; the rest of `out` is 0. Upper and title case map the
 * characters of its full case folding, if these are several. The exception is a character that is upper case
 * already or, in title case, has a title case character of its own. */
static void map(Text text, size_t at, CaseKind kind, uint32_t out[3]) {
  uint32_t code = text_code(text, at);
  utf8proc_int32_t folded[4] = {0}, same = (utf8proc_int32_t)code;
  utf8proc_ssize_t n = utf8proc_decompose_char(same, folded, 4, UTF8PROC_CASEFOLD, NULL);
  bool is_upper = strcmp(code_category(code), "Lu") == 0;
  out[1] = out[2] = 0;
  if (kind == CASE_LOWER) {
    out[0] = (uint32_t)utf8proc_tolower(same);
    if (code == 0x130) out[0] = 'i', out[1] = 0x307;
    if (code == 0x3a3 && ends_word(text, at)) out[0] = 0x3c2;
  } else if (kind == CASE_FOLDED) {
    out[0] = n > 0 ? (uint32_t)folded[0] : code;
    for (int i = 1; i < 3 && i < n; i++) out[i] = (uint32_t)folded[i];
  } else if (n < 2 || is_upper || (kind == CASE_TITLE && strcmp(code_category(to_title(code)), "Lt") == 0)) {
    out[0] = kind == CASE_UPPER ? (uint32_t)utf8proc_toupper(same) : to_title(code);
  } else if (kind == CASE_UPPER) {
    for (int i = 0; i < n; i++) out[i] = (uint32_t)utf8proc_toupper(folded[i]);
  } else { /* the first character that has a title case gets it; an iota after it is a subscript */
    bool done = false;
    for (int i = 0; i < n; i++) {
      uint32_t title = to_title((uint32_t)folded[i]);
      out[i] = !done ? title : folded[i] == 0x3b9 ? 0x345 : (uint32_t)folded[i];
      done |= title != (uint32_t)folded[i];
    }
  }
}

Status put_case(Render *render, Text text, size_t from, size_t to, CaseKind kind) {
  TRY(render_charge(render, (to - from) / 8));
  char mapped[512];
  size_t n = 0;
  for (size_t at = from; at < to;) {
    uint32_t codes[3];
    bool trusted = text_trusted_at(text, at);
    map(text, at, kind, codes);
    for (int i = 0; i < 3 && (i == 0 || codes[i]); i++) n += (size_t)utf8_encode(codes[i], mapped + n);
    at += text_step(text, at);
    bool flush = at == to || n > sizeof mapped - 16 || text_trusted_at(text, at) != trusted;
    if (!flush) continue;
    TRY(put_text(render, text_of(mapped, n, trusted)));
    n = 0;
  }
  return STATUS_OK;
}
