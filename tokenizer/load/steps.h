/* steps.h - the steps that a tokenizer.json runs as its normalizer, its pre-tokenizer and its decoder. */
#pragma once

#include "tokenizer/load/fields.h"
#include "tokenizer/regex/kinds.h"
#include "tokenizer/regex/pattern.h"

#define MAX_STEPS 64 /* of a normalizer, a pre-tokenizer or a decoder */

/* The treatment of a match (reference: SplitDelimiterBehavior). */
typedef enum {
  BEHAVIOR_REMOVED,
  BEHAVIOR_ISOLATED,
  BEHAVIOR_MERGED_WITH_PREVIOUS,
  BEHAVIOR_MERGED_WITH_NEXT,
  BEHAVIOR_CONTIGUOUS,
} Behavior;

typedef enum { PREPEND_ALWAYS, PREPEND_FIRST, PREPEND_NEVER } PrependScheme;

/* One step. The comment of a member names the kinds that use it; a name without NORMAL_, SPLIT_ or DECODE_
 * means each kind of that name. */
typedef struct {
  int kind;        /* NormalKind (normalize.h), SplitKind (split.h) or DecodeKind (decode.h) */
  Pattern pattern; /* REPLACE; SPLIT_PATTERN; SPLIT_METASPACE: the mark; SPLIT_BYTE_LEVEL: GPT-2's, or none */
  char *content;   /* [content_size] REPLACE: the replacement; PREPEND: the text; CHARSMAP: the table */
  size_t content_size;
  size_t n_units; /* CHARSMAP: 4-byte units of the trie */
  char mark[5];   /* [mark_size] one character. METASPACE: the replacement; DECODE_STRIP: what is stripped */
  size_t mark_size;
  KindMap map;           /* NFC to NFKD, SPLIT_CHARACTERS: divides the characters by their flags */
  uint8_t role[4];       /* of a character, by its kind in `map`: see the enum of the step's kind */
  bool left, right;      /* NORMAL_STRIP */
  int64_t start, stop;   /* DECODE_STRIP: the most to strip at each end */
  Behavior behavior;     /* SPLIT_PATTERN, SPLIT_CHARACTERS, SPLIT_METASPACE, SPLIT_BYTE_LEVEL */
  bool invert;           /* SPLIT_PATTERN: what does not match is the match */
  PrependScheme scheme;  /* METASPACE */
  bool split;            /* SPLIT_METASPACE: also cut */
  bool add_prefix_space; /* SPLIT_BYTE_LEVEL */
  bool fused;            /* decoder: an earlier step joins all tokens to one text, which comes in parts */
} Step;

/* A flattened Sequence of steps. Read-only once loaded. */
typedef struct {
  Step *steps; /* [count], at most MAX_STEPS */
  size_t count, capacity;
  bool absent; /* the file has none */
  Where where; /* begins the messages */
} Steps;

/* A type of step: how a file names it, its members and what reads them. */
typedef struct {
  const char *type, *members; /* members NULL: load() refuses unknown ones */
  int kind;
  Status (*load)(const char *where, const Json *json, Step *step, Error *err); /* NULL: nothing to read */
} StepType;

/* Loads the JSON of a normalizer, pre-tokenizer or decoder (NULL: none). `list`: key of a Sequence's array;
 * `plural`: the steps' name for messages; `types` ends with a row without a type; a type that is not in it is
 * refused. Release *steps also after a failure. */
Status steps_load(const char *where, const Json *json, const char *list, const char *plural,
                  const StepType *types, Steps *steps, Error *err);
void steps_release(Steps *steps);

/* Reads the options of a Metaspace (pre-tokenizer or decoder), as new or old files name them: sets the step's
 * mark, scheme and split (true by default). STATUS_MODEL if options contradict each other. */
Status metaspace_load(const char *where, const Json *json, Step *step, Error *err);

/* Calls add() for the component `json`. For a Sequence does the same with each component in its array, which
 * has the key `list`. `depth`: number of Sequences around `json`, refused above 32. */
typedef Status AddComponent(void *owner, const char *where, const char *type, const Json *json, Error *err);
Status field_components(const char *where, const Json *json, const char *list, int depth, AddComponent *add,
                        void *owner, Error *err);
