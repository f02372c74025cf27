/* bench_subject.c - see bench_subject.h. Called by: bench.c and the files of its tests, bench_*.c. */
#include "commands/measure/bench_subject.h"

Status bench_put_device(const BenchSubject *subject, Table *table, Error *err) {
  TRY(table_text(table, subject->device->backend->name, err));
  TRY(table_text(table, subject->device_name, err));
  TRY(table_integer(table, subject->device->options.n_threads, err));
  return table_text(table, kv_type_name(subject->kv), err);
}

Status bench_print(BenchSubject *subject, const Column *columns, size_t n_columns, BenchRows *put_rows,
                   void *user, Error *err) {
  Table table = {0};
  device_describe(subject->device, subject->device_name);
  Status status = table_begin(&table, subject->form, columns, n_columns, err);
  if (status == STATUS_OK) status = put_rows(user, &table, err);
  if (status == STATUS_OK) status = table_end(&table, err);
  table_release(&table);
  return status;
}
