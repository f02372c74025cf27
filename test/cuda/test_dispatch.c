/* test_dispatch.c - the table of linear kernels on the host: both sides of every threshold, refusals,
 * forcing.
 *
 * An H200 has 132 SMs and 227 KB of shared memory a block; the other chips are as NVIDIA's tables of compute
 * capabilities say (64 KB on 7.5, 99 KB on 8.6). */
// clang-format off
#include <stdarg.h>
#include <stddef.h>
#include <limits.h>
#include <setjmp.h>
#include <cmocka.h>
// clang-format on
#include <string.h>

#include "cuda/linear/dispatch.h"
#include "cuda/linear/skinny_plan.h"

#define COUNT(array) (sizeof(array) / sizeof *(array))

/* Qwen3-8B's qkv on an H200: the values that a test does not change. */
static LinearQuery h200(int n_tokens) {
  return (LinearQuery){.weights = WEIGHT_AWQ4,
                       .act = ACT_F16,
                       .n_in = 4096,
                       .n_out = 6144,
                       .group = 128,
                       .n_tokens = n_tokens,
                       .device = {SM_90A, 132, 227 * 1024}};
}

static LinearQuery chip(int arch, int n_sms, int shared_kb, int n_tokens) {
  LinearQuery query = h200(n_tokens);
  query.device = (DeviceLimits){arch, n_sms, (size_t)shared_kb * 1024};
  return query;
}

static const char *chosen(LinearQuery query) {
  const LinearEntry *entry;
  Error err;
  return linear_dispatch(&query, NULL, &entry, &err) == STATUS_OK ? entry->name : "none";
}

static const char *chosen_for(LinearQuery query, WeightType weights, int group, ActType act) {
  query.weights = weights;
  query.group = group;
  query.act = act;
  return chosen(query);
}

static const char *chosen_of_size(LinearQuery query, int n_in, int n_out) {
  query.n_in = n_in;
  query.n_out = n_out;
  return chosen(query);
}

static void rows_of_x_choose_on_hopper(void **state) {
  (void)state;
  assert_string_equal(chosen(h200(1)), "awq_planes");
  assert_string_equal(chosen(h200(2)), "narrow_wgmma");
  assert_string_equal(chosen_for(h200(1), WEIGHT_AWQ4, 32, ACT_F16), "awq_planes");
  assert_string_equal(chosen_for(h200(2), WEIGHT_AWQ4, 32, ACT_F16), "narrow_wgmma");
  assert_string_equal(chosen_of_size(h200(2), 1024, 1024), "narrow_wgmma");
  assert_string_equal(chosen(h200(16)), "narrow_wgmma");
  assert_string_equal(chosen(h200(17)), "planes_wgmma");
  assert_string_equal(chosen_for(h200(17), WEIGHT_AWQ4, 32, ACT_F16), "narrow_wgmma");
  assert_string_equal(chosen(h200(24)), "planes_wgmma");
  assert_string_equal(chosen(h200(25)), "narrow_wgmma");
  assert_string_equal(chosen_of_size(h200(17), 4096, 4096), "narrow_wgmma");
  assert_string_equal(chosen(h200(128)), "narrow_wgmma");
  assert_string_equal(chosen(h200(129)), "awq_wgmma");
  assert_string_equal(chosen(h200(100000)), "awq_wgmma");
}

/* A matrix of less than 16 Mi weights has too few tiles for many tokens; one of 20 Mi has enough for any
 * count. */
static void small_matrices_turn_to_the_library_earlier(void **state) {
  (void)state;
  assert_string_equal(chosen_of_size(h200(256), 4096, 4088), "awq_wgmma");
  assert_string_equal(chosen_of_size(h200(257), 4096, 4088), "awq_dequant");
  assert_string_equal(chosen_of_size(h200(257), 4096, 4096), "awq_wgmma");
  assert_string_equal(chosen_of_size(h200(3072), 4096, 5112), "awq_wgmma");
  assert_string_equal(chosen_of_size(h200(3073), 4096, 5112), "awq_dequant");
  assert_string_equal(chosen_of_size(h200(3073), 4096, 5120), "awq_wgmma");
  assert_string_equal(chosen_of_size(chip(SM(8, 0), 108, 163, 112), 4096, 4096), "awq_tensorcore");
  assert_string_equal(chosen_of_size(chip(SM(8, 0), 108, 163, 113), 4096, 4096), "awq_dequant");
}

/* Qwen3-0.6B's gate and up, its qkv, and Qwen3-1.7B's o: 96 full tiles are 2, 3 and 6 for the tokens. */
static void small_matrices_come_back_where_tiles_are_many(void **state) {
  (void)state;
  static const int ends[][3] = {{1024, 6144, 257}, {1024, 4096, 385}, {2048, 2048, 769}};
  for (size_t i = 0; i < COUNT(ends); i++) {
    const int n_in = ends[i][0], n_out = ends[i][1], first = ends[i][2];
    assert_string_equal(chosen_of_size(h200(256), n_in, n_out), "awq_wgmma");
    if (first > 257) assert_string_equal(chosen_of_size(h200(257), n_in, n_out), "awq_dequant");
    if (first > 257) assert_string_equal(chosen_of_size(h200(first - 1), n_in, n_out), "awq_dequant");
    assert_string_equal(chosen_of_size(h200(first), n_in, n_out), "awq_wgmma");
    assert_string_equal(chosen_of_size(h200(3072), n_in, n_out), "awq_wgmma");
    assert_string_equal(chosen_of_size(h200(3073), n_in, n_out), "awq_dequant");
  }
}

static void rows_of_x_choose_without_wgmma(void **state) {
  (void)state;
  assert_string_equal(chosen(chip(SM(9, 0), 132, 227, 64)), "awq_tensorcore");
  assert_string_equal(chosen(chip(SM(8, 0), 108, 163, 8)), "awq_planes");
  assert_string_equal(chosen(chip(SM(8, 0), 108, 163, 9)), "awq_tensorcore");
  assert_string_equal(chosen(chip(SM(8, 0), 108, 163, 192)), "awq_tensorcore");
  assert_string_equal(chosen(chip(SM(8, 0), 108, 163, 193)), "awq_dequant");
  assert_string_equal(chosen(chip(SM(12, 0), 170, 99, 192)), "awq_tensorcore");
}

static void old_chips_have_a_row_for_any_count(void **state) {
  (void)state;
  assert_string_equal(chosen(chip(SM(7, 5), 40, 64, 1)), "awq_tensorcore_sm75");
  assert_string_equal(chosen(chip(SM(7, 5), 40, 64, 9)), "awq_tensorcore_sm75");
  assert_string_equal(chosen(chip(SM(7, 5), 40, 64, 192)), "awq_tensorcore_sm75");
  assert_string_equal(chosen(chip(SM(7, 5), 40, 64, 193)), "awq_dequant");
}

static void eight_bits_take_what_there_is_for_them(void **state) {
  (void)state;
  assert_string_equal(chosen_for(h200(1), WEIGHT_AWQ8, 128, ACT_F16), "awq_planes");
  assert_string_equal(chosen_for(h200(33), WEIGHT_AWQ8, 128, ACT_F16), "awq_tensorcore");
  assert_string_equal(chosen_for(h200(193), WEIGHT_AWQ8, 128, ACT_F16), "awq_dequant");
}

/* FP4 in groups of 16 as laid out, FP8 in blocks of 128 or with one scale for all inputs. */
static void floats_take_what_there_is_for_them(void **state) {
  (void)state;
  static const struct {
    WeightType weights;
    int group;
  } cases[] = {{WEIGHT_FP4, 16}, {WEIGHT_FP8, 128}, {WEIGHT_FP8, 4096}};
  for (size_t i = 0; i < COUNT(cases); i++) {
    const WeightType weights = cases[i].weights;
    const int group = cases[i].group;
    assert_string_equal(chosen_for(h200(1), weights, group, ACT_F16), "float_mma");
    assert_string_equal(chosen_for(h200(2), weights, group, ACT_F16), "narrow_wgmma");
    assert_string_equal(chosen_for(chip(SM(9, 0), 132, 227, 8), weights, group, ACT_F16), "float_mma");
    assert_string_equal(chosen_for(h200(128), weights, group, ACT_F16), "narrow_wgmma");
    assert_string_equal(chosen_for(h200(129), weights, group, ACT_F16), "awq_wgmma");
    assert_string_equal(chosen_for(chip(SM(9, 0), 132, 227, 9), weights, group, ACT_F16), "awq_tensorcore");
    assert_string_equal(chosen_for(chip(SM(8, 0), 108, 163, 1), weights, group, ACT_F16), "float_mma");
    assert_string_equal(chosen_for(chip(SM(8, 0), 108, 163, 193), weights, group, ACT_F16), "awq_dequant");
    assert_string_equal(chosen_for(chip(SM(7, 5), 40, 64, 1), weights, group, ACT_F16),
                        "awq_tensorcore_sm75");
    assert_string_equal(chosen_for(h200(1), weights, group, ACT_INT8), "none");
  }
  /* Groups of FP8 that are no multiple of 128, and of 64. */
  assert_string_equal(chosen_for(h200(1), WEIGHT_FP8, 64, ACT_F16), "awq_tensorcore");
  assert_string_equal(chosen_for(h200(33), WEIGHT_FP8, 64, ACT_F16), "narrow_wgmma");
  assert_string_equal(chosen_for(h200(1), WEIGHT_FP8, 96, ACT_F16), "awq_plain");
  assert_string_equal(chosen_for(h200(64), WEIGHT_FP8, 96, ACT_F16), "awq_dequant");
}

/* Multiples of 16 have fast kernels on every chip; other groups, in which no checkpoint is published, have
 * the plain kernel and for many tokens the library. */
static void odd_groups_are_never_refused(void **state) {
  (void)state;
  for (int n = 1; n < 5000; n = n * 3 / 2 + 1) {
    const char *name = chosen_for(h200(n), WEIGHT_AWQ4, 16, ACT_F16);
    assert_string_equal(name, n <= 1     ? "float_mma"
                              : n <= 128 ? "narrow_wgmma"
                              : n <= 192 ? "awq_tensorcore"
                                         : "awq_dequant");
    for (int group = 16; group <= 48; group += 32) {
      const char *few = n <= 8 ? "float_mma" : n <= 192 ? "awq_tensorcore" : "awq_dequant";
      assert_string_equal(chosen_for(h200(n), WEIGHT_AWQ8, group, ACT_F16), few);
      assert_string_equal(chosen_for(chip(SM(8, 0), 108, 163, n), WEIGHT_AWQ4, group, ACT_F16), few);
      assert_string_equal(chosen_for(chip(SM(7, 5), 40, 64, n), WEIGHT_AWQ4, group, ACT_F16),
                          n <= 192 ? "awq_tensorcore_sm75" : "awq_dequant");
    }
    name = chosen_for(h200(n), WEIGHT_AWQ4, 24, ACT_F16);
    assert_string_equal(name, n < 64 ? "awq_plain" : "awq_dequant");
  }
  assert_string_equal(chosen_for(h200(1), WEIGHT_AWQ4, 96, ACT_F16), "awq_planes");
}

static void int8_activations_are_asked_for(void **state) {
  (void)state;
  assert_string_equal(chosen_for(h200(1), WEIGHT_AWQ4, 128, ACT_INT8), "int8_gemv");
  assert_string_equal(chosen_for(h200(4), WEIGHT_AWQ4, 128, ACT_INT8), "int8_gemv");
  assert_string_equal(chosen_for(h200(5), WEIGHT_AWQ4, 128, ACT_INT8), "int8_mma");
  LinearQuery small = h200(8);
  small.act = ACT_INT8;
  assert_string_equal(chosen_of_size(small, 4096, 4096), "int8_gemv");
  small.n_tokens = 9;
  assert_string_equal(chosen_of_size(small, 4096, 4096), "int8_wgmma");
  assert_string_equal(chosen_for(h200(8), WEIGHT_AWQ4, 128, ACT_INT8), "int8_mma");
  assert_string_equal(chosen_for(h200(64), WEIGHT_AWQ4, 64, ACT_INT8), "int8_wgmma");
  assert_string_equal(chosen_for(h200(65), WEIGHT_AWQ4, 64, ACT_INT8), "int8_tiles");
  small.n_tokens = 4096;
  assert_string_equal(chosen_of_size(small, 4096, 4096), "int8_tiles");
  small.rotated = true; /* a copy in bytes */
  assert_string_equal(chosen_of_size(small, 4096, 4096), "int8_bytes");
  small.n_tokens = 65;
  assert_string_equal(chosen_of_size(small, 4096, 4096), "int8_bytes");
  small.n_tokens = 64;
  assert_string_equal(chosen_of_size(small, 4096, 4096), "int8_wgmma");
  assert_string_equal(chosen_for(h200(9), WEIGHT_AWQ4, 32, ACT_INT8), "int8_mma");
  assert_string_equal(chosen_for(h200(4096), WEIGHT_AWQ8, 64, ACT_INT8), "int8_mma");
  assert_string_equal(chosen_for(h200(1), WEIGHT_AWQ4, 16, ACT_INT8), "none");
  assert_string_equal(chosen_for(h200(1), WEIGHT_F16, 0, ACT_INT8), "none");
}

/* linear.cu asks for int8 activations where weights are int8, whatever the user says. */
static void int8_weights_have_a_row_of_their_own(void **state) {
  (void)state;
  assert_string_equal(chosen_for(h200(1), WEIGHT_INT8, 0, ACT_INT8), "int8_token");
  assert_string_equal(chosen_for(chip(SM(7, 5), 40, 64, 4096), WEIGHT_INT8, 0, ACT_INT8), "int8_token");
  assert_string_equal(chosen_for(h200(47), WEIGHT_INT8, 0, ACT_INT8), "int8_token");
  assert_string_equal(chosen_for(h200(48), WEIGHT_INT8, 0, ACT_INT8), "int8_bytes");
  assert_string_equal(chosen_for(chip(SM(9, 0), 132, 227, 4096), WEIGHT_INT8, 0, ACT_INT8), "int8_token");
  assert_string_equal(chosen_for(h200(1), WEIGHT_INT8, 0, ACT_F16), "none");
}

static void dense_weights_choose_by_type(void **state) {
  (void)state;
  assert_string_equal(chosen_for(h200(2), WEIGHT_F16, 0, ACT_F16), "dense_rows");
  assert_string_equal(chosen_for(h200(3), WEIGHT_F16, 0, ACT_F16), "dense_cublas");
  for (int n = 1; n <= 9; n++) { /* a tiny matrix does not wait for the library */
    LinearQuery tiny = h200(n);
    tiny.weights = WEIGHT_F16;
    assert_string_equal(chosen_of_size(tiny, 64, 512), n < 8    ? "dense_rows"
                                                       : n == 8 ? "dense_wgmma"
                                                                : "dense_cublas");
  }
  assert_string_equal(chosen_for(h200(7), WEIGHT_BF16, 0, ACT_F16), "dense_rows");
  assert_string_equal(chosen_for(h200(8), WEIGHT_BF16, 0, ACT_F16), "dense_wgmma");
  assert_string_equal(chosen_for(chip(SM(8, 6), 84, 99, 8), WEIGHT_BF16, 0, ACT_F16), "dense_rows");
  assert_string_equal(chosen_for(chip(SM(8, 6), 84, 99, 9), WEIGHT_BF16, 0, ACT_F16), "dense_converted");
  assert_string_equal(chosen_for(h200(8), WEIGHT_F32, 0, ACT_F16), "dense_rows");
  assert_string_equal(chosen_for(h200(9), WEIGHT_F32, 0, ACT_F16), "dense_converted");
}

/* A long input and many tokens do not fit beside the weights' ring: the next entry takes them. */
static void x_that_does_not_fit_goes_elsewhere(void **state) {
  (void)state;
  LinearQuery query = h200(8);
  query.n_in = 25600;
  query.n_out = 5120;
  query.device.arch = SM(9, 0);
  assert_string_equal(chosen(query), "awq_planes");
  query.device.arch = SM(8, 6);
  query.device.shared_bytes = 99 * 1024;
  assert_string_equal(chosen(query), "awq_tensorcore");
  query.n_tokens = 1;
  assert_string_equal(chosen(query), "awq_planes");
  query = h200(2);
  query.weights = WEIGHT_F16;
  query.n_in = 60000;
  assert_string_equal(chosen(query), "dense_converted");
}

/* x of a token in fp16 with room for padding, and two parts of a row pair for each of 16 warps; tokens
 * rounded up to a power of two. */
static void dense_rows_take_what_shared_memory_holds(void **state) {
  (void)state;
  static const struct {
    int n_in, n_tokens, held;
  } cases[] = {{2048, 1, 1}, {2049, 1, 1}, {4096, 2, 2}, {4096, 3, 4},
               {2048, 4, 4}, {2048, 5, 8}, {2048, 7, 8}};
  for (size_t i = 0; i < COUNT(cases); i++) {
    LinearQuery query = h200(cases[i].n_tokens);
    query.weights = WEIGHT_BF16, query.group = 0, query.n_in = cases[i].n_in;
    const size_t x = (size_t)(cases[i].n_in + DENSE_UNIT) * 2, parts = 16 * 2 * 2 * sizeof(float);
    query.device.shared_bytes = (size_t)cases[i].held * (x + parts) + 256;
    assert_string_equal(chosen(query), "dense_rows");
    query.device.shared_bytes--;
    assert_string_equal(chosen(query), "dense_converted");
  }
}

/* x as int8 takes half the memory of x as int16, beside the ring and the sums of eight tokens. */
static void int8_takes_half_the_memory_of_int16(void **state) {
  (void)state;
  LinearQuery query = h200(8);
  query.n_in = 512, query.n_out = 16;
  const size_t ring = 65536, x = 512 * 8, scales = 4 * 8 * 8, sums = 16 * 8 * 64;
  for (int int_bytes = 1; int_bytes <= 2; int_bytes++) {
    const LinearEntry *entry;
    const char *name = int_bytes == 1 ? "int8_gemv" : "awq_planes";
    query.act = int_bytes == 1 ? ACT_INT8 : ACT_F16;
    query.device.shared_bytes = ring + x * (size_t)int_bytes + scales + sums + SKINNY_STATIC_BYTES;
    assert_int_equal(linear_dispatch(&query, name, &entry, NULL), STATUS_OK);
    query.device.shared_bytes--;
    assert_int_equal(linear_dispatch(&query, name, &entry, NULL), STATUS_MODEL);
  }
}

/* Every entry by its name: the most tokens it takes, its groups, and the first chip it runs on. */
static void each_row_takes_what_it_says_and_no_more(void **state) {
  (void)state;
  enum { MANY = 1 << 20 };
  static const struct {
    const char *name;
    WeightType weights;
    ActType act;
    int most, group, arch, last;
  } cases[] = {{"awq_planes", WEIGHT_AWQ4, ACT_F16, 8, 32, SM(8, 0), 0},
               {"float_mma", WEIGHT_AWQ4, ACT_F16, 8, 16, SM(8, 0), 0},
               {"awq_gemv", WEIGHT_AWQ8, ACT_F16, 1, 32, SM(7, 5), 0},
               {"planes_wgmma", WEIGHT_AWQ4, ACT_F16, 32, 64, SM_90A, SM_90A},
               {"narrow_wgmma", WEIGHT_AWQ4, ACT_F16, MANY, 16, SM_90A, SM_90A},
               {"awq_wgmma", WEIGHT_AWQ4, ACT_F16, MANY, 32, SM_90A, SM_90A},
               {"awq_tensorcore", WEIGHT_AWQ8, ACT_F16, MANY, 16, SM(8, 0), 0},
               {"awq_small_batch", WEIGHT_AWQ4, ACT_F16, 8, 32, SM(7, 5), 0},
               {"awq_tensorcore_sm75", WEIGHT_AWQ4, ACT_F16, MANY, 16, SM(7, 5), SM(7, 9)},
               {"awq_dequant", WEIGHT_AWQ8, ACT_F16, MANY, 1, SM(7, 5), 0},
               {"awq_pipelined", WEIGHT_AWQ4, ACT_F16, MANY, 32, SM(7, 5), 0},
               {"awq_plain", WEIGHT_AWQ8, ACT_F16, MANY, 1, SM(7, 5), 0},
               {"awq_dequant_plain", WEIGHT_AWQ4, ACT_F16, MANY, 1, SM(7, 5), 0},
               {"int8_gemv", WEIGHT_AWQ8, ACT_INT8, 8, 32, SM(7, 5), 0},
               {"int8_wgmma", WEIGHT_AWQ4, ACT_INT8, MANY, 64, SM_90A, SM_90A},
               {"int8_tiles", WEIGHT_AWQ4, ACT_INT8, MANY, 64, SM_90A, SM_90A},
               {"int8_mma", WEIGHT_AWQ4, ACT_INT8, MANY, 32, SM(7, 5), 0},
               {"int8_bytes", WEIGHT_AWQ4, ACT_INT8, MANY, 1, SM_90A, SM_90A},
               {"int8_dp4a", WEIGHT_AWQ8, ACT_INT8, MANY, 32, SM(7, 5), 0},
               {"int8_token", WEIGHT_INT8, ACT_INT8, MANY, 0, SM(7, 5), 0},
               {"dense_cublas", WEIGHT_F16, ACT_F16, MANY, 0, SM(7, 5), 0},
               {"dense_rows", WEIGHT_F32, ACT_F16, 8, 0, SM(7, 5), 0},
               {"dense_converted", WEIGHT_BF16, ACT_F16, MANY, 0, SM(7, 5), 0},
               {"dense_tensorcore", WEIGHT_BF16, ACT_F16, 128, 0, SM(8, 0), 0},
               {"dense_wgmma", WEIGHT_F16, ACT_F16, MANY, 0, SM_90A, SM_90A},
               {"chain_mma", WEIGHT_AWQ4, ACT_F16, CHAIN_TOKENS, 32, SM_90A, SM_90A}};
  for (size_t i = 0; i <= COUNT(cases); i++) assert_int_equal(linear_entry((int)i) != NULL, i < COUNT(cases));
  for (size_t i = 0; i < COUNT(cases); i++) {
    const char *name = cases[i].name;
    const LinearEntry *entry;
    LinearQuery query = h200(cases[i].most);
    query.weights = cases[i].weights, query.act = cases[i].act, query.device.arch = cases[i].arch;
    query.group = cases[i].group == 16 ? 384 : 6 * cases[i].group; /* FP8 wants multiples of 128 */
    query.n_in = 1920;
    if (!strcmp(name, "int8_bytes")) { /* 4 bits need a copy in bytes */
      assert_int_equal(linear_dispatch(&query, name, &entry, NULL), STATUS_MODEL);
      query.rotated = true;
    }
    assert_int_equal(linear_dispatch(&query, name, &entry, NULL), STATUS_OK);
    assert_string_equal(entry->name, name);
    LinearQuery other = query;
    other.n_tokens++;
    assert_int_equal(linear_dispatch(&other, name, &entry, NULL),
                     cases[i].most == MANY ? STATUS_OK : STATUS_MODEL);
    other = query, other.device.arch--;
    assert_int_equal(linear_dispatch(&other, name, &entry, NULL), STATUS_MODEL);
    other = query, other.device.arch = cases[i].last ? cases[i].last : SM_ANY;
    assert_int_equal(linear_dispatch(&other, name, &entry, NULL), STATUS_OK);
    other.device.arch++;
    if (cases[i].last) assert_int_equal(linear_dispatch(&other, name, &entry, NULL), STATUS_MODEL);
    for (int type = WEIGHT_AWQ4; type <= WEIGHT_F32; type++)
      for (int act = ACT_F16; act <= ACT_INT8; act++) {
        const unsigned all = 1u << WEIGHT_F16 | 1u << WEIGHT_BF16 | 1u << WEIGHT_F32,
                       integers = 1u << WEIGHT_AWQ4 | 1u << WEIGHT_AWQ8,
                       floats = 1u << WEIGHT_FP4 | 1u << WEIGHT_FP8;
        const unsigned takes =
            cases[i].weights == WEIGHT_INT8 ? 1u << WEIGHT_INT8
            : cases[i].weights > WEIGHT_INT8
                ? (!strcmp(name, "dense_cublas")                  ? 1u << WEIGHT_F16
                   : strstr("dense_tensorcore dense_wgmma", name) ? all & ~(1u << WEIGHT_F32)
                                                                  : all)
            : !strcmp(name, "int8_bytes")                        ? 1u << WEIGHT_AWQ4 | 1u << WEIGHT_INT8
            : strstr("planes_wgmma int8_wgmma int8_tiles", name) ? 1u << WEIGHT_AWQ4
            : strstr("narrow_wgmma awq_wgmma chain_mma", name)   ? 1u << WEIGHT_AWQ4 | floats
            : strstr("float_mma awq_tensorcore_sm75 awq_dequant_plain awq_plain", name) ? integers | floats
                                                                                        : integers;
        other = query, other.weights = (WeightType)type, other.act = (ActType)act;
        const bool taken = linear_dispatch(&other, name, &entry, NULL) == STATUS_OK;
        assert_int_equal(taken, (takes >> type & 1) && other.act == query.act);
      }
    if (cases[i].group < 2) continue;
    other = query, other.group = cases[i].group > 16 ? 48 : 24;
    assert_int_equal(linear_dispatch(&other, name, &entry, NULL), STATUS_MODEL);
  }
}

/* Under LINEAR_INVARIANT one kernel takes every count, in launches of so many rows at most; where there is
 * another one with the same bits, that takes few rows. */
static void one_kernel_serves_all_counts_where_bits_must_not_change(void **state) {
  (void)state;
  static const struct {
    WeightType weights;
    int group, arch, rows;
    const char *few, *name;
  } cases[] = {{WEIGHT_AWQ4, 128, SM_90A, INT_MAX, "chain_mma", "awq_wgmma"},
               {WEIGHT_AWQ4, 32, SM_90A, INT_MAX, "chain_mma", "awq_wgmma"},
               {WEIGHT_FP4, 16, SM_90A, INT_MAX, "chain_mma", "awq_wgmma"},
               {WEIGHT_FP8, 128, SM_90A, INT_MAX, "chain_mma", "awq_wgmma"},
               {WEIGHT_AWQ8, 128, SM_90A, 32, NULL, "awq_tensorcore"},
               {WEIGHT_AWQ4, 16, SM_90A, 32, NULL, "awq_tensorcore"},
               {WEIGHT_AWQ4, 32, SM(8, 6), 32, NULL, "awq_tensorcore"},
               {WEIGHT_AWQ4, 16, SM(8, 6), 32, NULL, "awq_tensorcore"},
               {WEIGHT_AWQ8, 24, SM(8, 6), INT_MAX, NULL, "awq_plain"},
               {WEIGHT_FP8, 64, SM(7, 5), 8, NULL, "awq_tensorcore_sm75"},
               {WEIGHT_F16, 0, SM(8, 0), 128, NULL, "dense_tensorcore"},
               {WEIGHT_F16, 0, SM_90A, INT_MAX, NULL, "dense_wgmma"},
               {WEIGHT_BF16, 0, SM_90A, INT_MAX, NULL, "dense_wgmma"},
               {WEIGHT_BF16, 0, SM(8, 0), 128, NULL, "dense_tensorcore"},
               {WEIGHT_BF16, 0, SM(7, 5), 8, NULL, "dense_rows"},
               {WEIGHT_F32, 0, SM_90A, 8, NULL, "dense_rows"},
               {WEIGHT_INT8, 0, SM_90A, INT_MAX, "int8_token", "int8_bytes"},
               {WEIGHT_INT8, 0, SM(8, 9), INT_MAX, NULL, "int8_token"}};
  for (size_t i = 0; i < COUNT(cases); i++)
    for (int n = 1; n < 3000; n += n < 140 ? 1 : 97)
      for (int n_out = 6144; n_out <= 24576; n_out += 24576 - 6144) {
        const LinearInvariant *how;
        const LinearEntry *entry, *same;
        LinearQuery query = h200(n);
        query.weights = cases[i].weights, query.group = cases[i].group, query.device.arch = cases[i].arch;
        query.act = cases[i].weights == WEIGHT_INT8 ? ACT_INT8 : ACT_F16;
        query.n_out = n_out;
        assert_int_equal(linear_invariant(&query, &how, &entry, NULL), STATUS_OK);
        const bool is_int8 = cases[i].weights == WEIGHT_INT8;
        const bool few =
            cases[i].few && (is_int8 ? n < 48 : n <= CHAIN_TOKENS && n_out <= CHAIN_ROWS * 16 * 132);
        assert_string_equal(entry->name, few ? cases[i].few : cases[i].name);
        assert_int_equal(how->rows, few && !is_int8 ? CHAIN_TOKENS : cases[i].rows);
        assert_int_equal(how->variant == LINEAR_WHOLE, !strcmp(entry->name, "awq_wgmma"));
        assert_int_equal(linear_dispatch(&query, LINEAR_INVARIANT, &same, NULL), STATUS_OK);
        assert_ptr_equal(same, entry);
      }
  const LinearEntry *entry;
  LinearQuery query = h200(4);
  query.act = ACT_INT8;
  assert_int_equal(linear_dispatch(&query, LINEAR_INVARIANT, &entry, NULL), STATUS_MODEL);
}

static void one_kernel_serves_all_counts_of_experts_too(void **state) {
  (void)state;
  static const struct {
    WeightType weights;
    int group, arch;
    const char *name;
  } cases[] = {{WEIGHT_AWQ4, 32, SM_90A, "awq_wgmma"},      {WEIGHT_FP4, 16, SM_90A, "awq_wgmma"},
               {WEIGHT_FP8, 128, SM_90A, "awq_wgmma"},      {WEIGHT_AWQ4, 16, SM_90A, "experts_plain"},
               {WEIGHT_AWQ8, 128, SM_90A, "experts_plain"}, {WEIGHT_AWQ4, 128, SM(8, 6), "experts_plain"},
               {WEIGHT_BF16, 0, SM_90A, "experts_plain"},   {WEIGHT_F32, 0, SM(7, 5), "experts_plain"}};
  for (size_t i = 0; i < COUNT(cases); i++)
    for (int n = 1; n < 3000; n += n < 20 ? 1 : 97) {
      const LinearInvariant *how;
      const LinearEntry *entry, *same;
      LinearQuery query = h200(n);
      query.weights = cases[i].weights, query.group = cases[i].group, query.device.arch = cases[i].arch;
      query.n_experts = 8;
      assert_int_equal(linear_invariant(&query, &how, &entry, NULL), STATUS_OK);
      assert_string_equal(entry->name, cases[i].name);
      assert_true(how->rows == INT_MAX && how->variant == 0);
      assert_int_equal(linear_dispatch(&query, LINEAR_INVARIANT, &same, NULL), STATUS_OK);
      assert_ptr_equal(same, entry);
    }
}

static void the_next_count_is_no_further_than_a_threshold_can_be(void **state) {
  (void)state;
  static const int steps[][2] = {{1, 2},     {63, 64},   {64, 65},   {127, 128},   {128, 130},  {255, 256},
                                 {256, 260}, {511, 512}, {508, 512}, {4095, 4096}, {4096, 4160}};
  for (size_t i = 0; i < COUNT(steps); i++) assert_int_equal(linear_next_count(steps[i][0]), steps[i][1]);
}

/* The workspace is sized by the choices at these counts, and more tokens never need less of it. */
static void counts_to_ask_about_meet_the_end_of_each_stretch(void **state) {
  (void)state;
  static const struct {
    int n_in, n_out, n_sms;
  } cases[] = {{4096, 4096, 132}, {4096, 4088, 132}, {3584, 4608, 132}, {2560, 4096, 114}, {4096, 6144, 132}};
  for (size_t i = 0; i < COUNT(cases); i++)
    for (int n = 1, asked = 1; n < 5000; n++) {
      if (asked < n) asked = linear_next_count(asked);
      const char *here = chosen_of_size(chip(SM_90A, cases[i].n_sms, 227, n), cases[i].n_in, cases[i].n_out);
      const char *next =
          chosen_of_size(chip(SM_90A, cases[i].n_sms, 227, n + 1), cases[i].n_in, cases[i].n_out);
      if (strcmp(here, next) != 0) assert_int_equal(asked, n);
    }
}

static void a_row_can_be_forced_beyond_its_range(void **state) {
  (void)state;
  const LinearEntry *entry;
  Error err;
  LinearQuery query = h200(4096);
  assert_int_equal(linear_dispatch(&query, "awq_plain", &entry, &err), STATUS_OK);
  assert_string_equal(entry->name, "awq_plain");
  query.n_tokens = 1;
  assert_int_equal(linear_dispatch(&query, "awq_wgmma", &entry, &err), STATUS_OK);
}

static void what_cannot_run_is_refused_with_the_shape(void **state) {
  (void)state;
  const LinearEntry *entry;
  Error err;
  LinearQuery query = h200(17);
  assert_int_equal(linear_dispatch(&query, "awq_planes", &entry, &err), STATUS_MODEL);
  assert_non_null(strstr(err.text, "awq_planes"));
  assert_non_null(strstr(err.text, "4096 inputs by 6144 outputs"));
  assert_non_null(strstr(err.text, "groups of 128 with 17 rows of fp16 activations"));
  assert_non_null(strstr(err.text, "kernel awq_planes never multiplies"));
  query.device.arch = SM(9, 0);
  assert_int_equal(linear_dispatch(&query, "awq_wgmma", &entry, &err), STATUS_MODEL);
  assert_non_null(strstr(err.text, "9.0"));
  assert_int_equal(linear_dispatch(&query, "awq_warp", &entry, &err), STATUS_USAGE);
  assert_non_null(strstr(err.text, "awq_warp"));
  query.act = ACT_INT8;
  query.group = 8;
  assert_int_equal(linear_dispatch(&query, NULL, &entry, &err), STATUS_MODEL);
  assert_non_null(strstr(err.text, "no kernel multiplies"));
  assert_non_null(strstr(err.text, "4-bit weights in groups of 8 with 17 rows of int8 activations"));
  query.weights = WEIGHT_BF16, query.device.arch = SM(8, 6);
  assert_int_equal(linear_dispatch(&query, NULL, &entry, &err), STATUS_MODEL);
  assert_non_null(strstr(err.text, "bf16 weights"));
  assert_non_null(strstr(err.text, "int8 activations on compute capability 8.6"));
}

/* Every entry of the table is chosen on a chip that exists, and a reference form on none. */
static void the_table_has_no_dead_rows(void **state) {
  (void)state;
  static const struct {
    int arch, n_sms, shared_kb;
  } chips[] = {{SM(7, 5), 40, 64}, {SM(8, 6), 84, 99}, {SM_90A, 132, 227}};
  const LinearEntry *entry;
  for (int r = 0; (entry = linear_entry(r)) != NULL; r++) {
    for (int other = 0; other < r; other++) assert_string_not_equal(entry->name, linear_entry(other)->name);
    bool found = false;
    for (size_t c = 0; c < COUNT(chips); c++)
      for (int tokens = 1; tokens <= 2048; tokens = tokens < 64 ? tokens + 1 : tokens * 2)
        for (int group = 16; group <= 128; group *= 8)
          for (int type = WEIGHT_AWQ4; type <= WEIGHT_F32; type++) {
            LinearQuery query = chip(chips[c].arch, chips[c].n_sms, chips[c].shared_kb, tokens);
            found |= !strcmp(chosen_for(query, (WeightType)type, group, entry->act), entry->name);
          }
    if (found == (entry->max_tokens == 0))
      fail_msg("%s is %s", entry->name, found ? "a reference form, but chosen" : "never chosen");
  }
}

/* A reference form runs what it can: one token for awq_gemv, up to eight for awq_small_batch. */
static void reference_forms_are_reached_by_name(void **state) {
  (void)state;
  static const struct {
    const char *name;
    ActType act;
    int most; /* tokens */
  } forms[] = {{"awq_gemv", ACT_F16, 1},
               {"awq_small_batch", ACT_F16, 8},
               {"awq_pipelined", ACT_F16, 4096},
               {"awq_dequant_plain", ACT_F16, 4096},
               {"int8_dp4a", ACT_INT8, 4096}};
  const LinearEntry *entry;
  Error err;
  for (size_t i = 0; i < COUNT(forms); i++) {
    LinearQuery query = h200(forms[i].most);
    query.act = forms[i].act;
    assert_int_equal(linear_dispatch(&query, forms[i].name, &entry, &err), STATUS_OK);
    assert_string_equal(entry->name, forms[i].name);
    assert_int_equal(entry->max_tokens, 0);
    query.n_tokens++;
    if (forms[i].most <= SKINNY_MAX_TOKENS)
      assert_int_equal(linear_dispatch(&query, forms[i].name, &entry, &err), STATUS_MODEL);
  }
}

/* The guarantees that skinny_gemm.cuh and float_experts.cu rely on: all is held, blocks and splits cover the
 * matrix, slots suffice for any warp, and partial sums have their place. Returns whether there is a plan. */
static bool check_skinny_plan(const LinearQuery *shape, int int_bytes) {
  const SkinnyPlan p = skinny_plan(shape, int_bytes);
  const size_t bits = shape->weights == WEIGHT_AWQ4 || shape->weights == WEIGHT_FP4 ? 4 : 8;
  if (p.splits == 0) return false;
  const int units = (shape->n_in + SKINNY_UNIT_IN - 1) / SKINNY_UNIT_IN, tile_rows = (shape->n_out + 15) / 16;
  assert_true(p.tokens >= shape->n_tokens && p.tokens < 2 * shape->n_tokens && !(p.tokens & (p.tokens - 1)));
  if (int_bytes == SKINNY_F16)
    assert_int_equal(p.block_in, weight_has_zeros(shape->weights) ? 32 : 128);
  else
    assert_true(shape->group % p.block_in == 0 && (p.block_in == 128 || shape->group % (2 * p.block_in)));
  assert_int_equal(p.n_units, units);
  const bool by_units = int_bytes == SKINNY_F16 && shape->n_experts > 0;
  const int batch = by_units ? 1 : SKINNY_UNITS;
  assert_true(p.n_batches * batch >= units && (p.n_batches - 1) * batch < units);
  assert_true(p.ring_batches == 1 || (by_units && p.ring_batches == SKINNY_SHALLOW) ||
              (by_units && p.ring_batches == SKINNY_DEEP && bits == 4));
  assert_true(p.splits <= p.n_batches && p.blocks >= 1 && p.blocks * p.splits <= shape->device.n_sms);
  assert_true(p.launch_rows >= 1 && p.blocks <= tile_rows);
  /* Rings; x and its scales of max_batches batches; sums of each warp's tile rows. */
  const size_t batch_in = (size_t)batch * SKINNY_UNIT_IN, tokens = (size_t)p.tokens,
               batches = (size_t)p.max_batches;
  const size_t ring = SKINNY_WARPS * (size_t)p.ring_batches *
                      (batch_in * 16 * bits / 8 + (by_units ? SKINNY_UNIT_SCALES : 0));
  const size_t x = batches * batch_in * tokens * (int_bytes == 1 ? 1 : 2),
               of_x = by_units ? 0 : batches * (batch_in / (size_t)p.block_in) * tokens * 2 * sizeof(float);
  const size_t sums = SKINNY_WARPS * (size_t)p.slots * tokens * 16 * sizeof(float);
  assert_int_equal(p.shared_bytes, ring + x + of_x + sums);
  assert_true(p.shared_bytes + SKINNY_STATIC_BYTES <= shape->device.shared_bytes);
  assert_int_equal(p.partial_bytes,
                   p.splits == 1 ? 0 : (size_t)(tile_rows * p.splits) * tokens * 16 * sizeof(float));
  int rows = (p.launch_rows + p.blocks - 1) / p.blocks, least = p.n_batches / p.splits;
  assert_int_equal(p.max_batches, (p.n_batches + p.splits - 1) / p.splits);
  for (int n = least; n <= p.max_batches; n++)
    for (int warp = 0; warp < SKINNY_WARPS; warp++) {
      int total = rows * n, begin = warp * total / SKINNY_WARPS, end = (warp + 1) * total / SKINNY_WARPS;
      if (end > begin) assert_true((end - 1) / n - begin / n + 1 <= p.slots);
    }
  return true;
}

static void plans_cover_the_matrix(void **state) {
  (void)state;
  static const int sizes[][2] = {{64, 8},       {576, 1000},   {1024, 4096},  {2048, 1024},  {4096, 6144},
                                 {4096, 24576}, {12288, 4096}, {25600, 5120}, {5120, 51200}, {4096, 151936}};
  static const int chips[][2] = {{132, 227}, {108, 163}, {84, 99}, {6, 227}, {1, 163}};
  int found = 0;
  for (size_t i = 0; i < COUNT(sizes); i++)
    for (size_t c = 0; c < COUNT(chips); c++)
      for (int type = WEIGHT_AWQ4; type <= WEIGHT_FP4; type++)
        for (int int_bytes = SKINNY_F16; int_bytes <= 2; int_bytes++)
          for (int tokens = 1; tokens <= SKINNY_MAX_TOKENS; tokens++)
            for (int group = 16; group <= 192; group += group < 128 ? 16 : 64) {
              const LinearQuery shape = {.weights = (WeightType)type,
                                         .n_in = sizes[i][0],
                                         .n_out = sizes[i][1],
                                         .group = group,
                                         .n_tokens = tokens,
                                         .device = {0, chips[c][0], (size_t)chips[c][1] * 1024}};
              if (int_bytes != SKINNY_F16 && (group % 32 > 0 || !weight_has_zeros(shape.weights))) continue;
              found += check_skinny_plan(&shape, int_bytes);
              if (int_bytes != SKINNY_F16 || tokens > 1 || weight_has_zeros(shape.weights)) continue;
              LinearQuery experts = shape;
              experts.n_experts = 8;
              found += check_skinny_plan(&experts, int_bytes);
            }
  assert_true(found > 1000);
}

/* Blocks share a tile row if x does not fit, or if most SMs would be idle; launches are several if a block's
 * sums do not fit. */
static void plans_split_what_does_not_fit(void **state) {
  (void)state;
  LinearQuery shape = {.n_in = 1536, .n_out = 24, .group = 64, .n_tokens = 8, .device = {0, 6, 94208}};
  SkinnyPlan p = skinny_plan(&shape, 2);
  assert_true(p.splits == 2 && p.max_batches == 2 && p.n_batches == 3);
  shape.device.shared_bytes = 227 * 1024;
  assert_int_equal(skinny_plan(&shape, 2).splits, 1);
  shape.n_in = 64, shape.n_out = 200, shape.device.shared_bytes = 94208;
  p = skinny_plan(&shape, 2);
  assert_true(p.splits == 1 && p.launch_rows == 7 && p.slots == 2);
  shape = (LinearQuery){
      .n_in = 12288, .n_out = 1024, .group = 128, .n_tokens = 1, .device = {0, 132, 227 * 1024}};
  assert_int_equal(skinny_plan(&shape, 2).splits, 1);
  shape.n_in = 65408;
  assert_int_equal(skinny_plan(&shape, 2).splits, 2);
}

/* One token's experts in single units, where an SM has the room eight in flight (gpt-oss-20b's down). */
static void plans_of_experts_go_by_units(void **state) {
  (void)state;
  LinearQuery shape = {.weights = WEIGHT_FP4,
                       .n_in = 4 * 2944,
                       .n_out = 2880,
                       .group = 32,
                       .n_tokens = 1,
                       .n_experts = 32,
                       .device = {0, 132, 227 * 1024}};
  SkinnyPlan p = skinny_plan(&shape, SKINNY_F16);
  assert_true(p.n_batches == 92 && p.splits == 1 && p.ring_batches == SKINNY_DEEP);
  shape.device.shared_bytes = 163 * 1024;
  assert_int_equal(skinny_plan(&shape, SKINNY_F16).ring_batches, SKINNY_SHALLOW);
  shape.weights = WEIGHT_FP8, shape.device.shared_bytes = 227 * 1024;
  assert_int_equal(skinny_plan(&shape, SKINNY_F16).ring_batches, SKINNY_SHALLOW);
}

/* Experts have a table of their own: one token's as one matrix, more tokens' in tiles. */
static void experts_choose_by_tokens(void **state) {
  (void)state;
  const WeightType ints[] = {WEIGHT_AWQ4, WEIGHT_AWQ8}, floats[] = {WEIGHT_FP4, WEIGHT_FP8},
                   dense[] = {WEIGHT_F16, WEIGHT_BF16, WEIGHT_F32};
  LinearQuery query = h200(1), old = chip(SM(7, 5), 40, 64, 1);
  query.n_experts = old.n_experts = 128;
  for (int i = 0; i < 2; i++) {
    assert_string_equal(chosen_for(query, ints[i], 32, ACT_F16), "awq_planes");
    assert_string_equal(chosen_for(query, ints[i], 48, ACT_F16), "awq_tensorcore");
    assert_string_equal(chosen_for(query, ints[i], 24, ACT_F16), "experts_plain");
    assert_string_equal(chosen_for(old, ints[i], 32, ACT_F16), "awq_tensorcore_sm75");
    assert_string_equal(chosen_for(query, floats[i], 128, ACT_F16), "float_mma");
  }
  for (int i = 0; i < 3; i++) assert_string_equal(chosen_for(query, dense[i], 0, ACT_F16), "dense_rows");
  query.n_tokens = 2;
  assert_string_equal(chosen_for(query, WEIGHT_BF16, 0, ACT_F16), "experts_plain");
  for (query.n_tokens = 2; query.n_tokens < 16; query.n_tokens += 13)
    for (int i = 0; i < 2; i++) {
      assert_string_equal(chosen_for(query, ints[i], 128, ACT_F16), "awq_tensorcore");
      assert_string_equal(chosen_for(query, floats[i], 128, ACT_F16), "awq_tensorcore");
    }
  query.n_tokens = 16;
  assert_string_equal(chosen_for(query, WEIGHT_AWQ4, 32, ACT_F16), "awq_wgmma");
  assert_string_equal(chosen_for(query, WEIGHT_FP4, 16, ACT_F16), "awq_wgmma");
  assert_string_equal(chosen_for(query, WEIGHT_AWQ8, 128, ACT_F16), "awq_tensorcore");
  assert_string_equal(chosen_for(query, WEIGHT_INT8, 0, ACT_INT8), "none");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(experts_choose_by_tokens),
      cmocka_unit_test(rows_of_x_choose_on_hopper),
      cmocka_unit_test(small_matrices_turn_to_the_library_earlier),
      cmocka_unit_test(small_matrices_come_back_where_tiles_are_many),
      cmocka_unit_test(rows_of_x_choose_without_wgmma),
      cmocka_unit_test(old_chips_have_a_row_for_any_count),
      cmocka_unit_test(eight_bits_take_what_there_is_for_them),
      cmocka_unit_test(floats_take_what_there_is_for_them),
      cmocka_unit_test(odd_groups_are_never_refused),
      cmocka_unit_test(int8_activations_are_asked_for),
      cmocka_unit_test(int8_weights_have_a_row_of_their_own),
      cmocka_unit_test(dense_weights_choose_by_type),
      cmocka_unit_test(x_that_does_not_fit_goes_elsewhere),
      cmocka_unit_test(dense_rows_take_what_shared_memory_holds),
      cmocka_unit_test(int8_takes_half_the_memory_of_int16),
      cmocka_unit_test(each_row_takes_what_it_says_and_no_more),
      cmocka_unit_test(one_kernel_serves_all_counts_of_experts_too),
      cmocka_unit_test(one_kernel_serves_all_counts_where_bits_must_not_change),
      cmocka_unit_test(the_next_count_is_no_further_than_a_threshold_can_be),
      cmocka_unit_test(counts_to_ask_about_meet_the_end_of_each_stretch),
      cmocka_unit_test(a_row_can_be_forced_beyond_its_range),
      cmocka_unit_test(what_cannot_run_is_refused_with_the_shape),
      cmocka_unit_test(the_table_has_no_dead_rows),
      cmocka_unit_test(reference_forms_are_reached_by_name),
      cmocka_unit_test(plans_cover_the_matrix),
      cmocka_unit_test(plans_split_what_does_not_fit),
      cmocka_unit_test(plans_of_experts_go_by_units),
  };
  return cmocka_run_group_tests_name("dispatch", tests, NULL, NULL);
}
