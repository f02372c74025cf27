/* sample.cuh - shared by the two samplers: sample.cu cuts by histograms for any settings; sample_top_k.cu
 * takes a top-k that is small enough for one block to rank the candidates.
 *
 * Both are built without fused multiply-add (-fmad=false), as base/sampler_math.h demands. */
#pragma once

#include "cuda/kernels/ops/ranking.cuh"
#include "cuda/kernels/ptx/launch.cuh"

namespace sampling {

constexpr int kBlocks = 96, kThreads = 256, kBins = 2048, kLevels = 3;
constexpr int kGroups = kBlocks * kThreads / 32; /* runs of ids, one per warp, for sample_top_k.cu */
constexpr int kMostTopK = 64;                    /* the greatest top-k that sample_top_k.cu takes */
constexpr uint32_t kSeen = SAMPLER_TOKEN_SEEN;

/* Where top-k or top-p cuts, as far as it is known: each level of histograms finds more bits of the key. */
struct Cut {
  uint32_t key; /* the bits found */
  uint32_t unused;
  unsigned long long above; /* sum over all keys with greater bits */
};

/* A set of tokens: their weight above the border of the cut, and how many are exactly at the border. */
struct Tally {
  unsigned long long weight;
  unsigned int ties;
};

struct Control {
  unsigned long long greatest; /* ranked() of the best token */
  unsigned int lowest;         /* smallest key, to find NaN */
  unsigned int finished;       /* blocks of a pick's last kernel that are done */
  Cut cuts[2][kLevels];        /* by count, by weight: the cut known before each level */
  Tally tallies[kBlocks];      /* draw_kernel: sums of each block's run of ids */
  unsigned long long bins[2][kLevels][kBins];
  unsigned long long firsts[kGroups]; /* sample_top_k.cu: ranked() of each group's best token */
};

/* A pick is made by scores_kernel alone, by top_k_kernel alone, or by sample.cu's chain with histograms. */
enum Way { WAY_GREEDY, WAY_TOP_K, WAY_CUTS };

struct Pick {
  Way way;
  const float *logits;
  const uint64_t *allowed; /* a bit for each token: 1 if it can be picked; NULL: all can */
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
  bool rescored; /* scores differ from logits: by penalties or by `allowed` */
};

/* The picks of a launch: one, by value, or one for each value of blockIdx.y. */
struct OnePick {
  Pick pick;
  __device__ __forceinline__ const Pick &own() const { return pick; }
};
struct ManyPicks {
  const Pick *picks; /* device */
  __device__ __forceinline__ const Pick &own() const { return picks[blockIdx.y]; }
};

/* Sets [*first, *end) to the i-th of n_runs equal runs of n ids. */
__device__ __forceinline__ void run_range(int n, int n_runs, int i, int *first, int *end) {
  int run = (n + n_runs - 1) / n_runs;
  *first = min(n, i * run), *end = min(n, *first + run);
}

/* The score of the token `id`, whose logit is `score`; stored for key_of() if p.rescored. */
__device__ __forceinline__ float make_score(const Pick &p, int id, float score) {
  if (!p.rescored) return score;
  uint32_t note = p.penalties ? p.notes[id] : 0;
  if (p.allowed && !(p.allowed[id / 64] >> (id % 64) & 1))
    score = -INFINITY;
  else if (note)
    score = sampler_penalise(score, note & ~kSeen, p.repetition, p.presence, p.frequency);
  p.scores[id] = score;
  return score;
}

__device__ __forceinline__ uint32_t key_of(const Pick &p, int id) {
  return sampler_key(p.rescored ? p.scores[id] : p.logits[id]);
}

/* Makes the scores of ids first .. end - 1; a thread takes every kStep-th id. Updates the thread's greatest
 * ranked() and lowest key. Eight logits are loaded at once: their way from L2 takes longer than all else. The
 * last id can be judged more than once. */
template <int kStep>
__device__ __forceinline__ void judge(const Pick &p, int first, int end, unsigned long long *greatest,
                                      unsigned int *lowest) {
  constexpr int kAtOnce = 8;
  for (int begin = first + (int)(threadIdx.x % kStep); begin < end; begin += kAtOnce * kStep) {
    float logits[kAtOnce];
#pragma unroll
    for (int i = 0; i < kAtOnce; i++) logits[i] = p.logits[min(begin + i * kStep, end - 1)];
#pragma unroll
    for (int i = 0; i < kAtOnce; i++) {
      const int id = min(begin + i * kStep, end - 1);
      judge_token(make_score(p, id, logits[i]), id, greatest, lowest);
    }
  }
}

/* exp(-29) * 2^40 is below a half: a score this many temperatures below the best one has the weight 0. */
constexpr double kMaxTemperatures = 29.0;

/* True if the weight of a key can be above 0, compared in double as gather() of sampler.c does. */
__device__ __forceinline__ bool can_weigh(uint32_t key, double top, double temperature) {
  return (double)sampler_key_score(key) >= top - kMaxTemperatures * temperature;
}

__device__ __forceinline__ unsigned long long weight_of(uint32_t key, double top, double temperature) {
  return sampler_weight(((double)sampler_key_score(key) - top) / temperature);
}

/* The least weight that min-p keeps; 0 without min-p. */
__device__ __forceinline__ unsigned long long least_weight(const Pick &p) {
  return p.min_p > 0 ? sampler_fraction(p.min_p) << (SAMPLER_WEIGHT_BITS - 32) : 0;
}

/* top-p keeps a token if the weights before it sum to less than this limit; total: the sum of all weights. */
__device__ __forceinline__ unsigned long long top_p_limit(const Pick &p, unsigned long long total) {
  const unsigned long long limit = sampler_multiply(total, sampler_fraction(p.top_p));
  return limit ? limit : 1;
}

/* Ends a pick in one thread: writes token and kind, and resets Control's extremes and `finished`. With
 * penalties also counts a sampled token. */
__device__ inline void finish(const Pick &p, int32_t id, int kind) {
  p.control->greatest = 0, p.control->lowest = 0xffffffffu, p.control->finished = 0;
  *p.token = id;
  tell_host(p.slot, id, kind);
  if (p.penalties && kind == SAMPLED_TOKEN) p.notes[id] = (p.notes[id] + 1) | kSeen;
}

/* Returns true in the last of a pick's blocks to arrive. That block then sees what the others wrote. */
__device__ inline bool is_last_block(unsigned int *finished) {
  __shared__ bool last;
  __threadfence();
  __syncthreads();
  if (threadIdx.x == 0) last = atomicAdd(finished, 1) == gridDim.x - 1;
  __syncthreads();
  __threadfence();
  return last;
}

/* Enqueues those of n picks whose way is WAY_TOP_K, as one kernel. */
Status pick_top_k(const OnePick &pick, int n, cudaStream_t stream, Error *err);
Status pick_top_k(const ManyPicks &picks, int n, cudaStream_t stream, Error *err);

} // namespace sampling
