/* attention.cu - chooses and launches attention's families. */
#include <algorithm>

#include "cuda/kernels/attention/attention_kernels.cuh"
#include "cuda/kernels/ptx/launch.cuh"

/* Blocks of a decode launch: two per SM of an H200 (132 SMs). Smaller GPUs run them in waves. The number is
 * constant, so that results do not depend on the device. */
static const int kDecodeBlocks = 264;
static const int kMaxColumns = 32;
static const double kLog2E = 1.4426950408889634;

/* Up to kShortTokens tokens after a past of up to kShortPast positions take 3 to 5.6 us by prefill, 6 by
 * wgmma (H200, Qwen3-8B's heads). */
static const int kShortTokens = 64, kShortPast = 64;

/* Costs of decode, which decode_is_faster() compares with those of prefill. Prefill of up to 64 tokens takes
 * 4 us plus 25 ns per past position. decode_is_faster() counts only the positions, so the unit of all costs
 * is 25 ns. If one launch of decode suffices, it costs kColumnCost per column (a token's query head). If
 * several are needed, each costs kLaunchCost + past positions / kLaunchShare. Measured on an H200 with
 * Qwen3-8B's heads (LOG.md, "When to prefill, when to decode"). */
static const int kColumnCost = 20, kLaunchCost = 1070, kLaunchShare = 18, kMaxDecodeTokens = 64;

/* Splits of the keys in decode. With heads of 512 one block fills an SM's shared memory. */
static int decode_splits(int n_kv_heads, int head_dim) {
  const int blocks = head_dim == 512 ? kDecodeBlocks / 2 : kDecodeBlocks;
  return std::max(1, std::min(blocks / n_kv_heads, kMaxSplits));
}

/* The number of units' partial results that fit the workspace. Each block of a unit needs one if the unit's
 * token has several splits. */
static int partials_of(int asked) {
  return std::max((int)ATTENTION_UNITS, asked);
}

/* Bytes of the tickets. A ticket counts the blocks that have finished; the last block merges the splits.
 * Layers of all sizes share the tickets, and tickets stay zero between launches. So the size must not depend
 * on the layer. */
static size_t tickets_bytes(int unit_partials) {
  return (size_t)std::max((int)MAX_HEADS, unit_partials) * sizeof(int);
}

/* The kernel's argument. The workspace holds tickets, then partial results. */
static AttentionArgs kernel_args(const Attention *a) {
  AttentionArgs args = {};
  args.n_heads = a->n_heads, args.n_kv_heads = a->n_kv_heads, args.head_dim = a->head_dim;
  args.n_ctx = a->n_ctx, args.value_dims = a->value_dims;
  args.unseen_mask = a->window > 0 ? -1 : -a->chunk, args.unseen_back = a->window > 0 ? a->window : 1;
  args.scale_log2 = (float)(kLog2E * a->scale);
  if (a->cap != 0) {
    args.cap_log2 = (float)(kLog2E * a->cap);
    args.scale_log2 = (float)(2 * kLog2E * a->scale / a->cap);
  }
  args.pos = a->pos, args.q = a->q, args.k = a->k, args.v = a->v, args.out = (__half *)a->out;
  args.planes = (unsigned char *)a->planes, args.planes_tokens = a->planes_tokens;
  if (a->kv == KV_Q8)
    args.k_scales = (const __half *)a->k_scales, args.v_scales = (const __half *)a->v_scales;
  args.pages = a->pages;
  if (a->pages.table) args.n_ctx = KV_PAGE_TOKENS;
  args.tickets = (int *)a->workspace;
  args.partials = (char *)a->workspace + tickets_bytes(a->unit_partials);
  args.shared_limit = a->shared_bytes;
  args.sinks = a->sinks;
  args.kv_sharers = 1;
  args.whole = a->whole;
  return args;
}

/* Most columns (tokens x query heads) of a block. Decode: as many as the accumulators' registers allow.
 * Latent attention: the rows of wgmma's tile. Where only plain can run, any number would
 * do: kMaxColumns. */
static int columns_per_block(const Attention *a) {
  if (a->value_dims > 0) {
    const int rows = attention_wgmma_rows(kernel_args(a));
    return rows > 0 ? rows : kMaxColumns;
  }
  return a->head_dim == 512 ? 8 : a->head_dim == 256 ? 16 : kMaxColumns;
}

/* The number of blocks that share a KV head, each for some of its query heads, in decode and in wgmma with
 * latent attention. It is the least divisor of the group for which a block's query heads fit its columns.
 * Each block reads all keys and values of its split. */
static int kv_sharers(const Attention *a) {
  const int group = a->n_heads / a->n_kv_heads, most = columns_per_block(a);
  int sharers = ceil_div(group, most);
  while (group % sharers) sharers++;
  return sharers;
}

static int tokens_per_launch(const Attention *a) {
  return columns_per_block(a) / (a->n_heads / a->n_kv_heads / kv_sharers(a));
}

/* kernel_args() where a KV head counts once for each block that shares it (AttentionArgs.kv_sharers). */
static AttentionArgs shared_args(const Attention *a) {
  AttentionArgs args = kernel_args(a);
  args.kv_sharers = kv_sharers(a), args.n_kv_heads *= args.kv_sharers;
  return args;
}

/* wgmma's argument. Its blocks share KV heads only with latent attention. */
static AttentionArgs wgmma_args(const Attention *a) {
  return a->value_dims > 0 ? shared_args(a) : kernel_args(a);
}

static bool wgmma_can_run(const Attention *a, int n_tokens) {
  const AttentionArgs args = wgmma_args(a);
  const int group = args.n_heads / args.n_kv_heads, rows = attention_wgmma_rows(args);
  if (a->whole && (n_tokens * group > rows || a->window > 0)) return false;
  if (a->value_dims > 0 && (a->cap > 0 || a->sinks)) return false;
  return a->wgmma_sms > 0 && group <= rows && attention_wgmma_shared(args) <= a->shared_bytes;
}

bool attention_can_run(AttentionFamily family, const Attention *a, int n_tokens) {
  if (n_tokens < 1) return false;
  if (family == ATTENTION_PLAIN) return a->head_dim <= MAX_HEAD_ROW && n_tokens <= 65535;
  const AttentionArgs args = kernel_args(a);
  const auto exists = [](auto, auto) { return STATUS_OK; };
  if (a->kv == KV_F32) return false;
  if (a->whole && (family == ATTENTION_PREFILL || a->head_dim != kWholeHead || a->cap > 0 || a->kv != KV_F16))
    return false;
  if (family == ATTENTION_WGMMA) return wgmma_can_run(a, n_tokens);
  if (a->value_dims > 0 || with_head_size(args, NULL, exists) != STATUS_OK) return false;
  if (family == ATTENTION_PREFILL)
    return a->n_heads <= 65535 && attention_prefill_shared(args) <= a->shared_bytes;
  const int at_once = std::min(n_tokens, tokens_per_launch(a));
  const AttentionArgs shared = shared_args(a);
  return shared.n_kv_heads <= MAX_HEADS && attention_decode_shared(shared, at_once) <= a->shared_bytes;
}

/* True if decode is faster than prefill. Blocks that share a KV head count as launches. One token in one
 * launch takes decode at any `past`, because its step is captured in a graph. */
static bool decode_is_faster(const Attention *a, int n_tokens) {
  const int launches = ceil_div(n_tokens, tokens_per_launch(a)) * kv_sharers(a);
  const int seen = a->chunk > 0 ? a->past % a->chunk : a->window > 0 ? std::min(a->window, a->past) : a->past;
  if (launches > 1)
    return n_tokens <= kMaxDecodeTokens && launches * (kLaunchCost + seen / kLaunchShare) <= seen;
  return n_tokens == 1 || seen >= kColumnCost * n_tokens * (a->n_heads / a->n_kv_heads);
}

AttentionFamily attention_choose(const Attention *a, int n_tokens) {
  bool decode = attention_can_run(ATTENTION_DECODE, a, n_tokens);
  if (a->whole && attention_can_run(ATTENTION_WGMMA, a, n_tokens)) return ATTENTION_WGMMA;
  if (a->whole) return decode ? ATTENTION_DECODE : ATTENTION_PLAIN;
  bool prefill = attention_can_run(ATTENTION_PREFILL, a, n_tokens);
  const bool is_short = prefill && n_tokens <= kShortTokens && a->past <= kShortPast;
  if (attention_can_run(ATTENTION_WGMMA, a, n_tokens) && !is_short && (n_tokens > 1 || !decode))
    return ATTENTION_WGMMA;
  if (decode && (!prefill || decode_is_faster(a, n_tokens))) return ATTENTION_DECODE;
  return prefill ? ATTENTION_PREFILL : ATTENTION_PLAIN;
}

int attention_division(const Attention *a, int n_tokens) {
  const AttentionFamily family = attention_choose(a, n_tokens);
  const int n_splits =
      family == ATTENTION_WGMMA ? attention_wgmma_splits(wgmma_args(a), n_tokens, a->past) : 1;
  return ATTENTION_FAMILIES * n_splits + family;
}

Status attention_wgmma_sms(int gpu, int *n_sms, Error *err) {
  *n_sms = 0;
#ifdef AUK_HAS_SM90A
  int major = 0, minor = 0;
  TRY(device_attribute(gpu, cudaDevAttrComputeCapabilityMajor, &major, err));
  TRY(device_attribute(gpu, cudaDevAttrComputeCapabilityMinor, &minor, err));
  if (major == 9 && minor == 0) return device_attribute(gpu, cudaDevAttrMultiProcessorCount, n_sms, err);
#endif
  return STATUS_OK;
}

size_t attention_workspace_bytes(int n_heads, int n_kv_heads, int head_dim, int value_dims,
                                 int unit_partials) {
  Attention a = {};
  a.n_heads = n_heads, a.n_kv_heads = n_kv_heads, a.head_dim = head_dim, a.value_dims = value_dims;
  const int blocks = n_kv_heads * kv_sharers(&a);
  const size_t decode = (size_t)blocks * decode_splits(blocks, head_dim) * columns_per_block(&a);
  const size_t units = (size_t)partials_of(unit_partials) * align_up(n_heads / blocks, 8);
  const size_t columns =
      std::max(std::max(decode, units), (size_t)kSplitUnits * attention_wgmma_rows(kernel_args(&a)));
  return tickets_bytes(unit_partials) + columns * (2 + head_dim) * sizeof(float);
}

static Status run_decode(const Attention *a, AttentionArgs args, int n_tokens, cudaStream_t stream,
                         Error *err) {
  int at_once = tokens_per_launch(a);
  for (int first = 0; first < n_tokens; first += at_once) {
    const int n = std::min(n_tokens - first, at_once);
    args.first_token = first;
    TRY(attention_decode(args, n, decode_splits(args.n_kv_heads, a->head_dim), stream, err));
  }
  return STATUS_OK;
}

/* Unpacks a cache in 8 bits to fp16, for wgmma and prefill, and points args to the result. */
static Status unpack(const Attention *a, AttentionArgs *args, int n_tokens, int n_tiles, cudaStream_t stream,
                     Error *err) {
  if (a->kv != KV_Q8) return STATUS_OK;
  TRY(attention_unpack(*args, n_tokens, n_tiles, a->k_halves, a->v_halves, stream, err));
  args->k = a->k_halves, args->v = a->v_halves;
  return STATUS_OK;
}

Status attention_run(AttentionFamily family, const Attention *a, int n_tokens, cudaStream_t stream,
                     Error *err) {
  AttentionArgs args = family == ATTENTION_DECODE  ? shared_args(a)
                       : family == ATTENTION_WGMMA ? wgmma_args(a)
                                                   : kernel_args(a);
  if (family == ATTENTION_WGMMA || family == ATTENTION_PREFILL)
    TRY(unpack(a, &args, n_tokens, 0, stream, err));
  switch (family) {
  case ATTENTION_DECODE: return run_decode(a, args, n_tokens, stream, err);
  case ATTENTION_WGMMA: return attention_wgmma(args, n_tokens, a->past, a->wgmma_sms, stream, err);
  case ATTENTION_PREFILL: return attention_prefill(args, n_tokens, 0, stream, err);
  default: return attention_plain(args, a->kv, n_tokens, stream, err);
  }
}

/* --- several sequences */

/* The family that computes the tiles. If it is plain, plain computes all rows, and there are no units. */
static AttentionFamily tile_family(const Attention *a) {
  if (a->value_dims > 0) return attention_can_run(ATTENTION_WGMMA, a, 1) ? ATTENTION_WGMMA : ATTENTION_PLAIN;
  if (!attention_can_run(ATTENTION_DECODE, a, 1)) return ATTENTION_PLAIN;
  if (attention_can_run(ATTENTION_WGMMA, a, 1)) return ATTENTION_WGMMA;
  return attention_can_run(ATTENTION_PREFILL, a, 1) ? ATTENTION_PREFILL : ATTENTION_PLAIN;
}

bool attention_makes_planes(const Attention *a, AttentionFamily family) {
  return family != ATTENTION_PLAIN && a->head_dim == kPlanesHead && a->kv == KV_F16 && a->cap == 0 &&
         a->whole == 0;
}

bool attention_many_make_planes(const Attention *a) {
  return attention_makes_planes(a, tile_family(a));
}

int attention_tile_tokens(const Attention *a) {
  switch (tile_family(a)) {
  case ATTENTION_WGMMA: {
    const AttentionArgs args = wgmma_args(a);
    return attention_wgmma_rows(args) / (args.n_heads / args.n_kv_heads);
  }
  case ATTENTION_PREFILL: return kPrefillRows;
  default: return 0;
  }
}

int attention_unit_blocks(const Attention *a) {
  return a->n_kv_heads * kv_sharers(a);
}

/* A unit with fewer keys would take no less time. */
static const int kLeastUnitKeys = 128;

int attention_unit_keys(int n_blocks, long long n_keys) {
  /* Keys of all units if each full unit has one page. Only half of the units count as full, because each
   * token's last unit can be partly full. */
  const long long step = (long long)KV_PAGE_TOKENS * (ATTENTION_UNITS / 2);
  const int n_pages = (int)((n_keys * n_blocks + step - 1) / step);
  return std::max(n_pages * KV_PAGE_TOKENS, kLeastUnitKeys);
}

int attention_fixed_splits(int n_keys) {
  return std::min(ceil_div(n_keys, FIXED_UNIT_KEYS), (int)FIXED_SPLITS);
}

int attention_fixed_partials(int n_blocks, int n_tokens, int n_ctx) {
  return n_blocks * n_tokens * attention_fixed_splits(n_ctx);
}

/* SMs for tiles, while decode's units run on the other SMs: both are to end together. An SM takes kTile plus
 * kTileKey per key for a tile, and kUnitKey per key for a unit. Memory sets a limit: the n SMs of the GPU
 * together take at least kKeyRead / n per key of a unit ([0]: 8 bits, [1]: fp16). All times are in ns for a
 * KV head with heads of 128, at the clock that the power limit leaves an H200 (LOG.md, "Answers beside
 * prompts"). */
static int tile_sms(const Attention *a, const AttentionWork *work) {
  const double kTileKey = 16.4, kTile = 2000, kUnitKey = 7, kKeyRead[] = {9.3, 17.3};
  const double tiles = kTileKey * (double)work->tile_keys + kTile * work->n_tiles,
               keys = (double)work->unit_keys * kv_sharers(a),
               all = std::max(tiles + kUnitKey * keys, kKeyRead[a->kv == KV_F16] * keys);
  return std::max(1, std::min((int)(a->wgmma_sms * tiles / all), a->wgmma_sms - 1));
}

Status attention_run_many(const Attention *a, const AttentionWork *work, int n_tokens, cudaStream_t stream,
                          Error *err) {
  const AttentionFamily family = tile_family(a);
  if (family == ATTENTION_PLAIN) return attention_plain(kernel_args(a), a->kv, n_tokens, stream, err);
  const bool both = family == ATTENTION_WGMMA && a->value_dims == 0 && work->n_tiles > 0 && work->n_units > 0;
  if (work->n_tiles > 0) {
    AttentionArgs args = family == ATTENTION_WGMMA ? wgmma_args(a) : kernel_args(a);
    args.tiles = work->tiles;
    TRY(unpack(a, &args, n_tokens, work->n_tiles, stream, err));
    TRY(family == ATTENTION_WGMMA
            ? attention_wgmma_tiles(args, n_tokens, work->n_tiles, both ? tile_sms(a, work) : a->wgmma_sms,
                                    stream, err)
            : attention_prefill(args, n_tokens, work->n_tiles, stream, err));
  }
  if (work->n_units == 0) return STATUS_OK;
  AttentionArgs args = shared_args(a);
  args.is_beside = both;
  args.units = work->units;
  args.unit_partials = partials_of(a->unit_partials);
  if (a->value_dims == 0) return attention_decode(args, 1, work->n_units, stream, err);
  TRY(unpack(a, &args, n_tokens, work->n_units, stream, err));
  return attention_wgmma_units(args, n_tokens, work->n_units, a->wgmma_sms, stream, err);
}
