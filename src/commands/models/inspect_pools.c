/* inspect_pools.c - `auk inspect`: the memory of a device for many sequences at once, with the defaults of
 * `auk --map`. Called by: inspect.c. */
#include "commands/device.h"
#include "commands/models/inspect.h"
#include "engine/batch_memory.h"
#include "engine/drafters/draft_text.h"

/* The pool of a device with `room` bytes beside the weights; room 0: unknown. */
static Pool pool_of(const Device *device, const Model *model, size_t room) {
  const Backend *backend = device->backend;
  const ModelConfig *config = &model->config;
  const size_t share = batch_share(backend, room, false);
  BatchOptions options = {
      .kv = KV_F16, .n_guesses = !backend->memory, .draft = draft_text_source}; /* CPUs guess by default */
  options.invariant = device_prefers_invariant(device, model);
  const int most = room > 0 ? batch_usual_sequences(&options, backend, config, share) : 0;
  options.n_sequences = most > 0 ? most : backend->sequences;
  Pool pool = {.backend = backend, .n_sequences = options.n_sequences};
  options = batch_least(&options, backend, config, options.n_sequences);
  const size_t least = batch_bytes(&options, backend, config);
  const int n_least = options.n_pages;
  options.n_pages++;
  pool.page_bytes = batch_bytes(&options, backend, config) - least;
  pool.other_bytes = least - (size_t)n_least * pool.page_bytes;
  if (most > 0) pool.n_pages = batch_most_pages(&options, backend, config, share);
  return pool;
}

Status inspect_pools(const Model *model, const Prediction *prediction, Pools *out, Error *err) {
  static const char *const names[] = {"cpu", "cuda"};
  static const DeviceFlags flags = {0};
  *out = (Pools){.n = 0};
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
    Device device;
    Error reason;
    size_t room = 0;
    if (device_elsewhere(&flags, names[i], &device, &reason) != STATUS_OK) continue;
    const Backend *backend = device.backend;
    if (backend->check_model && backend->check_model(model, &reason) != STATUS_OK) continue;
    if (!backend->memory)
      TRY(device_room(&device, model, &room, err));
    else if (prediction->limit > prediction->memory.weights)
      room = prediction->limit - prediction->memory.weights;
    out->items[out->n++] = pool_of(&device, model, room);
  }
  return STATUS_OK;
}

Status inspect_print_pools(Buffer *out, const Pools *pools, Error *err) {
  for (int i = 0; i < pools->n; i++) {
    const Pool *p = &pools->items[i];
    TRY(inspect_begin_line(out, p->backend->memory ? "many on GPU" : "many on CPU", err));
    if (p->n_pages > 0)
      TRY(buffer_printf(out, err, "%d sequences in %d pages of %d tokens", p->n_sequences, p->n_pages,
                        p->backend->page_tokens));
    else
      TRY(buffer_printf(out, err, "up to %d sequences in pages of %d tokens", p->n_sequences,
                        p->backend->page_tokens));
    TRY(buffer_append_string(out, ": ", err));
    TRY(inspect_print_bytes(out, p->page_bytes, err));
    TRY(buffer_append_string(out, " a page, ", err));
    TRY(inspect_print_bytes(out, p->other_bytes, err));
    TRY(buffer_append_string(out, " besides", err));
  }
  return STATUS_OK;
}
