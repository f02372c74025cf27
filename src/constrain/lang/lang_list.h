/* lang_list.h - the strings of a language, one by one. */
#pragma once

#include "constrain/lang/lang.h"

/* Calls take() with strings of `a`, which has valid UTF-8 only, until it returns false; a beginning of a
 * string comes before it. Returns false if there are, or may be, strings without end, and then has called it
 * with some of them or with none. */
typedef bool (*LangTake)(void *user, const char *bytes, size_t size);
bool lang_list(Langs *langs, Lang a, LangTake take, void *user);
/* A shortest string of `a` in out[0..*size), or false: there is none, or none of so few bytes. */
bool lang_example(Langs *langs, Lang a, char *out, size_t capacity, size_t *size);
