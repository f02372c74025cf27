/* probe.h - measurements and a description of a device and its kernels, for `auk bench` and `auk inspect`. */
#pragma once

#include "engine/backend.h"

/* The time of one kernel on one matrix of a model (`auk bench --kernels`). The first records, with the layer
 * "machine", are the machine's own limits. */
typedef struct {
  const char *layer;      /* "qkv", "gate_up", "o", "down", "head", or a part's name */
  const char *weights;    /* "4-bit", "fp16" */
  int n_in, n_out, group; /* group 0: dense */
  int n_tokens;
  const char *kernel; /* as --kernel names it; "cublas fp16": the same shape in fp16; "streaming read" */
  bool chosen;        /* the dispatch table's choice */
  double us;          /* median time of one run */
  double gbps;        /* bytes of the stored matrix over `us` */
  double tflops;      /* 2 n_in n_out n_tokens over `us` */
  double of_ceiling;  /* the roofline's time (the larger of the bytes' and the flops') over `us` */
} KernelTime;

typedef struct {
  const int *n_tokens; /* [n_counts] rows of activations, each > 0 */
  size_t n_counts;
  int repetitions;
  const volatile int *interrupted; /* set to non-zero by a signal handler; may be NULL */
} KernelTimesOptions;

typedef Status (*KernelTimeSink)(void *user, const KernelTime *time, Error *err);

/* The machine's limits, as measured. */
typedef struct {
  double read_gbps;   /* memory bandwidth, beyond the caches; 0: not measured */
  double fp16_tflops; /* a large fp16 matmul; 0: not measured */
} MachineRates;

struct BackendProbe {
  /* Writes the device's product name to out[size]; NULL: the device is the host's processor. */
  Status (*describe)(const BackendOptions *options, char *out, size_t size, Error *err);
  /* Times every kernel (or options->kernel alone) on every matrix that the kernel supports, for the sink.
   * Needs only the sizes of the model, no load(). NULL: there is no choice of kernels. */
  Status (*time_kernels)(const Model *model, const BackendOptions *options, const KernelTimesOptions *times,
                         KernelTimeSink sink, void *user, Error *err);
  /* Takes some 100 ms, and up to 2 GiB of the device's memory during that time. */
  Status (*measure_machine)(const BackendOptions *options, MachineRates *rates, Error *err);
  /* microseconds[i]: the time that separate kernels take for a sum of rows[i] rows over the GPUs that share a
   * loaded model. NULL: devices cannot share a model. */
  Status (*time_sums)(BackendModel *loaded, const int *rows, int n, double *microseconds, Error *err);
  /* Where load() would put the weights with `most` bytes of the device's own memory (0: any number). Needs no
   * device. NULL: the device has no memory of its own. */
  Status (*places)(const Model *model, size_t most, DeviceMemory *memory, Error *err);
  /* weights[i]: bytes of weights in the memory of GPU i of n that share the model (model/slice.h). Refuses
   * (STATUS_MODEL) a model that they cannot share; needs no device. NULL: devices cannot share a model. */
  Status (*shares)(const Model *model, int n, size_t *weights, Error *err);
  /* Free and total bytes of the device's own memory. NULL: the device uses the host's. */
  Status (*memory_now)(const BackendOptions *options, size_t *free_bytes, size_t *all_bytes, Error *err);
};
