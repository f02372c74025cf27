/* inspect_places.c - `auk inspect --gpu-memory SIZE`: which weights a GPU with SIZE of memory would leave to
 * the CPU, and the speed that the bytes on each side allow. Called by: inspect.c. */
#include "base/size_text.h"
#include "commands/common.h"
#include "commands/device.h"
#include "commands/models/inspect.h"
#include "engine/step_cost.h"

enum { CONTEXT = 4096 };

Status inspect_predict(const Model *model, const char *size, Prediction *out, Error *err) {
  *out = (Prediction){.context = model->config.max_position < CONTEXT ? model->config.max_position : CONTEXT};
  if (!size) return STATUS_OK;
  TRY(size_parse("--gpu-memory", size, 1, &out->limit, err));
  const StateOptions state = {
      .n_ctx = out->context, .max_chunk = out->context, .max_logit_rows = 1, .kv = KV_F16};
  TRY(device_predict(model, out->limit, &state, &out->memory, &out->rates, &out->host_rates, err));
  const double all = step_cost(model, KV_F16, 0, 1, 1).bytes;
  out->host_bytes = step_host_bytes(model, out->memory.host_experts, out->memory.host_layers);
  out->gpu_bytes = all - out->host_bytes;
  const double host_seconds = out->host_bytes > 0 ? out->host_bytes / (out->host_rates.read_gbps * 1e9) : 0;
  const bool gpu_known = out->rates.read_gbps > 0;
  const double gpu_seconds = gpu_known ? out->gpu_bytes / (out->rates.read_gbps * 1e9) : 0;
  if (host_seconds + gpu_seconds > 0) out->tokens_per_second = 1 / (host_seconds + gpu_seconds);
  return STATUS_OK;
}

Status inspect_print_places(Buffer *out, const Model *model, const Prediction *p, Error *err) {
  if (p->limit == 0) return STATUS_OK;
  TRY(inspect_begin_line(out, "on the GPU", err));
  TRY(buffer_printf(out, err, "%s of weights beside a context of %d tokens",
                    size_text(p->memory.weights).text, p->context));
  TRY(inspect_begin_line(out, "on the host", err));
  if (p->memory.on_host == 0) return buffer_append_string(out, "no weights", err);
  TRY(buffer_printf(out, err, "%s (%s)", size_text(p->memory.on_host).text,
                    device_places_text(model, &p->memory).text));
  TRY(inspect_begin_line(out, "a token reads", err));
  TRY(buffer_printf(out, err, "%s on the GPU", size_text((uint64_t)p->gpu_bytes).text));
  if (p->rates.read_gbps > 0) TRY(buffer_printf(out, err, ", which reads %.0f GB/s", p->rates.read_gbps));
  TRY(buffer_printf(out, err, ", %s on the host, which reads %.1f GB/s",
                    size_text((uint64_t)p->host_bytes).text, p->host_rates.read_gbps));
  TRY(inspect_begin_line(out, "decode", err));
  return buffer_printf(out, err, "at most %.3g tokens a second%s", p->tokens_per_second,
                       p->rates.read_gbps > 0 ? "" : " by the host's part alone");
}
