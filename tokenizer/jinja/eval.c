/* eval.c - evaluates expressions.
 *
 * Always true: a failure names the innermost expression: "NAME: line 3: EXPRESSION: MESSAGE". */
#include "tokenizer/jinja/eval.h"

#include <stdio.h>

/* --- names */

static Status find_name(Render *render, const Node *node, Value *out) {
  const Variable *variable;
  TRY(scope_find(render, node->symbol, &variable));
  if (variable) {
    *out = variable->value;
    return STATUS_OK;
  }
  *out = render->globals[node->symbol];
  if (out->kind != VALUE_MISSING) return STATUS_OK;
  Undefined undefined = {0};
  TRY(value_text(render, node->text, &undefined.name));
  return value_object(render, VALUE_UNDEFINED, &undefined, sizeof undefined, out);
}

/* --- lists and arguments */

static Status eval_items(Render *render, const Node *node, Value *out) {
  Value *items;
  TRY(value_list(render, node->items.count, &items, out));
  if (node->kind == NODE_TUPLE) out->kind = VALUE_TUPLE;
  for (size_t i = 0; i < node->items.count; i++) TRY(eval(render, node->items.nodes[i], &items[i]));
  return STATUS_OK;
}

static Status eval_dict(Render *render, const Node *node, Value *out) {
  TRY(value_dict(render, node->items.count / 2, out));
  for (size_t i = 0; i + 1 < node->items.count; i += 2) {
    Value key, value;
    TRY(eval(render, node->items.nodes[i], &key));
    TRY(eval(render, node->items.nodes[i + 1], &value));
    TRY(dict_set(render, out->dict, key, value));
  }
  return STATUS_OK;
}

/* The arguments of a call, including those in *args and **kwargs. */
typedef struct {
  Value *items;
  Keyword *keywords;
  size_t n, n_keywords, capacity, keyword_capacity;
} ArgsBuilder;

static Status add_item(Render *render, ArgsBuilder *arguments, Value value) {
  TRY(render_grow(render, &arguments->items, arguments->n, &arguments->capacity, sizeof value));
  arguments->items[arguments->n++] = value;
  return STATUS_OK;
}

static Status add_keyword(Render *render, ArgsBuilder *arguments, Text name, Value value) {
  for (size_t i = 0; i < arguments->n_keywords; i++)
    if (text_equal(arguments->keywords[i].name, name))
      return render_fail(render, "got multiple values for keyword argument '%.*s'", (int)name.size,
                         name.data);
  TRY(render_charge(render, arguments->n_keywords / 8 + 1));
  TRY(render_grow(render, &arguments->keywords, arguments->n_keywords, &arguments->keyword_capacity,
                  sizeof *arguments->keywords));
  arguments->keywords[arguments->n_keywords++] = (Keyword){name, value};
  return STATUS_OK;
}

static Status add_starred(Render *render, ArgsBuilder *arguments, int stars, Value value) {
  if (stars == 1) {
    const List *list;
    TRY(value_elements(render, value, &list));
    for (size_t i = 0; i < list->count; i++) TRY(add_item(render, arguments, list->items[i]));
    return STATUS_OK;
  }
  if (value.kind != VALUE_DICT)
    return render_fail(render, "argument after ** must be a mapping, not %s", value_type(value));
  for (size_t i = 0; i < value.dict->count; i++) {
    const DictEntry *entry = &value.dict->entries[i];
    if (entry->key.kind != VALUE_STRING) return render_fail(render, "keywords must be strings");
    TRY(add_keyword(render, arguments, *entry->key.text, entry->value));
  }
  return STATUS_OK;
}

Status eval_arguments(Render *render, const Node *node, CallArgs *args) {
  ArgsBuilder arguments = {0};
  for (size_t i = 0; i < node->n_args; i++) {
    const Argument *argument = &node->args[i];
    Value value;
    TRY(eval(render, argument->value, &value));
    if (argument->stars)
      TRY(add_starred(render, &arguments, argument->stars, value));
    else if (argument->name.data)
      TRY(add_keyword(render, &arguments, argument->name, value));
    else
      TRY(add_item(render, &arguments, value));
  }
  *args = (CallArgs){.items = arguments.items,
                     .count = arguments.n,
                     .keywords = arguments.keywords,
                     .n_keywords = arguments.n_keywords};
  return STATUS_OK;
}

/* --- operators */

static Status eval_conditional(Render *render, const Node *node, Value *out) {
  TRY(eval(render, node->a, out));
  if (value_truth(*out)) return eval(render, node->b, out);
  if (node->c) return eval(render, node->c, out);
  return value_undefined(render,
                         "the inline if-expression evaluated to false and no else section was defined.", out);
}

Status value_compare(Render *render, Operator op, Value a, Value b, bool *out) {
  switch (op) {
  case OP_EQ: return value_equal(render, a, b, out);
  case OP_NE:
    TRY(value_equal(render, a, b, out));
    *out = !*out;
    return STATUS_OK;
  case OP_LT:
  case OP_LE:
  case OP_GT:
  case OP_GE: return value_order(render, op, a, b, out);
  case OP_NOT_IN:
    TRY(value_contains(render, b, a, out));
    *out = !*out;
    return STATUS_OK;
  default: return value_contains(render, b, a, out);
  }
}

static Status eval_comparison(Render *render, const Node *node, Value *out) {
  Value left, right;
  bool holds = true;
  TRY(eval(render, node->a, &left));
  for (size_t i = 0; i < node->items.count && holds; i++) {
    const Node *operand = node->items.nodes[i];
    TRY(eval(render, operand->a, &right));
    TRY(value_compare(render, operand->op, left, right, &holds));
    left = right;
  }
  *out = value_bool(holds);
  return STATUS_OK;
}

static Status eval_sign(Render *render, const Node *node, Value *out) {
  Value value;
  TRY(eval(render, node->a, &value));
  bool negative = node->kind == NODE_NEGATE;
  if (value.kind == VALUE_UNDEFINED) return render_undefined(render, value);
  if (value.kind == VALUE_FLOAT) {
    *out = value_float(negative ? -value.number : value.number);
  } else if (value_is_integer(value)) {
    if (negative) return value_binary(render, OP_SUB, value_int(0), value, out);
    *out = value_int(value_integer(value));
  } else {
    return render_fail(render, "bad operand type for unary %c: '%s'", negative ? '-' : '+',
                       value_type(value));
  }
  return STATUS_OK;
}

static Status eval_concat(Render *render, const Node *node, Value *out) {
  TRY(eval(render, node->items.nodes[0], out));
  for (size_t i = 1; i < node->items.count; i++) {
    Value part;
    TRY(eval(render, node->items.nodes[i], &part));
    TRY(value_concat(render, *out, part, out));
  }
  return STATUS_OK;
}

/* --- parts */

static Status eval_or_missing(Render *render, const Node *node, Value *out) {
  *out = (Value){.kind = VALUE_MISSING};
  return node ? eval(render, node, out) : STATUS_OK;
}

static Status eval_item(Render *render, const Node *node, Value *out) {
  Value owner, key, stop, step;
  TRY(eval(render, node->a, &owner));
  if (node->b->kind != NODE_SLICE) {
    TRY(eval(render, node->b, &key));
    return value_item(render, owner, key, out);
  }
  TRY(eval_or_missing(render, node->b->a, &key));
  TRY(eval_or_missing(render, node->b->b, &stop));
  TRY(eval_or_missing(render, node->b->c, &step));
  return value_slice(render, owner, key, stop, step, out);
}

static Status eval_call(Render *render, const Node *node, Value *out) {
  Value callee;
  CallArgs args;
  TRY(eval(render, node->a, &callee));
  TRY(eval_arguments(render, node, &args));
  return value_call(render, callee, &args, out);
}

static Status call_builtin(Render *render, const Node *node, Value self, Value *out) {
  CallArgs args;
  if (!node->builtin)
    return render_fail(render, "there is no %s \"%.*s\"", node->kind == NODE_FILTER ? "filter" : "test",
                       (int)node->text.size, node->text.data);
  TRY(eval_arguments(render, node, &args));
  return builtin_call(render, node->builtin, self, &args, out);
}

Status eval_block_filter(Render *render, const Node *node, Value text, Value *out) {
  Value self = text;
  if (node->a) TRY(eval_block_filter(render, node->a, text, &self));
  return render_placed(render, node, call_builtin(render, node, self, out));
}

/* --- any expression */

static Status eval_inside(Render *render, const Node *node, Value *out) {
  Value a, b;
  switch (node->kind) {
  case NODE_CONST: *out = node->value; return STATUS_OK;
  case NODE_NAME: return find_name(render, node, out);
  case NODE_LIST:
  case NODE_TUPLE: return eval_items(render, node, out);
  case NODE_DICT: return eval_dict(render, node, out);
  case NODE_COND: return eval_conditional(render, node, out);
  case NODE_OR:
  case NODE_AND:
    TRY(eval(render, node->a, out));
    return value_truth(*out) == (node->kind == NODE_AND) ? eval(render, node->b, out) : STATUS_OK;
  case NODE_NOT:
    TRY(eval(render, node->a, &a));
    *out = value_bool(!value_truth(a));
    return STATUS_OK;
  case NODE_COMPARE: return eval_comparison(render, node, out);
  case NODE_BINARY:
    TRY(eval(render, node->a, &a));
    TRY(eval(render, node->b, &b));
    return value_binary(render, node->op, a, b, out);
  case NODE_NEGATE:
  case NODE_PLUS: return eval_sign(render, node, out);
  case NODE_CONCAT: return eval_concat(render, node, out);
  case NODE_ATTRIBUTE: TRY(eval(render, node->a, &a)); return value_attribute(render, a, node->text, out);
  case NODE_ITEM: return eval_item(render, node, out);
  case NODE_CALL: return eval_call(render, node, out);
  case NODE_FILTER:
  case NODE_TEST: TRY(eval(render, node->a, &a)); return call_builtin(render, node, a, out);
  default: return render_fail(render, "this has no value");
  }
}

Status eval(Render *render, const Node *node, Value *out) {
  TRY(render_charge(render, 1));
  if (++render->depth > RENDER_MAX_DEPTH)
    return render_placed(render, node, render_fail(render, "evaluation is nested too deep"));
  Status status = eval_inside(render, node, out);
  if (status != STATUS_OK) return render_placed(render, node, status);
  render->depth--;
  return STATUS_OK;
}
