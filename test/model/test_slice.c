/* test_slice.c - parts of a model for several GPUs: every weight of every part is the whole model's, in each
 * form of a linear layer, by the formulas of model.h; what cannot be divided is refused. */
#include <math.h>

#include "base/half.h"
#include "model/slice.h"
#include "test/tests.h"

enum { HIDDEN = 64, HEADS = 4, KV_HEADS = 2, DIM = 32, FFN = 128, VOCAB = 80, GROUP = 32, ROOM = 1 << 16 };
enum { EXPERTS = 2, WIDTH = 96, MATRICES = 8 + 3 * EXPERTS };

/* One layer with matrices of one form, whose numbers are random bytes. */
typedef struct {
  Model model;
  ModelLayer layer;
  Expert experts[EXPERTS];
  float scale_values[256];
  unsigned char memory[MATRICES][3][ROOM];
  int n_linears;
} Whole;

static Linear make_linear(Whole *w, LinearKind kind, int bits, int group, int n_in, int n_out) {
  unsigned char(*memory)[ROOM] = w->memory[w->n_linears++];
  for (int i = 0; i < ROOM; i++) memory[0][i] = (unsigned char)rand(), memory[1][i] = (unsigned char)rand();
  for (int i = 0; i < ROOM / 4; i++) {
    const float scale = (float)(rand() % 100 + 1);
    memcpy(memory[2] + 4 * i, &scale, 4);
  }
  if (kind == LINEAR_AWQ)
    for (int i = 0; i < ROOM / 2; i++) {
      const uint16_t scale = float_to_f16((float)(rand() % 100 + 1));
      memcpy(memory[2] + 2 * i, &scale, 2);
    }
  return (Linear){.kind = kind,
                  .n_in = n_in,
                  .n_out = n_out,
                  .bits = bits,
                  .group = group == 0 ? n_in : group,
                  .block = 48,
                  .qweight = memory[0],
                  .qzeros = memory[1],
                  .scales = memory[2],
                  .scale_values = w->scale_values,
                  .weight = memory[0],
                  .dtype = DTYPE_F16,
                  .bias = {memory[1], DTYPE_F16, n_out},
                  .name = "a layer"};
}

static int byte_at(const void *data, size_t at) {
  return ((const unsigned char *)data)[at];
}

static int nibble_of_word(const void *data, size_t row, size_t width, int column) {
  static const int place[8] = {0, 4, 1, 5, 2, 6, 3, 7}; /* of column 0 .. 7 of a word */
  const size_t bit = (row * width + (size_t)(column / 8 * 8)) * 4 + 4 * (size_t)place[column % 8];
  return byte_at(data, bit / 8) >> bit % 8 & 15;
}

static double float_at(const void *data, size_t at) {
  float v;
  memcpy(&v, (const char *)data + 4 * at, 4);
  return v;
}

/* Weight i of output o by model.h. Codes of FP8 and FP4 stand for themselves: they are only carried. */
static double weight_of(const Linear *l, int o, int i) {
  const size_t width = (size_t)(l->n_out + l->skip), group = (size_t)(i / l->group);
  const size_t n_in = (size_t)l->n_in,
               row = (size_t)o * (n_in * (size_t)(1 + l->row_skip) + (size_t)l->input_skip);
  uint16_t half;
  switch (l->kind) {
  case LINEAR_AWQ:
    memcpy(&half, (const char *)l->scales + 2 * (group * width + (size_t)o), 2);
    return (nibble_of_word(l->qweight, (size_t)i, width, o) - nibble_of_word(l->qzeros, group, width, o)) *
           (double)f16_to_float(half);
  case LINEAR_GROUPED:
    return ((l->bits == 4 ? nibble_of_word(l->qweight, (size_t)i, width, o)
                          : byte_at(l->qweight, (size_t)i * width + (size_t)o)) -
            byte_at(l->qzeros, group * width + (size_t)o)) *
           float_at(l->scales, group * width + (size_t)o);
  case LINEAR_FP8: {
    const size_t groups = (size_t)((l->n_in - 1) / l->group + 1 + l->scale_skip);
    return byte_at(l->weight, row + (size_t)i) *
           float_at(l->scales, (size_t)((l->block_first + o) / l->block) * groups + group);
  }
  case LINEAR_FP4:
    return (byte_at(l->weight, row / 2 + (size_t)i / 2) >> 4 * (i % 2) & 15) * 1000 +
           byte_at(l->scales,
                   (size_t)o * (n_in / (size_t)l->group * (size_t)(1 + l->row_skip) + (size_t)l->scale_skip) +
                       group);
  default: memcpy(&half, (const char *)l->weight + 2 * (row + (size_t)i), 2); return half;
  }
}

static void make_whole(Whole *w, LinearKind kind, int bits, int group) {
  memset(w, 0, sizeof *w);
  srand(7);
  const int heads = HEADS * DIM, kv = KV_HEADS * DIM;
  ModelLayer *l = &w->layer;
  l->q = make_linear(w, kind, bits, group, HIDDEN, heads);
  l->k = make_linear(w, kind, bits, group, HIDDEN, kv);
  l->v = make_linear(w, kind, bits, group, HIDDEN, kv);
  l->o = make_linear(w, kind, bits, group, heads, HIDDEN);
  l->gate = make_linear(w, kind, bits, group, HIDDEN, FFN);
  l->up = make_linear(w, kind, bits, group, HIDDEN, FFN);
  l->down = make_linear(w, kind, bits, group, FFN, HIDDEN);
  w->model.head = make_linear(w, LINEAR_DENSE, 0, 0, HIDDEN, VOCAB);
  for (int e = 0; e < EXPERTS; e++)
    w->experts[e] = (Expert){{make_linear(w, kind, bits, group, HIDDEN, WIDTH),
                              make_linear(w, kind, bits, group, HIDDEN, WIDTH),
                              make_linear(w, kind, bits, group, WIDTH, HIDDEN)}};
  l->experts = w->experts;
  l->sinks = (Vector){w->memory[0][0], DTYPE_F32, HEADS};
  w->model.layers = l;
  w->model.config =
      (ModelConfig){.architecture = "TestForCausalLM",
                    .hidden = HIDDEN,
                    .intermediate = FFN,
                    .n_layers = 1,
                    .n_heads = HEADS,
                    .n_kv_heads = KV_HEADS,
                    .head_dim = DIM,
                    .vocab_size = VOCAB,
                    .experts = {.n_experts = EXPERTS, .n_chosen = 1, .width = WIDTH, .shared_width = FFN}};
}

static void assert_outputs(const Linear *part, const Linear *whole, int first) {
  for (int o = 0; o < part->n_out; o++) {
    for (int i = 0; i < part->n_in; i++) assert_true(weight_of(part, o, i) == weight_of(whole, first + o, i));
    assert_ptr_equal((const char *)part->bias.data + 2 * o, (const char *)whole->bias.data + 2 * (first + o));
  }
}

static void assert_inputs(const Linear *part, const Linear *whole, int first) {
  for (int o = 0; o < part->n_out; o++)
    for (int i = 0; i < part->n_in; i++) assert_true(weight_of(part, o, i) == weight_of(whole, o, first + i));
  assert_ptr_equal(part->bias.data, first == 0 ? whole->bias.data : NULL);
}

/* The experts' hidden units are divided in whole groups, so the first part may have one more. */
static void assert_experts(const Whole *w, const Model *part, int group, int index) {
  const int more = group == GROUP ? 32 : 0, first = index == 0 ? 0 : (WIDTH + more) / 2,
            width = index == 0 ? (WIDTH + more) / 2 : WIDTH - first;
  assert_int_equal(part->config.experts.width, width);
  for (int e = 0; e < EXPERTS; e++) {
    const Expert *own = &part->layers->experts[e];
    assert_int_equal(own->down.n_in, width);
    assert_outputs(&own->gate, &w->experts[e].gate, first);
    assert_outputs(&own->up, &w->experts[e].up, first);
    assert_inputs(&own->down, &w->experts[e].down, first);
  }
}

static void check_form(Whole *w, LinearKind kind, int bits, int group) {
  Error err = {{0}};
  make_whole(w, kind, bits, group);
  assert_int_equal(model_check_split(&w->model, 2, &err), STATUS_OK);
  for (int p = 0; p < 2; p++) {
    Model *part;
    assert_int_equal(model_part(&w->model, p, 2, &part, &err), STATUS_OK);
    const ModelLayer *l = part->layers, *from = &w->layer;
    const int heads = HEADS * DIM / 2, kv = KV_HEADS * DIM / 2, ffn = FFN / 2;
    assert_int_equal(part->config.n_heads, HEADS / 2);
    assert_int_equal(config_layer(&part->config, 0).n_kv_heads, KV_HEADS / 2);
    assert_int_equal(config_layer(&part->config, 0).intermediate, ffn);
    assert_int_equal(l->q.n_out, heads);
    assert_int_equal(l->o.n_in, heads);
    assert_int_equal(l->down.n_in, ffn);
    assert_outputs(&l->q, &from->q, p * heads);
    assert_outputs(&l->k, &from->k, p * kv);
    assert_outputs(&l->v, &from->v, p * kv);
    assert_outputs(&l->gate, &from->gate, p * ffn);
    assert_outputs(&l->up, &from->up, p * ffn);
    assert_inputs(&l->o, &from->o, p * heads);
    assert_inputs(&l->down, &from->down, p * ffn);
    assert_outputs(&part->head, &w->model.head, p * 32);
    assert_int_equal(part->head.n_out, p == 0 ? 32 : 48);
    assert_ptr_equal(l->sinks.data, (const char *)from->sinks.data + p * 2 * 4);
    assert_experts(w, part, group, p);
    model_part_free(part);
  }
}

TEST_WITH(NULL, NULL, parts_have_the_weights_of_the_whole) {
  Whole *w = *state;
  check_form(w, LINEAR_AWQ, 4, GROUP);
  check_form(w, LINEAR_AWQ, 4, 0);
  check_form(w, LINEAR_GROUPED, 8, GROUP);
  check_form(w, LINEAR_GROUPED, 4, 0);
  check_form(w, LINEAR_FP8, 8, 16);
  check_form(w, LINEAR_FP8, 8, 0);
  check_form(w, LINEAR_FP4, 4, 16);
  check_form(w, LINEAR_DENSE, 0, 0);
}

/* Two of four parts have the same KV head. */
TEST_WITH(NULL, NULL, parts_share_a_kv_head) {
  Whole *w = *state;
  Error err = {{0}};
  make_whole(w, LINEAR_DENSE, 0, 0);
  assert_int_equal(model_check_split(&w->model, 4, &err), STATUS_OK);
  for (int p = 0; p < 4; p++) {
    Model *part;
    assert_int_equal(model_part(&w->model, p, 4, &part, &err), STATUS_OK);
    assert_int_equal(part->config.n_kv_heads, 1);
    assert_int_equal(part->layers->k.n_out, DIM);
    assert_int_equal(model_part_kv_head(KV_HEADS, p, 4), p / 2);
    assert_outputs(&part->layers->q, &w->layer.q, p * DIM);
    assert_outputs(&part->layers->k, &w->layer.k, p / 2 * DIM);
    assert_outputs(&part->layers->v, &w->layer.v, p / 2 * DIM);
    model_part_free(part);
  }
}

/* A layer has four KV heads, where the model has two, and hidden units in eights and a half. */
TEST_WITH(NULL, NULL, the_sizes_of_a_layer_are_divided) {
  Whole *w = *state;
  Error err = {{0}};
  enum { UNITS = 44, FIRST = 24 };
  LayerConfig layer = {.n_kv_heads = HEADS};
  make_whole(w, LINEAR_DENSE, 0, 0);
  ModelLayer *from = &w->layer;
  w->model.config.layers = &layer;
  from->k.n_out = from->v.n_out = HEADS * DIM;
  w->model.config.experts.shared_width = from->gate.n_out = from->up.n_out = from->down.n_in = UNITS;
  assert_int_equal(model_check_split(&w->model, 2, &err), STATUS_OK);
  for (int p = 0; p < 2; p++) {
    Model *part;
    assert_int_equal(model_part(&w->model, p, 2, &part, &err), STATUS_OK);
    const LayerConfig own = config_layer(&part->config, 0);
    const ModelLayer *l = part->layers;
    assert_int_equal(own.n_kv_heads, HEADS / 2);
    assert_int_equal(own.intermediate, p == 0 ? FIRST : UNITS - FIRST);
    assert_int_equal(l->down.n_in, own.intermediate);
    assert_outputs(&l->k, &from->k, p * 2 * DIM);
    assert_outputs(&l->up, &from->up, p * FIRST);
    assert_inputs(&l->down, &from->down, p * FIRST);
    model_part_free(part);
  }
}

/* Outputs [first, first + n) of `whole`, followed by those of other runs. */
static void assert_run(const Linear *part, const Linear *whole, int first, int n) {
  assert_int_equal(part->n_out, n);
  for (int o = 0; o < n; o++)
    for (int i = 0; i < part->n_in; i++) assert_true(weight_of(part, o, i) == weight_of(whole, first + o, i));
}

enum { KEYS = 2, VALUES = 4, KEY_DIM = 8, VALUE_DIM = 16, TAPS = 4 };
enum { KEY_CHANNELS = KEYS * KEY_DIM, CHANNELS = 2 * KEY_CHANNELS + VALUES * VALUE_DIM };

static void make_recurrent(Whole *w, LayerConfig *layer, LayerKind kind) {
  make_whole(w, LINEAR_DENSE, 0, 0);
  *layer = (LayerConfig){.kind = kind};
  w->n_linears = 0;
  w->model.config.layers = layer;
  w->model.config.delta = (DeltaConfig){
      .n_key_heads = KEYS, .n_value_heads = VALUES, .key_dim = KEY_DIM, .value_dim = VALUE_DIM, .conv = TAPS};
  w->model.config.conv = (ConvConfig){.taps = TAPS, .channels = HIDDEN};
  w->layer.q.n_out = w->layer.k.n_out = w->layer.v.n_out = 0;
}

/* Key heads go with their value heads; the channels of q, k and v of a part are three runs of the whole's. */
TEST_WITH(NULL, NULL, layers_of_the_delta_rule_are_divided_by_heads) {
  Whole *w = *state;
  LayerConfig layer;
  Error err = {{0}};
  make_recurrent(w, &layer, LAYER_DELTA);
  ModelLayer *d = &w->layer;
  d->delta_qkv = make_linear(w, LINEAR_DENSE, 0, 0, HIDDEN, CHANNELS);
  d->delta_z = make_linear(w, LINEAR_DENSE, 0, 0, HIDDEN, VALUES * VALUE_DIM);
  d->delta_b = make_linear(w, LINEAR_DENSE, 0, 0, HIDDEN, VALUES);
  d->delta_a = make_linear(w, LINEAR_DENSE, 0, 0, HIDDEN, VALUES);
  w->layer.o = make_linear(w, LINEAR_DENSE, 0, 0, VALUES * VALUE_DIM, HIDDEN);
  const char *taps = (const char *)w->memory[0][2], *numbers = taps + 4096;
  d->delta_conv = (Vector){taps, DTYPE_F16, CHANNELS * TAPS};
  d->delta_a_log = d->delta_dt_bias = (Vector){numbers, DTYPE_F32, VALUES};
  assert_int_equal(model_check_split(&w->model, 2, &err), STATUS_OK);
  for (int p = 0; p < 2; p++) {
    Model *part;
    assert_int_equal(model_part(&w->model, p, 2, &part, &err), STATUS_OK);
    const ModelLayer *l = part->layers;
    const int values = 2 * KEY_CHANNELS + p * 2 * VALUE_DIM, row = 2 * TAPS;
    assert_int_equal(part->config.delta.n_key_heads, 1);
    assert_int_equal(part->config.delta.n_value_heads, 2);
    assert_run(&l->delta_qkv, &d->delta_qkv, p * KEY_DIM, KEY_DIM);
    assert_run(&l->more[0], &d->delta_qkv, KEY_CHANNELS + p * KEY_DIM, KEY_DIM);
    assert_run(&l->more[1], &d->delta_qkv, values, 2 * VALUE_DIM);
    assert_run(&l->delta_z, &d->delta_z, p * 2 * VALUE_DIM, 2 * VALUE_DIM);
    assert_run(&l->delta_b, &d->delta_b, p * 2, 2);
    assert_inputs(&l->o, &w->layer.o, p * 2 * VALUE_DIM);
    const char *own = l->delta_conv.data;
    assert_int_equal(l->delta_conv.n, CHANNELS / 2 * TAPS);
    assert_memory_equal(own, taps + p * KEY_DIM * row, KEY_DIM * row);
    assert_memory_equal(own + KEY_DIM * row, taps + (KEY_CHANNELS + p * KEY_DIM) * row, KEY_DIM * row);
    assert_memory_equal(own + 2 * KEY_DIM * row, taps + values * row, 2 * VALUE_DIM * row);
    assert_ptr_equal(l->delta_a_log.data, numbers + p * 2 * 4);
    model_part_free(part);
  }
  assert_int_equal(model_check_split(&w->model, 4, &err), STATUS_MODEL);
  assert_non_null(
      strstr(err.text, "the delta rule has 2 heads of keys and 4 of values; it would work with 2"));
}

TEST_WITH(NULL, NULL, short_convolutions_are_divided_by_channels) {
  Whole *w = *state;
  LayerConfig layer;
  Error err = {{0}};
  make_recurrent(w, &layer, LAYER_CONV);
  w->layer.conv_in = make_linear(w, LINEAR_DENSE, 0, 0, HIDDEN, 3 * HIDDEN);
  w->layer.o = make_linear(w, LINEAR_DENSE, 0, 0, HIDDEN, HIDDEN);
  w->layer.conv_taps = (Vector){w->memory[0][2], DTYPE_F16, HIDDEN * TAPS};
  assert_int_equal(model_check_split(&w->model, 2, &err), STATUS_OK);
  for (int p = 0; p < 2; p++) {
    Model *part;
    assert_int_equal(model_part(&w->model, p, 2, &part, &err), STATUS_OK);
    const ModelLayer *l = part->layers;
    assert_int_equal(part->config.conv.channels, HIDDEN / 2);
    assert_run(&l->conv_in, &w->layer.conv_in, p * HIDDEN / 2, HIDDEN / 2);
    for (int i = 0; i < 2; i++)
      assert_run(&l->more[i], &w->layer.conv_in, (i + 1) * HIDDEN + p * HIDDEN / 2, HIDDEN / 2);
    assert_inputs(&l->o, &w->layer.o, p * HIDDEN / 2);
    assert_ptr_equal(l->conv_taps.data, w->memory[0][2] + p * HIDDEN / 2 * TAPS * 2);
    model_part_free(part);
  }
}

TEST_WITH(NULL, NULL, what_cannot_be_divided_is_refused) {
  Whole *w = *state;
  Error err = {{0}};
  make_whole(w, LINEAR_AWQ, 4, GROUP);
  assert_int_equal(model_check_split(&w->model, 1, &err), STATUS_OK);
  assert_int_equal(model_check_split(&w->model, 3, &err), STATUS_MODEL);
  assert_non_null(strstr(err.text, "it has 2 KV heads; it would work with 2"));
  w->layer.o.order = (const int32_t[]){0};
  assert_int_equal(model_check_split(&w->model, 2, &err), STATUS_MODEL);
  assert_non_null(strstr(err.text, " has its inputs in the order of activations; no number of GPUs works"));
  w->layer.o.order = NULL;
  w->layer.down.group = 128;
  assert_int_equal(model_check_split(&w->model, 2, &err), STATUS_OK); /* one scale for a column */
  w->layer.o.group = 48;
  assert_int_equal(model_check_split(&w->model, 2, &err), STATUS_MODEL);
  assert_non_null(strstr(err.text, "a layer has 128 inputs in groups of 48; no number of GPUs works"));
  w->layer.o.kind = LINEAR_INT8;
  assert_int_equal(model_check_split(&w->model, 2, &err), STATUS_MODEL);
  assert_non_null(strstr(err.text, "int8 with one scale"));
  make_whole(w, LINEAR_DENSE, 0, 0);
  w->layer.o.n_in = 136;
  assert_int_equal(model_check_split(&w->model, 2, &err), STATUS_MODEL);
  assert_non_null(strstr(err.text, "a layer has 136 inputs, which are divided by eights"));
  make_whole(w, LINEAR_AWQ, 4, GROUP);
  assert_int_equal(model_check_split(&w->model, 4, &err), STATUS_MODEL);
  assert_non_null(
      strstr(err.text, "an expert has 96 hidden units, which are divided by groups of 32; it would"));
  w->model.config.qk_norm = QK_NORM_WHOLE;
  assert_int_equal(model_check_split(&w->model, 2, &err), STATUS_MODEL);
  assert_non_null(strstr(err.text, "TestForCausalLM has a norm over all heads of q and of k"));
  LayerConfig layer;
  make_recurrent(w, &layer, LAYER_DELTA);
  w->model.config.delta.rule = RULE_MAMBA2;
  assert_int_equal(model_check_split(&w->model, 2, &err), STATUS_MODEL);
  assert_non_null(strstr(err.text, "Mamba-2 layers"));
}

TEST_WITH(NULL, NULL, weights_that_are_not_made_yet_stay_so) {
  Whole *w = *state;
  Error err = {{0}};
  Model *part;
  make_whole(w, LINEAR_AWQ, 4, GROUP);
  w->layer.o.qweight = w->layer.o.qzeros = w->layer.o.scales = w->layer.q.qweight = NULL;
  assert_int_equal(model_part(&w->model, 1, 2, &part, &err), STATUS_OK);
  assert_null(part->layers[0].o.qweight);
  assert_null(part->layers[0].o.scales);
  assert_null(part->layers[0].q.qweight);
  model_part_free(part);
}

static int make_room(void **state) {
  *state = malloc(sizeof(Whole));
  return *state ? 0 : -1;
}

static int free_room(void **state) {
  free(*state);
  return 0;
}

static CMFixtureFunction before_all = make_room, after_all = free_room;
