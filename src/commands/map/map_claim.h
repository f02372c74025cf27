/* map_claim.h - `--claim DIR`: processes of one or several machines share blocks of records through a
 * directory that all of them see. Each process takes a free block, answers its records and writes their
 * results. When a process has died, others take its blocks over.
 *
 *     DIR/job/settings             settings like the head of OUT.resume, equal to those of every process
 *     DIR/taken/00000012/OWNER     block 12 is taken by OWNER: machine, process id and a random number
 *     DIR/done/00000012            all results of block 12, then a hash of them: 16 hexadecimal digits
 *     DIR/alive/OWNER              a number that OWNER changes while it lives, and its --lease
 *
 * rename() cannot replace a directory that is not empty. So only one process can move its own directory to
 * taken/00000012. Only one can take the block over, by renaming the file OWNER there. Clocks are not
 * compared: a process is dead if it removed its file, or if its number has not changed for --lease seconds of
 * the observer's time (the longer --lease of the two counts). It may live after all (it was stopped, or its
 * network was). Then it finds its block taken over and drops the results: done/00000012 is never replaced. */
#pragma once

#include "commands/map/map_resume.h"

typedef struct Claims Claims;

typedef struct {
  const char *directory;
  int lease_s;
  ResultsFormat format;
  const MapSettings *settings;
  size_t n_blocks;
  const volatile int *interrupted;
} ClaimOptions;

/* Opens the directory, or makes it. Refuses (STATUS_USAGE) a directory with other settings, or with files of
 * other programs. From then on a thread changes this process's number. */
Status claims_open(const ClaimOptions *options, Claims **claims, Error *err);
/* Takes a block. *at_end: each block is done, is this process's, or cannot be done (claims_check_end()).
 * may_wait: waits until there is a block or the end; else both *found and *at_end may be false. */
Status claims_next(Claims *claims, bool may_wait, size_t *block, bool *found, bool *at_end, Error *err);
/* Writes the results of a block that was taken. If another process has taken the block over or written its
 * results, drops the results and sets *given to false. */
Status claims_give(Claims *claims, size_t block, const void *bytes, size_t size, bool *given, Error *err);
/* True if a block was seen to have results, of any process. */
bool claims_is_done(const Claims *claims, size_t block);
/* Call this function at the end. Fails if a block could not be done because something other than a results
 * file has its name DIR/done/BLOCK (a note has said so). */
Status claims_check_end(const Claims *claims, Error *err);
/* Lets other processes take this process's unfinished blocks. NULL is fine. */
void claims_close(Claims *claims);

/* Hash of a block's name. The hash of the block's results starts with it (record_hash()), so that results of
 * another block are noticed under this name. */
uint64_t claims_hash_start(size_t block);
/* Appends the name of a block's results, "DIR/done/00000012", and a NUL. */
Status claims_result_path(const char *directory, size_t block, Buffer *path, Error *err);
/* Looks for a block's results; *there is false if nothing has their name. Fails if a file of this name cannot
 * be results: the message says what the file is and how to go on. */
Status claims_look_for_result(const char *path, bool *there, Error *err);
enum { OWNER_SIZE = 96 };
/* Sets `owner` to the name of the process that has taken the block; empty: none has. */
void claims_owner(const char *directory, size_t block, char owner[OWNER_SIZE]);
/* Reads DIR/job/settings; STATUS_USAGE if `directory` is not one of --claim. */
Status claims_settings(const char *directory, ResultsFormat *format, MapSettings *settings, Error *err);
