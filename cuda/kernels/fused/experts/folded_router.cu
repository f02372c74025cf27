/* folded_router.cu - see folded_router.h.
 *
 * A block takes 128 inputs of o, one a thread, by kRows rows of the router. For each 64 outputs of o the
 * block puts R w into shared memory. Each thread dequantises its input's weights once for all rows. A layer
 * of Qwen3-30B-A3B is 10^9 products. */
#include "cuda/kernels/fused/experts/folded_router.h"

#include "cuda/kernels/linear/kernel.cuh"

namespace {

constexpr int kRows = 16, kOutputs = 64, kThreads = 128;

struct FoldArgs {
  QuantView o;         /* integers of 4 bits; used if `dense` is NULL */
  const __half *dense; /* fp16 [n_out][dense_stride] */
  size_t dense_stride;
  const unsigned char *router, *gate; /* fp16 or bf16; router: [n_experts][stride], gate: [n_out] or NULL */
  int n_experts, n_rows, stride;
  bool is_bf16;
  const float *norm; /* [n_out] */
  int n_in, n_out;
  float *to; /* [n_rows][n_in] */
};

/* R w of a row and an output of o; 0 past the last row. */
__device__ __forceinline__ float router_weight(const FoldArgs &a, int row, int output) {
  if (row >= a.n_rows) return 0;
  const unsigned short *from = (const unsigned short *)(row < a.n_experts ? a.router : a.gate);
  const size_t at = (row < a.n_experts ? (size_t)row * a.stride : 0) + output;
  const uint32_t bits = from[at];
  return (a.is_bf16 ? __uint_as_float(bits << 16) : f16_low(bits)) * a.norm[output];
}

__global__ void __launch_bounds__(kThreads) fold_kernel(const __grid_constant__ FoldArgs a) {
  __shared__ __align__(16) float factors[kOutputs][kRows];
  const int first_row = blockIdx.y * kRows, tile_in = blockIdx.x * 2 + threadIdx.x / 64,
            in_tile = threadIdx.x % 64, t = in_tile % 4, j = in_tile / 16, i = in_tile / 4 % 4,
            input = tile_in * kTileIn + tile_k(j, t, i);
  float sums[kRows] = {};
  for (int output = 0; output < a.n_out; output += kOutputs) {
    __syncthreads();
    for (int at = threadIdx.x; at < kOutputs * kRows; at += kThreads)
      factors[at % kOutputs][at / kOutputs] =
          router_weight(a, first_row + at / kOutputs, output + at % kOutputs);
    __syncthreads();
#pragma unroll 1
    for (int slab = 0; slab < kOutputs / kTileOut * 8; slab++) { /* rows g and g + 8 of a tile row */
      const int tile_row = output / kTileOut + slab / 8, g = slab % 8;
      float weights[2];
      if (a.dense) {
        const __half *from = a.dense + (size_t)(tile_row * kTileOut + g) * a.dense_stride + input;
        const bool any = input < a.n_in;
        weights[0] = any ? __half2float(from[0]) : 0,
        weights[1] = any ? __half2float(from[8 * a.dense_stride]) : 0;
      } else {
        const uint4 *lane = a.o.tiles + ((size_t)tile_row * a.o.n_tiles_in + tile_in) * 32 + g * 4 + t;
        Bits4::weights(a.o, lane, tile_row, tile_in, j, i, g, weights);
      }
      const float *low = factors[slab / 8 * kTileOut + g], *high = low + 8 * kRows;
#pragma unroll
      for (int row = 0; row < kRows; row++) sums[row] += low[row] * weights[0] + high[row] * weights[1];
    }
  }
  if (input >= a.n_in) return;
  for (int row = 0; row < kRows; row++)
    if (first_row + row < a.n_rows) a.to[(size_t)(first_row + row) * a.n_in + input] = sums[row];
}

/* Floats of a layer's folded router; 0 in a layer without experts. */
size_t layer_floats(const StepShape *s, int layer) {
  const int inputs = step_is_delta(s, layer) ? s->n_value_heads * STEP_PACK : s->n_heads * step_value_dim(s);
  if (layer < s->n_dense) return 0;
  return (size_t)step_router_rows(s) * (size_t)inputs;
}

} // namespace

size_t folded_bytes(const StepShape *s) {
  const int most = s->head_dim == STEP_WIDE_HEAD ? (int)STEP_HYBRID_EXPERTS : (int)STEP_MAX_EXPERTS;
  size_t floats = 0;
  for (int layer = 0; s->n_experts <= most && layer < s->n_layers; layer++) floats += layer_floats(s, layer);
  return floats * sizeof(float);
}

float *folded_router(const StepShape *s, float *all, int layer) {
  for (int before = 0; before < layer; before++) all += layer_floats(s, before);
  return all;
}

Status fold_routers(const StepShape *s, const StepLayer *layers, float *all, cudaStream_t stream,
                    Error *err) {
  for (int layer = s->n_dense; s->n_experts > 0 && layer < s->n_layers; layer++) {
    const StepLayer &l = layers[layer];
    const DeviceLinear &o = *l.o, &router = *l.router;
    FoldArgs a = {};
    if (o.type == WEIGHT_F16)
      a.dense = (const __half *)o.dense, a.dense_stride = o.stride;
    else
      a.o = quant_view(o);
    a.router = (const unsigned char *)router.dense;
    a.gate = (const unsigned char *)l.shared_gate->dense;
    a.n_experts = s->n_experts, a.n_rows = step_router_rows(s), a.stride = (int)router.stride;
    a.is_bf16 = router.type == WEIGHT_BF16;
    a.norm = l.mlp_norm, a.n_in = o.n_in, a.n_out = step_width(s), a.to = folded_router(s, all, layer);
    const dim3 grid((unsigned)ceil_div(a.n_in, kThreads), (unsigned)ceil_div(a.n_rows, kRows));
    TRY(launch(fold_kernel, grid, kThreads, 0, stream, false, "the folded router", err, a));
  }
  return STATUS_OK;
}
