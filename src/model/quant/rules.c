/* rules.c - see rules.h.
 *
 * Regular expressions come from unchecked files. A config is refused if their memory, or PCRE2's steps for a
 * match, exceed a limit. The limits are far above what real expressions need. */
#include "model/quant/rules.h"

#include <stdlib.h>
#include <string.h>

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

enum {
  MAX_RULES = 16384,   /* rules other than whole names */
  MAX_NAMES = 1 << 18, /* a rule for every linear layer of 64 layers of 512 experts makes 98,752 */
  MAX_PATTERN = 4096,  /* bytes; the longest known patterns list ten names of modules */
  MAX_BYTES = 1 << 25, /* bytes of all compiled patterns: 2,048 per rule; real expressions take 200 */
  MAX_STEPS = 10000,   /* PCRE2's steps per match; real patterns take a hundred */
  LEAST_STEPS = 250,   /* a config that would leave fewer steps per match is refused */
  MAX_TESTS = 1 << 24, /* layers times rules other than whole names */
  ALL_STEPS = 1 << 28, /* PCRE2's steps for all layers and regular expressions */
};

struct QuantRule {
  MatchKind kind;
  char *pattern; /* a name, a part of a name, or the text of a regular expression */
  pcre2_code *code;
  QuantScheme scheme;
};

/* Most bytes of a pattern that a message shows. */
enum { SHOWN = 80 };

/* Limits the compiled size: PCRE2 expands repetitions, so that a few bytes can become thousands. */
static Status limit_memory(const ConfigReader *r, QuantConfig *quant, const QuantRule *rule) {
  size_t bytes = 0;
  pcre2_pattern_info(rule->code, PCRE2_INFO_SIZE, &bytes);
  quant->pattern_bytes += bytes;
  if (quant->pattern_bytes <= MAX_BYTES) return STATUS_OK;
  return reader_refuse(r, "the regular expressions up to \"%.*s\" take more than %d MiB", SHOWN,
                       rule->pattern, MAX_BYTES >> 20);
}

static Status compile(const ConfigReader *r, QuantConfig *quant, QuantRule *rule) {
  int error;
  PCRE2_SIZE offset;
  uint32_t options = PCRE2_UTF | (rule->kind == MATCH_BEGIN ? PCRE2_ANCHORED : 0);
  rule->code =
      pcre2_compile((PCRE2_SPTR)rule->pattern, PCRE2_ZERO_TERMINATED, options, &error, &offset, NULL);
  if (rule->code) return limit_memory(r, quant, rule);
  char why[128];
  pcre2_get_error_message(error, (PCRE2_UCHAR *)why, sizeof why);
  return reader_refuse(r, "the regular expression \"%.*s\" is not valid: %s at offset %zu", SHOWN,
                       rule->pattern, why, (size_t)offset);
}

/* True if the pattern is the whole name of a layer or module: such rules are sorted by name. */
static bool is_name(MatchKind kind, const char *pattern) {
  return kind == MATCH_NAME || (kind == MATCH_GLOB && !strchr(pattern, '*'));
}

Status quant_rule_add(const ConfigReader *r, QuantConfig *quant, MatchKind kind, const char *pattern,
                      QuantScheme scheme) {
  const size_t size = strlen(pattern);
  const bool named = is_name(kind, pattern);
  const size_t most = named ? MAX_NAMES : MAX_RULES;
  if ((named ? quant->n_named : quant->n_rules - quant->n_named) == most)
    return reader_refuse(r, "more than %zu rules for layers", most);
  if (size > MAX_PATTERN)
    return reader_refuse(r, "\"%.*s...\" has %zu bytes, expected at most %d", SHOWN, pattern, size,
                         MAX_PATTERN);
  TRY(mem_grow(&quant->rules, &quant->rule_capacity, quant->n_rules + 1, sizeof *quant->rules,
               "rules of quantisation", r->err));
  QuantRule *rule = &quant->rules[quant->n_rules];
  *rule = (QuantRule){.kind = kind, .scheme = scheme};
  TRY(NEW(rule->pattern, size + 1, "the name of a module", r->err));
  memcpy(rule->pattern, pattern, size);
  quant->n_named += named;
  quant->n_rules++; /* from now on quantization_release() frees the rule */
  return kind == MATCH_BEGIN || kind == MATCH_SEARCH ? compile(r, quant, rule) : STATUS_OK;
}

Status quant_rules_add_list(const ConfigReader *r, const char *key, QuantConfig *quant, bool regex,
                            MatchKind kind, QuantScheme scheme) {
  const Json *list = json_member(r->object, key);
  if (!list) return STATUS_OK;
  if (!json_is_array(list)) return reader_expected(r, key, list, "a list of names");
  for (const Json *item = json_first(list); item; item = json_next(item)) {
    size_t size;
    char found[64];
    if (!json_is_string(item))
      return reader_refuse(r, "%s holds %s, expected names", key, json_describe(item, found));
    const char *pattern = json_string(item, &size);
    if (strlen(pattern) != size) return reader_refuse(r, "%s holds a name with a NUL in it", key);
    if (regex && strncmp(pattern, "re:", 3) == 0)
      TRY(quant_rule_add(r, quant, MATCH_BEGIN, pattern + 3, scheme));
    else
      TRY(quant_rule_add(r, quant, kind, pattern, scheme));
  }
  return STATUS_OK;
}

void quantization_release(QuantConfig *quant) {
  for (size_t i = 0; i < quant->n_rules; i++) {
    free(quant->rules[i].pattern);
    pcre2_code_free(quant->rules[i].code);
  }
  free(quant->rules);
  free(quant->named);
  free(quant->others);
  *quant = (QuantConfig){0};
}

/* Compares rules by name, equal names by index. */
static int compare_rules(const void *a, const void *b, void *rules) {
  const uint32_t i = *(const uint32_t *)a, j = *(const uint32_t *)b;
  const int order = strcmp(((const QuantRule *)rules)[i].pattern, ((const QuantRule *)rules)[j].pattern);
  return order ? order : (i > j) - (i < j);
}

/* Fills `named` and `others`. */
static Status sort_rules(QuantConfig *quant, Error *err) {
  const size_t n_others = quant->n_rules - quant->n_named;
  free(quant->named);
  free(quant->others);
  quant->others = NULL;
  TRY(NEW(quant->named, quant->n_named + 1, "rules of quantisation", err));
  TRY(NEW(quant->others, n_others + 1, "rules of quantisation", err));
  for (size_t i = 0, n = 0, o = 0; i < quant->n_rules; i++) {
    if (is_name(quant->rules[i].kind, quant->rules[i].pattern))
      quant->named[n++] = (uint32_t)i;
    else
      quant->others[o++] = (uint32_t)i;
  }
  qsort_r(quant->named, quant->n_named, sizeof *quant->named, compare_rules, quant->rules);
  return STATUS_OK;
}

/* The index of the first rule whose pattern is the name's first `size` bytes, or `first` if that is lower.
 * part: these bytes name a module that contains the layer; rules of MATCH_NAME are then skipped. */
static size_t find_named(const QuantConfig *quant, const char *name, size_t size, bool part, size_t first) {
  size_t low = 0, high = quant->n_named;
  while (low < high) { /* the first entry not below the name; longer patterns that begin with it are above */
    const size_t middle = low + (high - low) / 2;
    if (strncmp(quant->rules[quant->named[middle]].pattern, name, size) < 0)
      low = middle + 1;
    else
      high = middle;
  }
  for (; low < quant->n_named; low++) {
    const QuantRule *rule = &quant->rules[quant->named[low]];
    if (strncmp(rule->pattern, name, size) != 0 || rule->pattern[size]) break;
    if (part && rule->kind == MATCH_NAME) continue;
    return quant->named[low] < first ? quant->named[low] : first;
  }
  return first;
}

Status quantization_limit(QuantConfig *quant, size_t n_layers, const char *file, Error *err) {
  size_t n_patterns = 0;
  TRY(sort_rules(quant, err));
  for (size_t i = 0; i < quant->n_rules; i++) n_patterns += quant->rules[i].code != NULL;
  quant->max_steps = MAX_STEPS;
  if (n_patterns > ALL_STEPS / MAX_STEPS / n_layers)
    quant->max_steps = ALL_STEPS / (uint32_t)n_patterns / (uint32_t)n_layers;
  const size_t n_others = quant->n_rules - quant->n_named;
  if (n_others <= MAX_TESTS / n_layers && quant->max_steps >= LEAST_STEPS) return STATUS_OK;
  return error_set(err, STATUS_MODEL, "%s: %zu rules of quantisation for %zu layers are too many", file,
                   n_others, n_layers);
}

static Status run_pattern(const QuantRule *rule, const char *name, uint32_t max_steps, const char *file,
                          bool *fits, Error *err) {
  int found = PCRE2_ERROR_NOMEMORY;
  pcre2_match_data *data = pcre2_match_data_create(1, NULL);
  pcre2_match_context *context = pcre2_match_context_create(NULL);
  if (data && context) {
    pcre2_set_match_limit(context, max_steps);
    pcre2_set_depth_limit(context, max_steps);
    found = pcre2_match(rule->code, (PCRE2_SPTR)name, PCRE2_ZERO_TERMINATED, 0, 0, data, context);
  }
  pcre2_match_context_free(context);
  pcre2_match_data_free(data);
  *fits = found >= 0;
  if (found >= 0 || found == PCRE2_ERROR_NOMATCH) return STATUS_OK;
  if (found == PCRE2_ERROR_NOMEMORY)
    return error_set(err, STATUS_FAILED, "no memory for a regular expression");
  return error_set(err, STATUS_MODEL, "%s: the regular expression \"%.*s\" takes too long to match %s", file,
                   SHOWN, rule->pattern, name);
}

/* True if `pattern` matches the name, or a module that the name is in; * stands for any text. After a failed
 * comparison the last * takes one more character; the earlier stars need not. */
static bool glob_fits(const char *pattern, const char *name) {
  const char *star = NULL, *resume = NULL;
  while (*name) {
    if (*pattern == '*') {
      star = ++pattern;
      resume = name;
    } else if (*pattern == *name) {
      pattern++, name++;
    } else if (!*pattern && *name == '.') {
      return true;
    } else if (star) {
      pattern = star;
      name = ++resume;
    } else {
      return false;
    }
  }
  while (*pattern == '*') pattern++;
  return !*pattern;
}

Status quantization_of(const QuantConfig *quant, const char *name, const char *file, QuantScheme *scheme,
                       Error *err) {
  *scheme = quant->named_only ? (QuantScheme){.method = QUANT_NONE} : quant->scheme;
  const size_t n_others = quant->n_rules - quant->n_named;
  size_t first = find_named(quant, name, strlen(name), false, quant->n_rules);
  for (const char *dot = strchr(name, '.'); dot; dot = strchr(dot + 1, '.'))
    first = find_named(quant, name, (size_t)(dot - name), true, first);
  if (first < quant->n_rules) *scheme = quant->rules[first].scheme;
  for (size_t i = 0; i < n_others && quant->others[i] < first; i++) {
    const QuantRule *rule = &quant->rules[quant->others[i]];
    bool fits = rule->kind == MATCH_ALL;
    if (rule->kind == MATCH_PART) fits = strstr(name, rule->pattern) != NULL;
    if (rule->kind == MATCH_GLOB) fits = glob_fits(rule->pattern, name);
    if (rule->code) TRY(run_pattern(rule, name, quant->max_steps, file, &fits, err));
    if (!fits) continue;
    *scheme = rule->scheme;
    break;
  }
  return STATUS_OK;
}
