/* closing.h - whether an open array or object can still close to what is needed of it.
 *
 * frames.c judges the parts of a formula one by one. That is exact only if each part can be satisfied
 * independently of the others. Some rules join members or items: uniqueItems, contains, not, if, oneOf,
 * counts beside conditions, and several subschemas for one member. For these a search looks for a next
 * member or item with verdicts after which the frame can close. The search is bounded. If it ends without
 * an answer, that is CLOSE_UNSURE, and the step is allowed unless another one is known to be better. */
#pragma once

#include "constrain/machine.h"

typedef enum { CLOSE_NEVER, CLOSE_UNSURE, CLOSE_SURE } Closing;

/* Bounds the work of what follows until the next call: langs_begin_work(), and searches. */
void closing_begin_work(Machine *m);
/* True if the frame's rules join members or items, or values are hashed. */
bool closing_is_searched(Machine *m, const Frame *frame);
/* CLOSE_SURE if some text closes the frame, all of whose children have ended, such that the values around it
 * whose items may not repeat can close too. */
Closing closing_of(Machine *m, const Frame *frame);
/* The verdicts of the open child, over ATOM_GOAL of frame_children(), after which the frame can close.
 * `before` is the frame before the child began. *unsure: nothing better was found in bounded work. */
Formula closing_child_need(Machine *m, const Frame *frame, const Frame *before, bool *unsure);
/* `keys` without those with which no member may begin, as far as these are no beginnings of others. `order`
 * has the keys of the frame's schemas; they are judged too unless it is the frame's own. */
Lang closing_keys(Machine *m, const Frame *frame, const KeyOrder *order, Lang keys);
/* Texts of the open child without those after which the frame, or one around it, could not close because an
 * item repeats. PRECOND machine->text[0..n_text) is the text so far, as text_size says. */
Lang closing_texts(Machine *m, const Frame *frame, JsonKind kind, Lang texts, uint32_t text_size);
/* The same of keys of the frame, an object that may not be equal to an item before it. */
Lang closing_unrepeated_keys(Machine *m, const Frame *frame, Lang keys, uint32_t text_size);

/* Finds the subschemas that some value satisfies and sets their is_proven, also where the search ends before
 * it is known. Unless the root is without, the others, as those that need themselves without end, become
 * `false` wherever they are named. */
void closing_find_dead(Machine *m);

/* --- of closing_plain.c, for closing.c */

enum { CLOSING_FEW = 64 }; /* values of a language that are tried one by one */

/* True if what frames.c sees at once of the formula is exact: its parts can be had one by one. */
bool closing_is_plain(Machine *m, Formula formula);
/* True if the frame is seen to have values enough for it and those around it not to repeat. */
bool closing_never_runs_out(Machine *m, const Frame *frame);
/* The formula without uniqueItems. */
Formula closing_without_unique(Machine *m, Formula rest);
/* True if the language has at most CLOSING_FEW strings. */
bool closing_has_few(Machine *m, Lang texts);
/* The text of each number that has no exponent, no zeros at the end of a fraction and no sign before zero. */
Lang closing_plain_number(Machine *m);
