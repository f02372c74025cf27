/* regular_expression.h - ECMAScript regular expressions (unicode mode) as languages.
 *
 * Taken: alternatives, classes, quantifiers (greedy or lazy, which is the same set of strings), groups, ^
 * and $, lookahead outside of quantifiers. Refused, with the place: back references, lookbehind, word
 * boundaries, and what is no regular expression. */
#pragma once

#include "constrain/lang/lang.h"

/* The texts in which the expression matches somewhere or, if `whole`, that it matches from end to end.
 * Mistakes are STATUS_USAGE. */
Status regular_expression_parse(Langs *langs, const char *text, size_t size, bool whole, Lang *out,
                                Error *err);
