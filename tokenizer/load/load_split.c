/* load_split.c - pre-tokenizers from their JSON; unknown types are refused by name. */
#include <string.h>

#include "tokenizer/load/fields.h"
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
static Status load_map(const char *where, uint32_t flag, uint32_t second, SplitStep *step, Error *err) {
  const KindFlag flags[2] = {{flag, 1}, {second, 2}};
  return kind_map_flags(where, &unicode_flags, flags, &step->map, step->role, err);
}

static Status load_split(const char *where, const Json *json, SplitStep *step, Error *err) {
  step->kind = SPLIT_PATTERN;
  TRY(field_bool(where, json, "invert", &step->invert, err));
  TRY(load_behavior(where, json, &step->behavior, err));
  return pattern_load(where, json_member(json, "pattern"), &step->pattern, err);
}

static Status load_digits(const char *where, const Json *json, SplitStep *step, Error *err) {
  step->kind = SPLIT_CHARACTERS;
  bool individual;
  TRY(field_bool(where, json, "individual_digits", &individual, err));
  step->behavior = individual ? BEHAVIOR_ISOLATED : BEHAVIOR_CONTIGUOUS;
  return load_map(where, CHAR_NUMERIC, 0, step, err);
}

static Status load_punctuation(const char *where, const Json *json, SplitStep *step, Error *err) {
  step->kind = SPLIT_CHARACTERS;
  step->behavior = BEHAVIOR_ISOLATED;
  if (json_member(json, "behavior")) TRY(load_behavior(where, json, &step->behavior, err));
  return load_map(where, CHAR_PUNCTUATION, 0, step, err);
}

static Status load_whitespace_split(const char *where, const Json *json, SplitStep *step, Error *err) {
  step->kind = SPLIT_CHARACTERS;
  step->behavior = BEHAVIOR_REMOVED;
  return load_map(where, CHAR_SPACE, 0, step, err);
}

/* Whitespace keeps the matches of /\w+|[^\w\s]+/: runs of word characters, and of characters that are neither
 * word nor space. */
static Status load_whitespace(const char *where, const Json *json, SplitStep *step, Error *err) {
  step->kind = SPLIT_RUNS;
  TRY(load_map(where, CHAR_RUST_WORD, CHAR_SPACE, step, err));
  for (int k = 0; k < 4; k++) step->role[k] = step->role[k] & 1 ? 1 : step->role[k] & 2 ? 0 : 2;
  return STATUS_OK;
}

Status metaspace_load(const char *where, const Json *json, char mark[5], size_t *size, PrependScheme *scheme,
                      bool *split, Error *err) {
  static const char *const names[] = {"always", "first", "never"};
  TRY(field_known(where, json, "replacement add_prefix_space prepend_scheme split str_rep", err));
  TRY(field_character(where, json, "replacement", mark, size, err));
  TRY(field_bool_or(where, json, "split", true, split, err));
  const char *name;
  TRY(json_get_string((JsonSource){where, STATUS_MODEL}, json, "prepend_scheme", &name, err));
  *scheme = PREPEND_ALWAYS;
  bool known = !name;
  for (size_t i = 0; name && i < sizeof names / sizeof *names; i++) {
    if (strcmp(name, names[i]) != 0) continue;
    *scheme = (PrependScheme)i;
    known = true;
  }
  if (!known)
    return error_set(err, STATUS_MODEL, "%s: prepend_scheme is %.80s, expected always, first or never", where,
                     name);
  bool prefix; /* a member of older files, which the reference compares with prepend_scheme, too */
  TRY(field_bool_or(where, json, "add_prefix_space", true, &prefix, err));
  if (!prefix && *scheme != PREPEND_NEVER)
    return error_set(err, STATUS_MODEL, "%s: add_prefix_space is false, but prepend_scheme is not never",
                     where);
  return STATUS_OK;
}

static Status load_metaspace(const char *where, const Json *json, SplitStep *step, Error *err) {
  step->kind = SPLIT_METASPACE;
  step->behavior = BEHAVIOR_MERGED_WITH_NEXT;
  char mark[5];
  size_t size;
  TRY(metaspace_load(where, json, mark, &size, &step->scheme, &step->split, err));
  return pattern_literal(mark, size, &step->pattern, err);
}

static Status load_byte_level(const char *where, const Json *json, SplitStep *step, Error *err) {
  step->kind = SPLIT_BYTE_LEVEL;
  step->behavior = BEHAVIOR_ISOLATED;
  bool ignored, use_regex;
  TRY(field_bool(where, json, "add_prefix_space", &step->add_prefix_space, err));
  TRY(field_bool(where, json, "trim_offsets", &ignored, err));
  TRY(field_bool_or(where, json, "use_regex", true, &use_regex, err));
  if (!use_regex) return STATUS_OK;
  return regex_compile(where, gpt2_pattern, sizeof gpt2_pattern - 1, &step->pattern.regex, err);
}

static const struct {
  const char *type, *members; /* NULL: load() refuses unknown members */
  Status (*load)(const char *where, const Json *json, SplitStep *step, Error *err);
} types[] = {
    {"ByteLevel", "add_prefix_space trim_offsets use_regex", load_byte_level},
    {"Digits", "individual_digits", load_digits},
    {"Metaspace", NULL, load_metaspace},
    {"Punctuation", "behavior", load_punctuation},
    {"Split", "pattern behavior invert", load_split},
    {"Whitespace", "", load_whitespace},
    {"WhitespaceSplit", "", load_whitespace_split},
};

static Status add_pre_tokenizer(void *owner, const char *where, const char *type, const Json *json,
                                Error *err) {
  PreTokenizer *p = owner;
  for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
    if (strcmp(types[i].type, type) != 0) continue;
    if (p->count == MAX_PRE_TOKENIZERS)
      return error_set(err, STATUS_MODEL, "%s: more than %d pre-tokenizers", where, MAX_PRE_TOKENIZERS);
    TRY(mem_grow(&p->steps, &p->capacity, p->count + 1, sizeof *p->steps, "pre-tokenizers", err));
    SplitStep *step = &p->steps[p->count++];
    memset(step, 0, sizeof *step);
    Where here = where_in(where, type, 0);
    if (types[i].members) TRY(field_known(here.text, json, types[i].members, err));
    return types[i].load(here.text, json, step, err);
  }
  return field_unknown_type(where, type, err);
}

Status pre_tokenizer_load(const char *where, const Json *json, PreTokenizer *p, Error *err) {
  *p = (PreTokenizer){0};
  p->where = where_copy(where);
  if (!json) return STATUS_OK;
  TRY(field_components(where, json, "pretokenizers", 0, add_pre_tokenizer, p, err));
  p->bytes = p->count > 0 && p->steps[p->count - 1].kind == SPLIT_BYTE_LEVEL;
  for (size_t i = 0; i < p->count; i++)
    p->needs_origin |= p->steps[i].kind == SPLIT_METASPACE && p->steps[i].scheme == PREPEND_FIRST;
  return STATUS_OK;
}
