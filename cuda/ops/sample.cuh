/* sample.cuh - shared by the two samplers: sample.cu cuts by histograms for any settings; sample_top_k.cu
 * takes a top-k that is small enough for one block to rank the candidates.
 *
 * Both are built without fused multiply-add (-fmad=false), as engine/sampler_math.h demands. */
#ifndef AUK_CUDA_OPS_SAMPLE_CUH
#define AUK_CUDA_OPS_SAMPLE_CUH

#include "cuda/ops/sample.h"
#include "cuda/ptx/launch.cuh"
#include "engine/sampler_math.h"

namespace sampling {

constexpr int BLOCKS = 96, THREADS = 256, BINS = 2048, LEVELS = 3;
constexpr int GROUPS = BLOCKS * THREADS / 32; /* runs of ids, one per warp, for sample_top_k.cu */
constexpr int MOST_OF_FEW = 64;               /* the greatest top-k that sample_top_k.cu takes */
constexpr uint32_t SEEN = SAMPLER_NOTE_SEEN;

/* Where top-k or top-p cuts, as far as it is known: each level of histograms finds more bits of the key. */
struct Cut {
  uint32_t key; /* the bits found */
  uint32_t unused;
  unsigned long long above; /* sum over all keys with greater bits */
};

struct Control {
  unsigned long long greatest;     /* ranked() of the best token */
  unsigned int lowest;             /* smallest key, to find NaN */
  unsigned int finished;           /* blocks of a pick's last kernel that are done */
  Cut cuts[2][LEVELS];             /* by count, by weight: the cut at the begin of each level */
  unsigned long long sums[BLOCKS]; /* draw: each block's weight above the cut */
  unsigned int ties[BLOCKS];       /* draw: each block's tokens exactly at the cut */
  unsigned long long bins[2][LEVELS][BINS];
  unsigned long long firsts[GROUPS]; /* sample_top_k.cu: ranked() of each group's best token */
};

struct Pick {
  const float *logits;
  float *scores;
  uint32_t *notes;
  Control *control;
  int vocab_size, top_k;
  float repetition, presence, frequency;
  double temperature, top_p, min_p;
  unsigned long long seed, draw;
  int32_t *token;
  Sampled *slot;
  bool penalties;
};

/* The run of ids of this block. */
__device__ __forceinline__ void block_range(int n, int *first, int *end) {
  int run = (n + BLOCKS - 1) / BLOCKS;
  *first = min(n, (int)blockIdx.x * run), *end = min(n, *first + run);
}

/* The score of a token; with penalties it is stored for key_of(). */
__device__ __forceinline__ float make_score(const Pick &p, int id) {
  float score = p.logits[id];
  if (!p.penalties) return score;
  uint32_t note = p.notes[id];
  if (note) score = sampler_penalise(score, note & ~SEEN, p.repetition, p.presence, p.frequency);
  p.scores[id] = score;
  return score;
}

__device__ __forceinline__ uint32_t key_of(const Pick &p, int id) {
  return sampler_key(p.penalties ? p.scores[id] : p.logits[id]);
}

/* Orders tokens by key, equal keys by lower id: the better token has the greater number. */
__device__ __forceinline__ unsigned long long ranked(uint32_t key, int id) {
  return (unsigned long long)key << 32 | (uint32_t)~id;
}
__device__ __forceinline__ uint32_t ranked_key(unsigned long long number) {
  return (uint32_t)(number >> 32);
}
__device__ __forceinline__ int ranked_id(unsigned long long number) {
  return (int)~(uint32_t)number;
}

/* Maximum and minimum over the warp, in every lane. */
__device__ __forceinline__ void warp_extremes(unsigned long long *greatest, unsigned int *lowest) {
  for (int step = 16; step; step /= 2) {
    unsigned long long other = __shfl_xor_sync(~0u, *greatest, step);
    *greatest = other > *greatest ? other : *greatest;
    *lowest = min(*lowest, __shfl_xor_sync(~0u, *lowest, step));
  }
}

/* Judges logits by their greatest and lowest key; SAMPLED_TOKEN: they are fine. */
__device__ __forceinline__ SampledKind kind_of(uint32_t greatest, uint32_t lowest) {
  if (lowest < SAMPLER_KEY_LOWEST || greatest >= SAMPLER_KEY_INFINITE) return SAMPLED_NAN;
  return greatest <= SAMPLER_KEY_LOWEST ? SAMPLED_NOTHING_FINITE : SAMPLED_TOKEN;
}

__device__ __forceinline__ uint32_t greatest_key(const Pick &p) {
  return (uint32_t)(p.control->greatest >> 32);
}

/* Whether the weight of a key can be above 0, compared in double as gather() of sampler.c does. */
__device__ __forceinline__ bool can_weigh(uint32_t key, double top, double temperature) {
  return (double)sampler_key_score(key) >= top - 29.0 * temperature;
}

__device__ __forceinline__ unsigned long long weight_of(uint32_t key, double top, double temperature) {
  return sampler_weight(((double)sampler_key_score(key) - top) / temperature);
}

/* Ends a pick, in one thread: writes the token, counts it as seen, resets Control for the next pick. */
__device__ inline void finish(const Pick &p, int32_t id, int kind) {
  p.control->greatest = 0, p.control->lowest = 0xffffffffu, p.control->finished = 0;
  *p.token = id;
  if (kind == SAMPLED_TOKEN) p.notes[id] = (p.notes[id] + 1) | SEEN;
  if (p.slot) {
    volatile Sampled *slot = p.slot;
    slot->id = id;
    __threadfence_system();
    slot->kind = kind;
  }
}

/* Whether this block is the last to arrive; if so, it sees what the others wrote. */
__device__ inline bool is_last_block(unsigned int *finished) {
  __shared__ bool last;
  __threadfence();
  __syncthreads();
  if (threadIdx.x == 0) last = atomicAdd(finished, 1) == BLOCKS - 1;
  __syncthreads();
  __threadfence();
  return last;
}

/* Enqueues a pick with 1 < top_k <= MOST_OF_FEW and a temperature, as one kernel. */
Status pick_of_few(const Pick &pick, cudaStream_t stream, Error *err);

} // namespace sampling

#endif
