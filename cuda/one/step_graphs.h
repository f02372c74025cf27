/* step_graphs.h - steps of a session as CUDA graphs, found by a key of all that decides their launches.
 *
 * Always true: a graph is launched only for a step with the same kernels and arguments. Position and ids are
 * no arguments: they lie in device memory. */
#pragma once

#include <cuda_runtime_api.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"

/* Most graphs of a StepGraphs; the least recently used one is dropped first. */
enum { STEP_GRAPHS = 8 };

/* Steps with the same key have the same launches. */
typedef struct {
  int n_tokens, n_logit_rows;
  bool long_rope;
  bool taps;        /* the step keeps hidden states (TokenRange.taps) */
  bool only_logits; /* TokenRange.only_logits */
  bool selects;     /* index_selects(): attention is to chosen positions (layers/index.h) */
  /* How attention is divided, which depends on positions. One sequence: a hash over all layers, 0 for one
   * token. Several sequences: the number of units. 0 with `selects`. */
  uint64_t attention;
  const void *workspace; /* of the matmuls; opening another session can move it */
} StepKey;

typedef struct {
  StepKey key;
  uint64_t last_step; /* number of the last step that used the graph; 0: unused */
  int n_uses;
  cudaGraphExec_t graph; /* NULL: the key was seen, but not captured yet */
} StepGraph;

typedef struct {
  StepGraph kept[STEP_GRAPHS];
  StepGraph *capturing; /* the one that is being captured, or NULL */
  uint64_t n_steps;
} StepGraphs;

/* Launches the key's graph and sets *replayed. If there is no graph yet, may begin to capture it: a step of
 * one token at once, a larger step when its key comes for the n_uses-th time. A graph that is seldom used
 * costs more than it saves. */
Status step_graphs_begin(StepGraphs *graphs, const StepKey *key, int n_uses, cudaStream_t stream,
                         bool *replayed, Error *err);

/* Ends what step_graphs_begin() began: launches the captured step, unless `so_far` is a failure. */
Status step_graphs_end(StepGraphs *graphs, Status so_far, cudaStream_t stream, Error *err);

void step_graphs_close(StepGraphs *graphs);
