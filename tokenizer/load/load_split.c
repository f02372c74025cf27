/* load_split.c - pre-tokenizers from their JSON; unknown types are refused by name. */
#include <string.h>

#include "tokenizer/split.h"

/* ByteLevel's split pattern unless use_regex is false (GPT-2's encoder.py). */
static const char gpt2_pattern[] =
    "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+";

static Status load_behavior(const char *where, const Json *json, Behavior *behavior, Error *err) {
  static const char *const names[] = {"Removed", "Isolated", "MergedWithPrevious", "MergedWithNext",
                                      "Contiguous"};
  const char *name;
  TRY(json_get_string((JsonSource){where, STATUS_MODEL}, json, "behavior", &name, err));
  for (size_t i = 0; name && i < sizeof names / sizeof *names; i++) {
    if (strcmp(name, names[i]) != 0) continue;
    *behavior = (Behavior)i;
    return STATUS_OK;
  }
  return error_set(err, STATUS_MODEL,
                   "%s: behavior is %.80s, expected Removed, Isolated, MergedWithPrevious, "
                   "MergedWithNext or Contiguous",
                   where, name ? name : "missing");
}

/* Divides the characters by two flags, or by one if `second` is 0. In a character's role, bit 0 says whether
 * it has the first flag, bit 1 whether it has the second. */
static Status load_map(const char *where, uint32_t flag, uint32_t second, Step *step, Error *err) {
  const KindFlag flags[2] = {{flag, 1}, {second, 2}};
  return kind_map_flags(where, &unicode_flags, flags, &step->map, step->role, err);
}

static Status load_split(const char *where, const Json *json, Step *step, Error *err) {
  TRY(field_bool(where, json, "invert", &step->invert, err));
  TRY(load_behavior(where, json, &step->behavior, err));
  return pattern_load(where, json_member(json, "pattern"), &step->pattern, err);
}

static Status load_digits(const char *where, const Json *json, Step *step, Error *err) {
  bool individual;
  TRY(field_bool(where, json, "individual_digits", &individual, err));
  step->behavior = individual ? BEHAVIOR_ISOLATED : BEHAVIOR_CONTIGUOUS;
  return load_map(where, CHAR_NUMERIC, 0, step, err);
}

static Status load_punctuation(const char *where, const Json *json, Step *step, Error *err) {
  step->behavior = BEHAVIOR_ISOLATED;
  if (json_member(json, "behavior")) TRY(load_behavior(where, json, &step->behavior, err));
  return load_map(where, CHAR_PUNCTUATION, 0, step, err);
}

static Status load_whitespace_split(const char *where, const Json *json, Step *step, Error *err) {
  step->behavior = BEHAVIOR_REMOVED;
  return load_map(where, CHAR_SPACE, 0, step, err);
}

/* Whitespace keeps the matches of /\w+|[^\w\s]+/: runs of word characters, and of characters that are neither
 * word nor space. */
static Status load_whitespace(const char *where, const Json *json, Step *step, Error *err) {
  step->behavior = BEHAVIOR_REMOVED;
  return load_map(where, CHAR_SPACE, CHAR_RUST_WORD, step, err);
}

static Status load_metaspace(const char *where, const Json *json, Step *step, Error *err) {
  step->behavior = BEHAVIOR_MERGED_WITH_NEXT;
  TRY(metaspace_load(where, json, step, err));
  return pattern_literal(step->mark, step->mark_size, &step->pattern, err);
}

static Status load_byte_level(const char *where, const Json *json, Step *step, Error *err) {
  step->behavior = BEHAVIOR_ISOLATED;
  bool ignored, use_regex;
  TRY(field_bool(where, json, "add_prefix_space", &step->add_prefix_space, err));
  TRY(field_bool(where, json, "trim_offsets", &ignored, err));
  TRY(field_bool_or(where, json, "use_regex", true, &use_regex, err));
  if (!use_regex) return STATUS_OK;
  return regex_compile(where, gpt2_pattern, sizeof gpt2_pattern - 1, &step->pattern.regex, err);
}

static const StepType types[] = {
    {"ByteLevel", "add_prefix_space trim_offsets use_regex", SPLIT_BYTE_LEVEL, load_byte_level},
    {"Digits", "individual_digits", SPLIT_CHARACTERS, load_digits},
    {"Metaspace", NULL, SPLIT_METASPACE, load_metaspace},
    {"Punctuation", "behavior", SPLIT_CHARACTERS, load_punctuation},
    {"Split", "pattern behavior invert", SPLIT_PATTERN, load_split},
    {"Whitespace", "", SPLIT_CHARACTERS, load_whitespace},
    {"WhitespaceSplit", "", SPLIT_CHARACTERS, load_whitespace_split},
    {0},
};

Status pre_tokenizer_load(const char *where, const Json *json, Steps *pre_tokenizer, Error *err) {
  return steps_load(where, json, "pretokenizers", "pre-tokenizers", types, pre_tokenizer, err);
}
