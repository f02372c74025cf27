/* map_claim.h - `--claim DIR`: processes, also of several machines, share blocks of records by a directory
 * that all of them see. Each takes a free block, answers its records and writes their results; blocks of a
 * process that has died are taken over.
 *
 *     DIR/job/settings             settings like the head of OUT.resume, equal to those of every process
 *     DIR/taken/00000012/OWNER     block 12 is taken by OWNER: machine, process id and a random number
 *     DIR/done/00000012            all results of block 12, then a hash of them: 16 hexadecimal digits
 *     DIR/alive/OWNER              a number that OWNER changes while it lives
 *
 * A directory that is not empty cannot be replaced by rename(): so one process alone moves its own directory
 * to taken/00000012, and one process alone takes it over by renaming the file OWNER in it. Clocks are not
 * compared: a process is dead if its number has not changed for --lease seconds of the observer's time, or if
 * it removed its file. Should it live after all (it was stopped, or its network was), it finds its block
 * taken over, and drops the results: done/00000012 is never replaced. */
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
/* Writes the results of a block that was taken. *given is false, and the results are dropped, if another
 * process has taken the block over, or has written its results before. */
Status claims_give(Claims *claims, size_t block, const void *bytes, size_t size, bool *given, Error *err);
/* True if a block was seen to have results, of any process. */
bool claims_is_done(const Claims *claims, size_t block);
/* To be called at the end: fails if blocks could not be done because something that is no results file is
 * named DIR/done/BLOCK (a note has said so). */
Status claims_check_end(const Claims *claims, Error *err);
/* Lets other processes take this process's unfinished blocks. NULL is fine. */
void claims_close(Claims *claims);

/* The hash of a block's name. The hash of the block's results continues it (record_hash()), so that another
 * block's results are noticed under this name. */
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
