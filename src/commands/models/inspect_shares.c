/* inspect_shares.c - `auk inspect --split N`: what each of N GPUs that share a model would hold. Called by:
 * inspect.c. */
#include <stdio.h>

#include "commands/models/inspect.h"

/* "8 of 16 KV heads" */
static Status print_part(Buffer *out, int part, int whole, const char *what, Error *err) {
  return buffer_printf(out, err, "%d of %d %s", part, whole, what);
}

Status inspect_print_shares(Buffer *out, const DeviceShares *shares, const ModelConfig *whole, Error *err) {
  const ModelConfig *part = &shares->part;
  if (shares->n == 0) return STATUS_OK;
  TRY(inspect_begin_line(out, "of each GPU", err));
  TRY(print_part(out, part->n_heads, whole->n_heads, "heads, ", err));
  TRY(print_part(out, part->n_kv_heads, whole->n_kv_heads, "for keys and values, ", err));
  if (whole->experts.n_experts > 0)
    TRY(print_part(out, part->experts.width, whole->experts.width, "hidden units of each expert", err));
  else
    TRY(print_part(out, part->intermediate, whole->intermediate, "hidden units of each MLP", err));
  for (int i = 0; i < shares->n; i++) {
    char label[16];
    snprintf(label, sizeof label, "weights GPU %d", i);
    TRY(inspect_begin_line(out, label, err));
    TRY(inspect_print_bytes(out, shares->weights[i], err));
  }
  TRY(inspect_begin_line(out, "its kv cache", err));
  TRY(buffer_printf(out, err, "%zu bytes a token (f16), ", inspect_kv_bytes(part, KV_F16, 1)));
  TRY(inspect_print_bytes(out, inspect_kv_bytes(part, KV_F16, (size_t)whole->max_position), err));
  TRY(buffer_append_string(out, " for the whole context", err));
  TRY(inspect_begin_line(out, "its scratch", err));
  return inspect_print_bytes(out, shares->other_bytes, err);
}
