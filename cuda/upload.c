/* upload.c - see upload.h. Called by: weights.c. */
#include "cuda/upload.h"

#include <string.h>

#include "cuda/device.h"

enum {
  LINE = 64,               /* bytes of a cache line */
  LEAST_SHARED = 64 << 10, /* bytes that several threads copy sooner than one */
};

Status upload_open(Uploader *u, cudaStream_t stream, int n_threads, size_t slot_bytes, Error *err) {
  *u = (Uploader){.stream = stream, .slot_bytes = (slot_bytes + 255) / 256 * 256};
  size_t bytes = UPLOAD_SLOTS * u->slot_bytes;
  Status status = cuda_status(cudaHostAlloc((void **)&u->pinned, bytes, cudaHostAllocDefault),
                              "cannot pin memory for loading", err);
  if (!status) status = cuda_status(cudaMalloc((void **)&u->staged, bytes), "no memory for loading", err);
  for (int i = 0; i < UPLOAD_SLOTS && !status; i++)
    status = cuda_status(cudaEventCreateWithFlags(&u->done[i], cudaEventDisableTiming),
                         "cannot make an event", err);
  if (!status) status = team_open(team_size(n_threads), &u->team, err);
  if (status) upload_close(u);
  return status;
}

void upload_close(Uploader *u) {
  for (int i = 0; i < UPLOAD_SLOTS; i++)
    if (u->done[i]) cudaEventDestroy(u->done[i]);
  team_close(u->team);
  cudaFree(u->staged);
  cudaFreeHost(u->pinned);
  *u = (Uploader){0};
}

Status upload_begin(Uploader *u, Error *err) {
  u->used = 0; /* an event that was never recorded does not wait */
  return cuda_status(cudaEventSynchronize(u->done[u->next]), "loading failed", err);
}

/* Rows that are `step` bytes apart in `from`, one after another in `to`. */
typedef struct {
  char *to;
  const char *from;
  size_t n, row_bytes, step;
} Rows;

static void copy_share(void *given, int me, int n_threads) {
  const Rows *rows = given;
  const size_t begin = rows->n * (size_t)me / (size_t)n_threads,
               end = rows->n * (size_t)(me + 1) / (size_t)n_threads;
  if (rows->step == rows->row_bytes) {
    memcpy(rows->to + begin * rows->step, rows->from + begin * rows->step, (end - begin) * rows->step);
    return;
  }
  for (size_t row = begin; row < end; row++)
    memcpy(rows->to + row * rows->row_bytes, rows->from + row * rows->step, rows->row_bytes);
}

/* One thread reads the page cache at about 5 GB/s; all of them together keep the copy engine busy. */
static void copy_rows(Uploader *u, Rows rows) {
  if (rows.step == rows.row_bytes) { /* as pieces of a cache line, so that threads share one long row, too */
    const size_t whole = rows.n * rows.step / LINE, rest = rows.n * rows.step % LINE;
    memcpy(rows.to + whole * LINE, rows.from + whole * LINE, rest);
    rows.n = whole, rows.row_bytes = rows.step = LINE;
  }
  if (rows.n * rows.row_bytes < LEAST_SHARED)
    copy_share(&rows, 0, 1);
  else
    team_run(u->team, copy_share, &rows);
}

Status upload_add(Uploader *u, const void *from, size_t bytes, void **staged, Error *err) {
  return upload_add_rows(u, from, 1, bytes, bytes, staged, err);
}

Status upload_add_rows(Uploader *u, const void *from, size_t n, size_t row_bytes, size_t step, void **staged,
                       Error *err) {
  const size_t bytes = n * row_bytes;
  if (bytes > u->slot_bytes - u->used)
    return error_set(err, STATUS_FAILED, "a piece of %zu bytes does not fit a loading buffer of %zu", bytes,
                     u->slot_bytes);
  size_t at = (size_t)u->next * u->slot_bytes + u->used;
  copy_rows(u, (Rows){u->pinned + at, from, n, row_bytes, step});
  *staged = u->staged + at;
  u->used = (u->used + bytes + 255) / 256 * 256;
  return cuda_status(cudaMemcpyAsync(*staged, u->pinned + at, bytes, cudaMemcpyHostToDevice, u->stream),
                     "cannot copy to it", err);
}

Status upload_end(Uploader *u, Error *err) {
  TRY(cuda_status(cudaEventRecord(u->done[u->next], u->stream), "loading failed", err));
  u->next = (u->next + 1) % UPLOAD_SLOTS;
  return STATUS_OK;
}

Status upload_array(Uploader *u, const void *from, size_t bytes, void *to, Error *err) {
  for (size_t at = 0; at < bytes;) {
    size_t n = bytes - at < u->slot_bytes ? bytes - at : u->slot_bytes;
    void *staged;
    TRY(upload_begin(u, err));
    TRY(upload_add(u, (const char *)from + at, n, &staged, err));
    TRY(cuda_status(cudaMemcpyAsync((char *)to + at, staged, n, cudaMemcpyDeviceToDevice, u->stream),
                    "cannot copy on it", err));
    TRY(upload_end(u, err));
    at += n;
  }
  return STATUS_OK;
}
