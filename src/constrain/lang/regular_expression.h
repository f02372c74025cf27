/* regular_expression.h - ECMAScript regular expressions with the u flag as languages.
 *
 * Supported: alternatives, classes, quantifiers (greedy or lazy, which is the same set of strings), groups, ^
 * and $, lookahead. Refused: back references, lookbehind, word boundaries, properties that are no general
 * category, lookahead in a repetition of over 16 rounds, some ^ after what may be empty, what exceeds a limit
 * (nesting, counts, names, properties), and what is no regular expression. */
#pragma once

#include "constrain/lang/lang.h"

/* REGEX_WHOLE: the texts that the expression matches from end to end. Its syntax is that of the u flag.
 * REGEX_SOMEWHERE: the texts in which it matches somewhere, as in JSON Schema. It may then have escapes that
 * the u flag forbids (\- and \"), and {, } and ] that stand for themselves. */
typedef enum { REGEX_WHOLE, REGEX_SOMEWHERE } RegexUse;

/* The texts of an expression. Mistakes are STATUS_USAGE. */
Status regular_expression_parse(Langs *langs, const char *text, size_t size, RegexUse use, Lang *out,
                                Error *err);
/* The texts that an expression of our own matches from end to end. */
Lang lang_pattern(Langs *langs, const char *expression);
