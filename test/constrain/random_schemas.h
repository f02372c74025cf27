/* random_schemas.h - small random schemas of most keywords. */
#pragma once

#include "base/buffer.h"
#include "test/tests.h"

static inline void put_text(Buffer *out, const char *text) {
  Error err;
  assert_int_equal(buffer_append(out, text, strlen(text), &err), STATUS_OK);
}

/* '@' stands for a subschema, '#' for 0 to 3. */
static const char *const keywords[] = {
    "\"type\": [\"object\", \"integer\"]",
    "\"enum\": [0, [0], {\"a\": 0}, \"a\", {}]",
    "\"const\": 1",
    "\"minimum\": #",
    "\"exclusiveMaximum\": #",
    "\"multipleOf\": 0.5",
    "\"pattern\": \"^a\"",
    "\"minLength\": #",
    "\"maxLength\": #",
    "\"properties\": {\"a\": @, \"b\": @}",
    "\"patternProperties\": {\"^b\": @}",
    "\"additionalProperties\": @",
    "\"propertyNames\": {\"minLength\": 2}",
    "\"required\": [\"a\"]",
    "\"minProperties\": #",
    "\"maxProperties\": #",
    "\"dependentRequired\": {\"a\": [\"b\"]}",
    "\"dependentSchemas\": {\"a\": @, \"bc\": @}",
    "\"prefixItems\": [@, @]",
    "\"items\": @",
    "\"contains\": @",
    "\"minContains\": #",
    "\"maxContains\": #",
    "\"minItems\": #",
    "\"maxItems\": #",
    "\"uniqueItems\": true",
    "\"allOf\": [@, @]",
    "\"anyOf\": [@, @]",
    "\"oneOf\": [@, @]",
    "\"not\": @",
    "\"if\": @",
    "\"then\": @",
    "\"else\": @",
    "\"unevaluatedProperties\": @",
    "\"unevaluatedItems\": @",
};
enum { N_KEYWORDS = sizeof keywords / sizeof *keywords };

/* Takes the keywords whose bits are in `few`, as far as there are enough. */
static inline void put_schema_of(Buffer *out, int depth, uint64_t few, uint64_t *seed) {
  bool used[N_KEYWORDS] = {false};
  if (random_below(seed, 8) == 0) {
    put_text(out, random_below(seed, 2) ? "true" : "false");
    return;
  }
  put_text(out, "{");
  for (uint32_t n = 1 + random_below(seed, depth ? 3 : 2), i = 0, tries = 0; i < n; tries++) {
    const uint32_t which = random_below(seed, N_KEYWORDS);
    if (used[which] || (depth == 0 && strchr(keywords[which], '@'))) continue;
    if (!(few >> which & 1) && tries < 100) continue;
    used[which] = true;
    if (i++) put_text(out, ", ");
    for (const char *at = keywords[which]; *at; at++)
      if (*at == '@')
        put_schema_of(out, depth - 1, few, seed);
      else
        put_text(out, (char[]){*at == '#' ? (char)('0' + random_below(seed, 4)) : *at, 0});
  }
  put_text(out, "}");
}

/* Every other schema has few keywords, so that these meet more often. */
static inline void put_schema(Buffer *out, int depth, uint64_t *seed) {
  uint64_t few = random_below(seed, 2) ? ~UINT64_C(0) : 0;
  for (int i = 0; i < 8; i++) few |= UINT64_C(1) << random_below(seed, N_KEYWORDS);
  put_schema_of(out, depth, few, seed);
}
