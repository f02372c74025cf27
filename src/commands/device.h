/* device.h - the device of a command: the backend that its flags name, its memory, loading with progress. */
#pragma once

#include "commands/flags.h"
#include "engine/probe.h"

#define KV_WORDS          "f16|f32|q8"
#define STATES_WORDS      "f32|bf16|f16"
#define DEVICE_WORDS      "auto|cpu|cuda"
#define ACT_WORDS         "f16|int8"
#define DECODE_STEP_WORDS "auto|kernels|cluster"
#define SPLIT_BY_WORDS    "auto|memory|nccl"

/* The values of -t, --kv, --device, --gpu, --split, --split-by, --gpu-memory, --act, --kernel, --no-graphs,
 * --decode-step and --invariant. Begins zeroed. */
typedef struct {
  int threads;              /* 0: all cores this process may use */
  int kv;                   /* KvType */
  int states;               /* set by the command: StatesType */
  int device;               /* index into "auto|cpu|cuda" */
  const char *gpu;          /* numbers with commas between them, "all", or NULL */
  bool gpu_is_usual;        /* `gpu` is from the file of settings: a CPU ignores it */
  bool several_gpus;        /* set by the command: `gpu` may name several */
  int nth;                  /* index among several devices; only the first (0) shows progress */
  const char *split;        /* "auto", or how many GPUs share the model; NULL, "1": one GPU has all of it */
  int split_by;             /* SplitSums */
  const char *gpu_memory;   /* a size, or NULL */
  bool gpu_memory_is_usual; /* `gpu_memory` is from the file of settings: a CPU ignores it */
  int act;                  /* index into "f16|int8" */
  const char *kernel;
  bool no_graphs;
  int decode_step; /* DecodeStep */
  bool invariant;  /* --invariant; Device.invariant also has --map's default */
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
  size_t memory_limit;  /* --gpu-memory in bytes; 0: no limit */
  BackendModel *loaded; /* NULL until device_load() */
  int n_gpus;           /* number of GPUs, or groups of --split, that share --map's records; 1 on a CPU */
  ModelConfig part;     /* result of device_config() if several GPUs share the model */
  bool compared;        /* ranks_compare() was called */
  bool invariant;       /* answers do not depend on their batch: --invariant, or --map's default */
  bool without_copies;  /* no copies of weights (DeviceMemory.copies) are made: sessions need the memory */
} Device;

/* Refuses wrong flags, and flags that no device allowed by --device would obey. Opens no device. */
Status device_check_flags(const DeviceFlags *values, Error *err);

/* Chooses the device. Without a usable GPU, "auto" fails if several are asked for; else it takes the CPU and
 * says why on standard error (a build without CUDA: only if --gpu is given or a GPU seems to be there).
 * GPU-only flags are STATUS_USAGE on the CPU. The flags must outlive the device. */
Status device_choose(const DeviceFlags *values, Device *device, Error *err);

/* Checks that the device supports this model. An unsuitable GPU that "auto" chose is replaced by the CPU,
 * with a note on standard error; any other unsuitable device refuses the model (STATUS_MODEL). */
Status device_fit(Device *device, const Model *model, Error *err);

/* True if the device should compute several sequences with `invariant` though no flag asks for it: the
 * backend prefers it, and no flag excludes it. PRECOND device_fit() */
bool device_prefers_invariant(const Device *device, const Model *model);

/* The number of GPUs that share the model by --split: 1 without --split, 0 for "auto". */
int device_split(const DeviceFlags *values);

const char *device_kinds(void); /* where this build computes: "CUDA and CPU" or "CPU only" */

/* True if --gpu names more GPUs than share a model in this process, or is "all" without --split. */
bool device_is_several(const DeviceFlags *values);

/* "GPU 0", or "GPUs 2 and 3" that share a model. */
typedef struct {
  char text[64];
} GpusText;
GpusText device_gpus_text(const Device *device);

/* Describes the device on which another process computes with these flags; it is neither chosen nor loaded
 * here. */
Status device_elsewhere(const DeviceFlags *values, const char *backend, Device *device, Error *err);
/* If the device of device_elsewhere() is the CPU, refuses GPU-only flags, and notes that --gpu is ignored. */
Status device_check_elsewhere(const Device *device, Error *err);

enum { DEVICE_NAME_SIZE = 256 };
void device_describe(const Device *device, char out[DEVICE_NAME_SIZE]);

/* Reports the device's free bytes, at most --gpu-memory, and the bytes that weights take. Copies of weights
 * (DeviceMemory.copies) count as weights. They are made if without_copies is not set and they take at most
 * half of what the weights leave free: the other half is for a context. */
Status device_memory(const Device *device, const Model *model, DeviceMemory *memory, Error *err);

/* "experts of layers 30 to 47": the weights that stay on the host. */
typedef struct {
  char text[96];
} PlacesText;
PlacesText device_places_text(const Model *model, const DeviceMemory *memory);

/* The memory that each of n GPUs would need to share a model (--split). */
typedef struct {
  int n;
  ModelConfig part;          /* the model's sizes on one GPU */
  size_t weights[MAX_SPLIT]; /* bytes on each GPU */
  size_t other_bytes;        /* bytes per GPU of a session with the longest context, without KV cache */
} DeviceShares;
Status device_shares(const Model *model, int n, DeviceShares *shares, Error *err);
void device_shares_release(DeviceShares *shares);

/* Predicts which weights a GPU with `limit` bytes of free memory would hold beside a session, and which
 * weights would stay on the host. Measures the rates of GPU 0, if it can be used, and of this host if weights
 * stay in its memory. */
Status device_predict(const Model *model, size_t limit, const StateOptions *state, DeviceMemory *memory,
                      MachineRates *gpu, MachineRates *host, Error *err);

/* The most bytes that sessions should take: what would be free with all weights on the device; if the weights
 * do not fit, a quarter of a GPU's free memory (0 on a CPU). */
Status device_room(const Device *device, const Model *model, size_t *bytes, Error *err);

/* The config whose sizes determine memory: the model's, or the part of one GPU if several GPUs share the
 * model. Valid after device_fit(). */
const ModelConfig *device_config(const Device *device, const Model *model);

/* Makes room for a session of this size. If the device has memory of its own, weights that do not fit beside
 * the session will stay in the host's memory. Refuses (STATUS_FAILED, with needed and free bytes) what both
 * memories together do not hold; `invariant` needs all weights in the GPU's memory. After several calls there
 * is room for the largest session. */
Status device_check_memory(Device *device, const Model *model, const StateOptions *options, Error *err);

/* device_check_memory() for a session of `state` bytes. */
Status device_check_memory_bytes(Device *device, const Model *model, size_t state, int n_ctx, Error *err);

/* Loads the weights, with a progress bar if standard error is a terminal. */
Status device_load(Device *device, Model *model, Error *err);
void device_release(Device *device); /* call after its sessions are closed; a zeroed device is fine */
