/* unpack.cu - the keys and values of one layer from a cache in 8 bits to fp16, for the families that read
 * tiles of halves (wgmma, prefill): at most one layer's cache is in fp16 at a time.
 *
 * A unit of work is 64 positions of one KV head, in which a thread takes 16 numbers at a time. All blocks
 * walk through the units of all sequences; a page that two sequences share is written twice, with the same
 * bits. READS  head_dim + 2 key_scales() + head_dim + 2 bytes a position and KV head, WRITES 4 head_dim; of
 * latent attention keys alone. */
#include "cuda/attention/attention_kernels.cuh"
#include "cuda/attention/q8.cuh"
#include "cuda/ptx/launch.cuh"

namespace {

constexpr int kThreads = 256, kBlocks = 4 * 132, kPositions = 64;
static_assert(KV_PAGE_TOKENS % kPositions == 0, "a unit lies in one page");

/* Positions of a token's sequence that the step's tokens see, from a multiple of kPositions on. */
struct Span {
  int token, first, end;
};

/* Sixteen numbers with one scale. */
__device__ __forceinline__ void unpack_16(uint4 packed, __half scale, uint4 *to) {
  const uint32_t words[4] = {packed.x, packed.y, packed.z, packed.w};
  const Scale8 scales(__half2half2(scale));
  uint32_t out[8];
#pragma unroll
  for (int i = 0; i < 4; i++) {
    out[2 * i] = scaled_halves<false>(words[i], scales),
            out[2 * i + 1] = scaled_halves<true>(words[i], scales);
  }
  to[0] = make_uint4(out[0], out[1], out[2], out[3]), to[1] = make_uint4(out[4], out[5], out[6], out[7]);
}

__device__ __forceinline__ Span span_of(const AttentionArgs &a, int token, int length) {
  return {token, first_step<kPositions>(a, a.pos[token]), length};
}

/* Writes the span's units i, i + gridDim.x, ... */
__device__ __forceinline__ void unpack_span(const AttentionArgs &a, const Span &span, __half *k, __half *v,
                                            int i) {
  const int n_kv_heads = a.n_kv_heads / a.kv_sharers,
            n = (span.end - span.first + kPositions - 1) / kPositions * n_kv_heads, vectors = a.head_dim / 16,
            n_scales = key_scales(a.head_dim);
  for (; i < n; i += gridDim.x) {
    const int first = span.first + i / n_kv_heads * kPositions, rows = min(kPositions, span.end - first);
    const CacheRows cache(a.pages, span.token, n_kv_heads, i % n_kv_heads, a.n_ctx);
    const size_t begin = cache.at(first);
    for (int j = threadIdx.x; j < rows * vectors; j += kThreads) {
      const size_t row = begin + j / vectors;
      const int dim = j % vectors * 16;
      const size_t at = row * a.head_dim + dim;
      unpack_16(*(const uint4 *)((const uint8_t *)a.k + at),
                a.k_scales[row * n_scales + dim / KEY_SCALE_DIMS], (uint4 *)(k + at));
      if (a.value_dims == 0)
        unpack_16(*(const uint4 *)((const uint8_t *)a.v + at), a.v_scales[row], (uint4 *)(v + at));
    }
  }
}

/* True if tile or unit i is the first one of its sequence: they follow one another, and the first tile sees
 * the oldest keys. */
__device__ __forceinline__ bool begins_sequence(const AttentionArgs &a, int i) {
  if (a.units) return a.units[i].row >= 0 && a.units[i].split == 0;
  return i == 0 || a.pages.first[a.tiles[i].row] != a.pages.first[a.tiles[i - 1].row];
}

__global__ void __launch_bounds__(kThreads)
    unpack_kernel(AttentionArgs a, int n_tokens, int n_tiles, __half *k, __half *v) {
  begin_overlapping();
  if (!a.tiles && !a.units) {
    unpack_span(a, span_of(a, 0, a.pos[0] + n_tokens), k, v, blockIdx.x);
    return;
  }
  __shared__ int firsts[kThreads];
  __shared__ int n_firsts;
  for (int tile = 0; tile < n_tiles; tile += kThreads) {
    if (threadIdx.x == 0) n_firsts = 0;
    __syncthreads();
    const int own = tile + threadIdx.x;
    if (own < n_tiles && begins_sequence(a, own)) firsts[atomicAdd(&n_firsts, 1)] = own;
    __syncthreads();
    for (int s = 0; s < n_firsts; s++) {
      const int i = firsts[s]; /* blocks may have them in different orders */
      const int row = a.units ? a.units[i].row : a.tiles[i].row,
                length = a.units ? a.pos[row] + 1 : a.tiles[i].length;
      unpack_span(a, span_of(a, row, length), k, v, (blockIdx.x + i * 67) % gridDim.x);
    }
    __syncthreads();
  }
}

} // namespace

Status attention_unpack(const AttentionArgs &a, int n_tokens, int n_tiles, void *k, void *v,
                        cudaStream_t stream, Error *err) {
  return launch(unpack_kernel, kBlocks, kThreads, 0, stream, true, "unpacking of keys and values", err, a,
                n_tokens, n_tiles, (__half *)k, (__half *)v);
}
