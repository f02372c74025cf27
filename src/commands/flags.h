/* flags.h - a command's flags as constant tables, from which the parsing, the help, the completions and the
 * man page are made.
 *
 *   typedef struct { ModelFlags model; int n; bool raw; } Options;
 *   static const Flag flags[] = {
 *       FLAG_INT("-n, --n-predict", "N", Options, n, -1, INT_MAX, "tokens to make at most"),
 *       FLAG_SWITCH("--raw", Options, raw, "no chat format"),
 *   };
 *   static const FlagGroup groups[] = {MODEL_FLAG_GROUP(Options, model), FLAG_GROUP("Answer", flags)};
 *   const Interface run_interface = {.usage = "auk run -m MODEL -p TEXT", .about = "Answers a prompt.",
 *                                    .groups = groups, .n_groups = sizeof groups / sizeof *groups};
 *
 * A flag knows where its value lies in the options; that it has the type which the flag fills is checked by
 * the compiler. Names are matched whole ('_' in place of '-' is fine). A value follows as the next argument,
 * whatever it begins with, or behind '=' for names of two dashes. A flag given twice: the last one counts,
 * lists collect, and a FLAG_STRING_ONCE is refused. "--" ends the flags; a lone "-" is an operand. Values
 * keep what they held where a flag is not given, so defaults are set before. */
#ifndef AUK_COMMANDS_FLAGS_H
#define AUK_COMMANDS_FLAGS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

typedef struct {
  const char **items; /* [count], each belongs to argv */
  size_t count, capacity;
} StringList;
/* Appends an item, which is not copied; the list is as it was where memory is out. */
Status string_list_add(StringList *list, const char *item, Error *err);
void string_list_release(StringList *list);

typedef struct {
  int *items; /* [count] */
  size_t count, capacity;
} IntList;
/* Likewise. */
Status int_list_add(IntList *list, int item, Error *err);
void int_list_release(IntList *list);

typedef struct {
  bool given;
  uint64_t value;
} Seed;

typedef enum {
  KIND_SWITCH,  /* bool: becomes true */
  KIND_INT,     /* int in low .. high */
  KIND_DOUBLE,  /* double in low .. high */
  KIND_SEED,    /* Seed: 0 .. 2^64 - 1; -1 means not given */
  KIND_STRING,  /* const char *: points into argv */
  KIND_CHOICE,  /* int: the word's index */
  KIND_STRINGS, /* StringList: every occurrence adds one */
  KIND_INTS     /* IntList: every occurrence adds its comma-separated numbers in low .. high */
} FlagKind;

/* What a string is, for completions. */
typedef enum { VALUE_TEXT, VALUE_FILE, VALUE_DIRECTORY, VALUE_MODEL } ValueHint;

typedef struct {
  const char *names;    /* all spellings, "-n, --n-predict" */
  const char *argument; /* what the help calls the value; for a choice the words themselves, "f16|f32" */
  const char *help;     /* one sentence or two, without a full stop at the end */
  FlagKind kind;
  ValueHint hint;
  const char *words; /* "a|b": what the value may be beside a file; NULL: nothing */
  size_t offset;     /* of the value, in the struct that its group belongs to */
  double low, high;
  bool once; /* a second one is refused: the first would be lost */
} Flag;

/* The offset of a member that has exactly this type: another one matches no branch and does not compile. */
#define MEMBER_OF_TYPE(Struct, member, Type)                                                                 \
  _Generic(&((Struct *)0)->member, Type * : offsetof(Struct, member))

#define FLAG_SWITCH(names_, Struct, member, help_)                                                           \
  { .names = names_, .help = help_, .kind = KIND_SWITCH, .offset = MEMBER_OF_TYPE(Struct, member, bool) }
#define FLAG_INT(names_, argument_, Struct, member, low_, high_, help_)                                      \
  FLAG_RANGE(KIND_INT, int, names_, argument_, Struct, member, low_, high_, help_)
#define FLAG_DOUBLE(names_, argument_, Struct, member, low_, high_, help_)                                   \
  FLAG_RANGE(KIND_DOUBLE, double, names_, argument_, Struct, member, low_, high_, help_)
#define FLAG_INTS(names_, argument_, Struct, member, low_, high_, help_)                                     \
  FLAG_RANGE(KIND_INTS, IntList, names_, argument_, Struct, member, low_, high_, help_)
#define FLAG_SEED(names_, Struct, member, help_)                                                             \
  FLAG_PLAIN(KIND_SEED, VALUE_TEXT, Seed, names_, "N", Struct, member, help_)
#define FLAG_CHOICE(names_, words_, Struct, member, help_)                                                   \
  FLAG_PLAIN(KIND_CHOICE, VALUE_TEXT, int, names_, words_, Struct, member, help_)
#define FLAG_STRING(names_, argument_, Struct, member, help_)                                                \
  FLAG_PLAIN(KIND_STRING, VALUE_TEXT, const char *, names_, argument_, Struct, member, help_)
/* A text that may be given once. */
#define FLAG_STRING_ONCE(names_, argument_, Struct, member, help_)                                           \
  {                                                                                                          \
    .names = names_, .argument = argument_, .help = help_, .kind = KIND_STRING, .once = true,                \
    .offset = MEMBER_OF_TYPE(Struct, member, const char *)                                                   \
  }
#define FLAG_FILE(names_, argument_, Struct, member, help_)                                                  \
  FLAG_PLAIN(KIND_STRING, VALUE_FILE, const char *, names_, argument_, Struct, member, help_)
#define FLAG_DIRECTORY(names_, argument_, Struct, member, help_)                                             \
  FLAG_PLAIN(KIND_STRING, VALUE_DIRECTORY, const char *, names_, argument_, Struct, member, help_)
#define FLAG_MODEL(names_, Struct, member, help_)                                                            \
  FLAG_PLAIN(KIND_STRING, VALUE_MODEL, const char *, names_, "MODEL", Struct, member, help_)
#define FLAG_STRINGS(names_, argument_, Struct, member, help_)                                               \
  FLAG_PLAIN(KIND_STRINGS, VALUE_TEXT, StringList, names_, argument_, Struct, member, help_)
#define FLAG_FILES(names_, argument_, Struct, member, help_)                                                 \
  FLAG_PLAIN(KIND_STRINGS, VALUE_FILE, StringList, names_, argument_, Struct, member, help_)

/* A file, or one of some names. */
#define FLAG_FILE_OR(words_, names_, argument_, Struct, member, help_)                                       \
  {                                                                                                          \
    .names = names_, .argument = argument_, .help = help_, .kind = KIND_STRING, .hint = VALUE_FILE,          \
    .words = words_, .offset = MEMBER_OF_TYPE(Struct, member, const char *)                                  \
  }

#define FLAG_PLAIN(kind_, hint_, Type, names_, argument_, Struct, member, help_)                             \
  {                                                                                                          \
    .names = names_, .argument = argument_, .help = help_, .kind = kind_, .hint = hint_,                     \
    .offset = MEMBER_OF_TYPE(Struct, member, Type)                                                           \
  }
#define FLAG_RANGE(kind_, Type, names_, argument_, Struct, member, low_, high_, help_)                       \
  {                                                                                                          \
    .names = names_, .argument = argument_, .help = help_, .kind = kind_,                                    \
    .offset = MEMBER_OF_TYPE(Struct, member, Type), .low = low_, .high = high_                               \
  }

typedef struct {
  const char *title; /* in the help, without a colon */
  const Flag *flags; /* [n_flags] */
  size_t n_flags;
  size_t offset; /* of the struct whose members the flags fill, in the command's options */
} FlagGroup;

/* Flags of the options themselves, and of a struct within them. */
#define FLAG_GROUP(title_, table)                                                                            \
  { .title = title_, .flags = table, .n_flags = sizeof(table) / sizeof *(table) }
#define FLAG_GROUP_IN(title_, table, Struct, member, Type)                                                   \
  {                                                                                                          \
    .title = title_, .flags = table, .n_flags = sizeof(table) / sizeof *(table),                             \
    .offset = MEMBER_OF_TYPE(Struct, member, Type)                                                           \
  }

/* One of the spellings or words that a flag lists. */
typedef struct {
  const char *text; /* [size] */
  size_t size;
} Word;
/* The next spelling, *at being flag->names at first; false behind the last. Likewise the words of a
 * choice. */
bool flag_next_name(const char **at, Word *name);
bool flag_next_choice(const char **at, Word *word);

/* What flags ask of each other: a flag that would be without effect beside another, or without one, is
 * refused. A flag stands here by any of its names, its promise being what counts: --no-stream goes with
 * --json, which comes at once anyway. */
typedef struct {
  const char *flags;             /* "-a, --best": each of them */
  enum { NEEDS, EXCLUDES } kind; /* one of the others; all of them */
  const char *others;            /* "-c, --dry" */
  const char *why;               /* in the message, or NULL */
} FlagRule;

typedef struct {
  const char *usage; /* "auk pack MODEL -o FILE"; further lines are other ways to call it */
  const char *about; /* a sentence or paragraphs, each line to 100 characters, without a newline at the end */
  const char *examples;    /* or NULL; command lines with a comment behind them, one a line */
  const FlagGroup *groups; /* [n_groups] */
  size_t n_groups;
  const FlagRule *rules; /* [n_rules] */
  size_t n_rules;
  size_t max_operands;       /* arguments that belong to no flag; more are refused */
  ValueHint operands;        /* what they are */
  const char *operand_words; /* where they are a choice its words, "bash|zsh|fish", else NULL */
} Interface;

/* The groups one after the other, and behind them one with --help, which every command has; then NULL. */
const FlagGroup *interface_group(const Interface *interface, size_t index);

/* Parses argv[1 .. argc) into `options`, the struct that the groups were made for, and
 * operands[0 .. *n_operands) (room for max_operands; both may be NULL when that is 0). --help and -h print
 * the help to standard output and set *helped: the command then ends with STATUS_OK. Mistakes, and
 * flags that break a rule, are STATUS_USAGE. Lists are released by the caller, also after a failure. */
Status flags_parse(const Interface *interface, void *options, int argc, char **argv, const char **operands,
                   size_t *n_operands, bool *helped, Error *err);

#endif
