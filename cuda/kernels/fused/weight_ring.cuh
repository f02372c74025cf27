/* weight_ring.cuh - the loading warps. They copy the weights, keys and values of the whole step, in the order
 * of use, through a ring of stages in shared memory.
 *
 * Three warps go through all stages side by side, because a bulk copy takes a warp some hundred cycles to
 * issue. The first loads tiles of weights, keys, latents with key_halves and value_halves, recurrent states,
 * rows of the folded router, and lm_head. The second loads scales of weights, values, and the tails of
 * lm_head in 8 bits. The third loads zero points or factors, and the scales of keys and values in 8 bits.
 * (With several tokens each loads every third row of lm_head.) t is the turn of the stage's slot
 * (ptx/cluster.cuh):
 *
 *   3 loading warps   wait empty, parity (t + 1) % 2 -> 1 arrival and its bytes each -> full: 3
 *                          ^                                                              |
 *   a warpgroup            +--- empty: 4, a warp each <- registers <- wait full, parity t % 2
 *
 * Where two warps attend to a stage of keys, two lanes of each arrive. The first loading warp copies stage i
 * only when stage i - in_flight is full, because messages between blocks queue after loads in flight. The
 * warps wait for the kernels before this one when they come to keys or states. The ring fills while the other
 * warps wait. In a step of one token a fourth warp then prefetches the next stages into L2 (l2_prefetch.cuh),
 * or finds the experts whose weights come next (one_experts.cuh). */
#pragma once

#include "cuda/kernels/cache/q8.cuh"
#include "cuda/kernels/fused/stages.cuh"

namespace step {

enum { TILES, SCALES, ZEROS };

template <class B, int kKind> struct Copier {
  B &b;
  const uint32_t base;   /* shared_address of Vars, shuffled so that it is not computed again */
  RingCursor to, oldest; /* slots of the next stage, and of the oldest stage that may be in flight */
  unsigned number;       /* stages begun so far */
  const uint64_t once;   /* L2 policy: evict first */

  /* A wait for parity 1 of a new barrier ends at once: an unused slot counts as full and as empty. */
  __device__ __forceinline__ Copier(B &block, int in_flight)
      : b(block), base(__shfl_sync(~0u, shared_address(block.smem), 0)), to{0, 0}, number(0),
        once(stream_policy()) {
    oldest.slot = b.plan.n_slots - in_flight, oldest.parity = 1;
  }

  __device__ __forceinline__ uint32_t full(int slot) const { return base + slot * 8; }
  __device__ __forceinline__ uint32_t empty(int slot) const { return base + (STEP_MAX_SLOTS + slot) * 8; }

  /* Issues this warp's part of the next stage: lanes with `mine` call copy(address, barrier); address: that
   * of the stage's byte `to_byte`. `all`: bytes of all lanes. Keep this path empty: anything between the last
   * wait and the copy delays every later stage. */
  template <class Copy>
  __device__ __forceinline__ void stage_by(uint32_t to_byte, bool mine, int all, Copy copy) {
    const int n_slots = b.plan.n_slots;
    const uint32_t barrier = full(to.slot),
                   address = base + b.plan.ring_at + to.slot * b.plan.slot_bytes + to_byte;
    b.wait_at(empty(to.slot), to.parity ^ 1, STEP_AT_SLOT);
    if (b.lane() == 0) barrier_expect(barrier, all);
    if (kKind == TILES) b.wait_at(full(oldest.slot), oldest.parity, STEP_AT_LIMIT);
    if (mine) copy(address, barrier);
    if (kKind == TILES) {
      oldest.move(1, n_slots);
      number++;
      if (b.lane() == 0) store_shared_4(base + offsetof(Vars, loaded), number);
    }
    to.move(1, n_slots);
  }
  /* Lanes with `mine` copy `bytes` each, a multiple of 16. */
  __device__ __forceinline__ void stage(uint32_t to_byte, const void *from, int bytes, bool mine, int all) {
    stage_by(to_byte, mine, all,
             [&](uint32_t address, uint32_t barrier) { copy_bulk(address, from, bytes, barrier, once); });
  }

  /* A lane's part of a stage of weights: `bytes` that begin `odd` bytes before the entry's place (zeros of
   * an odd group begin 8 bytes after a multiple of 16), and lie at `to` in the stage. `all`: bytes of all
   * lanes. */
  struct Piece {
    int bytes, odd, to, all;
    bool mine;
  };
  template <int kParts>
  static constexpr int kLogGroup = kKind == TILES ? kLogTiles<kParts>
                                                  : (kKind == SCALES ? 5 : 3) + kLogParts<kParts>;

  /* The piece that a table entry's first word describes (stages.cuh); first_to: where the lane's tile row
   * begins in the stage; log_unit: log2 of the bytes of one of the groups, or half groups, that the entry
   * counts. With experts a stage can have parts of two experts. The second part follows the first, and its
   * zeros begin at a multiple of 16. */
  template <int kParts>
  __device__ __forceinline__ Piece piece_of(uint32_t entry, int first_to, int log_unit) const {
    constexpr bool kPairs = kKind == ZEROS && kParts == 1; /* zeros may begin at an odd multiple of 8 */
    const int groups = entry & 31;
    Piece p = {groups << log_unit, 0, first_to, 0, b.lane() < kStageCopies<B> && groups > 0};
    if (kPairs)
      p.odd = (entry >> 5 & 1) * 8, p.bytes = (p.odd + p.bytes + 15) & ~15;
    else if (kKind == ZEROS && kHasFactors<kParts>)
      p.bytes = STEP_FACTOR_BYTES;
    if ((kKind == SCALES && kInRows<kParts>) || (kKind == ZEROS && kIsHalf<kParts>))
      p.bytes = 0, p.mine = false;
    if constexpr (B::kExperts) {
      const uint32_t first = __shfl_sync(~0u, entry, b.lane() % kStageRows);
      int before = (int)((first & 31) + (kPairs ? first >> 5 & 1 : 0));
      if constexpr (B::kOddBlocks && kKind == ZEROS)
        before = (before + 1) & ~1; /* the second expert's zeros begin at a multiple of 16 */
      if (b.lane() >= kStageRows)
        p.to += B::kVaried && kKind == ZEROS ? (int)STEP_FACTOR_BYTES : before << log_unit;
      p.all = (int)__reduce_add_sync(~0u, p.mine ? (unsigned)p.bytes : 0u);
    } else {
      p.all = p.bytes * __popc(__ballot_sync(~0u, p.mine));
    }
    return p;
  }

  /* Loads a share's n stages from the table entry `at` on (stage_entry()). from0: the start of the matrix's
   * tiles (int8, fp16: tensor maps), scales or zeros, whichever this warp loads; NULL: scales of 1. waits:
   * true to wait, after all preparations, until experts are chosen. Pieces do not depend on the choice,
   * because an expert's matrix has an even number of groups. So a stage's piece is made before the warp waits
   * for a slot, or for the choice (LOG.md, "Shares and stages"). halves: entries count half groups. */
  template <int kParts = B::kParts>
  __device__ __forceinline__ void weights(uint32_t at, int n, const Share &share, const unsigned char *from0,
                                          bool waits, bool halves = false) {
    constexpr int kCopies = kStageCopies<B>;
    const int log_unit = kLogGroup<kParts> - halves;
    constexpr int kBefore = /* bytes of a group that come before this kind in a stage */
        kKind == TILES    ? 0
        : kKind == SCALES ? 1 << kLogTiles<kParts>
                          : (1 << kLogTiles<kParts>)+kScaleBytes<kParts>;
    const int n_groups = share.groups, lane = b.lane(),
              stride = kKind == ZEROS ? zeros_stride<kParts>(n_groups + B::kOddBlocks, B::kFactors)
                                      : n_groups << kLogGroup<kParts>,
              piece_at = (1 << share.log_rows) * n_groups * kBefore + lane % kStageRows * stride;
    at += min(lane, kCopies - 1) * kCopyBytes<B>;
    Entry<B> entry = load_entry<B>(at);
    Piece piece = piece_of<kParts>(first_word(entry), piece_at, log_unit);
    if (waits) b.wait(b.barriers().routed, b.layer() & 1, STEP_AT_ROUTES);
    __syncwarp(); /* a lane that looks at the slot late could find it emptied once more, and wait for ever */
    uint32_t index = group_of_entry(b, entry) >> 5;
    const bool ones = kKind == SCALES && kParts == STEP_FP8_PARTS && !from0;
    if (ones) from0 = (const unsigned char *)(b.args.bounds + kOnesAt);
    const uint32_t inverse = kInRows<kParts> ? ~0u / (uint32_t)share.all_groups + 1 : 0;
#pragma unroll 1
    for (; n > 0; n--) {
      at += kCopies * kCopyBytes<B>;
      entry = load_entry<B>(at); /* after the last stage: another share's entry, or past the table; unused */
      const uint32_t after = group_of_entry(b, entry) >> 5;
      if constexpr (kKind == TILES && kInRows<kParts>) {
        const int row = (int)__umulhi(index, inverse), tile = 2 * ((int)index - row * share.all_groups);
        const unsigned char *map = from0 + ((piece.bytes >> log_unit) - 1) * kMapBytes;
        stage_by(piece.to, piece.mine, piece.all, [&](uint32_t address, uint32_t barrier) {
          copy_box(address, map, barrier, 0, 16 * row, tile, once);
        });
      } else {
        const unsigned char *from = kKind == ZEROS && kHasFactors<kParts>
                                        ? from0 + (int)index / share.all_groups * STEP_FACTOR_BYTES
                                        : from0 + ((size_t)(ones ? 0 : index) << log_unit) - piece.odd;
        stage(piece.to, from, piece.bytes, piece.mine, piece.all);
      }
      index = after;
      piece = piece_of<kParts>(first_word(entry), piece_at, log_unit);
    }
  }

  /* Calls load(row, n) for this block's stages of keys: row is the cache row where the stage begins, n the
   * number of its positions. With pages, the rows of the next stages of every sequence are looked up
   * together, a lane each. */
  template <class Load> __device__ __forceinline__ void for_each_stage_of_keys(Load load) {
    static_assert(KV_PAGE_TOKENS % B::kKeys == 0, "a stage lies in one page");
    const StepCall &c = b.args.call;
    const bool paged = c.pages != NULL;
    const size_t first = b.first_cache_row();
    const int n_parts = B::kSeveral ? c.n_parts : 1, at_once = by_parts(b, 32);
    unsigned rows = 0;
    KeyWalk<B> walk(b), known(b); /* known.round: the first round whose rows are not looked up yet */
    known.part = b.lane() - by_parts(b, b.lane()) * n_parts;
    known.round = B::kVaried ? walk.round + 1 : 0;
#pragma unroll 1
    for (int n = all_key_stages(b); n > 0; n--) {
      walk.next(b);
      if (paged && walk.round == known.round) {
        const StepPart &part = c.parts[known.part];
        known.round += by_parts(b, b.lane());
        rows = (unsigned)b.row_in_pages(part.first_page, max(min(known.position(b), part.pos - 1), 0));
        known.round = walk.round + at_once;
      }
      const int key = walk.position(b), lane = (walk.round + at_once - known.round) * n_parts + walk.part;
      load(first + (paged ? __shfl_sync(~0u, rows, lane) : key), min(B::kKeys, c.parts[walk.part].pos - key));
    }
  }

  /* Loads this block's keys and values. */
  __device__ __forceinline__ void keys() {
    constexpr int kRow = B::kDim * sizeof(typename B::CacheNumber);
    const unsigned char *from = (const unsigned char *)(kKind == TILES ? b.args.call.k : b.args.call.v);
    for_each_stage_of_keys([&](size_t row, int n) {
      constexpr bool kMine = B::kLatent ? kKind == TILES : kKind < ZEROS; /* latents are keys and values */
      stage(kKind * B::kKeys * kRow, from + row * kRow, n * kRow, kMine && b.lane() == 0,
            kMine ? n * kRow : 0);
    });
  }

  /* Latent attention: loads rows of key_halves or value_halves. Each of the cluster's heads has n_rows rows,
   * and this block loads n_rows / STEP_BLOCKS. A stage has `rows` rows of `bytes` bytes. */
  __device__ __forceinline__ void halves(const unsigned char *from, int n_rows, int rows, int bytes) {
    const int own = n_rows / STEP_BLOCKS, n_heads = b.plan.heads_per_kv;
    from += ((size_t)b.cluster() * n_heads * n_rows + b.rank() * own) * bytes;
#pragma unroll 1
    for (int head = 0; head < n_heads; head++) {
#pragma unroll 1
      for (int row = 0; row < own; row += rows)
        stage(0, from + (size_t)row * bytes, rows * bytes, kKind == TILES && b.lane() == 0,
              kKind == TILES ? rows * bytes : 0);
      from += (size_t)n_rows * bytes;
    }
  }

  /* Loads this block's rows of the folded router, as folded_stages() stages; a row's columns are the
   * cluster's inputs of o. A stage without rows gets the first row. Without bytes it would be full before
   * earlier stages are, and the parity of later stages would be uncertain (step.cu, set_in_flight()). */
  __device__ __forceinline__ void folded(const float *from, const Share &o) {
    const int bytes = o.n_groups * STEP_GROUP * (int)sizeof(float), lane = b.lane();
#pragma unroll 1
    for (int i = 0; i < folded_stages(b); i++) {
      const int own = folded_row(b, i, lane), row = max(own, 0);
      const bool mine = kKind == TILES && (own >= 0 || lane == 0);
      stage(lane * bytes, from + (size_t)(row * o.all_groups + o.group) * STEP_GROUP, bytes, mine,
            bytes * __popc(__ballot_sync(~0u, mine)));
    }
  }

  /* Loads this block's rows of the states of the cluster's value heads. */
  __device__ __forceinline__ void states() {
    const StepMix mix = b.mix();
    const float *from = b.delta_state(mix.first);
#pragma unroll 1
    for (int i = 0; i < mix.n; i++) {
      constexpr int kBytes = STEP_DELTA_ROWS * STEP_DELTA_ROW_BYTES;
      stage(0, from + (size_t)i * STEP_PACK * STEP_PACK, kBytes, kKind == TILES && b.lane() == 0,
            kKind == TILES ? kBytes : 0);
    }
  }

  /* Loads the scales of this block's keys and values: lane 0 those of keys, lane 1 those of values. The
   * number of positions is rounded up to eight, because eight values have 16 bytes of scales. So the last
   * scales may be of positions that are not written yet. */
  __device__ __forceinline__ void scales_of_keys() {
    constexpr int kKeys = B::kKeys, kPerKey = key_scales(B::kDim);
    const StepCall &c = b.args.call;
    const bool is_key = b.lane() == 0;
    const int row = is_key ? kPerKey * KV_SCALE_BYTES : KV_SCALE_BYTES,
              to = 2 * kKeys * B::kDim + (is_key ? 0 : kKeys * kPerKey * KV_SCALE_BYTES);
    const unsigned char *from = (const unsigned char *)(is_key ? c.k_scales : c.v_scales);
    for_each_stage_of_keys([&](size_t of_stage, int n_keys) {
      const int n = (n_keys + 7) & ~7;
      stage(to, from + of_stage * row, n * row, b.lane() < 2, n * (kPerKey + 1) * KV_SCALE_BYTES);
    });
  }
};

/* Loads what a layer reads before o, beside weights: keys and values, in 8 bits also their scales. In a
 * hybrid's layers of the delta rule: the block's rows of each value head's recurrent state, a stage each. */
template <class B, int kKind> __device__ __forceinline__ void load_history(Copier<B, kKind> &loader) {
  B &b = loader.b;
  if constexpr (B::kQ8 && kKind == ZEROS) {
    loader.scales_of_keys();
  } else if constexpr (B::kHybrid) {
    if (b.is_delta())
      loader.states();
    else
      loader.keys();
  } else {
    loader.keys();
  }
}

/* All work of a loading warp: the layers, then lm_head. */
template <int kKind, class B> __device__ __forceinline__ void load_all(B &b) {
  static_assert(sizeof(Matrix) == 8 * STEP_LOADERS && sizeof(Layer) % 8 == 0,
                "lanes read a layer as pointers");
  constexpr int kFolded = offsetof(Layer, folded_router) / 8,
                kPointers = B::kExperts ? kFolded + 1 : 3 * MATRICES, kFirstLatent = 16;
  const int n_layers = b.plan.shape.n_layers;
  const bool is_long = cached_positions(b) >= STEP_LONG;
  Copier<B, kKind> loader(b, min(b.args.in_flight + is_long, b.args.most_in_flight));
  auto pointers_of = [&](int layer) {
    if constexpr (B::kLatent) /* lanes from kFirstLatent on: LatentLayer */
      if (b.lane() >= kFirstLatent)
        return __ldg((const unsigned long long *)(b.args.latent.layers + layer) +
                     min(b.lane() - kFirstLatent, (int)(sizeof(LatentLayer) / 8) - 1));
    return __ldg((const unsigned long long *)(b.args.layers + layer) + min(b.lane(), kPointers - 1));
  };
  unsigned long long now = pointers_of(0);
  bool waited = false;
  /* Latent attention: the last choice is the shared expert. A cluster whose FFN blocks are all of this expert
   * need not wait for the router in any layer. */
  bool only_shared = false;
  if constexpr (B::kLatent) only_shared = b.share_at(DOWN).group >= b.n_routed() * b.plan.expert_blocks;
#pragma unroll 1
  for (; b.layer() < n_layers; b.go_to(MATRICES)) {
    const unsigned long long after = pointers_of(min(b.layer() + 1, n_layers - 1));
    uint32_t at = stage_entry(b, 0);
#pragma unroll 1
    for (int matrix = QKV; matrix < MATRICES; matrix++) {
      const int n = b.share(matrix).stages;
      if (matrix >= GATE_UP || b.has_kv_head()) {
        if (matrix == O) {
          if constexpr (B::kLatent) {
            const auto of_latent = [&](int i) {
              return (const unsigned char *)__shfl_sync(~0u, now, kFirstLatent + i);
            };
            const StepShape &s = b.plan.shape;
            loader.weights(stage_entry(b, b.latent_vars().first_stage[Q_B]), b.share(Q_B).stages,
                           b.share(Q_B), of_latent(kKind), false);
            loader.halves(of_latent(3), STEP_LATENT, STEP_LATENT_KEYS, s.nope_dim * 2);
            if (!waited) wait_for_previous();
            load_history(loader);
            loader.halves(of_latent(4), s.value_dim, STEP_LATENT_VALUES, STEP_LATENT * 2);
          } else {
            if (!waited) wait_for_previous(); /* the step before wrote the newest keys, values, states */
            load_history(loader);
          }
          waited = true;
          if constexpr (B::kExperts && !B::kLatent)
            loader.folded((const float *)__shfl_sync(~0u, now, kFolded), b.share(O));
        }
        if constexpr (B::kHybrid)
          at = stage_entry(
              b, b.mix_vars().first_stage[matrix <= O && b.is_delta() ? MATRICES + matrix : matrix]);
        if constexpr (B::kLatent) at = stage_entry(b, b.latent_vars().first_stage[b.share_index(matrix)]);
        const unsigned char *from = (const unsigned char *)__shfl_sync(~0u, now, 3 * matrix + kKind);
        if constexpr (B::kVaried) {
          if (matrix <= O)
            loader.template weights<B::kAttnParts>(at, n, b.share(matrix), from, false);
          else
            loader.weights(at, n, b.share(matrix), from, matrix == GATE_UP, matrix == DOWN);
        } else {
          loader.weights(at, n, b.share(matrix), from,
                         B::kExperts && matrix == GATE_UP && !(B::kLatent && only_shared));
          if constexpr (B::kLatent)
            if (matrix == O && !b.is_dense())
              loader.folded((const float *)__shfl_sync(~0u, now, kFolded), b.share(O));
        }
      }
      at += n * kStageCopies<B> * kCopyBytes<B>;
    }
    now = after;
  }
  load_lm_head(loader);
}

} // namespace step
