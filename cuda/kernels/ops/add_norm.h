/* add_norm.h - adds a result of o or down to the residual stream and normalises the stream. On several GPUs
 * that share each layer (cuda/several/several.h), sums the results of all GPUs first.
 *
 * Functions that take a stream only enqueue. A sum over GPUs is one kernel on each GPU: it waits for the
 * other GPUs' kernels, so all must be launched. Parts are added in the order of the GPUs, so all GPUs get the
 * same bits, in every run. */
#pragma once

#include <cuda_runtime_api.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/arithmetic.h"
#include "base/host_device.h"
#include "base/status.h"

C_BEGIN

/* PUSHED_ROWS: a sum of up to this many rows is pushed as packets into the other GPUs' memory. For more rows
 * each GPU reads the other GPUs' parts of all rows. With AddNorm.own_rows it adds up only its own rows
 * (peers_first_row()): the others send them to it, rounded, and it stores the results in their memory.
 * WIDEST_SUM: most numbers of a row of a sum. MOST_SUM_BLOCKS: most blocks of a sum with own_rows. */
enum { PUSHED_ROWS = 32, WIDEST_SUM = 8192, MOST_SUM_BLOCKS = 512 };

/* One of n GPUs, and what it knows of the other GPUs; the pointers of GPU i are at [i]. The k-th sum of a
 * step has the tag *first_tag + k; *first_tag is even. Even and odd sums have different memory (parts,
 * inbox): a sum must not overwrite what a slow GPU still reads of the sum before. */
typedef struct {
  int n, rank;
  int pushed_rows;            /* PUSHED_ROWS; 1 if a GPU is older than compute capability 9.0 */
  int n_sms;                  /* the fewest of all GPUs: all have as many blocks for a sum of own rows */
  const uint32_t *first_tag;  /* of the step; peers_begin_step() raises it */
  uint32_t *flags[MAX_SPLIT]; /* PEERS_FLAGS */
  void *inbox[MAX_SPLIT];     /* peers_inbox_bytes(): packets of the other GPUs */
  float *parts[2][MAX_SPLIT]; /* [n_rows][hidden] a GPU's addends: [0] of even sums, [1] of odd ones. A sum
                               * of own rows overwrites the other parity's with the rows that are sent */
  float *x[MAX_SPLIT];        /* residual streams, and their norms */
  void *h[MAX_SPLIT];
  float *logits[MAX_SPLIT];       /* [n_rows][vocab_size] */
  int first_logit[MAX_SPLIT + 1]; /* GPU i makes logits first_logit[i] .. first_logit[i + 1] - 1 */
  int *lost;         /* pinned, for all GPUs: 0; 1 + a GPU that did not answer in time; or -1: a GPU failed */
  uint64_t patience; /* nanoseconds that a GPU waits for another GPU */
} Peers;

/* Indices of a GPU's flags. i: tag of the last sum whose part GPU i completed; PEERS_GAVE + i: tag of the
 * last sum whose rows GPU i stored in this GPU's memory; PEERS_BLOCKS: blocks of this GPU that have stored
 * their rows in the sum under way; PEERS_SENT + b * MAX_SPLIT + i: tag of the last sum whose rows block b of
 * GPU i sent. PEERS_FLAGS: the number of flags. */
enum {
  PEERS_GAVE = MAX_SPLIT,
  PEERS_BLOCKS = 2 * MAX_SPLIT,
  PEERS_SENT,
  PEERS_FLAGS = PEERS_SENT + MOST_SUM_BLOCKS * MAX_SPLIT
};

size_t peers_inbox_bytes(int n, int hidden);

/* The first of n_rows rows that GPU `rank` adds up if each GPU has its own rows. */
HOST_DEVICE int peers_first_row(const Peers *peers, int rank, int n_rows) {
  return (int)((int64_t)n_rows * rank / peers->n);
}

enum { SPARED_BYTES = 2000000 };
/* True if it pays that each GPU adds up only its own rows of a step's sums. Then it receives from each other
 * GPU 1 / n of a part in 16 bits and 1 / n of the norm (and 1 / n of x, unless `apart`). If every GPU adds up
 * all rows, it reads the n - 1 other parts whole. For own rows the GPUs meet twice, which takes as long as
 * sending SPARED_BYTES to a GPU: at least so many bytes have to be saved. False before compute capability
 * 9.0, where blocks cannot be kept resident. */
bool peers_own_rows_pay(const Peers *peers, int hidden, int n_rows, bool apart);

/* Before the sums of a step: *first_tag += n_sums. PRECOND n_sums is even, and all tags of the step are
 * higher than those of the step before: a wait for a tag ends at once if the flag is already as high. */
Status peers_begin_step(uint32_t *first_tag, int n_sums, cudaStream_t stream, Error *err);

/* Copies the other GPUs' logits of n_rows rows to this GPU, as exchange number `sum` of the step. */
Status peers_gather_logits(const Peers *peers, int sum, int n_rows, cudaStream_t stream, Error *err);

/* x = scalar * (x + y * rsqrt(mean(y^2) + eps) * weight), or scalar * (x + y) without a weight. Then
 * ops_rms_norm() of x, unless next_weight is NULL. x and y fp32 [n_tokens][n], weights fp32 [n], scalar a
 * number on the device (NULL: 1), out fp16 [n_tokens][out_stride]. With peers y is this GPU's part of sum
 * number `sum` of the step, n % 4 == 0 and n <= WIDEST_SUM; without peers weight is not NULL.
 * own_rows: with more than pushed_rows rows each GPU sums only its own (peers_first_row()). The other GPUs'
 * parts of a row are rounded to 16 bits, so the row's bits depend on which GPU sums it. That GPU stores the
 * results in peers->x and peers->h of all GPUs; x and out are its own entries there. The parts of the next
 * sum's parity are overwritten. With `apart` only norms go to the other GPUs, and their x stays out of date.
 * A later call with as many rows, with own_rows and without `apart`, brings their x up to date. PRECOND of
 * own_rows: pushed_rows > 1. */
typedef struct {
  const float *y, *weight, *scalar, *next_weight;
  float eps, next_eps;
  int n;
  float *x;
  void *out;
  int out_stride;
  const Peers *peers; /* NULL: y is complete */
  int sum;
  bool own_rows, apart;
} AddNorm;
Status ops_add_rms_norm(const AddNorm *call, int n_tokens, cudaStream_t stream, Error *err);

C_END
