/* bench_wall.h - the part of `auk bench` that says how far a test is from what the machine allows. */
#ifndef AUK_COMMANDS_MEASURE_BENCH_WALL_H
#define AUK_COMMANDS_MEASURE_BENCH_WALL_H

#include "engine/probe.h"

/* The steps of one run of a test together. */
typedef struct {
  int n_steps;
  double bytes;    /* that they must read; of one step: / n_steps */
  double ideal_ms; /* in which the machine reads them, or computes, whichever takes longer; NAN: not known */
} TestWall;

/* Of n tokens in one go, in steps of at most max_chunk, or one by one, behind n_past others. */
TestWall wall_of_prefill(const Model *model, KvType kv, const MachineRates *rates, int n_past, int n,
                         int max_chunk);
TestWall wall_of_decode(const Model *model, KvType kv, const MachineRates *rates, int n_past, int n);

#endif
