/* test_small.c - small random tokenizers give the reference's ids and texts.
 *
 * The tokenizers, texts and answers are in test/data/tokenizers/small.txt, made by make_small_cases.py,
 * which describes its lines. Each text is also encoded in pieces, after other ids, and decoded token by
 * token. */
#include "small.h"
#include "test/tests.h"

typedef struct {
  Buffer parts['X' + 1]; /* by the letter of their lines, each NUL-terminated */
  int line;
  Tokenizer *tokenizer; /* NULL: it is refused on purpose */
  int n_tokenizers, n_refused, n_texts, n_failures;
} Reading;

/* A member of a case: a string, or NULL where it is null. */
static const char *string_at(const Json *list, int index, size_t *size) {
  const Json *item = json_first(list);
  for (int i = 0; i < index; i++) item = json_next(item);
  return json_is_string(item) ? json_string(item, size) : NULL;
}

static const char *part(const Reading *r, char letter) {
  const Buffer *text = &r->parts[(unsigned char)letter];
  return text->size ? text->data : NULL;
}

/* Options that the reference accepts and auk refuses: they make texts vanish or tokens meet. */
static bool is_refused_on_purpose(const char *message) {
  static const char *const endings[] = {"is nothing when normalized", "are the same when normalized",
                                        "a pattern that can match no character is not supported"};
  for (size_t i = 0; i < sizeof endings / sizeof *endings; i++) {
    size_t n = strlen(message), ending = strlen(endings[i]);
    if (n >= ending && strcmp(message + n - ending, endings[i]) == 0) return true;
  }
  return false;
}

static void open_tokenizer(Reading *r) {
  const Parts parts = {.added = part(r, 'A'),
                       .normalizer = part(r, 'N'),
                       .pre_tokenizer = part(r, 'P'),
                       .post_processor = part(r, 'X'),
                       .decoder = part(r, 'D'),
                       .options = part(r, 'O'),
                       .vocab = part(r, 'V'),
                       .merges = part(r, 'M')};
  Error err = {{0}};
  tokenizer_close(r->tokenizer);
  Status status = open_parts(parts, &r->tokenizer, &err);
  r->n_tokenizers++;
  if (status == STATUS_OK) return;
  if (!is_refused_on_purpose(err.text)) fail_msg("line %d: %s", r->line, err.text);
  r->n_refused++;
}

static void check_ids_text(const Reading *r, const char *what, const IdList *ids, const char *expected) {
  char found[8192];
  if (strcmp(ids_text(ids, found, sizeof found), expected) != 0)
    fail_msg("line %d, %s: %s, expected %s", r->line, what, found, expected);
}

/* The text in pieces of three characters, all of them trusted or none, gives the same ids; earlier ids
 * stay. */
static void check_pieces(const Reading *r, const char *text, size_t size, EncodeOptions options,
                         const IdList *expected) {
  PromptPiece pieces[2048];
  size_t n = 0, from = 0, characters = 0;
  for (size_t at = 1; at <= size; at++) {
    if (at < size && ((unsigned char)text[at] & 0xc0) == 0x80) continue;
    if (++characters % 3 && at < size) continue;
    assert_true(n < sizeof pieces / sizeof *pieces);
    pieces[n++] = (PromptPiece){text + from, at - from, options.parse_special};
    from = at;
  }
  IdList ids = {0};
  Error err = {{0}};
  assert_int_equal(id_list_append(&ids, 7, &err), STATUS_OK);
  assert_int_equal(tokenizer_encode_pieces(r->tokenizer, pieces, n, options.add_special, &ids, &err),
                   STATUS_OK);
  if (ids.count != expected->count + 1 || ids.ids[0] != 7 ||
      (expected->count && memcmp(ids.ids + 1, expected->ids, expected->count * sizeof *ids.ids) != 0))
    fail_msg("line %d: other ids in pieces", r->line);
  id_list_release(&ids);
}

static void check_decoded(const Reading *r, const IdList *ids, bool skip, const char *expected, size_t size) {
  Buffer whole = {0}, streamed = {0};
  TokenizerStream *stream;
  Error err = {{0}};
  if (tokenizer_decode(r->tokenizer, ids->ids, ids->count, skip, &whole, &err) != STATUS_OK)
    fail_msg("line %d: %s", r->line, err.text);
  if (whole.size != size || (size && memcmp(whole.data, expected, size) != 0))
    fail_msg("line %d: \"%.*s\", expected \"%.*s\"", r->line, (int)whole.size, whole.size ? whole.data : "",
             (int)size, expected);
  assert_int_equal(tokenizer_stream_open(r->tokenizer, skip, &stream, &err), STATUS_OK);
  for (size_t i = 0; i < ids->count; i++)
    assert_int_equal(tokenizer_stream_push(stream, ids->ids[i], &streamed, &err), STATUS_OK);
  assert_int_equal(tokenizer_stream_end(stream, &streamed, &err), STATUS_OK);
  if (streamed.size != size || (size && memcmp(streamed.data, expected, size) != 0))
    fail_msg("line %d: token by token \"%.*s\"", r->line, (int)streamed.size,
             streamed.size ? streamed.data : "");
  tokenizer_stream_close(stream);
  buffer_release(&whole);
  buffer_release(&streamed);
}

/* [flags, text, ids, decoded, decoded without special tokens] */
static void check_text(Reading *r, const Json *list) {
  int64_t flags;
  size_t size, n_decoded, n_skipped, n_ids;
  assert_true(json_int64(json_first(list), &flags));
  const char *text = string_at(list, 1, &size), *expected = string_at(list, 2, &n_ids);
  const char *decoded = string_at(list, 3, &n_decoded), *skipped = string_at(list, 4, &n_skipped);
  if (!decoded) decoded = text, n_decoded = size;
  if (!skipped) skipped = text, n_skipped = size;
  const EncodeOptions options = {flags & 1, flags & 2};
  IdList ids = {0};
  Error err = {{0}};
  Status status = tokenizer_encode(r->tokenizer, text, size, options, &ids, &err);
  r->n_texts++;
  if (!expected) {
    assert_int_equal(status, STATUS_MODEL);
    r->n_failures++;
  } else {
    if (status != STATUS_OK) fail_msg("line %d: %s", r->line, err.text);
    check_ids_text(r, "ids", &ids, expected);
    check_pieces(r, text, size, options, &ids);
    check_decoded(r, &ids, false, decoded, n_decoded);
    check_decoded(r, &ids, true, skipped, n_skipped);
  }
  id_list_release(&ids);
}

/* [ids, decoded, decoded without special tokens] */
static void check_ids(Reading *r, const Json *list) {
  size_t n, n_decoded, n_skipped;
  const char *at = string_at(list, 0, &n);
  const char *decoded = string_at(list, 1, &n_decoded), *skipped = string_at(list, 2, &n_skipped);
  IdList ids = {0};
  for (char *end; *at; at = end + (*end == ' '))
    assert_int_equal(id_list_append(&ids, (int32_t)strtol(at, &end, 10), NULL), STATUS_OK);
  check_decoded(r, &ids, false, decoded, n_decoded);
  check_decoded(r, &ids, true, skipped, n_skipped);
  id_list_release(&ids);
}

static void read_line(Reading *r, const char *line, size_t size) {
  Error err = {{0}};
  const char letter = line[0];
  r->line++;
  if (letter == 'T') {
    open_tokenizer(r);
  } else if (letter == 'C' || letter == 'I') {
    if (!r->tokenizer) return;
    Json *list;
    if (json_parse("case", STATUS_FAILED, line + 2, size - 2, NULL, 0, &list, &err)) fail_msg("%s", err.text);
    if (letter == 'C')
      check_text(r, list);
    else
      check_ids(r, list);
    json_free(list);
  } else {
    Buffer *part = &r->parts[(unsigned char)letter];
    part->size = 0;
    assert_int_equal(buffer_append(part, line + 2, size - 2, &err), STATUS_OK);
    assert_int_equal(buffer_append(part, "", 1, &err), STATUS_OK);
  }
}

TEST(small_tokenizers_do_what_the_reference_does) {
  MappedFile file;
  Error err = {{0}};
  static Reading r;
  assert_int_equal(file_map("test/data/tokenizers/small.txt", STATUS_FAILED, &file, &err), STATUS_OK);
  const char *at = (const char *)file.data, *end = at + file.size;
  for (const char *newline; at < end; at = newline + 1) {
    newline = memchr(at, '\n', (size_t)(end - at));
    assert_non_null(newline);
    read_line(&r, at, (size_t)(newline - at));
  }
  tokenizer_close(r.tokenizer);
  file_unmap(&file);
  for (size_t i = 0; i < sizeof r.parts / sizeof *r.parts; i++) buffer_release(&r.parts[i]);
  assert_true(r.n_tokenizers > 300 && r.n_texts > 2000 && r.n_failures > 20);
  assert_true(r.n_refused < r.n_tokenizers / 20);
}
