/* flags.h - a command's flags as tables of typed values, from which both the parsing and the help are made.
 *
 *   Flag flags[] = {
 *       flag_int("-n, --n-predict, --max-new-tokens", "N", &n, -1, INT_MAX, "tokens to make at most"),
 *       flag_switch("--raw", &raw, "no chat format"),
 *   };
 *   const FlagGroup groups[] = {model_flag_group(&model), {"Answer", flags, sizeof flags / sizeof *flags}};
 *   const Interface interface = {"auk run -m MODEL -p TEXT", "Answers a prompt.", groups, 2, 1};
 *
 * Names are matched whole ('_' in place of '-' is fine). A value follows as the next argument, whatever it
 * begins with, or behind '=' for names of two dashes. A flag given twice: the last one counts, lists collect.
 * "--" ends the flags; a lone "-" is an operand. Values keep what they held where a flag is not given, so
 * defaults are set before. */
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
  FLAG_SWITCH,
  FLAG_INT,
  FLAG_DOUBLE,
  FLAG_SEED,
  FLAG_STRING,
  FLAG_CHOICE,
  FLAG_STRINGS,
  FLAG_INTS
} FlagKind;

typedef struct {
  const char *names;    /* all spellings, "-n, --n-predict" */
  const char *argument; /* what the help calls the value; for a choice the words themselves, "f16|f32" */
  const char *help;
  FlagKind kind;
  union {
    bool *on;            /* SWITCH: becomes true */
    int *integer;        /* INT */
    double *number;      /* DOUBLE */
    Seed *seed;          /* SEED: 0 .. 2^64 - 1; -1 means not given */
    const char **string; /* STRING: points into argv */
    int *choice;         /* CHOICE: the word's index */
    StringList *strings; /* STRINGS: every occurrence adds one */
    IntList *integers;   /* INTS: every occurrence adds its comma-separated numbers */
  };
  double low, high; /* INT, INTS, DOUBLE: what is accepted */
} Flag;

Flag flag_switch(const char *names, bool *on, const char *help);
Flag flag_int(const char *names, const char *argument, int *value, int low, int high, const char *help);
Flag flag_double(const char *names, const char *argument, double *value, double low, double high,
                 const char *help);
Flag flag_seed(const char *names, Seed *seed, const char *help);
Flag flag_string(const char *names, const char *argument, const char **value, const char *help);
Flag flag_choice(const char *names, const char *words, int *index, const char *help);
Flag flag_strings(const char *names, const char *argument, StringList *list, const char *help);
Flag flag_ints(const char *names, const char *argument, IntList *list, int low, int high, const char *help);

typedef struct {
  const char *title; /* in the help, without a colon */
  const Flag *flags; /* [n_flags] */
  size_t n_flags;
} FlagGroup;

typedef struct {
  const char *usage; /* "auk pack MODEL -o FILE"; further lines are other ways to call it */
  const char *about; /* a sentence or paragraphs, each line to 100 characters, without a newline at the end */
  const FlagGroup *groups; /* [n_groups] */
  size_t n_groups;
  size_t max_operands; /* arguments that belong to no flag; more are refused */
} Interface;

/* Parses argv[1 .. argc) into the values the groups point at, and operands[0 .. *n_operands) (room for
 * max_operands; both may be NULL when that is 0). --help and -h print the help to standard output and set
 * *helped: the command then ends with STATUS_OK. Mistakes are STATUS_USAGE. Lists are released by the caller,
 * also after a failure. */
Status flags_parse(const Interface *interface, int argc, char **argv, const char **operands,
                   size_t *n_operands, bool *helped, Error *err);

#endif
