/* unpack.cu - unpacks the keys and values of one layer from a cache in 8 bits to fp16, for the families that
 * read tiles of halves (wgmma, prefill): at most one layer's cache is in fp16 at a time.
 *
 * A unit of work is a few positions of one KV head: a thread has eight numbers of a key and eight of a value
 * (latent attention: only of a key). So all loads of a unit are under way at once. With eight KV heads of
 * 128 numbers, each KV head has 132 blocks, and a unit has 16 positions. The blocks of a KV head walk through
 * the units of all sequences. A page that two sequences share is written twice, with the same bits.
 * READS  head_dim + 2 key_scales() + head_dim + 2 bytes a position and KV head (latent attention: head_dim
 * + 2 key_scales()), WRITES 4 head_dim (latent attention: 2 head_dim). */
#include <algorithm>

#include "cuda/kernels/attention/attention_kernels.cuh"
#include "cuda/kernels/cache/q8.cuh"
#include "cuda/kernels/ptx/launch.cuh"

namespace {

constexpr int kThreads = 256, kBlocks = 8 * 132, kPositions = 64, kOwn = 8;
static_assert(KV_PAGE_TOKENS % kPositions == 0, "units of kPositions or a part of them lie in one page");
static_assert(KEY_SCALE_DIMS == 2 * kOwn, "two threads have the numbers of a scale");

/* Positions of a sequence that the step's tokens see, from a multiple of kPositions on. */
struct Span {
  int page; /* where the sequence's pages begin in the table */
  int first, end;
};

__device__ __forceinline__ uint4 unpack_8(uint2 packed, __half scale) {
  const Scale8 s(__half2half2(scale));
  return make_uint4(scaled_halves<false>(packed.x, s), scaled_halves<true>(packed.x, s),
                    scaled_halves<false>(packed.y, s), scaled_halves<true>(packed.y, s));
}

/* How positions are divided among threads; computed by the host. */
struct Division {
  int unit, vectors; /* unit: positions of a unit; vectors: threads that share the numbers of a position */
  unsigned inverse;  /* i / vectors is i * inverse >> 20 for all thread indices i */
};

Division division_of(int head_dim) {
  Division d = {kPositions, head_dim / kOwn, 0};
  while (d.unit * d.vectors > kThreads) d.unit /= 2;
  d.inverse = (1u << 20) / d.vectors + 1;
  return d;
}

/* A block's work: units blockIdx.x, blockIdx.x + gridDim.x, ... of all spans together, of one KV head. */
struct Unpacking {
  const AttentionArgs &a;
  const Division d;
  uint4 *k, *v;
  int next; /* the block's next unit, counted from the span's first one */

  /* Unpacks n positions, whose rows of the cache are neighbours in memory and start with row `begin`. */
  __device__ __forceinline__ void run_unit(size_t begin, int n) const {
    const size_t at = begin * d.vectors;
    const uint2 *keys = (const uint2 *)a.k + at, *values = (const uint2 *)a.v + at;
    const __half *k_scales = a.k_scales + at / 2, *v_scales = a.v_scales + begin;
    const unsigned i = threadIdx.x;
    if (i >= n * d.vectors) return;
    const bool has_values = a.value_dims == 0;
    const uint2 key = keys[i], value = has_values ? values[i] : make_uint2(0, 0);
    const __half k_scale = k_scales[i / 2],
                 v_scale = has_values ? v_scales[i * d.inverse >> 20] : __half(0.0f);
    k[at + i] = unpack_8(key, k_scale);
    if (has_values) v[at + i] = unpack_8(value, v_scale);
  }

  __device__ __forceinline__ void run(const Span &span) {
    const CacheRows cache(a.pages.table ? a.pages.table + span.page : NULL, gridDim.y, blockIdx.y, a.n_ctx);
    const int n = (span.end - span.first + d.unit - 1) / d.unit;
    for (; next < n; next += gridDim.x) {
      const int first = span.first + next * d.unit;
      run_unit(cache.at(first), min(d.unit, span.end - first));
    }
    next -= n;
  }
};

/* The span of the sequence whose first tile is i, or of the token whose first unit is i. Without tiles and
 * units: the span of the only sequence. Empty for other tiles and units, and for padding. A sequence's rows
 * follow one another; its first tile sees its oldest keys. */
__device__ __forceinline__ Span span_of(const AttentionArgs &a, int i, int n_tokens) {
  if (!a.tiles && !a.units) return {0, first_step<kPositions>(a, a.pos[0]), a.pos[0] + n_tokens};
  const int row = a.units ? a.units[i].row : a.tiles[i].row;
  if (row < 0) return {};
  const int page = a.pages.first[row], page_before = a.pages.first[max(row - 1, 0)], pos = a.pos[row];
  const bool begins = a.units ? a.units[i].split == 0 : row == 0 || page != page_before;
  if (!begins) return {};
  return {page, first_step<kPositions>(a, pos), a.units ? pos + 1 : a.tiles[i].length};
}

/* Without tiles and units the step's one sequence counts as a tile. */
__global__ void __launch_bounds__(kThreads)
    unpack_kernel(AttentionArgs a, Division division, int n_tokens, int n_tiles, __half *k, __half *v) {
  __shared__ Span spans[kThreads];
  __shared__ int counts[kThreads / 32];
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  Unpacking work = {a, division, (uint4 *)k, (uint4 *)v, (int)blockIdx.x};
  begin_overlapping();
  for (int tile = 0; tile < n_tiles; tile += kThreads) {
    const int own = tile + threadIdx.x;
    const Span span = own < n_tiles ? span_of(a, own, n_tokens) : Span{};
    /* In all blocks `spans` has the order of the tiles. */
    const unsigned begins = __ballot_sync(~0u, span.end > 0);
    if (lane == 0) counts[warp] = __popc(begins);
    __syncthreads();
    int span_at = __popc(begins & ((1u << lane) - 1)), n_spans = 0;
#pragma unroll
    for (int w = 0; w < kThreads / 32; w++) span_at += w < warp ? counts[w] : 0, n_spans += counts[w];
    if (span.end > 0) spans[span_at] = span;
    __syncthreads();
    for (int s = 0; s < n_spans; s++) work.run(spans[s]);
  }
}

} // namespace

Status attention_unpack(const AttentionArgs &a, int n_tokens, int n_tiles, void *k, void *v,
                        cudaStream_t stream, Error *err) {
  const Division division = division_of(a.head_dim);
  const int n_kv_heads = a.n_kv_heads / a.kv_sharers,
            positions = a.pages.table ? a.pages.n_pages * KV_PAGE_TOKENS : a.n_ctx;
  const dim3 blocks(std::min(ceil_div(kBlocks, n_kv_heads), ceil_div(positions, division.unit)), n_kv_heads);
  return launch(unpack_kernel, blocks, kThreads, 0, stream, true, "unpacking of keys and values", err, a,
                division, n_tokens, std::max(n_tiles, 1), (__half *)k, (__half *)v);
}
