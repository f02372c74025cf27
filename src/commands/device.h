/* device.h - the device of a command: the backend that its flags name, its memory, loading with progress. */
#pragma once

#include "commands/flags.h"
#include "engine/backend.h"

/* -t, --kv, --device, --gpu, --act, --kernel, --no-graphs, --decode-step. Begin with DEVICE_NOT_GIVEN. */
typedef struct {
  int threads;       /* 0: all cores this process may use */
  int kv;            /* KvType */
  int device;        /* index into "auto|cpu|cuda" */
  int gpu;           /* -1: not given */
  bool gpu_is_usual; /* from the file of settings: it means nothing on a CPU */
  int act;           /* index into "f16|int8" */
  const char *kernel;
  bool no_graphs;
  int decode_step; /* DecodeStep */
} DeviceFlags;
#define DEVICE_NOT_GIVEN                                                                                     \
  { .gpu = -1 }
extern const Flag device_flags[8];
#define DEVICE_FLAG_GROUP(Struct, member) FLAG_GROUP_IN("Device", device_flags, Struct, member, DeviceFlags)

typedef struct {
  const DeviceFlags *flags;
  const Backend *backend;
  BackendOptions options;
  BackendModel *loaded; /* NULL until device_load() */
} Device;

/* Chooses the device. If "auto" finds no usable GPU, a build with CUDA says why in one line on standard
 * error. GPU-only flags are STATUS_USAGE on the CPU. The flags must outlive the device. */
Status device_choose(const DeviceFlags *values, Device *device, Error *err);

/* Checks that the device supports this model. If "auto" chose an unsuitable GPU, switches to the CPU and says
 * so on standard error; otherwise the model is refused (STATUS_MODEL). */
Status device_fit(Device *device, const Model *model, Error *err);

enum { DEVICE_NAME_SIZE = 256 };
void device_describe(const Device *device, char out[DEVICE_NAME_SIZE]);

/* Bytes of device memory that the weights take, and that are free. On the CPU, the free bytes include what
 * mapped weights occupy. */
typedef struct {
  size_t weights, free_bytes;
} DeviceMemory;
Status device_memory(const Device *device, const Model *model, DeviceMemory *memory, Error *err);

/* Refuses (STATUS_FAILED, with needed and free bytes) a session of this size that does not fit beside the
 * weights. */
Status device_check_memory(const Device *device, const Model *model, const StateOptions *options, Error *err);

/* The same for a session of so many bytes. */
Status device_check_memory_bytes(const Device *device, const Model *model, size_t state, int n_ctx,
                                 Error *err);

/* Loads the weights, with a progress bar if standard error is a terminal. */
Status device_load(Device *device, Model *model, Error *err);
void device_release(Device *device); /* after its sessions are closed; a zeroed device is fine */
