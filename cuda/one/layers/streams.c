/* streams.c - see streams.h.
 *
 * Always true: x is 0 where a block (attention or MLP) begins, so what the block adds to x is its result. The
 *              block reads h, its router `mixed`. With few rows the next mix injects x into the streams, or
 *              settle() does before anything else reads the streams. A host function, which the CUDA stream
 *              or a graph calls, reads rows of the n-grams' table from the mapped file. */
#include "cuda/one/layers/streams.h"

#include "cuda/kernels/ops/streams.h"
#include "cuda/kernels/ops/streams_few.h"
#include "cuda/kernels/ptx/device.h"
#include "cuda/one/products.h"
#include "model/ngram_rows.h"

static size_t row_of_streams(const ModelConfig *c) {
  return (size_t)c->streams.n * (size_t)c->hidden;
}

void streams_open(BackendState *s) {
  const ModelConfig *c = &s->loaded->model->config;
  const size_t n = (size_t)s->options.max_chunk * (size_t)c->ngrams.width;
  for (size_t i = 0; s->loaded->model->dummy && i < n; i++)
    s->host_ngram_rows[i] = (float)(i * 37 % 101) / 50 - 1; /* a dummy model has no table: made-up numbers */
  for (int i = 0; i < c->n_layers; i++)
    if (config_layer(c, i).ngrams) ngram_hash(c, i, &s->ngram_hashes[i]);
}

Status streams_begin(BackendState *s, int n_rows, Error *err) {
  const ModelConfig *c = &s->loaded->model->config;
  s->streams = s->all_streams;
  s->streams_pending = false;
  return ops_streams_begin(s->x, c->streams.n, c->hidden, n_rows, s->streams, s->loaded->stream, err);
}

/* Injects x into the streams if the injection is pending. */
static Status settle(BackendState *s, int n_rows, Error *err) {
  const ModelConfig *c = &s->loaded->model->config;
  if (!s->streams_pending) return STATUS_OK;
  s->streams_pending = false;
  return ops_streams_inject(s->x, s->stream_factors, c->streams.n, c->hidden, n_rows, s->streams,
                            s->loaded->stream, err);
}

/* --- mixes */

/* A mix of streams (buffers.def), and where its result goes. */
typedef struct {
  const DeviceProjections *in; /* mix_down, then inject */
  const DeviceLinear *up;
  StreamRows rows;
  void *h;
  bool of_block; /* false: h is the logits' input, and nothing is injected afterwards */
} Mix;

static Status mix_many(BackendState *s, const Mix *mix, int n_rows, Error *err) {
  const ModelConfig *c = &s->loaded->model->config;
  const DeviceProjections *in = mix->in;
  const int n = c->streams.n, rank = c->streams.rank, u_stride = padded_row((int)row_of_streams(c));
  cudaStream_t stream = s->loaded->stream;
  TRY(ops_streams_norm(&mix->rows, n_rows, s->stream_inputs, u_stride, stream, err));
  for (int i = 0; i < in->n_parts; i++)
    TRY(products_matmul(s, &in->parts[i], s->stream_inputs, u_stride, n_rows, LINEAR_TO_F32,
                        s->stream_sums + in->first[i], mix->of_block ? rank + n : rank, err));
  TRY(ops_streams_ranks(s->stream_sums, n, rank, n_rows, s->stream_ranks, padded_row(rank),
                        mix->of_block ? s->stream_factors : NULL, stream, err));
  TRY(products_matmul(s, mix->up, s->stream_ranks, padded_row(rank), n_rows, LINEAR_TO_F32, s->stream_weights,
                      n * c->hidden, err));
  return ops_streams_mix(&mix->rows, s->stream_weights, n_rows, mix->h, s->h_stride,
                         mix->of_block ? s->mixed : NULL, mix->of_block ? s->x : NULL, stream, err);
}

/* Row `row` of a dense matrix; its numbers have 16 bits. */
static const void *row_at(const DeviceLinear *w, int row) {
  return (const char *)w->dense + (size_t)row * w->stride * 2;
}

/* The call for few rows, from mix->rows.first_row on. */
static FewMix few_of(const BackendState *s, const Mix *mix) {
  const ModelConfig *c = &s->loaded->model->config;
  const DeviceProjections *in = mix->in;
  const DeviceLinear *down = &in->parts[0], *inject = &in->parts[in->n_parts - 1], *up = mix->up;
  return (FewMix){
      .n = c->streams.n,
      .hidden = c->hidden,
      .rank = c->streams.rank,
      .streams = s->streams + (size_t)mix->rows.first_row * row_of_streams(c),
      .next_streams =
          s->streams_pending ? (s->streams == s->all_streams ? s->spare_streams : s->all_streams) : NULL,
      .x = s->streams_pending ? s->x : NULL,
      .factors = s->stream_factors,
      .bf16 = down->type == WEIGHT_BF16,
      .down = down->dense,
      .inject = mix->of_block ? row_at(inject, c->streams.rank - in->first[in->n_parts - 1]) : NULL,
      .up = up->dense,
      .down_stride = down->stride,
      .inject_stride = inject->stride,
      .up_stride = up->stride,
      .norm = mix->rows.norm,
      .eps = mix->rows.eps,
      .inverses = s->stream_inverses,
      .ranks = s->few_ranks,
      .new_factors = mix->of_block ? s->spare_factors : NULL,
      .h = mix->h,
      .h_stride = s->h_stride,
      .mixed = mix->of_block ? s->mixed : NULL,
      .zeroed = mix->of_block ? s->x : NULL};
}

/* True if all matrices of a mix are of fp16, or all of bf16, on the device. */
static bool are_halves(const Mix *mix) {
  const WeightType type = mix->up->type;
  bool are = (type == WEIGHT_F16 || type == WEIGHT_BF16) && !mix->up->host;
  for (int i = 0; i < mix->in->n_parts; i++)
    are = are && mix->in->parts[i].type == type && !mix->in->parts[i].host;
  return are;
}

static bool supports_few(const BackendState *s, const Mix *mix, const FewMix *few, int n_rows) {
  return !s->options.invariant && !mix->rows.rows && are_halves(mix) && ops_streams_few_supports(few, n_rows);
}

static Status run_mix(BackendState *s, const Mix *mix, int n_rows, Error *err) {
  const FewMix few = few_of(s, mix);
  if (!supports_few(s, mix, &few, n_rows)) {
    TRY(settle(s, n_rows, err));
    return mix_many(s, mix, n_rows, err);
  }
  if (few.next_streams) s->streams = few.next_streams;
  if (few.new_factors) s->spare_factors = s->stream_factors, s->stream_factors = few.new_factors;
  s->streams_pending = false;
  return ops_streams_few(&few, n_rows, s->loaded->stream, err);
}

static StreamRows rows_from(const BackendState *s, const float *norm) {
  const ModelConfig *c = &s->loaded->model->config;
  return (StreamRows){.n = c->streams.n,
                      .hidden = c->hidden,
                      .streams = s->streams,
                      .norm = norm,
                      .eps = (float)c->norm_eps,
                      .inverses = s->stream_inverses};
}

static Status mix_for_block(BackendState *s, TokenRange span, Mix mix, Error *err) {
  mix.h = s->h, mix.of_block = true;
  s->ready = READY_IN_H;
  return run_mix(s, &mix, rows_of(s, span), err);
}

Status cuda_mix_for_attention(BackendState *s, TokenRange span, int layer, Error *err) {
  const DeviceLayer *l = &s->loaded->layers[layer];
  return mix_for_block(
      s, span, (Mix){.in = &l->attn_mix, .up = &l->attn_mix_up, .rows = rows_from(s, l->attn_norm)}, err);
}

Status cuda_mix_for_mlp(BackendState *s, TokenRange span, int layer, Error *err) {
  const DeviceLayer *l = &s->loaded->layers[layer];
  return mix_for_block(
      s, span, (Mix){.in = &l->mlp_mix, .up = &l->mlp_mix_up, .rows = rows_from(s, l->mlp_norm)}, err);
}

Status streams_mix_logits(BackendState *s, TokenRange span, int first_row, int n_rows, void *out,
                          Error *err) {
  const bool all = !span.parts && n_rows == span.n_tokens; /* then run_mix() injects a pending x */
  if (!all) TRY(settle(s, rows_of(s, span), err));
  Mix mix = {
      .in = &s->loaded->mix, .up = &s->loaded->mix_up, .rows = rows_from(s, s->loaded->final_norm), .h = out};
  mix.rows.rows = span.parts ? s->rows.logit_rows : NULL, mix.rows.first_row = first_row;
  return run_mix(s, &mix, n_rows, err);
}

Status cuda_inject_streams(BackendState *s, TokenRange span, int layer, Error *err) {
  const int n_rows = rows_of(s, span);
  s->streams_pending = true;
  return n_rows > STREAMS_FEW_ROWS ? settle(s, n_rows, err) : STATUS_OK;
}

/* --- n-grams */

/* Called by CUDA: host_rows = the table's rows for `tokens`. */
static void read_rows(void *user) {
  const NgramCall *call = user;
  const BackendState *s = call->state;
  const ModelConfig *c = &s->loaded->model->config;
  const NgramConfig *n = &c->ngrams;
  const NgramHash *hash = &s->ngram_hashes[call->layer];
  const ModelLayer *table = &s->loaded->model->layers[call->layer];
  if (s->loaded->model->dummy) return;
#pragma omp parallel for if (call->n_rows > 4) num_threads(s->loaded->n_threads) /* a row can need the disk */
  for (int r = 0; r < call->n_rows; r++)
    ngram_read_rows(n, hash, table, s->ngram_tokens + (size_t)r * (size_t)n->longest,
                    s->host_ngram_rows + (size_t)r * (size_t)n->width);
}

static Ngrams ngrams_of(const BackendState *s, TokenRange span, int layer) {
  const ModelConfig *c = &s->loaded->model->config;
  return (Ngrams){.n = c->streams.n,
                  .hidden = c->hidden,
                  .longest = c->ngrams.longest,
                  .taps = c->ngrams.taps,
                  .empty = c->ngrams.empty,
                  .ids = s->rows.ids,
                  .pos = s->rows.pos,
                  .state = state_of_ngrams(s, layer),
                  .segments = state_segments(s, span),
                  .conv = s->loaded->layers[layer].ngram_taps,
                  .gated = s->ngram_gated,
                  .input = s->ngram_conv_inputs,
                  .streams = s->streams};
}

/* ngram_inputs = the table's rows for the step's tokens. */
static Status fetch_rows(BackendState *s, TokenRange span, int layer, int n_rows, Error *err) {
  const ModelConfig *c = &s->loaded->model->config;
  const int width = c->ngrams.width;
  cudaStream_t stream = s->loaded->stream;
  NgramCall *call = &s->ngram_calls[(size_t)layer * (size_t)s->options.max_chunk + (size_t)n_rows - 1];
  const Ngrams rows = ngrams_of(s, span, layer);
  *call = (NgramCall){s, layer, n_rows};
  TRY(ops_ngram_tokens(&rows, n_rows, s->ngram_tokens, stream, err));
  TRY(cuda_status(cudaLaunchHostFunc(stream, read_rows, call), "cannot call the CPU", err));
  TRY(cuda_status(cudaMemcpyAsync(s->ngram_rows, s->host_ngram_rows,
                                  (size_t)n_rows * (size_t)width * sizeof *s->host_ngram_rows,
                                  cudaMemcpyHostToDevice, stream),
                  "cannot copy rows of n-grams", err));
  return ops_round(s->ngram_rows, width, 1, width, n_rows, s->ngram_inputs, padded_row(width), stream, err);
}

Status cuda_add_ngrams(BackendState *s, TokenRange span, int layer, Error *err) {
  const ModelConfig *c = &s->loaded->model->config;
  const DeviceLayer *w = &s->loaded->layers[layer];
  const int n_rows = rows_of(s, span), x_stride = padded_row(c->ngrams.width);
  TRY(settle(s, n_rows, err));
  TRY(fetch_rows(s, span, layer, n_rows, err));
  TRY(products_matmul(s, &w->ngram_key, s->ngram_inputs, x_stride, n_rows, LINEAR_TO_F32, s->stream_weights,
                      (int)row_of_streams(c), err));
  TRY(products_matmul(s, &w->ngram_value, s->ngram_inputs, x_stride, n_rows, LINEAR_TO_F32, s->ngram_values,
                      c->hidden, err));
  const NgramGates gates = {.n = c->streams.n,
                            .hidden = c->hidden,
                            .eps = (float)c->norm_eps,
                            .keys = s->stream_weights,
                            .values = s->ngram_values,
                            .streams = s->streams,
                            .key_norm = w->ngram_key_norm,
                            .query_norm = w->ngram_query_norm,
                            .conv_norm = w->ngram_conv_norm,
                            .gated = s->ngram_gated,
                            .input = s->ngram_conv_inputs};
  TRY(ops_ngram_gate(&gates, n_rows, s->loaded->stream, err));
  const Ngrams rows = ngrams_of(s, span, layer);
  return ops_ngram_add(&rows, n_rows, s->loaded->stream, err);
}
