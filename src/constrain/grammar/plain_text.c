/* plain_text.c - see plain_text.h. */
#include "constrain/grammar/plain_text.h"

#include <string.h>

Status grammar_open_words(const char *name, LangWord *words, size_t n, Grammar **grammar, Error *err) {
  Langs langs;
  *grammar = NULL;
  Status status = langs_open(&langs, err);
  if (status == STATUS_OK) return grammar_open_lang(name, &langs, lang_words(&langs, words, n), grammar, err);
  langs_close(&langs);
  return status;
}

/* The strings of `a`, each followed by `end`. `end` comes nowhere earlier. */
static Lang ended_by(Langs *langs, Lang a, const char *end) {
  const Lang mark = lang_literal(langs, end, strlen(end));
  const Lang more = lang_then(langs, lang_bytes(langs, 0, 255), LANG_ALL);
  const Lang early = lang_then(langs, LANG_ALL, lang_then(langs, mark, more));
  return lang_and(langs, lang_then(langs, lang_text(langs, a), mark), lang_not(langs, early));
}

/* The values of the schema except arrays and objects: strings as they are, other values as JSON. */
static Lang plain_values(SchemaSet *set) {
  static const char *const names[] = {[JSON_NULL] = "null", [JSON_FALSE] = "false", [JSON_TRUE] = "true"};
  Langs *langs = &set->langs;
  const Lang numbers = lang_and(langs, schema_numbers(set, set->root), set->bounded_number);
  Lang values = lang_or(langs, schema_strings(set, set->root), numbers);
  for (JsonKind kind = JSON_NULL; kind <= JSON_TRUE; kind++)
    if (schema_takes_scalar(set, set->root, kind))
      values = lang_or(langs, values, lang_literal(langs, names[kind], strlen(names[kind])));
  return values;
}

Status grammar_open_value(const char *name, const char *text, size_t size, SchemaOptions options,
                          const char *end, Grammar **grammar, Error *err) {
  OWNED(schema_close) SchemaSet set = {.count = 0};
  *grammar = NULL;
  TRY(schema_open(name, text, size, options, &set, err));
  Langs *langs = &set.langs;
  langs_begin_work(langs);
  const bool has_strings = lang_is_alive(langs, ended_by(langs, schema_strings(&set, set.root), end));
  const Lang values = has_strings ? ended_by(langs, plain_values(&set), end) : LANG_NONE;
  Error inner;
  Status status = langs_check(langs, &inner);
  if (status != STATUS_OK) return error_set(err, status, "%s: %s", name, inner.text);
  return has_strings ? grammar_open_lang(name, langs, values, grammar, err) : STATUS_OK;
}
