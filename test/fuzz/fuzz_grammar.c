/* fuzz_grammar.c - a grammar in GBNF (after a '~': a regular expression) and, after a NUL byte, a text: the
 * compilers and the states. A text that is allowed must be UTF-8. */
#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"
#include "constrain/grammar/grammar.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool holds) {
  if (!holds) abort();
}

/* Takes the text until a byte is refused, twice: the second time by transitions that are known. */
static void take(Grammar *g, const char *text, size_t size) {
  size_t taken[2] = {0};
  for (int turn = 0; turn < 2; turn++) {
    uint32_t state = grammar_begin(g), next;
    size_t at = 0;
    for (; at < size && (next = grammar_next(g, state, (unsigned char)text[at])); at++)
      state = grammar_settle(g, next);
    taken[turn] = at;
    if (grammar_check(g, NULL) != STATUS_OK) return;
    if (grammar_may_end(g, state)) require(utf8_valid_prefix(text, at) == at);
  }
  require(taken[0] == taken[1]);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  const char *text = (const char *)data, *nul = size ? memchr(data, 0, size) : NULL;
  const size_t n = nul ? (size_t)(nul - text) : size;
  Grammar *g;
  Error err = {{0}};
  if (size > 4096 || utf8_valid_prefix(text, n) < n) return 0;
  Status status = n > 0 && *text == '~' ? grammar_open_regular_expression("fuzz", text + 1, n - 1, &g, &err)
                                        : grammar_open("fuzz", text, n, NULL, &g, &err);
  if (status != STATUS_OK) {
    require(status == STATUS_USAGE && err.text[0] && !g);
    return 0;
  }
  if (nul) take(g, nul + 1, size - n - 1);
  grammar_close(g);
  return 0;
}
