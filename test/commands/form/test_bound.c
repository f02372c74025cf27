/* test_bound.c - masks of an answer with a form, for a model whose vocabulary is smaller than the tokenizer's
 * and ends within a word of the mask, or at its end. */
#include "commands/form/bound.h"
#include "test/constrain/small_vocabulary.h"
#include "test/tests.h"

static const int32_t ends[] = {2, 130};
static const IdList end_list = {.ids = (int32_t *)ends, .count = 2};

typedef struct {
  AnswerForm form;
  Bound bound;
  int n; /* tokens of the model */
} Case;

static void begin(Case *it, const char *regex, int n) {
  Error err = {{0}};
  *it = (Case){.n = n};
  if (form_open(&(FormFlags){.regex = regex}, tokenizer, n, &it->form, &err) != STATUS_OK)
    fail_msg("%s", err.text);
  assert_int_equal(bound_begin(&it->bound, &it->form, &end_list, NULL), STATUS_OK);
}

static void end(Case *it) {
  bound_release(&it->bound);
  form_release(&it->form);
}

static bool has(const uint64_t *mask, int id) {
  return mask[id / 64] >> id % 64 & 1;
}

/* The bits of the mask from the model's vocabulary on. */
static int beyond(const Case *it, const uint64_t *mask) {
  int n = 0;
  for (int id = it->n; id < (int)it->bound.n_words * 64; id++) n += has(mask, id);
  return n;
}

static const int sizes[] = {448, 449, 500, 511, 512, 600};
enum { N_SIZES = sizeof sizes / sizeof *sizes };

TEST(a_thought_may_have_all_tokens_of_the_model_but_the_ends) {
  for (int i = 0; i < N_SIZES; i++) {
    Case it;
    const uint64_t *mask;
    begin(&it, "a", sizes[i]);
    bound_mask_thought(&it.bound, &mask);
    for (int id = 0; id < it.n; id++) assert_int_equal(has(mask, id), id != ends[0] && id != ends[1]);
    assert_int_equal(beyond(&it, mask), 0);
    end(&it);
  }
}

TEST(few_tokens_are_those_that_are_named) {
  for (int i = 0; i < N_SIZES; i++)
    for (int flags = 0; flags < 4; flags++) {
      Case it;
      const uint64_t *mask;
      begin(&it, "a", sizes[i]);
      for (int also = it.n - 1; also <= it.n; also++) {
        const bool space = flags & 1, with_ends = flags & 2;
        bound_mask_few(&it.bound, also, space, with_ends, &mask);
        for (int id = 0; id < it.n; id++) {
          const bool is_end = id == ends[0] || id == ends[1];
          assert_int_equal(has(mask, id),
                           id == also || (with_ends && is_end) || (space && bound_is_space(&it.bound, id)));
        }
        assert_int_equal(beyond(&it, mask), 0);
      }
      end(&it);
    }
}

/* "," is a token and a byte's token, too. */
static bool is_comma(const Case *it, int id) {
  size_t size;
  const char *bytes =
      id < it->form.vocabulary->n_ids ? vocabulary_bytes(it->form.vocabulary, id, &size) : NULL;
  return bytes && size == 1 && *bytes == ',';
}

/* The token is the last one of the model, or the first that it does not have. */
TEST(a_form_has_no_tokens_beyond_the_model) {
  const int comma = tokenizer_find(tokenizer, ","), byte = tokenizer_find(tokenizer, "<0x2C>");
  const int cases[] = {comma, comma + 1, byte + 1, byte};
  assert_true(comma > byte && byte > 0);
  for (int i = 0; i < 4; i++) {
    Case it;
    Error err = {{0}};
    const uint64_t *mask;
    begin(&it, ",", cases[i]);
    const Status status = bound_mask(&it.bound, -1, false, &mask, &err);
    assert_int_equal(status, cases[i] > byte ? STATUS_OK : STATUS_CUT_SHORT);
    if (status) assert_non_null(strstr(err.text, "--regex: the answer is at a point from which no token"));
    for (int id = 0; !status && id < it.n; id++) assert_int_equal(has(mask, id), is_comma(&it, id));
    if (!status) assert_int_equal(beyond(&it, mask), 0);
    end(&it);
  }
}

/* An end token is there only where the form may end; `also` and white space come to it. */
TEST(what_may_follow) {
  Case it;
  const uint64_t *mask;
  Buffer text = {0};
  const int32_t comma = tokenizer_find(tokenizer, ","), a = tokenizer_find(tokenizer, "a");
  begin(&it, ",,?", 512);
  assert_int_equal(bound_mask(&it.bound, a, false, &mask, NULL), STATUS_OK);
  assert_true(has(mask, comma) && has(mask, a) && !has(mask, ends[0]) && !it.bound.begun);
  assert_int_equal(bound_take(&it.bound, comma, &text, NULL), STATUS_OK);
  assert_true(it.bound.begun && !it.bound.ended);
  assert_int_equal(bound_mask(&it.bound, -1, true, &mask, NULL), STATUS_OK);
  for (int id = 0; id < 512; id++)
    assert_int_equal(has(mask, id),
                     is_comma(&it, id) || id == ends[0] || id == ends[1] || bound_is_space(&it.bound, id));
  bound_allow(&it.bound, a);
  bound_allow(&it.bound, 512);
  assert_true(has(mask, a));
  assert_int_equal(bound_take(&it.bound, comma, &text, NULL), STATUS_OK);
  assert_true(it.bound.ended);
  assert_true(text.size == 2 && memcmp(text.data, ",,", 2) == 0);
  assert_int_equal(buffer_append(&it.bound.held, "\xe2", 1, NULL), STATUS_OK); /* cut within a character */
  assert_int_equal(bound_restart(&it.bound, NULL), STATUS_OK);
  assert_true(!it.bound.ended && !it.bound.begun);
  /* Nothing is forced after what was before. */
  TokenReply reply = {0};
  assert_int_equal(bound_forced(&it.bound, &reply, NULL), STATUS_OK);
  assert_int_equal(reply.n_forced, 0);
  assert_int_equal(bound_take(&it.bound, comma, &text, NULL), STATUS_OK);
  assert_true(text.size == 3 && memcmp(text.data, ",,,", 3) == 0);
  buffer_release(&text);
  end(&it);
}

/* A call is not over where a part of it may end: marks come after it. */
TEST(no_call_ends_within_a_part) {
  for (int calls = 0; calls < 2; calls++) {
    Case it;
    const uint64_t *mask;
    Buffer text = {0};
    begin(&it, ",,?", 512);
    it.form.is_calls = calls;
    assert_int_equal(bound_take(&it.bound, tokenizer_find(tokenizer, ","), &text, NULL), STATUS_OK);
    assert_int_equal(bound_mask(&it.bound, -1, false, &mask, NULL), STATUS_OK);
    for (int i = 0; i < 2; i++) assert_int_equal(has(mask, ends[i]), !calls);
    buffer_release(&text);
    end(&it);
  }
}

/* The first byte of a token that is not white space; 0: there is none. */
static char first_of(const Case *it, int id) {
  size_t size = 0, at = 0;
  const char *bytes = id < it->form.vocabulary->n_ids ? vocabulary_bytes(it->form.vocabulary, id, &size) : "";
  while (at < size && strchr(" \t\r\n", bytes[at])) at++;
  return at < size ? bytes[at] : 0;
}

/* Text that is no form may be anything that does not begin as the form does. */
TEST(a_form_or_a_text_may_begin) {
  Case it;
  const uint64_t *mask;
  begin(&it, ",", 500);
  assert_int_equal(bound_mask_or_text(&it.bound, ',', &mask, NULL), STATUS_OK);
  for (int id = 0; id < 500; id++)
    assert_int_equal(has(mask, id), first_of(&it, id) != ',' || is_comma(&it, id));
  assert_int_equal(beyond(&it, mask), 0);
  end(&it);
}

/* The bound knows as many tokens before what is forced as it has room for. */
TEST(the_last_tokens_are_known) {
  Case it;
  Buffer text = {0};
  begin(&it, ",+", 512);
  for (int i = 1; i <= BOUND_LAST + 2; i++) {
    assert_int_equal(bound_take(&it.bound, tokenizer_find(tokenizer, ","), &text, NULL), STATUS_OK);
    assert_int_equal(it.bound.n_last, i < BOUND_LAST ? i : BOUND_LAST);
  }
  buffer_release(&text);
  end(&it);
}

TEST(without_end_tokens_an_answer_ends_where_it_may) {
  Case it;
  Buffer text = {0};
  const IdList none = {.count = 0};
  begin(&it, ",,?", 512);
  it.bound.ends = &none;
  assert_int_equal(bound_take(&it.bound, tokenizer_find(tokenizer, ","), &text, NULL), STATUS_OK);
  assert_true(it.bound.ended);
  buffer_release(&text);
  end(&it);
}

TEST(a_form_that_becomes_too_hard_cuts_the_answer) {
  Case it;
  Error err = {{0}}, inner;
  begin(&it, "a", 512);
  assert_int_equal(bound_check(&it.bound, STATUS_OK, &inner, &err), STATUS_OK);
  assert_string_equal(err.text, "");
  error_set(&inner, STATUS_USAGE, "over 3 steps");
  assert_int_equal(bound_check(&it.bound, STATUS_USAGE, &inner, &err), STATUS_CUT_SHORT);
  assert_string_equal(err.text,
                      "--regex: the answer is at a point from which its form is too hard: over 3 steps");
  error_set(&inner, STATUS_FAILED, "out of memory");
  assert_int_equal(bound_check(&it.bound, STATUS_FAILED, &inner, &err), STATUS_FAILED);
  assert_string_equal(err.text, "--regex: out of memory");
  end(&it);
}

static CMFixtureFunction before_all = open_vocabulary, after_all = close_vocabulary;
