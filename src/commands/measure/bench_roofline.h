/* bench_roofline.h - compares a test of `auk bench` with the limits of the machine. */
#pragma once

#include "engine/probe.h"

/* All steps of one run of a test. */
typedef struct {
  int n_steps;
  double bytes; /* bytes that the steps must read */
  /* Lower bound of the time: the sum over the steps of the time of reading or, with several rows, the larger
   * of reading and computing; NAN: unknown. */
  double ideal_ms;
} TestRoofline;

/* The cost of n tokens after n_past others: prefilled in steps of at most max_chunk tokens, or decoded one by
 * one, where each step reads `spared` bytes less than step_cost() says (session_head_spares()). */
TestRoofline roofline_of_prefill(const Model *model, KvType kv, const MachineRates *rates, int n_past, int n,
                                 int max_chunk);
TestRoofline roofline_of_decode(const Model *model, KvType kv, const MachineRates *rates, int n_past, int n,
                                size_t spared);
