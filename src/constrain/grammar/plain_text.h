/* plain_text.h - grammars of texts that stand outside of JSON: words, and the values of a schema whose
 * strings stand as they are, without quotes and escapes. */
#pragma once

#include "constrain/grammar/grammar.h"
#include "constrain/schema.h"

/* One of the words. Reorders the array. `name` is for messages. */
Status grammar_open_words(const char *name, LangWord *words, size_t n, Grammar **grammar, Error *err);

/* A value that fits the schema text[0..size): a string as it is, or a number, true, false or null as JSON;
 * then `end`, which does not come earlier. *grammar is NULL where the schema has no string without `end`. */
Status grammar_open_value(const char *name, const char *text, size_t size, SchemaOptions options,
                          const char *end, Grammar **grammar, Error *err);
