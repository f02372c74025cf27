/* probe.h - what a device says of itself and of its kernels, for `auk bench` and `auk inspect` alone: no step
 * needs it. */
#ifndef AUK_ENGINE_PROBE_H
#define AUK_ENGINE_PROBE_H

#include "engine/backend.h"

/* One kernel on one matrix of a model with some rows of activations, timed (`auk bench --kernels`). What the
 * machine itself can do comes first, as the layer "machine". */
typedef struct {
  const char *layer;      /* "qkv", "o", "gate_up", "down", "head": those of the same shape are one */
  const char *weights;    /* "4-bit", "fp16" */
  int n_in, n_out, group; /* group 0: dense */
  int n_tokens;
  const char *kernel; /* as --kernel names it; "cublas fp16": the library over the same shape in fp16 */
  bool chosen;        /* the one that runs where none is named */
  double us;          /* median of one call */
  double gbps;        /* bytes of the matrix, as stored, over that time */
  double tflops;      /* 2 n_in n_out n_tokens over that time */
  double of_ceiling;  /* the time the machine needs for the bytes or the fp16 operations, over that time */
} KernelTime;

typedef struct {
  const int *n_tokens; /* [n_counts] rows of activations, each > 0 */
  size_t n_counts;
  int repetitions;
  const volatile int *interrupted; /* set to non-zero by a signal handler; may be NULL */
} KernelTimesOptions;

typedef Status (*KernelTimeSink)(void *user, const KernelTime *time, Error *err);

/* What the machine does at most, by the clock, a moment ago. */
typedef struct {
  double read_gbps;   /* reading far more than its caches hold; 0: not measured */
  double fp16_tflops; /* a large product of fp16 matrices; 0: not measured */
} MachineRates;

struct BackendProbe {
  /* What people call the device, in out[size]; NULL: it is the host's processor. */
  Status (*describe)(const BackendOptions *options, char *out, size_t size, Error *err);
  /* Times every kernel that can run on every matrix of the model, of which only the sizes matter, and tells
   * the sink; options->kernel: that one alone. NULL: there is no choice of kernels. Needs no load(). */
  Status (*time_kernels)(const Model *model, const BackendOptions *options, const KernelTimesOptions *times,
                         KernelTimeSink sink, void *user, Error *err);
  /* Takes some 100 ms, and up to 2 GiB of the device's memory meanwhile. */
  Status (*measure_machine)(const BackendOptions *options, MachineRates *rates, Error *err);
  /* Bytes of the device's own memory that are free now, and all there are. NULL: its memory is the host's. */
  Status (*memory_now)(const BackendOptions *options, size_t *free_bytes, size_t *all_bytes, Error *err);
};

#endif
