/* job.c - see job.h.   Called by: map/map_shard.c, ranks/join.c. */
#include "commands/ranks/job.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Variables with the rank of this process, from 0, and the number of processes. The first complete pair
 * counts. torchrun's is first: srun may have started torchrun on each machine. Slurm's is last: in a Slurm
 * job mpirun passes on Slurm's variables, with the values of the job's script or of a helper. With PMI-1 or
 * PMI-2, srun sets PMI_RANK too. */
static const struct {
  const char *rank, *size;
  const char *starter; /* variable that this pair's launcher alone sets (others set the pair, too); or NULL */
  const char *step;    /* set in tasks, but not in the job's script; or NULL */
} variables[] = {
    {"RANK", "WORLD_SIZE", "TORCHELASTIC_RUN_ID", NULL},
    {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", NULL, NULL},
    {"PMI_RANK", "PMI_SIZE", NULL, NULL},
    {"SLURM_PROCID", "SLURM_NTASKS", NULL, "SLURM_STEP_ID"},
};

bool job_is_of_torchrun(void) {
  return getenv("TORCHELASTIC_RUN_ID") != NULL;
}

static bool is_number(const char *text) {
  const size_t size = text ? strlen(text) : 0;
  return size > 0 && size < 10 && strspn(text, "0123456789") >= size;
}

Status job_find(const char *flag, const char *otherwise, size_t most, size_t *rank_found, size_t *n_found,
                Error *err) {
  for (size_t i = 0; i < sizeof variables / sizeof *variables; i++) {
    const char *rank = getenv(variables[i].rank), *size = getenv(variables[i].size);
    char what[256];
    if (!rank || !size || (variables[i].starter && !getenv(variables[i].starter))) continue;
    snprintf(what, sizeof what, "%s=%.32s, %s=%.32s", variables[i].rank, rank, variables[i].size, size);
    if (!is_number(rank) || !is_number(size))
      return error_set(err, STATUS_USAGE, "%s: %s: expected two numbers", flag, what);
    *rank_found = (size_t)atol(rank);
    *n_found = (size_t)atol(size);
    if (variables[i].step && !getenv(variables[i].step) && *n_found > 1)
      return error_set(err, STATUS_USAGE,
                       "%s: this is the script of a Slurm job, not one of its %zu tasks: srun starts them",
                       flag, *n_found);
    if (*n_found >= 1 && *n_found <= most && *rank_found < *n_found) return STATUS_OK;
    return error_set(err, STATUS_USAGE, "%s: %s: expected 1 to %zu processes, and a rank below their number",
                     flag, what, most);
  }
  return error_set(
      err, STATUS_USAGE,
      "%s: neither srun, mpirun nor torchrun has started this (SLURM_PROCID, OMPI_COMM_WORLD_RANK, "
      "PMI_RANK and TORCHELASTIC_RUN_ID are not set); %s",
      flag, otherwise);
}

int job_local_rank(void) {
  static const char *const names[] = {"OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "SLURM_LOCALID"};
  if (job_is_of_torchrun()) return is_number(getenv("LOCAL_RANK")) ? atoi(getenv("LOCAL_RANK")) : -1;
  for (size_t i = 0; i < sizeof names / sizeof *names; i++)
    if (is_number(getenv(names[i]))) return atoi(getenv(names[i]));
  return -1;
}

static bool is_on_one_machine(void) {
  static const char *const pairs[][2] = {{"OMPI_COMM_WORLD_LOCAL_SIZE", "OMPI_COMM_WORLD_SIZE"},
                                         {"MPI_LOCALNRANKS", "PMI_SIZE"}};
  const char *nodes = getenv("SLURM_STEP_NUM_NODES");
  if (job_is_of_torchrun()) {
    const char *here = getenv("LOCAL_WORLD_SIZE"), *all = getenv("WORLD_SIZE");
    return here && all && strcmp(here, all) == 0;
  }
  for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
    const char *here = getenv(pairs[i][0]), *all = getenv(pairs[i][1]);
    if (here && all) return strcmp(here, all) == 0;
  }
  if (!nodes) nodes = getenv("SLURM_NNODES");
  return nodes && strcmp(nodes, "1") == 0;
}

bool job_needs_no_network(void) {
  return is_on_one_machine() && (job_is_of_torchrun() || !getenv("MASTER_ADDR"));
}

/* Appends the first host of a Slurm list: "gpu[03-05,9],login" begins with gpu03. */
static Status first_of(const char *list, Buffer *host, Error *err) {
  const size_t prefix = strcspn(list, "[,");
  TRY(buffer_append(host, list, prefix, err));
  if (list[prefix] != '[') return STATUS_OK;
  const char *number = list + prefix + 1, *end = strchr(number, ']');
  TRY(buffer_append(host, number, strcspn(number, "-,]"), err));
  return end ? buffer_append(host, end + 1, strcspn(end + 1, "[,"), err) : STATUS_OK;
}

Status job_first_host(Buffer *host, Error *err) {
  const char *master = getenv("MASTER_ADDR"), *list = getenv("SLURM_STEP_NODELIST");
  if (job_needs_no_network()) return buffer_append_string(host, "127.0.0.1", err);
  if (master && *master) return buffer_append_string(host, master, err);
  if (!list) list = getenv("SLURM_NODELIST");
  if (list && *list) return first_of(list, host, err);
  return error_set(err, STATUS_USAGE,
                   "--split auto: which machine has rank 0 is not known: set MASTER_ADDR to its name for all "
                   "processes (mpirun -x MASTER_ADDR=...)");
}

Status job_name(Buffer *name, Error *err) {
  static const char *const names[] = {"SLURM_JOB_ID",          "SLURM_STEP_ID",       "PMIX_NAMESPACE",
                                      "OMPI_MCA_orte_hnp_uri", "TORCHELASTIC_RUN_ID", "MASTER_PORT"};
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
    const char *value = getenv(names[i]);
    TRY(buffer_printf(name, err, "%s %s\n", names[i], value ? value : ""));
  }
  return STATUS_OK;
}
