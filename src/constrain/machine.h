/* machine.h - a parser of JSON text, byte by byte. It refuses a byte after which the text cannot satisfy a
 * schema.
 *
 * A JsonState is the state after some bytes of a text. Copying it costs 24 bytes; going back to a copy undoes
 * the bytes since. Each open array and object has a Frame. Frames never change but for values that are
 * computed on first use. Their arena is released like a stack (machine_mark, machine_release).
 *
 *   {"a": [1,           states: top -> Frame of the array -> Frame of the object -> root Frame
 *
 * A value is judged by several subschemas at once, which are its goals. `need` is a formula over goals: what
 * must still be possible. Where rules make members or items depend on one another, a bounded search
 * (closing.h) finds out whether `need` is possible. When a value closes, each goal is decided exactly. */
#pragma once

#include "base/arena.h"
#include "constrain/schema.h"
#include "constrain/store/key_table.h"

typedef struct Frame Frame;

/* A key that an open object has had, or the hash of an item that an array has had. */
typedef struct Seen {
  const struct Seen *before;
  uint64_t hash;
  uint64_t sum;      /* of hash64(hash) over this entry and all before: their order has no effect */
  const char *bytes; /* [size] of a key */
  size_t size;
  Lang keys, other_keys; /* other_keys: `keys` without this key and those before; keys LANG_NONE: unset */
} Seen;

/* The keys of `properties` of some schemas and their in-place subschemas, in written order. */
typedef struct {
  uint32_t *schemas; /* [n_schemas] */
  uint32_t n_schemas;
  NumberList keys;
  KeyTable ranks; /* key + 1: its rank, from 1 on */
  Lang words;     /* the keys as a language */
} KeyOrder;

/* The keys that may come next in a frame. `print` is a hash of all that they depend on. */
#define N_KNOWN_KEYS 64
typedef struct {
  uint64_t print;
  Lang keys;
} KnownKeys;

typedef enum { FRAME_ROOT, FRAME_ARRAY, FRAME_OBJECT } FrameKind;

struct Frame {
  const Frame *up;
  uint8_t kind;          /* FrameKind */
  bool hashing;          /* values are hashed, for uniqueItems of this frame or of one above */
  uint8_t searched;      /* closing_is_searched() + 1, 0: not known yet */
  bool is_unsure;        /* the search for child_need found no verdicts that are CLOSE_SURE (closing.h) */
  uint32_t count;        /* members or items begun */
  uint32_t rank;         /* rank of the last key in `order`; 0: none */
  Formula need;          /* a formula over ATOM_GOAL: what must be possible */
  Formula child_need;    /* like `need`, but over the goals of the open member or item */
  const KeyOrder *order; /* order of an object's keys; NULL: any order */
  uint32_t n_goals, n_children;
  const Seen *seen;
  uint64_t hash;   /* hash of the members or items so far */
  uint64_t print;  /* frame_print(), 0: not made yet */
  uint32_t lex[3]; /* lex states in which a string, number and key begin; LANG_UNKNOWN: not made */
  uint32_t numbers
      []; /* goals (Formula) [n_goals], their schemas [n_goals], schemas of the open child [n_children] */
};
static inline const Formula *frame_goals(const Frame *frame) {
  return frame->numbers;
}
static inline const uint32_t *frame_goal_schemas(const Frame *frame) {
  return frame->numbers + frame->n_goals;
}
static inline const uint32_t *frame_children(const Frame *frame) {
  return frame->numbers + 2 * (size_t)frame->n_goals;
}

typedef enum {
  PHASE_VALUE,      /* a value begins */
  PHASE_FIRST_ITEM, /* a value begins or the array ends */
  PHASE_FIRST_KEY,  /* a key begins or the object ends */
  PHASE_KEY,        /* a key begins */
  PHASE_STRING,
  PHASE_KEY_STRING,
  PHASE_NUMBER,
  PHASE_LITERAL, /* in null, true or false */
  PHASE_COLON,
  PHASE_AFTER, /* after a member or item */
  PHASE_END,   /* after the text */
} Phase;

typedef struct {
  const Frame *top;
  uint32_t lex;     /* state of the string or number, lex.h */
  uint32_t n_text;  /* bytes so far */
  uint32_t start;   /* where the string, after its quote, or the number began */
  uint8_t phase;    /* Phase */
  uint8_t kind, at; /* in null, true or false: `kind` is its JsonKind, `at` the number of its bytes so far */
} JsonState;

typedef struct Lex Lex;

typedef struct {
  size_t chunk, used;
} ArenaMark;

typedef struct {
  SchemaSet *set;
  char *text; /* [text_capacity] bytes of the text up to the present state */
  size_t text_capacity;
  char **chunks; /* [n_chunks] of the arena */
  size_t n_chunks, chunks_capacity;
  ArenaMark mark;
  Lex *lexes; /* [n_lexes] */
  size_t n_lexes, lexes_capacity;
  KeyTable lexes_by_content;
  uint32_t lex_mark; /* number of the last search that set Lex.mark */
  Lang *lex_langs;   /* [lex_langs_count] */
  size_t lex_langs_count, lex_langs_capacity;
  Buffer decoded;          /* a key or string without its escapes */
  bool has_open;           /* some schema has unevaluatedItems or unevaluatedProperties */
  size_t tidy_at;          /* at so many chunks machine_tidy() copies the frames; 0: at TIDY_CHUNKS */
  uint32_t lex_generation; /* grows when lexes are numbered anew */
  uint32_t max_prefix;     /* longest list of prefixItems */
  uint32_t *places;        /* [set->count] scratch of frames.c: index of a schema in a list of children */
  KnownKeys known_keys[N_KNOWN_KEYS];
  KeyTable orders;   /* KeyOrders by a hash of their schemas */
  KeyTable closings; /* answers of closing_of() */
  Arena examples;    /* keys that closing.c tries */
  KeyTable few;      /* language + 1: whether it has few strings; hash of (language, n): its n-th example */
  bool is_judging;   /* texts are judged, not written: a byte is taken unless it is known to lead nowhere */
  bool is_searching;
  uint32_t search_depth, search_left; /* of the present search (closing.c); search_left: steps left */
  Lang plain_number;                  /* one text for each number; LANG_UNKNOWN: not made yet */
  Failure failure;
} Machine;

/* The set must outlive the machine. */
Status machine_open(SchemaSet *set, Machine *machine, Error *err);
void machine_close(Machine *machine);
Status machine_check(const Machine *machine, Error *err);

/* Begins a text. False if no text satisfies the schema, as far as is known before the first byte. */
bool machine_begin(Machine *machine, JsonState *state);
/* machine_begin() for texts of a subschema. */
bool machine_begin_with(Machine *machine, uint32_t schema, JsonState *state);
/* Takes a byte; false if it is refused: the state then is undefined. */
bool machine_push(Machine *machine, JsonState *state, unsigned char byte);
/* True if the text may end here. */
bool machine_may_end(Machine *machine, const JsonState *state);

/* Ends the open string, key or number here, before its quote. False if the value or key is refused. The text
 * is read only if it is a key, or if values are hashed (Frame.hashing); the verdicts come from state->lex.
 * PRECOND lex_may_end() */
bool machine_end_text(Machine *machine, JsonState *state);
/* Hashes that equal values share. False for a number too long to compare. */
uint64_t machine_literal_hash(JsonKind kind);
bool machine_text_hash(JsonKind kind, const char *bytes, size_t size, uint64_t *hash);
/* Writes the open key or string, without escapes, to machine->decoded; false if memory runs out. */
bool machine_decode(Machine *machine, const JsonState *state);
/* Only stores a byte of the text: for callers that have stepped state->lex themselves. */
bool machine_write(Machine *machine, uint32_t at, unsigned char byte);

static inline ArenaMark machine_mark(const Machine *machine) {
  return machine->mark;
}
static inline void machine_release(Machine *machine, ArenaMark mark) {
  machine->mark = mark;
}
/* Frees memory that only the text before `state` needed, if it is much. True: other states and marks are no
 * longer valid. */
bool machine_tidy(Machine *machine, JsonState *state);
void *machine_alloc(Machine *machine, size_t size);
void machine_fail(Machine *machine, const char *message);
void machine_limit(Machine *machine, const char *limit); /* the text or schema is refused (STATUS_USAGE) */
