/* test_sums.cu - sums over GPUs that share each layer (ops/add_norm.h): by packets, of all rows on each GPU,
 * and of each GPU's own rows. The residual stream has the bits of the same sum on the host, and all GPUs have
 * the same norms. The GPUs are those of the machine, or streams of one, each with a thread. Prints `N passed,
 * N failed`. */
#include <cuda_fp16.h>
#include <cuda_runtime.h>
#include <string.h>

#include <cmath>
#include <memory>
#include <thread>
#include <vector>

#include "cuda/kernels/ops/add_norm.h"
#include "test/cuda/device_copy.cuh"
#include "test/cuda/random_numbers.cuh"

enum { SUMS = 3 }; /* of a step: the last one leaves x whole, and makes no norm */

static int passed, failed;

static void expect(bool good, const char *what, int n_gpus, int hidden, int n_rows) {
  if (!good) printf("FAILED %s: %d GPUs, %d rows of %d\n", what, n_gpus, n_rows, hidden);
  good ? passed++ : failed++;
}

/* A GPU's memory. */
struct Part {
  int gpu;
  cudaStream_t stream;
  Device<uint32_t> first_tag, flags;
  Device<char> inbox;
  Device<float> x, even, odd;
  Device<__half> h;
  std::vector<__half> normed[SUMS]; /* h after each sum */
  Part(int gpu_, int n, int hidden, const Floats &residual, const Floats &even_, const Floats &odd_)
      : gpu(gpu_), first_tag(std::vector<uint32_t>(1)), flags(std::vector<uint32_t>(PEERS_FLAGS)),
        inbox(std::vector<char>(peers_inbox_bytes(n, hidden))), x(residual), even(even_), odd(odd_),
        h(std::vector<__half>(residual.size())) {
    CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  }
};

static void run_step(Part *part, const Peers &peers, const float *weight, int hidden, int n_rows,
                     bool own_rows) {
  Error error;
  CHECK(cudaSetDevice(part->gpu));
  MUST(peers_begin_step(part->first_tag.at, SUMS + 1, part->stream, &error));
  for (int sum = 0; sum < SUMS; sum++) {
    AddNorm add = {};
    add.y = peers.parts[sum & 1][peers.rank], add.n = hidden, add.x = part->x.at, add.out = part->h.at;
    add.own_rows = own_rows;
    add.out_stride = hidden, add.peers = &peers, add.sum = sum, add.next_eps = 0.5f;
    add.apart = sum < SUMS - 1, add.next_weight = add.apart ? weight : NULL;
    MUST(ops_add_rms_norm(&add, n_rows, part->stream, &error));
    part->normed[sum].resize(part->h.n);
    CHECK(cudaMemcpyAsync(part->normed[sum].data(), part->h.at, part->h.n * sizeof(__half),
                          cudaMemcpyDeviceToHost, part->stream));
    CHECK(cudaStreamSynchronize(part->stream)); /* not the GPU, where others may wait for this stream */
  }
}

/* x = residual + the parts of each sum, and the norms of x in the end of each. */
static void check(const std::vector<std::unique_ptr<Part>> &all, Floats x, const std::vector<Floats> *parts,
                  const Floats &weight, int hidden) {
  const int n = (int)all.size(), n_rows = (int)x.size() / hidden;
  for (int sum = 0; sum < SUMS; sum++) {
    bool near = true, alike = true;
    for (size_t i = 0; i < x.size(); i++) {
      float y = parts[sum & 1][0][i];
      for (int gpu = 1; gpu < n; gpu++) y += parts[sum & 1][gpu][i];
      x[i] += y;
    }
    for (int row = 0; row < n_rows && sum < SUMS - 1; row++) {
      double squares = 0;
      for (int i = 0; i < hidden; i++) squares += (double)x[row * hidden + i] * x[row * hidden + i];
      for (int i = 0; i < hidden; i++) {
        const double want = x[row * hidden + i] / sqrt(squares / hidden + 0.5) * weight[i];
        near = near && fabs(__half2float(all[0]->normed[sum][row * hidden + i]) - want) <=
                           0x1p-10 * fabs(want) + 0x1p-20;
      }
    }
    for (const auto &part : all)
      alike =
          alike && !memcmp(part->normed[sum].data(), all[0]->normed[sum].data(), x.size() * sizeof(__half));
    expect(near, "the norm after a sum", n, hidden, n_rows);
    expect(alike, "norms that all GPUs have alike", n, hidden, n_rows);
  }
  for (const auto &part : all)
    expect(!memcmp(part->x.host().data(), x.data(), x.size() * sizeof(float)), "the residual stream", n,
           hidden, n_rows);
}

static void test_sums(int n, int hidden, int n_rows, bool own_rows) {
  int n_devices = 0;
  CHECK(cudaGetDeviceCount(&n_devices));
  const Floats residual = random_numbers((size_t)n_rows * hidden, -2, 2),
               weight = random_numbers(hidden, 0.5f, 1.5f);
  std::vector<Floats> parts[2];
  std::vector<std::unique_ptr<Part>> all;
  std::vector<std::unique_ptr<Device<float>>> weights;
  std::vector<std::thread> threads;
  int lost = 0, *lost_word;
  CHECK(cudaHostAlloc((void **)&lost_word, sizeof lost, cudaHostAllocMapped));
  *lost_word = 0;
  Peers peers = {};
  int major = 0;
  CHECK(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, 0));
  peers.n = n, peers.pushed_rows = major >= 9 ? PUSHED_ROWS : 1, peers.lost = lost_word,
  peers.patience = 100000000000;
  for (int gpu = 0; gpu < n; gpu++) {
    for (auto &of_parity : parts) of_parity.push_back(random_numbers(residual.size(), -1, 1));
    CHECK(cudaSetDevice(gpu % n_devices));
    all.push_back(std::make_unique<Part>(gpu % n_devices, n, hidden, residual, parts[0][gpu], parts[1][gpu]));
    weights.push_back(std::make_unique<Device<float>>(weight));
    Part &part = *all.back();
    peers.flags[gpu] = part.flags.at, peers.inbox[gpu] = part.inbox.at;
    peers.x[gpu] = part.x.at, peers.h[gpu] = part.h.at;
    peers.parts[0][gpu] = part.even.at, peers.parts[1][gpu] = part.odd.at;
    for (int other = 0; other < gpu && other < n_devices && gpu < n_devices; other++)
      for (int pair[2] = {gpu, other}, i = 0; i < 2; i++) {
        CHECK(cudaSetDevice(pair[i]));
        if (cudaDeviceEnablePeerAccess(pair[1 - i], 0) != cudaSuccess) cudaGetLastError(); /* there already */
      }
  }
  for (int gpu = 0; gpu < n; gpu++) {
    Peers own = peers;
    own.rank = gpu, own.first_tag = all[gpu]->first_tag.at;
    threads.emplace_back(run_step, all[gpu].get(), own, weights[gpu]->at, hidden, n_rows, own_rows);
  }
  for (std::thread &thread : threads) thread.join();
  expect(*lost_word == 0, "a GPU that answers in time", n, hidden, n_rows);
  check(all, residual, parts, weight, hidden);
  CHECK(cudaFreeHost(lost_word));
}

/* Streams of one GPU wait for each other: their blocks must all be on it. */
int main() {
  setenv("EMULATED_GPUS", "8", 0);
  for (int n : {2, 3, 4, 8}) {
    test_sums(n, 512, 5, false);
    test_sums(n, 512, 37, true);
  }
  test_sums(2, 2052, 33, false);
  test_sums(2, 4100, 33, true);
  test_sums(2, 8192, 34, true);
  test_sums(3, 1024, 35, false);
  printf("%d passed, %d failed\n", passed, failed);
  return failed != 0;
}
