/* int8_bytes.cu - many tokens with int8 activations on Hopper. Both operands are int8, with a scale for each
 * output and each token (int8_gemm.cuh). int8 weights (W8A8) have this form. 4-bit weights (--act int8)
 * have a rotated copy in int8, made once (linear_rotate()); their x is rotated as well (rotated.cuh).
 *
 * PRECOND  4 bits: a rotated copy.
 * READS    the operands as int8_gemm.cuh does; linear_rotate() reads the 4-bit weights once. */
#include <string.h>

#include "cuda/kernels/linear/wide/rotated.cuh"

namespace {

using namespace int8_gemm;

/* Bytes of a row of W or X. */
size_t row_bytes(const DeviceLinear *w) {
  return (size_t)ceil_div(w->n_in, kPart) * kPart;
}

size_t padded_rows(const DeviceLinear *w) {
  return align_up((size_t)w->n_out, kTileOut);
}

/* Where the parts of the workspace begin. */
struct Scratch {
  size_t x_scales, partial, all; /* offsets in bytes; x is at 0 */
};

Scratch scratch_of(const DeviceLinear *w, int n_tokens, const DeviceLimits &device) {
  const size_t padded = (size_t)padded_tokens(n_tokens);
  Scratch s;
  s.x_scales = padded * row_bytes(w);
  s.partial = s.x_scales + padded * 4;
  s.all = s.partial + partial_bytes(device);
  return s;
}

size_t workspace(const DeviceLinear *w, int n_tokens, const DeviceLimits &device) {
  return scratch_of(w, n_tokens, device).all;
}

/* True if tiles of 256 tokens are expected to be faster than tiles of 128. Tiles are taken in rounds, one by
 * each SM. A tile of 256 tokens takes about 1.9 times as long as one of 128; with few inputs 2.1 times,
 * because the epilogue then takes most of the time (H200). Pairs of blocks that share x (wgmma_tiles.cuh) are
 * not used: with tiles of 256 tokens they take 104 to 107% of the time. */
bool takes_long_tiles(const LinearArgs &args) {
  const auto rounds = [&](int tokens) {
    return ceil_div(ceil_div(args.w->n_out, Shape<128>::kRows) * ceil_div(args.n_tokens, tokens),
                    args.device.n_sms);
  };
  return rounds(256) * (args.w->n_in < 4096 ? 21 : 19) < rounds(128) * 10;
}

/* Rounds x and multiplies by the `variant`-th shape, or the one that is expected to be faster. */
Status launch_int8_bytes(const LinearArgs &args, Error *err) {
  const DeviceLinear *w = args.w;
  TRY(check_variant(args, 2, err));
  const Scratch s = scratch_of(w, args.n_tokens, args.device);
  unsigned char *at = args.workspace;
  const Rows from = {args.x, (size_t)args.x_stride, args.norm, w->n_in};
  const RoundedTo x = {at, (float *)(at + s.x_scales), ceil_div(w->n_in, kPart)};
  Operands of = {w->tiles, (const float *)w->scales, x.x, x.scales, (int *)(at + s.partial)};
  if (w->type == WEIGHT_INT8) {
    TRY(round_tokens(args, from, x, err));
  } else {
    of.w = w->rotated;
    of.w_scales = (const float *)((const unsigned char *)w->rotated + padded_rows(w) * row_bytes(w));
    TRY(round_rotated_rows(from, args.n_tokens, x, args.stream, args.dependent, w->name, err));
  }
  const bool longer = args.variant == 2 || (args.variant == 0 && takes_long_tiles(args));
  return longer ? launch_gemm<Shape<256>>(args, of, err) : launch_gemm<Shape<128>>(args, of, err);
}

} // namespace

const LinearKernel int8_bytes_kernel = {workspace, launch_int8_bytes, false};

/* Bytes of a matrix's rotated copy. PRECOND the matrix can have one. */
static size_t copy_bytes(const DeviceLinear *w) {
  return align_up(padded_rows(w) * (row_bytes(w) + 4));
}

size_t linear_rotated_bytes(const DeviceLinear *w, const char *kernel) {
  const bool wanted = !kernel || strcmp(kernel, "int8_bytes") == 0;
  const bool can = w->type == WEIGHT_AWQ4 && w->n_experts == 0 && rotation_fits(w->n_in);
  return wanted && can ? copy_bytes(w) : 0;
}

Status linear_rotate(DeviceLinear *w, void *memory, void *staging, size_t staging_bytes, cudaStream_t stream,
                     Error *err) {
  const size_t rows = staging_bytes / ((size_t)w->n_in * 2);
  const int at_once = (int)(std::min(padded_rows(w), rows) / kTileOut * kTileOut);
  unsigned char *bytes = (unsigned char *)memory;
  float *scales = (float *)(bytes + padded_rows(w) * row_bytes(w));
  TRY(cuda_status(cudaMemsetAsync(memory, 0, copy_bytes(w), stream), w->name, err));
  for (int first = 0; first < w->n_out; first += at_once) {
    const int n = std::min(at_once, w->n_out - first);
    TRY(linear_dequantise(w, first, n, false, staging, stream, err));
    TRY(round_rotated_rows({(const __half *)staging, (size_t)w->n_in, {}, w->n_in}, n,
                           {bytes + (size_t)first * row_bytes(w), scales + first, ceil_div(w->n_in, kPart)},
                           stream, false, w->name, err));
  }
  w->rotated = memory;
  return STATUS_OK;
}
