/* eval.h - private to this folder: the state of a rendering, and the built-in functions. */
#pragma once

#include "tokenizer/jinja/syntax.h"

/* Limits of a rendering. A step is an evaluated node, a visited element or BYTES_OF_STEP bytes that are read
 * or copied. Together the limits end an endless template within about a second. */
enum {
  RENDER_MAX_STEPS = 10000000,
  RENDER_MAX_DEPTH = 1000, /* nesting of evaluation: nodes, macros, values */
  RENDER_MAX_RANGE = 100000,
  BYTES_OF_STEP = 128,
  APPENDED_IN_PLACE = 4096, /* a text of at least this many bytes gets room to grow */
};
#define RENDER_MAX_TEXT   ((size_t)64 << 20) /* bytes of the output, and of any string */
#define RENDER_MAX_MEMORY ((size_t)512 << 20)

typedef struct {
  int symbol;
  Value value;
} Variable;

typedef struct Scope Scope;
struct Scope {
  Scope *parent;
  Variable *variables; /* [capacity] */
  size_t count, capacity;
};

/* The result of the last concatenation, with spare room. Appending to it copies only the new part, so that a
 * template can build its prompt piece by piece. Texts that are prefixes of it stay valid. */
typedef struct {
  char *data; /* [capacity] */
  size_t size, capacity;
  TextRun *runs; /* [run_capacity] */
  size_t n_runs, run_capacity;
} Tail;

typedef enum { SIGNAL_NONE, SIGNAL_BREAK, SIGNAL_CONTINUE } Signal;

struct Render {
  const Template *template;
  const TemplateInput *input;
  Arena arena;
  Tail tail;
  TrustedText *out;
  size_t begin; /* bytes in `out` before this rendering */
  Scope *scope;
  Value *globals; /* [symbols.count] values outside all scopes: set_globals(); MISSING: none */
  uint64_t hash_seed;
  size_t steps; /* steps left */
  int depth;
  Signal signal;
  bool placed, raised; /* placed: the error names line and construct; raised: raise_exception() set it */
  Error *err;
};

/* Sets the error (STATUS_MODEL); render_placed() adds line and expression. */
Status render_fail(Render *render, const char *format, ...) __attribute__((format(printf, 2, 3)));
Status render_charge(Render *render, size_t steps);
static inline Status render_charge_bytes(Render *render, size_t bytes) {
  return render_charge(render, bytes / BYTES_OF_STEP + 1);
}
/* Allocates n items of `size` bytes in the arena; `items` is the address of the pointer to them. */
Status render_alloc(Render *render, void *items, size_t n, size_t size);
/* Makes room for one more item in an array in the arena; `items` is the address of its pointer. */
Status render_grow(Render *render, void *items, size_t count, size_t *capacity, size_t size);
/* repr(value), shortened for a message. */
const char *render_shown(Render *render, Value value);
Status render_undefined(Render *render, Value undefined); /* fails with the value's message */

/* Puts the template's name, the node's line and its text before a STATUS_MODEL error that lacks them. */
Status render_placed(Render *render, const Node *node, Status status);
/* Finds the innermost variable of this name, or NULL; a look at many variables is charged as steps. */
Status scope_find(Render *render, int symbol, const Variable **variable);

/* Arguments of a call. */
typedef struct {
  Text name;
  Value value;
} Keyword;
typedef struct {
  Value self;         /* the object of a method, operand of a filter or test, else MISSING */
  int mode;           /* Builtin.mode */
  const Value *items; /* [count] by position */
  size_t count;
  const Keyword *keywords; /* [n_keywords] */
  size_t n_keywords;
} CallArgs;

Status eval(Render *render, const Node *node, Value *out);
Status eval_arguments(Render *render, const Node *call, CallArgs *args);
/* Applies a chain of filters, `node` the last of them, to a text. */
Status eval_block_filter(Render *render, const Node *node, Value text, Value *out);

/* A filter, test, method or function. A test's result is a bool. */
typedef Status BuiltinCall(Render *render, const CallArgs *args, Value *out);
struct Builtin {
  const char *name;
  /* Parameter names separated by blanks, "old new count". The call gets one item for each: VALUE_MISSING for
   * a parameter not given. A leading '/': positional only. NULL: the call gets the arguments as they are. */
  const char *parameters;
  int n_required;
  BuiltinCall *call;
  int mode; /* passed on in the arguments, for a function that serves several names */
};
struct Function {
  const Builtin *builtin;
  Value self; /* the object of a method, else MISSING */
};

extern const Builtin template_filters[], template_tests[], template_functions[]; /* end with a NULL name */
extern const Builtin template_string_methods[], template_list_methods[], template_tuple_methods[],
    template_dict_methods[], template_cycler_methods[];
const Builtin *builtin_find(const Builtin *table, Text name);
Status builtin_call(Render *render, const Builtin *builtin, Value self, const CallArgs *args, Value *out);

/* Makes a value of a function or, with `self`, a method. */
Status value_method(Render *render, const Builtin *builtin, Value self, Value *out);
/* Calls a value. */
Status value_call(Render *render, Value callee, const CallArgs *args, Value *out);
/* a.name and a[key]; each tries the other's lookup if its own finds nothing. */
Status value_attribute(Render *render, Value owner, Text name, Value *out);
Status value_item(Render *render, Value owner, Value key, Value *out);
Status value_slice(Render *render, Value owner, Value start, Value stop, Value step, Value *out);
Status value_binary(Render *render, Operator op, Value a, Value b, Value *out);
Status value_compare(Render *render, Operator op, Value a, Value b, bool *out); /* op: OP_EQ to OP_NOT_IN */
Status value_order(Render *render, Operator op, Value a, Value b, bool *out);   /* op: OP_LT to OP_GE */
Status value_concat(Render *render, Value a, Value b, Value *out);              /* a ~ b */
Status loop_attribute(Render *render, Loop *loop, Text name, Value *out);
Status loop_length(Render *render, Loop *loop, size_t *length);
/* Calls `loop(items)` in a recursive for, or a macro. */
Status loop_call(Render *render, Loop *loop, Value items, Value *out);
Status macro_call(Render *render, const Macro *macro, const CallArgs *args, Value *out);
Text macro_name(const Macro *macro);

/* Python's "%" on strings, and str.format(). */
Status format_percent(Render *render, Text format, Value args, Value *out);
BuiltinCall format_braces; /* args->self is the format */
/* How put_json() appends json.dumps(value). `indent` NULL: on one line. */
typedef struct {
  const Text *indent;
  Text between, after_key;
  bool ascii, sorted;
} JsonStyle;
Status put_json(Render *render, Value value, const JsonStyle *style);

Status dict_add_keywords(Render *render, Dict *dict, const CallArgs *args);
/* An argument as an integer (`fallback` if it was not given) or a string (`what` names it in a failure). */
Status argument_int(Render *render, Value value, int64_t fallback, int64_t *out);
Status argument_text(Render *render, const char *what, Value value, Text *out);
/* Appends a text, escaped. escape() writes to `out` what replaces a character, or returns false to keep the
 * character; `option` is passed on to it. */
typedef bool Escape(uint32_t code, int option, char out[16]);
Status put_escaped(Render *render, Text text, Escape *escape, int option);
void escape_code(uint32_t code, char out[16]);               /* Python's \x41, \u0041 or \U00000041 */
Status text_escaped(Render *render, Value value, Text *out); /* escapes for HTML, unless it is Markup */
/* A stable merge sort by the entries' keys; `scratch` is as large as `entries`. */
Status sort_entries(Render *render, DictEntry *entries, DictEntry *scratch, size_t n, bool reverse);
typedef enum { CASE_LOWER, CASE_UPPER, CASE_TITLE, CASE_FOLDED } CaseKind;
/* Appends text[from, to) in a case; the text around it counts as context. */
Status put_case(Render *render, Text text, size_t from, size_t to, CaseKind kind);
bool code_is_cased(uint32_t code); /* a letter in upper, lower or title case */
