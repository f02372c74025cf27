/* test_step_cost.c - bytes and operations of steps, by numbers worked out by hand from the authors'
 * config.json (test/data/configs) and on a model of a few weights. */
#include "engine/step_cost.h"
#include "test/tests.h"

static Model *open_config(const char *folder) {
  Model *model;
  Error err = {{0}};
  if (model_open_dummy(folder, &model, &err) != STATUS_OK) fail_msg("%s", err.text);
  return model;
}

static void assert_equal(double got, double want) {
  if (got != want) fail_msg("%.0f, expected %.0f", got, want);
}

/* Weights of a layer: qkv 4096 * 6144, o 4096 * 4096, gate and up 2 * 4096 * 12288, down 12288 * 4096. */
static const double qwen3_8b_weights = 25165824.0 + 16777216.0 + 100663296.0 + 50331648.0; /* 192,937,984 */

/* The weights after attention, which in the last layer only rows of logits need. */
static const double qwen3_8b_ends = 16777216.0 + 100663296.0 + 50331648.0;

TEST(qwen3_8b_reads_4_85_gb) {
  Model *model = open_config("test/data/configs/Qwen3-8B-AWQ");
  /* Half a byte a weight; in each 128 an fp16 scale and half a byte of zero point; norms of 4096, 4096, 128
   * and 128 fp16 numbers. 3.61 GB. */
  const double layer = qwen3_8b_weights / 2 + qwen3_8b_weights / 128 * 2.5 + 2 * (4096 + 4096 + 128 + 128);
  assert_equal(layer, 100254208);
  const double head = 151936.0 * 4096 * 2; /* 1.245 GB */
  const double row = 4096 * 2;             /* of the embedding; the final norm is as large */
  assert_equal(step_cost(model, KV_F16, 0, 1, 1).bytes, 36 * layer + head + row + row);
  assert_equal(step_cost(model, KV_F16, 0, 1, 1).bytes, 4853827584.0);

  /* More rows read their rows of the embedding, and nothing else again; without logits the head rests. */
  assert_equal(step_cost(model, KV_F16, 0, 8, 1).bytes, 4853827584.0 + 7 * row);
  assert_equal(step_cost(model, KV_F16, 0, 512, 0).bytes,
               36 * layer - qwen3_8b_ends / 2 - qwen3_8b_ends / 128 * 2.5 + 512 * row);

  /* A token's keys and values: 36 layers, 8 heads of 128 each, fp16. */
  const double kv = 36 * 2 * 8 * 128 * 2;
  assert_equal(kv, 147456);
  assert_equal(step_cost(model, KV_F16, 8192, 1, 1).bytes, 4853827584.0 + 8192 * kv);
  assert_equal(step_cost(model, KV_F32, 8192, 1, 1).bytes, 4853827584.0 + 8192 * 2 * kv);
  assert_equal(kv_cache_bytes(&model->config, KV_F16, 32768), 32768 * kv);
  model_close(model);
}

TEST(qwen3_8b_computes) {
  Model *model = open_config("test/data/configs/Qwen3-8B-AWQ");
  const double layers = 36 * 2 * qwen3_8b_weights, head = 2 * 151936.0 * 4096;
  const double seen = 36 * 4.0 * 32 * 128; /* operations for a position that a row sees */
  assert_equal(step_cost(model, KV_F16, 0, 1, 1).flop, layers + head + seen);
  assert_equal(step_cost(model, KV_F16, 100, 1, 1).flop, layers + head + 101 * seen);
  /* Rows see 1, 2, 3 and 4 positions. */
  assert_equal(step_cost(model, KV_F16, 0, 4, 1).flop, 4 * layers - 3 * 2 * qwen3_8b_ends + head + 10 * seen);
  assert_equal(step_cost(model, KV_F16, 0, 4, 0).flop, 4 * layers - 4 * 2 * qwen3_8b_ends + 10 * seen);
  assert_equal(step_cost(model, KV_F16, 0, 4, 4).flop, 4 * layers + 4 * head + 10 * seen);
  model_close(model);
}

/* All that is stored is read in a step that makes logits, but of an embedding that is not the head too. */
TEST(all_stored_weights_are_read) {
  static const char *const names[] = {
      "Qwen3-0.6B-AWQ",          "Qwen3-1.7B-AWQ",           "Qwen3-4B-AWQ", "Qwen3-14B-AWQ", "Qwen3-32B-AWQ",
      "Qwen2.5-7B-Instruct-AWQ", "Llama-3.1-8B-Instruct-AWQ"};
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
    char path[128];
    snprintf(path, sizeof path, "test/data/configs/%s", names[i]);
    Model *model = open_config(path);
    const ModelConfig *c = &model->config;
    const double row = 2.0 * c->hidden, unread = c->tied_embeddings ? 0 : row * c->vocab_size;
    assert_equal(step_cost(model, KV_F16, 0, 1, 1).bytes, (double)model->weight_bytes - unread + row);
    model_close(model);
  }
}

/* Dory's loops read their layers' tensors again: 8 attentions and 8 MLPs run, 4 and 4 are stored. */
TEST(loops_read_their_weights_again) {
  Model *model = open_config("test/data/miniatures/dory-bf16");
  const double attention = 16 * (32 + 16 + 16 + 32) + 32 * 16, mlp = 3 * 16 * 24, pair = attention + mlp,
               vectors = 32 + 32 + 16 + 24 + 24 + 16 + 2 * 16, head = 16 * 104; /* with norms of ones */
  assert_equal(step_cost(model, KV_F16, 0, 1, 1).bytes, 2 * (8 * (pair + vectors) + head + 104 + 2 * 16));
  assert_equal(step_cost(model, KV_F16, 0, 1, 1).flop, 2 * (8 * pair + head) + 8 * 4.0 * 4 * 8);
  /* Layers of later loops are where the first loop's are. */
  assert_equal(step_host_bytes(model, 0, 2), 2 * pair);
  assert_equal(step_host_bytes(model, 0, 6), 2 * pair);
  assert_equal(step_host_bytes(model, 0, 14), 2 * 7 * pair);
  model_close(model);
}

/* Hybrids read the state of each layer that has one, and keys of the others: by hand for 3 and 1 layers. */
TEST(states_are_read_whole) {
  Model *model = open_config("test/data/miniatures/qwen3_5");
  const ModelConfig *c = &model->config;
  const double row = 2.0 * c->hidden, unread = row * c->vocab_size;
  const double states = 3 * 4.0 * (3 * (2 * 2 * 8 + 6 * 12) + 6 * 8 * 12), kv = 2 * 1 * 32 * 2;
  const double weights = (double)model->weight_bytes - unread + row;
  assert_equal(step_cost(model, KV_F16, 0, 1, 1).bytes, weights + states);
  assert_equal(step_cost(model, KV_F16, 100, 1, 1).bytes, weights + states + 100 * kv);
  assert_equal(kv_cache_bytes(c, KV_F16, 100), 100 * kv);
  const double head = 2.0 * c->hidden * c->vocab_size, one = step_cost(model, KV_F16, 0, 1, 1).flop - head,
               two = step_cost(model, KV_F16, 0, 2, 2).flop - 2 * head;
  const double seen = 4.0 * 2 * 32; /* of a position in the one layer with attention */
  assert_equal(two - 2 * one, seen);
  const double hidden = 32, delta = hidden * (104 + 72 + 6 + 6) + 72 * hidden, mlp = 3 * hidden * 48,
               attention = hidden * (128 + 32 + 32) + 64 * hidden;
  assert_equal(one, 2 * (3 * delta + attention + 4 * mlp) + 3 * (2 * 4 * 104 + 7 * 6 * 8 * 12) + seen);
  model_close(model);
}

/* Two layers with convolutions of 3 and two with attention. */
TEST(short_convolutions_read_their_states) {
  Model *model = open_config("test/data/miniatures/lfm2-bf16");
  const double hidden = 32, states = 2 * 4.0 * 2 * hidden, kv = 2 * 2 * 16 * 2;
  const double weights = (double)model->weight_bytes + 2 * hidden;
  assert_equal(step_cost(model, KV_F16, 0, 1, 1).bytes, weights + states);
  assert_equal(step_cost(model, KV_F16, 100, 1, 1).bytes, weights + states + 100 * kv);
  const double conv = 3 * hidden * hidden + hidden * hidden, mlp = 3 * hidden * 48,
               attention = hidden * (32 + 16 + 16) + 32 * hidden, seen = 4.0 * 2 * 16;
  /* Without logits neither o nor the MLP of the last layer, which has attention. */
  assert_equal(step_cost(model, KV_F16, 0, 1, 0).flop,
               2 * (2 * conv + 2 * attention - 32 * hidden + 3 * mlp) + 2 * 2 * (3 + 1) * hidden + 2 * seen);
  model_close(model);
}

/* One layer without a window, one with a window of 4: a position sees itself and three before it. Each
 * matrix is of one weight. */
TEST(windows_hide_what_is_far) {
  static const float one = 1;
  LayerConfig windows[] = {{0}, {.window = 4}};
  const Linear matrix = {.kind = LINEAR_DENSE, .n_in = 1, .n_out = 1, .dtype = DTYPE_F32, .weight = &one};
  ModelLayer layers[2];
  for (int i = 0; i < 2; i++)
    layers[i] = (ModelLayer){
        .q = matrix, .k = matrix, .v = matrix, .o = matrix, .gate = matrix, .up = matrix, .down = matrix};
  const Model model = {
      .config = {.n_layers = 2, .n_heads = 3, .n_kv_heads = 1, .head_dim = 2, .layers = windows},
      .embedding = {&one, DTYPE_F32, 1, 1},
      .layers = layers,
      .head = matrix};
  const double weights = 2 * 7 * 4 + 4 + 4; /* and head, and a row of the embedding */
  const double kv = 2 * 1 * 2 * 2, products = 2 * 7 * 2, seen = 4 * 3 * 2;
  assert_equal(step_cost(&model, KV_F16, 2, 1, 1).bytes, weights + (2 + 2) * kv);
  assert_equal(step_cost(&model, KV_F16, 10, 1, 1).bytes, weights + (10 + 3) * kv);
  assert_equal(step_cost(&model, KV_F16, 10, 1, 1).flop, products + 2 + (11 + 4) * seen);
  /* Two rows after two: 3 and 4 positions in both layers, then 4 and no more in the second. */
  const double end = 4 * 2; /* o, gate, up and down of the last layer */
  assert_equal(step_cost(&model, KV_F16, 2, 2, 0).flop, 2 * (products - end) + (3 + 4 + 3 + 4) * seen);
  assert_equal(step_cost(&model, KV_F16, 2, 3, 0).flop,
               3 * (products - end) + (3 + 4 + 5 + 3 + 4 + 4) * seen);
  /* An MLP beside attention reads h of every row: nothing of the last layer can be left out. */
  Model beside = model;
  beside.config.parallel = PARALLEL_ONE_NORM;
  assert_equal(step_cost(&beside, KV_F16, 2, 2, 0).flop, 2 * products + (3 + 4 + 3 + 4) * seen);
  /* In chunks of 4 the tenth token sees one before it, and the first of a chunk none. */
  windows[1] = (LayerConfig){.chunk = 4};
  assert_equal(step_cost(&model, KV_F16, 9, 1, 1).bytes, weights + (9 + 1) * kv);
  assert_equal(step_cost(&model, KV_F16, 8, 1, 1).bytes, weights + 8 * kv);
  assert_equal(step_cost(&model, KV_F16, 7, 2, 0).flop, 2 * (products - end) + (8 + 9 + 4 + 1) * seen);
}

/* Two blocks of two positions are chosen, and those after the last whole block are seen, too; of each block a
 * key of two numbers is read. */
TEST(blocks_that_are_not_chosen_are_not_read) {
  static const float one = 1;
  const Linear matrix = {.kind = LINEAR_DENSE, .n_in = 1, .n_out = 1, .dtype = DTYPE_F32, .weight = &one};
  ModelLayer layer = {.q = matrix};
  const Model model = {.config = {.n_layers = 1,
                                  .n_heads = 3,
                                  .n_kv_heads = 1,
                                  .head_dim = 2,
                                  .indexer = {.block = 2, .budget = 4, .n_heads = 1, .head_dim = 2}},
                       .embedding = {&one, DTYPE_F32, 1, 1},
                       .layers = &layer};
  const double weights = 4 + 4, kv = 2 * 2 * 2, key = 2 * 2;
  assert_equal(step_cost(&model, KV_F16, 2, 1, 0).bytes, weights + 2 * kv + 1 * key);
  assert_equal(step_cost(&model, KV_F16, 10, 1, 0).bytes, weights + 4 * kv + 5 * key);
  assert_equal(step_cost(&model, KV_F16, 10, 1, 0).flop, 2 + 5 * 4 * 3 * 2);
}

/* A layer of each kind, with and without a bias, by hand; without logits neither the head and its norm are
 * read, nor what follows attention. */
TEST(every_kind_of_matrix_is_counted) {
  static const float numbers[64] = {0};
  const Linear none = {.kind = LINEAR_DENSE, .dtype = DTYPE_F32};
  const Linear awq = {.kind = LINEAR_AWQ, .n_in = 64, .n_out = 8, .bits = 4, .group = 32};
  const Linear grouped = {.kind = LINEAR_GROUPED, .n_in = 32, .n_out = 24, .bits = 8, .group = 16};
  const Linear int8 = {
      .kind = LINEAR_INT8, .n_in = 10, .n_out = 6, .bits = 8, .bias = {numbers, DTYPE_F32, 6}};
  const Linear half = {
      .kind = LINEAR_DENSE, .n_in = 7, .n_out = 3, .dtype = DTYPE_BF16, .bias = {numbers, DTYPE_F16, 3}};
  const Linear fp4 = {.kind = LINEAR_FP4, .n_in = 32, .n_out = 5, .bits = 4, .group = 16};
  const Linear fp8 = {.kind = LINEAR_FP8, .n_in = 20, .n_out = 10, .bits = 8, .block = 4, .group = 16};
  ModelLayer layer = {.q = awq, .k = grouped, .v = int8, .o = half, .gate = fp4, .up = fp8, .down = none};
  layer.mlp_post_norm = (Vector){numbers, DTYPE_F32, 5};
  layer.k_norm = (Vector){numbers, DTYPE_BF16, 9};
  const Model model = {.config = {.n_layers = 1, .n_heads = 4, .n_kv_heads = 2, .head_dim = 6},
                       .embedding = {numbers, DTYPE_F16, 20, 12},
                       .layers = &layer,
                       .final_norm = {numbers, DTYPE_F32, 12},
                       .head = half};
  /* For each group of 32 or 16 weights a zero point as wide as a weight and a scale: fp16, GROUPED: fp32. */
  const double stored = (256 + 16 * 2.5) + (768 + 48 * 5) + (60 + 6 * 4 + 6 * 4) + 5 * 4 + 9 * 2;
  const double row = 24, kv = 2 * 2 * 6 * 2, end = (42 + 6) + (80 + 10) + (200 + 3 * 2 * 4) + 12 * 4 + 42 + 6;
  const double weights = 512 + 768 + 60, seen = 4 * 4 * 6;
  for (int n_rows = 1; n_rows <= 3; n_rows++) {
    const StepCost cost = step_cost(&model, KV_F16, 5, n_rows, 0);
    assert_equal(cost.bytes, stored + n_rows * row + 5 * kv);
    assert_equal(cost.flop, 2 * weights * n_rows + (n_rows == 1   ? 6
                                                    : n_rows == 2 ? 6 + 7
                                                                  : 6 + 7 + 8) *
                                                       seen);
    for (int n_logit_rows = 1; n_logit_rows <= n_rows; n_logit_rows++) {
      const StepCost whole = step_cost(&model, KV_F16, 5, n_rows, n_logit_rows);
      assert_equal(whole.bytes, cost.bytes + end);
      assert_equal(whole.flop, cost.flop + 2 * (21 + 160 + 200 + 21) * n_logit_rows);
    }
  }
  assert_equal(step_cost(&model, KV_F32, 5, 1, 0).bytes, stored + row + 5 * 2 * kv);
  assert_equal(kv_cache_bytes(&model.config, KV_F32, 5), 5 * 2 * kv);
  assert_equal(kv_cache_bytes(&model.config, KV_F16, 0), 0);
}

/* A layer with experts after one without, by hand: each matrix is one weight of 4 bytes. One row reads 2 of
 * the 4 experts. Two rows miss an expert with probability 1/2 each, so they read 3. */
TEST(experts_are_read_where_rows_choose_them) {
  enum { N_EXPERTS = 4, N_CHOSEN = 2 };
  static const float one = 1;
  const Linear matrix = {.kind = LINEAR_DENSE, .n_in = 1, .n_out = 1, .dtype = DTYPE_F32, .weight = &one};
  Expert experts[N_EXPERTS];
  for (int i = 0; i < N_EXPERTS; i++) experts[i] = (Expert){.gate = matrix, .up = matrix, .down = matrix};
  LayerConfig configs[] = {{.mlp = MLP_DENSE}, {.mlp = MLP_OF_MODEL}};
  ModelLayer layers[2];
  for (int i = 0; i < 2; i++) layers[i] = (ModelLayer){.q = matrix, .o = matrix};
  layers[0].gate = layers[0].up = layers[0].down = matrix;
  layers[1].experts = experts;
  layers[1].router = matrix;
  const Model model = {.config = {.n_layers = 2,
                                  .n_heads = 1,
                                  .n_kv_heads = 1,
                                  .head_dim = 1,
                                  .experts = {.n_experts = N_EXPERTS, .n_chosen = N_CHOSEN},
                                  .layers = configs},
                       .embedding = {&one, DTYPE_F32, 1, 1},
                       .layers = layers,
                       .head = matrix};
  const double row = 4, kv = 2 * 2, seen = 4, dense = 5,
               sparse = 3; /* matrices of the layers, and the head */
  const StepCost single = step_cost(&model, KV_F16, 1, 1, 1), two = step_cost(&model, KV_F16, 1, 2, 2);
  assert_equal(single.bytes, row + 4 * (dense + sparse + 3 * N_CHOSEN + 1) + 2 * kv);
  assert_equal(two.bytes, 2 * row + 4 * (dense + sparse + 3 * 3 + 1) + 2 * kv);
  assert_equal(single.flop, 2 * (dense + sparse + 3 * N_CHOSEN + 1) + 2 * 2 * seen);
  assert_equal(two.flop, 2 * 2 * (dense + sparse + 3 * N_CHOSEN + 1) + 2 * (2 + 3) * seen);
  /* Without logits nothing that follows attention in the last layer, so no expert. */
  assert_equal(step_cost(&model, KV_F16, 1, 1, 0).bytes, row + 4 * (dense + 1) + 2 * kv);
  /* In the host's memory: experts, as far as they are read; of whole layers all but the router. */
  assert_equal(step_host_bytes(&model, 0, 0), 0);
  assert_equal(step_host_bytes(&model, 1, 0), 4 * 3 * N_CHOSEN);
  assert_equal(step_host_bytes(&model, 2, 0), 4 * 3 * N_CHOSEN);
  assert_equal(step_host_bytes(&model, 1, 1), 4 * (3 * N_CHOSEN + 2));
  assert_equal(step_host_bytes(&model, 2, 2), 4 * (3 * N_CHOSEN + 2 + dense));
  layers[1].altup_predict = matrix; /* stays on the GPU, too */
  assert_equal(step_host_bytes(&model, 1, 1), 4 * (3 * N_CHOSEN + 2));
}

/* Rows of tables that tokens are looked up in: one of each table for each row of the step. */
TEST(each_row_reads_its_rows_of_tables) {
  static const float one = 1;
  NgramShard shards[2] = {{.rows = {&one, DTYPE_F32, 10, 3}}, {.rows = {&one, DTYPE_F32, 10, 3}}};
  ModelLayer layers[2] = {{.shards = shards, .n_shards = 2}};
  const Model model = {.config = {.n_layers = 2,
                                  .n_heads = 1,
                                  .n_kv_heads = 1,
                                  .head_dim = 1,
                                  .per_layer_width = 7,
                                  .ngrams = {.width = 12}},
                       .embedding = {&one, DTYPE_F16, 20, 5},
                       .input_table = {&one, DTYPE_F32, 20, 14},
                       .layers = layers};
  for (int n_rows = 1; n_rows <= 3; n_rows++)
    assert_equal(step_cost(&model, KV_F16, 0, n_rows, 0).bytes, n_rows * (5 * 2 + 14 * 4 + 12 * 4));
}

TEST(layers_of_other_sizes_have_their_own_keys) {
  LayerConfig layers[3] = {{0}, {.n_kv_heads = 1, .head_dim = 10}, {.head_dim = 8}};
  ModelLayer weights[3] = {{.attn_norm = {.n = 0}}};
  const Model model = {
      .config = {.n_layers = 3, .n_heads = 4, .n_kv_heads = 2, .head_dim = 6, .layers = layers},
      .layers = weights};
  const double kv = 2 * 2 * (2 * 6 + 1 * 10 + 2 * 8), seen = 4 * 4 * (6 + 10 + 8);
  assert_equal(kv_cache_bytes(&model.config, KV_F16, 7), 7 * kv);
  assert_equal(step_cost(&model, KV_F16, 5, 1, 0).bytes, 5 * kv);
  assert_equal(step_cost(&model, KV_F16, 5, 1, 0).flop, 6 * seen);
}
