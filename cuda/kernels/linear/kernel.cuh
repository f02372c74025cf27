/* kernel.cuh - the interface between linear.cu and a kernel: LinearArgs, and a LinearKernel of two functions.
 *
 * linear.cu maps dispatch.h's LinearLaunch to LinearKernels. Included by files of linear/, experts/ and
 * fused/, and by tests. */
#pragma once

#include "cuda/kernels/linear/cublas.h"
#include "cuda/kernels/linear/epilogue.cuh"
#include "cuda/kernels/linear/layout.cuh"
#include "cuda/kernels/linear/linear.h"
#include "cuda/kernels/ptx/lanes.cuh"
#include "cuda/kernels/ptx/launch.cuh"

struct LinearArgs {
  const DeviceLinear *w;
  const __half *x;
  int x_stride, n_tokens;
  Epilogue out;
  DeviceLimits device;
  unsigned char *workspace; /* as many bytes as LinearKernel.workspace says */
  unsigned *counters;       /* [kCounters], zero before and after every launch */
  const Cublas *cublas;     /* open if LinearKernel.cublas */
  cudaStream_t stream;
  bool dependent;
  int variant;    /* as in LinearCall */
  float *mailbox; /* of wgmma_parts.cuh: [n_sms][kMailboxFloats], zero between launches; NULL if not sm_90a */
  const LinearExperts *experts; /* of a matrix of experts, else NULL */
  LinearNorm norm;              /* rows NULL: x is given */
  const void *planes;           /* see LinearCall */
  LinearNext next;
};

constexpr int kCounters = 1 << 16, kMailboxFloats = 24576;

/* Bytes of one number of y. */
inline size_t output_bytes(LinearOutput output) {
  return output == LINEAR_TO_F32 || output == LINEAR_ADD_F32 ? sizeof(float) : sizeof(__half);
}

/* STATUS_USAGE if the call's variant is beyond the kernel's n tile shapes. */
inline Status check_variant(const LinearArgs &args, int n, Error *err) {
  if (args.variant <= n) return STATUS_OK;
  return error_set(err, STATUS_USAGE, "%s: there is no tile shape %d", args.w->name, args.variant);
}

struct LinearKernel {
  size_t (*workspace)(const DeviceLinear *w, int n_tokens, const DeviceLimits &device); /* bytes; NULL: 0 */
  Status (*launch)(const LinearArgs &args, Error *err);
  bool cublas;
};

#define KERNEL(LAUNCH, name) extern const LinearKernel name##_kernel;
LINEAR_KERNELS(KERNEL)
#undef KERNEL

/* Launches the kernel of wide/experts_mma.cu, to which awq_wgmma leaves experts of few rows each. */
Status launch_experts_mma(const LinearArgs &args, Error *err);

/* True if awq_wgmma can make heads (LINEAR_NEXT_HEADS) of n_tokens tokens, and this is expected to be faster
 * than writing y for a separate kernel. whole: with LINEAR_WHOLE. */
bool awq_wgmma_makes_heads(const DeviceLinear *w, int n_tokens, bool whole, const DeviceLimits &device);

/* The query for a call. With experts it is for one token's chosen experts as one matrix: stacked, or side by
 * side if summed. */
inline LinearQuery linear_query(const DeviceLinear &w, ActType act, int n_tokens,
                                const DeviceLimits &device) {
  const ActType own = w.type == WEIGHT_INT8 ? ACT_INT8 : weight_is_quantised(w.type) ? act : ACT_F16;
  LinearQuery query = {w.type,   own,         w.n_in, w.n_out,          w.group,
                       n_tokens, w.n_experts, device, w.rotated != NULL};
  if (w.n_experts == 0) return query;
  query.n_out = w.n_out / w.n_experts * (w.summed ? 1 : w.n_chosen);
  if (w.summed) query.n_in = (int)align_up((size_t)w.n_in, kPadIn) * w.n_chosen;
  return query;
}

/* Tiles of 64 inputs, padding included. */
inline int quant_tiles_in(const DeviceLinear &w) {
  return ceil_div(w.n_in, kPadIn) * (kPadIn / kTileIn);
}

inline QuantView quant_view(const DeviceLinear &w) {
  QuantView v = {};
  v.tiles = (const uint4 *)w.tiles;
  v.scales = (const uint32_t *)w.scales;
  v.zeros = w.zeros;
  v.n_in = w.n_in;
  v.n_tiles_out = ceil_div(w.n_out, kTileOut);
  v.n_tiles_in = quant_tiles_in(w);
  v.n_groups = w.n_groups;
  v.group_inverse = rounded_inverse(w.group);
  return v;
}

constexpr int kMaxChosen = LINEAR_MAX_CHOSEN;

/* The epilogue of the expert whose outputs begin at tile row `first`. */
__host__ __device__ inline Epilogue expert_epilogue(Epilogue out, int first) {
  if (out.bias) out.bias += first * kTileOut;
  if (out.factors) out.factors += first * kTileOut;
  return out;
}

/* The experts that one token has chosen: together a matrix of n_tile_rows() tile rows. */
struct ChosenExperts {
  const int *ids;                 /* [n_chosen] */
  int n_chosen, tile_rows, units; /* tile_rows: of an expert; units: 128-input parts of a tile row */
  bool summed;
  bool known; /* LinearExperts */

  __host__ __device__ int n_tile_rows() const { return summed ? tile_rows : n_chosen * tile_rows; }

  /* Copies the ids to shared memory. For all threads of a block. */
  __device__ __forceinline__ void read_ids(int *to) const {
    if (threadIdx.x < n_chosen) to[threadIdx.x] = (int)load_past_l1(ids + threadIdx.x);
    __syncthreads();
  }

  /* Stores the sums of rows g and g + 8 of a tile row, g < 8. Each stacked expert has its own row of y;
   * summed experts share one. */
  __device__ __forceinline__ void store(const Epilogue &out, const int *ids, int tile_row, int g, float low,
                                        float high) const {
    if (summed) {
      store_sum(
          out, [&](int slot) { return ids[slot] * tile_rows; }, tile_row, g, low, high);
    } else {
      const int slot = tile_row / tile_rows;
      store_row_pair(expert_epilogue(out, ids[slot] * tile_rows), slot, tile_row - slot * tile_rows, g, low,
                     high);
    }
  }

  /* store() of summed experts. first(slot): the first tile row of the expert of choice `slot`. Adds each
   * expert's bias times its choice's row factor. Epilogue.factors are in the sums already. */
  template <class First>
  __device__ __forceinline__ void store_sum(const Epilogue &out, First first, int tile_row, int g, float low,
                                            float high) const {
    Epilogue sum = out;
    sum.bias = sum.factors = nullptr;
    for (int slot = 0; out.bias && slot < n_chosen; slot++) {
      const float *bias = out.bias + (first(slot) + tile_row) * kTileOut + g;
      low += bias_factor(out, slot) * bias[0];
      high += bias_factor(out, slot) * bias[8];
    }
    store_row_pair(sum, 0, tile_row, g, low, high);
  }
};

inline ChosenExperts chosen_experts(const LinearArgs &args) {
  const DeviceLinear &w = *args.w;
  if (w.n_experts == 0) return {};
  return {args.experts->ids,     w.n_chosen, w.n_out / w.n_experts / kTileOut,
          quant_tiles_in(w) / 2, w.summed,   args.experts->known};
}

/* A tile of one expert: places [place, end) (linear.h), outputs from the matrix's tile row tile_row. */
struct ExpertTile {
  int place, end, tile_row;
};

/* The experts of many tokens, as kernels look them up. Each expert's places are cut into tiles. */
struct GroupedExperts {
  const int *begins, *choices;        /* LinearExperts */
  int n_experts, n_chosen, tile_rows; /* tile_rows: of an expert */
  bool by_place;                      /* x has a row for each place, not for each token */

  /* Row of x of a place. */
  __device__ __forceinline__ int row_of(int place) const {
    return by_place ? place : choices[place] / n_chosen;
  }

  /* Fills first_tile[n_experts + 1] in shared memory: the first tile of each expert, then the number of
   * tiles. For all threads of the block. */
  __device__ __forceinline__ void count_tiles(int tile_places, int *first_tile) const {
    for (int e = threadIdx.x; e < n_experts; e += blockDim.x) /* all loads at once, then a scan of one warp */
      first_tile[e] = (begins[e + 1] - begins[e] + tile_places - 1) / tile_places;
    __syncthreads();
    if (threadIdx.x < 32) {
      int before = 0;
      for (int e = threadIdx.x; e - (int)threadIdx.x < n_experts; e += 32) {
        const int own = e < n_experts ? first_tile[e] : 0, sum = warp_sum_up_to(own);
        if (e < n_experts) first_tile[e] = before + sum - own;
        before += __shfl_sync(~0u, sum, 31);
      }
      if (threadIdx.x == 0) first_tile[n_experts] = before;
    }
    __syncthreads();
  }

  __device__ __forceinline__ ExpertTile tile(int at, int tile_places, const int *first_tile) const {
    int expert = 0;
    for (int low = 0, high = n_experts; low < high;) { /* the last expert with first_tile <= at */
      const int middle = (low + high) / 2;
      if (first_tile[middle] <= at)
        expert = middle, low = middle + 1;
      else
        high = middle;
    }
    const int place = begins[expert] + (at - first_tile[expert]) * tile_places;
    return {place, min(begins[expert + 1], place + tile_places), expert * tile_rows};
  }

  /* Upper bound of the number of tiles: the full ones, and a partial one for each expert that has places. */
  int most_tiles(int n_places, int tile_places) const {
    return n_places / tile_places + (n_places < n_experts ? n_places : n_experts);
  }
};

inline GroupedExperts grouped_experts(const LinearArgs &args) {
  const DeviceLinear &w = *args.w;
  return {args.experts->begins,
          args.experts->choices,
          w.n_experts,
          w.n_chosen,
          w.n_out / w.n_experts / kTileOut,
          w.summed || args.experts->gathered};
}

/* Bytes of first_tile in count_tiles(); 0 without experts. */
inline size_t tile_list_bytes(const LinearArgs &args) {
  return args.experts ? sizeof(int) * (size_t)(args.w->n_experts + 1) : 0;
}

/* Calls `work` with a value of the type of layout.cuh that unpacks quantised weights of `type`. */
template <class Work> auto with_weights(WeightType type, Work work) {
  switch (type) {
  case WEIGHT_AWQ4: return work(Bits4());
  case WEIGHT_FP4: return work(Fp4());
  case WEIGHT_FP8: return work(Fp8());
  default: return work(Bits8());
  }
}

/* The arguments of a kernel that reads x unconverted and needs no workspace. */
struct QuantArgs {
  QuantView w;
  const __half *x;
  int x_stride, n_tokens;
  Epilogue out;
};

inline QuantArgs quant_args(const LinearArgs &args) {
  return {quant_view(*args.w), args.x, args.x_stride, args.n_tokens, args.out};
}
