/* runtime.cpp - CUDA's runtime for the emulator: device memory is the host's, and everything is done at once.
 *
 * Called by: cuda/ and its tests. Environment: AUK_FAULT=cuda:N makes the Nth call from here on fail, and
 * every one after it, as on a device that is lost; AUK_FAULT_TOLD names a file that appears then
 * (test/torture/faults.c). EMULATED_GPUS=N: number of devices, which share their memory; threads that use
 * different ones run at the same time, so that their kernels may wait for each other. A stream is of the device
 * that was current in the thread that made it, and no other may use it. EMULATED_PEERS=0: devices say that they
 * cannot reach each other's memory.
 * EMULATED_FAULT_GPU=N: AUK_FAULT counts the calls for this device alone. EMULATED_SMS=N: number of SMs (6, or 132 with clusters). EMULATED_SHARED=N: bytes
 * of shared memory that a block may use. Both are read whenever they are needed, so that a test can go from
 * one chip to another. Always true: each buffer lies between two guards of kGuard bytes, all NaN. They are
 * checked when the host waits for the device, when a buffer is freed and when the program ends; with ASan
 * they are poisoned instead. */
#include <atomic>
#include <fcntl.h>
#include <map>
#include <mutex>
#include <set>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>
#include <vector>

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/asan_interface.h>
#endif

#include "emulator.h"

#ifndef EMULATED_ARCH
#define EMULATED_ARCH 80
#endif

struct CUstream_st {
  int gpu;
  bool capturing;
  std::vector<std::function<void()>> written; /* while capturing */
};
struct CUevent_st {
  double ms;
};
struct CUgraph_st {
  std::vector<std::function<void()>> steps;
};
struct CUgraphExec_st {
  std::vector<std::function<void()>> steps;
};

namespace emulator {
void run_grid(const Launch &launch, const char *name, const std::function<void()> &thread);
}

namespace {

constexpr size_t kSharedBytes = EMULATED_ARCH < 80   ? 64 << 10
                                : EMULATED_ARCH < 90 ? 163 << 10
                                                     : 227 << 10,
                 kMemory = (size_t)4 << 30;

constexpr int kMostGpus = 16;

int n_gpus() {
  const char *told = getenv("EMULATED_GPUS");
  const int n = told ? atoi(told) : 1;
  return n < kMostGpus ? n : kMostGpus;
}

/* A chip with clusters has as many SMs as an H200, so that a grid of 128 blocks can be resident. */
int n_sms() {
  const char *told = getenv("EMULATED_SMS");
  return told ? atoi(told) : EMULATED_ARCH < 90 ? 6 : 132;
}

size_t shared_limit() {
  const char *told = getenv("EMULATED_SHARED");
  return told ? (size_t)atoi(told) : kSharedBytes;
}

std::recursive_mutex books;            /* of whatever is not one device's */
std::recursive_mutex turns[kMostGpus]; /* of the threads that give a device work, which is done at once */
thread_local int current;              /* the thread's device */

struct Fault {
  long which = 0, calls = 0;
  int of = -1; /* the device; -1: any */
  Fault() {
    const char *gpu = getenv("EMULATED_FAULT_GPU");
    if (gpu) of = atoi(gpu);
    const char *fault = getenv("AUK_FAULT");
    if (fault && strncmp(fault, "cuda:", 5) == 0) which = atol(fault + 5);
  }
  bool came() {
    if (!which || (of >= 0 && of != current) || ++calls < which) return false;
    const char *told = getenv("AUK_FAULT_TOLD");
    int file = told && calls == which ? open(told, O_CREAT | O_WRONLY, 0600) : -1;
    if (file >= 0) close(file);
    return true;
  }
};
Fault fault;
thread_local cudaError_t last = cudaSuccess;
size_t used;

cudaError_t answer(cudaError_t error) {
  if (error != cudaSuccess) last = error;
  return error;
}

CUstream_st *stream_of(cudaStream_t stream) {
  static CUstream_st first;
  return stream ? stream : &first;
}

cudaError_t enqueue(cudaStream_t stream, std::function<void()> work) {
  CUstream_st *s = stream_of(stream);
  if (stream && stream->gpu != current) return answer(cudaErrorInvalidValue);
  if (s->capturing)
    s->written.push_back(std::move(work));
  else
    work();
  return cudaSuccess;
}

double now_ms() {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec * 1e3 + (double)t.tv_nsec * 1e-6;
}

constexpr size_t kGuard = 8192;
std::map<unsigned char *, size_t> buffers; /* and their bytes */
std::atomic<const char *> newest_kernel = "none";

/* 16 bits of a guard: NaN as fp32 with its neighbour, and as fp16 and bf16 alone; other bits than new
 * memory. */
constexpr uint16_t kGuardWord = 0xffb5;

void make_guard(unsigned char *guard) {
#ifdef __SANITIZE_ADDRESS__
  __asan_poison_memory_region(guard, kGuard);
#else
  for (size_t i = 0; i < kGuard; i += 2) memcpy(guard + i, &kGuardWord, 2);
#endif
}

/* Index of the first byte that was written, kGuard if none was. */
size_t written_in(const unsigned char *guard) {
  size_t i = 0;
#ifdef __SANITIZE_ADDRESS__
  return kGuard;
#endif
  if (memcmp(guard, &kGuardWord, 2) == 0 && memcmp(guard, guard + 2, kGuard - 2) == 0) return kGuard;
  while (guard[i] == ((const unsigned char *)&kGuardWord)[i % 2]) i++;
  return i;
}

void check_guards(unsigned char *buffer, size_t bytes) {
  const size_t before = written_in(buffer - kGuard), after = written_in(buffer + bytes);
  if (before == kGuard && after == kGuard) return;
  fprintf(stderr, "emulator: a kernel up to %s wrote %zu bytes %s a buffer of %zu bytes\n", newest_kernel.load(),
          before < kGuard ? kGuard - before : after, before < kGuard ? "before" : "after the end of", bytes);
  abort();
}

void check_all_guards() {
  for (const auto &buffer : buffers) check_guards(buffer.first, buffer.second);
}

/* Memory between guards, all NaN. */
void *allocate(size_t bytes) {
  static const bool checked_at_end = atexit(check_all_guards) == 0;
  (void)checked_at_end;
  unsigned char *memory = (unsigned char *)aligned_alloc(256, (kGuard + bytes + kGuard + 255) / 256 * 256);
  if (!memory) return nullptr;
  unsigned char *buffer = memory + kGuard;
  make_guard(memory);
  memset(buffer, 0xff, bytes);
  make_guard(buffer + bytes);
  buffers[buffer] = bytes;
  used += bytes;
  return buffer;
}

void release(void *memory) {
  if (!memory) return;
  auto found = buffers.find((unsigned char *)memory);
  if (found == buffers.end()) {
    fprintf(stderr, "emulator: cudaFree of what is no buffer, or was freed\n");
    abort();
  }
  unsigned char *start = found->first - kGuard;
  check_guards(found->first, found->second);
  used -= found->second;
#ifdef __SANITIZE_ADDRESS__
  __asan_unpoison_memory_region(start, kGuard + found->second + kGuard);
#endif
  buffers.erase(found);
  free(start);
}

/* memcpy that allows NULL if bytes is 0. */
void copy(void *to, const void *from, size_t bytes) {
  if (bytes) memcpy(to, from, bytes);
}

} // namespace

#define FAIL_IF(kind)                                                                                        \
  std::lock_guard<std::recursive_mutex> in_books(books);                                                     \
  if (fault.came()) return answer(kind)

/* The same before work is done, in turn: devices work at the same time, and may wait for each other. */
#define FAIL_IF_OR_WORK(kind)                                                                                \
  if (fault_came()) return answer(kind);                                                                     \
  std::lock_guard<std::recursive_mutex> in_turn(turns[current])

namespace {
bool fault_came() {
  std::lock_guard<std::recursive_mutex> in_books(books);
  return fault.came();
}

std::set<const void *> large_clusters; /* kernels that may have them */

/* Blocks per SM: limited by 2048 threads and by shared memory, where a block takes 1 KiB more than it asks
 * for. */
int blocks_of_sm(const emulator::Launch &launch) {
  unsigned threads = launch.block.x * launch.block.y * launch.block.z;
  size_t by_memory = (kSharedBytes + 1024) / (launch.shared + 1024);
  return (int)(by_memory < 2048 / threads ? by_memory : 2048 / threads);
}
} // namespace

void emulator::allow_large_clusters(const void *kernel) {
  std::lock_guard<std::recursive_mutex> in_books(books);
  large_clusters.insert(kernel);
}

int emulator::most_clusters(const Launch &launch) {
  bool fits =
      launch.cluster > 0 && launch.cluster <= 16 && EMULATED_ARCH >= 90 && launch.shared <= shared_limit();
  return fits ? n_sms() / launch.cluster * blocks_of_sm(launch) : -1;
}

cudaError_t emulator::run(const Launch &asked, const char *name, std::function<void()> thread,
                          const void *kernel) {
  FAIL_IF_OR_WORK(cudaErrorLaunchFailure);
  Launch launch = asked;
  unsigned threads = launch.block.x * launch.block.y * launch.block.z;
  bool fits = threads > 0 && threads <= 1024 && launch.grid.x > 0 && launch.grid.y > 0 && launch.grid.z > 0 &&
              launch.grid.y <= 65535 && launch.grid.z <= 65535 && launch.shared <= shared_limit();
  if (!fits) return answer(cudaErrorInvalidValue);
  if (launch.cluster) {
    bool row = launch.grid.y == 1 && launch.grid.z == 1 && (int)launch.grid.x % launch.cluster == 0;
    std::lock_guard<std::recursive_mutex> in_books(books);
    if (!row || most_clusters(launch) < 1 || (launch.cluster > 8 && !large_clusters.count(kernel)))
      return answer(cudaErrorInvalidClusterSize);
    launch.at_once = most_clusters(launch) * launch.cluster;
  }
  return enqueue(launch.stream, [=]() {
    newest_kernel = name;
    run_grid(launch, name, thread);
  });
}

extern "C" {

std::atomic<int> emulated_graphs; /* that could be launched; nccl/ looks at it */

const char *cudaGetErrorString(cudaError_t error) {
  switch (error) {
  case cudaSuccess: return "no error";
  case cudaErrorMemoryAllocation: return "out of memory";
  case cudaErrorLaunchFailure: return "unspecified launch failure";
  case cudaErrorInvalidValue: return "invalid argument";
  case cudaErrorInvalidDevice: return "invalid device ordinal";
  case cudaErrorInvalidClusterSize: return "cluster misconfiguration";
  default: return "some error";
  }
}

const char *cudaGetErrorName(cudaError_t error) {
  switch (error) {
  case cudaSuccess: return "cudaSuccess";
  case cudaErrorMemoryAllocation: return "cudaErrorMemoryAllocation";
  case cudaErrorLaunchFailure: return "cudaErrorLaunchFailure";
  case cudaErrorInvalidValue: return "cudaErrorInvalidValue";
  default: return "cudaError";
  }
}

cudaError_t cudaGetLastError(void) {
  cudaError_t error = last;
  last = cudaSuccess;
  return error;
}

cudaError_t cudaPeekAtLastError(void) {
  return last;
}

/* --- the device */

cudaError_t cudaGetDeviceCount(int *count) {
  FAIL_IF(cudaErrorNoDevice);
  const char *visible = getenv("CUDA_VISIBLE_DEVICES");
  *count = visible && !*visible ? 0 : n_gpus();
  return *count ? cudaSuccess : answer(cudaErrorNoDevice);
}

cudaError_t cudaDeviceSetLimit(cudaLimit, size_t) {
  FAIL_IF(cudaErrorLaunchFailure);
  return cudaSuccess;
}

cudaError_t cudaGetDevice(int *gpu) {
  FAIL_IF(cudaErrorLaunchFailure);
  *gpu = current;
  return cudaSuccess;
}

cudaError_t cudaSetDevice(int gpu) {
  FAIL_IF(cudaErrorLaunchFailure);
  if (gpu < 0 || gpu >= n_gpus()) return answer(cudaErrorInvalidDevice);
  current = gpu;
  return cudaSuccess;
}

/* EMULATED_UUID=N: the device's, in place of one for each process. */
cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *properties, int gpu) {
  FAIL_IF(cudaErrorLaunchFailure);
  const char *told = getenv("EMULATED_UUID");
  const int numbers[4] = {told ? atoi(told) : (int)getpid(), gpu};
  strcpy(properties->name, "emulated GPU");
  memcpy(properties->uuid.bytes, numbers, sizeof numbers);
  return cudaSuccess;
}

cudaError_t cudaDeviceGetAttribute(int *value, cudaDeviceAttr attribute, int) {
  FAIL_IF(cudaErrorLaunchFailure);
  switch (attribute) {
  case cudaDevAttrMultiProcessorCount: *value = n_sms(); return cudaSuccess;
  case cudaDevAttrL2CacheSize: *value = 1 << 16; return cudaSuccess; /* `auk bench` reads 16 times that */
  case cudaDevAttrComputeCapabilityMajor: *value = EMULATED_ARCH / 10; return cudaSuccess;
  case cudaDevAttrComputeCapabilityMinor: *value = EMULATED_ARCH % 10; return cudaSuccess;
  case cudaDevAttrMaxSharedMemoryPerBlockOptin: *value = (int)shared_limit(); return cudaSuccess;
  }
  return answer(cudaErrorInvalidValue);
}

/* Every device reaches the memory of every other one, unless EMULATED_PEERS is 0. */
cudaError_t cudaDeviceCanAccessPeer(int *can, int gpu, int peer) {
  FAIL_IF(cudaErrorLaunchFailure);
  const char *told = getenv("EMULATED_PEERS");
  *can = gpu != peer && !(told && atoi(told) == 0);
  return cudaSuccess;
}

cudaError_t cudaDeviceEnablePeerAccess(int peer, unsigned) {
  FAIL_IF(cudaErrorLaunchFailure);
  return peer == current || peer < 0 || peer >= n_gpus() ? answer(cudaErrorInvalidDevice) : cudaSuccess;
}

cudaError_t cudaDeviceSynchronize(void) {
  FAIL_IF(cudaErrorLaunchFailure);
  check_all_guards();
  return cudaSuccess;
}

/* The only driver function that is asked for: tensor.cpp. */
void cuTensorMapEncodeTiled(void);

cudaError_t cudaGetDriverEntryPointByVersion(const char *name, void **function, unsigned, unsigned long long,
                                             cudaDriverEntryPointQueryResult *found) {
  *function = nullptr;
  FAIL_IF(cudaErrorLaunchFailure);
  if (strcmp(name, "cuTensorMapEncodeTiled") == 0) *function = (void *)cuTensorMapEncodeTiled;
  *found = *function ? cudaDriverEntryPointSuccess : cudaDriverEntryPointSymbolNotFound;
  return cudaSuccess;
}

/* --- memory */

cudaError_t cudaMemGetInfo(size_t *free_bytes, size_t *total) {
  FAIL_IF(cudaErrorLaunchFailure);
  *total = kMemory;
  *free_bytes = kMemory - used;
  return cudaSuccess;
}

cudaError_t cudaMalloc(void **memory, size_t bytes) {
  *memory = nullptr;
  FAIL_IF(cudaErrorMemoryAllocation);
  if (bytes > kMemory - used) return answer(cudaErrorMemoryAllocation);
  *memory = allocate(bytes);
  return *memory ? cudaSuccess : answer(cudaErrorMemoryAllocation);
}

cudaError_t cudaFree(void *memory) {
  std::lock_guard<std::recursive_mutex> in_books(books);
  release(memory); /* also on a lost device, whose memory is gone */
  return cudaSuccess;
}

cudaError_t cudaHostAlloc(void **memory, size_t bytes, unsigned) {
  return cudaMalloc(memory, bytes);
}

cudaError_t cudaMallocHost(void **memory, size_t bytes) {
  return cudaMalloc(memory, bytes);
}

cudaError_t cudaFreeHost(void *memory) {
  return cudaFree(memory);
}

cudaError_t cudaMemcpy(void *to, const void *from, size_t bytes, cudaMemcpyKind) {
  FAIL_IF(cudaErrorLaunchFailure);
  check_all_guards();
  copy(to, from, bytes);
  return cudaSuccess;
}

cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, cudaMemcpyKind, cudaStream_t stream) {
  FAIL_IF_OR_WORK(cudaErrorLaunchFailure);
  return enqueue(stream, [=]() { copy(to, from, bytes); });
}

cudaError_t cudaLaunchHostFunc(cudaStream_t stream, void (*function)(void *), void *user) {
  FAIL_IF_OR_WORK(cudaErrorLaunchFailure);
  return enqueue(stream, [=]() { function(user); });
}

cudaError_t cudaMemcpy2DAsync(void *to, size_t to_pitch, const void *from, size_t from_pitch, size_t width,
                              size_t height, cudaMemcpyKind, cudaStream_t stream) {
  FAIL_IF_OR_WORK(cudaErrorLaunchFailure);
  return enqueue(stream, [=]() {
    for (size_t row = 0; row < height; row++)
      memcpy((char *)to + row * to_pitch, (const char *)from + row * from_pitch, width);
  });
}

cudaError_t cudaMemcpy2D(void *to, size_t to_pitch, const void *from, size_t from_pitch, size_t width,
                         size_t height, cudaMemcpyKind kind) {
  return cudaMemcpy2DAsync(to, to_pitch, from, from_pitch, width, height, kind, nullptr);
}

cudaError_t cudaMemset(void *to, int value, size_t bytes) {
  FAIL_IF(cudaErrorLaunchFailure);
  if (bytes) memset(to, value, bytes);
  return cudaSuccess;
}

cudaError_t cudaMemsetAsync(void *to, int value, size_t bytes, cudaStream_t stream) {
  FAIL_IF_OR_WORK(cudaErrorLaunchFailure);
  return enqueue(stream, [=]() {
    if (bytes) memset(to, value, bytes);
  });
}

/* --- streams, graphs, events */

cudaError_t cudaStreamCreate(cudaStream_t *stream) {
  return cudaStreamCreateWithFlags(stream, 0);
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned) {
  *stream = nullptr;
  FAIL_IF(cudaErrorMemoryAllocation);
  *stream = new CUstream_st{current};
  return cudaSuccess;
}

cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  delete stream;
  return cudaSuccess;
}

cudaError_t cudaStreamSynchronize(cudaStream_t) {
  FAIL_IF(cudaErrorLaunchFailure);
  check_all_guards();
  return cudaSuccess;
}

cudaError_t cudaStreamQuery(cudaStream_t) {
  FAIL_IF(cudaErrorLaunchFailure);
  return cudaSuccess;
}

cudaError_t cudaStreamWaitEvent(cudaStream_t, cudaEvent_t, unsigned) {
  FAIL_IF(cudaErrorLaunchFailure);
  return cudaSuccess;
}

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode) {
  FAIL_IF(cudaErrorLaunchFailure);
  if (stream->capturing) return answer(cudaErrorInvalidValue);
  stream->capturing = true;
  stream->written.clear();
  return cudaSuccess;
}

cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t *graph) {
  *graph = nullptr;
  stream->capturing = false;
  FAIL_IF(cudaErrorLaunchFailure);
  *graph = new CUgraph_st{std::move(stream->written)};
  return cudaSuccess;
}

cudaError_t cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus *status) {
  *status = stream->capturing ? cudaStreamCaptureStatusActive : cudaStreamCaptureStatusNone;
  return cudaSuccess;
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t *step, cudaGraph_t graph, unsigned long long) {
  *step = nullptr;
  FAIL_IF(cudaErrorMemoryAllocation);
  *step = new CUgraphExec_st{graph->steps};
  emulated_graphs++;
  return cudaSuccess;
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t step, cudaStream_t stream) {
  FAIL_IF_OR_WORK(cudaErrorLaunchFailure);
  if (stream && stream->gpu != current) return answer(cudaErrorInvalidValue);
  for (const std::function<void()> &work : step->steps) work();
  return cudaSuccess;
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t step) {
  emulated_graphs--;
  delete step;
  return cudaSuccess;
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  delete graph;
  return cudaSuccess;
}

cudaError_t cudaEventCreate(cudaEvent_t *event) {
  return cudaEventCreateWithFlags(event, 0);
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned) {
  *event = nullptr;
  FAIL_IF(cudaErrorMemoryAllocation);
  *event = new CUevent_st();
  return cudaSuccess;
}

cudaError_t cudaEventDestroy(cudaEvent_t event) {
  delete event;
  return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t) {
  FAIL_IF(cudaErrorLaunchFailure);
  event->ms = now_ms();
  return cudaSuccess;
}

cudaError_t cudaEventSynchronize(cudaEvent_t) {
  FAIL_IF(cudaErrorLaunchFailure);
  return cudaSuccess;
}

cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t from, cudaEvent_t to) {
  FAIL_IF(cudaErrorLaunchFailure);
  *ms = (float)(to->ms - from->ms);
  return cudaSuccess;
}

} /* extern "C" */
