/* streams.c - see streams.h.
 *
 * Always true: x is 0 where a block (attention or MLP) begins, so what the block adds to x is its result. The
 *              block reads h, its router `mixed`. With few rows the next mix injects x into the streams, or
 *              settle() does before anything else reads the streams. A host function, which the CUDA stream
 *              or a graph calls, reads rows of the n-grams' table from the mapped file. */
#include "cuda/one/layers/streams.h"

#include <stdlib.h>
#include <string.h>

#include "cuda/kernels/ops/streams.h"
#include "cuda/kernels/ops/streams_few.h"
#include "cuda/kernels/ptx/device.h"
#include "cuda/one/products.h"
#include "model/ngram_rows.h"

/* The argument of the host function read_rows(), for one layer and one number of rows. */
struct NgramCall {
  const BackendState *state;
  int layer, n_rows;
};

static size_t row_of_streams(const ModelConfig *c) {
  return (size_t)c->streams.n * (size_t)c->hidden;
}

static int count_ngram_layers(const ModelConfig *c) {
  int n = 0;
  for (int i = 0; i < c->n_layers; i++) n += config_layer(c, i).ngrams > 0;
  return n;
}

void streams_place(BackendState *s, const ModelConfig *c, Buffers *m) {
  const bool ngrams = c->ngrams.longest > 0;
  const int chunk = s->options.max_chunk, logits = s->options.max_logit_rows;
  const size_t rows = c->streams.n == 0 ? 0 : (size_t)(chunk > logits ? chunk : logits),
               own = c->streams.n == 0 ? 0 : (size_t)chunk, with_ngrams = ngrams ? own : 0,
               width = row_of_streams(c), n = (size_t)c->streams.n, rank = (size_t)c->streams.rank;
  StreamState *to = &s->stream;
  const size_t few = own < STREAMS_FEW_ROWS ? own : STREAMS_FEW_ROWS;
  to->all = to->streams = buffers_take(m, own * width, sizeof(float));
  to->spare = buffers_take(m, few * width, sizeof(float));
  to->sums = buffers_take(m, rows * (rank + n), sizeof(float));
  to->weights = buffers_take(m, rows * width, sizeof(float));
  to->inverses = buffers_take(m, rows * n, sizeof(float));
  to->factors = buffers_take(m, rows * n, sizeof(float));
  to->spare_factors = buffers_take(m, rows * n, sizeof(float));
  to->u = buffers_take(m, rows * (size_t)padded_row((int)width), 2);
  to->ranks = buffers_take(m, rows * (size_t)padded_row((int)rank), 2);
  to->few_ranks = buffers_take(m, few * rank, sizeof(float));
  to->mixed = buffers_take(m, own * (size_t)c->hidden, sizeof(float));
  to->ngram_rows = buffers_take(m, with_ngrams * (size_t)c->ngrams.width, sizeof(float));
  to->ngram_x = buffers_take(m, with_ngrams * (size_t)padded_row(c->ngrams.width), 2);
  to->values = buffers_take(m, with_ngrams * (size_t)c->hidden, sizeof(float));
  to->gated = buffers_take(m, with_ngrams * width, sizeof(float));
  to->conv_inputs = buffers_take(m, with_ngrams * width, sizeof(float));
}

Status streams_open(BackendState *s, Error *err) {
  const ModelConfig *c = &s->loaded->model->config;
  const NgramConfig *n = &c->ngrams;
  const size_t chunk = (size_t)s->options.max_chunk, n_layers = (size_t)count_ngram_layers(c);
  StreamState *to = &s->stream;
  if (c->streams.n == 0 || n_layers == 0) return STATUS_OK;
  const size_t tokens = chunk * (size_t)n->longest * sizeof *to->tokens,
               rows = chunk * (size_t)n->width * sizeof *to->host_rows;
  TRY(cuda_status(cudaHostAlloc((void **)&to->tokens, tokens, cudaHostAllocMapped), "cannot pin memory",
                  err));
  TRY(cuda_status(cudaHostAlloc((void **)&to->host_rows, rows, cudaHostAllocDefault), "cannot pin memory",
                  err));
  memset(to->tokens, 0, tokens); /* rows that pad a step have the tokens of an earlier step */
  for (size_t i = 0; i < rows / sizeof *to->host_rows; i++) /* a dummy model has no table: made-up numbers */
    to->host_rows[i] = s->loaded->model->dummy ? (float)(i * 37 % 101) / 50 - 1 : 0;
  TRY(NEW(to->calls, n_layers * chunk, "session", err));
  TRY(NEW(to->hashes, n_layers, "session", err));
  for (int i = 0; i < c->n_layers; i++) {
    const size_t index = (size_t)config_layer(c, i).ngrams - 1;
    if (!config_layer(c, i).ngrams) continue;
    ngram_hash(c, i, &to->hashes[index]);
    for (size_t row = 0; row < chunk; row++) to->calls[index * chunk + row] = (NgramCall){s, i, (int)row + 1};
  }
  return STATUS_OK;
}

void streams_close(BackendState *s) {
  cudaFreeHost(s->stream.tokens);
  cudaFreeHost(s->stream.host_rows);
  free(s->stream.calls);
  free(s->stream.hashes);
}

Status streams_begin(BackendState *s, int n_rows, Error *err) {
  const ModelConfig *c = &s->loaded->model->config;
  s->stream.streams = s->stream.all;
  s->stream.pending = false;
  return ops_streams_begin(s->x, c->streams.n, c->hidden, n_rows, s->stream.streams, s->loaded->stream, err);
}

/* Injects x into the streams if the injection is pending. */
static Status settle(BackendState *s, int n_rows, Error *err) {
  const ModelConfig *c = &s->loaded->model->config;
  if (!s->stream.pending) return STATUS_OK;
  s->stream.pending = false;
  return ops_streams_inject(s->x, s->stream.factors, c->streams.n, c->hidden, n_rows, s->stream.streams,
                            s->loaded->stream, err);
}

/* --- mixes */

/* A mix of streams (StreamState), and where its result goes. */
typedef struct {
  const DeviceProjections *in; /* mix_down, then inject */
  const DeviceLinear *up;
  StreamRows rows;
  void *h;
  bool of_block; /* false: h is the logits' input, and nothing is injected afterwards */
} Mix;

static Status mix_many(BackendState *s, const Mix *mix, int n_rows, Error *err) {
  const ModelConfig *c = &s->loaded->model->config;
  const StreamState *own = &s->stream;
  const DeviceProjections *in = mix->in;
  const int n = c->streams.n, rank = c->streams.rank, u_stride = padded_row((int)row_of_streams(c));
  cudaStream_t stream = s->loaded->stream;
  TRY(ops_streams_norm(&mix->rows, n_rows, own->u, u_stride, stream, err));
  for (int i = 0; i < in->n_parts; i++)
    TRY(products_matmul(s, &in->parts[i], own->u, u_stride, n_rows, LINEAR_TO_F32, own->sums + in->first[i],
                        mix->of_block ? rank + n : rank, err));
  TRY(ops_streams_ranks(own->sums, n, rank, n_rows, own->ranks, padded_row(rank),
                        mix->of_block ? own->factors : NULL, stream, err));
  TRY(products_matmul(s, mix->up, own->ranks, padded_row(rank), n_rows, LINEAR_TO_F32, own->weights,
                      n * c->hidden, err));
  return ops_streams_mix(&mix->rows, own->weights, n_rows, mix->h, s->h_stride,
                         mix->of_block ? own->mixed : NULL, mix->of_block ? s->x : NULL, stream, err);
}

/* Row `row` of a dense matrix; its numbers have 16 bits. */
static const void *row_at(const DeviceLinear *w, int row) {
  return (const char *)w->dense + (size_t)row * w->stride * 2;
}

/* The call for few rows, from mix->rows.first_row on. */
static FewMix few_of(const BackendState *s, const Mix *mix) {
  const ModelConfig *c = &s->loaded->model->config;
  const StreamState *own = &s->stream;
  const DeviceProjections *in = mix->in;
  const DeviceLinear *down = &in->parts[0], *inject = &in->parts[in->n_parts - 1], *up = mix->up;
  return (FewMix){.n = c->streams.n,
                  .hidden = c->hidden,
                  .rank = c->streams.rank,
                  .streams = own->streams + (size_t)mix->rows.first_row * row_of_streams(c),
                  .next_streams = own->pending ? (own->streams == own->all ? own->spare : own->all) : NULL,
                  .x = own->pending ? s->x : NULL,
                  .factors = own->factors,
                  .bf16 = down->type == WEIGHT_BF16,
                  .down = down->dense,
                  .inject =
                      mix->of_block ? row_at(inject, c->streams.rank - in->first[in->n_parts - 1]) : NULL,
                  .up = up->dense,
                  .down_stride = down->stride,
                  .inject_stride = inject->stride,
                  .up_stride = up->stride,
                  .norm = mix->rows.norm,
                  .eps = mix->rows.eps,
                  .inverses = own->inverses,
                  .ranks = own->few_ranks,
                  .new_factors = mix->of_block ? own->spare_factors : NULL,
                  .h = mix->h,
                  .h_stride = s->h_stride,
                  .mixed = mix->of_block ? own->mixed : NULL,
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

static bool takes_few(const BackendState *s, const Mix *mix, const FewMix *few, int n_rows) {
  return !s->options.invariant && !mix->rows.rows && are_halves(mix) && ops_streams_few_takes(few, n_rows);
}

static Status run_mix(BackendState *s, const Mix *mix, int n_rows, Error *err) {
  StreamState *own = &s->stream;
  const FewMix few = few_of(s, mix);
  if (!takes_few(s, mix, &few, n_rows)) {
    TRY(settle(s, n_rows, err));
    return mix_many(s, mix, n_rows, err);
  }
  if (few.next_streams) own->streams = few.next_streams;
  if (few.new_factors) own->spare_factors = own->factors, own->factors = few.new_factors;
  own->pending = false;
  return ops_streams_few(&few, n_rows, s->loaded->stream, err);
}

static StreamRows rows_from(const BackendState *s, const float *norm) {
  const ModelConfig *c = &s->loaded->model->config;
  return (StreamRows){.n = c->streams.n,
                      .hidden = c->hidden,
                      .streams = s->stream.streams,
                      .norm = norm,
                      .eps = (float)c->norm_eps,
                      .inverses = s->stream.inverses};
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
  s->stream.pending = true;
  return n_rows > STREAMS_FEW_ROWS ? settle(s, n_rows, err) : STATUS_OK;
}

/* --- n-grams */

/* Called by CUDA: host_rows = the table's rows for `tokens`. */
static void read_rows(void *user) {
  const NgramCall *call = user;
  const BackendState *s = call->state;
  const ModelConfig *c = &s->loaded->model->config;
  const NgramConfig *n = &c->ngrams;
  const NgramHash *hash = &s->stream.hashes[config_layer(c, call->layer).ngrams - 1];
  const ModelLayer *table = &s->loaded->model->layers[call->layer];
  if (s->loaded->model->dummy) return;
#pragma omp parallel for if (call->n_rows > 4) num_threads(s->loaded->n_threads) /* a row can need the disk */
  for (int r = 0; r < call->n_rows; r++)
    ngram_read_rows(n, hash, table, s->stream.tokens + (size_t)r * (size_t)n->longest,
                    s->stream.host_rows + (size_t)r * (size_t)n->width);
}

static Ngrams ngrams_of(const BackendState *s, TokenRange span, int layer) {
  const ModelConfig *c = &s->loaded->model->config;
  const StreamState *own = &s->stream;
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
                  .gated = own->gated,
                  .input = own->conv_inputs,
                  .streams = own->streams};
}

/* ngram_x = the table's rows for the step's tokens. */
static Status fetch_rows(BackendState *s, TokenRange span, int layer, int n_rows, Error *err) {
  const ModelConfig *c = &s->loaded->model->config;
  StreamState *own = &s->stream;
  const size_t index = (size_t)(config_layer(c, layer).ngrams - 1);
  const int width = c->ngrams.width;
  cudaStream_t stream = s->loaded->stream;
  NgramCall *call = &own->calls[index * (size_t)s->options.max_chunk + (size_t)n_rows - 1];
  const Ngrams rows = ngrams_of(s, span, layer);
  TRY(ops_ngram_tokens(&rows, n_rows, own->tokens, stream, err));
  TRY(cuda_status(cudaLaunchHostFunc(stream, read_rows, call), "cannot call the CPU", err));
  TRY(cuda_status(cudaMemcpyAsync(own->ngram_rows, own->host_rows,
                                  (size_t)n_rows * (size_t)width * sizeof *own->host_rows,
                                  cudaMemcpyHostToDevice, stream),
                  "cannot copy rows of n-grams", err));
  return ops_round(own->ngram_rows, width, 1, width, n_rows, own->ngram_x, padded_row(width), stream, err);
}

Status cuda_add_ngrams(BackendState *s, TokenRange span, int layer, Error *err) {
  const ModelConfig *c = &s->loaded->model->config;
  const DeviceLayer *w = &s->loaded->layers[layer];
  const StreamState *own = &s->stream;
  const int n_rows = rows_of(s, span), x_stride = padded_row(c->ngrams.width);
  TRY(settle(s, n_rows, err));
  TRY(fetch_rows(s, span, layer, n_rows, err));
  TRY(products_matmul(s, &w->ngram_key, own->ngram_x, x_stride, n_rows, LINEAR_TO_F32, own->weights,
                      (int)row_of_streams(c), err));
  TRY(products_matmul(s, &w->ngram_value, own->ngram_x, x_stride, n_rows, LINEAR_TO_F32, own->values,
                      c->hidden, err));
  const NgramGates gates = {.n = c->streams.n,
                            .hidden = c->hidden,
                            .eps = (float)c->norm_eps,
                            .keys = own->weights,
                            .values = own->values,
                            .streams = own->streams,
                            .key_norm = w->ngram_key_norm,
                            .query_norm = w->ngram_query_norm,
                            .conv_norm = w->ngram_conv_norm,
                            .gated = own->gated,
                            .input = own->conv_inputs};
  TRY(ops_ngram_gate(&gates, n_rows, s->loaded->stream, err));
  const Ngrams rows = ngrams_of(s, span, layer);
  return ops_ngram_add(&rows, n_rows, s->loaded->stream, err);
}
