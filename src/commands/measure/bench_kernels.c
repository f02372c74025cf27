/* bench_kernels.c - see bench_kernels.h.   Called by: bench.c. */
#include "commands/measure/bench_kernels.h"

typedef struct {
  BenchSubject *subject;
  KernelTimesOptions times;
  Table *table;
} Printer;

static const Column columns[] = {
    {"model", NULL, false, 0},       {"device", NULL, false, 0},
    {"layer", "layer", false, 14},   {"n_in", "in", true, -1},
    {"n_out", "out", true, -1},      {"weights", "weights", false, -1},
    {"group", "group", true, -1},    {"n_tokens", "rows", true, 5},
    {"kernel", "kernel", false, 20}, {"chosen", "chosen", false, 6},
    {"us", "µs", true, 8},           {"gbps", "GB/s", true, 5},
    {"tflops", "TFLOP/s", true, -1}, {"of_ceiling", "of ceiling", true, 10},
};

static Status print_time(void *user, const KernelTime *time, Error *err) {
  Printer *printer = user;
  Table *table = printer->table;
  if (table->n_rows == 0) bench_say(printer->subject, NULL);
  TRY(table_text(table, printer->subject->model_name, err));
  TRY(table_text(table, printer->subject->device_name, err));
  TRY(table_text(table, time->layer, err));
  TRY(table_integer(table, time->n_in, err));
  TRY(table_integer(table, time->n_out, err));
  TRY(table_text(table, time->weights, err));
  TRY(table_integer(table, time->group, err));
  TRY(table_integer(table, time->n_tokens, err));
  TRY(table_text(table, time->kernel, err));
  TRY(table_mark(table, time->chosen, err));
  TRY(table_number(table, time->us, 2, err));
  TRY(table_number(table, time->gbps, 0, err));
  TRY(table_number(table, time->tflops, 1, err));
  TRY(table_number(table, time->of_ceiling, 2, err));
  return table_end_row(table, err);
}

static Status time_kernels(void *user, Table *table, Error *err) {
  Printer *printer = user;
  const Device *device = printer->subject->device;
  printer->table = table;
  bench_say(printer->subject, "the first kernel");
  return device->backend->probe->time_kernels(printer->subject->model, &device->options, &printer->times,
                                              print_time, printer, err);
}

Status bench_kernels(BenchSubject *subject, const KernelTimesOptions *times, Error *err) {
  static const int powers[] = {1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096};
  const Backend *backend = subject->device->backend;
  if (!backend->probe->time_kernels)
    return error_set(err, STATUS_FAILED,
                     "--kernels compares the kernels of a GPU; the %s backend has no choice of them",
                     backend->name);
  Printer printer = {.subject = subject, .times = *times};
  if (times->n_counts == 0) {
    printer.times.n_tokens = powers;
    printer.times.n_counts = sizeof powers / sizeof *powers;
  }
  return bench_print(subject, columns, sizeof columns / sizeof *columns, time_kernels, &printer, err);
}
