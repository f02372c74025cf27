/* dispatch.c - the table of linear kernels and the search in it, in host code.
 *
 * Always true: every weight type has an entry for each token count, group and chip that the program is built
 * for, int8 weights with int8 activations and not as experts, all others with fp16 activations. If a kernel
 * is forced, or if int8 activations are asked for weights that are not int8, no entry may fit. */
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
#define NEVER -1
#define A8    ACT_INT8

/* cuBLAS is not loaded for fewer fp16 weights than DISPATCH_TINY with at most DENSE_MAX_TOKENS tokens, if
 * dense_rows can hold x. */
#define DISPATCH_TINY    (1L << 20)
#define DENSE_MAX_TOKENS 8

#define LEAST_INT8 9  /* from so many tokens on int8_bytes is faster than int8_token */
#define MOST_INT8  64 /* tokens that int8_wgmma is meant for */

/* First and last chip; CUDA 13 builds for none older than 7.5. */
#define FROM_75 .first_chip = SM(7, 5), .last_chip = SM_ANY
#define FROM_80 .first_chip = SM(8, 0), .last_chip = SM_ANY
#define ONLY_75 .first_chip = SM(7, 5), .last_chip = SM(7, 9)
#define ONLY_90 .first_chip = SM_90A, .last_chip = SM_90A

/* clang-format off */
/* The first match wins. Thresholds: LOG.md, "Thresholds". */
static const LinearEntry entries[] = {
  /* .from and .to are for plain products. linear.cu and layers/narrow.c take planes_wgmma for other counts as
   * well, where it computes the RMSNorm of x, or takes or makes planes (LinearCall in linear.h). */
  {"planes_wgmma", LAUNCH_PLANES_WGMMA, AWQ4, .from = 17, .to = 24, .to_small = NEVER, .limit = 32,
    .group = 64, ONLY_90},
  {"narrow_wgmma", LAUNCH_NARROW_WGMMA, WIDE, .from = 2, .to = 128, .group = 16, ONLY_90},
  {"awq_planes", LAUNCH_AWQ_PLANES, INTS, .from = 1, .to = 8, .limit = 8, .group = 32, .x = X_INT16, FROM_80},
  {"float_mma", LAUNCH_FLOAT_MMA, QUANT, .from = 1, .to = 8, .limit = 8, .group = 16, .x = X_UNITS, FROM_80},
  {"awq_wgmma", LAUNCH_AWQ_WGMMA, WIDE, .from = 129, .to = ANY, .to_small = 256, .to_tiled = 3072,
    .group = 32, ONLY_90},
  {"awq_tensorcore", LAUNCH_AWQ_TENSORCORE, QUANT, .from = 1, .to = 256, .to_small = 192, .group = 16,
    FROM_80},
  {"awq_tensorcore_sm75", LAUNCH_AWQ_TENSORCORE, QUANT, .from = 1, .to = 256, .to_small = 192, .group = 16,
    ONLY_75},
  {"awq_dequant", LAUNCH_CUBLAS, QUANT, .from = 64, .to = ANY, .group = 1, FROM_75},
  {"awq_plain", LAUNCH_AWQ_PLAIN, QUANT, .from = 1, .to = ANY, .group = 1, FROM_75},
  {"int8_gemv", LAUNCH_INT8_GEMV, INTS, .act = A8, .from = 1, .to = 4, .to_small = 8, .limit = 8,
    .group = 32, .x = X_INT8, FROM_75},
  {"int8_wgmma", LAUNCH_INT8_WGMMA, AWQ4, .act = A8, .from = 9, .to = MOST_INT8, .group = 64, ONLY_90},
  {"int8_bytes", LAUNCH_INT8_BYTES, BYTES, .act = A8, .from = 17, .from_int8 = LEAST_INT8, .to = ANY,
    .group = 1, ONLY_90},
  {"int8_mma", LAUNCH_INT8_MMA, INTS, .act = A8, .from = 1, .to = ANY, .group = 32, FROM_75},
  {"int8_token", LAUNCH_INT8_TOKEN, INT8, .act = A8, .from = 1, .to = ANY, FROM_75},
  {"dense_cublas", LAUNCH_CUBLAS, F16, .from = 3, .to = ANY, FROM_75},
  {"dense_wgmma", LAUNCH_DENSE_WGMMA, HALF, .from = 8, .to = ANY, ONLY_90},
  {"dense_rows", LAUNCH_DENSE_ROWS, DENSE, .from = 1, .to = 8, .limit = 8, .x = X_F16, FROM_75},
  {"dense_converted", LAUNCH_CUBLAS, DENSE, .from = 1, .to = ANY, FROM_75},
  /* Reached only by LINEAR_INVARIANT and by name. */
  {"dense_tensorcore", LAUNCH_DENSE_TENSORCORE, HALF, .limit = 128, FROM_80},
  {"chain_mma", LAUNCH_CHAIN_MMA, WIDE, .limit = CHAIN_TOKENS, .group = 32, ONLY_90},
  /* Reference forms: the simplest form of each matmul, kept for comparison. Only --kernel and tests reach
   * them, by name. On every chip some entry above is faster. */
  {"awq_gemv", LAUNCH_AWQ_DOT, INTS, .limit = 1, .group = 32, .x = X_INT16, FROM_75},
  {"awq_small_batch", LAUNCH_AWQ_DOT, INTS, .limit = 8, .group = 32, .x = X_INT16, FROM_75},
  {"awq_pipelined", LAUNCH_AWQ_PIPELINED, INTS, .group = 32, FROM_75},
  {"awq_dequant_plain", LAUNCH_CUBLAS_PLAIN, QUANT, .group = 1, FROM_75},
};

/* Matrices of experts. With few tokens, reading the chosen experts takes most of the time. Activations are
 * fp16, whatever is asked for other layers. */
static const LinearEntry expert_entries[] = {
  {"awq_planes", LAUNCH_AWQ_PLANES, INTS, .from = 1, .to = 1, .limit = 1, .group = 32, .x = X_INT16, FROM_80},
  {"float_mma", LAUNCH_FLOAT_MMA, FLOAT, .from = 1, .to = 1, .limit = 1, .group = 16, .x = X_UNITS, FROM_80},
  {"dense_rows", LAUNCH_DENSE_ROWS, DENSE, .from = 1, .to = 1, .limit = 1, .x = X_F16, FROM_75},
  {"awq_wgmma", LAUNCH_AWQ_WGMMA, WIDE, .from = 16, .to = ANY, .group = 32, ONLY_90},
  {"awq_tensorcore", LAUNCH_AWQ_TENSORCORE, QUANT, .from = 1, .to = ANY, .group = 16, FROM_80},
  {"awq_tensorcore_sm75", LAUNCH_AWQ_TENSORCORE, QUANT, .from = 1, .to = ANY, .group = 16, ONLY_75},
  {"experts_plain", LAUNCH_EXPERTS_PLAIN, QUANT | DENSE, .from = 1, .to = ANY, .group = 1, FROM_75},
};
/* clang-format on */

/* The first match wins. Why a row of x gets the same bits whatever the other rows are: chain_mma and
 * awq_wgmma (in whole tiles of any shape) add an output's products in input order, 16 inputs at a time. A
 * launch of awq_tensorcore (a forced tile shape) or dense_tensorcore has one tile of tokens, so stream-K
 * divides each matrix in one way. dense_wgmma, dense_rows and awq_plain sum a row's products in one order.
 * The sums of int8_token and int8_bytes are exact. */
/* clang-format off */
static const LinearInvariant invariants[] = {
    {"chain_mma", WIDE, .most_rows = CHAIN_TOKENS, .rows = CHAIN_TOKENS},
    {"awq_wgmma", WIDE, .most_rows = ANY, .rows = ANY, .variant = LINEAR_WHOLE},
    {"awq_tensorcore", QUANT, .most_rows = ANY, .rows = 32, .variant = 3},
    {"awq_tensorcore_sm75", QUANT, .most_rows = ANY, .rows = 8, .variant = 1},
    {"awq_plain", QUANT, .most_rows = ANY, .rows = ANY},
    {"int8_token", INT8, .most_rows = LEAST_INT8 - 1, .rows = ANY},
    {"int8_bytes", INT8, .most_rows = ANY, .rows = ANY},
    {"int8_token", INT8, .most_rows = ANY, .rows = ANY},
    {"dense_wgmma", HALF, .most_rows = ANY, .rows = ANY},
    {"dense_tensorcore", HALF, .most_rows = ANY, .rows = 128},
    {"dense_rows", DENSE, .most_rows = ANY, .rows = 8},
};

/* The entries for matrices of experts: awq_wgmma cuts no tile of experts, experts_plain sums in one order. */
static const LinearInvariant expert_invariants[] = {
    {"awq_wgmma", WIDE, .most_rows = ANY, .rows = ANY},
    {"experts_plain", QUANT | DENSE, .most_rows = ANY, .rows = ANY},
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

/* True if shared memory holds x of all tokens as fp16 beside the partial sums of dense_rows. */
static bool f16_fits(const LinearQuery *query) {
  const size_t pad = (size_t)(query->n_experts > 0 ? LINEAR_MAX_CHOSEN : 1) * DENSE_UNIT,
               held = (size_t)skinny_held_tokens(query->n_tokens);
  return ((size_t)query->n_in + pad) * held * 2 + held * 256 + 256 <= query->device.shared_bytes;
}

static bool skinny_fits(const LinearQuery *query, int int_bytes) {
  return query->n_tokens <= SKINNY_MAX_TOKENS && skinny_plan(query, int_bytes).splits > 0;
}

static bool x_fits(XInShared x, const LinearQuery *query) {
  switch (x) {
  case X_UNITS: return skinny_fits(query, SKINNY_F16);
  case X_INT16: return skinny_fits(query, 2);
  case X_INT8: return skinny_fits(query, 1);
  case X_F16: return f16_fits(query);
  case X_STAGED: break;
  }
  return true;
}

/* True if the entry's kernel takes the query's groups. FP4's groups, four in each tile, suit every kernel.
 * Where integers need groups of a multiple of 16 or 32, FP8 needs a multiple of 64 (float_mma: of 128). In
 * practice an FP8 group has 128 inputs, or all. */
static bool group_fits(const LinearEntry *entry, const LinearQuery *query) {
  int multiple = entry->group;
  if (multiple == 0 || query->weights == WEIGHT_FP4) return true;
  if (query->weights == WEIGHT_FP8 && multiple > 1 && multiple < 64)
    multiple = entry->x == X_UNITS ? 128 : 64;
  return query->group % multiple == 0;
}

/* True if the entry's kernel can run the shape, inside or outside the entry's range of tokens. */
static bool entry_runs(const LinearEntry *entry, const LinearQuery *query) {
  if (!(entry->weights & 1u << query->weights) || entry->act != query->act) return false;
  if (query->device.arch < entry->first_chip || query->device.arch > entry->last_chip) return false;
  if (!group_fits(entry, query)) return false;
  if (entry->launch == LAUNCH_CHAIN_MMA && query->n_out > CHAIN_ROWS * 16 * query->device.n_sms) return false;
  if (entry->launch == LAUNCH_INT8_BYTES && query->weights == WEIGHT_AWQ4 && !query->rotated) return false;
  return (entry->limit == 0 || query->n_tokens <= entry->limit) && x_fits(entry->x, query);
}

/* True if awq_wgmma has so many tiles that few of them are cut between blocks. With fewer tiles a small
 * matrix is faster dequantised for cuBLAS. The last tile of tokens never counts, so the choice changes only
 * after token counts that linear_next_count() visits. */
static bool has_many_tiles(const LinearQuery *query) {
  const int full = (query->n_tokens - 1) / DISPATCH_TILE_TOKENS;
  return ceil_div(query->n_out, DISPATCH_TILE_OUT) * full >= DISPATCH_TILES;
}

/* False for few tokens and few weights, if dense_rows can hold x. On first use cuBLAS takes 44 ms to load a
 * kernel. A model of a few small matrices gains less than that. */
static bool is_worth_the_library(const LinearQuery *query) {
  return (long)query->n_in * query->n_out >= DISPATCH_TINY || query->n_tokens > DENSE_MAX_TOKENS ||
         !f16_fits(query);
}

static bool entry_is_meant(const LinearEntry *entry, const LinearQuery *query) {
  const int n = query->n_tokens;
  const long weights = (long)query->n_in * query->n_out;
  const bool small = weights < DISPATCH_SMALL;
  if (n < (query->weights == WEIGHT_INT8 && entry->from_int8 ? entry->from_int8 : entry->from)) return false;
  if (query->weights == WEIGHT_F16 && entry->launch == LAUNCH_CUBLAS && !is_worth_the_library(query))
    return false;
  if (!small || entry->to_small == 0) return n <= entry->to;
  return n <= entry->to_small ||
         (n <= entry->to_tiled && (weights >= DISPATCH_MIDDLE || has_many_tiles(query)));
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

/* True for int8 activations of many tokens on Hopper, if 4-bit weights have no rotated copy. In this case
 * fp16 is about as fast and closer to exact (LOG.md, "int8 without copies"). */
static bool is_as_fast_in_f16(const LinearQuery *query) {
  return query->act == ACT_INT8 && query->weights == WEIGHT_AWQ4 && query->n_experts == 0 &&
         !query->rotated && query->n_tokens > MOST_INT8 && query->device.arch == SM_90A;
}

Status linear_dispatch(const LinearQuery *query, const char *forced, const LinearEntry **entry, Error *err) {
  if (forced) return dispatch_by_name(query, forced, entry, err);
  const LinearEntry *next;
  LinearQuery as = *query;
  if (is_as_fast_in_f16(query)) as.act = ACT_F16;
  for (int i = 0; (next = entry_for(&as, i)); i++)
    if (entry_is_meant(next, &as) && entry_runs(next, &as)) {
      *entry = next;
      return STATUS_OK;
    }
  return refuse(query, "no kernel", err);
}

/* No interval of the table (LinearEntry.to) ends between n_tokens and `next`. Some end with a full tile of
 * tokens, hence tile_end. */
int linear_next_count(int n_tokens) {
  int next = n_tokens < 64 ? n_tokens + 1 : n_tokens + n_tokens / 64;
  int tile_end = (n_tokens / DISPATCH_TILE_TOKENS + 1) * DISPATCH_TILE_TOKENS;
  return next < tile_end ? next : tile_end;
}
