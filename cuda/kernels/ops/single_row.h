/* single_row.h - a single row of a step: the only one of its sequence. Kernels of recurrent states take many
 * of them in one launch. */
#pragma once

typedef struct {
  int row; /* of the step; -1: padding */
  int sequence;
} SingleRow;
