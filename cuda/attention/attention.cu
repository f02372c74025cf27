/* attention.cu - which attention family runs, and its launch. Called by backend.c. */
#include <algorithm>

#include "cuda/attention/attention_kernels.cuh"
#include "cuda/ptx/launch.cuh"

/* Blocks of a decode launch: two per SM of an H200 (132 SMs); smaller GPUs run them in waves. A constant, so
 * that results do not depend on the device. */
static const int kDecodeBlocks = 264;
static const int kMaxColumns = 32;
static const double kLog2E = 1.4426950408889634;

/* Costs of decode in past positions of prefill: of a column, if all fit one launch; else of a launch, plus a
 * share of the positions. Measured on an H200 with Qwen3-8B's heads (cuda/LOG.md), where prefill of up to
 * 64 tokens takes 4 us plus 25 ns per past position. */
static const int kColumnCost = 20, kLaunchCost = 1070, kLaunchShare = 18, kMaxDecodeTokens = 64;

static int decode_splits(int n_kv_heads) {
  return std::max(1, std::min(kDecodeBlocks / n_kv_heads, kMaxSplits));
}

static size_t tickets_bytes(int n_kv_heads) {
  return align_up((size_t)n_kv_heads * sizeof(int));
}

/* The kernel's argument. The workspace holds tickets, then partial results. */
static AttentionArgs kernel_args(const Attention *a) {
  AttentionArgs args = {};
  args.n_heads = a->n_heads, args.n_kv_heads = a->n_kv_heads, args.head_dim = a->head_dim;
  args.n_ctx = a->n_ctx, args.window = a->window;
  args.scale_log2 = (float)(kLog2E * a->scale);
  if (a->cap != 0) {
    args.cap_log2 = (float)(kLog2E * a->cap);
    args.scale_log2 = (float)(2 * kLog2E * a->scale / a->cap);
  }
  args.pos = a->pos, args.q = a->q, args.k = a->k, args.v = a->v, args.out = (__half *)a->out;
  args.tickets = (int *)a->workspace;
  args.partials = (char *)a->workspace + tickets_bytes(a->n_kv_heads);
  args.shared_limit = a->shared_bytes;
  return args;
}

/* Tokens of one decode launch; 0: not even one fits. */
static int tokens_per_launch(const Attention *a) {
  return (a->head_dim == 256 ? 16 : kMaxColumns) / (a->n_heads / a->n_kv_heads);
}

bool attention_can_run(AttentionFamily family, const Attention *a, int n_tokens) {
  if (n_tokens < 1) return false;
  if (family == ATTENTION_PLAIN) return a->head_dim <= 256 && n_tokens <= 65535;
  AttentionArgs args = kernel_args(a);
  const auto exists = [](auto, auto) { return STATUS_OK; };
  if (a->kv != KV_F16 || with_head_size(args, NULL, exists) != STATUS_OK) return false;
  if (family == ATTENTION_PREFILL)
    return a->n_heads <= 65535 && attention_prefill_shared(args) <= a->shared_bytes;
  const int at_once = std::min(n_tokens, tokens_per_launch(a));
  return at_once > 0 && attention_decode_shared(args, at_once) <= a->shared_bytes;
}

/* A single token always takes decode, since its step is captured in a graph. */
static bool decode_is_faster(const Attention *a, int n_tokens) {
  const int launches = ceil_div(n_tokens, tokens_per_launch(a));
  const int seen = a->window > 0 ? std::min(a->window, a->past) : a->past;
  if (launches > 1)
    return n_tokens <= kMaxDecodeTokens && launches * (kLaunchCost + seen / kLaunchShare) <= seen;
  return n_tokens == 1 || seen >= kColumnCost * n_tokens * (a->n_heads / a->n_kv_heads);
}

AttentionFamily attention_choose(const Attention *a, int n_tokens) {
  bool decode = attention_can_run(ATTENTION_DECODE, a, n_tokens);
  bool prefill = attention_can_run(ATTENTION_PREFILL, a, n_tokens);
  if (decode && (!prefill || decode_is_faster(a, n_tokens))) return ATTENTION_DECODE;
  return prefill ? ATTENTION_PREFILL : ATTENTION_PLAIN;
}

size_t attention_workspace_bytes(int n_kv_heads, int head_dim) {
  size_t columns = (size_t)n_kv_heads * decode_splits(n_kv_heads) * kMaxColumns;
  return tickets_bytes(n_kv_heads) + columns * (2 + head_dim) * sizeof(float);
}

static Status run_decode(const Attention *a, AttentionArgs args, int n_tokens, cudaStream_t stream,
                         Error *err) {
  size_t row = (size_t)a->n_heads * (size_t)a->head_dim;
  int at_once = tokens_per_launch(a);
  for (int first = 0; first < n_tokens; first += at_once) {
    const int n = std::min(n_tokens - first, at_once);
    args.first_token = first;
    args.q = (const __half *)a->q + (size_t)first * row;
    args.out = (__half *)a->out + (size_t)first * row;
    TRY(attention_decode(args, n, decode_splits(a->n_kv_heads), stream, err));
  }
  return STATUS_OK;
}

Status attention_run(AttentionFamily family, const Attention *a, int n_tokens, cudaStream_t stream,
                     Error *err) {
  AttentionArgs args = kernel_args(a);
  switch (family) {
  case ATTENTION_DECODE: return run_decode(a, args, n_tokens, stream, err);
  case ATTENTION_PREFILL: return attention_prefill(args, n_tokens, stream, err);
  default: return attention_plain(args, a->kv, n_tokens, stream, err);
  }
}
