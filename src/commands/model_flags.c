/* model_flags.c - see model_flags.h. */
#include "commands/model_flags.h"

#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "commands/common.h"
#include "commands/models/decimal.h"
#include "commands/models/hub.h"
#include "commands/models/known_names.h"

const Flag model_flags[] = {
    FLAG_MODEL(
        "-m, --model", ModelFlags, path, usual,
        "a Hugging Face directory, a packed file, a name in Hugging Face's cache such as Qwen/Qwen3-8B-AWQ, "
        "or a section of the settings file (default: m in that file, else $AUK_MODEL)"),
    FLAG_FILE("--tokenizer", "FILE", ModelFlags, overrides.tokenizer,
              "a tokenizer.json in place of the model's own"),
    FLAG_DOUBLE("--rope-theta", "X", ModelFlags, overrides.rope_theta, 1, 1e12,
                "for a packed file, whose header does not hold it"),
    FLAG_DOUBLE("--norm-eps", "X", ModelFlags, overrides.norm_eps, 1e-12, 1,
                "for a packed file, whose header does not hold it"),
};

static Status find_name(ModelPlace *place, Error *err) {
  static const char config[] = "/config.json";
  const bool is_cached = strcmp(place->given, place->path) != 0;
  char *whole = is_cached ? NULL : realpath(place->path, NULL); /* resolves "." and symbolic links */
  char *slash = whole ? strrchr(whole, '/') : NULL;
  if (slash && strcmp(slash, config) == 0 && strchr(place->path, '/')) {
    *slash = 0;
    slash = strrchr(whole, '/');
  }
  const char *last = slash && slash[1] ? slash + 1 : place->given;
  place->name = path_join("", last, err); /* a copy */
  free(whole);
  return place->name ? STATUS_OK : STATUS_FAILED;
}

Status model_place_find(const ModelFlags *values, ModelPlace *place, Error *err) {
  const char *given = values->path ? values->path : values->usual ? values->usual : getenv("AUK_MODEL");
  if (!given || !*given)
    return error_set(
        err, STATUS_USAGE,
        "no model: give -m MODEL or set AUK_MODEL (auk models lists those that are here, auk get names "
        "one for each size of memory, auk --help shows how to begin)");
  TRY(known_name(given, &place->given, err));
  TRY(hub_find(place->given, &place->path, err));
  return find_name(place, err);
}

void model_place_release(ModelPlace *place) {
  free(place->given);
  free(place->path);
  free(place->name);
}

char *model_place_lasting(const ModelPlace *place, Error *err) {
  char *whole = strcmp(place->given, place->path) == 0 ? realpath(place->path, NULL) : NULL;
  return whole ? whole : path_join("", place->given, err);
}

bool model_is_same(const char *one, const char *other) {
  const ModelFlags names[] = {{.path = one}, {.path = other}};
  char *paths[2] = {NULL};
  for (int i = 0; i < 2; i++) {
    ModelPlace place = {0};
    if (model_place_find(&names[i], &place, NULL) == STATUS_OK) paths[i] = realpath(place.path, NULL);
    model_place_release(&place);
  }
  const bool same = paths[0] && paths[1] && strcmp(paths[0], paths[1]) == 0;
  free(paths[0]);
  free(paths[1]);
  return same;
}

bool model_is_there(const char *name) {
  const ModelFlags values = {.path = name};
  ModelPlace place = {0};
  bool packed = false, there = false;
  if (model_place_find(&values, &place, NULL) == STATUS_OK)
    there = file_is_directory(place.path) || (ak48_is(place.path, &packed, NULL) == STATUS_OK && packed);
  model_place_release(&place);
  return there;
}

Status model_place_check(const ModelPlace *place, Error *err) {
  if (strcmp(place->given, place->path) == 0) TRY(known_name_suggest(place->given, err));
  return hub_check_found(place->given, place->path, err);
}

Status model_place_open(const ModelPlace *place, const ModelFlags *values, Model **model, Error *err) {
  TRY(model_place_check(place, err));
  TRY(hub_check(place->given, place->path, err));
  return model_open(place->path, &values->overrides, model, err);
}

Status model_place_open_known(const ModelPlace *place, const ModelFlags *values, Model **model, Error *err) {
  TRY(model_place_open(place, values, model, err));
  TRY(model_check_known(*model, err));
  if (!(*model)->assumed) return STATUS_OK;
  const ModelConfig *config = &(*model)->config;
  print_note("%s: no config.json beside it: rope_theta %s (%s) and epsilon %s (%s); --rope-theta and "
             "--norm-eps set them",
             model_path(*model), decimal(config->rope.theta).text, (*model)->theta_source,
             decimal(config->norm_eps).text, (*model)->eps_source);
  return STATUS_OK;
}

Status model_tokenizer_check(const Model *model, const char *model_path, Error *err) {
  if (model->tokenizer_path) return STATUS_OK;
  return error_set(err, STATUS_MODEL, "%s: no tokenizer.json %s it (--tokenizer FILE names one)", model_path,
                   model->layout == LAYOUT_HF_DIRECTORY ? "in" : "beside");
}

Status model_tokenizer_open(const Model *model, const char *model_path, Tokenizer **tokenizer, Error *err) {
  TRY(model_tokenizer_check(model, model_path, err));
  return tokenizer_open(model->tokenizer_path, tokenizer, err);
}

Status ids_check(const Model *model, const int32_t *ids, size_t n, const char *source, IdSource from,
                 Error *err) {
  const int n_known = model->config.vocab_size;
  size_t i = 0;
  while (i < n && ids[i] >= 0 && ids[i] < n_known) i++;
  if (i == n) return STATUS_OK;
  return error_set(err, from == IDS_GIVEN ? STATUS_USAGE : STATUS_MODEL,
                   "%s: token %zu has id %d, expected one below %d, the model's vocabulary%s", source, i,
                   (int)ids[i], n_known, from == IDS_GIVEN ? "" : ": is this the model's own tokenizer?");
}

/* --- a tokenizer alone */

/* Opens the tokenizer.json in `directory`, or refuses with advice if it is missing. */
static Status open_in(const char *directory, Tokenizer **tokenizer, Error *err) {
  OWNED(mem_release) char *path = path_join(directory, "tokenizer.json", err);
  if (!path) return STATUS_FAILED;
  TRY(file_is_named(path) ? tokenizer_open(path, tokenizer, err) : other_tokenizer_refuse(directory, err));
  if (!*tokenizer) return error_set(err, STATUS_MODEL, "no %s (--tokenizer FILE names one)", path);
  return STATUS_OK;
}

static Status open_tokenizer_of(const char *path, Tokenizer **tokenizer, Error *err) {
  if (file_is_directory(path)) return open_in(path, tokenizer, err);
  bool packed;
  TRY(ak48_is(path, &packed, err));
  if (!packed) return tokenizer_open(path, tokenizer, err);
  OWNED(mem_release)
  char *directory = path_directory(path, err); /* tokenizer.json is beside the packed file */
  return directory ? open_in(directory, tokenizer, err) : STATUS_FAILED;
}

Status tokenizer_place_open(const ModelFlags *values, Tokenizer **tokenizer, Error *err) {
  if (values->overrides.tokenizer) return tokenizer_open(values->overrides.tokenizer, tokenizer, err);
  OWNED(model_place_release) ModelPlace place = {0};
  TRY(model_place_find(values, &place, err));
  TRY(model_place_check(&place, err));
  return open_tokenizer_of(place.path, tokenizer, err);
}
