/* int8_bytes.cu - many tokens with int8 activations on Hopper. int8 weights (W8A8) are bytes with one scale
 * for each output, weights of 4 bits (--act int8) become such, and int8_gemm.cuh multiplies them.
 *
 *     W[o][k] = (q[k][o] - z[g][o]) s[g][o] / S[o], rounded
 *     S[o] = max over g of |s| max(z, 15 - z) / 127
 *
 * Bytes of 4 bits are made anew for each call, in the workspace.
 * PRECOND  4 bits: group % 32 == 0.
 * READS    weights of 4 bits once, then bytes as int8_gemm.cuh does. */
#include "cuda/linear/wide/int8_operands.cuh"

namespace {

using namespace int8_gemm;

constexpr int kWarps = 8, kAtOnce = 4; /* tiles that a warp loads at once */

/* A group's scale of rows g and g + 8 as multiples of S / 256, and what rounds (q - z) s / S + 128. */
struct Multiplier {
  uint32_t by[2], plus[2];
};

/* Largest |s| max(z, 15 - z) of rows g and g + 8 over all groups, in all threads of a block. */
__device__ __forceinline__ float2 largest_weights(const QuantView &w, int tile_row) {
  __shared__ float2 of_warps[kWarps][8];
  const int g = threadIdx.x % 8, lane = threadIdx.x % 32;
  float2 top = make_float2(0, 0);
  for (int group = threadIdx.x / 8; group < w.n_groups; group += 32 * kWarps / 8) {
    const size_t at = ((size_t)tile_row * w.n_groups + group) * 8 + g;
    const uint32_t s = w.scales[at], z = ((const uint8_t *)w.zeros)[at];
    const int low = z & 15, high = z >> 4;
    top.x = fmaxf(top.x, fabsf(f16_low(s)) * (float)max(low, 15 - low));
    top.y = fmaxf(top.y, fabsf(f16_high(s)) * (float)max(high, 15 - high));
  }
#pragma unroll
  for (int o = 8; o < 32; o *= 2) {
    top.x = fmaxf(top.x, __shfl_xor_sync(~0u, top.x, o));
    top.y = fmaxf(top.y, __shfl_xor_sync(~0u, top.y, o));
  }
  if (lane < 8) of_warps[threadIdx.x / 32][lane] = top;
  __syncthreads();
  const int mine = lane / 4; /* a lane's row g in the weights' layout */
  top = of_warps[0][mine];
#pragma unroll
  for (int i = 1; i < kWarps; i++) {
    top.x = fmaxf(top.x, of_warps[i][mine].x);
    top.y = fmaxf(top.y, of_warps[i][mine].y);
  }
  return top;
}

/* 32,512 = 127 * 256. The sum in 16 bits of q * by + plus is 256 (w + 128) + 128 and never leaves them. */
__device__ __forceinline__ Multiplier multiplier(uint32_t scale, uint32_t zero, float2 inverse) {
  const int by[2] = {(int)rintf(f16_low(scale) * inverse.x), (int)rintf(f16_high(scale) * inverse.y)};
  Multiplier m;
#pragma unroll
  for (int r = 0; r < 2; r++) {
    m.by[r] = (uint32_t)by[r];
    m.plus[r] = (uint32_t)(32768 + 128 - by[r] * (int)(r ? zero >> 4 : zero & 15)) * 0x10001u;
  }
  return m;
}

/* Bytes of the four weights in nibbles 0, 2, 4 and 6 of a word. */
__device__ __forceinline__ uint32_t four_bytes(uint32_t word, uint32_t by, uint32_t plus) {
  const uint32_t even = (word & 0x000f000fu) * by + plus, odd = (word >> 8 & 0x000f000fu) * by + plus;
  return prmt<0x7351>(even, odd) ^ 0x80808080u;
}

/* A block makes the bytes of some inputs of a tile row, counted from first_tile. kEach: words of a lane that
 * share a group. */
template <int kEach>
__global__ void __launch_bounds__(32 * kWarps)
    bytes_of_weights(const __grid_constant__ QuantView w, int first_tile, unsigned char *to, float *scales,
                     uint32_t *flags, int n_flags) {
  const int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4, tile_row = first_tile + blockIdx.x;
  const int step = gridDim.y * kWarps * kAtOnce, first = (blockIdx.y * kWarps + threadIdx.x / 32) * kAtOnce;
  uint4 v[kAtOnce];
  const auto load = [&](int tile0) {
#pragma unroll
    for (int i = 0; i < kAtOnce; i++)
      if (tile0 + i < w.n_tiles_in)
        v[i] = load_once(w.tiles + ((size_t)tile_row * w.n_tiles_in + tile0 + i) * 32 + lane);
  };
  dependents_may_start();
  load(first);
  const float2 top = largest_weights(w, tile_row);
  const float2 inverse =
      make_float2(top.x > 0 ? 32512.0f / top.x : 0.0f, top.y > 0 ? 32512.0f / top.y : 0.0f);
  wait_for_previous(); /* another matmul may read the bytes */
  if (blockIdx.x == 0 && blockIdx.y == 0)
    for (int i = threadIdx.x; i < n_flags; i += 32 * kWarps) flags[i] = 0; /* for round_planes() */
  if (blockIdx.y == 0 && threadIdx.x < 32 && t == 0) {
    scales[blockIdx.x * kTileOut + g] = top.x * (1.0f / 127);
    scales[blockIdx.x * kTileOut + g + 8] = top.y * (1.0f / 127);
  }
  for (int tile0 = first; tile0 < w.n_tiles_in; tile0 += step) {
    if (tile0 > first) load(tile0);
#pragma unroll
    for (int i = 0; i < kAtOnce; i++) {
      const int tile = tile0 + i;
      if (tile >= w.n_tiles_in) break;
      const uint32_t word[4] = {v[i].x, v[i].y, v[i].z, v[i].w};
      uint32_t low[4], high[4];
      Multiplier m;
#pragma unroll
      for (int j = 0; j < 4; j++) {
        if (j % kEach == 0) {
          const size_t at = ((size_t)tile_row * w.n_groups + group_of(w, tile * kTileIn + 16 * j)) * 8 + g;
          m = multiplier(__ldg(w.scales + at), __ldg((const uint8_t *)w.zeros + at), inverse);
        }
        low[j] = four_bytes(word[j], m.by[0], m.plus[0]);
        high[j] = four_bytes(word[j] >> 4, m.by[1], m.plus[1]);
      }
      unsigned char *row =
          to + ((size_t)(blockIdx.x * kTileOut + g) * w.n_tiles_in + tile) * kTileIn + t * 16;
      *(uint4 *)row = make_uint4(low[0], low[1], low[2], low[3]);
      *(uint4 *)(row + (size_t)8 * w.n_tiles_in * kTileIn) = make_uint4(high[0], high[1], high[2], high[3]);
    }
  }
}

/* Where the parts of the workspace begin. */
struct Scratch {
  size_t w_scales, x, x_scales, flags, partial, all;
};

/* Rows whose bytes are made at once: a slice that L2 still has when it is multiplied, in whole tiles. */
constexpr size_t kSliceBytes = 32 << 20;

int slice_rows(const DeviceLinear *w) {
  const int parts = ceil_div(w->n_in, kPart), least = Shape<128, 2>::kRows;
  const int most = std::max(1, (int)(kSliceBytes / ((size_t)parts * kPart * least))), /* blocks of `least` */
      all = ceil_div(w->n_out, least), n = ceil_div(all, most);
  return ceil_div(all, n) * least;
}

Scratch scratch_of(const DeviceLinear *w, int n_tokens, const DeviceLimits &device, int rows) {
  const bool stored = w->type == WEIGHT_INT8; /* as bytes, with a scale for each output */
  const size_t of_slice = stored ? 0 : (size_t)rows, parts = (size_t)ceil_div(w->n_in, kPart),
               padded = (size_t)padded_tokens(n_tokens);
  Scratch s;
  s.w_scales = of_slice * parts * kPart; /* a multiple of 256, as rows is one of 16 */
  s.x = s.w_scales + align_up(of_slice * 4);
  s.x_scales = s.x + padded * parts * kPart * (stored ? 1 : 2);
  s.flags = s.x_scales + padded * 4;
  s.partial = s.flags + align_up(padded / kFlagTokens * (size_t)flag_words(w->n_in) * 4);
  s.all = s.partial + partial_bytes(device);
  return s;
}

size_t workspace(const DeviceLinear *w, int n_tokens, const DeviceLimits &device) {
  return scratch_of(w, n_tokens, device, slice_rows(w)).all;
}

/* Makes the bytes and scales of the rows of `of`; of the first ones, also flags of 0. */
Status make_bytes(const LinearArgs &args, const Operands &of, const RoundedTo &x, Error *err) {
  const QuantView w = quant_view(*args.w);
  const int rows = ceil_div(of.n_rows, kTileOut), columns = ceil_div(w.n_tiles_in, kWarps * kAtOnce);
  const dim3 grid((unsigned)rows,
                  (unsigned)std::min(columns, std::max(1, ceil_div(4 * args.device.n_sms, rows))));
  return launch(args.w->group % kTileIn == 0 ? bytes_of_weights<4> : bytes_of_weights<2>, grid, 32 * kWarps,
                0, args.stream, args.dependent, args.w->name, err, w, of.first_row / kTileOut,
                (unsigned char *)of.w, (float *)of.w_scales, x.flags,
                of.first_row > 0 ? 0 : x.padded / kFlagTokens * x.n_words);
}

/* Multiplies by tiles of 128 tokens, or for measuring of 256. */
template <int kPlanes> Status multiply(const LinearArgs &args, const Operands &of, Error *err) {
  if (args.variant > 2)
    return error_set(err, STATUS_USAGE, "%s: there is no tile shape %d", args.w->name, args.variant);
  return args.variant == 2 ? launch_gemm<Shape<256, kPlanes>>(args, of, err)
                           : launch_gemm<Shape<128, kPlanes>>(args, of, err);
}

/* Multiplies int8 weights, in launches of as many tokens as there are counters for. */
Status multiply_stored(const LinearArgs &args, Operands of, Error *err) {
  typedef Shape<128, 1> S;
  const int at_once = std::max(kCounters / ceil_div(args.w->n_out, S::kRows), 1) * S::kTokens;
  const bool halves = args.out.kind == LINEAR_TO_F16 || args.out.kind == LINEAR_SWIGLU_F16;
  const size_t row_bytes = (size_t)ceil_div(args.w->n_in, kPart) * kPart;
  LinearArgs part = args;
  for (int first = 0; first < args.n_tokens; first += at_once) {
    part.n_tokens = std::min(args.n_tokens - first, at_once);
    TRY(multiply<1>(part, of, err));
    of.x = (const unsigned char *)of.x + at_once * row_bytes, of.x_scales += at_once;
    part.out.y = (unsigned char *)part.out.y + at_once * args.out.stride * (halves ? 2 : 4);
    if (part.out.row_factors) part.out.row_factors += at_once;
  }
  return STATUS_OK;
}

Status launch_int8_bytes(const LinearArgs &args, Error *err) {
  const DeviceLinear *w = args.w;
  const bool stored = w->type == WEIGHT_INT8;
  const int rows = stored ? w->n_out : slice_rows(w);
  const Scratch s = scratch_of(w, args.n_tokens, args.device, rows);
  unsigned char *at = args.workspace;
  const RoundedTo x = {at + s.x,
                       (float *)(at + s.x_scales),
                       (uint32_t *)(at + s.flags),
                       padded_tokens(args.n_tokens),
                       ceil_div(w->n_in, kPart),
                       flag_words(w->n_in)};
  Operands of = {
      0,        w->n_out, stored ? w->tiles : at, (const float *)(stored ? w->scales : at + s.w_scales), x.x,
      x.scales, x.flags,  (int *)(at + s.partial)};
  if (stored) {
    TRY(round_tokens<kToken>(args, x, err));
    return multiply_stored(args, of, err);
  }
  for (; of.first_row < w->n_out; of.first_row += rows) {
    of.n_rows = std::min(rows, w->n_out - of.first_row);
    TRY(make_bytes(args, of, x, err));
    if (of.first_row == 0) TRY(round_tokens<kPlanes>(args, x, err));
    TRY(multiply<2>(args, of, err));
  }
  return STATUS_OK;
}

} // namespace

const LinearKernel int8_bytes_kernel = {workspace, launch_int8_bytes, false};
