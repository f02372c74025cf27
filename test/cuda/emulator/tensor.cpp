/* tensor.cpp - matmuls of a warp (cuda/kernels/ptx/ptx.cuh), tensor maps and their copies, matmuls of a warpgroup, and
 * its registers: cuda/kernels/ptx/wgmma.cuh, as its comments and the PTX ISA 9.0 define it.
 *
 * Called by: kernels/ptx/ptx.cuh and wgmma.cuh of the emulator, and by the name of cuTensorMapEncodeTiled. Always true: a
 * wgmma reads its operands, and returns its sums, when the thread waits for it; until then the sums are
 * NaN, or as integers -1. */
#include <algorithm>
#include <atomic>

#include "blocks.h"
#include "cuda.h"
#include "cuda/kernels/ptx/ptx.cuh"

extern "C" {
#include "base/half.h"
}

namespace emulator {

namespace {

/* A stack of matrices of halves, and the box of it that one copy brings. */
struct Map {
  uint64_t mark;
  const unsigned char *at;
  uint64_t columns, rows, planes, stride, plane_stride; /* of a row and of a matrix, in bytes */
  uint32_t box_columns, box_rows, box_planes;
  bool swizzled;
};
constexpr uint64_t kMapMark = 0x6175'6b20'6d61'7073;
static_assert(sizeof(Map) <= sizeof(CUtensorMap), "a map fits");

/* "Swizzling modes", 128 bytes: permutes the sixteen-byte vectors within each 1024 bytes. */
uint32_t swizzled(uint32_t address) {
  return address ^ (address >> 7 & 7) << 4;
}

void bring_box(const Map &m, unsigned char *to, uint32_t address, int column, int row, int plane) {
  const int64_t first = std::max(column, 0),
                end = std::min((int64_t)column + m.box_columns, (int64_t)m.columns);
  const uint32_t row_bytes = m.box_columns * 2; /* whole vectors of 16 */
  for (uint32_t r = 0; r < m.box_planes * m.box_rows; r++) {
    const int64_t y = (int64_t)row + r % m.box_rows, z = (int64_t)plane + r / m.box_rows;
    unsigned char line[512] = {}; /* zeros outside of the matrix */
    if (first < end && y >= 0 && z >= 0 && y < (int64_t)m.rows && z < (int64_t)m.planes)
      memcpy(line + (first - column) * 2,
             m.at + (uint64_t)z * m.plane_stride + (uint64_t)y * m.stride + (uint64_t)first * 2,
             (size_t)(end - first) * 2);
    for (uint32_t i = 0; i < row_bytes; i += 16) {
      const uint32_t place = address + r * row_bytes + i;
      memcpy(to + ((m.swizzled ? swizzled(place) : place) - address), line + i, 16);
    }
  }
}

const float *table_of_halves() {
  static float *table = [] {
    float *t = new float[65536];
    for (int i = 0; i < 65536; i++) t[i] = f16_to_float((uint16_t)i);
    return t;
  }();
  return table;
}

/* The address of the first row of a matrix descriptor, and its two strides. */
struct Descriptor {
  uint32_t start, leading, stride;
  Descriptor(uint64_t bits)
      : start((uint32_t)(bits & 0x3fff) << 4), leading((uint32_t)(bits >> 16 & 0x3fff) << 4),
        stride((uint32_t)(bits >> 32 & 0x3fff) << 4) {
    if (bits >> 62 != 1 || bits >> 49 & 7) fail("wgmma: only the 128-byte swizzle is emulated");
  }
};

/* b[k][n] from rows of k, 64 columns contiguous ("MN-major"). */
void read_b_columns(float (&b)[32][256], uint64_t descriptor, int columns) {
  const Descriptor d(descriptor);
  for (uint32_t k = 0; k < 16; k++)
    for (uint32_t n = 0; n < (uint32_t)columns; n++) {
      uint32_t place = d.start + n / 64 * d.leading + n % 64 * 2 + k / 8 * d.stride + k % 8 * 128;
      b[k][n] = table_of_halves()[*(const uint16_t *)shared_pointer(swizzled(place))];
    }
}

/* Vector `i` of row n of operand b: 9.7.15 "matrix descriptor". */
void read_vector(const Descriptor &d, int n, uint32_t i, void *to) {
  uint32_t row = d.start + (uint32_t)n / 8 * d.stride + (uint32_t)n % 8 * 128;
  memcpy(to, shared_pointer(swizzled(row + i * 16)), 16);
}

/* Halves: products are exact, sums are taken in double and rounded once. */
struct Halves {
  typedef float Sum;
  typedef double Wide;
  static constexpr int kK = 16, kEach = 2; /* k of a product; of a register */
  static float plus(float value, double sum) { return (float)((double)value + sum); }
  static float a_value(uint32_t word, int e) { return table_of_halves()[word >> 16 * e & 0xffff]; }
  static float b_value(const unsigned char *at) {
    uint16_t half;
    memcpy(&half, at, sizeof half);
    return table_of_halves()[half];
  }
};

/* Unsigned or signed by signed bytes, modulo 2^32. Sums of 32 products are below 2^24, which float holds. */
template <class A> struct Bytes {
  typedef int Sum;
  typedef float Wide;
  static constexpr int kK = 32, kEach = 4;
  static int plus(int value, float sum) { return (int)((int64_t)value + (int64_t)sum); }
  static float a_value(uint32_t word, int e) { return (float)(A)(word >> 8 * e); }
  static float b_value(const unsigned char *at) { return (float)(signed char)*at; }
};

/* b[k][n] from the rows of a matrix descriptor. */
template <class T> void read_b(float (&b)[32][256], uint64_t descriptor, int columns) {
  const Descriptor d(descriptor);
  constexpr int kVector = 4 * T::kEach; /* k of 16 bytes */
  for (int n = 0; n < columns; n++) {
    unsigned char vectors[32];
    for (uint32_t i = 0; i < 2; i++) read_vector(d, n, i, vectors + 16 * i);
    for (int k = 0; k < T::kK; k++) b[k][n] = T::b_value(vectors + k * (16 / kVector));
  }
}

/* a[row][k] of the sixteen rows of a warp from the 64 rows of a matrix descriptor. */
template <class T> void read_a(float (&a)[16][32], uint64_t descriptor, int warp) {
  const Descriptor d(descriptor);
  constexpr int kVector = 4 * T::kEach; /* k of 16 bytes */
  for (int row = 0; row < 16; row++) {
    unsigned char vectors[32];
    for (uint32_t i = 0; i < 2; i++) read_vector(d, warp * 16 + row, i, vectors + 16 * i);
    for (int k = 0; k < T::kK; k++) a[row][k] = T::b_value(vectors + k * (16 / kVector));
  }
}

/* The sixteen rows of a warp. */
template <class T> void multiply(Fiber *const *lanes, size_t which, uint32_t *const *sums) {
  static thread_local float b[32][256];
  float a[16][32];
  const Product &first = lanes[0]->products[which];
  for (int lane = 0; lane < 32; lane++) {
    const Product &p = lanes[lane]->products[which];
    if (p.b != first.b || p.columns != first.columns || p.add != first.add || p.of != first.of ||
        p.a_rows != first.a_rows || p.b_by_columns != first.b_by_columns)
      fail("wgmma: lanes of a warp ask for different products");
    for (int i = 0; i < 4 && p.a; i++)
      for (int e = 0; e < T::kEach; e++)
        a[lane / 4 + i % 2 * 8][lane % 4 * T::kEach + e + i / 2 * 4 * T::kEach] = T::a_value(p.a[i], e);
  }
  if (!first.a) read_a<T>(a, first.a_rows, lanes[0]->warp % 4);
  if (first.b_by_columns)
    read_b_columns(b, first.b, first.columns);
  else
    read_b<T>(b, first.b, first.columns);
  for (int row = 0; row < 16; row++) {
    typename T::Wide sum[256] = {};
    for (int k = 0; k < T::kK; k++)
      for (int n = 0; n < first.columns; n++)
        sum[n] += (typename T::Wide)a[row][k] * (typename T::Wide)b[k][n];
    for (int n = 0; n < first.columns; n++) {
      uint32_t *c = sums[row % 8 * 4 + n % 8 / 2] + n / 8 * 4 + row / 8 * 2 + n % 2;
      typename T::Sum value;
      memcpy(&value, c, sizeof value);
      value = T::plus(first.add ? value : 0, sum[n]);
      memcpy(c, &value, sizeof value);
    }
  }
}

Sums &sums_of(Fiber &f, void *at) {
  for (Sums &s : f.sums)
    if (s.at == at) return s;
  f.sums.push_back({at, 0, {}});
  return f.sums.back();
}

/* Runs when all lanes have arrived: does the wgmma that the warp waits for. */
void multiply_what_is_waited_for(unsigned char (*values)[64]) {
  Fiber *lanes[32];
  uint32_t *sums[32];
  for (int lane = 0; lane < 32; lane++) memcpy(&lanes[lane], values[lane], sizeof *lanes);
  size_t n = lanes[0]->n_due;
  for (Fiber *f : lanes)
    if (f->n_due != n) fail("wgmma: lanes of a warp wait for different products");
  for (size_t i = 0; i < n; i++) {
    for (int lane = 0; lane < 32; lane++)
      sums[lane] = sums_of(*lanes[lane], lanes[lane]->products[i].sums).values.data();
    switch (lanes[0]->products[i].of) {
    case Operands::kHalves: multiply<Halves>(lanes, i, sums); break;
    case Operands::kBytes: multiply<Bytes<uint8_t>>(lanes, i, sums); break;
    case Operands::kSignedBytes: multiply<Bytes<int8_t>>(lanes, i, sums); break;
    }
  }
  for (Fiber *f : lanes) {
    for (size_t i = 0; i < n; i++) {
      Sums &s = sums_of(*f, f->products[i].sums);
      if (--s.under_way > 0) continue;
      memcpy(s.at, s.values.data(), s.values.size() * sizeof s.values[0]);
      f->sums.erase(f->sums.begin() + (&s - f->sums.data()));
    }
    f->products.erase(f->products.begin(), f->products.begin() + (long)n);
  }
}

} // namespace

/* --- matmuls of a warp */

/* f16_to_float() of each, without a branch: compilers do several at once. */
static void widen(const uint16_t *from, float *to, int n) {
  for (int i = 0; i < n; i++) {
    const uint32_t magnitude = (uint32_t)(from[i] & 0x7fff) << 13;
    uint32_t bits = float_bits(bits_float(magnitude) * 0x1p112f);
    bits |= magnitude >= 0x0f800000 ? 0x7f800000 : 0;
    to[i] = bits_float(bits | (uint32_t)(from[i] & 0x8000) << 16);
  }
}

/* Where the sum of column `column` of a row is. */
template <class T> static T *sum_at(unsigned char (*values)[64], int row, int column) {
  const Fragments<T> *f = (const Fragments<T> *)values[row % 8 * 4 + column / 2];
  return f->c + row / 8 * 2 + column % 2;
}

/* sums[8] += a[n_k] b[n_k][8]; registers of 16 bytes, which compilers know best, hold two or four sums. */
template <class T, int n_k> static void add_products(T *sums, const T *a, const T (*b)[8]) {
  typedef T Part __attribute__((vector_size(16)));
  constexpr int kParts = 8 * sizeof(T) / sizeof(Part);
  Part sum[kParts];
#pragma GCC unroll 4
  for (int i = 0; i < kParts; i++) sum[i] = ((const Part *)sums)[i];
  for (int k = 0; k < n_k; k++)
#pragma GCC unroll 4
    for (int i = 0; i < kParts; i++) sum[i] += a[k] * ((const Part *)b[k])[i];
#pragma GCC unroll 4
  for (int i = 0; i < kParts; i++) ((Part *)sums)[i] = sum[i];
}

/* Products are exact, sums are taken in double and rounded once. widen: floats of n numbers of 16 bits. */
template <class Widen> static void multiply_16_bits(unsigned char (*values)[64], Widen widen) {
  uint16_t a_halves[16][16], b_halves[16][8];
  float a[16][16], b[16][8];
  for (int lane = 0; lane < 32; lane++) {
    const Fragments<float> *f = (const Fragments<float> *)values[lane];
    const int g = lane / 4, t = lane % 4;
    for (int i = 0; i < 4; i++) memcpy(&a_halves[g + i % 2 * 8][2 * t + i / 2 * 8], &f->a[i], 4);
    for (int i = 0; i < 2; i++)
      for (int e = 0; e < 2; e++) b_halves[2 * t + e + i * 8][g] = (uint16_t)(f->b[i] >> 16 * e);
  }
  widen(a_halves[0], a[0], 16 * 16);
  widen(b_halves[0], b[0], 16 * 8);
  alignas(16) double wide_a[16][16], wide_b[16][8], sums[8];
  for (int i = 0; i < 16 * 16; i++) wide_a[0][i] = a[0][i];
  for (int i = 0; i < 16 * 8; i++) wide_b[0][i] = b[0][i];
  for (int row = 0; row < 16; row++) {
    for (int n = 0; n < 8; n++) sums[n] = *sum_at<float>(values, row, n);
    add_products<double, 16>(sums, wide_a[row], wide_b);
    for (int n = 0; n < 8; n++) *sum_at<float>(values, row, n) = (float)sums[n];
  }
}

void multiply_halves(unsigned char (*values)[64]) {
  multiply_16_bits(values, [](const uint16_t *from, float *to, int n) { widen(from, to, n); });
}

void multiply_bf16(unsigned char (*values)[64]) {
  multiply_16_bits(values, [](const uint16_t *from, float *to, int n) {
    for (int i = 0; i < n; i++) {
      const uint32_t bits = (uint32_t)from[i] << 16;
      memcpy(to + i, &bits, 4);
    }
  });
}

/* a's are Byte, signed or not, b's are signed. fp32 holds sums of 32 products exactly. */
template <class Byte> void multiply_bytes(unsigned char (*values)[64]) {
  Byte bytes[16][32];
  alignas(16) float a[16][32], b[32][8];
  for (int lane = 0; lane < 32; lane++) {
    const Fragments<int> *f = (const Fragments<int> *)values[lane];
    const int g = lane / 4, t = lane % 4;
    for (int i = 0; i < 4; i++) memcpy(&bytes[g + i % 2 * 8][4 * t + i / 2 * 16], &f->a[i], 4);
    for (int i = 0; i < 2; i++)
      for (int e = 0; e < 4; e++) b[4 * t + e + i * 16][g] = (int8_t)(f->b[i] >> 8 * e);
  }
  for (int i = 0; i < 16 * 32; i++) a[0][i] = bytes[0][i];
  for (int row = 0; row < 16; row++) {
    alignas(16) float sums[8] = {};
    add_products<float, 32>(sums, a[row], b);
    for (int n = 0; n < 8; n++) *sum_at<int>(values, row, n) += (int)sums[n];
  }
}
template void multiply_bytes<uint8_t>(unsigned char (*values)[64]);
template void multiply_bytes<int8_t>(unsigned char (*values)[64]);

/* --- tensor maps */

/* The box to where `to` is in block `rank` of the cluster, which counts its bytes. */
static void copy_box_to(int rank, void *to, const void *map, void *barrier, int column, int row, int plane) {
  Map m;
  memcpy(&m, map, sizeof m);
  if (m.mark != kMapMark) fail("cp.async.bulk.tensor by what is no tensor map");
  if ((uintptr_t)to % 128) fail("cp.async.bulk.tensor: %p is not aligned to 128", to);
  uint32_t address = shared_address(to);
  int bytes = (int)(m.box_columns * m.box_rows * m.box_planes * 2);
  Worker *w = peer(rank);
  if (w->ended) fail("cp.async.bulk.tensor to block %d of the cluster, which has ended", rank);
  unsigned char *place = (unsigned char *)shared_pointer(peer_address(to, rank));
  void *at = shared_pointer(peer_address(barrier, rank));
  memset(place, 0xff, (size_t)bytes);
  do_later(w, "cp.async.bulk.tensor", [=]() {
    bring_box(m, place, address, column, row, plane);
    bytes_came(w, at, bytes, "cp.async.bulk.tensor");
  });
}

void copy_box(void *to, const void *map, void *barrier, int column, int row, int plane) {
  copy_box_to(cluster_rank(), to, map, barrier, column, row, plane);
}

static std::atomic<long> n_copies_to_pairs;

long copies_to_pairs() {
  return n_copies_to_pairs;
}

void copy_box_to_pair(void *to, const void *map, void *barrier, int column, int row) {
  n_copies_to_pairs++;
  for (int rank = 0; rank < 2; rank++) copy_box_to(rank, to, map, barrier, column, row, 0);
}

/* --- matmuls */

void wgmma_fence() {
  this_fiber().fenced = true;
}

namespace {

void start_product(const Product &p) {
  Fiber &f = this_fiber();
  if (!f.fenced) fail("wgmma.mma_async without wgmma.fence before it");
  Sums &s = sums_of(f, p.sums);
  if (s.under_way++ == 0) {
    const uint32_t *values = (const uint32_t *)p.sums;
    s.values.assign(values, values + p.columns / 2);
    memset(p.sums, 0xff, (size_t)p.columns / 2 * sizeof *values);
  }
  f.products.push_back(p);
  f.products.back().group = f.product_groups;
}

} // namespace

void wgmma(float *sums, int columns, const uint32_t *a, uint64_t a_rows, uint64_t b, bool b_by_columns,
           bool add) {
  start_product({sums, a, a_rows, b, b_by_columns, columns, add, Operands::kHalves, 0});
}

void wgmma(int *sums, int columns, const uint32_t *a, uint64_t b, bool add) {
  start_product({sums, a, 0, b, false, columns, add, Operands::kBytes, 0});
}

void wgmma(int *sums, int columns, uint64_t a_rows, uint64_t b, bool add) {
  start_product({sums, nullptr, a_rows, b, false, columns, add, Operands::kSignedBytes, 0});
}

void wgmma_commit() {
  this_fiber().product_groups++;
}

void wgmma_wait(int newest) {
  Fiber &f = this_fiber(), *self = &f;
  f.n_due = 0;
  while (f.n_due < f.products.size() && f.products[f.n_due].group < f.product_groups - newest) f.n_due++;
  if (newest == 0) f.fenced = false;
  meet(~0u, &self, sizeof self, multiply_what_is_waited_for, "wgmma.wait_group");
}

/* --- registers: setmaxnreg redistributes those of a block, 9.7.18 */

void registers_down_to(int n) {
  Fiber &f = this_fiber();
  if (n > f.registers) fail("setmaxnreg.dec to %d from %d", n, f.registers);
  worker->free_registers += f.registers - n;
  worker->registers_freed++;
  wake(worker, worker->for_registers);
  f.registers = n;
}

void registers_up_to(int n) {
  Fiber &f = this_fiber();
  if (n < f.registers) fail("setmaxnreg.inc to %d from %d", n, f.registers);
  while (worker->free_registers < n - f.registers)
    wait_while(worker->for_registers, &worker->registers_freed, ~0u, worker->registers_freed,
               "setmaxnreg.inc");
  worker->free_registers -= n - f.registers;
  f.registers = n;
}

} // namespace emulator

/* Checks the arguments as the driver's documentation requires. */
extern "C" CUresult cuTensorMapEncodeTiled(CUtensorMap *map, CUtensorMapDataType type, cuuint32_t rank,
                                           void *address, const cuuint64_t *size, const cuuint64_t *stride,
                                           const cuuint32_t *box, const cuuint32_t *step,
                                           CUtensorMapInterleave, CUtensorMapSwizzle swizzle,
                                           CUtensorMapL2promotion, CUtensorMapFloatOOBfill) {
  bool known = type == CU_TENSOR_MAP_DATA_TYPE_FLOAT16 && (rank == 2 || rank == 3) &&
               (swizzle == CU_TENSOR_MAP_SWIZZLE_NONE || swizzle == CU_TENSOR_MAP_SWIZZLE_128B);
  bool swizzled = swizzle == CU_TENSOR_MAP_SWIZZLE_128B;
  bool good = known && (uintptr_t)map % 64 == 0 && (uintptr_t)address % 16 == 0 && stride[0] >= size[0] * 2 &&
              box[0] * 2 % 16 == 0 && (!swizzled || box[0] * 2 <= 128);
  for (cuuint32_t i = 0; good && i < rank; i++)
    good = size[i] > 0 && size[i] <= (uint64_t)1 << 32 && box[i] > 0 && box[i] <= 256 && step[i] == 1 &&
           (i == 0 || (stride[i - 1] % 16 == 0 && stride[i - 1] < (uint64_t)1 << 40));
  if (!good) return CUDA_ERROR_INVALID_VALUE;
  /* Rows shorter than the swizzle's 128 bytes are not emulated. */
  if (swizzled && box[0] * 2 != 128) return CUDA_ERROR_INVALID_VALUE;
  emulator::Map m = {emulator::kMapMark,
                     (const unsigned char *)address,
                     size[0],
                     size[1],
                     rank == 3 ? size[2] : 1,
                     stride[0],
                     rank == 3 ? stride[1] : 0,
                     box[0],
                     box[1],
                     rank == 3 ? box[2] : 1,
                     swizzled};
  memset(map, 0, sizeof *map);
  memcpy(map, &m, sizeof m);
  return CUDA_SUCCESS;
}
