/* device.h - the device of a command: the backend that its flags name, its memory, loading with progress. */
#pragma once

#include "commands/flags.h"
#include "engine/probe.h"

#define KV_WORDS          "f16|f32|q8"
#define DEVICE_WORDS      "auto|cpu|cuda"
#define ACT_WORDS         "f16|int8"
#define DECODE_STEP_WORDS "auto|kernels|cluster"
#define SPLIT_BY_WORDS    "auto|memory|nccl"

/* -t, --kv, --device, --gpu, --split, --split-by, --gpu-memory, --act, --kernel, --no-graphs, --decode-step.
 * Begins zeroed. */
typedef struct {
  int threads;              /* 0: all cores this process may use */
  int kv;                   /* KvType */
  int device;               /* index into "auto|cpu|cuda" */
  const char *gpu;          /* numbers with commas between them, "all", or NULL */
  bool gpu_is_usual;        /* from the file of settings: it means nothing on a CPU */
  bool several_gpus;        /* set by the command: it may be several */
  int nth;                  /* which of several; a device that is not the first (0) loads without notes */
  const char *split;        /* "auto", or how many GPUs share the model; NULL, "0" or "1": one has it */
  int split_by;             /* SplitSums */
  const char *gpu_memory;   /* a size, or NULL */
  bool gpu_memory_is_usual; /* likewise */
  int act;                  /* index into "f16|int8" */
  const char *kernel;
  bool no_graphs;
  int decode_step; /* DecodeStep */
  bool invariant;  /* of commands with INVARIANT_FLAG_GROUP; Device.invariant is what counts */
} DeviceFlags;
extern const Flag device_flags[11], invariant_flags[1];
#define DEVICE_FLAG_GROUP(Struct, member) FLAG_GROUP_IN("Device", device_flags, Struct, member, DeviceFlags)
#define INVARIANT_FLAG_GROUP(Struct, member)                                                                 \
  FLAG_GROUP_IN("Reproducibility", invariant_flags, Struct, member, DeviceFlags)
#define INVARIANT_FLAG_RULES                                                                                 \
  { "--invariant", EXCLUDES, "--act, --split, --kernel, --decode-step", "it chooses the kernels" }

typedef struct {
  const DeviceFlags *flags;
  const Backend *backend;
  BackendOptions options;
  size_t memory_limit;  /* --gpu-memory in bytes; 0: not given */
  BackendModel *loaded; /* NULL until device_load() */
  int n_gpus;           /* that compute apart from each other; 1 on a CPU */
  ModelConfig part;     /* device_config() if several GPUs share the model */
  bool compared;        /* ranks_compare() was called */
  bool invariant;       /* answers do not depend on those beside them: --invariant, or --map by default */
  bool without_copies;  /* DeviceMemory.copies do not fit beside what the sessions take */
} Device;

/* Refuses flags that are wrong, or that go with no device that may be chosen: STATUS_USAGE, without looking
 * for one. */
Status device_check_flags(const DeviceFlags *values, Error *err);

/* Chooses the device. If "auto" finds no usable GPU, a build with CUDA says why in one line on standard
 * error. GPU-only flags are STATUS_USAGE on the CPU. The flags must outlive the device. */
Status device_choose(const DeviceFlags *values, Device *device, Error *err);

/* Checks that the device supports this model. If "auto" chose an unsuitable GPU, switches to the CPU and says
 * so on standard error; otherwise the model is refused (STATUS_MODEL). */
Status device_fit(Device *device, const Model *model, Error *err);

/* True if the device should compute several sequences with `invariant` though no flag asks for that: its
 * backend says so, and no flag stands against it. PRECOND device_fit() */
bool device_prefers_invariant(const Device *device, const Model *model);

/* How many GPUs share the model by --split: 1 if one has it, 0 for "auto". */
int device_split(const DeviceFlags *values);

const char *device_kinds(void); /* where this build computes: "CUDA and CPU" or "CPU only" */

/* True if --gpu names more GPUs than share a model. */
bool device_is_several(const DeviceFlags *values);

/* "GPU 0", or "GPUs 2 and 3" that share a model. */
typedef struct {
  char text[64];
} GpusText;
GpusText device_gpus_text(const Device *device);

/* The device that another process computes on with these flags: neither chosen nor loaded here. */
Status device_elsewhere(const DeviceFlags *values, const char *backend, Device *device, Error *err);

enum { DEVICE_NAME_SIZE = 256 };
void device_describe(const Device *device, char out[DEVICE_NAME_SIZE]);

/* Reports the device's memory and the part of the weights; at most --gpu-memory of it counts as free. Copies
 * count among the weights if they are made: unless without_copies, where they take at most half of what the
 * weights leave free, so that a context has as much room at least. */
Status device_memory(const Device *device, const Model *model, DeviceMemory *memory, Error *err);

/* "experts of layers 30 to 47": what stays on the host. */
typedef struct {
  char text[96];
} PlacesText;
PlacesText device_places_text(const Model *model, const DeviceMemory *memory);

/* The memory that n GPUs would need that share a model (--split). */
typedef struct {
  int n;
  ModelConfig part;          /* its sizes; device_shares_release() */
  size_t weights[MAX_SPLIT]; /* bytes */
  size_t other_bytes;        /* of a session with the model's whole context: all but its keys and values */
} DeviceShares;
Status device_shares(const Model *model, int n, DeviceShares *shares, Error *err);
void device_shares_release(DeviceShares *shares);

/* Predicts where a GPU with `limit` bytes of free memory would leave the weights beside a session. Measures
 * the rates of GPU 0, if there is one that can be used, and of this host if weights stay there. */
Status device_predict(const Model *model, size_t limit, const StateOptions *state, DeviceMemory *memory,
                      MachineRates *gpu, MachineRates *host, Error *err);

/* Bytes that sessions should take at most: what the weights leave free, or where weights stay in the host's
 * memory anyway a quarter of the device's. */
Status device_room(const Device *device, const Model *model, size_t *bytes, Error *err);

/* The sizes by which memory is counted: the model's, or those of one GPU's part if several share the model.
 * Valid after device_fit(). */
const ModelConfig *device_config(const Device *device, const Model *model);

/* Makes room for a session of this size: weights that do not fit beside it will stay in the host's memory, if
 * the device has its own. Refuses (STATUS_FAILED, with needed and free bytes) what fits neither. After
 * several calls there is room for the largest session. */
Status device_check_memory(Device *device, const Model *model, const StateOptions *options, Error *err);

/* The same for a session of so many bytes. */
Status device_check_memory_bytes(Device *device, const Model *model, size_t state, int n_ctx, Error *err);

/* Loads the weights, with a progress bar if standard error is a terminal. */
Status device_load(Device *device, Model *model, Error *err);
void device_release(Device *device); /* after its sessions are closed; a zeroed device is fine */
