/* upload.h - the pipeline that copies weights from the mapped file to the device.
 *
 * A team of CPU threads copies a piece from the page cache into a pinned buffer. The copy engine copies it
 * into staging memory on the device, and a kernel lays it out there. Meanwhile the next piece is copied. The
 * host never holds a second copy of the file. Only UPLOAD_SLOTS buffers of some MB are pinned: pinning takes
 * 0.6 ms a MB. */
#pragma once

#include <cuda_runtime_api.h>
#include <stddef.h>

#include "base/status.h"
#include "cpu/team.h"

enum { UPLOAD_SLOTS = 4, UPLOAD_ROWS = 4 };

/* Rows that are `step` bytes apart in `from`, one after another in `to`. */
typedef struct {
  char *to;
  const char *from;
  size_t n, row_bytes, step;
} UploadRows;

typedef struct {
  cudaStream_t stream;
  Team *team; /* the threads that copy into pinned memory */
  size_t slot_bytes;
  char *pinned;                   /* [UPLOAD_SLOTS][slot_bytes] */
  char *staged;                   /* the same on the device */
  cudaEvent_t done[UPLOAD_SLOTS]; /* copies from the slot have ended */
  int slot;                       /* the slot that is being filled */
  size_t used, sent;              /* used: bytes of the slot that arrays take; sent: those sent already */
  UploadRows rows[UPLOAD_ROWS];   /* arrays added since the last copy */
  int n_rows;
} Uploader;

/* team_size(n_threads) threads copy into pinned memory. Call upload_close() also after a failure; it accepts
 * a zeroed Uploader. */
Status upload_open(Uploader *uploader, cudaStream_t stream, int n_threads, size_t slot_bytes, Error *err);
void upload_close(Uploader *uploader);

/* Adds an array of at most slot_bytes. The caller keeps the array until it is sent. *staged is its address on
 * the device: 256-byte aligned, and valid until UPLOAD_SLOTS - 1 more slots are full. */
Status upload_add(Uploader *uploader, const void *from, size_t bytes, void **staged, Error *err);
/* Adds n rows of row_bytes each, which are `step` bytes apart in `from`. */
Status upload_add_rows(Uploader *uploader, const void *from, size_t n, size_t row_bytes, size_t step,
                       void **staged, Error *err);
/* Copies what was added. Kernels that are enqueued on the stream afterwards may read it. */
Status upload_send(Uploader *uploader, Error *err);

/* Copies an array to its final place on the device, piece by piece. */
Status upload_array(Uploader *uploader, const void *from, size_t bytes, void *to, Error *err);
