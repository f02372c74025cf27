/* sample.h - the sampler on a GPU: the same token as engine/sampler.c from the same logits, bit for bit.
 *
 * The rules are engine/sampler_math.h's. All sums are of integers, so the order in which blocks add does not
 * matter. Everything a step needs lies in device memory (the count of draws, which tokens were seen), so that
 * a captured launch serves every step; the token goes to device memory, for the next step's embedding, and to
 * the host's ring. */
#ifndef AUK_CUDA_OPS_SAMPLE_H
#define AUK_CUDA_OPS_SAMPLE_H

#include <cuda_runtime_api.h>
#include <stdint.h>

#include "engine/sampler.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct DeviceSampler DeviceSampler; /* device memory; host pointer to its parts */

Status device_sampler_open(int vocab_size, DeviceSampler **sampler, Error *err);
void device_sampler_close(DeviceSampler *sampler);

/* Replaces what it knows of seen tokens: notes[vocab_size] as sampler_token_counts() makes them, in pinned
 * host memory that stays as it is until the stream has passed. Enqueues. */
Status device_sampler_set_notes(DeviceSampler *sampler, const uint32_t *notes, cudaStream_t stream,
                                Error *err);

/* A picked token, or what was wrong with the logits, as the host's ring holds it. */
typedef enum { SAMPLED_NOTHING, SAMPLED_TOKEN, SAMPLED_NAN, SAMPLED_NOTHING_FINITE } SampledKind;
typedef struct {
  int32_t id;
  int32_t kind; /* SampledKind, written after id */
} Sampled;

/* Enqueues pick number `draw` from logits[vocab_size] on the device. It notes the token as generated and
 * writes it to *token (device) and to *slot (mapped host memory; may be NULL). */
Status device_sampler_pick(DeviceSampler *sampler, const SamplerSettings *settings, uint64_t draw,
                           const float *logits, int32_t *token, Sampled *slot, cudaStream_t stream,
                           Error *err);

#ifdef __cplusplus
}
#endif
#endif
