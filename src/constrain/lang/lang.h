/* lang.h - regular languages of byte strings, as hash-consed expressions with derivatives.
 *
 * A Lang is the number of an expression in a Langs store; equal expressions have equal numbers, so that a
 * Lang is also the state of a lazily built automaton: lang_next() is its transition by a byte. Union,
 * intersection and complement are operators like any other. Text patterns are languages of UTF-8 bytes
 * (lang_any_text()).
 *
 * Failures (memory, the limit on expressions) are kept in the store: functions then return LANG_NONE, and
 * langs_check() reports the first failure. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "constrain/store/failure.h"
#include "constrain/store/number_table.h"
#include "constrain/store/pool.h"

typedef uint32_t Lang;
enum { LANG_NONE = 0, LANG_EMPTY = 1, LANG_ALL = 2 }; /* no string; the empty string; all byte strings */
#define LANG_NO_END  UINT32_MAX
#define LANG_UNKNOWN UINT32_MAX

typedef struct {
  uint64_t bits[4];
} ByteSet;

/* Classes of bytes: each set of the store has all or none of a class (byte_classes.h). */
typedef struct {
  uint32_t n;
  uint8_t of[256];     /* class of a byte */
  uint8_t first[256];  /* [n] the lowest byte of a class */
  uint8_t parent[256]; /* [n] the class that it was divided from */
  uint16_t size[256];  /* [n] bytes of a class */
} ByteClasses;

typedef struct LangNode LangNode;

typedef struct {
  LangNode *nodes; /* [count] */
  size_t count, capacity;
  NumberTable by_content; /* of expressions */
  uint32_t *lists;        /* [lists_count] parts of unions and intersections */
  size_t lists_count, lists_capacity;
  ByteSet *sets; /* [sets_count] */
  size_t sets_count, sets_capacity;
  NumberTable sets_by_content;
  struct Divisor *divisors; /* [divisors_count] of multiples, multiple.c */
  size_t divisors_count, divisors_capacity;
  ByteClasses classes;
  Lang *stack; /* [n_stack] expressions that are put aside for a moment */
  size_t n_stack, stack_capacity;
  Pool rows;           /* of transitions */
  size_t steps;        /* transitions computed since langs_begin_work() */
  uint32_t round;      /* of searches for a string, which mark expressions with it */
  uint32_t derivation; /* of a byte, which marks the expressions that it derives */
  uint32_t collection; /* of alternatives of a derivative */
  Lang any_character, any_text;
  uint8_t ending[32]; /* [ending_size] the string that lang_ends_within() found last */
  uint32_t ending_size;
  Failure failure;
  bool unsupported; /* what was refused last is valid, but cannot be held to exactly */
} Langs;

Status langs_open(Langs *langs, Error *err);
void langs_close(Langs *langs);
/* The first failure so far. */
Status langs_check(const Langs *langs, Error *err);
/* Records a failure of `langs` unless there was one. */
void langs_fail(Langs *langs, Status status, const char *message);

Lang lang_byte(Langs *langs, unsigned char byte);
Lang lang_bytes(Langs *langs, unsigned char first, unsigned char last);
/* Code points first..last as UTF-8; surrogates are left out. */
Lang lang_characters(Langs *langs, uint32_t first, uint32_t last);
Lang lang_literal(Langs *langs, const void *bytes, size_t size);
Lang lang_then(Langs *langs, Lang a, Lang b);
Lang lang_or(Langs *langs, Lang a, Lang b);
Lang lang_or_all(Langs *langs, const Lang *parts, size_t n);
Lang lang_and_all(Langs *langs, const Lang *parts, size_t n);
/* The same as lang_or_all() where there may be many parts: those with the same beginning share it, as in a
 * tree. */
Lang lang_or_many(Langs *langs, const Lang *parts, size_t n);
/* The expressions on langs->stack from `start`, one after another; takes them off. */
Lang lang_sequence(Langs *langs, size_t start);
Lang lang_and(Langs *langs, Lang a, Lang b);
Lang lang_not(Langs *langs, Lang a);
/* From min to max (LANG_NO_END: any number) strings of `a`. */
Lang lang_repeat(Langs *langs, Lang a, uint32_t min, uint32_t max);
static inline Lang lang_maybe(Langs *langs, Lang a) {
  return lang_repeat(langs, a, 0, 1);
}
/* One character, and any number of them: valid UTF-8. */
Lang lang_any_character(Langs *langs);
Lang lang_any_text(Langs *langs);
/* `a` without what is no valid UTF-8. */
Lang lang_text(Langs *langs, Lang a);
/* Declares that all strings of `a` are valid UTF-8, which lang_text() uses. */
Lang lang_declare_text(Langs *langs, Lang a);
/* Declares that `a` has the texts of one value, so that two such languages are equal or have no text in
 * common. */
Lang lang_declare_single(Langs *langs, Lang a);
bool lang_is_single(const Langs *langs, Lang a);
/* The strings that begin with a word and go on with its rest, as a tree by their first bytes. Reorders the
 * array. PRECOND the words and their rests are text */
typedef struct {
  const char *bytes; /* [size] */
  size_t size;
  Lang rest; /* LANG_EMPTY: the word alone */
} LangWord;
Lang lang_words(Langs *langs, LangWord *words, size_t n);

/* Texts whose digits are a decimal number that is a multiple of divisor / 10^scale; to be intersected with
 * the grammar of numbers. PRECOND 0 < divisor < 2^31, scale <= LANG_MAX_SCALE */
#define LANG_MAX_SCALE 60
Lang lang_multiple(Langs *langs, uint32_t divisor, unsigned scale);

/* Bounds the time of what follows until the next call: over LANG_MAX_STEPS transitions, or MAX_WORK, fail. */
#define LANG_MAX_STEPS 800000
static inline void langs_begin_work(Langs *langs) {
  langs->steps = 0;
  failure_begin_work(&langs->failure);
}
/* failure_work() of the store. */
static inline bool langs_work(Langs *langs, size_t units) {
  return failure_work(&langs->failure, units);
}
/* Forgets transitions if they take much memory; they are found anew. */
void langs_tidy(Langs *langs);
/* Pushes on langs->stack; false on failure. Callers put langs->n_stack back to what it was. */
static inline bool lang_push(Langs *langs, Lang a) {
  if (langs->n_stack == langs->stack_capacity &&
      !failure_grow(&langs->failure, &langs->stack, &langs->stack_capacity, langs->n_stack + 1,
                    sizeof *langs->stack))
    return false;
  langs->stack[langs->n_stack++] = a;
  return true;
}
/* The strings of any that was pushed since n_stack was `start`, by lang_or_all() or lang_or_many(); takes
 * them off the stack. None may have been pushed, not even the first of all: there is no stack before it. */
static inline Lang lang_or_pushed(Langs *langs, size_t start, Lang (*join)(Langs *, const Lang *, size_t)) {
  const size_t n = langs->n_stack - start;
  const Lang made = n > 0 ? join(langs, langs->stack + start, n) : LANG_NONE;
  langs->n_stack = start;
  return made;
}

bool lang_has_empty(const Langs *langs, Lang a);
/* True if `a` is made without intersections and complements, or LANG_ALL. */
bool lang_is_plain(const Langs *langs, Lang a);
/* The rests of the strings of `a` that begin with `byte`. */
Lang lang_next(Langs *langs, Lang a, unsigned char byte);
/* Characters above U+007F by their first byte. White space and line ends have classes of their own. */
typedef enum { WIDE_OTHER, WIDE_C2, WIDE_E1, WIDE_E2, WIDE_E3, WIDE_EF, N_WIDE } WideClass;
/* The rests of the strings of `a` that begin with a character of the class, which are the same for each;
 * LANG_UNKNOWN if they are not, or it is not seen from how `a` is written. */
Lang lang_next_class(Langs *langs, Lang a, WideClass class);
/* True if `a` has a string. Within the limit on expressions exact; over it langs_check() fails. */
bool lang_is_alive(Langs *langs, Lang a);
bool lang_contains(Langs *langs, Lang a, const void *bytes, size_t size);
/* True if every text is the beginning of a string of `a`; false where that is not seen from how it is
 * written. */
bool lang_takes_any_beginning(const Langs *langs, Lang a);
/* True if each beginning of a string of `a` is one of infinitely many, as far as is seen from how it is
 * written. */
bool lang_is_endless(const Langs *langs, Lang a);
/* `a` without a string. Where every beginning has strings without end, `a` itself: to be refused by the
 * caller. */
Lang lang_without(Langs *langs, Lang a, const char *bytes, size_t size);
/* The number of characters of the shortest string of `a`, which has one; bytes inside a character count
 * nothing. 0 where the search has a limit's length: then it may be more. */
uint32_t lang_shortest(Langs *langs, Lang a);
/* True if `a` has a string of at most `left` characters (LANG_NO_END: any string), as lang_is_alive() and
 * lang_shortest() find: the end of another string is tried before a search. */
bool lang_ends_within(Langs *langs, Lang a, uint32_t left);
/* `a` with repetitions of at least LANG_RELAXED times at most made endless: a larger language with the same
 * strings of up to LANG_RELAXED characters, whose automaton is smaller. */
#define LANG_RELAXED 48
Lang lang_relaxed(Langs *langs, Lang a);
/* `a` as an intersection with the strings of at most *max characters (LANG_NO_END: of any number) and the
 * language returned, as far as `a` is written so. */
Lang lang_without_max(Langs *langs, Lang a, uint32_t *max);
