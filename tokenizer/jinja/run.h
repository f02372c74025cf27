/* run.h - private to eval.c, render.c and access.c: evaluating nodes. */
#ifndef AUK_JINJA_RUN_H
#define AUK_JINJA_RUN_H

#include "tokenizer/jinja/eval.h"

Status eval(Render *render, const Node *node, Value *out);
/* Applies the filters `node` to a text, innermost first. */
Status eval_block_filter(Render *render, const Node *node, Value text, Value *out);

/* Finds the innermost variable of this name, or NULL; passing many costs steps. */
Status scope_find(Render *render, int symbol, const Variable **variable);

Status eval_arguments(Render *render, const Node *call, CallArgs *args);

/* Adds the node's place to a failure that has none. */
Status render_placed(Render *render, const Node *node, Status status);

#endif
