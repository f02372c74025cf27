/* metaspace.c - reads the options of Metaspace, new and old. Called by: load_split.c, load_decoder.c. */
#include "tokenizer/load/metaspace.h"

#include <string.h>

#include "tokenizer/load/fields.h"

Status metaspace_load(const char *where, const Json *json, char mark[5], size_t *size, PrependScheme *scheme,
                      bool *split, Error *err) {
  static const char *const names[] = {"always", "first", "never"};
  TRY(field_known(where, json, "replacement add_prefix_space prepend_scheme split str_rep", err));
  TRY(field_character(where, json, "replacement", mark, size, err));
  TRY(field_bool_or(where, json, "split", true, split, err));
  const char *name;
  TRY(json_get_string((JsonSource){where, STATUS_MODEL}, json, "prepend_scheme", &name, err));
  *scheme = PREPEND_ALWAYS;
  bool known = !name;
  for (size_t i = 0; name && i < sizeof names / sizeof *names; i++) {
    if (strcmp(name, names[i]) != 0) continue;
    *scheme = (PrependScheme)i;
    known = true;
  }
  if (!known)
    return error_set(err, STATUS_MODEL, "%s: prepend_scheme is %.80s, expected always, first or never", where,
                     name);
  bool prefix; /* in older files; the reference refuses the same contradiction */
  TRY(field_bool_or(where, json, "add_prefix_space", true, &prefix, err));
  if (!prefix && *scheme != PREPEND_NEVER)
    return error_set(err, STATUS_MODEL, "%s: add_prefix_space is false, but prepend_scheme is not never",
                     where);
  return STATUS_OK;
}
