/* test_float_layouts.c - layers in FP8 and FP4: the scales that model_prepare() makes of theirs. Refusals:
 * test_tensor_transcripts.c. Whole models of each layout: commands/models/test_layouts.py. */
#include "tiny_layer.h"

#include <math.h>

#include "model/loaders.h"
#include "test/tests.h"

#define CT(format, weights)                                                                                  \
  QUANT("\"quant_method\": \"compressed-tensors\", \"format\": \"" format                                    \
        "\", \"config_groups\": {\"g\": {\"targets\": [\"Linear\"], \"weights\": {\"type\": "                \
        "\"float\", " weights "}}}")
#define NVFP4_PACKED CT("nvfp4-pack-quantized", "\"num_bits\": 4, \"group_size\": 16")
#define MXFP4_PACKED CT("mxfp4-pack-quantized", "\"num_bits\": 4, \"group_size\": 32")
#define NVFP4        QUANT("\"quant_method\": \"modelopt\", \"quant_algo\": \"NVFP4\"")
#define FP8_BLOCKS   QUANT("\"quant_method\": \"fp8\", \"weight_block_size\": [24, 16]")
#define FP8          QUANT("\"quant_method\": \"fp8\"")
#define FP8_CHANNEL  CT("float-quantized", "\"num_bits\": 8, \"strategy\": \"channel\"")

static void set_float(TinyTensor *tensor, size_t index, float value) {
  memcpy(tensor->data + index * 4, &value, 4);
}

static void add_nvfp4(Tiny *tiny, bool packed) {
  make_dense(tiny, packed ? NVFP4_PACKED : NVFP4);
  add_part(tiny, packed ? ".weight_packed" : ".weight", "U8", 2, OUT, IN / 2);
  TinyTensor *scales = add_part(tiny, ".weight_scale", "F8_E4M3", 2, OUT, IN / 16);
  for (size_t i = 0; i < scales->bytes; i++) scales->data[i] = (unsigned char)(i + 1);
  set_float(add_part(tiny, packed ? ".weight_global_scale" : ".weight_scale_2", "F32", 1, 1, 1), 0, 3);
}

static void add_mxfp4(Tiny *tiny) {
  make_dense(tiny, MXFP4_PACKED);
  add_part(tiny, ".weight_packed", "U8", 2, OUT, IN / 2);
  memset(add_part(tiny, ".weight_scale", "U8", 2, OUT, 1)->data, 127, OUT);
}

/* Scales of [rows][columns], or one number with rank 0 or 1. */
static TinyTensor *add_fp8(Tiny *tiny, const char *quant, const char *suffix, int rank, int rows,
                           int columns) {
  make_dense(tiny, quant);
  add_part(tiny, ".weight", "F8_E4M3", 2, OUT, IN);
  TinyTensor *scales = add_part(tiny, suffix, "F32", rank, rows, columns);
  for (size_t i = 0; i < scales->bytes / 4; i++) set_float(scales, i, (float)i + 0.5f);
  return scales;
}

static TinyTensor *add_fp8_blocks(Tiny *tiny) {
  return add_fp8(tiny, FP8_BLOCKS, ".weight_scale_inv", 2, 2, 2);
}

/* --- what is made of them */

static Opened open_prepared(Tiny *tiny) {
  Opened opened = {.directory = write_tiny(tiny)};
  Error err = {{0}};
  opened.model = open_fine(opened.directory, NULL);
  opened.q = &opened.model->layers[0].q;
  const void *weights = opened.q->weight;
  const size_t loaded = opened.model->made_bytes;
  if (model_prepare(opened.model, 2, &err) != STATUS_OK) fail_msg("%s", err.text);
  assert_ptr_equal(opened.q->weight, weights); /* in the file */
  assert_int_equal(opened.model->made_bytes, loaded);
  assert_int_equal(opened.model->replaced_bytes, 0);
  assert_int_equal(opened.model->unused_tensors, 0);
  return opened;
}

TEST(scales_of_nvfp4_have_the_global_scale_in_them) {
  for (int packed = 0; packed < 2; packed++) {
    Tiny tiny;
    add_nvfp4(&tiny, packed);
    Opened opened = open_prepared(&tiny);
    const Linear *q = opened.q;
    assert_int_equal(q->kind, LINEAR_FP4);
    assert_int_equal(q->bits, 4);
    assert_int_equal(q->group, 16);
    assert_int_equal(opened.model->made_bytes, 256 * 4);
    assert_memory_equal(q->scales, tiny_find(&tiny, Q ".weight_scale")->data, OUT * 2);
    for (int code = 0; code < 0x7f; code++) {
      const float scale = e4m3_to_float((uint8_t)code);
      assert_true(q->scale_values[code] == (packed ? scale / 3 : scale * 3));
    }
    close_opened(&opened, &tiny);
  }
}

TEST(scales_of_mxfp4_are_powers_of_two) {
  Tiny tiny;
  add_mxfp4(&tiny);
  Opened opened = open_prepared(&tiny);
  assert_int_equal(opened.q->kind, LINEAR_FP4);
  assert_int_equal(opened.q->group, 32);
  for (int code = 0; code < 255; code++)
    assert_true((double)opened.q->scale_values[code] == ldexp(1, code - 127));
  close_opened(&opened, &tiny);
  add_mxfp4(&tiny);
  memset(tiny_replace(&tiny, Q ".weight_scale", "F8_E8M0", 2, OUT, 1)->data, 1, OUT);
  opened = open_prepared(&tiny);
  assert_int_equal(opened.q->group, 32);
  close_opened(&opened, &tiny);
}

/* The shape of the scales where the config does not say it; blocks with a smaller one at the edge. */
TEST(scales_of_fp8_are_of_blocks) {
  static const struct {
    const char *quant, *suffix;
    int rank, rows, columns, block, group;
  } cases[] = {
      {FP8_BLOCKS, ".weight_scale_inv", 2, 2, 2, 24, 16},
      {FP8_CHANNEL, ".weight_scale", 2, OUT, 1, 1, IN},
      {FP8, ".weight_scale", 0, 1, 1, OUT, IN},
      {FP8, ".weight_scale_inv", 1, 1, 1, OUT, IN},
      {FP8, ".weight_scale", 2, OUT, 1, 1, IN},
      {FP8, ".weight_scale", 1, OUT, 1, 1, IN},
      {QUANT("\"quant_method\": \"fp8\", \"weight_block_size\": null"), ".weight_scale_inv", 0, 1, 1, OUT,
       IN},
      {QUANT("\"quant_method\": \"fp8\", \"weight_block_size\": [128, 128]"), ".weight_scale_inv", 2, 1, 1,
       OUT, IN},
      {QUANT("\"quant_method\": \"modelopt\", \"quant_algo\": \"FP8\""), ".weight_scale", 0, 1, 1, OUT, IN},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    Tiny tiny;
    add_fp8(&tiny, cases[i].quant, cases[i].suffix, cases[i].rank, cases[i].rows, cases[i].columns);
    Opened opened = open_prepared(&tiny);
    assert_int_equal(opened.q->kind, LINEAR_FP8);
    assert_int_equal(opened.q->block, cases[i].block);
    assert_int_equal(opened.q->group, cases[i].group);
    assert_int_equal(opened.model->made_bytes, cases[i].rows * cases[i].columns * 4);
    for (int at = 0; at < cases[i].rows * cases[i].columns; at++)
      assert_true(((const float *)opened.q->scales)[at] == (float)at + 0.5f);
    close_opened(&opened, &tiny);
  }
}

TEST(scales_of_fp8_may_be_bf16_or_exponents) {
  static const struct {
    const char *dtype;
    unsigned char bytes[2];
    size_t size;
  } cases[] = {{"BF16", {0x40, 0x3e}, 2}, {"F16", {0x00, 0x32}, 2}, {"F8_E8M0", {124, 0}, 1}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    Tiny tiny;
    add_fp8_blocks(&tiny);
    TinyTensor *scales = tiny_replace(&tiny, Q ".weight_scale_inv", cases[i].dtype, 2, 2, 2);
    for (size_t at = 0; at < 4; at++)
      memcpy(scales->data + at * cases[i].size, cases[i].bytes, cases[i].size);
    Opened opened = open_prepared(&tiny);
    const float expected = i == 2 ? 0.125f : 0.1875f;
    for (size_t at = 0; at < 4; at++) assert_true(((const float *)opened.q->scales)[at] == expected);
    close_opened(&opened, &tiny);
  }
}
