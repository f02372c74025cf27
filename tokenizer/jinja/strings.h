/* strings.h - private to this folder: Python's string operations, for methods and filters. */
#pragma once

#include "tokenizer/jinja/eval.h"

typedef enum { PAD_LEFT, PAD_RIGHT, PAD_BOTH } Padding;

Status string_appended(Render *render, Text a, Text b, Text *out);
/* Repeats the text; charges steps for the size of the result. */
Status string_repeated(Render *render, Text text, size_t times, Text *out);
Status string_replaced(Render *render, Text text, Text old, Text new, int64_t count,
                       Value *out); /* `count` -1: all */
Status string_padded(Render *render, Text text, int64_t width, Text fill, Padding padding, Value *out);
/* strip(): removes white space or, if given, `characters`. */
Status string_stripped(Render *render, Text text, const Text *characters, int sides, Text *out);
Status string_lines(Render *render, Text text, bool keep_ends, Value *out); /* splitlines() */
Status string_joined(Render *render, Text separator, Value items, bool convert, Value *out);
Status put_repeated(Render *render, Text text, int64_t times); /* appends the repeated text to the output */
/* Methods that are filters or tests too: for a value of any type they take its str(). */
BuiltinCall string_capitalize, string_case, string_has_case, string_pad, string_strip;
bool string_is_alnum(uint32_t code);
bool string_to_int(Text text, int base, int64_t *out);
bool string_to_float(Text text, double *out);
