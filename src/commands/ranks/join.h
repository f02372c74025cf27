/* join.h - `--split auto`: the processes of a job, one GPU each, share a model (cuda/several/ranks.h).
 *
 * Environment, the same for all processes: MASTER_ADDR and MASTER_PORT say where rank 0 listens. Without
 * MASTER_ADDR rank 0 listens on this machine if all processes are here, else on the first host of Slurm's
 * step. By default, and always with torchrun, the port depends on the job. AUK_RANKS_KEY is text that only
 * the job knows (by default the file ranks-key in auk's directory of settings, which rank 0 makes).
 * AUK_RANKS_TIMEOUT: seconds to wait for the other processes. */
#pragma once

#include "base/status.h"
#include "commands/device.h"
#include "commands/model_flags.h"

/* Finds this process's rank and the number of processes, without connecting: STATUS_USAGE if no job has
 * started it. */
Status ranks_find(int *rank, int *n, Error *err);
/* Connects all processes; options get the ranks, and the GPU of this process. */
Status ranks_connect(const DeviceFlags *flags, BackendOptions *options, Error *err);
/* Compares the programs, flags and models of all processes, once: later calls do nothing. */
Status ranks_compare(Device *device, const Model *model, Error *err);

/* In a process other than rank 0: repeats what rank 0 computes, with the same flags. Returns only if this
 * process has failed before it was connected. dummy: --dummy-weights of bench. */
Status ranks_follow(const ModelFlags *model, const DeviceFlags *flags, bool dummy, Error *err);
