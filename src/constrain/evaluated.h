/* evaluated.h - which members and items unevaluatedProperties and unevaluatedItems leave to others. */
#pragma once

#include "constrain/machine.h"

/* The member with this key, or the item at `index`, is evaluated by the schema or its in-place subschemas. */
Formula evaluated_member(Machine *m, const Frame *frame, uint32_t schema, uint32_t key, const char *bytes,
                         size_t size);
Formula evaluated_item(Machine *m, uint32_t schema, uint32_t index);
/* Adds the in-place subschemas whose truth decides that; they become goals of their own. */
Status evaluated_goals(Machine *m, uint32_t schema, NumberList *schemas, Error *err);
