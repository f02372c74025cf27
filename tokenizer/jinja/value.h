/* value.h - private to this folder: the values of the template language, which are Python's.
 *
 * A value is two words. Its data lives in the arena of the template or of the rendering, or belongs to the
 * input. Data never changes, except members of a namespace and the state of iterators, loops, cyclers and
 * joiners. */
#pragma once

#include "tokenizer/jinja/text.h"

typedef enum {
  VALUE_MISSING, /* no value: an argument was not given, or a lookup failed; no template sees it */
  VALUE_UNDEFINED,
  VALUE_NONE,
  VALUE_BOOL,
  VALUE_INT,
  VALUE_HUGE, /* an integer of the variables beyond 64 bits: it can be printed, not computed with */
  VALUE_FLOAT,
  VALUE_STRING,
  VALUE_LIST,
  VALUE_TUPLE,
  VALUE_DICT,
  VALUE_VIEW,      /* d.items(), d.keys(), d.values() */
  VALUE_RANGE,     /* range(...) */
  VALUE_ITERATOR,  /* the result of map, select, ...: can be walked once */
  VALUE_NAMESPACE, /* namespace(...): the only value whose members can be set */
  VALUE_LOOP,      /* `loop` in a for */
  VALUE_MACRO,
  VALUE_FUNCTION, /* a built-in function or method */
  VALUE_CYCLER,
  VALUE_JOINER,
} ValueKind;

typedef struct Render Render; /* eval.h */
typedef struct Value Value;
typedef struct List List;
typedef struct Dict Dict;
typedef struct View View;
typedef struct Range Range;
typedef struct Iterator Iterator;
typedef struct Loop Loop;
typedef struct Macro Macro;
typedef struct Function Function;
typedef struct Undefined Undefined;
typedef struct Cycler Cycler;
typedef struct Joiner Joiner;

struct Value {
  uint8_t kind;  /* ValueKind */
  bool is_safe;  /* STRING: Markup, made by `safe` and `escape`: strings added to it are escaped */
  bool is_group; /* TUPLE: from groupby, with the attributes grouper and list */
  union {
    bool boolean;
    int64_t integer;
    double number;
    const Text *text; /* STRING; HUGE: the digits */
    const List *list; /* LIST, TUPLE */
    Dict *dict;       /* DICT, NAMESPACE */
    const View *view;
    const Range *range;
    Iterator *iterator;
    Loop *loop;
    const Macro *macro;
    const Function *function;
    const Undefined *undefined;
    Cycler *cycler;
    Joiner *joiner;
    const void *object; /* any of the pointers above */
  };
};

struct List {
  size_t count;
  Value *items; /* [count] */
};

typedef struct {
  Value key, value;
  uint64_t hash;
} DictEntry;

/* Entries in the order of insertion; a dict of DICT_INDEXED or more entries has a hash index. */
enum { DICT_INDEXED = 12 };
struct Dict {
  size_t count, capacity;
  DictEntry *entries; /* [capacity] */
  uint32_t *slots;    /* [n_slots] an entry's number + 1, 0: free; NULL without an index */
  size_t n_slots;     /* a power of two */
};

typedef enum { VIEW_KEYS, VIEW_VALUES, VIEW_ITEMS } ViewKind;
struct View {
  ViewKind kind;
  Dict *dict;
};

struct Range {
  int64_t start, step, stop;
  size_t count;
};

/* The result of a failed lookup, such as of `x.y`. It prints as nothing, is false, has no elements and can be
 * compared by == and !=. Attributes (`x.y.z`), arithmetic and most other uses fail with its message. */
struct Undefined {
  const char *hint;  /* the whole message, or NULL: made of owner and name */
  const char *owner; /* "dict object", or NULL: a variable */
  Value name;
};

struct Cycler {
  const List *items;
  size_t at;
};

struct Joiner {
  Text separator;
  bool called;
};

/* A position in a walk through a value's elements. */
typedef struct {
  Value source;
  size_t at; /* elements passed; of a string, bytes passed */
} Cursor;

/* A generator: makes its elements as they are asked for. */
struct Iterator {
  const char *type_name;
  Status (*next)(Render *render, Iterator *iterator, Value *out, bool *more);
  Cursor cursor; /* walks the source */
  void *state;
};

static inline Value value_none(void) {
  return (Value){.kind = VALUE_NONE};
}
static inline Value value_bool(bool boolean) {
  return (Value){.kind = VALUE_BOOL, .boolean = boolean};
}
static inline Value value_int(int64_t integer) {
  return (Value){.kind = VALUE_INT, .integer = integer};
}
static inline Value value_float(double number) {
  return (Value){.kind = VALUE_FLOAT, .number = number};
}
static inline bool value_is_integer(Value value) { /* bool is an int, as in Python */
  return value.kind == VALUE_INT || value.kind == VALUE_BOOL;
}
static inline bool value_is_number(Value value) {
  return value_is_integer(value) || value.kind == VALUE_FLOAT;
}
static inline int64_t value_integer(Value value) { /* PRECOND value_is_integer() */
  return value.kind == VALUE_BOOL ? value.boolean : value.integer;
}
static inline double value_number(Value value) { /* PRECOND value_is_number() */
  return value.kind == VALUE_FLOAT ? value.number : (double)value_integer(value);
}

const char *value_type(Value value); /* Python's name of the value's type: "str", "dict", ... */
bool value_truth(Value value);

/* Constructors. value_object() copies an object of that kind. */
Status value_object(Render *render, ValueKind kind, const void *object, size_t size, Value *out);
Status value_text(Render *render, Text text, Value *out);
Status value_list(Render *render, size_t count, Value **items,
                  Value *out); /* `count` items, which the caller fills */
Status value_copies(Render *render, const Value *items, size_t count, Value *out); /* a list of the items */
Status value_tuple2(Render *render, Value a, Value b, Value *out);
Status value_undefined(Render *render, const char *hint, Value *out);
Status value_dict(Render *render, size_t capacity, Value *out);
Status value_json(Render *render, const Json *json, bool trusted, Value *out);

/* Dicts. A key that has no hash in Python, such as a list or a dict, fails. */
Status dict_find(Render *render, const Dict *dict, Value key, const Value **found); /* NULL: not there */
Status dict_find_text(Render *render, const Dict *dict, Text key, const Value **found);
Status dict_set(Render *render, Dict *dict, Value key, Value value);

/* Comparing. */
Status value_equal(Render *render, Value a, Value b, bool *out);
Status value_contains(Render *render, Value whole, Value part, bool *out);
/* Python's `is`, but strings, and numbers of the same type, are compared by value. */
bool value_same(Value a, Value b);

/* Walking. */
bool value_is_iterable(Value value);
Status cursor_begin(Render *render, Value source, Cursor *cursor); /* fails if it is not iterable */
Status cursor_next(Render *render, Cursor *cursor, Value *out, bool *more);
bool value_length(Value value, size_t *length);          /* false: no length. Counts a string's characters */
Status value_charge_length(Render *render, Value value); /* charges for counting the length */
Value range_at(const Range *range, size_t index);
Status view_at(Render *render, const View *view, size_t index, Value *out);
/* Every element as a list: a list or a tuple is returned as it is. */
Status value_elements(Render *render, Value source, const List **list);

/* Printing: appends to the output of the rendering. */
Status put_text(Render *render, Text text);
Status put_trusted(Render *render, const char *string);
Status put_string(Render *render, Value value); /* str(value) */
Status put_repr(Render *render, Value value);   /* repr(value) */
/* put_take() removes the output since a put_mark() and returns it as a value. */
size_t put_mark(const Render *render);
Status put_take(Render *render, size_t mark, Value *out);
void float_text(double number, char text[32]); /* as Python's repr */

/* str(value) as a text. */
Status value_string(Render *render, Value value, Text *text);
