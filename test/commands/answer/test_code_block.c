/* test_code_block.c - the first fenced code block: what counts as one, and that pieces change nothing. */
#include "commands/answer/filters/code_block.h"
#include "test/tests.h"

/* The block of a text that comes in pieces of so many bytes at most (0: whole); its state at the end. */
static BlockState extract(const char *text, uint32_t most, uint64_t *random, Buffer *out) {
  CodeBlock block = {0};
  size_t size = strlen(text), at = 0;
  while (at < size) {
    size_t piece = most ? 1 + random_below(random, most) : size;
    if (piece > size - at) piece = size - at;
    assert_int_equal(code_block_push(&block, text + at, piece, out, NULL), STATUS_OK);
    at += piece;
  }
  assert_int_equal(code_block_end(&block, out, NULL), STATUS_OK);
  BlockState state = block.state;
  code_block_release(&block);
  return state;
}

static void assert_block(const char *text, const char *want) {
  uint64_t random = 1;
  for (uint32_t most = 0; most < 5; most++) {
    Buffer got = {0};
    BlockState state = extract(text, most, &random, &got);
    assert_int_equal(state == BLOCK_BEFORE, want == NULL);
    if (!want) want = "";
    assert_int_equal(got.size, strlen(want));
    if (got.size) assert_memory_equal(got.data, want, got.size);
    if (state == BLOCK_BEFORE) want = NULL;
    buffer_release(&got);
  }
}

TEST(the_first_block_comes_out) {
  assert_block("Here:\n```python\nprint(1)\n```\nDone.\n```\nno\n```\n", "print(1)\n");
  assert_block("```\n```\n", "");
  assert_block("```\n\n\n```", "\n\n");
  assert_block("~~~\na\n```\nb\n~~~\n", "a\n```\nb\n");
  assert_block("````\n```\nx\n```\n````\n", "```\nx\n```\n"); /* only as long a fence ends it */
  assert_block("```\nx\n`````  \ny", "x\n");                  /* or a longer one, with white space after it */
  assert_block("```\nx\n``` y\nz\n```\n", "x\n``` y\nz\n");   /* with text after it, it is none */
  assert_block("```c\r\nint x;\r\n```\r\n", "int x;\r\n");
  assert_block("```\nx `y` ``z``\n  ``\n```", "x `y` ``z``\n  ``\n");
}

TEST(what_is_no_block_gives_none) {
  assert_block("", NULL);
  assert_block("no code", NULL);
  assert_block("``\nx\n``\n", NULL);
  assert_block("use ```x``` here\n", NULL);
  assert_block("```x``` here\nnothing\n", NULL); /* a backtick after backticks */
  assert_block("text\n```python", NULL);         /* the end comes before the block */
  assert_block("~~ ~\nx\n", NULL);
}

TEST(a_block_that_does_not_end_ends_with_the_text) {
  assert_block("```\nx\ny", "x\ny");
  assert_block("```\nx\n", "x\n");
  assert_block("```\nx\n``", "x\n``");
  assert_block("```\nx\n  ", "x\n  ");
  assert_block("```\nx\n```", "x\n");
}

TEST(indentation_of_the_fence_is_taken_from_the_lines) {
  assert_block("1. so:\n   ```sh\n   a\n     b\n  c\n\n   ```\n", "a\n  b\nc\n\n");
  assert_block("      ```\n      x\n      ```\n", "x\n");
  assert_block("\t```\n\tx\n\t\ty\n\t```\n", "x\n\ty\n");
  assert_block("```\n  x\n    ```\ny", "  x\n"); /* the last fence's own does not matter */
}

static bool is_blank(const char *text, size_t size) {
  size_t n = 0;
  while (n < size && strchr(" \t\r", text[n])) n++;
  return n == size;
}

/* The reference: the block that code_block.h defines, from the whole text, line by line; false: there is
 * none. */
static bool plain_block(const char *text, char *block) {
  size_t indent = 0, length = 0;
  char fence = 0;
  *block = 0;
  for (const char *line = text; *line;) {
    size_t size = strcspn(line, "\n"), blanks = strspn(line, " \t"), run = 0;
    const char *at = line + blanks, *rest;
    bool ended = line[size] == '\n';
    while ((*at == '`' || *at == '~') && at[run] == *at) run++;
    rest = at + run;
    size_t n_rest = size - blanks - run;
    if (!fence && run >= 3 && ended && (*at == '~' || !memchr(rest, '`', n_rest))) {
      fence = *at;
      length = run;
      indent = blanks;
    } else if (fence && *at == fence && run >= length && is_blank(rest, n_rest)) {
      return true;
    } else if (fence) {
      size_t skip = blanks < indent ? blanks : indent;
      strncat(block, line + skip, size - skip + ended);
    }
    line += size + ended;
  }
  return fence;
}

/* Random lines in random pieces: the same as in one, which is what the reference makes of it. */
TEST(any_pieces_give_the_same) {
  static const char *const words[] = {"`", "``", "```", "~~~", "~", " ", "\n", "\n", "x", "\t", "\r"};
  uint64_t random = 7;
  for (int c = 0; c < 20000; c++) {
    char text[100] = "";
    for (uint32_t n = random_below(&random, 24); n > 0; n--)
      strcat(text, words[random_below(&random, sizeof words / sizeof *words)]);
    Buffer whole = {0}, pieces = {0};
    char block[100];
    bool has_block = plain_block(text, block);
    BlockState at_once = extract(text, 0, &random, &whole);
    assert_int_equal(at_once != BLOCK_BEFORE, has_block);
    if (whole.size != strlen(block) || (whole.size && memcmp(whole.data, block, whole.size) != 0))
      fail_msg("\"%s\" gives \"%.*s\", expected \"%s\"", text, (int)whole.size, whole.data, block);
    assert_int_equal(extract(text, 4, &random, &pieces), at_once);
    assert_int_equal(pieces.size, whole.size);
    if (whole.size) assert_memory_equal(pieces.data, whole.data, whole.size);
    buffer_release(&whole);
    buffer_release(&pieces);
  }
}

/* A line that cannot be the last fence is passed on before it ends. */
TEST(a_line_streams) {
  CodeBlock block = {0};
  Buffer out = {0};
  assert_int_equal(code_block_push(&block, "```\nx = ", 8, &out, NULL), STATUS_OK);
  assert_int_equal(out.size, 4);
  assert_int_equal(code_block_push(&block, "1\n  `", 5, &out, NULL), STATUS_OK);
  assert_int_equal(out.size, 6);
  assert_int_equal(code_block_push(&block, "y", 1, &out, NULL), STATUS_OK);
  assert_int_equal(out.size, 10);
  code_block_release(&block);
  buffer_release(&out);
}
