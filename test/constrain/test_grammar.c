/* test_grammar.c - GBNF and regular expressions over tokens, at their limits, and in masks. Single texts and
 * refusals are in test_transcripts.c. */
#include "base/json.h"
#include "constrain/constraint.h"
#include "constrain/grammar/plain_text.h"
#include "test/constrain/own_vocabulary.h"
#include "test/constrain/random_schemas.h"
#include "test/constrain/small_vocabulary.h"
#include "test/tests.h"

static void open_it(const char *text, bool regular, Constraint *c) {
  Grammar *grammar;
  Error err = {{0}};
  Status status = regular ? grammar_open_regular_expression("regex", text, strlen(text), &grammar, &err)
                          : grammar_open("g", text, strlen(text), tokenizer, &grammar, &err);
  if (status == STATUS_OK) status = constraint_open_grammar("g", grammar, &vocabulary, c, &err);
  if (status != STATUS_OK) fail_msg("%s: %s", text, err.text);
}

static const char json[] =
    "root   ::= object\n"
    "value  ::= object | array | string | number | (\"true\" | \"false\" | \"null\") ws\n"
    "\n"
    "object ::=\n"
    "  \"{\" ws (\n"
    "            string \":\" ws value\n"
    "    (\",\" ws string \":\" ws value)*\n"
    "  )? \"}\" ws\n"
    "array  ::= \"[\" ws ( value (\",\" ws value)* )? \"]\" ws # lists\n"
    "string ::= \"\\\"\" ( [^\"\\\\\\x7F\\x00-\\x1F] | \"\\\\\" ([\"\\\\bfnrt] | \"u\" [0-9a-fA-F]{4}) )* "
    "\"\\\"\" ws\n"
    "number ::= (\"-\"? ([0-9] | [1-9] [0-9]{0,15})) (\".\" [0-9]+)? ([eE] [-+]? [0-9] [1-9]{0,15})? ws\n"
    "ws ::= | \" \" | \"\\n\" [ \\t]{0,20}\n";

/* Ids that are taken in turn, as a text: "1 5 |" where the text may end after them. The grammar names tokens
 * 1, 5 and 300 of the vocabulary. */
TEST(tokens_are_taken_as_such_and_by_their_bytes) {
  static const char grammar[] =
      "root ::= <s> inside <[5]> (<[5]> | \"ab\")?\ninside ::= !<[5]>* | \"(\" inside \")\"\n";
  int32_t a = -1, b = -1, ab = -1;
  for (int32_t id = 0; id < vocabulary.n_ids; id++) {
    size_t size;
    const char *bytes = vocabulary_bytes(&vocabulary, id, &size);
    if (size == 1 && bytes[0] == 'a') a = id;
    if (size == 1 && bytes[0] == 'b') b = id;
    if (size == 2 && memcmp(bytes, "ab", 2) == 0) ab = id;
  }
  assert_true(a > 5 && b > 5);
  const struct {
    int32_t ids[6];
    int n, taken;
    bool ends;
  } cases[] = {
      {{1, 5}, 2, 2, true},        {{1, 9, 1, a, 5}, 5, 5, true},
      {{1, 5, 5}, 3, 3, true},     {{1, 5, 5, 5}, 4, 3, true},
      {{5}, 1, 0, false},          {{1, 5, a, b}, 4, 4, true},
      {{1, 5, a, a}, 4, 3, false}, {{1, 9}, 2, 2, false},
      {{a}, 1, 0, false},          {{1, 5, ab}, 3, 3 - (ab < 0), true},
  };
  uint64_t *mask = calloc(vocabulary.n_words, sizeof *mask);
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    Constraint c;
    int n = 0;
    open_it(grammar, false, &c);
    for (bool allowed = true; n < cases[i].n; n++) {
      const int32_t id = cases[i].ids[n];
      assert_int_equal(constraint_mask(&c, mask, NULL), STATUS_OK);
      assert_int_equal(constraint_take(&c, id, &allowed, NULL), STATUS_OK);
      assert_int_equal(id >= 0 && mask_has(mask, id), allowed);
      if (!allowed) break;
    }
    if (n != cases[i].taken || constraint_may_end(&c) != cases[i].ends) fail_msg("case %zu: %d taken", i, n);
    constraint_close(&c);
  }
  free(mask);
}

static int32_t id_of(const char *text) {
  for (int32_t id = 0; id < vocabulary.n_ids; id++) {
    size_t size;
    const char *bytes = vocabulary_bytes(&vocabulary, id, &size);
    if (size == strlen(text) && memcmp(bytes, text, size) == 0) return id;
  }
  fail_msg("no token is %s", text);
  return -1;
}

/* After a token that is taken by its bytes the same may follow, the end of the text too, whether a token as
 * such might have come in its place or not. */
TEST(a_token_as_such_changes_nothing_for_bytes) {
  static const char *const grammars[] = {"root ::= \"a\"", "root ::= \"a\"?", "root ::= \"a\" \"b\"*",
                                         "root ::= \"a\" root?"};
  const int32_t a = id_of("a"), b = id_of("b");
  for (size_t i = 0; i < sizeof grammars / sizeof *grammars; i++) {
    char both[100];
    snprintf(both, sizeof both, "%s | <[5]>", grammars[i]);
    Constraint c[2];
    open_it(grammars[i], false, &c[0]);
    open_it(both, false, &c[1]);
    for (int turn = 0; turn < 3; turn++) {
      bool allowed[2];
      for (int k = 0; k < 2; k++)
        assert_int_equal(constraint_take(&c[k], turn == 1 ? b : a, &allowed[k], NULL), STATUS_OK);
      assert_int_equal(allowed[0], allowed[1]);
      assert_int_equal(constraint_may_end(&c[0]), constraint_may_end(&c[1]));
      if (turn == 0) assert_true(allowed[0] && constraint_may_end(&c[1]));
      if (i == 0 && turn == 0) assert_true(constraint_must_end(&c[1]));
    }
    for (int k = 0; k < 2; k++) constraint_close(&c[k]);
  }
}

TEST(what_is_forced_ends_before_a_token) {
  Constraint c;
  Buffer bytes = {0};
  open_it("root ::= \"abc\" (<[5]> | \"def\")", false, &c);
  assert_int_equal(constraint_forced(&c, &bytes, NULL), STATUS_OK);
  assert_int_equal(bytes.size, 3);
  buffer_release(&bytes);
  constraint_close(&c);
}

/* Rules that share alternatives, sequences and alternatives of many parts compile in little work, and their
 * texts are the same as those of few. */
TEST(large_grammars_are_bounded) {
  static const struct {
    const char *before, *part, *after, *text;
    bool fits;
  } cases[] = {{"root ::= ", "a ", "\na ::= \"x\" | \"y\"", "xyx", false},
               {"root ::= ", "\"b\"? ", "\"c\"", "bbbc", true},
               {"root ::= ", "(\"b\")? ", "\"c\"", "bbbc", true},
               {"root ::= ", "\"b\"? ", "(\"c\" root)?", "bbcbb", true},
               {"root ::= ", "\"b\" | ", "\"c\" root", "ccb", true}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    static char text[200000];
    size_t n = (size_t)snprintf(text, sizeof text, "%s", cases[i].before);
    const size_t part = strlen(cases[i].part);
    for (int j = 0; j < 20000; j++, n += part) memcpy(text + n, cases[i].part, part);
    snprintf(text + n, sizeof text - n, "%s\n", cases[i].after);
    Constraint c;
    bool allowed;
    open_it(text, false, &c);
    assert_int_equal(constraint_take_bytes(&c, cases[i].text, strlen(cases[i].text), &allowed, NULL, NULL),
                     STATUS_OK);
    assert_true(allowed);
    assert_int_equal(constraint_may_end(&c), cases[i].fits);
    constraint_close(&c);
  }
  char text[4000] = "root ::= x0\n";
  for (int i = 0; i < 60; i++)
    snprintf(text + strlen(text), 60, "x%d ::= x%d | x%d \"b\"\n", i, i + 1, i + 1);
  strcat(text, "x60 ::= \"a\"\n");
  Constraint c;
  bool allowed;
  uint64_t *mask = calloc(vocabulary.n_words, sizeof *mask);
  open_it(text, false, &c);
  assert_int_equal(constraint_mask(&c, mask, NULL), STATUS_OK);
  assert_int_equal(constraint_take_bytes(&c, "abbb", 4, &allowed, NULL, NULL), STATUS_OK);
  assert_true(allowed);
  constraint_close(&c);
  free(mask);
}

/* Before a text begins it has one reading, and over 4,096 after its first byte. */
TEST(a_grammar_without_a_first_mask_is_refused) {
  static char text[200000];
  size_t n = (size_t)snprintf(text, sizeof text, "root ::= \"a\" (r0");
  for (int i = 1; i < 4200; i++) n += (size_t)snprintf(text + n, sizeof text - n, " | r%d", i);
  n += (size_t)snprintf(text + n, sizeof text - n, ")\n");
  for (int i = 0; i < 4200; i++)
    n += (size_t)snprintf(text + n, sizeof text - n, "r%d ::= \"b\" r%d \"c%d\" | \"d\"\n", i, i, i);
  assert_true(n < sizeof text);
  Grammar *grammar;
  Constraint c;
  Error err = {{0}};
  if (grammar_open("g", text, n, tokenizer, &grammar, &err)) fail_msg("%s", err.text);
  assert_int_equal(constraint_open_grammar("form", grammar, &vocabulary, &c, &err), STATUS_USAGE);
  assert_string_equal(err.text, "form: the grammar is too ambiguous: a text can be read in over 4,096 ways");
}

/* 256 groups may be inside one another, on each side of others. */
TEST(groups_are_nested_to_a_limit) {
  for (int n = 256; n <= 257; n++) {
    char text[2000] = "root ::= ";
    for (int side = 0; side < 2; side++) {
      for (int i = 0; i < n; i++) strcat(text, "(");
      strcat(text, "\"a\"");
      for (int i = 0; i < n; i++) strcat(text, ")");
    }
    Grammar *grammar;
    Error err = {{0}};
    const Status status = grammar_open("g", text, strlen(text), tokenizer, &grammar, &err);
    assert_int_equal(status, n == 256 ? STATUS_OK : STATUS_USAGE);
    if (status)
      assert_string_equal(err.text,
                          "g:1:266: expected at most 256 groups inside one another, found one more");
    grammar_close(grammar);
  }
}

/* A sequence whose parts are long sequences, so that joining them needs room of its own: 2^10 times "a", and
 * "b" after each pair. */
TEST(sequences_of_sequences_are_joined) {
  char text[4000] = "root ::= x0\n";
  for (int i = 0; i < 10; i++) snprintf(text + strlen(text), 60, "x%d ::= x%d x%d \"b\"\n", i, i + 1, i + 1);
  strcat(text, "x10 ::= \"a\"\n");
  char whole[2048] = "a", half[2048];
  for (int i = 0; i < 10; i++) {
    strcpy(half, whole);
    strcat(strcat(whole, half), "b");
  }
  Constraint c;
  bool allowed;
  open_it(text, false, &c);
  assert_int_equal(constraint_take_bytes(&c, whole, strlen(whole), &allowed, NULL, NULL), STATUS_OK);
  assert_true(allowed);
  assert_true(constraint_may_end(&c));
  constraint_close(&c);
}

/* At every place of the text, a token is in the mask if and only if its bytes are taken. */
static void check_masks(const char *grammar, bool regular, const char *text) {
  Constraint c;
  open_it(grammar, regular, &c);
  uint64_t *mask = calloc(vocabulary.n_words, sizeof *mask);
  for (size_t at = 0; at <= strlen(text); at++) {
    assert_int_equal(constraint_mask(&c, mask, NULL), STATUS_OK);
    for (int32_t id = 0; id < vocabulary.n_ids; id++) {
      bool allowed;
      const uint32_t place = c.place;
      assert_int_equal(constraint_take(&c, id, &allowed, NULL), STATUS_OK);
      c.place = place;
      if (allowed != mask_has(mask, id)) fail_msg("token %d after %.*s of %s", id, (int)at, text, grammar);
    }
    bool allowed = false;
    if (at < strlen(text)) {
      assert_int_equal(constraint_take_bytes(&c, text + at, 1, &allowed, NULL, NULL), STATUS_OK);
      assert_true(allowed);
    }
  }
  assert_true(constraint_may_end(&c));
  free(mask);
  constraint_close(&c);
}

TEST(masks_have_the_tokens_that_are_taken) {
  check_masks(json, false, "{\"a\": [1, {\"b\": \"x\"}], \"c\": null}");
  check_masks("root ::= (\" the\" | \" dog\" | \" once\" [a-z]*)+", false, " the dog onceupon");
  check_masks("[A-Z][a-z]+( [a-z]+)*\\.", true, "Once upon a time.");
  check_masks("root ::= \"\xc3\xa9\" [\xc3\xa0-\xc3\xbf]*", false, "\xc3\xa9\xc3\xa8");
  check_masks("[a-z ]{30}", true, "a part that is counted to thir");
  check_masks("(?!.*foo)[^\\n]*\\n(- .{0,9}\\n){2}", true, "Title\n- \"one\"\n- \xe4\xbd\xa0\\\n");
  check_masks("root ::= item+\nitem ::= \"<\" [a-z]+ \">\" (item | [^<>]{1,30})* \"</\" [a-z]+ \">\" [ \\n]*",
              false, "<b>the \xc3\xa9<i> x</i>\n</b>");
}

/* There is nothing in it that an interruption could end. */
TEST(a_mask_that_is_kept_needs_no_work) {
  volatile int interrupted = 0;
  Constraint c;
  uint64_t *mask = calloc(vocabulary.n_words, sizeof *mask);
  open_it("root ::= \"(\" root \")\" | [a-z ] root | \"\"", false, &c);
  constraint_heed(&interrupted);
  assert_int_equal(constraint_mask(&c, mask, NULL), STATUS_OK);
  interrupted = 1;
  assert_int_equal(constraint_mask(&c, mask, NULL), STATUS_OK);
  bool allowed;
  assert_int_equal(constraint_take_bytes(&c, "(", 1, &allowed, NULL, NULL), STATUS_INTERRUPTED);
  constraint_heed(NULL);
  constraint_close(&c);
  free(mask);
}

/* A text of many states keeps what may follow, though states are forgotten on the way. */
TEST(a_long_text_needs_no_more_memory) {
  Constraint c;
  open_it("root ::= list\nlist ::= \"[\" (list (\",\" list)*)? \"]\" | [a-z]{0,2000}", false, &c);
  bool allowed;
  for (int i = 0; i < 200000; i++) {
    const char *next = i % 2000 == 0 ? (i ? ",[" : "[") : "x";
    assert_int_equal(constraint_take_bytes(&c, next, strlen(next), &allowed, NULL, NULL), STATUS_OK);
    assert_true(allowed);
  }
  for (int i = 0; i < 100; i++) {
    assert_false(constraint_may_end(&c));
    assert_int_equal(constraint_take_bytes(&c, "]", 1, &allowed, NULL, NULL), STATUS_OK);
    assert_true(allowed);
  }
  assert_true(constraint_must_end(&c));
  constraint_close(&c);
  /* A text that may end at any time still may when old states are forgotten. */
  char text[4000] = "root ::= x0\n";
  for (int i = 0; i < 40; i++)
    snprintf(text + strlen(text), 60, "x%d ::= [a-z]{0,2000} (\"-\" x%d)?\n", i, i + 1);
  strcat(text, "x40 ::= \"!\"\n");
  open_it(text, false, &c);
  for (int i = 1; i < 40 * 1900; i++) {
    assert_int_equal(constraint_take_bytes(&c, i % 1900 ? "x" : "-", 1, &allowed, NULL, NULL), STATUS_OK);
    assert_true(allowed && constraint_may_end(&c));
  }
  constraint_close(&c);
}

/* States that were forgotten leave no masks to those that have their numbers later. */
TEST(masks_are_forgotten_with_their_states) {
  enum { DIGITS = 40, MOST = 1 << 17 };
  const int32_t digit = id_of("7"), letter = id_of("x");
  Constraint c;
  bool allowed;
  uint64_t *mask = calloc(vocabulary.n_words, sizeof *mask);
  char text[4000] = "root ::= [0-9]{40} x0\n";
  for (int i = 0; i < 40; i++)
    snprintf(text + strlen(text), 60, "x%d ::= [a-z]{0,2000} (\"-\" x%d)?\n", i, i + 1);
  strcat(text, "x40 ::= \"!\"\n");
  open_it(text, false, &c);
  uint32_t last = c.place;
  bool forgot = false;
  int n = 0; /* masks since then */
  for (int i = 0; i < MOST && n < 2 * DIGITS; i++) {
    const bool is_digit = i < DIGITS;
    if (is_digit || forgot) {
      assert_int_equal(constraint_mask(&c, mask, NULL), STATUS_OK);
      assert_int_equal(mask_has(mask, digit), is_digit);
      assert_int_equal(mask_has(mask, letter), !is_digit);
      n += forgot;
    }
    const char *next = is_digit ? "7" : i % 1900 == 1899 ? "-" : "x";
    assert_int_equal(constraint_take_bytes(&c, next, 1, &allowed, NULL, NULL), STATUS_OK);
    assert_true(allowed);
    forgot |= c.place < last;
    last = c.place;
  }
  assert_true(forgot);
  constraint_close(&c);
  free(mask);
}

/* The same of a part of many states, whether the text may end with it or goes on. */
TEST(masks_are_forgotten_with_states_of_parts) {
  enum { DIGITS = 40, LINE = 1900, LINES = 12 };
  static const char *const after[] = {"", " tail\ntail ::= \"(\" tail \")\" | \"!\""};
  const int32_t digit = id_of("7"), letter = id_of("x");
  uint64_t *mask = calloc(vocabulary.n_words, sizeof *mask);
  for (size_t k = SANITIZED; k < sizeof after / sizeof *after; k++) {
    char text[200];
    Constraint c;
    bool allowed;
    snprintf(text, sizeof text, "root ::= [0-9]{%d} ([a-z]{0,%d} \"-\"){%d}%s\n", DIGITS, LINE, LINES,
             after[k]);
    open_it(text, false, &c);
    for (int i = 0; i < DIGITS + LINES * LINE; i++) {
      const bool is_digit = i < DIGITS;
      assert_int_equal(constraint_mask(&c, mask, NULL), STATUS_OK);
      if (mask_has(mask, digit) != is_digit || mask_has(mask, letter) == is_digit)
        fail_msg("%d bytes of %s", i, text);
      const char *next = is_digit ? "7" : (i - DIGITS) % LINE == LINE - 1 ? "-" : "x";
      assert_int_equal(constraint_take_bytes(&c, next, 1, &allowed, NULL, NULL), STATUS_OK);
      assert_true(allowed);
    }
    constraint_close(&c);
  }
  free(mask);
}

/* --- random grammars */

enum { N_RULES = 4, MOST_PARTS = 3, MOST_EXPRESSIONS = 200, MOST_LETTERS = 6 };

typedef struct {
  enum { LITERAL, CHARACTERS, RULE, GROUP, TOKEN } kind;
  const char *text; /* a literal, or the letters of a set */
  int expression;   /* of a rule or a group */
  int id;           /* of a token; `negated`: of one that is not taken */
  bool negated;
  int min, max; /* max < 0: any number */
} Part;

typedef struct {
  Part parts[MOST_PARTS][MOST_PARTS]; /* [n_choices][n_parts[choice]] */
  int n_choices, n_parts[MOST_PARTS];
} Expression;

/* The first expressions are those of the rules. */
static Expression expressions[MOST_EXPRESSIONS];
static int n_expressions;
static bool with_tokens;
static uint64_t seed = 1;

/* The tokens of random grammars that name tokens. */
static const char *const words[] = {"a", "b", "ab", "ba", "aab"};
enum { N_WORDS = sizeof words / sizeof *words, MOST_WORDS = 3 };
static int token_at[MOST_LETTERS + 1]; /* the token that begins at a place of the text, -1: none */

static int below(uint32_t n) {
  return (int)random_below(&seed, n);
}

/* Writes expression `at` of the rule. A rule that is not a later one stands only after a literal. */
static void put_choices(Buffer *out, int at, int rule, int depth, bool begun) {
  static const struct {
    const char *text;
    int min, max;
  } counts[] = {{"", 1, 1},   {"", 1, 1},    {"", 1, 1},      {"?", 0, 1},     {"*", 0, -1},
                {"+", 1, -1}, {"{2}", 2, 2}, {"{1,3}", 1, 3}, {"{2,}", 2, -1}, {"{0,2}", 0, 2}};
  static const char *const sets[][2] = {{"[ab]", "ab"}, {"[^b]", "a"},    {"[a-a]", "a"},
                                        {".", "ab"},    {"[^c-z]", "ab"}, {"[b\\x61]", "ab"}};
  static const char *const literals[] = {"a", "b", "ab", "bb", ""};
  Expression made = {.n_choices = 1 + below(MOST_PARTS)};
  for (int c = 0; c < made.n_choices; c++) {
    bool after_literal = begun;
    if (c) put_text(out, " | ");
    for (made.n_parts[c] = 0;
         made.n_parts[c] < 1 + (int)(at % 2) || (made.n_parts[c] < MOST_PARTS && below(2));
         made.n_parts[c]++) {
      const int count = below(10);
      Part part = {
          .kind = (unsigned)below(depth ? 4 : 3), .min = counts[count].min, .max = counts[count].max};
      if (with_tokens && below(4) == 0) part.kind = TOKEN;
      if (part.kind == RULE && !after_literal && rule == N_RULES - 1) part.kind = LITERAL;
      if (part.kind == TOKEN) {
        part.id = below(N_WORDS), part.negated = below(3) == 0;
        assert_int_equal(buffer_printf(out, NULL, "%s<[%d]>", part.negated ? "!" : "", part.id), STATUS_OK);
      } else if (part.kind == LITERAL) {
        part.text = literals[below(5)];
        assert_int_equal(buffer_printf(out, NULL, "\"%s\"", part.text), STATUS_OK);
        after_literal |= *part.text && part.min > 0;
      } else if (part.kind == CHARACTERS) {
        const int set = below(6);
        part.text = sets[set][1];
        put_text(out, sets[set][0]);
      } else if (part.kind == RULE) {
        part.expression = after_literal ? below(N_RULES) : rule + 1 + below((uint32_t)(N_RULES - 1 - rule));
        assert_int_equal(buffer_printf(out, NULL, "r%d", part.expression), STATUS_OK);
      } else {
        part.expression = n_expressions++;
        put_text(out, "(");
        put_choices(out, part.expression, rule, depth - 1, after_literal);
        put_text(out, ")");
      }
      put_text(out, counts[count].text);
      put_text(out, " ");
      made.parts[c][made.n_parts[c]] = part;
    }
  }
  expressions[at] = made;
}

/* The places, as bits, at which the expression may end in the text if it begins at a place in `from`. */
static unsigned ends_of(int expression, const char *text, unsigned from);

static unsigned ends_of_one(const Part *part, const char *text, unsigned from) {
  const size_t n = strlen(text);
  unsigned ends = 0;
  if (part->kind == RULE || part->kind == GROUP) return ends_of(part->expression, text, from);
  for (size_t at = 0; at <= n; at++) {
    if (!(from >> at & 1)) continue;
    if (part->kind == TOKEN && token_at[at] >= 0 && (token_at[at] == part->id) != part->negated)
      ends |= 1u << (at + strlen(words[token_at[at]]));
    if (part->kind == CHARACTERS && at < n && strchr(part->text, text[at])) ends |= 1u << (at + 1);
    const size_t size = part->kind == LITERAL ? strlen(part->text) : 0;
    if (part->kind == LITERAL && strncmp(text + at, part->text, size) == 0) ends |= 1u << (at + size);
  }
  return ends;
}

static unsigned known_ends[MOST_EXPRESSIONS][2 << MOST_LETTERS]; /* of one text, and a bit that says so */
enum { IS_KNOWN = 2 << MOST_LETTERS };

static unsigned ends_of(int expression, const char *text, unsigned from) {
  unsigned ends = IS_KNOWN;
  const Expression *e = &expressions[expression];
  if (known_ends[expression][from]) return known_ends[expression][from] & ~(unsigned)IS_KNOWN;
  for (int c = 0; c < e->n_choices; c++) {
    unsigned at = from;
    for (int i = 0; i < e->n_parts[c] && at; i++) {
      const Part *part = &e->parts[c][i];
      unsigned found = 0;
      for (int n = 0; at && n <= MOST_LETTERS + part->min; n++) {
        if (n >= part->min) found |= at;
        if (n == part->max) break;
        at = ends_of_one(part, text, at);
      }
      at = found;
    }
    ends |= at;
  }
  known_ends[expression][from] = ends;
  return ends & ~(unsigned)IS_KNOWN;
}

/* Writes a grammar whose rules are the first expressions. */
static void put_grammar(Buffer *form) {
  n_expressions = N_RULES;
  for (int rule = 0; rule < N_RULES; rule++) {
    assert_int_equal(buffer_printf(form, NULL, rule ? "r%d ::= " : "root ::= r0\nr0 ::= ", rule), STATUS_OK);
    put_choices(form, rule, rule, 2, false);
    put_text(form, "\n");
  }
  assert_int_equal(buffer_append(form, "", 1, NULL), STATUS_OK);
}

/* False if no text fits the grammar. */
static bool open_random_grammar(const Buffer *form, const Tokenizer *of, const Vocabulary *v, Constraint *c) {
  Grammar *grammar;
  Error err;
  Status status = grammar_open("g", form->data, form->size - 1, of, &grammar, &err);
  if (status == STATUS_OK) status = constraint_open_grammar("g", grammar, v, c, &err);
  if (status != STATUS_OK && !strstr(err.text, "expected a text that fits"))
    fail_msg("%s: %s", form->data, err.text);
  return status == STATUS_OK;
}

/* Each text of up to six letters is taken if another matcher, which knows of no states, takes it. */
TEST(random_grammars_have_the_texts_of_another_matcher) {
  int n_taken = 0, n_ambiguous = 0;
  for (int i = 0; i < 300; i++) {
    Buffer form = {0};
    Constraint c;
    Error err;
    put_grammar(&form);
    const bool opened = SAMPLED(i) && open_random_grammar(&form, tokenizer, NULL, &c);
    for (unsigned bits = 1; opened && bits < 1u << (MOST_LETTERS + 1); bits++) {
      char text[MOST_LETTERS + 1] = "";
      size_t n = 0;
      bool allowed = false;
      for (unsigned left = bits; left > 1; left >>= 1) text[n++] = left & 1 ? 'b' : 'a';
      memset(known_ends, 0, (size_t)n_expressions * sizeof *known_ends);
      const bool fits = ends_of(0, text, 1) >> n & 1;
      assert_int_equal(constraint_begin(&c, &err), STATUS_OK);
      if (constraint_take_bytes(&c, text, n, &allowed, NULL, &err) != STATUS_OK) {
        if (!strstr(err.text, "too ambiguous")) fail_msg("%s\n\"%s\": %s", form.data, text, err.text);
        n_ambiguous++;
        break;
      }
      allowed = allowed && constraint_may_end(&c);
      if (allowed != fits) fail_msg("%s\n\"%s\": expected %d", form.data, text, fits);
      n_taken += allowed;
    }
    if (opened) constraint_close(&c);
    buffer_release(&form);
  }
  assert_true(n_taken > SAMPLE(10000) && n_ambiguous < 100);
}

/* Takes tokens in turn; at each place those of the mask are taken, and no others. False if one is refused, or
 * the grammar is too ambiguous. */
static bool take_words(Constraint *c, const int *ids, size_t n, const char *form) {
  assert_int_equal(constraint_begin(c, NULL), STATUS_OK);
  for (size_t i = 0; i <= n; i++) {
    uint64_t mask = 0;
    bool next = false;
    uint32_t place = c->place, after = place;
    Error err;
    if (constraint_mask(c, &mask, &err) != STATUS_OK) return false;
    for (int id = 0; id < N_WORDS; id++) {
      bool allowed;
      c->place = place;
      if (constraint_take(c, id, &allowed, &err) != STATUS_OK) return false;
      if (allowed != (mask >> id & 1)) fail_msg("%s\ntoken %d after %zu others: %d", form, id, i, allowed);
      if (i < n && id == ids[i]) next = allowed, after = c->place;
    }
    c->place = i < n ? after : place;
    if (i < n && !next) return false;
  }
  return true;
}

/* Texts of up to four tokens, which the grammars name or exclude, or take by their bytes. */
TEST(random_grammars_of_tokens_have_the_texts_of_another_matcher) {
  Own own;
  int n_taken = 0, n_ambiguous = 0;
  open_own("\"a\": 0, \"b\": 1, \"ab\": 2, \"ba\": 3, \"aab\": 4", &own);
  with_tokens = true;
  for (int i = 0; i < 150; i++) {
    Buffer form = {0};
    Constraint c;
    put_grammar(&form);
    const bool opened = SAMPLED(i) && open_random_grammar(&form, own.tokenizer, &own.vocabulary, &c);
    for (int number = 0; opened && number < N_WORDS * N_WORDS * N_WORDS; number++) {
      char text[MOST_WORDS * 3 + 1] = "";
      int ids[MOST_WORDS];
      size_t n = 0;
      memset(token_at, 0xff, sizeof token_at);
      for (int left = number; n < MOST_WORDS && (left > 0 || n == 0); left /= N_WORDS) {
        ids[n] = left % N_WORDS;
        if (strlen(text) <= MOST_LETTERS) token_at[strlen(text)] = ids[n];
        strcat(text, words[ids[n++]]);
      }
      if (strlen(text) > MOST_LETTERS) continue;
      memset(known_ends, 0, (size_t)n_expressions * sizeof *known_ends);
      const bool fits = ends_of(0, text, 1) >> strlen(text) & 1;
      const bool taken = take_words(&c, ids, n, form.data) && constraint_may_end(&c);
      Error err;
      if (grammar_check(c.grammar, &err) != STATUS_OK) {
        if (!strstr(err.text, "too ambiguous")) fail_msg("%s: %s", form.data, err.text);
        n_ambiguous++;
        break;
      }
      if (taken != fits) fail_msg("%s\n%zu tokens, \"%s\": expected %d", form.data, n, text, fits);
      n_taken += taken;
    }
    if (opened) constraint_close(&c);
    buffer_release(&form);
  }
  with_tokens = false;
  assert_true(n_taken > SAMPLE(1000) && n_ambiguous < 100);
  close_own(&own);
}

/* Rules that are not in use name no tokens. */
TEST(tokens_that_a_grammar_names_are_known) {
  static const struct {
    const char *grammar;
    int names, excludes; /* ids of tokens, -1: none */
  } cases[] = {{"root ::= <[7]> \"a\"", 7, -1},
               {"root ::= !<[7]> \"a\"", -1, 7},
               {"root ::= \"a\" (\"b\" | <[9]>)? !<[8]>", 9, 8},
               {"root ::= \"a\"\nb ::= <[7]>", -1, -1},
               {"root ::= [ab]+", -1, -1}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    Constraint c;
    open_it(cases[i].grammar, false, &c);
    assert_int_equal(grammar_has_tokens(c.grammar), cases[i].names >= 0 || cases[i].excludes >= 0);
    for (int32_t id = 0; id < 20; id++)
      assert_int_equal(grammar_names_token(c.grammar, id), id == cases[i].names);
    constraint_close(&c);
  }
}

/* --- values without quotes */

static bool takes_whole(Constraint *c, const char *text) {
  bool allowed;
  assert_int_equal(constraint_begin(c, NULL), STATUS_OK);
  assert_int_equal(constraint_take_bytes(c, text, strlen(text), &allowed, NULL, NULL), STATUS_OK);
  return allowed && constraint_may_end(c);
}

/* Values of a schema are written as they are: strings that fit, and others as JSON, up to the first mark. */
TEST(plain_values_are_those_of_the_schema) {
  static const char *const schemas[] = {"{}",
                                        "{\"type\": \"string\"}",
                                        "{\"type\": [\"string\", \"integer\", \"null\"]}",
                                        "{\"enum\": [\"a\", \"12\", \"</v\", true, 1, 0.5, [1]]}",
                                        "{\"maxLength\": 4, \"minimum\": 1}",
                                        "{\"minLength\": 2, \"type\": [\"string\", \"boolean\"]}",
                                        "{\"not\": {\"enum\": [\"a\", null, 1]}}",
                                        "{\"pattern\": \"^[<a]\", \"multipleOf\": 0.5}",
                                        "{\"type\": [\"string\", \"array\"]}"};
  static const char *const values[] = {"",      "a",     "12",  "</v",  "true",   "1",   "1.0",
                                       "0.5",   "1e1",   "0e1", "null", "fals",   "[1]", "\"a\"",
                                       "a\nb",  "\\n",   "<",   "<<",   "\u00e9", "-0",  "01",
                                       "false", "10e-1", "7",   "abcd", "abcde",  "a<b"};
  for (size_t i = 0; i < 2 * sizeof schemas / sizeof *schemas; i++) {
    const char *schema = schemas[i / 2];
    const SchemaOptions options = {.exponents = i % 2, .plain_integers = !(i % 2)};
    Grammar *grammar;
    Constraint plain, json_values;
    Error err;
    if (grammar_open_value("v", schema, strlen(schema), options, "</v>", &grammar, &err))
      fail_msg("%s", err.text);
    assert_non_null(grammar);
    assert_int_equal(constraint_open_grammar("v", grammar, &vocabulary, &plain, &err), STATUS_OK);
    assert_int_equal(constraint_open("s", schema, strlen(schema), options, NULL, &json_values, &err),
                     STATUS_OK);
    for (size_t k = 0; k < sizeof values / sizeof *values; k++) {
      Buffer quoted = {0};
      char text[60];
      assert_int_equal(json_write_string(&quoted, values[k], strlen(values[k]), &err), STATUS_OK);
      assert_int_equal(buffer_append(&quoted, "", 1, &err), STATUS_OK);
      /* beside no rule, other spellings of numbers fit as JSON, too */
      const bool is_string = takes_whole(&json_values, quoted.data);
      const bool is_json = strchr("0123456789-tfn", *values[k]) && *values[k] &&
                           takes_whole(&json_values, values[k]) && strcmp(values[k], "0e1") != 0 &&
                           strcmp(values[k], "10e-1") != 0 &&
                           !(options.plain_integers && strcmp(values[k], "1.0") == 0);
      snprintf(text, sizeof text, "%s</v>", values[k]);
      if (takes_whole(&plain, text) != (is_string || is_json)) fail_msg("%s: %s", schema, text);
      snprintf(text, sizeof text, "%s</v", values[k]);
      assert_false(takes_whole(&plain, text));
      snprintf(text, sizeof text, "%s</v></v>", values[k]);
      assert_false(takes_whole(&plain, text));
      buffer_release(&quoted);
    }
    constraint_close(&plain);
    constraint_close(&json_values);
  }
  static const char *const without[] = {"{\"type\": \"integer\"}", "{\"const\": \"a</v>b\"}",
                                        "{\"enum\": [null, 1]}"};
  for (size_t i = 0; i < 3; i++) {
    Grammar *grammar;
    Error err;
    assert_int_equal(grammar_open_value("v", without[i], strlen(without[i]),
                                        (SchemaOptions){.exponents = true}, "</v>", &grammar, &err),
                     STATUS_OK);
    assert_null(grammar);
  }
}

static CMFixtureFunction before_all = open_vocabulary, after_all = close_vocabulary;
