/* map_records.c - see map_records.h. */
#include "commands/map/map_records.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/size_text.h"
#include "commands/common.h"
#include "commands/input_text.h"

/* Input without ends of records (/dev/zero, a file that is no text) is given up after MOST_UNENDED bytes. */
enum { READ_AHEAD = 1 << 16, WAIT_MS = 250, MOST_UNENDED = 256 << 20 };

uint64_t record_hash(uint64_t hash, const void *bytes, size_t size) {
  const unsigned char *at = bytes;
  for (size_t i = 0; i < size; i++) hash = (hash ^ at[i]) * 0x100000001b3u;
  return hash;
}

Status record_reader_attach(int descriptor, const char *name, RecordRules rules, RecordReader *reader,
                            Error *err) {
  struct stat info;
  *reader = (RecordReader){.name = name, .rules = rules, .descriptor = descriptor, .hash = RECORD_HASH_START};
  if (fstat(descriptor, &info) == 0 && S_ISREG(info.st_mode) && info.st_size > 0)
    reader->n_total = (uint64_t)info.st_size;
  reader->bytes = mem_alloc(READ_AHEAD, 1, "records", err);
  return reader->bytes ? STATUS_OK : STATUS_FAILED;
}

Status record_reader_open(const char *path, RecordRules rules, const volatile int *interrupted,
                          RecordReader *reader, Error *err) {
  bool standard = strcmp(path, "-") == 0;
  *reader = (RecordReader){.name = text_name(path)};
  TRY(file_refuse_url(path, err));
  if (standard) text_note_terminal();
  int descriptor = standard ? STDIN_FILENO : open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY);
  if (descriptor < 0 && errno == EINTR) /* a fifo without a writer */
    return error_set(err, STATUS_INTERRUPTED, "%s: opening was interrupted", path);
  if (descriptor < 0) return system_error(reader->name, "open", err);
  Status status = record_reader_attach(descriptor, reader->name, rules, reader, err);
  reader->owned = !standard;
  reader->interrupted = interrupted;
  return status;
}

Status record_reader_open_texts(const Buffer *texts, const char *name, RecordRules rules,
                                RecordReader *reader, Error *err) {
  const int descriptor = memfd_create("texts", MFD_CLOEXEC);
  if (descriptor < 0) return system_error(name, "keep them in memory", err);
  Status status = descriptor_write(descriptor, name, texts->data, texts->size, err);
  if (status == STATUS_OK && lseek(descriptor, 0, SEEK_SET) < 0) status = system_error(name, "rewind", err);
  if (status == STATUS_OK) status = record_reader_attach(descriptor, name, rules, reader, err);
  if (status == STATUS_OK)
    reader->owned = true;
  else
    close(descriptor);
  return status;
}

void record_reader_close(RecordReader *reader) {
  if (reader->owned) close(reader->descriptor);
  free(reader->bytes);
  buffer_release(&reader->record);
  *reader = (RecordReader){0};
}

/* Waits for input. A signal just before poll() is noticed after it, so each wait has a limit. */
static Status await_input(const RecordReader *reader, Error *err) {
  struct pollfd input = {.fd = reader->descriptor, .events = POLLIN};
  for (;;) {
    if (reader->interrupted && *reader->interrupted) return error_set(err, STATUS_INTERRUPTED, "interrupted");
    int n = poll(&input, 1, WAIT_MS);
    if (n > 0) return STATUS_OK;
    if (n < 0 && errno != EINTR) return system_error(reader->name, "wait for it", err);
  }
}

/* Reads more bytes into the empty buffer; none at the end of the input. */
static Status read_ahead(RecordReader *reader, Error *err) {
  reader->at = reader->size = 0;
  for (;;) {
    TRY(await_input(reader, err));
    ssize_t n = read(reader->descriptor, reader->bytes, READ_AHEAD);
    if (n >= 0) {
      reader->size = (size_t)n;
      return STATUS_OK;
    }
    if (errno != EINTR && errno != EAGAIN && errno != EWOULDBLOCK)
      return system_error(reader->name, "read", err);
  }
}

static Status append_limited(RecordReader *reader, const char *bytes, size_t size, bool *cut, Error *err) {
  size_t room = reader->rules.limit - reader->record.size;
  if (size > room) *cut = true;
  return buffer_append(&reader->record, bytes, size < room ? size : room, err);
}

/* Reads up to the end of the record or of the input. *some: at least one byte was there, possibly only the
 * record's end. */
static Status read_record(RecordReader *reader, Record *record, bool *some, Error *err) {
  const uint64_t begin = reader->n_consumed;
  reader->record.size = 0;
  *some = false;
  *record = (Record){.hash = reader->rules.hash};
  while (!record->ended) {
    if (reader->at == reader->size) TRY(read_ahead(reader, err));
    if (reader->size == 0) return STATUS_OK;
    if (reader->n_consumed == 0 && !reader->rules.verbatim)
      TRY(content_expect_text(reader->name, reader->bytes, reader->size, reader->rules.end == 0, STATUS_USAGE,
                              err));
    const char *from = reader->bytes + reader->at;
    size_t left = reader->size - reader->at;
    const char *end = memchr(from, reader->rules.end, left);
    size_t size = end ? (size_t)(end - from) : left;
    TRY(append_limited(reader, from, size, &record->cut, err));
    record->hash = record_hash(record->hash, from, size);
    record->ended = end != NULL;
    *some = true;
    reader->at += size + record->ended;
    reader->n_consumed += size + record->ended;
    if (!record->ended && reader->n_consumed - begin >= MOST_UNENDED)
      return error_set(err, STATUS_USAGE, "%s:%zu: no end of the record within %s", reader->name,
                       reader->n_lines + 1, size_text(reader->n_consumed - begin).text);
  }
  return STATUS_OK;
}

/* Sets the record's text: all of it if rules.verbatim, else without its CR and byte order mark. */
static void set_text(const RecordReader *reader, Record *record) {
  static const char byte_order_mark[] = "\xef\xbb\xbf";
  record->text = reader->record.data ? reader->record.data : "";
  record->size = reader->record.size;
  if (reader->rules.verbatim) return;
  if (reader->rules.end == '\n' && !record->cut && record->size && record->text[record->size - 1] == '\r')
    record->size--;
  if (record->index == 0 && record->size >= 3 && memcmp(record->text, byte_order_mark, 3) == 0) {
    record->text += 3;
    record->size -= 3;
  }
}

bool record_reader_is_ready(const RecordReader *reader) {
  struct pollfd input = {.fd = reader->descriptor, .events = POLLIN};
  const size_t left = reader->size - reader->at;
  if (reader->n_copies_left > 0) return true;
  if (left > 0 && memchr(reader->bytes + reader->at, reader->rules.end, left)) return true;
  return poll(&input, 1, 0) != 0;
}

size_t record_index(const RecordShare *share, int n_copies, size_t nth) {
  const size_t n = n_copies > 1 ? (size_t)n_copies : 1, step = share->step ? share->step : 1;
  return (share->first + nth / n * step) * n + nth % n;
}

static size_t copies(const RecordReader *reader) {
  return reader->rules.n_copies > 1 ? (size_t)reader->rules.n_copies : 1;
}

static bool is_shared(const RecordReader *reader) {
  const RecordShare *share = &reader->rules.share;
  const size_t number = reader->n_records / copies(reader);
  return share->step == 0 || (number >= share->first && (number - share->first) % share->step == 0);
}

RecordPlace record_reader_place(const RecordReader *reader) {
  return (RecordPlace){.offset = reader->n_consumed,
                       .number = reader->n_records / copies(reader),
                       .line = reader->n_lines,
                       .hash = reader->hash};
}

Status record_reader_return(RecordReader *reader, const RecordPlace *place, Error *err) {
  if (lseek(reader->descriptor, (off_t)place->offset, SEEK_SET) < 0)
    return system_error(reader->name, "find a place in it", err);
  reader->at = reader->size = 0;
  reader->n_copies_left = 0;
  reader->n_consumed = place->offset;
  reader->n_records = place->number * copies(reader);
  reader->n_lines = place->line;
  reader->hash = place->hash;
  return STATUS_OK;
}

/* Returns the last record once more. */
static void repeat(RecordReader *reader, Record *record) {
  reader->n_copies_left--;
  reader->last.copy++;
  reader->last.index = reader->n_records++;
  *record = reader->last;
}

/* Reads the next record that is not skipped as blank, and numbers it. */
static Status read_counted(RecordReader *reader, Record *record, bool *found, Error *err) {
  do {
    TRY(read_record(reader, record, found, err));
    if (!*found) return STATUS_OK;
    record->index = reader->n_records;
    record->line = ++reader->n_lines;
    set_text(reader, record);
  } while (reader->rules.passes_blank && !record->cut && text_is_blank(record->text, record->size));
  reader->hash = record_hash(reader->hash, &record->hash, sizeof record->hash);
  return STATUS_OK;
}

Status record_reader_next(RecordReader *reader, Record *record, bool *found, Error *err) {
  *found = reader->n_copies_left > 0;
  if (*found) repeat(reader, record);
  if (*found) return STATUS_OK;
  do {
    TRY(read_counted(reader, record, found, err));
    if (*found && !is_shared(reader)) reader->n_records += copies(reader);
  } while (*found && record->index < reader->n_records);
  if (!*found) return STATUS_OK;
  reader->n_records++;
  reader->last = *record;
  reader->n_copies_left = (int)copies(reader) - 1;
  return STATUS_OK;
}
