/* map_shard.h - `--shard I/N`: this process answers every N-th record from the I-th on. N such processes
 * answer each record once. The results of one go to OUT.I-of-N; `auk merge` puts these files together. */
#pragma once

#include "commands/map/map_records.h"

typedef struct {
  size_t number, count; /* 1 <= number <= count <= SHARDS_MAX; both 0: all records are this process's */
} Shard;
enum { SHARDS_MAX = 65536 };

/* Reads "I/N". "auto" takes both numbers from the environment variables of the program that started this
 * process: torchrun, Open MPI, a program with PMI, or Slurm (job_find()). */
Status shard_choose(const char *text, Shard *shard, Error *err);
/* Which records a shard has, and how many of n_records. */
RecordShare shard_share(const Shard *shard);
size_t shard_size(const Shard *shard, size_t n_records);

/* shard_write() appends "I of N"; shard_read() reads such a text, and returns false for any other. */
Status shard_write(const Shard *shard, Buffer *out, Error *err);
bool shard_read(const char *text, Shard *shard);
/* Appends "PATH.I-of-N" and a NUL. */
Status shard_path(const Shard *shard, const char *path, Buffer *out, Error *err);
