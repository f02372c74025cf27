/* sample.cu - see sample.h. Built without fused multiply-add (-fmad=false), as sampler_math.h demands.
 *
 * A pick is a chain of small kernels over the vocabulary, each of BLOCKS blocks with equal runs of ids (a
 * small top-k is one kernel: sample_top_k.cu):
 *   scores      penalties; the greatest key and its lowest id; zeroes the histograms; greedy ends here
 *   count 0-2   where top-k cuts: histograms of the keys' upper 11, next 11, last 10 bits, by count
 *   weigh 0-2   where top-p cuts: the same by weight, over what top-k left
 *   draw        each block's surviving weight; the last block to finish finds the token
 * A cut is a key and how many tokens with exactly that key stay (the lowest ids). Equal keys have equal
 * weights, so top-k, top-p and min-p each keep a prefix of the ranking, and one key and one count describe
 * what stays. READS  vocab_size * 4 bytes from L2 in each kernel. */
#include "cuda/ops/sample.h"

#include <float.h>
#include <new>

#include "cuda/ops/sample.cuh"
#include "cuda/ptx/lanes.cuh"

namespace {

using namespace sampling;

__device__ __forceinline__ int level_shift(int level) {
  return level == 0 ? 21 : level == 1 ? 10 : 0;
}
__device__ __forceinline__ int level_bits(int level) {
  return level == 2 ? 10 : 11;
}

__global__ void __launch_bounds__(THREADS) scores_kernel(Pick p, bool greedy) {
  begin_overlapping();
  unsigned long long *bins = &p.control->bins[0][0][0];
  for (int i = blockIdx.x * THREADS + threadIdx.x; !greedy && i < 2 * LEVELS * BINS; i += BLOCKS * THREADS)
    bins[i] = 0;
  int first, end;
  block_range(p.vocab_size, &first, &end);
  unsigned long long greatest = 0;
  unsigned int lowest = 0xffffffffu;
  for (int id = first + threadIdx.x; id < end; id += THREADS) {
    uint32_t key = sampler_key(make_score(p, id));
    unsigned long long number = ranked(key, id);
    greatest = number > greatest ? number : greatest;
    lowest = key < lowest ? key : lowest;
  }
  warp_extremes(&greatest, &lowest);
  if (threadIdx.x % 32 == 0) {
    atomicMax(&p.control->greatest, greatest);
    atomicMin(&p.control->lowest, lowest);
  }
  if (!greedy || !is_last_block(&p.control->finished) || threadIdx.x) return;
  greatest = *(volatile unsigned long long *)&p.control->greatest;
  lowest = *(volatile unsigned int *)&p.control->lowest;
  SampledKind kind = kind_of(ranked_key(greatest), lowest);
  finish(p, kind == SAMPLED_TOKEN ? ranked_id(greatest) : 0, kind);
}

/* Finds the bin in which the sum from the greatest bin down reaches `limit`, in all threads alike. `extra`
 * counts as part of bin `extra_bin`. PRECOND the sum of all >= limit > above. */
__device__ void find_bin(const unsigned long long *bins, unsigned long long limit, Cut *cut, int bits,
                         int extra_bin, unsigned long long extra) {
  constexpr int EACH = BINS / THREADS;
  __shared__ unsigned long long sums[THREADS];
  __shared__ Cut found;
  unsigned long long own = 0;
  int high = BINS - 1 - (int)threadIdx.x * EACH; /* this thread's greatest bin */
  for (int i = 0; i < EACH; i++) own += bins[high - i] + (high - i == extra_bin ? extra : 0);
  sums[threadIdx.x] = own;
  __syncthreads();
  for (int step = 1; step < THREADS; step *= 2) { /* inclusive prefix sums */
    unsigned long long before = (int)threadIdx.x >= step ? sums[threadIdx.x - step] : 0;
    __syncthreads();
    sums[threadIdx.x] += before;
    __syncthreads();
  }
  unsigned long long above = cut->above + sums[threadIdx.x] - own;
  if (above < limit && above + own >= limit) {
    int bin = high;
    for (;; bin--) {
      unsigned long long value = bins[bin] + (bin == extra_bin ? extra : 0);
      if (above + value >= limit) break;
      above += value;
    }
    found.key = cut->key << bits | (uint32_t)bin, found.above = above;
  }
  __syncthreads();
  *cut = found;
  __syncthreads();
}

/* The sum of a first-level histogram: the number of candidates, or their weight. */
__device__ unsigned long long sum_bins(const unsigned long long *bins) {
  __shared__ unsigned long long sums[THREADS / 32];
  unsigned long long own = 0;
  for (int i = threadIdx.x; i < BINS; i += THREADS) own += bins[i];
  own = warp_sum(own);
  if (threadIdx.x % 32 == 0) sums[threadIdx.x / 32] = own;
  __syncthreads();
  unsigned long long total = 0;
  for (int w = 0; w < THREADS / 32; w++) total += sums[w];
  __syncthreads();
  return total;
}

/* A complete cut: tokens above `key` stay, and of the tokens at `key` the `ties` with the lowest ids. */
struct Border {
  uint32_t key;
  unsigned int ties;
};

/* top-k's border from its three complete histograms; {0, 0}, which keeps all, for up to top_k candidates. */
__device__ Border count_border(const Pick &p) {
  Border border = {0, 0};
  if (p.top_k == 0) return border;
  unsigned long long candidates = sum_bins(p.control->bins[0][0]);
  if ((unsigned long long)p.top_k >= candidates) return border;
  Cut cut = p.control->cuts[0][LEVELS - 1];
  find_bin(p.control->bins[0][LEVELS - 1], p.top_k, &cut, level_bits(LEVELS - 1), -1, 0);
  border.key = cut.key, border.ties = (unsigned int)(p.top_k - cut.above);
  return border;
}

/* One level of top-k's or top-p's histogram. BY_WEIGHT is 0 or 1. */
template <int BY_WEIGHT> __global__ void __launch_bounds__(THREADS) cut_kernel(Pick p, int level) {
  begin_overlapping();
  __shared__ unsigned long long bins[BINS];
  uint32_t greatest = greatest_key(p);
  if (greatest >= SAMPLER_KEY_INFINITE || greatest <= SAMPLER_KEY_LOWEST) return; /* draw_kernel reports it */
  double top = (double)sampler_key_score(greatest);
  Border kept = {0, 0};
  if (BY_WEIGHT) kept = count_border(p);
  unsigned long long tied = BY_WEIGHT && kept.ties ? kept.ties * weight_of(kept.key, top, p.temperature) : 0;

  Cut cut = {0, 0, 0};
  if (level > 0) {
    unsigned long long limit = p.top_k;
    const unsigned long long *before = p.control->bins[BY_WEIGHT][level - 1];
    int shift = level_shift(level - 1), bits = level_bits(level - 1);
    if (level > 1) cut = p.control->cuts[BY_WEIGHT][level - 1];
    unsigned long long total = sum_bins(p.control->bins[BY_WEIGHT][0]) + tied;
    if (BY_WEIGHT) {
      limit = sampler_part(total, sampler_share(p.top_p));
      limit = limit ? limit : 1;
    } else if (limit >= total) {
      return; /* nothing to cut: count_border() sees it too */
    }
    int tied_bin = tied && (uint64_t)kept.key >> (shift + bits) == cut.key
                       ? (int)(kept.key >> shift & ((1u << bits) - 1))
                       : -1;
    find_bin(before, limit, &cut, bits, tied_bin, tied);
    if (blockIdx.x == 0 && threadIdx.x == 0) p.control->cuts[BY_WEIGHT][level] = cut;
  }

  for (int i = threadIdx.x; i < BINS; i += THREADS) bins[i] = 0;
  __syncthreads();
  int first, end, shift = level_shift(level), bits = level_bits(level);
  block_range(p.vocab_size, &first, &end);
  for (int id = first + threadIdx.x; id < end; id += THREADS) {
    uint32_t key = key_of(p, id);
    if (!can_weigh(key, top, p.temperature) || (uint64_t)key >> (shift + bits) != cut.key) continue;
    if (BY_WEIGHT && kept.ties && key <= kept.key) continue; /* find_bin() adds the ties at top-k's border */
    unsigned long long value = BY_WEIGHT ? weight_of(key, top, p.temperature) : 1;
    atomicAdd(&bins[key >> shift & ((1u << bits) - 1)], value);
  }
  __syncthreads();
  unsigned long long *to = p.control->bins[BY_WEIGHT][level];
  for (int i = threadIdx.x; i < BINS; i += THREADS)
    if (bins[i]) atomicAdd(&to[i], bins[i]);
}

/* The border of top-k and top-p together. */
__device__ Border final_border(const Pick &p, double top) {
  Border border = count_border(p);
  if (p.top_p < 1) {
    unsigned long long tied = border.ties ? border.ties * weight_of(border.key, top, p.temperature) : 0;
    unsigned long long total = sum_bins(p.control->bins[1][0]) + tied;
    unsigned long long limit = sampler_part(total, sampler_share(p.top_p));
    limit = limit ? limit : 1;
    Cut cut = p.control->cuts[1][LEVELS - 1];
    int bits = level_bits(LEVELS - 1);
    int tied_bin = tied && border.key >> bits == cut.key ? (int)(border.key & ((1u << bits) - 1)) : -1;
    find_bin(p.control->bins[1][LEVELS - 1], limit, &cut, bits, tied_bin, tied);
    unsigned long long weight = weight_of(cut.key, top, p.temperature);
    unsigned int ties = weight ? (unsigned int)((limit - cut.above + weight - 1) / weight) : 0;
    if (!(border.ties && cut.key == border.key && border.ties < ties)) border.ties = ties;
    border.key = cut.key;
  }
  return border;
}

__global__ void __launch_bounds__(THREADS) draw_kernel(Pick p) {
  begin_overlapping();
  __shared__ unsigned long long sums[THREADS];
  __shared__ unsigned int ties[THREADS];
  __shared__ unsigned long long target, block_before;
  __shared__ unsigned int ties_before;
  __shared__ int block_found;
  uint32_t greatest = greatest_key(p);
  SampledKind kind = kind_of(greatest, p.control->lowest);
  if (kind != SAMPLED_TOKEN) {
    if (is_last_block(&p.control->finished) && threadIdx.x == 0) finish(p, 0, kind);
    return;
  }
  double top = (double)sampler_key_score(greatest);
  Border border = final_border(p, top);
  unsigned long long least = p.min_p > 0 ? sampler_share(p.min_p) << (SAMPLER_WEIGHT_BITS - 32) : 0;
  unsigned long long border_weight = border.ties ? weight_of(border.key, top, p.temperature) : 0;
  if (border_weight < least) border_weight = 0;

  int first, end;
  block_range(p.vocab_size, &first, &end);
  unsigned long long sum = 0;
  unsigned int at_border = 0;
  for (int id = first + threadIdx.x; id < end; id += THREADS) {
    uint32_t key = key_of(p, id);
    if (border.ties && key == border.key) at_border++;
    if (key <= border.key || !can_weigh(key, top, p.temperature)) continue;
    unsigned long long weight = weight_of(key, top, p.temperature);
    if (weight >= least) sum += weight;
  }
  sums[threadIdx.x] = sum, ties[threadIdx.x] = at_border;
  __syncthreads();
  for (int half = THREADS / 2; half; half /= 2) {
    if ((int)threadIdx.x < half)
      sums[threadIdx.x] += sums[threadIdx.x + half], ties[threadIdx.x] += ties[threadIdx.x + half];
    __syncthreads();
  }
  if (threadIdx.x == 0) p.control->sums[blockIdx.x] = sums[0], p.control->ties[blockIdx.x] = ties[0];
  if (!is_last_block(&p.control->finished)) return;

  /* Finds the block in whose run of ids the token lies. */
  if (threadIdx.x == 0) {
    volatile Control *control = p.control;
    unsigned long long total = 0;
    unsigned int left = border.ties;
    for (int b = 0; b < BLOCKS; b++) {
      unsigned int here = min(left, control->ties[b]);
      total += control->sums[b] + here * border_weight;
      left -= here;
    }
    target = sampler_multiply_high(sampler_random(p.seed, p.draw), total);
    unsigned long long before = 0;
    left = border.ties;
    int b = 0;
    for (;; b++) {
      unsigned int here = min(left, control->ties[b]);
      unsigned long long more = control->sums[b] + here * border_weight;
      if (before + more > target) break;
      before += more, left -= here;
    }
    block_found = b, block_before = before, ties_before = left;
  }
  __syncthreads();

  /* Finds the token itself: each thread sums a run of ids, then one thread walks the run in which the sum
   * passes the target. */
  int run = (p.vocab_size + BLOCKS - 1) / BLOCKS, each = (run + THREADS - 1) / THREADS;
  int begin = block_found * run, stop = min(p.vocab_size, begin + run);
  int mine = min(stop, begin + (int)threadIdx.x * each), mine_end = min(stop, mine + each);
  sum = 0, at_border = 0;
  for (int id = mine; id < mine_end; id++) {
    uint32_t key = key_of(p, id);
    if (border.ties && key == border.key) at_border++;
    if (key <= border.key || !can_weigh(key, top, p.temperature)) continue;
    unsigned long long weight = weight_of(key, top, p.temperature);
    if (weight >= least) sum += weight;
  }
  sums[threadIdx.x] = sum, ties[threadIdx.x] = at_border;
  __syncthreads();
  if (threadIdx.x) return;
  unsigned long long before = block_before;
  unsigned int left = ties_before;
  int thread = 0;
  for (;; thread++) {
    unsigned int here = min(left, ties[thread]);
    unsigned long long more = sums[thread] + here * border_weight;
    if (before + more > target) break;
    before += more, left -= here;
  }
  for (int id = begin + thread * each;; id++) {
    uint32_t key = key_of(p, id);
    unsigned long long weight = 0;
    if (border.ties && key == border.key && left) {
      weight = border_weight, left--;
    } else if (key > border.key && can_weigh(key, top, p.temperature)) {
      weight = weight_of(key, top, p.temperature);
      if (weight < least) weight = 0;
    }
    before += weight;
    if (before > target) {
      finish(p, id, SAMPLED_TOKEN);
      return;
    }
  }
}

__global__ void reset_kernel(Control *control) {
  begin_overlapping();
  control->greatest = 0, control->lowest = 0xffffffffu, control->finished = 0;
}

} // namespace

struct DeviceSampler {
  int vocab_size;
  float *scores;   /* device [vocab_size] */
  uint32_t *notes; /* device [vocab_size] */
  Control *control;
};

Status device_sampler_open(int vocab_size, DeviceSampler **sampler, Error *err) {
  *sampler = NULL;
  DeviceSampler *s = (DeviceSampler *)mem_alloc(1, sizeof *s, "the sampler", err);
  if (!s) return STATUS_FAILED;
  s->vocab_size = vocab_size;
  cudaError_t failed = cudaMalloc(&s->scores, (size_t)vocab_size * sizeof *s->scores);
  if (failed == cudaSuccess) failed = cudaMalloc(&s->notes, (size_t)vocab_size * sizeof *s->notes);
  if (failed == cudaSuccess) failed = cudaMalloc(&s->control, sizeof *s->control);
  if (failed == cudaSuccess) failed = cudaMemset(s->control, 0, sizeof *s->control);
  if (failed == cudaSuccess) failed = cudaMemset(s->notes, 0, (size_t)vocab_size * sizeof *s->notes);
  if (failed == cudaSuccess) {
    reset_kernel<<<1, 1>>>(s->control);
    failed = cudaDeviceSynchronize();
  }
  *sampler = s;
  if (failed == cudaSuccess) return STATUS_OK;
  device_sampler_close(s);
  *sampler = NULL;
  return cuda_status(failed, "no memory to sample", err);
}

void device_sampler_close(DeviceSampler *s) {
  if (!s) return;
  cudaFree(s->scores);
  cudaFree(s->notes);
  cudaFree(s->control);
  free(s);
}

Status device_sampler_set_notes(DeviceSampler *s, const uint32_t *notes, cudaStream_t stream, Error *err) {
  return cuda_status(
      cudaMemcpyAsync(s->notes, notes, (size_t)s->vocab_size * sizeof *notes, cudaMemcpyHostToDevice, stream),
      "cannot copy notes", err);
}

Status device_sampler_pick(DeviceSampler *s, const SamplerSettings *set, uint64_t draw, const float *logits,
                           int32_t *token, Sampled *slot, cudaStream_t stream, Error *err) {
  Pick p = {};
  p.logits = logits, p.scores = s->scores, p.notes = s->notes, p.control = s->control;
  p.vocab_size = s->vocab_size, p.top_k = set->top_k;
  p.repetition = (float)set->repetition_penalty, p.presence = (float)set->presence_penalty;
  p.frequency = (float)set->frequency_penalty;
  p.temperature = set->temperature, p.top_p = set->top_p, p.min_p = set->min_p, p.seed = set->seed;
  p.draw = draw, p.token = token, p.slot = slot;
  p.penalties = set->repetition_penalty != 1 || set->presence_penalty != 0 || set->frequency_penalty != 0;
  bool greedy = set->temperature == 0 || set->top_k == 1;
  if (!greedy && p.top_k && p.top_k <= MOST_OF_FEW) return pick_of_few(p, stream, err);
  TRY(launch(scores_kernel, BLOCKS, THREADS, 0, stream, true, "sampling", err, p, greedy));
  if (greedy) return STATUS_OK;
  for (int level = 0; p.top_k && level < LEVELS; level++)
    TRY(launch(cut_kernel<0>, BLOCKS, THREADS, 0, stream, true, "sampling", err, p, level));
  for (int level = 0; p.top_p < 1 && level < LEVELS; level++)
    TRY(launch(cut_kernel<1>, BLOCKS, THREADS, 0, stream, true, "sampling", err, p, level));
  return launch(draw_kernel, BLOCKS, THREADS, 0, stream, true, "sampling", err, p);
}
