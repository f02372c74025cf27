/* plain_text.h - grammars of texts that are not JSON: words, and the values of a schema, whose strings are
 * written without quotes and escapes. */
#pragma once

#include "constrain/grammar/grammar.h"
#include "constrain/schema.h"

/* A grammar whose texts are the words. Reorders the array. `name` is for messages. */
Status grammar_open_words(const char *name, LangWord *words, size_t n, Grammar **grammar, Error *err);

/* A grammar of values that fit the schema text[0..size), each followed by `end`, which comes nowhere earlier.
 * A value is a string without quotes; or a number, true, false or null as JSON. *grammar is NULL if the
 * schema allows no string, or only strings that contain `end`. */
Status grammar_open_value(const char *name, const char *text, size_t size, SchemaOptions options,
                          const char *end, Grammar **grammar, Error *err);
