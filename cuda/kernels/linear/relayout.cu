/* relayout.cu - converts a checkpoint's layouts to the device's (layout.cuh), each part when it is staged,
 * and makes matrices from others on the device (linear_outputs_from, linear_round).
 *
 * Always true: a fill writes only the rows of its part, so the parts of a stacked or interleaved matrix can
 * come in any order on one stream; padding stays 0. */
#include <cuda_bf16.h>
#include <string.h>
#include <type_traits>

#include "cuda/kernels/linear/kernel.cuh"

/* True for types whose weights are DeviceLinear.tiles: the quantised ones, and int8, which has no groups. */
static bool tiled(WeightType type) {
  return weight_is_quantised(type) || type == WEIGHT_INT8;
}

constexpr int kFp4Group = 16; /* inputs of an FP4 scale as laid out; larger groups repeat the scale */

static size_t element_bytes(WeightType type) {
  return type == WEIGHT_F32 ? 4 : 2;
}

/* Bytes of the areas of a matrix, in memory order; weights are tiles or dense rows. */
struct Areas {
  size_t weights, scales, zeros, factors, bias;
  size_t all() const { return weights + scales + zeros + factors + bias; }
};

/* Areas of the first `rows` rows, a multiple of 16, without padding for alignment. */
static Areas areas_of_rows(const DeviceLinear *w, size_t rows) {
  Areas a = {};
  if (weight_is_quantised(w->type)) {
    size_t bits = (size_t)weight_bits(w->type), groups = rows * (size_t)w->n_groups;
    a.weights = rows * align_up((size_t)w->n_in, kPadIn) * bits / 8;
    a.scales = groups * (w->type == WEIGHT_FP4 ? 1 : 2);
    if (weight_has_zeros(w->type)) a.zeros = groups * bits / 8;
    if (weight_has_factors(w->type)) a.factors = rows * 4;
  } else if (w->type == WEIGHT_INT8) {
    a.weights = rows * align_up((size_t)w->n_in, kPadIn);
    a.scales = rows * 4;
  } else {
    a.weights = rows * w->stride * element_bytes(w->type);
  }
  a.bias = w->has_bias ? rows * 4 : 0;
  return a;
}

static Areas areas_of(const DeviceLinear *w) {
  const Areas a = areas_of_rows(w, align_up((size_t)w->n_out, kTileOut));
  return {align_up(a.weights), align_up(a.scales), align_up(a.zeros), align_up(a.factors), align_up(a.bias)};
}

Status linear_lay_out(DeviceLinear *w, const char *name, WeightType type, int n_in, int n_out, int group,
                      bool interleaved, bool bias, size_t *bytes, Error *err) {
  memset(w, 0, sizeof *w);
  if (n_in <= 0 || n_out <= 0 || n_in > 1 << 24 || n_out > 1 << 24)
    return error_set(err, STATUS_MODEL, "%s: a matrix of %d inputs by %d outputs", name, n_in, n_out);
  if (weight_is_quantised(type) && (group <= 0 || (type != WEIGHT_FP8 && n_in % group != 0)))
    return error_set(err, STATUS_MODEL, "%s: %d inputs do not divide into groups of %d", name, n_in, group);
  if (weight_is_quantised(type) && group == 1 && n_in > 1) /* group_of() cannot divide by 1 */
    return error_set(err, STATUS_MODEL, "%s: groups of 1 input, expected 2 or more", name);
  if (type == WEIGHT_FP4 && group % kFp4Group != 0)
    return error_set(err, STATUS_MODEL, "%s: FP4 in groups of %d, expected 16 or 32", name, group);
  if (tiled(type) && n_in > 65408) /* group_of() and int32 sums are exact up to here */
    return error_set(err, STATUS_MODEL, "%s: %d inputs, expected at most 65408", name, n_in);
  if ((weight_has_zeros(type) || interleaved) && n_out % (interleaved ? 16 : 8) != 0)
    return error_set(err, STATUS_MODEL, "%s: %d outputs are not a multiple of %d", name, n_out,
                     interleaved ? 16 : 8);
  w->type = type;
  w->name = name;
  w->n_in = n_in;
  w->n_out = n_out;
  w->interleaved = interleaved;
  w->has_bias = bias;
  if (weight_is_quantised(type)) {
    int padded = (int)align_up((size_t)n_in, kPadIn);
    w->group = type == WEIGHT_FP4 ? kFp4Group : n_in == group ? padded : group;
    w->n_groups = ceil_div(padded, w->group);
  } else if (!tiled(type)) {
    w->stride = align_up((size_t)n_in, 8);
  }
  Areas a = areas_of(w);
  *bytes = a.all();
  return STATUS_OK;
}

Status linear_place(DeviceLinear *w, void *memory, cudaStream_t stream, Error *err) {
  Areas a = areas_of(w);
  unsigned char *p = (unsigned char *)memory;
  if (tiled(w->type)) {
    w->tiles = p;
    w->scales = p + a.weights;
    if (a.zeros) w->zeros = p + a.weights + a.scales;
    if (a.factors) w->factors = (const float *)(p + a.weights + a.scales + a.zeros);
  } else {
    w->dense = p;
  }
  w->bias = w->has_bias ? (const float *)(p + a.all() - a.bias) : NULL;
  return cuda_status(cudaMemsetAsync(memory, 0, a.all(), stream), w->name, err);
}

Status linear_lay_out_experts(DeviceLinear *w, int n_experts, int n_chosen, bool summed, Error *err) {
  const int n_out = n_experts > 0 ? w->n_out / n_experts : 0;
  if (n_experts <= 0 || n_experts > LINEAR_MAX_EXPERTS || n_chosen <= 0 || n_chosen > n_experts ||
      n_chosen > LINEAR_MAX_CHOSEN)
    return error_set(err, STATUS_MODEL, "%s: %d of %d experts, expected at most %d of %d", w->name, n_chosen,
                     n_experts, LINEAR_MAX_CHOSEN, LINEAR_MAX_EXPERTS);
  if (n_out * n_experts != w->n_out || n_out % kTileOut != 0)
    return error_set(err, STATUS_MODEL, "%s: %d outputs of an expert are not a multiple of %d", w->name,
                     n_out, kTileOut);
  w->n_experts = n_experts;
  w->n_chosen = n_chosen;
  w->summed = summed;
  return STATUS_OK;
}

/* Outputs first .. first + n_out - 1 of `all` as a matrix of their own. PRECOND first % 16 == 0. */
static DeviceLinear outputs_of(const DeviceLinear *all, size_t first, int n_out) {
  DeviceLinear w = *all;
  w.n_experts = 0;
  w.n_out = n_out;
  w.rotated = NULL;
  const Areas skipped = areas_of_rows(all, first);
  if (w.tiles) w.tiles = (const char *)all->tiles + skipped.weights;
  if (w.dense) w.dense = (const char *)all->dense + skipped.weights;
  if (w.scales) w.scales = (const char *)all->scales + skipped.scales;
  if (w.zeros) w.zeros = (const char *)all->zeros + skipped.zeros;
  if (w.factors) w.factors += first;
  if (w.bias) w.bias += first;
  return w;
}

DeviceLinear linear_expert(const DeviceLinear *all, int expert) {
  const int n_out = all->n_out / all->n_experts;
  return outputs_of(all, (size_t)expert * (size_t)n_out, n_out);
}

DeviceLinear linear_outputs_from(const DeviceLinear *linear, int first_out) {
  return outputs_of(linear, (size_t)first_out, linear->n_out - first_out);
}

/* The part's slab that lies at slab `slab` of the matrix, or -1. */
__device__ __forceinline__ int slab_of_part(const LinearPart &part, int slab) {
  int i = slab - part.first_slab;
  if (i < 0 || i % part.slab_step) return -1;
  i /= part.slab_step;
  return i < (part.n_out + 7) / 8 ? i : -1;
}

/* Nibble of a word that holds column c of eight: nibble i holds column [0,2,4,6,1,3,5,7][i]. Source: AutoAWQ,
 * awq/utils/packing_utils.py, AWQ_ORDER. */
__device__ __forceinline__ int awq_nibble(int c) {
  return c / 2 + 4 * (c % 2);
}

/* The weight of input k and output g of a slab: from bytes [n_in][n_out], or from words in AutoAWQ's
 * order. */
struct FromBytes {
  const uint8_t *staged;
  __device__ __forceinline__ uint32_t at(int k, int n_out, int slab, int g) const {
    return staged[(size_t)k * n_out + slab * 8 + g];
  }
};

struct FromWords {
  const uint32_t *staged;
  __device__ __forceinline__ uint32_t at(int k, int n_out, int slab, int g) const {
    return staged[(size_t)k * (n_out / 8) + slab] >> (4 * awq_nibble(g)) & 15;
  }
};

/* A thread writes one lane's words of one tile of kBits bits: 16 inputs of rows g and g + 8, if the part has
 * these rows. */
template <int kBits, class From>
__global__ void fill_tiles(uint32_t *tiles, int n_tiles_in, LinearPart part, int first_tile_in, int n_in,
                           From from, int n_tiles_out) {
  int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
  int tile_out = blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32, tile_in = blockIdx.y;
  if (tile_out >= n_tiles_out) return;
  uint32_t *at = tiles + ((size_t)tile_out * n_tiles_in + first_tile_in + tile_in) * (32 * kBits) + lane * 4;
  for (int half = 0; half < 2; half++) {
    int slab = slab_of_part(part, 2 * tile_out + half);
    if (slab < 0) continue;
#pragma unroll
    for (int j = 0; j < 4; j++) {
      uint32_t bytes = 0;
#pragma unroll
      for (int i = 0; i < 4; i++) {
        int k = tile_in * kTileIn + tile_k(j, t, i);
        bytes |= (k < n_in ? from.at(k, part.n_out, slab, g) : 0) << (8 * i);
      }
      if (kBits == 8)
        at[j / 2 * 128 + j % 2 * 2 + half] = bytes; /* vector j / 2, word 2 (j % 2) + half */
      else
        at[j] = (at[j] & (half ? 0x0f0f0f0fu : 0xf0f0f0f0u)) | bytes << (4 * half);
    }
  }
}

template <int kBits, class From>
static Status launch_fill(const DeviceLinear *w, LinearPart part, int first_in, int n_in, From from,
                          cudaStream_t stream, Error *err) {
  int tiles_out = ceil_div(w->n_out, kTileOut), tiles_in = quant_view(*w).n_tiles_in;
  dim3 grid((unsigned)ceil_div(tiles_out, 8), (unsigned)ceil_div(n_in, kTileIn));
  return launch(fill_tiles<kBits, From>, grid, 256, 0, stream, false, w->name, err, (uint32_t *)w->tiles,
                tiles_in, part, first_in / kTileIn, n_in, from, tiles_out);
}

Status linear_fill_weights(const DeviceLinear *w, LinearPart part, int first_in, int n_in, int staged_bits,
                           const void *staged, cudaStream_t stream, Error *err) {
  const FromWords words = {(const uint32_t *)staged};
  if (w->type == WEIGHT_AWQ4) return launch_fill<4>(w, part, first_in, n_in, words, stream, err);
  if (staged_bits == 4) return launch_fill<8>(w, part, first_in, n_in, words, stream, err);
  return launch_fill<8>(w, part, first_in, n_in, FromBytes{(const uint8_t *)staged}, stream, err);
}

__device__ __forceinline__ uint16_t half_bits(uint16_t half) {
  return half;
}

__device__ __forceinline__ uint16_t half_bits(float value) {
  return __half_as_ushort(__float2half_rn(value));
}

/* A thread writes rows g and g + 8 of one tile row and group; the layout has n_groups groups, the checkpoint
 * n_stored. */
template <class Scale>
__global__ void fill_groups(uint16_t *scales, uint8_t *zeros, int bits, int n_groups, int n_stored,
                            int n_tiles_out, LinearPart part, const uint8_t *staged_zeros,
                            const Scale *staged_scales) {
  int i = blockIdx.x * blockDim.x + threadIdx.x, g = i % 8, group = i / 8 % n_groups, tile = i / 8 / n_groups;
  if (tile >= n_tiles_out || group >= n_stored) return;
  size_t at = ((size_t)tile * n_groups + group) * 8 + g;
  for (int half = 0; half < 2; half++) {
    int slab = slab_of_part(part, 2 * tile + half);
    if (slab < 0) continue;
    int columns = part.n_out / 8;
    scales[2 * at + half] = half_bits(staged_scales[(size_t)group * part.n_out + slab * 8 + g]);
    if (bits == 8) {
      zeros[2 * at + half] = staged_zeros ? staged_zeros[(size_t)group * part.n_out + slab * 8 + g] : 128;
      continue;
    }
    const uint32_t *words = (const uint32_t *)staged_zeros;
    uint32_t z = words ? words[(size_t)group * columns + slab] >> (4 * awq_nibble(g)) & 15 : 8;
    zeros[at] = (uint8_t)((zeros[at] & (half ? 0x0f : 0xf0)) | z << (4 * half));
  }
}

Status linear_fill_groups(const DeviceLinear *w, LinearPart part, const void *zeros, const void *scales,
                          bool f32_scales, cudaStream_t stream, Error *err) {
  int tiles_out = ceil_div(w->n_out, kTileOut), n_stored = w->n_in < w->group ? 1 : w->n_in / w->group;
  dim3 grid((unsigned)ceil_div((long)tiles_out * w->n_groups * 8, 256));
  auto fill = [&](auto kernel, auto *typed_scales) {
    return launch(kernel, grid, 256, 0, stream, false, w->name, err, (uint16_t *)w->scales,
                  (uint8_t *)w->zeros, w->type == WEIGHT_AWQ4 ? 4 : 8, w->n_groups, n_stored, tiles_out, part,
                  (const uint8_t *)zeros, typed_scales);
  };
  return f32_scales ? fill(fill_groups<float>, (const float *)scales)
                    : fill(fill_groups<uint16_t>, (const uint16_t *)scales);
}

/* Row of the matrix that row `row` of the part becomes; `row` itself if the matrix has one part. */
__device__ __forceinline__ int row_of_part(const LinearPart &part, int row) {
  return 8 * (part.first_slab + row / 8 * part.slab_step) + row % 8;
}

/* A thread writes one word, four inputs of one row: of a tile of 8 bits, or, if kRows, of a row of int8. A
 * block of 256 threads covers 16 tiles of a row. */
template <bool kRows>
__global__ void fill_tiles_bytes(uint32_t *tiles, int n_tiles_in, LinearPart part, int first_row, int n_in,
                                 const uint8_t *staged) {
  int word = threadIdx.x % 16, t = word / 4, j = word % 4, tile_in = blockIdx.y * 16 + threadIdx.x / 16;
  if (tile_in >= n_tiles_in) return;
  const uint8_t *from = staged + (size_t)blockIdx.x * n_in;
  int row = row_of_part(part, first_row + blockIdx.x), lane = row % 8 * 4 + t;
  uint32_t bytes = 0;
#pragma unroll
  for (int i = 0; i < 4; i++) {
    int k = tile_in * kTileIn + tile_k(j, t, i);
    bytes |= (k < n_in ? (uint32_t)from[k] : 0) << (8 * i);
  }
  /* In a tile the word is in the lane's vector j / 2: word 2 (j % 2) for row g, the next for row g + 8. */
  size_t tile = (size_t)(row / kTileOut) * n_tiles_in + tile_in;
  tiles[kRows ? ((size_t)row * n_tiles_in + tile_in) * 16 + word
              : (tile * 64 + j / 2 * 32 + lane) * 4 + j % 2 * 2 + row % kTileOut / 8] = bytes;
}

/* The bits that one weight's code sets in half a word of FP4; operand: 0 to 3 for a0 to a3 (layout.cuh). The
 * half word is the exclusive or of what its four codes set. */
__device__ __forceinline__ uint32_t fp4_bits(uint32_t code, int operand) {
  const int sign[4] = {15, 12, 13, 14};
  const uint32_t bits = (code & 7) << (9 - 3 * operand) | (code >> 3 & 1) << sign[operand];
  return bits ^ (bits & 0x200) << 4 ^ (bits & 0x380) >> 4 ^ (bits & 0x40) << 8 ^ (bits & 0x700) >> 8;
}

/* A thread writes one word of a tile: the weights of rows g and g + 8. It leaves out those of rows outside
 * [first_row, end_row) of the part, which are not staged. */
__global__ void fill_tiles_fp4(uint32_t *tiles, int n_tiles_in, LinearPart part, int first_row, int end_row,
                               int n_in, const uint8_t *staged) {
  const int j = threadIdx.x % 4, t = threadIdx.x / 4 % 4, g = threadIdx.x / 16 % 8,
            tile_in = blockIdx.y * 2 + threadIdx.x / 128, tile_row = blockIdx.x;
  if (tile_in >= n_tiles_in) return;
  uint32_t *at = tiles + (((size_t)tile_row * n_tiles_in + tile_in) * 32 + g * 4 + t) * 4 + j;
  for (int half = 0; half < 2; half++) {
    const int slab = slab_of_part(part, 2 * tile_row + half), row = 8 * slab + g;
    if (slab < 0 || row < first_row || row >= end_row) continue;
    const uint8_t *from = staged + (size_t)(row - first_row) * (n_in / 2);
    uint32_t word = 0;
    for (int i = 0; i < 4; i++) {
      const int k = tile_in * kTileIn + tile_k(j, t, i);
      const uint32_t code = k < n_in ? from[k / 2] >> (k % 2 * 4) & 15 : 0;
      word ^= fp4_bits(code, i % 2 * 2 + half) << (i / 2 * 16);
    }
    *at ^= word; /* a word is 0 at first */
  }
}

Status linear_fill_bytes(const DeviceLinear *w, LinearPart part, int first_row, int n_rows,
                         const void *staged, cudaStream_t stream, Error *err) {
  int tiles_in = quant_tiles_in(*w), tiles_out = ceil_div(w->n_out, kTileOut);
  if (w->type == WEIGHT_FP4)
    return launch(fill_tiles_fp4, dim3((unsigned)tiles_out, (unsigned)ceil_div(tiles_in, 2)), 256, 0, stream,
                  false, w->name, err, (uint32_t *)w->tiles, tiles_in, part, first_row, first_row + n_rows,
                  w->n_in, (const uint8_t *)staged);
  dim3 grid((unsigned)n_rows, (unsigned)ceil_div(tiles_in, 16));
  return launch(w->type == WEIGHT_INT8 ? fill_tiles_bytes<true> : fill_tiles_bytes<false>, grid, 256, 0,
                stream, false, w->name, err, (uint32_t *)w->tiles, tiles_in, part, first_row, w->n_in,
                (const uint8_t *)staged);
}

/* Largest of the lanes' numbers, in each lane. */
template <class T> __device__ __forceinline__ T warp_max(T v) {
  for (int o = 16; o; o /= 2) {
    const T other = __shfl_xor_sync(~0u, v, o);
    v = other > v ? other : v;
  }
  return v;
}

/* A warp stores the scales of one row in fp16, each divided by a power of two. A row's only scale is divided
 * by itself. The row's factor is the divisor times 256, because kernels read an FP8 weight as 1 / 256 of its
 * number. */
__global__ void fill_fp8_scales(uint16_t *scales, float *factors, int n_groups, int n_stored, LinearPart part,
                                const float *staged, int block, int block_first) {
  const int row = blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32, lane = threadIdx.x % 32;
  if (row >= part.n_out) return;
  const float *from = staged + (size_t)((block_first + row) / block) * n_stored;
  const int to = row_of_part(part, row);
  uint16_t *at = scales + (size_t)(to / kTileOut) * n_groups * 16 + to % 8 * 2 + to % kTileOut / 8;
  float top = 0;
  for (int i = lane; i < n_stored; i += 32) top = fmaxf(top, fabsf(from[i]));
  top = warp_max(top);
  int exponent = 0;
  frexpf(top, &exponent);
  const float unit = n_stored == 1 ? from[0] : ldexpf(1.0f, exponent);
  for (int i = lane; i < n_stored; i += 32)
    at[(size_t)i * 16] = __half_as_ushort(__float2half_rn(n_stored == 1 ? 1.0f : ldexpf(from[i], -exponent)));
  if (lane == 0) factors[to] = unit * 256;
}

Status linear_fill_fp8_scales(const DeviceLinear *w, LinearPart part, const float *staged, int block,
                              int block_first, cudaStream_t stream, Error *err) {
  const int n_stored = w->group >= w->n_in ? 1 : ceil_div(w->n_in, w->group);
  return launch(fill_fp8_scales, dim3((unsigned)ceil_div(part.n_out, 8)), 256, 0, stream, false, w->name, err,
                (uint16_t *)w->scales, (float *)w->factors, w->n_groups, n_stored, part, staged, block,
                block_first);
}

/* The byte for the scale 2^(7 + below), below <= 0: bits 7 .. 14 of that number in fp16. */
__device__ __forceinline__ uint32_t fp4_power(int below) {
  const int exponent = 15 + 7 + below;
  return exponent > 0 ? exponent << 3 : below >= -24 ? 1u << (24 + below) : 0;
}

/* A warp writes the scales of one row. NVFP4's codes stay as they are: kernels read 1 / 256 of their numbers.
 * MXFP4's powers of two are scaled so that a row's largest is 2^7; so 2^-24 of the largest is not 0. Kernels
 * multiply 2^-14 of a weight's number by 2^8 times the scale they read (Fp4 in layout.cuh). The row's factor
 * undoes all of this scaling. */
__global__ void fill_fp4_scales(uint8_t *scales, float *factors, int n_tiles_in, int n_stored,
                                LinearPart part, int first_row, int n_rows, const uint8_t *staged, int repeat,
                                float factor) {
  const int i = blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32, lane = threadIdx.x % 32;
  if (i >= n_rows) return;
  const uint8_t *from = staged + (size_t)i * n_stored;
  const int to = row_of_part(part, first_row + i);
  uint8_t *at = scales + (size_t)(to / kTileOut) * n_tiles_in * 64 + to % 8 * 8 + to % kTileOut / 8;
  int top = 0;
  for (int group = lane; group < n_stored; group += 32) top = max(top, (int)from[group]);
  top = warp_max(top);
  for (int group = lane; group < n_stored * repeat; group += 32) {
    const int code = from[group / repeat];
    at[(size_t)(group / 4) * 64 + group % 4 * 2] = (uint8_t)(repeat == 1 ? code : fp4_power(code - top));
  }
  if (lane == 0) factors[to] = repeat == 1 ? factor * 16384 : ldexpf(1.0f, top - 128);
}

Status linear_fill_fp4_scales(const DeviceLinear *w, LinearPart part, int first_row, int n_rows,
                              const uint8_t *staged, int group, float factor, cudaStream_t stream,
                              Error *err) {
  return launch(fill_fp4_scales, dim3((unsigned)ceil_div(n_rows, 8)), 256, 0, stream, false, w->name, err,
                (uint8_t *)w->scales, (float *)w->factors, quant_tiles_in(*w), w->n_in / group, part,
                first_row, n_rows, staged, group / kFp4Group, factor);
}

template <class T>
__global__ void fill_dense(T *dense, size_t stride, LinearPart part, int first_row, int n_in,
                           const T *staged) {
  const T *from = staged + (size_t)blockIdx.x * n_in;
  T *to = dense + (size_t)row_of_part(part, first_row + blockIdx.x) * stride;
  for (int i = threadIdx.x; i < n_in; i += blockDim.x) to[i] = from[i];
}

Status linear_fill_dense(const DeviceLinear *w, LinearPart part, int first_row, int n_rows,
                         const void *staged, cudaStream_t stream, Error *err) {
  if (w->type == WEIGHT_F32)
    return launch(fill_dense<uint32_t>, dim3((unsigned)n_rows), 256, 0, stream, false, w->name, err,
                  (uint32_t *)w->dense, w->stride, part, first_row, w->n_in, (const uint32_t *)staged);
  return launch(fill_dense<uint16_t>, dim3((unsigned)n_rows), 256, 0, stream, false, w->name, err,
                (uint16_t *)w->dense, w->stride, part, first_row, w->n_in, (const uint16_t *)staged);
}

__global__ void fill_by_row(float *to, LinearPart part, const float *staged) {
  int row = blockIdx.x * blockDim.x + threadIdx.x;
  if (row < part.n_out) to[row_of_part(part, row)] = staged[row];
}

Status linear_fill_floats(const DeviceLinear *w, LinearPart part, const void *to, const float *staged,
                          cudaStream_t stream, Error *err) {
  return launch(fill_by_row, dim3((unsigned)ceil_div(part.n_out, 256)), 256, 0, stream, false, w->name, err,
                (float *)to, part, staged);
}

/* --- a dense matrix rounded to 4 bits */

constexpr int kRoundGroup = 128;

__device__ __forceinline__ uint32_t nearest_code(float x) {
  return (uint32_t)rintf(fminf(fmaxf(x, 0), 15));
}

/* Block (eight, group) rounds one group of inputs of eight outputs; a thread has one input of all eight. The
 * results lie as AutoAWQ stores them: scales [n_groups][n_out], zeros u32 [n_groups][n_out / 8], codes u32
 * [n_in][n_out / 8]. PRECOND n_out % 8 == 0, n_in % kRoundGroup == 0. */
template <class T>
__global__ void round_kernel(const T *w, size_t stride, int n_out, __half *scales, uint32_t *zeros,
                             uint32_t *codes) {
  __shared__ float lows[8][kRoundGroup / 32], highs[8][kRoundGroup / 32];
  const int input = threadIdx.x, warp = input / 32, eight = blockIdx.x, group = blockIdx.y;
  const size_t place = (size_t)group * n_out + 8 * (size_t)eight, words = (size_t)n_out / 8;
  float x[8];
  for (int o = 0; o < 8; o++) {
    x[o] = (float)w[(8 * (size_t)eight + o) * stride + (size_t)group * kRoundGroup + input];
    const float low = lanes_max<16, 8, 4, 2, 1>(-x[o]), high = lanes_max<16, 8, 4, 2, 1>(x[o]);
    if (input % 32 == 0) lows[o][warp] = -low, highs[o][warp] = high;
  }
  __syncthreads();
  uint32_t word = 0, all_zeros = 0;
  for (int o = 0; o < 8; o++) {
    float low = 0, high = 0;
    for (int i = 0; i < kRoundGroup / 32; i++) low = fminf(low, lows[o][i]), high = fmaxf(high, highs[o][i]);
    const __half half = __float2half_rn(high > low ? (high - low) / 15 : 1);
    const float scale = __half2float(half) > 0 ? __half2float(half) : 1;
    const uint32_t zero = nearest_code(-low / scale);
    word |= nearest_code(x[o] / scale + (float)zero) << 4 * awq_nibble(o);
    all_zeros |= zero << 4 * awq_nibble(o);
    if (input == o) scales[place + o] = __float2half_rn(scale);
  }
  codes[((size_t)group * kRoundGroup + input) * words + eight] = word;
  if (input == 0) zeros[place / 8] = all_zeros;
}

bool linear_can_round(const DeviceLinear *w) {
  return (w->type == WEIGHT_F16 || w->type == WEIGHT_BF16 || w->type == WEIGHT_F32) && !w->interleaved &&
         w->n_experts == 0 && !w->bias && w->n_in % kRoundGroup == 0 && w->n_out % 8 == 0 && w->n_in <= 65408;
}

/* Rounds a dense matrix into `to`, which linear_place() has placed, by way of the staging memory. */
static Status round_to(const DeviceLinear *from, const DeviceLinear *to, unsigned char *staging,
                       cudaStream_t stream, Error *err) {
  const size_t n_groups = (size_t)(from->n_in / kRoundGroup), n_out = (size_t)from->n_out;
  __half *scales = (__half *)staging;
  uint32_t *zeros = (uint32_t *)(staging + align_up(n_groups * n_out * 2)),
           *codes = zeros + align_up(n_groups * n_out / 2) / 4;
  const dim3 grid((unsigned)(from->n_out / 8), (unsigned)n_groups);
  const LinearPart whole = {from->n_out, 0, 1};
  auto round = [&](auto *w) {
    return launch(round_kernel<std::remove_const_t<std::remove_pointer_t<decltype(w)>>>, grid, kRoundGroup, 0,
                  stream, false, from->name, err, w, from->stride, from->n_out, scales, zeros, codes);
  };
  TRY(from->type == WEIGHT_F16    ? round((const __half *)from->dense)
      : from->type == WEIGHT_BF16 ? round((const __nv_bfloat16 *)from->dense)
                                  : round((const float *)from->dense));
  TRY(linear_fill_weights(to, whole, 0, from->n_in, 4, codes, stream, err));
  TRY(linear_fill_groups(to, whole, zeros, scales, false, stream, err));
  return cuda_status(cudaStreamSynchronize(stream), from->name, err);
}

Status linear_round(const DeviceLinear *dense, DeviceLinear *rounded, void **memory, cudaStream_t stream,
                    Error *err) {
  const size_t numbers = (size_t)dense->n_in * (size_t)dense->n_out, groups = numbers / kRoundGroup;
  const size_t staged = align_up(groups * 2) + align_up(groups / 2) + numbers / 2;
  size_t bytes;
  void *staging = NULL;
  DeviceLinear to;
  *memory = NULL;
  TRY(linear_lay_out(&to, dense->name, WEIGHT_AWQ4, dense->n_in, dense->n_out, kRoundGroup, false, false,
                     &bytes, err));
  Status status = cuda_status(cudaMalloc(memory, bytes), dense->name, err);
  if (!status) status = cuda_status(cudaMalloc(&staging, staged), dense->name, err);
  if (!status) status = linear_place(&to, *memory, stream, err);
  if (!status) status = round_to(dense, &to, (unsigned char *)staging, stream, err);
  cudaFree(staging);
  if (!status) {
    *rounded = to;
    return STATUS_OK;
  }
  cudaFree(*memory);
  *memory = NULL;
  return status;
}
