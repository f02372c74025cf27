/* test_cluster.cu - every instruction of kernels/ptx/cluster.cuh does what its comment says, alone and as
 * kernels use it: rings fed by a warp, results sent to a whole cluster, an all-reduce across clusters.
 *
 * Sums are of integers, so results are equal. Needs a GPU of compute capability 9.0 or later; prints a line
 * per failing case and `N passed, N failed`. */
#include <stdio.h>
#include <string.h>

#include <vector>

#include "cuda/kernels/ptx/cluster.cuh"
#include "test/cuda/check.cuh"

static int passed, failed;

static void expect(const char *name, const std::vector<uint32_t> &got, const std::vector<uint32_t> &want) {
  for (size_t i = 0; i < want.size(); i++)
    if (got[i] != want[i]) {
      printf("FAILED %s: number %zu is %u, expected %u\n", name, i, got[i], want[i]);
      failed++;
      return;
    }
  passed++;
}

/* Device memory of n numbers, from `from` or zero. */
static uint32_t *device_numbers(size_t n, const uint32_t *from = nullptr) {
  uint32_t *p;
  CHECK(cudaMalloc(&p, n * 4));
  if (from)
    CHECK(cudaMemcpy(p, from, n * 4, cudaMemcpyHostToDevice));
  else
    CHECK(cudaMemset(p, 0, n * 4));
  return p;
}

/* Runs kernel(in, out) with n_blocks blocks in clusters; out is n_out numbers. */
typedef void (*Kernel)(const uint32_t *in, uint32_t *out);
static cudaError_t try_launch(Kernel kernel, int n_blocks, int cluster, int threads, size_t shared,
                              uint32_t *in, uint32_t *out) {
  cudaLaunchAttribute attribute = {};
  attribute.id = cudaLaunchAttributeClusterDimension;
  attribute.val.clusterDim = {(unsigned)cluster, 1, 1};
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3((unsigned)n_blocks);
  config.blockDim = dim3((unsigned)threads);
  config.dynamicSmemBytes = shared;
  config.attrs = &attribute;
  config.numAttrs = 1;
  return cudaLaunchKernelEx(&config, kernel, (const uint32_t *)in, out);
}

static std::vector<uint32_t> run(Kernel kernel, int n_blocks, int cluster, int threads, size_t shared,
                                 const std::vector<uint32_t> &in, size_t n_out) {
  uint32_t *from = device_numbers(in.size() + 4, nullptr), *to = device_numbers(n_out);
  if (!in.empty()) CHECK(cudaMemcpy(from, in.data(), in.size() * 4, cudaMemcpyHostToDevice));
  CHECK(try_launch(kernel, n_blocks, cluster, threads, shared, from, to));
  CHECK(cudaDeviceSynchronize());
  std::vector<uint32_t> out(n_out);
  CHECK(cudaMemcpy(out.data(), to, n_out * 4, cudaMemcpyDeviceToHost));
  CHECK(cudaFree(from));
  CHECK(cudaFree(to));
  return out;
}

static std::vector<uint32_t> counting(size_t n) {
  std::vector<uint32_t> v(n);
  for (size_t i = 0; i < n; i++) v[i] = (uint32_t)(i * 2654435761u >> 8);
  return v;
}

/* --- a block's rank in its cluster */

__global__ void places(const uint32_t *, uint32_t *out) {
#if __CUDA_ARCH__ >= 900
  if (threadIdx.x == 0) out[blockIdx.x] = (uint32_t)cluster_rank();
#endif
}

static void test_places(void) {
  for (int cluster : {1, 2, 4, 8}) {
    std::vector<uint32_t> want;
    for (int b = 0; b < 8; b++) want.push_back((uint32_t)(b % cluster));
    expect("places", run(places, 8, cluster, 64, 0, {}, 8), want);
  }
}

/* --- one mbarrier through many phases: warp 0 writes numbers, warp 1 adds them up */

__global__ void phases(const uint32_t *, uint32_t *out) {
#if __CUDA_ARCH__ >= 900
  __shared__ uint64_t full, empty;
  __shared__ uint32_t number;
  if (threadIdx.x == 0) {
    barrier_init(&full, 1);
    barrier_init(&empty, 32);
    out[1] = barrier_test(&full, 1); /* the phase before the first counts as complete */
    out[2] = barrier_test(&full, 0);
    barrier_init_fence();
  }
  __syncthreads();
  if (threadIdx.x < 32) {
    for (int i = 0; i < 9; i++) {
      barrier_wait(&empty, (i & 1) ^ 1);
      if (threadIdx.x == 0) number = (uint32_t)(i + 1) * 10;
      __syncwarp();
      if (threadIdx.x == 0) barrier_arrive(&full);
    }
  } else {
    uint32_t sum = 0;
    for (int i = 0; i < 9; i++) {
      barrier_wait(&full, i & 1);
      sum += number;
      barrier_arrive(&empty);
    }
    if (threadIdx.x == 32) out[0] = sum;
    if (threadIdx.x == 32) out[3] = barrier_test(&full, 0);
  }
#endif
}

/* --- transaction counts: some bytes arrive before they are expected; the last one completes the phase */

__global__ void bytes(const uint32_t *in, uint32_t *out) {
#if __CUDA_ARCH__ >= 900
  __shared__ __align__(16) uint32_t pieces[64];
  __shared__ uint64_t barrier;
  if (threadIdx.x == 0) {
    barrier_init(&barrier, 2);
    barrier_init_fence();
  }
  __syncthreads();
  if (threadIdx.x == 0) {
    for (int i = 0; i < 3; i++) copy_bulk(pieces + i * 16, in + i * 16, 64, &barrier);
    barrier_expect(&barrier, 192);
    copy_bulk(pieces + 48, in + 48, 48, &barrier);
    copy_bulk(pieces + 60, in + 60, 16, &barrier);
    barrier_expect(&barrier, 64);
  }
  barrier_wait(&barrier, 0);
  out[threadIdx.x] = pieces[threadIdx.x];
#endif
}

/* --- a ring of three stages, fed by one warp and read by three */

constexpr int kStages = 3, kSteps = 20, kStageNumbers = 96;

__global__ void ring(const uint32_t *in, uint32_t *out) {
#if __CUDA_ARCH__ >= 900
  extern __shared__ __align__(128) uint32_t stages[];
  __shared__ uint64_t full[kStages], empty[kStages];
  if (threadIdx.x == 0) {
    for (int i = 0; i < kStages; i++) {
      barrier_init(full + i, 1);
      barrier_init(empty + i, 3);
    }
    barrier_init_fence();
  }
  __syncthreads();
  const uint32_t *from = in + (size_t)blockIdx.x * kSteps * kStageNumbers;
  if (threadIdx.x >= 96) {
    for (int i = 0; i < kSteps; i++) {
      int slot = i % kStages;
      barrier_wait(empty + slot, i / kStages % 2 ^ 1);
      if (threadIdx.x == 96) {
        barrier_expect(full + slot, kStageNumbers * 4);
        copy_bulk(stages + slot * kStageNumbers, from + i * kStageNumbers, kStageNumbers * 4, full + slot);
      }
    }
  } else {
    uint32_t sum = 0;
    for (int i = 0; i < kSteps; i++) {
      int slot = i % kStages;
      barrier_wait(full + slot, i / kStages % 2);
      sum += stages[slot * kStageNumbers + threadIdx.x] * (uint32_t)(i + 1);
      __syncwarp();
      if (threadIdx.x % 32 == 0) barrier_arrive(empty + slot);
    }
    out[blockIdx.x * kStageNumbers + threadIdx.x] = sum;
  }
#endif
}

static void test_ring(void) {
  std::vector<uint32_t> in = counting(4 * kSteps * kStageNumbers), want(4 * kStageNumbers);
  for (size_t b = 0; b < 4; b++)
    for (size_t i = 0; i < kSteps; i++)
      for (size_t k = 0; k < kStageNumbers; k++)
        want[b * kStageNumbers + k] += in[(b * kSteps + i) * kStageNumbers + k] * (uint32_t)(i + 1);
  expect("ring", run(ring, 4, 1, 128, kStages * kStageNumbers * 4, in, want.size()), want);
}

/* --- cp.async of single threads, counted as arrivals */

__global__ void small_copies(const uint32_t *in, uint32_t *out) {
#if __CUDA_ARCH__ >= 900
  __shared__ __align__(16) uint32_t there[128];
  __shared__ uint64_t barrier;
  if (threadIdx.x == 0) {
    barrier_init(&barrier, 32);
    barrier_init_fence();
  }
  __syncthreads();
  if (threadIdx.x < 32) {
    copy_async_16(there + threadIdx.x * 4, in + threadIdx.x * 4, 16);
    barrier_arrive_after_copies(&barrier);
  } else {
    barrier_wait(&barrier, 0);
    for (int i = 0; i < 4; i++) out[(threadIdx.x - 32) * 4 + i] = there[(threadIdx.x - 32) * 4 + i];
  }
#endif
}

/* --- every block sends 16, 8 and 4 bytes per round to every block of its cluster, into static and dynamic
 * shared memory; a block sends again after all have read */

constexpr int kRounds = 6, kSent = 7; /* numbers a block sends in a round: 4 + 2 + 1 */

__global__ void broadcast(const uint32_t *in, uint32_t *out) { /* the grid is two clusters */
#if __CUDA_ARCH__ >= 900
  extern __shared__ __align__(128) uint4 fours[];
  __shared__ uint2 twos[16];
  __shared__ uint32_t ones[16];
  __shared__ uint64_t full;
  int rank = cluster_rank(), size = (int)gridDim.x / 2;
  if (threadIdx.x == 0) {
    barrier_init(&full, 1);
    barrier_init_fence();
  }
  cluster_sync();
  for (int round = 0; round < kRounds; round++) {
    const uint32_t *from = in + ((size_t)blockIdx.x * kRounds + round) * kSent;
    if ((int)threadIdx.x < size) {
      int to = (int)threadIdx.x;
      uint32_t counted = peer_address(&full, to);
      send_16(peer_address(fours + rank, to), make_uint4(from[0], from[1], from[2], from[3]), counted);
      send_8(peer_address(twos, to) + (uint32_t)rank * 8, make_uint2(from[4], from[5]), counted);
      send_4(peer_address(ones + rank, to), from[6], counted);
    }
    if (threadIdx.x == 0) barrier_expect(&full, size * kSent * 4);
    barrier_wait(&full, round & 1);
    for (int i = (int)threadIdx.x; i < size; i += (int)blockDim.x) {
      uint32_t *to = out + (((size_t)blockIdx.x * kRounds + round) * size + i) * kSent;
      uint4 four = fours[i];
      to[0] = four.x, to[1] = four.y, to[2] = four.z, to[3] = four.w;
      to[4] = twos[i].x, to[5] = twos[i].y, to[6] = ones[i];
    }
    cluster_sync();
  }
#endif
}

static void test_broadcast(int cluster) {
  int n_blocks = 2 * cluster;
  std::vector<uint32_t> in = counting((size_t)n_blocks * kRounds * kSent), want;
  for (int b = 0; b < n_blocks; b++)
    for (int round = 0; round < kRounds; round++)
      for (int i = 0; i < cluster; i++)
        for (int k = 0; k < kSent; k++)
          want.push_back(in[(size_t)((b / cluster * cluster + i) * kRounds + round) * kSent + k]);
  expect("broadcast", run(broadcast, n_blocks, cluster, 64, 16 * 16, in, want.size()), want);
}

/* --- barriers of some threads: one warp produces, one consumes, the other two do not take part */

__global__ void some(const uint32_t *, uint32_t *out) {
#if __CUDA_ARCH__ >= 900
  __shared__ uint32_t number;
  uint32_t sum = 0;
  for (int i = 0; i < 8; i++) {
    if (threadIdx.x < 32) {
      if (threadIdx.x == 0) number = (uint32_t)i + 5;
      named_barrier_sync<1, 64>();
      named_barrier_sync<2, 64>();
    } else if (threadIdx.x < 64) {
      named_barrier_sync<1, 64>();
      sum += number;
      named_barrier_sync<2, 64>();
    }
  }
  if (threadIdx.x >= 32 && threadIdx.x < 64) out[threadIdx.x - 32] = sum;
#endif
}

/* --- all-reduce across clusters: every block has two 64-bit words, each a sum above an 8-bit count. In every
 * round each block adds its number, and one to the count, to the first word of every block, and the number's
 * complement to the second. A block's words are complete when their counts have grown by the number of
 * blocks; their sums make its next number. Rounds alternate between two pairs of words: a block that adds in
 * round r has read round r - 1, so all have read round r - 2. */

constexpr int kHandOvers = 12;

__global__ void hand_over(const uint32_t *in, uint32_t *out) {
#if __CUDA_ARCH__ >= 900
  uint32_t n = gridDim.x, mine = in[blockIdx.x];
  ulonglong2 last[2] = {};
  for (uint32_t round = 0; round < kHandOvers; round++) {
    uint64_t *words = (uint64_t *)out + (round & 1) * 2 * n, *own = words + 2 * blockIdx.x;
    for (uint32_t i = threadIdx.x; i < n; i += 32) {
      add_relaxed_8(words + 2 * i, (uint64_t)mine << 8 | 1);
      add_relaxed_8(words + 2 * i + 1, (uint64_t)~mine << 8 | 1);
    }
    ulonglong2 v, &before = last[round & 1];
    do {
      if (round & 2)
        v = load_relaxed_16(own);
      else
        v = make_ulonglong2(load_relaxed_8(own), load_relaxed_8(own + 1));
    } while ((v.x - before.x & 255) != n || (v.y - before.y & 255) != n);
    const uint64_t sum = (v.x - before.x) >> 8, complements = (v.y - before.y) >> 8;
    if (sum + complements == (uint64_t)n * 0xffffffff) mine = mine * 5 + (uint32_t)sum;
    before = v;
    __syncwarp(); /* each lane has read before any adds again */
  }
  if (threadIdx.x == 0) out[8 * n + blockIdx.x] = mine;
#endif
}

static void test_hand_over(int n_blocks, int cluster) {
  size_t n = (size_t)n_blocks;
  std::vector<uint32_t> in = counting(n), now = in;
  for (int round = 0; round < kHandOvers; round++) {
    uint32_t sum = 0;
    for (uint32_t v : now) sum += v;
    for (uint32_t &v : now) v = v * 5 + sum;
  }
  std::vector<uint32_t> out = run(hand_over, n_blocks, cluster, 32, 0, in, 9 * n);
  expect("hand-over", std::vector<uint32_t>(out.begin() + (long)(8 * n), out.end()), now);
}

/* --- clusters of sixteen run only with cudaFuncAttributeNonPortableClusterSizeAllowed */

static void test_large_clusters(void) {
  uint32_t *numbers = device_numbers(256);
  cudaError_t refused = try_launch(places, 16, 16, 32, 0, numbers, numbers);
  cudaGetLastError();
  CHECK(cudaFree(numbers));
  expect("a large cluster is refused", {refused != cudaSuccess}, {1});
  CHECK(cudaFuncSetAttribute(broadcast, cudaFuncAttributeNonPortableClusterSizeAllowed, 1));
  cudaLaunchAttribute attribute = {};
  attribute.id = cudaLaunchAttributeClusterDimension;
  attribute.val.clusterDim = {16, 1, 1};
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(16);
  config.blockDim = dim3(64);
  config.dynamicSmemBytes = 256;
  config.attrs = &attribute;
  config.numAttrs = 1;
  int n = 0;
  CHECK(cudaOccupancyMaxActiveClusters(&n, broadcast, &config));
  expect("a large cluster fits", {n > 0}, {1});
  test_broadcast(16);
}

int main(void) {
  int major = 0;
  CHECK(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, 0));
  if (major < 9) {
    printf("1 skipped: needs a GPU with clusters (compute capability 9.0)\n0 passed, 0 failed, 1 skipped\n");
    return 0;
  }
  std::vector<uint32_t> in = counting(128);
  test_places();
  expect("phases", run(phases, 1, 1, 64, 0, {}, 4), {450, 1, 0, 1});
  expect("bytes", run(bytes, 3, 1, 64, 0, in, 64), std::vector<uint32_t>(in.begin(), in.begin() + 64));
  test_ring();
  expect("small copies", run(small_copies, 1, 1, 64, 0, in, 128), in);
  for (int cluster : {1, 2, 8}) test_broadcast(cluster);
  expect("some", run(some, 2, 1, 128, 0, {}, 32), std::vector<uint32_t>(32, 8 * 5 + 28));
  test_hand_over(16, 8);
  test_hand_over(64, 8);
  test_large_clusters();
  printf("%d passed, %d failed\n", passed, failed);
  return failed != 0;
}
