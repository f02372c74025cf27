/* kept_states.c - see kept_states.h. Called by: session.c, batch.c, batch_memory.c, prefix_store.c. */
#include "engine/kept_states.h"

unsigned long long recurrent_state_bytes(const Backend *backend, const ModelConfig *config) {
  unsigned long long bytes = 0;
  for (int i = 0; backend->recurrent_bytes && i < config->n_layers; i++)
    bytes += backend->recurrent_bytes(config, i);
  return bytes;
}

int kept_states_slots(unsigned long long bytes) {
  if (bytes == 0) return 0;
  const unsigned long long n = KEPT_STATES_BYTES / bytes;
  return n < MIN_KEPT_STATES ? MIN_KEPT_STATES : n > MAX_KEPT_STATES ? MAX_KEPT_STATES : (int)n;
}

int kept_states_find(const KeptStates *kept, int n) {
  int best = -1;
  for (int slot = 0; slot < kept->n_slots; slot++)
    if (kept->pos[slot] > 0 && kept->pos[slot] <= n && (best < 0 || kept->pos[slot] > kept->pos[best]))
      best = slot;
  return best;
}

/* The cost of losing a slot's state: the tokens from the state before it (or 0) to the next one (or `end`),
 * divided by 1 + (end - pos). Later states are worth more: texts return to them more often. For a state with
 * `turn` the cost is eightfold. */
static double worth(const KeptStates *kept, int slot, int end) {
  const int pos = kept->pos[slot], before = kept_states_find(kept, pos - 1);
  int next = end;
  for (int other = 0; other < kept->n_slots; other++)
    if (kept->pos[other] > pos && kept->pos[other] < next) next = kept->pos[other];
  const double cost = (double)(next - (before < 0 ? 0 : kept->pos[before])) / (end - pos + 1);
  return kept->turn[slot] ? 8 * cost : cost;
}

/* A free slot, or the slot whose state is worth least; the last state with `turn` stays. */
static int free_slot(const KeptStates *kept, int end) {
  int last_turn = -1, best = -1;
  for (int slot = 0; slot < kept->n_slots; slot++) {
    if (kept->pos[slot] == 0) return slot;
    if (kept->turn[slot] && (last_turn < 0 || kept->pos[slot] > kept->pos[last_turn])) last_turn = slot;
  }
  for (int slot = 0; slot < kept->n_slots; slot++)
    if (slot != last_turn && (best < 0 || worth(kept, slot, end) < worth(kept, best, end))) best = slot;
  return best;
}

int kept_states_add(KeptStates *kept, int pos, bool turn) {
  int slot = kept_states_find(kept, pos);
  if (slot >= 0 && kept->pos[slot] == pos) {
    kept->turn[slot] |= turn;
    return -1;
  }
  slot = free_slot(kept, pos);
  kept->pos[slot] = pos;
  kept->turn[slot] = turn;
  return slot;
}

void kept_states_cut(KeptStates *kept, int n) {
  for (int slot = 0; slot < kept->n_slots; slot++)
    if (kept->pos[slot] > n) kept->pos[slot] = 0;
}
