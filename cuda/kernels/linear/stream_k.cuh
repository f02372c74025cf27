/* stream_k.cuh - stream-K: output tiles are cut along k so that every block gets the same number of steps
 * (Osama et al., Stream-K, arXiv:2301.03598).
 *
 * All n_tiles * n_steps steps lie in one sequence, tile after tile. Block b takes the b-th of n_blocks equal
 * parts: the end of one tile, some whole tiles, and the start of another.
 *
 *     tiles   |  0: s s s s s s  |  1: s s s s s s  |  2: ...
 *     blocks  |---- 0 ----|---- 1 ----|---- 2 ----| ...
 *
 * A block with a part of a tile writes its sums to the workspace. The last block to finish a tile adds all
 * parts in the order of k, its own among them, and stores the result. No block waits for another, and the
 * bits do not depend on which block was last. */
#pragma once

#include "cuda/kernels/linear/dispatch.h"
#include "cuda/kernels/ptx/ceil_div.h"
#include "cuda/kernels/ptx/ptx.cuh"

namespace stream_k {

struct Work {
  int n_tiles, n_steps; /* n_steps: steps of one tile */
  int n_blocks;
};

__host__ __device__ __forceinline__ int total_steps(const Work &w) {
  return w.n_tiles * w.n_steps;
}

__host__ __device__ __forceinline__ int first_step(const Work &w, int block) {
  return (int)((int64_t)block * total_steps(w) / w.n_blocks);
}

/* The block that does the given step. */
__device__ __forceinline__ int block_of(const Work &w, int step) {
  return (int)((((int64_t)step + 1) * w.n_blocks - 1) / total_steps(w));
}

/* Work of n_tiles tiles of n_steps steps for at most `most` blocks. Each block has at least least_steps
 * steps, or n_steps if these are fewer. If at least 85% of the blocks remain, their number divides the number
 * of tiles or is a multiple of it. Then no block has parts of two tiles. */
inline Work even_work(int n_tiles, int n_steps, int most, int least_steps) {
  Work w = {n_tiles, n_steps, most};
  int useful = total_steps(w) / (least_steps < n_steps ? least_steps : n_steps);
  if (w.n_blocks > useful) w.n_blocks = useful > 0 ? useful : 1;
  int waves = ceil_div(n_tiles, w.n_blocks), even = ceil_div(n_tiles, waves);
  if (waves == 1)
    even = n_tiles * (w.n_blocks / n_tiles);
  else if (n_tiles % even != 0)
    return w;
  if (dispatch_busy_enough(even, w.n_blocks)) w.n_blocks = even;
  return w;
}

/* Position of a block: a tile, its place in the grid of tiles (outputs by tokens), and a step of the tile. */
struct Cursor {
  int tile, out_tile, token_tile, step;
  __device__ __forceinline__ Cursor(const Work &w, int n_token_tiles, int at)
      : tile(at / w.n_steps), out_tile(tile / n_token_tiles), token_tile(tile % n_token_tiles),
        step(at % w.n_steps) {}
  __device__ __forceinline__ void advance(const Work &w, int n_token_tiles) {
    if (++step == w.n_steps) begin_next_tile(n_token_tiles);
  }
  __device__ __forceinline__ void begin_next_tile(int n_token_tiles) {
    step = 0;
    tile++;
    if (++token_tile == n_token_tiles) token_tile = 0, out_tile++;
  }
};

/* Bytes of workspace for the parts of two tiles per block, its first and its last; `floats` sums per
 * thread. */
inline size_t partial_bytes(int n_blocks, int threads, int floats) {
  return (size_t)n_blocks * 2 * (size_t)threads * (size_t)floats * sizeof(float);
}

/* Sums are fp32 or int32; four move as one vector. */
template <class Sum> struct Four;
template <> struct Four<float> { typedef float4 Vector; };
template <> struct Four<int> { typedef int4 Vector; };

/* kThreads threads of the block have summed steps [begin, end) of `tile` in acc; steps are counted from the
 * first tile on. Returns, in every thread, whether acc now holds the sum of the whole tile. sync: a barrier
 * of exactly those threads. last: in shared memory. */
template <int kFloats, int kThreads, class Sum, class Sync>
__device__ __forceinline__ bool combine(Sum (&acc)[kFloats], const Work &w, int block, int tile, int begin,
                                        int end, int thread, Sum *partial, unsigned *counters, int *last,
                                        Sync sync) {
  static_assert(kFloats % 4 == 0, "parts move as vectors of 16 bytes");
  constexpr int kAtOnce = kFloats < 128 ? 128 / kFloats : 1; /* parts whose loads are in flight together */
  if (begin == tile * w.n_steps && end == (tile + 1) * w.n_steps) return true;
  int first = block_of(w, tile * w.n_steps), final = block_of(w, (tile + 1) * w.n_steps - 1);
  typedef typename Four<Sum>::Vector Vector;
  Vector *parts = (Vector *)partial + thread;
  /* The tile is the first that a block works on, except perhaps for the block that begins it. */
  const bool begun_late = first_step(w, first) < tile * w.n_steps;
  const auto part = [&](int b) {
    return parts + (size_t)(2 * b + (b == first && begun_late)) * (kFloats / 4) * kThreads;
  };
  Vector *mine = part(block);
#pragma unroll
  for (int i = 0; i < kFloats / 4; i++)
    __stcg(mine + i * kThreads, Vector{acc[4 * i], acc[4 * i + 1], acc[4 * i + 2], acc[4 * i + 3]});
  sync();
  if (thread == 0) { /* no two tiles that are cut begin in the same block */
    *last = count_up(counters + first) == (unsigned)(final - first);
    if (*last) counters[first] = 0;
  }
  sync();
  bool whole = *last != 0;
  sync(); /* before *last is written again */
  if (!whole) return false;
#pragma unroll
  for (int i = 0; i < kFloats; i++) acc[i] = 0;
  for (int b0 = first; b0 <= final; b0 += kAtOnce) {
    Vector v[kAtOnce][kFloats / 4];
#pragma unroll
    for (int b = 0; b < kAtOnce; b++)
#pragma unroll
      for (int i = 0; i < kFloats / 4; i++)
        v[b][i] = b0 + b <= final ? __ldcg(part(b0 + b) + i * kThreads) : Vector{};
#pragma unroll
    for (int b = 0; b < kAtOnce; b++)
#pragma unroll
      for (int i = 0; i < kFloats / 4; i++) {
        acc[4 * i] += v[b][i].x;
        acc[4 * i + 1] += v[b][i].y;
        acc[4 * i + 2] += v[b][i].z;
        acc[4 * i + 3] += v[b][i].w;
      }
  }
  return true;
}

/* The main loop of a tile kernel: the steps of the block in order, with the copies of the next kStages - 1
 * steps in flight. All threads fill, read and free the ring of kStages slots together; the block's s-th
 * step is in slot s % kStages:
 *
 *     copy_async_wait<kStages - 2>()   this thread's copies of step s have landed
 *     __syncthreads()                  all threads' copies have landed, and all threads have read step s - 1
 *     load_weights, load_x             step s + kStages - 1, into the slot of s - 1; one group, maybe empty
 *     multiply                         step s
 *
 * Weights never change. So the first steps' weights are asked for before the previous kernel has ended, and
 * only x waits for it. finish() is called outside of the loop over a tile's steps: inside, the compiler moved
 * the sums to other registers in every step.
 *
 * The kernel passes what differs:
 *
 *   load_weights(stage, at, jumps)  starts the copies of the weights of step `at`; jumps: it begins a tile or
 *                                   is the block's first
 *   load_x(stage, at, jumps)        the same for x
 *   multiply(stage)                 adds a step to the sums of the tile
 *   finish(at, whole)               ends the tile, or the block's part of it, and resets the sums;
 *                                   whole(sums) calls combine(): true if this block stores the tile
 *
 * PRECOND  shared holds kStages * kStageBytes; every thread of the block calls. */
template <int kStages, int kStageBytes, int kThreads, class Sum, class LoadWeights, class LoadX,
          class Multiply, class Finish>
__device__ __forceinline__ void run(const Work &w, int n_token_tiles, unsigned char *shared, Sum *partial,
                                    unsigned *counters, LoadWeights load_weights, LoadX load_x,
                                    Multiply multiply, Finish finish) {
  __shared__ int last;
  const int begin = first_step(w, blockIdx.x), end = first_step(w, blockIdx.x + 1);
  Cursor at(w, n_token_tiles, begin), ahead = at;
  int slot = 0, ahead_slot = kStages - 1;
  dependents_may_start();
  for (int i = 0; i < kStages - 1 && begin + i < end; i++) {
    load_weights(shared + i * kStageBytes, ahead, i == 0 || ahead.step == 0);
    ahead.advance(w, n_token_tiles);
  }
  wait_for_previous();
  ahead = at;
  for (int i = 0; i < kStages - 1; i++) {
    if (begin + i < end) {
      load_x(shared + i * kStageBytes, ahead, i == 0 || ahead.step == 0);
      ahead.advance(w, n_token_tiles);
    }
    copy_async_commit();
  }

  for (int step = begin; step < end; at.begin_next_tile(n_token_tiles)) {
    const int tile_begin = step, tile_end = min(step + w.n_steps - at.step, end);
    for (; step < tile_end; step++) {
      copy_async_wait<kStages - 2>();
      __syncthreads();
      if (step + kStages - 1 < end) {
        load_weights(shared + ahead_slot * kStageBytes, ahead, ahead.step == 0);
        load_x(shared + ahead_slot * kStageBytes, ahead, ahead.step == 0);
        ahead.advance(w, n_token_tiles);
        if (++ahead_slot == kStages) ahead_slot = 0;
      }
      copy_async_commit();
      multiply(shared + slot * kStageBytes);
      if (++slot == kStages) slot = 0;
    }
    finish(at, [&](auto &sums) {
      return combine<sizeof sums / sizeof(Sum), kThreads>(sums, w, blockIdx.x, at.tile, tile_begin, tile_end,
                                                          threadIdx.x, partial, counters, &last,
                                                          [] { __syncthreads(); });
    });
  }
}

} // namespace stream_k
