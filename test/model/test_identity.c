/* test_identity.c - which checkpoint a model is: what changes its content and what does not, files that
 * change while it is open, and which files belong to it. */
#include "tiny_checkpoint.h"

#include "model/identity.h"
#include "model/loaders.h"
#include "test/tests.h"

/* A directory of two shards and an index. */
static void write_shards(const Tiny *tiny, const char *directory) {
  const int half = tiny->n_tensors / 2;
  Buffer index = {0};
  write_config(tiny, directory);
  write_tensors(tiny, 0, half, 0, directory, "a.safetensors");
  write_tensors(tiny, half, tiny->n_tensors, 0, directory, "b.safetensors");
  buffer_append_string(&index, "{\"weight_map\": {", NULL);
  for (int i = 0; i < tiny->n_tensors; i++)
    buffer_printf(&index, NULL, "%s\"%s\": \"%c.safetensors\"", i ? ", " : "", tiny->tensors[i].name,
                  i < half ? 'a' : 'b');
  buffer_append_string(&index, "}}", NULL);
  write_file(directory, "model.safetensors.index.json", index.data, index.size);
  buffer_release(&index);
}

static ContentHash content_of(const Model *model) {
  const ContentSearch search = {.may_read = true, .n_threads = 1};
  ContentHash hash;
  Error err = {{0}};
  bool known = false;
  if (model_content(model, &search, &hash, &known, &err) != STATUS_OK) fail_msg("%s", err.text);
  assert_true(known);
  return hash;
}

static ContentHash content_at(const char *path, const ModelOverrides *overrides) {
  Model *model = open_fine(path, overrides);
  const ContentHash hash = content_of(model);
  model_close(model);
  return hash;
}

static bool same(ContentHash one, ContentHash other) {
  return one.a == other.a && one.b == other.b;
}

/* --- content */

TEST(what_is_computed_decides_the_content) {
  Tiny tiny;
  tiny_qwen3(&tiny);
  char *directory = make_directory(), *elsewhere = make_directory();
  write_shards(&tiny, directory);
  write_shards(&tiny, elsewhere);
  const ContentHash first = content_at(directory, NULL);
  assert_true(same(content_at(directory, NULL), first));
  assert_true(same(content_at(elsewhere, NULL), first)); /* wherever it lies */
  write_text(directory, "generation_config.json", "{\"top_k\": 5, \"eos_token_id\": 9}");
  write_text(directory, "tokenizer.json", "{}");
  write_text(directory, "chat_template.jinja", "x");
  assert_true(same(content_at(directory, NULL), first));
  assert_true(same(content_at(directory, &(ModelOverrides){.tokenizer = "other.json"}), first));
  for (int i = 0; i < 2; i++) { /* a number in either shard */
    TinyTensor *tensor = &tiny.tensors[i ? tiny.n_tensors - 1 : 0];
    tensor->data[2] ^= 1;
    write_shards(&tiny, directory);
    assert_false(same(content_at(directory, NULL), first));
    tensor->data[2] ^= 1;
    write_shards(&tiny, directory);
    assert_true(same(content_at(directory, NULL), first));
  }
  tiny.extra_config = ", \"an_unknown_member\": 1";
  write_config(&tiny, directory);
  assert_false(same(content_at(directory, NULL), first));
  remove_directory(elsewhere);
  remove_directory(directory);
  tiny_free(&tiny);
}

/* The same number in another tensor is another model: order counts, and so does what is used. */
TEST(the_order_of_files_and_what_is_used_count) {
  Tiny tiny;
  tiny_llama(&tiny);
  char *directory = make_directory();
  write_shards(&tiny, directory);
  Model *model = open_fine(directory, NULL);
  const ContentHash first = content_of(model);
  Safetensors **shards = model->files->weights.shards, *shard = shards[0];
  shards[0] = shards[1];
  shards[1] = shard;
  assert_false(same(content_of(model), first));
  shards[1] = shards[0];
  shards[0] = shard;
  assert_true(same(content_of(model), first));
  const size_t last = model_tensor_count(model) - 1;
  for (size_t i = 0; i < 2; i++) {
    StoredTensor *tensor = (StoredTensor *)model_tensor(model, i * last);
    tensor->used = false;
    assert_false(same(content_of(model), first));
    tensor->used = true;
  }
  assert_true(same(content_of(model), first));
  model_close(model);
  remove_directory(directory);
  tiny_free(&tiny);
}

TEST(files_of_the_quantisation_count) {
  static const char *const names[] = {"quant_config.json", "quantize_config.json"};
  static const char *const texts[] = {"{\"quant_method\": \"awq\", \"group_size\": 16}",
                                      "{\"quant_method\": \"awq\", \"group_size\": 16, \"x\": 1}"};
  Tiny tiny;
  tiny_llama(&tiny);
  tiny.group = 0;
  char *directory = write_tiny(&tiny);
  for (size_t i = 0; i < 2; i++) {
    write_text(directory, names[i], texts[0]);
    const ContentHash first = content_at(directory, NULL);
    write_text(directory, names[i], texts[1]);
    assert_false(same(content_at(directory, NULL), first));
    assert_int_equal(unlink(in_directory(directory, names[i])), 0);
  }
  /* If both are there, AutoAWQ's counts; the other is not even read. */
  write_text(directory, names[0], texts[0]);
  const ContentHash one = content_at(directory, NULL);
  write_text(directory, names[1], "{\"quant_method\": \"gptq\", \"bits\": 3}");
  assert_true(same(content_at(directory, NULL), one));
  remove_directory(directory);
  tiny_free(&tiny);
}

TEST(flags_are_part_of_the_content) {
  static const ModelOverrides flags[] = {
      {0},
      {.rope_theta = 10000, .norm_eps = 1e-5}, /* as config.json has them */
      {.rope_theta = 5000},
      {.norm_eps = 1e-4},
      {.rope_theta = 5000, .norm_eps = 1e-4}};
  Tiny tiny;
  tiny_qwen3(&tiny);
  char *directory = write_tiny(&tiny), *path = in_directory(directory, "m.ak48");
  ContentHash hashes[5];
  Error err = {{0}};
  Model *model = open_fine(directory, NULL);
  assert_int_equal(pack_model(model, path, NULL, &err), STATUS_OK);
  model_close(model);
  for (size_t i = 0; i < 5; i++) hashes[i] = content_at(path, &flags[i]);
  for (size_t i = 0; i < 5; i++)
    for (size_t k = 0; k < i; k++) assert_int_equal(same(hashes[i], hashes[k]), i == 1 && k == 0);
  assert_int_equal(unlink(in_directory(directory, "model.safetensors")), 0); /* is not part of it */
  assert_true(same(content_at(path, NULL), hashes[0]));
  FILE *file = fopen(path, "r+b");
  assert_int_equal(fseek(file, -1, SEEK_END), 0);
  assert_int_not_equal(fputc(1, file), EOF);
  fclose(file);
  assert_false(same(content_at(path, NULL), hashes[0]));
  remove_directory(directory);
  tiny_free(&tiny);
}

TEST(what_is_not_read_is_not_known) {
  Tiny tiny;
  tiny_llama(&tiny);
  char *directory = write_tiny(&tiny);
  const ContentSearch search = {.may_read = true, .n_threads = 1};
  ContentHash hash;
  Error err = {{0}};
  Model *model;
  bool known = true;
  assert_int_equal(model_open_dummy(directory, &model, &err), STATUS_OK);
  assert_int_equal(model_content(model, &search, &hash, &known, &err), STATUS_OK);
  assert_false(known);
  assert_int_equal(model_check_weights(model, &err), STATUS_OK);
  assert_true(model_is_unchanged(model));
  model_close(model);
  remove_directory(directory);
  tiny_free(&tiny);
}

static ContentHash sample_of(const Model *model) {
  ContentHash hash;
  Error err = {{0}};
  if (model_sample(model, &hash, &err) != STATUS_OK) fail_msg("%s", err.text);
  return hash;
}

/* The first 64 KiB and 256 samples of 64 bytes. */
TEST(the_size_and_samples_of_the_weights_are_hashed) {
  enum { SIZE = 1 << 20, HEAD = 1 << 16, LAST = SIZE / 256 * 255 };
  static const size_t hashed[] = {0, HEAD - 1, HEAD, HEAD + 63, LAST, LAST + 63},
                      passed[] = {HEAD + 64, LAST - 1, LAST + 64, SIZE - 1};
  Tiny tiny;
  tiny_llama(&tiny);
  char *directory = write_tiny(&tiny);
  Model *model = open_fine(directory, NULL);
  MappedFile *file = &model->files->weights.shards[0]->file;
  const MappedFile mapped = *file;
  unsigned char *bytes = calloc(SIZE, 1);
  file->data = bytes;
  file->size = SIZE;
  const ContentHash first = sample_of(model);
  for (size_t i = 0; i < sizeof hashed / sizeof *hashed; i++) {
    bytes[hashed[i]] = 1;
    assert_false(same(sample_of(model), first));
    bytes[hashed[i]] = 0;
  }
  for (size_t i = 0; i < sizeof passed / sizeof *passed; i++) bytes[passed[i]] = 1;
  assert_true(same(sample_of(model), first));
  file->size = SIZE + 1;
  assert_false(same(sample_of(model), first));
  *file = mapped;
  free(bytes);
  model_close(model);
  remove_directory(directory);
  tiny_free(&tiny);
}

/* --- files that change meanwhile */

static void append_byte(const char *path) {
  FILE *file = fopen(path, "ab");
  assert_non_null(file);
  assert_int_not_equal(fputc(0, file), EOF);
  assert_int_equal(fclose(file), 0);
}

/* `name`: the file of weights that is written to, and then replaced by another of the same bytes. */
static void assert_noticed(const char *path, const char *directory, const char *name) {
  Error err = {{0}};
  Model *model = open_fine(path, NULL);
  assert_true(model_is_unchanged(model));
  assert_int_equal(model_check_weights(model, &err), STATUS_OK);
  append_byte(in_directory(directory, name));
  assert_false(model_is_unchanged(model));
  assert_int_equal(model_check_weights(model, &err), STATUS_FAILED);
  assert_contains(err.text, in_directory(directory, name));
  assert_contains(err.text, "was written to while it was in use: these are other weights now");
  model_close(model);
}

/* A file that takes another's name leaves the mapping as it was, but is not what was opened. */
static void assert_replaced(const char *path, const char *directory, const char *name) {
  char other[700];
  Error err = {{0}};
  Model *model = open_fine(path, NULL);
  snprintf(other, sizeof other, "%s/other", directory);
  write_text(directory, "other", "x");
  assert_int_equal(rename(other, in_directory(directory, name)), 0);
  assert_false(model_is_unchanged(model));
  assert_int_equal(model_check_weights(model, &err), STATUS_OK);
  model_close(model);
}

TEST(every_file_of_weights_is_watched) {
  static const char *const shards[] = {"a.safetensors", "b.safetensors"};
  Tiny tiny;
  tiny_qwen3(&tiny);
  for (size_t i = 0; i < 2; i++) {
    char *directory = make_directory();
    write_shards(&tiny, directory);
    assert_noticed(directory, directory, shards[i]);
    write_shards(&tiny, directory);
    assert_replaced(directory, directory, shards[i]);
    remove_directory(directory);
  }
  char *directory = write_tiny(&tiny), *path = strdup(in_directory(directory, "m.ak48"));
  Error err = {{0}};
  Model *model = open_fine(directory, NULL);
  for (int i = 0; i < 2; i++) {
    assert_int_equal(pack_model(model, path, NULL, &err), STATUS_OK);
    if (i == 0)
      assert_noticed(path, directory, "m.ak48");
    else
      assert_replaced(path, directory, "m.ak48");
  }
  assert_true(model_is_unchanged(model)); /* a packed file beside it is no part of it */
  model_close(model);
  free(path);
  remove_directory(directory);
  tiny_free(&tiny);
}

/* --- which files are its own */

static void assert_has(const Model *model, const char *path, bool expected) {
  struct stat info;
  Error err = {{0}};
  bool has;
  assert_int_equal(stat(path, &info), 0);
  assert_int_equal(model_has_file(model, info.st_dev, info.st_ino, &has, &err), STATUS_OK);
  if (has != expected) fail_msg("%s is %s", path, has ? "taken for a part of the model" : "not known");
  assert_int_equal(model_has_file(model, info.st_dev + 1, info.st_ino, &has, &err), STATUS_OK);
  assert_false(has);
}

static const char *const companions[] = {
    "config.json",           "generation_config.json", "quant_config.json",
    "quantize_config.json",  "hf_quant_config.json",   "tokenizer.json",
    "tokenizer_config.json", "chat_template.jinja",    "special_tokens_map.json",
    "chat_template.json",    "added_tokens.json"};

TEST(all_files_that_it_is_read_from_belong_to_it) {
  Tiny tiny;
  tiny_qwen3(&tiny);
  char *directory = make_directory(), *outside = make_directory();
  write_shards(&tiny, directory);
  assert_int_equal(N_MODEL_COMPANIONS, sizeof companions / sizeof *companions);
  for (size_t i = 1; i < sizeof companions / sizeof *companions; i++)
    write_text(directory, companions[i], "{\"quant_method\": \"awq\"}");
  write_text(directory, "README.md", "x");
  write_text(outside, "t.json", "{}");
  write_text(outside, "config.json", "{}");
  char *own = strdup(in_directory(outside, "t.json"));
  Model *model = open_fine(directory, &(ModelOverrides){.tokenizer = own});
  for (size_t i = 0; i < sizeof companions / sizeof *companions; i++)
    assert_has(model, in_directory(directory, companions[i]), true);
  assert_has(model, in_directory(directory, "a.safetensors"), true);
  assert_has(model, in_directory(directory, "b.safetensors"), true);
  assert_has(model, in_directory(directory, "model.safetensors.index.json"), true);
  assert_has(model, own, true);
  assert_has(model, in_directory(directory, "README.md"), false);
  assert_has(model, in_directory(outside, "config.json"), false);
  assert_has(model, directory, false);
  /* The mapped file counts, not another that has its name by now. */
  assert_int_equal(rename(in_directory(directory, "b.safetensors"), in_directory(outside, "b")), 0);
  write_text(directory, "b.safetensors", "x");
  assert_has(model, in_directory(outside, "b"), true);
  assert_has(model, in_directory(directory, "b.safetensors"), false);
  char *found = model_directory(model, NULL);
  assert_string_equal(found, directory);
  assert_string_equal(model_path(model), directory);
  free(found);
  model_close(model);
  free(own);
  remove_directory(outside);
  remove_directory(directory);
  tiny_free(&tiny);
}

TEST(so_do_those_beside_a_packed_file) {
  Tiny tiny;
  tiny_qwen3(&tiny);
  char *directory = write_tiny(&tiny), *path = strdup(in_directory(directory, "m.ak48"));
  Error err = {{0}};
  Model *model = open_fine(directory, NULL);
  assert_int_equal(pack_model(model, path, NULL, &err), STATUS_OK);
  assert_has(model, path, false);
  model_close(model);
  model = open_fine(path, NULL);
  assert_has(model, path, true);
  assert_has(model, in_directory(directory, "config.json"), true);
  assert_has(model, in_directory(directory, "model.safetensors"), false);
  char *found = model_directory(model, NULL);
  assert_string_equal(found, directory);
  assert_string_equal(model_path(model), path);
  free(found);
  model_close(model);
  free(path);
  remove_directory(directory);
  tiny_free(&tiny);
}
