/* fuzz_checkpoint.c - a hostile directory: whatever config and weights say of each other, it is refused, or
 * every layer has all the numbers that it says it has.
 *
 * The input is a config.json, a NUL, the header of a safetensors file, a NUL, and what its data hold beside
 * zeros: six bytes a number, where it is (u32) and what (u16, written as an I64 is). So most of an input is
 * text, and nothing has to fit before it is changed. The data are as long as the header says, up to 1 MB.
 * The corpus holds a checkpoint of each layout (scripts/make_fuzz_seeds.py). */
#include "memory_files.h"

#include "model/layers.h"
#include "model/model.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { MOST_DATA = 1 << 20 };

/* The largest second number of a data_offsets in the header. */
static size_t data_size(const char *header, size_t size) {
  static const char key[] = "\"data_offsets\":[";
  size_t largest = 0;
  const char *at = header, *end = header + size;
  while ((at = memmem(at, (size_t)(end - at), key, sizeof key - 1))) {
    at += sizeof key - 1;
    size_t numbers[2] = {0, 0}, which = 0;
    for (; at < end && *at != ']'; at++) {
      if (*at == ',' && ++which > 1) break;
      if (*at >= '0' && *at <= '9' && numbers[which] <= MOST_DATA)
        numbers[which] = numbers[which] * 10 + (size_t)(*at - '0');
    }
    if (numbers[1] <= MOST_DATA && numbers[1] > largest) largest = numbers[1];
  }
  return largest;
}

static void write_weights(const char *header, size_t header_size, const uint8_t *numbers, size_t n) {
  size_t behind = 8 + header_size, size = behind + data_size(header, header_size);
  uint8_t *file = calloc(1, size);
  require(file != NULL);
  for (int i = 0; i < 8; i++) file[i] = (uint8_t)((uint64_t)header_size >> 8 * i);
  memcpy(file + 8, header, header_size);
  for (; n >= 6; n -= 6, numbers += 6) {
    uint32_t at;
    memcpy(&at, numbers, 4);
    uint64_t value = numbers[4] | (uint64_t)numbers[5] << 8;
    if (at <= size - behind && size - behind - at >= 8) memcpy(file + behind + at, &value, 8);
  }
  memory_file(1, "model.safetensors", file, size);
  free(file);
}

static unsigned sum; /* so that reading is not left out */

static void read_all(const void *data, size_t bytes) {
  const uint8_t *at = data;
  for (size_t i = 0; i < bytes; i++) sum += at[i];
}

static void read_vector(const Vector *vector) {
  if (vector->data) read_all(vector->data, (size_t)vector->n * dtype_bytes(vector->dtype));
}

/* Rows of `bytes` bytes that are `apart` apart. */
static void read_rows(const void *data, size_t n, size_t bytes, size_t apart) {
  for (size_t i = 0; i < n; i++) read_all((const uint8_t *)data + i * apart, bytes);
}

static void read_linear(const Linear *linear) {
  read_vector(&linear->bias);
  if (linear->kind == LINEAR_FP8)
    require(linear->block > 0 && linear->block_first < linear->block && linear->group > 0);
  if (linear->kind == LINEAR_FP4)
    require((linear->group == 16 || linear->group == 32) && linear->n_in % linear->group == 0);
  if (linear_is_by_inputs(linear))
    require(linear->group > 0 && linear->n_in % linear->group == 0 && linear->n_out % 8 == 0 &&
            linear->skip % 8 == 0);
  for (int which = 0; which < N_LINEAR_ARRAYS; which++) {
    const LinearArray a = linear_array(linear, which);
    read_rows(*a.data, a.n_rows, a.row, a.step);
  }
  if (linear->kind == LINEAR_FP4) read_all(linear->scale_values, 256 * 4);
}

static void read_model(Model *model) {
  const Matrix *embedding = &model->embedding;
  read_all(embedding->data,
           (size_t)embedding->n_rows * (size_t)embedding->n_columns * dtype_bytes(embedding->dtype));
  for (int i = 0; i < model->config.n_layers; i++) {
    for (int which = 0; which < layer_linear_count(&model->config, i); which++)
      read_linear(layer_linear(&model->layers[i], which));
    for (int which = 0; which < N_LAYER_VECTORS; which++) read_vector(&model->layers[i].vector[which]);
  }
  read_vector(&model->final_norm);
  read_vector(&model->final_norm_bias);
  read_linear(&model->head);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  const uint8_t *end = data + size, *header = size ? memchr(data, 0, size) : NULL;
  const uint8_t *numbers = header ? memchr(header + 1, 0, (size_t)(end - header - 1)) : NULL;
  if (!numbers) return 0;
  memory_file(0, "config.json", data, (size_t)(header - data));
  write_weights((const char *)header + 1, (size_t)(numbers - header - 1), numbers + 1,
                (size_t)(end - numbers - 1));
  Model *model;
  Error err = {{0}};
  Status status = model_open(memory_directory, NULL, &model, &err);
  if (status == STATUS_OK) status = model_prepare(model, 1, &err);
  if (status == STATUS_OK)
    read_model(model);
  else
    require(status == STATUS_MODEL && err.text[0]);
  model_close(model);
  return 0;
}
