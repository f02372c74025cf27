/* evaluated.h - the members and items to which unevaluatedProperties and unevaluatedItems do not apply. */
#pragma once

#include "constrain/machine.h"

/* The condition under which the schema or its in-place subschemas evaluate the member with this key, or the
 * item at `index`. */
Formula evaluated_member(Machine *m, const Frame *frame, uint32_t schema, uint32_t key, const char *bytes,
                         size_t size);
Formula evaluated_item(Machine *m, uint32_t schema, uint32_t index);
/* Adds the in-place subschemas on which evaluated_member() and evaluated_item() depend; they become goals. */
Status evaluated_goals(Machine *m, uint32_t schema, NumberList *schemas, Error *err);
