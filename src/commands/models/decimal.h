/* decimal.h - doubles as text that reads back to the same double. */
#ifndef AUK_COMMANDS_MODELS_DECIMAL_H
#define AUK_COMMANDS_MODELS_DECIMAL_H

/* The shortest text that strtod() converts back to `value`, which is finite: "1e-06", not
 * "9.9999999999999995e-07". Integers below 10^15 are written in full: "10000", not "1e+04". */
typedef struct {
  char text[32];
} Decimal;
Decimal decimal(double value);

#endif
