/* decimal.h - doubles as text that reads back to the same double. */
#ifndef AUK_COMMANDS_MODELS_DECIMAL_H
#define AUK_COMMANDS_MODELS_DECIMAL_H

/* The shortest form that strtod() reads back to `value`, which is finite: "1e-06", not
 * "9.9999999999999995e-07"; whole numbers below 10^15 in full: "10000", not "1e+04". */
typedef struct {
  char text[32];
} Decimal;
Decimal decimal(double value);

#endif
