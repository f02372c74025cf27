/* test_flags.c - the parser of flags: every kind, every spelling, every mistake. */
#include <limits.h>

#include "commands/commands.h"
#include "commands/flags.h"
#include "test/standard_streams.h"
#include "test/tests.h"
#include "test/transcript.h"

typedef struct {
  int choice;
  double real;
  Seed seed;
  const char *text;
  StringList words;
  IdList sizes;
} Inner;

typedef struct {
  bool on;
  int number;
  Inner inner;
  const char *operands[2];
  size_t n_operands;
  Error err;
} Values;

static const Flag first[] = {
    FLAG_SWITCH("--raw, -no-cnv", Values, on, "a switch"),
    FLAG_INT("-n, --n-predict, --max-new-tokens", "N", Values, number, -1, INT_MAX, "a number"),
    FLAG_DOUBLE("--temp, --temperature", "X", Values, inner.real, 0, 100, "a real number"),
};
static const Flag second[] = {
    FLAG_SEED("-s, --seed", Inner, seed, "a seed"),
    FLAG_STRING("-p, --prompt", "TEXT", Inner, text, "a text"),
    FLAG_CHOICE("--kv", "f16|f32", Inner, choice, "a choice"),
    FLAG_STRINGS("--stop", "TEXT", Inner, words, "texts"),
    FLAG_INTS("-d, --depth", "N,...", Inner, sizes, 0, 1000, "numbers"),
};
static const FlagGroup groups[] = {FLAG_GROUP("First", first),
                                   FLAG_GROUP_IN("Second", second, Values, inner, Inner)};
static const Interface interface = {
    .usage = "auk test", .about = "About.", .groups = groups, .n_groups = 2, .max_operands = 2};

static void release(Values *v) {
  string_list_release(&v->inner.words);
  id_list_release(&v->inner.sizes);
}

/* --- transcripts: arguments, what they set, or why they are refused */

/* Cuts a line at its blanks; "" is an empty argument, and ~ a blank in one. */
static int cut(char *line, char *argv[32]) {
  int argc = 1;
  argv[0] = (char *)"test";
  for (char *word = strtok(line, " "); word; word = strtok(NULL, " ")) {
    assert_true(argc < 32);
    for (char *at = word; (at = strchr(at, '~'));) *at = ' ';
    argv[argc++] = strcmp(word, "\"\"") == 0 ? (char *)"" : word;
  }
  return argc;
}

static void write_values(const Values *v, FILE *out) {
  fprintf(out, "   %s", v->on ? " on" : "");
  if (v->number) fprintf(out, " number %d", v->number);
  if (v->inner.real != 0) fprintf(out, " real %g", v->inner.real);
  if (v->inner.seed.given) fprintf(out, " seed %llu", (unsigned long long)v->inner.seed.value);
  if (v->inner.text) fprintf(out, " text \"%s\"", v->inner.text);
  if (v->inner.choice) fprintf(out, " choice %d", v->inner.choice);
  for (size_t i = 0; i < v->inner.words.count; i++) fprintf(out, " word \"%s\"", v->inner.words.items[i]);
  for (size_t i = 0; i < v->inner.sizes.count; i++) fprintf(out, " size %d", v->inner.sizes.ids[i]);
  for (size_t i = 0; i < v->n_operands; i++) fprintf(out, " operand \"%s\"", v->operands[i]);
  fprintf(out, "\n");
}

/* Below a heading with "llama.cpp" foreign flags are taken, below one with "rules" there are three. */
static void write_parsed(const char *old, FILE *out) {
  static const FlagRule rules[] = {{"--raw, -n", EXCLUDES, "--temp", "it is cold"},
                                   {"--seed", NEEDS, "-p, --kv", NULL},
                                   {"--kv", EXCLUDES, "--stop", NULL}};
  Interface of = interface;
  of.rules = rules;
  char line[TRANSCRIPT_LINE], *argv[32];
  while (transcript_next_line(&old, line)) {
    if (strncmp(line, "    ", 4) == 0) continue;
    fprintf(out, "%s\n", line);
    if (!*line) continue;
    if (*line == '#') {
      of.takes_foreign = strstr(line, "llama.cpp") != NULL;
      of.n_rules = strstr(line, "rules") ? 3 : 0;
      continue;
    }
    Values v = {0};
    bool helped;
    const int argc = cut(line, argv);
    tell_begin();
    const Status status = flags_parse(&of, &v, argc, argv, v.operands, &v.n_operands, &helped, &v.err);
    const char *note = note_end();
    if (*note) fprintf(out, "    %s", note);
    assert_true(status == STATUS_OK || status == STATUS_USAGE);
    if (status)
      fprintf(out, "    refused: %s\n", v.err.text);
    else
      write_values(&v, out);
    release(&v);
  }
}

TEST(arguments_give_what_the_transcript_has) {
  check_transcript("test/data/transcripts/flags/parser.txt", write_parsed);
}

/* --- the tables of the commands, from which more than the parser is made */

static void count_name(const Interface *of, Word wanted, int *count) {
  const FlagGroup *group;
  for (size_t g = 0; (group = interface_group(of, g)); g++) {
    for (size_t f = 0; f < group->n_flags; f++) {
      const char *at = group->flags[f].names;
      for (Word name; flag_next_name(&at, &name);)
        *count += name.size == wanted.size && memcmp(name.text, wanted.text, name.size) == 0;
    }
  }
}

static void check_flag(const Command *command, const Flag *flag) {
  if (!flag->names || !flag->help || !flag->help[0])
    fail_msg("%s: a flag without names or help", command->name);
  size_t size = strlen(flag->help);
  if (size < 3 || (flag->help[size - 1] == '.' && flag->help[size - 2] != '.'))
    fail_msg("%s %s: ends with a full stop", command->name, flag->names);
  assert_int_equal(flag->argument == NULL, flag->kind == KIND_SWITCH);
  const char *at = flag->names;
  for (Word name; flag_next_name(&at, &name);) {
    int count = 0;
    count_name(command->interface, name, &count);
    if (count != 1) fail_msg("%s: %.*s stands %d times", command->name, (int)name.size, name.text, count);
    bool spelled = name.size >= 2 && name.text[0] == '-';
    const bool is_capital = name.size == 2 && name.text[1] >= 'A' && name.text[1] <= 'Z';
    for (size_t i = 1; i < name.size && !is_capital; i++)
      spelled = spelled && strchr("abcdefghijklmnopqrstuvwxyz0123456789-", name.text[i]);
    if (!spelled) fail_msg("%s: %s", command->name, flag->names);
  }
}

TEST(tables_are_well_formed) {
  for (size_t c = 0; c < n_commands; c++) {
    const Interface *of = commands[c].interface;
    assert_true(strncmp(of->usage, "auk ", 4) == 0);
    assert_non_null(of->about);
    const FlagGroup *group;
    for (size_t g = 0; (group = interface_group(of, g)); g++)
      for (size_t f = 0; f < group->n_flags; f++) check_flag(&commands[c], &group->flags[f]);
  }
}

/* --- what goes together */

typedef struct {
  const Flag *flag;
  size_t offset;
  char name[64];
} Named;

/* Every flag of a command by its first name. */
static size_t list_flags(const Interface *of, Named *named, size_t room) {
  size_t n = 0;
  for (size_t g = 0; g < of->n_groups; g++) {
    for (size_t f = 0; f < of->groups[g].n_flags; f++, n++) {
      assert_true(n < room);
      const Flag *flag = &of->groups[g].flags[f];
      const char *at = flag->names;
      Word name;
      assert_true(flag_next_name(&at, &name));
      named[n] = (Named){.flag = flag, .offset = of->groups[g].offset + flag->offset};
      snprintf(named[n].name, sizeof named[n].name, "%.*s", (int)name.size, name.text);
    }
  }
  return n;
}

/* With a value that the flag takes, no choice's default. */
static int put_flag(const Named *named, char **argv, char *word, size_t room) {
  const char *at = named->flag->argument;
  Word choice;
  argv[0] = (char *)named->name;
  if (named->flag->kind == KIND_SWITCH) return 1;
  argv[1] = (char *)"1";
  if (named->flag->kind != KIND_CHOICE) return 2;
  while (flag_next_choice(&at, &choice)) continue;
  snprintf(word, room, "%.*s", (int)choice.size, choice.text);
  argv[1] = word;
  return 2;
}

/* The message of `auk run` for two flags, or for one that is both. */
static Status parse_pair(const Named *a, const Named *b, Error *err) {
  static _Alignas(max_align_t) char options[4096]; /* as large as the command's, or larger */
  char words[2][64], *argv[5] = {(char *)"auk"};
  const char *operands[1];
  size_t n_operands;
  bool helped;
  memset(options, 0, sizeof options);
  int argc = 1 + put_flag(a, argv + 1, words[0], sizeof words[0]);
  if (b != a) argc += put_flag(b, argv + argc, words[1], sizeof words[1]);
  Status status = flags_parse(&run_interface, options, argc, argv, operands, &n_operands, &helped, err);
  if (a->flag->kind == KIND_STRINGS) string_list_release((StringList *)(options + a->offset));
  if (b != a && b->flag->kind == KIND_STRINGS) string_list_release((StringList *)(options + b->offset));
  return status;
}

/* Writes a line for each flag of `auk run` that is refused beside others, with their names, or that needs
 * another one: with the names that it is taken with. */
static void write_pairs(const char *old, FILE *out) {
  (void)old;
  static Named named[128];
  static bool taken[128][128]; /* on the diagonal: the flag alone */
  const size_t n = list_flags(&run_interface, named, 128);
  for (size_t i = 0; i < n * n; i++) {
    const Named *a = &named[i / n], *b = &named[i % n];
    Error err = {{0}};
    const Status status = parse_pair(a, b, &err);
    assert_true(status == STATUS_OK ||
                (status == STATUS_USAGE && (strstr(err.text, a->name) || strstr(err.text, b->name))));
    taken[i / n][i % n] = status == STATUS_OK;
  }
  for (size_t i = 0; i < n; i++) {
    size_t n_listed = 0;
    for (size_t k = 0; k < n; k++) {
      if (k == i || !taken[k][k] || taken[i][k] == taken[i][i]) continue;
      if (!n_listed++) fprintf(out, "%s %s with:", named[i].name, taken[i][i] ? "not" : "only");
      fprintf(out, " %s", named[k].name);
    }
    if (n_listed) fprintf(out, "\n");
  }
}

TEST(pairs_of_flags_are_taken_as_the_transcript_has_it) {
  check_transcript("test/data/transcripts/flags/pairs.txt", write_pairs);
}

/* For `auk run`: the least and the greatest value of each number, and one step beyond them. */
TEST(every_number_has_its_range) {
  static const struct {
    const char *name, *below, *low, *high, *above; /* NULL: the kind itself has no such number */
  } ranges[] = {
      {"-n", "-2", "-1", "2147483647", "2147483648"},
      {"-c", "-1", "0", "2147483647", "2147483648"},
      {"--think-budget", "-2", "-1", "2147483647", "2147483648"},
      {"--temp", "-0.001", "0", "1000", "1000.001"},
      {"--top-k", "-1", "0", "2147483647", "2147483648"},
      {"--top-p", "-0.001", "0", "1", "1.001"},
      {"--min-p", "-0.001", "0", "1", "1.001"},
      {"--repeat-penalty", "0.0009", "0.001", "1000", "1000.001"},
      {"--presence-penalty", "-1000.001", "-1000", "1000", "1000.001"},
      {"--frequency-penalty", "-1000.001", "-1000", "1000", "1000.001"},
      {"-s", "-2", "-1", "18446744073709551615", "18446744073709551616"},
      {"-t", "-1", "0", "4096", "4097"},
      {"--parallel", "-1", "0", "4096", "4097"},
      {"--n-best", "0", "1", "4096", "4097"},
      {"--lease", "0", "1", "86400", "86401"},
      {"--logprobs", "0", "1", "100", "101"},
      {"--guess", "-1", "0", "15", "16"},
      {"--rope-theta", "0.999", "1", "1e12", "1.001e12"},
      {"--norm-eps", "0.9e-12", "1e-12", "1", "1.001"},
  };
  static Named named[128];
  size_t n_numbers = 0, n = list_flags(&run_interface, named, 128);
  for (size_t i = 0; i < n; i++) {
    FlagKind kind = named[i].flag->kind;
    n_numbers += kind == KIND_INT || kind == KIND_DOUBLE || kind == KIND_SEED;
  }
  assert_int_equal(n_numbers, sizeof ranges / sizeof *ranges); /* none is left out */
  for (size_t i = 0; i < sizeof ranges / sizeof *ranges; i++) {
    const char *const values[] = {ranges[i].below, ranges[i].low, ranges[i].high, ranges[i].above};
    for (int k = 0; k < 4; k++) {
      static _Alignas(max_align_t) char options[4096];
      const char *operands[1];
      char *argv[] = {(char *)"auk",          (char *)"--map",   (char *)"-",
                      (char *)"--json",       (char *)"--claim", (char *)"d",
                      (char *)ranges[i].name, (char *)values[k]};
      size_t n_operands;
      bool helped;
      Error err = {{0}};
      memset(options, 0, sizeof options);
      Status status = flags_parse(&run_interface, options, 8, argv, operands, &n_operands, &helped, &err);
      if (status != (k == 1 || k == 2 ? STATUS_OK : STATUS_USAGE))
        fail_msg("%s %s: status %d, \"%s\"", ranges[i].name, values[k], status, err.text);
    }
  }
}

TEST(rules_name_flags) {
  for (size_t c = 0; c < n_commands; c++) {
    const Interface *of = commands[c].interface;
    for (size_t r = 0; r < of->n_rules; r++) {
      const char *sides[] = {of->rules[r].flags, of->rules[r].others};
      for (int side = 0; side < 2; side++) {
        const char *at = sides[side];
        for (Word name; flag_next_name(&at, &name);) {
          int count = 0;
          count_name(of, name, &count);
          if (count != 1) fail_msg("%s: a rule names %.*s", commands[c].name, (int)name.size, name.text);
        }
      }
    }
  }
}

/* --- settings */

static SetResult set(FlagParse *parse, const Flag *flag, const char *name, const char *value, int source) {
  const FlagSetting setting = {flag, {name, strlen(name)}, value, source, source > 1};
  SetResult result;
  Error err;
  assert_int_equal(flags_set(parse, &setting, &result, &err), STATUS_OK);
  return result;
}

TEST(a_setting_gives_way_to_the_command_line) {
  static const FlagRule rules[] = {{"--raw", EXCLUDES, "-p", NULL}, {"--kv", IDLE_AT_ZERO, "--temp", NULL}};
  static const Flag other = FLAG_SWITCH("--other", Values, on, "of another command");
  Interface ruled = interface;
  ruled.rules = rules;
  ruled.n_rules = 2;
  Values v = {0};
  FlagParse parse;
  char *argv[] = {(char *)"test", (char *)"--raw", (char *)"--no-config", (char *)"--temp", (char *)"0"};
  assert_int_equal(flags_begin(&ruled, &v, &parse, &v.err), STATUS_OK);
  assert_int_equal(flags_take(&parse, 5, argv, v.operands, &v.n_operands, &v.err), STATUS_OK);
  assert_true(parse.no_config);
  assert_int_equal(set(&parse, &other, "other", NULL, 1), SET_ABSENT);
  assert_int_equal(set(&parse, &first[2], "temp", "1", 1), SET_OVERRIDDEN);
  assert_int_equal(set(&parse, &second[1], "prompt", "a", 1), SET_EXCLUDED);
  assert_int_equal(set(&parse, &second[2], "kv", "f32", 1), SET_EXCLUDED);
  assert_null(v.inner.text);
  assert_int_equal(set(&parse, &first[1], "n", "1", 1), SET_DONE);
  assert_int_equal(set(&parse, &first[1], "n", "2", 1), SET_DONE); /* the last one of a source */
  assert_int_equal(set(&parse, &first[1], "n", "3", 2), SET_OVERRIDDEN);
  assert_int_equal(v.number, 2);
  assert_int_equal(set(&parse, &second[3], "stop", "a", 2), SET_DONE);
  assert_int_equal(set(&parse, &second[3], "stop", "b", 2), SET_DONE);
  assert_int_equal(v.inner.words.count, 2);
  flags_end(&parse);
  release(&v);
}

/* A flag of the command line that a second one makes idle leaves the settings as they are. */
TEST(a_setting_answers_only_for_itself) {
  static const FlagRule rules[] = {{"--kv", IDLE_AT_ZERO, "--temp", NULL}};
  Interface ruled = interface;
  ruled.rules = rules;
  ruled.n_rules = 1;
  Values v = {0};
  FlagParse parse;
  char *argv[] = {(char *)"test", (char *)"--temp", (char *)"0", (char *)"--kv", (char *)"f32"};
  assert_int_equal(flags_begin(&ruled, &v, &parse, &v.err), STATUS_OK);
  assert_int_equal(flags_take(&parse, 5, argv, v.operands, &v.n_operands, &v.err), STATUS_OK);
  assert_int_equal(set(&parse, &first[1], "n", "2", 1), SET_DONE);
  assert_int_equal(v.number, 2);
  flags_end(&parse);
  release(&v);
}

/* A model of the settings is no second model beside an operand; others know where they are from. */
TEST(a_setting_is_told_from_what_was_asked) {
  static struct {
    const char *path, *usual;
    bool weak;
    int context;
  } values;
  static const Flag flags[] = {
      {.names = "-m", .kind = KIND_STRING, .hint = VALUE_MODEL, .usual = sizeof(char *)},
      {.names = "-c",
       .kind = KIND_INT,
       .offset = offsetof(__typeof__(values), context),
       .high = 9,
       .weak = offsetof(__typeof__(values), weak)},
  };
  static const FlagGroup group = {.title = "Test", .flags = flags, .n_flags = 2};
  static const Interface takes_model = {
      .usage = "auk test", .about = "", .groups = &group, .n_groups = 1, INTERFACE_MODEL_OPERAND};
  for (int n_operands = 0; n_operands < 2; n_operands++) {
    FlagParse parse;
    const char *operands[1];
    size_t n;
    Error err;
    char *argv[] = {(char *)"test", (char *)"given"};
    memset(&values, 0, sizeof values);
    assert_int_equal(flags_begin(&takes_model, &values, &parse, &err), STATUS_OK);
    assert_int_equal(flags_take(&parse, 1 + n_operands, argv, operands, &n, &err), STATUS_OK);
    assert_int_equal(set(&parse, &flags[0], "m", "usual", 2), SET_DONE);
    assert_int_equal(set(&parse, &flags[1], "c", "5", n_operands ? 2 : 1), SET_DONE);
    assert_string_equal(values.usual, "usual");
    assert_int_equal(values.path != NULL, n_operands);
    assert_int_equal(values.weak, n_operands);
    flags_end(&parse);
  }
}
