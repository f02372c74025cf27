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

TEST(bytes_have_a_larger_unit_from_1024_on) {
  static const struct {
    size_t bytes;
    const char *text;
  } cases[] = {{0, "0 bytes"},
               {1023, "1023 bytes"},
               {1024, "1024 bytes (1.00 KiB)"},
               {10240, "10240 bytes (10.0 KiB)"}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    Buffer out = {0};
    assert_int_equal(inspect_print_bytes(&out, cases[i].bytes, NULL), STATUS_OK);
    assert_int_equal(buffer_append(&out, "", 1, NULL), STATUS_OK);
    assert_string_equal(out.data, cases[i].text);
    buffer_release(&out);
  }
}
