/* decimal.h - writes a double as text that reads back to the same double. */
#pragma once

/* The shortest text that strtod() converts back to `value`, which is finite: "1e-06", not
 * "9.9999999999999995e-07". Integers below 10^15 are written in full: "10000", not "1e+04". */
typedef struct {
  char text[32];
} Decimal;
Decimal decimal(double value);
