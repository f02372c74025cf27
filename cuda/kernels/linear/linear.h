/* linear.h - y = W x + bias on the device, for every weight type.
 *
 * The backend lays weights out once (linear_lay_out, linear_place, then the linear_fill_ functions as staged
 * parts of the checkpoint arrive) and prepares a context. linear_run then picks a kernel by dispatch.c's
 * table and launches it on the context's stream. It neither allocates nor waits, so a graph can capture it.
 *
 * A DeviceLinear can stack several layers that read the same x (q, k and v). It can interleave two (gate and
 * up), so that both values of an output meet in one thread. Rows (outputs) come in slabs of 8, as in
 * AutoAWQ's words:
 *   stacked      slab i of part p is slab (rows of the parts before p) / 8 + i
 *   interleaved  slab i of gate is slab 2i, of up slab 2i + 1: 16 rows are 8 of gate and the same 8 of up
 *
 * The same input gives the same bits on the same device. One context serves one stream at a time. */
#pragma once

#include <cuda_runtime_api.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

C_BEGIN

#include "base/arithmetic.h"
#include "cuda/kernels/linear/dispatch.h"

typedef struct {
  WeightType type;
  /* n_out: of all parts; a multiple of 8 if stacked or with 4 or 8 bits, of 16 if interleaved. */
  int n_in, n_out;
  int group; /* inputs per scale (n_in rounded up to 128 if a row has one scale); FP4: 16; dense, int8: 0 */
  int n_groups;
  bool interleaved, has_bias;
  size_t stride;     /* dense: elements between rows, a multiple of 8 */
  const void *tiles; /* 4 and 8 bits, FP4, FP8, int8: layout.cuh */
  const void *scales;
  const void *zeros;    /* NULL: FP4, FP8, int8 */
  const float *factors; /* FP4, FP8: [n_out rounded up to 16] in slab order; else NULL */
  const void *dense;    /* dense: [n_out rounded up to 16][stride], in slab order */
  const float *bias;    /* [n_out rounded up to 16] in slab order, or NULL */
  const char *name;     /* for messages; owned by the caller */
  /* A mixture's matrix: n_experts > 0 matrices, one below the other. Each has n_out / n_experts outputs, a
   * multiple of 16. A token is multiplied by n_chosen of them. summed: each expert has its own x, as in a
   * down projection, and a token's results are added in the end. */
  int n_experts, n_chosen;
  bool summed;
  const struct HostMatrix *host; /* its weights lie on the host (device_model.h); NULL: on the device */
  const void *rotated;           /* 4 bits: a rotated copy in int8 (linear_rotate()), or NULL */
} DeviceLinear;

/* One checkpoint layer within a DeviceLinear. */
typedef struct {
  int n_out;
  int first_slab; /* index of its slab 0 in the matrix */
  int slab_step;  /* 1: stacked, 2: interleaved */
} LinearPart;

/* Fills type, sizes and group of `linear`, clears its pointers and sets *bytes to the device memory it needs.
 * Refuses what the layout cannot hold: for example 4 or 8 bits with n_out % 8 != 0, or 4 bits, 8 bits or FP4
 * with n_in % group != 0. group: the checkpoint's (FP4: 16 or 32); 0 for dense and int8. */
Status linear_lay_out(DeviceLinear *linear, const char *name, WeightType type, int n_in, int n_out, int group,
                      bool interleaved, bool bias, size_t *bytes, Error *err);

/* Points `linear` into `memory` (*bytes of linear_lay_out(), 256-byte aligned) and zeroes it on the
 * stream. */
Status linear_place(DeviceLinear *linear, void *memory, cudaStream_t stream, Error *err);

/* Re-lays inputs [first_in, first_in + n_in) of all outputs of one part, from device staging memory:
 *   staged_bits 4: u32 [n_in][n_out / 8] in AutoAWQ's nibble order (also for an 8-bit matrix)
 *   staged_bits 8: u8 [n_in][n_out]
 * first_in % 64 == 0; n_in % 64 == 0 too, unless these are the matrix's last inputs. All calls for a matrix
 * use one stream. */
Status linear_fill_weights(const DeviceLinear *linear, LinearPart part, int first_in, int n_in,
                           int staged_bits, const void *staged, cudaStream_t stream, Error *err);

/* Fills all n_in / group groups of one part from device staging memory:
 *   zeros   AutoAWQ's u32 [groups][n_out / 8]; 8 bits: u8 [groups][n_out]. NULL: every zero is 8, or 128
 *   scales  [groups][n_out] fp16, or with f32_scales fp32, which is rounded to fp16 */
Status linear_fill_groups(const DeviceLinear *linear, LinearPart part, const void *zeros, const void *scales,
                          bool f32_scales, cudaStream_t stream, Error *err);

/* Fills rows [first_row, first_row + n_rows) of one part from device staging memory. int8 and FP8:
 * [n_rows][n_in] bytes. FP4: [n_rows][n_in / 2] bytes, the even input in the lower four bits. first_row % 8
 * == 0. */
Status linear_fill_bytes(const DeviceLinear *linear, LinearPart part, int first_row, int n_rows,
                         const void *staged, cudaStream_t stream, Error *err);

/* Fills rows [first_row, first_row + n_rows) of one dense part from [n_rows][n_in] of the matrix's type in
 * device staging memory. first_row % 8 == 0. */
Status linear_fill_dense(const DeviceLinear *linear, LinearPart part, int first_row, int n_rows,
                         const void *staged, cudaStream_t stream, Error *err);

/* Fills all scales and factors of one FP8 part from f32 [blocks of `block` outputs][groups of inputs] in
 * device staging memory. The first `block_first` outputs of the first block belong to another layer. A scale
 * is rounded to fp16 relative to its output's largest scale. With one group per output it is exact. */
Status linear_fill_fp8_scales(const DeviceLinear *linear, LinearPart part, const float *staged, int block,
                              int block_first, cudaStream_t stream, Error *err);

/* Fills scales and factors of rows [first_row, first_row + n_rows) of one FP4 part from u8 [n_rows][n_in /
 * group] in device staging memory. group 16: E4M3 codes, whose numbers are multiplied by `factor` (NVFP4).
 * group 32: powers of two, 2^(code - 127) (MXFP4); scales below 2^-24 of an output's largest become 0. */
Status linear_fill_fp4_scales(const DeviceLinear *linear, LinearPart part, int first_row, int n_rows,
                              const uint8_t *staged, int group, float factor, cudaStream_t stream,
                              Error *err);

/* Fills all rows of one part from fp32 [n_out] in device staging memory. `to` is linear->bias, or
 * linear->scales of int8 weights. */
Status linear_fill_floats(const DeviceLinear *linear, LinearPart part, const void *to, const float *staged,
                          cudaStream_t stream, Error *err);

/* Bytes of memory for a rotated copy (wide/rotated.cuh) of a 4-bit matrix, for the kernel int8_bytes: a byte
 * for each weight, a scale for each output. kernel: the forced kernel, or NULL. 0 if the matrix can have no
 * copy, or if another kernel is forced. */
size_t linear_rotated_bytes(const DeviceLinear *linear, const char *kernel);

/* Makes the rotated copy of a filled matrix in `memory`, 256-byte aligned, on the stream, and sets
 * linear->rotated. staging: device memory for at least 16 rows in fp16. */
Status linear_rotate(DeviceLinear *linear, void *memory, void *staging, size_t staging_bytes,
                     cudaStream_t stream, Error *err);

/* Outputs first_out .. n_out - 1 as a matrix of its own in the same memory, without a rotated copy.
 * PRECOND first_out % 16 == 0; the matrix is neither interleaved nor of experts. */
DeviceLinear linear_outputs_from(const DeviceLinear *linear, int first_out);

/* True if linear_round() takes this matrix. */
bool linear_can_round(const DeviceLinear *linear);

/* *rounded = the dense matrix, rounded to 4 bits as src/model/quant/round.c does, in new device memory
 * *memory. The caller frees *memory by cudaFree(). Waits until the rounding is done. */
Status linear_round(const DeviceLinear *dense, DeviceLinear *rounded, void **memory, cudaStream_t stream,
                    Error *err);

typedef struct LinearContext LinearContext;

/* Turns a matrix that linear_lay_out() has laid out into one of n_experts experts. */
Status linear_lay_out_experts(DeviceLinear *linear, int n_experts, int n_chosen, bool summed, Error *err);

/* One expert of a matrix that has been placed, as a matrix of its own for the linear_fill_ functions. */
DeviceLinear linear_expert(const DeviceLinear *linear, int expert);

/* The experts that a call's tokens chose, in device memory. A `choice` is one expert of one token, numbered
 * token * n_chosen + its index among the token's choices. A `place` is a choice's position when choices are
 * sorted by expert, then by token. */
typedef struct {
  const int *ids;     /* [n_tokens][n_chosen] the expert of each choice */
  const int *begins;  /* [n_experts + 1] places of expert e: begins[e] .. begins[e + 1] - 1 */
  const int *choices; /* [n_tokens * n_chosen] the choice of each place */
  bool gathered;      /* x has a row for each place, which awq_wgmma needs */
  /* With one token: the previous launch is a linear_run() with the same choice. So `ids` are complete when a
   * dependent launch begins. */
  bool known;
} LinearExperts;

/* The limits of the context's device. */
DeviceLimits linear_limits(const LinearContext *context);

/* True if the kernel for these tokens needs x gathered by places. */
bool linear_experts_gathered(const LinearContext *context, const DeviceLinear *weights, int n_tokens,
                             const char *kernel);

/* True if begins and choices can be NULL for one token. A kernel then multiplies the chosen experts as one
 * matrix, and a choice's place is its index in ids. */
bool linear_experts_as_one(const LinearContext *context, const DeviceLinear *weights);

typedef enum {
  LINEAR_TO_F16,  /* y = v, the result; clamped to fp16's range, except where cuBLAS writes y */
  LINEAR_TO_F32,  /* y = v */
  LINEAR_ADD_F32, /* y += v: the residual stream */
  /* Interleaved: y = activation(gate) * up, clamped; n_out / 2 values. Experts with ACTIVATION_RELU, whose
   * matrix is not interleaved: up is also the gate; n_out values. */
  LINEAR_SWIGLU_F16
} LinearOutput;

/* Rows [n_tokens][n_in] of fp32 whose RMSNorm is the x of a call; the first is 16-byte aligned. */
typedef struct {
  const float *rows;
  const float *weight; /* [n_in] */
  float eps;
} LinearNorm;

/* The next kernel's operand, which an epilogue makes from its results. planes_wgmma makes heads, or planes
 * for the next matmul (linear_planes_bytes()). awq_wgmma makes heads. */
typedef enum {
  LINEAR_NEXT_NONE,
  LINEAR_NEXT_NORM,  /* LINEAR_ADD_F32: planes of the new y times `norm`, the weight of the next RMSNorm */
  LINEAR_NEXT_GATED, /* LINEAR_SWIGLU_F16: planes of y, which itself is not written */
  LINEAR_NEXT_HEADS  /* LINEAR_TO_F32: ops_qk_norm_rope_append() of y, which itself is not written */
} LinearNextKind;
typedef struct {
  LinearNextKind kind;
  void *planes;
  const float *norm; /* [n_out] */
  /* Heads of 128 dimensions with rope over pairs (i, i + 64), without query scales (query_scale_beta 0).
   * planes_wgmma needs an fp16 cache, awq_wgmma an fp16 or 8-bit one. */
  const struct QkvHeads *heads;
} LinearNext;

typedef struct {
  const DeviceLinear *weights;
  const void *x; /* f16 [n_tokens][x_stride], 16-byte aligned; x_stride % 8 == 0, >= n_in */
  int x_stride;
  int n_tokens;
  LinearOutput output;
  void *y; /* [n_tokens][y_stride] of the output's type */
  int y_stride;
  ActType act;        /* int8 weights use ACT_INT8, dense ones ACT_F16 */
  bool dependent;     /* programmatic dependent launch: may overlap the end of the previous kernel */
  const char *kernel; /* forces an entry of the table, or NULL */
  int variant;        /* 0: the kernel chooses; n: its n-th tile shape (for measuring); or LINEAR_WHOLE */
  Activation gated;   /* of LINEAR_SWIGLU_F16 */
  float limit;        /* of ACTIVATION_LIMITED */
  /* [rows of y] or NULL: a factor for each row of y. With LINEAR_SWIGLU_F16 it multiplies the results. With
   * other outputs (of experts) it multiplies the bias alone, because x contains it already. */
  const float *row_factors;
  /* NULL unless the matrix is of experts; n_tokens still counts tokens. y has a row for each place
   * (LinearExperts). x has one for each place if the experts are `summed` or x is gathered, else one for each
   * token. Summed experts as one matrix (linear_experts_as_one()) write one row of y, their sum. row_factors
   * then has a factor for each row of x; x_stride is n_in rounded up to 128, padded by 0. */
  const LinearExperts *experts;
  /* rows NULL: x is given. Else x is not read, and without `planes` linear_takes_norm() must hold. */
  LinearNorm norm;
  /* NULL, or x as planes from an earlier kernel. Then neither x nor norm.rows is read; norm.rows != NULL says
   * that the planes are a norm's. `planes` and `next` need planes_wgmma, group % 128 == 0 and at most
   * LINEAR_MOST_PLANES tokens. `next` for heads needs only linear_makes_heads(). */
  const void *planes;
  LinearNext next;
} LinearCall;

enum { LINEAR_MOST_PLANES = 32 };
/* Planes (quantise.cuh) of n_in inputs of n_tokens <= LINEAR_MOST_PLANES tokens, followed by each token's
 * sums of squares. _bytes(): of planes and sums. _tokens(): tokens of a tile of planes. _squares(): the
 * sums. */
size_t linear_planes_bytes(int n_in, int n_tokens);
int linear_planes_tokens(int n_tokens);
float *linear_planes_squares(void *planes, int n_in);

/* *multiplies = true if the program has code for this chip that multiplies rotated copies. */
Status linear_multiplies_bytes(int gpu, bool *multiplies, Error *err);

/* *device = the properties of a GPU that decide which kernels it runs. */
Status linear_device(int gpu, DeviceLimits *device, Error *err);
/* STATUS_MODEL if the device has no kernel for the matrix under LINEAR_INVARIANT. *fast: it is a Hopper GPU,
 * and multiplies many rows about as fast as without LINEAR_INVARIANT. */
Status linear_check_invariant(const DeviceLinear *weights, const DeviceLimits *device, bool *fast,
                              Error *err);

/* If linear_open() fails, *context still has to be closed, unless it is NULL. linear_close() takes NULL. */
Status linear_open(int gpu, cudaStream_t stream, LinearContext **context, Error *err);
void linear_close(LinearContext *context);

/* Checks that a kernel (`kernel`, unless NULL) runs `weights` for every count up to max_tokens. Grows the
 * workspace to the most that these calls need; if it grows, graphs captured before are stale. Creates a
 * cuBLAS handle if one is needed. Not allowed during a capture. */
Status linear_prepare(LinearContext *context, const DeviceLinear *weights, ActType act, int max_tokens,
                      const char *kernel, Error *err);

/* The memory that kernels work in; linear_prepare() may move it. */
const void *linear_workspace(const LinearContext *context);

Status linear_run(LinearContext *context, const LinearCall *call, Error *err);

/* A matrix for each head, which multiplies the head's own part of x. Pointers are to device memory and
 * 16-byte aligned. Strides and steps are multiples of 8, so each row is aligned, too. */
typedef struct {
  const void *w; /* fp16 [n_heads][n_out][w_stride], zeros from n_in on */
  int n_heads, n_in, n_out, w_stride;
  const void *x; /* fp16: head h of token t at t * x_stride + h * x_step; zeros from n_in to w_stride */
  int x_stride, x_step;
  void *y; /* fp16: head h of token t at t * y_stride + h * y_step */
  int y_stride, y_step;
  int n_tokens;
} LinearHeads;

/* LinearHeads.w_stride for n_in inputs: n_in rounded up to 8. */
size_t linear_heads_stride(int n_in);
/* Fills `to`, a LinearHeads.w, from `weights`, in which all heads' matrices are stacked as experts are.
 * Clamps dense, FP8 and FP4 weights to fp16's range. PRECOND weights are dense, or n_in % 8 == 0. */
Status linear_fill_heads(const DeviceLinear *weights, void *to, cudaStream_t stream, Error *err);
/* linear_prepare_heads() prepares for up to max_tokens; linear_run_heads() enqueues the products. kernel:
 * NULL or LINEAR_INVARIANT. With NULL, cuBLAS multiplies more than 8 tokens and does not clamp results to
 * fp16's range. Without cuBLAS, 8 tokens are multiplied at a time. */
void linear_prepare_heads(LinearContext *context, int max_tokens);
Status linear_run_heads(LinearContext *context, const LinearHeads *call, const char *kernel, Error *err);

/* True if a kernel computes the RMSNorm of its x itself (LinearCall.norm) and is faster than two kernels for
 * norm and product. */
bool linear_takes_norm(const LinearContext *context, const DeviceLinear *weights, ActType act, int n_tokens,
                       const char *kernel);

/* True if the kernel for these tokens can do LINEAR_NEXT_HEADS in its epilogue: with LINEAR_TO_F32, fp16 x
 * and an fp16 or 8-bit KV cache. */
bool linear_makes_heads(const LinearContext *context, const DeviceLinear *weights, ActType act, int n_tokens,
                        const char *kernel);

/* *entry = the table entry that linear_run() takes for n_tokens tokens, if the call gives x and not
 * norm.rows. One token with LinearExperts.begins takes the entry for 2. */
Status linear_choice(const LinearContext *context, const DeviceLinear *weights, ActType act, int n_tokens,
                     const char *kernel, const LinearEntry **entry, Error *err);

/* Dequantises rows [first_row, first_row + n_rows) of a quantised matrix to `out`, fp16 [n_rows][n_in],
 * 16-byte aligned; FP8 and FP4 results lack DeviceLinear.factors. first_row % 16 == 0, any group size. plain:
 * the reference form (shifts and conversions); else lop3 and packed halves if groups allow. */
Status linear_dequantise(const DeviceLinear *weights, int first_row, int n_rows, bool plain, void *out,
                         cudaStream_t stream, Error *err);

C_END
