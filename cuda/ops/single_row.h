/* single_row.h - a row of a step that is alone: the only one of its sequence. Kernels of recurrent states
 * take many of them in one launch. */
#pragma once

typedef struct {
  int row; /* of the step; -1: none */
  int sequence;
} SingleRow;
