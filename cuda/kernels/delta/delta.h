/* delta.h - the gated delta rule and Mamba-2 on a GPU, from a step's projections to the input of o;
 * operations.def, DELTA, has the formulas.
 *
 * Three families, chosen by delta_choose() and forced by number for tests:
 *   step    1 to 8 tokens, only 1 if states have 16 bits; one kernel: a block keeps a head's state in
 *           registers through all tokens (from 2 tokens on, a second kernel stores the inputs of the
 *           convolution)
 *   chunks  many tokens; chunks of 64 in matrix form on tensor cores
 *   plain   any sizes, any number of tokens, token by token; the reference
 * Step and chunks need 4 taps, heads of 128 numbers (Mamba-2: states of 128, heads of 64), an even number of
 * value heads (Mamba-2: a multiple of 4), rows of a multiple of four floats, and one decay for each head (not
 * RULE_CHANNELS). One more kernel normalises Mamba-2's outputs over all heads of a group. Kernels read the
 * position from device memory, so a captured launch serves every step. */
#pragma once

#include <cuda_runtime_api.h>
#include <stdbool.h>
#include <stddef.h>

#include "base/status.h"

C_BEGIN

#include "base/arithmetic.h"
#include "base/state_type.h"
#include "cuda/kernels/linear/linear.h"
#include "cuda/kernels/ops/segment.h"

typedef enum { DELTA_STEP, DELTA_CHUNKS, DELTA_PLAIN } DeltaFamily;

enum { DELTA_STEP_TOKENS = 8 }; /* most tokens of the step family */

/* A layer's call. Its recurrent state: inputs of the convolution [conv][channels], position p in row
 * p % conv, then states [n_value_heads][value_dim][key_dim] of `type`. Neither is used at position 0. */
typedef struct {
  DeltaConfig sizes;
  StatesType type;     /* not fp32: rounded after each 64 tokens of a call or segment, and at its end */
  float eps;           /* of the norm of outputs */
  size_t shared_bytes; /* most dynamic shared memory that a block may opt in to */
  const int *pos;      /* device: position of the first token */
  /* device: fp32 rows of `stride` floats, 16-byte aligned: b and a [n_value_heads], the convolution's
   * channels, z [n_value_heads][value_dim]. The channels of values may be overwritten, with Mamba-2 also z.
   * With `gates` b and a are not read; Mamba-2 has no b. With RULE_CHANNELS a row is: b, the channels,
   * 2 gate_rank numbers that are not read, z, and a [n_value_heads][key_dim]. This a is overwritten. */
  float *projections;
  int stride;
  /* If the step family is to make b and a (delta_step_supports()): their rows of weights, dense, and the
   * step's input h, fp16 [n_tokens][h_stride]. NULL: b and a are in the projections. */
  const DeviceLinear *gates;
  const void *h;
  int h_stride;
  const float *conv;            /* device: [channels][taps], the last tap for the token itself */
  const float *conv_bias;       /* device: Mamba-2's [channels], or NULL */
  const float *a_log, *dt_bias; /* device: [n_value_heads], [delta_decays()] */
  const float *skip;            /* device: [n_value_heads], Mamba-2's D */
  const float *norm;            /* device: [value_dim]; Mamba-2's [n_value_heads * value_dim] or NULL */
  float *state;                 /* device: delta_state_floats() */
  Segments segments;            /* with segments, `state` is that of sequence 0 */
  void *out;                    /* device: fp16 [n_tokens][out_stride] */
  int out_stride;               /* a multiple of 8 */
  void *workspace;              /* device: delta_workspace_bytes(), 256-byte aligned */
  int max_tokens;               /* tokens that the workspace was made for; only read with segments */
} DeltaRule;

/* True if a step of n_tokens tokens can make b and a from the rows of `gates`. This saves a launch. */
bool delta_step_supports(const DeltaRule *rule, const DeviceLinear *gates, int n_tokens);

/* Step for 1 to 8 tokens (only 1 if states have 16 bits), else chunks; plain where neither can run. */
DeltaFamily delta_choose(const DeltaRule *rule, int n_tokens);
bool delta_can_run(DeltaFamily family, const DeltaRule *rule, int n_tokens);

/* Floats of a layer's state, and floats of its first part (the inputs of the convolution). */
size_t delta_state_floats(const DeltaConfig *sizes, StatesType type);
size_t delta_input_floats(const DeltaConfig *sizes);
size_t delta_workspace_bytes(const DeltaConfig *sizes, int max_tokens);

/* Enqueues. PRECOND delta_can_run(family, ...) */
Status delta_run(DeltaFamily family, const DeltaRule *rule, int n_tokens, cudaStream_t stream, Error *err);
/* Enqueues a step of n_rows rows in rule->segments: step for the single rows, chunks for all others; plain
 * where these cannot run. A segment gets the same bits whatever else is in the step. */
Status delta_run_segments(const DeltaRule *rule, int n_rows, cudaStream_t stream, Error *err);

C_END
