/* test_float_layouts.c - layers in FP8 and FP4: what model_prepare() makes of their scales, and the message
 * of every one that is refused. Whole models of each layout: commands/models/test_layouts.py. */
#include "tiny_layer.h"

#include <math.h>

#include "model/loaders.h"

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

static void scales_of_nvfp4_have_the_global_scale_in_them(void **state) {
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

static void scales_of_mxfp4_are_powers_of_two(void **state) {
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
static void scales_of_fp8_are_of_blocks(void **state) {
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

static void scales_of_fp8_may_be_bf16_or_exponents(void **state) {
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

/* --- what is refused when a checkpoint is opened */

static void parts_of_fp4(void **state) {
  Tiny tiny;
  add_nvfp4(&tiny, true);
  tiny_remove(&tiny, Q ".weight_global_scale");
  ASSERT_REFUSED(&tiny, Q ".weight_global_scale is missing, although its weights are there");
  add_nvfp4(&tiny, false);
  tiny_remove(&tiny, Q ".weight_scale_2");
  ASSERT_REFUSED(&tiny, Q ".weight_scale_2 is missing, although its weights are there");
  add_nvfp4(&tiny, false);
  tiny_replace(&tiny, Q ".weight_scale_2", "F32", 1, 2, 1);
  ASSERT_REFUSED(&tiny, Q ".weight_scale_2 is [2], expected [1]");
  add_nvfp4(&tiny, false);
  tiny_replace(&tiny, Q ".weight_scale_2", "I32", 1, 1, 1);
  ASSERT_REFUSED(&tiny, Q ".weight_scale_2 is I32, expected F16, BF16 or F32");
  add_nvfp4(&tiny, true);
  tiny_remove(&tiny, Q ".weight_scale");
  ASSERT_REFUSED(&tiny, Q ".weight_scale is missing, although its weights are there");
  add_nvfp4(&tiny, true);
  tiny_replace(&tiny, Q ".weight_scale", "F16", 2, OUT, 2);
  ASSERT_REFUSED(&tiny, Q ".weight_scale is F16, expected F8_E4M3 for groups of 16");
  add_nvfp4(&tiny, true);
  tiny_replace(&tiny, Q ".weight_scale", "F8_E4M3", 2, OUT, 1);
  ASSERT_REFUSED(&tiny, Q ".weight_scale is [32, 1], expected [32, 2] for groups of 16");
  add_nvfp4(&tiny, true);
  tiny_replace(&tiny, Q ".weight_packed", "U8", 2, OUT, IN);
  ASSERT_REFUSED(&tiny, Q ".weight_packed is [32, 32], expected [32, 16] (two weights a byte)");
  add_mxfp4(&tiny);
  tiny_replace(&tiny, Q ".weight_scale", "U8", 2, OUT, 2);
  ASSERT_REFUSED(&tiny, Q ".weight_scale is [32, 2], expected [32, 1] for groups of 32");
  static const char *const additions[] = {".pre_quant_scale", ".svdquant_lora_a", ".weight_zero_point"};
  for (size_t i = 0; i < 3; i++) {
    char part[160];
    add_nvfp4(&tiny, false);
    add_part(&tiny, additions[i], "F16", 1, IN, 1);
    snprintf(part, sizeof part, Q "%s: FP8 and FP4 layers with such a tensor are not supported",
             additions[i]);
    ASSERT_REFUSED(&tiny, part);
  }
}

/* gate_proj has 40 inputs: two groups of 16 and a half, and one group of 32 and a quarter. */
static void fp4_has_whole_groups(void **state) {
  static const char *const configs[] = {NVFP4, MXFP4_PACKED}, *const names[] = {"weight", "weight_packed"};
  for (int i = 0; i < 2; i++) {
    Tiny tiny;
    char name[96], part[200];
    make_dense(&tiny, configs[i]);
    tiny_free(&tiny);
    tiny.hidden = 40;
    tiny_add(&tiny, "model.embed_tokens.weight", "F16", 2, 40, 40);
    snprintf(name, sizeof name, Q ".%s", names[i]);
    tiny_add(&tiny, name, "U8", 2, 32, 20);
    tiny_add(&tiny, Q ".weight_scale", i ? "U8" : "F8_E4M3", 2, 32, 2);
    snprintf(part, sizeof part, "%s: a layer of 40 inputs cannot be quantised in groups of %d", name,
             i ? 32 : 16);
    ASSERT_REFUSED(&tiny, part);
  }
}

static void parts_of_fp8(void **state) {
  Tiny tiny;
  add_fp8_blocks(&tiny);
  tiny_remove(&tiny, Q ".weight_scale_inv");
  ASSERT_REFUSED(&tiny, Q ".weight_scale is missing (and so is its weight_scale_inv), although its weights");
  add_fp8_blocks(&tiny);
  add_part(&tiny, ".weight_scale", "F32", 1, 1, 1);
  ASSERT_REFUSED(&tiny, Q " has a weight_scale_inv and a weight_scale, expected one of them");
  add_fp8_blocks(&tiny);
  tiny_replace(&tiny, Q ".weight_scale_inv", "I8", 2, 2, 2);
  ASSERT_REFUSED(&tiny, Q ".weight_scale_inv is I8, expected F16, BF16 or F32");
  add_fp8(&tiny, FP8_BLOCKS, ".weight_scale_inv", 2, 1, 1);
  ASSERT_REFUSED(&tiny,
                 Q ".weight_scale_inv is [1, 1], expected [2, 2] for blocks of 24 outputs and 16 inputs");
  add_fp8(&tiny, FP8_CHANNEL, ".weight_scale", 2, 1, OUT);
  ASSERT_REFUSED(&tiny, Q ".weight_scale is [1, 32], expected [32, 1] for blocks of 1 outputs and 32 inputs");
  add_fp8(&tiny, FP8, ".weight_scale_inv", 2, 2, 2);
  ASSERT_REFUSED(&tiny,
                 Q ".weight_scale_inv is [2, 2], expected [1, 1]: the config has no weight_block_size");
  add_fp8_blocks(&tiny);
  tiny_replace(&tiny, Q ".weight", "F8_E4M3", 2, OUT, IN / 2);
  ASSERT_REFUSED(&tiny, Q ".weight is [32, 16], expected [32, 32]");
  add_fp8_blocks(&tiny);
  tiny_replace(&tiny, Q ".weight", "F8_E5M2", 2, OUT, IN / 2);
  ASSERT_REFUSED(&tiny, Q ".weight_scale_inv: this layer looks like FP8 in blocks");
}

static void layouts_that_the_config_does_not_say(void **state) {
  Tiny tiny;
  add_nvfp4(&tiny, true);
  tiny.extra_config = NVFP4;
  ASSERT_REFUSED(&tiny, Q ".weight_packed is stored as compressed-tensors nvfp4-pack-quantized has it, but ",
                 "config.json says ModelOpt NVFP4");
  add_nvfp4(&tiny, false);
  tiny.extra_config = FP8;
  ASSERT_REFUSED(&tiny, Q ".weight is stored as ModelOpt NVFP4 has it, but ", "config.json says FP8");
  add_mxfp4(&tiny);
  tiny.extra_config = NVFP4_PACKED;
  ASSERT_REFUSED(&tiny, Q ".weight_packed is stored as compressed-tensors mxfp4-pack-quantized has it, but ");
  add_fp8_blocks(&tiny);
  tiny.extra_config = NVFP4;
  ASSERT_REFUSED(&tiny, Q ".weight is stored as FP8 has it, but ", "config.json says ModelOpt NVFP4");
  add_fp8_blocks(&tiny);
  tiny.extra_config = "";
  ASSERT_REFUSED(&tiny, Q ".weight_scale_inv: this layer looks like FP8 in blocks, expected ");
}

/* --- what is refused when its numbers are read */

static void scales_of_groups_are_numbers_from_0_on(void **state) {
  static const struct {
    unsigned char code;
    const char *nvfp4, *mxfp4;
  } cases[] = {
      {0x7f, Q ".weight_scale: element 5 is nan (0x7f), expected a number from 0 to 448", NULL},
      {0xff, Q ".weight_scale: element 5 is ", Q ".weight_scale: element 5 is nan (0xff), expected a"},
      {0x88, Q ".weight_scale: element 5 is -0.015625 (0x88), expected a number from 0 to 448", NULL},
      {0xfd, NULL, Q ".weight_scale: element 5 is 8.50706e+37 (0xfd), expected a number from 0 to 4.2"}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    Tiny tiny;
    add_nvfp4(&tiny, i % 2);
    tiny_find(&tiny, Q ".weight_scale")->data[5] = cases[i].code;
    tiny_find(&tiny, Q ".weight_scale")->data[9] = cases[i].code;
    if (cases[i].nvfp4)
      assert_unprepared(&tiny, cases[i].nvfp4);
    else
      tiny_free(&tiny);
    add_mxfp4(&tiny);
    tiny_find(&tiny, Q ".weight_scale")->data[5] = cases[i].code;
    if (cases[i].mxfp4)
      assert_unprepared(&tiny, cases[i].mxfp4);
    else
      tiny_free(&tiny);
  }
}

static void global_scales_are_numbers_above_0(void **state) {
  static const float values[] = {0, -1, NAN, INFINITY, -INFINITY, 1e38f, 1e-42f};
  for (size_t i = 0; i < sizeof values / sizeof *values; i++) {
    for (int packed = 0; packed < 2; packed++) {
      Tiny tiny;
      if ((values[i] == 1e38f && packed) || (values[i] == 1e-42f && !packed)) continue; /* fine there */
      add_nvfp4(&tiny, packed);
      const char *name = packed ? Q ".weight_global_scale" : Q ".weight_scale_2";
      set_float(tiny_find(&tiny, name), 0, values[i]);
      assert_unprepared(&tiny, name);
    }
  }
  Tiny tiny;
  add_nvfp4(&tiny, true);
  set_float(tiny_find(&tiny, Q ".weight_global_scale"), 0, 0);
  assert_unprepared(&tiny, Q ".weight_global_scale is 0, expected a finite number above 0");
}

static void scales_of_fp8_are_finite(void **state) {
  static const float values[] = {NAN, INFINITY, -INFINITY, 1e37f};
  for (size_t i = 0; i < sizeof values / sizeof *values; i++) {
    Tiny tiny;
    set_float(add_fp8_blocks(&tiny), 3, values[i]);
    assert_unprepared(&tiny, Q ".weight_scale_inv: element 3 is ");
  }
  Tiny tiny;
  set_float(add_fp8_blocks(&tiny), 2, INFINITY);
  assert_unprepared(&tiny, "element 2 is inf, expected a number of at most 3.32307e+35");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(scales_of_nvfp4_have_the_global_scale_in_them),
      cmocka_unit_test(scales_of_mxfp4_are_powers_of_two),
      cmocka_unit_test(scales_of_fp8_are_of_blocks),
      cmocka_unit_test(scales_of_fp8_may_be_bf16_or_exponents),
      cmocka_unit_test(parts_of_fp4),
      cmocka_unit_test(fp4_has_whole_groups),
      cmocka_unit_test(parts_of_fp8),
      cmocka_unit_test(layouts_that_the_config_does_not_say),
      cmocka_unit_test(scales_of_groups_are_numbers_from_0_on),
      cmocka_unit_test(global_scales_are_numbers_above_0),
      cmocka_unit_test(scales_of_fp8_are_finite),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
