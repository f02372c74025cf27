/* segment.h - consecutive rows of a step that belong to one sequence. Kernels of recurrent states compute
 * several segments in one launch. */
#pragma once

#include <stddef.h>

enum { SEGMENT_CHUNK = 64 }; /* tokens of a chunk (delta_chunks.cu) */

typedef struct {
  int row;      /* index of the first row in the step; -1: padding */
  int n_tokens; /* >= 1 */
  int sequence;
  int pos;         /* position of the first row */
  int first_chunk; /* number of chunks of the earlier segments that have several rows */
} Segment;

/* The segments of a step with TokenRange.parts. All members are 0 in other steps: their rows are of one
 * sequence. */
typedef struct {
  const Segment *device, *host; /* [n], the single rows first */
  const int *of_row;            /* device: the segment of each row of the step */
  int n_singles, n;             /* padding included */
  size_t state_step;            /* floats from the state of a sequence to the next one's */
} Segments;
