/* flags.h - a command's flags as constant tables, which drive parsing, help, completions and the man page.
 *
 *   typedef struct { ModelFlags model; int n; bool raw; } Options;
 *   static const Flag flags[] = {
 *       FLAG_INT("-n, --n-predict", "N", Options, n, -1, INT_MAX, "tokens to make at most"),
 *       FLAG_SWITCH("--raw", Options, raw, "no chat format"),
 *   };
 *   static const FlagGroup groups[] = {MODEL_FLAG_GROUP(Options, model), FLAG_GROUP("Answer", flags)};
 *   const Interface run_interface = {.usage = "auk run -m MODEL -p TEXT", .about = "Answers a prompt.",
 *                                    INTERFACE_GROUPS(groups)};
 *
 * A flag holds the offset of its value in the options; the compiler checks the member's type. Names match in
 * full ('_' equals '-'). The value is the next argument, whatever it begins with (but see KIND_OPTIONAL), or
 * follows '=' after a name with two dashes. If a flag is repeated, the last one counts; lists collect, and
 * FLAG_STRING_ONCE refuses.
 * "--" ends the flags; a lone "-" is an operand. Flags that are not given leave the defaults in place. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buffer.h"
#include "base/status.h"

typedef struct {
  const char **items; /* [count]; the strings are not owned */
  size_t count, capacity;
} StringList;
/* Appends an item without copying it; if memory is short, the list is unchanged. */
Status string_list_add(StringList *list, const char *item, Error *err);
void string_list_release(StringList *list);

typedef struct {
  bool given;
  uint64_t value;
} Seed;

typedef struct {
  bool given;
  const char *text; /* NULL: without a value */
} OptionalText;

typedef enum {
  KIND_SWITCH,  /* bool: becomes true */
  KIND_INT,     /* int in low .. high */
  KIND_DOUBLE,  /* double in low .. high */
  KIND_SEED,    /* Seed: 0 .. 2^64 - 1; -1 means not given */
  KIND_STRING,  /* const char *: not copied */
  KIND_CHOICE,  /* int: the word's index */
  KIND_STRINGS, /* StringList: every occurrence adds a string */
  KIND_INTS,    /* IdList: every occurrence adds its comma-separated numbers in low .. high */
  KIND_OPTIONAL /* OptionalText: the value is the next argument unless that begins with '-' */
} FlagKind;

/* The meaning of a string value, for completions; an empty one that is a name is refused. */
typedef enum {
  VALUE_TEXT,
  VALUE_FILE,
  VALUE_DIRECTORY,
  VALUE_MODEL,
  VALUE_CHAT,  /* the name of a kept chat */
  VALUE_PROMPT /* the name of a prompt */
} ValueHint;

typedef struct {
  const char *names;    /* all spellings, "-n, --n-predict" */
  const char *argument; /* what the help calls the value; for a choice the words themselves, "f16|f32" */
  const char *help;     /* one or two sentences without a final full stop */
  FlagKind kind;
  ValueHint hint;
  const char *words; /* "a|b": values allowed besides a file name; NULL: none */
  size_t offset;     /* offset of the value in the struct that the group refers to */
  double low, high;
  Status (*check)(const char *name, const char *text, Error *err); /* checks a string's own syntax, or NULL */
  bool once; /* a second occurrence is refused: the first would be lost */
  /* offset of a bool: true if the value is from the file of settings, outside the section that -m SECTION
   * names; 0: there is no such bool */
  size_t weak;
  size_t usual; /* for -m: offset of the string that takes a weak value (FlagSetting.weak); else 0 */
} Flag;

/* The offset of a member of exactly this type; a member of another type does not compile. */
#define MEMBER_OF_TYPE(Struct, member, Type)                                                                 \
  _Generic(&((Struct *)0)->member, Type * : offsetof(Struct, member))

#define FLAG_SWITCH(names_, Struct, member, help_)                                                           \
  { .names = names_, .help = help_, .kind = KIND_SWITCH, .offset = MEMBER_OF_TYPE(Struct, member, bool) }
#define FLAG_INT(names_, argument_, Struct, member, low_, high_, help_)                                      \
  FLAG_RANGE(KIND_INT, int, names_, argument_, Struct, member, low_, high_, help_)
#define FLAG_DOUBLE(names_, argument_, Struct, member, low_, high_, help_)                                   \
  FLAG_RANGE(KIND_DOUBLE, double, names_, argument_, Struct, member, low_, high_, help_)
#define FLAG_INTS(names_, argument_, Struct, member, low_, high_, help_)                                     \
  FLAG_RANGE(KIND_INTS, IdList, names_, argument_, Struct, member, low_, high_, help_)
#define FLAG_SEED(names_, Struct, member, help_)                                                             \
  FLAG_PLAIN(KIND_SEED, VALUE_TEXT, Seed, names_, "N", Struct, member, help_)
#define FLAG_CHOICE(names_, words_, Struct, member, help_)                                                   \
  FLAG_PLAIN(KIND_CHOICE, VALUE_TEXT, int, names_, words_, Struct, member, help_)
#define FLAG_STRING(names_, argument_, Struct, member, help_)                                                \
  FLAG_PLAIN(KIND_STRING, VALUE_TEXT, const char *, names_, argument_, Struct, member, help_)
#define FLAG_STRING_ONCE(names_, argument_, Struct, member, help_)                                           \
  FLAG_OF(KIND_STRING, const char *, names_, argument_, Struct, member, help_, .once = true)
#define FLAG_FILE(names_, argument_, Struct, member, help_)                                                  \
  FLAG_PLAIN(KIND_STRING, VALUE_FILE, const char *, names_, argument_, Struct, member, help_)
#define FLAG_DIRECTORY(names_, argument_, Struct, member, help_)                                             \
  FLAG_PLAIN(KIND_STRING, VALUE_DIRECTORY, const char *, names_, argument_, Struct, member, help_)
#define FLAG_MODEL(names_, Struct, member, usual_, help_)                                                    \
  FLAG_OF(KIND_STRING, const char *, names_, "MODEL", Struct, member, help_, .hint = VALUE_MODEL,            \
          .usual = MEMBER_OF_TYPE(Struct, usual_, const char *))
#define FLAG_STRINGS(names_, argument_, Struct, member, help_)                                               \
  FLAG_PLAIN(KIND_STRINGS, VALUE_TEXT, StringList, names_, argument_, Struct, member, help_)
#define FLAG_FILES(names_, argument_, Struct, member, help_)                                                 \
  FLAG_PLAIN(KIND_STRINGS, VALUE_FILE, StringList, names_, argument_, Struct, member, help_)

#define FLAG_FILE_OR(words_, names_, argument_, Struct, member, help_)                                       \
  FLAG_OF(KIND_STRING, const char *, names_, argument_, Struct, member, help_, .hint = VALUE_FILE,           \
          .words = words_)

#define FLAG_PLAIN(kind_, hint_, Type, names_, argument_, Struct, member, help_)                             \
  FLAG_OF(kind_, Type, names_, argument_, Struct, member, help_, .hint = hint_)
#define FLAG_RANGE(kind_, Type, names_, argument_, Struct, member, low_, high_, help_)                       \
  FLAG_OF(kind_, Type, names_, argument_, Struct, member, help_, .low = low_, .high = high_)
#define FLAG_OF(kind_, Type, names_, argument_, Struct, member, help_, ...)                                  \
  {                                                                                                          \
    .names = names_, .argument = argument_, .help = help_, .kind = kind_,                                    \
    .offset = MEMBER_OF_TYPE(Struct, member, Type), __VA_ARGS__                                              \
  }

typedef struct {
  const char *title; /* title in the help, without a colon */
  const Flag *flags; /* [n_flags] */
  size_t n_flags;
  size_t offset; /* offset, in the command's options, of the struct with the flags' members */
} FlagGroup;

/* FLAG_GROUP: values lie in the options themselves; FLAG_GROUP_IN: in a struct within the options. */
#define FLAG_GROUP(title_, table)                                                                            \
  { .title = title_, .flags = table, .n_flags = sizeof(table) / sizeof *(table) }
#define FLAG_GROUP_IN(title_, table, Struct, member, Type)                                                   \
  {                                                                                                          \
    .title = title_, .flags = table, .n_flags = sizeof(table) / sizeof *(table),                             \
    .offset = MEMBER_OF_TYPE(Struct, member, Type)                                                           \
  }

/* One spelling of a flag, or one word of a choice. */
typedef struct {
  const char *text; /* [size] */
  size_t size;
} Word;
/* Iterate over spellings, from *at = flag->names, or over the words of a choice; false at the end. */
bool flag_next_name(const char **at, Word *name);
bool flag_next_choice(const char **at, Word *word);

/* A rule refuses a flag that would have no effect beside, or without, another flag. `flags` and `others` may
 * use any of a flag's names. A flag that asks for what happens anyway is not refused: --no-stream beside
 * --json. */
typedef struct {
  const char *flags; /* "-a, --best": the rule holds for each of them */
  /* NEEDS: one of `others` must be given. EXCLUDES: none may be given. EXCLUDES_UNLESS_ZERO: none may be
   * given, except with the value 0 (KIND_STRING). IDLE_AT_ZERO: none may have the value 0 (KIND_DOUBLE);
   * checked only for a setting, since a command line may give both flags. EXCLUDES_ZERO: likewise
   * (KIND_INT), and a setting of 0 is left out beside `flags`, too; a command refuses both itself. */
  enum { NEEDS, EXCLUDES, EXCLUDES_UNLESS_ZERO, IDLE_AT_ZERO, EXCLUDES_ZERO } kind;
  const char *others; /* "-c, --dry" */
  const char *why;    /* reason in the message, or NULL */
} FlagRule;

/* One invocation of a command. */
typedef struct {
  const char *word;            /* the command's name as given, else the program's */
  void *options;               /* the command's options struct, parsed */
  const char *const *operands; /* [n_operands] */
  size_t n_operands;
  size_t n_given;             /* flags on the command line; a repeated flag counts each time */
  Buffer out;                 /* written to standard output at the end unless the command fails */
  const char *usual_model;    /* the model that the file of settings names, or NULL */
  const char *const *aliases; /* [n_aliases] sections of the file of settings */
  size_t n_aliases;
} CommandCall;

typedef struct {
  const char *usage;       /* "auk pack MODEL -o FILE"; further lines show other forms */
  const char *about;       /* a sentence or paragraphs, which put_about() wraps; without a final newline */
  const char *examples;    /* or NULL; command lines, each optionally followed by a comment */
  const FlagGroup *groups; /* [n_groups] */
  size_t n_groups;
  const FlagRule *rules; /* [n_rules] */
  size_t n_rules;
  const char *usual_flags;   /* "-m, -p": the flags of the short help; NULL: --help shows all flags */
  size_t max_operands;       /* arguments that are not flags; more are refused */
  ValueHint operands;        /* what operands are; VALUE_MODEL: a model in place of -m */
  const char *operand_words; /* "bash|zsh|fish": words that completions offer as operands; NULL: none */

  size_t options_size;  /* size of the options struct, zeroed if `defaults` is NULL */
  const void *defaults; /* the options' initial value */
  bool takes_foreign;   /* flags of llama.cpp are translated, or ignored with a note if auk needs none */
  bool lists_models;    /* the command uses CommandCall.usual_model and aliases, whatever flags it has */
  /* Puts operands into the options before the settings are applied, so that a section of the model that an
   * operand names holds; or NULL. */
  Status (*take_operands)(const CommandCall *call, Error *err);
  Status (*run)(CommandCall *call, Error *err);
} Interface;
#define INTERFACE_GROUPS(table) .groups = table, .n_groups = sizeof(table) / sizeof *(table)
#define INTERFACE_RULES(table)  .rules = table, .n_rules = sizeof(table) / sizeof *(table)
#define INTERFACE_MODEL_OPERAND .max_operands = 1, .operands = VALUE_MODEL

/* Returns the groups in turn, then a group with --help and --no-config, which every command has, then
 * NULL. */
const FlagGroup *interface_group(const Interface *interface, size_t index);
/* Returns the flags of all groups of interface_group() in turn, then NULL. *offset: of the flag's value in
 * the options. */
const Flag *interface_flag(const Interface *interface, size_t index, size_t *offset);
/* Finds the command's own flag text[0..size), which is not --help or --no-config; NULL: there is none. */
const Flag *interface_find(const Interface *interface, const char *text, size_t size, size_t *offset);

/* The flags of one invocation. given[i] is flag i as the command line or a setting spells it, or {NULL}. */
typedef struct {
  const Interface *interface;
  void *options;  /* the struct that the interface's groups describe */
  Word *given;    /* [number of flags] */
  size_t n_given; /* flags on the command line; a repeated flag counts each time */
  int *sources;   /* [number of flags] who gave the flag: 0: the command line, else FlagSetting.source */
  bool helped;    /* the help was printed, and nothing else is to be done */
  bool no_config;
  Buffer unknown, idle; /* message on flags that the command lacks; list of ignored flags of llama.cpp */
} FlagParse;

/* Begins the flags of an invocation. Free them with flags_end() also after a failure. */
Status flags_begin(const Interface *interface, void *options, FlagParse *parse, Error *err);
void flags_end(FlagParse *parse);

/* Parses argv[1 .. argc) into the options and operands[0 .. *n_operands). `operands` has room for argc or
 * max_operands, whichever is less (NULL if that is 0); n_operands may be NULL. --help and -h print the help
 * (--help all: all of it) and set `helped`: the command then ends with STATUS_OK. Mistakes and broken rules
 * are STATUS_USAGE, with one message for all unknown flags. flags_release() frees the lists in the options,
 * also after a failure. */
Status flags_take(FlagParse *parse, int argc, char **argv, const char **operands, size_t *n_operands,
                  Error *err);
/* Appends the values that are not zero, as arguments that give them to another process: name and value, each
 * with a NUL after it. PRECOND switches, ints, doubles, strings and choices only */
Status flags_write(const Flag *flags, size_t n_flags, const void *values, Buffer *out, Error *err);
/* Calls flags_begin(), flags_take() and flags_end(). */
Status flags_parse(const Interface *interface, void *options, int argc, char **argv, const char **operands,
                   size_t *n_operands, bool *helped, Error *err);
void flags_release(const Interface *interface, void *options);

/* A value of a flag from elsewhere than the command line. */
typedef struct {
  const Flag *flag;
  Word name;         /* the flag's name, as the source spells it */
  const char *value; /* NULL for a switch */
  int source;        /* 1, 2, ...: of two sources the smaller number wins */
  bool weak;         /* see Flag.weak */
} FlagSetting;
typedef enum { SET_DONE, SET_ABSENT, SET_OVERRIDDEN, SET_EXCLUDED } SetResult;

/* Sets a flag, except in three cases: the command lacks it (SET_ABSENT), a source with a smaller number gave
 * it (SET_OVERRIDDEN), a rule excludes it with the given flags (SET_EXCLUDED). The last value of a source
 * counts; lists collect. */
Status flags_set(FlagParse *parse, const FlagSetting *setting, SetResult *result, Error *err);
/* True if the command has the flag of this table entry; for -m, any FLAG_MODEL entry. */
bool interface_has(const Interface *interface, const Flag *flag);
/* Refuses (STATUS_USAGE) a value that the flag does not take. */
Status flag_check_value(const Flag *flag, const char *name, const char *value, Error *err);

/* Finds the options' members for -m and for the model that the file of settings names. False: the command has
 * no -m. */
bool flags_model(const Interface *interface, void *options, const char ***path, const char ***usual);
/* Refuses an empty value. */
Status flag_check_filled(const char *name, const char *text, Error *err);
/* Sets -m to an operand. Two models are STATUS_USAGE. */
Status flags_take_model(const Interface *interface, void *options, const char *operand, Error *err);
