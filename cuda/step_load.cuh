/* step_load.cuh - the warps of a block that load: weights, keys and values of the whole step, in the order in
 * which they are used, through the ring.
 *
 * Three go through all pieces side by side, since a bulk copy takes a warp some hundred cycles to issue: of
 * weights one loads tiles, one scales, one zeros; of the cache one keys, one values; of the head the first
 * everything. A piece is there when all three have arrived and all bytes. They wait for places only, and the
 * first for earlier pieces, so that no more than `in_flight` are under way: what other clusters and peers
 * send queues behind them. While the others wait for values the ring fills. */
#ifndef AUK_CUDA_STEP_LOAD_CUH
#define AUK_CUDA_STEP_LOAD_CUH

#include "cuda/step_block.cuh"

namespace step {

/* kKind: 0 tiles, 1 scales, 2 zeros. */
template <class BlockOf, int kKind> struct Copier {
  static constexpr int kUnit = kKind == 0 ? 1024 : kKind == 1 ? 32 : 8; /* bytes of a group and tile row */
  BlockOf &b;
  RingAt to, oldest; /* where the next piece goes; the oldest one that may be under way */

  /* A place that was never filled counts as loaded and as empty: its barriers are in their first phase. */
  __device__ __forceinline__ Copier(BlockOf &block, int in_flight) : b(block), to{0, 0} {
    oldest.slot = b.args().plan.n_slots - in_flight, oldest.parity = 1;
  }

  /* This warp's part of the next piece: the first `copies` lanes copy so many bytes each, multiples of 16. */
  __device__ __forceinline__ void piece(int to_byte, const void *from, int bytes, int copies) {
    const int n_slots = b.args().plan.n_slots;
    uint64_t *full = &b.barriers()->full[to.slot];
    b.wait(&b.barriers()->empty[to.slot], to.parity ^ 1, STEP_AT_SLOT);
    if (kKind == 0) {
      b.wait(&b.barriers()->full[oldest.slot], oldest.parity, STEP_AT_LIMIT);
      oldest.move(1, n_slots);
    }
    if (b.lane() == 0) barrier_expect(full, bytes * copies);
    __syncwarp();
    if (b.lane() < copies) copy_bulk(b.slot(to.slot) + to_byte, from, bytes, full);
    to.move(1, n_slots);
  }

  /* The keys and values of the positions that are this block's: pieces rank, rank + 8, ... of so many. */
  __device__ __forceinline__ void keys(int pos, int each) {
    constexpr int kRow = STEP_HEAD_DIM * sizeof(__half);
    const auto &c = b.args().call;
    const size_t head = ((size_t)b.at.layer * b.args().plan.shape.n_kv_heads + b.cluster()) * c.n_ctx * kRow;
    const unsigned char *from = (const unsigned char *)(kKind == 0 ? c.k : c.v) + head;
#pragma unroll 1
    for (int key = b.rank() * each; key < pos; key += STEP_BLOCKS * each)
      piece(kKind * each * kRow, from + (size_t)key * kRow, min(each, pos - key) * kRow, kKind < 2 ? 1 : 0);
  }
};

/* All layers; keys in pieces of so many. */
template <int kKind, class LoaderOf, class BlockOf>
__device__ __forceinline__ void load_layers(LoaderOf &loader, BlockOf &b, int pos, int each) {
  static_assert(sizeof(Matrix) == 8 * STEP_LOADERS && sizeof(Layer) % 8 == 0,
                "lanes read a layer as pointers");
  const int n_layers = b.args().plan.shape.n_layers;
  auto pointers_of = [&](int layer) {
    return __ldg((const unsigned long long *)(b.args().layers + layer) + min(b.lane(), 3 * MATRICES - 1));
  };
  unsigned long long now = pointers_of(0);
#pragma unroll 1
  for (b.at.layer = 0; b.at.layer < n_layers; b.at.layer++) {
    const unsigned long long after = pointers_of(min(b.at.layer + 1, n_layers - 1));
#pragma unroll 1
    for (int matrix = b.has_kv_head() ? QKV : GATE_UP; matrix < MATRICES; matrix++) {
      if (matrix == O) loader.keys(pos, each);
      loader.matrix(matrix, (const unsigned char *)__shfl_sync(~0u, now, 3 * matrix + kKind));
    }
    now = after;
  }
}

template <bool kDebug, int kKind> struct Loader : Copier<Block<kDebug>, kKind> {
  using Base = Copier<Block<kDebug>, kKind>;
  using Base::b, Base::kUnit, Base::piece, Base::Base;

  /* All pieces of a share: a lane copies for a tile row. `base`: of this kind, the matrix. */
  __device__ __forceinline__ void matrix(int which, const unsigned char *base) {
    const Share &share = b.share(which);
    const int rows = 1 << share.log_rows, log_parts = share.log_parts, n_rows = share.n_rows;
    const int n_groups = share.n_groups;
    base += (size_t)share.group * kUnit;
#pragma unroll 1
    for (int local = 0; local < n_rows; local += rows) {
      const int copies = min(rows, n_rows - local);
      const unsigned char *row =
          base + (size_t)tile_row(share, local + min(b.lane(), copies - 1)) * (share.all_groups * kUnit);
      int g0 = 0, so_far = 0;
#pragma unroll 1
      do {
        so_far += n_groups;
        const int groups = (so_far >> log_parts) - g0;
        int at = kKind == 0 ? 0 : rows * groups * (kKind == 1 ? 1024 : 1024 + 32), stride = groups * kUnit;
        int before = 0, bytes = stride;
        if (kKind == 2) {
          stride = zeros_stride(groups);
          before = zeros_are_odd(share, g0) ? 8 : 0, bytes = (before + bytes + 15) & ~15;
        }
        piece(at + b.lane() * stride, row + g0 * kUnit - before, bytes, copies);
        g0 += groups;
      } while (g0 < n_groups);
    }
  }

  __device__ __forceinline__ void head(int first, int end) {
    const StepPlan &p = b.args().plan;
    const int row = p.shape.hidden * 2;
#pragma unroll 1
    for (int i = first; i < end; i++) {
      const int rows = min(p.head_rows, p.shape.vocab_size - i * p.head_rows);
      piece(0, b.args().head + (size_t)i * p.head_rows * row, rows * row, kKind == 0 ? 1 : 0);
    }
  }
};

/* Pieces of the head that are this block's. */
__device__ __forceinline__ int first_head_piece(const StepPlan &p, int block) {
  return (int)((long long)block * p.n_head_pieces / (p.shape.n_clusters * STEP_BLOCKS));
}

template <int kKind, bool kDebug> __device__ __forceinline__ void load_all(Block<kDebug> &b) {
  const StepPlan &p = b.args().plan;
  const int pos = *b.args().call.pos;
  Loader<kDebug, kKind> loader(b, min(b.args().in_flight + (pos >= STEP_LONG), b.args().most_in_flight));
  load_layers<kKind>(loader, b, pos, STEP_KEYS);
  loader.head(first_head_piece(p, blockIdx.x), first_head_piece(p, blockIdx.x + 1));
}

} // namespace step

#endif
