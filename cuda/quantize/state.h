/* state.h - an open GPU: its memory, matrix products, and copies to and from it. Shared by the files of this
 * folder.
 *
 * All work is on one stream. A function that brings a result to the host waits for it; most others only
 * enqueue. */
#pragma once

#include "base/status.h"
#include "cuda/kernels/linear/cublas.h"
#include "cuda/kernels/rounding/rounding.h"
#include "quantize/quantizer.h"

/* Scratch buffers in GPU memory, shared by all functions of Quantizer. A function relies on nothing that an
 * earlier one left in them. */
enum {
  SCRATCH_A, /* A, B, C are large: rows of a matrix, or square matrices */
  SCRATCH_B,
  SCRATCH_C,
  SCRATCH_ERRORS, /* errors or changes of a group of inputs, or columns of a factor */
  SCRATCH_BLOCKS, /* diagonal blocks of U, the triangular factor of H^-1 (quantize/factor.h) */
  SCRATCH_CODES,
  SCRATCH_SCALES,
  SCRATCH_VECTORS,   /* small: factors of inputs, sums of rows */
  SCRATCH_EQUATIONS, /* for the best scales (quantize/refine.h) */
  N_SCRATCH
};

typedef struct {
  void *at;
  size_t bytes;
} Scratch;

/* A matrix's weights in GPU memory for the forward pass, until forget(). */
typedef struct {
  const Linear *linear;
  Weights weights;
} LoadedLinear;

enum { N_STAGING = 2 };
typedef struct {
  int gpu, n_threads;
  cudaStream_t stream;
  Cublas cublas;
  Scratch scratch[N_SCRATCH];
  Scratch staging[N_STAGING]; /* pinned, on the way to the GPU */
  cudaEvent_t sent[N_STAGING];
  Scratch rows, results; /* of gpu_multiply(). rows: x, then y, in GPU memory; results: y, pinned */
  LoadedLinear *loaded;
  size_t n_loaded, loaded_capacity;
} Gpu;

struct QuantizerState {
  Gpu *gpu;
};

/* Allocates GPU memory, *there. The message of a failure has `name` and the number of bytes. */
Status gpu_alloc(size_t bytes, const char *name, void **there, Error *err);
/* Sets the pointer *at to scratch buffer `which`, with room for n items of `size` bytes. */
Status gpu_scratch(Gpu *gpu, int which, size_t n, size_t size, void *at, Error *err);
/* Makes room for `bytes` bytes: in GPU memory, or in pinned memory of the host if `pinned`. A buffer that has
 * to grow loses what was in it. */
Status gpu_grow(Scratch *scratch, bool pinned, size_t bytes, const char *name, Error *err);

/* Copies to and from GPU memory; both wait until the copy is complete. */
Status gpu_send(Gpu *gpu, void *there, const void *here, size_t bytes, Error *err);
Status gpu_fetch(Gpu *gpu, void *here, const void *there, size_t bytes, Error *err);
/* fill() writes n_rows rows into pinned memory, from where they are copied to to[n_rows][n] in GPU memory.
 * Several threads call fill() at once. */
Status gpu_send_rows(Gpu *gpu, FillRow *fill, const void *user, int n_rows, int n, float *to, Error *err);

/* c[r][i] = beta c[r][i] + the sum over k < n_k of a[r][k] b[i][k], for r < n_rows, i < n; if n_k is 0, c
 * stays as it is. a, b and c are in GPU memory. */
Status gpu_product(Gpu *gpu, Rows a, int n_rows, Rows b, int n, int n_k, float beta, Rows c, Error *err);
/* gpu_product() with a and b rounded to TF32 if the GPU has it: for the forward pass and its statistics. */
Status gpu_product_tf32(Gpu *gpu, Rows a, int n_rows, Rows b, int n, int n_k, float beta, Rows c, Error *err);

/* Functions of Quantizer: gpu_load() is in state.c, the others in factor.c, rounding.c and products.c. */
Status gpu_load(const QuantizerState *state, FillRow *fill, const void *user, const char *name,
                Weights *weights, Error *err);
Status gpu_factor(const QuantizerState *state, const float *h, int n, float *lower, Error *err);
Status gpu_correct(const QuantizerState *state, const Target *target, const Weights *weights, Error *err);
Status gpu_trial(const QuantizerState *state, const GroupSearch *search, const Weights *weights,
                 const float *h, const float *factors, double *loss, Error *err);
Status gpu_round(const QuantizerState *state, const Recipe *recipe, const Weights *weights, const float *h,
                 const float *lower, const Rounded *rounded, Error *err);
Status gpu_loss(const QuantizerState *state, const Weights *weights, const float *h, const Rounded *rounded,
                double *loss, Error *err);
Status gpu_multiply(const QuantizerState *state, OtherProduct *products, int n, bool *done, Error *err);
void gpu_forget(const QuantizerState *state);
