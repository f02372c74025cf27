/* device.h - where a command computes: the backend its flags name, the memory there, loading with
 * progress. */
#ifndef AUK_COMMANDS_DEVICE_H
#define AUK_COMMANDS_DEVICE_H

#include "commands/flags.h"
#include "engine/backend.h"

/* -t, --kv, --device, --gpu, --act, --kernel, --no-graphs, --decode-step. Begin with DEVICE_NOT_GIVEN. */
typedef struct {
  int threads; /* 0: all cores this process may use */
  int kv;      /* KvType */
  int device;  /* index into "auto|cpu|cuda" */
  int gpu;     /* -1: not given */
  int act;     /* index into "f16|int8" */
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

/* Chooses. Where "auto" finds no usable GPU, a program built for GPUs says why on standard error, in one
 * line. Flags that mean something only on a GPU are STATUS_USAGE on the CPU. The flags outlive the device. */
Status device_choose(const DeviceFlags *values, Device *device, Error *err);

/* Whether GPUs compute this model, also where there is none; where they do not, `reason` says why. */
bool device_gpu_computes(const Model *model, Error *reason);

/* The device has to compute this model: where it was chosen by "auto" and does not, the CPU does, which one
 * line on standard error says; else the model is refused (STATUS_MODEL). */
Status device_fit(Device *device, const Model *model, Error *err);

/* What the device is called: the GPU's name, or the processor's, in out. */
enum { DEVICE_NAME_SIZE = 256 };
void device_describe(const Device *device, char out[DEVICE_NAME_SIZE]);

/* What the weights take of the device's memory and what it has free (beside mapped weights: of the
 * host's). */
typedef struct {
  size_t weights, free_bytes;
} DeviceMemory;
Status device_memory(const Device *device, const Model *model, DeviceMemory *memory, Error *err);

/* Refuses (STATUS_FAILED, with needed and free bytes) a session of these sizes that does not fit beside the
 * weights. */
Status device_check_memory(const Device *device, const Model *model, const StateOptions *options, Error *err);

/* Loads the weights; a bar on standard error where that is a terminal and there is something to wait for. */
Status device_load(Device *device, Model *model, Error *err);
void device_release(Device *device); /* after the sessions on it; a zeroed one is fine */

#endif
