/* map_many.c - answers the records of --map many at once, in the assistant's batch.
 *
 * Called by: map.c.   Calls: batch.c, map_answer.c.
 * Always true: results are written in the order of the records (but for --unordered), so that a process that
 *              is killed leaves the results of the first records; those that wait for an earlier one are at
 *              most WINDOW, of WINDOW_BYTES together; each record in flight has a Worker of its own. */
#include <stdlib.h>
#include <string.h>

#include "commands/map/map_run.h"

enum { WINDOW = 4096 };
static const size_t WINDOW_BYTES = (size_t)64 << 20;

/* A record from its reading to its result's writing. */
typedef struct {
  size_t line;
  uint64_t input; /* the record's hash */
  bool finished;
  Buffer result;
  char *note; /* what to say of it, or NULL */
} Place;

typedef struct {
  Mapping mapping;
  Record record;
  Buffer text;  /* the record's */
  Place *place; /* NULL: it is idle */
} Worker;

typedef struct {
  Map *map;
  Worker *workers; /* [n_workers] */
  int n_workers;
  Place *places;        /* [WINDOW] a ring */
  size_t first, n;      /* the oldest place in use, and how many there are */
  size_t waiting_bytes; /* of finished results in it */
  bool has_record;      /* map->record is not begun */
  bool stays;           /* it has a result already, which is to be kept */
  bool at_end;          /* there is no other record */
} Many;

/* --- results */

static void empty(Place *place) {
  buffer_release(&place->result);
  free(place->note);
  *place = (Place){0};
}

static Status write_place(Many *many, Place *place, Error *err) {
  many->waiting_bytes -= place->result.size;
  Status status = map_add_result(many->map, place->input, &place->result, place->line,
                                 place->note ? place->note : "", err);
  const bool finished = place->finished;
  empty(place);
  place->finished = finished;
  return status;
}

/* Writes the results that wait for no other one. */
static Status write_results(Many *many, Place *latest, Error *err) {
  const bool unordered = many->map->mapping.job->map->unordered;
  if (unordered) TRY(write_place(many, latest, err));
  while (many->n > 0 && many->places[many->first].finished) {
    Place *place = &many->places[many->first];
    many->first = (many->first + 1) % WINDOW;
    many->n--;
    Status status = unordered ? STATUS_OK : write_place(many, place, err);
    empty(place);
    TRY(status);
  }
  return STATUS_OK;
}

static Status end_place(Many *many, Place *place, const char *note, Error *err) {
  if (*note) {
    place->note = mem_alloc(strlen(note) + 1, 1, "a note", err);
    if (!place->note) return STATUS_FAILED;
    strcpy(place->note, note);
  }
  place->finished = true;
  many->waiting_bytes += place->result.size;
  return write_results(many, place, err);
}

/* --- records */

/* Ends a record with an error of its own. */
static Status end_with_error(Many *many, Worker *worker, Error *err) {
  const Error error = *err;
  Place *place = worker->place;
  worker->place = NULL;
  many->map->n_errors++;
  TRY(map_error(&worker->mapping, &worker->record, &error, &place->result, err));
  return end_place(many, place, error.text, err);
}

static bool is_of_record(Status status) {
  return status == STATUS_USAGE || status == STATUS_MODEL;
}

static Status copy_record(Worker *worker, const Record *record, Error *err) {
  worker->text.size = 0;
  TRY(buffer_append(&worker->text, record->text, record->size, err));
  TRY(buffer_append(&worker->text, "", 1, err));
  worker->record = *record;
  worker->record.text = worker->text.data;
  return STATUS_OK;
}

static Worker *idle_worker(Many *many) {
  Worker *worker = many->workers;
  while (worker->place) worker++;
  return worker;
}

/* Begins map->record. *found: it gives a request; else it is an error already. */
static Status begin_record(Many *many, BatchRequest *request, bool *found, Error *err) {
  Worker *worker = idle_worker(many);
  Place *place = &many->places[(many->first + many->n++) % WINDOW];
  *place = (Place){.line = many->map->record.line, .input = many->map->record.hash};
  worker->place = place;
  TRY(copy_record(worker, &many->map->record, err));
  Status status = map_ask(&worker->mapping, &worker->record, request, err);
  *found = status == STATUS_OK;
  return is_of_record(status) ? end_with_error(many, worker, err) : status;
}

/* Reads a record, if one is there or may be waited for. While earlier results are looked at, which is in the
 * order of records, no other record is in flight. */
static Status read_record(Many *many, bool may_wait, Error *err) {
  Map *map = many->map;
  if (many->at_end || (map->resuming && many->n > 0)) return STATUS_OK;
  TRY(map_read_record(map, may_wait, &many->has_record, &many->at_end, err));
  if (!many->has_record && !many->at_end) return STATUS_OK;
  if (map->resuming) TRY(map_look_for_result(map, many->has_record, &many->stays, err));
  return STATUS_OK;
}

static Status next(void *user, bool may_wait, BatchRequest *request, bool *found, Error *err) {
  Many *many = user;
  *found = false;
  for (int i = 0; i < many->n_workers && !*found; i++)
    *found = many->workers[i].place && map_ask_more(&many->workers[i].mapping, request);
  while (!*found && many->n < WINDOW && many->waiting_bytes < WINDOW_BYTES) {
    if (!many->has_record) TRY(read_record(many, may_wait, err));
    if (!many->has_record) return STATUS_OK;
    many->has_record = false;
    if (many->stays) {
      many->stays = false;
      TRY(map_keep_result(many->map, err));
    } else {
      TRY(begin_record(many, request, found, err));
    }
  }
  return STATUS_OK;
}

/* Adds a worker's counts to those of the run. */
static void count(Mapping *all, Mapping *own) {
  all->n_answered += own->n_answered;
  all->n_cut += own->n_cut;
  all->n_prompt += own->n_prompt;
  all->n_reused += own->n_reused;
  all->n_generated += own->n_generated;
  own->n_answered = own->n_cut = 0;
  own->n_prompt = own->n_reused = own->n_generated = 0;
}

static Status done(void *user, const BatchRequest *request, const BatchResult *result, Error *err) {
  Many *many = user;
  Worker *worker = many->workers;
  while (!worker->place || !map_has_asked(&worker->mapping, request)) worker++;
  Place *place = worker->place;
  bool complete;
  Status status =
      map_reply(&worker->mapping, &worker->record, request, result, &complete, &place->result, err);
  count(&many->map->mapping, &worker->mapping);
  TRY(assistant_check_weights(many->map->mapping.assistant, err)); /* may explain the failure, too */
  if (is_of_record(status)) return end_with_error(many, worker, err);
  TRY(status);
  if (!complete) return STATUS_OK;
  char note[128];
  map_describe_cut(many->map, &worker->mapping.result, note);
  worker->place = NULL;
  return end_place(many, place, note, err);
}

/* --- all */

static Status open_many(Many *many, Error *err) {
  many->n_workers = many->map->mapping.assistant->batch_options.n_sequences;
  many->workers = mem_alloc((size_t)many->n_workers, sizeof *many->workers, "records in flight", err);
  many->places = mem_alloc(WINDOW, sizeof *many->places, "records in flight", err);
  if (!many->workers || !many->places) return STATUS_FAILED;
  for (int i = 0; i < many->n_workers; i++)
    TRY(map_begin_another(&many->map->mapping, &many->workers[i].mapping, err));
  return STATUS_OK;
}

static void close_many(Many *many) {
  for (int i = 0; many->workers && i < many->n_workers; i++) {
    mapping_release_another(&many->workers[i].mapping);
    buffer_release(&many->workers[i].text);
  }
  for (size_t i = 0; many->places && i < WINDOW; i++) empty(&many->places[i]);
  free(many->workers);
  free(many->places);
}

Status map_many(Map *map, bool has_record, Error *err) {
  Many many = {.map = map, .has_record = has_record};
  Error other; /* which may explain a failure */
  const BatchJob job = {
      .next = next, .done = done, .interrupted = map->mapping.assistant->interrupted, .user = &many};
  Status status = open_many(&many, err);
  if (status == STATUS_OK) status = batch_run(map->mapping.assistant->batch, &job, err);
  if (status == STATUS_FAILED && assistant_check_weights(map->mapping.assistant, &other)) *err = other;
  close_many(&many);
  return status;
}
