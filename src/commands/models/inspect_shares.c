/* inspect_shares.c - `auk inspect --split N`: what each of N GPUs that share a model would hold. */
#include <math.h>
#include <stdio.h>

#include "commands/models/inspect.h"

static Status print_part(Buffer *out, int part, int whole, const char *what, Error *err) {
  return buffer_printf(out, err, "%d of %d %s", part, whole, what);
}

const SplitGain *inspect_split_gain(const DeviceShares *shares, const ModelConfig *whole) {
  /* scripts/figures/split.csv */
  static const SplitGain gains[] = {
      {false, 6.7, 1.36, 1.67, "Qwen3-8B"},    {false, 10.1, 1.58, 1.65, "Qwen3-8B in FP8"},
      {false, 18, 1.47, 1.68, "Qwen3.8-27B"},  {false, 19, 1.65, 1.73, "Qwen3-32B"},
      {false, 41, 1.73, 1.78, "a 70B"},        {true, 14, 1.06, 1.40, "gpt-oss-20b"},
      {true, 18, 0.91, 1.26, "Qwen3-30B-A3B"}, {true, 22, 1.00, 1.08, "Qwen3.6-35B-A3B"},
  };
  const SplitGain *nearest = NULL;
  double bytes = 0, least = log(2); /* models half or twice as large do not count as near */
  for (int i = 0; i < shares->n; i++) bytes += (double)shares->weights[i];
  for (size_t i = 0; i < sizeof gains / sizeof *gains && shares->n == 2; i++) {
    const double off = fabs(log(gains[i].gigabytes * 1e9 / bytes));
    if (gains[i].has_experts != (whole->experts.n_experts > 0) || off >= least) continue;
    nearest = &gains[i], least = off;
  }
  return nearest;
}

static Status print_gain(Buffer *out, const SplitGain *gain, Error *err) {
  TRY(inspect_begin_line(out, "tokens/s", err));
  if (!gain) return buffer_append_string(out, "no such model was measured on so many GPUs", err);
  return buffer_printf(out, err, "%.2f times those of one GPU, prompts %.2f times (two H200s, %s)",
                       gain->decode, gain->prefill, gain->model);
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
  TRY(inspect_print_bytes(out, shares->other_bytes, err));
  return print_gain(out, inspect_split_gain(shares, whole), err);
}
