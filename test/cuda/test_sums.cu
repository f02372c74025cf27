/* test_sums.cu - sums over GPUs that share each layer (ops/add_norm.h): by packets, of all rows on each GPU,
 * and of each GPU's own rows, whose parts the others round. The residual stream has the bits of the same sum
 * on the host, and all GPUs have the same norms. The GPUs are those of the machine, or streams of one, each
 * with a thread. Prints `N passed, N failed`. */
#include <cuda_fp16.h>
#include <cuda_runtime.h>
#include <string.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <thread>
#include <vector>

#include "cuda/kernels/ops/add_norm.h"
#include "test/cuda/device_copy.cuh"
#include "test/cuda/random_numbers.cuh"

/* Two steps of four sums, an even number, one after another without the host. The last sum of a step leaves x
 * whole, and makes no norm. With own rows x stays apart in the first step, and the second begins with a sum
 * of all rows. */
enum { STEP_SUMS = 4, SUMS = 2 * STEP_SUMS };

static bool has_own_rows(int sum) {
  return sum != STEP_SUMS;
}

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
  Device<float> addends[2];
  Device<__half> normed; /* [SUMS] h after each sum */
  Part(int gpu_, int n, int hidden, const Floats &residual, const Floats &even_, const Floats &odd_)
      : gpu(gpu_), first_tag(std::vector<uint32_t>(1)), flags(std::vector<uint32_t>(PEERS_FLAGS)),
        inbox(std::vector<char>(peers_inbox_bytes(n, hidden))), x(residual), even(even_), odd(odd_),
        h(std::vector<__half>(residual.size())), addends{Device<float>(even_), Device<float>(odd_)},
        normed(std::vector<__half>(SUMS * residual.size())) {
    CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  }
};

/* Each sum gets its addends anew, since sums of own rows overwrite the others'. */
static void run_steps(Part *part, const Peers &peers, const float *weight, int hidden, int n_rows,
                      bool own_rows) {
  Error error;
  CHECK(cudaSetDevice(part->gpu));
  for (int i = 0; i < SUMS; i++) {
    const int sum = i % STEP_SUMS, parity = sum & 1;
    const bool is_last = sum == STEP_SUMS - 1;
    if (sum == 0) MUST(peers_begin_step(part->first_tag.at, STEP_SUMS, part->stream, &error));
    AddNorm add = {};
    add.y = peers.parts[parity][peers.rank], add.n = hidden, add.x = part->x.at, add.out = part->h.at;
    add.out_stride = hidden, add.peers = &peers, add.sum = sum, add.next_eps = 0.5f;
    add.own_rows = own_rows && has_own_rows(i), add.apart = i < STEP_SUMS && !is_last;
    add.next_weight = is_last ? NULL : weight;
    CHECK(cudaMemcpyAsync(peers.parts[parity][peers.rank], part->addends[parity].at,
                          part->h.n * sizeof(float), cudaMemcpyDeviceToDevice, part->stream));
    MUST(ops_add_rms_norm(&add, n_rows, part->stream, &error));
    CHECK(cudaMemcpyAsync(part->normed.at + i * part->h.n, part->h.at, part->h.n * sizeof(__half),
                          cudaMemcpyDeviceToDevice, part->stream));
  }
  CHECK(cudaStreamSynchronize(part->stream)); /* not the GPU, where others may wait for this stream */
}

/* A part of rows of `hidden` numbers as the GPUs get it whose rows they are: 32 numbers have a scale. Each
 * GPU has every row but its own from the others. */
static Floats rounded(Floats part, int hidden, const Peers &peers) {
  const int n_rows = (int)part.size() / hidden;
  for (int row = 0; row < n_rows; row++) {
    const bool own = row >= peers_first_row(&peers, peers.rank, n_rows) &&
                     row < peers_first_row(&peers, peers.rank + 1, n_rows);
    for (int first = 0; first < hidden && !own; first += 32) {
      float *group = part.data() + (size_t)row * hidden + first, largest = 0;
      const int n = std::min(32, hidden - first);
      for (int i = 0; i < n; i++) largest = std::max(largest, fabsf(group[i]));
      const float factor = 32767 / largest, scale = largest / 32767;
      for (int i = 0; i < n; i++) group[i] = nearbyintf(group[i] * factor) * scale;
    }
  }
  return part;
}

/* x = residual + the parts of each sum, and the norms of x in the end of each. sent: the parts of sums of own
 * rows. */
static void check(const std::vector<std::unique_ptr<Part>> &all, Floats x, const std::vector<Floats> *parts,
                  const std::vector<Floats> *sent, const Floats &weight, int hidden) {
  const int n = (int)all.size(), n_rows = (int)x.size() / hidden;
  std::vector<std::vector<__half>> normed;
  for (const auto &part : all) normed.push_back(part->normed.host());
  for (int sum = 0; sum < SUMS; sum++) {
    const std::vector<Floats> &of = (has_own_rows(sum) ? sent : parts)[sum % STEP_SUMS & 1];
    const size_t from = sum * x.size();
    bool near = true, alike = true;
    for (size_t i = 0; i < x.size(); i++) {
      float y = of[0][i];
      for (int gpu = 1; gpu < n; gpu++) y += of[gpu][i];
      x[i] += y;
    }
    if (sum % STEP_SUMS == STEP_SUMS - 1) continue;
    for (int row = 0; row < n_rows; row++) {
      double squares = 0;
      for (int i = 0; i < hidden; i++) squares += (double)x[row * hidden + i] * x[row * hidden + i];
      for (int i = 0; i < hidden; i++) {
        const double want = x[row * hidden + i] / sqrt(squares / hidden + 0.5) * weight[i];
        near = near && fabs(__half2float(normed[0][from + row * hidden + i]) - want) <=
                           0x1p-10 * fabs(want) + 0x1p-20;
      }
    }
    for (const auto &of_gpu : normed)
      alike = alike && !memcmp(&of_gpu[from], &normed[0][from], x.size() * sizeof(__half));
    expect(near, "the norm after a sum", n, hidden, n_rows);
    expect(alike, "norms that all GPUs have alike", n, hidden, n_rows);
  }
  for (const auto &part : all)
    expect(!memcmp(part->x.host().data(), x.data(), x.size() * sizeof(float)), "the residual stream", n,
           hidden, n_rows);
}

/* own: each GPU sums its own rows, on chips with clusters. n_sms: Peers.n_sms. */
static void test_sums(int n, int hidden, int n_rows, bool own, int n_sms = 32) {
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
  const bool own_rows = own && major >= 9;
  peers.n = n, peers.n_sms = n_sms, peers.pushed_rows = major >= 9 ? PUSHED_ROWS : 1, peers.lost = lost_word,
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
    threads.emplace_back(run_steps, all[gpu].get(), own, weights[gpu]->at, hidden, n_rows, own_rows);
  }
  for (std::thread &thread : threads) thread.join();
  std::vector<Floats> sent[2] = {parts[0], parts[1]};
  for (int gpu = 0; gpu < n && own_rows; gpu++) {
    peers.rank = gpu;
    for (auto &of_parity : sent) of_parity[gpu] = rounded(of_parity[gpu], hidden, peers);
  }
  expect(*lost_word == 0, "a GPU that answers in time", n, hidden, n_rows);
  check(all, residual, parts, sent, weight, hidden);
  CHECK(cudaFreeHost(lost_word));
}

/* Streams of one GPU wait for each other: their blocks must all be on it. */
int main() {
  setenv("EMULATED_GPUS", "8", 0);
  /* A kernel that is loaded when it is first launched waits for a GPU on which other streams wait for it. */
  setenv("CUDA_MODULE_LOADING", "EAGER", 1);
  for (int n : {2, 3, 4, 8}) {
    test_sums(n, 512, 5, false);
    test_sums(n, 512, 37, true);
  }
  test_sums(2, 512, 101, true, 3); /* blocks of several rows */
  test_sums(3, 4100, 76, true, 7);
  test_sums(2, 2052, 33, false);
  test_sums(2, 4100, 33, true);
  test_sums(2, 8192, 34, true);
  test_sums(3, 1024, 35, false);
  printf("%d passed, %d failed\n", passed, failed);
  return failed != 0;
}
