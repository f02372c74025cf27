/* map_records.h - reads the records of --map: lines, or texts that end in NUL.
 * Always true: memory holds at most one record, cut to the limit, and 64 KiB of input (READ_AHEAD). So the
 *              input may be endless, but each record has to end within MOST_UNENDED bytes (map_records.c). */
#pragma once

#include <stdbool.h>

#include "base/buffer.h"

/* Most bytes of a record: longer texts fit no context. */
#define RECORD_LIMIT ((size_t)16 << 20)

/* A part of the records: those with the numbers `first`, `first` + `step`, `first` + 2 `step` and so on,
 * counted from 0. Zeroed: all records. */
typedef struct {
  size_t first, step;
} RecordShare;

/* Rules for records. A line loses a CR at its end; the first record loses a byte order mark. Bytes after the
 * last LF (or NUL) are a record, too; an empty line is a record. */
typedef struct {
  char end;          /* '\n' or NUL */
  bool passes_blank; /* blank records are skipped (JSON Lines) */
  bool verbatim;     /* CR and byte order mark are kept */
  size_t limit;      /* bytes that are kept of a record */
  int n_copies;      /* each record is returned n_copies times; 0: once */
  RecordShare share; /* the records that are returned; all others are passed over */
  uint64_t hash;     /* initial value of the record hashes */
} RecordRules;

typedef struct {
  size_t index;     /* 0 ...: counts each copy */
  int copy;         /* 0 .. n_copies - 1 */
  size_t line;      /* 1 ...: counts skipped records too */
  const char *text; /* [size] valid until the next record; unchecked, even for UTF-8 */
  size_t size;
  bool ended;    /* the record's end was read; false at most for the last record */
  bool cut;      /* longer than the limit: `text` is the beginning */
  uint64_t hash; /* hash of all bytes of the record as read, without the end */
} Record;

typedef struct {
  const char *name; /* for messages */
  RecordRules rules;
  int descriptor;
  bool owned;                      /* the descriptor is to be closed */
  const volatile int *interrupted; /* or NULL */
  char *bytes;                     /* [READ_AHEAD] bytes[at .. size) are unread */
  size_t at, size;
  Buffer record;
  Record last; /* n_copies_left more copies of this record follow */
  int n_copies_left;
  size_t n_records, n_lines;
  /* Hash of the hashes of all records so far. Each record counts once, also a record of another share; a
   * skipped record does not count. */
  uint64_t hash;
  uint64_t n_consumed, n_total; /* bytes of all records so far; size of the file, 0 if unknown */
} RecordReader;                 /* starts zeroed */

/* The index, among all results, of the `nth` result (from 0) of a share. Each record has n_copies results; 0
 * means 1. */
size_t record_index(const RecordShare *share, int n_copies, size_t nth);

/* FNV-1a, 64 bits: detects changed records, not forged ones. */
#define RECORD_HASH_START 0xcbf29ce484222325u
uint64_t record_hash(uint64_t hash, const void *bytes, size_t size);

/* Opens a file, or standard input for "-". Close with record_reader_close(), also after a failure. */
Status record_reader_open(const char *path, RecordRules rules, const volatile int *interrupted,
                          RecordReader *reader, Error *err);
/* record_reader_open() for texts in memory, each followed by rules.end; `name` is for messages. */
Status record_reader_open_texts(const Buffer *texts, const char *name, RecordRules rules,
                                RecordReader *reader, Error *err);
/* record_reader_open() for a descriptor of the caller, from its current position. */
Status record_reader_attach(int descriptor, const char *name, RecordRules rules, RecordReader *reader,
                            Error *err);
void record_reader_close(RecordReader *reader);

/* Where a record begins. */
typedef struct {
  uint64_t offset;
  size_t number; /* records before the place, each counted once */
  size_t line;   /* lines before the place */
  uint64_t hash; /* hash of the hashes of all records before the place */
} RecordPlace;
/* record_reader_place(): the place of the next record. PRECOND all copies of the last record are given out.
 * record_reader_return(): continues at a place. PRECOND the input is a regular file, opened by its name. */
RecordPlace record_reader_place(const RecordReader *reader);
Status record_reader_return(RecordReader *reader, const RecordPlace *place, Error *err);

/* Waits for and reads the next record; *found is false at the end. A signal that sets *interrupted ends the
 * wait (STATUS_INTERRUPTED). */
Status record_reader_next(RecordReader *reader, Record *record, bool *found, Error *err);
/* True if input for the next record, or the end of the input, is there. Reading may still wait for the rest
 * of that record, or for a later one if that record is skipped. */
bool record_reader_is_ready(const RecordReader *reader);
