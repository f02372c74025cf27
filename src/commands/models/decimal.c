/* decimal.c - see decimal.h. */
#include "commands/models/decimal.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

Decimal decimal(double value) {
  Decimal out;
  if (fabs(value) < 1e15 && value == floor(value)) {
    snprintf(out.text, sizeof out.text, "%.0f", value);
    return out;
  }
  for (int digits = 1; digits <= 17; digits++) { /* 17 digits always suffice for IEEE doubles */
    snprintf(out.text, sizeof out.text, "%.*g", digits, value);
    if (strtod(out.text, NULL) == value) break;
  }
  return out;
}
