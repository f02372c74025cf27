/* test_flags.c - the parser of flags: every kind, every spelling, every mistake. */
#include <limits.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "commands/commands.h"
#include "commands/flags.h"
#include "test/standard_streams.h"

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

/* Parses a NULL-terminated list of arguments. */
static Status parse(Values *v, const char *const *arguments) {
  char *argv[32] = {(char *)"test"};
  int argc = 1;
  for (; arguments[argc - 1]; argc++) argv[argc] = (char *)arguments[argc - 1];
  bool helped;
  return flags_parse(&interface, v, argc, argv, v->operands, &v->n_operands, &helped, &v->err);
}

#define PARSE(values, ...) parse(values, (const char *const[]){__VA_ARGS__, NULL})

static void release(Values *v) {
  string_list_release(&v->inner.words);
  id_list_release(&v->inner.sizes);
}

static void every_kind_is_read(void **state) {
  (void)state;
  Values v = {0};
  assert_int_equal(PARSE(&v, "--raw", "-n", "-1", "--temp", "0.75", "-s", "18446744073709551615", "-p", "-x",
                         "--kv", "f32", "--stop", "a", "--stop", "", "-d", "1,20,300", "-d", "0"),
                   STATUS_OK);
  assert_true(v.on);
  assert_int_equal(v.number, -1);
  assert_true(v.inner.real == 0.75);
  assert_true(v.inner.seed.given && v.inner.seed.value == UINT64_MAX);
  assert_string_equal(v.inner.text, "-x"); /* a value may look like a flag */
  assert_int_equal(v.inner.choice, 1);
  assert_int_equal(v.inner.words.count, 2);
  assert_string_equal(v.inner.words.items[1], "");
  const int sizes[] = {1, 20, 300, 0};
  assert_int_equal(v.inner.sizes.count, 4);
  assert_memory_equal(v.inner.sizes.ids, sizes, sizeof sizes);
  assert_int_equal(v.n_operands, 0);
  release(&v);
}

static void spellings_are_the_same(void **state) {
  (void)state;
  Values v = {0};
  assert_int_equal(
      PARSE(&v, "--max_new_tokens", "7", "--temperature=1e-1", "-no-cnv", "--prompt=a=b", "--seed=5"),
      STATUS_OK);
  assert_int_equal(v.number, 7);
  assert_true(v.inner.real == 0.1);
  assert_true(v.on);
  assert_string_equal(v.inner.text, "a=b");
  assert_true(v.inner.seed.given && v.inner.seed.value == 5);
  assert_int_equal(PARSE(&v, "-n", "3", "--n-predict", "4", "--seed", "-1"), STATUS_OK);
  assert_int_equal(v.number, 4); /* the last one counts */
  assert_false(v.inner.seed.given);
}

static void operands_are_apart(void **state) {
  (void)state;
  Values v = {0};
  assert_int_equal(PARSE(&v, "-", "--raw", "--", "--raw"), STATUS_OK);
  assert_int_equal(v.n_operands, 2);
  assert_string_equal(v.operands[0], "-");
  assert_string_equal(v.operands[1], "--raw");
  v = (Values){0};
  assert_int_equal(PARSE(&v, "--", "--"), STATUS_OK);
  assert_int_equal(v.n_operands, 1); /* only the first ends the flags */
  assert_string_equal(v.operands[0], "--");
  v = (Values){0};
  assert_int_equal(PARSE(&v, "a", "b", "c"), STATUS_USAGE);
  assert_non_null(strstr(v.err.text, "\"c\""));
}

static void mistakes_are_named(void **state) {
  (void)state;
  static const struct {
    const char *arguments[4];
    const char *message;
  } cases[] = {
      {{"-x"}, "unknown flag -x"},
      {{"-n"}, "-n needs a value (N)"},
      {{"-n", "-2"}, "-n is \"-2\", expected a whole number from -1 to 2147483647"},
      {{"-n", "2147483648"}, "expected a whole number"},
      {{"-n", "99999999999999999999"}, "expected a whole number"},
      {{"-n", ""}, "expected a whole number"},
      {{"-n", "3x"}, "expected a whole number"},
      {{"-n", " 3"}, "expected a whole number"},
      {{"-n", "0x10"}, "expected a whole number"},
      {{"--temp", "nan"}, "--temp is \"nan\", expected a number from 0 to 100"},
      {{"--temp", "1e999"}, "expected a number"},
      {{"--temp", "0x1p3"}, "expected a number"},
      {{"--temp", ""}, "expected a number"},
      {{"--temp=-1"}, "expected a number"},
      {{"-s", "-2"}, "below 2^64"},
      {{"-s", "18446744073709551616"}, "below 2^64"},
      {{"-s", ""}, "below 2^64"},
      {{"--kv", "f8"}, "--kv is \"f8\", expected f16|f32"},
      {{"--kv", "f1"}, "expected f16|f32"},
      {{"--kv", ""}, "expected f16|f32"},
      {{"-d", "1,,2"}, "separated by commas"},
      {{"-d", "1,2,"}, "separated by commas"},
      {{"-d", "1001"}, "separated by commas"},
      {{"--raw=yes"}, "--raw takes no value"},
  };
  for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
    Values v = {0};
    assert_int_equal(parse(&v, cases[c].arguments), STATUS_USAGE);
    if (!strstr(v.err.text, cases[c].message)) fail_msg("\"%s\" lacks \"%s\"", v.err.text, cases[c].message);
    release(&v);
  }
}

static void what_was_probably_meant_is_named(void **state) {
  (void)state;
  static const struct {
    const char *arguments[10];
    const char *message; /* all of it */
  } cases[] = {
      {{"--temprature", "1"}, "unknown flag --temprature: did you mean --temperature?"},
      {{"--temprature=1"}, "unknown flag --temprature: did you mean --temperature?"},
      {{"--tepm", "1"}, "unknown flag --tepm: did you mean --temp?"},
      {{"-temp", "1"}, "unknown flag -temp: did you mean --temp?"},
      {{"--max_new"}, "unknown flag --max_new: did you mean --max-new-tokens?"},
      {{"--n"}, "unknown flag --n: did you mean --n-predict?"},
      {{"--p", "a"}, "unknown flag --p: did you mean --prompt?"},
      {{"--no-cnv"}, "unknown flag --no-cnv: did you mean -no-cnv?"},
      {{"--no-cn"}, "unknown flag --no-cn: did you mean -no-cnv?"},
      {{"-n5"}, "unknown flag -n5: did you mean \"-n 5\"?"},
      {{"-n=5"}, "unknown flag -n=5: did you mean \"-n 5\"?"},
      {{"-nx5"}, "unknown flag -nx5 (--help lists what there is)"},
      {{"-P"}, "unknown flag -P (--help lists what there is)"}, /* no letter is a slip of another */
      {{"--ocean", "7"}, "unknown flag --ocean (--help lists what there is)"},
      {{"--temxxxxure"},
       "unknown flag --temxxxxure (--help lists what there is)"}, /* more than two letters */
      {{"-x", "7", "-n", "5", "--tepm", "--foo", "x", "y"},
       "unknown flag -x (--help lists what there is); unknown flag --tepm: did you mean --temp?; unknown "
       "flag --foo "
       "(--help lists what there is)"},
      {{"-ngl", "7"},
       "unknown flag -ngl (--help lists what there is)"}, /* only run and the like leave it out */
      {{"--hlep"}, "unknown flag --hlep: did you mean --help?"},
      {{"--kv", "f61"}, "--kv is \"f61\", expected f16|f32: did you mean f16?"},
      {{"--kv", "F32"}, "--kv is \"F32\", expected f16|f32: did you mean f32?"},
      {{"--kv", "int8"}, "--kv is \"int8\", expected f16|f32"},
      {{"-x"}, "unknown flag -x (--help lists what there is)"},
      {{"--te"}, "unknown flag --te: did you mean --temp?"},
      {{"--d1"}, "unknown flag --d1 (--help lists what there is)"},
      {{"--foo"}, "unknown flag --foo (--help lists what there is)"},
      {{"--="}, "unknown flag -- (--help lists what there is)"},
      {{"---"}, "unknown flag --- (--help lists what there is)"},
      {{"--temperatures-of-all-the-oceans-of-the-world"},
       "unknown flag --temperatures-of-all-the-oceans-of-the-world (--help lists what there is)"},
  };
  for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
    Values v = {0};
    assert_int_equal(parse(&v, cases[c].arguments), STATUS_USAGE);
    assert_string_equal(v.err.text, cases[c].message);
  }
}

static void flags_of_llama_cpp_that_need_nothing_are_left_out_with_one_note(void **state) {
  (void)state;
  static const struct {
    const char *arguments[10];
    const char *note;    /* flags in it; "": none */
    const char *unknown; /* NULL: none */
  } cases[] = {
      {{"-n", "5", "-ngl", "99", "-fa", "on", "--mlock", "a"}, "-ngl, -fa, --mlock", NULL},
      {{"-n", "5", "-fa", "a"}, "-fa", NULL},
      {{"-n", "5", "--flash-attn=off", "-ub", "-1", "a"}, "--flash-attn, -ub", NULL},
      {{"-n", "5", "-ot", "exps=CPU", "--n-gpu-layers=99", "a", "--jinja"},
       "-ot, --n-gpu-layers, --jinja",
       NULL},
      {{"-n", "5", "-ctk", "f16", "-ctv", "f32", "a"}, "", NULL},
      {{"-n", "5", "--cache-type-k=f32", "a"}, "", NULL},
      {{"-n", "5", "-ctk", "q4_0", "-ngl", "9", "a"},
       "",
       "unknown flag -ctk: f16, f32 and q8_0 are known, as of --kv f16|f32|q8"},
  };
  Interface foreign = interface;
  foreign.takes_foreign = true;
  for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
    char *argv[16] = {(char *)"test"}, note[200] = "";
    int argc = 1;
    for (; cases[c].arguments[argc - 1]; argc++) argv[argc] = (char *)cases[c].arguments[argc - 1];
    if (*cases[c].note)
      snprintf(note, sizeof note, "auk: left out, since nothing is needed for it here: %s\n", cases[c].note);
    Values v = {0};
    bool helped;
    tell_begin();
    Status status = flags_parse(&foreign, &v, argc, argv, v.operands, &v.n_operands, &helped, &v.err);
    assert_string_equal(note_end(), note);
    assert_int_equal(status, cases[c].unknown ? STATUS_USAGE : STATUS_OK);
    if (cases[c].unknown) assert_string_equal(v.err.text, cases[c].unknown);
    if (cases[c].unknown) continue;
    assert_int_equal(v.number, 5);
    assert_int_equal(v.n_operands, 1);
    assert_string_equal(v.operands[0], "a");
    assert_int_equal(v.inner.choice, strstr(cases[c].arguments[2], "-c") != NULL);
  }
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

static void tables_are_well_formed(void **state) {
  (void)state;
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

/* Flags of `auk run` by their first names: which do not go together, and which need one of some others. */
static const char *const apart[][2] = {
    {"--jsonl-stream", " --json --no-stream --map "},
    {"--no-newline", " --json --jsonl-stream --map --n-best --choose --choice "},
    {"-x", " --show-thinking "},
    {"-o", " --resume --claim "},
    {"--claim", " --shard --resume --unordered "},
    {"--map", " --exit-choice "},
    {"--map-json", " --truncate "},
    {"--invariant", " --no-invariant --act --split --kernel --decode-step --draft --cache --cache-dir "},
    {"--choose",
     " --truncate --jsonl-stream --ids --logprobs -x --require-stop -n --stop --ignore-eos --think "
     "--think-budget --show-thinking --temp --top-k --top-p --min-p --repeat-penalty "
     "--presence-penalty --frequency-penalty --guess --draft "},
    {"--choice",
     " --truncate --jsonl-stream --ids --logprobs -x --require-stop -n --stop --ignore-eos --think "
     "--think-budget --show-thinking --temp --top-k --top-p --min-p --repeat-penalty "
     "--presence-penalty --frequency-penalty --guess --draft "},
    {"--json-schema", " --json-object --regex --grammar -x --choose --choice --stop --ignore-eos "},
    {"--json-object", " --regex --grammar -x --choose --choice --stop --ignore-eos "},
    {"--regex", " --grammar -x --choose --choice --stop --ignore-eos "},
    {"--grammar", " -x --choose --choice --stop --ignore-eos "},
    {"--raw", " -sys -sysf --think --no-think --think-budget --hide-thinking --show-thinking "
              "--chat-template "},
    {"-sys", " -sysf "},
    {"--n-best", " --choose --choice "},
    {"--messages", " -p -P -f --truncate --map --n-best --choose --choice -sys -sysf --raw "},
    {"--tools", " -x --choose --choice --json-schema --json-object --regex --grammar --raw --ignore-eos "},
    {"--keep", " --cache --cache-dir --guess --draft "},
    {"--think", " --no-think "},
    {"--continue", " --map --n-best --choose --choice --messages --raw --truncate "},
    {"--hide-thinking", " --show-thinking "},
};
static const char *const needing[][2] = {
    {"--ids", " --json --jsonl-stream "},
    {"--logprobs", " --json --jsonl-stream "},
    {"--map-json", " --map "},
    {"--resume", " --map "},
    {"--no-invariant", " --map "},
    {"--retry-errors", " "}, /* two: --map and --resume */
    {"--shard", " "},        /* two: --map and --resume */
    {"--claim", " --map "},
    {"--lease", " "},     /* two: --map and --claim */
    {"--unordered", " "}, /* two: --map and --json */
    {"--choose-by", " --choose --choice "},
    {"--key-order", " --json-schema --tools "},
    {"--schema-lenient", " --json-schema --tools "},
    {"--tool-choice", " --tools "},
    {"--tool-command", " --tools "},
    {"--exit-choice", " --choose --choice "},
    {"--cache-limit", " --cache --cache-dir "},
};

static bool lists(const char *list, Word name) {
  char padded[64];
  snprintf(padded, sizeof padded, " %.*s ", (int)name.size, name.text);
  return strstr(list, padded);
}

static bool is_word(const char *text, Word name) {
  return strlen(text) == name.size && memcmp(text, name.text, name.size) == 0;
}

static bool may_stand_together(Word a, Word b) {
  for (size_t i = 0; i < sizeof apart / sizeof *apart; i++)
    if ((is_word(apart[i][0], a) && lists(apart[i][1], b)) ||
        (is_word(apart[i][0], b) && lists(apart[i][1], a)))
      return false;
  for (size_t i = 0; i < sizeof needing / sizeof *needing; i++)
    if ((is_word(needing[i][0], a) && !lists(needing[i][1], b)) ||
        (is_word(needing[i][0], b) && !lists(needing[i][1], a)))
      return false;
  return true;
}

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

/* With a value that the flag takes. */
static int put_flag(const Named *named, char **argv, char *word, size_t room) {
  const char *at = named->flag->argument;
  Word choice;
  argv[0] = (char *)named->name;
  if (named->flag->kind == KIND_SWITCH) return 1;
  argv[1] = (char *)"1";
  if (named->flag->kind != KIND_CHOICE) return 2;
  assert_true(flag_next_choice(&at, &choice));
  snprintf(word, room, "%.*s", (int)choice.size, choice.text);
  argv[1] = word;
  return 2;
}

/* The message of `auk run` for two flags. */
static Status parse_pair(const Named *a, const Named *b, Error *err) {
  static _Alignas(max_align_t) char options[4096]; /* as large as the command's, or larger */
  char words[2][64], *argv[5] = {(char *)"auk"};
  const char *operands[1];
  size_t n_operands;
  bool helped;
  memset(options, 0, sizeof options);
  int argc = 1 + put_flag(a, argv + 1, words[0], sizeof words[0]);
  argc += put_flag(b, argv + argc, words[1], sizeof words[1]);
  Status status = flags_parse(&run_interface, options, argc, argv, operands, &n_operands, &helped, err);
  if (a->flag->kind == KIND_STRINGS) string_list_release((StringList *)(options + a->offset));
  if (b->flag->kind == KIND_STRINGS) string_list_release((StringList *)(options + b->offset));
  return status;
}

static void every_pair_of_flags_is_taken_or_refused(void **state) {
  (void)state;
  static Named named[128];
  size_t n = list_flags(&run_interface, named, 128), n_refused = 0;
  for (size_t i = 0; i < n * n; i++) {
    if (i / n >= i % n) continue;
    const Named *a = &named[i / n], *b = &named[i % n];
    Error err = {{0}};
    Status status = parse_pair(a, b, &err);
    bool taken = may_stand_together((Word){a->name, strlen(a->name)}, (Word){b->name, strlen(b->name)});
    if (status != (taken ? STATUS_OK : STATUS_USAGE))
      fail_msg("%s %s: status %d, \"%s\"", a->name, b->name, status, err.text);
    if (status && !strstr(err.text, a->name) && !strstr(err.text, b->name))
      fail_msg("%s %s: \"%s\"", a->name, b->name, err.text);
    n_refused += status != STATUS_OK;
  }
  assert_true(n_refused > 400 && n_refused < n * (n - 1) / 2);
}

/* For `auk run`: the least and the greatest value of each number, and one step beyond them. */
static void every_number_has_its_range(void **state) {
  (void)state;
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
      {"--parallel", "-1", "0", "256", "257"},
      {"--n-best", "0", "1", "256", "257"},
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

static void rules_name_flags(void **state) {
  (void)state;
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

static void what_breaks_a_rule_is_said_as_it_was_written(void **state) {
  (void)state;
  static const FlagRule rules[] = {{"--raw, -n", EXCLUDES, "--temp", "it is cold"},
                                   {"--seed", NEEDS, "-p, --kv", NULL}};
  Interface ruled = interface;
  ruled.rules = rules;
  ruled.n_rules = 2;
  static const struct {
    const char *arguments[5];
    const char *message; /* NULL: taken */
  } cases[] = {
      {{"-no-cnv", "--temperature=1"}, "-no-cnv does not go with --temperature (it is cold)"},
      {{"--temp", "1", "--max_new_tokens", "3"}, "--max_new_tokens does not go with --temp (it is cold)"},
      {{"-s", "1"}, "-s needs -p or --kv"},
      {{"-s", "1", "--kv", "f16"}, NULL},
      {{"--raw", "-n", "3"}, NULL},
  };
  for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
    Values v = {0};
    char *argv[8] = {(char *)"test"};
    int argc = 1;
    for (; cases[c].arguments[argc - 1]; argc++) argv[argc] = (char *)cases[c].arguments[argc - 1];
    bool helped;
    Status status = flags_parse(&ruled, &v, argc, argv, v.operands, &v.n_operands, &helped, &v.err);
    assert_int_equal(status, cases[c].message ? STATUS_USAGE : STATUS_OK);
    if (status) assert_string_equal(v.err.text, cases[c].message);
    release(&v);
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

static void a_setting_gives_way_to_the_command_line(void **state) {
  (void)state;
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
static void a_setting_answers_only_for_itself(void **state) {
  (void)state;
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
static void a_setting_is_told_from_what_was_asked(void **state) {
  (void)state;
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

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_setting_gives_way_to_the_command_line),
      cmocka_unit_test(a_setting_answers_only_for_itself),
      cmocka_unit_test(a_setting_is_told_from_what_was_asked),
      cmocka_unit_test(every_kind_is_read),
      cmocka_unit_test(spellings_are_the_same),
      cmocka_unit_test(operands_are_apart),
      cmocka_unit_test(mistakes_are_named),
      cmocka_unit_test(what_was_probably_meant_is_named),
      cmocka_unit_test(flags_of_llama_cpp_that_need_nothing_are_left_out_with_one_note),
      cmocka_unit_test(tables_are_well_formed),
      cmocka_unit_test(every_pair_of_flags_is_taken_or_refused),
      cmocka_unit_test(every_number_has_its_range),
      cmocka_unit_test(rules_name_flags),
      cmocka_unit_test(what_breaks_a_rule_is_said_as_it_was_written),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
