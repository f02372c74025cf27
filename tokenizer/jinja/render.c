/* render.c - runs the tags of a template over its variables.
 *
 * Scopes are jinja2's: the bodies of for, macro, call, with, generation, filter and block set have scopes of
 * their own; an if has none. The scope of a for is emptied before each iteration. Names are looked up from
 * the innermost scope outwards (in a macro, outwards from its definition). Then follow the variables, the
 * special tokens and the built-in functions. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "tokenizer/hash.h"
#include "tokenizer/jinja/eval.h"
#include "tokenizer/stop.h"

struct Macro {
  const Node *node;
  Scope *scope; /* scope of the macro's definition */
};

/* A `for` that is running. It takes elements as needed: one ahead for `last` and `nextitem`, and all of them
 * for `length` if the source has no length or `filter` is set. */
struct Loop {
  const Node *node;
  const Node *filter; /* the condition that elements of the cursor must still meet, or NULL */
  Scope *scope;       /* scope around the loop */
  Cursor cursor;
  int64_t index; /* index of the current element, from 0 */
  int depth;     /* depth of a recursive loop, from 1 */
  bool peeked, ended, has_length;
  size_t length;
  Value current, before, after; /* elements; `before` is MISSING in the first iteration */
  Value changed;                /* the arguments of the last changed() */
};

/* --- failures and limits */

Status render_fail(Render *render, const char *format, ...) {
  char message[sizeof render->err->text];
  va_list args;
  va_start(args, format);
  vsnprintf(message, sizeof message, format, args);
  va_end(args);
  return error_set(render->err, STATUS_MODEL, "%s", message);
}

Status render_charge(Render *render, size_t steps) {
  TRY(stop_check(render->input->interrupted, render->err));
  if (steps <= render->steps) {
    render->steps -= steps;
    return STATUS_OK;
  }
  render->steps = 0;
  return render_fail(render, "takes more than %d steps", RENDER_MAX_STEPS);
}

/* STATUS_MODEL at the arena's limit, which is the template's fault; a failed malloc is STATUS_FAILED. */
static Status no_memory(const Render *render) {
  return strncmp(render->err->text, "out of memory", 13) == 0 ? STATUS_FAILED : STATUS_MODEL;
}

Status render_alloc(Render *render, void *items, size_t n, size_t size) {
  void *memory = arena_alloc(&render->arena, n, size, render->err);
  memcpy(items, &memory, sizeof memory);
  return memory ? STATUS_OK : no_memory(render);
}

Status render_grow(Render *render, void *items, size_t count, size_t *capacity, size_t size) {
  bool grown = arena_grow(&render->arena, items, count, capacity, size, render->err);
  return grown ? STATUS_OK : no_memory(render);
}

Status render_placed(Render *render, const Node *node, Status status) {
  if (status != STATUS_MODEL || render->placed) return status;
  render->placed = true;
  Text source = render->template->source;
  size_t size = node->end > node->at ? node->end - node->at : 0, shown = 0;
  while (shown < size && shown < 60 && source.data[node->at + shown] != '\n')
    shown += text_step(source, node->at + shown);
  Error reason = *render->err;
  return error_set(render->err, status, "%s: line %d: %.*s%s: %s", render->template->name,
                   template_line(render->template, node->at), (int)shown, source.data + node->at,
                   shown < size ? "..." : "", reason.text);
}

const char *render_shown(Render *render, Value value) {
  size_t mark = put_mark(render);
  Value text;
  if (put_repr(render, value) != STATUS_OK || put_take(render, mark, &text) != STATUS_OK) return "?";
  size_t size = text.text->size > 100 ? 100 : text.text->size;
  while (size > 0 && size < text.text->size && ((unsigned char)text.text->data[size] & 0xc0) == 0x80) size--;
  char *copy;
  if (render_alloc(render, &copy, size + 1, 1) != STATUS_OK) return "?";
  memcpy(copy, text.text->data, size);
  copy[size] = '\0';
  return copy;
}

Status render_undefined(Render *render, Value undefined) {
  const Undefined *u = undefined.undefined;
  if (u->hint) return render_fail(render, "%s", u->hint);
  const char *name = render_shown(render, u->name);
  if (!u->owner) return render_fail(render, "%s is undefined", name);
  if (u->name.kind != VALUE_STRING) return render_fail(render, "%s has no element %s", u->owner, name);
  return render_fail(render, "'%s' has no attribute %s", u->owner, name);
}

/* --- scopes */

static Status scope_open(Render *render, Scope *parent, Scope **scope) {
  TRY(render_alloc(render, scope, 1, sizeof **scope));
  **scope = (Scope){.parent = parent};
  return STATUS_OK;
}

static Status scope_set(Render *render, Scope *scope, int symbol, Value value) {
  for (size_t i = 0; i < scope->count; i++)
    if (scope->variables[i].symbol == symbol) {
      scope->variables[i].value = value;
      return STATUS_OK;
    }
  TRY(render_charge(render, scope->count / 8));
  TRY(render_grow(render, &scope->variables, scope->count, &scope->capacity, sizeof *scope->variables));
  scope->variables[scope->count++] = (Variable){symbol, value};
  return STATUS_OK;
}

Status scope_find(Render *render, int symbol, const Variable **variable) {
  size_t passed = 0;
  *variable = NULL;
  for (const Scope *scope = render->scope; scope && !*variable; scope = scope->parent) {
    passed += scope->count + 1;
    for (size_t i = 0; i < scope->count && !*variable; i++)
      if (scope->variables[i].symbol == symbol) *variable = &scope->variables[i];
  }
  return passed < 32 ? STATUS_OK : render_charge(render, passed / 32);
}

/* --- assignment */

static Status assign_member(Render *render, const Node *target, Value value) {
  const Variable *variable;
  Value key;
  TRY(scope_find(render, target->symbol, &variable));
  if (!variable || variable->value.kind != VALUE_NAMESPACE)
    return render_fail(render, "cannot assign attribute on non-namespace object");
  TRY(value_text(render, target->text, &key));
  return dict_set(render, variable->value.dict, key, value);
}

static Status assign(Render *render, const Node *target, Value value);

static Status assign_tuple(Render *render, const Node *target, Value value) {
  const List *list;
  if (!value_is_iterable(value))
    return render_fail(render, "cannot unpack non-iterable %s object", value_type(value));
  TRY(value_elements(render, value, &list));
  size_t wanted = target->items.count;
  if (list->count > wanted) return render_fail(render, "too many values to unpack (expected %zu)", wanted);
  if (list->count < wanted)
    return render_fail(render, "not enough values to unpack (expected %zu, got %zu)", wanted, list->count);
  for (size_t i = 0; i < wanted; i++) TRY(assign(render, target->items.nodes[i], list->items[i]));
  return STATUS_OK;
}

static Status assign(Render *render, const Node *target, Value value) {
  TRY(render_charge(render, 1));
  if (target->kind == NODE_NAME) return scope_set(render, render->scope, target->symbol, value);
  Status status =
      target->kind == NODE_TUPLE ? assign_tuple(render, target, value) : assign_member(render, target, value);
  return render_placed(render, target, status);
}

/* --- bodies */

static Status run(Render *render, const Node *node);

static Status run_all(Render *render, const NodeList *list) {
  for (size_t i = 0; i < list->count && render->signal == SIGNAL_NONE; i++) TRY(run(render, list->nodes[i]));
  return STATUS_OK;
}

/* Runs a list in a scope of its own within `parent`. */
static Status run_inside(Render *render, Scope *parent, const NodeList *list) {
  Scope *before = render->scope;
  TRY(scope_open(render, parent, &render->scope));
  TRY(run_all(render, list));
  render->scope = before;
  return STATUS_OK;
}

/* Runs a list and returns its output as a value. */
static Status capture(Render *render, Scope *parent, const NodeList *list, Value *out) {
  size_t mark = put_mark(render);
  TRY(run_inside(render, parent, list));
  return put_take(render, mark, out);
}

/* --- loops */

/* Evaluates the loop's condition for an element, in a scope where the target is set. */
static Status loop_admits(Render *render, const Loop *loop, Value element, bool *admits) {
  Scope *before = render->scope;
  Value holds;
  TRY(scope_open(render, loop->scope, &render->scope));
  TRY(assign(render, loop->node->a, element));
  TRY(eval(render, loop->filter, &holds));
  render->scope = before;
  *admits = value_truth(holds);
  return STATUS_OK;
}

static Status loop_take(Render *render, Loop *loop, Value *out, bool *more) {
  for (;;) {
    bool admits = true;
    TRY(cursor_next(render, &loop->cursor, out, more));
    if (!*more) return STATUS_OK;
    if (loop->filter) TRY(loop_admits(render, loop, *out, &admits));
    if (admits) return STATUS_OK;
  }
}

static Status loop_peek(Render *render, Loop *loop) {
  if (loop->peeked || loop->ended) return STATUS_OK;
  bool more;
  TRY(loop_take(render, loop, &loop->after, &more));
  loop->peeked = more;
  loop->ended = !more;
  return STATUS_OK;
}

/* Iterator.next() for the remaining elements of a loop, which is the iterator's state. */
static Status next_of_loop(Render *render, Iterator *iterator, Value *out, bool *more) {
  return loop_take(render, iterator->state, out, more);
}

/* If the source has no length, or the loop has a filter, takes and counts all remaining elements. */
Status loop_length(Render *render, Loop *loop, size_t *length) {
  if (!loop->has_length) TRY(value_charge_length(render, loop->cursor.source));
  if (!loop->has_length && (loop->filter || !value_length(loop->cursor.source, &loop->length))) {
    const List *rest;
    Iterator iterator = {.type_name = "loop", .next = next_of_loop, .state = loop};
    TRY(value_elements(render, (Value){.kind = VALUE_ITERATOR, .iterator = &iterator}, &rest));
    loop->length = rest->count + (size_t)loop->index + 1 + loop->peeked;
    loop->cursor = (Cursor){.source = {.kind = VALUE_LIST, .list = rest}};
    loop->filter = NULL;
  }
  loop->has_length = true;
  *length = loop->length;
  return STATUS_OK;
}

static Status loop_step(Render *render, Loop *loop, bool *more) {
  TRY(loop_peek(render, loop));
  *more = loop->peeked;
  if (!*more) return STATUS_OK;
  loop->index++;
  loop->before = loop->current;
  loop->current = loop->after;
  loop->peeked = false;
  return STATUS_OK;
}

static Status loop_cycle(Render *render, const CallArgs *args, Value *out) {
  if (args->count == 0) return render_fail(render, "no items for cycling given");
  *out = args->items[(size_t)args->self.loop->index % args->count];
  return STATUS_OK;
}

static Status loop_changed(Render *render, const CallArgs *args, Value *out) {
  Value now;
  bool equal;
  TRY(value_copies(render, args->items, args->count, &now));
  TRY(value_equal(render, args->self.loop->changed, now, &equal));
  args->self.loop->changed = now;
  *out = value_bool(!equal);
  return STATUS_OK;
}

static const Builtin loop_methods[] = {
    {"cycle", NULL, 0, loop_cycle, 0}, {"changed", NULL, 0, loop_changed, 0}, {0}};

/* `length`, `revindex` and `revindex0`. */
static Status loop_counted(Render *render, Loop *loop, Text name, Value *out) {
  size_t length;
  TRY(loop_length(render, loop, &length));
  int64_t left = (int64_t)length - loop->index;
  *out = value_int(text_is(name, "length") ? (int64_t)length : text_is(name, "revindex") ? left : left - 1);
  return STATUS_OK;
}

/* MISSING: a loop has no such attribute. */
Status loop_attribute(Render *render, Loop *loop, Text name, Value *out) {
  *out = (Value){.kind = VALUE_MISSING};
  const Builtin *method = builtin_find(loop_methods, name);
  if (method) return value_method(render, method, (Value){.kind = VALUE_LOOP, .loop = loop}, out);
  bool is_last = text_is(name, "last"), is_next = text_is(name, "nextitem");
  if (is_last || is_next) TRY(loop_peek(render, loop));
  if (is_next && !loop->peeked) return value_undefined(render, "there is no next item", out);
  if (text_is(name, "previtem") && loop->index == 0)
    return value_undefined(render, "there is no previous item", out);
  if (text_is(name, "length") || text_is(name, "revindex") || text_is(name, "revindex0"))
    return loop_counted(render, loop, name, out);
  const struct {
    const char *name;
    Value value;
  } attributes[] = {
      {"index", value_int(loop->index + 1)},
      {"index0", value_int(loop->index)},
      {"first", value_bool(loop->index == 0)},
      {"last", value_bool(!loop->peeked)},
      {"previtem", loop->before},
      {"nextitem", loop->after},
      {"depth", value_int(loop->depth)},
      {"depth0", value_int(loop->depth - 1)},
  };
  for (size_t i = 0; i < sizeof attributes / sizeof *attributes; i++)
    if (text_is(name, attributes[i].name)) *out = attributes[i].value;
  return STATUS_OK;
}

/* Runs one iteration. All iterations share a scope that is emptied before each: as in jinja2, a macro from
 * an earlier iteration sees the variables of the current one. */
static Status run_round(Render *render, const Node *node, Loop *loop, Scope **scope) {
  if (*scope)
    (*scope)->count = 0;
  else
    TRY(scope_open(render, loop->scope, scope));
  Scope *before = render->scope;
  render->scope = *scope;
  TRY(scope_set(render, *scope, render->template->loop, (Value){.kind = VALUE_LOOP, .loop = loop}));
  TRY(assign(render, node->a, loop->current));
  TRY(run_all(render, &node->items));
  render->scope = before;
  return STATUS_OK;
}

static Status run_loop(Render *render, const Node *node, Scope *scope, Value items, int depth) {
  Loop *loop;
  TRY(render_alloc(render, &loop, 1, sizeof *loop));
  *loop = (Loop){.node = node, .filter = node->c, .scope = scope, .index = -1, .depth = depth};
  TRY(cursor_begin(render, items, &loop->cursor));
  Scope *round = NULL;
  bool completed = false; /* some iteration ran to its end: jinja2's else depends on that, not on elements */
  for (bool more = true;;) {
    TRY(loop_step(render, loop, &more));
    if (!more) break;
    TRY(run_round(render, node, loop, &round));
    Signal signal = render->signal;
    render->signal = SIGNAL_NONE;
    completed |= signal == SIGNAL_NONE;
    if (signal == SIGNAL_BREAK) break;
  }
  if (round) round->count = 0; /* as in jinja2, a macro that outlives the loop sees none of its variables */
  return !completed ? run_inside(render, scope, &node->others) : STATUS_OK;
}

Status loop_call(Render *render, Loop *loop, Value items, Value *out) {
  if (!loop->node->flag)
    return render_fail(render, "The loop must have the 'recursive' marker to be called recursively.");
  if (++render->depth > RENDER_MAX_DEPTH) return render_fail(render, "evaluation is nested too deep");
  Scope *before = render->scope;
  render->scope = loop->scope;
  size_t mark = put_mark(render);
  TRY(run_loop(render, loop->node, loop->scope, items, loop->depth + 1));
  render->scope = before;
  render->depth--;
  return put_take(render, mark, out);
}

/* --- macros */

Text macro_name(const Macro *macro) {
  return macro->node->kind == NODE_MACRO ? macro->node->text : text_literal("");
}

static Status make_macro(Render *render, const Node *node, Value *out) {
  return value_object(render, VALUE_MACRO, &(Macro){node, render->scope}, sizeof(Macro), out);
}

static Status take_keyword(Render *render, const CallArgs *args, bool *taken, Text name, Value *out) {
  TRY(render_charge(render, args->n_keywords / 8));
  *out = (Value){.kind = VALUE_MISSING};
  for (size_t i = 0; i < args->n_keywords; i++)
    if (text_equal(args->keywords[i].name, name)) {
      *out = args->keywords[i].value;
      taken[i] = true;
    }
  return STATUS_OK;
}

/* The default of a parameter that was not given; it may use earlier parameters. */
static Status default_of(Render *render, const Node *param, Value *out) {
  if (param->b) return eval(render, param->b, out);
  char hint[200];
  snprintf(hint, sizeof hint, "parameter '%.*s' was not provided",
           (int)(param->text.size > 100 ? 100 : param->text.size), param->text.data);
  char *kept;
  TRY(render_alloc(render, &kept, strlen(hint) + 1, 1));
  return value_undefined(render, strcpy(kept, hint), out);
}

static Status bind_parameters(Render *render, const Node *node, const CallArgs *args, bool *taken) {
  for (size_t i = 0; i < node->params.count; i++) {
    const Node *param = node->params.nodes[i];
    Value value;
    if (i < args->count)
      value = args->items[i];
    else
      TRY(take_keyword(render, args, taken, param->text, &value));
    if (value.kind == VALUE_MISSING) TRY(default_of(render, param, &value));
    TRY(scope_set(render, render->scope, param->symbol, value));
  }
  return STATUS_OK;
}

static Status bind_caller(Render *render, const Node *node, const CallArgs *args, bool *taken) {
  for (size_t i = 0; i < node->params.count; i++)
    if (node->params.nodes[i]->symbol == render->template->caller) return STATUS_OK;
  Value caller;
  TRY(take_keyword(render, args, taken, text_literal("caller"), &caller));
  if (caller.kind == VALUE_MISSING) TRY(value_undefined(render, "No caller defined", &caller));
  return scope_set(render, render->scope, render->template->caller, caller);
}

/* Sets kwargs and varargs to the remaining arguments. Refuses remaining keyword arguments if the body does
 * not use kwargs, and remaining positional ones if it does not use varargs. */
static Status bind_rest(Render *render, const Macro *macro, const CallArgs *args, const bool *taken) {
  const Node *node = macro->node;
  Text name = macro_name(macro);
  Value kwargs, varargs;
  TRY(value_dict(render, 0, &kwargs));
  for (size_t i = 0; i < args->n_keywords; i++) {
    Text keyword = args->keywords[i].name;
    Value key;
    if (taken[i]) continue;
    if (!node->uses_kwargs)
      return render_fail(render, "macro '%.*s' takes no keyword argument '%.*s'", (int)name.size, name.data,
                         (int)keyword.size, keyword.data);
    TRY(value_text(render, keyword, &key));
    TRY(dict_set(render, kwargs.dict, key, args->keywords[i].value));
  }
  size_t n = node->params.count, more = args->count > n ? args->count - n : 0;
  if (more && !node->uses_varargs)
    return render_fail(render, "macro '%.*s' takes not more than %zu argument(s)", (int)name.size, name.data,
                       n);
  TRY(value_copies(render, more ? args->items + n : NULL, more, &varargs));
  varargs.kind = VALUE_TUPLE;
  if (node->uses_kwargs) TRY(scope_set(render, render->scope, render->template->kwargs, kwargs));
  return node->uses_varargs ? scope_set(render, render->scope, render->template->varargs, varargs)
                            : STATUS_OK;
}

Status macro_call(Render *render, const Macro *macro, const CallArgs *args, Value *out) {
  const Node *node = macro->node;
  if (++render->depth > RENDER_MAX_DEPTH) return render_fail(render, "macros are nested too deep");
  Scope *before = render->scope;
  bool *taken;
  TRY(render_alloc(render, &taken, args->n_keywords, sizeof *taken));
  for (size_t i = 0; i < args->n_keywords; i++) taken[i] = false;
  TRY(scope_open(render, macro->scope, &render->scope));
  TRY(bind_parameters(render, node, args, taken));
  if (node->uses_caller) TRY(bind_caller(render, node, args, taken));
  TRY(bind_rest(render, macro, args, taken));
  size_t mark = put_mark(render);
  TRY(run_all(render, &node->items));
  render->scope = before;
  render->depth--;
  return put_take(render, mark, out);
}

/* {% call f(x) %}: f gets the body as its caller. */
static Status run_call_block(Render *render, const Node *node) {
  Value callee, result;
  CallArgs args;
  TRY(eval(render, node->a->a, &callee));
  TRY(eval_arguments(render, node->a, &args));
  Keyword *keywords;
  TRY(render_alloc(render, &keywords, args.n_keywords + 1, sizeof *keywords));
  for (size_t i = 0; i < args.n_keywords; i++) keywords[i] = args.keywords[i];
  keywords[args.n_keywords].name = text_literal("caller");
  TRY(make_macro(render, node, &keywords[args.n_keywords++].value));
  args.keywords = keywords;
  TRY(render_placed(render, node->a, value_call(render, callee, &args, &result)));
  return put_string(render, result);
}

/* --- the other tags */

static Status run_if(Render *render, const Node *node) {
  for (;;) {
    Value holds;
    TRY(eval(render, node->a, &holds));
    if (value_truth(holds)) return run_all(render, &node->items);
    bool is_elif = node->others.count == 1 && node->others.nodes[0]->kind == NODE_IF;
    if (!is_elif) return run_all(render, &node->others);
    node = node->others.nodes[0];
    TRY(render_charge(render, 1));
  }
}

static Status run_capture(Render *render, const Node *node) {
  Value value;
  TRY(capture(render, render->scope, &node->items, &value));
  if (node->b) TRY(eval_block_filter(render, node->b, value, &value));
  return node->kind == NODE_FILTERED ? put_string(render, value) : assign(render, node->a, value);
}

/* The values are evaluated in the enclosing scope. */
static Status run_with(Render *render, const Node *node) {
  Scope *before = render->scope, *scope;
  TRY(scope_open(render, before, &scope));
  for (size_t i = 0; i < node->params.count; i++) {
    Value value;
    TRY(eval(render, node->params.nodes[i]->b, &value));
    render->scope = scope;
    TRY(assign(render, node->params.nodes[i]->a, value));
    render->scope = before;
  }
  render->scope = scope;
  TRY(run_all(render, &node->items));
  render->scope = before;
  return STATUS_OK;
}

static Status run_inside_tag(Render *render, const Node *node) {
  Value value;
  switch (node->kind) {
  case NODE_DATA: return put_text(render, node->text);
  case NODE_OUTPUT: TRY(eval(render, node->a, &value)); return put_string(render, value);
  case NODE_IF: return run_if(render, node);
  case NODE_FOR: TRY(eval(render, node->b, &value)); return run_loop(render, node, render->scope, value, 1);
  case NODE_SET: TRY(eval(render, node->b, &value)); return assign(render, node->a, value);
  case NODE_CAPTURE:
  case NODE_FILTERED: return run_capture(render, node);
  case NODE_MACRO:
    TRY(make_macro(render, node, &value));
    return scope_set(render, render->scope, node->symbol, value);
  case NODE_CALL_BLOCK: return run_call_block(render, node);
  case NODE_WITH: return run_with(render, node);
  case NODE_BREAK: render->signal = SIGNAL_BREAK; return STATUS_OK;
  case NODE_CONTINUE: render->signal = SIGNAL_CONTINUE; return STATUS_OK;
  default: return render_fail(render, "this is no tag");
  }
}

static Status run(Render *render, const Node *node) {
  TRY(render_charge(render, 1));
  if (++render->depth > RENDER_MAX_DEPTH)
    return render_placed(render, node, render_fail(render, "tags are nested too deep"));
  TRY(render_placed(render, node, run_inside_tag(render, node)));
  render->depth--;
  return STATUS_OK;
}

/* --- a rendering */

/* Sets the built-in functions, then the special tokens, then the variables: the last value of a name
 * counts. */
static Status set_globals(Render *render) {
  const Vocab *symbols = &render->template->symbols;
  TRY(render_alloc(render, &render->globals, symbols->count, sizeof *render->globals));
  for (size_t i = 0; i < symbols->count; i++) {
    render->globals[i] = (Value){.kind = VALUE_MISSING};
    Text name = text_of(symbols->bytes.data + symbols->tokens[i].offset, symbols->tokens[i].size, true);
    const Builtin *builtin = builtin_find(template_functions, name);
    Value none = {.kind = VALUE_MISSING};
    if (builtin) TRY(value_method(render, builtin, none, &render->globals[i]));
  }
  const Json *sources[] = {render->input->specials, render->input->variables};
  for (size_t i = 0; i < 2; i++)
    for (const Json *member = json_first(sources[i]); member; member = json_next(member)) {
      const char *name = json_key(member);
      int symbol = vocab_find(symbols, name, strlen(name));
      bool trusted = i == 0 || (strcmp(name, "role") == 0 && json_is_string(member));
      if (symbol >= 0) TRY(value_json(render, member, trusted, &render->globals[symbol]));
    }
  return STATUS_OK;
}

Status template_render(const Template *parsed, const TemplateInput *input, TrustedText *out, bool *raised,
                       Error *err) {
  Error own = {{0}};
  Render render = {
      .template = parsed,
      .input = input,
      .arena = {.limit = RENDER_MAX_MEMORY},
      .out = out,
      .begin = out->text.size,
      .hash_seed = hash_seed(),
      .steps = RENDER_MAX_STEPS,
      .err = err ? err : &own,
  };
  Status status = set_globals(&render);
  if (status == STATUS_OK) status = scope_open(&render, NULL, &render.scope);
  if (status == STATUS_OK) status = run_all(&render, &parsed->body);
  if (status != STATUS_OK && !render.raised) trusted_text_truncate(out, render.begin);
  if (status == STATUS_MODEL && !render.placed) {
    Error reason = *render.err;
    error_set(render.err, status, "%s: %s", parsed->name, reason.text);
  }
  *raised = render.raised;
  arena_release(&render.arena);
  return status;
}
