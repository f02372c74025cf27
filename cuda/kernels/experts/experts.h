/* experts.h - mixtures of experts: the choice of experts, the order of rows by expert, the sum of results,
 * and the matmuls of few tokens; linear.h has the other matmuls. operations.def, norm_experts_residual, has
 * the formulas.
 *
 * Functions that take a stream only enqueue. The ids of chosen experts stay on the device, so a graph can
 * hold the step. One token needs only the choice: its matmuls read the chosen experts as one matrix. */
#pragma once

#include <cuda_runtime_api.h>

#include "base/arithmetic.h"
#include "base/status.h"
#include "cuda/kernels/linear/linear.h"

C_BEGIN

/* A step's choices, in device memory (LinearExperts says what choices and places are). With Router.joined
 * n_chosen counts the shared expert, too. */
typedef struct {
  float *logits;  /* [n_tokens][n_experts] of the router, where its blocks pass them through memory */
  int *ids;       /* [n_tokens][n_chosen] */
  float *weights; /* [n_tokens][n_chosen] */
  /* [n_tokens] The sigmoid of the shared expert's gate; 0.5 with SHARED_HALVED. */
  float *shared_factors;
  int *begins;          /* [n_experts + 1] the first place of each expert */
  int *choices;         /* [n_tokens * n_chosen] the choice at each place */
  int *places;          /* [n_tokens * n_chosen] the place of each choice */
  float *place_weights; /* [n_tokens * n_chosen] the weight at each place */
  unsigned *counters;   /* [n_tokens] finished blocks of the router; 0 before and after every launch */
} ExpertChoices;

/* Limits of experts_few(): tokens, choices of all tokens, experts of a layer, clusters launched. */
enum {
  EXPERTS_FEW_TOKENS = 32,
  EXPERTS_FEW_CHOICES = 256,
  EXPERTS_FEW_EXPERTS = 1024,
  EXPERTS_FEW_CLUSTERS = 128
};
/* Most tokens for which experts_few()'s sum makes int8 planes (linear/quantise.cuh). The smallest tile has as
 * many tokens: linear_planes_tokens(1). */
enum { EXPERTS_PLANES_TOKENS = 16 };

/* Bytes of device memory that ExpertChoices needs for n_tokens tokens. experts_place_choices() points its
 * arrays into `memory` of this size. A joined shared expert counts in n_experts and n_chosen of `config` here
 * and in experts_order(), but not in those of Router.config. */
size_t experts_choices_bytes(const ExpertConfig *config, int n_tokens);
void experts_place_choices(ExpertChoices *choices, const ExpertConfig *config, int n_tokens, void *memory);

/* experts_route() normalises x, and chooses each token's experts. The router's input stays in fp32: routing
 * must not depend on the rounding of h. */
typedef struct {
  const ExpertConfig *config;
  int hidden;
  float eps;
  const float *x;    /* [n_tokens][hidden] */
  const float *norm; /* [hidden] h = rmsnorm(x) * norm; NULL: h = x_factor * x */
  float x_factor;
  void *h; /* fp16 [n_tokens][h_stride], 8-byte aligned, h_stride % 4 == 0 */
  int h_stride;
  /* [hidden] with EXPERTS_OWN_NORMS: the experts' input is rmsnorm(x) * experts_norm, the router's is
   * rmsnorm(x) * router_scale / sqrt(hidden). Else NULL: both read h. */
  const float *experts_norm, *router_scale;
  void *experts_h;                          /* fp16 [n_tokens][h_stride] */
  const DeviceLinear *router, *shared_gate; /* dense; shared_gate NULL: there is none */
  const float *choice_bias, *scales;        /* [n_experts] or NULL; scales: factors of the weights */
  /* GPUs that share a model must choose the same experts, so their logits must agree to the bit. Tensor cores
   * are then not used: their sums differ between GPU generations. */
  bool same_on_all_gpus;
  bool invariant; /* a token's bits must not depend on how many tokens there are (StateOptions.invariant) */
  bool joined;    /* every token also takes the shared expert, as expert n_experts and its last choice */
  ExpertChoices to;
  /* Memory of router_tiles.cu for sums over some of the inputs: [n_tokens * slice_floats], slice_floats at
   * least n_experts + 1. Several blocks share a token's inputs only if slice_floats has n_experts + 1 floats
   * for each 256 inputs. */
  float *slices;
  size_t slice_floats;
} Router;
Status experts_route(const Router *call, int n_tokens, const DeviceLimits *device, cudaStream_t stream,
                     Error *err);

/* to = h times the weight of the token's only choice; then that weight becomes 1. fp16 [n_tokens][stride],
 * stride % 8 == 0. PRECOND n_chosen is 1. */
Status experts_scale_input(const ExpertChoices *choices, const void *h, int stride, int n_tokens, void *to,
                           cudaStream_t stream, Error *err);

/* Orders the choices of several tokens by experts: begins, choices, places and place_weights. */
Status experts_order(const ExpertConfig *config, const ExpertChoices *to, int n_tokens, cudaStream_t stream,
                     Error *err);

/* to[place] = h of the place's token; to is fp16 [places][stride], h fp16 [n_tokens][stride]. stride % 8 ==
 * 0. */
Status experts_gather(const ExpertChoices *choices, int n_chosen, const void *h, int stride, int n_tokens,
                      void *to, cudaStream_t stream, Error *err);

/* The experts of a few tokens, without experts_order(): out[token] = sum over its choices of down(weight *
 * activation(gate(h), up(h))), always in one order. With `add`: out += the sum. */
typedef struct {
  const DeviceLinear *gate_up, *down; /* gate and up interleaved, or only up, which then is gate, too */
  /* Reads choices.ids, which differ within a token, and choices.weights. Writes choices.choices, here the
   * number of parts of each choice, and choices.places, here the row of its first part. */
  ExpertChoices choices;
  const void *h; /* fp16 [n_tokens][h_stride], h_stride % 8 == 0 */
  int h_stride, n_tokens;
  float *parts; /* [experts_few_parts()][n_out], 16-byte aligned; n_out: an expert's outputs */
  bool add;
  float *out; /* [n_tokens][n_out], 16-byte aligned */
  Activation activation;
  float limit;     /* of ACTIVATION_LIMITED */
  LinearNext next; /* kind NONE or, for up to EXPERTS_PLANES_TOKENS tokens, NORM: int8 planes of out's rows */
} FewExperts;

/* Rows of FewExperts.parts for up to n_choices choices. */
int experts_few_parts(int n_choices);

/* True if experts_few() multiplies these matrices for n_tokens tokens. */
bool experts_few_takes(const DeviceLinear *gate_up, const DeviceLinear *down, const DeviceLimits *device,
                       int n_tokens);
Status experts_few(const FewExperts *call, const DeviceLimits *device, cudaStream_t stream, Error *err);

/* The next layer's norm of summed rows, as by ops_rms_norm(). */
typedef struct {
  const float *weight; /* [n] */
  float eps;
  void *out; /* fp16 [n_tokens][out_stride] */
  int out_stride;
} SumNorm;

/* out[token] = sum over its choices of y[place], always in the order of choices; with `add` out += the sum. y
 * fp32 [places][n], out fp32 [n_tokens][n]. next: NULL, or the norm to make of out. */
Status experts_sum(const ExpertChoices *choices, int n_chosen, const float *y, int n, int n_tokens, bool add,
                   float *out, const SumNorm *next, cudaStream_t stream, Error *err);

/* a = rmsnorm(a) * a_weight + rmsnorm(b) * b_weight for each token; without the second term if b is NULL.
 * fp32 [n_tokens][n]. */
Status experts_add_norms(float *a, const float *a_weight, const float *b, const float *b_weight, float eps,
                         int n, int n_tokens, cudaStream_t stream, Error *err);

C_END
