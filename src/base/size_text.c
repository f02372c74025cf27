/* size_text.c - see size_text.h. */
#include "base/size_text.h"

#include <stdio.h>

SizeText size_text(uint64_t bytes) {
  static const char *const units[] = {"bytes", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  double value = (double)bytes;
  int unit = 0;
  for (; value >= 1024; unit++) value /= 1024;
  SizeText out;
  snprintf(out.text, sizeof out.text, "%.*f %s", unit ? 1 : 0, value, units[unit]);
  return out;
}
