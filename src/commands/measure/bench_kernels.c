/* bench_kernels.c - see bench_kernels.h.   Called by: bench.c.   Calls: engine/probe.h. */
#include "commands/measure/bench_kernels.h"

typedef struct {
  Table table;
  const char *model_name;
  char device_name[DEVICE_NAME_SIZE];
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
  Table *table = &printer->table;
  TRY(table_text(table, printer->model_name, err));
  TRY(table_text(table, printer->device_name, err));
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

Status bench_kernels(const Device *device, const Model *model, const char *model_name,
                     const KernelTimesOptions *times, TableForm form, Error *err) {
  static const int powers[] = {1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096};
  const Backend *backend = device->backend;
  if (!backend->probe->time_kernels)
    return error_set(err, STATUS_FAILED,
                     "--kernels compares the kernels of a GPU; the %s backend has no choice of them",
                     backend->name);
  KernelTimesOptions filled = *times;
  if (filled.n_counts == 0) {
    filled.n_tokens = powers;
    filled.n_counts = sizeof powers / sizeof *powers;
  }
  Printer printer = {.model_name = model_name};
  device_describe(device, printer.device_name);
  Status status = table_begin(&printer.table, form, columns, sizeof columns / sizeof *columns, err);
  if (!status)
    status = backend->probe->time_kernels(model, &device->options, &filled, print_time, &printer, err);
  if (!status) status = table_end(&printer.table, err);
  table_release(&printer.table);
  return status;
}
