/* skinny_plan.h - how the matmul of a few tokens cuts a matrix over blocks, and whether it fits: for
 * skinny_gemm.cuh, and for float_experts.cu (one token's experts in FP8 and FP4).
 *
 * Host only, C and C++. Called by: dispatch.c (can this entry run?), skinny_gemm.cuh (launch). The numbers
 * are the layout of shared memory in those kernels. */
#pragma once

#include <string.h>

#include "cuda/kernels/linear/dispatch.h"
#include "cuda/kernels/ptx/ceil_div.h"

#define SKINNY_WARPS        16  /* warps of a block */
#define SKINNY_UNIT_IN      128 /* inputs of a unit: 16 outputs x 128 inputs */
#define SKINNY_UNITS        4   /* units of a batch (of float_experts.cu: 1) */
#define SKINNY_MAX_TOKENS   8
#define SKINNY_TILE_OUT     16
#define SKINNY_MAX_SPLITS   8
#define SKINNY_MAX_LAUNCHES 64
#define SKINNY_F16          0    /* in place of int_bytes: x is held as fp16 */
#define SKINNY_STATIC_BYTES 1024 /* the kernel's static shared memory, rounded up */

/* float_experts.cu: units that a warp has in flight, and the bytes of scales in a unit's slot. */
#define SKINNY_DEEP        8
#define SKINNY_SHALLOW     4
#define SKINNY_UNIT_SCALES 128

/* Costs, in multiples of the time of one batch of a block (0.13 us), in this order: combining partial sums,
 * each split, each launch after the first. */
#define SKINNY_COMBINE_COST 20
#define SKINNY_SPLIT_COST   2
#define SKINNY_LAUNCH_COST  40

typedef struct {
  int tokens;          /* tokens held: n_tokens rounded up to 1, 2, 4 or 8 */
  int block_in;        /* inputs per scale of x, within one group; x in fp16: OfSums (float_mma.cu) */
  int splits;          /* split-K: blocks per tile row, each a part of the inputs; 0: does not fit */
  int blocks;          /* blocks along tile rows; the grid is blocks x splits */
  int launch_rows;     /* tile rows of one launch */
  int n_units;         /* units of one tile row */
  int n_batches;       /* batches of one tile row; the last may lack units */
  int max_batches;     /* most batches of one split of a tile row */
  int slots;           /* most tile rows in which one warp has batches */
  int ring_batches;    /* batches that a warp has in flight */
  size_t shared_bytes; /* rings, x, its scales, partial sums, ExpertTable */
  size_t partial_bytes;
} SkinnyPlan;

static inline int skinny_held_tokens(int n) {
  int held = 1;
  while (held < n) held *= 2;
  return held;
}

/* True for float_experts.cu, whose batches are single units. */
static inline bool skinny_by_units(const LinearQuery *query, int int_bytes) {
  return int_bytes == SKINNY_F16 && query->n_experts > 0;
}

/* Units of a batch. */
static inline int skinny_batch_units(const LinearQuery *query, int int_bytes) {
  return skinny_by_units(query, int_bytes) ? 1 : SKINNY_UNITS;
}

/* Batches that a warp has in flight. With `fits`: the number to try first; without: the number to use if the
 * first does not fit in shared memory. Experts try more: the choice is known late, and a warp has few
 * batches. */
static inline int skinny_ring_batches(const LinearQuery *query, int int_bytes, bool fits) {
  if (!skinny_by_units(query, int_bytes)) return query->n_experts > 0 && fits ? 2 : 1;
  return weight_bits(query->weights) == 4 && fits ? SKINNY_DEEP : SKINNY_SHALLOW;
}

/* One way to cut: `splits` blocks per tile row, and the matrix in `launches` launches. */
static inline SkinnyPlan skinny_plan_cut(const LinearQuery *query, int int_bytes, int splits, int launches,
                                         int ring_batches) {
  SkinnyPlan p;
  memset(&p, 0, sizeof p);
  p.tokens = skinny_held_tokens(query->n_tokens);
  if (int_bytes == SKINNY_F16)
    p.block_in = weight_has_zeros(query->weights) ? 32 : 128; /* see OfSums in float_mma.cu */
  else
    p.block_in = query->group % 128 == 0 ? 128 : query->group % 64 == 0 ? 64 : 32;
  p.n_units = ceil_div(query->n_in, SKINNY_UNIT_IN);
  const bool by_units = skinny_by_units(query, int_bytes);
  const int batch_units = skinny_batch_units(query, int_bytes);
  p.n_batches = ceil_div(p.n_units, batch_units);
  p.splits = splits;
  p.ring_batches = ring_batches;
  p.max_batches = ceil_div(p.n_batches, splits);
  const int tile_rows = ceil_div(query->n_out, SKINNY_TILE_OUT), bits = weight_bits(query->weights);
  p.blocks = query->device.n_sms / splits < tile_rows ? query->device.n_sms / splits : tile_rows;
  p.launch_rows = ceil_div(tile_rows, launches);
  const int block_rows = ceil_div(p.launch_rows, p.blocks), least_batches = p.n_batches / splits;
  p.slots = ceil_div(block_rows * p.max_batches, SKINNY_WARPS) / least_batches + 2;
  if (p.slots > block_rows) p.slots = block_rows;
  const size_t units = (size_t)(p.max_batches * batch_units), tokens = (size_t)p.tokens,
               unit =
                   SKINNY_UNIT_IN * SKINNY_TILE_OUT * (size_t)bits / 8 + (by_units ? SKINNY_UNIT_SCALES : 0),
               ring = (size_t)(SKINNY_WARPS * ring_batches * batch_units) * unit,
               x = units * SKINNY_UNIT_IN * (size_t)(int_bytes == 1 ? 1 : 2) * tokens,
               scales = by_units ? 0 : units * (size_t)(SKINNY_UNIT_IN / p.block_in) * tokens * 8,
               sums = (size_t)SKINNY_WARPS * (size_t)p.slots * tokens * SKINNY_TILE_OUT * 4;
  p.shared_bytes = ring + x + scales + sums;
  if (query->n_experts > 0 && !by_units)
    p.shared_bytes += 8 * ((units > (size_t)block_rows ? units : (size_t)block_rows) + LINEAR_MAX_CHOSEN);
  if (splits > 1) p.partial_bytes = (size_t)tile_rows * (size_t)splits * tokens * SKINNY_TILE_OUT * 4;
  return p;
}

/* The plan for query->n_tokens <= 8 tokens, with x as integers of int_bytes bytes (2, or 1 for int8
 * activations) or in fp16 (SKINNY_F16). The inputs are split if x would not fit, or if the last block is then
 * expected to finish earlier. A block holds the sums of its tile rows to the end. If they do not fit, several
 * launches are needed. */
static inline SkinnyPlan skinny_plan(const LinearQuery *query, int int_bytes) {
  SkinnyPlan best;
  memset(&best, 0, sizeof best);
  long least = 0;
  for (int splits = 1; splits <= SKINNY_MAX_SPLITS && splits <= query->device.n_sms; splits *= 2) {
    if (splits > 1 && splits > ceil_div(query->n_in, SKINNY_UNITS * SKINNY_UNIT_IN)) break;
    for (int launches = 1; launches <= SKINNY_MAX_LAUNCHES; launches *= 2) {
      SkinnyPlan p =
          skinny_plan_cut(query, int_bytes, splits, launches, skinny_ring_batches(query, int_bytes, true));
      if (p.shared_bytes + SKINNY_STATIC_BYTES > query->device.shared_bytes)
        p = skinny_plan_cut(query, int_bytes, splits, launches, skinny_ring_batches(query, int_bytes, false));
      if (p.shared_bytes + SKINNY_STATIC_BYTES > query->device.shared_bytes) continue;
      const int block_rows = ceil_div(ceil_div(query->n_out, SKINNY_TILE_OUT), p.blocks);
      const int units = block_rows * p.max_batches * skinny_batch_units(query, int_bytes);
      const long cost = (long)ceil_div(units, SKINNY_UNITS) +
                        (splits > 1 ? SKINNY_COMBINE_COST + SKINNY_SPLIT_COST * splits : 0) +
                        (launches - 1) * SKINNY_LAUNCH_COST;
      if (best.splits && cost >= least) break;
      least = cost;
      best = p;
      break;
    }
  }
  return best;
}
