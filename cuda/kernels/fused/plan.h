/* plan.h - how a fused step (step.h) divides a layer's weights among clusters and blocks. Planning needs no
 * GPU.
 *
 * The GPU runs C clusters of 8 blocks, one block on each SM. A block of the one-token kernel multiplies:
 *
 *             tile rows (16 outputs, layout.cuh)               by inputs
 *   qkv       one of each pack of its cluster's heads          all of hidden
 *   gate, up  two of each FFN block (varied experts: one)      all of hidden
 *   o         hidden / 8 outputs                               the heads of its cluster
 *   down      hidden / 8 outputs                               the FFN blocks of its cluster
 *
 * A pack is 128 outputs of q, k and v: a head of 128, half of a hybrid's head of 256, or two heads of 64 (two
 * queries, or key and value). An FFN block is 128 features of the gated product (varied experts: 64). Cluster
 * c < n_kv_heads has KV head c and its query heads (or several clusters share a KV head: step_sharers()). The
 * FFN blocks are divided among all clusters. A block streams stages through a ring of slots. A stage is
 * `rows` tile rows of a matrix by one split of the inputs, 32 keys and their values (64 in 8 bits, 16 with
 * heads of 256 or latents), a block's rows of a head's recurrent state, or a few rows of key_halves,
 * value_halves, the folded router or lm_head. Four warpgroups take stages in turn (one_matmul.cuh).
 *
 * The kernels of up to 2, 4 and 8 tokens divide heads and FFN blocks among clusters in the same way. Each
 * block owns some groups of 128 columns of hidden (with 20 groups, two or three a block), and no other block
 * of the cluster sees x there:
 *
 *   qkv       all tile rows of its cluster's heads             its columns
 *   gate, up  all tile rows of its cluster's FFN blocks        its columns
 *   o, down   its columns as outputs                           its cluster's heads, FFN blocks
 *
 * With eight tokens block t adds up token t's partial sums of qkv, gate and up. With four tokens each token
 * has two blocks, t and t + 4, which take heads and FFN blocks alternately. With two tokens each token has
 * four blocks.
 *
 *   stage     4 tile rows, one for each warp of a warpgroup, by up to STEP_STAGE_GROUPS groups
 *   wave      16 tile rows, 4 a warpgroup. Its stages come in this order: the first groups of inputs for each
 *             of the four warpgroups, then the next groups for each
 *   chunk     8 tile rows of qkv, gate or up: the partial sums that are exchanged and added up together
 *
 * A stage of lm_head is 8 rows by lm_head_width inputs. The warps of a warpgroup divide these inputs. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/host_device.h"
#include "base/status.h"

enum {
  STEP_BLOCKS = 8, /* blocks in a cluster */
  STEP_WARPGROUPS = 4,
  STEP_WARPGROUP_WARPS = 4,
  STEP_WARPS = STEP_WARPGROUPS * STEP_WARPGROUP_WARPS, /* warps that multiply; four more load and prefetch */
  STEP_LOADERS = 3,
  STEP_THREADS = 32 * STEP_WARPS,
  STEP_ALL_THREADS = STEP_THREADS + 32 * (STEP_LOADERS + 1),
  STEP_GROUP = 128,    /* inputs: a group of the weights, or 2 groups of 64, 4 of 32, or with FP4 8 of 16 */
  STEP_FP4_GROUP = 16, /* StepShape.group of FP4 weights; MXFP4's groups of 32 become two of 16 */
  STEP_FP4_PARTS = STEP_GROUP / STEP_FP4_GROUP,
  /* Values of StepShape.group that only mark a kind of weights: FP8 with a scale for each STEP_GROUP inputs,
   * int8 with a scale for each output, and fp16 without scales. They do not count inputs, nor do the _PARTS
   * made from them count parts. */
  STEP_FP8_GROUP = 8,
  STEP_INT8_GROUP = 4,
  STEP_FP8_PARTS = STEP_GROUP / STEP_FP8_GROUP,
  STEP_INT8_PARTS = STEP_GROUP / STEP_INT8_GROUP,
  STEP_HALF_GROUP = 2,
  STEP_HALF_PARTS = STEP_GROUP / STEP_HALF_GROUP,
  STEP_FACTOR_BYTES = 64, /* FP4, FP8, int8: a tile row's factors, one fp32 an output, in place of zeros */
  STEP_PACK = STEP_GROUP, /* outputs of q, k, v made at once: a head of 128, two of 64, half of 256 */
  STEP_MAX_HEAD_DIM = 128,
  STEP_SPAN = 4,          /* groups that a warp multiplies at once, at most */
  STEP_BYTES_SPAN = 2,    /* STEP_SPAN for weights of 8 bits: as many bytes as with 4 bits */
  STEP_HALF_SPAN = 1,     /* STEP_SPAN for weights in fp16: as many bytes as with 4 bits */
  STEP_MAX_SPLITS = 8,    /* KSplit.splits, at most */
  STEP_HALF_SPLITS = 16,  /* STEP_MAX_SPLITS for weights in fp16 */
  STEP_KEY_SETS = 4,      /* sets of warps that attend, each to its own stage of keys, 16 keys a warp */
  STEP_MAX_CLUSTERS = 16, /* an H200 runs 15 */
  STEP_SUM_BUFFERS = 3,   /* buffers of the all-reduce: allreduce.cuh */
  STEP_MAX_SLOTS = 16,
  STEP_MAX_SHARED_HEADS = 8, /* query heads of a KV head (latent attention: of a cluster), at most: the
                              * columns of one mma */
  STEP_KEYS = 32,            /* positions in a stage of the KV cache */
  STEP_KEYS_Q8 = 64,         /* positions in a stage of a cache in 8 bits: as many bytes as in fp16 */
  STEP_KEYS_256 = 16,        /* positions in a stage of an fp16 cache with heads of 256, and of latents */
  STEP_MAX_HIDDEN = 8192,
  STEP_ROUTER_ROWS = 8,                 /* rows of the router that a warp multiplies at once */
  STEP_FOLDED_STAGES = STEP_WARPGROUPS, /* stages of a block's rows of the folded router, at most */
  STEP_MAX_EXPERTS = STEP_BLOCKS * STEP_FOLDED_STAGES * 4, /* experts at most; a hybrid: twice as many */
  STEP_MAX_CHOSEN = 16,       /* chosen experts of a token, at most, a shared expert included */
  STEP_VARS_BYTES = 784,      /* bytes of Vars (block.cuh), which lies before the areas of StepOffsets */
  STEP_ENTRY_BYTES = 16,      /* bytes of an entry in the table of stages (stages.cuh; with experts four times
                               * as many), or in the table of tasks (one_matmul.cuh) */
  STEP_ENTRY_GROUPS = 31,     /* groups (varied experts' down: half groups) in a copy, at most: 5 bits
                               * (stages.cuh) */
  STEP_LONG = 4096,           /* from this position on, reading the KV cache limits attention */
  STEP_PREFETCH_STAGES = 16,  /* stages prefetched into L2 by default, at most */
  STEP_MOST_BEST = 64,        /* best logits that a step finds by lm_head in 8 bits, at most */
  STEP_SCREEN_ROWS = 16,      /* rows in a stage of lm_head in 8 bits, at most */
  STEP_SCREEN_TAIL = 16,      /* bytes of such a row's tail; tails follow all rows (screen.h) */
  STEP_SCREEN_SCRATCH = 2432, /* bytes for ScreenScratch (one_screen.cuh), at StepOffsets.exchange */
  STEP_IN_FLIGHT =
      64 << 10, /* bytes of loads in flight in a block; with over 70 KB the all-reduce slows down */
};

/* Sizes of the kernels of several tokens. */
enum {
  STEP_KERNELS = 4, /* for up to 1, 2, 4 and 8 tokens */
  STEP_MAX_TOKENS = 1 << (STEP_KERNELS - 1),
  STEP_STAGE_GROUPS = 5,                        /* groups of a stage, at most */
  STEP_SPANS_BYTES = 16 + 16 * STEP_MAX_TOKENS, /* bytes of KeySpans (few/block.cuh) */
  STEP_CHUNKS = 8,                              /* slots for chunks in a block, a power of 2 */
  STEP_CHUNK_BYTES = STEP_BLOCKS * 8 * 64,      /* bytes: 8 blocks x 8 tile rows x 16 floats */
  STEP_SUM_TURNS = 4,                           /* buffers of the all-reduce: few/residual.cuh */
  STEP_MAX_QUERIES = 32,     /* columns of attention, at most: query heads of a KV head times tokens */
  STEP_LM_HEAD_ROWS = 8,     /* rows in a stage of lm_head */
  STEP_LM_HEAD_WIDTH = 1024, /* inputs in a stage of lm_head, at most */
  STEP_LM_HEAD_PAD = 64,     /* bytes between a stage's rows, which then begin in different banks */
};

/* Split-K of a block's share of a matrix. The inputs are cut into `splits`. A stage is one split of `rows`
 * tile rows. k_warps warps of a warpgroup divide its inputs; the other warps take other tile rows. */
typedef struct {
  int n_groups; /* groups of inputs */
  int splits;   /* 1 .. step_most_splits(): split s begins with group s * n_groups / splits */
  int groups;   /* groups of the largest split */
  int k_warps;  /* warps of a warpgroup that share a tile row: 1, 2 or 4 */
  int span;     /* groups of a warp, at most step_span() */
  int rows;     /* tile rows of a stage: STEP_WARPGROUP_WARPS / k_warps */
} KSplit;

/* The plan's input: a model's sizes and a chip's limits. */
typedef struct {
  int hidden, intermediate, n_layers, n_heads, n_kv_heads, vocab_size;
  int group; /* inputs that share a scale and a zero point: 32, 64 or 128; for FP4, FP8, int8 and fp16 weights
              * STEP_FP4_GROUP, STEP_FP8_GROUP, STEP_INT8_GROUP and STEP_HALF_GROUP */
  int head_dim;        /* 64 or 128; 256: a hybrid; STEP_LATENT_HEAD: latent attention (both below) */
  int n_clusters;      /* clusters of 8 blocks that are to run at once */
  int width;           /* varied experts (below): the model's hidden size; else 0 */
  size_t shared_bytes; /* the most shared memory that one block may have */
  int max_slots;       /* slots of the ring, at most; 0: as many as fit */
  /* n_experts 0: dense; else `intermediate` is that of all chosen experts together. In a hybrid and with
   * latent attention the last choice is the shared expert, which every token takes. */
  int n_experts, n_chosen;
  int n_gpus; /* if > 1: the GPUs that share each layer; all sizes are those of one GPU's part */
  bool q8;    /* the KV cache is KV_Q8; else fp16 */
  /* A hybrid: layers of attention with heads of 256, whose outputs have gates, and layers of the gated delta
   * rule with heads of 128. Layer l is of the delta rule if bit l of delta_layers is set. */
  int n_key_heads, n_value_heads;
  int attn_group; /* varied experts: the group of q, k, v and o (`group` is that of experts); else 0 */
  uint64_t delta_layers;
  /* Latent attention (below): sizes as in LatentConfig; the first n_dense layers have an MLP of dense_width
   * features in place of experts. */
  int q_rank, nope_dim, value_dim, n_dense, dense_width;
} StepShape;

/* Byte offsets in a block's shared memory. one_kernel.cuh and few/kernel.cuh have tables of the areas that
 * change their use with the phase. All kernels use the first offsets. Kernels of one token use the offsets
 * under "one token", kernels of several tokens the offsets under "several tokens"; a comment says where the
 * other kind uses an offset, too. */
typedef struct {
  int stage_table; /* table of a layer's stages */
  int heads; /* half [8 * StepPlan.columns][head_dim] queries; new keys [tokens][head_dim], and values */
  int total;

  /* one token */
  int x;        /* float [hidden]: x of lm_head and, unless a block owns whole groups (step_owns_groups()), of
                 * qkv, gate and up; at other times partial sums, softmax states of warps, or x of
                 * value_halves (latent attention). Several tokens: [groups of hidden][tokens][256 bytes]:
                 * x of lm_head as it arrives, in int8 planes (FP4: halves), which make_halves() turns in
                 * place into halves divided by rms */
  int x_planes; /* [groups][256 bytes]: x of qkv, gate and up as in `planes`; at the offset of x if a block
                 * owns whole groups, else at that of planes. Its scales: x_scales */
  int exchange; /* float: q, k, v, or with latent attention the outputs of q_a, kv_a and q_b, then partial
                  * scores; attention's output as planes and, with experts, float; the gated product; for
                  * lm_head best logits, or ScreenScratch. Several tokens: lm_head's sums */
  int sums;     /* float: partial sums of o, down and q_b */
  int planes;   /* [groups][256 bytes]: x of a matmul as two int8 planes; with FP4, FP8 and fp16 as halves,
                 * with int8 as bytes. If a block owns whole groups: only x of down and of q_b, and scratch
                 * of 256 bytes for each of the 16 warps */
  int attention; /* at the offset of planes, states of the 8 blocks: half [8][heads_per_kv][step_state_dim()],
                  * then float2 {maximum, sum} [8][heads_per_kv] */
  int scales;    /* float2 [groups][step_x_scales()] {scale, scale * sum} */
  int small;     /* float [hidden / 32] sums of squares, float2 [64] rope, float [2][16][8] lm_head's sums */
  int residual;  /* float [slice]: this block's columns of the residual stream */
  int tasks;     /* table of each warp's part of each stage (one_matmul.cuh) */
  int experts;   /* int ids, float logits [n_chosen]; weights [FFN blocks of a cluster]; keys of logits
                  * [step_router_rows()]; the block's columns of the residual stream [slice]; candidates
                  * [8][step_candidates()] */
  int mixers;    /* a hybrid: MixVars; latent attention: LatentVars (block.cuh) */
  int gates;     /* a hybrid: float [query heads of the cluster][256], factors of attention's output */
  int delta;     /* a hybrid, in place of attention: outputs [4 value heads][128], sums of squares [4][32] */
  int long_sums; /* float: partial sums of qkv, gate and up: at the offset of x; in a hybrid after x; where a
                  * block owns whole groups after x_planes and their scales */

  /* several tokens */
  int squares;      /* float [tokens][groups of hidden]: sums of squares of the residual stream */
  int x_scales;     /* float2 [groups][step_x_scales()][tokens] {scale, scale * sum}: of `slice`; for lm_head,
                   * of `x`. One token: of x_planes */
  int in_scales;    /* float2 [groups][step_x_scales()][tokens] {scale, scale * sum}: of `in` */
  int rope;         /* float2 [64]: rope factors of the token whose chunks this block adds up */
  int spans;        /* KeySpans (few/block.cuh) */
  int chunks;       /* barriers [STEP_CHUNKS] chunk_came(), [turns][STEP_CHUNKS] chunk_taken() */
  int chunk_sums;   /* float [STEP_CHUNKS][block][8 tile rows][16]: chunks of this block's token */
  int slice;        /* [groups of the block's columns][tokens][256 bytes]: x of qkv, gate and up as int8
                     * planes; FP4: halves */
  int warp_values;  /* half [states][queries][head_dim]: attention's output over each warp's keys */
  int warp_weights; /* float2 {maximum, sum} [states][queries] */
  /* Softmax states from the cluster's 8 blocks: half [packs of the block][8][128], then float2 {maximum, sum}
   * [packs][8][heads of a pack]. */
  int states;
  int in; /* [groups][tokens][256 bytes]: x of o and down as int8 planes; FP4: halves */
} StepOffsets;

typedef struct {
  StepShape shape;
  int tokens;       /* tokens of a step, at most: 1, 2, 4 or 8 */
  int heads_per_kv; /* query heads of a cluster that attends; in a hybrid: at most */
  /* o_packs: packs of a cluster's inputs of o; these are as many as its packs of queries, but in a hybrid and
   * with latent attention. qkv_packs: its packs of projections: q, k and v, or what takes their place. In a
   * hybrid both are the most that a cluster has in any layer. */
  int o_packs;
  int qkv_packs;
  int columns;          /* sets of eight queries, each the columns of an mma: 1, 2 or 4 */
  int most_ffn_blocks;  /* FFN blocks of a cluster, at most */
  int states;           /* softmax states of a block's warps, at most; one token: plus that of the new key */
  int lm_head_rows;     /* rows in a stage of lm_head */
  int n_lm_head_stages; /* stages of lm_head in all blocks; several tokens: each is loaded in hidden /
                         * lm_head_width parts */
  int n_slots;          /* slots of the ring */
  int stage_bytes;      /* bytes of a full stage of weights */
  int slot_bytes;       /* a multiple of 128 */
  int ring_at;          /* offset of the ring: after the areas; one token: before them, because some reads go
                         * beyond the ring's end, and must stay in shared memory */
  StepOffsets off;

  /* one token */
  int slice;           /* columns of hidden that a block owns: hidden / 8 */
  int attending;       /* clusters that attend */
  int log_sharers;     /* log2 of clusters that share a KV head, up to step_sharers(); hybrid, latents: 0 */
  int expert_blocks;   /* step_expert_blocks() */
  int screen_rows;     /* rows in a stage of lm_head in 8 bits (screen.h) */
  int n_screen_stages; /* stages of lm_head in 8 bits, in all blocks */
  KSplit full, o;
  KSplit down[2]; /* of a cluster with most_ffn_blocks FFN blocks, and of a cluster with one less */
  /* Latent attention: q_b; down of layers without experts, for most_dense_blocks FFN blocks and one less. */
  KSplit q_b, dense_down[2];
  int most_dense_blocks; /* most_ffn_blocks of layers without experts */

  /* several tokens */
  int queries;       /* heads_per_kv * tokens */
  int members;       /* warps that share a stage of keys; each has eight queries, with all keys or half */
  int lm_head_width; /* inputs in a stage of lm_head */
} StepPlan;

/* True if all fields are equal. */
CONSTEXPR HOST_DEVICE bool step_same_shape(const StepShape *a, const StepShape *b) {
  return a->hidden == b->hidden && a->intermediate == b->intermediate && a->n_layers == b->n_layers &&
         a->n_heads == b->n_heads && a->n_kv_heads == b->n_kv_heads && a->vocab_size == b->vocab_size &&
         a->group == b->group && a->head_dim == b->head_dim && a->n_clusters == b->n_clusters &&
         a->shared_bytes == b->shared_bytes && a->max_slots == b->max_slots && a->n_experts == b->n_experts &&
         a->n_chosen == b->n_chosen && a->n_gpus == b->n_gpus && a->q8 == b->q8 &&
         a->n_key_heads == b->n_key_heads && a->n_value_heads == b->n_value_heads &&
         a->delta_layers == b->delta_layers && a->width == b->width && a->attn_group == b->attn_group &&
         a->q_rank == b->q_rank && a->nope_dim == b->nope_dim && a->value_dim == b->value_dim &&
         a->n_dense == b->n_dense && a->dense_width == b->dense_width;
}

/* --- varied experts (gpt-oss): experts in FP4 beside dense q, k, v and o, with biases, sinks and windows.
 *
 * The model's hidden size and the width of an expert are only multiples of 64. So `hidden` is rounded up to
 * a multiple of 1,024, with columns of 0 to which nothing is added, and an FFN block has 64 features, half of
 * a group of down's inputs. */

enum { STEP_VARIED_COLUMNS = STEP_BLOCKS * STEP_GROUP, STEP_VARIED_FEATURES = STEP_GROUP / 2 };

CONSTEXPR HOST_DEVICE bool step_is_varied(const StepShape *s) {
  return s->width > 0;
}

/* The model's hidden size. */
CONSTEXPR HOST_DEVICE int step_width(const StepShape *s) {
  return step_is_varied(s) ? s->width : s->hidden;
}

/* Groups of inputs of q, k, v, gate and up. */
CONSTEXPR HOST_DEVICE int step_input_groups(const StepShape *s) {
  return (step_width(s) + STEP_GROUP - 1) / STEP_GROUP;
}

/* Features of an FFN block. */
CONSTEXPR HOST_DEVICE int step_features(const StepShape *s) {
  return step_is_varied(s) ? (int)STEP_VARIED_FEATURES : (int)STEP_GROUP;
}

/* Where the tails of rows of lm_head in 8 bits begin, in bytes (screen.h). */
CONSTEXPR HOST_DEVICE size_t screen_tails_at(int vocab_size, int width) {
  return (size_t)vocab_size * (size_t)width;
}

/* --- latent attention (LatentConfig), with experts of sigmoid scores, one of them shared, after n_dense
 * layers without experts
 *
 * The matrix qkv is q_a and kv_a: each cluster that attends multiplies all of it, since all its heads need
 * all outputs. Clusters divide the query heads evenly, and q_b, key_halves, value_halves and o with them.
 * one_latent.cuh has the phases. */

enum {
  STEP_LATENT = 512,     /* numbers of the latent */
  STEP_LATENT_ROPE = 64, /* numbers of the part with a rope, which come first in a row of the cache */
  STEP_LATENT_HEAD = STEP_LATENT + STEP_LATENT_ROPE, /* head_dim; there is one KV head */
  STEP_LATENT_KEYS = 32,                             /* outputs of a head's key_halves in a stage */
  STEP_LATENT_VALUES = 16,                           /* outputs of a head's value_halves in a stage */
  STEP_LATENT_BYTES = 352,                           /* bytes of LatentVars (block.cuh) */
  STEP_LATENT_POSITIONS = 11264, /* from there on separate kernels are faster, as with hybrids */
};

CONSTEXPR HOST_DEVICE bool step_is_latent(const StepShape *s) {
  return s->head_dim == STEP_LATENT_HEAD;
}

/* step_latent_inputs(): outputs of q_a and kv_a together; step_latent_query(): outputs of q_b for a head. */
CONSTEXPR HOST_DEVICE int step_latent_inputs(const StepShape *s) {
  return s->q_rank + STEP_LATENT_HEAD;
}
CONSTEXPR HOST_DEVICE int step_latent_query(const StepShape *s) {
  return s->nope_dim + STEP_LATENT_ROPE;
}

/* Numbers that q_a, kv_a and q_b make for n_heads heads. */
CONSTEXPR HOST_DEVICE int step_latent_floats(const StepShape *s, int n_heads) {
  return step_latent_inputs(s) + n_heads * step_latent_query(s);
}

/* Clusters that attend: as many as divide the query heads evenly. */
CONSTEXPR HOST_DEVICE int step_latent_clusters(const StepShape *s) {
  int n = s->n_clusters;
  while (s->n_heads % n != 0) n--;
  return n;
}

/* step_value_dim(): numbers of a head's output that o reads; step_state_dim(): numbers of a value in the
 * head's softmax states. */
CONSTEXPR HOST_DEVICE int step_value_dim(const StepShape *s) {
  return step_is_latent(s) ? s->value_dim : s->head_dim;
}
CONSTEXPR HOST_DEVICE int step_state_dim(const StepShape *s) {
  return step_is_latent(s) ? (int)STEP_LATENT : s->head_dim;
}

/* --- hybrids */

enum {
  STEP_WIDE_HEAD = 256,                      /* head_dim of a hybrid: two packs */
  STEP_ROTARY_DIM = 64,                      /* dimensions of a hybrid's heads that rope rotates */
  STEP_DELTA_TAPS = 4,                       /* taps of the convolution */
  STEP_DELTA_HEADS = 4,                      /* value heads of a cluster, at most: one for each warpgroup */
  STEP_DELTA_ROWS = STEP_PACK / STEP_BLOCKS, /* value dimensions of a head whose state one block has */
  STEP_DELTA_ROW_BYTES = STEP_PACK * 4,      /* bytes of the state of a value dimension: a float for each key
                                              * dimension */
  STEP_HYBRID_LAYERS = 64,                   /* layers at most: the bits of delta_layers */
  STEP_HYBRID_EXPERTS = 2 * STEP_MAX_EXPERTS,
  STEP_HYBRID_POSITIONS = 40960, /* from there on separate kernels are faster: they read a KV head's keys
                                  * once; here each cluster that has the head reads them all */
  STEP_MIX_BYTES = 464,          /* bytes of MixVars (block.cuh) */
};

/* The heads of a cluster in a hybrid's layers of one kind. Attention: query heads first .. first + n - 1, of
 * KV head first_key. Delta rule: value heads first .. first + n - 1, and the n_keys key heads that they use,
 * first_key the first. n 0: the cluster has no heads, and waits for the others. */
typedef struct {
  int first, n, first_key, n_keys;
} StepMix;

/* The number of clusters that share a KV head. They divide its query heads, and each computes the head's key
 * and value. Heads are shared where clusters without a head would otherwise wait long: with experts, since
 * the chosen experts' weights are few bytes; in hybrids and where several GPUs share a model, since a GPU has
 * few KV heads there.
 * Except in hybrids, all clusters that attend have the same number of query heads. Varied experts may have
 * fewer sharers, because a cluster has whole packs of queries (step_plan_heads()). For latent attention
 * step_latent_clusters() takes this function's place. */
CONSTEXPR HOST_DEVICE int step_sharers(const StepShape *s) {
  int n = 1;
  if (s->head_dim == STEP_WIDE_HEAD) return s->n_clusters / s->n_kv_heads;
  if (s->n_experts == 0 && s->n_gpus <= 1) return 1;
  while (2 * n * s->n_kv_heads <= s->n_clusters && s->n_heads / s->n_kv_heads % (2 * n) == 0) n *= 2;
  return n;
}

/* The heads of a cluster in a hybrid. In layers of attention step_sharers() clusters share a KV head, and
 * each computes the same key and value. In layers of the delta rule value heads are divided among all
 * clusters. Clusters that share a key head each compute its q and k. So no numbers pass between clusters
 * before o. */
CONSTEXPR HOST_DEVICE StepMix step_mix(const StepShape *s, bool delta, int cluster) {
  StepMix m = {0, 0, 0, 0};
  if (delta) {
    const int n = s->n_value_heads, c = s->n_clusters, each = n / s->n_key_heads;
    const int fewer = c - n % c; /* The first clusters have a head less. So fewer clusters begin in the
                                  * middle of a key head's value heads. */
    m.first = cluster * (n / c) + (cluster > fewer ? cluster - fewer : 0);
    m.n = n / c + (cluster >= fewer);
    m.first_key = m.first / each;
    m.n_keys = m.n == 0 ? 0 : (m.first + m.n - 1) / each + 1 - m.first_key;
    return m;
  }
  const int heads = s->n_heads / s->n_kv_heads, clusters = step_sharers(s), number = cluster % clusters;
  if (cluster / clusters >= s->n_kv_heads) return m;
  m.first_key = cluster / clusters, m.n_keys = 1;
  m.first = m.first_key * heads + number * heads / clusters;
  m.n = m.first_key * heads + (number + 1) * heads / clusters - m.first;
  return m;
}

/* step_mix_packs(): the number of the cluster's packs in the matrix of projections: of q with gates, k and v;
 * for the delta rule of q, k, v and z. step_mix_groups(): the number of groups of 128 inputs of o that the
 * cluster's heads make. */
CONSTEXPR HOST_DEVICE int step_mix_packs(StepMix m, bool delta) {
  return m.n == 0 ? 0 : delta ? 2 * m.n_keys + 2 * m.n : 4 * m.n + 4;
}
CONSTEXPR HOST_DEVICE int step_mix_groups(StepMix m, bool delta) {
  return delta ? m.n : 2 * m.n;
}

/* The index of the cluster's pack i in the matrix of projections. */
CONSTEXPR HOST_DEVICE int step_mix_pack(const StepShape *s, StepMix m, bool delta, int i) {
  if (!delta)
    return i < 4 * m.n
               ? 4 * m.first + i
               : 4 * s->n_heads + 2 * m.first_key + (i - 4 * m.n) % 2 + (i - 4 * m.n) / 2 * 2 * s->n_kv_heads;
  if (i < 2 * m.n_keys) return m.first_key + i % m.n_keys + i / m.n_keys * s->n_key_heads;
  i -= 2 * m.n_keys;
  return 2 * s->n_key_heads + m.first + i % m.n + i / m.n * s->n_value_heads;
}

/* How many clusters have heads, and so contribute to the all-reduce of o: with `delta` in layers of the delta
 * rule, else in layers of attention. */
CONSTEXPR HOST_DEVICE int step_mix_clusters(const StepShape *s, bool delta) {
  if (delta) return s->n_value_heads < s->n_clusters ? s->n_value_heads : s->n_clusters;
  const int heads = s->n_heads / s->n_kv_heads, clusters = step_sharers(s);
  return s->n_kv_heads * (heads < clusters ? heads : clusters);
}

CONSTEXPR HOST_DEVICE bool step_is_delta(const StepShape *s, int layer) {
  return layer < STEP_HYBRID_LAYERS && s->delta_layers >> layer & 1;
}
/* Bits 0 to layer - 1. */
CONSTEXPR HOST_DEVICE uint64_t step_layers_before(int layer) {
  return layer < STEP_HYBRID_LAYERS ? (UINT64_C(1) << layer) - 1 : ~UINT64_C(0);
}

/* False where separate kernels are faster, unless the user demands the fused step (--decode-step cluster). */
static inline bool step_reaches(const StepShape *s, bool demanded, int pos) {
  const bool hybrid = s->head_dim == STEP_WIDE_HEAD;
  if (demanded || (!hybrid && !step_is_latent(s))) return true;
  return pos < (hybrid ? (int)STEP_HYBRID_POSITIONS : (int)STEP_LATENT_POSITIONS);
}

/* FFN blocks of an expert. The chosen experts follow one another: block b belongs to choice b /
 * step_expert_blocks(). */
CONSTEXPR HOST_DEVICE int step_expert_blocks(const StepShape *s) {
  return s->intermediate / step_features(s) / s->n_chosen;
}

/* Rows of the router: one for each expert and, in a hybrid, the gate of the shared expert. */
CONSTEXPR HOST_DEVICE int step_router_rows(const StepShape *s) {
  return s->n_experts == 0 ? 0 : s->n_experts + (s->head_dim == STEP_WIDE_HEAD);
}

/* Words of a buffer of the all-reduce of one token: a word for each column, then one for each row of the
 * router, rounded up to 32. */
CONSTEXPR HOST_DEVICE int step_sum_words(const StepShape *s) {
  return s->hidden + (step_router_rows(s) + 31) / 32 * 32;
}

/* How many of a block's experts compete for being chosen: as many as the router chooses (with latent
 * attention the shared expert counts, too), rounded up to a multiple of four. */
CONSTEXPR HOST_DEVICE int step_candidates(const StepShape *s) {
  return (s->n_chosen - (s->head_dim == STEP_WIDE_HEAD) + 3) / 4 * 4;
}

/* Rows of the folded router (folded_router.h) in a stage of a block: at most four. A hybrid may have twice as
 * many experts, so a stage has up to eight rows, and the row of the shared expert's gate. */
CONSTEXPR HOST_DEVICE int step_folded_rows(const StepShape *s) {
  if (s->n_experts == 0) return 0;
  return s->head_dim == STEP_WIDE_HEAD ? 9 : 4;
}

/* How many parts a group of STEP_GROUP inputs has, each with a scale and a zero point (FP4: a scale). FP8,
 * int8 and fp16 have no parts: STEP_FP8_PARTS, STEP_INT8_PARTS and STEP_HALF_PARTS mark them. */
CONSTEXPR HOST_DEVICE int step_parts(const StepShape *s) {
  return STEP_GROUP / s->group;
}
/* step_parts() of q, k, v and o. */
CONSTEXPR HOST_DEVICE int step_attn_parts(const StepShape *s) {
  return STEP_GROUP / (s->attn_group > 0 ? s->attn_group : s->group);
}

/* True for weights of 8 bits. */
CONSTEXPR HOST_DEVICE bool step_in_bytes(int parts) {
  return parts == STEP_FP8_PARTS || parts == STEP_INT8_PARTS;
}

/* True for int8 and fp16: the weights lie in memory as whole rows, and tensor maps describe the copies. */
CONSTEXPR HOST_DEVICE bool step_in_rows(int parts) {
  return parts >= STEP_INT8_PARTS;
}

/* Groups that a warp multiplies at once, at most. */
CONSTEXPR HOST_DEVICE int step_span(int parts) {
  return parts == STEP_HALF_PARTS ? STEP_HALF_SPAN : step_in_bytes(parts) ? STEP_BYTES_SPAN : STEP_SPAN;
}

/* KSplit.splits, at most, of weights whose step_span() is `span`. */
CONSTEXPR HOST_DEVICE int step_most_splits(int span) {
  return span == STEP_HALF_SPAN ? STEP_HALF_SPLITS : STEP_MAX_SPLITS;
}

/* Scales of STEP_GROUP inputs of x: one a part, but with FP4, 8 and 16 bits one for all parts. */
CONSTEXPR HOST_DEVICE int step_x_scales(int parts) {
  return parts >= STEP_FP4_PARTS ? 1 : parts;
}

/* Bytes of 128 inputs of o as planes with their scales, a multiple of 16. */
CONSTEXPR HOST_DEVICE int step_value_bytes(const StepShape *s) {
  return 2 * STEP_GROUP + (step_x_scales(step_parts(s)) + 1) / 2 * 16;
}

/* True if a block quantises its columns of x before it sends them to the cluster: with experts, if the
 * columns are whole groups of inputs. In a hybrid the last warp needs x as floats. Without experts quantising
 * first was slower (LOG.md, "Shares and stages"). */
CONSTEXPR HOST_DEVICE bool step_owns_groups(const StepShape *s) {
  return s->n_experts > 0 && s->head_dim != STEP_WIDE_HEAD && s->hidden % (STEP_BLOCKS * STEP_GROUP) == 0;
}

/* Positions in a stage of the KV cache. */
CONSTEXPR HOST_DEVICE int step_keys(const StepShape *s) {
  return s->head_dim == STEP_WIDE_HEAD || step_is_latent(s) ? STEP_KEYS_256
         : s->q8                                            ? STEP_KEYS_Q8
                                                            : STEP_KEYS;
}

/* step_query_packs(): packs of a KV head's queries; step_kv_packs(): packs of its key and value. */
CONSTEXPR HOST_DEVICE int step_query_packs(const StepShape *s) {
  return s->n_heads / s->n_kv_heads * s->head_dim / STEP_PACK;
}
CONSTEXPR HOST_DEVICE int step_kv_packs(const StepShape *s) {
  return 2 * s->head_dim / STEP_PACK;
}

/* The first FFN block of a cluster if n blocks are divided among all; its last one precedes the next
 * cluster's first. Counts differ by one at most, and the last clusters have the larger ones: clusters without
 * a KV head are the last, and wait while the others attend. It would be slower to give clusters with a KV
 * head fewer blocks, so that all read the same number of bytes: the other clusters cannot begin before
 * attention has ended (LOG.md, "Shares and stages"). */
CONSTEXPR HOST_DEVICE int step_first_of(const StepShape *s, int n, int cluster) {
  int c = s->n_clusters, without = c - n % c;
  return cluster * (n / c) + (cluster > without ? cluster - without : 0);
}
CONSTEXPR HOST_DEVICE int step_first_block(const StepShape *s, int features, int cluster) {
  return step_first_of(s, s->intermediate / features, cluster);
}
static inline int step_first_ffn_block(const StepShape *s, int cluster) {
  return step_first_block(s, step_features(s), cluster);
}

/* Groups of down's inputs in n FFN blocks. */
CONSTEXPR HOST_DEVICE int step_down_groups(const StepShape *s, int n) {
  return step_is_varied(s) ? (n + 1) / 2 : n;
}

/* The first group of 128 columns of hidden that the block of this rank owns; its last one precedes the
 * next rank's first. */
CONSTEXPR HOST_DEVICE int step_first_column_group(const StepShape *s, int rank) {
  return rank * (s->hidden / STEP_GROUP) / STEP_BLOCKS;
}

/* step_few_stages(): the number of stages for n_groups groups of inputs; step_few_span(): the groups of each
 * stage but the last. */
CONSTEXPR HOST_DEVICE int step_few_stages(int n_groups) {
  return (n_groups + STEP_STAGE_GROUPS - 1) / STEP_STAGE_GROUPS;
}
CONSTEXPR HOST_DEVICE int step_few_span(int n_groups) {
  const int stages = step_few_stages(n_groups);
  return (n_groups + stages - 1) / stages;
}

/* Floats from the partial sums of one split-K warp to those of the next: 16 a tile row, plus 4, so that warps
 * begin 4 banks apart. The last stage may have fewer tile rows than 4, so n_tile_rows is rounded up to a
 * multiple of 4. */
CONSTEXPR HOST_DEVICE int step_sums_stride(int n_tile_rows) {
  return (n_tile_rows + STEP_WARPGROUP_WARPS - 1) / STEP_WARPGROUP_WARPS * STEP_WARPGROUP_WARPS * 16 + 4;
}

/* Bytes of device memory for the exchange between clusters, and between GPUs, in steps of up to `tokens`, for
 * any number of clusters. With several tokens also for the residual stream and the count of launches. */
size_t step_memory(const StepShape *shape, int tokens);

/* Plans for up to `tokens`: 1, 2, 4 or 8. STATUS_MODEL with the reason if a step of this shape cannot be
 * divided, or needs more shared memory than `shared_bytes`. */
Status step_plan(const StepShape *shape, int tokens, StepPlan *plan, Error *err);
