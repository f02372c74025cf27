/* lang.h - regular languages of byte strings, as hash-consed expressions with derivatives.
 *
 * A Lang is the number of an expression in a Langs store. Equal expressions have equal numbers. A Lang is
 * therefore also the state of a lazily built automaton: lang_next() is its transition by a byte. Union,
 * intersection and complement are operators like any other. Text patterns are languages of UTF-8 bytes
 * (lang_any_text()).
 *
 * Failures (no memory, or a limit that is passed) are kept in the store; langs_check() reports the first one.
 * After a failure the results of functions mean nothing. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "constrain/store/key_table.h"
#include "tokenizer/regex/charset.h"

typedef uint32_t Lang;
enum { LANG_NONE = 0, LANG_EMPTY = 1, LANG_ALL = 2 }; /* no string; the empty string; all byte strings */
#define LANG_NO_END  UINT32_MAX
#define LANG_UNKNOWN UINT32_MAX

typedef struct {
  uint64_t bits[4];
} ByteSet;

/* Classes of bytes: each ByteSet of the store contains all bytes of a class or none (byte_classes.h). */
typedef struct {
  uint32_t n;
  uint8_t of[256];     /* class of a byte */
  uint8_t first[256];  /* [n] the lowest byte of a class */
  uint8_t parent[256]; /* [n] the class that class i was divided from */
  uint16_t size[256];  /* [n] number of bytes in a class */
} ByteClasses;

typedef struct LangNode LangNode;

typedef struct {
  LangNode *nodes; /* [count] */
  size_t count, capacity;
  KeyTable by_content; /* finds expressions */
  uint32_t *lists;     /* [lists_count] parts of unions and intersections */
  size_t lists_count, lists_capacity;
  ByteSet *sets; /* [sets_count] */
  size_t sets_count, sets_capacity;
  KeyTable sets_by_content;
  KeyTable charsets;        /* sets whose languages lang_charset() made, by a hash */
  Arena charset_ranges;     /* their memory */
  struct Divisor *divisors; /* [divisors_count] of the MULTIPLE expressions, multiple.c */
  size_t divisors_count, divisors_capacity;
  ByteClasses classes;
  Lang *stack; /* [n_stack] expressions of unfinished lists. regular_expression.c also pushes indices of tree
                * nodes, schema_meaning.c formulas */
  size_t n_stack, stack_capacity;
  Arena rows;          /* memory of the transitions, LangNode.next */
  size_t steps;        /* transitions computed since langs_begin_work() */
  uint32_t round;      /* number of the last search for a string: LangNode.round of the expressions it met */
  uint32_t derivation; /* number of the last derivation by a byte (LangNode.derivation) */
  uint32_t collection; /* number of the last union of derivatives (LangNode.collection) */
  Lang any_character, any_text;
  uint8_t ending[32]; /* [ending_size] the shortest string that lang_ends_within() found last; size 0: none */
  size_t ending_size;
  Failure failure;
  bool unsupported; /* what was refused last is valid, but cannot be enforced exactly */
} Langs;

Status langs_open(Langs *langs, Error *err);
void langs_close(Langs *langs);
/* The first failure so far. */
Status langs_check(const Langs *langs, Error *err);
/* Records a failure of `langs` unless there was one before. */
void langs_fail(Langs *langs, Status status, const char *message);

Lang lang_byte(Langs *langs, unsigned char byte);
Lang lang_bytes(Langs *langs, unsigned char first, unsigned char last);
/* Code points first..last as UTF-8; surrogates are left out. */
Lang lang_characters(Langs *langs, uint32_t first, uint32_t last);
/* The characters of a tidy set: a union of some hundred ranges for \p{L}, which is made once. */
Lang lang_charset(Langs *langs, const CharSet *set);
Lang lang_literal(Langs *langs, const void *bytes, size_t size);
Lang lang_then(Langs *langs, Lang a, Lang b);
Lang lang_or(Langs *langs, Lang a, Lang b);
Lang lang_or_all(Langs *langs, const Lang *parts, size_t n);
Lang lang_and_all(Langs *langs, const Lang *parts, size_t n);
/* lang_or_all() for possibly many parts, as a prefix tree: parts share their common beginnings. */
Lang lang_or_many(Langs *langs, const Lang *parts, size_t n);
/* The concatenation of the expressions on langs->stack from `start`; takes them off the stack. */
Lang lang_sequence(Langs *langs, size_t start);
Lang lang_and(Langs *langs, Lang a, Lang b);
Lang lang_not(Langs *langs, Lang a);
/* Concatenations of min to max strings of `a`; max LANG_NO_END: no limit. */
Lang lang_repeat(Langs *langs, Lang a, uint32_t min, uint32_t max);
static inline Lang lang_maybe(Langs *langs, Lang a) {
  return lang_repeat(langs, a, 0, 1);
}
/* lang_any_character(): one character in UTF-8; lang_any_text(): any number of them. */
Lang lang_any_character(Langs *langs);
Lang lang_any_text(Langs *langs);
/* The strings of `a` that are valid UTF-8. */
Lang lang_text(Langs *langs, Lang a);
/* Declares that all strings of `a` are valid UTF-8: lang_text() then returns `a` itself. */
Lang lang_declare_text(Langs *langs, Lang a);
/* Declares that `a` has the texts of one value. Two such languages are then taken to be equal or disjoint. */
Lang lang_declare_single(Langs *langs, Lang a);
bool lang_is_single(const Langs *langs, Lang a);
/* lang_words() is the union of words, each followed by its rest, as a prefix tree. It reorders words[].
 * PRECOND all words and rests are text */
typedef struct {
  const char *bytes; /* [size] */
  size_t size;
  Lang rest; /* LANG_EMPTY: the word alone */
} LangWord;
Lang lang_words(Langs *langs, LangWord *words, size_t n);

/* Texts of decimal numbers that are multiples of divisor / 10^scale, and some texts that are no numbers, such
 * as the empty one. Callers intersect it with the grammar of numbers. PRECOND 0 < divisor < 2^31,
 * scale <= LANG_MAX_SCALE */
#define LANG_MAX_SCALE 60
Lang lang_multiple(Langs *langs, uint32_t divisor, unsigned scale);

/* Bounds the work until this function is called again: over LANG_MAX_STEPS transitions or MAX_WORK units are
 * a failure. */
#define LANG_MAX_STEPS 800000
static inline void langs_begin_work(Langs *langs) {
  langs->steps = 0;
  failure_begin_work(&langs->failure);
}
static inline bool langs_work(Langs *langs, size_t units) {
  return failure_work(&langs->failure, units);
}
/* Forgets transitions if they take much memory; lang_next() computes them anew. */
void langs_tidy(Langs *langs);
/* Pushes on langs->stack; false on failure. Callers restore langs->n_stack. */
static inline bool lang_push(Langs *langs, Lang a) {
  if (langs->n_stack == langs->stack_capacity &&
      !failure_grow(&langs->failure, &langs->stack, &langs->stack_capacity, langs->n_stack + 1,
                    sizeof *langs->stack))
    return false;
  langs->stack[langs->n_stack++] = a;
  return true;
}
/* The expressions pushed since n_stack was `start`, joined by lang_or_all(), lang_or_many() or
 * lang_and_all(). Takes them off the stack. */
static inline Lang lang_join_pushed(Langs *langs, size_t start, Lang (*join)(Langs *, const Lang *, size_t)) {
  const size_t n = langs->n_stack - start;
  const Lang made = join(langs, n > 0 ? langs->stack + start : NULL, n);
  langs->n_stack = start;
  return made;
}

bool lang_has_empty(const Langs *langs, Lang a);
/* True for LANG_ALL, and for languages made without intersections, complements and lang_multiple(). */
bool lang_is_plain(const Langs *langs, Lang a);
/* The derivative by a byte: the rests of the strings of `a` that begin with `byte`. */
Lang lang_next(Langs *langs, Lang a, unsigned char byte);
/* Classes of characters above U+007F by their first byte. Each first byte of white space or a line end has a
 * class; all others are WIDE_OTHER. */
typedef enum { WIDE_OTHER, WIDE_C2, WIDE_E1, WIDE_E2, WIDE_E3, WIDE_EF, N_WIDE } WideClass;
/* The derivative by a character of the class. LANG_UNKNOWN if it differs between characters, or if the
 * expression does not show that it is the same. */
Lang lang_next_class(Langs *langs, Lang a, WideClass class);
/* True if `a` has a string. A search that meets its limit fails (langs_check()). But it may return true
 * instead if `a` has a part from lang_multiple() or a limit on characters (lang_without_max()). */
bool lang_is_alive(Langs *langs, Lang a);
bool lang_contains(Langs *langs, Lang a, const void *bytes, size_t size);
/* True if every text is the beginning of a string of `a`; false where the expression does not show that. */
bool lang_takes_any_beginning(const Langs *langs, Lang a);
/* True if each beginning of a string of `a` begins infinitely many strings. False if the expression does not
 * show that. */
bool lang_is_endless(const Langs *langs, Lang a);
/* `a` without the string bytes[0..size). Endless parts (lang_is_endless()) stay as they are, and so does an
 * endless `a`. The result can then still have the string, and the caller has to refuse it. */
Lang lang_without(Langs *langs, Lang a, const char *bytes, size_t size);
/* The number of characters of the shortest string of `a`; continuation bytes of UTF-8 do not count.
 * LANG_UNKNOWN where the search meets its limit. PRECOND `a` has a string */
uint32_t lang_shortest(Langs *langs, Lang a);
/* Writes a string of lang_shortest() characters to out[0..*size); false if it has over `capacity` bytes, or
 * the search meets its limit. PRECOND `a` has a string */
bool lang_example(Langs *langs, Lang a, char *out, size_t capacity, size_t *size);
/* True if `a` has a string of at most `left` characters (LANG_NO_END: of any length). Also true if
 * `a` has a string but lang_shortest() returns LANG_UNKNOWN. langs->ending is tried before a search. */
bool lang_ends_within(Langs *langs, Lang a, uint32_t left);
/* `a` without limits of LANG_RELAXED or more on repetitions of text. The language is larger and its automaton
 * smaller; strings of up to LANG_RELAXED characters are the same. Complements stay as they are, and so do
 * parts that are too deep or have too many parts themselves. */
#define LANG_RELAXED 48
Lang lang_relaxed(Langs *langs, Lang a);
/* Splits `a` into a language, which is returned, and a limit: the strings of `a` are those of the language
 * with at most *max characters. LANG_NO_END: the expression shows no such limit. */
Lang lang_without_max(Langs *langs, Lang a, uint32_t *max);
