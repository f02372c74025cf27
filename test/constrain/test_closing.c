/* test_closing.c - no token leads to where no text can go on: texts of random tokens end, under rules that
 * join members or items. */
#include "base/file.h"
#include "constrain/constraint.h"
#include "test/constrain/random_schemas.h"
#include "test/constrain/small_vocabulary.h"
#include "test/tests.h"

enum {
  N_TEXTS = 100,     /* of a schema, half of them with keys in the order of `properties` */
  FREE_BYTES = 60,   /* after which tokens that end something are preferred */
  MOST_BYTES = 4000, /* of a text: it would not end by itself */
};

/* How soon the text ends after the token: the lower the sooner. */
static int rank_of(int32_t id, Phase phase) {
  size_t size;
  const char *bytes = vocabulary_bytes(&vocabulary, id, &size);
  const bool space = strchr(" \n\t\r", *bytes) != NULL;
  const bool in_string = phase == PHASE_STRING || phase == PHASE_KEY_STRING;
  const char *order = in_string ? "\"" : phase == PHASE_NUMBER ? "]},0123456789" : "]}\":ntf[{0123456789,";
  const char *found = *bytes ? strchr(order, *bytes) : NULL;
  if (size == 1 && found) return (int)(found - order);
  return space ? 99 : size == 1 ? 97 : 98;
}

/* A token of the mask, -1 without one. */
static int32_t choose(const uint64_t *mask, bool near_end, Phase phase, uint64_t *seed) {
  int32_t chosen = -1;
  uint32_t n = 0;
  int best = 100;
  for (int32_t id = 0; id < vocabulary.n_ids; id++) {
    if (!mask_has(mask, id)) continue;
    const int rank = near_end ? rank_of(id, phase) : 0;
    if (rank < best) best = rank, n = 0;
    if (rank == best && random_below(seed, ++n) == 0) chosen = id;
  }
  return chosen;
}

/* Writes a text of random tokens; fails where none may follow, or with `ends` where it does not end. */
static void write_text(Constraint *c, const char *schema, bool ends, uint64_t *mask, uint64_t *seed,
                       Buffer *text) {
  Error err;
  text->size = 0;
  assert_int_equal(constraint_begin(c, &err), STATUS_OK);
  while (!constraint_must_end(c)) {
    const bool near_end = text->size > FREE_BYTES;
    if (near_end && (constraint_may_end(c) || (!ends && text->size > 2 * FREE_BYTES))) break;
    assert_int_equal(constraint_mask(c, mask, &err), STATUS_OK);
    const int32_t id = choose(mask, near_end, (Phase)c->state.phase, seed);
    if (id < 0 && constraint_may_end(c)) break;
    if (id < 0 || text->size > MOST_BYTES)
      fail_msg("no end after %.*s of %s", (int)(text->size < 200 ? text->size : 200), text->data, schema);
    size_t size;
    bool allowed;
    const char *bytes = vocabulary_bytes(&vocabulary, id, &size);
    assert_int_equal(buffer_append(text, bytes, size, &err), STATUS_OK);
    assert_int_equal(constraint_take(c, id, &allowed, &err), STATUS_OK);
    if (!allowed) fail_msg("%.*s is in the mask and refused by %s", (int)text->size, text->data, schema);
  }
}

/* False if there is no text that fits. */
static bool texts_go_on(const char *schema, size_t size, bool ordered, bool end, int n_texts) {
  const SchemaOptions options = {.ordered_keys = ordered, .plain_integers = true};
  Constraint c;
  Error err;
  Buffer text = {0};
  uint64_t seed = size;
  if (constraint_open("schema", schema, size, options, &vocabulary, &c, &err) != STATUS_OK) {
    if (!strstr(err.text, "no text satisfies")) fail_msg("%s: %s", schema, err.text);
    return false;
  }
  uint64_t *mask = calloc(vocabulary.n_words, sizeof *mask);
  if (ordered) assert_int_equal(constraint_write_plainly(&c, &err), STATUS_OK);
  for (int i = 0; i < n_texts; i++) write_text(&c, schema, end, mask, &seed, &text);
  buffer_release(&text);
  free(mask);
  constraint_close(&c);
  return true;
}

TEST_WITH(open_vocabulary, close_vocabulary, every_text_of_random_tokens_ends) {
  Buffer file = {0};
  Error err;
  assert_int_equal(file_read("test/constrain/joined_schemas.jsonl", 1 << 20, &file, &err), STATUS_OK);
  for (size_t at = 0; at < file.size;) {
    char *end = memchr(file.data + at, '\n', file.size - at);
    assert_non_null(end);
    *end = '\0';
    for (int ordered = 0; ordered < 2; ordered++)
      assert_true(
          texts_go_on(file.data + at, (size_t)(end - file.data) - at, ordered, true, SAMPLE(N_TEXTS / 2)));
    at = (size_t)(end - file.data) + 1;
  }
  buffer_release(&file);
}

/* Some end only with a key that random tokens hardly write. */
TEST_WITH(open_vocabulary, close_vocabulary, every_text_of_random_schemas_goes_on) {
  uint64_t seed = 3;
  int n = 0;
  Buffer schema = {0};
  for (int i = 0; i < SAMPLE(2000); i++) {
    Error err;
    schema.size = 0;
    put_schema(&schema, 2, &seed);
    assert_int_equal(buffer_append(&schema, "", 1, &err), STATUS_OK);
    n += texts_go_on(schema.data, schema.size - 1, i % 2, false, 4);
  }
  assert_true(n > SAMPLE(1000));
  buffer_release(&schema);
}

/* Appends a part with the numbers of three keys. */
static void add_part(Buffer *text, const char *format, int a, int b, int c) {
  char part[200];
  Error err;
  const int size = snprintf(part, sizeof part, format, a, b, c);
  assert_int_equal(buffer_append(text, part, (size_t)size, &err), STATUS_OK);
}

/* A search that would take too much work ends unsure: it makes no form fail. */
TEST(a_hard_search_makes_no_form_fail) {
  enum { N_KEYS = 200 };
  const SchemaOptions options = {.plain_integers = true};
  Constraint c;
  Buffer text = {0};
  Error err;
  bool allowed;
  add_part(&text, "{\"additionalProperties\": false, \"oneOf\": [false", 0, 0, 0);
  for (int i = 0; i < N_KEYS; i++)
    add_part(&text, ", {\"required\": [\"k%d\"], \"not\": {\"required\": [\"k%d\", \"k%d\"]}}", i,
             (i + 1) % N_KEYS, (i + 2) % N_KEYS);
  add_part(&text, "], \"allOf\": [true", 0, 0, 0);
  for (int i = 0; i < N_KEYS; i++)
    add_part(&text,
             ", {\"if\": {\"properties\": {\"k%d\": {\"const\": 1}}}, \"then\": {\"required\": [\"k%d\"]}, "
             "\"else\": {\"not\": {\"required\": [\"k%d\"]}}}",
             i, (i * 7 + 1) % N_KEYS, (i * 5 + 2) % N_KEYS);
  add_part(&text, "], \"properties\": {\"x\": false", 0, 0, 0);
  for (int i = 0; i < N_KEYS; i++) add_part(&text, ", \"k%d\": {\"enum\": [0, 1, 2, 3]}", i, 0, 0);
  add_part(&text, "}}", 0, 0, 0);
  if (constraint_open("schema", text.data, text.size, options, NULL, &c, &err) != STATUS_OK)
    fail_msg("%s", err.text);
  assert_int_equal(constraint_take_bytes(&c, "{\"k0\": 1, ", 9, &allowed, NULL, &err), STATUS_OK);
  assert_true(allowed);
  constraint_close(&c);
  buffer_release(&text);
}

/* A byte after which no text could go on; `taken` is NULL where no text fits the schema. */
typedef struct {
  bool ordered; /* keys come in the order of `properties` */
  const char *schema, *taken, *refused;
} DeadEnd;

#define REFUSED_ITEM "{\"type\": \"array\", \"prefixItems\": [{}, false], \"minItems\": 2}"
#define TWO_JUDGES                                                                                           \
  "\"items\": {\"type\": \"object\", \"allOf\": [{\"properties\": {\"a\": {\"type\": \"string\"}}, "         \
  "\"additionalProperties\": false}, {\"properties\": {\"a\": {\"enum\": [\"x\"]}}, "                        \
  "\"additionalProperties\": "                                                                               \
  "false}]}, \"uniqueItems\": true"

static const DeadEnd dead_ends[] = {
    /* minProperties needs further members than the object has */
    {false,
     "{\"properties\": {\"a\": {}, \"b\": {}}, \"additionalProperties\": false, "
     "\"dependentSchemas\": {\"a\": {\"minProperties\": 3}}}",
     "{\"", "a"},
    {false,
     "{\"properties\": {\"a\": {}, \"b\": {}, \"c\": false}, \"additionalProperties\": false, "
     "\"dependentSchemas\": {\"a\": {\"minProperties\": 3}}}",
     "{\"b\": 1", ","},
    /* items that a count needs and a place refuses */
    {true, REFUSED_ITEM, NULL, NULL},
    {true, "{\"type\": \"array\", \"prefixItems\": [{}], \"items\": false, \"minItems\": 3}", NULL, NULL},
    {true,
     "{\"type\": \"array\", \"prefixItems\": [{}, {}, false], \"anyOf\": [{\"minItems\": 3}, {\"maxItems\": "
     "1}]}",
     "[1", ","},
    /* the same is searched for at each place of prefixItems */
    {true,
     "{\"type\": \"array\", \"prefixItems\": [{\"enum\": [1, 2]}, {\"enum\": [3, 4]}], \"items\": false, "
     "\"contains\": {\"const\": 1}}",
     "[", "2"},
    {true,
     "{\"type\": \"array\", \"prefixItems\": [{\"enum\": [1, 2]}, {\"enum\": [3, 4]}], "
     "\"items\": false, \"contains\": {\"const\": 4}}",
     "[2, ", "3"},
    /* objects that differ in a key that comes first, after it */
    {true,
     "{\"type\": \"array\", \"items\": {\"type\": \"object\", \"properties\": {\"a\": {\"type\": "
     "\"string\"}, "
     "\"b\": {\"const\": 1}}, \"additionalProperties\": false}, \"uniqueItems\": true}",
     "[{\"b\": 1}, {\"", "b"},
    /* two subschemas that judge the same member leave it few values */
    {true, "{\"type\": \"array\", \"minItems\": 3, " TWO_JUDGES "}", NULL, NULL},
    {true, "{\"type\": \"array\", " TWO_JUDGES "}", "[{}, {\"a\": \"x\"}", ","},
    /* each of the choices is refused by one of two subschemas */
    {false,
     "{\"type\": \"object\", \"allOf\": [{\"properties\": {\"a\": false}}, {\"properties\": {\"b\": "
     "false}}], "
     "\"anyOf\": [{\"required\": [\"a\"]}, {\"required\": [\"b\"]}]}",
     NULL, NULL},
    /* numbers and strings that were, in an array that has room for many others */
    {true,
     "{\"items\": {\"type\": \"integer\", \"minimum\": -2000, \"maximum\": 2000}, \"uniqueItems\": true}",
     "[-1999, -199", "9"},
    {true,
     "{\"items\": {\"type\": \"integer\", \"minimum\": -2000, \"maximum\": 2000}, \"uniqueItems\": true}",
     "[-1999, 1999, 199", "9"},
    {true, "{\"items\": {\"type\": \"string\", \"pattern\": \"^[a-z/]{3}$\"}, \"uniqueItems\": true}",
     "[\"a\\/b\", \"a/", "b"},
    /* numbers that are or are not multiples, beside bounds that leave none */
    {true, "{\"type\": \"number\", \"not\": {\"anyOf\": [{\"minimum\": 1}, {\"multipleOf\": 0.5}]}}", "",
     "1"},
    {true,
     "{\"type\": \"number\", \"anyOf\": [{\"multipleOf\": 7}, {\"minimum\": 2200}], \"minimum\": 217, "
     "\"maximum\": 79}",
     NULL, NULL},
    {true, "{\"type\": \"number\", \"multipleOf\": 100000, \"maximum\": 2965769}", "4", "3"},
    /* the same beside other items that may come, and items that no value can be */
    {true,
     "{\"type\": \"array\", \"prefixItems\": [{\"enum\": [1, 2]}, {\"enum\": [1]}], \"uniqueItems\": true, "
     "\"minItems\": 2}",
     "[", "1"},
    {true, "{\"type\": \"array\", \"prefixItems\": [{}, " REFUSED_ITEM "]}", "[1", ","},
    {true, "{\"type\": \"array\", \"prefixItems\": [{}], \"items\": " REFUSED_ITEM "}", "[1", ","},
    {true, "{\"type\": \"array\", \"prefixItems\": [{}], \"unevaluatedItems\": " REFUSED_ITEM "}", "[1", ","},
    {false, "{\"type\": \"object\", \"properties\": {\"a\": {}}, \"additionalProperties\": " REFUSED_ITEM "}",
     "{\"", "b"},
    {false,
     "{\"type\": \"object\", \"properties\": {\"a\": {}}, \"unevaluatedProperties\": " REFUSED_ITEM "}",
     "{\"", "b"},
    {false, "{\"type\": \"object\", \"propertyNames\": {\"maxLength\": 0, \"minLength\": 1}}", "{", "\""},
    /* strings with escapes, and other spellings of a number that was */
    {true, "{\"items\": {\"type\": \"string\", \"pattern\": \"^[a-z\\\"]{3}$\"}, \"uniqueItems\": true}",
     "[\"a\\\"b\", \"a\\\"", "b"},
    {true, "{\"items\": {\"enum\": [0.5, 1.5]}, \"uniqueItems\": true}", "[0.5, ", "0"},
    {true,
     "{\"items\": {\"type\": \"number\", \"multipleOf\": 0.5, \"minimum\": -900, \"maximum\": 900}, "
     "\"uniqueItems\": true, \"maxItems\": 3}",
     "[899.5, -899.5, 899", "."},
    {true,
     "{\"items\": {\"type\": \"number\", \"multipleOf\": 0.5, \"minimum\": -20, \"maximum\": 20}, "
     "\"uniqueItems\": true}",
     "[-0, 0.50, 3, ", "0"},
    {true,
     "{\"items\": {\"type\": \"number\", \"multipleOf\": 0.01, \"minimum\": -20, \"maximum\": 20}, "
     "\"uniqueItems\": true}",
     "[4.5, 4.5", "0"},
    /* no escape begins where no character is left */
    {true, "{\"type\": \"string\", \"maxLength\": 2}", "\"ab", "\\"},
    {true, "{\"type\": \"string\", \"pattern\": \"^[a-z]*$\"}", "\"ab\\u00", "4"},
    {true, "{\"type\": \"string\", \"pattern\": \"^[^\\\\u0000-\\\\uffff]*$\"}", "\"\\ud", "7"},
    /* quarters that are no halves have two digits after the point */
    {true, "{\"multipleOf\": 0.25, \"not\": {\"multipleOf\": 0.5}, \"maximum\": 1, \"minimum\": 0}", "0.",
     "5"},
    {true, "{\"multipleOf\": 0.25, \"not\": {\"multipleOf\": 0.5}, \"maximum\": 1, \"minimum\": 0}", "", "1"},
    /* a key whose schema has no text is not begun */
    {false, "{\"properties\": {\"a\": " REFUSED_ITEM ", \"b\": {}}, \"additionalProperties\": false}", "{\"",
     "a"},
    {false,
     "{\"patternProperties\": {\"^a\": " REFUSED_ITEM ", \"^b\": {}}, \"additionalProperties\": false}",
     "{\"", "a"},
    {true, "{\"properties\": {\"aa\": " REFUSED_ITEM ", \"ab\": {}}, \"additionalProperties\": false}",
     "{\"a", "a"},
};

TEST_WITH(open_vocabulary, close_vocabulary, what_begins_a_dead_end_is_refused) {
  for (size_t i = 0; i < sizeof dead_ends / sizeof *dead_ends; i++) {
    const DeadEnd *it = &dead_ends[i];
    const SchemaOptions options = {.ordered_keys = it->ordered, .plain_integers = true};
    Constraint c;
    Error err = {{0}};
    bool allowed;
    const Status status =
        constraint_open("schema", it->schema, strlen(it->schema), options, &vocabulary, &c, &err);
    if (!it->taken && !strstr(err.text, "no text satisfies")) fail_msg("%s opens", it->schema);
    if (!it->taken) continue;
    if (status != STATUS_OK) fail_msg("%s: %s", it->schema, err.text);
    assert_int_equal(constraint_take_bytes(&c, it->taken, strlen(it->taken), &allowed, NULL, &err),
                     STATUS_OK);
    if (!allowed) fail_msg("%s refuses %s", it->schema, it->taken);
    assert_int_equal(constraint_take_bytes(&c, it->refused, 1, &allowed, NULL, &err), STATUS_OK);
    if (allowed) fail_msg("%s allows %s after %s", it->schema, it->refused, it->taken);
    constraint_close(&c);
  }
}

/* Where a search ends unsure, an answer takes what is sure, and a judged text may have either. */
TEST_WITH(open_vocabulary, close_vocabulary, a_judged_text_may_have_what_no_search_finds) {
  static const char schema[] = "{\"type\": \"array\", \"prefixItems\": [{\"enum\": [\"a\", \"b\"]}], "
                               "\"if\": {\"prefixItems\": [{\"const\": \"a\"}]}, \"then\": {\"contains\": "
                               "{\"const\": 1}, \"minContains\": "
                               "100}}";
  const SchemaOptions options = {.ordered_keys = true, .plain_integers = true};
  for (int judged = 0; judged < 2; judged++) {
    Constraint c;
    Error err;
    bool allowed;
    const Vocabulary *words = judged ? NULL : &vocabulary;
    assert_int_equal(constraint_open("schema", schema, strlen(schema), options, words, &c, &err), STATUS_OK);
    assert_int_equal(constraint_take_bytes(&c, "[\"a", 3, &allowed, NULL, &err), STATUS_OK);
    assert_int_equal(allowed, judged);
    for (int i = 0; i < 100 && judged; i++)
      assert_int_equal(constraint_take_bytes(&c, i ? ",1" : "\",1", i ? 2 : 3, &allowed, NULL, &err),
                       STATUS_OK);
    if (judged) assert_int_equal(constraint_take_bytes(&c, "]", 1, &allowed, NULL, &err), STATUS_OK);
    assert_int_equal(allowed, judged);
    constraint_close(&c);
  }
}
