/* frames.h - steps of the open arrays and objects of machine.h. All return NULL where the text cannot go
 * on so. */
#pragma once

#include "constrain/machine.h"

static inline Formulas *formulas_of(const Machine *m) {
  return &m->set->formulas;
}

const Frame *frame_root(Machine *m, uint32_t schema);
/* The array or object that is the open child of `parent`. */
const Frame *frame_open(Machine *m, const Frame *parent, FrameKind kind);
/* The same before it is known whether it can close (closing.h). */
const Frame *frame_inside(Machine *m, const Frame *parent, FrameKind kind);
/* One more item begins, or a member with this key. */
const Frame *frame_next_item(Machine *m, const Frame *frame);
const Frame *frame_next_member(Machine *m, const Frame *frame, const char *key, size_t size);
/* The open child has ended; verdicts[i]: whether it satisfies frame_children()[i]. */
const Frame *frame_child_ended(Machine *m, const Frame *frame, const bool *verdicts, uint64_t hash);
/* The same before it is known whether the frame can close. */
const Frame *frame_after_child(Machine *m, const Frame *frame, const bool *verdicts, uint64_t hash);
/* A hash of the value that ends here; 0: nothing asks for it. */
uint64_t frame_value_hash(const Frame *frame);
/* True if the value may end here; verdicts[i] for the goals that are the parent's children. */
bool frame_may_end(Machine *m, const Frame *frame, bool *verdicts);
/* True if an object that leaves out the keys with ranks up to this one, where it has not had them, may still
 * become what is needed. */
bool frame_may_skip(Machine *m, const Frame *frame, uint32_t rank);
/* The keys of `keys` that the object has not had. */
Lang frame_keys_unseen(Machine *m, Lang keys, const Seen *last);
/* Keys that may come next; LANG_ALL: any text but those that were. */
Lang frame_next_keys(Machine *m, const Frame *frame);
/* Strings (numbers) that the open child may be. */
Lang frame_child_lang(Machine *m, const Frame *frame, JsonKind kind);
/* The verdicts of null, false or true; false if it is refused. */
bool frame_child_scalar(Machine *m, const Frame *frame, JsonKind kind, bool *verdicts);

/* True if all keys that no keyword names have the same effect. */
bool frame_keys_are_alike(const Machine *m, const Frame *frame);
/* ATOM_BIT() of all atoms of the frame's goals. */
uint32_t frame_atoms(const Machine *m, const Frame *frame);
/* A hash of all that the frame and those above it may still be asked: frames with equal ones allow the same
 * texts. */
uint64_t frame_print(const Machine *m, const Frame *frame);
bool frame_has_had(const Frame *frame, const char *key, size_t size);

/* A copy of the frame with room for n_children; its goals and children are to be filled in, where they are
 * not as many as before. */
Frame *frame_copy(Machine *m, const Frame *frame, uint32_t n_goals, uint32_t n_children);
/* False if what is needed has become impossible, as far as is seen at once. */
bool frame_is_possible(Machine *m, const Frame *frame);
/* The formula of what is needed, over the atoms of the goals. */
Formula frame_rest(Machine *m, const Frame *frame);
/* True if null, a boolean, a string or a number may be the child. */
bool frame_child_text_is_possible(Machine *m, const Frame *frame);

#define MAX_GOALS 4096
