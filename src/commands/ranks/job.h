/* job.h - which of how many processes this one is, in a job that srun, mpirun or torchrun has started. Its
 * environment says so. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "base/buffer.h"

/* *rank counts from 0; 1 to `most` processes are expected. `flag` ("--shard auto") begins messages, and
 * `otherwise` ends the one for a process that none of them has started. */
Status job_find(const char *flag, const char *otherwise, size_t most, size_t *rank, size_t *n, Error *err);

/* This process's number among those of its machine; -1: not known. */
int job_local_rank(void);
/* True if the environment says that all processes are on one machine, and the user has named no address. */
bool job_needs_no_network(void);
/* PyTorch's torchrun sets MASTER_ADDR and MASTER_PORT itself, and listens on that port. */
bool job_is_of_torchrun(void);
/* Appends the host of rank 0, where a job is on several machines: MASTER_ADDR, or the first of Slurm's
 * step. */
Status job_first_host(Buffer *host, Error *err);
/* Appends text that is the same in all processes of a job, and in no other job of this user at the time. */
Status job_name(Buffer *name, Error *err);
