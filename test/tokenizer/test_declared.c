/* test_declared.c - tokens that the files beside tokenizer.json declare. Ids and texts are those of
 * transformers 5.24's AutoTokenizer (PreTrainedTokenizerFast) for the same files. */
#include <unistd.h>

#include "small.h"
#include "test/directory.h"
#include "test/tests.h"
#include "test/transcript.h"

/* Writes a text with ' for ". */
static void write_quoted(const char *directory, const char *name, const char *text) {
  FILE *file = fopen(in_directory(directory, name), "w");
  assert_non_null(file);
  for (; *text; text++) fputc(*text == '\'' ? '"' : *text, file);
  assert_int_equal(fclose(file), 0);
}

/* A tokenizer.json in which a byte is its own id and 256 is <e>. */
static void write_bytes(const char *directory, bool special) {
  char *vocab = byte_vocab(NULL);
  FILE *file = fopen(in_directory(directory, "tokenizer.json"), "w");
  fprintf(file,
          "{\"version\": \"1.0\", \"added_tokens\": [{\"id\": 256, \"content\": \"<e>\", \"single_word\": "
          "false, \"lstrip\": false, \"rstrip\": false, \"normalized\": false, \"special\": %s}], "
          "\"normalizer\": null, \"pre_tokenizer\": " BYTE_LEVEL
          ", \"post_processor\": null, \"decoder\": " BYTE_LEVEL
          ", \"model\": {\"type\": \"BPE\", \"vocab\": %s, \"merges\": []}}",
          special ? "true" : "false", vocab);
  assert_int_equal(fclose(file), 0);
  free(vocab);
}

/* Ids of the text, and the text that is left of them without special tokens. */
static void print_text(Tokenizer *t, const char *text, FILE *out) {
  IdList ids = {0};
  Buffer left = {0};
  char found[512];
  assert_int_equal(tokenizer_encode(t, text, strlen(text), (EncodeOptions){false, true}, &ids, NULL),
                   STATUS_OK);
  assert_int_equal(tokenizer_decode(t, ids.ids, ids.count, true, &left, NULL), STATUS_OK);
  fprintf(out, "    %s\n    without special tokens: %.*s\n", ids_text(&ids, found, sizeof found),
          (int)left.size, left.data);
  buffer_release(&left);
  id_list_release(&ids);
  tokenizer_close(t);
}

/* Also through the copy for other processes. */
static void open_and_print(const char *directory, const char *text, FILE *out) {
  const char *path = in_directory(directory, "tokenizer.json");
  Tokenizer *tokenizer;
  Error err = {{0}};
  int image;
  char *texts[2];
  size_t sizes[2];
  const Status status = tokenizer_open(path, &tokenizer, &err);
  if (status != STATUS_OK) {
    const char *name = strstr(err.text, directory); /* a part of the message is the temporary path */
    fprintf(out, "    status %d: %s\n", status, name ? name + strlen(directory) + 1 : err.text);
    return;
  }
  assert_int_equal(tokenizer_image_make(path, &image, &err), STATUS_OK);
  for (int k = 0; k < 2; k++) {
    FILE *memory = open_memstream(&texts[k], &sizes[k]);
    if (k == 1) assert_int_equal(tokenizer_image_open("image", image, &tokenizer, &err), STATUS_OK);
    print_text(tokenizer, text, memory);
    fclose(memory);
  }
  close(image);
  assert_string_equal(texts[0], texts[1]);
  fputs(texts[0], out);
  free(texts[0]);
  free(texts[1]);
}

/* test/data/transcripts/declared: lines "FILE TEXT" are the files beside a tokenizer.json (' for "), in which
 * <e> is special unless a line says plain, up to the text that is encoded. */
static void write_declared(const char *old, FILE *out) {
  char line[TRANSCRIPT_LINE], *directory = make_directory();
  bool plain = false;
  while (transcript_next_line(&old, line)) {
    if (*line == ' ') continue;
    fprintf(out, "%s\n", line);
    char *text = strchr(line, ' ');
    if (strcmp(line, "plain") == 0) plain = true;
    if (*line == '#' || !text) continue;
    *text++ = '\0';
    if (*line == '>') {
      write_bytes(directory, !plain);
      open_and_print(directory, text, out);
      remove_directory(directory);
      directory = make_directory();
      plain = false;
    } else {
      write_quoted(directory, line, text);
    }
  }
  remove_directory(directory);
}

TEST(tokens_are_those_of_their_transcript) {
  check_transcripts("test/data/transcripts/declared", write_declared);
}

/* A file of another name has no files beside it. */
TEST(only_a_tokenizer_json_has_them) {
  char *directory = make_directory();
  Tokenizer *tokenizer;
  write_bytes(directory, true);
  write_quoted(directory, "tokenizer_config.json", "{'added_tokens_decoder': {'257': {'content': '<a>'}}}");
  assert_int_equal(tokenizer_open(in_directory(directory, "tokenizer.json"), &tokenizer, NULL), STATUS_OK);
  assert_int_equal(tokenizer_find(tokenizer, "<a>"), 257);
  assert_true(tokenizer_declared(tokenizer).size > 0);
  tokenizer_close(tokenizer);
  assert_int_equal(rename(in_directory(directory, "tokenizer.json"), in_directory(directory, "t.json")), 0);
  assert_int_equal(tokenizer_open(in_directory(directory, "t.json"), &tokenizer, NULL), STATUS_OK);
  assert_int_equal(tokenizer_find(tokenizer, "<a>"), -1);
  assert_int_equal(tokenizer_declared(tokenizer).size, 0);
  tokenizer_close(tokenizer);
  remove_directory(directory);
}
