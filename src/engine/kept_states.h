/* kept_states.h - which recurrent states of a text a session keeps. A text that is cut or changed is then
 * computed again only from the last kept state before the change.
 *
 * A recurrent state exists for one position only, and is too large to be kept for each. States stay dense at
 * the end of the text and sparse before. States at ends of prompts stay longer than others: chats return
 * there. */
#pragma once

#include "engine/backend.h"

enum {
  MAX_KEPT_STATES = 16,
  KEPT_STATES_BYTES = 1 << 30, /* memory for kept states, if that is enough for MIN_KEPT_STATES */
  MIN_KEPT_STATES = 2,
  KEPT_STATES_STEP = 64, /* tokens after which another state is worth keeping */
};

typedef struct {
  int n_slots;                /* 0: the model has no recurrent state */
  int pos[MAX_KEPT_STATES];   /* tokens that the state in a slot has seen; 0: the slot is free */
  bool turn[MAX_KEPT_STATES]; /* kept longer: texts often go on there (session.h), or it was restored */
} KeptStates;

/* Bytes of a text's recurrent state, of all layers; 0: the model has none. */
unsigned long long recurrent_state_bytes(const Backend *backend, const ModelConfig *config);

/* The number of slots for states of `bytes` each. */
int kept_states_slots(unsigned long long bytes);

/* The slot of the kept state that has seen the most tokens, up to n; -1: there is no such state. */
int kept_states_find(const KeptStates *kept, int n);

/* Makes room for the state after pos > 0 tokens and returns its slot, or -1 if it is kept already. PRECOND no
 * state after more than pos tokens is kept */
int kept_states_add(KeptStates *kept, int pos, bool turn);

/* Frees the slots of states after more than n tokens. */
void kept_states_cut(KeptStates *kept, int n);
