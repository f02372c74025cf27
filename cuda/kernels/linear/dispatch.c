/* dispatch.c - the table of linear kernels and the search in it, in host code.
 *
 * Called by: linear.cu, kernel_bench.c, tests. Always true: for fp16 activations every weight type has an
 * entry that takes any token count, group and chip the program is built for, so a shape is refused only if an
 * entry is forced or int8 activations are asked for. */
#include "cuda/kernels/linear/dispatch.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "cuda/kernels/linear/skinny_plan.h"

#define AWQ4  (1u << WEIGHT_AWQ4)
#define AWQ8  (1u << WEIGHT_AWQ8)
#define INTS  (AWQ4 | AWQ8)
#define FP4   (1u << WEIGHT_FP4)
#define FLOAT (FP4 | 1u << WEIGHT_FP8)
#define QUANT (INTS | FLOAT)
#define WIDE  (AWQ4 | FLOAT) /* what awq_wgmma multiplies */
#define INT8  (1u << WEIGHT_INT8)
#define BYTES (AWQ4 | INT8) /* what int8_bytes multiplies: 4 bits if they have a rotated copy */
#define F16   (1u << WEIGHT_F16)
#define HALF  (F16 | 1u << WEIGHT_BF16)
#define DENSE (HALF | 1u << WEIGHT_F32)
#define ANY   INT_MAX
#define A16   ACT_F16
#define A8    ACT_INT8

/* With fewer weights than DISPATCH_TINY and at most DENSE_MAX_TOKENS tokens cuBLAS is not loaded: dense_rows
 * multiplies. */
#define DISPATCH_TINY    (1L << 20)
#define DENSE_MAX_TOKENS 8

#define LEAST_BYTES 48 /* tokens from which on int8_bytes is the fastest */

/* First and last chip; CUDA 13 builds for none older than 7.5. */
#define FROM_75 SM(7, 5), SM_ANY
#define FROM_80 SM(8, 0), SM_ANY
#define ONLY_75 SM(7, 5), SM(7, 9)
#define ONLY_90 SM_90A, SM_90A

/* clang-format off */
/* The first match wins. Thresholds: LOG.md, "Thresholds". */
static const LinearEntry entries[] = {
  /* weights act least,most tokens small tiled limit group held first,last chip (FROM_, ONLY_) launch, name */
  /* planes_wgmma also runs fewer tokens if it computes the RMSNorm of x, or takes or makes planes
   * (linear.h). */
  {AWQ4,  A16, 17,24,  0,   0, 32,64, X_STAGED, ONLY_90, LAUNCH_PLANES_WGMMA, "planes_wgmma"},
  {WIDE,  A16, 2,128,128,   0,ANY,16, X_STAGED, ONLY_90, LAUNCH_NARROW_WGMMA, "narrow_wgmma"},
  {INTS,  A16, 1,  8,  8,   0,  8,32, X_INT16,  FROM_80, LAUNCH_AWQ_PLANES, "awq_planes"},
  {QUANT, A16, 1,  8,  8,   0,  8,16, X_UNITS,   FROM_80, LAUNCH_FLOAT_MMA, "float_mma"},
  {WIDE,  A16, 129,ANY,256,3072,ANY,32, X_STAGED, ONLY_90, LAUNCH_AWQ_WGMMA, "awq_wgmma"},
  {QUANT, A16, 1,192,112,   0,ANY,16, X_STAGED, FROM_80, LAUNCH_AWQ_TENSORCORE, "awq_tensorcore"},
  {QUANT, A16, 1,192,112,   0,ANY,16, X_STAGED, ONLY_75, LAUNCH_AWQ_TENSORCORE, "awq_tensorcore_sm75"},
  {QUANT, A16, 64,ANY,ANY,   0,ANY, 1, X_STAGED, FROM_75, LAUNCH_CUBLAS, "awq_dequant"},
  {QUANT, A16, 1,ANY,ANY,   0,ANY, 1, X_STAGED, FROM_75, LAUNCH_AWQ_PLAIN, "awq_plain"},
  {INTS,  A8,  1,  4,  8,   0,  8,32, X_INT8,   FROM_75, LAUNCH_INT8_GEMV, "int8_gemv"},
  {AWQ4,  A8,  9, 64, 64,   0,ANY,64, X_STAGED, ONLY_90, LAUNCH_INT8_WGMMA, "int8_wgmma"},
  {BYTES, A8, LEAST_BYTES,ANY,ANY,   0,ANY, 1, X_STAGED, ONLY_90, LAUNCH_INT8_BYTES, "int8_bytes"},
  {AWQ4,  A8, 65,ANY,ANY,   0,ANY,64, X_STAGED, ONLY_90, LAUNCH_INT8_TILES, "int8_tiles"},
  {INTS,  A8,  1,ANY,ANY,   0,ANY,32, X_STAGED, FROM_75, LAUNCH_INT8_MMA, "int8_mma"},
  {INT8,  A8,  1,ANY,ANY,   0,ANY, 0, X_STAGED, FROM_75, LAUNCH_INT8_TOKEN, "int8_token"},
  {F16,   A16, 3,ANY,ANY,   0,ANY, 0, X_STAGED, FROM_75, LAUNCH_CUBLAS, "dense_cublas"},
  {HALF,  A16, 8,ANY,ANY,   0,ANY, 0, X_STAGED, ONLY_90, LAUNCH_DENSE_WGMMA, "dense_wgmma"},
  {DENSE, A16, 1,  8,  8,   0,  8, 0, X_F16,    FROM_75, LAUNCH_DENSE_ROWS, "dense_rows"},
  {DENSE, A16, 1,ANY,ANY,   0,ANY, 0, X_STAGED, FROM_75, LAUNCH_CUBLAS, "dense_converted"},
  /* Reached by LINEAR_INVARIANT and by name alone. */
  {HALF,  A16, 0,  0,  0,   0,128, 0, X_STAGED, FROM_80, LAUNCH_DENSE_TENSORCORE, "dense_tensorcore"},
  {WIDE,  A16, 0,  0,  0,   0, CHAIN_TOKENS,32, X_STAGED, ONLY_90, LAUNCH_CHAIN_MMA, "chain_mma"},
  /* Reference forms, never chosen and reached by name alone (--kernel, tests): the simplest form of each
   * matmul, which the entries above are compared with, and faster on no chip. */
  {INTS,  A16, 0,  0,  0,   0,  1,32, X_INT16,  FROM_75, LAUNCH_AWQ_DOT, "awq_gemv"},
  {INTS,  A16, 0,  0,  0,   0,  8,32, X_INT16,  FROM_75, LAUNCH_AWQ_DOT, "awq_small_batch"},
  {INTS,  A16, 0,  0,  0,   0,ANY,32, X_STAGED, FROM_75, LAUNCH_AWQ_PIPELINED, "awq_pipelined"},
  {QUANT, A16, 0,  0,  0,   0,ANY, 1, X_STAGED, FROM_75, LAUNCH_CUBLAS_PLAIN, "awq_dequant_plain"},
  {INTS,  A8,  0,  0,  0,   0,ANY,32, X_STAGED, FROM_75, LAUNCH_INT8_DP4A, "int8_dp4a"},
};

/* Matrices of experts, whose products of few tokens are bound by reading the chosen experts. Their
 * activations are fp16, whatever is asked for other layers. */
static const LinearEntry expert_entries[] = {
  {INTS,  A16, 1,  1,  1,   0,  1,32, X_INT16,  FROM_80, LAUNCH_AWQ_PLANES, "awq_planes"},
  {FLOAT, A16, 1,  1,  1,   0,  1,16, X_UNITS,  FROM_80, LAUNCH_FLOAT_MMA, "float_mma"},
  {DENSE, A16, 1,  1,  1,   0,  1, 0, X_F16,    FROM_75, LAUNCH_DENSE_ROWS, "dense_rows"},
  {WIDE,  A16, 16,ANY,ANY, 0,ANY,32, X_STAGED, ONLY_90, LAUNCH_AWQ_WGMMA, "awq_wgmma"},
  {QUANT, A16, 1,ANY,ANY,   0,ANY,16, X_STAGED, FROM_80, LAUNCH_AWQ_TENSORCORE, "awq_tensorcore"},
  {QUANT, A16, 1,ANY,ANY,   0,ANY,16, X_STAGED, ONLY_75, LAUNCH_AWQ_TENSORCORE, "awq_tensorcore_sm75"},
  {QUANT | DENSE, A16, 1,ANY,ANY, 0,ANY, 1, X_STAGED, FROM_75, LAUNCH_EXPERTS_PLAIN, "experts_plain"},
};
/* clang-format on */

/* The first match wins; LinearInvariant (dispatch.h) says what the columns are. Why a row of x gets the same
 * bits with any other rows: chain_mma and, in whole tiles of any shape, awq_wgmma add the products of an
 * output one after another, 16 inputs at a time, from the first input to the last; a launch of awq_tensorcore
 * (a forced tile shape) and of dense_tensorcore has one tile of tokens, so that stream-K divides each matrix
 * in one way; dense_wgmma, dense_rows and awq_plain sum a row's products in one order; the sums of int8_token
 * and int8_bytes are exact. */
/* clang-format off */
static const LinearInvariant invariants[] = {
    /* weights, most_rows, rows, variant, name */
    {WIDE, CHAIN_TOKENS, CHAIN_TOKENS, 0, "chain_mma"},
    {WIDE, ANY, ANY, LINEAR_WHOLE, "awq_wgmma"},
    {QUANT, ANY, 32, 3, "awq_tensorcore"},
    {QUANT, ANY, 8, 1, "awq_tensorcore_sm75"},
    {QUANT, ANY, ANY, 0, "awq_plain"},
    {INT8, LEAST_BYTES - 1, ANY, 0, "int8_token"},
    {INT8, ANY, ANY, 0, "int8_bytes"},
    {INT8, ANY, ANY, 0, "int8_token"},
    {HALF, ANY, ANY, 0, "dense_wgmma"},
    {HALF, ANY, 128, 0, "dense_tensorcore"},
    {DENSE, ANY, 8, 0, "dense_rows"},
};

/* The rows for matrices of experts: awq_wgmma cuts no tile of experts, experts_plain sums in one order. */
static const LinearInvariant expert_invariants[] = {
    {WIDE, ANY, ANY, 0, "awq_wgmma"},
    {QUANT | DENSE, ANY, ANY, 0, "experts_plain"},
};
/* clang-format on */

#define COUNT(array) (sizeof(array) / sizeof *(array))

const char *weight_type_name(WeightType type) {
  static const char *const names[] = {"4-bit", "8-bit", "FP4", "FP8", "int8", "fp16", "bf16", "fp32"};
  return names[type];
}

const LinearEntry *linear_entry(int i) {
  return i < (int)COUNT(entries) ? &entries[i] : NULL;
}

const LinearEntry *linear_expert_entry(int i) {
  return i < (int)COUNT(expert_entries) ? &expert_entries[i] : NULL;
}

/* Entry i of the table for the query's kind of matrix. */
static const LinearEntry *entry_for(const LinearQuery *query, int i) {
  return query->n_experts > 0 ? linear_expert_entry(i) : linear_entry(i);
}

/* True if the tokens' x fits in shared memory as fp16, beside the partial sums of dense_rows. */
static bool f16_fits(const LinearQuery *query) {
  const size_t pad = (size_t)(query->n_experts > 0 ? LINEAR_MAX_CHOSEN : 1) * DENSE_UNIT,
               held = (size_t)skinny_held_tokens(query->n_tokens);
  return ((size_t)query->n_in + pad) * held * 2 + held * 256 + 256 <= query->device.shared_bytes;
}

static bool skinny_fits(const LinearQuery *query, int int_bytes) {
  return query->n_tokens <= SKINNY_MAX_TOKENS && skinny_plan(query, int_bytes).splits > 0;
}

static bool x_fits(LinearHeld held, const LinearQuery *query) {
  switch (held) {
  case X_UNITS: return skinny_fits(query, SKINNY_F16);
  case X_INT16: return skinny_fits(query, 2);
  case X_INT8: return skinny_fits(query, 1);
  case X_F16: return f16_fits(query);
  case X_STAGED: break;
  }
  return true;
}

/* True if the entry's kernel takes the query's groups. FP4 always has four scales in a tile, which every
 * kernel reads. Where integers need groups of a multiple of 16 or 32, FP8 needs a multiple of 64 (float_mma:
 * of 128); in practice its groups have 128 inputs, or all. */
static bool group_fits(const LinearEntry *entry, const LinearQuery *query) {
  int multiple = entry->group_multiple;
  if (multiple == 0 || query->weights == WEIGHT_FP4) return true;
  if (query->weights == WEIGHT_FP8 && multiple > 1 && multiple < 64)
    multiple = entry->held == X_UNITS ? 128 : 64;
  return query->group % multiple == 0;
}

/* True if the entry's kernel can run the shape, also outside the token range it is chosen for. */
static bool entry_runs(const LinearEntry *entry, const LinearQuery *query) {
  if (!(entry->weights & 1u << query->weights) || entry->act != query->act) return false;
  if (query->device.arch < entry->min_arch || query->device.arch > entry->max_arch) return false;
  if (!group_fits(entry, query)) return false;
  if (entry->launch == LAUNCH_CHAIN_MMA && query->n_out > CHAIN_ROWS * 16 * query->device.n_sms) return false;
  if (entry->launch == LAUNCH_INT8_BYTES && query->weights == WEIGHT_AWQ4 && !query->rotated) return false;
  return query->n_tokens <= entry->limit_tokens && x_fits(entry->held, query);
}

/* True if awq_wgmma has so many tiles that few of them are cut between blocks; with fewer tiles awq_wgmma is
 * slower than dequantising a small matrix. The last tile of tokens does not count, full or not, so that
 * choices end where linear_next_count() looks. */
static bool has_many_tiles(const LinearQuery *query) {
  const int full = (query->n_tokens - 1) / DISPATCH_TILE_TOKENS;
  return ceil_div(query->n_out, DISPATCH_TILE_OUT) * full >= DISPATCH_TILES;
}

/* False for few tokens and weights: cuBLAS takes 44 ms to load a kernel on its first use, more than a model
 * of a few small matrices gains by it. */
static bool is_worth_the_library(const LinearQuery *query) {
  return (long)query->n_in * query->n_out >= DISPATCH_TINY || query->n_tokens > DENSE_MAX_TOKENS;
}

static bool entry_is_meant(const LinearEntry *entry, const LinearQuery *query) {
  const int n = query->n_tokens;
  const long weights = (long)query->n_in * query->n_out;
  const bool small = weights < DISPATCH_SMALL;
  if (n < entry->min_tokens) return false;
  if (query->weights == WEIGHT_F16 && entry->launch == LAUNCH_CUBLAS && !is_worth_the_library(query))
    return false;
  if (!small) return n <= entry->max_tokens;
  return n <= entry->small_tokens ||
         (n <= entry->tiled_tokens && (weights >= DISPATCH_MIDDLE || has_many_tiles(query)));
}

static Status refuse(const LinearQuery *query, const char *what, Error *err) {
  return error_set(
      err, STATUS_MODEL,
      "%s multiplies %d inputs by %d outputs of %s weights in groups of %d with %d rows of %s activations on"
      " compute capability %d.%d",
      what, query->n_in, query->n_out, weight_type_name(query->weights), query->group, query->n_tokens,
      query->act == ACT_INT8 ? "int8" : "fp16", query->device.arch / 100, query->device.arch / 10 % 10);
}

/* The entry with that name for the query's kind of matrix, or NULL. */
static const LinearEntry *entry_named(const LinearQuery *query, const char *name) {
  const LinearEntry *entry = entry_for(query, 0);
  for (int i = 1; entry && strcmp(entry->name, name) != 0; i++) entry = entry_for(query, i);
  return entry;
}

Status linear_invariant(const LinearQuery *query, const LinearInvariant **how, const LinearEntry **entry,
                        Error *err) {
  const bool of_experts = query->n_experts > 0;
  for (size_t i = 0; i < (of_experts ? COUNT(expert_invariants) : COUNT(invariants)); i++) {
    *how = of_experts ? &expert_invariants[i] : &invariants[i];
    if (!((*how)->weights & 1u << query->weights) || query->n_tokens > (*how)->most_rows) continue;
    LinearQuery part = *query;
    if (part.n_tokens > (*how)->rows) part.n_tokens = (*how)->rows;
    *entry = entry_named(query, (*how)->name);
    if (entry_runs(*entry, &part)) return STATUS_OK;
  }
  return refuse(query, "no kernel whose sums are the same beside any rows", err);
}

static Status dispatch_by_name(const LinearQuery *query, const char *name, const LinearEntry **entry,
                               Error *err) {
  const LinearInvariant *how;
  if (strcmp(name, LINEAR_INVARIANT) == 0) return linear_invariant(query, &how, entry, err);
  const LinearEntry *named = entry_named(query, name);
  if (!named) return error_set(err, STATUS_USAGE, "there is no kernel \"%s\"", name);
  char what[64];
  snprintf(what, sizeof what, "kernel %s never", name);
  if (!entry_runs(named, query)) return refuse(query, what, err);
  *entry = named;
  return STATUS_OK;
}

Status linear_dispatch(const LinearQuery *query, const char *forced, const LinearEntry **entry, Error *err) {
  if (forced) return dispatch_by_name(query, forced, entry, err);
  const LinearEntry *next;
  for (int i = 0; (next = entry_for(query, i)); i++)
    if (entry_is_meant(next, query) && entry_runs(next, query)) {
      *entry = next;
      return STATUS_OK;
    }
  return refuse(query, "no kernel", err);
}

/* No threshold of the table lies between n_tokens and `next`; full tiles of tokens end at tile_end. */
int linear_next_count(int n_tokens) {
  int next = n_tokens < 64 ? n_tokens + 1 : n_tokens + n_tokens / 64;
  int tile_end = (n_tokens / DISPATCH_TILE_TOKENS + 1) * DISPATCH_TILE_TOKENS;
  return next < tile_end ? next : tile_end;
}
