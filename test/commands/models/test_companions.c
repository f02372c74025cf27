/* test_companions.c - what is copied beside a packed file: all of it or nothing, and no file that was there
 * is touched. */
#include <unistd.h>

#include "commands/models/companions.h"
#include "commands/names.h"
#include "test/directory.h"
#include "test/tests.h"

#define STORIES "test/data/stories260K-awq"

static void write_text(const char *directory, const char *name, const char *text) {
  FILE *file = fopen(in_directory(directory, name), "wb");
  assert_non_null(file);
  fputs(text, file);
  assert_int_equal(fclose(file), 0);
}

static int count_entries(const char *directory) {
  Names names = {0};
  assert_int_equal(names_read(directory, &names, NULL), STATUS_OK);
  const int n = (int)names.count;
  names_release(&names);
  return n;
}

typedef struct {
  Model *model;
  char *directory, output[256];
  Companions copies;
} Packing;

/* The copies are written, and have no names yet. */
static void begin(Packing *packing) {
  Error err;
  *packing = (Packing){.directory = make_directory()};
  snprintf(packing->output, sizeof packing->output, "%s/model.ak48", packing->directory);
  if (model_open(STORIES, NULL, &packing->model, &err) != STATUS_OK) fail_msg("%s", err.text);
  if (companions_copy(packing->model, packing->output, &packing->copies, &err) != STATUS_OK)
    fail_msg("%s", err.text);
  assert_int_equal(count_entries(packing->directory), 0);
}

static void end(Packing *packing) {
  model_close(packing->model);
  remove_directory(packing->directory);
}

TEST(copies_that_are_committed_stay) {
  Packing packing;
  begin(&packing);
  assert_int_equal(companions_commit(packing.model, &packing.copies, NULL), STATUS_OK);
  companions_release(&packing.copies);
  assert_int_equal(count_entries(packing.directory), 3); /* config, generation config, tokenizer */
  end(&packing);
}

TEST(copies_that_are_undone_go_and_nothing_else_does) {
  Packing packing;
  begin(&packing);
  write_text(packing.directory, "other", "kept");
  assert_int_equal(companions_commit(packing.model, &packing.copies, NULL), STATUS_OK);
  assert_int_equal(count_entries(packing.directory), 4);
  companions_undo(&packing.copies);
  assert_int_equal(count_entries(packing.directory), 1);
  assert_true(file_exists(in_directory(packing.directory, "other")));
  end(&packing);
}

/* A folder takes the name of the tokenizer's copy after it was found free: what was put in place before that
 * goes. */
TEST(copies_go_where_one_cannot_be_put_in_place) {
  Packing packing;
  Error err;
  begin(&packing);
  assert_int_equal(mkdir(in_directory(packing.directory, "tokenizer.json"), 0700), 0);
  assert_int_equal(companions_commit(packing.model, &packing.copies, &err), STATUS_FAILED);
  assert_non_null(strstr(err.text, "tokenizer.json"));
  companions_undo(&packing.copies);
  assert_int_equal(count_entries(packing.directory), 1);
  assert_int_equal(rmdir(in_directory(packing.directory, "tokenizer.json")), 0);
  end(&packing);
}

/* Copies the model's tokenizer there, with `more` at its end, or without its last byte where that is NULL. */
static void put_tokenizer(const char *directory, const char *more) {
  Buffer bytes = {0};
  assert_int_equal(file_read(STORIES "/tokenizer.json", 1 << 20, &bytes, NULL), STATUS_OK);
  FILE *file = fopen(in_directory(directory, "tokenizer.json"), "wb");
  assert_non_null(file);
  const size_t size = more ? bytes.size : bytes.size - 1;
  assert_int_equal(fwrite(bytes.data, 1, size, file), size);
  if (more) fputs(more, file);
  assert_int_equal(fclose(file), 0);
  buffer_release(&bytes);
}

TEST(a_file_is_the_same_only_with_every_byte_and_no_more) {
  const struct {
    const char *more;
    Status status;
  } cases[] = {{"", STATUS_OK}, {" ", STATUS_USAGE}, {NULL, STATUS_USAGE}};
  Packing packing;
  begin(&packing);
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    Error err = {{0}};
    companions_release(&packing.copies);
    put_tokenizer(packing.directory, cases[i].more);
    assert_int_equal(companions_copy(packing.model, packing.output, &packing.copies, &err), cases[i].status);
    if (cases[i].status) assert_non_null(strstr(err.text, "tokenizer.json is there already and differs"));
    assert_int_equal(count_entries(packing.directory), 1);
  }
  companions_release(&packing.copies);
  end(&packing);
}

static void assert_text(const char *directory, const char *name, const char *text) {
  char there[64] = "";
  FILE *file = fopen(in_directory(directory, name), "rb");
  assert_non_null(file);
  there[fread(there, 1, sizeof there - 1, file)] = 0;
  fclose(file);
  assert_string_equal(there, text);
}

/* Two packings into one folder both find it empty; the second one to finish must not run the first one's
 * packed file with its own config.json. */
TEST(what_another_process_has_put_there_meanwhile_stays_and_refuses) {
  Packing packing;
  Error err;
  begin(&packing);
  write_text(packing.directory, "config.json", "another model's");
  assert_int_equal(companions_commit(packing.model, &packing.copies, &err), STATUS_USAGE);
  char expected[512];
  snprintf(expected, sizeof expected,
           "%s/config.json is there already and differs from " STORIES
           "'s: remove it, or give -o another folder",
           packing.directory);
  assert_string_equal(err.text, expected);
  companions_undo(&packing.copies);
  assert_int_equal(count_entries(packing.directory), 1);
  assert_text(packing.directory, "config.json", "another model's");
  end(&packing);
}

TEST(the_same_file_that_came_meanwhile_is_fine_and_stays) {
  Packing packing, other;
  begin(&packing);
  begin(&other);
  strcpy(other.output, packing.output);
  companions_release(&other.copies);
  assert_int_equal(companions_copy(other.model, other.output, &other.copies, NULL), STATUS_OK);
  assert_int_equal(companions_commit(other.model, &other.copies, NULL), STATUS_OK);
  companions_release(&other.copies);
  assert_int_equal(companions_commit(packing.model, &packing.copies, NULL), STATUS_OK);
  companions_undo(&packing.copies);
  assert_int_equal(count_entries(packing.directory), 3);
  end(&other);
  end(&packing);
}

TEST(a_file_that_took_the_place_of_a_copy_is_not_undone) {
  Packing packing;
  begin(&packing);
  assert_int_equal(companions_commit(packing.model, &packing.copies, NULL), STATUS_OK);
  write_text(packing.directory, "new", "another's");
  assert_int_equal(
      rename(in_directory(packing.directory, "new"), in_directory(packing.directory, "config.json")), 0);
  companions_undo(&packing.copies);
  assert_int_equal(count_entries(packing.directory), 1);
  assert_text(packing.directory, "config.json", "another's");
  end(&packing);
}
