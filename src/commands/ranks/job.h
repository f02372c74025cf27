/* job.h - the rank of this process, and the number of processes, in a job that srun, mpirun or torchrun has
 * started, according to the environment. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "base/buffer.h"

/* Finds *rank, from 0, among *n processes, 1 to `most`. `flag` ("--shard auto") begins messages; `otherwise`
 * ends the message for a process that no job has started. */
Status job_find(const char *flag, const char *otherwise, size_t most, size_t *rank, size_t *n, Error *err);

/* The index of this process among those of its machine; -1: not known. */
int job_local_rank(void);
/* True if the environment says that all processes are on one machine, and the user has named no address. */
bool job_needs_no_network(void);
/* True if PyTorch's torchrun started this process. torchrun sets MASTER_ADDR and MASTER_PORT, and listens on
 * that port. */
bool job_is_of_torchrun(void);
/* Appends the host of rank 0: 127.0.0.1 if job_needs_no_network(), else MASTER_ADDR, else the first host of
 * Slurm's step or job. */
Status job_first_host(Buffer *host, Error *err);
/* Appends text that all processes of a job share, and that no other job of this user has at the time. */
Status job_name(Buffer *name, Error *err);
