/* add_norm.cu - see add_norm.h.
 *
 * Sum k of a step has the tag *first_tag + k; parts and inbox are those of k % 2:
 *
 *   pushed   GPU i -> packets {number, tag, number, tag} into the inbox of each other GPU -> polls its own
 *            inbox until both tags are this sum's
 *   pulled   the kernel before left GPU i's part in its memory; GPU i -> flags[j][i] = tag, release
 *            GPU j -> polls flags[j][i] >= tag, acquire -> reads the part
 *   sent     first GPUs i and j meet by these flags: after that no GPU reads the memory that i overwrites
 *            in j. They need not meet if each gave the other its rows of sum k - 1
 *            block b of GPU i -> some rows of its part into parts[(k + 1) % 2] of the GPU j whose rows they
 *            are (send_rows()); flags[j][PEERS_SENT + b * MAX_SPLIT + i] = tag, release
 *            block b of GPU j -> waits for these flags, adds up the same rows, and stores their results in
 *            each other GPU's memory; the last of its blocks -> flags[i][PEERS_GAVE + j] = tag, and waits
 *            for all GPUs' flags
 *   freed    by the next sum: each GPU began sum k + 1 when its kernel of k had ended. So a GPU that has all
 *            others' parts of k + 1 knows that they have read sum k: k + 2 can overwrite k
 *
 * Failures: a kernel that waits for other GPUs gives up when *lost is set. It sets *lost itself when its
 * patience ends. The kernel's results then mean nothing, and the host reports *lost. */
#include "cuda/kernels/ops/add_norm.h"

#include <cuda_fp16.h>

#include "cuda/kernels/ops/norm_rope.h"
#include "cuda/kernels/ptx/block_sum.cuh"
#include "cuda/kernels/ptx/ceil_div.h"
#include "cuda/kernels/ptx/cluster.cuh"
#include "cuda/kernels/ptx/launch.cuh"
#include "cuda/kernels/ptx/waiting.cuh"

namespace {

enum { CLUSTER_THREADS = 256, MAX_CLUSTER = WIDEST_SUM / (4 * CLUSTER_THREADS), ADD_THREADS = 512 };

/* --- waiting for other GPUs */

__device__ __forceinline__ bool is_other_gpu(const Peers &peers, int gpu) {
  return gpu < peers.n && gpu != peers.rank;
}

/* Sets this GPU's flag, number first + rank, in each other GPU's memory. Then waits for each other GPU's
 * flag, number first + gpu. `first` is 0 (its part of the sum is complete), PEERS_GAVE, or a block's of
 * PEERS_SENT. Each block that calls this sets the flags itself, so blocks can run in any order. met: this
 * thread need not meet its GPU; both GPUs must pass the same. */
__device__ __forceinline__ void meet_peers(const Peers &peers, int first, uint32_t tag, bool met = false) {
  const int gpu = threadIdx.x;
  if (is_other_gpu(peers, gpu) && !met) {
    Waiting waiting;
    const uint32_t *of_gpu = peers.flags[peers.rank] + first + gpu;
    store_flag(peers.flags[gpu] + first + peers.rank, tag);
    const auto has_come = [&](uint32_t flag) {
      return first == 0 ? (int32_t)(flag - tag) >= 0 : flag == tag;
    };
    while (!has_come(load_flag(of_gpu)) && !waiting.gives_up(peers, gpu)) {
    }
  }
  __syncthreads();
}

/* --- sums */

__device__ __forceinline__ float4 operator+(float4 a, float4 b) {
  return make_float4(a.x + b.x, a.y + b.y, a.z + b.z, a.w + b.w);
}

__device__ __forceinline__ float sum_of_squares(float4 v) {
  return v.x * v.x + v.y * v.y + v.z * v.z + v.w * v.w;
}

/* Where a row of y comes from. kComplete: it is complete. kPushed, kPushedToCluster: from packets. kPulled:
 * from the parts in all GPUs' memory. kSent: the GPU that has the row adds up parts that the other GPUs sent
 * to it, and stores the result in their memory. */
enum Source { kComplete, kPushed, kPushedToCluster, kPulled, kSent };

template <Source kSource> __device__ __forceinline__ bool is_pushed() {
  return kSource == kPushed || kSource == kPushedToCluster;
}

/* How many blocks the cluster of a row of n numbers has: one piece of four numbers for each thread. */
__host__ __device__ __forceinline__ unsigned cluster_blocks(int n) {
  return (unsigned)(n + 4 * CLUSTER_THREADS - 1) / (4 * CLUSTER_THREADS);
}

/* The row of this block. */
template <Source kSource> __device__ __forceinline__ unsigned row_of_block(int n) {
  return kSource == kPushedToCluster ? blockIdx.x / cluster_blocks(n) : blockIdx.x;
}

/* The index in the row of this thread's chunk c, a piece of four numbers. */
template <Source kSource, int kThreads> __device__ __forceinline__ int piece_of(int n, int c) {
  const int block = kSource == kPushedToCluster ? (int)(blockIdx.x % cluster_blocks(n)) : 0;
  return (block + c) * kThreads + (int)threadIdx.x;
}

/* Where a GPU finds the packets of piece i of a row from GPU `from`:
 * inbox[parity of the tag][from][row][i][2]. */
__device__ __forceinline__ Packet *packets_of(const Peers &peers, int gpu, int from, unsigned row,
                                              uint32_t tag, int pieces, int i) {
  const size_t of_gpu = ((size_t)(tag & 1) * peers.n + from) * PUSHED_ROWS + row;
  return (Packet *)peers.inbox[gpu] + (of_gpu * pieces + i) * 2;
}

__device__ __forceinline__ float4 take_packets(const Packet *from, uint32_t tag, const Peers &peers, int gpu,
                                               Waiting &waiting) {
  for (;;) {
    const Packet low = load_packet(from), high = load_packet(from + 1);
    if (low.tag_a == tag && low.tag_b == tag && high.tag_a == tag && high.tag_b == tag)
      return make_float4(low.a, low.b, high.a, high.b);
    if (waiting.gives_up(peers, gpu)) return make_float4(0, 0, 0, 0);
  }
}

/* y: this GPU's part of the thread's pieces of a row. Sends y to the other GPUs as packets, and replaces it
 * by the sum of all GPUs' parts. */
template <Source kSource, int kThreads, int kChunks>
__device__ __forceinline__ void exchange_row(const AddNorm &a, const Peers &peers, int pieces,
                                             float4 (&y)[kChunks]) {
  const uint32_t tag = *peers.first_tag + a.sum;
  const unsigned row = row_of_block<kSource>(a.n);
  for (int gpu = 0; gpu < peers.n; gpu++)
#pragma unroll
    for (int c = 0; c < kChunks; c++) {
      const int i = piece_of<kSource, kThreads>(a.n, c);
      if (i >= pieces || gpu == peers.rank) continue;
      Packet *to = packets_of(peers, gpu, peers.rank, row, tag, pieces, i);
      store_packet(to, y[c].x, y[c].y, tag);
      store_packet(to + 1, y[c].z, y[c].w, tag);
    }
  Waiting waiting;
#pragma unroll
  for (int c = 0; c < kChunks; c++) {
    const int i = piece_of<kSource, kThreads>(a.n, c);
    if (i >= pieces) continue;
    const float4 own = y[c];
    for (int gpu = 0; gpu < peers.n; gpu++) {
      float4 part = own;
      if (gpu != peers.rank)
        part =
            take_packets(packets_of(peers, peers.rank, gpu, row, tag, pieces, i), tag, peers, gpu, waiting);
      y[c] = gpu == 0 ? part : y[c] + part;
    }
  }
}

/* Sums a number over all threads of the block, or cluster, that has a row of n numbers. turn: 0 for a
 * kernel's first sum, 1 for its second. The blocks of a cluster send each other their sums, and add them in
 * the order of ranks. barrier[turn] has one phase: it awaits the arrival of the block's first thread and
 * 4 bytes from each block. */
template <Source kSource, int kThreads> struct RowSum {
#if __CUDA_ARCH__ >= 900
  struct Shared {
    uint64_t barrier[2];
    float sums[2][MAX_CLUSTER];
  };
  Shared *shared;

  __device__ __forceinline__ void begin() {
    if (kSource != kPushedToCluster) return;
    __shared__ Shared memory;
    shared = &memory;
    if (threadIdx.x < 2) barrier_init(&shared->barrier[threadIdx.x], 1);
    barrier_init_fence();
    cluster_sync();
  }

  __device__ __forceinline__ float sum_of_cluster(float own, int n, int turn) {
    const int blocks = (int)cluster_blocks(n), rank = (int)blockIdx.x % blocks, block = threadIdx.x;
    if (block == 0) barrier_expect(&shared->barrier[turn], blocks * (int)sizeof(float));
    if (block < blocks)
      send_4(peer_address(&shared->sums[turn][rank], block), __float_as_uint(own),
             peer_address(&shared->barrier[turn], block));
    barrier_wait(&shared->barrier[turn], 0);
    float sum = 0;
    for (int i = 0; i < blocks; i++) sum += shared->sums[turn][i];
    return sum;
  }
#else
  __device__ __forceinline__ void begin() {}
  __device__ __forceinline__ float sum_of_cluster(float own, int, int) {
    return own;
  }
#endif

  __device__ __forceinline__ float operator()(float own, int n, int turn) {
    const float sum = block_sum<kThreads>(own);
    return kSource == kPushedToCluster ? sum_of_cluster(sum, n, turn) : sum;
  }
};

/* A thread's pieces of the norms' weights, and of a row. */
template <int kChunks> struct Weights { float4 own[kChunks], next[kChunks]; };
template <int kChunks> struct Row { float4 x[kChunks], y[kChunks]; };

template <Source kSource> __device__ __forceinline__ bool is_normed(const AddNorm &a) {
  return kSource == kComplete || a.weight;
}

template <Source kSource, int kThreads, int kChunks>
__device__ __forceinline__ Weights<kChunks> load_weights(const AddNorm &a) {
  const float4 zeros = make_float4(0, 0, 0, 0), ones = make_float4(1, 1, 1, 1);
  const int pieces = a.n / 4;
  Weights<kChunks> w;
#pragma unroll
  for (int c = 0; c < kChunks; c++) {
    const int i = piece_of<kSource, kThreads>(a.n, c);
    w.own[c] = !is_normed<kSource>(a) ? ones : i < pieces ? ((const float4 *)a.weight)[i] : zeros;
    w.next[c] = i < pieces && a.next_weight ? ((const float4 *)a.next_weight)[i] : zeros;
  }
  return w;
}

/* The thread's pieces of a row of `from`, rows of n numbers. */
template <Source kSource, int kThreads, int kChunks>
__device__ __forceinline__ void load_row(const float *from, int n, unsigned row, float4 (&to)[kChunks]) {
  const int pieces = n / 4;
#pragma unroll
  for (int c = 0; c < kChunks; c++) {
    const int i = piece_of<kSource, kThreads>(n, c);
    to[c] = i < pieces ? ((const float4 *)from)[(size_t)row * pieces + i] : make_float4(0, 0, 0, 0);
  }
}

/* Adds a row's complete y to x and makes the next norm, as ops_add_rms_norm() does. kSent: also stores the
 * norm in the other GPUs' memory, and x unless `apart`. */
template <Source kSource, int kThreads, int kChunks>
__device__ __forceinline__ void finish_row(const AddNorm &a, const Peers &peers, unsigned row,
                                           const Weights<kChunks> &w, Row<kChunks> &own,
                                           RowSum<kSource, kThreads> &row_sum) {
  constexpr bool kGives = kSource == kSent;
  const int pieces = a.n / 4;
  const float scalar = a.scalar ? *a.scalar : 1;
  float squares = 0, scale = 1;
  if (is_normed<kSource>(a)) {
#pragma unroll
    for (int c = 0; c < kChunks; c++) squares += sum_of_squares(own.y[c]);
    scale = rsqrtf(row_sum(squares, a.n, 0) / a.n + a.eps);
    __syncthreads(); /* block_sum()'s memory is used again */
  }
  squares = 0;
#pragma unroll
  for (int c = 0; c < kChunks; c++) {
    const int i = piece_of<kSource, kThreads>(a.n, c);
    const float4 y = own.y[c], weight = w.own[c];
    float4 &x = own.x[c];
    x.x = (x.x + y.x * scale * weight.x) * scalar, x.y = (x.y + y.y * scale * weight.y) * scalar;
    x.z = (x.z + y.z * scale * weight.z) * scalar, x.w = (x.w + y.w * scale * weight.w) * scalar;
    squares += sum_of_squares(x);
    if (i >= pieces) continue;
    const size_t at = (size_t)row * pieces + i;
    ((float4 *)a.x)[at] = x;
    for (int gpu = 0; kGives && !a.apart && gpu < peers.n; gpu++)
      if (gpu != peers.rank) ((float4 *)peers.x[gpu])[at] = x;
  }
  if (!a.next_weight) return;
  const float next_scale = rsqrtf(row_sum(squares, a.n, 1) / a.n + a.next_eps);
#pragma unroll
  for (int c = 0; c < kChunks; c++) {
    const int i = piece_of<kSource, kThreads>(a.n, c);
    if (i >= pieces) continue;
    const size_t at = (size_t)row * a.out_stride + 4 * i;
    const float4 x = own.x[c], next = w.next[c];
    __half2 pair[2] = {__floats2half2_rn(x.x * next_scale * next.x, x.y * next_scale * next.y),
                       __floats2half2_rn(x.z * next_scale * next.z, x.w * next_scale * next.w)};
    *(uint2 *)((__half *)a.out + at) = *(uint2 *)pair;
    for (int gpu = 0; kGives && gpu < peers.n; gpu++)
      if (gpu != peers.rank) *(uint2 *)((__half *)peers.h[gpu] + at) = *(uint2 *)pair;
  }
}

/* ops_add_rms_norm() with rows in registers: n % 4 == 0, and n <= kThreads * 4 * kChunks times the blocks
 * that share the row. Weights are fetched while the previous kernel ends. */
template <Source kSource, int kThreads, int kChunks>
__global__ void __launch_bounds__(kThreads) add_rms_norm_in_registers_kernel(AddNorm a, Peers peers) {
  dependents_may_start();
  RowSum<kSource, kThreads> row_sum;
  row_sum.begin();
  const Weights<kChunks> w = load_weights<kSource, kThreads, kChunks>(a);
  wait_for_previous();
  const unsigned row = row_of_block<kSource>(a.n);
  Row<kChunks> own;
  load_row<kSource, kThreads>(a.x, a.n, row, own.x);
  load_row<kSource, kThreads>(a.y, a.n, row, own.y);
  if (is_pushed<kSource>()) exchange_row<kSource, kThreads, kChunks>(a, peers, a.n / 4, own.y);
  finish_row<kSource, kThreads, kChunks>(a, peers, row, w, own, row_sum);
}

/* --- sums of many rows, whose parts are read from memory */

/* A row on its way to the GPU whose row it is: integers of 16 bits, and a scale for each 32 of them. That is
 * about half of the bytes, at a step of 1 / 32,767 of the largest of 32 numbers. */
struct SentRow {
  uint64_t *pieces; /* [n / 4]: four integers each */
  float *scales;    /* [n / 32], rounded up */
};

/* Where `to` finds row number `row` of its own rows from GPU `from`. */
__device__ __forceinline__ SentRow sent_row(const AddNorm &a, const Peers &peers, int n_rows, int to,
                                            int from, unsigned row) {
  const size_t pieces = a.n / 4, bytes = pieces * 8 + (pieces + 15) / 16 * 8;
  const size_t most = (n_rows + peers.n - 1) / peers.n; /* own rows of a GPU */
  char *at = (char *)peers.parts[(a.sum + 1) & 1][to] + (from * most + row) * bytes;
  return {(uint64_t *)at, (float *)(at + pieces * 8)};
}

/* Rounds the thread's piece. Eight lanes share a scale; NaN and infinities become a scale that makes NaN. */
__device__ __forceinline__ uint64_t rounded_piece(const float4 &v, float &scale) {
  const uint4 bits = *(const uint4 *)&v;
  uint32_t most =
      max(max(bits.x & 0x7fffffff, bits.y & 0x7fffffff), max(bits.z & 0x7fffffff, bits.w & 0x7fffffff));
#pragma unroll
  for (int lane = 1; lane < 8; lane *= 2) most = max(most, __shfl_xor_sync(~0u, most, lane));
  const float largest = __uint_as_float(most), factor = largest < 0x1p-100f ? 0 : 32767 / largest;
  scale = largest / 32767;
  const auto pair = [factor](float low, float high) {
    return (uint32_t)(uint16_t)__float2int_rn(low * factor) | (uint32_t)__float2int_rn(high * factor) << 16;
  };
  return (uint64_t)pair(v.z, v.w) << 32 | pair(v.x, v.y);
}

/* Sends to every other GPU this block's share of the rows that GPU adds up. Then waits for the same blocks of
 * the other GPUs, which send this GPU's rows. */
template <int kThreads, int kChunks>
__device__ __forceinline__ void send_rows(const AddNorm &a, const Peers &peers, int n_rows, uint32_t tag) {
  const int pieces = a.n / 4;
  for (int gpu = 0; gpu < peers.n; gpu++) {
    if (gpu == peers.rank) continue;
    const unsigned first = peers_first_row(&peers, gpu, n_rows),
                   end = peers_first_row(&peers, gpu + 1, n_rows);
    for (unsigned row = first + blockIdx.x; row < end; row += gridDim.x) {
      const SentRow to = sent_row(a, peers, n_rows, gpu, peers.rank, row - first);
      float4 part[kChunks];
      load_row<kSent, kThreads>(a.y, a.n, row, part);
#pragma unroll
      for (int c = 0; c < kChunks; c++) {
        const int i = piece_of<kSent, kThreads>(a.n, c);
        float scale;
        const uint64_t piece = rounded_piece(part[c], scale);
        if (i < pieces) to.pieces[i] = piece;
        if (i < pieces && i % 8 == 0) to.scales[i / 8] = scale;
      }
    }
  }
  __threadfence_system();
  __syncthreads();
  meet_peers(peers, PEERS_SENT + (int)blockIdx.x * MAX_SPLIT, tag);
}

/* A piece of a GPU's part of a row, as it was loaded. */
template <Source kSource> struct PartPiece {
  float4 v;
  __device__ __forceinline__ float4 value() const { return v; }
};
template <> struct PartPiece<kSent> {
  uint64_t v;
  float scale;
  __device__ __forceinline__ float4 value() const {
    const auto number = [this](int i) { return __fmul_rn((float)(int16_t)(v >> 16 * i), scale); };
    return make_float4(number(0), number(1), number(2), number(3));
  }
};

/* The thread's pieces of a row of another GPU's part. first: the first of this GPU's rows. */
template <Source kSource, int kThreads, int kChunks>
__device__ __forceinline__ void load_part(const AddNorm &a, const Peers &peers, int n_rows, int gpu,
                                          unsigned first, unsigned row, PartPiece<kSource> (&part)[kChunks]) {
  const int pieces = a.n / 4;
#pragma unroll
  for (int c = 0; c < kChunks; c++) {
    const int i = piece_of<kSource, kThreads>(a.n, c);
    part[c] = {};
    if (i >= pieces) continue;
    if constexpr (kSource == kSent) {
      const SentRow from = sent_row(a, peers, n_rows, peers.rank, gpu, row - first);
      part[c] = {load_peer(from.pieces + i), load_peer(from.scales + i / 8)};
    } else {
      part[c] = {load_peer((const float4 *)peers.parts[a.sum & 1][gpu] + (size_t)row * pieces + i)};
    }
  }
}

/* Tells the other GPUs that this GPU's rows are in their memory, and waits for their rows. Only the last
 * block to finish does so: blocks that waited could keep blocks of this kernel from starting. */
__device__ __forceinline__ void give_rows(const Peers &peers, uint32_t tag) {
  __shared__ bool is_last;
  uint32_t *own = peers.flags[peers.rank];
  __syncthreads();
  if (threadIdx.x == 0) {
    __threadfence_system();
    is_last = atomicAdd(own + PEERS_BLOCKS, 1u) == gridDim.x - 1;
    if (is_last) own[PEERS_BLOCKS] = 0;
    __threadfence_system();
  }
  __syncthreads();
  if (is_last) meet_peers(peers, PEERS_GAVE, tag);
}

/* True if the thread's GPU has given this GPU its rows of sum `tag`. Then this GPU has given it rows of that
 * sum as well. */
__device__ __forceinline__ bool has_given(const Peers &peers, uint32_t tag) {
  const int gpu = threadIdx.x;
  return is_other_gpu(peers, gpu) && load_flag(peers.flags[peers.rank] + PEERS_GAVE + gpu) == tag;
}

/* Sums and finishes all rows, or with kSent this GPU's own. A block takes every gridDim.x-th of them. While a
 * block adds up a row, its next row is loaded: a load from another GPU takes as long as all the rest (LOG.md,
 * "Several GPUs"). */
template <Source kSource, int kThreads, int kChunks>
__global__ void __launch_bounds__(kThreads, kChunks == 1 ? 2 : 1)
    add_parts_kernel(AddNorm a, Peers peers, int n_rows) {
  dependents_may_start();
  RowSum<kSource, kThreads> row_sum;
  wait_for_previous();
  const uint32_t tag = *peers.first_tag + a.sum;
  const int ahead = peers.rank == 0; /* the one other GPU, 0 or 1, whose part is loaded ahead */
  meet_peers(peers, 0, tag, kSource == kSent && has_given(peers, tag - 1));
  if constexpr (kSource == kSent) send_rows<kThreads, kChunks>(a, peers, n_rows, tag);
  const unsigned first = kSource == kSent ? peers_first_row(&peers, peers.rank, n_rows) : 0,
                 end = kSource == kSent ? peers_first_row(&peers, peers.rank + 1, n_rows) : n_rows;
  float4 x[kChunks], own[kChunks];
  PartPiece<kSource> other[kChunks];
  const auto load = [&](unsigned row) {
    load_row<kSource, kThreads>(a.x, a.n, row, x);
    load_row<kSource, kThreads>(a.y, a.n, row, own);
    load_part<kSource, kThreads>(a, peers, n_rows, ahead, first, row, other);
  };
  if (first + blockIdx.x < end) load(first + blockIdx.x);
  for (unsigned row = first + blockIdx.x; row < end; row += gridDim.x) {
    Row<kChunks> to;
    float4 of_own[kChunks];
    PartPiece<kSource> part[kChunks];
#pragma unroll
    for (int c = 0; c < kChunks; c++) to.x[c] = x[c], of_own[c] = own[c], part[c] = other[c];
    if (row + gridDim.x < end) load(row + gridDim.x);
    for (int gpu = 0; gpu < peers.n; gpu++) {
      if (gpu != peers.rank && gpu != ahead)
        load_part<kSource, kThreads>(a, peers, n_rows, gpu, first, row, part);
#pragma unroll
      for (int c = 0; c < kChunks; c++) {
        const float4 of_gpu = gpu == peers.rank ? of_own[c] : part[c].value();
        to.y[c] = gpu == 0 ? of_gpu : to.y[c] + of_gpu;
      }
    }
    const Weights<kChunks> w = load_weights<kSource, kThreads, kChunks>(a); /* from L1: registers are few */
    finish_row<kSource, kThreads, kChunks>(a, peers, row, w, to, row_sum);
    __syncthreads(); /* block_sum()'s memory is used again */
  }
  if (kSource == kSent) give_rows(peers, tag);
}

template <int kThreads> __global__ void __launch_bounds__(kThreads) add_rms_norm_kernel(AddNorm a) {
  begin_overlapping();
  const float *from = a.y + (size_t)blockIdx.x * a.n;
  float *to = a.x + (size_t)blockIdx.x * a.n, scale = rms_scale<kThreads>(from, a.n, a.eps);
  const float scalar = a.scalar ? *a.scalar : 1;
  for (int i = threadIdx.x; i < a.n; i += kThreads) to[i] = (to[i] + from[i] * scale * a.weight[i]) * scalar;
}

/* --- a step */

/* Like set_step_kernel of norm_rope.cu: no later kernel starts before this one has ended. */
__global__ void begin_step_kernel(uint32_t *first_tag, int n_sums) {
  wait_for_previous();
  *first_tag += n_sums;
}

/* Block (i, row) copies every gridDim.x-th piece of the row's logits of each other GPU. */
template <int kThreads>
__global__ void __launch_bounds__(kThreads) gather_logits_kernel(Peers peers, int sum) {
  begin_overlapping();
  meet_peers(peers, 0, *peers.first_tag + sum);
  const size_t row = (size_t)blockIdx.y * peers.first_logit[peers.n];
  for (int gpu = 0; gpu < peers.n; gpu++) {
    if (gpu == peers.rank) continue;
    const float *from = peers.logits[gpu] + row;
    float *to = peers.logits[peers.rank] + row;
    const int end = peers.first_logit[gpu + 1];
    for (int i = peers.first_logit[gpu] + blockIdx.x * kThreads + threadIdx.x; i < end;
         i += gridDim.x * kThreads)
      to[i] = load_peer(from + i);
  }
}

/* A block waits for packets that the other GPUs' blocks of its row send: all blocks must be resident at
 * once. */
Status launch_in_clusters(const AddNorm *a, const Peers &peers, int n_tokens, cudaStream_t stream,
                          Error *err) {
  const unsigned blocks = cluster_blocks(a->n);
  return launch_clusters(blocks, add_rms_norm_in_registers_kernel<kPushedToCluster, CLUSTER_THREADS, 1>,
                         blocks * (unsigned)n_tokens, CLUSTER_THREADS, 0, stream, true, "sum over GPUs", err,
                         *a, peers);
}

template <Source kSource>
Status launch_in_registers(const AddNorm *a, const Peers &peers, int n_tokens, cudaStream_t stream,
                           Error *err) {
  const bool narrow = a->n <= 4096;
  auto kernel = narrow ? add_rms_norm_in_registers_kernel<kSource, 512, 2>
                       : add_rms_norm_in_registers_kernel<kSource, 1024, 2>;
  const int threads = narrow ? 512 : 1024;
  return launch(kernel, n_tokens, threads, 0, stream, true, "norm", err, *a, peers);
}

template <int kChunks>
Status launch_add_parts(const AddNorm *a, const Peers &peers, int n_tokens, cudaStream_t stream, Error *err) {
  const int n_rows = a->own_rows ? ceil_div(n_tokens, peers.n) : n_tokens;
  int blocks = kChunks == 1 ? 2 * peers.n_sms : peers.n_sms;
  if (blocks > MOST_SUM_BLOCKS) blocks = MOST_SUM_BLOCKS;
  if (blocks > n_rows) blocks = n_rows;
  /* With own rows a block waits for the same block of the other GPUs: all must be resident at once. */
  return a->own_rows ? launch_resident(add_parts_kernel<kSent, ADD_THREADS, kChunks>, blocks, ADD_THREADS, 0,
                                       stream, true, "sum over GPUs", err, *a, peers, n_tokens)
                     : launch(add_parts_kernel<kPulled, ADD_THREADS, kChunks>, blocks, ADD_THREADS, 0, stream,
                              true, "sum over GPUs", err, *a, peers, n_tokens);
}

Status add_parts(const AddNorm *a, const Peers &peers, int n_tokens, cudaStream_t stream, Error *err) {
  constexpr int kOfChunk = 4 * ADD_THREADS;
  static_assert(WIDEST_SUM <= 4 * kOfChunk, "four chunks are enough");
  switch (ceil_div(a->n, kOfChunk)) {
  case 1: return launch_add_parts<1>(a, peers, n_tokens, stream, err);
  case 2: return launch_add_parts<2>(a, peers, n_tokens, stream, err);
  case 3: return launch_add_parts<3>(a, peers, n_tokens, stream, err);
  default: return launch_add_parts<4>(a, peers, n_tokens, stream, err);
  }
}

} // namespace

size_t peers_inbox_bytes(int n, int hidden) {
  return (size_t)2 * n * PUSHED_ROWS * (hidden / 2) * sizeof(Packet);
}

bool peers_own_rows_pay(const Peers *peers, int hidden, int n_rows, bool apart) {
  const int64_t n = peers->n, own = 2 + 2 + (apart ? 0 : 4);
  return peers->pushed_rows > 1 && n_rows > peers->pushed_rows && n_rows >= n &&
         (n - 1) * (4 * n - own) * n_rows * hidden / n >= SPARED_BYTES;
}

Status peers_begin_step(uint32_t *first_tag, int n_sums, cudaStream_t stream, Error *err) {
  return launch(begin_step_kernel, 1, 1, 0, stream, true, "sum over GPUs", err, first_tag, n_sums);
}

Status peers_gather_logits(const Peers *peers, int sum, int n_rows, cudaStream_t stream, Error *err) {
  const int blocks = n_rows > 8 ? 8 : 64;
  return launch(gather_logits_kernel<512>, dim3(blocks, n_rows), 512, 0, stream, true, "logits of GPUs", err,
                *peers, sum);
}

Status ops_add_rms_norm(const AddNorm *a, int n_tokens, cudaStream_t stream, Error *err) {
  const bool in_registers = a->n % 4 == 0 && a->n <= WIDEST_SUM;
  if (a->peers) {
    if (!in_registers)
      return error_set(err, STATUS_FAILED, "a sum over GPUs of rows of %d numbers, expected fours up to %d",
                       a->n, WIDEST_SUM);
    if (a->peers->pushed_rows > 1 && n_tokens <= a->peers->pushed_rows)
      return launch_in_clusters(a, *a->peers, n_tokens, stream, err);
    if (n_tokens <= a->peers->pushed_rows)
      return launch_in_registers<kPushed>(a, *a->peers, n_tokens, stream, err);
    return add_parts(a, *a->peers, n_tokens, stream, err);
  }
  if (in_registers) return launch_in_registers<kComplete>(a, Peers{}, n_tokens, stream, err);
  TRY(launch(add_rms_norm_kernel<512>, n_tokens, 512, 0, stream, true, "norm", err, *a));
  if (!a->next_weight) return STATUS_OK;
  return ops_rms_norm(a->x, a->next_weight, a->next_eps, a->n, n_tokens, a->out, a->out_stride, stream, err);
}
