/* explain.h - why a JSON value does not fit a schema: each rule that fails, with a JSON pointer. */
#pragma once

#include "constrain/schema.h"

/* Appends a C string for each rule that `value` or a value in it breaks: "/age: 200 is above the maximum
 * 120". Each string begins with the JSON pointer of the value (empty for the whole). For anyOf and oneOf the
 * strings are about the nearest branch. There is only one string if all branches want another type, or
 * several of oneOf fit. Nothing is appended if no rule is seen to fail, or the walk would take too long:
 * whether a text fits is for the machine to say (machine.h). At most EXPLAIN_MAX_REASONS strings. */
#define EXPLAIN_MAX_REASONS 1000
Status schema_explain(SchemaSet *set, const Json *value, Buffer *lines, Error *err);
