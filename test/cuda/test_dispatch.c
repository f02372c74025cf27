/* test_dispatch.c - the table of linear kernels on the host: both sides of every threshold, refusals,
 * forcing.
 *
 * test/data/transcripts/dispatch/kernels.txt has a line for a matrix on a chip, CHIP SMS KB WEIGHTS/GROUP
 * ACTIVATIONS INxOUT and perhaps "experts", "copy" (LinearQuery.rotated) and "names". The indented lines
 * below it say which kernel is chosen for which numbers of tokens, which under LINEAR_INVARIANT and in
 * launches of how many rows, and with "names" how many tokens each kernel takes where it is forced. A line
 * says "as above" where it would repeat the one of the matrix above. `make goldens` writes them anew.
 *
 * An H200 has 132 SMs and 227 KB of shared memory a block; the other chips are as NVIDIA's tables of compute
 * capabilities say (64 KB on 7.5, 99 KB on 8.6). */
#include <limits.h>
#include <string.h>

#include "cuda/kernels/linear/dispatch.h"
#include "cuda/kernels/linear/skinny_plan.h"
#include "test/tests.h"
#include "test/transcript.h"

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

static const char *chosen_of_size(LinearQuery query, int n_in, int n_out) {
  query.n_in = n_in;
  query.n_out = n_out;
  return chosen(query);
}

enum { MOST_TOKENS = 5000, MANY = 1 << 20 };

static LinearQuery query_of(const char *line) {
  LinearQuery query = {.device.shared_bytes = 1024};
  int major, minor, shared_kb;
  char a[2] = "", weights[16], act[16];
  const bool is_a = sscanf(line, "%d.%d%1[a]", &major, &minor, a) == 3;
  const char *rest = strchr(line, ' ');
  if (sscanf(rest, " %d %d %15[^/]/%d %15s %dx%d", &query.device.n_sms, &shared_kb, weights, &query.group,
             act, &query.n_in, &query.n_out) != 7)
    fail_msg("%s: expected CHIP SMS KB WEIGHTS/GROUP ACTIVATIONS INxOUT", line);
  query.device.arch = SM(major, minor) + is_a;
  query.device.shared_bytes *= (size_t)shared_kb;
  query.act = strcmp(act, "int8") ? ACT_F16 : ACT_INT8;
  while (strcmp(weight_type_name(query.weights), weights)) query.weights++;
  query.n_experts = strstr(line, "experts") ? 128 : 0;
  query.rotated = strstr(line, "copy") != NULL;
  return query;
}

/* The kernel's name, under LINEAR_INVARIANT with the rows of its launches, or "none". */
static void name_for(LinearQuery query, int n_tokens, const char *forced, char name[64]) {
  const LinearEntry *entry;
  const LinearInvariant *how;
  query.n_tokens = n_tokens;
  strcpy(name, "none");
  if (linear_dispatch(&query, forced, &entry, NULL) != STATUS_OK) return;
  strcpy(name, entry->name);
  if (!forced || strcmp(forced, LINEAR_INVARIANT)) return;
  const LinearEntry *same = entry;
  assert_int_equal(linear_invariant(&query, &how, &entry, NULL), STATUS_OK);
  assert_ptr_equal(entry, same);
  if (how->rows < INT_MAX) sprintf(name + strlen(name), " by %d", how->rows);
  if (how->variant == LINEAR_WHOLE) strcat(name, " whole");
}

static void print_ranges(FILE *out, const LinearQuery *query, const char *forced) {
  char name[64], last[64] = "";
  for (int n = 1; n <= MOST_TOKENS; n++) {
    name_for(*query, n, forced, name);
    if (strcmp(name, last)) fprintf(out, n == 1 ? " %s" : ", from %2$d %1$s", name, n);
    strcpy(last, name);
  }
}

/* The most tokens that each kernel takes where it is forced. */
static void print_limits(FILE *out, const LinearQuery *query) {
  const LinearEntry *entry;
  for (int i = 0; (entry = query->n_experts ? linear_expert_entry(i) : linear_entry(i)); i++) {
    char name[64] = "";
    int most = 0;
    for (int n = 1; n <= MANY && strcmp(name, "none"); n = n < 130 ? n + 1 : n * 2) {
      name_for(*query, n, entry->name, name);
      if (strcmp(name, "none")) most = n;
    }
    if (most > 130) fprintf(out, " %s", entry->name);
    if (most && most <= 130) fprintf(out, " %s %d", entry->name, most);
  }
}

static void write_choices(const char *old, FILE *out) {
  static const char *const labels[] = {"", "invariant:", "forced:"};
  char line[TRANSCRIPT_LINE], *last[3] = {NULL};
  while (transcript_next_line(&old, line)) {
    if (*line == ' ') continue;
    fprintf(out, "%s\n", line);
    if (*line < '0' || *line > '9') continue;
    const LinearQuery query = query_of(line);
    for (int i = 0; i < 2 + (strstr(line, "names") != NULL); i++) {
      char *now = NULL;
      size_t size;
      FILE *text = open_memstream(&now, &size);
      if (i == 2)
        print_limits(text, &query);
      else
        print_ranges(text, &query, i == 1 ? LINEAR_INVARIANT : NULL);
      fclose(text);
      fprintf(out, "    %s%s\n", labels[i], last[i] && !strcmp(now, last[i]) ? " as above" : now);
      free(last[i]);
      last[i] = now;
    }
  }
  for (int i = 0; i < 3; i++) free(last[i]);
}

TEST(kernels_are_those_of_the_transcript) {
  check_transcripts("test/data/transcripts/dispatch", write_choices);
}

/* x of a token in fp16 with room for padding, and two parts of a row pair for each of 16 warps; tokens
 * rounded up to a power of two. */
TEST(dense_rows_take_what_shared_memory_holds) {
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
TEST(int8_takes_half_the_memory_of_int16) {
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

TEST(the_next_count_is_no_further_than_a_threshold_can_be) {
  static const int steps[][2] = {{1, 2},     {63, 64},   {64, 65},   {127, 128},   {128, 130},  {255, 256},
                                 {256, 260}, {511, 512}, {508, 512}, {4095, 4096}, {4096, 4160}};
  for (size_t i = 0; i < COUNT(steps); i++) assert_int_equal(linear_next_count(steps[i][0]), steps[i][1]);
}

/* The workspace is sized by the choices at these counts, and more tokens never need less of it. */
TEST(counts_to_ask_about_meet_the_end_of_each_stretch) {
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

TEST(a_row_can_be_forced_beyond_its_range) {
  const LinearEntry *entry;
  Error err;
  LinearQuery query = h200(4096);
  assert_int_equal(linear_dispatch(&query, "awq_plain", &entry, &err), STATUS_OK);
  assert_string_equal(entry->name, "awq_plain");
  query.n_tokens = 1;
  assert_int_equal(linear_dispatch(&query, "awq_wgmma", &entry, &err), STATUS_OK);
}

TEST(what_cannot_run_is_refused_with_the_shape) {
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
TEST(the_table_has_no_dead_rows) {
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
            query.weights = (WeightType)type, query.group = group, query.act = entry->act;
            found |= !strcmp(chosen(query), entry->name);
          }
    if (found == (entry->to == 0))
      fail_msg("%s is %s", entry->name, found ? "a reference form, but chosen" : "never chosen");
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

TEST(plans_cover_the_matrix) {
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
TEST(plans_split_what_does_not_fit) {
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
TEST(plans_of_experts_go_by_units) {
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
