/* relayout.cu - from a checkpoint's layouts to the device's (layout.cuh), part by part as they are staged.
 *
 * Called by: the backend's loader, tests. Always true: a fill writes only the rows of its part, so the parts
 * of a stacked or interleaved matrix can come in any order on one stream; padding stays zero. */
#include <string.h>

#include "cuda/linear/kernel.cuh"

/* Types in tiles: the quantised ones, which also have groups, and int8. */
static bool tiled(WeightType type) {
  return weight_is_quantised(type) || type == WEIGHT_INT8;
}

static size_t element_bytes(WeightType type) {
  return type == WEIGHT_F32 ? 4 : 2;
}

/* Bytes of the areas of a matrix, each aligned, in memory order; weights are tiles or dense. */
struct Areas {
  size_t weights, scales, zeros, bias;
};

static Areas areas_of(const DeviceLinear *w) {
  Areas a = {};
  size_t rows = align_up((size_t)w->n_out, kTileOut);
  if (weight_is_quantised(w->type)) {
    size_t bits = w->type == WEIGHT_AWQ4 ? 4 : 8, groups = rows * (size_t)w->n_groups;
    a.weights = rows * align_up((size_t)w->n_in, kPadIn) * bits / 8;
    a.scales = align_up(groups * 2, 256);
    a.zeros = align_up(groups * bits / 8, 256);
  } else if (w->type == WEIGHT_INT8) {
    a.weights = rows * align_up((size_t)w->n_in, kPadIn);
    a.scales = align_up(rows * 4, 256);
  } else {
    a.weights = rows * w->stride * element_bytes(w->type);
  }
  a.weights = align_up(a.weights, 256);
  a.bias = w->has_bias ? align_up(rows * 4, 256) : 0;
  return a;
}

Status linear_lay_out(DeviceLinear *w, const char *name, WeightType type, int n_in, int n_out, int group,
                      bool interleaved, bool bias, size_t *bytes, Error *err) {
  memset(w, 0, sizeof *w);
  if (n_in <= 0 || n_out <= 0 || n_in > 1 << 24 || n_out > 1 << 24)
    return error_set(err, STATUS_MODEL, "%s: a matrix of %d inputs by %d outputs", name, n_in, n_out);
  if (weight_is_quantised(type) && (group <= 0 || n_in % group != 0))
    return error_set(err, STATUS_MODEL, "%s: %d inputs do not divide into groups of %d", name, n_in, group);
  if (tiled(type) && n_in > 65408) /* group_of(), int8 sums */
    return error_set(err, STATUS_MODEL, "%s: %d inputs, expected at most 65408", name, n_in);
  if (type == WEIGHT_INT8 && n_out > kCounters * 128) /* int8_token.cu: a counter for 128 outputs */
    return error_set(err, STATUS_MODEL, "%s: %d outputs, expected at most %d", name, n_out, kCounters * 128);
  if ((weight_is_quantised(type) || interleaved) && n_out % (interleaved ? 16 : 8) != 0)
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
    w->group = n_in == group ? padded : group;
    w->n_groups = ceil_div(padded, w->group);
  } else if (!tiled(type)) {
    w->stride = align_up((size_t)n_in, 8);
  }
  Areas a = areas_of(w);
  *bytes = a.weights + a.scales + a.zeros + a.bias;
  return STATUS_OK;
}

Status linear_place(DeviceLinear *w, void *memory, cudaStream_t stream, Error *err) {
  Areas a = areas_of(w);
  unsigned char *p = (unsigned char *)memory;
  if (tiled(w->type)) {
    w->tiles = p;
    w->scales = p + a.weights;
    if (a.zeros) w->zeros = p + a.weights + a.scales;
  } else {
    w->dense = p;
  }
  w->bias = w->has_bias ? (const float *)(p + a.weights + a.scales + a.zeros) : NULL;
  return cuda_status(cudaMemsetAsync(memory, 0, a.weights + a.scales + a.zeros + a.bias, stream), w->name,
                     err);
}

/* Slab of the part at slab `slab` of the matrix, or -1. */
__device__ __forceinline__ int slab_of_part(const LinearPart &part, int slab) {
  int i = slab - part.first_slab;
  if (i < 0 || i % part.slab_step) return -1;
  i /= part.slab_step;
  return i < part.n_out / 8 ? i : -1;
}

/* Nibble of a word that holds column c of eight: nibble i holds column [0,2,4,6,1,3,5,7][i]. Source: AutoAWQ,
 * awq/utils/packing_utils.py, AWQ_ORDER. */
__device__ __forceinline__ int awq_nibble(int c) {
  return c / 2 + 4 * (c % 2);
}

/* The weight of column g of a slab: from bytes [n_in][n_out], or from words as above. */
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

/* A thread writes one lane of one tile of kBits: 16 inputs of rows g and g + 8, unless another part has
 * them. */
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

/* A thread writes rows g and g + 8 of one tile and group; the layout has n_groups, the checkpoint
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

/* Row of the matrix that row `row` of the part becomes; the same in a dense matrix of one part. */
__device__ __forceinline__ int row_of_part(const LinearPart &part, int row) {
  return 8 * (part.first_slab + row / 8 * part.slab_step) + row % 8;
}

/* A thread writes one word of a tile, four inputs of one row; a block of 256 covers 16 tiles of a row. */
__global__ void fill_tiles_int8(uint32_t *tiles, int n_tiles_in, LinearPart part, int first_row, int n_in,
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
  /* vector j / 2 of the lane, word 2 (j % 2), the next for row g + 8 */
  size_t tile = (size_t)(row / kTileOut) * n_tiles_in + tile_in;
  tiles[(tile * 64 + j / 2 * 32 + lane) * 4 + j % 2 * 2 + row % kTileOut / 8] = bytes;
}

Status linear_fill_int8(const DeviceLinear *w, LinearPart part, int first_row, int n_rows, const void *staged,
                        cudaStream_t stream, Error *err) {
  int tiles_in = (int)align_up((size_t)w->n_in, kPadIn) / kTileIn;
  dim3 grid((unsigned)n_rows, (unsigned)ceil_div(tiles_in, 16));
  return launch(fill_tiles_int8, grid, 256, 0, stream, false, w->name, err, (uint32_t *)w->tiles, tiles_in,
                part, first_row, w->n_in, (const uint8_t *)staged);
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
