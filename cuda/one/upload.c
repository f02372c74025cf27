/* upload.c - see upload.h. Called by: weights.c. */
#include "cuda/one/upload.h"

#include <string.h>

#include "cuda/kernels/ptx/device.h"

enum {
  LINE = 64,               /* bytes of a cache line */
  LEAST_SHARED = 64 << 10, /* for fewer bytes one thread is faster than the team */
};

Status upload_open(Uploader *u, cudaStream_t stream, int n_threads, size_t slot_bytes, Error *err) {
  *u = (Uploader){.stream = stream, .slot_bytes = (slot_bytes + 255) / 256 * 256};
  size_t bytes = UPLOAD_SLOTS * u->slot_bytes;
  TRY(cuda_status(cudaHostAlloc((void **)&u->pinned, bytes, cudaHostAllocDefault),
                  "cannot pin memory for loading", err));
  TRY(cuda_status(cudaMalloc((void **)&u->staged, bytes), "no memory for loading", err));
  for (int i = 0; i < UPLOAD_SLOTS; i++)
    TRY(cuda_status(cudaEventCreateWithFlags(&u->done[i], cudaEventDisableTiming), "cannot make an event",
                    err));
  return team_open(team_size(n_threads), &u->team, err);
}

void upload_close(Uploader *u) {
  for (int i = 0; i < UPLOAD_SLOTS; i++)
    if (u->done[i]) cudaEventDestroy(u->done[i]);
  team_close(u->team);
  cudaFree(u->staged);
  cudaFreeHost(u->pinned);
  *u = (Uploader){0};
}

/* Copies the me-th of n equal parts of the rows. Rows without gaps are one long row, cut at cache lines. */
static void copy_part(const UploadRows *rows, int me, int n) {
  const size_t bytes = rows->n * rows->row_bytes;
  if (rows->step == rows->row_bytes) {
    const size_t lines = bytes / LINE + 1, begin = lines * (size_t)me / (size_t)n * LINE,
                 end = lines * (size_t)(me + 1) / (size_t)n * LINE;
    if (begin < bytes) memcpy(rows->to + begin, rows->from + begin, (end < bytes ? end : bytes) - begin);
    return;
  }
  for (size_t row = rows->n * (size_t)me / (size_t)n; row < rows->n * (size_t)(me + 1) / (size_t)n; row++)
    memcpy(rows->to + row * rows->row_bytes, rows->from + row * rows->step, rows->row_bytes);
}

static void copy_share(void *given, int me, int n_threads) {
  const Uploader *u = given;
  for (int i = 0; i < u->n_rows; i++) copy_part(&u->rows[i], me, n_threads);
}

/* One thread reads the page cache at about 5 GB/s; the team's threads together keep the copy engine busy. */
Status upload_send(Uploader *u, Error *err) {
  const size_t at = (size_t)u->slot * u->slot_bytes + u->sent, bytes = u->used - u->sent;
  if (u->n_rows == 0) return STATUS_OK;
  if (bytes < LEAST_SHARED)
    copy_share(u, 0, 1);
  else
    team_run(u->team, copy_share, u);
  u->n_rows = 0;
  u->sent = u->used;
  return cuda_status(
      cudaMemcpyAsync(u->staged + at, u->pinned + at, bytes, cudaMemcpyHostToDevice, u->stream),
      "cannot copy to it", err);
}

/* Waits for the copies from the next slot to end, then goes on with that slot. */
static Status next_slot(Uploader *u, Error *err) {
  TRY(upload_send(u, err));
  TRY(cuda_status(cudaEventRecord(u->done[u->slot], u->stream), "loading failed", err));
  u->slot = (u->slot + 1) % UPLOAD_SLOTS;
  u->used = u->sent = 0;
  /* In the first round no event of the slot was recorded: then this returns at once. */
  return cuda_status(cudaEventSynchronize(u->done[u->slot]), "loading failed", err);
}

Status upload_add(Uploader *u, const void *from, size_t bytes, void **staged, Error *err) {
  return upload_add_rows(u, from, 1, bytes, bytes, staged, err);
}

Status upload_add_rows(Uploader *u, const void *from, size_t n, size_t row_bytes, size_t step, void **staged,
                       Error *err) {
  const size_t bytes = n * row_bytes;
  if (bytes > u->slot_bytes)
    return error_set(err, STATUS_FAILED, "a piece of %zu bytes does not fit a loading buffer of %zu", bytes,
                     u->slot_bytes);
  if (bytes > u->slot_bytes - u->used || u->n_rows == UPLOAD_ROWS) TRY(next_slot(u, err));
  const size_t at = (size_t)u->slot * u->slot_bytes + u->used;
  u->rows[u->n_rows++] = (UploadRows){u->pinned + at, from, n, row_bytes, step};
  u->used = (u->used + bytes + 255) / 256 * 256; /* at most slot_bytes, which 256 divides */
  *staged = u->staged + at;
  return STATUS_OK;
}

Status upload_array(Uploader *u, const void *from, size_t bytes, void *to, Error *err) {
  for (size_t at = 0; at < bytes;) {
    size_t n = bytes - at < u->slot_bytes ? bytes - at : u->slot_bytes;
    void *staged;
    TRY(upload_add(u, (const char *)from + at, n, &staged, err));
    TRY(upload_send(u, err));
    TRY(cuda_status(cudaMemcpyAsync((char *)to + at, staged, n, cudaMemcpyDeviceToDevice, u->stream),
                    "cannot copy on it", err));
    at += n;
  }
  return STATUS_OK;
}
