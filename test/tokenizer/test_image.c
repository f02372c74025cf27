/* test_image.c - a tokenizer opened from an image (image.c) gives the ids and texts of the one that was
 * loaded. The reference is tokenizer_open(), which test_goldens.py compares with Hugging Face's. */
#include <glob.h>
#include <sys/mman.h>
#include <unistd.h>

#include "test/tests.h"
#include "tokenizer/tokenizer.h"

static const char *const texts[] = {
    "Hello, world!",
    "  two  spaces\n\n\tand a tab",
    "caf\xc3\xa9 \xe4\xb8\xad\xe6\x96\x87 \xf0\x9f\x98\x80",
    "<s>[INST] x </s>",
    "<|im_start|>user\nhi<|im_end|>",
    "def f(x):\n    return x**2  # 1234567",
    "\xcc\x81 a\xcc\x81 \xef\xac\x81",
    "",
};

static void assert_same(const Tokenizer *loaded, const Tokenizer *opened) {
  Error err;
  assert_int_equal(tokenizer_n_ids(loaded), tokenizer_n_ids(opened));
  for (int32_t id = 0; id < tokenizer_n_ids(loaded); id += 7) {
    size_t size = 0, other = 0;
    const char *content = tokenizer_content(loaded, id, &size), *same = tokenizer_content(opened, id, &other);
    assert_true(!content == !same);
    if (!content) continue;
    assert_int_equal(size, other);
    assert_memory_equal(content, same, size);
    assert_int_equal(tokenizer_find(loaded, content), tokenizer_find(opened, same));
    assert_int_equal(tokenizer_is_special(loaded, id), tokenizer_is_special(opened, id));
  }
  for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
    for (int parse = 0; parse < 2; parse++) {
      IdList ids[2] = {{0}, {0}};
      Buffer text[2] = {{0}, {0}};
      Status made[2]; /* a model without an unknown token refuses texts */
      for (int which = 0; which < 2; which++) {
        const Tokenizer *t = which ? opened : loaded;
        const EncodeOptions options = {.add_special = true, .parse_special = parse};
        made[which] = tokenizer_encode(t, texts[i], strlen(texts[i]), options, &ids[which], &err);
        assert_int_equal(tokenizer_decode(t, ids[which].ids, ids[which].count, true, &text[which], &err),
                         STATUS_OK);
      }
      assert_int_equal(made[0], made[1]);
      assert_int_equal(ids[0].count, ids[1].count);
      if (ids[0].count) assert_memory_equal(ids[0].ids, ids[1].ids, ids[0].count * sizeof *ids[0].ids);
      assert_int_equal(text[0].size, text[1].size);
      if (text[0].size) assert_memory_equal(text[0].data, text[1].data, text[0].size);
      for (int which = 0; which < 2; which++) {
        id_list_release(&ids[which]);
        buffer_release(&text[which]);
      }
    }
  }
}

TEST(image_is_the_tokenizer) {
  static const char *const patterns[] = {
      "test/data/*/tokenizer.json", "test/data/miniatures/*/tokenizer.json",
      "test/data/tokenizers/*/tokenizer.json", "test/fuzz/corpus/fuzz_tokenizer/*.json"};
  int n = 0;
  for (size_t p = 0; p < sizeof patterns / sizeof *patterns; p++) {
    glob_t found;
    if (glob(patterns[p], 0, NULL, &found) != 0) continue;
    for (size_t i = 0; i < found.gl_pathc; i++) {
      Tokenizer *loaded, *opened;
      int image;
      if (tokenizer_open(found.gl_pathv[i], &loaded, NULL) != STATUS_OK) continue;
      assert_int_equal(tokenizer_image_make(found.gl_pathv[i], &image, NULL), STATUS_OK);
      assert_int_equal(tokenizer_image_open(found.gl_pathv[i], image, &opened, NULL), STATUS_OK);
      close(image);
      assert_same(loaded, opened);
      tokenizer_close(loaded);
      tokenizer_close(opened);
      n++;
    }
    globfree(&found);
  }
  assert_true(n > 1);
}

/* A file that is not an image is refused. An image cannot be written to, so no reader sees it change. */
TEST(other_memory_is_refused) {
  static const char noise[4096] = "not an image";
  Tokenizer *tokenizer;
  Error err;
  int descriptor = memfd_create("noise", MFD_CLOEXEC);
  assert_int_equal(tokenizer_image_open("x", descriptor, &tokenizer, &err), STATUS_FAILED);
  assert_int_equal(write(descriptor, noise, sizeof noise), sizeof noise);
  assert_int_equal(tokenizer_image_open("x", descriptor, &tokenizer, &err), STATUS_FAILED);
  assert_null(tokenizer);
  close(descriptor);
  assert_int_equal(tokenizer_image_make("test/data/missing.json", &descriptor, &err), STATUS_MODEL);
  assert_int_equal(descriptor, -1);
  assert_int_equal(tokenizer_image_make("test/data/stories260K-awq/tokenizer.json", &descriptor, &err),
                   STATUS_OK);
  assert_int_equal(write(descriptor, noise, 16), -1);
  close(descriptor);
}
