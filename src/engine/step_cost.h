/* step_cost.h - what a step must read and compute, whatever it runs on: the wall that its time is held
 * against.
 *
 * Called by: commands/measure/bench_wall.c. */
#ifndef AUK_ENGINE_STEP_COST_H
#define AUK_ENGINE_STEP_COST_H

#include "engine/backend.h"

typedef struct {
  double bytes; /* each read once: layers as stored, keys and values, the head, rows of the embedding */
  double flop;  /* of matrix products and attention, a multiplication and an addition being two */
} StepCost;

/* Of n_rows tokens behind n_past others, with the logits of the last n_logit_rows (0: the head is not read).
 * Keys and values are those of the n_past that some row still sees (sliding windows); those of the rows
 * themselves are made in the step. */
StepCost step_cost(const Model *model, KvType kv, int n_past, int n_rows, int n_logit_rows);

/* What n tokens take in the KV cache, all layers. */
double kv_cache_bytes(const ModelConfig *config, KvType kv, int n);

#endif
