/* test_layouts.c - quantised layers that are not stored as a Linear has them: the numbers that
 * model_prepare() makes of theirs, and heads. Refusals: test_tensor_transcripts.c. Whole models:
 * commands/models/test_layouts.py. */
#include "tiny_layer.h"

#include "model/loaders.h"
#include "test/tests.h"

enum { GROUP = 16, GROUPS = IN / GROUP };

static void set_words(TinyTensor *tensor, uint32_t word) {
  for (size_t i = 0; i < tensor->bytes / 4; i++) memcpy(tensor->data + i * 4, &word, 4);
}

/* `rank` 2 unless b is 0. */
static TinyTensor *add(Tiny *tiny, const char *suffix, const char *dtype, int64_t a, int64_t b) {
  return add_part(tiny, suffix, dtype, b ? 2 : 1, a, b ? b : 1);
}

#define AWQ_CONFIG QUANT("\"quant_method\": \"awq\", \"group_size\": 16")
#define GPTQ_CONFIG(bits, more)                                                                              \
  QUANT("\"quant_method\": \"gptq\", \"group_size\": 16, \"sym\": false, \"bits\": " bits more)
#define CT_CONFIG(format, weights, more)                                                                     \
  QUANT("\"quant_method\": \"compressed-tensors\", \"format\": \"" format                                    \
        "\", \"config_groups\": {\"g\": {\"targets\": [\"Linear\"], \"weights\": {" weights "}" more "}}")
#define PACKED_4 CT_CONFIG("pack-quantized", "\"num_bits\": 4, \"group_size\": 16, \"symmetric\": false", "")
#define INT8                                                                                                 \
  CT_CONFIG("int-quantized", "\"num_bits\": 8, \"strategy\": \"channel\"",                                   \
            ", \"input_activations\": {\"dynamic\": true, \"strategy\": \"token\"}")

static void add_awq(Tiny *tiny) {
  make_dense(tiny, AWQ_CONFIG);
  add(tiny, ".qweight", "I32", IN, OUT / 8);
  add(tiny, ".qzeros", "I32", GROUPS, OUT / 8);
  add(tiny, ".scales", "F16", GROUPS, OUT);
}

static void add_gptq(Tiny *tiny, int bits, const char *config) {
  make_dense(tiny, config);
  add(tiny, ".qweight", "I32", IN * bits / 32, OUT);
  set_words(add(tiny, ".qzeros", "I32", GROUPS, OUT * bits / 32), 0x12345678);
  add(tiny, ".scales", "F16", GROUPS, OUT);
  TinyTensor *order = add(tiny, ".g_idx", "I32", IN, 0);
  for (int32_t i = 0; i < IN; i++) memcpy(order->data + i * 4, &(int32_t){i / GROUP}, 4);
}

static void add_packed(Tiny *tiny) {
  make_dense(tiny, PACKED_4);
  add(tiny, ".weight_packed", "I32", OUT, IN / 8);
  add(tiny, ".weight_scale", "BF16", OUT, GROUPS);
  add(tiny, ".weight_zero_point", "I32", OUT / 8, GROUPS);
  TinyTensor *shape = add(tiny, ".weight_shape", "I64", 2, 0);
  memcpy(shape->data, (int64_t[]){OUT, IN}, 16);
}

static void add_int8(Tiny *tiny) {
  make_dense(tiny, INT8);
  add(tiny, ".weight", "I8", OUT, IN);
  add(tiny, ".weight_scale", "BF16", OUT, 1);
}

/* --- what is made of them */

static Opened open_prepared(Tiny *tiny) {
  Opened opened = {.directory = write_tiny(tiny)};
  Error err = {{0}};
  opened.model = open_fine(opened.directory, NULL);
  opened.q = &opened.model->layers[0].q;
  const void *weights = opened.q->qweight;
  if (model_prepare_scales(opened.model, 2, &err) != STATUS_OK) fail_msg("%s", err.text);
  assert_non_null(opened.q->scales);
  assert_ptr_equal(opened.q->qweight, weights); /* what takes long comes last */
  if (model_prepare(opened.model, 2, &err) != STATUS_OK) fail_msg("%s", err.text);
  const Linear before = *opened.q;
  const size_t n_made = opened.model->files->n_made;
  assert_int_equal(model_prepare(opened.model, 2, &err), STATUS_OK); /* nothing more to do */
  assert_int_equal(model_prepare_scales(opened.model, 2, &err), STATUS_OK);
  assert_memory_equal(opened.q, &before, sizeof before);
  assert_int_equal(opened.model->files->n_made, n_made);
  assert_int_equal(opened.model->unused_tensors, 0);
  return opened;
}

TEST(what_lies_right_stays_where_it_is) {
  Tiny tiny;
  add_awq(&tiny);
  char *directory = write_tiny(&tiny);
  Model *model = open_fine(directory, NULL);
  const Linear before = model->layers[0].q;
  Error err;
  assert_int_equal(model_prepare(model, 0, &err), STATUS_OK);
  assert_memory_equal(&model->layers[0].q, &before, sizeof before);
  assert_int_equal(before.kind, LINEAR_AWQ);
  assert_int_equal(model->made_bytes, 0);
  assert_int_equal(model->replaced_bytes, 0);
  model_close(model);
  remove_directory(directory);
  tiny_free(&tiny);

  add_int8(&tiny);
  Opened opened = open_prepared(&tiny);
  assert_int_equal(opened.q->kind, LINEAR_INT8);
  assert_memory_equal(opened.q->weight, tiny_find(&tiny, Q ".weight")->data, IN * OUT);
  assert_int_equal(opened.model->made_bytes, OUT * 4);
  close_opened(&opened, &tiny);
}

/* bf16 scales become F16 where no more than tiny ones are rounded by it, else all of the layer is kept in
 * fp32; fp32 scales that are F16 numbers are none the worse for it. */
TEST(scales_are_f16_where_that_loses_nothing) {
  static const struct {
    const char *dtype;
    float first, others;
    LinearKind kind;
    float held;
  } cases[] = {
      {"BF16", 0x1.8p-3f, 0.25f, LINEAR_AWQ, 0x1.8p-3f},
      {"BF16", 0x1.02p-24f, 0.25f, LINEAR_AWQ, 0x1p-24f},
      {"BF16", 0x1p-30f, 0.25f, LINEAR_AWQ, 0},
      {"BF16", 0x1p-30f, 0x1p-28f, LINEAR_GROUPED, 0x1p-30f},
      {"BF16", 0x1p17f, 0.25f, LINEAR_GROUPED, 0x1p17f},
      {"F32", 0.25f, 0.5f, LINEAR_AWQ, 0.25f},
      {"F32", 0.1f, 0.25f, LINEAR_GROUPED, 0.1f},
      /* F16 numbers from 0.5 on are 2^-11 apart: what is lost is 2^-14 of the largest, and a little more. */
      {"F32", 0.5f + 0x1p-14f, 1, LINEAR_AWQ, 0.5f},
      {"F32", 0.5f + 0x1p-14f + 0x1p-24f, 1, LINEAR_GROUPED, 0.5f + 0x1p-14f + 0x1p-24f},
      {"F32", -0.5f - 0x1p-14f, -1, LINEAR_AWQ, -0.5f},
      {"F32", -0.5f - 0x1p-13f, -1, LINEAR_GROUPED, -0.5f - 0x1p-13f},
      {"F32", 0, 0, LINEAR_AWQ, 0},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    Tiny tiny;
    add_awq(&tiny);
    TinyTensor *scales = tiny_replace(&tiny, Q ".scales", cases[i].dtype, 2, GROUPS, OUT);
    const size_t size = scales->bytes / (GROUPS * OUT);
    for (size_t at = 0; at < GROUPS * OUT; at++) {
      uint32_t bits = float_bits(at ? cases[i].others : cases[i].first);
      memcpy(scales->data + at * size, (const unsigned char *)&bits + 4 - size,
             size); /* bf16: the upper half */
    }
    Opened opened = open_prepared(&tiny);
    const Linear *q = opened.q;
    float held;
    assert_int_equal(q->kind, cases[i].kind);
    floats_read(q->scales, q->kind == LINEAR_AWQ ? DTYPE_F16 : DTYPE_F32, 0, 1, &held);
    assert_true(held == cases[i].held);
    assert_memory_equal(q->qweight, tiny_find(&tiny, Q ".qweight")->data, IN * OUT / 2);
    const uint8_t *zeros = tiny_find(&tiny, Q ".qzeros")->data, *found = q->qzeros;
    for (int at = 0; q->kind == LINEAR_GROUPED && at < GROUPS * OUT; at++) {
      static const int nibble_of[8] = {0, 4, 1, 5, 2, 6, 3, 7};
      int nibble = nibble_of[at % 8], byte = at / 8 * 4 + nibble / 2;
      assert_int_equal(found[at], zeros[byte] >> nibble % 2 * 4 & 15);
    }
    if (q->kind == LINEAR_AWQ) assert_memory_equal(found, zeros, GROUPS * OUT / 2);
    close_opened(&opened, &tiny);
  }
}

/* Version 1 of GPTQ stores one less, so that 15 means 16, which four bits do not hold. */
TEST(zero_points_of_gptq) {
  static const struct {
    int bits;
    const char *config;
    uint32_t stored;
    LinearKind kind;
    int zero;
  } cases[] = {
      {4, GPTQ_CONFIG("4", ""), 0x77777777, LINEAR_AWQ, 8},
      {4, GPTQ_CONFIG("4", ""), 0xffffffff, LINEAR_GROUPED, 16},
      {4, GPTQ_CONFIG("4", ", \"format\": \"gptq_v2\""), 0xffffffff, LINEAR_AWQ, 15},
      {4, GPTQ_CONFIG("4", ", \"format\": \"gptq_v2\""), 0, LINEAR_AWQ, 0},
      {8, GPTQ_CONFIG("8", ""), 0xfefefefe, LINEAR_GROUPED, 255},
      {8, GPTQ_CONFIG("8", ", \"format\": \"gptq_v2\""), 0xffffffff, LINEAR_GROUPED, 255},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    Tiny tiny;
    add_gptq(&tiny, cases[i].bits, cases[i].config);
    set_words(tiny_find(&tiny, Q ".qzeros"), cases[i].stored);
    Opened opened = open_prepared(&tiny);
    assert_int_equal(opened.q->kind, cases[i].kind);
    assert_int_equal(opened.q->bits, cases[i].bits);
    const uint8_t *zeros = opened.q->qzeros;
    for (int at = 0; at < GROUPS * OUT; at++)
      assert_int_equal(cases[i].kind == LINEAR_AWQ ? zeros[at / 2] >> at % 2 * 4 & 15 : zeros[at],
                       cases[i].zero);
    close_opened(&opened, &tiny);
  }
}

/* Without zero points all are the middle. */
TEST(symmetric_layers) {
  Tiny tiny;
  add_awq(&tiny);
  tiny_remove(&tiny, Q ".qzeros");
  tiny.extra_config = QUANT("\"quant_method\": \"awq\", \"group_size\": 16, \"zero_point\": false");
  Opened opened = open_prepared(&tiny);
  assert_int_equal(opened.q->kind, LINEAR_AWQ);
  for (int i = 0; i < GROUPS * OUT / 2; i++) assert_int_equal(((const uint8_t *)opened.q->qzeros)[i], 0x88);
  close_opened(&opened, &tiny);
}

/* --- what is refused when a checkpoint is opened */

/* Replaces a matrix of layer 0 by one of int8 zeros, which needs no time to make. */
static void add_int8_zeros(Tiny *tiny, const char *which, int64_t n_out, int64_t n_in) {
  char name[96];
  snprintf(name, sizeof name, "model.layers.0.mlp.%s.weight", which);
  TinyTensor *weight = tiny_replace(tiny, name, "I8", 2, 1, 1);
  free(weight->data);
  weight->shape[0] = n_out;
  weight->shape[1] = n_in;
  weight->bytes = (size_t)(n_out * n_in);
  weight->data = calloc(1, weight->bytes);
  assert_non_null(weight->data);
  snprintf(name, sizeof name, "model.layers.0.mlp.%s.weight_scale", which);
  tiny_add(tiny, name, "BF16", 2, n_out, 1);
}

/* A model of one layer whose down_proj has so many inputs. */
static void make_wide_int8(Tiny *tiny, int n_in) {
  add_int8(tiny);
  tiny->n_layers = 1;
  tiny->intermediate = n_in;
  for (int i = tiny->n_tensors; i-- > 0;)
    if (strncmp(tiny->tensors[i].name, "model.layers.1.", 15) == 0) tiny_remove(tiny, tiny->tensors[i].name);
  add_int8_zeros(tiny, "gate_proj", n_in, tiny->hidden);
  add_int8_zeros(tiny, "up_proj", n_in, tiny->hidden);
  add_int8_zeros(tiny, "down_proj", tiny->hidden, n_in);
}

/* 2^17 products of -128 and -128 are 2^31, one more than an int32 sum holds. */
TEST(int8_sums_must_fit_32_bits) {
  Tiny tiny;
  make_wide_int8(&tiny, (1 << 17) - 1);
  char *directory = write_tiny(&tiny);
  tiny_free(&tiny);
  model_close(open_fine(directory, NULL));
  remove_directory(directory);
  make_wide_int8(&tiny, 1 << 17);
  ASSERT_REFUSED(&tiny, "down_proj.weight: int8 products of 131072 inputs are not supported");
}

/* A layer that the config calls dense is read as the others are where its tensors are quantised ones. */
TEST(tensors_say_whether_a_layer_is_quantised) {
  static const char *const ignored[] = {QUANT("\"quant_method\": \"gptq\", \"group_size\": 16, \"sym\": "
                                              "false, \"dynamic\": {\"-:.*q_proj\": {}}"),
                                        QUANT("\"quant_method\": \"gptq\", \"group_size\": 16, \"sym\": "
                                              "false, \"modules_to_not_convert\": [\"q_proj\"]")};
  for (size_t i = 0; i < 2; i++) {
    Tiny tiny;
    add_gptq(&tiny, 4, ignored[i]);
    Opened opened = open_prepared(&tiny);
    assert_int_equal(opened.q->group, 16);
    assert_int_equal(opened.model->layers[1].q.kind, LINEAR_DENSE); /* no tensors of a quantised one */
    close_opened(&opened, &tiny);
  }
  Tiny tiny;
  add_packed(&tiny);
  tiny_replace(&tiny, Q ".weight_shape", "I32", 1, 2, 1);
  memcpy(tiny_find(&tiny, Q ".weight_shape")->data, (int32_t[]){OUT, IN}, 8);
  Opened opened = open_prepared(&tiny);
  assert_int_equal(opened.q->kind, LINEAR_AWQ);
  close_opened(&opened, &tiny);
}

/* A head is quantised as its tensors are; that it is, the config says from then on. */
TEST(heads_may_be_quantised) {
  static const struct {
    const char *config;
    int bits;
  } cases[] = {{GPTQ_CONFIG("4", ""), 4}, {GPTQ_CONFIG("8", ""), 8}, {"", 0}};
  for (size_t i = 0; i < 3; i++) {
    const int bits = cases[i].bits;
    Tiny tiny;
    make_dense(&tiny, cases[i].config);
    add(&tiny, ".weight", "F16", OUT, IN);
    tiny.tied = false;
    if (bits) {
      tiny_add(&tiny, "lm_head.qweight", "I32", 2, IN * bits / 32, 40);
      set_words(tiny_add(&tiny, "lm_head.qzeros", "I32", 2, GROUPS, 40 * bits / 32), 0x11111111);
      tiny_add(&tiny, "lm_head.scales", "F16", 2, GROUPS, 40);
    } else {
      tiny_add(&tiny, "lm_head.weight", "F16", 2, 40, IN);
    }
    char *directory = write_tiny(&tiny);
    Model *model = open_fine(directory, NULL);
    assert_int_equal(model->config.quant.head, bits != 0);
    assert_int_equal(model->head.kind, bits == 4 ? LINEAR_AWQ : bits == 8 ? LINEAR_GROUPED : LINEAR_DENSE);
    assert_int_equal(model->head.n_out, 40);
    model_close(model);
    remove_directory(directory);
    tiny_free(&tiny);
  }
}

/* The text part of several has the head that is there, dense or quantised, else its embedding. */
TEST(the_head_of_a_text_part_is_the_one_that_is_there) {
  static const struct {
    const char *suffix, *dtype;
    int rows, columns;
    const char *refused; /* NULL: taken */
    bool tied;
  } cases[] = {
      {NULL, NULL, 0, 0, NULL, true},
      {"weight", "F16", 40, IN, NULL, false},
      {"qweight", "I32", 3, 3, "tensor lm_head.qweight is [3, 3], expected [32, 5]", false},
      {"weight_packed", "I32", 3, 3, "tensor lm_head.weight_packed is stored as compressed-tensors", false},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    Tiny tiny;
    char name[40];
    tiny_llama(&tiny);
    if (cases[i].suffix) {
      snprintf(name, sizeof name, "lm_head.%s", cases[i].suffix);
      tiny_add(&tiny, name, cases[i].dtype, 2, cases[i].rows, cases[i].columns);
    }
    char *directory = write_tiny(&tiny);
    write_text(
        directory, "config.json",
        "{\"architectures\": [\"Mistral3ForConditionalGeneration\"], \"model_type\": \"mistral3\", "
        "\"quantization_config\": {\"quant_method\": \"awq\", \"group_size\": 16}, \"text_config\": "
        "{\"hidden_size\": 32, \"intermediate_size\": 48, \"num_hidden_layers\": 2, "
        "\"num_attention_heads\": 2, \"num_key_value_heads\": 1, \"head_dim\": 16, \"vocab_size\": 40, "
        "\"max_position_embeddings\": 64}}");
    if (cases[i].refused) {
      OPEN_REFUSED(directory, NULL, STATUS_MODEL, cases[i].refused);
    } else {
      Model *model = open_fine(directory, NULL);
      assert_int_equal(model->config.tied_embeddings, cases[i].tied);
      assert_int_equal(model->head.weight == model->embedding.data, cases[i].tied);
      assert_string_equal(model->head.name, cases[i].tied ? "model.embed_tokens" : "lm_head");
      assert_int_equal(model->unused_tensors, 0);
      model_close(model);
    }
    remove_directory(directory);
    tiny_free(&tiny);
  }
}

/* --- what is refused when its numbers are read */

TEST(a_packed_file_has_finite_scales) {
  Tiny tiny;
  tiny_qwen3(&tiny);
  memcpy(tiny_find(&tiny, "model.layers.1.mlp.up_proj.scales")->data + 10, "\x00\x7e", 2);
  char *directory = write_tiny(&tiny), *packed = in_directory(directory, "packed");
  Model *model = open_fine(directory, NULL);
  Error err = {{0}};
  assert_int_equal(pack_model(model, packed, NULL, &err), STATUS_OK);
  model_close(model);
  model = open_fine(packed, NULL);
  assert_int_equal(model_prepare(model, 1, &err), STATUS_MODEL);
  assert_contains(err.text, "packed: tensor model.layers.1.mlp.up_proj.scales: element 5 is nan");
  model_close(model);
  remove_directory(directory);
  tiny_free(&tiny);
}
