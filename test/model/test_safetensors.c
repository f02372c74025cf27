/* test_safetensors.c - the header of a .safetensors file: what is taken, and the message of everything that
 * is not. Reference: huggingface/safetensors, safetensors/src/tensor.rs (Metadata::validate and its
 * tests). */
#include "tiny_checkpoint.h"

#include <time.h>

#include "model/files/safetensors.h"

/* A file of this header text and n bytes of data 0, 1, 2, ... */
static Buffer make_file(const char *header, size_t header_size, size_t n) {
  Buffer file = {0};
  for (int i = 0; i < 8; i++) {
    unsigned char byte = (unsigned char)((uint64_t)header_size >> 8 * i);
    buffer_append(&file, &byte, 1, NULL);
  }
  buffer_append(&file, header, header_size, NULL);
  for (size_t i = 0; i < n; i++) buffer_append(&file, &(unsigned char){(unsigned char)i}, 1, NULL);
  return file;
}

/* Bytes in a block of exactly their size, so that the sanitizer catches a read past them. */
static Status parse(const void *bytes, size_t size, Safetensors *file, void **copy, Error *err) {
  *copy = malloc(size ? size : 1);
  if (size) memcpy(*copy, bytes, size);
  return safetensors_parse("x.safetensors", *copy, size, file, err);
}

static void bytes_refused(const void *bytes, size_t size, const char *part, const char *second) {
  Safetensors file;
  Error err = {{0}};
  void *copy;
  Status status = parse(bytes, size, &file, &copy, &err);
  safetensors_close(&file);
  free(copy);
  if (status != STATUS_MODEL)
    fail_msg("status %d (%s), expected a refusal with \"%s\"", status, err.text, part);
  assert_contains(err.text, "x.safetensors");
  assert_contains(err.text, part);
  if (second) assert_contains(err.text, second);
}

static void header_refused(const char *header, size_t n_data, const char *part, const char *second) {
  Buffer bytes = make_file(header, strlen(header), n_data);
  bytes_refused(bytes.data, bytes.size, part, second);
  buffer_release(&bytes);
}

#define F16_PAIR(name, from, to)                                                                             \
  "\"" name "\":{\"dtype\":\"F16\",\"shape\":[2],\"data_offsets\":[" from "," to "]}"

static void reads_tensors(void **state) {
  /* In no order, of every rank, with empty ones (of one the sizes before the 0 overflow 64 bits), escapes in
   * names, metadata, foreign members and blanks. */
  static const char header[] =
      "{\"b\":{\"shape\":[2,3],\"data_offsets\":[4,10],\"dtype\":\"I8\"},\n"
      " \"__metadata__\":{\"format\":\"pt\",\"x\":\"\"},"
      "\"a\\u002eweight\":{\"dtype\":\"F16\",\"shape\":[2],\"data_offsets\":[0,4],\"note\":[1,{}]},"
      "\"scalar\":{\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[10,14]},"
      "\"empty\":{\"dtype\":\"I64\",\"shape\":[3,0],\"data_offsets\":[4,4]},"
      "\"wide\":{\"dtype\":\"F16\",\"shape\":[4294967296,4294967296,0],\"data_offsets\":[4,4]},"
      "\"fp4\":{\"dtype\":\"F4\",\"shape\":[1,4],\"data_offsets\":[14,16]}}   ";
  Buffer bytes = make_file(header, sizeof header - 1, 16);
  Safetensors file;
  Error err = {{0}};
  void *copy;
  if (parse(bytes.data, bytes.size, &file, &copy, &err) != STATUS_OK) fail_msg("%s", err.text);
  assert_int_equal(file.n_tensors, 6);
  const StoredTensor *a = safetensors_find(&file, "a.weight"), *b = safetensors_find(&file, "b");
  assert_non_null(a);
  assert_int_equal(a->dtype, DTYPE_F16);
  assert_int_equal(a->bytes, 4);
  assert_int_equal(a->data[0], 0);
  assert_int_equal(b->rank, 2);
  assert_int_equal(b->shape[1], 3);
  assert_int_equal(b->data[0], 4);
  assert_string_equal(safetensors_find(&file, "fp4")->dtype_name, "F4");
  assert_int_equal(safetensors_find(&file, "fp4")->dtype, DTYPE_OTHER);
  assert_int_equal(safetensors_find(&file, "scalar")->rank, 0);
  assert_int_equal(safetensors_find(&file, "empty")->bytes, 0);
  assert_int_equal(safetensors_find(&file, "wide")->bytes, 0);
  assert_null(safetensors_find(&file, "c"));
  assert_null(safetensors_find(&file, ""));
  safetensors_close(&file);
  free(copy);
  buffer_release(&bytes);
}

/* Bits of a number of each dtype, as the reference implementation has them. */
static void every_dtype_has_its_size(void **state) {
  static const struct {
    const char *name;
    int bits;
    Dtype dtype;
  } cases[] = {{"BOOL", 8, DTYPE_OTHER},
               {"F4", 4, DTYPE_OTHER},
               {"F6_E2M3", 6, DTYPE_OTHER},
               {"F6_E3M2", 6, DTYPE_OTHER},
               {"U8", 8, DTYPE_U8},
               {"I8", 8, DTYPE_I8},
               {"F8_E5M2", 8, DTYPE_OTHER},
               {"F8_E4M3", 8, DTYPE_F8_E4M3},
               {"F8_E8M0", 8, DTYPE_F8_E8M0},
               {"I16", 16, DTYPE_I16},
               {"F8_E4M3FNUZ", 8, DTYPE_OTHER},
               {"F8_E5M2FNUZ", 8, DTYPE_OTHER},
               {"U16", 16, DTYPE_OTHER},
               {"F16", 16, DTYPE_F16},
               {"BF16", 16, DTYPE_BF16},
               {"I32", 32, DTYPE_I32},
               {"U32", 32, DTYPE_OTHER},
               {"F32", 32, DTYPE_F32},
               {"C64", 64, DTYPE_OTHER},
               {"F64", 64, DTYPE_OTHER},
               {"I64", 64, DTYPE_I64},
               {"U64", 64, DTYPE_OTHER}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    const size_t n = (size_t)cases[i].bits; /* bytes of eight numbers */
    char header[200], part[100];
    snprintf(header, sizeof header,
             "{\"a\":{\"dtype\":\"%s\",\"shape\":[1,1,2,1,1,2,1,2],\"data_offsets\":[0,%zu]}}", cases[i].name,
             n);
    Buffer bytes = make_file(header, strlen(header), n);
    Safetensors file;
    Error err = {{0}};
    void *copy;
    if (parse(bytes.data, bytes.size, &file, &copy, &err) != STATUS_OK) fail_msg("%s", err.text);
    const StoredTensor *a = safetensors_find(&file, "a");
    assert_true(a->bytes == n && a->dtype == cases[i].dtype && a->rank == 8 && a->shape[7] == 2);
    assert_string_equal(a->dtype_name, cases[i].name);
    if (a->dtype != DTYPE_OTHER) {
      assert_int_equal(dtype_bytes(a->dtype) * 8, n);
      assert_string_equal(dtype_name(a->dtype), cases[i].name);
    }
    safetensors_close(&file);
    free(copy);
    buffer_release(&bytes);
    snprintf(header, sizeof header, "{\"a\":{\"dtype\":\"%s\",\"shape\":[8],\"data_offsets\":[0,%zu]}}",
             cases[i].name, n + 1);
    snprintf(part, sizeof part, "tensor a has %zu bytes, expected %zu bytes for %s [8]", n + 1, n,
             cases[i].name);
    header_refused(header, n + 1, part, NULL);
  }
  assert_int_equal(dtype_bytes(DTYPE_OTHER), 0);
}

static void reads_a_file_without_tensors(void **state) {
  Buffer bytes = make_file("{}", 2, 0);
  Safetensors file;
  void *copy;
  assert_int_equal(parse(bytes.data, bytes.size, &file, &copy, NULL), STATUS_OK);
  assert_int_equal(file.n_tensors, 0);
  assert_null(safetensors_find(&file, "a"));
  safetensors_close(&file);
  free(copy);
  buffer_release(&bytes);
}

static void refuses_lying_lengths(void **state) {
  static const char fine[] = "{" F16_PAIR("a", "0", "4") "}";
  Buffer bytes = make_file(fine, sizeof fine - 1, 4);
  bytes_refused(NULL, 0, "0 bytes, expected at least the 8", NULL);
  bytes_refused(bytes.data, 7, "7 bytes, expected at least the 8", NULL);
  bytes_refused(bytes.data, 8, "truncated: the header alone takes", "the file has 8");
  bytes_refused(bytes.data, bytes.size - 5, "truncated: the header alone takes", NULL);
  bytes_refused(bytes.data, bytes.size - 1, "tensor a has data_offsets [0, 4]", "the file's 3 bytes of data");
  buffer_append(&bytes, "x", 1, NULL);
  bytes_refused(bytes.data, bytes.size, "1 bytes at the end belong to no tensor", NULL);
  memset(bytes.data, 0xff, 8);
  bytes_refused(bytes.data, bytes.size, "header's length is 18446744073709551615, expected at most 100000000",
                NULL);
  memcpy(bytes.data, "\x01\xe1\xf5\x05\0\0\0\0", 8); /* 100,000,001 */
  bytes_refused(bytes.data, bytes.size, "header's length is 100000001", NULL);
  memcpy(bytes.data, "\x00\xe1\xf5\x05\0\0\0\0", 8);
  bytes_refused(bytes.data, bytes.size, "truncated: the header alone takes 100000008 bytes", NULL);
  memset(bytes.data, 0, 8);
  bytes_refused(bytes.data, bytes.size, "x.safetensors", NULL); /* an empty header is no JSON */
  buffer_release(&bytes);
  static const char pointer[] = "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 12345\n";
  bytes_refused(pointer, sizeof pointer - 1, "Git LFS pointer", "git lfs pull");
}

/* Every proper prefix of a file is refused. */
static void refuses_every_truncation(void **state) {
  static const char fine[] = "{" F16_PAIR("a", "0", "4") "," F16_PAIR("b", "4", "8") "}";
  Buffer bytes = make_file(fine, sizeof fine - 1, 8);
  for (size_t size = 0; size < bytes.size; size++) bytes_refused(bytes.data, size, "x.safetensors", NULL);
  buffer_release(&bytes);
}

static void refuses_bad_json(void **state) {
  header_refused("", 0, "x.safetensors", NULL);
  header_refused("[]", 0, "the header does not begin with '{'", NULL);
  header_refused(" {}", 0, "the header does not begin with '{'", NULL);
  header_refused("{} x", 0, "x.safetensors", NULL);
  header_refused("{\"a\":}", 0, "x.safetensors", NULL);
  header_refused("{" F16_PAIR("a", "0", "4") "," F16_PAIR("a", "0", "4") "}", 4, "duplicate key", NULL);
  header_refused("{" F16_PAIR("a", "0", "4") "," F16_PAIR("\\u0061", "0", "4") "}", 4, "duplicate key", NULL);
  header_refused("{" F16_PAIR("a\\u0000b", "0", "4") "}", 4, "the name of tensor a goes on after a NUL",
                 NULL);
  header_refused("{" F16_PAIR("\xff", "0", "4") "}", 4, "x.safetensors", NULL);
  header_refused("{\"__metadata__\":[]}", 0, "__metadata__ is [], expected an object", NULL);
  header_refused("{\"__metadata__\":{\"a\":1}}", 0, "__metadata__ holds 1, expected strings", NULL);
}

static void refuses_bad_entries(void **state) {
  header_refused("{\"a\":1}", 0, "tensor a: its entry is 1, expected an object", NULL);
  header_refused("{\"a\":{\"shape\":[2],\"data_offsets\":[0,4]}}", 4, "tensor a: dtype is missing", NULL);
  header_refused("{\"a\":{\"dtype\":\"F16\",\"data_offsets\":[0,4]}}", 4, "tensor a: shape is missing", NULL);
  header_refused("{\"a\":{\"dtype\":\"F16\",\"shape\":[2]}}", 4, "tensor a: data_offsets is missing", NULL);
  header_refused("{\"a\":{\"dtype\":1,\"shape\":[2],\"data_offsets\":[0,4]}}", 4,
                 "tensor a: dtype is 1, expected \"F16\", \"I32\" or another of the format", NULL);
  header_refused("{\"a\":{\"dtype\":\"f16\",\"shape\":[2],\"data_offsets\":[0,4]}}", 4,
                 "tensor a: dtype is \"f16\", expected \"F16\", \"I32\"", NULL);
  header_refused("{\"a\":{\"dtype\":\"F16\",\"shape\":[2],\"data_offsets\":[0]}}", 4,
                 "tensor a: data_offsets is [0], expected two numbers", NULL);
  header_refused("{\"a\":{\"dtype\":\"F16\",\"shape\":[2],\"data_offsets\":[]}}", 4,
                 "tensor a: data_offsets is [], expected two numbers", NULL);
  header_refused("{\"a\":{\"dtype\":\"F16\",\"shape\":[2],\"data_offsets\":[0,4,4]}}", 4,
                 "tensor a: data_offsets is", "expected an array of up to 2 whole numbers");
  static const char *const shapes[] = {
      "2",    "[-2]", "[1.5]", "[\"2\"]", "[1e30]", "[1,1,1,1,1,1,1,1,2]", "[9223372036854775808]",
      "null", "{}"};
  for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
    char header[200], message[200];
    snprintf(message, sizeof message, "tensor a: shape is %s, expected an array of up to 8 whole numbers",
             strcmp(shapes[i], "{}") == 0 ? "an object" : shapes[i]);
    snprintf(header, sizeof header, "{\"a\":{\"dtype\":\"F16\",\"shape\":%s,\"data_offsets\":[0,4]}}",
             shapes[i]);
    header_refused(header, 4, message, NULL);
    snprintf(header, sizeof header, "{\"a\":{\"dtype\":\"F16\",\"shape\":[2],\"data_offsets\":%s}}",
             shapes[i]);
    header_refused(header, 4, "tensor a: data_offsets is", NULL);
  }
}

static void refuses_sizes_that_do_not_agree(void **state) {
  header_refused("{" F16_PAIR("a", "0", "3") "}", 3, "tensor a has 3 bytes, expected 4 bytes for F16 [2]",
                 NULL);
  header_refused("{" F16_PAIR("a", "4", "0") "}", 4, "tensor a has data_offsets [4, 0]", NULL);
  header_refused("{" F16_PAIR("a", "0", "9223372036854775807") "}", 4,
                 "data_offsets [0, 9223372036854775807]", NULL);
  header_refused("{\"a\":{\"dtype\":\"F4\",\"shape\":[3],\"data_offsets\":[0,2]}}", 2, "expected 12 bits",
                 NULL);
  header_refused("{\"a\":{\"dtype\":\"F4\",\"shape\":[3],\"data_offsets\":[0,1]}}", 1,
                 "tensor a has 1 bytes, expected 12 bits for F4 [3]", NULL);
  /* 2^32 * 2^32 * 16 bits is 0 modulo 2^64, and 2^61 * 16 is as well. */
  header_refused("{\"a\":{\"dtype\":\"F16\",\"shape\":[4294967296,4294967296],\"data_offsets\":[0,0]}}", 0,
                 "expected more than the file could hold for F16 [4294967296, 4294967296]", NULL);
  header_refused("{\"a\":{\"dtype\":\"F16\",\"shape\":[2305843009213693952],\"data_offsets\":[0,0]}}", 0,
                 "expected more than the file could hold", NULL);
}

static void refuses_holes_and_overlaps(void **state) {
  header_refused("{" F16_PAIR("a", "2", "6") "}", 6, "a hole of 2 bytes between the header and tensor a",
                 NULL);
  header_refused("{" F16_PAIR("a", "0", "4") "," F16_PAIR("b", "5", "9") "}", 9,
                 "a hole of 1 bytes between a and tensor b", NULL);
  header_refused("{" F16_PAIR("b", "3", "7") "," F16_PAIR("a", "0", "4") "}", 7,
                 "tensors a and b overlap by 1 bytes", NULL);
  header_refused("{" F16_PAIR("b", "0", "4") "," F16_PAIR("a", "0", "4") "}", 4, "overlap by 4 bytes", NULL);
}

static void refuses_what_is_no_file(void **state) {
  Safetensors file;
  Error err = {{0}};
  char *directory = make_directory();
  assert_int_equal(safetensors_open(directory, &file, &err), STATUS_MODEL);
  assert_contains(err.text, "is a directory");
  safetensors_close(&file);
  assert_int_equal(safetensors_open(in_directory(directory, "none"), &file, &err), STATUS_MODEL);
  assert_contains(err.text, "No such file");
  safetensors_close(&file);
  write_file(directory, "empty", "", 0);
  assert_int_equal(safetensors_open(in_directory(directory, "empty"), &file, &err), STATUS_MODEL);
  assert_contains(err.text, "0 bytes, expected at least");
  safetensors_close(&file);
  remove_directory(directory);
}

/* 100,000 tensors, in reverse order of their names, with long common prefixes: far more than any model has.
 * It takes 42 ms (2026-11-20, one core of an AMD EPYC Zen 5); an index of quadratic cost would take
 * minutes. */
static void loads_a_large_header_quickly(void **state) {
  enum { N = 100000 };
  Buffer header = {0};
  buffer_append_string(&header, "{", NULL);
  for (int i = 0; i < N; i++)
    buffer_printf(&header, NULL,
                  "%s\"model.layers.%06d.mlp.experts.weight\":{\"dtype\":\"U8\",\"shape\":[1],"
                  "\"data_offsets\":[%d,%d]}",
                  i ? "," : "", N - i, i, i + 1);
  buffer_append_string(&header, "}", NULL);
  Buffer bytes = make_file(header.data, header.size, N);
  struct timespec start, end;
  Safetensors file;
  Error err = {{0}};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &start);
  if (safetensors_parse("x", bytes.data, bytes.size, &file, &err) != STATUS_OK) fail_msg("%s", err.text);
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &end);
  double seconds = (double)(end.tv_sec - start.tv_sec) + (double)(end.tv_nsec - start.tv_nsec) * 1e-9;
  print_message("100000 tensors in %.0f ms\n", seconds * 1e3);
  assert_true(seconds < 10);
  for (int i = 0; i < N; i += 997) {
    char name[64];
    snprintf(name, sizeof name, "model.layers.%06d.mlp.experts.weight", N - i);
    const StoredTensor *tensor = safetensors_find(&file, name);
    assert_non_null(tensor);
    assert_ptr_equal(tensor->data, (unsigned char *)bytes.data + bytes.size - N + i);
  }
  safetensors_close(&file);
  buffer_release(&bytes);
  buffer_release(&header);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(reads_tensors),
      cmocka_unit_test(every_dtype_has_its_size),
      cmocka_unit_test(reads_a_file_without_tensors),
      cmocka_unit_test(refuses_lying_lengths),
      cmocka_unit_test(refuses_every_truncation),
      cmocka_unit_test(refuses_bad_json),
      cmocka_unit_test(refuses_bad_entries),
      cmocka_unit_test(refuses_sizes_that_do_not_agree),
      cmocka_unit_test(refuses_holes_and_overlaps),
      cmocka_unit_test(refuses_what_is_no_file),
      cmocka_unit_test(loads_a_large_header_quickly),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
