/* sample_top_k.cu - a pick with a top-k of up to 64 as one kernel.
 *
 * A group is one of kGroups runs of ids. Each warp finds its group's best token, called the first. The last
 * block to finish continues. The k-th of the firsts is a lower bound of the k-th token, so only the k groups
 * whose firsts reach this bound can hold a token that stays. The block reads these groups again. It puts the
 * tokens that reach the bound into shared memory: few more than k, unless the vocabulary is sorted by score.
 * It ranks each of them by counting the greater tokens. Before that, the firsts are thinned out likewise: the
 * k-th of the maxima of each six firsts is a lower bound of the k-th first. Then top-p, min-p and the draw
 * are sums over at most 64 weights.
 *
 *     group     0    1    2    3  ...  767
 *     first     7.1  3.0  9.4  0.2     1.1      k = 2: the bound is 7.1, groups 0 and 2 are read again
 *
 * The results equal sample.cu's and sampler.c's: ranked() numbers all differ, sums are of integers. READS
 * vocab_size * 4 bytes, and again k / 768 of them by one block. */
#include "cuda/kernels/ops/sample.cuh"
#include "cuda/kernels/ptx/lanes.cuh"

namespace {

using namespace sampling;

typedef unsigned long long Number; /* ranked() */

constexpr int kWarps = kThreads / 32;
constexpr int kCapacity = 1024; /* tokens that can be ranked at once */
constexpr int kSamples = 128;   /* each is the maximum of kGroups / kSamples firsts */

/* Shared memory of the last block. */
struct Shared {
  Number numbers[kCapacity]; /* all firsts, later the tokens that reach the bound */
  Number order[kMostTopK];   /* the top k, best first */
  Number weights[kMostTopK]; /* of order[]; 0: dropped by top-p or min-p */
  short groups[kMostTopK];   /* groups whose firsts reach the bound */
  Number samples[kSamples];
  Number firsts[kGroups]; /* firsts that reach the samples' bound, of groups at[] */
  short at[kGroups];
  Number bound;
  int n, count;
  uint32_t lowest;
};
static_assert(kGroups <= kCapacity, "firsts fit");
static_assert(kGroups % kSamples == 0 && kSamples <= kThreads && kMostTopK <= kSamples,
              "of a sample a thread");

/* Calls to(i, number, rank) for each of n numbers; rank 0 is the greatest. Numbers differ, but for zeros,
 * which are skipped. */
template <class To> __device__ __forceinline__ void rank_numbers(const Number *numbers, int n, To to) {
  for (int i = threadIdx.x; i < n; i += kThreads) {
    Number own = numbers[i];
    int rank = 0;
#pragma unroll 8
    for (int j = 0; j < n; j++) rank += numbers[j] > own;
    if (own) to(i, own, rank);
  }
}

/* Calls take(number) for each token of s.groups that reaches `bound` and can have a weight. */
template <class Take>
__device__ __forceinline__ void read_groups(const Pick &p, const Shared &s, int n_groups, Number bound,
                                            double top, Take take) {
  for (int i = threadIdx.x / 32; i < n_groups; i += kWarps) {
    int first, end;
    run_range(p.vocab_size, kGroups, s.groups[i], &first, &end);
#pragma unroll 4
    for (int id = first + threadIdx.x % 32; id < end; id += 32) {
      uint32_t key = key_of(p, id);
      Number number = ranked(key, id);
      if (number >= bound && can_weigh(key, top, p.temperature)) take(number);
    }
  }
}

/* The number of tokens that read_groups() takes. All threads of the block call it. */
__device__ int count_tokens(const Pick &p, Shared &s, int n_groups, Number bound, double top) {
  __syncthreads();
  if (threadIdx.x == 0) s.count = 0;
  __syncthreads();
  int own = 0;
  read_groups(p, s, n_groups, bound, top, [&](Number) { own++; });
  own = warp_sum(own);
  if (threadIdx.x % 32 == 0) atomicAdd(&s.count, own);
  __syncthreads();
  return s.count;
}

/* Finds the k-th token bit by bit, for when more than kCapacity tokens reach the bound. */
__device__ Number kth_token(const Pick &p, Shared &s, int n_groups, double top) {
  Number kth = 0;
  for (int bit = 63; bit >= 0; bit--) {
    Number more = kth | (Number)1 << bit;
    if (count_tokens(p, s, n_groups, more, top) >= p.top_k) kth = more;
  }
  return kth;
}

/* Fills s.numbers with the tokens that reach `bound`, at most kCapacity; s.n counts all of them. */
__device__ void collect(const Pick &p, Shared &s, int n_groups, Number bound, double top) {
  __syncthreads();
  if (threadIdx.x == 0) s.n = 0;
  __syncthreads();
  read_groups(p, s, n_groups, bound, top, [&](Number number) {
    int at = atomicAdd(&s.n, 1);
    if (at < kCapacity) s.numbers[at] = number;
  });
  __syncthreads();
}

/* Copies to s.firsts the firsts in s.numbers that can be among the top_k greatest, and their groups to s.at.
 * Returns how many. */
__device__ int thin_out_firsts(const Pick &p, Shared &s) {
  if (threadIdx.x == 0) s.bound = 0, s.n = 0;
  if (threadIdx.x < kSamples) {
    Number greatest = 0;
#pragma unroll
    for (int i = threadIdx.x; i < kGroups; i += kSamples) greatest = max(greatest, s.numbers[i]);
    s.samples[threadIdx.x] = greatest;
  }
  __syncthreads();
  rank_numbers(s.samples, kSamples, [&](int, Number number, int rank) {
    if (rank == p.top_k - 1) s.bound = number;
  });
  __syncthreads();
  for (int i = threadIdx.x; i < kGroups; i += kThreads) {
    const Number number = s.numbers[i];
    if (!number || number < s.bound) continue;
    const int at = atomicAdd(&s.n, 1);
    s.firsts[at] = number, s.at[at] = (short)i;
  }
  __syncthreads();
  return s.n;
}

/* Puts into s.order the best top_k of the tokens that can have a weight, or all if they are fewer. Returns
 * how many. */
__device__ int take_top_k(const Pick &p, Shared &s, double top) {
  const int n_firsts = thin_out_firsts(p, s);
  if (threadIdx.x == 0) s.bound = 0, s.count = 0;
  __syncthreads();
  rank_numbers(s.firsts, n_firsts, [&](int i, Number number, int rank) {
    if (rank >= p.top_k) return;
    s.groups[rank] = s.at[i];
    atomicAdd(&s.count, 1);
    if (rank == p.top_k - 1) s.bound = number;
  });
  __syncthreads();
  int n_groups = s.count;
  Number bound = s.bound;
  collect(p, s, n_groups, bound, top);
  if (s.n > kCapacity) collect(p, s, n_groups, kth_token(p, s, n_groups, top), top);
  rank_numbers(s.numbers, s.n, [&](int, Number number, int rank) {
    if (rank < p.top_k) s.order[rank] = number;
  });
  __syncthreads();
  return min(s.n, p.top_k);
}

/* Weighs the n tokens of s.order, applies top-p and min-p, draws. Threads from n on only join barriers. */
__device__ void draw_top_k(const Pick &p, Shared &s, int n, double top) {
  int i = threadIdx.x;
  Number own = i < n ? s.order[i] : 0, weight = i < n ? weight_of(ranked_key(own), top, p.temperature) : 0;
  if (i < n) s.weights[i] = weight;
  __syncthreads();
  Number before = 0, sum = 0;
  for (int j = 0; j < n; j++) {
    before += j < i ? s.weights[j] : 0;
    sum += s.weights[j];
  }
  if (p.top_p < 1 && before >= top_p_limit(p, sum)) weight = 0;
  if (weight < least_weight(p)) weight = 0;
  __syncthreads();
  if (i < n) s.weights[i] = weight;
  __syncthreads();
  if (i >= n || weight == 0) return;
  Number earlier = 0; /* weight of the tokens with lower ids */
  sum = 0;
  for (int j = 0; j < n; j++) {
    earlier += ranked_id(s.order[j]) < ranked_id(own) ? s.weights[j] : 0;
    sum += s.weights[j];
  }
  Number target = sampler_multiply_high(sampler_random(p.seed, p.draw), sum);
  if (earlier <= target && target < earlier + weight) finish(p, ranked_id(own), SAMPLED_TOKEN);
}

template <class Picks> __global__ void __launch_bounds__(kThreads) top_k_kernel(Picks picks) {
  __shared__ Shared s;
  begin_overlapping();
  const Pick &p = picks.own();
  if (p.way != WAY_TOP_K) return;
  int group = blockIdx.x * kWarps + threadIdx.x / 32, first, end;
  run_range(p.vocab_size, kGroups, group, &first, &end);
  Number greatest = 0;
  uint32_t lowest = 0xffffffffu;
  judge<32>(p, first, end, &greatest, &lowest);
  warp_extremes(&greatest, &lowest);
  if (threadIdx.x % 32 == 0) {
    p.control->firsts[group] = greatest;
    atomicMin(&p.control->lowest, lowest);
  }
  if (!is_last_block(&p.control->finished)) return;

  if (threadIdx.x == 0) s.bound = 0;
  __syncthreads();
  greatest = 0;
  for (int i = threadIdx.x; i < kGroups; i += kThreads) {
    Number number = __ldcg(&p.control->firsts[i]);
    s.numbers[i] = number;
    greatest = number > greatest ? number : greatest;
  }
  lowest = *(volatile unsigned int *)&p.control->lowest;
  warp_extremes(&greatest, &lowest);
  if (threadIdx.x % 32 == 0) atomicMax(&s.bound, greatest);
  __syncthreads();
  SampledKind kind = kind_of(ranked_key(s.bound), lowest);
  if (kind != SAMPLED_TOKEN) {
    if (threadIdx.x == 0) finish(p, 0, kind);
    return;
  }
  double top = (double)sampler_key_score(ranked_key(s.bound));
  __syncthreads();
  int n = take_top_k(p, s, top);
  draw_top_k(p, s, n, top);
}

} // namespace

Status sampling::pick_top_k(const OnePick &pick, int n, cudaStream_t stream, Error *err) {
  return launch(top_k_kernel<OnePick>, dim3(kBlocks, n), kThreads, 0, stream, true, "sampling", err, pick);
}

Status sampling::pick_top_k(const ManyPicks &picks, int n, cudaStream_t stream, Error *err) {
  return launch(top_k_kernel<ManyPicks>, dim3(kBlocks, n), kThreads, 0, stream, true, "sampling", err, picks);
}
