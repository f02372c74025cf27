/* inspect.h - private to inspect*.c: the facts and their printers. */
#pragma once

#include "base/json.h"
#include "commands/device.h"
#include "engine/probe.h"
#include "model/layers.h"
#include "model/tensors.h"

typedef struct {
  const Model *model;
  const char *path;
  size_t n_quantised, n_dense, n_biases; /* linear layers: quantised, dense, with a bias */
  size_t n_8bit;                         /* linear layers with 8 bits, including FP8 */
  size_t n_fp8, n_fp4;                   /* linear layers in FP8, in FP4 */
} Inspection;

/* Bytes of n_tokens in a KV cache of a type; SIZE_MAX if that overflows. */
size_t inspect_kv_bytes(const ModelConfig *config, KvType kv, size_t n_tokens);

/* Bytes of a sequence's recurrent states in all layers; 0 without recurrent layers. */
size_t inspect_recurrent_bytes(const ModelConfig *config);

/* True if some layers have their norms elsewhere than config->norms says (before, around, after blocks). */
bool inspect_has_norms_before(const ModelConfig *config);

/* The prediction of --gpu-memory; limit 0: the flag is not given. */
typedef struct {
  size_t limit; /* bytes */
  int context;  /* tokens of the context that is assumed beside the weights */
  DeviceMemory memory;
  MachineRates rates, host_rates; /* of the GPU, 0 without one; of the host, 0 if memory.on_host is 0 */
  double gpu_bytes, host_bytes;   /* bytes that decoding a token reads from each memory */
  double tokens_per_second; /* upper bound by these bytes and rates; without a GPU, by host_bytes alone */
} Prediction;
/* `size`: the value of --gpu-memory; NULL: predicts nothing. Measures the rates that device_predict()
 * measures. */
Status inspect_predict(const Model *model, const char *size, Prediction *out, Error *err);
Status inspect_print_places(Buffer *out, const Model *model, const Prediction *prediction, Error *err);

/* The memory of a device for many sequences at once: pages of their KV cache (fp16), and the rest. */
typedef struct {
  const Backend *backend;
  int n_sequences;
  size_t page_bytes, other_bytes;
  int n_pages; /* pages that the memory beside the weights holds; 0: unknown, or too few for a context */
} Pool;
typedef struct {
  Pool items[2];
  int n;
} Pools;
/* Predicts the CPU's pool, and a GPU's if this build has CUDA and GPUs support the model. */
Status inspect_pools(const Model *model, const Prediction *prediction, Pools *out, Error *err);
Status inspect_print_pools(Buffer *out, const Pools *pools, Error *err);

/* How much faster two H200s are than one. */
typedef struct {
  bool has_experts;
  double gigabytes;       /* of both GPUs' weights */
  double decode, prefill; /* tokens/s of two divided by those of one; prefill: prompts of 2,048 tokens */
  const char *model;      /* the measured model */
} SplitGain;
/* The gain of a measured model of the same kind (with or without experts): the one nearest in size. NULL: all
 * are at least twice or at most half as large, or the model is not shared by two GPUs. */
const SplitGain *inspect_split_gain(const DeviceShares *shares, const ModelConfig *whole);

/* Prints what --split predicts, as lines; shares->n 0: nothing. */
Status inspect_print_shares(Buffer *out, const DeviceShares *shares, const ModelConfig *whole, Error *err);

Status inspect_begin_line(Buffer *out, const char *label, Error *err);
Status inspect_print_bytes(Buffer *out, size_t bytes, Error *err); /* "2048 bytes (2.00 KiB)" */
Status inspect_print_architectures(Buffer *out, Error *err);
/* True if a layer turns queries and keys by their positions. */
bool inspect_has_rope(const ModelConfig *config);
/* Print how the model differs from Llama, and the devices that support it. */
Status inspect_print_arithmetic(Buffer *out, const ModelConfig *config, Error *err);
Status inspect_print_devices(Buffer *out, const Model *model, Error *err);

/* Prints the operations of a step. */
Status inspect_print_program(Buffer *out, const Model *model, Error *err);

/* Prints the report as one JSON object and a newline; `tensors`: with a list of all tensors. */
Status inspect_print_json(Buffer *out, const Inspection *inspection, const Prediction *prediction,
                          const Pools *pools, const DeviceShares *shares, bool tensors, Error *err);
