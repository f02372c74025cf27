/* bench_subject.c - see bench_subject.h. */
#include "commands/measure/bench_subject.h"

#include <stdarg.h>
#include <stdio.h>

#include "base/output.h"

void bench_say(const BenchSubject *subject, const char *format, ...) {
  char text[120] = "";
  if (!subject->on_screen) return;
  va_list args;
  va_start(args, format);
  if (format) vsnprintf(text, sizeof text, format, args);
  va_end(args);
  progress_clear();
  if (format) fprintf(stderr, "%.*s\r", 78, text);
}

void bench_say_run(const BenchSubject *subject, const char *test, int run) {
  if (run < 0)
    bench_say(subject, "%s: a run that does not count", test);
  else
    bench_say(subject, "%s: run %d of %d", test, run + 1, subject->options->repetitions);
}

Status bench_put_device(const BenchSubject *subject, Table *table, Error *err) {
  TRY(table_text(table, subject->device->backend->name, err));
  TRY(table_text(table, subject->device_name, err));
  TRY(table_integer(table, subject->device->options.n_threads, err));
  return table_text(table, kv_type_name(subject->kv), err);
}

Status bench_print(BenchSubject *subject, const Column *columns, size_t n_columns, BenchRows *put_rows,
                   void *user, Error *err) {
  OWNED(table_release) Table table = {0};
  bench_say(subject, NULL);
  device_describe(subject->device, subject->device_name);
  TRY(table_begin(&table, (TableForm)subject->options->form, columns, n_columns, err));
  const Status status = put_rows(user, &table, err);
  bench_say(subject, NULL);
  return status ? status : table_end(&table, err);
}
