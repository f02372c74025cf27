/* one_block.cuh - per-thread context of a fused step of one token (one_kernel.cuh); block.cuh has what it
 * shares with a step of several tokens. */
#pragma once

#include "cuda/kernels/fused/stages.cuh"

namespace step::one {

constexpr int kColumns = 32; /* columns of hidden that a warp normalises at once */

template <bool kDebug, class TheForm> struct Block : Thread<kDebug, TheForm> {
  static constexpr int kTokens = 1;
  using Base = Thread<kDebug, TheForm>;
  using Base::plan, Base::smem, Base::share, Base::layer, Base::has_kv_head, Base::kJoined;

  /* The ring is before Vars. */
  static __device__ __forceinline__ unsigned char *base(unsigned char *shared, int ring_at) {
    return shared - ring_at;
  }

  /* The token of the first row of this GPU's lm_head. */
  __device__ __forceinline__ int first_token() const {
    return Base::kIsShared ? this->args.peers.first_token : 0;
  }

  __device__ __forceinline__ float *x() const { return (float *)(smem + plan.off.x); }
  __device__ __forceinline__ float *sums(const Share &share) const { return (float *)(smem + share.sums_at); }
  __device__ __forceinline__ float *squares() const { return (float *)(smem + plan.off.small); }
  __device__ __forceinline__ float *residual() const { return (float *)(smem + plan.off.residual); }
  __device__ __forceinline__ float2 *rope() const { return (float2 *)(squares() + plan.shape.hidden / 32); }
  __device__ __forceinline__ int rope_token() const { return 0; }
  __device__ __forceinline__ unsigned char *planes() const { return smem + plan.off.planes; }
  __device__ __forceinline__ float2 *scales() const { return (float2 *)(smem + plan.off.scales); }
  /* x of qkv, gate and up. */
  __device__ __forceinline__ unsigned char *x_planes() const { return smem + plan.off.x_planes; }
  __device__ __forceinline__ float2 *x_scales() const { return (float2 *)(smem + plan.off.x_scales); }
  /* step_owns_groups(), and constant false for forms that never own groups. */
  __device__ __forceinline__ bool owns_groups() const {
    return Base::kExperts && !Base::kHybrid && step_owns_groups(&plan.shape);
  }
  /* Attention's output has planes of its own: the states that it is made from lie at planes(). In latent
   * attention these planes follow the outputs of q_a, kv_a and q_b in the exchange. */
  __device__ __forceinline__ unsigned char *value_planes() const {
    if constexpr (Base::kLatent)
      return (unsigned char *)(this->exchange() + step_latent_floats(&plan.shape, plan.heads_per_kv));
    return (unsigned char *)this->exchange();
  }
  __device__ __forceinline__ float *queries() const {
    return this->exchange() + step_latent_inputs(&plan.shape);
  }
  __device__ __forceinline__ float2 *value_scales() const {
    return (float2 *)(value_planes() + plan.o_packs * 2 * STEP_GROUP);
  }
  /* In a hybrid. gates(): factors of attention's output; delta_outputs(): outputs of value heads;
   * delta_squares(): their sums of squares. */
  __device__ __forceinline__ float *gates() const { return (float *)(smem + plan.off.gates); }
  __device__ __forceinline__ float *delta_outputs() const { return (float *)(smem + plan.off.delta); }
  __device__ __forceinline__ float *delta_squares() const {
    return delta_outputs() + STEP_DELTA_HEADS * STEP_PACK;
  }
  /* A mixture of experts: the output of attention or of the delta rule, for the router. */
  __device__ __forceinline__ float *outputs() const {
    if constexpr (Base::kLatent) return this->exchange();
    return (float *)(value_planes() + plan.o_packs * step_value_bytes(&plan.shape));
  }
  /* ids(), chosen(): the chosen experts and their logits (varied experts, after weigh(): their weights).
   * block_weights(): the weight of each FFN block's choice. keys(): keys of the router's logits without the
   * factor 1 / rms (key_of()); in a hybrid the logit of the shared expert's gate follows. router_columns():
   * this block's columns of the residual stream. */
  __device__ __forceinline__ int *ids() const { return (int *)(smem + plan.off.experts); }
  __device__ __forceinline__ float *chosen() const { return (float *)(ids() + plan.shape.n_chosen); }
  __device__ __forceinline__ float *block_weights() const { return chosen() + plan.shape.n_chosen; }
  __device__ __forceinline__ uint32_t *keys() const {
    const int most = Base::kLatent ? max(plan.most_ffn_blocks, plan.most_dense_blocks) : plan.most_ffn_blocks;
    return (uint32_t *)ids() + (2 * plan.shape.n_chosen + most + 3) / 4 * 4;
  }
  __device__ __forceinline__ float *router_columns() const {
    return (float *)keys() + (step_router_rows(&plan.shape) + 3) / 4 * 4;
  }
  /* candidates(): the keys of each block's best experts, the best first: [8][n_candidates()]. */
  __device__ __forceinline__ int n_candidates() const {
    if constexpr (Base::kLatent) return (n_routed() + 3) / 4 * 4;
    return step_candidates(&plan.shape);
  }
  __device__ __forceinline__ uint32_t *candidates() const {
    return (uint32_t *)(router_columns() + plan.slice);
  }
  /* The number of choices that the router makes. With kJoined or kLatent one more follows: the shared expert,
   * whose id stays n_experts. */
  __device__ __forceinline__ int n_routed() const { return plan.shape.n_chosen - (kJoined || Base::kLatent); }
  __device__ __forceinline__ float *lm_head_sums() const { return (float *)(rope() + STEP_MAX_HEAD_DIM / 2); }

  /* How often this block receives an x before that of `matrix` in the current layer: the phase of barrier x.
   * Without a KV head the block receives no x for qkv. */
  __device__ __forceinline__ int x_before(int matrix) const {
    if constexpr (Base::kHybrid)
      return layer() + this->layers_with_heads() + (matrix == GATE_UP && has_kv_head());
    else
      return has_kv_head() ? 2 * layer() + (matrix == GATE_UP) : layer();
  }

  /* Bytes of a phase of barrier x: x, as floats or as planes, and its sums of squares. */
  __device__ __forceinline__ int x_bytes(bool of_lm_head) const {
    const int hidden = plan.shape.hidden,
              planes = 2 * hidden + hidden / STEP_GROUP * kXScales<Base::kParts> * 8;
    return (of_lm_head || !owns_groups() ? hidden * 4 : planes) + hidden / kColumns * 4;
  }
  /* x_bytes() of the phase after that of `matrix` in this layer. */
  __device__ __forceinline__ int x_bytes_after(int matrix) const {
    return x_bytes(matrix == GATE_UP && layer() == plan.shape.n_layers - 1);
  }
  /* Bytes of a phase. projection_bytes(): q, k and v (latent attention: outputs of q_a and kv_a);
   * states_bytes(): softmax states. */
  __device__ __forceinline__ int projection_bytes() const {
    if constexpr (Base::kLatent) return step_latent_inputs(&plan.shape) * 4;
    return plan.qkv_packs * STEP_PACK * 4;
  }
  __device__ __forceinline__ int states_bytes() const {
    return STEP_BLOCKS * plan.heads_per_kv * (Base::kStateDim * 2 + 8);
  }
  /* Latent attention: bytes of a phase with outputs of q_b, of key_halves, or of value_halves. */
  __device__ __forceinline__ int queries_bytes() const {
    return plan.heads_per_kv * step_latent_query(&plan.shape) * 4;
  }
  __device__ __forceinline__ int latent_keys_bytes() const { return plan.heads_per_kv * STEP_LATENT * 2; }
  __device__ __forceinline__ int latent_values_bytes() const { return plan.o_packs * STEP_PACK * 4; }
  /* A hybrid: bytes of projections and of states in the first layer from `layer` on where the cluster has
   * heads. Layers of the delta rule have projections with gates, and outputs of heads with their sums of
   * squares. If no layer is left, the bytes never come, so the phase does not end. */
  __device__ __forceinline__ int projection_bytes_from(int layer) const {
    if ((this->mix_vars().mine & ~step_layers_before(layer)) == 0) return 4;
    const bool delta = is_delta_from(layer);
    const StepMix mix = this->mix_vars().mixes[delta];
    return step_mix_packs(mix, delta) * STEP_PACK * 4 + (delta ? 2 * mix.n * 4 : 0);
  }
  __device__ __forceinline__ int states_bytes_from(int layer) const {
    if (!is_delta_from(layer)) return states_bytes();
    return this->mix_vars().mixes[1].n * (STEP_PACK + kDeltaSquares) * 4;
  }
  __device__ __forceinline__ bool is_delta_from(int layer) const {
    const uint64_t mine = this->mix_vars().mine & ~step_layers_before(layer);
    return (mine & (0 - mine) & plan.shape.delta_layers) != 0; /* tests the lowest bit of mine */
  }
  /* Sums of squares of a value head's outputs: in each block one from each warp of the head's warpgroup. */
  static constexpr int kDeltaSquares = STEP_BLOCKS * STEP_WARPGROUP_WARPS;
  __device__ __forceinline__ int logits_bytes() const { return step_router_rows(&plan.shape) * 4; }
  __device__ __forceinline__ int gated_bytes() const { return n_blocks() * Base::kFeatures * 4; }
  /* gated_bytes() of the layer after this one. */
  __device__ __forceinline__ int gated_bytes_after() const {
    if constexpr (Base::kLatent)
      if (layer() + 1 == plan.shape.n_dense) return this->share_at(DOWN).n_groups * Base::kFeatures * 4;
    return gated_bytes();
  }
  /* The number of the cluster's FFN blocks. With varied experts a thread block has one tile row of gate
   * and up for each FFN block. */
  __device__ __forceinline__ int n_blocks() const {
    return Base::kVaried ? share(GATE_UP).n_rows : share(DOWN).n_groups;
  }
};

/* Makes share_at(index). One thread calls it for each index, before a barrier of the block. */
template <class B> __device__ __forceinline__ void make_share(const B &b, int index) {
  const StepPlan &p = b.plan;
  const bool dense = B::kLatent && index >= MATRICES && index != Q_B;
  const int matrix = B::kHybrid && index >= MATRICES ? index - MATRICES : dense ? index / 2 : index;
  constexpr int kTiles = B::kDim / 16; /* tile rows of a head */
  const int packs = p.o_packs, cluster = b.cluster(), rank = b.rank();
  const int ffn_blocks = dense ? p.shape.dense_width / STEP_GROUP : p.shape.intermediate / B::kFeatures,
            first = step_first_of(&p.shape, ffn_blocks, cluster),
            n_ffn_blocks = step_first_of(&p.shape, ffn_blocks, cluster + 1) - first;
  const bool full = matrix == QKV || matrix == GATE_UP;
  const KSplit cut = B::kVaried && matrix == QKV   ? b.qkv_split()
                     : full                        ? p.full
                     : matrix == O                 ? p.o
                     : B::kLatent && matrix == Q_B ? p.q_b
                     : dense                       ? p.dense_down[p.most_dense_blocks - n_ffn_blocks]
                                                   : p.down[p.most_ffn_blocks - n_ffn_blocks];
  Share s = {};
  s.all_groups = s.n_groups = (b.width() + (B::kVaried ? STEP_GROUP - 1 : 0)) / STEP_GROUP;
  if (B::kHybrid && matrix <= O) {
    const bool delta = index >= MATRICES;
    const StepMix mix = step_mix(&p.shape, delta, cluster);
    if (matrix == QKV) { /* a tile row of each pack (tile_of()) */
      s.n_rows = s.split = step_mix_packs(mix, delta);
    } else {
      set_outputs(s, matrix, p, cluster, rank * p.slice / 16, mix.n == 0 ? 0 : p.slice / 16);
      s.all_groups = delta ? p.shape.n_value_heads : 2 * p.shape.n_heads;
      s.n_groups = step_mix_groups(mix, delta), s.group = delta ? mix.first : 2 * mix.first;
    }
  } else if (B::kLatent && (matrix == QKV || matrix == Q_B)) { /* every eighth tile row of the cluster's */
    const int all =
        (matrix == QKV ? step_latent_inputs(&p.shape) : p.heads_per_kv * step_latent_query(&p.shape)) / 16;
    s.n_rows = s.split = (all - rank + STEP_BLOCKS - 1) / STEP_BLOCKS;
    s.tile[0] = (matrix == QKV ? 0 : cluster * all) + rank, s.stride[0] = STEP_BLOCKS;
    if (matrix == Q_B) s.all_groups = s.n_groups = p.shape.q_rank / STEP_GROUP;
  } else if (matrix == QKV) { /* one tile row of each pack: the queries, then key and value */
    const int kv_head = p.shape.n_heads + b.kv_head() + rank / kTiles * p.shape.n_kv_heads;
    s.n_rows = p.qkv_packs, s.split = packs;
    s.tile[0] = 8 * cluster * packs + rank, s.stride[0] = 8;
    s.tile[1] = kTiles * kv_head + rank % kTiles, s.stride[1] = kTiles * p.shape.n_kv_heads;
  } else if (B::kVaried && matrix == GATE_UP) { /* one of the eight tile rows of each FFN block */
    s.n_rows = s.split = n_ffn_blocks;
    s.tile[0] = 8 * first + rank, s.stride[0] = 8;
  } else if (matrix == GATE_UP) { /* two of the 16 tile rows of each FFN block */
    s.n_rows = s.split = 2 * n_ffn_blocks;
    s.tile[0] = 16 * first + 2 * rank, s.stride[0] = 16, s.log_run = 1;
  } else {
    set_outputs(s, matrix, p, cluster, rank * p.slice / 16, p.slice / 16);
    if (dense) s.all_groups = ffn_blocks, s.group = first, s.n_groups = n_ffn_blocks;
    if constexpr (B::kVaried) {
      s.n_rows = s.split = max(0, min(p.slice, b.width() - rank * p.slice)) / 16;
      if (matrix == DOWN) { /* all_groups and group count FFN blocks, each of half a group */
        s.all_groups = (p.expert_blocks + 1) & ~1, s.group = first;
        s.n_groups = step_down_groups(&p.shape, n_ffn_blocks);
      }
    }
  }
  const unsigned char *x = full ? b.x_planes() : matrix == O ? b.value_planes() : b.planes();
  const float2 *x_scales = full ? b.x_scales() : matrix == O ? b.value_scales() : b.scales();
  s.x_at = (int)(x - b.smem), s.x_scales_at = (int)((const unsigned char *)x_scales - b.smem);
  s.sums_stride = step_sums_stride(s.n_rows);
  s.sums_at = full ? p.off.long_sums : p.off.sums;
  s.splits = cut.splits, s.groups = cut.groups, s.span = cut.span;
  s.log_k_warps = log_2(cut.k_warps), s.log_rows = log_2(cut.rows);
  s.splits_reciprocal = (65535 + cut.splits) / cut.splits;
  s.next_sums = STEP_WARPGROUPS % cut.splits ? 0 : STEP_WARPGROUPS / cut.splits * cut.rows * 16;
  s.stages = ((s.n_rows + cut.rows - 1) >> s.log_rows) * cut.splits;
  s.run = run_of(s.stages, p.n_slots);
  b.share_at(index) = s;
}

/* Sets which heads the cluster has in both kinds of a hybrid's layers. For one thread, before a barrier of
 * the block. */
template <class B> __device__ __forceinline__ void begin_mixers(const B &b) {
  const StepShape &s = b.plan.shape;
  MixVars &v = b.mix_vars();
  v.mine = 0;
  for (int delta = 0; delta < 2; delta++) {
    const bool has_layers = !delta || s.delta_layers != 0;
    v.mixes[delta] = step_mix(&s, delta && has_layers, b.cluster());
    v.contributors[delta] = step_mix_clusters(&s, delta && has_layers);
    if (has_layers && v.mixes[delta].n > 0)
      v.mine |= (delta ? s.delta_layers : ~s.delta_layers) & step_layers_before(s.n_layers);
  }
  v.states_run = run_of(v.mixes[1].n, b.plan.n_slots);
}

__device__ __forceinline__ int first_group(const Share &share, int split) {
  return split * share.n_groups * share.splits_reciprocal >> 16;
}

template <class B> __device__ __forceinline__ StageTiles stage_of(const B &, const Share &share, int i) {
  const int split = i % share.splits, row = i / share.splits << share.log_rows;
  const int group = first_group(share, split);
  return {row, min(1 << share.log_rows, share.n_rows - row), group, first_group(share, split + 1) - group};
}

} // namespace step::one
