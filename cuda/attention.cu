/* attention.cu - which attention family runs, and its launch. Called by layer operations of the CUDA backend.
 * */
#include "cuda/attention_kernels.cuh"

/* Blocks of the decode family in all: two for each of 132 SMs, the largest part this was measured on; a
 * smaller GPU runs them in waves. Constant, so that results do not depend on the device. */
static const int DECODE_BLOCKS = 264;
static const int MAX_COLUMNS = 32;
static const double LOG2_E = 1.4426950408889634;

/* A form for caps is compiled for the sizes of models that have them (Gemma 2). */
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

/* The kernel's argument; `workspace` as attention_workspace_bytes() has it. */
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

bool attention_can_run(AttentionFamily family, const Attention *a, int n_tokens) {
  if (n_tokens < 1) return false;
  if (family == ATTENTION_PLAIN) return a->head_dim <= 256 && n_tokens <= 65535;
  if (a->kv != KV_F16 || !has_tiles(a->head_dim, a->cap != 0)) return false;
  AttentionKernel kernel = kernel_of(a);
  if (family == ATTENTION_PREFILL)
    return a->n_heads <= 65535 && attention_prefill_shared(kernel) <= a->shared_bytes;
  int columns = n_tokens * (a->n_heads / a->n_kv_heads);
  return columns <= (a->head_dim == 256 ? 16 : MAX_COLUMNS) &&
         attention_decode_shared(kernel, n_tokens) <= a->shared_bytes;
}

AttentionFamily attention_choose(const Attention *a, int n_tokens) {
  if (attention_can_run(ATTENTION_DECODE, a, n_tokens)) return ATTENTION_DECODE;
  if (attention_can_run(ATTENTION_PREFILL, a, n_tokens)) return ATTENTION_PREFILL;
  return ATTENTION_PLAIN;
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

cudaError_t attention_run(AttentionFamily family, const Attention *a, int n_tokens, cudaStream_t stream) {
  AttentionKernel kernel = kernel_of(a);
  switch (family) {
  case ATTENTION_DECODE: return attention_decode(kernel, n_tokens, decode_splits(a->n_kv_heads), stream);
  case ATTENTION_PREFILL: return attention_prefill(kernel, n_tokens, stream);
  default: return attention_plain(kernel, a->kv, n_tokens, stream);
  }
}
