/* test_inspect.c - the sizes that `auk inspect` reports, where no checkpoint of a test is large enough. */
#include "commands/models/inspect.h"
#include "test/tests.h"

TEST(a_cache_beyond_all_memory_is_the_largest_size) {
  Model model = {.config = {.n_layers = 5, .n_heads = 10, .n_kv_heads = 10, .head_dim = 10}};
  assert_int_equal(inspect_kv_bytes(&model.config, KV_F16, 1), 2000);
  assert_int_equal(inspect_kv_bytes(&model.config, KV_F32, 1 << 20), 4194304000);
  model.config.n_layers = MAX_LAYERS;
  model.config.n_heads = model.config.n_kv_heads = MAX_HEADS;
  model.config.head_dim = MAX_HEAD_DIM;
  assert_int_equal(inspect_kv_bytes(&model.config, KV_F32, 1), (size_t)1 << 38);
  assert_int_equal(inspect_kv_bytes(&model.config, KV_F32, ((size_t)1 << 26) - 1),
                   (size_t)0 - ((size_t)1 << 38));
  assert_int_equal(inspect_kv_bytes(&model.config, KV_F32, (size_t)1 << 26), SIZE_MAX);
  assert_int_equal(inspect_kv_bytes(&model.config, KV_F32, MAX_POSITION), SIZE_MAX);
}
