/* safetensors.c - validates a .safetensors header against its file.
 *
 * Always true of an opened file: every tensor's data lies inside the file, its bytes are the product of its
 * shape and dtype, the tensors cover the data exactly once, names are unique. Names are found by a sorted
 * index: unlike a hash table it cannot be attacked with colliding names. */
#include "model/files/safetensors.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"

#define MAX_HEADER 100000000 /* bytes; the reference implementation's own limit */

typedef struct {
  Safetensors *file;
  const unsigned char *data; /* [data_size] after the header */
  uint64_t data_size;
  size_t capacity;  /* capacity of file->tensors */
  char *names_end;  /* where the next name goes in file->names */
  Buffer word;      /* the string being read */
  const char *name; /* name of the tensor being read */
  Error *err;
} HeaderReader;

static Status refuse_value(HeaderReader *reader, JsonCursor at, const char *what, const char *expected) {
  char found[64];
  return error_set(reader->err, STATUS_MODEL, "%s: tensor %s: %s is %s, expected %s", reader->file->file.path,
                   reader->name, what, json_cursor_describe(at, found), expected);
}

/* Reads the string at the cursor, NUL-terminated, into reader->word. */
static Status read_string(HeaderReader *reader, JsonCursor *cursor, bool *is_string) {
  reader->word.size = 0;
  TRY(json_cursor_string(cursor, &reader->word, is_string, reader->err));
  return buffer_append(&reader->word, "", 1, reader->err);
}

static Status read_dtype(HeaderReader *reader, JsonCursor *cursor, StoredTensor *tensor, int *bits) {
  const JsonCursor at = *cursor;
  bool is_string;
  TRY(read_string(reader, cursor, &is_string));
  if (is_string && (*bits = dtype_find(reader->word.data, tensor)) > 0) return STATUS_OK;
  return refuse_value(reader, at, "dtype", "\"F16\", \"I32\" or another of the format");
}

/* Reads an array of at most `max` integers >= 0. */
static Status read_sizes(HeaderReader *reader, JsonCursor *cursor, const char *what, int max, int64_t *sizes,
                         int *n) {
  const JsonCursor at = *cursor;
  char expected[64];
  *n = 0;
  if (json_cursor_enter(cursor, '[')) {
    bool first = true;
    while (json_cursor_next(cursor, &first)) {
      if (*n == max || !json_cursor_int64(cursor, &sizes[*n]) || sizes[*n] < 0) goto bad;
      ++*n;
    }
    return STATUS_OK;
  }
bad:
  snprintf(expected, sizeof expected, "an array of up to %d whole numbers from 0 on", max);
  return refuse_value(reader, at, what, expected);
}

/* Sets the tensor's data after checking that offsets lie in the file and agree with dtype and shape. */
static Status place_tensor(HeaderReader *reader, StoredTensor *tensor, int bits, const int64_t offsets[2]) {
  const char *path = reader->file->file.path;
  uint64_t begin = (uint64_t)offsets[0], end = (uint64_t)offsets[1];
  if (begin > end || end > reader->data_size)
    return error_set(reader->err, STATUS_MODEL,
                     "%s: tensor %s has data_offsets [%" PRIu64 ", %" PRIu64 "], expected a range inside the "
                     "file's %" PRIu64 " bytes of data",
                     path, reader->name, begin, end, reader->data_size);
  uint64_t total_bits = (uint64_t)bits;
  bool overflow = false, empty = false;
  for (int i = 0; i < tensor->rank; i++) {
    if (tensor->shape[i] == 0) empty = true;
    overflow |= __builtin_mul_overflow(total_bits, (uint64_t)tensor->shape[i], &total_bits);
  }
  if (empty) { /* the product is 0, even if factors before the 0 overflowed */
    total_bits = 0;
    overflow = false;
  }
  if (overflow || total_bits % 8 != 0 || total_bits / 8 != end - begin) {
    char expected[48] = "more than the file could hold";
    if (!overflow) snprintf(expected, sizeof expected, "%" PRIu64 " bits", total_bits);
    if (!overflow && total_bits % 8 == 0)
      snprintf(expected, sizeof expected, "%" PRIu64 " bytes", total_bits / 8);
    return error_set(reader->err, STATUS_MODEL, "%s: tensor %s has %" PRIu64 " bytes, expected %s for %s %s",
                     path, reader->name, end - begin, expected, tensor->dtype_name,
                     shape_text(tensor->rank, tensor->shape).text);
  }
  tensor->data = reader->data + begin;
  tensor->bytes = (size_t)(end - begin);
  return STATUS_OK;
}

/* Reads the object of one tensor. Unknown members are ignored, as by the reference implementation. */
static Status read_tensor(HeaderReader *reader, JsonCursor *cursor, StoredTensor *tensor) {
  int bits = 0, n_offsets = 0;
  int64_t offsets[2] = {0, 0};
  if (!json_cursor_enter(cursor, '{')) return refuse_value(reader, *cursor, "its entry", "an object");
  for (bool first = true; json_cursor_next(cursor, &first);) {
    bool is_string;
    TRY(read_string(reader, cursor, &is_string));
    if (strcmp(reader->word.data, "dtype") == 0) {
      TRY(read_dtype(reader, cursor, tensor, &bits));
    } else if (strcmp(reader->word.data, "shape") == 0) {
      TRY(read_sizes(reader, cursor, "shape", MAX_RANK, tensor->shape, &tensor->rank));
    } else if (strcmp(reader->word.data, "data_offsets") == 0) {
      const JsonCursor at = *cursor;
      TRY(read_sizes(reader, cursor, "data_offsets", 2, offsets, &n_offsets));
      if (n_offsets != 2) return refuse_value(reader, at, "data_offsets", "two numbers");
    } else {
      json_cursor_value(cursor);
    }
  }
  const char *missing = bits == 0          ? "dtype"
                        : tensor->rank < 0 ? "shape"
                        : n_offsets == 0   ? "data_offsets"
                                           : NULL;
  if (!missing) return place_tensor(reader, tensor, bits, offsets);
  return error_set(reader->err, STATUS_MODEL, "%s: tensor %s: %s is missing", reader->file->file.path,
                   reader->name, missing);
}

/* Validates "__metadata__", an object of strings, which is not used. */
static Status check_metadata(HeaderReader *reader, JsonCursor *cursor) {
  bool is_string = true;
  char found[64];
  if (!json_cursor_enter(cursor, '{'))
    return error_set(reader->err, STATUS_MODEL, "%s: __metadata__ is %s, expected an object",
                     reader->file->file.path, json_cursor_describe(*cursor, found));
  for (bool first = true; json_cursor_next(cursor, &first);) {
    TRY(read_string(reader, cursor, &is_string));
    TRY(read_string(reader, cursor, &is_string));
    if (!is_string)
      return error_set(reader->err, STATUS_MODEL, "%s: __metadata__ holds %s, expected strings",
                       reader->file->file.path, json_cursor_describe(*cursor, found));
  }
  return STATUS_OK;
}

static Status read_entry(HeaderReader *reader, JsonCursor *cursor) {
  Safetensors *file = reader->file;
  bool is_string;
  TRY(read_string(reader, cursor, &is_string));
  if (strcmp(reader->word.data, "__metadata__") == 0) return check_metadata(reader, cursor);
  if (strlen(reader->word.data) + 1 != reader->word.size)
    return error_set(reader->err, STATUS_MODEL, "%s: the name of tensor %s goes on after a NUL",
                     file->file.path, reader->word.data);
  if (file->n_tensors == UINT32_MAX)
    return error_set(reader->err, STATUS_MODEL, "%s: more than %u tensors", file->file.path, UINT32_MAX);
  TRY(mem_grow(&file->tensors, &reader->capacity, file->n_tensors + 1, sizeof *file->tensors, "tensors",
               reader->err));
  StoredTensor *tensor = &file->tensors[file->n_tensors];
  *tensor = (StoredTensor){.name = reader->names_end, .file = file->file.path, .rank = -1};
  memcpy(reader->names_end, reader->word.data, reader->word.size);
  reader->names_end += reader->word.size;
  reader->name = tensor->name;
  TRY(read_tensor(reader, cursor, tensor));
  file->n_tensors++;
  return STATUS_OK;
}

/* Walks the header's text, which json_parse() has validated. */
static Status read_header(HeaderReader *reader, JsonSpan header) {
  Safetensors *file = reader->file;
  /* header.size is enough: a name takes two quotes in the text and one NUL here. */
  TRY(NEW(file->names, header.size, "tensor names", reader->err));
  reader->names_end = file->names;
  JsonCursor cursor = json_cursor(header);
  if (cursor.at != header.text || !json_cursor_enter(&cursor, '{'))
    return error_set(reader->err, STATUS_MODEL, "%s: the header does not begin with '{'", file->file.path);
  for (bool first = true; json_cursor_next(&cursor, &first);) TRY(read_entry(reader, &cursor));
  return STATUS_OK;
}

static const StoredTensor *tensor_at(const Safetensors *file, const uint32_t *index) {
  return &file->tensors[*index];
}

static int compare_names(const void *a, const void *b, void *file) {
  return strcmp(tensor_at(file, a)->name, tensor_at(file, b)->name);
}

static int compare_places(const void *a, const void *b, void *file) {
  const StoredTensor *s = tensor_at(file, a), *t = tensor_at(file, b);
  if (s->data != t->data) return s->data < t->data ? -1 : 1;
  return s->bytes < t->bytes ? -1 : s->bytes > t->bytes;
}

/* Refuses holes between tensors, overlaps, and bytes at the end. */
static Status check_cover(HeaderReader *reader, const uint32_t *by_place) {
  const Safetensors *file = reader->file;
  const unsigned char *at = reader->data, *end = reader->data + reader->data_size;
  for (size_t i = 0; i < file->n_tensors; i++) {
    const StoredTensor *tensor = tensor_at(file, &by_place[i]);
    const char *before = i > 0 ? tensor_at(file, &by_place[i - 1])->name : "the header";
    if (tensor->data < at)
      return error_set(reader->err, STATUS_MODEL, "%s: tensors %s and %s overlap by %td bytes",
                       file->file.path, before, tensor->name, at - tensor->data);
    if (tensor->data > at)
      return error_set(reader->err, STATUS_MODEL, "%s: a hole of %td bytes between %s and tensor %s",
                       file->file.path, tensor->data - at, before, tensor->name);
    at += tensor->bytes;
  }
  if (at < end)
    return error_set(reader->err, STATUS_MODEL, "%s: %td bytes at the end belong to no tensor",
                     file->file.path, end - at);
  return STATUS_OK;
}

static Status index_tensors(HeaderReader *reader) {
  Safetensors *file = reader->file;
  size_t n = file->n_tensors;
  OWNED(mem_release) uint32_t *by_place = NULL;
  TRY(NEW(by_place, n, "tensor index", reader->err));
  TRY(NEW(file->by_name, n, "tensor index", reader->err));
  for (size_t i = 0; i < n; i++) file->by_name[i] = by_place[i] = (uint32_t)i;
  qsort_r(file->by_name, n, sizeof *file->by_name, compare_names, file);
  qsort_r(by_place, n, sizeof *by_place, compare_places, file);
  return check_cover(reader, by_place);
}

/* Reads the header's length and checks it against the size of the file. */
static Status check_length(const MappedFile *file, uint64_t *header_size, Error *err) {
  TRY(content_expect_no_pointer(file->path, file->data, file->size, err));
  if (file->size < 8)
    return error_set(err, STATUS_MODEL,
                     "%s: %zu bytes, expected at least the 8 of a safetensors header's length", file->path,
                     file->size);
  uint64_t n = 0;
  for (int i = 7; i >= 0; i--) n = n << 8 | file->data[i];
  if (n > MAX_HEADER)
    return error_set(err, STATUS_MODEL,
                     "%s: the header's length is %" PRIu64
                     ", expected at most %d (is this a safetensors file?)",
                     file->path, n, MAX_HEADER);
  if (n > file->size - 8)
    return error_set(err, STATUS_MODEL,
                     "%s: truncated: the header alone takes %" PRIu64 " bytes, the file has %zu", file->path,
                     n + 8, file->size);
  *header_size = n;
  return STATUS_OK;
}

/* PRECOND file->file is set */
static Status parse_mapped(Safetensors *file, Error *err) {
  uint64_t header_size = 0;
  TRY(check_length(&file->file, &header_size, err));
  const char *text = (const char *)file->file.data + 8;
  /* Validated only, then walked: building a tree of 100,000 tensors would dominate the time. */
  TRY(json_parse(file->file.path, STATUS_MODEL, text, header_size, NULL, 0, NULL, err));
  HeaderReader reader = {.file = file,
                         .data = file->file.data + 8 + header_size,
                         .data_size = file->file.size - 8 - header_size,
                         .err = err};
  Status status = read_header(&reader, (JsonSpan){text, header_size});
  buffer_release(&reader.word);
  if (status == STATUS_OK) status = index_tensors(&reader);
  return status;
}

Status safetensors_open(const char *path, Safetensors *file, Error *err) {
  *file = (Safetensors){0};
  TRY(file_map(path, STATUS_MODEL, &file->file, err));
  return parse_mapped(file, err);
}

Status safetensors_parse(const char *name, const void *bytes, size_t size, Safetensors *file, Error *err) {
  *file = (Safetensors){.borrowed = true};
  file->file = (MappedFile){.path = (char *)name, .data = bytes, .size = size};
  return parse_mapped(file, err);
}

void safetensors_close(Safetensors *file) {
  free(file->tensors);
  free(file->by_name);
  free(file->names);
  if (!file->borrowed) file_unmap(&file->file);
  *file = (Safetensors){0};
}

StoredTensor *safetensors_find(const Safetensors *file, const char *name) {
  size_t low = 0, high = file->n_tensors;
  while (low < high) {
    size_t middle = low + (high - low) / 2;
    StoredTensor *tensor = &file->tensors[file->by_name[middle]];
    int order = strcmp(name, tensor->name);
    if (order == 0) return tensor;
    if (order < 0)
      high = middle;
    else
      low = middle + 1;
  }
  return NULL;
}
