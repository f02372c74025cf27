/* formula.h - boolean formulas over what is not yet known of a JSON value; hash-consed.
 *
 * A Formula is the number of a node in a Formulas store. An atom is a statement with up to two numbers. Its
 * meaning is known to the callers that replace it (formula_map). Failures are kept in the store, as in
 * lang.h: formulas then are FORMULA_FALSE, and formulas_check() reports. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "constrain/store/key_table.h"

typedef uint32_t Formula;
enum { FORMULA_FALSE, FORMULA_TRUE };

typedef enum {
  ATOM_CHILD,     /* the member or item that is being read satisfies schema a */
  ATOM_GOAL,      /* the open value will satisfy its a-th goal, a schema that judges it */
  ATOM_SAME,      /* the open value itself satisfies schema a */
  ATOM_HAS_KEY,   /* a key with the number `a` is still to come */
  ATOM_MIN_COUNT, /* there will be at least `a` members or items */
  ATOM_MAX_COUNT, /* there will be at most `a` members or items */
  ATOM_MEMBERS,   /* further members fit properties, patternProperties and additionalProperties of schema a */
  ATOM_NAMES,     /* further keys fit propertyNames of schema a */
  ATOM_OPEN_MEMBERS, /* further members fit unevaluatedProperties of schema a */
  ATOM_ITEMS,        /* further items fit prefixItems and items of schema a */
  ATOM_CONTAINS,     /* as many items as schema a wants will fit its `contains`; b items fit so far */
  ATOM_OPEN_ITEMS,   /* further items fit unevaluatedItems of schema a */
  ATOM_UNIQUE,       /* items differ from one another */
} AtomKind;
#define ATOM_BIT(kind) (1u << (kind))
#define COUNT_ATOMS    (ATOM_BIT(ATOM_MIN_COUNT) | ATOM_BIT(ATOM_MAX_COUNT))

typedef enum {
  FORMULA_CONSTANT,
  FORMULA_ATOM,
  FORMULA_NOT,
  FORMULA_AND,
  FORMULA_OR,
  FORMULA_ONE
} FormulaKind;

typedef struct {
  uint8_t kind;   /* FormulaKind */
  uint8_t atom;   /* AtomKind */
  uint8_t mark;   /* free for callers, 0 in a new node (closing_plain.c) */
  uint32_t atoms; /* ATOM_BIT() of all atoms below */
  uint32_t a, b;  /* ATOM: its numbers; NOT: a is the part; AND, OR, ONE: a is the index of a list in `lists`,
                   * b its length */
  uint32_t round; /* number of the last formula_map() that met the node; `mapped` was the result */
  Formula mapped;
} FormulaNode;

typedef struct {
  FormulaNode *nodes; /* [count] */
  size_t count, capacity;
  KeyTable by_content; /* finds nodes */
  Formula *lists;      /* [lists_count] */
  size_t lists_count, lists_capacity;
  uint32_t round;
  Failure failure;
} Formulas;

Status formulas_open(Formulas *formulas, Error *err);
void formulas_close(Formulas *formulas);
Status formulas_check(const Formulas *formulas, Error *err);

Formula formula_atom(Formulas *formulas, AtomKind kind, uint32_t a, uint32_t b);
Formula formula_not(Formulas *formulas, Formula a);
Formula formula_and(Formulas *formulas, Formula a, Formula b);
Formula formula_or(Formulas *formulas, Formula a, Formula b);
/* Exactly one of the parts is true. */
Formula formula_one(Formulas *formulas, const Formula *parts, size_t n);
/* AND or OR of n parts. */
Formula formula_join(Formulas *formulas, FormulaKind kind, const Formula *parts, size_t n);

/* The formula with each atom whose kind has a bit in `atoms` replaced by the result of `replace`. */
typedef Formula (*AtomReplace)(void *user, const FormulaNode *atom, Formula itself);
Formula formula_map(Formulas *formulas, Formula formula, uint32_t atoms, AtomReplace replace, void *user);
