/* lang_list.h - the strings of a language, one by one. */
#pragma once

#include "constrain/lang/lang.h"

/* Calls take() with each string of `a` until take() returns false. A string comes after its prefixes. Returns
 * false if the walk stops because `a` has, or may have, infinitely many strings. take() has then had some of
 * them, or none. PRECOND the strings of `a` are valid UTF-8 */
typedef bool (*LangTake)(void *user, const char *bytes, size_t size);
bool lang_list(Langs *langs, Lang a, LangTake take, void *user);
