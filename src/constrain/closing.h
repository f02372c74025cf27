/* closing.h - whether an open array or object can still close and satisfy its schemas.
 *
 * frames.c judges the parts of a formula one by one. That is exact only if each part can be satisfied
 * independently of the others. Some rules make members or items depend on one another: uniqueItems, contains,
 * propertyNames, unevaluatedProperties, unevaluatedItems, not, if, oneOf, counts together with conditions,
 * and several subschemas for one member. For these a bounded search looks for a next member or item. It wants
 * verdicts (which subschemas the value satisfies) after which the array or object can close. A search that
 * ends without an answer is CLOSE_UNSURE. The step is then allowed unless another step is known to be
 * better. */
#pragma once

#include "constrain/machine.h"

typedef enum { CLOSE_NEVER, CLOSE_UNSURE, CLOSE_SURE } Closing;

/* Bounds the work until the next call: the work of languages, formulas and searches. */
void closing_begin_work(Machine *m);
/* True if the frame's rules make its members or items depend on one another. Also true if values are hashed
 * (uniqueItems) and the frame may run out of different values. */
bool closing_is_searched(Machine *m, const Frame *frame);
/* CLOSE_SURE if some text closes the frame. In a uniqueItems array the text must also close the values around
 * the frame, up to that array. PRECOND all children of the frame have ended */
Closing closing_of(Machine *m, const Frame *frame);
/* The verdicts of the open child after which the frame can close: a formula over ATOM_GOAL, whose number i
 * stands for "the child satisfies frame_children()[i]". It allows verdicts that no search has reached. With
 * *unsure or m->is_judging it also allows those that a search left without an answer. `before` is the frame
 * before the child began. *unsure: no verdicts were found to be CLOSE_SURE. */
Formula closing_child_need(Machine *m, const Frame *frame, const Frame *before, bool *unsure);
/* `keys` without those whose members would keep the frame from ever closing. An unwanted key may stay if
 * `keys` is lang_is_endless(), or has too many keys to judge: it is refused where it ends. `order` lists the
 * keys in `properties` of the frame's schemas (key_order_of()). These are judged one by one; if frame->order
 * is set, key_order_next() judges them instead. */
Lang closing_keys(Machine *m, const Frame *frame, const KeyOrder *order, Lang keys);
/* `texts` of the open child without the dead ends: texts after which the frame, or one around it, could not
 * close because an item repeats. If `texts` is lang_is_endless(), all stay. PRECOND
 * machine->text[0..text_size) is the text so far. */
Lang closing_texts(Machine *m, const Frame *frame, JsonKind kind, Lang texts, uint32_t text_size);
/* closing_texts() for the keys of an object that must not be equal to an earlier item. */
Lang closing_unrepeated_keys(Machine *m, const Frame *frame, Lang keys, uint32_t text_size);

/* Sets is_proven of the subschemas that some value satisfies, or for which the search has no answer. No value
 * satisfies the others: each may have to contain another value of the same schema, for example. If the root
 * is proven, the others become `false` as schemas of members, keys and items. */
void closing_find_dead(Machine *m);

/* --- of closing_plain.c, for closing.c */

enum { CLOSING_FEW = 64 }; /* a language of up to this many strings is tried string by string */

/* True if frames.c judges the formula exactly: its parts can be satisfied independently of one another. */
bool closing_is_plain(Machine *m, Formula formula);
/* True if the frame is known to have very many possible values: neither it nor a frame around it need repeat
 * a value. */
bool closing_never_runs_out(Machine *m, const Frame *frame);
/* The formula without uniqueItems. */
Formula closing_without_unique(Machine *m, Formula rest);
/* True if the language is known to have at most CLOSING_FEW strings. */
bool closing_has_few(Machine *m, Lang texts);
/* The language with one text for each number: without an exponent, without zeros at the end of a fraction,
 * without a sign before zero. */
Lang closing_plain_number(Machine *m);
