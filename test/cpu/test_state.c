/* test_state.c - the CPU backend's life cycle: every array of a session has the room that its shape needs and
 * shares none with another, what is known beforehand is what is taken, and which kernels and threads a model
 * is loaded with. */
#include <omp.h>

#include "cpu_test.h"

#include "cpu/cpu.h"
#include "engine/probe.h"
#include "model/layers.h"
#include "test/tests.h"

enum { LAYERS = 3, ARRAYS = 160 };

static size_t up_to(size_t n, size_t unit) {
  return (n + unit - 1) / unit * unit;
}

static size_t larger(size_t a, size_t b) {
  return a > b ? a : b;
}

/* Arrays of a session, in no order. */
typedef struct {
  struct {
    uintptr_t at;
    size_t bytes;
    OpKind first, last; /* the operations between which it must be its own */
  } arrays[ARRAYS];
  int n;
  size_t bytes; /* of whole lines */
} Layout;

static void lives(Layout *layout, const void *at, size_t bytes, OpKind first, OpKind last) {
  assert_true(layout->n < ARRAYS);
  assert_true(bytes == 0 || (uintptr_t)at % 64 == 0);
  layout->arrays[layout->n].at = (uintptr_t)at;
  layout->arrays[layout->n].first = first, layout->arrays[layout->n].last = last;
  layout->arrays[layout->n++].bytes = bytes;
  layout->bytes += up_to(bytes, 64);
}

static void has_room(Layout *layout, const void *at, size_t bytes) {
  lives(layout, at, bytes, OP_EMBED, OP_LOGITS);
}

/* The partial sums of a row. */
static size_t parts_of(int n_out, int n_in) {
  return (size_t)n_out * (size_t)matmul_splits_of(n_in);
}

/* The shapes that buffers.def gives. */
static Layout layout_of(const BackendState *s, const ModelConfig *c, const StateOptions *o) {
  Layout layout = {.n = 0};
  const size_t rows = (size_t)o->max_chunk, hidden = up_to((size_t)c->hidden, 16),
               segments = ((size_t)o->n_ctx + 255) / 256, item = kv_number_bytes(o->kv);
  size_t heads = 0, kv_heads = 0, intermediate = 0, width = 0, sums = 0; /* the largest of all layers */
  const int n_index = c->indexer.block ? (c->indexer.n_heads + 1) * c->indexer.head_dim : 0;
  for (int layer = 0; layer < LAYERS; layer++) {
    const LayerConfig own = config_layer(c, layer);
    heads = larger(heads, up_to((size_t)c->n_heads * (size_t)own.head_dim, 16));
    kv_heads = larger(kv_heads, up_to((size_t)own.n_kv_heads * (size_t)own.head_dim, 16));
    intermediate = larger(intermediate, up_to((size_t)own.intermediate, 16));
    width = larger(width, up_to((size_t)own.head_dim, 16));
    const int n_q = own.n_heads * own.head_dim;
    sums = larger(sums, parts_of(n_q + 2 * own.n_kv_heads * own.head_dim + n_index, c->hidden));
    sums = larger(sums, parts_of(2 * own.intermediate, c->hidden));
    sums = larger(sums, larger(parts_of(c->hidden, n_q), parts_of(c->hidden, own.intermediate)));
  }
  const size_t n_ropes = config_layer(c, LAYERS - 1).rope == ROPE_LOCAL ? 2 : 1;
  const size_t angles = n_ropes * rows * (size_t)c->rope.rotary_dim / 2 * 4;
  const size_t few = rows < FEW_ROWS ? rows : FEW_ROWS;
  if (c->altup.n > 0) {
    const size_t streams = (size_t)c->altup.n * hidden;
    sums = larger(sums, parts_of(c->hidden, c->hidden)); /* of an embedding, to a stream */
    has_room(&layout, s->streams, rows * streams * 4);
    has_room(&layout, s->stream_rows, rows * streams * 4);
    has_room(&layout, s->stream_weights, rows * streams * 4);
    has_room(&layout, s->stream_ranks, rows * up_to((size_t)c->altup.laurel_rank, 16) * 4);
    has_room(&layout, s->stream_factors, rows * up_to((size_t)(c->altup.n * c->altup.n), 16) * 4);
    lives(&layout, s->up, rows * 96 * 4, OP_GATE_UP, OP_LAYER_END); /* of layer 2 alone */
  }
  if (c->streams.n > 0) {
    const size_t streams = up_to((size_t)(c->streams.n * c->hidden), 16),
                 n_blocks = (size_t)(o->n_ctx / c->indexer.block + 1),
                 index = up_to((size_t)((c->indexer.n_heads + 1) * c->indexer.head_dim), 16),
                 seen = (size_t)(c->indexer.budget + c->indexer.block - 1);
    sums = larger(sums, parts_of(c->streams.n * c->hidden, c->streams.rank));
    has_room(&layout, s->streams, rows * streams * 4);
    has_room(&layout, s->stream_rows, rows * streams * 4);
    has_room(&layout, s->stream_weights, rows * streams * 4);
    has_room(&layout, s->stream_ranks, rows * up_to((size_t)c->streams.rank, 16) * 4);
    has_room(&layout, s->stream_factors, rows * up_to((size_t)c->streams.n, 16) * 4);
    has_room(&layout, s->ngram_rows, rows * up_to((size_t)c->ngrams.width, 16) * 4);
    has_room(&layout, s->ids, rows * 4);
    lives(&layout, s->index, rows * index * 4, OP_QKV, OP_ATTENTION);
    if (o->n_ctx > c->indexer.budget) {
      lives(&layout, s->block_scores, GATHERERS * 2 * n_blocks * 4, OP_ATTENTION, OP_ATTENTION);
      lives(&layout, s->selected, rows * seen * 4, OP_ATTENTION, OP_ATTENTION);
      lives(&layout, s->n_selected, rows * 4, OP_ATTENTION, OP_ATTENTION);
      lives(&layout, s->gathered, GATHERERS * (size_t)s->plan.gathered_bytes, OP_ATTENTION, OP_ATTENTION);
    }
  }
  sums *= few;
  if (c->quant.head)
    sums = larger(sums, parts_of(c->vocab_size, c->hidden) *
                            ((size_t)o->max_logit_rows < few ? (size_t)o->max_logit_rows : few));
  has_room(&layout, s->x, rows * hidden * 4);
  has_room(&layout, s->h, rows * hidden * 4);
  lives(&layout, s->q, rows * heads * 4, OP_DELTA, OP_OUT_PROJ);
  lives(&layout, s->k, rows * kv_heads * 4, OP_QKV, OP_QKV);
  lives(&layout, s->v, rows * kv_heads * 4, OP_QKV, OP_QKV);
  lives(&layout, s->g, rows * intermediate * 4, OP_GATE_UP, OP_LAYER_END);
  has_room(&layout, s->cosines, angles);
  has_room(&layout, s->sines, angles);
  has_room(&layout, s->scratch.parts, sums * 4);
  if (c->quant.int8_activations) {
    const size_t stride = up_to(larger(larger(hidden, heads), intermediate), ROUNDED_ALIGN);
    assert_int_equal(s->scratch.rounded.stride, stride);
    has_room(&layout, s->scratch.rounded.numbers, rows * stride * 2);
    has_room(&layout, s->scratch.rounded.scales, rows * 4);
  } else {
    assert_null(s->scratch.rounded.numbers);
  }
  has_room(&layout, s->positions, rows * sizeof *s->positions);
  has_room(&layout, s->sequences, rows * sizeof *s->sequences);
  lives(&layout, s->part_sums, (size_t)c->n_heads * segments * sizeof(SoftmaxSum), OP_ATTENTION,
        OP_ATTENTION);
  lives(&layout, s->part_outs, (size_t)c->n_heads * segments * width * 4, OP_ATTENTION, OP_ATTENTION);
  has_room(&layout, s->kv, LAYERS * sizeof *s->kv);
  has_room(&layout, s->logits, (size_t)o->max_logit_rows * (size_t)c->vocab_size * 4);
  for (int layer = 0; layer < LAYERS; layer++) {
    const LayerConfig own = config_layer(c, layer);
    for (int i = 0; i < own.n_cache_heads; i++) {
      const KvHead kv = state_kv_head(s, 0, layer, i);
      const size_t v_width = up_to((size_t)own.head_dim, 16);
      assert_true(kv.type == o->kv && kv.head_dim == own.head_dim && (size_t)kv.v_width == v_width);
      has_room(&layout, kv.k, up_to((size_t)o->n_ctx, KEY_BLOCK) * (size_t)own.head_dim * item);
      has_room(&layout, kv.v, (size_t)o->n_ctx * v_width * item);
      if (o->kv != KV_Q8) continue;
      has_room(&layout, kv.k_scales,
               up_to((size_t)o->n_ctx, KEY_BLOCK) * (size_t)kv_key_scales(KV_Q8, own.head_dim) *
                   KV_SCALE_BYTES);
      has_room(&layout, kv.v_scales, (size_t)o->n_ctx * KV_SCALE_BYTES);
    }
  }
  return layout;
}

static void check_layout(const ModelConfig *config, StateOptions options) {
  const Model model = {.config = *config};
  BackendModel loaded = {.model = &model};
  BackendState *state;
  Error err = {{0}};
  if (cpu_backend.open(&loaded, &options, &state, &err)) fail_msg("%s", err.text);
  const Layout layout = layout_of(state, config, &options);
  const size_t taken = cpu_backend.state_bytes(config, &options) - sizeof(BackendState);
  const uintptr_t begin = (uintptr_t)state->memory, end = begin + taken;
  for (int i = 0; i < layout.n; i++) {
    const uintptr_t at = layout.arrays[i].at, after = at + layout.arrays[i].bytes;
    assert_true(layout.arrays[i].bytes == 0 || (at >= begin && after <= end));
    for (int k = 0; k < i; k++) {
      const bool meet =
          layout.arrays[i].first <= layout.arrays[k].last && layout.arrays[k].first <= layout.arrays[i].last;
      assert_true(!meet || after <= layout.arrays[k].at ||
                  layout.arrays[k].at + layout.arrays[k].bytes <= at);
    }
  }
  assert_true(taken <= layout.bytes + 64); /* each ends with its line, and the first begins with one */
  cpu_backend.close(state);
}

TEST(every_array_has_its_room) {
  static LayerConfig ropes[LAYERS] = {{.rope = ROPE_GLOBAL}, {.rope = ROPE_NONE}, {.rope = ROPE_LOCAL}};
  const ModelConfig plain = {.hidden = 48,
                             .intermediate = 40,
                             .n_layers = LAYERS,
                             .n_heads = 6,
                             .n_kv_heads = 2,
                             .head_dim = 18,
                             .rope = {.rotary_dim = 18},
                             .local_rope = {.rotary_dim = 18},
                             .vocab_size = 61};
  static LayerConfig sizes[LAYERS] = {
      {.head_dim = 34}, {.n_kv_heads = 3, .rope = ROPE_NONE}, {.intermediate = 88, .head_dim = 8}};
  static LayerConfig sparse[LAYERS] = {{.intermediate = 200}, {0}, {.intermediate = 88, .sparsity = 0.5}};
  ModelConfig configs[9] = {plain, plain, plain, plain, plain, plain, plain, plain, plain};
  configs[8].altup = (AltupConfig){.n = 5, .laurel_rank = 18};
  configs[8].layers = sparse;
  configs[7].streams = (StreamConfig){.n = 2, .rank = 5};
  configs[7].ngrams = (NgramConfig){.longest = 3, .width = 24};
  configs[7].indexer = (IndexerConfig){.block = 4, .budget = 8, .n_heads = 2, .head_dim = 18};
  configs[6].layers = sizes;
  configs[1].intermediate = 500; /* each of what parts hold is the largest once */
  configs[1].quant.int8_activations = true;
  configs[2].hidden = 1000;
  configs[2].quant.int8_activations = true;
  configs[2].layers = ropes;
  configs[3].quant.head = configs[3].quant.int8_activations = true;
  configs[3].vocab_size = 5000;
  configs[4].vocab_size = 5000; /* a dense head has no parts */
  configs[4].rope.rotary_dim = 10;
  configs[5].head_dim = configs[5].rope.rotary_dim = 64;
  configs[5].n_heads = 7;
  configs[5].n_kv_heads = 7;
  static const int contexts[] = {1, 15, 16, 17, 255, 256, 257, 1000};
  for (size_t c = 0; c < sizeof configs / sizeof *configs; c++) {
    for (size_t i = 0; i < sizeof contexts / sizeof *contexts; i++) {
      const int n_ctx = contexts[i];
      check_layout(&configs[c],
                   (StateOptions){.n_ctx = n_ctx, .max_chunk = 1, .max_logit_rows = 1, .kv = KV_F16});
      check_layout(&configs[c],
                   (StateOptions){.n_ctx = n_ctx, .max_chunk = 7, .max_logit_rows = 5, .kv = KV_F32});
      check_layout(&configs[c],
                   (StateOptions){.n_ctx = n_ctx, .max_chunk = 2, .max_logit_rows = 1, .kv = KV_Q8});
    }
  }
}

static BackendState *open_state(const BackendModel *loaded, StateOptions options) {
  BackendState *state;
  Error err = {{0}};
  if (cpu_backend.open((BackendModel *)loaded, &options, &state, &err)) fail_msg("%s", err.text);
  return state;
}

/* A layer that uses the keys and values of another has that one's cache: of the same state, or of the
 * target's, where no layer may have a cache of its own. */
TEST(layers_that_share_have_the_caches_of_others) {
  static LayerConfig some[LAYERS] = {{.head_dim = 34}, {.head_dim = 18}, {.shares_kv = true, .head_dim = 34}},
                     all[] = {{.shares_kv = true, .kv_layer = 1, .head_dim = 18},
                              {.shares_kv = true, .kv_layer = 0, .head_dim = 34}};
  const ModelConfig target = {.hidden = 48,
                              .intermediate = 40,
                              .n_layers = LAYERS,
                              .n_heads = 6,
                              .n_kv_heads = 2,
                              .head_dim = 18,
                              .vocab_size = 61,
                              .layers = some};
  ModelConfig drafter = target;
  drafter.n_layers = 2;
  drafter.layers = all;
  const Model models[] = {{.config = target}, {.config = drafter}};
  const BackendModel loaded[] = {{.model = &models[0]}, {.model = &models[1]}};
  StateOptions options = {.n_ctx = 20, .max_chunk = 3, .max_logit_rows = 1};
  for (KvType kv = KV_F16; kv <= KV_Q8; kv++) {
    options.kv = kv;
    options.target = NULL;
    BackendState *of_target = open_state(&loaded[0], options);
    options.target = of_target;
    BackendState *of_drafter = open_state(&loaded[1], options);
    for (int head = 0; head < target.n_kv_heads; head++) {
      const KvHead first = state_kv_head(of_target, 0, 0, head),
                   second = state_kv_head(of_target, 0, 1, head), last = state_kv_head(of_target, 0, 2, head),
                   a = state_kv_head(of_drafter, 0, 0, head), b = state_kv_head(of_drafter, 0, 1, head);
      assert_true(first.k && second.k && first.k != second.k);
      assert_memory_equal(&last, &first, sizeof first);
      assert_memory_equal(&a, &second, sizeof a);
      assert_memory_equal(&b, &first, sizeof b);
    }
    cpu_backend.close(of_drafter);
    cpu_backend.close(of_target);
  }
}

/* --- loading */

static BackendModel *load(const Model *model, int n_threads) {
  BackendModel *loaded;
  Error err = {{0}};
  const BackendOptions options = {.n_threads = n_threads};
  if (cpu_backend.load(model, &options, &loaded, &err)) fail_msg("%s", err.text);
  return loaded;
}

TEST(threads_and_kernels_are_chosen_when_loading) {
  static const int threads[][2] = {{1, 1},       {5, 5},       {1023, 1023},
                                   {1024, 1024}, {1025, 1024}, {INT32_MAX, 1024}};
  ModelLayer layers[1] = {{.attn_norm = {.n = 0}}};
  const Model model = {.config = {.n_layers = 1,
                                  .rope = {.rotary_dim = 2, .theta = 100},
                                  .local_rope = {.rotary_dim = 2, .theta = 10}},
                       .layers = layers};
  for (size_t i = 0; i < sizeof threads / sizeof *threads; i++) {
    BackendModel *loaded = load(&model, threads[i][0]);
    assert_int_equal(loaded->n_threads, threads[i][1]);
    cpu_backend.unload(loaded);
  }
  BackendModel *loaded = load(&model, 0);
  assert_int_equal(loaded->n_threads, omp_get_num_procs());
  int n_tables;
  const Kernels *const *tables = kernels_usable(&n_tables);
  assert_ptr_equal(loaded->kernels, tables[n_tables - 1]);
  char name[20], cut[4];
  assert_int_equal(cpu_backend.arithmetic(loaded, name, sizeof name, NULL), STATUS_OK);
  assert_string_equal(name, tables[n_tables - 1]->name);
  assert_int_equal(cpu_backend.arithmetic(loaded, cut, sizeof cut, NULL), STATUS_OK);
  assert_int_equal(strlen(cut), sizeof cut - 1);
  cpu_backend.unload(loaded);
}

/* Norms and biases in the types that checkpoints have; with NORM_PLUS_ONE all norms, and no bias, are one
 * more. */
TEST(vectors_are_widened) {
  static const float floats[4] = {0.5f, -1, 2, 0.25f};
  static const uint16_t halves[4] = {0x3800, 0xbc00, 0x4000, 0x3400},
                        shorts[4] = {0x3f00, 0xbf80, 0x4000, 0x3e80};
  const Vector all[] = {{floats, DTYPE_F32, 4}, {halves, DTYPE_F16, 4}, {shorts, DTYPE_BF16, 4}};
  for (int plus_one = 0; plus_one < 2; plus_one++) {
    for (int type = 0; type < 3; type++) {
      ModelLayer layers[2] = {{.attn_norm = {.n = 0}}};
      layers[1].attn_norm = layers[1].attn_post_norm = layers[1].mlp_norm = layers[1].mlp_post_norm =
          all[type];
      layers[1].q_norm = layers[1].k_norm = all[(type + 1) % 3];
      layers[1].q.bias = layers[1].k.bias = layers[1].v.bias = layers[1].o.bias = all[type];
      layers[1].gate.bias = layers[1].up.bias = layers[1].down.bias = all[(type + 2) % 3];
      layers[1].attn_gate = (Linear){.n_out = 4, .bias = all[type]};
      for (int which = 0; which < N_PACKED_LINEARS; which++) layer_linear(&layers[1], which)->n_out = 4;
      const Model model = {.config = {.n_layers = 2,
                                      .norm = plus_one ? NORM_PLUS_ONE : NORM_RMS,
                                      .rope = {.rotary_dim = 2, .theta = 100},
                                      .local_rope = {.rotary_dim = 2, .theta = 10}},
                           .layers = layers,
                           .final_norm = all[type]};
      BackendModel *loaded = load(&model, 1);
      const CpuLayer *l = &loaded->layers[1], *none = &loaded->layers[0];
      const float *norms[] = {l->attn_norm, l->attn_post_norm, l->mlp_norm,       l->mlp_post_norm,
                              l->q_norm,    l->k_norm,         loaded->final_norm};
      const CpuLinear *linears[] = {&l->q, &l->k, &l->v, &l->o, &l->gate, &l->up, &l->down};
      const Linear *from[] = {&layers[1].q,    &layers[1].k,  &layers[1].v,   &layers[1].o,
                              &layers[1].gate, &layers[1].up, &layers[1].down};
      for (int i = 0; i < 7; i++) {
        for (int n = 0; n < 4; n++) {
          assert_true(norms[i][n] == floats[n] + (float)plus_one);
          assert_true(linears[i]->bias[n] == floats[n]);
        }
        assert_ptr_equal(linears[i]->linear, from[i]);
      }
      assert_ptr_equal(l->attn_gate.linear, &layers[1].attn_gate);
      assert_true(l->attn_gate.bias[1] == floats[1] && !none->attn_gate.linear && !none->attn_gate.bias);
      assert_true(!none->attn_norm && !none->mlp_post_norm && !none->q_norm && !none->down.bias &&
                  !loaded->head.bias);
      cpu_backend.unload(loaded);
    }
  }
}

/* --- logits */

TEST(only_rows_that_were_made_are_read) {
  enum { VOCAB = 5, HIDDEN = 16 };
  static const float weights[VOCAB * HIDDEN] = {[0] = 1, [HIDDEN + 1] = 1, [2 * HIDDEN + 2] = 1};
  static const float norm[HIDDEN] = {1, 1, 1};
  const Model model = {
      .config = {.hidden = HIDDEN,
                 .intermediate = 16,
                 .n_heads = 1,
                 .n_kv_heads = 1,
                 .head_dim = 16,
                 .vocab_size = VOCAB,
                 .norm_eps = 1e-5,
                 .embedding_scale = 1,
                 .gate_scale = 1,
                 .mlp_scale = 1,
                 .logit_divisor = 1,
                 .rope = {.rotary_dim = 2, .theta = 100},
                 .local_rope = {.rotary_dim = 2, .theta = 10}},
      .embedding = {weights, DTYPE_F32, VOCAB, HIDDEN},
      .final_norm = {norm, DTYPE_F32, HIDDEN},
      .head = {.kind = LINEAR_DENSE, .n_in = HIDDEN, .n_out = VOCAB, .dtype = DTYPE_F32, .weight = weights}};
  const int32_t ids[4] = {0, 1, 2, 1};
  TokenRange range = {.n_tokens = 4, .ids = ids};
  BackendModel *loaded = load(&model, 1);
  BackendState *session;
  float logits[VOCAB];
  Error err = {{0}};
  const StateOptions options = {.n_ctx = 8, .max_chunk = 4, .max_logit_rows = 3};
  assert_int_equal(cpu_backend.open(loaded, &options, &session, &err), STATUS_OK);
  assert_int_equal(cpu_backend.run[OP_EMBED](session, range, -1, &err), STATUS_OK);
  for (int n_rows = 3; n_rows >= 1; n_rows--) {
    for (int first = 0; first + n_rows <= 4; first++) {
      range.first_logit = first, range.n_logit_rows = n_rows;
      assert_int_equal(cpu_backend.run[OP_LOGITS](session, range, 0, &err), STATUS_OK);
      for (int row = 0; row < n_rows; row++) { /* the token's own logit is the one that is not 0 */
        assert_int_equal(cpu_backend.read_logits(session, row, logits, &err), STATUS_OK);
        for (int v = 0; v < VOCAB; v++) assert_int_equal(logits[v] > 1, v == ids[first + row]);
      }
      char message[80];
      snprintf(message, sizeof message, "logits of row %d were asked for, the last step made %d", n_rows,
               n_rows);
      assert_int_equal(cpu_backend.read_logits(session, n_rows, logits, &err), STATUS_FAILED);
      assert_string_equal(err.text, message);
      assert_int_equal(cpu_backend.read_logits(session, -1, logits, &err), STATUS_FAILED);
    }
  }
  range.first_logit = 0, range.n_logit_rows = 4;
  assert_int_equal(cpu_backend.run[OP_LOGITS](session, range, 0, &err), STATUS_FAILED);
  assert_string_equal(err.text, "logits of 4 rows were asked for, the session keeps 3");
  cpu_backend.close(session);
  cpu_backend.unload(loaded);
}

/* --- the machine */

/* No memory reads as slowly or as fast as what a wrong unit makes of it. */
TEST(memory_is_read_at_a_rate_that_memory_has) {
  MachineRates rates;
  Error err = {{0}};
  if (cpu_backend.probe->measure_machine(&(BackendOptions){.n_threads = 2}, &rates, &err))
    fail_msg("%s", err.text);
  assert_true(rates.read_gbps > 0.02 && rates.read_gbps < 2000);
  assert_true(rates.fp16_tflops == 0); /* not measured */
}

/* --- sets of instructions */

#if defined(__x86_64__)
static bool has_flag(const char *flags, const char *flag) {
  const size_t length = strlen(flag);
  for (const char *at = flags; (at = strstr(at, flag)); at += length)
    if (at > flags && at[-1] == ' ' && strchr(" \n", at[length])) return true;
  return false;
}

/* As the kernel lists what this processor has. */
TEST(the_kernels_are_those_that_the_processor_can_run) {
  static const char *const names[] = {"baseline", "avx2", "avx512"};
  static const char *const flags_of[3][4] = {
      {NULL}, {"avx2", "fma", "f16c"}, {"avx512f", "avx512bw", "avx512vl", "avx512dq"}};
  static char line[16384];
  FILE *file = fopen("/proc/cpuinfo", "r");
  bool found = false;
  while (file && !found && fgets(line, sizeof line, file)) found = strncmp(line, "flags", 5) == 0;
  if (file) fclose(file);
  if (!found) skip();
  int n_tables, n_expected = 0;
  const Kernels *const *tables = kernels_usable(&n_tables);
  for (bool all = true; n_expected < 3; n_expected++) {
    for (int i = 0; i < 4 && flags_of[n_expected][i]; i++)
      all = all && has_flag(line, flags_of[n_expected][i]);
    if (!all) break;
  }
  assert_int_equal(n_tables, n_expected);
  for (int i = 0; i < n_tables; i++) assert_string_equal(tables[i]->name, names[i]);
}
#endif
