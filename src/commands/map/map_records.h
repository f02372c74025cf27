/* map_records.h - the records of --map: lines, or texts that end in a NUL, read as they come.
 *
 * Always true: one record is held at a time, and no more of it than the limit, so that the input may be
 * endless and a line of any length. */
#ifndef AUK_COMMANDS_MAP_MAP_RECORDS_H
#define AUK_COMMANDS_MAP_MAP_RECORDS_H

#include <stdbool.h>

#include "base/buffer.h"

/* A text that needs more bytes than this fits no context. */
#define RECORD_LIMIT ((size_t)16 << 20)

/* What a record is, beside its bytes. A line loses the CR before its LF, the first one a byte order mark.
 * What follows the last end is a record too, unless it is empty; an empty line is one. */
typedef struct {
  char end;          /* '\n' or NUL */
  bool passes_blank; /* those of white space only are none (JSON Lines) */
  bool verbatim;     /* neither CR nor mark is taken off */
  size_t limit;      /* bytes of one record that are kept */
  uint64_t hash;     /* where the hash of a record begins */
} RecordRules;

typedef struct {
  size_t index;     /* 0 ... */
  size_t line;      /* 1 ...: of all that end as records do, those that were passed over too */
  const char *text; /* [size] until the next one is read; not checked, not even for UTF-8 */
  size_t size;
  bool ended;    /* its end was there: false for the last at most */
  bool cut;      /* it is longer than the limit: text is its beginning */
  uint64_t hash; /* of all its bytes as they were read, without the end */
} Record;

typedef struct {
  const char *name; /* for messages */
  RecordRules rules;
  int descriptor;
  bool owned;                      /* the descriptor is to be closed */
  const volatile int *interrupted; /* or NULL */
  char *bytes;                     /* [capacity] read ahead: bytes[at .. size) are not used yet */
  size_t at, size;
  Buffer record;
  size_t n_records, n_lines;
  uint64_t n_consumed, n_total; /* bytes of all records so far; of the file, 0 where that is not known */
} RecordReader;                 /* starts zeroed */

/* FNV-1a, 64 bits: tells a changed record from the one it was, not a forged one. */
#define RECORD_HASH_START 0xcbf29ce484222325u
uint64_t record_hash(uint64_t hash, const void *bytes, size_t size);

/* Opens a file, or standard input for "-". Release with record_reader_close(), also after a failure. */
Status record_reader_open(const char *path, RecordRules rules, const volatile int *interrupted,
                          RecordReader *reader, Error *err);
/* The same over a descriptor, which stays the caller's, from where it stands. */
Status record_reader_attach(int descriptor, const char *name, RecordRules rules, RecordReader *reader,
                            Error *err);
void record_reader_close(RecordReader *reader);

/* The next record; *found is false where there is none. Waits for it; a signal that set *interrupted ends
 * that (STATUS_INTERRUPTED). */
Status record_reader_next(RecordReader *reader, Record *record, bool *found, Error *err);

#endif
