/* frames.h - steps of the open arrays and objects of machine.h. A function that returns a frame returns NULL
 * if the text cannot go on with the step, or after a failure (machine_check()). */
#pragma once

#include "constrain/machine.h"

static inline Formulas *formulas_of(const Machine *m) {
  return &m->set->formulas;
}

const Frame *frame_root(Machine *m, uint32_t schema);
/* Begins an array or object as the child of `parent`. */
const Frame *frame_open(Machine *m, const Frame *parent, FrameKind kind);
/* frame_open() without the check that the value can close (closing.h). */
const Frame *frame_inside(Machine *m, const Frame *parent, FrameKind kind);
/* Begins one more item, or a member with this key. */
const Frame *frame_next_item(Machine *m, const Frame *frame);
const Frame *frame_next_member(Machine *m, const Frame *frame, const char *key, size_t size);
/* Ends the open child. verdicts[i] says whether it satisfies frame_children()[i]. `hash` is the hash of its
 * value, used only if frame->hashing. */
const Frame *frame_child_ended(Machine *m, const Frame *frame, const bool *verdicts, uint64_t hash);
/* frame_child_ended() without the check that the frame can close. */
const Frame *frame_after_child(Machine *m, const Frame *frame, const bool *verdicts, uint64_t hash);
/* A hash of the value that ends here; 0: no rule asks for it. */
uint64_t frame_value_hash(const Frame *frame);
/* True if the value may end here; verdicts[i]: whether it satisfies frame_children(frame->up)[i]. */
bool frame_may_end(Machine *m, const Frame *frame, bool *verdicts);
/* True if frame->need can still come true when the object skips its missing keys of ranks up to `rank`. */
bool frame_may_skip(Machine *m, const Frame *frame, uint32_t rank);
/* `keys` without the keys that an object has had, up to `last`. Some may stay, as lang_without() says. */
Lang frame_keys_unseen(Machine *m, Lang keys, const Seen *last);
/* Keys that may come next; LANG_ALL: any text but keys that the object has had. */
Lang frame_next_keys(Machine *m, const Frame *frame);
/* The strings or, if kind is JSON_NUMBER, the numbers that the open child may be. */
Lang frame_child_lang(Machine *m, const Frame *frame, JsonKind kind);
/* verdicts[i]: whether frame_children()[i] takes the value `kind` (null, false or true). Returns whether the
 * open child may be that value. */
bool frame_child_scalar(Machine *m, const Frame *frame, JsonKind kind, bool *verdicts);

/* True if all keys that no keyword names are known to have the same effect. */
bool frame_keys_are_alike(const Machine *m, const Frame *frame);
/* ATOM_BIT() of all atoms of the frame's goals. */
uint32_t frame_atoms(const Machine *m, const Frame *frame);
/* A hash of everything in the frame, and in the frames above it, that decides what may follow. Frames with
 * equal hashes allow the same texts. */
uint64_t frame_print(const Machine *m, const Frame *frame);
bool frame_has_had(const Frame *frame, const char *key, size_t size);

/* A copy of the frame with room for n_goals and n_children. The caller fills in the children. It also fills
 * in the goals, unless n_goals is as before. */
Frame *frame_copy(Machine *m, const Frame *frame, uint32_t n_goals, uint32_t n_children);
/* False if what is needed has become impossible, as far as is known without a search. */
bool frame_is_possible(Machine *m, const Frame *frame);
/* The formula of what the frame still needs, over the atoms of its goals. */
Formula frame_rest(Machine *m, const Frame *frame);
/* True if null, a boolean, a string or a number may be the child. */
bool frame_child_text_is_possible(Machine *m, const Frame *frame);

#define MAX_GOALS 4096
