/* bench_memory.c - see bench_memory.h. Called by: bench.c.   Calls: engine/probe.h. */
#include "commands/measure/bench_memory.h"

#include <stdio.h>
#include <sys/resource.h>

#include "engine/probe.h"
#include "engine/step_cost.h"

Status memory_taken(const Device *device, double *bytes, Error *err) {
  *bytes = 0;
  if (!device->backend->probe->memory_now) return STATUS_OK;
  size_t free_bytes, all_bytes;
  TRY(device->backend->probe->memory_now(&device->options, &free_bytes, &all_bytes, err));
  *bytes = (double)(all_bytes - free_bytes);
  return STATUS_OK;
}

/* Peak resident bytes of this process, including pages of mapped files. */
static double resident_bytes(void) {
  struct rusage usage;
  return getrusage(RUSAGE_SELF, &usage) == 0 ? (double)usage.ru_maxrss * 1024 : 0;
}

Status memory_report(const Device *device, const Model *model, const Session *session, double taken_before,
                     Error *err) {
  const KvType kv = (KvType)device->flags->kv;
  const double weights = (double)model->weight_bytes, mb = 1e6;
  const double cache = kv_cache_bytes(&model->config, kv, session_context(session));
  double taken;
  TRY(memory_taken(device, &taken, err));
  const bool own = device->backend->probe->memory_now != NULL;
  if (!own) taken = resident_bytes();
  fprintf(stderr, "auk: memory in MB: weights %.1f as stored, KV cache %.1f, everything else %.1f; ",
          weights / mb, cache / mb, (taken - weights - cache) / mb);
  if (own)
    fprintf(stderr, "%.1f taken, %.1f before the weights came\n", taken / mb, taken_before / mb);
  else
    fprintf(stderr, "%.1f resident at most\n", taken / mb);
  return STATUS_OK;
}
