/* run.h - private to eval.c, render.c and access.c: running nodes. */
#ifndef AUK_JINJA_RUN_H
#define AUK_JINJA_RUN_H

#include "tokenizer/jinja/eval.h"

Status eval(Render *render, const Node *node, Value *out);
/* The filters `node` over a text, innermost first. */
Status eval_block_filter(Render *render, const Node *node, Value text, Value *out);

/* The innermost variable of this name, or NULL: looking at many takes steps. */
Status scope_find(Render *render, int symbol, const Variable **variable);

Status eval_arguments(Render *render, const Node *call, Args *args);

/* Gives a failure its place in the template unless it has one. */
Status render_placed(Render *render, const Node *node, Status status);

#endif
