/* attention.cu - which attention family runs, and its launch. Called by backend.c. */
#include "cuda/attention/attention_kernels.cuh"

/* Blocks of a decode launch: two per SM of an H200 (132 SMs); smaller GPUs run them in waves. A constant, so
 * that results do not depend on the device. */
static const int DECODE_BLOCKS = 264;
static const int MAX_COLUMNS = 32;
static const double LOG2_E = 1.4426950408889634;

/* Kernels with a cap are compiled for the head sizes of models that cap scores (Gemma 2). */
static bool has_tiles(int head_dim, bool capped) {
  if (capped) return head_dim == 128 || head_dim == 256;
  return head_dim == 64 || head_dim == 80 || head_dim == 96 || head_dim == 128 || head_dim == 256;
}

static int decode_splits(int n_kv_heads) {
  int splits = DECODE_BLOCKS / n_kv_heads;
  return splits < 1 ? 1 : splits > ATTENTION_MAX_SPLITS ? ATTENTION_MAX_SPLITS : splits;
}

static size_t tickets_bytes(int n_kv_heads) {
  return ((size_t)n_kv_heads * sizeof(int) + 255) / 256 * 256;
}

/* The kernel's argument. The workspace holds tickets, then partial results. */
static AttentionKernel kernel_of(const Attention *a) {
  AttentionKernel kernel = {};
  kernel.n_heads = a->n_heads, kernel.n_kv_heads = a->n_kv_heads, kernel.head_dim = a->head_dim;
  kernel.n_ctx = a->n_ctx, kernel.window = a->window;
  kernel.scale_log2 = (float)(LOG2_E * a->scale);
  if (a->cap != 0) {
    kernel.cap_log2 = (float)(LOG2_E * a->cap);
    kernel.scale_log2 = (float)(2 * LOG2_E * a->scale / a->cap);
  }
  kernel.pos = a->pos, kernel.q = a->q, kernel.k = a->k, kernel.v = a->v, kernel.out = (__half *)a->out;
  kernel.tickets = (int *)a->workspace;
  kernel.partials = (char *)a->workspace + tickets_bytes(a->n_kv_heads);
  kernel.shared_limit = a->shared_bytes;
  return kernel;
}

/* Tokens of one decode launch; 0: not even one fits. */
static int slice_rows(const Attention *a) {
  return (a->head_dim == 256 ? 16 : MAX_COLUMNS) / (a->n_heads / a->n_kv_heads);
}

static int decode_slices(const Attention *a, int n_tokens) {
  int rows = slice_rows(a);
  return (n_tokens + rows - 1) / rows;
}

bool attention_can_run(AttentionFamily family, const Attention *a, int n_tokens) {
  if (n_tokens < 1) return false;
  if (family == ATTENTION_PLAIN) return a->head_dim <= 256 && n_tokens <= 65535;
  if (a->kv != KV_F16 || !has_tiles(a->head_dim, a->cap != 0)) return false;
  AttentionKernel kernel = kernel_of(a);
  if (family == ATTENTION_PREFILL)
    return a->n_heads <= 65535 && attention_prefill_shared(kernel) <= a->shared_bytes;
  int rows = slice_rows(a);
  return rows > 0 && attention_decode_shared(kernel, n_tokens < rows ? n_tokens : rows) <= a->shared_bytes;
}

/* Measured on an H200 with Qwen3-8B's heads (cuda/NOTES.md). Prefill of up to 64 tokens costs 4 us plus 25 ns
 * per past position. One decode launch costs as much as prefill after 20 positions per column; each of
 * several launches costs as much as prefill after 1,070 + n / 18 positions. A single token always takes
 * decode, since its step is captured in a graph. */
static bool decode_is_faster(const Attention *a, int n_tokens) {
  int slices = decode_slices(a, n_tokens), seen = a->window > 0 && a->window < a->past ? a->window : a->past;
  if (slices > 1) return n_tokens <= 64 && slices * (1070 + seen / 18) <= seen;
  return n_tokens == 1 || seen >= 20 * n_tokens * (a->n_heads / a->n_kv_heads);
}

AttentionFamily attention_choose(const Attention *a, int n_tokens) {
  bool decode = attention_can_run(ATTENTION_DECODE, a, n_tokens);
  bool prefill = attention_can_run(ATTENTION_PREFILL, a, n_tokens);
  if (decode && (!prefill || decode_is_faster(a, n_tokens))) return ATTENTION_DECODE;
  return prefill ? ATTENTION_PREFILL : ATTENTION_PLAIN;
}

const char *attention_family_name(AttentionFamily family) {
  static const char *const names[ATTENTION_FAMILIES] = {"attention_decode", "attention_prefill",
                                                        "attention_plain"};
  return names[family];
}

size_t attention_workspace_bytes(int n_kv_heads, int head_dim) {
  size_t columns = (size_t)n_kv_heads * decode_splits(n_kv_heads) * MAX_COLUMNS;
  return tickets_bytes(n_kv_heads) + columns * (2 + head_dim) * sizeof(float);
}

static Status run_decode(const Attention *a, AttentionKernel kernel, int n_tokens, cudaStream_t stream,
                         Error *err) {
  size_t row = (size_t)a->n_heads * (size_t)a->head_dim;
  int at_once = slice_rows(a);
  for (int first = 0; first < n_tokens; first += at_once) {
    int n = n_tokens - first < at_once ? n_tokens - first : at_once;
    kernel.first_row = first;
    kernel.q = (const __half *)a->q + (size_t)first * row;
    kernel.out = (__half *)a->out + (size_t)first * row;
    TRY(attention_decode(kernel, n, decode_splits(a->n_kv_heads), stream, err));
  }
  return STATUS_OK;
}

Status attention_run(AttentionFamily family, const Attention *a, int n_tokens, cudaStream_t stream,
                     Error *err) {
  AttentionKernel kernel = kernel_of(a);
  switch (family) {
  case ATTENTION_DECODE: return run_decode(a, kernel, n_tokens, stream, err);
  case ATTENTION_PREFILL: return attention_prefill(kernel, n_tokens, stream, err);
  default: return attention_plain(kernel, a->kv, n_tokens, stream, err);
  }
}
