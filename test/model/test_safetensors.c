/* test_safetensors.c - the header of a .safetensors file: what is taken, and the message of everything that
 * is not. Reference: huggingface/safetensors, safetensors/src/tensor.rs (Metadata::validate and its
 * tests). */
#include "test/tests.h"
#include "test/transcript.h"
#include "tiny_checkpoint.h"

#include <sys/mman.h>
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

/* test/data/transcripts/safetensors: a line is the number of bytes of data and a header; below it are the
 * tensors or why it is refused. */
static void write_headers(const char *old, FILE *out) {
  char line[TRANSCRIPT_LINE];
  while (transcript_next_line(&old, line)) {
    if (*line == ' ') continue;
    fprintf(out, "%s\n", line);
    if (*line == '#') continue;
    char *header;
    const size_t n = strtoul(line, &header, 10);
    header += *header == ' ';
    Buffer bytes = make_file(header, strlen(header), n);
    Safetensors file;
    Error err = {{0}};
    void *copy;
    const Status status = parse(bytes.data, bytes.size, &file, &copy, &err);
    if (status != STATUS_OK) fprintf(out, "    status %d: %s\n", status, err.text);
    for (size_t i = 0; status == STATUS_OK && i < file.n_tensors; i++) {
      const StoredTensor *t = &file.tensors[i];
      fprintf(out, "    %s: %s [", t->name, t->dtype_name);
      for (int d = 0; d < t->rank; d++) fprintf(out, "%s%lld", d ? ", " : "", (long long)t->shape[d]);
      fprintf(out, "], %zu bytes", t->bytes);
      fprintf(out, t->bytes ? ", the first is %d\n" : "\n", t->data[0]);
      assert_ptr_equal(safetensors_find(&file, t->name), t);
    }
    if (status == STATUS_OK && file.n_tensors == 0) fprintf(out, "    no tensors\n");
    safetensors_close(&file);
    free(copy);
    buffer_release(&bytes);
  }
}

TEST(headers_are_read_as_their_transcript_says) {
  check_transcripts("test/data/transcripts/safetensors", write_headers);
}

TEST(a_name_is_not_found_in_others) {
  static const char header[] = "{" F16_PAIR("a.weight", "0", "4") "}";
  Buffer bytes = make_file(header, sizeof header - 1, 4);
  Safetensors file;
  void *copy;
  assert_int_equal(parse(bytes.data, bytes.size, &file, &copy, NULL), STATUS_OK);
  assert_null(safetensors_find(&file, "a"));
  assert_null(safetensors_find(&file, ""));
  safetensors_close(&file);
  free(copy);
  buffer_release(&bytes);
}

/* Bits of a number of each dtype, as the reference implementation has them. */
TEST(every_dtype_has_its_size) {
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

TEST(refuses_lying_lengths) {
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
TEST(refuses_every_truncation) {
  static const char fine[] = "{" F16_PAIR("a", "0", "4") "," F16_PAIR("b", "4", "8") "}";
  Buffer bytes = make_file(fine, sizeof fine - 1, 8);
  for (size_t size = 0; size < bytes.size; size++) bytes_refused(bytes.data, size, "x.safetensors", NULL);
  buffer_release(&bytes);
}

TEST(refuses_a_name_that_is_not_utf8) {
  header_refused("{" F16_PAIR("\xff", "0", "4") "}", 4, "x.safetensors", NULL);
}

TEST(refuses_what_is_no_file) {
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

TEST(a_closed_file_is_no_longer_mapped) {
  Safetensors file;
  Error err = {{0}};
  char *directory = make_directory();
  Buffer bytes = make_file("{}", 2, 0);
  write_file(directory, "x", bytes.data, bytes.size);
  assert_int_equal(safetensors_open(in_directory(directory, "x"), &file, &err), STATUS_OK);
  void *page = (void *)file.file.data;
  assert_int_equal(msync(page, 1, MS_ASYNC), 0);
  safetensors_close(&file);
  assert_int_equal(msync(page, 1, MS_ASYNC), -1);
  buffer_release(&bytes);
  remove_directory(directory);
}

/* 100,000 tensors, in reverse order of their names, with long common prefixes: far more than any model has.
 * It takes 42 ms (2026-11-20, one core of an AMD EPYC Zen 5); an index of quadratic cost would take
 * minutes. */
TEST(loads_a_large_header_quickly) {
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
