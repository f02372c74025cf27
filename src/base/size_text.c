/* size_text.c - see size_text.h. */
#include "base/size_text.h"

#include <stdio.h>

double size_in_unit(uint64_t bytes, const char **unit) {
  static const char *const units[] = {"bytes", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  double value = (double)bytes;
  int i = 0;
  for (; value >= 1024; i++) value /= 1024;
  *unit = units[i];
  return value;
}

SizeText size_text(uint64_t bytes) {
  const char *unit;
  const double value = size_in_unit(bytes, &unit);
  SizeText out;
  snprintf(out.text, sizeof out.text, "%.*f %s", bytes >= 1024 ? 1 : 0, value, unit);
  return out;
}
