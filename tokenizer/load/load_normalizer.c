/* load_normalizer.c - normalizers from their JSON; unknown types are refused. Called by: load.c. */
#include "tokenizer/compose.h"

static Status load_replace(const char *where, const Json *json, Step *step, Error *err) {
  TRY(field_string(where, json, "content", &step->content, &step->content_size, err));
  TRY(pattern_load(where, json_member(json, "pattern"), &step->pattern, err));
  /* At an empty match the reference miscounts characters, and later repeats a part of the text. */
  if (pattern_matches_empty(&step->pattern))
    return error_set(err, STATUS_MODEL, "%s: a pattern that can match no character is not supported", where);
  return STATUS_OK;
}

static Status load_strip(const char *where, const Json *json, Step *step, Error *err) {
  TRY(field_bool(where, json, "strip_left", &step->left, err));
  return field_bool(where, json, "strip_right", &step->right, err);
}

static Status load_prepend(const char *where, const Json *json, Step *step, Error *err) {
  return field_string(where, json, "prepend", &step->content, &step->content_size, err);
}

static Status load_charsmap(const char *where, const Json *json, Step *step, Error *err) {
  const Json *map = json_member(json, "precompiled_charsmap");
  if (!json_is_string(map)) return field_expected(where, "precompiled_charsmap", map, "a string", err);
  size_t size;
  const char *base64 = json_string(map, &size);
  return charsmap_load(where, base64, size, step, err);
}

static Status load_form(const char *where, const Json *json, Step *step, Error *err) {
  return form_load(where, step, err);
}

static const StepType types[] = {
    {"NFC", "", NORMAL_NFC, load_form},
    {"NFD", "", NORMAL_NFD, load_form},
    {"NFKC", "", NORMAL_NFKC, load_form},
    {"NFKD", "", NORMAL_NFKD, load_form},
    {"Lowercase", "", NORMAL_LOWERCASE, NULL},
    {"Prepend", "prepend", NORMAL_PREPEND, load_prepend},
    {"Replace", "pattern content", NORMAL_REPLACE, load_replace},
    {"Strip", "strip_left strip_right", NORMAL_STRIP, load_strip},
    {"Precompiled", "precompiled_charsmap", NORMAL_CHARSMAP, load_charsmap},
    {0},
};

Status normalizer_load(const char *where, const Json *json, Steps *normalizer, Error *err) {
  return steps_load(where, json, "normalizers", "normalizers", types, normalizer, err);
}
