/* sample.cu - see sample.h. Built without fused multiply-add (-fmad=false), as sampler_math.h demands.
 *
 * A pick is a chain of small kernels over the vocabulary, each of kBlocks blocks with equal runs of ids. (A
 * small top-k is one kernel: sample_top_k.cu. With many sequences `scores` has fewer blocks for each.)
 *   scores      mask, penalties; the greatest key and its lowest id; zeroes the histograms; greedy ends here
 *   count 0-2   where top-k cuts: histograms of the keys' upper 11, next 11, last 10 bits, by count
 *   weigh 0-2   where top-p cuts: the same histograms by weight, of the tokens that top-k keeps
 *   draw        each block's surviving weight; the last block to finish finds the token
 * A cut is a key, and how many tokens with exactly that key stay (the lowest ids). Equal keys have equal
 * weights. So top-k, top-p and min-p each keep a prefix of the ranking, and a key and a count describe it.
 * READS  vocab_size * 4 bytes from L2 in each kernel. */
#include "cuda/kernels/ops/sample.h"

#include <algorithm>

#include "cuda/kernels/ops/sample.cuh"
#include "cuda/kernels/ptx/lanes.cuh"

namespace {

using namespace sampling;

__device__ __forceinline__ int level_shift(int level) {
  return level == 0 ? 21 : level == 1 ? 10 : 0;
}
__device__ __forceinline__ int level_bits(int level) {
  return level == 2 ? 10 : 11;
}

/* Maximum and minimum over the block, in its first warp. */
__device__ __forceinline__ void block_extremes(unsigned long long *greatest, unsigned int *lowest) {
  constexpr int kWarps = kThreads / 32;
  __shared__ unsigned long long best[kWarps];
  __shared__ unsigned int least[kWarps];
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  warp_extremes(greatest, lowest);
  if (lane == 0) best[warp] = *greatest, least[warp] = *lowest;
  __syncthreads();
  if (warp > 0) return;
  *greatest = best[lane % kWarps], *lowest = least[lane % kWarps];
  warp_extremes(greatest, lowest);
}

template <class Picks> __global__ void __launch_bounds__(kThreads) scores_kernel(Picks picks) {
  begin_overlapping();
  const Pick &p = picks.own();
  if (p.way == WAY_TOP_K) return;
  const bool greedy = p.way == WAY_GREEDY;
  unsigned long long *bins = &p.control->bins[0][0][0];
  for (int i = blockIdx.x * kThreads + threadIdx.x; !greedy && i < 2 * kLevels * kBins;
       i += (int)gridDim.x * kThreads)
    bins[i] = 0;
  int first, end;
  run_range(p.vocab_size, gridDim.x, blockIdx.x, &first, &end);
  unsigned long long greatest = 0;
  unsigned int lowest = 0xffffffffu;
  judge<kThreads>(p, first, end, &greatest, &lowest);
  block_extremes(&greatest, &lowest);
  if (threadIdx.x == 0) {
    atomicMax(&p.control->greatest, greatest);
    atomicMin(&p.control->lowest, lowest);
  }
  if (!greedy || !is_last_block(&p.control->finished) || threadIdx.x) return;
  greatest = *(volatile unsigned long long *)&p.control->greatest;
  lowest = *(volatile unsigned int *)&p.control->lowest;
  SampledKind kind = kind_of(ranked_key(greatest), lowest);
  finish(p, kind == SAMPLED_TOKEN ? ranked_id(greatest) : 0, kind);
}

/* Moves *cut, in all threads, to the bin in which the sum from the greatest bin down reaches `limit`. `extra`
 * counts as part of bin `extra_bin`. PRECOND cut->above < limit <= cut->above + extra + the sum of bins. */
__device__ void find_bin(const unsigned long long *bins, unsigned long long limit, Cut *cut, int level,
                         int extra_bin, unsigned long long extra) {
  constexpr int kEach = kBins / kThreads;
  __shared__ unsigned long long sums[kThreads];
  __shared__ Cut found;
  unsigned long long own = 0;
  int high = kBins - 1 - (int)threadIdx.x * kEach; /* this thread's greatest bin */
  for (int i = 0; i < kEach; i++) own += bins[high - i] + (high - i == extra_bin ? extra : 0);
  sums[threadIdx.x] = own;
  __syncthreads();
  for (int step = 1; step < kThreads; step *= 2) { /* inclusive prefix sums */
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
    found.key = cut->key << level_bits(level) | (uint32_t)bin, found.above = above;
  }
  __syncthreads();
  *cut = found;
  __syncthreads();
}

/* The sum of a first-level histogram: the number of candidates, or their weight. */
__device__ unsigned long long sum_bins(const unsigned long long *bins) {
  __shared__ unsigned long long sums[kThreads / 32];
  unsigned long long own = 0;
  for (int i = threadIdx.x; i < kBins; i += kThreads) own += bins[i];
  own = warp_sum(own);
  if (threadIdx.x % 32 == 0) sums[threadIdx.x / 32] = own;
  __syncthreads();
  unsigned long long total = 0;
  for (int w = 0; w < kThreads / 32; w++) total += sums[w];
  __syncthreads();
  return total;
}

/* A complete cut: tokens above `key` stay, and of the tokens at `key` the `ties` with the lowest ids. */
struct Border {
  uint32_t key;
  unsigned int ties;
};

/* top-k's border from its three complete histograms. {0, 0}, which keeps all tokens, if there is no top-k or
 * there are at most top_k candidates. */
__device__ Border count_border(const Pick &p) {
  Border border = {0, 0};
  if (p.top_k == 0) return border;
  unsigned long long candidates = sum_bins(p.control->bins[0][0]);
  if ((unsigned long long)p.top_k >= candidates) return border;
  Cut cut = p.control->cuts[0][kLevels - 1];
  find_bin(p.control->bins[0][kLevels - 1], p.top_k, &cut, kLevels - 1, -1, 0);
  border.key = cut.key, border.ties = (unsigned int)(p.top_k - cut.above);
  return border;
}

/* The weight of the ties that stay. */
__device__ unsigned long long tied_weight(const Pick &p, const Border &border, double top) {
  return border.ties ? border.ties * weight_of(border.key, top, p.temperature) : 0;
}

/* The bin of a level's histogram that counts `key`, or -1: the key's upper bits are not those of the cut. */
__device__ __forceinline__ int bin_of(uint32_t key, const Cut &cut, int level) {
  const int shift = level_shift(level), bits = level_bits(level);
  return (uint64_t)key >> (shift + bits) == cut.key ? (int)(key >> shift & ((1u << bits) - 1)) : -1;
}

/* Fills one level of top-k's histograms (kByWeight 0) or of top-p's (1). */
template <int kByWeight, class Picks>
__global__ void __launch_bounds__(kThreads) cut_kernel(Picks picks, int level) {
  begin_overlapping();
  const Pick &p = picks.own();
  if (p.way != WAY_CUTS || !(kByWeight ? p.top_p < 1 : p.top_k > 0)) return;
  __shared__ unsigned long long bins[kBins];
  uint32_t greatest = ranked_key(p.control->greatest);
  if (greatest >= SAMPLER_KEY_INFINITE || greatest <= SAMPLER_KEY_LOWEST) return; /* draw_kernel reports it */
  double top = (double)sampler_key_score(greatest);
  Border kept = {0, 0};
  if (kByWeight) kept = count_border(p);
  unsigned long long tied = kByWeight ? tied_weight(p, kept, top) : 0;

  Cut cut = {0, 0, 0};
  if (level > 0) {
    if (level > 1) cut = p.control->cuts[kByWeight][level - 1];
    unsigned long long total = sum_bins(p.control->bins[kByWeight][0]) + tied;
    if (!kByWeight && (unsigned long long)p.top_k >= total)
      return; /* nothing to cut, as count_border() says */
    unsigned long long limit = kByWeight ? top_p_limit(p, total) : p.top_k;
    find_bin(p.control->bins[kByWeight][level - 1], limit, &cut, level - 1,
             tied ? bin_of(kept.key, cut, level - 1) : -1, tied);
    if (blockIdx.x == 0 && threadIdx.x == 0) p.control->cuts[kByWeight][level] = cut;
  }

  for (int i = threadIdx.x; i < kBins; i += kThreads) bins[i] = 0;
  __syncthreads();
  int first, end;
  run_range(p.vocab_size, kBlocks, blockIdx.x, &first, &end);
  for (int id = first + threadIdx.x; id < end; id += kThreads) {
    uint32_t key = key_of(p, id);
    int bin = bin_of(key, cut, level);
    if (bin < 0 || !can_weigh(key, top, p.temperature)) continue;
    if (kByWeight && kept.ties && key <= kept.key) continue; /* find_bin() adds the ties at top-k's border */
    atomicAdd(&bins[bin], kByWeight ? weight_of(key, top, p.temperature) : 1ull);
  }
  __syncthreads();
  unsigned long long *to = p.control->bins[kByWeight][level];
  for (int i = threadIdx.x; i < kBins; i += kThreads)
    if (bins[i]) atomicAdd(&to[i], bins[i]);
}

/* The border of top-k and top-p together. */
__device__ Border final_border(const Pick &p, double top) {
  Border border = count_border(p);
  if (p.top_p < 1) {
    unsigned long long tied = tied_weight(p, border, top);
    unsigned long long limit = top_p_limit(p, sum_bins(p.control->bins[1][0]) + tied);
    Cut cut = p.control->cuts[1][kLevels - 1];
    find_bin(p.control->bins[1][kLevels - 1], limit, &cut, kLevels - 1,
             tied ? bin_of(border.key, cut, kLevels - 1) : -1, tied);
    unsigned long long weight = weight_of(cut.key, top, p.temperature);
    unsigned int ties = weight ? (unsigned int)((limit - cut.above + weight - 1) / weight) : 0;
    if (!(border.ties && cut.key == border.key && border.ties < ties)) border.ties = ties;
    border.key = cut.key;
  }
  return border;
}

/* The tokens that stay, and what they weigh. */
struct Kept {
  Border border;
  double top;                   /* the greatest score */
  unsigned long long least;     /* weight that min-p asks for */
  unsigned long long at_border; /* weight of a token at the border; 0: min-p drops it */
};

/* The weight of a token above the border; 0: min-p drops the token, or it is not above the border. */
__device__ __forceinline__ unsigned long long weight_above(const Pick &p, const Kept &kept, uint32_t key) {
  if (key <= kept.border.key || !can_weigh(key, kept.top, p.temperature)) return 0;
  unsigned long long weight = weight_of(key, kept.top, p.temperature);
  return weight >= kept.least ? weight : 0;
}

/* The tally of the ids first, first + step, ... below end. */
__device__ __forceinline__ Tally sum_ids(const Pick &p, const Kept &kept, int first, int end, int step) {
  Tally tally = {0, 0};
  for (int id = first; id < end; id += step) {
    uint32_t key = key_of(p, id);
    if (kept.border.ties && key == kept.border.key) tally.ties++;
    tally.weight += weight_above(p, kept, key);
  }
  return tally;
}

/* Returns the index of the first of n runs of ids with which the sum of weights exceeds `target`, or n.
 * *place: on entry the weight before the first run, and how many ties from there on stay; on return the same
 * for the returned index. */
__device__ int find_run(const Kept &kept, const volatile Tally *runs, int n, unsigned long long target,
                        Tally *place) {
  for (int i = 0; i < n; i++) {
    unsigned int here = min(place->ties, runs[i].ties);
    unsigned long long more = runs[i].weight + here * kept.at_border;
    if (place->weight + more > target) return i;
    place->weight += more, place->ties -= here;
  }
  return n;
}

/* Sums the block's run of ids into Control. */
__device__ void sum_block(const Pick &p, const Kept &kept, Tally *tallies) {
  int first, end;
  run_range(p.vocab_size, kBlocks, blockIdx.x, &first, &end);
  tallies[threadIdx.x] = sum_ids(p, kept, first + threadIdx.x, end, kThreads);
  __syncthreads();
  for (int half = kThreads / 2; half; half /= 2) {
    if ((int)threadIdx.x < half) {
      tallies[threadIdx.x].weight += tallies[threadIdx.x + half].weight;
      tallies[threadIdx.x].ties += tallies[threadIdx.x + half].ties;
    }
    __syncthreads();
  }
  if (threadIdx.x == 0) p.control->tallies[blockIdx.x] = tallies[0];
}

/* For one thread: draws *target. Returns the block in whose run of ids the token lies. *place: as find_run()
 * sets it. */
__device__ int find_block(const Pick &p, const Kept &kept, unsigned long long *target, Tally *place) {
  Tally all = {0, kept.border.ties}, found = all;
  find_run(kept, p.control->tallies, kBlocks, ~0ull, &all);
  *target = sampler_multiply_high(sampler_random(p.seed, p.draw), all.weight);
  int block = find_run(kept, p.control->tallies, kBlocks, *target, &found);
  *place = found;
  return block;
}

/* For one thread: the first token, from `id` on, with which the running sum of weights exceeds `target`.
 * place: the weight before `id`, and how many ties from there on stay. */
__device__ int find_token(const Pick &p, const Kept &kept, int id, unsigned long long target, Tally place) {
  for (;; id++) {
    uint32_t key = key_of(p, id);
    if (kept.border.ties && key == kept.border.key && place.ties)
      place.weight += kept.at_border, place.ties--;
    else
      place.weight += weight_above(p, kept, key);
    if (place.weight > target) return id;
  }
}

template <class Picks> __global__ void __launch_bounds__(kThreads) draw_kernel(Picks picks) {
  begin_overlapping();
  const Pick &p = picks.own();
  if (p.way != WAY_CUTS) return;
  __shared__ Tally tallies[kThreads], place;
  __shared__ unsigned long long target;
  __shared__ int block;
  uint32_t greatest = ranked_key(p.control->greatest);
  SampledKind kind = kind_of(greatest, p.control->lowest);
  if (kind != SAMPLED_TOKEN) {
    if (is_last_block(&p.control->finished) && threadIdx.x == 0) finish(p, 0, kind);
    return;
  }
  Kept kept;
  kept.top = (double)sampler_key_score(greatest);
  kept.border = final_border(p, kept.top), kept.least = least_weight(p);
  kept.at_border = kept.border.ties ? weight_of(kept.border.key, kept.top, p.temperature) : 0;
  if (kept.at_border < kept.least) kept.at_border = 0;
  sum_block(p, kept, tallies);
  if (!is_last_block(&p.control->finished)) return;

  if (threadIdx.x == 0) block = find_block(p, kept, &target, &place);
  __syncthreads();
  /* Each thread sums a part of the ids of run `block`; thread 0 then finds the part with the token, and in it
   * the token. */
  int run = (p.vocab_size + kBlocks - 1) / kBlocks, each = (run + kThreads - 1) / kThreads;
  int begin = block * run, end = min(p.vocab_size, begin + run), first = begin + (int)threadIdx.x * each;
  tallies[threadIdx.x] = sum_ids(p, kept, first, min(end, first + each), 1);
  __syncthreads();
  if (threadIdx.x) return;
  Tally found = place;
  int thread = find_run(kept, tallies, kThreads, target, &found);
  finish(p, find_token(p, kept, begin + thread * each, target, found), SAMPLED_TOKEN);
}

__global__ void fill_kernel(const int32_t *tokens, const int *segment_of, const Segment *segments,
                            int32_t *ids, int n_rows) {
  const int row = blockIdx.x * kThreads + threadIdx.x;
  if (row < n_rows && ids[row] < 0) ids[row] = tokens[segments[segment_of[row]].sequence];
}

} // namespace

size_t device_sampler_control_bytes(void) {
  return sizeof(Control);
}

size_t device_sampler_pick_bytes(void) {
  return sizeof(Pick);
}

Status device_sampler_reset(const DeviceSampler *s, int n_sequences, cudaStream_t stream, Error *err) {
  Control *controls = (Control *)s->controls;
  for (int i = 0; i < n_sequences; i++)
    TRY(cuda_status(cudaMemsetAsync(&controls[i].lowest, 0xff, sizeof controls->lowest, stream),
                    "cannot clear memory", err));
  return STATUS_OK;
}

static size_t mask_words(int vocab_size) {
  return ((size_t)vocab_size + 63) / 64;
}

Status device_sampler_set_notes(DeviceSampler *s, int sequence, const uint32_t *notes, cudaStream_t stream,
                                Error *err) {
  const size_t n = (size_t)s->vocab_size;
  return cuda_status(cudaMemcpyAsync(s->notes + (size_t)sequence * n, notes, n * sizeof *notes,
                                     cudaMemcpyHostToDevice, stream),
                     "cannot copy notes", err);
}

Status device_sampler_allow_all(DeviceSampler *s, int first, const uint64_t *masks, int n,
                                cudaStream_t stream, Error *err) {
  const size_t words = mask_words(s->vocab_size);
  return cuda_status(cudaMemcpyAsync(s->allowed + (size_t)first * words, masks,
                                     (size_t)n * words * sizeof *masks, cudaMemcpyHostToDevice, stream),
                     "cannot copy masks", err);
}

Status device_sampler_allow(DeviceSampler *s, const uint64_t *mask, cudaStream_t stream, Error *err) {
  s->masked = mask != NULL;
  return mask ? device_sampler_allow_all(s, 0, mask, 1, stream, err) : STATUS_OK;
}

/* The pick of a sequence from a row of the logits; `allowed` is NULL. */
static Pick make_pick(const DeviceSampler *s, const SamplerSettings *set, uint64_t draw, const float *logits,
                      int sequence, int32_t *token, Sampled *slot) {
  const size_t first = (size_t)sequence * (size_t)s->vocab_size;
  Pick p = {};
  const bool greedy = set->temperature == 0 || set->top_k == 1;
  p.way = greedy ? WAY_GREEDY : set->top_k && set->top_k <= kMostTopK ? WAY_TOP_K : WAY_CUTS;
  p.logits = logits, p.scores = s->scores + first, p.notes = s->notes + first;
  p.control = (Control *)s->controls + sequence;
  p.vocab_size = s->vocab_size, p.top_k = set->top_k;
  p.repetition = (float)set->repetition_penalty, p.presence = (float)set->presence_penalty;
  p.frequency = (float)set->frequency_penalty;
  p.temperature = set->temperature, p.top_p = set->top_p, p.min_p = set->min_p, p.seed = set->seed;
  p.draw = draw, p.token = token, p.slot = slot;
  p.penalties = set->repetition_penalty != 1 || set->presence_penalty != 0 || set->frequency_penalty != 0;
  p.rescored = p.penalties;
  return p;
}

static void mask_pick(Pick &p, const uint64_t *allowed) {
  p.allowed = allowed, p.rescored = true;
}

/* The kernels that at least one pick needs. */
struct Ways {
  bool top_k, others, cuts, by_count, by_weight;
  void add(const Pick &p) {
    const bool cut = p.way == WAY_CUTS;
    top_k |= p.way == WAY_TOP_K, others |= p.way != WAY_TOP_K, cuts |= cut;
    by_count |= cut && p.top_k, by_weight |= cut && p.top_p < 1;
  }
};

/* With many sequences scores_kernel has about this many blocks in all. In steps of up to 1,024 sequences of
 * Qwen3-8B it takes 127 us in the mean; with kBlocks blocks for each sequence it takes 354 us (H200). */
static const int kScoresBlocks = 4096;

template <class Picks>
static Status launch_picks(const Picks &picks, int n, const Ways &ways, cudaStream_t stream, Error *err) {
  const dim3 grid(kBlocks, n);
  if (ways.top_k) TRY(pick_top_k(picks, n, stream, err));
  const dim3 of_scores(std::max(1, std::min(kBlocks, kScoresBlocks / n)), n);
  if (ways.others)
    TRY(launch(scores_kernel<Picks>, of_scores, kThreads, 0, stream, true, "sampling", err, picks));
  for (int level = 0; ways.by_count && level < kLevels; level++)
    TRY(launch(cut_kernel<0, Picks>, grid, kThreads, 0, stream, true, "sampling", err, picks, level));
  for (int level = 0; ways.by_weight && level < kLevels; level++)
    TRY(launch(cut_kernel<1, Picks>, grid, kThreads, 0, stream, true, "sampling", err, picks, level));
  if (!ways.cuts) return STATUS_OK;
  return launch(draw_kernel<Picks>, grid, kThreads, 0, stream, true, "sampling", err, picks);
}

Status device_sampler_pick(DeviceSampler *s, const SamplerSettings *set, uint64_t draw, const float *logits,
                           int32_t *token, Sampled *slot, cudaStream_t stream, Error *err) {
  OnePick one = {make_pick(s, set, draw, logits, 0, token, slot)};
  Ways ways = {};
  if (s->masked) mask_pick(one.pick, s->allowed);
  ways.add(one.pick);
  return launch_picks(one, 1, ways, stream, err);
}

Status device_sampler_pick_rows(DeviceSampler *s, const RowPick *rows, int n, const float *logits,
                                cudaStream_t stream, Error *err) {
  const size_t vocab = (size_t)s->vocab_size, words = mask_words(s->vocab_size);
  Pick *const pinned = (Pick *)s->pinned[s->turn];
  Ways ways = {};
  s->turn = 1 - s->turn;
  for (int i = 0; i < n; i++) {
    const RowPick *r = &rows[i];
    Pick &p = pinned[i];
    p = make_pick(s, r->settings, r->draw, logits + (size_t)r->row * vocab, r->sequence,
                  s->tokens + r->sequence, r->slot);
    if (r->masked) mask_pick(p, s->allowed + (size_t)r->sequence * words);
    ways.add(p);
  }
  TRY(cuda_status(
      cudaMemcpyAsync(s->picks, pinned, (size_t)n * sizeof *pinned, cudaMemcpyHostToDevice, stream),
      "cannot copy picks", err));
  return launch_picks(ManyPicks{(const Pick *)s->picks}, n, ways, stream, err);
}

Status device_sampler_fill(const DeviceSampler *s, const Segments *segments, int32_t *ids, int n_rows,
                           cudaStream_t stream, Error *err) {
  return launch(fill_kernel, (n_rows + kThreads - 1) / kThreads, kThreads, 0, stream, false,
                "a step's picked tokens", err, s->tokens, segments->of_row, segments->device, ids, n_rows);
}
