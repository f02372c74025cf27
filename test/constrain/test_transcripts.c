/* test_transcripts.c - test/data/transcripts/constrain: which texts schemas, grammars and languages take, and
 * why others are refused.
 *
 *   {"type": ...}        a schema, under the options of the last such line ("options ordered lenient")
 *   grammar "root ::= "  a grammar in GBNF, as a string of JSON; regex "a*" is a regular expression as one
 *   > text               is taken byte by byte; that of a grammar is a string of JSON
 *   multiple of 0.01     the numbers that are multiples
 *   somewhere a*b        the strings in which the expression of a schema matches; whole: all of a text by the
 *                        syntax of the u flag
 *   format date          the strings of a format of schemas
 *   > "text"             is a string of JSON; that of multiples, a number
 *
 * Below a text it says where it stops, or that it fits, or that it is only a beginning; what must follow; and
 * below the text of a schema why that value does not fit. `make goldens` writes the files anew. */
#include "constrain/constraint.h"
#include "constrain/explain.h"
#include "constrain/lang/formats.h"
#include "constrain/lang/lang_internal.h"
#include "constrain/lang/numbers.h"
#include "constrain/lang/regular_expression.h"
#include "test/constrain/small_vocabulary.h"
#include "test/tests.h"
#include "test/transcript.h"

static enum { NOTHING, SCHEMA, GRAMMAR, NUMBERS, STRINGS } now;
static SchemaOptions options;
static Constraint constraint;
static SchemaSet set; /* of the same schema, for reasons */
static Langs langs;
static Lang lang;

/* Appends a string of JSON. */
static void read_string(const char *json, Buffer *out) {
  Json *tree;
  Error err;
  size_t size;
  if (json_parse("string", STATUS_FAILED, json, strlen(json), NULL, 0, &tree, &err)) fail_msg("%s", err.text);
  const char *text = json_string(tree, &size);
  assert_int_equal(buffer_append(out, text, size, NULL), STATUS_OK);
  json_free(tree);
}

static void close_last(void) {
  if (now == SCHEMA) schema_close(&set);
  if (now == SCHEMA || now == GRAMMAR) constraint_close(&constraint);
  now = NOTHING;
}

/* Prints a message; true if there is none. */
static bool opened(Status status, const Error *err, FILE *out) {
  if (status != STATUS_OK) fprintf(out, "    status %d: %s\n", status, err->text);
  return status == STATUS_OK;
}

static void open_schema(const char *text, FILE *out) {
  Error err;
  const size_t size = strlen(text);
  if (!opened(constraint_open("schema", text, size, options, NULL, &constraint, &err), &err, out)) return;
  assert_int_equal(schema_open("schema", text, size, options, &set, &err), STATUS_OK);
  now = SCHEMA;
  for (size_t at = 0; at < set.let_go.size; at += strlen(set.let_go.data + at) + 1)
    fprintf(out, "    lets go %s\n", set.let_go.data + at);
}

static void open_grammar(const char *json, bool regular, FILE *out) {
  Grammar *grammar;
  Buffer text = {0};
  Error err;
  read_string(json, &text);
  Status status = regular ? grammar_open_regular_expression("regex", text.data, text.size, &grammar, &err)
                          : grammar_open("g", text.data, text.size, tokenizer, &grammar, &err);
  if (status == STATUS_OK)
    status = constraint_open_grammar(regular ? "regex" : "g", grammar, &vocabulary, &constraint, &err);
  if (opened(status, &err, out)) now = GRAMMAR;
  buffer_release(&text);
}

static void open_multiples(const char *text) {
  Decimal d;
  uint32_t divisor;
  unsigned scale;
  assert_true(decimal_read(text, strlen(text), &d) && decimal_divisor(&d, &divisor, &scale));
  lang = numbers_multiple((Numbers){&langs, true}, divisor, scale);
  now = NUMBERS;
}

static void open_expression(const char *text, RegexUse use, FILE *out) {
  Error err;
  if (!opened(regular_expression_parse(&langs, text, strlen(text), use, &lang, &err), &err, out)) return;
  if (lang == LANG_NONE) fprintf(out, "    no text\n");
  now = STRINGS;
}

static void open_format(const char *name) {
  bool known;
  assert_int_equal(format_lang(&langs, name, &known, &lang, NULL), STATUS_OK);
  assert_true(known);
  now = STRINGS;
}

/* The reasons of a text that is JSON. */
static void print_reasons(const char *text, FILE *out) {
  Json *value = NULL;
  Buffer reasons = {0};
  if (json_parse("text", STATUS_USAGE, text, strlen(text), NULL, 0, &value, NULL) == STATUS_OK)
    assert_int_equal(schema_explain(&set, value, &reasons, NULL), STATUS_OK);
  for (size_t at = 0; at < reasons.size; at += strlen(reasons.data + at) + 1)
    fprintf(out, "    %s\n", reasons.data + at);
  json_free(value);
  buffer_release(&reasons);
}

static void take(const char *text, size_t size, FILE *out) {
  bool allowed;
  size_t taken;
  Buffer forced = {0};
  assert_int_equal(constraint_begin(&constraint, NULL), STATUS_OK);
  assert_int_equal(constraint_take_bytes(&constraint, text, size, &allowed, &taken, NULL), STATUS_OK);
  if (!allowed)
    fprintf(out, taken ? "    stops after %1$zu: %3$.*2$s\n" : "    stops at once\n", taken, (int)taken,
            text);
  else
    fprintf(out, "    %s\n", constraint_may_end(&constraint) ? "fits" : "goes on");
  if (allowed) assert_int_equal(constraint_forced(&constraint, &forced, NULL), STATUS_OK);
  if (forced.size) fprintf(out, "    then %.*s\n", (int)forced.size, forced.data);
  buffer_release(&forced);
}

static void take_line(const char *text, FILE *out) {
  Buffer string = {0};
  if (now == GRAMMAR || now == STRINGS) read_string(text, &string);
  if (now == GRAMMAR) take(string.data ? string.data : "", string.size, out);
  if (now == STRINGS)
    fprintf(out, "    %s\n", lang_contains(&langs, lang, string.data, string.size) ? "fits" : "does not fit");
  if (now == NUMBERS)
    fprintf(out, "    %s\n", lang_contains(&langs, lang, text, strlen(text)) ? "is" : "is none");
  if (now == SCHEMA) {
    take(text, strlen(text), out);
    print_reasons(text, out);
  }
  buffer_release(&string);
}

static void choose_options(const char *words) {
  options = (SchemaOptions){.exponents = strstr(words, "exponents"),
                            .ordered_keys = strstr(words, "ordered"),
                            .plain_integers = strstr(words, "plain"),
                            .lenient = strstr(words, "lenient")};
}

/* The rest of a line that begins so, or NULL. */
static const char *after(const char *line, const char *beginning) {
  const size_t n = strlen(beginning);
  return strncmp(line, beginning, n) == 0 ? line + n : NULL;
}

static void run_line(const char *line, FILE *out) {
  const char *rest;
  if ((rest = after(line, "> "))) {
    take_line(rest, out);
    return;
  }
  close_last();
  if ((rest = after(line, "options"))) choose_options(rest);
  if (*line == '{' || *line == '[' || after(line, "true")) open_schema(line, out);
  if ((rest = after(line, "grammar "))) open_grammar(rest, false, out);
  if ((rest = after(line, "regex "))) open_grammar(rest, true, out);
  if ((rest = after(line, "multiple of "))) open_multiples(rest);
  if ((rest = after(line, "somewhere "))) open_expression(rest, REGEX_SOMEWHERE, out);
  if ((rest = after(line, "whole "))) open_expression(rest, REGEX_WHOLE, out);
  if ((rest = after(line, "format "))) open_format(rest);
}

static void write_texts(const char *old, FILE *out) {
  char line[TRANSCRIPT_LINE];
  choose_options("exponents");
  assert_int_equal(langs_open(&langs, NULL), STATUS_OK);
  while (transcript_next_line(&old, line)) {
    if (*line == ' ') continue;
    fprintf(out, "%s\n", line);
    if (*line != '#') run_line(line, out);
  }
  close_last();
  langs_close(&langs);
}

TEST(texts_are_taken_as_their_transcripts_say) {
  check_transcripts("test/data/transcripts/constrain", write_texts);
}

static CMFixtureFunction before_all = open_vocabulary, after_all = close_vocabulary;
