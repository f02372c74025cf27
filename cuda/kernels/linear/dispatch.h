/* dispatch.h - which kernel multiplies which matrix: one table, in host code.
 *
 * The first entry that fits wins; the order and the thresholds are measured (LOG.md, "Thresholds"). Nothing
 * here includes or links CUDA. So test/cuda/test_dispatch.c tests both sides of every threshold without a
 * GPU. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "base/status.h"

typedef enum {
  WEIGHT_AWQ4,
  WEIGHT_AWQ8,
  WEIGHT_FP4, /* E2M1 with a scale for 16 inputs: NVFP4, and MXFP4, whose scales (for 32) are stored twice */
  WEIGHT_FP8, /* E4M3 */
  WEIGHT_INT8,
  WEIGHT_F16,
  WEIGHT_BF16,
  WEIGHT_F32
} WeightType;
/* The most experts that a token chooses; the most that a matrix has. */
enum { LINEAR_MAX_CHOSEN = 32, LINEAR_MAX_EXPERTS = 1024 };

typedef enum {
  ACT_F16,
  ACT_INT8
} ActType; /* type of the activations in the matmul; int8 is the user's choice, and fixed for WEIGHT_INT8 */

static inline bool weight_has_zeros(WeightType type) { /* integers in groups with scales and zeros */
  return type == WEIGHT_AWQ4 || type == WEIGHT_AWQ8;
}

static inline bool
weight_has_factors(WeightType type) { /* floating point of 4 or 8 bits, with scales and factors */
  return type == WEIGHT_FP4 || type == WEIGHT_FP8;
}

static inline bool weight_is_quantised(WeightType type) { /* with groups and scales */
  return weight_has_zeros(type) || weight_has_factors(type);
}

static inline int weight_bits(WeightType type) { /* of a quantised type */
  return type == WEIGHT_AWQ4 || type == WEIGHT_FP4 ? 4 : 8;
}

const char *weight_type_name(WeightType type); /* "4-bit", "8-bit", "FP4", "FP8", "int8", "fp16", ... */

/* Compute capability as one number: 8.6 is SM(8, 6). The last digit is 1 if the program holds code for the
 * instructions of this one chip (sm_90a). */
#define SM(major, minor) ((major)*100 + (minor)*10)
#define SM_90A           (SM(9, 0) + 1)
#define SM_ANY           99999

/* clang-format off */
/* The kernels: LAUNCH_NAME is name_kernel of kernel.cuh. */
#define LINEAR_KERNELS(KERNEL) \
  KERNEL(AWQ_DOT, awq_dot) KERNEL(AWQ_PLANES, awq_planes) KERNEL(AWQ_PIPELINED, awq_pipelined) \
  KERNEL(AWQ_TENSORCORE, awq_tensorcore) KERNEL(AWQ_WGMMA, awq_wgmma) KERNEL(CUBLAS, cublas) \
  KERNEL(CUBLAS_PLAIN, cublas_plain) KERNEL(AWQ_PLAIN, awq_plain) KERNEL(INT8_GEMV, int8_gemv) \
  KERNEL(INT8_MMA, int8_mma) KERNEL(INT8_TOKEN, int8_token) KERNEL(DENSE_ROWS, dense_rows) \
  KERNEL(FLOAT_MMA, float_mma) KERNEL(PLANES_WGMMA, planes_wgmma) KERNEL(INT8_WGMMA, int8_wgmma) \
  KERNEL(NARROW_WGMMA, narrow_wgmma) KERNEL(EXPERTS_PLAIN, experts_plain) \
  KERNEL(DENSE_TENSORCORE, dense_tensorcore) KERNEL(DENSE_WGMMA, dense_wgmma) \
  KERNEL(CHAIN_MMA, chain_mma) KERNEL(INT8_BYTES, int8_bytes)

typedef enum {
#define KERNEL(LAUNCH, name) LAUNCH_##LAUNCH,
  LINEAR_KERNELS(KERNEL)
#undef KERNEL
  LAUNCH_COUNT
} LinearLaunch;
/* clang-format on */

/* A matrix of fewer weights than this is small (Qwen3-8B: o, but not q, k and v together). Unless tokens are
 * many, it has too few large tiles for the SMs. */
#define DISPATCH_SMALL (20L << 20)

/* A small matrix of this many weights has enough work for the smaller tiles of awq_wgmma. On an H200, us with
 * 384, 512 and 768 tokens:
 *                                     awq_wgmma         dequantised for cuBLAS
 *     o of Qwen3-30B-A3B, 8M weights  19.0  18.9  23.5  21.1  21.5  28.7
 *     down of Qwen3-0.6B, 3M weights  11.7  11.7  15.3  10.7  10.7  15.4 */
#define DISPATCH_MIDDLE (4L << 20)

/* A small matrix of DISPATCH_TILES full tiles has enough tiles for awq_wgmma. */
#define DISPATCH_TILE_OUT    128
#define DISPATCH_TILE_TOKENS 128
#define DISPATCH_TILES       96

/* chain_mma: the most tokens, and the most tile rows of 16 outputs for each SM. */
#define CHAIN_TOKENS 32
#define CHAIN_ROWS   6

/* True if `busy` is at least 85% of n SMs. Idle SMs then cost less than blocks with parts of two tiles. */
static inline bool dispatch_busy_enough(int busy, int n) {
  return 20 * busy >= 17 * n;
}

/* dense_rows pads each row of x to a multiple of DENSE_UNIT inputs. */
#define DENSE_UNIT 256

/* How much of x a block holds in shared memory while it runs. On chips with little shared memory this limits
 * n_in. With split-K (skinny_plan.h), "all of x" is all inputs of the block's split. */
typedef enum {
  X_STAGED, /* a few stages of x at a time */
  X_UNITS,  /* all of x as fp16, split-K */
  X_INT16,  /* all of x as int16, split-K */
  X_INT8,   /* all of x as int8, split-K */
  X_F16     /* all of x as fp16, rows padded to DENSE_UNIT */
} XInShared;

typedef struct {
  const char *name;
  LinearLaunch launch;
  unsigned weights; /* set of 1 << WeightType */
  ActType act;
  int from, to;  /* least and most tokens that the entry is chosen for. `to` 0: never */
  int from_int8; /* `from` of int8 weights; 0: as `from` */
  int to_small;  /* `to` of a matrix of fewer than DISPATCH_SMALL weights; 0: as `to`, < 0: never */
  int to_tiled;  /* `to` of a small matrix of at least DISPATCH_TILES tiles or DISPATCH_MIDDLE weights */
  int limit;     /* most tokens that the kernel can take, also when forced; 0: any number */
  int group;     /* quantised: groups are multiples of this (see group_fits()) */
  XInShared x;
  int first_chip, last_chip; /* SM(...) or SM_90A */
} LinearEntry;

typedef struct {
  int arch; /* SM(...) or SM_90A */
  int n_sms;
  size_t shared_bytes; /* shared memory that one block may use */
} DeviceLimits;

typedef struct {
  WeightType weights;
  ActType act;
  int n_in, n_out; /* > 0 */
  int group;       /* quantised: inputs per scale, as laid out (linear.h); dense, int8: 0 */
  int n_tokens;    /* > 0 */
  int n_experts;   /* not 0: n_in and n_out are those of one token's chosen experts as one matrix */
  DeviceLimits device;
  bool rotated; /* 4 bits: the matrix has a rotated copy in int8 (DeviceLinear.rotated) */
} LinearQuery;

/* Entry i of the table in the order of choice; NULL past the last. */
const LinearEntry *linear_entry(int i);
/* linear_entry() of the table for matrices of experts. */
const LinearEntry *linear_expert_entry(int i);

/* *entry = the first entry that fits, or the entry named `forced` (NULL: none is forced). STATUS_MODEL if no
 * such entry can run the shape; the message names the shape. STATUS_USAGE for an unknown name. */
Status linear_dispatch(const LinearQuery *query, const char *forced, const LinearEntry **entry, Error *err);

/* The name to force where a row's bits must not depend on the other rows. linear_run() then uses kernels that
 * give a row the same bits for any number of rows, at most LinearInvariant.rows rows a launch. */
#define LINEAR_INVARIANT "invariant"

/* LinearCall.variant of awq_wgmma: the kernel chooses a shape and cuts no tile along the inputs. Each output
 * is then one chain of products. Its bits are the same in every shape and in chain_mma. */
enum { LINEAR_WHOLE = -1 };

typedef struct {
  const char *name; /* of an entry */
  unsigned weights; /* set of 1 << WeightType */
  int most_rows;    /* most rows of a call; larger calls use the next entry that fits, with the same bits */
  int rows;         /* most rows of a launch */
  int variant;      /* of LinearCall: a tile shape, LINEAR_WHOLE, or 0 where all shapes give the same bits */
} LinearInvariant;

/* How LINEAR_INVARIANT multiplies the query's matrix. *how = the first LinearInvariant that can run it,
 * *entry = the entry of *how. STATUS_MODEL if none can. */
Status linear_invariant(const LinearQuery *query, const LinearInvariant **how, const LinearEntry **entry,
                        Error *err);

/* The token count to query after n_tokens. Repeated from 1 on, this visits the last count of every interval
 * in which the table chooses one entry. So each entry is seen with its largest workspace. */
int linear_next_count(int n_tokens);
