/* step_cost.h - the bytes a step must read and the flops it must compute on any device: a roofline. */
#pragma once

#include "engine/backend.h"

typedef struct {
  /* Read once each: the layers as stored, but only as many experts as the rows choose on average; keys and
   * values, or a recurrent state; lm_head; rows of the embedding. */
  double bytes;
  double flop; /* of matmuls, attention and recurrences; a multiplication and an addition are two */
} StepCost;

/* The cost of a step of n_rows tokens after n_past others, with the logits of the last n_logit_rows rows (0:
 * no lm_head). With program_has_cut() only these rows are computed after the last layer's attention. The keys
 * and values that count are those to which the first row attends (sliding windows). */
StepCost step_cost(const Model *model, KvType kv, int n_past, int n_rows, int n_logit_rows);

/* Bytes of weights that a step of one token reads in the host's memory: the chosen experts of the last
 * host_experts layers, and all other matrices of the last host_layers layers. Matrices whose
 * layer_device_matrix() is MATRIX_ON_DEVICE or above stay on the GPU and are not counted. */
double step_host_bytes(const Model *model, int host_experts, int host_layers);

/* Bytes that n tokens take in the KV cache, in all layers together. */
double kv_cache_bytes(const ModelConfig *config, KvType kv, int n);
