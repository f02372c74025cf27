/* test_thinking.c - how thoughts are separated from answers: random texts in random pieces against a search
 * of the whole text, and text that must be passed on at once. */
#include "commands/answer/filters/thinking.h"
#include "test/tests.h"

static const char *skip_space(const char *text) {
  return text + strspn(text, " \t\r\n");
}

/* The reference: what thinking.h defines, from the whole text at once. */
static void split(const char *text, bool inside, char *thought, char *answer) {
  const char *open = "<t>", *close = "</t>", *from = text;
  *thought = *answer = 0;
  if (!inside) {
    const char *first = skip_space(text);
    if (strncmp(first, close, 4) == 0) {
      strcpy(answer, skip_space(first + 4));
      return;
    }
    if (strncmp(first, open, 3) != 0) {
      strcpy(answer, text);
      return;
    }
    from = first + 3;
  }
  const char *end = strstr(from, close);
  if (end) strcpy(answer, skip_space(end + 4));
  if (!end) end = from + strlen(from);
  from = skip_space(from);
  while (end > from && strchr(" \t\r\n", end[-1])) end--;
  if (end > from) strncat(thought, from, (size_t)(end - from));
}

static void assert_text(const Buffer *got, const char *want) {
  assert_int_equal(got->size, strlen(want));
  if (got->size) assert_memory_equal(got->data, want, got->size);
}

TEST(any_pieces_give_the_same) {
  static const char *const words[] = {"<t>", "</t>", "<", "/", "t", ">", " ", "\n", "a", "</", "t>"};
  uint64_t random = 1;
  for (int c = 0; c < 30000; c++) {
    char text[80] = "", thought[80], answer[80];
    bool inside = random_below(&random, 2);
    for (uint32_t n = random_below(&random, 16); n > 0; n--)
      strcat(text, words[random_below(&random, sizeof words / sizeof *words)]);
    split(text, inside, thought, answer);

    ThinkingSplitter splitter = {0};
    Buffer got_thought = {0}, got_answer = {0};
    thinking_begin(&splitter, "<t>", "</t>", inside);
    for (size_t at = 0, size = strlen(text); at < size;) {
      size_t piece = 1 + random_below(&random, (uint32_t)(size - at));
      assert_int_equal(thinking_push(&splitter, text + at, piece, &got_thought, &got_answer, NULL),
                       STATUS_OK);
      at += piece;
      /* Held back is only what the next piece decides: white space and the beginning of a mark. */
      const char *held = splitter.held.data ? splitter.held.data : "";
      size_t spaces = 0;
      while (spaces < splitter.held.size && strchr(" \n", held[spaces])) spaces++;
      size_t rest = splitter.held.size - spaces;
      assert_true(rest < 4 &&
                  (memcmp(held + spaces, "</t>", rest) == 0 || memcmp(held + spaces, "<t>", rest) == 0));
    }
    assert_int_equal(thinking_end(&splitter, &got_thought, &got_answer, NULL), STATUS_OK);
    assert_text(&got_thought, thought);
    assert_text(&got_answer, answer);
    thinking_release(&splitter);
    buffer_release(&got_thought);
    buffer_release(&got_answer);
  }
}

/* One text, whole: what it gives with "<think>" and "</think>". */
static void assert_split(const char *text, bool inside, const char *thought, const char *answer) {
  ThinkingSplitter splitter = {0};
  Buffer got_thought = {0}, got_answer = {0};
  thinking_begin(&splitter, "<think>", "</think>", inside);
  assert_int_equal(thinking_push(&splitter, text, strlen(text), &got_thought, &got_answer, NULL), STATUS_OK);
  assert_int_equal(thinking_end(&splitter, &got_thought, &got_answer, NULL), STATUS_OK);
  assert_text(&got_thought, thought);
  assert_text(&got_answer, answer);
  thinking_release(&splitter);
  buffer_release(&got_thought);
  buffer_release(&got_answer);
}

TEST(marks_count_at_the_beginning_only) {
  assert_split("<think>\nwhy?\n</think>\n\nSo.\n", false, "why?", "So.\n");
  assert_split("\nwhy?\n</think>\n\nSo.", true, "why?", "So.");
  assert_split("<think>\n\n</think>\n\nSo.", false, "", "So.");
  assert_split("</think>\n\nSo.", false, "", "So."); /* an end without a beginning */
  assert_split("Write <think> and </think>.", false, "", "Write <think> and </think>.");
  assert_split("<think>a</think> b </think> c <think>", false, "a", "b </think> c <think>");
  assert_split("<think>a <think> b</think>c", false, "a <think> b", "c");
  assert_split("  \n  two words", false, "", "  \n  two words"); /* no thought: nothing is taken away */
  assert_split("<thinking>", false, "", "<thinking>");
  assert_split("<think", false, "", "<think");
  assert_split("never closed </thin", true, "never closed </thin", "");
  assert_split("", true, "", "");
  assert_split("", false, "", "");
}

TEST(without_marks_all_is_answer) {
  ThinkingSplitter splitter = {0};
  Buffer thought = {0}, answer = {0};
  thinking_begin(&splitter, NULL, NULL, false);
  assert_int_equal(thinking_push(&splitter, " <think>", 8, &thought, &answer, NULL), STATUS_OK);
  assert_text(&answer, " <think>");
  thinking_begin(&splitter, "<a>", "</a>", true); /* a splitter can be used again */
  assert_int_equal(thinking_push(&splitter, "x </", 4, &thought, &answer, NULL), STATUS_OK);
  assert_text(&thought, "x");
  thinking_begin(&splitter, "<a>", "</a>", false);
  assert_int_equal(thinking_push(&splitter, "y", 1, &thought, &answer, NULL), STATUS_OK);
  assert_text(&answer, " <think>y");
  thinking_release(&splitter);
  buffer_release(&thought);
  buffer_release(&answer);
}
