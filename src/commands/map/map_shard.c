/* map_shard.c - see map_shard.h. */
#include "commands/map/map_shard.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "commands/ranks/job.h"

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

Status shard_choose(const char *text, Shard *shard, Error *err) {
  *shard = (Shard){0};
  if (strcmp(text, "auto") == 0) {
    size_t rank;
    TRY(job_find("--shard auto", "--shard I/N says which shard", SHARDS_MAX, &rank, &shard->count, err));
    shard->number = rank + 1;
    return STATUS_OK;
  }
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
