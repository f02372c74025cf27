/* map_shard.c - see map_shard.h.   Called by: map.c, merge/merge_parts.c. */
#include "commands/map/map_shard.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- which shard */

static bool is_number(const char *text, size_t size) {
  return size > 0 && size < 10 && strspn(text, "0123456789") >= size;
}

static Status check(const char *text, const Shard *shard, Error *err) {
  const size_t n = shard->count;
  if (n < 1 || n > SHARDS_MAX)
    return error_set(err, STATUS_USAGE, "--shard %s: expected 1 to %d shards", text, SHARDS_MAX);
  if (shard->number >= 1 && shard->number <= n) return STATUS_OK;
  return error_set(err, STATUS_USAGE, "--shard %s: expected a shard from 1/%zu to %zu/%zu", text, n, n, n);
}

/* Variables that say which of how many processes this one is, counted from 0. The first pair counts that is
 * complete: mpirun of a Slurm job passes on Slurm's, which are the job script's, or those of one of its own
 * helpers. srun sets PMI's where it speaks PMI-1 or PMI-2. */
static const struct {
  const char *rank, *size, *step; /* step: set in tasks, but not in the job's script; or NULL */
} variables[] = {
    {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", NULL},
    {"PMI_RANK", "PMI_SIZE", NULL},
    {"SLURM_PROCID", "SLURM_NTASKS", "SLURM_STEP_ID"},
};

static Status choose_by_variables(Shard *shard, Error *err) {
  for (size_t i = 0; i < sizeof variables / sizeof *variables; i++) {
    const char *rank = getenv(variables[i].rank), *size = getenv(variables[i].size);
    char what[256];
    if (!rank || !size) continue;
    snprintf(what, sizeof what, "%s=%.32s, %s=%.32s", variables[i].rank, rank, variables[i].size, size);
    if (!is_number(rank, strlen(rank)) || !is_number(size, strlen(size)))
      return error_set(err, STATUS_USAGE, "--shard auto: %s: expected two numbers", what);
    *shard = (Shard){(size_t)atol(rank) + 1, (size_t)atol(size)};
    if (variables[i].step && !getenv(variables[i].step) && shard->count > 1)
      return error_set(
          err, STATUS_USAGE,
          "--shard auto: this is the script of a Slurm job, not one of its %zu tasks: srun starts "
          "them",
          shard->count);
    if (shard->count >= 1 && shard->count <= SHARDS_MAX && shard->number <= shard->count) return STATUS_OK;
    return error_set(err, STATUS_USAGE,
                     "--shard auto: %s: expected 1 to %d processes, and a rank below their number", what,
                     SHARDS_MAX);
  }
  return error_set(
      err, STATUS_USAGE,
      "--shard auto: neither srun nor mpirun has started this (SLURM_PROCID, OMPI_COMM_WORLD_RANK "
      "and PMI_RANK are not set); --shard I/N says which shard");
}

Status shard_choose(const char *text, Shard *shard, Error *err) {
  *shard = (Shard){0};
  if (strcmp(text, "auto") == 0) return choose_by_variables(shard, err);
  const char *slash = strchr(text, '/');
  if (!slash || !is_number(text, (size_t)(slash - text)) || !is_number(slash + 1, strlen(slash + 1)))
    return error_set(err, STATUS_USAGE, "--shard is \"%s\", expected I/N such as 3/8, or auto", text);
  *shard = (Shard){(size_t)atol(text), (size_t)atol(slash + 1)};
  return check(text, shard, err);
}

/* --- its records */

RecordShare shard_share(const Shard *shard) {
  return shard->count ? (RecordShare){shard->number - 1, shard->count} : (RecordShare){0};
}

size_t shard_size(const Shard *shard, size_t n_records) {
  if (shard->count == 0) return n_records;
  return n_records < shard->number ? 0 : (n_records - shard->number) / shard->count + 1;
}

/* --- names */

Status shard_write(const Shard *shard, Buffer *out, Error *err) {
  return buffer_printf(out, err, "%zu of %zu", shard->number, shard->count);
}

bool shard_read(const char *text, Shard *shard) {
  int end = 0;
  return sscanf(text, "%9zu of %9zu%n", &shard->number, &shard->count, &end) == 2 && text[end] == 0 &&
         shard->number >= 1 && shard->number <= shard->count && shard->count <= SHARDS_MAX;
}

Status shard_path(const Shard *shard, const char *path, Buffer *out, Error *err) {
  TRY(buffer_printf(out, err, "%s.%zu-of-%zu", path, shard->number, shard->count));
  return buffer_append(out, "", 1, err);
}
