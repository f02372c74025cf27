/* dense_tensorcore.cu - fp16 or bf16 weights by fp16 activations on tensor cores, up to 128 tokens, with sums
 * in an order that does not depend on the number of tokens.
 *
 *     y[m][o] = sum_i w[o][i] x[m][i]
 *
 * cuBLAS is faster at some counts of tokens, but chooses kernel and split-K by the count. Here a launch has
 * one tile of kTokens tokens, so stream-K divides a matrix in one way. Each block's part of an output is one
 * chain of mma in the order of k. bf16 becomes fp16 in registers, as in cublas_matmul.cu.
 *
 *   block  128 outputs x 128 tokens: 4 x 2 warps of 32 x 64; fragments of tokens past the last are left out
 *   stage  64 inputs: w [128][128 bytes], x [128][128 bytes], 16-byte vector c of row r at c ^ (r % 8)
 *
 * PRECOND  n_tokens <= kTokens; x 16-byte aligned, x_stride % 8 == 0.
 * READS    the weights once; reference: dense.cu. */
#include <cuda_bf16.h>

#include "cuda/kernels/linear/dense/halves.cuh"
#include "cuda/kernels/linear/tile_kernel.cuh"

namespace {

struct Shape : WarpGrid<2, 4, 2, 8> {
  static constexpr int kBlocks = 2, kStages = 3, kIn = 64; /* kBlocks: of an SM; kIn: inputs of a stage */
  static constexpr int kWeightBytes = kTileRows * kTileOut * kIn * 2,
                       kStageBytes = kWeightBytes + kTokens * kIn * 2;
};

struct Args {
  const void *w;
  size_t stride;
  const __half *x;
  int x_stride, n_in, n_rows; /* n_rows: of w, rounded up to 16 */
  TileArgs<float> tiles;
};

/* Copies 64 inputs, from k on, of kRows rows. Rows from n on and inputs from n_in on become zeros. */
template <int kRows>
__device__ __forceinline__ void load_rows(unsigned char *to, const __half *from, size_t stride, int n, int k,
                                          int n_in) {
  const int vector = threadIdx.x % 8, valid = max(0, min(16, 2 * (n_in - k - vector * 8)));
#pragma unroll
  for (int i = 0; i < kRows / (Shape::kThreads / 8); i++) {
    const int row = threadIdx.x / 8 + i * (Shape::kThreads / 8);
    const bool inside = row < n && valid > 0;
    copy_async_16(to + row * 128 + (vector ^ (row % 8)) * 16,
                  inside ? from + (size_t)row * stride + k + vector * 8 : from, inside ? valid : 0);
  }
}

/* The address of vector `vector` of a row of a stage's matrix. */
__device__ __forceinline__ uint32_t vector_at(uint32_t matrix, int row, int vector) {
  return matrix + (uint32_t)(row * 128 + (vector ^ (row % 8)) * 16);
}

/* Adds a stage's products to the warp's sums; n: the warp's fragments that have tokens. */
template <class T>
__device__ __forceinline__ void multiply_stage(const unsigned char *stage, int n, Shape::Sums &acc) {
  const int lane = threadIdx.x % 32, row = Shape::warp_tile_row() * kTileOut + lane % 16;
  const uint32_t w = shared_address(stage), x = w + Shape::kWeightBytes;
#pragma unroll
  for (int h = 0; h < 2; h++) { /* 32 inputs */
    uint32_t a[Shape::kR][2][4];
#pragma unroll
    for (int r = 0; r < Shape::kR; r++)
#pragma unroll
      for (int j = 0; j < 2; j++) {
        ldmatrix_x4(a[r][j], vector_at(w, row + r * kTileOut, 4 * h + 2 * j + lane / 16));
#pragma unroll
        for (uint32_t &two : a[r][j]) two = halves<T>(two);
      }
#pragma unroll
    for (int i = 0; i < Shape::kN; i++) {
      if (i >= n) break;
      uint32_t b[4];
      ldmatrix_x4(b, vector_at(x, Shape::warp_token() + i * 8 + lane % 8, 4 * h + lane / 8));
#pragma unroll
      for (int r = 0; r < Shape::kR; r++) {
        mma_f16_m16n8k16(acc[r * Shape::kN + i], a[r][0], b[0], b[1]);
        mma_f16_m16n8k16(acc[r * Shape::kN + i], a[r][1], b[2], b[3]);
      }
    }
  }
}

template <class T>
__global__ void __launch_bounds__(Shape::kThreads, Shape::kBlocks) kernel(const __grid_constant__ Args a) {
  extern __shared__ __align__(128) unsigned char shared[];
  Shape::Sums acc = {};
  float(&flat)[Shape::kR * Shape::kN * 4] = reinterpret_cast<float(&)[Shape::kR * Shape::kN * 4]>(acc);
  const int n_fragments = max(0, min(Shape::kN, (a.tiles.n_tokens - Shape::warp_token() + 7) / 8));
  stream_k::run<Shape::kStages, Shape::kStageBytes, Shape::kThreads>(
      a.tiles.work, 1, shared, a.tiles.partial, a.tiles.counters,
      [&](unsigned char *stage, const stream_k::Cursor &at, bool) {
        const int row0 = at.out_tile * Shape::kTileRows * kTileOut, k = at.step * Shape::kIn;
        load_rows<Shape::kTileRows * kTileOut>(stage, (const __half *)a.w + (size_t)row0 * a.stride, a.stride,
                                               a.n_rows - row0, k, a.n_in);
      },
      [&](unsigned char *stage, const stream_k::Cursor &at, bool) {
        load_rows<Shape::kTokens>(stage + Shape::kWeightBytes, a.x, (size_t)a.x_stride, a.tiles.n_tokens,
                                  at.step * Shape::kIn, a.n_in);
      },
      [&](const unsigned char *stage) { multiply_stage<T>(stage, n_fragments, acc); },
      [&](const stream_k::Cursor &at, auto whole) {
        if (whole(flat)) Shape::store(a.tiles.out, at.out_tile * Shape::kTileRows, 0, a.tiles.n_tokens, acc);
#pragma unroll
        for (float &sum : flat) sum = 0;
      });
}

template <class T> Status launch_type(const LinearArgs &args, Error *err) {
  constexpr int kLeastSteps = 256 / Shape::kIn; /* 256 inputs: with fewer a block would only fill its ring */
  const DeviceLinear *w = args.w;
  const Args a = {
      w->dense,
      w->stride,
      args.x,
      args.x_stride,
      w->n_in,
      ceil_div(w->n_out, kTileOut) * kTileOut,
      tile_args<Shape>(args, ceil_div(w->n_in, Shape::kIn), kLeastSteps, (float *)args.workspace)};
  return launch(kernel<T>, dim3((unsigned)a.tiles.work.n_blocks), Shape::kThreads,
                (size_t)Shape::kStages * Shape::kStageBytes, args.stream, args.dependent, w->name, err, a);
}

Status launch_dense_tensorcore(const LinearArgs &args, Error *err) {
  return args.w->type == WEIGHT_F16 ? launch_type<__half>(args, err) : launch_type<__nv_bfloat16>(args, err);
}

size_t workspace(const DeviceLinear *, int, const DeviceLimits &device) {
  return stream_k::partial_bytes(device.n_sms * Shape::kBlocks, Shape::kThreads, Shape::kR * Shape::kN * 4);
}

} // namespace

const LinearKernel dense_tensorcore_kernel = {workspace, launch_dense_tensorcore, false};
