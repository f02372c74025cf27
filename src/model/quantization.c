/* quantization.c - see quantization.h. Called by: config.c.   Calls: config_reader.c. */
#include "model/quantization.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/file.h"

static Status parse_dense_modules(const Reader *r, ModelConfig *config) {
  const Json *list = json_member(r->object, "modules_to_not_convert");
  if (!list) return STATUS_OK;
  if (!json_is_array(list)) return reader_refuse(r, "modules_to_not_convert is no list");
  config->dense_modules =
      mem_alloc(json_count(list), sizeof *config->dense_modules, "names of modules", r->err);
  if (!config->dense_modules) return STATUS_FAILED;
  for (const Json *item = json_first(list); item; item = json_next(item)) {
    if (!json_is_string(item)) return reader_refuse(r, "modules_to_not_convert holds what is no name");
    size_t size;
    const char *name = json_string(item, &size);
    char *copy = mem_alloc(size + 1, 1, "the name of a module", r->err);
    if (!copy) return STATUS_FAILED;
    config->dense_modules[config->n_dense_modules++] = memcpy(copy, name, size);
  }
  return STATUS_OK;
}

/* Of the two spellings of a size, transformers' and old AutoAWQ's, the one that is given. */
static Status get_either(const Reader *r, const char *key, const char *old_key, int64_t low, int64_t high,
                         int fallback, int *out) {
  return reader_int(r, json_member(r->object, key) ? key : old_key, low, high, fallback, out);
}

/* The arrangement of packed weights, under its three names. */
static Status check_awq_layout(const Reader *r) {
  static const char *const keys[] = {"version", "format", "backend"};
  for (int i = 0; i < 3; i++) {
    const char *layout;
    TRY(reader_string(r, keys[i], &layout));
    if (!layout || strcasecmp(layout, "gemm") == 0) continue;
    if (i == 2 && strcmp(layout, "llm-awq") != 0)
      continue; /* other backends say what shall compute, not what is stored */
    return reader_refuse(
        r,
        "AWQ layout %s is not supported, expected gemm: save the model again with AutoAWQ and "
        "\"version\": \"GEMM\"",
        layout);
  }
  return STATUS_OK;
}

Status quantization_parse(const Reader *r, bool own_file, ModelConfig *config) {
  const char *method;
  TRY(reader_string(r, "quant_method", &method));
  if (!method && !own_file) return reader_refuse(r, "quant_method is missing, expected awq");
  if (method && strcmp(method, "awq") != 0)
    return reader_refuse(r, "quantisation method %s is not supported, expected awq", method);
  TRY(check_awq_layout(r));
  TRY(get_either(r, "bits", "w_bit", 1, 64, 4, &config->quant_bits));
  if (config->quant_bits != 4)
    return reader_refuse(r, "AWQ of %d bits is not supported, expected 4", config->quant_bits);
  TRY(get_either(r, "group_size", "q_group_size", -1, MAX_INTERMEDIATE, 128, &config->quant_group));
  if (config->quant_group == 0) return reader_refuse(r, "group_size is 0, expected -1 or more than 0");
  bool zero_point;
  TRY(reader_bool(r, "zero_point", true, &zero_point));
  if (!zero_point)
    return reader_refuse(r, "AWQ without zero points is not supported, expected zero_point true");
  config->quant = QUANT_AWQ;
  return parse_dense_modules(r, config);
}

void quantization_release(ModelConfig *config) {
  for (int i = 0; i < config->n_dense_modules; i++) free(config->dense_modules[i]);
  free(config->dense_modules);
}
