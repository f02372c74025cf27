/* sample.h - the sampler on a GPU: from the same logits it picks the same token as engine/sampler.c.
 *
 * The arithmetic is that of base/sampler_math.h. All sums are of integers, so the order in which blocks add
 * does not matter. The token goes to device memory, for the next step's embedding, and to the host's ring. */
#pragma once

#include <cuda_runtime_api.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/sampler_math.h"
#include "base/status.h"
#include "cuda/kernels/ops/segment.h"

C_BEGIN

/* A session's sampler. The caller gives it memory: arrays on the device, but `pinned` on the host. In each
 * array the sequences' parts follow one another. Notes and controls begin as zeros. */
typedef struct {
  int vocab_size;
  float *scores;     /* [n_sequences][vocab_size] hold nothing between picks */
  uint32_t *notes;   /* [n_sequences][vocab_size] of seen tokens */
  uint64_t *allowed; /* [n_sequences][(vocab_size + 63) / 64] */
  void *controls;    /* [n_sequences] histograms, of device_sampler_control_bytes() each */
  void *picks;       /* [n_sequences] of device_sampler_pick_rows(), of device_sampler_pick_bytes() each */
  int32_t *tokens;   /* [n_sequences] the token last picked for each; the host reads RowPick.slot */
  void *pinned[2];   /* [n_sequences] copied to `picks`: in turn, as a copy may still be under way */
  int turn;
  bool masked; /* `allowed` limits sequence 0 */
} DeviceSampler;

size_t device_sampler_control_bytes(void);
size_t device_sampler_pick_bytes(void);
/* Enqueues what the controls of n sequences need before their first pick. */
Status device_sampler_reset(const DeviceSampler *sampler, int n_sequences, cudaStream_t stream, Error *err);

/* Enqueues a copy of notes[vocab_size], which sampler_token_counts() made. notes is pinned host memory and
 * stays unchanged until the copy is complete. */
Status device_sampler_set_notes(DeviceSampler *sampler, int sequence, const uint32_t *notes,
                                cudaStream_t stream, Error *err);

/* Enqueues a copy of mask[(vocab_size + 63) / 64] (sampler_allow()), which limits the next picks by
 * device_sampler_pick(). NULL: any token can be picked. mask is pinned host memory and stays unchanged until
 * the copy is complete. */
Status device_sampler_allow(DeviceSampler *sampler, const uint64_t *mask, cudaStream_t stream, Error *err);

/* An entry of the host's ring: a picked token, or what is wrong with the logits. The device writes both
 * numbers by one store. */
typedef enum { SAMPLED_NOTHING, SAMPLED_TOKEN, SAMPLED_NAN, SAMPLED_NOTHING_FINITE } SampledKind;
typedef struct {
  int32_t id;
  int32_t kind; /* SampledKind */
} __attribute__((aligned(8))) Sampled;

/* Enqueues pick number `draw` of sequence 0 from logits[vocab_size] on the device. The token goes to *token
 * (device) and, unless slot is NULL, to *slot (mapped host memory). With penalties the token counts as
 * generated. */
Status device_sampler_pick(DeviceSampler *sampler, const SamplerSettings *settings, uint64_t draw,
                           const float *logits, int32_t *token, Sampled *slot, cudaStream_t stream,
                           Error *err);

/* Masks of the sequences `first` to first + n - 1, for device_sampler_pick_rows(): see
 * device_sampler_allow(). */
Status device_sampler_allow_all(DeviceSampler *sampler, int first, const uint64_t *masks, int n,
                                cudaStream_t stream, Error *err);

/* A pick of a sequence from a row of the logits. */
typedef struct {
  const SamplerSettings *settings;
  uint64_t draw;
  int row, sequence; /* row: of the logits; sequence: in [0, n_sequences), all different */
  bool masked;       /* by device_sampler_allow_all() */
  Sampled *slot;     /* mapped host memory, for the result */
} RowPick;
/* Enqueues n picks at once from logits[rows][vocab_size]. PRECOND the picks of the call two before this
 * one are complete. */
Status device_sampler_pick_rows(DeviceSampler *sampler, const RowPick *rows, int n, const float *logits,
                                cudaStream_t stream, Error *err);
/* ids: device [n_rows] of a step. Replaces each negative id by the token that device_sampler_pick_rows()
 * picked last for the row's sequence. PRECOND there is such a token. */
Status device_sampler_fill(const DeviceSampler *sampler, const Segments *segments, int32_t *ids, int n_rows,
                           cudaStream_t stream, Error *err);

C_END
