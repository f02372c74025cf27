/* test_emulator.cu - the emulator's strictness: a write outside a buffer ends the program with the kernel's
 * name, and threads that do not wait for each other run in orders that differ from launch to launch but are
 * the same in every run.
 *
 * Needs an emulated GPU; prints `N passed, N failed`. */
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <string>
#include <vector>

#include "test/cuda/check.cuh"

#ifdef EMULATED_ARCH

static int passed, failed;

static void expect(bool good, const char *what) {
  if (!good) printf("FAILED %s\n", what);
  good ? passed++ : failed++;
}

__global__ void write_at(int *to, int at) {
  to[at] = 7;
}

/* Runs `work` in a child process; returns its standard error and whether it failed. */
template <class Work> static std::string said(Work work, bool *ended) {
  int ends[2], status = 0;
  if (pipe(ends)) exit(1);
  fflush(stdout);
  const pid_t child = fork();
  if (child == 0) {
    dup2(ends[1], 2);
    work();
    exit(0);
  }
  close(ends[1]);
  std::string text;
  char piece[500];
  for (ssize_t n; (n = read(ends[0], piece, sizeof piece)) > 0;) text.append(piece, (size_t)n);
  close(ends[0]);
  waitpid(child, &status, 0);
  *ended = WIFSIGNALED(status) || WEXITSTATUS(status) != 0; /* with ASan: its status */
  return text;
}

static void test_guards() {
  const struct {
    int at;
    const char *says;
  } cases[] = {{100, "wrote 0 bytes after the end of a buffer of 400 bytes"},
               {612, "wrote 2048 bytes after the end of a buffer of 400 bytes"},
               {-1, "wrote 4 bytes before a buffer of 400 bytes"}};
  for (auto c : cases)
    for (const char *way : {"at a wait", "at a free", "at the end"}) {
      bool ended;
      const std::string text = said(
          [&] {
            int *memory, *other;
            CHECK(cudaMalloc((void **)&memory, 400));
            CHECK(cudaMalloc((void **)&other, 400));
            write_at<<<1, 1>>>(memory, c.at);
            if (strcmp(way, "at a wait") == 0) cudaDeviceSynchronize(), _exit(0);
            if (strcmp(way, "at a free") == 0) cudaFree(memory), _exit(0);
          },
          &ended);
      const bool named = text.find(c.says) != std::string::npos && text.find("write_at") != std::string::npos;
      expect(ended && (named || text.find("AddressSanitizer") != std::string::npos), way);
    }
  bool ended;
  said(
      [] {
        int *memory;
        CHECK(cudaMalloc((void **)&memory, 400));
        write_at<<<1, 1>>>(memory, 0);
        write_at<<<1, 1>>>(memory, 99);
        CHECK(cudaDeviceSynchronize());
        CHECK(cudaFree(memory));
      },
      &ended);
  expect(!ended, "writes at a buffer's ends");
}

/* Thread i reads what thread n - 1 - i writes, after a barrier of the block, of the warp, or none. */
__global__ void exchange(int *out, int barrier) {
  __shared__ int numbers[64];
  const int i = threadIdx.x, n = blockDim.x;
  if (barrier >= 0) numbers[i] = -1;
  __syncthreads();
  numbers[i] = i;
  if (barrier == 1) __syncthreads();
  if (barrier == 2) __syncwarp();
  out[i] = numbers[n - 1 - i];
}

/* The number of threads that read the right number, for each of 40 launches. */
static std::vector<int> exchanges(int threads, int barrier) {
  std::vector<int> out(64), found;
  int *device;
  CHECK(cudaMalloc((void **)&device, 64 * sizeof *device));
  for (int launch = 0; launch < 40; launch++) {
    exchange<<<1, threads>>>(device, barrier);
    CHECK(cudaMemcpy(out.data(), device, 64 * sizeof *device, cudaMemcpyDeviceToHost));
    int right = 0;
    for (int i = 0; i < threads; i++) right += out[i] == threads - 1 - i;
    found.push_back(right);
  }
  CHECK(cudaFree(device));
  return found;
}

static void test_orders() {
  for (int threads : {32, 64})
    for (int barrier : {1, 2}) {
      int wrong = 0;
      for (int right : exchanges(threads, barrier)) wrong += right != threads;
      if (barrier == 1 || threads == 32)
        expect(wrong == 0, "threads that wait");
      else
        expect(wrong > 10, "warps that do not wait for each other");
    }
  int wrong = 0;
  for (int right : exchanges(32, 0)) wrong += right != 32;
  expect(wrong > 10, "lanes that do not wait for each other");
}

/* In the first launches of a process, which of two warps comes first differs, but equally in every run. */
static void test_repeats() {
  std::string runs[2];
  for (std::string &run : runs) {
    bool ended;
    run = said(
        [] {
          int *device, first;
          CHECK(cudaMalloc((void **)&device, 64 * sizeof *device));
          for (int launch = 0; launch < 60; launch++) {
            exchange<<<1, 64>>>(device, 0);
            CHECK(cudaMemcpy(&first, device, sizeof first, cudaMemcpyDeviceToHost));
            fprintf(stderr, "%c", first == 63 ? '1' : '0');
          }
        },
        &ended);
    expect(!ended && run.find('0') < run.npos && run.find('1') < run.npos, "an order that changes");
  }
  expect(runs[0].size() == 60 && runs[0] == runs[1], "the same orders in another run");
}

int main() {
  test_guards();
  test_repeats();
  test_orders();
  printf("%d passed, %d failed\n", passed, failed);
  return failed != 0;
}

#else

int main() {
  printf("1 skipped: needs an emulated GPU\n0 passed, 0 failed, 1 skipped\n");
  return 0;
}

#endif
