/* step_graphs.c - see step_graphs.h. */
#include "cuda/one/step_graphs.h"

#include "cuda/kernels/ptx/device.h"

static bool same_key(const StepKey *a, const StepKey *b) {
  return a->n_tokens == b->n_tokens && a->n_logit_rows == b->n_logit_rows && a->long_rope == b->long_rope &&
         a->taps == b->taps && a->only_logits == b->only_logits && a->selects == b->selects &&
         a->attention == b->attention && a->workspace == b->workspace;
}

static void forget(StepGraph *g) {
  if (g->graph) cudaGraphExecDestroy(g->graph); /* a running graph is freed when it has ended */
  *g = (StepGraph){0};
}

/* The key's entry. If there is none: the least recently used entry, emptied for the key. */
static StepGraph *find(StepGraphs *graphs, const StepKey *key) {
  StepGraph *oldest = graphs->kept;
  for (StepGraph *g = graphs->kept; g < graphs->kept + STEP_GRAPHS; g++) {
    if (g->last_step > 0 && same_key(&g->key, key)) return g;
    if (g->last_step < oldest->last_step) oldest = g;
  }
  forget(oldest);
  oldest->key = *key;
  return oldest;
}

Status step_graphs_begin(StepGraphs *graphs, const StepKey *key, int n_uses, cudaStream_t stream,
                         bool *replayed, Error *err) {
  StepGraph *g = find(graphs, key);
  g->n_uses++;
  g->last_step = ++graphs->n_steps;
  *replayed = g->graph != NULL;
  if (g->graph) return cuda_status(cudaGraphLaunch(g->graph, stream), "cannot launch a step", err);
  if (g->n_uses < n_uses && key->n_tokens > 1) return STATUS_OK;
  TRY(cuda_status(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "cannot capture a step",
                  err));
  graphs->capturing = g;
  return STATUS_OK;
}

Status step_graphs_end(StepGraphs *graphs, Status so_far, cudaStream_t stream, Error *err) {
  StepGraph *g = graphs->capturing;
  if (!g) return so_far;
  graphs->capturing = NULL;
  cudaGraph_t graph = NULL;
  cudaError_t ended = cudaStreamEndCapture(stream, &graph);
  Status status = so_far ? so_far : cuda_status(ended, "cannot capture a step", err);
  if (!status)
    status = cuda_status(cudaGraphInstantiate(&g->graph, graph, 0), "cannot make a graph of a step", err);
  if (!status) status = cuda_status(cudaGraphLaunch(g->graph, stream), "cannot launch a step", err);
  if (graph) cudaGraphDestroy(graph);
  return status;
}

void step_graphs_close(StepGraphs *graphs) {
  for (int i = 0; i < STEP_GRAPHS; i++) forget(&graphs->kept[i]);
}
