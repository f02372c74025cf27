/* test_transcripts.c - test/data/transcripts/tokenizers: ids of texts and texts of ids by small tokenizers,
 * and why others are refused.
 *
 *   {"normalizer": ...}   a tokenizer.json of such parts (Parts in small.h). The vocabulary "bytes" has ids
 *                         that are bytes; an added token may be its flags and content in a string: "sn <s>"
 *   like {"vocab": ...}   the parts of the following tokenizers that they do not name
 *   file {"model": ...}   a whole tokenizer.json
 *   > 3 * "text"          is encoded, here three times over
 *   > t"<s>" p"<s>"       a text in pieces: of the template, of a person
 *   < 1 2                 ids are decoded
 *
 * Below a text are its ids, those without special tokens ("apart") and those with the post-processor's
 * ("special") where they differ; below ids their text, that without special tokens where it differs, and the
 * text that each push to a stream and its end give. All are those of the reference (tokenizers 0.23.3).
 * `make goldens` writes the files anew. */
#include "small.h"
#include "test/tests.h"
#include "test/transcript.h"

enum { N_PARTS = 8, MOST_IDS = 64 };

static Tokenizer *tokenizer;
static char *like[N_PARTS]; /* the parts that a line does not name */

/* Brings added tokens that are strings into their long form. */
static char *spell_tokens(JsonSpan list) {
  JsonCursor cursor = json_cursor(list);
  Buffer out = {0};
  bool first = true;
  assert_true(json_cursor_enter(&cursor, '['));
  while (json_cursor_next(&cursor, &first)) {
    const JsonSpan token = json_cursor_value(&cursor);
    char long_form[TOKEN_SIZE], flags[8] = "", content[100] = "";
    buffer_append_string(&out, out.size ? ", " : "[", NULL);
    if (token.text[0] != '"') {
      buffer_append(&out, token.text, token.size, NULL);
    } else {
      const size_t n = strcspn(token.text, " ");
      snprintf(flags, sizeof flags, "%.*s", (int)n - 1, token.text + 1);
      snprintf(content, sizeof content, "%.*s", (int)(token.size - n) - 2, token.text + n + 1);
      buffer_append_string(&out, token_json(long_form, content, flags), NULL);
    }
  }
  buffer_append(&out, out.size ? "]" : "[]", out.size ? 2 : 3, NULL);
  return out.data;
}

/* The text of one part of a line; NULL if the line does not name it. */
static char *part_of(JsonSpan line, const char *name) {
  const JsonSpan part = json_span_member(line, name);
  if (!part.text) return NULL;
  if (!strcmp(name, "vocab") && part.text[0] == '"') return byte_vocab(NULL);
  if (!strcmp(name, "added") && part.text[0] == '[') return spell_tokens(part);
  if (strcmp(name, "options") != 0) return strndup(part.text, part.size);
  char *members = strndup(part.text + 1, part.size - 1); /* without braces, with ',' */
  members[part.size - 2] = ',';
  return members;
}

static void parts_of(const char *line, char *parts[N_PARTS]) {
  static const char *const names[N_PARTS] = {"added",   "normalizer", "pre_tokenizer", "post_processor",
                                             "decoder", "options",    "vocab",         "merges"};
  const JsonSpan span = {line, strlen(line)};
  Error err;
  if (json_parse("line", STATUS_FAILED, line, span.size, NULL, 0, NULL, &err)) fail_msg("%s", err.text);
  for (int i = 0; i < N_PARTS; i++) parts[i] = part_of(span, names[i]);
}

static void release_parts(char *parts[N_PARTS]) {
  for (int i = 0; i < N_PARTS; i++) free(parts[i]), parts[i] = NULL;
}

/* Whatever ids come, what was pushed up to each border and the end is the text that is decoded at once; no
 * push ends within a character. */
static void check_stream(const int32_t *ids, size_t n, bool skip) {
  TokenizerStream *stream;
  Error err;
  assert_int_equal(tokenizer_stream_open(tokenizer, skip, &stream, &err), STATUS_OK);
  for (size_t border = 0; border <= n; border++) {
    Buffer whole = {0}, pushed = {0};
    assert_int_equal(tokenizer_decode(tokenizer, ids, border, skip, &whole, &err), STATUS_OK);
    for (size_t i = 0; i < border; i++) {
      assert_int_equal(tokenizer_stream_push(stream, ids[i], &pushed, &err), STATUS_OK);
      assert_int_equal(utf8_valid_prefix(pushed.data, pushed.size), pushed.size);
    }
    assert_int_equal(tokenizer_stream_end(stream, &pushed, &err), STATUS_OK); /* and ready for the next one */
    assert_int_equal(pushed.size, whole.size);
    if (pushed.size) assert_memory_equal(pushed.data, whole.data, pushed.size);
    buffer_release(&whole);
    buffer_release(&pushed);
  }
  tokenizer_stream_close(stream);
}

static void check_streams_of_random_ids(void) {
  uint32_t random = 7;
  for (int round = 0; round < 40; round++) {
    int32_t ids[12];
    for (size_t n = 0; n < 12; n++) {
      random = random * 1664525u + 1013904223u;
      ids[n] = (int32_t)(random >> 8) % 17 - 1; /* some are none */
    }
    check_stream(ids, 12, round % 2);
  }
}

static Status open_line(const char *line, Error *err) {
  if (strncmp(line, "file ", 5) == 0)
    return tokenizer_parse("file", line + 5, strlen(line + 5), &tokenizer, err);
  char *own[N_PARTS], *p[N_PARTS];
  parts_of(line, own);
  for (int i = 0; i < N_PARTS; i++) p[i] = own[i] ? own[i] : like[i];
  const Parts parts = {p[0], p[1], p[2], p[3], p[4], p[5], p[6], p[7]};
  const Status status = open_parts(parts, &tokenizer, err);
  release_parts(own);
  return status;
}

static void open_tokenizer(const char *line, FILE *out) {
  Error err = {{0}};
  tokenizer_close(tokenizer);
  tokenizer = NULL;
  const Status status = open_line(line, &err);
  assert_int_equal(!tokenizer, status != STATUS_OK);
  if (status == STATUS_OK)
    check_streams_of_random_ids();
  else
    fprintf(out, "    status %d: %s\n", status, err.text);
}

/* Ids, or why there are none, in one line; not if it is the one that was printed first. */
static void print_ids(FILE *out, const char *name, Status status, IdList *ids, const char *why, char *first) {
  char line[TRANSCRIPT_LINE] = "";
  ids_text(ids, line, sizeof line);
  if (!ids->count) snprintf(line, sizeof line, "no ids");
  if (status != STATUS_OK) snprintf(line, sizeof line, "status %d: %s", status, why);
  assert_true(status == STATUS_OK || ids->count == 0);
  if (!*name || strcmp(line, first) != 0) fprintf(out, "    %s%s\n", name, line);
  if (!*name) strcpy(first, line);
  id_list_release(ids);
}

static void encode_text(const Buffer *text, FILE *out) {
  static const struct {
    const char *name;
    EncodeOptions options;
  } ways[] = {{"", {false, true}}, {"apart: ", {false, false}}, {"special: ", {true, true}}};
  char first[TRANSCRIPT_LINE];
  for (int i = 0; i < 3; i++) {
    IdList ids = {0};
    Error err = {{0}};
    const Status status = tokenizer_encode(tokenizer, text->data, text->size, ways[i].options, &ids, &err);
    print_ids(out, ways[i].name, status, &ids, err.text, first);
  }
}

static void encode_pieces(const char *at, FILE *out) {
  enum { MOST = 8 };
  PromptPiece pieces[MOST];
  Buffer texts[MOST] = {{0}};
  size_t n = 0;
  char first[TRANSCRIPT_LINE];
  IdList ids = {0};
  Error err = {{0}};
  for (; *at == ' '; n++) {
    assert_true(n < MOST);
    const bool trusted = at[1] == 't';
    at += 2;
    read_string(&at, &texts[n]);
    pieces[n] = (PromptPiece){texts[n].data, texts[n].size, trusted};
  }
  const Status status = tokenizer_encode_pieces(tokenizer, pieces, n, false, &ids, &err);
  print_ids(out, "", status, &ids, err.text, first);
  for (size_t i = 0; i < n; i++) buffer_release(&texts[i]);
}

static void encode_line(const char *at, FILE *out) {
  Buffer text = {0};
  int times = 1;
  if (at[1] == 't' || at[1] == 'p') {
    encode_pieces(at, out);
    return;
  }
  if (sscanf(at, " %d * ", &times) == 1) at = strchr(at, '*') + 1;
  for (at++; times > 0; times--) {
    const char *again = at;
    read_string(&again, &text);
  }
  encode_text(&text, out);
  buffer_release(&text);
}

static void print_text(FILE *out, const char *before, const Buffer *text, const char *after) {
  Buffer json = {0};
  assert_int_equal(json_write_string(&json, text->data, text->size, NULL), STATUS_OK);
  fprintf(out, "%s%.*s%s", before, (int)json.size, json.data, after);
  buffer_release(&json);
}

static void decode_line(const char *at, FILE *out) {
  int32_t ids[MOST_IDS];
  size_t n = 0;
  Buffer text = {0}, rest = {0}, pushed = {0};
  TokenizerStream *stream;
  for (char *end; *at; at = end) ids[n++] = (int32_t)strtol(at, &end, 10);
  assert_int_equal(tokenizer_decode(tokenizer, ids, n, false, &text, NULL), STATUS_OK);
  assert_int_equal(tokenizer_decode(tokenizer, ids, n, true, &rest, NULL), STATUS_OK);
  print_text(out, "    ", &text, "\n");
  if (rest.size != text.size || (rest.size && memcmp(rest.data, text.data, rest.size) != 0))
    print_text(out, "    without special tokens: ", &rest, "\n");
  assert_int_equal(tokenizer_stream_open(tokenizer, false, &stream, NULL), STATUS_OK);
  fprintf(out, "    in pieces:");
  for (size_t i = 0; i <= n; i++) {
    pushed.size = 0;
    assert_int_equal(i < n ? tokenizer_stream_push(stream, ids[i], &pushed, NULL)
                           : tokenizer_stream_end(stream, &pushed, NULL),
                     STATUS_OK);
    print_text(out, " ", &pushed, i < n ? "" : "\n");
  }
  tokenizer_stream_close(stream);
  check_stream(ids, n, false);
  buffer_release(&text);
  buffer_release(&rest);
  buffer_release(&pushed);
}

static void write_tokenizers(const char *old, FILE *out) {
  char line[TRANSCRIPT_LINE];
  release_parts(like);
  while (transcript_next_line(&old, line)) {
    if (*line == ' ') continue;
    fprintf(out, "%s\n", line);
    if (*line == '{' || strncmp(line, "file ", 5) == 0) open_tokenizer(line, out);
    if (*line == '>') encode_line(line + 1, out);
    if (*line == '<') decode_line(line + 1, out);
    if (strncmp(line, "like ", 5) != 0) continue;
    release_parts(like);
    parts_of(line + 5, like);
  }
  release_parts(like);
  tokenizer_close(tokenizer);
  tokenizer = NULL;
}

TEST(texts_have_the_ids_of_their_transcripts) {
  check_transcripts("test/data/transcripts/tokenizers", write_tokenizers);
}
