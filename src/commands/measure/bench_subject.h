/* bench_subject.h - what all tests of one `auk bench` share: a model on a device, and how it is measured. */
#pragma once

#include "commands/answer/assistant.h"
#include "commands/device.h"
#include "commands/measure/bench_table.h"
#include "commands/model_flags.h"
#include "engine/probe.h"
#include "engine/sampler.h"

typedef struct {
  ModelFlags model;
  DeviceFlags device;
  SamplingFlags sampling;
  /* Token counts. A 0 in prompts or answers makes no test; --parallel refuses it. */
  IdList prompts, answers, depths;
  IdList parallel;       /* counts of sequences; none: one at a time */
  IdList guesses;        /* counts of tokens that a step guesses */
  double accept;         /* the chance that a guess is right; NAN: no guesses */
  const char *draft;     /* the model that makes the guesses, or NULL: they cost nothing */
  int repetitions, form; /* form: TableForm, or NOT_GIVEN */
  bool dummy_weights, kernels, verbose, json;
} BenchOptions;

typedef struct {
  const BenchOptions *options;
  Device *device; /* loaded before rows are measured, except for --kernels */
  const Model *model;
  char model_name[320];
  char device_name[DEVICE_NAME_SIZE];
  SamplerSettings sampler;
  KvType kv;
  MachineRates machine; /* 0: not measured */
  const volatile int *interrupted;
  bool on_screen; /* standard error shows what is being measured */
} BenchSubject;

/* Shows on a terminal what is being measured, until the next bench_say(); NULL: nothing. There is no spinner,
 * and no bench_say() within a timed run, so that the line does not distort the figures. */
void bench_say(const BenchSubject *subject, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* bench_say() for run `run` of a test; runs below 0 are not timed. */
void bench_say_run(const BenchSubject *subject, const char *test, int run);

/* The columns that say where a model is measured; bench_put_device() puts their cells. */
#define BENCH_DEVICE_COLUMNS                                                                                 \
  {"backend", "backend", false, 0}, {"device", "device", false, 0}, {"threads", "threads", true, 0}, {       \
    "kv", "kv", false, 0                                                                                     \
  }
Status bench_put_device(const BenchSubject *subject, Table *table, Error *err);

typedef Status BenchRows(void *user, Table *table, Error *err);
/* Prints a table. Asks the device for its name, then calls put_rows() for the rows. */
Status bench_print(BenchSubject *subject, const Column *columns, size_t n_columns, BenchRows *put_rows,
                   void *user, Error *err);
