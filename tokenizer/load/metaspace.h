/* metaspace.h - the options of Metaspace, which is a pre-tokenizer and a decoder. */
#ifndef AUK_TOKENIZER_METASPACE_H
#define AUK_TOKENIZER_METASPACE_H

#include "base/json.h"
#include "tokenizer/split.h"

/* Reads the options of new and old files: mark[0 .. *size) is the replacement, one character,
 * NUL-terminated; *split is true by default. STATUS_MODEL if they contradict each other or are unknown. */
Status metaspace_load(const char *where, const Json *json, char mark[5], size_t *size, PrependScheme *scheme,
                      bool *split, Error *err);

#endif
