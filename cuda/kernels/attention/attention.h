/* attention.h - causal attention over the KV cache on a GPU: a[row] = softmax(cap(scale * q k)) v, where
 * cap(s) = cap * tanh(s / cap), or s without a cap.
 *
 * Four families, chosen by attention_choose() (host only, no GPU needed) and forced by number for tests:
 *   decode   few tokens; tensor cores; keys split over the whole GPU, merged in the same launch
 *   wgmma    many tokens, or some after a long past, on sm_90a; FlashAttention-3; keys split if tiles are few
 *   prefill  many tokens; tensor cores of all chips; FlashAttention-2, one block for 64 tokens of a head
 *   plain    any even head_dim up to 512 (latent attention: 640), up to 65,535 tokens, any type of cache; the
 *            reference
 * Kernels read positions from device memory, so a captured launch serves every step of the same
 * attention_division().
 *
 * The cache of one sequence is one page of n_ctx positions. Several sequences have pages of KV_PAGE_TOKENS
 * positions each (AttentionPages). In a step of several sequences decode computes single rows
 * (AttentionUnit); wgmma or prefill computes tiles of rows (AttentionTile). Where these cannot run, plain
 * computes all rows. Latent attention (value_dims) runs by wgmma, units included, or by plain. */
#pragma once

#include <cuda_runtime_api.h>
#include <stdbool.h>
#include <stddef.h>

#include "base/arithmetic.h"
#include "base/status.h"
#include "cuda/kernels/cache/pages.h"

C_BEGIN

typedef enum {
  ATTENTION_DECODE,
  ATTENTION_WGMMA,
  ATTENTION_PREFILL,
  ATTENTION_PLAIN,
  ATTENTION_FAMILIES
} AttentionFamily;

/* Work of decode, or of wgmma with latent attention: one token with one of n_splits parts of its keys. */
typedef struct {
  int row;             /* the token's row; -1: no unit */
  int split, n_splits; /* the units of a token follow one another */
  int first;           /* index of the token's first unit among units of split tokens; 0 if n_splits is 1 */
} AttentionUnit;

/* Tokens of one sequence at consecutive positions, at most attention_tile_tokens(). */
typedef struct {
  int row, n_tokens;
  int length; /* keys in the sequence's cache after the step */
  int keys;   /* keys up to the tile's last token: its position + 1 */
} AttentionTile;

typedef struct {
  int n_heads, n_kv_heads, head_dim;
  int n_ctx;  /* positions of a page */
  int window; /* a token sees itself and window - 1 positions before; 0: all */
  int chunk;  /* positions of a chunk, a power of two: a token sees its own chunk, up to itself; 0: all */
  KvType kv;
  size_t shared_bytes; /* most dynamic shared memory that a block may opt in to */
  int wgmma_sms;       /* attention_wgmma_sms() of the GPU */
  const int *pos;      /* device: [n_tokens]; -1: padding (attention_run_many()) */
  const void *q;       /* device: fp16 [n_tokens][n_heads][head_dim], after rope */
  const void *k, *v;   /* device: of type kv [n_pages][n_kv_heads][n_ctx][head_dim], rows 16-byte aligned */
  /* Latent attention: the last value_dims numbers of a key are its value, v is not read, and out has
   * value_dims numbers for each head. 0: values come from v. */
  int value_dims;
  /* For KV_Q8, on the device. Scales: fp16 [n_pages][n_kv_heads][n_ctx], kv_key_scales() for each key and one
   * for each value; n_ctx is a multiple of 64. Halves: fp16 caches of k's and v's shape. Wgmma and prefill
   * unpack into them the keys and values that their tokens see. */
  const void *k_scales, *v_scales;
  void *k_halves, *v_halves;
  AttentionPages pages; /* for attention_run_many() */
  void *out;            /* device: fp16 [n_tokens][n_heads][head_dim, or value_dims] */
  /* The output as int8 planes (linear/quantise.cuh) in tiles of planes_tokens tokens, for a matmul
   * (LinearCall's planes); NULL: out is written instead. PRECOND attention_makes_planes(). */
  void *planes;
  int planes_tokens;
  void *workspace;    /* device: attention_workspace_bytes(), zeroed once when it was allocated */
  int unit_partials;  /* as given to attention_workspace_bytes() */
  double scale;       /* > 0 */
  double cap;         /* soft cap of scores; 0: none */
  const float *sinks; /* device: [n_heads] one more logit of each head's softmax, with value 0; or NULL */
  int whole; /* > 0: the tokens are a block of this length, each sees the past and that block; 0: causal */
  int past;  /* pos[0], known to the host: decides the family, and how wgmma splits the keys */
} Attention;

/* The fastest family that can run:
 *   one token         decode; prefill after a short past, if several blocks would share each KV head
 *   whole > 0         with heads of 128 in fp16 and no cap: wgmma if the tokens are one tile and there is no
 *                     window, else decode
 *   more tokens       wgmma. For up to 64 tokens after at most 64 positions, and where wgmma cannot run,
 *                     decode or prefill by estimated cost: decode, which splits the keys over the whole GPU,
 *                     for few tokens after a long past
 *   latent attention  wgmma, also for one token, if a row has 512 + 64 or 256 + 64 numbers in fp16 or 8 bits,
 *                     and scores have neither a cap nor sinks
 *   anything else     plain, also on chips with too little shared memory for the other families
 * Decode, wgmma and prefill need a cache in fp16 or 8 bits and a head_dim of 64, 80 (not wgmma), 96 (not
 * wgmma), 128, 256 or 512 (128 or 256 if scores are capped). A block of decode has at most 32 columns, tokens
 * x query heads (16 for a head_dim of 256, 8 for 512). More tokens take several launches; more query heads of
 * a KV head take several blocks. */
AttentionFamily attention_choose(const Attention *attention, int n_tokens);
bool attention_can_run(AttentionFamily family, const Attention *attention, int n_tokens);

/* A number for the family and its division of the keys. Two steps of n_tokens tokens have equal numbers only
 * if the same launches serve both steps. */
int attention_division(const Attention *attention, int n_tokens);

/* *n_sms: the GPU's SMs if it can run the wgmma family, else 0. */
Status attention_wgmma_sms(int gpu, int *n_sms, Error *err);

/* Bytes for tickets and for one layer's partial results, in the family that needs most. All layers share the
 * largest layer's workspace. unit_partials: the largest attention_fixed_partials() of all layers, or 0. */
size_t attention_workspace_bytes(int n_heads, int n_kv_heads, int head_dim, int value_dims,
                                 int unit_partials);

/* Enqueues; the tokens are at consecutive positions. PRECOND attention_can_run(family, ...). */
Status attention_run(AttentionFamily family, const Attention *attention, int n_tokens, cudaStream_t stream,
                     Error *err);

/* A step of several sequences. Units are for rows that are computed one at a time, tiles for all other rows.
 * Tiles are sorted by AttentionTile.keys, ascending. */
typedef struct {
  const AttentionUnit *units; /* device */
  const AttentionTile *tiles; /* device */
  int n_units, n_tiles;
  /* unit_keys: the keys of all rows with units, added up; tile_keys: AttentionTile.keys of all tiles, added
   * up. */
  long long unit_keys, tile_keys;
} AttentionWork;

/* True if the family, or attention_run_many() for all its rows, can write the output as int8 planes. The
 * caller makes sure that the chip's matmuls read planes. */
bool attention_makes_planes(const Attention *attention, AttentionFamily family);
bool attention_many_make_planes(const Attention *attention);

/* Most tokens of a tile; 0: plain takes all tokens, and there are neither units nor tiles. */
int attention_tile_tokens(const Attention *attention);
/* Blocks of a unit: for each KV head one, or several that divide its query heads. */
int attention_unit_blocks(const Attention *attention);
/* attention_unit_keys(): keys of a unit, a multiple of KV_PAGE_TOKENS. n_blocks: attention_unit_blocks();
 * n_keys: the keys of all rows with units. With this size all tokens with several splits together have at
 * most ATTENTION_UNITS / n_blocks units. The caller gives a token at most ATTENTION_SPLITS splits. */
enum { ATTENTION_UNITS = 528, ATTENTION_SPLITS = 64 };
int attention_unit_keys(int n_blocks, long long n_keys);
/* For --invariant, where a token's splits must not depend on other tokens. attention_fixed_splits(): a token
 * with n_keys keys has n_keys / FIXED_UNIT_KEYS splits, rounded up, but at most FIXED_SPLITS.
 * attention_fixed_partials(): most partial results of n_tokens tokens in contexts of n_ctx positions. */
enum { FIXED_UNIT_KEYS = 512, FIXED_SPLITS = 16 };
int attention_fixed_splits(int n_keys);
int attention_fixed_partials(int n_blocks, int n_tokens, int n_ctx);

/* Enqueues. PRECOND attention->pages.table is set; n_tokens counts all rows. Rows of position -1 are
 * padding. */
Status attention_run_many(const Attention *attention, const AttentionWork *work, int n_tokens,
                          cudaStream_t stream, Error *err);

/* One array of a layer's cache: keys, values, or the scales of either. first: bytes from the beginning of
 * attention_copy_page()'s `memory`. */
typedef struct {
  size_t first, page_bytes; /* page_bytes 0: the layer has no such array */
} PagedArray;

/* Copies page `from` to page `to` in each of the n arrays of the memory. arrays: pinned [n]. */
Status attention_copy_page(void *memory, const PagedArray *arrays, int n, int from, int to,
                           cudaStream_t stream, Error *err);

C_END
