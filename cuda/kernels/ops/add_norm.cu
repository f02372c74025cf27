/* add_norm.cu - see add_norm.h.
 *
 * Sum k of a step has the tag *first_tag + k; parts and inbox are those of k % 2:
 *
 *   pushed   GPU i -> packets {number, tag, number, tag} into the inbox of each other GPU -> polls its own
 *            inbox until both tags are this sum's
 *   pulled   GPU i -> its part is in its memory, by the kernel before -> flags[j][i] = tag, release
 *            GPU j -> polls flags[j][i] >= tag, acquire -> reads the part
 *   freed    by the next sum: a GPU that has sum k + 1 of all others knows that they have read sum k, since
 *            each began k + 1 when its kernel of k had ended; so k + 2 may overwrite k
 *
 * Always true: a kernel that waits for other GPUs gives up once *lost is set, and sets *lost itself when its
 * patience ends. The kernel's results then mean nothing, and the host reports *lost. */
#include "cuda/kernels/ops/add_norm.h"

#include <cuda_fp16.h>

#include "cuda/kernels/ops/norm_rope.h"
#include "cuda/kernels/ptx/block_sum.cuh"
#include "cuda/kernels/ptx/cluster.cuh"
#include "cuda/kernels/ptx/launch.cuh"
#include "cuda/kernels/ptx/waiting.cuh"

namespace {

enum { CLUSTER_THREADS = 256, MAX_CLUSTER = WIDEST_SUM / (4 * CLUSTER_THREADS) };

/* --- waiting for other GPUs */

/* Sets the flags by which the other GPUs know that this GPU's part of a sum is complete, and waits for the
 * other GPUs' flags. Every block sets the flags, so blocks may run in any order. */
__device__ __forceinline__ void meet_peers(const Peers &peers, uint32_t tag) {
  const int gpu = threadIdx.x;
  if (gpu < peers.n && gpu != peers.rank) {
    Waiting waiting;
    store_flag(peers.flags[gpu] + peers.rank, tag);
    while ((int32_t)(load_flag(peers.flags[peers.rank] + gpu) - tag) < 0 && !waiting.gives_up(peers, gpu)) {
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

/* The source of a row of y: already complete; packets pushed to one block, or to a cluster of blocks; parts
 * read from the other GPUs. */
enum Source { kComplete, kPushed, kPushedToCluster, kPulled };

template <Source kSource> __device__ __forceinline__ bool is_pushed() {
  return kSource == kPushed || kSource == kPushedToCluster;
}

/* Blocks of the cluster that has a row of n numbers, a piece of four for each thread. */
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

/* Replaces y, this GPU's part of the thread's pieces of a row, by the sum of all GPUs' parts. */
template <Source kSource, int kThreads, int kChunks>
__device__ __forceinline__ void sum_row(const AddNorm &a, const Peers &peers, int pieces,
                                        float4 (&y)[kChunks]) {
  const uint32_t tag = *peers.first_tag + a.sum;
  const unsigned row = row_of_block<kSource>(a.n);
  if (is_pushed<kSource>())
    for (int gpu = 0; gpu < peers.n; gpu++)
#pragma unroll
      for (int c = 0; c < kChunks; c++) {
        const int i = piece_of<kSource, kThreads>(a.n, c);
        if (i >= pieces || gpu == peers.rank) continue;
        Packet *to = packets_of(peers, gpu, peers.rank, row, tag, pieces, i);
        store_packet(to, y[c].x, y[c].y, tag);
        store_packet(to + 1, y[c].z, y[c].w, tag);
      }
  else
    meet_peers(peers, tag);
  Waiting waiting;
#pragma unroll
  for (int c = 0; c < kChunks; c++) {
    const int i = piece_of<kSource, kThreads>(a.n, c);
    if (i >= pieces) continue;
    const float4 own = y[c];
    for (int gpu = 0; gpu < peers.n; gpu++) {
      float4 part = own;
      if (gpu != peers.rank && is_pushed<kSource>())
        part =
            take_packets(packets_of(peers, peers.rank, gpu, row, tag, pieces, i), tag, peers, gpu, waiting);
      else if (gpu != peers.rank)
        part = load_peer((const float4 *)peers.parts[a.sum & 1][gpu] + (size_t)row * pieces + i);
      y[c] = gpu == 0 ? part : y[c] + part;
    }
  }
}

/* Sums a number over all threads of the block, or cluster, that has a row of n numbers. turn: 0 for a
 * kernel's first sum, 1 for its second. The blocks of a cluster send each other their sums, and add them in
 * the order of ranks: barrier[turn] has one phase, the arrival of the block's first thread and 4 bytes from
 * each block. */
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

/* ops_add_rms_norm() with rows in registers: n % 4 == 0, and n <= kThreads * 4 * kChunks times the blocks
 * that share the row. Weights are fetched while the previous kernel ends. */
template <Source kSource, int kThreads, int kChunks>
__global__ void __launch_bounds__(kThreads) add_rms_norm_in_registers_kernel(AddNorm a, Peers peers) {
  dependents_may_start();
  const int pieces = a.n / 4;
  const float scalar = a.scalar ? *a.scalar : 1;
  const bool normed = kSource == kComplete || a.weight;
  const float4 zeros = make_float4(0, 0, 0, 0), ones = make_float4(1, 1, 1, 1);
  float4 w[kChunks], next[kChunks], x[kChunks], y[kChunks];
  RowSum<kSource, kThreads> row_sum;
  row_sum.begin();
#pragma unroll
  for (int c = 0; c < kChunks; c++) {
    const int i = piece_of<kSource, kThreads>(a.n, c);
    w[c] = !normed ? ones : i < pieces ? ((const float4 *)a.weight)[i] : zeros;
    next[c] = i < pieces && a.next_weight ? ((const float4 *)a.next_weight)[i] : zeros;
  }
  wait_for_previous();
  float4 *row = (float4 *)a.x + (size_t)row_of_block<kSource>(a.n) * pieces;
  const float4 *from = (const float4 *)a.y + (size_t)row_of_block<kSource>(a.n) * pieces;
#pragma unroll
  for (int c = 0; c < kChunks; c++) {
    const int i = piece_of<kSource, kThreads>(a.n, c);
    y[c] = i < pieces ? from[i] : zeros, x[c] = i < pieces ? row[i] : zeros;
  }
  if (kSource != kComplete) sum_row<kSource, kThreads, kChunks>(a, peers, pieces, y);
  float squares = 0, scale = 1;
  if (normed) {
#pragma unroll
    for (int c = 0; c < kChunks; c++) squares += sum_of_squares(y[c]);
    scale = rsqrtf(row_sum(squares, a.n, 0) / a.n + a.eps);
    __syncthreads(); /* block_sum()'s memory is used again */
  }
  squares = 0;
#pragma unroll
  for (int c = 0; c < kChunks; c++) {
    const int i = piece_of<kSource, kThreads>(a.n, c);
    x[c].x = (x[c].x + y[c].x * scale * w[c].x) * scalar,
    x[c].y = (x[c].y + y[c].y * scale * w[c].y) * scalar;
    x[c].z = (x[c].z + y[c].z * scale * w[c].z) * scalar,
    x[c].w = (x[c].w + y[c].w * scale * w[c].w) * scalar;
    if (i < pieces) row[i] = x[c];
    squares += sum_of_squares(x[c]);
  }
  if (!a.next_weight) return;
  const float next_scale = rsqrtf(row_sum(squares, a.n, 1) / a.n + a.next_eps);
  __half *to = (__half *)a.out + (size_t)row_of_block<kSource>(a.n) * a.out_stride;
#pragma unroll
  for (int c = 0; c < kChunks; c++) {
    const int i = piece_of<kSource, kThreads>(a.n, c);
    if (i >= pieces) continue;
    __half2 pair[2] = {__floats2half2_rn(x[c].x * next_scale * next[c].x, x[c].y * next_scale * next[c].y),
                       __floats2half2_rn(x[c].z * next_scale * next[c].z, x[c].w * next_scale * next[c].w)};
    *(uint2 *)(to + 4 * i) = *(uint2 *)pair;
  }
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

/* Block (i, row) copies some of each other GPU's logits. */
template <int kThreads>
__global__ void __launch_bounds__(kThreads) gather_logits_kernel(Peers peers, int sum) {
  begin_overlapping();
  meet_peers(peers, *peers.first_tag + sum);
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

} // namespace

size_t peers_inbox_bytes(int n, int hidden) {
  return (size_t)2 * n * PUSHED_ROWS * (hidden / 2) * sizeof(Packet);
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
    return n_tokens <= a->peers->pushed_rows
               ? launch_in_registers<kPushed>(a, *a->peers, n_tokens, stream, err)
               : launch_in_registers<kPulled>(a, *a->peers, n_tokens, stream, err);
  }
  if (in_registers) return launch_in_registers<kComplete>(a, Peers{}, n_tokens, stream, err);
  TRY(launch(add_rms_norm_kernel<512>, n_tokens, 512, 0, stream, true, "norm", err, *a));
  if (!a->next_weight) return STATUS_OK;
  return ops_rms_norm(a->x, a->next_weight, a->next_eps, a->n, n_tokens, a->out, a->out_stride, stream, err);
}
