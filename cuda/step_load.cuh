/* step_load.cuh - the warp of a block that loads: weights, keys and values of the whole step, in the order in
 * which they are used, through the ring.
 *
 * It waits for places only, and for earlier loads, so that no more than `in_flight` pieces are under way:
 * what other clusters and peers send queues behind them. While the others wait for values the ring fills. */
#ifndef AUK_CUDA_STEP_LOAD_CUH
#define AUK_CUDA_STEP_LOAD_CUH

#include "cuda/step_block.cuh"

namespace step {

template <bool kDebug> struct Loader {
  Block<kDebug> &b;
  RingAt to, oldest; /* where the next piece goes; the oldest one under way */
  int n;             /* pieces so far */

  __device__ __forceinline__ explicit Loader(Block<kDebug> &block) : b(block), to{0, 0}, oldest{0, 0}, n(0) {}

  /* A piece of which each lane copies so many bytes (0: none), multiples of 16. */
  __device__ __forceinline__ void piece(int to_byte, const void *from, int bytes) {
    const int n_slots = b.args().plan.n_slots;
    if (n >= n_slots) b.wait(&b.barriers()->empty[to.slot], to.parity ^ 1, STEP_AT_SLOT, n);
    if (n >= b.args().in_flight) {
      b.wait(&b.barriers()->full[oldest.slot], oldest.parity, STEP_AT_LIMIT, n);
      oldest.move(1, n_slots);
    }
    uint64_t *full = &b.barriers()->full[to.slot];
    int all = __reduce_add_sync(~0u, bytes);
    if (b.lane == 0) barrier_expect(full, all);
    __syncwarp();
    if (bytes) copy_bulk(b.ring + (size_t)to.slot * b.args().plan.slot_bytes + to_byte, from, bytes, full);
    to.move(1, n_slots);
    n++;
  }

  /* All pieces of a share: four lanes a tile row, for its tiles, scales and zeros. `pointers`: of the layer's
   * matrices, one a lane. */
  __device__ __forceinline__ void matrix(int which, unsigned long long pointers) {
    const Share share = share_of(b, which);
    const StepCut &cut = share.cut;
    const int row = b.lane / 4, kind = b.lane % 4, pieces = n_pieces(cut, share.n_rows);
    const unsigned char *base =
        (const unsigned char *)__shfl_sync(~0u, pointers, 3 * which + (kind < 3 ? kind : 0));
    for (int i = 0; i < pieces; i++) {
      const int part = i % cut.parts, local = i / cut.parts * cut.rows + row;
      const int g0 = first_group(cut, part), groups = first_group(cut, part + 1) - g0;
      const bool mine = kind < 3 && row < cut.rows && local < share.n_rows;
      const size_t at = (size_t)tile_row(b, share, mine ? local : 0) * share.all_groups + share.group + g0;
      int place, bytes;
      const unsigned char *from;
      if (kind == 0) {
        place = row * groups * 1024, bytes = groups * 1024, from = base + at * 1024;
      } else if (kind == 1) {
        place = cut.rows * groups * 1024 + row * groups * 32, bytes = groups * 32, from = base + at * 32;
      } else {
        const int before = zeros_are_odd(share, g0) ? 8 : 0;
        place = cut.rows * groups * (1024 + 32) + row * zeros_stride(groups);
        bytes = (before + groups * 8 + 15) & ~15, from = base + at * 8 - before;
      }
      piece(place, from, mine ? bytes : 0);
    }
  }

  /* The keys and values of the positions that are this block's: pieces rank, rank + 8, ... of 32. */
  __device__ __forceinline__ void keys(int pos) {
    const StepCall &c = b.args().call;
    const size_t row = STEP_HEAD_DIM * sizeof(__half);
    const size_t head = ((size_t)b.layer * b.args().plan.shape.n_kv_heads + b.cluster()) * c.n_ctx * row;
    const unsigned char *from = (const unsigned char *)(b.lane == 0 ? c.k : c.v) + head;
    for (int key = b.rank() * STEP_KEYS; key < pos; key += STEP_BLOCKS * STEP_KEYS) {
      const int bytes = min(STEP_KEYS, pos - key) * (int)row;
      piece(b.lane * STEP_KEYS * (int)row, from + key * row, b.lane < 2 ? bytes : 0);
    }
  }

  __device__ __forceinline__ void head(int first, int end) {
    const StepPlan &p = b.args().plan;
    const int row = p.shape.hidden * 2;
    for (int i = first; i < end; i++) {
      const int rows = min(p.head_rows, p.shape.vocab_size - i * p.head_rows);
      piece(0, b.args().head + (size_t)i * p.head_rows * row, b.lane == 0 ? rows * row : 0);
    }
  }
};

/* Pieces of the head that are this block's. */
__device__ __forceinline__ int first_head_piece(const StepPlan &p, int block) {
  return (int)((long long)block * p.n_head_pieces / (p.shape.n_clusters * STEP_BLOCKS));
}

template <bool kDebug> __device__ __forceinline__ void load_all(Block<kDebug> &b) {
  static_assert(sizeof(Matrix) == 24 && sizeof(Layer) % 8 == 0, "lanes read a layer as pointers");
  const StepPlan &p = b.args().plan;
  const int pos = *b.args().call.pos;
  Loader<kDebug> loader(b);
  auto pointers_of = [&](int layer) {
    return __ldg((const unsigned long long *)(b.args().layers + layer) + min(b.lane, 3 * MATRICES - 1));
  };
  unsigned long long now = pointers_of(0);
  for (b.layer = 0; b.layer < p.shape.n_layers; b.layer++) {
    const unsigned long long after = pointers_of(min(b.layer + 1, p.shape.n_layers - 1));
    if (b.has_kv_head()) {
      loader.matrix(QKV, now);
      loader.keys(pos);
      loader.matrix(O, now);
    }
    loader.matrix(GATE_UP, now);
    loader.matrix(DOWN, now);
    now = after;
  }
  loader.head(first_head_piece(p, blockIdx.x), first_head_piece(p, blockIdx.x + 1));
}

} // namespace step

#endif
