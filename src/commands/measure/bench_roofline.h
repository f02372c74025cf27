/* bench_roofline.h - compares a test of `auk bench` with the limits of the machine. */
#pragma once

#include "engine/probe.h"

/* All steps of one run of a test. */
typedef struct {
  int n_steps;
  double bytes; /* bytes that the steps must read */
  /* Lower bound of the time: the sum over the steps. A step of one row takes the time to read, a step of
   * several rows the time to read or to compute, whichever is longer. NAN: unknown. */
  double ideal_ms;
} TestRoofline;

/* The cost of n tokens after n_past others. roofline_of_prefill(): in steps of at most max_chunk tokens.
 * roofline_of_decode(): one by one; each step reads `spared` bytes less than step_cost() says
 * (session_head_spares()). */
TestRoofline roofline_of_prefill(const Model *model, KvType kv, const MachineRates *rates, int n_past, int n,
                                 int max_chunk);
TestRoofline roofline_of_decode(const Model *model, KvType kv, const MachineRates *rates, int n_past, int n,
                                size_t spared);
