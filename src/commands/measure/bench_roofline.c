/* bench_roofline.c - see bench_roofline.h.   Called by: bench.c. */
#include "commands/measure/bench_roofline.h"

#include <math.h>

#include "engine/step_cost.h"

/* Lower bound of a step's time in milliseconds. NAN if the bandwidth or, for several rows, the rate of
 * arithmetic was not measured. */
static double ideal_ms(const MachineRates *rates, const StepCost *cost, int n_rows) {
  if (rates->read_gbps <= 0 || (n_rows > 1 && rates->fp16_tflops <= 0)) return NAN;
  const double reading = cost->bytes / rates->read_gbps * 1e-6;
  return n_rows > 1 ? fmax(reading, cost->flop / rates->fp16_tflops * 1e-9) : reading;
}

static void add_step(TestRoofline *roofline, const Model *model, KvType kv, const MachineRates *rates,
                     int n_past, int n_rows, int n_logit_rows, size_t spared) {
  StepCost cost = step_cost(model, kv, n_past, n_rows, n_logit_rows);
  cost.bytes -= (double)spared;
  roofline->n_steps++;
  roofline->bytes += cost.bytes;
  roofline->ideal_ms += ideal_ms(rates, &cost, n_rows);
}

TestRoofline roofline_of_prefill(const Model *model, KvType kv, const MachineRates *rates, int n_past, int n,
                                 int max_chunk) {
  TestRoofline roofline = {0};
  for (int done = 0, size; done < n; done += size) {
    size = n - done < max_chunk ? n - done : max_chunk;
    add_step(&roofline, model, kv, rates, n_past + done, size, done + size == n, 0);
  }
  return roofline;
}

TestRoofline roofline_of_decode(const Model *model, KvType kv, const MachineRates *rates, int n_past, int n,
                                size_t spared) {
  TestRoofline roofline = {0};
  for (int i = 0; i < n; i++) add_step(&roofline, model, kv, rates, n_past + i, 1, 1, spared);
  return roofline;
}
